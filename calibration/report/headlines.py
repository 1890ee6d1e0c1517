# SPDX-License-Identifier: Apache-2.0
"""The headline table: one row per quantity, with the figure of record, its goal, what is accepted, and the peers.

Nothing else on a page, on the terminal or in a message quotes another figure for these quantities.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.trust import Trust
from calibration.context.model import Context
from calibration.context.population import Population, UnknownPopulation, population
from calibration.judge.standing import Standing
from calibration.judge.words import within
from calibration.references.matching import Normal
from calibration.references.metrics import Metric as ReferenceMetric
from calibration.report.normal import usual_band
from calibration.results.metrics_of_record import QUANTITIES
from calibration.results.model import RecordMetric, RunDocument

MAX_ROWS: Final = 12

USUAL: Final[dict[str, ReferenceMetric]] = {
    "idle_latency": "idle_latency_local_ns",
    "read_bandwidth": "read_machine_mb_s",
}
"""Rows that references are known for."""


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
    """

    anchor: str
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


def headline_rows(document: RunDocument, standing: Standing, compared: Normal) -> list[HeadlineRow]:
    """Return the rows of *document*, at most twelve, in the order of the quantities."""
    groups = grouped((_key(item), item) for item in document.record)
    ordered = sorted(groups.items(), key=lambda pair: (QUANTITIES.index(pair[1][0].family), pair[0]))
    context = None if document.context is None else document.context.parsed
    return [_row(key, items, standing, compared, context) for key, items in ordered][:MAX_ROWS]


def _key(item: RecordMetric) -> str:
    """Return the row of a figure: figures of one quantity that differ only in their place share one."""
    if item.family == "idle_latency":
        return "idle_latency" if is_local(item) else "idle_latency_remote"
    return item.quantity if item.family == "cache_latency" else item.family


def is_local(figure: RecordMetric) -> bool:
    """Return whether *figure* is of a node and its own memory, or not about a pair of nodes."""
    return len(set(figure.quantity.split(".")[1:])) < 2


def _row(
    key: str, items: Sequence[RecordMetric], standing: Standing, compared: Normal, context: Context | None
) -> HeadlineRow:
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
    of_all = {"idle_latency": "Idle latency, own node", "idle_latency_remote": "Idle latency, farthest node"}
    return of_all.get(key, shown.title) if len(items) > 1 else shown.title


def _notes(shown: RecordMetric, items: Sequence[RecordMetric], context: Context | None) -> Iterator[str]:
    """Yield what the title does not say: how many figures there are, and whether the CPU is isolated."""
    if len(items) > 1 and shown.family == "idle_latency":
        ends = [units.headline(pick(items, key=lambda item: item.metric.value).metric) for pick in (min, max)]
        pairs = "nodes" if is_local(shown) else "pairs of nodes"
        yield f"{len(items)} {pairs}: {' to '.join(dict.fromkeys(ends))}"
    isolated = () if context is None else context.isolated_cpus
    if where := re.search(r"CPU (\d+)", shown.title):
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
