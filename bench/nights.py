# SPDX-License-Identifier: Apache-2.0
"""What many nights cost to ask about, and what the judgement finds of what was planted in them.

``time`` makes a store (``bench/made.py``) and times whole processes over it, as a person or a timer starts them: the
index from nothing, a new night of all SUTs, the history of one metric of one SUT, and all verdicts of tonight.
``table`` makes one, judges it night by night, each as it was known on that night, and holds what was found against the
labels.

Exit codes are those of every command: 0 done, also where a target is missed; 2 bad usage; 3 the environment cannot do
it.
"""

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.fleet import write_json
from bench.made import FIRST_NIGHT, START, Event, factors, make, names, own_events, write_night
from calibration import __version__
from calibration.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.judge.drift import analyse
from calibration.judge.night import judge_history
from calibration.judge.references import read_references
from calibration.judge.tolerances import read_tolerances
from calibration.judge.verdicts import Check, NightVerdict
from calibration.judge.waivers import read_waivers
from calibration.places import CACHE_VARIABLE
from calibration.results.history import History
from calibration.results.index import read_history

ROOT = Path(__file__).resolve().parents[1]

SCHEMA = "nights/1"

TARGETS: Final = {"history_s": 1.0, "verdicts_s": 10.0}
"""What a question may take at the most, with the store that :data:`LARGEST` is."""

LARGEST: Final = (100, 365)
"""The targets are for so many SUTs and nights."""

METRIC: Final = "idle_latency.latency_ns"

READ: Final = (
    "import sys; from pathlib import Path; from calibration.results.index import read_history; "
    "print(read_history(Path(sys.argv[1]), **dict(each.split('=') for each in sys.argv[2:])).values.shape)"
)
"""What a command does that asks for a history."""

# What was found


@dataclass
class Finding:
    """A failure of one check that stands for some nights: when it was found, and since when it says that it is so."""

    testbed: str
    sut: str
    metric: str
    check: Check
    found: int
    since: int
    last: int
    causes: frozenset[str]
    event: Event | None = None
    beside: bool = False


CHECKS: Final[Mapping[str, Check]] = {
    "level": "drift",
    "bios": "drift",
    "spread": "spread",
    "flips": "bimodal",
    "odd_dimm": "homogeneity",
    "no_run": "missing",
    "not_begun": "missing",
}
"""The check that is to find each kind of event; a new kernel without an effect is to be found by none."""

CAUSES: Final = {"bios": "BIOS", "odd_dimm": "DIMMs"}
"""The fact that a finding is to name."""

AT_MOST: Final = 3
"""Nights by which the date of a finding may be wrong, and in which it is to be found."""

JUMP: Final = 3
"""A failure whose date moves by more nights is another finding."""


@dataclass
class Findings:
    """All findings of a store, collected night by night."""

    done: list[Finding] = field(default_factory=list)
    standing: dict[tuple[str, str, str, Check], Finding] = field(default_factory=dict)

    def add(self, night: int, verdicts: Iterable[NightVerdict]) -> None:
        """Take in the *verdicts* of *night*."""
        for each in verdicts:
            key = (each.testbed, each.sut, each.metric, each.check)
            if each.outcome != "fail":
                self.standing.pop(key, None)
                continue
            since = number(each.since or each.night)
            known = self.standing.get(key)
            if known is not None and abs(known.since - since) <= JUMP:
                known.last = night
                continue
            causes = frozenset(change.fact for change in each.context_changes)
            finding = Finding(*key, found=night, since=since, last=night, causes=causes)
            self.done.append(finding)
            self.standing[key] = finding


def number(night: date) -> int:
    """Return the number of *night* in a made store."""
    return (night - FIRST_NIGHT).days


def known_on(history: History, column: int) -> History:
    """Return *history* as it was known on the night in *column*."""
    last = history.nights[column]
    return replace(
        history,
        nights=history.nights[: column + 1],
        values=history.values[:, : column + 1],
        low=history.low[:, : column + 1],
        high=history.high[:, : column + 1],
        runs={
            sut: kept
            for sut, runs in history.runs.items()
            if (kept := {night: run for night, run in runs.items() if night <= last})
        },
        recorded={},
    )


def judged(results: Path, tell: Callable[[int], None] = lambda _night: None) -> tuple[History, list[Finding]]:
    """Return the history of *results*, and what was found in it, each night as it was known on that night."""
    history = read_history(results)
    known = read_references(results), read_waivers(results), read_tolerances(results)
    findings = Findings()
    for column, night in enumerate(history.nights):
        seen = known_on(history, column)
        judgement = judge_history(seen, analyse(seen.values), *known)
        findings.add(number(night), judgement.verdicts)
        tell(column)
    return history, findings.done


def matched(findings: Sequence[Finding], events: Sequence[Event]) -> None:
    """Say of each of *findings* which event it is about, or that it lies beside one that explains it."""
    for finding in findings:
        for event in own_events((finding.testbed, finding.sut), events):
            if not event.night <= finding.found <= (math.inf if event.until is None else event.until):
                continue
            near = event.until is not None or event.kind == "odd_dimm" or abs(finding.since - event.night) <= AT_MOST
            if finding.metric in targets_of(event) and CHECKS.get(event.kind) == finding.check and near:
                finding.event = event
            elif finding.metric in event.metrics or (event.until is not None and finding.check == "missing"):
                finding.beside = True


def targets_of(event: Event) -> tuple[str, ...]:
    """Return the metrics that *event* is to be found in."""
    return event.metrics or (() if event.until is None else ("run",))


ROWS: Final[Mapping[str, str]] = {
    "level 3": "Level, 3 deviations of a night",
    "level 5": "Level, 5 deviations",
    "level 8": "Level, 8 deviations",
    "bios": "BIOS change, with a level",
    "spread": "Spread, 3 to 5 times as large",
    "flips": "Flips between two levels",
    "no_run": "No run",
    "not_begun": "A run that did not begin",
    "odd_dimm": "An odd DIMM, from the first night",
    "kernel": "Another kernel, without an effect",
}
"""The rows of the table: kinds of events, as people say them."""


def row_of(event: Event) -> str:
    """Return the row of the table that *event* counts in."""
    return f"level {event.sigmas:g}" if event.kind == "level" else event.kind


def table_of(history: History, findings: Sequence[Finding], events: Sequence[Event]) -> dict[str, Any]:
    """Return what was planted and found, by kind, and how often something was found that is not there."""
    matched(findings, events)
    rows = []
    for row in ROWS:
        planted = [each for each in events if row_of(each) == row]
        pairs = [(event, metric) for event in planted for metric in targets_of(event)]
        firsts = [
            min(
                (each for each in findings if each.event == event and each.metric == metric),
                key=lambda each: each.found,
                default=None,
            )
            for event, metric in pairs
        ]
        found = [(event, first) for (event, _), first in zip(pairs, firsts, strict=True) if first is not None]
        errors = [abs(first.since - event.night) for event, first in found if event.kind != "odd_dimm"]
        cause = CAUSES.get(row)
        rows.append(
            {
                "kind": row,
                "events": len(planted),
                "planted": len(pairs),
                "found": len(found),
                "found_in_time": sum(first.found - event.night <= AT_MOST for event, first in found),
                "nights_to_find": median([first.found - event.night for event, first in found]) if found else None,
                "date_error_median": median(errors) if errors else None,
                "date_error_max": max(errors, default=None),
                "cause_named": None if cause is None else sum(cause in first.causes for _, first in found),
                "false_alarms": sum(_of_no_effect(each, planted) for each in findings) if row == "kernel" else None,
            }
        )
    quiet = quiet_nights(history, events)
    false = [each for each in findings if each.event is None and not each.beside]
    return {
        "rows": rows,
        "metric_nights": quiet,
        "false_alarms": {
            check: sum(each.check == check for each in false)
            for check in ("drift", "spread", "bimodal", "homogeneity", "missing")
        },
        "beside_events": sum(each.event is None and each.beside for each in findings),
    }


def _of_no_effect(finding: Finding, events: Sequence[Event]) -> bool:
    """Return whether *finding* is a change at the time of one of *events*, which had no effect."""
    return finding.event is None and any(
        (each.testbed, each.sut) == (finding.testbed, finding.sut) and abs(finding.since - each.night) <= AT_MOST
        for each in events
    )


def quiet_nights(history: History, events: Sequence[Event]) -> int:
    """Return the figures of metrics on which nothing was planted up to their night, of those that differ at all."""
    nights = np.array([number(each) for each in history.nights])
    total = 0
    for values, (testbed, sut, metric, _, _) in zip(history.values, history.series, strict=True):
        known = np.isfinite(values)
        if not known.any() or np.nanmax(values) == np.nanmin(values):
            continue
        first = min(
            (each.night for each in own_events((testbed, sut), events) if metric in each.metrics), default=len(nights)
        )
        total += int(np.count_nonzero(known & (nights < first)))
    return total


def read_labels(labels: Path) -> list[Event]:
    """Return what was planted."""
    content = json.loads(labels.read_bytes())
    return [Event(**{**each, "metrics": tuple(each["metrics"])}) for each in content["events"]]


# What it costs


def process_s(
    command: Sequence[str],
    cache: Path,
    times: int = 1,
    good: Sequence[int] = (0,),
) -> float:
    """Return the wall time of the process *command* in s, the median of so many *times*.

    Raises ``EnvironmentLacksError`` where it ends with another exit code than one of *good*.
    """
    found = []
    for _ in range(times):
        began = time.perf_counter()
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), CACHE_VARIABLE: str(cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        found.append(time.perf_counter() - began)
        if ended.returncode not in good:
            raise EnvironmentLacksError(f"expected {command[-1]} to be read, found: {ended.stderr[-2000:]}")
    return median(found)


def timed(results: Path, cache: Path, *, suts: int, nights: int, seed: int, events: Sequence[Event]) -> dict[str, Any]:
    """Return what the store costs to ask about. Adds one night to it."""
    read = [sys.executable, "-c", READ, str(results)]
    command = [sys.executable, "-m", "calibration.cli"]
    judge = [*command, "judge", str(results), "--json"]
    shutil.rmtree(cache, ignore_errors=True)
    build = process_s([*read, f"metric={METRIC}"], cache)
    whole = process_s([*read, f"metric={METRIC}"], cache, 3)
    everyone = names(suts)
    for sut in everyone:
        moved = factors(sut, nights + 1, seed, own_events(sut, events))
        write_night(results, sut, nights, moved[nights], own_events(sut, events))
    refresh = process_s([*read, f"metric={METRIC}"], cache)
    testbed, name = everyone[suts // 2]
    trend = [*command, "trend", f"{testbed}/{name}", METRIC, "--results", str(results), "--json"]

    return {
        "build_s": round(build, 2),
        "one_metric_of_all_s": round(whole, 2),
        "new_night_s": round(refresh, 2),
        "history_s": round(process_s(trend, cache, 5), 3),
        "verdicts_s": round(process_s(judge, cache, 5, good=(0, 1)), 2),
        "index_bytes": sum(path.stat().st_size for path in cache.rglob("*.duckdb")),
    }


@contextmanager
def made(keep: Path | None, *, suts: int, nights: int, seed: int) -> Iterator[tuple[Path, dict[str, Any], list[Event]]]:
    """Make a store, or find it made in *keep*; yield its place, what it is, and what was planted."""
    with tempfile.TemporaryDirectory(prefix="calibration-nights-") as work:
        folder = keep or Path(work)
        results, labels, about = folder / "results", folder / "labels.json", folder / "store.json"
        wanted = {"suts": suts, "nights": nights, "seed": seed}
        if not about.exists():
            folder.mkdir(parents=True, exist_ok=True)
            click.echo(f"making {suts} SUTs x {nights} nights in {folder}", err=True)
            began = time.perf_counter()
            size = make(results, labels, suts=suts, nights=nights, seed=seed)
            documents = sum(1 for _ in results.glob("*/*/*/run.json"))
            made_s = round(time.perf_counter() - began, 1)
            write_json(about, {**wanted, "bytes": size, "documents": documents, "made_s": made_s})
        known = json.loads(about.read_bytes())
        if {name: known[name] for name in wanted} != wanted:
            raise InputError(f"expected the store of {wanted} in {keep}, found that of {known}; give another --keep")
        yield results, known, read_labels(labels)


def told(path: Path | None, name: str, store: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Print *content*, and put it as *name* into the document at *path*, beside what is there."""
    document = {"store": dict(store), **content, "harness_version": __version__, "machine": machine()}
    click.echo(json.dumps(document, indent=1))
    if path is not None:
        kept = json.loads(path.read_bytes()) if path.exists() else {}
        write_json(path, {"schema": SCHEMA, **kept, name: document})


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": os.uname().release,
    }


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Keep the figures."),
        click.option("--keep", type=click.Path(path_type=Path), help="Make the store here, or take it from here."),
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Another one makes another."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def nights_command() -> None:
    """Ask about many nights, and judge them."""


@nights_command.command("time")
@click.option("--suts", type=click.IntRange(1), default=LARGEST[0], show_default=True, help="Number of SUTs.")
@click.option("--nights", type=click.IntRange(20), default=LARGEST[1], show_default=True, help="Number of nights.")
@_options
def time_command(suts: int, nights: int, seed: int, keep: Path | None, json_file: Path | None) -> None:
    """Time whole processes that ask about a store."""
    with (
        made(keep, suts=suts, nights=nights, seed=seed) as (results, store, events),
        tempfile.TemporaryDirectory() as cache,
    ):
        try:
            found = timed(results, Path(cache), suts=suts, nights=nights, seed=seed, events=events)
        finally:
            tonight = f"{FIRST_NIGHT + timedelta(days=nights):%Y%m%d}{START}*"
            for path in results.glob(f"*/*/{tonight}"):
                shutil.rmtree(path)
        met = {
            name: {"limit": limit, "met": found[name] <= limit if (suts, nights) == LARGEST else None}
            for name, limit in TARGETS.items()
        }
        told(json_file, "time", store, {**found, "targets": met})


@nights_command.command("table")
@click.option("--suts", type=click.IntRange(2), default=20, show_default=True, help="Number of SUTs.")
@click.option("--nights", type=click.IntRange(20), default=180, show_default=True, help="Number of nights.")
@_options
def table_command(suts: int, nights: int, seed: int, keep: Path | None, json_file: Path | None) -> None:
    """Judge a store night by night, and hold what was found against what was planted."""
    with made(keep, suts=suts, nights=nights, seed=seed) as (results, store, events):
        history, findings = judged(results)
        told(json_file, "table", store, table_of(history, findings, events))


def main() -> None:
    """Run the benchmark and exit by the contract of all commands."""
    try:
        nights_command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CalibrationError as error:
        click.echo(f"nights: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
