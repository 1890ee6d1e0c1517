# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs its controller: ``python -m bench.fleet`` runs the real playbook against simulated SUTs.

For each number of SUTs: ``playbooks/calibrate.yml`` as it is, with documents and pages, over real connections to an
sshd per SUT (bench/suts.py). The cost counts every process of the controller, masters of connections included
(bench/meter.py), without the SUTs. Exits with 3 if a SUT has no complete document.
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
from pathlib import Path

import click
import yaml

from bench.meter import Usage
from bench.suts import Servers, Sut, fleet, keep_kernel, kernel_source, stand_in
from bench.tables import table
from calibration.build import TARGETS, Target
from calibration.context import load
from calibration.errors import CalibrationError, EnvironmentLacksError
from calibration.measurements.base import Step
from calibration.plan import make_plan
from calibration.profiles import load_profile
from calibration.results.layout import find_runs
from calibration.results.store import read_run

ROOT = Path(__file__).resolve().parents[1]

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


def calibrate(setting: Setting, servers: Servers, folder: Path) -> Usage:
    """Run the playbook over the SUTs of *servers*, and return what it cost.

    Raises ``EnvironmentLacksError`` if a SUT did not come to a complete document of the program's bytes.
    """
    inventory = folder / "inventory.yml"
    variables = {
        "calibration_profile": setting.profile,
        "calibration_testbed": "fleet",
        "calibration_results_dir": str(folder / "results"),
        "sutprobe_prebuilt": str(setting.kernels),
        "report_site": False,
    }
    inventory.write_text(yaml.safe_dump(servers.inventory(**variables)), encoding="utf-8")
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory), "--forks", str(setting.forks)]
    log = folder / "calibrate.log"
    usage = metered(command, setting.environment(folder), log)
    faults = faults_of(folder / "results", servers.suts, setting)
    if usage.exit_code or faults:
        text = "\n".join([f"calibration run ended with {usage.exit_code}", *faults, tail(log)])
        raise EnvironmentLacksError(text)
    return usage


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
        elif not (runs[sut.name] / "report" / "page.rst").is_file():
            faults.append(f"{sut.name}: no page")
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


def row_of(usage: Usage, suts: int) -> tuple[str, ...]:
    """Return the cost of a run over so many *suts* as a row of the table."""
    return (
        str(suts),
        f"{usage.wall_s:.0f}",
        f"{usage.cpu_s / suts:.2f}",
        f"{usage.peak_pss_bytes / 2**20:.0f}",
        str(usage.processes_at_peak),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suts", "counts", type=click.IntRange(1, 10_000), multiple=True, default=(1, 10, 50, 100))
@click.option("--profile", default="quick", show_default=True, help="A profile's name, or the path of a .yml file.")
@click.option("--forks", type=click.IntRange(1), default=50, show_default=True, help="As for ansible-playbook.")
def fleet_command(*, counts: tuple[int, ...], profile: str, forks: int) -> None:
    """Measure what N simulated SUTs cost their controller; --suts is repeatable."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # the servers must end with the benchmark
    rows = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fleet-") as name,
            prepared(Path(name), profile, forks=forks) as setting,
        ):
            for count in counts:
                with (
                    _folder(setting.work, f"n{count}") as folder,
                    Servers(fleet(count, KERNEL_S), folder / "suts") as servers,
                ):
                    rows.append(row_of(calibrate(setting, servers, folder), count))
            click.echo(f"Profile {profile}, {len(setting.steps)} steps, {forks} forks, {os.cpu_count()} CPUs:\n")
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo("\n".join(table(("SUTs", "Wall time, s", "CPU per SUT, s", "Memory, MiB", "Processes"), rows)))


if __name__ == "__main__":
    fleet_command()
