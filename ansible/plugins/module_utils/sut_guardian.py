# SPDX-License-Identifier: Apache-2.0
"""The guardian of a SUT's reservation: restores the SUT if the run fails to.

A program that runs on a SUT's own Python (3.8 and later, standard library only), with the modules that it imports
beside it. It outlives the connection that started it, and sleeps until the run's lease expires or is renewed. When the
lease expires, it ends the run's processes, restores every setting, removes the run's directory and releases the SUT.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import sys

try:
    from ansible.module_utils import sut_files as files
    from ansible.module_utils import sut_reservations as reservations
    from ansible.module_utils import sut_settings as settings
except ImportError:  # started as a program
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import sut_files as files
    import sut_reservations as reservations
    import sut_settings as settings

SLEEP_S = 1 << 20
"""Longest sleep, 12 days: the system call's argument is limited."""


class LeaseOver(Exception):
    """The lease expired, or this process was told to end."""


def keep_off_measured_cpus(machine):
    """Move to CPUs that are not isolated, if there are any and the login may choose."""
    isolated = set()
    for name in ("isolated", "nohz_full"):
        with contextlib.suppress(OSError):
            text = machine.text(settings.CPU + "/" + name)
            if re.fullmatch("[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", text):
                isolated.update(settings.parse_ranges(text))
    allowed = os.sched_getaffinity(0)
    if allowed & isolated and allowed - isolated:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed - isolated)


def end_lease(*_):
    """Treat the first request to end, as at a shutdown, as the end of the lease."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise LeaseOver


def parse_message(text):
    """Parse the last complete line of *text*: ``release``, a lease, or None if unknown.

    A lease is (until when, the process of the step that renewed it, seconds that the run has after that process's end);
    the latter two are None if no step did.
    """
    for line in reversed([line for line in text.split(b"\n") if line]):
        if line == reservations.RELEASE_WORD.strip():
            return "release"
        if re.fullmatch(rb"[0-9]{1,12}( [0-9]{1,10} [0-9]{1,12})?", line):
            until, process, idle_s = ([int(word) for word in line.split()] + [None, None])[:3]
            return until, process, idle_s
    return None


def open_process(process):
    """Return a descriptor that becomes readable when *process* ends, None if the SUT does not support it.

    Raises ProcessLookupError if it has ended already.
    """
    try:
        return os.pidfd_open(process)
    except AttributeError:
        return None  # Python 3.8
    except ProcessLookupError:
        raise
    except OSError:
        return None  # an old kernel


def await_end(machine, fifo, until):
    """Sleep until the lease expires (False) or the run has released the SUT itself (True).

    A step's lease extends beyond its deadline, which may be hours away. If its process ends earlier, as the kernel
    reports without polling, the run must report sooner.
    """
    step, idle_s = None, None
    try:
        while True:
            left = until - machine.uptime_s()
            if left <= 0:
                return False
            poller = select.poll()
            for item in (fifo, step):
                if item is not None:
                    poller.register(item, select.POLLIN)
            ready = [item for item, _ in poller.poll(int(min(left, SLEEP_S) * 1000) + 1)]
            message = parse_message(os.read(fifo, 4096)) if fifo in ready else None
            if message == "release":
                return True
            ended = step in ready and message is None
            if step is not None and (ended or message is not None):
                os.close(step)
                step = None
            if message is not None:
                until, process, idle_s = message
                try:
                    step = None if process is None else open_process(process)
                except ProcessLookupError:
                    ended = True
            if ended:
                until = min(until, int(machine.uptime_s() + idle_s + 1))
    finally:
        if step is not None:
            os.close(step)


def guard(place, directory, *, lock, ready, until, root):
    """Guard the reservation at *place*, which another process will rename to its final path."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    machine = settings.Machine(root)
    # If not permitted: the guardian is small, so the OOM killer picks others first.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("-1000")
    keep_off_measured_cpus(machine)
    here = files.open_directory(place)
    # Open for writing too, so that a closing writer causes no end of file.
    fifo = files.open_file(reservations.LEASE, os.O_RDWR, here, stat.S_IFIFO)
    try:
        # Nothing to restore until here; from here on every request to end leads to restoring.
        signal.signal(signal.SIGTERM, end_lease)
        os.write(ready, b"r")
        os.close(ready)
        if await_end(machine, fifo, until):
            return 0
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except LeaseOver:
        pass
    # The current name: the process that made it renamed it, or was killed before.
    final = os.readlink("/proc/self/fd/%d" % here)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(reservations.RUN, dir_fd=here)  # no further step begins
    found = reservations.Reservation(final, machine, here)
    found.holder["directory"] = directory
    found.holder["boot_id"] = machine.boot_id()
    found.restore("guardian")
    found.remove()
    os.close(lock)
    return 0


def main():
    """Run as the guardian."""
    place, directory, lock, ready, until, root = sys.argv[1:7]
    return guard(place, directory, lock=int(lock), ready=int(ready), until=int(until), root=root)


if __name__ == "__main__":
    sys.exit(main())
