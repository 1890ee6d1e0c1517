# SPDX-License-Identifier: Apache-2.0
"""Gaps in the time of a CPU: how many per second are at least so long."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from calibration.measurements.jitter import JitterValues
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Json, Scale, invalid_text, rounded, values_of
from calibration.results.model import Measurement

SEPARATE = 8
"""Up to so many CPUs each has its own curve."""

ROWS = 64
"""A heat map has at most so many rows: beyond that one row is the worst of several CPUs."""

POINTS = 48
"""A curve has at most so many points."""


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


def gaps(measurements: Sequence[Measurement], *, width: int = WIDE, name: str = "jitter") -> Chart:
    """Return gaps per second of at least a length (ns), log-log; beyond ``SEPARATE`` CPUs a heat map of CPU by length.

    Raises ``ValueError`` without a measurement.
    """
    if not measurements:
        raise ValueError("expected at least one measurement of jitter")
    found = [exceedance(values) for values in values_of(JitterValues, *measurements)]
    worst = max(found, key=lambda each: each.longest_ns)
    longest = filters.time_ns(worst.longest_ns)
    alt = (
        f"Gaps per second of at least a length, both axes logarithmic, of "
        f"{len(found)} CPU{'s' if len(found) > 1 else ''}. The longest gap is {longest}, on CPU {worst.cpu}."
    )
    invalid = invalid_text(measurements)
    if len(found) <= SEPARATE:
        spec = _separate(found, width, invalid)
        caption = "How often the CPU was away for at least so long. The dotted line is the detection threshold."
    else:
        spec = _many(sorted(found, key=lambda each: each.cpu), width, invalid)
        caption = (
            "Above: how often a CPU was away for at least so long, on the CPU with the longest gap and at the median. "
            "Below: the same rate of every CPU as colour."
        )
    return Chart(name=name, spec=spec, alt=alt, caption=caption)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, ceil(len(points) / POINTS))
    return [*points[:-1:step], *points[-1:]]


def _scales(found: Sequence[Exceedance], plot: tuple[int, int]) -> tuple[Scale, Scale]:
    rates = [rate for each in found for _, rate in each.points] or [1.0]
    shortest = min(each.threshold_ns for each in found)
    longest = max(*(each.longest_ns for each in found), shortest * 10)
    return (
        Scale(shortest / 1.15, longest * 1.4, plot[0], log=True),
        Scale(min(rates) / 1.5, max(*rates, min(rates) * 10) * 2, plot[1], log=True, up=True),
    )


def _curve_rows(label: str, points: Sequence[tuple[float, float]]) -> list[Json]:
    return [
        {"s": label, "x": rounded(length, 4), "y": rounded(rate, 3), "t": filters.time_ns(length)}
        for length, rate in _thinned(points)
    ]


def _curve_layers(names: Sequence[str], axes: tuple[Json, Json], width: int) -> list[Json]:
    line = {
        "x": axes[0],
        "y": axes[1],
        "color": base.series(names, base.COLOURS, width),
        "strokeDash": base.series(names, base.DASHES, width),
    }
    spot = {"x": axes[0], "y": axes[1], "tooltip": base.tips(("s", "CPU"), ("t", "at least"), ("y", "gaps per second"))}
    return [
        base.mark("line", None, line, strokeWidth=2),
        base.mark("point", None, spot, opacity=0, filled=True, size=90),
    ]


def _separate(found: Sequence[Exceedance], width: int, invalid: str) -> Json:
    names = [f"CPU {each.cpu}{', isolated' if each.isolated else ''}" for each in found]
    frame = base.Frame(width, legend=names, invalid=invalid)
    across, up = _scales(found, frame.plot)
    axes = (
        across.channel(
            "x", "Length of the gap", ticks=base.decades(across.low, across.high, 8), labels=base.TIME_LABEL
        ),
        up.channel("y", "Gaps per second at least so long", ticks=base.decades(up.low, up.high, 8)),
    )
    rows = [row for each, title in zip(found, names, strict=True) for row in _curve_rows(title, each.points)]
    layers = [
        base.rules("x", [max(each.threshold_ns for each in found)], dash=(2, 2)),
        *_curve_layers(names, axes, width),
    ]
    return frame.spec(layers, data=base.table(rows))


def _many(found: Sequence[Exceedance], width: int, invalid: str) -> Json:
    """Return the curves of the worst and the median CPU above a heat map of all, on one abscissa."""
    height, each_px = 150, max(3, min(18, 260 // min(len(found), ROWS)))
    across, up = _scales(found, (width - base.LEFT - base.RIGHT, height))
    edges = base.decades(across.low, across.high, 99) or [across.low]
    worst = max(found, key=lambda each: each.longest_ns)
    middle = [(edge, rate) for edge in edges if (rate := median(each.at(edge) for each in found)) > 0]
    names = [f"CPU {worst.cpu}, the longest gap", f"median of {len(found)} CPUs"]
    ticks = base.decades(across.low, across.high, 8)
    upper = {
        "width": across.px,
        "height": height,
        "data": base.table([*_curve_rows(names[0], worst.points), *_curve_rows(names[1], middle)]),
        "layer": _curve_layers(
            names,
            (
                across.channel("x", "", ticks=ticks, labels="''"),
                up.channel("y", "Gaps per second at least so long", ticks=base.decades(up.low, up.high, 5)),
            ),
            width,
        ),
    }
    step = ceil(len(found) / ROWS)
    blocks = [found[start : start + step] for start in range(0, len(found), step)]
    cells = []
    for place, block in enumerate(blocks):
        title = filters.cpus(each.cpu for each in block)
        for low, high in zip(edges, [*edges[1:], across.high], strict=True):
            if rate := max(each.at(low) for each in block):
                cells.append({"x": low, "x2": high, "y": place, "r": rounded(rate, 3), "c": title})
    numbered = range(0, len(blocks), ceil(len(blocks) / 8))
    down = Scale(0, len(blocks), each_px * len(blocks))
    names_of = {place: f"{blocks[place][0].cpu}" for place in numbered}
    rows = down.channel(
        "y",
        "CPU",
        ticks=[place + 0.5 for place in numbered],
        labels=f"{[names_of.get(place, '') for place in range(len(blocks))]}[floor(datum.value)]",
        grid=False,
    )
    rows["scale"]["reverse"] = True
    rates = [rate for each in found for _, rate in each.points] or [1.0]
    colour = {
        "field": "r",
        "type": "quantitative",
        "scale": {"type": "log", "scheme": "cividis", "domain": [rounded(min(rates)), rounded(max(rates))]},
        "legend": {
            "orient": "bottom",
            "title": "per second",
            "titleColor": base.MUTED,
            "titleFontWeight": "normal",
            "gradientLength": 180,
            "gradientThickness": 10,
            "values": base.decades(min(rates), max(rates), 4),
            "direction": "horizontal",
            "labelExpr": "format(datum.value, '~r')",
            "offset": 4,
        },
    }
    lower = {
        "width": across.px,
        "height": down.px,
        "view": {"fill": base.ABSENT, "stroke": base.AXIS},
        "data": base.table(cells),
        "transform": [{"calculate": "datum.y + 1", "as": "y2"}],
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": across.channel("x", "Length of the gap", ticks=ticks, labels=base.TIME_LABEL, grid=False),
            "x2": {"field": "x2"},
            "y": rows,
            "y2": {"field": "y2"},
            "color": colour,
            "tooltip": base.tips(("c", "CPU"), ("x", "at least, ns"), ("r", "gaps per second")),
        },
    }
    return base.whole(
        {
            "vconcat": [upper, lower],
            "spacing": 8,
            "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
        },
        invalid=invalid,
    )
