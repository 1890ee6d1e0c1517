# SPDX-License-Identifier: Apache-2.0
"""Gaps in the time of a CPU: how many per second are at least so long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median

from calibration.measurements.jitter import JitterValues
from calibration.report import filters
from calibration.report.charts import base, curves
from calibration.report.charts.base import WIDE, Chart, Json, Scale, invalid_text, rounded, values_of
from calibration.results.model import Measurement

SEPARATE = 8
"""Up to so many CPUs each has its own curve."""

ROWS = 64
"""A heat map has at most so many rows: beyond that one row is the worst of several CPUs."""

POINTS = 48
"""A curve has at most so many points."""


RATE = "Gaps per second at least so long"


@dataclass(frozen=True)
class Exceedance:
    """How many gaps per second are at least so long (ns) on one CPU, from the shortest to the longest."""

    cpu: int
    isolated: bool
    points: tuple[tuple[float, float], ...]
    threshold_ns: float

    @property
    def longest_ns(self) -> float:
        """The longest gap; the threshold where there was none."""
        return self.points[-1][0] if self.points else self.threshold_ns

    def at(self, length_ns: float) -> float:
        """Return the rate of gaps of at least *length_ns*."""
        return next((rate for length, rate in self.points if length >= length_ns), 0.0)


def exceedance(values: JitterValues) -> Exceedance:
    """Return the complementary cumulative rates of the gaps of one CPU."""
    gaps = values.gaps
    left = 0
    points = [(gaps.max_ns, 1 / gaps.wall_s)] if any(each.count for each in gaps.histogram) else []
    for each in sorted(gaps.histogram, key=lambda each: -each.from_ns):
        left += each.count
        if each.count and each.from_ns < gaps.max_ns:
            points.append((each.from_ns, left / gaps.wall_s))
    return Exceedance(values.cpu, values.isolated, tuple(reversed(points)), gaps.threshold_ns)


def gaps(measurements: Sequence[Measurement], *, width: int = WIDE) -> Chart:
    """Return gaps per second of at least a length (ns), log-log; beyond ``SEPARATE`` CPUs a heat map of CPU by length.

    Raises ``ValueError`` without a measurement.
    """
    if not measurements:
        raise ValueError("expected at least one measurement of jitter")
    found = [exceedance(values) for values in values_of(JitterValues, *measurements)]
    worst = max(found, key=lambda each: each.longest_ns)
    alt = (
        f"Gaps per second of at least a length, both axes logarithmic, of {len(found)} CPU{'s' * (len(found) > 1)}. "
        f"The longest gap is {filters.time_ns(worst.longest_ns)}, on CPU {worst.cpu}."
    )
    invalid = invalid_text(measurements)
    if len(found) <= SEPARATE:
        caption = "How often the CPU was away for at least so long. The dashed line is the detection threshold."
        return Chart("jitter", _separate(found, width, invalid), alt, caption)
    caption = (
        "Above: how often a CPU was away for at least so long, on the CPU with the longest gap and at the median. "
        "Below: the same rate of every CPU as colour."
    )
    return Chart("jitter", _many(sorted(found, key=lambda each: each.cpu), worst, width, invalid), alt, caption)


def _scales(found: Sequence[Exceedance], width: int, height: int) -> tuple[Scale, Scale]:
    """Return the scales of lengths and of rates, each of a decade at least."""
    rates = _rates(found)
    shortest = min(each.threshold_ns for each in found)
    longest = max(*(each.longest_ns for each in found), shortest * 10)
    return (
        Scale(shortest / 1.15, longest * 1.4, width, log=True),
        Scale(min(rates) / 1.5, max(*rates, min(rates) * 10) * 2, height, log=True, up=True),
    )


def _rates(found: Sequence[Exceedance]) -> list[float]:
    return [rate for each in found for _, rate in each.points] or [1.0]


def _lengths(across: Scale, labels: str = base.TIME_LABEL, *, grid: bool = True) -> Json:
    """Return the channel of the lengths of gaps, with its labels or without."""
    title = "Length of the gap" if labels == base.TIME_LABEL else ""
    return across.channel("x", title, ticks=base.decades(across.low, across.high), labels=labels, grid=grid)


def _curves(
    lines: Mapping[str, Sequence[tuple[float, float]]], axes: tuple[Json, Json], width: int
) -> tuple[list[Json], list[Json]]:
    """Return the layers of *lines*, and their rows of at most about ``POINTS`` points each."""
    told = {"s": "CPU", "t": "at least", "y": "gaps per second"}
    rows = [
        {"s": label, "x": rounded(length, 4), "y": rounded(rate, 3), "t": filters.time_ns(length)}
        for label, points in lines.items()
        for length, rate in [*points[: -1 : max(1, ceil(len(points) / POINTS))], *points[-1:]]
    ]
    return curves.layers(list(lines), axes, width, told=told, bars=""), rows


def _separate(found: Sequence[Exceedance], width: int, invalid: str) -> Json:
    lines = {f"CPU {each.cpu}{', isolated' * each.isolated}": each.points for each in found}
    frame = base.Frame(width, legend=list(lines), invalid=invalid)
    across, up = _scales(found, *frame.plot)
    rates = up.channel("y", RATE, ticks=base.decades(up.low, up.high))
    layers, rows = _curves(lines, (_lengths(across), rates), width)
    return frame.spec([base.rules("x", [max(each.threshold_ns for each in found)]), *layers], rows)


def _many(found: Sequence[Exceedance], worst: Exceedance, width: int, invalid: str) -> Json:
    """Return the curves of the worst and the median CPU above a heat map of all, on one abscissa."""
    across, up = _scales(found, width - base.LEFT - base.RIGHT, 150)
    edges = base.decades(across.low, across.high, 99) or [across.low]
    middle = [(edge, rate) for edge in edges if (rate := median(each.at(edge) for each in found)) > 0]
    lines = {f"CPU {worst.cpu}, the longest gap": worst.points, f"median of {len(found)} CPUs": middle}
    rates = up.channel("y", RATE, ticks=base.decades(up.low, up.high, 5))
    layers, rows = _curves(lines, (_lengths(across, "''"), rates), width)
    upper = {"width": across.px, "height": up.px, "data": base.table(rows), "layer": layers}
    content = {"vconcat": [upper, _heat_map(found, across, edges)], "spacing": 8}
    return base.whole(
        content, invalid=invalid, resolve={"scale": dict.fromkeys(("color", "strokeDash"), "independent")}
    )


def _heat_map(found: Sequence[Exceedance], across: Scale, edges: Sequence[float]) -> Json:
    """Return the rates by CPU and by length, between *edges*, as colours."""
    step = ceil(len(found) / ROWS)
    blocks = [found[start : start + step] for start in range(0, len(found), step)]
    cells = [
        {"x": low, "x2": high, "y": place, "y2": place + 1, "r": rounded(rate, 3), "c": cpus}
        for place, block in enumerate(blocks)
        for cpus in [filters.cpus(each.cpu for each in block)]
        for low, high in pairwise([*edges, across.high])
        if (rate := max(each.at(low) for each in block))
    ]
    down = Scale(0, len(blocks), len(blocks) * max(3, min(18, 260 // len(blocks))))
    firsts = [block[0].cpu for block in blocks]
    ticks = [place + 0.5 for place in range(0, len(blocks), ceil(len(blocks) / 8))]
    y = down.channel("y", "CPU", ticks=ticks, labels=f"{firsts}[floor(datum.value)]", grid=False)
    y["scale"]["reverse"] = True
    low, high = min(_rates(found)), max(_rates(found))
    legend: Json = {"orient": "bottom", "direction": "horizontal", "gradientLength": 180, "gradientThickness": 10}
    legend |= {"title": "per second", "titleColor": base.MUTED, "titleFontWeight": "normal", "offset": 4}
    legend |= {"values": base.decades(low, high, 4), "labelExpr": base.PLAIN_LABEL}
    scale = {"type": "log", "scheme": "cividis", "domain": [rounded(low), rounded(high)]}
    encoding = {
        **base.stretch("x", _lengths(across, grid=False), "x", "x2"),
        **base.stretch("y", y, "y", "y2"),
        "color": {**base.number("r"), "scale": scale, "legend": legend},
        "tooltip": base.tips(c="CPU", x="at least, ns", r="gaps per second"),
    }
    view = {"fill": base.ABSENT, "stroke": base.AXIS}
    return {"width": across.px, "height": down.px, "view": view, **base.mark("rect", encoding, cells, clip=True)}
