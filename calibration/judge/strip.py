# SPDX-License-Identifier: Apache-2.0
"""The last nights of each SUT, one state per night: its runs, their own checks, and the limits of each night."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Final, NamedTuple

import numpy as np

from calibration.judge.answer import OF_THE_MEASUREMENT, Answer, State
from calibration.judge.baseline_files import Baseline
from calibration.judge.causes import context_changes
from calibration.judge.judged import JudgedNights
from calibration.results.history import NightRun, Sut

NIGHTS: Final = 14


class NightState(NamedTuple):
    """The state of a SUT on one night; ``None`` before its first. ``changed``: its configuration did that night."""

    night: date
    state: State | None
    changed: bool


def strip_of(nights: JudgedNights, answer: Answer) -> list[NightState]:
    """Return the states of the SUT of *answer* on the last nights; the last one is that of the answer.

    A night before is judged by the checks of its run and by its limits; drift and peers are not looked at again.
    """
    sut = answer.testbed, answer.sut
    shown = nights.history.nights[-NIGHTS:]
    return [*_before(nights, sut, shown[:-1]), NightState(shown[-1], answer.state, bool(nights.changed_tonight(sut)))]


def _before(nights: JudgedNights, sut: Sut, shown: tuple[date, ...]) -> Iterator[NightState]:
    runs = nights.history.runs.get(sut, {})
    first = min(runs, default=None)
    before: NightRun | None = max(
        (run for night, run in runs.items() if shown and night < shown[0]), key=lambda run: run.night, default=None
    )
    for night in shown:
        run = runs.get(night)
        if first is None or night < first:
            yield NightState(night, None, changed=False)
        elif run is None:
            yield NightState(night, "not_measured", changed=False)
        else:
            changed = before is not None and bool(run.facts and before.facts and context_changes(before, run))
            yield NightState(night, _state(nights, sut, run), changed)
            before = run


def _state(nights: JudgedNights, sut: Sut, run: NightRun) -> State:
    if set(run.failed) - set(OF_THE_MEASUREMENT):
        return "fails"
    bounds = nights.baselines.of(sut, run.facts, run.night).bounds
    column = nights.history.nights.index(run.night)
    rows = {metric: row for metric in bounds if (row := nights.rows.get((*sut, metric))) is not None}
    values = nights.history.values[list(rows.values()), column]
    if _outside(nights, rows, values, bounds):
        return "fails"
    if run.failed:
        return "faulty"
    if not np.isfinite(values).any():
        return "no_baseline" if np.isfinite(nights.history.values[:, column]).any() and not bounds else "not_measured"
    return "as_accepted"


def _outside(nights: JudgedNights, rows: Mapping[str, int], values: np.ndarray, bounds: Mapping[str, Baseline]) -> bool:
    """Return whether any of *values*, of the metrics of *rows*, fails its bounds."""
    ends = [(bounds[metric].bounds.lower, bounds[metric].bounds.upper) for metric in rows]
    low = np.array([-np.inf if lower is None else lower for lower, _ in ends])
    high = np.array([np.inf if upper is None else upper for _, upper in ends])
    metrics = list(rows)
    for place in np.flatnonzero((values < low) | (values > high)).tolist():
        accepted = bounds[metrics[place]].bounds.value
        series = nights.history.series[rows[metrics[place]]]
        if nights.tolerances.classify_change(series, accepted, float(values[place]))[0] == "fail":
            return True
    return False
