# SPDX-License-Identifier: Apache-2.0
"""Matrices of nodes: values from the CPUs of each node to the memory of each."""

from typing import Any, ClassVar

from calibration.charts.matrices import Matrix
from calibration.measurements.base import GridValues
from calibration.measurements.table import Table


class NodeMatrixValues(GridValues):
    """Values of the CPUs of ``cpu_node`` and the memory of ``memory_node``."""

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
