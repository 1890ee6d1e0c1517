# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs its controller: the real playbook against simulated SUTs, and beside it plain ansible by hand.

For each number of SUTs: ``playbooks/calibrate.yml`` as it is, with documents and pages, over real connections to an
sshd per SUT (bench/suts.py). The site, which the playbook builds once in the end, is built and counted by itself. Then
what a lab would type without it: put the program there, ``ansible -m command`` once per step for all SUTs, take it away
again. The cost counts every process of the controller, masters of connections included (bench/meter.py), and nothing of
the SUTs. A fleet in which one SUT is slow shows what the others wait for.

Exit codes are those of every command: 0 done, also where a target is missed; 2 bad usage; 3 the environment cannot do
it, or a SUT did not come to its document; 4 interrupted, with what was measured until then.
"""

import fcntl
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.meter import Usage
from bench.suts import Servers, Sut, fleet, keep_kernel, kernel_source, stand_in
from calibration import __version__
from calibration.build import TARGETS, Target
from calibration.context import load
from calibration.errors import INTERRUPTED, CalibrationError, EnvironmentLacksError, InputError
from calibration.measurements.base import Step
from calibration.plan import make_plan
from calibration.profiles import load_profile
from calibration.results.layout import RUN, find_runs
from calibration.results.store import read_run

ROOT = Path(__file__).resolve().parents[1]

SCHEMA = "fleet/1"

KERNEL_S = 0.2
"""Seconds that the stand-in takes for an answer."""

SLOW_KERNEL_S = 3.0
"""Seconds that the slow SUT's takes."""

SLOW_SUTS = 10
"""SUTs of the fleet in which one is slow."""

MIB = 1 << 20

TARGETS_OF = {"controller_cpu_s_per_sut": 1.5, "controller_peak_rss_mib": 2048.0}
"""What the largest fleet may cost at the most."""

LARGEST = 100
"""The targets are for so many SUTs."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all fleets of one benchmark: the work directory, the profile and its steps, the program.

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
        """Return the environment of a command: nothing of the caller's but what a program needs."""
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
        raise EnvironmentLacksError(
            f"expected the meter to measure {command[0]}, found: {error}\n{tail(log)}"
        ) from error


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of what a command wrote."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@contextmanager
def prepared(work: Path, profile: str, *, forks: int) -> Iterator[Setting]:
    """Make the plan of this machine, as every simulated SUT will have it, and the stand-in that answers it."""
    machine = platform.machine()
    target = next((each for each in TARGETS if each == machine), None)
    if target is None:
        raise EnvironmentLacksError(f"expected one of {', '.join(TARGETS)}, found {machine}")
    steps = make_plan(load(Path("/")), load_profile(profile)).steps
    source = kernel_source()
    keep_kernel(work / "kernels", target, stand_in(steps, work / "answers", source), source)
    with tempfile.TemporaryDirectory(prefix="cp-") as sockets:
        yield Setting(work, Path(sockets), profile, steps, work / "kernels", target, forks)


def calibrate(setting: Setting, servers: Servers, folder: Path) -> dict[str, Any]:
    """Run the playbook over the SUTs of *servers*; return what it cost and when each document was stored.

    Raises ``EnvironmentLacksError`` where a SUT did not come to a complete document of the program's bytes.
    """
    inventory = folder / "inventory.yml"
    variables = {
        "calibration_profile": setting.profile,
        "calibration_testbed": "fleet",
        "calibration_results_dir": str(folder / "results"),
        "kernels_prebuilt": str(setting.kernels),
        "report_site": False,
    }
    inventory.write_text(yaml.safe_dump(servers.inventory(**variables)), encoding="utf-8")
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory), "--forks", str(setting.forks)]
    began = _now()
    log = folder / "calibrate.log"
    usage = metered(command, setting.environment(folder), log)
    stored = stored_s(folder / "results", servers.suts, began)
    faults = faults_of(folder / "results", servers.suts, setting)
    if usage.exit_code or faults:
        said = "\n".join(faults)
        raise EnvironmentLacksError(
            f"expected a complete document of each of {len(servers.suts)} SUTs and exit code 0, found exit code "
            f"{usage.exit_code}\n{said}\n{tail(log)}"
        )
    return {**costs(usage, len(servers.suts)), "stored_s": stored}


def _now() -> float:
    """Return the time by which files are dated."""
    with tempfile.NamedTemporaryFile() as file:
        return Path(file.name).stat().st_mtime


def stored_s(results: Path, suts: Sequence[Sut], began: float) -> dict[str, float | None]:
    """Return for each SUT when its run document was stored, in s after *began*; null where there is none."""
    found = {run.parent.name: run / RUN for run in find_runs(results)} if results.is_dir() else {}
    return {sut.name: round(found[sut.name].stat().st_mtime - began, 2) if sut.name in found else None for sut in suts}


def faults_of(results: Path, suts: Sequence[Sut], setting: Setting) -> list[str]:
    """Return what is wrong with the documents in *results*, one line per SUT; nothing where all is as it must be."""
    expected = json.loads((setting.kernels / setting.target / "build.json").read_bytes())["sha256"]
    runs = {run.parent.name: run for run in find_runs(results)} if results.is_dir() else {}
    faults = []
    for sut in suts:
        if sut.name not in runs:
            faults.append(f"{sut.name}: no run document")
            continue
        document = read_run(runs[sut.name])
        kernel = document.run.kernels.sha256 if document.run.kernels else None
        missing = [each for each in document.not_measured if each.cause != "not_planned"]
        if document.run.status != "complete":
            first = f"; first {missing[0].what}: {missing[0].reason}" if missing else ""
            faults.append(f"{sut.name}: the run is {document.run.status}{first}")
        elif kernel != expected:
            faults.append(f"{sut.name}: expected the program with sha256 {expected}, the document names {kernel}")
        elif not (runs[sut.name] / "report" / "page.rst").is_file():
            faults.append(f"{sut.name}: no page")
    return faults


def costs(usage: Usage, suts: int) -> dict[str, Any]:
    """Return the figures of a command that served *suts* SUTs."""
    return {
        "wall_s": round(usage.wall_s, 2),
        "controller_cpu_s": round(usage.cpu_s, 2),
        "controller_cpu_s_per_sut": round(usage.cpu_s / suts, 3),
        "controller_peak_rss_mib": round(usage.peak_pss_bytes / MIB, 1),
        "controller_peak_sum_of_rss_mib": round(usage.peak_rss_bytes / MIB, 1),
        "processes_at_peak": usage.processes_at_peak,
    }


def by_hand(setting: Setting, servers: Servers, folder: Path) -> dict[str, Any]:
    """Do the measuring with plain ``ansible``, one call per step for all SUTs; return what all calls cost together.

    Connections are kept between the calls, pipelining is on and forks are as many as the playbook has.
    """
    inventory = folder / "inventory.yml"
    inventory.write_text(yaml.safe_dump(servers.inventory()), encoding="utf-8")
    config = folder / "plain.cfg"
    config.write_text(
        f"[defaults]\nforks = {setting.forks}\nhost_key_checking = True\ninterpreter_python = auto_silent\n"
        "[connection]\npipelining = True\n",
        encoding="utf-8",
    )
    place = "{{ calibration_remote_base }}/by-hand"
    program = f"{place}/sutprobe"
    calls = [
        ["file", f"path={place} state=directory mode=0700"],
        ["copy", f"src={setting.kernels / setting.target / 'sutprobe'} dest={program} mode=0700"],
        *(["command", f"{program} {' '.join(step.argv[1:])}"] for step in setting.steps),
        ["file", f"path={place} state=absent"],
    ]
    environment = {**setting.environment(folder), "ANSIBLE_CONFIG": str(config)}
    script = folder / "by-hand.py"
    commands = [
        [sys.executable, "-m", "ansible", "adhoc", "all", "-i", str(inventory), "-m", module, "-a", arguments]
        for module, arguments in calls
    ]
    script.write_text(
        f"import subprocess, sys\nfor command in {commands!r}:\n"
        "    code = subprocess.run(command).returncode\n    if code:\n        sys.exit(code)\n",
        encoding="utf-8",
    )
    log = folder / "by-hand.log"
    usage = metered([sys.executable, str(script)], environment, log)
    if usage.exit_code:
        raise EnvironmentLacksError(
            f"expected plain ansible to succeed, found exit code {usage.exit_code}\n{tail(log)}"
        )
    return {
        "plain_ansible_cpu_s_per_sut": round(usage.cpu_s / len(servers.suts), 3),
        "plain_ansible_wall_s": round(usage.wall_s, 2),
        "plain_ansible_peak_rss_mib": round(usage.peak_pss_bytes / MIB, 1),
        "plain_ansible_calls": len(calls),
    }


SITE_CODE = (
    "import sys; from pathlib import Path; from calibration.report import DOCS, build_site; "
    "build_site(Path(sys.argv[1]), DOCS, Path(sys.argv[2]))"
)
"""What the playbook does once for all SUTs after the last page."""


def site(setting: Setting, suts: int, folder: Path) -> dict[str, Any]:
    """Build the site of the runs in *folder*; return what it costs."""
    log = folder / "site.log"
    command = [sys.executable, "-c", SITE_CODE, str(folder / "results"), str(folder / "site")]
    usage = metered(command, setting.environment(folder), log)
    if usage.exit_code:
        raise EnvironmentLacksError(f"expected the site to be built, found exit code {usage.exit_code}\n{tail(log)}")
    return {"site_cpu_s_per_sut": round(usage.cpu_s / suts, 3), "site_wall_s": round(usage.wall_s, 2)}


def measure(setting: Setting, count: int, *, plain: bool, site_too: bool) -> dict[str, Any]:
    """Return what a fleet of *count* SUTs costs."""
    with _folder(setting.work, f"n{count}") as folder, Servers(fleet(count, KERNEL_S), folder / "suts") as servers:
        figures = calibrate(setting, servers, folder)
        stored = sorted(figures.pop("stored_s").values())
        beside = site(setting, count, folder) if site_too else {}
        beside |= by_hand(setting, servers, folder) if plain else {}
        return {
            "suts": count,
            **figures,
            "first_stored_s": stored[0],
            "median_stored_s": round(median(stored), 2),
            "last_stored_s": stored[-1],
            **beside,
        }


def slow(setting: Setting, count: int) -> dict[str, Any]:
    """Return when the documents of *count* SUTs are stored of which one is slow."""
    suts = fleet(count, KERNEL_S)
    last = replace(suts[0], delay_s=SLOW_KERNEL_S)
    suts = (last, *suts[1:])
    with _folder(setting.work, "slow") as folder, Servers(suts, folder / "suts") as servers:
        figures = calibrate(setting, servers, folder)
        stored = figures["stored_s"]
        return {
            "suts": count,
            "slow_kernel_s": SLOW_KERNEL_S,
            "steps": len(setting.steps),
            "wall_s": figures["wall_s"],
            "slow_stored_s": stored[last.name],
            "others_last_stored_s": max(stored[sut.name] for sut in suts[1:]),
        }


@contextmanager
def _folder(work: Path, name: str) -> Iterator[Path]:
    """Make a folder for one fleet, and remove it again: a hundred runs are not kept."""
    folder = work / name
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def held(locks: Sequence[Path]) -> Iterator[None]:
    """Hold all lock files, in their order."""
    with ExitStack() as stack:
        for path in locks:
            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
        yield


def document_of(
    setting: Setting, fleets: Sequence[Mapping[str, Any]], slowed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the benchmark's document: the figures of the largest fleet on top, then those of all."""
    top = fleets[-1] if fleets else {}
    names = ("wall_s", "controller_cpu_s_per_sut", "controller_peak_rss_mib", "plain_ansible_cpu_s_per_sut")
    return {
        "schema": SCHEMA,
        "suts": top.get("suts"),
        **{name: top.get(name) for name in names},
        "targets": {
            name: {"limit": limit, "met": top[name] <= limit if top.get("suts") == LARGEST else None}
            for name, limit in TARGETS_OF.items()
        },
        "fleets": list(fleets),
        "slow": slowed,
        "harness_version": __version__,
        "profile": setting.profile,
        "steps": len(setting.steps),
        "kernel_s": KERNEL_S,
        "forks": setting.forks,
        "machine": {
            "cpus": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "kernel": os.uname().release,
        },
    }


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write the document whole or not at all. Raises ``InputError`` where it cannot be written."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"expected to write {path}, found: {error}") from error


def counts_of(text: str) -> list[int]:
    """Return the numbers of SUTs in a comma list. Raises ``InputError``."""
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > 10_000:
        raise InputError(f"expected --suts with numbers of SUTs such as 10 or 1,10,50,100, found {text!r}")
    return counts


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suts", default="1,10,50,100", show_default=True, help="Numbers of SUTs, measured one after another.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the document here.")
@click.option(
    "--profile", default="quick", show_default=True, help="quick, nightly, full, counters, or the path of a .yml file."
)
@click.option("--forks", type=click.IntRange(1), default=50, show_default=True, help="As for ansible-playbook.")
@click.option("--plain/--no-plain", default=True, show_default=True, help="Plain ansible beside it.")
@click.option("--slow/--no-slow", "slow_one", default=True, show_default=True, help="A fleet with one slow SUT.")
@click.option(
    "--site",
    "site_most",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Up to so many SUTs the site is built and counted too; it takes a second per page.",
)
@click.option(
    "--lock", "locks", multiple=True, type=click.Path(path_type=Path), help="File to hold a lock on meanwhile."
)
def fleet_command(
    *,
    suts: str,
    json_file: Path | None,
    profile: str,
    forks: int,
    plain: bool,
    slow_one: bool,
    site_most: int,
    locks: tuple[Path, ...],
) -> None:
    """Measure what N simulated SUTs cost their controller."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # the servers must end with the benchmark
    fleets: list[dict[str, Any]] = []
    slowed: dict[str, Any] | None = None
    code = 0
    try:
        counts = counts_of(suts)
        if json_file is not None and not json_file.absolute().parent.is_dir():
            raise InputError(f"expected --json in a directory that is there, found {json_file}")
        with (
            tempfile.TemporaryDirectory(prefix="fleet-") as name,
            prepared(Path(name), profile, forks=forks) as setting,
        ):
            try:
                for count in counts:
                    with held(locks):
                        fleets.append(measure(setting, count, plain=plain, site_too=count <= site_most))
                    click.echo(line_of(fleets[-1]))
                if slow_one:
                    with held(locks):
                        slowed = slow(setting, SLOW_SUTS)
            except KeyboardInterrupt:
                code = INTERRUPTED
                click.echo("interrupted: this is what was measured until then", err=True)
            document = document_of(setting, fleets, slowed)
        if json_file is not None:
            write_json(json_file, document)
        else:
            click.echo(json.dumps(document, indent=1))
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    sys.exit(code)


def line_of(figures: Mapping[str, Any]) -> str:
    """Return the figures of one fleet as a person reads them."""
    beside = figures.get("plain_ansible_cpu_s_per_sut")
    by_hand_text = f"; by hand {beside:.2f} s" if beside is not None else ""
    memory = figures["controller_peak_rss_mib"]
    return (
        f"{figures['suts']:4} SUTs: {figures['wall_s']:.1f} s, controller CPU "
        f"{figures['controller_cpu_s_per_sut']:.2f} s per SUT{by_hand_text}; memory {memory:.0f} MiB"
    )


if __name__ == "__main__":
    fleet_command()
