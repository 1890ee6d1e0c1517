# SPDX-License-Identifier: Apache-2.0
"""What a run does with a SUT: reserve it, change and restore its settings, release it.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import inspect
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

from ansible.module_utils import sut_files as files
from ansible.module_utils import sut_guardian, sut_prefetchers, sut_reservations
from ansible.module_utils import sut_settings as settings
from ansible.module_utils.sut_files import Refused, printable
from ansible.module_utils.sut_reservations import MAX_FAULTS, RELEASE_S, Held, Reservation

READABLE = 0o755
"""Permissions of a reservation."""

GUARDIAN = "guardian.py"
"""The name of the guardian's program in the run's directory."""

READY_S = 20
"""Time for a guardian to start on a busy SUT."""

RESTORE_S = RELEASE_S + files.END_WAIT_S + settings.HUGE_PAGES_TRIES * settings.TRY_S + 60
"""Time for a run to restore everything, during which the guardian leaves it to the run."""

OUTPUT_BYTES = 1024
"""Limit on the output of a guardian that fails to start: the last line has the reason."""

TRIES = 8
"""Attempts to reserve a SUT that others reserve and release at the same time."""


# Reserve


def check_parent(path):
    """Raise Refused if others could replace the reservation at *path*."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        raise Refused(f"no directory {parent} for the reservation: create it or correct reserve_path")
    unsafe = files.unsafe_places(parent, os.geteuid())
    if unsafe:
        places = "; ".join("%(path)s: %(reason)s" % place for place in unsafe)
        raise Refused(
            f"others could replace the reservation {path}: {places}; make each directory root's, and writable by root "
            "alone or sticky (mode 1777)"
        )


def describe_taken(found, why, changes):
    """Return the report on a reservation that was taken over."""
    shown = {name: printable(text) for name, text in found.holder.items() if isinstance(text, str)}
    return {"holder": shown, "why": why, "changes": settings.group_changes(changes)}


def remove_stale(path, machine, wanted, *, resume, check_mode):
    """Restore and remove a stale reservation at *path*; return the report on it, or None if there was none.

    Raises Held if the SUT is reserved, Refused if what is there cannot be removed.
    """
    found = Reservation.find(path, machine)
    if found is None:
        return None
    with contextlib.closing(found):
        held = f"the SUT is reserved by {found.description()}; {found.how_to_break()}"
        same_run = all(found.holder[name] == wanted[name] for name in ("run_id", "sut"))
        if not found.trusted and os.geteuid() != 0:
            raise Held(held)
        this_boot, resumed = found.of_this_boot(), False
        if check_mode:
            if not found.take_lock() and not same_run:
                raise Held(held)
            return describe_taken(found, "would be taken over", [])
        if found.take_lock():
            why = "its guardian is gone" if this_boot else "the SUT was restarted"
        elif same_run and resume and found.trusted:
            found.renew(READY_S + RELEASE_S)
            why, resumed = "its run is resumed", True
        else:
            raise Held(held)
        if found.lock is not None and not found.is_current():
            return None  # another process removed it first
        try:
            changes, _ = found.restore("cleanup")
            if resumed:
                found.end_guardian()
        except (Refused, OSError) as error:
            raise Refused(f"cannot restore what {found.description()} left on the SUT: {error}") from error
        found.remove()
        return describe_taken(found, why, changes)


def guardian_commands(machine):
    """Return command prefixes to start a guardian, best first.

    Ending a systemd session may end all its processes. As root, the guardian gets a scope of its own if systemd runs;
    otherwise a POSIX session of its own.
    """
    ways = []
    if os.geteuid() == 0 and machine.root == "" and os.path.isdir("/run/systemd/system"):
        program = shutil.which("systemd-run", path="/usr/bin:/bin")
        if program:
            ways.append([program, "--scope", "--quiet", "--collect", "--slice=system.slice", "--"])
    return [*ways, []]


def guardian_sources():
    """Return the guardian's program and the modules that it imports, by file name."""
    modules = (sut_reservations, settings, sut_prefetchers, files)
    named = {f"{module.__name__.rpartition('.')[2]}.py": module for module in modules}
    return {name: inspect.getsource(module) for name, module in {GUARDIAN: sut_guardian, **named}.items()}


def start_guardian(place, directory, lock, *, lease_s, machine):
    """Start the guardian of the reservation at *place* that holds *lock*; return its process id."""
    for name, text in guardian_sources().items():
        with open(os.path.join(directory, name), "w") as stream:
            stream.write(text)
    program = os.path.join(directory, GUARDIAN)
    until = int(machine.uptime_s() + lease_s + 1)
    python = sys.executable or "/usr/bin/python3"
    # A file, because the guardian outlives the reader of a pipe. It is removed with the run's directory.
    with open(os.path.join(directory, "guardian.err"), "x+b") as errors:
        for way in guardian_commands(machine):
            reader, writer = os.pipe()
            os.set_inheritable(writer, True)
            try:
                command = [*way, python, "-I", "-S", "-B", program, place, directory]
                process = subprocess.Popen(
                    [*command, str(lock), str(writer), str(until), machine.root],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                    pass_fds=(lock, writer),
                    start_new_session=True,
                )
                os.close(writer)
                writer = None
                ready, _, _ = select.select([reader], [], [], READY_S)
                if ready and os.read(reader, 1) == b"r":
                    process.returncode = 0  # it outlives this process: do not wait for it
                    return process.pid
                process.kill()
                code = process.wait()
            finally:
                os.close(reader)
                if writer is not None:
                    os.close(writer)
        errors.seek(-min(errors.tell(), OUTPUT_BYTES), os.SEEK_END)
        output = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    reason = printable(output) if output else f"exit code {code}"
    raise Refused(f"the guardian does not start with {python}: {reason}; nothing was changed")


def allow_reading(directory):
    """Let all users read *directory*, regardless of the umask."""
    os.chmod(directory, READABLE)


def prepare(path, machine, base, wanted, *, lease_s):
    """Create a reservation with its guardian beside *path*; return (its path, its lock, its holder)."""
    name = "%s%s-%s-%s" % (files.PREFIX, wanted["run_id"], wanted["sut"], os.urandom(4).hex())
    directory, boot_id, token = os.path.join(base, name), machine.boot_id(), os.urandom(16).hex()
    holder = dict(wanted, directory=directory, boot_id=boot_id, guardian=None, token=token)
    made = []
    lock = None
    try:
        place = tempfile.mkdtemp(prefix="%s.%s." % (os.path.basename(path), boot_id), dir=os.path.dirname(path))
        made.append(place)
        here = files.open_directory(place)
        try:
            # With these two, the next reservation finds all leftovers of a restart at any moment.
            files.write_synced(sut_reservations.HOLDER, json.dumps(holder), 0o644, here)
            os.mkdir(directory, 0o700)
            made.append(directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            lock = os.open(sut_reservations.ALIVE, flags, 0o600, dir_fd=here)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.set_inheritable(lock, True)
            os.mkfifo(sut_reservations.LEASE, 0o600, dir_fd=here)
            guardian = start_guardian(place, directory, lock, lease_s=lease_s, machine=machine)
            holder["guardian"] = guardian
            try:
                os.unlink(sut_reservations.HOLDER, dir_fd=here)
                text = json.dumps(holder, indent=1, sort_keys=True) + "\n"
                files.write_synced(sut_reservations.HOLDER, text, 0o644, here)
                files.write_synced(sut_reservations.RUN, "%s %d\n" % (token, guardian), 0o644, here)
                allow_reading(place)
                os.fsync(here)
            except OSError:
                os.kill(guardian, signal.SIGKILL)
                raise
        finally:
            os.close(here)
    except (Refused, OSError):
        if lock is not None:
            os.close(lock)
        for item in made:
            shutil.rmtree(item, ignore_errors=True)
        raise
    return place, lock, holder


def hold(path, machine, base, wanted, *, lease_s, resume=False, check_mode=False):
    """Reserve the SUT; return (its holder, the report on a stale reservation). Raises Held or Refused."""
    check_parent(path)
    taken = remove_stale(path, machine, wanted, resume=resume, check_mode=check_mode)
    if check_mode:
        directory = os.path.join(base, "%s%s-%s-checkmode" % (files.PREFIX, wanted["run_id"], wanted["sut"]))
        absent = {"directory": directory, "boot_id": machine.boot_id(), "guardian": None, "token": "0" * 32}
        return dict(wanted, **absent), taken
    sut_reservations.remove_abandoned(path, machine)
    try:
        place, lock, holder = prepare(path, machine, base, wanted, lease_s=lease_s)
    except OSError as error:
        raise Refused(f"the SUT cannot be reserved at {path} with a directory in {base}: {error}") from error
    try:
        for _ in range(TRIES):
            if move(place, path):
                os.close(lock)  # now held by the guardian
                return holder, taken
            taken = remove_stale(path, machine, wanted, resume=resume, check_mode=check_mode) or taken
    except (Refused, OSError):
        discard(place, lock, holder)
        raise
    discard(place, lock, holder)
    raise Refused(f"others keep reserving the SUT at {path}: try later")


def move(place, path):
    """Move a reservation to its path; return whether nobody else's is there."""
    try:
        os.rename(place, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            return False
        raise Refused(f"the SUT cannot be reserved at {path}: {error.strerror}") from error
    return True


def discard(place, lock, holder):
    """Remove a reservation that was not moved to its path."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder["guardian"], signal.SIGKILL)
    os.close(lock)
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(holder["directory"], ignore_errors=True)


# Change and restore settings


@contextlib.contextmanager
def own_reservation(path, machine, token, lease_s=None):
    """Open the reservation with *token* in the block; extend its lease to *lease_s*.

    Raises Refused if the SUT is no longer reserved for that run.
    """
    found = Reservation.find(path, machine)
    with contextlib.closing(found) if found else contextlib.nullcontext():
        own = found is not None and found.trusted and found.holder["token"] == token
        if not own or not found.of_this_boot() or found.take_lock():
            raise Refused(
                f"the SUT is no longer reserved for this run at {path}: its lease expired, or the run was stopped"
            )
        if lease_s is not None:
            found.renew(lease_s)
        yield found


def changes_of(entries):
    """Return *entries* as changes already made, grouped if only a number differs."""
    return settings.group_changes([entry.change(entry.wanted) for entry in entries if entry.wanted is not None])


def tune(path, machine, token, wanted, *, lease_s, check_mode=False):
    """Change the settings *wanted*; return (changes, mark for restoring them before the end of the run).

    If one fails, restores all of them and raises Refused.
    """
    if check_mode:
        return changes_of(settings.plan_changes(machine, wanted)), 0
    with own_reservation(path, machine, token, lease_s) as found:
        try:
            entries = settings.plan_changes(machine, wanted)
        except OSError as error:
            raise Refused(f"the SUT's settings cannot be read: {error}; nothing was changed") from error
        mark = found.write_journal(entries)
        for count, entry in enumerate(entries):
            if entry.wanted is None:
                continue
            try:
                settings.apply_change(machine, entry)
            except Refused as error:
                reached = count if isinstance(error, settings.CpuOffline) else count + 1
                _, faults = settings.restore_all(machine, entries[:reached], "run")
                if faults:
                    raise Refused(f"{error}. Not restored: {'; '.join(faults[:MAX_FAULTS])}") from error
                found.cut_journal(mark)
                raise Refused(f"{error}. The changes so far were restored") from error
        return changes_of(entries), mark


def untune(path, machine, token, mark, *, lease_s):
    """Restore what was changed since *mark*, in reverse, before the end of the run; return the changes.

    Raises Refused if a setting cannot be restored: it stays in the journal and is tried again at the end.
    """
    with own_reservation(path, machine, token, lease_s) as found:
        changes, faults = settings.restore_all(machine, found.journal(mark), "run")
        if faults:
            raise Refused("; ".join(faults[:MAX_FAULTS]))
        found.cut_journal(mark)
        return settings.group_changes(changes)


def record(path, machine, token, entries):
    """Record *entries* to be restored at the end of the run, before starting a program that may change them.

    Raises Refused if the SUT is no longer reserved for the run, or its journal cannot be written.
    """
    with own_reservation(path, machine, token) as found:
        known = {item.line() for item in found.journal()}
        found.write_journal([entry for entry in entries if entry.line() not in known])


# Release


def private_directories(base, run_id, sut):
    """Return the directories of runs with this identifier for this SUT in *base*."""
    name = re.compile(re.escape("%s%s-%s-" % (files.PREFIX, run_id, sut)) + "[a-z0-9_]{8}")
    try:
        return [os.path.join(base, item) for item in sorted(os.listdir(base)) if name.fullmatch(item)]
    except FileNotFoundError:
        return []


def release(path, machine, base, run_id, sut, *, changes=(), who="run", check_mode=False):
    """Restore everything and release the SUT, if it is reserved for this run; return the module's answer.

    If it no longer is, its guardian has done so: then the current values of *changes*, made by the run, are checked.
    """
    answer = {"changes": [], "ended": [], "released": False, "changed": False}
    found = Reservation.find(path, machine)
    with contextlib.closing(found) if found else contextlib.nullcontext():
        if found is not None and (found.holder["run_id"], found.holder["sut"]) == (run_id, sut):
            if not found.trusted and os.geteuid() != 0:
                raise Refused(
                    f"the reservation {path} belongs to {files.user_name(found.owner)}: clean up as that user or as "
                    "root (--become)"
                )
            answer["changed"] = True
            if check_mode:
                return answer
            if not found.take_lock():
                # The guardian stays active while settings are restored: this process may be killed meanwhile.
                found.renew(RESTORE_S)
            restored, answer["ended"] = found.restore(who)
            answer["changes"] = settings.group_changes(restored)
            if found.lock is None:
                found.end_guardian()
            found.remove()
            answer["released"] = True
        elif changes:
            if found is not None and not found.take_lock():  # another run's values tell nothing
                answer["changes"] = [dict(change, restored=None, restored_by=None) for change in changes]
            else:
                answer["changes"] = settings.group_changes(settings.read_again(machine, changes, "guardian"))
        if not check_mode:
            sut_reservations.remove_abandoned(path, machine)
        for directory in private_directories(base, run_id, sut):
            if os.lstat(directory).st_uid == os.geteuid():
                answer["changed"] = True
                if not check_mode:
                    answer["ended"] = answer["ended"] + files.remove_private(directory, os.geteuid())
        return answer


def read_state(path, machine):
    """Return the holder of the SUT, and whether its guardian lives; None and False if it is free."""
    found = Reservation.find(path, machine)
    if found is None:
        return None, False
    with contextlib.closing(found):
        if found.trusted or os.geteuid() == 0:
            return found.holder, not found.take_lock() and found.of_this_boot()
        alive = found.holder["guardian"] is not None and os.path.exists("/proc/%d" % found.holder["guardian"])
        return found.holder, alive and found.of_this_boot()
