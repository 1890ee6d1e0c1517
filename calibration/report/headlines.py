# SPDX-License-Identifier: Apache-2.0
"""The headline table: one row per quantity, with the figure of record, its goal, what is accepted, and the peers.

Nothing else on a page, on the terminal or in a message quotes another figure for these quantities.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.trust import Trust
from calibration.context.model import Context
from calibration.context.population import Population, UnknownPopulation, population
from calibration.judge.standing import Standing
from calibration.judge.words import within
from calibration.measurements import record_title
from calibration.references.matching import Normal
from calibration.references.metrics import Metric as ReferenceMetric
from calibration.report.normal import usual_band
from calibration.results.consistency import RULES, CheckedValue, Outcome
from calibration.results.metrics_of_record import QUANTITIES
from calibration.results.model import RecordMetric, RunDocument

MAX_ROWS: Final = 12

USUAL: Final[dict[str, ReferenceMetric]] = {
    "idle_latency": "idle_latency_local_ns",
    "read_bandwidth": "read_machine_mb_s",
}
"""Rows that references are known for."""

OF_ALL: Final = {
    "idle_latency": "Idle latency, own node",
    "idle_latency_memory_only": "Idle latency, memory-only nodes",
    "idle_latency_remote": "Idle latency, farthest node",
}
"""Titles of rows that stand for many figures."""


@dataclass(frozen=True)
class Peers:
    """The same metric of the testbed's other SUTs tonight: values, and in words."""

    values: tuple[float, ...]
    own: float
    accepted: tuple[float | None, float | None] | None
    words: str


@dataclass(frozen=True)
class HeadlineRow:
    """One quantity. ``goal`` is the half-width aimed at; ``outside`` whether a figure is out of the accepted range.

    ``accepted`` is the accepted range, or what is usual for the hardware; ``kind`` is that of the measurement.
    ``checks`` says what else was measured of the quantity.
    """

    anchor: str
    metric: str
    title: str
    value: str
    plus_minus: str
    trust: Trust
    goal: str
    accepted: str
    outside: bool
    peers: Peers | None
    peak: str
    note: str
    kind: str
    checks: str = ""


def headline_rows(document: RunDocument, standing: Standing, compared: Normal) -> list[HeadlineRow]:
    """Return the rows of *document*, at most twelve, in the order of the quantities."""
    context = None if document.context is None else document.context.parsed
    groups = grouped((row_key(item.quantity, context), item) for item in document.record)
    ordered = sorted(groups.items(), key=lambda pair: (QUANTITIES.index(pair[1][0].family), pair[0]))
    rows = [_row(key, items, standing, compared, document) for key, items in ordered]
    return rows[:MAX_ROWS]


class Repeat(NamedTuple):
    """Another measurement of a quantity: its value, the difference to the figure of record, and whether it agrees."""

    value: CheckedValue
    difference: float | None
    outcome: Outcome


def repeats(document: RunDocument) -> dict[str, list[Repeat]]:
    """Return the cross-checks of each metric of record in *document*, by its name."""
    record = {item.metric.name for item in document.record}
    return grouped(
        (check.other.name, Repeat(check.figure, check.difference, check.outcome))
        for check in document.consistency
        if RULES[check.rule].same and check.other.name in record and check.figure.name not in record
    )


def _checks(found: Sequence[Repeat]) -> str:
    """Return what else was measured of a quantity, in words; nothing without any."""
    if not found:
        return ""
    ordered = sorted(found, key=lambda item: item.value.value)
    ends = dict.fromkeys(units.headline(item.value) for item in (ordered[0], ordered[-1]))
    known = [item.difference for item in (ordered[0], ordered[-1]) if item.difference is not None]
    apart = dict.fromkeys(units.difference(difference, None) for difference in known)
    what = "cross-check" if len(found) == 1 else f"{len(found)} cross-checks"
    failed = sum(item.outcome == "fail" for item in found)
    by = f" ({' to '.join(apart)})" if apart else ""
    text = f"{what}: {' to '.join(ends)}{by}"
    return f"{text}, {failed} failed" if failed else text


def row_key(quantity: str, context: Context | None = None) -> str:
    """Return the row of a figure of *quantity*: those that differ only in their place share one.

    Nodes without CPUs in the *context* have their own: their memory is of another kind.
    """
    family = quantity.partition(".")[0]
    if family == "idle_latency" and not is_local(quantity):
        memory_only = map(str, context.memory_only_nodes if context else ())
        return f"{family}_memory_only" if quantity.rpartition(".")[2] in memory_only else f"{family}_remote"
    return quantity if family == "cache_latency" else family


def is_local(quantity: str) -> bool:
    """Return whether *quantity* is of a node and its own memory, or not about a pair of nodes."""
    return len(set(quantity.split(".")[1:])) < 2


def _row(
    key: str,
    items: Sequence[RecordMetric],
    standing: Standing,
    compared: Normal,
    document: RunDocument,
) -> HeadlineRow:
    context = None if document.context is None else document.context.parsed
    shown = _shown(key, items, standing)
    metric, verdict = shown.metric, standing.limits.get(shown.metric.name)
    bound = None if verdict is None else verdict.bound
    accepted = "" if bound is None else within(*bound, metric.unit)
    usual = USUAL.get(key)
    if not accepted and usual is not None:
        accepted = usual_band(compared, usual) or ""
    values = standing.peers.get(metric.name, ())
    return HeadlineRow(
        anchor=units.slug(key.replace("_", "-")),
        metric=metric.name,
        title=_title(key, shown, items),
        value=units.headline(metric),
        plus_minus=units.plus_minus(metric) or "",
        trust=shown.trust,
        goal="" if metric.goal is None else f"±{units.percent(metric.goal)}",
        accepted=accepted,
        outside=any(verdict.outcome == "fail" for item in items if (verdict := standing.limits.get(item.metric.name))),
        peers=Peers(values, metric.value, bound, _in_words(values, metric.unit)) if values else None,
        peak=_peak(shown, context),
        note="; ".join(_notes(shown, items, context)),
        kind=metric.name.partition(".")[0],
        checks=_checks(repeats(document).get(metric.name, ())),
    )


def _shown(key: str, items: Sequence[RecordMetric], standing: Standing) -> RecordMetric:
    """Return the figure that stands for *items*: one that is out of its limits, else the middle or the worst."""
    ordered = sorted(items, key=lambda item: item.metric.value)
    for item in items:
        verdict = standing.limits.get(item.metric.name)
        if verdict is not None and verdict.outcome == "fail":
            return item
    if key == "read_bandwidth":
        return next((item for item in items if item.quantity == "read_bandwidth.machine"), ordered[0])
    if key == "idle_latency":
        return ordered[(len(ordered) - 1) // 2]
    return ordered[-1] if ordered[0].metric.better == "lower" else ordered[0]


def _title(key: str, shown: RecordMetric, items: Sequence[RecordMetric]) -> str:
    """Return the title of a row; of many figures that of all."""
    title = record_title(shown.metric.name) or shown.title
    return OF_ALL.get(key, title) if len(items) > 1 else title


def _notes(shown: RecordMetric, items: Sequence[RecordMetric], context: Context | None) -> Iterator[str]:
    """Yield what the title does not say: how many figures there are, and whether the CPU is isolated."""
    if len(items) > 1 and shown.family == "idle_latency":
        ends = [units.headline(pick(items, key=lambda item: item.metric.value).metric) for pick in (min, max)]
        pairs = "nodes" if is_local(shown.quantity) else "pairs of nodes"
        yield f"{len(items)} {pairs}: {' to '.join(dict.fromkeys(ends))}"
    isolated = () if context is None else context.isolated_cpus
    if where := re.match(r"jitter[.]cpu(\d+)[.]", shown.metric.name):
        yield "isolated" if int(where[1]) in isolated else "not isolated"


def _in_words(values: Sequence[float], unit: str) -> str:
    ends = within(min(values), max(values), unit) if min(values) < max(values) else units.measured(values[0], unit)
    return f"{ends} ({units.plural(len(values), 'SUT')})"


def _peak(shown: RecordMetric, context: Context | None) -> str:
    if shown.quantity != "read_bandwidth.machine":
        return ""
    peaks = peaks_of(context)
    return units.percent(shown.metric.value / peaks.machine.peak_mb_s) if isinstance(peaks, Population) else "unknown"


def peaks_of(context: Context | None) -> Population | UnknownPopulation:
    """Return the theoretical peak of the populated channels of *context*, or why it is unknown."""
    return UnknownPopulation(reason="the SUT was not captured") if context is None else population(context)
