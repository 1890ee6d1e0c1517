# SPDX-License-Identifier: Apache-2.0
"""The stored judgement of a night, and the SUTs that fail by it."""

import json
from datetime import date
from pathlib import Path
from typing import IO, Any, get_args

import numpy as np
import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.gates.night import Night as Gated
from calibration.gates.run import GateOutcome
from calibration.judge.answer import Answer, State, answers
from calibration.judge.judged import JudgedNights
from calibration.judge.night import Each, Judgement
from calibration.judge.verdicts import ContextChange, NightVerdict, Outcome, unreadable
from calibration.nightly import judgement as kept
from calibration.nightly.judgement import failures, judge
from calibration.results.history import History
from tests.unit.made_answers import NIGHT as TONIGHT
from tests.unit.made_answers import answer

RUN_ID = "20261122T023000Z-3f2a"
FILES = {"judgement.json", "judgement.txt", "gates.json", "log.html", "xunit.xml"}


def verdict(sut: str, outcome: Outcome) -> NightVerdict:
    return NightVerdict(
        testbed="t1", sut=sut, run_id=None, night=TONIGHT, metric="run", check="missing", outcome=outcome,
        reason="it was not measured",
    )  # fmt: skip


def ended(sut: str, status: str, *, verdicts: bool = False) -> GateOutcome:
    return GateOutcome(gate="No Level Has Drifted", sut=sut, status=status, message="it has", verdicts=verdicts)


class Night:
    """Simulated judge and gates: their results, and the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verdicts: tuple[NightVerdict, ...] = (verdict("a", "pass"),)
        self.answers: tuple[Answer, ...] = (answer("a", "as_accepted"),)
        self.tested = [ended("t1 / a", "PASS")]
        self.asked: list[Any] = []
        monkeypatch.setattr(kept, "write_judgement", self.write_judgement)
        monkeypatch.setattr(kept, "run_gates", self.run_gates)

    def write_judgement(self, stream: IO[bytes], _results: Path, night: date | None, each: Each) -> Judgement:
        self.asked.append(night)
        each(self.verdicts)
        judgement = Judgement(night=TONIGHT, verdicts=self.verdicts, answers=self.answers)
        stream.write(judgement.model_dump_json().encode())
        return judgement

    def run_gates(self, output: Path, night: Gated, gates: Any, variables: dict[str, Path]) -> list[GateOutcome]:
        self.asked.append((sorted(variables), list(gates), night.night))
        assert night.verdicts.keys() == {("t1", "a")}
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
    assert night.asked == [TONIGHT, (["VERDICTS"], [own], TONIGHT)]
    assert {path.name for path in (tmp_path / "night").iterdir()} == FILES
    text = (tmp_path / "night" / "judgement.txt").read_text()
    assert text.startswith("Night of 2026-11-22, 1 SUT: 1 as accepted\n")
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
    night.verdicts = night.answers = ()
    _, tested, changed = judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    assert (tested, changed, night.asked) == ([], True, [TONIGHT])
    text = (tmp_path / "night" / "judgement.txt").read_text()
    assert text == "Night of 2026-11-22, 0 SUTs: none expected\n"


def test_unwritable_path_is_reported(night: Night, tmp_path: Path) -> None:
    (tmp_path / "night").write_text("no directory")
    with pytest.raises(EnvironmentLacksError, match="set judge_dir"):
        judge(tmp_path / "results", RUN_ID, tmp_path / "night")
    assert night.asked == []


@pytest.mark.parametrize("place", ["results", "results/t1"])
def test_a_directory_inside_the_results_is_refused(night: Night, tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match="inside the results; set judge_dir"):
        judge(tmp_path / "results", RUN_ID, tmp_path / place)
    assert night.asked == []


HOSTS = {("t2", "x"): "host-x", ("t1", "a"): "host-a", ("t1", "b"): "host-b"}


def test_suts_fail_by_their_own_answers_and_gates() -> None:
    """A gate of verdicts repeats the answer."""
    changes = tuple(ContextChange(fact=fact, before="1", after="2", night=TONIGHT) for fact in ("kernel", "microcode"))
    worse = {"others": 3, "changes": changes, "todo": "repair it", "command": ("calibration", "show", "t1/b")}
    found = [answer("a", "as_accepted"), answer("b", "fails", **worse), answer("x", "no_baseline", testbed="t2")]
    tested = [ended("t1 / a", "PASS"), ended("t1 / b", "FAIL"), ended("t2 / x", "SKIP")]
    tested.append(ended("t1 / b", "FAIL", verdicts=True))
    assert failures(found, tested, HOSTS, limited=True) == {
        "host-b": [
            "fails since 2026-11-22: it is too slow, and 3 more metrics",
            "Changed: kernel 1 -> 2; microcode 1 -> 2",
            "Do: repair it: calibration show t1/b",
            "gate failed: No Level Has Drifted: it has",
        ]
    }


@pytest.mark.parametrize("state", get_args(State))
def test_a_night_fails_if_a_sut_does_or_is_not_measured(state: State) -> None:
    found = failures([answer("a", state)], [], HOSTS, limited=True)
    assert list(found) == (["host-a"] if state in {"fails", "not_measured", "faulty"} else [])


def test_a_sut_missing_from_the_inventory_fails_its_testbed() -> None:
    found = [answer("c", "not_measured"), answer("y", "not_measured", testbed="t3")]
    tested = [ended("t1 / c", "FAIL")]
    assert failures(found, tested, HOSTS, limited=False) == {
        "host-a": [
            "t1 / c, missing from the inventory: unknown: not measured: no run this night",
            "t1 / c, missing from the inventory: gate failed: No Level Has Drifted: it has",
        ]
    }
    assert failures(found, tested, HOSTS, limited=True) == {}


def test_an_unreadable_file_fails_its_own_sut_alone() -> None:
    damaged = [unreadable(("t1", sut), f"t1/{sut}/r1/run.json", "damaged", TONIGHT, None) for sut in ("b", "left")]
    history = History((TONIGHT,), (), *np.zeros((3, 0, 1)), runs={}, recorded={})
    found = list(answers(JudgedNights(history, (), damaged)).values())
    assert {item.state for item in found} == {"faulty"}
    assert list(failures(found, [], HOSTS, limited=False)) == ["host-b"]
