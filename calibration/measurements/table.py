# SPDX-License-Identifier: Apache-2.0
"""Values on a grid: one table of rows, each with labels of the axes and the cells of the columns."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from calibration.counters.volume import CountedBytes
from calibration.measurements.platform import Setting
from calibration.model import Model
from calibration.statistics import Estimate

Cell = Annotated[
    Estimate | CountedBytes | Setting | int | float | str | tuple[int, ...] | tuple[str, ...] | None,
    Field(union_mode="left_to_right"),
]
"""A label or a value; values of third-party texts are plain numbers."""


class TableRow(dict[str, Any]):
    """A label of each axis of a table, and a cell of each column: ``None`` without a value. Its keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Grid(NamedTuple):
    """A column of a table with two axes: labels of rows and of columns, and the cells, ``None`` without a value."""

    rows: Sequence[Any]
    columns: Sequence[Any]
    cells: tuple[tuple[Any, ...], ...]


class Table(Model):
    """Values by the labels of ``axes``: at most one row for each combination. What else a row has are the columns."""

    axes: tuple[str, ...]
    rows: tuple[Annotated[dict[str, Cell], AfterValidator(TableRow)], ...]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({self.labels_of(row) for row in self.rows}) < len(self.rows):
            raise ValueError(f"two rows have the same {', '.join(self.axes)}")
        return self

    def labels_of(self, row: TableRow) -> tuple[Any, ...]:
        """Return the labels of *row*."""
        return tuple(row.get(axis) for axis in self.axes)

    def labels(self, axis: str) -> tuple[Any, ...]:
        """Return the labels of *axis*, each once, in order of appearance."""
        return tuple(dict.fromkeys(row[axis] for row in self.rows))

    def cells(self, column: str) -> dict[Any, Any]:
        """Return the cells of *column* that have a value, by their labels."""
        return {self.labels_of(row): cell for row in self.rows if (cell := row.get(column)) is not None}

    def where(self, **labels: Any) -> Self:
        """Return the rows with these *labels*, without their axes."""
        rows = [row for row in self.rows if all(row[axis] == label for axis, label in labels.items())]
        axes = tuple(axis for axis in self.axes if axis not in labels)
        return self.model_copy(update={"axes": axes, "rows": tuple(rows)})

    def grid(self, column: str, labels: Sequence[Any] | None = None) -> Grid:
        """Return *column*, by the first axis and the second: those with these *labels*, by default all."""
        cells = self.cells(column)
        rows, columns = (labels or self.labels(axis) for axis in self.axes)
        return Grid(rows, columns, tuple(tuple(cells.get((row, label)) for label in columns) for row in rows))
