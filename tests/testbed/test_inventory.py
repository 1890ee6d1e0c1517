# SPDX-License-Identifier: Apache-2.0
"""Inventories as a lab has them, on real SUTs: the documented example, and passwords for sudo in Ansible Vault."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from calibration.base.errors import ENVIRONMENT
from calibration.results.store import read_run
from tests.ansible.support import ROOT
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

THREE = Path(__file__).parent / "profiles" / "three.yml"
EXAMPLE = ROOT / "ansible" / "inventories" / "example-lab"

Scenario = Callable[[str, str, str, str], None]


@pytest.fixture
def suts(testbed: Testbed) -> tuple[Sut, Sut]:
    one, two = testbed.suts(("small", "fault-1"), ("small", "fault-2"))
    return one, two


def test_the_example_inventory_is_carried_out(lab: Lab, suts: tuple[Sut, Sut], scenario: Scenario) -> None:
    names = ("testbed1-sut1", "testbed2-sut1")
    folder = lab.directory / "my-lab"
    shutil.copytree(EXAMPLE, folder)
    # What leads to the SUTs, and nothing else.
    addresses = lab.directory / "addresses.yml"
    hosts = {name: sut.inventory() for name, sut in zip(names, suts, strict=True)}
    addresses.write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    small = json.dumps({"preflight_node_free_bytes": 0})
    ended = lab.calibrate(folder, "-i", str(addresses), "--limit", ",".join(names), "-e", small)
    assert ended.rc == ENVIRONMENT, ended.text
    refused, measured = (read_run(next(lab.results.glob(f"*/{name}/*"))) for name in names)
    assert (refused.run.testbed, measured.run.testbed) == ("testbed1", "testbed2")
    assert refused.run.status == "not_begun"
    assert "Kernel arguments: expected in this order: isolcpus=2-27,30-55 " in refused.not_measured[0].reason
    assert measured.run.status == "complete"
    assert measured.context is not None
    assert measured.context.parsed.capture.uid == 0, "become is true in the example"
    scenario(
        "example inventory",
        "a SUT that was not booted as its testbed promises",
        "the other testbed's run, complete",
        "status not_begun: the arguments expected and found, exit 3",
    )


def test_a_password_for_sudo_comes_from_the_vault_and_is_written_nowhere(
    testbed: Testbed, lab: Lab, suts: tuple[Sut, Sut], scenario: Scenario
) -> None:
    right, wrong = suts
    passwords = {right.name: right.login.password, wrong.name: secrets.token_hex(12)}
    become = {"ansible_user": "withpassword", "ansible_become": True}
    hosts = testbed.inventory({"suts": suts}, hosts=dict.fromkeys(passwords, become))
    folder = lab.directory / "lab"
    (folder / "host_vars").mkdir(parents=True)
    shutil.copy(hosts, folder / "hosts.yml")
    key = lab.directory / "vault-password"
    key.write_text(secrets.token_hex(12), encoding="ascii")
    key.chmod(0o600)
    for name, password in passwords.items():
        vault = Path(folder, "host_vars", f"{name}.yml")
        vault.write_text(yaml.safe_dump({"ansible_become_password": password}), encoding="utf-8")
        command = [sys.executable, "-m", "ansible", "vault", "encrypt", "--vault-password-file", str(key), str(vault)]
        subprocess.run(command, check=True, capture_output=True, env=lab.environment(), cwd=ROOT)
    ended = lab.calibrate(folder, "--vault-password-file", str(key), "-vvv")
    assert ended.rc == ENVIRONMENT, ended.text
    document = lab.document(right)
    assert document.run.status == "complete"
    assert document.context is not None
    assert document.context.parsed.capture.uid == 0
    refused = lab.document(wrong)
    assert refused.run.status == "not_begun"
    assert "password" in refused.not_measured[0].reason.lower()
    written = b"".join(path.read_bytes() for path in lab.directory.rglob("*") if path.is_file())
    for password in passwords.values():
        assert password.encode() not in written
        assert password not in ended.text
    scenario(
        "wrong sudo password",
        "a password in the vault that is not the login's",
        "the other SUT's run, complete, measured as root",
        "status not_begun: the password, exit 3; no password in any file, nor in the log at -vvv",
    )


def test_the_traffic_generator_is_reserved_the_way_csit_does(
    testbed: Testbed, lab: Lab, suts: tuple[Sut, Sut], scenario: Scenario
) -> None:
    sut, generator = suts
    groups = {"testbed1": suts, "tg": [generator]}
    inventory = testbed.inventory(groups, hosts={sut.name: {"reserve_tg": generator.name}})
    generator.read("mkdir /tmp/reservation_dir; touch /tmp/reservation_dir/csit-vpp-perf-2026")
    try:
        ended = lab.calibrate(inventory, "--limit", "!tg")
        held = generator.read("ls /tmp/reservation_dir")
    finally:
        generator.read("rm -r /tmp/reservation_dir")
    assert ended.rc == ENVIRONMENT, ended.text
    assert held.split() == ["csit-vpp-perf-2026"]
    refused = lab.document(sut)
    assert refused.run.status == "not_begun"
    assert "csit-vpp-perf-2026" in refused.not_measured[0].reason
    with lab.calibrating(inventory, "--limit", "!tg", profile=THREE) as running:
        running.until_step(sut, "jitter")
        held = generator.read("ls /tmp/reservation_dir")
        ended = running.end()
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert document.run.id in held
    for item in suts:
        assert item.read("find /tmp /var/tmp -name 'reservation*' -o -name 'calibration-*'") == ""
    scenario(
        "traffic generator in use",
        "CSIT's reservation with a file of another job on it",
        "that reservation; after its end the run, which took and left it",
        "status not_begun with the job's name, exit 3",
    )
