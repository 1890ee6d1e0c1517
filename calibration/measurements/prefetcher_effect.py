# SPDX-License-Identifier: Apache-2.0
"""Effect of the hardware prefetchers: latency along fixed strides, with prefetchers as found and off.

Source: Hopper, *Untangling memory access measurements - memory latency* (IBM), with the latency of ``lat_mem_rd`` by
stride under several settings of POWER's data stream control register. A random chase of the same nodes, which
prefetchers cannot follow, shows how much of a difference is theirs.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.statistics import Estimate
from calibration.charts.base import Chart
from calibration.charts.curves import LATENCY, SIZES, curves_of, line_chart
from calibration.measurements.base import (
    Declaration,
    GridValues,
    HalfWidth,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Step,
    Values,
)
from calibration.measurements.chase import (
    ChaseSettings,
    Order,
    chain_memory,
    chase_flags,
    core_hz_of,
    latency_of,
    strided,
)
from calibration.measurements.evidence import missing_parts, require_any
from calibration.measurements.metric_rows import latency
from calibration.measurements.sut import Place, Sut, memory_bound_bytes, side_cache_flags
from calibration.measurements.table import TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import LatencyResult

RANDOM = "random"

SWITCHED: tuple[Literal["off"] | None, ...] = (None, "off")
"""Order of the steps: as found first, so that nothing is measured after restoring."""


class PrefetcherSettings(ChaseSettings):
    """Chases of *strides_bytes* in each of *orders*, and in random order, with prefetchers as found and off."""

    placements: PositiveInt = 1
    windows: PositiveInt = 3
    hops: PositiveInt = 20_000
    target_half_width: HalfWidth = 0.03
    strides_bytes: tuple[PositiveInt, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    orders: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")


class PrefetcherEffectValues(GridValues):
    """Latencies of CPU ``cpu`` in ``size_bytes`` of node ``node``, with the prefetchers as found or off.

    ``touched_bytes`` is the size of all lines visited, ``of_random`` the ratio to the latency of the same nodes in
    random order, ``None`` for random order or without that, ``core_hz`` the core clock. With prefetchers off,
    ``as_found_ns`` is the latency with them, if it was measured, and ``effect`` how many times as long it is without.
    """

    kind: Literal["prefetcher_effect"] = "prefetcher_effect"
    prefetchers: Literal["as_found", "off"]
    cpu: int
    node: int
    size_bytes: int

    axes: ClassVar = {"order": Order, "stride_bytes": int}
    columns: ClassVar = {
        "touched_bytes": int,
        "latency_ns": Estimate,
        "core_hz": float,
        "of_random": float | None,
        "as_found_ns": Estimate | None,
        "effect": float | None,
    }

    @property
    def effects(self) -> list[TableRow]:
        """The points that were measured with prefetchers too."""
        return [point for point in self.points if point.effect is not None]


class PrefetcherEffect(Declaration[PrefetcherSettings, PrefetcherEffectValues]):
    """Strided and random chases beyond the last-level cache, with the prefetchers as found and off."""

    title = "Effect of the prefetchers"
    question = "How much of the latency along a stride do the hardware prefetchers hide?"
    metric_rows = tuple(
        latency(
            rf"prefetcher_effect.{prefetchers}{{order:(?:forward|backward|random)_\d+}}.latency_ns",
            "one load from memory in order with a stride of so many bytes, or of as many lines in random order; with "
            "the hardware prefetchers as found, or off",
            "access_patterns",
        )
        for prefetchers in ("", "{prefetchers:off}.")
    )

    def steps(self, sut: Sut, settings: PrefetcherSettings) -> Iterator[Planned]:
        """Yield the chases of the first node with CPUs, with prefetchers as found and off."""
        node = sut.cpu_nodes[0]
        place = Place(sut.measuring_cpu(node), sut.home(node))
        size_bytes = memory_bound_bytes(sut, place.node)
        orders = (RANDOM, *settings.orders)
        strides = [stride for stride in settings.strides_bytes for _ in orders]
        costs_s = [settings.chase_s(size_bytes, stride) for stride in strides]
        builds_s = [settings.build_s(size_bytes, stride) for stride in strides]
        for prefetchers in SWITCHED:
            yield self.step(
                f"CPU {place.cpu}, memory of node {place.node}, {units.plural(len(costs_s), 'point')}",
                "latency",
                {
                    "at": place,
                    "size-bytes": size_bytes,
                    "stride-bytes": ",".join(map(str, settings.strides_bytes)),
                    "order": ",".join(orders),
                    **settings.options(),
                },
                cpus=(place.cpu,),
                memory_bytes=chain_memory({place.node: size_bytes}),
                cost_s=settings.map_s(size_bytes) + sum(costs_s),
                setup_s=settings.map_s(size_bytes) + sum(builds_s),
                repeated=settings,
                suffix="" if prefetchers is None else f"-{prefetchers}",
                prefetchers=prefetchers,
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the latencies of the step."""
        result = read_result(document, LatencyResult)
        target = step.target_half_width
        found = [
            (point, latency, core_hz)
            for point in result.points
            if (latency := latency_of(point, target)) is not None and (core_hz := core_hz_of([point])) is not None
        ]
        require_any(found, result.points, "stride")
        held = {point.nodes[0]: point.size_bytes for point in result.points}
        random = {point.stride_bytes: latency.value for point, latency, _ in found if point.order == RANDOM}
        table = PrefetcherEffectValues.table_of(
            {
                "order": point.order,
                "stride_bytes": point.stride_bytes,
                "touched_bytes": point.touched_bytes,
                "latency_ns": latency,
                "core_hz": core_hz,
                "of_random": _share(latency, random.get(point.stride_bytes)) if point.order != RANDOM else None,
            }
            for point, latency, core_hz in found
        )
        first = result.points[0]
        yield Parsed(
            values=PrefetcherEffectValues(
                prefetchers=step.prefetchers or "as_found",
                cpu=first.cpu,
                node=first.nodes[0],
                size_bytes=first.size_bytes,
                table=table,
            ),
            flags=(*chase_flags(document, result.points), *side_cache_flags(sut, held)),
            missing=missing_parts(result.points, strided),
        )

    def completed(self, values: PrefetcherEffectValues, run: Mapping[str, Values]) -> PrefetcherEffectValues:
        """Return *values* with the effects, if they are those with prefetchers off and *run* has the others."""
        if values.prefetchers == "as_found":
            return values
        before = [
            earlier.table.cells("latency_ns")
            for earlier in run.values()
            if isinstance(earlier, PrefetcherEffectValues) and earlier.prefetchers == "as_found"
        ]
        rows = [_beside(row, before[0].get(values.table.labels_of(row)) if before else None) for row in values.points]
        return values.model_copy(update={"table": values.table_of(rows)})

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield latency (ns) against stride (bytes), a curve per order and state of the prefetchers."""
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (
                    f"{point.order}, prefetchers {values.prefetchers.replace('_', ' ')}",
                    (float(point.stride_bytes), point.latency_ns),
                )
                for values in run.values(self.kind)
                for point in values.points
            ),
            (SIZES("Stride"), LATENCY),
            alt="Latency against stride, by order of access and state of the prefetchers",
            caption="Where a curve lies below that of random order, the prefetchers fetched ahead.",
        )

    def metrics(self, values: PrefetcherEffectValues) -> Iterator[Metric]:
        """Yield the latency of each stride in each order."""
        off = values.prefetchers == "off"
        for point in values.points:
            yield self.metric(
                f"{'off.' if off else ''}{point.order}_{point.stride_bytes}.latency_ns",
                f"Latency, {point.order}, stride of {point.stride_bytes} bytes{', prefetchers off' if off else ''}",
                point.latency_ns,
            )


def _share(latency: Estimate, of: float | None) -> float | None:
    return latency.value / of if of else None


def _beside(off: TableRow, as_found: Estimate | None) -> TableRow:
    """Return *off* with its latency with prefetchers as found; a latency of 0 has no ratio."""
    if as_found is None or as_found.value <= 0:
        return off
    return TableRow(off | {"as_found_ns": as_found, "effect": off.latency_ns.value / as_found.value})
