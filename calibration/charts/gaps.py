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
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import Chart, Frame, Json, Measured, Scale, rounded
from calibration.charts.cpus import Nodes, in_blocks

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
    name: str, measurements: Sequence[Measured[Any]], found: Sequence[Exceedance], nodes: Nodes, width: int
) -> Chart:
    """Return gaps per second of at least a length (ns), log-log.

    With more than ``MAX_CURVES`` CPUs there is a heat map as well, by *nodes* where there are several.
    """
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
    frame = Frame(width, 218 if many else 240, legend=list(lines), measurements=measurements)
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
        below = _heat_map(found, nodes, across, edges, lengths)
        spec = base.stacked([base.view(frame.plot, layers, rows), below], 8, measurements)
        caption = (
            "Above: how often a CPU was away for at least this long, on the CPU with the longest interruption and at "
            "the median. Below: the same rate of every CPU, darker if there are more; grey has none."
        )
    else:
        spec = frame.spec([base.rules("x", [max(cpu.threshold_ns for cpu in found)]), *layers], rows)
        caption = "How often the CPU was away for at least this long. The dashed line is the detection threshold."
    longest = (Value(cpu.longest_ns, units.time_ns(cpu.longest_ns), f"CPU {cpu.cpu}") for cpu in found)
    rated = ((cpu, cpu.at(0.0)) for cpu in found)
    every = (Value(rate, f"{units.significant(rate, 3)} per second", f"CPU {cpu.cpu}") for cpu, rate in rated)
    alt = alternative(
        f"Gaps per second in the time of {units.plural(len(found), 'CPU')}, by least length",
        [f"longest per CPU, {extremes(longest)}", f"of any length, {extremes(every)}"],
    )
    return Chart(name, spec, alt, caption)


def _heat_map(
    found: Sequence[Exceedance],
    nodes: Nodes,
    across: Scale,
    edges: Sequence[float],
    lengths: Json,
) -> Json:
    """Return the rates by CPU and by length, between *edges*, as a heat map."""
    by_cpu = {cpu.cpu: cpu for cpu in found}
    blocks = in_blocks(by_cpu, nodes, MAX_ROWS)
    places = blocks.places
    cells = [
        {"x": low, "x2": high, "y": place, "y2": place + 1, "r": rounded(rate, 3), "c": cpus}
        for place, block in enumerate(places)
        for cpus in [units.cpus(block)]
        for low, high in pairwise([*edges, across.high])
        if (rate := max(by_cpu[cpu].at(low) for cpu in block))
    ]
    down = Scale(0, len(places), len(places) * max(3, min(18, 260 // len(places))))
    y = blocks.channel(down, "y", 14)
    y["scale"]["reverse"] = True
    x = {**lengths, "axis": {**lengths["axis"], "grid": False}}
    rates = [rate for cpu in found for _, rate in cpu.points]
    low, high = min(rates), max(rates)
    legend: Json = {"orient": "bottom", "direction": "horizontal", "gradientLength": 180, "gradientThickness": 10}
    legend |= {"title": "per second", "titleColor": base.MUTED, "titleFontWeight": "normal", "offset": 4}
    legend |= {"values": base.decades(low, high, 4), "labelExpr": base.PLAIN_LABEL}
    scale = {"type": "log", "scheme": "cividis", "reverse": True, "domain": [rounded(low), rounded(high)]}
    encoding = {
        **base.stretch("x", x, "x", "x2"),
        **base.stretch("y", y, "y", "y2"),
        "color": {**base.number("r"), "scale": scale, "legend": legend},
        "tooltip": base.tips(c="CPU", x="at least, ns", r="interruptions per second"),
    }
    layer = base.mark("rect", encoding, clip=True)
    return base.view(
        (across.px, down.px), [layer, blocks.boundaries("y")], cells, view={"fill": base.ABSENT, "stroke": base.AXIS}
    )
