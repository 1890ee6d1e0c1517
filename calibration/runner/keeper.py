# SPDX-License-Identifier: Apache-2.0
"""The process that keeps a SUT right: it holds the lock, waits for the worker, and restores whatever ended it.

After that it keeps the results until they are collected, or for the time that the run asked for, or took if that is
longer: who comes back to a run of a day does so hours after its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from calibration.runner import journal, lock, processes, settings
from calibration.runner.directory import ANSWER, MESSAGE_BYTES, PLAN, Directory, last_line
from calibration.runner.files import Refused
from calibration.runner.worker import Worker, keep_off_measured_cpus


def keep(path):
    """Run the job in the directory *path*; return when its results were collected or are no longer kept."""
    os.umask(0o077)
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # If not permitted: both processes are small, so the OOM killer picks others first.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("-1000")
    machine = settings.Machine()
    with Directory(path) as directory:
        try:
            held = lock.take(directory.job["lock"])
            if not directory.hold():
                raise Refused("another process has %s: start again" % path)
        except Refused as error:
            directory.write(ANSWER, json.dumps(error.answer()))
            return
        control = directory.listen()
        began = time.monotonic()
        work(directory, machine, held, control)
        directory.restore(machine, "run")
        directory.release()
        held.close()  # the SUT is free
        took_s = time.monotonic() - began if directory.has(PLAN) else 0.0
        if wait(control, max(directory.job["keep_s"], took_s)) and journal.is_empty(directory.descriptor):
            # NFS keeps what is open: the socket, and the log, which is standard error.
            control.close()
            os.dup2(0, 2)
            directory.remove()


def work(directory, machine, held, control):
    """Have a child do the work; return when it has ended."""
    keeper = os.getpid()
    # A signal before the fork is not lost: the child gets it as soon as it can act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            worker = Worker(directory, machine, held, control)
            processes.end_with_parent(processes.library(), keeper, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            worker.work()
            code = 0
        except BaseException:  # noqa: BLE001 - told by its traceback in the log
            import traceback  # noqa: PLC0415 - only in this case

            traceback.print_exc()
        finally:
            if os.getppid() != keeper:
                # The keeper was killed: nobody else restores.
                directory.restore(machine, "run")
            os._exit(code)
    signal.signal(signal.SIGTERM, lambda *_: end(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    keep_off_measured_cpus(machine)
    status = os.waitpid(child, 0)[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # restoring is not interrupted
    if status != 0:
        killed = os.WIFSIGNALED(status)
        how = "was killed by signal %d" % os.WTERMSIG(status) if killed else "failed: %s" % last_line(directory)
        with contextlib.suppress(OSError):
            directory.record(record="lost", reason="the runner on the SUT %s" % how)


def end(child):
    """Ask the worker to end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def wait(control, keep_s):
    """Wait until the results were collected, or for *keep_s*, and return True; False at a signal to end."""
    loop = processes.Loop()
    until = time.monotonic() + keep_s
    removed = []

    def accept():
        with contextlib.suppress(BlockingIOError):
            asking = control.accept()[0]
            asking.settimeout(1.0)
            with contextlib.suppress(OSError):
                if asking.recv(MESSAGE_BYTES) == b"remove\n":
                    removed.append(asking)  # closed with the process, when the directory is gone
                else:
                    asking.send(b"ended\n")

    loop.services = {control.fileno(): accept}
    while not removed and not loop.cancelled and time.monotonic() < until:
        loop.wait((), until)
    return not loop.cancelled
