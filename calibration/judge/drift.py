# SPDX-License-Identifier: Apache-2.0
"""Changes of the level and the spread over nights, and metrics that flip between two levels.

``calibration/judge/detector.py`` finds where they begin; this module computes their sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, expm1, hypot, isfinite, nan, sqrt
from typing import NamedTuple

import numpy as np

from calibration.base.grouping import grouped
from calibration.base.units import plural
from calibration.judge.detector import (
    DRIFT_NIGHTS,
    EPSILON,
    JUMP_NIGHTS,
    MAX_SIZE,
    MIN_VALUES,
    Floats,
    Integers,
    Kind,
    Walk,
    bounded,
    correlation_of,
    memory_of,
    two_levels,
)
from calibration.judge.words import change

TRIMMED = 1.15
"""Variance of a mean without the outer fifths, relative to the plain mean, for normal noise."""


class DriftChange(NamedTuple):
    """A detected change.

    ``night`` is the column of its first night. ``before`` and ``after`` are levels, or for ``spread`` standard
    deviations relative to the level. ``size`` is after / before - 1 with the 95 % confidence ``interval``; both are NaN
    if before is 0.
    """

    kind: Kind
    night: int
    before: float
    after: float
    size: float
    interval: tuple[float, float]


class Excursion(NamedTuple):
    """A level that was left and is back: the ``first`` of the changes and the ``last``, its return."""

    first: DriftChange
    last: DriftChange

    @property
    def text(self) -> str:
        """How long the level was off, and by how much."""
        return f"{plural(self.last.night - self.first.night, 'night')} of {change(self.first.size, None)}"


class Flips(NamedTuple):
    """The two levels of a bimodal metric, the column of the first flip, and the share of nights on the upper level."""

    night: int
    lower: float
    upper: float
    upper_share: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """Analysis of one series, as known on its last night.

    ``level`` (a trimmed mean) and ``spread`` (standard deviation relative to the level) describe the stretch of the
    last value: ``count`` values from column ``first`` on. ``level`` is NaN if there is no value, ``spread`` if there
    are fewer than two or the level is 0.
    """

    changes: tuple[DriftChange, ...]
    flips: Flips | None
    level: float
    spread: float
    first: int
    count: int

    @property
    def excursion(self) -> Excursion | None:
        """The excursion that the newest change of the level ended."""
        return lasting([item for item in self.changes if item.kind == "level"], self.spread)[1]


NO_ANALYSIS = Analysis((), None, nan, nan, 0, 0)
"""The analysis of a series without values."""


class _Stretch(NamedTuple):
    """Values between two changes: begin and end, level, standard deviation and kurtosis."""

    begin: int
    end: int
    level: float
    deviation: float
    tails: float

    @property
    def nights(self) -> int:
        return self.end - self.begin

    @property
    def spread(self) -> float:
        """The standard deviation relative to the level."""
        return self.deviation / abs(self.level) if self.level and self.nights > 1 else nan


def analyse(values: Floats, run: Callable[[Walk], None] = Walk.run) -> list[Analysis]:
    """Return one analysis per series, as known on its last night.

    *values* has the shape (series, nights), in any unit and sign, NaN for missing. Changes need at least
    ``MIN_VALUES`` values. *run* runs the detector.
    """
    finite = np.isfinite(values)
    counts = finite.sum(axis=1)
    longest = int(counts.max(initial=0))
    if not longest:
        return [NO_ANALYSIS for _ in values]
    columns = np.argsort(~finite, axis=1, kind="stable")[:, :longest]
    taken = np.take_along_axis(values, columns, axis=1)
    taken[np.arange(longest) >= counts[:, None]] = np.nan
    # Scale by the first values, or the first that is not 0: later values must not change earlier results.
    some = np.flatnonzero(counts)
    unit, centre = np.zeros(len(values)), np.zeros(len(values))
    unit[some] = np.nanmedian(np.abs(taken[some, :MIN_VALUES]), axis=1)
    first = np.abs(taken[some, np.argmax(np.nan_to_num(taken[some]) != 0.0, axis=1)])
    unit[some] = np.where(unit[some] > 0.0, unit[some], first)
    unit[unit == 0.0] = 1.0
    with np.errstate(over="ignore"):  # an overflow is clipped later
        scaled = np.clip(taken / unit[:, None], -MAX_SIZE, MAX_SIZE)
    centre[some] = np.nanmedian(scaled[some, :MIN_VALUES], axis=1)
    scaled -= centre[:, None]
    walk = Walk(np.ascontiguousarray(scaled.T), counts)
    run(walk)
    found = [NO_ANALYSIS] * len(values)
    memory = memory_of(correlation_of(walk.state)).tolist()
    calm = grouped((count, row) for row, count in enumerate(counts.tolist()) if count and not walk.changed(row))
    for count, rows in calm.items():
        own = scaled[rows, :count]
        stretches = _stretches(own, 0, centre[rows])
        flipping = two_levels(own).found.tolist()
        series = zip(rows, stretches, unit[rows].tolist(), columns[rows, 0].tolist(), flipping, strict=True)
        for row, stretch, size, night, flips in series:
            if not flips:
                found[row] = Analysis((), None, stretch.level * size, stretch.spread, night, count)
    for row in (row for row in some.tolist() if found[row] is NO_ANALYSIS):
        found[row] = _analysis(
            scaled[row, : counts[row]],
            walk.begins[row],
            walk.excursions[row],
            columns[row],
            unit=float(unit[row]),
            centre=float(centre[row]),
            memory=memory[row],
        )
    return found


def lasting(
    changes: Sequence[DriftChange], spread: float, tolerance: float = 0.0
) -> tuple[list[DriftChange], Excursion | None]:
    """Return *changes* of one kind without excursions, and the one that the newest ended.

    A level is back if it is nearer to the one before a change again, and within its *uncertainty* or *tolerance*.
    """
    left: list[DriftChange] = []
    ended = None
    for last in changes:
        left.append(last)
        ended = None
        for place, first in enumerate(left[:-1]):
            off, slack = abs(last.after - first.before), max(uncertainty(left[place:], spread), tolerance)
            if off < abs(first.after - first.before) and off <= slack * abs(first.before):
                del left[place:]
                ended = Excursion(first, last)
                break
    return left, ended


def uncertainty(changes: Sequence[DriftChange], spread: float) -> float:
    """Return how far a level may be, relatively, from the one before all *changes* and still count as unchanged.

    At least the combined uncertainty of the changes' sizes, and at least the night-to-night *spread*.
    """
    return max(hypot(*((high - low) / 2 for low, high in (item.interval for item in changes))), spread)


def _analysis(
    scaled: Floats,
    begins: Sequence[tuple[int, Kind]],
    excursions: Sequence[tuple[int, int]],
    columns: Integers,
    *,
    unit: float,
    centre: float,
    memory: float,
) -> Analysis:
    """Return the analysis of *scaled*, values in *units* minus *centre*, with changes at *begins* and *excursions*."""
    firsts = [0, *(begin for begin, _ in begins)]
    flips = two_levels(scaled[None, firsts[-1] :])
    while flips.found[0] and len(firsts) > 1:
        longer = two_levels(scaled[None, firsts[-2] :])
        if not longer.found[0]:
            break
        flips = longer  # a long stay on one level was taken for a change
        firsts.pop()
    begun = dict(begins[: len(firsts) - 1])
    unimodal = [pair for pair in excursions if not flips.found[0] or pair[0] < firsts[-1]]
    begun |= {first: "level" for first, _ in unimodal}
    for _, back in unimodal:
        if not any(back <= begin < back + JUMP_NIGHTS for begin in begun):  # else on to another level
            begun[back] = "level"
    begins = sorted(begun.items())
    firsts = [0, *(begin for begin, _ in begins)]
    ends = [*firsts[1:], len(scaled)]
    stretches = [_stretch(scaled, begin, end, centre) for begin, end in zip(firsts, ends, strict=True)]
    changes = [
        _change(kind, old, new, int(columns[begin]), unit=unit, memory=memory)
        for (begin, kind), old, new in zip(begins, stretches, stretches[1:], strict=False)
    ]
    last, flipping = stretches[-1], None
    if flips.found[0]:
        on_upper = flips.is_upper[0]
        stay = int(np.argmax(on_upper != on_upper[0]))
        if stay > DRIFT_NIGHTS:  # so long a stay predates the flipping
            on_upper = on_upper[stay:]
            last = _stretch(scaled, last.begin + stay, last.end, centre)
        lower, upper = (float((item[0] + centre) * unit) for item in (flips.lower, flips.upper))
        flipping = Flips(int(columns[last.begin]), lower, upper, float(on_upper.mean()))
    return Analysis(tuple(changes), flipping, last.level * unit, last.spread, int(columns[last.begin]), last.nights)


def _stretch(scaled: Floats, begin: int, end: int, centre: float) -> _Stretch:
    (found,) = _stretches(scaled[None, begin:end], begin, np.array([centre]))
    return found


def _stretches(values: Floats, begin: int, centre: Floats) -> list[_Stretch]:
    """Return the stretches of *values*, one series per row, that begin at *begin*."""
    own = np.sort(values, axis=1)
    count = values.shape[1]
    level = own[:, count // 5 : count - count // 5].mean(axis=1)
    square = np.ascontiguousarray((bounded(own.T) - level).T) ** 2  # a row's sum is rounded as if it were alone
    variance = square.sum(axis=1) / max(count - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # no variance, then no tails
        tails = np.where(variance > EPSILON**2, np.maximum(3.0, (square**2).mean(axis=1) / variance**2), 3.0)
    moved = level + centre
    moved[np.abs(moved) <= EPSILON] = 0.0
    deviation = np.where(variance > EPSILON**2, np.sqrt(variance), 0.0)
    rows = zip(moved.tolist(), deviation.tolist(), tails.tolist(), strict=True)
    return [_Stretch(begin, begin + count, *row) for row in rows]


def _change(kind: Kind, old: _Stretch, new: _Stretch, night: int, *, unit: float, memory: float) -> DriftChange:
    if kind == "level":
        size, interval = _level_size(old, new, memory)
        return DriftChange(kind, night, old.level * unit, new.level * unit, size, interval)
    size, interval = _spread_size(old, new)
    return DriftChange(kind, night, old.spread, new.spread, size, interval)


def _level_size(old: _Stretch, new: _Stretch, memory: float) -> tuple[float, tuple[float, float]]:
    """Return the relative size of a level change and its 95 % interval, to first order.

    The deviation is pooled over both stretches, because three values hardly determine it. *memory* is the variance of
    a mean relative to that of independent nights.
    """
    if old.level == 0.0:
        return nan, (nan, nan)
    degrees = max(old.nights + new.nights - 2, 1)
    pooled = (old.deviation**2 * (old.nights - 1) + new.deviation**2 * (new.nights - 1)) / degrees
    ratio = new.level / old.level
    error = sqrt(TRIMMED * memory * pooled * (1.0 / new.nights + ratio**2 / old.nights)) / abs(old.level)
    half = _student(degrees) * error
    return ratio - 1.0, (ratio - 1.0 - half, ratio - 1.0 + half)


def _spread_size(old: _Stretch, new: _Stretch) -> tuple[float, tuple[float, float]]:
    """Return the same for a change of the spread (Bonett, 2006)."""
    if not (old.spread > 0.0 and isfinite(new.spread)):
        return nan, (nan, nan)
    ratio = new.spread / old.spread
    degrees = [max(level.nights - 1, 1) for level in (old, new)]
    variance = sum((level.tails - 1.0) / 4.0 / free for level, free in zip((old, new), degrees, strict=True))
    half = exp(_student(min(degrees)) * sqrt(variance))
    return ratio - 1.0, (ratio / half - 1.0, ratio * half - 1.0)


def _student(degrees: int) -> float:
    """Return the two-sided 95 % quantile of Student's t (Wallace, 1959)."""
    normal = 1.96 * (8.0 * degrees + 3.0) / (8.0 * degrees + 1.0)
    return sqrt(degrees * expm1(normal**2 / degrees))
