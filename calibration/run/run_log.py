# SPDX-License-Identifier: Apache-2.0
"""Summary of a run's records: its attempts, the sutprobes used, and how each step ended."""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path

from calibration.base.errors import InputError
from calibration.base.tuning import SettingChange, Unrestored, merged, seen_again
from calibration.measurements.base import Step
from calibration.measurements.mlc_program import CommandName
from calibration.results.health import Health
from calibration.results.model import CheckerRun, DcdiagRun, MlcProgram, MlcRun, ProbeBuild
from calibration.run.records import (
    AttemptRecord,
    CheckerRecord,
    DcdiagRecord,
    EndRecord,
    HealthRecord,
    MlcCommandRecord,
    MlcProgramRecord,
    NotBegunRecord,
    NoteRecord,
    ProbeRecord,
    Record,
    RestoredRecord,
    ResumeRecord,
    StartRecord,
    StepRecord,
    SwitchedRecord,
    records,
)
from calibration.sutprobe.document import packed_result


@dataclass
class AttemptLog:
    """The records of one attempt."""

    began: AttemptRecord
    changes: tuple[SettingChange, ...]
    switched: tuple[SettingChange, ...] = ()
    faults: tuple[Unrestored, ...] = ()
    health: Health | None = None
    ended: str | None = None
    finished_at: datetime | None = None
    interrupted: bool = False


@dataclass
class RunLog:
    """The records of a run; ``first`` is the one that names it."""

    first: StartRecord | NotBegunRecord
    attempts: list[AttemptLog] = field(default_factory=list)
    probe: ProbeBuild | None = None
    checker: CheckerRun | None = None
    opendcdiag: DcdiagRun | None = None
    mlc: MlcProgram | None = None
    mlc_runs: dict[CommandName, MlcRun] = field(default_factory=dict)
    steps: dict[str, list[tuple[StepRecord, AttemptLog]]] = field(default_factory=dict)

    @property
    def start(self) -> StartRecord | None:
        """The record with the plan."""
        return next((attempt.began for attempt in self.attempts if isinstance(attempt.began, StartRecord)), None)

    def best(self, step: Step) -> list[tuple[StepRecord, AttemptLog]]:
        """Return the best record of each round of *step*: a result, or a part of one, or the newest failure."""
        rounds: dict[int, tuple[StepRecord, AttemptLog]] = {}
        for record, attempt in self.steps.get(step.id, ()):
            before = rounds.get(record.round or 1)
            if before is None or _worth(record) >= _worth(before[0]):
                rounds[record.round or 1] = (record, attempt)
        return [rounds[number] for number in sorted(rounds)]


def _worth(record: StepRecord) -> int:
    return 2 if record.outcome == "ok" else 1 if ended_early(record) else 0


def ended_early(record: StepRecord) -> bool:
    """Return whether the command of *record* was interrupted and returned what it had measured."""
    return record.outcome in {"timed_out", "killed"} and (record.document or {}).get("result") is not None


def _packed(record: StepRecord) -> StepRecord:
    """Return *record* with the result in its document as JSON: ten times smaller than objects."""
    if record.document is None:
        return record
    document = {**record.document, "result": packed_result(record.document.get("result"))}
    return record.model_copy(update={"document": document})


def replay(directory: Path) -> RunLog:
    """Return the summary of the records in *directory*. Raises ``InputError`` if they are not those of a run."""
    found = records(directory)
    first = next(found, None)
    if not isinstance(first, StartRecord | NotBegunRecord):
        raise InputError(f"the records in {directory} do not begin with the start of a run")
    log = RunLog(first=first, attempts=[AttemptLog(began=first, changes=first.changes)])
    for record in found:
        _add(log, record)
    for number, attempt in enumerate(log.attempts, 1):
        later = chain.from_iterable(other.changes for other in log.attempts[number:])
        attempt.changes = seen_again(attempt.changes, tuple(later))
    return log


def _take_restored(log: RunLog, record: RestoredRecord) -> None:
    """Add what is known of the changes after the end of an attempt; those of single steps may be among them."""
    of_session = [
        attempt for attempt in log.attempts if record.session is not None and attempt.began.session == record.session
    ]
    attempts = of_session or log.attempts[-1:]
    known: list[SettingChange] = []
    for attempt in attempts:
        known += (*attempt.changes, *(change for change in attempt.switched if not change.is_restored))
        attempt.switched = tuple(change for change in attempt.switched if change.is_restored)
        attempt.changes = attempt.faults = ()
    attempts[0].changes = merged(known, record.changes)
    attempts[0].faults = record.unrestored


def _add(log: RunLog, record: Record) -> None:
    attempt = log.attempts[-1]
    match record:
        case StartRecord() | NotBegunRecord() | ResumeRecord():
            log.attempts.append(AttemptLog(began=record, changes=record.changes))
        case ProbeRecord():
            log.probe = record.probe
        case CheckerRecord():
            log.checker = record.checker
        case DcdiagRecord():
            log.opendcdiag = record.run
        case MlcProgramRecord():
            log.mlc = record.program
        case MlcCommandRecord():
            log.mlc_runs[record.run.command] = record.run
        case StepRecord():
            log.steps.setdefault(record.step.id, []).append((_packed(record), attempt))
        case HealthRecord():
            attempt.health = record.health
        case NoteRecord():
            attempt.ended = record.reason
        case SwitchedRecord():
            attempt.switched = merged(attempt.switched, record.changes)
        case RestoredRecord():
            _take_restored(log, record)
        case EndRecord():
            attempt.finished_at, attempt.interrupted = record.finished_at, record.interrupted
