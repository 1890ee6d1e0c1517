# SPDX-License-Identifier: Apache-2.0
"""Who interrupted a CPU: the longest interruptions on a time line, and the lost time by cause."""

from collections.abc import Iterable, Sequence
from math import log
from typing import Any, Final, NamedTuple

from calibration.base import units
from calibration.charts import base
from calibration.charts.alternative import alternative
from calibration.charts.base import HALF, Chart, Frame, Json, Measured, Scale, rounded

BLUE, RED, GREEN, PINK, AMBER, SKY = base.COLOURS
MARKS: Final = {
    "local timer": (BLUE, "circle"),
    "device interrupt": (RED, "square"),
    "other interrupt": (SKY, "triangle-up"),
    "softirq": (GREEN, "diamond"),
    "thread": (PINK, "triangle-down"),
    "kernel entry": (base.MUTED, "stroke"),
    "firmware": (AMBER, "cross"),
    "hypervisor": (AMBER, "cross"),
    "unknown": (base.AXIS, "triangle-right"),
}
"""Colour and shape of each cause in both charts; either firmware or a hypervisor takes time, never both."""

MIN_SEEN: Final = 0.01  # share of a bar; smaller ones are only in the table
MIN_LANE: Final = 44  # px of a CPU's lane
LANES: Final = 150  # px of all lanes, if few
LABELS: Final = ((0, -13), (0.5, -6), (-0.5, -6), (0.5, 8), (-0.5, 8), (0, 14))  # around a mark


class Spot(NamedTuple):
    """An interruption of a CPU: when (s), for how long (ns), by what, and in words."""

    cpu: int
    at_s: float
    length_ns: float
    cause: str
    words: str


class Bar(NamedTuple):
    """What took the time of one or many CPUs: its label, and causes with their shares."""

    label: str
    parts: Sequence[tuple[str, float]]


def _by_cause(frame: Frame, place: int) -> Json:
    """Return the channel of the colours (*place* 0) or shapes (1) of the causes."""
    columns, _ = frame.columns
    scale = {"domain": list(frame.legend), "range": [MARKS[cause][place] for cause in frame.legend]}
    return {"field": "s", "type": "nominal", "scale": scale, "legend": {"columns": columns} if columns else None}


def _legend(causes: Iterable[str]) -> list[str]:
    found = set(causes)
    return [cause for cause in MARKS if cause in found]


def _seen(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return *parts* without those that are too small to be seen."""
    whole = sum(share for _, share in parts)
    return [(cause, share) for cause, share in parts if share >= MIN_SEEN * whole]


def time_line(
    name: str, measurements: Sequence[Measured[Any]], spots: Sequence[Spot], watched_s: float, *, traced: bool
) -> Chart:
    """Return the interruptions *spots* over the time of the watch, with a lane for each CPU that has any.

    *traced* says that they are those of the time in which the kernel was traced.
    """
    lanes = sorted({spot.cpu for spot in spots})
    frame = Frame(
        HALF,
        base.TOP + base.BOTTOM + len(lanes) * max(MIN_LANE, LANES // len(lanes)),
        legend=_legend(spot.cause for spot in spots),
        measurements=measurements,
    )
    across = Scale(0.0, watched_s, frame.plot[0])
    down = Scale(0.0, float(len(lanes)), frame.plot[1])
    lengths = [spot.length_ns for spot in spots]
    span = log(max(lengths) / min(lengths)) or 1.0

    def top(spot: Spot) -> float:
        return lanes.index(spot.cpu) + 0.8 - 0.45 * log(spot.length_ns / min(lengths)) / span

    rows: list[Json] = [
        {
            "x": rounded(spot.at_s),
            "y": rounded(top(spot)),
            "y2": lanes.index(spot.cpu) + 1,
            "s": spot.cause,
            "c": spot.cpu,
            "t": units.time_ns(spot.length_ns),
            "w": spot.words,
        }
        for spot in spots
    ]
    x = across.channel("x", "Time since the watch began, s", ticks=5, grid=False)
    y = down.channel("y", "CPU", ticks=[lane + 0.5 for lane in range(len(lanes))], grid=False)
    y["axis"] |= {"labelExpr": f"{lanes}[floor(datum.value)]", "ticks": False}
    y["scale"] |= {"reverse": True}
    colour, shape = (_by_cause(frame, place) for place in (0, 1))
    tooltip = base.tips(c="CPU", t="length", x="at, s", w="by")
    edges = [{"y": lane} for lane in range(1, len(lanes) + 1)]
    layers = [
        base.mark("rule", {"y": base.number("y")}, edges, color=base.GRID),
        base.mark("rule", {"x": x, **base.stretch("y", y, "y", "y2"), "color": colour}, strokeWidth=1.5),
        base.mark(
            "point",
            {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
            filled=True,
            size=70,
            opacity=1,
        ),
        base.labels(
            [(row["x"], row["y"], row["t"]) for row in sorted(rows, key=lambda row: row["y"] % 1)],
            [(row["x"], row["y"]) for row in rows],
            (across, down),
            LABELS,
        ),
    ]
    listed = (
        f"{units.time_ns(spot.length_ns)} at {spot.at_s:.2f} s on CPU {spot.cpu}, {base.label(spot.words)}"
        for spot in spots
    )
    when = f" in {units.duration(watched_s)} of tracing" * traced
    alt = alternative(f"The {units.plural(len(spots), 'longest interruption')}{when}", listed)
    caption = (
        f"The longest interruptions{when}: when, on which CPU, and by what. A higher mark is a longer interruption."
    )
    return Chart(name, frame.spec(layers, rows), alt, caption)


def lost_time(name: str, measurements: Sequence[Measured[Any]], bars: Sequence[Bar]) -> Chart:
    """Return the share of the time that each cause took, as one bar per CPU."""
    bars = [bar._replace(parts=_seen(bar.parts)) for bar in bars]
    totals = [units.percent(sum(share for _, share in bar.parts)) for bar in bars]
    left = 18 + int(6.4 * max(len(bar.label) for bar in bars))
    legend = _legend(cause for bar in bars for cause, _ in bar.parts)
    frame = Frame(
        HALF,
        base.TOP + base.BOTTOM + 40 * len(bars),
        legend=legend,
        measurements=measurements,
        left=left,
        right=16 + int(6.4 * max(map(len, totals))),
    )
    rows: list[Json] = []
    ends: list[Json] = []
    for bar, total in zip(bars, totals, strict=True):
        end = 0.0
        for cause, share in sorted(bar.parts, key=lambda part: legend.index(part[0])):
            row = {"g": bar.label, "s": cause, "l": rounded(100 * end), "h": rounded(100 * (end + share))}
            rows.append(row | {"t": units.percent(share)})
            end += share
        ends.append({"g": bar.label, "h": rounded(100 * end), "t": total})
    x = Scale(0.0, max(row["h"] for row in ends), frame.plot[0]).channel("h", "Share of CPU time lost, %", ticks=3)
    y = base.named_rows("g", [bar.label for bar in bars], paddingInner=0.35, paddingOuter=0.15)
    tooltip = base.tips(g="on", s="cause", t="lost")
    layers = [
        base.mark("bar", {"y": y, **base.stretch("x", x), "color": _by_cause(frame, 0), "tooltip": tooltip}),
        base.mark("text", {"y": y, "x": {**x, "field": "h"}, "text": {"field": "t"}}, ends, align="left", dx=6),
    ]
    listed = (
        f"{bar.label} {', '.join(f'{cause} {units.percent(share)}' for cause, share in bar.parts)}" for bar in bars
    )
    alt = alternative("Share of CPU time lost by cause", listed)
    return Chart(name, frame.spec(layers, rows), alt, "Lost time by cause.")
