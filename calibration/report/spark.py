# SPDX-License-Identifier: Apache-2.0
"""Sparklines: a value over the last nights, with the accepted range."""

import re
from math import isfinite
from typing import Final

from calibration.charts.base import spanned
from calibration.charts.trends import MIN_NIGHTS, MIN_RANGE, Numbers
from calibration.judge.words import within
from calibration.report.blocks import Spark

SPARK_PX: Final = (140, 18)
"""Width and height."""

OUTLIERS_PER: Final = 50
"""One outlier per so many values, on either side, is clipped instead of scaling the line."""


def spark(
    series: Numbers, unit: str, bounds: tuple[float | None, float | None], nights: int, *, fails: bool = False
) -> Spark | None:
    """Return the sparkline of the last *nights* of *series*; ``None`` with fewer than ``MIN_NIGHTS`` values.

    Its text are the lowest and the highest value.
    """
    values = series[-nights:].tolist()
    known = sorted(value for value in values if isfinite(value))
    if len(known) < MIN_NIGHTS:
        return None
    width, height = SPARK_PX
    rare = len(known) // OUTLIERS_PER
    ends = [known[rare], known[-1 - rare]]
    size = max(map(abs, ends))
    ends += [end for end in bounds if end is not None and abs(end) < 2 * size]
    low, high = spanned(ends, MIN_RANGE)

    def up(value: float) -> float:
        return round(height - 1 - min(1.0, max(0.0, (value - low) / (high - low))) * (height - 2), 1)

    step = (width - 4) / (len(values) - 1)
    points = [f"{2 + place * step:.0f},{up(value)}" if isfinite(value) else "" for place, value in enumerate(values)]
    runs = tuple(part.strip() for part in re.split("  +", " ".join(points)) if part.strip())
    band = None
    if bounds != (None, None):
        bottom, top = (up(edge if end is None else end) for end, edge in zip(bounds, (low, high), strict=True))
        band = (top, round(bottom - top, 1))
    last = (width - 2, up(values[-1])) if isfinite(values[-1]) else None
    return Spark(within(known[0], known[-1], unit), runs, band, last, fails)
