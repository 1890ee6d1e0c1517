# SPDX-License-Identifier: Apache-2.0
"""Devices, allocations, profile and health of a SUT, for the page and the facts: equal devices together."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from calibration import units
from calibration.context.devices import link_text
from calibration.context.hardware import Device, Tuned
from calibration.context.hmat import memory_side_caches_text, rated_accesses_text
from calibration.context.model import Context
from calibration.context.resctrl import allocation_text, unchecked_text
from calibration.report.environment import Fact
from calibration.results.health import THROTTLE_KINDS, WORDS, CounterKind, Health, Temperature

MAX_NAMES: Final = 4
"""Devices named in a row; the rest is counted."""

MAX_LISTED: Final = 4
"""Settings named that differ from a profile."""


class DeviceRow(NamedTuple):
    """Equal devices, as words."""

    devices: str
    model: str
    driver: str
    firmware: str
    node: str
    link: str
    groups: str
    cpus: str


def rows(context: Context) -> list[DeviceRow]:
    """Return a row for each group of devices that are equal but for their addresses."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in context.devices or ():
        key = (
            *(device.kind, device.id, device.driver, device.driver_version, device.model, device.firmware, device.node),
            *(link_text(device), bool(device.virtual_functions), bool(device.isolated_cpus)),
        )
        groups.setdefault(key, []).append(device)
    return [_row(found) for found in groups.values()]


def _row(found: Sequence[Device]) -> DeviceRow:
    first = found[0]
    functions = sum(device.virtual_functions or 0 for device in found)
    names = ", ".join(
        f"{device.name} ({device.address})" if device.interfaces else device.address for device in found[:MAX_NAMES]
    )
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    virtual = f", with {units.plural(functions, 'virtual function')}" if functions else ""
    groups = sorted({device.iommu_group for device in found if device.iommu_group is not None})
    cpus = sorted({cpu for device in found for cpu in device.interrupt_cpus or ()})
    isolated = sorted({cpu for device in found for cpu in device.isolated_cpus})
    where = units.cpus(cpus) if cpus else "unknown" if any(device.interrupts for device in found) else "none"
    return DeviceRow(
        devices=f"{names}{more}{virtual}",
        model=" ".join(filter(None, (first.model, first.id))) or "unknown",
        driver=" ".join(filter(None, (first.driver, first.driver_version))) or "none",
        firmware=first.firmware or f"unknown: {first.firmware_reason}",
        node="not given" if first.node is None else str(first.node),
        link=link_text(first) or "none",
        groups=units.cpus(groups) if groups else "none",
        cpus=f"{where}{f', isolated: {units.cpus(isolated)}' if isolated else ''}",
    )


def facts(context: Context) -> Iterator[Fact]:
    """Yield what a machine has of special memory, weights, allocations and a profile; nothing if it has none."""
    for shared, parts in context.emulated_nodes.items():
        cpus = f"each lists CPUs {units.cpus(shared)}, which are measured as those of node {parts[0]}"
        yield Fact("Emulated nodes", f"{units.cpus(parts)} are parts of one node: {cpus}")
    if side_caches := memory_side_caches_text(context):
        yield Fact("Memory-side caches", side_caches)
    if rated := rated_accesses_text(context):
        yield Fact("Rated by the firmware (HMAT)", rated)
    if context.cxl is not None and (context.cxl.devices or context.cxl.nodes):
        total = sum((device.volatile_bytes or 0) + (device.persistent_bytes or 0) for device in context.cxl.devices)
        nodes = f"nodes {units.cpus(context.cxl.nodes)}" if context.cxl.nodes else "no node"
        caches = sum(region.cache_bytes or 0 for region in context.cxl.regions)
        cached = f", behind an extended linear cache of {units.size(caches)}" if caches else ""
        devices = units.plural(len(context.cxl.devices), "device")
        yield Fact("CXL memory", f"{devices}, {units.size(total)}, {nodes}{cached}")
    weights = context.interleaving
    if weights is not None and len(weights.weights) > 1:
        listed = ", ".join(f"node {node}: {weight}" for node, weight in sorted(weights.weights.items()))
        yield Fact("Interleave weights", f"{listed}{' (automatic)' if weights.automatic else ''}")
    if context.resctrl is not None:
        texts = [
            f"{group.name or 'default group'}, CPUs {units.cpus(group.cpus)}: {allocation_text(group)}"
            for group in context.resctrl.groups
            if group.narrowed
        ]
        texts += filter(None, [unchecked_text(context.resctrl)])
        yield Fact(
            "Cache and bandwidth allocation (resctrl)", "; ".join(texts) or "none: all groups may use everything"
        )
    if context.tuned is not None:
        yield Fact("tuned profile", tuned_text(context.tuned))


def tuned_text(tuned: Tuned) -> str:
    """Return the active profile, and what of it the machine has."""
    names = ", ".join(f"{item.name} is {item.found}, not {item.wanted}" for item in tuned.differing[:MAX_LISTED])
    more = len(tuned.differing) - MAX_LISTED
    differing = f"; {names}{f' and {more} more' if more > 0 else ''}" if names else ""
    unchecked = f", {len(tuned.unchecked)} not checked" if tuned.unchecked else ""
    lost = [name for name in tuned.absent if "${" not in name]
    absent = f"; no file of {', '.join(lost)}" if lost else ""
    if unknown := [name for name in tuned.absent if name not in lost]:
        absent += f"; not evaluated: include={', '.join(unknown)}"
    of = tuned.met + len(tuned.differing)
    return f"{tuned.active}: {tuned.met} of {of} settings met{unchecked}{differing}{absent}"


COUNTED: Final[dict[str, tuple[CounterKind, ...]]] = {
    "memory errors": ("memory_corrected", "memory_uncorrected"),
    "PCIe errors": ("link_corrected", "link_nonfatal", "link_fatal"),
    "throttling": THROTTLE_KINDS,
}


def health_facts(healths: Sequence[Health]) -> Iterator[Fact]:
    """Yield errors, throttling, temperature and energy during the run; unknown if nothing was recorded."""
    if not healths:
        yield Fact("Errors and throttling during the run", None)
        return
    yield Fact("Errors and throttling during the run", "; ".join(_counted(healths)))
    warmest = [item for health in healths for item in _warmest(health)]
    if warmest:
        text = ", ".join(
            f"{'unknown' if item.before_c is None else f'{item.before_c:.0f}'} to "
            f"{'unknown' if item.after_c is None else f'{item.after_c:.0f}'} °C ({item.sensor})"
            for item in warmest[:MAX_LISTED]
        )
        yield Fact("Warmest sensor before and after the run", text)
    energy = [item for health in healths for item in health.energy]
    if energy:
        text = ", ".join(
            f"{item.domain} {item.joules:.0f} J ({item.mean_w:.0f} W)"
            if item.joules is not None and item.mean_w is not None
            else f"{item.domain} unknown: {item.reason}"
            for item in energy
        )
        yield Fact("Energy during the run (RAPL)", text)


def _counted(healths: Sequence[Health]) -> Iterator[str]:
    """Yield for each kind of event how many there were, or why that is unknown."""
    for what, kinds in COUNTED.items():
        found = [counted for health in healths for kind in kinds if (counted := health.of(kind)) is not None]
        events = [(counted.kind, change) for counted in found for change in counted.risen]
        if events and kinds == THROTTLE_KINDS:
            yield f"{what} of {units.plural(len({change.name for _, change in events}), 'CPU')}"
        elif events:
            totals = {kind: sum(change.count or 0 for of, change in events if of == kind) for kind, _ in events}
            yield ", ".join(units.plural(total, WORDS[kind]) for kind, total in totals.items())
        elif any(counted.unknown for counted in found):
            yield f"{what}: unknown, a counter was reset or disappeared"
        elif any(counted.read for counted in found):
            yield f"no {what}"
        else:
            yield f"{what} are not counted by this machine" if what != "throttling" else f"{what} is not counted"


def _warmest(health: Health) -> Iterator[Temperature]:
    known = [item for item in health.temperatures if item.after_c is not None or item.before_c is not None]
    if known:
        yield max(known, key=lambda item: max(item.before_c or -300.0, item.after_c or -300.0))
