# SPDX-License-Identifier: Apache-2.0
"""The interval of a median, shared with the controller."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

COVERAGE_WANTED = 0.95
"""The interval is the narrowest symmetric one that covers the median at least this often."""

MOMENTS = sqrt(2)
"""Factor by which an interval from rounds is wider than their order statistics.

The rounds of a run share what changes over minutes. Runs minutes apart differed by one to two times the variance that
independent rounds explain (docs/method/statistics.rst), so the interval allows for twice.
"""

EXACT_SAMPLES = 1000
"""Ranks of more samples come from the normal distribution, whose coverage is then right to 0.0001."""


def median_ranks(count: int, coverage: float = COVERAGE_WANTED) -> tuple[int, int, float]:
    """Return the ranks (1-based) of the order statistics that bound the median, and the coverage they reach.

    *count* samples are assumed independent. If even the extremes cover less than *coverage* (fewer than six samples),
    they are returned with their actual coverage.
    """
    if count < 1:
        raise ValueError("no samples")
    if count > EXACT_SAMPLES:
        from statistics import NormalDist  # noqa: PLC0415 - never that many beside a measurement

        deviation = sqrt(count) / 2
        low = int(count / 2 - NormalDist().inv_cdf((1 + coverage) / 2) * deviation)
        return low, count + 1 - low, 1 - 2 * NormalDist(count / 2, deviation).cdf(low - 0.5)
    ways, outside = 1, 1
    best = (1, count, _coverage(count, outside))
    for low in range(2, count // 2 + 1):
        ways = ways * (count - low + 2) // (low - 1)
        outside += ways
        reached = _coverage(count, outside)
        if reached < coverage:
            break
        best = (low, count + 1 - low, reached)
    return best


def _coverage(count: int, outside: int) -> float:
    """Return the probability that the median lies between two ranks, each with *outside* samples beyond it."""
    return 1.0 - 2.0 * outside / 2.0**count if count > 1 else 0.0


def middle(values: Sequence[float]) -> float:
    """Return the median of *values*. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
