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
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import time

from calibration.runner import files, lock
from calibration.runner.files import PREFIX, PRIVATE, Refused, printable, user_name

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

SIGN = b"\n"
"""Message that the controller is there."""

LAST = (b"done", b"cancelled", b"lost")
"""Records behind which only the restored settings come."""

LAST_BYTES = 1 << 16
"""Bytes of the end of the records in which the last two begin."""

RESTORED_BYTES = 4 << 20
"""Bytes of the end of the records that have the record of restoring: few CPUs of a large machine differ in it."""

END_S = 4.0
"""Time for a program to exit after SIGTERM: sutprobe allows 3 s to hand over results."""

PROGRAM = "program-"
"""Prefix of the directory that an operator's program runs in."""

STEP_BYTES = 32 << 20
"""Limit on a step's output; the longest is wakeup's on 504 isolated CPUs, of which each is late by other times."""

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
        self.held: int = -1
        shown = printable(path)
        if not os.path.isabs(path) or not SESSION.fullmatch(self.name):
            raise Refused("not a run's directory: %s" % shown)
        try:
            self.parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
            self.descriptor = files.open_directory(self.name, dir_fd=self.parent)
            found = os.fstat(self.descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o777 != PRIVATE:
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
        for descriptor in (self.parent, self.descriptor, self.held):
            if descriptor >= 0:
                os.close(descriptor)
        self.parent = self.descriptor = self.held = -1

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
        owner = os.lstat(path).st_uid
        if owner != os.geteuid():
            os.rmdir(path)
            raise Refused(
                "what %s makes in %s belongs to %s, as on NFS with root_squash: set calibration_remote_base to a "
                "local directory" % (user_name(os.geteuid()), base, user_name(owner))
            )
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
        import hashlib  # noqa: PLC0415 - not needed beside a measurement

        with os.fdopen(files.open_file(name, dir_fd=self.descriptor), "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()

    def _open_records(self):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
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

    def last_lines(self, limit):
        """Return the lines in the last *limit* bytes of the records, the first of which may be a part of one."""
        with os.fdopen(files.open_file(RECORDS, dir_fd=self.descriptor), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
            return stream.read().splitlines()

    def has_ended(self):
        """Return whether the steps have ended; the settings may be about to be restored."""
        try:
            last = self.last_lines(LAST_BYTES)[-2:]
        except FileNotFoundError:
            return False
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
        """Return the ids of this user's processes whose program is, or was, in it, or that an operator's program began.

        Whoever else looks at it, such as an administrator, is left alone.
        """
        found = []
        places = {"exe": self.place + os.sep, "cwd": os.path.join(self.place, PROGRAM)}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):  # a kernel thread, or already ended
                    ours = os.stat("/proc/" + name).st_uid == os.geteuid()
                    if ours and any(os.readlink(f"/proc/{name}/{link}").startswith(places[link]) for link in places):
                        found.append(int(name))
        return found

    def end_processes(self):
        """End the processes of programs of the run; return the ids of those that ended, and of those that did not."""
        processes = self.processes()
        if not processes:
            return [], []
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            until = time.monotonic() + END_S
            while self.processes() and time.monotonic() < until:
                time.sleep(0.05)
        left = self.processes()
        return sorted(set(processes) - set(left)), left

    def remove(self):
        """Remove it and its contents, as others may at the same time.

        NFS keeps a file that a process has open, under another name, and its directory: the next run removes them.
        """
        if self.held >= 0:
            self.release()
        inside = "/proc/self/fd/%d" % self.descriptor
        for name in os.listdir(inside):
            path = os.path.join(inside, name)
            with suppress_kept():
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        with suppress_kept():
            os.rmdir(self.name, dir_fd=self.parent)

    # The run's own lock

    def hold(self):
        """Hold the run's own lock until it is released or the last process that has it ends; return whether it is free.

        It is a lock on a file that only this user can open. By it runs see each other whatever the name of the
        machine's lock, and from every container that has the directory. Raises Refused where files have no locks.
        """
        try:
            descriptor = files.open_file(JOB, os.O_RDWR, self.descriptor)
        except FileNotFoundError:
            return True  # it is being made, or removed
        for _ in range(lock.TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(lock.TRY_S)  # somebody may only look, or be about to end
            except OSError as error:
                os.close(descriptor)
                raise Refused(
                    "no file can be locked in %s (%s): set calibration_remote_base to a local directory"
                    % (os.path.dirname(self.path), error.strerror)
                ) from error
            else:
                self.held = descriptor
                return True
        os.close(descriptor)
        return False

    def release(self):
        """Release it."""
        os.close(self.held)
        self.held = -1

    # Settings

    def of_this_boot(self, machine):
        """Return whether the run was made after the last boot, which resets all settings."""
        return self.job.get("boot_id") == machine.boot_id()

    def of_another_machine(self, machine):
        """Return whether the run is of a machine that shares the file system: only there it can be restored."""
        here = os.uname().nodename
        return not self.of_this_boot(machine) and self.job.get("nodename", here) != here

    def restore(self, machine, who):
        """Restore the run's changes, and end what runs from the directory; record and return (changes, faults).

        A reboot has done both. Raises nothing: whatever fails is returned as a fault, with what is still changed.
        """
        from calibration.runner import journal, settings  # noqa: PLC0415 - not needed beside a measurement

        ended, changes, faults = [], [], []
        try:
            if self.of_this_boot(machine):
                changes, faults = journal.restore(machine, self.descriptor, who)
                ended, left = self.end_processes()
                if ended and faults:  # they may have had it in use
                    changes, faults = journal.restore(machine, self.descriptor, who)
                if left:
                    faults.append(settings.fault_at(self.path, "processes do not end: %s" % ", ".join(map(str, left))))
            else:
                changes = journal.read_again(machine, self.descriptor, who)
        except Exception as error:  # noqa: BLE001 - nobody else restores, or says what is still changed
            text = str(error) or repr(error)
            if changes or faults:
                faults.append(settings.fault_at(self.path, text))
            else:
                changes, faults = journal.unrestored(machine, self.descriptor, text)
        if changes or faults:
            with contextlib.suppress(OSError):  # a full disk must not keep settings from being restored
                self.record(record="restored", changes=changes, faults=faults, ended=ended)
        return changes, faults

    def told_restored(self):
        """Return (changes, faults) of the last record of restoring."""
        found: tuple[list[object], list[object]] = ([], [])
        with contextlib.suppress(FileNotFoundError):
            for line in self.last_lines(RESTORED_BYTES):
                if line.startswith(b'{"record": "restored"'):
                    told = json.loads(line)
                    found = told["changes"], told["faults"]
        return found

    def refuse_beside_others(self, machine):
        """Raise Held if another run is at work on the machine, whatever its lock: its settings must not change."""
        for other in others(os.path.dirname(self.path), self.name):
            if other.of_this_boot(machine) and not other.hold():
                raise other.at_work()

    def at_work(self):
        """Return the error for another run that this one, at work, is in the way of."""
        return lock.Held(
            "the SUT is in use by " + lock.description({**self.texts(), "uid": os.geteuid(), "state": "at work"}),
            self.texts().get("run_id"),
        )

    def texts(self):
        """Return what its job says of the run."""
        return {name: text for name, text in self.job.items() if isinstance(text, str)}

    def tidy_others(self, machine):
        """Restore what earlier runs of this user left, and remove those kept long enough.

        The caller holds the SUT. Returns the report on one whose settings were restored, else None. Raises Refused if
        something cannot be restored, or belongs to a run that is at work.
        """
        from calibration.runner import journal, settings  # noqa: PLC0415

        report = None
        for other in others(os.path.dirname(self.path), self.name):
            if other.of_another_machine(machine):
                continue
            if not journal.is_empty(other.descriptor):
                if not other.hold():
                    raise other.at_work()
                changes, faults = other.restore(machine, "cleanup")
                if faults:
                    raise Refused(
                        f"cannot restore what run {printable(other.job.get('run_id'))} left on the SUT. "
                        + settings.not_restored(faults),
                        faults=faults,
                    )
                why = "its runner was killed" if other.of_this_boot(machine) else "the SUT was restarted"
                report = {"holder": other.texts(), "why": why, "changes": changes}
            if other.is_old() and other.connect() is None:
                with contextlib.suppress(FileNotFoundError):
                    other.remove()
        return report

    def is_old(self):
        """Return whether a dead run was kept for as long as was asked: without end if there is no such time."""
        changed = os.fstat(self.descriptor).st_mtime
        keep_s = self.job.get("keep_s") if self.job else MAKING_S
        return keep_s is not None and abs(time.time() - changed) > keep_s


@contextlib.contextmanager
def suppress_kept():
    """Suppress the errors of removing what is open on NFS, and what is gone."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
            raise


def all_below(base):
    """Yield path and state of each directory of a run below *base*, of any user."""
    for name in sorted(os.listdir(base)):
        if SESSION.fullmatch(name):
            path = os.path.join(base, name)
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(path)
                if stat.S_ISDIR(state.st_mode):
                    yield path, state


def others(base, own=None):
    """Yield the directories of this user's runs below *base*, but *own*. Raises Held if root has changed settings."""
    for path, state in all_below(base):
        if state.st_uid == 0 != os.geteuid() and state.st_mode & stat.S_ISVTX:
            raise lock.Held(
                f"settings of the SUT are changed by a run of root in {path}, which is running or was killed",
                lock.run_of(os.path.basename(path)),
            )
        if state.st_uid == os.geteuid() and os.path.basename(path) != own:
            try:
                other = Directory(path)
            except Refused:
                if os.path.lexists(path):
                    raise
                continue
            with other:
                yield other


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
