# SPDX-License-Identifier: Apache-2.0
"""Files and directories on a SUT that another user may have put there, and the processes started from them.

Runs on a SUT's own Python (3.8 and later, standard library only).

A name is first resolved with ``O_PATH``, which opens nothing and follows no link, then examined, and opened through
``/proc``: opening a device or a FIFO can do harm or wait for ever, and nothing can be swapped in between.
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
"""How the name of a run's private directory begins."""

RESERVATION_BYTES = 8192
"""Largest file of a reservation, and of the kernel's settings, that is read."""

TEXT_CHARACTERS = 256
"""Most characters of another user's text in a message."""

END_WAIT_S = 4
"""How long a process may take to end itself before it is killed: a kernel gives its work 3 s to hand over results."""

KINDS = {stat.S_IFREG: "a regular file", stat.S_IFIFO: "a FIFO"}


class Refused(Exception):
    """What was found is not what was expected; the message says what to do."""


def printable(text, limit=TEXT_CHARACTERS):
    """Return *text* fit for a message: on one line, at most *limit* characters, nothing that a terminal acts on."""
    plain = "".join(item if " " <= item <= "~" else "?" for item in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def user_name(uid):
    """Return how people call the user *uid*."""
    try:
        return "user %s (id %d)" % (printable(pwd.getpwuid(uid).pw_name, 64), uid)
    except KeyError:
        return "user id %d" % uid


def open_directory(path, flags=os.O_RDONLY, dir_fd=None):
    """Return a descriptor of the directory *path*. Raises OSError for anything else, a link too: it is not opened."""
    return os.open(path, flags | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def open_file(name, flags=os.O_RDONLY, dir_fd=None, kind=stat.S_IFREG):
    """Return a descriptor of the file *name* of a *kind*, without waiting. Raises OSError for any other, a link too."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if stat.S_IFMT(os.fstat(found).st_mode) != kind:
            raise OSError(errno.EINVAL, "not %s" % KINDS[kind], name)
        return os.open("/proc/self/fd/%d" % found, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)


def read_text(name, limit, dir_fd=None):
    """Return the text of the regular file *name*. Raises OSError for one of more than *limit* bytes."""
    with os.fdopen(open_file(name, dir_fd=dir_fd), "rb") as stream:
        text = stream.read(limit + 1)
    if len(text) > limit:
        raise OSError(errno.EFBIG, "larger than %d bytes" % limit, name)
    return text.decode("utf-8", "replace")


def unsafe_reason(state, uid):
    """Return why a directory on the way is not safe from users other than root and *uid*, or None.

    Whoever may write in a directory can rename what lies in it and put something else there, unless the sticky bit
    leaves that to the owners.
    """
    if state.st_uid not in (0, uid):
        return "it belongs to user id %d" % state.st_uid
    if state.st_mode & stat.S_ISVTX:
        return None
    if state.st_mode & stat.S_IWOTH:
        return "everybody may write there"
    if state.st_mode & stat.S_IWGRP and state.st_gid != 0:
        return "group %d may write there" % state.st_gid
    return None


def unsafe_places(path, uid, lstat=os.lstat, readlink=os.readlink):
    """Return the directories from the root to *path* that are not safe, on every way that symbolic links lead."""
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
                state = None  # it is missing, which is another check's finding
            reason = unsafe_reason(state, uid) if state is not None else None
            if reason:
                found.append({"path": way, "reason": reason})
            way = os.path.dirname(way)
    return sorted(found, key=lambda file: file["path"])


class PrivateDirectory:
    """A run's private directory of user *owner*, held open: what its path leads to later does not matter.

    Raises Refused where something else is there. One that is gone is empty, and processes may still run from it.
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
            raise Refused("%s is not a directory; find out who made it and remove it" % self.path) from None
        except OSError:
            self.close()
            raise
        found = os.fstat(self.descriptor)
        if found.st_uid != owner or found.st_mode & 0o777 != 0o700:
            self.close()
            raise Refused(
                "expected %s to be a run's private directory (mode 0700) of %s, found mode %s of %s; look at it and "
                "remove it yourself"
                % (self.path, user_name(owner), oct(stat.S_IMODE(found.st_mode)), user_name(found.st_uid))
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Let go of it."""
        for descriptor in (self.parent, self.descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self.parent = self.descriptor = None

    @property
    def exists(self):
        """Whether it was there."""
        return self.descriptor is not None

    def processes(self, proc="/proc"):
        """Return the ids of the processes whose program lies, or lay, in it."""
        if self.place is None:
            return []
        found = []
        for name in os.listdir(proc):
            if not name.isdigit():
                continue
            try:
                program = os.readlink(os.path.join(proc, name, "exe"))
            except OSError:
                continue  # another user's process, a kernel thread, or one that has ended
            if program.startswith(self.place + os.sep):
                found.append(int(name))
        return sorted(found)

    def end_processes(self):
        """End what was started from it; return the ids of the processes ended. Raises Refused where one stays."""
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
            raise Refused("expected every process started from %s to end, found %s still there" % (self.path, left))
        return processes

    def remove(self):
        """Remove it with all that is in it."""
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
    """End what runs from a run's private directory and remove it; return the ids of the processes ended."""
    with PrivateDirectory(path, owner) as directory:
        ended = directory.end_processes()
        directory.remove()
        return ended
