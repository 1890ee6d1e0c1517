# SPDX-License-Identifier: Apache-2.0
"""Latency ladder: latency against working-set size, and the cache levels visible in the curve.

Levels are recognised in the random chase of one CPU on its own memory. The other curves are known from lmbench and
from the POWER7+ article: fixed strides, which prefetchers follow; memory interleaved over all nodes; and several
copies at the same time.
"""

from collections.abc import Iterator, Sequence
from math import log2
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate, estimate
from calibration.base.text import sentence_case
from calibration.charts.base import WIDE, Chart, Measured, shown
from calibration.charts.curves import LATENCY, MEDIANS, SIZES, curves_of, line_chart
from calibration.context.model import Context
from calibration.measurements.base import Declaration, GridValues, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.chase import (
    HOP_NS,
    ChaseSettings,
    Order,
    at,
    chain_memory,
    chase_flags,
    core_hz_of,
    latency_of,
    strided,
)
from calibration.measurements.evidence import missing_parts, require_any
from calibration.measurements.levels import (
    CACHE_EXCESS,
    MEMORY_CLIMB,
    UNNAMED,
    Comparison,
    Level,
    compare_levels,
    recognise_levels,
)
from calibration.measurements.metric_rows import CACHED, CACHES, Record, latency
from calibration.measurements.sut import (
    ASSUMED_LLC_BYTES,
    MIB,
    Place,
    Sut,
    memory_bound_bytes,
    side_cache_flags,
    whole_pages,
)
from calibration.measurements.table import TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import LatencyPoint, LatencyResult

SERIES = {
    "random": "",
    "prefetched": "prefetched: ",
    "interleaved": "interleaved: ",
    "copies": "{copies} copies, ",
    "memory_only": "node {node}, ",
}
"""Prefix of a curve's name, formatted with the number of copies and the first node."""

NEAR_LEVEL = 0.15
"""A point within this share of a level's latency is drawn as part of it."""

L2_HOP_NS = 3.0
"""Cost of one hop within the first and second level, for the expected duration only."""

CACHED_HOPS_MIN = 200_000
"""Fewest hops that sutprobe makes per window of a chain in the first or second level."""

HUGE_BYTES = 2 * MIB
"""Interleaving steps by page: sizes are multiples of this on each node, whatever pages are used."""

Series = Literal["random", "prefetched", "interleaved", "copies", "memory_only"]


class LadderSettings(ChaseSettings):
    """Chases at *points_per_octave* sizes from *smallest_bytes* on.

    The random ladder uses *strides_bytes*; *prefetched_strides_bytes* x *prefetched_orders* are the fixed-stride
    curves. *interleaved* adds memory interleaved over all nodes, and memory-only nodes, *copies* that many copies at
    the same time, one per core. All but the random ladder have *sparse_points_per_octave*. Fewer hops per window
    suffice than for a single latency, because neighbouring points support each other.
    """

    placements: PositiveInt = 1
    windows: PositiveInt = 3
    hops: PositiveInt = 10_000
    smallest_bytes: PositiveInt = 1024
    points_per_octave: PositiveInt = 4
    sparse_points_per_octave: PositiveInt = 2
    strides_bytes: tuple[PositiveInt, ...] = (64,)
    prefetched_strides_bytes: tuple[PositiveInt, ...] = ()
    prefetched_orders: tuple[Literal["forward", "backward"], ...] = ("forward",)
    interleaved: bool = False
    copies: tuple[PositiveInt, ...] = ()
    target_half_width: HalfWidth = 0.03


class LatencyLadderValues(GridValues):
    """The curves of one series and, for the random one, its levels against those reported by the kernel.

    ``latency_ns`` is the latency per load at a working-set size (bytes spanned), over all copies, ``core_hz`` the core
    clock meanwhile. ``cpus`` measured at the same time, each with a buffer on ``nodes`` (interleaved over several).
    """

    kind: Literal["latency_ladder"] = "latency_ladder"
    series: Series
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    levels: tuple[Level, ...]
    comparisons: tuple[Comparison, ...]

    axes: ClassVar = {"order": Order, "size_bytes": int, "stride_bytes": int}
    columns: ClassVar = {"latency_ns": Estimate, "core_hz": float}


class LatencyLadder(Declaration[LadderSettings, LatencyLadderValues]):
    """Chases at increasing sizes, from the first-level cache into memory."""

    title = "Latency ladder"
    question = "What does a load cost at each level of the memory hierarchy, and where do the levels end?"
    main_chart_rank = 10
    metric_rows = (
        *(
            latency(
                f"latency_ladder.{{point:{level}}}.latency_ns",
                "one load at a level of the memory hierarchy",
                level,
                depends=CACHED,
                record=Record("cache_latency", f"{level} latency", level),
                reference=f"{level.lower()}_ns",
            )
            for level in CACHES
        ),
        latency(
            r"latency_ladder.{point:memory|interleaved|copies_\d+|node\d+|(?:forward|backward)_\d+}.latency_ns",
            "one load from memory, or at the largest size: from pages interleaved over all nodes, by so many copies at "
            "once, from a memory-only node, or in order with a stride of so many bytes",
            "access_patterns",
        ),
    )

    def steps(self, sut: Sut, settings: LadderSettings) -> Iterator[Planned]:
        """Yield the random ladder of the first node with CPUs, and one step per further series."""
        node = sut.cpu_nodes[0]
        cpu, home = sut.measuring_cpu(node), sut.home(node)
        here = str(Place(cpu, home))
        yield self._series(sut, settings, "random", [here], [home], strides=settings.strides_bytes)
        if settings.prefetched_strides_bytes and settings.prefetched_orders:
            strides, orders = settings.prefetched_strides_bytes, settings.prefetched_orders
            yield self._series(sut, settings, "prefetched", [here], [home], strides=strides, orders=orders)
        if settings.interleaved and len(sut.memory_nodes) > 1:
            places = [at(cpu, sut.memory_nodes)]
            yield self._series(sut, settings, "interleaved", places, sut.memory_nodes)
            for beside in sut.memory_only_beside(node):
                yield self._series(sut, settings, "memory_only", [str(Place(cpu, beside))], [beside])
        elif settings.interleaved:
            yield self.not_planned("only one node has memory", "Memory interleaved over nodes")
        cores = sut.one_per_core(sut.cpus_of(node))
        chosen = [cpu, *(core for core in cores if core not in sut.siblings(cpu))]
        for copies in settings.copies:
            if copies > len(chosen):
                reason = f"node {node} has {units.plural(len(chosen), 'core')} to measure with"
                yield self.not_planned(reason, f"{copies} copies at the same time")
                continue
            places = [str(Place(number, home)) for number in chosen[:copies]]
            yield self._series(sut, settings, "copies", places, [home])

    def _series(
        self,
        sut: Sut,
        settings: LadderSettings,
        series: Series,
        places: Sequence[str],
        nodes: Sequence[int],
        *,
        strides: Sequence[int] = (64,),
        orders: Sequence[str] = ("random",),
    ) -> Step:
        """Return the step that measures *series*: sizes x strides x orders in one process."""
        copies = len(places) if series == "copies" else 1
        reported = sut.reported_llc_bytes or ASSUMED_LLC_BYTES  # not the size found before: every run searches again
        largest = min(
            memory_bound_bytes(sut, node, llc_bytes=reported, largest_bytes=settings.largest_bytes, buffers=copies)
            for node in nodes
        )
        per_octave = settings.points_per_octave if series == "random" else settings.sparse_points_per_octave
        sizes = ladder_sizes(settings.smallest_bytes, largest, per_octave)
        if series == "interleaved":
            grain = len(nodes) * HUGE_BYTES
            sizes = sorted({max(1, size // grain) * grain for size in sizes if size >= grain} or {grain})
        if "random" in orders:  # two nodes in a line would be one miss
            strides = tuple(dict.fromkeys(max(stride, sut.line_bytes) for stride in strides))
        sizes = [size for size in sizes if size >= 2 * min(strides)]
        chases = [(size, stride) for size in sizes for stride in strides if stride <= size]
        costs_s = [settings.chase_s(size, stride, *_expected_hops(sut, settings, size)) for size, stride in chases]
        costs_s *= len(orders)
        own = {"random": "", "copies": f"-copies-{len(places)}", "memory_only": f"-node{nodes[0]}"}
        suffix = own.get(series, f"-{series}")
        title = {
            "random": "random order",
            "prefetched": "prefetched strides",
            "interleaved": f"interleaved over nodes {', '.join(map(str, nodes))}",
            "copies": f"{len(places)} copies at the same time",
            "memory_only": f"memory of node {nodes[0]}",
        }[series]
        cpus = tuple(int(place.partition("@")[0]) for place in places)
        return self.step(
            f"{title}, CPU {format_cpulist(cpus)}, {units.plural(len(chases) * len(orders), 'point')}",
            "latency",
            {
                "at": list(places),
                "size-bytes": ",".join(map(str, sizes)),
                "stride-bytes": ",".join(map(str, strides)),
                "order": ",".join(orders),
                **settings.options(),
                **({"together": True} if series == "copies" else {}),
            },
            cpus=cpus,
            memory_bytes=chain_memory(dict.fromkeys(nodes, copies * whole_pages(sizes[-1] // len(nodes)))),
            cost_s=settings.map_s(sizes[-1]) + sum(costs_s),
            setup_s=settings.map_s(sizes[-1]) + len(orders) * sum(settings.build_s(*chase) for chase in chases),
            repeated=settings,
            suffix=suffix,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the curves and their levels."""
        result = read_result(document, LatencyResult)
        target = step.target_half_width
        combinations = grouped(((point.order, point.size_bytes, point.stride_bytes), point) for point in result.points)
        rows: list[dict[str, Any]] = []
        for (order, size_bytes, stride_bytes), copies in combinations.items():
            latencies = [latency for point in copies if (latency := latency_of(point, target)) is not None]
            core_hz = core_hz_of(copies)
            if len(latencies) < len(copies) or core_hz is None:
                continue
            labels = {"order": order, "size_bytes": size_bytes, "stride_bytes": stride_bytes}
            rows.append({**labels, "latency_ns": _over_copies(latencies, target), "core_hz": core_hz})
        require_any(rows, result.points, "point of the ladder")
        table = LatencyLadderValues.table_of(rows)
        points = table.rows
        first = result.points[0]
        series = _series_of(first, sut)
        cpus = tuple(dict.fromkeys(point.cpu for point in result.points))
        random = [point for point in points if series == "random" and point.stride_bytes == first.stride_bytes]
        levels = recognise_levels([(point.size_bytes, point.latency_ns) for point in random], sut.context.cache_bytes)
        yield Parsed(
            values=LatencyLadderValues(
                series=series,
                cpus=cpus,
                nodes=first.nodes,
                table=table,
                levels=tuple(_clocked(level, random) for level in levels),
                comparisons=compare_levels(levels, [point.size_bytes for point in random], sut.context),
            ),
            flags=(
                *chase_flags(document, result.points),
                *side_cache_flags(sut, dict.fromkeys(first.nodes, max(point.size_bytes for point in points))),
            ),
            missing=missing_parts(result.points, lambda point: f"{point.size_bytes} bytes, {strided(point)}"),
        )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart:
        """Return the ladder in random order."""
        measured = run.of(self.kind)
        random = [measurement for measurement in measured if measurement.values.series == "random"]
        return _chart(random or measured, run.context, "latency_ladder", width)

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the curves of all series, if there are several."""
        if len(run.of(self.kind)) > 1:
            yield _chart(run.of(self.kind), run.context, "latency_ladder_series", WIDE)

    def summary(self, measured: Sequence[LatencyLadderValues]) -> Iterator[str]:
        """Yield where the latency rises at another size than a reported cache's."""
        found = [
            f"{units.size(cache.found_bytes)} ({units.percent(cache.found_bytes / cache.reported_bytes)} of the "
            f"{units.size(cache.reported_bytes)} reported for {cache.name})"
            for values in measured
            for cache in (values.comparisons if values.series == "random" else ())
            if not cache.agrees and cache.found_bytes is not None and cache.reported_bytes
        ]
        if found:
            yield f"Latency rises at {', '.join(found)}."

    def metrics(self, values: LatencyLadderValues) -> Iterator[Metric]:
        """Yield the latency of each level and, for other series, that at each curve's largest size."""
        for level in values.levels:
            if level.name.startswith(UNNAMED):
                continue  # its name contains its size, which varies from run to run, so it cannot be compared
            yield self.metric(f"{level.name}.latency_ns", f"{sentence_case(level.name)} latency", level.latency_ns)
        if values.series == "random":
            return
        largest = sorted(values.points, key=lambda point: point.size_bytes)
        last = {(point.order, point.stride_bytes): point for point in largest}
        for (order, stride_bytes), point in last.items():
            name, title = {
                "prefetched": (f"{order}_{stride_bytes}", f"{order} stride of {stride_bytes} bytes"),
                "interleaved": ("interleaved", "memory interleaved over nodes"),
                "copies": (f"copies_{len(values.cpus)}", f"{len(values.cpus)} copies at the same time"),
                "memory_only": (f"node{values.nodes[0]}", f"memory of node {values.nodes[0]}"),
            }[values.series]
            yield self.metric(f"{name}.latency_ns", f"Latency, {title}", point.latency_ns)


def _series_of(point: LatencyPoint, sut: Sut) -> Series:
    if point.copies > 1:
        return "copies"
    if len(point.nodes) > 1:
        return "interleaved"
    if point.nodes[0] != sut.home(sut.node_of(point.cpu)):
        return "memory_only"
    return "random" if point.order in {"random", "window"} else "prefetched"


def _over_copies(latencies: Sequence[Estimate], target: float | None) -> Estimate:
    """Return one estimate over simultaneous copies: each placement has the windows of all of them."""
    if len(latencies) == 1:
        return latencies[0]
    placements = zip(*(latency.samples for latency in latencies), strict=True)
    samples = [[window for windows in placement for window in windows] for placement in placements]
    return estimate(samples, "ns", rounds=latencies[0].rounds, target_half_width=target)


def _clocked(level: Level, points: Sequence[TableRow]) -> Level:
    """Return *level* with the core clock of its points."""
    nearest = sorted(points, key=lambda point: abs(point.latency_ns.value - level.latency_ns.value))
    return level.model_copy(update={"core_hz": nearest[0].core_hz})


def ladder_sizes(smallest_bytes: int, largest_bytes: int, per_octave: int) -> list[int]:
    """Return sizes in bytes from *smallest_bytes* to *largest_bytes*, *per_octave* per doubling, in whole lines."""
    count = round(log2(largest_bytes / smallest_bytes) * per_octave)
    sizes = (round(smallest_bytes * 2 ** (index / per_octave) / 64) * 64 for index in range(count))
    return sorted({*sizes, largest_bytes})


def _expected_hops(sut: Sut, settings: LadderSettings, size_bytes: int) -> tuple[float, int]:
    """Return the cost of a hop in ns, and the hops per window, of a chain of *size_bytes*."""
    if size_bytes <= sut.l2_bytes:
        return L2_HOP_NS, max(settings.hops, CACHED_HOPS_MIN)
    return HOP_NS, settings.hops


def last_cache_bytes(values: LatencyLadderValues) -> int | None:
    """Return the largest size of the last plateau before memory: where the last-level cache ends for one CPU.

    ``None`` if unclear: the curve does not reach memory, memory is hardly slower, or the plateau belongs to a cache
    before the last one reported.
    """
    *caches, memory = values.levels or (None,)
    if memory is None or memory.name != "memory" or not caches:
        return None
    last = caches[-1]
    before = values.comparisons[:-1] or values.comparisons  # a first level alone is never the last
    below = max((level.reported_bytes for level in before), default=0)
    climbs = memory.latency_ns.value >= MEMORY_CLIMB * last.latency_ns.value
    return last.size_bytes if climbs and (last.size_bytes or 0) > CACHE_EXCESS * below else None


def _chart(measured: Sequence[Measured[LatencyLadderValues]], context: Context | None, name: str, width: int) -> Chart:
    """Return latency (ns) against working-set size (bytes), with the levels found and the caches reported."""
    ladders = sorted(
        (measurement.values for measurement in measured), key=lambda values: list(SERIES).index(values.series)
    )
    levels: dict[tuple[str, str], tuple[float, float, float]] = {}  # runs of several series find the same ones
    for start, end, level in (found for values in ladders for found in _stretches(values)):
        words = units.level(level.name, level.size_bytes)
        latency_ns = level.latency_ns.value
        levels[words, units.significant(latency_ns, 2)] = (start, end, latency_ns)
    named = [  # the latency of memory has a metric of record elsewhere
        (*found, words if words == "memory" else f"{words} {shown(found[2], 'ns')}")
        for (words, _), found in levels.items()
    ]
    caches = {
        float(cache.size_bytes): f"L{cache.level}{'d' * (cache.type == 'Data')} {units.size(cache.size_bytes)}"
        for cache in (() if context is None else context.caches)
        if cache.type != "Instruction" and cache.size_bytes
    }
    return line_chart(
        name,
        measured,
        curves_of(
            (
                f"{before}{point.order}, stride {units.size(point.stride_bytes)}",
                (float(point.size_bytes), point.latency_ns),
            )
            for values in ladders
            for before in [SERIES[values.series].format(copies=len(values.cpus), node=values.nodes[0])]
            for point in values.points
        ),
        (SIZES("Working set"), LATENCY),
        width=width,
        marked=caches.items(),
        named=named,
        alt="Latency against working-set size, and the levels found" if named else "Latency against working-set size",
        values=[words for *_, words in named],
        caption=f"{MEDIANS} Broad bars are the levels that the curve shows, dashed lines the cache sizes that the "
        "kernel reports.",
    )


def _stretches(values: LatencyLadderValues) -> Iterator[tuple[float, float, Level]]:
    """Yield the levels as ranges of sizes: from the first point near its latency to its end."""
    start = 0
    for level in values.levels:
        end = max(point.size_bytes for point in values.points) if level.size_bytes is None else level.size_bytes
        near = [
            point.size_bytes
            for point in values.points
            if start <= point.size_bytes <= end
            and abs(point.latency_ns.value / level.latency_ns.value - 1) < NEAR_LEVEL
        ]
        if near:
            yield float(min(near)), float(end), level
        start = end
