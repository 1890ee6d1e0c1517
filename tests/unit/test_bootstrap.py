# SPDX-License-Identifier: Apache-2.0
"""The two commands before anything is installed."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
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


UV = """#!/bin/sh
printf '%s\\n' "$*" >>"$RECORD"
env >>"$RECORD"
{}"""
"""Stands in for uv: records how it is started."""


@dataclass
class Fresh:
    """A checkout without an environment, and packages on disk."""

    root: Path
    packages: Path
    record: Path

    def package(self, name: str, lock: str, script: str | None = None) -> None:
        """Make the wheel of a package with a *script* of its name, and require it by its hash in *lock*."""
        information = f"{name}-1.dist-info"
        files = {
            f"{name}.py": "",
            **({f"{name}-1.data/scripts/{name}": script} if script else {}),
            f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
            f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{file},,\n" for file in (*files, f"{information}/RECORD"))
        wheel = self.packages / f"{name}-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for file, content in {**files, f"{information}/RECORD": record}.items():
                entry = zipfile.ZipInfo(file)
                entry.external_attr = 0o100755 << 16  # a file that may be started
                archive.writestr(entry, content)
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (self.root / "requirements" / lock).write_text(f"{name}==1 --hash=sha256:{sha256}\n", encoding="utf-8")

    def start(self, **settings: str) -> subprocess.CompletedProcess[str]:
        """Make the environment of the tests, with no packages but those on disk, and *settings* of the environment."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "UV_"))}
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.packages)}
        return subprocess.run(
            [sys.executable, self.root / "calibration" / "bootstrap.py", "environment", ".venv-test"],
            env={**outside, **own, "RECORD": str(self.record), **settings}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def installed(self) -> bool:
        return bool([*self.root.glob(".venv-test/lib/*/site-packages/thing.py")])

    def asked(self) -> str:
        """Return the arguments and the environment that uv was started with; empty if it was not."""
        return self.record.read_text(encoding="utf-8") if self.record.exists() else ""


@pytest.fixture
def fresh(tmp_path: Path) -> Fresh:
    made = Fresh(tmp_path / "checkout", tmp_path / "packages", tmp_path / "record")
    for name in ("calibration/bootstrap.py", "pyproject.toml", "requirements/build.txt"):
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, made.root / name)
    made.packages.mkdir()
    made.package("thing", "test.txt")
    made.package("uv", "uv.txt", UV.format(""))
    return made


def test_packages_are_installed_by_hash_and_linked_from_a_place_that_is_removed(fresh: Fresh) -> None:
    done = fresh.start(PIP_USER="0")  # as under tox
    assert done.returncode == 0, done.stderr
    arguments = fresh.asked().partition("\n")[0]
    for option in ("--require-hashes", "--link-mode hardlink", "--no-index"):
        assert option in arguments
    assert f"--cache-dir {fresh.root}/.cache/" in arguments
    assert f"--requirement {fresh.root}/requirements/test.txt" in arguments
    assert [path.name for path in (fresh.root / ".cache").iterdir()] == [".venv-test.lock"]
    assert "pip installs" not in done.stderr
    fresh.record.unlink()
    assert fresh.start().returncode == 0
    assert not fresh.asked(), "made once"


def test_packages_come_from_where_pip_is_configured_to_take_them(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = mirror\nno-index = false\ntimeout = 9\n"
        f"[install]\ntrusted-host = a\n  b\nfind-links = {fresh.packages}\n  {tmp_path}\n",
        encoding="utf-8",
    )
    fresh.start(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), PIP_NO_INDEX="no", PIP_TIMEOUT="5")
    asked = fresh.asked().splitlines()
    assert "--no-index" not in asked[0]
    for name, value in {
        "UV_DEFAULT_INDEX": "mirror", "UV_FIND_LINKS": str(fresh.packages), "UV_HTTP_TIMEOUT": "5",
        "UV_INSECURE_HOST": "a b",
    }.items():  # fmt: skip
        assert f"{name}={value}" in asked


@pytest.mark.parametrize(
    ("script", "settings", "reason"),
    [
        (None, {}, "uv cannot be used, see above"),
        (UV.format("exit 2"), {}, "uv cannot be used, see above"),
        ("#!/nonexistent/interpreter\n", {}, "cannot start uv: No such file or directory"),
        (UV.format(""), {"PIP_CONSTRAINT": os.devnull}, "uv has no setting for pip's constraint"),
    ],
    ids=["no wheel", "fails", "does not start", "configuration"],
)
def test_pip_installs_where_uv_cannot(script: str | None, settings: dict[str, str], reason: str, fresh: Fresh) -> None:
    if script is None:
        (fresh.packages / "uv-1-py3-none-any.whl").unlink()
    else:
        fresh.package("uv", "uv.txt", script)
    done = fresh.start(**settings)
    assert done.returncode == 0, done.stderr
    assert f"bootstrap: {reason}: pip installs the packages\n" in done.stderr
    assert fresh.installed()


@pytest.mark.parametrize("damaged", ["uv", "thing"])
def test_a_package_with_another_hash_is_an_error(damaged: str, fresh: Fresh) -> None:
    if damaged == "thing":
        fresh.package("uv", "uv.txt", UV.format("echo 'error: Hash mismatch for thing==1'; exit 2"))
    else:
        fresh.package("uv", "other.txt", UV.format("# other bytes"))
    done = fresh.start()
    assert done.returncode == 3
    assert re.search("hash", done.stderr, re.IGNORECASE)
    assert "pip installs" not in done.stderr
    assert not fresh.installed()


def test_no_file_of_an_environment_is_another_environments() -> None:
    shared = [path for path in Path(sysconfig.get_path("purelib")).rglob("*.py") if path.stat().st_nlink > 1]
    assert not shared, "an edit of one reaches others"


@pytest.mark.thorough
def test_environment_is_recreated_by_its_own_python(fresh: Fresh) -> None:
    # as after an update of a checkout whose environment is activated
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh.root / ".venv-test")], check=True)
    own = fresh.root / ".venv-test" / "bin" / "python"
    command = [own, fresh.root / "calibration" / "bootstrap.py", "environment", ".venv-test"]
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(fresh.packages), "RECORD": str(fresh.record)}
    subprocess.run(command, check=True, env=environ)
    assert (fresh.root / ".venv-test" / "made-from").is_file()
    assert fresh.asked()


def test_lock_files_are_complete_and_name_no_host() -> None:
    for lock in (CHECKOUT / "requirements").glob("*.txt"):
        text = lock.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert "://" not in text
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in line for line in pinned)
        assert requirements(lock.with_suffix(".in")) <= {line.partition("==")[0] for line in pinned}
