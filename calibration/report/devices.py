# SPDX-License-Identifier: Apache-2.0
"""Devices and health of a SUT, for the page: equal devices together."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from calibration.base import units
from calibration.base.text import some_of
from calibration.context.devices import link_text
from calibration.context.hardware import Device
from calibration.context.model import Context
from calibration.report.environment import Fact
from calibration.results.health import THROTTLE_KINDS, WORDS, CounterKind, Health, Temperature

MAX_NAMES: Final = 4
"""Devices named in a row; the rest is counted."""

MAX_LISTED: Final = 4
"""Sensors named."""


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
    names = [f"{device.name} ({device.address})" if device.interfaces else device.address for device in found]
    virtual = f", with {units.plural(functions, 'virtual function')}" if functions else ""
    groups = sorted({device.iommu_group for device in found if device.iommu_group is not None})
    cpus = sorted({cpu for device in found for cpu in device.interrupt_cpus or ()})
    isolated = sorted({cpu for device in found for cpu in device.isolated_cpus})
    where = units.cpus(cpus) if cpus else "unknown" if any(device.interrupts for device in found) else "none"
    return DeviceRow(
        devices=f"{some_of(names, MAX_NAMES)}{virtual}",
        model=" ".join(filter(None, (first.model, first.id))) or "unknown",
        driver=" ".join(filter(None, (first.driver, first.driver_version))) or "none",
        firmware=first.firmware or f"unknown: {first.firmware_reason}",
        node="not given" if first.node is None else str(first.node),
        link=link_text(first) or "none",
        groups=units.cpus(groups) if groups else "none",
        cpus=f"{where}{f', isolated: {units.cpus(isolated)}' if isolated else ''}",
    )


COUNTED: Final[dict[str, tuple[CounterKind, ...]]] = {
    "memory errors": ("memory_corrected", "memory_uncorrected"),
    "PCIe errors": ("link_corrected", "link_nonfatal", "link_fatal"),
    "throttling": THROTTLE_KINDS,
    "BMC events": ("bmc_events",),
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
        elif what == "BMC events":
            asked = (
                why for health in healths for path, why in health.unreadable.items() if path.startswith("ipmitool")
            )
            yield from (f"BMC events unknown: {why}" for why in [next(asked, None)] if why)
        else:
            yield f"{what} are not counted by this machine" if what != "throttling" else f"{what} is not counted"


def _warmest(health: Health) -> Iterator[Temperature]:
    known = [item for item in health.temperatures if item.after_c is not None or item.before_c is not None]
    if known:
        yield max(known, key=lambda item: max(item.before_c or -300.0, item.after_c or -300.0))
