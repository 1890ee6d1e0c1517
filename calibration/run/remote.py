# SPDX-License-Identifier: Apache-2.0
"""Talks to the runner on a SUT: one command for each thing that is asked, over any connection.

Nothing of an answer is trusted: it is bounded, and only known fields of the expected form are read.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Protocol, TypeVar

from pydantic import StringConstraints, ValidationError

from calibration.base.bounds import bounded_parsing
from calibration.base.errors import RefusedError, SutError
from calibration.base.model import Model, fault_of
from calibration.base.parsers import parse_json_sparingly
from calibration.base.text import decode_base64, visible
from calibration.base.tuning import SettingChange, Unrestored, read_changes, read_unrestored
from calibration.runner.bundle import LOAD, packed, runner
from calibration.runner.directory import PLAN, RUNNER, STEP_BYTES
from calibration.runner.lock import RUN_ID

MAX_TEXT: Final = 4000
"""Characters kept of a message of the SUT."""

CAPTURE_BYTES: Final = 16 << 20
"""A capture of 1024 CPUs has about 3 MB in base64."""

RECORD_BYTES: Final = 2 * STEP_BYTES
"""Limit on records handed over at once: the runner stops at 8 MiB, and a step's output, escaped, is one record."""

MAX_RECORDS: Final = 100_000
"""Limit on their number; a plan has some hundred steps."""

CHANGE_S: Final = 600.0
"""Time for settings to be changed or restored: huge pages are freed slowly, and 8192 CPUs have as many registers."""

MAX_FOUND: Final = 8
"""Directories of one run that are collected, the newest: each start leaves at most one, and the next collects it."""

INTERPRETERS: Final = ("python3", "/usr/bin/python3", "/usr/libexec/platform-python", "/usr/local/bin/python3")
"""Where a SUT's Python is looked for if the inventory does not say."""

PATH: Final = r"/[^\x00-\x1f\x7f]{1,4000}"
"""Form of a path from a SUT."""

M = TypeVar("M", bound=Model)

_Path = Annotated[str, StringConstraints(pattern=f"^{PATH}$")]
_BootId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{36}$")]


class Call(Protocol):
    """Runs a shell command on the SUT: *script*, with *content* on its standard input; returns its output."""

    def __call__(self, what: str, script: str, content: bytes, *, limit_s: float, max_bytes: int) -> str:
        """Raise ``SutError`` if the SUT does not answer, or its answer is too long."""


class Prepared(Model):
    """A SUT that is reserved and set up, and the runner's directory on it."""

    directory: _Path
    boot_id: _BootId
    changes: tuple[SettingChange, ...]
    taken_over: dict[str, Any] | None
    capture: bytes

    @property
    def session(self) -> str:
        """The name of the runner's directory."""
        return PurePosixPath(self.directory).name


class Rehearsed(Model):
    """A SUT on which a run would begin: its capture, and which settings the run would restore first, if any."""

    capture: bytes
    left: str | None


class Found(Model):
    """A run on a SUT: its directory, the boot in which it began, and whether it was handed its plan."""

    directory: _Path
    boot_id: _BootId | None
    planned: bool

    @property
    def session(self) -> str:
        """The name of the runner's directory."""
        return PurePosixPath(self.directory).name


class Batch(Model):
    """Records of a run in JSON, one per line, and its state: ``running``, ``ended`` or ``dead``."""

    state: str
    now_s: float
    boot_id: str | None
    lines: tuple[str, ...]
    size: int


def interpreter_script(interpreter: str | None) -> str:
    """Return a shell command that sets ``p`` to the SUT's Python."""
    if interpreter and not interpreter.startswith("auto"):
        return f"p={shlex.quote(interpreter)}"
    return f'for p in {" ".join(INTERPRETERS)}; do command -v "$p" >/dev/null 2>&1 && break; done'


class Remote:
    """The runner on one SUT, by *call*; *base* is the parent of its directory, *lock* the name of the SUT's lock."""

    def __init__(
        self,
        call: Call,
        *,
        base: str,
        lock: str,
        interpreter: str | None = None,
        reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self.base = base
        self.reconnect = reconnect
        self.lock = lock
        self._call = call
        self._python = interpreter_script(interpreter)

    def _run(
        self,
        what: str,
        arguments: Sequence[str],
        *,
        content: bytes | None = None,
        installed: str | None = None,
        limit_s: float = 120.0,
        max_bytes: int = 1 << 20,
    ) -> tuple[Mapping[str, Any], str]:
        """Run the runner, and return its first line and the rest.

        It is loaded from *content*, by default itself alone, or runs from the directory on the SUT that has it
        *installed*.
        """
        program = f"-c {shlex.quote(LOAD)}" if installed is None else f"{shlex.quote(installed)}/{RUNNER}"
        script = f'{self._python}; exec "$p" -I -S -B {program} {shlex.join(arguments)}'
        if content is None:
            content = runner() if installed is None else b""
        output = self._call(what, script, content, limit_s=limit_s, max_bytes=max_bytes)
        first, _, rest = output.partition("\n")
        try:
            with bounded_parsing(first):
                answer = parse_json_sparingly(first)
        except (ValueError, MemoryError):
            answer = None
        if not isinstance(answer, dict):
            raise SutError(f"{what}: no answer of the runner: {visible(output[:MAX_TEXT]) or 'nothing'}")
        if "refused" in answer:
            faults = read_unrestored(answer.get("faults") or [])
            run_id = str(answer.get("run_id"))
            named = run_id if RUN_ID.fullmatch(run_id) else None
            raise RefusedError(visible(str(answer["refused"]))[:MAX_TEXT], faults, named)
        return answer, rest

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that decide whether the SUT can be measured (``calibration.preflight.facts``)."""
        return self._run("the check of the SUT", ("facts", self.base, self.lock))[0]

    def rehearse(self, job: Mapping[str, Any]) -> Rehearsed:
        """Return what *job* would begin with, without changing the SUT. Raises ``RefusedError`` if it would refuse."""
        text = json.dumps({**job, "lock": self.lock})
        answer = self._run("the check of the SUT", ("rehearse", self.base, text), max_bytes=CAPTURE_BYTES)[0]
        left = answer.get("left")
        return Rehearsed(
            capture=decode_base64(str(answer.get("capture"))),
            left=None if left is None else visible(str(left))[:MAX_TEXT],
        )

    def find(self, run_id: str, sut: str) -> list[Found]:
        """Return what is on the SUT of a run, the oldest first."""
        answer = self._run("the search for the run", ("find", self.base, run_id, sut))[0]
        return [_valid(Found, item) for item in (answer.get("found") or [])[-MAX_FOUND:]]

    def start(self, job: Mapping[str, Any]) -> Prepared:
        """Reserve the SUT for *job*, change its settings and capture it. Raises ``RefusedError`` if it refuses."""
        text = json.dumps({**job, "lock": self.lock})
        answer, _ = self._run(
            "the start of the runner", ("start", self.base, text), limit_s=CHANGE_S, max_bytes=CAPTURE_BYTES
        )
        taken_over = answer.get("taken_over")
        return _valid(
            Prepared,
            {
                "directory": answer.get("directory"),
                "boot_id": answer.get("boot_id"),
                "changes": read_changes(answer.get("changes") or []),
                "taken_over": taken_over if isinstance(taken_over, dict) else None,
                "capture": decode_base64(str(answer.get("capture"))),
            },
        )

    def begin(self, directory: str, plan: Mapping[str, Any], programs: Mapping[str, bytes]) -> None:
        """Hand over the plan with its programs. Raises ``RefusedError`` if a program does not arrive as it was sent."""
        files = {PLAN: json.dumps(plan).encode(), **programs}
        content = packed(
            files, stored=frozenset(programs)
        )  # compressing them again for each SUT costs more than it saves
        # The SUT's copy of the runner tells the run of every part that arrives.
        self._run("the transfer of the plan", ("begin", directory), content=content, installed=directory, limit_s=300.0)

    def watch(self, directory: str, offset: int, *, at_least_s: float, at_most_s: float) -> Batch:
        """Wait for records behind *offset*, for a time between the two, and return them."""
        arguments = ("watch", directory, str(offset), f"{at_least_s:g}", f"{at_most_s:g}")
        limits: dict[str, Any] = {"limit_s": at_most_s + 120.0, "max_bytes": RECORD_BYTES}
        try:
            answer, rest = self._run("the run", arguments, installed=directory, **limits)
        except SutError as error:
            if type(error) is not SutError:
                raise
            # What was installed is lost, as after a restart.
            answer, rest = self._run("the run", arguments, **limits)
        whole = rest[: rest.rfind("\n") + 1]
        if whole.count("\n") > MAX_RECORDS:
            raise SutError(f"the SUT has more than {MAX_RECORDS} records")
        return _valid(
            Batch,
            {
                "state": answer.get("state"),
                "now_s": answer.get("now_s"),
                "boot_id": answer.get("boot_id"),
                "lines": tuple(whole.split("\n")[:-1]),
                "size": len(whole.encode()),
            },
        )

    def cancel(self, directory: str, *, limit_s: float = CHANGE_S) -> None:
        """End a run; its settings are restored when this returns."""
        self._run("the end of the run", ("cancel", directory), limit_s=limit_s)

    def remove(
        self, directory: str, *, limit_s: float = CHANGE_S
    ) -> tuple[tuple[SettingChange, ...], tuple[Unrestored, ...]]:
        """Restore and remove a run on the SUT; return what it had changed, and what is not restored."""
        answer, _ = self._run("the removal of the run", ("remove", directory), limit_s=limit_s, max_bytes=CAPTURE_BYTES)
        return read_changes(answer.get("changes") or []), read_unrestored(answer.get("faults") or [])

    def hold_generator(self, path: str, run_id: str, sut: str, text: str, *, only_check: bool = False) -> bool:
        """Reserve the traffic generator, which this is, or *only_check*; return whether it was free.

        Raises ``RefusedError`` if others have it.
        """
        words = ("hold-generator", path, run_id, sut, text, str(int(only_check)))
        return bool(self._run("the reservation", words)[0].get("changed"))

    def release_generator(self, path: str, run_id: str, sut: str) -> bool:
        """Release the traffic generator, which this is; return whether it was reserved."""
        return bool(self._run("the release", ("release-generator", path, run_id, sut))[0].get("changed"))


def _valid(model: type[M], values: Any) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SutError(f"invalid answer of the runner: {fault_of(error)}") from error
