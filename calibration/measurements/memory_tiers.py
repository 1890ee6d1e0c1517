# SPDX-License-Identifier: Apache-2.0
"""Memory tiers: bandwidth of a node's own memory and memory-only nodes together, by the weights of their pages."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from calibration.base import units
from calibration.base.cpulists import format_cpulist, parse_cpulist
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.statistics import Estimate, combined
from calibration.charts.base import Chart
from calibration.charts.curves import GB_S, Axis, curves_of, line_chart
from calibration.measurements.base import GridValues, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.evidence import require_any
from calibration.measurements.metric_rows import BANDWIDTH_REPEATS, MEMORY_TRAFFIC, bandwidth, fraction
from calibration.measurements.platform import Setting, Shape
from calibration.measurements.sut import HUGE_BYTES, Sut, whole_pages
from calibration.measurements.traffic import (
    BUFFERS,
    Memory,
    Mix,
    Part,
    Run,
    TrafficDeclaration,
    TrafficSettings,
    memory_bound_thread_bytes,
    memory_bytes,
    read_group,
    shape_options,
)
from calibration.measurements.traffic_points import MixBandwidth, missing_points, mix_bandwidth, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

BY_KERNEL = "kernel"
"""In place of weights: pages spread by the kernel, by its own."""

BASE_BYTES = 4096
"""What sutprobe takes sizes of arrays in."""

ROOM_BYTES = 6 * BASE_BYTES
"""Part of the pages of a buffer that its arrays leave unused, so that they can be apart; more than three need."""

Weight = Annotated[int, Field(ge=1, le=32)]


class MemoryTiersSettings(TrafficSettings):
    """One *mix* in one *shape*, by default that kept for the platform, with each of *weights*.

    A pair of weights is that of a node's own memory, and of all memory-only nodes near it together. The weights of the
    machine are measured too, and each tier alone.
    """

    target_half_width: HalfWidth = 0.02
    mix: Mix = "reads"
    shape: Shape | None = None
    weights: tuple[tuple[Weight, Weight], ...] = (
        (16, 1),
        (8, 1),
        (5, 1),
        (4, 1),
        (3, 1),
        (2, 1),
        (3, 2),
        (1, 1),
        (1, 2),
        (1, 3),
    )


class Tiers(NamedTuple):
    """Nodes with CPUs and memory, and the memory-only nodes that are equally near to all of them."""

    near: tuple[int, ...]
    far: tuple[int, ...]

    @property
    def words(self) -> str:
        """The nodes in words."""
        return f"{units.numbered('node', self.near)} with {units.numbered('node', self.far)}"


class BestWeights(Model):
    """The best weights of the nodes ``near``, with CPUs and memory, and ``far``, with memory alone, in this order.

    ``alike`` are weights that are not proved to have less bandwidth than ``weights``. ``near_mb_s`` and ``far_mb_s``
    are the bandwidths of each tier alone; ``machine_mb_s`` is that with ``machine``, the weights of the machine, and
    ``machine_share`` its share of the best.
    """

    near: tuple[int, ...]
    far: tuple[int, ...]
    weights: tuple[int, ...]
    bandwidth_mb_s: Estimate
    far_share: float
    alike: tuple[str, ...]
    near_mb_s: Estimate | None
    far_mb_s: Estimate | None
    machine: tuple[int, ...] | None
    machine_mb_s: Estimate | None
    machine_share: Estimate | None

    @property
    def tiers(self) -> Tiers:
        """The nodes."""
        return Tiers(self.near, self.far)


class MemoryTiersValues(GridValues):
    """Bandwidth in MB/s of a thread on each core of ``cpu_nodes``, by the weights of their pages.

    ``weights`` are those of these nodes and of ``far_nodes``, or ``kernel`` if the kernel spread the pages by its own.
    ``far_share`` is the share of pages on ``far_nodes``, read back.
    """

    kind: Literal["memory_tiers"] = "memory_tiers"
    mix: str
    tiers: tuple[BestWeights, ...]

    axes: ClassVar = {"cpu_nodes": str, "far_nodes": str, "weights": str}
    columns: ClassVar = {"setting": Setting, "far_share": float, "bandwidth_mb_s": Estimate}


class MemoryTiers(TrafficDeclaration[MemoryTiersSettings, MemoryTiersValues]):
    """All cores of a node on its own memory, on memory-only nodes, and on both by weights."""

    title = "Memory tiers"
    question = "How much do a node's own memory and memory-only nodes move together, and with which weights most?"
    metric_rows = (
        bandwidth(
            "memory_tiers.{cpu_node}.{which:best|machine}.bandwidth_mb_s",
            "bandwidth of the node's own memory and memory-only nodes together, with the best weights or the machine's",
            "mixed_bandwidth",
        ),
        fraction(
            "memory_tiers.{cpu_node}.machine_share",
            "share of the bandwidth with the best weights that the machine's weights reach",
            "mixed_bandwidth",
            better="higher",
            tolerance=BANDWIDTH_REPEATS,
            depends=MEMORY_TRAFFIC,
        ),
    )

    def steps(self, sut: Sut, settings: MemoryTiersSettings) -> Iterator[Planned]:
        """Yield one step for all weights of all tiers."""
        found = tiers_of(sut)
        if not found:
            alone = sut.context.memory_only_nodes
            none = "no CPUs with memory of their own" if alone else "every node with memory has CPUs"
            yield self.not_planned(f"{none}: no tiers")
            return
        kernel = sut.context.interleaving
        if kernel is None:
            yield self.not_planned("the kernel has no weights of nodes (Linux 6.9 and later have)", "Machine's weights")
        groups = [
            parts
            for tiers in found
            for parts in groups_of(sut, tiers, settings, kernel.weights if kernel else {}).values()
        ]
        sizes = [[turns_bytes(part, size, settings.mix) for part, size in sized(sut, parts)] for parts in groups]
        coarse = not fits(sut, groups, sizes, settings.mix)
        if coarse:  # base pages have the shares of any weights, however few there are
            sizes = [[whole_pages(size) for _, size in sized(sut, parts)] for parts in groups]
        while max(map(max, sizes)) > HUGE_BYTES and not fits(sut, groups, sizes, settings.mix):
            sizes = [[whole_pages(size // 2) for size in own] for own in sizes]
        yield self.traffic_step(
            f"{' and '.join(tiers.words for tiers in found)}, {units.plural(len(groups), 'group')}",
            groups,
            (settings.mix,),
            sizes,
            {
                "delay": 0,
                **settings.options(),
                **shape_options(settings, settings.shape, sut.traffic_shape, (settings.mix,)),
                **({"pages": "base"} if coarse else {}),
            },
            cost=settings.cost_s,
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the bandwidths by weights, and the best; weights without a value are listed as missing."""
        points = read_result(document, BandwidthResult).points
        rows: list[dict[str, Any]] = []
        found: list[BestWeights] = []
        measured: dict[str, MixBandwidth] = {}
        kernel = {} if sut.context.interleaving is None else sut.context.interleaving.weights
        for own in grouped((frozenset(point.cpus), point) for point in points).values():
            tiers = measured_tiers(own)
            by_weights = {
                weights_of(tiers, point): (mix, far_share(tiers, point))
                for point in own
                if (mix := mix_bandwidth(point, step.target_half_width)) is not None
            }
            for weights, (mix, share) in by_weights.items():
                text = weights_text(weights)
                measured[f"{tiers.words}, {text}"] = mix
                rows.append(
                    {
                        "cpu_nodes": format_cpulist(tiers.near),
                        "far_nodes": format_cpulist(tiers.far),
                        "weights": text,
                        "setting": mix.setting,
                        "far_share": share,
                        "bandwidth_mb_s": mix.bandwidth_mb_s,
                    }
                )
            if any(by_weights):
                found.append(best_weights(tiers, by_weights, kernel))
        require_any(measured, points, "point")
        yield Parsed(
            values=MemoryTiersValues(mix=points[0].mix, table=MemoryTiersValues.table_of(rows), tiers=tuple(found)),
            flags=tuple(traffic_flags(sut, document, points, measured)),
            missing=missing_points(points),
        )

    def metrics(self, values: MemoryTiersValues) -> Iterator[Metric]:
        """Yield the bandwidth with the best weights and with the machine's, and the share that these reach."""
        for best in values.tiers:
            where, node = f", {values.mix}, {best.tiers.words}", best.near[0]
            yield self.metric(f"{node}.best.bandwidth_mb_s", f"Bandwidth, best weights{where}", best.bandwidth_mb_s)
            if best.machine_mb_s is not None:
                title = f"Bandwidth, the machine's weights{where}"
                yield self.metric(f"{node}.machine.bandwidth_mb_s", title, best.machine_mb_s)
            if best.machine_share is not None:
                title = f"Share of the best bandwidth with the machine's weights{where}"
                yield self.metric(f"{node}.machine_share", title, best.machine_share)

    def summary(self, measured: Sequence[MemoryTiersValues]) -> Iterator[str]:
        """Yield the best weights of each set of tiers, beside one tier alone and the machine's weights."""
        for values in measured:
            for best in values.tiers:
                alike = f" (not proved to be better than {', '.join(best.alike)})" if best.alike else ""
                beside = [
                    f"{what} {units.headline(figure)}"
                    for what, figure in (
                        (f"{units.numbered('node', best.near)} alone", best.near_mb_s),
                        (f"{units.numbered('node', best.far)} alone", best.far_mb_s),
                        (f"with the machine's weights, {weights_text(best.machine or ())},", best.machine_mb_s),
                    )
                    if figure is not None
                ]
                yield (
                    f"{best.tiers.words[0].upper()}{best.tiers.words[1:]} move most, "
                    f"{units.headline(best.bandwidth_mb_s)}, at the weights {weights_text(best.weights)}{alike}"
                    f"{'; ' if beside else ''}{', '.join(beside)}."
                )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield bandwidth (GB/s) against the share of pages on memory-only nodes, a curve for each set of tiers."""
        found = run.values(self.kind)
        points = sorted((point for values in found for point in values.points), key=lambda point: point.far_share)
        best = [one for values in found for one in values.tiers]
        marked = {100 * one.far_share: f"best: {weights_text(one.weights)}" for one in best}
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (
                    Tiers(parse_cpulist(point.cpu_nodes), parse_cpulist(point.far_nodes)).words
                    + ", by the kernel" * (point.weights == BY_KERNEL),
                    (100 * point.far_share, point.bandwidth_mb_s),
                )
                for point in points
            ),
            (Axis("Pages on memory-only nodes", "%"), GB_S),
            marked=marked.items(),
            alt=f"Bandwidth against the share of pages on memory-only nodes, {', '.join(marked.values())}",
        )


def tiers_of(sut: Sut) -> list[Tiers]:
    """Return the tiers of *sut*: CPU nodes with memory by the memory-only nodes nearest to them, none if none is."""
    near = [node for node in sut.cpu_nodes if node in sut.memory_nodes]
    nearest = grouped((tuple(nearest_to(sut, node, near)), node) for node in sut.memory_only_nodes)
    return [Tiers(own, tuple(nodes)) for own, nodes in nearest.items() if own]


def nearest_to(sut: Sut, memory_node: int, near: Sequence[int]) -> list[int]:
    """Return those of the nodes *near* that are nearest to the memory of a node; all if distances are unknown."""
    distances = {node: sut.distance(node, memory_node) or 0 for node in near}
    return [node for node in near if distances[node] == min(distances.values())]


def groups_of(
    sut: Sut, tiers: Tiers, settings: MemoryTiersSettings, kernel: Mapping[int, int]
) -> dict[str, list[Part]]:
    """Return the groups to measure by the text of their weights: the tiers alone, *settings*, and *kernel*."""
    nodes = (*tiers.near, *tiers.far)
    pairs = ((near * len(tiers.far), far) for near, far in settings.weights)
    every = [
        (*(1 for _ in tiers.near), *(0 for _ in tiers.far)),
        *((*(near for _ in tiers.near), *(far for _ in tiers.far)) for near, far in pairs),
        (*(0 for _ in tiers.near), *(1 for _ in tiers.far)),
    ]
    known = all(node in kernel for node in nodes)
    if known:
        every.append(tuple(kernel[node] for node in nodes))
    groups = {}
    for weights in every:
        reduced = reduced_weights(weights)
        groups[weights_text(reduced)] = parts_of(sut, tiers, dict(zip(nodes, reduced, strict=True)))
    if known:
        groups[BY_KERNEL] = parts_of(sut, tiers, dict(kernel), by_kernel=True)
    return groups


def reduced_weights(weights: Sequence[int]) -> tuple[int, ...]:
    """Return the smallest *weights* with the same ratios."""
    return tuple(weight // gcd(*weights) for weight in weights)


def weights_text(weights: Sequence[int]) -> str:
    """Return the *weights* of nodes, in their order; none are the kernel's."""
    return ":".join(map(str, weights)) or BY_KERNEL


def parts_of(sut: Sut, tiers: Tiers, weights: Mapping[int, int], *, by_kernel: bool = False) -> list[Part]:
    """Return a thread on every core near, with pages on its own node and the far ones by *weights*; 0: none there."""
    parts = []
    for node in tiers.near:
        own = tuple((other, weights[other]) for other in (node, *tiers.far) if weights[other])
        spread = Memory(own[0][0], own, by_kernel) if len(own) > 1 else None
        parts.append(Part(tuple(sut.one_per_core(sut.cpus_of(node))), own[0][0], spread))
    return parts


def sized(sut: Sut, parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """Yield each of *parts* with the least size of its buffers that is beyond the caches."""
    return zip(parts, memory_bound_thread_bytes(sut, parts), strict=True)


def turns_bytes(part: Part, size_bytes: int, mix: Mix) -> int:
    """Return the size of the arrays of *part*, at least *size_bytes*, whose huge pages are whole turns of its nodes.

    A thread with less of its pages on the slower node would be ahead of the others.
    """
    turn = sum(weight for _, weight in part.memory.weights) or 1
    pages = -(-(BUFFERS[mix] * size_bytes + ROOM_BYTES) // HUGE_BYTES)
    return (-(-pages // turn) * turn * HUGE_BYTES - ROOM_BYTES) // BUFFERS[mix] // BASE_BYTES * BASE_BYTES


def fits(sut: Sut, groups: Sequence[Sequence[Part]], sizes: Sequence[Sequence[int]], mix: Mix) -> bool:
    """Return whether *sut* has room for buffers of these *sizes* for each part of *groups*."""
    runs = [Run(parts, mix, own) for parts, own in zip(groups, sizes, strict=True)]
    return not sut.lacking(memory_bytes(runs))


def measured_tiers(points: Sequence[BandwidthPoint]) -> Tiers:
    """Return the tiers of *points*, of which the first is the near one alone."""
    near = tuple(part.node for part in read_group(points[0].group))
    nodes = {node for point in points for part in read_group(point.group) for node in part.memory.shares}
    return Tiers(near, tuple(sorted(nodes.difference(near))))


def weights_of(tiers: Tiers, point: BandwidthPoint) -> tuple[int, ...]:
    """Return the weights of the nodes of *tiers* for *point*; none if the kernel has spread its pages."""
    memories = [part.memory for part in read_group(point.group)]
    if any(memory.by_kernel for memory in memories):
        return ()
    weights = dict(item for memory in memories for item in memory.weights or ((memory.node, 1),))
    return tuple(weights.get(node, 0) for node in (*tiers.near, *tiers.far))


def far_share(tiers: Tiers, point: BandwidthPoint) -> float:
    """Return the share of the pages of *point* that were read back on the far nodes."""
    by_node: Counter[int] = Counter()
    for placement in point.placements or ():
        by_node.update({int(node): pages for node, pages in (placement.node_pages or {}).items()})
    alone = point.nodes[0] in tiers.far
    return sum(by_node[node] for node in tiers.far) / by_node.total() if by_node else float(alone)


def best_weights(
    tiers: Tiers, measured: Mapping[tuple[int, ...], tuple[MixBandwidth, float]], kernel: Mapping[int, int]
) -> BestWeights:
    """Return the best of the weights *measured*, beside those that the *kernel* has for each node."""
    nodes = (*tiers.near, *tiers.far)
    figures = {weights: mix.bandwidth_mb_s for weights, (mix, _) in measured.items() if weights}
    best = max(figures, key=lambda weights: figures[weights].value)
    machine = reduced_weights([kernel[node] for node in nodes]) if all(node in kernel for node in nodes) else None
    shares = {
        weights: combined([figure, figures[best]], lambda pair: pair[0] / pair[1], "fraction")
        for weights, figure in figures.items()
    }
    far_alone = [weights for weights in figures if not any(weights[: len(tiers.near)])]
    near_alone = [weights for weights in figures if not any(weights[len(tiers.near) :])]
    return BestWeights(
        near=tiers.near,
        far=tiers.far,
        weights=best,
        bandwidth_mb_s=figures[best],
        far_share=measured[best][1],
        alike=tuple(
            weights_text(weights)
            for weights, share in shares.items()
            if weights != best and share is not None and (share.interval is None or share.interval[1] >= 1)
        ),
        near_mb_s=next((figures[weights] for weights in near_alone), None),
        far_mb_s=next((figures[weights] for weights in far_alone), None),
        machine=machine,
        machine_mb_s=None if machine is None else figures.get(machine),
        machine_share=None if machine is None else shares.get(machine),
    )
