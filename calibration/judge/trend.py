# SPDX-License-Identifier: Apache-2.0
"""The nights of one metric of one SUT: values, changes, accepted bounds and missing nights.

Avoids slow imports: the answer takes less than a second even for a store of years.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.names import MAX_LISTED, natural, pick
from calibration.base.text import some_of
from calibration.judge.baseline_files import Baseline, Baselines, facts_of
from calibration.judge.causes import context_changes
from calibration.judge.detector import Floats
from calibration.judge.drift import Analysis, analyse
from calibration.judge.tolerances import read_tolerances
from calibration.judge.verdicts import ContextChange
from calibration.measurements import row_of
from calibration.measurements.metric_rows import FAMILIES
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


class Choices(NamedTuple):
    """What ``calibration trend`` can print: the ``suts``, and the ``metrics`` of one of them by the title of a family.

    Headline metrics come first.
    """

    suts: tuple[str, ...]
    sut: str
    metrics: Mapping[str, Sequence[str]]


def choices_in(results: Path, given: str | None) -> Choices:
    """Return the SUTs of *results*, and the metrics of that *given* by its name or a unique prefix, or of the first.

    Raises ``InputError`` if there is no such SUT.
    """
    suts = sorted(suts_of(results), key=natural)
    if not suts:
        raise InputError(f"no run below {results}")
    sut = suts[0] if given is None else pick_sut(given, suts)
    testbed, _, name = sut.partition("/")
    metrics = _headlines_first(series.metric for series in read_history(results, testbed=testbed, sut=name).series)
    by_family = grouped((row_of(metric).family, metric) for metric in metrics)
    return Choices(
        tuple(suts), sut, {row.title: by_family[family] for family, row in FAMILIES.items() if family in by_family}
    )


def _headlines_first(metrics: Iterable[str]) -> list[str]:
    """Return *metrics* by name, those of record before others, of them those of the whole machine first."""

    def order(metric: str) -> tuple[bool, bool, int, list[tuple[int, str]]]:
        record = row_of(metric).record
        return record is None, record is not None and record.place != "", record.rank if record else 0, natural(metric)

    return sorted(metrics, key=order)


def read_trend(results: Path, sut: str, metric: str) -> Trend:
    """Return the nights of *metric* of *sut*, by their names or unique prefixes.

    Nights with an unreadable document, and nights on which only other SUTs of the testbed were measured, are included.
    Raises ``InputError`` with similar names if there is no such SUT or metric.
    """
    testbed, _, name = pick_sut(sut, suts_of(results)).partition("/")
    history = read_history(results, testbed=testbed, metric=metric)
    if all(series.sut != name for series in history.series):
        of_sut = read_history(results, testbed=testbed, sut=name)
        names = _headlines_first(series.metric for series in of_sut.series)
        found = [known for known in names if known.startswith(metric)]
        if len(found) > 1 and row_of(found[0]).record is not None:
            raise InputError(
                f"ambiguous metric {metric!r}: the headline metric is {found[0]}, others are "
                f"{some_of(found[1:], MAX_LISTED)}"
            )
        metric = pick(metric, names, f"metric of {testbed}/{name}")
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
