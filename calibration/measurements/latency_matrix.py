# SPDX-License-Identifier: Apache-2.0
"""Latency matrix: how far the memory of each node is from the CPUs of each node."""

from collections.abc import Iterator
from typing import Literal

from calibration.context.model import Context
from calibration.errors import InputError
from calibration.evidence import estimate_flags
from calibration.measurements.base import (
    Declaration,
    Figures,
    Metric,
    NotPlanned,
    Parsed,
    Step,
    Values,
    metric_of,
    step,
)
from calibration.measurements.chase import START_UP_S, ChaseSettings, chase_flags, latency_of, missing_of
from calibration.measurements.sut import Place, Sut, memory_bound_bytes, size_flags
from calibration.statistics import Estimate
from calibration.sutprobe import LatencyResult, ProbeDocument, read_result
from calibration.validity import Flag, flag

ASYMMETRY = 0.05
"""Relative difference between a cell and its mirror from which a reader should ask why."""


class LatencyMatrixValues(Values):
    """Latency in ns per load from the CPUs of ``cpu_nodes`` (rows) to the memory of ``memory_nodes`` (columns).

    ``cpus`` holds the CPU that measured each row, ``sizes_bytes`` the size of each column's chains. A cell without a
    value is ``None`` and named in ``missing``.
    """

    kind: Literal["latency_matrix"] = "latency_matrix"
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    cpus: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    latency_ns: tuple[tuple[Estimate | None, ...], ...]


class LatencyMatrix(Declaration[ChaseSettings, LatencyMatrixValues]):
    """A random chase for every pair of a node with CPUs and a node with memory."""

    kind = "latency_matrix"
    title = "Latency matrix"
    question = "How far is the memory of each node from the CPUs of each node?"
    settings = ChaseSettings
    values = LatencyMatrixValues
    figures = (
        Figures(
            r"latency_matrix\.\d+\.\d+\.latency_ns",
            "ns",
            "lower",
            "one load by a CPU of the first node from the memory of the second",
        ),
    )

    def steps(self, context: Context, settings: ChaseSettings) -> Iterator[Step | NotPlanned]:
        """Yield one step that chases through all cells, row by row."""
        sut = Sut(context)
        rows = {sut.measuring_cpu(node): node for node in sut.cpu_nodes}
        columns = sut.memory_nodes
        if not rows or not columns:
            yield NotPlanned(kind=self.kind, what=self.title, reason="no node with CPUs and no node with memory found")
            return
        sizes = {node: memory_bound_bytes(sut, node) for node in columns}
        largest = max(sizes.values())
        # a node that cannot take the size of the others has one of its own, which makes no other column smaller
        own = {node: "" if size == largest else f":{size}" for node, size in sizes.items()}
        # all memories at the same time, each from the nearest CPU: one after another where that is nearest to several
        builders = {node: sut.nearest(node, tuple(rows.values())) for node in columns}
        of_builders = [[sizes[node] for node in columns if builders[node] == row] for row in rows.values()]
        made_s = max(sum(map(settings.touch_s, each)) for each in of_builders)
        built_s = max(sum(map(settings.build_s, each)) for each in of_builders)
        cells = len(rows) * len(columns)
        measured_s = built_s + cells * settings.walk_s()
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
            },
            cpus=tuple(rows),
            nodes=tuple(columns),
            expected_duration_s=START_UP_S + made_s + measured_s,
            # a cell's budget counts its walks and its share of the building; the memory of each placement comes on top
            budget_s=cells * settings.excess_s(measured_s / cells) * (1 + made_s / measured_s),
        )

    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value stays ``None`` and is named with its reason."""
        result = read_result(document, LatencyResult)
        sut = Sut(context)
        cpus = list(dict.fromkeys(point.cpu for point in result.points))
        columns = list(dict.fromkeys(point.nodes[0] for point in result.points))
        if len(cpus) * len(columns) != len(result.points):
            raise InputError(f"expected {len(cpus)} x {len(columns)} cells, found {len(result.points)}")
        target = document.parameters.get("target_half_width")
        cells = {(point.cpu, point.nodes[0]): latency_of(point, target) for point in result.points}
        sizes = {point.nodes[0]: point.size_bytes for point in result.points}
        if not any(cells.values()):
            reasons = {point.error.message for point in result.points if point.error}
            raise InputError(f"no cell could be measured: {'; '.join(sorted(reasons))}")
        values = LatencyMatrixValues(
            cpu_nodes=tuple(sut.node_of(cpu) for cpu in cpus),
            memory_nodes=tuple(columns),
            cpus=tuple(cpus),
            sizes_bytes=tuple(sizes[node] for node in columns),
            latency_ns=tuple(tuple(cells[cpu, node] for node in columns) for cpu in cpus),
        )
        named = [(f"CPU {cpu} to node {node}", cell) for (cpu, node), cell in cells.items() if cell is not None]
        yield Parsed(
            id=step.id,
            values=values,
            flags=(
                *chase_flags(document, result.points),
                *size_flags(sut, min(point.touched_bytes for point in result.points)),
                *estimate_flags(named, target),
                *_asymmetry(values),
            ),
            missing=tuple(gone for point in result.points if (gone := missing_of(point)) is not None),
        )

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
