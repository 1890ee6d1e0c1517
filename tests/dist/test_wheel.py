# SPDX-License-Identifier: Apache-2.0
"""The wheel is the same wherever it is built, and calibrates without checkout and compiler."""

import json
import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from calibration.build import BUILT_DIRECTORY
from tests.ansible.support import ROOT, TINY, copy_checkout, files_of_checkout
from tests.dist.conftest import BUILD, PIP_WHEEL, Installed, only, run, stages

SHARED = ("ansible/inventories", "docs", "results/example/run.json", "templates")
"""What stands beside the package in a checkout and is in ``calibration/share/`` of a wheel."""

MAKE_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def test_the_wheel_has_the_package_with_sutprobe_and_the_shared_directories(wheel: Path) -> None:
    playbooks = {
        str((Path(folder) / name).relative_to(ROOT))
        for folder, _, names in os.walk(ROOT / "playbooks", followlinks=True)
        for name in names
        if name.endswith((".py", ".yml", ".md", ".rst", ".txt"))
    }
    wanted = {
        name if name.startswith("calibration/") else f"calibration/share/{name}"
        for name in {*files_of_checkout("calibration", *SHARED), *playbooks}
        if not name.startswith("docs/calibration/")
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("calibration/")}
    assert found == wanted | {"calibration/share/ansible.cfg"}


def test_a_build_leaves_nothing_in_the_checkout(wheel: Path) -> None:
    source = wheel.parent.parent
    assert not [*source.glob("*.egg-info")]
    assert [path.name for path in source.glob("build/**/*") if path.is_file()] == ["old.py"], "what was there before"


def test_the_containers_wheel_is_the_same_bit_for_bit(wheel: Path, tmp_path: Path) -> None:
    """From another directory, through a source distribution as with ``python -m build``, in the tests' environment."""
    checkout, source = copy_checkout(tmp_path / "checkout"), tmp_path / "image" / "source"
    for instruction, arguments in stages()[0]:
        *names, target = arguments.split()
        if instruction == "COPY" and target == "/source/":
            source.mkdir(parents=True)
            for name in names:
                shutil.copy2(checkout / name, source)
        elif instruction == "COPY":
            shutil.copytree(checkout / names[0], tmp_path / "image" / target.removeprefix("/"))
    run(sys.executable, "-c", MAKE_SDIST, tmp_path, env=BUILD, cwd=source)
    run(*PIP_WHEEL, tmp_path, "--no-build-isolation", only(tmp_path, "*.tar.gz"), env=BUILD)
    assert only(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_calibrates_from_an_empty_directory(installed: Installed, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No module named ziglang"):
        installed("python", "-m", "ziglang", "version")
    assert json.loads(installed("calibration", "plan", "--profile", "full", "--json"))["steps"]
    # this machine stands for other tests' SUTs too
    (tmp_path / "remote").mkdir()
    own = {"calibration_remote_base": str(tmp_path / "remote"), "calibration_lock": "calibration-wheel"}
    output = installed("calibration", "run", "--profile", TINY, "-e", json.dumps(own))
    document = only(installed.place / "results", "*/*/*/run.json")
    assert f"Results: {document.parent}\n" in output
    built = json.loads((BUILT_DIRECTORY / platform.machine() / "build.json").read_text())
    assert json.loads(document.read_text())["run"]["probe"]["sha256"] == built["sha256"]
    assert "valid, complete, 1 measurement" in installed("calibration", "validate", document)
    assert (installed.place / "docs" / "_build" / "html" / "index.html").is_file()
    assert "Idle latency" in installed("calibration", "report", "--text")
    assert "idle_latency" in installed("calibration", "judge", "--results", "results", "--json")
    assert {path.name for path in installed.place.iterdir()} == {"results", "docs"}
    assert {path.name for path in installed.home.iterdir()} == {".cache"}
    assert not {"probe", "zig"} & {path.name for path in (installed.home / ".cache" / "calibration").iterdir()}
