# SPDX-License-Identifier: Apache-2.0
"""What a machine has of each setting, or why that is unknown, or why it cannot have it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple

from calibration.audit.files import Files
from calibration.base.comparisons import Kind, cpu_set, decimal_fraction, kind_of_file, number, rule_of, words
from calibration.base.cpulists import format_cpulist
from calibration.context.hardware import Device
from calibration.context.loader import describe, open_tree
from calibration.context.model import SWITCH, Context, HugePages
from calibration.context.population import UnknownPopulation, population, unread_slots
from calibration.context.topology import CPU, parse_size
from calibration.runner.blanking import BLANKED
from calibration.runner.devices import PCI
from calibration.runner.profiles import setting_path

NOT_LISTED: Final = "/"
"""Stands for the unreadable files beyond those that a capture lists."""

NO_INTERRUPT: Final = "none"

DMI: Final = "/sys/class/dmi/id"
DMI_TABLES: Final = "/sys/firmware/dmi"

TSC_ARCHITECTURES: Final = frozenset({"x86_64", "i686"})
"""Architectures on which the kernel may have dropped a clock source that the machine has."""


class AuditedMachine(NamedTuple):
    """A machine as captured, and its files below /proc/sys and /sys, which only items that name files need."""

    context: Context
    files: Files | None = None

    @property
    def complete(self) -> bool:
        """Whether what is not there does not exist: not so in a tree that somebody has copied."""
        return self.context.capture.captured_at is not None or (self.files is not None and self.files.live)


def open_machine(root: Path, archive: bytes | None = None) -> AuditedMachine:
    """Return the machine of a root, a captured tree, its ``.tar.gz`` or a run's directory, or of *archive*."""
    tree = open_tree(root, archive)
    return AuditedMachine(describe(tree), Files(tree))


class SettingReading(NamedTuple):
    """The values of a setting by place (``""`` if it has none), or the ``reason`` why there are none.

    ``impossible``: the machine cannot have the setting; ``unknown``: it could not be read. A reason beside values says
    what of them could not be read. ``kinds`` says how the value of a place is compared, where not as a text.
    """

    values: Mapping[str, str]
    state: Literal["found", "impossible", "unknown"] = "found"
    reason: str = ""
    noun: str = "CPUs"
    kinds: Mapping[str, Kind] = {}


def one(value: object, kind: Kind = words) -> SettingReading:
    """Return the reading of a setting that has one value."""
    return SettingReading({"": str(value)}, kinds={"": kind})


def impossible(reason: str) -> SettingReading:
    """Return that the machine cannot have the setting."""
    return SettingReading({}, "impossible", reason)


def unknown(reason: str) -> SettingReading:
    """Return that it is unknown what the machine has."""
    return SettingReading({}, "unknown", reason)


def absent(machine: AuditedMachine, prefix: str, reason: str) -> SettingReading:
    """Return that the machine has no such setting, for a *reason*, unless what is below *prefix* was not read."""
    if unread := _unread_below(machine, prefix):
        return unknown(unread)
    return impossible(reason) if machine.complete else unknown(f"the capture has no {prefix}")


def _unread_below(machine: AuditedMachine, *prefixes: str) -> str:
    """Return the first file that begins with one of *prefixes* and was not read, with the reason; empty if all were."""
    unread = (file for file in machine.context.unreadable if file.path.startswith(prefixes))
    return next((f"{file.path}: {file.reason}" for file in unread), "")


def _all_unread(machine: AuditedMachine, pattern: str) -> list[str]:
    """Return the files that match *pattern* and were not read, each with the reason."""
    parts = pattern.split("/")
    paths = ((file, file.path.split("/")) for file in machine.context.unreadable)
    return [
        f"{file.path}: {file.reason}"
        for file, own in paths
        if len(own) == len(parts) and all(map(fnmatchcase, own, parts))
    ]


def _unread(machine: AuditedMachine, pattern: str) -> str:
    """Return the first file that matches *pattern* and was not read, with the reason; empty if all were."""
    return next(iter(_all_unread(machine, pattern)), "")


def kernel_release(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the release of the kernel."""
    release = machine.context.capture.kernel_release
    return unknown("not in the capture") if release is None else one(release)


PREEMPTION: Final = ("real-time", "lazy", "full", "voluntary", "none")
"""Models of preemption; in other words it is not known which of several the kernel has."""


def preemption(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the preemption model: ``real-time`` of every PREEMPT_RT kernel."""
    found = machine.context.kernel.preemption
    return unknown("not in the capture") if found is None else one(found.partition(", ")[0])


PRESENT: Final = "present"
"""A kernel argument without a value; expected, one with any."""

ABSENT: Final = "absent"

VENDORS: Final[Mapping[str, str]] = {"intel_": "GenuineIntel", "amd_": "AuthenticAMD"}
"""Kernel arguments that begin so do nothing on processors of others."""


def kernel_argument(machine: AuditedMachine, name: str) -> SettingReading:
    """Return the value of a kernel argument: the last one, or all that the kernel collects, with commas."""
    cmdline, plain = machine.context.cmdline, name.replace("-", "_")
    if cmdline is None:
        return unknown("not in the capture")
    given = [parameter.value for parameter in cmdline.parameters if parameter.name.replace("-", "_") == plain]
    if not given:
        vendors = {model.vendor for model in machine.context.processor.models}
        needed = next((vendor for prefix, vendor in VENDORS.items() if plain.startswith(prefix)), None)
        return one(ABSENT) if needed is None or needed in vendors else impossible(f"not a processor of {needed}")
    values = [PRESENT if value is None else value for value in given]
    if any(BLANKED in value for value in values):
        return unknown("blanked on the SUT, so that its value is unknown")
    return one(",".join(values) if _kept(name) else values[-1], rule_of(name).kind)


def elements(name: str, value: str) -> tuple[str, ...]:
    """Return *value* of a kernel argument, and its elements if the kernel collects them."""
    return (value, *value.split(",")) if _kept(name) else (value,)


def _kept(name: str) -> bool:
    rule = rule_of(name)
    return rule.collected or bool(rule.modes)


HOUSEKEEPING_KEYS: Final = ("cpus", "from_cpu_0", "cores", "first_cores")


def housekeeping(machine: AuditedMachine, key: str) -> SettingReading:
    """Return a property of the online CPUs that are neither isolated nor in ``nohz_full``.

    How many there are, in all or from CPU 0 on without a gap; whether each core that has one has no other; whether
    that of the first CPU of each node is one.
    """
    context = machine.context
    if context.isolation.isolated_source is None or context.isolation.nohz_full_source is None:
        return unknown("it is not known which CPUs are isolated")
    taken = {*context.isolation.cpus, *context.isolation.nohz_full}
    if not taken:
        return impossible("no CPU is isolated")
    kept = [cpu for cpu in context.online_cpus if cpu not in taken]
    if key == "cpus":
        return one(len(kept))
    if key == "from_cpu_0":
        return one(next((place for place, cpu in enumerate(kept) if place != cpu), len(kept)))
    if key == "cores":
        cores = [core.cpus for core in context.topology.cores if not set(kept).isdisjoint(core.cpus)]
        whole = {format_cpulist(core): "whole" if set(core) <= set(kept) else "split" for core in cores}
        return SettingReading(whole, noun="cores") if whole else unknown("the cores are not in the capture")
    first = {str(node.id): "included" if node.cpus[0] in kept else "isolated" for node in context.nodes if node.cpus}
    return SettingReading(first, noun="nodes") if first else unknown("the nodes are not in the capture")


PROCESSOR_KEYS: Final = ("model", "nodes_per_socket")


def processor(machine: AuditedMachine, key: str) -> SettingReading:
    """Return the name of each CPU's model, or the number of nodes with CPUs on each socket."""
    context = machine.context
    if key == "model":
        names = {str(cpu): model.name for model in context.processor.models if model.name for cpu in model.cpus}
        return SettingReading(names) if names else unknown("the kernel does not name the processor")
    sockets = {cpu: core.package for core in context.topology.cores for cpu in core.cpus}
    found = {(socket, node.id) for node in context.nodes for cpu in node.cpus if (socket := sockets.get(cpu))}
    counts = Counter(socket[-1] for socket, _ in found)
    if not counts:
        return unknown("the sockets are not in the capture")
    return SettingReading({str(socket): str(number) for socket, number in counts.items()}, noun="sockets")


def sysctl_path(name: str) -> str | None:
    """Return the file of a kernel parameter, as ``sysctl(8)`` reads its name; None for no name."""
    return setting_path("sysctl", name) if re.fullmatch(r"[A-Za-z0-9_.:@/*?+-]+", name) else None


def sysctl(machine: AuditedMachine, name: str) -> SettingReading:
    """Return the value of a kernel parameter."""
    path = sysctl_path(name)
    return unknown("not a name") if path is None else sysfs(machine, path, "this kernel has no such parameter")


def sysfs(machine: AuditedMachine, pattern: str, missing: str = "no such file") -> SettingReading:
    """Return the contents of the files that match *pattern*, by CPU if that is all they differ in."""
    if machine.files is None:
        return unknown("the files of the capture are not at hand")
    found = machine.files.find(pattern)
    wild = re.search("[*?]", pattern) is not None
    reason = found.reason or ((_unread(machine, pattern) or _unread(machine, NOT_LISTED)) if wild else None)
    if not found.values:
        if reason:
            return unknown(reason)
        return impossible(missing) if found.looked else unknown("not captured: it was not asked for")
    if not wild:
        return one(found.values[pattern], kind_of_file(pattern))
    places, noun = by_cpu(pattern, found.values)
    values = {places[path]: value for path, value in found.values.items()}
    kinds = {places[path]: kind_of_file(path) for path in found.values}
    return SettingReading(values, "found", reason or "", noun, kinds)


def by_cpu(pattern: str, paths: Iterable[str]) -> tuple[dict[str, str], str]:
    """Return the part of each of *paths* that *pattern* leaves open, and what it names: CPUs if each is a number."""
    expression = "".join({"*": "([^/]*)", "?": "([^/])"}.get(part, re.escape(part)) for part in pattern)
    places = {
        path: "/".join(matched.groups()) if (matched := re.fullmatch(expression, path)) else path for path in paths
    }
    return places, "CPUs" if "cpu*" in pattern and all(map(str.isdigit, places.values())) else "files"


def transparent_hugepages(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the mode of transparent huge pages: that of their largest size."""
    mode = machine.context.memory.transparent_hugepages.mode
    reason = "this kernel has no transparent huge pages"
    return absent(machine, "/sys/kernel/mm/transparent_hugepage", reason) if mode is None else one(mode)


def huge_pages(machine: AuditedMachine, key: str) -> SettingReading:
    """Return the number of huge pages of a size, on all nodes or one (``1G node 0``), without surplus ones."""
    context = machine.context
    size, _, node = key.partition(" node ")
    wanted = parse_size(size)
    pools: tuple[HugePages, ...] = context.memory.hugepages
    where = "/sys/kernel/mm/hugepages"
    if node:
        if int(node) not in {known.id for known in context.nodes}:
            return impossible(f"no node {node}")
        pools, where = context.node(int(node)).hugepages, f"/sys/devices/system/node/node{node}/hugepages"
    found = next((pool for pool in pools if pool.size_bytes == wanted), None)
    if found is None or found.persistent is None:
        return absent(machine, where, f"no huge pages of {size} on this machine")
    return one(found.persistent)


def governor(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the frequency governor of each CPU."""
    unread = _unread(machine, f"{CPU}/cpufreq/policy*/scaling_governor")
    values = {
        str(cpu): policy.governor or "none"
        for policy in machine.context.frequency.policies
        if policy.governor or not unread
        for cpu in policy.cpus
    }
    without = [cpu for cpu in machine.context.cpus.online if str(cpu) not in values]
    reason = unread or (f"CPUs {format_cpulist(without)} have no frequency policy" if without else "")
    return (
        SettingReading(values, reason=reason) if values else absent(machine, f"{CPU}/cpufreq", "no frequency scaling")
    )


def turbo(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return whether turbo frequencies are on: on each CPU where it is not the same on all."""
    frequency = machine.context.frequency
    unread = _unread(machine, f"{CPU}/cpufreq/policy*/boost")
    if frequency.turbo is not None:
        return SettingReading({"": SWITCH[frequency.turbo]}, reason=unread)
    if own := frequency.turbo_by_cpu:
        return SettingReading({str(cpu): turbo for cpu, turbo in own.items()}, reason=unread)
    for switch in ("intel_pstate/no_turbo", "cpufreq/boost"):
        if (reading := absent(machine, f"{CPU}/{switch}", "")).state == "unknown":
            return reading
    return impossible("no switch for turbo")


def idle_states(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the deepest enabled idle state of each CPU."""
    context = machine.context
    if not context.idle.states:
        first = context.online_cpus[0] if context.online_cpus else 0
        reason = f"no idle states (driver {context.idle.driver or 'none'})"
        return absent(machine, f"{CPU}/cpu{first}/cpuidle", reason)
    values = {str(cpu): "none" for cpu in context.online_cpus}
    for state in context.idle.states:
        for cpu in set(context.online_cpus) - set(state.disabled_cpus):
            values[str(cpu)] = state.name
    unread = _all_unread(machine, f"{CPU}/cpu*/cpuidle/state*/disable")
    for text in unread:  # what was not read counts as enabled
        values.pop(text.removeprefix(f"{CPU}/cpu").partition("/")[0], None)
    reason = next(iter(unread), "")
    return SettingReading(values, reason=reason) if values else unknown(reason)


def smt(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return whether several threads of a core are in use."""
    topology = machine.context.topology
    if topology.smt_control in ("notsupported", "notimplemented"):
        return impossible(f"one thread per core ({topology.smt_control})")
    if topology.smt_active is not None:
        return one(SWITCH[topology.smt_active])
    if (topology.threads_per_core or 0) > 1:
        return one("on")
    return absent(machine, f"{CPU}/smt", "this kernel has no SMT control")


def mitigations(machine: AuditedMachine, name: str) -> SettingReading:
    """Return the state of one vulnerability, or of each."""
    found = machine.context.mitigations
    if not name:
        where = f"{CPU}/vulnerabilities"
        reason = "this kernel reports no vulnerabilities"
        return SettingReading(found, noun="vulnerabilities") if found else absent(machine, where, reason)
    if name not in found:
        return absent(machine, f"{CPU}/vulnerabilities", "this kernel does not report it")
    return one(found[name])


def clocksource(machine: AuditedMachine, _key: str) -> SettingReading:
    """Return the clock source in use."""
    current = machine.context.clocksource.current
    return unknown("not in the capture") if current is None else one(current)


def interrupts(machine: AuditedMachine, key: str) -> SettingReading:
    """Return the default affinity of interrupts, or those that may be delivered to an isolated CPU."""
    isolation = machine.context.isolation
    default = isolation.default_irq_affinity
    if default is None:
        return absent(machine, "/proc/irq", "this kernel has no interrupt affinity")
    if key == "default_affinity":
        return one(format_cpulist(default), cpu_set)
    if not isolation.cpus:
        return impossible("no CPU is isolated")
    values = {
        f"IRQ {interrupt.irq} on CPUs {format_cpulist(interrupt.isolated_cpus)}": interrupt.name or str(interrupt.irq)
        for interrupt in isolation.interrupts
    }
    unread = _unread_below(machine, "/proc/irq/", "/proc/interrupts")
    if not values:
        return unknown(unread) if unread else one(NO_INTERRUPT)
    return SettingReading(values, reason=unread, noun="interrupts")


FIRMWARE_KEYS: Final = (
    "bios_vendor",
    "bios_version",
    "bios_release",
    "bios_date",
    "product_name",
    "board_name",
    "microcode",
)


def firmware(machine: AuditedMachine, key: str) -> SettingReading:
    """Return a version of the firmware, or the microcode of each CPU."""
    context = machine.context
    if key == "microcode":
        values = {str(cpu): model.microcode for model in context.processor.models for cpu in model.cpus}
        known = {cpu: microcode for cpu, microcode in values.items() if microcode is not None}
        kinds: dict[str, Kind] = dict.fromkeys(known, number)
        return SettingReading(known, kinds=kinds) if known else absent(machine, "/proc/cpuinfo", "no microcode version")
    value = getattr(context.firmware, key)
    return absent(machine, f"{DMI}/{key}", "the firmware gives none") if value is None else one(value)


LINKED: Final = frozenset({"up", "unknown", None})
"""States of interfaces that may have a link."""

NIC_KEYS: Final = ("node", "driver", "firmware", "speed_mbit_s", "pcie_lanes", "pcie_gt_s", "id")


def nics(machine: AuditedMachine, key: str) -> SettingReading:
    """Return a property of a device: ``0000:18:00.0 node``."""
    address, _, name = key.partition(" ")
    if machine.context.devices is None:
        return unknown("the capture has no devices")
    device = next((device for device in machine.context.devices if device.address == address), None)
    if device is None:
        return _not_described(machine, address)
    if name == "node":
        return _node(machine.context, device)
    if name == "speed_mbit_s":
        return _speed(device)
    link = device.link
    value = {
        "driver": device.driver or "none",
        "firmware": device.firmware,
        "id": device.id,
        "pcie_lanes": None if link is None else link.width,
        "pcie_gt_s": None if link is None or link.speed_gt_s is None else f"{link.speed_gt_s:g}",
    }[name]
    if value is not None:
        return one(value, decimal_fraction if name == "pcie_gt_s" else words)
    if name == "firmware":
        return unknown(device.firmware_reason or "not in the capture")
    return impossible("no PCIe link") if name.startswith("pcie") else unknown("not in the capture")


def device_file(address: str) -> str:
    """Return a file that every PCI device has; with its class it would be described."""
    return f"{PCI}/{address}/vendor"


def _not_described(machine: AuditedMachine, address: str) -> SettingReading:
    found = None if machine.files is None else machine.files.find(device_file(address))
    if found is not None and found.values:
        return unknown("not described: a virtual function, or no network, storage or accelerator device")
    looked = found is not None and found.looked
    if not looked and any(device.virtual_functions for device in machine.context.devices or ()):
        return unknown("not described: it may be a virtual function")
    return one("no such device")


def _node(context: Context, device: Device) -> SettingReading:
    if device.node is not None:
        return one(device.node)
    return impossible("the machine has one node") if len(context.nodes) == 1 else one("none")


def _speed(device: Device) -> SettingReading:
    if not device.interfaces:
        return unknown(f"its driver, {device.driver or 'none'}, shows no interface")
    values = {
        interface.name: str(interface.speed_mbit_s or "no link")
        for interface in device.interfaces
        if interface.speed_mbit_s is not None or interface.state not in LINKED
    }
    untold = [interface.name for interface in device.interfaces if interface.name not in values]
    reason = f"the driver, {device.driver or 'none'}, does not tell the speed of {', '.join(untold)}" if untold else ""
    if not values:
        return unknown(reason)
    if len(values) == 1 and not untold:
        return one(next(iter(values.values())))
    return SettingReading(values, reason=reason, noun="interfaces")


MEMORY_KEYS: Final = ("dimms", "mt_s", "channels")


def memory(machine: AuditedMachine, key: str) -> SettingReading:
    """Return the number of DIMMs or populated channels, or the speed of each DIMM."""
    context = machine.context
    filled = [dimm for dimm in context.firmware.dimms if dimm.size_bytes]
    if not filled:
        return absent(machine, DMI_TABLES, "the firmware describes no memory slots")
    unread = unread_slots(context)
    if key == "dimms":
        return one(len(filled)) if unread is None else unknown(unread)
    if key == "channels":
        found = population(context)
        if isinstance(found, UnknownPopulation):
            return impossible(found.reason) if context.virtualization.guest else unknown(found.reason)
        return one(found.machine.populated)
    speeds = {f"{number} {dimm.locator or ''}".strip(): dimm.configured_mt_s for number, dimm in enumerate(filled)}
    values = {name: str(speed) for name, speed in speeds.items() if speed}
    if not values:
        return unknown("the firmware gives no configured speed")
    if unread is None and len(values) < len(speeds):
        silent = [name for name in speeds if name not in values]
        unread = f"the firmware gives no configured speed for {', '.join(silent)}"
    return SettingReading(values, reason=unread or "", noun="DIMMs")
