# SPDX-License-Identifier: Apache-2.0
"""Comparison of two machines, runs or pages: a figure is said to differ only where the data supports it.

What is judged is the ratio of the two values with the interval that both intervals allow. The figures *differ* where
all of it lies beyond the tolerance, and are the *same* where all of it lies within; everything else is *undecided*, and
why is said. A figure without an interval, or whose interval covers the truth too seldom, decides nothing. Both
intervals at their ends make the ratio's interval wider than its nominal coverage asks for: of equal machines far fewer
than one figure in a hundred is said to differ.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from calibration.errors import InputError
from calibration.judge.causes import CAUSES, cause_of
from calibration.judge.tolerances import LEAST_COVERAGE, Tolerance, tolerance_of
from calibration.measurements.base import Better
from calibration.model import Model
from calibration.results import imports
from calibration.results.facts import other_facts
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.plain import Figured, figured
from calibration.results.store import read_run

Outcome = Literal["differs", "same", "undecided", "only_first", "only_second"]


class Comparison(Model):
    """One figure of two documents: ``ratio`` is the second's value relative to the first's.

    ``ratio_interval`` is what both intervals allow; ``better`` names the side that is better where they differ.
    """

    name: str
    title: str
    unit: str
    first: Figured | None
    second: Figured | None
    ratio: float | None
    ratio_interval: tuple[float, float] | None
    tolerance: Tolerance
    outcome: Outcome
    better: Literal["first", "second"] | None
    reason: str


class Difference(Model):
    """A fact that two machines have otherwise: ``moves`` of the figures that differ can be moved by it, and why."""

    fact: str
    first: str
    second: str
    moves: int
    reason: str | None


class Compared(Model):
    """Two documents beside each other: what differs in their contexts, and every figure that either has.

    ``facts`` are those of ``context`` one by one, those that can move most of what differs first; empty where a
    document has no facts because it was imported.
    """

    first: str
    second: str
    context: tuple[str, ...]
    facts: tuple[Difference, ...]
    figures: tuple[Comparison, ...]


def compare(first: RunDocument, second: RunDocument) -> Compared:
    """Return *first* and *second* compared, figure by figure, in the order of the first."""
    figures = tuple(compare_figures(figured(first), figured(second)))
    differing = [each.name for each in figures if each.outcome == "differs"]
    return Compared(
        first=name_of(first),
        second=name_of(second),
        context=tuple(context_differences(first, second)),
        facts=tuple(_facts(first, second, differing)),
        figures=figures,
    )


def _facts(first: RunDocument, second: RunDocument, differing: Sequence[str]) -> list[Difference]:
    """Return the facts that both documents know and have otherwise, and how many of *differing* each can move.

    Those that can move most come first, of these the nearest cause.
    """
    found: list[tuple[int, Difference]] = []
    for fact, text in first.facts.items():
        other = second.facts.get(fact)
        if other is None or other == text:
            continue
        causes = [cause for cause in (cause_of(fact, metric) for metric in differing) if cause is not None]
        nearest = min((CAUSES.index(cause) for cause in causes), default=len(CAUSES))
        reason = CAUSES[nearest].reason if causes else None
        found.append((nearest, Difference(fact=fact, first=text, second=other, moves=len(causes), reason=reason)))
    return [each for _, each in sorted(found, key=lambda ranked: (-ranked[1].moves, ranked[0]))]


def name_of(document: RunDocument) -> str:
    """Return how a document is called where it is compared."""
    run = document.run
    return f"{run.testbed} / {run.sut}, {'imported' if document.imported is not None else run.id}"


def context_differences(first: RunDocument, second: RunDocument) -> Iterator[str]:
    """Yield in what the machines of two documents differ, as far as both say it."""
    if first.facts and second.facts:
        yield from other_facts(first.facts, second.facts)
        return
    for what in ("uname", "cmdline"):
        one, other = _said(first, what), _said(second, what)
        if one is None or other is None:
            yield f"{what}: not known of {'either' if one == other else 'the first' if one is None else 'the second'}"
        elif one != other:
            yield f"{what}: {one} and {other}"


def _said(document: RunDocument, what: str) -> str | None:
    if document.imported is not None:
        return document.imported.uname if what == "uname" else document.imported.cmdline
    if document.context is None:
        return None
    parsed = document.context.parsed
    if what == "uname":
        return parsed.capture.uname
    return None if parsed.cmdline is None else parsed.cmdline.text.strip()


def compare_figures(first: Sequence[Figured], second: Sequence[Figured]) -> Iterator[Comparison]:
    """Yield every figure that *first* or *second* has, by its name; of several of a name the first counts."""
    ones = {each.metric.name: each for each in reversed(first)}
    others = {each.metric.name: each for each in reversed(second)}
    names = dict.fromkeys([each.metric.name for each in (*first, *second)])
    for name in names:
        yield _compared(name, ones.get(name), others.get(name))


def _compared(name: str, first: Figured | None, second: Figured | None) -> Comparison:
    some = first or second
    if some is None:
        raise ValueError(f"expected a figure named {name}, found none")
    tolerance = tolerance_of(name)
    outcome: Outcome
    ratio: float | None = None
    bounds: tuple[float, float] | None = None
    better: Literal["first", "second"] | None = None
    if first is None or second is None:
        outcome = "only_second" if first is None else "only_first"
        reason = f"the {'first' if first is None else 'second'} has no such figure"
    else:
        ratio, bounds = _ratio(first, second)
        outcome, reason = _judged(first, second, bounds, tolerance)
        if outcome == "differs" and ratio is not None:
            better = _better(ratio, first.metric.better)
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


def _ratio(first: Figured, second: Figured) -> tuple[float | None, tuple[float, float] | None]:
    one, other = first.metric, second.metric
    if one.unit != other.unit or one.value <= 0:
        return None, None
    bounds = None
    if one.interval is not None and other.interval is not None and one.interval[0] > 0:
        bounds = (other.interval[0] / one.interval[1], other.interval[1] / one.interval[0])
    return other.value / one.value, bounds


def _judged(
    first: Figured, second: Figured, bounds: tuple[float, float] | None, tolerance: Tolerance
) -> tuple[Outcome, str]:
    for side, each in (("first", first), ("second", second)):
        if not each.valid:
            return "undecided", f"the {side} is invalid"
    if first.metric.unit != second.metric.unit or first.metric.unit == "ticks":
        return "undecided", "their units differ" if first.metric.unit != second.metric.unit else "ticks of two clocks"
    for side, each in (("first", first), ("second", second)):
        if each.metric.interval is None:
            return "undecided", f"nobody knows how sure the {side} is: it has no interval"
        if (each.metric.coverage or 0) < LEAST_COVERAGE:
            return "undecided", f"the interval of the {side} covers its true value only with {each.metric.coverage:.0%}"
    if bounds is None:
        return "undecided", "a ratio to nothing does not exist"
    low, high = bounds
    least, most = 1 / (1 + tolerance.fraction), 1 + tolerance.fraction
    if high < least or low > most:
        return "differs", f"all of {_change(bounds)} is beyond the tolerance of {tolerance.fraction:.0%}"
    if least <= low and high <= most:
        return "same", f"all of {_change(bounds)} is within the tolerance of {tolerance.fraction:.0%}"
    if high < 1 or low > 1:
        return "undecided", f"they differ by {_change(bounds)}, not surely by more than {tolerance.fraction:.0%}"
    return "undecided", f"{_change(bounds)} is too wide for a tolerance of {tolerance.fraction:.0%}"


def _change(bounds: tuple[float, float]) -> str:
    return f"{bounds[0] - 1:+.1%} to {bounds[1] - 1:+.1%}"


def _better(ratio: float, better: Better) -> Literal["first", "second"]:
    return "second" if (ratio < 1) == (better == "lower") else "first"


def read_compared(path: Path) -> RunDocument:
    """Return the document that *path* stands for: a run, the newest run of a SUT's directory, or a text to import.

    Raises ``InputError`` where it is none of them.
    """
    if path.is_file() and path.name != RUN:
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
    if path.is_file() or (path / RUN).is_file():
        return read_run(path)
    runs = [read_run(each.parent) for each in path.glob(f"*/{RUN}")]
    if not runs:
        raise InputError(f"expected a run, the directory of a SUT's runs, or a text to import at {path}, found none")
    return max(runs, key=lambda each: (each.imported is None, each.run.started_at, each.run.id))
