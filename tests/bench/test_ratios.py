# SPDX-License-Identifier: Apache-2.0
"""Ratios of alternating measurements: known answers, and coverage in simulated noise of known autocorrelation."""

import math
import random

import pytest

from bench.peers import LOOK, PAIRS, PRECISION
from bench.ratios import FEWEST, spread


def test_the_interval_is_that_of_block_medians() -> None:
    found = spread([8.0, 2.0, 7.0, 1.0, 6.0, 3.0, 5.0, 4.0])
    assert found == (pytest.approx(math.sqrt(20.0)), pytest.approx(1.0), pytest.approx(8.0))
    assert found.precision == pytest.approx(math.sqrt(8.0) - 1)
    # Sixteen blocks of three: an outlier in each is no sample of its own.
    assert spread([1.0, 100.0, 1.0] * 16) == (1.0, 1.0, 1.0)
    assert spread([2.0] * (FEWEST - 1))[1:] == (None, None)


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


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.8])
def test_an_interval_that_ends_the_alternation_covers_the_truth(correlation: float) -> None:
    """Looked at as often as the alternation does, until it is narrow: that must cover too."""
    source = random.Random(7)
    covered, widths = 0, []
    for _ in range(600):
        ratios = noise(source, 400, correlation)
        looks = (spread(ratios[:count]) for count in range(PAIRS, len(ratios) + 1, LOOK))
        found = [look for look in looks if look.precision]
        ended = next((look for look in found if look.precision and look.precision <= PRECISION), found[-1])
        covered += ended.low is not None and ended.high is not None and ended.low <= 1.0 <= ended.high
        widths.append(ended.precision or math.inf)
    assert covered >= 0.93 * 600
    assert sorted(widths)[300] <= PRECISION
