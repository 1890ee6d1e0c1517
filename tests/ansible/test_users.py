# SPDX-License-Identifier: Apache-2.0
"""Calibration as an ordinary user, and protection from other users."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE_S, ROOT, TINY, Lab, copy_checkout

from calibration.results.store import read_run
from calibration.runner.directory import Directory
from calibration.runner.files import CHANGED, PRIVATE, Refused
from tests.tools import require, require_root

USER = f"calibration-{os.getpid()}"
"""Tests may run side by side, also of several checkouts."""


@pytest.fixture(scope="module")
def user() -> Iterator[pwd.struct_passwd]:
    require_root()
    require("passwd", "useradd")
    subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", USER], check=True
    )
    yield pwd.getpwnam(USER)
    subprocess.run(["userdel", "--force", USER], check=True)  # a process of it may be about to end


@pytest.fixture
def user_lab(user: pwd.struct_passwd) -> Iterator[Lab]:
    directory = Path(tempfile.mkdtemp(prefix="calibration-test-", dir="/var/tmp"))  # where an ordinary user may go
    lab = Lab(directory).make()
    directory.chmod(0o755)
    shutil.chown(lab.remote, user.pw_uid, user.pw_gid)
    yield lab
    shutil.rmtree(directory)


def run_as(user: pwd.struct_passwd, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run *command* as *user*."""
    who: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **who, **options)


def python_of(user: pwd.struct_passwd) -> list[str]:
    """Return a Python of this version that *user* may start, and the PYTHONPATH of the installed packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}"):
        try:
            run_as(user, [candidate, "-c", ""]).check_returncode()
        except OSError:
            continue
        return [candidate, sysconfig.get_path("purelib")]
    pytest.skip(f"no {version} that an ordinary user can start: install the Debian package {version}")


def test_an_ordinary_user_calibrates_from_their_own_checkout(user: pwd.struct_passwd, user_lab: Lab) -> None:
    python, packages = python_of(user)
    checkout = copy_checkout(user_lab.directory / "checkout")
    profile = Path(shutil.copy(TINY, checkout / "tiny.yml"))
    for path in (user_lab.directory, *user_lab.directory.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    command = [
        word.replace(str(ROOT / "playbooks"), "playbooks").replace(sys.executable, python)
        for word in user_lab.command("calibrate.yml", profile=profile)
    ]
    environment = user_lab.environment(PYTHONPATH=packages, ANSIBLE_CONFIG=str(checkout / "ansible.cfg"))
    done = run_as(user, command, cwd=checkout, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = user_lab.runs()
    assert run.stat().st_uid == user.pw_uid
    document = read_run(run)
    assert document.run.status == "complete"
    assert user_lab.leftovers() == []


INTRUDER = """
import os, sys
directory, own = sys.argv[1:]
program = os.path.join(directory, "sutprobe")
attempts = {
    "sit in": lambda: os.chdir(directory),
    "list": lambda: os.listdir(directory),
    "look at": lambda: os.stat(program),
    "read": lambda: open(program, "rb").read(1),
    "write": lambda: open(program, "wb"),
    "append": lambda: open(program, "ab"),
    "cut": lambda: os.truncate(program, 0),
    "make executable by all": lambda: os.chmod(program, 0o777),
    "remove": lambda: os.unlink(program),
    "replace": lambda: os.replace(own, program),
    "put beside": lambda: open(program + ".partial", "wb"),
    "link over": lambda: os.symlink(own, program),
    "link out": lambda: os.link(program, own + ".linked"),
    "start": lambda: os.execv(program, [program]),
    "open the directory": lambda: os.chmod(directory, 0o777),
    "rename the directory": lambda: os.rename(directory, directory + ".gone"),
    "replace the directory": lambda: os.rename(os.path.dirname(own), directory),
    "remove the directory": lambda: os.rmdir(directory),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except PermissionError:
        continue
    except OSError as error:
        print(name, "failed for another reason:", error)
    else:
        print(name, "succeeded")
print("tried", len(attempts))
"""
"""Attacks of another user between the check of the program and its use."""


@pytest.fixture
def made() -> Iterator[Directory]:
    """A run's directory with a program."""
    job = {"run_id": "20261121T000000Z-0000", "sut": "sut1"}
    with Directory.create("/var/tmp", job) as directory:
        directory.write_bytes("sutprobe", b"the right bytes", 0o700)
        yield directory
        shutil.rmtree(directory.path, ignore_errors=True)


@pytest.mark.parametrize("mode", [PRIVATE, CHANGED], ids=oct)
def test_another_user_cannot_swap_the_program(user: pwd.struct_passwd, made: Directory, mode: int) -> None:
    Path(made.path).chmod(mode)
    own = Path(tempfile.mkdtemp(prefix="intruder-", dir="/var/tmp"), "program")
    script = own.parent / "intruder.py"
    script.write_text(INTRUDER)
    own.write_text("other bytes")
    for path in (own.parent, own, script):
        os.chown(path, user.pw_uid, user.pw_gid)
    try:
        program = Path(made.path, "sutprobe")
        before = program.stat()
        done = run_as(user, ["/usr/bin/python3", str(script), made.path, str(own)])
        assert done.stdout == "tried 18\n", done.stderr
        assert program.read_bytes() == b"the right bytes"
        assert program.stat().st_ino == before.st_ino
        assert sorted(path.name for path in Path(made.path).iterdir()) == ["job.json", "sutprobe"]
    finally:
        shutil.rmtree(own.parent)


def test_notices_a_directory_swapped_by_another_user(user: pwd.struct_passwd, made: Directory, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped"
    swapped.mkdir(mode=0o700)
    os.chown(swapped, user.pw_uid, user.pw_gid)
    shutil.move(made.path, tmp_path / "gone")
    shutil.move(swapped, made.path)
    with pytest.raises(Refused, match=rf"found mode 0700 and user {USER} \(id {user.pw_uid}\)"):
        Directory(made.path)
