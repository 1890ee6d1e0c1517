# SPDX-License-Identifier: Apache-2.0
"""Homogeneity: equal servers pass, the outlier is named, and chance rarely names one."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtr, stdtrit

from calibration.context.facts import CLOCK
from calibration.judge.drift import Analysis, DriftChange, Flips
from calibration.judge.homogeneity import judge_homogeneity
from calibration.judge.outliers import Levels, compare_levels, holm, leave_one_out, levels_of
from calibration.judge.tolerances import FILE, Tolerances, read_tolerances
from calibration.judge.verdicts import NightVerdict
from calibration.results.history import History, NightRun, Series
from tests.unit.simulated_nights import Tails, trials

LATENCY = "idle_latency.latency_ns"
READS = "peak_injection_bandwidth.reads.bandwidth_mb_s"
NIGHTS = tuple(date(2026, 1, 1) + timedelta(days=number) for number in range(30))


def nights(level: float, *, spread: float = 0.01, seed: int = 0, count: int = len(NIGHTS)) -> list[float]:
    """Return generated values whose last *count* nights have them; the others have none."""
    chance = np.random.default_rng(seed)
    values = level * (1 + spread * chance.standard_normal(len(NIGHTS)))
    values[: len(NIGHTS) - count] = np.nan
    return [float(value) for value in values]


def judged(
    figures: Mapping[tuple[str, str], Sequence[float]],
    *,
    facts: Mapping[str, Mapping[str, str]] | None = None,
    first: Mapping[tuple[str, str], int] | None = None,
    interval: float | None = 0.01,
    flips: frozenset[str] = frozenset(),
    unit: str = "ns",
    testbeds: Mapping[str, str] | None = None,
    bios: Mapping[str, Sequence[str]] | None = None,
    tolerances: Tolerances | None = None,
) -> dict[tuple[str, str], NightVerdict]:
    """Return the verdicts by SUT and metric.

    *first* is the column where the current stretch of a series begins, *bios* has the BIOS of SUTs by night.
    """
    keys = sorted(figures)
    values = np.array([figures[key] for key in keys])
    width = np.nan if interval is None else interval
    series, analyses = [], []
    for key, row in zip(keys, values, strict=True):
        sut, metric = key
        start = (first or {}).get(key, 0)
        stretch = row[start:][np.isfinite(row[start:])]
        units = "Hz" if metric.endswith("_hz") else unit
        series.append(Series((testbeds or {}).get(sut, "testbed1"), sut, metric, units, "lower"))
        analyses.append(
            Analysis(
                changes=(DriftChange("level", start, 1.0, 1.1, 0.1, (0.09, 0.11)),) if start else (),
                flips=Flips(0, 95.0, 105.0, 0.5) if sut in flips else None,
                level=float(np.median(stretch)) if len(stretch) else np.nan,
                spread=float(np.std(stretch, ddof=1) / np.mean(stretch)) if stretch.any() and len(stretch) > 1 else 0.0,
                first=start,
                count=len(stretch),
            )
        )
    runs = {}
    for item in series:
        own = {"processor": "Maker Model 1", "BIOS": "1.0", **(facts or {}).get(item.sut, {})}
        runs[item.testbed, item.sut] = {
            night: NightRun(
                item.testbed, item.sut, f"{night:%Y%m%d}T220000Z-00000000", night, "complete", "", own | changing, ()
            )
            for night, changing in zip(
                NIGHTS, [{"BIOS": name} for name in (bios or {}).get(item.sut, ())] or [{}] * len(NIGHTS), strict=True
            )
        }
    history = History(NIGHTS, tuple(series), values, values * (1 - width), values * (1 + width), runs, {})
    found = list(judge_homogeneity(history, analyses, tolerances or Tolerances()))
    assert {(verdict.check, verdict.night) for verdict in found} <= {("homogeneity", NIGHTS[-1])}
    return {(value.sut, value.metric): value for value in found}


def test_equal_servers_pass_with_their_spread() -> None:
    found = judged({(f"sut{number}", LATENCY): nights(100, seed=number) for number in range(4)})
    assert {verdict.outcome for verdict in found.values()} == {"pass"}
    verdict = found["sut1", LATENCY]
    assert verdict.bound == pytest.approx((97, 103), abs=0.8)
    assert verdict.interval is not None
    assert verdict.value is not None
    assert verdict.interval[0] < verdict.value < verdict.interval[1]
    assert "within the tolerance of 3 %" in verdict.reason
    assert "of the variance is between SUTs" in verdict.reason
    assert verdict.since is None
    assert verdict.run_id == "20260130T220000Z-00000000"


@pytest.mark.parametrize("suts", [3, 4, 5, 10])
def test_only_the_outlier_fails(suts: int) -> None:
    found = judged(
        {(f"sut{number}", LATENCY): nights(110 if number == 2 else 100, seed=number) for number in range(suts)},
        facts={"sut2": {"BIOS": "0.9"}},
    )
    assert [sut for (sut, _), verdict in found.items() if verdict.outcome != "pass"] == ["sut2"]
    verdict = found["sut2", LATENCY]
    assert verdict.outcome == "fail"
    assert verdict.since == NIGHTS[0]
    assert [(change.fact, change.before, change.after, change.night) for change in verdict.context_changes] == [
        ("BIOS", "1.0", "0.9", NIGHTS[0])
    ]
    assert f"(Holm, {suts} tests, 1 %)" in verdict.reason
    assert "may be the outlier" not in verdict.reason


@pytest.mark.parametrize(("low_percent", "preset", "outcome"), [
    *((12, "intel_cluster", "fail"), (8, "intel_cluster", "pass")),
    *((8, "superbench", "fail"), (3, "superbench", "pass"), (8, None, "fail")),
])  # fmt: skip
def test_peers_are_equal_within_the_preset_that_a_lab_names(
    low_percent: int, preset: str | None, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(f"- preset: {preset}\n" if preset else "")
    tolerances = read_tolerances(tmp_path)
    levels = {f"sut{number}": 100 - low_percent if number == 2 else 100 for number in range(4)}
    figures = {(sut, READS): nights(level, seed=number) for number, (sut, level) in enumerate(levels.items())}
    found = judged(figures, tolerances=tolerances)
    assert {sut: found[sut, READS].outcome for sut in levels} == dict.fromkeys(levels, "pass") | {"sut2": outcome}
    assert tolerances.fraction(READS) == 0.02, "its own nights keep their tolerance"


def test_bounds_are_the_tolerance_as_ratios() -> None:
    found = judged({(f"sut{number}", LATENCY): nights(100, seed=number) for number in range(3)})["sut1", LATENCY]
    assert found.bound is not None
    lower, upper = found.bound
    assert lower is not None
    assert upper is not None
    others = [float(np.median(nights(100, seed=value))) for value in (0, 2)]
    assert upper / 1.03 == pytest.approx(min(others, key=lambda other: abs(other - (found.value or 0.0))), rel=1e-9)
    assert upper / lower == pytest.approx(1.03**2, rel=1e-9)


@pytest.mark.parametrize("first", ["0.9", "1.0"])
def test_a_difference_is_of_the_newest_facts_and_dated_to_its_last_change(first: str) -> None:
    found = judged(
        {(f"sut{number}", LATENCY): nights(110 if number == 2 else 100, seed=number) for number in range(4)},
        bios={"sut2": [first] * 10 + ["1.0"] * 10 + ["0.9"] * 10},
    )
    (change,) = found["sut2", LATENCY].context_changes
    assert (change.fact, change.after, change.night) == ("BIOS", "0.9", NIGHTS[20])


def test_intervals_and_probabilities_match_hand_calculation() -> None:
    levels, night = np.array([[0.0], [0.04], [0.1]]), np.array([[1e-4], [4e-4], [2e-4]])
    counts = np.array([[31.0], [11.0], [21.0]])
    compared = compare_levels(Levels(levels, night, counts, np.full((3, 1), np.nan)), np.array([0.02]))
    assert compared.difference[:, 0] == pytest.approx([-0.04, 0.04, 0.06])
    # A trimmed mean of n nights varies 1.15 / n as much as one, the median of two as pi / (2 * 2 + pi - 2) of one.
    means = 1.15 * night[:, 0] / counts[:, 0]
    others = np.pi / (2 + np.pi) * np.array([(means[1] + means[2]), (means[0] + means[2]), (means[0] + means[1])]) / 2
    # 30, 10 and 20 degrees of freedom: the fewer of the own and of the others' count.
    student = np.array([stdtrit(30, 0.975), stdtrit(10, 0.975), stdtrit(20, 0.975)])
    assert compared.half[:, 0] == pytest.approx(student * np.sqrt(means + others), rel=1e-9)
    error = np.sqrt(means + others)[2]
    tail = stdtr(20, -(0.06 - np.log(1.02)) / error) + stdtr(20, -(0.06 + np.log(1.02)) / error)
    assert compared.p[2, 0] == pytest.approx(tail, rel=1e-9)
    lone = compare_levels(Levels(levels[:2], night[:2], counts[:2], np.full((2, 1), np.nan)), np.array([0.02]))
    assert lone.half[0, 0] == pytest.approx(stdtrit(10, 0.975) * np.sqrt(means[0] + means[1]), rel=1e-9)


@pytest.mark.parametrize(("missing", "outcome"), [(7, "pass"), (8, "no_reference")])
def test_a_value_of_a_week_ago_counts(missing: int, outcome: str) -> None:
    values = {(f"sut{number}", LATENCY): nights(100, seed=number) for number in range(2)}
    values["sut1", LATENCY][-missing:] = [float("nan")] * missing
    assert judged(values)["sut0", LATENCY].outcome == outcome


def test_both_of_two_differing_suts_fail() -> None:
    found = judged({("sut1", LATENCY): nights(100, seed=1), ("sut2", LATENCY): nights(110, seed=2)})
    assert [verdict.outcome for verdict in found.values()] == ["fail", "fail"]
    assert all("of two SUTs, either may be the outlier" in item.reason for item in found.values())


def test_two_groups_of_equal_size_all_fail_and_a_majority_passes() -> None:
    even = judged({(f"sut{number}", LATENCY): nights(110 if number < 2 else 100, seed=number) for number in range(4)})
    assert {verdict.outcome for verdict in even.values()} == {"fail"}
    assert all("any may be the outlier" in item.reason for item in even.values())
    three = judged({(f"sut{number}", LATENCY): nights(110 if number < 2 else 100, seed=number) for number in range(5)})
    assert [verdict.outcome for verdict in three.values()] == ["fail", "fail", "pass", "pass", "pass"]
    assert all("may be the outlier" not in item.reason for item in three.values())


def test_only_suts_of_one_processor_and_one_testbed_are_compared() -> None:
    figures = {(f"sut{number}", LATENCY): nights(100 + 20 * (number > 2), seed=number) for number in range(5)}
    other = {"processor": "Maker Model 2"}
    kinds = judged(figures, facts={"sut3": other, "sut4": other})
    testbeds = judged(figures, testbeds={"sut3": "testbed2", "sut4": "testbed2"})
    for found in (kinds, testbeds):
        assert {verdict.outcome for verdict in found.values()} == {"pass"}
        assert "the other SUT of its kind" in found["sut4", LATENCY].reason
    alone = judged(figures, facts={"sut4": other})["sut4", LATENCY]
    assert (alone.outcome, alone.bound) == ("no_reference", None)
    assert "no other Maker Model 2 in this testbed" in alone.reason


def test_unknown_values_are_not_compared() -> None:
    values = {(f"sut{number}", LATENCY): nights(100, seed=number) for number in range(3)}
    unknown = judged(values, facts={"sut1": {"processor": "not known"}})
    assert "unknown processor" in unknown["sut1", LATENCY].reason
    assert "median of" not in unknown["sut0", LATENCY].reason
    assert "ticks" in judged(values, unit="ticks")["sut1", LATENCY].reason
    flipping = judged(values, flips=frozenset({"sut1"}))
    assert "flips between two levels" in flipping["sut1", LATENCY].reason
    assert "the other SUT of its kind" in flipping["sut0", LATENCY].reason
    single = judged({key: [float("nan")] * 29 + row[-1:] for key, row in values.items()}, interval=None)
    assert "too few nights and no interval" in single["sut1", LATENCY].reason
    for found in (unknown, flipping, single):
        assert found["sut1", LATENCY].outcome == "no_reference"


def test_the_variance_of_nights_is_that_of_their_logarithms() -> None:
    row = np.exp(np.random.default_rng(1).normal(3.0, 0.3, 100_000))
    spread = float(np.std(row) / np.mean(row))
    analysis = Analysis((), None, level=20.0, spread=spread, first=0, count=len(row))
    variance = levels_of([analysis], np.array([0.01])).night
    assert variance == pytest.approx([np.log(row).var()], rel=0.02)


def test_zero_equals_only_zero() -> None:
    zeros = {(f"sut{number}", "jitter.cpu1.gaps.lost_fraction"): [0.0] * 30 for number in range(3)}
    assert {verdict.outcome for verdict in judged(zeros).values()} == {"pass"}
    some = zeros | {("sut1", "jitter.cpu1.gaps.lost_fraction"): nights(0.1)}
    found = list(judged(some).values())
    assert [verdict.outcome for verdict in found] == ["no_reference"] * 3
    assert "0 has no ratio to the others" in found[0].reason


def test_undecided_has_a_reason() -> None:
    wide = judged({(f"sut{number}", LATENCY): nights(100, spread=0.05, seed=number, count=6) for number in range(3)})
    assert {verdict.outcome for verdict in wide.values()} == {"no_reference"}
    assert any("too wide for the tolerance of 3 %" in item.reason for item in wide.values())
    near = judged({(f"sut{number}", LATENCY): nights(100 + 3.2 * (number == 2), seed=number) for number in range(4)})
    verdict = near["sut2", LATENCY]
    assert verdict.outcome == "no_reference"
    assert "possibly within the tolerance of 3 %" in verdict.reason


def test_many_tests_need_more_significance() -> None:
    chance = np.random.default_rng(3)
    values = {
        (f"sut{sut}", f"loaded_latency.{number}.latency_ns"): nights(
            107 if (sut, number) == (1, 0) else 100, spread=0.015, seed=int(chance.integers(1 << 30)), count=12
        )
        for sut in range(4)
        for number in range(100)
    }
    alone = judged({key: row for key, row in values.items() if key[1] == "loaded_latency.0.latency_ns"})
    among = judged(values)
    key = ("sut1", "loaded_latency.0.latency_ns")
    assert alone[key].outcome == "fail"
    assert among[key].outcome == "no_reference"
    assert "beyond the tolerance of 3 %, but not significantly (Holm, 400 tests, 1 %)" in among[key].reason


def test_few_nights_use_the_interval_and_one_night_has_no_outlier() -> None:
    def odd(count: int) -> dict[tuple[str, str], Sequence[float]]:
        return {
            (f"sut{number}", LATENCY): nights(120 if number == 1 else 100, seed=number, count=count)
            for number in range(4)
        }

    three = judged(odd(3), interval=0.005)
    assert three["sut1", LATENCY].outcome == "fail"
    assert three["sut0", LATENCY].outcome == "pass"
    assert judged(odd(3), interval=0.2)["sut1", LATENCY].outcome == "no_reference"
    one = judged(odd(1), interval=0.005)
    assert one["sut1", LATENCY].outcome == "no_reference"
    assert "need 3 nights" in one["sut1", LATENCY].reason
    assert one["sut0", LATENCY].outcome == "pass"
    new = odd(30) | {("sut1", LATENCY): odd(2)["sut1", LATENCY]}
    assert judged(new)["sut1", LATENCY].outcome == "no_reference"


def test_a_new_server_uses_the_spread_of_its_peers() -> None:
    old = {(f"sut{number}", LATENCY): nights(100, spread=0.002, seed=number) for number in range(3)}
    new = nights(106, spread=0.002, count=3)
    assert judged(old | {("sut3", LATENCY): new}, interval=0.001)["sut3", LATENCY].outcome == "fail"
    noisy = {(f"sut{number}", LATENCY): nights(100, spread=0.05, seed=number) for number in range(3)}
    assert judged(noisy | {("sut3", LATENCY): new}, interval=0.001)["sut3", LATENCY].outcome == "no_reference"


def test_since_is_the_change_that_made_it_an_outlier() -> None:
    changed = [*nights(100, seed=9)[:20], *nights(110, seed=9)[20:]]
    own = judged(
        {("sut1", LATENCY): changed, ("sut2", LATENCY): nights(100, seed=2), ("sut3", LATENCY): nights(100, seed=3)},
        first={("sut1", LATENCY): 20},
    )
    assert (own["sut1", LATENCY].outcome, own["sut1", LATENCY].since) == ("fail", NIGHTS[20])
    assert own["sut2", LATENCY].since is None
    others = judged(
        {("sut1", LATENCY): nights(100, seed=1), ("sut2", LATENCY): changed, ("sut3", LATENCY): changed},
        first={("sut2", LATENCY): 20, ("sut3", LATENCY): 20},
    )
    assert [other.outcome for other in others.values()] == ["fail", "pass", "pass"]
    assert others["sut1", LATENCY].since == NIGHTS[20]


def test_changes_of_other_metrics_begin_no_stretch() -> None:
    """A SUT without the metric has no changes of it; those of the last series are of another metric."""
    moved = [*nights(100, seed=1)[:10], *nights(110, seed=1)[10:]]
    rest = {(f"sut{number}", LATENCY): nights(100, seed=number) for number in (2, 3)}
    found = judged(
        {("sut1", LATENCY): moved, **rest, ("sut4", "z.latency_ns"): moved}, first={("sut4", "z.latency_ns"): 10}
    )
    assert found["sut1", LATENCY].since == NIGHTS[0]


def test_since_spans_outlying_levels_and_gaps() -> None:
    worse = [*nights(110, seed=9)[:20], *nights(115, seed=9)[20:]]
    worse[:5] = [float("nan")] * 5
    found = judged(
        {("sut1", LATENCY): worse, ("sut2", LATENCY): nights(100, seed=2), ("sut3", LATENCY): nights(100, seed=3)},
        first={("sut1", LATENCY): 20},
    )
    assert found["sut1", LATENCY].since == NIGHTS[5]


def test_measured_clock_is_a_cause_but_not_of_itself() -> None:
    clock, cache = "core_frequency.scalar.all.median_hz", "latency_ladder.L2.latency_ns"
    values = {}
    for number in range(4):
        values[f"sut{number}", clock] = nights(3.3e9 if number == 1 else 3e9, spread=0.001, seed=number)
        values[f"sut{number}", cache] = nights(4.5 if number == 1 else 5, spread=0.001, seed=10 + number)
    found = judged(values, facts={"sut1": {"BIOS": "0.9"}})
    changes = found["sut1", cache].context_changes
    assert [change.fact for change in changes] == [CLOCK, "BIOS"]
    assert (changes[0].before, changes[0].after) == ("3.000 GHz", f"3.300 GHz in {clock}: a higher turbo")
    assert [change.fact for change in found["sut1", clock].context_changes] == ["BIOS"]


def test_a_sut_without_a_value_tonight_still_serves_as_peer() -> None:
    values = {(f"sut{number}", LATENCY): nights(100, seed=number) for number in range(2)}
    values["sut1", LATENCY][-3:] = [float("nan")] * 3
    found = judged(values)
    assert list(found) == [("sut0", LATENCY)]
    assert found["sut0", LATENCY].outcome == "pass"
    values["sut1", LATENCY][-9:] = [float("nan")] * 9
    assert "no other SUT of its kind has a comparable level" in judged(values)["sut0", LATENCY].reason


def test_empty_nights_have_no_verdicts() -> None:
    assert judged({("sut1", LATENCY): [float("nan")] * 30}) == {}
    empty = np.empty((0, 0))
    assert list(judge_homogeneity(History((), (), empty, empty, empty, {}, {}), [], Tolerances())) == []


def test_leave_one_out_median_matches_sorting() -> None:
    chance = np.random.default_rng(1)
    values = chance.standard_normal((7, 40))
    values[chance.random((7, 40)) < 0.4] = np.nan
    low, high = leave_one_out(values)
    for column in range(40):
        for row in range(7):
            others = sorted(item for item in np.delete(values[:, column], row) if np.isfinite(item))
            if not others or np.isnan(values[row, column]):
                assert np.isnan(low[row, column])
                continue
            assert low[row, column] == others[(len(others) - 1) // 2]
            assert high[row, column] == others[len(others) // 2]


def test_holm_steps_down() -> None:
    p = np.array([0.03, 0.001, np.nan, 0.004, 0.2])
    assert holm(p, 0.01).tolist() == [False, True, False, False, False]
    assert holm(p, 0.012).tolist() == [False, True, False, True, False]
    assert holm(p, 0.0039).tolist() == [False] * 5
    assert holm(np.array([]), 0.01).tolist() == []


def test_spread_between_suts_is_recovered() -> None:
    chance = np.random.default_rng(5)
    suts, metrics, count = 60, 40, 20
    levels = 0.03 * chance.standard_normal((suts, metrics)) + 0.01 * chance.standard_normal((suts, metrics)) / np.sqrt(
        count
    )
    ones = np.ones((suts, metrics))
    found = compare_levels(Levels(levels, ones * 1e-4, ones * count, ones * np.nan), np.full(metrics, 0.02)).spread
    assert float(np.median(found.between)) == pytest.approx(0.03, rel=0.05)
    assert float(np.median(found.share)) == pytest.approx(0.9, abs=0.02)


any_size = pytest.mark.parametrize(("labs", "metrics"), [(8, 40), pytest.param(60, 150, marks=pytest.mark.thorough)])


@any_size
@pytest.mark.parametrize("noise", ["normal", "t3"])
def test_equal_servers_are_rarely_outliers(noise: Tails, labs: int, metrics: int) -> None:
    chance = np.random.default_rng(11)
    for suts, count in ((2, 3), (4, 5), (4, 20)):
        for found in trials(
            chance,
            labs,
            suts=suts,
            nights=count,
            spread=(0.003, 0.03),
            noise=noise,
            tolerances=(0.0, 0.02),
            metrics=metrics,
        ):
            assert found.false <= 0.02, (suts, count)


@any_size
def test_an_outlier_is_detected_with_enough_nights(labs: int, metrics: int) -> None:
    chance = np.random.default_rng(12)
    lab: dict[str, Any] = {"suts": 4, "spread": (0.01, 0.01), "noise": "t3", "off": 0.05, "odd": 1, "metrics": metrics}
    soon, later = (trials(chance, labs, nights=nights, tolerances=(0.03,), **lab)[0] for nights in (5, 30))
    assert soon.found < 0.2
    assert later.found > 0.8
    assert soon.false == later.false == 0


@any_size
def test_the_smaller_group_is_the_outlier(labs: int, metrics: int) -> None:
    chance = np.random.default_rng(13)
    for suts, odd in ((5, 2), (4, 2), (4, 4)):
        lab: dict[str, Any] = {"suts": suts, "spread": (0.01, 0.01), "noise": "t3", "off": 0.1, "odd": odd}
        (found,) = trials(chance, labs // 2, nights=30, metrics=metrics, **lab)
        assert found.false == 0
        assert found.found > 0.9 if odd < suts else found.found == 0
