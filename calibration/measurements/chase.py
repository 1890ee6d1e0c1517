# SPDX-License-Identifier: Apache-2.0
"""What the pointer-chase kinds share: their settings, their cost, and the reading of ``sutprobe latency``."""

from collections.abc import Iterator, Sequence

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from calibration.evidence import document_flags, placement_flags
from calibration.measurements.base import Missing, Settings, excess_s
from calibration.measurements.sut import Place
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import LatencyPoint, ProbeDocument
from calibration.validity import Flag

LINK_NS = 60.0
"""Cost of linking one node of a chain, for the expected duration only."""

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
    target_half_width: PositiveFloat = 0.01
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

    def cost_s(self, size_bytes: int, stride_bytes: int = 64, hop_ns: float = HOP_NS) -> float:
        """Return the expected duration in s of one point with these settings."""
        build = size_bytes / TOUCH_BYTES_PER_S + size_bytes / stride_bytes * LINK_NS * 1e-9
        return self.placements * (build + (self.windows + 1) * self.hops * hop_ns * 1e-9)

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


def missing_of(point: LatencyPoint) -> Missing | None:
    """Return why *point* has no value, or ``None`` if it has one."""
    if point.error is None:
        return None
    return Missing(what=str(Place(point.cpu, point.node)), reason=f"{point.error.code}: {point.error.message}")


def chase_flags(document: ProbeDocument, points: Sequence[LatencyPoint]) -> Iterator[Flag]:
    """Yield the flags that the evidence in *document* raises for the chases *points*."""
    yield from document_flags(document)
    placements = [placement for point in points for placement in point.placements or ()]
    yield from placement_flags(
        document, placements, proved=all(point.chain_proved for point in points if point.error is None)
    )
