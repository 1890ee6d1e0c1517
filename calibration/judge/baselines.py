# SPDX-License-Identifier: Apache-2.0
"""Create baselines: bounds for each metric of a run, from all nights at its current level."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from calibration.base.errors import InputError
from calibration.base.units import plural
from calibration.judge.baseline_files import (
    Acceptance,
    AcceptedRun,
    Baselines,
    Bounds,
    Place,
    RunName,
    Scope,
    place_of,
)
from calibration.judge.drift import analyse
from calibration.judge.prediction import (
    ENOUGH_NIGHTS,
    OUTSIDE,
    Level,
    NightlyHistory,
    UnknownSpreadError,
    is_positive,
    level_of,
    predict,
)
from calibration.judge.tolerances import Tolerances, read_tolerances
from calibration.judge.words import share
from calibration.measurements import row_of
from calibration.results.history import History, NightRun, Series
from calibration.results.index import read_history
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.plain import DocumentMetric, metrics_of
from calibration.results.store import read_run


class NotAccepted(NamedTuple):
    """A metric without bounds, and the reason."""

    sut: str
    metric: str
    reason: str


MAX_TOLERANCES: Final = 5.0
"""Bounds of a headline metric this many tolerances wide notice nothing that matters."""


class Noticed(NamedTuple):
    """The smallest change of a metric that its bounds notice, and its tolerance, both relative."""

    metric: str
    change: float
    tolerance: float

    @property
    def enough(self) -> bool:
        """Whether a change that matters is noticed."""
        return self.change <= MAX_TOLERANCES * self.tolerance


@dataclass(frozen=True)
class Proposal:
    """A proposed acceptance for one place: ``before`` has the bounds in force until then, ``notes`` are for people.

    ``acceptance`` is ``None`` if no metric can be accepted. ``noticed`` has the metrics with a level.
    """

    place: Place
    acceptance: Acceptance | None
    before: dict[str, Bounds]
    refused: tuple[NotAccepted, ...]
    notes: tuple[str, ...]
    noticed: tuple[Noticed, ...]

    @property
    def headlines(self) -> list[Noticed]:
        """What is noticed in headline metrics."""
        return [item for item in self.noticed if row_of(item.metric).record is not None]

    @property
    def weakness(self) -> str | None:
        """Why the baseline would notice too little; ``None`` if it is good."""
        if self.acceptance is None:
            return None
        nights = max(bounds.nights for bounds in self.acceptance.bounds.values()) // len(self.acceptance.accepted)
        if nights < ENOUGH_NIGHTS:
            return f"{nights} of {ENOUGH_NIGHTS} nights so far"
        blind = [item for item in self.headlines if not item.enough]
        if blind:
            worst = max(blind, key=lambda item: item.change / item.tolerance)
            what = f"{len(blind)} of {plural(len(self.headlines), 'headline metric')}"
            return f"{what} would change unnoticed, {worst.metric} by up to {share(worst.change)}"
        return None


@dataclass(frozen=True)
class _Run:
    """A run to accept, and the history of its SUT up to that night."""

    document: RunDocument
    night: NightRun
    history: History
    rows: tuple[int, ...]
    column: int

    @property
    def sut(self) -> str:
        return f"{self.night.testbed}/{self.night.sut}"


def results_of(runs: Sequence[Path]) -> Path:
    """Return the results directory that contains all *runs*.

    Raises ``InputError`` if they are in several.
    """
    found = {_directory(run).parents[2] for run in runs}
    if len(found) != 1:
        raise InputError(f"the runs are in several directories of results: {', '.join(sorted(map(str, found)))}")
    return found.pop()


def _directory(run: Path) -> Path:
    directory = (run.parent if run.name == RUN else run).resolve()
    if not (directory / RUN).is_file() or len(directory.parts) < 4:
        raise InputError(f"no {RUN} in {run}")
    return directory


def propose(
    runs: Sequence[Path], *, scope: Scope, by: str, reason: str, metrics: Sequence[str], now: datetime
) -> list[Proposal]:
    """Return what *by* would accept for *reason* with *runs*, without writing anything.

    *metrics* are name patterns, empty for all. Raises ``InputError`` if a run does not represent its night, two runs
    are of the same SUT, a text is empty, or nothing matches.
    """
    for name, text in (("by", by), ("reason", reason)):
        if not text.strip() or not text.isprintable():
            raise InputError(f"--{name} is not a line of text: {text!r}")
    results = results_of(runs)
    known = list(_read(results, runs))
    names = [run.sut for run in known]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several runs of {', '.join(twice)}: give one per SUT")
    places: dict[Path, tuple[Place, list[_Run]]] = {}
    for run in known:
        place = place_of(scope, (run.night.testbed, run.night.sut), run.night.facts)
        places.setdefault(place.path(results), (place, []))[1].append(run)
    proposals = [
        _proposal(results, place, of, by=by.strip(), reason=reason.strip(), metrics=metrics, now=now)
        for place, of in places.values()
    ]
    if all(proposal.acceptance is None and not proposal.refused for proposal in proposals):
        raise InputError(f"no metric{' named ' if metrics else ''}{' or '.join(metrics)} in the runs")
    return proposals


def _read(results: Path, runs: Sequence[Path]) -> Iterator[_Run]:
    histories: dict[str, History] = {}
    for path in runs:
        directory = _directory(path)
        document = read_run(directory)
        testbed, sut, run_id = document.run.testbed, document.run.sut, document.run.id
        if (testbed, sut, run_id) != directory.parts[-3:]:
            raise InputError(f"{path} has the run {testbed}/{sut}/{run_id}, not that of its directory")
        if document.imported is not None:
            raise InputError(f"{path} is an import, which cannot be accepted")
        if testbed not in histories:
            histories[testbed] = read_history(results, testbed=testbed)
        history = histories[testbed]
        nights = history.runs.get((testbed, sut), {})
        found = next((night for night in nights.values() if night.run_id == run_id), None)
        if found is None:
            others = [night.run_id for night in nights.values() if night.run_id[:8] == run_id[:8]] or ["another run"]
            raise InputError(f"{path} does not represent its night: accept {others[0]}")
        yield _Run(
            document=document,
            night=found,
            history=history,
            rows=tuple(
                row for row, series in enumerate(history.series) if (series.testbed, series.sut) == (testbed, sut)
            ),
            column=history.nights.index(found.night),
        )


def _proposal(
    results: Path, place: Place, runs: Sequence[_Run], *, by: str, reason: str, metrics: Sequence[str], now: datetime
) -> Proposal:
    refused: list[NotAccepted] = []
    series_of: dict[str, list[tuple[_Run, Series, NightlyHistory]]] = {}
    for run in runs:
        for series, nights in _series(run, metrics, refused):
            series_of.setdefault(series.metric, []).append((run, series, nights))
    used: set[RunName] = set()
    made = {metric: _bounds(series_of[metric], used, refused) for metric in sorted(series_of)}
    bounds = {metric: found for metric, found in made.items() if found is not None}
    acceptance = None
    if bounds:
        acceptance = Acceptance(
            accepted_by=by,
            accepted_at=now,
            reason=reason,
            outside=OUTSIDE,
            accepted=tuple(AcceptedRun(**_name(run.night).model_dump(), night=run.night.night) for run in runs),
            runs=tuple(sorted(used, key=lambda name: (name.testbed, name.sut, name.id))),
            bounds=bounds,
        )
    newest = max(run.night.night for run in runs)
    return Proposal(
        place=place,
        acceptance=acceptance,
        before=Baselines(results).before(place, newest),
        refused=tuple(refused),
        notes=tuple(_notes(place, runs)),
        noticed=tuple(_noticed(bounds, read_tolerances(results))),
    )


def _noticed(bounds: Mapping[str, Bounds], tolerances: Tolerances) -> Iterator[Noticed]:
    """Yield the smallest change that each of *bounds* on both sides of a level notices."""
    for metric, found in bounds.items():
        if found.lower is not None and found.upper is not None and found.value:
            ends = (abs(end / found.value - 1) for end in (found.lower, found.upper))
            yield Noticed(metric, max(ends), tolerances.fraction(metric))


def _name(run: NightRun) -> RunName:
    return RunName(testbed=run.testbed, sut=run.sut, id=run.run_id)


def _notes(place: Place, runs: Sequence[_Run]) -> Iterator[str]:
    for run in runs:
        for gone in run.history.unreadable:
            if gone.sut == run.night.sut:
                yield f"skipped, cannot be read: {gone.file}: {gone.reason}"
        if run.document.run.status != "complete":
            yield f"run {run.night.run_id} of {run.sut} is {run.document.run.status}: only its metrics are accepted"
    if place.scope != "sut" and len(runs) == 1:
        yield "from one SUT: the variance between SUTs is unknown and not included"


def _series(run: _Run, metrics: Sequence[str], refused: list[NotAccepted]) -> Iterator[tuple[Series, NightlyHistory]]:
    """Yield the series of *run* that match *metrics*, with the nights before; add invalid ones to *refused*."""
    history, end = run.history, run.column + 1
    by_name: dict[str, DocumentMetric] = {}
    for item in metrics_of(run.document):
        by_name.setdefault(item.metric.name, item)
    analyses = analyse(history.values[list(run.rows), :end])
    for row, analysis in zip(run.rows, analyses, strict=True):
        series = history.series[row]
        own = by_name.get(series.metric)
        if metrics and not any(fnmatchcase(series.metric, pattern) for pattern in metrics):
            continue
        if not isfinite(history.values[row, run.column]):
            if own is not None:
                reason = f"invalid ({', '.join(own.flags) or 'without a flag'})"
                refused.append(NotAccepted(run.sut, series.metric, reason))
            continue
        metric = own.metric if own is not None else None
        yield (
            series,
            NightlyHistory(
                values=history.values[row, :end],
                low=history.low[row, :end],
                high=history.high[row, :end],
                analysis=analysis,
                coverage=metric.coverage if metric else None,
                placements=metric.placements if metric else None,
                rounds=metric.rounds if metric else None,
            ),
        )


def _bounds(
    series_of_suts: Sequence[tuple[_Run, Series, NightlyHistory]], used: set[RunName], refused: list[NotAccepted]
) -> Bounds | None:
    """Return the bounds of one metric, or ``None``; add the runs they come from to *used*."""
    series = series_of_suts[0][1]
    positive = is_positive([nights for _, _, nights in series_of_suts])
    levels: list[Level] = []
    for run, own, nights in series_of_suts:
        if own.unit != series.unit:
            raise InputError(f"{own.metric} of {run.sut} is in {own.unit}, not in {series.unit}")
        try:
            level = level_of(nights, positive=positive)
        except UnknownSpreadError as error:
            refused.append(NotAccepted(run.sut, own.metric, str(error)))
            continue
        levels.append(level)
        by_night = run.history.runs[run.night.testbed, run.night.sut]
        used |= {_name(by_night[run.history.nights[column]]) for column in level.columns}
    if not levels:
        return None
    found = predict(levels, positive=positive)
    two_sided = all(level.two_sided for level in levels)
    return Bounds(
        value=found.value,
        lower=found.lower if two_sided or series.better == "higher" else None,
        upper=found.upper if two_sided or series.better == "lower" else None,
        unit=series.unit,
        method=found.method,
        why=found.why if two_sided else f"{found.why}; one bound, as a run observes it once",
        spread=found.spread,
        relative=found.relative,
        nights=sum(len(level.columns) for level in levels),
    )
