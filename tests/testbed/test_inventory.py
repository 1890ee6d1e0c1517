# SPDX-License-Identifier: Apache-2.0
"""What an inventory says of a real SUT's login: sudo with a password that Ansible Vault keeps, and with a wrong one."""

import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.ansible.support import ROOT, TINY, Ended, run
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

LOGIN = "guarded"
"""A login on the SUT that may become root with its password only."""


@dataclass(frozen=True)
class Guarded:
    """A SUT with such a login, and the login's password, which is thrown away with the test."""

    sut: Sut
    password: str


@pytest.fixture(scope="module")
def guarded(testbed: Testbed) -> Iterator[Guarded]:
    sut = testbed.sut("two-nodes")
    password = secrets.token_hex(12)
    made = sut.ssh(
        f"set -e; useradd --create-home --shell /bin/sh {LOGIN}; chpasswd; install -d -m 700 -o {LOGIN} ~{LOGIN}/.ssh; "
        f"install -m 600 -o {LOGIN} ~{sut.user}/.ssh/authorized_keys ~{LOGIN}/.ssh/; "
        f"echo '{LOGIN} ALL=(ALL) ALL' > /etc/sudoers.d/{LOGIN}",
        text=f"{LOGIN}:{password}\n",
    )
    assert made.returncode == 0, made.stderr
    yield Guarded(sut, password)
    sut.ssh(f"rm -f /etc/sudoers.d/{LOGIN}; userdel --remove {LOGIN}")


def vaulted(testbed: Testbed, lab: Lab, guarded: Guarded, become_password: str) -> tuple[Path, Path]:
    """Write an inventory whose become password is in a vault beside it; return it and the file with the vault's."""
    folder = lab.directory / "lab"
    (folder / "group_vars").mkdir(parents=True)
    hosts = testbed.inventory(
        {"testbed1": [guarded.sut]}, hosts={guarded.sut.name: {"ansible_user": LOGIN, "ansible_become": True}}
    )
    (folder / "hosts.yml").write_text(hosts.read_text(encoding="utf-8"), encoding="utf-8")
    key = lab.directory / "vault-password"
    key.write_text(secrets.token_hex(12), encoding="ascii")
    key.chmod(0o600)
    vault = folder / "group_vars" / "testbed1.yml"
    vault.write_text(yaml.safe_dump({"ansible_become_password": become_password}), encoding="utf-8")
    command = [sys.executable, "-m", "ansible", "vault", "encrypt", "--vault-password-file", str(key), str(vault)]
    subprocess.run(command, check=True, capture_output=True, env=lab.environment(), cwd=ROOT)
    assert become_password not in vault.read_text(encoding="utf-8")
    return folder, key


def calibrate(lab: Lab, folder: Path, *options: str) -> Ended:
    command = lab.command("calibrate.yml", "-i", str(folder), *options, profile=TINY)[5:]
    return run([sys.executable, "-m", "calibration.cli", "run", *command], lab.environment(PYTHONPATH=str(ROOT)))


def test_a_become_password_comes_from_the_vault(
    testbed: Testbed, lab: Lab, guarded: Guarded, scenario: Callable[[str, str, str, str], None]
) -> None:
    folder, key = vaulted(testbed, lab, guarded, guarded.password)
    calibrate(lab, folder, "--vault-password-file", str(key))
    document = lab.documents()[guarded.sut.name]
    assert document["measurements"]
    kept = b"".join(path.read_bytes() for path in lab.results.rglob("*") if path.is_file())
    assert guarded.password.encode() not in kept
    scenario("sudo with a password", "none", "the document, measured as root", "the password is nowhere")


def test_a_wrong_become_password_is_no_verdict(
    testbed: Testbed, lab: Lab, guarded: Guarded, scenario: Callable[[str, str, str, str], None]
) -> None:
    wrong = secrets.token_hex(12)
    folder, key = vaulted(testbed, lab, guarded, wrong)
    ended = calibrate(lab, folder, "--vault-password-file", str(key))
    assert ended.rc == 3, ended.text
    assert "password" in ended.text.lower()
    assert wrong not in ended.text
    scenario("become password wrong", "another password in the vault", "nothing was begun", "the reason, exit code 3")
