# SPDX-License-Identifier: Apache-2.0
"""Matrices as heat maps with their numbers: NUMA nodes, and CPUs by last-level cache."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from calibration.formats.readings import ReadBandwidthMatrix, Reading, ReadLatencyMatrix, ReadValues
from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.base import Values
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Json, rounded
from calibration.results.model import Measurement
from calibration.statistics import Estimate

INTERVAL_CELLS = 4  # up to so many columns cells have room for the interval as well
CELL_PX = 46  # the largest height of a cell
SIDE = 40  # px at the left of the cells for the names of rows

Cells = Sequence[Sequence[float | Estimate | None]]


@dataclass(frozen=True)
class Matrix:
    """Values (in *unit*) of *rows* by *columns*, shown divided by *scale*."""

    what: str
    unit: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Cells
    scale: float = 1.0
    row_title: str = "CPUs of node"
    column_title: str = "memory of node"

    @property
    def known(self) -> list[float]:
        """The values that there are, divided by the scale."""
        return [base.bounds(cell, self.scale)[0] for row in self.cells for cell in row if cell is not None]


def numa(measurements: Sequence[Measurement], *, width: int = WIDE) -> Chart | None:
    """Return the matrices of latency and bandwidth in one chart; ``None`` where neither has more than one cell.

    Of several of one kind the first is shown.
    """
    found: dict[str, Measurement] = {}
    for each in measurements:
        found.setdefault(each.kind, each)
    return _chart("numa", [_matrix(each.values) for each in found.values()], width, found.values())


def read_matrix(reading: Reading) -> Chart | None:
    """Return a node matrix that was read from the text of another program; ``None`` for a single cell."""
    return _chart(f"read-{reading.id}", [_matrix(reading.values)])


def _matrix(values: Values | ReadValues) -> Matrix:
    """Return *values* as a matrix. Raises ``TypeError`` where they are of another kind."""
    cells: Cells
    if isinstance(values, LatencyMatrixValues | ReadLatencyMatrix):
        what, unit, scale, cells = "Idle latency", "ns", 1.0, values.latency_ns
    elif isinstance(values, BandwidthMatrixValues | ReadBandwidthMatrix):
        what, unit, scale, cells = "Read bandwidth", "GB/s", 1e3, values.bandwidth_mb_s
    else:
        raise TypeError(f"expected a node matrix, found {values.kind}")
    return Matrix(what, unit, [*map(str, values.cpu_nodes)], [*map(str, values.memory_nodes)], cells, scale)


def _chart(name: str, matrices: Sequence[Matrix], width: int = WIDE, of: Iterable[Measurement] = ()) -> Chart | None:
    """Return *matrices*, which were measured by *of*, below or beside each other."""
    drawn = [each for each in matrices if len(each.rows) * len(each.columns) > 1]
    if not drawn:
        return None
    beside = len(drawn) > 1 and width // 2 - SIDE >= max(len(each.columns) for each in drawn) * 26
    room = (width // 2 - 8 if beside else width) - SIDE - 12
    said = []
    for each in drawn:
        if known := each.known:
            low, high = filters.significant(min(known), 3), filters.significant(max(known), 3)
            said.append(f"{each.what.lower()} from {low} to {high} {each.unit}")
    spec = base.stacked([heat_map(each, room) for each in drawn], 16, of, beside=beside)
    return Chart(
        name,
        spec,
        alt=f"Heat map of {len(drawn[0].rows)} by {len(drawn[0].columns)} nodes: {'; '.join(said) or 'no value'}.",
        caption="Rows are the nodes of the CPUs, columns those of the memory. Brighter is more; grey has no value.",
    )


def _rows(matrix: Matrix) -> Iterator[Json]:
    """Yield each cell: row ``r``, column ``c``, value ``v``, its text ``t``, and ``h`` where it has an interval."""
    for row, line in zip(matrix.rows, matrix.cells, strict=True):
        for column, cell in zip(matrix.columns, line, strict=True):
            value = None if cell is None else base.bounds(cell, matrix.scale)[0]
            found: Json = {"r": row, "c": column, "v": value, "t": filters.significant(value, 3)}
            if isinstance(cell, Estimate) and cell.half_width is not None:
                found["h"] = f"±{filters.percent(cell.half_width)}"
            yield found


def heat_map(matrix: Matrix, room: int, *, numbers: bool = True) -> Json:
    """Return the cells of *matrix* within *room* px of width, as one view."""
    low, high = base.spanned(matrix.known or [0.0])
    columns = len(matrix.columns)
    cell = min(room // columns, 150 if columns <= INTERVAL_CELLS else 64)
    height = min(max(18, cell), CELL_PX if columns <= 8 else 26)
    rows = list(_rows(matrix))
    header = {"labelAngle": 0, "ticks": False, "domain": False, "labelPadding": 4}
    title = f"{matrix.row_title} \N{DOWNWARDS ARROW}  {matrix.column_title} \N{RIGHTWARDS ARROW}"
    above = {"orient": "top", "title": title, "titlePadding": 6, "titleAnchor": "start"}
    scale = {"scheme": "cividis", "domain": [rounded(low), rounded(high)]}
    told = base.tips(r=matrix.row_title, c=matrix.column_title, t=matrix.unit, h="interval")
    colour = {**base.number("v"), "scale": scale, "legend": None}
    ink = {"expr": f"datum.v === null ? 'gray' : datum.v > {rounded((low + high) / 2)} ? 'black' : 'white'"}
    apart = columns <= INTERVAL_CELLS and any("h" in row for row in rows)
    words = partial(base.mark, "text", color=ink)
    layers = [base.mark("rect", {"color": colour, "tooltip": told}, stroke="gray", strokeWidth=0.5)]
    if numbers:
        layers.append(words({"text": {"field": "t"}}, fontSize=min(13.0, cell * 0.43), dy=-7 if apart else 0))
    if numbers and apart:
        layers.append(words({"text": {"field": "h"}}, fontSize=11, dy=9))
    return base.view(
        (cell * columns, height * len(matrix.rows)),
        layers,
        rows,
        title=f"{matrix.what}, {matrix.unit}",
        view={"fill": base.ABSENT},
        encoding={
            "x": {"field": "c", "type": "nominal", "sort": list(matrix.columns), "axis": header | above},
            "y": {"field": "r", "type": "nominal", "sort": list(matrix.rows), "axis": header | {"title": None}},
        },
    )
