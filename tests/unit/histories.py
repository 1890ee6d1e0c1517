# SPDX-License-Identifier: Apache-2.0
"""Histories of nights, made by hand."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from calibration.judge.baseline_files import Baselines
from calibration.judge.drift import Analysis, DriftChange, Flips, analyse
from calibration.judge.judged import JudgedNights
from calibration.judge.night import judge_history
from calibration.judge.run import verdicts_of
from calibration.judge.tolerances import Tolerances
from calibration.judge.waivers import Waivers
from calibration.results.history import History, NightRun, Recorded, Series
from tests.report.report_documents import replace, run_document, scaled, store

FIRST = date(2026, 1, 1)

FACTS = {
    "processor": "GenuineIntel Xeon 6 106 6", "microcode": "0xd0003a5", "BIOS": "Example 2.1 2025-01-01",
    "cores": "64 with 2 threads each", "nodes": "0: CPUs 0-63; 1: CPUs 64-127",
    "distances between nodes": "10 20; 20 10",
}  # fmt: skip

BANDWIDTH = "bandwidth_matrix.0.0.bandwidth_mb_s"
LATENCY = "idle_latency.latency_ns"


def night_of(number: int) -> date:
    return FIRST + timedelta(days=number)


def run_id(number: int) -> str:
    return f"{night_of(number):%Y%m%d}T020000Z-0a1b"


def noise(count: int, level: float = 100.0, spread: float = 0.01, seed: int = 1) -> list[float]:
    """Return figures of *count* nights around *level*, with a relative standard deviation of *spread*."""
    return (level * (1 + spread * np.random.default_rng(seed).standard_normal(count))).tolist()


def history(
    figures: Mapping[str, Sequence[float | None]] | Mapping[tuple[str, str, str], Sequence[float | None]],
    *,
    half_width: float | None = 0.005,
    facts: Mapping[int, Mapping[str, str]] | None = None,
    runs: Mapping[int, NightRun | None] | None = None,
    recorded: Mapping[tuple[str, str, str], Recorded] | None = None,
    unit: str = "MB/s",
) -> History:
    """Return the history of *figures*, by metric (of lab/t1) or by testbed, SUT and metric; ``None`` is no figure.

    *facts* of a night hold until the next given ones; *runs* take the place of those of lab/t1, ``None`` for no run.
    """
    named = {(("lab", "t1", key) if isinstance(key, str) else key): row for key, row in figures.items()}
    keys = sorted(named)
    values = np.array([[np.nan if item is None else item for item in named[key]] for key in keys], dtype=np.float64)
    half = np.nan if half_width is None else half_width
    nights = tuple(night_of(number) for number in range(values.shape[1]))
    by_sut: dict[tuple[str, str], dict[date, NightRun]] = {}
    for testbed, sut in sorted({key[:2] for key in keys}):
        known: Mapping[str, str] = FACTS
        for number, night in enumerate(nights):
            known = (facts or {}).get(number, known)
            made: NightRun | None = NightRun(
                testbed=testbed, sut=sut, run_id=run_id(number), night=night, status="complete",
                directory=f"{testbed}/{sut}/{run_id(number)}", facts=known, reasons=(),
            )  # fmt: skip
            if runs is not None and (testbed, sut) == ("lab", "t1") and number in runs:
                made = runs[number]
            if made is not None:
                by_sut.setdefault((testbed, sut), {})[night] = made
    return History(
        nights=nights,
        series=tuple(Series(*key, unit, "higher" if unit == "MB/s" else "lower") for key in keys),
        values=values,
        low=values * (1 - half),
        high=values * (1 + half),
        runs=by_sut,
        recorded=recorded or {},
    )


def judged(
    past: History,
    analyses: Sequence[Analysis] | None = None,
    references: Baselines | None = None,
    waivers: Waivers | None = None,
    tolerances: Tolerances | None = None,
) -> JudgedNights:
    return judge_history(
        past,
        analyse(past.values) if analyses is None else analyses,
        references or Baselines(Path("/nonexistent")),
        waivers or Waivers(),
        tolerances or Tolerances(),
    )


def stored(
    results: Path, figures: Sequence[float | None], *, testbed: str = "lab", sut: str = "t1", **fields: Any
) -> list[Path]:
    """Store a run for each night that has a figure of the idle latency, and return their directories.

    *fields* replace those of the runs' identities.
    """
    document = run_document(names=("idle_latency",))
    (measurement,) = document.measurements
    recorded = measurement.values.latency_ns  # type: ignore[union-attr]
    found = []
    for number, figure in enumerate(figures):
        if figure is None:
            continue
        latency = scaled(recorded, figure / recorded.value)
        made = replace(document, 0, values=measurement.values.model_copy(update={"latency_ns": latency}))
        when = datetime.combine(night_of(number), time(2), UTC)
        names = {"id": run_id(number), "testbed": testbed, "sut": sut, "started_at": when, "finished_at": when}
        made = made.model_copy(
            update={
                "run": made.run.model_copy(update=names | fields),
                "verdicts": tuple(verdicts_of(made.measurements)),
            }
        )
        found.append(store(made, results))
    return found


def run(number: int, status: str = "complete", reasons: tuple[str, ...] = ()) -> NightRun:
    """Return the run of lab/t1 in night *number*."""
    name = run_id(number)
    return NightRun("lab", "t1", name, night_of(number), status, f"lab/t1/{name}", FACTS, reasons)  # type: ignore[arg-type]


def steady(row: Sequence[float], changes: tuple[DriftChange, ...] = (), flips: Flips | None = None) -> Analysis:
    """Return what is known of a series: its nights from the last change on are one stretch."""
    first = max((change.night for change in changes), default=0)
    stretch = np.array(row[first:], dtype=np.float64)
    level = float(np.nanmedian(stretch))
    spread = float(np.nanstd(stretch)) / level if level else float("nan")
    return Analysis(changes, flips, level, spread, first, int(np.isfinite(stretch).sum()))


def shift(night: int, before: float, after: float, kind: str = "level") -> DriftChange:
    size = after / before - 1
    return DriftChange(kind, night, before, after, size, (size - 0.005, size + 0.005))  # type: ignore[arg-type]
