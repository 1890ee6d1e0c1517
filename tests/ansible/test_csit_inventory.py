# SPDX-License-Identifier: Apache-2.0
"""CSIT's topology files and Ansible inventory as inventories; their secrets are shown and kept nowhere."""

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from support import CSIT as FIXTURES
from support import PATIENCE_S, ROOT, Ended, Lab, booted_with, calibrate, csit_lab, load_plugin

from calibration.base.errors import BAD_INPUT
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.servers import Servers, Sut, user
from tests.tools import require, require_ssh

TOPOLOGIES = FIXTURES / "topologies"
TEMPLATE = TOPOLOGIES / "2n_cloud.template"
TESTBED91 = TOPOLOGIES / "lf_3n_icx_testbed91.yaml"
TESTBED92 = TOPOLOGIES / "lf_3n_emr_testbed92.yaml"
EXAMPLE = ROOT / "ansible" / "inventories" / "example-lab"
PLUGIN = load_plugin("inventory", "csit_topology")


@pytest.fixture(scope="module")
def listed(module_lab: Lab) -> dict[str, Any]:
    """List several inventories at once; return the groups, and the ``warnings``."""
    sources = (TESTBED91, TESTBED91, TESTBED92, TEMPLATE, EXAMPLE, FIXTURES / "lf_inventory" / "hosts")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ansible", "inventory", "--list", "--export", "-e", "tg_public_ip=192.0.2.7"),
            *(word for source in sources for word in ("-i", str(source))),
        ],
        cwd=ROOT,
        env=module_lab.environment(dut1_public_ip="192.0.2.8"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    # ansible-core marks values that are no templates
    plain: dict[str, Any] = json.loads(done.stdout, object_hook=lambda found: found.get("__ansible_unsafe", found))
    return {**plain, "warnings": " ".join(done.stderr.split())}


def refused(source: Path, *earlier: Path) -> str:
    """Return the error about *source*, an unusable inventory, after *earlier* ones that are usable."""
    inventory, loader = InventoryData(), DataLoader()
    for path in earlier:
        PLUGIN.InventoryModule().parse(inventory, loader, str(path))
    plugin, errors = PLUGIN.InventoryModule(), []
    plugin.display = SimpleNamespace(error=errors.append, warning=errors.append)
    assert plugin.verify_file(str(source))
    with pytest.raises(SystemExit) as ended:
        plugin.parse(inventory, loader, str(source))
    assert ended.value.code == BAD_INPUT
    (message,) = errors
    assert "Made.up" not in message
    return str(message)


def files_with(secrets: list[str], folder: Path) -> list[Path]:
    """Return the files below *folder* that contain one of *secrets*."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


# Topology files


def test_topologies_and_other_inventories_can_be_combined(listed: dict[str, Any]) -> None:
    assert listed["t91"]["hosts"] == ["t91-tg", "t91-dut1", "t91-dut2"]
    assert listed["testbed1"]
    assert {"t91-dut1", "t91-dut2", "t92-dut1", "testbed1-sut1"} <= set(listed["sut"]["hosts"])
    assert {"t91-tg", "testbed1-tg1"} <= set(listed["tg"]["hosts"])
    hosts = listed["_meta"]["hostvars"]
    assert hosts["t91-dut1"] == {
        "ansible_host": "192.0.2.81",
        "ansible_port": 22,
        "ansible_user": "testlogin",
        "ansible_password": "Made.up-2",
        "calibration_testbed": "t91",
        "reserve_tg": "t91-tg",
        "csit_arch": "x86_64",
        "csit_model": "Intel-Icelake",
    } | {name: value for name, value in hosts["t91-dut1"].items() if name in hosts["testbed1-sut1"]}
    assert "ansible_port" not in hosts["t91-dut2"]
    assert hosts["t91-dut2"]["ansible_password"] == "1234567.50"  # noqa: S105 - made up
    assert "reserve_tg" not in hosts["t91-tg"]
    assert hosts["t92-dut2"]["ansible_port"] == 6002


def test_a_template_is_filled_from_the_command_line_and_the_environment(listed: dict[str, Any]) -> None:
    hosts = listed["_meta"]["hostvars"]
    assert hosts["2n_cloud-tg"]["ansible_host"] == "192.0.2.7"
    assert hosts["2n_cloud-dut1"]["ansible_host"] == "192.0.2.8"


def test_a_password_is_not_evaluated_as_a_template(lab: Lab) -> None:
    path = lab.directory / "t.yaml"
    node = {"type": "DUT", "host": "192.0.2.1", "username": "a", "password": "x{{ 1 + 1 }}"}
    path.write_text(yaml.safe_dump({"nodes": {"DUT1": node}}), encoding="utf-8")
    debug = ("-m", "ansible.builtin.debug", "-a", "msg=<{{ ansible_password | length }}>")
    ended = lab.ansible("adhoc", "all", "-i", str(path), *debug)
    assert "<12>" in ended.text, ended.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2n_cloud.template", "a template without values for dut1_public_ip, tg_public_ip"),
        ("vpp_device.template", "a template without values for CSIT_DUT1_HOST,"),
        ("testbed94.damaged", "not a valid YAML topology: error in line 7, column 20"),
        ("testbed95.damaged", "topology node DUT1: host must be an address or a name, and is missing"),
    ],
)
def test_rejects_an_unusable_topology(name: str, words: str) -> None:
    message = refused(TOPOLOGIES / name)
    assert message.startswith(f"{TOPOLOGIES / name}: ")
    assert words in message


def test_a_damaged_topology_ends_the_command_without_showing_a_secret(lab: Lab) -> None:
    ended = calibrate(lab, TOPOLOGIES / "testbed94.damaged", "-vvv")
    assert ended.rc == BAD_INPUT, ended.text
    assert "not a valid YAML topology" in ended.text
    assert "Made.up" not in ended.text
    assert lab.runs() == []


def test_rejects_two_machines_of_one_name(tmp_path: Path) -> None:
    other = tmp_path / TESTBED91.name
    other.write_text(TESTBED91.read_text(encoding="utf-8").replace("192.0.2.82", "192.0.2.99"), encoding="utf-8")
    assert "two machines are named t91-dut2: 192.0.2.82 and 192.0.2.99" in refused(other, TESTBED91)


def test_rejects_an_invalid_testbed_name(tmp_path: Path) -> None:
    path = tmp_path / "a lab.yaml"
    shutil.copyfile(TESTBED91, path)
    assert "not a valid testbed name: 'a lab'" in refused(path)


@pytest.mark.parametrize(
    ("testbed", "group"),
    [("t91", "t91"), ("my-lab", "my_lab"), ("2n_hw", "testbed_2n_hw"), ("sut", "testbed_sut"), ("all", "testbed_all")],
)
def test_a_group_is_named_after_its_testbed_where_ansible_allows_it(testbed: str, group: str) -> None:
    assert PLUGIN.group_name(testbed) == group


def test_ignores_files_that_are_not_topologies(tmp_path: Path) -> None:
    plugin = PLUGIN.InventoryModule()
    assert plugin.verify_file(str(TESTBED91))
    (tmp_path / "bytes").write_bytes(b"nodes: \xff")
    (tmp_path / "large").write_text(TESTBED91.read_text(encoding="utf-8") + "#" * PLUGIN.MAX_BYTES)
    hosts = FIXTURES / "lf_inventory" / "hosts"
    for path in (tmp_path, tmp_path / "none", tmp_path / "bytes", tmp_path / "large", hosts):
        assert not plugin.verify_file(str(path)), path


def secrets_of(key: Path) -> list[str]:
    """Return the lines of a private key that no other key has."""
    return key.read_text(encoding="ascii").splitlines()[2:-1]


def with_key(topology: Path, key: Path, target: Path, **changes: Any) -> Path:
    """Write *topology* to *target* with the text of *key* for each of its nodes, and *changes*."""
    data = yaml.safe_load(topology.read_text(encoding="utf-8"))
    for node in data["nodes"].values():
        node |= {"priv_key": key.read_text(encoding="ascii"), **changes}
    target.write_text(yaml.safe_dump(data), encoding="utf-8")
    return target


def test_rejects_a_key_without_an_agent_and_does_not_show_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    command = [require("openssh-client", "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    message = refused(with_key(TESTBED91, key, tmp_path / "testbed91.yaml"))
    assert "start the command with ANSIBLE_SSH_AGENT=auto in its environment, or with the socket of an agent" in message
    assert [line for line in secrets_of(key) if line in message] == []


# CSIT's Ansible inventory


def test_lists_the_machines_of_csits_inventory(listed: dict[str, Any]) -> None:
    assert {"192.0.2.81", "192.0.2.82", "192.0.2.84"} <= set(listed["sut"]["hosts"])
    assert "192.0.2.83" in listed["tg"]["hosts"]
    assert "192.0.2.21" not in listed["sut"]["hosts"] + listed["tg"]["hosts"]


GRUB_82 = (
    "in this order: audit=0 default_hugepagesz=2M hugepagesz=1G hugepages=32 hugepagesz=2M hugepages=32768 "
    "hpet=disable intel_idle.max_cstate=1 intel_iommu=on isolcpus={cpus} nohz_full={cpus} nosoftlockup no5lvl "
    "rcu_nocbs={cpus} tsc=reliable"
).format(cpus="1-31,33-63,65-95,97-127")
"""What the kernel arguments of a SUT must be by the inventory."""


@pytest.fixture(scope="module")
def grub() -> dict[str, Any]:
    found = booted_with()
    assert found, "this machine was booted without any argument"
    return found


@dataclass(frozen=True)
class Day:
    """Calibrations of a topology's DUT over ssh, and of three SUTs of CSIT's inventory on this machine."""

    lab: Lab
    over_ssh: Ended
    ended: Ended
    resumed: Ended
    first: dict[str, RunDocument]
    """Documents before the run was resumed, by testbed and SUT."""
    secrets: list[str]
    agent: Path
    """Directory in which Ansible started its SSH agent."""


@pytest.fixture(scope="module")
def day(module_lab: Lab, grub: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    require_ssh()
    lab, folder = module_lab, tmp_path_factory.mktemp("inventories")
    name, value = next(iter(grub.items()))
    csit = csit_lab(
        folder / "lf_inventory",
        _81={
            "grub": {**grub, name: "{{ kept_elsewhere }}"},
            "kept_elsewhere": value,
            "sysctl": {"vm": {"swappiness": "{{ kept_too }}", "max_map_count": 1}, "kernel": {"no_such_parameter": 3}},
            "kept_too": int(Path("/proc/sys/vm/swappiness").read_text(encoding="ascii")),
        },
        # Settings outrank what the inventory says.
        _84={"preflight_kernel_arguments": "", "calibration_sut": "mine", "calibration_testbed": "bed"},
    )
    here = folder / "here.json"
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    here.write_text(json.dumps({"all": {"hosts": {f"192.0.2.{number}": local for number in (81, 82, 84)}}}))
    with (
        Servers([Sut("sut", "127.84.3.1")], folder / "suts") as server,
        tempfile.TemporaryDirectory(prefix="agent-", dir="/tmp") as agent,  # the path of a socket must be short
    ):
        own = {"host": "127.84.3.1", "port": server.port, "username": user()}
        topology = with_key(TESTBED91, server.key, folder / "testbed91.yaml", **own)
        secrets = ["Made.up", "1234567.50", *secrets_of(server.key)]
        server.key.unlink()
        # One machine stands for several SUTs.
        own_locks = ("-e", json.dumps({"calibration_lock": f"{lab.lock}-{{{{ inventory_hostname }}}}"}))
        over_ssh = lab.run(
            *("calibrate.yml", "-i", str(topology), "-vvvv", "--limit", "t91-dut1"),
            *("--ssh-common-args", shlex.join(["-F", "none", "-o", f"UserKnownHostsFile={server.known_hosts}"])),
            *(*own_locks, "-e", f"reserve_tg_path={lab.directory / 'reservation_dir'}"),
            ANSIBLE_SSH_AGENT="auto",
            ANSIBLE_LOCAL_TEMP=agent,
        )
        inventories = ("calibrate.yml", "-i", str(csit), "-i", str(here))
        ended = lab.run(*inventories, "--limit", "192.0.2.81,192.0.2.82,192.0.2.84", *own_locks)
        first = {"/".join(path.parts[-3:-1]): read_run(path) for path in lab.runs()}
        (lab.directory / "log").write_text(over_ssh.text + ended.text, encoding="utf-8")
        resume = ("-e", '{"calibration_resume": true}', "-e", "preflight_kernel_arguments=''", *own_locks)
        resumed = lab.run(*inventories, "--limit", "192.0.2.81,192.0.2.82", *resume)
        yield Day(lab, over_ssh, ended, resumed, first, secrets, Path(agent))


def test_names_suts_after_their_hostnames_or_settings(day: Day) -> None:
    assert day.over_ssh.rc == 0, day.over_ssh.text
    assert day.ended.rc == 2, day.ended.text
    assert {names: document.run.status for names, document in day.first.items()} == {
        "t91/t91-dut1": "complete",
        "t91/s81-t91-sut1": "complete",
        "t91/s82-t91-sut2": "not_begun",
        "bed/mine": "complete",
    }, day.ended.text


def test_checks_the_kernel_arguments_of_csits_inventory(day: Day, grub: dict[str, Any]) -> None:
    checks = {
        names: {check.name: (check.outcome, check.expected) for check in document.attempts[0].checks}
        for names, document in day.first.items()
    }
    words = [name if value is True else f"{name}={value}" for name, value in grub.items()]
    assert checks["t91/s81-t91-sut1"]["kernel_arguments"] == ("met", f"in this order: {' '.join(words)}")
    assert checks["t91/s82-t91-sut2"]["kernel_arguments"] == ("not_met", GRUB_82)
    assert "kernel_arguments" not in checks["bed/mine"]


def test_checks_the_kernel_parameters_of_csits_inventory(day: Day) -> None:
    found = {check.name: check.outcome for check in day.first["t91/s81-t91-sut1"].attempts[0].checks}
    assert found["sysctl.vm.swappiness"] == "met"
    assert found["sysctl.vm.max_map_count"] == "not_met"
    assert found["sysctl.kernel.no_such_parameter"] == "impossible"
    as_they_are = {check.name: check.expected for check in day.first["t91/s82-t91-sut2"].attempts[0].checks}
    assert as_they_are["sysctl.kernel.watchdog_cpumask"] == "0,32,64,96"
    assert as_they_are["sysctl.vm.nr_hugepages"] == "32768"


def test_the_key_of_a_topology_logs_in_through_an_agent_and_secrets_are_not_shown_or_kept(day: Day) -> None:
    assert "SSH: SSH_AGENT adding" in day.over_ssh.text
    assert files_with(day.secrets, day.lab.directory) == []
    assert list(day.agent.rglob("*")) == []


def test_reserves_the_traffic_generator_of_a_topology(day: Day) -> None:
    assert "Reserve the traffic generator" in day.over_ssh.text
    assert not (day.lab.directory / "reservation_dir").exists()
    assert day.lab.leftovers() == []


def test_resumes_only_the_sut_that_was_refused(day: Day) -> None:
    assert day.resumed.rc == 0, day.resumed.text
    assert {read_run(path).run.status for path in day.lab.runs()} == {"complete"}
    assert "192.0.2.82: 1 step," in day.resumed.text
    assert "192.0.2.81: 1 step," not in day.resumed.text


@pytest.mark.parametrize(
    ("hostname", "testbed"),
    [
        ("s81-t212-sut1", "t212"),
        ("s82-t212-tg1", "t212"),
        ("t1-tg1", "t1"),
        ("s89-t39t310-tg1", "t39t310"),
        ("s21-nomad", "s21-nomad"),
        ("fdio-dev", "fdio-dev"),
        ("s1-t2-sut1-old", "s1-t2-sut1-old"),
        (17, "17"),
    ],
)
def test_finds_the_testbed_in_the_hostname(hostname: Any, testbed: str) -> None:
    variables = load_plugin("plugin_utils", "host_names")
    known = {"hostname": hostname, "inventory_hostname": "192.0.2.1"}
    assert variables.names_of_host(known, DataLoader()) == (testbed, str(hostname))


def test_a_host_without_hostname_is_its_own_testbed() -> None:
    variables = load_plugin("plugin_utils", "host_names")
    for known in ({}, {"hostname": ""}):
        assert variables.names_of_host({**known, "inventory_hostname": "t1-sut1"}, DataLoader())[1] == "t1-sut1"
    assert variables.names_of_host({"inventory_hostname": "t1-sut1"}, DataLoader())[0] == "t1-sut1"


def test_rejects_two_hosts_of_one_name_before_writing_anything(lab: Lab) -> None:
    inventory = csit_lab(lab.directory / "lf_inventory", _82={"hostname": "s81-t91-sut1"})
    ended = lab.run("calibrate.yml", "-i", str(inventory), "-e", "ansible_connection=local", "--limit", "sut:tg")
    assert "192.0.2.81 and 192.0.2.82 have the same name: testbed t91, SUT s81-t91-sut1" in ended.text
    assert ended.rc == 2
    assert lab.runs() == []
