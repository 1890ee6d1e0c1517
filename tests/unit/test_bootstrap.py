# SPDX-License-Identifier: Apache-2.0
"""The two commands before anything is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calibration import bootstrap
from tests.tools import requirements

CHECKOUT = Path(__file__).parent.parent.parent
BOOTSTRAP = CHECKOUT / "calibration" / "bootstrap.py"


def start(*arguments: str, code: str | None = None, path: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code] if code else [sys.executable, str(BOOTSTRAP)]
    environment = {**os.environ, "PATH": path} if path is not None else None
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_unknown_task_prints_the_usage() -> None:
    done = start("fly")
    assert done.returncode == 2
    assert "bootstrap.py test" in done.stderr


@pytest.mark.parametrize("arguments", [["calibrate", "--help"], ["test", "-h"]])
def test_help_creates_no_environment(arguments: list[str]) -> None:
    done = start(*arguments)
    assert done.returncode == 0
    assert "usage:" in done.stderr
    assert "making" not in done.stderr


def documented() -> set[str]:
    """Return the options of each start in the read-me and the documentation."""
    pages = [CHECKOUT / "README.rst", CHECKOUT / "CONTRIBUTING.rst", *(CHECKOUT / "docs").glob("*/*.rst")]
    command = re.compile(r"^ +python3 calibration/bootstrap\.py\b *([^#\[\n]*)(?:#.*)?$", re.MULTILINE)
    return {options.strip() for page in pages for options in command.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("options", sorted(documented()))
def test_documented_starts_are_accepted(monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    made: list[Path] = []
    monkeypatch.setattr(bootstrap, "environment", lambda directory, *_, **__: made.append(directory))
    monkeypatch.setattr(os, "execv", lambda *_: None)
    bootstrap.main(options.split())
    assert len(made) == 1


@pytest.mark.parametrize(("arguments", "name"), [([], ".venv"), (["other"], "other")])
def test_an_environment_alone(monkeypatch: pytest.MonkeyPatch, arguments: list[str], name: str) -> None:
    made: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        bootstrap, "environment", lambda directory, _lock, *, with_package: made.append((directory, with_package))
    )
    bootstrap.main(["environment", *arguments])
    assert made == [(CHECKOUT / name, name == ".venv")]


@pytest.mark.parametrize(("options", "parallel"), [([], True), (["-m", "wider"], True), (["-e", "unit"], False)])
def test_all_tests_run_in_parallel(monkeypatch: pytest.MonkeyPatch, options: list[str], parallel: bool) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "environment", lambda *_, **__: Path("python"))
    monkeypatch.setattr(os, "execv", lambda _program, command: started.append(command))
    bootstrap.main(["test", *options])
    (command,) = started
    assert command[:4] == ["python", "-m", "tox", "run-parallel" if parallel else "run"]
    assert command[8:] == options


def test_old_python_is_reported_with_the_minimum() -> None:
    code = f"import runpy, sys; sys.version_info = (3, 9, 2); runpy.run_path({str(BOOTSTRAP)!r}, run_name='__main__')"
    done = start(code=code, path="/nonexistent")
    assert done.returncode == 3
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "Traceback" not in done.stderr


def test_old_python_parses_the_file() -> None:
    # the message above is of no use if an old Python stops at the syntax before it
    compile(BOOTSTRAP.read_text(encoding="utf-8"), "bootstrap.py", "exec", dont_inherit=True)
    import ast

    ast.parse(BOOTSTRAP.read_text(encoding="utf-8"), feature_version=(3, 7))


@pytest.mark.thorough
def test_environment_is_recreated_by_its_own_python(tmp_path: Path) -> None:
    # as after an update of a checkout whose environment is activated
    for name in ("calibration/bootstrap.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, tmp_path / name)
    (tmp_path / "requirements").mkdir()
    for name in ("build.txt", "test.txt"):
        (tmp_path / "requirements" / name).touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "old")], check=True)
    own = tmp_path / "old" / "bin" / "python"
    command = [own, tmp_path / "calibration" / "bootstrap.py", "environment", "old"]
    subprocess.run(command, check=True)
    assert (tmp_path / "old" / "made-from").is_file()
    subprocess.run([own, "-m", "pip", "--version"], check=True)


def test_lock_files_are_complete_and_name_no_host() -> None:
    for lock in (CHECKOUT / "requirements").glob("*.txt"):
        text = lock.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert "://" not in text
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in line for line in pinned)
        assert requirements(lock.with_suffix(".in")) <= {line.partition("==")[0] for line in pinned}
