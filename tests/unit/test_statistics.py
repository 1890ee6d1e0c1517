# SPDX-License-Identifier: Apache-2.0
"""Estimates and their intervals."""

import random
from fractions import Fraction
from itertools import permutations
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from calibration.base.statistics import (
    Estimate,
    _agreement,
    _trend_chance,
    combined,
    estimate,
    is_bimodal,
    relative_spread,
)
from calibration.runner.intervals import median_ranks


@pytest.mark.parametrize(("count", "low", "high", "coverage"), [
    # published exact binomial values for the median (David and Nagaraja, section 7.1)
    (6, 1, 6, 0.96875),
    (9, 2, 8, 0.9609375),
    (11, 2, 10, 0.98828125),
    (15, 4, 12, 0.96484375),
    (31, 10, 22, 0.97055),
])  # fmt: skip
def test_ranks_follow_the_binomial(count: int, low: int, high: int, coverage: float) -> None:
    found = median_ranks(count)
    assert found[:2] == (low, high)
    assert found[2] == pytest.approx(coverage, abs=1e-5)


@pytest.mark.parametrize("count", [1001, 1024, 2000, 3001])
def test_ranks_of_many_samples_cover_enough(count: int) -> None:
    low, high, coverage = median_ranks(count)
    assert low + high == count + 1
    exact = 1 - Fraction(2 * sum(comb(count, below) for below in range(low)), 2**count)
    assert coverage == pytest.approx(float(exact), abs=1e-4)
    assert 0.95 <= exact < 0.96


def test_few_samples_use_their_extremes() -> None:
    assert median_ranks(5) == (1, 5, 0.9375)
    assert median_ranks(1) == (1, 1, 0.0)
    with pytest.raises(ValueError, match="no samples"):
        median_ranks(0)


def test_interval_coverage_is_as_stated() -> None:
    draw = random.Random(20)
    covered = 0
    for _ in range(2000):
        figure = estimate([[draw.lognormvariate(0, 0.3)] for _ in range(9)], "ns")
        assert figure.interval is not None
        covered += figure.interval[0] <= 1.0 <= figure.interval[1]
    assert covered / 2000 == pytest.approx(0.961, abs=0.015)


def test_placement_is_the_unit_of_replication() -> None:
    # windows agree within a placement to 0.1, placements differ by 5: the interval must show the 5
    figure = estimate([[100 + 5 * k, 100.1 + 5 * k, 100.2 + 5 * k] for k in range(6)], "ns", target_half_width=0.01)
    assert figure.value == pytest.approx(112.6)
    assert figure.interval == (pytest.approx(100.1), pytest.approx(125.1))
    assert figure.estimator == "median_of_placements"
    assert figure.converged is False
    assert figure.within_spread is not None
    assert figure.between_spread is not None
    assert figure.within_spread < figure.between_spread / 10


def test_one_placement_uses_its_windows() -> None:
    figure = estimate([[3.0, 1.0, 2.0]], "ns")
    assert (figure.estimator, figure.value, figure.between_spread) == ("median_of_windows", 2.0, None)


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []]])
def test_rejects_missing_samples(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="without windows"):
        estimate(samples, "ns")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rejects_non_finite_values(bad: float) -> None:
    with pytest.raises(ValidationError):
        estimate([[1.0, bad, 2.0]] * 6, "ns")


@given(st.lists(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=9), min_size=1, max_size=20))
def test_every_estimate_is_consistent(samples: list[list[float]]) -> None:
    figure = estimate(samples, "MB/s")
    assert figure.minimum <= figure.value <= figure.maximum
    assert figure.windows == sum(map(len, samples))
    if figure.interval is not None:
        assert figure.minimum <= figure.interval[0] <= figure.value <= figure.interval[1] <= figure.maximum
    assert Estimate.model_validate_json(figure.model_dump_json()) == figure


def test_finds_two_levels_only_if_present() -> None:
    draw = random.Random(3)
    one = [[draw.gauss(100, 3) for _ in range(54)] for _ in range(300)]
    two = [[draw.choice((100, 108)) + draw.gauss(0, 1) for _ in range(54)] for _ in range(300)]
    assert sum(map(is_bimodal, one)) == 0
    assert sum(map(is_bimodal, two)) == 300
    assert not is_bimodal([100.0] * 50)
    assert not is_bimodal([100.0, 200.0] * 8)  # too few to tell
    assert not is_bimodal([100.0] * 50 + [200.0] * 2)  # outliers are not a level
    assert not is_bimodal([100.0, 100.5] * 30)  # two levels that no reader would mind


def test_spread_is_that_of_a_normal_distribution() -> None:
    draw = random.Random(5)
    samples = [draw.gauss(100, 2) for _ in range(20000)]
    assert relative_spread(samples) == pytest.approx(0.02, rel=0.05)
    assert relative_spread([1.0]) is None
    assert relative_spread([0.0, 0.0, 0.0]) is None


def test_the_interval_is_the_narrowest_that_covers_enough() -> None:
    for count in range(6, 120):
        low, high, coverage = median_ranks(count)
        assert coverage >= 0.95
        assert low + high == count + 1
        narrower = 1 - 2 * sum(comb(count, below) for below in range(low + 1)) / 2**count
        assert narrower < 0.95


def test_spread_and_convergence_follow_the_definition() -> None:
    samples = [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 2.0, 9.0], [2.0, 2.5, 2.0]]
    found = estimate(samples, "ns")
    spreads = [1.4826 * 1 / 2, 0.0, 1.4826 * 1 / 2, 0.0]
    assert found.within_spread == pytest.approx(sum(spreads) / 4)
    medians = [[90.0], [95.0], [99.0], [101.0], [105.0], [110.0]]
    assert estimate(medians, "ns").half_width == pytest.approx(0.1)
    assert estimate(medians, "ns", target_half_width=0.1001).converged is True
    assert estimate(medians, "ns", target_half_width=0.0999).converged is False


def in_rounds(values: np.ndarray, **details: Any) -> Estimate:
    """Return the estimate of *values* by round and placement."""
    rounds = [number for number, placements in enumerate(values) for _ in placements]
    return estimate([[value] for value in values.ravel().tolist()], "ns", rounds=rounds, **details)


@pytest.mark.parametrize(("design", "most"), [((6, 2), 0.003), ((6, 1), 0.006), ((9, 1), 0.006)])
def test_rounds_that_do_not_differ_are_rarely_flagged(design: tuple[int, int], most: float) -> None:
    draw = np.random.default_rng(1)
    runs = [in_rounds(100 + 5 * draw.standard_normal(design)) for _ in range(2000)]
    assert sum(bool(run.flags) for run in runs) <= most * len(runs)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_the_chance_of_a_trend_is_its_share_of_all_orders(count: int) -> None:
    found = [_agreement(range(count), order) for order in permutations(range(count))]
    for agreement in {*found} - {0.0}:
        share = sum(abs(other) >= abs(agreement) - 1e-9 for other in found) / len(found)
        assert _trend_chance(count, abs(agreement)) == pytest.approx(share)


@pytest.mark.parametrize("design", [(6, 2), (6, 1), (9, 1)])
def test_a_trend_over_the_rounds_is_flagged_where_it_matters(design: tuple[int, int]) -> None:
    draw = np.random.default_rng(2)
    trend = 100 + np.arange(design[0])[:, None] + 0.05 * draw.standard_normal(design)
    (flag,) = in_rounds(trend, target_half_width=0.01).flags
    assert flag.code == "NOT_STATIONARY"
    assert in_rounds(trend, target_half_width=0.05).flags == ()


def test_an_interval_of_few_rounds_meets_no_target() -> None:
    values = np.full((4, 1), 100.0)
    found = in_rounds(values, target_half_width=0.01)
    assert (found.half_width, found.coverage, found.converged) == (0.0, 0.875, False)
    assert in_rounds(np.full((6, 1), 100.0), target_half_width=0.01).converged


def test_the_spreads_of_rounds_and_placements_are_told_apart() -> None:
    draw = np.random.default_rng(3)
    values = 100 + 2 * draw.standard_normal((500, 1)) + 4 * draw.standard_normal((500, 3))
    found = in_rounds(values)
    assert found.rounds_spread == pytest.approx(0.02, rel=0.2)  # 0.031 with what placements explain
    assert found.between_spread == pytest.approx(0.04, rel=0.1)
    assert found.largest_spread == ("placements", found.between_spread)


def test_what_is_combined_is_of_the_same_round() -> None:
    """One lost its second round; the others go on drifting alike."""
    drift = [[100.0], [110.0], [120.0], [130.0]]
    whole = estimate(drift, "ns", rounds=(1, 2, 3, 4))
    lacking = estimate([drift[0], *drift[2:]], "ns", rounds=(1, 3, 4))
    ratio = combined([whole, lacking], lambda values: values[0] / values[1], "fraction")
    assert ratio is not None
    assert ratio.rounds == (1, 3, 4)
    assert ratio.centres == (1.0, 1.0, 1.0)
    last = estimate(drift[:1], "ns", rounds=(2,))
    assert combined([lacking, last], max, "ns") is None
