# SPDX-License-Identifier: Apache-2.0
"""CSIT's own inventories, unchanged: its topology files and its Ansible inventory. Their secrets are seen nowhere."""

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from support import ROOT, Lab, calibrate, load_plugin, run

from bench.suts import Servers, Sut, sut_python, user
from calibration.context.cmdline import parse_cmdline
from calibration.errors import BAD_INPUT
from calibration.results.store import read_run
from tests.tools import require

FIXTURES = ROOT / "tests" / "fixtures" / "csit"
TOPOLOGIES = FIXTURES / "topologies"
TESTBED91 = TOPOLOGIES / "lf_3n_icx_testbed91.yaml"
TESTBED92 = TOPOLOGIES / "lf_3n_emr_testbed92.yaml"
PLUGIN = load_plugin("inventory", "csit_topology")

HERE = ("-e", "ansible_connection=local", "-e", f"ansible_python_interpreter={sys.executable}")
"""Every machine of an inventory is this one."""


def listed(lab: Lab, *sources: Path, **extra: str) -> dict[str, Any]:
    """Return what ``ansible-inventory`` makes of *sources*."""
    chosen = [word for source in sources for word in ("-i", str(source))]
    command = [sys.executable, "-m", "ansible", "inventory", *chosen, "--list", "--export"]
    done = subprocess.run(
        command, cwd=ROOT, env=lab.environment(**extra), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    plain: dict[str, Any] = json.loads(done.stdout, object_hook=lambda found: found.get("__ansible_unsafe", found))
    return plain


def refused(source: Path, *earlier: Path) -> str:
    """Return what is said of an inventory that cannot be used, after others that can."""
    inventory, loader = InventoryData(), DataLoader()
    for path in earlier:
        PLUGIN.InventoryModule().parse(inventory, loader, str(path))
    plugin, said = PLUGIN.InventoryModule(), []
    plugin.display = SimpleNamespace(error=said.append, warning=said.append)
    assert plugin.verify_file(str(source))
    with pytest.raises(SystemExit) as ended:
        plugin.parse(inventory, loader, str(source))
    assert ended.value.code == BAD_INPUT
    (message,) = said
    assert "Made.up" not in message
    return str(message)


def holding(folder: Path, secrets: list[str], *, but: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files below *folder*, except *but*, that hold one of *secrets*."""
    files = [path for path in folder.rglob("*") if path.is_file() and path not in but]
    assert files
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


# Topology files


def test_topologies_are_inventories_together_and_beside_others(lab: Lab) -> None:
    found = listed(lab, TESTBED91, TESTBED91, TESTBED92, ROOT / "ansible" / "inventories" / "example-lab")
    assert found["t91"]["hosts"] == ["t91-tg", "t91-dut1", "t91-dut2"]
    assert found["testbed1"]
    assert {"t91-dut1", "t91-dut2", "t92-dut1", "testbed1-sut1"} <= set(found["sut"]["hosts"])
    assert {"t91-tg", "testbed1-tg1"} <= set(found["tg"]["hosts"])
    hosts = found["_meta"]["hostvars"]
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


def test_duts_that_are_one_machine_are_warned_of(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", "-i", str(TESTBED92), "--list-hosts")
    assert "t92-dut1 and t92-dut2 are one machine, 192.0.2.91: calibrate one of them" in " ".join(ended.text.split())


def test_what_a_password_holds_is_no_template(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    node = {"type": "DUT", "host": "192.0.2.1", "username": "a", "password": "x{{ 1 + 1 }}"}
    path.write_text(yaml.safe_dump({"nodes": {"DUT1": node}}), encoding="utf-8")
    # A variable of a play asks for it, so that Ansible works it out.
    play = tmp_path / "play.yml"
    shown = {"ansible.builtin.debug": {"msg": "<{{ ansible_password | length }}>"}}
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [shown]}]), encoding="utf-8")
    ended = run([*lab.command("x")[:4], "-i", str(path), str(play), "-vv"], lab.environment())
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
def test_a_topology_that_cannot_be_used_is_refused_and_says_why(name: str, words: str) -> None:
    said = refused(TOPOLOGIES / name)
    assert said.startswith(f"{TOPOLOGIES / name}: ")
    assert words in said


def test_it_ends_the_command_and_shows_no_secret(lab: Lab) -> None:
    ended = calibrate(lab, TOPOLOGIES / "testbed94.damaged", "-vvv")
    assert ended.rc == BAD_INPUT, ended.text
    assert "not a valid YAML topology" in ended.text
    assert "Made.up" not in ended.text
    assert lab.runs() == []


def test_a_template_is_filled_from_the_command_line_and_the_environment(lab: Lab) -> None:
    command = [sys.executable, "-m", "ansible", "inventory", "-i", str(TOPOLOGIES / "2n_cloud.template"), "--list"]
    ended = run([*command, "-e", "tg_public_ip=192.0.2.7"], lab.environment(dut1_public_ip="192.0.2.8"))
    hosts = json.loads(ended.text[ended.text.index("{") :])["_meta"]["hostvars"]
    # ansible-core shows a value that is no template in its own way
    assert "'192.0.2.7'" in repr(hosts["2n_cloud-tg"]["ansible_host"])
    assert "'192.0.2.8'" in repr(hosts["2n_cloud-dut1"]["ansible_host"])


def test_two_machines_of_one_name_are_refused(tmp_path: Path) -> None:
    other = tmp_path / TESTBED91.name
    other.write_text(TESTBED91.read_text(encoding="utf-8").replace("192.0.2.82", "192.0.2.99"), encoding="utf-8")
    assert "two machines are named t91-dut2: 192.0.2.82 and 192.0.2.99" in refused(other, TESTBED91)


def test_file_with_an_invalid_directory_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a lab.yaml"
    shutil.copyfile(TESTBED91, path)
    assert "not a valid testbed name: 'a lab'" in refused(path)


@pytest.mark.parametrize(
    ("testbed", "group"),
    [("t91", "t91"), ("my-lab", "my_lab"), ("2n_hw", "testbed_2n_hw"), ("sut", "testbed_sut"), ("all", "testbed_all")],
)
def test_a_group_has_the_name_of_the_testbed_as_far_as_ansible_allows_it(testbed: str, group: str) -> None:
    assert PLUGIN.group_name(testbed) == group


def test_what_is_no_topology_is_left_alone(tmp_path: Path) -> None:
    plugin = PLUGIN.InventoryModule()
    assert plugin.verify_file(str(TESTBED91))
    (tmp_path / "bytes").write_bytes(b"nodes: \xff")
    (tmp_path / "large").write_text(TESTBED91.read_text(encoding="utf-8") + "#" * PLUGIN.MAX_BYTES)
    hosts = FIXTURES / "lf_inventory" / "hosts"
    for path in (tmp_path, tmp_path / "none", tmp_path / "bytes", tmp_path / "large", hosts):
        assert not plugin.verify_file(str(path)), path


@pytest.fixture
def agents() -> Iterator[dict[str, str]]:
    """Yield the variables that have Ansible start an agent, whose socket may have no long path."""
    with tempfile.TemporaryDirectory(prefix="agent-", dir="/tmp") as directory:
        yield {"ANSIBLE_SSH_AGENT": "auto", "ANSIBLE_LOCAL_TEMP": directory}


def make_key(folder: Path) -> Path:
    """Make a private key that opens nothing."""
    folder.mkdir()
    path = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, capture_output=True)
    return path


def secrets_of(key: Path) -> list[str]:
    """Return the lines of a key that no other key has."""
    return key.read_text(encoding="ascii").splitlines()[2:-1]


def with_key(topology: Path, key: Path, target: Path, **changes: Any) -> Path:
    """Write *topology* to *target* with the text of *key* for each of its nodes, and *changes*."""
    data = yaml.safe_load(topology.read_text(encoding="utf-8"))
    for node in data["nodes"].values():
        node |= {"priv_key": key.read_text(encoding="ascii"), **changes}
    target.write_text(yaml.safe_dump(data), encoding="utf-8")
    return target


def test_a_key_without_an_agent_is_refused_and_not_shown(tmp_path: Path) -> None:
    key = make_key(tmp_path / "made")
    said = refused(with_key(TESTBED91, key, tmp_path / "testbed91.yaml"))
    assert "start the command with ANSIBLE_SSH_AGENT=auto in its environment, or with the socket of an agent" in said
    assert [line for line in secrets_of(key) if line in said] == []


def test_a_testbed_of_a_topology_is_calibrated_and_its_secrets_are_seen_nowhere(
    lab: Lab, agents: dict[str, str]
) -> None:
    key = make_key(lab.directory / "made")
    inventory = with_key(TESTBED91, key, lab.directory / "testbed91.yaml")
    traffic_generator = lab.directory / "reservation_dir"
    ended = lab.run(
        *("calibrate.yml", "-i", str(inventory), *HERE, "--limit", "t91-dut1", "-vvv"),
        *("-e", f"reserve_tg_path={traffic_generator}"),
        **agents,
    )
    assert ended.rc == 0, ended.text
    (path,) = lab.runs()
    assert path.parts[-3:-1] == ("t91", "t91-dut1")
    assert read_run(path).run.status == "complete"
    assert "Reserve the traffic generator" in ended.text
    assert not traffic_generator.exists()
    log = lab.directory / "log"
    log.write_text(ended.text, encoding="utf-8")
    secrets = ["Made.up", "1234567.50", *secrets_of(key)]
    assert holding(lab.directory, secrets, but=(inventory, key)) == []
    assert list(Path(agents["ANSIBLE_LOCAL_TEMP"]).rglob("*")) == []
    assert lab.leftovers() == []


@pytest.fixture
def server(lab: Lab) -> Iterator[Servers]:
    require("openssh-server", "sshd")
    with Servers([Sut("sut", "127.84.3.1", 0.0)], lab.directory / "suts") as servers:
        yield servers


def test_the_key_of_a_topology_logs_in_through_the_agent(lab: Lab, server: Servers, agents: dict[str, str]) -> None:
    own = {"host": "127.84.3.1", "port": server.port, "username": user()}
    inventory = with_key(TESTBED91, server.key, lab.directory / "testbed91.yaml", **own)
    secrets = ["Made.up-2", *secrets_of(server.key)]
    server.key.unlink()
    options = shlex.join(["-F", "none", "-o", f"UserKnownHostsFile={server.known_hosts}"])
    command = lab.command(
        *("calibrate.yml", "-i", str(inventory), "--limit", "t91-dut1", "--check", "-vvvv"),
        *("--ssh-common-args", options, "-e", f"ansible_python_interpreter={sut_python()}"),
        *("-e", f"reserve_tg_path={lab.directory / 'reservation_dir'}"),
    )
    ended = run(command, lab.environment(**agents))
    assert ended.rc == 0, ended.text
    assert "t91-dut1: 1 step," in ended.text
    assert "SSH: SSH_AGENT adding" in ended.text
    assert [secret for secret in secrets if secret in ended.text] == []
    assert holding(lab.directory, secrets, but=(inventory,)) == []


# CSIT's Ansible inventory


def csit_lab(lab: Lab, **hosts: dict[str, Any]) -> Path:
    """Copy CSIT's inventory, with other variables for *hosts*, in whose addresses underscores stand for points."""
    folder = lab.directory / "lf_inventory"
    shutil.copytree(FIXTURES / "lf_inventory", folder)
    for name, changes in hosts.items():
        path = folder / "host_vars" / f"{name.strip('_').replace('_', '.')}.yaml"
        whole = {**yaml.safe_load(path.read_text(encoding="utf-8")), **changes}
        path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    return folder


def booted_with() -> dict[str, Any]:
    """Return the first arguments that this machine was booted with, those that stand there once, as CSIT has them."""
    parameters = parse_cmdline(Path("/proc/cmdline").read_text(encoding="utf-8")).parameters
    names = [parameter.name for parameter in parameters]
    once = [parameter for parameter in parameters if names.count(parameter.name) == 1][:3]
    return {metric.name: True if metric.value is None else metric.value for metric in once}


def test_csits_inventory_is_one(lab: Lab) -> None:
    found = listed(lab, FIXTURES / "lf_inventory" / "hosts")
    assert found["sut"]["hosts"] == ["192.0.2.81", "192.0.2.82", "192.0.2.84"]
    assert found["tg"]["hosts"] == ["192.0.2.83"]


GRUB_82 = (
    "in this order: audit=0 default_hugepagesz=2M hugepagesz=1G hugepages=32 hugepagesz=2M hugepages=32768 "
    "hpet=disable intel_idle.max_cstate=1 intel_iommu=on isolcpus={cpus} nohz_full={cpus} nosoftlockup no5lvl "
    "rcu_nocbs={cpus} tsc=reliable"
).format(cpus="1-31,33-63,65-95,97-127")
"""What the kernel arguments of a SUT must be by the inventory."""


def test_suts_of_csits_inventory_are_kept_under_their_hostnames_and_resumed_by_them(lab: Lab) -> None:
    grub = booted_with()
    assert grub, "this machine was booted without any argument"
    first, *rest = grub.items()
    later = "kept_elsewhere"
    inventory = csit_lab(
        lab,
        _192_0_2_81={"grub": dict([(first[0], f"{{{{ {later} }}}}"), *rest]), later: first[1]},
        # What is set outranks what the inventory says.
        _192_0_2_84={"preflight_kernel_arguments": "", "calibration_sut": "mine", "calibration_testbed": "bed"},
    )
    reservation = f"reserve_path={lab.remote}/reservation-" + "{{ inventory_hostname }}"
    chosen = ("calibrate.yml", "-i", str(inventory), *HERE, "-e", reservation, "-vvv", "--limit")
    ended = lab.run(*chosen, "192.0.2.81,192.0.2.82,192.0.2.84")
    assert ended.rc == 2, ended.text
    found = {"/".join(path.parts[-3:-1]): read_run(path) for path in lab.runs()}
    assert {names: document.run.status for names, document in found.items()} == {
        "t91/s81-t91-sut1": "complete",
        "t91/s82-t91-sut2": "not_begun",
        "bed/mine": "complete",
    }
    checks = {
        names: {check.name: (check.outcome, check.expected) for check in document.attempts[0].checks}
        for names, document in found.items()
    }
    words = [name if value is True else f"{name}={value}" for name, value in grub.items()]
    assert checks["t91/s81-t91-sut1"]["kernel_arguments"] == ("met", f"in this order: {' '.join(words)}")
    assert checks["t91/s82-t91-sut2"]["kernel_arguments"] == ("not_met", GRUB_82)
    assert "kernel_arguments" not in checks["bed/mine"]
    assert "Made.up" not in ended.text
    assert holding(lab.results, ["Made.up"]) == []

    resume = ("-e", '{"calibration_resume": true}', "-e", "preflight_kernel_arguments=''")
    ended = lab.run(*chosen, "192.0.2.81,192.0.2.82", *resume)
    assert ended.rc == 0, ended.text
    assert {read_run(path).run.status for path in lab.runs()} == {"complete"}
    assert "192.0.2.82: 1 step," in ended.text
    assert "192.0.2.81: 1 step," not in ended.text


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
def test_the_testbed_is_what_stands_for_it_in_the_hostname(hostname: Any, testbed: str) -> None:
    variables = load_plugin("plugin_utils", "calibration_variables")
    known = {"hostname": hostname, "inventory_hostname": "192.0.2.1"}
    assert variables.names_of_host(known, DataLoader()) == (testbed, str(hostname))


def test_a_host_without_hostname_is_its_own_testbed() -> None:
    variables = load_plugin("plugin_utils", "calibration_variables")
    for known in ({}, {"hostname": ""}):
        assert variables.names_of_host({**known, "inventory_hostname": "t1-sut1"}, DataLoader())[1] == "t1-sut1"
    assert variables.names_of_host({"inventory_hostname": "t1-sut1"}, DataLoader())[0] == "t1-sut1"


def test_two_hosts_of_one_name_are_refused_before_anything_is_written(lab: Lab) -> None:
    inventory = csit_lab(lab, _192_0_2_82={"hostname": "s81-t91-sut1"})
    ended = lab.run("calibrate.yml", "-i", str(inventory), *HERE, "--limit", "sut:tg")
    assert "found 192.0.2.81 and 192.0.2.82, both with the testbed t91 and the SUT s81-t91-sut1" in ended.text
    assert ended.rc == 2
    assert lab.runs() == []
