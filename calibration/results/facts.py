# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine that affect its metrics, each a name and a text: what two nights, or two SUTs, differ in.

Without volatile facts (free memory, load, current clock, boot time), and without those in which equal machines always
differ (names, boot device).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from calibration.comparisons import BOOTED_FROM, Kind, command_line, cpu_set, set_of, words
from calibration.cpulists import format_cpulist
from calibration.results.history import NOT_KNOWN
from calibration.units import plural

if TYPE_CHECKING:  # comparing facts needs no models, whose import takes half a second
    from calibration.context.model import (
        Capture,
        CommandLine,
        Context,
        CpuModel,
        Dimm,
        Firmware,
        Frequency,
        IdleState,
        Isolation,
        Memory,
        Node,
        Topology,
        TransparentHugePages,
    )
    from calibration.results.model import Kernels

KERNEL_BYTES_DIGITS: Final = 12
"""First digits of the SHA-256 of sutprobe; enough to tell two builds apart."""

UNCHANGING: Final = (
    "processor",
    "microcode",
    "BIOS",
    "CPUs",
    "cores",
    "nodes",
    "distances between nodes",
    "isolated CPUs",
    "container",
    "limits",
)
"""Facts that no run changes and that apply to all of its metrics. Kernel and command line too, verbatim."""

GIB: Final = 1 << 30


def _limits(context: Context) -> str:
    from calibration.context.confinement import limits  # noqa: PLC0415 - with it comes all that reads a capture

    return ", ".join(limits(context)) or "none"


def _memory_side_caches(context: Context) -> str:
    from calibration.context.hmat import memory_side_caches_text  # noqa: PLC0415 - as above

    known = all(node.memory_side_caches is not None for node in context.nodes)
    return (memory_side_caches_text(context) or "none") if known else NOT_KNOWN


def _rated(context: Context) -> str:
    from calibration.context.hmat import rated_accesses_text  # noqa: PLC0415 - as above

    known = all(node.rated_accesses is not None for node in context.nodes)
    return (rated_accesses_text(context) or "none") if known else NOT_KNOWN


class Fact(NamedTuple):
    """A fact: its name, its text on a machine, and how two such texts are compared."""

    name: str
    read: Callable[[Context], str]
    kind: Kind = words


def dimm_groups(text: str, _last: int | None = None) -> Hashable:
    """Return groups of equal memory slots, in which their order means nothing: SMBIOS tables differ in it."""
    groups = (group.partition(" in ") for group in text.split(";"))
    return frozenset((what.strip(), frozenset(name.strip() for name in names.split(","))) for what, _, names in groups)


FACTS: Final = (
    Fact("kernel", lambda context: _kernel(context.capture)),
    Fact(
        "kernel command line",
        lambda context: NOT_KNOWN if context.cmdline is None else _command_line(context.cmdline),
        command_line,
    ),
    Fact("processor", lambda context: _words(map(_model, context.processor.models), between="; "), set_of(";")),
    Fact(
        "microcode",
        lambda context: _words(dict.fromkeys(model.microcode for model in context.processor.models)),
        set_of(","),
    ),
    Fact("BIOS", lambda context: _bios(context.firmware)),
    Fact("CPUs", lambda context: format_cpulist(context.online_cpus), cpu_set),
    Fact("cores", lambda context: _cores(context.topology)),
    Fact("nodes", lambda context: _words(map(_node, context.nodes), between="; ")),
    Fact(
        "distances between nodes",
        lambda context: (
            NOT_KNOWN if context.distances is None else "; ".join(" ".join(map(str, row)) for row in context.distances)
        ),
    ),
    Fact("memory", lambda context: _words(map(_memory, context.nodes), between="; ")),
    Fact("DIMMs", lambda context: "; ".join(_dimms(context.firmware.dimms)) or NOT_KNOWN, dimm_groups),
    Fact("isolated CPUs", lambda context: _isolated(context.isolation)),
    Fact("housekeeping CPUs", lambda context: _housekeeping(context.isolation), cpu_set),
    Fact("container", lambda context: (context.confinement and context.confinement.container) or "none"),
    Fact("limits", _limits, set_of(",")),
    Fact("SMT", lambda context: _known(context.topology.smt_control)),
    Fact("governor", lambda context: _words(context.frequency.governors), set_of(",")),
    Fact("turbo", lambda context: _known(context.frequency.turbo_text)),
    Fact(
        "frequency driver",
        lambda context: _words((*context.frequency.drivers, *filter(None, (context.frequency.pstate_status,)))),
        set_of(","),
    ),
    Fact("frequency limits", lambda context: _frequency_limits(context.frequency), set_of(",")),
    Fact("idle states", lambda context: _words(map(_idle_state, context.idle.states))),
    Fact("huge pages", lambda context: _huge_pages(context.memory), set_of(",")),
    Fact("transparent huge pages", lambda context: _transparent(context.memory.transparent_hugepages)),
    Fact("preemption", lambda context: _known(context.kernel.preemption)),
    Fact("NUMA balancing", lambda context: _known(context.memory.numa_balancing)),
    Fact("vulnerabilities", lambda context: _vulnerabilities(context.mitigations)),
    Fact("network devices", lambda context: _devices(context, "network"), set_of(";")),
    Fact("storage controllers", lambda context: _devices(context, "storage"), set_of(";")),
    Fact("accelerators", lambda context: _devices(context, "accelerator"), set_of(";")),
    Fact("CXL memory", lambda context: _captured(context, _cxl), set_of(",")),
    Fact("memory-side caches", _memory_side_caches, set_of(";")),
    Fact("rated by the firmware", _rated, set_of(";")),
    Fact("interleave weights", lambda context: _captured(context, _weights), set_of(",")),
    Fact("allocation", lambda context: _captured(context, _allocation), set_of(";")),
    Fact("tuned profile", lambda context: _captured(context, _tuned)),
    Fact("clock source", lambda context: _known(context.clocksource.current)),
)
"""In the order in which they are shown. A kind other than text where one machine may be described by two texts."""

_KINDS: Final = {fact.name: fact.kind for fact in FACTS}


def facts(context: Context, kernels: Kernels | None) -> dict[str, str]:
    """Return the facts of *context*, a captured machine, and of *kernels*, its sutprobes, in a fixed order.

    Every fact is present on every machine; an unknown one says so.
    """
    found = {fact.name: fact.read(context) for fact in FACTS}
    return {**found, "kernel bytes": NOT_KNOWN if kernels is None else kernels.sha256[:KERNEL_BYTES_DIGITS]}


def fact_value(name: str, text: str) -> Hashable:
    """Return what the *text* of a fact stands for: equal for texts that say the same."""
    try:
        return _KINDS.get(name, words)(text, None)
    except ValueError:
        return words(text)


def same_fact(name: str, one: str | None, other: str | None) -> bool:
    """Return whether two texts of a fact say the same; None, a missing one, is like no other."""
    return one == other if one is None or other is None else fact_value(name, one) == fact_value(name, other)


def other_facts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the facts in which *now* differs from *before*, as text, without those missing from one of them."""
    return [
        f"{name}: {before[name]} -> {now[name]}"
        for name in before
        if name in now and not same_fact(name, before[name], now[name])
    ]


def differences(before: Context, now: Context) -> list[str]:
    """Return the differences between *now* and *before* that prevent a run from continuing.

    Free memory, load and boot may differ, and so may what a run itself tunes.
    """

    def identity(context: Context) -> dict[str, str]:
        known = facts(context, None)
        return {
            "kernel": str(context.capture.uname),
            "kernel command line": "none" if context.cmdline is None else context.cmdline.text.strip(),
            **{name: known[name] for name in UNCHANGING},
        }

    return other_facts(identity(before), identity(now))


def _known(value: object) -> str:
    return NOT_KNOWN if value is None else str(value)


def _words(words: Iterable[str | None], between: str = ", ") -> str:
    """Return the known ones of *words*, joined; without any, that they are unknown."""
    return between.join(word for word in words if word is not None) or NOT_KNOWN


def _kernel(capture: Capture) -> str:
    return _words((capture.kernel_name, capture.kernel_release, capture.kernel_version, capture.machine), between=" ")


def _model(model: CpuModel) -> str:
    return _words((model.vendor, model.name, model.family, model.model, model.stepping), between=" ")


def _bios(firmware: Firmware) -> str:
    return _words((firmware.bios_vendor, firmware.bios_version, firmware.bios_date), between=" ")


def _cores(topology: Topology) -> str:
    threads = Counter(len(core.cpus) for core in topology.cores)
    if len(threads) > 1:
        return ", ".join(f"{threads[count]} with {plural(count, 'thread')}" for count in sorted(threads, reverse=True))
    return f"{len(topology.cores)} with {_known(topology.threads_per_core)} threads each"


def _node(node: Node) -> str:
    return f"{node.id}: CPUs {format_cpulist(node.cpus)}{'' if node.memory_bytes else ', without memory'}"


def _memory(node: Node) -> str:
    return f"{node.id}: {NOT_KNOWN if node.memory_bytes is None else _rounded(node.memory_bytes)}"


def _isolated(isolation: Isolation) -> str:
    isolated, tickless = format_cpulist(isolation.cpus), format_cpulist(isolation.nohz_full)
    return f"{isolated or 'none'} (tickless: {tickless or 'none'})"


def _housekeeping(isolation: Isolation) -> str:
    return NOT_KNOWN if isolation.housekeeping is None else format_cpulist(isolation.housekeeping) or "none"


def _frequency_limits(frequency: Frequency) -> str:
    return _words(
        dict.fromkeys(
            f"{policy.min_hz / 1e9:g} to {policy.max_hz / 1e9:g} GHz"
            for policy in frequency.policies
            if policy.min_hz is not None and policy.max_hz is not None
        )
    )


def _idle_state(state: IdleState) -> str:
    off = f", off on CPUs {format_cpulist(state.disabled_cpus)}" if state.disabled_cpus else ""
    return f"{state.name}{off}"


def _huge_pages(memory: Memory) -> str:
    return _words(
        f"{pool.total - (pool.surplus or 0)} of {_size(pool.size_bytes)}"
        for pool in memory.hugepages
        if pool.total is not None
    )


def _transparent(pages: TransparentHugePages) -> str:
    return f"{_known(pages.words)}, defragmented {_known(pages.defrag)}"


def _vulnerabilities(mitigations: Mapping[str, str]) -> str:
    affected = (f"{name}: {state}" for name, state in sorted(mitigations.items()) if state != "Not affected")
    return "; ".join(affected) or ("none" if mitigations else NOT_KNOWN)


def _tuned(context: Context) -> str:
    return "none" if context.tuned is None else context.tuned.active


def _command_line(cmdline: CommandLine) -> str:
    words = (
        parameter.name if parameter.value is None else f"{parameter.name}={parameter.value}"
        for parameter in cmdline.parameters
        if parameter.name not in BOOTED_FROM
    )
    return " ".join((*words, *(("--", *cmdline.init_arguments) if cmdline.init_arguments else ())))


def _rounded(size_bytes: int) -> str:
    """Return the memory of a node, rounded: the kernel's own share differs from version to version."""
    gib = size_bytes / GIB
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"


def _size(size_bytes: int) -> str:
    for unit, size in (("GiB", GIB), ("MiB", 1 << 20)):
        if size_bytes % size == 0:
            return f"{size_bytes // size} {unit}"
    return f"{size_bytes >> 10} KiB"


def _captured(context: Context, fact: Callable[[Context], str]) -> str:
    """Return *fact* of a machine; of a capture made before it was captured, that it is unknown."""
    return NOT_KNOWN if context.devices is None else fact(context)


def _weights(context: Context) -> str:
    weights = {} if context.interleaving is None else context.interleaving.weights
    return ", ".join(f"{node}: {weight}" for node, weight in sorted(weights.items())) or "none"


def _devices(context: Context, kind: str) -> str:
    """Return the devices of *kind* in groups of equal ones, without what changes from hour to hour: affinity, state.

    Nor with the speed of an accelerator's link, which power management lowers.
    """
    if context.devices is None:
        return NOT_KNOWN
    groups: dict[str, list[str]] = {}
    for device in context.devices:
        if device.kind == kind:
            link = device.link
            what = (
                *(device.model, device.id, device.driver, device.driver_version),
                None if device.firmware is None else f"firmware {device.firmware}",
                None if device.node is None else f"on node {device.node}",
                None if link is None else f"x{link.width}",
                None if link is None or kind == "accelerator" else f"at {_known(link.speed_gt_s)} GT/s",
                f"{device.virtual_functions} virtual functions" if device.virtual_functions else None,
            )
            groups.setdefault(" ".join(filter(None, what)), []).append(device.address)
    return "; ".join(f"{len(found)} x {what} at {', '.join(found)}" for what, found in groups.items()) or "none"


def _cxl(context: Context) -> str:
    cxl = context.cxl
    if cxl is None or not (cxl.devices or cxl.regions or cxl.nodes):
        return "none"
    sizes = Counter((device.volatile_bytes or 0) + (device.persistent_bytes or 0) for device in cxl.devices)
    words = [f"{number} x {_size(size_bytes)}" for size_bytes, number in sorted(sizes.items())]
    words += [
        f"{region.name} of {_known(region.ways)} devices"
        f"{f', {_size(region.cache_bytes)} of it a cache' if region.cache_bytes else ''}"
        for region in cxl.regions
    ]
    words += [f"node {node}" for node in cxl.nodes]
    return ", ".join(words)


def _allocation(context: Context) -> str:
    from calibration.context.resctrl import allocation_text, unchecked_text  # noqa: PLC0415 - as above

    if context.resctrl is None:
        return "none"
    texts = [
        f"{group.name or 'default'} on CPUs {format_cpulist(group.cpus)}: {allocation_text(group)}"
        for group in context.resctrl.groups
        if group.narrowed
    ]
    return "; ".join([*texts, *filter(None, [unchecked_text(context.resctrl)])]) or "none"


def _dimms(dimms: Iterable[Dimm]) -> Iterator[str]:
    """Yield groups of equal memory slots: how many, what, and where."""
    slots: dict[str, list[str]] = {}
    for dimm in dimms:
        slots.setdefault(_dimm(dimm), []).append(_words((dimm.bank, dimm.locator), between=" "))
    for what, names in slots.items():
        yield f"{len(names)} x {what} in {', '.join(names)}"


def _dimm(dimm: Dimm) -> str:
    if dimm.size_bytes == 0:
        return "empty"
    size = "size not known" if dimm.size_bytes is None else _size(dimm.size_bytes)
    speed = "speed not known" if dimm.configured_mt_s is None else f"at {dimm.configured_mt_s} MT/s"
    ranks = "ranks not known" if dimm.ranks is None else plural(dimm.ranks, "rank")
    return f"{_words((size, dimm.type), between=' ')} {speed}, {ranks}"
