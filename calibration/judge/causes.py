# SPDX-License-Identifier: Apache-2.0
"""What in the context can have moved a figure: facts that changed, and which figures each of them can move.

A cause that is shown is a suspect, not a proof: that the fact differs is measured, that it moved this figure is not.
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
"""The name under which a clock that was measured to be another stands among the facts."""

_CACHES = r"latency_ladder\.L\d.*|bandwidth_ladder\..*\.L\d\..*|c2c_.*"
_CORE = rf"jitter\..*|core_frequency\..*|{_CACHES}"
_MEMORY = r"(?!(?:latency|bandwidth)_ladder\.(?:.*\.)?L\d)(?!c2c_).*(?:latency_ns|_mb_s)"
_TIMES = r"jitter\..*|.*_ns"
_ALL = r".*"


class Cause(Model):
    """Facts whose names match ``facts`` can move the metrics whose names match ``metrics``, and why."""

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
"""The nearest cause first: of several facts that changed, the one whose row comes first is told first."""


def context_changes(before: NightRun, after: NightRun) -> tuple[ContextChange, ...]:
    """Return the facts that *after* has otherwise than *before*, in the order of the facts.

    A fact that one of them does not know is among them, with ``None`` on that side.
    """
    return tuple(
        ContextChange(fact=fact, before=fact_of(before, fact), after=fact_of(after, fact), night=after.night)
        for fact in dict.fromkeys((*after.facts, *before.facts))
        if fact_of(before, fact) != fact_of(after, fact)
    )


def differences_from(own: NightRun, others: Sequence[NightRun]) -> tuple[ContextChange, ...]:
    """Return the facts in which *own* differs from what most of *others*, SUTs beside it, have.

    A fact that at least half of the others share with *own* is no difference, nor is one that *own* or all others do
    not know. ``before`` is what most of the others have (of several equally common the first), ``after`` what *own*
    has.
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
    """Return what *run* says of *fact*; ``None`` if it is not known."""
    text = run.facts.get(fact)
    return None if text == NOT_KNOWN else text


def likely(changes: Sequence[ContextChange], metric: str) -> tuple[ContextChange, ...]:
    """Return *changes*, those that can move *metric* first, the nearest cause before the others.

    A change from or to what is not known, and one that nothing is known of, come last, in their order.
    """
    return tuple(sorted(changes, key=lambda change: _rank(change, metric)))


def cause_of(fact: str, metric: str) -> Cause | None:
    """Return why *fact* can move *metric*; ``None`` where nothing says that it can."""
    found = _cause(fact, metric)
    return None if found is None else CAUSES[found]


def _rank(change: ContextChange, metric: str) -> int:
    found = None if change.before is None or change.after is None else _cause(change.fact, metric)
    return len(CAUSES) if found is None else found


@cache
def _cause(fact: str, metric: str) -> int | None:
    """Return the number of the first row for *fact* and *metric*; remembered, as nights ask for few pairs often."""
    return next(
        (
            number
            for number, cause in enumerate(CAUSES)
            if re.fullmatch(cause.facts, fact) and re.fullmatch(cause.metrics, metric)
        ),
        None,
    )
