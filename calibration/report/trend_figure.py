# SPDX-License-Identifier: Apache-2.0
"""The figure of a trend: one metric of all SUTs of a testbed over the nights, a panel for each SUT.

Panels stand above one another on the same nights, so that what happened to all SUTs at once is seen at once. They have
one scale, unless a SUT's own changes would be too small to be seen on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.report.figures import LABEL_PX, RIGHT_PX, WIDTH_PX, drawn
from calibration.report.svg import GRID, Axis, Drawing, Scale, beside, evenly, linear_ticks, width_of

Numbers = NDArray[np.float64]

PANEL_PX = 74
"""Height of a SUT's panel; changes of a quarter of the spread of a figure can be seen in it."""

FLAT_PX = 50
"""Height of a panel where there are more than ``MANY_SUTS``."""

MANY_SUTS = 6

NAME_PX, MARKS_PX = 22, 15
"""Room above a panel: a line with the SUT's name and state, and one for the marks of what changed in a context."""

FOOT_PX = 24
"""Room below the last panel for the dates."""

MARKERS_UP_TO = 60
"""Up to so many nights each has a marker; beyond that they would hide the line."""

OWN_SCALE = 4.0
"""A panel's figures take at least this share (one over it) of its height, or every panel has its own scale."""

LEAST_RANGE = 0.01
"""A panel shows at least this share of the figure's size, so that a steady figure looks steady."""

TELLING = (2.0, 98.0)
"""Percentiles between which figures decide what a panel shows; the few beyond may end at its edge."""

SEEN_PX = 1.0
"""Intervals that are nowhere higher than the line is wide are hidden by it, and not drawn."""

MARK_APART_PX = 15
"""Marks nearer to each other than this are drawn as one, with the first and the last of their numbers."""

LINE = "#0072B2"
INTERVAL = "#B9D9EC"
ACCEPTED = "#DDF0E8"
EDGE = "#007A58"
LEVEL = "#222222"
CHANGE = "#B84A00"
CONTEXT = "#8A3A6B"
FAILS = "#B00020"
GAP = "#E2E2E2"
"""Colours: those of Okabe and Ito or darker, so that lines and their texts stand out from white and from each other."""


@dataclass(frozen=True)
class Found:
    """A change that was found: its first night (a column), and what is written beside it."""

    night: int
    label: str


@dataclass(frozen=True)
class Panel:
    """What one SUT's panel shows; arrays are as long as the figure's nights, NaN where there is no figure.

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


@dataclass(frozen=True)
class _Nights:
    """Where nights lie on the figure's width."""

    days: Sequence[int]
    axis: Axis

    @cached_property
    def usual(self) -> float:
        """How many days lie between a night and the next, as a rule."""
        return float(np.median(np.diff(self.days))) if len(self.days) > 1 else 1.0

    @cached_property
    def places(self) -> list[float]:
        """Where each night is, in px."""
        return _at(self.axis, np.array(self.days, dtype=np.float64))

    def edges(self, first: int, last: int) -> tuple[float, float]:
        """Return the left and right end of the nights from *first* to *last*, half way to their neighbours."""
        low = (self.days[first - 1] + self.days[first]) / 2 if first else self.days[0] - 0.5
        high = (self.days[last] + self.days[last + 1]) / 2 if last + 1 < len(self.days) else self.days[-1] + 0.5
        return self.axis.at(low), self.axis.at(high)

    def runs(self, known: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        """Yield the first and last of nights that follow each other and are all *known*; a long pause parts them."""
        first = None
        for night, here in enumerate(known):
            apart = night > 0 and self.days[night] - self.days[night - 1] > 3 * self.usual
            if first is not None and (not here or apart):
                yield first, night - 1
                first = None
            if here and first is None:
                first = night
        if first is not None:
            yield first, len(known) - 1


def trend(nights: Sequence[date], panels: Sequence[Panel], unit: str, *, title: str, description: str) -> str:
    """Return the figures of *panels* over *nights*, which ascend, in *unit*.

    Raises ``ValueError`` where there is no night or no panel.
    """
    if not nights or not panels:
        raise ValueError("expected at least one night and one panel, found none")
    ranges = [_range(panel) for panel in panels]
    shared = (min(low for low, _ in ranges), max(high for _, high in ranges))
    if all((shared[1] - shared[0]) <= OWN_SCALE * (high - low) for low, high in ranges):
        ranges = [shared] * len(panels)
    height = PANEL_PX if len(panels) <= MANY_SUTS else FLAT_PX
    ticks = [linear_ticks(low, high, 4) for low, high in ranges]
    scales = [Scale(each, evenly(each), unit) for each in ticks]
    left = max(beside(scale) for scale in scales)
    head = NAME_PX + (MARKS_PX if any(panel.context for panel in panels) else 0)
    drawing = Drawing(WIDTH_PX, len(panels) * (head + height) + FOOT_PX + 4)
    days = [(night - nights[0]).days for night in nights]
    across = _Nights(days, Axis(-0.5, days[-1] + 0.5, left, WIDTH_PX - RIGHT_PX))
    dates = list(_dates(nights[0], nights[-1]))
    for place, (panel, (low, high), scale) in enumerate(zip(panels, ranges, scales, strict=True)):
        top = place * (head + height) + head
        up = Axis(low, high, top + height, top)
        drawing.text(4, top - head + 16, drawn(panel.label), bold=True)
        state = drawn(panel.state)
        drawing.text(
            WIDTH_PX - RIGHT_PX, top - head + 16, state, anchor="end", colour=FAILS if panel.failing else "black"
        )
        lines = [across.axis.at((each - nights[0]).days) for each, _ in dates]
        _panel(drawing, panel, across, up, scale=scale, dates=lines)
    bottom = drawing.height - FOOT_PX
    for day, label in dates:
        at = across.axis.at((day - nights[0]).days)
        half = width_of(label, LABEL_PX) / 2
        drawing.text(min(at, WIDTH_PX - half - 2), bottom + 13, label, anchor="middle", size=LABEL_PX)
    return drawing.svg(title, description)


def _range(panel: Panel) -> tuple[float, float]:
    """Return what a panel shows: all but the farthest figures, tonight's, the levels and what is accepted."""
    known = panel.values[np.isfinite(panel.values)]
    if not len(known):
        ends = [end for end in panel.band or () if end is not None] or [0.0]
    else:
        ends = [float(each) for each in np.percentile(known, TELLING)]
        ends += [float(known[-1]), *(level for _, _, level in panel.levels)]
        ends += panel.flips[1:] if panel.flips else ()
        size = max(map(abs, ends))
        ends += [end for end in panel.band or () if end is not None and abs(end) < 2 * size]
    low, high = min(ends), max(ends)
    size = max(abs(low), abs(high)) or 1.0
    room = max(0.12 * (high - low), (LEAST_RANGE * size - (high - low)) / 2, 0.0)
    return low - room, high + room


def _panel(drawing: Drawing, panel: Panel, across: _Nights, up: Axis, *, scale: Scale, dates: Sequence[float]) -> None:
    left, right = across.axis.start, across.axis.end
    known = np.isfinite(panel.values)
    _accepted(drawing, panel.band, up, left, right)
    for first, last in across.runs(~known):
        start, end = across.edges(first, last)
        drawing.box(start, up.end, end - start, up.start - up.end, GAP)
    grid = [*((x, up.start, x, up.end) for x in dates), *((left, up.at(y), right, up.at(y)) for y in scale.ticks)]
    drawing.segments(grid, GRID, 0.8)
    runs = list(across.runs(known))
    _intervals(drawing, panel, across, up, runs)
    points = list(zip(across.places, _at(up, panel.values), strict=True))
    drawing.runs([points[first : last + 1] for first, last in runs if first < last], LINE)
    for first, last in runs:
        if int(known.sum()) <= MARKERS_UP_TO or first == last:
            for x, y in points[first : last + 1]:
                drawing.mark("circle", x, y, LINE, size=1.8)
    for first, last, level in panel.levels:
        start, end = across.edges(first, last)
        drawing.lines([(start, up.at(level)), (end, up.at(level))], LEVEL, 1.2)
    if panel.flips is not None:
        since, *levels = panel.flips
        for level in levels:
            drawing.lines([(across.edges(since, since)[0], up.at(level)), (right, up.at(level))], CHANGE, 1.4, "2 2")
    if panel.failing and known[-1]:
        drawing.mark("square", across.places[-1], up.at(panel.values[-1]), FAILS, size=3.2)
    _changes(drawing, panel, across, up)
    _context(drawing, panel, across, up.end - 9)
    drawing.lines([(left, up.end), (left, up.start), (right, up.start)], "black")
    for tick in scale.ticks:
        drawing.text(left - 5, up.at(tick) + 4.2, scale.worded(tick), anchor="end", size=LABEL_PX)
    drawing.text(13, (up.start + up.end) / 2, scale.title, anchor="middle", size=LABEL_PX, turned=-90)


def _at(axis: Axis, values: Numbers) -> list[float]:
    """Return where *values* are on a linear axis, as its own method does for one; NaN stays NaN."""
    share = np.clip((values - axis.low) / (axis.high - axis.low), 0.0, 1.0)
    return [float(each) for each in axis.start + share * (axis.end - axis.start)]


def _accepted(
    drawing: Drawing, band: tuple[float | None, float | None] | None, up: Axis, left: float, right: float
) -> None:
    """Fill what is accepted; an end that is open reaches the panel's edge."""
    if band is None or band == (None, None):
        return
    low, high = (up.at(end if end is not None else edge) for end, edge in zip(band, (up.low, up.high), strict=True))
    drawing.box(left, high, right - left, low - high, ACCEPTED)
    edges = [(left, up.at(end), right, up.at(end)) for end in band if end is not None and up.low < end < up.high]
    drawing.segments(edges, EDGE, 0.8)


def _intervals(drawing: Drawing, panel: Panel, across: _Nights, up: Axis, runs: Sequence[tuple[int, int]]) -> None:
    """Fill between the ends of the intervals that can be seen beside the line; a night alone has an upright."""
    low, high = (_at(up, np.where(np.isfinite(ends), ends, panel.values)) for ends in (panel.low, panel.high))
    areas, uprights = [], []
    for first, last in runs:
        nights = slice(first, last + 1)
        if first == last:
            uprights.append((across.places[first], low[first], across.places[first], high[first]))
        elif max(below - above for below, above in zip(low[nights], high[nights], strict=True)) > SEEN_PX:
            above = zip(across.places[nights], high[nights], strict=True)
            areas.append([*above, *reversed(list(zip(across.places[nights], low[nights], strict=True)))])
    drawing.runs(areas, INTERVAL, filled=True)
    drawing.segments(uprights, INTERVAL, 3.0)


def _changes(drawing: Drawing, panel: Panel, across: _Nights, up: Axis) -> None:
    """Draw a line where each change begins, and its label beside it where no other's is in the way."""
    taken = across.axis.end + 1
    for found in reversed(panel.changes):
        at = across.edges(found.night, found.night)[0]
        drawing.lines([(at, up.end), (at, up.start)], CHANGE, 1.3, "4 2")
        wide = width_of(found.label, LABEL_PX) + 3
        right = at + wide <= taken
        if not right and (at > taken or at - wide < across.axis.start):
            continue
        taken = at if right else at - wide
        nights = [n for n in range(len(panel.values)) if taken - 3 <= across.places[n] <= taken + wide + 3]
        beside = panel.values[nights][np.isfinite(panel.values[nights])]
        high = bool(len(beside)) and up.at(float(np.median(beside))) < (up.start + up.end) / 2
        baseline = up.start - 5 if high else up.end + 11
        place, anchor = (at + 3, "start") if right else (at - 3, "end")
        drawing.text(place, baseline, found.label, anchor=anchor, size=LABEL_PX, colour=CHANGE, halo=True)


def _context(drawing: Drawing, panel: Panel, across: _Nights, middle: float) -> None:
    """Draw a mark with its number above the night from which something in the context is another."""
    groups: list[tuple[float, list[int]]] = []
    for night, number in panel.context:
        at = across.edges(night, night)[0]
        if groups and at - groups[-1][0] < MARK_APART_PX:
            groups[-1][1].append(number)
        else:
            groups.append((at, [number]))
    for at, numbers in groups:
        drawing.mark("diamond", at, middle, CONTEXT, size=3.4)
        label = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        end = at + 6 + width_of(label, LABEL_PX) > across.axis.end
        place = at - 6 if end else at + 6
        anchor = "end" if end else "start"
        drawing.text(place, middle + 4.2, label, anchor=anchor, size=LABEL_PX, colour=CONTEXT)


def _dates(first: date, last: date) -> Iterator[tuple[date, str]]:
    """Yield at most seven days between *first* and *last* that part the time evenly, and how they are written."""
    days = (last - first).days
    if days <= 56:
        step = next(each for each in (1, 2, 7, 14) if days / each <= 6)
        for back in range(days // step * step, -1, -step):
            day = last - timedelta(days=back)
            yield day, f"{day:%m-%d}"
        return
    step = next(each for each in (1, 2, 3, 6, 12, 24, 60, 120) if days / 30.4 / each <= 6)
    for month in range(first.year * 12 + first.month, last.year * 12 + last.month):
        if month % step == 0:
            day = date(month // 12, month % 12 + 1, 1)
            yield day, f"{day:%Y-%m}"
