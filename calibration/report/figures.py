# SPDX-License-Identifier: Apache-2.0
"""Figures as SVG text: the same input gives the same bytes, on a white ground that works in light and dark themes.

Every figure is drawn for a width of 480 px, where its text is 13 px high: on a telephone it shrinks to three quarters
and stays legible. Text stays text, so that it can be searched and selected. Colours are those of Okabe and Ito, told
apart by all kinds of colour vision; series also differ by marker or line.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from math import ceil, floor, log2, log10
from pathlib import Path
from typing import Any

from calibration.report import filters
from calibration.statistics import Estimate

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "matplotlib"
"""Where matplotlib keeps its list of fonts, unless the user says otherwise: never in the home directory."""

os.environ.setdefault("MPLCONFIGDIR", str(CACHE))

import matplotlib as mpl  # noqa: E402 - reads where its cache is when it is imported
from matplotlib.axes import Axes  # noqa: E402 - the same for all of it
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import (  # noqa: E402
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#555555"
INVALID_COLOUR = "#B00020"

WIDTH_PX = 480
HEIGHT_PX = 360
PX = 1 / 96
"""One CSS pixel in inches."""

PT = 0.75
"""One CSS pixel in points."""

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

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "calibration",
    "svg.image_inline": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 13 * PT,
    "axes.titlesize": 13 * PT,
    "axes.labelsize": 13 * PT,
    "xtick.labelsize": 12.5 * PT,
    "ytick.labelsize": 12.5 * PT,
    "legend.fontsize": 12.5 * PT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Histogram:
    """One step line of a histogram: bins (from ns, to ns, count), and how long was watched."""

    label: str
    bins: tuple[tuple[float, float, int], ...]
    wall_s: float
    longest_ns: float


@dataclass(frozen=True)
class Curve:
    """One line of a chart with its estimates; ``x`` is a number or an estimate itself."""

    label: str
    points: tuple[tuple[float | Estimate, Estimate], ...]


@dataclass(frozen=True)
class Clocks:
    """The clocks of cores under one kind of work; series of one ``group`` share a colour."""

    label: str
    group: int
    filled: bool
    points: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True)
class Mark:
    """A labelled position on an axis."""

    position: float
    label: str


@dataclass(frozen=True)
class Plateau:
    """A stretch of an axis over which a curve is level."""

    start: float
    end: float
    value: float
    label: str


@contextmanager
def _style() -> Iterator[None]:
    """Draw with the project's settings alone, whatever the user's own matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def _svg(figure: Figure) -> str:
    out = StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _canvas(width_px: float = WIDTH_PX, height_px: float = HEIGHT_PX) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width_px * PX, height_px * PX), layout="constrained")
    return figure, figure.add_subplot()


def _mark_invalid(figure: Figure, invalid: str) -> None:
    if invalid:
        figure.suptitle(f"INVALID: {invalid}", color=INVALID_COLOUR, fontweight="bold", fontsize=13 * PT)


def _time_axis(value: float, _position: object = None) -> str:
    return filters.time_ns(value)


def _size_axis(value: float, _position: object = None) -> str:
    return filters.size(round(value))


def _plain(value: float, _position: object = None) -> str:
    return f"{value:g}"


def histogram(series: Sequence[Histogram], threshold_ns: float, *, invalid: str = "") -> str:
    """Return a histogram of gap lengths, log-log, with one step line per CPU.

    With more series than colours, the six with the longest gaps keep a colour and the rest are grey. Raises
    ``ValueError`` where there is no series.
    """
    if not series:
        raise ValueError("expected at least one series, found none")
    ranked = sorted(range(len(series)), key=lambda index: (-series[index].longest_ns, index))
    coloured = sorted(ranked[:MANY_SERIES])
    with _style():
        figure, axes = _canvas(height_px=HEIGHT_PX + 20 * -(-len(coloured) // 2))
        for index, each in enumerate(series):
            edges = [each.bins[0][0], *(upper for _, upper, _ in each.bins)] if each.bins else []
            counts = [count or None for _, _, count in each.bins]
            if not edges:
                continue
            if index in coloured:
                place = coloured.index(index)
                axes.stairs(
                    [0.0 if count is None else count for count in counts],
                    edges,
                    color=COLOURS[place],
                    linewidth=1.6,
                    linestyle=("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))[place],
                    label=each.label,
                    baseline=0.5,
                )
            else:
                axes.stairs([0.0 if count is None else count for count in counts], edges, color="#BBBBBB", baseline=0.5)
        axes.set_xscale("log")
        axes.set_yscale("log")
        filled = [(low, high, count) for each in series for low, high, count in each.bins if count]
        most = max((count for _, _, count in filled), default=1)
        longest = max((each.longest_ns for each in series), default=threshold_ns)
        axes.set_xlim(min([threshold_ns, *(low for low, _, _ in filled)]) / 1.25, max(longest, threshold_ns) * 1.8)
        axes.set_ylim(0.5, most * 3)
        axes.xaxis.set_major_locator(LogLocator(10))
        axes.xaxis.set_major_formatter(FuncFormatter(_time_axis))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(LogLocator(10))
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.axvline(threshold_ns, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_xlabel("Length of the gap (bins of equal ratio)")
        walls = {filters.duration(each.wall_s) for each in series}
        axes.set_ylabel(f"Gaps counted in {walls.pop()}" if len(walls) == 1 else "Gaps counted")
        figure.legend(loc="outside upper left", ncols=min(2, len(coloured)), handlelength=2.2, columnspacing=1.0)
        _mark_invalid(figure, invalid)
        return _svg(figure)


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

    *what* names the values; they are divided by *scale* to be in *unit*. A cell without a value is hatched.
    """
    values = [[None if cell is None else cell.value / scale for cell in row] for row in cells]
    known = [value for row in values for value in row if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    with _style():
        colours = mpl.colormaps["cividis"]
        width, height = heat_map_px(len(rows), len(columns), invalid=bool(invalid))
        figure = Figure(figsize=(width * PX, height * PX))
        left, bottom, top = HEAT_LEFT, 6, height - 6 - len(rows) * _cell_height(len(rows), len(columns))
        axes = figure.add_axes(
            (left / width, bottom / height, len(columns) * CELL_PX / width, (height - bottom - top) / height)
        )
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                estimate = cells[row][column]
                if value is None or estimate is None:
                    patch = mpl.patches.Rectangle(
                        (column, row), 1, 1, facecolor="#F2F2F2", edgecolor="#999999", hatch="//", linewidth=0.5
                    )
                    axes.add_patch(patch)
                    axes.text(column + 0.5, row + 0.5, filters.ABSENT, ha="center", va="center")
                    continue
                share = 0.5 if high == low else (value - low) / (high - low)
                shade = colours(0.12 + 0.83 * share)
                axes.add_patch(mpl.patches.Rectangle((column, row), 1, 1, facecolor=shade, edgecolor="white"))
                ink = "black" if _luminance(shade) > EVEN_LUMINANCE else "white"
                bounds = estimate.interval if len(columns) <= INTERVAL_CELLS else None
                axes.text(
                    column + 0.5,
                    row + (0.38 if bounds else 0.5),
                    filters.significant(value),
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=13 * PT,
                )
                if bounds:
                    half = (bounds[1] - bounds[0]) / 2 / scale
                    axes.text(
                        column + 0.5,
                        row + 0.72,
                        f"± {filters.significant(half, 2)}",
                        ha="center",
                        va="center",
                        color=ink,
                        fontsize=10.5 * PT,
                    )
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(rows), 0)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xticks([index + 0.5 for index in range(len(columns))], [str(node) for node in columns])
        axes.set_yticks([index + 0.5 for index in range(len(rows))], [str(node) for node in rows])
        axes.tick_params(length=0)
        figure.text(HEAT_LEFT / width, 1 - (top - 44) / height, f"{what}, {unit}", va="center", fontweight="bold")
        figure.text(HEAT_LEFT / width, 1 - (top - 26) / height, "memory of node", va="center", fontsize=12 * PT)
        figure.text(
            15 / width,
            (bottom + (height - bottom - top) / 2) / height,
            "CPUs of\nnode" if len(rows) < 2 else "CPUs of node",
            rotation=90,
            ha="center",
            va="center",
            fontsize=12 * PT,
        )
        if invalid:
            figure.text(
                8 / width, 1 - 12 / height, f"INVALID: {invalid}", color=INVALID_COLOUR, fontweight="bold", va="center"
            )
        return _svg(figure)


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
    with _style():
        figure, axes = _canvas(height_px=WIDTH_PX - 10 + (24 if invalid else 0))
        axes.grid(visible=False)
        colours = mpl.colormaps["cividis"].with_extremes(bad="#E4E4E4")
        shades = [[float("nan") if cell is None else cell for cell in row] for row in cells]
        image = axes.imshow(shades, cmap=colours, interpolation="nearest", aspect="equal")
        step = -(-count // LABELLED_CPUS)
        ticks = range(0, count, step)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xticks(list(ticks), [str(cpus[each]) for each in ticks])
        axes.set_yticks(list(ticks), [str(cpus[each]) for each in ticks])
        if count > LABELLED_CPUS // 2:
            axes.tick_params(axis="x", labelrotation=90)
        axes.tick_params(length=0)
        axes.set_xlabel("reader, CPU")
        axes.set_ylabel("writer, CPU")
        for edge in (each for each in range(1, count) if nodes[each] != nodes[each - 1]):
            axes.axhline(edge - 0.5, color="white", linewidth=1.5)
            axes.axvline(edge - 0.5, color="white", linewidth=1.5)
        known = [cell for row in cells for cell in row if cell is not None]
        low, high = min(known, default=0.0), max(known, default=1.0)
        for row, line in enumerate(cells if count <= NUMBERED_CPUS else ()):
            for column, cell in enumerate(line):
                share = 0.5 if cell is None or high == low else (cell - low) / (high - low)
                ink = "black" if cell is None or _luminance(colours(share)) > EVEN_LUMINANCE else "white"
                text = filters.ABSENT if cell is None else filters.significant(cell, 3)
                axes.text(column, row, text, ha="center", va="center", color=ink)
        figure.colorbar(image, ax=axes, label=f"{what}, ns", shrink=0.8)
        _mark_invalid(figure, invalid)
        return _svg(figure)


NUMBERED_CPUS = 8
"""Up to this many columns of a core map the cells have room for their numbers."""

LABELLED_CPUS = 24
"""So many CPUs have room for their labels beside a core map."""


def heat_map_px(rows: int, columns: int, *, invalid: bool = False) -> tuple[int, int]:
    """Return the width and height in px of a heat map."""
    height = HEAT_TOP + (24 if invalid else 0) + rows * _cell_height(rows, columns) + 6
    return max(HEAT_LEFT + columns * CELL_PX + 6, HEAT_LEFT + 180), height


def clocks(series: Sequence[Clocks], *, invalid: str = "") -> str:
    """Return the clock of each CPU (GHz against its number), series side by side. The ordinate does not begin at 0."""
    cpus = sorted({cpu for each in series for cpu, _ in each.points})
    places = {cpu: place for place, cpu in enumerate(cpus)}
    few = len(cpus) <= CLOCKS_APART
    with _style():
        figure, axes = _canvas(height_px=HEIGHT_PX - 60 + 20 * -(-len(series) // 2))
        for index, each in enumerate(series):
            aside = (index - (len(series) - 1) / 2) * (0.7 / len(series)) if few else 0.0
            found = [estimate for _, estimate in each.points]
            colour = COLOURS[each.group % len(COLOURS)]
            axes.errorbar(
                [places[cpu] + aside for cpu, _ in each.points],
                [estimate.value / 1e9 for estimate in found],
                yerr=_errors(found, 1e9),
                color=colour,
                markerfacecolor=colour if each.filled else "white",
                marker=MARKERS[each.group % len(MARKERS)],
                linestyle="none",
                capsize=2.5 if few else 0,
                elinewidth=0.9,
                label=each.label,
            )
        ends = [end / 1e9 for each in series for _, one in each.points for end in one.interval or (one.value,)]
        room = max(0.05 * (max(ends) - min(ends)), 0.02 * max(ends))
        axes.set_ylim(min(ends) - room, max(ends) + room)
        axes.set_xlim(-0.6, len(cpus) - 0.4)
        step = max(1, ceil(len(cpus) / 12))
        axes.set_xticks(range(0, len(cpus), step), [str(cpu) for cpu in cpus[::step]])
        axes.set_xlabel("CPU")
        axes.set_ylabel("Core clock, GHz")
        figure.legend(loc="outside upper left", ncols=2, handlelength=1.2, columnspacing=1.0)
        _mark_invalid(figure, invalid)
        return _svg(figure)


def _cell_height(rows: int, columns: int) -> int:
    if rows == 1:  # the label of the rows needs this much
        return 62
    return 44 if columns <= INTERVAL_CELLS else 30


def _luminance(colour: tuple[float, float, float, float]) -> float:
    """Return the relative luminance of a colour as WCAG 2 defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


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


def _errors(points: Sequence[Estimate], scale: float = 1.0) -> list[list[float]]:
    low = [0.0 if each.interval is None else (each.value - each.interval[0]) / scale for each in points]
    high = [0.0 if each.interval is None else (each.interval[1] - each.value) / scale for each in points]
    return [low, high]


def _sizes_axis(axes: Axes, sizes: Sequence[float], caches: Sequence[Mark]) -> None:
    """Make x a logarithmic axis of *sizes* in bytes, with *caches* as labelled vertical lines."""
    low, high = min(sizes), max(sizes)
    axes.set_xscale("log", base=2)
    axes.set_xlim(low / 1.3, high * 1.6)
    exponents = range(ceil(log2(low)), floor(log2(high)) + 1)
    step = max(1, -(-len(exponents) // 7))
    axes.xaxis.set_major_locator(FixedLocator([2.0**each for each in exponents if each % step == 0]))
    axes.xaxis.set_major_formatter(FuncFormatter(_size_axis))
    axes.xaxis.set_minor_locator(NullLocator())
    for label in axes.get_xticklabels():
        label.set(rotation=35, ha="right", rotation_mode="anchor")
    for mark, tier in zip(caches, _tiers([mark.position for mark in caches], low / 1.3, high * 1.6), strict=True):
        axes.axvline(mark.position, color=GREY, linewidth=0.9, linestyle="--")
        axes.annotate(
            mark.label,
            (mark.position, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2 + 24 * tier),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=11.5 * PT,
            color=GREY,
        )


def load_curve(
    curves: Sequence[Curve],
    labels: Sequence[Sequence[str]],
    zero_load: Sequence[Mark],
    *,
    invalid: str = "",
) -> str:
    """Return latency (ns) against bandwidth (x in MB/s, drawn in GB/s), with the intervals of both.

    *labels* names points of each curve where it is not empty; *zero_load* are latencies without load.
    """
    with _style():
        figure, axes = _canvas(height_px=HEIGHT_PX + 20 * -(-(len(curves) + len(zero_load)) // 2))
        for place, (curve, names) in enumerate(zip(curves, labels, strict=True)):
            across = [each for each, _ in curve.points if isinstance(each, Estimate)]
            up = [each for _, each in curve.points]
            axes.errorbar(
                [each.value / 1000 for each in across],
                [each.value for each in up],
                xerr=_errors(across, 1000),
                yerr=_errors(up),
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                capsize=2.5,
                elinewidth=0.9,
                label=curve.label,
            )
            widest = max((each.value for each in across), default=0.0)
            for name, x, y in zip(names, across, up, strict=True):
                if name:
                    left = x.value > widest / 2
                    axes.annotate(
                        name,
                        (x.value / 1000, y.value),
                        xytext=(-7, 3) if left else (2, -5),
                        textcoords="offset points",
                        ha="right" if left else "left",
                        va="bottom" if left else "top",
                        fontsize=11.5 * PT,
                        color=GREY,
                    )
        for place, mark in enumerate(zero_load):
            axes.axhline(
                mark.position, color=COLOURS[place % len(COLOURS)], linewidth=0.9, linestyle=":", label=mark.label
            )
        reach = [
            end
            for curve in curves
            for each, _ in curve.points
            if isinstance(each, Estimate)
            for end in each.interval or (each.value,)
        ]
        axes.set_xlim(0, max(reach, default=1000.0) / 1000 * 1.04)
        ends = [
            *(end for curve in curves for _, each in curve.points for end in each.interval or (each.value,)),
            *(mark.position for mark in zero_load),
        ]
        axes.set_ylim(min(ends) * 0.9, max(ends) * 1.05)
        axes.set_xlabel("Bandwidth of the load, GB/s (10⁹ bytes/s)")
        axes.set_ylabel("Latency of the probe, ns")
        handles, names_shown = axes.get_legend_handles_labels()
        order = [*range(len(zero_load), len(handles)), *range(len(zero_load))]
        figure.legend(
            [handles[each] for each in order], [names_shown[each] for each in order], loc="outside upper left", ncols=2
        )
        _mark_invalid(figure, invalid)
        return _svg(figure)


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
    with _style():
        figure, axes = _canvas(height_px=HEIGHT_PX + 30)
        for place, curve in enumerate(curves):
            up = [each for _, each in curve.points]
            axes.errorbar(
                [float(each) for each, _ in curve.points if not isinstance(each, Estimate)],
                [each.value for each in up],
                yerr=_errors(up),
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                markersize=3,
                capsize=2,
                elinewidth=0.8,
                label=curve.label,
            )
        axes.set_yscale("log")
        sizes = [float(x) for curve in curves for x, _ in curve.points if not isinstance(x, Estimate)]
        spread = [each for curve in curves for _, each in curve.points]
        floor_ns = min(each.value if each.interval is None else each.interval[0] for each in spread)
        ceiling_ns = max(each.value if each.interval is None else each.interval[1] for each in spread)
        axes.set_ylim(floor_ns / 1.35, ceiling_ns * 2.6)
        decades = range(floor(log10(floor_ns / 1.35)), ceil(log10(ceiling_ns * 2.6)) + 1)
        axes.yaxis.set_major_locator(FixedLocator([step * 10.0**each for each in decades for step in (1, 2, 5)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        _sizes_axis(axes, sizes, caches)
        for plateau in plateaus:
            axes.plot(
                [plateau.start, plateau.end],
                [plateau.value] * 2,
                color=COLOURS[1],
                linewidth=5,
                alpha=0.35,
                solid_capstyle="butt",
            )
            axes.annotate(
                plateau.label,
                ((plateau.start * plateau.end) ** 0.5, plateau.value),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=12 * PT,
                color="#A04000",
                bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.5},
                zorder=5,
            )
        axes.set_xlabel("Working set (bytes the chase touches)")
        axes.set_ylabel("Latency, ns per load")
        if len(curves) > 1:
            axes.legend(loc="lower right")
        _mark_invalid(figure, invalid)
        return _svg(figure)


def bandwidth_sizes(curves: Sequence[Curve], caches: Sequence[Mark], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s) against the size of a thread's buffer, both axes logarithmic.

    *caches* are drawn as vertical lines.
    """
    with _style():
        figure, axes = _canvas(height_px=HEIGHT_PX + 30)
        for place, curve in enumerate(curves):
            up = [each for _, each in curve.points]
            axes.errorbar(
                [float(each) for each, _ in curve.points if not isinstance(each, Estimate)],
                [each.value / 1000 for each in up],
                yerr=_errors(up, 1000),
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                capsize=2,
                elinewidth=0.8,
                label=curve.label,
            )
        axes.set_yscale("log")
        sizes = [float(x) for curve in curves for x, _ in curve.points if not isinstance(x, Estimate)]
        ends = [end / 1000 for curve in curves for _, each in curve.points for end in each.interval or (each.value,)]
        low, high = min(ends) / 1.3, max(ends) * 1.3
        axes.set_ylim(low, high)
        decades = range(floor(log10(low)), ceil(log10(high)) + 1)
        axes.yaxis.set_major_locator(FixedLocator([step * 10.0**each for each in decades for step in (1, 2, 5)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        _sizes_axis(axes, sizes, caches)
        axes.set_xlabel("Buffer of one thread")
        axes.set_ylabel("Bandwidth, GB/s (10⁹ program bytes/s)")
        axes.legend(loc="lower left")
        _mark_invalid(figure, invalid)
        return _svg(figure)


def thread_curve(curves: Sequence[Curve], enough: Sequence[Mark], *, invalid: str = "") -> str:
    """Return bandwidth (MB/s, drawn in GB/s) against the number of threads, and below it the share of one thread.

    *enough* are numbers of threads, each drawn as a vertical line in the colour of the curve at the same place.
    """
    with _style():
        figure = Figure(figsize=(WIDTH_PX * PX, (HEIGHT_PX + 120) * PX), layout="constrained")
        total, share = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        counts = sorted({float(x) for curve in curves for x, _ in curve.points if not isinstance(x, Estimate)})
        for place, curve in enumerate(curves):
            across = [float(each) for each, _ in curve.points if not isinstance(each, Estimate)]
            up = [each for _, each in curve.points]
            look: Any = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
            total.errorbar(
                across,
                [each.value / 1000 for each in up],
                yerr=_errors(up, 1000),
                capsize=2.5,
                elinewidth=0.9,
                label=curve.label,
                linestyle=("-", "--")[place % 2],
                **look,
            )
            share.plot(
                across,
                [each.value / 1000 / count for count, each in zip(across, up, strict=True)],
                linestyle=("-", "--")[place % 2],
                **look,
            )
        for place, mark in enumerate(enough):
            for axes in (total, share):
                axes.axvline(
                    mark.position,
                    color=COLOURS[place % len(COLOURS)],
                    linewidth=0.9,
                    linestyle=":",
                    label=mark.label if axes is total else None,
                )
        share.set_xscale("log", base=2)
        share.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
        share.xaxis.set_major_locator(FixedLocator(_readable_counts(counts)))
        share.xaxis.set_major_formatter(FuncFormatter(_plain))
        share.xaxis.set_minor_locator(NullLocator())
        for axes in (total, share):
            axes.set_ylim(bottom=0)
        total.set_ylabel("All threads, GB/s")
        share.set_ylabel("One thread, GB/s")
        share.set_xlabel("Threads")
        handles, names = total.get_legend_handles_labels()
        order = [*range(len(enough), len(handles)), *range(len(enough))]
        figure.legend([handles[each] for each in order], [names[each] for each in order], loc="outside upper left")
        _mark_invalid(figure, invalid)
        return _svg(figure)


def _readable_counts(counts: Sequence[float]) -> list[float]:
    """Return those of *counts*, the largest first, whose labels stand free of each other on a logarithmic axis."""
    room = log2(counts[-1] / counts[0]) * COUNT_SHARE
    kept: list[float] = []
    for count in reversed(counts):
        if not kept or log2(kept[-1] / count) >= room:
            kept.append(count)
    return kept[::-1]
