# SPDX-License-Identifier: Apache-2.0
"""Login shells and ways to become root over real ssh: what works is measured, the rest refused with a remedy."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import TINY, Ended, Lab, calibrate

from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.servers import Servers, Sut
from tests.tools import require, require_root, require_ssh

NOISY = {
    "sh": ("/bin/sh", ".profile"),
    "bash": ("/bin/bash", ".bashrc"),
    "fish": ("/usr/bin/fish", ".config/fish/config.fish"),
    "tcsh": ("/usr/bin/tcsh", ".cshrc"),
    "zsh": ("/usr/bin/zsh", ".zshenv"),
}
"""Supported shells with the file that each reads at its start."""

REFUSED = {
    "nologin": ("/usr/sbin/nologin", "stdout: This account is currently not available."),
    "rbash": ("/bin/rbash", "restricted: cannot specify `/' in command names"),
}
"""Shells that run no commands, and their messages."""

PASSWORD = secrets.token_hex(8)
"""The password of the logins that become another user."""

VAULTED = "in the vault"
"""Stands for the password as it is encrypted in the inventory."""

WRONG: dict[str, Any] = {"ansible_become_password": "wrong"}

BECOME: dict[str, tuple[str, dict[str, Any], str]] = {
    "nopasswd": ("NOPASSWD: ALL", {}, ""),
    "usepty": ("NOPASSWD: ALL\nDefaults:{login} use_pty", {}, ""),
    "vault": ("ALL", {"ansible_become_password": VAULTED}, ""),
    "nopassword": ("ALL", {}, "sudo asks {login} for a password: set ansible_become_password"),
    "wrong": ("ALL", WRONG, "sudo refuses the password of {login}: correct ansible_become_password"),
    "notty": ("NOPASSWD: ALL\nDefaults:{login} requiretty", {}, "sudo requires a terminal: remove requiretty"),
    "nosudo": ("", {"ansible_become_exe": "/nonexistent/sudo"}, "sudo is not installed on the SUT: install it"),
    "suwrong": ("", {"ansible_become_method": "su", **WRONG}, "su refuses the password of {login}"),
    "sunone": ("", {"ansible_become_method": "su", "ansible_timeout": 10}, "su asks {login} for a password"),
}
"""How a login may use sudo, the variables of its SUT, and why it is refused, if it is."""

ROOT_INSTEAD = ", or log in as root and set ansible_become: false"

PRINTS = "echo 'Welcome {\"a\": 1}'\necho 'Unpaid bills!' >&2\n"


@dataclass(frozen=True)
class Night:
    """One calibration with a SUT per shell."""

    ended: Ended
    documents: dict[str, RunDocument]
    logins: dict[str, str]


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("logins")]  # one run for all of them


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    require_root()
    require("passwd", "useradd")
    require_ssh()
    shells = {name: shell for name, (shell, _) in (NOISY | REFUSED).items() if Path(shell).exists()}
    shells |= dict.fromkeys(BECOME if shutil.which("sudo") else (), "/bin/sh")
    logins = {name: f"cal-{os.getpid()}-{name}" for name in shells}
    directory = Path(tempfile.mkdtemp(prefix="calibration-logins-", dir="/var/tmp"))  # where ordinary users may go
    directory.chmod(0o755)
    suts = [Sut(name, f"127.85.3.{number}", login=login) for number, (name, login) in enumerate(logins.items(), 1)]
    servers, sudoers = Servers(suts, directory / "suts"), Path(f"/etc/sudoers.d/calibration-{os.getpid()}")
    try:
        for name, login in logins.items():
            # No password, but not locked.
            options = ["--no-create-home", "--home-dir", "/nonexistent", "--password", "*", "--shell", shells[name]]
            subprocess.run(["useradd", *options, login], check=True)
            if name in BECOME:
                subprocess.run(["chpasswd"], input=f"{login}:{PASSWORD}", text=True, check=True)
        if shutil.which("sudo"):
            sudoers.write_text("".join(sudo_rules(logins)), encoding="ascii")
            sudoers.chmod(0o440)
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
            for name in BECOME.keys() & logins.keys():
                everyone["all"]["hosts"][name] |= {"ansible_become": True, **BECOME[name][1]}
            (directory / "vault").write_text("passphrase", encoding="ascii")
            vault = ("--vault-password-file", str(directory / "vault"))
            encrypted = lab.ansible("vault", "encrypt_string", *vault, PASSWORD).text
            text = yaml.safe_dump(everyone)
            inventory.write_text(text.replace(VAULTED, encrypted.replace("\n", "\n" + 12 * " ")), encoding="utf-8")
            ended = calibrate(lab, inventory, *vault)
        documents = {path.parent.name: read_run(path) for path in lab.runs()}
        yield Night(ended, documents, logins)
    finally:
        sudoers.unlink(missing_ok=True)
        for login in logins.values():
            subprocess.run(["userdel", "--force", login], check=True)  # sshd may have processes of it still
        shutil.rmtree(directory)


def give(servers: Servers, sut: Sut) -> None:
    """Make the home, with a shell start file that prints, and the remote directory belong to the login of *sut*."""
    home = servers.home(sut)
    if sut.name in NOISY:
        start = home / NOISY[sut.name][1]
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(PRINTS, encoding="utf-8")
    owner = pwd.getpwnam(str(sut.login))
    for path in (home, *home.rglob("*"), *(() if sut.name in BECOME else (servers.remote_base(sut),))):
        os.chown(path, owner.pw_uid, owner.pw_gid)


def sudo_rules(logins: dict[str, str]) -> Iterator[str]:
    """Yield the lines of sudoers for *logins*."""
    for name, (rule, _, _) in BECOME.items():
        if rule and name in logins:
            yield f"{logins[name]} ALL=(ALL) {rule.format(login=logins[name])}\n"


def become(login: str, base: Path) -> dict[str, object]:
    """Return the variables of a SUT on which root becomes *login*."""
    shutil.chown(base, login)
    return {
        "ansible_connection": "local",
        "ansible_become": True,
        "ansible_become_method": "sudo" if shutil.which("sudo") else "su",
        "ansible_become_user": login,
        "calibration_remote_base": str(base),
        "calibration_lock": f"calibration-{login}",
    }


def of(night: Night, name: str) -> RunDocument:
    if name not in night.logins:
        require(name, name)
    return night.documents[name]


@pytest.mark.parametrize("name", NOISY)
def test_measures_with_any_supported_shell_and_noise(name: str, night: Night) -> None:
    document = of(night, name)
    assert document.run.status == "complete", night.ended.text


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_a_restricted_shell_with_its_message_and_a_remedy(name: str, night: Night) -> None:
    document = of(night, name)
    assert document.run.status == "not_begun"
    (missing,) = document.not_measured
    assert REFUSED[name][1] in missing.reason
    assert f"chsh -s /bin/sh {night.logins[name]}" in missing.reason


@pytest.mark.parametrize("name", BECOME)
def test_becomes_root_or_says_in_one_line_why_not(name: str, night: Night) -> None:
    if name not in night.logins:
        require("sudo", "sudo")
    document = night.documents[name]
    reason = BECOME[name][2].format(login=night.logins[name])
    assert document.run.status == ("not_begun" if reason else "complete"), night.ended.text
    for missing in document.not_measured if reason else ():
        assert missing.reason.startswith(reason)
        assert missing.reason.endswith(ROOT_INSTEAD)
        assert "Python" not in missing.reason
        assert "chsh" not in missing.reason


def test_root_becomes_another_user_on_the_sut(night: Night) -> None:
    document = night.documents["becomes"]
    assert document.run.status == "complete", night.ended.text
    assert document.context is not None
    assert document.context.parsed.capture.uid == pwd.getpwnam(night.logins["sh"]).pw_uid
