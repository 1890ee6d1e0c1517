# SPDX-License-Identifier: Apache-2.0
"""Logins with other shells, over real ssh: they print whatever they like, and are measured or refused with a remedy."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support import TINY, Ended, Lab, calibrate

from bench.suts import Servers, Sut
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.tools import require, require_root

NOISY = {
    "sh": ("/bin/sh", ".profile"),
    "bash": ("/bin/bash", ".bashrc"),
    "fish": ("/usr/bin/fish", ".config/fish/config.fish"),
    "tcsh": ("/usr/bin/tcsh", ".cshrc"),
    "zsh": ("/usr/bin/zsh", ".zshenv"),
}
"""Shells that must do, each with the file that it reads at its start."""

REFUSED = {
    "nologin": ("/usr/sbin/nologin", "stdout: This account is currently not available."),
    "rbash": ("/bin/rbash", "restricted: cannot specify `/' in command names"),
}
"""Shells that run no command of ours, and what they say."""

PRINTS = "echo 'Welcome {\"a\": 1}'\necho 'Unpaid bills!' >&2\n"


@dataclass(frozen=True)
class Night:
    """One calibration of a SUT per shell."""

    ended: Ended
    documents: dict[str, RunDocument]
    logins: dict[str, str]


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    require_root()
    require("passwd", "useradd")
    require("openssh-server", "sshd")
    shells = {name: shell for name, (shell, _) in (NOISY | REFUSED).items() if Path(shell).exists()}
    worker = os.environ.get("PYTEST_XDIST_WORKER", "test")
    logins = {name: f"cal-{worker}-{name}" for name in shells}
    directory = Path(tempfile.mkdtemp(prefix="calibration-logins-", dir="/var/tmp"))  # where ordinary users may go
    directory.chmod(0o755)
    suts = [Sut(name, f"127.85.3.{number}", 0.0, login=login) for number, (name, login) in enumerate(logins.items(), 1)]
    servers = Servers(suts, directory / "suts")
    try:
        for name, login in logins.items():
            # Without a password, and not locked as an account without one is by default.
            options = ["--no-create-home", "--home-dir", "/nonexistent", "--password", "*", "--shell", shells[name]]
            subprocess.run(["useradd", *options, login], check=True)
        lab = Lab(directory / "lab").make()
        lab.directory.chmod(0o755)
        with servers:
            servers.folder.chmod(0o755)
            (servers.folder / "authorized_keys").chmod(0o644)
            for sut in suts:
                give(servers, sut)
            inventory = lab.directory / "hosts.yml"
            variables = {
                "calibration_results_dir": str(lab.results),
                "calibration_profile": str(TINY),
                "report_site": False,
            }
            everyone = servers.inventory(**variables)
            everyone["all"]["hosts"] |= {"becomes": become(logins["sh"], lab.remote)}
            inventory.write_text(yaml.safe_dump(everyone), encoding="utf-8")
            ended = calibrate(lab, inventory)
        documents = {path.parent.name: read_run(path) for path in lab.runs()}
        yield Night(ended, documents, logins)
    finally:
        for login in logins.values():
            subprocess.run(["userdel", "--force", login], check=True)  # sshd may have processes of it still
        shutil.rmtree(directory)


def give(servers: Servers, sut: Sut) -> None:
    """Give the login of *sut* its home, where its shell finds something to print, and its remote directory."""
    home = servers.home(sut)
    if sut.name in NOISY:
        start = home / NOISY[sut.name][1]
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(PRINTS, encoding="utf-8")
    owner = pwd.getpwnam(str(sut.login))
    for path in (home, *home.rglob("*"), servers.remote_base(sut)):
        os.chown(path, owner.pw_uid, owner.pw_gid)


def become(login: str, base: Path) -> dict[str, object]:
    """Return the variables of a SUT on which root becomes *login*."""
    shutil.chown(base, login)
    return {
        "ansible_connection": "local",
        "ansible_become": True,
        "ansible_become_method": "sudo" if shutil.which("sudo") else "su",
        "ansible_become_user": login,
        "calibration_remote_base": str(base),
        "reserve_path": str(base / "reservation"),
    }


def of(night: Night, name: str) -> RunDocument:
    if name not in night.logins:
        require(name, name)
    return night.documents[name]


@pytest.mark.parametrize("name", NOISY)
def test_a_login_is_measured_whatever_its_shell_is_and_prints(name: str, night: Night) -> None:
    document = of(night, name)
    assert document.run.status == "complete", night.ended.text


@pytest.mark.parametrize("name", REFUSED)
def test_a_shell_that_runs_nothing_is_refused_with_what_it_said_and_the_remedy(name: str, night: Night) -> None:
    document = of(night, name)
    assert document.run.status == "not_begun"
    (missing,) = document.not_measured
    assert REFUSED[name][1] in missing.reason
    assert f"chsh -s /bin/sh {night.logins[name]}" in missing.reason


def test_root_becomes_another_user_on_the_sut(night: Night) -> None:
    document = night.documents["becomes"]
    assert document.run.status == "complete", night.ended.text
    assert document.context is not None
    assert document.context.parsed.capture.uid == pwd.getpwnam(night.logins["sh"]).pw_uid
