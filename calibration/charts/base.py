# SPDX-License-Identifier: Apache-2.0
"""Common parts of all charts: theme, axes and layers of one Vega-Lite specification.

A chart is drawn once, in light colours; its dark variant replaces them. A specification is plain JSON without external
references, and text from a SUT is only in its data, never in an expression.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, log2, log10
from statistics import median
from typing import Any, Final, Literal, Protocol, TypeVar

from calibration.base import units
from calibration.base.statistics import Estimate
from calibration.base.text import visible
from calibration.base.validity import Validity

Json = dict[str, Any]
Values_co = TypeVar("Values_co", covariant=True)

WIDE: Final = 800  # px, width of the site's column
HALF: Final = 396  # px, for two charts side by side in it

THEME: Final = ("#1F2329", "#5B6570", "#E3E6EA", "#8A939D", "#FEFEFE", "#EDEFF2", "#B00021")
THEME_ON_DARK: Final = ("#E4E8EC", "#A3ADB8", "#33383E", "#757E88", "#131416", "#272B30", "#FF8A80")
INK, MUTED, GRID, AXIS, GROUND, ABSENT, INVALID = THEME
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe-Ito palette, safe for colour-blind readers. Series also differ by dashes or shape."""
COLOURS_ON_DARK: Final = ("#4AA8E8", "#FF8B3D", "#2CC79B", "#E59AC5", "#F2BC4B", "#A5DAF8")
DARK: Final = dict(zip((*THEME, *COLOURS), (*THEME_ON_DARK, *COLOURS_ON_DARK), strict=True))
"""Dark replacement of each colour of the theme; all colours differ, so that text can be replaced."""

DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 2], [4, 4])
MAX_NAMES: Final = 2 * len(COLOURS)  # a legend with more names is larger than its chart, and left out
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
FONT: Final = "Helvetica, Arial, Liberation Sans, sans-serif"
"""Fonts with equal metrics: the renderer measures text with the last, whatever the reader has."""

MIN_SPAN: Final = 0.05  # least scale to both sides of the median, as a share: noise must not look like structure
MAX_MINOR_TICKS: Final = 60  # with more, an axis has none
LABEL_CHARACTERS: Final = 56  # longer labels are cut; the harness's own are shorter
LEFT, RIGHT, TOP, BOTTOM = 54, 24, 26, 42  # px around a plot

SIZE_LABEL: Final = (
    "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB' : "
    "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : datum.value / 1073741824 + ' GiB'"
)
TIME_LABEL: Final = "replace(format(datum.value / 1e9, '~s'), /[mµn]?$/, ' $&s')"
PLAIN_LABEL: Final = "format(datum.value, '~r')"

CONFIG: Final[Json] = {
    "background": "transparent",
    "aria": False,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": GRID,
        "domainColor": AXIS,
        "tickColor": AXIS,
        "tickSize": 4,
        "labelLimit": 0,
        "titleLimit": 0,
        "labelOverlap": False,
        "labelFlush": False,
    },
    "axisX": {"titlePadding": 8},
    "axisY": {
        "titleAngle": 0,
        "titleAlign": "left",
        "titleAnchor": "start",
        "titleBaseline": "bottom",
        "titleX": 6 - LEFT,
        "titleY": -9,
    },
    "legend": {
        "orient": "top",
        "title": None,
        "labelFontSize": 12,
        "labelColor": INK,
        "labelLimit": 0,
        "offset": 24,
        "padding": 0,
        "symbolOpacity": 1,
        "symbolSize": 50,
        "rowPadding": 3,
        "columnPadding": 14,
    },
    "title": {"anchor": "start", "fontSize": 12, "color": INK, "offset": 6, "frame": "group"},
    "text": {"fontSize": 12, "color": INK},
    "rule": {"color": MUTED},
}


@dataclass(frozen=True)
class Chart:
    """One chart: its name, its specification, its text alternative, and how to read it."""

    name: str
    spec: Json
    alt: str
    caption: str

    @property
    def path(self) -> str:
        """The path of its light SVG, relative to its page."""
        return f"figures/{units.slug(self.name)}.svg"

    @property
    def style(self) -> str:
        """The classes of its figure: a wide one needs the whole width of a page."""
        return "chart wide" if _plot_px(self.spec) > HALF else "chart"


def _plot_px(view: Json) -> float:
    """Return the width of the plots in *view* in px, those side by side added."""
    if "width" in view:
        return float(view["width"])
    beside = sum(map(_plot_px, view.get("hconcat", ())))
    return beside or max(map(_plot_px, view.get("vconcat", ())), default=0.0)


class Measured(Protocol[Values_co]):
    """A measurement for charts: name, values, and validity."""

    @property
    def id(self) -> str:
        """Its name within the run."""

    @property
    def values(self) -> Values_co:
        """What was measured."""

    @property
    def validity(self) -> Validity:
        """The flags against it."""


def label(text: str) -> str:
    """Return *text* as a label: nothing hidden, cut to fit, and never empty."""
    plain = visible(text)
    return (plain if len(plain) <= LABEL_CHARACTERS else f"{plain[: LABEL_CHARACTERS // 2]}...").strip() or "-"


def rounded(value: float, digits: int = 5) -> float:
    """Return *value* with as many significant digits as a chart can show."""
    return float(f"{value:.{digits}g}")


def bounds(figure: float | Estimate, scale: float = 1.0) -> tuple[float, float, float]:
    """Return *value* divided by *scale*, and its interval."""
    value, interval = (figure.value, figure.interval) if isinstance(figure, Estimate) else (figure, None)
    low, high = interval or (value, value)
    return rounded(value / scale), rounded(low / scale), rounded(high / scale)


def spanned(values: Sequence[float], share: float = MIN_SPAN) -> tuple[float, float]:
    """Return the range of a scale for *values*: at least *share* of their median to both sides of it."""
    middle = median(values)
    room = share * abs(middle) or 1.0
    return min(*values, middle - room), max(*values, middle + room)


def reach(values: Sequence[float], intervals: Sequence[float]) -> tuple[float, float]:
    """Return the part of *intervals* (ends) to show: not so far beyond the *values* that these look flat."""
    low, high = min(values), max(values)
    room = max((high - low) / 2, high / 4)
    return max(min(*intervals, low), low - room), min(max(*intervals, high), high + room)


def decades(low: float, high: float, most: int = 8) -> list[float]:
    """Return about *most* round values at most, from *low* to *high*, for a logarithmic axis."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for parts in ((1, 2, 5), (1, 3), (1,)):
        found = [at for power in powers for part in parts if low <= (at := rounded(part * 10.0**power)) <= high]
        if len(found) <= most:
            return found
    return found[:: ceil(len(found) / most)]


def octaves(low: float, high: float, most: int = 8) -> list[float]:
    """Return at most *most* powers of two from *low* to *high*."""
    powers = range(ceil(log2(low)), floor(log2(high)) + 1)
    return [2.0**power for power in powers if power % ceil(len(powers) / most) == 0]


@dataclass(frozen=True)
class Scale:
    """Values from *low* to *high* along *px* of a plot, upwards on the ordinate."""

    low: float
    high: float
    px: float
    log: bool = False
    up: bool = False

    def at(self, value: float) -> float:
        """Return the position of *value* in px from the left or the top, clamped to the ends."""
        ends = self.low, self.high, max(value, self.low)
        low, high, here = map(log10, ends) if self.log else ends
        share = min((here - low) / (high - low), 1.0)
        return self.px * (1 - share if self.up else share)

    def value(self, px: float) -> float:
        """Return the value at *px*."""
        share = 1 - px / self.px if self.up else px / self.px
        across = (self.high / self.low) ** share if self.log else share
        return rounded(self.low * across if self.log else self.low + across * (self.high - self.low))

    def channel(
        self, field: str, title: str, *, ticks: Sequence[float] | int = 5, labels: str | None = None, grid: bool = True
    ) -> Json:
        """Return the channel of *field* with its axis; *ticks* are their values or approximate number."""
        axis: Json = {"title": title, "grid": grid}
        axis |= {"tickCount": ticks} if isinstance(ticks, int) else {"values": list(ticks), "tickCount": len(ticks)}
        if labels or self.log:
            axis["labelExpr"] = labels or PLAIN_LABEL
        if self.log and not isinstance(ticks, int) and (minor := self._between(ticks)):
            unnamed = f"indexof({minor}, datum.value) >= 0"
            axis["values"] = sorted([*ticks, *minor])
            axis["tickCount"] = len(axis["values"])
            axis["labelExpr"] = f"{unnamed} ? '' : {axis['labelExpr']}"
            axis["tickSize"] = {"condition": {"test": unnamed, "value": 2}, "value": 4}
            axis["gridOpacity"] = {"condition": {"test": unnamed, "value": 0}, "value": 1}
        scale: Json = {"domain": [rounded(self.low), rounded(self.high)], "nice": False}
        scale |= {"type": "log"} if self.log else {"zero": False}
        return {**number(field), "scale": scale, "axis": axis}

    def _between(self, ticks: Sequence[float]) -> list[float]:
        """Return where a logarithmic axis has ticks without numbers: at powers of two, else at each digit."""
        if all(log2(tick).is_integer() for tick in ticks):
            found = octaves(self.low, self.high, MAX_MINOR_TICKS)
        else:
            powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            found = [rounded(digit * 10.0**power) for power in powers for digit in range(1, 10)]
        between = [at for at in found if self.low <= at <= self.high and at not in ticks]
        return between if len(between) <= MAX_MINOR_TICKS else []


def tips(**titles: str) -> list[Json]:
    """Return the lines of a tooltip: fields and their titles, numbers with four digits."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def mark(kind: str, encoding: Json, rows: Iterable[Json] | None = None, **properties: object) -> Json:
    """Return one layer; by default it draws the chart's rows."""
    data = {} if rows is None else {"data": {"values": list(rows)}}
    return {**data, "mark": {"type": kind, **properties}, "encoding": encoding}


def number(field: str) -> Json:
    """Return a channel of the numbers in *field*, on the chart's scale."""
    return {"field": field, "type": "quantitative"}


def stretch(channel: str, on: Json, low: str = "l", high: str = "h") -> Json:
    """Return the channels of a line or an area from *low* to *high* (fields) along the axis *on* of *channel*."""
    return {channel: {**on, "field": low}, f"{channel}2": {"field": high}}


def named_rows(field: str, order: Sequence[str] | None, **scale: float) -> Json:
    """Return the ordinate of a chart with a name beside each row."""
    axis = {"title": None, "ticks": False, "domain": False, "labelColor": INK}
    return {"field": field, "type": "nominal", "sort": order, "axis": axis, "scale": scale}


def text(rows: Iterable[Json], **properties: object) -> Json:
    """Return a layer of labels that stay readable on lines; rows have x, y and text."""
    halo: Json = {"stroke": GROUND, "strokeWidth": 3, "strokeJoin": "round"}
    return mark("text", {"x": number("x"), "y": number("y"), "text": {"field": "text"}}, rows, **halo | properties)


def rules(
    channel: Literal["x", "y"], values: Sequence[float], *, colour: str = MUTED, dash: Sequence[int] = (4, 3)
) -> Json:
    """Return a layer of lines across the whole chart at *values* of *channel*."""
    rows = [{"at": rounded(value)} for value in values]
    return mark("rule", {channel: number("at")}, rows, color=colour, strokeDash=list(dash))


def legend_px(names: Iterable[str]) -> float:
    """Return the width of a legend's column with *names* in px."""
    return max(map(len, names)) * 6.5 + 36


def fitting(width: int, names: Collection[str]) -> int:
    """Return *width*, or that of a page if a legend with *names* needs more."""
    return WIDE if len(names) > 1 and LEFT + legend_px(names) > width else width


@dataclass(frozen=True)
class Frame:
    """The size of a chart in px, with its axes; a *legend* of several names adds to its height."""

    width: int
    base_height: int = 240
    legend: Sequence[str] = ()
    measurements: Sequence[Measured[Any]] = ()
    left: int = LEFT
    right: int = RIGHT
    above: int = 0  # room for what is written above the plot

    @property
    def plot(self) -> tuple[int, int]:
        """Width and height between the axes."""
        return self.width - self.left - self.right, self.base_height - TOP - BOTTOM

    @property
    def columns(self) -> tuple[int, float]:
        """Number of columns of the legend, and width of each in px."""
        if not 2 <= len(self.legend) <= MAX_NAMES:
            return 0, 0.0
        px = legend_px(self.legend)
        return max(1, min(len(self.legend), int((self.width - LEFT) // px))), px

    def series(self, kinds: Sequence[object], **legend: object) -> Json:
        """Return the channel that gives each series of the legend one of *kinds*."""
        again = 0 if kinds is COLOURS else 1  # a repeated colour gets another shape and other dashes
        order = [kinds[(place + again * (place // len(kinds))) % len(kinds)] for place in range(len(self.legend))]
        columns, _ = self.columns
        scale = {"domain": list(self.legend), "range": order}
        shown = {"columns": columns, **legend} if columns else None
        return {"field": "s", "type": "nominal", "scale": scale, "legend": shown}

    def spec(self, layers: Sequence[Json], rows: Iterable[Json]) -> Json:
        """Return the specification of *layers*; on a narrow screen the plot may shrink, but not the legend."""
        columns, column_px = self.columns
        names = 20 * ceil(len(self.legend) / columns) if columns else 0
        whole = _whole(self.measurements, view(self.plot, layers, rows))
        top = TOP + self.above + names + (24 if "title" in whole else 0)
        axis, legend = CONFIG["axisY"], CONFIG["legend"]
        raised = {
            "axisY": {**axis, "titleY": axis["titleY"] - self.above},
            "legend": {**legend, "offset": legend["offset"] + self.above},
        }
        return whole | {
            "autosize": "none",
            "padding": {"left": self.left, "right": self.right, "top": top, "bottom": BOTTOM},
            "config": CONFIG | raised,
            "usermeta": {
                "dark": DARK,
                "legend": {"columns": columns, "px": round(column_px), "names": len(self.legend)},
            },
        }


def view(size: tuple[float, float], layers: Sequence[Json], rows: Iterable[Json], **more: object) -> Json:
    """Return a view of *layers*, drawing *rows* unless they have their own; empty ones are dropped."""
    width, height = size
    drawn = [layer for layer in layers if layer.get("data") != {"values": []}]
    return {"data": {"values": list(rows)}, "layer": drawn, "width": width, "height": height, **more}


def stacked(
    views: Sequence[Json],
    spacing: int,
    measurements: Iterable[Measured[Any]] = (),
    *,
    beside: bool = False,
    alike: bool = False,
) -> Json:
    """Return a specification of *views* below or *beside* each other, each with its own size.

    Each has its own colours and legend, unless they are *alike*.
    """
    channels = ("color", "strokeDash", "shape") if alike else ("color", "strokeDash")
    resolve = {"scale": dict.fromkeys(channels, "shared" if alike else "independent")}
    content = {"hconcat" if beside else "vconcat": views, "spacing": spacing, "resolve": resolve}
    return _whole(measurements, content)


def _whole(measurements: Iterable[Measured[Any]], content: Json) -> Json:
    """Return a themed specification of *content*, headed by what makes *measurements* invalid."""
    codes = sorted(
        {flag.code for measurement in measurements for flag in measurement.validity.flags if flag.severity == "invalid"}
    )
    text = f"INVALID: {', '.join(codes)}"
    title = {"text": text, "color": INVALID, "fontSize": 13, "offset": 8, "frame": "bounds"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "usermeta": {"dark": DARK},
        "config": CONFIG,
        "autosize": "pad",
        "padding": 8,
        **({"title": title} if codes else {}),
        **content,
    }


def shown(value: float, unit: str) -> str:
    """Return a value with its unit for a label."""
    return f"{units.significant(value, 3)} {unit}"


ARROW_PX: Final = 4  # from the edge of the frame to the middle of an arrow
ABOVE: Final = ((0, -14), (0, -28), (0, 16), (0, -42), (0, 30))
AROUND: Final = ((-0.5, -14), (0.5, -14), (0.5, 14), (-0.5, 14), (-0.5, -28), (0.5, 28), (0.5, -28), (-0.5, 28))
"""Candidate positions of a label: shares of its width to the right, and px down."""


def labels(
    wanted: Iterable[tuple[float, float, str]],
    taken: Iterable[tuple[float, float]],
    scales: tuple[Scale, Scale],
    offsets: Sequence[tuple[float, float]] = ABOVE,
    placed: list[tuple[float, float, float]] | None = None,
    *,
    optional: bool = False,
    **properties: object,
) -> Json:
    """Return a layer of labels *wanted* (x, y, text), placed to hide few of the points *taken* and no other label.

    *placed* are those of other layers, to which these are added: middle from the left, from the top, and width in px.
    *optional* labels without room are left out.
    """
    across, up = scales
    points = sorted((across.at(x), up.at(y)) for x, y in taken)
    placed = [] if placed is None else placed
    rows = []
    for x, y, words in wanted:
        width = 6.4 * len(words)
        options: list[tuple[int, float, float]] = []
        for share, down in offsets:
            left = min(max(across.at(x) + share * (12 + width), width / 2), across.px - width / 2)
            top = min(max(up.at(y) + down, 8), up.px - 8)
            met = sum(abs(u - left) < (other + width) / 2 + 6 and abs(v - top) < 14 for u, v, other in placed)
            options.append((met, left, top))
        least = min(met for met, _, _ in options)
        if least and optional:
            continue
        left, top = min(
            ((left, top) for met, left, top in options if met == least), key=partial(_hidden, points, width / 2 + 5)
        )
        placed.append((left, top, width))
        rows.append({"x": across.value(left), "y": up.value(top), "text": words})
    return text(rows, baseline="middle", **properties)


def _hidden(points: Sequence[tuple[float, float]], half: float, at: tuple[float, float]) -> int:
    """Return how many of the sorted *points* a label whose middle is *at* hides, *half* its width from it."""
    left, top = at
    near = points[bisect_left(points, (left - half,)) : bisect_left(points, (left + half,))]
    return sum(abs(u - left) < half and abs(v - top) < 10 for u, v in near)


BESIDE: Final = ((0.5, 0), (-0.5, 0), (0.5, 14), (-0.5, 14), (0.5, -14), (-0.5, -14))
"""Candidate positions beside a point."""


def cuts(
    rows: Iterable[Json],
    scales: tuple[Scale, Scale],
    colour: Json,
    taken: Iterable[tuple[float, float]] = (),
    placed: list[tuple[float, float, float]] | None = None,
) -> list[Json]:
    """Return an arrow and a number where an interval of *rows* (fields of ``curves.rows``) leaves the frame.

    Ends too close to others have no number; the longest has one.
    """
    across, up = scales
    top, bottom, right = up.value(ARROW_PX), up.value(up.px - ARROW_PX), across.value(across.px - ARROW_PX)
    found: list[tuple[float, Json]] = []
    for row in rows:
        for end, beyond, sign, place in (
            ("h", row["h"] > up.high, "triangle-up", {"x": row["x"], "y": top}),
            ("l", row["l"] < up.low, "triangle-down", {"x": row["x"], "y": bottom}),
            ("b", row["b" if "b" in row else "x"] > across.high, "triangle-right", {"x": right, "y": row["y"]}),
        ):
            if beyond:
                length = abs(row[end] - row["x" if end == "b" else "y"])
                found.append((length, {**place, "s": row["s"], "d": sign, "t": units.significant(row[end], 3)}))
    found.sort(key=lambda item: -item[0])
    arrows = [arrow for _, arrow in found]
    shape = {"shape": {"field": "d", "type": "nominal", "scale": None}}
    points = {"x": number("x"), "y": number("y"), "color": colour, **shape}
    words = [(arrow["x"], arrow["y"], arrow["t"]) for arrow in arrows]
    numbers = labels(words, taken, scales, BESIDE, placed, optional=True, color=MUTED, fontSize=11)
    return [mark("point", points, arrows, filled=True, size=36, opacity=1), numbers]
