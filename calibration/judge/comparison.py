# SPDX-License-Identifier: Apache-2.0
"""Comparison of two machines, runs or pages, metric by metric.

The ratio of the two values is judged by its interval:

``differs``
    the whole interval is beyond the tolerance.
``indicative``
    the same, but one side has no reliable interval: a single reading of another tool is assumed to be ±5 %, and an
    interval may have less than 90 % coverage.
``same``
    the whole interval is within the tolerance.
``identical``
    both sides have the same digits.
``undecided``
    anything else, with the reason.

If both runs measured the metric in rounds, the interval reaches to each side as far as the root of the sum of squares
of the two half-widths that face each other, on a logarithmic scale (Zou and Donner, *Statistics in Medicine* 27, 2008).
For equal half-widths that is the half-width of a run's prediction for the next one. False alarms, the share of metrics
of an unchanged machine whose interval excludes 1: 0.2 % with six independent rounds in each run, 0.01 to 0.3 % with
eight to twelve; 1.6 and 3.6 % with six and nine where runs differ by twice what independent rounds explain. The
tolerance leaves fewer that differ.

Otherwise (imports, values measured once) the ends of both intervals are combined. That is wider, because intervals of
one moment leave out what varies over minutes.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, hypot, log
from pathlib import Path
from typing import Final, Literal, get_args

from calibration.base.model import Model
from calibration.base.statistics import MIN_COVERAGE
from calibration.context.facts import NOT_KNOWN, other_facts, same_fact
from calibration.judge.causes import CAUSES, place_of
from calibration.judge.words import share
from calibration.measurements import row_of
from calibration.measurements.metric_rows import Tolerance
from calibration.results import imports
from calibration.results.layout import RUN
from calibration.results.metrics_of_record import quantity_of
from calibration.results.model import RunDocument
from calibration.results.plain import DocumentMetric, metrics_of
from calibration.results.store import read_run

Outcome = Literal["differs", "indicative", "undecided", "same", "identical", "only_first", "only_second"]
"""In display order."""

OUTCOMES: Final[Mapping[Outcome, str]] = {
    "differs": "differ",
    "indicative": "indicative: an interval is missing (±5 % assumed) or uncertain",
    "undecided": "unknown",
    "same": "the same within the tolerance",
    "identical": "identical",
    "only_first": "only in the first",
    "only_second": "only in the second",
}
"""Headings of the outcomes."""

READING_HALF_WIDTH: Final = 0.05
"""Relative half-width assumed for a single reading of another tool, which states none."""

SUTPROBE: Final = "sutprobe"
"""Name of the instrument that states an interval whenever it has one."""


class Comparison(Model):
    """One metric of two documents: ``ratio`` is the second value divided by the first.

    ``ratio_interval`` comes from both intervals; ``better`` names the better side if they differ, even if only
    indicatively. ``quantity`` is that which the metric is of record of in either document.
    """

    name: str
    title: str
    unit: str
    first: DocumentMetric | None
    second: DocumentMetric | None
    ratio: float | None
    ratio_interval: tuple[float, float] | None
    tolerance: Tolerance
    outcome: Outcome
    better: Literal["first", "second"] | None
    reason: str
    quantity: str | None = None


class Difference(Model):
    """A fact that differs between two machines, how many of the differing metrics it can explain, and why."""

    fact: str
    first: str
    second: str
    moves: int
    reason: str | None


class ComparedRuns(Model):
    """Two documents side by side: differences of their contexts, and every metric of either.

    ``facts`` are the differences of ``context`` one by one, those that explain most first; empty if a document is
    imported and has no facts. ``figures`` are sorted by outcome, then by ratio, largest first.
    """

    first: str
    second: str
    context: tuple[str, ...]
    facts: tuple[Difference, ...]
    figures: tuple[Comparison, ...]

    @property
    def summary(self) -> str:
        """How many metrics differ, and which differs most, in one or two sentences."""
        of = {outcome: [item for item in self.figures if item.outcome == outcome] for outcome in get_args(Outcome)}
        if self.figures and len(of["identical"]) == len(self.figures):
            return f"Identical: all {len(self.figures)} metrics."
        parts = [
            f"{len(of[outcome])} of {len(self.figures)} metrics {words}{_largest(of[outcome])}."
            for outcome, words in (("differs", "differ"), ("indicative", "differ indicatively"))
            if of[outcome]
        ]
        return " ".join(parts) or f"0 of {len(self.figures)} metrics differ."


def _largest(by_ratio: Sequence[Comparison]) -> str:
    if not by_ratio or by_ratio[0].ratio is None:
        return ""
    return f"; largest: {by_ratio[0].title} {times(by_ratio[0].ratio)}"


def compare(first: RunDocument, second: RunDocument, *, public: bool = False) -> ComparedRuns:
    """Return *first* and *second* compared, metric by metric; *public* omits what pages may not show."""
    quantities = {item.metric.name: item.quantity for document in (second, first) for item in document.record}
    found = compare_metrics(*(metrics_of(document, public=public) for document in (first, second)))
    of_record = [item.model_copy(update={"quantity": quantities.get(item.name)}) for item in found]
    if not quantities:
        of_record = [item.model_copy(update={"quantity": quantity_of(item.name)}) for item in of_record]
    comparisons = tuple(sorted(of_record, key=_rank))
    differing = [item.name for item in comparisons if item.outcome in {"differs", "indicative"}]
    return ComparedRuns(
        first=name_of(first),
        second=name_of(second),
        context=tuple(context_differences(first, second)),
        facts=tuple(_facts(first, second, differing)),
        figures=comparisons,
    )


def _rank(comparison: Comparison) -> tuple[int, float]:
    """Return a sort key: outcome, then the larger ratio first, whichever side is larger."""
    size = abs(log(comparison.ratio)) if comparison.ratio is not None and comparison.ratio > 0 else 0.0
    return get_args(Outcome).index(comparison.outcome), -size


def _facts(first: RunDocument, second: RunDocument, differing: Sequence[str]) -> list[Difference]:
    """Return the facts that differ, and how many of *differing* each can explain.

    Facts that explain most come first, then by precedence of the cause.
    """
    found: list[tuple[int, Difference]] = []
    for fact, text in first.facts.items():
        other = second.facts.get(fact)
        if other is None or NOT_KNOWN in {text, other} or same_fact(fact, text, other):
            continue
        places = [place for place in (place_of(fact, metric) for metric in differing) if place is not None]
        nearest = min(places, default=len(CAUSES))
        reason = CAUSES[nearest].effect.reason if places else None
        found.append((nearest, Difference(fact=fact, first=text, second=other, moves=len(places), reason=reason)))
    return [item for _, item in sorted(found, key=lambda ranked: (-ranked[1].moves, ranked[0]))]


def name_of(document: RunDocument) -> str:
    """Return the name of a document in a comparison."""
    run = document.run
    return f"{run.testbed} / {run.sut}, {'imported' if document.imported is not None else run.id}"


def context_differences(first: RunDocument, second: RunDocument) -> Iterator[str]:
    """Yield the differences between the machines of two documents, if both state the fact."""
    if first.facts and second.facts:
        known = [{fact: text for fact, text in run.facts.items() if text != NOT_KNOWN} for run in (first, second)]
        yield from other_facts(*known)
        return
    for what in ("uname", "cmdline"):
        one, other = _stated(first, what), _stated(second, what)
        if one is None or other is None:
            yield f"{what}: unknown for {'both' if one == other else 'the first' if one is None else 'the second'}"
        elif one != other:
            yield f"{what}: {one} and {other}"


def _stated(document: RunDocument, what: str) -> str | None:
    if document.imported is not None:
        return document.imported.uname if what == "uname" else document.imported.cmdline
    if document.context is None:
        return None
    parsed = document.context.parsed
    if what == "uname":
        return parsed.capture.uname
    return None if parsed.cmdline is None else parsed.cmdline.text.strip()


def compare_metrics(first: Sequence[DocumentMetric], second: Sequence[DocumentMetric]) -> Iterator[Comparison]:
    """Yield every metric of *first* or *second* by name; the first of duplicate names counts."""
    ones = {item.metric.name: item for item in reversed(first)}
    others = {item.metric.name: item for item in reversed(second)}
    names = dict.fromkeys([item.metric.name for item in (*first, *second)])
    for name in names:
        yield _compared(name, ones.get(name), others.get(name))


def _compared(name: str, first: DocumentMetric | None, second: DocumentMetric | None) -> Comparison:
    some = first or second
    if some is None:
        raise ValueError(f"no metric named {name}")
    tolerance = row_of(name).tolerance
    outcome: Outcome
    ratio: float | None = None
    bounds: tuple[float, float] | None = None
    better: Literal["first", "second"] | None = None
    if first is None or second is None:
        outcome = "only_second" if first is None else "only_first"
        reason = f"not measured in the {'first' if first is None else 'second'}"
    else:
        ratio, bounds = _ratio(first, second)
        outcome, reason = _judged(first, second, bounds, tolerance)
        if outcome in {"differs", "indicative"} and ratio is not None:
            better = "second" if (ratio < 1) == (first.metric.better == "lower") else "first"
    return Comparison(
        name=name,
        title=some.metric.title,
        unit=some.metric.unit,
        first=first,
        second=second,
        ratio=ratio,
        ratio_interval=bounds,
        tolerance=tolerance,
        outcome=outcome,
        better=better,
        reason=reason,
    )


def _ratio(first: DocumentMetric, second: DocumentMetric) -> tuple[float | None, tuple[float, float] | None]:
    one, other = first.metric, second.metric
    if one.unit != other.unit or one.value <= 0:
        return None, None
    ratio = other.value / one.value
    (low, high), (other_low, other_high) = _interval(first) or (0.0, 0.0), _interval(second) or (0.0, 0.0)
    if low <= 0 or other_high <= 0:
        return ratio, None
    if one.prediction is None or other.prediction is None or other_low <= 0:
        return ratio, (other_low / high, other_high / low)
    down = hypot(log(high / one.value), log(other.value / other_low))
    up = hypot(log(one.value / low), log(other_high / other.value))
    return ratio, (ratio * exp(-down), ratio * exp(up))


def _interval(measured: DocumentMetric) -> tuple[float, float] | None:
    """Return the interval of *measured*, or the one assumed for a tool that states none."""
    metric = measured.metric
    if metric.interval is not None or measured.instrument.startswith(SUTPROBE):
        return metric.interval
    return metric.value * (1 - READING_HALF_WIDTH), metric.value * (1 + READING_HALF_WIDTH)


def _judged(
    first: DocumentMetric, second: DocumentMetric, bounds: tuple[float, float] | None, tolerance: Tolerance
) -> tuple[Outcome, str]:
    one, other = first.metric, second.metric
    if (one.value, one.unit, one.interval) == (other.value, other.unit, other.interval):
        return "identical", "the same digits"
    for side, measured in (("first", first), ("second", second)):
        if not measured.valid:
            return "undecided", f"the {side} is invalid"
    if one.unit != other.unit or one.unit == "ticks":
        return "undecided", "ticks of two clocks" if one.unit == other.unit else "their units differ"
    doubt = None
    for side, measured in (("first", first), ("second", second)):
        if _interval(measured) is None:
            return "undecided", f"the {side} has no stated uncertainty"
        if measured.metric.interval is None:
            doubt = f"the {side} has no stated uncertainty, {share(READING_HALF_WIDTH)} is assumed"
        elif (coverage := measured.metric.coverage or 0.0) < MIN_COVERAGE:
            doubt = f"the interval of the {side} has only {coverage * 100:.0f} % coverage"
    if bounds is None:
        return "undecided", "0 has no ratio"
    low, high = bounds
    least, most = 1 / (1 + tolerance.fraction), 1 + tolerance.fraction
    within = f"the tolerance of {share(tolerance.fraction)}"
    if high < least or low > most:
        return "indicative" if doubt else "differs", doubt or f"{_change(bounds)} is beyond {within}"
    if doubt:
        return "undecided", doubt
    if least <= low and high <= most:
        return "same", f"{_change(bounds)} is within {within}"
    return "undecided", f"{_change(bounds)} is neither within nor beyond {within}"


def _change(bounds: tuple[float, float]) -> str:
    return f"{100 * (bounds[0] - 1):+.1f} to {100 * (bounds[1] - 1):+.1f} %"


def times(ratio: float) -> str:
    """Return *ratio* as text: ``1.42x``."""
    return f"{ratio:.3g}x" if ratio < 0.1 or ratio >= 10 else f"{ratio:.2f}x"


def read_compared(path: Path) -> RunDocument:
    """Return the document at *path*: a run, or a text to import.

    Raises ``InputError`` if it is neither.
    """
    if path.is_dir() or path.name == RUN:
        return read_run(path)
    raw, published = imports.read_file(path)
    return imports.document_of(
        published,
        raw,
        source=path.name,
        testbed=published.testbed or "unknown",
        sut=published.sut or "unknown",
        measured_on=None,
        now=imports.EPOCH,
    )
