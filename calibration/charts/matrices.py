# SPDX-License-Identifier: Apache-2.0
"""Matrices as heat maps with numbers: NUMA nodes, and CPUs by last-level cache."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise
from math import ceil
from typing import Any

from calibration.base import units
from calibration.base.statistics import Estimate
from calibration.charts import base
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import WIDE, Chart, Json, Measured, rounded

MAX_HALF_COLUMNS = 8  # more columns take the width of a page
MAX_WIDE_COLUMNS = 4  # most columns whose cells are wider than high
MIN_INTERVAL_PX = 52  # least width of a cell that shows the interval as well
ROW_PX = 18  # height of a row of cells
INTERVAL_ROW_PX = 40  # the same with intervals
ROW_NAMES_PX = 40  # px left of the cells for the names of rows

Cells = Sequence[Sequence[float | Estimate | None]]


@dataclass(frozen=True)
class Matrix:
    """Values (in *unit*) of *rows* by *columns*, shown divided by *scale*: latencies in ns, else bandwidths."""

    what: str
    unit: str
    rows: Sequence[object]
    columns: Sequence[object]
    cells: Cells
    scale: float = 1.0
    row_title: str = "CPUs of node"
    column_title: str = "memory of node"
    nodes: Sequence[str] = ()  # the names of those of each row and column, if they are smaller

    @property
    def known(self) -> list[float]:
        """The known values, divided by the scale."""
        return [base.bounds(cell, self.scale)[0] for row in self.cells for cell in row if cell is not None]


def matrices_chart(
    name: str, matrices: Sequence[Matrix], width: int = WIDE, measurements: Iterable[Measured[Any]] = ()
) -> Chart | None:
    """Return *matrices* of *measurements*, below or beside each other; ``None`` if none has two cells."""
    drawn = [matrix for matrix in matrices if len(matrix.rows) * len(matrix.columns) > 1]
    if not drawn:
        return None
    if max(len(matrix.columns) for matrix in drawn) > MAX_HALF_COLUMNS:
        width = WIDE
    beside = len(drawn) > 1 and width // 2 - ROW_NAMES_PX >= max(len(matrix.columns) for matrix in drawn) * 26
    room = (width // 2 - 8 if beside else width) - ROW_NAMES_PX - 12
    what = f"Heat map of {len(drawn[0].rows)} by {len(drawn[0].columns)} nodes, CPUs to memory"
    ranges = [f"{matrix.what.lower()} {extremes(_values(matrix))}" for matrix in drawn if matrix.known]
    spec = base.stacked([heat_map(matrix, room) for matrix in drawn], 16, measurements, beside=beside)
    return Chart(
        name,
        spec,
        alternative(what, ranges),
        caption="Rows are the nodes of the CPUs, columns those of the memory. Darker is worse; grey has no value.",
    )


def _rows(matrix: Matrix) -> Iterator[Json]:
    """Yield each cell: row ``r``, column ``c``, value ``v``, its text ``t``, and ``h`` if it has an interval."""
    for row, line in zip(matrix.rows, matrix.cells, strict=True):
        for column, cell in zip(matrix.columns, line, strict=True):
            value = None if cell is None else base.bounds(cell, matrix.scale)[0]
            found: Json = {"r": str(row), "c": str(column), "v": value, "t": units.significant(value, 3)}
            if isinstance(cell, Estimate) and cell.half_width is not None:
                found["h"] = f"±{units.percent(cell.half_width)}"
            yield found


def _values(matrix: Matrix) -> Iterator[Value]:
    for row in _rows(matrix):
        if row["v"] is not None:
            yield Value(row["v"], f"{row['t']} {matrix.unit}", f"node {row['r']} to {row['c']}")


def heat_map(matrix: Matrix, room: int, *, numbers: bool = True) -> Json:
    """Return the cells of *matrix* within *room* px of width, as one view."""
    low, high = base.spanned(matrix.known or [0.0])
    columns = len(matrix.columns)
    cell = min(room // columns, 150 if columns <= MAX_WIDE_COLUMNS else 64)
    rows = list(_rows(matrix))
    apart = cell >= MIN_INTERVAL_PX and any("h" in row for row in rows)
    header = {"labelAngle": 0, "ticks": False, "domain": False, "labelPadding": 4}
    title = f"{matrix.row_title} \N{DOWNWARDS ARROW}  {matrix.column_title} \N{RIGHTWARDS ARROW}"
    names = [*map(str, matrix.columns)]
    every = ceil((7 * max(map(len, names)) + 4) / cell)
    above = {"orient": "top", "title": title, "titlePadding": 6, "titleAnchor": "start", "values": names[::every]}
    lower = matrix.unit == "ns"
    scale = {"scheme": "cividis", "domain": [rounded(low), rounded(high)], "reverse": lower}
    tooltip = base.tips(r=matrix.row_title, c=matrix.column_title, t=matrix.unit, h="interval")
    colour = {**base.number("v"), "scale": scale, "legend": None}
    bright = f"datum.v {'<' if lower else '>'} {rounded((low + high) / 2)}"
    ink = {"expr": f"datum.v === null ? 'gray' : {bright} ? 'black' : 'white'"}
    words = partial(base.mark, "text", color=ink)
    layers = [base.mark("rect", {"color": colour, "tooltip": tooltip}, stroke="gray", strokeWidth=0.5)]
    if numbers:
        layers.append(words({"text": {"field": "t"}}, fontSize=min(13.0, cell * 0.43), dy=-7 if apart else 0))
    if numbers and apart:
        layers.append(words({"text": {"field": "h"}}, fontSize=11, dy=9))
    size = cell * columns, (INTERVAL_ROW_PX if apart else ROW_PX) * len(matrix.rows)
    return base.view(
        size,
        [*layers, *_boundaries(matrix.nodes, size)],
        rows,
        title=f"{matrix.what}, {matrix.unit}",
        view={"fill": base.ABSENT},
        encoding={
            "x": {"field": "c", "type": "nominal", "sort": names, "axis": header | above},
            "y": {"field": "r", "type": "nominal", "sort": [*map(str, matrix.rows)], "axis": header | {"title": None}},
        },
    )


def _boundaries(nodes: Sequence[str], size: tuple[int, int]) -> Iterator[Json]:
    """Yield lines between *nodes*, those of each row and column, and their names to the right and below."""
    spans = [(node, len(list(alike))) for node, alike in groupby(nodes)]
    if len(spans) < 2:
        return
    edges = list(accumulate((count for _, count in spans), initial=0))
    width, height = size
    names = [node for node, _ in spans]
    if any(6.4 * len(name) + 8 > count * width / len(nodes) for name, (_, count) in zip(names, spans, strict=True)):
        names = [name.partition(" ")[2] for name in names]
    for along, across, px, end, aside in (
        ("x", "y", width, height, {"align": "center", "baseline": "top", "dy": 6}),
        ("y", "x", height, width, {"align": "left", "baseline": "middle", "dx": 8}),
    ):
        at = {"field": "at", "type": "quantitative", "scale": None, "axis": None}
        lines = [{"at": rounded(edge * px / len(nodes))} for edge in edges[1:-1]]
        middles = [rounded((low + high) / 2 * px / len(nodes)) for low, high in pairwise(edges)]
        labels = [{"at": middle, "n": name} for middle, name in zip(middles, names, strict=True)]
        whole = {along: at, across: {"value": 0}, f"{across}2": {"value": end}}
        for colour, stroke_px in (("black", 4), ("white", 2)):  # seen on bright and dark cells
            yield base.mark("rule", whole, lines, color=colour, strokeWidth=stroke_px)
        yield base.mark("text", {along: at, across: {"value": end}, "text": {"field": "n"}}, labels, **aside)
