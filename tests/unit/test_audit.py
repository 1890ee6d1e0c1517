# SPDX-License-Identifier: Apache-2.0
"""The configuration audit: each kind of setting met, not met, impossible and unknown; and learned from a machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibration.audit.expected import accepts, spread
from calibration.audit.findings import Finding
from calibration.audit.kinds import KINDS, MAX_ITEMS, Item, evaluate_items, read_items
from calibration.audit.learn import learned
from calibration.audit.readings import AuditedMachine
from calibration.audit.states import read_state
from calibration.base.comparisons import kind_of_file
from calibration.base.errors import InputError
from calibration.context.hardware import PciLink
from calibration.context.model import Dimm
from calibration.preflight.expectations import read_expectations
from calibration.runner.requested_files import MAX_PATTERNS
from tests.captures import FIXTURES, Files, changed, machine_of
from tests.unit.context.test_firmware import END, dimm

CPU = "/sys/devices/system/cpu"
NIC = "0000:81:00.0"
NIC_PATH = "/sys/devices/pci0000:80/0000:80:00.0/0000:81:00.0"
BIAS = f"{CPU}/cpu*/power/energy_perf_bias"
WATCHDOG = "kernel.watchdog_cpumask"

RICH: dict[str, str | bytes | None] = {
    "/sys/kernel/debug/sched/preempt": "none voluntary (full)\n",
    "/proc/sys/kernel/watchdog_cpumask": "0-2\n",
    "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    **{f"{CPU}/cpu{cpu}/power/energy_perf_bias": "0\n" for cpu in range(4)},
    **{
        f"{CPU}/cpufreq/policy{cpu}/{name}": text
        for cpu in range(4)
        for name, text in {
            "affected_cpus": f"{cpu}\n",
            "scaling_driver": "intel_pstate\n",
            "scaling_governor": "performance\n",
        }.items()
    },
    f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/nohz_full": "3\n",
    "/proc/17/task/17/status": "Name:\trcuop/3\nState:\tS (sleeping)\nKthread:\t1\nCpus_allowed_list:\t0-2\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=3 nohz_full=3 rcu_nocbs=3 quiet intel_iommu=on\n",
    f"{CPU}/smt/control": "off\n",
    f"{CPU}/smt/active": "0\n",
    **{
        f"{CPU}/cpu{cpu}/cpuidle/state{number}/{name}": text
        for cpu in range(4)
        for number, state in enumerate(("POLL", "C1", "C6"))
        for name, text in {"name": f"{state}\n", "disable": f"{int(state == 'C6')}\n"}.items()
    },
    f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Retpolines; STIBP: disabled\n",
    "/sys/firmware/dmi/tables/DMI": dimm(16384) + dimm(16384) + dimm(0) + END,
    f"{NIC_PATH}/virtio2/net/eth1/operstate": "up\n",
    f"{NIC_PATH}/virtio2/net/eth1/speed": "25000\n",
}
"""What the captured guest lacks of a server."""

ASKED = [
    "/proc/sys/kernel/watchdog_cpumask", "/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/vm/swappiness",
    "/proc/sys/kernel/no_such", "/sys/kernel/mm/ksm/run", BIAS,
]  # fmt: skip

RIGHT: dict[str, Any] = {
    "kernel_arguments": "isolcpus=3 nohz_full=3 intel_iommu=on",
    "kernel_argument_values": {"quiet": "present"},
    "kernel_release": "6.1.0-*-amd64",
    "preemption": "full",
    "isolated_cpus": 3,
    "nohz_full": "3",
    "rcu_nocbs": "3",
    "housekeeping": {"cpus": 3, "from_cpu_0": 3, "cores": "whole", "first_cores": "included"},
    "interrupts": {"on_isolated_cpus": ["nvme0q*", "virtio0-req.1"], "default_affinity": "0,1-3"},
    "sysctl": {"vm.swappiness": "0..60", "kernel": {"watchdog_cpumask": "0,1,2"}, "net.ipv4.tcp_rmem": "4096 131072 *"},
    "sysfs": {"/sys/kernel/mm/ksm/run": [0, 2], BIAS: 0},
    "transparent_hugepages": "always",
    "huge_pages": {"2M": {0: 0, 1: 0}, "1G": 0},
    "governor": "performance",
    "turbo": False,
    "deepest_idle_state": "C1",
    "smt": "off",
    "mitigations": {"spectre_v2": "Mitigation: Retpolines*"},
    "clocksource": ["tsc", "hpet"],
    "processor": {"model": "QEMU*", "nodes_per_socket": 1},
    "firmware": {"bios_version": "1.16*", "microcode": "0x1000065"},
    "memory": {"dimms": 2, "mt_s": 2933},
    "nics": {NIC: {"node": 1, "driver": "virtio-pci", "speed_mbit_s": "10000.."}},
}
"""An expected state of every kind that the machine has."""


@pytest.fixture(scope="module")
def rich() -> AuditedMachine:
    return machine_of(changed("x86_64-devices", RICH, asked=ASKED))


def with_files(files: Files, unreadable: Mapping[str, str] | None = None) -> AuditedMachine:
    return machine_of(changed("x86_64-devices", {**RICH, **files}, unreadable=unreadable, asked=ASKED))


def findings(given: Any, machine: AuditedMachine) -> dict[str, Finding]:
    return {finding.name: finding for finding in evaluate_items(read_items(given, ""), machine)}


def test_a_machine_that_is_right_meets_every_kind(rich: AuditedMachine) -> None:
    assert RIGHT.keys() == KINDS.keys()
    found = findings(RIGHT, rich)
    assert {finding.outcome for finding in found.values()} == {"met"}, found
    assert found["governor"].found == "performance on all 4 CPUs"
    assert found["memory.mt_s"].found == "2933 on all 2 DIMMs"
    assert found[f"nics.{NIC} speed_mbit_s"].found == "25000"


def boosts(own: str) -> Files:
    """Return the switches for turbo of policies, with the general one on."""
    policies = {f"{CPU}/cpufreq/policy{number}/boost": f"{value}\n" for number, value in enumerate(own)}
    return {f"{CPU}/cpufreq/boost": "1\n", **policies}


ONE_CHANGE: list[tuple[str, Files, str]] = [
    ("kernel_arguments", {"/proc/cmdline": RICH["/proc/cmdline"][:-13] + "\n"}, "intel_iommu=on: missing"),  # type: ignore[index,operator]
    ("kernel_argument_values.quiet", {"/proc/cmdline": str(RICH["/proc/cmdline"]).replace(" quiet", "")}, "absent"),
    ("preemption", {"/sys/kernel/debug/sched/preempt": "none (voluntary) full\n"}, "voluntary"),
    ("isolated_cpus", {f"{CPU}/isolated": "2-3\n"}, "2-3, 2 isolated unexpectedly"),
    ("housekeeping.cores", {f"{CPU}/cpu{cpu}/topology/core_cpus_list": "2-3\n" for cpu in (2, 3)}, "split"),
    ("processor.nodes_per_socket", {f"{CPU}/cpu{cpu}/topology/physical_package_id": "0\n" for cpu in range(4)}, "2"),
    ("nohz_full", {f"{CPU}/nohz_full": "(null)\n"}, "none, 3 not in nohz_full"),
    ("interrupts.on_isolated_cpus", {"/sys/kernel/irq/29/actions": "eth7-rx\n"}, "eth7-rx on 1 of "),
    ("interrupts.default_affinity", {"/proc/irq/default_smp_affinity": "7\n"}, "0-2"),
    ("sysctl.vm.swappiness", {"/proc/sys/vm/swappiness": "61\n"}, "61"),
    (f"sysctl.{WATCHDOG}", {"/proc/sys/kernel/watchdog_cpumask": "0-3\n"}, "0-3"),
    ("sysctl.net.ipv4.tcp_rmem", {"/proc/sys/net/ipv4/tcp_rmem": "4096\t87380\t6\n"}, "4096 87380 6"),
    ("sysfs./sys/kernel/mm/ksm/run", {"/sys/kernel/mm/ksm/run": "1\n"}, "1"),
    (f"sysfs.{BIAS}", {f"{CPU}/cpu2/power/energy_perf_bias": "6\n"}, "6 on 1 of 4 CPUs (2)"),
    ("transparent_hugepages", {"/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"}, "madvise"),
    (
        "huge_pages.2M node 1",
        {
            "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
        },
        "4",
    ),
    ("governor", {f"{CPU}/cpufreq/policy1/scaling_governor": "powersave\n"}, "powersave on 1 of 4 CPUs (1)"),
    ("turbo", {f"{CPU}/intel_pstate/no_turbo": "0\n"}, "on"),
    ("turbo", {f"{CPU}/intel_pstate": None, **boosts("1111")}, "on"),
    ("turbo", {f"{CPU}/intel_pstate": None, **boosts("1011")}, "on on 3 of 4 CPUs (0,2-3)"),
    ("deepest_idle_state", {f"{CPU}/cpu3/cpuidle/state2/disable": "0\n"}, "C6 on 1 of 4 CPUs (3)"),
    ("smt", {f"{CPU}/smt/active": "1\n", f"{CPU}/smt/control": "on\n"}, "on"),
    ("mitigations.spectre_v2", {f"{CPU}/vulnerabilities/spectre_v2": "Vulnerable\n"}, "Vulnerable"),
    ("clocksource", {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "acpi_pm\n"}, "acpi_pm"),
    ("firmware.bios_version", {"/sys/class/dmi/id/bios_version": "1.17\n"}, "1.17"),
    ("memory.dimms", {"/sys/firmware/dmi/tables/DMI": dimm(16384) + END}, "1"),
    (
        "memory.mt_s",
        {"/sys/firmware/dmi/tables/DMI": dimm(16384) + dimm(16384, configured=2400) + END},
        "2400 on 1 of 2 DIMMs (1 A1)",
    ),
    (f"nics.{NIC} node", {f"{NIC_PATH}/numa_node": "0\n"}, "0"),
    (f"nics.{NIC} speed_mbit_s", {f"{NIC_PATH}/virtio2/net/eth1/operstate": "down\n"}, "no link"),
]


@pytest.mark.parametrize(("name", "files", "words"), ONE_CHANGE, ids=[name for name, *_ in ONE_CHANGE])
def test_one_change_is_found_and_nothing_else(name: str, files: Files, words: str) -> None:
    found = findings(RIGHT, with_files(files))
    assert {other for other, finding in found.items() if finding.outcome != "met"} == {name} | ALSO.get(name, set())
    assert found[name].outcome == "not_met"
    assert words in found[name].found


ALSO = {
    "isolated_cpus": {
        "interrupts.on_isolated_cpus",
        *(f"housekeeping.{key}" for key in ("cpus", "from_cpu_0", "first_cores")),
    }
}
"""A CPU more that is isolated has interrupts, and is one less for housekeeping."""


def test_every_kind_is_seen_to_fail() -> None:
    by_context = {"kernel_release", "rcu_nocbs"}  # of which a capture has one file with others
    assert {name.partition(".")[0] for name, *_ in ONE_CHANGE} | by_context == KINDS.keys()


def test_what_is_written_in_several_places_fails_with_them(rich: AuditedMachine) -> None:
    release = rich.context.capture.model_copy(update={"kernel_release": "5.4.0"})
    other = rich._replace(context=rich.context.model_copy(update={"capture": release}))
    assert findings(RIGHT, other)["kernel_release"] == Finding("kernel_release", "6.1.0-*-amd64", "5.4.0", "not_met")
    isolation = rich.context.isolation.model_copy(update={"rcu_nocbs": (2, 3)})
    other = rich._replace(context=rich.context.model_copy(update={"isolation": isolation}))
    assert findings(RIGHT, other)["rcu_nocbs"].found == "2-3, 2 in rcu_nocbs unexpectedly"
    assert findings({"firmware": {"microcode": "0x2"}}, rich)["firmware.microcode"].found == "0x1000065 on all 4 CPUs"
    absent = findings({"nics": {"0000:18:00.0": {"node": 0}}}, rich)["nics.0000:18:00.0 node"]
    assert (absent.outcome, absent.found) == ("not_met", "no such device")


IMPOSSIBLE: list[tuple[str, dict[str, Any], Files, str]] = [
    ("nohz_full", {"nohz_full": "3"}, {f"{CPU}/nohz_full": None}, "this kernel has no nohz_full"),
    ("interrupts.on_isolated_cpus", {"interrupts": {"on_isolated_cpus": "none"}}, {f"{CPU}/isolated": "\n"},
     "no CPU is isolated"),
    ("sysctl.kernel.no_such", {"sysctl": {"kernel.no_such": 1}}, {}, "this kernel has no such parameter"),
    (f"sysfs.{BIAS}", {"sysfs": {BIAS: 0}}, {f"{CPU}/cpu{n}/power": None for n in range(4)}, "no such file"),
    ("transparent_hugepages", {"transparent_hugepages": "never"}, {"/sys/kernel/mm/transparent_hugepage": None},
     "this kernel has no transparent huge pages"),
    ("huge_pages.16G", {"huge_pages": {"16G": 1}}, {}, "no huge pages of 16G on this machine"),
    ("huge_pages.2M node 7", {"huge_pages": {"2M": {7: 1}}}, {}, "no node 7"),
    ("governor", {"governor": "performance"}, {f"{CPU}/cpufreq": None}, "no frequency scaling"),
    ("turbo", {"turbo": True}, {f"{CPU}/intel_pstate": None}, "no switch for turbo"),
    ("deepest_idle_state", {"deepest_idle_state": "C1"}, {f"{CPU}/cpu{n}/cpuidle": None for n in range(4)},
     "no idle states (driver none)"),
    ("deepest_idle_state", {"deepest_idle_state": "C1E"}, {}, "no such idle state, only POLL, C1, C6"),
    ("smt", {"smt": "off"}, {f"{CPU}/smt/control": "notsupported\n"}, "one thread per core (notsupported)"),
    ("mitigations.ghostwrite", {"mitigations": {"ghostwrite": "*"}}, {}, "this kernel does not report it"),
    ("mitigations.meltdown", {"mitigations": {"meltdown": "Mitigation*"}}, {}, "Not affected"),
    ("firmware.bios_date", {"firmware": {"bios_date": "*"}}, {"/sys/class/dmi": None}, "the firmware gives none"),
    ("memory.dimms", {"memory": {"dimms": 16}}, {"/sys/firmware/dmi": None}, "the firmware describes no memory slots"),
    ("memory.channels", {"memory": {"channels": 8}}, {},
     "a virtual machine does not show the memory slots of its host"),
    ("nics.0000:00:03.0 pcie_lanes", {"nics": {"0000:00:03.0": {"pcie_lanes": 16}}}, {}, "no PCIe link"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "files", "words"), IMPOSSIBLE, ids=[f"{n}-{w}" for n, _, _, w in IMPOSSIBLE])
def test_what_a_machine_cannot_have_is_said(name: str, given: dict[str, Any], files: Files, words: str) -> None:
    found = findings(given, with_files(files))[name]
    assert (found.outcome, found.found) == ("impossible", words)


@pytest.mark.parametrize(("states", "outcome"), [(["C1", "C6"], "met"), (["POLL", "C1", "C7"], "not_met")])
def test_the_deepest_of_several_idle_states_may_be_reached(states: list[str], outcome: str) -> None:
    found = findings({"deepest_idle_state": states}, with_files({f"{CPU}/cpu3/cpuidle/state2/disable": "0\n"}))
    assert found["deepest_idle_state"].outcome == outcome


def test_a_device_of_a_machine_with_one_node_has_no_other_node() -> None:
    found = findings({"nics": {"0000:00:03.0": {"node": 1}}}, machine_of(changed("x86_64-devices", {})))
    assert found["nics.0000:00:03.0 node"].outcome == "not_met"  # two nodes, and the firmware names none
    files: Files = {f"/sys/devices/system/node/node{n}": None for n in (0, 1)} | {
        "/sys/devices/system/node/online": "0"
    }
    found = findings({"nics": {"0000:00:03.0": {"node": 1}}}, with_files(files))
    assert found["nics.0000:00:03.0 node"].outcome == "impossible"


def test_a_clock_source_of_another_architecture_cannot_exist() -> None:
    arm = machine_of((FIXTURES / "aarch64-four-nodes.tar.gz").read_bytes())
    found = findings({"clocksource": "tsc"}, arm)["clocksource"]
    assert (found.outcome, found.found) == ("impossible", "no such clock source, only arch_sys_counter")
    # One of x86 that is not available may have been given up by the kernel.
    pc = machine_of(changed("x86_64-devices", {}))
    assert findings({"clocksource": "tsc"}, pc)["clocksource"].outcome == "not_met"


UNREADABLE: list[tuple[dict[str, Any], str, Files]] = [
    ({"nohz_full": 3}, f"{CPU}/nohz_full", {f"{CPU}/nohz_full": None}),
    ({"sysctl": {"vm.swappiness": 0}}, "/proc/sys/vm/swappiness", {"/proc/sys/vm/swappiness": None}),
    ({"sysfs": {"/sys/kernel/mm/ksm/run": 0}}, "/sys/kernel/mm/ksm/run", {"/sys/kernel/mm/ksm/run": None}),
    ({"sysfs": {BIAS: 0}}, f"{CPU}/cpu3/power/energy_perf_bias", {f"{CPU}/cpu3/power/energy_perf_bias": b"\0" * 5000}),
    ({"transparent_hugepages": "never"}, "/sys/kernel/mm/transparent_hugepage/enabled",
     {"/sys/kernel/mm/transparent_hugepage/enabled": None}),
    ({"huge_pages": {"2M": 0}}, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
     {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": None}),
    ({"governor": "performance"}, f"{CPU}/cpufreq", {f"{CPU}/cpufreq": None}),
    ({"turbo": "off"}, f"{CPU}/intel_pstate/no_turbo", {f"{CPU}/intel_pstate": None}),
    ({"deepest_idle_state": "C1"}, f"{CPU}/cpu0/cpuidle", {f"{CPU}/cpu{n}/cpuidle": None for n in range(4)}),
    ({"smt": "off"}, f"{CPU}/smt/active", {f"{CPU}/smt": None}),
    ({"mitigations": "off"}, f"{CPU}/vulnerabilities", {f"{CPU}/vulnerabilities": None}),
    ({"firmware": {"bios_version": "1"}}, "/sys/class/dmi/id/bios_version", {"/sys/class/dmi": None}),
    ({"memory": {"dimms": 2}}, "/sys/firmware/dmi/tables/DMI", {"/sys/firmware/dmi": None}),
    ({"interrupts": {"default_affinity": 0}}, "/proc/irq", {"/proc/irq": None}),
]  # fmt: skip


@pytest.mark.parametrize(("total", "outcomes"), [("8", ["not_met", "met"]), ("99999999", ["unknown", "unknown"])])
def test_modules_that_a_broken_table_may_have_lost_are_unknown(total: str, outcomes: list[str]) -> None:
    files: Files = {
        "/proc/meminfo": f"MemTotal: {total} kB\n",
        "/sys/firmware/dmi/tables/DMI": dimm(16384) + b"\xdd\0\0\0garbage" + dimm(16384) + END,  # type: ignore[no-untyped-call]
    }
    found = findings({"memory": {"dimms": 2, "mt_s": 2933}}, with_files(files))
    assert [finding.outcome for finding in found.values()] == outcomes


@pytest.mark.parametrize(("given", "path", "files"), UNREADABLE, ids=[path for _, path, _ in UNREADABLE])
def test_what_could_not_be_read_is_unknown(given: dict[str, Any], path: str, files: Files) -> None:
    (found,) = findings(given, with_files(files, {path: "Permission denied"})).values()
    assert found.outcome == "unknown"
    assert "Permission denied" in found.found or "larger than" in found.found


POLICIES = f"{CPU}/cpufreq/policy*/cpuinfo_cur_freq"


@pytest.mark.parametrize(("denied", "outcome"), [
    ([f"{CPU}/cpufreq/policy2/cpuinfo_cur_freq"], "unknown"),
    ([f"{CPU}/cpufreq/policy{number}/cpuinfo_cur_freq" for number in range(4)], "unknown"),
    ([f"{CPU}/cpufreq/policy2/scaling_cur_freq"], "met"),
    (["/"], "unknown"),
])  # fmt: skip
def test_a_file_of_a_pattern_that_could_not_be_read_is_unknown(denied: list[str], outcome: str) -> None:
    files: Files = {
        path: "2000000\n"
        for number in range(4)
        if (path := f"{CPU}/cpufreq/policy{number}/cpuinfo_cur_freq") not in denied
    }
    reasons = dict.fromkeys(denied, "Permission denied")
    machine = machine_of(changed("x86_64-devices", {**RICH, **files}, unreadable=reasons, asked=[POLICIES]))
    (found,) = findings({"sysfs": {POLICIES: "1000000.."}}, machine).values()
    assert found.outcome == outcome
    (wrong,) = findings({"sysfs": {POLICIES: "3000000.."}}, machine).values()
    assert wrong.outcome == ("not_met" if len(denied) == 1 else "unknown")


@pytest.mark.parametrize(("given", "path", "files"), [
    ({"turbo": "off"}, f"{CPU}/cpufreq/policy2/boost", {f"{CPU}/intel_pstate": None, **boosts("0000")}),
    ({"governor": "performance"}, f"{CPU}/cpufreq/policy2/scaling_governor", {}),
    ({"deepest_idle_state": "C1"}, f"{CPU}/cpu2/cpuidle/state2/disable", {}),
    ({"interrupts": {"on_isolated_cpus": ["nvme0q*", "virtio0-req.1"]}}, "/proc/irq/99/smp_affinity_list", {}),
])  # fmt: skip
def test_what_one_cpu_or_interrupt_has_may_be_unknown(given: dict[str, Any], path: str, files: Files) -> None:
    assert {finding.outcome for finding in findings(given, with_files(files)).values()} == {"met"}
    (found,) = findings(given, with_files({**files, path: None}, {path: "Permission denied"})).values()
    assert (found.outcome, path in found.found) == ("unknown", True)


def test_idle_states_of_several_cpus_may_be_unknown() -> None:
    paths = [f"{CPU}/cpu{cpu}/cpuidle/state2/disable" for cpu in (1, 2)]
    machine = with_files(dict.fromkeys(paths), dict.fromkeys(paths, "Permission denied"))
    assert findings({"deepest_idle_state": "C1"}, machine)["deepest_idle_state"].outcome == "unknown"
    assert findings({"deepest_idle_state": "POLL"}, machine)["deepest_idle_state"].outcome == "not_met"


def test_no_interrupt_is_as_right_as_those_that_may_come() -> None:
    files: Files = {f"/proc/irq/{number}/smp_affinity_list": "0\n" for number in range(1, 60)}
    files |= {f"/proc/irq/{number}/effective_affinity_list": "0\n" for number in range(1, 60)}
    machine = with_files(files)
    (found,) = findings({"interrupts": {"on_isolated_cpus": "nvme*"}}, machine).values()
    assert (found.outcome, found.found) == ("met", "none")


def test_alternatives_of_the_default_affinity_are_all_kept() -> None:
    expected = {"interrupts": {"default_affinity": ["0-1", "0-3"]}}
    assert [item.wanted for item in read_items(expected, "")] == [("0-1", "0-3")]
    (found,) = findings(expected, with_files({"/proc/irq/default_smp_affinity": "f\n"})).values()
    assert found.outcome == "met"


@pytest.mark.parametrize(
    ("wanted", "outcome"), [("C1*", "not_met"), ("C6", "met"), ("P*", "not_met"), ("C9*", "impossible")]
)
def test_idle_states_may_be_a_pattern(wanted: str, outcome: str) -> None:
    machine = with_files({f"{CPU}/cpu3/cpuidle/state2/disable": "0\n"})
    assert findings({"deepest_idle_state": wanted}, machine)["deepest_idle_state"].outcome == outcome


def test_a_file_and_a_short_form_may_name_a_parameter_differently(tmp_path: Path) -> None:
    file = tmp_path / "expected.yml"
    file.write_text("sysctl: {vm.swappiness: 10}\n")
    given = {"expected_state": str(file), "sysctl": {"vm/swappiness": 60, "kernel.watchdog": 0}}
    assert [(item.key, item.wanted) for item in read_expectations(given).state] == [
        ("vm.swappiness", ("10",)),
        ("kernel.watchdog", ("0",)),
    ]


def test_what_the_capture_lacks_is_unknown(rich: AuditedMachine) -> None:
    nothing = rich.context
    nothing = nothing.model_copy(
        update={
            "cmdline": None,
            "devices": None,
            "capture": nothing.capture.model_copy(update={"kernel_release": None}),
            "clocksource": nothing.clocksource.model_copy(update={"current": None}),
            "isolation": nothing.isolation.model_copy(update={"isolated_source": None, "rcu_nocbs_source": None}),
        }
    )
    kinds = ("kernel_arguments", "kernel_release", "isolated_cpus", "rcu_nocbs", "nics", "clocksource", "sysctl")
    found = findings({kind: RIGHT[kind] for kind in kinds}, AuditedMachine(nothing))
    assert {finding.outcome for finding in found.values()} == {"unknown"}, found
    # A file that nobody asked for may exist.
    other = findings({"sysctl": {"vm.max_map_count": 1}, "sysfs": {f"{CPU}/cpu*/online": 1}}, rich)
    assert {finding.found for finding in other.values()} == {"not captured: it was not asked for"}
    assert {finding.outcome for finding in other.values()} == {"unknown"}
    # A tree that somebody copied by hand lacks what was not copied.
    copied = AuditedMachine(
        nothing.model_copy(update={"capture": nothing.capture.model_copy(update={"captured_at": None})})
    )
    copied = copied._replace(context=copied.context.model_copy(update={"mitigations": {}}))
    assert findings({"mitigations": "off"}, copied)["mitigations"].outcome == "unknown"


def test_surplus_huge_pages_are_not_reserved_ones() -> None:
    pages = {"nr_hugepages": "6\n", "surplus_hugepages": "2\n"}
    places = ("/sys/kernel/mm/hugepages", "/sys/devices/system/node/node1/hugepages")
    machine = with_files({f"{place}/hugepages-2048kB/{name}": text for place in places for name, text in pages.items()})
    found = findings({"huge_pages": {"2M": {1: 4}}}, machine) | findings({"huge_pages": {"2M": 4}}, machine)
    assert {name: finding.outcome for name, finding in found.items()} == dict.fromkeys(
        ("huge_pages.2M", "huge_pages.2M node 1"), "met"
    )
    assert yaml.safe_load(learned(machine, "it"))["huge_pages"]["2M"] == 4


def test_cpus_of_an_isolated_cpuset_partition_are_isolated(rich: AuditedMachine) -> None:
    isolation = rich.context.isolation.model_copy(update={"isolated": (), "cpuset_isolated": (2, 3)})
    machine = rich._replace(context=rich.context.model_copy(update={"isolation": isolation}))
    assert findings({"isolated_cpus": "2-3"}, machine)["isolated_cpus"].outcome == "met"
    assert findings({"isolated_cpus": "none"}, machine)["isolated_cpus"].outcome == "not_met"


def test_an_argument_that_was_blanked_is_unknown_and_repeated_nowhere() -> None:
    machine = with_files({"/proc/cmdline": "quiet rd.iscsi.password=hunter2 isolcpus=1\n"})
    wanted = {"kernel_arguments": "rd.iscsi.password=hunter2 isolcpus=1"}
    found = findings(wanted, machine)["kernel_arguments"]
    assert found.outcome == "unknown"
    assert found.found == "rd.iscsi.password: blanked on the SUT, so that its value is unknown"
    assert "hunter2" not in str(found)
    other = findings({"kernel_arguments": "rd.iscsi.password=hunter2 isolcpus=2 token=hunter2"}, machine)
    assert other["kernel_arguments"].outcome == "not_met"
    assert "isolcpus=2: found isolcpus=1" in other["kernel_arguments"].found
    assert "hunter2" not in str(other)
    assert "iscsi" not in learned(machine, "it")


def test_a_number_of_huge_pages_is_of_the_size_before_it() -> None:
    found_words = "hugepages=8 for pages of 1073741824 bytes: found hugepages=4 for pages of 1073741824 bytes"
    machine = with_files({"/proc/cmdline": "hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=4\n"})
    wanted = {"kernel_arguments": "hugepagesz=1G hugepages=8"}
    found = findings(wanted, machine)["kernel_arguments"]
    assert (found.outcome, found.found) == ("not_met", found_words)
    right = {"kernel_arguments": "hugepagesz=1024M hugepages=4"}
    assert findings(right, machine)["kernel_arguments"].outcome == "met"


def test_mitigations_are_on_or_off(rich: AuditedMachine) -> None:
    def outcome(word: str, **states: str) -> str:
        machine = rich._replace(context=rich.context.model_copy(update={"mitigations": states}))
        return findings({"mitigations": word}, machine)["mitigations"].outcome

    off = {
        "meltdown": "Vulnerable",
        "l1tf": "Mitigation: PTE Inversion; VMX: vulnerable",
        "itlb_multihit": "KVM: Mitigation: VMX unsupported",
        "mds": "Not affected",
    }
    assert outcome("off", **off) == "met"
    assert outcome("off", **off, tsx_async_abort="Mitigation: TSX disabled") == "met"
    assert outcome("off", **off, gather_data_sampling="Mitigation: Microcode (locked)") == "met"
    assert outcome("off", **off, srbds="Mitigation: Microcode") == "not_met"
    assert outcome("off", itlb_multihit="KVM: Mitigation: Split huge pages") == "not_met"
    assert outcome("off", l1tf="Mitigation: PTE Inversion") == "met"
    flushed = "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable"
    assert outcome("off", l1tf=flushed) == "not_met"
    assert outcome("off", l1tf="Mitigation: PTE Inversion; VMX: flush not necessary, SMT disabled") == "met"
    assert outcome("on", **off) == "not_met"
    assert outcome("on", meltdown="Mitigation: PTI", mds="Mitigation: Clear CPU buffers; SMT vulnerable") == "met"
    assert outcome("on", itlb_multihit="KVM: Vulnerable") == "not_met"
    assert outcome("on", itlb_multihit="Processor vulnerable") == "not_met"
    assert outcome("on", spectre_v2="Mitigation: Retpolines; BHI: Vulnerable") == "not_met"
    assert outcome("on", spectre_v2="Mitigation: CSV2, but not BHB") == "not_met"
    assert outcome("on", spectre_v2="Mitigation: CSV2, BHB") == "met"
    assert outcome("on", spectre_v1="Unknown", mds="Vulnerable") == "not_met"


@pytest.mark.parametrize("text", [
    "Unknown: No mitigations", "Unknown: Dependent on hypervisor status",
    "Unknown (XEN PV detected, hypervisor mitigation required)",
])  # fmt: skip
def test_a_vulnerability_that_the_kernel_does_not_know_is_not_mitigated(rich: AuditedMachine, text: str) -> None:
    states = {"mds": "Not affected", "srbds": text}
    machine = rich._replace(context=rich.context.model_copy(update={"mitigations": states}))
    found = findings({"mitigations": "on"}, machine)["mitigations"]
    assert (found.outcome, found.found) == ("unknown", f"{text} on 1 of 2 vulnerabilities (srbds)")
    assert findings({"mitigations": "off"}, machine)["mitigations"].outcome == "met"


@pytest.mark.parametrize(("architecture", "text", "off"), [
    ("aarch64", "Mitigation: __user pointer sanitization", True),
    ("s390x", "Mitigation: __user pointer sanitization", True),
    ("x86_64", "Mitigation: __user pointer sanitization", True),  # before Linux 5.3
    ("x86_64", "Mitigation: usercopy/swapgs barriers and __user pointer sanitization", False),
    ("ppc64le", "Mitigation: __user pointer sanitization", False),
    ("ppc64le", "Mitigation: __user pointer sanitization, ori31 speculation barrier enabled", False),
    ("ppc64le", "Vulnerable, ori31 speculation barrier enabled", True),
    ("ppc64le", "Mitigation: Indirect branch serialisation (kernel only), Indirect branch cache disabled", True),
    ("ppc64le", "Mitigation: Indirect branch cache disabled, Software link stack flush", False),
    ("aarch64", "Mitigation: CSV2, but not BHB", True),
    ("aarch64", "Mitigation: CSV2, BHB", False),
    ("aarch64", "Mitigation: Branch predictor hardening, but not BHB", False),
    ("s390x", "Mitigation: etokens", True),
    ("s390x", "Mitigation: execute trampolines", False),
    ("x86_64", "Mitigation: SMT disabled", True),
])  # fmt: skip
def test_mitigations_that_cannot_be_switched_off_are_no_difference(
    rich: AuditedMachine, architecture: str, text: str, off: bool
) -> None:
    context = rich.context.model_copy(
        update={
            "mitigations": {"spectre": text},
            "processor": rich.context.processor.model_copy(update={"architecture": architecture}),
        }
    )
    found = findings({"mitigations": "off"}, rich._replace(context=context))["mitigations"]
    assert found.outcome == ("met" if off else "not_met")


def test_memory_slots_whose_size_or_speed_the_firmware_does_not_give_are_unknown() -> None:
    files: Files = {"/sys/firmware/dmi/tables/DMI": dimm(16384) + dimm(0xFFFF) + END}
    found = findings({"memory": {"dimms": 1, "mt_s": 2933}}, with_files(files))
    assert {finding.outcome for finding in found.values()} == {"unknown"}
    assert found["memory.dimms"].found == "the firmware gives no size for memory slot A1"
    files = {"/sys/firmware/dmi/tables/DMI": dimm(16384) + dimm(16384, configured=0) + END}
    found = findings({"memory": {"dimms": 2, "mt_s": [2933, 3200]}}, with_files(files))
    assert found["memory.dimms"].outcome == "met"
    no_speed = "2933 (0 A1); not all could be read: the firmware gives no configured speed for 1 A1"
    assert (found["memory.mt_s"].outcome, found["memory.mt_s"].found) == ("unknown", no_speed)
    assert findings({"memory": {"mt_s": 3200}}, with_files(files))["memory.mt_s"].outcome == "not_met"


@pytest.mark.parametrize(("state", "outcome", "words"), [
    ("up", "unknown", "the driver, virtio-pci, does not tell the speed of eth1"),
    ("unknown", "unknown", "the driver, virtio-pci, does not tell the speed of eth1"),
    ("down", "not_met", "no link"),
    ("lowerlayerdown", "not_met", "no link"),
])  # fmt: skip
def test_an_interface_without_a_speed_may_have_a_link(state: str, outcome: str, words: str) -> None:
    interface = f"{NIC_PATH}/virtio2/net/eth1"
    machine = with_files({f"{interface}/operstate": f"{state}\n", f"{interface}/speed": "-1\n"})
    found = findings({"nics": {NIC: {"speed_mbit_s": 25000}}}, machine)[f"nics.{NIC} speed_mbit_s"]
    assert (found.outcome, found.found) == (outcome, words)


@pytest.mark.parametrize(
    ("wanted", "outcome"), [("8.0", "met"), ("8", "met"), ("2..", "met"), ("16..", "not_met"), ("16.0", "not_met")]
)
def test_the_speed_of_a_link_is_a_number(rich: AuditedMachine, wanted: str, outcome: str) -> None:
    (nic,) = (device for device in rich.context.devices or () if device.address == NIC)
    link = PciLink(
        port="0000:80:00.0", device=NIC, width=8, speed_gt_s=8.0, port_width=8, device_width=8, port_speed_gt_s=8.0,
        device_speed_gt_s=8.0,
    )  # fmt: skip
    others = [device for device in rich.context.devices or () if device is not nic]
    devices = (*others, nic.model_copy(update={"links": (link,)}))
    machine = rich._replace(context=rich.context.model_copy(update={"devices": devices}))
    (found,) = findings({"nics": {NIC: {"pcie_gt_s": wanted}}}, machine).values()
    assert (found.outcome, found.found) == (outcome, "8")


def test_a_device_that_is_not_described_is_not_said_to_be_absent(rich: AuditedMachine) -> None:
    other, place = "0000:81:02.0", "/sys/bus/pci/devices/0000:81:02.0/vendor"
    given = {"nics": {other: {"node": 1}}}
    assert [item.pattern for item in read_items(given, "")] == [place]

    def found(machine: AuditedMachine) -> tuple[str, str]:
        finding = findings(given, machine)[f"nics.{other} node"]
        return finding.outcome, finding.found

    there = machine_of(changed("x86_64-devices", {**RICH, place: "0x8086\n"}, asked=[place]))
    no_device = "not described: a virtual function, or no network, storage or accelerator device"
    assert found(there) == ("unknown", no_device)
    assert rich.context.devices
    virtual = [device.model_copy(update={"virtual_functions": 8}) for device in rich.context.devices]
    context = rich.context.model_copy(update={"devices": tuple(virtual)})
    assert found(rich._replace(context=context)) == ("unknown", "not described: it may be a virtual function")
    gone = machine_of(changed("x86_64-devices", RICH, asked=[place]))
    assert found(gone._replace(context=context)) == ("not_met", "no such device")


def test_cpus_without_a_frequency_policy_have_no_governor() -> None:
    machine = with_files({f"{CPU}/cpufreq/policy{cpu}": None for cpu in (2, 3)})
    found = findings({"governor": "performance"}, machine)["governor"]
    assert found.outcome == "unknown"
    assert found.found.endswith("not all could be read: CPUs 2-3 have no frequency policy")
    assert findings({"governor": "powersave"}, machine)["governor"].outcome == "not_met"


def test_channels_are_counted_on_servers(rich: AuditedMachine) -> None:
    def slot(locator: str, size_bytes: int) -> Dimm:
        known = rich.context.firmware.dimms[0]
        return known.model_copy(update={"locator": locator, "bank": None, "size_bytes": size_bytes})

    dimms = (slot("CPU0_DIMM_A1", 1 << 34), slot("CPU0_DIMM_B1", 1 << 34), slot("CPU0_DIMM_C1", 0))
    context = rich.context.model_copy(
        update={
            "virtualization": rich.context.virtualization.model_copy(update={"guest": False}),
            "firmware": rich.context.firmware.model_copy(update={"dimms": dimms}),
        }
    )
    assert findings({"memory": {"channels": 2}}, AuditedMachine(context))["memory.channels"].outcome == "met"
    assert findings({"memory": {"channels": 3}}, AuditedMachine(context))["memory.channels"].outcome == "not_met"
    unnamed = context.model_copy(
        update={"firmware": context.firmware.model_copy(update={"dimms": (slot("X", 1 << 34),)})}
    )
    assert findings({"memory": {"channels": 3}}, AuditedMachine(unnamed))["memory.channels"].outcome == "unknown"


# Learning


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.tar.gz")), ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_what_is_learned_of_a_machine_is_met_by_it(path: Any) -> None:
    machine = machine_of(path.read_bytes())
    given = yaml.safe_load(learned(machine, "it"))
    assert {"kernel_arguments", "isolated_cpus", "sysctl", "clocksource"} <= given.keys()
    found = findings(given, machine)
    assert {finding.outcome for finding in found.values()} == {"met"}, found


def test_every_kind_is_learned(rich: AuditedMachine) -> None:
    given = yaml.safe_load(learned(rich, "it"))
    assert given.keys() == KINDS.keys() - {"kernel_argument_values"}  # kernel_arguments says more
    assert given["sysctl"][WATCHDOG] == "0-2"
    assert given["sysfs"] | {BIAS: 0} == given["sysfs"]
    assert given["deepest_idle_state"] == "C1"
    assert not {"root=/dev/sda1", "ro", "quiet"} & set(given["kernel_arguments"])


LEARNED = [change for change in ONE_CHANGE if not change[0].startswith("kernel_argument_values")]


@pytest.mark.parametrize(("name", "files", "words"), LEARNED, ids=[name for name, *_ in LEARNED])
def test_one_change_to_what_was_learned_is_found(rich: AuditedMachine, name: str, files: Files, words: str) -> None:
    given = yaml.safe_load(learned(rich, "it"))
    found = findings(given, with_files(files))
    wrong = {other for other, finding in found.items() if finding.outcome != "met"}
    # Huge pages are learned of the machine, not of a node.
    assert wrong == {name.partition(" node")[0] if name.startswith("huge_pages") else name} | ALSO.get(name, set())
    assert words


def test_what_is_learned_from_hostile_files_is_still_a_file() -> None:
    hostile = {
        "/proc/cmdline": 'a="b c" d=\x1b[2J e={x:1} # f\n',
        "/sys/class/dmi/id/bios_version": "1.0 # {a: b}, 'c'\n",
        "/sys/class/dmi/id/product_name": "x" * 5000,
        f"{CPU}/vulnerabilities/'quoted: name'": "*[a]?\n",
    }
    machine = machine_of(changed("x86_64-devices", hostile, asked=["/sys/\n- x", 3, "/proc/sys/../etc/passwd"]))  # type: ignore[list-item]
    given = yaml.safe_load(learned(machine, "a\nb"))
    assert {finding.outcome for finding in findings(given, machine).values()} == {"met"}
    assert "product_name" not in given["firmware"]


# Values


@pytest.mark.parametrize(("wanted", "found", "met"), [
    ("0", "0", True),
    ("0", "1", False),
    ("0..10", "10", True),
    ("0..10", "11", False),
    ("0..10", "-1", False),
    ("16..", "17", True),
    ("..10", "-4", True),
    ("0..10", "5 6", False),
    ("madvise", "always [madvise] never", True),
    ("always", "always [madvise] never", False),
    ("2-3", "2,3", False),  # of what is not known to be a list of CPUs
    ("1,2", "2,1", False),
    ("23", "2,3", False),
    ("010", "10", False),
    ("Mitigation: *", "Mitigation: PTI", True),
    ("a[b]*", "a[b]c", True),
    ("6.?", "6.1", True),
    ("6.?", "6.11", False),
    ("..", "5", False),
    ("1..", "18446744073692774399", True),
    ("..18446744073692774399", "18446744073692774399", True),
    ("American Megatrends*", "American  Megatrends Inc.", True),
])  # fmt: skip
def test_values_are_compared(wanted: str, found: str, met: bool) -> None:
    assert accepts([wanted], found) is met


@pytest.mark.parametrize(("path", "wanted", "found", "met"), [
    # Masks: words of 32 bits, the most significant first.
    ("/sys/devices/virtual/workqueue/cpumask", "00000003,00000001", "00000001,00000003", False),
    ("/sys/devices/virtual/workqueue/*/cpumask", "3", "00000000,00000003", True),
    ("/sys/bus/workqueue/devices/writeback/cpumask", "00000c00,f000c00f", "000c00,f000c00f", True),
    ("/sys/bus/workqueue/devices/writeback/cpumask", "0xc00f000c00f", "000c00,f000c00f", True),
    ("/sys/devices/virtual/workqueue/cpumask", "0-1", "3", False),  # the kernel takes no list there
    ("/sys/devices/virtual/workqueue/cpumask_requested", "10", "10", True),
    ("/sys/devices/virtual/workqueue/cpumask", "10", "00000010", True),
    ("/sys/class/net/eth*/queues/rx-*/rps_cpus", "f", "00000000,0000000f", True),
    ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "1,0", "00000001,00000000", True),
    ("/sys/class/net/eth0/queues/tx-0/xps_rxqs", "1,0", "0,1", False),
    ("/sys/bus/pci/devices/0000:18:00.0/local_cpus", "ff", "000000ff", True),
    ("/proc/irq/default_smp_affinity", "3", "00000003", True),
    ("/proc/sys/net/core/flow_limit_cpu_bitmap", "0", "00000000", True),
    ("/proc/sys/net/core/rps_default_mask", "3,1", "1,3", False),
    ("/sys/module/intel_powerclamp/parameters/cpumask", "f", "0000000f", True),
    ("/sys/devices/system/node/node0/cpumap", "f", "00000000,0000000f", True),
    # Lists, some in spite of their names.
    ("/proc/sys/kernel/watchdog_cpumask", "0,1,2", "0-2", True),
    ("/proc/sys/kernel/watchdog_cpumask", "7", "0-2", False),
    ("/sys/devices/uncore_imc_0/cpumask", "0,28", "28,0", True),
    ("/sys/bus/event_source/devices/cstate_core/cpumask", "0-3", "0,1,2,3", True),
    ("/sys/bus/pci/devices/0000:18:00.0/local_cpulist", "0-3", "0,1,2,3", True),
    ("/sys/devices/system/cpu/cpu*/topology/thread_siblings_list", "0-1", "0,1", True),
    ("/sys/devices/system/cpu/cpufreq/policy0/affected_cpus", "0-1", "0 1", True),
    ("/sys/devices/system/cpu/isolated", "2-3", "2,3", True),
    ("/sys/devices/system/cpu/isolated", "", "(null)", True),
    ("/sys/fs/cgroup/machine.slice/cpuset.cpus", "2-3", "3,2", True),
    ("/sys/fs/cgroup/machine.slice/cpuset.cpus.exclusive", "2-N", "2-7", True),
    ("/sys/fs/resctrl/group/cpus_list", "2-3", "2,3", True),
    ("/sys/fs/resctrl/group/cpus", "c", "0000000c", True),
    ("/sys/fs/resctrl/schemata", "MB:0=50;1=100 L3:1=7ff;0=00f", "L3:0=f;1=7ff MB:0=50;1=100", True),
    ("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080-8081", "8080,8081", True),
    ("/proc/sys/net/ipv4/ip_local_reserved_ports", "65535,1-2,3", "1-3,65535", True),
    ("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080-8082", "8080,8081", False),
    ("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "cubic reno", "reno cubic", True),
    # What is ordered.
    ("/sys/module/mlx4_core/parameters/port_type_array", "2,1", "1,2", False),
    ("/proc/sys/net/ipv4/ip_local_port_range", "32768 60999", "32768	60999", True),
    ("/proc/sys/net/ipv4/ip_local_port_range", "60999 32768", "32768	60999", False),
    ("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456", "4096	131072	6291456", True),
    ("/proc/sys/kernel/printk", "4 4 1 7", "4 1 4 7", False),
    ("/sys/kernel/irq/9/per_cpu_count", "1,2", "2,1", False),
    # Numbers and switches.
    ("/proc/sys/vm/swappiness", "0x0a", "10", True),
    ("/proc/sys/vm/swappiness", "010", "8", True),  # octal, as the kernel reads it
    ("/proc/sys/vm/swappiness", "010", "10", False),
    ("/proc/sys/vm/swappiness", "0..10", "10", True),
    ("/sys/module/kvm_intel/parameters/nested", "1", "Y", True),
    ("/sys/module/kvm_intel/parameters/nested", "N", "Y", False),
    ("/sys/module/x/parameters/flags", "on,0,0x10", "Y,N,16", True),
    ("/sys/module/x/parameters/name", "eth0,eth1", "eth1,eth0", False),
    ("/sys/kernel/mm/lru_gen/enabled", "7", "0x0007", True),
    ("/sys/devices/system/cpu/cpu*/cache/index2/size", "1M", "1024K", True),
    ("/sys/devices/system/cpu/cpu*/cache/index2/size", "1048576..", "1024K", True),
    ("/sys/fs/cgroup/system.slice/memory.max", "1G", "1073741824", True),
    ("/sys/fs/cgroup/system.slice/memory.max", "max", "max", True),
    ("/sys/devices/system/memory/block_size_bytes", "0x8000000", "8000000", True),
    ("/sys/kernel/mm/lru_gen/enabled", "y", "0x0007", True),
    ("/sys/kernel/mm/lru_gen/enabled", "n", "0x0000", True),
    ("/sys/kernel/mm/lru_gen/enabled", "n", "0x0007", False),
    ("/sys/kernel/mm/numa/demotion_enabled", "1", "true", True),
    ("/sys/kernel/mm/swap/vma_ra_enabled", "0", "true", False),
    ("/sys/kernel/mm/mempolicy/weighted_interleave/auto", "N", "false", True),
    ("/sys/kernel/mm/hugepages/hugepages-1048576kB/demote_size", "2M", "2048kB", True),
    ("/sys/fs/cgroup/memory/x/memory.soft_limit_in_bytes", "1G", "1073741824", True),
    ("/sys/devices/system/cpu/cpu*/microcode/version", "0x2B000590", "0x2b000590", True),
    # Numbers that the kernel aligns.
    ("/sys/fs/resctrl/schemata", "L3:0=fffff;1=fffff MB:0=100;1=50", "L3:0=fffff;1=fffff MB:0= 100;1=  50", True),
    ("/sys/fs/resctrl/schemata", "L3:0=fffff;1=fffff MB:0=100;1=5", "L3:0=fffff;1=fffff MB:0= 100;1=  50", False),
    # Texts; patterns are of the chosen one.
    ("/sys/block/sda/queue/scheduler", "*deadline", "[none] mq-deadline", False),
    ("/sys/block/sda/queue/scheduler", "*deadline", "none [mq-deadline] kyber", True),
    ("/sys/block/sda/queue/scheduler", "*[mq-deadline]*", "none [mq-deadline] kyber", True),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "defer*", "always defer [defer+madvise] madvise never", True),
    ("/sys/module/pcie_aspm/parameters/policy", "p*", "[default] performance powersave", False),
    ("/sys/block/sda/queue/scheduler", "none", "[none] mq-deadline", True),
    ("/sys/module/pcie_aspm/parameters/policy", "performance", "default [performance] powersave", True),
    ("/sys/module/pcie_aspm/parameters/policy", "default", "default [performance] powersave", False),
    ("/sys/module/x/parameters/peer", "fd00::1", "6665@[fd00::1]/eth0", False),
    ("/proc/sys/kernel/core_pattern", "core.%p [x]", "core.%p  [x]", True),
    ("/proc/sys/kernel/core_pattern", "x", "core.%p [x]", False),
    ("/sys/class/net/eth0/phys_port_name", "1,2", "2,1", False),
    ("/sys/class/dmi/id/bios_version", "0010", "10", False),
])  # fmt: skip
def test_values_of_files_are_compared_by_what_the_file_holds(path: str, wanted: str, found: str, met: bool) -> None:
    assert accepts([wanted], found, kind_of_file(path), 7) is met


@pytest.mark.parametrize("pattern", ["/sys/devices/virtual/workqueue/cpumask", "/sys/devices/virtual/workqueue/*"])
@pytest.mark.parametrize(("wanted", "outcome"), [("3,00000001", "met"), ("00000001,00000003", "not_met")])
def test_a_file_is_compared_by_what_it_holds_also_if_a_pattern_finds_it(
    pattern: str, wanted: str, outcome: str
) -> None:
    files: Files = {"/sys/devices/virtual/workqueue/cpumask": "00000003,00000001\n"}
    machine = machine_of(changed("x86_64-devices", files, asked=[pattern]))
    (found,) = findings({"sysfs": {pattern: wanted}}, machine).values()
    assert found.outcome == outcome


def test_many_places_are_one_sentence() -> None:
    values = {str(cpu): "powersave" if cpu in (4, 8, 9) else "performance" for cpu in range(504)}
    assert spread(values, ["4", "8", "9"], "CPUs") == "powersave on 3 of 504 CPUs (4,8-9)"
    values = {f"IRQ {number}": f"eth{number}" for number in range(2000)}
    text = spread(values, list(values), "interrupts")
    assert text.endswith(" and 1992 more")
    assert len(text) < 500
    files = {f"node{number}": "1" for number in range(20)}
    assert spread(files, list(files)[:10], "files").endswith("node6, node7 and 2 more)")


# The file


@pytest.mark.parametrize(("given", "words"), [
    ([], "f.yml: expected a mapping of settings, not list"),
    ({"governer": "x"}, "f.yml: no setting 'governer', only kernel_arguments, "),
    ({"governor": True}, "f.yml: governor: expected a text or a whole number, not True: put it in quotes"),
    ({"sysctl": {"vm.x": 1.5}}, "not 1.5: put it in quotes"),
    ({"governor": []}, "governor: expected a value, or a list"),
    ({"turbo": "maybe"}, "turbo: expected on or off, not 'maybe'"),
    ({"isolated_cpus": "2-"}, "isolated_cpus: must be CPUs such as 2-7,10, or none"),
    ({"sysctl": "vm.swappiness=0"}, "sysctl: expected a mapping"),
    ({"sysctl": {"kernel.random.uuid": "1"}}, "kernel.random.uuid cannot be audited: such files may have secrets"),
    ({"sysctl": {"../../etc/passwd": "1"}}, "it is no name of a kernel parameter"),
    ({"sysfs": {"/etc/passwd": "1"}}, "only files below /proc/sys and /sys are read"),
    ({"sysfs": {"/sys/kernel/debug/x": "1"}}, "such files may have secrets"),
    ({"huge_pages": {"1X": 1}}, "huge_pages: not a size"),
    ({"huge_pages": {"1G": {"a": 1}}}, "not the number of a node: 'a'"),
    ({"nics": {"eth0": {"node": 0}}}, "not a PCI address such as 0000:18:00.0: 'eth0'"),
    ({"nics": {"0000:18:00.0": {"mac": 0}}}, "no setting 'mac', only node, "),
    ({"interrupts": {"affinity": 0}}, "no setting 'affinity', only on_isolated_cpus, default_affinity"),
    ({"memory": {"speed": 1}}, "no setting 'speed', only dimms, mt_s, channels"),
    ({"firmware": {"serial": 1}}, "no setting 'serial', only "),
    ({"sysctl": {f"vm.x{number}": 1 for number in range(300)}}, "300 settings with 300 files"),
])  # fmt: skip
def test_an_invalid_expected_state_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_items(given, "f.yml: ")
    assert words in str(refused.value)


def test_as_many_settings_as_allowed_are_read() -> None:
    assert len(read_items({"sysctl": {f"vm.x{number}": 1 for number in range(MAX_PATTERNS)}}, "")) == MAX_PATTERNS
    keys = {"node": 0, "driver": "ice", "firmware": "*", "id": "*", "pcie_lanes": 8}
    nics = {f"{number:04x}:18:00.0": keys for number in range(MAX_ITEMS // len(keys))}
    assert len(read_items({"nics": nics}, "")) == MAX_ITEMS


def test_a_file_has_each_setting_once_and_may_repeat_a_value_by_its_anchor(tmp_path: Path) -> None:
    file = tmp_path / "expected.yml"
    file.write_text("sysctl: {vm.swappiness: 1}\nsysctl: {kernel.watchdog: 0}\n")
    with pytest.raises(InputError, match="duplicate key 'sysctl'"):
        read_state(str(file))
    file.write_text("isolated_cpus: &cpus 2-3\nnohz_full: *cpus\n")
    assert [item.wanted for item in read_state(str(file)).items] == [("2-3",)] * 2


def test_numbers_that_yaml_would_convert_are_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "expected.yml"
    file.write_text(
        "sysfs: {/sys/a: 00000010, /sys/b: 0xff, /sys/c: 0b11, /sys/d: 1_000, /sys/e: -1, /sys/f: 10}\n"
        "kernel_arguments: {hugepages: 1:30}\n"
    )
    wanted = [item.wanted[0] for item in read_state(str(file)).items]
    assert wanted == ["hugepages=1:30", "00000010", "0xff", "0b11", "1000", "-1", "10"]


def test_csit_mappings_and_their_quotes_are_read() -> None:
    given = {"kernel": {"watchdog_cpumask": "0,32,64,96"}, "vm": {"nr_hugepages": 32768, "x": '"1"'}, "net": None}
    assert [(item.key, item.wanted) for item in read_items({"sysctl": given}, "")] == [
        ("kernel.watchdog_cpumask", ("0,32,64,96",)),
        ("vm.nr_hugepages", ("32768",)),
        ("vm.x", ("1",)),
    ]


def test_items_survive_the_playbook() -> None:
    for item in read_items(RIGHT, ""):
        assert Item.model_validate_json(item.model_dump_json()) == item
