# SPDX-License-Identifier: Apache-2.0
"""Bounds for coming nights: prediction intervals from the observed variation of past nights.

Nights are taken as independent and, on a logarithmic scale, as normal around one level. The next night then lies within
``mean ± t * s * sqrt(1 + 1/n)`` with a chosen probability, where *t* is the quantile of Student's distribution with the
degrees of freedom of the standard deviation *s* (Hahn and Meeker, *Statistical Intervals*, section 4.7). With a single
run, *s* is the standard error of its value, from its confidence interval, and ``sqrt(1 + 1/1)`` makes the bounds its
prediction for the next run, at another coverage. For several SUTs, the variation between them is included: a one-way
layout with random effects, degrees of freedom by Satterthwaite (*Biometrics Bulletin* 2, 1946).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from calibration.base.units import plural
from calibration.judge.baseline_files import Method
from calibration.judge.drift import Analysis
from calibration.judge.outliers import MIN_SPREAD
from calibration.judge.words import share

OUTSIDE: Final = 1e-4
"""Fraction of the nights of an unchanged metric beyond each bound. A lab judges thousands of metrics every night: one
in a thousand would give several false alarms each morning."""

ENOUGH_NIGHTS: Final = 10
"""With fewer nights at one level, earlier levels are used as well: Student's quantile would make the bounds too wide to
exclude anything."""

MIN_DEGREES: Final = 4
"""With fewer degrees of freedom the bounds are that wide anyway, and the run's own interval is used instead."""

OUTLIER_ERROR: Final = 0.001
"""Probability of finding an outlier among nights without one. Each night excluded wrongly narrows the bounds: at 1 %, a
third more nights than stated would miss bounds made of ten nights."""

OUTLIER_NIGHTS: Final = 8
"""With fewer nights none is excluded: apparent outliers are too often not real."""

OUTLIER_SHARE: Final = 0.1
"""Maximum fraction of nights that may be outliers (at least one); more are a state of their own."""

USUAL_COVERAGE: Final = 0.95
"""Assumed coverage of intervals within a run that do not state it."""

Floats = NDArray[np.float64]


class NightlyHistory(NamedTuple):
    """Nightly values of one SUT up to the accepted run, in ascending order; NaN if missing.

    ``low`` and ``high`` are the ends of each night's own interval; ``coverage``, ``placements`` and ``rounds`` qualify
    that of the accepted run. ``analysis`` is that of ``values``.
    """

    values: Floats
    low: Floats
    high: Floats
    analysis: Analysis
    coverage: float | None
    placements: int | None
    rounds: int | None = None


class Level(NamedTuple):
    """A level and the spread of its nights, on the scale (logarithmic or not) it was computed on.

    ``columns`` are its nights, ``spread`` the standard deviation of one night with ``degrees`` of freedom,
    ``two_sided`` whether the metric has an interval.
    """

    mean: float
    columns: tuple[int, ...]
    spread: float
    degrees: float
    method: Method
    why: str
    two_sided: bool


class Predicted(NamedTuple):
    """The prediction for coming nights: ``spread`` is the standard deviation, relative if ``relative``."""

    value: float
    lower: float
    upper: float
    spread: float
    relative: bool
    method: Method
    why: str


class UnknownSpreadError(ValueError):
    """The variation of a metric is unknown."""


def is_positive(nights: Sequence[NightlyHistory]) -> bool:
    """Return whether all values of *nights* are positive, so that a logarithmic scale applies."""
    return all(bool((night.values[np.isfinite(night.values)] > 0).all()) for night in nights)


def level_of(nights: NightlyHistory, *, positive: bool) -> Level:
    """Return the level of the last of *nights*.

    Raises ``UnknownSpreadError`` with too few nights and no interval.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values, low, high = (np.log(item) if positive else item for item in (nights.values, nights.low, nights.high))
    first = nights.analysis.first
    (own,) = np.nonzero(np.isfinite(values[first:]))
    own = _begun(own + first, nights)
    left_out = own[outliers(values[own])]
    new = _trailing(own, left_out, values)
    earlier = _earlier(nights.analysis, first)
    if len(new):  # the accepted run is at a level that the analysis has not detected yet
        earlier.append(np.setdiff1d(own, left_out))
        own, left_out = new, new[:0]
    used = np.setdiff1d(own, left_out)
    mean = float(values[used].mean())
    halves = (high[used] - low[used]) / 2
    within = float(np.median(halves[np.isfinite(halves)])) if np.isfinite(halves).any() else None
    least = MIN_SPREAD if positive else MIN_SPREAD * abs(mean)
    spread, degrees, method, why = _spread(values, used, earlier, within=within, least=least, nights=nights)
    if len(left_out):
        why += f"; {plural(len(left_out), 'outlying night')} left out"
    return Level(
        mean=mean,
        columns=tuple(int(item) for item in used),
        spread=spread,
        degrees=degrees,
        method=method,
        why=why,
        two_sided=within is not None,
    )


def _begun(own: NDArray[np.intp], nights: NightlyHistory) -> NDArray[np.intp]:
    """Return the nights *own* without leading ones that are still at the level before: dates can be a night off."""
    change = next(
        (
            change
            for change in nights.analysis.changes
            if change.kind == "level" and change.night == nights.analysis.first
        ),
        None,
    )
    if change is None:
        return own
    values = nights.values[own]
    (new,) = np.nonzero(np.abs(values - change.after) <= np.abs(values - change.before))
    return own[new[0] :] if len(new) else own


def outliers(values: Floats) -> NDArray[np.intp]:
    """Return the ascending indices of outliers among *values* (one dimension, finite).

    Generalised extreme Studentised deviate test (Rosner, *Technometrics* 25, 1983), which finds outliers that mask each
    other in a test for one.
    """
    count = len(values)
    if count < OUTLIER_NIGHTS:
        return np.empty(0, dtype=np.intp)
    left = np.arange(count)
    removed: list[int] = []
    found = 0
    for number in range(max(1, int(count * OUTLIER_SHARE))):
        rest = values[left]
        spread = rest.std(ddof=1)
        if not spread > 0:
            break
        deviations = np.abs(rest - rest.mean()) / spread
        worst = int(deviations.argmax())
        remaining = len(rest)
        quantile = float(stdtrit(remaining - 2, 1 - OUTLIER_ERROR / (2 * remaining)))
        critical = (remaining - 1) * quantile / sqrt((remaining - 2 + quantile**2) * remaining)
        removed.append(int(left[worst]))
        if deviations[worst] > critical:
            found = number + 1
        left = np.delete(left, worst)
    return np.array(sorted(removed[:found]), dtype=np.intp)


def _trailing(own: NDArray[np.intp], left_out: NDArray[np.intp], values: Floats) -> NDArray[np.intp]:
    """Return the trailing nights of *own* that are all outliers on the same side."""
    middle = float(np.median(values[own]))
    found: list[int] = []
    for column in own[::-1]:
        if column not in left_out or (found and (values[column] > middle) != (values[found[0]] > middle)):
            break
        found.append(int(column))
    return np.array(found[::-1], dtype=np.intp)


def _earlier(analysis: Analysis, first: int) -> list[NDArray[np.intp]]:
    """Return the nights of each level before column *first*, as far back as the spread is unchanged."""
    start = max(
        (change.night for change in analysis.changes if change.kind == "spread" and change.night < first), default=0
    )
    if any(change.kind == "spread" and change.night == first for change in analysis.changes):
        return []
    starts = [start, *(change.night for change in analysis.changes if start < change.night < first), first]
    return [np.arange(one, other) for one, other in pairwise(starts) if one < other]


def _spread(
    values: Floats,
    used: NDArray[np.intp],
    earlier: Sequence[NDArray[np.intp]],
    *,
    within: float | None,
    least: float,
    nights: NightlyHistory,
) -> tuple[float, float, Method, str]:
    """Return the standard deviation of a night around its level, its degrees of freedom, and its origin.

    *within* is the half-width of a run's interval, *least* the lower limit of the spread.
    """
    count = len(used)
    nights_text = f"{plural(count, 'night')} at this level"
    squares, degrees = _squares(values[used])
    method: Method = "nights"
    why = f"spread of {nights_text}"
    if count < ENOUGH_NIGHTS and earlier:
        for columns in earlier:
            known = columns[np.isfinite(values[columns])]
            more, of = _squares(np.delete(values[known], outliers(values[known])))
            squares, degrees = squares + more, degrees + of
        if degrees > max(0, count - 1):
            method = "other nights"
            why = f"only {nights_text}: spread of the nights around earlier levels included"
    spread = sqrt(squares / degrees) if degrees else 0.0
    in_rounds = (nights.rounds or 0) > 1
    replicates = (nights.rounds if in_rounds else nights.placements) or 0
    between = f"{replicates} {'rounds' if in_rounds else 'placements'}"
    error = None
    if within is not None and replicates > 1:
        coverage = nights.coverage or USUAL_COVERAGE
        error = within / float(stdtrit(replicates - 1, (1 + coverage) / 2))
    if degrees < MIN_DEGREES:
        if error is None:
            raise UnknownSpreadError(f"only {nights_text} and no interval: its variation is unknown")
        why = f"only {nights_text} and none before it: spread between {between} within the run"
        return max(spread, error), replicates - 1, "run", why
    if error is not None and error > spread and (degrees < ENOUGH_NIGHTS - 1 or spread <= least):
        return error, degrees, method, f"{why}, and at least that between {between} within a run"
    if spread <= least:
        return least, degrees, "constant", f"equal on all {nights_text}"
    return spread, degrees, method, why


def _squares(values: Floats) -> tuple[float, int]:
    """Return the sum of squares of *values* around their mean, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, 0
    return float(((values - values.mean()) ** 2).sum()), len(values) - 1


def predict(levels: Sequence[Level], *, positive: bool, outside: float = OUTSIDE) -> Predicted:
    """Return the prediction for a night of a SUT from the *levels*, one per SUT.

    A fraction *outside* of such nights is beyond each bound. Bounds from several SUTs apply to any other of the kind.
    """
    if len(levels) == 1:
        (level,) = levels
        mean, count = level.mean, len(level.columns)
        variance, degrees, method, why = level.spread**2 * (1 + 1 / count), level.degrees, level.method, level.why
    else:
        mean, variance, degrees = _between(levels)
        nights = sum(len(level.columns) for level in levels)
        method = "SUTs"
        why = f"spread of {nights} nights, and of the levels of {len(levels)} SUTs"
    half = float(stdtrit(degrees, 1 - outside)) * sqrt(variance)
    lower, upper = mean - half, mean + half
    if positive:
        mean, lower, upper = exp(mean), exp(lower), exp(min(upper, log(np.finfo(np.float64).max)))
    return Predicted(mean, lower, upper, sqrt(variance), positive, method, f"{why}; {share(outside)} outside per side")


def _between(levels: Sequence[Level]) -> tuple[float, float, float]:
    """Return the mean, the variance of a night of any SUT of the kind, and that variance's degrees of freedom."""
    means = np.array([level.mean for level in levels])
    between = float(means.var(ddof=1)) * (1 + 1 / len(means))
    degrees = sum(level.degrees for level in levels)
    within = sum(level.spread**2 * level.degrees for level in levels) / degrees
    within *= 1 - float(np.mean([1 / len(level.columns) for level in levels]))
    variance = between + within
    if variance == 0:
        return float(means.mean()), 0.0, float(len(means) - 1)
    return (
        float(means.mean()),
        variance,
        variance**2 / (between**2 / (len(means) - 1) + within**2 / degrees),
    )
