# SPDX-License-Identifier: Apache-2.0
"""A SUT's reservation: a directory at one path for all users and controllers.

Runs on a SUT's own Python (3.8 and later, standard library only).

It appears atomically, by a rename, with a lock in it that is already held: it can never look abandoned while it is
made. It contains:

``holder.json``  who holds it, for people; readable by all
``run``          the token of the run and the guardian's process, which every step compares
``lease``        a FIFO: a step writes into it until when, in seconds of /proc/uptime, the run is alive, its own
                 process id, and how many seconds after that process's end the run must report again
``alive``        the lock, held by the guardian from start to exit
``journal``      one line per setting, synced to disk before the setting is changed
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import time

try:
    from ansible.module_utils import sut_files as files
    from ansible.module_utils import sut_settings as settings
except ImportError:  # beside the guardian
    import sut_files as files
    import sut_settings as settings

Refused, printable = files.Refused, files.printable

HOLDER, RUN, LEASE, ALIVE, JOURNAL = "holder.json", "run", "lease", "alive", "journal"

HOLDER_TEXTS = ("run_id", "sut", "controller", "started_at", "directory", "boot_id", "token")
HOLDER_NUMBERS = ("guardian",)

JOURNAL_BYTES = 16 << 20
"""Limit on a journal: three entries for each of 8192 CPUs take 5 MB."""

RELEASE_S = 10
"""Time for a guardian to exit when told to; then it is killed, with nothing left to restore."""

MAX_FAULTS = 8
"""Faults named in one message."""

RELEASE_WORD = b"release\n"


class Held(Refused):
    """The SUT, or the traffic generator, is reserved by another run."""


class Reservation:
    """An existing reservation at *path*, opened but not yet checked."""

    def __init__(self, path, machine, descriptor):
        self.path, self.machine, self.descriptor = path, machine, descriptor
        found = os.fstat(descriptor)
        self.owner = found.st_uid
        self.identity = (found.st_dev, found.st_ino)
        self.trusted = found.st_uid == os.geteuid() and not found.st_mode & 0o022
        self.lock = None
        self.holder = self.read_holder()

    @staticmethod
    def find(path, machine):
        """Return the reservation at *path*, or None. Raises Refused if another kind of file is there."""
        try:
            descriptor = files.open_directory(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(
                f"the reservation {path} is not a readable directory ({error.strerror}): find out who made it and "
                "remove it"
            ) from error
        return Reservation(path, machine, descriptor)

    def close(self):
        """Close it."""
        for descriptor in (self.lock, self.descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self.lock = self.descriptor = None

    def read_holder(self):
        """Return the valid fields of the holder; any user may have written the file."""
        holder = dict.fromkeys(HOLDER_TEXTS + HOLDER_NUMBERS)
        try:
            found = json.loads(files.read_text(HOLDER, files.RESERVATION_BYTES, self.descriptor))
        except (OSError, ValueError, RecursionError):
            return holder
        if isinstance(found, dict):
            for name in HOLDER_TEXTS:
                if isinstance(found.get(name), str):
                    holder[name] = found[name] if self.trusted else printable(found[name])
            for name in HOLDER_NUMBERS:
                if type(found.get(name)) is int and 0 < found[name] < 1 << 31:
                    holder[name] = found[name]
        return holder

    def of_this_boot(self):
        """Return whether it was made after the last boot."""
        return self.holder["boot_id"] == self.machine.boot_id()

    def take_lock(self):
        """Take the lock; return whether its holder is dead."""
        try:
            descriptor = files.open_file(ALIVE, os.O_RDWR, self.descriptor)
        except FileNotFoundError:
            return True  # reservations appear with their lock: this is not one, or a leftover
        except OSError as error:
            place = os.path.join(self.path, ALIVE)
            raise Refused(f"cannot lock {place}: {error.strerror}; {self.how_to_break()}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self.lock = descriptor
        return True

    def is_current(self):
        """Return whether this reservation is still at the path."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def description(self):
        """Return the holder as text."""
        run, controller, started_at, sut = (
            printable(self.holder[name] or "unknown") for name in ("run_id", "controller", "started_at", "sut")
        )
        return f"run {run} of {controller} for SUT {sut}, started at {started_at} as {files.user_name(self.owner)}"

    def how_to_break(self):
        """Return instructions for ending it by hand."""
        run, sut = self.holder["run_id"], self.holder["sut"]
        if run and sut and re.fullmatch(r"[A-Za-z0-9._-]+", run) and re.fullmatch(r"[A-Za-z0-9._-]+", sut):
            return (
                "wait for it, or, if it is certainly dead, end it as that user or as root: "
                f"ansible-playbook playbooks/cleanup.yml -e calibration_run_id={run} --limit {sut}"
            )
        return f"find out whose it is, and remove {self.path} on the SUT"

    # Journal

    def journal(self, mark=0):
        """Return the entries behind *mark*. Raises Refused if the journal is invalid."""
        try:
            text = files.read_text(JOURNAL, JOURNAL_BYTES, self.descriptor)
        except FileNotFoundError:
            text = ""
        if mark and (mark > len(text) or text[mark - 1] != "\n"):
            raise Refused(f"no line of the journal ends at {mark}")
        # An incomplete last line was not synced: its settings were not changed.
        return [settings.Entry.of_line(line) for line in text[mark:].split("\n")[:-1]]

    def write_journal(self, entries):
        """Append *entries*, synced to disk; return the end position before.

        Raises Refused, with nothing changed.
        """
        try:
            try:
                descriptor = files.open_file(JOURNAL, os.O_WRONLY | os.O_APPEND, self.descriptor)
            except FileNotFoundError:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(JOURNAL, flags, 0o600, dir_fd=self.descriptor)
            try:
                size = os.fstat(descriptor).st_size
                rest = "".join(entry.line() for entry in entries).encode("utf-8")
                try:
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
                    os.fsync(descriptor)
                    os.fsync(self.descriptor)
                except OSError:
                    os.ftruncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Refused(
                f"the journal {os.path.join(self.path, JOURNAL)} cannot be written: {error.strerror}; nothing was "
                "changed. Free some space on the SUT"
            ) from error
        return size

    def cut_journal(self, mark):
        """Drop the entries behind *mark*, which have been restored."""
        descriptor = files.open_file(JOURNAL, os.O_WRONLY, self.descriptor)
        try:
            os.ftruncate(descriptor, mark)
        finally:
            os.close(descriptor)

    # Guardian

    def send(self, message):
        """Send a message to the guardian through the FIFO. Return whether there is a reader."""
        try:
            descriptor = files.open_file(LEASE, os.O_WRONLY, self.descriptor, stat.S_IFIFO)
        except OSError:
            return False  # no reader, or not a FIFO
        try:
            os.write(descriptor, message)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def renew(self, lease_s):
        """Extend the run's lease to *lease_s* seconds from now."""
        return self.send(b"%012d\n" % int(self.machine.uptime_s() + lease_s + 1))

    def end_guardian(self):
        """End the guardian, which has nothing left to restore, and take its lock. Raises Refused if it does not end."""
        for end in (lambda: self.send(RELEASE_WORD), self.kill_guardian):
            end()
            until = time.monotonic() + RELEASE_S
            while time.monotonic() < until:
                if self.take_lock():
                    return
                time.sleep(0.02)
        raise Refused(f"the guardian of {self.path} does not end: find out which process has {ALIVE} in it open")

    def kill_guardian(self):
        """Kill an unresponsive guardian, if the holder's file is trusted."""
        if self.trusted and self.holder["guardian"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.holder["guardian"], signal.SIGKILL)

    # End

    def restore(self, who):
        """Restore the run's changes and remove its directory; return (changes, processes ended).

        Raises Refused if something could not be restored. Another user's journal is not used: what an ordinary user may
        write must not make root write to the machine. A reboot resets the settings by itself.
        """
        ended, changes, faults, refused = [], [], [], None
        try:
            directory = self.private_directory()
        except Refused as error:
            directory, refused = None, error  # settings are restored anyway
        with directory or contextlib.nullcontext():
            if directory:
                ended = directory.end_processes()
            if self.trusted and self.of_this_boot():
                changes, faults = settings.restore_all(self.machine, self.journal(), who)
            if faults:
                raise Refused(f"{'; '.join(faults[:MAX_FAULTS])}. The SUT stays reserved until they are restored")
            if refused:
                raise refused
            if directory:
                directory.remove()
        return changes, ended

    def private_directory(self):
        """Return the run's directory, or None. A path in another user's file is used only if that user owns it.

        Raises Refused if something else is there.
        """
        path = self.holder["directory"]
        if not path or not os.path.isabs(path) or not os.path.basename(path).startswith(files.PREFIX):
            return None
        if self.trusted:
            return files.PrivateDirectory(path, self.owner)
        try:
            directory = files.PrivateDirectory(path, self.owner)
        except (Refused, OSError):
            return None
        return directory if directory.exists else None

    def remove(self):
        """Remove it: first rename it away, so that no partial one is ever at the path."""
        if not self.is_current():
            return
        aside = "%s.%s.%s" % (self.path, self.machine.boot_id(), os.urandom(4).hex())
        os.rename(self.path, aside)
        shutil.rmtree(aside)


ABANDONED = r"(\.([0-9a-f-]{36})\.[a-z0-9_]{8})+"
"""Suffix of a reservation while it is made or removed: boot id and random characters."""


def remove_abandoned(path, machine):
    """Remove this user's unfinished reservations beside *path* from before a restart."""
    parent, name = os.path.split(path)
    for item in os.listdir(parent):
        match = re.fullmatch(re.escape(name) + ABANDONED, item)
        place = os.path.join(parent, item)
        if not match or match.group(2) == machine.boot_id():
            continue
        state = os.lstat(place)
        if state.st_uid != os.geteuid() or not stat.S_ISDIR(state.st_mode):
            continue
        found = Reservation.find(place, machine)
        if found is None:
            continue
        with contextlib.closing(found):
            if found.trusted and not found.of_this_boot() and found.take_lock():
                found.restore("cleanup")
                found.remove()
