# SPDX-License-Identifier: Apache-2.0
"""False refusals of the quick gate, and the changes it finds, on recorded noise: ``python -m bench.quick_gate``.

``record`` measures the rounds of the profile sentinel for minutes, without a pause. ``simulate`` draws nights from such
a recording, accepts them, and gates other stretches of it, unchanged or with a planted change. A stretch is as long as
a run: blocks keep what rounds in a row share. ``repeat`` makes nights of this machine, accepts them, and gates it again
and again. The tables are in docs/method/quick_gate.rst.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from bench.contenders import allowed_cpus, describe_machine
from bench.noise import Recording, Series
from bench.peers import program_of, tick_hz_of
from bench.tables import table
from calibration.context import load
from calibration.errors import GOOD, VERDICT_FAILED, EnvironmentLacksError
from calibration.judge.baseline_files import Bounds
from calibration.judge.drift import analyse
from calibration.judge.prediction import OUTSIDE, Nights, level_of, predict
from calibration.judge.sentinels import SENTINELS, Sentinel, Verdict, judge_level
from calibration.judge.sentinels import level_of as accepted_level
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.places import SHARE
from calibration.plan import make_plan
from calibration.profiles import load_profile
from calibration.quick.checks import read_checks
from calibration.quick.gate import CHECKS
from calibration.statistics import estimate
from calibration.sutprobe.document import ProbeDocument, read_document

PROFILE: Final = "sentinel"

GAP: Final = "jitter.max_ns"
"""The series of longest gaps; in the documents it has the number of its CPU."""

UNITS: Final = {"latency": "ns", "bandwidth": "MB/s", "clock": "Hz", "gap": "ns"}

OTHERS: Final = {"latency": "Chase in 64 MiB", "bandwidth": "Reads, all CPUs", "clock": "Chase in 256 KiB"}
"""Series of bench/recorded_noise.json that are as noisy as the sentinels: a chase in the cache takes a fixed number of
core clocks."""

AGAIN: Final = 3
"""Rounds between a reading and its repetition: the time that Ansible takes."""

CHANGES: Final = {"latency": 0.05, "bandwidth": -0.03, "clock": -0.02}
"""Planted changes, by sentinel."""

Floats = NDArray[np.float64]


def record(minutes: float) -> Recording:
    """Return the values of each sentinel in every round of *minutes* on this machine.

    Raises ``EnvironmentLacksError`` if a command fails.
    """
    program = program_of()
    machine = describe_machine(Path("/"), allowed_cpus(), tick_hz_of(program))
    context = load(Path("/"))
    plan = make_plan(context, load_profile(PROFILE))
    wanted = {name: sentinel.name for sentinel in SENTINELS for name in reversed(sentinel.metrics)}
    now, began = datetime.now(UTC), time.monotonic()
    found: dict[str, list[tuple[float, float]]] = {}
    number = 0
    while time.monotonic() - began < 60 * minutes:
        number += 1
        at_s = round(time.monotonic() - began, 1)
        for step in plan.steps:
            seed = ("--seed", str(number)) if step.seeded else ()
            done = subprocess.run((program, *step.argv[1:], *seed), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise EnvironmentLacksError(f"{step.id}: {done.stderr.strip()}")
            document = ProbeDocument.merged([(1, read_document(json.loads(done.stdout)), None)])
            for parsed in declaration(step.kind).parse(document, step, context):
                values = {metric.name: metric.value for metric in declaration(step.kind).metrics(parsed.values)}
                for name, value in values.items():
                    title = GAP if name.endswith(".gaps.max_ns") else name
                    if title == GAP or title in wanted:
                        found.setdefault(title, []).append((at_s, float(f"{value:.5g}")))
    return Recording(
        machine=machine.described,
        recorded_at=now,
        series=tuple(
            Series(
                title=title,
                unit=UNITS[wanted.get(title, "gap")],
                t_s=tuple(at for at, _ in pairs),
                values=tuple(value for _, value in pairs),
            )
            for title, pairs in found.items()
        ),
    )


def quieter(values: Sequence[float], scale: float) -> Floats:
    """Return *values* whose distances from their median are *scale* times as large, as logarithms."""
    logs = np.log(np.array(values))
    return np.asarray(np.exp(np.median(logs) + scale * (logs - np.median(logs))))


def series_of(recording: Recording, sentinel: Sentinel) -> Series:
    """Return the series of *sentinel* in *recording*."""
    titles = (*sentinel.metrics, OTHERS[sentinel.name])
    return next(item for title in titles for item in recording.series if item.title == title)


def metric_of(sentinel: Sentinel, values: Floats) -> Metric:
    """Return the metric of a run whose rounds have *values*."""
    found = declaration(sentinel.kind)
    return found.metric(
        sentinel.metrics[0].partition(".")[2],
        sentinel.name,
        estimate([[float(value)] for value in values], UNITS[sentinel.name], rounds=range(len(values))),
    )


def accept(metrics: Sequence[Metric]) -> Bounds:
    """Return the bounds that accepting the last of a series of nights with *metrics* gives."""
    last = metrics[-1]
    values = np.array([metric.value for metric in metrics])
    ends = np.array([metric.interval or (np.nan, np.nan) for metric in metrics])
    nights = Nights(
        values=values,
        low=ends[:, 0],
        high=ends[:, 1],
        analysis=analyse(values[None])[0],
        coverage=last.coverage,
        placements=last.placements,
        rounds=last.rounds,
    )
    found = predict([level_of(nights, positive=True)], positive=True)
    return Bounds(
        value=found.value,
        lower=found.lower,
        upper=found.upper,
        unit=last.unit,
        method=found.method,
        why=found.why,
        spread=found.spread,
        relative=found.relative,
        nights=len(metrics),
    )


class Lab:
    """Nights of one SUT drawn from *recording*, with noise *scale* times as large, and accepted."""

    def __init__(self, recording: Recording, nights: int, scale: float, chance: np.random.Generator) -> None:
        """Accept *nights* stretches, each of a profile's rounds."""
        self.rounds = load_profile(PROFILE).rounds
        self._chance = chance
        self._values = {sentinel: quieter(series_of(recording, sentinel).values, scale) for sentinel in SENTINELS}
        self.length = min(map(len, self._values.values()))
        starts = chance.integers(self.length - self.rounds + 1, size=nights)
        self._levels = {
            sentinel: accepted_level(accept([self._metric(sentinel, start) for start in starts]), OUTSIDE)
            for sentinel in SENTINELS
        }

    def _metric(self, sentinel: Sentinel, start: int, factor: float = 1.0) -> Metric:
        return metric_of(sentinel, factor * self._values[sentinel][start : start + self.rounds])

    def gate(self, changes: Mapping[str, float]) -> dict[str, Verdict]:
        """Return the verdict on each sentinel at some moment, with *changes* of some of them planted."""
        again = self.rounds + AGAIN
        start = int(self._chance.integers(self.length - again - self.rounds + 1))
        found: dict[str, Verdict] = {}
        for sentinel in SENTINELS:
            factor = 1 + changes.get(sentinel.name, 0.0)
            metrics = [self._metric(sentinel, start, factor)]
            verdict = judge_level(self._levels[sentinel], sentinel.change, metrics)
            if verdict.repeat:
                metrics.append(self._metric(sentinel, start + again, factor))
                verdict = judge_level(self._levels[sentinel], sentinel.change, metrics)
            found[sentinel.name] = verdict
        return found


class Rate(NamedTuple):
    """In how many of so many trials something happened."""

    number: int
    trials: int

    @property
    def share(self) -> float:
        """The share of the trials."""
        return self.number / self.trials

    @property
    def text(self) -> str:
        """The share in per cent, with its 95 % interval (Clopper and Pearson)."""
        rest = self.trials - self.number
        low = float(betaincinv(self.number, rest + 1, 0.025)) if self.number else 0.0
        high = float(betaincinv(self.number + 1, rest, 0.975)) if rest else 1.0
        return f"{100 * self.share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


class Rates(NamedTuple):
    """What gates of one noise do.

    ``refused`` are unchanged SUTs that fail; ``decided`` has the unchanged gates that pass, ``found`` and ``missed``
    the changed ones that fail and pass, by sentinel.
    """

    refused: Rate
    decided: Mapping[str, Rate]
    found: Mapping[str, Rate]
    missed: Mapping[str, Rate]


def rates_of(recording: Recording, nights: int, scale: float, gates: int, seed: int = 1) -> Rates:
    """Return the rates of so many *gates*, unchanged and with each of ``CHANGES``.

    Each has accepted nights of its own: gates against the same ones would fail together.
    """
    chance = np.random.default_rng(seed)
    outcomes: dict[str, list[dict[str, Verdict]]] = {name: [] for name in ("", *CHANGES)}
    for _ in range(gates):
        lab = Lab(recording, nights, scale, chance)
        for name, of_change in outcomes.items():
            of_change.append(lab.gate({name: CHANGES[name]} if name else {}))
    unchanged = outcomes[""]

    def rate(name: str, of_change: Sequence[Mapping[str, Verdict]], outcome: str) -> Rate:
        return Rate(sum(verdicts[name].outcome == outcome for verdicts in of_change), len(of_change))

    return Rates(
        refused=Rate(
            sum(any(verdict.outcome == "failed" for verdict in verdicts.values()) for verdicts in unchanged),
            len(unchanged),
        ),
        decided={name: rate(name, unchanged, "passed") for name in CHANGES},
        found={name: rate(name, outcomes[name], "failed") for name in CHANGES},
        missed={name: rate(name, outcomes[name], "passed") for name in CHANGES},
    )


HEAD: Final = (
    "Noise",
    "Nights",
    "Refused",
    *(f"{name.capitalize()} {100 * by:+.0f} %" for name, by in CHANGES.items()),
)

NOISES: Final = ((1.0, 10), (1 / 3, 10), (1 / 10, 10), (1 / 30, 10), (1 / 30, 30), (1 / 100, 10), (1 / 100, 30))
"""How large the noise is, relative to the recorded one, and after how many nights a run is accepted."""


def rows(recording: Recording, gates: int) -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each of ``NOISES``: shares in per cent.

    The cell of a sentinel has the spread of runs, then how many gates pass unchanged, find the change, and miss it.
    """
    rounds = load_profile(PROFILE).rounds
    for scale, nights in NOISES:
        rates = rates_of(recording, nights, scale, gates)
        cells = []
        for sentinel in SENTINELS:
            values = quieter(series_of(recording, sentinel).values, scale)
            runs = [median(values[at : at + rounds]) for at in range(0, len(values) - rounds + 1, rounds)]
            shares = (found[sentinel.name].share for found in (rates.decided, rates.found, rates.missed))
            spread = 100 * float(np.std(np.log(runs), ddof=1))
            cells.append(f"{spread:.2g}: {' / '.join(f'{100 * share:.1f}' for share in shares)}")
        yield "1" if scale == 1 else f"1/{round(1 / scale)}", str(nights), rates.refused.text, *cells


def make_nights(results: Path, nights: int) -> Path:
    """Measure this machine so often, as if a day had passed between; return the run of the last night, which is today.

    Raises ``EnvironmentLacksError`` if a run fails.
    """
    today = datetime.now(UTC).date()
    for number in range(nights):
        run_id = f"{today - timedelta(days=nights - 1 - number):%Y%m%d}T000000Z-{number:04x}"
        variables = {"calibration_results_dir": str(results.absolute()), "calibration_run_id": run_id}
        code = _calibration("run", f"--profile={PROFILE}", "--skip-tags=pages", "-e", json.dumps(variables))
        if code not in {GOOD, VERDICT_FAILED}:
            raise EnvironmentLacksError(f"the run of night {number + 1} ended with {code}")
    return max(results.glob("*/*/*"), key=lambda path: path.name)


def _calibration(*words: str) -> int:
    command = (sys.executable, "-m", "calibration.cli", *words)
    return subprocess.run(command, cwd=SHARE, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode


class Gated(NamedTuple):
    """A gate of this machine: its exit code, how long it took, and the outcome of each check."""

    code: int
    wall_s: float
    outcomes: Mapping[str, str]


def gate_here(results: Path, output: Path) -> Gated:
    """Gate this machine against what is accepted in *results*. Raises ``EnvironmentLacksError`` if there is no log."""
    (output / CHECKS).unlink(missing_ok=True)
    began = time.monotonic()
    code = _calibration("gate", str(results), "--quick", "--output", str(output))
    wall_s = time.monotonic() - began
    if not (output / CHECKS).is_file():
        raise EnvironmentLacksError(f"the gate ended with {code}")
    return Gated(code, wall_s, {check.check: check.outcome for check in read_checks(output / CHECKS)})


def gated_rows(gated: Sequence[Gated]) -> Iterator[tuple[str, ...]]:
    """Yield a row for all checks together, and one for each: how many gates passed, failed and were undecided."""
    codes = [{GOOD: "passed", VERDICT_FAILED: "failed"}.get(gate.code, "undecided") for gate in gated]
    names = dict.fromkeys(name for gate in gated for name in gate.outcomes)
    columns: dict[str, list[str | None]] = {"all": [*codes]}
    columns |= {name: [gate.outcomes.get(name) for gate in gated] for name in names}
    for title, found in columns.items():
        yield title, *(str(found.count(outcome)) for outcome in ("passed", "failed", "undecided"))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def quick_gate() -> None:
    """Measure false refusals of the quick gate, and the changes it finds."""


@quick_gate.command("record")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def record_command(*, minutes: float, out: Path) -> None:
    """Record the sentinels of this machine round by round."""
    recording = record(minutes)
    out.write_text(recording.model_dump_json() + "\n", encoding="utf-8")
    click.echo(f"{out}: {len(recording.series[0].values)} rounds of {len(recording.series)} sentinels")


@quick_gate.command("simulate")
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--gates", type=click.IntRange(1), default=2000, show_default=True, help="Gates per cell.")
def simulate_command(recording: Path, gates: int) -> None:
    """Print what gates do on the noise of a recording, and on the same noise made smaller."""
    read = Recording.model_validate_json(recording.read_bytes())
    click.echo("\n".join(table(HEAD, list(rows(read, gates)))))


@quick_gate.command("repeat")
@click.option("--nights", type=click.IntRange(5), default=10, show_default=True, help="Runs to accept.")
@click.option("--gates", type=click.IntRange(1), default=20, show_default=True)
@click.option("--out", "folder", type=click.Path(path_type=Path, file_okay=False), required=True)
def repeat_command(*, nights: int, gates: int, folder: Path) -> None:
    """Gate this machine again and again: every gate that fails is a false refusal if nothing changes meanwhile."""
    results = folder.absolute() / "results"
    results.mkdir(parents=True, exist_ok=True)
    run = make_nights(results, nights)
    if (code := _calibration("accept", str(run), "--by", "bench", "--reason", "unchanged")) != GOOD:
        raise EnvironmentLacksError(f"accepting {run} ended with {code}")
    gated = []
    for number in range(1, gates + 1):
        gated.append(gate_here(results, folder.absolute() / "gate"))
        click.echo(f"{number} of {gates}: exit code {gated[-1].code}, {gated[-1].wall_s:.0f} s", err=True)
    walls = [gate.wall_s for gate in gated]
    click.echo("\n".join(table(("Check", "Passed", "Failed", "Undecided"), list(gated_rows(gated)))))
    click.echo(f"{len(walls)} gates: median {median(walls):.1f} s, {min(walls):.1f} to {max(walls):.1f} s")


if __name__ == "__main__":
    quick_gate()
