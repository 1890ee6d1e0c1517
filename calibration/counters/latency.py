# SPDX-License-Identifier: Apache-2.0
"""Latency from counters of the core, as C. Helm and K. Taura define it.

Alpha is the number of cycles with first-level misses pending, summed over all concurrent misses
(``l1d_pend_miss.pending``), beta the loads that missed the first-level cache, and gamma the fill-buffer hits (line
already requested). The *L1 miss latency* is alpha / beta and the *load miss real latency* alpha / (beta + gamma), in
core cycles.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from calibration.base.model import Model
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag
from calibration.counters.volume import NotCounted, multiplexed_flags, reason_not_counted
from calibration.sutprobe.counters import Counters, Samples

PENDING, MISSES, HITS, CYCLES = "core.l1d_pending", "core.l1_miss", "core.fb_hit", "core.cycles"
"""The roles of alpha, beta, gamma, and the core clock."""

LATENCY_ROLES = (CYCLES, PENDING, MISSES, HITS)


class CoreLatency(Model):
    """One latency in core cycles, and in ns if the core's clock is known; one sample per placement."""

    cycles: Estimate
    ns: Estimate | None


class CounterLatency(Model):
    """Latency of the loads of the counted threads, by both definitions.

    ``None`` if a counter did not run all the time; ``not_counted`` has the reason.
    ``core_hz`` is the core's clock while the threads ran.
    """

    l1_miss: CoreLatency | None
    load_miss_real: CoreLatency | None
    core_hz: Estimate | None
    running_fraction: float | None
    not_counted: tuple[NotCounted, ...]


def counter_latency(counters: Sequence[Counters], prefix: str = "") -> CounterLatency | None:
    """Return the latencies by *counters*, one per placement; ``None`` without counters.

    The roles' names begin with *prefix*: ``probe.`` for the probes beside a load.
    """
    if not counters:
        return None
    reasons = {}
    for role in LATENCY_ROLES:
        of_placements = (reason_not_counted(counter, prefix + role) for counter in counters)
        if reason := next(filter(None, of_placements), None):
            reasons[role] = reason
    pending, misses, hits = (
        None if role in reasons else _counts(counters, prefix + role) for role in LATENCY_ROLES[1:]
    )
    clocks = None if CYCLES in reasons else _clocks(counters, prefix + CYCLES)
    if misses is not None and not all(misses):
        reasons[MISSES], misses = "no load missed the first-level cache", None
    both = None if misses is None or hits is None else [beta + gamma for beta, gamma in zip(misses, hits, strict=True)]
    events = [
        event
        for counter in counters
        for event in counter.events
        if event.name.removeprefix(prefix) in LATENCY_ROLES and event.scaled
    ]
    return CounterLatency(
        l1_miss=_per(pending, misses, clocks),
        load_miss_real=_per(pending, both, clocks),
        core_hz=None if clocks is None else estimate([[clock] for clock in clocks], "Hz"),
        running_fraction=min((event.running_fraction for event in events), default=None),
        not_counted=tuple(NotCounted(role=role, reason=reason) for role, reason in reasons.items()),
    )


def _counts(counters: Sequence[Counters], role: str) -> list[float]:
    return [sum(event.scaled or 0.0 for event in counter.events if event.name == role) for counter in counters]


def _clocks(counters: Sequence[Counters], role: str) -> list[float] | None:
    """Return the core clock in Hz in each placement: cycles over the threads' run time."""
    clocks = []
    for counter in counters:
        events = [event for event in counter.events if event.name == role]
        ran_s = sum(event.wall_s * (event.threads or 1) for event in events)
        cycles = sum(event.scaled or 0.0 for event in events)
        if not ran_s or not cycles:
            return None
        clocks.append(cycles / ran_s)
    return clocks


def _per(
    pending: Sequence[float] | None, loads: Sequence[float] | None, clocks: Sequence[float] | None
) -> CoreLatency | None:
    if pending is None or loads is None:
        return None
    cycles = [alpha / count for alpha, count in zip(pending, loads, strict=True)]
    return in_cycles(cycles, clocks)


def in_cycles(cycles: Sequence[float], clocks: Sequence[float] | None) -> CoreLatency:
    """Return the latency of *cycles*, one per placement; *clocks* are those of the same placements in Hz."""
    return CoreLatency(
        cycles=estimate([[cycle] for cycle in cycles], "cycles"),
        ns=None
        if clocks is None
        else estimate([[count / hz * 1e9] for count, hz in zip(cycles, clocks, strict=True)], "ns"),
    )


class SampledLoads(Model):
    """Latency of the sampled loads that hit the TLB and came from local DRAM: each placement's mean.

    ``latency`` is ``None`` if a placement has no such loads; ``reason`` says why. ``reasons`` count the discarded loads
    by kind.
    """

    method: str
    period: int
    taken: int
    lost: int
    kept: int
    reasons: dict[str, int]
    latency: CoreLatency | None
    reason: str | None


def sampled_loads(samples: Sequence[Samples], clocks: Sequence[float]) -> SampledLoads | None:
    """Return the latency of *samples*, one per placement, with the core *clocks* of the same placements in Hz."""
    if not samples:
        return None
    reasons: dict[str, int] = {}
    for sample in samples:
        for reason, count in sample.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    means = [sample.latency_cycles.mean for sample in samples if sample.latency_cycles is not None]
    complete = len(means) == len(samples)
    refusal = next((sample.refused.reason for sample in samples if sample.refused is not None), None)
    return SampledLoads(
        method=samples[0].method,
        period=samples[0].period,
        taken=sum(sample.taken for sample in samples),
        lost=sum(sample.lost for sample in samples),
        kept=sum(sample.kept for sample in samples),
        reasons=reasons,
        latency=in_cycles(means, clocks) if complete else None,
        reason=None if complete else refusal or "no sampled load hit the TLB and came from local DRAM",
    )


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation of *values*: standard deviation over mean; ``None`` for fewer than two."""
    if len(values) < 2 or (mean := fmean(values)) == 0:
        return None
    return stdev(values) / abs(mean)


def latency_flags(latencies: Sequence[CounterLatency | None]) -> Iterator[Flag]:
    """Yield the flag for counters of *latencies* that ran only part of the time."""
    fractions = [
        latency.running_fraction
        for latency in latencies
        if latency is not None and latency.running_fraction is not None
    ]
    yield from multiplexed_flags(fractions)
