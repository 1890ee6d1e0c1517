# SPDX-License-Identifier: Apache-2.0
"""The lock of a SUT: one holder, visible to everybody, and what another user may do with its name."""

import contextlib
import json
import multiprocessing
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from calibration.runner import lock
from calibration.runner.files import Refused
from tests.suts import wait_until

pytestmark = pytest.mark.timeout(120)

ROUNDS, RUNS = 25, 3

HOLDER = dict.fromkeys(lock.TEXTS, "x") | {"run_id": "run1", "controller": "somebody@there"}

fork = multiprocessing.get_context("fork")


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4()}"


def take_in_turn(number: int, name: str, start: Barrier, answers: "Queue[tuple[int, int, str | None]]") -> None:
    """Take the lock in every round together with the others; the one that got it gives it back."""
    for turn in range(ROUNDS):
        start.wait()
        try:
            held = lock.take(name)
        except lock.Held as refused:
            answers.put((turn, number, str(refused)))
            start.wait()
        else:
            answers.put((turn, number, None))
            start.wait()
            held.close()
        start.wait()


def test_one_of_simultaneous_runs_gets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "ANSWER_S", 0.2)  # the holder does not answer here
    start, answers = fork.Barrier(RUNS), fork.Queue()
    runs = [fork.Process(target=take_in_turn, args=(number, name, start, answers)) for number in range(RUNS)]
    for run in runs:
        run.start()
    found = [answers.get() for _ in range(ROUNDS * RUNS)]
    for run in runs:
        run.join()
    for turn in range(ROUNDS):
        (holder,) = [number for item, number, refusal in found if item == turn and refusal is None]
        refusals = [refusal for item, _, refusal in found if item == turn and refusal is not None]
        assert len(refusals) == RUNS - 1
        assert all(refusal.endswith(f"process {runs[holder].pid}") for refusal in refusals)
    assert lock.holder(name) is None


def test_the_kernel_releases_it_with_the_last_process(name: str) -> None:
    held = lock.take(name)
    child = os.fork()
    if child == 0:
        threading.Event().wait()
    held.close()
    with pytest.raises(lock.Held):
        lock.take(name)
    os.kill(child, 9)
    os.waitpid(child, 0)
    lock.take(name).close()


@pytest.mark.parametrize("invalid", ["", "a/b", "x" * 65, "a\0b", "\n"])
def test_an_invalid_name_is_refused(invalid: str) -> None:
    with pytest.raises(Refused, match="calibration_lock: expected 1 to 64 letters"):
        lock.take(invalid)


# What another user may do


@contextlib.contextmanager
def squatting(name: str, serve: Callable[[socket.socket], object] | None, backlog: int | None = 16) -> Iterator[None]:
    """Have the name taken by somebody who does *serve* with each connection, or accepts none."""
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind("\0" + name)
        if backlog is not None:
            taken.listen(backlog)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    connection = taken.accept()[0]
                    with contextlib.suppress(OSError), connection:
                        assert serve is not None
                        serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        if serve is not None:
            thread.start()
        yield
        ended.set()
        with socket.socket(socket.AF_UNIX) as last, contextlib.suppress(OSError):
            last.setblocking(False)
            last.connect("\0" + name)
        if serve is not None:
            thread.join()


def drip(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.send(b"[")
            threading.Event().wait(0.05)


def sends(content: bytes) -> Callable[[socket.socket], object]:
    return lambda connection: connection.sendall(content)


SQUATTERS: dict[str, tuple[Callable[[socket.socket], object] | None, int | None]] = {
    "escape": (sends(json.dumps({"run_id": "\033[2J\nrm -rf /", "sut": "a;b", "controller": "x" * 4000}).encode()), 16),
    "not-json": (sends(b"{" * 4096), 16),
    "list": (sends(b"[1, 2]"), 16),
    "numbers": (sends(json.dumps({"run_id": 7, "state": None, "sut": ["x"]}).encode()), 16),
    "deep": (sends(b"[" * 100_000), 16),
    "bytes": (sends(bytes(range(256)) * 100), 16),
    "nothing": (lambda _: None, 16),
    "drip": (drip, 16),
    "silent": (lambda connection: connection.recv(1), 16),
    "accepts none": (None, 16),
    "full": (None, 0),
    "does not listen": (None, None),
}


@pytest.mark.parametrize(("serve", "backlog"), SQUATTERS.values(), ids=SQUATTERS)
def test_a_squatted_name_is_refused_in_printable_and_bounded_text(
    name: str, serve: Callable[[socket.socket], object] | None, backlog: int | None
) -> None:
    with squatting(name, serve, backlog), contextlib.ExitStack() as stack:
        if backlog == 0:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.connect("\0" + name)
        with pytest.raises(lock.Held) as refused:
            lock.take(name)
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) < 1500
    assert text.endswith(f", process {os.getpid()}") or backlog != 16
    lock.take(name).close()


def test_those_who_ask_and_leave_do_not_keep_a_run_from_its_work(name: str) -> None:
    with lock.take(name) as held:

        class Endless:
            """A lock with somebody new at every accept."""

            @staticmethod
            def accept() -> Any:
                first, second = socket.socketpair()
                second.close()
                return first, None

        lock.tell(Endless(), HOLDER)
        asked = [socket.socket(socket.AF_UNIX) for _ in range(5)]
        for connection in asked:
            connection.connect("\0" + name)
        asked.pop().close()
        lock.tell(held, HOLDER)
        assert all(json.loads(connection.recv(4096)) == HOLDER for connection in asked)
        for connection in asked:
            connection.close()
    wait_until(lambda: lock.holder(name) is None)
