# SPDX-License-Identifier: Apache-2.0
"""Homogeneity: whether the SUTs of a testbed agree, and which SUT is the outlier.

SUTs with the same processor model are compared (``calibration/judge/outliers.py``). A SUT is an outlier if its level
differs significantly, by more than the tolerance, from the median of the others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.context.facts import CLOCK, same_fact
from calibration.judge.causes import differences_from, fact_of, likely
from calibration.judge.drift import Analysis
from calibration.judge.outliers import (
    CONFIDENCE,
    FAMILY_WISE,
    MIN_NIGHTS,
    ComparedLevels,
    Floats,
    Levels,
    compare_levels,
    holm,
    leave_one_out,
    levels_of,
    quantile,
)
from calibration.judge.tolerances import PEERS, Tolerances
from calibration.judge.verdicts import ContextChange, NightVerdict, Outcome
from calibration.results.history import History, NightRun, Sut

MAX_AGE: Final = timedelta(days=7)
"""A SUT whose newest value is older is not compared: its current level is unknown."""


@dataclass(frozen=True)
class _Kind:
    """SUTs of one processor model in a testbed, and the rows of their series in the history (-1: none)."""

    processor: str | None
    suts: tuple[Sut, ...]
    metrics: tuple[tuple[str, str], ...]
    rows: NDArray[np.intp]
    tolerance: Floats
    compared: ComparedLevels


def judge_homogeneity(history: History, analyses: Sequence[Analysis], tolerances: Tolerances) -> Iterator[NightVerdict]:
    """Yield one verdict per metric of the last night of *history*: whether the SUT agrees with its peers.

    *analyses* has one analysis per series. ``value`` is the current level, ``bound`` the tolerance around the others'
    median, ``interval`` that of the value, including the uncertainty of the others' median.
    """
    if not history.nights:
        return
    testbeds: dict[str, dict[str | None, list[Sut]]] = {}
    newest: dict[Sut, NightRun] = {}
    for sut, runs in history.runs.items():
        known = [night for night, run in runs.items() if run.facts]
        if known:
            newest[sut] = runs[max(known)]
    for sut in dict.fromkeys((series.testbed, series.sut) for series in history.series):
        processor = fact_of(newest[sut], "processor") if sut in newest else None
        testbeds.setdefault(sut[0], {}).setdefault(processor, []).append(sut)
    places: dict[Sut, dict[tuple[str, str], int]] = {}
    for row, series in enumerate(history.series):
        places.setdefault((series.testbed, series.sut), {})[series.metric, series.unit] = row
    levels = _levels(history, analyses)
    for kinds in testbeds.values():
        of_testbed = [_kind(suts, processor, places, levels, tolerances) for processor, suts in kinds.items()]
        yield from _testbed(history, analyses, newest, of_testbed)


def _levels(history: History, analyses: Sequence[Analysis]) -> Levels:
    """Return the levels of all series as one-dimensional arrays; NaN if there is none to compare."""
    since = history.nights[-1] - MAX_AGE
    recent = next(column for column, night in enumerate(history.nights) if night >= since)
    finite = np.isfinite(history.values[:, recent:])
    last = finite.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1) + recent
    rows = np.arange(len(history.series))
    last -= len(history.nights)  # from the last night: ends may be those of the last nights only
    with np.errstate(all="ignore"):
        width = np.log(history.high[rows, last] / history.low[rows, last])
        interval = (width / 2 / quantile(np.array(CONFIDENCE), np.array(np.inf))) ** 2
    levels = levels_of(analyses, np.where(np.isfinite(interval), interval, np.nan))
    return levels._replace(level=np.where(finite.any(axis=1), levels.level, np.nan))


def _kind(
    suts: Sequence[Sut],
    processor: str | None,
    places: Mapping[Sut, Mapping[tuple[str, str], int]],
    levels: Levels,
    tolerances: Tolerances,
) -> _Kind:
    """Compare *suts*, which share one *processor*; if it is unknown, return them without a comparison."""
    metrics = tuple(dict.fromkeys(place for sut in suts for place in places[sut]))
    rows = np.array([[places[sut].get(metric, -1) for metric in metrics] for sut in suts], dtype=np.intp)
    tolerance = np.array([tolerances.fraction(metric, PEERS) for metric, _ in metrics])
    excluded = (rows < 0) | (processor is None) | np.array([unit == "ticks" for _, unit in metrics])
    own = Levels(*(np.where(excluded, np.nan, level[rows]) for level in levels))
    return _Kind(processor, tuple(suts), metrics, rows, tolerance, compare_levels(own, tolerance))


def _testbed(
    history: History, analyses: Sequence[Analysis], newest: Mapping[Sut, NightRun], kinds: Sequence[_Kind]
) -> Iterator[NightVerdict]:
    """Yield the verdicts of one testbed, whose comparisons count as one family of tests."""
    p = np.concatenate([kind.compared.p.ravel() for kind in kinds])
    tests = int(np.isfinite(p).sum())
    rejected = holm(p, FAMILY_WISE)
    for kind in kinds:
        size = kind.compared.p.size
        odd, rejected = rejected[:size].reshape(kind.compared.p.shape), rejected[size:]
        yield from _verdicts(history, analyses, kind, odd, tests=tests, suspects=_Suspects(history, newest, kind, odd))


def _verdicts(
    history: History,
    analyses: Sequence[Analysis],
    kind: _Kind,
    odd: NDArray[np.bool_],
    *,
    tests: int,
    suspects: "_Suspects",
) -> Iterator[NightVerdict]:
    tonight = history.nights[-1]
    compared = kind.compared
    differences, halves, rows = compared.difference.tolist(), compared.half.tolist(), kind.rows.tolist()
    shown = ((kind.rows >= 0) & np.isfinite(history.values[kind.rows, -1])).tolist()
    tolerances, untested = kind.tolerance.tolist(), np.isnan(compared.p).tolist()
    spreads = [_spread_text(item) for item in zip(*(part.tolist() for part in compared.spread), strict=True)]
    all_odd = (odd.sum(axis=0) == compared.spread.suts).tolist()
    since = _Since(history, analyses, kind)
    for i, sut in enumerate(kind.suts):
        run = history.runs.get(sut, {}).get(tonight)
        for j, (metric, unit) in enumerate(kind.metrics):
            if not shown[i][j]:
                continue
            analysis = analyses[rows[i][j]]
            value, difference, half, tolerance = analysis.level, differences[i][j], halves[i][j], tolerances[j]
            outcome: Outcome = "no_reference"
            bound = interval = start = None
            changes: tuple[ContextChange, ...] = ()
            limit = f"the tolerance of {tolerance * 100:.0f} %"
            if math.isnan(half):
                outcome, reason = _not_compared(kind, i, j, analyses)
            else:
                reference = value / math.exp(difference)
                bound = (reference / (1 + tolerance), reference * (1 + tolerance))
                interval = (value * math.exp(-half), value * math.exp(half))
                if odd[i, j]:
                    outcome = "fail"
                    start = since.night(i, j)
                    changes = suspects.of(i, metric)
                    why = f"beyond {limit} ({_significance(tests)})"
                    if all_odd[j]:
                        why += NO_MAJORITY if compared.spread.suts[j] > 2 else OF_TWO
                elif bound[0] <= interval[0] and interval[1] <= bound[1]:
                    outcome, why = "pass", f"within {limit}"
                elif abs(difference) - half > math.log1p(tolerance):
                    few = f"it and most others need {MIN_NIGHTS} nights"
                    doubt = few if untested[i][j] else f"not significantly ({_significance(tests)})"
                    why = f"beyond {limit}, but {doubt}"
                elif abs(difference) > half:
                    why = f"different, but possibly within {limit}"
                else:
                    why = f"an interval too wide for {limit}: more nights narrow it"
                reason = f"{_difference(difference, half, int(compared.spread.suts[j]) - 1)}, {why}; {spreads[j]}"
            yield NightVerdict(
                testbed=sut[0],
                sut=sut[1],
                run_id=None if run is None else run.run_id,
                night=tonight,
                metric=metric,
                check="homogeneity",
                outcome=outcome,
                value=value if math.isfinite(value) else None,
                unit=unit,
                bound=bound,
                interval=interval,
                since=start,
                context_changes=changes,
                reason=reason,
            )


OF_TWO: Final = "; of two SUTs, either may be the outlier"
NO_MAJORITY: Final = "; no SUT agrees with most of the others, so any may be the outlier"
"""If all SUTs fail."""


def _significance(tests: int) -> str:
    return f"Holm, {tests} tests, {FAMILY_WISE * 100:.0f} %"


def _difference(difference: float, half: float, others: int) -> str:
    against = "the other SUT of its kind" if others == 1 else f"the median of {others} others of its kind"
    low, high = (math.expm1(difference + sign * half) for sign in (-1, 1))
    return f"{math.expm1(difference) * 100:+.1f} % ({low * 100:+.1f} % to {high * 100:+.1f} %) from {against}"


def _spread_text(spread: tuple[int, float, float, float]) -> str:
    """Return the variation between SUTs and between nights of a metric, as text."""
    _, between, within, share = spread
    return (
        f"SUTs differ by {between * 100:.2f} % and nights by {within * 100:.2f} % (standard deviations): "
        f"{share * 100:.0f} % of the variance is between SUTs"
    )


def _not_compared(kind: _Kind, sut: int, metric: int, analyses: Sequence[Analysis]) -> tuple[Outcome, str]:
    """Return the outcome and reason for a metric whose difference has no interval."""
    own = analyses[kind.rows[sut, metric]]
    if kind.processor is None:
        return "no_reference", "unknown processor"
    if kind.metrics[metric][1] == "ticks":
        return "no_reference", "ticks of two clocks cannot be compared"
    if own.flips is not None:
        return "no_reference", "flips between two levels"
    others = [analyses[row] for item, row in enumerate(kind.rows[:, metric]) if row >= 0 and item != sut]
    if not others:
        return "no_reference", f"no other {kind.processor} in this testbed has this metric"
    if own.level == 0:
        if all(other.level == 0 for other in others):
            return "pass", "0, like all others of its kind"
        return "no_reference", "0 has no ratio to the others"
    if not np.isfinite(kind.compared.night[sut, metric]):
        return "no_reference", "unknown uncertainty: too few nights and no interval"
    return "no_reference", "no other SUT of its kind has a comparable level: too few nights, too old, or 0"


class _Suspects:
    """The differences between an outlier and the other SUTs, computed once per SUT."""

    def __init__(self, history: History, newest: Mapping[Sut, NightRun], kind: _Kind, odd: NDArray[np.bool_]) -> None:
        self._history, self._newest, self._kind, self._odd = history, newest, kind, odd
        self._found: dict[int, tuple[ContextChange, ...]] = {}

    def of(self, sut: int, metric: str) -> tuple[ContextChange, ...]:
        """Return the differences of *sut* from the others, those that can affect *metric* first."""
        if sut not in self._found:
            self._found[sut] = (*self._context(sut), *self._clock(sut))
        found = self._found[sut]
        return likely([change for change in found if change.fact != CLOCK or "core_frequency" not in metric], metric)

    def _context(self, sut: int) -> Iterator[ContextChange]:
        own = self._kind.suts[sut]
        others = [self._newest[item] for item in self._kind.suts if item != own and item in self._newest]
        runs = self._history.runs[own]
        for change in differences_from(self._newest[own], others):
            night = change.night
            for item in sorted((run for run in runs.values() if run.facts), key=lambda run: run.night, reverse=True):
                if not same_fact(change.fact, item.facts.get(change.fact), change.after):
                    break
                night = item.night
            yield change.model_copy(update={"night": night})

    def _clock(self, sut: int) -> Iterator[ContextChange]:
        """Yield the most deviating clock of *sut* among those in which it is an outlier."""
        clocks = [
            (abs(self._kind.compared.difference[sut, column]), column, metric)
            for column, (metric, unit) in enumerate(self._kind.metrics)
            if unit == "Hz" and self._odd[sut, column]
        ]
        if clocks:
            _, column, metric = max(clocks)
            difference = float(self._kind.compared.difference[sut, column])
            level = math.exp(self._kind.compared.level[sut, column])
            yield ContextChange(
                fact=CLOCK,
                before=f"{level / math.exp(difference) / 1e9:.3f} GHz",
                after=f"{level / 1e9:.3f} GHz in {metric}: "
                + ("a higher turbo" if difference > 0 else "a lower turbo, or throttled"),
                night=self._history.nights[-1],
            )


class _Since:
    """Since when an outlier has been one, from the stretches in which neither it nor its peers changed."""

    def __init__(self, history: History, analyses: Sequence[Analysis], kind: _Kind) -> None:
        self._history, self._analyses, self._kind = history, analyses, kind
        self._nights: dict[int, tuple[Floats, list[int]]] = {}

    def night(self, sut: int, metric: int) -> date:
        """Return the first night of the stretches, back from tonight, in which *sut* exceeded the tolerance."""
        if metric not in self._nights:
            self._nights[metric] = self._differences(metric)
        differences, starts = self._nights[metric]
        own = differences[sut]
        side = math.copysign(1, self._kind.compared.difference[sut, metric])
        least = math.log1p(self._kind.tolerance[metric])
        since = len(own) - 1
        for start, end in zip(reversed(starts), reversed([*starts[1:], len(own)]), strict=True):
            stretch = own[start:end]
            known = np.flatnonzero(np.isfinite(stretch))
            if not len(known):
                continue
            if side * float(np.median(stretch[known])) <= least and end < len(own):
                break
            since = start + int(known[0])
        return self._history.nights[since]

    def _differences(self, metric: int) -> tuple[Floats, list[int]]:
        """Return each SUT's difference from the others' median by night, and where any new level begins."""
        rows = self._kind.rows[:, metric]
        with np.errstate(all="ignore"):
            values = np.where(rows[:, None] < 0, np.nan, np.log(self._history.values[rows]))
        values[~np.isfinite(values)] = np.nan
        low, high = leave_one_out(values)
        changes = {
            change.night for row in rows if row >= 0 for change in self._analyses[row].changes if change.kind == "level"
        }
        return np.where(np.abs(values - low) <= np.abs(values - high), values - low, values - high), sorted(
            {0, *changes}
        )
