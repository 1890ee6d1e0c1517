# SPDX-License-Identifier: Apache-2.0
"""Cross-checks of the metrics of a run: which pairs the rules of consistency compare.

They are made once, when the run document is assembled; pages, ``calibration judge`` and the gates show them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import permutations
from operator import mul, truediv
from typing import Final, NamedTuple, TypeVar

from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate
from calibration.measurements.bandwidth_ladder import LEVELS, BandwidthLadderValues
from calibration.measurements.bandwidth_matrix import MIX, BandwidthMatrixValues
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.core_latency import CoreLatencyValues
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.latency_ladder import LatencyLadderValues
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.measurements.load_tail import LoadTailValues
from calibration.measurements.loaded_latency import RECORD_SHARE, LoadedLatencyValues
from calibration.measurements.max_bandwidth import MaxValues
from calibration.measurements.memory_curves import CurveFigures, MemoryCurvesValues
from calibration.measurements.memory_parallelism import MemoryParallelismValues, ParallelCurve
from calibration.measurements.page_sizes import PageSizesValues, page_label
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.platform import Setting
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.measurements.random_bandwidth import RandomBandwidthValues
from calibration.measurements.table import TableRow
from calibration.measurements.traffic import Part, read_group
from calibration.measurements.traffic_shape import TrafficShapeValues
from calibration.results.consistency import (
    MIN_ROUNDS_COVERAGE,
    CheckedValue,
    ConsistencyCheck,
    RuleName,
    Side,
    check,
    low_coverage,
)
from calibration.results.model import Measurement

STRIDE_BYTES: Final = 64
"""Distance between the nodes of a compared chase: one per line."""

PAGE_FLAGS: Final = frozenset({"HUGEPAGE_NONE", "HUGEPAGE_PARTIAL"})
"""Latencies in pages of different sizes are different quantities."""

NEXT_WIDTH: Final = {"sse2": "avx2", "avx2": "avx512"}
"""Vectors of twice the width."""

V = TypeVar("V")


def cross_checks(measurements: Sequence[Measurement]) -> tuple[ConsistencyCheck, ...]:
    """Return the result of every rule for the *measurements* of one run."""
    return (
        *_maxima(measurements),
        *_patterns(measurements),
        *_parts(measurements),
        *_repeated("same_latency", _latencies(measurements)),
        *_singles(measurements),
        *_repeated("same_bandwidth", _bandwidths(measurements)),
        *_own_memory(measurements),
        *_loads(measurements),
        *_curves(measurements),
        *_parallelism(measurements),
    )


def _of(measurements: Sequence[Measurement], values: type[V]) -> Iterator[tuple[Measurement, V]]:
    """Yield the measurements whose values are of type *values*."""
    for measurement in measurements:
        if isinstance(measurement.values, values):
            yield measurement, measurement.values


def _side(
    measurement: Measurement,
    name: str,
    estimate: Estimate,
    unit: str | None = None,
    convert: Callable[[float], float] = lambda value: value,
) -> Side:
    """Return an estimate of *measurement* as a side of a check, by *convert* in another *unit*."""
    low, high = sorted(map(convert, estimate.interval or (estimate.value, estimate.value)))
    interval = None if estimate.interval is None else (low, high)
    value = CheckedValue(name=name, value=convert(estimate.value), unit=unit or estimate.unit, interval=interval)
    pages = PAGE_FLAGS.intersection(flag.code for flag in measurement.validity.flags)
    unsure, coverage = None, estimate.coverage or 0.0
    if not measurement.validity.valid:
        unsure = "invalid"
    elif estimate.interval is None or estimate.coverage is None:
        unsure = "no interval"
    elif coverage < MIN_ROUNDS_COVERAGE:
        unsure = low_coverage(coverage)
    return Side(value, unsure, pages, coverage)


def _maxima(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    for top, maximum in _of(measurements, MaxValues):
        for other, peak in _peaks(measurements):
            for mix in filter(maximum.mixes.__contains__, peak.mixes):
                if maximum.mixes[mix] != peak.mixes[mix]:  # else it is that of the peak
                    yield check("maximum", _peak(other, peak, mix), _maximum(top, maximum, mix))


def _patterns(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield the best pattern of each mix and vector width against the maximum of the mix, and against half the width.

    Instructions other than vectors have no width.
    """
    searches = [(measurement, search) for measurement, search in _of(measurements, TrafficShapeValues) if search.best]
    for top, maximum in _of(measurements, MaxValues):
        for measurement, search in searches:
            for mix in filter(maximum.mixes.__contains__, search.best):
                if _nodes(search.group) <= _nodes(maximum.groups[mix]):
                    yield check("best_pattern", _pattern(measurement, search, mix), _maximum(top, maximum, mix))
    for wide, narrow in permutations(searches, 2):
        if NEXT_WIDTH.get(narrow[1].width) == wide[1].width and wide[1].group == narrow[1].group:
            for mix in filter(narrow[1].best.__contains__, wide[1].best):
                if {search.best[mix].setting.instruction for _, search in (wide, narrow)} == {"vector"}:
                    yield check("vector_width", _pattern(*wide, mix), _pattern(*narrow, mix))


def _pattern(measurement: Measurement, values: TrafficShapeValues, mix: str) -> Side:
    name = f"traffic_shape.{values.width}.{mix}.bandwidth_mb_s"
    return _side(measurement, name, values.best[mix].bandwidth_mb_s)


def _peaks(measurements: Sequence[Measurement]) -> Iterator[tuple[Measurement, PeakValues]]:
    """Yield the peaks of the memory that other kinds use too: that of memory-only nodes may be of another kind."""
    return ((measurement, peak) for measurement, peak in _of(measurements, PeakValues) if not peak.memory_only)


def _peak(measurement: Measurement, values: PeakValues, mix: str) -> Side:
    name = f"peak_injection_bandwidth.{values.variant}{mix}.bandwidth_mb_s"
    return _side(measurement, name, values.mixes[mix].bandwidth_mb_s)


def _maximum(measurement: Measurement, values: MaxValues, mix: str) -> Side:
    return _side(measurement, f"max_bandwidth.{mix}.bandwidth_mb_s", values.mixes[mix].bandwidth_mb_s)


class Whole(NamedTuple):
    """The highest bandwidth of one mix with all CPUs, and the nodes whose memory they used."""

    side: Side
    nodes: frozenset[int]


def _wholes(measurements: Sequence[Measurement]) -> dict[str, Whole]:
    found: dict[str, list[Whole]] = {}
    for measurement, maximum in _of(measurements, MaxValues):
        for mix, group in maximum.groups.items():
            found.setdefault(mix, []).append(Whole(_maximum(measurement, maximum, mix), _nodes(group)))
    for measurement, peak in _peaks(measurements):
        for mix in peak.mixes:
            found.setdefault(mix, []).append(Whole(_peak(measurement, peak, mix), _nodes(peak.group)))
    return {
        mix: max(wholes, key=lambda whole: (whole.side.decides, whole.side.value.high)) for mix, wholes in found.items()
    }


def _nodes(group: str) -> frozenset[int]:
    return frozenset(part.node for part in read_group(group))


def _parts(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield parts of the machine against the whole.

    Numbers of threads between one and all are not parts: on many machines fewer threads than all are fastest. Neither
    is memory that the whole did not use, such as that of a node without CPUs.
    """
    wholes = _wholes(measurements)
    for measurement, matrix in _of(measurements, BandwidthMatrixValues):
        whole = wholes.get(MIX)
        if whole is None or len(matrix.table.labels("cpu_node")) < 2:
            continue
        cells = [side for _, node, side in _cells(measurement, matrix) if node in whole.nodes]
        if cells:
            yield check("part", max(cells, key=lambda side: (side.decides, side.value.low)), whole.side)
    for measurement, scaling in _of(measurements, BandwidthScalingValues):
        one = scaling.points[0]
        if scaling.order == "memory_only":  # the whole is of other memory
            continue
        if one.threads == 1 < scaling.points[-1].threads and (whole := wholes.get(scaling.mix)) is not None:
            name = f"bandwidth_scaling.{scaling.order}.1.bandwidth_mb_s"
            yield check("part", _side(measurement, name, one.bandwidth_mb_s), whole.side)
    for measurement, loaded in _of(measurements, LoadedLatencyValues):
        if (whole := wholes.get(loaded.mix)) is not None and _nodes(loaded.load) <= whole.nodes:
            for full in loaded.ends[:1]:
                name = f"loaded_latency.{full.inject_delay}.bandwidth_mb_s"
                yield check("part", _side(measurement, name, full.bandwidth_mb_s), whole.side)
    for measurement, values, curve in _local_curves(measurements):
        if (whole := wholes.get(curve.mix)) is not None:
            yield check(
                "part", _side(measurement, f"{_curve(values, curve)}.bandwidth_mb_s", curve.full_mb_s), whole.side
            )
    ladders = list(_of(measurements, BandwidthLadderValues))
    everywhere = {rung.mix: side for ladder in ladders if ladder[1].threads > 1 for rung, side in _in_memory(*ladder)}
    for ladder in ladders:
        if ladder[1].threads == 1:
            for rung, side in _in_memory(*ladder):
                if rung.mix in everywhere:
                    yield check("part", side, everywhere[rung.mix])


def _in_memory(measurement: Measurement, values: BandwidthLadderValues) -> Iterator[tuple[TableRow, Side]]:
    """Yield the points of a ladder that lie in memory, with their metrics."""
    who = "one_CPU" if values.threads == 1 else "all_CPUs"
    for point in values.points:
        if any(LEVELS.get(name) == "memory" for name in point.names):
            name = f"bandwidth_ladder.{who}.{point.mix}.memory.program_mb_s"
            yield point, _side(measurement, name, point.program_mb_s)


def _cells(
    measurement: Measurement, values: LatencyMatrixValues | BandwidthMatrixValues
) -> Iterator[tuple[int, int, Side]]:
    """Yield the cells of a matrix with a value: the nodes of its CPUs and of its memory, and the value."""
    column = values.drawn[0]
    for (cpu_node, memory_node), cell in values.table.cells(column).items():
        yield cpu_node, memory_node, _side(measurement, f"{values.kind}.{cpu_node}.{memory_node}.{column}", cell)


Sides = dict[tuple[int, int], tuple[Measurement, Side]]


def matrix_sides(
    measurements: Sequence[Measurement], kind: type[LatencyMatrixValues] | type[BandwidthMatrixValues]
) -> Sides:
    """Return the cells of the first matrix of *kind*, by the nodes of its CPUs and of its memory."""
    matrices = list(_of(measurements, kind))[:1]
    return {(row, column): (of, side) for of, values in matrices for row, column, side in _cells(of, values)}


def _repeated(rule: RuleName, metrics: Iterable[tuple[Hashable, Side]]) -> Iterator[ConsistencyCheck]:
    """Yield checks of equal quantities, each against the first: the metric of record, if it is one."""
    found = grouped(metrics)
    for first, *others in found.values():
        for other in others:
            if rule == "same_latency" and other.unsure is None and other.pages != first.pages:
                yield check(rule, other._replace(unsure="on pages of another size"), first)
            else:
                yield check(rule, other, first)


def _latencies(measurements: Sequence[Measurement]) -> Iterator[tuple[tuple[int, int], Side]]:
    """Yield idle latencies, each with its CPU and its node.

    A ladder contributes its memory level. The unloaded probe in a sweep is a different quantity: the clocks around it
    are not those of an idle machine.
    """
    for measurement, matrix in _of(measurements, LatencyMatrixValues):
        cpus = {row.cpu_node: row.cpu for row in matrix.table.rows}
        for row, column, side in _cells(measurement, matrix):
            yield (cpus[row], column), side
    for measurement, idle in _of(measurements, IdleLatencyValues):
        yield (idle.cpu, idle.node), _side(measurement, "idle_latency.latency_ns", idle.latency_ns)
    for measurement, parallel in _of(measurements, MemoryParallelismValues):
        for curve in parallel.curves:
            for one in curve.points[:1]:
                if one.chains == 1:
                    yield (curve.cpu, curve.node), _side(measurement, f"{_parallel(curve)}.1.load_ns", one.load_ns)
    for measurement, cores in _of(measurements, CoreLatencyValues):
        for core in cores.points:
            yield (core.cpu, core.node), _side(measurement, f"core_latency.cpu{core.cpu}.latency_ns", core.latency_ns)
    for measurement, ladder in _of(measurements, LatencyLadderValues):
        memory = next((level for level in ladder.levels if level.name == "memory"), None)
        if ladder.series == "random" and memory is not None:
            side = _side(measurement, "latency_ladder.memory.latency_ns", memory.latency_ns)
            yield (ladder.cpus[0], ladder.nodes[0]), side
    for measurement, effect in _of(measurements, PrefetcherEffectValues):
        for chase in effect.points:
            if effect.prefetchers == "as_found" and (chase.order, chase.stride_bytes) == ("random", STRIDE_BYTES):
                side = _side(measurement, f"prefetcher_effect.random_{STRIDE_BYTES}.latency_ns", chase.latency_ns)
                yield (effect.cpu, effect.node), side
    for measurement, tail in _of(measurements, LoadTailValues):
        yield (tail.cpu, tail.node), _tail(measurement, tail, "chase_ns")
    page = next((idle.page for _, idle in _of(measurements, IdleLatencyValues)), None)
    for measurement, sizes in _of(measurements, PageSizesValues):
        for kind in sizes.points:
            if kind.obtained == page:
                name = f"page_sizes.{page_label(kind)}.latency_ns"
                yield (sizes.cpu, sizes.node), _side(measurement, name, kind.memory_ns)


def _singles(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield the mean of loads timed one by one, less the clock, against the same chain by its windows."""
    for measurement, tail in _of(measurements, LoadTailValues):
        yield check("single_loads", _tail(measurement, tail, "single_ns"), _tail(measurement, tail, "chase_ns"))


def _tail(measurement: Measurement, values: LoadTailValues, field: str) -> Side:
    return _side(measurement, f"load_tail.{values.variant}{field}", getattr(values, field))


Access = tuple[str, frozenset[Part], str, str]
"""What identifies a bandwidth: mix, CPUs and their memory, shape and width."""


def _access(mix: str, group: str, setting: Setting) -> Access:
    return mix, frozenset(read_group(group)), setting.shape.text, setting.width


def _bandwidths(measurements: Sequence[Measurement]) -> Iterator[tuple[Access, Side]]:
    """Yield bandwidths, each with its access. The maximum is the best of many, so it repeats none."""
    for measurement, peak in _of(measurements, PeakValues):
        for mix, moved in peak.mixes.items():
            yield _access(mix, peak.group, moved.setting), _peak(measurement, peak, mix)
    for measurement, matrix in _of(measurements, BandwidthMatrixValues):
        groups = _groups(measurement, matrix)
        for row, column, side in _cells(measurement, matrix):
            if (row, column) in groups:
                yield _access(MIX, groups[row, column], matrix.setting), side
    for measurement, scaling in _of(measurements, BandwidthScalingValues):
        for point in scaling.points:
            name = f"bandwidth_scaling.{scaling.variant}.{point.threads}.bandwidth_mb_s"
            yield _access(scaling.mix, point.group, point.setting), _side(measurement, name, point.bandwidth_mb_s)
    for measurement, ladder in _of(measurements, BandwidthLadderValues):
        for rung, side in _in_memory(measurement, ladder):
            if rung.mix == MIX:
                yield _access(MIX, ladder.group, rung.setting), side


def _groups(measurement: Measurement, values: BandwidthMatrixValues) -> dict[tuple[int, ...], str]:
    """Return the CPUs and the memory of each cell of a matrix, as requested of sutprobe; empty if unknown."""
    groups = measurement.parameters.get("group")
    if not isinstance(groups, list | tuple) or len(groups) != len(values.table.rows):
        return {}
    return dict(zip(map(values.table.labels_of, values.table.rows), map(str, groups), strict=True))


def _own_memory(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield what the CPUs of each node get of its memory against the best that those of another node get of it.

    The same memory from two places: another node's memory may be of a faster kind, and rightly faster. Bandwidths are
    compared only with those of no more CPUs.
    """
    for measurement, latency in _of(measurements, LatencyMatrixValues):
        for _, own, others in _columns(measurement, latency):
            if others:
                best = min(others.values(), key=lambda side: (not side.decides, side.value.high))
                yield check("own_memory", own, best)
    for measurement, bandwidth in _of(measurements, BandwidthMatrixValues):
        counts = {place: _cpus(group) for place, group in _groups(measurement, bandwidth).items()}
        for node, own, others in _columns(measurement, bandwidth):
            fair = [side for row, side in others.items() if 0 < counts.get((row, node), 0) <= counts[node, node]]
            if fair:
                yield check("own_memory", max(fair, key=lambda side: (side.decides, side.value.low)), own)


def _cpus(group: str) -> int:
    return sum(len(part.cpus) for part in read_group(group))


def _columns(
    measurement: Measurement, values: LatencyMatrixValues | BandwidthMatrixValues
) -> Iterator[tuple[int, Side, dict[int, Side]]]:
    """Yield each node with CPUs and memory, with its metric and those of other nodes for its memory."""
    cells = {(row, column): side for row, column, side in _cells(measurement, values)}
    for node, column in cells:
        if node == column:
            yield node, cells[node, node], {row: side for (row, of), side in cells.items() if of == node != row}


def _loads(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
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
            yield check(
                "load", _side(measurement, names[0], idle.latency_ns), _side(measurement, names[1], busy.latency_ns)
            )


def _local_curves(
    measurements: Sequence[Measurement],
) -> Iterator[tuple[Measurement, MemoryCurvesValues, CurveFigures]]:
    """Yield the curves of nodes' own memory."""
    for measurement, values in _of(measurements, MemoryCurvesValues):
        if values.relation == "local":
            for curve in values.curves:
                yield measurement, values, curve


def _curve(values: MemoryCurvesValues, curve: CurveFigures) -> str:
    return f"memory_curves.{values.cpu_node}.{values.memory_node}.{curve.mix}"


def _curves(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield latency at ``RECORD_SHARE`` of the load of a node's own memory against that of the loaded latency."""
    share = round(100 * RECORD_SHARE)
    for measurement, sweep in _of(measurements, LoadedLatencyValues):
        point = next((point for point in sweep.points if point.share == RECORD_SHARE), None)
        for number, probe in enumerate(() if point is None else point.probes):
            which = "" if number == 0 else f".cpu{probe.cpu}"
            of_record = _side(measurement, f"loaded_latency.{share}pct{which}.latency_ns", probe.latency_ns)
            for other, values, curve in _local_curves(measurements):
                same = (values.probe_cpu, values.memory_node, curve.mix) == (probe.cpu, probe.node, sweep.mix)
                if same and share in curve.latency_ns:
                    name = f"{_curve(values, curve)}.{share}pct.latency_ns"
                    yield check("same_curve", _side(other, name, curve.latency_ns[share]), of_record)


def _parallel(curve: ParallelCurve) -> str:
    return f"memory_parallelism.{curve.node}"


def _parallelism(measurements: Sequence[Measurement]) -> Iterator[ConsistencyCheck]:
    """Yield what a thread of all reads at random against what one alone reads with the best number of chains.

    Only if more chains did not help: otherwise independent loads may. The memory of the chains is among that read.
    """
    for measurement, reads in _of(measurements, RandomBandwidthValues):
        parts = read_group(reads.group)
        share = partial(mul, 1 / sum(len(part.cpus) for part in parts))
        name = f"random_bandwidth.{reads.variant}thread_mb_s"
        thread = _side(measurement, name, reads.reads.bandwidth_mb_s, convert=share)
        for other, parallel in _of(measurements, MemoryParallelismValues):
            for curve in parallel.curves:
                same = any(curve.cpu in part.cpus and curve.node == part.node for part in parts)
                if curve.enough_chains is not None and same:
                    rate = partial(truediv, reads.line_bytes * 1e3)  # a line for each load of the best number of chains
                    name = f"{_parallel(curve)}.thread_mb_s"
                    yield check("parallelism", thread, _side(other, name, curve.best.load_ns, "MB/s", rate))
