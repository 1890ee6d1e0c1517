# SPDX-License-Identifier: Apache-2.0
"""Charts of cores: latency from one to another, and how their clocks differ."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, nan
from statistics import median

import numpy as np

from calibration.measurements.c2c_matrix import C2cMatrixValues
from calibration.measurements.core_frequency import CoreFrequencyValues, Row
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Frame, Json, Scale, rounded, values_of
from calibration.report.charts.matrices import Matrix, heat_map
from calibration.results.model import Measurement

NUMBERED = 16  # up to so many columns the cells of a matrix have their numbers
CPUS = 24  # up to so many CPUs each has its row
BLOCKS = 40  # beyond so many last-level caches, or where most of their pairs were not measured, blocks are nodes
FREQUENCY_SPAN = 0.02  # a strip of clocks shows at least this share of the median to both sides
PLACES = 128  # of a strip at most; beyond, one place is several CPUs


def core_to_core(measurement: Measurement, domains: Sequence[Sequence[int]] = ()) -> Chart | None:
    """Return latency (ns) between blocks of CPUs, and a strip per class of pairs; ``None`` for two CPUs.

    *domains* are the CPUs behind each last-level cache. A block's figure is the median of its measured pairs.
    """
    (values,) = values_of(C2cMatrixValues, measurement)
    if len(values.cpus) <= 2:
        return None
    caption = "Lines run from the fastest to the slowest pair of a class, dots are medians."
    parts = []
    if matrix := _blocks(values, domains):
        parts.append(heat_map(matrix, WIDE - 215, numbers=len(matrix.columns) <= NUMBERED))
        caption += f" A cell is the median of the measured pairs of {len(matrix.rows)} by {len(matrix.rows)} blocks."
    rows: list[Json] = [
        {
            "c": each.label,
            "v": rounded(each.median_ns),
            "l": rounded(each.minimum_ns or each.median_ns),
            "h": rounded(each.maximum_ns or each.median_ns),
            "t": base.shown(each.median_ns, "ns"),
            "n": f"{each.measured} of {each.pairs}",
        }
        for each in values.classes
        if each.median_ns is not None
    ]
    if rows:
        across = Scale(0.0, max(row["h"] for row in rows) * 1.12, WIDE - base.LEFT - 190)
        x = across.channel("v", "Latency, ns", ticks=6)
        told = base.tips(c="pairs within", t="median", l="from, ns", h="to, ns", n="pairs measured")
        colour = base.COLOURS[0]
        layers = [
            base.mark("rule", {**base.stretch("x", x), "tooltip": told}, color=colour, strokeWidth=6, opacity=0.35),
            base.mark("point", {"x": x, "tooltip": told}, filled=True, size=70, color=colour, opacity=1),
            base.mark("text", {"x": {**x, "field": "h"}, "text": {"field": "t"}}, align="left", dx=8),
        ]
        parts.append(base.view((across.px, 26 * len(rows)), layers, rows, encoding={"y": base.named_rows("c", None)}))
    if not parts:
        return None
    said = "; ".join(f"{row['c']} {row['t']}" for row in rows) or "none measured"
    alt = f"Latency between cores in ns, median of the pairs of each class: {said}."
    return Chart(measurement.id, base.stacked(parts, 24, [measurement]), alt, caption)


def _blocks(values: C2cMatrixValues, domains: Sequence[Sequence[int]]) -> Matrix | None:
    """Return the matrix by last-level cache, by node or by CPU, whichever tells most; ``None`` where none tells."""
    cpus = values.cpus
    if len(cpus) <= CPUS:
        return _matrix(values, {str(cpu): [cpu] for cpu in cpus}, "CPU")
    measured = set(cpus)
    caches = [here for domain in domains if (here := [cpu for cpu in domain if cpu in measured])]
    if 1 < len(caches) <= BLOCKS:
        title = "last-level cache: its CPUs"
        matrix = _matrix(values, {f"{n}: {filters.cpus(here)}": here for n, here in enumerate(caches, 1)}, title)
        if sum(cell is not None for row in matrix.cells for cell in row) >= len(caches) ** 2 / 2:
            return matrix
    node_of = dict(zip(cpus, values.nodes, strict=True))
    nodes = {str(node): [cpu for cpu in cpus if node_of[cpu] == node] for node in sorted(set(values.nodes))}
    return _matrix(values, nodes, "node") if len(nodes) > 1 else None


def _matrix(values: C2cMatrixValues, blocks: Mapping[str, Sequence[int]], title: str) -> Matrix:
    """Return the median latency of the measured pairs between the CPUs of each of *blocks*, by name."""
    latency_ns = np.array([[nan if cell is None else cell.value for cell in row] for row in values.latency_ns])
    place = {cpu: index for index, cpu in enumerate(values.cpus)}
    members = [[place[cpu] for cpu in block] for block in blocks.values()]

    def middle(writers: Sequence[int], readers: Sequence[int]) -> float | None:
        pairs = latency_ns[np.ix_(writers, readers)]
        known = pairs[np.isfinite(pairs)]
        return rounded(float(np.median(known))) if known.size else None

    return Matrix(
        "Latency",
        "ns",
        list(blocks),
        [name.partition(":")[0] for name in blocks],
        [[middle(writers, readers) for readers in members] for writers in members],
        row_title=f"writer's {title}",
        column_title="reader's",
    )


def core_frequency(measurement: Measurement) -> Chart | None:
    """Return how far each CPU's clock is from the median of its row (per cent); ``None`` for up to two CPUs."""
    (values,) = values_of(CoreFrequencyValues, measurement)
    cpus = sorted({point.cpu for point in values.points})
    if len(cpus) <= 2:
        return None
    step = ceil(len(cpus) / PLACES)
    place_of = {cpu: index // step for index, cpu in enumerate(cpus)}
    together = [row for row in values.rows if row.active == "all"] or values.rows
    shown = {base.label(f"{row.name}: median {filters.frequency(round(row.median_hz))}"): row for row in together}
    rows = [found for name, row in shown.items() for found in _deviations(name, row, place_of)]
    frame = Frame(WIDE, 220, legend=list(shown), measurements=[measurement])
    low = min(*(row["l"] for row in rows), -100 * FREQUENCY_SPAN)
    high = max(*(row["h"] for row in rows), 100 * FREQUENCY_SPAN)
    firsts = cpus[::step]
    count = len(firsts)
    across, up = Scale(-0.6, count - 0.4, frame.plot[0]), Scale(low * 1.1, high * 1.1, frame.plot[1], up=True)
    x = across.channel("x", "CPU", ticks=range(0, count, ceil(count / 12)), labels=f"{firsts}[datum.value]", grid=False)
    y = up.channel("y", "From the median, %")
    bar = {"x": x, **base.stretch("y", y), "color": frame.series(base.COLOURS)}
    told = base.tips(c="CPU", s="work", y="% from the median")
    spot = {"x": x, "y": y, "color": bar["color"], "shape": frame.series(base.SHAPES), "tooltip": told}
    layers = [
        base.rules("y", [0.0]),
        base.mark("rule", bar, strokeWidth=max(1.5, min(4.0, 0.4 * frame.plot[0] / count)), opacity=0.35),
        base.mark("point", spot, filled=True, size=24, opacity=0.9),
    ]
    slowest = min(rows, key=lambda row: row["l"])
    alt = (
        f"Clock of {len(cpus)} CPUs as deviation from the median in per cent; the slowest is "
        f"{filters.significant(slowest['l'], 2)} % from it, CPU {slowest['c']}."
    )
    caption = "Points are the clocks of CPUs, bars their intervals."
    if step > 1:
        caption = f"Points are medians of {step} CPUs, bars reach from the slowest to the fastest of them."
    return Chart(measurement.id, frame.spec(layers, rows), alt, caption)


def _deviations(name: str, row: Row, place_of: dict[int, int]) -> Iterator[Json]:
    """Yield where each place of a strip is, in per cent of the row's median."""
    points = sorted(row.points, key=lambda point: point.cpu)
    for place, group in groupby(points, key=lambda point: place_of[point.cpu]):
        here = list(group)
        clocks = [point.frequency_hz.value for point in here]
        ends = clocks if len(here) > 1 else here[0].frequency_hz.interval or clocks
        y, low, high = (round(100 * (hz / row.median_hz - 1), 3) for hz in (median(clocks), min(ends), max(ends)))
        yield {"s": name, "x": place, "c": filters.cpus(point.cpu for point in here), "y": y, "l": low, "h": high}
