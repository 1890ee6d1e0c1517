# SPDX-License-Identifier: Apache-2.0
"""An expected state made from a machine that is right: every setting that is known of it, to be cut down by hand."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from calibration.audit import readings
from calibration.audit.kinds import KINDS, evaluate_items, read_items
from calibration.audit.readings import AuditedMachine, SettingReading
from calibration.base.comparisons import BOOTED_FROM, chosen
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.text import visible
from calibration.context.model import Context
from calibration.runner.blanking import BLANKED

SYSCTLS: Final = (
    *("kernel.nmi_watchdog", "kernel.watchdog", "kernel.numa_balancing", "kernel.randomize_va_space"),
    *("kernel.sched_autogroup_enabled", "kernel.sched_rt_period_us", "kernel.sched_rt_runtime_us"),
    *("kernel.timer_migration", "vm.overcommit_memory", "vm.stat_interval", "vm.swappiness", "vm.zone_reclaim_mode"),
)
"""Kernel parameters of every capture that change what is measured."""

FILES: Final = ("/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/defrag")
"""Files of every capture that change what is measured and have no kind of their own."""

INITIAL: Final = BOOTED_FROM | {
    "ro",
    "rw",
    "quiet",
    "splash",
    "rootflags",
    "rootfstype",
    "rootwait",
    "crashkernel",
    "systemd.hostname",
}
"""Kernel arguments that belong to the installation, and differ between machines that are equally right."""

COMMENTS: Final = {
    "kernel_arguments": "In this order; others may come between. Remove what does not matter.",
    "kernel_release": "* and ? are wildcards.",
    "isolated_cpus": "A list of CPUs, or none.",
    "housekeeping": "CPUs that are neither isolated nor in nohz_full.",
    "interrupts": "What may be delivered to isolated CPUs, by name, or none; and where new interrupts go.",
    "sysctl": "A value, a list of right values, or a range such as 0..10.",
    "sysfs": "Any file below /sys; with a wildcard all that match must have the value.",
    "huge_pages": "By size, or by size and node: {1G: {0: 8, 1: 8}}.",
    "mitigations": "on, off, or by name.",
    "firmware": "Versions, and the microcode of all CPUs.",
    "nics": "By PCI address.",
    "memory": "Filled slots, and the speed of every DIMM in MT/s.",
}


def learned(machine: AuditedMachine, source: str) -> str:
    """Return an expected state of *machine*, as YAML with comments; *source* says where it is from."""
    parts = [f"---\n# Expected state, made from {visible(source)}: correct it before you rely on it.\n"]
    values = dict(_values(machine))
    for kind in KINDS:
        if kind in values and (value := _met_only(machine, kind, values[kind])) not in ({}, None):
            comment = f"# {COMMENTS[kind]}\n" if kind in COMMENTS else ""
            parts.append(comment + yaml.safe_dump({kind: value}, sort_keys=False, width=100, allow_unicode=False))
    return "\n".join(parts)


def _met_only(machine: AuditedMachine, kind: str, value: Any) -> Any:
    """Return *value* of a kind without what cannot be written in a file, such as too long a text or too many values."""
    if isinstance(value, dict):
        return {key: part for key, part in value.items() if _is_met(machine, {kind: {key: part}})}
    return value if _is_met(machine, {kind: value}) else None


def _is_met(machine: AuditedMachine, given: dict[str, Any]) -> bool:
    try:
        items = read_items(given, "")
    except InputError:
        return False
    return all(finding.outcome == "met" for finding in evaluate_items(items, machine))


def _values(machine: AuditedMachine) -> Iterator[tuple[str, Any]]:
    """Yield the value of each kind, as it is written in a file."""
    context, isolation = machine.context, machine.context.isolation
    if found := list(_arguments(context)):
        yield "kernel_arguments", found
    yield from _single("kernel_release", readings.kernel_release(machine, ""))
    yield from _single("preemption", readings.preemption(machine, ""))
    if isolation.isolated_source is not None:
        yield "isolated_cpus", _cpus(isolation.cpus)
    if isolation.nohz_full_source == "kernel":
        yield "nohz_full", _cpus(isolation.nohz_full)
    if isolation.rcu_nocbs_source is not None:
        yield "rcu_nocbs", _cpus(isolation.rcu_nocbs)
    yield "housekeeping", _by_key(machine, readings.housekeeping, readings.HOUSEKEEPING_KEYS)
    yield "interrupts", _by_key(machine, readings.interrupts, ("on_isolated_cpus", "default_affinity"))
    asked = sorted(machine.files.asked) if machine.files else []
    names = [path.removeprefix("/proc/sys/").replace("/", ".") for path in asked if path.startswith("/proc/sys/")]
    yield "sysctl", _by_key(machine, readings.sysctl, dict.fromkeys((*SYSCTLS, *names)))
    files = [path for path in asked if path.startswith("/sys/")]
    yield "sysfs", _by_key(machine, readings.sysfs, dict.fromkeys((*FILES, *files)))
    yield from _single("transparent_hugepages", readings.transparent_hugepages(machine, ""))
    yield "huge_pages", dict(_pages(machine))
    yield from _single("governor", readings.governor(machine, ""))
    yield from _single("turbo", readings.turbo(machine, ""))
    deepest = set(readings.idle_states(machine, "").values.values())
    if names := [state.name for state in context.idle.states if state.name in deepest]:
        yield "deepest_idle_state", names[-1]
    yield from _single("smt", readings.smt(machine, ""))
    yield "mitigations", {name: _written(state) for name, state in context.mitigations.items()}
    yield from _single("clocksource", readings.clocksource(machine, ""))
    yield "processor", _by_key(machine, readings.processor, readings.PROCESSOR_KEYS)
    yield "firmware", _by_key(machine, readings.firmware, readings.FIRMWARE_KEYS)
    yield "memory", _by_key(machine, readings.memory, readings.MEMORY_KEYS)
    yield "nics", dict(_nics(machine))


def _arguments(context: Context) -> Iterator[str]:
    for parameter in context.cmdline.parameters if context.cmdline else ():
        if parameter.name not in INITIAL and BLANKED not in (parameter.value or ""):
            text = parameter.name if parameter.value is None else f"{parameter.name}={parameter.value}"
            yield f'"{text}"' if " " in text else text


def _cpus(cpus: Iterable[int]) -> str:
    return format_cpulist(cpus) or "none"


def _single(kind: str, reading: SettingReading) -> Iterator[tuple[str, Any]]:
    if (value := _value(reading)) is not None:
        yield kind, value


def _value(reading: SettingReading) -> Any:
    """Return the values of a reading as written in a file; None if there are none."""
    values = list(dict.fromkeys(map(chosen, reading.values.values())))
    if not values:
        return None
    return _written(values[0]) if len(values) == 1 else [_written(value) for value in values]


def _written(text: str) -> str | int:
    """Return a number as such, if it reads the same."""
    return int(text) if len(text) < 19 and text.lstrip("-").isdecimal() and str(int(text)) == text else text


def _by_key(machine: AuditedMachine, read: Any, keys: Iterable[str]) -> dict[str, Any]:
    found = {key: _value(read(machine, key)) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _pages(machine: AuditedMachine) -> Iterator[tuple[str, int]]:
    for pool in machine.context.memory.hugepages:
        for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
            if pool.size_bytes % (1 << shift) == 0:
                if pool.persistent is not None:
                    yield f"{pool.size_bytes >> shift}{unit}", pool.persistent
                break


def _nics(machine: AuditedMachine) -> Iterator[tuple[str, dict[str, Any]]]:
    for device in machine.context.devices or ():
        if device.kind == "network":
            found = {name: _value(readings.nics(machine, f"{device.address} {name}")) for name in readings.NIC_KEYS}
            yield device.address, {name: value for name, value in found.items() if value not in (None, "no link")}
