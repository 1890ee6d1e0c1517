# SPDX-License-Identifier: Apache-2.0
"""A SUT's run as its controller collects it: once and whole, whenever either is lost, and bounded, whatever it says."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from calibration.acceptance.limits import Limit
from calibration.base.commandline import cleanup_command
from calibration.base.errors import ENVIRONMENT, GOOD, ConnectionLostError, InputError, NoAnswerError, SutError
from calibration.base.tuning import Unrestored, read_changes
from calibration.base.validity import flag
from calibration.build import BuiltProbe
from calibration.context import loader
from calibration.finish import finish, finished
from calibration.judge.night import judge_night
from calibration.preflight.checks import Check
from calibration.report.summary import outcome
from calibration.results.model import MlcProgram, ProbeBuild, RunDocument
from calibration.run import remote, session
from calibration.run.answers import CANCELLED
from calibration.run.assemble import assemble
from calibration.run.attempts import mlc_commands, outstanding, record_probe
from calibration.run.lifecycle import begin, no_checks, resume
from calibration.run.records import (
    CheckerRecord,
    EndRecord,
    MlcCommandRecord,
    MlcProgramRecord,
    NotBegunRecord,
    NoteRecord,
    RestoredRecord,
    ResumeRecord,
    StepRecord,
    SwitchedRecord,
    append_record,
    records,
)
from calibration.run.remote import CHANGE_S, Batch, Found, Prepared, Remote
from calibration.run.session import KILLED, RESTARTED, Apart, Mlc, Request, T, calibrate, collect, collect_found, end
from calibration.runner import client
from tests.suts import EVERYTHING, NO_TURBO, Run, Sut, changed, wait_until

CAPTURE = (Path(__file__).parent.parent / "fixtures" / "context" / "x86_64-two-nodes-smt.tar.gz").read_bytes()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SOURCES = "1" * 64
PROBE = ProbeBuild(
    sha256="0" * 64, target="x86_64", version="0.1.0", compiler="clang 20", flags="-O2", source_sha256=SOURCES
)
DOCUMENT = json.dumps({"status": "ok", "build": {"source_sha256": SOURCES}, "result": {"chosen": [3, 17]}})
DIRECTORY = "/tmp/calibration-r1-s1-0123abcd"
BOOT, OTHER_BOOT = (f"{digit * 8}-2222-3333-4444-555555555555" for digit in "12")

pytestmark = pytest.mark.timeout(300)


def silent(_message: str, _outcome: str | None) -> None:
    pass


# A SUT as its controller sees it


@dataclass
class Answers:
    """Stands for the runner on a SUT, which has *records*, handed over one at a time, and ends in *state*."""

    records: list[Any]
    state: str = "ended"
    boot_id: str = BOOT
    cancelled: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        lines = (record if isinstance(record, str) else json.dumps(record) for record in self.records)
        return "".join(f"{line}\n" for line in lines)

    def watch(self, _directory: str, offset: int, **_: float) -> Batch:
        text = self.text[offset:]
        first, _, rest = text.partition("\n")
        return Batch(
            state="running" if rest else self.state,
            now_s=100.0,
            boot_id=self.boot_id,
            lines=(first,) if text else (),
            size=len(first) + 1 if text else 0,
        )

    def find(self, _run_id: str, _sut: str) -> list[Found]:
        return [Found(directory=DIRECTORY, boot_id=BOOT, planned=True)] * (not self.removed)

    def cancel(self, directory: str, **_: float) -> None:
        self.cancelled.append(directory)

    left: tuple[Unrestored, ...] = ()

    def remove(self, directory: str, **_: float) -> tuple[tuple[()], tuple[Unrestored, ...]]:
        self.removed.append(directory)
        return (), self.left


def step_record(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"record": "step", "id": name, "began_s": 90.0, "duration_s": 1.5, "rc": 0, "fault": None, "at_s": 92.0}
    return {**usual, "stdout": DOCUMENT, "stderr": "", "out_of_memory": False, **changes}


CHANGE = {"setting": "turbo", "where": "/sys/x", "before": "0", "wanted": "1", "after": "1"}
CHECK = Check(
    name="kernel_release", title="Kernel release", expected="6.1.*", found="5.4.0", outcome="not_met", severity="flag"
)
RESTORED = {"record": "restored", "changes": [{**CHANGE, "restored": "0", "restored_by": "run"}], "faults": []}


@pytest.fixture(scope="module")
def begun_once(tmp_path_factory: pytest.TempPathFactory) -> Request:
    """A run that has begun, with the plan of a captured machine."""
    results = tmp_path_factory.mktemp("begun") / "results"
    made = Request(results=results, testbed="t1", sut="s1", host="t1-s1", run_id="r1", profile="quick")
    begin(made.results, **made.names, profile="quick", capture=CAPTURE, now=NOW, session=DIRECTORY.rpartition("/")[2])
    record_probe(made.directory, PROBE)
    return made


@pytest.fixture
def request_(begun_once: Request, tmp_path: Path) -> Request:
    """A run that has begun and not been collected."""
    return replace(begun_once, results=shutil.copytree(begun_once.results, tmp_path / "results"))


def planned(made: Request) -> list[str]:
    return [step.id for step in outstanding(made.directory)]


def everything(made: Request) -> list[Any]:
    """Return the records of a whole run, with the operator's programs."""
    told = base64.b64encode(b"[]").decode()
    mlc = MlcProgram(
        started_at=NOW, archive="mlc.tgz", archive_sha256="2" * 64, member="Linux/mlc", program_sha256="3" * 64,
        form="elf", prefetchers_ok=False, publish=False, reason=None,
    )  # fmt: skip
    append_record(made.directory, MlcProgramRecord(program=mlc))
    switched = {"record": "switched", "changes": [{**CHANGE, "restored": None, "restored_by": None}]}
    places = {"places": [], "unread": None}
    return [
        step_record("meltdown_checker", stdout=told, user_id=0, sha256="4" * 64),
        *(step_record(name) for name in planned(made)),
        switched,
        step_record("mlc.idle_latency", stdout=told, user_id=0, sha256="3" * 64, prefetchers=places),
        {"record": "done", "at_s": 99.0},
        RESTORED,
    ]


def kept(made: Request, kind: type[Any]) -> list[Any]:
    return [record for record in records(made.directory) if isinstance(record, kind)]


def assert_whole(made: Request, names: list[str]) -> None:
    assert [(record.step.id, record.outcome) for record in kept(made, StepRecord)] == [(name, "ok") for name in names]
    assert len(kept(made, CheckerRecord)) == 1
    assert len(kept(made, MlcCommandRecord)) == 1
    assert kept(made, RestoredRecord)[-1].changes[0].restored == "0"
    assert kept(made, NoteRecord) == []


def test_a_run_is_collected_whole(request_: Request) -> None:
    names, sut = planned(request_), Answers(everything(request_))
    collect(request_, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert_whole(request_, names)
    assert len(kept(request_, SwitchedRecord)) == 1
    first = kept(request_, StepRecord)[0]
    assert first.duration_s == 1.5
    assert (datetime.now(UTC) - first.started_at).total_seconds() >= 10  # the SUT had been up for 90 s, then 100 s
    assert sut.removed == [DIRECTORY]


def test_answers_that_come_together_are_written_to_disk_together(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, synced = planned(request_), list[int]()
    text = Answers([answer for answer in everything(request_) if answer.get("id") in names] + [{"record": "done"}]).text
    batch = Batch(state="ended", now_s=100.0, boot_id=BOOT, lines=tuple(text.splitlines()), size=len(text))
    sut = Answers([])
    monkeypatch.setattr(sut, "watch", lambda *_, **_named: batch, raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    collect(request_, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert [record.step.id for record in kept(request_, StepRecord)] == names
    assert len(names) > len(synced) == 1


def killed_at(count: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Have a child *act*, and be killed when it has written to disk *count* times; return whether it came so far."""
    child = os.fork()
    if child == 0:
        left = iter(range(count))

        def sync(_descriptor: int) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(os, "fsync", sync)
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.parametrize("torn", [0, 1, 40], ids=lambda count: f"{count} bytes lost")
def test_nothing_is_lost_or_kept_twice_whenever_the_controller_is_killed(
    request_: Request, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    names, more = planned(request_)[:3], planned(request_)[3:]
    sut = Answers([record for record in everything(request_) if record.get("id") not in more])
    path = request_.directory / "records.jsonl"
    begun, count = path.read_bytes(), 0

    def collecting() -> None:
        collect(request_, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
        end(request_)

    while killed_at(count, collecting, monkeypatch):
        os.truncate(path, max(len(begun), path.stat().st_size - torn))  # a part of the last record arrived
        if count % 2:  # the next controller is killed too
            killed_at(2, lambda: collect_found(request_, sut, silent), monkeypatch)  # type: ignore[arg-type]
        collect_found(request_, sut, silent)  # type: ignore[arg-type]
        assert_whole(request_, names)
        assert sut.removed == [DIRECTORY]
        sut.removed.clear()
        path.write_bytes(begun)
        count += 1
    assert count > len(names) + 4


def test_answers_after_the_recorded_end_belong_to_a_new_attempt(request_: Request) -> None:
    names, answers = planned(request_), everything(request_)
    collector = session.RecordReader(request_.directory, DIRECTORY.rpartition("/")[2], lambda *_: None)
    for record in map(session.read_record, map(json.dumps, answers[:3])):
        collector.take(record, NOW, 100.0)
    end(request_, interrupted=True)
    assert collect_found(request_, Answers(answers), silent)  # type: ignore[arg-type]
    assert_whole(request_, names)
    assert [record.session for record in kept(request_, ResumeRecord)] == [DIRECTORY.rpartition("/")[2]]
    assert [record.interrupted for record in kept(request_, EndRecord)] == [True, False]


ENDS: dict[str, tuple[list[Any], dict[str, Any], str | None]] = {
    "restarted": ([], {"state": "dead", "boot_id": OTHER_BOOT}, RESTARTED),
    "killed": ([], {"state": "dead"}, KILLED),
    "killed before restoring": ([{"record": "cancelled"}], {"state": "dead"}, CANCELLED),
    "worker killed": ([{"record": "lost", "reason": "the \033[2J worker"}, RESTORED], {}, "the \\x1b[2J worker"),
    "ended by hand": ([{"record": "cancelled"}, RESTORED], {}, CANCELLED),
    "done": ([{"record": "done"}, RESTORED], {"state": "dead", "boot_id": OTHER_BOOT}, None),
}


@pytest.mark.parametrize(("last", "state", "reason"), ENDS.values(), ids=ENDS)
def test_the_reason_of_an_incomplete_run_is_recorded(
    request_: Request, last: list[Any], state: dict[str, Any], reason: str | None
) -> None:
    first, *_ = planned(request_)
    collect(request_, Answers([step_record(first), *last], **state), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert [record.step.id for record in kept(request_, StepRecord)] == [first]
    assert [record.reason for record in kept(request_, NoteRecord)] == ([] if reason is None else [reason])


def test_cleanup_ends_the_run_and_collects_it(request_: Request) -> None:
    first, *_ = planned(request_)
    sut = Answers([step_record(first), {"record": "cancelled"}, RESTORED])
    assert collect_found(request_, sut, silent, cancelled=True)  # type: ignore[arg-type]
    assert sut.cancelled == sut.removed == [DIRECTORY]
    assert len(kept(request_, StepRecord)) == 1
    assert kept(request_, NoteRecord) == []
    assert [record.interrupted for record in kept(request_, EndRecord)] == [True]
    assert not collect_found(request_, sut, silent, cancelled=True)  # type: ignore[arg-type]


def test_the_end_of_an_attempt_is_recorded_once(request_: Request) -> None:
    assert end(request_, interrupted=True)
    assert not end(request_)
    assert [record.interrupted for record in kept(request_, EndRecord)] == [True]


ANSWERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "late": ({"rc": -15, "stdout": "", "fault": "late"}, "timed_out", "no complete answer at its deadline"),
    "long": ({"rc": -9, "stdout": "{", "fault": "long"}, "failed", "the SUT's answer is too long"),
    "cancelled": ({"rc": -15, "stdout": "", "fault": "cancelled"}, "killed", "interrupted"),
    "crashed": ({"rc": -11, "stdout": "", "stderr": "x"}, "killed", "killed by SIGSEGV before .*; stderr: x"),
    "no memory": ({"rc": -9, "stdout": "", "out_of_memory": True}, "killed", "killed by SIGKILL .*; out of memory"),
    "not started": ({"rc": None, "fault": "cannot be started: \x1b"}, "failed", r"cannot be started: \\x1b"),
    "no JSON": ({"stdout": "Segmentation fault"}, "failed", "no valid JSON document .* exit code 0"),
    "NaN": ({"stdout": '{"status": NaN}'}, "failed", "NaN is not allowed"),
    "nested": ({"stdout": "[" * 100_000}, "failed", "nested deeper than 32 levels"),
    "nested a little": ({"stdout": '{"a":' * 40 + "1" + "}" * 40}, "failed", "nested deeper than 32 levels"),
    "a list": ({"stdout": "[1]"}, "failed", "it is a list, not an object"),
    "lone surrogate": ({"stdout": '{"a": "\\ud800"}'}, "failed", "surrogates not allowed"),
    "lone surrogate in a name": ({"stdout": '{"\\ud800": 1}'}, "failed", "surrogates not allowed"),
    "infinite": ({"stdout": '{"status": [-1e999]}'}, "failed", "a number is out of range"),
    "named infinity": ({"stdout": '{"status": ",Infinity"}'}, "failed", "built from sources None, not 1111"),
    "other sources": ({"stdout": '{"status": "ok"}'}, "failed", "built from sources None, not 1111"),
    "lacking": ({"lacks": "result.points.0.\x1b"}, "failed", r"^the answer has no result\.points\.0\.\\x1b$"),
    "error": (
        {"rc": 1, "stdout": json.dumps({**json.loads(DOCUMENT), "status": "error", "error": {"message": "no node 7"}})},
        "failed",
        "^no node 7$",
    ),
    "odd error": (
        {"rc": 1, "stdout": json.dumps({**json.loads(DOCUMENT), "status": "error", "error": [1]})},
        "failed",
        "sutprobe gave no reason; exit code 1",
    ),
}


@pytest.mark.parametrize(("changes", "outcome", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_no_result_is_kept_with_its_reason(
    request_: Request, changes: dict[str, Any], outcome: str, reason: str
) -> None:
    first, *_ = planned(request_)
    sut = Answers([step_record(first, **changes), {"record": "done"}])
    collect(request_, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    (found,) = kept(request_, StepRecord)
    assert found.outcome == outcome
    assert re.search(reason, found.reason)
    assert found.reason.isprintable()
    assert len(found.reason) <= 4000


FAILED: dict[str, tuple[dict[str, Any], str]] = {
    "checker": ({"id": "meltdown_checker", "rc": 1}, "the checker failed with exit code 1: no luck"),
    "checker not started": ({"id": "meltdown_checker", "rc": None, "fault": "is missing"}, "the checker is missing"),
    "mlc": ({"id": "mlc.idle_latency", "rc": 1}, "exit code 1; its last line: x"),
    "mlc not started": ({"id": "mlc.idle_latency", "rc": None, "fault": "is missing"}, "is missing"),
    "mlc killed": ({"id": "mlc.idle_latency", "rc": -9}, "killed by signal 9; its last line: x"),
    "mlc late": ({"id": "mlc.idle_latency", "rc": -9, "fault": "late"}, "timed out after 2 s; its last line: x"),
}


@pytest.mark.parametrize(("changes", "reason"), FAILED.values(), ids=FAILED)
def test_an_operators_program_without_a_result_is_kept_with_its_reason(
    request_: Request, changes: dict[str, Any], reason: str
) -> None:
    usual = {"stdout": base64.b64encode(b"x\n").decode(), "stderr": "no luck\n", "user_id": 0, "sha256": "3" * 64}
    answer = step_record(**{**usual, "prefetchers": {"places": [], "unread": None}, **changes}, name=changes["id"])
    everything(request_)
    collect(request_, Answers([answer, {"record": "done"}]), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    told = [record.checker.reason for record in kept(request_, CheckerRecord)]
    told += [record.run.reason for record in kept(request_, MlcCommandRecord)]
    assert told == [reason]


# A SUT that lies


def test_a_round_that_is_not_planned_ends_collecting(request_: Request) -> None:
    step = outstanding(request_.directory)[0]
    last = step.rounds + step.more_rounds
    told = [step_record(step.id, round=last), step_record(step.id, round=last + 1)]
    with pytest.raises(SutError, match=f"in round {last + 1}, which the plan does not have"):
        collect(request_, Answers(told), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert [record.round for record in kept(request_, StepRecord)] == [last]


def test_the_answer_of_a_program_that_was_not_sent_is_left_out(request_: Request) -> None:
    told = step_record("mlc.idle_latency", stdout="", user_id=0, sha256="3" * 64)
    collect(request_, Answers([told, {"record": "done"}]), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert kept(request_, MlcCommandRecord) == []


def test_a_run_that_never_ends_is_not_watched_for_ever(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(session.time, "monotonic", lambda: next(passed_s))
    monkeypatch.setattr(session.time, "sleep", lambda _seconds: None)
    limit_s = sum((step.deadline_s + request_.grace_s) * step.rounds for step in outstanding(request_.directory))
    with pytest.raises(SutError, match="has not ended within the sum") as raised:
        collect(request_, Answers([], state="running"), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert next(passed_s) - limit_s < 3 * 3600
    assert DIRECTORY in str(raised.value)


def test_a_run_is_watched_for_as_long_as_its_further_rounds_may_take(request_: Request) -> None:
    made = replace(request_, run_id="r2")
    begin(made.results, **made.names, profile="nightly", capture=CAPTURE, now=NOW)
    steps = outstanding(made.directory)
    longest_s = [(step.deadline_s + made.grace_s) * (step.rounds + step.more_rounds) for step in steps]
    assert any(step.more_rounds for step in steps)
    assert session._longest_s(made) > sum(longest_s)


ODD: dict[str, Any] = {
    "no JSON": "Segmentation fault",
    "not a record": "[1, 2]",
    "NaN": '{"record": "step", "duration_s": NaN}',
    "infinite": '{"record": "step", "duration_s": 1e999}',
    "huge number": '{"record": "step", "began_s": ' + "9" * 400 + "}",
    "nested": '{"record": ' + "[" * 100_000,
    "lone surrogate": '{"record": "lost", "reason": "\\ud800"}',
    "kind": {"record": 7},
    "code": {"record": "step", "id": "x", "rc": "0"},
    "output": {"record": "step", "id": "x", "stdout": ["x"]},
    "fault": {"record": "step", "id": "meltdown_checker", "rc": 1, "fault": ["late"]},
    "changes": {"record": "restored", "changes": 5},
    "changes of nothing": {"record": "switched", "changes": [{}]},
    "faults": {"record": "restored", "changes": [], "faults": [7]},
    "base64": {"record": "step", "id": "meltdown_checker", "rc": 0, "stdout": "\x00!", "duration_s": 1.0},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_record_that_no_runner_writes_ends_collecting(request_: Request, odd: Any) -> None:
    first, *_ = planned(request_)
    with pytest.raises(session.CalibrationError) as refused:
        collect(request_, Answers([step_record(first), odd]), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 5000
    assert "the connection to the SUT was lost" not in str(refused.value)
    assert len(kept(request_, StepRecord)) == 1  # what came before is kept


@pytest.mark.parametrize("record", [{"record": "switched"}, {"record": "x"}, step_record("idle_latency")])
def test_endless_records_end_collecting(request_: Request, record: dict[str, Any]) -> None:
    with pytest.raises(SutError, match="more records than the plan has steps"):
        collect(request_, Answers([record] * 1000), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert len(list(records(request_.directory))) < 500


# What a SUT is asked


def test_a_lost_sut_is_connected_to_again_until_it_answers(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSE_S", 0.0)

    class Restarting(Answers):
        tries = 0

        def watch(self, directory: str, offset: int, **options: float) -> Batch:
            if offset and self.tries < 3:
                raise NoAnswerError("cut")
            return super().watch(directory, offset, **options)

        def reconnect(self) -> None:
            self.tries += 1
            if self.tries < 3:
                raise SutError("it is not up yet")

    names, sut = planned(request_), Restarting(everything(request_))
    collect(replace(request_, reconnect_s=10.0), sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert_whole(request_, names)


class Fresh(Answers):
    """A SUT on which no run has begun."""

    taken_over: dict[str, Any] | None = None

    def start(self, job: dict[str, Any]) -> Prepared:
        self.job = job
        changes = read_changes([{**CHANGE, "restored": None, "restored_by": None}])
        return Prepared(directory=DIRECTORY, boot_id=BOOT, changes=changes, taken_over=self.taken_over, capture=CAPTURE)

    def begin(self, _directory: str, plan: dict[str, Any], programs: dict[str, bytes]) -> None:
        self.plan, self.programs = plan, programs


def calibrated(made: Request, sut: Fresh, built: BuiltProbe, **changes: Any) -> int:
    usual = {"build": lambda _: built, "examine": no_checks, "say": silent, "planned": lambda _: None}
    return calibrate(made, sut, **{**usual, "resumed": False, **changes})  # type: ignore[arg-type]


def test_the_runner_is_told_all_that_was_asked(request_: Request, built: BuiltProbe) -> None:
    made = replace(
        request_,
        run_id="r2",
        machine="x86_64",
        profile="full",
        settings={"turbo": "off"},
        prefetchers_ok=True,
        asked=("/etc/motd",),
        bmc_ok=True,
        limits=(Limit(metric="idle_latency.latency_ns", lower=None, upper=90.0, unit="ns", reason="as bought"),),
        keep_s=7.0,
        grace_s=8.0,
    )
    sut = Fresh([{"record": "done"}, RESTORED])
    sut.taken_over = {"holder": {"run_id": "r0"}, "why": "its processes are gone"}
    assert calibrated(made, sut, built, examine=lambda *_: [CHECK]) == GOOD
    asked = {"run_id": "r2", "sut": "s1", "host": "t1-s1", "settings": {"turbo": "off"}, "prefetchers_ok": True}
    asked |= {"asked": ["/etc/motd"], "bmc_ok": True, "serials_ok": False, "keep_s": 7.0, "wait_s": session.WAIT_S}
    assert asked.items() <= sut.job.items()
    start = session.start_of(made.directory)
    assert (start.limits, start.boot_id, start.session) == (made.limits, BOOT, DIRECTORY.rpartition("/")[2])
    assert [check.name for check in start.checks] == ["reservation", CHECK.name]
    assert [change.where for change in start.changes] == ["/sys/x"]
    assert sut.plan["grace_s"] == 8.0
    assert sut.plan["seed"] == start.plan.seed
    assert sut.plan["programs"] == {"sutprobe": built.sha256}
    assert sut.programs == {"sutprobe": built.path.read_bytes()}
    given = [json.loads(step.model_dump_json()) for step in start.plan.steps]
    assert sut.plan["steps"] == given
    assert any(step.prefetchers == "off" for step in start.plan.steps)


def test_a_complete_run_is_not_resumed_but_for_a_command_of_intel_mlc(request_: Request, built: BuiltProbe) -> None:
    plan = session.start_of(request_.directory).plan
    rounds = [step_record(step.id, round=number) for step in plan.steps for number in range(1, step.rounds + 1)]
    sut = Fresh([*everything(request_)[-4:-2], *rounds, RESTORED])
    collect(request_, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    end(request_)
    assert calibrated(request_, sut, built, resumed=True) == GOOD
    assert not hasattr(sut, "job")
    mlc = Mlc(archive=Path("mlc.tgz"), timeout_s=1000.0, prefetchers_ok=False, publish=False)
    made = replace(request_, mlc=mlc)
    assert session._outstanding(made)
    left = [command.command for command in mlc_commands(made.directory)]
    assert left
    assert "idle_latency" not in left
    assert session._longest_s(made) == session._longest_s(request_) + 1000.0 * len(left)


def test_a_sut_that_cannot_be_asked_keeps_the_checks_that_were_made(request_: Request, built: BuiltProbe) -> None:
    made = replace(request_, run_id="r2", machine="x86_64", checks=(CHECK,))

    def compile_(_machine: str) -> BuiltProbe:
        raise SutError("no compiler")

    assert calibrated(made, Fresh([]), built, build=compile_) == SutError.exit_code
    (attempt,) = kept(made, NotBegunRecord)
    assert (attempt.checks, attempt.reason, attempt.profile) == ((CHECK,), "no compiler", "quick")


# A SUT on this machine


class Link:
    """A connection to this machine, which may be cut."""

    def __init__(self) -> None:
        self.cut = 0
        self.asked: list[str] = []
        self.before_watching: Callable[[], None] = lambda: None

    def __call__(self, what: str, script: str, content: bytes, *, limit_s: float, max_bytes: int) -> str:
        self.asked.append(what)
        if what == "the run":
            self.before_watching()
        if self.cut and what == "the run":
            self.cut -= 1
            raise ConnectionLostError("cut")
        shell = ["/bin/sh", "-c", script]
        with tempfile.TemporaryFile() as stream:  # a pipe takes a page at a time
            stream.write(content)
            stream.seek(0)
            done = subprocess.run(shell, stdin=stream, stdout=subprocess.PIPE, check=False, timeout=limit_s)
        assert len(done.stdout) <= max_bytes
        return done.stdout.decode()


@pytest.fixture
def built(tmp_path: Path) -> BuiltProbe:
    """A stand-in for sutprobe that waits for the file ``go`` beside it."""
    program = tmp_path / "sutprobe"
    program.write_text(f"#!/bin/sh\nwhile ! [ -e {tmp_path}/go ]; do sleep 0.05; done\necho '{DOCUMENT}'\n")
    return BuiltProbe(
        path=program, sha256=sha256(program.read_bytes()).hexdigest(), target="x86_64", version="0.1.0",
        compiler="clang 20", flags=("-O2",), source_sha256=SOURCES,
    )  # fmt: skip


@dataclass
class Controller:
    """The controller of a run on this machine."""

    sut: Sut
    link: Link
    request: Request
    built: BuiltProbe
    said: list[str] = field(default_factory=list)
    examine: Any = no_checks
    build: Any = None

    def calibrate(self, *, resumed: bool = False, apart: Apart = session._here, **changes: Any) -> int:
        return calibrate(
            replace(self.request, **changes),
            Remote(self.link, base=str(self.sut.base), lock=self.sut.lock, interpreter=self.sut.python),
            build=self.build or (lambda _machine: self.built),
            examine=self.examine,
            say=lambda text, _: self.said.append(text),
            planned=lambda _: None,
            resumed=resumed,
            apart=apart,
        )

    def outcomes(self) -> set[str]:
        return {record.outcome for record in kept(self.request, StepRecord)}

    def measured_each_round_once(self) -> bool:
        planned = session.start_of(self.request.directory).plan.steps
        wanted = [(step.id, number) for step in planned for number in range(1, step.rounds + 1)]
        found = [(record.step.id, record.round or 1) for record in kept(self.request, StepRecord)]
        return sorted(found) == sorted(wanted)


@pytest.fixture
def controller(sut: Sut, built: BuiltProbe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Controller:
    monkeypatch.setattr(remote, "runner", sut.program)
    monkeypatch.setattr(session, "PAUSE_S", 0.05)
    made = Request(
        results=tmp_path / "results", testbed="t1", sut="s1", host="t1-s1", run_id="r1", profile="quick",
        settings=EVERYTHING, progress_s=0.5,
    )  # fmt: skip
    return Controller(sut, Link(), made, built)


def test_a_link_that_is_lost_for_a_while_costs_nothing(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    before = controller.sut.settings()
    controller.link.cut = 5
    assert controller.calibrate() == GOOD
    assert controller.measured_each_round_once()
    assert controller.outcomes() == {"ok"}
    assert {change.restored_by for change in kept(controller.request, RestoredRecord)[-1].changes} == {"run"}
    assert kept(controller.request, NoteRecord) == []
    assert controller.sut.settings() == before
    wait_until(lambda: controller.sut.left() == [])


def test_a_capture_that_was_read_apart_is_not_read_again(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apart(work: Callable[[], T]) -> T:
        with monkeypatch.context() as other:
            other.setattr(loader, "newest", {})
            return work()

    (tmp_path / "go").touch()
    monkeypatch.setattr(loader, "newest", {})
    assert controller.calibrate(apart=apart) == GOOD
    monkeypatch.setattr(loader, "describe", Mock(side_effect=AssertionError("read again")))
    assert assemble(controller.request.directory, now=NOW).context is not None


def test_what_contradicts_ratings_is_a_flag_of_the_run(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = flag("RATED_ORDER", "made")
    contradictions = Mock(return_value=[raised])
    monkeypatch.setattr("calibration.run.assemble.rated_flags", contradictions)
    document = assemble(request_.directory, now=NOW)
    assert raised in document.flags
    assert document.context is not None
    contradictions.assert_called_once_with(document.context.parsed, list(document.measurements))


def test_a_resumed_run_measures_the_missing_rounds_alone(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    assert controller.calibrate() == GOOD
    path = controller.request.directory / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert kept(controller.request, StepRecord)
    assert controller.calibrate(resumed=True) == GOOD
    assert controller.measured_each_round_once()


def test_a_resumed_run_measures_what_the_search_of_before_chose(request_: Request, built: BuiltProbe) -> None:
    def steps() -> dict[str, dict[str, Any]]:
        begun = resume(request_.directory, capture=CAPTURE, now=NOW)
        plan, _ = session._programs(request_, begun, replace(built, sha256=PROBE.sha256), silent)
        return {step["id"]: step for step in plan["steps"]}

    before = steps()
    assert before["max_bandwidth"]["choice"]["step"] == "max_bandwidth-search"
    answers = [step_record("max_bandwidth-search"), step_record("max_bandwidth", round=1)]
    collect(request_, Answers(answers), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    after = steps()
    assert "max_bandwidth-search" not in after
    assert (after["max_bandwidth"]["choice"], after["max_bandwidth"]["rounds"]) == (None, [2, 3, 4, 5, 6])
    assert after["max_bandwidth"]["argv"] == [*before["max_bandwidth"]["argv"], "--only", "3,17"]
    assert after["loaded_latency"] == before["loaded_latency"]


def test_a_resumed_run_does_not_run_the_checker_again(request_: Request, built: BuiltProbe, tmp_path: Path) -> None:
    (tmp_path / "checker.sh").write_bytes(b"#!/bin/sh\n")
    made = replace(request_, checker=tmp_path / "checker.sh")

    def before() -> list[str]:
        begun = resume(made.directory, capture=CAPTURE, now=NOW)
        plan, programs = session._programs(made, begun, replace(built, sha256=PROBE.sha256), silent)
        assert {step["argv"][0] for step in plan["before"]} == programs.keys() - {"sutprobe"}
        return [step["id"] for step in plan["before"]]

    assert before() == ["meltdown_checker"]
    collect(made, Answers(everything(made)), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert before() == []


@pytest.mark.parametrize("lost", ["link", "controller"])
def test_what_a_lost_controller_did_not_collect_is_collected_by_the_next(
    controller: Controller, tmp_path: Path, lost: str
) -> None:
    before = controller.sut.settings()
    if lost == "link":
        controller.link.cut = 1000
        assert controller.calibrate(reconnect_s=0.0) != GOOD
        reason = kept(controller.request, NoteRecord)[0].reason
        assert "collect it within 60 min of its end with " in reason
        assert " run --resume r1 -e calibration_results_dir=" in reason
        end(controller.request)
        controller.link.cut = 0
    else:
        child = os.fork()
        if child == 0:
            controller.calibrate()
            os._exit(0)
        wait_until((controller.request.directory / "records.jsonl").exists)
        wait_until(lambda: any(name.endswith("sutprobe") for name in commands(controller.sut)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    (tmp_path / "go").touch()
    assert controller.calibrate(resumed=True) == GOOD
    assert controller.measured_each_round_once()
    assert controller.outcomes() == {"ok"}
    assert controller.sut.settings() == before
    wait_until(lambda: controller.sut.left() == [])
    assert controller.link.asked.count("the start of the runner") <= 1


@pytest.mark.parametrize("lost", ["program", "directory"])
def test_a_run_whose_files_are_lost_ends_with_a_reason(controller: Controller, lost: str) -> None:
    def restart() -> None:
        (directory,) = controller.sut.base.glob("calibration-*")
        run = Run(controller.sut, {"directory": str(directory)})
        run.kill(*run.processes())
        if lost == "directory":
            shutil.rmtree(directory)
        else:
            (directory / "runner").write_bytes(b"")
        controller.link.before_watching = lambda: None

    controller.link.before_watching = restart
    assert controller.calibrate() == GOOD
    assert [record.reason for record in kept(controller.request, NoteRecord)] == [KILLED]
    assert controller.sut.left() == []


def test_nothing_is_reserved_while_sutprobe_is_compiled(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    asked: list[str] = []

    def compiling(machine: str) -> BuiltProbe:
        assert list(controller.sut.base.iterdir()) == []
        asked.append(machine)
        return controller.built

    controller.build = compiling
    assert controller.calibrate() == GOOD
    assert controller.calibrate(run_id="r2", machine="riscv64") == GOOD
    assert asked == [os.uname().machine, "riscv64"]


def test_a_controller_killed_before_it_gave_the_plan_frees_the_sut(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.WAIT_S < 120
    monkeypatch.setattr(session, "WAIT_S", 0.5)
    before, planning = controller.sut.settings(), tmp_path / "planning"

    def never(*_: Any) -> Any:
        planning.touch()
        signal.pause()

    controller.examine = never
    child = os.fork()
    if child == 0:
        controller.calibrate(keep_s=0.0)
        os._exit(0)
    wait_until(planning.exists)
    assert controller.sut.settings() != before
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: controller.sut.left() == [])
    assert controller.sut.settings() == before


def refusing(run_id: Any) -> Callable[..., str]:
    """Return a SUT that refuses a run for another one, which says that it is *run_id*."""

    def call(what: str, *_: Any, **__: Any) -> str:
        text = "the SUT is reserved by run $(reboot) of ;reboot for `reboot`"
        return json.dumps({"refused": text, "run_id": run_id} if "start" in what else {"machine": "x86_64"}) + "\n"

    return call


@pytest.mark.parametrize("said", ["$(reboot)", "20261121T032712Z-3f2a; reboot", "-e", "x" * 9999, "", 7, None, ["a"]])
def test_a_command_has_no_word_of_who_holds_the_sut(controller: Controller, said: Any) -> None:
    controller.link = refusing(said)  # type: ignore[assignment]
    assert controller.calibrate() == ENVIRONMENT
    assert controller.said == ["the SUT is reserved by run $(reboot) of ;reboot for `reboot`"]


def test_the_holder_is_ended_by_a_command_of_what_this_controller_knows(controller: Controller) -> None:
    run_id = "20261121T032712Z-3f2a"
    controller.link = refusing(run_id)  # type: ignore[assignment]
    assert controller.calibrate() == ENVIRONMENT
    (said,) = controller.said
    command = cleanup_command(run_id, ["t1-s1"], controller.request.results)
    assert said.endswith(f"; wait for it, or end it as that user or as root: {command}")
    (refused,) = kept(controller.request, NotBegunRecord)
    assert "cleanup" not in refused.reason  # no paths of this controller in a document


class Clock:
    """A SUT that has a hundred directories of a run, and takes nearly all of the time for each answer."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def call(self, what: str, _script: str, _content: bytes, *, limit_s: float, max_bytes: int) -> str:
        assert max_bytes <= remote.RECORD_BYTES
        self.now += limit_s - 1
        if "search" in what:
            names = (f"/tmp/calibration-r1-s1-{number:08x}" for number in range(100))
            found = [{"directory": name, "boot_id": BOOT, "planned": self.planned} for name in names]
            return json.dumps({"found": found}) + "\n"
        return json.dumps({"state": "running", "now_s": self.now, "boot_id": BOOT}) + "\n"

    planned = True


@pytest.mark.parametrize("planned_", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_a_sut_that_has_countless_directories_is_given_up(
    request_: Request, monkeypatch: pytest.MonkeyPatch, planned_: bool, cancelled: bool, begun: bool
) -> None:
    longest_s = session._longest_s(request_) if begun else 0.0
    asked = request_ if begun else replace(request_, run_id="other")
    clock = Clock()
    clock.planned = planned_
    monkeypatch.setattr(session, "time", clock)
    with contextlib.suppress(SutError):
        collect_found(asked, Remote(clock.call, base="/tmp", lock="x"), silent, cancelled=cancelled)
    question_s = session.ALIVE_S + 120.0
    assert clock.now <= CHANGE_S + (0 if cancelled else longest_s) + 2 * question_s


def commands(sut: Sut) -> list[str]:
    """Return the programs of the runs' directories that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        found += [word for word in words if word.startswith(str(sut.base))]
    return found


def test_a_run_that_cannot_begin_leaves_the_sut_as_it_was(controller: Controller) -> None:
    before = controller.sut.settings()

    def fail(_plan: Any) -> None:
        raise SutError("no luck")

    code = calibrate(
        controller.request,
        Remote(controller.link, base=str(controller.sut.base), lock=controller.sut.lock),
        build=lambda _: controller.built,
        examine=no_checks,
        say=silent,
        planned=fail,
        resumed=False,
    )
    assert code == SutError.exit_code
    assert kept(controller.request, NoteRecord)[-1].reason == "no luck"
    assert controller.sut.settings() == before
    wait_until(lambda: controller.sut.left() == [])


# A SUT that cannot be restored


TURBO = {"turbo": "off", "hugepages_2m": {"0": 8}}

STUCK = Unrestored(setting="turbo", where=NO_TURBO, wanted="0", found="1", error="Operation not permitted")

WORDS = f"Not restored: turbo at {NO_TURBO}: wanted 0, found 1: Operation not permitted"


def stuck(sut: Sut, tmp_path: Path) -> Path:
    """Have the SUT refuse to switch turbo on again until the file exists that is returned."""
    mended = tmp_path / "mended"
    sut.modules = changed(
        sut.modules,
        "settings",
        "    register = register_of(where)\n    if register:\n        descriptor",
        f"    if where.endswith('no_turbo') and value == '0' and not os.path.exists({str(mended)!r}):\n"
        "        raise OSError(1, 'Operation not permitted')\n"
        "    register = register_of(where)\n    if register:\n        descriptor",
    )
    return mended


def document_of(made: Request) -> RunDocument:
    """Return the run document of the records so far."""
    return finish(made.directory, now=datetime.now(UTC))


def ended(request: Request, *, anew: bool) -> dict[str, Any]:
    """Return how the run of *request* ended, as Ansible is told."""
    document = finished(request.results, request.directory, anew=anew)
    return outcome(request.results, request.directory, "t1-s1", document)


def flagged(made: Request) -> list[str]:
    return [flag.reason for flag in document_of(made).flags if flag.code == "NOT_RESTORED"]


def test_what_is_not_restored_is_in_the_document_until_a_later_collection_restores_it(
    controller: Controller, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    mended = stuck(controller.sut, tmp_path)
    assert controller.calibrate(settings=TURBO) == GOOD
    end(controller.request)
    assert WORDS in controller.said
    document = document_of(controller.request)
    assert document.attempts[0].unrestored == (STUCK,)
    assert flagged(controller.request) == [WORDS]
    known = {change.setting: (change.restored, change.restored_by) for change in document.attempts[0].changes}
    assert known == {"turbo": ("1", None), "hugepages_2m": ("0", "run")}
    run = ended(controller.request, anew=False)
    (told,) = [line for line in run["failures"] if "restored" in line]
    assert told.startswith(f"{WORDS}. Try again: ")
    assert "cleanup.yml -e calibration_run_id=r1" in told
    assert told.endswith("--limit t1-s1")
    (verdict,) = [item for item in judge_night(controller.request.results).verdicts if item.check == "restored"]
    assert (verdict.outcome, verdict.metric, verdict.reason) == ("fail", "run", WORDS)

    assert controller.calibrate(resumed=True, settings=TURBO) == GOOD  # it is still stuck
    end(controller.request)
    assert flagged(controller.request) == [WORDS]

    mended.touch()
    assert controller.calibrate(resumed=True, settings=TURBO) == GOOD
    end(controller.request)
    document = document_of(controller.request)
    assert flagged(controller.request) == []
    assert {attempt.unrestored for attempt in document.attempts} == {()}
    restored = {change.setting: change.restored_by for change in document.attempts[0].changes}
    assert restored == {"turbo": "cleanup", "hugepages_2m": "run"}
    run = ended(controller.request, anew=True)
    assert not any("restored" in line for line in run["failures"])
    (verdict,) = [item for item in judge_night(controller.request.results).verdicts if item.check == "restored"]
    assert verdict.outcome == "pass"
    wait_until(lambda: controller.sut.left() == [])


def test_cleanup_restores_or_says_what_is_still_changed(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    mended = stuck(controller.sut, tmp_path)
    controller.calibrate(settings=TURBO)
    end(controller.request)
    asked = Remote(controller.link, base=str(controller.sut.base), lock=controller.sut.lock)
    for left in (True, False):
        said: list[tuple[str, str | None]] = []
        if not left:
            mended.touch()

        def say(text: str, outcome: str | None, said: list[tuple[str, str | None]] = said) -> None:
            said.append((text, outcome))

        assert collect_found(controller.request, asked, say, cancelled=True)
        assert [words for words in said if words[1] == session.UNCLEAN] == ([(WORDS, session.UNCLEAN)] if left else [])
        assert flagged(controller.request) == ([WORDS] if left else [])


def test_a_run_that_another_one_left_changed_is_refused_with_what_is_left(
    controller: Controller, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    mended = stuck(controller.sut, tmp_path)
    controller.calibrate(settings=TURBO)
    end(controller.request)
    assert controller.calibrate(run_id="r2") == SutError.exit_code
    second = replace(controller.request, run_id="r2")
    document = document_of(second)
    assert document.run.status == "not_begun"
    assert document.attempts[0].unrestored == (STUCK,)
    assert flagged(second) == [WORDS]
    assert document.attempts[0].ended == f"cannot restore what run r1 left on the SUT. {WORDS}"
    failures = ended(second, anew=False)["failures"]
    assert f"{WORDS}. Every run tries again before it begins" in failures
    mended.touch()
    assert controller.calibrate(run_id="r3") == GOOD
    (check,) = document_of(replace(second, run_id="r3")).attempts[0].checks
    assert "that of r1" in check.found
    assert "1 settings restored" in check.found or "2 settings restored" in check.found


def test_a_run_that_cannot_begin_says_what_it_left(controller: Controller, tmp_path: Path) -> None:
    stuck(controller.sut, tmp_path)

    def fail(_plan: Any) -> None:
        raise SutError("no luck")

    said: list[str] = []
    code = calibrate(
        replace(controller.request, settings=TURBO),
        Remote(controller.link, base=str(controller.sut.base), lock=controller.sut.lock),
        build=lambda _: controller.built,
        examine=no_checks,
        say=lambda text, _: said.append(text),
        planned=fail,
        resumed=False,
    )
    assert code == SutError.exit_code
    assert said == [WORDS, "no luck"]
    (attempt,) = document_of(controller.request).attempts
    assert attempt.unrestored == (STUCK,)
    assert attempt.ended == "no luck"
    assert {change.setting: change.restored for change in attempt.changes} == {"turbo": "1", "hugepages_2m": "0"}


def test_a_run_with_a_wrong_profile_says_what_it_left(controller: Controller, tmp_path: Path) -> None:
    stuck(controller.sut, tmp_path)
    assert controller.calibrate(settings=TURBO, profile="unknown") == InputError.exit_code
    assert controller.said[0] == WORDS
    document = document_of(controller.request)
    assert document.run.status == "not_begun"
    assert document.attempts[0].unrestored == (STUCK,)
    assert flagged(controller.request) == [WORDS]


END_FAILED = Unrestored(setting=None, where="/tmp/calibration-r1", wanted=None, found=None, error="no luck")


def test_changes_of_which_the_end_says_nothing_are_not_forgotten(request_: Request) -> None:
    on = {"setting": "turbo", "where": "/sys/x", "before": "0", "wanted": "1", "after": "1"}
    pages = {"setting": "hugepages_2m", "where": "/sys/node{0-1}/y", "before": "0", "wanted": "8", "after": "8"}
    unknown = {"restored": None, "restored_by": None}
    made = replace(request_, run_id="r2")
    begin(
        made.results,
        **made.names,
        profile="quick",
        capture=CAPTURE,
        now=NOW,
        session=DIRECTORY.rpartition("/")[2],
        changes=read_changes([{**on, **unknown}, {**pages, **unknown}]),
    )
    record_probe(made.directory, PROBE)
    node = {**pages, "where": "/sys/node0/y", "restored": "0", "restored_by": "run"}
    told = {"record": "restored", "changes": [node], "faults": [END_FAILED.model_dump()]}
    sut = Answers([{"record": "done"}, told], left=(END_FAILED,))
    collect(made, sut, DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    (attempt,) = document_of(made).attempts
    assert {(change.where, change.restored) for change in attempt.changes} == {
        ("/sys/x", None),
        ("/sys/node0/y", "0"),
        ("/sys/node1/y", None),
    }
    assert {(item.where, item.wanted, item.found) for item in attempt.unrestored} == {
        ("/tmp/calibration-r1", None, None),
        ("/sys/x", "0", None),
        ("/sys/node1/y", "0", None),
    }
    said = "/tmp/calibration-r1: no luck; turbo at /sys/x: wanted 0, found unknown; "
    assert flagged(made) == [f"Not restored: {said}hugepages_2m at /sys/node1/y: wanted 0, found unknown"]


def test_what_was_told_of_restoring_is_kept_though_the_sut_is_lost_then(request_: Request) -> None:
    class Lost(Answers):
        def watch(self, directory: str, offset: int, **options: float) -> Batch:
            if offset:
                raise ConnectionLostError("cut")
            return super().watch(directory, offset, **options).model_copy(update={"state": "running"})

    told = {**RESTORED, "faults": [STUCK.model_dump()]}
    with pytest.raises(SutError, match="did not come back"):
        collect(replace(request_, reconnect_s=0.0), Lost([told]), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    (restored,) = kept(request_, RestoredRecord)
    assert restored.unrestored == (STUCK,)


def test_a_later_attempt_that_finds_the_value_from_before_knows_that_it_was_restored(request_: Request) -> None:
    lost, found = (
        read_changes([{**CHANGE, "before": value, "restored": None, "restored_by": None}]) for value in ("0", "1")
    )
    for before, left in ((found, True), (lost, False)):
        made = replace(request_, run_id=f"r-{left}")
        begin(made.results, **made.names, profile="quick", capture=CAPTURE, now=NOW, changes=lost)
        record_probe(made.directory, PROBE)
        resume(made.directory, capture=CAPTURE, now=NOW, changes=before)
        back = [change.model_copy(update={"restored": change.before, "restored_by": "run"}) for change in before]
        append_record(made.directory, RestoredRecord(changes=tuple(back)))
        first, second = document_of(made).attempts
        assert bool(first.unrestored) is left
        assert second.unrestored == ()


# What is not an answer of the runner

NO_ANSWERS = {
    "nothing": "",
    "text": "Last login: yesterday\n",
    "escape": "\033[2J\n",
    "list": "[]\n",
    "nested": "[" * 100_000 + "\n",
    "directory": '{"directory": "relative", "boot_id": null, "capture": ""}\n',
    "capture": json.dumps({"directory": DIRECTORY, "boot_id": BOOT, "capture": "!", "changes": []}) + "\n",
    "changes": json.dumps({"directory": DIRECTORY, "boot_id": BOOT, "capture": "", "changes": [1]}) + "\n",
    "boot": json.dumps({"directory": DIRECTORY, "boot_id": "x", "capture": "", "changes": []}) + "\n",
    "refused": json.dumps({"refused": "\033[31m" + "x" * 100_000}) + "\n",
    "refused oddly": json.dumps({"refused": [1]}) + "\n",
    "faults": json.dumps({"refused": "x", "faults": 5}) + "\n",
    "faults of nothing": json.dumps({"refused": "x", "faults": [{}]}) + "\n",
    "endless places": json.dumps(
        {
            "refused": "x",
            "faults": [
                {"setting": "turbo", "where": "/cpu{0-8191}/x", "wanted": "1", "found": str(number), "error": None}
                for number in range(10)
            ],
        }
    )
    + "\n",
}


@pytest.mark.parametrize("output", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_of_the_runner_is_refused_in_printable_text(output: str) -> None:
    asked = Remote(lambda *_, **__: output, base="/tmp", lock="x")
    with pytest.raises(session.CalibrationError) as refused:
        asked.start({})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 5000


def test_a_sut_is_waited_for_until_its_own_limits_have_given_the_reason() -> None:
    limits: dict[str, float] = {}

    def silent_sut(what: str, _script: str, _content: bytes, *, limit_s: float, max_bytes: int) -> str:
        limits[what] = limit_s
        raise NoAnswerError(f"not one of {max_bytes} bytes")

    asked = Remote(silent_sut, base="/tmp", lock="x")
    for ask in (
        lambda: asked.start({}),
        lambda: asked.begin(DIRECTORY, {}, {}),
        lambda: asked.watch(DIRECTORY, 0, at_least_s=0.0, at_most_s=session.ALIVE_S),
        lambda: asked.cancel(DIRECTORY),
        lambda: asked.remove(DIRECTORY),
    ):
        with pytest.raises(NoAnswerError):
            ask()
    own = {
        "the start of the runner": client.PREPARE_S + client.END_S,
        "the transfer of the plan": client.START_S,
        "the run": session.ALIVE_S,
        "the end of the run": client.END_S,
        "the removal of the run": client.END_S,
    }
    assert {what: limit_s > own[what] for what, limit_s in limits.items()} == dict.fromkeys(own, True)


def test_countless_records_are_refused_before_they_are_read() -> None:
    asked = Remote(lambda *_, **__: '{"state": "running", "now_s": 1.0}\n' + "\n" * 1_000_000, base="/tmp", lock="x")
    with pytest.raises(SutError, match="more than 100000 records"):
        asked.watch(DIRECTORY, 0, at_least_s=0, at_most_s=0)


def test_a_silent_sut_that_runs_for_ever_is_not_asked_without_a_pause(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise SutError("enough")

    monkeypatch.setattr(time, "sleep", pause)
    with pytest.raises(SutError, match="enough"):
        collect(request_, Answers([], state="running"), DIRECTORY, BOOT, silent)  # type: ignore[arg-type]
    assert pauses == [session.PAUSE_S] * 3


PREPARED = """
from calibration.measurements.table import with_tables
from calibration.run import records, session

session.prepare()
assert records._RECORD.pydantic_complete
assert all(model.row_model(read=False).__pydantic_complete__ for model in with_tables())
"""


def test_processes_forked_after_the_preparation_build_no_models() -> None:
    """A process of its own: the models of this one are built by other tests."""
    subprocess.run([sys.executable, "-c", PREPARED], check=True)
