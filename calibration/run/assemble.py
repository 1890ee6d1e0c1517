# SPDX-License-Identifier: Apache-2.0
"""Assemble the run document from the records of a run."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

from calibration.base.errors import InputError
from calibration.base.tuning import Unrestored, not_restored, unrestored
from calibration.base.validity import Flag, flag
from calibration.context.facts import facts
from calibration.context.loader import load
from calibration.formats.meltdown_checker import read_output as read_checker
from calibration.formats.mlc import read_output
from calibration.formats.opendcdiag import read_ended as read_ended_dcdiag
from calibration.formats.opendcdiag import read_output as read_dcdiag
from calibration.formats.readings import Reading
from calibration.measurements import declaration
from calibration.measurements.plan import Plan
from calibration.measurements.sut import machine_flags
from calibration.preflight.checks import flags as expectation_flags
from calibration.results.cross_checks import cross_checks
from calibration.results.health import health_flags
from calibration.results.layout import SCHEMA_VERSION
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import (
    DCDIAG,
    MLC,
    Attempt,
    CapturedContext,
    CheckerRun,
    Dcdiag,
    DcdiagRun,
    Measurement,
    MeltdownChecker,
    Mlc,
    MlcRun,
    NotMeasured,
    OtherRun,
    Run,
    RunDocument,
    RunStatus,
    of_the_run,
)
from calibration.results.rated import rated_flags
from calibration.run.answers import OUT_OF_MEMORY
from calibration.run.outcomes import NO_REASON, outcomes
from calibration.run.records import NotBegunRecord, StepRecord, read_kept
from calibration.run.run_log import RunLog, replay
from calibration.sutprobe.document import Warned, read_document

LOST_CONTROLLER = "the controller was lost"
INTERRUPTED = "interrupted"

T = TypeVar("T")


def assemble(directory: Path, *, now: datetime, interrupted: bool = False) -> RunDocument:
    """Return the run document of the records in *directory*, without verdicts.

    If the last attempt did not record its end, it ended *now*; *interrupted* says whether from outside, which is then
    the reason of the steps without a record. Raises ``InputError`` if the records are not those of a run.
    """
    log = replay(directory)
    last = log.attempts[-1]
    if last.finished_at is None:
        last.finished_at, last.interrupted = now, interrupted
    start = log.start
    named = start or log.first
    captured = _captured(directory, log)
    measurements: list[Measurement] = []
    mlc: Mlc | None = None
    dcdiag: Dcdiag | None = None
    readings: tuple[Reading, ...] = ()
    if start is None or captured is None:
        not_measured = [_nothing(log)]
        status: RunStatus = "not_begun"
    else:
        measurements, not_measured = outcomes(start.plan, log, captured.parsed)
        mlc, readings, unread = _mlc(directory, start.plan, log)
        dcdiag = None if log.opendcdiag is None else _dcdiag(directory, log.opendcdiag)
        not_measured += unread
        if dcdiag is not None and dcdiag.reason is not None:
            not_measured.append(NotMeasured(kind=DCDIAG, what=DCDIAG, reason=dcdiag.reason, cause="failed"))
        status = _status(not_measured, interrupted=last.interrupted)
    attempts = tuple(_attempts(log, not_measured))
    return RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(
            id=named.id,
            testbed=named.testbed,
            sut=named.sut,
            profile=named.profile,
            started_at=log.first.started_at,
            finished_at=last.finished_at,
            harness_version=named.harness_version,
            probe=log.probe,
            status=status,
        ),
        attempts=attempts,
        context=captured,
        facts={} if captured is None else facts(captured.parsed, None if log.probe is None else log.probe.sha256),
        flags=(*_dcdiag_flags(dcdiag), *_flags(captured, log, attempts, mlc, measurements)),
        meltdown_checker=None if log.checker is None else _checker(directory, log.checker),
        mlc=mlc,
        opendcdiag=dcdiag,
        plan=None if start is None else start.plan,
        measurements=tuple(measurements),
        not_measured=tuple(not_measured),
        verdicts=(),
        record=metrics_of_record(measurements),
        consistency=cross_checks(measurements),
        readings=readings,
        imported=None,
        acceptance=() if start is None else start.acceptance,
    )


def _flags(
    captured: CapturedContext | None,
    log: RunLog,
    attempts: Sequence[Attempt],
    mlc: Mlc | None,
    measurements: Sequence[Measurement],
) -> Iterator[Flag]:
    """Yield the flags of the whole run, without repetitions."""
    left = [*chain.from_iterable(attempt.unrestored for attempt in attempts), *_left_by_mlc(mlc)]
    if left:
        yield flag("NOT_RESTORED", not_restored(dict.fromkeys(left)))
    if captured is None:
        return
    checks = (expectation_flags(attempt.began.checks) for attempt in log.attempts)
    healths = (attempt.health for attempt in log.attempts if attempt.health is not None)
    context = captured.parsed
    rated = rated_flags(context, measurements)
    found = (*machine_flags(context), *rated, *chain.from_iterable(checks), *health_flags(healths), *_told_flags(log))
    yield from dict.fromkeys(found)


def _told_flags(log: RunLog) -> Iterator[Flag]:
    """Yield the flags of which any answer tells that fail a run of its kind, be it one that was measured again."""
    for record, _ in chain.from_iterable(log.steps.values()):
        fatal = declaration(record.step.kind).fails_with
        where = "" if record.round is None else f"round {record.round}: "
        for warning in _warnings(record) if fatal else ():
            if warning.code in fatal:
                yield flag(warning.code, where + warning.message)
        if "PROBE_KILLED" in fatal and _was_killed(record):
            yield flag("PROBE_KILLED", f"{where}{record.reason}")


def _was_killed(record: StepRecord) -> bool:
    """Return whether sutprobe was killed, neither because the run was ended nor for lack of memory."""
    reason = record.reason or ""
    return (
        record.outcome == "killed" and record.document is None and reason != INTERRUPTED and OUT_OF_MEMORY not in reason
    )


def _warnings(record: StepRecord) -> tuple[Warned, ...]:
    try:
        return () if record.document is None else read_document(record.document).warnings
    except InputError:
        return ()  # the reason is already recorded


def _left_by_mlc(mlc: Mlc | None) -> Iterator[Unrestored]:
    """Yield the prefetchers that Intel MLC left changed."""
    for command, place in mlc.changed_prefetchers if mlc else ():
        found = place.restored or place.after
        why = f"Intel MLC --{command} left it changed"
        yield Unrestored(setting="prefetchers", where=place.where, wanted=place.before, found=found, error=why)


def _captured(directory: Path, log: RunLog) -> CapturedContext | None:
    """Return the context that the run began with, or that prevented its start; ``None`` if there is none.

    Raises ``InputError`` if the raw capture is not the recorded one.
    """
    began = log.start or log.attempts[-1].began
    if began.capture is None or began.capture_sha256 is None:
        return None
    what = "the raw capture of the start"
    capture = read_kept(directory, began.capture, began.capture_sha256, what)
    return CapturedContext(
        parsed=load(directory / began.capture, capture), capture=began.capture, capture_sha256=began.capture_sha256
    )


def _checker(directory: Path, run: CheckerRun) -> MeltdownChecker:
    """Return how the checker ran, and its results."""
    result, reason = _output(directory, run, "the checker", read_checker)
    return MeltdownChecker(
        **{**dict(run), "reason": reason},
        version=None if result is None else result.version,
        findings=() if result is None else result.findings,
    )


def _dcdiag(directory: Path, run: DcdiagRun) -> Dcdiag:
    """Return how opendcdiag ran, and what it says: a test that failed before it was ended counts."""
    result, unread = _kept(directory, run, "opendcdiag", read_dcdiag if run.reason is None else read_ended_dcdiag)
    return Dcdiag(**{**dict(run), "reason": run.reason or unread}, result=result)


def _output(directory: Path, run: OtherRun, program: str, read: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    """Return what *read* makes of the kept output of *program*, or why not: an unreadable one is no failure."""
    return _kept(directory, run, program, read) if run.reason is None else (None, run.reason)


def _kept(directory: Path, run: OtherRun, program: str, read: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    if run.output is None:
        return None, None
    try:
        return read(read_kept(directory, run.output, run.output_sha256, f"the output of {program}")), None
    except InputError as error:
        return None, str(error)


def _dcdiag_flags(dcdiag: Dcdiag | None) -> Iterator[Flag]:
    fault = None if dcdiag is None or dcdiag.result is None else dcdiag.result.fault
    if fault is not None:
        yield flag("DATA_WRONG", fault)


def _mlc(directory: Path, plan: Plan, log: RunLog) -> tuple[Mlc | None, tuple[Reading, ...], list[NotMeasured]]:
    """Return how Intel MLC ran, the readings of its output, and the commands of *plan* without a metric."""
    if log.mlc is None:
        return None, (), []
    readings: list[Reading] = []
    gone: list[NotMeasured] = []
    runs: list[MlcRun] = []
    for command in plan.mlc:
        run = log.mlc_runs.get(command.command)
        interrupted = run is None and log.attempts[-1].interrupted
        if run is None:
            reason: str | None = log.mlc.reason or (INTERRUPTED if interrupted else NO_REASON)
        else:
            found: tuple[Reading, ...] = ()
            reason = run.reason
            if run.outcome == "ok":
                try:
                    found = _mlc_readings(directory, run)
                except InputError as error:
                    reason = str(error)
            runs.append(run.model_copy(update={"reason": reason, "readings": tuple(reading.id for reading in found)}))
            readings += found
        if reason is not None:
            cause: Literal["failed", "interrupted"] = "interrupted" if interrupted else "failed"
            gone.append(NotMeasured(kind=MLC, what=command.title, reason=reason, cause=cause))
    return Mlc(**dict(log.mlc), commands=tuple(runs)), tuple(readings), gone


def _mlc_readings(directory: Path, run: MlcRun) -> tuple[Reading, ...]:
    """Return the readings of the output of a command of Intel MLC. Raises ``InputError`` if it has no metric."""
    if run.output is None:
        raise InputError("its output was not kept")
    content = read_kept(directory, run.output, run.output_sha256, "the output of Intel MLC")
    found = read_output(content, run.argv or ())
    return tuple(reading.model_copy(update={"id": f"{MLC}.{run.command}.{reading.id}"}) for reading in found)


def _nothing(log: RunLog) -> NotMeasured:
    began = log.attempts[-1].began
    reason = began.reason if isinstance(began, NotBegunRecord) else NO_REASON
    return NotMeasured(kind="run", what="everything", reason=reason, cause="failed")


def _attempts(log: RunLog, not_measured: Sequence[NotMeasured]) -> Iterator[Attempt]:
    """Yield the attempts; one that ended before its last step says why."""
    for attempt in log.attempts:
        began = attempt.began
        if isinstance(began, NotBegunRecord):
            ended: str | None = began.reason
        elif attempt.ended is not None:
            ended = attempt.ended
        elif attempt.finished_at is None:
            ended = LOST_CONTROLLER
        elif attempt.interrupted and (
            attempt is not log.attempts[-1] or any(gone.cause == "interrupted" for gone in not_measured)
        ):
            ended = INTERRUPTED
        else:
            ended = None
        yield Attempt(
            started_at=began.started_at,
            finished_at=attempt.finished_at,
            boot_id=began.boot_id,
            capture=began.capture,
            capture_sha256=began.capture_sha256,
            checks=began.checks,
            changes=(*attempt.changes, *attempt.switched),
            unrestored=unrestored((*attempt.changes, *attempt.switched), attempt.faults),
            ended=ended,
            health=attempt.health,
        )


def _status(not_measured: list[NotMeasured], *, interrupted: bool) -> RunStatus:
    causes = {item.cause for item in of_the_run(not_measured)}
    if interrupted and "interrupted" in causes:
        return "interrupted"
    return "complete" if causes <= {"not_planned"} else "incomplete"
