# SPDX-License-Identifier: Apache-2.0
"""Matrices of nodes: values from the CPUs of each node to the memory of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from statistics import median
from typing import Any, ClassVar

from pydantic import Field

from calibration.base.statistics import MIN_COVERAGE, Estimate, combined
from calibration.charts.matrices import Matrix
from calibration.context.model import Context
from calibration.measurements.base import Declaration, GridValues, Metric
from calibration.measurements.table import Table


class NodeMatrixValues(GridValues):
    """Values of the CPUs of ``cpu_node`` and the memory of ``memory_node``.

    ``near`` are, by node with CPUs and memory, the other nodes of its socket that have both; empty without any.
    """

    near: dict[int, tuple[int, ...]] = Field(default_factory=dict)

    axes: ClassVar = {"cpu_node": int, "memory_node": int}
    drawn: ClassVar[tuple[str, str, str, float]]
    """The column of the chart, its title and unit there, and what values are divided by."""

    @classmethod
    def matrix(cls, table: Table) -> Matrix:
        """Return *table* for a chart."""
        column, what, unit, scale = cls.drawn
        return Matrix(what, unit, *table.grid(column), scale)

    @classmethod
    def fields(cls, table: Table) -> dict[str, Any]:
        """Return the labels of the axes, and each column as a matrix."""
        columns = [name for name in cls.columns if name in dict(table.rows[0])]
        axes = {f"{axis}s": table.labels(axis) for axis in table.axes}
        return axes | {column: table.grid(column).cells for column in columns}

    @property
    def compared_column(self) -> str:
        """The column in which the own memory is compared with that of ``near`` nodes."""
        return self.drawn[0]

    @classmethod
    def near_in(cls, table: Table, context: Context) -> dict[int, tuple[int, ...]]:
        """Return ``near`` of the cells of *table* that have a value."""
        cells = table.cells(cls.drawn[0])
        found = {
            own: tuple(node for row, node in cells if row == own and context.relation(own, node) == "near")
            for own, node in cells
            if own == node
        }
        return {own: nodes for own, nodes in found.items() if nodes}

    def against_near(
        self, nodes: Iterable[int], function: Callable[[float, float], float], unit: str
    ) -> Estimate | None:
        """Return *function* of what *nodes* have of their own memory and of that of their ``near`` nodes, in *unit*.

        Medians over these, and over *nodes*, in each round; ``None`` without a round that has all.
        """
        cells = self.table.cells(self.compared_column)
        places = [[(own, own), *((own, node) for node in self.near[own])] for own in nodes]
        used = [place for own in places for place in own]
        if not used or not cells.keys() >= set(used):
            return None

        def of_round(values: Sequence[float]) -> float:
            left = iter(values)
            return median(function(next(left), median(islice(left, len(own) - 1))) for own in places)

        return combined([cells[place] for place in used], of_round, unit)

    def near_fraction(self, node: int) -> Estimate | None:
        """Return what the CPUs of *node* have of its ``near`` nodes' memory, relative to its own."""
        return self.against_near([node], lambda own, near: near / own, "fraction")


def near_metrics(kind: Declaration[Any, Any], values: NodeMatrixValues) -> Iterator[Metric]:
    """Yield the metric of each node that has others in its socket."""
    for node in values.near:
        if (found := values.near_fraction(node)) is not None:
            title = f"{values.drawn[1]}, other nodes of the socket of node {node}, relative to its own"
            yield kind.metric(f"{node}.near_fraction", title, found)


def told_apart(difference: Estimate, equal: float) -> bool:
    """Return whether *difference* is not what it is of memory that is *equal*."""
    if difference.interval is None or (difference.coverage or 0.0) < MIN_COVERAGE:
        return False
    return not difference.interval[0] <= equal <= difference.interval[1]
