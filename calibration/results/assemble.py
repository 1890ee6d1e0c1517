# SPDX-License-Identifier: Apache-2.0
"""From the records of a run to its run document."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from calibration.context import load
from calibration.context.model import Context
from calibration.errors import InputError
from calibration.judge import judge
from calibration.measurements import declaration
from calibration.measurements.base import Missing, Step
from calibration.results.model import (
    SCHEMA_VERSION,
    CapturedContext,
    Kernels,
    Measurement,
    NotMeasured,
    Run,
    RunDocument,
    RunStatus,
)
from calibration.results.store import (
    CAPTURE,
    KernelsRecord,
    NoteRecord,
    StartRecord,
    StepRecord,
    records,
    write_document,
)
from calibration.sutprobe import read_document
from calibration.validity import Flag, flag, validity

EMULATED = re.compile(r"\bTCG\b")
"""What a processor's name has in it when software emulates it (QEMU's ``TCG CPU``)."""

ENDED_EARLY = ("timed_out", "killed")
"""Outcomes of a command that was told to end, by its deadline or by a signal: its document may hold what it had."""

THE_REST = "what was left when the command ended"
"""Names what a command that ended early has no value for; its parts may be named beside it, one by one."""


def assemble(directory: Path, *, now: datetime, interrupted: bool = False) -> RunDocument:
    """Make the run document from a run's records, write it whole, and return it.

    *interrupted* says that the run was ended from outside: the steps without a record then have that as their reason.
    Raises ``InputError`` where the records are not those of a run, ``EnvironmentLacksError`` where the document cannot
    be written.
    """
    start: StartRecord | None = None
    kernels: Kernels | None = None
    note: str | None = None
    done: dict[str, StepRecord] = {}
    for record in records(directory):
        match record:
            case StartRecord():
                start = record
            case KernelsRecord():
                kernels = record.kernels
            case StepRecord():
                done[record.step.id] = record
            case NoteRecord():
                note = record.reason
    if start is None:
        raise InputError(f"expected the records in {directory} to begin with the start of a run, found no start")
    capture = directory / CAPTURE
    try:
        found = hashlib.sha256(capture.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"expected the raw capture of the run at {capture}: {error.strerror}") from error
    if found != start.capture_sha256:
        raise InputError(f"{capture} is not the capture that the run began with: its sha256 differs from the record")
    context = load(capture)

    measurements: list[Measurement] = []
    not_measured = [
        NotMeasured(kind=each.kind, what=each.what, reason=each.reason, cause="not_planned")
        for each in start.plan.not_planned
    ]
    for step in start.plan.steps:
        finished = done.get(step.id)
        if finished is None:
            not_measured.append(_without_record(step, note, interrupted=interrupted))
            continue
        try:
            measurements += _measurements(finished, context)
        except InputError as error:
            not_measured.append(
                NotMeasured(kind=step.kind, what=step.title, reason=str(error), cause=_cause(finished, None))
            )
    measurements = _completed(measurements)
    not_measured += [
        NotMeasured(
            kind=each.kind, what=f"{each.title}: {gone.what}", reason=gone.reason, cause=_cause(done[each.step], gone)
        )
        for each in measurements
        for gone in each.missing
    ]
    document = RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(
            id=start.id,
            testbed=start.testbed,
            sut=start.sut,
            profile=start.profile,
            started_at=start.started_at,
            finished_at=now,
            harness_version=start.harness_version,
            kernels=kernels,
            status=_status(not_measured, interrupted=interrupted),
        ),
        context=CapturedContext(parsed=context, capture=CAPTURE, capture_sha256=start.capture_sha256),
        plan=start.plan,
        measurements=tuple(measurements),
        not_measured=tuple(not_measured),
        verdicts=tuple(judge(measurements)),
    )
    write_document(directory, document)
    return document


def _status(not_measured: list[NotMeasured], *, interrupted: bool) -> RunStatus:
    if interrupted and any(each.cause == "interrupted" for each in not_measured):
        return "interrupted"
    return "incomplete" if any(each.cause == "failed" for each in not_measured) else "complete"


def _without_record(step: Step, note: str | None, *, interrupted: bool) -> NotMeasured:
    if interrupted:
        return NotMeasured(
            kind=step.kind,
            what=step.title,
            reason="the run was interrupted before this step ended",
            cause="interrupted",
        )
    reason = note or "the run ended before this step and left no reason"
    return NotMeasured(kind=step.kind, what=step.title, reason=reason, cause="failed")


def _ended_early(record: StepRecord) -> bool:
    """Return whether the command of *record* was told to end and handed over what it had measured by then."""
    return record.outcome in ENDED_EARLY and (record.document or {}).get("result") is not None


def _cause(record: StepRecord, gone: Missing | None) -> Literal["failed", "interrupted"]:
    """Return why *gone*, a part of what *record* should have (``None``: all of it), is not there.

    A part that failed by itself before the run was ended is a failure; what the end left over is not.
    """
    by_the_end = gone is None or gone.what == THE_REST or gone.reason.startswith("interrupted:")
    return "interrupted" if record.outcome == "killed" and by_the_end else "failed"


def _measurements(record: StepRecord, context: Context) -> Iterator[Measurement]:
    """Yield the measurements of one finished step. Raises ``InputError`` with the reason where there are none.

    A step that was told to end has those that its document holds; the first of them names what is missing.
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
    for number, parsed in enumerate(found):
        rest = (Missing(what=THE_REST, reason=reason),) if early and number == 0 else ()
        missing = (*rest, *parsed.missing)
        flags = [*parsed.flags, *_missing_flags(missing), *_machine_flags(context)]
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
            validity=validity(flags),
        )


def _completed(measurements: list[Measurement]) -> list[Measurement]:
    """Return *measurements*, each after a look at the others that may be believed."""
    run = {each.id: each.values for each in measurements if each.validity.valid}
    return [
        each.model_copy(update={"values": declaration(each.kind).completed(each.values, run)}) for each in measurements
    ]


def _missing_flags(missing: Sequence[Missing]) -> Iterator[Flag]:
    if missing:
        yield flag("PARTIAL", f"{len(missing)} parts have no value, first {missing[0].what}")


def _machine_flags(context: Context) -> Iterator[Flag]:
    """Yield what the kind of machine says about every figure measured on it."""
    emulated = [model.name for model in context.processor.models if model.name and EMULATED.search(model.name)]
    if emulated:
        yield flag("EMULATED", f"the processor calls itself {emulated[0]!r}: its timing is an emulator's")
    elif context.virtualization.guest:
        evidence = ", ".join(context.virtualization.evidence)
        yield flag("VIRTUALISED", f"a guest of {context.virtualization.vendor or 'an unnamed hypervisor'} ({evidence})")
