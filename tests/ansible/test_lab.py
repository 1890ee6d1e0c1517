# SPDX-License-Identifier: Apache-2.0
"""A lab over real ssh: SUTs are sshd processes on loopback addresses, each with a host key of its own."""

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import PATIENCE_S, ROOT, TINY, Ended, Lab, load_plugin, run

from bench.suts import Servers, Sut, user
from calibration.results.records import StepRecord, records
from calibration.results.store import read_run
from tests.tools import require

EXAMPLE = ROOT / "ansible" / "inventories" / "example-lab"

DOCUMENTATION_NET, LOOPBACK_NET = "192.0.2.", "127.84.2."
"""The example's addresses lead nowhere; in a test they become addresses of this machine."""

SHORT = [Sut("sut1", f"{LOOPBACK_NET}101", 0.0), Sut("sut2", f"{LOOPBACK_NET}102", 0.0)]


@dataclass(frozen=True)
class Site:
    """Running SUTs, and the lab that calibrates them."""

    lab: Lab
    servers: Servers

    def inventory(self, **variables: Any) -> Path:
        """Write the inventory of these SUTs, with *variables* for all of them."""
        path = self.lab.directory / "hosts.yml"
        path.write_text(yaml.safe_dump(self.servers.inventory(**variables)), encoding="utf-8")
        return path

    def calibrate(self, inventory: Path, *options: str, profile: Path | str | None = TINY, **extra: str) -> Ended:
        """Run ``calibration run``, with the exit codes of the project."""
        command = [
            *(sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory)),
            *("-e", f"calibration_results_dir={self.lab.results}", "-e", '{"report_site": false}'),
            *(("-e", f"calibration_profile={profile}") if profile else ()),
        ]
        return run([*command, *options], self.lab.environment(PYTHONPATH=str(ROOT), **extra))

    def host_key(self, name: str) -> Path:
        """Return the private host key of a SUT."""
        return self.servers.folder / f"{name}.key"

    def documents(self) -> dict[str, Any]:
        """Return the run documents by SUT."""
        return {path.parent.name: read_run(path) for path in self.lab.runs() if (path / "run.json").exists()}


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    with Servers(SHORT, lab.directory / "suts") as servers:
        yield Site(lab, servers)


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    require("openssh-server", "sshd")


# Host keys


def test_a_sut_with_another_host_key_is_refused_and_the_others_are_measured(site: Site) -> None:
    other = site.host_key("sut2").with_suffix(".key.pub").read_text(encoding="ascii").split()[:2]
    known = site.servers.known_hosts
    address = f"[{SHORT[0].address}]:{site.servers.port}"
    lines = [line for line in known.read_text(encoding="ascii").splitlines() if not line.startswith(address)]
    known.write_text("\n".join([*lines, " ".join([address, *other]), ""]), encoding="ascii")
    # Ansible's own check is off, as ansible-runner has it: ssh's stays on.
    ended = site.calibrate(site.inventory(), ANSIBLE_HOST_KEY_CHECKING="False")
    assert ended.rc == 3, ended.text
    assert "sut1: not reachable:" in ended.text
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ended.text
    assert str(known) in ended.text
    assert site.documents()["sut2"].run.status == "complete"


def test_an_unknown_host_key_is_refused_and_learnt_as_the_guide_says(site: Site) -> None:
    known = site.servers.known_hosts
    known.write_text("", encoding="ascii")
    ended = site.calibrate(site.inventory(), "--limit", "sut1")
    assert ended.rc == 3, ended.text
    assert "Host key verification failed" in ended.text
    assert known.read_text(encoding="ascii") == ""
    scanned = subprocess.run(
        ["ssh-keyscan", "-p", str(site.servers.port), SHORT[0].address], capture_output=True, text=True, check=True
    ).stdout
    seen = fingerprints(scanned, site.lab.directory / "new-keys")
    console = fingerprints(
        site.host_key("sut1").with_suffix(".key.pub").read_text(encoding="ascii"), site.lab.directory / "console"
    )
    assert seen == console
    known.write_text(scanned, encoding="ascii")
    ended = site.calibrate(site.inventory(), "--limit", "sut1")
    assert ended.rc == 0, ended.text


def fingerprints(keys: str, path: Path) -> list[str]:
    path.write_text("".join(f"{line}\n" for line in keys.splitlines() if not line.startswith("#")), encoding="ascii")
    done = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True)
    return [line.split()[1] for line in done.stdout.splitlines()]


def test_host_keys_signed_by_the_labs_authority_are_trusted(site: Site) -> None:
    authority = site.lab.directory / "lab-ca"
    keygen("-t", "ed25519", "-N", "", "-f", str(authority))
    keygen("-s", str(authority), "-I", "sut1", "-h", "-n", SHORT[0].address, f"{site.host_key('sut1')}.pub")
    with (site.servers.folder / "sut1.conf").open("a") as config:
        config.write(f"HostCertificate {site.host_key('sut1')}-cert.pub\n")
    site.servers._processes["sut1"].send_signal(signal.SIGHUP)  # it reads its configuration again
    public = authority.with_suffix(".pub").read_text(encoding="ascii")
    # Nothing but the authority is known: sut2, which has no certificate, stays unknown.
    site.servers.known_hosts.write_text(
        f"@cert-authority [{LOOPBACK_NET}*]:{site.servers.port} {public}", encoding="ascii"
    )
    ended = site.calibrate(site.inventory())
    assert ended.rc == 3, ended.text
    assert site.documents()["sut1"].run.status == "complete"
    assert "sut2: not reachable:" in ended.text
    assert "Host key verification failed" in ended.text


def keygen(*arguments: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True)


# Keys and home directories


@contextmanager
def agent(lab: Lab) -> Iterator[dict[str, str]]:
    """Run an agent of the test's own; yield the variable that leads to it."""
    socket = lab.directory / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + PATIENCE_S
        while not socket.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        try:
            yield {"SSH_AUTH_SOCK": str(socket)}
        finally:
            process.terminate()


def test_a_key_with_a_passphrase_works_through_the_agent_only(site: Site) -> None:
    key = site.lab.directory / "locked"
    passphrase = secrets.token_hex(8)
    keygen("-t", "ed25519", "-N", passphrase, "-f", str(key))
    with (site.servers.folder / "authorized_keys").open("a") as keys:
        keys.write(key.with_suffix(".pub").read_text(encoding="ascii"))
    inventory = site.inventory(ansible_ssh_private_key_file=str(key))
    ended = site.calibrate(inventory, "--limit", "sut1")
    assert ended.rc == 3, ended.text
    assert "Permission denied" in ended.text
    answer = site.lab.directory / "answer"
    answer.write_text(f"#!/bin/sh\necho {passphrase}\n")
    answer.chmod(0o700)
    with agent(site.lab) as variable:
        asked = {**os.environ, **variable, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", str(key)], env=asked, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        ended = site.calibrate(inventory, "--limit", "sut1", **variable)
    assert ended.rc == 0, ended.text
    assert passphrase not in ended.text


def test_a_home_that_is_read_only_is_no_obstacle_to_ssh(site: Site) -> None:
    site.lab.home.chmod(0o500)
    ended = site.calibrate(site.inventory(), "--limit", "sut1")
    assert ended.rc == 0, ended.text
    assert list(site.lab.home.iterdir()) == []


def test_a_path_too_long_for_sockets_is_no_obstacle_to_ssh(site: Site) -> None:
    deep = site.lab.directory / ("deep" * 25)
    ended = site.calibrate(site.inventory(), "--limit", "sut1", ANSIBLE_HOME=str(deep))
    assert ended.rc == 0, ended.text
    assert not (deep / "cp").exists()
    assert list(site.lab.directory.glob("calibration-*")) == []


SSH = load_plugin("callback", "calibration_ssh")


def test_sockets_go_where_they_fit(tmp_path: Path) -> None:
    assert SSH.fit(str(tmp_path / "cp")) == (len(str(tmp_path / "cp")) + SSH.NAME_BYTES <= SSH.SOCKET_BYTES)
    assert SSH.fit("/tmp")
    assert not SSH.fit(str(tmp_path / ("deep" * 25)))
    (tmp_path / "file").write_text("no directory")
    assert not SSH.fit(str(tmp_path / "file" / "cp"))


def test_a_shared_connection_that_does_not_answer_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets, asked = tmp_path / "sockets", tmp_path / "asked"
    sockets.mkdir()
    (sockets / "socket").touch()
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {asked}\nexec sleep 10000\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(SSH, "ANSWER_S", 1)
    SSH.CallbackModule().remove(str(sockets), os.getpid())
    assert asked.exists()
    assert not sockets.exists()


# What Ansible's options mean


def spans(site: Site) -> list[tuple[datetime, datetime]]:
    """Return when each step on any SUT began and ended, in the order of their beginnings."""
    steps = [each for path in site.lab.runs() for each in records(path) if isinstance(each, StepRecord)]
    return sorted((each.started_at, each.started_at + timedelta(seconds=each.duration_s)) for each in steps)


def test_one_fork_measures_one_sut_after_another(site: Site) -> None:
    ended = site.calibrate(site.inventory(), "--forks", "1")
    assert ended.rc == 0, ended.text
    first, second = spans(site)
    second_is_recorded_in_whole_seconds = timedelta(seconds=1)
    assert first[1] <= second[0] + second_is_recorded_in_whole_seconds
    assert {each.run.status for each in site.documents().values()} == {"complete"}


@pytest.mark.parametrize("strategy", ["linear", "free"])
def test_a_strategy_in_the_environment_changes_no_result(site: Site, strategy: str) -> None:
    ended = site.calibrate(site.inventory(), ANSIBLE_STRATEGY=strategy)
    assert ended.rc == 0, ended.text
    assert {name: each.run.status for name, each in site.documents().items()} == {
        "sut1": "complete",
        "sut2": "complete",
    }


def test_a_limit_leaves_the_other_suts_alone_and_v_shows_tasks(site: Site) -> None:
    ended = site.calibrate(site.inventory(), "--limit", "sut2", "-v")
    assert ended.rc == 0, ended.text
    assert list(site.documents()) == ["sut2"]
    assert re.search(r"^\[sut2\] .*Measure$", ended.text, re.MULTILINE)
    assert "sut1" not in re.sub(re.escape(str(site.lab.directory)) + r"\S*", "", ended.text)


def test_check_mode_over_ssh_writes_nothing(site: Site) -> None:
    ended = site.calibrate(site.inventory(), "--check")
    assert ended.rc == 0, ended.text
    assert ended.text.count("1. Idle latency") == 2
    assert site.lab.runs() == []
    assert [list(site.servers.remote_base(sut).iterdir()) for sut in SHORT] == [[], []]


# The example


@pytest.fixture
def example(lab: Lab) -> Iterator[Site]:
    """The documented inventory, with nothing changed but what leads to its SUTs: addresses, port, login and key."""
    hosts = yaml.safe_load((EXAMPLE / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]
    addresses = {
        name: variables["ansible_host"].replace(DOCUMENTATION_NET, LOOPBACK_NET)
        for group in hosts.values()
        for name, variables in group["hosts"].items()
        if variables
    }
    suts = [Sut(name, address, 0.0) for name, address in sorted(addresses.items())]
    with Servers(suts, lab.directory / "suts") as servers:
        shutil.copytree(EXAMPLE, lab.directory / "lab")
        for path in (lab.directory / "lab").rglob("*.yml"):
            text = path.read_text(encoding="utf-8")
            for pattern, value in (
                (re.escape(DOCUMENTATION_NET), LOOPBACK_NET),
                (r"(?<=ansible_port: )\d+", str(servers.port)),
                (r"(?<=ansible_user: )\S+", user()),
                (r"(?<=ansible_ssh_private_key_file: )\S+", str(servers.key)),
                (r"(?<=calibration_results_dir: )\S+", str(lab.results)),
            ):
                text = re.sub(pattern, value, text)
            path.write_text(text, encoding="utf-8")
        yield Site(lab, servers)


def test_the_example_inventory_is_carried_out(example: Site) -> None:
    options = shlex.join(["-F", "none", "-o", f"UserKnownHostsFile={example.servers.known_hosts}"])
    own = {"ansible_ssh_common_args": options, "ansible_become": False, "ansible_port": example.servers.port}
    ended = example.calibrate(example.lab.directory / "lab", "--check", "-e", json.dumps(own), profile=None)
    # This machine stands for all of them, and was not booted as those of the first testbed must be.
    assert ended.rc == 3, ended.text
    for sut in example.servers.suts:
        as_expected = sut.name.startswith("testbed2")
        found = r"\d+ steps, about" if as_expected else "Kernel arguments: expected in this order: isolcpus=2-27,30-55 "
        assert re.search(rf"^{sut.name}: {found}", ended.text, re.MULTILINE), ended.text


def test_what_a_group_sets_in_the_example_outranks_what_all_have(lab: Lab) -> None:
    command = [sys.executable, "-m", "ansible", "inventory", "-i", str(EXAMPLE), "--list"]
    hosts = json.loads(run(command, lab.environment()).text)["_meta"]["hostvars"]
    assert (hosts["testbed1-sut1"]["calibration_profile"], hosts["testbed2-sut1"]["calibration_profile"]) == (
        "full",
        "nightly",
    )
    assert hosts["testbed1-sut1"]["calibration_limits"]
    assert not hosts["testbed2-sut1"]["calibration_limits"]
    assert hosts["testbed1-tg1"]["preflight_effects"]["bios"] == "off"


def test_the_commands_of_the_readme_are_understood(example: Site) -> None:
    text = (
        (ROOT / "README.rst")
        .read_text(encoding="utf-8")
        .partition("\nCalibrate a lab\n")[2]
        .partition("\nWhere things are")[0]
    )
    commands = [
        shlex.split(line, comments=True)
        for line in re.findall(r"^ {3,6}((?:python3|\.venv/bin/)\S* .*my-lab.*)$", text, re.MULTILINE)
    ]
    assert len(commands) == 3
    for program, *words in commands:
        arguments = [str(example.lab.directory / "lab") if each == "my-lab" else each for each in words]
        if program == "python3":
            assert arguments.pop(0) == "calibration/bootstrap.py"
            command = ["calibration.cli", "run", *arguments]
        else:
            command = ["ansible", "playbook", *arguments]
        ended = run([sys.executable, "-m", *command, "--list-hosts"], example.lab.environment(PYTHONPATH=str(ROOT)))
        assert ended.rc == 0, ended.text
        listed = set(re.findall(r"^ {6}(\S+)$", ended.text, re.MULTILINE))
        everyone = {sut.name for sut in example.servers.suts}
        assert listed == (
            {name for name in everyone if name.startswith("testbed1")} if "--limit" in command else everyone
        )
