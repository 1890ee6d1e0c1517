# SPDX-License-Identifier: Apache-2.0
"""Components of variance: how much of a test's variance lies between SUTs, between nights, and in neither.

Two crossed random effects, estimated by the method of moments from unbalanced data; the intervals are generalized
confidence intervals (Weerahandi, 1993). docs/method/explanation.rst explains the method.
"""

from typing import Final

import numpy as np

from calibration.base.model import Model
from calibration.judge.detector import MIN_VALUES, Floats

DRAWS: Final = 4000
"""Draws of the pivotal quantities. Fewer: the ends of the intervals differ in the second digit from seed to seed."""

SWEEPS: Final = 50
"""Most alternating fits of SUTs and nights; a few suffice unless SUTs share few nights."""

MAX_CORRELATION: Final = 0.98
"""Highest autocorrelation taken into account: beyond it a hundred nights are one."""


class VarianceShare(Model):
    """A share of the variance, with its 95 % interval."""

    value: float
    low: float
    high: float


class Variance(Model):
    """Shares of the variance of a test, which add up to 1.

    ``between_suts``: lasting differences. ``nights``: what all SUTs share on a night; ``None`` if too few nights have
    two SUTs. ``rest``: what one SUT does on one night, its own changes included.
    """

    between_suts: VarianceShare
    nights: VarianceShare | None
    rest: VarianceShare


def components_of(values: Floats) -> Variance | None:
    """Return the components of *values* of shape (SUTs, nights), NaN for missing.

    ``None`` unless at least two SUTs have ``MIN_VALUES`` values and there is any variance.
    """
    values = values[np.isfinite(values).sum(axis=1) >= MIN_VALUES]
    if len(values) < 2:
        return None
    values = values / (np.nanmedian(np.abs(values)) or 1.0)
    shared = np.isfinite(values).sum(axis=0) >= 2
    crossed = int(shared.sum()) >= MIN_VALUES and bool((np.isfinite(values[:, shared]).sum(axis=1) >= 2).all())
    if crossed:
        values = values[:, shared]
    known = np.isfinite(values)
    suts, nights, rest = _effects(values, crossed=crossed)
    per_sut, per_night = known.sum(axis=1), known.sum(axis=0)
    free = int(known.sum()) - len(suts) - (len(nights) - 1 if crossed else 0)
    error = float((rest[known] ** 2).sum()) / max(free, 1)
    of_suts = float(suts.var(ddof=1))
    if of_suts + error + float(nights.var()) <= 1e-24:
        return None
    memory = _memory(rest)
    of_nights, memory_of_nights = (float(nights.var(ddof=1)), _memory(nights[None])) if crossed else (0.0, 1.0)
    chance = np.random.default_rng(1)

    def drawn(degrees: float) -> Floats:
        """Return the true variance relative to the estimated one."""
        degrees = max(degrees, 1.0)
        return np.concatenate(([1.0], degrees / chance.chisquare(degrees, DRAWS)))

    errors = error * drawn(free / memory)
    between = np.maximum(of_suts * drawn(len(suts) - 1) - memory * errors * float((1.0 / per_sut).mean()), 0.0)
    over = np.zeros(DRAWS + 1)
    if crossed:
        over = of_nights * drawn((len(nights) - 1) / memory_of_nights)
        over = np.maximum(over - errors * float((1.0 / per_night).mean()), 0.0)
    total = between + over + errors
    return Variance(
        between_suts=_share(between / total),
        nights=_share(over / total) if crossed else None,
        rest=_share(errors / total),
    )


def _share(drawn: Floats) -> VarianceShare:
    """Return the share in *drawn*: the estimate first, then draws."""
    low, high = np.quantile(drawn[1:], (0.025, 0.975))
    return VarianceShare(value=float(drawn[0]), low=float(min(low, drawn[0])), high=float(max(high, drawn[0])))


def _effects(values: Floats, *, crossed: bool) -> tuple[Floats, Floats, Floats]:
    """Return the effects of SUTs and of nights (zero unless *crossed*), and what remains, by least squares."""
    nights = np.zeros(values.shape[1])
    suts = np.nanmean(values, axis=1)
    for _ in range(SWEEPS if crossed else 0):
        nights = np.nanmean(values - suts[:, None], axis=0)
        nights -= nights.mean()
        before, suts = suts, np.nanmean(values - nights, axis=1)
        if np.allclose(before, suts, rtol=0.0, atol=1e-9):
            break
    return suts, nights, values - suts[:, None] - nights


def _memory(rows: Floats) -> float:
    """Return the variance of a mean of many nights relative to that of independent nights, pooled over *rows*."""
    off = np.nan_to_num(rows)
    pairs = np.isfinite(rows[:, 1:]) & np.isfinite(rows[:, :-1])
    variance = float((off**2).sum()) / max(int(np.isfinite(rows).sum()), 1)
    lagged = float((off[:, 1:] * off[:, :-1])[pairs].sum()) / max(int(pairs.sum()), 1)
    correlation = min(max(lagged / variance if variance > 0.0 else 0.0, 0.0), MAX_CORRELATION)
    return (1.0 + correlation) / (1.0 - correlation)
