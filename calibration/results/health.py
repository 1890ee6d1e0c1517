# SPDX-License-Identifier: Apache-2.0
"""What a SUT counted while it was measured: errors, throttling, NUMA balancing, temperatures and energy, and flags."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, ValidationError

from calibration.base.cpulists import format_cpulist
from calibration.base.model import Model
from calibration.base.text import visible
from calibration.base.units import plural
from calibration.base.validity import Flag, flag

CounterKind = Literal[
    "memory_corrected",
    "memory_uncorrected",
    "link_corrected",
    "link_nonfatal",
    "link_fatal",
    "core_throttled",
    "package_throttled",
    "numa_hint_faults",
    "numa_pages_migrated",
    "isolated_interrupts",
    "bmc_events",
]

THROTTLE_KINDS: Final[tuple[CounterKind, ...]] = ("core_throttled", "package_throttled")

MAX_NAMED: Final = 6
"""Devices named in the reason of a flag; the rest is counted."""

MAX_ENTRIES: Final = 8192
"""Most entries of one kind: two counters for each of the most CPUs a kernel has."""

MAX_NAME: Final = 200


class CounterChange(Model):
    """A counter that changed between two readings; ``count`` is None if it fell, because it was reset."""

    name: str
    before: int
    after: int

    @property
    def count(self) -> int | None:
        """What was counted in between."""
        return self.after - self.before if self.after >= self.before else None

    @property
    def owner(self) -> str:
        """The controller of a module; anything else itself."""
        return self.name.partition(" ")[0]


class Counted(Model):
    """The counters of one kind: ``read`` were read before and after; ``lost`` disappeared in between.

    A memory controller and its modules count separately, as ``mc0`` and ``mc0 dimm1 (label)``: the controller's count
    includes those of its modules. Throttling is counted for each CPU, and named by its number; NUMA balancing
    (``numa_hint_faults``, ``numa_pages_migrated``) for the machine; ``isolated_interrupts`` are those of devices on
    isolated CPUs, by the interrupt's number; ``bmc_events`` those new in the BMC's log, by what they say.
    """

    kind: CounterKind
    read: int
    lost: tuple[str, ...]
    changed: tuple[CounterChange, ...]

    @property
    def unknown(self) -> bool:
        """Whether something may have been counted that nobody saw: a counter was reset or disappeared."""
        return bool(self.lost) or any(change.count is None for change in self.changed)

    @property
    def risen(self) -> tuple[CounterChange, ...]:
        """Counters that rose, without modules whose controller did: they add up to what was counted."""
        rose = {change.name: change for change in self.changed if change.count}
        return tuple(change for name, change in rose.items() if change.owner == name or change.owner not in rose)


class Temperature(Model):
    """A sensor before and after the run, in °C; ``None`` if it could not be read then."""

    sensor: str
    before_c: float | None
    after_c: float | None


class Energy(Model):
    """The energy that a domain took during the run, in J, and its mean power in W; ``reason`` if they are unknown."""

    domain: str
    joules: float | None
    mean_w: float | None
    reason: str | None


class Health(Model):
    """What the SUT counted between the start of the first step and the end of the last, ``elapsed_s`` later.

    ``unreadable`` has files that exist and could not be read, with the reason.
    """

    elapsed_s: float
    counters: tuple[Counted, ...]
    temperatures: tuple[Temperature, ...]
    energy: tuple[Energy, ...]
    unreadable: dict[str, str]

    def of(self, kind: CounterKind) -> Counted | None:
        """Return the counters of *kind*."""
        return next((counted for counted in self.counters if counted.kind == kind), None)


class _Raw(BaseModel):
    model_config = ConfigDict(strict=True)


class _RawCounted(_Raw):
    read: NonNegativeInt
    lost: list[str]
    changed: dict[str, list[Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]]]


class _RawEnergy(_Raw):
    joules: FiniteFloat | None
    reason: str | None


class _RawHealth(_Raw):
    elapsed_s: FiniteFloat
    counters: dict[CounterKind, _RawCounted]
    temperatures_c: dict[str, list[FiniteFloat | None]]
    energy: dict[str, _RawEnergy]
    unreadable: dict[str, str]


def read_health(record: Mapping[str, Any]) -> Health | None:
    """Return what a runner's *record* says; ``None`` if it is not such a record, or has more than a machine has."""
    try:
        told = _RawHealth.model_validate(dict(record))
        parts: tuple[Any, ...] = (told.temperatures_c, told.energy, told.unreadable)
        parts += tuple(part for counted in told.counters.values() for part in (counted.lost, counted.changed))
        if told.elapsed_s < 0 or any(len(part) > MAX_ENTRIES for part in parts):
            return None
        return Health(
            elapsed_s=told.elapsed_s,
            counters=tuple(_counted(kind, counted) for kind, counted in told.counters.items()),
            temperatures=tuple(
                Temperature(sensor=_name(sensor), before_c=before, after_c=after)
                for sensor, (before, after) in told.temperatures_c.items()
            ),
            energy=tuple(_energy(domain, taken, told.elapsed_s) for domain, taken in told.energy.items()),
            unreadable={_name(path): _name(reason) for path, reason in told.unreadable.items()},
        )
    except (ValidationError, ValueError):
        return None


def _counted(kind: CounterKind, told: _RawCounted) -> Counted:
    """Return the counters of *kind*. Raises ``ValueError`` if throttling is of anything but CPUs."""
    if kind in THROTTLE_KINDS and not all(re.fullmatch("[0-9]{1,4}", name, re.ASCII) for name in told.changed):
        raise ValueError(f"{kind}: not a CPU among {list(told.changed)[:MAX_NAMED]}")
    return Counted(
        kind=kind,
        read=told.read,
        lost=tuple(map(_name, told.lost)),
        changed=tuple(
            CounterChange(name=_name(name), before=before, after=after)
            for name, (before, after) in told.changed.items()
        ),
    )


def _energy(domain: str, told: _RawEnergy, elapsed_s: float) -> Energy:
    joules = told.joules
    return Energy(
        domain=_name(domain),
        joules=joules,
        mean_w=joules / elapsed_s if joules is not None and elapsed_s > 0 else None,
        reason=None if joules is not None else _name(told.reason or "unknown"),
    )


def _name(text: str) -> str:
    return visible(text[:MAX_NAME])


RULES: Final[dict[CounterKind, str]] = {
    "memory_corrected": "ERRORS_CORRECTED",
    "link_corrected": "ERRORS_CORRECTED",
    "memory_uncorrected": "ERRORS_UNCORRECTED",
    "link_nonfatal": "ERRORS_UNCORRECTED",
    "link_fatal": "ERRORS_UNCORRECTED",
    "core_throttled": "THROTTLED",
    "package_throttled": "THROTTLED",
    "bmc_events": "BMC_EVENTS",
}
"""Which counters raise which flag."""

WORDS: Final[dict[CounterKind, str]] = {
    "memory_corrected": "corrected memory error",
    "memory_uncorrected": "uncorrected memory error",
    "link_corrected": "corrected PCIe error",
    "link_nonfatal": "uncorrected PCIe error",
    "link_fatal": "fatal PCIe error",
    "bmc_events": "BMC event",
}


def health_flags(healths: Iterable[Health]) -> Iterator[Flag]:
    """Yield a flag for each kind of error or throttling that was counted during a run."""
    for health in healths:
        for kind, code in RULES.items():
            counted = health.of(kind)
            if counted is not None and counted.risen:
                yield flag(code, _reason(counted))


def _reason(counted: Counted) -> str:
    """Return what was counted, as a sentence."""
    risen = counted.risen
    if counted.kind in THROTTLE_KINDS:
        cpus = format_cpulist(int(change.name) for change in risen)
        most = max(change.count or 0 for change in risen)
        what = "the core" if counted.kind == "core_throttled" else "the package"
        return f"{what} of CPUs {cpus} throttled during the run, up to {plural(most, 'time')}"
    # The counts of a controller's modules say where.
    owners = {change.owner for change in counted.changed if change.count and change.owner != change.name}
    parts = [change for change in counted.changed if change.count and change.name not in owners]
    total = sum(change.count or 0 for change in risen)
    return f"{plural(total, WORDS[counted.kind])} during the run: {_named(parts)}"


def _named(changes: Sequence[CounterChange]) -> str:
    named = [f"{change.count} at {change.name}" for change in changes[:MAX_NAMED]]
    more = len(changes) - len(named)
    return ", ".join((*named, *((f"and {more} more",) if more else ())))
