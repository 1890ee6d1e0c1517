# SPDX-License-Identifier: Apache-2.0
"""Limits of a night: whether a value is within the accepted bounds and the limits of the inventory."""

from datetime import date

import numpy as np

from calibration.judge.baseline_files import Baseline, Bounds
from calibration.judge.rows import SeriesNight
from calibration.judge.tolerances import Move, Tolerances
from calibration.judge.verdicts import NightVerdict
from calibration.judge.words import amount, within
from calibration.results.history import History, Recorded


def judge_value(
    history: History, row: SeriesNight, value: float, baseline: Baseline | None, tolerances: Tolerances
) -> NightVerdict:
    """Return whether *value*, that of *row* tonight, is within the *baseline* and the limits of the inventory."""
    series = row.series
    recorded = history.recorded.get((series.testbed, series.sut, series.metric))
    if recorded is not None and recorded.lower is None and recorded.upper is None and recorded.outcome != "fail":
        recorded = None
    if baseline is None and recorded is None:
        reason = "no baseline or limit for this SUT yet: see calibration accept"
        return row.verdict_on_value("limits", "no_reference", reason)
    lower, upper = _intersection(baseline and baseline.bounds, recorded)
    wrong = []
    move = Move("fail")
    if baseline is not None and baseline.bounds.unit != series.unit:
        wrong.append(f"in {series.unit}, but accepted in {baseline.bounds.unit}")
    elif baseline is not None and baseline.bounds.excludes(value):
        move = tolerances.classify_change(series, baseline.bounds.value, value)
        expected = f"expected {baseline.bounds.words}, {baseline.source}"
        wrong.append(f"{expected}, found {amount(value, series.unit)}{move.why}")
    if recorded is not None and recorded.outcome == "fail":
        move = Move("fail")
        wrong.append(recorded.reason)
    if wrong:
        since = _outside_since(history, row.index, lower, upper)
        fields = {"bound": (lower, upper), "since": since, "better": move.better}
        return row.verdict_on_value("limits", move.outcome, "; ".join(wrong), **fields)
    if recorded is not None and recorded.outcome == "warn":
        return row.verdict_on_value("limits", "noted", f"beyond a soft limit: {recorded.reason}", bound=(lower, upper))
    by = baseline.source if baseline is not None else "set in the inventory"
    reason = f"{amount(value, series.unit)} is within {within(lower, upper, series.unit)}, {by}"
    return row.verdict_on_value("limits", "pass", reason, bound=(lower, upper))


def _intersection(bounds: Bounds | None, recorded: Recorded | None) -> tuple[float | None, float | None]:
    """Return the intersection of both ranges."""
    both = [item for item in (bounds, recorded) if item is not None]
    lower = max((side.lower for side in both if side.lower is not None), default=None)
    upper = min((side.upper for side in both if side.upper is not None), default=None)
    return lower, upper


def _outside_since(history: History, index: int, lower: float | None, upper: float | None) -> date:
    """Return the first night of the current run of values out of bounds; nights without a value do not end it."""
    values = history.values[index]
    (known,) = np.nonzero(np.isfinite(values))
    outside = np.zeros(len(known), dtype=bool)
    if lower is not None:
        outside |= values[known] < lower
    if upper is not None:
        outside |= values[known] > upper
    (inside,) = np.nonzero(~outside)
    first = int(inside[-1]) + 1 if len(inside) else 0
    return history.nights[int(known[min(first, len(known) - 1)])]
