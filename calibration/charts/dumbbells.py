# SPDX-License-Identifier: Apache-2.0
"""Metrics of two runs as dumbbells: the first at zero, the second where it moved to, with the tolerance around."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from calibration.base import units
from calibration.charts import base
from calibration.charts.alternative import alternative
from calibration.charts.base import HALF, Chart, Frame, Json, Scale, rounded

Moved = Literal["better", "worse", "unclear", "same"]

COLOURS: Final[dict[Moved, str]] = {
    "better": base.COLOURS[2],
    "worse": base.INVALID,
    "unclear": base.MUTED,
    "same": base.MUTED,
}

ROW: Final = 38  # px of a metric: its title above its line
MAX_REACH: Final = 1.0  # largest relative change on the scale; beyond, an arrow points at it
LEAST_REACH: Final = 0.02
HALO: Final[Json] = {"stroke": base.GROUND, "strokeWidth": 3, "strokeJoin": "round"}


class Dumbbell(NamedTuple):
    """A metric: title, relative change from first to second with its interval, and as ``text``; the tolerance."""

    title: str
    change: float
    interval: tuple[float, float] | None
    tolerance: float
    moved: Moved
    text: str


def dumbbells(name: str, found: Sequence[Dumbbell]) -> Chart:
    """Return *found* from top to bottom on one scale of relative change."""
    frame = Frame(HALF, base.TOP + base.BOTTOM + ROW * len(found), left=16, right=16)
    width, height = frame.plot
    ends = [end for item in found for end in (item.change, -item.tolerance, item.tolerance)]
    reach = min(max(LEAST_REACH, *map(abs, ends)) * 1.1, MAX_REACH)
    across, down = Scale(-100 * reach, 100 * reach, width), Scale(0.0, float(len(found)), height)

    def at(change: float) -> float:
        return rounded(100 * min(max(change, -reach), reach))

    rows: list[Json] = []
    for place, item in enumerate(found):
        low, high = item.interval or (item.change, item.change)
        row = {"y": place + 0.68, "b": at(item.change), "l": at(low), "h": at(high), "c": COLOURS[item.moved]}
        row |= {"t1": at(-item.tolerance), "t2": at(item.tolerance), "y1": place + 0.48, "y2": place + 0.88}
        row |= {"n": base.label(item.title), "ny": place + 0.24, "v": item.text}
        row |= {"beyond": "triangle-right" if item.change > 0 else "triangle-left"} if abs(item.change) > reach else {}
        rows.append(row)
    x = across.channel("b", "Change from the first to the second, %", ticks=5)
    y = down.channel("y", "", ticks=[], grid=False)
    y["scale"] |= {"reverse": True}
    y["axis"] |= {"domain": False}
    ny = base.number("ny")
    colour = {"field": "c", "type": "nominal", "scale": None}
    tip = base.tips(n="metric", v="change")
    inside, beyond = ([row for row in rows if ("beyond" in row) == out] for out in (False, True))
    cut = [
        {"x": at(end), "y": row["y"], "c": row["c"], "beyond": f"triangle-{side}"}
        for row, item in zip(rows, found, strict=True)
        for side, end in zip(("left", "right"), item.interval or (), strict=False)
        if abs(end) > reach
    ]
    shape = {"field": "beyond", "type": "nominal", "scale": None}
    layers = [
        base.mark("rect", {**base.stretch("x", x, "t1", "t2"), **base.stretch("y", y, "y1", "y2")}, color=base.GRID),
        base.rules("x", [0.0]),
        base.mark("rule", {**base.stretch("x", x), "y": y, "color": colour}, opacity=0.5, strokeWidth=5),
        base.mark("rule", {"x": {"datum": 0}, "x2": x, "y": y, "color": colour}, strokeWidth=1.5),
        base.mark("point", {"x": base.number("x"), "y": y, "color": colour, "shape": shape}, cut, filled=True, size=60),
        base.mark("point", {"x": {"datum": 0}, "y": y}, filled=False, color=base.INK, size=55, opacity=1),
        base.mark("point", {"x": x, "y": y, "color": colour, "tooltip": tip}, inside, filled=True, size=75, opacity=1),
        base.mark(
            "point", {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tip}, beyond, filled=True, size=110
        ),
        base.mark("text", {"x": {"value": 0}, "y": ny, "text": {"field": "n"}}, align="left", **HALO),
        base.mark("text", {"x": {"value": width}, "y": ny, "text": {"field": "v"}, "color": colour}, align="right"),
    ]
    changes = (f"{base.label(item.title)} {item.text}" for item in sorted(found, key=lambda item: -abs(item.change)))
    alt = alternative(f"Change of {units.plural(len(found), 'metric')} from the first to the second", changes)
    caption = (
        "A ring is the first, a dot the second with its interval as a bar, an arrow what is beyond the scale. Grey is "
        "the tolerance, green is better, red is worse."
    )
    return Chart(name, frame.spec(layers, rows), alt, caption)
