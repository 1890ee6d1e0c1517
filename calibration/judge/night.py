# SPDX-License-Identifier: Apache-2.0
"""Judgement of a night: which SUT changed, when, and which metrics are out of the accepted bounds.

Everything is judged as known on that night: later nights are ignored, and a baseline applies from the night of the
accepted run.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from calibration.base.errors import InputError
from calibration.base.gc_pause import paused_collector
from calibration.base.model import Model
from calibration.judge.answer import Answer, answers
from calibration.judge.baseline_files import Baselines, NoBaselines, facts_of
from calibration.judge.causes import context_changes, likely
from calibration.judge.completeness import judge_metric, judge_run
from calibration.judge.drift import Analysis, analyse
from calibration.judge.events import Event, find_events
from calibration.judge.homogeneity import MAX_AGE, judge_homogeneity
from calibration.judge.judged import JudgedNights
from calibration.judge.kept_walks import KeptWalks
from calibration.judge.night_limits import judge_value
from calibration.judge.rows import SeriesNight, rows_of
from calibration.judge.stability import Stability
from calibration.judge.tolerances import FILE as TOLERANCES_FILE
from calibration.judge.tolerances import Tolerances, read_tolerances
from calibration.judge.verdicts import RUN, Check, ContextChange, NightVerdict, unreadable
from calibration.judge.waivers import Waivers, read_waivers
from calibration.results.find import pick_sut
from calibration.results.history import History, NightRun, Recorded, Series, Sut, Unreadable
from calibration.results.index import history_of, read_history
from calibration.results.nights import REDATE

if TYPE_CHECKING:  # importing the models takes longer than a history
    from calibration.results.model import RunDocument

PART_SERIES: Final = 4096
"""Series judged together, with their whole testbeds. More take more memory, fewer take more calls of NumPy."""

EXPECTED_NIGHTS: Final = 30
"""Nights for which an absent SUT or metric is still reported missing: a SUT that left the lab is reported for a month,
then forgotten."""


Each = Callable[[Sequence[NightVerdict]], None]
"""Gets all verdicts of a night, those of some testbeds at a time."""


class Unknown(NamedTuple):
    """A verdict without a reference; it is ``bounded`` if there is an expected range."""

    sut: Sut
    check: Check
    bounded: bool
    reason: str


class Judgement(Model):
    """All verdicts of a night, by testbed and SUT, the events shared by several SUTs, and the answer on each SUT.

    For the terminal, ``titles`` are those of the metrics, and ``unknown`` the verdicts without a reference.
    """

    night: date
    verdicts: tuple[NightVerdict, ...]
    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()
    titles: Mapping[str, str] = Field(default_factory=dict, exclude=True)
    unknown: tuple[Unknown, ...] = Field(default=(), exclude=True)

    @property
    def failed(self) -> bool:
        """Whether any verdict is a failure."""
        return any(verdict.outcome == "fail" for verdict in self.verdicts)


def write_judgement(stream: IO[bytes], results: Path, night: date | None = None, each: Each | None = None) -> Judgement:
    """Write the judgement of *night* in *results* to *stream* as JSON, verdicts as they come; return what it tells.

    *each* gets the verdicts, too. Raises like ``judge_night``.
    """
    begun = False

    def write(verdicts: Sequence[NightVerdict]) -> None:
        nonlocal begun
        stream.write(b"," if begun else _head(verdicts[0].night))
        stream.write(_VERDICTS.dump_json(verdicts)[1:-1])
        begun = True
        if each is not None:
            each(verdicts)

    judgement = judge_night(results, night, write)
    if not begun:
        stream.write(_head(judgement.night))
    rest = judgement.model_dump_json(include={"events", "answers"})
    stream.write(b"]," + rest.removeprefix("{").encode() + b"\n")
    return judgement


_VERDICTS: Final = TypeAdapter(Sequence[NightVerdict])


def _head(night: date) -> bytes:
    return f'{{"night":"{night}","verdicts":['.encode()


@paused_collector()
def judge_night(results: Path, night: date | None = None, each: Each | None = None) -> Judgement:
    """Return the judgement of *night*, by default the newest in *results*.

    With *each*, which is called with all verdicts of some testbeds at a time, the judgement keeps only what it tells
    about: failures, changes and waivers. Unreadable files have verdicts of their own. Raises ``InputError`` if there is
    no run of that night.
    """
    history = read_history(results, until=night, ends=MAX_AGE)
    check_night(history, results, night)
    return _judge_last(results, history, each)


def judge_newest(results: Path) -> Judgement | None:
    """Return what the judgement of the newest night in *results* tells about; ``None`` if there is no run."""
    history = read_history(results, ends=MAX_AGE)
    return _judge_last(results, history, lambda _: None) if history.nights else None


def _judge_last(results: Path, history: History, each: Each | None) -> Judgement:
    baselines, waivers, tolerances = Baselines(results), read_waivers(results), read_tolerances(results)
    kept: list[NightVerdict] = []
    unknown: list[Unknown] = []
    found: list[Answer] = []
    walks = KeptWalks(results)
    for testbeds, part in history.parts(PART_SERIES, waivers.testbeds):
        nights = judge_history(part, analyse(part.values, walks.run), baselines, waivers.of(testbeds), tolerances)
        found += answers(nights).values()
        unknown += _unknown(nights.verdicts)
        if each is None:
            kept += nights.verdicts
        elif nights.verdicts:
            each(nights.verdicts)
            kept += (item for item in nights.verdicts if item.outcome in {"fail", "noted"} or item.waiver is not None)
    walks.save(history.nights[-1])
    return Judgement.model_construct(
        night=history.nights[-1],
        verdicts=tuple(kept),
        events=find_events(kept),
        answers=tuple(found),
        titles=history.titles,
        unknown=tuple(unknown),
    )


def read_nights(results: Path) -> JudgedNights | None:
    """Return the nights of the documents in *results*; ``None`` if there are none."""
    history = read_history(results)
    return _judged(results, history) if history.nights else None


def judge_testbed(results: Path, testbed: str, *, sut: str | None, night: date) -> JudgedNights:
    """Return the nights of a *testbed* in *results*, or of one of its SUTs, as known on *night*.

    Raises like ``read_history``.
    """
    return _judged(results, read_history(results, testbed=testbed, sut=sut, until=night))


def judge_alone(document: "RunDocument") -> JudgedNights:
    """Return the night of *document*, judged by what it says itself."""
    history = history_of(document)
    return judge_history(history, analyse(history.values), NoBaselines(), Waivers(), Tolerances())


def _judged(results: Path, history: History) -> JudgedNights:
    analyses = analyse(history.values, KeptWalks(results).run)
    return judge_history(history, analyses, Baselines(results), read_waivers(results), read_tolerances(results))


def judgement_of(nights: JudgedNights) -> Judgement:
    """Return the judgement of the last of *nights*."""
    return Judgement.model_construct(
        night=nights.night,
        verdicts=tuple(nights.verdicts),
        events=nights.events,
        answers=tuple(answers(nights).values()),
        titles=nights.history.titles,
        unknown=tuple(_unknown(nights.verdicts)),
    )


def _unknown(verdicts: Iterable[NightVerdict]) -> Iterator[Unknown]:
    for verdict in verdicts:
        if verdict.outcome == "no_reference":
            sut = verdict.testbed, verdict.sut
            yield Unknown(sut, verdict.check, verdict.bound is not None, verdict.reason)


def of_sut(judgement: Judgement, sut: str) -> Judgement:
    """Return the judgement of *sut* only, by its name or a unique prefix (``calibration.results.find.pick_sut``).

    Raises ``InputError`` if no verdict matches.
    """
    sut = pick_sut(sut, sorted({f"{verdict.testbed}/{verdict.sut}" for verdict in judgement.verdicts}))
    verdicts = tuple(verdict for verdict in judgement.verdicts if f"{verdict.testbed}/{verdict.sut}" == sut)
    return Judgement.model_construct(
        night=judgement.night,
        verdicts=verdicts,
        events=tuple(event for event in judgement.events if sut in event.suts),
        answers=tuple(answer for answer in judgement.answers if f"{answer.testbed}/{answer.sut}" == sut),
        titles=judgement.titles,
        unknown=tuple(item for item in judgement.unknown if "/".join(item.sut) == sut),
    )


def check_night(history: History, results: Path, night: date | None) -> None:
    """Raise ``InputError`` unless *history*, read from *results* until *night*, ends with that night."""
    if night is None and not history.nights:
        unread = "".join(f"; cannot read {damaged.file}: {damaged.reason}" for damaged in history.unreadable[:1])
        raise InputError(f"no run to judge below {results}{unread}")
    if any(damaged.night == night and damaged.misdated for damaged in history.unreadable):
        raise InputError(f"the night {night} is far from the other nights below {results}: {REDATE}")
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
) -> JudgedNights:
    """Return the nights of *history*, whose series have the *analyses*, with the verdicts of the last one.

    If the lab's tolerances cannot be read, the defaults apply and each SUT fails with the reason.
    """
    night = history.nights[-1]
    run_ids = {sut: runs[night].run_id for sut, runs in history.runs.items() if night in runs}
    verdicts = [
        *(_damaged(damaged, night, run_ids) for damaged in history.unreadable),
        *_explained(history, _verdicts(history, analyses, baselines, tolerances)),
        *judge_homogeneity(history, analyses, tolerances),
    ]
    if tolerances.fault is not None:
        suts = {(verdict.testbed, verdict.sut) for verdict in verdicts}
        verdicts += [unreadable(sut, TOLERANCES_FILE, tolerances.fault, night, run_ids.get(sut)) for sut in suts]
    verdicts = list(waivers.applied(verdicts, night, run_ids))
    verdicts.sort(key=lambda verdict: (verdict.testbed, verdict.sut))  # stable: a SUT's own verdicts stay in order
    return JudgedNights(history, analyses, tuple(verdicts), tolerances, baselines)


def _damaged(damaged: Unreadable, night: date, run_ids: Mapping[Sut, str]) -> NightVerdict:
    """Return the failure for an unreadable run document of any night."""
    sut = (damaged.testbed, damaged.sut)
    remedy = REDATE if damaged.misdated else "restore it from a backup, or remove it"
    reason = f"{damaged.reason.removesuffix('; remove it')}; {remedy}"
    return unreadable(sut, damaged.file, reason, night, run_ids.get(sut))


def _explained(history: History, verdicts: Iterable[NightVerdict]) -> Iterator[NightVerdict]:
    """Yield *verdicts*, those with a first night with what changed in the context then."""

    @cache
    def changes(sut: Sut, since: date) -> tuple[ContextChange, ...]:
        runs = history.runs.get(sut, {})
        before = max((night for night in runs if night < since and runs[night].facts), default=None)
        after = min((night for night in runs if night >= since and runs[night].facts), default=None)
        return () if before is None or after is None else context_changes(runs[before], runs[after])

    for verdict in verdicts:
        found = () if verdict.since is None else changes((verdict.testbed, verdict.sut), verdict.since)
        yield replace(verdict, context_changes=likely(found, verdict.metric)) if found else verdict


def _verdicts(
    history: History, analyses: Sequence[Analysis], baselines: Baselines, tolerances: Tolerances
) -> Iterator[NightVerdict]:
    """Yield the verdicts of each SUT on its own."""
    night = history.nights[-1]
    known: NDArray[np.bool_] = np.isfinite(history.values)
    counts = known.sum(axis=1).tolist()
    expected = np.any(known[:, -1 - EXPECTED_NIGHTS :], axis=1).tolist()
    by_sut: dict[Sut, list[int]] = {sut: [] for sut in history.runs}
    for index, series in enumerate(history.series):
        by_sut.setdefault((series.testbed, series.sut), []).append(index)
    column = {night: number for number, night in enumerate(history.nights)}
    failed: dict[Sut, dict[str, Recorded]] = {}
    for (testbed, name, metric), recorded in history.recorded.items():
        if recorded.outcome == "fail":
            failed.setdefault((testbed, name), {})[metric] = recorded
    for sut, indices in sorted(by_sut.items()):
        run = history.runs.get(sut, {}).get(night)
        run_id = run.run_id if run else None
        accepted = baselines.of(sut, facts_of(history.runs.get(sut, {})), night)
        for file, reason in accepted.faults:
            yield unreadable(sut, file, reason, night, run_id)
        rows = rows_of(history, [index for index in indices if expected[index]], run_id)
        if run is not None:
            yield from _run_checks(history, run)
        if run is not None or rows:
            yield judge_run(history, sut, rows, run, indices)
        measured = any(row.value is not None for row in rows)
        for row in rows:
            metric = row.series.metric
            if run is not None and measured:
                yield judge_metric(history, row, run)
            if row.value is not None:
                yield judge_value(history, row, row.value, accepted.bounds.get(metric), tolerances)
                failed.get(sut, {}).pop(metric, None)
            level = accepted.levels.get(metric)
            since = -1 if level is None else _column(column, level.night)
            analysis, count = analyses[row.index], counts[row.index]
            yield from Stability(history.nights, row, analysis, count, tolerances, level, since).verdicts()
        for check in history.consistency.get(sut, ()) if run is not None else ():
            row = SeriesNight(
                Series(*sut, check.metric, check.unit, "lower"), night, run_id, check.value, check.interval
            )
            wrong = check.outcome == "fail"
            since_now = {"bound": check.bound, "since": night if wrong else None}
            yield row.verdict_on_value("consistency", "fail" if wrong else "pass", check.reason, **since_now)
        for metric, recorded in failed.get(sut, {}).items():  # limits whose metric the run lacks
            row = SeriesNight(Series(*sut, metric, "", "lower"), night, run_id)
            bound = (recorded.lower, recorded.upper)
            yield row.verdict("limits", "fail", recorded.reason, bound=bound, since=night)


def _run_checks(history: History, run: NightRun) -> Iterator[NightVerdict]:
    """Yield the checks of *run*, that of the last night, on its own."""
    sut = run.testbed, run.sut
    row = SeriesNight(Series(*sut, RUN, "", "lower"), run.night, run.run_id)
    for check in history.run_checks.get(sut, ()):
        more = f"; and {len(check.texts) - 1} more" if len(check.texts) > 1 else ""
        since = _failing_since(history.runs[sut], check.name) if check.outcome == "fail" else None
        yield row.verdict(check.name, check.outcome, f"{check.texts[0]}{more}", since=since)


def _failing_since(runs: Mapping[date, NightRun], check: str) -> date:
    """Return the first night since which *check* fails in all *runs*."""
    failing = itertools.takewhile(lambda night: check in runs[night].failed, sorted(runs, reverse=True))
    return min(failing)


def _column(column: dict[date, int], night: date) -> int:
    """Return the column of *night*, or of the last night before it if the store no longer has it."""
    return column[night] if night in column else max((column[item] for item in column if item < night), default=-1)
