# SPDX-License-Identifier: Apache-2.0
"""Possible causes of a change: which changed facts can affect which metrics.

A cause is a suspect, not a proof: the fact did change, but its effect on this metric is not measured.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from calibration.context.facts import FACTS, NOT_KNOWN, Effect, fact_value, same_fact
from calibration.judge.verdicts import ContextChange
from calibration.measurements import row_of
from calibration.results.history import NightRun

INSTRUMENT: Final = "sutprobe build"
"""Fact of sutprobe itself: it cannot affect a lab's tests, and metrics that change with it say nothing of the SUT."""


class Cause(NamedTuple):
    """A fact and one of its effects."""

    fact: str
    effect: Effect


CAUSES: Final = tuple(
    sorted((Cause(fact.name, effect) for fact in FACTS for effect in fact.effects), key=lambda cause: cause.effect.rank)
)
"""In order of precedence: the first that matches is reported first."""


def context_changes(before: NightRun, after: NightRun) -> tuple[ContextChange, ...]:
    """Return the facts that differ between *before* and *after*, in the order of the facts.

    A fact missing on one side is included, with ``None`` on that side.
    """
    if before.facts == after.facts:
        return ()  # as on most nights
    return tuple(
        ContextChange(fact=fact, before=fact_of(before, fact), after=fact_of(after, fact), night=after.night)
        for fact in dict.fromkeys((*after.facts, *before.facts))
        if not same_fact(fact, fact_of(before, fact), fact_of(after, fact))
    )


def differences_from(own: NightRun, others: Sequence[NightRun]) -> Iterator[ContextChange]:
    """Yield the facts in which *own* differs from most of *others*, the SUTs beside it.

    Facts that at least half of the others share with *own*, and facts unknown to *own* or to all others, are excluded.
    ``before`` is the others' most common value (the first of several), ``after`` that of *own*.
    """
    for fact in own.facts:
        text = fact_of(own, fact)
        known = [item for item in (fact_of(other, fact) for other in others) if item is not None]
        values = [fact_value(fact, item) for item in known]
        if text is not None and 2 * values.count(fact_value(fact, text)) < len(known):
            ((usual, _),) = Counter(values).most_common(1)
            yield ContextChange(fact=fact, before=known[values.index(usual)], after=text, night=own.night)


def fact_of(run: NightRun, fact: str) -> str | None:
    """Return the value of *fact* in *run*; ``None`` if unknown."""
    text = run.facts.get(fact)
    return None if text == NOT_KNOWN else text


def likely(changes: Sequence[ContextChange], metric: str) -> tuple[ContextChange, ...]:
    """Return *changes* with those that can affect *metric* first, by precedence.

    Changes from or to an unknown value, and changes without a known effect, come last, in their order.
    """
    return tuple(sorted(changes, key=lambda change: _rank(change, metric)))


def _rank(change: ContextChange, metric: str) -> int:
    found = None if change.before is None or change.after is None else place_of(change.fact, metric)
    return len(CAUSES) if found is None else found


@cache
def place_of(fact: str, metric: str) -> int | None:
    """Return the index of the first cause by which *fact* can affect *metric*; ``None`` if no effect says so."""
    aspects = row_of(metric).depends
    return next(
        (number for number, cause in enumerate(CAUSES) if cause.fact == fact and cause.effect.aspects & aspects),
        None,
    )
