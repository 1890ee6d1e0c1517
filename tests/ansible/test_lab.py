# SPDX-License-Identifier: Apache-2.0
"""A lab over real ssh: SUTs are sshd processes on loopback addresses, each with its own host key."""

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support import ROOT, TINY, TWO, Ended, Lab, calibrate, executable, load_plugin, run, wait_until

from calibration.results.model import RunDocument
from calibration.results.store import read_run
from calibration.run.records import StepRecord, records
from tests.servers import Servers, Sut, user
from tests.tools import require_ssh

EXAMPLE = ROOT / "ansible" / "inventories" / "example-lab"

DOCUMENTATION_NET, LOOPBACK_NET = "192.0.2.", "127.84.2."
"""The example's documentation addresses become loopback addresses."""

ADDRESSES = {
    name: f"{LOOPBACK_NET}{number}"
    for number, name in enumerate(("trusted", "changed", "unknown", "signed", "locked"), 101)
}
"""Addresses of SUTs, by the property of their host key or login key."""

ODD = {
    "9.Lead_UPPER": f"{LOOPBACK_NET}201",
    "x" * 63: f"{LOOPBACK_NET}202",
    "six": "::1",
}
"""Addresses of SUTs with odd names or ways: behind another one, without shared connections, and with IPv6 only."""


@dataclass(frozen=True)
class Site:
    """Running SUTs and the lab that calibrates them."""

    lab: Lab
    servers: Servers
    passphrase: str = ""
    """Passphrase of the login key ``locked`` in the lab's directory."""

    def host_key(self, name: str) -> Path:
        """Return the private host key of a SUT."""
        return self.servers.folder / f"{name}.key"

    def documents(self) -> dict[str, RunDocument]:
        """Return the newest run document of each SUT."""
        return {path.parent.name: read_run(path) for path in self.lab.runs() if (path / "run.json").exists()}


@dataclass(frozen=True)
class Calibrated:
    """Output and documents of a calibration."""

    ended: Ended
    documents: dict[str, RunDocument]


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    require_ssh()


@pytest.fixture(scope="module")
def site(module_lab: Lab) -> Iterator[Site]:
    """SUTs with host keys trusted in different ways, and a read-only home directory."""
    module_lab.home.chmod(0o500)
    suts = [Sut(name, address) for name, address in (ADDRESSES | ODD).items()]
    with Servers(suts, module_lab.directory / "suts") as servers:
        found = Site(module_lab, servers, secrets.token_hex(8))
        key = module_lab.directory / "locked"
        keygen("-t", "ed25519", "-N", found.passphrase, "-f", str(key))
        with (servers.folder / "authorized_keys").open("a") as keys:
            keys.write(key.with_suffix(".pub").read_text(encoding="ascii"))
        known = {line.split()[0]: line for line in servers.known_hosts.read_text(encoding="ascii").splitlines()}
        places = {name: f"[{address}]:{servers.port}" for name, address in ADDRESSES.items()}
        known[places["changed"]] = known[places["trusted"]].replace(places["trusted"], places["changed"])
        del known[places["unknown"]], known[places["signed"]]
        # An authority is trusted for all SUTs and has signed one key.
        authority = module_lab.directory / "lab-ca"
        keygen("-t", "ed25519", "-N", "", "-f", str(authority))
        keygen("-s", str(authority), "-I", "x", "-h", "-n", ADDRESSES["signed"], f"{found.host_key('signed')}.pub")
        with (servers.folder / "signed.conf").open("a") as config:
            config.write(f"HostCertificate {found.host_key('signed')}-cert.pub\n")
        servers._processes["signed"].send_signal(signal.SIGHUP)  # reload the configuration
        public = authority.with_suffix(".pub").read_text(encoding="ascii")
        certified = f"@cert-authority [{LOOPBACK_NET}*]:{servers.port} {public}"
        servers.known_hosts.write_text("\n".join([*known.values(), certified]), encoding="ascii")
        yield found


def keygen(*arguments: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def calibrate_site(site: Site, *options: str, **extra: str) -> Calibrated:
    """Calibrate the SUTs of *site*; ``locked`` needs a key with a passphrase."""
    variables = {"calibration_results_dir": str(site.lab.results), "calibration_profile": str(TINY)}
    inventory = site.servers.inventory(**variables, report_site=False)
    inventory["all"]["hosts"]["locked"]["ansible_ssh_private_key_file"] = str(site.lab.directory / "locked")
    hosts = inventory["all"]["hosts"]
    behind, alone = list(ODD)[:2]
    common = inventory["all"]["vars"]["ansible_ssh_common_args"]
    jump = f"ssh {common} -i {site.servers.key} -p {site.servers.port} -W %h:%p {user()}@{ADDRESSES['trusted']}"
    hosts[behind]["ansible_ssh_common_args"] = f"{common} -o {shlex.quote(f'ProxyCommand={jump}')}"
    hosts[alone] |= {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none", "calibration_lock": "alone"}
    path = site.lab.directory / "hosts.yml"
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
    ended = calibrate(site.lab, path, *options, **extra)
    return Calibrated(ended, site.documents())


@pytest.fixture(scope="module")
def first(site: Site) -> Calibrated:
    """Calibrate all without an agent, from a directory whose path is too long for sockets.

    Ansible's own check of host keys is off, as with ansible-runner; ssh's remains on.
    """
    deep = str(site.lab.directory / ("deep" * 25))
    return calibrate_site(site, ANSIBLE_HOST_KEY_CHECKING="False", ANSIBLE_HOME=deep, ANSIBLE_STRATEGY="free")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("changed", "REMOTE HOST IDENTIFICATION HAS CHANGED"),
        ("unknown", "Host key verification failed"),
        ("locked", "Permission denied"),
    ],
)
def test_refuses_a_sut_with_a_wrong_key(site: Site, first: Calibrated, name: str, reason: str) -> None:
    assert first.ended.rc == 3, first.ended.text
    assert f"{name}: not reachable:" in first.ended.text
    assert reason in first.ended.text
    (gone,) = first.documents[name].not_measured
    assert reason in gone.reason
    assert ADDRESSES["unknown"] not in site.servers.known_hosts.read_text(encoding="ascii")


@pytest.mark.parametrize("name", ["trusted", "signed"])
def test_measures_suts_with_known_or_signed_keys(first: Calibrated, name: str) -> None:
    assert first.documents[name].run.status == "complete"


@pytest.mark.parametrize("name", ODD)
def test_measures_suts_with_odd_names_and_ways(first: Calibrated, name: str) -> None:
    assert first.documents[name].run.status == "complete", first.ended.text


def test_a_read_only_home_and_a_long_path_do_not_stop_ssh(site: Site, first: Calibrated) -> None:
    assert first.documents["trusted"].run.status == "complete"
    assert list(site.lab.home.iterdir()) == []
    assert not (site.lab.directory / ("deep" * 25) / "cp").exists()
    assert list(site.lab.directory.glob("calibration-*")) == []


@contextmanager
def agent(lab: Lab) -> Iterator[dict[str, str]]:
    """Run an ssh-agent; yield its environment variable."""
    socket = lab.directory / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(socket.exists, process)
            yield {"SSH_AUTH_SOCK": str(socket)}
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def second(site: Site, first: Calibrated) -> Calibrated:
    """Calibrate two refused SUTs as the guide says: after learning the host key, and with an agent."""
    assert first.ended.rc == 3, first.ended.text
    address, known = ADDRESSES["unknown"], site.servers.known_hosts
    scanned = subprocess.run(
        ["ssh-keyscan", "-p", str(site.servers.port), address], capture_output=True, text=True, check=True
    ).stdout
    console = site.host_key("unknown").with_suffix(".key.pub").read_text(encoding="ascii")
    assert fingerprints(scanned, site.lab.directory / "new") == fingerprints(console, site.lab.directory / "console")
    known.write_text(known.read_text(encoding="ascii") + scanned, encoding="ascii")
    answer = executable(site.lab.directory / "answer", f"echo {site.passphrase}")
    with agent(site.lab) as variable:
        asked = {**os.environ, **variable, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        key = str(site.lab.directory / "locked")
        subprocess.run(["ssh-add", key], env=asked, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        options = ("--limit", "unknown,locked", "--forks", "1", "-v", "-e", f"calibration_profile={TWO}")
        return calibrate_site(site, *options, ANSIBLE_STRATEGY="linear", **variable)


def fingerprints(keys: str, path: Path) -> list[str]:
    path.write_text("".join(f"{line}\n" for line in keys.splitlines() if not line.startswith("#")), encoding="ascii")
    done = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True)
    return [line.split()[1] for line in done.stdout.splitlines()]


def test_accepts_a_learnt_host_key_and_a_key_in_an_agent(site: Site, second: Calibrated) -> None:
    assert second.ended.rc == 0, second.ended.text
    assert {second.documents[name].run.status for name in ("unknown", "locked")} == {"complete"}
    assert site.passphrase not in second.ended.text


def test_limit_excludes_other_suts_and_v_shows_tasks(first: Calibrated, second: Calibrated) -> None:
    for name in ("trusted", "signed", "changed"):
        assert second.documents[name] == first.documents[name]
        assert not re.search(rf"^\[?{name}[\]:]", second.ended.text, re.MULTILINE)
    assert re.search(r"^\[unknown\] .*measure : ", second.ended.text, re.MULTILINE)


def test_one_fork_measures_one_sut_after_another(site: Site, second: Calibrated) -> None:
    paths = [site.lab.results / name / name / second.documents[name].run.id for name in ("unknown", "locked")]
    earlier, later = sorted(
        [step.started_at for step in records(path) if isinstance(step, StepRecord)] for path in paths
    )
    assert len(earlier) > 1
    assert max(earlier) <= min(later)  # recorded times are whole seconds, and a step takes one


SSH = load_plugin("callback", "calibration_ssh")


def test_detects_paths_too_long_for_sockets(tmp_path: Path) -> None:
    assert SSH.fit(str(tmp_path / "cp")) == (len(str(tmp_path / "cp")) + SSH.NAME_BYTES <= SSH.SOCKET_BYTES)
    assert SSH.fit("/tmp")
    assert not SSH.fit(str(tmp_path / ("deep" * 25)))
    (tmp_path / "file").write_text("no directory")
    assert not SSH.fit(str(tmp_path / "file" / "cp"))


def test_a_hanging_shared_connection_does_not_block_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets, asked = tmp_path / "sockets", tmp_path / "asked"
    sockets.mkdir()
    (sockets / "socket").touch()
    executable(tmp_path / "ssh", f"touch {asked}\nexec sleep 10000")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(SSH, "ANSWER_S", 1)
    SSH.CallbackModule().remove(str(sockets), os.getpid())
    assert asked.exists()
    assert not sockets.exists()


# The example


@pytest.fixture
def example(lab: Lab) -> Iterator[Site]:
    """The example inventory with other addresses, port, login and key."""
    hosts = yaml.safe_load((EXAMPLE / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]
    addresses = {
        name: variables["ansible_host"].replace(DOCUMENTATION_NET, LOOPBACK_NET)
        for group in hosts.values()
        for name, variables in group["hosts"].items()
        if variables
    }
    suts = [Sut(name, address) for name, address in sorted(addresses.items())]
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


def test_checks_the_suts_of_the_example_inventory(example: Site) -> None:
    options = shlex.join(["-F", "none", "-o", f"UserKnownHostsFile={example.servers.known_hosts}"])
    own = {"ansible_ssh_common_args": options, "ansible_become": False, "ansible_port": example.servers.port}
    settings = {**own, "calibration_results_dir": str(example.lab.results), "report_site": False}
    ended = calibrate(example.lab, example.lab.directory / "lab", "--check", "-e", json.dumps(settings))
    # This machine was not booted with the kernel arguments of the first testbed.
    assert ended.rc == 3, ended.text
    for sut in example.servers.suts:
        as_expected = sut.name.startswith("testbed2")
        found = r"\d+ steps, about" if as_expected else "Kernel arguments: expected in this order: isolcpus=2-27,30-55 "
        assert re.search(rf"^{sut.name}: {found}", ended.text, re.MULTILINE), ended.text
        assert list(example.servers.remote_base(sut).iterdir()) == []
    assert re.search(r"sutprobe bandwidth --\w", ended.text)
    assert not example.lab.results.exists()


def test_commands_of_the_readme_are_valid(lab: Lab) -> None:
    text = (
        (ROOT / "README.rst")
        .read_text(encoding="utf-8")
        .partition("\nCalibrate a lab\n")[2]
        .partition("\nWhere things are")[0]
    )
    commands = [
        shlex.split(line, comments=True)
        for line in re.findall(r"^ {3,6}python3 calibration/bootstrap\.py (.*my-lab.*)$", text, re.MULTILINE)
    ]
    assert len(commands) == 2
    for words in commands:
        arguments = [str(EXAMPLE) if word == "my-lab" else word for word in words]
        command = ["calibration.cli", "run", *arguments]
        ended = run([sys.executable, "-m", *command, "--list-hosts"], lab.environment(PYTHONPATH=str(ROOT)))
        assert ended.rc == 0, ended.text
        listed = set(re.findall(r"^ {6}(\S+)$", ended.text, re.MULTILINE))
        groups = yaml.safe_load((EXAMPLE / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"].values()
        everyone = {name for group in groups for name in group["hosts"]}
        assert listed == (
            {name for name in everyone if name.startswith("testbed1")} if "--limit" in command else everyone
        )
