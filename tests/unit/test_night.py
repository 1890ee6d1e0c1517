# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a night: each check passes and fails on histories made by hand."""

import io
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.base.errors import InputError
from calibration.judge import night as night_module
from calibration.judge.answer import Answer
from calibration.judge.baseline_files import (
    Acceptance,
    AcceptedRun,
    Baselines,
    Bounds,
    RunName,
    Scope,
    add_acceptance,
    place_of,
)
from calibration.judge.drift import Flips
from calibration.judge.judged import JudgedNights, describe
from calibration.judge.night import Judgement, judge_night, judgement_of, read_nights, write_judgement
from calibration.judge.verdicts import NightVerdict
from calibration.judge.waivers import FILE, Waiver, Waivers
from calibration.results.history import History, Recorded, RunCheck
from tests.unit.histories import (
    BANDWIDTH,
    FACTS,
    LATENCY,
    history,
    judged,
    night_of,
    noise,
    run,
    run_id,
    shift,
    steady,
    stored,
)


def the(judgement: Judgement | JudgedNights, check: str, metric: str = BANDWIDTH, sut: str = "t1") -> NightVerdict:
    (found,) = [
        verdict
        for verdict in judgement.verdicts
        if (verdict.sut, verdict.metric, verdict.check) == (sut, metric, check)
    ]
    return found


def accepted(
    results: Path,
    lower: float | None,
    upper: float | None,
    *,
    night: int = 0,
    scope: Scope = "sut",
    metric: str = BANDWIDTH,
    unit: str = "MB/s",
    sut: str = "t1",
) -> Baselines:
    """Accept the run of *night* of lab/*sut* with these bounds for what *scope* says, and return what is accepted."""
    name = RunName(testbed="lab", sut=sut, id=run_id(night))
    middle = [item for item in (lower, upper) if item is not None]
    add_acceptance(
        results,
        place_of(scope, ("lab", sut), FACTS),
        Acceptance(
            accepted_by="Ada",
            accepted_at=datetime(2026, 3, 1, tzinfo=UTC),
            reason="as bought",
            outside=0.0001,
            accepted=(AcceptedRun(**name.model_dump(), night=night_of(night)),),
            runs=(name,),
            bounds={
                metric: Bounds(
                    value=sum(middle) / len(middle), lower=lower, upper=upper, unit=unit, method="nights",
                    why="spread of 9 nights", spread=0.01, relative=True, nights=1,
                )
            },
        ),
    )  # fmt: skip
    return Baselines(results)


def waiver(check: str, until: date, metric: str = BANDWIDTH, sut: str = "t1") -> Waivers:
    entry: Mapping[str, Any] = {"testbed": "lab", "sut": sut, "metric": metric, "check": check}
    return Waivers([(1, Waiver(**entry, reason="a fan is ordered", by="Ada", until=until))])


# limits


def test_a_metric_without_bounds_has_no_reference() -> None:
    verdict = the(judged(history({BANDWIDTH: noise(20)})), "limits")
    assert verdict.outcome == "no_reference"
    assert verdict.bound is None
    assert "calibration accept" in verdict.reason


def test_accepted_bounds_pass_and_fail(tmp_path: Path) -> None:
    references = accepted(tmp_path, 90.0, 110.0)
    good = the(judged(history({BANDWIDTH: noise(20)}), references=references), "limits")
    assert (good.outcome, good.bound, good.since) == ("pass", (90.0, 110.0), None)
    row = [*noise(15), 80.0, None, 85.0, 82.0]
    bad = the(judged(history({BANDWIDTH: row}), references=references), "limits")
    assert (bad.outcome, bad.value, bad.unit, bad.since) == ("fail", 82.0, "MB/s", night_of(15))
    assert bad.interval == pytest.approx((81.59, 82.41))
    assert bad.reason == "expected 90 to 110 MB/s, accepted by Ada on 2026-03-01, found 82 MB/s"


def test_a_night_within_bounds_restarts_since(tmp_path: Path) -> None:
    row = [*noise(10), 80.0, 80.0, 100.0, 80.0]
    assert the(judged(history({BANDWIDTH: row}), references=accepted(tmp_path, 90, 110)), "limits").since == night_of(
        13
    )


@pytest.mark.parametrize(
    ("lower", "upper", "outcome"), [(None, 90.0, "noted"), (None, 110.0, "pass"), (110.0, None, "fail")]
)
def test_one_sided_bounds(tmp_path: Path, lower: float | None, upper: float | None, outcome: str) -> None:
    past = history({BANDWIDTH: [100.0] * 12})
    verdict = the(judged(past, references=accepted(tmp_path, lower, upper)), "limits")
    assert (verdict.outcome, verdict.better) == (outcome, outcome == "noted")


def test_own_bounds_override_testbed_and_platform(tmp_path: Path) -> None:
    past = history({BANDWIDTH: [100.0] * 12})
    assert the(judged(past, references=accepted(tmp_path, 191.0, 192.0, scope="platform")), "limits").outcome == "fail"
    by_testbed = the(judged(past, references=accepted(tmp_path, 90.0, 110.0, scope="testbed", sut="t2")), "limits")
    assert by_testbed.outcome == "pass"
    assert by_testbed.reason.endswith("accepted by Ada on 2026-03-01 for the testbed")
    assert the(judged(past, references=accepted(tmp_path, 98.0, 99.0)), "limits").bound == (98.0, 99.0)


def test_bounds_of_another_platform_do_not_apply(tmp_path: Path) -> None:
    other = {**FACTS, "processor": "AuthenticAMD EPYC 25 1 1"}
    past = history({BANDWIDTH: [100.0] * 12}, facts={0: other})
    assert (
        the(judged(past, references=accepted(tmp_path, 1.0, 2.0, scope="platform")), "limits").outcome == "no_reference"
    )


def test_the_newest_acceptance_of_the_night_applies(tmp_path: Path) -> None:
    accepted(tmp_path, 90.0, 110.0, night=2)
    references = accepted(tmp_path, 70.0, 80.0, night=15)
    row = [*noise(10), *noise(10, 75.0)]
    assert the(judged(history({BANDWIDTH: row}), references=references), "limits").bound == (70.0, 80.0)
    assert the(judged(history({BANDWIDTH: row[:12]}), references=references), "limits").bound == (90.0, 110.0)
    assert the(judged(history({BANDWIDTH: row[:2]}), references=references), "limits").outcome == "no_reference"


def test_a_different_unit_than_accepted_fails(tmp_path: Path) -> None:
    verdict = the(
        judged(history({BANDWIDTH: [100.0] * 12}), references=accepted(tmp_path, 90, 110, unit="GB/s")), "limits"
    )
    assert verdict.outcome == "fail"
    assert "in MB/s, but accepted in GB/s" in verdict.reason


def recorded(outcome: str, lower: float | None, upper: float | None) -> dict[tuple[str, str, str], Recorded]:
    return {
        ("lab", "t1", BANDWIDTH): Recorded(lower, upper, outcome, "expected at least 101 MB/s, found 100 MB/s (sold)")
    }


def test_inventory_limits_apply_beside_accepted_bounds(tmp_path: Path) -> None:
    references = accepted(tmp_path, 90.0, 110.0)
    past = history({BANDWIDTH: [100.0] * 12}, recorded=recorded("fail", 101.0, None))
    bad = the(judged(past, references=references), "limits")
    assert (bad.outcome, bad.bound, bad.since) == ("fail", (101.0, 110.0), night_of(0))
    assert bad.reason == "expected at least 101 MB/s, found 100 MB/s (sold)"
    lower = history({BANDWIDTH: [100.0] * 12}, recorded=recorded("pass", None, 105.0))
    assert the(judged(lower, references=references), "limits").bound == (90.0, 105.0)
    good = history({BANDWIDTH: [100.0] * 12}, recorded=recorded("pass", 95.0, None))
    assert the(judged(good), "limits").bound == (95.0, None)
    assert the(judged(good), "limits").outcome == "pass"
    nothing = history({BANDWIDTH: [100.0] * 12}, recorded=recorded("no_reference", None, None))
    assert the(judged(nothing), "limits").outcome == "no_reference"


def test_a_limit_of_an_unmeasured_metric_fails() -> None:
    past = history({LATENCY: [80.0] * 12}, recorded=recorded("fail", 101.0, None))
    found = judged(past)
    verdict = the(found, "limits")
    assert (verdict.outcome, verdict.value, verdict.run_id) == ("fail", None, run_id(11))
    assert "expected at least 101 MB/s" in describe(found, verdict)


# drift, spread, bimodal


def test_too_few_nights_have_no_reference() -> None:
    judgement = judged(history({BANDWIDTH: noise(6)}))
    for check in ("drift", "spread", "bimodal"):
        verdict = the(judgement, check)
        assert verdict.outcome == "no_reference"
        assert verdict.reason == "6 of 13 nights so far"


def test_steady_nights_pass() -> None:
    judgement = judged(history({BANDWIDTH: noise(40)}))
    assert {the(judgement, check).outcome for check in ("drift", "spread", "bimodal")} == {"pass"}
    assert the(judgement, "drift").value == pytest.approx(100, rel=0.01)
    assert the(judgement, "spread").unit == "fraction"


def drifted(facts: bool = True) -> History:
    row = [*noise(20), *noise(5, 90.0)]
    new = {**FACTS, "BIOS": "Example 2.2 2026-01-20", "microcode": "0xd0003b9"}
    return history({BANDWIDTH: row}, facts={20: new} if facts else None)


def test_a_level_change_fails_with_size_date_and_facts() -> None:
    past = drifted()
    verdict = the(judged(past, [steady(past.values[0].tolist(), (shift(20, 100.0, 90.0),))]), "drift")
    assert (verdict.outcome, verdict.since) == ("fail", night_of(20))
    assert verdict.interval == pytest.approx((-0.105, -0.095))
    assert verdict.value == pytest.approx(90, rel=0.02)
    assert verdict.bound is not None
    assert 98 < (verdict.bound[0] or 0) < 100 < (verdict.bound[1] or 0) < 102
    assert verdict.reason.startswith("level -10 % (-10.5 to -9.5 %) since 2026-01-21, from 100 MB/s to 90 MB/s")
    changed = {change.fact: (change.before, change.after, change.night) for change in verdict.context_changes}
    assert changed["BIOS"] == (FACTS["BIOS"], "Example 2.2 2026-01-20", night_of(20))
    assert set(changed) == {"BIOS", "microcode"}


def test_the_detector_finds_a_level_change() -> None:
    verdict = the(judged(drifted(facts=False)), "drift")
    assert (verdict.outcome, verdict.context_changes) == ("fail", ())
    assert verdict.since is not None
    assert abs((verdict.since - night_of(20)).days) <= 1


def test_facts_are_compared_across_a_gap() -> None:
    new = {**FACTS, "BIOS": "Example 2.2 2026-01-20"}
    row = [*noise(20), None, None, *noise(5, 90.0)]
    past = history({BANDWIDTH: row}, facts={21: new}, runs={20: None, 21: None})
    verdict = the(judged(past, [steady(row, (shift(22, 100.0, 90.0),))]), "drift")  # type: ignore[arg-type]
    assert [(change.fact, change.night) for change in verdict.context_changes] == [("BIOS", night_of(22))]


def test_an_accepted_change_passes(tmp_path: Path) -> None:
    past = drifted()
    analyses = [steady(past.values[0].tolist(), (shift(20, 100.0, 90.0),))]
    before = the(judged(past, analyses, accepted(tmp_path / "a", 80, 120, night=19)), "drift")
    assert before.outcome == "fail"
    after = the(judged(past, analyses, accepted(tmp_path / "b", 80, 120, night=20)), "drift")
    assert after.outcome == "pass"
    assert after.reason == "level -10 % since 2026-01-21, accepted by Ada on 2026-03-01"
    of_all = the(judged(past, analyses, accepted(tmp_path / "c", 80, 120, night=22, scope="testbed")), "drift")
    assert of_all.outcome == "pass"
    of_another = accepted(tmp_path / "d", 80, 120, night=22, scope="testbed", sut="t2")
    assert the(judged(past, analyses, of_another), "drift").outcome == "fail"


def test_a_level_that_returned_passes() -> None:
    row = [*noise(20), *noise(10, 90.0), *noise(10)]
    past = history({BANDWIDTH: row})
    back = the(judged(past, [steady(row, (shift(20, 100.0, 90.0), shift(30, 90.0, 100.2)))]), "drift")
    assert back.outcome == "pass"
    assert back.reason == "level is back at 100.2 MB/s since 2026-01-31, after 10 nights of -10 %"
    near = the(judged(past, [steady(row, (shift(20, 100.0, 90.0), shift(30, 90.0, 98.5)))]), "drift")
    assert near.outcome == "noted"
    assert near.reason.endswith("after 10 nights of -10 %; within the tolerance of 2 %")
    elsewhere = the(judged(past, [steady(row, (shift(20, 100.0, 90.0), shift(30, 90.0, 96.0)))]), "drift")
    assert (elsewhere.outcome, elsewhere.since) == ("fail", night_of(30))
    assert elsewhere.reason.endswith("before 2026-01-21 it was 100 MB/s")
    vague = shift(20, 100.0, 90.0)._replace(interval=(-0.15, -0.05))
    assert the(judged(past, [steady(row, (vague, shift(30, 90.0, 96.0)))]), "drift").outcome == "pass"


def test_a_change_from_zero_has_no_size() -> None:
    row = [0.0] * 20 + [5.0] * 5  # worse: a latency
    change = shift(20, 1.0, 2.0)._replace(
        before=0.0, after=5.0, size=float("nan"), interval=(float("nan"), float("nan"))
    )
    verdict = the(judged(history({LATENCY: row}, unit="ns"), [steady(row, (change,))]), "drift", LATENCY)
    assert (verdict.outcome, verdict.interval) == ("fail", None)
    assert verdict.reason == "level since 2026-01-21, from 0 ns to 5 ns"


def test_a_spread_change_fails_until_accepted(tmp_path: Path) -> None:
    row = [*noise(20), *noise(20, spread=0.05)]
    past = history({BANDWIDTH: row})
    analyses = [steady(row, (shift(20, 0.01, 0.05, "spread"),))]
    verdict = the(judged(past, analyses), "spread")
    assert (verdict.outcome, verdict.since, verdict.unit) == ("fail", night_of(20), "fraction")
    assert verdict.reason.startswith("spread of nights +400 %")
    assert "from 1 % to 5 %" in verdict.reason
    assert the(judged(past, analyses), "drift").outcome == "pass"
    assert the(judged(past, analyses, accepted(tmp_path, 50, 150, night=25)), "spread").outcome == "pass"


def test_a_bimodal_metric_fails_until_accepted(tmp_path: Path) -> None:
    row = [*noise(20), *[90.0, 110.0] * 10]
    past = history({BANDWIDTH: row})
    analyses = [steady(row, flips=Flips(20, 90.0, 110.0, 0.5))]
    verdict = the(judged(past, analyses), "bimodal")
    assert (verdict.outcome, verdict.since) == ("fail", night_of(20))
    assert "flips between 90 MB/s and 110 MB/s since 2026-01-21, 50 % of the nights at the upper" in verdict.reason
    assert the(judged(past, analyses, accepted(tmp_path / "a", 80, 120, night=19)), "bimodal").outcome == "fail"
    assert the(judged(past, analyses, accepted(tmp_path / "b", 80, 120, night=20)), "bimodal").outcome == "pass"


def test_a_drift_is_still_reported_on_a_night_without_a_value() -> None:
    row = [*noise(20), *noise(5, 90.0), None]
    past = history({BANDWIDTH: row, LATENCY: noise(26)})
    level = steady(row, (shift(20, 100.0, 90.0),))  # type: ignore[arg-type]
    judgement = judged(past, [level, steady(noise(26))])
    assert the(judgement, "drift").outcome == "fail"
    assert not [verdict for verdict in judgement.verdicts if (verdict.metric, verdict.check) == (BANDWIDTH, "limits")]


# missing


def test_a_complete_night_passes() -> None:
    judgement = judged(history({BANDWIDTH: noise(12), LATENCY: noise(12)}))
    found = {verdict.metric: verdict.outcome for verdict in judgement.verdicts if verdict.check == "missing"}
    assert found == {"run": "pass", BANDWIDTH: "pass", LATENCY: "pass"}


def test_a_missing_run_fails_since_its_first_night() -> None:
    values = {("lab", "t1", BANDWIDTH): [*noise(12), None, None], ("lab", "t2", BANDWIDTH): noise(14)}
    past = history(values, runs={12: None, 13: None})
    judgement = judged(past)
    verdict = the(judgement, "missing", "run")
    assert (verdict.outcome, verdict.run_id, verdict.since) == ("fail", None, night_of(12))
    assert verdict.reason == f"no run this night; the last is {run_id(11)}"
    assert [verdict.metric for verdict in judgement.verdicts if (verdict.sut, verdict.check) == ("t1", "missing")] == [
        "run"
    ]
    assert the(judgement, "missing", "run", "t2").outcome == "pass"


def test_a_run_without_metrics_fails_with_its_reason() -> None:
    not_begun = run(12, "not_begun", ("run: the SUT could not be reached",))
    judgement = judged(history({BANDWIDTH: [*noise(12), None]}, runs={12: not_begun}))
    assert [verdict.metric for verdict in judgement.verdicts if verdict.check == "missing"] == ["run"]
    verdict = the(judgement, "missing", "run")
    assert (verdict.outcome, verdict.run_id, verdict.since) == ("fail", run_id(12), night_of(12))
    assert "not_begun and has no valid metric: run: the SUT could not be reached" in verdict.reason


@pytest.mark.parametrize(("values", "since"), [(0, 0), (5, 5)])
def test_runs_without_metrics_fail_since_the_first(values: int, since: int) -> None:
    row = [*noise(values), *[None] * (45 - values)]
    runs = {number: run(number, "not_begun", ("it cannot be reached",)) for number in range(values, 45)}
    past = history({("lab", "t1", BANDWIDTH): row, ("lab", "t2", BANDWIDTH): noise(45)}, runs=runs)
    verdict = the(judged(past), "missing", "run")
    assert (verdict.outcome, verdict.since) == ("fail", night_of(since))
    assert verdict.reason.endswith("not_begun and has no valid metric: it cannot be reached")


def test_a_missing_metric_fails_with_the_reasons_of_its_kind() -> None:
    reasons = ("bandwidth_matrix: killed", "jitter: too short")
    past = history({BANDWIDTH: [*noise(12), None], LATENCY: noise(13)}, runs={12: run(12, "incomplete", reasons)})
    judgement = judged(past)
    verdict = the(judgement, "missing")
    assert (verdict.outcome, verdict.value, verdict.since) == ("fail", None, night_of(12))
    assert verdict.reason == "no valid value this night: bandwidth_matrix: killed"
    assert the(judgement, "missing", LATENCY).outcome == "pass"
    assert the(judgement, "missing", "run").outcome == "pass"


def test_the_checks_of_a_run_on_its_own_are_verdicts_since_they_fail() -> None:
    failed = {number: replace(run(number), failed=("inventory",)) for number in (10, 11, 12)}
    past = history({BANDWIDTH: noise(13)}, runs=failed)
    own = (RunCheck("inventory", "fail", ("found 5.4", "found 0")), RunCheck("errors", "no_reference", ("no counts",)))
    judgement = judged(replace(past, run_checks={("lab", "t1"): own}))
    verdict = the(judgement, "inventory", "run")
    assert (verdict.outcome, verdict.since, verdict.reason) == ("fail", night_of(10), "found 5.4; and 1 more")
    assert the(judgement, "errors", "run").outcome == "no_reference"


@pytest.mark.parametrize(("gap", "expected"), [(30, True), (31, False)])
def test_a_sut_absent_for_a_month_is_forgotten(gap: int, expected: bool) -> None:
    row = [*noise(12), *[None] * gap]
    past = history({("lab", "t1", BANDWIDTH): row, ("lab", "t2", BANDWIDTH): noise(12 + gap)})
    gone = replace(past, runs={**past.runs, ("lab", "t1"): {night_of(11): run(11)}})
    assert bool([verdict for verdict in judged(gone).verdicts if verdict.sut == "t1"]) == expected


# waivers


def test_a_waiver_excuses_a_failure(tmp_path: Path) -> None:
    past, references = history({BANDWIDTH: [100.0] * 12}), accepted(tmp_path, 101.0, 110.0)
    verdict = the(judged(past, references=references, waivers=waiver("limits", night_of(11))), "limits")
    assert verdict.outcome == "pass"
    assert verdict.waiver is not None
    assert verdict.waiver.model_dump() == {"reason": "a fan is ordered", "by": "Ada", "until": night_of(11)}
    assert verdict.reason.startswith("waived until 2026-01-12 by Ada: a fan is ordered; expected 101 to 110 MB/s")


def test_an_expired_waiver_excuses_nothing(tmp_path: Path) -> None:
    past, references = history({BANDWIDTH: [100.0] * 12}), accepted(tmp_path, 101.0, 110.0)
    verdict = the(judged(past, references=references, waivers=waiver("limits", night_of(10))), "limits")
    assert (verdict.outcome, verdict.waiver) == ("fail", None)
    assert verdict.reason.startswith("waived only until 2026-01-11 by Ada: a fan is ordered; expected")


@pytest.mark.parametrize("until", [night_of(30), night_of(3)])
def test_an_unnecessary_waiver_fails(tmp_path: Path, until: date) -> None:
    past, references = history({BANDWIDTH: [100.0] * 12}), accepted(tmp_path, 90.0, 110.0)
    verdict = the(judged(past, references=references, waivers=waiver("limits", until)), "limits")
    assert verdict.outcome == "fail"
    assert "no longer necessary: remove it" in verdict.reason


def test_waiver_without_a_verdict_fails_unless_missing_tonight() -> None:
    past = history({BANDWIDTH: noise(12)})
    verdict = the(
        judged(past, waivers=waiver("limits", night_of(30), "idle_latency.typo_ns")), "limits", "idle_latency.typo_ns"
    )
    assert (verdict.outcome, verdict.run_id) == ("fail", run_id(11))
    assert "correct or remove it" in verdict.reason
    missing = history({BANDWIDTH: [*noise(12), None], LATENCY: noise(13)})
    judgement = judged(missing, waivers=waiver("limits", night_of(30)))
    assert [verdict.check for verdict in judgement.verdicts if verdict.outcome == "fail"] == ["missing"]


# the whole


def test_every_verdict_has_every_key(tmp_path: Path) -> None:
    import json

    values = {
        ("lab", "t1", BANDWIDTH): [*noise(20), *noise(5, 90.0)],
        ("lab", "t1", LATENCY): [*noise(24), None],
        ("lab", "t2", BANDWIDTH): noise(25),
        ("lab", "t3", BANDWIDTH): noise(25, seed=3),
    }
    judgement = judgement_of(judged(history(values), references=accepted(tmp_path, 95.0, 110.0)))
    found = json.loads(judgement.model_dump_json())
    assert set(found) == {"night", "verdicts", "events", "answers"}
    assert all(answer.keys() == Answer.model_fields.keys() for answer in found["answers"])
    assert all(verdict.keys() == {field.name for field in fields(NightVerdict)} for verdict in found["verdicts"])
    checks = {"limits", "drift", "spread", "bimodal", "homogeneity", "missing"}
    assert {verdict["check"] for verdict in found["verdicts"]} == checks
    assert {verdict["outcome"] for verdict in found["verdicts"]} == {"pass", "fail", "no_reference"}
    assert Judgement.model_validate_json(judgement.model_dump_json()) == judgement.model_copy(update={"unknown": ()})
    assert judgement.failed
    suts = [verdict["sut"] for verdict in found["verdicts"]]
    assert suts == sorted(suts)


def test_testbeds_judged_by_turns_are_judged_as_one_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, names in enumerate([("a", "s1"), ("a", "s2"), ("b", "s1"), ("c", "s1"), ("c", "s2")]):
        figures = noise(15, seed=place)
        stored(
            tmp_path,
            figures[:14] if names[0] == "b" else [*figures[:12], *noise(3, 120.0)],
            testbed=names[0],
            sut=names[1],
        )
    (tmp_path / "c" / "s2" / run_id(14) / "run.json").write_bytes(b"")
    wrong = "reason: r, by: Ada, until: 2026-02-01"
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(
        f"- {{testbed: b, sut: s1, metric: {LATENCY}, check: drift, {wrong}}}\n"
        f"- {{testbed: no-such, sut: s1, metric: run, check: missing, {wrong}}}\n"
    )
    monkeypatch.setattr(night_module, "PART_SERIES", 1)
    told: list[list[NightVerdict]] = []
    stream = io.BytesIO()
    kept = write_judgement(stream, tmp_path, None, lambda verdicts: told.append(list(verdicts)))
    assert [{verdict.testbed for verdict in part} for part in told] == [{"a"}, {"b"}, {"c"}, {"no-such"}]
    monkeypatch.setattr(night_module, "PART_SERIES", 1000)
    whole = judge_night(tmp_path)
    assert list(whole.verdicts) == [verdict for part in told for verdict in part]
    nights = read_nights(tmp_path)
    assert nights is not None
    assert whole.verdicts == tuple(nights.verdicts), "intervals of earlier nights change nothing"
    assert stream.getvalue().decode() == f"{whole.model_dump_json()}\n"
    assert (kept.events, kept.answers, kept.unknown, kept.titles) == (
        whole.events, whole.answers, whole.unknown, whole.titles,
    )  # fmt: skip
    assert whole.events
    assert {verdict.outcome for verdict in kept.verdicts} == {"fail"}
    assert kept.failed


def test_later_nights_do_not_change_earlier_verdicts() -> None:
    row = [*noise(30), *noise(10, 90.0), *noise(10)]
    whole = history({BANDWIDTH: row})
    for night in range(10, 50):
        then = history({BANDWIDTH: row[:night]})
        again = replace(
            whole,
            nights=whole.nights[:night],
            values=whole.values[:, :night],
            low=whole.low[:, :night],
            high=whole.high[:, :night],
            runs={("lab", "t1"): dict(list(whole.runs["lab", "t1"].items())[:night])},
        )
        assert judged(then).verdicts == judged(again).verdicts
    assert np.isfinite(whole.values).all()


# reading


@pytest.mark.usefixtures("own_index")
def test_judges_the_newest_or_the_given_night(tmp_path: Path) -> None:
    stored(tmp_path, noise(14, 80.0))
    newest = judge_night(tmp_path)
    assert newest.night == night_of(13)
    assert the(newest, "limits", LATENCY).outcome == "no_reference"
    assert the(newest, "drift", LATENCY).outcome == "pass"
    older = judge_night(tmp_path, night_of(5))
    assert older.night == night_of(5)
    assert the(older, "drift", LATENCY).outcome == "no_reference"
    with pytest.raises(InputError, match=r"of the night 2027-01-01 .*; the newest night is 2026-01-14"):
        judge_night(tmp_path, date(2027, 1, 1))
    with pytest.raises(InputError, match=r"of the night 2025-01-01 .* the newest night is 2026-01-14"):
        judge_night(tmp_path, date(2025, 1, 1))


@pytest.mark.usefixtures("own_index")
def test_results_without_a_run_cannot_be_judged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run to judge below "):
        judge_night(tmp_path)
