# SPDX-License-Identifier: Apache-2.0
"""Achieved against claimed coverage of intervals: ``python -m bench.coverage COMMAND``.

``run`` repeats a profile on this machine, ``table`` compares the repeats: an interval should hold the median of the
other repeats' values, and a prediction the value of the next. ``record`` records placements for minutes, ``noise``
draws runs of several designs from such a recording (bench/noise.py). ``simulate`` does the same with known variances
(bench/nested.py). The tables are in docs/method/statistics.rst.
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

from bench import families, nested, noise
from bench.contenders import allowed_cpus, describe_machine
from bench.outputs import NotComparedError
from bench.peers import program_of, tick_hz_of
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


@coverage.command("record")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def record_command(*, minutes: float, out: Path) -> None:
    """Record single placements of a few metrics in alternation, for the command noise."""
    program = program_of()
    try:
        machine = describe_machine(Path("/"), allowed_cpus(), tick_hz_of(program))
        recording = noise.record(machine, list(noise.commands(machine, program)), minutes)
    except NotComparedError as error:
        raise EnvironmentLacksError(str(error)) from error
    out.write_text(recording.model_dump_json() + "\n", encoding="utf-8")
    click.echo(f"{out}: {len(recording.series[0].values)} placements of {len(recording.series)} metrics")


@coverage.command("noise")
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--run-s", type=click.FloatRange(1), default=40.0, show_default=True, help="Duration of a run.")
@click.option("--pause-s", type=click.FloatRange(0), default=5.0, show_default=True, help="Time between two runs.")
def noise_command(*, recording: Path, run_s: float, pause_s: float) -> None:
    """Print the coverage of runs drawn from a recording, rounds back to back or spread over the run."""
    try:
        read = noise.Recording.model_validate_json(recording.read_bytes())
    except ValidationError as error:
        raise InputError(f"{recording}: not a recording: {fault_of(error)}") from error
    click.echo("\n".join(table(noise.HEAD, list(noise.rows(read, run_s, pause_s)))))


@coverage.command("simulate")
@click.option("--runs", type=click.IntRange(10), default=5000, show_default=True, help="Simulated runs per cell.")
def simulate_command(runs: int) -> None:
    """Print the coverage of intervals / predictions in simulated runs, by variance of rounds over placements."""
    click.echo("\n".join(table(nested.HEAD, list(nested.rows(runs)))))
    click.echo("\nRounds added to six until the half-width is the target, in standard deviations of a round:\n")
    click.echo("\n".join(table(nested.STOPPED_HEAD, list(nested.stopped_rows(runs)))))


def main() -> None:
    """Run the command line; errors become one message and their exit code."""
    try:
        coverage()
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
