# SPDX-License-Identifier: Apache-2.0
"""Horizontal bars, in groups and series, with their intervals."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.charts import base
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import HALF, Chart, Frame, Json, Measured, Scale

GAP_PX: Final = 10
"""Between groups."""


def bar_chart(
    name: str,
    rows: Sequence[Json],
    axis: tuple[str, str],
    *,
    alt: str,
    caption: str,
    values: Iterable[str] = (),
    width: int = HALF,
    groups: Sequence[str] = (),
    marked: float | None = None,
    measurements: Sequence[Measured[Any]] = (),
) -> Chart:
    """Return horizontal bars: *rows* have a group ``g``, a series ``s``, a value ``v`` and its text ``t``.

    ``l`` and ``h`` are an interval, of all rows or none; *marked* is a line. *groups* overrides the order. *axis* is
    what the values are and their unit. The text alternative says what is drawn (*alt*), and *values*, by default the
    lowest and the highest.
    """
    title = ", ".join(axis)
    by_group = grouped((row["g"], row) for row in rows)
    series = list(dict.fromkeys(row["s"] for row in rows))
    bar_px = max(16, 28 - 4 * len(series))
    _, reached = base.reach([row["v"] for row in rows], [row["h" if "h" in row else "v"] for row in rows])
    high = 1.05 * max(reached, marked or 0.0)
    drawn: list[Json] = []
    names: list[Json] = []
    top = GAP_PX / 2
    for group in groups or by_group:
        members = by_group[group]
        names.append({"g": group, "y": top + bar_px * len(members) / 2})
        for row in members:
            cut = row.get("h", 0.0) > high
            text = f"{row['t']} (to {units.significant(row['h'], 3)})" if cut else row["t"]
            drawn.append({**row, "y": top + 1, "y2": top + bar_px - 1, "m": top + bar_px / 2, "e": text, "cut": cut})
            top += bar_px
        top += GAP_PX
    height = round(top - GAP_PX / 2) + base.TOP + base.BOTTOM
    left = 18 + int(6.4 * max(map(len, by_group)))
    right = 16 + int(6.4 * max(len(row["e"]) for row in drawn))
    frame = Frame(base.fitting(width, series), height, legend=series, measurements=measurements, left=left, right=right)
    down = Scale(0.0, frame.plot[1], frame.plot[1])
    y = down.channel("y", "", grid=False) | {"axis": None}
    y["scale"]["reverse"] = True
    middle = {**y, "field": "m"}
    x = Scale(0.0, high, frame.plot[0]).channel("v", title, ticks=max(4, width // 110))
    tooltip = base.tips(g="what", s="of", t=title, l="from", h="to")
    zero, end = {"value": 0}, {"value": "width"}
    bar = {**base.stretch("y", y, "y", "y2"), "x": x, "x2": {"datum": 0}, "color": frame.series(base.COLOURS)}
    interval = base.mark("rule", {"y": middle, **base.stretch("x", x)}, color=base.INK, strokeWidth=1.5, clip=True)
    arrows = [row for row in drawn if row["cut"]]
    layers = [
        base.mark("rect", bar | {"tooltip": tooltip}, opacity=0.85),
        *([interval] if "l" in rows[0] else []),
        base.mark("point", {"y": middle, "x": end}, arrows, shape="triangle-right", filled=True, size=40,
                  color=base.INK, opacity=1, xOffset=-base.ARROW_PX),
        base.mark("text", {"y": middle, "x": end, "text": {"field": "e"}}, align="left", dx=8),
        base.mark("text", {"y": y, "x": zero, "text": {"field": "g"}}, names, align="right", dx=-8),
        base.rules("x", [] if marked is None else [marked]),
    ]  # fmt: skip
    values = tuple(values) or [extremes(_values(rows, axis[1]))]
    return Chart(name, frame.spec(layers, drawn), alternative(alt, values), caption)


def _values(rows: Sequence[Json], unit: str) -> Iterator[Value]:
    several = len({row["s"] for row in rows}) > 1
    for row in rows:
        yield Value(row["v"], f"{row['t']} {unit}", f"{row['g']}, {row['s']}" if several else row["g"])
