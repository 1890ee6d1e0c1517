# SPDX-License-Identifier: Apache-2.0
"""What the runner on a SUT recorded, as records of the run: each answer judged, kept once, in order."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, FiniteFloat, PositiveInt, ValidationError
from pydantic_core import to_json

from calibration.base.bounds import bounded_parsing
from calibration.base.errors import CalibrationError, EnvironmentLacksError, SutError
from calibration.base.model import fault_of
from calibration.base.parsers import parse_json_sparingly
from calibration.base.text import decode_base64, visible
from calibration.base.tuning import SettingChange, Unrestored, merged, read_changes, read_unrestored
from calibration.formats.meltdown_checker import ENDED_WELL
from calibration.measurements.base import Step
from calibration.measurements.mlc_program import MlcCommand, read_prefetchers
from calibration.results.health import read_health
from calibration.results.model import CheckerRun, DcdiagRun, MlcProgram, MlcRun
from calibration.run.attempts import session_answers, start_of
from calibration.run.records import (
    HealthRecord,
    MlcProgramRecord,
    Outcome,
    ProbeRecord,
    Record,
    RestoredRecord,
    StepRecord,
    SwitchedRecord,
    append_record,
    appending,
    record_checker,
    record_dcdiag,
    record_mlc_command,
    records,
)
from calibration.run.worst import Worst
from calibration.sutprobe.document import Surroundings

DOCUMENT_LEVELS: Final = 32
"""Limit on the nesting of a document; sutprobe's deepest has about ten levels."""

MAX_STDERR: Final = 20_000
"""Characters kept of standard error, from the end, where the reason is."""

MAX_REASON: Final = 4000
"""Limit on a reason, which is displayed and printed on the page."""

MAX_QUOTED: Final = 1500
"""Characters of each of a program's outputs quoted in a reason, so that both fit into a reason."""

MAX_LINE: Final = 300
"""Characters kept of the last line of a failed command of Intel MLC, as its reason."""

CHECKER_STEP: Final = "meltdown_checker"
DCDIAG_STEP: Final = "opendcdiag"
MLC_STEP: Final = "mlc."
"""Identifiers of the steps of an operator's program; that of Intel MLC is followed by the command."""

DCDIAG_ENDED: Final = (0, 1, 2)
"""Exit codes of opendcdiag with an output to its end: all passed, something failed, or a test hung or could not run."""

CANCELLED: Final = "the run was ended on the SUT"

OUT_OF_MEMORY: Final = (
    "out of memory: the kernel's OOM killer ended a process during this step; free memory on the SUT, or raise the "
    "memory limit of the login's cgroup"
)


def dcdiag_argv(seconds: float) -> tuple[str, ...]:
    """Return the command line of opendcdiag: each test for a second, all of them as often as fits into *seconds*.

    Without ``--max-test-loop-count 0`` a test restarts for new data every few loops, up to 46 times per second on two
    CPUs, and each start is printed: megabytes in minutes. A second has new data as often as the size permits.
    """
    total = f"{round(seconds * 1000)}"
    return ("opendcdiag", "-Y", "-o", "-", "-T", total, "--strict-runtime", "-t", "1s", "--max-test-loop-count", "0")


def quoted(stdout: str, stderr: str) -> str:
    """Return a SUT's output for the end of a reason: both streams, bounded, on one line; empty if there was none."""
    parts = {"stderr": stderr.strip(), "stdout": stdout.strip()}
    return "".join(f"; {name}: {visible(text[-MAX_QUOTED:])}" for name, text in parts.items() if text)


def read_json(text: str) -> dict[str, Any]:
    """Return the only JSON object in *text*. Raises ValueError for anything else, at bounded cost."""
    try:
        with bounded_parsing(text):
            document = parse_json_sparingly(text, levels=DOCUMENT_LEVELS)
    except MemoryError:
        fault = "it has too many values"
        raise ValueError(fault) from None
    written = to_json(document)  # it must be writable again: this refuses lone surrogates
    if b"Infinity" in written and written != to_json(document, inf_nan_mode="null"):  # a text may name it
        raise ValueError("a number is out of range")
    if not isinstance(document, dict):
        raise ValueError(f"it is a {type(document).__name__}, not an object")  # noqa: TRY004 - the text is wrong
    return document


def _object_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def judge_answer(
    answer: Mapping[str, Any], source_sha256: str | None
) -> tuple[Outcome, str | None, dict[str, Any] | None]:
    """Return outcome, reason and document of a step's *answer*, by sutprobe built from *source_sha256*."""
    code, stdout, stderr = answer.get("rc"), str(answer.get("stdout") or ""), str(answer.get("stderr") or "")
    output = quoted(stdout, stderr)
    fault = answer.get("fault")
    if not isinstance(code, int):
        return "failed", f"sutprobe {visible(str(fault))}", None
    try:
        document = read_json(stdout)
    except ValueError as error:
        if fault == "late":
            return "timed_out", f"sutprobe had no complete answer at its deadline and was ended{output}", None
        if fault == "long":
            return "failed", "the SUT's answer is too long: find out what prints so much there", None
        if fault == "cancelled":
            return "killed", "interrupted", None
        if code < 0 or code > 128:
            name = _signal_name(-code if code < 0 else code - 128)
            memory = f"; {OUT_OF_MEMORY}" if answer.get("out_of_memory") else ""
            return "killed", f"sutprobe was killed by {name} before it had a result{memory}{output}", None
        return "failed", f"sutprobe printed no valid JSON document ({error}); exit code {code}{output}", None
    built = _object_of(document, "build").get("source_sha256")
    if built != source_sha256:
        return "failed", f"sutprobe was built from sources {built}, not {source_sha256}", document
    if code == 0 and document.get("status") == "ok":
        lacks = answer.get("lacks")
        return ("failed", f"the answer has no {visible(lacks)}", document) if lacks else ("ok", None, document)
    told = _object_of(document, "error")
    reason = str(told.get("message") or f"sutprobe gave no reason; exit code {code}{quoted('', stderr)}")
    outcomes: dict[str, Outcome] = {"deadline": "timed_out", "interrupted": "killed"}
    return outcomes.get(str(told.get("code")), "failed"), reason, document


class _Raw(BaseModel):
    """The form of a record of the runner, whatever its kind."""

    model_config = ConfigDict(strict=True, extra="allow")

    record: str
    id: str = ""
    round: PositiveInt | None = None
    around: dict[str, FiniteFloat | None] | None = None
    began_s: FiniteFloat | None = None
    duration_s: FiniteFloat = 0.0
    rc: int | None = None
    stdout: str = ""
    stderr: str = ""
    fault: str | None = None
    lacks: str | None = None
    reason: str | None = None
    changes: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    at_s: FiniteFloat = 0.0


def read_record(line: str) -> Mapping[str, Any]:
    """Return the record of the runner in *line*. Raises ``SutError`` if it is none."""
    try:
        return _Raw.model_validate(read_json(line)).model_dump()
    except ValueError as error:
        fault = fault_of(error) if isinstance(error, ValidationError) else error
        raise SutError(f"invalid record of the runner: {fault}: {visible(line[:MAX_QUOTED])}") from error


class RecordReader:
    """Turns the records of a SUT's runner into those of the run in *directory*.

    The runner's records are in order and each answer becomes one record, so that the number of those kept says where to
    go on: nothing is lost or kept twice, whenever a controller was killed. *session* names the runner's own directory.
    """

    def __init__(self, directory: Path, session: str, say: Callable[[str, Outcome], None]) -> None:
        self.directory = directory
        self.say = say
        self.steps = {step.id: step for step in start_of(directory).plan.steps}
        self.commands = {command.command: command for command in start_of(directory).plan.mlc}
        self.source_sha256: str | None = None
        self.mlc: MlcProgram | None = None
        self.worst = Worst()
        for record in records(directory):
            if isinstance(record, ProbeRecord):
                self.source_sha256 = record.probe.source_sha256
            elif isinstance(record, MlcProgramRecord):
                self.mlc = record.program
            elif isinstance(record, StepRecord) and record.outcome == "ok":
                self.worst.take(record.step, record.document)
        self.skip = session_answers(directory, session)
        # Two more for the switched prefetchers of each step in each round, and those of the end.
        commands = len(self.commands) + sum(step.rounds + step.more_rounds for step in self.steps.values())
        self.left = 3 * commands + 10
        self.session = session
        self.restored: tuple[SettingChange, ...] | None = None
        self.unrestored: tuple[Unrestored, ...] = ()
        self.finished = False
        self.reason: str | None = None
        self.round: tuple[int, int, list[Outcome]] | None = None
        self.append: Callable[[Record], None] = partial(append_record, directory)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the records that are taken in the block to disk at its end, all at once."""
        alone = self.append
        with appending(self.directory) as append:
            self.append = append
            try:
                yield
            finally:
                self.append = alone

    def take(self, record: Mapping[str, Any], now: datetime, now_s: float) -> None:
        """Keep one *record* of the runner, at *now*, when the SUT had been up for *now_s*.

        Raises ``SutError`` for more records than the plan can have.
        """
        self.left -= 1
        if self.left < 0:
            raise SutError("the SUT has more records than the plan has steps")
        kind = record.get("record")
        if kind in {"step", "refused"}:
            if self.skip:
                self.skip -= 1
            else:
                age_s = now_s - (now_s if record["began_s"] is None else record["began_s"])
                self._take_answer(record, now - timedelta(seconds=min(max(age_s, 0.0), 1e7)))
        elif kind == "switched":
            self.append(SwitchedRecord(changes=read_changes(record["changes"])))
        elif kind == "health":
            health = read_health(record)
            if health is None:
                self.say("errors, throttling and energy of the SUT are unknown: its record is invalid", "failed")
            else:
                self.append(HealthRecord(health=health))
        elif kind == "restored":
            self.take_restored(read_changes(record["changes"]), read_unrestored(record["faults"]))
        elif kind == "lost":
            self.reason = visible(str(record.get("reason")))[:MAX_REASON]
        elif kind == "cancelled":
            self.reason = CANCELLED
        elif kind == "done":
            self.finished = True

    def take_restored(self, changes: tuple[SettingChange, ...], unrestored: tuple[Unrestored, ...]) -> None:
        """Take the newest that is known of the *changes*, and what of them is not restored."""
        if changes or unrestored or self.restored is not None:
            self.restored = merged(self.restored or (), changes)
            self.unrestored = unrestored

    def end(self) -> None:
        """Keep what was restored; the runner tells it last."""
        self._say_round()
        if self.restored is not None:
            append_record(
                self.directory,
                RestoredRecord(session=self.session, changes=self.restored, unrestored=self.unrestored),
            )

    def _take_answer(self, answer: Mapping[str, Any], started_at: datetime) -> None:
        name = answer["id"]
        known = {"started_at": started_at, "duration_s": answer["duration_s"]}
        if name == CHECKER_STEP:
            self._take_checker(answer, known)
        elif name == DCDIAG_STEP:
            self._take_dcdiag(answer, known)
        elif name.startswith(MLC_STEP) and name.removeprefix(MLC_STEP) in self.commands:
            self._take_mlc(self.commands[name.removeprefix(MLC_STEP)], answer, known)
        elif name in self.steps:
            self._take_step(self.steps[name], answer, known)

    def _take_step(self, step: Step, answer: Mapping[str, Any], known: dict[str, Any]) -> None:
        outcome: Outcome = "failed"
        reason: str | None = visible(str(answer.get("reason")))
        document: dict[str, Any] | None = None
        if answer.get("record") != "refused":
            outcome, reason, document = judge_answer(answer, self.source_sha256)
        reason = reason and reason[:MAX_REASON]
        code = answer.get("rc")
        number = answer.get("round")
        if number is not None and number > step.rounds + step.more_rounds:
            raise SutError(f"the SUT measured {step.id} in round {number}, which the plan does not have")
        self.append(
            StepRecord(
                step=step,
                round=number,
                around=_surroundings(answer.get("around")),
                outcome=outcome,
                reason=reason,
                rc=code if isinstance(code, int) else None,
                document=document,
                stderr=str(answer.get("stderr") or "")[-MAX_STDERR:],
                **known,
            )
        )
        if self.round and self.round[0] != number:
            self._say_round()
        if outcome == "ok":
            self.worst.take(step, document)
        if number is not None:
            self.round = self.round or (number, step.rounds, [])
            self.round[2].append(outcome)
        where = "" if number is None else f", round {number} of {step.rounds}"
        if reason or number is None:
            self.say(f"{step.title}{where}: {reason or 'measured'}", outcome)
        if self.round and len(self.round[2]) == sum(1 < other.rounds >= self.round[0] for other in self.steps.values()):
            self._say_round()  # the first answer of the next may come half an hour later

    def _say_round(self) -> None:
        """Say how many steps of the last round were measured."""
        if self.round:
            number, rounds, outcomes = self.round
            good = outcomes.count("ok")
            where = f"of {rounds}" if number <= rounds else f"beyond the planned {rounds}"
            outcome: Outcome = "ok" if good == len(outcomes) else "failed"
            worst = str(self.worst) and f"; worst so far: {self.worst}"
            self.say(f"round {number} {where}: {good} of {len(outcomes)} steps measured{worst}", outcome)
        self.round = None

    def _take_checker(self, answer: Mapping[str, Any], known: dict[str, Any]) -> None:
        stderr = str(answer.get("stderr") or "")[-MAX_STDERR:]
        code, fault = answer.get("rc"), answer.get("fault")
        output: bytes | None = None
        reason = None
        told = f": {stderr.strip()}" if stderr.strip() else ""
        if not isinstance(code, int):
            reason = f"the checker {fault}"
        else:
            output = decode_base64(str(answer.get("stdout")))
            if fault is not None:
                reason = f"the checker {_ended(fault, answer)}{told}"
            elif code not in ENDED_WELL:
                reason = f"the checker failed with exit code {code}{told}"
        run = CheckerRun(
            **known,
            argv=("/bin/sh", "spectre-meltdown-checker.sh", "--batch", "json"),
            user_id=_int(answer.get("user_id")),
            rc=_int(code),
            output=None,
            output_sha256=None,
            reason=reason and reason[:MAX_REASON],
            script_sha256=_text(answer.get("sha256")),
            stderr=stderr,
        )
        record_checker(self.directory, run, output)
        if reason:
            self.say(f"the Spectre and Meltdown checker has no answer: {reason}", "failed")

    def _take_dcdiag(self, answer: Mapping[str, Any], known: dict[str, Any]) -> None:
        seconds = start_of(self.directory).plan.opendcdiag_s
        if seconds is None:
            return
        code, fault = answer.get("rc"), answer.get("fault")
        output = decode_base64(str(answer.get("stdout"))) if isinstance(code, int) else None
        reason = None
        if output is None:
            reason = f"the program {visible(str(fault))}"
        elif fault is not None:
            reason = f"the program {_ended(fault, answer)}"
        elif code not in DCDIAG_ENDED:
            last = str(answer.get("stderr") or "").strip()[-MAX_LINE:]
            reason = f"the program ended with exit code {code}{f': {visible(last)}' if last else ''}"
        run = DcdiagRun(
            **known,
            argv=dcdiag_argv(seconds),
            user_id=_int(answer.get("user_id")),
            rc=_int(code),
            output=None,
            output_sha256=None,
            reason=reason and reason[:MAX_REASON],
            seconds=seconds,
            program_sha256=_text(answer.get("sha256")),
        )
        record_dcdiag(self.directory, run, output)
        self.say(f"opendcdiag: {reason or 'ran'}", "failed" if reason else "ok")

    def _take_mlc(self, command: MlcCommand, answer: Mapping[str, Any], known: dict[str, Any]) -> None:
        if self.mlc is None or self.mlc.program_sha256 is None:
            return
        output, prefetchers = None, None
        outcome: Outcome = "failed"
        reason: str | None = None
        try:
            if not isinstance(answer.get("rc"), int):
                raise EnvironmentLacksError(str(answer.get("fault")))
            output = decode_base64(str(answer.get("stdout")))
            prefetchers = read_prefetchers(answer.get("prefetchers"))
            outcome, reason = _judge_mlc(answer, output)
        except CalibrationError as error:
            reason = str(error)
        run = MlcRun(
            **known,
            argv=command.argv(prefetchers_ok=self.mlc.prefetchers_ok),
            user_id=_int(answer.get("user_id")),
            rc=_int(answer.get("rc")),
            output=None,
            output_sha256=None,
            reason=reason and reason[:MAX_REASON],
            command=command.command,
            outcome=outcome,
            program_sha256=self.mlc.program_sha256,
            prefetchers=prefetchers,
        )
        record_mlc_command(self.directory, run, output)
        if reason is not None:
            self.say(f"{command.title}: {reason}", outcome)
        if prefetchers is not None and prefetchers.state == "changed":
            self.say(f"{command.title}: it left the prefetchers changed", "failed")


def _surroundings(value: Any) -> Surroundings | None:
    """Return what was around a step; None if the SUT says something else."""
    try:
        return Surroundings.model_validate(value)
    except ValidationError:
        return None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return visible(value)[:MAX_QUOTED] if isinstance(value, str) else None


def _ended(fault: Any, answer: Mapping[str, Any]) -> str:
    """Return why a program of the operator was ended."""
    known = {
        "late": f"timed out after {answer['duration_s']:.0f} s",
        "long": "printed too much",
        "cancelled": "was interrupted",
    }
    return known.get(fault, visible(str(fault)))


def _judge_mlc(answer: Mapping[str, Any], output: bytes) -> tuple[Outcome, str | None]:
    """Return outcome and reason of a command of Intel MLC."""
    code, fault = answer["rc"], answer.get("fault")
    if fault is None and code == 0:
        return "ok", None
    line = _last_line(output)
    if fault is not None:
        outcomes: dict[Any, Outcome] = {"late": "timed_out", "cancelled": "killed"}
        return outcomes.get(fault, "failed"), f"{_ended(fault, answer)}{line}"
    if code < 0:
        return "killed", f"killed by signal {-code}{line}"
    return "failed", f"exit code {code}{line}"


def _last_line(output: bytes) -> str:
    """Return the last line of *output* for the end of a reason; empty if there is none."""
    lines = output[-MAX_STDERR:].decode("utf-8", "replace").strip().splitlines()
    return f"; its last line: {visible(lines[-1].strip())[:MAX_LINE]}" if lines else ""
