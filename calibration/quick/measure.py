# SPDX-License-Identifier: Apache-2.0
"""Measures the sentinels of an inventory: ``calibration run`` in a process of its own, into results of its own.

The runs are no nights of the lab: they are kept beside the gate's log, with copies of what the lab's results know of
its platforms, so that the same traffic is measured.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import yaml

from calibration.base.errors import BAD_INPUT, INTERRUPTED, EnvironmentLacksError, InputError
from calibration.gates.live import host_of, read_inventory
from calibration.profiles import load_profile
from calibration.results.kept_shapes import merge_references
from calibration.results.layout import REFERENCES, RUN, find_runs, new_run_id
from calibration.results.model import RunDocument
from calibration.results.store import read_run

PROFILE: Final = "sentinel"

FORKS: Final = 100
"""SUTs measured at the same time, unless the operator says otherwise. Each takes about 30 MiB of the controller."""

FORKS_VARIABLE: Final = "ANSIBLE_FORKS"
"""Ansible's own variable, which ``calibration run`` obeys."""

LOG: Final = "run.log"
"""The output of ``calibration run``, in the directory of the gate's log."""

LOG_BYTES: Final = 1 << 16
"""Bytes of the end of the log that are read for them."""

LOG_LINES: Final = 15
"""Last lines of the log in the message if it ended without a document."""


@dataclass(frozen=True)
class Wanted:
    """Whom to measure: the *inventory* and part of it as for ``ansible-playbook``, ``None`` for its own defaults.

    *variables* are extra variables, NAME=VALUE; *forks* is how many SUTs are measured at the same time.
    """

    inventory: Path | None
    limit: str | None
    variables: tuple[str, ...]
    forks: int | None = None


class Sentry:
    """Measures into *folder*/runs, as the lab of *results* would."""

    def __init__(self, folder: Path, results: Path, wanted: Wanted) -> None:
        """Copy what *results* know of platforms. Raises ``InputError`` if that cannot be read."""
        self.folder = folder
        self.runs = folder / "runs"
        self._wanted = wanted
        self.runs.mkdir(exist_ok=True)
        shutil.rmtree(self.runs / REFERENCES, ignore_errors=True)
        for fault in merge_references(self.runs, results):
            raise InputError(fault)
        (folder / LOG).unlink(missing_ok=True)

    def measure(self, kinds: Iterable[str] | None = None, suts: Sequence[tuple[str, str]] = ()) -> list[RunDocument]:
        """Measure the sentinels, or only *kinds* on *suts* again; return the documents of all SUTs, reached or not.

        Raises ``InputError`` if the inventory or an option is wrong, ``EnvironmentLacksError`` if nothing came of it.
        """
        run_id = new_run_id(datetime.now(UTC))
        profile = PROFILE if kinds is None else str(self._profile_of(set(kinds)))
        code = self._run(self._command(run_id, profile, suts))
        found = [read_run(path / RUN) for path in find_runs(self.runs) if path.name == run_id]
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if not found:
            with (self.folder / LOG).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
                last = "\n".join(log.read().decode("utf-8", "replace").splitlines()[-LOG_LINES:])
            error = InputError if code == BAD_INPUT else EnvironmentLacksError
            raise error(f"no SUT was measured; {self.folder / LOG} ends with:\n{last}")
        return found

    def _profile_of(self, kinds: set[str]) -> Path:
        """Write the part of the profile with *kinds*, and return its path."""
        profile = load_profile(PROFILE)
        settings = {kind: item.model_dump(mode="json") for kind, item in profile.measurements.items() if kind in kinds}
        path = self.folder / f"{PROFILE}.yml"
        path.write_text(
            yaml.safe_dump({"title": profile.title, "rounds": profile.rounds, "measurements": settings}),
            encoding="utf-8",
        )
        return path.absolute()

    def _command(self, run_id: str, profile: str, suts: Sequence[tuple[str, str]]) -> list[str]:
        ours = {"calibration_results_dir": str(self.runs.absolute()), "calibration_run_id": run_id}
        limit = self._wanted.limit
        if suts:
            hosts = read_inventory(self._wanted.inventory)
            limit = ",".join(host_of(hosts, testbed, sut) for testbed, sut in suts)
        options = [] if self._wanted.inventory is None else ["-i", str(self._wanted.inventory)]
        options += [] if limit is None else ["--limit", limit]
        if self._wanted.forks is not None or FORKS_VARIABLE not in os.environ:
            options.append(f"--forks={self._wanted.forks or FORKS}")
        for variable in (*self._wanted.variables, json.dumps(ours)):
            options += ["-e", variable]
        return [
            *(sys.executable, "-m", "calibration.cli", "run", "--profile", profile),
            *("--skip-tags=pages", *options),
        ]

    def _run(self, command: Sequence[str]) -> int:
        """Run *command* with its output in the log, and return its exit code."""
        with (self.folder / LOG).open("ab") as log:
            return run_to_end(command, log)


def run_to_end(command: Sequence[str], output: BinaryIO, directory: Path | None = None) -> int:
    """Run *command* in *directory* with its *output*, and return its exit code; it cleans up if this is interrupted.

    SIGTERM interrupts too, and SIGHUP of a terminal that is gone, unless it is ignored (nohup).
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
