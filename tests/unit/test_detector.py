# SPDX-License-Identifier: Apache-2.0
"""The detector's statistics match hand calculations; its false alarm and detection rates are as stated."""

from math import log, sqrt

import numpy as np
import pytest
from scipy.special import fdtri, ndtr, stdtrit

from calibration.judge import detector
from calibration.judge.detector import Walk, correlation_of, normal_of_ratio, normal_of_student
from tests.unit.simulated_nights import (
    RISE,
    RISE_NIGHTS,
    SHIFT,
    SHIFT_NIGHTS,
    count_false_alarms,
    detected,
    generate,
    with_drift,
    with_shift,
)


def walked(values: np.ndarray) -> Walk:
    """Return the walk through *values*, one series per column."""
    walk = Walk(values, np.full(values.shape[1], len(values)))
    walk.run()
    return walk


def changes(values: list[float]) -> list[tuple[int, str]]:
    return list(walked(np.array(values, dtype=np.float64)[:, None]).begins[0])


# By hand


def wallace(student: float, degrees: float) -> float:
    return (8.0 * degrees + 1.0) / (8.0 * degrees + 3.0) * sqrt(degrees * log(1.0 + student**2 / degrees))


def test_jump_threshold_matches_hand_calculation() -> None:
    reference = [1.0, -1.0] * 6
    variance = 12.0 / 11.0  # around a mean of 0
    covariance = (-8.0 - 1.0 - 120.0 / 121.0) / 11.0  # of neighbours, off the mean of those before from the 11th on
    rho = (11.0 * covariance / variance + 50.0 * 0.25) / (11.0 + 50.0)

    def normal(value: float) -> float:
        size, last = value / sqrt(variance), -1.0 / sqrt(variance)
        total = size - rho * last + 2.0 * (1.0 - rho) * (size - rho * size)  # as a jump of 1 is: 1, 1 - rho, 1 - rho
        squares, weights = 1.0 + 2.0 * (1.0 - rho) ** 2, 1.0 + 2.0 * (1.0 - rho)
        of_level = (weights * (1.0 - rho)) ** 2 * (1.0 + rho) / (1.0 - rho) / 12.0
        return wallace(total / sqrt(squares * (1.0 - rho**2) + of_level), 11.0)

    assert normal(3.40) < 3.5 < normal(3.44)
    assert changes([*reference, 3.40, 3.40, 3.40]) == []
    assert changes([*reference, 3.44, 3.44, 3.44]) == [(12, "level")]


QUIET = [2.0, -2.0, 1.0, -1.0] * 14
"""Alternates, so that it is taken for independent. On the 56th night 42 are the reference."""

DEVIATION = sqrt(108.0 / 41.0)
"""Of the first 42, of which the mean is 0."""


def test_drift_threshold_matches_hand_calculation() -> None:
    def drift(rise: float) -> list[float]:
        return [rise * DEVIATION * night for night in range(1, 15)]

    def normal(rise: float) -> float:
        squares, weights = 1015.0, 105.0  # of 1 to 14
        return wallace(squares * rise / sqrt(squares + weights**2 / 42.0), 41.0 / 2.0)

    assert normal(0.107) < 2.75 < normal(0.109)
    assert changes([*QUIET[:42], *drift(0.107)]) == []
    assert [kind for _, kind in changes([*QUIET[:42], *drift(0.109)])] == ["level"]


def test_weights_match_the_change_minus_its_autocorrelation() -> None:
    walk = Walk(np.zeros((1, 4)), np.zeros(4, np.intp))
    walk.state[[detector.COUNT, detector.VARIANCE, detector.DEGREES]] = np.array([[100.0], [1.0], [100.0]])
    walk.state[detector.LAGGED] = 0.325  # an autocorrelation of (100 * 0.325 + 50 * 0.25) / 150 = 0.3

    jump = 1.98 / sqrt(1.98 * 0.91 + (2.4 * 0.7) ** 2 * 1.3 / 0.7 / 100.0)  # squares and sum of 1, 0.7, 0.7
    drift = 542.71 / sqrt(542.71 * 0.91 + (77.7 * 0.7) ** 2 * 1.3 / 0.7 / 100.0)  # of 1, 1.7, ... 10.1
    assert wallace(2.48 * jump, 100.0) < 3.5 < wallace(2.50 * jump, 100.0)
    assert wallace(0.153 * drift, 50.0) < 3.35 < wallace(0.155 * drift, 50.0)
    newest = np.zeros((15, 4))
    newest[-3:, :2] = 2.48, 2.50
    newest[1:, 2:] = np.arange(1.0, 15.0)[:, None] * [0.153, 0.155]
    assert walk._level_moved(newest, np.full(4, 14)).tolist() == [False, True, False, True]


def test_a_jump_needs_three_nights_outside() -> None:
    def newest(first: float) -> list[float]:
        return [DEVIATION * size for size in (first, 3.2, 3.2)]

    assert wallace((0.9 + 3.2 + 3.2) / sqrt(3.0 + 9.0 / 42.0), 41.0) > 3.5
    assert changes([*QUIET[:53], *newest(0.9)]) == []
    assert [kind for _, kind in changes([*QUIET[:53], *newest(1.1)])] == ["level"]


@pytest.mark.parametrize("degrees", [9.0, 30.0, 100.0])
def test_normal_approximations_of_t_and_f(degrees: float) -> None:
    for normal in (1.0, 2.0, 3.4):
        assert normal_of_student(stdtrit(degrees, ndtr([normal])), np.array([degrees])) == pytest.approx(
            normal, rel=0.005
        )
        for side in (-normal, normal):
            ratio = fdtri(13.0, degrees, ndtr([side]))
            found = normal_of_ratio(ratio, np.array([13.0]), np.array([degrees]))
            assert found == pytest.approx(side, rel=0.03)


@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_estimates_are_unbiased(correlation: float) -> None:
    walk = walked(generate(f"autocorrelation {correlation:g}", 1, 1000, 74).T)  # 60 nights of reference
    quiet = [not begins and not ended for begins, ended in zip(walk.begins, walk.excursions, strict=True)]
    assert walk.state[detector.COUNT, quiet].max() == 60
    expected = (59.0 * correlation + 50.0 * 0.25) / (59.0 + 50.0)
    assert correlation_of(walk.state)[quiet].mean() == pytest.approx(expected, abs=0.02)
    assert walk.state[detector.VARIANCE][quiet].mean() == pytest.approx(1.0, abs=0.03)
    assert walk.state[detector.LEVEL][quiet].var() == pytest.approx(
        (1.0 + correlation) / (1.0 - correlation) / 60.0, rel=0.15
    )


def test_outliers_are_clipped() -> None:
    values = np.random.default_rng(1).standard_normal((60, 1))
    states = []
    for size in (20.0, 1e6):
        values[30] = size
        walk = walked(values.copy())
        assert walk.begins == [[]]
        states.append(walk.state)
    assert states[0] == pytest.approx(states[1], rel=1e-12)


def test_a_night_does_not_depend_on_later_nights() -> None:
    values = with_shift(generate("Student t, 3 df", 2, 40, 90), 60, 3.0).T
    walk = Walk(values, np.full(40, 90))
    for night in range(90):
        walk.step(night)
        if night % 7 == 0:
            assert walk.begins == walked(values[: night + 1]).begins


def test_a_weekly_change_of_the_last_digit_is_noise() -> None:
    values = np.array([5.0] * 15 + [5.01, *[5.0] * 6] * 12)
    assert changes(values.tolist()) == []
    deviation = sqrt(walked(values[:, None]).state[detector.VARIANCE, 0])
    assert deviation == pytest.approx(values.std(), rel=0.3)


def test_an_excursion_is_reported_and_then_left_out_of_the_level() -> None:
    values = np.random.default_rng(3).standard_normal(100)
    values[60:65] += 6.0
    assert changes(values[:64].tolist()) == [(60, "level")]
    walk = walked(values[:68, None])
    assert (walk.begins, walk.excursions) == ([[]], [[(60, 65)]])
    state = walked(values[:, None]).state[:, 0]
    own = np.delete(values, range(60, 65))[: int(state[detector.COUNT])]
    assert state[detector.LEVEL] == pytest.approx(own.mean(), abs=0.02)
    assert sqrt(state[detector.VARIANCE]) == pytest.approx(own.std(), rel=0.1)


def test_a_false_alarm_is_revoked_not_an_excursion() -> None:
    values = np.random.default_rng(2).standard_normal(100)
    values[60:63] = 2.5
    assert changes(values[:63].tolist()) == [(60, "level")]
    walk = walked(values[:, None])
    assert (walk.begins, walk.excursions) == ([[]], [[]])


def test_an_excursion_is_the_run_that_is_nearer_to_its_level() -> None:
    off = np.array([0.0, 3.0, -1.0, 8.0, 2.0, 9.0, 30.0, 1.0, -2.0, 3.0])
    assert detector.excursion(off, 8.0) == (3, 7)
    assert detector.excursion(-off, -8.0) == (3, 7)
    assert detector.excursion(off * 0.0, 8.0) == (0, 0)


def test_the_nights_back_must_be_apart_from_a_sure_level() -> None:
    memory = np.ones(1)

    def left(away: list[float], newest: list[float]) -> float:
        off = np.array([*[0.0] * 20, *away, *newest])[:, None]
        return float(detector.size_left(off, np.array([len(away) + len(newest)]), memory)[0])

    assert left([4.0] * 3, [0.5] * 3) == 4.0  # 6.9 standard errors of three nights; 3.5 are 2.86 of the difference
    assert left([-4.0] * 3, [-0.5] * 3) == -4.0
    assert left([4.0] * 3, [0.5] * 2) == 0.0  # too few
    assert left([2.9] * 3, [0.0] * 3) == 0.0  # 5.0
    assert left([3.5] * 12, [1.3] * 3) == 0.0  # 3.4 standard errors apart
    assert left([3.5] * 12, [1.3] * 4) == 3.5  # 3.8
    assert left([4.0] * 6, [0.0, 0.0, 2.1]) == 0.0  # nearer to the new level


def test_a_change_is_final_after_four_weeks() -> None:
    values = np.random.default_rng(1).standard_normal((120, 1))
    values[60:] += 6.0
    assert walked(values[:80]).trial.tolist() == [True]
    assert walked(values[:90]).trial.tolist() == [False]


def test_an_excursion_is_not_bimodal() -> None:
    values = np.random.default_rng(1).standard_normal((1, 120))
    values[0, 40:48] += 20.0
    assert not detector.two_levels(values[:, :75]).found[0]
    values[0, 40:56:2] += 20.0
    values[0, 41:48:2] -= 20.0
    assert detector.two_levels(values[:, :75]).found[0]


def test_noise_is_learned_anew_after_a_spread_change() -> None:
    values = np.random.default_rng(5).standard_normal((150, 1))
    values[90:] *= 0.2
    walk = walked(values)
    assert [kind for _, kind in walk.begins[0]] == ["spread"]
    assert sqrt(walk.state[detector.VARIANCE, 0]) == pytest.approx(values[90:].std(), rel=0.1)


def test_recent_nights_are_kept_out_of_the_reference() -> None:
    values = np.random.default_rng(4).standard_normal((120, 1))
    before = walked(values[:106]).state[detector.LEVEL, 0]
    values[106:] += 3.0 * np.linspace(0.0, 1.0, 14)[:, None]
    assert walked(values[:119]).state[detector.LEVEL, 0] == pytest.approx(before, abs=0.1)


def test_changes_begin_after_the_reference() -> None:
    newest = np.full((14, 2), 3.0)  # all of them at the new level, and with its spread
    assert detector.dates(newest, 20, np.array([15.0, 3.0])).tolist() == [15.0, 7.0]
    assert detector.spread_dates(newest, 20, np.array([15.0, 3.0])).tolist() == [15.0, 7.0]


def test_a_night_far_off_before_the_change_is_not_its_beginning() -> None:
    newest = np.array([[0.0] * 4 + [30.0] + [0.0] * 4 + [3.0] * 5]).T
    assert detector.dates(newest, 20, np.array([3.0])).tolist() == [16.0]


# Rates, with seeds: the limits are those that a correct detector passes 99 times in 100

any_size = pytest.mark.parametrize("series", [250, pytest.param(1000, marks=pytest.mark.thorough)])


def max_alarms(series: int, allowed: float = 1.0) -> float:
    """Return how many alarms may begin in 180 nights of *series* where *allowed* begin in a thousand nights of one."""
    expected = allowed * 180 * series / 1000
    return expected + 2.33 * sqrt(expected)


def min_detected(series: int, share: float) -> float:
    """Return which share of the changes in *series* is found where *share* is expected."""
    return share - 2.33 * sqrt(share * (1 - share) / series)


@any_size
@pytest.mark.parametrize("noise", ["autocorrelation 0", "autocorrelation 0.3", "autocorrelation 0.3, weekly cycle"])
def test_false_alarm_rate_with_autocorrelation(noise: str, series: int) -> None:
    assert count_false_alarms(generate(noise, 5, series, 180), flips=False) <= max_alarms(series)


@any_size
@pytest.mark.parametrize(
    ("noise", "allowed"),
    [("Student t, 3 df", 1.0), ("outliers, 2 %", 1.0), ("log-normal", 1.5), ("normal, 20 % missing", 1.0)],
)
def test_false_alarm_rate_with_heavy_tails(noise: str, allowed: float, series: int) -> None:
    assert count_false_alarms(generate(noise, 5, series, 180), flips=False) <= max_alarms(series, allowed)


@any_size
@pytest.mark.parametrize("noise", ["two levels, 50/50", "two levels, 80/20", "two levels, 90/10"])
def test_flips_raise_no_level_or_spread_alarm(noise: str, series: int) -> None:
    assert count_false_alarms(generate(noise, 5, series, 180), flips=True) <= max_alarms(series)


@any_size
@pytest.mark.parametrize("after", [60, 120])
@pytest.mark.parametrize("noise", ["autocorrelation 0", "autocorrelation 0.3", "autocorrelation 0.3, weekly cycle"])
def test_a_shift_of_four_deviations_is_detected_by_the_third_night(noise: str, after: int, series: int) -> None:
    share = detected(
        with_shift(generate(noise, 3, series, after + SHIFT_NIGHTS), after, SHIFT), after, SHIFT_NIGHTS
    ).mean()
    assert share >= min_detected(series, 0.95)


def test_a_shift_of_both_bimodal_levels_is_detected() -> None:
    values = with_shift(generate("two levels, 80/20", 3, 500, 120 + SHIFT_NIGHTS), 120, SHIFT)
    assert detected(values, 120, SHIFT_NIGHTS).mean() >= min_detected(500, 0.95)


@pytest.mark.parametrize("rise", [0.3, 0.8])
def test_shifts_and_drifts_are_level_changes(rise: float) -> None:
    quiet = generate("autocorrelation 0.2", 3, 300, 150)
    moved = with_shift(quiet, 100, 8.0), with_drift(quiet[:, :130], 100, rise)
    for values in moved:
        for nights in (118, values.shape[1]):
            kinds = [[kind for at, kind in begin if at > 95] for begin in walked(values[:, :nights].T - 100.0).begins]
            assert np.mean(["level" in kind and "spread" not in kind for kind in kinds]) > 0.96


@pytest.mark.parametrize(("noise", "least"), [("autocorrelation 0", 0.90), ("Student t, 3 df", 0.60)])
def test_a_threefold_spread_is_detected_within_a_month(noise: str, least: float) -> None:
    values = generate(noise, 9, 500, 120) - 100.0
    values[:, 90:] *= 3.0
    kinds = [[kind for at, kind in begin if at > 80] for begin in walked(values.T).begins]
    assert np.mean(["spread" in kind for kind in kinds]) > least
    assert np.mean(["level" in kind for kind in kinds]) < 0.15


@any_size
def test_a_slow_drift_is_detected_within_two_weeks(series: int) -> None:
    values = with_drift(generate("autocorrelation 0", 3, series, 120 + RISE_NIGHTS), 120, RISE)
    assert detected(values, 120, RISE_NIGHTS).mean() >= min_detected(series, 0.8)
