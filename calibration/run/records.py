# SPDX-License-Identifier: Apache-2.0
"""The records of a run, ``records.jsonl``: what happened, appended step by step, one JSON object per line."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibration.acceptance import AcceptanceFile
from calibration.acceptance.limits import Limit
from calibration.base.errors import InputError
from calibration.base.files import open_regular, read_regular, regular_lines, write_whole
from calibration.base.model import Model, UtcTime, fault_of
from calibration.base.tuning import SettingChange, Unrestored
from calibration.measurements.base import Step
from calibration.measurements.plan import Plan
from calibration.preflight.checks import Check
from calibration.results.health import Health
from calibration.results.layout import CHECKER_OUTPUT, DCDIAG_OUTPUT, MLC_FOLDER, RECORDS
from calibration.results.model import CheckerRun, DcdiagRun, MlcProgram, MlcRun, OtherRun, ProbeBuild
from calibration.results.store import unwritable
from calibration.sutprobe.document import Surroundings

MAX_RECORDS_BYTES: Final = 256 * 1024 * 1024
"""A full run on 504 CPUs has half of this; a SUT that prints more must not fill the disk."""

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Largest file kept beside the records: captures and outputs of programs are limited to 16 MiB."""


class _Begin(Model):
    """Common fields of the records that begin an attempt; ``session`` is the name of the runner's directory."""

    started_at: UtcTime
    session: str | None = None
    boot_id: str | None
    checks: tuple[Check, ...]
    changes: tuple[SettingChange, ...]


class _FirstBegin(_Begin):
    """Identity of a run, in the record that may be its first."""

    id: str
    testbed: str
    sut: str
    profile: str
    harness_version: str


class StartRecord(_FirstBegin):
    """Start of a run: who measures what on which SUT, the limits and acceptance files that apply, and the plan."""

    record: Literal["start"] = "start"
    capture: str
    capture_sha256: str
    limits: tuple[Limit, ...] = ()
    acceptance: tuple[AcceptanceFile, ...] = ()
    plan: Plan


class NotBegunRecord(_FirstBegin):
    """The SUT was unreachable or unfit: there is no plan. An attempt to resume may also end like this."""

    record: Literal["not_begun"] = "not_begun"
    capture: str | None = None
    capture_sha256: str | None = None
    reason: str


class ResumeRecord(_Begin):
    """The run continues with the steps of its plan without a result, on the SUT as captured again."""

    record: Literal["resume"] = "resume"
    capture: str
    capture_sha256: str


class ProbeRecord(Model):
    """The hash of sutprobe as verified on the SUT."""

    record: Literal["probe"] = "probe"
    probe: ProbeBuild


class CheckerRecord(Model):
    """How the operator's spectre-meltdown-checker ran; its output is a file beside the records."""

    record: Literal["meltdown_checker"] = "meltdown_checker"
    checker: CheckerRun


class DcdiagRecord(Model):
    """How the operator's opendcdiag ran; its output is a file beside the records."""

    record: Literal["opendcdiag"] = "opendcdiag"
    run: DcdiagRun


class MlcProgramRecord(Model):
    """Intel MLC is on the SUT, or why not; one per attempt that reaches it."""

    record: Literal["mlc"] = "mlc"
    program: MlcProgram


class MlcCommandRecord(Model):
    """How one command of the operator's Intel MLC ran; its output is a file beside the records."""

    record: Literal["mlc_command"] = "mlc_command"
    run: MlcRun


Outcome = Literal["ok", "failed", "timed_out", "killed"]


class SwitchedRecord(Model):
    """Changes made for single steps of this attempt, or restored after them."""

    record: Literal["switched"] = "switched"
    changes: tuple[SettingChange, ...]


class StepRecord(Model):
    """One finished command of a step: how it ended, and the output of sutprobe.

    ``round`` is ``None`` if the step is measured once; ``around`` is what was around the command.
    """

    record: Literal["step"] = "step"
    step: Step
    round: int | None = None
    around: Surroundings | None = None
    outcome: Outcome
    reason: str | None
    rc: int | None
    started_at: UtcTime
    duration_s: float
    document: dict[str, Any] | None
    stderr: str


class HealthRecord(Model):
    """What the SUT counted while the attempt measured; replaces the previous one, which was collected again."""

    record: Literal["health"] = "health"
    health: Health


class NoteRecord(Model):
    """Why a run cannot continue, for example an unreachable SUT or a wrong hash of sutprobe."""

    record: Literal["note"] = "note"
    reason: str


class RestoredRecord(Model):
    """What is known of the changes of an attempt after its end, with who restored them.

    It is that of the runner's *session*, by default the last one. Changes that are not named here stay as they were
    known; *unrestored* replaces what was not restored before.
    """

    record: Literal["restored"] = "restored"
    session: str | None = None
    changes: tuple[SettingChange, ...]
    unrestored: tuple[Unrestored, ...] = ()


class EndRecord(Model):
    """End of the attempt; *interrupted*: from outside."""

    record: Literal["end"] = "end"
    finished_at: UtcTime
    interrupted: bool


AttemptRecord = StartRecord | NotBegunRecord | ResumeRecord
"""Records that begin an attempt."""

Record = (
    AttemptRecord
    | ProbeRecord
    | CheckerRecord
    | DcdiagRecord
    | MlcProgramRecord
    | MlcCommandRecord
    | SwitchedRecord
    | StepRecord
    | HealthRecord
    | NoteRecord
    | RestoredRecord
    | EndRecord
)
_RECORD: TypeAdapter[Record] = TypeAdapter(
    Annotated[Record, Field(discriminator="record")], config=ConfigDict(defer_build=True)
)


class _Named(BaseModel):
    """Any record, read for its kind only."""

    record: str


_NAMED = TypeAdapter(_Named)

Parsed = TypeVar("Parsed")
Other = TypeVar("Other", bound=OtherRun)


def complete_records() -> None:
    """Build the validator of records, so that processes forked from this one need not."""
    _RECORD.rebuild()


def records(directory: Path) -> Iterator[Record]:
    """Yield the records of a run in the order of writing.

    A last line cut off by a crash is skipped. Raises ``InputError`` for anything else that is not a record.
    """
    return _parsed(directory, _RECORD)


def record_names(directory: Path) -> Iterator[str]:
    """Yield the kind of each record of a run, without reading the rest. Raises like ``records``."""
    return (named.record for named in _parsed(directory, _NAMED))


def _parsed(directory: Path, kind: TypeAdapter[Parsed]) -> Iterator[Parsed]:
    path = directory / RECORDS
    try:
        # one at a time: all records of a large machine are hundreds of MB
        for number, line in enumerate(regular_lines(path, 2 * MAX_RECORDS_BYTES), 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = kind.validate_json(line)
            except ValidationError as error:
                raise InputError(f"line {number} of {path} is not a record: {fault_of(error)}") from error
            yield record
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error


def append_record(directory: Path, record: Record) -> None:
    """Append *record* to a run. Raises ``EnvironmentLacksError`` if it cannot be written.

    From :data:`MAX_RECORDS_BYTES` on the output of sutprobe is dropped.
    """
    with appending(directory) as append:
        append(record)


@contextmanager
def appending(directory: Path) -> Iterator[Callable[[Record], None]]:
    """Yield a function that appends a record to a run; they are on disk after the block. Raises like ``append_record``.

    Errors of the block are raised as they are.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_regular(directory / RECORDS, "a+b", create=True))
            before = _end_of_lines(file)
            os.ftruncate(file.fileno(), before)
        except OSError as error:
            raise unwritable(directory, error) from error
        try:
            yield partial(_append, directory, file)
        finally:
            try:
                os.fsync(file.fileno())
            except OSError as error:
                os.ftruncate(file.fileno(), before)
                raise unwritable(directory, error) from error


def _append(directory: Path, file: BinaryIO, record: Record) -> None:
    before = os.fstat(file.fileno()).st_size
    if isinstance(record, StepRecord) and record.document is not None and before > MAX_RECORDS_BYTES:
        reason = f"not kept: the records of the run exceed {MAX_RECORDS_BYTES} bytes"
        record = record.model_copy(update={"outcome": "failed", "reason": reason, "document": None})
    rest = memoryview(record.model_dump_json().encode() + b"\n")
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        os.ftruncate(file.fileno(), before)
        raise unwritable(directory, error) from error


def _end_of_lines(file: BinaryIO) -> int:
    """Return the size of *file* without a last line that a crash cut off."""
    size = os.fstat(file.fileno()).st_size
    if size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n":
        return size
    return os.pread(file.fileno(), size, 0).rfind(b"\n") + 1


def record_checker(directory: Path, checker: CheckerRun, output: bytes | None) -> None:
    """Store the checker's *output*, and record how it ran. Raises like ``append_record``."""
    append_record(directory, CheckerRecord(checker=_with_output(directory, checker, CHECKER_OUTPUT, output)))


def record_dcdiag(directory: Path, run: DcdiagRun, output: bytes | None) -> None:
    """Store the *output* of opendcdiag, and record how it ran. Raises like ``append_record``."""
    append_record(directory, DcdiagRecord(run=_with_output(directory, run, DCDIAG_OUTPUT, output)))


def record_mlc_command(directory: Path, run: MlcRun, output: bytes | None) -> None:
    """Store the *output* of a command of Intel MLC, and record how it ran. Raises like ``append_record``."""
    run = _with_output(directory, run, f"{MLC_FOLDER}/{run.command}.txt", output)
    append_record(directory, MlcCommandRecord(run=run))


def _with_output(directory: Path, run: Other, name: str, output: bytes | None) -> Other:
    """Store a program's *output* in the file *name*, and return *run* with that."""
    if output is None:
        return run
    path = directory / name
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, output)
    except OSError as error:
        raise unwritable(directory, error) from error
    return run.model_copy(update={"output": name, "output_sha256": hashlib.sha256(output).hexdigest()})


def read_kept(directory: Path, name: str, sha256: str | None, what: str) -> bytes:
    """Return the bytes of the file *name* of the run in *directory*.

    Raises ``InputError`` if it is missing or differs from the record.
    """
    path = directory / name
    try:
        content = read_regular(path, MAX_KEPT_BYTES, below=directory)
    except FileNotFoundError as error:
        raise InputError(f"{path}, {what}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path} is not {what}: its sha256 differs from the record")
    return content
