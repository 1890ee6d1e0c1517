# SPDX-License-Identifier: Apache-2.0
"""Possible causes of a change: which changed facts can affect which metrics.

A cause is a suspect, not a proof: the fact did change, but its effect on this metric is not measured.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from calibration.judge.verdicts import ContextChange
from calibration.results.facts import fact_value, same_fact
from calibration.results.history import NOT_KNOWN, NightRun

CLOCK: Final = "measured clock"
"""Pseudo-fact for a measured clock that changed."""

_CACHES = r"latency_ladder\.L\d.*|bandwidth_ladder\..*\.L\d\..*|c2c_.*"
_CORE = rf"jitter\..*|core_frequency\..*|{_CACHES}"
_MEMORY = r"(?!(?:latency|bandwidth)_ladder\.(?:.*\.)?L\d)(?!c2c_).*(?:latency_ns|_mb_s)"
_TIMES = r"jitter\..*|.*_ns"
_ALL = r".*"


class Cause(NamedTuple):
    """Facts matching ``facts`` can affect metrics matching ``metrics``, for this ``reason``."""

    facts: str
    metrics: str
    reason: str


CAUSES: Final = (
    Cause("kernel bytes", _ALL, "another sutprobe measured"),
    Cause("processor", _ALL, "it is another machine"),
    Cause("container|limits", _ALL, "which CPUs, memory and time the run could use"),
    Cause("allocation", rf"{_MEMORY}|{_CACHES}", "the cache ways and bandwidth that the measured CPUs may use"),
    Cause("DIMMs|memory", _MEMORY, "their number, ranks and speed set the channels and timing of memory"),
    Cause("CXL memory|memory-side caches|interleave weights", _MEMORY, "which memory is behind a node"),
    Cause("rated by the firmware", _MEMORY, "the firmware set the memory up differently"),
    Cause("(?:isolated|housekeeping) CPUs", r"(?:jitter|wakeup)\..*", "what else the kernel runs on a measured core"),
    Cause("turbo|governor|frequency limits|frequency driver", _CORE, "sets the clock of the core"),
    Cause(CLOCK, _CORE, "the measured clock of the core"),
    Cause("microcode|vulnerabilities", _TIMES, "mitigations lengthen accesses and interruptions"),
    Cause("idle states", _TIMES, "a core that slept wakes late, with colder caches"),
    Cause("nodes|distances between nodes", rf"{_MEMORY}|c2c_.*", "which memory is near, and the channels of a node"),
    Cause("SMT|cores|CPUs", r"jitter\..*|core_frequency\..*|.*_mb_s", "siblings share a core; CPUs set the threads"),
    Cause("(?:transparent )?huge pages", _MEMORY, "how often an address is looked up in page tables"),
    Cause("preemption", r"jitter\..*|wakeup\..*", "when the kernel lets a thread run that woke up"),
    Cause("NUMA balancing", rf"jitter\..*|{_MEMORY}", "unmaps and moves pages while they are used"),
    Cause("clock source", _TIMES, "the kernel changes it if the time stamps are unfit"),
    Cause("idle states", r"core_frequency\..*", "sleeping cores leave the others power for turbo"),
    Cause("network devices|storage controllers|accelerators", r"jitter\..*", "their drivers interrupt cores"),
    Cause("kernel command line", rf"{_CORE}|.*_ns", "isolation, ticks, idle states and mitigations"),
    Cause("microcode", _ALL, "sets prefetchers, power limits and the behaviour of caches"),
    Cause("BIOS", _ALL, "memory timing, power limits, prefetchers, clusters of a socket"),
    Cause("kernel", _ALL, "scheduler, placement of pages, drivers of clock and idle states"),
    Cause("tuned profile", _ALL, "sets clocks, idle states, pages and scheduler"),
    Cause("kernel command line", _ALL, "settings of memory and pages"),
    Cause(
        rf"turbo|governor|frequency limits|frequency driver|{CLOCK}",
        _MEMORY,
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
