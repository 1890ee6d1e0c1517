# SPDX-License-Identifier: Apache-2.0
"""Tell a command and a URL about the SUTs whose state changed.

The states last told are in the file :data:`TOLD` of the results, so that a night that is judged again repeats nothing,
and what could not be delivered is sent with the next judgement.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Final, Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.files import able_to, read_given, read_regular, write_whole
from calibration.base.gc_pause import paused_collector
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.parsers import parse_json
from calibration.base.text import cut
from calibration.base.units import plural
from calibration.gates.run import GateOutcome
from calibration.judge.answer import WORDS, Answer, State, headline
from calibration.judge.night import Judgement
from calibration.nightly.judgement import GATES, JUDGEMENT
from calibration.results.history import Sut

NOTIFIED: Final = ".notified.json"

MAX_NOTIFIED_BYTES: Final = 1 << 20
"""Limit for reading the states; those of 1000 SUTs take a tenth."""

TIMEOUT_S: Final = 30.0
"""Longest wait for the command, and for the URL's server: the site is not built before."""

MAX_FAILURES: Final = 10
"""Gates named for one SUT."""

MAX_LINES: Final = 20
"""SUTs named in the text; the others are counted."""

MAX_LINE: Final = 200
"""Characters about one SUT in the text."""

ADDRESSING: Final = re.compile(r"[^\w .,;:%+()/=-]|(?<=/)/")
"""What a chat may interpret in a text, such as ``@all``, ``<!channel>`` or a link: a SUT's own words may be in it."""

QUIET: Final[Collection[State]] = ("changed", "as_accepted", "no_baseline")
"""States in which a SUT that was never mentioned needs no mention."""


class StatusChange(Model):
    """A SUT whose state changed; ``before`` is ``None`` if it was never told.

    ``answer`` is the answer on it in lines, ``gates`` are the lab's own gates that fail, at most ten. They may quote
    what the SUT reports.
    """

    testbed: str
    sut: str
    before: State | None
    after: State
    answer: tuple[str, ...]
    gates: tuple[str, ...]


class Notification(Model):
    """What the hook is told: the SUTs whose state changed on ``night``; ``text`` names them with their states."""

    schema_version: Literal["notification/2"] = "notification/2"
    night: date
    text: str
    changes: tuple[StatusChange, ...]


class _Notified(Model):
    states: dict[str, State]


class Hook(NamedTuple):
    """The command as a list of arguments and the URL; either may be empty."""

    command: Sequence[str]
    url: str


class Outcome(NamedTuple):
    """The SUTs whose state changed, and why they could not be told; empty on success."""

    changed: tuple[str, ...]
    undelivered: tuple[str, ...]


@paused_collector()
def notify(results: Path, folder: Path, hook: Hook, only: Collection[Sut] | None = None) -> Outcome:
    """Tell *hook* which SUTs have another state by the judgement in *folder* than when it was last told.

    With *only*, other SUTs are ignored: they were left out on purpose. Raises ``InputError`` if the judgement cannot be
    read, ``EnvironmentLacksError`` if the states cannot be written.
    """
    try:
        judgement = Judgement.model_validate_json(read_given(folder / JUDGEMENT))
        tested = [GateOutcome(**gate) for gate in parse_json(read_given(folder / GATES))]
    except (InputError, ValueError, TypeError) as error:
        raise InputError(f"cannot read the judgement in {folder}: {error}") from error
    answers = {(answer.testbed, answer.sut): answer for answer in judgement.answers}
    own = grouped((test.names, test) for test in tested if test.status == "FAIL" and not test.verdicts)
    states = {sut: _state(answer, own.get(sut, ())) for sut, answer in answers.items() if answer.state != "gone"}
    if only is not None:
        states = {sut: state for sut, state in states.items() if sut in only}
    told = _read(results / NOTIFIED)
    changed = {
        sut: state
        for sut, state in states.items()
        if state != (before := told.get("/".join(sut))) and (before is not None or state not in QUIET)
    }
    undelivered: tuple[str, ...] = ()
    if changed:
        notification = _notification(judgement, changed, told, answers, own)
        undelivered = _deliver(hook, json.dumps(notification.model_dump(mode="json")).encode())
    known = {"/".join(sut): state for sut, state in states.items() if not (undelivered and sut in changed)}
    kept = told if only is not None or undelivered else {}
    _write(results / NOTIFIED, {**kept, **known})
    return Outcome(tuple("/".join(sut) for sut in changed), undelivered)


def _state(answer: Answer, gates: Sequence[GateOutcome]) -> State:
    """Return the state of a SUT; one of the lab's own *gates* that failed fails it too."""
    return "fails" if gates and answer.state in QUIET else answer.state


def _notification(
    judgement: Judgement,
    changed: Mapping[Sut, State],
    told: Mapping[str, State],
    answers: Mapping[Sut, Answer],
    gates: Mapping[Sut, Sequence[GateOutcome]],
) -> Notification:
    changes = tuple(
        StatusChange(
            testbed=sut[0],
            sut=sut[1],
            before=told.get("/".join(sut)),
            after=state,
            answer=tuple(answers[sut].text.split("\n")),
            gates=tuple(f"{test.gate}: {test.message}" for test in gates.get(sut, ())[:MAX_FAILURES]),
        )
        for sut, state in changed.items()
    )
    lines = [_line(item, answers[item.testbed, item.sut]) for item in changes]
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    every = [answer.model_copy(update={"state": _state(answer, gates.get(sut, ()))}) for sut, answer in answers.items()]
    first = f"{headline(every, judgement.night)}; {plural(len(lines), 'SUT')} changed state"
    return Notification(night=judgement.night, text="\n".join((first, *lines[:MAX_LINES], *more)), changes=changes)


def _line(item: StatusChange, answer: Answer) -> str:
    """Return a SUT's answer in a line, and the state that was told before."""
    before = "" if item.before is None else f" (was: {WORDS[item.before]})"
    own = f"gate failed: {item.gates[0]}" if item.gates and answer.state in QUIET else answer.machine
    return f"{item.testbed}/{item.sut} {cut(ADDRESSING.sub('?', own), MAX_LINE)}{before}"


def _read(path: Path) -> dict[str, State]:
    """Return the states last told. A file that nobody can read is replaced: failures are then told again."""
    try:
        return _Notified.model_validate_json(read_regular(path, MAX_NOTIFIED_BYTES)).states
    except (FileNotFoundError, ValidationError):
        return {}


def _write(path: Path, states: dict[str, State]) -> None:
    content = f"{_Notified(states=dict(sorted(states.items()))).to_json()}\n".encode()
    with able_to(f"write {path}"):
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content)


# Delivery: neither a URL nor what a program printed is quoted, as they may contain secrets.


def _deliver(hook: Hook, body: bytes) -> tuple[str, ...]:
    """Return why *body* could not be delivered to the command or the URL."""
    faults = (
        _run(hook.command, body) if hook.command else None,
        _post_in_time(hook.url, body) if hook.url else None,
    )
    return tuple(fault for fault in faults if fault is not None)


def _run(command: Sequence[str], body: bytes) -> str | None:
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"notify_command cannot be run: {getattr(error, 'strerror', None) or type(error).__name__}"
    with process:
        try:
            process.communicate(body, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"notify_command has not ended within {TIMEOUT_S:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return None if process.returncode == 0 else f"notify_command ended with exit code {process.returncode}"


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: a POST would arrive elsewhere as a GET without a body."""

    def redirect_request(self, _request: Request, _stream: IO[bytes], *_: Any) -> None:
        return None


def _post_in_time(url: str, body: bytes) -> str | None:
    """Post within :data:`TIMEOUT_S` in all: a socket's own limit begins again with every byte that arrives."""
    answers: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(_post(url, body)), daemon=True).start()
    try:
        return answers.get(timeout=TIMEOUT_S)
    except Empty:
        return f"the server of notify_url has not answered within {TIMEOUT_S:g} s"


def _post(url: str, body: bytes) -> str | None:
    try:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return "notify_url is not a URL that begins with http:// or https://"
        request = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        with build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
            return None
    except HTTPError as error:
        with error:
            return f"the server of notify_url answered {error.code}"
    except URLError as error:
        reason = error.reason
        return (
            f"the server of notify_url cannot be reached: {getattr(reason, 'strerror', None) or type(reason).__name__}"
        )
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"the server of notify_url gave no answer: {type(error).__name__}"
