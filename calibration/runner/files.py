# SPDX-License-Identifier: Apache-2.0
"""Files and directories on a SUT that another user may have planted.

A name is first resolved with ``O_PATH``, which opens nothing and follows no link, then examined, and opened through
``/proc``: opening a device or a FIFO may block or do harm, and nothing can be swapped in between.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat

PRIVATE, CHANGED = 0o700, 0o700 | stat.S_ISVTX
"""Mode of a run's directory, and while settings are changed: every user sees the mark, and none may enter."""

PREFIX = "calibration-"
"""Prefix of a run's private directory."""

SETTING_BYTES = 8192
"""Largest file of the kernel's settings that is read."""

TEXT_CHARACTERS = 256
"""Limit on another user's text in a message."""


class Refused(Exception):
    """The state found is not the expected one; the message says what to do.

    ``run_id`` is that of the run that is in the way, as it says itself. Nothing of it belongs in a command unchecked.
    *faults* are settings that are not restored (``settings.fault_of``), if that is the reason or comes with it.
    """

    def __init__(self, text, run_id=None, faults=()):
        super().__init__(text)
        self.run_id = run_id
        self.faults = faults

    def answer(self):
        """Return the answer to the controller."""
        return {"refused": str(self), "run_id": self.run_id, "faults": list(self.faults)}


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
    return os.open(path, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)


def open_file(name, flags=os.O_RDONLY, dir_fd=None):
    """Return a descriptor of the regular file *name*, without blocking. Raises OSError for others and links."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return os.open("/proc/self/fd/%d" % found, flags | os.O_NONBLOCK)
    finally:
        os.close(found)


def read_text(name, limit, dir_fd=None):
    """Return the text of the regular file *name*. Raises OSError if it has more than *limit* bytes."""
    with os.fdopen(open_file(name, dir_fd=dir_fd), "rb") as stream:
        text = stream.read(limit + 1)
    if len(text) > limit:
        raise OSError(errno.EFBIG, "larger than %d bytes" % limit, name)
    return text.decode("utf-8", "replace")


def write_synced(name, content, mode, dir_fd):
    """Create the file *name* with *content*, text or bytes, synced to disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(name, flags, mode, dir_fd=dir_fd)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
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
