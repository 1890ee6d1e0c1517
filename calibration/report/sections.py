# SPDX-License-Identifier: Apache-2.0
"""Measured sections of a page: each answers its question in a sentence, with a table."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.trust import Trust
from calibration.context.population import UnknownPopulation
from calibration.measurements import registry, row_of
from calibration.measurements.base import Metric
from calibration.measurements.metric_rows import Quantity
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.report.environment import kind_modules
from calibration.report.headlines import is_local, peaks_of, repeats, row_key
from calibration.report.story import trust_word
from calibration.results.model import Measurement, RecordMetric, RunDocument

MAX_ALIKE: Final = 4
"""Of more metrics than this that differ only in their place, a table shows the lowest and the highest."""

MAX_ROWS: Final = 4
"""Rows of a kind in its section's table, and of those that its file calls ``brief``; the rest is folded."""


class SectionRow(NamedTuple):
    """One table row: the metric, its title, value, half-width in per cent, trust and verdict.

    ``repeated``: another metric is the one of record of its quantity.
    """

    name: str
    title: str
    value: str
    plus_minus: str
    trust: Trust
    word: str
    outside: bool
    repeated: bool


def rows(document: RunDocument, kind: str) -> list[SectionRow]:
    """Return the rows of *kind*: every metric, or of many that differ only in their place the extremes.

    A maximum that equals the peak is omitted: no setting of the search exceeded it.
    """
    repeated = {item.value.name for found in repeats(document).values() for item in found}
    failed = {verdict.name for verdict in document.verdicts if verdict.outcome == "fail"}
    peaks = {
        (f"max_bandwidth.{name}.bandwidth_mb_s", mix.bandwidth_mb_s.value)
        for measurement in document.measurements
        if isinstance(measurement.values, PeakValues)
        for name, mix in measurement.values.mixes.items()
    }
    found = [
        (measurement, metric)
        for measurement in document.measurements
        for metric in (measurement.metrics() if measurement.kind == kind else ())
        if (metric.name, metric.value) not in peaks
    ]
    groups = grouped((row_of(pair[1].name).quantity(pair[1].name), pair) for pair in found)
    return [row for alike in groups.values() for row in _rows(alike, failed, repeated)]


def _rows(
    alike: Sequence[tuple[Measurement, Metric]], failed: Container[str], repeated: Container[str]
) -> Iterator[SectionRow]:
    """Yield the rows of metrics that differ only in their place: one per metric, or the lowest and the highest."""
    shown = [(*pair, "") for pair in alike]
    if len(alike) > MAX_ALIKE:
        ordered = sorted(alike, key=lambda pair: pair[1].value)
        (_, low), (_, high) = ordered[0], ordered[-1]
        shown = [(*ordered[0], f" (lowest of {len(alike)})"), (*ordered[-1], f" (highest of {len(alike)})")]
        if (units.headline(low), units.plus_minus(low)) == (units.headline(high), units.plus_minus(high)):
            shown = [(*ordered[0], f" (the same on all {len(alike)})")]
    for measurement, metric, which in shown:
        trust, reason = measurement.trust_in(metric)
        yield SectionRow(
            name=metric.name,
            title=f"{metric.title}{which}{', cross-check' if metric.name in repeated else ''}",
            value=units.headline(metric),
            plus_minus=units.plus_minus(metric) or "",
            trust=trust,
            word=trust_word(trust, reason),
            outside=metric.name in failed,
            repeated=metric.name in repeated,
        )


# Sentences


class Facts:
    """A run, as the sentences use it."""

    def __init__(self, document: RunDocument) -> None:
        self.measurements = document.measurements
        self.figures = document.record
        self.context = None if document.context is None else document.context.parsed

    def record(self, family: Quantity) -> list[RecordMetric]:
        """Return the valid metrics of record of *family*."""
        return [figure for figure in self.figures if figure.family == family and figure.trust != "invalid"]

    def valid(self, kind: str) -> list[Any]:
        """Return the values of the valid measurements of *kind*."""
        return [
            measurement.values
            for measurement in self.measurements
            if measurement.validity.valid and measurement.kind == kind
        ]


def _with_half_width(metric: Metric) -> str:
    return " ".join(filter(None, (units.headline(metric), units.plus_minus(metric))))


BEYOND: Final = {"idle_latency_remote": "remote", "idle_latency_memory_only": "memory-only nodes"}
"""What the sentence on latencies calls the rows of other nodes."""


def latency(facts: Facts) -> Iterator[str]:
    """Yield the memory latency, idle and under load."""
    idle = facts.record("idle_latency")
    local = [item for item in idle if is_local(item.quantity)]
    if local:
        others = grouped((row_key(figure.quantity, facts.context), figure.metric) for figure in idle)
        beyond = "".join(f", {words} {_range(others[row])}" for row, words in BEYOND.items() if row in others)
        yield f"Local memory latency {_range([figure.metric for figure in local])}{beyond}."
    if loaded := facts.record("loaded_latency"):
        slowest = max(loaded, key=lambda figure: figure.metric.value)
        where = "90 % of full load" if "pct" in slowest.metric.name else "full load"
        times = ""
        if local:
            ratio = units.significant(slowest.metric.value / local[0].metric.value, 2)
            times = f", {ratio} times idle"
        yield f"Loaded latency at {where} {_with_half_width(slowest.metric)}{times}."


def _range(metrics: Sequence[Metric]) -> str:
    if len(metrics) == 1:
        return _with_half_width(metrics[0])
    return units.headline_range(metrics)


def bandwidth(facts: Facts) -> Iterator[str]:
    """Yield the memory bandwidth."""
    record = {item.quantity: item for item in facts.record("read_bandwidth")}
    if whole := record.pop("read_bandwidth.machine", None):
        yield f"Read bandwidth of all CPUs {_with_half_width(whole.metric)}, {_peak(facts, whole.metric)}."
    if record:
        yield f"Read bandwidth of each node from its own memory {_range([item.metric for item in record.values()])}."


def _peak(facts: Facts, metric: Metric) -> str:
    peaks = peaks_of(facts.context)
    if isinstance(peaks, UnknownPopulation):
        return f"the theoretical peak is unknown: {peaks.reason}"
    share = units.percent(metric.value / peaks.machine.peak_mb_s)
    channels = f"{peaks.machine.populated} of {peaks.machine.channels} channels populated"
    return f"{share} of the theoretical peak of {peaks.machine.peak_mb_s / 1000:.0f} GB/s ({channels})"


def caches(facts: Facts) -> Iterator[str]:
    """Yield the cache latencies, and the sizes seen on the curve."""
    if levels := facts.record("cache_latency"):
        found = (f"{item.quantity.rpartition('.')[2]} {units.headline(item.metric)}" for item in levels)
        yield f"Latency: {', '.join(found)}."


def nothing(facts: Facts) -> Iterator[str]:
    """Yield nothing: the kinds of this section need no sentence."""
    del facts
    yield from ()


SECTIONS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "Jitter": nothing,
    "Latency": latency,
    "Bandwidth": bandwidth,
    "Memory": nothing,
    "Caches": caches,
    "Cores": nothing,
}
"""Sections in order, with the function that answers each section's question."""


def page_order() -> list[str]:
    """Return the kinds in page order."""
    titles = list(SECTIONS)
    modules = kind_modules()
    return sorted(modules, key=lambda kind: titles.index(modules[kind].section))


def sentences(title: str, facts: Facts, kinds: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of the section *title*, which contains *kinds*."""
    yield from SECTIONS[title](facts)
    for kind in kinds:
        yield from registry()[kind].summary(facts.valid(kind))
