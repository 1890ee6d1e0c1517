# SPDX-License-Identifier: Apache-2.0
"""The expected states that come with calibration: each is met by a machine that is so, and each setting can fail."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibration.audit.cpu_sets import SETS, SOME, is_relation
from calibration.audit.findings import Finding
from calibration.audit.kinds import Item, asked_for, evaluate_items, read_items
from calibration.audit.readings import AuditedMachine
from calibration.audit.states import ExpectedState, read_state, state_names, state_path
from calibration.base.comparisons import kind_of_file, mask, rule_of
from calibration.base.cpulists import parse_cpulist
from calibration.base.errors import BAD_INPUT, GOOD, VERDICT_FAILED, InputError
from calibration.context.topology import parse_size
from calibration.runner.requested_files import OF_STATES
from tests.captures import changed, machine_of
from tests.command import calibration
from tests.unit.context.test_firmware import END, dimm

CPU = "/sys/devices/system/cpu"
ARM = ("ran_du_aarch64", "csit_alt", "csit_grc")
AMD = ("csit_zn2",)
ISOLATED = {"x86_64-two-nodes-smt": "2-3,6-7", "aarch64-four-nodes": "4-7"}
"""Captured machines of eight CPUs, and those that are isolated on them: whole cores, the first of no node."""

STATES = {name: read_state(name) for name in state_names()}


class Made:
    """A machine on which a state is met: its kernel arguments, files, names of the kernel, and memory modules."""

    def __init__(self, name: str, items: tuple[Item, ...], vendor: str) -> None:
        self.base = "aarch64-four-nodes" if name in ARM else "x86_64-two-nodes-smt"
        self.isolated = ISOLATED[self.base]
        self.arguments: dict[str, str | None] = {}
        self.files: dict[str, str | bytes | None] = {f"{CPU}/vulnerabilities": None, "/sys/firmware/dmi": None}
        self.uname = {
            "sysname": "Linux",
            "nodename": "sut",
            "release": "6.1",
            "version": "#1 SMP",
            "machine": self.base.partition("-")[0],
        }
        self.modules = [3200]
        self.wanted = {item.name: item.wanted[0] for item in items}
        if self.base.startswith("x86"):
            self.files["/proc/cpuinfo"] = cpuinfo(vendor, "Any")
        for item in items:
            if item.name in WRITERS:
                WRITERS[item.name](self, item.wanted[0])
            else:
                BY_KIND[item.kind](self, item.key, item.wanted[0])

    def cpus(self, text: str) -> list[int]:
        isolated = parse_cpulist(self.isolated)
        return [cpu for cpu in range(8) if (cpu in isolated) != text.startswith("all but ")]

    def concrete(self, text: str, kind: Any) -> str:
        """Return a value that is right where *text* is a relation, a range or a pattern."""
        if is_relation(text):
            cpus = self.cpus(text)
            return f"{sum(1 << cpu for cpu in cpus):x}" if kind is mask else ",".join(map(str, cpus))
        return text.replace("*", self.isolated).removesuffix("..")

    def archive(self) -> bytes:
        words = [name if value is None else f"{name}={value}" for name, value in self.arguments.items()]
        table = b"".join(dimm(16384, configured=speed) for speed in self.modules) + END  # type: ignore[no-untyped-call]
        files = {"/proc/cmdline": " ".join(words) + "\n", **self.files, "/sys/firmware/dmi/tables/DMI": table}
        return changed(self.base, files, asked=OF_STATES, told={"uname": self.uname})

    def machine(self) -> AuditedMachine:
        return machine_of(self.archive())


def cpuinfo(vendor: str, model: str, microcode: str = "0x1") -> str:
    lines = f"vendor_id\t: {vendor}\nmodel name\t: {model}\nmicrocode\t: {microcode}\n"
    return "".join(f"processor\t: {cpu}\n{lines}\n" for cpu in range(8))


def write_argument(made: Made, name: str, value: str) -> None:
    made.arguments[name] = None if value == "present" else made.concrete(value, rule_of(name).kind)


def write_set(made: Made, name: str, value: str) -> None:
    cpus = "" if value == "none" else made.isolated if value == SOME or is_relation(value) else value
    argument = "isolcpus" if name == "isolated_cpus" else name
    made.arguments.setdefault(argument, cpus)
    if name != "rcu_nocbs":
        made.files[f"{CPU}/{name.removesuffix('_cpus')}"] = f"{cpus}\n"


def write_file(made: Made, pattern: str, value: str) -> None:
    for path in (pattern.replace("*", number) for number in ("0", "1")):
        made.files[path] = made.concrete(value, kind_of_file(path)) + "\n"


def write_pages(made: Made, size: str, value: str) -> None:
    place = f"/sys/kernel/mm/hugepages/hugepages-{parse_size(size) // 1024}kB"
    made.files[f"{place}/nr_hugepages"] = made.concrete(value, None) + "\n"


def write_firmware(made: Made, key: str, value: str) -> None:
    made.files[f"/sys/class/dmi/id/{key}"] = f"{value}\n"


def write_processors(made: Made, **told: str) -> None:
    found = dict(re.findall(r"(vendor_id|model name|microcode)\t: (.*)\n", str(made.files["/proc/cpuinfo"])))
    names = {"model": "model name"}
    found |= {names.get(key, key): value for key, value in told.items()}
    made.files["/proc/cpuinfo"] = cpuinfo(found["vendor_id"], found["model name"], found["microcode"])


def write_sockets(made: Made, nodes: str) -> None:
    per_node = 4 if made.base.startswith("x86") else 2
    for cpu in range(8):
        made.files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = f"{cpu // per_node // int(nodes)}\n"


def write_idle(made: Made, deepest: str) -> None:
    for cpu in range(8):
        for number, name in enumerate(("POLL", "C1", "C6")):
            state = f"{CPU}/cpu{cpu}/cpuidle/state{number}"
            made.files[f"{state}/name"] = f"{name}\n"
            made.files[f"{state}/disable"] = f"{int(deepest == 'C1' and name == 'C6')}\n"


def write_governor(made: Made, governor: str) -> None:
    for cpu in range(8):
        made.files[f"{CPU}/cpufreq/policy{cpu}/affected_cpus"] = f"{cpu}\n"
        made.files[f"{CPU}/cpufreq/policy{cpu}/scaling_governor"] = f"{governor}\n"


def write_clock(made: Made, source: str) -> None:
    place = "/sys/devices/system/clocksource/clocksource0"
    made.files[f"{place}/current_clocksource"] = f"{source}\n"
    made.files[f"{place}/available_clocksource"] = f"{made.wanted['clocksource']} {source}\n"


def write_smt(made: Made, switch: str) -> None:
    made.files |= {f"{CPU}/smt/active": f"{int(switch == 'on')}\n", f"{CPU}/smt/control": f"{switch}\n"}


def write_nothing(_made: Made, *_values: str) -> None:
    """What is expected follows from other settings."""


WRITERS: Mapping[str, Callable[[Made, str], None]] = {
    **{name: lambda made, value, name=name: write_set(made, name, value) for name in SETS},  # type: ignore[misc]
    **dict.fromkeys(("housekeeping.cpus", "housekeeping.cores"), write_nothing),
    **dict.fromkeys(("housekeeping.first_cores", "housekeeping.from_cpu_0"), write_nothing),
    "kernel_release": lambda made, value: made.uname.update(release=value.replace("*", "5.14.0-570.aarch64")),
    "preemption": lambda made, value: made.uname.update(
        version=f"#1 SMP PREEMPT{'_RT' * (value == 'real-time')} Debian"
    ),
    "interrupts.default_affinity": lambda made, value: made.files.update(
        {"/proc/irq/default_smp_affinity": made.concrete(value, mask)}
    ),
    "transparent_hugepages": lambda made, value: made.files.update(
        {"/sys/kernel/mm/transparent_hugepage/enabled": f"always [{value}]\n"}
    ),
    "governor": write_governor,
    "turbo": lambda made, value: write_file(made, f"{CPU}/cpufreq/boost", str(int(value == "on"))),
    "deepest_idle_state": write_idle,
    "smt": write_smt,
    "mitigations": lambda made, value: made.files.update(
        {f"{CPU}/vulnerabilities/meltdown": "Mitigation: PTI\n" if value == "on" else "Vulnerable\n"}
    ),
    "clocksource": write_clock,
    "processor.model": lambda made, value: write_processors(made, model=value),
    "processor.nodes_per_socket": write_sockets,
    "firmware.microcode": lambda made, value: write_processors(made, microcode=value),
    "memory.dimms": lambda made, value: made.modules.__setitem__(slice(None), made.modules[:1] * int(value)),
    "memory.mt_s": lambda made, value: made.modules.__setitem__(slice(None), [int(value)] * len(made.modules)),
}
"""How each setting is written into the files of a machine, by name."""

BY_KIND: Mapping[str, Callable[[Made, str, str], None]] = {
    "kernel_argument_values": write_argument,
    "sysctl": lambda made, name, value: write_file(made, f"/proc/sys/{name.replace('.', '/')}", value),
    "sysfs": write_file,
    "huge_pages": write_pages,
    "firmware": write_firmware,
}


def isolate(cpus: str) -> Callable[[Made], None]:
    return lambda made: write_set(made, "nohz_full", cpus)


FLIPS: Mapping[str, Callable[[Made], None]] = {
    **{name: lambda made, name=name: wrong_set(made, name) for name in SETS},  # type: ignore[misc]
    "housekeeping.cpus": isolate("1-7"),
    "housekeeping.from_cpu_0": isolate("3-7"),
    "housekeeping.cores": isolate("3,6-7"),
    "housekeeping.first_cores": isolate("4-7"),
    "mitigations": lambda made: WRITERS["mitigations"](made, "off"),
    "turbo": lambda made: WRITERS["turbo"](made, "on"),
    "smt": lambda made: write_smt(made, "off"),
    "deepest_idle_state": lambda made: write_idle(made, "C6"),
    "processor.nodes_per_socket": lambda made: write_sockets(
        made, str(3 - int(made.wanted["processor.nodes_per_socket"]))
    ),
}
"""How a setting is made wrong, by name; of the others the value is another one."""


def wrong_set(made: Made, name: str) -> None:
    argument = "isolcpus" if name == "isolated_cpus" else name
    if f"kernel_argument_values.{argument}" not in made.wanted:
        made.arguments[argument] = "1"
    if name != "rcu_nocbs":
        made.files[f"{CPU}/{name.removesuffix('_cpus')}"] = "\n" if made.wanted[name] == SOME else "1\n"


def flip(made: Made, item: Item) -> None:
    if item.name in FLIPS:
        FLIPS[item.name](made)
    elif item.kind == "kernel_argument_values" and item.wanted == ("present",):
        del made.arguments[item.key]
    elif item.name in WRITERS:
        WRITERS[item.name](made, "17")
    elif item.kind == "sysfs" and "*" in item.key:
        made.files[item.key.replace("*", "1")] = "7\n"
    else:
        value = "0" if item.wanted[0].endswith("..") else "7"
        BY_KIND[item.kind](made, item.key, value)


def edited(name: str, state: ExpectedState) -> tuple[Item, ...]:
    """Return the settings of a state, with the CPUs of the machine here where it lists them, as operators must."""
    isolated = ISOLATED["aarch64-four-nodes" if name in ARM else "x86_64-two-nodes-smt"]
    return tuple(
        item.model_copy(update={"wanted": (isolated,)})
        if item.kind == "isolated_cpus" and item.wanted != (SOME,)
        else item
        for item in state.items
    )


def made_for(name: str, vendor: str | None = None) -> tuple[Made, tuple[Item, ...]]:
    items = edited(name, STATES[name])
    return Made(name, items, vendor or ("AuthenticAMD" if name in AMD else "GenuineIntel")), items


def findings(made: Made, items: tuple[Item, ...]) -> dict[str, Finding]:
    return {finding.name: finding for finding in evaluate_items(items, made.machine())}


@pytest.mark.parametrize("name", STATES)
def test_a_machine_that_is_so_meets_the_state(name: str) -> None:
    made, items = made_for(name)
    found = {finding.name: finding for finding in findings(made, items).values() if finding.outcome != "met"}
    others = {"kernel_argument_values.amd_pstate"} if name not in AMD else set()
    assert found.keys() <= others, found
    assert all(finding.outcome == "impossible" for finding in found.values())


@pytest.mark.parametrize(
    ("name", "item"),
    [pytest.param(name, item, id=f"{name}-{item.name}") for name, state in STATES.items() for item in state.items],
)
def test_each_setting_can_fail_and_fails_nothing_else(name: str, item: Item) -> None:
    made, items = made_for(name, "AuthenticAMD" if item.key.startswith("amd_") else None)
    flip(made, item)
    found = findings(made, items)
    wrong = {other for other, finding in found.items() if finding.outcome in ("not_met", "unknown")}
    assert found[item.name].outcome == "not_met", found[item.name]
    about_sets = {
        other.name for other in items if other.kind in (*SETS, "housekeeping") or is_relation(other.wanted[0])
    }
    assert wrong - {item.name} <= (about_sets if item.name in about_sets else set()), found


@pytest.mark.parametrize("name", STATES)
def test_each_state_says_where_it_is_from_and_needs_no_file_that_captures_lack(name: str) -> None:
    state = STATES[name]
    assert state.title
    assert state.source is not None
    assert state.source.url.startswith("https://")
    assert state.source.date >= "2026-11-30"
    text = state_path(name).read_text()
    assert text.splitlines()[1].startswith("# Met "), "whether it must be edited"
    assert "Edit " in text.splitlines()[1] or not re.search(r"\b\d+-\d+,", text)


def test_every_capture_has_the_files_that_the_states_name() -> None:
    assert sorted({path for state in STATES.values() for path in asked_for(state.items)}) == sorted(OF_STATES)


def test_a_state_is_named_by_a_prefix_or_a_path(tmp_path: Path) -> None:
    assert read_state("tuned_r") == STATES["tuned_realtime"]
    with pytest.raises(InputError, match="unknown expected state 'tuned_real_time', did you mean tuned_realtime"):
        read_state("tuned_real_time")
    own = tmp_path / "own.yml"
    own.write_text("smt: off\n")
    assert (read_state(str(own)).title, read_state(str(own)).source) == (None, None)
    own.write_text("title: x\nsource: {document: d}\nsmt: off\n")
    with pytest.raises(InputError, match=r"own\.yml: source\.url: Field required"):
        read_state(str(own))


def test_a_run_is_compared_with_a_state_by_its_name(tmp_path: Path) -> None:
    made, items = made_for("tuned_realtime")
    del made.arguments["amd_pstate"]  # its processor is Intel's
    archive = tmp_path / "sut.tar.gz"
    for code, value in ((GOOD, "50"), (VERDICT_FAILED, "0")):
        BY_KIND["sysctl"](made, "net.core.busy_poll", value)
        archive.write_bytes(made.archive())
        ended = calibration("audit", archive, "--expect", "tuned_realtime")
        assert ended.code == code, ended.said
    lines = ended.said.splitlines()
    assert lines[-1] == f"{len(items)} settings: {len(items) - 2} met, 1 not met, 1 cannot exist here"
    assert "tuned's profile realtime (redhat-performance/tuned v" in ended.said
    assert calibration("audit", archive, "--expect", "tuned").code == BAD_INPUT


RELATIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"nohz_full": "isolated_cpus"}, "met", "2-3,6-7"),
    ({"rcu_nocbs": "all but isolated_cpus"}, "not_met", "2-3,6-7, 0-1,4-5 not in rcu_nocbs"),
    ({"isolated_cpus": "some"}, "met", "2-3,6-7"),
    ({"sysfs": {"/sys/devices/virtual/workqueue/cpumask": "isolated_cpus"}}, "not_met", "33"),
    ({"sysctl": {"vm.swappiness": "isolated_cpus"}}, "not_met", "10"),
]


@pytest.mark.parametrize(("given", "outcome", "words"), RELATIONS)
def test_sets_of_cpus_are_compared_with_each_other(given: dict[str, Any], outcome: str, words: str) -> None:
    made, _ = made_for("tuned_realtime")
    for name in ("nohz_full", "rcu_nocbs"):
        write_set(made, name, made.isolated)
    (found,) = findings(made, read_items(yaml.safe_load(yaml.safe_dump(given)), "")).values()
    assert found.outcome == outcome
    assert words in found.found


def test_what_is_unknown_of_a_set_is_unknown_of_what_relates_to_it() -> None:
    made, items = made_for("tuned_realtime")
    machine = made.machine()
    isolation = machine.context.isolation.model_copy(update={"isolated_source": None})
    machine = machine._replace(context=machine.context.model_copy(update={"isolation": isolation}))
    unknown = {finding.name for finding in evaluate_items(items, machine) if finding.outcome == "unknown"}
    assert {"isolated_cpus", "sysfs./sys/devices/virtual/workqueue/cpumask"} <= unknown
    assert "sysctl.vm.swappiness" not in unknown


ARGUMENTS: list[tuple[str, Any, str, str]] = [
    ("quiet", "present", "met", "present"),
    ("quiet", "absent", "not_met", "present"),
    ("nosmt", "absent", "met", "absent"),
    ("nosmt", "present", "not_met", "absent"),
    ("nosmt", "*", "not_met", "absent"),
    ("hugepages", "present", "met", "8"),
    ("hugepages", 8, "met", "8"),
    ("hugepages", 4, "not_met", "8"),
    ("iommu", "pt", "met", "nopanic,pt"),
    ("iommu", "p", "not_met", "nopanic,pt"),
    ("intel-pstate", "passive", "met", "passive"),
    ("amd_pstate", "disable", "impossible", "not a processor of AuthenticAMD"),
    ("rd.iscsi.password", "present", "unknown", "blanked on the SUT, so that its value is unknown"),
]


@pytest.mark.parametrize(("name", "wanted", "outcome", "words"), ARGUMENTS)
def test_kernel_arguments_are_looked_up_one_by_one(name: str, wanted: Any, outcome: str, words: str) -> None:
    made, _ = made_for("tuned_realtime")
    made.files["/proc/cmdline"] = (
        "quiet iommu=nopanic hugepages=4 hugepages=8 iommu=pt intel_pstate=passive rd.iscsi.password=hunter2\n"
    )
    (found,) = findings(made, read_items({"kernel_argument_values": {name: wanted}}, "")).values()
    assert (found.outcome, found.found) == (outcome, words)
