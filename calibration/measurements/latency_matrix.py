# SPDX-License-Identifier: Apache-2.0
"""Latency matrix: latency from the CPUs of each node to the memory of each node."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from calibration.charts.base import Chart
from calibration.charts.matrices import Matrix, matrices_chart, node_matrix
from calibration.errors import InputError
from calibration.measurements.base import (
    Declaration,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Step,
    Values,
    cells_of,
    require_any,
)
from calibration.measurements.chase import (
    ChaseSettings,
    Condition,
    IdleLatencies,
    chain_flags,
    chain_memory,
    chase_flags,
    companion_flags,
    companions_for,
    companions_of,
    idle_bytes,
    idle_latencies,
    lap_flags,
    missing_of,
    no_companions,
)
from calibration.measurements.metric_rows import Record, latency
from calibration.measurements.sut import Place, Sut
from calibration.statistics import Estimate
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import Companion, LatencyResult
from calibration.validity import Flag, flag

ASYMMETRY = 0.05
"""Relative difference between a cell and its mirror that is flagged."""


class LatencyMatrixValues(Values):
    """Latency in ns per load from the CPUs of ``cpu_nodes`` (rows) to the memory of ``memory_nodes`` (columns).

    ``cpus`` are the CPUs that measured each row, ``sizes_bytes`` the chain size of each column. A cell without a value
    is ``None`` and listed in ``missing``. ``latency_ns`` are the values of record, each of the machine in its
    ``conditions``; ``cells_asleep_ns`` and ``cells_awake_ns`` are both, if ``companions`` kept the machine awake.
    """

    kind: Literal["latency_matrix"] = "latency_matrix"
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    cpus: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    latency_ns: tuple[tuple[Estimate | None, ...], ...]
    conditions: tuple[tuple[Condition | None, ...], ...] = ()
    cells_asleep_ns: tuple[tuple[Estimate | None, ...], ...] = ()
    cells_awake_ns: tuple[tuple[Estimate | None, ...], ...] = ()
    companions: tuple[Companion, ...] = ()

    def matrix(self) -> Matrix:
        """Return the latencies for a chart."""
        return node_matrix("Idle latency", "ns", (self.cpu_nodes, self.memory_nodes), self.latency_ns)


class LatencyMatrix(Declaration[ChaseSettings, LatencyMatrixValues]):
    """A random chase for every pair of a node with CPUs and a node with memory."""

    kind = "latency_matrix"
    title = "Latency matrix"
    question = "How far is the memory of each node from the CPUs of each node?"
    settings = ChaseSettings
    values = LatencyMatrixValues
    main_chart_rank = 40
    metric_rows = tuple(
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
        companions = companions_for(sut, tuple(rows), columns)
        cost_s = settings.idle_s(largest, built_bytes, len(rows) * len(columns), companions)
        places = [f"{Place(cpu, node)}{own[node]}" for cpu in rows for node in columns]
        yield self.step(
            f"{len(rows)} x {len(columns)} nodes",
            "latency",
            {
                "at": places,
                **settings.random_options(sut, largest),
                "companion": list(companions),
            },
            cpus=rows,
            memory_bytes=chain_memory(sizes, companions),
            tasks=len(rows) + len(companions),
            cost_s=cost_s,
            setup_s=settings.setup_s(built_bytes),
            repeated=settings,
        )
        if not companions:
            yield self.not_planned(no_companions(sut.context), f"{self.title} of the machine awake")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value is ``None`` and listed with its reason."""
        result = read_result(document, LatencyResult)
        cpus = list(dict.fromkeys(point.cpu for point in result.points))
        columns = list(dict.fromkeys(point.nodes[0] for point in result.points))
        if len(cpus) * len(columns) != len(result.points):
            raise InputError(f"{len(result.points)} cells for {len(cpus)} x {len(columns)} nodes")
        target = step.target_half_width
        cells = {(point.cpu, point.nodes[0]): idle_latencies(point, target) for point in result.points}
        measured = [cell for cell in cells.values() if cell is not None]
        sizes = {point.nodes[0]: point.size_bytes for point in result.points}
        require_any(measured, result.points, "cell")
        companions = companions_of(result.points)
        beside: dict[str, Any] = {
            "conditions": _matrix(cells, cpus, columns, "condition"),
            "cells_asleep_ns": _matrix(cells, cpus, columns, "asleep_ns"),
            "cells_awake_ns": _matrix(cells, cpus, columns, "awake_ns"),
            "companions": companions,
        }
        values = LatencyMatrixValues(
            cpu_nodes=tuple(sut.node_of(cpu) for cpu in cpus),
            memory_nodes=tuple(columns),
            cpus=tuple(cpus),
            sizes_bytes=tuple(sizes[node] for node in columns),
            latency_ns=_matrix(cells, cpus, columns, "latency_ns"),
            **(beside if any(cell.awake_ns for cell in measured) else {}),
        )
        yield Parsed(
            id=step.id,
            values=values,
            flags=(
                *chase_flags(document, result.points, measured),
                *companion_flags(companions),
                *chain_flags(sut, result.points),
                *lap_flags(sut, document, result.points),
                *_asymmetry(values),
            ),
            missing=tuple(gone for point in result.points if (gone := missing_of(point)) is not None),
        )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return latency and bandwidth between nodes, the first of each; ``None`` for a single node."""
        measured = [*run.of(self.kind)[:1], *run.of("bandwidth_matrix")[:1]]
        return matrices_chart("numa", [measurement.values.matrix() for measurement in measured], width, measured)

    def metrics(self, values: LatencyMatrixValues) -> Iterator[Metric]:
        """Yield every cell that has a value."""
        for row, column, cell in cells_of(values.cpu_nodes, values.memory_nodes, values.latency_ns):
            title = f"Latency, CPUs of node {row} to memory of node {column}"
            yield self.metric(f"{row}.{column}.latency_ns", title, cell)


def _matrix(
    cells: Mapping[tuple[int, int], IdleLatencies | None], cpus: Sequence[int], nodes: Sequence[int], name: str
) -> tuple[tuple[Any, ...], ...]:
    """Return one field of all *cells*, ``None`` for a cell without a value."""
    return tuple(tuple(getattr(cells[cpu, node], name, None) for node in nodes) for cpu in cpus)


def _asymmetry(values: LatencyMatrixValues) -> Iterator[Flag]:
    found = cells_of(values.cpu_nodes, values.memory_nodes, values.latency_ns)
    cells = {(row, column): cell.value for row, column, cell in found}
    for (row, column), value in sorted(cells.items()):
        mirror = cells.get((column, row))
        if row < column and mirror is not None and abs(value - mirror) / min(value, mirror) > ASYMMETRY:
            yield flag(
                "ASYMMETRIC", f"node {row} to {column} takes {value:.1f} ns, node {column} to {row} {mirror:.1f} ns"
            )


MEASUREMENT = LatencyMatrix()
