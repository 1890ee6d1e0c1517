# SPDX-License-Identifier: Apache-2.0
"""Bandwidth scaling: how many threads saturate the memory, and what each adds."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import ClassVar, Literal

from calibration.base import units
from calibration.base.grouping import grouped, in_turn
from calibration.base.model import Model
from calibration.base.statistics import Estimate
from calibration.charts.base import Chart
from calibration.charts.curves import GB_S, Axis, curves_of, line_chart
from calibration.measurements.base import GridValues, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.evidence import estimate_of
from calibration.measurements.metric_rows import BANDWIDTH_REPEATS, MEMORY_TRAFFIC, bandwidth, fraction
from calibration.measurements.platform import Setting, Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    Mix,
    Part,
    TrafficDeclaration,
    TrafficSettings,
    shape_options,
    shared_buffer_bytes,
)
from calibration.measurements.traffic_points import measured_points, missing_points, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthPlacement, BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

SATURATED_FRACTION = 0.95
"""Fraction of the best bandwidth that counts as saturated: differences above it are within the spread on most
machines."""

SATURATED_GAIN = 0.03
"""Memory is saturated if the last threads together add less than this."""

FEWER = 8
"""The last threads are one in so many, one at least: a single one among hundreds adds less than the spread of a value,
saturated or not. They come from all last-level caches alike."""

Scope = Literal["node", "machine"]

Order = Literal["fill", "spread", "memory_only"]

ORDERS: dict[Order, str] = {"fill": "node after node", "spread": "spread over the nodes"}
"""Descriptions of the orders in which threads are added to their own memory."""


class ScalingSettings(TrafficSettings):
    """One *mix* by 1, 2, 4 ... and all CPUs, in one *shape*; by default that kept for the platform."""

    target_half_width: HalfWidth = 0.02
    mix: Mix = "reads"
    shape: Shape | None = None


class Saturation(Model):
    """Whether ``threads``, one on every core of the first node or of the machine, saturate its memory.

    ``fewer_share`` is what ``fewer_threads``, balanced over the last-level caches, moved of that, by placement.
    ``saturated`` if its interval shows that the last threads together add less than ``SATURATED_GAIN``, false if it
    shows that they add more, ``None`` if it shows neither.
    """

    scope: Scope
    threads: int
    fewer_threads: int
    fewer_share: Estimate
    saturated: bool | None


class BandwidthScalingValues(GridValues):
    """The curve of one order: ``fill`` uses the cores of one node before those of the next, ``spread`` alternates.

    ``memory_only`` uses those of the first node, with the memory of a node without CPUs.
    Bandwidth of ``threads`` CPUs on ``cores`` cores of ``nodes`` is in MB/s by the rule for memory's bytes,
    ``per_thread_mb_s`` that divided by the threads; ``slowest_mb_s`` and ``fastest_mb_s`` are those of single threads,
    mean over the windows.

    ``best_threads`` had the highest bandwidth; ``enough_threads`` is the smallest number that reached
    ``enough_fraction`` of it.
    """

    kind: Literal["bandwidth_scaling"] = "bandwidth_scaling"
    order: Order
    mix: str
    best_threads: int
    enough_threads: int
    enough_fraction: float
    saturation: tuple[Saturation, ...] = ()
    saturated_gain: float = SATURATED_GAIN

    axes: ClassVar = {"threads": int}
    columns: ClassVar = {
        "cores": int,
        "nodes": tuple[int, ...],
        "group": str,
        "setting": Setting,
        "bandwidth_mb_s": Estimate,
        **dict.fromkeys(("per_thread_mb_s", "slowest_mb_s", "fastest_mb_s"), float),
    }

    @property
    def variant(self) -> str:
        """What distinguishes the names of its metrics: the order, or the memory-only node."""
        return f"node{self.points[0].nodes[0]}" if self.order == "memory_only" else self.order

    @property
    def words(self) -> str:
        """The same for readers."""
        return ORDERS.get(self.order) or f"memory of node {self.points[0].nodes[0]}"


class BandwidthScaling(TrafficDeclaration[ScalingSettings, BandwidthScalingValues]):
    """The same traffic by more and more CPUs: one per core first, then the cores' other threads."""

    title = "Bandwidth by number of threads"
    question = "How many threads does it take to load the memory fully, and what does each of them add?"
    metric_rows = (
        bandwidth(
            "bandwidth_scaling.{order:fill|spread}.{threads}.bandwidth_mb_s",
            "bandwidth of so many threads, which fill node after node or are spread over the nodes",
            "mixed_bandwidth",
        ),
        bandwidth(
            "bandwidth_scaling.node{memory_node}.{threads}.bandwidth_mb_s",
            "bandwidth of so many threads of the first node from a memory-only node",
            "mixed_bandwidth",
        ),
        *(
            fraction(
                f"bandwidth_scaling.{variant}.{{part:node|machine}}.fewer_share",
                "share of its cores' bandwidth that a node or the machine reaches with an eighth of the cores idle: "
                "near 100 % if memory is the limit",
                "mixed_bandwidth",
                better="higher",
                tolerance=BANDWIDTH_REPEATS,
                depends=MEMORY_TRAFFIC,
            )
            for variant in ("{order:fill|spread}", "node{memory_node}")
        ),
    )

    def steps(self, sut: Sut, settings: ScalingSettings) -> Iterator[Planned]:
        """Yield one step for the threads of all orders, on the same buffers; CPUs that two orders share run once.

        And one for each memory-only node beside the first.
        If the profile has no shape, traffic uses the one kept for the platform and the mix.
        """
        orders: Sequence[Order] = tuple(ORDERS) if len(sut.cpu_nodes) > 1 else ("fill",)
        if len(orders) == 1:
            yield self.not_planned("all CPUs that may be used are in one node", "Threads spread over the nodes")
        shape = shape_options(settings, settings.shape, sut.traffic_shape, (settings.mix,))
        chosen = dict.fromkeys(tuple(sorted(cpus)) for order in orders for cpus in cpus_by_count(sut, order))
        own = " and ".join(ORDERS[order] for order in orders) if len(orders) > 1 else "one node"
        alone = [tuple(sorted(cpus)) for cpus in cpus_by_count(sut, "memory_only")]
        for suffix, where, groups in (
            ("", own, [parts_of(sut, cpus) for cpus in chosen]),
            *(
                (f"-node{node}", f"memory of node {node}", [[Part(cpus, node)] for cpus in alone])
                for node in sut.memory_only_beside(sut.cpu_nodes[0])
            ),
        ):
            yield self.traffic_step(
                f"{where}, {units.plural(len(groups), 'group')}",
                groups,
                (settings.mix,),
                shared_buffer_bytes(sut, groups, (settings.mix,)),
                {"delay": 0, **settings.options(), **shape},
                cost=settings.cost_s,
                repeated=settings,
                suffix=suffix,
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the curve of each order; a number of threads without a value is listed as missing."""
        found = read_result(document, BandwidthResult).points
        if found[0].nodes[0] != sut.home(sut.node_of(found[0].cpus[0])):
            yield self.curve(document, found, step.target_half_width, sut, "memory_only")
            return
        points = {frozenset(point.cpus): point for point in found}
        fill, spread = ([frozenset(cpus) for cpus in cpus_by_count(sut, order)] for order in ORDERS)
        only_spread = set(spread) - set(fill) if points.keys() >= set(spread) else set()
        filling = [point for cpus, point in points.items() if cpus not in only_spread]
        yield self.curve(document, filling, step.target_half_width, sut, "fill")
        if only_spread:
            yield self.curve(document, [points[cpus] for cpus in spread], step.target_half_width, sut, "spread")

    def curve(
        self, document: ProbeDocument, points: Sequence[BandwidthPoint], target: float | None, sut: Sut, order: Order
    ) -> Parsed:
        """Return the curve of the *points* of *order*. Raises ``InputError`` if none has a value."""
        found = measured_points(points, target)
        table = BandwidthScalingValues.table_of(
            {
                "threads": point.threads,
                "cores": len({sut.siblings(cpu) for cpu in point.cpus}),
                "nodes": tuple(sorted(set(point.nodes))),
                "group": point.group,
                "setting": mix.setting,
                "bandwidth_mb_s": mix.bandwidth_mb_s,
                "per_thread_mb_s": mix.bandwidth_mb_s.value / point.threads,
                "slowest_mb_s": min(mix.per_thread_mb_s),
                "fastest_mb_s": max(mix.per_thread_mb_s),
            }
            for point, mix in found
        )
        best = max(table.rows, key=lambda row: row.bandwidth_mb_s.value)
        enough_mb_s = SATURATED_FRACTION * best.bandwidth_mb_s.value
        measured = {f"{point.threads} threads": mix for point, mix in found}
        return Parsed(
            suffix=f"-{order}" if order == "spread" else "",
            values=BandwidthScalingValues(
                order=order,
                mix=points[0].mix,
                table=table,
                best_threads=best.threads,
                enough_threads=min(row.threads for row in table.rows if row.bandwidth_mb_s.value >= enough_mb_s),
                enough_fraction=SATURATED_FRACTION,
                saturation=tuple(
                    found_saturation
                    for scope, whole in whole_counts(sut, order).items()
                    if (found_saturation := saturation(points, scope, whole, target)) is not None
                ),
            ),
            flags=tuple(traffic_flags(sut, document, points, measured)),
            missing=missing_points(points),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield bandwidth (GB/s) against threads, a curve per order with at least three points."""
        found = run.values(self.kind)
        numbers = sorted({float(point.threads) for values in found for point in values.points})
        if len(numbers) < 3:
            return
        enough = {float(count): units.plural(count, "thread") for count in (values.enough_threads for values in found)}
        counts = " or ".join(f"{count:g}" for count in enough)
        shares = sorted({units.exact_percent(values.enough_fraction) for values in found})
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (f"{values.mix}, {values.words}", (float(point.threads), point.bandwidth_mb_s))
                for values in found
                for point in values.points
            ),
            (
                Axis(
                    "Threads",
                    kind="octaves",
                    ticks=numbers if len(numbers) < 5 else None,
                    text=lambda count: units.plural(round(count), "thread"),
                ),
                GB_S,
            ),
            marked=enough.items(),
            alt=f"Bandwidth against the number of threads, of which {counts} are enough",
            caption=f"The dashed line is the fewest threads that reach {' and '.join(shares)} of the best.",
        )

    def metrics(self, values: BandwidthScalingValues) -> Iterator[Metric]:
        """Yield the bandwidth of each number of threads."""
        how = "" if values.order == "fill" else f", {values.words}"
        for point in values.points:
            title = f"Bandwidth of {units.plural(point.threads, 'thread')}, {values.mix}{how}"
            yield self.metric(f"{values.variant}.{point.threads}.bandwidth_mb_s", title, point.bandwidth_mb_s)
        for item in values.saturation:
            title = f"Share of its bandwidth with {units.plural(item.fewer_threads, 'thread')}, the {item.scope}{how}"
            yield self.metric(f"{values.variant}.{item.scope}.fewer_share", title, item.fewer_share)


def cpus_in_order(sut: Sut, order: Order) -> list[int]:
    """Return all CPUs in the order in which threads are added: the first thread of every core, then the others.

    ``fill`` goes through the nodes one after another, ``spread`` takes one CPU of each in turn, ``memory_only`` has
    those of the first node. Within a node, CPUs come from its last-level caches in turn: a core complex may move less
    than its share of the node's memory.
    """
    nodes = sut.cpu_nodes[:1] if order == "memory_only" else sut.cpu_nodes
    firsts = [sut.balanced(sut.one_per_core(sut.cpus_of(node))) for node in nodes]
    others = [sut.balanced(set(sut.cpus_of(node)).difference(first)) for node, first in zip(nodes, firsts, strict=True)]
    found: list[int] = []
    for lists in (firsts, others):
        found += [cpu for cpus in lists for cpu in cpus] if order == "fill" else in_turn(lists)
    return found


def cpus_by_count(sut: Sut, order: Order) -> list[list[int]]:
    """Return the CPUs of each number of threads to measure.

    The numbers are the powers of two, the cores of the first node if nodes are filled, all cores, and all CPUs: the
    points where a curve bends. Before the cores of a node, and before all, comes the number that tells saturation.
    """
    cpus = cpus_in_order(sut, order)
    wholes = whole_counts(sut, order)
    counts = {len(cpus), *wholes.values(), *(fewer for whole in wholes.values() if (fewer := fewer_threads(whole)))}
    counts |= {1 << power for power in range(len(cpus).bit_length()) if 1 << power <= len(cpus)}
    return [cpus[:count] for count in sorted(counts)]


def whole_counts(sut: Sut, order: Order) -> dict[Scope, int]:
    """Return the numbers of threads that have every core of the first node, if nodes are filled, and of the machine."""
    cores = {node: len(sut.one_per_core(sut.cpus_of(node))) for node in sut.cpu_nodes}
    first: dict[Scope, int] = {"node": cores[sut.cpu_nodes[0]]}
    if order == "memory_only":
        return first
    return {**(first if order == "fill" and len(cores) > 1 else {}), "machine": sum(cores.values())}


def fewer_threads(whole: int) -> int:
    """Return the threads to compare *whole* with: an eighth of them less, one at least. 0 for a single one."""
    return whole - max(1, whole // FEWER)


def saturation(
    points: Sequence[BandwidthPoint], scope: Scope, whole: int, target_half_width: float | None
) -> Saturation | None:
    """Return whether *whole* threads saturate the memory, from *points*; ``None`` if either number lacks a value."""
    by_threads = {point.threads: point.placements for point in points if point.placements}
    fewer = fewer_threads(whole)
    if fewer not in by_threads or whole not in by_threads:
        return None
    rates = {
        count: {(placement.round, placement.seed): median(placement.windows_mb_s) for placement in by_threads[count]}
        for count in (fewer, whole)
    }
    both = [placement for placement in by_threads[fewer] if (placement.round, placement.seed) in rates[whole]]
    if not both:
        return None

    def share(placement: BandwidthPlacement) -> list[float]:
        key = (placement.round, placement.seed)
        return [rates[fewer][key] / rates[whole][key]]

    found = estimate_of(both, share, "fraction", target_half_width)
    enough = 1 / (1 + SATURATED_GAIN)
    saturated = None
    if found.interval is not None and (found.interval[0] > enough or found.interval[1] <= enough):
        saturated = found.interval[0] > enough
    return Saturation(scope=scope, threads=whole, fewer_threads=fewer, fewer_share=found, saturated=saturated)


def parts_of(sut: Sut, cpus: Sequence[int]) -> list[Part]:
    """Return *cpus* by node, each paired with the nearest memory."""
    by_node = grouped((sut.node_of(cpu), cpu) for cpu in sorted(cpus))
    return [Part(tuple(own), sut.home(node)) for node, own in sorted(by_node.items())]
