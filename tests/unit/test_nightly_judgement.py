# SPDX-License-Identifier: Apache-2.0
"""The stored judgement of a night, and the SUTs that fail by it."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.gates.run import GateOutcome
from calibration.judge.night import Judgement
from calibration.judge.verdicts import NightVerdict, Outcome
from calibration.nightly import judgement as kept
from calibration.nightly.judgement import failures, judge

TONIGHT = date(2026, 11, 22)
RUN_ID = "20261122T023000Z-3f2a"
FILES = {"judgement.json", "judgement.txt", "gates.json", "log.html", "xunit.xml"}


def verdict(sut: str, outcome: Outcome, testbed: str = "t1") -> NightVerdict:
    return NightVerdict(
        testbed=testbed, sut=sut, run_id=None, night=TONIGHT, metric="run", check="missing", outcome=outcome,
        reason="it was not measured",
    )  # fmt: skip


def ended(sut: str, status: str, *, verdicts: bool = False) -> GateOutcome:
    return GateOutcome(gate="No Level Has Drifted", sut=sut, status=status, message="it has", verdicts=verdicts)


class Night:
    """Simulated judge and gates: their results, and the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verdicts: tuple[NightVerdict, ...] = (verdict("a", "pass"),)
        self.tested = [ended("t1 / a", "PASS")]
        self.asked: list[Any] = []
        monkeypatch.setattr(kept, "judge_night", self.judge_night)
        monkeypatch.setattr(kept, "run_gates", self.run_gates)

    def judge_night(self, _results: Path, night: date | None) -> Judgement:
        self.asked.append(night)
        return Judgement(night=TONIGHT, verdicts=self.verdicts)

    def run_gates(self, output: Path, variables: dict[str, Path], gates: Any, *, night: date) -> list[GateOutcome]:
        self.asked.append((sorted(variables), list(gates), night))
        assert json.loads(variables["VERDICTS"].read_bytes())["verdicts"]
        for name in ("log.html", "xunit.xml"):
            (output / name).write_text(f"generated for the {len(self.asked)}th time")
        return self.tested


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> Night:
    return Night(monkeypatch)


def test_night_is_stored_with_its_judgement(night: Night, tmp_path: Path) -> None:
    own = tmp_path / "own.robot"
    judgement, tested, changed = judge(tmp_path / "results", RUN_ID, tmp_path / "night", [own])
    assert (judgement.night, tested, changed) == (TONIGHT, night.tested, True)
    assert night.asked == [TONIGHT, (["RESULTS", "VERDICTS"], [own], TONIGHT)]
    assert {path.name for path in (tmp_path / "night").iterdir()} == FILES
    text = (tmp_path / "night" / "judgement.txt").read_text()
    assert "0 of 1 SUT fail tonight, 2026-11-22" in text
    assert "No Level Has Drifted" in text
    assert str(tmp_path / "night" / "log.html") in " ".join(text.split())


def test_a_run_named_by_hand_stands_for_the_newest_night(night: Night, tmp_path: Path) -> None:
    judge(tmp_path / "results", "by-hand", tmp_path / "night")
    assert night.asked[0] is None


def test_unchanged_files_are_not_rewritten(night: Night, tmp_path: Path) -> None:
    folder = tmp_path / "night"
    judge(tmp_path / "results", RUN_ID, folder)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert not judge(tmp_path / "results", RUN_ID, folder)[2]
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    night.tested = [ended("t1 / a", "FAIL")]
    assert judge(tmp_path / "results", RUN_ID, folder)[2]
    assert all(before[path][0] != path.read_bytes() for path in (folder / "log.html", folder / "xunit.xml"))
    night.verdicts = (verdict("a", "fail"),)
    assert judge(tmp_path / "results", RUN_ID, folder)[2]
    (folder / "gates.json").unlink()
    assert judge(tmp_path / "results", RUN_ID, folder)[2]
    assert {path.name for path in folder.iterdir()} == FILES


def test_failing_gates_keep_the_old_files(night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    before = {path: path.read_bytes() for path in (tmp_path / "night").iterdir()}
    night.verdicts = (verdict("a", "fail"),)

    def broken(*_: Any, **__: Any) -> list[GateOutcome]:
        raise InputError("Robot Framework cannot read the gates")

    monkeypatch.setattr(kept, "run_gates", broken)
    with pytest.raises(InputError, match="cannot read the gates"):
        judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    assert before == {path: path.read_bytes() for path in (tmp_path / "night").iterdir()}


def test_a_night_without_any_verdict_needs_no_gates(night: Night, tmp_path: Path) -> None:
    night.verdicts = ()
    _, tested, changed = judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    assert (tested, changed, night.asked) == ([], True, [TONIGHT])
    assert "0 of 0 SUTs fail tonight" in (tmp_path / "night" / "judgement.txt").read_text()


def test_unwritable_path_is_reported(night: Night, tmp_path: Path) -> None:
    (tmp_path / "night").write_text("no directory")
    with pytest.raises(EnvironmentLacksError, match="set judge_dir"):
        judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    assert night.asked == [TONIGHT]


@pytest.mark.parametrize("place", ["results", "results/t1"])
def test_a_directory_inside_the_results_is_refused(night: Night, tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match="inside the results; set judge_dir"):
        judge(tmp_path / "results", RUN_ID, tmp_path / place)
    assert night.asked == []


HOSTS = {("t2", "x"): "host-x", ("t1", "a"): "host-a", ("t1", "b"): "host-b"}


def test_suts_fail_by_their_own_verdicts_and_gates() -> None:
    verdicts = [verdict("a", "pass"), verdict("b", "fail"), verdict("a", "no_reference")]
    tested = [ended("t1 / a", "PASS"), ended("t1 / b", "FAIL"), ended("t2 / x", "SKIP")]
    assert failures(verdicts, tested, HOSTS, limited=True) == {
        "host-b": ["Verdict failed: it was not measured", "Gate failed: No Level Has Drifted: it has"]
    }


def test_one_event_is_one_line_and_gates_of_verdicts_are_omitted() -> None:
    changed = {"check": "drift", "value": 94.0, "unit": "MB/s", "interval": (-0.07, -0.05), "since": TONIGHT}
    verdicts = [
        verdict("b", "fail").model_copy(update={**changed, "metric": f"bandwidth_matrix.0.{node}.bandwidth_mb_s"})
        for node in (0, 1)
    ]
    tested = [ended("t1 / b", "FAIL", verdicts=True), ended("t1 / b", "FAIL")]
    assert failures(verdicts, tested, HOSTS, limited=True) == {
        "host-b": [
            f"Verdict failed: bandwidth_matrix.* -6 % (-7 to -5 %) on 2 metrics since {TONIGHT}",
            "Gate failed: No Level Has Drifted: it has",
        ]
    }


def test_a_sut_missing_from_the_inventory_fails_its_testbed() -> None:
    verdicts, tested = [verdict("c", "fail"), verdict("y", "fail", "t3")], [ended("t1 / c", "FAIL")]
    assert failures(verdicts, tested, HOSTS, limited=False) == {
        "host-a": [
            "t1 / c, missing from the inventory: Verdict failed: it was not measured",
            "t1 / c, missing from the inventory: Gate failed: No Level Has Drifted: it has",
        ]
    }
    assert failures(verdicts, tested, HOSTS, limited=True) == {}


def test_an_unreadable_file_fails_its_own_sut_alone() -> None:
    damaged = {"check": "unreadable", "metric": "t1/b/r1/run.json", "reason": "not a run document"}
    verdicts = [verdict(sut, "fail").model_copy(update=damaged) for sut in ("b", "gone")]
    assert list(failures(verdicts, [], HOSTS, limited=False)) == ["host-b"]
