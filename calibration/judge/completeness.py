# SPDX-License-Identifier: Apache-2.0
"""Completeness of a night: whether a SUT has a run, and whether the run has all its metrics."""

from collections.abc import Sequence
from datetime import date
from typing import Final

import numpy as np

from calibration.judge.rows import SeriesNight
from calibration.judge.verdicts import RUN, NightVerdict
from calibration.results.history import History, NightRun, Series, Sut

NO_VALUE: Final = "no valid value this night: "
"""Begins the reason of a missing metric."""

MAX_REASONS: Final = 3
"""Reasons shown for an incomplete run; the run's page has all of them."""


def judge_run(
    history: History, sut: Sut, rows: Sequence[SeriesNight], run: NightRun | None, indices: Sequence[int]
) -> NightVerdict:
    """Return whether *sut* was measured tonight: its *run* exists and has values.

    *rows* are its expected series, *indices* those of all series that it ever had.
    """
    night = history.nights[-1]
    row = SeriesNight(Series(*sut, RUN, "", "lower"), night, run.run_id if run else None)
    if run is not None and any(row.value is not None for row in rows):
        return row.verdict("missing", "pass", f"run {run.run_id} is {run.status}")
    damaged = [
        damaged.file for damaged in history.unreadable if (damaged.testbed, damaged.sut, damaged.night) == (*sut, night)
    ]
    runs = history.runs.get(sut)
    if run is not None:
        reason = f"the run is {run.status} and has no valid metric: {_reasons(run, '')}"
    elif damaged:
        reason = f"cannot read {damaged[0]}, the run of this night"
    else:
        reason = f"no run this night; the last is {runs[max(runs)].run_id if runs else 'unknown'}"
    since = _first_missing(history, indices) or min(history.runs[sut])  # no run of it ever had a value
    return row.verdict("missing", "fail", reason, since=since)


def judge_metric(history: History, row: SeriesNight, run: NightRun) -> NightVerdict:
    """Return whether *run* has a valid value for *row*."""
    if row.value is not None:
        return row.verdict_on_value("missing", "pass", "measured and valid")
    reason = f"{NO_VALUE}{_reasons(run, row.series.metric)}"
    since = _first_missing(history, [row.index])
    return row.verdict("missing", "fail", reason, unit=row.series.unit, since=since)


def _first_missing(history: History, indices: Sequence[int]) -> date | None:
    """Return the first night since which all series at *indices* lack a value; ``None`` if none ever had one."""
    (known,) = np.nonzero(np.isfinite(history.values[indices]).any(axis=0))
    if not len(known):
        return None
    return history.nights[min(int(known[-1]) + 1, len(history.nights) - 1)]


def _reasons(run: NightRun, metric: str) -> str:
    """Return why tonight's run lacks *metric*; an empty name means the whole run.

    The most specific reason wins: of the metric, then of the kind, then, if the run did not end well, any.
    """
    kind = metric.partition(".")[0]
    reasons: Sequence[str] = [reason for reason in run.reasons if metric and reason.startswith(f"{metric}: ")]
    reasons = reasons or [reason for reason in run.reasons if kind in reason]
    if not reasons and run.status != "complete":
        reasons = run.reasons
    more = f"; and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
    return "; ".join(reasons[:MAX_REASONS]) + more if reasons else f"run {run.run_id} gives no reason"
