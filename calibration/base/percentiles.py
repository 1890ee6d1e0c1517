# SPDX-License-Identifier: Apache-2.0
"""Percentiles of many samples counted in the buckets of a histogram, with distribution-free intervals.

The number of samples up to the percentile is binomial, so two order statistics enclose it with a known probability
(David and Nagaraja, *Order Statistics*, section 7.1). If the upper one would be beyond the longest sample, there are
too few samples for this percentile: it is not estimated.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, log, log1p
from typing import NamedTuple, Self

from pydantic import model_validator

from calibration.base.model import Model

COVERAGE = 0.95
"""Least probability with which an interval holds the percentile."""


class Histogram(Model):
    """Counts of whole numbers: bucket ``i`` has those from ``starts[i]``, ``widths[i]`` values wide; none is empty."""

    longest: int
    starts: tuple[int, ...]
    widths: tuple[int, ...]
    counts: tuple[int, ...]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not len(self.starts) == len(self.widths) == len(self.counts):
            raise ValueError("starts, widths and counts of different lengths")
        ends = [start + width for start, width in zip(self.starts, self.widths, strict=True)]
        if any(end > start for end, start in zip(ends, self.starts[1:], strict=False)):
            raise ValueError("buckets overlap, or are not in ascending order")
        if min((*self.counts, *self.widths), default=1) < 1:
            raise ValueError("a bucket without a count or a width")
        return self

    @property
    def total(self) -> int:
        """The number of samples."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean, of each bucket its middle; raises ``ZeroDivisionError`` without samples."""
        middles = (start + (width - 1) / 2 for start, width in zip(self.starts, self.widths, strict=True))
        return sum(middle * count for middle, count in zip(middles, self.counts, strict=True)) / self.total

    def split(self, at: float) -> tuple["Histogram", "Histogram"]:
        """Return the buckets wholly below *at*, and the others; the longest of the former is the end of its bucket."""
        buckets = list(zip(self.starts, self.widths, self.counts, strict=True))
        below = [bucket for bucket in buckets if bucket[0] + bucket[1] - 1 < at]
        rest = buckets[len(below) :]
        end = below[-1][0] + below[-1][1] - 1 if below else 0
        return _of(below, min(self.longest, end)), _of(rest, self.longest if rest else 0)

    def exceeding(self) -> Iterator[tuple[int, float]]:
        """Yield the start of each bucket, and the share of samples in it or beyond."""
        left = total = self.total
        for start, count in zip(self.starts, self.counts, strict=True):
            yield start, left / total
            left -= count

    def bucket_at(self, rank: int) -> tuple[int, int]:
        """Return the first and the last value of the bucket of the sample of *rank* (1-based, ascending)."""
        place = bisect_left(list(accumulate(self.counts)), rank)
        return self.starts[place], self.starts[place] + self.widths[place] - 1

    def value_at(self, rank: int, step: float) -> float:
        """Return the sample of *rank*, those of a bucket spread evenly over its width, or over *step* if wider."""
        ends = list(accumulate(self.counts))
        place = bisect_left(ends, rank)
        before = (ends[place] - rank + 0.5) / self.counts[place]
        middle = self.starts[place] + (self.widths[place] - 1) / 2
        return middle + max(step, float(self.widths[place])) * (0.5 - before)


def _of(buckets: Iterable[tuple[int, int, int]], longest: int) -> Histogram:
    starts, widths, counts = zip(*buckets, strict=True) if (buckets := list(buckets)) else ((), (), ())
    return Histogram(longest=longest, starts=starts, widths=widths, counts=counts)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of *histograms*, whose buckets are those of one scheme."""
    counts: Counter[tuple[int, int]] = Counter()
    longest = 0
    for histogram in histograms:
        for start, width, count in zip(histogram.starts, histogram.widths, histogram.counts, strict=True):
            counts[start, width] += count
        longest = max(longest, histogram.longest)
    return _of(((start, width, count) for (start, width), count in sorted(counts.items())), longest)


def worst_but(percent: float, values: Sequence[float]) -> float | None:
    """Return the value that *percent* of *values* do not exceed; ``None`` of so few that it would be the greatest."""
    rank = ceil(len(values) * percent / 100)
    return sorted(values)[rank - 1] if rank < len(values) else None


class Percentile(NamedTuple):
    """A percentile in the histogram's unit, the interval that holds it, and the probability that it does.

    Ends are those of buckets, widened by the step of the clock that the samples were timed with.
    """

    value: float
    interval: tuple[float, float]
    coverage: float


def percentile(histogram: Histogram, percent: float, step: float = 1.0) -> Percentile | None:
    """Return the percentile of *histogram* at *percent*, above 0 and below 100; ``None`` if it has too few samples.

    If the clock advances in steps, two readings are up to a *step* further apart, or nearer, than what they time.
    """
    count, share = histogram.total, percent / 100
    ranks = quantile_ranks(count, share)
    if ranks is None:
        return None
    low, high, coverage = ranks
    first, last = histogram.bucket_at(low)[0], histogram.bucket_at(high)[1]
    return Percentile(histogram.value_at(ceil(share * count), step), (max(0.0, first - step), last + step), coverage)


@lru_cache(maxsize=64)  # hundreds of CPUs have as many samples each
def quantile_ranks(count: int, share: float) -> tuple[int, int, float] | None:
    """Return the ranks (1-based) of *count* samples that enclose the quantile at *share*, and how often they do.

    At least ``COVERAGE``, with equal chances on both sides; ``None`` if no two ranks do.
    """
    if count < 1:
        return None
    outside = (1 - COVERAGE) / 2
    low, high = (_binomial_rank(chance, count, share) for chance in (outside, 1 - outside))
    if low < 1 or high >= count:
        return None
    # sample `low` is too high if fewer than `low` are up to the quantile; the one after `high` too low if more are
    return low, high + 1, _binomial_share(high, count, share) - _binomial_share(low - 1, count, share)


def _binomial_rank(chance: float, count: int, share: float) -> int:
    """Return the smallest number that at most as many of *count* are with at least this *chance*, each by *share*."""
    from scipy.special import bdtrik  # noqa: PLC0415 - slow, and only percentiles need it

    near = max(0, ceil(bdtrik(chance, count, share)) - 1)  # rounded, to either side
    return next(most for most in range(near, count + 1) if _binomial_share(most, count, share) >= chance)


def _binomial_share(most: int, count: int, share: float) -> float:
    """Return the chance that at most *most* of *count* are, each by *share*."""
    from scipy.special import betaincc  # noqa: PLC0415 - as above; scipy.stats takes a second and 50 MB

    return float(betaincc(most + 1, count - most, share)) if most < count else 1.0


def beyond_longest(count: int) -> float:
    """Return the share of all samples beyond the longest of *count*, at most, with probability ``COVERAGE``."""
    return 1 - exp(log(1 - COVERAGE) / count)


def samples_for(share: float) -> int:
    """Return how many samples there must be so that :func:`beyond_longest` is at most *share*."""
    return ceil(log(1 - COVERAGE) / log1p(-share))
