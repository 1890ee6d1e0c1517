# SPDX-License-Identifier: Apache-2.0
"""The nights of one metric of one SUT: figures, changes, accepted bounds, and nights without a figure.

Imports nothing that takes long: the answer is there within a second, of a store of years.
"""

import csv
import json
from collections.abc import Iterator
from difflib import get_close_matches
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from calibration.errors import InputError
from calibration.judge.causes import context_changes
from calibration.judge.drift import Analysis, analyse
from calibration.judge.references import Reference, facts_of, read_references
from calibration.judge.verdicts import ContextChange
from calibration.judge.words import amount, change, changed_fact, number, share
from calibration.results.history import NightRun, Series
from calibration.results.index import read_history
from calibration.text import visible

COLUMNS: Final = ("night", "run_id", "status", "value", "low", "high", "outside", "notes")
"""The columns of a line for other programs."""


class TrendNight(NamedTuple):
    """A night of the store: ``value`` with its interval is ``None`` where there is no valid figure.

    ``run`` is ``None`` where the SUT has no run, ``fault`` why there is one that cannot be read. ``changes`` are the
    facts that are others than in the run before, ``outside`` whether the figure is beyond the accepted bounds.
    """

    night: str
    run: NightRun | None
    value: float | None
    low: float | None
    high: float | None
    outside: bool
    changes: tuple[ContextChange, ...]
    fault: str | None


class Trend(NamedTuple):
    """All nights of one metric of one SUT."""

    series: Series
    nights: tuple[TrendNight, ...]
    analysis: Analysis
    reference: Reference | None


def read_trend(results: Path, sut: str, metric: str) -> Trend:
    """Return the nights of *metric* of *sut*, a testbed and a SUT with a slash between.

    A night of which the document cannot be read says so. Nights on which only other SUTs of the testbed were measured
    are among them. Raises ``InputError`` where there is no such SUT or figure, naming what is most like it.
    """
    testbed, _, name = sut.partition("/")
    if not testbed or not name:
        raise InputError(f"expected TESTBED/SUT, found {sut!r}")
    history = read_history(results, testbed=testbed, metric=metric)
    row = next((row for row, each in enumerate(history.series) if each.sut == name), None)
    if row is None:
        raise _unknown(results, testbed, name, metric)
    runs = history.runs[testbed, name]
    accepted = read_references(results).of((testbed, name), facts_of(runs), history.nights[-1])
    for file, reason in accepted.faults:
        raise InputError(f"{results / file}: {reason}")
    unreadable = {
        each.night: f"cannot read {each.file}: {each.reason}" for each in history.unreadable if each.sut == name
    }
    reference = accepted.bounds.get(metric)
    nights: list[TrendNight] = []
    before: NightRun | None = None
    for night, *figures in zip(
        history.nights, history.values[row].tolist(), history.low[row].tolist(), history.high[row].tolist(), strict=True
    ):
        run = runs.get(night)
        value, low, high = (each if isfinite(each) else None for each in figures)
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
    return Trend(history.series[row], tuple(nights), analyse(history.values[row : row + 1])[0], reference)


def _unknown(results: Path, testbed: str, sut: str, metric: str) -> InputError:
    history = read_history(results)
    known = sorted(f"{one}/{other}" for one, other in history.runs)
    if (testbed, sut) not in history.runs:
        near = get_close_matches(f"{testbed}/{sut}", known, cutoff=0) or known
        return InputError(f"expected a SUT of {results}, such as {near[0] if near else 'none'}, found {testbed}/{sut}")
    names = [each.metric for each in history.series if (each.testbed, each.sut) == (testbed, sut)]
    near = get_close_matches(metric, names, cutoff=0)
    return InputError(
        f"expected a figure that {testbed}/{sut} has, such as {' or '.join(near) or 'none'}, found {metric!r}"
    )


def _missing(trend: Trend, night: TrendNight) -> str | None:
    """Return why *night* has no figure; ``None`` where it has one."""
    if night.value is not None:
        return None
    if night.run is None:
        return night.fault or "no run"
    reasons = [each for each in night.run.reasons if each.startswith(f"{trend.series.metric}: ")] or night.run.reasons
    return f"no valid figure, the run is {night.run.status}{': ' + reasons[0] if reasons else ''}"


def _found(trend: Trend) -> dict[str, list[str]]:
    """Return what was found of the figures, by the night from which it holds."""
    unit = trend.series.unit
    found: dict[str, list[str]] = {}
    for each in trend.analysis.changes:
        of = unit if each.kind == "level" else "fraction"
        size = f"{change(each.size, each.interval)}, " if isfinite(each.size) else ""
        text = f"{each.kind} {size}from {amount(each.before, of)} to {amount(each.after, of)}"
        found.setdefault(trend.nights[each.night].night, []).append(text)
    if (flips := trend.analysis.flips) is not None:
        text = (
            f"flips between {amount(flips.lower, unit)} and {amount(flips.upper, unit)} from here on, "
            f"{share(flips.upper_share)} of the nights at the upper"
        )
        found.setdefault(trend.nights[flips.night].night, []).append(text)
    return found


def _notes(trend: Trend) -> Iterator[list[str]]:
    """Yield for each night what is to be said of it."""
    found = _found(trend)
    for each in trend.nights:
        missing = _missing(trend, each)
        yield [
            *([] if missing is None else [missing]),
            *(["outside"] if each.outside else []),
            *found.get(each.night, []),
            *(f"{one.fact}: {changed_fact(one.before, one.after)}" for one in each.changes),
        ]


def trend_text(trend: Trend) -> str:
    """Return *trend* for a person: what holds now, then a line for each night."""
    series, analysis, reference = trend.series, trend.analysis, trend.reference
    measured = sum(each.value is not None for each in trend.nights)
    lines = [
        f"{series.metric} of {series.testbed}/{series.sut}, {series.better} is better",
        f"{measured} of {len(trend.nights)} nights have a figure",
    ]
    if isfinite(analysis.level):
        spread = f", nights differ by {share(analysis.spread)}" if isfinite(analysis.spread) else ""
        since = trend.nights[analysis.first].night
        lines.append(f"level {amount(analysis.level, series.unit)} since {since}{spread}")
    if reference is None:
        lines.append("no bounds have been accepted")
    else:
        lines.append(f"{reference.bounds.words}, {reference.source}: {reference.acceptance.reason}")
    lines.append("")
    for each, notes in zip(trend.nights, _notes(trend), strict=True):
        figure = "-" if each.value is None else number(each.value)
        interval = "" if each.low is None or each.high is None else f"{number(each.low)} to {number(each.high)}"
        lines.append(f"{each.night}  {figure:>10}  {interval:<22}  {'; '.join(notes)}".rstrip())
    return "\n".join(map(visible, lines)) + "\n"


def trend_csv(trend: Trend) -> str:
    """Return *trend* as a line for each night, below the names of the columns."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each, notes in zip(trend.nights, _notes(trend), strict=True):
        run = each.run
        names = (None, None) if run is None else (run.run_id, run.status)
        writer.writerow((each.night, *names, each.value, each.low, each.high, each.outside, "; ".join(notes)))
    return text.getvalue()


def trend_json(trend: Trend) -> str:
    """Return *trend* as JSON; what is not finite is null."""
    series, analysis, reference = trend.series, trend.analysis, trend.reference
    flips = analysis.flips
    made: dict[str, Any] = {
        "testbed": series.testbed,
        "sut": series.sut,
        "metric": series.metric,
        "unit": series.unit,
        "better": series.better,
        "bounds": None
        if reference is None
        else {
            **reference.bounds.model_dump(mode="json", exclude={"runs"}),
            "scope": reference.scope,
            **reference.acceptance.model_dump(mode="json", include={"accepted_by", "accepted_at", "reason"}),
        },
        "level": _finite(analysis.level),
        "spread": _finite(analysis.spread),
        "since": trend.nights[analysis.first].night,
        "changes": [
            {
                **each._asdict(),
                "night": trend.nights[each.night].night,
                "before": _finite(each.before),
                "after": _finite(each.after),
                "size": _finite(each.size),
                "interval": list(each.interval) if all(map(isfinite, each.interval)) else None,
            }
            for each in analysis.changes
        ],
        "flips": None if flips is None else {**flips._asdict(), "night": trend.nights[flips.night].night},
        "nights": [
            {
                "night": each.night,
                "run_id": None if each.run is None else each.run.run_id,
                "status": None if each.run is None else each.run.status,
                "value": each.value,
                "interval": None if each.low is None or each.high is None else [each.low, each.high],
                "outside": each.outside,
                "missing": _missing(trend, each),
                "context_changes": [one.model_dump(mode="json") for one in each.changes],
            }
            for each in trend.nights
        ],
    }
    return json.dumps(made, indent=1, allow_nan=False) + "\n"


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
