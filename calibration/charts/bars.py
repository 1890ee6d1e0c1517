# SPDX-License-Identifier: Apache-2.0
"""Horizontal bars, in groups and series, with their intervals."""

from collections.abc import Sequence
from typing import Any

from calibration.charts import base
from calibration.charts.base import WIDE, Frame, Json, Measured, Scale


def bars(
    rows: Sequence[Json],
    title: str,
    high: float,
    *,
    width: int = WIDE,
    groups: Sequence[str] = (),
    marked: float | None = None,
    measurements: Sequence[Measured[Any]] = (),
) -> Json:
    """Return horizontal bars: *rows* have a group ``g``, a series ``s``, a value ``v`` and its text ``t``.

    ``l`` and ``h`` are an interval, of all rows or none; *marked* is a line. *groups* overrides the order.
    """
    groups = groups or list(dict.fromkeys(row["g"] for row in rows))
    series = list(dict.fromkeys(row["s"] for row in rows))
    height = len(groups) * (max(18, 30 - 4 * len(series)) * len(series) + 10) + 70
    left = 18 + int(6.4 * max(map(len, groups)))
    frame = Frame(width, height, legend=series, measurements=measurements, left=left, right=60)
    place: Json = {"y": base.named_rows("g", groups, paddingInner=0.25, paddingOuter=0.1)}
    if len(series) > 1:
        place["yOffset"] = {"field": "s", "type": "nominal", "sort": series, "scale": {"paddingInner": 0.15}}
    x = Scale(0.0, high, frame.plot[0]).channel("v", title, ticks=width // 110)
    tooltip = base.tips(g="what", s="of", t=title, l="from", h="to")
    bar = {**place, "x": x, "color": frame.series(base.COLOURS), "tooltip": tooltip}
    interval = base.mark("rule", {**place, **base.stretch("x", x)}, color=base.INK, strokeWidth=1.5, clip=True)
    layers = [
        base.mark("bar", bar, opacity=0.85),
        *([interval] if "l" in rows[0] else []),
        base.mark("text", {**place, "x": {"value": frame.plot[0] + 8}, "text": {"field": "t"}}, align="left"),
        base.rules("x", [] if marked is None else [marked]),
    ]
    return frame.spec(layers, rows)
