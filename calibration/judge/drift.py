# SPDX-License-Identifier: Apache-2.0
"""Changes of the level and of the spread of figures over nights, and figures that flip between two levels."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Change(NamedTuple):
    """A change that was found.

    ``night`` is the column of the first night of the new state. ``before`` and ``after`` are the level, or for
    ``spread`` the standard deviation relative to the level. ``size`` is after / before - 1, NaN where before is 0, and
    ``interval`` bounds it with 95 %.
    """

    kind: Literal["level", "spread"]
    night: int
    before: float
    after: float
    size: float
    interval: tuple[float, float]


class Flips(NamedTuple):
    """Two levels between which a figure flips since the column ``night``, and the share of nights on the upper one."""

    night: int
    lower: float
    upper: float
    upper_share: float


@dataclass(frozen=True)
class Analysis:
    """What the figures of one series say, as known on its last night.

    ``level`` and ``spread`` (standard deviation relative to the level) are those of the stretch that the last figure
    belongs to, which begins at the column ``first`` and has ``count`` figures; NaN where there are none.
    """

    changes: tuple[Change, ...]
    flips: Flips | None
    level: float
    spread: float
    first: int
    count: int


def _plain(series: Floats) -> Analysis:
    columns = np.flatnonzero(np.isfinite(series))
    figures = series[columns]
    changes: list[Change] = []
    start = 0
    least = 3
    for end in range(10, len(figures) + 1):
        stretch = figures[start:end]
        if len(stretch) < 8:
            continue
        old, new = stretch[:-least], stretch[-least:]
        level = float(np.median(old))
        scale = 1.4826 * float(np.median(np.abs(old - level))) or 1e-9 * abs(level) or 1e-300
        score = float(np.clip((new - level) / scale, -4.0, 4.0).sum())
        if abs(score) > 8.0:
            after = float(np.median(new))
            half = 1.96 * scale / np.sqrt(least)
            size = after / level - 1.0 if level else np.nan
            interval = ((after - half) / level - 1.0, (after + half) / level - 1.0) if level else (np.nan, np.nan)
            changes.append(Change("level", int(columns[end - least]), level, after, size, interval))
            start = end - least
    stretch = figures[start:]
    if not len(stretch):
        return Analysis((), None, np.nan, np.nan, 0, 0)
    level = float(np.median(stretch))
    spread = float(np.std(stretch)) / abs(level) if level else np.nan
    return Analysis(tuple(changes), None, level, spread, int(columns[start]), len(stretch))


def analyse(values: Floats) -> list[Analysis]:
    """Return what the figures of each series say: *values* has the shape (series, nights), NaN where there is none."""
    return [_plain(series) for series in values]
