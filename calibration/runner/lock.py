# SPDX-License-Identifier: Apache-2.0
"""The lock that a run holds on a machine: a listening socket in the abstract namespace.

The kernel releases it with the last process that has it open, no file remains, and every user can ask who holds it:
whoever connects gets a description, and the kernel adds the process and the user. ``ss -xlp | grep calibration`` shows
them too. Network namespaces have one lock each; ``directory.py`` has the lock that containers share.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import struct
import time

from calibration.runner.files import PREFIX, Refused, printable, user_name

NAME = re.compile("[A-Za-z0-9._-]{1,64}")

RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}")
"""Form of the identifiers that a controller gives."""

HOLDER_BYTES = 4096
"""Longest description of a holder that is read; any user may have taken the name."""

ANSWER_S = 2.0
"""Time for a holder to describe itself; the kernel's part needs no answer."""

TRIES, TRY_S = 20, 0.1
"""Attempts to take a lock that nobody answers for."""

WAITING = 16
"""Connections that may wait, and the most answered at once: whoever asks without end must not hold up the run."""

TEXTS = ("run_id", "host", "controller", "started_at", "directory", "state")


class Held(Refused):
    """The machine, or the traffic generator, is reserved by another run."""


def take(name):
    """Return the lock *name*, a socket. Raises Held if another run has it."""
    if not NAME.fullmatch(name):
        raise Refused(
            "calibration_lock: expected 1 to 64 letters, digits, '.', '_' and '-', found %s" % printable(name)
        )
    for _ in range(TRIES):
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind("\0" + name)
        except OSError as error:
            lock.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            lock.listen(WAITING)
            lock.setblocking(False)
            return lock
        refuse_if_held(name)
        time.sleep(TRY_S)  # released meanwhile, or taken and not listened to yet
    raise silent(name)


def refuse_if_taken(name):
    """Raise Held as ``take`` would, without taking the lock *name*."""
    for _ in range(TRIES):
        refuse_if_held(name)
        if not is_bound(name):
            return
        time.sleep(TRY_S)
    raise silent(name)


def refuse_if_held(name):
    """Raise Held if somebody answers for the lock *name*."""
    found = holder(name)
    if found is not None:
        raise Held("the SUT is reserved by %s" % description(found), found["run_id"])


def is_bound(name):
    """Return whether a process has the lock *name*, listening or not."""
    with open("/proc/net/unix") as sockets:
        return any(line.rstrip("\n").endswith(" @" + name) for line in sockets)


def silent(name):
    """Return the error for a lock that is taken and not answered for."""
    return Held("a process has taken the SUT's lock and says nothing: find it with ss -xap | grep %s" % name)


def holder(name):
    """Return who holds the lock *name*: ``uid``, ``pid`` and the texts it gave; None if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWER_S)
        try:
            asking.connect("\0" + name)
        except ConnectionRefusedError:
            return None
        except OSError:
            return dict.fromkeys(("uid", "pid", *TEXTS))
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            given = json.loads(asking.recv(HOLDER_BYTES) or b"null")
        except (OSError, ValueError, RecursionError):
            given = None
    texts = given if isinstance(given, dict) else {}
    return {
        "uid": uid,
        "pid": pid,
        **{name: texts[name] if isinstance(texts.get(name), str) else None for name in TEXTS},
    }


def tell(lock, holder):
    """Describe the *holder* to those who connected to *lock*."""
    for _ in range(WAITING):
        try:
            asking = lock.accept()[0]
        except BlockingIOError:
            return
        with asking:
            try:
                asking.setblocking(False)
                asking.send(json.dumps(holder).encode()[:HOLDER_BYTES])
            except OSError:
                pass  # gone already


def description(found):
    """Return the holder *found* as text."""
    run, controller, started_at, host, state = (
        printable(found.get(name) or "unknown") for name in ("run_id", "controller", "started_at", "host", "state")
    )
    who = "an unknown user" if found.get("uid") is None else user_name(found["uid"])
    process = ", process %d" % found["pid"] if found.get("pid") else ""
    return f"run {run} of {controller} for {host} since {started_at} ({state}), as {who}{process}"


def run_of(name):
    """Return the identifier of the run with a directory of that *name*, None if it has another form."""
    found = RUN_ID.match(name, len(PREFIX))
    return found[0] if found else None
