# SPDX-License-Identifier: Apache-2.0
"""Bandwidth scaling: how many threads saturate the memory, and what each adds."""

from collections.abc import Iterator, Sequence
from typing import Literal

from calibration import units
from calibration.charts.base import Chart
from calibration.charts.curves import GB_S, Axis, curves_of, line_chart
from calibration.context.model import Context
from calibration.measurements.base import HalfWidth, MeasuredRun, Metric, MetricPattern, Parsed, Planned, Step, Values
from calibration.measurements.platform import Shape, ShapeReference
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    Mix,
    Part,
    Run,
    TrafficDeclaration,
    TrafficSettings,
    shape_options,
    shared_buffer_bytes,
)
from calibration.measurements.traffic_points import Setting, measured_points, missing_points, setting_of, traffic_flags
from calibration.model import Model
from calibration.statistics import Estimate
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

SATURATED_FRACTION = 0.95
"""Fraction of the best bandwidth that counts as saturated: differences above it are within the spread on most
machines."""

Order = Literal["fill", "spread"]

ORDERS: dict[Order, str] = {"fill": "node after node", "spread": "spread over the nodes"}
"""Descriptions of the orders in which threads are added."""


class ScalingSettings(TrafficSettings):
    """One *mix* by 1, 2, 4 ... and all CPUs, in one *shape*; by default that kept for the platform."""

    target_half_width: HalfWidth = 0.02
    mix: Mix = "reads"
    shape: Shape | None = None


class ScalingPoint(Model):
    """Bandwidth of ``threads`` CPUs on ``cores`` cores of ``nodes``, in MB/s by the rule for memory's bytes.

    ``per_thread_mb_s`` is the bandwidth divided by the threads; ``slowest_mb_s`` and ``fastest_mb_s`` are those of
    single threads, mean over the windows.
    """

    threads: int
    cores: int
    nodes: tuple[int, ...]
    group: str
    setting: Setting
    bandwidth_mb_s: Estimate
    per_thread_mb_s: float
    slowest_mb_s: float
    fastest_mb_s: float


class BandwidthScalingValues(Values):
    """The curve of one order: ``fill`` uses the cores of one node before those of the next, ``spread`` alternates.

    ``best_threads`` had the highest bandwidth; ``enough_threads`` is the smallest number that reached
    ``enough_fraction`` of it.
    """

    kind: Literal["bandwidth_scaling"] = "bandwidth_scaling"
    order: Order
    mix: str
    points: tuple[ScalingPoint, ...]
    best_threads: int
    enough_threads: int
    enough_fraction: float


class BandwidthScaling(TrafficDeclaration[ScalingSettings, BandwidthScalingValues]):
    """The same traffic by more and more CPUs: one per core first, then the cores' other threads."""

    kind = "bandwidth_scaling"
    title = "Bandwidth by number of threads"
    question = "How many threads does it take to load the memory fully, and what does each of them add?"
    settings = ScalingSettings
    values = BandwidthScalingValues
    metric_patterns = (
        MetricPattern(
            r"bandwidth_scaling\.(?:fill|spread)\.\d+\.bandwidth_mb_s",
            "MB/s",
            "higher",
            "bandwidth of so many threads, which fill node after node or are spread over the nodes",
        ),
    )

    def planned(self, context: Context, settings: ScalingSettings, kept: ShapeReference | None) -> Iterator[Planned]:
        """Yield one step that fills node after node and, with several nodes, one that spreads over them.

        If the profile has no shape, traffic uses the one *kept* for the platform and the mix.
        """
        sut = Sut(context)
        if not sut.cpus:
            yield self.not_planned("no CPU found that may be used")
            return
        orders: list[Order] = ["fill", "spread"]
        if len(sut.cpu_nodes) == 1:
            orders = ["fill"]
            yield self.not_planned("all CPUs that may be used are in one node", "Threads spread over the nodes")
        shape = shape_options(settings, settings.shape, kept, (settings.mix,))
        for order in orders:
            groups = [parts_of(sut, cpus) for cpus in cpus_by_count(sut, order)]
            sizes = shared_buffer_bytes(sut, groups, (settings.mix,))
            runs = [Run(parts, settings.mix, size) for parts, size in zip(groups, sizes, strict=True)]
            cost_s = settings.cost_s(runs)
            yield self.traffic_step(
                f"{ORDERS[order] if len(orders) > 1 else 'one node'}, {len(groups)} counts",
                groups,
                (settings.mix,),
                sizes,
                {"delay": 0, **settings.options(), **shape},
                cost_s=cost_s,
                repeated=settings,
                suffix="" if order == "fill" else f"-{order}",
            )

    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield the curve; a number of threads without a value is listed as missing."""
        points = read_result(document, BandwidthResult).points
        sut = Sut(context)
        target = step.target_half_width
        found = measured_points(points, target)
        values = tuple(
            ScalingPoint(
                threads=point.threads,
                cores=len({sut.siblings(cpu) for cpu in point.cpus}),
                nodes=tuple(sorted(set(point.nodes))),
                group=point.group,
                setting=setting_of(point),
                bandwidth_mb_s=mix.bandwidth_mb_s,
                per_thread_mb_s=mix.bandwidth_mb_s.value / point.threads,
                slowest_mb_s=min(mix.per_thread_mb_s),
                fastest_mb_s=max(mix.per_thread_mb_s),
            )
            for point, mix in found
        )
        best = max(values, key=lambda point: point.bandwidth_mb_s.value)
        enough = [
            value for value in values if value.bandwidth_mb_s.value >= SATURATED_FRACTION * best.bandwidth_mb_s.value
        ]
        measured = {f"{point.threads} threads": mix for point, mix in found}
        yield Parsed(
            id=step.id,
            values=BandwidthScalingValues(
                order="spread" if step.id.endswith("-spread") else "fill",
                mix=points[0].mix,
                points=values,
                best_threads=best.threads,
                enough_threads=min(point.threads for point in enough),
                enough_fraction=SATURATED_FRACTION,
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
        shares = sorted({units.exact_percent(values.enough_fraction) for values in found})
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (f"{values.mix}, {ORDERS[values.order]}", (float(point.threads), point.bandwidth_mb_s))
                for values in found
                for point in values.points
            ),
            (Axis("Threads", kind="octaves", ticks=numbers if len(numbers) < 5 else None), GB_S),
            marked=enough.items(),
            alt=f"Bandwidth in GB/s against the number of threads: {', '.join(enough.values())} are enough.",
            caption=f"The dashed line is the fewest threads that reach {' and '.join(shares)} of the best.",
        )

    def metrics(self, values: BandwidthScalingValues) -> Iterator[Metric]:
        """Yield the bandwidth of each number of threads."""
        how = "" if values.order == "fill" else ", spread over the nodes"
        for point in values.points:
            title = f"Bandwidth of {units.plural(point.threads, 'thread')}, {values.mix}{how}"
            yield self.metric(f"{values.order}.{point.threads}.bandwidth_mb_s", title, point.bandwidth_mb_s)


def cpus_in_order(sut: Sut, order: Order) -> list[int]:
    """Return all CPUs in the order in which threads are added: the first thread of every core, then the others.

    ``fill`` goes through the nodes one after another, ``spread`` takes one CPU of each in turn.
    """
    firsts = {node: sut.one_per_core(sut.cpus_of(node)) for node in sut.cpu_nodes}
    others = {node: sorted(set(sut.cpus_of(node)) - set(cpus)) for node, cpus in firsts.items()}
    found: list[int] = []
    for by_node in (firsts, others):
        lists = list(by_node.values())
        if order == "fill":
            found += [cpu for cpus in lists for cpu in cpus]
        else:
            longest = max(map(len, lists))
            found += [cpus[turn] for turn in range(longest) for cpus in lists if turn < len(cpus)]
    return found


def cpus_by_count(sut: Sut, order: Order) -> list[list[int]]:
    """Return the CPUs of each number of threads to measure.

    The numbers are the powers of two, the cores of the first node if nodes are filled, all cores, and all CPUs: the
    points where a curve bends.
    """
    cpus = cpus_in_order(sut, order)
    cores = len(sut.one_per_core(cpus))
    counts = {len(cpus), cores}
    if order == "fill":
        counts.add(len(sut.one_per_core(sut.cpus_of(sut.cpu_nodes[0]))))
    counts |= {1 << power for power in range(len(cpus).bit_length()) if 1 << power <= len(cpus)}
    return [cpus[:count] for count in sorted(counts)]


def parts_of(sut: Sut, cpus: Sequence[int]) -> list[Part]:
    """Return *cpus* by node, each paired with the nearest memory."""
    by_node: dict[int, list[int]] = {}
    for cpu in sorted(cpus):
        by_node.setdefault(sut.node_of(cpu), []).append(cpu)
    return [Part(tuple(own), sut.home(node)) for node, own in sorted(by_node.items())]


MEASUREMENT = BandwidthScaling()
