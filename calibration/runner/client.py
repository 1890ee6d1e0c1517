# SPDX-License-Identifier: Apache-2.0
"""What the controller, or a user of the SUT, asks of a run: start it, hand it the plan, watch it, end it, remove it."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

from calibration.runner import directory as directories
from calibration.runner import files
from calibration.runner.directory import ANSWER, CAPTURE, LOG, PLAN, RUNNER, SIGN, Directory, last_line, uptime_s
from calibration.runner.files import Refused

START_S = 60.0
"""Time for a run to begin on a busy SUT."""

PREPARE_S = 300.0
"""Time for a run to be prepared: a capture stops reading after 60 s, and settings are changed before."""

POLL_S = 0.05

END_S = 20.0
"""Time for a cancelled run to end and to restore everything."""

BATCH_BYTES = 8 << 20
"""Records handed over at once."""

TAKEN_BYTES = 4096
"""Part of an answer after which the run gets a sign of its controller: small, so that a slow link takes many."""

RECEIVED_BYTES = 1 << 20
"""Largest part of a plan and its programs that is received at once."""

PLANLESS = "the run ended while it waited for its plan"

SYSTEMD = "/run/systemd/system"


def machine_of():
    """Return this machine."""
    from calibration.runner import settings  # noqa: PLC0415 - not needed beside a measurement

    return settings.Machine()


def boot_id():
    """Return the identifier of this boot."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()


def python():
    """Return the command of this Python, isolated from the login's environment."""
    return [sys.executable or "/usr/bin/python3", "-I", "-S", "-B"]


def start(base, job, bundle):
    """Reserve the SUT and prepare the run *job*; print its answer and the capture of the SUT in base64.

    *bundle* is this program. Raises Refused, with nothing left behind, or OSError if nobody takes the answer.
    """
    with Directory.create(base, dict(job, boot_id=boot_id(), nodename=os.uname().nodename)) as made:
        try:
            with open(bundle, "rb") as stream:
                made.write_bytes(RUNNER, stream.read())
            spawn(made)
            answer = await_answer(made)
            if "refused" in answer:
                raise Refused(answer["refused"], answer["run_id"], answer["faults"])
            with open(os.path.join(made.path, CAPTURE), "rb") as stream:
                captured = base64.b64encode(stream.read()).decode("ascii")
            with attending(made) as asking:
                header(lambda: sign(asking), **answer, capture=captured)
        except BaseException as error:
            try:
                faults = remove(made)[1]
            except Refused as other:
                raise Refused(f"{error}. {other}") from error
            if faults:
                from calibration.runner import settings  # noqa: PLC0415 - only in this case

                raise Refused(f"{error}. {settings.not_restored(faults)}", faults=faults) from error
            raise


def spawn(made):
    """Start the keeper of the run in the directory *made*, which outlives this process.

    As root under systemd it is a service of its own: the end of a session does not touch it, and systemd restores what
    it was killed before it could restore. In an isolated cpuset partition it is not: a service would leave its CPUs.
    """
    from calibration.runner import capture  # noqa: PLC0415 - not needed beside a measurement

    command = [*python(), os.path.join(made.path, RUNNER), "keep", made.path]
    systemd_run = shutil.which("systemd-run", path="/usr/bin:/bin")
    partition = capture.in_partition(capture.FileCapture())
    if os.geteuid() == 0 and systemd_run and os.path.isdir(SYSTEMD) and not partition:
        restoring = shlex.join([*command[:-2], "restore", made.path])
        only = f"if [ -e {shlex.quote(made.path)} ]; then exec {restoring}; fi"
        service = [
            systemd_run,
            "--quiet",
            "--collect",
            "--unit=%s.service" % made.name,
            "--property=ExecStopPost=/bin/sh -c %s" % quoted(only),
            "--property=TimeoutStopSec=60",
            "--property=LimitMEMLOCK=infinity",
        ]
        # Older releases do not know the property, and do not stop a service for a step that ran out of memory.
        for more in (["--property=OOMPolicy=continue"], []):
            words = [*service, *more, "--", *command]
            if subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return
    with open(os.path.join(made.path, LOG), "ab") as errors:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        ).returncode = 0  # it outlives this process: do not wait for it


def quoted(word):
    """Return *word* for a command of a systemd unit."""
    return '"%s"' % word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")


def await_answer(made):
    """Return the answer of the run in *made*. Raises Refused if it ends without one."""
    began, asking = time.monotonic(), None
    while not made.has(ANSWER):
        waited_s = time.monotonic() - began
        asking = asking or made.connect()
        if asking is None:
            ended = waited_s > START_S
            time.sleep(POLL_S)
        else:
            ended = bool(select.select([asking], [], [], POLL_S)[0])  # nobody writes: it was closed
        if ended and not made.has(ANSWER):
            line = last_line(made)
            if asking is None and not line:
                hint = "the SUT is too busy, or the reason is in its journal: journalctl -u %s" % made.name
                raise Refused("the runner did not begin within %d s: %s" % (START_S, hint))
            raise Refused("the runner ended at once: %s" % (line or "it was told to"))
        if waited_s > PREPARE_S:
            raise Refused("the SUT was not prepared within %d s" % PREPARE_S)
    if asking is not None:
        asking.close()
    return json.loads(files.read_text(ANSWER, 16 << 20, made.descriptor))


def attending(found):
    """Return a connection for signs of the controller to the run *found*, and the first of them."""
    asking = found.connect()
    if asking is None:
        raise Refused(PLANLESS)
    return asking


def sign(asking):
    """Tell the run on the connection *asking* that its controller is there; if the run ended, ``begin`` says so."""
    with contextlib.suppress(OSError):
        asking.send(SIGN)


def receive(stream, asking):
    """Return all of *stream*, with a sign to the run for each part. Raises Refused when the run ends."""
    content = bytearray()
    while True:
        if asking in select.select([stream, asking], [], [])[0]:  # nobody writes: it was closed
            raise Refused(PLANLESS)
        part = os.read(stream.fileno(), RECEIVED_BYTES)
        if not part:
            return bytes(content)
        content += part
        sign(asking)


def begin(path, stream):
    """Unpack the plan and its programs from *stream* into the run's directory, verify them, and have the run begin."""
    import zipfile  # noqa: PLC0415 - not needed beside a measurement

    with Directory(path) as found:
        with attending(found) as asking:
            content = receive(stream, asking)
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            plan = json.loads(packed.read(PLAN))
            for name, sha256 in plan["programs"].items():
                content = packed.read(name)
                found.write_bytes(name, content, 0o700)
                read = found.sha256(name)
                if read != sha256:
                    raise Refused(
                        f"{name} on the SUT has sha256 {read}, not {sha256}: find out what changes files there"
                    )
            found.write(PLAN, packed.read(PLAN).decode("utf-8"))
            with attending(found) as asking:
                asking.settimeout(START_S)
                try:
                    asking.sendall(b"begin\n")
                    if asking.recv(16) != b"ok\n":
                        raise Refused(PLANLESS)
                except OSError as error:
                    raise Refused("the run does not answer: %s" % error) from error


def watch(path, offset, *, at_least_s, at_most_s):
    """Wait for records behind *offset*; return (state, records).

    Returns when there are some, but not before *at_least_s*, at the end of the run, or after *at_most_s*. ``state`` is
    ``running``, ``ended`` (restored, results kept) or ``dead`` (the run's processes were killed, or its directory is
    gone: it may have been in memory when the SUT was restarted).
    """
    if not os.path.lexists(path):
        return "dead", b""
    began = time.monotonic()
    with Directory(path) as found:
        while True:
            asking = found.connect()
            state = "dead"
            if asking is not None:
                with asking:
                    state = follow(found, asking, offset, began + at_least_s, began + at_most_s)
            if state is not None:
                records = found.records_from(offset, BATCH_BYTES)
                return state if not found.records_from(offset + len(records), 1) else "running", records


def follow(found, asking, offset, earliest, latest):
    """Wait on the connection *asking*; return the run's state, None if its process ended meanwhile."""
    asking.setblocking(False)
    try:
        asking.send(b"watch\n")
        while True:
            now = time.monotonic()
            new = bool(found.records_from(offset, 1)) and not found.has_ended()
            if now >= latest or (new and now >= earliest):
                return "running"
            ready, _, _ = select.select([asking], [], [], (earliest if new else latest) - now)
            if ready:
                received = asking.recv(4096)
                if received == b"ended\n":
                    return "ended"
                if not received:
                    return None
    except OSError:
        return None


def processes_of(found):
    """Return the ids of the keeper of the run *found*; empty if it is gone."""
    asking = found.connect()
    if asking is None:
        return []
    with asking:
        return [struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]]


def cancel(path):
    """End the run in the directory *path*; return when it has ended and restored the SUT."""
    with Directory(path) as found:
        if not found.has_ended():
            for keeper in processes_of(found):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGTERM)
        until = time.monotonic() + END_S
        while True:
            asking = found.connect()
            if asking is None:
                return
            with asking:
                asking.settimeout(max(0.1, until - time.monotonic()))
                try:
                    asking.sendall(b"watch\n")
                    received = asking.recv(4096)
                    while received and received != b"ended\n":
                        received = asking.recv(4096)
                except (ConnectionError, BrokenPipeError):
                    received = b""
                except OSError as error:
                    raise Refused("the run does not end within %d s" % END_S) from error
            if received == b"ended\n":
                return


def remove(found):
    """Remove the run *found* from the SUT, after restoring what it has not restored.

    Return (changes, faults): what was changed, by the record of the run if nothing was left to be restored, and what
    is not restored; it stays then.
    """
    cancel(found.path)
    told = found.told_restored()
    if has_removed(found):
        return told[0], []
    from calibration.runner import journal  # noqa: PLC0415 - not needed beside a measurement

    if not journal.is_empty(found.descriptor) and not found.hold():
        raise Refused("another process restores %s: repeat this" % found.path)
    changes, faults = found.restore(machine_of(), "cleanup")
    if not faults:
        with contextlib.suppress(FileNotFoundError):
            found.remove()
    return changes or told[0], faults


def has_removed(found):
    """Return whether the run's process has removed the directory: it does when it has restored everything."""
    asking = found.connect()
    if asking is not None:
        with asking, contextlib.suppress(OSError):
            asking.settimeout(END_S)
            asking.sendall(b"remove\n")
            while asking.recv(16):
                pass
    return not os.path.isdir(found.path)


def restore(path):
    """Restore what the killed run in *path* changed, unless somebody does: the next run, before it begins."""
    if os.path.isdir(path):
        with Directory(path) as found:
            faults = found.restore(machine_of(), "cleanup")[1] if found.hold() else ()
        if faults:
            from calibration.runner import settings  # noqa: PLC0415 - only in this case

            sys.stderr.write(settings.not_restored(faults) + "\n")  # systemd keeps it


def find(base, run_id, sut):
    """Return the directories of the run for the SUT below *base*, oldest first, and whether each has its plan."""
    found = []
    for path in directories.find(base, run_id, sut):
        with contextlib.suppress(Refused), Directory(path) as known:
            found.append({"directory": path, "boot_id": known.job.get("boot_id"), "planned": known.has(PLAN)})
    return found


def header(taken=lambda: None, /, **fields):
    """Print one line of JSON, what the controller reads first; call *taken* for each part that is taken of it."""
    line = json.dumps(dict(fields, now_s=uptime_s())) + "\n"
    for at in range(0, len(line), TAKEN_BYTES):
        sys.stdout.write(line[at : at + TAKEN_BYTES])
        sys.stdout.flush()
        taken()
