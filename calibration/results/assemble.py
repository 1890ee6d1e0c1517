# SPDX-License-Identifier: Apache-2.0
"""From the records of a run to its run document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Literal

from calibration.context import load
from calibration.context.model import Context
from calibration.errors import InputError
from calibration.evidence import pages_proof, step_refusal
from calibration.formats.meltdown_checker import CheckerOutput
from calibration.formats.meltdown_checker import read_output as read_checker
from calibration.formats.mlc import read_output
from calibration.formats.readings import Reading
from calibration.judge import judge
from calibration.measurements import declaration
from calibration.measurements.base import Missing, Step
from calibration.measurements.sut import emulation_flags, machine_flags, sized
from calibration.mlc import CommandName
from calibration.model import fault_of
from calibration.plan import Plan
from calibration.preflight import flags as expectation_flags
from calibration.results.consistency import consistency
from calibration.results.facts import facts
from calibration.results.figures import figures_of_record
from calibration.results.layout import SCHEMA_VERSION
from calibration.results.model import (
    GUEST,
    Attempt,
    CapturedContext,
    CheckerRun,
    Kernels,
    Measurement,
    MeltdownChecker,
    Mlc,
    MlcProgram,
    MlcRun,
    NotMeasured,
    Run,
    RunDocument,
    RunStatus,
    of_the_run,
)
from calibration.results.store import (
    AttemptRecord,
    CheckerRecord,
    EndRecord,
    KernelsRecord,
    MlcCommandRecord,
    MlcProgramRecord,
    NotBegunRecord,
    NoteRecord,
    RestoredRecord,
    ResumeRecord,
    StartRecord,
    StepRecord,
    SwitchedRecord,
    read_kept,
    records,
    write_document,
)
from calibration.sutprobe import read_document
from calibration.tuning import Change
from calibration.validity import Flag, flag, validity

ENDED_EARLY = ("timed_out", "killed")
"""Outcomes of a command that was told to end, by its deadline or by a signal: its document may hold what it had."""

NO_REASON = "the run ended before this step and left no reason"
LOST_CONTROLLER = "the controller was lost before it could say why"
INTERRUPTED = "it was interrupted"

THE_REST = "what was left when the command ended"
"""Names what a command that ended early has no value for; its parts may be named beside it, one by one."""


@dataclass
class _Attempt:
    """What the records say about one attempt."""

    began: AttemptRecord
    changes: tuple[Change, ...]
    switched: tuple[Change, ...] = ()
    ended: str | None = None
    finished_at: datetime | None = None
    interrupted: bool = False


@dataclass
class _History:
    """What the records of a run say."""

    attempts: list[_Attempt] = field(default_factory=list)
    kernels: Kernels | None = None
    checker: CheckerRun | None = None
    mlc: MlcProgram | None = None
    mlc_runs: dict[CommandName, MlcRun] = field(default_factory=dict)
    done: dict[str, list[tuple[StepRecord, _Attempt]]] = field(default_factory=dict)

    @property
    def start(self) -> StartRecord | None:
        """The record that has the plan."""
        return next((each.began for each in self.attempts if isinstance(each.began, StartRecord)), None)

    def best(self, step: Step) -> tuple[StepRecord, _Attempt] | None:
        """Return the record of *step* that says most: a result, or a part of one, or the newest that failed."""
        found = self.done.get(step.id, [])
        return max(enumerate(found), key=lambda each: (_worth(each[1][0]), each[0]))[1] if found else None


def _worth(record: StepRecord) -> int:
    return 2 if record.outcome == "ok" else 1 if _ended_early(record) else 0


def _history(directory: Path) -> _History:
    """Return what the records in *directory* say. Raises ``InputError`` where they are not those of a run."""
    history = _History()
    for record in records(directory):
        if isinstance(record, AttemptRecord):
            history.attempts.append(_Attempt(began=record, changes=record.changes))
            continue
        if not history.attempts:
            break
        attempt = history.attempts[-1]
        match record:
            case KernelsRecord():
                history.kernels = record.kernels
            case CheckerRecord():
                history.checker = record.checker
            case MlcProgramRecord():
                history.mlc = record.program
            case MlcCommandRecord():
                history.mlc_runs[record.run.command] = record.run
            case StepRecord():
                history.done.setdefault(record.step.id, []).append((record, attempt))
            case NoteRecord():
                attempt.ended = record.reason
            case SwitchedRecord():
                attempt.switched = record.changes
            case RestoredRecord():
                attempt.changes = record.changes
                attempt.switched = tuple(each for each in attempt.switched if each.restored == each.before)
            case EndRecord():
                attempt.finished_at, attempt.interrupted = record.finished_at, record.interrupted
    if not history.attempts or isinstance(history.attempts[0].began, ResumeRecord):
        raise InputError(f"expected the records in {directory} to begin with the start of a run, found no start")
    return history


def assemble(directory: Path, *, now: datetime, interrupted: bool = False) -> RunDocument:
    """Make the run document from a run's records, write it whole, and return it.

    Where the last attempt did not record its end, that is *now*, and *interrupted* says whether it was ended from
    outside: the steps without a record then have that as their reason. Raises ``InputError`` where the records are not
    those of a run, ``EnvironmentLacksError`` where the document cannot be written.
    """
    history = _history(directory)
    last = history.attempts[-1]
    if last.finished_at is None:
        last.finished_at, last.interrupted = now, interrupted
    start = history.start
    first = history.attempts[0].began
    if isinstance(first, ResumeRecord):
        raise TypeError("the history of a run begins with its start")
    captured = _captured(directory, history)
    measurements: list[Measurement] = []
    mlc: Mlc | None = None
    readings: tuple[Reading, ...] = ()
    if start is None or captured is None:
        not_measured = [_nothing(history)]
        status: RunStatus = "not_begun"
    else:
        measurements, not_measured = _outcomes(start.plan, history, captured.parsed)
        mlc, readings, unread = _mlc(directory, start.plan, history)
        not_measured += unread
        status = _status(not_measured, interrupted=last.interrupted)
    document = RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(
            id=first.id,
            testbed=first.testbed,
            sut=first.sut,
            profile=(start or first).profile,
            started_at=first.started_at,
            finished_at=last.finished_at,
            harness_version=(start or first).harness_version,
            kernels=history.kernels,
            status=status,
        ),
        attempts=tuple(_attempts(history, not_measured)),
        context=captured,
        facts={} if captured is None else facts(captured.parsed, history.kernels),
        flags=() if captured is None else tuple(_machine_flags(captured.parsed, history)),
        meltdown_checker=None if history.checker is None else _checker(directory, history.checker),
        mlc=mlc,
        plan=None if start is None else start.plan,
        measurements=tuple(measurements),
        not_measured=tuple(not_measured),
        verdicts=tuple(judge(measurements, () if start is None else start.limits)),
        record=figures_of_record(measurements),
        consistency=consistency(measurements),
        readings=readings,
    )
    write_document(directory, document)
    return document


def _machine_flags(context: Context, history: _History) -> Iterator[Flag]:
    """Yield what holds for the whole run, each once."""
    checks = (expectation_flags(each.began.checks) for each in history.attempts)
    yield from dict.fromkeys((*machine_flags(context), *chain.from_iterable(checks)))


def _captured(directory: Path, history: _History) -> CapturedContext | None:
    """Return the context that the run began with, or that kept it from beginning; ``None`` where there is none.

    Raises ``InputError`` where the raw capture is not the one that was recorded.
    """
    began = history.start or history.attempts[-1].began
    if began.capture is None or began.capture_sha256 is None:
        return None
    what = "the raw capture that the run began with"
    capture = read_kept(directory, began.capture, began.capture_sha256, what)
    return CapturedContext(
        parsed=load(directory / began.capture, capture), capture=began.capture, capture_sha256=began.capture_sha256
    )


def _checker(directory: Path, run: CheckerRun) -> MeltdownChecker:
    """Return how the checker ran, and what it says; what keeps it from being read is a reason, and fails nothing."""
    said, reason = CheckerOutput(version=None, findings=()), run.reason
    if reason is None and run.output is not None:
        try:
            said = read_checker(read_kept(directory, run.output, run.output_sha256, "what the checker printed"))
        except InputError as error:
            reason = str(error)
    return MeltdownChecker(**{**dict(run), "reason": reason}, version=said.version, findings=said.findings)


def _mlc(directory: Path, plan: Plan, history: _History) -> tuple[Mlc | None, tuple[Reading, ...], list[NotMeasured]]:
    """Return how Intel MLC ran, what was read in what it printed, and which commands of *plan* have no figure."""
    if history.mlc is None:
        return None, (), []
    readings: list[Reading] = []
    gone: list[NotMeasured] = []
    runs: list[MlcRun] = []
    for command in plan.mlc:
        run = history.mlc_runs.get(command.command)
        cause: Literal["failed", "not_planned", "interrupted"] = "failed"
        if run is None:
            interrupted = history.attempts[-1].interrupted
            reason: str | None = history.mlc.reason or (INTERRUPTED if interrupted else NO_REASON)
            cause = "not_planned" if not history.mlc.planned else "interrupted" if interrupted else "failed"
        else:
            found: tuple[Reading, ...] = ()
            reason = run.reason
            if run.outcome == "ok":
                try:
                    found = _mlc_readings(directory, run)
                except InputError as error:
                    reason = str(error)
            runs.append(run.model_copy(update={"reason": reason, "readings": tuple(each.id for each in found)}))
            readings += found
        if reason is not None:
            gone.append(NotMeasured(kind=GUEST, what=command.title, reason=reason, cause=cause))
    return Mlc(**dict(history.mlc), commands=tuple(runs)), tuple(readings), gone


def _mlc_readings(directory: Path, run: MlcRun) -> tuple[Reading, ...]:
    """Return what a command of Intel MLC printed. Raises ``InputError`` where there is no figure in it."""
    if run.output is None:
        raise InputError("what it printed is not kept")
    content = read_kept(directory, run.output, run.output_sha256, "what Intel MLC printed")
    found = read_output(content, run.argv or ())
    return tuple(each.model_copy(update={"id": f"{GUEST}.{run.command}.{each.id}"}) for each in found)


def _nothing(history: _History) -> NotMeasured:
    began = history.attempts[-1].began
    reason = began.reason if isinstance(began, NotBegunRecord) else NO_REASON
    return NotMeasured(kind="run", what="everything", reason=reason, cause="failed")


def _attempts(history: _History, not_measured: Sequence[NotMeasured]) -> Iterator[Attempt]:
    """Yield the attempts; one that was ended before its last step says why."""
    for each in history.attempts:
        began = each.began
        if isinstance(began, NotBegunRecord):
            ended: str | None = began.reason
        elif each.ended is not None:
            ended = each.ended
        elif each.finished_at is None:
            ended = LOST_CONTROLLER
        elif each.interrupted and (
            each is not history.attempts[-1] or any(gone.cause == "interrupted" for gone in not_measured)
        ):
            ended = INTERRUPTED
        else:
            ended = None
        yield Attempt(
            started_at=began.started_at,
            finished_at=each.finished_at,
            boot_id=began.boot_id,
            capture=began.capture,
            capture_sha256=began.capture_sha256,
            checks=began.checks,
            changes=(*each.changes, *each.switched),
            ended=ended,
        )


def _outcomes(plan: Plan, history: _History, context: Context) -> tuple[list[Measurement], list[NotMeasured]]:
    """Return the measurements of the steps of *plan*, and what has none and why."""
    context = sized(context, plan.last_level_cache)
    last = history.attempts[-1]
    measurements: list[Measurement] = []
    not_measured = [
        NotMeasured(kind=each.kind, what=each.what, reason=each.reason, cause="not_planned")
        for each in plan.not_planned
    ]
    done: dict[str, tuple[StepRecord, _Attempt]] = {}
    for step in plan.steps:
        found = history.best(step)
        if found is None:
            not_measured.append(_without_record(step, last))
            continue
        finished, attempt = found
        done[step.id] = found
        try:
            measurements += _measurements(finished, context)
        except InputError as error:
            not_measured.append(
                NotMeasured(
                    kind=step.kind,
                    what=step.title,
                    reason=str(error),
                    cause=_cause(finished, attempt, None),
                    flag=_refusal(finished),
                )
            )
    measurements = _completed(measurements)
    not_measured += [
        NotMeasured(
            kind=each.kind,
            what=f"{each.title}: {gone.what}",
            reason=gone.reason,
            cause=_cause(*done[each.step], gone),
            flag=gone.flag,
        )
        for each in measurements
        for gone in each.missing
    ]
    return measurements, not_measured


def _status(not_measured: list[NotMeasured], *, interrupted: bool) -> RunStatus:
    causes = {each.cause for each in of_the_run(not_measured)}
    if interrupted and "interrupted" in causes:
        return "interrupted"
    return "complete" if causes <= {"not_planned"} else "incomplete"


def _without_record(step: Step, last: _Attempt) -> NotMeasured:
    if last.interrupted:
        return NotMeasured(
            kind=step.kind,
            what=step.title,
            reason="the run was interrupted before this step ended",
            cause="interrupted",
        )
    reason = last.began.reason if isinstance(last.began, NotBegunRecord) else last.ended or NO_REASON
    return NotMeasured(kind=step.kind, what=step.title, reason=reason, cause="failed")


def _ended_early(record: StepRecord) -> bool:
    """Return whether the command of *record* was told to end and handed over what it had measured by then."""
    return record.outcome in ENDED_EARLY and (record.document or {}).get("result") is not None


def _cause(record: StepRecord, attempt: _Attempt, gone: Missing | None) -> Literal["failed", "interrupted"]:
    """Return why *gone*, a part of what *record* should have (``None``: all of it), is not there.

    A part that failed by itself before the run was ended is a failure; what the end left over is not. A kernel that
    crashed, or that somebody on the SUT ended, failed as well: the run was not ended.
    """
    by_the_end = gone is None or gone.what == THE_REST or gone.reason.startswith("interrupted:")
    return "interrupted" if attempt.interrupted and record.outcome == "killed" and by_the_end else "failed"


def _measurements(record: StepRecord, context: Context) -> list[Measurement]:
    """Return the measurements of one finished step. Raises ``InputError`` where there are none, or they cannot be."""
    try:
        return list(_measured(record, context))
    except (ArithmeticError, LookupError, ValueError) as error:  # the SUT's document fits its schema and nothing else
        raise InputError(f"the result contradicts itself: {type(error).__name__}: {fault_of(error)}") from error


def _measured(record: StepRecord, context: Context) -> Iterator[Measurement]:
    """Yield the measurements of one finished step.

    Raises ``InputError`` with the reason where there are none. A step that was told to end has those that its
    document holds; the first of them names what is missing.
    """
    reason = record.reason or f"the step {record.outcome.replace('_', ' ')} and gave no reason"
    early = _ended_early(record)
    if record.document is None or (record.outcome != "ok" and not early):
        raise InputError(reason)
    document = read_document(record.document)
    try:
        found = list(declaration(record.step.kind).parse(document, record.step, context))
    except InputError as error:
        raise InputError(f"{reason}: {error}" if early else str(error)) from error
    if early and not found:
        raise InputError(reason)
    proof = pages_proof(document)
    emulated = tuple(emulation_flags(context, document))
    for number, parsed in enumerate(found):
        rest = (Missing(what=THE_REST, reason=reason),) if early and number == 0 else ()
        missing = (*rest, *parsed.missing)
        flags = [*parsed.flags, *_missing_flags(missing), *emulated]
        if early and not missing:
            flags.append(flag("PARTIAL", f"the command ended early: {reason}"))
        yield Measurement(
            id=parsed.id,
            kind=record.step.kind,
            step=record.step.id,
            title=record.step.title,
            instrument=f"sutprobe {document.build.version}",
            argv=document.argv,
            parameters=document.parameters,
            started_at=datetime.fromtimestamp(document.started_at_unix_ns / 1e9, UTC),
            duration_s=document.duration_s,
            clock=document.clock,
            warnings=document.warnings,
            values=parsed.values,
            missing=missing,
            pages=proof,
            validity=validity(flags),
        )


def _completed(measurements: list[Measurement]) -> list[Measurement]:
    """Return *measurements*, each after a look at the others that may be believed."""
    run = {each.id: each.values for each in measurements if each.validity.valid}
    return [
        each.model_copy(update={"values": declaration(each.kind).completed(each.values, run)}) for each in measurements
    ]


def _refusal(record: StepRecord) -> Flag | None:
    """Return the fault for which the kernel gave no figure at all, where it is one of the closed list."""
    try:
        return None if record.document is None else step_refusal(read_document(record.document))
    except InputError:
        return None  # why it cannot be read is the reason that is given already


def _missing_flags(missing: Sequence[Missing]) -> Iterator[Flag]:
    if missing:
        named = sorted({each.flag.code for each in missing if each.flag is not None})
        faults = f" ({', '.join(named)})" if named else ""
        yield flag("PARTIAL", f"{len(missing)} parts have no value{faults}, first {missing[0].what}")
