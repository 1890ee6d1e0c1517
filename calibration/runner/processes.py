# SPDX-License-Identifier: Apache-2.0
"""Starts programs on a SUT, limited in time, output and, for an operator's program, privileges."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time

from calibration.runner.directory import END_S

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path of an operator's program: the same on every SUT, whatever the login's is."""

STDERR_BYTES = 20000
"""Bytes kept of standard error, from the end, where the reason is."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION = 0x20080522
CAPABILITIES = {"dac_read_search": 2, "ipc_lock": 14, "sys_rawio": 17, "sys_nice": 23, "syslog": 34}
"""Those that an operator's program may keep; from linux/prctl.h and linux/capability.h.

Loading modules takes CAP_SYS_MODULE, mounting CAP_SYS_ADMIN, and the processor's registers CAP_SYS_RAWIO.
"""


class Loop:
    """Waits for descriptors and signals in the only thread, and lets services answer meanwhile.

    ``cancelled`` becomes true with SIGTERM.
    """

    def __init__(self):
        self.cancelled = False
        self.services = {}
        self.woken, writer = os.pipe()
        for end in (self.woken, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.cancel)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes

    def cancel(self, *_):
        """Note the request to end."""
        self.cancelled = True

    def wait(self, descriptors, until):
        """Return those of *descriptors* that are ready for reading; none at a signal or at the time *until*."""
        poller = select.poll()
        for item in (self.woken, *self.services, *descriptors):
            poller.register(item, select.POLLIN)
        left_ms = max(0, int((until - time.monotonic()) * 1000) + 1)
        ready = [item for item, _ in poller.poll(min(left_ms, 1 << 30))]
        if self.woken in ready:
            os.read(self.woken, 4096)
        for item in ready:
            if item in self.services:
                self.services[item]()
        return [item for item in ready if item in descriptors]


def library():
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


def check(result, what):
    """Raise OSError if a call of the C library returned an error."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def end_with_parent(libc, parent, number=signal.SIGKILL):
    """Have the kernel send signal *number* to this process when its *parent* ends."""
    check(libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities(libc, kept):
    """Drop all capabilities except the numbers *kept* from this process and its children, for good."""
    # A started program gains no privileges, neither by set-user-ID nor by being run as root.
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; of the lower 32 capabilities, then the upper
    check(libc.capget(header, sets), "capget")
    mask = sum(1 << item for item in kept)
    for word in (0, 1):
        permitted = sets[3 * word + 1] & (mask >> 32 * word) & 0xFFFFFFFF
        sets[3 * word], sets[3 * word + 1], sets[3 * word + 2] = permitted, permitted, 0
    check(libc.capset(header, sets), "capset")


def preparation(affinity, kept=None):
    """Return what a started process does before its program: its CPUs, its end, and, with *kept*, fewer privileges."""
    libc, parent = library(), os.getpid()

    def prepare():
        with contextlib.suppress(OSError):  # if it is not permitted, the runner did not change it either
            os.sched_setaffinity(0, affinity)
        end_with_parent(libc, parent)
        # If memory runs out, the kernel ends the program rather than the runner or a login.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("1000")
        if kept is not None:
            drop_capabilities(libc, [CAPABILITIES[name] for name in kept])

    return prepare


def oom_kills():
    """Return how many processes the kernel ended for lack of memory since boot; None if it does not count them."""
    try:
        with open("/proc/vmstat") as stream:
            return dict(line.split() for line in stream).get("oom_kill")
    except (OSError, ValueError):
        return None


def has_ended(process):
    """Return whether the program has ended, without reaping it: until then its pid is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process):
    """End the program, if still running, and its process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_more(stream, taken):
    """Add available data of *stream* to *taken*; return whether there may be more."""
    try:
        data = os.read(stream.fileno(), 1 << 20)
    except BlockingIOError:
        return False
    taken[stream] += data
    return bool(data)


def run(loop, argv, *, limit_s, max_bytes, prepare, merged=False, **options):
    """Run *argv* to its end; return rc, stdout and stderr as bytes, fault, and whether memory ran out.

    ``fault`` says why it was ended: ``late`` after *limit_s*, ``long`` for more than *max_bytes* of output, or
    ``cancelled``. Raises OSError if it cannot be started.
    """
    kills = oom_kills()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - there is one thread
        **options,
    )
    try:
        taken, fault = _collect(loop, process, limit_s, max_bytes)
    finally:
        end_group(process)
    for stream in taken:
        while len(taken[stream]) <= max_bytes and read_more(stream, taken):
            pass
        stream.close()
    return {
        "rc": process.returncode,
        "stdout": bytes(taken[process.stdout][:max_bytes]),
        "stderr": bytes(taken.get(process.stderr, b"")[-STDERR_BYTES:]),
        "fault": fault,
        "out_of_memory": process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL) and kills != oom_kills(),
    }


def _collect(loop, process, limit_s, max_bytes):
    """Return the output of *process* when it has ended or must be ended, and why it must."""
    taken = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
    reading = {stream.fileno(): stream for stream in taken}
    for descriptor in reading:
        os.set_blocking(descriptor, False)
    until, fault = time.monotonic() + limit_s, None
    while not has_ended(process):  # wait for the program itself: children may keep a stream open
        for descriptor in loop.wait(reading, until):
            if not read_more(reading[descriptor], taken):
                del reading[descriptor]
        if process.stderr is not None:
            del taken[process.stderr][: -2 * STDERR_BYTES]
        ending = fault is not None
        if len(taken[process.stdout]) > max_bytes:
            fault = "long"
        elif fault is None and loop.cancelled:
            fault = "cancelled"
        elif time.monotonic() >= until:
            if ending:
                break
            fault = "late"
        if fault is not None and not ending:
            if fault == "long":
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + END_S
    return taken, fault
