# SPDX-License-Identifier: Apache-2.0
"""Ratios of values that were measured in alternation."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from calibration.runner.intervals import median_ranks

BLOCKS = 17  # of neighbours, which differ more independently than single ratios; its ranks cover hardly more than 95 %
FEWEST = 6  # blocks: fewer have no interval that covers the median 95 % of the time
ALIKE = 0.03  # logarithm: values of a side that differ by no more are not disturbed
DISTURBED = 2.5  # times the usual difference: less drops what is noise, more keeps what a neighbour did for a second
MOST = 0.9  # correlation of blocks that has a usable interval: it is already four times as wide


class Spread(NamedTuple):
    """Median and the interval around it; ``None``: too few samples for an interval."""

    value: float
    low: float | None
    high: float | None

    @property
    def precision(self) -> float | None:
        """Half the width of the interval, relative: 0.03 is ±3 %."""
        if self.low is None or self.high is None:
            return None
        return math.sqrt(self.high / self.low) - 1.0


class Quadruple(NamedTuple):
    """Two values of each side, in the order ours, theirs, theirs, ours or the reverse: linear drift cancels."""

    ours: float
    ours_again: float
    theirs: float
    theirs_again: float

    @property
    def ratio(self) -> float:
        """Ours to theirs."""
        return math.sqrt(self.ours * self.ours_again / (self.theirs * self.theirs_again))

    @property
    def apart(self) -> tuple[float, float]:
        """How far the values of each side differ, as a logarithm."""
        return abs(math.log(self.ours / self.ours_again)), abs(math.log(self.theirs / self.theirs_again))


def undisturbed(quadruples: Sequence[Quadruple]) -> list[Quadruple]:
    """Return the *quadruples* in which neither side differs from itself by more than a bound, the same for both.

    It is ``DISTURBED`` times the median of the larger difference of each quadruple, or ``ALIKE``.
    """
    differences = [max(one.apart) for one in quadruples]
    bound = max(ALIKE, DISTURBED * median(differences or (0.0,)))
    return [one for one, difference in zip(quadruples, differences, strict=True) if difference <= bound]


def spread(samples: Sequence[float]) -> Spread:
    """Return median and distribution-free interval of positive *samples* in the order of their measurement.

    The interval is that of order statistics of the medians of blocks of neighbours, wider by the autocorrelation that
    is left between the blocks. Raises ``ValueError`` if there are none, or one is not finite and positive.
    """
    if not samples or not all(math.isfinite(sample) and sample > 0.0 for sample in samples):
        raise ValueError(f"not finite and positive samples: {list(samples)}")
    count = min(BLOCKS, len(samples))
    edges = [len(samples) * number // count for number in range(count + 1)]
    blocks = [math.log(median(samples[begin:end])) for begin, end in pairwise(edges)]
    centre = median(blocks)
    if count < FEWEST:
        return Spread(math.exp(centre), None, None)
    low, high, _coverage = median_ranks(count)
    ordered = sorted(blocks)
    wider = _inflation([block - centre for block in blocks])
    bounds = (centre - wider * (centre - ordered[low - 1]), centre + wider * (ordered[high - 1] - centre))
    return Spread(math.exp(centre), math.exp(bounds[0]), math.exp(bounds[1]))


def _inflation(deviations: Sequence[float]) -> float:
    """Return how much wider an interval is for a series whose neighbours correlate as these do (first-order model)."""
    squares = sum(deviation**2 for deviation in deviations)
    if squares == 0.0:
        return 1.0
    products = sum(one * other for one, other in pairwise(deviations))
    count = len(deviations)
    # Of so few the correlation is found too small, by (1 + 3 times itself) / count on average.
    correlation = min(MOST, max(0.0, (count * products / squares + 1.0) / (count - 3.0)))
    return math.sqrt((1.0 + correlation) / (1.0 - correlation))
