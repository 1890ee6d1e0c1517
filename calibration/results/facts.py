# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine that affect its metrics, each a name and a text: what two nights, or two SUTs, differ in.

Without volatile facts (free memory, load, current clock, boot time), and without those in which equal machines always
differ (names, boot device).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from calibration.results.history import NOT_KNOWN
from calibration.units import plural

if TYPE_CHECKING:  # comparing facts needs no models, whose import takes half a second
    from calibration.context.model import CommandLine, Context, Dimm
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


def facts(context: Context, kernels: Kernels | None) -> dict[str, str]:
    """Return the facts of *context*, a captured machine, and of *kernels*, its sutprobes, in a fixed order.

    Every fact is present on every machine; an unknown one says so.
    """
    from calibration.context.confinement import limits  # noqa: PLC0415 - as below
    from calibration.cpulists import format_cpulist  # noqa: PLC0415 - with it comes all that reads a capture

    firmware, topology, isolation = context.firmware, context.topology, context.isolation
    confinement = context.confinement
    frequency, pages, capture = context.frequency, context.memory.transparent_hugepages, context.capture
    return {
        "kernel": _words(
            (capture.kernel_name, capture.kernel_release, capture.kernel_version, capture.machine), between=" "
        ),
        "kernel command line": NOT_KNOWN if context.cmdline is None else _command_line(context.cmdline),
        "processor": _words(
            (
                _words((model.vendor, model.name, model.family, model.model, model.stepping), between=" ")
                for model in context.processor.models
            ),
            between="; ",
        ),
        "microcode": _words(dict.fromkeys(model.microcode for model in context.processor.models)),
        "BIOS": _words((firmware.bios_vendor, firmware.bios_version, firmware.bios_date), between=" "),
        "CPUs": format_cpulist(context.online_cpus),
        "cores": f"{len(topology.cores)} with {_known(topology.threads_per_core)} threads each",
        "nodes": _words(
            (
                f"{node.id}: CPUs {format_cpulist(node.cpus)}{'' if node.memory_bytes else ', without memory'}"
                for node in context.nodes
            ),
            between="; ",
        ),
        "distances between nodes": NOT_KNOWN
        if context.distances is None
        else "; ".join(" ".join(map(str, row)) for row in context.distances),
        "memory": _words(
            (
                f"{node.id}: {NOT_KNOWN if node.memory_bytes is None else _rounded(node.memory_bytes)}"
                for node in context.nodes
            ),
            between="; ",
        ),
        "DIMMs": "; ".join(_dimms(firmware.dimms)) or NOT_KNOWN,
        "isolated CPUs": f"{format_cpulist(isolation.cpus) or 'none'} "
        f"(tickless: {format_cpulist(isolation.nohz_full) or 'none'})",
        "housekeeping CPUs": NOT_KNOWN
        if isolation.housekeeping is None
        else format_cpulist(isolation.housekeeping) or "none",
        "container": (confinement and confinement.container) or "none",
        "limits": ", ".join(limits(context)) or "none",
        "SMT": _known(topology.smt_control),
        "governor": _words(frequency.governors),
        "turbo": _known(frequency.turbo_text),
        "frequency driver": _words((*frequency.drivers, *filter(None, (frequency.pstate_status,)))),
        "frequency limits": _words(
            dict.fromkeys(
                f"{policy.min_hz / 1e9:g} to {policy.max_hz / 1e9:g} GHz"
                for policy in frequency.policies
                if policy.min_hz is not None and policy.max_hz is not None
            )
        ),
        "idle states": _words(
            f"{state.name}, off on CPUs {format_cpulist(state.disabled_cpus)}" if state.disabled_cpus else state.name
            for state in context.idle.states
        ),
        "huge pages": _words(
            f"{pool.total - (pool.surplus or 0)} of {_size(pool.size_bytes)}"
            for pool in context.memory.hugepages
            if pool.total is not None
        ),
        "transparent huge pages": f"{_known(pages.enabled)}, defragmented {_known(pages.defrag)}",
        "NUMA balancing": _known(context.memory.numa_balancing),
        "vulnerabilities": "; ".join(
            f"{name}: {state}" for name, state in sorted(context.mitigations.items()) if state != "Not affected"
        )
        or ("none" if context.mitigations else NOT_KNOWN),
        "network devices": _devices(context, "network"),
        "storage controllers": _devices(context, "storage"),
        "accelerators": _devices(context, "accelerator"),
        "CXL memory": _captured(context, _cxl),
        "interleave weights": _captured(context, _weights),
        "allocation": _captured(context, _allocation),
        "tuned profile": _captured(context, lambda found: "none" if found.tuned is None else found.tuned.active),
        "clock source": _known(context.clocksource.current),
        "kernel bytes": NOT_KNOWN if kernels is None else kernels.sha256[:KERNEL_BYTES_DIGITS],
    }


def other_facts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the facts in which *now* differs from *before*, as text, without those missing from one of them."""
    return [f"{name}: {before[name]} -> {now[name]}" for name in before if name in now and before[name] != now[name]]


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


def _command_line(cmdline: CommandLine) -> str:
    from calibration.context.cmdline import BOOTED_FROM  # noqa: PLC0415 - as above

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
    words += [f"{region.name} of {_known(region.ways)} devices" for region in cxl.regions]
    words += [f"node {node}" for node in cxl.nodes]
    return ", ".join(words)


def _allocation(context: Context) -> str:
    from calibration.context.resctrl import allocation_text, unchecked_text  # noqa: PLC0415 - as above
    from calibration.cpulists import format_cpulist  # noqa: PLC0415

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
