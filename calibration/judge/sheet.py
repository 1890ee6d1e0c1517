# SPDX-License-Identifier: Apache-2.0
"""The acceptance sheet: what a file asks for, what the runs of one SUT found, and whether that is enough."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from calibration.acceptance import AcceptanceFile
from calibration.acceptance.limits import KernelKind, Limit, kernel_kind
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model, UtcTime
from calibration.base.percentiles import COVERAGE, beyond_longest
from calibration.base.validity import Flag
from calibration.context.facts import FACTS, NONE, same_fact, text_of
from calibration.context.model import Context
from calibration.judge.absence import absence
from calibration.judge.limits import OUTCOMES, Judged, Outcome, inapplicable, is_outside, judge_metric, limit_of
from calibration.judge.verdicts import Waived
from calibration.judge.waivers import Waivers
from calibration.measurements import declaration
from calibration.measurements.base import Metric, Observation
from calibration.results.history import RunCheckName
from calibration.results.model import Measurement, ProbeBuild, RunDocument, RunStatus
from calibration.results.run_checks import run_checks
from calibration.results.store import StoredRun

SCHEMA_VERSION: Final = "sheet/1"

HOUR_S: Final = 3600.0

MET: Final[frozenset[Outcome]] = frozenset({"pass", "warn"})

VERDICTS: Final[dict[Outcome, str]] = {
    "fail": "fails",
    "unknown": "unknown: not shown either way",
    "warn": "passes, beyond a soft limit",
    "pass": "passes",
}

NO_WAIVERS: Final = Waivers()

MACHINE: Final = (
    *("system", "board", "serial numbers", "BIOS", "processor", "microcode", "virtualisation", "cores", "DIMMs"),
    *("memory of the machine", "kernel", "kernel command line", "isolated CPUs", "tuned profile"),
)
"""Facts that identify the machine and what it booted."""


class Looked(Model):
    """In what the worst was looked for.

    ``observed_s`` on the CPU that was observed least, ``cpu_s`` on all together. Of ``samples``, ``beyond`` were beyond
    the limit, at most; of those still to come a share of ``at_most``, with 95 % confidence, if none was. Both are
    ``None`` if the time was observed without a break; then ``per_hour`` is how many come on a CPU, at most. All three
    are ``None`` without an upper limit.
    ``over_soft`` are the CPUs whose worst is beyond the soft limit, or beyond the limit without one.
    """

    observed_s: float
    cpu_s: float
    cpus: tuple[int, ...]
    over_soft: tuple[int, ...]
    samples: int | None
    beyond: int | None
    at_most: float | None
    per_hour: float | None


class Row(Model):
    """What one limit says of the metrics that it is for: how many they are, and the ``worst`` of them.

    ``waived`` is set if a failure is excused. ``flags`` are those of its measurements that qualify them.
    """

    limit: Limit
    outcome: Outcome
    reason: str
    metrics: int
    worst: Metric | None = None
    looked: Looked | None = None
    waived: Waived | None = None
    flags: tuple[Flag, ...] = ()


class SheetRun(Model):
    """A run that the sheet is made of: the hash of its document, and the commands of what is judged."""

    id: str
    profile: str
    status: RunStatus
    started_at: UtcTime
    finished_at: UtcTime
    sha256: str
    commands: tuple[str, ...]


class SheetCheck(Model):
    """A check of one of the runs on its own, with the texts that decided it."""

    name: RunCheckName
    outcome: Literal["pass", "fail", "no_reference"]
    texts: tuple[str, ...]


class Sheet(Model):
    """What an acceptance file asks for, and whether the ``runs`` of one SUT show it.

    ``outcome`` is the worst of its rows and of ``checks``, those of each run on its own, of which only failures count.
    """

    schema_version: Literal["sheet/1"]
    outcome: Outcome
    testbed: str
    sut: str
    acceptance: AcceptanceFile
    rows: tuple[Row, ...]
    checks: tuple[SheetCheck, ...]
    machine: dict[str, str]
    harness_version: str
    probe: ProbeBuild | None
    runs: tuple[SheetRun, ...]


class _Found(NamedTuple):
    """A metric in one run, and in what it was looked for."""

    metric: Metric
    measurement: Measurement
    observation: Observation | None


def accepted(document: RunDocument, acceptance: AcceptanceFile) -> tuple[Outcome, int, int]:
    """Return what *acceptance* says of *document* alone: the worst of its limits, how many are met, and of how many."""
    context = None if document.context is None else document.context.parsed
    rows = list(_rows(acceptance.limits, [document], kernel_kind(context), {}))
    met = sum(row.outcome in MET for row in rows)
    return min((row.outcome for row in rows), key=OUTCOMES.index), met, len(rows)


def make_sheet(stored: Sequence[StoredRun], acceptance: AcceptanceFile, waivers: Waivers = NO_WAIVERS) -> Sheet:
    """Return the sheet of the runs *stored*, at least one, by *acceptance*; *waivers* count that cover the newest.

    Times of observation add up over the runs. Raises ``InputError`` if the runs are not of one SUT in one state.
    """
    documents = [run.document for run in stored]
    _check_same(documents)
    newest = max(documents, key=lambda document: document.run.started_at)
    context = None if newest.context is None else newest.context.parsed
    rows = tuple(_rows(acceptance.limits, documents, kernel_kind(context), _covering(waivers, newest)))
    checks = tuple(SheetCheck(**found._asdict()) for document in documents for found in run_checks(document))
    outcomes: list[Outcome] = [row.outcome for row in rows]
    outcomes += ["fail" for check in checks if check.outcome == "fail"]
    return Sheet(
        schema_version=SCHEMA_VERSION,
        outcome=min(outcomes, key=OUTCOMES.index),
        testbed=newest.run.testbed,
        sut=newest.run.sut,
        acceptance=acceptance,
        rows=rows,
        checks=checks,
        machine={} if context is None else dict(_machine(context)),
        harness_version=newest.run.harness_version,
        probe=newest.run.probe,
        runs=tuple(_sheet_run(run, acceptance.limits) for run in stored),
    )


def _machine(context: Context) -> Iterator[tuple[str, str]]:
    """Yield the facts of the machine that are known, and that it has."""
    for name in MACHINE:
        if (text := text_of(name, context)) not in {None, NONE}:
            yield name, str(text)


def _check_same(documents: Sequence[RunDocument]) -> None:
    """Raise ``InputError`` unless *documents* are different runs of one SUT that did not change in between."""
    first = documents[0]
    ids = [document.run.id for document in documents]
    if len(set(ids)) < len(ids):
        raise InputError("the same run is given twice")
    for other in documents[1:]:
        suts = [f"{document.run.testbed}/{document.run.sut}" for document in (first, other)]
        if len(set(suts)) > 1:
            raise InputError(f"a sheet is about one SUT, not {' and '.join(suts)}")
        for fact in FACTS:
            before, after = first.facts.get(fact.name), other.facts.get(fact.name)
            if fact.fixed and None not in (before, after) and not same_fact(fact.name, before, after):
                raise InputError(f"{suts[0]} changed between {first.run.id} and {other.run.id}: {fact.name}")


def _covering(waivers: Waivers, document: RunDocument) -> dict[str, Waived]:
    """Return the waivers of limits by metric that cover *document*."""
    run = document.run
    return {
        waiver.metric: Waived(reason=waiver.reason, by=waiver.by, until=waiver.until)
        for _, waiver in waivers.by_key.values()
        if (waiver.testbed, waiver.sut, waiver.check) == (run.testbed, run.sut, "limits")
        and run.finished_at.date() <= waiver.until
    }


def _sheet_run(stored: StoredRun, limits: Sequence[Limit]) -> SheetRun:
    run = stored.document.run
    measured = (
        measurement
        for measurement in stored.document.measurements
        if any(limit.matches(metric.name) for metric in measurement.metrics() for limit in limits)
    )
    return SheetRun(
        id=run.id,
        profile=run.profile,
        status=run.status,
        started_at=run.started_at,
        finished_at=run.finished_at,
        sha256=hashlib.sha256(stored.content).hexdigest(),
        commands=tuple(dict.fromkeys(" ".join(measurement.argv) for measurement in measured)),
    )


def _rows(
    limits: Sequence[Limit],
    documents: Sequence[RunDocument],
    kernel: KernelKind | None,
    waived: Mapping[str, Waived],
) -> Iterator[Row]:
    """Yield a row for each limit, except one whose metrics all are for an earlier one, or for one of their kernel."""
    found = grouped(
        (
            metric.name,
            _Found(metric, measurement, declaration(measurement.kind).observation(measurement.values, metric.name)),
        )
        for document in documents
        for measurement in document.measurements
        for metric in measurement.metrics()
    )
    names_of = grouped((id(limit_of(limits, name, kernel)), name) for name in found)
    for limit in limits:
        if names := names_of.get(id(limit)):
            yield _row(limit, [found[name] for name in names], kernel, waived)
        elif not any(limit.matches(name) for name in found):
            reason = inapplicable(limit, kernel)
            outcome: Outcome = "unknown" if reason else "fail"
            yield Row(limit=limit, outcome=outcome, reason=reason or absence(limit, documents), metrics=0)


def _row(
    limit: Limit, found: Sequence[Sequence[_Found]], kernel: KernelKind | None, waived: Mapping[str, Waived]
) -> Row:
    """Return the row of the metrics *found*, each in some runs."""
    judged = sorted(
        ((_judged(limit, those, kernel), _worst(those)) for those in found),
        key=lambda item: (OUTCOMES.index(item[0].outcome), *_badness(item[1])),
    )
    (outcome, reason), worst = judged[0][0][1:], judged[0][1]
    failed = [metric.name for (_, outcome, _), metric in judged if outcome == "fail"]
    waiver = waived.get(failed[0]) if failed and waived.keys() >= set(failed) else None
    flags = dict.fromkeys(flag for those in found for item in those for flag in item.measurement.validity.flags)
    return Row(
        limit=limit,
        outcome=outcome if waiver is None else "pass",
        reason=reason,
        metrics=len(found),
        worst=worst,
        looked=_looked(limit, found),
        waived=waiver,
        flags=tuple(flag for flag in flags if flag.severity != "info"),
    )


def _judged(limit: Limit, found: Sequence[_Found], kernel: KernelKind | None) -> Judged:
    """Return what *limit* says of a metric *found* in some runs: a valid value may fail, an invalid one hide that."""
    valid = [item for item in found if item.measurement.validity.valid]
    parts = [item.observation for item in valid if item.observation is not None]
    observed = Observation.merged(parts) if parts else None
    judged = [judge_metric(limit, _worst(valid), kernel, observed)] if valid else []
    for item in found:
        if not item.measurement.validity.valid:
            flags = item.measurement.validity.flags
            reason = "; ".join(flag.reason for flag in flags if flag.severity == "invalid")
            judged.append(Judged(limit, "unknown", f"unknown: {item.metric.name} is invalid: {reason}"))
    return min(judged, key=lambda item: OUTCOMES.index(item.outcome))


def _worst(found: Sequence[_Found]) -> Metric:
    return min((item.metric for item in found), key=_badness)


def _badness(metric: Metric) -> tuple[float]:
    """Return a key that sorts the worst metric first."""
    return (metric.value if metric.better == "higher" else -metric.value,)


def _looked(limit: Limit, found: Sequence[Sequence[_Found]]) -> Looked | None:
    """Return in what the metrics *found* were looked for; ``None`` if they are no extremes."""
    observed = [[item.observation for item in those if item.observation is not None] for those in found]
    every = [item for those in observed for item in those]
    if not every or not all(observed):
        return None
    _, worst, samples = Observation.merged(every)
    cpu_s = sum(item.observed_s * len(item.by_cpu) for item in every)
    hard = limit.soft_upper if limit.upper is None else limit.upper
    soft = limit.upper if limit.soft_upper is None else limit.soft_upper
    beyond = at_most = per_hour = None
    if samples is not None and hard is not None:
        beyond = samples.split(math.floor(hard) + 1)[1].total if samples.longest > hard else 0
        at_most = beyond_longest(samples.total) if samples.total and not beyond else None
    elif hard is not None and cpu_s and not any(is_outside(value, None, hard) for value in worst.values()):
        per_hour = -math.log(1 - COVERAGE) / (cpu_s / HOUR_S)
    return Looked(
        observed_s=min(sum(item.observed_s for item in those) for those in observed),
        cpu_s=cpu_s,
        cpus=tuple(sorted(worst)),
        over_soft=tuple(sorted(cpu for cpu, value in worst.items() if is_outside(value, None, soft))),
        samples=None if samples is None else samples.total,
        beyond=beyond,
        at_most=at_most,
        per_hour=per_hour,
    )
