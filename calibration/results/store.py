# SPDX-License-Identifier: Apache-2.0
"""The store of run documents: ``<results>/<testbed>/<sut>/<run-id>/``; beside them ``<results>/references/``.

A run's directory holds ``context.tar.gz`` (the raw capture), ``meltdown-checker.txt`` (what the operator's
spectre-meltdown-checker printed, where there is one), ``mlc/`` (what the operator's Intel MLC printed, a file for each
command), ``records.jsonl`` (what happened, appended step by step, so that nothing measured is lost to a crash) and,
once assembled, ``run.json``. A run document appears whole or not at all.
"""

import base64
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from calibration import __version__
from calibration.context import load
from calibration.context.model import Context
from calibration.errors import EnvironmentLacksError, InputError
from calibration.files import open_regular, pending, read_regular, refuse_links, write_whole
from calibration.judge.limits import Limit
from calibration.measurements.base import Step
from calibration.mlc import MlcCommand
from calibration.model import Model, UtcTime, fault_of
from calibration.plan import Plan, make_plan
from calibration.preflight.checks import Check, refusal
from calibration.profiles import load_profile
from calibration.results.documents import MAX_DOCUMENT_BYTES, parse_json, read_document
from calibration.results.facts import facts, other_facts
from calibration.results.layout import REFERENCES, RUN
from calibration.results.migrations import model_of
from calibration.results.model import (
    CheckerRun,
    Kernels,
    MlcProgram,
    MlcRun,
    OtherRun,
    RunDocument,
)
from calibration.results.references import kept_references
from calibration.tuning import Change

CAPTURE = "context.tar.gz"
CHECKER_OUTPUT = "meltdown-checker.txt"
MLC_FOLDER = "mlc"
RECORDS = "records.jsonl"

MAX_RECORDS_BYTES = 256 * 1024 * 1024
"""A run of every kind on the largest machines has a tenth of this; a SUT that prints more may not fill the disk."""

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Largest file that is kept beside the records: captures and outputs of programs are accepted up to 16 MiB."""

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What a testbed, SUT or run identifier may look like: it becomes a directory's name."""


UNCHANGING = (
    "processor",
    "microcode",
    "BIOS",
    "CPUs",
    "cores",
    "nodes",
    "distances between nodes",
    "isolated CPUs",
)
"""The facts that no run changes and that hold for all of its figures. Kernel and command line do too, to the letter."""


class StartRecord(Model):
    """The run begins: who measures what, on which SUT, the bounds it will be judged by, and the plan as it was made."""

    record: Literal["start"] = "start"
    id: str
    testbed: str
    sut: str
    profile: str
    started_at: UtcTime
    harness_version: str
    boot_id: str | None
    capture: str
    capture_sha256: str
    checks: tuple[Check, ...]
    changes: tuple[Change, ...]
    limits: tuple[Limit, ...] = ()
    plan: Plan


class NotBegunRecord(Model):
    """The SUT could not be reached or was found unfit: there is no plan. An attempt to resume may end like this too."""

    record: Literal["not_begun"] = "not_begun"
    id: str
    testbed: str
    sut: str
    profile: str
    started_at: UtcTime
    harness_version: str
    boot_id: str | None
    capture: str | None
    capture_sha256: str | None
    checks: tuple[Check, ...]
    changes: tuple[Change, ...]
    reason: str


class ResumeRecord(Model):
    """The run goes on with the steps of its plan that have no result, on the SUT as captured anew."""

    record: Literal["resume"] = "resume"
    started_at: UtcTime
    boot_id: str | None
    capture: str
    capture_sha256: str
    checks: tuple[Check, ...]
    changes: tuple[Change, ...]


class KernelsRecord(Model):
    """The kernel bytes as verified on the SUT."""

    record: Literal["kernels"] = "kernels"
    kernels: Kernels


class CheckerRecord(Model):
    """How the operator's spectre-meltdown-checker ran; what it printed is a file beside the records."""

    record: Literal["meltdown_checker"] = "meltdown_checker"
    checker: CheckerRun


class MlcProgramRecord(Model):
    """The operator's Intel MLC is on the SUT, or why it is not; each attempt that comes to it has one."""

    record: Literal["mlc"] = "mlc"
    program: MlcProgram


class MlcCommandRecord(Model):
    """How one command of the operator's Intel MLC ran; what it printed is a file beside the records."""

    record: Literal["mlc_command"] = "mlc_command"
    run: MlcRun


Outcome = Literal["ok", "failed", "timed_out", "killed"]


class SwitchedRecord(Model):
    """What was changed for single steps of this attempt, so far; it takes the place of what was known of that before.

    What has not been put back when those steps are over is among the changes of a ``RestoredRecord`` that follows.
    """

    record: Literal["switched"] = "switched"
    changes: tuple[Change, ...]


class StepRecord(Model):
    """One finished step: how it ended, and what the kernel printed."""

    record: Literal["step"] = "step"
    step: Step
    outcome: Outcome
    reason: str | None
    rc: int | None
    started_at: UtcTime
    duration_s: float
    document: dict[str, Any] | None
    stderr: str


class NoteRecord(Model):
    """Why a run cannot go on with any step, for example a SUT that is no longer reachable or a wrong kernel hash."""

    record: Literal["note"] = "note"
    reason: str


class RestoredRecord(Model):
    """All changes of this attempt, with what was put back and by whom; they take the place of those known before."""

    record: Literal["restored"] = "restored"
    changes: tuple[Change, ...]


class EndRecord(Model):
    """The attempt is over; *interrupted* says that it was ended from outside."""

    record: Literal["end"] = "end"
    finished_at: UtcTime
    interrupted: bool


AttemptRecord = StartRecord | NotBegunRecord | ResumeRecord
"""Records that begin an attempt."""

Record = (
    AttemptRecord
    | KernelsRecord
    | CheckerRecord
    | MlcProgramRecord
    | MlcCommandRecord
    | SwitchedRecord
    | StepRecord
    | NoteRecord
    | RestoredRecord
    | EndRecord
)
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="record")])

BEGINNINGS = tuple(each.model_fields["record"].default for each in get_args(AttemptRecord))
"""What such records call themselves."""


class _Kind(BaseModel):
    """Any record, of which nothing but its kind is wanted."""

    record: str


_KIND = TypeAdapter(_Kind)

Parsed = TypeVar("Parsed")
Other = TypeVar("Other", bound=OtherRun)


class BegunRun(Model):
    """A run that has begun: its directory's path and its plan."""

    directory: str
    plan: Plan


def new_run_id(now: datetime) -> str:
    """Return a run identifier that sorts by time and that nobody can guess beforehand."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def check_names(*, testbed: str, sut: str) -> None:
    """Raise ``InputError`` for a name of a testbed or a SUT that is not fit for a directory."""
    for what, name in (("testbed", testbed), ("SUT", sut)):
        _check_name(what, name)
    if testbed == REFERENCES:
        raise InputError(f"expected another testbed name than {REFERENCES!r}, which is what runs found once")


def _check_name(what: str, name: str) -> None:
    if not SAFE_NAME.fullmatch(name):
        raise InputError(
            f"expected a {what} name of letters, digits, '.', '_' and '-', at most 128 long, found {name!r}"
        )


def run_directory(results: Path, testbed: str, sut: str, run_id: str) -> Path:
    """Return where a run is stored. Raises ``InputError`` for a name that is not fit for a directory, and for links."""
    check_names(testbed=testbed, sut=sut)
    _check_name("run identifier", run_id)
    directory = results / testbed / sut / run_id
    refuse_links(directory, below=results)
    return directory


def begin(
    results: Path,
    *,
    testbed: str,
    sut: str,
    run_id: str,
    profile: str,
    capture: bytes,
    now: datetime,
    boot_id: str | None = None,
    examine: Callable[[Context, Plan], Iterable[Check]] = lambda _context, _plan: (),
    changes: Iterable[Change] = (),
    limits: Iterable[Limit] = (),
    prefetchers_ok: bool = False,
) -> BegunRun:
    """Create a run's directory with the raw *capture* (a ``.tar.gz``), make its plan and record its start.

    *prefetchers_ok* is the consent to steps for which the prefetchers are switched off.
    *examine* returns what is expected of the SUT of a context, with its plan, and was found there. Where a blocking
    expectation is not met the run is recorded as not begun, and ``NotBegunError`` raised. Nothing else is left behind
    where the capture, the profile or a reference that the plan relies on cannot be used (``InputError``), nothing can
    be measured or the directory cannot be written (``EnvironmentLacksError``).
    """
    directory = run_directory(results, testbed, sut, run_id)
    wanted = load_profile(profile)
    created = False
    name = None
    try:
        created = _claim(directory)
        name = _keep_capture(directory, capture)
        context = load(directory / name, capture)
        plan = make_plan(context, wanted, *kept_references(results, context), prefetchers_ok=prefetchers_ok)
        start = StartRecord(
            id=run_id,
            testbed=testbed,
            sut=sut,
            profile=wanted.name,
            started_at=now,
            harness_version=__version__,
            boot_id=boot_id,
            capture=name,
            capture_sha256=hashlib.sha256(capture).hexdigest(),
            checks=tuple(examine(context, plan)),
            changes=tuple(changes),
            limits=tuple(limits),
            plan=plan,
        )
        refused = refusal(start.checks)
        _append(directory, start if refused is None else _not_begun(start, refused))
    except BaseException as error:
        if name is not None:
            (directory / name).unlink(missing_ok=True)
        if created:
            _discard(directory)
        if isinstance(error, OSError):
            raise _unwritable(directory, error) from error
        raise
    if refused is not None:
        raise NotBegunError(refused)
    return BegunRun(directory=str(directory), plan=start.plan)


class NotBegunError(EnvironmentLacksError):
    """The SUT is not as expected, and the run that it was to begin is recorded as not begun."""


def _not_begun(start: StartRecord, reason: str) -> NotBegunRecord:
    shared = {name: value for name, value in start if name not in {"record", "limits", "plan"}}
    return NotBegunRecord(**shared, reason=reason)


def record_not_begun(
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
    """Record that a run could not begin, or be resumed, for *reason*; return its directory.

    Raises ``InputError`` for a name that is not fit for a directory, ``EnvironmentLacksError`` where it cannot be
    written.
    """
    directory = run_directory(results, testbed, sut, run_id)
    record = NotBegunRecord(
        id=run_id,
        testbed=testbed,
        sut=sut,
        profile=profile,
        started_at=now,
        harness_version=__version__,
        boot_id=None,
        capture=None,
        capture_sha256=None,
        checks=tuple(checks),
        changes=(),
        reason=reason,
    )
    created = not directory.exists()
    try:
        _make(directory)
        _append(directory, record)
    except BaseException as error:
        if created:
            _discard(directory)
        if isinstance(error, OSError):
            raise _unwritable(directory, error) from error
        raise
    return directory


def resume(
    directory: Path,
    *,
    capture: bytes,
    now: datetime,
    boot_id: str | None = None,
    examine: Callable[[Context, Plan], Iterable[Check]] = lambda _context, _plan: (),
    changes: Iterable[Change] = (),
) -> BegunRun:
    """Go on with the run in *directory*, and return it with the steps of its plan that have no result yet.

    Raises ``NotBegunError``, with the attempt recorded, where *capture* is not of the SUT as it was when the run began,
    or where a blocking expectation (see ``begin``) is not met; ``InputError`` where the capture cannot be used,
    ``EnvironmentLacksError`` where nothing can be written.
    """
    start = _begun(directory)
    name = None
    try:
        name = _keep_capture(directory, capture)
        context = load(directory / name, capture)
        attempt = ResumeRecord(
            started_at=now,
            boot_id=boot_id,
            capture=name,
            capture_sha256=hashlib.sha256(capture).hexdigest(),
            checks=tuple(examine(context, start.plan)),
            changes=tuple(changes),
        )
        _append(directory, attempt)
    except BaseException as error:
        if name is not None:
            (directory / name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(directory, error) from error
        raise
    before = read_kept(directory, start.capture, start.capture_sha256, "the raw capture that the run began with")
    other = differences(load(directory / start.capture, before), context)
    refused = f"the SUT is not the one that the run began on: {'; '.join(other)}" if other else refusal(attempt.checks)
    if refused is not None:
        record_note(directory, refused)
        raise NotBegunError(refused)
    return BegunRun(directory=str(directory), plan=remaining(directory, start.plan))


def outstanding(directory: Path) -> tuple[Step, ...]:
    """Return the steps of the plan of the run in *directory* that have no result yet.

    Raises ``InputError`` where it is no run that has begun.
    """
    return remaining(directory, _begun(directory).plan).steps


def _start(directory: Path) -> StartRecord | None:
    return next((each for each in records(directory) if isinstance(each, StartRecord)), None)


def _begun(directory: Path) -> StartRecord:
    start = _start(directory)
    if start is None:
        raise InputError(f"expected the records in {directory} to begin with the start of a run, found no start")
    return start


def remaining(directory: Path, plan: Plan) -> Plan:
    """Return *plan* with those of its steps that have no result in the records in *directory*."""
    done = {each.step.id for each in records(directory) if isinstance(each, StepRecord) and each.outcome == "ok"}
    steps = tuple(step for step in plan.steps if step.id not in done)
    return plan.model_copy(
        update={
            "steps": steps,
            "expected_duration_s": round(sum(step.expected_duration_s for step in steps), 1),
            "longest_duration_s": round(sum(step.longest_duration_s for step in steps), 1),
        }
    )


def differences(before: Context, now: Context) -> list[str]:
    """Return in what the SUT of *now* is another than that of *before*, on which no run can go on.

    How much memory is free, the load and the boot may differ, and so may what a run itself tunes.
    """

    def identity(context: Context) -> dict[str, str]:
        known = facts(context, None)
        return {
            "kernel": str(context.capture.uname),
            "kernel command line": "none" if context.cmdline is None else context.cmdline.text.strip(),
            **{name: known[name] for name in UNCHANGING},
        }

    return other_facts(identity(before), identity(now))


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
    """Record why the attempt that is under way ended, or that none could begin; return the run's directory.

    Raises like ``record_not_begun``.
    """
    directory = run_directory(results, testbed, sut, run_id)
    if not (directory / RECORDS).exists() or has_ended(directory):
        return record_not_begun(
            results, testbed=testbed, sut=sut, run_id=run_id, profile=profile, now=now, reason=reason, checks=checks
        )
    last = list(records(directory))[-1]
    if not isinstance(last, NotBegunRecord | NoteRecord):  # else the reason is there, and nearer to the cause
        record_note(directory, reason)
    return directory


def newest_missing(results: Path, suts: Collection[tuple[str, str]]) -> str:
    """Return the identifier of the newest run of any of *suts* that can go on: a step of it has no result.

    A SUT is named by its testbed and its own name. A run whose steps all ended well and that lacks a part of a figure
    is left alone: nothing would be measured. Raises ``InputError`` where there is none, or the records of the newest
    cannot be read.
    """
    found: dict[str, list[Path]] = {}
    for path in results.glob("*/*/*/"):
        if (path.parent.parent.name, path.parent.name) in suts and os.path.lexists(path / RECORDS):
            found.setdefault(path.name, []).append(path)
    for run_id in sorted(found, reverse=True):
        faults = []
        for path in found[run_id]:
            try:
                if can_go_on(path):
                    return run_id
            except InputError as error:
                faults.append(error)
        if faults:
            raise faults[0]
    raise InputError(
        f"expected a run of these SUTs in which something is missing below {results}, found none; name one, or begin "
        "a new run"
    )


def can_go_on(directory: Path) -> bool:
    """Return whether the run in *directory* has steps without a result, or has not begun."""
    if is_complete(directory):
        return False
    start = _start(directory)
    return start is None or bool(remaining(directory, start.plan).steps)


def complete_suts(results: Path, run_id: str) -> list[tuple[str, str]]:
    """Return the SUTs of which the run *run_id* is complete, testbed and SUT.

    Raises ``InputError`` for what is no identifier.
    """
    run_directory(results, "any", "any", run_id)
    return sorted((path.parts[-3], path.parts[-2]) for path in results.glob(f"*/*/{run_id}/") if is_complete(path))


def is_complete(directory: Path) -> bool:
    """Return whether the run in *directory* has a run document that says that nothing is missing."""
    try:
        path = directory / RUN
        status = parse_json(path, read_regular(path, MAX_DOCUMENT_BYTES))["run"]["status"]
    except (OSError, InputError, LookupError, TypeError):
        return False
    return bool(status == "complete")


def has_begun(directory: Path) -> bool:
    """Return whether the run in *directory* has a plan."""
    return (directory / RECORDS).exists() and _start(directory) is not None


def has_ended(directory: Path) -> bool:
    """Return whether the newest attempt in *directory* recorded its end."""
    ended = False
    for each in _parsed(directory, _KIND):  # what else is in the records is looked at when they are read
        ended = each.record == "end" or (ended and each.record not in BEGINNINGS)
    return ended


def _claim(directory: Path) -> bool:
    """Make *directory* for a run that begins, and return whether it is new: one that did not begin may begin there."""
    if directory.exists() and (directory / RECORDS).exists() and not has_begun(directory):
        return False
    _make(directory, new=True)
    return True


def _keep_capture(directory: Path, capture: bytes) -> str:
    """Write *capture* beside those of earlier attempts, and return its name."""
    names = chain((CAPTURE,), (CAPTURE.replace(".", f"-{number}.", 1) for number in count(2)))
    name = next(each for each in names if not (directory / each).exists())
    write_whole(directory / name, capture)
    return name


def _make(directory: Path, *, new: bool = False) -> None:
    """Make *directory*, and those above it; where that fails in the middle, nothing of it stays."""
    try:
        directory.mkdir(parents=True, exist_ok=not new)
    except FileExistsError:
        raise
    except OSError:
        _discard(directory)
        raise


def _discard(directory: Path) -> None:
    """Remove a directory that never became a run, and the empty ones above it."""
    for name in (CAPTURE, RECORDS):
        (directory / name).unlink(missing_ok=True)
    for each in (directory, directory.parent, directory.parent.parent):
        with suppress(FileNotFoundError):
            try:
                each.rmdir()
            except FileNotFoundError:
                raise
            except OSError:  # it holds other runs, or files that are not ours
                return


def record_kernels(directory: Path, kernels: Kernels) -> None:
    """Record the kernel bytes that will measure, as verified on the SUT.

    Raises ``EnvironmentLacksError`` where the run began with other bytes: its figures would not belong together.
    """
    for each in records(directory):
        if isinstance(each, KernelsRecord) and each.kernels.sha256 != kernels.sha256:
            raise EnvironmentLacksError(
                f"expected the kernel that the run began with, sha256 {each.kernels.sha256}, found {kernels.sha256}: "
                "this checkout builds another. Resume with the version of then, or begin a new run"
            )
    _append(directory, KernelsRecord(kernels=kernels))


def has_checker(directory: Path) -> bool:
    """Return whether the run in *directory* has a record of the checker: it is run once, not with every attempt."""
    return any(each.record == "meltdown_checker" for each in _parsed(directory, _KIND))


def record_checker(directory: Path, checker: CheckerRun, output: bytes | None) -> None:
    """Keep *output*, what the checker printed, and record how it ran. Raises like ``record_step``."""
    _append(directory, CheckerRecord(checker=_with_output(directory, checker, CHECKER_OUTPUT, output)))


def _with_output(directory: Path, run: Other, name: str, output: bytes | None) -> Other:
    """Keep *output*, what a program printed, in the file *name*, and return *run* with that."""
    if output is None:
        return run
    path = directory / name
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, output)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return run.model_copy(update={"output": name, "output_sha256": hashlib.sha256(output).hexdigest()})


def mlc_commands(directory: Path) -> tuple[MlcCommand, ...]:
    """Return the commands of Intel MLC that the plan of the run in *directory* has and that have not ended well yet.

    Raises ``InputError`` where it is no run that has begun.
    """
    ended = (each.run for each in records(directory) if isinstance(each, MlcCommandRecord))
    done = {run.command for run in ended if run.outcome == "ok"}
    return tuple(each for each in _begun(directory).plan.mlc if each.command not in done)


def record_mlc(directory: Path, program: MlcProgram) -> None:
    """Record the operator's Intel MLC. Raises like ``record_step``."""
    _append(directory, MlcProgramRecord(program=program))


def record_mlc_command(directory: Path, run: MlcRun, output: bytes | None) -> None:
    """Keep *output*, what a command of Intel MLC printed, and record how it ran. Raises like ``record_step``."""
    _append(directory, MlcCommandRecord(run=_with_output(directory, run, f"{MLC_FOLDER}/{run.command}.txt", output)))


def record_step(directory: Path, record: StepRecord) -> None:
    """Record a finished step. Raises ``EnvironmentLacksError`` where it cannot be written.

    Once the records of the run have reached :data:`MAX_RECORDS_BYTES` what the kernel printed is not kept any more.
    """
    path = directory / RECORDS
    size = path.stat().st_size if path.exists() else 0
    if size > MAX_RECORDS_BYTES and record.document is not None:
        reason = f"expected at most {MAX_RECORDS_BYTES} bytes of records in a run, found {size}: this is not kept"
        record = record.model_copy(update={"outcome": "failed", "reason": reason, "document": None})
    _append(directory, record)


def record_note(directory: Path, reason: str) -> None:
    """Record why the steps that follow have no result."""
    _append(directory, NoteRecord(reason=reason))


def record_switched(directory: Path, changes: Iterable[Change]) -> None:
    """Record what was changed for single steps, and what of it was put back after them."""
    _append(directory, SwitchedRecord(changes=tuple(changes)))


def record_restored(directory: Path, changes: Iterable[Change]) -> None:
    """Record that *changes* were put back on the SUT, and by whom."""
    _append(directory, RestoredRecord(changes=tuple(changes)))


def record_end(directory: Path, *, now: datetime, interrupted: bool = False) -> None:
    """Record that the attempt is over; *interrupted* says that it was ended from outside."""
    _append(directory, EndRecord(finished_at=now, interrupted=interrupted))


def records(directory: Path) -> Iterator[Record]:
    """Yield the records of a run in the order in which they were written.

    A last line that a crash cut off is left out. Raises ``InputError`` for anything else that is not a record.
    """
    return _parsed(directory, _RECORD)


def _parsed(directory: Path, kind: TypeAdapter[Parsed]) -> Iterator[Parsed]:
    """Yield what *kind* makes of each record of a run. Raises like ``records``."""
    path = directory / RECORDS
    try:
        # at newlines alone: what a SUT said may hold every other character that text is usually split at
        lines = read_regular(path, 2 * MAX_RECORDS_BYTES).splitlines(keepends=True)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith(b"\n"):
            return
        try:
            yield kind.validate_json(line)
        except ValidationError as error:
            raise InputError(f"line {number} of {path} is not a record: {fault_of(error)}") from error


def read_kept(directory: Path, name: str, sha256: str | None, what: str) -> bytes:
    """Return the bytes of the file *name* of the run in *directory*.

    Raises ``InputError`` where it is missing, or is not what was recorded.
    """
    path = directory / name
    try:
        content = read_regular(path, MAX_KEPT_BYTES, below=directory)
    except FileNotFoundError as error:
        raise InputError(f"expected {what} at {path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path} is not {what}: its sha256 differs from the record")
    return content


def write_document(directory: Path, document: RunDocument) -> Path:
    """Write ``run.json`` whole, after it was read back from disk and found valid; return its path.

    Raises ``EnvironmentLacksError`` where it cannot be written, ``InputError`` where it is not valid: then no
    ``run.json`` appears, and an older one stays.
    """
    target = directory / RUN
    try:
        with pending(target, document.model_dump_json(indent=1).encode() + b"\n") as written:
            validate(written)
            written.replace(target)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return target


def read_run(path: Path) -> RunDocument:
    """Return the run document at *path* (a ``run.json`` or its directory), checked by schema and by model."""
    return validate(path / RUN if path.is_dir() else path)


def validate(path: Path) -> RunDocument:
    """Check the run document at *path* as it stands on disk, and return it.

    It is judged by the committed JSON Schema of its version first, brought up to date where that is an older one, and
    judged by the model. Raises ``InputError`` with the first fault.
    """
    try:
        content, _ = read_document(path)
        return model_of(content)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except ValueError as error:
        raise InputError(f"{path}: not a run document: {error}") from error


def find_runs(results: Path) -> list[Path]:
    """Return the directories of all assembled runs below *results*, by testbed, SUT and time.

    Raises ``InputError`` where *results* is no directory.
    """
    if not results.is_dir():
        raise InputError(f"expected a directory of results at {results}, found none")
    return sorted(path.parent for path in results.glob(f"*/*/*/{RUN}"))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the run document, as committed in ``run-3.schema.json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **RunDocument.model_json_schema(mode="serialization"),
    }


def decode_capture(text: str) -> bytes:
    """Return the bytes of a capture that came as base64. Raises ``InputError`` where it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"expected a capture in base64: {error}") from error


def _append(directory: Path, record: Model) -> None:
    line = record.model_dump_json().encode() + b"\n"
    path = directory / RECORDS
    try:
        with open_regular(path, "ab", create=True) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), before)
                raise
    except OSError as error:
        raise _unwritable(directory, error) from error


def _unwritable(directory: Path, error: OSError) -> EnvironmentLacksError:
    return EnvironmentLacksError(
        f"the results cannot be written below {directory}: {error.strerror or error}. What was there before is kept; "
        "free some space or choose another directory with calibration_results_dir"
    )
