# SPDX-License-Identifier: Apache-2.0
"""What moved the throughput: planted causes, coincidences and neither, told apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from scipy.stats import binom

from calibration.formats.throughput import Measured, Throughput
from calibration.judge.association import FALSE_CLAIMS, NEARBY, Occurrence, associate
from calibration.judge.candidates import Calibration, candidates_of
from calibration.judge.explanation import MIN_TESTED, Explanation, ThroughputChange, explained
from calibration.judge.throughput import bound_of, changes_of, medians
from calibration.judge.tolerances import Tolerances
from calibration.report.screens.explanation import explanation_text
from calibration.results.history import NightRun
from tests.unit.histories import BANDWIDTH, FACTS, FIRST, history, night_of

NIGHTS = 120
SUTS = ("t1", "t2", "t3", "t4")
Moves = Mapping[tuple[str, int], float]
"""Relative changes of the level by SUT and first night."""


def series(sut: int, moves: Moves, seed: int, nights: int = NIGHTS, noise: float = 0.01) -> np.ndarray:
    row = 100.0 * (1.0 + noise * np.random.default_rng([seed, sut]).standard_normal(nights))
    for (name, night), size in moves.items():
        if name == SUTS[sut]:
            row[night:] *= 1.0 + size
    return row


def throughput(
    moves: Moves, *, tests: int = 3, suts: Sequence[str] = SUTS, nights: int = NIGHTS, seed: int = 1
) -> Throughput:
    """Return the results of *tests* on *suts*, all moved alike."""
    found = Throughput()
    days = [FIRST.toordinal() + night for night in range(nights)]
    for test in range(tests):
        for sut in suts:
            row = series(SUTS.index(sut), moves, 10 * seed + test, nights)
            found.series[(sut,), f"test{test}"] = Measured((sut,), f"test{test}", "Mpps", "", list(days), row.tolist())
    return found


def calibration(
    metrics: Moves | None = None, facts: Mapping[tuple[str, int], Mapping[str, str]] | None = None
) -> Calibration:
    """Return the calibration of all SUTs: the bandwidth moves by *metrics*, *facts* change by SUT and night."""
    runs: dict[tuple[str, str], Mapping[date, NightRun]] = {}
    figures = {}
    for number, sut in enumerate(SUTS):
        known: dict[str, str] = dict(FACTS)
        by_night: dict[int, Mapping[str, str]] = {0: known}
        for (name, night), changed in sorted((facts or {}).items()):
            if name == sut:
                known = {**known, **changed}
                by_night[night] = known
        figures["lab", sut, BANDWIDTH] = series(number, metrics or {}, 99).tolist()
        runs |= history({("lab", sut, BANDWIDTH): figures["lab", sut, BANDWIDTH]}, facts=by_night).runs
    found = candidates_of(replace(history(figures), runs=runs), set(SUTS), Tolerances())
    return Calibration(found, dict.fromkeys(found, (night_of(0), night_of(NIGHTS - 1))))


def explanation(found: Throughput, known: Calibration) -> Explanation:
    places = {(sut,): (("lab", sut),) for sut in SUTS}
    return explained(found, {hosts: places[hosts] for hosts, _ in found.series}, known)


def changes(found: Explanation) -> dict[tuple[str, int], list[ThroughputChange]]:
    """Return the changes of all tests by SUT and night."""
    by_place: dict[tuple[str, int], list[ThroughputChange]] = {}
    for test in found.tests:
        for row in test.suts:
            for item in row.changes:
                sut = row.suts[0].removeprefix("lab/")
                by_place.setdefault((sut, (item.night - FIRST).days), []).append(item)
    return by_place


def outcomes(found: Explanation) -> dict[tuple[str, int], set[str]]:
    return {key: {item.outcome for item in items} for key, items in changes(found).items()}


# Planted: a cause, a coincidence, and neither


def test_a_metric_that_moved_with_the_throughput_is_claimed_with_its_effect_and_date() -> None:
    found = explanation(throughput({("t2", 60): -0.06}), calibration({("t2", 60): -0.12}))
    assert outcomes(found) == {("t2", 60): {"follows"}}
    (first, *_) = changes(found)["t2", 60]
    (cause,) = first.coincidences
    assert (cause.sut, cause.kind, cause.what, cause.night) == ("lab/t2", "metric", BANDWIDTH, night_of(60))
    assert cause.claimed
    assert cause.chance <= 0.05
    assert cause.better is False
    assert cause.size == pytest.approx(-0.12, abs=0.01)
    assert first.size == pytest.approx(-0.06, abs=0.01)
    assert first.interval is not None
    assert first.interval[0] < -0.06 < first.interval[1]


def test_the_level_is_that_since_the_first_night_of_the_last_change() -> None:
    measured = throughput({("t2", 60): -0.06})
    for test in explanation(measured, calibration()).tests:
        row = next(row for row in test.suts if row.changes)
        values = measured.series[("t2",), test.test].values
        assert row.level == np.median(values[(row.changes[-1].night - FIRST).days :])


def test_a_fact_that_changed_with_the_throughput_is_claimed_and_its_metrics_too() -> None:
    known = calibration({("t2", 60): -0.12}, {("t2", 60): {"BIOS": "Example 2.2"}})
    found = explanation(throughput({("t2", 60): -0.06}), known)
    for item in changes(found)["t2", 60]:
        claimed = {one.what: (one.before, one.after) for one in item.coincidences if one.claimed}
        assert claimed == {"BIOS": (FACTS["BIOS"], "Example 2.2"), BANDWIDTH: (None, None)}


def test_a_change_without_one_of_the_calibration_has_no_explanation() -> None:
    found = explanation(throughput({("t2", 60): -0.06}), calibration())
    assert outcomes(found) == {("t2", 60): {"unexplained"}}
    assert {item.reason for item in changes(found)["t2", 60]} == {"nothing in the calibration changed with it"}


@pytest.mark.parametrize("apart", [-12, -3, 3, 12])
def test_a_metric_that_moved_on_another_night_explains_nothing(apart: int) -> None:
    found = explanation(throughput({("t2", 60): -0.06}), calibration({("t2", 60 + apart): -0.12}))
    assert outcomes(found) == {("t2", 60): {"unexplained"}}


def test_a_metric_of_another_sut_explains_nothing() -> None:
    found = explanation(throughput({("t2", 60): -0.06}), calibration({("t3", 60): -0.12}))
    assert outcomes(found) == {("t2", 60): {"unexplained"}}


def test_a_fact_that_changed_on_every_sut_and_moved_one_is_a_coincidence() -> None:
    facts = {(sut, 30 + 15 * number): {"BIOS": "Example 2.2"} for number, sut in enumerate(SUTS)}
    found = explanation(throughput({("t2", 45): -0.06}), calibration(None, facts))
    assert outcomes(found) == {("t2", 45): {"unexplained"}}
    for item in changes(found)["t2", 45]:
        (near,) = item.coincidences
        assert (near.what, near.claimed, near.chance, near.hits, near.alike) == ("BIOS", False, 1.0, 1, 4)
        assert item.reason == "what changed with it may be a coincidence"


def test_a_metric_that_moved_on_several_suts_and_moved_one_is_a_coincidence() -> None:
    metrics = {("t1", 30): -0.11, ("t2", 60): -0.12, ("t3", 90): -0.13}
    found = explanation(throughput({("t2", 60): -0.06}), calibration(metrics))
    assert outcomes(found) == {("t2", 60): {"unexplained"}}


def test_a_metric_that_returns_without_the_throughput_is_a_coincidence() -> None:
    metrics = {("t2", 60): -0.12, ("t2", 90): 1 / 0.88 - 1}
    assert outcomes(explanation(throughput({("t2", 60): -0.06}), calibration(metrics))) == {("t2", 60): {"unexplained"}}
    both = throughput({("t2", 60): -0.06, ("t2", 90): 0.06})
    assert outcomes(explanation(both, calibration(metrics))) == {("t2", 60): {"follows"}, ("t2", 90): {"follows"}}


def test_a_fact_that_moves_every_sut_in_turn_is_claimed_without_any_metric() -> None:
    nights = {(sut, 30 + 15 * number): -0.03 for number, sut in enumerate(SUTS)}
    found = explanation(throughput(nights), calibration(None, {key: {"BIOS": "Example 2.2"} for key in nights}))
    assert {outcome for own in outcomes(found).values() for outcome in own} == {"follows"}
    assert {sut for sut, _ in changes(found)} == set(SUTS)
    for (sut, night), items in changes(found).items():
        assert min(abs(night - planted) for name, planted in nights if name == sut) <= 2
        assert {(one.what, one.hits, one.alike) for item in items for one in item.coincidences} == {("BIOS", 4, 4)}


def test_a_lab_where_much_changes_has_no_claims() -> None:
    """Each of three metrics' moves per SUT may meet one of three of the throughput by chance."""
    chance = np.random.default_rng(5)
    nights = {sut: chance.choice(np.arange(20, 100, 12), 4, replace=False).tolist() for sut in SUTS}
    moves = {(sut, night): -0.05 for sut, own in nights.items() for night in own[:3]}
    facts = {(sut, own[number]): {"BIOS": f"{number}"} for sut, own in nights.items() for number in (0, 3)}
    metrics = {(sut, own[0] + 6): 0.05 for sut, own in nights.items()}
    found = explanation(throughput(moves), calibration(metrics, facts))
    assert {"follows"} != {outcome for own in outcomes(found).values() for outcome in own}


# The whole lab


def test_a_change_of_all_suts_is_common_and_no_sut_has_one_of_its_own() -> None:
    found = explanation(throughput({(sut, 60): -0.05 for sut in SUTS}), calibration({("t2", 60): -0.12}))
    assert outcomes(found) == {}
    for test in found.tests:
        (item,) = test.common
        assert item.night == night_of(60)
        assert item.size == pytest.approx(-0.05, abs=0.01)
        assert item.facts == ()


def test_a_fact_that_changed_on_most_suts_is_named_beside_a_common_change_but_not_claimed() -> None:
    facts = {(sut, 60): {"kernel": "6.2"} for sut in SUTS[:3]} | {(sut, 30): {"kernel": "6.1"} for sut in SUTS}
    for sut in SUTS[:2]:  # half of them
        facts[sut, 60] = {**facts[sut, 60], "BIOS": "Example 2.2"}
    found = explanation(throughput({(sut, 60): -0.05 for sut in SUTS}), calibration(None, facts))
    assert outcomes(found) == {}
    assert {item.facts for test in found.tests for item in test.common} == {("kernel: 6.1 -> 6.2",)}


def test_a_suts_own_cause_is_found_beside_new_software_on_all() -> None:
    moves = {(sut, 40): -0.05 for sut in SUTS} | {(sut, 90): 0.04 for sut in SUTS} | {("t2", 60): -0.06}
    found = explanation(throughput(moves), calibration({("t2", 60): -0.12}))
    assert outcomes(found) == {("t2", 60): {"follows"}}
    assert [item.night for item in found.tests[0].common] == [night_of(40), night_of(90)]


def test_of_two_suts_that_change_together_none_is_claimed() -> None:
    moves = {("t1", 60): -0.06, ("t2", 60): -0.06}
    found = explanation(throughput(moves, suts=SUTS[:2]), calibration({("t2", 60): -0.12}))
    assert outcomes(found) == {("t1", 60): {"common"}, ("t2", 60): {"common"}}
    alone = explanation(throughput({("t2", 60): -0.06}, suts=SUTS[:2]), calibration({("t2", 60): -0.12}))
    assert outcomes(alone) == {("t2", 60): {"follows"}}
    assert not alone.tests[0].controlled


# What cannot be answered


@pytest.mark.parametrize("nights", [MIN_TESTED - 1, MIN_TESTED])
def test_nothing_is_claimed_with_too_few_nights(nights: int) -> None:
    known = calibration({("t2", 60): -0.12})
    short = known._replace(nights=dict.fromkeys(known.nights, (night_of(40), night_of(39 + nights))))
    found = explanation(throughput({("t2", 60): -0.06}), short)
    (item, *_) = changes(found)["t2", 60]
    if nights < MIN_TESTED:
        assert (found.shifts, item.outcome) == (0, "unexplained")
        assert item.reason == "too few nights to tell from chance: 41 with throughput and calibration are needed"
        one_line = " ".join(explanation_text(found).split())
        assert (
            "changed on their own: 3 of 12 series (a test on a SUT); whether they follow the calibration is unknown: "
            "40 of 41 nights with throughput and calibration so far"
        ) in one_line
    else:
        assert (found.shifts, item.outcome) == (20, "follows")


def test_a_sut_without_calibration_says_so() -> None:
    found = throughput({("t2", 60): -0.06})
    places = {(sut,): (("lab", sut),) if sut != "t2" else () for sut in SUTS}
    answer = explained(found, places, calibration())
    assert outcomes(answer) == {("t2", 60): {"unexplained"}}
    reasons = {row.suts: row.reason for row in answer.tests[0].suts}
    assert reasons[("t2",)] == "not calibrated: no such SUT in the results"
    assert reasons[("lab/t1",)] is None


def test_a_change_before_the_first_calibration_cannot_be_explained() -> None:
    known = calibration({("t2", 60): -0.12})
    late = known._replace(nights={sut: (night_of(80), last) for sut, (_, last) in known.nights.items()})
    found = explanation(throughput({("t2", 60): -0.06}), late)
    (item, *_) = changes(found)["t2", 60]
    assert item.reason == "not calibrated for long enough before and after"


def test_suts_tested_together_share_the_candidates_of_both() -> None:
    found = throughput({("t1", 60): -0.06}, suts=("t1",))
    pair = Throughput()
    for (_, test), row in found.series.items():
        pair.series[("t1", "t2"), test] = Measured(("t1", "t2"), test, "pps", "", row.days, row.values)
    answer = explained(pair, {("t1", "t2"): (("lab", "t1"), ("lab", "t2"))}, calibration({("t2", 60): -0.12}))
    (row,) = answer.tests[0].suts
    assert row.suts == ("lab/t1", "lab/t2")
    assert [(one.sut, one.claimed) for one in row.changes[0].coincidences] == [("lab/t2", True)]


def test_changes_of_the_instrument_are_no_candidates() -> None:
    known = calibration(
        {("t2", 60): -0.12}, {("t2", 60): {"sutprobe build": "0123"}, ("t2", 1): {"sutprobe build": "abc"}}
    )
    assert known.candidates["lab", "t2"] == []
    assert outcomes(explanation(throughput({("t2", 60): -0.06}), known)) == {("t2", 60): {"unexplained"}}


def test_several_values_of_a_night_count_as_their_median_and_gaps_do_no_harm() -> None:
    found = throughput({("t2", 60): -0.06})
    for row in found.series.values():
        row.days += row.days
        row.values += [value * 1.001 for value in row.values]
        kept = [at for at, day in enumerate(row.days) if day % 5]
        row.days[:], row.values[:] = [row.days[at] for at in kept], [row.values[at] for at in kept]
    answer = explanation(found, calibration({("t2", 60): -0.12}))
    assert {outcome for own in outcomes(answer).values() for outcome in own} == {"follows"}
    assert answer.tests[0].suts[0].values == sum((FIRST.toordinal() + night) % 5 > 0 for night in range(NIGHTS))


# Parts


def test_medians_leave_out_missing_values() -> None:
    rows = np.array([[1.0, np.nan, 3.0, 8.0], [np.nan] * 4, [4.0, 1.0, 2.0, 3.0]])
    assert medians(rows).tolist()[::2] == [3.0, 2.5]
    assert np.isnan(medians(rows)[1])
    assert np.isnan(medians(rows[:, :0])).all()


def test_unmoved_suts_have_no_change_when_most_others_move() -> None:
    rows = np.array([series(number % 4, {}, number) for number in range(10)])
    rows[:7, 60:] *= 0.94
    (found,) = changes_of([rows], bound_of(rows.size))
    assert found.own[7:] == ((), (), ())
    assert [item.column for item in found.common] == [60]


def test_labs_without_a_change_have_none() -> None:
    chance = np.random.default_rng(6)
    tests = [100.0 + chance.standard_normal((8, 100)) for _ in range(20)]
    found = changes_of(tests, bound_of(sum(rows.size for rows in tests)))
    assert sum(len(row) for one in found for row in one.own) + sum(len(one.common) for one in found) == 0


def test_a_test_that_always_gives_zero_has_no_change() -> None:
    rows = np.zeros((3, 60))
    rows[1] = 1.0
    (found,) = changes_of([rows], 4.0)
    assert found.own == ((), (), ())


def occurrence(place: int, night: int, strength: float = 5.0, candidate: str = "m") -> Occurrence:
    return Occurrence(candidate, place, night, night, 1, strength)


def test_the_chance_of_a_coincidence_is_the_share_of_shifts_with_one() -> None:
    """One change of each at one place of 104 nights; shifts after which they meet again are left out."""
    found = associate([104], {0: [(50, 1)]}, [occurrence(0, 50)])
    assert found.shifts == 104 - 5 - 2
    assert found.evidence == {(0, 1): (1 / (1 + 2 * NEARBY), 1, 1)}
    far = associate([104], {0: [(50, 1)]}, [occurrence(0, 50), occurrence(0, 20), occurrence(0, 80, candidate="n")])
    assert far.evidence[0, 1].chance == 1.0  # one of two
    assert far.evidence[0, 1].alike == 2
    far_off = associate([104], {0: [(50, 1)]}, [occurrence(0, 50), occurrence(0, 100, candidate="n")])
    assert far_off.evidence[0, 1].chance == pytest.approx(4 / (1 + far_off.shifts))
    other = associate([104], {0: [(50, 1)]}, [occurrence(0, 50), occurrence(0, 80, candidate="n")])
    assert other.evidence[0, 1].chance == pytest.approx(4 / (1 + 2 * NEARBY))


def test_much_weaker_changes_of_a_candidate_do_not_count_against_it() -> None:
    weak = [occurrence(0, night, 1.0) for night in (20, 30, 80)]
    assert associate([104], {0: [(50, 1)]}, [occurrence(0, 50), *weak]).evidence[0, 1].alike == 1
    assert associate([104], {0: [(50, 1)]}, [occurrence(0, 50), *weak]).evidence[0, 1].claimed


def test_a_shift_keeps_what_places_have_in_common() -> None:
    """Three places change on one night, as their calibrations do on one: a single coincidence, not three."""
    occurrences = [occurrence(place, 50) for place in range(3)]
    one_night = associate([104] * 3, {place: [(50, 1)] for place in range(3)}, occurrences)
    busy = associate([104] * 3, {place: [(night, 1) for night in range(5, 100, 9)] for place in range(3)}, occurrences)
    assert one_night.evidence[0, 1].chance == 1 / (1 + 2 * NEARBY)
    assert busy.evidence[0, 1].chance > 0.2


@pytest.mark.parametrize(("suts", "nights", "rate"), [(8, 180, 1.0), (8, 180, 3.0), (3, 60, 1.0)])
def test_labs_with_unrelated_dates_have_a_claim_as_rarely_as_stated(suts: int, nights: int, rate: float) -> None:
    """Changes of the throughput, of three metrics at a time and of facts, on average *rate* of each per SUT."""
    chance = np.random.default_rng(suts)

    def drawn() -> list[tuple[int, int]]:
        return [(int(chance.integers(nights)), int(chance.choice((-1, 1)))) for _ in range(chance.poisson(rate))]

    labs = 200
    claimed = 0
    for _ in range(labs):
        moved = {sut: drawn() for sut in range(suts)}
        occurrences = [
            Occurrence(first + metric, sut, night, night, sign, strength * chance.uniform(0.9, 1.1))
            for sut in range(suts)
            for night, sign in drawn()
            for first, strength in [(int(chance.integers(13)), float(chance.uniform(1.5, 6.0)))]
            for metric in range(3)
        ]
        occurrences += [
            Occurrence((f"fact {chance.integers(4)}", number), sut, night, night, 1, 0.0)
            for sut in range(suts)
            for number, (night, _) in enumerate(drawn())
        ]
        found = associate([nights] * suts, moved, occurrences)
        claimed += any(evidence.claimed for evidence in found.evidence.values())
    assert claimed <= binom.isf(1e-3, labs, FALSE_CLAIMS)


def test_without_common_nights_the_share_of_nights_is_unknown() -> None:
    found = throughput({}, suts=SUTS[:2])
    for (hosts, test), row in list(found.series.items()):
        first = SUTS.index(hosts[0])
        apart = Measured(hosts, test, row.unit, "", row.days[first::2], row.values[first::2])
        found.series[hosts, test] = apart
    known = explanation(found, calibration())
    assert {test.variance and test.variance.nights for test in known.tests} == {None}
    row = next(line for line in explanation_text(known).splitlines() if line.startswith("test0 "))
    assert "unknown" in row


def test_the_order_of_the_results_does_not_matter() -> None:
    found = throughput({})
    backwards = replace(found, series=dict(reversed(found.series.items())))
    first, second = explanation(found, calibration()), explanation(backwards, calibration())
    assert [row.suts for test in second.tests for row in test.suts] == [
        row.suts for test in first.tests for row in test.suts
    ]


def test_the_screen_has_the_three_answers_and_the_variance() -> None:
    moves = {(sut, 30): 0.05 for sut in SUTS} | {("t2", 60): -0.06, ("t3", 90): 0.07}
    facts = {("t2", 60): {"BIOS": "Example 2.2"}}
    found = explanation(throughput(moves), calibration({("t2", 60): -0.12}, facts))
    text = explanation_text(found)
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 40
    one_line = " ".join(text.split())
    assert "3 tests on 4 SUTs, 2026-01-01 to 2026-04-30" in one_line
    assert "1 change of single SUTs follows the calibration, 1 does not; any false claim: at most 5 %" in one_line
    assert f"lab/t2 since {night_of(60)} -6" in one_line
    assert f"follows BIOS: Example 2.1 2025-01-01 -> Example 2.2; {BANDWIDTH} -12" in one_line
    assert f"lab/t3 since {night_of(90)} +6.96 %" in one_line
    assert "nothing in the calibration changed with it" in one_line
    assert "Changed at most SUTs: a cause they have in common" in one_line
    assert "changed on their own: 6 of 12 series (a test on a SUT)" in one_line
    assert date.fromisoformat(next(line for line in text.splitlines() if line.endswith("on 3 tests"))[:10]) == night_of(
        30
    )
