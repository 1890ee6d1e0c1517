# SPDX-License-Identifier: Apache-2.0
"""Curves with their intervals: the part that most charts of measurements have in common."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Json, Scale, rounded
from calibration.statistics import Estimate

Point = tuple[float | Estimate, Estimate]
"""An abscissa, a number or an estimate itself, and an ordinate."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    label: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", base.label(self.label))


def unique(curves: Sequence[Curve]) -> list[Curve]:
    """Return *curves* with labels that differ: a label is what tells them apart."""
    taken: dict[str, int] = {}
    found = []
    for curve in curves:
        taken[curve.label] = count = taken.get(curve.label, 0) + 1
        found.append(curve if count == 1 else Curve(f"{curve.label} ({count})", curve.points))
    return found


def rows(curves: Sequence[Curve], *, x_scale: float = 1.0, y_scale: float = 1.0, shift: float = 0.0) -> Iterator[Json]:
    """Yield a row for each point: ``s``, ``x``, ``y``, ``l`` to ``h``, and ``a`` to ``b`` where x has an interval."""
    for curve in curves:
        for across, up in curve.points:
            low, high = base.ends(up, y_scale)
            row: Json = {"s": curve.label, "y": rounded(up.value / y_scale), "l": low, "h": high}
            if isinstance(across, Estimate):
                row["x"] = rounded(across.value / x_scale)
                row["a"], row["b"] = base.ends(across, x_scale)
            else:
                row["x"] = rounded(across / x_scale + shift)
            yield row


def layers(
    names: Sequence[str],
    axes: tuple[Json, Json],
    tooltip: Sequence[Json],
    *,
    lying: bool = False,
    points: bool = True,
    width: int = WIDE,
) -> list[Json]:
    """Return the layers of curves: intervals, lines, and points with tooltips. The data are what ``rows`` yields."""
    x, y = axes
    colour = base.series(names, base.COLOURS, width, symbolStrokeWidth=0)
    shape = base.series(names, base.SHAPES, width, symbolStrokeWidth=0)
    bar = {"opacity": 0.45, "strokeWidth": 1.5, "clip": True}
    found = [base.mark("rule", None, {"x": x, "y": {**y, "field": "l"}, "y2": {"field": "h"}, "color": colour}, **bar)]
    if lying:
        sides = {"x": {**x, "field": "a"}, "x2": {"field": "b"}, "y": y, "color": colour}
        found.append(base.mark("rule", None, sides, **bar))
    line = {
        "x": x,
        "y": y,
        "color": colour,
        "strokeDash": base.series(names, base.DASHES, width, symbolStrokeWidth=0),
        "order": None,
    }
    found.append(base.mark("line", None, line, strokeWidth=1.8))
    spot = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}
    found.append(base.mark("point", None, spot, filled=True, size=30 if points else 80, opacity=1 if points else 0))
    return found


@dataclass(frozen=True)
class Axis:
    """One axis of a chart of curves. Values are divided by *scale* and then moved by *shift*; *told* words them."""

    title: str
    kind: Literal["linear", "decades", "octaves"] = "linear"
    scale: float = 1.0
    shift: float = 0.0
    zero: bool = False
    labels: str | None = None
    ticks: Sequence[float] | None = None
    told: Callable[[float], str] = "{:g}".format

    def over(self, values: Sequence[float], intervals: Sequence[float], px: float, *, up: bool, room: float) -> Scale:
        """Return the scale that shows *values*, and of their *intervals* what does not make them flat."""
        if self.kind != "linear":
            return Scale(min(values) / (1.5 if up else 1.2), max(values) * (room if up else 1.3), px, log=True, up=up)
        low, high = base.reach(values, intervals) if up else (min(values), max(values))
        low, high = base.spanned([low, high]) if up and not self.zero else (low, high)
        edge = (high - low) * 0.06 if up and not self.zero else 0.0
        return Scale(0.0 if self.zero else low - edge, high * (1.08 if up and self.zero else 1.0) + edge, px, up=up)

    def channel(self, scale: Scale, most: int) -> Json:
        """Return the channel of ``x`` or ``y`` with about *most* ticks."""
        round_values = {"octaves": base.octaves, "decades": base.decades}.get(self.kind)
        ticks = self.ticks or (round_values(scale.low, scale.high, most) if round_values else most)
        return scale.channel("y" if scale.up else "x", self.title, ticks=ticks, labels=self.labels, grid=scale.up)


SIZES: Final = partial(Axis, kind="octaves", labels=base.SIZE_LABEL, told=lambda size: filters.size(round(size)))
"""An axis of sizes in bytes."""


def line_chart(
    drawn: Sequence[Curve],
    across: Axis,
    up: Axis,
    *,
    width: int,
    invalid: str = "",
    marked: Sequence[tuple[float, str]] = (),
    named: Sequence[tuple[float, float, float, str]] = (),
    points: bool = True,
) -> Json:
    """Return *drawn* with abscissae *marked* by labelled lines, and stretches *named* (start, end, ordinate, label)."""
    drawn = unique(drawn)
    data = [
        {**row, "t": across.told(row["x"] - across.shift)}
        for row in rows(drawn, x_scale=across.scale, y_scale=up.scale, shift=across.shift)
    ]
    names = [curve.label for curve in drawn]
    frame = base.Frame(width, legend=names, invalid=invalid)
    at, values = ([row[name] for row in data] for name in ("x", "y"))
    intervals = [row[name] for row in data for name in ("l", "h")]
    scales = (
        across.over(at, (), frame.plot[0], up=False, room=1.0),
        up.over(values, intervals, frame.plot[1], up=True, room=2.6 if marked else 1.6),
    )
    axes = across.channel(scales[0], width // 80), up.channel(scales[1], 7)
    inside = [(x, words) for x, words in sorted(marked) if scales[0].low < x < scales[0].high]
    bars = base.table({"x": start, "x2": end, "y": rounded(y), "t": words} for start, end, y, words in named)
    stretch: Json = {"x": axes[0], "x2": {"field": "x2"}, "y": axes[1], "tooltip": base.tips(("t", "level"))}
    tooltip = base.tips(("s", "curve"), ("t", across.title), ("y", up.title), ("l", "from"), ("h", "to"))
    found = [
        *([base.rules("x", [x for x, _ in inside])] if inside else []),
        *([base.mark("rule", bars, stretch, color=base.COLOURS[0], strokeWidth=10, opacity=0.25)] if named else []),
        *layers(names, axes, tooltip, points=points, width=width),
    ]
    if inside:
        tops = [(x, scales[1].high, words) for x, words in inside]
        offsets = tuple((-0.5, 8 + 15 * line) for line in range(5))
        found.append(base.labels(tops, [], scales, offsets, color=base.MUTED, fontSize=11))
    if named:
        middles = [((start * end) ** 0.5, y, words) for start, end, y, words in named]
        found.append(base.labels(middles, list(zip(at, values, strict=True)), scales, fontWeight="bold"))
    return frame.spec(found, data=base.table(data))


def observed(value: float, unit: str) -> Estimate:
    """Return a figure that was seen once, of unknown uncertainty."""
    return Estimate(
        value=value,
        unit=unit,
        estimator="observed",
        interval=None,
        coverage=None,
        placements=1,
        windows=1,
        within_spread=None,
        between_spread=None,
        minimum=value,
        maximum=value,
        bimodal=False,
        converged=None,
        samples=((value,),),
    )
