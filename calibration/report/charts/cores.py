# SPDX-License-Identifier: Apache-2.0
"""Charts of cores: latency from one to another, and how their clocks differ."""

from collections.abc import Sequence
from math import ceil
from statistics import median

from calibration.measurements.c2c_matrix import C2cClass, C2cMatrixValues
from calibration.measurements.core_frequency import CoreFrequencyValues, Row, rows_of
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Json, Scale, invalid_text, rounded, values_of
from calibration.report.charts.matrices import Matrix, heat_map
from calibration.results.model import Measurement

NUMBERED = 16
"""Up to so many columns the cells of a matrix have their numbers."""

BLOCKS = 40
"""Beyond so many last-level caches, or where most of their pairs were not measured, blocks are nodes."""

CACHE = "last-level cache: its CPUs"
CPUS = 24
"""Up to so many CPUs behind one last-level cache each has its row."""

FREQUENCY_SPAN = 0.02
"""The smallest share of the median that a strip of clocks shows to both sides."""

PLACES = 128
"""A strip has at most so many places; beyond, one place is several CPUs."""


def core_to_core(
    measurement: Measurement, domains: Sequence[Sequence[int]] = (), *, what: str = "Latency", width: int = WIDE
) -> Chart | None:
    """Return *what* (ns) between blocks of CPUs, and a strip per class of pairs; ``None`` for two CPUs.

    *domains* are the CPUs behind each last-level cache. A block's figure is the median of its measured pairs.
    """
    (values,) = values_of(C2cMatrixValues, measurement)
    if len(values.cpus) <= 2:
        return None
    matrix = _blocks(values, domains, what)
    classes = [each for each in values.classes if each.median_ns is not None]
    parts = [_strip(classes, width - base.LEFT - 190, what)] if classes else []
    if matrix is not None:
        parts.insert(0, heat_map(matrix, width - 215, numbers=len(matrix.columns) <= NUMBERED))
    if not parts:
        return None
    said = "; ".join(f"{each.label} {filters.significant(each.median_ns, 3)} ns" for each in classes)
    blocks = (
        ""
        if matrix is None
        else f" A cell is the median of the measured pairs of {len(matrix.rows)} by {len(matrix.rows)} blocks."
    )
    return Chart(
        name=measurement.id,
        spec=base.whole(
            {
                "vconcat": parts,
                "spacing": 24,
                "resolve": {"scale": dict.fromkeys(("x", "y", "color"), "independent")},
            },
            invalid=invalid_text([measurement]),
        ),
        alt=f"{what} between cores in ns, median of the pairs of each class: {said or 'none measured'}.",
        caption=f"Lines run from the fastest to the slowest pair of a class, dots are medians.{blocks}",
    )


def _blocks(values: C2cMatrixValues, domains: Sequence[Sequence[int]], what: str) -> Matrix | None:
    """Return the matrix by last-level cache, by node or by CPU, whichever tells most; ``None`` where none tells."""
    place = {cpu: index for index, cpu in enumerate(values.cpus)}
    by_cache = [found for domain in domains if (found := [place[cpu] for cpu in domain if cpu in place])]
    nodes: dict[int, list[int]] = {}
    for index, node in enumerate(values.nodes):
        nodes.setdefault(node, []).append(index)
    by_node = [nodes[node] for node in sorted(nodes)]
    if len(values.cpus) <= CPUS:
        single = [[index] for index in range(len(values.cpus))]
        return _matrix(values, single, [str(cpu) for cpu in values.cpus], what, "CPU")
    if 1 < len(by_cache) <= BLOCKS:
        names = [filters.cpus(values.cpus[index] for index in block) for block in by_cache]
        matrix = _matrix(values, by_cache, names, what, CACHE)
        if sum(cell is not None for row in matrix.cells for cell in row) >= len(by_cache) ** 2 / 2:
            return matrix
    if len(by_node) > 1:
        return _matrix(values, by_node, [str(node) for node in sorted(nodes)], what, "node")
    return None


def _matrix(
    values: C2cMatrixValues, blocks: Sequence[Sequence[int]], names: Sequence[str], what: str, title: str
) -> Matrix:
    of = {index: block for block, members in enumerate(blocks) for index in members}
    found: dict[tuple[int, int], list[float]] = {}
    for row, line in enumerate(values.latency_ns):
        for column, cell in enumerate(line):
            if cell is not None and row in of and column in of:
                found.setdefault((of[row], of[column]), []).append(cell.value)
    size = range(len(blocks))
    by_cache = title == CACHE
    return Matrix(
        what,
        "ns",
        [f"{each + 1}: {names[each]}" for each in size] if by_cache else names,
        [str(each + 1) for each in size] if by_cache else names,
        [[rounded(median(found[row, column])) if (row, column) in found else None for column in size] for row in size],
        [[None] * len(blocks) for _ in size],
        f"writer's {title}",
        "reader's",
    )


def _strip(classes: Sequence[C2cClass], width: int, what: str) -> Json:
    """Return a line per class of pairs from its fastest to its slowest, with the median and its interval."""
    rows: list[Json] = [
        {
            "c": each.label,
            "v": rounded(each.median_ns or 0.0),
            "l": rounded(each.minimum_ns or each.median_ns or 0.0),
            "h": rounded(each.maximum_ns or each.median_ns or 0.0),
            "t": f"{filters.significant(each.median_ns, 3)} ns",
            "n": f"{each.measured} of {each.pairs}",
        }
        for each in classes
    ]
    ends = [row[name] for row in rows for name in ("l", "h")]
    across = Scale(0.0, max(ends) * 1.12, width)
    place: Json = {
        "y": {
            "field": "c",
            "type": "nominal",
            "sort": None,
            "axis": {"title": None, "ticks": False, "domain": False, "labelColor": base.INK},
        }
    }
    x = across.channel("v", f"{what}, ns", ticks=6)
    told = base.tips(
        ("c", "pairs within"), ("t", "median"), ("l", "from, ns"), ("h", "to, ns"), ("n", "pairs measured")
    )
    return {
        "width": width,
        "height": 26 * len(rows),
        "data": base.table(rows),
        "layer": [
            base.mark(
                "rule",
                None,
                {**place, "x": {**x, "field": "l"}, "x2": {"field": "h"}, "tooltip": told},
                color=base.COLOURS[0],
                strokeWidth=6,
                opacity=0.35,
            ),
            base.mark(
                "point",
                None,
                {**place, "x": x, "tooltip": told},
                filled=True,
                size=70,
                color=base.COLOURS[0],
                opacity=1,
            ),
            base.mark(
                "text",
                None,
                {**place, "x": {**x, "field": "h"}, "text": {"field": "t", "type": "nominal"}},
                align="left",
                dx=8,
            ),
        ],
    }


def core_frequency(measurement: Measurement, *, width: int = WIDE) -> Chart | None:
    """Return how far each CPU's clock is from the median of its row (per cent); ``None`` for up to two CPUs."""
    (values,) = values_of(CoreFrequencyValues, measurement)
    if len({point.cpu for point in values.points}) <= 2:
        return None
    kinds = rows_of(values.points)
    shown = [row for row in kinds if row.active == "all"] or kinds
    cpus = sorted({point.cpu for point in values.points})
    step = ceil(len(cpus) / PLACES)
    place_of = {cpu: index // step for index, cpu in enumerate(cpus)}
    names = [base.label(f"{row.name}: median {filters.frequency(round(row.median_hz))}") for row in shown]
    rows = [each for name, row in zip(names, shown, strict=True) for each in _deviations(name, row, place_of)]
    frame = base.Frame(width, 220, legend=names, invalid=invalid_text([measurement]))
    ends = [row[name] for row in rows for name in ("l", "h")]
    low, high = min(*ends, -100 * FREQUENCY_SPAN), max(*ends, 100 * FREQUENCY_SPAN)
    count = place_of[cpus[-1]] + 1
    across, up = Scale(-0.6, count - 0.4, frame.plot[0]), Scale(low * 1.1, high * 1.1, frame.plot[1], up=True)
    firsts = [cpus[index * step] for index in range(count)]
    axes = (
        across.channel(
            "x", "CPU", ticks=range(0, count, ceil(count / 12)), labels=f"{firsts}[datum.value]", grid=False
        ),
        up.channel("y", "From the median, %", ticks=5),
    )
    colour, shape = base.series(names, base.COLOURS, width), base.series(names, base.SHAPES, width)
    told = base.tips(("c", "CPU"), ("s", "work"), ("y", "% from the median"))
    bar = {"x": axes[0], "y": {**axes[1], "field": "l"}, "y2": {"field": "h"}, "color": colour}
    spec = frame.spec(
        [
            base.rules("y", [0.0]),
            base.mark("rule", None, bar, strokeWidth=max(1.5, min(4.0, 0.4 * frame.plot[0] / count)), opacity=0.35),
            base.mark(
                "point",
                None,
                {"x": axes[0], "y": axes[1], "color": colour, "shape": shape, "tooltip": told},
                filled=True,
                size=24,
                opacity=0.9,
            ),
        ],
        data=base.table(rows),
    )
    slowest = min(rows, key=lambda row: row["l"])
    return Chart(
        name=measurement.id,
        spec=spec,
        alt=f"Clock of {len(cpus)} CPUs as deviation from the median in per cent; the slowest is "
        f"{filters.significant(slowest['l'], 2)} % from it, CPU {slowest['c']}.",
        caption="Points are the clocks of CPUs, bars their intervals."
        if step == 1
        else f"Points are medians of {step} CPUs, bars reach from the slowest to the fastest of them.",
    )


def _deviations(name: str, row: Row, place_of: dict[int, int]) -> list[Json]:
    """Return where each place of a strip is, in per cent of the row's median."""
    middle = row.median_hz
    by_place: dict[int, list[tuple[int, float, float, float]]] = {}
    for point in row.points:
        low, high = point.frequency_hz.interval or (point.frequency_hz.value,) * 2
        by_place.setdefault(place_of[point.cpu], []).append((point.cpu, point.frequency_hz.value, low, high))
    found = []
    for place, those in sorted(by_place.items()):
        clocks = [value for _, value, _, _ in those]
        low, high = (min(clocks), max(clocks)) if len(those) > 1 else those[0][2:]
        share = [round(100 * (value / middle - 1), 3) for value in (median(clocks), low, high)]
        cpus = filters.cpus(cpu for cpu, _, _, _ in those)
        found.append({"s": name, "x": place, "c": cpus, "y": share[0], "l": share[1], "h": share[2]})
    return found
