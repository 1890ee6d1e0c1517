# SPDX-License-Identifier: Apache-2.0
"""Drawing SVG text: the shapes that figures are made of, and axes with their ticks.

A library for figures takes longer to import than a page takes to render, and a hundred SUTs each have their page; what
is drawn here are lines, markers, texts and filled cells. The same calls give the same bytes. Lengths are CSS pixels.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, log10
from xml.sax.saxutils import escape, quoteattr

FONT_PX = 13.0
"""Height of text where nothing else is said."""

EM_SHARE = 0.6
"""Width of a character of the font in its height, on average; room is reckoned with it."""

GREY = "#555555"
GRID = "#DDDDDD"

CIVIDIS = (
    *("#00224E", "#002E6A", "#1A386F", "#32436D", "#434E6C", "#535A6D", "#61656F", "#6F7073", "#7D7C78"),
    *("#8C8878", "#9B9476", "#ABA072", "#BCAE6C", "#CDBB63", "#DEC958", "#F0D846", "#FEE838"),
)
"""The colour map cividis at equal steps: even in lightness, and the same to all kinds of colour vision.

J. R. Nuñez, C. R. Anderton, R. S. Renslow: Optimizing colormaps with consideration for color vision deficiency, 2018.
"""


def number(value: float) -> str:
    """Return a length with as many digits as a screen can tell."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def width_of(text: str, size: float = FONT_PX) -> float:
    """Return about how wide the longest line of *text* is."""
    return max(map(len, text.split("\n"))) * size * EM_SHARE


def shade(share: float) -> tuple[int, int, int]:
    """Return the colour at *share* (0 to 1) of the colour map, as red, green and blue of 255."""
    place = min(max(share, 0.0), 1.0) * (len(CIVIDIS) - 1)
    below = min(int(place), len(CIVIDIS) - 2)
    low, high = (tuple(bytes.fromhex(colour[1:])) for colour in CIVIDIS[below : below + 2])
    red, green, blue = (round(a + (b - a) * (place - below)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def hexadecimal(colour: Sequence[int]) -> str:
    """Return red, green and blue as SVG writes them."""
    return "#" + bytes(colour).hex().upper()


class Drawing:
    """An SVG document while it is drawn."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def svg(self, title: str = "", description: str = "") -> str:
        """Return the document; *title* and *description* are what a reader hears of it who does not see it."""
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        box = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        font = f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="{number(FONT_PX)}"'
        role = ' role="img"' if title else ""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {font}{role}>'
        told = [f"<{name}>{_shown(text)}</{name}>" for name, text in (("title", title), ("desc", description)) if text]
        ground = '<rect width="100%" height="100%" fill="white"/>'
        return "\n".join([head, *told, ground, *self._parts, "</svg>", ""])

    def lines(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0, dash: str = "") -> None:
        """Draw straight lines from each of *points* to the next."""
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        broken = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{number(width)}"{broken}/>'
        )

    def segments(self, ends: Sequence[tuple[float, float, float, float]], colour: str, width: float = 1.0) -> None:
        """Draw a line between the *ends* (x, y, x, y) of each segment."""
        if ends:
            path = "".join(f"M{number(x)},{number(y)}L{number(u)},{number(v)}" for x, y, u, v in ends)
            self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{number(width)}"/>')

    def runs(
        self, runs: Sequence[Sequence[tuple[float, float]]], colour: str, width: float = 1.0, *, filled: bool = False
    ) -> None:
        """Draw the line through each of *runs* of points, or fill what each of them encloses, as one element.

        Each point is told by its distance from the one before, which makes lines of many points half as long.
        """
        path = "".join(_relative(points) for points in runs if points)
        if path:
            how = f'fill="{colour}"' if filled else f'fill="none" stroke="{colour}" stroke-width="{number(width)}"'
            self._parts.append(f'<path d="{path}" {how}/>')

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, edge: str = "", opacity: float = 1.0
    ) -> None:
        """Fill a rectangle, with an *edge* of that colour around it where one is given."""
        stroke = f' stroke="{edge}"' if edge else ""
        clear = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._parts.append(f'<rect {place} fill="{fill}"{stroke}{clear}/>')

    def mark(self, shape: str, x: float, y: float, colour: str, *, filled: bool = True, size: float = 3.0) -> None:
        """Draw a marker of one of ``SHAPES`` around a point."""
        fill = colour if filled else "white"
        if shape == "circle":
            drawn = f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(size)}"'
        else:
            corners = " ".join(f"{number(x + u * size)},{number(y + v * size)}" for u, v in SHAPES[shape])
            drawn = f'<polygon points="{corners}"'
        self._parts.append(f'{drawn} fill="{fill}" stroke="{colour}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        colour: str = "black",
        size: float = FONT_PX,
        bold: bool = False,
        turned: float = 0.0,
        halo: bool = False,
    ) -> None:
        """Write *text* with its (first) baseline at a point; *turned* by so many degrees around it.

        With a *halo* it can be read on top of lines, and hides little of them.
        """
        style = f' font-size="{number(size)}"' if size != FONT_PX else ""
        style += ' font-weight="bold"' if bold else ""
        style += f' fill="{colour}"' if colour != "black" else ""
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' stroke="white" stroke-width="3" stroke-linejoin="round" paint-order="stroke"' if halo else ""
        style += f' transform="rotate({number(turned)} {number(x)} {number(y)})"' if turned else ""
        for index, line in enumerate(text.split("\n")):
            place = f'x="{number(x)}" y="{number(y + index * size * 1.15)}"'
            self._parts.append(f"<text {place}{style}>{_shown(line)}</text>")

    def picture(self, x: float, y: float, width: float, height: float, rows: Sequence[Sequence[Sequence[int]]]) -> None:
        """Draw *rows* of colours (red, green, blue) as cells of one size that fill a rectangle."""
        url = "data:image/png;base64," + base64.b64encode(_png(rows)).decode("ascii")
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        how = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
        self._parts.append(f"<image {place} {how} href={quoteattr(url)}/>")


def _shown(text: str) -> str:
    """Return *text* as the content of an element: nothing in it is markup or a control character."""
    return escape("".join(each if each.isprintable() else " " for each in text))


def _relative(points: Sequence[tuple[float, float]]) -> str:
    """Return a path through *points*, in tenths of px from point to point; rounding errors do not add up."""
    tenths = [(round(x * 10), round(y * 10)) for x, y in points]
    x, y = tenths[0]
    path = [f"M{_tenths(x)} {_tenths(y)}"]
    for u, v in tenths[1:]:
        across, down = u - x, v - y
        if not across:
            path.append(f"v{_tenths(down)}")
        elif not down:
            path.append(f"h{_tenths(across)}")
        else:
            path.append(f"l{_tenths(across)}{' ' if down > 0 else ''}{_tenths(down)}")
        x, y = u, v
    return "".join(path)


@cache
def _tenths(count: int) -> str:
    """Return so many tenths as SVG's shortest number."""
    sign, whole, rest = "-" * (count < 0), *divmod(abs(count), 10)
    return f"{sign}{whole or ('' if rest else '0')}{f'.{rest}' if rest else ''}"


SHAPES: dict[str, tuple[tuple[float, float], ...]] = {
    "circle": (),
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "up": ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "right": ((1.2, 0), (-0.9, 1.1), (-0.9, -1.1)),
    "down": ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
    "plus": (
        *((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)),
        *((0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),
    ),
}
"""Corners of markers around their middle."""


def _png(rows: Sequence[Sequence[Sequence[int]]]) -> bytes:
    """Return the picture of *rows* of colours, one pixel each."""
    raw = b"".join(b"\0" + b"".join(bytes(colour) for colour in row) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


@dataclass(frozen=True)
class Axis:
    """Values from *low* to *high* on a line from *start* to *end*; beyond its ends a value is at the end."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return where *value* is."""
        if self.logarithmic:
            share = log10(value / self.low) / log10(self.high / self.low) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def inside(self, values: Sequence[float]) -> list[float]:
        """Return those of *values* that are on the axis."""
        return [value for value in values if self.low <= value <= self.high]


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return at most *most* round values from *low* to *high*: multiples of 1, 2 or 5 of a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** floor(log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    digits = max(0, -floor(log10(step)))
    return [round(index * step, digits) for index in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def evenly(ticks: Sequence[float]) -> Callable[[float], str]:
    """Return how to word *ticks*: all with as many decimals as one of them needs."""
    digits = max((len(f"{tick:.12f}".rstrip("0").partition(".")[2]) for tick in ticks), default=0)
    return lambda tick: f"{tick:.{digits}f}"


def linear_scale(low: float, high: float, title: str = "", most: int = 7) -> "Scale":
    """Return the labels of a linear axis from *low* to *high*."""
    ticks = linear_ticks(low, high, most)
    return Scale(ticks, evenly(ticks), title)


def decade_ticks(low: float, high: float, parts: Sequence[int] = (1,)) -> list[float]:
    """Return *parts* of each power of ten from *low* to *high*; where these are fewer than two, of 1, 2 and 5."""
    found = [
        part * 10.0**exponent
        for exponent in range(floor(log10(low)), ceil(log10(high)) + 1)
        for part in parts
        if low <= part * 10.0**exponent <= high
    ]
    return found if len(found) > 1 or len(parts) > 1 else decade_ticks(low, high, (1, 2, 5))


def thinned(ticks: Sequence[float], axis: Axis, room: float) -> list[float]:
    """Return those of *ticks* that are at least *room* apart, the first of them always."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or abs(axis.at(tick) - axis.at(kept[-1])) >= room:
            kept.append(tick)
    return kept


@dataclass(frozen=True)
class Box:
    """A rectangle by its edges, in px."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: "Box") -> float:
        """Return the area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)


def freest(places: Sequence[Box], taken: Sequence[Box]) -> Box:
    """Return the one of *places* that covers least of what is *taken*; of equals the first."""
    return min(places, key=lambda place: sum(place.shared(each) for each in taken))


@dataclass(frozen=True)
class Scale:
    """How an axis is labelled: its ticks, how each is worded, and its title."""

    ticks: Sequence[float]
    worded: Callable[[float], str]
    title: str = ""
    turned: bool = False


def frame(drawing: Drawing, x: Axis, y: Axis, across: Scale, up: Scale) -> None:
    """Draw the grid, the axes at the left and below, their labels and titles. ``y`` starts at the bottom."""
    grid = [
        *((x.at(tick), y.start, x.at(tick), y.end) for tick in across.ticks),
        *((x.start, y.at(tick), x.end, y.at(tick)) for tick in up.ticks),
    ]
    drawing.segments(grid, GRID, 0.8)
    drawing.lines([(x.start, y.end), (x.start, y.start), (x.end, y.start)], "black")
    drawing.segments(
        [
            *((x.at(tick), y.start, x.at(tick), y.start + 4) for tick in across.ticks),
            *((x.start - 4, y.at(tick), x.start, y.at(tick)) for tick in up.ticks),
        ],
        "black",
    )
    for tick in across.ticks:
        label = across.worded(tick)
        if across.turned:
            drawing.text(x.at(tick) + 4, y.start + 15, label, anchor="end", size=12.5, turned=-35)
        elif label:
            at = min(x.at(tick), drawing.width - width_of(label, 12.5) / 2 - 2)  # the last one's whole width is inside
            drawing.text(at, y.start + 18, label, anchor="middle", size=12.5)
    for tick in up.ticks:
        drawing.text(x.start - 7, y.at(tick) + 4.5, up.worded(tick), anchor="end", size=12.5)
    if across.title:
        drawing.text((x.start + x.end) / 2, y.start + below(across) - 6, across.title, anchor="middle")
    if up.title:
        drawing.text(FONT_PX + 2, (y.start + y.end) / 2, up.title, anchor="middle", turned=-90)


def beside(scale: Scale) -> float:
    """Return the room that an axis at the left needs for its labels and its title."""
    widest = max((width_of(scale.worded(tick), 12.5) for tick in scale.ticks), default=0.0)
    return widest + 12 + (FONT_PX + 8 if scale.title else 0)


def below(scale: Scale) -> float:
    """Return the room that an axis below needs for its labels and its title."""
    widest = max((width_of(scale.worded(tick), 12.5) for tick in scale.ticks), default=0.0)
    labels = 0.0 if not widest else 22 + 0.6 * widest if scale.turned else 24.0
    return labels + (FONT_PX + 10 if scale.title else 0)
