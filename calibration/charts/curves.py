# SPDX-License-Identifier: Apache-2.0
"""Curves with intervals, the common part of most charts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate
from calibration.charts import base
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import HALF, Chart, Frame, Json, Measured, Scale, rounded

Point = tuple[float | Estimate, float | Estimate]
"""An abscissa and an ordinate, each a number or an estimate."""

Curves = Mapping[str, Sequence[Point]]
"""The points of each curve by label."""


class Published(NamedTuple):
    """Curves of others in own memory, for the processor of a run, and the words of a caption on their source."""

    curves: Curves = MappingProxyType({})
    source: str = ""


MEDIANS: Final = "Points are medians, bars their intervals; an arrow has the end of one that is cut."


def curves_of(points: Iterable[tuple[str, Point]]) -> Curves:
    """Return *points* by the label of their curve, in order."""
    return grouped((base.label(label), point) for label, point in points)


def rows(curves: Curves, *, x_scale: float = 1.0, y_scale: float = 1.0) -> Iterator[Json]:
    """Yield a row for each point: ``s``, ``x``, ``y``, and the intervals ``a`` to ``b`` of x, ``l`` to ``h`` of y."""
    for label, points in curves.items():
        for across, up in points:
            x, left, right = base.bounds(across, x_scale)
            y, low, high = base.bounds(up, y_scale)
            sides = {"a": left, "b": right} if isinstance(across, Estimate) else {}
            yield {"s": label, "x": x, "y": y, "l": low, "h": high, **sides}


def layers(frame: Frame, axes: tuple[Json, Json], *, tooltip: Json, bars: Literal["", "y", "xy"] = "y") -> list[Json]:
    """Return the layers of curves, with data from ``rows``: intervals, lines, and points with tooltips.

    *tooltip* has the titles of a tooltip's fields. Without *bars*, points are hidden too, and curves differ by dashes
    instead of shapes.
    """
    x, y = axes
    legend = {"symbolStrokeWidth": 0} if bars else {}
    colour, dashes, shape = (frame.series(kinds, **legend) for kinds in (base.COLOURS, base.DASHES, base.SHAPES))
    bar = partial(base.mark, "rule", opacity=0.45, strokeWidth=1.5, clip=True)
    spot = {"x": x, "y": y, "tooltip": base.tips(**tooltip)} | ({"color": colour, "shape": shape} if bars else {})
    return [
        *([bar({"x": x, **base.stretch("y", y), "color": colour})] if bars else []),
        *([bar({**base.stretch("x", x, "a", "b"), "y": y, "color": colour})] if bars == "xy" else []),
        base.mark("line", {"x": x, "y": y, "color": colour, "strokeDash": dashes, "order": None}, strokeWidth=1.8),
        base.mark("point", spot, filled=True, size=30 if bars else 80, opacity=1 if bars else 0),
    ]


@dataclass(frozen=True)
class Axis:
    """One axis of a chart of curves. Values divided by *scale* are in *unit*; *text* formats those without one."""

    what: str
    unit: str = ""
    kind: Literal["linear", "decades", "octaves"] = "linear"
    scale: float = 1.0
    zero: bool = False
    labels: str | None = None
    ticks: Sequence[float] | None = None
    text: Callable[[float], str] = "{:g}".format

    @property
    def title(self) -> str:
        """The title of the axis."""
        return f"{self.what}, {self.unit}" if self.unit else self.what

    def shown(self, value: float) -> str:
        """Return a scaled *value* with its unit."""
        return base.shown(value, self.unit) if self.unit else self.text(value)

    def over(self, values: Sequence[float], px: float) -> Scale:
        """Return the abscissa for *values*; a linear one begins at zero."""
        log = self.kind != "linear"
        return Scale(min(values) / 1.2 if log else 0.0, max(values) * (1.3 if log else 1.0), px, log=log)

    def up(self, values: Sequence[float], intervals: Sequence[float], px: float) -> Scale:
        """Return the ordinate for *values* and those parts of their *intervals* that do not make them look flat."""
        if self.kind != "linear":
            return Scale(min(values) / 1.5, max(values) * 1.8, px, log=True, up=True)
        low, high = base.reach(values, intervals)
        if self.zero:
            return Scale(0.0, high * 1.08, px, up=True)
        low, high = base.spanned([low, high])
        edge = (high - low) * 0.06
        return Scale(low - edge, high + edge, px, up=True)

    def channel(self, scale: Scale, most: int) -> Json:
        """Return the channel of ``x`` or ``y`` with about *most* ticks."""
        round_values = {"octaves": base.octaves, "decades": base.decades}.get(self.kind)
        ticks = self.ticks or (round_values(scale.low, scale.high, most) if round_values else most)
        return scale.channel("y" if scale.up else "x", self.title, ticks=ticks, labels=self.labels, grid=scale.up)


GB_S: Final = Axis("Bandwidth", "GB/s", scale=1e3, zero=True)
"""Bandwidth from zero; values are MB/s."""

LATENCY: Final = Axis("Latency", "ns per load", kind="decades")

SIZES: Final = partial(Axis, kind="octaves", labels=base.SIZE_LABEL, text=lambda size: units.size(round(size)))
"""An axis of sizes in bytes."""


def line_chart(
    name: str,
    measurements: Sequence[Measured[Any]],
    curves: Curves,
    axes: tuple[Axis, Axis],
    *,
    alt: str,
    values: Iterable[str] = (),
    caption: str = MEDIANS,
    width: int = HALF,
    marked: Collection[tuple[float, str]] = (),
    named: Sequence[tuple[float, float, float, str]] = (),
    points: bool = True,
) -> Chart:
    """Return *curves* with labelled lines at *marked* abscissae and *named* ranges (start, end, ordinate, label).

    The text alternative says what is drawn (*alt*), and *values*, by default the lowest and the highest.
    """
    across, up = axes
    data = [{**row, "t": across.shown(row["x"])} for row in rows(curves, x_scale=across.scale, y_scale=up.scale)]
    width = base.fitting(width, curves)
    plot_px = Frame(width).plot[0]
    over = across.over([row["x"] for row in data], plot_px)
    above = _above(over, marked)
    lines = 1 + max((line for *_, line in above), default=-1)
    frame = Frame(width, legend=list(curves), measurements=measurements, above=LINE_PX * lines)
    intervals = [row[end] for row in data for end in ("l", "h")]
    scales = (over, up.up([row["y"] for row in data], intervals, frame.plot[1]))
    x, y = across.channel(scales[0], width // 60), up.channel(scales[1], 7)
    tooltip = {"s": "curve", "t": across.title, "y": up.title, "f" if scales[1].log else "l": "from", "h": "to"}
    bars = [{"x": start, "x2": end, "y": rounded(level), "t": words} for start, end, level, words in named]
    broad = {**base.stretch("x", x, "x", "x2"), "y": y, "tooltip": base.tips(t="level")}
    middles = [((start * end) ** 0.5, level, words) for start, end, level, words in named]
    taken = [(row["x"], row["y"]) for row in data]
    placed: list[tuple[float, float, float]] = []
    titles = [{"x": at, "text": words, "y": 5 - LINE_PX * (1 + line)} for at, words, line in above]
    title = {"x": base.number("x"), "y": {"field": "y", "type": "quantitative", "scale": None}}
    found = [
        base.rules("x", [at for at, *_ in above]),
        base.mark("rule", broad, bars, color=base.COLOURS[0], strokeWidth=10, opacity=0.25),
        *layers(frame, (x, y), tooltip=tooltip, bars="y" if points else ""),
        base.mark("text", {**title, "text": {"field": "text"}}, titles, color=base.MUTED, fontSize=11),
        base.labels(middles, [*taken, *_along(data, scales[1])], scales, placed=placed, fontWeight="bold"),
        *(base.cuts(data, scales, frame.series(base.COLOURS), taken, placed) if points else ()),
    ]
    if scales[1].log:  # which cannot draw a line from zero
        data = [{**row, "f": row["l"], "l": max(row["l"], scales[1].low / 2)} for row in data]
    values = tuple(values) or [range_of(data, across.shown, up.shown)]
    return Chart(name, frame.spec(found, data), alternative(alt, values), caption)


def range_of(found: Iterable[Json], across: Callable[[float], str], up: Callable[[float], str]) -> str:
    """Return the lowest and the highest of the rows *found*, with the texts of x and y, for the text alternative."""
    points = list(found)
    several = len({row["s"] for row in points}) > 1
    return extremes(
        Value(row["y"], up(row["y"]), f"{row['s']}, " * several + f"at {across(row['x'])}") for row in points
    )


LINE_PX: Final = 15
"""Height of a line of labels."""


def _above(across: Scale, marked: Iterable[tuple[float, str]]) -> list[tuple[float, str, int]]:
    """Return the labels of *marked* abscissae above a plot, each on the lowest line with room for it."""
    ends: list[float] = []
    found = []
    for at, words in sorted(marked):
        if across.low < at < across.high:
            half_px = 3.6 * len(words)
            left = across.at(at) - half_px
            line = next((line for line, end in enumerate(ends) if left > end), len(ends))
            ends[line:] = [across.at(at) + half_px, *ends[line + 1 :]]
            found.append((at, words, line))
    return found


def _along(data: Iterable[Json], up: Scale) -> Iterator[tuple[float, float]]:
    """Yield points along the intervals of *data*, where labels would be crossed."""
    for row in data:
        low_px, high_px = up.at(row["l"]), up.at(row["h"])
        for step in range(int((low_px - high_px) // 8)):
            yield row["x"], up.value(high_px + 8 * step)
