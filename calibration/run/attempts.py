# SPDX-License-Identifier: Apache-2.0
"""The attempts of a run: how each is recorded, whether it ended, and which steps are left for the next."""

import os
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from calibration import __version__
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import read_regular, write_whole
from calibration.measurements.base import Step
from calibration.measurements.mlc_program import MlcCommand
from calibration.measurements.plan import Plan
from calibration.preflight.checks import Check
from calibration.results.documents import MAX_DOCUMENT_BYTES, parse_json
from calibration.results.layout import CAPTURE, RECORDS, RUN, run_directory
from calibration.results.model import ProbeBuild
from calibration.results.nights import misdated, night_of
from calibration.results.store import unwritable
from calibration.run.records import (
    AttemptRecord,
    CheckerRecord,
    DcdiagRecord,
    MlcCommandRecord,
    NotBegunRecord,
    NoteRecord,
    ProbeRecord,
    RestoredRecord,
    ResumeRecord,
    StartRecord,
    StepRecord,
    append_record,
    record_names,
    records,
)
from calibration.runner import fields

BEGINNINGS = frozenset(record.model_fields["record"].default for record in (StartRecord, NotBegunRecord, ResumeRecord))
"""Names of the records that begin an attempt."""

COMPLETE = ("complete", False)
"""Outcome of a run with nothing missing that left its SUT as it was."""


def record_attempt(directory: Path, attempt: AttemptRecord, capture: bytes | None = None) -> None:
    """Append *attempt*, and store the raw *capture* (a ``.tar.gz``) that it began with under an unused name.

    A run begins in a directory of its own, or one in which it could not begin before. Raises ``EnvironmentLacksError``
    if another run began there, or the directory cannot be written.
    """
    name, created = None, False
    try:
        created = _claim(directory, attempt)
        if capture is not None:
            name = _keep_capture(directory, capture)
            attempt = attempt.model_copy(update={"capture": name})
        append_record(directory, attempt)
    except BaseException as error:
        if name is not None:
            (directory / name).unlink(missing_ok=True)
        if created:
            _discard(directory)
        if isinstance(error, OSError):
            raise unwritable(directory, error) from error
        raise


def _claim(directory: Path, attempt: AttemptRecord) -> bool:
    """Make *directory* if *attempt* needs it, and return whether it is new."""
    known = (directory / RECORDS).exists() and not has_begun(directory)
    exclusive = isinstance(attempt, StartRecord) and not known
    created = exclusive or not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=not exclusive)
    except FileExistsError:
        raise
    except OSError:
        _discard(directory)  # and its parents
        raise
    return created


def _keep_capture(directory: Path, capture: bytes) -> str:
    """Write *capture* beside those of earlier attempts, and return its name."""
    names = chain((CAPTURE,), (CAPTURE.replace(".", f"-{number}.", 1) for number in count(2)))
    name = next(name for name in names if not (directory / name).exists())
    write_whole(directory / name, capture)
    return name


def _discard(directory: Path) -> None:
    """Remove a directory that never became a run, and empty parents."""
    (directory / RECORDS).unlink(missing_ok=True)
    for folder in (directory, directory.parent, directory.parent.parent):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # contains other runs or foreign files
            return


def record_reason(
    results: Path,
    *,
    testbed: str,
    sut: str,
    run_id: str,
    profile: str,
    now: datetime,
    reason: str,
    checks: Iterable[Check] = (),
) -> Path:
    """Record why the current attempt ended, or why none could begin; return the run's directory.

    Raises ``InputError`` for a name unfit for a directory, ``EnvironmentLacksError`` if it cannot be written.
    """
    directory = run_directory(results, testbed, sut, run_id)
    if (directory / RECORDS).exists() and not has_ended(directory):
        others = (record for record in records(directory) if not isinstance(record, RestoredRecord))
        (last,) = deque(others, maxlen=1)
        if not isinstance(last, NotBegunRecord | NoteRecord):  # else a reason closer to the cause is recorded
            append_record(directory, NoteRecord(reason=reason))
        return directory
    attempt = NotBegunRecord(
        id=run_id,
        testbed=testbed,
        sut=sut,
        profile=profile,
        started_at=now,
        harness_version=__version__,
        boot_id=None,
        checks=tuple(checks),
        changes=(),
        reason=reason,
    )
    record_attempt(directory, attempt)
    return directory


def record_probe(directory: Path, probe: ProbeBuild) -> None:
    """Record the hash of the sutprobe that will measure, as verified on the SUT.

    Raises ``EnvironmentLacksError`` if the run began with another one: its metrics would not belong together.
    """
    for record in records(directory):
        if isinstance(record, ProbeRecord) and record.probe.sha256 != probe.sha256:
            raise EnvironmentLacksError(
                f"the run used sutprobe {record.probe.sha256}, this checkout builds {probe.sha256}: resume with "
                "that version, or start a new run"
            )
    append_record(directory, ProbeRecord(probe=probe))


def has_begun(directory: Path) -> bool:
    """Return whether the run in *directory* has a plan."""
    return (directory / RECORDS).exists() and _start(directory) is not None


def has_ended(directory: Path) -> bool:
    """Return whether the newest attempt in *directory* recorded its end."""
    ended = False
    for name in record_names(directory):  # the contents are checked when the records are read
        ended = name == "end" or (ended and name not in BEGINNINGS)
    return ended


def start_of(directory: Path) -> StartRecord:
    """Return the record with which the run in *directory* began. Raises ``InputError`` if there is none."""
    start = _start(directory)
    if start is None:
        raise InputError(f"the run in {directory} has not begun")
    return start


def _start(directory: Path) -> StartRecord | None:
    return next((record for record in records(directory) if isinstance(record, StartRecord)), None)


def unmeasured(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return the rounds without a result of each step of the run in *directory*.

    Raises ``InputError`` if the run has not begun.
    """
    done: dict[str, set[int]] = {}
    for record in records(directory):
        if isinstance(record, StepRecord) and record.outcome == "ok":
            done.setdefault(record.step.id, set()).add(record.round or 1)
    return {
        step.id: tuple(number for number in range(1, step.rounds + 1) if number not in done.get(step.id, ()))
        for step in start_of(directory).plan.steps
    }


def chosen(directory: Path) -> dict[str, list[int]]:
    """Return what the searches of the run in *directory* chose, by step, as far as they were measured.

    Raises ``InputError`` if the answer of one lacks that.
    """
    paths = {step.choice.step: step.choice.field for step in start_of(directory).plan.steps if step.choice}
    found = {}
    for record in records(directory):
        if isinstance(record, StepRecord) and record.outcome == "ok" and record.step.id in paths:
            try:
                found[record.step.id] = fields.chosen(record.document, paths[record.step.id])
            except fields.Lacking as lacking:
                raise InputError(f"{directory / RECORDS}: the answer of {record.step.id} has no {lacking}") from lacking
    return found


def remaining_plan(directory: Path) -> Plan:
    """Return the plan of the run in *directory*, reduced to the steps that lack a result in a round.

    Raises ``InputError`` if the run has not begun.
    """
    plan, left = start_of(directory).plan, unmeasured(directory)
    return plan.with_steps(step for step in plan.steps if left[step.id])


def outstanding(directory: Path) -> tuple[Step, ...]:
    """Return the steps without a result. Raises like ``remaining_plan``."""
    return remaining_plan(directory).steps


def session_answers(directory: Path, session: str) -> int:
    """Return how many answers of the runner's *session* were kept, in all attempts that collected it."""
    current, kept = None, 0
    for record in records(directory):
        if isinstance(record, StartRecord | NotBegunRecord | ResumeRecord):
            current = record.session
        elif current == session and isinstance(record, StepRecord | MlcCommandRecord):
            kept += 1
        elif current == session and isinstance(record, CheckerRecord | DcdiagRecord):
            # A program that the controller could not read was not asked for.
            run = record.checker if isinstance(record, CheckerRecord) else record.run
            kept += run.argv is not None
    return kept


def mlc_commands(directory: Path) -> tuple[MlcCommand, ...]:
    """Return the commands of Intel MLC in the plan that have not succeeded. Raises like ``remaining_plan``."""
    runs = (record.run for record in records(directory) if isinstance(record, MlcCommandRecord))
    done = {run.command for run in runs if run.outcome == "ok"}
    return tuple(command for command in start_of(directory).plan.mlc if command.command not in done)


def newest_unfinished(results: Path, suts: Collection[tuple[str, str]]) -> str:
    """Return the identifier of the newest run of any of *suts* that can continue.

    A step of it has no result, its end was not recorded, or it left its SUT changed. A SUT is named by its testbed and
    its own name. A run whose steps all succeeded but that lacks a part of a metric is skipped: nothing would be
    measured. Raises ``InputError`` if there is none, or the records of the newest are unreadable.
    """
    found: dict[str, list[Path]] = {}
    for path in results.glob("*/*/*/"):
        if (path.parent.parent.name, path.parent.name) in suts and os.path.lexists(path / RECORDS):
            found.setdefault(path.name, []).append(path)
    wrong = misdated(filter(None, map(night_of, found)))
    measured_later = set()
    for run_id in sorted(found, key=lambda run_id: (night_of(run_id) not in wrong, run_id), reverse=True):
        faults = []
        for path in found[run_id]:
            try:
                if _can_go_on(path, is_newest=path.parent not in measured_later):
                    return run_id
            except InputError as error:
                faults.append(error)
            measured_later.add(path.parent)
        if faults:
            raise faults[0]
    raise InputError(f"no unfinished run of these SUTs below {results}; name one, or start a new run")


def _can_go_on(directory: Path, *, is_newest: bool) -> bool:
    """Return whether there is something to measure, to collect or to restore for the run in *directory*.

    A SUT that was measured later was restored before: only its newest run restores it.
    """
    outcome = status, left = _outcome(directory)
    if outcome == COMPLETE:
        return False
    if not has_begun(directory) or outstanding(directory) or not has_ended(directory):
        return True
    return status is None or (left and is_newest)


def complete_suts(results: Path, run_id: str) -> list[tuple[str, str]]:
    """Return the SUTs that completed the run *run_id*, as testbed and SUT.

    Raises ``InputError`` for an invalid identifier, or if no SUT has begun that run.
    """
    run_directory(results, "any", "any", run_id)
    begun = list(results.glob(f"*/*/{run_id}/"))
    if not begun:
        raise InputError(f"no run {run_id} below {results}; name another, or start a new run")
    return sorted((path.parts[-3], path.parts[-2]) for path in begun if _outcome(path) == COMPLETE)


def _outcome(directory: Path) -> tuple[str | None, bool]:
    """Return the status of the run in *directory*, ``None`` without a document, and whether its SUT is left changed."""
    path = directory / RUN
    with suppress(OSError, InputError, LookupError, TypeError):
        document = parse_json(path, read_regular(path, MAX_DOCUMENT_BYTES))
        left = any(attempt["unrestored"] for attempt in document["attempts"])
        return str(document["run"]["status"]), left
    return None, False
