# SPDX-License-Identifier: Apache-2.0
"""Latency matrix: latency from the CPUs of each node to the memory of each node."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from calibration.charts.base import Chart
from calibration.charts.matrices import Matrix, matrices_chart, node_matrix
from calibration.context.model import Context
from calibration.errors import InputError
from calibration.measurements.base import (
    Declaration,
    Figures,
    MeasuredRun,
    Metric,
    NotPlanned,
    Parsed,
    Step,
    Values,
    metric_of,
    step,
)
from calibration.measurements.chase import (
    ChaseSettings,
    Condition,
    IdleFigure,
    chase_flags,
    companion_flags,
    companions_for,
    companions_of,
    idle_bytes,
    idle_figure,
    lap_flags,
    missing_of,
    without_companions,
)
from calibration.measurements.sut import Place, Sut, size_flags
from calibration.statistics import Estimate
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import Companion, LatencyResult
from calibration.validity import Flag, flag

ASYMMETRY = 0.05
"""Relative difference between a cell and its mirror that is flagged."""


class LatencyMatrixValues(Values):
    """Latency in ns per load from the CPUs of ``cpu_nodes`` (rows) to the memory of ``memory_nodes`` (columns).

    ``cpus`` are the CPUs that measured each row, ``sizes_bytes`` the chain size of each column. A cell without a value
    is ``None`` and listed in ``missing``. ``latency_ns`` are the figures of record, each of the machine in its
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
    figures = (
        Figures(
            r"latency_matrix\.\d+\.\d+\.latency_ns",
            "ns",
            "lower",
            "one load by a CPU of the first node from the memory of the second",
        ),
    )

    def steps(self, context: Context, settings: ChaseSettings) -> Iterator[Step | NotPlanned]:
        """Yield one step for all cells, row by row."""
        sut = Sut(context)
        rows = {sut.measuring_cpu(node): node for node in sut.cpu_nodes}
        columns = sut.memory_nodes
        if not rows or not columns:
            yield NotPlanned(kind=self.kind, what=self.title, reason="no node with CPUs and no node with memory found")
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
        expected_s, budget_s = settings.idle_s(largest, built_bytes, len(rows) * len(columns), companions)
        places = [f"{Place(cpu, node)}{own[node]}" for cpu in rows for node in columns]
        yield step(
            id=self.kind,
            kind=self.kind,
            title=f"{self.title}, {len(rows)} x {len(columns)} nodes",
            subcommand="latency",
            options={
                "at": places,
                "size-bytes": largest,
                "stride-bytes": 64,
                "order": "random",
                **settings.options(),
                "companion": list(companions),
            },
            cpus=tuple(rows),
            nodes=tuple(columns),
            expected_duration_s=expected_s,
            budget_s=budget_s,
        )
        yield from without_companions(self.kind, self.title, companions)

    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value is ``None`` and listed with its reason."""
        result = read_result(document, LatencyResult)
        sut = Sut(context)
        cpus = list(dict.fromkeys(point.cpu for point in result.points))
        columns = list(dict.fromkeys(point.nodes[0] for point in result.points))
        if len(cpus) * len(columns) != len(result.points):
            raise InputError(f"{len(result.points)} cells for {len(cpus)} x {len(columns)} nodes")
        target = document.parameters.get("target_half_width")
        cells = {(point.cpu, point.nodes[0]): idle_figure(point, target) for point in result.points}
        figures = [cell for cell in cells.values() if cell is not None]
        sizes = {point.nodes[0]: point.size_bytes for point in result.points}
        if not figures:
            reasons = {point.error.message for point in result.points if point.error}
            raise InputError(f"no cell could be measured: {'; '.join(sorted(reasons))}")
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
            **(beside if any(figure.awake_ns for figure in figures) else {}),
        )
        yield Parsed(
            id=step.id,
            values=values,
            flags=(
                *chase_flags(document, result.points, figures),
                *companion_flags(companions),
                *size_flags(sut, min(point.touched_bytes for point in result.points)),
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
        for cpu_node, row in zip(values.cpu_nodes, values.latency_ns, strict=True):
            for memory_node, cell in zip(values.memory_nodes, row, strict=True):
                if cell is not None:
                    yield metric_of(
                        f"latency_matrix.{cpu_node}.{memory_node}.latency_ns",
                        f"Latency, CPUs of node {cpu_node} to memory of node {memory_node}",
                        cell,
                        "lower",
                    )


def _matrix(
    cells: Mapping[tuple[int, int], IdleFigure | None], cpus: Sequence[int], nodes: Sequence[int], name: str
) -> tuple[tuple[Any, ...], ...]:
    """Return one field of all *cells*, ``None`` for a cell without a figure."""
    return tuple(tuple(getattr(cells[cpu, node], name, None) for node in nodes) for cpu in cpus)


def _asymmetry(values: LatencyMatrixValues) -> Iterator[Flag]:
    cells = {
        (cpu_node, memory_node): cell.value
        for cpu_node, row in zip(values.cpu_nodes, values.latency_ns, strict=True)
        for memory_node, cell in zip(values.memory_nodes, row, strict=True)
        if cell is not None
    }
    for (row, column), value in sorted(cells.items()):
        mirror = cells.get((column, row))
        if row < column and mirror is not None and abs(value - mirror) / min(value, mirror) > ASYMMETRY:
            yield flag(
                "ASYMMETRIC", f"node {row} to {column} takes {value:.1f} ns, node {column} to {row} {mirror:.1f} ns"
            )


MEASUREMENT = LatencyMatrix()
