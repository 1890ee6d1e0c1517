# SPDX-License-Identifier: Apache-2.0
"""Stdout callback: shows progress, failures in full, and where the results are.

On a terminal, a live block below the messages shows, per measuring SUT, the step, a description, and the elapsed and
expected remaining time. Elsewhere (a CI log, TERM=dumb) there is one line per event without control characters.

Exit code and cleanup after an interruption are those of ``calibration run``.
"""

from __future__ import annotations

DOCUMENTATION = """
name: progress
type: stdout
short_description: Progress and results of a calibration
description:
  - Shows the progress of each SUT, failures in full, and where the results are.
extends_documentation_fragment:
  - default_callback
author: The calibration harness contributors (!UNKNOWN)
"""

import atexit
import os
import sys
import threading
import time
from collections import Counter
from operator import mul
from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.host_names import names_of, settings_of_host
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ansible.plugins.callback import CallbackBase
from calibration.base.commandline import run_command
from calibration.base.errors import CalibrationError
from calibration.base.files import open_regular
from calibration.base.parsers import parse_json
from calibration.base.text import HarmlessStream, duration, message, visible
from calibration.results.layout import RECORDS
from calibration.results.store import read_run

MEASURE = "calibration.harness.measure"
CLEANUP = "calibration.harness.cleanup"

REFRESH_S = 1.0
"""Refresh interval of the live block. The controller draws it; the SUTs are not involved."""

MAX_LINE_BYTES = 64 << 20
"""Limit for a record; a step's output is kept up to 16 MiB."""

PHASES = {
    "preflight": "Checking the controller and the SUTs",
    "measure": "Measuring",
    "cleanup": "Cleaning up on the SUTs",
    "report": "Rendering pages and building the site",
}
"""Displayed name of each role's phase; other roles are not displayed."""

SILENT = ("ansible.builtin.validate_argument_spec", "ansible.builtin.assert")
"""Tasks that begin no phase but the first."""

QUIET_S = 30.0
"""Time without a message after which many SUTs are counted as they end: refused ones have been named before."""

MAX_SCREENS = 4
"""With more SUTs, the end of a run has a line per SUT instead of a screen."""


class Progress:
    """Progress of one SUT through its plan, from the records of its run. Times are monotonic, in seconds."""

    def __init__(self, name, records):
        self.name = name
        self.records = records
        self.steps = []
        self.done = Counter()
        self.began = self.step_began = 0.0
        self.read_bytes = 0

    @property
    def left(self):
        """The steps that lack the record of a round, as they are measured: searches, those in rounds, the others."""
        searches = {step["choice"]["step"] for step in self.steps if step.get("choice")}
        lacking = [step for step in self.steps if self.done[step["id"]] < step.get("rounds", 1)]
        return sorted(lacking, key=lambda step: (step["id"] not in searches, step.get("rounds", 1) == 1))

    def follow(self, now):
        """Read the records since the last call, at *now*."""
        try:
            stream = open_regular(Path(self.records))
        except (OSError, CalibrationError):
            return  # not begun
        with stream:
            stream.seek(self.read_bytes)
            while (line := stream.readline(MAX_LINE_BYTES)).endswith(b"\n"):  # else it is still being written
                self.read_bytes += len(line)
                record = parse_json(line)
                if record["record"] == "start":
                    self.steps = record["plan"]["steps"]
                if record["record"] in ("start", "resume"):
                    self.began = self.step_began = now
                elif record["record"] == "step":
                    self.done[record["step"]["id"]] += 1
                    self.step_began = now

    def remaining_s(self, now):
        """Return the expected time until the last step ends; an overdue command counts as finished."""
        left = self.left
        if not left:
            return 0.0
        each_s = [step["expected_duration_s"] / step.get("rounds", 1) for step in left]
        counts = [step.get("rounds", 1) - self.done[step["id"]] for step in left]
        current_s = sum(each_s) / len(each_s) if left[0].get("rounds", 1) > 1 else each_s[0]  # any of a round's steps
        return sum(map(mul, each_s, counts)) - min(current_s, now - self.step_began)

    def line(self, now):
        """Return the live line. A narrow terminal cuts off the title, not the times."""
        left = self.left
        times = f"({duration(now - self.began)} elapsed, about {duration(self.remaining_s(now))} left)"
        if left and (rounds := left[0].get("rounds", 1)) > 1:
            done = [self.done[step["id"]] for step in self.steps if step.get("rounds", 1) > 1]
            place = sum(count > min(done) for count in done)
            return f"{self.name}: round {min(done) + 1} of {rounds}, {place} of {len(done)} steps done {times}"
        number = min(len(self.steps) - len(left) + 1, len(self.steps))
        what = left[0]["title"] if left else "all steps done"
        return f"{self.name}: step {number} of {len(self.steps)} {times}: {what}"


class Screen:
    """Standard output: permanent messages, and on a terminal a block of live lines below them.

    *lock* is that of Ansible's display, which holds it for each message, each write to the terminal and each fork of a
    worker. With a lock of its own, the screen would deadlock with it; those of rich are taken inside it.
    """

    def __init__(self, stream, live, colour, lock):
        self.stream = stream
        self.live = live
        self.colour = colour
        self.lock = lock
        self.console = Console(
            file=stream, color_system="standard" if colour else None, force_terminal=live, force_interactive=live
        )
        self.block = Live(
            console=self.console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self.wrote = time.monotonic()

    def message(self, text, style=""):
        """Print *text* as one message, with control characters and newlines of SUTs neutralised."""
        with self.lock:
            self.clear()
            self.console.print(Text(message(text), style), soft_wrap=True)
            self.wrote = time.monotonic()

    def show(self, story, directory):
        """Show the first screen of the run in *directory*."""
        from calibration.report.show import print_story  # noqa: PLC0415 - slow, and no SUT waits for it

        with self.lock:
            self.clear()
            print_story(story, directory, self.stream, colour=self.colour)

    def clear(self):
        """Erase the live lines, to print something else."""
        with self.lock:
            self.block.stop()

    def draw(self, lines):
        """Show *lines* live, truncated to the terminal's size."""
        if not self.live:
            return
        if len(lines) > self.console.height - 2:
            kept = max(1, self.console.height - 3)
            lines = [*lines[:kept], f"and {len(lines) - kept} more SUTs"]
        with self.lock:
            self.block.start()
            text = Text("\n".join(map(visible, lines)), "dim", no_wrap=True, overflow="ellipsis")
            self.block.update(text, refresh=True)


def terminal_wants(stream, environment):
    """Return (live, colour): whether *stream* supports live lines, and whether to use colour."""
    live = stream.isatty() and environment.get("TERM", "dumb") != "dumb"
    return live, live and not environment.get("NO_COLOR")


class BesideScreen(HarmlessStream):
    """A stream for messages of Ansible and its workers, printed above the live lines of *screen*."""

    def __init__(self, stream, screen):
        super().__init__(stream)
        self._screen = screen

    def write(self, text):
        """Write *text* in place of the live lines, unbuffered: Ansible itself leaves it in a log's buffer."""
        with self._screen.lock:
            self._screen.clear()
            written = super().write(text)
            self.flush()
            self._screen.wrote = time.monotonic()
            return written


def failure_text(result):
    """Return the message of a failure."""
    return str(result.get("msg") or result.get("reason") or "no reason was given").strip()


class CallbackModule(CallbackBase):
    """The stdout callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "calibration.harness.progress"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.screen = Screen(sys.stdout, *terminal_wants(sys.stdout, os.environ), self._display._lock)
        self.phases = set()
        self.progress = {}
        self.measuring = set()
        self.done = 0
        self.finished = {}
        self.shown = set()
        self.site = None
        self.refresher = None
        self.measured = threading.Event()

    # Beginning and end

    def v2_playbook_on_start(self, playbook):
        """Stop the live block when the command ends, in any way."""
        if type(self) is CallbackModule:  # ansible-runner's subclass emits control characters
            # Ansible's own warnings quote SUTs verbatim.
            sys.stdout, sys.stderr = BesideScreen(sys.stdout, self.screen), BesideScreen(sys.stderr, self.screen)
        atexit.register(self.stop_refreshing)

    def v2_playbook_on_no_hosts_matched(self):
        """Do nothing: calibration_outcome reports it."""

    def v2_playbook_on_no_hosts_remaining(self):
        """Do nothing: each SUT's failure has been reported."""

    def v2_playbook_on_task_start(self, task, is_conditional):
        """Report when the first SUT begins a new phase: with some strategies SUTs progress independently."""
        role = task._role.get_name(include_role_fqcn=False) if task._role else None
        if role not in PHASES or role in self.phases or (task.action in SILENT and self.phases):
            return
        self.phases.add(role)
        if not (task.check_mode and role != "preflight"):
            self.screen.message(PHASES[role])

    def v2_playbook_on_stats(self, stats):
        """Print the result of each SUT, and where the results are."""
        self.stop_refreshing()
        if self.finished:
            self.show_finished(stats)
        for name in sorted(self.progress.keys() - self.finished.keys()):
            results, _, _, run_id, _ = self.progress[name].records.rsplit(os.sep, 4)
            again = run_command("--resume", run_id, results=Path(results))
            self.screen.message("")
            self.screen.message(f"{name}: no run document; the SUT completes its run: continue with {again}", "red")
        if not self.finished and self.site:
            self.screen.message(f"  HTML: {self.site}")

    def show_finished(self, stats):
        """Print the result of each SUT that has a document."""
        from calibration.judge.standing import Standings, by_night  # noqa: PLC0415 - slow, and no SUT waits for it
        from calibration.report.story import told  # noqa: PLC0415 - the same

        directories = {name: Path(self.finished[name]["directory"]) for name in sorted(self.finished)}
        many = len(directories) > MAX_SCREENS
        standings = Standings(peers=many)
        machines = {
            run: next(standings.answer(run).lines())[1] for run in by_night(directories.values() if many else ())
        }
        for name, directory in directories.items():
            ended = self.finished[name]
            bad = stats.failures.get(name) or stats.dark.get(name) or ended["status"] != "complete"
            if many:
                self.screen.message(f"{name}: {machines[directory]}", "red" if bad else "")
                continue
            self.screen.message("")
            self.screen.show(told(read_run(directory), directory, standings), directory)
            if ended.get("pace"):
                self.screen.message(f"  Measuring took {ended['pace']}")
            self.screen.message(f"  Results: {ended['directory']}")
            if html := self.page_in_site(ended["document"]):
                self.screen.message(f"  HTML: {html}")

    def page_in_site(self, document):
        """Return the SUT's page in the site, or the site's first page if it has another name there."""
        if not self.site or not document:
            return self.site
        testbed, sut = document.split(os.sep)[-4:-2]
        page = os.path.join(os.path.dirname(self.site), "calibration", testbed, sut, "index.html")
        return page if os.path.exists(page) else self.site

    # One SUT's events

    def v2_playbook_on_play_start(self, play):
        """Keep the play, whose variables say where a SUT's records are."""
        self.play = play

    def v2_runner_on_start(self, host, task):
        """Follow the records of a SUT that begins to measure."""
        if task.action == MEASURE and self.screen.live and not task.check_mode:
            self.progress[host.get_name()] = Progress(host.get_name(), self.records_of(host, task))
            self.measuring.add(host.get_name())
            self.start_refreshing()

    def records_of(self, host, task):
        """Return the path of the records of *host*'s run."""
        variables = self.play.get_variable_manager().get_vars(play=self.play, host=host, task=task)
        known, template = settings_of_host(variables, self.play.get_loader())
        testbed, sut = names_of(known, template)
        results = str(template(known["calibration_results_dir"]))
        return os.path.join(results, testbed, sut, str(known.get("calibration_run_id")), RECORDS)

    def v2_runner_on_ok(self, result):
        """Keep what the summary uses."""
        self.task_ended(result)
        # Ansible copies the result on each access.
        if result.result.get("fit") is False:  # the action said why
            self.shown.update((result.host.get_name(), line) for line in result.result["reason"].split("\n"))
        if result.task.action == MEASURE and "plan" in result.result:
            self.planned(result.host.get_name(), result.result["plan"])
        elif result.task.action == "calibration.harness.report":
            self.site = result.result["site"]
        elif result.task.action == "calibration.harness.publish":
            self.screen.message(f"Published: {result.result['current']}")
        self.show_details(result)

    def planned(self, name, plan):
        """Show each step of a SUT's plan, in check mode."""
        steps = plan["steps"]
        self.screen.message(
            f"{name}: {len(steps)} step{'s' * (len(steps) > 1)}, about {duration(plan['expected_duration_s'])}"
        )
        for number, step in enumerate(steps, 1):
            self.screen.message(f"  {number}. {step['title']}: {' '.join(step['argv'])}")
        for omitted in plan["not_planned"]:
            self.screen.message(f"  Skipped: {omitted['what']}: {omitted['reason']}")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Show a failure in full, once."""
        self.task_ended(result)
        self.say(result.host.get_name(), failure_text(result.result), "red")
        self.show_details(result)

    def v2_runner_on_unreachable(self, result):
        """Show that a SUT cannot be reached."""
        self.task_ended(result)
        self.say(result.host.get_name(), f"not reachable: {failure_text(result.result)}", "red")
        self.show_details(result)

    def v2_runner_on_skipped(self, result):
        """Do nothing."""
        self.task_ended(result)

    def task_ended(self, result):
        """Remove the live line of a SUT that finished measuring; keep the outcome if it has a document."""
        if result.task.action in (MEASURE, CLEANUP) and result.result.get("run"):
            self.finished[result.host.get_name()] = result.result["run"]
        if result.task.action == MEASURE:
            self.measuring.discard(result.host.get_name())
            if not self.measuring:
                self.stop_refreshing()
            self.done += 1
            if self.done > MAX_SCREENS and time.monotonic() > self.screen.wrote + QUIET_S:
                self.screen.message(f"{self.done} SUTs are done")

    def say(self, name, text, style=""):
        """Show the lines of *text* about SUT *name* that were not shown yet."""
        new = [line for line in text.split("\n") if (name, line) not in self.shown]
        if new:
            self.shown.update((name, line) for line in new)
            self.screen.message("\n".join((f"{name}: {new[0]}", *new[1:])), style)

    def show_details(self, result):
        """Show a task with -v, and its result with -vv or if it failed."""
        if not self._display.verbosity:
            return
        self.screen.message(f"[{result.host.get_name()}] {result.task.get_name()}")
        if self._display.verbosity > 1 or result.is_failed() or result.is_unreachable():
            self.screen.message(self._dump_results(result.result, indent=2))

    # The live block

    def draw(self):
        """Draw the live block."""
        now = time.monotonic()
        measuring = [self.progress[name] for name in sorted(self.measuring)]
        for progress in measuring:
            progress.follow(now)
        self.screen.draw([progress.line(now) for progress in measuring if progress.left])

    def start_refreshing(self):
        """Refresh the live block until the measuring is over."""
        if not self.screen.live or self.refresher is not None:
            return
        self.measured.clear()
        self.refresher = threading.Thread(target=self.refresh, name="progress", daemon=True)
        self.refresher.start()

    def refresh(self):
        """Draw the live block every second."""
        while not self.measured.wait(REFRESH_S):
            self.draw()

    def stop_refreshing(self):
        """Stop refreshing the live block."""
        if self.refresher is not None:
            self.measured.set()
            self.refresher.join()
            self.refresher = None
            self.screen.clear()
