# SPDX-License-Identifier: Apache-2.0
"""Memory-level parallelism: the time per load of one thread that walks several chains at the same time."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from calibration.base import units
from calibration.base.statistics import Estimate, combined
from calibration.charts.alternative import Value, extremes
from calibration.charts.base import Chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.measurements.base import Declaration, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step, Values
from calibration.measurements.chase import (
    HOP_NS,
    ChaseSettings,
    at,
    chain_flags,
    chain_memory,
    chase_flags,
    idle_bytes,
    latency_of,
)
from calibration.measurements.evidence import missing_parts, require_any
from calibration.measurements.metric_rows import LATENCY_REPEATS, MEMORY_LOADS, MetricRow, latency
from calibration.measurements.sut import Place, Sut
from calibration.measurements.table import Gridded, TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import LatencyPoint, LatencyResult

CHAINS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Numbers of chains: of most cores the curve bends between 8 and 24."""

MIN_GAIN = 0.05
"""More chains help if the whole interval of what they gain is above this: less is within what placements differ."""

CHAINS_MAX = 32


class MemoryParallelismSettings(ChaseSettings):
    """Each number of *chains*, with *windows* of *hops* loads in all, in *placements* fresh allocations a round.

    Memory-only nodes beside that of the CPU are measured too, and with *far* the most distant memory.
    """

    chains: Annotated[tuple[Annotated[int, Field(ge=1, le=CHAINS_MAX)], ...], Field(min_length=1)] = CHAINS
    far: bool = True
    placements: PositiveInt = 1
    windows: PositiveInt = 5
    hops: PositiveInt = 50_000
    target_half_width: HalfWidth = 0.03


class ParallelCurve(Gridded):
    """Times of ``cpu`` in memory of ``node``, by number of chains.

    ``load_ns`` is the time divided by the loads of all chains, ``in_flight`` the latency of one chain divided by that,
    ``None`` without one, ``loop_overhead_ns`` the same time per load if all lines are in the first-level cache.
    ``enough_chains`` is the fewest with which no larger number is faster by ``min_gain``; ``None`` if that is the
    largest, so that more might be faster still.
    """

    cpu: int
    node: int
    size_bytes: int
    page: str
    min_gain: float
    enough_chains: int | None

    axes: ClassVar = {"chains": int}
    columns: ClassVar = {"load_ns": Estimate, "in_flight": Estimate | None, "loop_overhead_ns": float}

    @property
    def best(self) -> TableRow:
        """The point with the least time per load."""
        return min(self.points, key=lambda point: point.load_ns.value)


class MemoryParallelismValues(Values):
    """A curve for the nearest memory, and for others: of memory-only nodes beside it, and the most distant."""

    kind: Literal["memory_parallelism"] = "memory_parallelism"
    curves: tuple[ParallelCurve, ...]


class MemoryParallelism(Declaration[MemoryParallelismSettings, MemoryParallelismValues]):
    """One to 32 chains, each in its own part of one random cycle, walked by one thread."""

    title = "Memory-level parallelism"
    question = "How many outstanding loads can one core have, and how long does a load take then?"
    metric_rows = (
        latency(
            "memory_parallelism.{memory_node}.load_ns",
            "time per load of one core with the best number of chains",
            "access_patterns",
        ),
        MetricRow(
            "memory_parallelism.{memory_node}.in_flight",
            "outstanding loads with the best number of chains, by node of the memory",
            "access_patterns",
            "loads",
            "higher",
            LATENCY_REPEATS,
            MEMORY_LOADS,
        ),
    )

    def steps(self, sut: Sut, settings: MemoryParallelismSettings) -> Iterator[Planned]:
        """Yield one step from the measuring CPU of the first node with CPUs."""
        node = sut.cpu_nodes[0]
        cpu = sut.measuring_cpu(node)
        nodes = [sut.home(node), *sut.memory_only_beside(node)]
        far = sut.farthest(node)
        if settings.far and far is not None and far not in nodes:
            nodes.append(far)
        counts = sorted(set(settings.chains))
        sizes = [idle_bytes(sut, settings, memory, len(counts)) for memory in nodes]
        own = ["" if size == max(sizes) else f":{size}" for size in sizes]
        walks_s = sum(settings.walk_s(max(sizes), hop_ns=HOP_NS / count) for count in counts)
        yield self.step(
            f"CPU {cpu}, memory of node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes[:-1]))}"
            f"{' and ' * (len(nodes) > 1)}{nodes[-1]}",
            "latency",
            {
                "at": [f"{Place(cpu, memory)}{size}" for memory, size in zip(nodes, own, strict=True)],
                **settings.random_options(sut, max(sizes)),
                "chains": ",".join(map(str, counts)),
            },
            cpus=(cpu,),
            memory_bytes=chain_memory(dict(zip(nodes, sizes, strict=True))),
            cost_s=settings.setup_s(sum(sizes)) + len(nodes) * walks_s,
            setup_s=settings.setup_s(sum(sizes)),
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield a curve for each node; a number of chains without a value is listed as missing."""
        points = read_result(document, LatencyResult).points
        curves = [
            curve
            for _, group in groupby(points, key=attrgetter("cpu", "nodes"))
            if (curve := _curve(tuple(group), step.target_half_width)) is not None
        ]
        require_any(curves, points, "number of chains")
        yield Parsed(
            values=MemoryParallelismValues(curves=tuple(curves)),
            flags=(
                *chase_flags(document, points),
                *chain_flags(sut, points),
            ),
            missing=missing_parts(
                points, lambda point: f"{units.plural(point.chains, 'chain')}, {at(point.cpu, point.nodes)}"
            ),
        )

    def summary(self, measured: Sequence[MemoryParallelismValues]) -> Iterator[str]:
        """Yield the most outstanding loads, for each node."""
        for curve in (curve for values in measured for curve in values.curves):
            best = curve.best
            if best.in_flight is not None:
                most = "at least" if curve.enough_chains is None else "at most"
                yield (
                    f"One core has {most} {units.significant(best.in_flight.value, 3)} outstanding loads to memory of "
                    f"node {curve.node}: with {units.plural(best.chains, 'chain')}, "
                    f"{units.headline(best.load_ns)} per load."
                )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the time per load (ns) against chains, both logarithmic, a curve for each node."""
        curves = [curve for values in run.values(self.kind) for curve in values.curves if len(curve.points) > 2]
        if not curves:
            return
        numbers = sorted({float(point.chains) for curve in curves for point in curve.points})
        enough = {float(curve.enough_chains): "saturated" for curve in curves if curve.enough_chains is not None}
        known = [_in_flight(curve, in_flight) for curve in curves if (in_flight := curve.best.in_flight) is not None]
        found = [extremes(known)] if known else []
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (f"memory of node {curve.node}", (float(point.chains), point.load_ns))
                for curve in curves
                for point in curve.points
            ),
            (
                Axis(
                    "Parallel pointer chases",
                    kind="octaves",
                    ticks=numbers,
                    text=lambda n: units.plural(round(n), "chain"),
                ),
                Axis("Time", "ns per load", kind="decades"),
            ),
            marked=enough.items(),
            alt=", ".join(["Time per load against the number of parallel pointer chases", *found]),
            caption=f"{': '.join(['Points are medians, bars their intervals', *found])}.",
        )

    def metrics(self, values: MemoryParallelismValues) -> Iterator[Metric]:
        """Yield time per load and outstanding loads of the best number of chains, for each node."""
        for curve in values.curves:
            best, where = curve.best, f", memory of node {curve.node}"
            yield self.metric(f"{curve.node}.load_ns", f"{self.title}, time per load{where}", best.load_ns)
            if best.in_flight is not None:
                yield self.metric(f"{curve.node}.in_flight", f"{self.title}, outstanding loads{where}", best.in_flight)


def _in_flight(curve: ParallelCurve, in_flight: Estimate) -> Value:
    where = f"memory of node {curve.node}, {units.plural(curve.best.chains, 'chain')}"
    return Value(in_flight.value, f"{units.significant(in_flight.value, 3)} outstanding loads", where)


def _ratio(values: Sequence[float]) -> float:
    return values[0] / values[1]


def _curve(points: Sequence[LatencyPoint], target_half_width: float | None) -> ParallelCurve | None:
    """Return the curve of the *points* of one CPU and node; ``None`` if none was measured."""
    measured = [(point, ns) for point in points if (ns := latency_of(point, target_half_width)) is not None]
    if not measured:
        return None
    one = next((ns for point, ns in measured if point.chains == 1), None)
    table = ParallelCurve.table_of(
        {
            "chains": point.chains,
            "load_ns": ns,
            "in_flight": None if one is None else combined([one, ns], _ratio, "loads"),
            "loop_overhead_ns": point.overhead_ns,
        }
        for point, ns in sorted(measured, key=lambda item: item[0].chains)
    )
    first = measured[0][0]
    return ParallelCurve(
        cpu=first.cpu,
        node=first.nodes[0],
        size_bytes=first.size_bytes,
        page=(first.placements or ())[0].pages.obtained,
        table=table,
        min_gain=MIN_GAIN,
        enough_chains=enough_chains(table.rows),
    )


def enough_chains(points: Sequence[TableRow]) -> int | None:
    """Return the fewest chains of *points*, ascending, with which no larger number gains ``MIN_GAIN``.

    ``None`` if that is the largest.
    """
    for index, point in enumerate(points[:-1]):
        gains = [combined([point.load_ns, more.load_ns], _ratio, "fraction") for more in points[index + 1 :]]
        if all(gain is not None and (gain.interval or (gain.value,))[0] <= 1 + MIN_GAIN for gain in gains):
            return int(point.chains)
    return None
