# SPDX-License-Identifier: Apache-2.0
"""Bytes counted by hardware against the bytes that sutprobe says it moved.

Memory controllers count every line that anybody reads or writes, so the background is measured first and subtracted.
Reads include the lines that a regular store reads before it changes them (write allocate). Method: C. Helm and K.
Taura, *Measurement of Main Memory Bandwidth and Memory Access Latency in Intel Processors*.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from calibration.base.model import Model
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.sutprobe.bandwidth import Accounting
from calibration.sutprobe.counters import Counted, Counters
from calibration.sutprobe.volume import VolumeKnown

DIFFERS: Final = 0.05
"""Relative difference between bytes counted and bytes moved from which a measurement is flagged."""

BACKGROUND: Final = 0.01
"""Background, as a share of the bytes moved, from which a measurement is flagged."""

LINE_BYTES: Final = 64
"""Bytes per count unless the counter says otherwise."""

Direction = Literal["reads", "writes", "reads_and_writes"]

DIRECTIONS: Final[Mapping[str, Direction]] = {
    "dram.reads": "reads",
    "dram.writes": "writes",
    "dram.reads_and_writes": "reads_and_writes",
}
"""Direction by the role of a memory controller's counter."""

WORDS: Final[Mapping[Direction, str]] = {
    "reads": "read",
    "writes": "written",
    "reads_and_writes": "read or written",
}


class Moved(Model):
    """Bytes that sutprobe moves from and to memory, per step or in total.

    ``allocate_bytes`` is the part of ``read_bytes`` read only because a regular store changes the line.
    """

    read_bytes: float
    allocate_bytes: float
    written_bytes: float

    def of(self, direction: Direction) -> float:
        """Return the bytes of one direction."""
        return {
            "reads": self.read_bytes,
            "writes": self.written_bytes,
            "reads_and_writes": self.read_bytes + self.written_bytes,
        }[direction]


def moved_per_step(accounting: Accounting) -> Moved:
    """Return what one step of a mix with *accounting* moves."""
    allocated = accounting.write_allocate_reads_per_step
    lines = accounting.reads_per_step + allocated + accounting.writes_per_step
    line_bytes = accounting.model_dram_bytes_per_step / lines
    return Moved(
        read_bytes=(accounting.reads_per_step + allocated) * line_bytes,
        allocate_bytes=allocated * line_bytes,
        written_bytes=accounting.writes_per_step * line_bytes,
    )


def moved_altogether(known: VolumeKnown) -> Moved:
    """Return what one repeat of a volume run moves: its initialisation and all its passes."""
    return Moved(
        read_bytes=known.read_bytes,
        allocate_bytes=known.init.allocate_read_bytes + known.triad.allocate_read_bytes,
        written_bytes=known.written_bytes,
    )


def triad_bytes(array_bytes: int, passes: int, *, allocates: bool) -> Moved:
    """Return what the initialisation and *passes* of STREAM's triad move, with three arrays of *array_bytes*.

    The initialisation writes all three; a pass reads two and writes one. If the processor *allocates*, each array
    that is written by regular stores is read as well.
    """
    written = (3 + passes) * array_bytes
    allocated = written if allocates else 0
    return Moved(read_bytes=2 * passes * array_bytes + allocated, allocate_bytes=allocated, written_bytes=written)


@dataclass(frozen=True)
class CounterReading:
    """The counters of one placement or repeat, and what was *moved* meanwhile: per step or in total.

    ``shares`` is, by node, the part moved from and to that node's memory. ``probe_bytes_per_s`` is read by the latency
    probes.
    """

    counters: Counters
    moved: Moved
    per_step: bool
    shares: Mapping[int, float]
    probe_bytes_per_s: float = 0.0

    def of(self, event: Counted, direction: Direction) -> float:
        """Return the bytes moved in *direction* between the two readings of *event*."""
        times = (event.steps or 0.0) if self.per_step else 1.0
        probes = 0.0 if direction == "writes" else self.probe_bytes_per_s * event.wall_s
        return self.moved.of(direction) * times + probes

    def events(self, role: str) -> list[Counted]:
        """Return the counts of *role*."""
        return [event for event in self.counters.events if event.name == role]


class SocketBytes(Model):
    """Bytes that the memory controllers beside ``cpu`` counted, background subtracted; they serve ``nodes``.

    ``moved_bytes`` is sutprobe's part on these nodes; ``ratio`` is ``None`` if that is zero.
    """

    cpu: int
    nodes: tuple[int, ...]
    moved_bytes: float
    counted_bytes: float
    ratio: float | None


class DirectionBytes(Model):
    """Bytes in one direction: moved by sutprobe, counted by all memory controllers, and their ratio.

    ``allocate_bytes`` is the part of ``moved_bytes`` that is read only because it will be written. Counts exclude the
    background, which is given for the same time, ``None`` if it was not measured. ``ratio`` has one sample per
    placement or repeat, and is ``None`` if nothing was moved in this direction.
    """

    direction: Direction
    moved_bytes: float
    allocate_bytes: float
    counted_bytes: float
    background_bytes: float | None
    ratio: Estimate | None
    sockets: tuple[SocketBytes, ...]


class OtherBytes(Model):
    """Bytes counted elsewhere than at the memory controllers; ``ratio`` is to the bytes read.

    ``caution`` says what such a counter is known to omit.
    """

    role: str
    counted_bytes: float
    background_bytes: float | None
    ratio: float | None
    caution: str | None


class NotCounted(Model):
    """A requested role without a count, and why."""

    role: str
    reason: str


class CountedBytes(Model):
    """What the counters say beside one bandwidth, over all its placements or repeats, ``wall_s`` in total.

    ``running_fraction`` is the least share of the time that a counter ran, ``None`` without counters.
    """

    directions: tuple[DirectionBytes, ...]
    others: tuple[OtherBytes, ...]
    wall_s: float
    running_fraction: float | None
    not_counted: tuple[NotCounted, ...]

    def of(self, direction: Direction) -> DirectionBytes | None:
        """Return the count in *direction*, ``None`` if there is none."""
        return next((volume for volume in self.directions if volume.direction == direction), None)


@dataclass(frozen=True)
class Unit:
    """Bytes per count of a role, and what the counter omits."""

    scale_bytes: float
    caution: str | None = None


def counted_bytes(
    readings: Sequence[CounterReading], units: Mapping[str, Unit], nodes_of: Callable[[int], tuple[int, ...]]
) -> CountedBytes | None:
    """Return what the counters of *readings* say; ``None`` without counters.

    *units* are the requested roles that count bytes; *nodes_of* returns the nodes served by the controllers of a CPU. A
    role that did not count everywhere all the time has a reason in place of a count.
    """
    if not readings:
        return None
    found: list[DirectionBytes] = []
    others: list[OtherBytes] = []
    gone: list[NotCounted] = []
    for role, unit in units.items():
        reasons = (reason_not_counted(reading.counters, role) for reading in readings)
        if (reason := next(filter(None, reasons), None) or _uncovered(readings, role, nodes_of)) is not None:
            gone.append(NotCounted(role=role, reason=reason))
        elif (direction := DIRECTIONS.get(role)) is not None:
            found.append(_direction(readings, role, direction, unit, nodes_of))
        else:
            others.append(_other(readings, role, unit))
    events = [
        event for reading in readings for role in units for event in reading.events(role) if event.scaled is not None
    ]
    return CountedBytes(
        directions=tuple(found),
        others=tuple(others),
        wall_s=sum(max((event.wall_s for event in reading.counters.events), default=0.0) for reading in readings),
        running_fraction=min((event.running_fraction for event in events), default=None),
        not_counted=tuple(gone),
    )


def reason_not_counted(counters: Counters, role: str) -> str | None:
    """Return why *counters* have no count of *role*; ``None`` if all its counters ran."""
    refused = [event for event in counters.refused if event.name == role]
    if refused:
        where = "" if refused[0].cpu is None else f" on CPU {refused[0].cpu}"
        return f"{refused[0].pmu}{where}: {refused[0].reason}"
    events = [event for event in counters.events if event.name == role]
    if not events:
        return "sutprobe reported no count of it"
    if any(event.scaled is None for event in events):
        return "a counter never ran: no hardware counter was free"
    return None


def _uncovered(readings: Sequence[CounterReading], role: str, nodes_of: Callable[[int], tuple[int, ...]]) -> str | None:
    """Return why the counters of *role* missed part of what was moved; ``None`` if they did not or need not."""
    if role not in DIRECTIONS:
        return None
    for reading in readings:
        seen = {node for event in reading.events(role) if event.cpu is not None for node in nodes_of(event.cpu)}
        if unseen := [node for node, share in reading.shares.items() if share > 0 and node not in seen]:
            return f"no counter of it serves the memory of node {unseen[0]}"
    return None


def _background(event: Counted) -> float | None:
    """Return the background between the two readings of *event*."""
    if event.background_count is None or not event.background_wall_s:
        return None
    return event.background_count / event.background_wall_s * event.wall_s


def net_count(event: Counted) -> float:
    """Return the count of *event*, which ran, without the background if that was measured."""
    return (event.scaled or 0.0) - (_background(event) or 0.0)


def _direction(
    readings: Sequence[CounterReading],
    role: str,
    direction: Direction,
    unit: Unit,
    nodes_of: Callable[[int], tuple[int, ...]],
) -> DirectionBytes:
    ratios: list[float] = []
    moved: dict[int, float] = {}
    counted: dict[int, float] = {}
    backgrounds: list[float | None] = []
    for reading in readings:
        of_reading = [0.0, 0.0]
        for event in reading.events(role):
            cpu = event.cpu or 0
            share = sum(reading.shares.get(node, 0.0) for node in nodes_of(cpu))
            background = _background(event)
            ours = reading.of(event, direction) * share
            theirs = net_count(event) * unit.scale_bytes
            moved[cpu] = moved.get(cpu, 0.0) + ours
            counted[cpu] = counted.get(cpu, 0.0) + theirs
            backgrounds.append(None if background is None else background * unit.scale_bytes)
            of_reading = [of_reading[0] + ours, of_reading[1] + theirs]
        if of_reading[0] > 0:
            ratios.append(of_reading[1] / of_reading[0])
    one = readings[0].moved
    total = sum(moved.values())
    allocated = one.allocate_bytes / one.of(direction) if direction != "writes" and one.of(direction) else 0.0
    return DirectionBytes(
        direction=direction,
        moved_bytes=total,
        allocate_bytes=total * allocated,
        counted_bytes=sum(counted.values()),
        background_bytes=_sum(backgrounds),
        ratio=estimate([[ratio] for ratio in ratios], "fraction") if len(ratios) == len(readings) else None,
        sockets=tuple(
            SocketBytes(
                cpu=cpu,
                nodes=nodes_of(cpu),
                moved_bytes=moved[cpu],
                counted_bytes=counted[cpu],
                ratio=counted[cpu] / moved[cpu] if moved[cpu] > 0 else None,
            )
            for cpu in sorted(counted)
        ),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _other(readings: Sequence[CounterReading], role: str, unit: Unit) -> OtherBytes:
    events = [(reading, event) for reading in readings for event in reading.events(role)]
    backgrounds = [_background(count) for _, count in events]
    counted = sum(net_count(count) for _, count in events)
    background = _sum(backgrounds)
    moved = sum(reading.of(reading.events(role)[0], "reads") for reading in readings)
    return OtherBytes(
        role=role,
        counted_bytes=counted * unit.scale_bytes,
        background_bytes=None if background is None else background * unit.scale_bytes,
        ratio=counted * unit.scale_bytes / moved if moved > 0 else None,
        caution=unit.caution,
    )


def counted_flags(measurements: Sequence[tuple[str, CountedBytes]]) -> Iterator[Flag]:
    """Yield the flags of the counts beside all named *measurements*, with the worst in the sentence."""
    differing: list[tuple[float, str, str]] = []
    disturbed: list[tuple[float, str, str]] = []
    for name, counted in measurements:
        moved = max((direction.moved_bytes for direction in counted.directions), default=0.0)
        for direction in counted.directions:
            against = direction.moved_bytes or moved
            if against <= 0:
                continue
            off = direction.counted_bytes / against - 1 if direction.moved_bytes else direction.counted_bytes / against
            if abs(off) > DIFFERS:
                differing.append((off, name, WORDS[direction.direction]))
            if direction.background_bytes is not None and direction.background_bytes / against > BACKGROUND:
                disturbed.append((direction.background_bytes / against, name, WORDS[direction.direction]))
    if differing:
        off, name, how = max(differing, key=lambda difference: abs(difference[0]))
        concerned = len({role for _, role, _ in differing})
        yield flag(
            "COUNTED_DIFFERS",
            f"the memory controllers counted more than {DIFFERS * 100:.0f} % more or less than the kernel moved in "
            f"{concerned} of {len(measurements)} measurements, most in {name}, bytes {how}: {off * 100:+.1f} %",
        )
    if disturbed:
        share, name, how = max(disturbed)
        yield flag(
            "BACKGROUND_TRAFFIC",
            f"before the measurement others moved more than {BACKGROUND * 100:.0f} % of what it moved in the same "
            f"time, most in {name}, bytes {how}: {share * 100:.1f} %",
        )
    fractions = [count.running_fraction for _, count in measurements if count.running_fraction is not None]
    yield from multiplexed_flags(fractions)


def multiplexed_flags(fractions: Sequence[float]) -> Iterator[Flag]:
    """Yield the flag for counters that ran only part of the time; *fractions* are their running shares."""
    least = min(fractions, default=1.0)
    if least < 1:
        yield flag(
            "COUNTERS_MULTIPLEXED",
            f"a counter ran for only {least * 100:.0f} % of the time, and its count was scaled up from that",
        )
