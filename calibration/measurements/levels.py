# SPDX-License-Identifier: Apache-2.0
"""Levels of the memory hierarchy in a curve of latency against size, and their comparison with the reported caches."""

from collections.abc import Mapping, Sequence
from math import log2
from statistics import median

from calibration.base.cpulists import format_cpulist
from calibration.base.model import Model
from calibration.base.statistics import Estimate, estimate
from calibration.context.model import Cache, Context, Virtualization

UNNAMED = "plateau-"
"""Prefix of the name of a plateau that no reported cache explains; its size follows."""

PLATEAU_SPAN = 1.25
"""Largest latency of a plateau relative to its smallest: a level's own drift (pages, associativity, sharing of a cache)
stays within it, a climb into the next level exceeds it within a third of an octave."""

PLATEAU_OCTAVES = 1.2
"""Shortest plateau, in octaves of size: shorter flat stretches occur within a climb."""

CACHE_EXCESS = 1.3
"""A plateau that ends below this multiple of a cache's reported size is that cache's. The curve may leave a cache long
before its reported size (one CPU gets a share of it), hardly ever after it."""

MEMORY_CLIMB = 1.5
"""Memory is at least this many times slower than the last cache; less is a disturbance within a level, as a plateau
alone spans 1.25."""

AGREEMENT = 1.3
"""A curve that leaves a cache within this factor of its reported size agrees with it: sizes are up to a third of an
octave apart, and other users share the last part of a cache."""


class Level(Model):
    """A level of the memory hierarchy found in the curve.

    ``size_bytes`` is the largest size on its plateau, ``None`` for memory; ``reported_bytes`` is the kernel's value.
    ``core_hz`` is the core clock at its points.
    """

    name: str
    size_bytes: int | None
    reported_bytes: int | None
    latency_ns: Estimate
    core_hz: float | None = None


class Comparison(Model):
    """A cache as reported by the kernel and as found in the curve, and the explanation of a difference."""

    name: str
    reported_bytes: int
    found_bytes: int | None
    agrees: bool
    explanation: str


def recognise_levels(curve: Sequence[tuple[int, Estimate]], reported_bytes: Mapping[int, int]) -> tuple[Level, ...]:
    """Return the levels found in *curve* (size in bytes, latency), smallest first.

    A plateau is a run of sizes with nearly constant latency. Plateaus are matched with the reported caches by where
    they end; the last is memory if it reaches the largest size. A cache that is not visible in the curve is omitted; a
    plateau without a reported cache is named by its size.
    """
    ordered = sorted(curve)
    caches = {f"L{level}": size for level, size in sorted(reported_bytes.items())}
    levels: list[Level] = []
    for first, last in _plateaus(ordered):
        size = ordered[last][0]
        latency = _plateau_latency([latency for _, latency in ordered[first : last + 1]])
        holding = [name for name, cache in caches.items() if size <= cache * CACHE_EXCESS]
        if not holding and last == len(ordered) - 1:
            levels.append(Level(name="memory", size_bytes=None, reported_bytes=None, latency_ns=latency))
            continue
        free = [name for name in holding[:1] if name not in {level.name for level in levels}]
        name = free[0] if free else f"{UNNAMED}{size}"
        levels.append(Level(name=name, size_bytes=size, reported_bytes=caches.get(name), latency_ns=latency))
    return tuple(levels)


def _plateaus(ordered: Sequence[tuple[int, Estimate]]) -> list[tuple[int, int]]:
    """Return first and last index of each plateau: repeatedly the longest flat run of the rest.

    Each latency is first replaced by the median of three neighbours, so that one disturbed point cannot split a
    plateau.
    """
    sizes = [size for size, _ in ordered]
    values = [latency.value for _, latency in ordered]
    smooth = [median(values[max(0, index - 1) : index + 2]) for index in range(len(values))]
    found: list[tuple[int, int]] = []
    open_ranges = [(0, len(ordered))]
    while open_ranges:
        begin, end = open_ranges.pop()
        runs = [_longest_from(smooth, first, end) for first in range(begin, end)]
        if not runs:
            continue
        first, last = max(runs, key=lambda run: log2(sizes[run[1]] / sizes[run[0]]))
        if log2(sizes[last] / sizes[first]) >= PLATEAU_OCTAVES:
            found.append((first, last))
            open_ranges += [(begin, first), (last + 1, end)]
    return sorted(found)


def _longest_from(values: Sequence[float], first: int, end: int) -> tuple[int, int]:
    """Return the longest run starting at *first* whose values stay within a plateau's span."""
    low = high = values[first]
    last = first
    for index in range(first + 1, end):
        low, high = min(low, values[index]), max(high, values[index])
        if high > low * PLATEAU_SPAN:
            break
        last = index
    return first, last


def _plateau_latency(latencies: Sequence[Estimate]) -> Estimate:
    """Return the latency of a plateau: over all placements of the middle half of its sizes."""
    quarter = len(latencies) // 4
    middle = latencies[quarter : len(latencies) - quarter]
    target = latencies[0].target_half_width
    samples = [placement for point in middle for placement in point.samples]
    rounds = [number for point in middle for number in point.rounds]
    return estimate(samples, "ns", rounds=rounds, target_half_width=target)


def compare_levels(levels: Sequence[Level], sizes: Sequence[int], context: Context) -> tuple[Comparison, ...]:
    """Compare each reported cache with the curve over *sizes*, with explanations of differences."""
    if not sizes:
        return ()
    found = {level.name: level.size_bytes for level in levels}
    caches = sorted(
        (cache for cache in context.caches if cache.type != "Instruction" and cache.size_bytes),
        key=lambda cache: cache.level,
    )
    return tuple(
        _comparison(cache, found.get(f"L{cache.level}"), caches, max(sizes), context.virtualization) for cache in caches
    )


def _comparison(
    cache: Cache, found_bytes: int | None, caches: Sequence[Cache], largest: int, virtualization: Virtualization
) -> Comparison:
    reported = cache.size_bytes or 0
    sharers = cache.shared_cpus or ()
    last = cache.level == caches[-1].level
    below = max((inner.size_bytes or 0 for inner in caches if inner.level < cache.level), default=0)
    agrees = found_bytes is not None and 1 / AGREEMENT <= found_bytes / reported <= AGREEMENT
    if agrees:
        explanation = "the curve leaves it where the kernel says it ends"
    elif found_bytes is None and largest < reported * CACHE_EXCESS:
        explanation = f"the ladder ends at {largest} bytes, before this cache does"
    elif found_bytes is None and below and log2(reported / below) < PLATEAU_OCTAVES:
        explanation = f"only {reported / below:.2g} times the cache before it: too few sizes between them for a plateau"
    elif last and virtualization.guest:
        share = None if found_bytes is None else found_bytes / reported * 100
        part = "" if share is None else f"; this CPU had {share:.0f} % of it while it was measured"
        explanation = (
            f"a virtual machine ({virtualization.vendor or 'hypervisor unknown'}): the cache is the host's, which "
            f"shares it among its guests and may report more than it gives{part}"
        )
    elif last and len(sharers) > 1:
        explanation = (
            f"shared by CPUs {format_cpulist(sharers)}: what other CPUs, or a partition set by the firmware or the "
            "kernel, held of it was not there for this one"
        )
    elif found_bytes is None:
        explanation = "the latency climbs through it without a plateau"
    else:
        explanation = (
            "private to its core: pages that fall into the same sets, a sibling thread or a hypervisor's use of the "
            "core leave less of it than there is"
        )
    return Comparison(
        name=f"L{cache.level}", reported_bytes=reported, found_bytes=found_bytes, agrees=agrees, explanation=explanation
    )
