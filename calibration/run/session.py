# SPDX-License-Identifier: Apache-2.0
"""The calibration of one SUT: the runner is started on it, handed the plan, watched, and its records are collected.

The SUT needs no connection while it measures. What a controller did not collect, because it was killed or the SUT was
lost, the next ``--resume`` collects, as long as the SUT keeps it.
"""

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from calibration import __version__
from calibration.acceptance import AcceptanceFile
from calibration.acceptance.limits import Limit
from calibration.base.commandline import cleanup_command, run_command
from calibration.base.errors import (
    GOOD,
    CalibrationError,
    ConnectionLostError,
    InputError,
    NoAnswerError,
    RefusedError,
    SutError,
)
from calibration.base.files import read_given, read_regular
from calibration.base.model import UtcTime, complete_models, fault_of, format_time
from calibration.base.tuning import not_restored
from calibration.build import RECORD as BUILD
from calibration.build import BuiltProbe
from calibration.context import loader
from calibration.counters.tables import tables
from calibration.formats.opendcdiag import MAX_BYTES as MAX_DCDIAG_BYTES
from calibration.measurements import registry
from calibration.measurements.base import Step
from calibration.measurements.mlc_program import NAME, MlcCommand, Program, read_program
from calibration.measurements.plan import Plan
from calibration.measurements.table import with_tables
from calibration.preflight.checks import Check, taken_over_check
from calibration.results.layout import CAPTURE, RECORDS, run_directory
from calibration.results.model import CheckerRun, DcdiagRun, MlcProgram, ProbeBuild
from calibration.run.answers import (
    CHECKER_STEP,
    DCDIAG_STEP,
    MAX_REASON,
    MLC_STEP,
    RecordReader,
    dcdiag_argv,
    read_record,
)
from calibration.run.attempts import (
    chosen,
    has_begun,
    has_ended,
    mlc_commands,
    outstanding,
    record_attempt,
    record_probe,
    record_reason,
    start_of,
    unmeasured,
)
from calibration.run.lifecycle import BegunRun, CheckSut, begin, resume
from calibration.run.records import (
    MAX_RECORDS_BYTES,
    EndRecord,
    MlcProgramRecord,
    NoteRecord,
    RestoredRecord,
    ResumeRecord,
    StartRecord,
    append_record,
    complete_records,
    record_checker,
    record_dcdiag,
    record_names,
)
from calibration.run.remote import CHANGE_S, Batch, Found, Prepared, Remote
from calibration.runner.bundle import runner
from calibration.runner.directory import JOB, PLAN
from calibration.runner.rounds import chosen_words

Say = Callable[[str, str | None], None]
"""Displays a message about the SUT at once; the outcome of a step colours it."""

T = TypeVar("T")


class Apart(Protocol):
    """Returns what *work* returns, or raises what it raises."""

    def __call__(self, work: Callable[[], T]) -> T:
        """Do it in another process, for example."""


def _here(work: Callable[[], T]) -> T:
    return work()


WAIT_S: Final = 100.0
"""How long a reserved SUT waits for its plan after the last sign of its controller.

Planning 512 CPUs takes 1 s, and 50 SUTs may be planned at once on few CPUs. If the controller was killed, or lost
power, the SUT is free within two minutes.
"""

ALIVE_S: Final = 300.0
"""Longest silence of a SUT that is watched: it says then that it is there."""

PAUSE_S: Final = 2.0
"""Pause between attempts to reconnect to a SUT."""

MAX_SCRIPT_BYTES: Final = 4 << 20
"""Ten times the size of spectre-meltdown-checker; a larger file is something else."""

MAX_DCDIAG_PROGRAM_BYTES: Final = 64 << 20
"""Many times the size of opendcdiag without debugging symbols, 3 MB; with them it has 230 MB."""

CHECKER_BYTES: Final = 256 * 1024
"""Ten times the longest known output of spectre-meltdown-checker."""

MLC_BYTES: Final = 128 * 1024
"""Limit on the output of a command of Intel MLC; latencies of 1024 CPUs to 8 nodes have 80 KB."""

UNCLEAN: Final = "unclean"
"""Outcome of a message that something of the run is left on the SUT."""

RESTARTED: Final = "the SUT was restarted during the run: its settings may be different"
KILLED: Final = "the runner on the SUT was killed, or could not write: check dmesg for OOM, and df for a full disk"


@dataclass(frozen=True)
class Mlc:
    """The operator's Intel MLC: the file, and what the operator agreed to."""

    archive: Path
    timeout_s: float
    prefetchers_ok: bool
    publish: bool


@dataclass(frozen=True)
class Request:
    """What is asked of one SUT, ``host`` in the inventory, of the architecture ``machine`` if that is known.

    ``settings`` are those to change, with consent.

    ``asked`` are patterns of files to capture beside the usual ones, ``serials_ok`` is the consent to capture serial
    numbers, ``bmc_ok`` that to ask the BMC.
    ``keep_s`` is how long the SUT keeps results that nobody collects, ``grace_s`` the time beyond its own deadline
    after which a step is ended, ``reconnect_s`` how long a lost SUT is waited for, ``progress_s`` the shortest time
    between two looks at it.
    """

    results: Path
    testbed: str
    sut: str
    host: str
    run_id: str
    machine: str | None = None
    profile: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    prefetchers_ok: bool = False
    limits: tuple[Limit, ...] = ()
    acceptance: tuple[AcceptanceFile, ...] = ()
    checks: tuple[Check, ...] = ()
    asked: tuple[str, ...] = ()
    serials_ok: bool = False
    bmc_ok: bool = False
    checker: Path | None = None
    checker_timeout_s: float = 600.0
    mlc: Mlc | None = None
    opendcdiag: Path | None = None
    keep_s: float = 3600.0
    grace_s: float = 60.0
    reconnect_s: float = 900.0
    progress_s: float = 5.0

    @property
    def names(self) -> dict[str, str]:
        """Where the run is in the results."""
        return {"testbed": self.testbed, "sut": self.sut, "run_id": self.run_id}

    @property
    def directory(self) -> Path:
        """The run's directory."""
        return run_directory(self.results, **self.names)

    def job(self, now: datetime) -> dict[str, Any]:
        """Return the description of the run for the runner."""
        return {
            "run_id": self.run_id,
            "sut": self.sut,
            "host": self.host,
            "controller": controller(),
            "started_at": format_time(now),
            "settings": dict(self.settings),
            "prefetchers_ok": self.prefetchers_ok,
            "asked": list(self.asked),
            "serials_ok": self.serials_ok,
            "bmc_ok": self.bmc_ok,
            "keep_s": self.keep_s,
            "wait_s": WAIT_S,
        }


def prepare() -> None:
    """Do once what every process forked from this one for a SUT would do."""
    for model in with_tables():
        model.row_model(read=False)
    for row in chain.from_iterable(kind.metric_rows for kind in registry().values()):
        row.labels("")  # its pattern is compiled once
    complete_models()
    complete_records()
    tables()
    runner()


def controller() -> str:
    """Return the user and host of this controller."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"user id {os.getuid()}"  # a container's user may have no name
    return f"{user}@{socket.gethostname()}"


def calibrate(
    request: Request,
    remote: Remote,
    *,
    build: Callable[[str], BuiltProbe],
    examine: CheckSut,
    say: Say,
    planned: Callable[[Plan], None],
    resumed: bool,
    apart: Apart = _here,
) -> int:
    """Take the SUT through its run, or what is left of it if *resumed*; its records say how that went.

    *build* returns sutprobe for an architecture, *examine* the checks of the captured SUT; *planned* gets the plan.
    *apart* does what takes memory that is not needed while the SUT measures.
    Returns 0, or the exit code of the reason, which is recorded, why the SUT was not measured to the end. Raises
    ``InputError`` if nothing was begun because of invalid input, ``EnvironmentLacksError`` if records cannot be
    written.
    """
    directory = request.directory
    restored: RestoredRecord | None = None
    try:
        if resumed:
            collect_found(request, remote, say)
            if has_begun(directory) and not _outstanding(request):
                return GOOD
        # It may be compiled: no SUT is reserved for that.
        built = build(request.machine or str(remote.facts().get("machine")))
        begun = apart(lambda: _hand_over(request, remote, built, examine, say=say, planned=planned, resumed=resumed))
        if isinstance(begun, _Failed):
            restored = begun.restored
            raise begun.error
        loader.newest.update(begun.captured)
        collect(request, remote, begun.directory, begun.boot_id, say)
    except CalibrationError as error:
        if isinstance(error, RefusedError) and error.faults:
            restored = RestoredRecord(changes=(), unrestored=tuple(error.faults))
        left = restored is not None and restored.unrestored
        if isinstance(error, InputError) and not directory.exists() and not left:
            raise
        say(f"{error}{_ending(request, error)}", "failed")
        note(request, str(error))
        if restored is not None:
            append_record(directory, restored)
        return error.exit_code
    return GOOD


class _Begun(NamedTuple):
    """A run that has begun on a SUT: its directory there, the SUT's boot, and what its capture says."""

    directory: str
    boot_id: str
    captured: dict[bytes, str]


class _Failed(NamedTuple):
    """Why a run did not begin, and what of it was restored, unless that is recorded."""

    error: CalibrationError
    restored: RestoredRecord | None


def _hand_over(
    request: Request,
    remote: Remote,
    built: BuiltProbe,
    examine: CheckSut,
    *,
    say: Say,
    planned: Callable[[Plan], None],
    resumed: bool,
) -> _Begun | _Failed:
    """Begin the run on the SUT; what fails is undone there."""
    restored: RestoredRecord | None = None
    try:
        prepared = remote.start(request.job(datetime.now(UTC)))
        try:
            begun = _begin(request, prepared, examine, resumed=resumed)
            planned(begun.plan)
            plan, programs = _programs(request, begun, built, say)
            plan |= {"grace_s": request.grace_s, "programs": _hashes(programs)}
            remote.begin(prepared.directory, plan, programs)
        except BaseException:
            restored = _remove(remote, prepared.directory, say)
            if restored is not None and (request.directory / RECORDS).exists():
                with suppress(CalibrationError):  # the first reason counts
                    append_record(request.directory, restored)
                    restored = None
            raise
    except CalibrationError as error:
        return _Failed(error, restored)
    return _Begun(prepared.directory, prepared.boot_id, loader.newest)


def _ending(request: Request, error: CalibrationError) -> str:
    """Return how to end the run that is in the way of *request*, by the names that this controller knows."""
    if not isinstance(error, RefusedError) or error.run_id is None:
        return ""
    command = cleanup_command(error.run_id, [request.host], request.results)
    return f"; wait for it, or end it as that user or as root: {command}"


def _outstanding(request: Request) -> bool:
    """Return whether a step, or a command of a requested Intel MLC, has no result."""
    directory = request.directory
    return bool(outstanding(directory) or (request.mlc is not None and mlc_commands(directory)))


def note(request: Request, reason: str, checks: Iterable[Check] = ()) -> None:
    """Record why the SUT was not measured, or measuring stopped."""
    record_reason(
        request.results,
        **request.names,
        profile=request.profile,
        now=datetime.now(UTC),
        reason=reason[:MAX_REASON],
        checks=tuple(checks) or request.checks,
    )


def _begin(request: Request, prepared: Prepared, examine: CheckSut, *, resumed: bool) -> BegunRun:
    """Record the start of the run, or of its next attempt, on the captured SUT."""
    found = (taken_over_check(prepared.taken_over),) if prepared.taken_over else ()
    attempt: dict[str, Any] = {
        "capture": prepared.capture,
        "now": datetime.now(UTC),
        "boot_id": prepared.boot_id,
        "session": prepared.session,
        "changes": prepared.changes,
        "examine": lambda *sut: (*found, *examine(*sut)),
    }
    if resumed and has_begun(request.directory):
        return resume(request.directory, **attempt)
    attempt |= {name: getattr(request, name) for name in ("profile", "limits", "acceptance", "prefetchers_ok")}
    attempt |= request.names
    return begin(request.results, **attempt)


# What is run


def _hashes(programs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(content).hexdigest() for name, content in programs.items()}


def _programs(
    request: Request, begun: BegunRun, built: BuiltProbe, say: Say
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the plan in the runner's form, with the operator's programs before and after, and all programs."""
    programs = {"sutprobe": built.path.read_bytes()}
    record_probe(begun.directory, _probe(built))
    left, searched = unmeasured(begun.directory), chosen(begun.directory)
    plan: dict[str, Any] = {
        "seed": begun.plan.seed,
        "steps": [_step(step, left[step.id], searched) for step in begun.plan.steps],
        "before": [],
        "after": [],
    }
    if request.checker is not None and "meltdown_checker" not in record_names(begun.directory):
        script = _read_checker(request, begun.directory, say)
        if script is not None:
            programs[CHECKER_STEP] = script
            plan["before"] = [_checker_step(request, _hashes({"": script})[""])]
    seconds = start_of(begun.directory).plan.opendcdiag_s
    if request.opendcdiag is not None and seconds is not None and "opendcdiag" not in record_names(begun.directory):
        content = _read_dcdiag(request.opendcdiag, seconds, begun.directory, say)
        if content is not None:
            programs[DCDIAG_STEP] = content
            plan["after"] = [_dcdiag_step(seconds, _hashes({"": content})[""])]
    commands = mlc_commands(begun.directory)
    if request.mlc is not None and commands:
        program = _read_mlc(request.mlc, begun.directory, say)
        if program is not None:
            programs["mlc"] = program.content
            plan["after"] += [_mlc_step(request.mlc, command, program.sha256) for command in commands]
    return plan, programs


def _probe(built: "BuiltProbe | _Build") -> ProbeBuild:
    known = {name: getattr(built, name) for name in ProbeBuild.model_fields}
    return ProbeBuild(**{**known, "flags": " ".join(built.flags)})


def _step(step: Step, left: Sequence[int], searched: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return *step* for the runner, with the rounds *left*, and as its command what was *searched* before."""
    made = step.model_dump(mode="json")
    if step.choice is not None and step.choice.step in searched:
        made["argv"] += chosen_words(made["choice"], searched[step.choice.step])
        made["choice"] = None
    if len(left) < step.rounds:
        made["rounds"] = list(left)
    return made


def _checker_step(request: Request, digest: str) -> dict[str, Any]:
    """Return the step of the operator's spectre-meltdown-checker.

    By itself the script loads the modules cpuid and msr, mounts debugfs and, in old versions, writes registers of the
    processor; no option prevents this in all versions. So it keeps only the capabilities to read files of others and
    the kernel's log.
    """
    return {
        "id": CHECKER_STEP,
        "title": "Spectre and Meltdown checker",
        "argv": [CHECKER_STEP, "--batch", "json"],
        "deadline_s": request.checker_timeout_s,
        "confined": {
            "sha256": digest,
            "kept": ["dac_read_search", "syslog"],
            "max_bytes": CHECKER_BYTES,
            "interpreter": "/bin/sh",
        },
    }


def _read_checker(request: Request, directory: Path, say: Say) -> bytes | None:
    """Return the operator's script; if it cannot be read, record why and return None."""
    path = request.checker
    assert path is not None  # noqa: S101 - the caller's condition
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_SCRIPT_BYTES + 1)
        reason = f"the script {path} is larger than {MAX_SCRIPT_BYTES} bytes" if len(content) > MAX_SCRIPT_BYTES else ""
    except OSError as error:
        reason = (
            f"spectre-meltdown-checker cannot be read at {path} on the controller: {error.strerror}; correct "
            "context_meltdown_checker or leave it empty"
        )
    if not reason:
        return content
    say(f"the Spectre and Meltdown checker has no answer: {reason}", "failed")
    nothing: dict[str, None] = dict.fromkeys(
        ("argv", "user_id", "rc", "output", "output_sha256", "script_sha256"), None
    )
    run = CheckerRun(started_at=datetime.now(UTC), duration_s=0.0, reason=reason, stderr="", **nothing)
    record_checker(directory, run, None)
    return None


def _dcdiag_step(seconds: float, digest: str) -> dict[str, Any]:
    """Return the step of the operator's opendcdiag, without any privilege."""
    return {
        "id": DCDIAG_STEP,
        "title": DCDIAG_STEP,
        "argv": list(dcdiag_argv(seconds)),
        "deadline_s": dcdiag_deadline_s(seconds),
        "confined": {"sha256": digest, "kept": [], "max_bytes": MAX_DCDIAG_BYTES},
    }


def dcdiag_deadline_s(seconds: float) -> float:
    """Return the limit of opendcdiag: it ends after the test that runs when *seconds* are over, or hangs."""
    return 2 * seconds + 300


def _read_dcdiag(path: Path, seconds: float, directory: Path, say: Say) -> bytes | None:
    """Return the operator's opendcdiag; if it cannot be read, record why and return None."""
    try:
        return read_given(path, MAX_DCDIAG_PROGRAM_BYTES)
    except InputError as error:
        reason = f"{error} on the controller: correct opendcdiag_program (a stripped program) or leave it empty"
    say(f"opendcdiag: {reason}", "failed")
    nothing: dict[str, None] = dict.fromkeys(
        ("argv", "user_id", "rc", "output", "output_sha256", "program_sha256"), None
    )
    run = DcdiagRun(started_at=datetime.now(UTC), duration_s=0.0, seconds=seconds, reason=reason, **nothing)
    record_dcdiag(directory, run, None)
    return None


def _mlc_step(mlc: Mlc, command: MlcCommand, digest: str) -> dict[str, Any]:
    kept = ["dac_read_search", "ipc_lock", "sys_nice", *(["sys_rawio"] if mlc.prefetchers_ok else [])]
    return {
        "id": f"{MLC_STEP}{command.command}",
        "title": command.title,
        "argv": list(command.argv(prefetchers_ok=mlc.prefetchers_ok)),
        "deadline_s": mlc.timeout_s,
        "confined": {
            "sha256": digest,
            "kept": kept,
            "max_bytes": MLC_BYTES,
            "merged": True,
            "watch_prefetchers": True,
        },
    }


def _read_mlc(mlc: Mlc, directory: Path, say: Say) -> Program | None:
    """Record the operator's Intel MLC and return it; if it cannot be run, record why and return None."""
    found: Program | None = None
    reason = None
    try:
        found = read_program(mlc.archive)
    except CalibrationError as error:
        reason = str(error)[:MAX_REASON]
        say(f"{NAME} is not run: {reason}", "failed")
    program = MlcProgram(
        started_at=datetime.now(UTC),
        archive=mlc.archive.name,
        archive_sha256=None if found is None else found.archive_sha256,
        member=None if found is None else found.member,
        program_sha256=None if found is None else found.sha256,
        form=None if found is None else found.form,
        prefetchers_ok=mlc.prefetchers_ok,
        publish=mlc.publish,
        reason=reason,
    )
    append_record(directory, MlcProgramRecord(program=program))
    return None if reason else found


# Collecting


def collect(
    request: Request,
    remote: Remote,
    directory: str,
    boot_id: str | None,
    say: Say,
    *,
    cancelled: bool = False,
    until_s: float | None = None,
) -> None:
    """Collect the run in *directory* on the SUT, *cancelled* or not, to its end, and remove it there.

    If the SUT is lost for longer than ``reconnect_s``, the run is left to complete there. It is given up at
    *until_s*.
    """
    collector = RecordReader(request.directory, directory.rsplit("/", 1)[-1], say)
    try:
        batch = _follow(request, remote, directory, collector, say, until_s=until_s)
    except BaseException as error:
        with suppress(CalibrationError):  # the first reason counts
            collector.end()
        if not isinstance(error, ConnectionLostError | NoAnswerError):
            raise
        raise SutError(
            f"the connection to the SUT was lost and did not come back ({error}); the run completes there: collect it "
            f"within {request.keep_s / 60:.0f} min of its end with "
            + run_command("--resume", request.run_id, results=request.results)
        ) from error
    restored = _remove(remote, directory, say, until_s)
    if restored is not None:
        collector.take_restored(restored.changes, restored.unrestored)
    elif collector.unrestored:
        say(not_restored(collector.unrestored), UNCLEAN)
    collector.end()
    if not collector.finished and not cancelled:
        restarted = batch.state == "dead" and boot_id is not None and batch.boot_id not in (None, boot_id)
        reason = RESTARTED if restarted else collector.reason or KILLED
        append_record(request.directory, NoteRecord(reason=reason))


def _follow(
    request: Request, remote: Remote, directory: str, collector: RecordReader, say: Say, *, until_s: float | None
) -> Batch:
    """Collect the records of the run until it has ended; return the last batch.

    Raises ``SutError`` if it has not ended at *until_s*, by default when the runner would have killed all of its steps.
    """
    offset, lost_s = 0, None
    until_s = until_s or time.monotonic() + _longest_s(request)
    while True:
        try:
            batch = remote.watch(directory, offset, at_least_s=request.progress_s, at_most_s=ALIVE_S)
        except (ConnectionLostError, NoAnswerError) as error:
            if lost_s is None:
                lost_s = time.monotonic()
                say(f"the connection was lost, trying again for {request.reconnect_s:.0f} s: {error}", "failed")
            if time.monotonic() - lost_s > request.reconnect_s:
                raise
            time.sleep(PAUSE_S)
            with suppress(SutError):  # the next look says whether the SUT is back
                remote.reconnect()
            continue
        lost_s = None
        now = datetime.now(UTC)
        with collector.together():
            for line in batch.lines:
                collector.take(read_record(line), now, batch.now_s)
        offset += batch.size
        if batch.state != "running":
            return batch
        if time.monotonic() > until_s:
            raise SutError(
                f"the run has not ended within the sum of its deadlines: see what keeps {directory} on the SUT"
            )
        if not batch.lines:
            time.sleep(PAUSE_S)  # a runner waits by itself


def _longest_s(request: Request) -> float:
    """Return the time after which the runner has killed every step, and restored the SUT."""
    programs_s = request.checker_timeout_s
    seconds = start_of(request.directory).plan.opendcdiag_s
    if request.opendcdiag is not None and seconds is not None:
        programs_s += dcdiag_deadline_s(seconds)
    if request.mlc is not None:
        programs_s += len(mlc_commands(request.directory)) * request.mlc.timeout_s
    steps = start_of(request.directory).plan.steps
    rounds_s = ((step.deadline_s + request.grace_s) * (step.rounds + step.more_rounds) for step in steps)
    return programs_s + sum(rounds_s) + CHANGE_S


def _remove(remote: Remote, directory: str, say: Say, until_s: float | None = None) -> RestoredRecord | None:
    """Remove the run from the SUT, not after *until_s*, and return what was restored.

    ``None`` if that failed: the SUT does both itself.
    """
    try:
        limit_s = CHANGE_S if until_s is None else _left_s(until_s)
        changes, unrestored = remote.remove(directory, limit_s=limit_s)
    except CalibrationError as error:
        say(f"not removed from the SUT, which restores and removes it by itself: {error}", UNCLEAN)
        return None
    if unrestored:
        say(not_restored(unrestored), UNCLEAN)
    return RestoredRecord(session=directory.rsplit("/", 1)[-1], changes=changes, unrestored=unrestored)


def collect_found(request: Request, remote: Remote, say: Say, *, cancelled: bool = False) -> bool:
    """Collect what the SUT has of the run, after ending it if *cancelled*; return whether there was anything.

    Raises ``SutError`` if the SUT takes longer for all of it together than one run can take.
    """
    found = remote.find(request.run_id, request.sut)
    running_s = _longest_s(request) if has_begun(request.directory) and not cancelled else 0.0
    until_s = time.monotonic() + CHANGE_S + running_s
    for session in found:
        if cancelled or not session.planned:  # its controller was killed before it handed the plan over
            remote.cancel(session.directory, limit_s=_left_s(until_s))
        if not _continue(request, session):
            _remove(remote, session.directory, say, until_s)
            continue
        collect(request, remote, session.directory, session.boot_id, say, cancelled=cancelled, until_s=until_s)
        end(request, interrupted=cancelled)
    return bool(found)


def _left_s(until_s: float) -> float:
    """Return the time for a question until *until_s*. Raises ``SutError`` if there is none."""
    left_s = min(CHANGE_S, until_s - time.monotonic())
    if left_s <= 0:
        raise SutError("the SUT takes too long to end what it has of the run: log in and see what keeps it busy")
    return left_s


def _continue(request: Request, session: Found) -> bool:
    """Return whether answers of *session* belong to the run; begin an attempt for them if the last one has ended."""
    directory = request.directory
    if not has_begun(directory):
        return False
    if has_ended(directory):
        start = start_of(directory)
        attempt = ResumeRecord(
            started_at=datetime.now(UTC),
            boot_id=session.boot_id,
            session=session.session,
            capture=start.capture,
            capture_sha256=start.capture_sha256,
            checks=(),
            changes=(),
        )
        record_attempt(directory, attempt)
    return True


def end(request: Request, *, interrupted: bool = False) -> bool:
    """Record the end of the attempt, and return True; False if that is recorded."""
    if has_ended(request.directory):
        return False
    append_record(request.directory, EndRecord(finished_at=datetime.now(UTC), interrupted=interrupted))
    return True


# Runs without a controller


class _Job(BaseModel):
    """What is read of the description of a run without a controller."""

    run_id: str
    sut: str
    started_at: UtcTime
    boot_id: str


class _Build(BaseModel):
    """What is read of the build record of its sutprobe."""

    sha256: str
    target: str
    version: str
    compiler: str
    flags: list[str]
    source_sha256: str


Read = TypeVar("Read", bound=BaseModel)


def is_standalone_run(directory: Path) -> bool:
    """Return whether *directory* is what a run without a controller left."""
    return (directory / JOB).is_file()


def import_standalone_run(
    left: Path,
    results: Path,
    *,
    testbed: str | None = None,
    sut: str | None = None,
    checks: Iterable[Check] = (),
) -> Path:
    """Store the run in *left*, which ran without a controller, in the results; return its directory there.

    *checks* were made of its capture. Raises ``InputError`` if it is not such a run, or it is there already.
    """

    def content(name: str) -> bytes:
        try:
            return read_regular(left / name, 2 * MAX_RECORDS_BYTES)  # outputs are escaped there
        except FileNotFoundError as error:
            raise InputError(f"{left} is not a run without a controller: no {name}") from error

    def read(name: str, model: type[Read]) -> Read:
        try:
            return model.model_validate_json(content(name))
        except ValidationError as error:
            raise InputError(f"{left / name}: {fault_of(error)}") from error

    job, build, plan, capture = read(JOB, _Job), read(BUILD, _Build), read(PLAN, Plan), content(CAPTURE)
    names = {"testbed": testbed or sut or job.sut, "sut": sut or job.sut}
    directory = run_directory(results, run_id=job.run_id, **names)
    if directory.exists():
        raise InputError(f"{directory} exists already")
    start = StartRecord(
        testbed=names["testbed"],
        sut=names["sut"],
        id=job.run_id,
        profile=plan.profile,
        started_at=job.started_at,
        harness_version=__version__,
        boot_id=job.boot_id,
        capture=CAPTURE,
        capture_sha256=sha256(capture).hexdigest(),
        checks=tuple(checks),
        changes=(),
        plan=plan,
    )
    try:
        told = [read_record(line) for line in content(RECORDS).decode("utf-8", "replace").splitlines()]
    except SutError as error:
        raise InputError(f"{left / RECORDS}: {error}") from error
    if not told:
        raise InputError(f"{left / RECORDS} is empty")
    record_attempt(directory, start, capture)
    record_probe(directory, _probe(build))
    collector = RecordReader(directory, left.name, lambda *_: None)
    ended = job.started_at + timedelta(seconds=told[-1]["at_s"] - told[0]["at_s"])
    with collector.together():
        for record in told:
            collector.take(record, ended, told[-1]["at_s"])
    collector.end()
    append_record(directory, EndRecord(finished_at=ended, interrupted=not collector.finished))
    return directory
