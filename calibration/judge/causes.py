# SPDX-License-Identifier: Apache-2.0
"""Possible causes of a change: which changed facts can affect which metrics.

A cause is a suspect, not a proof: the fact did change, but its effect on this metric is not measured.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from calibration.judge.verdicts import ContextChange
from calibration.model import Model
from calibration.results.history import NOT_KNOWN, NightRun

CLOCK: Final = "measured clock"
"""Pseudo-fact for a measured clock that changed."""

_CACHES = r"latency_ladder\.L\d.*|bandwidth_ladder\..*\.L\d\..*|c2c_.*"
_CORE = rf"jitter\..*|core_frequency\..*|{_CACHES}"
_MEMORY = r"(?!(?:latency|bandwidth)_ladder\.(?:.*\.)?L\d)(?!c2c_).*(?:latency_ns|_mb_s)"
_TIMES = r"jitter\..*|.*_ns"
_ALL = r".*"


class Cause(Model):
    """Facts matching ``facts`` can affect metrics matching ``metrics``; ``reason`` says why."""

    facts: str
    metrics: str
    reason: str


CAUSES: Final = (
    Cause(facts="kernel bytes", metrics=_ALL, reason="it is the instrument that is another, not the SUT"),
    Cause(facts="processor", metrics=_ALL, reason="it is another machine"),
    Cause(
        facts="DIMMs|memory",
        metrics=_MEMORY,
        reason="their number, ranks and speed are the memory's channels and timing",
    ),
    Cause(facts="isolated CPUs", metrics=r"jitter\..*", reason="what else the kernel runs on a measured core"),
    Cause(
        facts="turbo|governor|frequency limits|frequency driver",
        metrics=_CORE,
        reason="sets the clock by which a core does everything",
    ),
    Cause(facts=CLOCK, metrics=_CORE, reason="it was measured, and a core does everything by its clock"),
    Cause(facts="microcode|vulnerabilities", metrics=_TIMES, reason="mitigations lengthen accesses and interruptions"),
    Cause(facts="idle states", metrics=_TIMES, reason="a core that slept wakes late, and to colder caches"),
    Cause(
        facts="nodes|distances between nodes",
        metrics=rf"{_MEMORY}|c2c_.*",
        reason="which memory is near, and how many channels a node has",
    ),
    Cause(
        facts="SMT|cores|CPUs",
        metrics=r"jitter\..*|core_frequency\..*|.*_mb_s",
        reason="siblings share a core, and traffic comes from as many threads as there are CPUs",
    ),
    Cause(
        facts="(?:transparent )?huge pages", metrics=_MEMORY, reason="how often an address is looked up in page tables"
    ),
    Cause(
        facts="NUMA balancing", metrics=rf"jitter\..*|{_MEMORY}", reason="it unmaps and moves pages while they are used"
    ),
    Cause(facts="clock source", metrics=_TIMES, reason="another is used where the kernel found the time stamps unfit"),
    Cause(
        facts="idle states", metrics=r"core_frequency\..*", reason="cores that sleep leave the others power for turbo"
    ),
    Cause(
        facts="kernel command line", metrics=rf"{_CORE}|.*_ns", reason="isolation, ticks, idle states and mitigations"
    ),
    Cause(facts="microcode", metrics=_ALL, reason="it sets prefetchers, power limits and how the caches behave"),
    Cause(facts="BIOS", metrics=_ALL, reason="memory timing, power limits, prefetchers, clusters of a socket"),
    Cause(facts="kernel", metrics=_ALL, reason="scheduler, placement of pages, drivers of clock and idle states"),
    Cause(facts="kernel command line", metrics=_ALL, reason="settings of memory and pages may stand there"),
    Cause(
        facts=rf"turbo|governor|frequency limits|frequency driver|{CLOCK}",
        metrics=_MEMORY,
        reason="part of every access to memory passes through clocked caches",
    ),
)
"""In order of precedence: the first matching row is reported first."""


def context_changes(before: NightRun, after: NightRun) -> tuple[ContextChange, ...]:
    """Return the facts that differ between *before* and *after*, in the order of the facts.

    A fact missing on one side is included, with ``None`` on that side.
    """
    return tuple(
        ContextChange(fact=fact, before=fact_of(before, fact), after=fact_of(after, fact), night=after.night)
        for fact in dict.fromkeys((*after.facts, *before.facts))
        if fact_of(before, fact) != fact_of(after, fact)
    )


def differences_from(own: NightRun, others: Sequence[NightRun]) -> tuple[ContextChange, ...]:
    """Return the facts in which *own* differs from most of *others*, the SUTs beside it.

    Facts that at least half of the others share with *own*, and facts unknown to *own* or to all others, are excluded.
    ``before`` is the others' most common value (the first of several), ``after`` that of *own*.
    """
    return tuple(_differences(own, others))


def _differences(own: NightRun, others: Sequence[NightRun]) -> Iterator[ContextChange]:
    for fact in own.facts:
        text = fact_of(own, fact)
        known = [item for item in (fact_of(other, fact) for other in others) if item is not None]
        if text is not None and 2 * known.count(text) < len(known):
            ((usual, _),) = Counter(known).most_common(1)
            yield ContextChange(fact=fact, before=usual, after=text, night=own.night)


def fact_of(run: NightRun, fact: str) -> str | None:
    """Return the value of *fact* in *run*; ``None`` if unknown."""
    text = run.facts.get(fact)
    return None if text == NOT_KNOWN else text


def likely(changes: Sequence[ContextChange], metric: str) -> tuple[ContextChange, ...]:
    """Return *changes* with those that can affect *metric* first, by precedence.

    Changes from or to an unknown value, and changes without a known effect, come last, in their order.
    """
    return tuple(sorted(changes, key=lambda change: _rank(change, metric)))


def cause_of(fact: str, metric: str) -> Cause | None:
    """Return why *fact* can affect *metric*; ``None`` if no rule says so."""
    found = _cause(fact, metric)
    return None if found is None else CAUSES[found]


def _rank(change: ContextChange, metric: str) -> int:
    found = None if change.before is None or change.after is None else _cause(change.fact, metric)
    return len(CAUSES) if found is None else found


@cache
def _cause(fact: str, metric: str) -> int | None:
    """Return the index of the first row for *fact* and *metric*; cached, because nights repeat few pairs."""
    return next(
        (
            number
            for number, cause in enumerate(CAUSES)
            if re.fullmatch(cause.facts, fact) and re.fullmatch(cause.metrics, metric)
        ),
        None,
    )
