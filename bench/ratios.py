# SPDX-License-Identifier: Apache-2.0
"""Ratios of values that were measured in alternation."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from calibration.runner.intervals import median_ranks


class Spread(NamedTuple):
    """Median of samples and the distribution-free interval around it."""

    value: float
    low: float
    high: float


def spread(samples: Sequence[float]) -> Spread:
    """Return median and interval of *samples*. Raises ``ValueError`` if there are none or one is not finite."""
    if not samples or not all(math.isfinite(sample) for sample in samples):
        raise ValueError(f"not finite samples: {list(samples)}")
    low, high, _coverage = median_ranks(len(samples))
    ordered = sorted(samples)
    return Spread(median(ordered), ordered[low - 1], ordered[high - 1])


class Comparison(NamedTuple):
    """Ours against the peer with the best median value; ``None`` if there is no peer."""

    ours: Spread
    peer: str | None
    theirs: Spread | None
    ratio: Spread | None


def compare(ours: Sequence[float], peers: Mapping[str, Sequence[float]], *, higher_is_better: bool) -> Comparison:
    """Compare *ours* with the best of *peers*: samples of one alternation are at the same place of each.

    A peer without any sample is left out; of an incomplete last alternation only whole pairs count.
    """
    values = {name: spread(samples) for name, samples in peers.items() if samples}
    if not values:
        return Comparison(spread(ours), None, None, None)
    pick: Callable[..., str] = max if higher_is_better else min
    best = pick(values, key=lambda name: values[name].value)
    ratios = [mine / other for mine, other in zip(ours, peers[best], strict=False)]
    return Comparison(spread(ours), best, values[best], spread(ratios))
