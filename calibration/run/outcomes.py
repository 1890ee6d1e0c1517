# SPDX-License-Identifier: Apache-2.0
"""The measurements of a plan's steps, and why others have no result."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from calibration.base.errors import InputError
from calibration.base.model import fault_of
from calibration.base.units import numbered
from calibration.base.validity import Flag, flag, validity
from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.measurements.evidence import Missing, pages_proof, step_refusal
from calibration.measurements.plan import Plan
from calibration.measurements.sut import Sut, emulation_flags
from calibration.results.model import Measurement, NotMeasured
from calibration.run.records import NotBegunRecord, StepRecord
from calibration.run.run_log import AttemptLog, RunLog, ended_early
from calibration.sutprobe.document import ProbeDocument, read_document

NO_REASON = "the run ended before this step for an unknown reason"

REMAINDER = "what was left when the command ended"
"""Names the rest of a command that ended early; its parts may be listed as well."""


def outcomes(plan: Plan, log: RunLog, context: Context) -> tuple[list[Measurement], list[NotMeasured]]:
    """Return the measurements of the steps of *plan*, and what is missing, with reasons."""
    sut = Sut(context, plan.traffic_shape, plan.last_level_cache)
    last = log.attempts[-1]
    measurements: list[Measurement] = []
    not_measured = [
        NotMeasured(kind=skipped.kind, what=skipped.what, reason=skipped.reason, cause="not_planned")
        for skipped in plan.not_planned
    ]
    done: dict[str, tuple[StepRecord, AttemptLog]] = {}
    beside: dict[str, list[ProbeDocument]] = {}
    for step in sorted(plan.steps, key=lambda step: step.part_of is None):
        found = log.best(step)
        if not found:
            not_measured.append(_without_record(step, last))
            continue
        done[step.id] = max(found, key=lambda pair: pair[0].outcome == "ok")
        finished, attempt = done[step.id]
        try:
            if step.part_of is not None:
                beside.setdefault(step.part_of, []).append(_part(finished))
            else:
                measurements += _measurements([record for record, _ in found], beside.get(step.id, ()), sut)
        except InputError as error:
            lost = _lost(step, str(error), _cause(finished, attempt, None))
            not_measured.append(lost.model_copy(update={"flag": _refusal(finished)}))
        else:
            not_measured += _without_rounds(step, found, last)
    measurements = completed_values(measurements)
    not_measured += [
        NotMeasured(
            kind=measurement.kind,
            what=f"{measurement.title}: {gone.what}",
            reason=gone.reason,
            cause=_cause(*done[measurement.step], gone),
            flag=gone.flag,
        )
        for measurement in measurements
        for gone in measurement.missing
    ]
    return measurements, not_measured


def _without_record(step: Step, last: AttemptLog) -> NotMeasured:
    if last.interrupted:
        return _lost(step, "the run was interrupted before this step ended", "interrupted")
    return _lost(step, last.began.reason if isinstance(last.began, NotBegunRecord) else last.ended or NO_REASON)


def _lost(step: Step, reason: str, cause: Literal["failed", "interrupted"] = "failed") -> NotMeasured:
    return NotMeasured(kind=step.kind, what=step.title, reason=reason, cause=cause)


def _without_rounds(
    step: Step, found: Sequence[tuple[StepRecord, AttemptLog]], last: AttemptLog
) -> Iterator[NotMeasured]:
    """Yield the planned rounds without a result of a *step* that has one in others."""
    if step.rounds == 1:
        return
    failed = {record.round or 1: (record, attempt) for record, attempt in found if record.outcome != "ok"}
    begun = {record.round or 1 for record, _ in found}
    lost: dict[tuple[str, Literal["failed", "interrupted"]], list[int]] = {}
    for number in range(1, step.rounds + 1):
        if number in failed:
            record, attempt = failed[number]
            lost.setdefault((_reason(record), _cause(record, attempt, None)), []).append(number)
        elif number not in begun:
            reason = _without_record(step, last).reason
            lost.setdefault((reason, "interrupted" if last.interrupted else "failed"), []).append(number)
    for (reason, cause), numbers in lost.items():
        rounds = f"{numbered('round', numbers)} of {step.rounds}"
        yield NotMeasured(kind=step.kind, what=f"{step.title}: {rounds}", reason=reason, cause=cause)


def _cause(record: StepRecord, attempt: AttemptLog, gone: Missing | None) -> Literal["failed", "interrupted"]:
    """Return why *gone*, a part of what *record* should have (``None``: all of it), is missing.

    A part that failed before the run was ended is a failure; what was left at the end is not. A sutprobe that crashed,
    or was killed on the SUT, failed as well: the run was not ended.
    """
    by_the_end = gone is None or gone.what == REMAINDER or gone.reason.startswith("interrupted:")
    return "interrupted" if attempt.interrupted and record.outcome == "killed" and by_the_end else "failed"


def _part(record: StepRecord) -> ProbeDocument:
    """Return the answer of a step that is part of another's measurement. Raises ``InputError`` if it is not whole."""
    if record.outcome != "ok" or record.document is None:
        raise InputError(_reason(record))
    return read_document(record.document)


def _measurements(records: Sequence[StepRecord], beside: Sequence[ProbeDocument], sut: Sut) -> list[Measurement]:
    """Return the measurements of one step from its *records*, one for each round, and the documents *beside* them.

    Raises ``InputError`` if there are none, or they are unreadable.
    """
    try:
        return list(_measured(records, beside, sut))
    except (ArithmeticError, LookupError, ValueError) as error:  # matches the schema and is still nonsense
        raise InputError(f"the result contradicts itself: {type(error).__name__}: {fault_of(error)}") from error


def _reason(record: StepRecord) -> str:
    return record.reason or f"the step {record.outcome.replace('_', ' ')} for an unknown reason"


def _document(records: Sequence[StepRecord]) -> ProbeDocument:
    """Return the documents of *records* as one."""
    documents = [read_document(record.document or {}) for record in records]
    if len(records) == 1 and records[0].round is None:
        return documents[0]
    pairs = zip(records, documents, strict=True)
    return ProbeDocument.merged([(record.round or 1, document, record.around) for record, document in pairs])


def _measured(records: Sequence[StepRecord], beside: Sequence[ProbeDocument], sut: Sut) -> Iterator[Measurement]:
    """Yield the measurements of one step.

    Raises ``InputError`` with the reason if there are none. Without a whole round, an interrupted step has the
    measurements that its document holds; the first of them lists what is missing.
    """
    whole = [record for record in records if record.outcome == "ok" and record.document is not None]
    parts = [record for record in records if ended_early(record)]
    record = (whole or parts or records)[0]
    reason = _reason(record)
    early = not whole
    if not whole and not parts:
        raise InputError(reason)
    document = _document(whole or parts[:1]).with_parts(beside)
    try:
        found = list(declaration(record.step.kind).parse(document, record.step, sut))
    except InputError as error:
        raise InputError(f"{reason}: {error}" if early else str(error)) from error
    if early and not found:
        raise InputError(reason)
    proof = pages_proof(document)
    emulated = tuple(emulation_flags(sut.context, document))
    for number, parsed in enumerate(found):
        rest = (Missing(what=REMAINDER, reason=reason),) if early and number == 0 else ()
        missing = (*rest, *parsed.missing)
        flags = [*parsed.flags, *_missing_flags(missing), *emulated]
        if early and not missing:
            flags.append(flag("PARTIAL", f"the command ended early: {reason}"))
        yield Measurement(
            id=f"{record.step.id}{parsed.suffix}",
            kind=record.step.kind,
            step=record.step.id,
            title=record.step.title,
            instrument=f"sutprobe {document.build.version}",
            argv=document.argv,
            parameters=document.parameters,
            rounds=tuple(part.round for part in document.parts),
            started_at=datetime.fromtimestamp(document.started_at_unix_ns / 1e9, UTC),
            duration_s=document.duration_s,
            clock=document.clock,
            warnings=document.warnings,
            values=parsed.values,
            missing=missing,
            pages=proof,
            validity=validity(flags),
        )


def completed_values(measurements: list[Measurement]) -> list[Measurement]:
    """Return *measurements*, each updated from the valid ones."""
    run = {measurement.id: measurement.values for measurement in measurements if measurement.validity.valid}
    return [
        measurement.model_copy(update={"values": declaration(measurement.kind).completed(measurement.values, run)})
        for measurement in measurements
    ]


def _refusal(record: StepRecord) -> Flag | None:
    """Return the fault for which sutprobe gave no value, if it is in the closed list."""
    try:
        return None if record.document is None else step_refusal(read_document(record.document))
    except InputError:
        return None  # the reason is already recorded


def _missing_flags(missing: Sequence[Missing]) -> Iterator[Flag]:
    if missing:
        named = sorted({part.flag.code for part in missing if part.flag is not None})
        faults = f" ({', '.join(named)})" if named else ""
        yield flag("PARTIAL", f"{len(missing)} parts have no value{faults}, first {missing[0].what}")
