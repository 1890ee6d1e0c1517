# SPDX-License-Identifier: Apache-2.0
"""The nights of one metric of one SUT: values, changes, accepted bounds and missing nights.

Avoids slow imports: the answer takes less than a second even for a store of years.
"""

from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from calibration.base.errors import InputError
from calibration.base.names import pick
from calibration.judge.baseline_files import Baseline, Baselines, facts_of
from calibration.judge.causes import context_changes
from calibration.judge.detector import Floats
from calibration.judge.drift import Analysis, analyse
from calibration.judge.tolerances import read_tolerances
from calibration.judge.verdicts import ContextChange
from calibration.results.find import pick_sut, suts_of
from calibration.results.history import NightRun, Series
from calibration.results.index import read_history

MIN_STEP: Final = 2
"""Nights that make a step: one alone is an outlier."""

MIN_SIGMAS: Final = 4.0
"""Standard deviations of the nights before from which a step is seen."""


class TrendNight(NamedTuple):
    """A night of the store: ``value`` and its interval are ``None`` if there is no valid value.

    ``run`` is ``None`` if the SUT has no run; ``fault`` is why its run cannot be read. ``changes`` are the facts that
    differ from the run before, ``outside`` whether the value is out of the accepted bounds.
    """

    night: str
    run: NightRun | None
    value: float | None
    low: float | None
    high: float | None
    outside: bool
    changes: tuple[ContextChange, ...]
    fault: str | None


class Step(NamedTuple):
    """The newest nights, from the column ``night`` on, are elsewhere than those before: too few to call it a level.

    ``before`` and ``after`` are medians.
    """

    night: int
    before: float
    after: float


class Trend(NamedTuple):
    """All nights of one metric of one SUT. ``step`` is seen in its newest nights, beside what ``analysis`` found."""

    series: Series
    nights: tuple[TrendNight, ...]
    analysis: Analysis
    reference: Baseline | None
    step: Step | None


def read_trend(results: Path, sut: str, metric: str) -> Trend:
    """Return the nights of *metric* of *sut*, by their names or unique prefixes.

    Nights with an unreadable document, and nights on which only other SUTs of the testbed were measured, are included.
    Raises ``InputError`` with similar names if there is no such SUT or metric.
    """
    testbed, _, name = pick_sut(sut, suts_of(results)).partition("/")
    history = read_history(results, testbed=testbed, metric=metric)
    if all(series.sut != name for series in history.series):
        of_sut = read_history(results, testbed=testbed, sut=name)
        metric = pick(metric, [series.metric for series in of_sut.series], f"metric of {testbed}/{name}")
        history = read_history(results, testbed=testbed, metric=metric)
    row = next(row for row, series in enumerate(history.series) if series.sut == name)
    runs = history.runs[testbed, name]
    accepted = Baselines(results).of((testbed, name), facts_of(runs), history.nights[-1])
    for file, reason in accepted.faults:
        raise InputError(f"{results / file}: {reason}")
    unreadable = {
        damaged.night: f"cannot read {damaged.file}: {damaged.reason}"
        for damaged in history.unreadable
        if damaged.sut == name
    }
    reference = accepted.bounds.get(metric)
    nights: list[TrendNight] = []
    before: NightRun | None = None
    for night, *numbers in zip(
        history.nights, history.values[row].tolist(), history.low[row].tolist(), history.high[row].tolist(), strict=True
    ):
        run = runs.get(night)
        value, low, high = (number if isfinite(number) else None for number in numbers)
        known = run is not None and bool(run.facts)
        nights.append(
            TrendNight(
                night=night.isoformat(),
                run=run,
                value=value,
                low=low,
                high=high,
                outside=value is not None and reference is not None and reference.bounds.excludes(value),
                changes=context_changes(before, run) if before is not None and run is not None and known else (),
                fault=unreadable.get(night),
            )
        )
        before = run if known else before
    analysis = analyse(history.values[row : row + 1])[0]
    step = newest_step(history.values[row], analysis.first, read_tolerances(results).fraction(metric))
    return Trend(history.series[row], tuple(nights), analysis, reference, step)


def newest_step(values: Floats, first: int, tolerance: float) -> Step | None:
    """Return the step of the newest of *values* since the column *first*; ``None`` if there is none.

    All of them are beyond *tolerance*, and far from the spread of those before, which are more.
    """
    (known,) = np.nonzero(np.isfinite(values))
    known = known[known >= first]
    found = None
    for count in range(MIN_STEP, (len(known) + 1) // 2):
        before, after = values[known[:-count]], values[known[-count:]]
        level, other = float(np.median(before)), float(np.median(after))
        beyond = max(tolerance * abs(level), MIN_SIGMAS * float(np.std(before)))
        side = 1.0 if other > level else -1.0
        if bool(np.all(side * (after - level) > beyond)):
            found = Step(int(known[-count]), level, other)
    return found
