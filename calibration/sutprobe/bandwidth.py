# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe bandwidth``."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from calibration.base.grouping import of_known
from calibration.base.model import Model
from calibration.sutprobe.counters import CountedPlacement
from calibration.sutprobe.document import Part
from calibration.sutprobe.placement import Point, PointsResult


class Accounting(Model):
    """Bytes per step of a traffic mix: requested by instructions, and moved by memory under the declared rule."""

    reads_per_step: int
    writes_per_step: int
    write_allocate_reads_per_step: int
    program_bytes_per_step: int
    model_dram_bytes_per_step: int


class CourseSource(Model):
    """One sensor or counter read during a load."""

    kind: Literal["clock", "energy", "temperature"]
    name: str
    unit: str


class CourseReading(Model):
    """One reading of all sources, in order; energy counts from the first. ``None``: unreadable."""

    s: float
    values: tuple[float | None, ...]


class CourseUnreadable(Model):
    """A kind of source that is unreadable on this machine, and why."""

    kind: str
    reason: str


class Telemetry(Model):
    """Core clock, energy and temperatures during a load."""

    sources: tuple[CourseSource, ...]
    readings: tuple[CourseReading, ...]
    unreadable: tuple[CourseUnreadable, ...]


class BandwidthPlacement(CountedPlacement):
    """One placement of a bandwidth point: windows in MB/s by both accountings, and each thread's share.

    ``node_pages`` are the pages of buffers that are spread over several nodes, by node; ``None`` if none is.
    """

    windows_mb_s: tuple[float, ...]
    program_windows_mb_s: tuple[float, ...]
    per_thread_mb_s: tuple[float, ...]
    telemetry: Telemetry | None
    node_pages: dict[str, int] | None = None


class BandwidthPoint(Point):
    """One setting of the load for one group of threads."""

    IDENTITY: ClassVar = (
        "group", "mix", "streams", "prefetch_bytes", "hint", "visit_lines", "instruction", "width", "delay",
        "buffer_bytes",
    )  # fmt: skip

    group: str
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    mix: str
    streams: int
    prefetch_bytes: int
    hint: Literal["none", "t0", "t1", "nta", "w"]
    visit_lines: int
    instruction: Literal["vector", "clzero", "movdir64b", "rep_stosb", "dc_zva", "ldnp"]
    width: str
    delay: int
    buffer_bytes: int
    threads: int
    accounting: Accounting
    checked: bool
    start_skew_ns: float | None
    placements: tuple[BandwidthPlacement, ...] | None

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return the same as for other points, and the largest skew."""
        return {**super().combined(parts), "start_skew_ns": of_known(max, (point.start_skew_ns for _, point in parts))}


class BandwidthResult(PointsResult):
    """Result of ``sutprobe bandwidth``, in the order group x mix x setting.

    A search has ``chosen`` settings, by their numbers.
    """

    points: tuple[BandwidthPoint, ...]
    chosen: tuple[int, ...] | None = None
