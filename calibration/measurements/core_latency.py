# SPDX-License-Identifier: Apache-2.0
"""Core latency: idle latency from every core to its nearest memory, one core at a time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import log
from operator import attrgetter
from statistics import NormalDist, median
from typing import ClassVar, Literal, NamedTuple

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.statistics import Estimate, combined, estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.cores import deviations_chart
from calibration.measurements.base import Declaration, GridValues, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.chase import (
    ChaseSettings,
    chain_flags,
    chain_memory,
    chase_flags,
    idle_bytes,
    lap_flags,
    latency_of,
    missing_places,
)
from calibration.measurements.evidence import require_any
from calibration.measurements.metric_rows import ALIKE, MEMORY_LOADS, fraction, latency
from calibration.measurements.sut import Place, Sut
from calibration.measurements.table import TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import LatencyResult

MIN_SLOWDOWN = 0.05
"""Least relative distance of a slow core from the median of its node: its place on a mesh or ring makes less."""

FALSE_ALARMS = 0.01
"""Of runs without a slow core, at most this share flags any, whatever the number of cores (Bonferroni)."""

NORMAL_MAD = 1.4826
"""Standard deviation of normal values, divided by their median absolute deviation."""


class CoreLatencySettings(ChaseSettings):
    """One CPU of each core, with *windows* of *hops* loads: short, because a large machine has hundreds of cores."""

    placements: PositiveInt = 1
    windows: PositiveInt = 3
    hops: PositiveInt = 10_000
    target_half_width: HalfWidth = 0.03


class SlowCore(Model):
    """A core with more latency than the others of its node: ``slowdown`` is relative to their median."""

    cpu: int
    node: int
    slowdown: Estimate


class NodeRow(NamedTuple):
    """The cores whose nearest memory is ``node``, fastest first."""

    node: int
    points: tuple[TableRow, ...]

    @property
    def median_ns(self) -> float:
        """The median of the latencies."""
        return _middle(self.points)


class CoreLatencyValues(GridValues):
    """Latency in ns per load of one CPU per core, ascending, to memory of ``node``; the ``slow`` ones, slowest first.

    ``slow_limit`` is the relative distance from the median of a node that the whole interval of a slow core is beyond.
    """

    kind: Literal["core_latency"] = "core_latency"
    slow_limit: float
    slow: tuple[SlowCore, ...]

    axes: ClassVar = {"cpu": int}
    columns: ClassVar = {"node": int, "latency_ns": Estimate}

    @property
    def rows(self) -> list[NodeRow]:
        """The points by node of their memory."""
        ordered = sorted(self.points, key=lambda point: (point.node, point.latency_ns.value, point.cpu))
        return [NodeRow(node, tuple(points)) for node, points in groupby(ordered, key=attrgetter("node"))]


class CoreLatency(Declaration[CoreLatencySettings, CoreLatencyValues]):
    """A random chase from one CPU of every core, one after another, over one chain for each node."""

    title = "Core latency"
    question = "Is every core as near to its memory as the others of its node?"
    metric_rows = (
        latency(
            "core_latency.{core:lowest|median|highest}_ns",
            "one load from the nearest memory by the core with the least latency, the most, or their median",
            "local_latency",
        ),
        fraction(
            "core_latency.spread",
            "difference of the slowest and the fastest core, by their median",
            "local_latency",
            better="lower",
            tolerance=ALIKE,
            depends=MEMORY_LOADS,
        ),
    )

    def steps(self, sut: Sut, settings: CoreLatencySettings) -> Iterator[Planned]:
        """Yield one step with one CPU of every core."""
        places = [Place(cpu, sut.home(node)) for node in sut.cpu_nodes for cpu in sut.one_per_core(sut.cpus_of(node))]
        if len(places) < 2:
            yield self.not_planned("there is only one core to measure, which the idle latency does")
            return
        cores = Counter(place.node for place in places)
        sizes = {node: idle_bytes(sut, settings, node, count) for node, count in cores.items()}
        largest = max(sizes.values())
        own = {node: "" if size == largest else f":{size}" for node, size in sizes.items()}
        yield self.step(
            units.plural(len(places), "core"),
            "latency",
            {
                "at": [f"{place}{own[place.node]}" for place in places],
                **settings.random_options(sut, largest),
            },
            cpus=[place.cpu for place in places],
            memory_bytes=chain_memory(sizes),
            cost_s=settings.setup_s(largest) + len(places) * settings.walk_s(largest),
            setup_s=settings.setup_s(largest),
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield all cores; one without a value is listed with its reason."""
        found = read_result(document, LatencyResult).points
        measured = [(point, ns) for point in found if (ns := latency_of(point, step.target_half_width)) is not None]
        require_any(measured, found, "core's latency")
        table = CoreLatencyValues.table_of(
            {"cpu": point.cpu, "node": point.nodes[0], "latency_ns": ns}
            for point, ns in sorted(measured, key=lambda item: item[0].cpu)
        )
        limit, slow = slow_cores(table.rows)
        yield Parsed(
            values=CoreLatencyValues(table=table, slow_limit=limit, slow=slow),
            flags=(
                *chase_flags(document, found),
                *chain_flags(sut, found),
                *lap_flags(sut, document, found),
                *_slow_flags(slow),
            ),
            missing=missing_places(found),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield each core's deviation from the median of its node (per cent), for more than two cores."""
        for measurement in run.of(self.kind):
            values: CoreLatencyValues = measurement.values
            if len(values.points) > 2:
                rows = {
                    f"node {row.node}: {units.measured(row.median_ns, 'ns')}": (
                        row.median_ns,
                        {point.cpu: point.latency_ns for point in row.points},
                    )
                    for row in values.rows
                }
                yield deviations_chart(measurement, rows, nodes=run.nodes, what="Latency")

    def summary(self, measured: Sequence[CoreLatencyValues]) -> Iterator[str]:
        """Yield the median, and the slow cores or the core with the highest latency."""
        for values in measured:
            if values.slow:
                worst = values.slow[0]
                yield (
                    f"Slow: {units.plural(len(values.slow), 'core')} of {len(values.points)}, worst CPU {worst.cpu}, "
                    f"{units.percent(worst.slowdown.value)} above the median of its node."
                )
            else:
                top = max(values.points, key=lambda point: point.latency_ns.value)
                yield (
                    f"Latency by core: at most {units.percent(top.latency_ns.value / _middle(values.points) - 1)} "
                    f"above the median, on CPU {top.cpu}; none of {units.plural(len(values.points), 'core')} is "
                    "clearly slower."
                )

    def metrics(self, values: CoreLatencyValues) -> Iterator[Metric]:
        """Yield the lowest, median and highest latency, and their spread."""
        ordered = sorted(values.points, key=lambda point: point.latency_ns.value)
        latencies = [point.latency_ns for point in ordered]
        yield self.metric("lowest_ns", f"{self.title}, lowest", latencies[0])
        whole = [point.latency_ns for point in in_all_rounds(values.points)]
        if (median_ns := combined(whole, median, "ns")) is not None:
            yield self.metric("median_ns", f"{self.title}, median of the cores", median_ns)
        yield self.metric("highest_ns", f"{self.title}, highest", latencies[-1])
        if (spread := combined(whole, _spread, "fraction")) is not None:
            yield self.metric("spread", f"{self.title}, spread of the cores", spread)


def _spread(latencies: Sequence[float]) -> float:
    return (max(latencies) - min(latencies)) / median(latencies)


def _middle(points: Iterable[TableRow]) -> float:
    return float(median(point.latency_ns.value for point in points))


def in_all_rounds(points: Sequence[TableRow]) -> list[TableRow]:
    """Return those of *points* that have most rounds: a core that lacks one would take it from all."""
    rounds = max((point.latency_ns.centre_of_rounds.keys() for point in points), key=len)
    return [point for point in points if point.latency_ns.centre_of_rounds.keys() == rounds]


def slow_cores(points: Sequence[TableRow]) -> tuple[float, tuple[SlowCore, ...]]:
    """Return the limit of a slow core among *points*, and the slow cores, slowest first.

    A core is compared with the median of its node in each round, which removes what changed for all of them from round
    to round. It is slow if the whole interval of that is beyond the limit: ``MIN_SLOWDOWN``, or more if the cores of
    the machine differ more, so that normally distributed differences, whatever their size, exceed it by chance in at
    most ``FALSE_ALARMS`` of all runs. The spread of the cores is the median of their absolute deviations, which slow
    cores, if fewer than half, hardly change. Two cores are never told apart: neither is known to be the usual one. A
    core that lacks a round is not compared.
    """
    points = in_all_rounds(points)
    ratios = list(_relative(points))
    deviations = [abs(log(ratio.value)) for _, ratio in ratios]
    chance = NormalDist().inv_cdf(1 - FALSE_ALARMS / len(points))
    limit = max(MIN_SLOWDOWN, chance * NORMAL_MAD * median(deviations)) if deviations else MIN_SLOWDOWN
    slow = [
        SlowCore(cpu=point.cpu, node=point.node, slowdown=_less_one(ratio))
        for point, ratio in ratios
        if len(points) > 2 and ratio.interval is not None and ratio.interval[0] > 1 + limit
    ]
    return limit, tuple(sorted(slow, key=lambda core: -core.slowdown.value))


def _relative(points: Sequence[TableRow]) -> Iterator[tuple[TableRow, Estimate]]:
    """Yield each of *points* with its latency relative to the median of its node, by round.

    A node with fewer than three cores is compared with all of them.
    """
    by_node = grouped((point.node, point) for point in points)
    middles = {node: _centres(own if len(own) > 2 else points) for node, own in by_node.items()}
    for point in points:
        ratios = [ns / middle for ns, middle in zip(point.latency_ns.centres, middles[point.node], strict=True)]
        yield point, estimate([[ratio] for ratio in ratios], "fraction", rounds=range(len(ratios)))


def _centres(points: Sequence[TableRow]) -> list[float]:
    """Return the median of *points* in each round."""
    return [median(values) for values in zip(*(point.latency_ns.centres for point in points), strict=True)]


def _less_one(ratio: Estimate) -> Estimate:
    """Return *ratio* as a difference."""
    return estimate(
        [[value - 1 for value in placement] for placement in ratio.samples],
        "fraction",
        rounds=ratio.rounds,
    )


def _slow_flags(slow: Sequence[SlowCore]) -> Iterator[Flag]:
    """Yield a flag that names the *slow* cores."""
    if slow:
        worst = slow[0]
        yield flag(
            "SLOW_CORE",
            f"{units.numbered('CPU', [core.cpu for core in slow])}, worst CPU {worst.cpu}: its loads "
            f"from memory take {worst.slowdown.value * 100:.0f} % longer than those of the others of node {worst.node}",
        )
