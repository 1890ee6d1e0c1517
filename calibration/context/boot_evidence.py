# SPDX-License-Identifier: Apache-2.0
"""Kernel parameters beside what the kernel shows of them in files: which of them the machine is not as asked in.

What is set aside for isolation has rules of its own (:mod:`calibration.context.boot_rules`).

Sources: ``Documentation/admin-guide/kernel-parameters.txt``, ``hugetlbpage.rst``, ``kernel/cpu.c``,
``drivers/idle/intel_idle.c``, ``drivers/acpi/processor_idle.c`` and ``include/linux/amd-pstate.h`` of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Final, NamedTuple

from calibration.base import units
from calibration.base.comparisons import PAGES, huge_pages, size
from calibration.base.text import visible
from calibration.context.boot_rules import arguments, behaviour, note, versions
from calibration.context.model import (
    ClockSource,
    CommandLine,
    CpuSets,
    Frequency,
    Idle,
    Memory,
    ParameterNote,
    Topology,
)

MITIGATIONS: Final = ("off", "auto", "auto,nosmt")

_VECTORS = re.compile(
    r"(?:off|auto,nosmt|auto)?(?:,no_(?:user_kernel|user_user|guest_host|guest_guest|cross_thread)(?=,|$))*"
)

NODES_SINCE: Final = (5, 16)
"""The version that reads ``hugepages=0:4,1:4`` (b5389086ad7b)."""

LEAST_TRANSPARENT: Final = 512 << 20
"""Bytes of memory below which the kernel switches transparent huge pages off (``hugepage_init``)."""

GIGANTIC: Final = 1 << 30
"""Pages of which none are reserved at boot beside ``hugetlb_cma=``, but by kernels that reserve it early."""

MAX_STATES: Final = 9
"""``max_cstate`` from which on nothing is limited."""

Given = list[tuple[str, str | None]]
"""Names, with underscores, and values of parameters in order."""

NO_SMT: Final = ("off", "forceoff", "notsupported", "notimplemented")

PSTATE_DRIVERS: Final = {
    "intel_pstate": {"intel_pstate": "active", "intel_cpufreq": "passive"},
    "amd_pstate": {"amd-pstate-epp": "active", "amd-pstate": "passive"},
}
"""Modes by name of the driver that a policy shows; guided has the name of passive."""


class BootedMachine(NamedTuple):
    """What the kernel shows."""

    cpus: CpuSets
    topology: Topology
    nodes: tuple[int, ...]
    memory: Memory
    frequency: Frequency
    idle: Idle
    clocksource: ClockSource
    release: str | None
    preemption: str | None


Difference = tuple[str, str | None, str, str]
"""Name and value of a parameter, what the machine has, and why."""

Check = Callable[[Given, BootedMachine], Iterator[Difference]]


class Evidence(NamedTuple):
    """What the kernel shows of *parameters*: where, when it is not as asked, and how that is found."""

    parameters: tuple[str, ...]
    shown: str
    differs: str
    check: Check


def _decimal(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _bytes(text: str | None) -> int | None:
    try:
        return size(text or "")
    except ValueError:
        return None


def _smt(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    control = machine.topology.smt_control
    if value in {None, "force"} and control is not None and control not in NO_SMT:
        yield name, value, control, "simultaneous multithreading was switched on after the boot"


def _maxcpus(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    most, online = _decimal(value), len(machine.cpus.online)
    if most is not None and online > max(most, 1):
        yield name, value, f"{online} CPUs online", "others were brought online after the boot"


def _nr_cpus(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    most, possible = _decimal(value), len(machine.cpus.possible or ())
    if most is not None and possible > most:
        yield name, value, f"{possible} CPUs possible", "so says the kernel"


def _mem(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    limits = [(limit, name, value) for name, value in given if (limit := _bytes(value))]
    total = machine.memory.total_bytes
    if limits and total is not None and total > min(limits)[0]:
        _, name, value = min(limits)
        yield name, value, units.size(total), "so says /proc/meminfo; memory may have been added after the boot"


def _numa(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    if ("numa", "off") in given and len(machine.nodes) > 1:
        yield "numa", "off", f"{len(machine.nodes)} nodes", "so says the kernel"


def _transparent_huge_pages(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    enabled = machine.memory.transparent_hugepages.enabled
    if value not in {"always", "madvise", "never"}:
        if value is not None:
            yield name, value, enabled or "unknown", "the kernel knows always, madvise and never"
    elif enabled is None and value != "never" and (machine.preemption or "").startswith("real-time"):
        yield name, value, "none", "a real-time kernel has no transparent huge pages"
    elif enabled not in {None, value}:
        small = enabled == "never" and (machine.memory.total_bytes or LEAST_TRANSPARENT) < LEAST_TRANSPARENT
        why = "the kernel switches them off on machines of less than 512 MiB" if small else "changed after the boot"
        yield name, value, enabled or "", why


def _huge_pages(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    pools = {pool.size_bytes: pool for pool in machine.memory.hugepages}
    default = machine.memory.default_hugepage_bytes
    if not pools:
        return
    areas = [value for name, value in given if name not in PAGES]
    given = [(name, value) for name, value in given if name in PAGES]
    asked = huge_pages(given, default)
    for name, value in given:
        named = None if name == "hugepages" else _bytes(value)
        if named is not None and named not in pools:
            yield name, value, "refused", f"the kernel has no pages of {units.size(named)}"
    if asked.default_text is not None and asked.default in pools and default not in {None, asked.default}:
        name, _, value = asked.default_text.partition("=")
        yield name, value, units.size(default or 0), "so says /proc/meminfo"
    for size_bytes, count in asked.counts.items():
        pool = pools.get(size_bytes) if size_bytes is not None else None
        pages = count.pages
        wanted = sum(of_node for _, of_node in pages) if isinstance(pages, frozenset) else pages
        if pool is None or pool.total is None or not isinstance(wanted, int):
            continue
        found = pool.total - (pool.surplus or 0)
        if found != wanted:
            name, _, value = count.argument.partition("=")
            why = "more were reserved after the boot"
            if found < wanted:
                why = _no_pages(pages, machine) or "memory was short at boot, or they were released after it"
            if not found and areas and (size_bytes or 0) >= GIGANTIC:
                why = "beside hugetlb_cma= the kernel reserves none of this size at boot"
            yield name, value, f"{found} pages of {units.size(size_bytes or 0)}", why


def _no_pages(pages: Hashable, machine: BootedMachine) -> str | None:
    """Return why the kernel refuses numbers of *pages* by node; None if it does not, or they are not by node."""
    if not isinstance(pages, frozenset):
        return None
    if versions(machine.release)[0] < NODES_SINCE:
        return "kernels before 5.16 know no numbers by node"
    absent = sorted({node for node, _ in pages}.difference(machine.nodes))
    return f"the kernel refuses all of it, as there is no node {absent[0]}" if absent else None


def _clock_source(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    current, available = machine.clocksource.current, machine.clocksource.available
    if value and current not in {None, value}:
        usable = value in available
        why = "changed after the boot" if usable else "the kernel does not have it, or found it unstable"
        yield name, value, current or "", why


def _pstate(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    """Yield that another driver has the CPUs, or this one in another mode; words of other purposes are left."""
    name = given[-1][0]
    modes = [value for _, value in given if value in {"active", "passive", "guided", "disable"}]
    drivers = machine.frequency.drivers
    if not modes or not drivers:
        return
    own = [PSTATE_DRIVERS[name][driver] for driver in drivers if driver in PSTATE_DRIVERS[name]]
    mode = (machine.frequency.pstate_status or own[0]) if own else None
    if modes[-1] == "disable" and mode is not None:
        yield name, "disable", f"{mode} ({', '.join(drivers)})", "so says the kernel"
    elif modes[-1] != "disable" and mode is None:
        yield name, modes[-1], ", ".join(drivers), "another driver has the CPUs"
    elif modes[-1] != "disable" and mode != modes[-1]:
        yield name, modes[-1], mode or "", "changed after the boot, or not possible on this processor"


def _idle_driver(machine: BootedMachine) -> str | None:
    return None if machine.idle.driver in {None, "none"} else machine.idle.driver


def _deepest_state(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    """Yield that there are deeper states than asked: the limit is one of the driver of its name."""
    name, value = given[-1]
    most, driver = _decimal(value), _idle_driver(machine)
    states = [state.name for state in machine.idle.states if state.name != "POLL"]
    own = "intel_idle" if name == "intel_idle.max_cstate" else "acpi_idle"
    if most is None or driver is None or most >= MAX_STATES:
        return
    if most == 0 and own == "intel_idle":
        if driver == own:
            yield name, value, driver, "so says the kernel"
    elif len(states) > max(most, 1):
        why = "so says the kernel" if driver == own else f"the CPUs idle by {driver}, which has no such limit"
        yield name, value, f"states to {states[-1]}", why


def _no_idle_driver(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    driver = _idle_driver(machine)
    off = {
        "idle": value in {"poll", "halt"} or (value == "nomwait" and driver == "intel_idle"),
        "cpuidle.off": value in {"1", "y", "Y"},
    }
    if driver is not None and off[name]:
        yield name, value, driver, "so says the kernel"


def _applied(value: str, does: str) -> str | None:
    """Return how much of the *value* of ``mitigations=`` applies, from its beginning; None if nothing does."""
    if does == "words":
        return value if value in MITIGATIONS else None
    match = _VECTORS.match(value)
    applied = match.group() if match else ""
    return value if value.removesuffix(",") == applied else applied or None


def _mitigations(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    if value is None:
        return
    applied = {_applied(value, behaviour("mitigations", version)) for version in versions(machine.release)}
    if applied == {None}:
        yield name, value, "ignored", "the kernel does not know it, and mitigates by default"
    elif value not in applied:
        found = " or ".join(sorted(part or "ignored" for part in applied))
        yield name, value, found, "the kernel does not know the rest"


def _preempt(given: Given, machine: BootedMachine) -> Iterator[Difference]:
    name, value = given[-1]
    chosen = machine.preemption
    if not value or chosen is None or chosen.rpartition(" ")[2] == value:
        return
    if "PREEMPT_DYNAMIC" not in chosen:
        yield name, value, chosen, "so says the kernel"
    elif not any(value in behaviour("preempt", version).split() for version in versions(machine.release)):
        reasons = {"lazy": "kernels before 6.13 do not know it"}
        reasons |= dict.fromkeys(("none", "voluntary"), "kernels from 7.0 on with lazy preemption ignore it")
        yield name, value, "unknown", reasons.get(value, "the kernel does not know it")


_STATES: Final = "cpuidle/current_driver, cpuidle/state*"

EVIDENCE: Final = (
    Evidence(
        ("preempt",), "debug/sched/preempt (root), else the kernel's version", "another model is chosen", _preempt
    ),
    Evidence(("nosmt",), "cpu/smt/control", "multithreading is on", _smt),
    Evidence(("maxcpus",), "cpu/online", "more CPUs are online", _maxcpus),
    Evidence(("nr_cpus",), "cpu/possible", "more CPUs are possible", _nr_cpus),
    Evidence(("mem",), "/proc/meminfo", "there is more memory", _mem),
    Evidence(("numa",), "node/", "there are several nodes in spite of off", _numa),
    Evidence(
        (*PAGES, "hugetlb_cma"),
        "hugepages-*/, /proc/meminfo",
        "the kernel has no such size, another default or number of pages",
        _huge_pages,
    ),
    Evidence(
        ("transparent_hugepage",), "transparent_hugepage/enabled", "another word is chosen", _transparent_huge_pages
    ),
    Evidence(("clocksource",), "clocksource0/current_clocksource", "another source is in use", _clock_source),
    Evidence(("intel_pstate",), "scaling_driver, intel_pstate/status", "another driver or mode is in use", _pstate),
    Evidence(("amd_pstate",), "scaling_driver, amd_pstate/status", "another driver or mode is in use", _pstate),
    Evidence(("intel_idle.max_cstate",), _STATES, "there are deeper states, or with 0 this driver", _deepest_state),
    Evidence(("processor.max_cstate",), _STATES, "there are deeper states", _deepest_state),
    Evidence(("idle",), "cpuidle/current_driver", "poll, halt or nomwait left a driver", _no_idle_driver),
    Evidence(("cpuidle.off",), "cpuidle/current_driver", "there is a driver", _no_idle_driver),
    Evidence(("mitigations",), "the kernel's version", "it does not know the word", _mitigations),
)
"""What the machine shows of each parameter, and what the guide says of it."""


def evidence_notes(cmdline: CommandLine | None, machine: BootedMachine) -> Iterator[ParameterNote]:
    """Yield where the machine is not as *cmdline* asks, as far as the kernel shows it."""
    given = list(arguments(cmdline)) if cmdline else []
    for evidence in EVIDENCE:
        own = [(name, value) for name, value in given if name in evidence.parameters]
        for name, value, found, why in evidence.check(own, machine) if own else ():
            yield note(name, value, visible(found), why)
