# SPDX-License-Identifier: Apache-2.0
"""Limits of time, and the orderly end, of a worker on the controller."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import signal
import time


@contextlib.contextmanager
def orderly_end():
    """Turn signals that end a worker into an exception in the block, so that nothing is left half-written.

    Ansible's own handler kills a worker and its children at once. It gets the signal after the block has cleaned up; a
    second signal is ignored until then.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    received = []

    def interrupt(number, _frame):
        for item in numbers:
            signal.signal(item, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in received:
            os.kill(os.getpid(), number)


FORK = multiprocessing.get_context("fork")

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def end_with_controller():
    """Have the kernel end this worker and its children when the controller's process is killed.

    Otherwise a worker whose controller was killed would continue to measure.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def apart(work):
    """Return what *work* returns, or raise what it raises, in a process of its own, whose memory ends with it.

    If that dies without an answer, so does this one.
    """

    def report():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # Ansible's handler is the worker's
        end_with_controller()  # this one, here
        try:
            answer = work(), None
        except Exception as error:  # noqa: BLE001 - raised again below
            answer = None, error
        writer.send(answer)

    reader, writer = FORK.Pipe(duplex=False)
    process = FORK.Process(target=report)
    process.start()
    writer.close()
    try:
        value, error = reader.recv()
    except EOFError:
        process.join()
        if process.exitcode < 0:
            os.kill(os.getpid(), -process.exitcode)
        os._exit(process.exitcode)
    finally:
        process.kill()
        process.join()
        reader.close()
    if error is not None:
        raise error
    return value


@contextlib.contextmanager
def one_per_cpu(directory):
    """Wait, before the block, until fewer workers than CPUs are in theirs; they share *directory*."""
    place = os.getpid() % len(os.sched_getaffinity(0))
    with open(os.path.join(directory, f"cpu-{place}"), "ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def children():
    """Return the process ids of this process's children; empty if the controller does not provide them."""
    try:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as stream:
            return {int(child) for child in stream.read().split()}
    except OSError:
        return set()  # an abandoned client ends when its pipes are closed


class GiveUp(BaseException):
    """A question to a SUT timed out; a BaseException, so that no ``except Exception`` swallows it."""


REPEAT_S = 5.0
"""Python drops an exception raised by a signal in a destructor, so the signal is repeated."""


@contextlib.contextmanager
def backstop(seconds):
    """Raise ``GiveUp`` in the block after *seconds*. A task's own timeout is suspended meanwhile."""
    began, late = time.monotonic(), []

    def give_up(*_):
        late.append(True)
        raise GiveUp

    previous = signal.signal(signal.SIGALRM, give_up)
    other_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_S)
    try:
        yield
    except Exception as error:
        if late:  # the interrupted code converted it to another error
            raise GiveUp from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if other_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other_s - (time.monotonic() - began)), interval_s)
