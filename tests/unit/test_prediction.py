# SPDX-License-Identifier: Apache-2.0
"""Bounds for coming nights have their stated coverage, whatever the spread comes from."""

from collections.abc import Sequence

import numpy as np
import pytest

from calibration.base.statistics import estimate
from calibration.judge.drift import DriftChange
from calibration.judge.prediction import (
    Level,
    NightlyHistory,
    Predicted,
    UnknownSpreadError,
    is_positive,
    level_of,
    outliers,
    predict,
)
from tests.unit.histories import noise, shift, steady


def nights(
    figures: Sequence[float | None],
    changes: tuple[DriftChange, ...] = (),
    *,
    half_width: float | None = None,
    coverage: float | None = None,
    placements: int | None = None,
    rounds: int | None = None,
) -> NightlyHistory:
    values = np.array([np.nan if value is None else value for value in figures], dtype=np.float64)
    half = np.nan if half_width is None else half_width
    analysis = steady(values.tolist(), changes)
    return NightlyHistory(values, values * (1 - half), values * (1 + half), analysis, coverage, placements, rounds)


def made(of: NightlyHistory) -> tuple[Level, Predicted]:
    level = level_of(of, positive=is_positive([of]))
    return level, predict([level], positive=is_positive([of]))


any_share = pytest.mark.parametrize("share", [0.1, pytest.param(0.02, marks=pytest.mark.thorough)])
"""The nights outside of each bound: the fewer, the more simulations it takes to see as many."""


@any_share
@pytest.mark.parametrize("count", [5, 8, 30])
def test_coverage_of_one_sut(count: int, share: float) -> None:
    generator = np.random.default_rng(count)
    outside, simulations = 0, round(60 / share)
    for row in 100 * np.exp(0.03 * generator.standard_normal((simulations, count + 1))):
        level = level_of(nights(row[:-1].tolist()), positive=True)
        found = predict([level], positive=True, outside=share)
        outside += not found.lower <= row[-1] <= found.upper
    expected = 2 * share * simulations
    assert abs(outside - expected) < 5 * np.sqrt(expected)


@any_share
@pytest.mark.parametrize("suts", [3, 10])
def test_coverage_of_several_suts(suts: int, share: float) -> None:
    generator = np.random.default_rng(suts)
    outside, simulations = 0, round(16 / share)
    for _ in range(simulations):
        centres = np.log(100) + 0.02 * generator.standard_normal(suts + 1)
        values = np.exp(centres[:, None] + 0.01 * generator.standard_normal((suts + 1, 12)))
        levels = [level_of(nights(row.tolist()), positive=True) for row in values[:-1]]
        found = predict(levels, positive=True, outside=share)
        assert found.method == "SUTs"
        outside += not found.lower <= values[-1, 0] <= found.upper
    expected = 2 * share * simulations
    assert outside < expected + 5 * np.sqrt(expected)
    assert outside > expected / 4


def test_bounds_follow_the_spread() -> None:
    _, calm = made(nights(noise(30, spread=0.002)))
    _, wild = made(nights(noise(30, spread=0.05)))
    assert calm.upper / calm.lower < 1.03
    assert 1.4 < wild.upper / wild.lower < 2
    assert calm.lower < calm.value < calm.upper
    assert calm.value == pytest.approx(100, rel=0.002)
    assert "spread of 30 nights at this level; 0.01 % outside per side" in calm.why


def test_an_outlier_is_excluded() -> None:
    row = noise(20)
    clean, _ = made(nights(row))
    level, found = made(nights([*row[:7], 50.0, *row[7:]]))
    assert 7 not in level.columns
    assert len(level.columns) == 20
    assert level.spread == pytest.approx(clean.spread)
    assert "1 outlying night left out" in found.why


@pytest.mark.parametrize("count", [10, 40])
def test_outliers_are_rarely_false(count: int) -> None:
    found = sum(bool(len(outliers(row))) for row in np.random.default_rng(7).standard_normal((2000, count)))
    assert found < 60


def test_two_outliers_do_not_hide_each_other() -> None:
    row = np.array([*noise(18), 200.0, 201.0])
    assert outliers(row).tolist() == [18, 19]


def test_an_undetected_level_uses_the_spread_of_earlier_nights() -> None:
    level, found = made(nights([*noise(20), 90.0]))
    assert level.columns == (20,)
    assert found.value == pytest.approx(90)
    assert found.method == "other nights"
    assert 80 < found.lower < 90 < found.upper < 99


def test_a_new_level_uses_the_spread_of_earlier_levels() -> None:
    row = [*noise(20), 90.5, 89.5]
    level, found = made(nights(row, (shift(20, 100.0, 90.0),)))
    assert level.columns == (20, 21)
    assert level.degrees == 20
    assert found.method == "other nights"
    assert found.lower > 80


def test_a_misdated_night_does_not_widen_the_bounds() -> None:
    row = [*noise(20), 100.0, *noise(6, 90.0)]
    level, found = made(nights(row, (shift(20, 100.0, 90.0),)))
    assert level.columns == tuple(range(21, 27))
    assert found.upper < 96


def test_nights_before_a_spread_change_are_not_used() -> None:
    row = [*noise(20, spread=0.001), 92.0, 108.0]
    with pytest.raises(UnknownSpreadError, match="only 2 nights at this level"):
        made(nights(row, (shift(20, 0.001, 0.1, "spread"),)))
    later = [*noise(20, spread=0.001), *noise(12, spread=0.05), 90.5, 89.5]
    level, _ = made(nights(later, (shift(20, 0.001, 0.05, "spread"), shift(32, 100.0, 90.0))))
    assert level.degrees == 12
    assert level.spread > 0.02


def test_one_night_is_bounded_by_its_interval() -> None:
    level, found = made(nights([100.0], half_width=0.01, coverage=0.9375, placements=5))
    assert found.method == "run"
    assert level.degrees == 4
    assert level.spread == pytest.approx(0.01 / 2.562, rel=0.01)  # Student's t of 4 degrees at 96.9 %
    assert found.upper / 100 == pytest.approx(np.exp(13.03 * level.spread * np.sqrt(2)), rel=0.01)
    assert "only 1 night at this level and none before it" in found.why


def test_one_night_in_rounds_is_bounded_by_what_its_rounds_know() -> None:
    level, found = made(nights([100.0], half_width=0.01, coverage=0.96875, placements=12, rounds=6))
    assert (found.method, level.degrees) == ("run", 5)
    assert level.spread == pytest.approx(0.01 / 2.965, rel=0.01)  # Student's t of 5 degrees at 98.4 %
    assert "spread between 6 rounds within the run" in found.why
    at_once, _ = made(nights([100.0], half_width=0.01, coverage=0.96875, placements=12, rounds=1))
    assert at_once.degrees == 11


@pytest.mark.parametrize("share", [0.025, pytest.param(0.005, marks=pytest.mark.thorough)])
def test_bounds_of_one_run_in_rounds_hold_the_next_run(share: float) -> None:
    generator = np.random.default_rng(6)
    outside, simulations = 0, round(40 / share)
    for rounds in 100 * np.exp(0.01 * generator.standard_normal((simulations, 2, 6))):
        run, after = (estimate([[value] for value in values], "ns", rounds=range(6)) for values in rounds)
        half_width, coverage = run.half_width, run.coverage
        level = level_of(nights([run.value], half_width=half_width, coverage=coverage, rounds=6), positive=True)
        found = predict([level], positive=True, outside=share)
        outside += not found.lower <= after.value <= found.upper
    assert 0.1 < outside / (2 * share * simulations) < 1.1


def test_one_night_without_an_interval_has_no_bounds() -> None:
    with pytest.raises(UnknownSpreadError, match="no interval: its variation is unknown"):
        made(nights([100.0]))
    with pytest.raises(UnknownSpreadError):
        made(nights([100.0], half_width=0.01, coverage=None, placements=1))


@pytest.mark.parametrize("row", [noise(7, spread=0.0001), [100.0] * 20])
def test_too_small_a_spread_is_raised_to_the_interval(row: list[float]) -> None:
    level, found = made(nights(row, half_width=0.01, coverage=0.95, placements=9))
    assert level.spread == pytest.approx(0.01 / 2.306, rel=0.01)
    assert "at least that between 9 placements within a run" in found.why


def test_enough_nights_outweigh_the_interval() -> None:
    level, found = made(nights(noise(30, spread=0.0001), half_width=0.01, coverage=0.95, placements=9))
    assert found.method == "nights"
    assert level.spread < 0.0002


def test_a_constant_metric_has_constant_bounds() -> None:
    _, found = made(nights([0.0] * 12))
    assert (found.lower, found.value, found.upper, found.method) == (0.0, 0.0, 0.0, "constant")
    assert "equal on all 12 nights" in found.why


def test_metrics_with_zeros_use_a_linear_scale() -> None:
    of = nights([0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 2.0])
    assert not is_positive([of])
    _, found = made(of)
    assert found.lower < 0 < found.upper
    assert not found.relative


def test_gaps_do_not_matter() -> None:
    row = noise(20)
    gaps: list[float | None] = [*row[:10], None, None, *row[10:]]
    _, one = made(nights(row))
    level, other = made(nights(gaps))
    assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper))
    assert 10 not in level.columns
