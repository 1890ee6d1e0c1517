# SPDX-License-Identifier: Apache-2.0
"""Small changes and improvements are noted; changes shared by several SUTs are one event."""

import io
from pathlib import Path
from typing import Any

import pytest

from calibration.judge.drift import Analysis, DriftChange, Flips
from calibration.judge.events import find_events
from calibration.judge.night import Judgement, judgement_of
from calibration.judge.tolerances import FILE, OwnTolerance, Tolerances, read_tolerances
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.report.screens.judgement import print_judgement
from calibration.results.history import Series
from tests.unit.histories import BANDWIDTH, FACTS, LATENCY, history, judged, night_of, noise, shift, steady

CLOCK = "core_frequency.scalar.all.lowest_hz"
UNITS = {BANDWIDTH: "MB/s", LATENCY: "ns", CLOCK: "MB/s"}


def outcome_of(
    metric: str, row: list[float], analysis: Analysis, *own: OwnTolerance, check: str = "drift"
) -> tuple[str, str]:
    judgement = judged(history({metric: row}, unit=UNITS[metric]), [analysis], tolerances=Tolerances(own))
    (found,) = [item for item in judgement.verdicts if item.check == check]
    return found.outcome, found.reason


def moved(metric: str, before: float, after: float, *own: OwnTolerance, kind: str = "level") -> tuple[str, str]:
    row = [*noise(20, 100.0), *noise(10, 100.0 * after / before if kind == "level" else 100.0)]
    analysis = steady(row, (shift(20, before, after, kind),))
    return outcome_of(metric, row, analysis, *own, check="drift" if kind == "level" else "spread")


def own(**fields: Any) -> OwnTolerance:
    return OwnTolerance(**{"metrics": "*", "fraction": 0.02, "reason": "a test"} | fields)


@pytest.mark.parametrize(("metric", "factor", "outcome"), [
    (CLOCK, 0.994, "noted"),  # a clock that moved by 0.6 %
    (CLOCK, 0.989, "fail"),
    (BANDWIDTH, 0.981, "noted"),
    (BANDWIDTH, 0.979, "fail"),
    (BANDWIDTH, 1.5, "noted"),  # more bandwidth is better
    (LATENCY, 1.029, "noted"),
    (LATENCY, 1.031, "fail"),
    (LATENCY, 0.5, "noted"),
])  # fmt: skip
def test_a_change_fails_if_worse_and_beyond_the_tolerance(metric: str, factor: float, outcome: str) -> None:
    assert moved(metric, 100.0, 100.0 * factor)[0] == outcome


def test_a_noted_change_has_its_reason() -> None:
    assert moved(CLOCK, 100.0, 99.5)[1].endswith("; within the tolerance of 1 %")
    assert moved(LATENCY, 100.0, 50.0)[1].endswith("; better")


def test_only_a_change_beyond_the_tolerance_is_noted_as_better() -> None:
    series = Series("lab", "t1", LATENCY, "ns", "lower")
    moves = [Tolerances().classify_change(series, 100.0, after) for after in (50.0, 99.9, 200.0)]
    assert [(move.outcome, move.better) for move in moves] == [("noted", True), ("noted", False), ("fail", False)]


def test_small_changes_add_up_to_one_that_matters() -> None:
    row = [*noise(20, 100.0), *noise(10, 98.5), *noise(10, 97.0)]
    changes = (shift(20, 100.0, 98.5), shift(30, 98.5, 97.0))
    assert outcome_of(BANDWIDTH, row, steady(row, changes))[0] == "fail"
    assert outcome_of(BANDWIDTH, row, steady(row, changes[:1]))[0] == "noted"


def test_own_tolerances_and_failing_improvements() -> None:
    assert moved(CLOCK, 100.0, 99.5, own(metrics="core_frequency.*", fraction=0.001))[0] == "fail"
    assert moved(BANDWIDTH, 100.0, 90.0, own(fraction=0.2))[0] == "noted"
    assert moved(BANDWIDTH, 100.0, 150.0, own(improvements_fail=True))[0] == "fail"
    assert moved(BANDWIDTH, 100.0, 101.0, own(improvements_fail=True))[0] == "noted"
    first = own(metrics="bandwidth_*", fraction=0.2)
    assert moved(BANDWIDTH, 100.0, 90.0, first, own(fraction=0.001))[0] == "noted"


def test_a_spread_fails_if_two_deviations_exceed_the_tolerance() -> None:
    assert moved(BANDWIDTH, 0.0001, 0.009, kind="spread")[0] == "noted"
    assert moved(BANDWIDTH, 0.005, 0.011, kind="spread")[0] == "fail"
    assert moved(BANDWIDTH, 0.1, 0.05, kind="spread")[0] == "noted"


@pytest.mark.parametrize(("upper", "outcome"), [(101.9, "noted"), (102.1, "fail")])
def test_flips_fail_if_the_levels_exceed_the_tolerance(upper: float, outcome: str) -> None:
    row = noise(20)
    assert outcome_of(BANDWIDTH, row, steady(row, flips=Flips(5, 100.0, upper, 0.5)), check="bimodal")[0] == outcome


def test_own_tolerances_are_read(tmp_path: Path) -> None:
    path = tmp_path / FILE
    assert read_tolerances(tmp_path).fraction(CLOCK) == 0.01
    path.parent.mkdir()
    path.write_text("- {metrics: 'core_frequency.*', fraction: 0.003, reason: sold by the clock}\n")
    assert read_tolerances(tmp_path).fraction(CLOCK) == 0.003
    assert read_tolerances(tmp_path).fraction(LATENCY) == 0.03
    assert read_tolerances(tmp_path).fault is None


@pytest.mark.parametrize(("text", "fault"), [
    ("\n- {metrics: x, fraction: 0, reason: y}\n- {metrics: x}", "line 3, tolerance 2: fraction: "),
    ("- x", "line 1, tolerance 1: the top: "),
    ("x: 1", "not a list of tolerances"),
    ("- {metrics: x, fraction: 2, reason: y}", "line 1, tolerance 1: fraction: "),
    ("[" * 2000, "not valid YAML: nested deeper than 64 levels"),
    ("- {a", "not valid YAML"),
    ("- 2001-99-99", "line 1, tolerance 1: the top: "),
    ("\0", "not valid YAML"),
    ("- preset: nobody", "line 1, tolerance 1: expected preset: intel_cluster or superbench"),
    ("- {preset: intel_cluster, fraction: 0.2}", "line 1, tolerance 1: expected preset: "),
    ("- {metrics: x, fraction: 0, check: drift, reason: y}", "line 1, tolerance 1: check: "),
])  # fmt: skip
def test_invalid_tolerances_leave_the_defaults(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(text)
    found = read_tolerances(tmp_path)
    assert found.fault is not None
    assert found.fault.startswith(fault)
    assert found.fraction(CLOCK) == 0.01


# events


def verdict(sut: str, night: int, metric: str = BANDWIDTH, outcome: str = "fail", **facts: str) -> NightVerdict:
    when = night_of(night)
    changes = [ContextChange(fact=name, before="1", after=after, night=when) for name, after in facts.items()]
    return NightVerdict(
        testbed="lab",
        sut=sut,
        run_id=None,
        night=night_of(90),
        metric=metric,
        check="drift",
        outcome=outcome,  # type: ignore[arg-type]
        value=94.0,
        unit="MB/s",
        bound=(99.0, 101.0),
        interval=(-0.07, -0.05),
        since=night_of(night),
        context_changes=tuple(changes),
        reason="level -6 %",
    )


def test_simultaneous_failures_are_one_event_with_shared_facts() -> None:
    verdicts = [
        verdict("t1", 50, bios="2.2", dimms="8"),
        verdict("t1", 50, LATENCY, bios="2.2"),
        verdict("t2", 51, bios="2.2"),  # a weak change is dated a night late
        verdict("t3", 50, LATENCY, bios="2.2"),
        verdict("t4", 50, LATENCY, outcome="pass", bios="2.2"),
        verdict("t5", 70),
    ]
    (event,) = find_events(verdicts)
    assert (event.night, event.suts) == (night_of(50), ("lab/t1", "lab/t2", "lab/t3"))
    assert event.metrics == tuple(sorted((BANDWIDTH, LATENCY)))
    assert [(change.fact, change.before, change.after) for change in event.context_changes] == [("bios", "1", "2.2")]
    assert [event.has(item) for item in verdicts] == [True, True, True, True, False, False]


def test_different_failures_are_one_event_only_with_a_shared_fact() -> None:
    assert find_events([verdict("t1", 50), verdict("t2", 50, LATENCY)]) == ()
    assert len(find_events([verdict("t1", 50, a="x"), verdict("t2", 50, LATENCY, a="x")])) == 1
    assert find_events([verdict("t1", 50, a="x"), verdict("t2", 50, LATENCY, a="y")]) == ()


def test_noted_changes_are_one_event_only_with_a_shared_fact() -> None:
    assert find_events([verdict("t1", 50, outcome="noted"), verdict("t2", 50, outcome="noted")]) == ()
    (event,) = find_events([verdict(name, 50, outcome="noted", kernel="6.2") for name in ("t1", "t2")])
    assert not event.failed


def test_events_of_neighbouring_nights_do_not_chain() -> None:
    verdicts = [verdict(f"t{night}", night) for night in range(50, 56)]
    assert [event.suts for event in find_events(verdicts)] == [
        ("lab/t50", "lab/t51"),
        ("lab/t52", "lab/t53"),
        ("lab/t54", "lab/t55"),
    ]


def lab(suts: int, factor: float) -> Judgement:
    """A lab in which a new kernel moved a clock of every SUT on the same night."""
    keys = [("lab", f"t{number:02}", CLOCK) for number in range(suts)]
    rows = {key: [*noise(20, seed=number), *noise(10, 100.0 * factor)] for number, key in enumerate(keys)}
    past = history(rows, unit="MB/s", facts={0: {**FACTS, "kernel": "6.1"}, 20: {**FACTS, "kernel": "6.2"}})
    change: tuple[DriftChange, ...] = (shift(20, 100.0, 100.0 * factor),)
    analyses = [steady(row, change) for row in past.values.tolist()]
    return judgement_of(judged(past, analyses))


def test_a_common_small_change_is_noted_once() -> None:
    judgement = lab(20, 0.995)
    assert not judgement.failed
    (event,) = judgement.events
    assert len(event.suts) == 20
    assert [(change.fact, change.after) for change in event.context_changes] == [("kernel", "6.2")]
    text = shown(judgement)
    assert text.startswith("Night of 2026-01-30, 20 SUTs: 20 without a baseline")
    assert "noted: 20 SUTs (lab/t00, lab/t01, lab/t02 and 17 more): core_frequency" in text


def test_a_common_failure_is_one_line_with_its_cause() -> None:
    judgement = lab(20, 0.98)
    assert judgement.failed
    text = " ".join(shown(judgement).split())
    assert text.count("kernel 6.1 -> 6.2") == 1
    assert "20 SUTs (lab/t00, lab/t01, lab/t02 and 17 more) fails since" in text
    assert "lab/t05 " not in text


def shown(judgement: Judgement) -> str:
    stream = io.StringIO()
    print_judgement(judgement, stream)
    return stream.getvalue()
