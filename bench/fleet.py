# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs its controller: ``python -m bench.fleet`` runs the real playbook against simulated SUTs.

For each number of SUTs: ``playbooks/calibrate.yml`` as it is, with documents and pages, over real connections to an
sshd per SUT (bench/suts.py). The cost counts every process of the controller, masters of connections included
(bench/meter.py), without the SUTs; the pages are rendered once more, to tell their share. With ``--slices`` as many
controllers take turns, each with its share of the SUTs as AWX deals them, and results of its own; then ``calibration
merge`` and one nightly run that finds all SUTs measured. Exits with 3 if a SUT has no complete document, or none in the
judgement.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import yaml

from bench.meter import Usage
from bench.suts import Servers, Sut, fleet, keep_kernel, kernel_source, stand_in
from bench.tables import table
from calibration.build import TARGETS, Target
from calibration.context import load
from calibration.errors import GOOD, VERDICT_FAILED, CalibrationError, EnvironmentLacksError
from calibration.measurements.base import Step
from calibration.nightly.judgement import JUDGEMENT
from calibration.plan import make_plan
from calibration.profiles import load_profile
from calibration.results.layout import find_runs, new_run_id
from calibration.results.store import read_run

ROOT = Path(__file__).resolve().parents[1]

LOG = "calibrate.log"

KERNEL_S = 0.2
"""Seconds that the simulated sutprobe takes to answer."""


@dataclass(frozen=True)
class Setting:
    """Settings common to all fleets of one benchmark: work directory, profile and its steps, program.

    ``sockets`` is the directory of the connections' sockets, whose paths must be short.
    """

    work: Path
    sockets: Path
    profile: str
    steps: tuple[Step, ...]
    kernels: Path
    target: Target
    forks: int

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of a command: only what a program needs of the caller's."""
        home = folder / "home"
        home.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG", "VIRTUAL_ENV") if name in os.environ}
        return {
            "LC_ALL": "C.UTF-8",
            **kept,
            "HOME": str(home),
            "TMPDIR": str(self.work),
            "PYTHONPATH": str(ROOT),
            "ANSIBLE_LOCAL_TEMP": str(home / "local"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
        }


def metered(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Usage:
    """Run *command* to its end in the checkout, with its output in *log*, and return what it cost."""
    report = log.with_suffix(".usage")
    with log.open("wb") as stream:
        meter = subprocess.Popen(
            [sys.executable, str(ROOT / "bench" / "meter.py"), str(report), *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            meter.wait()
        except BaseException:
            meter.terminate()
            meter.wait()
            raise
    try:
        return Usage(**json.loads(report.read_bytes()))
    except (OSError, ValueError) as error:
        raise EnvironmentLacksError(f"cannot measure {command[0]}: {error}\n{tail(log)}") from error


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of what a command wrote."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@contextmanager
def prepared(work: Path, profile: str, *, forks: int) -> Iterator[Setting]:
    """Make the plan of this machine, as every simulated SUT will have it, and the stand-in that answers it."""
    machine = platform.machine()
    target = next((target for target in TARGETS if target == machine), None)
    if target is None:
        raise EnvironmentLacksError(f"unsupported machine {machine}, expected one of {', '.join(TARGETS)}")
    steps = make_plan(load(Path("/")), load_profile(profile)).steps
    source = kernel_source()
    keep_kernel(work / "kernels", target, stand_in(steps, work / "answers", source), source)
    with tempfile.TemporaryDirectory(prefix="cp-") as sockets:
        yield Setting(work, Path(sockets), profile, steps, work / "kernels", target, forks)


def calibrate(setting: Setting, servers: Servers, folder: Path, run_id: str | None = None) -> Usage:
    """Run the playbook over the SUTs of *servers*, and return what it cost.

    Raises ``EnvironmentLacksError`` if a SUT did not come to a complete document of the program's bytes.
    """
    named = {} if run_id is None else {"calibration_run_id": run_id}
    usage = _run(setting, folder, servers.inventory(**_variables(setting, folder), **named))
    faults = faults_of(folder / "results", servers.suts, setting)
    return _checked(usage, faults, folder)


def _variables(setting: Setting, folder: Path) -> dict[str, Any]:
    return {
        "calibration_profile": setting.profile,
        "calibration_testbed": "fleet",
        "calibration_results_dir": str(folder / "results"),
        "sutprobe_prebuilt": str(setting.kernels),
        "report_site": False,
        "judge_dir": str(folder / "night"),
    }


def _run(setting: Setting, folder: Path, inventory: Mapping[str, Any], *options: str) -> Usage:
    """Run ``calibration run`` with *options* over *inventory*, and return what it cost."""
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(path), "--forks", str(setting.forks)]
    return metered([*command, *options], setting.environment(folder), folder / LOG)


def _checked(usage: Usage, faults: Sequence[str], folder: Path) -> Usage:
    if usage.exit_code or faults:
        text = "\n".join([f"calibration ended with {usage.exit_code}", *faults, tail(folder / LOG)])
        raise EnvironmentLacksError(text)
    return usage


def render_again(setting: Setting, folder: Path) -> Usage:
    """Render the pages of all runs in *folder* once more, nothing kept, and return what it cost."""
    environment = {**setting.environment(folder), "CALIBRATION_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "calibration.cli", "report", str(folder / "results")]
    return _checked(metered(command, environment, folder / LOG), (), folder)


def calibrate_sliced(setting: Setting, suts: Sequence[Sut], slices: int, folder: Path) -> Iterator[tuple[str, Usage]]:
    """Measure *suts* in *slices*, merge and judge; yield what each stage cost. Raises like ``calibrate``."""
    run_id, parts, usages, rendered = new_run_id(datetime.now(UTC)), [], [], []
    for number in range(slices):
        part = folder / f"slice{number}"
        part.mkdir()
        with Servers(suts[number::slices], part / "suts") as servers:
            usages.append(calibrate(setting, servers, part, run_id))
            rendered.append(render_again(setting, part))
        parts.append(str(part / "results"))
    yield f"{slices} slices, with pages", _together(usages)
    yield "these pages again", _together(rendered)
    merge = [sys.executable, "-m", "calibration.cli", "merge", str(folder / "results"), *parts]
    yield "merge", _checked(metered(merge, setting.environment(folder), folder / LOG), (), folder)
    lab = {"hosts": {sut.name: {"ansible_host": sut.address} for sut in suts}, "vars": _variables(setting, folder)}
    usage = _run(setting, folder, {"all": lab}, "--nightly", "--resume", run_id)
    if usage.exit_code == VERDICT_FAILED:  # a SUT was used by somebody else, and yet measured and judged
        usage.exit_code = GOOD
    judgement = folder / "night" / JUDGEMENT
    verdicts = json.loads(judgement.read_bytes())["verdicts"] if judgement.is_file() else []
    missing = {sut.name for sut in suts} - {verdict["sut"] for verdict in verdicts if verdict["run_id"] == run_id}
    yield "judge", _checked(usage, [f"{name}: not judged" for name in sorted(missing)], folder)


def _together(usages: Sequence[Usage]) -> Usage:
    """Return the cost of several commands, one after the other."""
    return Usage(
        wall_s=sum(usage.wall_s for usage in usages),
        cpu_s=sum(usage.cpu_s for usage in usages),
        processes_at_peak=max(usage.processes_at_peak for usage in usages),
        peak_pss_bytes=max(usage.peak_pss_bytes for usage in usages),
    )


def faults_of(results: Path, suts: Sequence[Sut], setting: Setting) -> list[str]:
    """Return what is wrong with the documents in *results*, one line per SUT."""
    expected = json.loads((setting.kernels / setting.target / "build.json").read_bytes())["sha256"]
    runs = {run.parent.name: run for run in find_runs(results)} if results.is_dir() else {}
    faults = []
    for sut in suts:
        if sut.name not in runs:
            faults.append(f"{sut.name}: no run document")
            continue
        document = read_run(runs[sut.name])
        kernel = document.run.kernels.sha256 if document.run.kernels else None
        missing = [omitted for omitted in document.not_measured if omitted.cause != "not_planned"]
        if document.run.status != "complete":
            first = f"; first {missing[0].what}: {missing[0].reason}" if missing else ""
            faults.append(f"{sut.name}: the run is {document.run.status}{first}")
        elif kernel != expected:
            faults.append(f"{sut.name}: measured by the program {kernel}, not {expected}")
    return faults


@contextmanager
def _folder(work: Path, name: str) -> Iterator[Path]:
    """Make a folder for one fleet, and remove it again: a hundred runs are not kept."""
    folder = work / name
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def row_of(usage: Usage, suts: int, stage: str) -> tuple[str, ...]:
    """Return the cost of a *stage* over so many *suts* as a row of the table."""
    return (
        str(suts),
        stage,
        f"{usage.wall_s:.0f}",
        f"{usage.cpu_s / suts:.2f}",
        f"{usage.peak_pss_bytes / 2**20:.0f}",
        str(usage.processes_at_peak),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suts", "counts", type=click.IntRange(1, 10_000), multiple=True, default=(1, 10, 50, 100))
@click.option("--profile", default="quick", show_default=True, help="A profile's name, or the path of a .yml file.")
@click.option("--forks", type=click.IntRange(1), default=50, show_default=True, help="As for ansible-playbook.")
@click.option("--slices", type=click.IntRange(1), default=1, show_default=True, help="Controllers that share the SUTs.")
def fleet_command(*, counts: tuple[int, ...], profile: str, forks: int, slices: int) -> None:
    """Measure what N simulated SUTs cost their controllers; --suts is repeatable."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # the servers must end with the benchmark
    rows = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fleet-") as name,
            prepared(Path(name), profile, forks=forks) as setting,
        ):
            for count in counts:
                suts = fleet(count, KERNEL_S)
                with _folder(setting.work, f"n{count}") as folder:
                    if slices > 1:
                        stages = calibrate_sliced(setting, suts, slices, folder)
                        rows += [row_of(usage, count, stage) for stage, usage in stages]
                        continue
                    with Servers(suts, folder / "suts") as servers:
                        rows.append(row_of(calibrate(setting, servers, folder), count, "calibrate, with pages"))
                        rows.append(row_of(render_again(setting, folder), count, "these pages again"))
            click.echo(f"Profile {profile}, {len(setting.steps)} steps, {forks} forks, {os.cpu_count()} CPUs:\n")
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo("\n".join(table(("SUTs", "Stage", "Wall time, s", "CPU per SUT, s", "Memory, MiB", "Processes"), rows)))


if __name__ == "__main__":
    fleet_command()
