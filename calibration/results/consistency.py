# SPDX-License-Identifier: Apache-2.0
"""Consistency of a run: cross-checks of its metrics of record.

A rule is physics, not the habit of a processor: the maximum is not below the peak, a part is not faster than the whole,
a quantity measured twice is the same. A rule is broken only if the intervals of both metrics plus the rule's tolerance
exclude it. The checks are made once, when the run document is assembled; pages, ``calibration judge`` and the gates
show them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from calibration.formats.page_checks import BANDWIDTH_APART
from calibration.measurements.bandwidth_ladder import LEVELS, BandwidthLadderPoint, BandwidthLadderValues
from calibration.measurements.bandwidth_matrix import MIX, BandwidthMatrixValues
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.latency_ladder import LatencyLadderValues
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.max_bandwidth import MaxValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.measurements.traffic import Part, Setting, read_group
from calibration.model import Model
from calibration.statistics import MIN_COVERAGE

if TYPE_CHECKING:  # the model of a run contains these checks
    from calibration.results.model import Measurement
    from calibration.statistics import Estimate

RuleName = Literal["maximum", "part", "same_latency", "same_bandwidth", "own_memory", "load"]

STRIDE_BYTES: Final = 64
"""Distance between the nodes of a compared chase: one per line."""

PAGE_FLAGS: Final = frozenset({"HUGEPAGE_NONE", "HUGEPAGE_PARTIAL"})
"""Latencies in pages of different sizes are different quantities."""


LATENCY_APART: Final = 0.15
"""The same for latencies as ``BANDWIDTH_APART`` for bandwidths."""


class Rule(NamedTuple):
    """The relation of two metrics: the first at most the second, or both equal (``same``).

    ``tolerance`` is the allowed deviation beyond both intervals, relative to the other metric.
    """

    title: str
    law: str
    tolerance: float = BANDWIDTH_APART
    same: bool = False


RULES: Final[Mapping[RuleName, Rule]] = {
    "maximum": Rule(
        "Maximum not below the peak", "the maximum is the best of all settings, and the peak is one of them", 0.02
    ),
    "part": Rule("Part not above the whole", "all CPUs with all their memory move at least what some of them move"),
    "same_latency": Rule(
        "Repeated latency", "one CPU has one idle latency to the memory of one node", LATENCY_APART, same=True
    ),
    "same_bandwidth": Rule(
        "Repeated bandwidth", "the same CPUs, memory, mix and shape of access have one bandwidth", same=True
    ),
    "own_memory": Rule(
        "Memory not nearer to other nodes", "other nodes reach the memory by a link, its own node without one"
    ),
    "load": Rule("Latency not lower under load", "memory does not answer sooner under load"),
}
"""All rules, in order of evaluation."""


class Figure(Model):
    """A value of the document, by the name of its metric if it is one."""

    name: str
    value: float
    unit: str
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        interval = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return f"{self.value:.6g} {self.unit}{interval}"


class ConsistencyCheck(Model):
    """The result of *rule* for ``figure`` against ``other``.

    ``bound`` is the range allowed by ``other`` and the rule's tolerance; an open end is ``None``. A check is
    ``skipped``, without a bound, if one of the metrics cannot decide: it is invalid, or has no interval of sufficient
    coverage. ``difference`` is that of ``figure`` to ``other``, relative to ``other``; ``difference_interval`` takes
    the intervals of both into account.
    """

    rule: RuleName
    figure: Figure
    other: Figure
    difference: float | None
    difference_interval: tuple[float, float] | None
    bound: tuple[float | None, float] | None
    outcome: Literal["pass", "fail", "skipped"]
    reason: str


class Seen(NamedTuple):
    """A metric, why it cannot decide (``None`` if it can), and the flags for its pages' size."""

    figure: Figure
    unsure: str | None = None
    pages: frozenset[str] = frozenset()

    @property
    def low(self) -> float:
        """The lower end of its interval; the value itself without one, as on a published page."""
        return self.figure.value if self.figure.interval is None else self.figure.interval[0]

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.figure.value if self.figure.interval is None else self.figure.interval[1]


class Claim(NamedTuple):
    """Two metrics to compare under a rule."""

    rule: RuleName
    figure: Seen
    other: Seen


def consistency(measurements: Iterable[Measurement]) -> tuple[ConsistencyCheck, ...]:
    """Return the result of every rule for the *measurements* of one run."""
    return tuple(map(_judged, _claims(tuple(measurements))))


def _judged(claim: Claim) -> ConsistencyCheck:
    rule, (figure, other) = RULES[claim.rule], claim[1:]
    bound: tuple[float | None, float] | None = None
    outcome: Literal["pass", "fail", "skipped"] = "skipped"
    unsure = [f"{side.figure.name}: {side.unsure}" for side in (figure, other) if side.unsure]
    if unsure:
        reason = "; ".join(unsure)
    else:
        bound = (other.low / (1 + rule.tolerance) if rule.same else None, other.high * (1 + rule.tolerance))
        broken = figure.low > bound[1] or (bound[0] is not None and figure.high < bound[0])
        outcome = "fail" if broken else "pass"
        least = "at most" if bound[0] is None else f"{bound[0]:.6g} to"
        reason = (
            f"{figure.figure}, expected {least} {bound[1]:.6g} {figure.figure.unit}: "
            f"{other.figure.name} is {other.figure}, and {rule.law}"
        )
    known = other.figure.value > 0 and other.low > 0
    return ConsistencyCheck(
        rule=claim.rule,
        figure=figure.figure,
        other=other.figure,
        difference=figure.figure.value / other.figure.value - 1 if known else None,
        difference_interval=(figure.low / other.high - 1, figure.high / other.low - 1) if known else None,
        bound=bound,
        outcome=outcome,
        reason=reason,
    )


V = TypeVar("V")


def _of(measurements: Sequence[Measurement], values: type[V]) -> Iterator[tuple[Measurement, V]]:
    """Yield the measurements whose values are of type *values*."""
    for measurement in measurements:
        if isinstance(measurement.values, values):
            yield measurement, measurement.values


def _seen(measurement: Measurement, name: str, estimate: Estimate) -> Seen:
    figure = Figure(name=name, value=estimate.value, unit=estimate.unit, interval=estimate.interval)
    pages = PAGE_FLAGS.intersection(flag.code for flag in measurement.validity.flags)
    unsure = None
    if not measurement.validity.valid:
        unsure = "invalid"
    elif estimate.interval is None or estimate.coverage is None:
        unsure = "no interval"
    elif estimate.coverage < MIN_COVERAGE:
        unsure = f"its interval has only {estimate.coverage * 100:.0f} % coverage"
    return Seen(figure, unsure, pages)


def _claims(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """Yield every pair of metrics of *measurements* that a rule applies to."""
    yield from _maxima(measurements)
    yield from _parts(measurements)
    yield from _repeated("same_latency", _latencies(measurements))
    yield from _repeated("same_bandwidth", _bandwidths(measurements))
    yield from _own_memory(measurements)
    yield from _loads(measurements)


def _maxima(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    for top, maximum in _of(measurements, MaxValues):
        for other, peak in _of(measurements, PeakValues):
            for mix in filter(maximum.mixes.__contains__, peak.mixes):
                yield Claim("maximum", _peak(other, peak, mix), _maximum(top, maximum, mix))


def _peak(measurement: Measurement, values: PeakValues, mix: str) -> Seen:
    name = f"peak_injection_bandwidth{'.plain' if values.plain else ''}.{mix}.bandwidth_mb_s"
    return _seen(measurement, name, values.mixes[mix].bandwidth_mb_s)


def _maximum(measurement: Measurement, values: MaxValues, mix: str) -> Seen:
    return _seen(measurement, f"max_bandwidth.{mix}.bandwidth_mb_s", values.mixes[mix].bandwidth_mb_s)


class Whole(NamedTuple):
    """The highest bandwidth of one mix with all CPUs, and the nodes whose memory they used."""

    seen: Seen
    nodes: frozenset[int]


def _wholes(measurements: Sequence[Measurement]) -> dict[str, Whole]:
    found: dict[str, list[Whole]] = {}
    for measurement, maximum in _of(measurements, MaxValues):
        for mix, group in maximum.groups.items():
            found.setdefault(mix, []).append(Whole(_maximum(measurement, maximum, mix), _nodes(group)))
    for measurement, peak in _of(measurements, PeakValues):
        for mix in peak.mixes:
            found.setdefault(mix, []).append(Whole(_peak(measurement, peak, mix), _nodes(peak.group)))
    return {
        mix: max(figures, key=lambda figure: (figure.seen.unsure is None, figure.seen.high))
        for mix, figures in found.items()
    }


def _nodes(group: str) -> frozenset[int]:
    return frozenset(part.node for part in read_group(group))


def _parts(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """Yield parts of the machine against the whole.

    Numbers of threads between one and all are not parts: on many machines fewer threads than all are fastest. Neither
    is memory that the whole did not use, such as that of a node without CPUs.
    """
    wholes = _wholes(measurements)
    for measurement, matrix in _of(measurements, BandwidthMatrixValues):
        whole = wholes.get(MIX)
        if whole is None or len(matrix.cpu_nodes) < 2:
            continue
        cells = [seen for _, node, seen in _cells(measurement, matrix) if node in whole.nodes]
        if cells:
            yield Claim("part", max(cells, key=lambda seen: (seen.unsure is None, seen.low)), whole.seen)
    for measurement, scaling in _of(measurements, BandwidthScalingValues):
        one = scaling.points[0]
        if one.threads == 1 < scaling.points[-1].threads and (whole := wholes.get(scaling.mix)) is not None:
            name = f"bandwidth_scaling.{scaling.order}.1.bandwidth_mb_s"
            yield Claim("part", _seen(measurement, name, one.bandwidth_mb_s), whole.seen)
    for measurement, loaded in _of(measurements, LoadedLatencyValues):
        if (whole := wholes.get(loaded.mix)) is not None and _nodes(loaded.load) <= whole.nodes:
            for full in loaded.ends[:1]:
                name = f"loaded_latency.{full.inject_delay}.bandwidth_mb_s"
                yield Claim("part", _seen(measurement, name, full.bandwidth_mb_s), whole.seen)
    ladders = list(_of(measurements, BandwidthLadderValues))
    everywhere = {rung.mix: seen for ladder in ladders if ladder[1].threads > 1 for rung, seen in _in_memory(*ladder)}
    for ladder in ladders:
        if ladder[1].threads == 1:
            for rung, seen in _in_memory(*ladder):
                if rung.mix in everywhere:
                    yield Claim("part", seen, everywhere[rung.mix])


def _in_memory(measurement: Measurement, values: BandwidthLadderValues) -> Iterator[tuple[BandwidthLadderPoint, Seen]]:
    """Yield the points of a ladder that lie in memory, with their metrics."""
    who = "one_CPU" if values.threads == 1 else "all_CPUs"
    for point in values.points:
        if any(LEVELS.get(name) == "memory" for name in point.names):
            name = f"bandwidth_ladder.{who}.{point.mix}.memory.program_mb_s"
            yield point, _seen(measurement, name, point.program_mb_s)


def _cells(
    measurement: Measurement, values: LatencyMatrixValues | BandwidthMatrixValues
) -> Iterator[tuple[int, int, Seen]]:
    """Yield the cells of a matrix with a value: the nodes of its CPUs and of its memory, and the value."""
    field = "latency_ns" if isinstance(values, LatencyMatrixValues) else "bandwidth_mb_s"
    for row, line in zip(values.cpu_nodes, getattr(values, field), strict=True):
        for column, cell in zip(values.memory_nodes, line, strict=True):
            if cell is not None:
                yield row, column, _seen(measurement, f"{values.kind}.{row}.{column}.{field}", cell)


def _repeated(rule: RuleName, figures: Iterable[tuple[Hashable, Seen]]) -> Iterator[Claim]:
    """Yield *figures* of the same quantity, each against the first: the metric of record, if it is one."""
    found: dict[Hashable, list[Seen]] = {}
    for quantity, seen in figures:
        found.setdefault(quantity, []).append(seen)
    for first, *others in found.values():
        for other in others:
            if rule == "same_latency" and other.unsure is None and other.pages != first.pages:
                yield Claim(rule, other._replace(unsure="on pages of another size"), first)
            else:
                yield Claim(rule, other, first)


def _latencies(measurements: Sequence[Measurement]) -> Iterator[tuple[tuple[int, int], Seen]]:
    """Yield idle latencies, each with its CPU and its node.

    A ladder contributes its memory level. The unloaded probe in a sweep is a different quantity: the clocks around it
    are not those of an idle machine.
    """
    for measurement, matrix in _of(measurements, LatencyMatrixValues):
        cpus = dict(zip(matrix.cpu_nodes, matrix.cpus, strict=True))
        for row, column, seen in _cells(measurement, matrix):
            yield (cpus[row], column), seen
    for measurement, idle in _of(measurements, IdleLatencyValues):
        yield (idle.cpu, idle.node), _seen(measurement, "idle_latency.latency_ns", idle.latency_ns)
    for measurement, ladder in _of(measurements, LatencyLadderValues):
        memory = next((level for level in ladder.levels if level.name == "memory"), None)
        if ladder.series == "random" and memory is not None:
            seen = _seen(measurement, "latency_ladder.memory.latency_ns", memory.latency_ns)
            yield (ladder.cpus[0], ladder.nodes[0]), seen
    for measurement, effect in _of(measurements, PrefetcherEffectValues):
        for chase in effect.points:
            if effect.prefetchers == "as_found" and (chase.order, chase.stride_bytes) == ("random", STRIDE_BYTES):
                seen = _seen(measurement, f"prefetcher_effect.random_{STRIDE_BYTES}.latency_ns", chase.latency_ns)
                yield (effect.cpu, effect.node), seen


Access = tuple[str, frozenset[Part], int, int, str]
"""What identifies a bandwidth: mix, CPUs and their memory, streams, prefetch distance and width."""


def _access(mix: str, group: str, setting: Setting) -> Access:
    return mix, frozenset(read_group(group)), setting.streams, setting.prefetch_bytes, setting.width


def _bandwidths(measurements: Sequence[Measurement]) -> Iterator[tuple[Access, Seen]]:
    """Yield bandwidths, each with its access. The maximum is the best of many, so it repeats none."""
    for measurement, peak in _of(measurements, PeakValues):
        for mix, moved in peak.mixes.items():
            yield _access(mix, peak.group, moved.setting), _peak(measurement, peak, mix)
    for measurement, matrix in _of(measurements, BandwidthMatrixValues):
        groups = _groups(measurement, matrix)
        for row, column, seen in _cells(measurement, matrix):
            if (row, column) in groups:
                yield _access(MIX, groups[row, column], matrix.setting), seen
    for measurement, scaling in _of(measurements, BandwidthScalingValues):
        for point in scaling.points:
            name = f"bandwidth_scaling.{scaling.order}.{point.threads}.bandwidth_mb_s"
            yield _access(scaling.mix, point.group, point.setting), _seen(measurement, name, point.bandwidth_mb_s)
    for measurement, ladder in _of(measurements, BandwidthLadderValues):
        for rung, seen in _in_memory(measurement, ladder):
            if rung.mix == MIX:
                yield _access(MIX, ladder.group, rung.setting), seen


def _groups(measurement: Measurement, values: BandwidthMatrixValues) -> dict[tuple[int, int], str]:
    """Return the CPUs and the memory of each cell of a matrix, as requested of sutprobe; empty if unknown."""
    groups = measurement.parameters.get("group")
    places = [(row, column) for row in values.cpu_nodes for column in values.memory_nodes]
    if not isinstance(groups, list | tuple) or len(groups) != len(places):
        return {}
    return dict(zip(places, map(str, groups), strict=True))


def _own_memory(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """Yield what the CPUs of each node get of its memory against the best that those of another node get of it.

    The same memory from two places: another node's memory may be of a faster kind, and rightly faster. Bandwidths are
    compared only with those of no more CPUs.
    """
    for measurement, latency in _of(measurements, LatencyMatrixValues):
        for _, own, others in _columns(measurement, latency):
            if others:
                best = min(others.values(), key=lambda seen: (seen.unsure is not None, seen.high))
                yield Claim("own_memory", own, best)
    for measurement, bandwidth in _of(measurements, BandwidthMatrixValues):
        counts = {place: _cpus(group) for place, group in _groups(measurement, bandwidth).items()}
        for node, own, others in _columns(measurement, bandwidth):
            fair = [seen for row, seen in others.items() if 0 < counts.get((row, node), 0) <= counts[node, node]]
            if fair:
                yield Claim("own_memory", max(fair, key=lambda seen: (seen.unsure is None, seen.low)), own)


def _cpus(group: str) -> int:
    return sum(len(part.cpus) for part in read_group(group))


def _columns(
    measurement: Measurement, values: LatencyMatrixValues | BandwidthMatrixValues
) -> Iterator[tuple[int, Seen, dict[int, Seen]]]:
    """Yield each node with CPUs and memory, with its metric and those of other nodes for its memory."""
    cells = {(row, column): seen for row, column, seen in _cells(measurement, values)}
    for node in values.memory_nodes:
        if (node, node) in cells:
            others = {row: cells[row, node] for row in values.cpu_nodes if row != node and (row, node) in cells}
            yield node, cells[node, node], others


def _loads(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """Yield each probe's latency at the longest delay against that without delay.

    Points between are not compared: with clocks that follow the load some curves dip before they rise.
    """
    for measurement, sweep in _of(measurements, LoadedLatencyValues):
        if len(sweep.ends) < 2:
            continue
        full, least = sweep.ends
        for number, (idle, busy) in enumerate(zip(least.probes, full.probes, strict=True)):
            which = "" if number == 0 else f".cpu{idle.cpu}"
            names = [f"loaded_latency.{point.inject_delay}{which}.latency_ns" for point in (least, full)]
            yield Claim(
                "load", _seen(measurement, names[0], idle.latency_ns), _seen(measurement, names[1], busy.latency_ns)
            )
