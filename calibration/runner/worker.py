# SPDX-License-Identifier: Apache-2.0
"""What a run does on a SUT, in a process of its own: settings, context, steps.

Its parent, the keeper (``keeper.py``), only waits for it and restores the SUT. While sutprobe measures, both sleep.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from calibration.runner import capture, files, journal, lock, processes, settings
from calibration.runner.bmc import Bmc
from calibration.runner.directory import ANSWER, CAPTURE, MESSAGE_BYTES, PLAN, PROGRAM, SIGN, STEP_BYTES, uptime_s
from calibration.runner.files import Refused
from calibration.runner.health import Health
from calibration.runner.rounds import Rounds
from calibration.runner.surroundings import Surroundings, sensors

GRACE_S = 60.0
"""Time beyond its own deadline after which a step hangs."""

DRIVER = "/sys/module/msr"
"""Exists if the kernel provides access to model-specific registers."""


class Cancelled(Exception):
    """The run was asked to end."""


def keep_off_measured_cpus(machine):
    """Move to CPUs that are not isolated if the login may choose; else to its last: the first are measured first.

    A process in an isolated cpuset partition stays where it began, because nothing balances the load.
    """
    collector = capture.FileCapture(machine.root)
    quiet = capture.isolated_cpus(collector) | (capture.cpus_in(collector, capture.CPU + "/nohz_full") or set())
    allowed = os.sched_getaffinity(0)
    if allowed & quiet:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed - quiet or {max(allowed)})


class Worker:
    """The work of one run in *directory*, with its *lock* and its *control* socket."""

    def __init__(self, directory, machine, lock_socket, control):
        self.directory = directory
        self.machine = machine
        self.job = directory.job
        self.lock = lock_socket
        self.control = control
        self.state = "preparing"
        self.plan_came = directory.has(PLAN)  # without a controller
        self.heard = 0.0  # when the controller last gave a sign
        self.watching = []
        self.loop = processes.Loop()
        self.loop.services = {lock_socket.fileno(): self.tell_holder, control.fileno(): self.accept}
        self.affinity = os.sched_getaffinity(0)
        self.switched = False
        self.mark = None
        self.refused = None  # why the prefetchers are not switched off
        self.stuck = None  # why they are not all on again
        self.bmc = Bmc(self.ask) if self.job.get("bmc_ok") else None

    # Others

    def tell_holder(self):
        """Tell other users who holds the SUT."""
        known = {name: self.job.get(name) for name in ("run_id", "host", "controller", "started_at")}
        lock.tell(self.lock, {**known, "directory": self.directory.path, "state": self.state})

    def accept(self):
        """Accept a connection of this user."""
        with contextlib.suppress(BlockingIOError):
            asking = self.control.accept()[0]
            asking.setblocking(False)
            self.heard = time.monotonic()
            self.loop.services[asking.fileno()] = lambda: self.hear(asking)

    def hear(self, asking):
        """Act on a message: a sign of the controller, ``begin`` (the plan is there) or ``watch`` (tell of records)."""
        try:
            message = asking.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        self.heard = time.monotonic()
        if message == b"watch\n":
            self.watching.append(asking)
            return
        if message and not message.strip(SIGN):
            return
        del self.loop.services[asking.fileno()]
        if asking in self.watching:
            self.watching.remove(asking)
        if message == b"begin\n":
            self.plan_came = True
            with contextlib.suppress(OSError):
                asking.send(b"ok\n")
        asking.close()

    def record(self, **fields):
        """Append a record, and wake those who watch."""
        self.directory.record(**fields)
        for asking in list(self.watching):
            try:
                asking.send(b"\n")
            except BlockingIOError:
                pass  # it has bytes to read yet
            except OSError:
                self.watching.remove(asking)

    def check_cancelled(self):
        """Raise Cancelled if the run was asked to end."""
        if self.loop.cancelled:
            raise Cancelled

    # The run

    def work(self):
        """Do the run to its end, and record why it ended."""
        try:
            try:
                answer = self.prepare()
            except (Refused, OSError, subprocess.SubprocessError) as error:
                refused = error if isinstance(error, Refused) else Refused(str(error))
                self.directory.write(ANSWER, json.dumps(refused.answer()))
                return
            self.directory.write(ANSWER, json.dumps(answer))
            plan = self.await_plan()
            if plan is None:
                return
            self.state = "measuring"
            self.measure(plan)
            self.record(record="done")
        except Cancelled:
            self.record(record="cancelled")

    def prepare(self):
        """Restore what an earlier run left, change the settings, capture the context; return the answer."""
        taken_over = self.directory.tidy_others(self.machine)
        self.check_cancelled()
        if self.job["settings"]:
            self.directory.refuse_beside_others(self.machine)
        changes, _ = journal.change(
            self.machine, self.directory.descriptor, self.job["settings"], lambda: self.loop.cancelled
        )
        captured = capture.capture(
            uname_a=uname_a(),
            sleep=self.sleep,
            patterns=self.job.get("asked") or (),
            serials=self.job.get("serials_ok", False),
            bmc=self.bmc,
        )
        self.check_cancelled()
        self.directory.write_bytes(CAPTURE, base64.b64decode(captured.pop("archive")))
        keep_off_measured_cpus(self.machine)  # only now: the capture says what the login may use
        return {
            "directory": self.directory.path,
            "boot_id": self.machine.boot_id(),
            "changes": changes,
            "taken_over": taken_over,
        }

    def ask(self, argv, **limits):
        """Run a program of the SUT without privileges beyond its user's; return what ``processes.run`` does."""
        prepare = processes.preparation(self.affinity, ())
        return processes.run(
            self.loop, argv, prepare=prepare, cwd="/", env={"PATH": processes.PATH, "LC_ALL": "C"}, **limits
        )

    def sleep(self, seconds):
        """Sleep, or raise Cancelled."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.loop.wait((), until)
            self.check_cancelled()

    def await_plan(self):
        """Return the plan when it is there; None if the controller gives no sign for ``wait_s``.

        Its connection may seem open long after its end.
        """
        self.state = "waiting for its plan"
        self.heard = time.monotonic()
        while not self.plan_came:
            self.check_cancelled()
            until = self.heard + self.job["wait_s"]
            if time.monotonic() >= until:
                return None
            self.loop.wait((), until)
        return json.loads(files.read_text(PLAN, 64 << 20, self.directory.descriptor))

    def measure(self, plan):
        """Run all steps of *plan*, in rounds, and the programs before and after them."""
        self.directory.reserve(len(plan["steps"]) + 3)  # the rounds share a step's answer
        self.sensors = sensors(self.machine)
        self.health = Health(self.machine, self.bmc)
        try:
            self.run_steps(plan)
        finally:
            self.record(record="health", **self.counted())
        self.check_cancelled()
        if self.switched:
            self.restore_prefetchers()

    def counted(self):
        """Return what the machine counted; if that fails, why: the run ends as it would have."""
        try:
            return self.health.since()
        except Exception as error:  # noqa: BLE001 - a driver's file may hold anything
            nothing = {"elapsed_s": 0.0, "counters": {}, "temperatures_c": {}, "energy": {}}
            return {**nothing, "unreadable": {"everything": repr(error)}}

    def run_steps(self, plan):
        """Run the steps of *plan*. Raises Cancelled."""
        rounds = Rounds(plan)
        grace_s = plan.get("grace_s", GRACE_S)
        for step in plan.get("before", ()):
            self.begin(step, "before the first round")
            self.record(**self.run_step(step, step["argv"], grace_s))
        for number, place, step in rounds:
            self.begin(step, place)
            more = {} if number is None else {"round": number}
            obstacle = self.refused if step.get("prefetchers") == "off" else self.stuck
            obstacle = obstacle or rounds.obstacle(step)
            if obstacle:
                self.record(record="refused", id=step["id"], reason=obstacle, **more)
                continue
            around = Surroundings(self.machine, self.sensors)
            found = self.run_step(step, rounds.argv(step, number), grace_s)
            self.record(**found, around=around.since(), **rounds.keep(step, found), **more)
        for step in plan.get("after", ()):
            self.begin(step, "after the last round")
            self.record(**self.run_step(step, step["argv"], grace_s))

    def begin(self, step, place):
        """Say which step comes next, and switch the prefetchers for it. Raises Cancelled."""
        self.check_cancelled()
        self.health.energy.look()
        self.state = "%s: %s" % (place, step.get("title") or step["id"])
        if self.job.get("shown"):
            sys.stderr.write(self.state + "\n")
        if step.get("prefetchers") == "off":
            self.switch_prefetchers_off()
        elif self.switched:
            self.restore_prefetchers()

    def run_step(self, step, argv, grace_s):
        """Run the command *argv* of one step; return its record."""
        file, *arguments = argv
        path = os.path.join(self.directory.path, file)
        confined = step.get("confined")
        began_s, began = uptime_s(), time.monotonic()
        more = {}
        try:
            if confined is None:
                found = processes.run(
                    self.loop,
                    [path, *arguments],
                    limit_s=step["deadline_s"] + grace_s,
                    max_bytes=STEP_BYTES,
                    prepare=processes.preparation(self.affinity),
                    cwd="/",
                )
                output = found["stdout"].decode("utf-8", "backslashreplace")
            else:
                found, more = self.run_confined(path, step, confined)
                output = base64.b64encode(found["stdout"]).decode("ascii")
        except (Refused, OSError, subprocess.SubprocessError) as error:
            found = {"rc": None, "stderr": b"", "fault": "cannot be started: %s" % error, "out_of_memory": False}
            output = ""
        return {
            "record": "step",
            "id": step["id"],
            "began_s": began_s,
            "duration_s": round(time.monotonic() - began, 3),
            **found,
            "stdout": output,
            "stderr": found["stderr"].decode("utf-8", "backslashreplace"),
            **more,
        }

    def run_confined(self, path, step, confined):
        """Run an operator's program with few privileges in a directory of its own; return the same, and what it did."""
        read = self.directory.sha256(step["argv"][0])
        if read != confined["sha256"]:
            raise Refused(f"the program has sha256 {read}, not {confined['sha256']}")
        arguments = step["argv"][1:]
        kept = confined["kept"]
        watched = confined.get("watch_prefetchers", False)
        entries, unread = settings.read_prefetchers(self.machine) if watched else ([], None)
        may_change = "sys_rawio" in kept
        if may_change and entries:
            self.directory.refuse_beside_others(self.machine)
            journal.append(self.directory.descriptor, entries)
        places = [{"where": DRIVER, "before": driver_state(self.machine)}] if watched else []
        inside = tempfile.mkdtemp(prefix=PROGRAM, dir=self.directory.path)
        try:
            found = processes.run(
                self.loop,
                [confined["interpreter"], path, *arguments] if "interpreter" in confined else step["argv"],
                executable=confined.get("interpreter", path),
                limit_s=step["deadline_s"],
                max_bytes=confined["max_bytes"],
                prepare=processes.preparation(self.affinity, kept),
                merged=confined.get("merged", False),
                cwd=inside,
                env={"PATH": processes.PATH, "LC_ALL": "C", "HOME": inside, "TMPDIR": inside},
            )
        finally:
            shutil.rmtree(inside, ignore_errors=True)
        more = {"user_id": os.geteuid(), "sha256": confined["sha256"]}
        if watched:
            places[0].update(after=driver_state(self.machine), restored=None)
            for entry in entries:
                place = {
                    "where": entry.where,
                    "before": entry.before,
                    "after": settings.current_value(self.machine, entry.where),
                    "restored": None,
                }
                if may_change and place["after"] != entry.before:
                    place["restored"] = settings.restore(self.machine, entry)[0]
                places.append(place)
            more["prefetchers"] = {"places": settings.group_changes(places), "unread": unread}
        return found, more

    # Prefetchers for single steps

    def switch_prefetchers_off(self):
        """Switch the prefetchers off, unless they are; if they cannot be, keep the reason."""
        if self.switched or self.refused:
            return
        if not self.job.get("prefetchers_ok"):
            self.refused = "no consent to switch the prefetchers off"
            return
        try:
            self.directory.refuse_beside_others(self.machine)
            changes, self.mark = journal.change(self.machine, self.directory.descriptor, {"prefetchers": "off"})
        except Refused as error:
            self.refused = f"the prefetchers could not be switched off: {error}"
            self.stuck = self.refused if isinstance(error, journal.NotUndone) else None
            return
        self.switched = True
        if changes:
            self.record(record="switched", changes=changes)

    def restore_prefetchers(self):
        """Restore the prefetchers; what fails is tried again at the end, and steps that need them are not measured."""
        self.switched = False
        if self.mark is not None:
            changes, faults = journal.restore(self.machine, self.directory.descriptor, "run", self.mark)
            self.record(record="switched", changes=changes)
            if faults:
                self.stuck = "the prefetchers are off. %s" % settings.not_restored(faults)


def uname_a():
    """Return the output of ``uname -a``, None if it cannot be run."""
    try:
        words = [shutil.which("uname", path="/usr/bin:/bin") or "uname", "-a"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def driver_state(machine):
    """Return whether the driver is loaded, as text."""
    return "loaded" if machine.exists(DRIVER) else "not loaded"
