# SPDX-License-Identifier: Apache-2.0
"""What all charts share: theme, axes, layers, and how one Vega-Lite specification becomes pictures.

A chart is drawn once, in light colours; its dark variant exchanges them. A specification is plain JSON without a
reference to anything outside, and texts of a SUT are in its data only, never in an expression.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log2, log10
from statistics import median
from typing import Any, Final, Literal, TypeVar
from xml.sax.saxutils import escape

import vl_convert

from calibration.measurements.base import Values
from calibration.report import filters
from calibration.results.model import Measurement
from calibration.statistics import Estimate
from calibration.text import visible

Json = dict[str, Any]

VERSION: Final = "6.4"
"""The version of Vega-Lite that renders charts, in files and in the browser."""

Kind = TypeVar("Kind", bound=Values)

WIDE: Final = 800
HALF: Final = 396
"""Widths in px: that of the site's column, and of two charts side by side in it."""

INK, MUTED, GRID, AXIS, GROUND, ABSENT, INVALID = (
    *("#1F2329", "#5B6570", "#E3E6EA", "#8A939D"),
    *("#FEFEFE", "#EDEFF2", "#B00021"),
)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito: told apart by all kinds of colour vision. Series also differ by dashes or shape."""

DARK: Final = {
    INK: "#E4E8EC",
    MUTED: "#A3ADB8",
    GRID: "#33383E",
    AXIS: "#757E88",
    GROUND: "#131416",
    ABSENT: "#272B30",
    INVALID: "#FF8A80",
    "#0072B2": "#4AA8E8",
    "#D55E00": "#FF8B3D",
    "#009E73": "#2CC79B",
    "#CC79A7": "#E59AC5",
    "#E69F00": "#F2BC4B",
    "#56B4E9": "#A5DAF8",
}
"""What each colour of the theme is on a dark ground; all of them differ, so that text can be exchanged."""

DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 2], [4, 4])
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
FONT: Final = "Helvetica, Arial, Liberation Sans, sans-serif"
"""Fonts of one metric: the renderer measures texts with the last, whatever the reader has."""

SMALLEST_SPAN: Final = 0.05
"""A scale of values reaches at least this share to both sides of their median: noise is not drawn as structure."""

LEFT, RIGHT, TOP, BOTTOM = 54, 14, 26, 42
LABEL_CHARACTERS: Final = 56
"""Of a longer label the beginning is shown: the harness's own are shorter."""

SIZE_LABEL: Final = (
    "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB' : "
    "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : datum.value / 1073741824 + ' GiB'"
)
TIME_LABEL: Final = (
    "datum.value < 999 ? format(datum.value, '~r') + ' ns' : datum.value < 999e3 ? format(datum.value / 1e3, '~r') + "
    "' µs' : datum.value < 999e6 ? format(datum.value / 1e6, '~r') + ' ms' : format(datum.value / 1e9, '~r') + ' s'"
)
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
    "title": {"anchor": "start", "fontSize": 13, "color": INK, "offset": 8, "frame": "bounds"},
    "text": {"fontSize": 12, "color": INK},
    "rule": {"color": MUTED},
}


@dataclass(frozen=True)
class Chart:
    """One chart: the name of its file, its specification, its text alternative, and how to read it."""

    name: str
    spec: Json
    alt: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A chart as SVG on a light and on a dark ground."""

    light: str
    dark: str


TAG = re.compile(r"<[^>]*>")
EMPTY = re.compile(r'<path [^>]*(?: opacity="0"| display="none"| d="M0,0h0v0h0Z")[^>]*/>')
NOISE = re.compile(r' (?:class|aria-hidden|pointer-events|font-family|stroke-miterlimit)="[^"]*"| opacity="1"')
LONG = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
CLIP = re.compile(r"\bclip(\d+)\b")
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def picture(chart: Chart) -> Picture:
    """Return *chart* as SVG, the same bytes for the same specification."""
    clips: dict[str, str] = {}  # the renderer counts them over all charts that it has drawn

    def short(tag: re.Match[str]) -> str:
        """Return a tag without what says nothing, and with no digits that nobody sees; texts between tags stay."""
        plain = LONG.sub(lambda found: f"{round(float(found[0]), 2):g}", NOISE.sub("", tag[0]))
        return CLIP.sub(lambda found: clips.setdefault(found[0], f"clip{len(clips)}"), plain)

    svg = TAG.sub(short, EMPTY.sub("", _svg(json.dumps(chart.spec))))
    head, _, body = svg.partition(">")
    style = "<style>text{paint-order:stroke;stroke-linejoin:round}</style>"
    light = f'{head} role="img" font-family="{FONT}"><title>{escape(chart.alt)}</title>{style}{body}\n'
    dark = TAG.sub(lambda tag: COLOUR.sub(lambda found: DARK.get(found[0].upper(), found[0]), tag[0]), light)
    return Picture(light, dark)


@lru_cache(maxsize=128)
def _svg(spec: str) -> str:
    return vl_convert.vegalite_to_svg(spec, vl_version=VERSION)


def label(text: str) -> str:
    """Return *text* as charts show it: nothing hidden, no longer than there is room for, and never empty."""
    plain = visible(text)
    return (plain if len(plain) <= LABEL_CHARACTERS else f"{plain[: LABEL_CHARACTERS // 2]}...").strip() or "-"


def invalid_text(measurements: Iterable[Measurement]) -> str:
    """Return the codes that make any of *measurements* invalid, or an empty text."""
    flags = {flag.code for each in measurements for flag in each.validity.flags if flag.severity == "invalid"}
    return ", ".join(sorted(flags))


def values_of(kind: type[Kind], *measurements: Measurement) -> list[Kind]:
    """Return the values of *measurements*. Raises ``TypeError`` where they are not of *kind*."""
    found = []
    for measurement in measurements:
        if not isinstance(measurement.values, kind):
            raise TypeError(f"expected {kind.__name__}, found {measurement.kind}")
        found.append(measurement.values)
    return found


def rounded(value: float, digits: int = 5) -> float:
    """Return *value* with as many significant digits as a picture can tell."""
    return float(f"{value:.{digits}g}")


def ends(estimate: Estimate, scale: float = 1.0) -> tuple[float, float]:
    """Return the interval of *estimate*, or twice its value, divided by *scale*."""
    low, high = estimate.interval or (estimate.value, estimate.value)
    return rounded(low / scale), rounded(high / scale)


def spanned(values: Sequence[float], share: float = SMALLEST_SPAN) -> tuple[float, float]:
    """Return from where to where a scale shows *values*: at least *share* of their median to both sides of it."""
    middle = median(values)
    room = share * abs(middle) or 1.0
    return min(*values, middle - room), max(*values, middle + room)


def reach(values: Sequence[float], intervals: Sequence[float]) -> tuple[float, float]:
    """Return what an axis shows of *intervals* (ends): not so far beyond the *values* that these would be flat."""
    low, high = min(values), max(values)
    room = max((high - low) / 2, high / 4)
    return max(min(*intervals, low), low - room), min(max(*intervals, high), high + room)


def decades(low: float, high: float, most: int = 8) -> list[float]:
    """Return at most about *most* round values from *low* to *high* for a logarithmic axis."""
    for parts in ((1, 2, 5), (1, 3), (1,)):
        exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
        found = [rounded(part * 10.0**power) for power in exponents for part in parts]
        found = [each for each in found if low <= each <= high]
        if len(found) <= most:
            return found
    return found[:: ceil(len(found) / most)]


def octaves(low: float, high: float, most: int = 8) -> list[float]:
    """Return at most *most* powers of two from *low* to *high*."""
    powers = range(ceil(log2(low)), floor(log2(high)) + 1)
    step = max(1, ceil(len(powers) / most))
    return [2.0**power for power in powers if power % step == 0] or [2.0**power for power in powers[:1]]


@dataclass(frozen=True)
class Scale:
    """Values from *low* to *high* along *px* of a plot, upwards where it is the ordinate's."""

    low: float
    high: float
    px: float
    log: bool = False
    up: bool = False

    def at(self, value: float) -> float:
        """Return where *value* is, in px from the left or the top; beyond the ends it is at the end."""
        if self.log:
            share = log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        share = min(max(share, 0.0), 1.0)
        return self.px * (1 - share if self.up else share)

    def value(self, px: float) -> float:
        """Return what is at *px*."""
        share = 1 - px / self.px if self.up else px / self.px
        if self.log:
            return rounded(self.low * (self.high / self.low) ** share)
        return rounded(self.low + share * (self.high - self.low))

    def channel(
        self, field: str, title: str, *, ticks: Sequence[float] | int = 5, labels: str | None = None, grid: bool = True
    ) -> Json:
        """Return the channel of *field* with its axis; *ticks* are their values or about their number."""
        shown: Json = {"title": title, "grid": grid}
        shown |= {"tickCount": ticks} if isinstance(ticks, int) else {"values": list(ticks)}
        if labels or self.log:
            shown["labelExpr"] = labels or PLAIN_LABEL
        scale: Json = {"domain": [rounded(self.low), rounded(self.high)], "nice": False}
        scale |= {"type": "log"} if self.log else {"zero": False}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": shown}


def tips(*fields: tuple[str, str]) -> list[Json]:
    """Return the lines of a tooltip: pairs of a field and its title; numbers keep four digits."""
    return [{"field": field, "title": title} for field, title in fields]


def table(rows: Iterable[Json]) -> Json:
    """Return *rows* as the data of a layer."""
    return {"values": [dict(row) for row in rows]}


def mark(kind: str, data: Json | None, encoding: Json, **properties: object) -> Json:
    """Return one layer."""
    layer: Json = {} if data is None else {"data": data}
    return layer | {"mark": {"type": kind, **properties}, "encoding": encoding}


def text(rows: Iterable[Json], **properties: object) -> Json:
    """Return a layer of labels that stay readable on lines: each row has x, y and text."""
    channels: Json = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
    channels["text"] = {"field": "text", "type": "nominal"}
    halo = {"stroke": GROUND, "strokeWidth": 3, "strokeJoin": "round"}
    return mark("text", table(rows), channels, **{**halo, **properties})


def rules(
    channel: Literal["x", "y"], values: Sequence[float], *, colour: str = MUTED, dash: Sequence[int] = (4, 3)
) -> Json:
    """Return a layer of lines across the whole chart at *values* of *channel*."""
    encoding: Json = {channel: {"field": "at", "type": "quantitative"}}
    return mark("rule", table({"at": rounded(each)} for each in values), encoding, color=colour, strokeDash=list(dash))


def _legend_px(names: Sequence[str]) -> float:
    """Return how wide a column of a legend of *names* is."""
    return max((len(name) for name in names), default=0) * 6.5 + 36


def _columns(names: Sequence[str], width: int) -> int:
    """Return how many columns a legend of *names* has in a chart of *width* px."""
    return max(1, min(len(names), int((width - LEFT) // _legend_px(names))))


def series(names: Sequence[str], kinds: Sequence[object], width: int = 0, **legend: object) -> Json:
    """Return the channel that gives each series of *names* one of *kinds*; with a legend where a *width* is given."""
    told = {"columns": _columns(names, width), **legend} if width and len(names) > 1 else None
    again = 0 if kinds is COLOURS else 1  # what has the colour of another has another shape and other dashes
    order = [kinds[(place + again * (place // len(kinds))) % len(kinds)] for place in range(len(names))]
    scale = {"domain": list(names), "range": order}
    return {"field": "s", "type": "nominal", "scale": scale, "legend": told}


@dataclass(frozen=True)
class Frame:
    """The size of a chart in px, with room for its axes; a *legend* of several names adds to its height."""

    width: int
    base_height: int = 320
    legend: Sequence[str] = ()
    invalid: str = ""
    left: int = LEFT
    right: int = RIGHT

    @property
    def _head(self) -> int:
        """Room above the plot for the legend and what makes the figures invalid."""
        rows = -(-len(self.legend) // _columns(self.legend, self.width)) if len(self.legend) > 1 else 0
        return 20 * rows + (24 if self.invalid else 0)

    @property
    def plot(self) -> tuple[int, int]:
        """Width and height of what lies between the axes."""
        return self.width - self.left - self.right, self.base_height - TOP - BOTTOM

    def spec(self, layers: Sequence[Json], **more: object) -> Json:
        """Return the specification of *layers*; where a screen is narrow the plot may shrink, but not the legend."""
        width, height = self.plot
        padding = {"left": self.left, "right": self.right, "top": TOP + self._head, "bottom": BOTTOM}
        content = {"layer": list(layers), "width": width, "height": height, **more}
        found = whole(content, invalid=self.invalid, padding=padding)
        columns = _columns(self.legend, self.width) if len(self.legend) > 1 else 0
        found["usermeta"] = {**found["usermeta"], "narrowest": round(self.left + columns * _legend_px(self.legend))}
        return found


def whole(content: Json, *, padding: Json | int = 8, invalid: str = "") -> Json:
    """Return a specification of *content* with the theme: views beside each other take the room that they need."""
    title = {"title": {"text": f"INVALID: {invalid}", "color": INVALID}} if invalid else {}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "usermeta": {"dark": DARK},
        "config": CONFIG,
        "autosize": "pad" if isinstance(padding, int) else "none",
        "padding": padding,
        **title,
        **content,
    }


def shown(value: float, unit: str, digits: int = 3) -> str:
    """Return a figure with its unit, as labels have it."""
    return f"{filters.significant(value, digits)} {unit}"


@dataclass(frozen=True)
class _Place:
    """A label's middle and its width, in px from the plot's upper left corner."""

    x: float
    y: float
    width: float

    def covers(self, x: float, y: float) -> bool:
        """Return whether a point lies in the label's box."""
        return abs(x - self.x) < self.width / 2 + 5 and abs(y - self.y) < 10

    def meets(self, other: "_Place") -> bool:
        """Return whether two labels overlap."""
        return abs(other.x - self.x) < (self.width + other.width) / 2 + 6 and abs(other.y - self.y) < 14


ABOVE: Final = ((0, -14), (0, -28), (0, 16), (0, -42), (0, 30))
AROUND: Final = ((-0.5, -14), (0.5, -14), (0.5, 14), (-0.5, 14), (-0.5, -28), (0.5, 28), (0.5, -28), (-0.5, 28))
"""Where a label may stand: shares of its width to the right, and px down."""


def labels(
    wanted: Sequence[tuple[float, float, str]],
    taken: Sequence[tuple[float, float]],
    scales: tuple[Scale, Scale],
    offsets: Sequence[tuple[float, float]] = ABOVE,
    **properties: object,
) -> Json:
    """Return a layer with *wanted* (x, y, text), each where it hides least of the points *taken* and no other label."""
    across, up = scales
    points = [(across.at(x), up.at(y)) for x, y in taken]
    found: list[_Place] = []
    for x, y, words in wanted:
        width = 6.4 * len(words)
        options = [
            _Place(
                min(max(across.at(x) + share * (12 + width), width / 2), across.px - width / 2),
                min(max(up.at(y) + down, 8), up.px - 8),
                width,
            )
            for share, down in offsets
        ]
        found.append(
            min(
                options,
                key=lambda place: (
                    sum(place.meets(other) for other in found),
                    sum(place.covers(*point) for point in points),
                ),
            )
        )
    rows = (
        {"x": across.value(place.x), "y": up.value(place.y), "text": words}
        for place, (_, _, words) in zip(found, wanted, strict=True)
    )
    return text(rows, baseline="middle", **properties)
