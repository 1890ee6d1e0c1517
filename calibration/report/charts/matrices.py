# SPDX-License-Identifier: Apache-2.0
"""Matrices as heat maps with their numbers: NUMA nodes, and CPUs by last-level cache."""

from collections.abc import Sequence
from dataclasses import dataclass

from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Json, invalid_text, rounded
from calibration.results.model import Measurement
from calibration.results.readings import ReadBandwidthMatrix, Reading, ReadLatencyMatrix
from calibration.statistics import Estimate

INTERVAL_CELLS = 4
"""Up to so many columns cells have room for the interval as well."""

CELL_PX = 46
"""The largest height of a cell."""

SIDE = 40
"""Room at the left of the cells for the names of rows."""


@dataclass(frozen=True)
class Matrix:
    """Values (in *unit*) of *rows* by *columns*, with half widths in per cent where there are any."""

    what: str
    unit: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[float | None]]
    half: Sequence[Sequence[float | None]]
    row_title: str = "CPUs of node"
    column_title: str = "memory of node"

    @property
    def axes(self) -> str:
        """What rows and columns are."""
        return f"{self.row_title} \N{DOWNWARDS ARROW}  {self.column_title} \N{RIGHTWARDS ARROW}"


def node_matrix(measurement: Measurement, *, width: int = WIDE) -> Chart | None:
    """Return idle latency (ns) or read bandwidth (GB/s) between nodes; ``None`` for a single cell."""
    matrix = _matrix(measurement.values)
    if matrix is None:
        raise TypeError(f"expected a node matrix, found {measurement.kind}")
    return _chart([matrix], measurement.id, width, invalid_text([measurement]))


def numa(latency: Measurement | None, bandwidth: Measurement | None, *, width: int = WIDE) -> Chart | None:
    """Return the matrices of latency and bandwidth in one chart; ``None`` where neither has more than one cell."""
    found = [each for each in (latency, bandwidth) if each is not None]
    matrices = [matrix for each in found if (matrix := _matrix(each.values)) is not None]
    return _chart(matrices, "numa", width, invalid_text(found))


def read_matrix(reading: Reading, *, width: int = WIDE) -> Chart | None:
    """Return a node matrix that was read from the text of another program; ``None`` for a single cell."""
    matrix = _matrix(reading.values)
    if matrix is None:
        raise TypeError(f"expected a node matrix, found {reading.values.kind}")
    return _chart([matrix], f"read-{reading.id}", width, "")


def _matrix(values: object) -> Matrix | None:
    """Return *values* as a matrix; ``None`` where they are of another kind."""
    if isinstance(values, LatencyMatrixValues | ReadLatencyMatrix):
        what, unit, scale, cells = "Idle latency", "ns", 1.0, values.latency_ns
    elif isinstance(values, BandwidthMatrixValues | ReadBandwidthMatrix):
        what, unit, scale, cells = "Read bandwidth", "GB/s", 1e3, values.bandwidth_mb_s
    else:
        return None

    def value(cell: Estimate | float | None) -> float | None:
        return None if cell is None else (cell.value if isinstance(cell, Estimate) else cell) / scale

    def half(cell: Estimate | float | None) -> float | None:
        return cell.half_width if isinstance(cell, Estimate) else None

    return Matrix(
        what,
        unit,
        [str(node) for node in values.cpu_nodes],
        [str(node) for node in values.memory_nodes],
        [[value(cell) for cell in row] for row in cells],
        [[half(cell) for cell in row] for row in cells],
    )


def _chart(matrices: Sequence[Matrix], name: str, width: int, invalid: str) -> Chart | None:
    drawn = [each for each in matrices if len(each.rows) * len(each.columns) > 1]
    if not drawn:
        return None
    most = max(len(each.columns) for each in drawn)
    beside = len(drawn) > 1 and width // 2 - SIDE >= most * 26
    room = width // 2 - 8 if beside else width
    parts = [heat_map(each, room - SIDE - 12) for each in drawn]
    spec = base.whole(
        {
            "hconcat" if beside else "vconcat": parts,
            "spacing": 16,
            "resolve": {"scale": {"color": "independent", "x": "independent", "y": "independent"}},
        },
        invalid=invalid,
    )
    said = []
    for each in drawn:
        known = [cell for row in each.cells for cell in row if cell is not None]
        if known:
            low, high = (filters.significant(end, 3) for end in (min(known), max(known)))
            said.append(f"{each.what.lower()} from {low} to {high} {each.unit}")
    return Chart(
        name=name,
        spec=spec,
        alt=f"Heat map of {len(drawn[0].rows)} by {len(drawn[0].columns)} nodes: {'; '.join(said) or 'no value'}.",
        caption="Rows are the nodes of the CPUs, columns those of the memory. Brighter is more; grey has no value.",
    )


def heat_map(matrix: Matrix, room: int, *, numbers: bool = True) -> Json:
    """Return the cells of *matrix* within *room* px of width, as one view."""
    known = [cell for row in matrix.cells for cell in row if cell is not None] or [0.0]
    low, high = base.spanned(known)
    columns = len(matrix.columns)
    cell = min(room // columns, 150 if columns <= INTERVAL_CELLS else 64)
    height = min(max(18, cell), CELL_PX if columns <= 8 else 26)
    size = min(13.0, cell * 0.43)
    rows = []
    for row, line in zip(matrix.rows, zip(matrix.cells, matrix.half, strict=True), strict=True):
        for column, value, half in zip(matrix.columns, *line, strict=True):
            found: Json = {"r": row, "c": column, "v": None, "t": filters.ABSENT}
            if value is not None:
                found |= {"v": rounded(value), "t": filters.significant(value, 3)}
            if half is not None:
                found["h"] = f"±{filters.percent(half)}"
            rows.append(found)
    header = {"labelAngle": 0, "ticks": False, "domain": False, "labelPadding": 4}
    above = {"orient": "top", "title": matrix.axes, "titlePadding": 6, "titleAnchor": "start"}
    place = {
        "x": {"field": "c", "type": "nominal", "sort": list(matrix.columns), "axis": header | above},
        "y": {"field": "r", "type": "nominal", "sort": list(matrix.rows), "axis": header | {"title": None}},
    }
    scale = {"scheme": "cividis", "domain": [rounded(low), rounded(high)]}
    told = base.tips(("r", matrix.row_title), ("c", matrix.column_title), ("t", matrix.unit), ("h", "interval"))
    colour = {"field": "v", "type": "quantitative", "scale": scale, "legend": None}
    ink = {
        "condition": [
            {"test": "datum.v === null", "value": "gray"},
            {"test": f"datum.v > {rounded((low + high) / 2)}", "value": "black"},
        ],
        "value": "white",
    }
    layers: list[Json] = [
        {"mark": {"type": "rect", "stroke": "gray", "strokeWidth": 0.5}, "encoding": {"color": colour, "tooltip": told}}
    ]
    if numbers:
        apart = columns <= INTERVAL_CELLS and any(half is not None for line in matrix.half for half in line)
        text = {"text": {"field": "t", "type": "nominal"}, "color": ink}
        layers.append({"mark": {"type": "text", "fontSize": size, "dy": -7 if apart else 0}, "encoding": text})
        if apart:
            layers.append(
                {
                    "mark": {"type": "text", "fontSize": 11, "dy": 9},
                    "encoding": {"text": {"field": "h", "type": "nominal"}, "color": ink},
                }
            )
    return {
        "title": {"text": f"{matrix.what}, {matrix.unit}", "offset": 6, "frame": "group", "fontSize": 12},
        "view": {"fill": base.ABSENT},
        "width": cell * columns,
        "height": height * len(matrix.rows),
        "data": base.table(rows),
        "encoding": place,
        "layer": layers,
    }
