# SPDX-License-Identifier: Apache-2.0
"""The journal of a run: every setting that it may change, on disk before it is changed.

One line per setting, with the value before. What is in the journal is still to be restored; an empty or missing one
means that the machine is as it was. The run's directory has mode 1700 while something is to be restored, so that other
users see it.
"""

from __future__ import annotations

import contextlib
import os

from calibration.runner import files, settings
from calibration.runner.files import Refused

JOURNAL = "journal"

JOURNAL_BYTES = 16 << 20
"""Limit on a journal: six entries for each of 8192 CPUs take 10 MB."""


class NotUndone(Refused):
    """A change failed, and not all of it could be undone: the rest is still to be restored."""


def read(directory, mark=0):
    """Return (entries behind *mark* of the journal in *directory*, a descriptor; faults of what cannot be read).

    A line that is no entry does not keep the others from being restored. Raises Refused if no line ends at *mark*.
    """
    try:
        text = files.read_text(JOURNAL, JOURNAL_BYTES, directory)
    except FileNotFoundError:
        text = ""
    except OSError as error:
        return [], [settings.fault_at(place(directory), "the journal of settings cannot be read: %s" % error.strerror)]
    if mark and (mark > len(text) or text[mark - 1] != "\n"):
        raise Refused(f"no line of the journal ends at {mark}")
    entries, faults = [], []
    # An incomplete last line was not synced: its settings were not changed.
    for line in text[mark:].split("\n")[:-1]:
        try:
            entries.append(settings.Entry.of_line(line))
        except Refused as error:
            faults.append(settings.fault_at(place(directory), str(error)))
    return entries, faults


def place(directory):
    """Return the path of the journal in *directory*, a descriptor."""
    return os.path.join(os.readlink("/proc/self/fd/%d" % directory), JOURNAL)


def is_empty(directory):
    """Return whether nothing is left to be restored."""
    return read(directory) == ([], [])


def append(directory, entries):
    """Append *entries*, synced to disk; return the end of the journal before. Raises Refused, with nothing changed."""
    try:
        descriptor = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        try:
            size = os.fstat(descriptor).st_size
            rest = "".join(entry.line() for entry in entries).encode("utf-8")
            try:
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
                os.fchmod(directory, files.CHANGED)
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
        os.fchmod(directory, files.PRIVATE)


def change(machine, directory, wanted, interrupted=lambda: False):
    """Change the settings *wanted*; return (changes, mark for restoring them before the end of the run).

    If one fails, or *interrupted* becomes true, restores all of them and raises Refused, NotUndone if that fails too.
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
                raise NotUndone(f"{error}. Not all changes so far could be undone") from error
            cut(directory, mark)
            raise Refused(f"{error}. The changes so far were restored") from error
    made = [entry.change(entry.wanted) for entry in entries if entry.wanted is not None]
    return settings.group_changes(made), mark


def restore(machine, directory, who, mark=0):
    """Restore what was changed since *mark*, in reverse; return (changes, faults).

    What cannot be restored stays in the journal.
    """
    entries, faults = read(directory, mark)
    changes, more = settings.restore_all(machine, entries, who)
    faults += more
    if not faults:
        try:
            cut(directory, mark)
        except OSError as error:
            faults.append(settings.fault_at(place(directory), "the journal cannot be emptied: %s" % error.strerror))
    return settings.group_changes(changes), settings.group_changes(faults)


def unrestored(machine, directory, error):
    """Return (changes, faults) of the run in *directory*, which *error* kept from being restored, as they are now."""
    entries, faults = read(directory)
    changes = []
    for entry in entries:
        now = settings.current_value(machine, entry.where)
        if now != entry.before:
            faults.append(settings.fault_of(entry, now, error))
        if entry.wanted is not None:
            changes.append(entry.change(now or entry.wanted, now))
    if not faults:
        faults.append(settings.fault_at(os.path.dirname(place(directory)), error))
    return settings.group_changes(changes), settings.group_changes(faults)


def read_again(machine, directory, who):
    """Return the changes of a run before the last boot with the current values; nothing of it is left to restore."""
    changes = []
    for entry in read(directory)[0]:
        if entry.wanted is not None:
            now = settings.current_value(machine, entry.where)
            changes.append(entry.change(entry.wanted, now, who if now == entry.before else None))
    cut(directory)
    return settings.group_changes(changes)
