# SPDX-License-Identifier: Apache-2.0
"""Changes over nights are detected and dated; flips between two levels and noise are not changes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from calibration.judge.detector import DRIFT_NIGHTS, MIN_VALUES
from calibration.judge.drift import Analysis, DriftChange, analyse, lasting
from tests.unit.simulated_nights import DATE_TOLERANCE, SHIFT, generate, with_shift


def one(values: list[float] | np.ndarray) -> Analysis:
    (analysis,) = analyse(np.asarray(values, dtype=np.float64)[None])
    return analysis


def noise(nights: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(nights)


# What is planted is found


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_shift_is_detected_after_three_nights(sign: float) -> None:
    values = 100.0 + noise(63)
    values[60:] += 6.0 * sign
    (change,) = one(values).changes
    assert (change.kind, change.night) == ("level", 60)
    assert change.size == pytest.approx(0.06 * sign, abs=0.02)
    assert change.interval[0] < 0.06 * sign < change.interval[1]
    assert change.after / change.before - 1.0 == pytest.approx(change.size)


def test_a_return_to_the_old_level_is_a_second_change() -> None:
    values = 100.0 + noise(100)
    values[60:80] += 6.0
    analysis = one(values)
    assert [change.night for change in analysis.changes] == [60, 80]
    assert (analysis.first, analysis.count) == (80, 20)
    assert analysis.level == pytest.approx(100.0, abs=1.0)
    assert analysis.spread == pytest.approx(values[80:].std(ddof=1) / analysis.level, rel=0.05)


@pytest.mark.parametrize("back", [3, 6, 40])
@pytest.mark.parametrize("nights", range(3, 13))
@pytest.mark.parametrize("before", [18, 30, 60])
def test_a_short_excursion_is_two_changes(before: int, nights: int, back: int) -> None:
    values = 100.0 + noise(before + nights + back)
    values[before : before + nights] -= 9.0
    analysis = one(values)
    assert [(change.kind, change.night) for change in analysis.changes] == [
        ("level", before),
        ("level", before + nights),
    ]
    assert analysis.changes[0].size == pytest.approx(-0.09, abs=0.015)
    assert (analysis.first, analysis.level) == (before + nights, pytest.approx(100.0, abs=3.0 / np.sqrt(back)))
    assert analysis.excursion is not None
    assert analysis.excursion.text.startswith(f"{nights} nights of -")


@pytest.mark.parametrize("nights", [1, 2])
@pytest.mark.parametrize("before", [18, 30, 60])
def test_one_or_two_nights_are_outliers(before: int, nights: int) -> None:
    values = 100.0 + noise(before + nights + 40)
    values[before : before + nights] -= 9.0
    assert [one(values[: before + nights + back]).changes for back in (3, 6, 40)] == [()] * 3


@pytest.mark.parametrize("gap", [4, 8, 20])
def test_a_change_after_an_excursion_is_detected_after_three_nights(gap: int) -> None:
    values = 100.0 + noise(36 + gap + 3)
    values[30:36] -= 9.0
    values[36 + gap :] -= 6.0
    changes = one(values).changes
    assert [change.night for change in changes] == [30, 36, 36 + gap]
    assert changes[-1].size == pytest.approx(-0.06, abs=0.015)


def test_a_change_can_go_on_to_a_third_level() -> None:
    values = 100.0 + 0.3 * noise(60)
    values[30:36] -= 9.0
    values[36:] -= 1.5
    for nights in (40, 46, 60):
        changes = one(values[:nights]).changes
        assert [change.night for change in changes] == [30, 36]
        assert changes[1].after == pytest.approx(98.5, abs=0.3)
    values[36] = 100.0  # one night on the way is not a level
    assert [change.night for change in one(values).changes] == [30, 37]


def test_excursions_are_not_lasting() -> None:
    def change(night: int, before: float, after: float) -> DriftChange:
        size = after / before - 1.0
        return DriftChange("level", night, before, after, size, (size - 0.01, size + 0.01))

    away, back = change(20, 100.0, 91.0), change(26, 91.0, 100.5)
    earlier, later = change(10, 95.0, 100.0), change(40, 100.5, 105.0)
    assert lasting([away, back], 0.0) == ([], (away, back))
    assert lasting([away, back, later], 0.0) == ([later], None)
    assert lasting([earlier, away, back], 0.0) == ([earlier], (away, back))
    further = change(26, 91.0, 97.0)
    assert lasting([away, further], 0.0) == ([away, further], None)
    assert lasting([away, further], 0.0, tolerance=0.031) == ([], (away, further))
    slower = change(20, 100.0, 101.0), change(26, 101.0, 102.0)  # the second goes further away
    assert lasting(slower, 0.0, tolerance=0.03) == (list(slower), None)


def test_a_threefold_spread_is_a_spread_change() -> None:
    values = 100.0 + noise(120)
    values[80:] = 100.0 + 3.0 * (values[80:] - 100.0)
    changes = one(values).changes
    assert [change.kind for change in changes] == ["spread"]
    assert abs(changes[0].night - 80) <= 10
    before, after = (part.std(ddof=1) / 100.0 for part in np.split(values, [changes[0].night]))
    assert (changes[0].before, changes[0].after) == pytest.approx((before, after), rel=0.05)
    assert changes[0].size == pytest.approx(after / before - 1.0, rel=0.1)
    assert changes[0].interval[0] < 2.0 < changes[0].interval[1]


def test_interval_of_a_level_matches_hand_calculation() -> None:
    (change,) = one([99.0, 101.0] * 20 + [198.0, 202.0] * 5).changes
    assert change.night == 40
    assert (change.before, change.after, change.size) == pytest.approx((100.0, 200.0, 1.0))
    # Squares of 40 * 1 and 10 * 4 with 48 degrees of freedom; of trimmed means; the old level's counts twice squared.
    error = math.sqrt(1.15 * 80.0 / 48.0 * (1.0 / 10.0 + 4.0 / 40.0)) / 100.0
    assert change.interval == pytest.approx((1.0 - 2.0106 * error, 1.0 + 2.0106 * error), rel=1e-4)


def test_interval_of_a_spread_matches_hand_calculation() -> None:
    (change,) = one([99.0, 101.0] * 30 + [97.0, 103.0] * 10).changes
    before, after = math.sqrt(60.0 / 59.0) / 100.0, math.sqrt(9.0 * 20.0 / 19.0) / 100.0
    assert (change.kind, change.night) == ("spread", 60)
    assert (change.before, change.after) == pytest.approx((before, after))
    factor = math.exp(2.0930 * math.sqrt(0.5 / 59.0 + 0.5 / 19.0))  # a normal kurtosis of 3, and t with 19 degrees
    ratio = after / before
    assert change.interval == pytest.approx((ratio / factor - 1.0, ratio * factor - 1.0), rel=1e-3)


def test_a_level_is_a_trimmed_mean() -> None:
    analysis = one([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0, 50.0, 90.0])
    assert analysis.level == pytest.approx((3.0 + 4.0 + 5.0 + 6.0 + 7.0 + 9.0) / 6.0)


def test_autocorrelation_widens_the_interval() -> None:
    widths = []
    for correlation in (0.0, 0.3):
        values = with_shift(generate(f"autocorrelation {correlation:g}", 4, 100, 150), 120, 6.0)
        intervals = [change.interval for analysis in analyse(values) for change in analysis.changes]
        widths.append(np.median([high - low for low, high in intervals]))
    estimated = [(100.0 * value + 50.0 * 0.25) / 150.0 for value in (0.0, 0.3)]
    memory = [(1.0 + item) / (1.0 - item) for item in estimated]
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(memory[1] / memory[0]), rel=0.06)


@pytest.mark.parametrize("noise", ["autocorrelation 0", "autocorrelation 0.3", "Student t, 3 df", "log-normal"])
def test_intervals_have_their_coverage(noise: str) -> None:
    values = with_shift(generate(noise, 8, 500, 70), 60, SHIFT)
    true = np.where(np.arange(500) % 2 == 0, 0.04, -0.04)
    inside = [
        change.interval[0] <= size <= change.interval[1]
        for size, analysis in zip(true, analyse(values), strict=True)
        for change in analysis.changes
        if abs(change.night - 60) <= DATE_TOLERANCE
    ]
    assert len(inside) > 450
    assert 0.90 <= np.mean(inside) <= 0.99


def test_missing_nights_are_skipped() -> None:
    values = 100.0 + noise(120)
    values[60:] += 6.0
    values[np.random.default_rng(2).random(120) < 0.4] = np.nan
    values[[0, 60, 61]] = np.nan
    analysis = one(values)
    known = np.flatnonzero(np.isfinite(values))
    assert [change.night for change in analysis.changes] == [int(known[known >= 60][0])]
    assert analysis.count == int((known >= 60).sum())


# What is noise is not


@pytest.mark.parametrize(("share", "nights"), [(0.5, 30), (0.2, 50), (0.15, 90)])
def test_flips_are_not_changes(share: float, nights: int) -> None:
    rng = np.random.default_rng(4)
    values = 100.0 + rng.standard_normal((50, nights)) + 20.0 * (rng.random((50, nights)) < share)
    analyses = analyse(values)
    flips = [analysis.flips for analysis in analyses if analysis.flips is not None]
    assert len(flips) >= 47
    assert sum(bool(analysis.changes) for analysis in analyses) <= 3
    for flip in flips:
        assert flip.lower == pytest.approx(100.0, abs=1.5)
        assert flip.upper == pytest.approx(120.0, abs=2.0)
    assert np.mean([flip.upper_share for flip in flips]) == pytest.approx(share, abs=0.04)


def test_flips_are_dated() -> None:
    values = 100.0 + noise(120)
    values[70:] += np.random.default_rng(3).integers(0, 2, 50) * 20.0
    analysis = one(values)
    assert analysis.flips is not None
    assert abs(analysis.flips.night - 70) <= 5
    assert analysis.changes == ()
    assert analysis.first == analysis.flips.night


@pytest.mark.parametrize(("stay", "cut"), [(DRIFT_NIGHTS, 0), (DRIFT_NIGHTS + 1, DRIFT_NIGHTS + 1)])
def test_a_longer_stay_on_a_level_is_not_of_the_flipping(stay: int, cut: int) -> None:
    values = 100.0 + noise(60)
    values[stay::2] += 20.0
    analysis = one(values)
    assert analysis.flips is not None
    assert (analysis.first, analysis.flips.night) == (cut, cut)
    assert analysis.flips.upper_share == pytest.approx(((61 - stay) // 2) / (60 - cut))


def test_flips_do_not_hide_a_level_change() -> None:
    rng = np.random.default_rng(6)
    values = 100.0 + rng.standard_normal(100) + 20.0 * (rng.random(100) < 0.3)
    values[60:] += 50.0
    assert [change.night for change in one(values[:65]).changes] == [60]
    analysis = one(values)
    assert [change.night for change in analysis.changes] == [60]
    assert analysis.flips is not None
    assert analysis.flips.night == 60
    assert analysis.flips.lower == pytest.approx(150.0, abs=2.0)


# Any values at all


@pytest.mark.parametrize("nights", range(MIN_VALUES))
def test_too_few_values_have_no_change(nights: int) -> None:
    analysis = one(np.arange(nights) ** 3.0)
    assert analysis.changes == ()
    assert analysis.flips is None
    assert analysis.count == nights
    assert math.isnan(analysis.level) == (nights == 0)
    assert math.isnan(analysis.spread) == (nights < 2)


@pytest.mark.parametrize("value", [0.0, 5.0, -7.5, 1e300, 1e-300])
def test_constant_values_have_no_change(value: float) -> None:
    analysis = one([value] * 60)
    assert analysis.changes == ()
    assert analysis.level == pytest.approx(value)
    assert analysis.spread == 0.0 or (value == 0.0 and math.isnan(analysis.spread))


def test_a_noiseless_step_has_its_exact_size() -> None:
    (change,) = one([5.0] * 20 + [6.0] * 10).changes
    assert change == DriftChange("level", 20, 5.0, 6.0, pytest.approx(0.2), pytest.approx((0.2, 0.2)))


def test_a_change_from_zero_has_no_relative_size() -> None:
    (change,) = one([0.0] * 30 + [4.0] * 10).changes
    assert (change.before, change.after) == (0.0, 4.0)
    assert math.isnan(change.size)
    assert all(math.isnan(end) for end in change.interval)


def test_negative_values_are_judged_alike() -> None:
    values = 100.0 + noise(90)
    values[60:] += 6.0
    (above,), (below,) = one(values).changes, one(-values).changes
    assert above.night == below.night
    assert above.size == pytest.approx(below.size)
    assert below.after < below.before < 0.0


def test_empty_input() -> None:
    assert analyse(np.empty((0, 30))) == []
    assert [analysis.count for analysis in analyse(np.empty((2, 0)))] == [0, 0]
    assert [analysis.count for analysis in analyse(np.full((2, 30), np.nan))] == [0, 0]


def test_series_are_independent() -> None:
    values = generate("Student t, 3 df", 1, 30, 120)
    values[::3, 70:] += 5.0
    values[1::3, ::2] = np.nan
    alone = [one(row) for row in values]
    for together, item in zip(analyse(values), alone, strict=True):
        assert [change[:2] for change in together.changes] == [change[:2] for change in item.changes]
        assert together.level == pytest.approx(item.level)


def test_series_without_a_change_have_the_figures_they_have_alone() -> None:
    values = 100.0 + generate("autocorrelation 0", 2, 40, 90)
    values[::2, :31] = np.nan
    values[7, 5::7] = np.nan
    together = analyse(values)
    calm = [row for row, analysis in enumerate(together) if not analysis.changes and analysis.flips is None]
    assert len(calm) > 30
    assert [together[row] for row in calm] == [one(values[row]) for row in calm], "to the last bit"


def test_a_new_level_needs_more_values_for_a_spread_change() -> None:
    values = np.full((1, 45), 0.25)
    values[0, :2] = 0.0
    values[0, [10, 37, 38, 39]] = 1.0
    (found,) = analyse(values)
    assert all(change.night > 0 for change in found.changes)


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(0, 70)),
        elements=st.one_of(st.sampled_from([0.0, 1.0, 2.0, -1.0, np.nan]), st.floats(-1e100, 1e100, allow_nan=False)),
    )
)
def test_any_values_give_a_valid_analysis(values: np.ndarray) -> None:
    analyses = analyse(values)
    assert len(analyses) == len(values)
    for row, analysis in zip(values, analyses, strict=True):
        known = np.flatnonzero(np.isfinite(row)).tolist()
        nights = [change.night for change in analysis.changes]
        assert nights == sorted(set(nights))
        assert set(nights) <= set(known[1:])
        if known:
            assert analysis.count == sum(night >= analysis.first for night in known)
            assert min(row[known]) <= analysis.level * (1 + 1e-9) + 1e-9 or analysis.level < 0
            assert math.isfinite(analysis.level)
        if analysis.flips is not None:
            assert analysis.flips.lower < analysis.flips.upper
            assert 0.0 < analysis.flips.upper_share < 1.0
