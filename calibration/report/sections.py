# SPDX-License-Identifier: Apache-2.0
"""The measured sections of a page: each answers its question in a sentence, with the rows of its table."""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple, TypeVar

from calibration.context.population import UnknownPopulation
from calibration.measurements.base import Metric
from calibration.measurements.c2c_matrix import C2cMatrixValues
from calibration.measurements.core_frequency import CoreFrequencyValues
from calibration.measurements.jitter import JitterValues
from calibration.measurements.latency_ladder import LatencyLadderValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.report import filters
from calibration.report.story import is_local, peaks_of, trust_word
from calibration.results.figures import Family, RecordFigure
from calibration.results.model import Measurement, RunDocument
from calibration.trust import Trust

FAMILY: Final = 8
"""From more metrics than this that differ only in a number, a table shows the lowest and the highest."""

SHOWN: Final = 8
"""So many rows of a kind are in its section's table; the rest is folded."""


class Row(NamedTuple):
    """One figure of a table: what it is, its value, its half-width in per cent, how far to trust it and the verdict."""

    title: str
    value: str
    plus_minus: str
    trust: Trust
    word: str
    outside: bool


def rows(document: RunDocument, kind: str) -> list[Row]:
    """Return the rows of *kind*: every metric, or the extremes of a family of many.

    A maximum that no setting of its search took beyond the peak is the peak's figure, and no row of its own.
    """
    failed = {each.name for each in document.verdicts if each.outcome == "fail"}
    peaks = {
        (f"max_bandwidth.{name}.bandwidth_mb_s", each.bandwidth_mb_s.value)
        for measurement in document.measurements
        if isinstance(measurement.values, PeakValues)
        for name, each in measurement.values.mixes.items()
    }
    families: dict[str, list[tuple[Measurement, Metric]]] = {}
    for measurement in document.measurements:
        for metric in measurement.metrics() if measurement.kind == kind else ():
            if (metric.name, metric.value) not in peaks:
                families.setdefault(re.sub(r"\d+", "#", metric.name), []).append((measurement, metric))
    return [row for family in families.values() for row in _rows(family, failed)]


def _rows(family: Sequence[tuple[Measurement, Metric]], failed: Container[str]) -> Iterator[Row]:
    """Yield the rows of *family*: one for each metric, or of many for the lowest and the highest."""
    shown = [(*pair, "") for pair in family]
    if len(family) > FAMILY:
        ordered = sorted(family, key=lambda pair: pair[1].value)
        shown = [(*ordered[0], f" (lowest of {len(family)})"), (*ordered[-1], f" (highest of {len(family)})")]
    for measurement, metric, which in shown:
        trust, reason = measurement.trust_in(metric)
        yield Row(
            title=f"{metric.title}{which}",
            value=filters.headline(metric),
            plus_minus=filters.plus_minus(metric) or "",
            trust=trust,
            word=trust_word(trust, reason),
            outside=metric.name in failed,
        )


# Sentences

V = TypeVar("V")


class Facts:
    """A run as the sentences see it."""

    def __init__(self, document: RunDocument) -> None:
        self.measurements = document.measurements
        self.figures = document.record
        self.context = None if document.context is None else document.context.parsed

    def record(self, family: Family) -> list[RecordFigure]:
        """Return the valid figures of record of *family*."""
        return [each for each in self.figures if each.family == family and each.trust != "invalid"]

    def values(self, values: type[V]) -> list[V]:
        """Return the values of that type of valid measurements."""
        return [each.values for each in self.measurements if each.validity.valid and isinstance(each.values, values)]


def _told(metric: Metric) -> str:
    half = filters.plus_minus(metric)
    return filters.headline(metric) if half is None else f"{filters.headline(metric)} ({half})"


def jitter(facts: Facts) -> Iterator[str]:
    """Yield how much the operating system takes of a core."""
    found = facts.values(JitterValues)
    for isolated, word in ((True, "isolated"), (False, "not isolated")):
        cpus = [each for each in found if each.isolated == isolated]
        if not cpus:
            continue
        longest = max(cpus, key=lambda each: each.gaps.max_ns)
        lost = sorted(each.gaps.lost_fraction for each in cpus)
        if len(cpus) == 1:
            yield (
                f"CPU {longest.cpu} ({word}) loses {filters.percent(lost[0])} of its time; the longest gap in "
                f"{longest.gaps.wall_s:.0f} s was {filters.time_ns(longest.gaps.max_ns)}."
            )
        else:
            yield (
                f"{len(cpus)} CPUs ({word}) lose {filters.percent(lost[0])} to {filters.percent(lost[-1])} of their "
                f"time, median {filters.percent(median(lost))}; the longest gap was "
                f"{filters.time_ns(longest.gaps.max_ns)}, on CPU {longest.cpu}."
            )
        ticks = [period for each in cpus for period in each.gaps.periods]
        if ticks:
            tick = max(ticks, key=lambda each: each.share_of_gaps or 0)
            yield f"A timer of {filters.frequency(tick.hz)} makes {filters.percent(tick.share_of_gaps)} of the gaps."


def latency(facts: Facts) -> Iterator[str]:
    """Yield how far memory is, idle and under load."""
    idle = facts.record("idle_latency")
    local = [each for each in idle if is_local(each)]
    if local:
        remote = [each.metric for each in idle if each not in local]
        beyond = f", remote memory in {_range(remote)}" if remote else ""
        yield f"Local memory answers in {_range([each.metric for each in local])}{beyond}."
    if loaded := facts.record("loaded_latency"):
        slowest = max(loaded, key=lambda each: each.metric.value)
        where = "At 90 % of the peak bandwidth" if "90" in slowest.title else "Under full load"
        times = ""
        if local:
            ratio = filters.significant(slowest.metric.value / local[0].metric.value, 2)
            times = f", {ratio} times the idle latency"
        yield f"{where} it takes {_told(slowest.metric)}{times}."


def _range(metrics: Sequence[Metric]) -> str:
    if len(metrics) == 1:
        return _told(metrics[0])
    low, high = (filters.headline(pick(metrics, key=lambda each: each.value)) for pick in (min, max))
    return f"{low.rpartition(' ')[0]} to {high}"


def bandwidth(facts: Facts) -> Iterator[str]:
    """Yield what memory delivers."""
    record = {each.quantity: each for each in facts.record("read_bandwidth")}
    if whole := record.pop("read_bandwidth.machine", None):
        yield f"All CPUs together read {_told(whole.metric)}, {_peak(facts, whole.metric)}."
    if record:
        yield f"The nodes read {_range([each.metric for each in record.values()])} each from their own memory."
    peaks = [each for each in facts.values(PeakValues) if not each.plain]
    if peaks and len(peaks[0].mixes) > 1:
        name, best = max(peaks[0].mixes.items(), key=lambda item: item[1].bandwidth_mb_s.value)
        yield f"The best mix is {name.replace('_', ' ')} with {filters.headline(best.bandwidth_mb_s)}."


def _peak(facts: Facts, metric: Metric) -> str:
    peaks = peaks_of(facts.context)
    if isinstance(peaks, UnknownPopulation):
        return f"the theoretical peak is unknown: {peaks.reason}"
    share = filters.percent(metric.value / peaks.machine.peak_mb_s)
    channels = f"{peaks.machine.populated} of {peaks.machine.channels} channels populated"
    return f"{share} of the theoretical peak of {peaks.machine.peak_mb_s / 1000:.0f} GB/s ({channels})"


def caches(facts: Facts) -> Iterator[str]:
    """Yield how far the caches are, and what of them the curve shows."""
    if levels := facts.record("cache_latency"):
        told = (f"{each.quantity.rpartition('.')[2]} answers in {filters.headline(each.metric)}" for each in levels)
        yield f"{'; '.join(told)}."
    for ladder in facts.values(LatencyLadderValues):
        for each in ladder.comparisons if ladder.series == "random" else ():
            if not each.agrees and each.found_bytes is not None and each.reported_bytes:
                found, reported = filters.size(each.found_bytes), filters.size(each.reported_bytes)
                share = filters.percent(each.found_bytes / each.reported_bytes)
                yield f"Latency rises at {found}, {share} of the {reported} reported for {each.name}."
    for matrix in facts.values(C2cMatrixValues):
        known = [each for each in matrix.classes if each.median_ns is not None]
        if known and matrix.method == "transfer":
            parts = (f"{filters.significant(each.median_ns, 3)} ns within {each.label}" for each in known)
            yield f"A modified line of another core takes {', '.join(parts)}."


def cores(facts: Facts) -> Iterator[str]:
    """Yield the clock of the cores."""
    for values in facts.values(CoreFrequencyValues):
        for row in values.rows:
            if row.active == "all":
                low = row.points[0]
                yield (
                    f"{row.name.capitalize()}: median {filters.frequency(row.median_hz)}, slowest CPU {low.cpu} "
                    f"{(1 - low.frequency_hz.value / row.median_hz) * 100:.2f} % below."
                )


SECTIONS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "Jitter": jitter,
    "Latency": latency,
    "Bandwidth": bandwidth,
    "Caches": caches,
    "Cores": cores,
}
"""The sections in their order, and what answers each one's question."""
