# SPDX-License-Identifier: Apache-2.0
"""Judgement of a night: which SUT changed, when, and which metrics are out of the accepted bounds.

Everything is judged as known on that night: later nights are ignored, and a baseline applies from the night of the
accepted run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import hypot, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.errors import InputError
from calibration.judge.baseline_files import AcceptedLevel, Baseline, Baselines, Bounds, facts_of
from calibration.judge.causes import context_changes, likely
from calibration.judge.detector import MIN_VALUES
from calibration.judge.drift import Analysis, Change, analyse
from calibration.judge.events import Event, find_events
from calibration.judge.homogeneity import judge_homogeneity
from calibration.judge.tolerances import FILE as TOLERANCES_FILE
from calibration.judge.tolerances import Tolerances, read_tolerances
from calibration.judge.verdicts import Check, ContextChange, NightVerdict, Outcome, unreadable
from calibration.judge.waivers import Waivers, read_waivers
from calibration.judge.words import amount, change, share, within
from calibration.model import Model
from calibration.results.find import pick_sut
from calibration.results.history import History, NightRun, Recorded, RecordedCheck, Series, Sut
from calibration.results.index import read_history
from calibration.units import plural

EXPECTED_NIGHTS: Final = 30
"""Nights for which an absent SUT or metric is still reported missing: a SUT that left the lab is reported for a month,
then forgotten."""

RUN: Final = "run"
"""Used in place of a metric if the whole run is missing."""

NO_VALUE: Final = "no valid value this night: "
"""Begins the reason of a missing metric."""

MAX_REASONS: Final = 3
"""Reasons shown for an incomplete run; the run's page has all of them."""


class Judgement(Model):
    """All verdicts of a night, by testbed and SUT, and the events shared by several SUTs."""

    night: date
    verdicts: tuple[NightVerdict, ...]
    events: tuple[Event, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether any verdict is a failure."""
        return any(verdict.outcome == "fail" for verdict in self.verdicts)


def judge_night(results: Path, night: date | None = None) -> Judgement:
    """Return the judgement of *night*, by default the newest in *results*.

    Unreadable files have verdicts of their own. Raises ``InputError`` if there is no run of that night.
    """
    history = read_history(results, until=night)
    check_night(history, results, night)
    analyses = analyse(history.values)
    return judge_history(history, analyses, Baselines(results), read_waivers(results), read_tolerances(results))


def of_sut(judgement: Judgement, sut: str) -> Judgement:
    """Return the judgement of *sut* only, by its name or a unique prefix (``calibration.results.find.pick_sut``).

    Raises ``InputError`` if no verdict matches.
    """
    sut = pick_sut(sut, sorted({f"{verdict.testbed}/{verdict.sut}" for verdict in judgement.verdicts}))
    verdicts = tuple(verdict for verdict in judgement.verdicts if f"{verdict.testbed}/{verdict.sut}" == sut)
    events = tuple(event for event in judgement.events if sut in event.suts)
    return Judgement.model_construct(night=judgement.night, verdicts=verdicts, events=events)


def check_night(history: History, results: Path, night: date | None) -> None:
    """Raise ``InputError`` unless *history*, read from *results* until *night*, ends with that night."""
    if night is None and not history.nights:
        unread = "".join(f"; cannot read {damaged.file}: {damaged.reason}" for damaged in history.unreadable[:1])
        raise InputError(f"no run to judge below {results}{unread}")
    if night is not None and (not history.nights or history.nights[-1] != night):
        nights = read_history(results).nights
        newest = f"; the newest night is {nights[-1]}" if nights else ", nor of any other night"
        raise InputError(f"no run of the night {night} below {results}{newest}")


def judge_history(
    history: History,
    analyses: Sequence[Analysis],
    baselines: Baselines,
    waivers: Waivers,
    tolerances: Tolerances,
) -> Judgement:
    """Return the judgement of the last night of *history*, whose series have the *analyses*.

    If the lab's tolerances cannot be read, the defaults apply and each SUT fails with the reason.
    """
    night = _Night(history, analyses, tolerances)
    verdicts = [*night.set_aside(), *night.verdicts(baselines), *judge_homogeneity(history, analyses, tolerances)]
    if tolerances.fault is not None:
        suts = {(verdict.testbed, verdict.sut) for verdict in verdicts}
        verdicts += [
            unreadable(sut, TOLERANCES_FILE, tolerances.fault, night.night, night.run_ids.get(sut)) for sut in suts
        ]
    verdicts.sort(key=lambda verdict: (verdict.testbed, verdict.sut))  # stable: a SUT's own verdicts stay first
    judged = tuple(waivers.applied(verdicts, night.night, night.run_ids))
    return Judgement.model_construct(night=night.night, verdicts=judged, events=find_events(judged))


@dataclass(frozen=True)
class _Row:
    """State of one series tonight; missing values are ``None``."""

    series: Series
    run_id: str | None
    value: float | None = None
    interval: tuple[float, float] | None = None
    index: int = -1


@dataclass(frozen=True)
class _Night:
    """The last night of a history, with caches used while judging it."""

    history: History
    analyses: Sequence[Analysis]
    tolerances: Tolerances
    changed: dict[tuple[Sut, date], tuple[ContextChange, ...]] = field(default_factory=dict)

    @property
    def night(self) -> date:
        return self.history.nights[-1]

    @property
    def run_ids(self) -> dict[Sut, str]:
        """The runs of tonight."""
        return {sut: runs[self.night].run_id for sut, runs in self.history.runs.items() if self.night in runs}

    def set_aside(self) -> Iterator[NightVerdict]:
        """Yield a failure for each unreadable run document of any night."""
        for damaged in self.history.unreadable:
            sut = (damaged.testbed, damaged.sut)
            reason = f"{damaged.reason.removesuffix('; remove it')}; restore it from a backup, or remove it"
            yield unreadable(sut, damaged.file, reason, self.night, self.run_ids.get(sut))

    def verdicts(self, baselines: Baselines) -> Iterator[NightVerdict]:
        """Yield the verdicts of each SUT on its own."""
        history, night = self.history, self.night
        known: NDArray[np.bool_] = np.isfinite(history.values)
        counts = known.sum(axis=1).tolist()
        expected = np.any(known[:, -1 - EXPECTED_NIGHTS :], axis=1).tolist()
        values, lows, highs = (item[:, -1].tolist() for item in (history.values, history.low, history.high))
        by_sut: dict[Sut, list[int]] = {sut: [] for sut in history.runs}
        for index, series in enumerate(history.series):
            by_sut.setdefault((series.testbed, series.sut), []).append(index)
        column = {night: number for number, night in enumerate(history.nights)}
        failed: dict[Sut, dict[str, Recorded]] = {}
        for (testbed, name, metric), recorded in history.recorded.items():
            if recorded.outcome == "fail":
                failed.setdefault((testbed, name), {})[metric] = recorded
        for sut in sorted(by_sut):
            run = history.runs.get(sut, {}).get(night)
            run_id = run.run_id if run else None
            accepted = baselines.of(sut, facts_of(history.runs.get(sut, {})), night)
            for file, reason in accepted.faults:
                yield unreadable(sut, file, reason, night, run_id)
            rows = [
                _Row(
                    history.series[index],
                    run_id,
                    value=values[index] if isfinite(values[index]) else None,
                    interval=(lows[index], highs[index]) if isfinite(lows[index]) and isfinite(highs[index]) else None,
                    index=index,
                )
                for index in by_sut[sut]
                if expected[index]
            ]
            yield from self._run(sut, rows, run, by_sut[sut])
            measured = any(row.value is not None for row in rows)
            for row in rows:
                if run is not None and measured:
                    yield self._missing(row, run)
                if row.value is not None:
                    yield self._limits(row, row.value, accepted.bounds.get(row.series.metric))
                analysis = self.analyses[row.index]
                level = accepted.levels.get(row.series.metric)
                since = -1 if level is None else _column(column, level.night)
                if counts[row.index] < MIN_VALUES:
                    yield from self._too_few(row, analysis, counts[row.index])
                else:
                    yield self._changed(row, analysis, "drift", level, since)
                    yield self._changed(row, analysis, "spread", level, since)
                    yield self._bimodal(row, analysis, level, since)
            for row in rows:
                if row.value is not None:
                    failed.get(sut, {}).pop(row.series.metric, None)
            for check in history.consistency.get(sut, ()) if run is not None else ():
                yield self._consistency(sut, run_id, check)
            for metric, recorded in failed.get(sut, {}).items():
                yield self._never_measured(sut, run_id, metric, recorded)

    def _verdict(self, row: _Row, check: Check, outcome: Outcome, reason: str, **fields: Any) -> NightVerdict:
        """Return a verdict on *row* with more *fields*, since when it holds, and what changed in the context then."""
        testbed, sut, metric, _, _ = row.series
        changes: tuple[ContextChange, ...] = ()
        if fields.get("since") is not None:
            changes = likely(self._changes((testbed, sut), fields["since"]), metric)
        return NightVerdict(
            testbed=testbed,
            sut=sut,
            run_id=row.run_id,
            night=self.night,
            metric=metric,
            check=check,
            outcome=outcome,
            context_changes=changes,
            reason=reason,
            **fields,
        )

    def _of_value(self, row: _Row, check: Check, outcome: Outcome, reason: str, **fields: Any) -> NightVerdict:
        """Return a verdict on tonight's value."""
        value = {"value": row.value, "unit": row.series.unit, "interval": row.interval}
        return self._verdict(row, check, outcome, reason, **value, **fields)

    def _changes(self, sut: Sut, since: date) -> tuple[ContextChange, ...]:
        """Return what changed on *sut* between its last run before *since* and its next one."""
        found = self.changed.get((sut, since))
        if found is None:
            runs = self.history.runs.get(sut, {})
            before = max((run for run in runs if run < since and runs[run].facts), default=None)
            after = min((run for run in runs if run >= since and runs[run].facts), default=None)
            found = () if before is None or after is None else context_changes(runs[before], runs[after])
            self.changed[sut, since] = found
        return found

    # missing

    def _run(
        self, sut: Sut, rows: Sequence[_Row], run: NightRun | None, indices: Sequence[int]
    ) -> Iterator[NightVerdict]:
        """Yield whether *sut* was measured: its run exists, has values, and is complete.

        Nothing if the SUT is not expected tonight. *indices* are those of all series that it ever had.
        """
        if run is None and not rows:
            return
        row = _Row(Series(*sut, RUN, "", "lower"), run.run_id if run else None)
        if run is not None and any(row.value is not None for row in rows):
            if run.status == "complete" or any(row.value is None for row in rows):
                yield self._verdict(row, "missing", "pass", f"run {run.run_id} is {run.status}")
            else:
                reason = f"the run is {run.status}: {_reasons(run, '')}"
                yield self._verdict(row, "missing", "fail", reason, since=self.night)
            return
        since = self._first_missing(indices)
        if since is None:  # no run of it ever had a value
            since = min(self.history.runs[sut])
        damaged = [
            damaged.file
            for damaged in self.history.unreadable
            if (damaged.testbed, damaged.sut, damaged.night) == (*sut, self.night)
        ]
        if run is None and damaged:
            reason = f"cannot read {damaged[0]}, the run of this night"
        elif run is None:
            runs = self.history.runs.get(sut)
            reason = f"no run this night; the last is {runs[max(runs)].run_id if runs else 'unknown'}"
        else:
            reason = f"the run is {run.status} and has no valid metric: {_reasons(run, '')}"
        yield self._verdict(row, "missing", "fail", reason, since=since)

    def _missing(self, row: _Row, run: NightRun) -> NightVerdict:
        if row.value is not None:
            return self._of_value(row, "missing", "pass", "measured and valid")
        since = self._first_missing([row.index])
        reason = f"{NO_VALUE}{_reasons(run, row.series.metric)}"
        return self._verdict(row, "missing", "fail", reason, unit=row.series.unit, since=since)

    def _first_missing(self, rows: Sequence[int]) -> date | None:
        """Return the first night since which all of *rows* lack a value; ``None`` if none ever had one."""
        (known,) = np.nonzero(np.isfinite(self.history.values[rows]).any(axis=0))
        if not len(known):
            return None
        return self.history.nights[min(int(known[-1]) + 1, len(self.history.nights) - 1)]

    # limits

    def _limits(self, row: _Row, value: float, baseline: Baseline | None) -> NightVerdict:
        """Return whether *value* is within the *baseline* and the limits of the inventory."""
        series = row.series
        recorded = self.history.recorded.get((series.testbed, series.sut, series.metric))
        if recorded is not None and recorded.lower is None and recorded.upper is None and recorded.outcome != "fail":
            recorded = None
        if baseline is None and recorded is None:
            reason = "no baseline or limit for this SUT yet: see calibration accept"
            return self._of_value(row, "limits", "no_reference", reason)
        lower, upper = _both(baseline and baseline.bounds, recorded)
        wrong = []
        outcome: Outcome = "fail"
        if baseline is not None and baseline.bounds.unit != series.unit:
            wrong.append(f"in {series.unit}, but accepted in {baseline.bounds.unit}")
        elif baseline is not None and baseline.bounds.excludes(value):
            outcome, why = self._weighed(series, baseline.bounds.value, value)
            expected = f"expected {baseline.bounds.words}, {baseline.source}"
            wrong.append(f"{expected}, found {amount(value, series.unit)}{why}")
        if recorded is not None and recorded.outcome == "fail":
            outcome = "fail"
            wrong.append(recorded.reason)
        if wrong:
            since = self._outside_since(row.index, lower, upper)
            return self._of_value(row, "limits", outcome, "; ".join(wrong), bound=(lower, upper), since=since)
        by = baseline.source if baseline is not None else "set in the inventory"
        reason = f"{amount(value, series.unit)} is within {within(lower, upper, series.unit)}, {by}"
        return self._of_value(row, "limits", "pass", reason, bound=(lower, upper))

    def _outside_since(self, index: int, lower: float | None, upper: float | None) -> date:
        """Return the first night of the current run of values out of bounds; nights without a value do not end it."""
        values = self.history.values[index]
        (known,) = np.nonzero(np.isfinite(values))
        outside = np.zeros(len(known), dtype=bool)
        if lower is not None:
            outside |= values[known] < lower
        if upper is not None:
            outside |= values[known] > upper
        (inside,) = np.nonzero(~outside)
        first = int(inside[-1]) + 1 if len(inside) else 0
        return self.history.nights[int(known[min(first, len(known) - 1)])]

    def _never_measured(self, sut: Sut, run_id: str | None, metric: str, recorded: Recorded) -> NightVerdict:
        """Return the failure of an inventory limit whose metric is missing from tonight's run."""
        row = _Row(Series(*sut, metric, "", "lower"), run_id)
        bound = (recorded.lower, recorded.upper)
        return self._verdict(row, "limits", "fail", recorded.reason, bound=bound, since=self.night)

    # consistency

    def _consistency(self, sut: Sut, run_id: str | None, check: RecordedCheck) -> NightVerdict:
        row = _Row(Series(*sut, check.metric, check.unit, "lower"), run_id, check.value, check.interval)
        outcome: Outcome = "fail" if check.outcome == "fail" else "pass"
        since = self.night if outcome == "fail" else None
        return self._of_value(row, "consistency", outcome, check.reason, bound=check.bound, since=since)

    # drift, spread, bimodal

    def _too_few(self, row: _Row, analysis: Analysis, count: int) -> Iterator[NightVerdict]:
        reason = f"measured on {plural(count, 'night')}, {MIN_VALUES} are needed"
        unit = row.series.unit
        yield self._verdict(row, "drift", "no_reference", reason, value=_finite(analysis.level), unit=unit)
        yield self._verdict(row, "spread", "no_reference", reason, value=_finite(analysis.spread), unit="fraction")
        yield self._verdict(row, "bimodal", "no_reference", reason, value=row.value, unit=unit)

    def _changed(
        self, row: _Row, analysis: Analysis, check: Check, level: AcceptedLevel | None, accepted: int
    ) -> NightVerdict:
        """Return whether the level, or the spread, is unchanged since the column *accepted*."""
        drift = check == "drift"
        unit = row.series.unit if drift else "fraction"
        value = _finite(analysis.level if drift else analysis.spread)
        changes = [item for item in analysis.changes if item.kind == ("level" if drift else "spread")]
        standing = [item for item in changes if item.night > accepted]
        nights = self.history.nights
        what = "level" if drift else "spread of nights"
        if not standing:
            reason = f"{what} {'unknown' if value is None else amount(value, unit)} since {nights[analysis.first]}"
            if changes and level is not None:
                last = changes[-1]
                reason = f"{what} {change(last.size, None)} since {nights[last.night]}, {level.acceptance.source}"
            return self._verdict(row, check, "pass", reason, value=value, unit=unit)
        first, last = standing[0], standing[-1]
        tolerance = _tolerance(standing, analysis.spread if drift else 0.0)
        bound = None
        if isfinite(first.before) and isfinite(tolerance):
            slack = tolerance * abs(first.before)
            bound = (first.before - slack, first.before + slack)
        if len(standing) > 1 and bound is not None and bound[0] <= last.after <= bound[1]:
            reason = f"{what} is back at {amount(last.after, unit)}, where it was before {nights[first.night]}"
            return self._verdict(row, check, "pass", reason, value=value, unit=unit, bound=bound)
        weigh = self._weighed if drift else self._weighed_spread
        outcome, why = weigh(row.series, first.before, last.after)
        size = f"{change(last.size, last.interval)} " if isfinite(last.size) else ""
        reason = (
            f"{what} {size}since {nights[last.night]}, from {amount(last.before, unit)} to {amount(last.after, unit)}"
        )
        if first is not last:
            reason += f"; before {nights[first.night]} it was {amount(first.before, unit)}"
        return self._verdict(
            row,
            check,
            outcome,
            reason + why,
            value=value,
            unit=unit,
            bound=bound,
            interval=last.interval if all(map(isfinite, last.interval)) else None,
            since=nights[last.night],
        )

    def _weighed(self, series: Series, before: float, after: float) -> tuple[Outcome, str]:
        """Return whether a move from *before* to *after* fails, and if not, why."""
        fraction = self.tolerances.fraction(series.metric)
        if abs(after - before) <= fraction * abs(before):
            return "noted", _tolerated(fraction)
        return self._unless_better(series, better=(after > before) == (series.better == "higher"))

    def _weighed_spread(self, series: Series, before: float, after: float) -> tuple[Outcome, str]:
        """Return the same for a relative standard deviation."""
        fraction = self.tolerances.fraction(series.metric)
        if 2 * after <= fraction:
            return "noted", _tolerated(fraction)
        return self._unless_better(series, better=after < before)

    def _unless_better(self, series: Series, *, better: bool) -> tuple[Outcome, str]:
        if better and not self.tolerances.improvements_fail(series.metric):
            return "noted", "; better"
        return "fail", ""

    def _bimodal(self, row: _Row, analysis: Analysis, level: AcceptedLevel | None, accepted: int) -> NightVerdict:
        flips, unit = analysis.flips, row.series.unit
        if flips is None:
            return self._of_value(row, "bimodal", "pass", "one level")
        since = self.history.nights[flips.night]
        found = (
            f"flips between {amount(flips.lower, unit)} and {amount(flips.upper, unit)} since {since}, "
            f"{share(flips.upper_share)} of the nights at the upper level"
        )
        if level is not None and flips.night <= accepted:
            return self._of_value(row, "bimodal", "pass", f"{found}, {level.acceptance.source}")
        fraction = self.tolerances.fraction(row.series.metric)
        near = abs(flips.upper - flips.lower) <= fraction * abs(flips.lower)
        reason = f"{found}{_tolerated(fraction) if near else ''}"
        return self._of_value(row, "bimodal", "noted" if near else "fail", reason, since=since)


def _column(column: dict[date, int], night: date) -> int:
    """Return the column of *night*, or of the last night before it if the store no longer has it."""
    return column[night] if night in column else max((column[item] for item in column if item < night), default=-1)


def _tolerated(fraction: float) -> str:
    return f"; within the tolerance of {share(fraction)}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _both(bounds: Bounds | None, recorded: Recorded | None) -> tuple[float | None, float | None]:
    """Return the intersection of both ranges."""
    both = [item for item in (bounds, recorded) if item is not None]
    lower = max((side.lower for side in both if side.lower is not None), default=None)
    upper = min((side.upper for side in both if side.upper is not None), default=None)
    return lower, upper


def _tolerance(changes: Sequence[Change], spread: float) -> float:
    """Return how far a level may be, relatively, from the one before all *changes* and still count as unchanged.

    At least the combined uncertainty of the changes' sizes, and at least the night-to-night spread.
    """
    return max(hypot(*((high - low) / 2 for low, high in (item.interval for item in changes))), spread)


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
