# SPDX-License-Identifier: Apache-2.0
"""The testbed as tests see it: SUTs that start when a test first asks for them, and labs that calibrate them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.ansible import support
from tests.testbed.guest import STATE, Sut, start
from tests.testbed.image import MissingProgramError

PATIENCE_S = 900
"""A calibration that takes longer hangs. The slowest here has a step that is given up, on a busy machine."""


class Testbed:
    """The guests of one run of the suite. Those that were running before are used, and left running."""

    __test__ = False

    def __init__(self, directory: Path, state: Path = STATE) -> None:
        self.directory = directory
        self.state = state
        self.started: dict[str, Sut] = {}
        self.used: dict[str, Sut] = {}
        self.inventories = 0

    def sut(self, shape: str, name: str | None = None) -> Sut:
        """Return the running SUT *name* (the shape's name), started if need be."""
        return self.suts((shape, name or shape))[0]

    def suts(self, *wanted: tuple[str, str]) -> list[Sut]:
        """Return several SUTs, given as pairs of shape and name; those that do not run boot at the same time."""
        were = {name for _, name in wanted if Sut(name, self.state).pid is not None}
        try:
            found = start(wanted, bound=True, state=self.state)
        except MissingProgramError as error:
            pytest.skip(str(error))
        for sut in found:
            # The same object for the same guest, as long as it lives: only that one can wait for QEMU's end.
            known = self.used.setdefault(sut.name, sut)
            if sut.name not in were:
                self.used[sut.name] = self.started[sut.name] = sut
            elif known.pid != sut.pid:
                self.used[sut.name] = sut
        return [self.used[name] for _, name in wanted]

    def inventory(
        self,
        groups: Mapping[str, Sequence[Sut]],
        variables: Mapping[str, object] | None = None,
        hosts: Mapping[str, Mapping[str, object]] | None = None,
    ) -> Path:
        """Write an inventory with *variables* for all, and more variables for single *hosts*; return its path."""
        extra = hosts or {}
        children = {
            group: {"hosts": {sut.name: {**sut.inventory(), **extra.get(sut.name, {})} for sut in suts}}
            for group, suts in groups.items()
        }
        self.inventories += 1
        path = self.directory / f"inventory-{self.inventories}.yml"
        path.write_text(
            yaml.safe_dump({"all": {"vars": dict(variables or {}), "children": children}}), encoding="utf-8"
        )
        return path

    def mend(self) -> None:
        """Plug all cables in, and boot again what a test has killed or left unable to answer."""
        for sut in list(self.used.values()):
            if sut.pid is None:
                self.used.pop(sut.name).kill()  # its process is waited for, whatever ended it
                self.started.pop(sut.name, None)
                continue
            sut.link(up=True)

    def stop(self, sut: Sut) -> None:
        """End a guest that no later test is expected to use, unless it was running before."""
        if self.started.pop(sut.name, None):
            self.used.pop(sut.name, None)
            sut.stop()

    def close(self) -> None:
        """End the guests that were started here."""
        for sut in self.started.values():
            sut.stop()


@dataclass(frozen=True)
class Lab(support.Lab):
    """The controller's directories of one test; on the SUTs runs use their usual place."""

    @property
    def remote(self) -> Path:
        """What calibration_remote_base is set to."""
        return Path("/var/tmp")

    @property
    def lock(self) -> str:
        """What calibration_lock is by default."""
        return "calibration"

    def make(self) -> "Lab":
        """Create the directories that must exist."""
        self.home.mkdir(parents=True)
        return self

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the environment of a playbook, with the patience for sudo that an emulated SUT needs."""
        return super().environment(**{"ANSIBLE_TIMEOUT": "120", **extra})

    def calibration_command(self, inventory: Path, *options: str, profile: Path = support.TINY) -> list[str]:
        """Return the command that calibrates the SUTs of an inventory, with this project's exit codes."""
        return [
            *(sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory)),
            *("-e", f"calibration_results_dir={self.results}", "-e", f"calibration_profile={profile}"),
            *("-e", json.dumps({"report_site": False})),
            *options,
        ]

    def calibrate(self, inventory: Path, *options: str, profile: Path = support.TINY, **extra: str) -> support.Ended:
        """Calibrate the SUTs of an inventory."""
        with self.calibrating(inventory, *options, profile=profile, **extra) as running:
            return running.end()

    @contextlib.contextmanager
    def calibrating(
        self, inventory: Path, *options: str, profile: Path = support.TINY, **extra: str
    ) -> Iterator["Running"]:
        """Calibrate the SUTs of an inventory while the block does something to them."""
        command = self.calibration_command(inventory, *options, profile=profile)
        log = self.directory / f"log-{len(list(self.directory.glob('log-*')))}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=support.ROOT,
                env=self.environment(**extra),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        running = Running(process, log)
        try:
            yield running
        finally:
            if process.poll() is None:
                running.send(signal.SIGCONT)
                process.terminate()
                process.wait()

    def resume(self, inventory: Path, *options: str, profile: Path = support.TINY) -> support.Ended:
        """Resume the newest unfinished run."""
        return self.calibrate(inventory, "--resume", *options, profile=profile)

    def newest(self, sut: Sut) -> Path:
        """Return the directory of a SUT's newest run."""
        found = [path for path in self.runs() if path.parent.name == sut.name]
        assert found, f"no run of {sut.name} below {self.results}"
        return found[-1]

    def document(self, sut: Sut) -> RunDocument:
        """Return the document of a SUT's newest run, which must be a valid one."""
        return read_run(self.newest(sut))

    def page(self, sut: Sut) -> str:
        """Return the page of a SUT's newest run."""
        return (self.newest(sut) / "report" / "page.rst").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Running:
    """A calibration that goes on."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def text(self) -> str:
        """All that it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until(self, what: str, seen: Callable[[], bool]) -> None:
        """Wait until something is *seen*; fails when the calibration ends before."""
        end = time.monotonic() + PATIENCE_S
        while not seen():
            assert self.process.poll() is None, f"expected {what} before the calibration ended:\n{self.text}"
            assert time.monotonic() < end, f"expected {what} within {PATIENCE_S} s:\n{self.text}"
            time.sleep(0.5)

    def until_step(self, sut: Sut, subcommand: str, then: str = "true") -> None:
        """Wait until a step's kernel runs on a SUT, and run *then* there as root, in which ``$p`` is its process."""
        # One login that waits and acts: on an emulated CPU that measures, another login may take as long as the step.
        # The pattern is the kernel itself, and neither sudo nor a shell that has the same words in its command line.
        seen = f"until p=$(pgrep -f '^[^ ]*/sutprobe {subcommand} '); do sleep 1; done; {then}"
        with subprocess.Popen(
            sut.ssh_command(seen),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as watch:
            try:
                self.until(f"the step {subcommand} on {sut.name}", lambda: watch.poll() is not None)
            finally:
                watch.kill()
            assert watch.stderr is not None
            said = watch.stderr.read()
        assert watch.returncode == 0, f"expected {then!r} to succeed on {sut.name}, found {watch.returncode}: {said}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the controller and its workers, as a terminal does."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the controller, as the OOM killer does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> support.Ended:
        """Wait for its end."""
        self.process.wait(PATIENCE_S)
        return support.Ended(self.process.returncode, self.text)
