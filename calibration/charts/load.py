# SPDX-License-Identifier: Apache-2.0
"""Latency under load, against delivered bandwidth."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from calibration.base import units
from calibration.charts import base, curves
from calibration.charts.alternative import alternative
from calibration.charts.base import HALF, Chart, Frame, Measured, Scale, rounded
from calibration.charts.curves import Curves

PROBE = "Latency of the probe"
KNEE = 0.9  # share of the peak at which latencies are compared: beyond it curves are too steep to agree
MIN_CURVES_RANKED = (
    6  # from this many curves on only the worst and the middle one have colours: a machine of 16 nodes has 16
)


def latency_chart(
    name: str,
    measurements: Sequence[Measured[Any]],
    found: Curves,
    what: str,
    caption: str,
    *,
    unloaded: Sequence[float] = (),
    knee_mb_s: float | None = None,
    width: int = HALF,
) -> Chart:
    """Return *what* (ns) against bandwidth (MB/s), with the *unloaded* latency (ns) if known.

    A ring marks the point of each curve nearest *knee_mb_s*, by default ``KNEE`` of the highest bandwidth.
    """
    points = list(curves.rows(found, x_scale=1e3))
    peak = max(row["x"] for row in points)
    knee = KNEE * peak if knee_mb_s is None else knee_mb_s / 1e3
    ranked = sorted(points, key=lambda row: abs(row["x"] - knee), reverse=True)
    knees = {row["s"]: row for row in ranked}  # the last of each curve is the nearest
    coloured = {label: label for label in found}
    if len(found) > MIN_CURVES_RANKED:
        slower = sorted(found, key=lambda label: knees[label]["y"])
        coloured = {slower[-1]: f"worst: {slower[-1]}", slower[len(slower) // 2]: "median"}
    rows = [{**row, "s": coloured[row["s"]]} for row in points if row["s"] in coloured]
    names = list(coloured.values())
    frame = Frame(base.fitting(width, names), legend=names, measurements=measurements)
    _, top = base.reach([*(row["y"] for row in points), *unloaded], [row["h"] for row in rows])
    widest = max(row.get("b", peak) for row in rows)
    across = Scale(0.0, max(peak * 1.06, min(widest * 1.02, peak * 1.25)), frame.plot[0])
    up = Scale(0.0, top * 1.12, frame.plot[1], up=True)
    x = across.channel("x", "Bandwidth of the load, GB/s", ticks=max(4, width // 100), grid=False)
    y = up.channel("y", f"{what}, ns")
    place = {"x": base.number("x"), "y": base.number("y")}
    grey = {**place, "detail": {"field": "s"}, "order": None}
    placed: list[tuple[float, float, float]] = []
    note = partial(base.text, color=base.MUTED, fontSize=11)
    tooltip = {"s": "Probe", "x": "GB/s", "y": f"{what}, ns", "l": "from", "h": "to"}
    rings = [{"x": knees[label]["x"], "y": knees[label]["y"]} for label in coloured]
    ring = max(rings, key=lambda ring: ring["y"])
    text = f"{base.shown(ring['y'], 'ns')} at {base.shown(ring['x'], 'GB/s')}"
    taken = [(row["x"], row["y"]) for row in rows] + [(peak, up.high * share / 20) for share in range(21)]
    taken += [
        (x + (u - x) * part / 8, y + (v - y) * part / 8) for (x, y), (u, v) in pairwise(taken) for part in range(1, 8)
    ]
    best = base.shown(peak, "GB/s")
    notes = [{"x": 0.0, "y": rounded(value), "text": "no load"} for value in unloaded]
    colour = frame.series(base.COLOURS)
    layers = [
        base.mark("line", grey, [row for row in points if row["s"] not in coloured], color=base.MUTED, opacity=0.35),
        base.rules("x", [peak]),
        base.rules("y", unloaded),
        *curves.layers(frame, (x, y), tooltip=tooltip, bars="xy"),
        base.mark("point", place, rings, size=170, strokeWidth=2, color=base.COLOURS[1]),
        base.labels([(ring["x"], ring["y"], text)], taken, (across, up), base.AROUND, placed, fontWeight="bold"),
        *base.cuts(rows, (across, up), colour, taken, placed),
        note([{"x": peak, "y": up.low, "text": f"full load {best}"}], align="right", baseline="bottom", dx=-6, dy=-3),
        note(notes, align="left", baseline="top", dx=6, dy=5),
    ]
    text += f", which is {units.percent(ring['x'] / peak, 2)} of {best} at full load"
    ends = curves.range_of(points, partial(base.shown, unit="GB/s"), partial(base.shown, unit="ns"))
    alt = alternative(f"{what} against the bandwidth of the load", [text, ends])
    return Chart(name, frame.spec(layers, rows), alt, caption)
