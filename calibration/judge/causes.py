# SPDX-License-Identifier: Apache-2.0
"""Possible causes of a change: which changed facts can affect which metrics.

A cause is a suspect, not a proof: the fact did change, but its effect on this metric is not measured.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple, cast, get_args

from calibration.facts import NOT_KNOWN, fact_value, same_fact
from calibration.judge.verdicts import ContextChange
from calibration.measurements import row_of
from calibration.measurements.metric_rows import Aspect
from calibration.results.history import NightRun

CLOCK: Final = "measured clock"
"""Pseudo-fact for a measured clock that changed."""

_ALL = frozenset(get_args(Aspect))


class Cause(NamedTuple):
    """Facts matching ``facts`` can affect metrics that depend on one of ``aspects``, for this ``reason``."""

    facts: str
    aspects: frozenset[Aspect]
    reason: str


def _cause(facts: str, aspects: str, reason: str) -> Cause:
    return Cause(facts, frozenset(cast("list[Aspect]", aspects.split())), reason)


CAUSES: Final = (
    Cause("kernel bytes", _ALL, "another sutprobe measured"),
    Cause("processor", _ALL, "it is another machine"),
    Cause("container|limits", _ALL, "which CPUs, memory and time the run could use"),
    _cause("allocation", "memory caches", "the cache ways and bandwidth that the measured CPUs may use"),
    _cause("DIMMs|memory", "memory", "their number, ranks and speed set the channels and timing of memory"),
    _cause("CXL memory|memory-side caches|interleave weights", "memory", "which memory is behind a node"),
    _cause("rated by the firmware", "memory", "the firmware set the memory up differently"),
    _cause("(?:isolated|housekeeping) CPUs", "interruptions", "what else the kernel runs on a measured core"),
    _cause("turbo|governor|frequency limits|frequency driver", "clock", "sets the clock of the core"),
    _cause(CLOCK, "clock", "the measured clock of the core"),
    _cause("microcode|vulnerabilities", "time", "mitigations lengthen accesses and interruptions"),
    _cause("idle states", "time", "a core that slept wakes late, with colder caches"),
    _cause("nodes|distances between nodes", "memory interconnect", "which memory is near, and the channels of a node"),
    _cause("SMT|cores|CPUs", "threads", "siblings share a core; CPUs set the threads"),
    _cause("(?:transparent )?huge pages", "memory", "how often an address is looked up in page tables"),
    _cause("preemption", "interruptions", "when the kernel lets a thread run that woke up"),
    _cause("NUMA balancing", "interruptions memory", "unmaps and moves pages while they are used"),
    _cause("clock source", "time", "the kernel changes it if the time stamps are unfit"),
    _cause("idle states", "turbo", "sleeping cores leave the others power for turbo"),
    _cause("network devices|storage controllers|accelerators", "interruptions", "their drivers interrupt cores"),
    _cause("kernel command line", "clock time", "isolation, ticks, idle states and mitigations"),
    Cause("microcode", _ALL, "sets prefetchers, power limits and the behaviour of caches"),
    Cause("BIOS", _ALL, "memory timing, power limits, prefetchers, clusters of a socket"),
    Cause("kernel", _ALL, "scheduler, placement of pages, drivers of clock and idle states"),
    Cause("tuned profile", _ALL, "sets clocks, idle states, pages and scheduler"),
    Cause("kernel command line", _ALL, "settings of memory and pages"),
    _cause(
        rf"turbo|governor|frequency limits|frequency driver|{CLOCK}",
        "memory",
        "every access to memory passes through clocked caches",
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


def cause_of(fact: str, metric: str) -> Cause | None:
    """Return why *fact* can affect *metric*; ``None`` if no rule says so."""
    found = _place(fact, metric)
    return None if found is None else CAUSES[found]


def _rank(change: ContextChange, metric: str) -> int:
    found = None if change.before is None or change.after is None else _place(change.fact, metric)
    return len(CAUSES) if found is None else found


@cache
def _place(fact: str, metric: str) -> int | None:
    """Return the index of the first row for *fact* and *metric*; cached, because nights repeat few pairs."""
    aspects = row_of(metric).depends
    return next(
        (number for number, cause in enumerate(CAUSES) if cause.aspects & aspects and re.fullmatch(cause.facts, fact)),
        None,
    )
