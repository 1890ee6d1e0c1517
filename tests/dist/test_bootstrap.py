# SPDX-License-Identifier: Apache-2.0
"""Environments are made by uv, from the registry that pip is configured to use."""

import os
import shutil
import sys
from pathlib import Path

from tests.ansible.support import ROOT
from tests.dist.conftest import run

LOCK = "tox.txt"
"""The smallest lock that needs more than one package."""


def test_uv_makes_an_environment_that_shares_no_file(tmp_path: Path) -> None:
    for name in ("calibration/bootstrap.py", "pyproject.toml", *(f"requirements/{lock}.txt" for lock in ("build", "uv"))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "requirements" / LOCK, tmp_path / "requirements" / "test.txt")
    output = run(sys.executable, tmp_path / "calibration" / "bootstrap.py", "environment", "made", env={**os.environ})
    packages = next((tmp_path / "made").glob("lib/*/site-packages"))
    assert {path.read_text().strip() for path in packages.glob("*.dist-info/INSTALLER")} == {"uv"}, output
    files = [path for path in packages.rglob("*") if path.is_file()]
    assert {path.stat().st_nlink for path in files} == {1}, "an edit would reach the files of another environment"
    assert not [path for path in files if path.suffix == ".pyc"], "modules are compiled when they are first imported"
    assert [path.name for path in (tmp_path / ".cache").iterdir()] == ["made.lock"]
    assert run(tmp_path / "made" / "bin" / "python", "-m", "tox", "--version", env={**os.environ})
