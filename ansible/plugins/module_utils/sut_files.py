# SPDX-License-Identifier: Apache-2.0
"""Files and directories on a SUT that another user may have planted, and the processes started from them.

Runs on a SUT's own Python (3.8 and later, standard library only).

A name is first resolved with ``O_PATH``, which opens nothing and follows no link, then examined, and opened through
``/proc``: opening a device or a FIFO may block or do harm, and nothing can be swapped in between.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import stat
import time

PREFIX = "calibration-"
"""Prefix of a run's private directory."""

RESERVATION_BYTES = 8192
"""Largest file of a reservation, or of the kernel's settings, that is read."""

TEXT_CHARACTERS = 256
"""Limit on another user's text in a message."""

END_WAIT_S = 4
"""Time for a process to exit before it is killed: sutprobe allows 3 s to hand over results."""

KINDS = {stat.S_IFREG: "a regular file", stat.S_IFIFO: "a FIFO"}


class Refused(Exception):
    """The state found is not the expected one; the message says what to do."""


def printable(text, limit=TEXT_CHARACTERS):
    """Return *text* for a message: on one line, at most *limit* characters, without control characters."""
    plain = "".join(item if " " <= item <= "~" else "?" for item in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def user_name(uid):
    """Return the name of the user *uid*."""
    try:
        return "user %s (id %d)" % (printable(pwd.getpwuid(uid).pw_name, 64), uid)
    except KeyError:
        return "user id %d" % uid


def open_directory(path, flags=os.O_RDONLY, dir_fd=None):
    """Return a descriptor of the directory *path*. Raises OSError for anything else, including a link."""
    return os.open(path, flags | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def open_file(name, flags=os.O_RDONLY, dir_fd=None, kind=stat.S_IFREG):
    """Return a descriptor of the file *name* of type *kind*, without blocking. Raises OSError for others and links."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if stat.S_IFMT(os.fstat(found).st_mode) != kind:
            raise OSError(errno.EINVAL, "not %s" % KINDS[kind], name)
        return os.open("/proc/self/fd/%d" % found, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)


def read_text(name, limit, dir_fd=None):
    """Return the text of the regular file *name*. Raises OSError if it has more than *limit* bytes."""
    with os.fdopen(open_file(name, dir_fd=dir_fd), "rb") as stream:
        text = stream.read(limit + 1)
    if len(text) > limit:
        raise OSError(errno.EFBIG, "larger than %d bytes" % limit, name)
    return text.decode("utf-8", "replace")


def write_synced(name, text, mode, dir_fd):
    """Create the file *name* with *text*, synced to disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=dir_fd)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode("utf-8"))
        stream.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def unsafe_reason(state, uid):
    """Return why users other than root and *uid* can modify a directory, or None.

    Whoever can write to a directory can replace what is in it, unless the sticky bit reserves that for the owners.
    """
    if state.st_uid not in (0, uid):
        return f"owned by user id {state.st_uid}"
    if state.st_mode & stat.S_ISVTX:
        return None
    if state.st_mode & stat.S_IWOTH:
        return "writable by all"
    if state.st_mode & stat.S_IWGRP and state.st_gid != 0:
        return f"writable by group {state.st_gid}"
    return None


def unsafe_places(path, uid, lstat=os.lstat, readlink=os.readlink):
    """Return the unsafe directories from the root to *path*, including targets of symbolic links."""
    found = []
    seen = set()
    ways = [os.path.abspath(path)]
    while ways:
        way = ways.pop()
        while way not in seen:
            seen.add(way)
            try:
                state = lstat(way)
                if stat.S_ISLNK(state.st_mode):
                    ways.append(os.path.normpath(os.path.join(os.path.dirname(way), readlink(way))))
                    state = None
            except OSError:
                state = None  # missing: reported by another check
            reason = unsafe_reason(state, uid) if state is not None else None
            if reason:
                found.append({"path": way, "reason": reason})
            way = os.path.dirname(way)
    return sorted(found, key=lambda file: file["path"])


class PrivateDirectory:
    """A run's private directory of user *owner*, held open, so that a replaced path does not matter.

    Raises Refused if something else is there. A removed one is empty, and processes may still run from it.
    """

    def __init__(self, path, owner):
        self.path = printable(path)
        self.name = os.path.basename(path)
        self.place = self.parent = self.descriptor = None
        if not os.path.isabs(path) or not self.name.startswith(PREFIX):
            raise Refused("not a run's private directory: %s" % self.path)
        try:
            self.parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.place = os.path.join(os.readlink("/proc/self/fd/%d" % self.parent), self.name)
            self.descriptor = open_directory(self.name, os.O_PATH, self.parent)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            self.close()
            raise Refused(f"{self.path} is not a directory: find out who made it and remove it") from None
        except OSError:
            self.close()
            raise
        found = os.fstat(self.descriptor)
        if found.st_uid != owner or found.st_mode & 0o777 != 0o700:
            self.close()
            raise Refused(
                f"expected mode 0700 and {user_name(owner)} at {self.path}, found mode "
                f"{stat.S_IMODE(found.st_mode):04o} and {user_name(found.st_uid)}: look at it and remove it yourself"
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Close it."""
        for descriptor in (self.parent, self.descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self.parent = self.descriptor = None

    @property
    def exists(self):
        """Whether it existed."""
        return self.descriptor is not None

    def processes(self, proc="/proc"):
        """Return the ids of the processes whose program is, or was, in it."""
        if self.place is None:
            return []
        found = []
        for name in os.listdir(proc):
            if not name.isdigit():
                continue
            try:
                program = os.readlink(os.path.join(proc, name, "exe"))
            except OSError:
                continue  # another user's process, a kernel thread, or already ended
            if program.startswith(self.place + os.sep):
                found.append(int(name))
        return sorted(found)

    def end_processes(self):
        """End the processes started from it; return their ids. Raises Refused if one survives."""
        processes = self.processes()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes():
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    continue
            until = time.monotonic() + END_WAIT_S
            while self.processes() and time.monotonic() < until:
                time.sleep(0.05)
        left = self.processes()
        if left:
            raise Refused(f"processes started from {self.path} do not end: {', '.join(map(str, left))}")
        return processes

    def remove(self):
        """Remove it and its contents."""
        if not self.exists:
            return
        inside = "/proc/self/fd/%d" % self.descriptor
        for name in os.listdir(inside):
            path = os.path.join(inside, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        os.rmdir(self.name, dir_fd=self.parent)


def remove_private(path, owner):
    """End what runs from a run's private directory and remove it; return the ids of the ended processes."""
    with PrivateDirectory(path, owner) as directory:
        ended = directory.end_processes()
        directory.remove()
        return ended
