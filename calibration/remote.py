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

from calibration.bounds import PARSE_FACTOR, bounded_memory
from calibration.errors import RefusedError, SutError
from calibration.model import Model, fault_of
from calibration.runner.bundle import LOAD, packed, runner, sources
from calibration.runner.directory import PLAN, RUNNER
from calibration.text import decode_base64, visible
from calibration.tuning import Change, read_changes

MAX_TEXT: Final = 4000
"""Characters kept of a message of the SUT."""

CAPTURE_BYTES: Final = 16 << 20
"""A capture of 1024 CPUs has about 3 MB in base64."""

RECORD_BYTES: Final = 48 << 20
"""Limit on records handed over at once: the runner stops at 8 MiB, and a step's output, escaped, is one record."""

MAX_RECORDS: Final = 100_000
"""Limit on their number; a plan has some hundred steps."""

CHANGE_S: Final = 600.0
"""Time for settings to be changed or restored: huge pages are freed slowly, and 8192 CPUs have as many registers."""

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
    machine: str
    changes: tuple[Change, ...]
    taken_over: dict[str, Any] | None
    capture: bytes

    @property
    def session(self) -> str:
        """The name of the runner's directory."""
        return PurePosixPath(self.directory).name


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
            with bounded_memory(PARSE_FACTOR * max_bytes):
                answer = json.loads(first)
        except (ValueError, RecursionError, MemoryError):
            answer = None
        if not isinstance(answer, dict):
            raise SutError(f"{what}: no answer of the runner: {visible(output[:MAX_TEXT]) or 'nothing'}")
        if "refused" in answer:
            raise RefusedError(visible(str(answer["refused"]))[:MAX_TEXT])
        return answer, rest

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that decide whether the SUT can be measured (``calibration.preflight.facts``)."""
        return self._run("the check of the SUT", ("facts", self.base, self.lock))[0]

    def capture(self, asked: Sequence[str] = ()) -> bytes:
        """Return what describes the SUT, a ``.tar.gz``, with the files that match a pattern of *asked*."""
        answer = self._run("the capture", ("capture", "-", *asked), max_bytes=CAPTURE_BYTES)[0]
        return decode_base64(str(answer.get("capture")))

    def find(self, run_id: str, sut: str) -> list[Found]:
        """Return what is on the SUT of a run."""
        answer = self._run("the search for the run", ("find", self.base, run_id, sut))[0]
        return [_valid(Found, item) for item in answer.get("found") or []][:100]

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
                "machine": answer.get("machine"),
                "changes": read_changes(answer.get("changes") or []),
                "taken_over": taken_over if isinstance(taken_over, dict) else None,
                "capture": decode_base64(str(answer.get("capture"))),
            },
        )

    def begin(self, directory: str, plan: Mapping[str, Any], programs: Mapping[str, bytes]) -> None:
        """Hand over the plan with its programs. Raises ``RefusedError`` if a program does not arrive as it was sent."""
        files = {**sources(), PLAN: json.dumps(plan).encode(), **programs}
        content = packed(
            files, stored=frozenset(programs)
        )  # compressing them again for each SUT costs more than it saves
        self._run("the transfer of the plan", ("begin", directory), content=content, limit_s=300.0)

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

    def cancel(self, directory: str) -> None:
        """End a run; its settings are restored when this returns."""
        self._run("the end of the run", ("cancel", directory), limit_s=CHANGE_S)

    def remove(self, directory: str) -> tuple[tuple[Change, ...], list[str]]:
        """Remove a run from the SUT; return what was restored only now, and what could not be."""
        answer, _ = self._run("the removal of the run", ("remove", directory), limit_s=CHANGE_S)
        faults = [visible(str(fault))[:MAX_TEXT] for fault in answer.get("faults") or []][:10]
        return read_changes(answer.get("changes") or []), faults

    def hold_generator(self, path: str, run_id: str, sut: str, text: str) -> bool:
        """Reserve the traffic generator, which this is; return whether it was free."""
        return bool(self._run("the reservation", ("hold-generator", path, run_id, sut, text))[0].get("changed"))

    def release_generator(self, path: str, run_id: str, sut: str) -> bool:
        """Release the traffic generator, which this is; return whether it was reserved."""
        return bool(self._run("the release", ("release-generator", path, run_id, sut))[0].get("changed"))


def _valid(model: type[M], values: Any) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SutError(f"invalid answer of the runner: {fault_of(error)}") from error
