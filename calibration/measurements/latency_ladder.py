# SPDX-License-Identifier: Apache-2.0
"""Latency ladder: latency against working-set size, and the cache levels that the curve shows."""

from collections.abc import Iterator, Mapping, Sequence
from math import log2
from statistics import median
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from calibration.context.model import Context
from calibration.errors import InputError
from calibration.evidence import estimate_flags
from calibration.measurements.base import (
    Declaration,
    Metric,
    Missing,
    NotPlanned,
    Parsed,
    Step,
    Values,
    metric_of,
    step,
)
from calibration.measurements.chase import HOP_NS, START_UP_S, ChaseSettings, chase_flags, latency_of, missing_of
from calibration.measurements.sut import Place, Sut, memory_bound_bytes
from calibration.model import Model
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import LatencyPoint, LatencyResult, ProbeDocument, read_result

UNNAMED = "plateau-"
"""Begins the name of a plateau that no reported cache explains; its size follows."""

CACHED_HOP_NS = 10.0
"""Cost of one hop within the caches, for the expected duration only."""

PLATEAU_SPAN = 1.25
"""Largest latency of a plateau relative to its smallest: a level's own drift (pages, associativity, a shared cache's
neighbours) stays within it, a climb into the next level leaves it within a third of an octave."""

PLATEAU_OCTAVES = 1.2
"""A plateau spans at least this much of the sizes: shorter flat stretches happen within a climb."""

CACHE_EXCESS = 1.3
"""A plateau that ends below this multiple of a cache's reported size is that cache's. The curve may leave a cache long
before its reported size (a share of it is what one CPU gets), hardly ever after it."""


class LadderSettings(ChaseSettings):
    """A chase at *points_per_octave* sizes from *smallest_bytes* on, for each of *strides_bytes* and *orders*.

    Fewer hops are enough per window than for a single latency, because neighbouring points support each other.
    """

    hops: PositiveInt = 50_000
    budget_s: NonNegativeFloat = 0.5
    smallest_bytes: PositiveInt = 1024
    points_per_octave: PositiveInt = 4
    strides_bytes: tuple[PositiveInt, ...] = (64,)
    forward_strides_bytes: tuple[PositiveInt, ...] = ()
    target_half_width: PositiveFloat = 0.03


class LadderPoint(Model):
    """Latency in ns per load at one working-set size (bytes the chase touches), stride and order."""

    size_bytes: int
    stride_bytes: int
    order: str
    latency_ns: Estimate


class Level(Model):
    """A level of the memory hierarchy as the curve shows it.

    ``size_bytes`` is the largest size on its plateau, ``None`` for memory; ``reported_bytes`` is what the kernel says.
    """

    name: str
    size_bytes: int | None
    reported_bytes: int | None
    latency_ns: Estimate


class LatencyLadderValues(Values):
    """The curve of ``cpu`` on memory of ``node``, and the levels recognised on its random-order points."""

    kind: Literal["latency_ladder"] = "latency_ladder"
    cpu: int
    node: int
    points: tuple[LadderPoint, ...]
    levels: tuple[Level, ...]


class LatencyLadder(Declaration[LadderSettings, LatencyLadderValues]):
    """A ladder of chases from the first-level cache into memory."""

    kind = "latency_ladder"
    title = "Latency ladder"
    question = "What does a load cost at each level of the memory hierarchy, and where do the levels end?"
    settings = LadderSettings
    values = LatencyLadderValues

    def steps(self, context: Context, settings: LadderSettings) -> Iterator[Step | NotPlanned]:
        """Yield one random ladder, and one forward ladder per stride asked for, on the first node that has CPUs."""
        sut = Sut(context)
        for node in sut.cpu_nodes[:1]:
            place = Place(sut.measuring_cpu(node), sut.home(node))
            largest = memory_bound_bytes(sut, place.node)
            orders = [("random", settings.strides_bytes), ("forward", settings.forward_strides_bytes)]
            for order, strides in orders:
                if not strides:
                    continue
                # a chain needs two nodes at least, also at the longest stride
                smallest = max(settings.smallest_bytes, 2 * max(strides))
                sizes = ladder_sizes(smallest, largest, settings.points_per_octave)
                suffix = "" if order == "random" else f"-{order}"
                costs_s = [
                    settings.cost_s(size, stride, _expected_hop_ns(sut, size)) for size in sizes for stride in strides
                ]
                yield step(
                    id=f"{self.kind}{suffix}",
                    kind=self.kind,
                    title=f"{self.title}, {order} order, CPU {place.cpu}, {len(sizes) * len(strides)} points",
                    subcommand="latency",
                    options={
                        "at": place,
                        "size-bytes": ",".join(map(str, sizes)),
                        "stride-bytes": ",".join(map(str, strides)),
                        "order": order,
                        **settings.options(),
                    },
                    cpus=(place.cpu,),
                    nodes=(place.node,),
                    expected_duration_s=START_UP_S + sum(costs_s),
                    budget_s=sum(map(settings.excess_s, costs_s)),
                )

    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield the curve and its levels."""
        result = read_result(document, LatencyResult)
        target = document.parameters.get("target_half_width")
        points: list[LadderPoint] = []
        random: list[tuple[LatencyPoint, Estimate]] = []
        for point in result.points:
            if (figure := latency_of(point, target)) is None:
                continue
            points.append(
                LadderPoint(
                    size_bytes=point.size_bytes,
                    stride_bytes=point.stride_bytes,
                    order=point.order,
                    latency_ns=figure,
                )
            )
            if point.order == "random" and point.stride_bytes == result.points[0].stride_bytes:
                random.append((point, figure))
        if not points:
            reasons = {point.error.message for point in result.points if point.error}
            raise InputError(f"no point of the ladder could be measured: {'; '.join(sorted(reasons))}")
        reported = {
            cache.level: cache.size_bytes
            for cache in context.caches
            if cache.type != "Instruction" and cache.size_bytes is not None
        }
        levels = recognise_levels([(point.size_bytes, figure) for point, figure in random], reported)
        yield Parsed(
            id=step.id,
            values=LatencyLadderValues(
                cpu=result.points[0].cpu, node=result.points[0].node, points=tuple(points), levels=levels
            ),
            flags=(
                *chase_flags(document, result.points),
                *estimate_flags([(f"{each.size_bytes} bytes", each.latency_ns) for each in points], target),
            ),
            missing=tuple(
                Missing(what=f"{point.size_bytes} bytes, stride {point.stride_bytes}, {gone.what}", reason=gone.reason)
                for point in result.points
                if (gone := missing_of(point)) is not None
            ),
        )

    def metrics(self, values: LatencyLadderValues) -> Iterator[Metric]:
        """Yield the latency of each level."""
        for level in values.levels:
            if level.name.startswith(UNNAMED):
                continue  # its name changes with its size from run to run, so nothing could be compared with it
            yield metric_of(
                f"latency_ladder.{level.name}.latency_ns", f"{level.name} latency", level.latency_ns, "lower"
            )


def ladder_sizes(smallest_bytes: int, largest_bytes: int, per_octave: int) -> list[int]:
    """Return sizes in bytes from *smallest_bytes* to *largest_bytes*, *per_octave* to each doubling, in whole lines."""
    count = round(log2(largest_bytes / smallest_bytes) * per_octave)
    sizes = (round(smallest_bytes * 2 ** (index / per_octave) / 64) * 64 for index in range(count))
    return sorted({*sizes, largest_bytes})


def _expected_hop_ns(sut: Sut, size_bytes: int) -> float:
    llc = sut.llc_bytes
    return CACHED_HOP_NS if llc is not None and size_bytes < llc / 4 else HOP_NS


def recognise_levels(curve: Sequence[tuple[int, Estimate]], reported_bytes: Mapping[int, int]) -> tuple[Level, ...]:
    """Return the levels that *curve* (size in bytes, latency) shows, smallest first.

    A plateau is a run of sizes along which latency hardly grows. Plateaus are matched with the caches the kernel
    reports by where they end; the last is memory when it reaches the largest size. A cache that the curve does not
    show is not invented, and a plateau that no reported cache explains is named by its size.
    """
    ordered = sorted(curve)
    caches = {f"L{level}": size for level, size in sorted(reported_bytes.items())}
    levels: list[Level] = []
    for first, last in _plateaus(ordered):
        size = ordered[last][0]
        figure = _plateau_latency([figure for _, figure in ordered[first : last + 1]])
        holding = [name for name, cache in caches.items() if size <= cache * CACHE_EXCESS]
        if not holding and last == len(ordered) - 1:
            levels.append(Level(name="memory", size_bytes=None, reported_bytes=None, latency_ns=figure))
            continue
        free = [name for name in holding[:1] if name not in {level.name for level in levels}]
        name = free[0] if free else f"{UNNAMED}{size}"
        levels.append(Level(name=name, size_bytes=size, reported_bytes=caches.get(name), latency_ns=figure))
    return tuple(levels)


def _plateaus(ordered: Sequence[tuple[int, Estimate]]) -> list[tuple[int, int]]:
    """Return first and last index of each plateau: the longest flat run, then the longest of what it leaves, and so on.

    A single disturbed point cannot split a plateau: each latency is first replaced by the median of three neighbours.
    """
    sizes = [size for size, _ in ordered]
    values = [figure.value for _, figure in ordered]
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
    """Return the longest run from *first* on whose values span no more than a plateau may."""
    low = high = values[first]
    last = first
    for index in range(first + 1, end):
        low, high = min(low, values[index]), max(high, values[index])
        if high > low * PLATEAU_SPAN:
            break
        last = index
    return first, last


def _plateau_latency(figures: Sequence[Estimate]) -> Estimate:
    """Return the latency of a plateau: over all placements of the middle half of its sizes, where no edge reaches."""
    quarter = len(figures) // 4
    middle = figures[quarter : len(figures) - quarter]
    return estimate([placement for each in middle for placement in each.samples], "ns")


MEASUREMENT = LatencyLadder()
