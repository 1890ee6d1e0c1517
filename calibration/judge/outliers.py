# SPDX-License-Identifier: Apache-2.0
"""Statistics of several SUTs: which of them differs from the median of the others by more than a tolerance.

SUTs are compared metric by metric, as logarithms: a difference is a ratio. Each SUT's level is that of its current
stretch of nights; how sure it is follows from how much its nights differ. It is compared with the median of the other
SUTs, of two middle ones the nearer, so that one odd SUT makes no other look odd. The hypothesis of a difference within
the tolerance is tested with Student's t, and all tests of a testbed together are wrong at most in one night of a
hundred (Holm's step-down).

Sources: Holm, *A Simple Sequentially Rejective Multiple Test Procedure* (Scandinavian Journal of Statistics, 1979);
for the share of variance, Shrout and Fleiss, *Intraclass Correlations* (Psychological Bulletin, 1979), one-way random
effects.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.judge.drift import TRIMMED, Analysis

Floats = NDArray[np.float64]

FAMILY_WISE: Final = 0.01
"""How often, of testbeds whose SUTs are all the same, one has any outlier in a night: once in a hundred at most."""

CONFIDENCE: Final = 0.95
"""Of the interval that is shown, and that lies within the tolerance where a SUT passes."""

LEAST_NIGHTS: Final = 3
"""A SUT with fewer nights is no outlier yet, nor is any beside others of which most have fewer: one night may be odd by
chance, and nothing says how often."""

ENOUGH_NIGHTS: Final = 5
"""Fewer do not say how much a SUT's nights differ."""

SETTLED_NIGHTS: Final = 10
"""Fewer may be alike by chance, or be a stretch because they are: a SUT's nights are then taken to differ by no less
than those of the other SUTs, and than the figure's own interval allows."""

STAND_IN_DF: Final = 8.0
"""Degrees of freedom of what stands in for the spread of few nights: fewer than ten nights have, and about those of an
interval that rests on nine placements."""

LEAST_SPREAD: Final = 1e-6
"""Figures that are the same to the last digit every night are still not known better than their digits."""


class Levels(NamedTuple):
    """Levels of SUTs (rows) in metrics (columns): logarithm, variance of one night, how many nights; NaN if unknown.

    ``interval`` is the variance of one night as far as the figure's own interval tells, for where nights are too few.
    """

    level: Floats
    night: Floats
    nights: Floats
    interval: Floats


class Spread(NamedTuple):
    """Of the SUTs in each metric: how many, the standard deviation between and within SUTs, the share between them."""

    suts: NDArray[np.intp]
    between: Floats
    within: Floats
    share: Floats


class Compared(NamedTuple):
    """Each SUT (row) beside the median of the others, in each metric (column), as logarithms; NaN if there is none.

    ``level`` is its own, ``night`` the variance of one night, ``half`` half the interval of ``difference``, and ``p``
    the probability of a difference as large where the true one is within the tolerance.
    """

    level: Floats
    night: Floats
    difference: Floats
    half: Floats
    p: Floats
    spread: Spread


def levels_of(analyses: Sequence[Analysis], interval: Floats) -> Levels:
    """Return the levels that *analyses* know, as arrays of one dimension: none if figures flip, or are not above 0.

    *interval* is that of ``Levels``.
    """
    level, spread, count = (
        np.array([getattr(analysis, name) for analysis in analyses], dtype=np.float64)
        for name in ("level", "spread", "count")
    )
    bad = np.array([analysis.flips is not None for analysis in analyses], dtype=bool) | ~(level > 0)
    with np.errstate(all="ignore"):  # NaN is what is not known
        return Levels(np.where(bad, np.nan, np.log(level)), np.log1p(spread**2), count, interval)


def compare_levels(levels: Levels, tolerance: Floats) -> Compared:
    """Return each SUT of *levels* beside the median of the others; *tolerance* is that of each metric, relative."""
    night, df = _nights(levels)
    night = np.where(np.isfinite(levels.level), night, np.nan)
    level = np.where(np.isfinite(night), levels.level, np.nan)
    nights = np.where(np.isfinite(level), levels.nights, np.nan)
    low, high = leave_one_out(level)
    with np.errstate(all="ignore"):  # NaN is what is not known
        variance = np.maximum(night, LEAST_SPREAD**2) * TRIMMED / levels.nights
        reference = np.where(np.abs(level - low) <= np.abs(level - high), low, high)
        difference = level - reference
        others = np.isfinite(level).sum(axis=0) - 1
        one, other = leave_one_out(variance)
        middle = (one + other) / 2 * (math.pi / (2 * others + math.pi - 2))
        df = np.where(np.isfinite(variance), df, 0)
        error = np.sqrt(variance + middle)
        freedom = np.minimum(df, df.sum(axis=0) - df)
        beyond, within = ((np.abs(difference) + sign * np.log1p(tolerance)) / error for sign in (-1, 1))
        p = np.minimum(1.0, _upper_tail(freedom, beyond) + _upper_tail(freedom, within))
        p = np.where(np.minimum(levels.nights, leave_one_out(nights)[0]) >= LEAST_NIGHTS, p, np.nan)
        half = quantile(np.array(CONFIDENCE), freedom) * error
    return Compared(level, night, difference, half, p, _spread(level, variance, night))


def _nights(levels: Levels) -> tuple[Floats, Floats]:
    """Return the variance of a night of each SUT and metric, and how many degrees of freedom it is known with."""
    known = np.where((levels.nights >= ENOUGH_NIGHTS) & np.isfinite(levels.level), levels.night, np.nan)
    usual = _median(known)
    # two to four equal nights are no knowledge of how much nights differ: something else must be known as well
    other = np.fmax(levels.interval, usual)
    stand_in = np.where(np.isfinite(other) & (levels.nights > 1), np.fmax(other, levels.night), other)
    settled = levels.nights >= SETTLED_NIGHTS
    return np.where(settled, levels.night, stand_in), np.where(settled, levels.nights - 1, STAND_IN_DF)


def leave_one_out(values: Floats) -> tuple[Floats, Floats]:
    """Return the lower and the upper median of the others in each column, for each row of *values*; NaN is nobody.

    Of an odd number of others both are the one in the middle.
    """
    suts, columns = values.shape
    order = np.argsort(values, axis=0)  # NaN last
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(suts)[:, None], (suts, columns)), axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    others = np.isfinite(values).sum(axis=0) - 1

    def at(place: NDArray[np.intp]) -> Floats:
        found = np.take_along_axis(ordered, np.clip(place + (place >= rank), 0, suts - 1), axis=0)
        return np.where(np.isfinite(values) & (others > 0), found, np.nan)

    return at(np.broadcast_to((others - 1) // 2, rank.shape)), at(np.broadcast_to(others // 2, rank.shape))


def _median(values: Floats) -> Floats:
    """Return the median of each column, of two middle ones their mean; NaN is nobody."""
    count = np.isfinite(values).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN last
    columns = np.arange(values.shape[1])
    found: Floats = (ordered[np.maximum(count - 1, 0) // 2, columns] + ordered[count // 2, columns]) / 2
    return found


def _spread(level: Floats, variance: Floats, night: Floats) -> Spread:
    """Return how much SUTs and their nights differ in each metric: one-way random effects, by the method of moments."""
    known = np.isfinite(level)
    suts = known.sum(axis=0)

    def mean(values: Floats) -> Floats:
        found: Floats = np.where(known, values, 0).sum(axis=0) / suts
        return found

    with np.errstate(all="ignore"):
        total = mean((level - mean(level)) ** 2) * suts / (suts - 1)
        between = np.maximum(0, total - mean(variance))
        within = mean(night)
        return Spread(suts, np.sqrt(between), np.sqrt(within), between / (between + within))


def holm(p: Floats, level: float) -> NDArray[np.bool_]:
    """Return which hypotheses are rejected so that any true one is among them with probability *level* at most.

    *p* has one dimension; a NaN is no test.
    """
    order = np.argsort(p)  # NaN last
    tests = int(np.isfinite(p).sum())
    kept = p[order[:tests]] <= level / np.arange(tests, 0, -1)
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order[:tests]] = np.logical_and.accumulate(kept)
    return rejected


def _upper_tail(df: Floats, t: Floats) -> Floats:
    """Return the probability of Student's t above *t*."""
    from scipy.special import stdtr  # noqa: PLC0415 - half a second that only judging pays

    found: Floats = stdtr(df, -t)
    return found


def quantile(confidence: Floats, df: Floats) -> Floats:
    """Return within which multiple of the standard error Student's t is with probability *confidence*."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - as above

    upper = (1 + confidence) / 2
    found: Floats = np.where(np.isinf(df), ndtri(upper), stdtrit(df, upper))
    return found
