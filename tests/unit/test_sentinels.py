# SPDX-License-Identifier: Apache-2.0
"""Sentinels: how far a reading may lie from its accepted level, and what one or two readings decide."""

from math import exp, inf, log, log1p, sqrt

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import binom, norm

from calibration.base.statistics import estimate
from calibration.judge.baseline_files import Bounds
from calibration.judge.prediction import OUTSIDE, predict
from calibration.judge.prediction import Level as NightsLevel
from calibration.judge.sentinels import (
    BEFORE,
    FALSE_REFUSALS,
    FOUND,
    SENTINELS,
    SHARE,
    Deviation,
    distances,
    judge_gap,
    judge_level,
    level_of,
    read,
    reading_of,
)
from calibration.measurements import declaration
from calibration.measurements.base import Metric


def latency(*rounds: float) -> Metric:
    """Return the idle latency of a run whose rounds had these medians (ns)."""
    found = estimate([[value] for value in rounds], "ns", rounds=range(len(rounds)))
    return declaration("idle_latency").metric("latency_ns", "Idle latency", found)


def quiet(value: float, spread: float = 0.001) -> Metric:
    """Return the same of six rounds around *value*."""
    return latency(*(value * (1 + spread * part) for part in (-1, -0.5, -0.1, 0.1, 0.5, 1)))


def bounds(spread: float, nights: int, value: float = 100.0) -> Bounds:
    """Return what accepting *nights* around *value* gives, whose standard deviation is *spread*."""
    level = NightsLevel(log(value), tuple(range(nights)), spread, nights - 1, "nights", "as tested", two_sided=True)
    found = predict([level], positive=True)
    return Bounds(
        value=found.value, lower=found.lower, upper=found.upper, unit="ns", method=found.method, why=found.why,
        spread=found.spread, relative=True, nights=nights,
    )  # fmt: skip


@pytest.mark.parametrize("nights", [3, 5, 10, 31, 365])
def test_degrees_of_freedom_are_found_in_the_bounds(nights: int) -> None:
    level = level_of(bounds(0.004, nights), OUTSIDE)
    assert level.degrees == pytest.approx(nights - 1, rel=1e-6)
    assert level.spread == pytest.approx(0.004 * sqrt(1 + 1 / nights))
    assert exp(level.log) == pytest.approx(100.0)


def test_one_accepted_side_is_enough_for_the_degrees_of_freedom() -> None:
    one = bounds(0.004, 10).model_copy(update={"upper": None})
    assert level_of(one, OUTSIDE) == pytest.approx(level_of(bounds(0.004, 10), OUTSIDE), rel=1e-6)


def test_a_level_that_never_varied_has_no_spread() -> None:
    constant = bounds(0.0, 10)
    assert level_of(constant, OUTSIDE) == (log(100.0), 0.0, inf)


def test_values_without_a_logarithm_are_refused() -> None:
    with pytest.raises(ValueError, match="not all positive"):
        level_of(bounds(0.004, 10).model_copy(update={"relative": False}), OUTSIDE)


def test_the_error_of_a_reading_is_that_of_its_interval() -> None:
    metric = quiet(100.0)
    assert metric.interval is not None
    found = reading_of(metric)
    half = (metric.interval[1] - metric.interval[0]) / 2 / 100.0 / sqrt(2)  # which is for what nights have
    assert found.degrees == 5
    assert found.spread * float(stdtrit(5, (1 + 0.96875) / 2)) == pytest.approx(half)
    with pytest.raises(ValueError, match="uncertainty is unknown"):
        reading_of(latency(100.0))


def test_the_difference_has_both_errors() -> None:
    one, other = Deviation(log(103.0), 0.003, 5), Deviation(log(100.0), 0.004, 9)
    found = one.beside(other)
    assert found.log == pytest.approx(log(1.03))
    assert found.spread == pytest.approx(0.005)
    assert found.degrees == pytest.approx(0.005**4 / (0.003**4 / 5 + 0.004**4 / 9))
    assert Deviation(0.0, 0.0, inf).beside(Deviation(0.0, 0.0, inf)).degrees == inf


def test_distances_are_quantiles_for_all_sentinels_together() -> None:
    assert pytest.approx(FALSE_REFUSALS) == SHARE * (len(SENTINELS) + 1)
    refusal, margin = distances(Deviation(0.0, 0.01, inf))
    assert 2 * norm.sf(refusal / 0.01) == pytest.approx(FALSE_REFUSALS / 4)
    assert norm.cdf(-margin / 0.01) == pytest.approx((1 - FOUND) / 2)


def test_a_quiet_level_allows_what_does_not_matter() -> None:
    level = level_of(bounds(0.001, 30), OUTSIDE)
    found = read(level, 0.05, quiet(103.0))
    assert found.side == 0
    assert found.visible < 0.02
    assert found.allowed == pytest.approx(log1p(0.05) - distances(reading_of(quiet(103.0)).beside(level))[1])


QUIET = level_of(bounds(0.002, 20), OUTSIDE)
NOISY = level_of(bounds(0.03, 20), OUTSIDE)


@pytest.mark.parametrize(("values", "outcome", "repeat"), [
    ([100.2], "passed", False),
    ([99.0], "passed", False),
    ([106.0], "undecided", True),
    ([106.0, 100.1], "passed", False),
    ([106.0, 105.8], "failed", True),
    ([94.0, 94.2], "failed", True),
    ([106.0, 94.0], "undecided", True),
])  # fmt: skip
def test_two_readings_on_one_side_are_a_change(values: list[float], outcome: str, repeat: bool) -> None:
    verdict = judge_level(QUIET, 0.05, [quiet(value) for value in values])
    assert verdict.outcome == outcome, verdict.text
    if outcome != "failed":
        assert verdict.repeat == repeat
    for value in values:
        assert f"({value:.4g} ns)" in verdict.text
    assert "accepted 100 ns" in verdict.text


def test_nights_that_vary_too_much_decide_nothing_and_are_not_measured_again() -> None:
    verdict = judge_level(NOISY, 0.05, [quiet(101.0)])
    refusal, margin = distances(reading_of(quiet(101.0)).beside(NOISY))
    assert verdict.outcome == "undecided"
    assert not verdict.repeat
    seen = f"a change from {100 * (exp(refusal + margin) - 1):.2g} % on would be seen"
    assert verdict.text.endswith(f"{seen}, the accepted nights vary too much for 5 %")


def test_a_noisy_reading_is_measured_again() -> None:
    noisy = quiet(100.0, 0.05)
    verdict = judge_level(QUIET, 0.05, [noisy])
    assert (verdict.outcome, verdict.repeat) == ("undecided", True)
    assert "this reading varies too much for 5 %" in verdict.text
    assert judge_level(QUIET, 0.05, [noisy, quiet(100.0)]).outcome == "passed"
    assert judge_level(QUIET, 0.05, [noisy, quiet(110.0)]).outcome == "undecided"


def test_a_change_beyond_all_noise_is_found_on_a_noisy_machine() -> None:
    verdict = judge_level(NOISY, 0.05, [quiet(130.0), quiet(1310.0)])
    assert verdict.outcome == "failed"
    assert verdict.text.startswith("+30 % (130 ns), then +1210 % (1310 ns), accepted 100 ns ±1")


@pytest.mark.parametrize(("gaps", "outcome", "repeat"), [
    ([900.0], "passed", False),
    ([1100.0], "undecided", True),
    ([1100.0, 900.0], "passed", False),
    ([900.0, 1100.0], "undecided", True),
    ([1100.0, 1200.0], "failed", False),
])  # fmt: skip
def test_a_longer_gap_must_come_twice(gaps: list[float], outcome: str, repeat: bool) -> None:
    verdict = judge_gap(1000.0, gaps, 3.0)
    assert (verdict.outcome, verdict.repeat) == (outcome, repeat)
    every_s = 3.0 / -log((1 - FOUND) / 2)  # then both times have one with 95 %
    assert f"seen if they come every {every_s:.1f} s" in verdict.text


def test_a_gap_without_an_accepted_bound_decides_nothing() -> None:
    verdict = judge_gap(None, [100.0], 3.0)
    assert (verdict.outcome, verdict.repeat) == ("undecided", False)


# Rates with known variances

TRIALS = 1000


def rates(nights: int, boot: float, moment: float, change: float) -> tuple[float, float]:
    """Return the shares of gates that fail and that pass, of SUTs that read *change* off their nights.

    Nights, and a gate, have a variation of their own, *boot*; rounds vary by *moment* besides.
    """
    chance = np.random.default_rng([nights, round(1e4 * boot), round(1e4 * moment), round(1e4 * abs(change))])
    failed = passed = 0
    for _ in range(TRIALS):
        values = 100 * np.exp(boot * chance.standard_normal(nights) + moment / sqrt(4) * chance.standard_normal(nights))
        logs = np.log(values)
        level = level_of(bounds(float(logs.std(ddof=1)), nights, float(np.exp(logs.mean()))), OUTSIDE)
        today = 100 * (1 + change) * np.exp(boot * chance.standard_normal())
        metrics = [latency(*(today * np.exp(moment * chance.standard_normal(6)))) for _ in range(2)]
        verdict = judge_level(level, 0.05, metrics[:1])
        if verdict.repeat:
            verdict = judge_level(level, 0.05, metrics)
        failed += verdict.outcome == "failed"
        passed += verdict.outcome == "passed"
    return failed / TRIALS, passed / TRIALS


@pytest.mark.parametrize(("nights", "boot", "moment"), [(10, 0.004, 0.006), (10, 0.02, 0.02), (30, 0.006, 0.004)])
def test_unchanged_machines_are_hardly_refused(nights: int, boot: float, moment: float) -> None:
    refused, _ = rates(nights, boot, moment, 0.0)
    assert refused <= binom.isf(1e-3, TRIALS, SHARE) / TRIALS


@pytest.mark.parametrize(("nights", "boot", "moment"), [(10, 0.003, 0.004), (10, 0.02, 0.02), (30, 0.004, 0.006)])
@pytest.mark.parametrize("change", [0.05, -0.05])
def test_changed_machines_hardly_pass(nights: int, boot: float, moment: float, change: float) -> None:
    refused, passed = rates(nights, boot, moment, change)
    assert passed <= binom.isf(1e-3, TRIALS, 1 - FOUND) / TRIALS
    if boot < 0.01:
        assert refused >= binom.isf(1 - 1e-3, TRIALS, FOUND) / TRIALS


def rates_of_pairs(moment: float, change: float, *, rounds: int = 12) -> tuple[float, float]:
    """Return the shares of machines that fail and that pass after a run before, if they read *change* off it.

    Runs vary as much as *moment*, the variation of their rounds, makes them uncertain.
    """
    chance = np.random.default_rng([round(1e4 * moment), round(1e4 * abs(change))])

    def run(level: float) -> Metric:
        today = level * np.exp(moment / sqrt(rounds) * chance.standard_normal())
        return latency(*(today * np.exp(moment * chance.standard_normal(rounds))))

    failed = passed = 0
    for _ in range(TRIALS):
        level = reading_of(run(100), BEFORE)
        metrics = [run(100 * (1 + change)) for _ in range(2)]
        verdict = judge_level(level, 0.1, metrics[:1], BEFORE)
        if verdict.repeat:
            verdict = judge_level(level, 0.1, metrics, BEFORE)
        failed += verdict.outcome == "failed"
        passed += verdict.outcome == "passed"
    return failed / TRIALS, passed / TRIALS


@pytest.mark.parametrize("moment", [0.005, 0.05])
def test_a_machine_that_is_as_before_is_hardly_refused(moment: float) -> None:
    refused, passed = rates_of_pairs(moment, 0.0)
    assert refused <= binom.isf(1e-3, TRIALS, SHARE) / TRIALS
    assert (passed > 0.99) == (moment < 0.01)


@pytest.mark.parametrize("moment", [0.005, 0.05])
@pytest.mark.parametrize("change", [0.1, -0.1])
def test_a_machine_that_is_not_as_before_hardly_passes(moment: float, change: float) -> None:
    refused, passed = rates_of_pairs(moment, change)
    assert passed <= binom.isf(1e-3, TRIALS, 1 - FOUND) / TRIALS
    assert (refused > FOUND) == (moment < 0.01)
