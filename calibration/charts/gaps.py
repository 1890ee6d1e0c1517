# SPDX-License-Identifier: Apache-2.0
"""Gaps in a CPU's time: gaps per second of at least a length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any

from calibration.base import units
from calibration.charts import base, curves
from calibration.charts.base import WIDE, Chart, Frame, Json, Measured, Scale, rounded

MAX_CURVES = 8  # most CPUs with a curve each
MAX_POINTS = 48  # most points of a curve
MAX_ROWS = 64  # most rows of a heat map; beyond, one row is the worst of several CPUs


@dataclass(frozen=True)
class Exceedance:
    """Gaps per second of at least each length (ns) on one CPU, by increasing length."""

    cpu: int
    isolated: bool
    points: tuple[tuple[float, float], ...]
    threshold_ns: float

    @property
    def longest_ns(self) -> float:
        """The longest gap; the threshold if there was none."""
        return self.points[-1][0] if self.points else self.threshold_ns

    def at(self, length_ns: float) -> float:
        """Return the rate of gaps of at least *length_ns*."""
        return next((rate for length, rate in self.points if length >= length_ns), 0.0)


def gaps_chart(
    name: str, measurements: Sequence[Measured[Any]], found: Sequence[Exceedance], width: int = WIDE
) -> Chart:
    """Return gaps per second of at least a length (ns), log-log; with more than ``MAX_CURVES`` CPUs also a heat map."""
    worst = max(found, key=lambda cpu: cpu.longest_ns)
    rates = [rate for cpu in found for _, rate in cpu.points] or [1.0]
    shortest_ns = min(cpu.threshold_ns for cpu in found)
    ends_ns = shortest_ns / 1.15, max(worst.longest_ns, shortest_ns * 10) * 1.4
    edges = base.decades(*ends_ns, 99)
    many = len(found) > MAX_CURVES
    if many:
        middle = [(edge, rate) for edge in edges if (rate := median(cpu.at(edge) for cpu in found)) > 0]
        lines = {f"CPU {worst.cpu}, the longest interruption": worst.points, f"median of {len(found)} CPUs": middle}
    else:
        lines = {f"CPU {cpu.cpu}{', isolated' * cpu.isolated}": cpu.points for cpu in found}
    rows = [
        {"s": label, "x": rounded(length, 4), "y": rounded(rate, 3), "t": units.time_ns(length)}
        for label, points in lines.items()
        for length, rate in [*points[: -1 : max(1, ceil(len(points) / MAX_POINTS))], *points[-1:]]
    ]
    frame = Frame(width, 218 if many else 320, legend=list(lines), measurements=measurements)
    across = Scale(*ends_ns, frame.plot[0], log=True)
    up = Scale(min(rates) / 1.5, max(*rates, min(rates) * 10) * 2, frame.plot[1], log=True, up=True)
    lengths = across.channel("x", "Length of the interruption", ticks=base.decades(*ends_ns), labels=base.TIME_LABEL)
    y = up.channel(
        "y", "Interruptions per second, at least this long", ticks=base.decades(up.low, up.high, 5 if many else 8)
    )
    x = {**lengths, "axis": {**lengths["axis"], "title": "", "labelExpr": "''"}} if many else lengths
    layers = curves.layers(
        frame, (x, y), tooltip={"s": "CPU", "t": "at least", "y": "interruptions per second"}, bars=""
    )
    if many:
        below = _heat_map(sorted(found, key=lambda cpu: cpu.cpu), across, edges, lengths, rates)
        spec = base.stacked([base.view(frame.plot, layers, rows), below], 8, measurements)
        caption = (
            "Above: how often a CPU was away for at least this long, on the CPU with the longest interruption and at "
            "the median. Below: the same rate of every CPU as colour."
        )
    else:
        spec = frame.spec([base.rules("x", [max(cpu.threshold_ns for cpu in found)]), *layers], rows)
        caption = "How often the CPU was away for at least this long. The dashed line is the detection threshold."
    alt = (
        "Interruptions per second of at least a length, both axes logarithmic, of "
        f"{units.plural(len(found), 'CPU')}. The longest is {units.time_ns(worst.longest_ns)}, on CPU {worst.cpu}."
    )
    return Chart(name, spec, alt, caption)


def _heat_map(
    found: Sequence[Exceedance], across: Scale, edges: Sequence[float], lengths: Json, rates: Sequence[float]
) -> Json:
    """Return the *rates* by CPU and by length, between *edges*, as a heat map."""
    step = ceil(len(found) / MAX_ROWS)
    blocks = [found[start : start + step] for start in range(0, len(found), step)]
    cells = [
        {"x": low, "x2": high, "y": place, "y2": place + 1, "r": rounded(rate, 3), "c": cpus}
        for place, block in enumerate(blocks)
        for cpus in [units.cpus(cpu.cpu for cpu in block)]
        for low, high in pairwise([*edges, across.high])
        if (rate := max(cpu.at(low) for cpu in block))
    ]
    down = Scale(0, len(blocks), len(blocks) * max(3, min(18, 260 // len(blocks))))
    firsts = [block[0].cpu for block in blocks]
    ticks = [place + 0.5 for place in range(0, len(blocks), ceil(len(blocks) / 8))]
    y = down.channel("y", "CPU", ticks=ticks, labels=f"{firsts}[floor(datum.value)]", grid=False)
    y["scale"]["reverse"] = True
    x = {**lengths, "axis": {**lengths["axis"], "grid": False}}
    low, high = min(rates), max(rates)
    legend: Json = {"orient": "bottom", "direction": "horizontal", "gradientLength": 180, "gradientThickness": 10}
    legend |= {"title": "per second", "titleColor": base.MUTED, "titleFontWeight": "normal", "offset": 4}
    legend |= {"values": base.decades(low, high, 4), "labelExpr": base.PLAIN_LABEL}
    scale = {"type": "log", "scheme": "cividis", "domain": [rounded(low), rounded(high)]}
    encoding = {
        **base.stretch("x", x, "x", "x2"),
        **base.stretch("y", y, "y", "y2"),
        "color": {**base.number("r"), "scale": scale, "legend": legend},
        "tooltip": base.tips(c="CPU", x="at least, ns", r="interruptions per second"),
    }
    layer = base.mark("rect", encoding, clip=True)
    return base.view((across.px, down.px), [layer], cells, view={"fill": base.ABSENT, "stroke": base.AXIS})
