# SPDX-License-Identifier: Apache-2.0
"""The same calibration as an ordinary user, and as root that becomes one."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import PATIENCE_S, ROOT, TINY, Lab

from calibration.results.store import read_run

USER = "calibration-test"

NEEDED = ("ansible", "ansible.cfg", "calibration", "docs", "playbooks", "roles", "templates", ".cache/kernels")


@pytest.fixture(scope="module")
def user() -> Iterator[pwd.struct_passwd]:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user")
    if shutil.which("useradd") is None:
        pytest.skip("there is no useradd here")
    subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", USER], check=True
    )
    yield pwd.getpwnam(USER)
    subprocess.run(["userdel", USER], check=True)


@pytest.fixture
def user_lab(user: pwd.struct_passwd) -> Iterator[Lab]:
    directory = Path(tempfile.mkdtemp(prefix="calibration-test-", dir="/var/tmp"))  # where an ordinary user may go
    lab = Lab(directory).make()
    directory.chmod(0o755)
    shutil.chown(lab.remote, user.pw_uid, user.pw_gid)
    yield lab
    shutil.rmtree(directory)


def python_of(user: pwd.struct_passwd) -> list[str]:
    """Return a Python of this version that *user* may start, with the variable that makes it find what is installed."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}"):
        try:
            subprocess.run([candidate, "-c", ""], user=user.pw_uid, group=user.pw_gid, extra_groups=[], check=True)
        except OSError:
            continue
        return [candidate, sysconfig.get_path("purelib")]
    pytest.skip(f"no {version} that an ordinary user may start: {sys.executable} is out of reach")


def test_an_ordinary_user_calibrates_from_a_checkout_of_their_own(user: pwd.struct_passwd, user_lab: Lab) -> None:
    python, packages = python_of(user)
    checkout = user_lab.directory / "checkout"
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, checkout / name)
    profile = Path(shutil.copy(TINY, checkout / "tiny.yml"))
    for path in (user_lab.directory, *user_lab.directory.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    command = [
        word.replace(str(ROOT / "playbooks"), "playbooks").replace(sys.executable, python)
        for word in user_lab.command("calibrate.yml", profile=profile)
    ]
    environment = user_lab.environment(PYTHONPATH=packages, ANSIBLE_CONFIG=str(checkout / "ansible.cfg"))
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = user_lab.runs()
    assert run.stat().st_uid == user.pw_uid
    document = read_run(run)
    assert document.run.status == "complete"
    assert user_lab.leftovers() == []


def test_root_becomes_another_user_on_the_sut(user_lab: Lab) -> None:
    method = "sudo" if shutil.which("sudo") else "su"
    options = ["--become", "--become-method", method, "--become-user", USER]
    ended = user_lab.run("calibrate.yml", *options, "-e", "ansible_python_interpreter=/usr/bin/python3")
    assert ended.rc == 0, ended.text
    (run,) = user_lab.runs()
    assert run.stat().st_uid == 0
    assert read_run(run).run.status == "complete"
    assert user_lab.leftovers() == []


def test_a_read_only_home_is_no_obstacle(tmp_path: Path) -> None:
    lab = Lab(tmp_path).make()
    lab.home.chmod(0o500)
    ended = lab.run("calibrate.yml")
    assert ended.rc == 0, ended.text
    assert list(lab.home.iterdir()) == []
