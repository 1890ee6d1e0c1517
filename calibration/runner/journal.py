# SPDX-License-Identifier: Apache-2.0
"""The journal of a run: every setting that it may change, on disk before it is changed.

One line per setting, with the value before. What is in the journal is still to be restored; an empty or missing one
means that the machine is as it was. The run's directory has mode 0701 while something is to be restored, so that other
users see it.
"""

from __future__ import annotations

import contextlib
import os

from calibration.runner import files, settings
from calibration.runner.directory import CHANGED, PRIVATE
from calibration.runner.files import Refused

JOURNAL = "journal"

JOURNAL_BYTES = 16 << 20
"""Limit on a journal: three entries for each of 8192 CPUs take 5 MB."""

MAX_FAULTS = 8
"""Faults named in one message."""


def read(directory, mark=0):
    """Return the entries behind *mark* of the journal in *directory*, a descriptor. Raises Refused if it is invalid."""
    try:
        text = files.read_text(JOURNAL, JOURNAL_BYTES, directory)
    except FileNotFoundError:
        text = ""
    if mark and (mark > len(text) or text[mark - 1] != "\n"):
        raise Refused(f"no line of the journal ends at {mark}")
    # An incomplete last line was not synced: its settings were not changed.
    return [settings.Entry.of_line(line) for line in text[mark:].split("\n")[:-1]]


def append(directory, entries):
    """Append *entries*, synced to disk; return the end of the journal before. Raises Refused, with nothing changed."""
    try:
        descriptor = os.open(
            JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
        )
        try:
            size = os.fstat(descriptor).st_size
            rest = "".join(entry.line() for entry in entries).encode("utf-8")
            try:
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
                os.fchmod(directory, CHANGED)
                os.fsync(directory)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(
            f"the journal of settings cannot be written: {error.strerror}; nothing was changed. Free some space on the "
            "SUT"
        ) from error
    return size


def cut(directory, mark=0):
    """Drop the entries behind *mark*, which have been restored."""
    with contextlib.suppress(FileNotFoundError):  # nothing was changed
        descriptor = files.open_file(JOURNAL, os.O_WRONLY, directory)
        try:
            os.ftruncate(descriptor, mark)
        finally:
            os.close(descriptor)
    if mark == 0:
        os.fchmod(directory, PRIVATE)


def change(machine, directory, wanted, interrupted=lambda: False):
    """Change the settings *wanted*; return (changes, mark for restoring them before the end of the run).

    If one fails, or *interrupted* becomes true, restores all of them and raises Refused.
    """
    try:
        entries = settings.plan_changes(machine, wanted)
    except OSError as error:
        raise Refused(f"the SUT's settings cannot be read: {error}; nothing was changed") from error
    if not entries:
        return [], None
    mark = append(directory, entries)
    for count, entry in enumerate(entries):
        if entry.wanted is None:
            continue
        try:
            if interrupted():
                raise Refused("interrupted")
            settings.apply_change(machine, entry)
        except Refused as error:
            reached = count if isinstance(error, settings.CpuOffline) else count + 1
            _, faults = settings.restore_all(machine, entries[:reached], "run")
            if faults:
                raise Refused(f"{error}. Not restored: {'; '.join(faults[:MAX_FAULTS])}") from error
            cut(directory, mark)
            raise Refused(f"{error}. The changes so far were restored") from error
    made = [entry.change(entry.wanted) for entry in entries if entry.wanted is not None]
    return settings.group_changes(made), mark


def restore(machine, directory, who, mark=0):
    """Restore what was changed since *mark*, in reverse; return (changes, faults).

    What cannot be restored stays in the journal.
    """
    changes, faults = settings.restore_all(machine, read(directory, mark), who)
    if not faults:
        cut(directory, mark)
    return settings.group_changes(changes), faults


def read_again(machine, directory, who):
    """Return the changes of a run before the last boot with the current values; nothing of it is left to restore."""
    changes = []
    for entry in read(directory):
        if entry.wanted is not None:
            try:
                now = settings.read_value(machine, entry.where)
            except OSError:
                now = None  # unknown
            changes.append(entry.change(entry.wanted, now, who if now == entry.before else None))
    if changes:
        cut(directory)
    return settings.group_changes(changes)
