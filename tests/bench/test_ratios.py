# SPDX-License-Identifier: Apache-2.0
"""Ratios of alternating measurements: known answers, and coverage in simulated noise of known autocorrelation."""

import math
import random

import pytest

from bench.peers import LOOK, PAIRS, PRECISION
from bench.ratios import FEWEST, spread


def test_the_interval_is_that_of_block_medians() -> None:
    found = spread([8.0, 2.0, 7.0, 1.0, 6.0, 3.0, 5.0, 4.0])
    assert found.value == pytest.approx(math.sqrt(20.0))
    assert found.low == pytest.approx(1.0)
    assert found.high == pytest.approx(8.0)


def test_neighbours_are_one_block() -> None:
    """Sixteen blocks of three: an outlier in each is no sample of its own."""
    found = spread([1.0, 100.0, 1.0] * 16)
    assert found == (1.0, 1.0, 1.0)


def test_blocks_that_still_correlate_widen_the_interval() -> None:
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
    trend, mixed = spread(values), spread([values[index] for index in (3, 0, 6, 1, 7, 2, 5, 4)])
    assert trend.precision is not None
    assert mixed.precision is not None
    assert trend.precision > 1.5 * mixed.precision


def test_precision_is_half_the_width() -> None:
    assert spread([1.0]).precision is None
    found = spread([1.0 / 1.05, 1.05] * 8)
    assert found.precision == pytest.approx(0.05)


def test_few_samples_have_no_interval() -> None:
    assert spread([2.0] * (FEWEST - 1))[1:] == (None, None)
    assert spread([2.0] * FEWEST).low == pytest.approx(2.0)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [1.0, 0.0], [-1.0]])
def test_missing_and_infinite_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="not finite and positive samples"):
        spread(samples)


def noise(source: random.Random, count: int, correlation: float) -> list[float]:
    """Ratios of one against itself: 6 % of autocorrelated noise, and now and then a disturbance of one side."""
    state = source.gauss(0.0, 1.0)
    ratios = []
    for _ in range(count):
        state = correlation * state + math.sqrt(1.0 - correlation**2) * source.gauss(0.0, 1.0)
        shock = source.choice((-1, 1)) * source.expovariate(3.0) if source.random() < 0.03 else 0.0
        ratios.append(math.exp(0.06 * state + shock))
    return ratios


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.8])
def test_an_interval_that_ends_the_alternation_covers_the_truth(correlation: float) -> None:
    """Looked at as often as the alternation does, until it is narrow: that must cover too."""
    source = random.Random(7)
    covered, widths = 0, []
    for _ in range(600):
        ratios = noise(source, 400, correlation)
        for count in range(PAIRS, len(ratios) + 1, LOOK):
            _value, low, high = found = spread(ratios[:count])
            width = found.precision
            assert None not in {low, high, width}
            if width is not None and width <= PRECISION:
                break
        covered += low is not None and high is not None and low <= 1.0 <= high
        widths.append(width or math.inf)
    assert covered >= 0.93 * 600
    assert sorted(widths)[300] <= PRECISION
