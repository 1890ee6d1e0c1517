# SPDX-License-Identifier: Apache-2.0
"""Values on a grid: one table of rows, each with labels of the axes and the cells of the columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field, GetCoreSchemaHandler, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, core_schema

from calibration.base.errors import InputError
from calibration.base.model import Model, fault_of
from calibration.base.statistics import Estimate
from calibration.counters.volume import CountedBytes
from calibration.measurements.platform import Setting

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

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, handler(dict[str, Cell]))


class Grid(NamedTuple):
    """A column of a table with two axes: labels of rows and of columns, and the cells, ``None`` without a value."""

    rows: Sequence[Any]
    columns: Sequence[Any]
    cells: tuple[tuple[Any, ...], ...]


class Table(Model):
    """Values by the labels of ``axes``: at most one row for each combination. What else a row has are the columns."""

    axes: tuple[str, ...]
    rows: Annotated[tuple[TableRow, ...], Field(min_length=1)]

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


class Gridded(Model):
    """Base of what has a grid: its ``table`` has the class's ``axes`` and ``columns``, of these types."""

    table: Table

    axes: ClassVar[Mapping[str, Any]]
    columns: ClassVar[Mapping[str, Any]]

    @property
    def points(self) -> tuple[TableRow, ...]:
        """The rows of the table."""
        return self.table.rows

    @classmethod
    def table_of(cls, rows: Iterable[dict[str, Any]]) -> Table:
        """Return the table of *rows*, whose other columns are ``None``.

        Raises ``InputError`` if two have the same labels.
        """
        blank = dict.fromkeys((*cls.axes, *cls.columns))
        try:
            return Table(axes=tuple(cls.axes), rows=tuple(TableRow(blank | row) for row in rows))
        except ValidationError as error:
            raise InputError(fault_of(error)) from error

    @classmethod
    @cache
    def row_model(cls, *, read: bool) -> type[Model]:
        """Return the model of the rows; those of a table that was *read* have numbers instead of estimates."""
        fields: dict[str, Any] = {name: (of, ...) for name, of in cls.axes.items()}
        for name, of in cls.columns.items():
            if not read:
                fields[name] = (of, ...)
            elif of == Estimate | None:
                fields[name] = (float | None, None)
        return create_model("Row", __base__=Model, **fields)

    @classmethod
    def check(cls, table: Table, *, read: bool = False) -> None:
        """Raise ``ValueError`` unless *table* is of this class; a *read* one has numbers instead of estimates."""
        if table.axes != tuple(cls.axes):
            raise ValueError(f"a table by {', '.join(table.axes)}, not by {', '.join(cls.axes)}")
        for row in table.rows:
            try:
                cls.row_model(read=read).model_validate(row)
            except ValidationError as error:
                raise ValueError(fault_of(error)) from error

    @classmethod
    def fields(cls, table: Table) -> dict[str, Any]:
        """Return *table* as plain fields."""
        return {"points": table.rows}

    @classmethod
    def printed(cls, table: Table) -> dict[str, Any]:
        """Return *table* as fields in the layout of third-party texts."""
        return cls.fields(table)

    @model_validator(mode="after")
    def _typed(self) -> Self:
        self.check(self.table)
        return self


def with_tables(base: type[Gridded] = Gridded) -> Iterator[type[Gridded]]:
    """Yield the models that have a table, of those derived from *base*."""
    for model in base.__subclasses__():
        if hasattr(model, "columns"):
            yield model
        yield from with_tables(model)
