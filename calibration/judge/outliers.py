# SPDX-License-Identifier: Apache-2.0
"""Outlier statistics: which SUT differs from the median of the others by more than the tolerance.

SUTs are compared per metric as logarithms, so that a difference is a ratio. A SUT's level is that of its current
stretch; its uncertainty follows from the variation between nights. It is compared with the median of the other SUTs
(the nearer of two middle ones, so that one outlier does not make others look odd). The hypothesis that the difference
is within the tolerance is tested with Student's t, with a family-wise error rate of 1 % per testbed and night (Holm's
step-down).

Sources: Holm, *A Simple Sequentially Rejective Multiple Test Procedure* (Scandinavian Journal of Statistics, 1979); for
the share of variance, Shrout and Fleiss, *Intraclass Correlations* (Psychological Bulletin, 1979), one-way random
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
"""Family-wise error rate: of homogeneous testbeds, at most 1 % have any outlier in a night."""

CONFIDENCE: Final = 0.95
"""Confidence of the interval that is shown, and that must be within the tolerance for a pass."""

MIN_NIGHTS: Final = 3
"""With fewer nights a SUT is not tested, nor is any SUT if most of its peers have fewer: one night may be an outlier by
chance."""

ENOUGH_NIGHTS: Final = 5
"""Fewer nights do not determine a SUT's night-to-night spread."""

SETTLED_NIGHTS: Final = 10
"""With fewer nights, the spread is raised to at least the peers' spread and the metric's own interval: a few nights may
agree by chance, or form a stretch only because they agree."""

STAND_IN_DF: Final = 8.0
"""Degrees of freedom of the substituted spread: fewer than ten nights have, and about those of an interval from nine
placements."""

MIN_SPREAD: Final = 1e-6
"""Lower limit of the spread: metrics that repeat to the last digit are known no better than their digits."""


class Levels(NamedTuple):
    """Levels of SUTs (rows) in metrics (columns): logarithm, variance of one night, number of nights; NaN if unknown.

    ``interval`` is the variance of one night according to the metric's own interval, used if there are too few nights.
    """

    level: Floats
    night: Floats
    nights: Floats
    interval: Floats


class Spread(NamedTuple):
    """Per metric: the number of SUTs, the standard deviation between and within SUTs, and the share between them."""

    suts: NDArray[np.intp]
    between: Floats
    within: Floats
    share: Floats


class ComparedLevels(NamedTuple):
    """Each SUT (row) against the median of the others, per metric (column), as logarithms; NaN if missing.

    ``level`` is its own, ``night`` the variance of one night, ``half`` the half-width of the interval of
    ``difference``, and ``p`` the probability of such a difference if the true one is within the tolerance.
    """

    level: Floats
    night: Floats
    difference: Floats
    half: Floats
    p: Floats
    spread: Spread


def levels_of(analyses: Sequence[Analysis], interval: Floats) -> Levels:
    """Return the levels of *analyses* as one-dimensional arrays; NaN if metrics flip or are not positive.

    *interval* is that of ``Levels``.
    """
    level, spread, count = (
        np.array([getattr(analysis, name) for analysis in analyses], dtype=np.float64)
        for name in ("level", "spread", "count")
    )
    bad = np.array([analysis.flips is not None for analysis in analyses], dtype=bool) | ~(level > 0)
    with np.errstate(all="ignore"):  # NaN is what is not known
        return Levels(np.where(bad, np.nan, np.log(level)), np.log1p(spread**2), count, interval)


def compare_levels(levels: Levels, tolerance: Floats) -> ComparedLevels:
    """Return each SUT of *levels* against the median of the others; *tolerance* is relative, per metric."""
    night, df = _nights(levels)
    night = np.where(np.isfinite(levels.level), night, np.nan)
    level = np.where(np.isfinite(night), levels.level, np.nan)
    nights = np.where(np.isfinite(level), levels.nights, np.nan)
    low, high = leave_one_out(level)
    with np.errstate(all="ignore"):  # NaN is what is not known
        variance = np.maximum(night, MIN_SPREAD**2) * TRIMMED / levels.nights
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
        p = np.where(np.minimum(levels.nights, leave_one_out(nights)[0]) >= MIN_NIGHTS, p, np.nan)
        half = quantile(np.array(CONFIDENCE), freedom) * error
    return ComparedLevels(level, night, difference, half, p, _spread(level, variance, night))


def _nights(levels: Levels) -> tuple[Floats, Floats]:
    """Return the variance of a night per SUT and metric, and its degrees of freedom."""
    known = np.where((levels.nights >= ENOUGH_NIGHTS) & np.isfinite(levels.level), levels.night, np.nan)
    usual = _median(known)
    # two to four equal nights do not determine the spread: another estimate is needed
    other = np.fmax(levels.interval, usual)
    stand_in = np.where(np.isfinite(other) & (levels.nights > 1), np.fmax(other, levels.night), other)
    settled = levels.nights >= SETTLED_NIGHTS
    return np.where(settled, levels.night, stand_in), np.where(settled, levels.nights - 1, STAND_IN_DF)


def leave_one_out(values: Floats) -> tuple[Floats, Floats]:
    """Return the lower and the upper median of the others in each column, for each row of *values*; NaN is skipped.

    For an odd number of others both are the middle one.
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
    """Return the median of each column (the mean of two middle values); NaN is skipped."""
    count = np.isfinite(values).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN last
    columns = np.arange(values.shape[1])
    found: Floats = (ordered[np.maximum(count - 1, 0) // 2, columns] + ordered[count // 2, columns]) / 2
    return found


def _spread(level: Floats, variance: Floats, night: Floats) -> Spread:
    """Return the variation between SUTs and nights per metric: one-way random effects, method of moments."""
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
    """Return which hypotheses to reject at family-wise error rate *level*.

    *p* has one dimension; NaN is not tested.
    """
    order = np.argsort(p)  # NaN last
    tests = int(np.isfinite(p).sum())
    kept = p[order[:tests]] <= level / np.arange(tests, 0, -1)
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order[:tests]] = np.logical_and.accumulate(kept)
    return rejected


def _upper_tail(df: Floats, t: Floats) -> Floats:
    """Return the probability of Student's t above *t*."""
    from scipy.special import stdtr  # noqa: PLC0415 - slow, and only judging needs it

    found: Floats = stdtr(df, -t)
    return found


def quantile(confidence: Floats, df: Floats) -> Floats:
    """Return the two-sided quantile of Student's t for *confidence*."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - as above

    upper = (1 + confidence) / 2
    found: Floats = np.where(np.isinf(df), ndtri(upper), stdtrit(df, upper))
    return found
