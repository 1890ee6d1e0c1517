# SPDX-License-Identifier: Apache-2.0
"""A run's private directory on a SUT: everything of the run, and nothing of it elsewhere.

``job.json``        the run: its name, its controller, the settings to change, and for how long it is kept
``runner``          this program, for what comes later
``answer.json``     the answer to whoever started it: prepared, or refused
``plan.json``       the steps
``records.jsonl``   what happened, one line per record, each on disk before the next step begins
``context.tar.gz``  the SUT as it was measured
``journal``         settings to be restored (``journal.py``)
``control``         the socket of the run's process
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import time

from calibration.runner import files
from calibration.runner.files import PREFIX, Refused, printable, user_name

JOB, RUNNER, ANSWER, PLAN, RECORDS, CAPTURE, CONTROL, LOG = (
    "job.json",
    "runner",
    "answer.json",
    "plan.json",
    "records.jsonl",
    "context.tar.gz",
    "control",
    "log",
)

MESSAGE_BYTES = 64
"""Longest message through the socket."""

LAST = (b"done", b"cancelled", b"lost")
"""Records behind which only the restored settings come."""

LAST_BYTES = 1 << 16
"""Bytes of the end of the records in which the last two begin."""

END_S = 4.0
"""Time for a program to exit after SIGTERM: sutprobe allows 3 s to hand over results."""

PRIVATE, CHANGED = 0o700, 0o701
"""Mode of the directory, and while settings are changed."""

RECORD_BYTES = 128 << 10
"""Space reserved for a record: few steps of a large machine have longer answers."""

FALLOC_FL_KEEP_SIZE = 1
"""From linux/falloc.h."""

JOB_BYTES = 1 << 20
"""Limit on a run's description: the settings of 8192 nodes."""

NAME = r"[A-Za-z0-9._-]{1,128}"
"""Form of the names of runs and SUTs."""

SESSION = re.compile(f"{re.escape(PREFIX)}{NAME}-{NAME}-[0-9a-f]{{8}}")
"""Form of the names of runs' directories; others are somebody's own."""

MAKING_S = 60.0
"""Time for a directory to be made, until it has its job."""


def uptime_s():
    """Return the seconds since boot, independent of the wall clock."""
    return round(time.clock_gettime(time.CLOCK_BOOTTIME), 3)


class Directory:
    """An existing directory of a run of this user, held open, so that a replaced path does not matter.

    Raises Refused if something else is there, or nothing.
    """

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)
        self.parent: int = -1
        self.descriptor: int = -1
        shown = printable(path)
        if not os.path.isabs(path) or not SESSION.fullmatch(self.name):
            raise Refused("not a run's directory: %s" % shown)
        try:
            self.parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.descriptor = files.open_directory(self.name, dir_fd=self.parent)
            found = os.fstat(self.descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o776 != PRIVATE:
                raise Refused(
                    f"expected mode 0700 and {user_name(os.geteuid())} at {shown}, found mode "
                    f"{stat.S_IMODE(found.st_mode):04o} and {user_name(found.st_uid)}: look at it and remove it "
                    "yourself"
                )
            self.place = os.path.join(os.readlink("/proc/self/fd/%d" % self.parent), self.name)
            self.job = json.loads(files.read_text(JOB, JOB_BYTES, self.descriptor)) if self.has(JOB) else {}
        except FileNotFoundError:
            self.close()
            raise Refused("no directory of a run: %s" % shown) from None
        except NotADirectoryError:
            self.close()
            raise Refused(f"{shown} is not a directory: find out who made it and remove it") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Close it."""
        for descriptor in (self.parent, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self.parent = self.descriptor = -1

    @staticmethod
    def create(base, job):
        """Make the directory of a run below *base*."""
        for name in ("run_id", "sut"):
            if not re.fullmatch(NAME, job[name]):
                raise Refused("invalid %s: %s" % (name, printable(job[name])))
        path = os.path.join(base, "%s%s-%s-%s" % (PREFIX, job["run_id"], job["sut"], os.urandom(4).hex()))
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise Refused("no directory can be made in %s: %s" % (base, error.strerror)) from error
        made = Directory(path)
        made.job = job
        try:
            made.write(JOB, json.dumps(job))
        except OSError as error:
            with made:
                made.remove()
            raise Refused("nothing can be written to %s: %s" % (base, error.strerror)) from error
        return made

    # Files

    def has(self, name):
        """Return whether it has the file *name*."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def write(self, name, text, mode=0o600):
        """Write the file *name* whole."""
        self.write_bytes(name, text.encode("utf-8"), mode)

    def write_bytes(self, name, content, mode=0o600):
        """Write the file *name* whole, on disk when this returns."""
        partial = name + ".partial"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=self.descriptor)
        files.write_synced(partial, content, mode, self.descriptor)
        os.rename(partial, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        os.fsync(self.descriptor)

    def sha256(self, name):
        """Return the hash of the file *name*."""
        with os.fdopen(files.open_file(name, dir_fd=self.descriptor), "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()

    def _open_records(self):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(RECORDS, flags, 0o600, dir_fd=self.descriptor)

    def reserve(self, count):
        """Reserve space for *count* records, if the file system can: a disk that fills up then costs none."""
        import ctypes  # noqa: PLC0415 - not needed beside a measurement

        descriptor = self._open_records()
        try:
            size = ctypes.c_int64(count * RECORD_BYTES)
            ctypes.CDLL(None).fallocate(descriptor, FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), size)
        finally:
            os.close(descriptor)

    def record(self, **fields):
        """Append a record, on disk when this returns."""
        line = json.dumps(dict(fields, at_s=uptime_s())).encode("ascii") + b"\n"
        descriptor = self._open_records()
        try:
            before = os.fstat(descriptor).st_size
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)

    def records_from(self, offset, limit):
        """Return whole lines of the records behind *offset*, about *limit* bytes, at least one line if there is one."""
        try:
            stream = os.fdopen(files.open_file(RECORDS, dir_fd=self.descriptor), "rb")
        except FileNotFoundError:
            return b""
        with stream:
            stream.seek(offset)
            taken = b""
            for line in stream:
                if not line.endswith(b"\n") or (taken and len(taken) + len(line) > limit):
                    break
                taken += line
        return taken

    def has_ended(self):
        """Return whether the steps have ended; the settings may be about to be restored."""
        try:
            stream = os.fdopen(files.open_file(RECORDS, dir_fd=self.descriptor), "rb")
        except FileNotFoundError:
            return False
        with stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST_BYTES))
            last = stream.read().splitlines()[-2:]
        return any(line.startswith(tuple(b'{"record": "%s"' % name for name in LAST)) for line in last)

    # The run's process

    def listen(self):
        """Return the socket for messages to the run."""
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(self._control())
        control.listen(16)
        control.setblocking(False)
        return control

    def connect(self):
        """Return a connection to the run's process, None if it is gone."""
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            asking.connect(self._control())
        except (ConnectionRefusedError, FileNotFoundError):
            asking.close()
            return None
        return asking

    def _control(self):
        """Return a short path of the socket: it is limited to 107 bytes."""
        return "/proc/self/fd/%d/%s" % (self.descriptor, CONTROL)

    def processes(self):
        """Return the ids of the processes whose program is, or was, in it, or that work in it."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                for link in ("exe", "cwd"):
                    with contextlib.suppress(OSError):  # another user's process, a kernel thread, or already ended
                        if (os.readlink(f"/proc/{name}/{link}") + os.sep).startswith(self.place + os.sep):
                            found.append(int(name))
                            break
        return found

    def end_processes(self):
        """End the processes of programs of the run; return their ids. Raises Refused if one survives."""
        processes = self.processes()
        if not processes:
            return []
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            until = time.monotonic() + END_S
            while self.processes() and time.monotonic() < until:
                time.sleep(0.05)
        left = self.processes()
        if left:
            raise Refused(f"processes of {printable(self.path)} do not end: {', '.join(map(str, left))}")
        return processes

    def remove(self):
        """Remove it and its contents."""
        inside = "/proc/self/fd/%d" % self.descriptor
        for name in os.listdir(inside):
            path = os.path.join(inside, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        os.rmdir(self.name, dir_fd=self.parent)

    # Settings

    def of_this_boot(self, machine):
        """Return whether the run was made after the last boot, which resets all settings."""
        return self.job.get("boot_id") == machine.boot_id()

    def restore(self, machine, who):
        """End what runs from the directory and restore the run's changes; record and return (changes, faults).

        A reboot has done both.
        """
        from calibration.runner import journal  # noqa: PLC0415 - not needed beside a measurement

        ended, faults = [], []
        if self.of_this_boot(machine):
            ended = self.end_processes()
            changes, faults = journal.restore(machine, self.descriptor, who)
        else:
            changes = journal.read_again(machine, self.descriptor, who)
        if changes or faults:
            with contextlib.suppress(OSError):  # a full disk must not keep settings from being restored
                self.record(record="restored", changes=changes, faults=faults, ended=ended)
        return changes, faults

    def tidy_others(self, machine):
        """Restore what earlier runs of this user left, and remove those kept long enough.

        The caller holds the SUT. Returns the report on one whose settings were restored, else None. Raises Refused if
        something cannot be restored.
        """
        from calibration.runner import journal  # noqa: PLC0415

        report = None
        for path, state in all_below(os.path.dirname(self.path)):
            if os.path.basename(path) == self.name:
                continue
            if state.st_uid != os.geteuid():
                if state.st_mode & 0o001 and state.st_uid == 0:
                    raise Refused(
                        f"settings of the SUT are still changed by a dead run of root, {path}: restore them as root "
                        f"with python3 {path}/{RUNNER} remove {path}"
                    )
                continue
            with contextlib.suppress(FileNotFoundError), Directory(path) as other:
                had = journal.read(other.descriptor)
                if had:
                    changes, faults = other.restore(machine, "cleanup")
                    if faults:
                        raise Refused(
                            f"cannot restore what run {printable(other.job.get('run_id'))} left on the SUT: "
                            + "; ".join(faults[: journal.MAX_FAULTS])
                        )
                    why = "its runner was killed" if other.of_this_boot(machine) else "the SUT was restarted"
                    holder = {name: text for name, text in other.job.items() if isinstance(text, str)}
                    report = {"holder": holder, "why": why, "changes": changes}
                dead = bool(had) or other.connect() is None
                if dead and other.is_old():
                    other.remove()
        return report

    def is_old(self):
        """Return whether a dead run was kept for as long as was asked: without end if there is no such time."""
        changed = os.fstat(self.descriptor).st_mtime
        keep_s = self.job.get("keep_s") if self.job else MAKING_S
        return keep_s is not None and abs(time.time() - changed) > keep_s


def all_below(base):
    """Yield path and state of each directory of a run below *base*, of any user."""
    for name in sorted(os.listdir(base)):
        if SESSION.fullmatch(name):
            path = os.path.join(base, name)
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(path)
                if stat.S_ISDIR(state.st_mode):
                    yield path, state


def find(base, run_id, sut):
    """Return the paths of this user's directories of a run for a SUT below *base*, oldest first."""
    name = re.compile(re.escape("%s%s-%s-" % (PREFIX, run_id, sut)) + "[0-9a-f]{8}")
    if not os.path.isdir(base):
        return []
    found = [
        (state.st_ctime, path)
        for path, state in all_below(base)
        if state.st_uid == os.geteuid() and name.fullmatch(os.path.basename(path))
    ]
    return [path for _, path in sorted(found)]


def last_line(made):
    """Return the last line that the run's process wrote, where its error is."""
    with contextlib.suppress(OSError):
        return printable(files.read_text(LOG, 1 << 20, made.descriptor).strip().rpartition("\n")[2])
    return ""
