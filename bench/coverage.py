# SPDX-License-Identifier: Apache-2.0
"""Achieved against claimed coverage of intervals: ``python -m bench.coverage COMMAND``.

``run`` repeats a profile on this machine, ``table`` compares the repeats: an interval should hold the median of the
other repeats' values, and a prediction the value of the next. The tables are in docs/method/statistics.rst.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from pydantic import ValidationError

from bench import families
from bench.shares import Share
from bench.tables import table
from calibration.errors import GOOD, VERDICT_FAILED, CalibrationError, EnvironmentLacksError, InputError
from calibration.model import fault_of
from calibration.places import HOME_VARIABLE, SHARE
from calibration.results.layout import RUN, find_runs
from calibration.results.model import RunDocument

TIMES: Final = "times.jsonl"
"""Exit code and wall time of each repeat, in the directory of ``run``."""


def read_runs(paths: Iterable[Path], profile: str) -> list[RunDocument]:
    """Return the runs of *profile* at *paths*, documents, runs or directories of results, in the order they were made.

    The model alone validates them: the committed schema refuses documents of before the change that is measured.
    Raises ``InputError`` if there is none, one cannot be read, or they are of several SUTs.
    """
    files = dict.fromkeys(file for path in paths for file in _documents(path))
    runs = []
    for file in files:
        try:
            runs.append(RunDocument.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError) as error:
            raise InputError(f"{file}: not a run document: {fault_of(error)}") from error
    runs = [run for run in runs if run.run.profile == profile]
    if not runs:
        raise InputError(f"no run of the profile {profile}")
    if len({(run.run.testbed, run.run.sut) for run in runs}) > 1:
        raise InputError("the runs are of several SUTs")
    return sorted(runs, key=lambda run: (run.run.started_at, run.run.id))


def _documents(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / RUN).is_file():
        return [path / RUN]
    return [run / RUN for run in find_runs(path / "results" if (path / "results").is_dir() else path)]


def repeat(profile: str, repeats: int, folder: Path, say: Callable[[str], None]) -> list[float]:
    """Run *profile* on this machine *repeats* times with *folder* as home; return the wall time of each in seconds.

    Raises ``EnvironmentLacksError`` if a run ends with anything but a verdict.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, HOME_VARIABLE: str(folder.absolute())}
    local = str(SHARE / "ansible" / "inventories" / "localhost")
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", local, "--profile", profile]
    times = []
    for number in range(1, repeats + 1):
        log = folder / f"run-{number}.log"
        began = time.monotonic()
        with log.open("wb") as stream:
            done = subprocess.run(
                command,
                cwd=SHARE,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        times.append(time.monotonic() - began)
        row = {"profile": profile, "exit_code": done.returncode, "wall_s": round(times[-1], 1)}
        with (folder / TIMES).open("a", encoding="utf-8") as stream_of_times:
            stream_of_times.write(json.dumps(row) + "\n")
        say(f"{number} of {repeats}: {times[-1]:.1f} s, exit code {done.returncode}")
        if done.returncode not in {GOOD, VERDICT_FAILED}:
            raise EnvironmentLacksError(f"run {number} ended with {done.returncode}; see {log}")
    return times


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def coverage() -> None:
    """Measure how often intervals hold what they claim to."""


@coverage.command("run")
@click.option("--profile", default="quick", show_default=True, help="A profile's name, or the path of a .yml file.")
@click.option("--repeats", type=click.IntRange(1), default=10, show_default=True)
@click.option("--out", "folder", type=click.Path(path_type=Path, file_okay=False), required=True)
def run_command(*, profile: str, repeats: int, folder: Path) -> None:
    """Repeat a profile on this machine; results, pages and wall times go to the directory --out."""
    times = repeat(profile, repeats, folder, lambda text: click.echo(text, err=True))
    click.echo(f"{profile}: median {median(times):.1f} s, {min(times):.1f} to {max(times):.1f} s, {len(times)} runs")


@coverage.command("table")
@click.argument("paths", metavar="RUN|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--profile", default="quick", show_default=True, help="Only runs of this profile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def table_command(*, paths: tuple[Path, ...], profile: str, as_json: bool) -> None:
    """Print achieved against claimed coverage by family, from repeated runs of one profile."""
    runs = read_runs(paths, profile)
    rows = families.families(runs)
    if as_json:
        known = {"runs": [run.run.id for run in runs], "families": [_plain(row) for row in rows]}
        click.echo(json.dumps(known, indent=1))
        return
    click.echo("\n".join(table(families.HEAD, [families.cells(row) for row in rows])))


def _plain(row: families.Family) -> dict[str, Any]:
    return {name: value._asdict() if isinstance(value, Share) else value for name, value in row._asdict().items()}


def main() -> None:
    """Run the command line; errors become one message and their exit code."""
    try:
        coverage()
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
