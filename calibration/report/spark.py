# SPDX-License-Identifier: Apache-2.0
"""Small lines beside figures: their course over the last nights, and what is accepted."""

import re
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from calibration.report.charts.base import spanned
from calibration.report.charts.trends import NIGHTS, SMALLEST_SPAN, Numbers, Panel

SPARK_PX: Final = (140, 18)
"""Width and height of a line."""

TELLING: Final = (2.0, 98.0)
"""Percentiles between which figures decide what a line shows; the few beyond end at its edge."""


class Spark(NamedTuple):
    """A small line: its runs of points, the accepted band (top, height) and the last figure, in px of ``SPARK_PX``."""

    runs: tuple[str, ...]
    band: tuple[float, float] | None
    last: tuple[float, float] | None


def spark(panel: Panel, nights: int) -> Spark | None:
    """Return the line of the last *nights* of *panel*; ``None`` where fewer than ``NIGHTS`` have a figure."""
    panel = replace(panel, values=panel.values[-nights:])
    known = np.isfinite(panel.values)
    if known.sum() < NIGHTS:
        return None
    width, height = SPARK_PX
    ends = [float(each) for each in np.percentile(panel.values[known], TELLING)]
    size = max(map(abs, ends))
    ends += [end for end in panel.band or () if end is not None and abs(end) < 2 * size]
    low, high = spanned(ends, SMALLEST_SPAN)
    across = np.linspace(2.0, width - 2.0, len(known))
    up = _up(panel.values, low, high, height)
    points = [f"{x:.0f},{y:.1f}" if here else "" for x, y, here in zip(across, up, known, strict=True)]
    runs = tuple(each.strip() for each in re.split("  +", " ".join(points)) if each.strip())
    band = None
    if panel.band is not None and panel.band != (None, None):
        edges = [high if panel.band[1] is None else panel.band[1], low if panel.band[0] is None else panel.band[0]]
        top, bottom = _up(np.array(edges), low, high, height)
        band = (round(top, 1), round(bottom - top, 1))
    last = (round(float(across[-1]), 1), round(up[-1], 1)) if known[-1] else None
    return Spark(runs, band, last)


def _up(values: Numbers, low: float, high: float, height: int) -> list[float]:
    """Return where *values* stand, in px from the top; NaN stays NaN."""
    share = np.clip((values - low) / (high - low), 0.0, 1.0)
    return [float(each) for each in (height - 1) - share * (height - 2)]
