# SPDX-License-Identifier: Apache-2.0
"""Figures as SVG text: the same input gives the same bytes, on a white ground that works in light and dark themes.

Every figure is drawn for a width of 480 px, where its text is 13 px high: on a telephone it shrinks to three quarters
and stays legible. Text stays text, so that it can be searched and selected. Colours are those of Okabe and Ito, told
apart by all kinds of colour vision; series also differ by marker or line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

from calibration.report import filters
from calibration.report.svg import (
    FONT_PX,
    GREY,
    Axis,
    Box,
    Drawing,
    Scale,
    below,
    beside,
    decade_ticks,
    frame,
    freest,
    hexadecimal,
    linear_scale,
    shade,
    thinned,
    width_of,
)
from calibration.statistics import Estimate
from calibration.text import visible

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("circle", "square", "up", "diamond", "down", "plus")
DASHES = ("", "6 3", "7 3 2 3", "2 3", "9 2", "2 2")
INVALID_COLOUR = "#B00020"

WIDTH_PX = 480
HEIGHT_PX = 360

MANY_SERIES = len(COLOURS)
"""From more series than colours on, all but the most telling are drawn in grey."""

CELL_PX = 58
"""Width of a heat map's cell: five digits and their interval fit."""

EVEN_LUMINANCE = 0.179
"""Luminance on which black and white text have the same contrast (WCAG 2)."""

HEAT_LEFT, HEAT_TOP = 46, 58
"""Room in px for the labels at the left of and above a heat map."""

INTERVAL_CELLS = 8
"""Up to this many columns the cells have room for the interval as well."""

CLOCKS_APART = 8
"""Up to so many CPUs the clocks of one CPU are drawn side by side, beyond that above one another."""

COUNT_SHARE = 0.07
"""Share of an axis's width that a number of up to four digits needs."""

LABEL_SHARE = 0.15
"""Share of an axis's width that a label of two short lines needs."""

NUMBERED_CPUS = 8
"""Up to this many columns of a core map the cells have room for their numbers."""

LABELLED_CPUS = 24
"""So many CPUs have room for their labels beside a core map."""

UNMEASURED = (0xE4, 0xE4, 0xE4)
"""Colour of a core map's cell that was not measured."""

RIGHT_PX = 10
"""Room at the right of every figure."""

LABEL_PX = 12
"""Height of a label amid a curve's points."""

LINE_PX = 20
"""Height of a line of a legend."""


NOPS_LINEAR = 10
"""Numbers of no-ops are drawn with this many added, on a logarithmic axis."""

BARS = 3
"""Bars are no broader than so many of them in a group would be."""

VARIATION_BINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Upper ends of the bins of coefficients of variation."""

LABEL_CHARACTERS = 56
"""None of the harness's own labels has a longer line; of one that has, not much is shown: a figure needs its room."""


def drawn(label: str) -> str:
    """Return *label* as it is drawn: nothing hidden, no longer than there is room for, and never empty."""
    lines = []
    for line in label.split("\n")[:2]:
        plain = visible(line).encode("latin-1", "backslashreplace").decode("latin-1")
        lines.append(plain if len(plain) <= LABEL_CHARACTERS else f"{plain[: LABEL_CHARACTERS // 2]}...")
    text = "\n".join(lines)
    return text if text.strip() else "-"


class _Labelled:
    """Something in a figure with a label, which may have words of a SUT's in it."""

    label: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", drawn(self.label))


@dataclass(frozen=True)
class Histogram(_Labelled):
    """One step line of a histogram: bins (from ns, to ns, count), and how long was watched."""

    label: str
    bins: tuple[tuple[float, float, int], ...]
    wall_s: float
    longest_ns: float


@dataclass(frozen=True)
class Curve(_Labelled):
    """One line of a chart with its estimates; ``x`` is a number or an estimate itself."""

    label: str
    points: tuple[tuple[float | Estimate, Estimate], ...]


@dataclass(frozen=True)
class Clocks(_Labelled):
    """The clocks of cores under one kind of work; series of one ``group`` share a colour."""

    label: str
    group: int
    filled: bool
    points: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True)
class Mark(_Labelled):
    """A labelled position on an axis."""

    position: float
    label: str


@dataclass(frozen=True)
class Plateau(_Labelled):
    """A stretch of an axis over which a curve is level."""

    start: float
    end: float
    value: float
    label: str


@dataclass(frozen=True)
class Part(_Labelled):
    """Bytes that are a part of a bar; parts of one label have one colour."""

    label: str
    size: float
    colour: str


@dataclass(frozen=True)
class Entry:
    """One line of a legend: how its sample looks."""

    label: str
    colour: str
    marker: str = ""
    dash: str | None = ""
    filled: bool = True


CUT = Entry("interval goes on beyond the edge", GREY, "up", None)
"""What the arrow at an edge says."""


def _plain(value: float) -> str:
    return f"{value:g}"


def _size(value: float) -> str:
    return filters.size(round(value))


def _begin(height: float, invalid: str) -> tuple[Drawing, float]:
    """Return a drawing, with the codes in *invalid* on top, and where the room below them begins."""
    extra = 24 if invalid else 0
    drawing = Drawing(WIDTH_PX, height + extra)
    if invalid:
        drawing.text(8, 17, f"INVALID: {invalid}", colour=INVALID_COLOUR, bold=True)
    return drawing, float(extra)


def _sample(drawing: Drawing, x: float, y: float, entry: Entry) -> None:
    if entry.dash is not None:
        drawing.lines([(x, y - 4.5), (x + 24, y - 4.5)], entry.colour, 1.6, entry.dash)
    if entry.marker:
        drawing.mark(entry.marker, x + 12, y - 4.5, entry.colour, filled=entry.filled)


def _legend(drawing: Drawing, top: float, entries: Sequence[Entry]) -> float:
    """Draw a legend from *top* on, in two columns where they fit; return where the room below it begins."""
    if not entries:
        return top + 8
    widest = max(width_of(entry.label, 12.5) for entry in entries) + 44
    columns = 2 if 2 * widest <= WIDTH_PX and len(entries) > 1 else 1
    per_column = -(-len(entries) // columns)
    for index, entry in enumerate(entries):
        column, row = divmod(index, per_column)
        x, y = 10 + column * WIDTH_PX / columns, top + 16 + row * LINE_PX
        _sample(drawing, x, y, entry)
        drawing.text(x + 30, y, entry.label, size=12.5)
    return top + per_column * LINE_PX + 10


def _swatches(drawing: Drawing, top: float, entries: Sequence[tuple[str, str]]) -> float:
    """Draw a legend of labels and colours from *top* on, one below the other; return where the room below begins."""
    for place, (label, colour) in enumerate(entries):
        drawing.box(12, top + 12 + place * LINE_PX, 22, 11, colour)
        drawing.text(40, top + 22 + place * LINE_PX, label, size=12.5)
    return top + 20 + len(entries) * LINE_PX


def _ends(estimate: Estimate, scale: float) -> tuple[float, float]:
    low, high = estimate.interval or (estimate.value, estimate.value)
    return low / scale, high / scale


def _uprights(
    drawing: Drawing,
    points: Sequence[tuple[float, Estimate]],
    y: Axis,
    *,
    colour: str,
    scale: float = 1.0,
    cap: float = 2.5,
) -> None:
    """Draw the interval of each estimate, divided by *scale*, at its abscissa in px; an arrow is where it goes on."""
    lines = []
    for x, estimate in points:
        ends = _ends(estimate, scale)
        low, high = (y.at(end) for end in ends)
        lines.append((x, low, x, high))
        lines += [(x - cap, y.at(end), x + cap, y.at(end)) for end in ends if y.inside([end])]
        if ends[0] < y.low:
            drawing.mark("down", x, y.start - 4, colour)
        if ends[1] > y.high:
            drawing.mark("up", x, y.end + 4, colour)
    drawing.segments(lines, colour, 0.9)


def _reach(values: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """Return from where to where an axis shows the intervals' *ends*: not so far that it would hide the *values*.

    Beyond the values it has room for half of what they span, and for a quarter of the largest where they are level.
    """
    low, high = min(values), max(values)
    room = max((high - low) / 2, high / 4)
    return max(min(ends), low - room), min(max(ends), high + room)


def _curve(
    drawing: Drawing, points: Sequence[tuple[float, float]], place: int, *, dash: str = "", size: float = 3.0
) -> None:
    """Draw the line and the markers of the curve at *place*."""
    colour = COLOURS[place % len(COLOURS)]
    if len(points) > 1:
        drawing.lines(points, colour, 1.6, dash)
    for x, y in points:
        drawing.mark(MARKERS[place % len(MARKERS)], x, y, colour, size=size)


def histogram(series: Sequence[Histogram], threshold_ns: float, *, invalid: str = "") -> str:
    """Return a histogram of gap lengths, log-log, with one step line per CPU.

    With more series than colours, the six with the longest gaps keep a colour and the rest are grey. Raises
    ``ValueError`` where there is no series.
    """
    if not series:
        raise ValueError("expected at least one series, found none")
    ranked = sorted(range(len(series)), key=lambda index: (-series[index].longest_ns, index))
    coloured = sorted(ranked[:MANY_SERIES])
    looks = {index: (COLOURS[place], DASHES[place]) for place, index in enumerate(coloured)}
    filled = [(low, count) for each in series for low, _, count in each.bins if count]
    most = max((count for _, count in filled), default=1)
    longest = max((each.longest_ns for each in series), default=threshold_ns)
    low, high = min([threshold_ns, *(low for low, _ in filled)]) / 1.25, max(longest, threshold_ns) * 1.8
    walls = {filters.duration(each.wall_s) for each in series}
    title = f"Gaps counted in {walls.pop()}" if len(walls) == 1 else "Gaps counted"
    across = Scale(decade_ticks(low, high), filters.time_ns, "Length of the gap (bins of equal ratio)")
    up = Scale(decade_ticks(0.5, most * 3), _plain, title)

    drawing, top = _begin(HEIGHT_PX + LINE_PX * -(-len(coloured) // 2), invalid)
    top = _legend(drawing, top, [Entry(series[index].label, *_line(looks[index])) for index in coloured])
    x = Axis(low, high, beside(up), WIDTH_PX - RIGHT_PX, logarithmic=True)
    y = Axis(0.5, most * 3, drawing.height - below(across), top, logarithmic=True)
    across = Scale(thinned(across.ticks, x, 52), across.worded, across.title)
    frame(drawing, x, y, across, up)
    drawing.lines([(x.at(threshold_ns), y.start), (x.at(threshold_ns), y.end)], GREY, 0.8, "2 3")
    order = [*(index for index in range(len(series)) if index not in looks), *coloured]
    for index in order:
        bins = series[index].bins
        if not bins:
            continue
        points = [(x.at(bins[0][0]), y.start)]
        for start, end, count in bins:
            level = y.at(max(count, 0.5))
            points += [(x.at(start), level), (x.at(end), level)]
        points.append((points[-1][0], y.start))
        colour, dash = looks.get(index, ("#BBBBBB", ""))
        drawing.lines(_without_repeats(points), colour, 1.6 if index in looks else 1.0, dash)
    return drawing.svg()


def _line(look: tuple[str, str]) -> tuple[str, str, str]:
    """Return colour, marker and dashes of a legend's entry for a line without markers."""
    colour, dash = look
    return colour, "", dash


def _without_repeats(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return *points* without those that lie on a level line between their neighbours."""
    kept: list[tuple[float, float]] = []
    for point in points:
        if len(kept) > 1 and kept[-1][1] == point[1] == kept[-2][1]:
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return kept


def heat_map(
    rows: Sequence[int],
    columns: Sequence[int],
    cells: Sequence[Sequence[Estimate | None]],
    *,
    what: str,
    unit: str,
    scale: float = 1.0,
    invalid: str = "",
) -> str:
    """Return the matrix *cells* (CPU nodes in *rows* by memory nodes in *columns*) as a heat map with its numbers.

    *what* names the values; they are divided by *scale* to be in *unit*. A cell without a value is struck through.
    """
    known = [cell.value / scale for row in cells for cell in row if cell is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    width, height = heat_map_px(len(rows), len(columns), invalid=bool(invalid))
    cell_height = _cell_height(len(rows), len(columns))
    drawing = Drawing(width, height)
    left, top = HEAT_LEFT, height - 6 - len(rows) * cell_height
    if invalid:
        drawing.text(8, 17, f"INVALID: {invalid}", colour=INVALID_COLOUR, bold=True)
    drawing.text(left, top - 40, f"{what}, {unit}", bold=True)
    drawing.text(left, top - 22, "memory of node", size=12)
    for column, node in enumerate(columns):
        drawing.text(left + (column + 0.5) * CELL_PX, top - 5, str(node), anchor="middle", size=12.5)
    middle = top + len(rows) * cell_height / 2
    side = "CPUs of\nnode" if len(rows) < 2 else "CPUs of node"
    drawing.text(13, middle, side, anchor="middle", size=12, turned=-90)
    for row, line in enumerate(cells):
        y = top + row * cell_height
        drawing.text(left - 6, y + cell_height / 2 + 4.5, str(rows[row]), anchor="end", size=12.5)
        for column, estimate in enumerate(line):
            x = left + column * CELL_PX
            if estimate is None:
                drawing.box(x, y, CELL_PX, cell_height, "#F2F2F2", edge="#999999")
                drawing.segments([(x, y + cell_height, x + CELL_PX, y)], "#999999", 0.5)
                drawing.text(x + CELL_PX / 2, y + cell_height / 2 + 4.5, filters.ABSENT, anchor="middle")
                continue
            value = estimate.value / scale
            colour = shade(0.12 + 0.83 * (0.5 if high == low else (value - low) / (high - low)))
            ink = _ink(colour)
            bounds = estimate.interval if len(columns) <= INTERVAL_CELLS else None
            drawing.box(x, y, CELL_PX, cell_height, hexadecimal(colour), edge="white")
            at = y + cell_height * (0.38 if bounds else 0.5) + 4.5
            drawing.text(x + CELL_PX / 2, at, filters.significant(value), anchor="middle", colour=ink)
            if bounds:
                half = f"± {filters.significant((bounds[1] - bounds[0]) / 2 / scale, 2)}"
                at = y + cell_height * 0.72 + 4
                drawing.text(x + CELL_PX / 2, at, half, anchor="middle", colour=ink, size=10.5)
    return drawing.svg()


def core_map(
    cpus: Sequence[int],
    nodes: Sequence[int],
    cells: Sequence[Sequence[float | None]],
    *,
    what: str,
    invalid: str = "",
) -> str:
    """Return ns from each of *cpus* (rows) to each other (columns) as a map of one width, whatever their number.

    *nodes* are those of the CPUs, which stand node by node; lines part them. Up to ``NUMBERED_CPUS`` each cell has its
    number, and beyond ``LABELLED_CPUS`` only some CPUs have theirs. What was not measured is grey.
    """
    count = len(cpus)
    known = [cell for row in cells for cell in row if cell is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)

    def share(cell: float) -> float:
        return 0.5 if high == low else (cell - low) / (high - low)

    label = max(width_of(str(cpu), 12.5) for cpu in cpus)
    turned = count > LABELLED_CPUS // 2
    left, bar = FONT_PX + 18 + label, 92.0
    head = FONT_PX + 14 + (label if turned else 12.5)
    side = WIDTH_PX - left - bar
    drawing, top = _begin(head + side + 8, invalid)
    top += head
    drawing.picture(
        left,
        top,
        side,
        side,
        [[UNMEASURED if cell is None else shade(share(cell)) for cell in row] for row in cells],
    )
    drawing.text(left + side / 2, top - head + FONT_PX, "reader, CPU", anchor="middle")
    drawing.text(FONT_PX, top + side / 2, "writer, CPU", anchor="middle", turned=-90)
    for index in range(0, count, -(-count // LABELLED_CPUS)):
        place = (index + 0.5) * side / count
        if turned:
            drawing.text(left + place + 4.5, top - 5, str(cpus[index]), size=12.5, turned=-90)
        else:
            drawing.text(left + place, top - 6, str(cpus[index]), anchor="middle", size=12.5)
        drawing.text(left - 6, top + place + 4.5, str(cpus[index]), anchor="end", size=12.5)
    for edge in (each for each in range(1, count) if nodes[each] != nodes[each - 1]):
        at = edge * side / count
        drawing.segments(
            [(left, top + at, left + side, top + at), (left + at, top, left + at, top + side)], "white", 1.5
        )
    for row, line in enumerate(cells if count <= NUMBERED_CPUS else ()):
        for column, cell in enumerate(line):
            x, y = left + (column + 0.5) * side / count, top + (row + 0.5) * side / count + 4.5
            ink = _ink(UNMEASURED if cell is None else shade(share(cell)))
            text = filters.ABSENT if cell is None else filters.significant(cell, 3)
            drawing.text(x, y, text, anchor="middle", colour=ink)
    _colour_bar(drawing, left + side + 14, (top + side * 0.9, top + side * 0.1), (low, high), f"{what}, ns")
    return drawing.svg()


def _colour_bar(
    drawing: Drawing, left: float, ends: tuple[float, float], values: tuple[float, float], title: str
) -> None:
    """Draw the colours from the lower to the higher of *values* upwards between *ends*, with round values beside."""
    low, high = values if values[0] < values[1] else (values[0] - 0.5, values[1] + 0.5)
    axis = Axis(low, high, *ends)
    steps = 64
    drawing.picture(left, ends[1], 14, ends[0] - ends[1], [[shade(1 - index / (steps - 1))] for index in range(steps)])
    scale = linear_scale(low, high, most=6)
    for tick in scale.ticks:
        drawing.segments([(left + 14, axis.at(tick), left + 18, axis.at(tick))], "black")
        drawing.text(left + 21, axis.at(tick) + 4.5, scale.worded(tick), size=12.5)
    drawing.text(WIDTH_PX - 6, sum(ends) / 2, title, anchor="middle", turned=-90)


def heat_map_px(rows: int, columns: int, *, invalid: bool = False) -> tuple[int, int]:
    """Return the width and height in px of a heat map."""
    height = HEAT_TOP + (24 if invalid else 0) + rows * _cell_height(rows, columns) + 6
    return max(HEAT_LEFT + columns * CELL_PX + 6, HEAT_LEFT + 180), height


def clocks(series: Sequence[Clocks], *, invalid: str = "") -> str:
    """Return the clock of each CPU (GHz against its number), series side by side. The ordinate does not begin at 0."""
    cpus = sorted({cpu for each in series for cpu, _ in each.points})
    places = {cpu: place for place, cpu in enumerate(cpus)}
    few = len(cpus) <= CLOCKS_APART
    ends = [end for each in series for _, one in each.points for end in _ends(one, 1e9)]
    room = max(0.05 * (max(ends) - min(ends)), 0.02 * max(ends))
    low, high = min(ends) - room, max(ends) + room
    up = linear_scale(low, high, "Core clock, GHz")
    across = Scale(range(0, len(cpus), max(1, ceil(len(cpus) / 12))), lambda place: str(cpus[round(place)]), "CPU")

    drawing, top = _begin(HEIGHT_PX - 60 + LINE_PX * -(-len(series) // 2), invalid)
    looks = [(COLOURS[each.group % len(COLOURS)], MARKERS[each.group % len(MARKERS)]) for each in series]
    entries = [
        Entry(each.label, colour, marker, None, each.filled)
        for each, (colour, marker) in zip(series, looks, strict=True)
    ]
    top = _legend(drawing, top, entries)
    x = Axis(-0.6, len(cpus) - 0.4, beside(up), WIDTH_PX - RIGHT_PX)
    y = Axis(low, high, drawing.height - below(across), top)
    frame(drawing, x, y, across, up)
    for index, (each, (colour, marker)) in enumerate(zip(series, looks, strict=True)):
        aside = (index - (len(series) - 1) / 2) * (0.7 / len(series)) if few else 0.0
        points = [(x.at(places[cpu] + aside), estimate) for cpu, estimate in each.points]
        _uprights(drawing, points, y, colour=colour, scale=1e9, cap=2.5 if few else 0.0)
        for at, estimate in points:
            drawing.mark(marker, at, y.at(estimate.value / 1e9), colour, filled=each.filled)
    return drawing.svg()


def _cell_height(rows: int, columns: int) -> int:
    if rows == 1:  # the label of the rows needs this much
        return 62
    return 44 if columns <= INTERVAL_CELLS else 30


def _luminance(colour: Sequence[int]) -> float:
    """Return the relative luminance of a colour as WCAG 2 defines it."""
    parts = [each / 255 for each in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _ink(colour: Sequence[int]) -> str:
    """Return the colour of text that is legible on *colour*."""
    return "black" if _luminance(colour) > EVEN_LUMINANCE else "white"


def _tiers(positions: Sequence[float], low: float, high: float) -> list[int]:
    """Return for each label at *positions* of a logarithmic axis how many label heights up it must go to stand free."""
    room = log2(high / low) * LABEL_SHARE
    taken: list[tuple[float, int]] = []
    for position in positions:
        tier = 0
        while any(level == tier and abs(log2(position / other)) < room for other, level in taken):
            tier += 1
        taken.append((position, tier))
    return [tier for _, tier in taken]


def _numbers(curves: Sequence[Curve]) -> list[float]:
    """Return the abscissae of *curves* that are plain numbers."""
    return [float(x) for curve in curves for x, _ in curve.points if not isinstance(x, Estimate)]


def _along_sizes(
    curves: Sequence[Curve],
    caches: Sequence[Mark],
    *,
    bounds: tuple[float, float],
    titles: tuple[str, str],
    scale: float,
    size: float,
    plateaus: Sequence[Plateau] = (),
    legend: bool = True,
    invalid: str = "",
) -> str:
    """Return *curves* against sizes in bytes, both axes logarithmic, with *caches* as labelled vertical lines."""
    sizes = _numbers(curves)
    low, high = min(sizes) / 1.3, max(sizes) * 1.6
    exponents = range(ceil(log2(min(sizes))), floor(log2(max(sizes))) + 1)
    step = max(1, -(-len(exponents) // 7))
    across = Scale([2.0**each for each in exponents if each % step == 0], _size, titles[0], turned=True)
    tiers = _tiers([mark.position for mark in caches], low, high)
    above = 32 * (max(tiers, default=-1) + 1)
    entries = [Entry(curve.label, *_look(place)) for place, curve in enumerate(curves)] if legend else []
    drawing, top = _begin(HEIGHT_PX + 30 + max(0, above - 32) + LINE_PX * len(entries), invalid)
    top = _legend(drawing, top, entries) + above
    y = Axis(*bounds, drawing.height - below(across), top, logarithmic=True)
    up = Scale(thinned(decade_ticks(*bounds, (1, 2, 5)), y, 15), _plain, titles[1])
    x = Axis(low, high, beside(up), WIDTH_PX - RIGHT_PX, logarithmic=True)
    frame(drawing, x, y, across, up)
    for mark, tier in zip(caches, tiers, strict=True):
        if not low <= mark.position <= high:
            continue
        drawing.lines([(x.at(mark.position), y.start), (x.at(mark.position), y.end)], GREY, 0.9, "5 3")
        drawing.text(x.at(mark.position), top - 20 - 30 * tier, mark.label, anchor="middle", colour=GREY, size=11.5)
    for plateau in plateaus:
        level = y.at(plateau.value)
        left, right = x.at(plateau.start), x.at(plateau.end)
        drawing.box(left, level - 3, right - left, 6, COLOURS[1], opacity=0.35)
    taken: list[Box] = []
    for place, curve in enumerate(curves):
        points = [(x.at(float(at)), one) for at, one in curve.points if not isinstance(at, Estimate)]
        _uprights(drawing, points, y, colour=_look(place)[0], scale=scale, cap=2.0)
        _curve(drawing, [(at, y.at(one.value / scale)) for at, one in points], place, size=size)
        taken += _taken(points, y, scale)
    for plateau in plateaus:
        middle = x.at((plateau.start * plateau.end) ** 0.5)
        level = y.at(plateau.value)
        _label(drawing, plateau.label, (x, y), middles=[middle], level=level, taken=taken, colour="#A04000")
    return drawing.svg()


def load_curve(
    curves: Sequence[Curve],
    labels: Sequence[Sequence[str]],
    zero_load: Sequence[Mark],
    *,
    what: str = "Latency of the probe, ns",
    invalid: str = "",
) -> str:
    """Return *what*, a latency (ns), against bandwidth (x in MB/s, drawn in GB/s), with the intervals of both.

    *labels* names points of each curve where it is not empty; *zero_load* are latencies without load. The axes follow
    the estimates: an interval that would stretch them far beyond is cut at the edge, with an arrow.
    """
    measured = [[(across, up) for across, up in curve.points if isinstance(across, Estimate)] for curve in curves]
    pairs = [pair for points in measured for pair in points]
    marked = [mark.position for mark in zero_load]
    sideways = [end for across, _ in pairs for end in _ends(across, 1000)]
    upright = [*(end for _, up in pairs for end in _ends(up, 1)), *marked]
    _, right = _reach([across.value / 1000 for across, _ in pairs], sideways)
    low, high = _reach([*(up.value for _, up in pairs), *marked], upright)
    right, low, high = right * 1.04, low * 0.9, high * 1.05
    cut = max(sideways) > right or min(upright) < low or max(upright) > high
    across = linear_scale(0, right, "Bandwidth of the load, GB/s (10⁹ bytes/s)")
    up = linear_scale(low, high, what)
    entries = [
        *(Entry(curve.label, *_look(place)) for place, curve in enumerate(curves)),
        *(Entry(mark.label, _look(place)[0], "", "2 3") for place, mark in enumerate(zero_load)),
        *([CUT] if cut else []),
    ]
    drawing, top = _begin(HEIGHT_PX + LINE_PX * len(entries), invalid)
    top = _legend(drawing, top, entries)
    x = Axis(0, right, beside(up), WIDTH_PX - RIGHT_PX)
    y = Axis(low, high, drawing.height - below(across), top)
    frame(drawing, x, y, across, up)
    for place, mark in enumerate(zero_load):
        level = y.at(mark.position)
        drawing.lines([(x.start, level), (x.end, level)], _look(place)[0], 0.9, "2 3")
    taken = [Box(x.start, y.at(mark.position) - 1, x.end, y.at(mark.position) + 1) for mark in zero_load]
    for place, points in enumerate(measured):
        colour = _look(place)[0]
        _uprights(drawing, [(x.at(across.value / 1000), up) for across, up in points], y, colour=colour)
        lying, caps = [], []
        for along, one in points:
            start, end = (x.at(each) for each in _ends(along, 1000))
            level = y.at(one.value)
            lying.append((start, level, end, level))
            caps += [(at, level - 2.5, at, level + 2.5) for at in (start, end) if at < x.end]
            if end == x.end:
                drawing.mark("right", x.end - 4, level, colour)
        drawing.segments([*lying, *caps], colour, 0.9)
        _curve(drawing, [(x.at(along.value / 1000), y.at(one.value)) for along, one in points], place)
        taken += _taken([(x.at(along.value / 1000), one) for along, one in points], y)
        taken += [Box(start, level - 2.5, end, level + 2.5) for start, level, end, _ in lying]
    for points, names in zip(measured, labels, strict=True):
        for name, (along, one) in zip(names, points, strict=True):
            if name:
                at, level = x.at(along.value / 1000), y.at(one.value)
                aside = width_of(name, LABEL_PX) / 2 + 8
                _label(drawing, name, (x, y), middles=[at - aside, at + aside], level=level, taken=taken)
    return drawing.svg()


def _taken(points: Sequence[tuple[float, Estimate]], y: Axis, scale: float = 1.0) -> list[Box]:
    """Return where markers and upright intervals of a curve are; abscissas are in px, ordinates divided by *scale*."""
    found = []
    for at, one in points:
        level = y.at(one.value / scale)
        low, high = (y.at(end) for end in _ends(one, scale))
        found += [Box(at - 4, level - 4, at + 4, level + 4), Box(at - 2.5, high, at + 2.5, low)]
    return found


def _label(
    drawing: Drawing,
    label: str,
    axes: tuple[Axis, Axis],
    *,
    middles: Sequence[float],
    level: float,
    taken: list[Box],
    colour: str = GREY,
) -> None:
    """Write *label* near *level*, around one of *middles*, where it hides least of what is *taken*, and take that.

    It stands up to four lines above, or up to two below.
    """
    x, y = axes
    half = width_of(label, LABEL_PX) / 2
    inside = [min(max(middle, x.start + half), x.end - half) for middle in middles]
    places = [
        Box(middle - half, bottom - LABEL_PX, middle + half, bottom)
        for lines in (0, -2, 1, -3, 2, 3)
        for middle in inside
        if y.end + LABEL_PX <= (bottom := level - 9 - lines * (LABEL_PX + 2)) <= y.start - 2
    ]
    place = freest(places or [Box(inside[0] - half, level - 9 - LABEL_PX, inside[0] + half, level - 9)], taken)
    taken.append(place)
    drawing.text(
        (place.left + place.right) / 2,
        place.bottom - 2,
        label,
        anchor="middle",
        size=LABEL_PX,
        colour=colour,
        halo=True,
    )


def _look(place: int) -> tuple[str, str]:
    """Return colour and marker of the curve at *place*."""
    return COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]


def size_curve(
    curves: Sequence[Curve],
    caches: Sequence[Mark],
    plateaus: Sequence[Plateau],
    *,
    invalid: str = "",
) -> str:
    """Return latency (ns) against working-set size (bytes), both axes logarithmic.

    *caches* are drawn as vertical lines at the sizes the kernel reports, *plateaus* as bars beside the curve.
    """
    ends = [end for curve in curves for _, up in curve.points for end in _ends(up, 1)]
    return _along_sizes(
        curves,
        caches,
        bounds=(min(ends) / 1.35, max(ends) * 2.6),
        titles=("Working set (bytes the chase touches)", "Latency, ns per load"),
        scale=1,
        size=2.2,
        plateaus=plateaus,
        legend=len(curves) > 1,
        invalid=invalid,
    )


def stride_curve(curves: Sequence[Curve], *, invalid: str = "") -> str:
    """Return latency (ns) against strides (bytes), both axes logarithmic."""
    ends = [end for curve in curves for _, up in curve.points for end in _ends(up, 1)]
    return _along_sizes(
        curves,
        (),
        bounds=(min(ends) / 1.35, max(ends) * 1.35),
        titles=("Stride", "Latency, ns per load"),
        scale=1,
        size=3.0,
        invalid=invalid,
    )


def bandwidth_sizes(curves: Sequence[Curve], caches: Sequence[Mark], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s) against the size of a thread's buffer, both axes logarithmic.

    *caches* are drawn as vertical lines.
    """
    ends = [end for curve in curves for _, up in curve.points for end in _ends(up, 1000)]
    return _along_sizes(
        curves,
        caches,
        bounds=(min(ends) / 1.3, max(ends) * 1.3),
        titles=("Buffer of one thread", "Bandwidth, GB/s (10⁹ program bytes/s)"),
        scale=1000,
        size=3.0,
        invalid=invalid,
    )


def thread_curve(curves: Sequence[Curve], enough: Sequence[Mark], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s) against the number of threads, and below it the share of one thread.

    *enough* are numbers of threads, each drawn as a vertical line in the colour of the curve at the same place.
    """
    counts = sorted(set(_numbers(curves)))
    each_thread: Callable[[float, Estimate], float] = lambda count, up: up.value / 1000 / count  # noqa: E731
    numbered = [[(float(x), up) for x, up in curve.points if not isinstance(x, Estimate)] for curve in curves]
    most = max(end for points in numbered for _, up in points for end in _ends(up, 1000)) * 1.06
    best = max(each_thread(count, up) for points in numbered for count, up in points) * 1.08
    entries = [
        *(Entry(curve.label, *_look(place), DASHES[place % 2]) for place, curve in enumerate(curves)),
        *(Entry(mark.label, _look(place)[0], "", "2 3") for place, mark in enumerate(enough)),
    ]
    drawing, top = _begin(HEIGHT_PX + 100 + LINE_PX * len(entries), invalid)
    top = _legend(drawing, top, entries)
    total = linear_scale(0, most, "All threads, GB/s")
    share = linear_scale(0, best, "One thread, GB/s", 5)
    left = max(beside(total), beside(share))
    readable = _readable_counts(counts)
    bottom = drawing.height - 46
    parting = top + (bottom - top) * 0.6
    x = Axis(counts[0] / 1.15, counts[-1] * 1.15, left, WIDTH_PX - RIGHT_PX, logarithmic=True)
    upper, lower = Axis(0, most, parting - 8, top), Axis(0, best, bottom, parting + 10)
    frame(drawing, x, upper, Scale(readable, lambda _: ""), total)
    frame(drawing, x, lower, Scale(readable, _plain, "Threads"), share)
    for place, mark in enumerate(enough):
        for axis in (upper, lower):
            at = x.at(mark.position)
            drawing.lines([(at, axis.start), (at, axis.end)], _look(place)[0], 0.9, "2 3")
    for place, points in enumerate(numbered):
        _uprights(drawing, [(x.at(count), up) for count, up in points], upper, colour=_look(place)[0], scale=1000)
        dash = DASHES[place % 2]
        _curve(drawing, [(x.at(count), upper.at(up.value / 1000)) for count, up in points], place, dash=dash)
        _curve(drawing, [(x.at(count), lower.at(each_thread(count, up))) for count, up in points], place, dash=dash)
    return drawing.svg()


def course_curve(curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s from 0 on) over time in s; each curve has a label and its points."""
    end_s = max(s for _, points in curves for s, _ in points)
    most = max(value for _, points in curves for _, value in points) / 1000 * 1.06
    entries = [Entry(label, *_look(place)) for place, (label, _) in enumerate(curves)]
    drawing, top = _begin(HEIGHT_PX + LINE_PX * len(entries), invalid)
    top = _legend(drawing, top, entries)
    up = linear_scale(0, most, "GB/s")
    x = Axis(0, end_s, beside(up), WIDTH_PX - RIGHT_PX)
    y = Axis(0, most, drawing.height - 46, top)
    frame(drawing, x, y, linear_scale(0, end_s, "Seconds of load"), up)
    for place, (_, points) in enumerate(curves):
        drawing.lines([(x.at(s), y.at(value / 1000)) for s, value in points], _look(place)[0], 1.4)
    return drawing.svg()


def regulation_curve(curves: Sequence[Curve], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s) against the number of no-ops, one curve per number of threads.

    The axis is linear below ``NOPS_LINEAR`` and logarithmic far above it, so that it has room for 0. That of bandwidth
    follows the estimates, as in a load curve.
    """
    numbers = sorted(set(_numbers(curves)))
    estimates = [up for curve in curves for _, up in curve.points]
    ends = [end for up in estimates for end in _ends(up, 1000)]
    most = _reach([up.value / 1000 for up in estimates], ends)[1] * 1.06
    entries = [Entry(curve.label, *_look(place), DASHES[place // MANY_SERIES]) for place, curve in enumerate(curves)]
    entries += [CUT] if max(ends) > most else []
    drawing, top = _begin(HEIGHT_PX + LINE_PX * -(-len(entries) // 2), invalid)
    top = _legend(drawing, top, entries)
    up = linear_scale(0, most, "Bandwidth, GB/s (10⁹ bytes/s)")
    x = Axis(
        (numbers[0] + NOPS_LINEAR) / 1.1,
        (numbers[-1] + NOPS_LINEAR) * 1.1,
        beside(up),
        WIDTH_PX - RIGHT_PX,
        logarithmic=True,
    )
    round_numbers = [0, *decade_ticks(NOPS_LINEAR, max(numbers[-1], 2 * NOPS_LINEAR), (1, 2, 5))]
    ticks = thinned([each + NOPS_LINEAR for each in round_numbers if numbers[0] <= each <= numbers[-1]], x, 40)
    across = Scale(ticks, lambda place: _plain(place - NOPS_LINEAR), "No-ops after every four cache lines")
    y = Axis(0, most, drawing.height - below(across), top)
    frame(drawing, x, y, across, up)
    for place, curve in enumerate(curves):
        points = [(x.at(float(at) + NOPS_LINEAR), one) for at, one in curve.points if not isinstance(at, Estimate)]
        _uprights(drawing, points, y, colour=_look(place)[0], scale=1000)
        dash = DASHES[place // MANY_SERIES]
        _curve(drawing, [(at, y.at(one.value / 1000)) for at, one in points], place, dash=dash)
    return drawing.svg()


def variation_bars(series: Sequence[tuple[str, Sequence[float]]], *, invalid: str = "") -> str:
    """Return a histogram of coefficients of variation (shares of one), each of *series* a method with its bars.

    The bins are those between ``VARIATION_BINS``; the last one is open.
    """
    names = [f"to {_plain(high * 100)}" for high in VARIATION_BINS] + [f"over {_plain(VARIATION_BINS[-1] * 100)}"]
    counted = [[0] * len(names) for _ in series]
    for place, (_, values) in enumerate(series):
        for value in values:
            counted[place][sum(value > high for high in VARIATION_BINS)] += 1
    most = max((count for line in counted for count in line), default=0)
    up = linear_scale(0, max(most, 1) * 1.08, "Configurations")
    drawing, top = _begin(HEIGHT_PX - 20 + LINE_PX * len(series), invalid)
    top = _swatches(drawing, top, [(drawn(label), _look(place)[0]) for place, (label, _) in enumerate(series)])
    title = "Coefficient of variation over the placements, %"
    across = Scale(range(len(names)), lambda place: names[round(place)], title, turned=True)
    x = Axis(-0.5, len(names) - 0.5, beside(up), WIDTH_PX - RIGHT_PX)
    y = Axis(0, max(most, 1) * 1.08, drawing.height - below(across), top)
    frame(drawing, x, y, across, up)
    width = (x.at(1) - x.at(0)) * 0.8 / max(len(series), 1)
    for place, line in enumerate(counted):
        for index, count in enumerate(line):
            if count:
                left = x.at(index) + (place - len(series) / 2) * width
                drawing.box(left, y.at(count), width, y.start - y.at(count), _look(place)[0])
    return drawing.svg()


def volume_bars(groups: Sequence[tuple[str, Sequence[Sequence[Part]]]], *, invalid: str = "") -> str:
    """Return bars of GB side by side in each of *groups*; the parts of a bar stand on top of each other."""
    colours = {part.label: part.colour for _, bars in groups for bar in bars for part in bar}
    most = max(sum(part.size for part in bar) for _, bars in groups for bar in bars) / 1e9 * 1.1
    up = linear_scale(0, most, "GB (10⁹ bytes)")
    drawing, top = _begin(HEIGHT_PX - 40 + LINE_PX * len(colours), invalid)
    top = _swatches(drawing, top, list(colours.items()))
    across = Scale(range(len(groups)), lambda place: groups[round(place)][0], "Direction")
    x = Axis(-0.5, len(groups) - 0.5, beside(up), WIDTH_PX - RIGHT_PX)
    y = Axis(0, most, drawing.height - below(across), top)
    frame(drawing, x, y, across, up)
    for place, (_, bars) in enumerate(groups):
        width = (x.at(1) - x.at(0)) * 0.84 / max(len(bars), BARS)
        for index, bar in enumerate(bars):
            left = x.at(place) + (index - len(bars) / 2) * width
            height = 0.0
            for part in bar:
                bottom, height = height, height + part.size / 1e9
                level = y.at(height)
                drawing.box(left, level, width - 4, y.at(bottom) - level, part.colour)
            drawing.text(
                left + width / 2 - 2, y.at(height) - 5, filters.fixed(height, 3), anchor="middle", size=12, halo=True
            )
    return drawing.svg()


def _readable_counts(counts: Sequence[float]) -> list[float]:
    """Return those of *counts*, the largest first, whose labels stand free of each other on a logarithmic axis."""
    room = log2(counts[-1] / counts[0]) * COUNT_SHARE
    kept: list[float] = []
    for count in reversed(counts):
        if not kept or log2(kept[-1] / count) >= room:
            kept.append(count)
    return kept[::-1]
