# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs its controller: ``python -m bench.fleet`` runs the real playbook against simulated SUTs.

For each number of SUTs: ``playbooks/calibrate.yml`` as it is, with documents and pages, over real connections to an
sshd per SUT (tests/servers.py), whose sutprobe prints recorded documents. The cost counts every process of the
controller, masters of connections included (bench/meter.py), without the SUTs; the pages are rendered once more, to
tell their share. With ``--slices`` as many controllers take turns, each with its share of the SUTs as AWX deals them,
and results of its own; then ``calibration merge`` and one nightly run that finds all SUTs measured. It fails if a SUT
has no complete document, or none in the judgement.
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
from typing import Any, Final

import click
import yaml

from bench.meter import Usage
from bench.tables import table
from calibration.base.errors import GOOD, VERDICT_FAILED, EnvironmentLacksError
from calibration.build import source_sha256
from calibration.context.loader import load
from calibration.measurements.base import Step
from calibration.nightly.judgement import JUDGEMENT
from calibration.profiles import load_profile
from calibration.report.rendering import INPUTS
from calibration.results.layout import find_runs, new_run_id
from calibration.results.store import read_run
from calibration.run.plan import make_plan
from tests.servers import Servers, Sut, keep_probe, stand_in

ROOT: Final = Path(__file__).resolve().parents[1]
LOG: Final = "calibrate.log"


@dataclass(frozen=True)
class Setting:
    """Settings common to all fleets of one benchmark: work directory, profile and its steps, program and its hash.

    ``sockets`` is the directory of the connections' sockets, whose paths must be short.
    """

    work: Path
    sockets: Path
    profile: str
    steps: tuple[Step, ...]
    probe: Path
    sha256: str
    forks: int

    def run(self, folder: Path, *words: str, **variables: str) -> Usage:
        """Run ``calibration`` with *words* to its end in the checkout, and return what it cost; output is in ``LOG``.

        Its environment has *variables*, and of the caller's only what a program needs. Raises ``EnvironmentLacksError``
        if it cannot be measured.
        """
        home = folder / "home"
        home.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG", "VIRTUAL_ENV") if name in os.environ}
        environment = {
            "LC_ALL": "C.UTF-8",
            **kept,
            "HOME": str(home),
            "TMPDIR": str(self.work),
            "PYTHONPATH": str(ROOT),
            "ANSIBLE_LOCAL_TEMP": str(home / "local"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
            **variables,
        }
        return metered([sys.executable, "-m", "calibration.cli", *words], environment, folder / LOG)

    def play(self, folder: Path, inventory: dict[str, Any], *options: str, **variables: str) -> Usage:
        """Run the playbook with *options* over *inventory*, whose SUTs get *variables* besides the benchmark's."""
        own = {
            "calibration_profile": self.profile,
            "calibration_testbed": "fleet",
            "calibration_results_dir": str(folder / "results"),
            "sutprobe_prebuilt": str(self.probe),
            "report_site": False,
            "judge_dir": str(folder / "night"),
        }
        hosts, known = inventory["all"]["hosts"], inventory["all"].get("vars", {})
        path = folder / "inventory.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": {**known, **own, **variables}}}), "utf-8")
        return self.run(folder, "run", "-i", str(path), "--forks", str(self.forks), *options)


def metered(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Usage:
    """Run *command* with its output in *log*, and return what it cost.

    Raises ``EnvironmentLacksError`` if the meter left no report.
    """
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
    if not report.is_file():
        raise EnvironmentLacksError(f"cannot measure {command[0]}: {tail(log)}")
    return Usage(**json.loads(report.read_bytes()))


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of what a command wrote."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@contextmanager
def prepared(work: Path, profile: str, *, forks: int) -> Iterator[Setting]:
    """Make the plan of this machine, as every simulated SUT will have it, and the stand-in that answers it."""
    steps, source = make_plan(load(Path("/")), load_profile(profile)).steps, source_sha256()
    sha256 = keep_probe(work / "probe", platform.machine(), stand_in(steps, work / "answers", source), source)
    with tempfile.TemporaryDirectory(prefix="cp-") as sockets:
        yield Setting(work, Path(sockets), profile, steps, work / "probe", sha256, forks)


def calibrate(setting: Setting, servers: Servers, folder: Path, **variables: str) -> Iterator[tuple[str, Usage]]:
    """Calibrate the SUTs of *servers*, then render their pages again; yield what each stage cost.

    Raises ``EnvironmentLacksError`` if a SUT did not come to a complete document of the program's bytes.
    """
    usage = setting.play(folder, servers.inventory(), **variables)
    faults = list(faults_of(folder / "results", servers.suts, setting.sha256))
    yield "calibrate, with pages", checked(usage, faults, folder)
    for kept in (folder / "results").rglob(INPUTS):
        kept.unlink()  # else pages that did not change are left as they are
    again = setting.run(folder, "report", str(folder / "results"), CALIBRATION_CACHE_DIR=str(folder / "cache"))
    yield "these pages again", checked(again, (), folder)


def calibrate_sliced(setting: Setting, suts: Sequence[Sut], slices: int, folder: Path) -> Iterator[tuple[str, Usage]]:
    """Measure *suts* in *slices*, merge and judge; yield what each stage cost. Raises like ``calibrate``."""
    run_id, usages = new_run_id(datetime.now(UTC)), dict[str, list[Usage]]()
    parts = [folder / f"slice{number}" for number in range(slices)]
    for number, part in enumerate(parts):
        part.mkdir()
        with Servers(suts[number::slices], part / "suts") as servers:
            for stage, usage in calibrate(setting, servers, part, calibration_run_id=run_id):
                usages.setdefault(f"{stage}, {slices} slices", []).append(usage)
    yield from ((stage, together(of_stage)) for stage, of_stage in usages.items())
    results = [str(one / "results") for one in (folder, *parts)]
    yield "merge", checked(setting.run(folder, "merge", *results), (), folder)
    lab = {"all": {"hosts": {sut.name: {"ansible_host": sut.address} for sut in suts}}}
    usage = setting.play(folder, lab, "--nightly", "--resume", run_id)
    if usage.exit_code == VERDICT_FAILED:  # a SUT was used by somebody else, and yet measured and judged
        usage.exit_code = GOOD
    judgement = folder / "night" / JUDGEMENT
    verdicts = json.loads(judgement.read_bytes())["verdicts"] if judgement.is_file() else []
    missing = {sut.name for sut in suts} - {verdict["sut"] for verdict in verdicts if verdict["run_id"] == run_id}
    yield "judge", checked(usage, [f"{name}: not judged" for name in sorted(missing)], folder)


def together(usages: Sequence[Usage]) -> Usage:
    """Return the cost of several commands, one after the other."""
    return Usage(
        wall_s=sum(usage.wall_s for usage in usages),
        cpu_s=sum(usage.cpu_s for usage in usages),
        processes_at_peak=max(usage.processes_at_peak for usage in usages),
        peak_pss_bytes=max(usage.peak_pss_bytes for usage in usages),
    )


def checked(usage: Usage, faults: Sequence[str], folder: Path) -> Usage:
    """Return *usage*. Raises ``EnvironmentLacksError`` if the command failed or there are *faults*."""
    if usage.exit_code or faults:
        ended = f"calibration ended with {usage.exit_code}"
        raise EnvironmentLacksError("\n".join([ended, *faults, tail(folder / LOG)]))
    return usage


def faults_of(results: Path, suts: Sequence[Sut], sha256: str) -> Iterator[str]:
    """Yield what is wrong with the documents in *results*, a line per SUT."""
    runs = {run.parent.name: read_run(run) for run in find_runs(results)} if results.is_dir() else {}
    for sut in suts:
        run = runs[sut.name].run if sut.name in runs else None
        if run is None or run.status != "complete":
            yield f"{sut.name}: the run is {run.status if run else 'missing'}"
        elif run.probe is None or run.probe.sha256 != sha256:
            yield f"{sut.name}: measured by the program {run.probe and run.probe.sha256}, not {sha256}"


def row_of(usage: Usage, suts: int, stage: str) -> tuple[str, ...]:
    """Return the cost of a *stage* over so many *suts* as a row of the table."""
    cpu, mib = f"{usage.cpu_s / suts:.2f}", f"{usage.peak_pss_bytes / 2**20:.0f}"
    return str(suts), stage, f"{usage.wall_s:.0f}", cpu, mib, str(usage.processes_at_peak)


def rows_of(setting: Setting, count: int, slices: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each stage of a fleet of *count* SUTs, whose files are removed again."""
    suts = [Sut(f"sut{number:03}", f"127.83.{number // 250}.{number % 250 + 1}") for number in range(count)]
    folder = setting.work / f"n{count}"
    folder.mkdir()
    try:
        if slices > 1:
            yield from (row_of(usage, count, stage) for stage, usage in calibrate_sliced(setting, suts, slices, folder))
        else:
            with Servers(suts, folder / "suts") as servers:
                yield from (row_of(usage, count, stage) for stage, usage in calibrate(setting, servers, folder))
    finally:
        shutil.rmtree(folder)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suts", "counts", type=click.IntRange(1, 10_000), multiple=True, default=(1, 10, 50, 100))
@click.option("--profile", default="quick", show_default=True, help="A profile's name, or the path of a .yml file.")
@click.option("--forks", type=click.IntRange(1), default=50, show_default=True, help="As for ansible-playbook.")
@click.option("--slices", type=click.IntRange(1), default=1, show_default=True, help="Controllers that share the SUTs.")
def fleet_command(*, counts: tuple[int, ...], profile: str, forks: int, slices: int) -> None:
    """Measure what N simulated SUTs cost their controllers; --suts is repeatable."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # the servers must end with the benchmark
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as work,
        prepared(Path(work), profile, forks=forks) as setting,
    ):
        rows = [row for count in counts for row in rows_of(setting, count, slices)]
        click.echo(f"Profile {profile}, {len(setting.steps)} steps, {forks} forks, {os.cpu_count()} CPUs:\n")
    click.echo("\n".join(table(("SUTs", "Stage", "Wall time, s", "CPU per SUT, s", "Memory, MiB", "Processes"), rows)))


if __name__ == "__main__":
    fleet_command()
