# SPDX-License-Identifier: Apache-2.0
"""Latency matrix: latency from the CPUs of each node to the memory of each node."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from calibration.base import units
from calibration.base.statistics import Estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.matrices import matrices_chart
from calibration.measurements.base import Declaration, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.chase import (
    ChaseSettings,
    Condition,
    chain_flags,
    chain_memory,
    chase_flags,
    idle_bytes,
    idle_latencies,
    keep_awake_flags,
    keep_awake_for,
    keep_awake_of,
    lap_flags,
    missing_places,
    no_keep_awake,
)
from calibration.measurements.evidence import require_any, uneven
from calibration.measurements.metric_rows import LATENCY_REPEATS, MEMORY_LOADS, Record, fraction, latency
from calibration.measurements.node_matrix import NodeMatrixValues, near_metrics, told_apart
from calibration.measurements.sut import Place, Sut
from calibration.measurements.table import Table
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import KeepAwakeThread, LatencyResult


class LatencyMatrixValues(NodeMatrixValues):
    """Latency in ns per load from the CPUs of each node to the memory of each, measured on ``cpu`` in ``size_bytes``.

    ``latency_ns`` is the value of record, that of the machine in its ``condition``; ``package_idle_ns`` and
    ``package_active_ns`` are both, if ``keep_awake`` threads kept the machine awake, else ``None``.
    """

    kind: Literal["latency_matrix"] = "latency_matrix"
    keep_awake: tuple[KeepAwakeThread, ...] = ()

    columns: ClassVar = {
        "cpu": int,
        "size_bytes": int,
        "latency_ns": Estimate | None,
        "condition": Condition | None,
        "package_idle_ns": Estimate | None,
        "package_active_ns": Estimate | None,
    }
    drawn = ("latency_ns", "Idle latency", "ns", 1.0)

    @property
    def compared_column(self) -> str:
        """The latencies with the packages active if those of any cell are of record, else those of record."""
        conditions = self.table.cells("condition").values()
        return "package_active_ns" if "package_active" in conditions else super().compared_column


class LatencyMatrix(Declaration[ChaseSettings, LatencyMatrixValues]):
    """A random chase for every pair of a node with CPUs and a node with memory."""

    title = "Latency matrix"
    question = "How far is the memory of each node from the CPUs of each node?"
    titles: ClassVar = {
        "{cpu_node}.{memory_node}.latency_ns": "Latency, CPUs of node {cpu_node} to memory of node {memory_node}"
    }
    main_chart_rank = 40
    metric_rows = (
        *(
            latency(
                name,
                "one load by a CPU of the first node from the memory of the second",
                "local_latency" if "=" in name else "remote_latency",
                record=Record(
                    "idle_latency", "Idle latency, node {cpu_node} to node {memory_node}", "{cpu_node}.{memory_node}"
                ),
                reference="idle_latency_{relation}_ns",
            )
            for name in (
                "latency_matrix.{cpu_node}.{memory_node:=cpu_node}.latency_ns",
                "latency_matrix.{cpu_node}.{memory_node}.latency_ns",
            )
        ),
        fraction(
            "latency_matrix.{cpu_node}.near_fraction",
            "one load from the other nodes of its socket, relative to one from the node's own memory",
            "remote_latency",
            better="lower",
            tolerance=LATENCY_REPEATS,
            depends=MEMORY_LOADS,
        ),
    )

    def steps(self, sut: Sut, settings: ChaseSettings) -> Iterator[Planned]:
        """Yield one step for all cells, row by row."""
        rows = {sut.measuring_cpu(node): node for node in sut.cpu_nodes}
        columns = sut.memory_nodes
        if not rows or not columns:
            yield self.not_planned("no node with CPUs and no node with memory found")
            return
        sizes = {node: idle_bytes(sut, settings, node, len(rows)) for node in columns}
        largest = max(sizes.values())
        # a node too small for the common size gets its own, without shrinking the other columns
        own = {node: "" if size == largest else f":{size}" for node, size in sizes.items()}
        # all memories at the same time, each from the nearest CPU; sequentially if one CPU is nearest to several
        builders = [sut.nearest(node, tuple(rows.values())) for node in columns]
        built_bytes = max(
            sum(size for size, builder in zip(sizes.values(), builders, strict=True) if builder == row)
            for row in rows.values()
        )
        keep_awake = keep_awake_for(sut, tuple(rows), columns)
        cost_s = settings.idle_s(largest, built_bytes, len(rows) * len(columns), keep_awake)
        places = [f"{Place(cpu, node)}{own[node]}" for cpu in rows for node in columns]
        yield self.step(
            f"{len(rows)} x {len(columns)} nodes",
            "latency",
            {
                "at": places,
                **settings.random_options(sut, largest),
                "keep-awake": list(keep_awake),
            },
            cpus=rows,
            memory_bytes=chain_memory(sizes, keep_awake),
            tasks=len(rows) + len(keep_awake),
            cost_s=cost_s,
            setup_s=settings.setup_s(built_bytes),
            repeated=settings,
        )
        if not keep_awake:
            yield self.not_planned(no_keep_awake(sut.context), f"{self.title} with the packages active")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value is ``None`` and listed with its reason."""
        result = read_result(document, LatencyResult)
        cells = [idle_latencies(point, step.target_half_width) for point in result.points]
        measured = [cell for cell in cells if cell is not None]
        require_any(measured, result.points, "cell")
        keep_awake = keep_awake_of(result.points)
        columns = (
            {"latency_ns"} if not keep_awake else {"latency_ns", "condition", "package_idle_ns", "package_active_ns"}
        )
        table = LatencyMatrixValues.table_of(
            {
                "cpu_node": sut.node_of(point.cpu),
                "memory_node": point.nodes[0],
                "cpu": point.cpu,
                "size_bytes": point.size_bytes,
                **{column: getattr(cell, column, None) for column in columns},
            }
            for point, cell in zip(result.points, cells, strict=True)
        )
        yield Parsed(
            values=LatencyMatrixValues(
                table=table, keep_awake=keep_awake, near=LatencyMatrixValues.near_in(table, sut.context)
            ),
            flags=(
                *chase_flags(document, result.points, measured),
                *keep_awake_flags(keep_awake),
                *chain_flags(sut, result.points),
                *lap_flags(sut, document, result.points),
                *_asymmetry(table),
            ),
            missing=missing_places(result.points),
        )

    def metrics(self, values: LatencyMatrixValues) -> Iterator[Metric]:
        """Yield the cells, and how near the other nodes of each node's socket are."""
        yield from super().metrics(values)
        yield from near_metrics(self, values)

    def summary(self, measured: Sequence[LatencyMatrixValues]) -> Iterator[str]:
        """Yield what a load saves within its node, where sockets have several."""
        for values in measured:
            saved = values.against_near(values.near, lambda own, near: near - own, "ns")
            share = values.against_near(values.near, lambda own, near: 1 - own / near, "fraction")
            if saved is None or share is None:
                continue
            interval = f" ({units.measured_interval(saved.interval, 'ns')})" if saved.interval else ""
            if told_apart(saved, 0.0):
                yield (
                    f"Staying in its own node saves a core {units.headline(saved)}{interval} of each load, "
                    f"{units.percent(share.value)} of what the other nodes of its socket take."
                )
            else:
                yield (
                    "By latency, the other nodes of a socket cannot be told from the own one: "
                    f"{units.headline(saved)} more{interval}."
                )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return latency and bandwidth between nodes, the first of each; ``None`` for a single node."""
        measured = [*run.of(self.kind)[:1], *run.of("bandwidth_matrix")[:1]]
        return matrices_chart("numa", [found.values.matrix(found.values.table) for found in measured], width, measured)


def _asymmetry(table: Table) -> Iterator[Flag]:
    for (one, two), there, back, _ in uneven(table.cells("latency_ns")):
        takes = f"node {one} to {two} takes {there.value:.1f} ns, node {two} to {one} {back.value:.1f} ns"
        yield flag("ASYMMETRIC", takes)
