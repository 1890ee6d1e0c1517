# SPDX-License-Identifier: Apache-2.0
"""Small lines beside figures: their course over the last nights, and what is accepted."""

import re
from math import isfinite
from typing import NamedTuple

from calibration.report.charts.base import spanned
from calibration.report.charts.trends import NIGHTS, SMALLEST_SPAN, Panel

WIDTH_PX, HEIGHT_PX = 140, 18
RARE = 50  # of so many figures the farthest on either side does not decide what a line shows, and may end at its edge


class Spark(NamedTuple):
    """A small line: its runs of points, the accepted band (top, height) and the last figure, in px."""

    runs: tuple[str, ...]
    band: tuple[float, float] | None
    last: tuple[float, float] | None


def spark(panel: Panel, nights: int) -> Spark | None:
    """Return the line of the last *nights* of *panel*; ``None`` where fewer than ``NIGHTS`` have a figure."""
    values = panel.values[-nights:].tolist()
    known = sorted(value for value in values if isfinite(value))
    if len(known) < NIGHTS:
        return None
    rare = len(known) // RARE
    ends = [known[rare], known[-1 - rare]]
    ends += [end for end in panel.band if end is not None and abs(end) < 2 * max(map(abs, ends))]
    low, high = spanned(ends, SMALLEST_SPAN)

    def up(value: float) -> float:
        return round(HEIGHT_PX - 1 - min(1.0, max(0.0, (value - low) / (high - low))) * (HEIGHT_PX - 2), 1)

    step = (WIDTH_PX - 4) / (len(values) - 1)
    points = [f"{2 + place * step:.0f},{up(value)}" if isfinite(value) else "" for place, value in enumerate(values)]
    runs = tuple(each.strip() for each in re.split("  +", " ".join(points)) if each.strip())
    band = None
    if panel.band != (None, None):
        bottom, top = (up(edge if end is None else end) for end, edge in zip(panel.band, (low, high), strict=True))
        band = (top, round(bottom - top, 1))
    return Spark(runs, band, (WIDTH_PX - 2, up(values[-1])) if isfinite(values[-1]) else None)
