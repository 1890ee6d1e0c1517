# SPDX-License-Identifier: Apache-2.0
"""What the pointer-chase kinds share: their settings, their cost, and the reading of ``sutprobe latency``."""

from collections.abc import Iterator, Sequence
from statistics import median

from pydantic import NonNegativeFloat, PositiveInt

from calibration.evidence import document_flags, placement_flags
from calibration.measurements.base import HalfWidth, Missing, Settings, excess_s, refused
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import LatencyPoint, ProbeDocument
from calibration.validity import Flag

LINK_NS = 40.0
"""Cost of shuffling, linking and proving one node of a chain, for the expected duration only."""

PLACEMENT_S = 0.002
"""Core clock before and after, counters and system calls of one placement, for the expected duration only."""

HOP_NS = 150.0
"""Cost of one hop in memory, for the expected duration only."""

TOUCH_BYTES_PER_S = 2.0e9
"""Rate at which fresh pages are touched, for the expected duration only."""

START_UP_S = 0.5
"""Process start, clock calibration and frequency checks, for the expected duration only."""


class ChaseSettings(Settings):
    """How often a chase is repeated: *placements* fresh allocations with *windows* of *hops* loads in each.

    A point whose interval is wider than *target_half_width* (relative) then gets more placements for *budget_s*.
    """

    placements: PositiveInt = 9
    windows: PositiveInt = 9
    hops: PositiveInt = 200_000
    target_half_width: HalfWidth = 0.01
    budget_s: NonNegativeFloat = 10.0

    def options(self) -> dict[str, object]:
        """Return the kernel options that these settings stand for."""
        return {
            "placements": self.placements,
            "windows": self.windows,
            "hops": self.hops,
            "target-half-width": self.target_half_width,
            "budget-s": self.budget_s,
        }

    def touch_s(self, size_bytes: int) -> float:
        """Return the expected time in s to map fresh memory for all placements: once in each, for the largest size."""
        return self.placements * size_bytes / TOUCH_BYTES_PER_S

    def build_s(self, size_bytes: int, stride_bytes: int = 64) -> float:
        """Return the expected time in s to build one point's chains in memory that is there, for all placements."""
        return self.placements * size_bytes / stride_bytes * LINK_NS * 1e-9

    def walk_s(self, hop_ns: float = HOP_NS, hops: int | None = None) -> float:
        """Return the expected time in s to walk one point's chains that are there, for all placements."""
        return self.placements * (PLACEMENT_S + (self.windows + 1) * (hops or self.hops) * hop_ns * 1e-9)

    def chase_s(
        self, size_bytes: int, stride_bytes: int = 64, hop_ns: float = HOP_NS, hops: int | None = None
    ) -> float:
        """Return the expected time in s to build and walk one point's chains in memory that is there."""
        return self.build_s(size_bytes, stride_bytes) + self.walk_s(hop_ns, hops)

    def cost_s(self, size_bytes: int) -> float:
        """Return the expected duration in s of a point measured by itself: touching, building and chasing."""
        return self.touch_s(size_bytes) + self.chase_s(size_bytes)

    def excess_s(self, cost_s: float) -> float:
        """Return the time in s that a point of *cost_s* may take beyond it where it does not converge."""
        return excess_s(cost_s, self.placements, self.budget_s)


def latency_of(point: LatencyPoint, target_half_width: float | None) -> Estimate | None:
    """Return the latency of *point* in ns per load; ``None`` where it could not be measured.

    Windows that an interruption hit are left out as long as each placement keeps more than half of its own.
    """
    if not point.placements:
        return None
    samples = []
    for placement in point.placements:
        dirty = set(placement.dirty_windows)
        clean = [value for index, value in enumerate(placement.windows_ns) if index not in dirty]
        samples.append(clean if 2 * len(clean) > len(placement.windows_ns) else list(placement.windows_ns))
    return estimate(samples, "ns", target_half_width=target_half_width)


def at(cpu: int, nodes: Sequence[int]) -> str:
    """Return the kernel's form of a place: memory of one node, or interleaved over several."""
    return f"{cpu}@{'+'.join(map(str, nodes))}"


def missing_of(point: LatencyPoint) -> Missing | None:
    """Return why *point* has no value, or ``None`` if it has one."""
    if point.error is None:
        return None
    return refused(at(point.cpu, point.nodes), point.error)


def chase_flags(document: ProbeDocument, points: Sequence[LatencyPoint]) -> Iterator[Flag]:
    """Yield the flags that the evidence in *document* raises for the chases *points*."""
    yield from document_flags(document)
    placements = [placement for point in points for placement in point.placements or ()]
    yield from placement_flags(
        document, placements, proved=all(_proved(point) for point in points if point.error is None)
    )


def _proved(point: LatencyPoint) -> bool:
    return point.chain_proved and (point.order_check is None or point.order_check.passed is not False)


def core_hz_of(points: Sequence[LatencyPoint]) -> float | None:
    """Return the core clock in Hz beside *points*: the median of what was measured before and after each placement."""
    measured = [
        hz
        for point in points
        for placement in point.placements or ()
        for hz in (placement.core_hz_before, placement.core_hz_after)
    ]
    return median(measured) if measured else None
