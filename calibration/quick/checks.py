# SPDX-License-Identifier: Apache-2.0
"""Checks of the quick gate: one SUT's runs of the profile sentinel against what was accepted for it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import ValidationError

from calibration.base.commandline import accept_command
from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.model import Model, fault_of
from calibration.base.validity import Validity
from calibration.context.facts import NOT_KNOWN, same_fact
from calibration.judge.baseline_files import Baselines
from calibration.judge.causes import INSTRUMENT
from calibration.judge.sentinels import (
    ACCEPTED,
    BEFORE,
    SENTINELS,
    Deviation,
    LevelKind,
    Sentinel,
    Verdict,
    judge_gap,
    judge_level,
    judge_noise,
    level_of,
    reading_of,
)
from calibration.judge.tolerances import Tolerances
from calibration.judge.words import changed_fact
from calibration.measurements.jitter import JitterValues
from calibration.preflight.checks import MOMENTARY, refusal
from calibration.results import run_checks
from calibration.results.layout import RUN, run_directory
from calibration.results.model import Measurement, RunDocument, of_the_run
from calibration.results.plain import metrics_of
from calibration.results.run_checks import Result
from calibration.results.store import open_run

CheckName = Literal["measured", "restored", "promises", "context", "latency", "bandwidth", "clock", "gap"]
"""The checks of a SUT, in the order of the log; each is a test of quick.robot, which has its name as tag."""

SHORTEST: Final = "peak_injection_bandwidth"
"""The kind measured again where only what else is on the SUT is to be looked at again: it takes a second."""


class QuickCheck(Model):
    """The results of one check of one SUT; ``repeat`` names the kinds that may decide more if measured again."""

    testbed: str
    sut: str
    check: CheckName
    results: tuple[Result, ...]
    repeat: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """The worst result: ``failed``, ``undecided`` or ``passed``."""
        found = {result.outcome for result in self.results}
        return next(outcome for outcome in ("failed", "undecided", "passed") if outcome in found)


class State(NamedTuple):
    """What a SUT is compared with: levels and upper bounds by metric, facts of a run or why they are not known.

    ``lack`` is said of a metric without a level, ``run`` and ``kind`` name what it is. Without ``uppers``, gaps are
    not judged.
    """

    levels: Callable[[str], Deviation | None]
    uppers: Callable[[str], float | None] | None
    facts: Mapping[str, str]
    missing: str | None
    lack: str
    run: str = "the accepted run"
    kind: LevelKind = ACCEPTED


def saved_state(document: RunDocument) -> State:
    """Return what *document*, a run before, says of the machine. One run says nothing of the longest gap of another."""
    found = {item.metric.name: item.metric for item in metrics_of(document) if item.valid}

    def level(name: str) -> Deviation | None:
        return reading_of(found[name], BEFORE) if name in found else None

    return State(
        level, None, document.facts, None, "not measured or invalid in the run before", "the run before", BEFORE
    )


def accepted_state(results: Path, document: RunDocument, baselines: Baselines) -> State:
    """Return what is accepted in *results* for the SUT of *document*, on the night of it.

    Raises ``InputError`` if a file of it cannot be read.
    """
    run = document.run
    sut = run.testbed, run.sut
    accepted = baselines.of(sut, document.facts, run.started_at.date())
    for file, reason in accepted.faults:
        raise InputError(f"{file}: {reason}")
    accept = accept_command("/".join(sut), results)

    def level(name: str) -> Deviation | None:
        baseline = accepted.bounds.get(name)
        return None if baseline is None else level_of(baseline.bounds, baseline.acceptance.outside)

    def upper(name: str) -> float | None:
        baseline = accepted.bounds.get(name)
        return None if baseline is None else baseline.bounds.upper

    def state(facts: Mapping[str, str], missing: str | None) -> State:
        return State(level, upper, facts, missing, f"no accepted bounds: {accept}")

    newest = max(accepted.levels.values(), key=lambda level: level.night, default=None)
    if newest is None:
        return state({}, f"no run of this SUT is accepted: {accept}")
    run_id = next(item.id for item in newest.acceptance.accepted if (item.testbed, item.sut) == sut)
    path = run_directory(results, *sut, run_id) / RUN
    try:
        facts: Mapping[str, str] = open_run(path, below=results).document.facts
    except FileNotFoundError:
        return state({}, f"the accepted run {run_id} is not in the results any more")
    return state(facts, None if facts else f"the accepted run {run_id} has no context")


def check_sut(documents: Sequence[RunDocument], state: State | None, tolerances: Tolerances) -> Iterator[QuickCheck]:
    """Yield the checks of a SUT from the *documents* of its run and, if anything was repeated, of that one.

    Without a *state* to compare with, the checks are whether it is quiet enough for it. Without a measurement only what
    is known is checked.
    """
    first = documents[0]
    last = next((document for document in reversed(documents) if document.measurements), first)

    def check(name: CheckName, results: Iterable[Result], repeat: Iterable[str] = ()) -> QuickCheck:
        return QuickCheck(
            testbed=first.run.testbed, sut=first.run.sut, check=name, results=tuple(results), repeat=tuple(repeat)
        )

    yield check("measured", _measured(first))
    if any(attempt.capture or attempt.unrestored for document in documents for attempt in document.attempts):
        yield check("restored", itertools.chain.from_iterable(map(run_checks.check_settings_restored, documents)))
    promises = list(run_checks.check_inventory(last))
    failed = [check for attempt in last.attempts[-1:] for check in attempt.checks if check.failed]
    busy = ", ".join(check.title for check in failed if check.name in MOMENTARY)
    if promises:
        yield check("promises", promises, [SHORTEST] if busy and last.measurements else ())
    if first.facts and state is not None:
        yield check("context", _context(first.facts, state))
    if not first.measurements:
        return
    for sentinel in SENTINELS:
        verdict = _level(sentinel, documents, state, tolerances)
        yield check(sentinel.name, [_result(verdict, busy)], [sentinel.kind] if verdict.repeat else ())
    gaps = [] if state is None or state.uppers is None else list(_gaps(documents, state.uppers))
    if gaps:
        repeat = ["jitter"] if any(verdict.repeat for verdict in gaps) else ()
        yield check("gap", [_result(verdict, busy) for verdict in gaps], repeat)


def _measured(document: RunDocument) -> Iterator[Result]:
    """Yield whether anything was measured; what is missing of it, the sentinels say."""
    if document.measurements:
        yield Result("passed", f"{document.run.id} is {document.run.status}")
        return
    if any(refusal(attempt.checks) for attempt in document.attempts):
        yield Result("undecided", "refused, as it does not meet the inventory's expectations")
        return
    reasons = dict.fromkeys(lost.reason for lost in of_the_run(document.not_measured) if lost.cause != "not_planned")
    yield Result("undecided", "; ".join(reasons) or f"the run is {document.run.status}")


def _context(facts: Mapping[str, str], state: State) -> Iterator[Result]:
    """Yield in which facts the SUT differs from the accepted run; one that is not known on a side decides nothing."""
    if state.missing is not None:
        yield Result("undecided", state.missing)
        return
    common = [name for name in state.facts if name in facts and name != INSTRUMENT]
    differ = [name for name in common if not same_fact(name, facts[name], state.facts[name])]
    for name in differ:
        known = NOT_KNOWN not in {facts[name], state.facts[name]}
        text = f"{name}: {changed_fact(state.facts[name], facts[name])}"
        yield Result("failed" if known else "undecided", text)
    yield Result("passed", f"{len(common) - len(differ)} of {len(common)} facts are those of {state.run}")


def _level(
    sentinel: Sentinel, documents: Sequence[RunDocument], state: State | None, tolerances: Tolerances
) -> Verdict:
    """Return the verdict on the first metric of *sentinel* that the SUT has."""
    read = [{item.metric.name: item for item in metrics_of(document)} for document in documents]
    name = next((name for name in sentinel.metrics if name in read[0]), None)
    if name is None:
        return Verdict("undecided", f"not measured: {_why_missing(documents[0], sentinel)}")
    found = [items[name] for items in read if name in items]
    if invalid := next((item for item in found if not item.valid), None):
        return Verdict("undecided", f"{name}: invalid: {', '.join(invalid.flags)}")
    change = max(sentinel.change, tolerances.fraction(name))
    try:
        if state is None:
            return judge_noise(change, found[0].metric)
        level = state.levels(name)
        if level is None:
            return Verdict("undecided", f"{name}: {state.lack}")
        return judge_level(level, change, [item.metric for item in found], state.kind)
    except ValueError as error:
        return Verdict("undecided", f"{name}: {error}", repeat=True)


def _why_missing(document: RunDocument, sentinel: Sentinel) -> str:
    reasons = dict.fromkeys(lost.reason for lost in document.not_measured if lost.kind in {sentinel.kind, "run"})
    return "; ".join(reasons) or "not planned"


def _gaps(documents: Sequence[RunDocument], uppers: Callable[[str], float | None]) -> Iterator[Verdict]:
    """Yield the verdict on the longest gap of each isolated CPU; undecided where it is invalid or missing."""
    lost = [item for item in documents[0].not_measured if item.kind == "jitter" and item.cause != "not_planned"]
    if lost:
        yield Verdict("undecided", f"not measured: {'; '.join(dict.fromkeys(item.reason for item in lost))}")
    read = [dict(_isolated(document.measurements)) for document in documents]
    for name, (values, _) in read[0].items():
        found = [items[name] for items in read if name in items]
        if invalid := next((validity for _, validity in found if not validity.valid), None):
            codes = (flag.code for flag in invalid.flags if flag.severity == "invalid")
            yield Verdict("undecided", f"CPU {values.cpu}: invalid: {', '.join(codes)}")
            continue
        gaps = [values.gaps for values, _ in found]
        verdict = judge_gap(uppers(name), [gap.max_ns for gap in gaps], values.gaps.wall_s)
        yield verdict._replace(text=f"CPU {values.cpu}: {verdict.text}")


def _isolated(measurements: Iterable[Measurement]) -> Iterator[tuple[str, tuple[JitterValues, Validity]]]:
    for measurement in measurements:
        values = measurement.values
        if isinstance(values, JitterValues) and values.isolated:
            yield f"{values.own_metrics}gaps.max_ns", (values, measurement.validity)


def _result(verdict: Verdict, busy: str) -> Result:
    """Return *verdict* as a result; beside what else is on the SUT, the checks in *busy*, it cannot fail."""
    if busy and verdict.outcome == "failed":
        return Result("undecided", f"{verdict.text}; but the SUT was busy: {busy}")
    return Result(verdict.outcome, verdict.text)


class _Checked(Model):
    """The results of a quick gate as a file."""

    checks: tuple[QuickCheck, ...]


def read_checks(path: Path) -> tuple[QuickCheck, ...]:
    """Return the checks in the file at *path*. Raises ``InputError`` if they cannot be read."""
    try:
        return _Checked.model_validate_json(read_given(path)).checks
    except ValidationError as error:
        raise InputError(f"{path}: not the results of a quick gate: {fault_of(error)}") from error


def write_checks(path: Path, checks: Sequence[QuickCheck]) -> None:
    """Write *checks* to the file at *path*. Raises ``OSError``."""
    path.write_text(_Checked(checks=tuple(checks)).model_dump_json(indent=1) + "\n", encoding="utf-8")
