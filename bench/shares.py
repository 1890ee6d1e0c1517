# SPDX-License-Identifier: Apache-2.0
"""Shares of what held in repeated runs, and the spread of their values."""

from collections.abc import Iterable, Sequence
from statistics import median, stdev
from typing import Final, NamedTuple

import numpy as np

RESAMPLES: Final = 2000
"""Resamples of a bootstrap: its 2.5 % and 97.5 % quantiles are then known to about a tenth of its width."""


class Share(NamedTuple):
    """How many of ``number`` held, as a fraction, and the 95 % interval of that over runs."""

    share: float
    low: float
    high: float
    number: int


def share_of(held: Iterable[Sequence[bool]]) -> Share | None:
    """Return the share of what *held*, one sequence per run; ``None`` if there is nothing.

    Intervals of one run fail together: its interval is the bootstrap's over runs (Davison and Hinkley, *Bootstrap
    Methods and Their Application*, section 3.8), with a fixed seed. It has no width if no run fails.
    """
    counts = np.array([(sum(run), len(run)) for run in held if run], dtype=np.float64)
    if not len(counts):
        return None
    drawn = np.random.default_rng(1).integers(len(counts), size=(RESAMPLES, len(counts)))
    good, total = counts[drawn].sum(axis=1).T
    low, high = np.quantile(good / total, (0.025, 0.975))
    good, total = counts.sum(axis=0)
    return Share(float(good / total), float(low), float(high), int(total))


def spread_of(values: Sequence[float]) -> float:
    """Return half the central 95 % range of repeated *values*: 1.96 standard deviations.

    The deviation is 1.4826 times the median absolute deviation, times n / (n - 0.8), its correction for few values
    (Croux and Rousseeuw, *Time-Efficient Algorithms for Two Highly Robust Estimators of Scale*, 1992). If more than
    half of the values are the same, it is the usual one.
    """
    centre = median(values)
    deviation = 1.4826 * median(abs(value - centre) for value in values) * len(values) / (len(values) - 0.8)
    return 1.96 * (deviation or stdev(values))


def percent(share: float | None) -> str:
    """Return *share* in percent, a dash for ``None``."""
    return "—" if share is None else f"{100 * share:.1f}"


def share_text(share: Share | None) -> str:
    """Return *share* and its interval in percent, a dash for ``None``."""
    return "—" if share is None else f"{100 * share.share:.1f} [{100 * share.low:.0f}, {100 * share.high:.0f}]"
