# SPDX-License-Identifier: Apache-2.0
"""Percentiles from histograms: exact ranks, coverage, and what too few samples do not support."""

import random
from collections import Counter
from fractions import Fraction
from math import ceil, comb, log

import pytest
from pydantic import ValidationError

from calibration.base.percentiles import COVERAGE, Histogram, beyond_longest, merged, percentile, quantile_ranks


def of(values: list[int], width: int = 1) -> Histogram:
    """Return the histogram of *values*, in buckets of *width*."""
    counts = Counter(value // width * width for value in values)
    starts, widths = tuple(sorted(counts)), (width,) * len(counts)
    return Histogram(longest=max(values), starts=starts, widths=widths, counts=tuple(counts[at] for at in starts))


def chance_up_to(count: int, share: Fraction, most: int) -> Fraction:
    """Return the probability that at most so many of *count* samples are up to the quantile."""
    terms = (comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(most + 1))
    return sum(terms, start=Fraction(0))


@pytest.mark.parametrize("count", [1, 5, 6, 29, 100, 300])
@pytest.mark.parametrize("share", ["0.5", "0.9", "0.99"])
def test_ranks_are_the_narrowest_that_enclose_a_quantile_often_enough(count: int, share: str) -> None:
    exact, spare = Fraction(share), Fraction(1, 40)
    below = [chance_up_to(count, exact, k) for k in range(count + 1)]
    lows = [low for low in range(1, count + 1) if below[low - 1] <= spare]
    highs = [high for high in range(1, count + 1) if 1 - below[high - 1] <= spare]
    found = quantile_ranks(count, float(share))
    if not lows or not highs:
        assert found is None
        return
    assert found is not None
    low, high, coverage = found
    assert (low, high) == (max(lows), min(highs))
    assert coverage == pytest.approx(float(below[high - 1] - below[low - 1]), abs=1e-9)
    assert coverage >= COVERAGE


@pytest.mark.parametrize("percent", [99.0, 99.9, 99.999])
def test_a_percentile_takes_as_many_samples_as_bound_it_from_above(percent: float) -> None:
    least = ceil(log((1 - COVERAGE) / 2) / log(percent / 100))
    assert quantile_ranks(least - 1, percent / 100) is None
    found = quantile_ranks(least, percent / 100)
    assert found is not None
    assert found[1] == least, "the longest sample is the upper bound"


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0])
def test_intervals_hold_the_percentile_as_often_as_they_claim(percent: float) -> None:
    """The truth is that of a geometric distribution: in whole numbers, with a long tail, known exactly."""
    source, rate, runs, held = random.Random(7), 0.02, 400, 0
    truth = ceil(log(1 - percent / 100) / log(1 - rate))
    for _ in range(runs):
        values = [ceil(log(1 - source.random()) / log(1 - rate)) for _ in range(700)]
        found = percentile(of(values), percent, step=0)
        assert found is not None
        held += found.interval[0] <= truth <= found.interval[1]
    assert held / runs >= COVERAGE - 3 * (COVERAGE * (1 - COVERAGE) / runs) ** 0.5


@pytest.mark.parametrize(("count", "percent", "rank"), [(101, 50.0, 51), (100, 50.0, 50), (101, 90.0, 91)])
def test_a_percentile_is_the_first_sample_that_has_enough_up_to_it(count: int, percent: float, rank: int) -> None:
    found = percentile(of(list(range(1, count + 1))), percent)
    assert found is not None
    assert found.value == rank


def test_values_are_spread_over_their_bucket_or_the_step_of_the_clock() -> None:
    histogram = of([10] * 50 + [20] * 50)
    assert histogram.value_at(1, step=1) == pytest.approx(10 - 0.49)
    assert histogram.value_at(50, step=10) == pytest.approx(15 - 0.1)
    assert histogram.value_at(51, step=10) == pytest.approx(15 + 0.1)
    assert histogram.value_at(100, step=10) == pytest.approx(25 - 0.1)
    wide = of([64] * 2, width=64)
    assert [wide.value_at(rank, step=1) for rank in (1, 2)] == [64 + 15.5, 64 + 47.5]
    found = percentile(of([100] * 100), 50, step=10)
    assert found is not None
    assert found.interval == (90, 110)


def test_coarse_clocks_leave_the_percentile_where_it_is() -> None:
    """Two readings of a clock that advances in steps of 26, at random moments, around times that are known."""
    source, step = random.Random(3), 26
    truth = sorted(source.randint(150, 400) for _ in range(20_000))
    timed = [int((begin := source.random() * step) + time) // step * step - int(begin) // step * step for time in truth]
    for percent in (50.0, 90.0, 99.0):
        found = percentile(of(timed), percent, step)
        assert found is not None
        exact = truth[ceil(percent / 100 * len(truth)) - 1]
        assert abs(found.value - exact) < step / 2
        assert found.interval[0] <= exact <= found.interval[1]


def test_histograms_are_split_at_whole_buckets_and_add_up() -> None:
    histogram = merged([of([1, 5, 9, 9]), of([5, 64, 70])])
    assert histogram == of([1, 5, 5, 9, 9, 64, 70])
    assert histogram.mean == pytest.approx(sum([1, 5, 5, 9, 9, 64, 70]) / 7)
    below, rest = histogram.split(9.5)
    assert (below.total, below.longest, rest.total, rest.longest) == (5, 9, 2, 70)
    wide = merged([of([1, 2]), of([64, 300], width=64)])
    assert wide.split(200)[0].longest == 127, "the end of its last bucket"
    below, rest = of([64], width=64).split(100)
    assert (below.total, rest.total) == (0, 1)
    assert list(of([1, 1, 3, 8]).exceeding()) == [(1, 1.0), (3, 0.5), (8, 0.25)]


@pytest.mark.parametrize("wrong", [
    {"starts": (1, 2), "widths": (2, 1), "counts": (1, 1)},
    {"starts": (2, 1), "widths": (1, 1), "counts": (1, 1)},
    {"starts": (1,), "widths": (1,), "counts": (0,)},
    {"starts": (1, 2), "widths": (1, 1), "counts": (1,)},
])  # fmt: skip
def test_rejects_buckets_that_overlap_or_are_empty(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValidationError):
        Histogram(longest=9, **wrong)


def test_what_is_beyond_the_longest_is_bounded() -> None:
    assert beyond_longest(1) == pytest.approx(COVERAGE)
    assert (1 - beyond_longest(1000)) ** 1000 == pytest.approx(1 - COVERAGE)
