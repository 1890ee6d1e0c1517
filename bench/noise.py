# SPDX-License-Identifier: Apache-2.0
"""Coverage of estimates on recorded noise: a machine's placements over minutes, and designs of a run drawn from them.

``record`` alternates short sutprobe commands, one placement each. A design takes some of the placements as the rounds
of a run: back to back, or spread over the duration of the run. Runs start at every placement that was recorded;
neighbouring ones share placements, so blocks as long as a run are the units of the uncertainty.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from bench.contenders import OURS, Contender, Machine, Output, Start, our_bandwidth, our_latency, our_transfer
from bench.peers import values_of
from bench.shares import Share, percent, share_of, share_text, spread_of
from calibration.errors import InputError
from calibration.model import Model, UtcTime
from calibration.statistics import Estimate, estimate

MIB: Final = 1 << 20

ROUNDS: Final = (6, 9)
"""The fewest whose extremes cover the median with 95 %, and the fewest whose second ones do."""


class Series(Model):
    """One value of each placement of a metric, in ``unit``, and when its command ended, in s since the start."""

    title: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[PositiveFloat, ...]


class Recording(Model):
    """Series recorded in alternation on one machine."""

    machine: str
    recorded_at: UtcTime
    series: tuple[Series, ...]


class Recorded(NamedTuple):
    """A command of sutprobe, to which the seed of each placement is added, and how its value is read."""

    title: str
    unit: str
    command: tuple[str, ...]
    read: Callable[[Output], float]


def commands(machine: Machine, program: str) -> Iterator[Recorded]:
    """Yield what is recorded on *machine*: placements of about 0.2 s each."""
    cpu = machine.quiet_cpu
    place = f"{cpu}@{machine.node_of(cpu)}"
    once = ("--placements", "1")
    for title, size in (("Chase in 256 KiB", MIB // 4), ("Chase in 64 MiB", 64 * MIB)):
        chase = (program, "latency", "--at", place, "--size-bytes", str(size), "--windows", "5", *once)
        yield Recorded(title, "ns", chase, our_latency)
    for title, group in (("Reads, one CPU", place), ("Reads, all CPUs", machine.group)):
        size = 64 * MIB // (1 if group == place else len(machine.cpus))
        reads = (program, "bandwidth", "--group", group, "--mix", "reads", "--buffer-bytes", str(size))
        windows = ("--windows", "3", "--window-s", "0.01", *once)
        yield Recorded(title, "MB/s", (*reads, *windows), our_bandwidth)
    if len(machine.cpus) > 1:
        pair = f"{cpu}@{machine.cpus[0]}:{machine.node_of(cpu)}:hitm"
        yield Recorded(
            "Transfer, two CPUs", "ns", (program, "c2c", "--pair", pair, "--windows", "3", *once), our_transfer
        )


def record(machine: Machine, recorded: Sequence[Recorded], minutes: float) -> Recording:
    """Return a recording of *minutes*. Raises ``NotComparedError`` if a command fails."""
    now, began = datetime.now(UTC), time.monotonic()
    series: list[list[tuple[float, float]]] = [[] for _ in recorded]
    seed = 0
    while time.monotonic() - began < 60 * minutes:
        seed += 1
        for item, found in zip(recorded, series, strict=True):
            start = Start((*item.command, "--seed", str(seed)))
            values = values_of(Contender(OURS, item.title, (start,), {item.title: item.read}))
            found.append((round(time.monotonic() - began, 1), float(f"{values[item.title]:.6g}")))
    return Recording(
        machine=machine.described,
        recorded_at=now,
        series=tuple(
            Series(
                title=item.title,
                unit=item.unit,
                t_s=tuple(at for at, _ in found),
                values=tuple(value for _, value in found),
            )
            for item, found in zip(recorded, series, strict=True)
        ),
    )


class Row(NamedTuple):
    """What runs of one design achieved: ``half_width`` is the median one in units of the spread of the runs' values."""

    title: str
    rounds: int
    taken: str
    claimed: float
    achieved: Share | None
    predicted: Share | None
    half_width: float | None


def row_of(series: Series, rounds: int, run_s: float, pause_s: float, *, together: bool) -> Row:
    """Return the row of runs of so many *rounds*, back to back at their start if *together*, else spread over *run_s*.

    The next run starts *pause_s* after one ends. Raises ``InputError`` for a series shorter than four runs.
    """
    times = np.array(series.t_s)
    if (length_s := times[-1] - times[0]) < (least_s := 4 * run_s + pause_s):
        raise InputError(f"{series.title}: {length_s:.0f} s recorded, at least {least_s:.0f} s needed")
    estimates = {began: _run(series, times, began, rounds, run_s, together=together) for began in range(len(times))}
    runs = {began: run for began, run in estimates.items() if run is not None}
    truth = median(series.values)
    held: dict[int, list[bool]] = {}
    predicted: dict[int, list[bool]] = {}
    for began, run in runs.items():
        block = int((times[began] - times[0]) / run_s)
        after = runs.get(int(np.searchsorted(times, times[began] + run_s + pause_s)))
        if run.interval is not None:
            held.setdefault(block, []).append(run.interval[0] <= truth <= run.interval[1])
        if run.prediction is not None and after is not None:
            predicted.setdefault(block, []).append(run.prediction[0] <= after.value <= run.prediction[1])
    widths = [(run.interval[1] - run.interval[0]) / 2 for run in runs.values() if run.interval is not None]
    spread = spread_of([run.value for run in runs.values()])
    return Row(
        series.title,
        rounds,
        "back to back" if together else f"over {run_s:g} s",
        fmean(run.coverage or 0.0 for run in runs.values()),
        share_of(held.values()),
        share_of(predicted.values()),
        median(widths) / spread if spread else None,
    )


def _run(
    series: Series, times: NDArray[np.float64], began: int, rounds: int, run_s: float, *, together: bool
) -> Estimate | None:
    """Return the run that begins with the placement *began*, ``None`` if the recording ends before it."""
    if times[began] + run_s > times[-1]:
        return None
    spread = np.searchsorted(times, times[began] + np.linspace(0.0, run_s, rounds))
    chosen = range(began, began + rounds) if together else spread
    return estimate([[series.values[index]] for index in chosen], series.unit, rounds=range(rounds))


HEAD: Final = ("Metric", "Rounds", "Taken", "Claimed, %", "Achieved, %", "Next run, %", "Half-width")


def rows(recording: Recording, run_s: float, pause_s: float) -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each metric and design."""
    for series in recording.series:
        for rounds in ROUNDS:
            for together in (True, False):
                row = row_of(series, rounds, run_s, pause_s, together=together)
                shares = (share_text(row.achieved), share_text(row.predicted))
                width = "—" if row.half_width is None else f"{row.half_width:.2f}"
                yield row.title, str(row.rounds), row.taken, percent(row.claimed), *shares, width
