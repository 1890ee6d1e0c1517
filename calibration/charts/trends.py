# SPDX-License-Identifier: Apache-2.0
"""Charts of many SUTs: values over the nights, one panel per SUT, and all SUTs of one night on a line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial
from itertools import groupby, pairwise
from math import ceil, isfinite

import numpy as np
from numpy.typing import NDArray

from calibration.charts import base
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import HALF, Chart, Json, Scale, rounded

Numbers = NDArray[np.float64]

MIN_NIGHTS = 3  # fewer nights have no chart
MAX_ROWS = 1000  # approximate limit of data rows in a chart: with many SUTs and nights not every night is drawn
MAX_MARKERS = 60  # most nights with a marker each
MIN_RANGE = 0.01  # least range of a panel to both sides of a value, as a share: SUTs repeat within a per cent
VALUE, CHANGE, ACCEPTED, CONTEXT = base.COLOURS[:4]


@dataclass(frozen=True)
class Panel:
    """The content of one SUT's panel; arrays have one entry per night, NaN if there is no value.

    ``low`` to ``high`` is each night's interval, or the range between the best and the worst of a family. ``levels``
    are stretches (first column, last column, level) of constant level. ``changes`` are detected changes: first night (a
    column) and label. ``flips`` is (since column, lower, upper level). ``context`` are columns with the number of
    changed facts. ``failing`` marks the last night's value.
    """

    label: str
    state: str
    failing: bool
    values: Numbers
    low: Numbers
    high: Numbers
    band: tuple[float | None, float | None] = (None, None)
    levels: tuple[tuple[int, int, float], ...] = ()
    changes: tuple[tuple[int, str], ...] = ()
    flips: tuple[int, float, float] | None = None
    context: tuple[tuple[int, int], ...] = ()


def trend(nights: Sequence[date], panels: Sequence[Panel], unit: str, *, name: str, title: str) -> Chart | None:
    """Return the values of *panels* over *nights*, which ascend, in *unit*; ``None`` before the third night.

    *unit* is one of the harness's own.
    """
    panels = [panel for panel in panels if np.isfinite(panel.values).any()]
    if len(nights) < MIN_NIGHTS or not panels:
        return None
    days = [(night - nights[0]).days for night in nights]
    across = Scale(-0.5, days[-1] + 0.5, HALF - base.LEFT - 30)
    height = 220 if len(panels) == 1 else 84
    up = _scale(panels, height)
    step = ceil(len(nights) * len(panels) / MAX_ROWS)
    epoch_ms = int(datetime.combine(nights[0], time(), UTC).timestamp() * 1000)
    date_of = f"utcFormat({epoch_ms} + {{}} * 864e5, '{{}}')".format
    labels = date_of("datum.value", "%Y-%m" if days[-1] > 100 else "%m-%d")
    every = next(every for every in (1, 2, 7, 14, 30, 61, 122, 365, 3650) if days[-1] / every <= 8)
    ticks = [float(day) for day in range(days[-1] % every, days[-1] + 1, every)]
    x = across.channel("x", "", ticks=ticks, labels=labels, grid=False)
    parts = []
    for panel in panels:
        text = f"{base.label(panel.label)}: {base.label(panel.state)}"
        colour = base.INVALID if panel.failing else base.INK
        head = {"text": text, "color": colour, "offset": 16 if panel.context else 6}
        rows = list(_rows(panel, days, step))
        own_x = {**x, "axis": {**x["axis"], "labels": panel is panels[-1]}}
        layers = _layers(panel, rows, days, (across, up), x=own_x, unit=unit)
        dated = [{"calculate": date_of("datum.x", "%Y-%m-%d"), "as": "t"}]
        parts.append(base.view((across.px, height), layers, rows, title=head, transform=dated))
    span = f"{title} on {len(nights)} nights from {nights[0]} to {nights[-1]}"
    failing = (f"{panel.label}: {panel.state}" for panel in panels if panel.failing)
    caption = (
        f"{title}. Line: value; blue: its interval, arrows have the farthest ends of those cut; green: accepted range"
    )
    caption += "; dashes: detected change" * any(panel.changes or panel.flips for panel in panels)
    caption += "; diamond: configuration changed, numbered as below" * any(panel.context for panel in panels)
    return Chart(
        name,
        base.stacked(parts, 6),
        alternative(span, [extremes(_values(panels, nights, unit)), *failing]),
        f"{caption}.",
    )


def _values(panels: Sequence[Panel], nights: Sequence[date], unit: str) -> Iterator[Value]:
    for panel in panels:
        for night, value in zip(nights, panel.values.tolist(), strict=True):
            if isfinite(value):
                yield Value(value, base.shown(value, unit), f"{base.label(panel.label)}, {night}")


def _scale(panels: Sequence[Panel], height: int) -> Scale:
    """Return the range of all *panels*: all but the most extreme values, tonight's, the levels and accepted ranges."""
    shown: list[float] = []
    for panel in panels:
        known = panel.values[np.isfinite(panel.values)]
        shown += [float(limit) for limit in np.percentile(known, (2.0, 98.0))]
        shown += [float(known[-1]), *(level for _, _, level in panel.levels), *(panel.flips or ())[1:]]
    size = 2 * max(map(abs, shown))
    shown += [end for panel in panels for end in panel.band if end is not None and abs(end) < size]
    low, high = base.spanned(shown, MIN_RANGE)
    room = 0.12 * (high - low)
    return Scale(low - room, high + room, height, up=True)


def _stretches(panel: Panel) -> list[tuple[bool, list[int]]]:
    """Return the stretches of nights (columns) with a value, and those without."""
    known = np.isfinite(panel.values).tolist()
    return [(has, list(nights)) for has, nights in groupby(range(len(known)), key=lambda night: known[night])]


def _rows(panel: Panel, days: Sequence[int], step: int) -> Iterator[Json]:
    """Yield each night, or every *step*-th and the last; ``k`` differs for stretches separated by a gap."""
    low, high = (np.where(np.isfinite(end), end, panel.values) for end in (panel.low, panel.high))
    for stretch, (known, nights) in enumerate(_stretches(panel)):
        for night in nights:
            if known and (night % step == 0 or night == len(days) - 1):
                y, low_y, high_y = (rounded(float(line[night]), 4) for line in (panel.values, low, high))
                yield {"x": days[night], "y": y, "l": low_y, "h": high_y, "k": stretch}


def _farthest(rows: Sequence[Json], up: Scale) -> list[Json]:
    """Return the nights whose values are not within *up*, and those with the highest and the lowest interval."""
    found = [row for row in rows if not up.low <= row["y"] <= up.high]
    found += [max(rows, key=lambda row: row["h"]), min(rows, key=lambda row: row["l"])]
    return [{"s": "", **row} for row in {row["x"]: row for row in found}.values()]


def _layers(
    panel: Panel, rows: Sequence[Json], days: Sequence[int], scales: tuple[Scale, Scale], *, x: Json, unit: str
) -> list[Json]:
    """Return the layers of a panel, from back to front."""
    _, up = scales
    y = up.channel("y", "", ticks=4 if up.px > 100 else 3, labels=f"{base.PLAIN_LABEL} + ' {unit}'")
    edges = [-0.5, *((a + b) / 2 for a, b in pairwise(days)), days[-1] + 0.5]
    band = []
    if panel.band != (None, None):
        low, high = (edge if end is None else end for end, edge in zip(panel.band, (up.low, up.high), strict=True))
        band = [{"y": rounded(max(low, up.low)), "y2": rounded(min(high, up.high))}]
    missing = [
        {"x": days[nights[0]] - 0.5, "x2": days[nights[-1]] + 0.5} for known, nights in _stretches(panel) if not known
    ]
    levels = [{"x": edges[a], "x2": edges[b + 1], "y": rounded(level)} for a, b, level in panel.levels]
    since, *both = panel.flips or (0,)
    flips = [{"x": edges[since], "x2": edges[-1], "y": rounded(level)} for level in both]
    changes = [(edges[night], up.high, label) for night, label in panel.changes]
    offsets = ((0.5, 9.0), (0.5, up.px - 9), (-0.5, 9.0), (-0.5, up.px - 9), (0.5, up.px / 2))
    taken = [(row["x"], row["y"]) for row in rows]
    placed: list[tuple[float, float, float]] = []
    context = [{"x": edges[night], "n": str(number)} for night, number in panel.context]
    failing = rows[-1:] if panel.failing and np.isfinite(panel.values[-1]) else []
    at_x, at_y = base.number("x"), base.number("y")
    flat = {**base.stretch("x", at_x, "x", "x2"), "y": at_y}
    line = {"x": x, "y": y, "detail": {"field": "k"}}
    spot = {"x": x, "y": y, "tooltip": base.tips(t="night", y=unit, l="from", h="to")}
    few = len(days) <= MAX_MARKERS
    spot_at = partial(base.mark, "point", filled=True, opacity=1)
    number = {"x": at_x, "y": {"value": -4}, "text": {"field": "n"}}
    return [
        base.mark("area", {**line, **base.stretch("y", y)}, color=VALUE, opacity=0.25, clip=True),
        base.mark("rect", base.stretch("y", at_y, "y", "y2"), band, color=ACCEPTED, opacity=0.15),
        base.mark("rect", base.stretch("x", at_x, "x", "x2"), missing, color=base.ABSENT),
        base.mark("line", line, strokeWidth=1.6, color=VALUE, clip=True),
        base.mark("point", spot, filled=True, color=VALUE, size=18 if few else 50, opacity=int(few), clip=True),
        base.mark("rule", flat, levels, color=base.INK, strokeWidth=1.2),
        base.mark("rule", flat, flips, color=CHANGE, strokeDash=[2, 2], strokeWidth=1.4),
        base.rules("x", [at for at, _, _ in changes], colour=CHANGE),
        base.labels(changes[-6:], taken, scales, offsets, placed, color=CHANGE, fontSize=11),
        *base.cuts(_farthest(rows, up), scales, {"value": VALUE}, taken, placed),
        spot_at({"x": at_x, "y": {"value": -3}}, context, shape="diamond", size=50, color=CONTEXT),
        base.mark("text", number, context, color=CONTEXT, align="left", dx=6, fontSize=11),
        spot_at({"x": at_x, "y": at_y}, failing, shape="square", size=70, color=base.INVALID),
    ]
