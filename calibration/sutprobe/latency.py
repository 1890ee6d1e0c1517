# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe latency``."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.base.percentiles import Histogram
from calibration.sutprobe.counters import CountedPlacement, Counters, Samples
from calibration.sutprobe.document import Part
from calibration.sutprobe.placement import Interference, Point, PointsResult


class KeepAwakeThread(Model):
    """A light load beside a chase: what its CPU read from a node."""

    cpu: int
    node: int
    mb_s: float


class SingleLoads(Model):
    """Loads timed one by one: histograms of ``memory`` and, in turn, of as many of a line in L1, in ticks of the clock.

    ``involuntary_switches`` and ``page_faults`` are those of the thread meanwhile.
    """

    tick_ns: float
    memory: Histogram
    reference: Histogram
    involuntary_switches: int
    page_faults: int


class PackageActiveWalk(Model):
    """A second walk of the same chain, while ``keep_awake`` threads ran; ``first``: before the other walk."""

    first: bool
    windows_ns: tuple[float, ...]
    dirty_windows: tuple[int, ...]
    core_hz_before: float
    core_hz_after: float
    cpu_verified: bool
    interference: Interference
    counters: Counters | None
    samples: Samples | None
    single_loads: SingleLoads | None
    keep_awake: tuple[KeepAwakeThread, ...]


class LatencyPlacement(CountedPlacement):
    """One placement of a pointer chase: windows in ns per load, and which of them were disturbed.

    ``single_loads`` followed the windows, if requested. ``package_active`` is the same chain walked while
    keep-awake threads ran, ``None`` without them.
    """

    windows_ns: tuple[float, ...]
    dirty_windows: tuple[int, ...]
    pages_by_node: tuple[int, ...]
    single_loads: SingleLoads | None
    package_active: PackageActiveWalk | None

    @property
    def when_package_active(self) -> "LatencyPlacement | None":
        """The same placement with the values of the walk with the package active."""
        if self.package_active is None:
            return None
        shared = PackageActiveWalk.model_fields.keys() & LatencyPlacement.model_fields.keys()
        walk = {name: getattr(self.package_active, name) for name in shared}
        return self.model_copy(update={**walk, "cpus_verified": self.package_active.cpu_verified})


class OrderLimits(Model):
    """Limits that a random order stays below."""

    repeated_stride_share: float
    adjacent_line_share: float
    recent_page_share: float
    chi_square: float


class OrderCheck(Model):
    """What a prefetcher could learn from an order of visits, as shares of its ``jumps``; the worst of all placements.

    ``chi_square`` is that of the jumps' lengths over 16 classes. ``limits`` and ``passed`` are ``None`` if the order
    is not random over the whole buffer, or the chain is too short to tell.
    """

    jumps: int
    repeated_stride_share: float
    adjacent_line_share: float
    recent_page_share: float
    chi_square: float | None
    limits: OrderLimits | None
    passed: bool | None


class LatencyPoint(Point):
    """One pointer chase: where, how large, in which order, and its placements.

    Pages are interleaved over ``nodes`` if there are several; ``copies`` chases ran at the same time, and one thread
    walked ``chains`` at the same time. ``pages`` is the kind requested, ``hugetlb_bytes``
    their size if that was requested.
    """

    IDENTITY: ClassVar = (
        "cpu",
        "nodes",
        "pages",
        "hugetlb_bytes",
        "copies",
        "size_bytes",
        "stride_bytes",
        "order",
        "chains",
    )
    PROVED = ("chain_proved",)

    cpu: int
    nodes: tuple[int, ...]
    pages: str
    hugetlb_bytes: int | None
    copies: int
    size_bytes: int
    stride_bytes: int
    line_bytes: int
    order: str
    chains: int
    chain_nodes: int
    touched_bytes: int
    chain_proved: bool
    hops_per_window: int
    order_check: OrderCheck | None
    loop_overhead_ns: float | None
    placements: tuple[LatencyPlacement, ...] | None

    @property
    def overhead_ns(self) -> float:
        """``loop_overhead_ns``, which each point with placements has. Raises ``InputError`` without one."""
        if self.loop_overhead_ns is None:
            raise InputError("a point with placements has no overhead of its loop")
        return self.loop_overhead_ns

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return the same as for other points, and the worst order."""
        checks = [point.order_check for _, point in parts if point.order_check is not None]
        worst = min(checks, key=lambda check: check.passed is not False, default=None)
        return {**super().combined(parts), "order_check": worst}


class LatencyResult(PointsResult):
    """Result of ``sutprobe latency``.

    One point per kind of pages x place x order x size x stride that fits, in that order.
    """

    points: tuple[LatencyPoint, ...]
