# SPDX-License-Identifier: Apache-2.0
"""Runs an operator's program on a SUT, limited in time, output and privileges.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from ansible.module_utils import sut_files as files

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path of the program: the same on every SUT, whatever the login's is."""

POLL_S = 0.5
"""Interval of checks whether the program has ended; usually its streams show it at once."""

STDERR_BYTES = 8 * 1024
"""Bytes kept of its standard error, from the end."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION = 0x20080522
CAP_DAC_READ_SEARCH, CAP_IPC_LOCK, CAP_SYS_RAWIO, CAP_SYS_NICE, CAP_SYSLOG = 2, 14, 17, 23, 34
"""From linux/prctl.h and linux/capability.h.

Loading modules takes CAP_SYS_MODULE, mounting CAP_SYS_ADMIN, and the processor's registers CAP_SYS_RAWIO.
"""


def check(result, what):
    """Raise OSError if a call of the C library returned an error."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def drop_privileges(library, parent, kept):
    """Drop all capabilities except *kept* from this process and its children; end it when *parent* ends."""
    check(library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os._exit(1)
    # A started program gains no privileges, neither by set-user-ID nor by being run as root.
    check(library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; of the lower 32 capabilities, then the upper
    check(library.capget(header, sets), "capget")
    mask = sum(1 << item for item in kept)
    for word in (0, 1):
        permitted = sets[3 * word + 1] & (mask >> 32 * word) & 0xFFFFFFFF
        sets[3 * word], sets[3 * word + 1], sets[3 * word + 2] = permitted, permitted, 0
    check(library.capset(header, sets), "capset")


def has_ended(process):
    """Return whether the program has ended, without reaping it: until then its pid is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process):
    """End the program, if still running, and its process group."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def collect(process, timeout_s, max_bytes):
    """Return output and standard error of *process*, and why it was killed, None if it exited by itself.

    Standard error is empty if it goes to the same stream.
    """
    taken = {stream: b"" for stream in (process.stdout, process.stderr) if stream is not None}
    for stream in taken:
        os.set_blocking(stream.fileno(), False)
    reading = list(taken)
    until = time.monotonic() + timeout_s
    fault = None
    while fault is None and not has_ended(process):  # wait for the program itself: children may keep a stream open
        for stream in select.select(reading, [], [], POLL_S)[0]:
            if not read_more(stream, taken):
                reading.remove(stream)
        if process.stderr is not None:
            taken[process.stderr] = taken[process.stderr][-STDERR_BYTES:]
        if len(taken[process.stdout]) > max_bytes:
            fault = f"printed more than {max_bytes} bytes"
        elif time.monotonic() > until:
            fault = f"timed out after {timeout_s:g} s"
    end_group(process)
    for stream in list(taken):
        while len(taken[stream]) <= max_bytes and read_more(stream, taken):
            pass
    return taken[process.stdout], taken.get(process.stderr, b""), fault


def read_more(stream, taken):
    """Add available data of *stream* to *taken*; return whether there may be more."""
    try:
        data = os.read(stream.fileno(), 65536)
    except BlockingIOError:
        return False
    taken[stream] += data
    return bool(data)


@contextlib.contextmanager
def scratch_directory(directory, prefix):
    """Make a directory for a program in the run's private *directory*; remove it after the block."""
    files.PrivateDirectory(directory, os.geteuid()).close()
    inside = tempfile.mkdtemp(prefix=prefix, dir=directory)
    try:
        yield inside
    finally:
        shutil.rmtree(inside)


def run(argv, directory, timeout_s, *, program=None, kept, max_bytes, stderr=subprocess.PIPE):
    """Run *argv* in *directory*; return the fields of a module's result: rc, output, stderr and fault.

    *program* is the file to start if it is not the first of *argv*; *kept* are the capabilities that it keeps. Raises
    OSError or SubprocessError if it cannot be started.
    """
    library = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()
    environment = {"PATH": PATH, "LC_ALL": "C", "HOME": directory, "TMPDIR": directory}
    process = subprocess.Popen(
        argv,
        executable=program,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=lambda: drop_privileges(library, parent, kept),  # noqa: PLW1509 - a module has one thread
    )
    try:
        output, written, fault = collect(process, timeout_s, max_bytes)
    finally:
        end_group(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return {
        "rc": None if fault else process.returncode,
        "output": base64.b64encode(output[:max_bytes]).decode("ascii"),
        "stderr": written[-STDERR_BYTES:].decode("utf-8", "replace"),
        "fault": fault,
    }
