# SPDX-License-Identifier: Apache-2.0
"""Charts of many SUTs: figures over the nights, a panel for each SUT, and all SUTs of one night on a line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Json, Scale, rounded

Numbers = NDArray[np.float64]

NIGHTS = 3
"""Fewer nights are told in words."""

ROWS = 1000
"""A chart has about so many rows of data: of many nights of many SUTs not each is drawn."""

PANELS = 24
"""A chart has at most so many panels, those that fail first."""

MARKERS = 60
"""Up to so many nights each has a marker."""

SMALLEST_SPAN = 0.01
"""A panel shows at least this share of a figure to both sides of it: SUTs repeat within a per cent."""

CHANGE, ACCEPTED, CONTEXT = base.COLOURS[1], base.COLOURS[2], base.COLOURS[3]


@dataclass(frozen=True)
class Found:
    """A change that was found: its first night (a column), and what is written beside it."""

    night: int
    label: str


@dataclass(frozen=True)
class Panel:
    """What one SUT's panel shows; arrays are as long as the chart's nights, NaN where there is no figure.

    ``low`` to ``high`` is each night's interval, or what lies between the best and the worst of a family. ``levels``
    are stretches (first column, last column, level) of one level. ``flips`` is (since column, lower, upper level).
    ``context`` are columns with the number of what changed in the context. ``failing`` marks the last night's figure.
    """

    label: str
    state: str
    failing: bool
    values: Numbers
    low: Numbers
    high: Numbers
    band: tuple[float | None, float | None] | None = None
    levels: tuple[tuple[int, int, float], ...] = ()
    changes: tuple[Found, ...] = ()
    flips: tuple[int, float, float] | None = None
    context: tuple[tuple[int, int], ...] = ()


def trend(
    nights: Sequence[date], panels: Sequence[Panel], unit: str, *, name: str, alt: str, width: int = WIDE
) -> Chart | None:
    """Return the figures of *panels* over *nights*, which ascend, in *unit*; ``None`` before the third night.

    *unit* is one of the harness's own words.
    """
    panels = [panel for panel in panels if np.isfinite(panel.values).any()]
    panels = sorted(panels, key=lambda panel: not panel.failing)[:PANELS]
    if len(nights) < NIGHTS or not panels:
        return None
    days = [(night - nights[0]).days for night in nights]
    step = ceil(len(nights) * len(panels) / ROWS)
    px = width - base.LEFT - 30
    across = Scale(-0.5, days[-1] + 0.5, px)
    height = 220 if len(panels) == 1 else 84 if len(panels) <= 6 else 56
    x = across.channel("x", "", ticks=_ticks(days[-1]), labels=_worded(nights[0], days[-1]), grid=False)
    parts = [
        _panel(panel, days, (across, _scale(panel, height)), unit=unit, step=step, x=x, start=nights[0])
        for panel in panels
    ]
    for part in parts[:-1]:
        part["layer"][0]["encoding"]["x"] = {**x, "axis": {**x["axis"], "labels": False}}
    return Chart(
        name=name,
        spec=base.whole({"vconcat": parts, "spacing": 6}),
        alt=alt,
        caption="Lines are figures of the nights, areas their intervals, green what is accepted. Dashes are changes "
        "that were found, numbers changes of the context.",
    )


def _worded(first: date, days: int) -> str:
    epoch_ms = int(datetime.combine(first, time(), UTC).timestamp() * 1000)
    return f"utcFormat({epoch_ms} + datum.value * 864e5, '{'%Y-%m' if days > 100 else '%m-%d'}')"


def _ticks(days: int) -> list[float]:
    step = next(step for step in (1, 2, 7, 14, 30, 61, 122, 365, 3650) if days / step <= 8)
    return [float(day) for day in range(days % step, days + 1, step)]


def _scale(panel: Panel, height: int) -> Scale:
    """Return what a panel shows: all but the farthest figures, tonight's, the levels and what is accepted."""
    known = panel.values[np.isfinite(panel.values)]
    shown = [float(each) for each in np.percentile(known, (2.0, 98.0))]
    shown += [float(known[-1]), *(level for _, _, level in panel.levels), *(panel.flips or ())[1:]]
    largest = max(map(abs, shown))
    shown += [end for end in panel.band or () if end is not None and abs(end) < 2 * largest]
    low, high = base.spanned(shown, SMALLEST_SPAN)
    room = 0.12 * (high - low)
    return Scale(low - room, high + room, height, up=True)


def _panel(
    panel: Panel,
    days: Sequence[int],
    scales: tuple[Scale, Scale],
    *,
    unit: str,
    step: int,
    x: Json,
    start: date,
) -> Json:
    up = scales[1]
    y = up.channel("y", "", ticks=4 if up.px > 100 else 3, labels=f"format(datum.value, '~r') + ' {unit}'")
    known = np.isfinite(panel.values)
    rows = list(_rows(panel, days, step))
    at: Json = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
    flat, upright = {**at, "x2": {"field": "x2"}}, {"x": at["x"]}
    line: Json = {"x": x, "y": y, "detail": {"field": "k"}}
    told = base.tips(("t", "night"), ("y", unit), ("l", "from"), ("h", "to"))
    area: Json = {"x": x, "y": {**y, "field": "l"}, "y2": {"field": "h"}, "detail": {"field": "k"}}
    layers: list[Json] = [base.mark("area", None, area, color=base.COLOURS[0], opacity=0.25, clip=True)]
    if panel.band is not None and panel.band != (None, None):
        low, high = (end if end is not None else edge for end, edge in zip(panel.band, (up.low, up.high), strict=True))
        band = base.table([{"y": rounded(max(low, up.low)), "y2": rounded(min(high, up.high))}])
        layers.append(base.mark("rect", band, {"y": at["y"], "y2": {"field": "y2"}}, color=ACCEPTED, opacity=0.15))
    if gaps := list(_missing(known, days)):
        missing = base.table({"x": first, "x2": last} for first, last in gaps)
        layers.append(base.mark("rect", missing, {**upright, "x2": {"field": "x2"}}, color=base.ABSENT))
    layers.append(base.mark("line", None, line, strokeWidth=1.6, color=base.COLOURS[0], clip=True))
    point = {"x": x, "y": y, "tooltip": told}
    few = len(days) <= MARKERS
    layers.append(
        base.mark("point", None, point, filled=True, size=18 if few else 50, opacity=int(few), color=base.COLOURS[0])
    )
    edge = [(a + b) / 2 for a, b in pairwise(days)]
    starts, stops = [-0.5, *edge], [*edge, days[-1] + 0.5]
    levels = [{"x": starts[a], "x2": stops[b], "y": rounded(level)} for a, b, level in panel.levels]
    if levels:
        layers.append(base.mark("rule", base.table(levels), flat, color=base.INK, strokeWidth=1.2))
    if panel.flips is not None:
        since, *both = panel.flips
        flips = base.table({"x": starts[since], "x2": stops[-1], "y": rounded(level)} for level in both)
        layers.append(base.mark("rule", flips, flat, color=CHANGE, strokeDash=[2, 2], strokeWidth=1.4))
    if panel.changes:
        layers.append(base.rules("x", [starts[found.night] for found in panel.changes], colour=CHANGE))
        wanted = [(starts[found.night], up.high, found.label) for found in panel.changes[-6:]]
        taken = [(row["x"], row["y"]) for row in rows]
        offsets = ((0.5, 9.0), (0.5, up.px - 9), (-0.5, 9.0), (-0.5, up.px - 9), (0.5, up.px / 2))
        layers.append(base.labels(wanted, taken, scales, offsets, color=CHANGE, fontSize=11))
    if panel.context:
        marks = base.table({"x": starts[night], "n": str(number)} for night, number in panel.context)
        top = {"x": at["x"], "y": {"value": -3}}
        layers.append(base.mark("point", marks, top, shape="diamond", filled=True, size=50, color=CONTEXT, opacity=1))
        numbers = {"x": at["x"], "y": {"value": -4}, "text": {"field": "n", "type": "nominal"}}
        layers.append(base.mark("text", marks, numbers, color=CONTEXT, align="left", dx=6, fontSize=11))
    if panel.failing and known[-1]:
        last = base.table([{"x": days[-1], "y": rounded(float(panel.values[-1]))}])
        layers.append(base.mark("point", last, at, shape="square", filled=True, size=70, color=base.INVALID, opacity=1))
    titled = {"text": f"{base.label(panel.label)}: {base.label(panel.state)}", "frame": "group", "fontSize": 12}
    titled |= {"color": base.INVALID if panel.failing else base.INK, "offset": 16 if panel.context else 6}
    epoch = _worded(start, 0).replace("datum.value", "datum.x").replace("%m-%d", "%Y-%m-%d")
    return {
        "title": titled,
        "width": scales[0].px,
        "height": up.px,
        "data": base.table(rows),
        "transform": [{"calculate": epoch, "as": "t"}],
        "layer": layers,
    }


def _rows(panel: Panel, days: Sequence[int], step: int) -> Iterator[Json]:
    """Yield each night, or every *step*-th and the last; ``k`` counts the stretches without a gap."""
    stretch = 0
    for index, value in enumerate(panel.values):
        if not np.isfinite(value):
            stretch += index > 0 and bool(np.isfinite(panel.values[index - 1]))
        elif index % step == 0 or index == len(days) - 1:
            ends = ((float(end) if np.isfinite(end) else float(value)) for end in (panel.low[index], panel.high[index]))
            low, high = (rounded(end, 4) for end in ends)
            yield {"x": days[index], "y": rounded(float(value), 4), "l": low, "h": high, "k": stretch}


def _missing(known: NDArray[np.bool_], days: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield where nights on end have no figure, as days."""
    first = None
    for index in range(len(days) + 1):
        here = index < len(days) and not known[index]
        if here and first is None:
            first = index
        elif not here and first is not None:
            yield days[first] - 0.5, days[index - 1] + 0.5
            first = None


State = Literal["accepted", "fails", "no baseline"]

STATES: dict[State, tuple[str, str]] = {
    "accepted": (base.COLOURS[0], "circle"),
    "fails": (base.INVALID, "square"),
    "no baseline": (base.MUTED, "triangle-up"),
}


@dataclass(frozen=True)
class Dot:
    """One SUT on a strip: its figure, and how it stands."""

    label: str
    value: float
    state: State = "accepted"


def dot_strip(
    dots: Sequence[Dot], title: str, unit: str, *, tolerance: float, name: str, width: int = WIDE
) -> Chart | None:
    """Return a dot for each SUT of one platform, its median and *tolerance* (share) around it; ``None`` for one or two.

    Dots that would cover each other stand above one another.
    """
    if len(dots) < NIGHTS:
        return None
    values = [dot.value for dot in dots]
    middle = median(values)
    low, high = base.spanned(values, max(2 * tolerance, 0.01))
    room = (high - low) * 0.03
    across = Scale(low - room, high + room, width - 30)
    rows: list[Json] = []
    taken: dict[int, int] = {}
    for dot in sorted(dots, key=lambda dot: dot.value):
        column = round(across.at(dot.value) / 9)
        taken[column] = tier = taken.get(column, -1) + 1
        rows.append({"x": rounded(dot.value), "y": tier + 0.5, "t": base.label(dot.label), "s": dot.state})
    tiers = max(taken.values()) + 1
    states = [state for state in STATES if any(row["s"] == state for row in rows)]
    frame = base.Frame(width, base.TOP + base.BOTTOM + max(40, 9 * tiers), legend=states, left=15, right=15)
    x = across.channel("x", f"{title}, {unit}", ticks=7, grid=False)
    up = Scale(0, frame.plot[1] / 9, frame.plot[1], up=True)
    y = {**up.channel("y", ""), "axis": None}
    band = base.table([{"x": rounded(middle * (1 - tolerance)), "x2": rounded(middle * (1 + tolerance))}])
    colour = base.series(states, [STATES[state][0] for state in states], width)
    shape = base.series(states, [STATES[state][1] for state in states], width)
    told = base.tips(("t", "SUT"), ("x", f"{title}, {unit}"), ("s", "state"))
    spec = frame.spec(
        [
            base.mark("rect", band, {"x": x, "x2": {"field": "x2"}}, color=ACCEPTED, opacity=0.18),
            base.rules("x", [middle], dash=(1, 0)),
            base.mark(
                "point",
                None,
                {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": told},
                filled=True,
                size=42,
                opacity=0.9,
            ),
        ],
        data=base.table(rows),
    )
    worst = max(dots, key=lambda dot: abs(dot.value - middle))
    said = f"median {filters.significant(middle, 3)} {unit}; farthest {worst.label} with"
    return Chart(
        name=name,
        spec=spec,
        alt=f"{title} of {len(dots)} SUTs: {said} {filters.significant(worst.value, 3)} {unit}.",
        caption=f"A dot is a SUT, the line their median, green ±{filters.exact_percent(tolerance)} of it.",
    )
