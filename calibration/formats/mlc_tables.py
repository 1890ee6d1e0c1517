# SPDX-License-Identifier: Apache-2.0
"""Tables of nodes in the output of Intel MLC."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from calibration.base.cpulists import MAX_ID
from calibration.formats.lines import Line, first_of, number, shortened, whole_number
from calibration.formats.mlc_sections import HEADER, HOMED, Section

MAX_COLUMNS: Final = 256
"""Linux on the largest machine sold has fewer nodes; a square of as many as fit into a line would fill the memory."""

Row = tuple[float | None, ...]

LARGE: Final = 16
"""A square of more nodes than this is not completed from a few rows."""


@dataclass
class Table:
    """A table of nodes: label of its rows, columns, headings of further columns, and rows in order.

    ``homed`` is whose memory its lines are in, from the sentence above it.
    """

    label: str
    columns: tuple[int, ...]
    more: tuple[str, ...]
    homed: str | None
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.columns) + len(self.more)

    def row(self, cells: Sequence[float | None]) -> Row:
        """Return the first of *cells* as a row with one cell per column."""
        return (*cells[: len(self.columns)], *(None,) * (len(self.columns) - len(cells)))


def tables_in(section: Section, lines: Sequence[Line]) -> list[Table]:
    """Return the tables in *lines* of *section*.

    A heading repeated within its table is skipped. Lines wrapped by a terminal are joined.
    """
    tables: list[Table] = []
    table: Table | None = None
    homed: str | None = None
    waiting = deque(lines)
    while waiting:
        line = waiting.popleft()
        if match := HOMED.search(line.text):
            table, homed = None, match[1].lower()
        elif header := HEADER.match(line.text):
            columns = tuple(map(int, header[2].split()))
            while 0 < len(columns) <= MAX_COLUMNS and waiting and (more := _more_columns(columns, waiting[0].text)):
                columns += more
                waiting.popleft()
            if not columns or (table is not None and table.columns == columns):
                continue
            table = Table(header[1].lower(), columns, tuple(header[3].split()), homed)
            if len(set(columns)) < len(columns) or len(columns) > MAX_COLUMNS:
                section.missing.append(f"not a heading of different nodes: {shortened(line.text)}")
                table = None
            else:
                tables.append(table)
        elif table is None or not _take_row(table, _unwrapped(line, waiting, table.width), section.missing):
            section.notes.append(line)
    return tables


def _more_columns(columns: tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return the columns in *text* if it continues a heading that ends with *columns*, else nothing."""
    found = [whole_number(word) for word in text.split()]
    expected = tuple(range(columns[-1] + 1, columns[-1] + 1 + len(found)))
    return expected if found == list(expected) else ()


def _unwrapped(line: Line, waiting: deque[Line], width: int) -> Line:
    """Return *line* joined with the rest of its row of *width* numbers from the *waiting* lines."""
    parts = [line]
    left = width + 1 - len(line.text.split())
    while waiting and 0 < (count := _numbers_only(waiting[0].text)) <= left:
        parts.append(waiting.popleft())
        left -= count
    return parts[-1]._replace(text=" ".join(part.text for part in parts))


def _numbers_only(text: str) -> int:
    """Return the number of numbers in *text* if it is the rest of a row: nothing but numbers."""
    words = text.split()
    rest = all(word == "-" or (number(word) is not None and whole_number(word) is None) for word in words)
    return len(words) if rest else 0


def _take_row(table: Table, line: Line, missing: list[str]) -> bool:
    """Add *line* to *table* and return whether it is a row of it; unreadable cells go to *missing*."""
    words = line.words
    row = whole_number(words[0]) if words else None
    if row is None or (len(words) == 1 and not line.cut):
        return False
    cells = [number(word) for word in words[1:]]
    fault = None
    not_a_row = f"not {table.width} numbers: {shortened(line.text)}"
    if any(cell is None and word != "-" for cell, word in zip(cells, words[1:], strict=True)):
        if not any(cell is not None for cell in cells):
            return False
        fault = not_a_row
    elif row > MAX_ID:
        fault = f"CPUs and nodes up to {MAX_ID} are read"
    elif row in table.rows:
        fault = "printed twice"
    elif len(cells) > table.width or (len(cells) < table.width and not line.last):
        fault = not_a_row
    elif len(cells) < table.width:
        missing.append(f"row {row}: cut off after {len(cells)} of {table.width} numbers")
    if fault is not None:
        missing.append(f"row {row}: {fault}")
    if row <= MAX_ID:
        table.rows[row] = table.row([] if fault is not None else cells)
    return True


def homed_tables(section: Section, lines: Sequence[Line]) -> dict[str, Table]:
    """Return the tables in *lines*, all of the same nodes, by whose memory the lines are in."""
    tables: dict[str, Table] = {}
    for table in tables_in(section, lines):
        nodes, homed = table.columns, table.homed
        if homed is None or homed in tables:
            section.missing.append(f"a table of {len(nodes)} nodes that does not say where its lines are homed")
        elif len(nodes) > LARGE and 4 * len(table.rows) < len(nodes):
            section.missing.append(f"{homed} homed: rows for {len(table.rows)} of {len(nodes)} nodes")
        elif tables and any(other.columns != nodes for other in tables.values()):
            section.missing.append(f"{homed} homed: the nodes are not those of the other table")
        else:
            tables[homed] = table
            if absent := [f"node {node}" for node in nodes if node not in table.rows]:
                section.missing.append(f"{homed} homed: no row for {', '.join(first_of(absent))}")
    headings = [match[1].lower() for line in lines if (match := HOMED.search(line.text))]
    section.missing += [f"{homed} homed: no table" for homed in headings if homed not in tables]
    return tables


def scaled(table: Table, scale: float) -> Iterator[tuple[int, int, float | None]]:
    """Yield row, column and value times *scale* of each cell of *table*, without rows that have no value."""
    for row, cells in table.rows.items():
        if any(cell is not None for cell in cells):
            for column, cell in zip(table.columns, cells, strict=True):
                yield row, column, None if cell is None else cell * scale
