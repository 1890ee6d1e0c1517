# SPDX-License-Identifier: Apache-2.0
"""What the bandwidth kinds share: settings, groups of threads, cost, and the reading of ``sutprobe bandwidth``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from calibration.errors import InputError
from calibration.evidence import document_flags, estimate_flags, placement_flags
from calibration.measurements.base import Missing, Settings
from calibration.measurements.chase import TOUCH_BYTES_PER_S
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut, capped_bytes, cpu_list, size_flags
from calibration.model import Model
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import Accounting, BandwidthPoint, ProbeDocument
from calibration.validity import Flag

Mix = Literal["reads", "3:1", "2:1", "1:1", "stream_triad", "write", "write_nt", "copy", "copy_nt", "triad"]
"""The mixes that the kernel knows."""

MIXES: tuple[Mix, ...] = ("reads", "3:1", "2:1", "1:1", "stream_triad")
"""The mixes of the published pages, in their order."""

BUFFERS_PER_THREAD = 3
"""The mix with most buffers (stream_triad) has two to read and one to write."""


class Shape(Model):
    """How a kernel walks its buffers: parallel streams, and how many bytes ahead it prefetches (0: not at all)."""

    streams: PositiveInt
    prefetch_bytes: NonNegativeInt


PLAIN = Shape(streams=1, prefetch_bytes=0)
"""One forward stream without software prefetch: what most tools measure, shown beside the tuned shape."""

DEFAULT_SHAPE = Shape(streams=4, prefetch_bytes=2048)
"""Good on every machine tried; the maximum's search shows per platform whether another one is better."""


class TrafficSettings(Settings):
    """How often traffic is repeated: *placements* fresh allocations with *windows* of *window_s* in each.

    A point whose interval is wider than *target_half_width* (relative) then gets more placements for *budget_s*.
    """

    placements: PositiveInt = 9
    windows: PositiveInt = 9
    window_s: PositiveFloat = 0.1
    target_half_width: PositiveFloat = 0.01
    budget_s: NonNegativeFloat = 10.0
    minimum_buffer_bytes: PositiveInt = 100_000_000
    width: Literal["auto", "sse2", "avx2", "avx512", "neon", "sve"] = "auto"

    def options(self) -> dict[str, object]:
        """Return the kernel options that these settings stand for."""
        return {
            "width": self.width,
            "placements": self.placements,
            "windows": self.windows,
            "window-s": self.window_s,
            "target-half-width": self.target_half_width,
            "budget-s": self.budget_s,
        }

    def cost_s(self, size_bytes: int, threads_per_node: int) -> float:
        """Return the expected duration in s of one point with these settings.

        Pages are cleared at a rate that the threads of one node share.
        """
        touch = size_bytes * BUFFERS_PER_THREAD * max(1.0, threads_per_node / 4) / TOUCH_BYTES_PER_S
        return self.placements * (touch + (self.windows + 1) * self.window_s)


class Part(NamedTuple):
    """Threads on ``cpus``, each with its buffers on ``node``."""

    cpus: tuple[int, ...]
    node: int

    def __str__(self) -> str:
        return f"{cpu_list(self.cpus)}@{self.node}"


def group_text(parts: Sequence[Part]) -> str:
    """Return the kernel's name for threads that run at the same time."""
    return "+".join(map(str, parts))


def all_cpus(sut: Sut) -> list[Part]:
    """Return every usable CPU, each working on the memory nearest to it."""
    return [Part(tuple(sut.cpus_of(node)), sut.home(node)) for node in sut.cpu_nodes]


def buffer_bytes(sut: Sut, settings: TrafficSettings, parts: Sequence[Part]) -> int:
    """Return the size in bytes of one buffer of one thread: beyond the caches, within every node's memory.

    All threads that share a last-level cache must together hold ``LLC_MULTIPLE`` times its size.
    """
    llc = sut.llc_bytes or ASSUMED_LLC_BYTES
    sharers = sut.fewest_per_llc(cpu for part in parts for cpu in part.cpus)
    wanted = max(settings.minimum_buffer_bytes, LLC_MULTIPLE * llc // sharers)
    threads: dict[int, int] = {}
    for part in parts:
        threads[part.node] = threads.get(part.node, 0) + len(part.cpus)
    return min(capped_bytes(sut, node, wanted, buffers=count * BUFFERS_PER_THREAD) for node, count in threads.items())


class Setting(Model):
    """The setting that a bandwidth was measured with."""

    threads: int
    streams: int
    prefetch_bytes: int
    width: str
    delay: int
    buffer_bytes: int


def setting_of(point: BandwidthPoint) -> Setting:
    """Return the setting of *point*."""
    return Setting(
        threads=point.threads,
        streams=point.streams,
        prefetch_bytes=point.prefetch_bytes,
        width=point.width,
        delay=point.delay,
        buffer_bytes=point.buffer_bytes,
    )


class MixBandwidth(Model):
    """Bandwidth of one mix in MB/s (10^6 bytes) by both accountings.

    ``bandwidth_mb_s`` counts what memory must move by the declared rule (a regular store reads its line first), as
    Intel MLC does; ``program_mb_s`` counts what the instructions ask for, as STREAM, likwid and lmbench do.
    """

    bandwidth_mb_s: Estimate
    program_mb_s: Estimate
    per_thread_mb_s: tuple[float, ...]
    accounting: Accounting
    setting: Setting


def mix_bandwidth(point: BandwidthPoint, target_half_width: float | None) -> MixBandwidth | None:
    """Return the bandwidth of *point*; ``None`` where it could not be measured."""
    if not point.placements:
        return None
    per_thread = [placement.per_thread_mb_s for placement in point.placements]
    return MixBandwidth(
        bandwidth_mb_s=estimate(
            [placement.windows_mb_s for placement in point.placements], "MB/s", target_half_width=target_half_width
        ),
        program_mb_s=estimate([placement.program_windows_mb_s for placement in point.placements], "MB/s"),
        per_thread_mb_s=tuple(sum(column) / len(column) for column in zip(*per_thread, strict=True)),
        accounting=point.accounting,
        setting=setting_of(point),
    )


def missing_of(point: BandwidthPoint) -> Missing | None:
    """Return why *point* has no value, or ``None`` if it has one."""
    if point.error is None:
        return None
    return Missing(what=f"{point.mix} on {point.group}", reason=f"{point.error.code}: {point.error.message}")


def traffic_flags(
    sut: Sut, document: ProbeDocument, points: Sequence[BandwidthPoint], measured: Mapping[str, MixBandwidth]
) -> Iterator[Flag]:
    """Yield the flags that the evidence in *document* raises for *points*, and those of the figures made from them."""
    yield from size_flags(sut, min(point.buffer_bytes * sut.fewest_per_llc(point.cpus) for point in points))
    yield from document_flags(document)
    placements = [placement for point in points for placement in point.placements or ()]
    yield from placement_flags(
        document, placements, proved=all(point.checked for point in points if point.error is None)
    )
    target = document.parameters.get("target_half_width")
    yield from estimate_flags([(name, mix.bandwidth_mb_s) for name, mix in measured.items()], target)


def require_value(points: Sequence[BandwidthPoint], found: int) -> None:
    """Raise ``InputError`` with the kernel's own reasons unless at least one point has a value."""
    if not found:
        reasons = {f"{point.error.code}: {point.error.message}" for point in points if point.error}
        raise InputError(f"no point could be measured: {'; '.join(sorted(reasons)) or 'no reason was given'}")
