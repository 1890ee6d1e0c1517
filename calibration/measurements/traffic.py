# SPDX-License-Identifier: Apache-2.0
"""What the bandwidth kinds share: settings, groups of threads, cost, and the reading of ``sutprobe bandwidth``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from calibration.context.cpulists import parse_cpulist
from calibration.context.model import Context
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.errors import InputError
from calibration.evidence import document_flags, estimate_flags, placement_flags
from calibration.measurements.base import HalfWidth, Missing, Settings, excess_s, refused
from calibration.measurements.choice import Shape, ShapeReference
from calibration.measurements.counting import bandwidth_counted
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut, capped_bytes, cpu_list, size_flags
from calibration.model import Model
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import Accounting, BandwidthPoint, ProbeDocument
from calibration.validity import Flag

Mix = Literal[
    "reads", "3:1", "2:1", "1:1", "stream_triad", "write", "write_nt", "copy", "copy_nt", "triad", "line_reads"
]
"""The mixes that the kernel knows."""

MIXES: tuple[Mix, ...] = ("reads", "3:1", "2:1", "1:1", "stream_triad")
"""The mixes of the published pages, in their order."""

BUFFERS: dict[str, int] = {
    "reads": 1,
    "3:1": 3,
    "2:1": 2,
    "1:1": 1,
    "stream_triad": 3,
    "write": 1,
    "write_nt": 1,
    "copy": 2,
    "copy_nt": 2,
    "triad": 3,
    "line_reads": 1,
}
"""How many buffers a thread of each mix has."""

ANY_MIX = f"(?:{'|'.join(BUFFERS)})"
"""Regular expression of the mixes' names."""


def buffers_of(mix: str) -> int:
    """Return how many buffers a thread of *mix* has. Raises ``InputError`` for a mix that does not exist."""
    try:
        return BUFFERS[mix]
    except KeyError:
        raise InputError(f"expected one of the mixes {', '.join(BUFFERS)}, found {mix!r}") from None


THREAD_FILL_BYTES_PER_S = 0.7e9
"""Rate at which a thread clears, fills and checks its own buffers, all three together, for the expected duration: seen
on two busy threads of a virtual machine, where clearing a page costs most."""

NODE_FILL_BYTES_PER_S = 16.0e9
"""The most that all threads of a node clear, fill and check together: a fifth of a small server's bandwidth, because
every byte is written twice and read twice and more. For the expected duration only."""

SCAN_S = 0.12
"""Time that a search gives to one setting once its buffers exist: ten milliseconds to settle, three windows of 30, and
the change from one to the next. For the expected duration only."""

RUN_S = 0.04
"""A placement's start, settling time and end beside its windows, for the expected duration only."""


PLAIN = Shape(streams=1, prefetch_bytes=0)
"""One forward stream without software prefetch: what most tools measure, shown beside the tuned shape."""

DEFAULT_SHAPE = Shape(streams=4, prefetch_bytes=0)
"""The best, or within the noise of it, on every machine tried, for reads and for mixes.

Four streams read 10 to 25 % more than one. Software prefetch beside them changed nothing or cost up to a tenth: the
processor's own prefetchers follow four streams. Used until a platform's own search has found another one.
"""


class TrafficSettings(Settings):
    """How often traffic is repeated: *placements* fresh allocations with *windows* of *window_s* in each.

    A point whose interval is wider than *target_half_width* (relative) then gets more placements for *budget_s*.
    """

    placements: PositiveInt = 9
    windows: PositiveInt = 9
    window_s: PositiveFloat = 0.1
    target_half_width: HalfWidth = 0.01
    budget_s: NonNegativeFloat = 10.0
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

    def cost_s(self, size_bytes: int, mix: Mix, parts: Sequence["Part"]) -> float:
        """Return the expected duration in s of one point of *mix* on *parts* with these settings, budget apart."""
        return self.placements * (fill_s(size_bytes, mix, parts) + RUN_S + self.windows * self.window_s)

    def excess_s(self, cost_s: float) -> float:
        """Return the time in s that a point of *cost_s* may take beyond it where it does not converge."""
        return excess_s(cost_s, self.placements, self.budget_s)


class CountedTrafficSettings(TrafficSettings):
    """The same with hardware *counters* read beside the traffic, where the SUT has some that can be opened."""

    counters: bool = True


def fill_s(size_bytes: int, mix: Mix, parts: Sequence["Part"]) -> float:
    """Return how long the threads of *parts* need for buffers of *size_bytes* before and after they are used, in s."""
    each = size_bytes * BUFFERS[mix]
    threads = _threads_by_node(parts)
    return each * max(1 / THREAD_FILL_BYTES_PER_S, max(threads.values()) / NODE_FILL_BYTES_PER_S)


def shape_options(
    settings: TrafficSettings, shape: Shape | None, kept: ShapeReference | None, mix: Mix | None = None
) -> dict[str, object]:
    """Return the kernel options for how traffic walks its buffers.

    *shape* is what the profile says. Where it says nothing, the shape *kept* for the platform is taken: that for *mix*
    alone where only it is measured, else that for all mixes; and where none is kept yet, the default.
    """
    width: str = settings.width
    if shape is None:
        shape = DEFAULT_SHAPE
        if kept is not None:
            shape = chosen = kept.all_mixes if mix is None else kept.shape_for(mix)
            width = chosen.width if width == "auto" else width
    return {"streams": shape.streams, "prefetch-bytes": shape.prefetch_bytes, "width": width}


class Part(NamedTuple):
    """Threads on ``cpus``, each with its buffers on ``node``."""

    cpus: tuple[int, ...]
    node: int

    def __str__(self) -> str:
        return f"{cpu_list(self.cpus)}@{self.node}"


def group_text(parts: Sequence[Part]) -> str:
    """Return the kernel's name for threads that run at the same time."""
    return "+".join(map(str, parts))


def read_group(text: str) -> list[Part]:
    """Return the parts that ``group_text`` made *text* of. Raises ``InputError`` for another text."""
    parts = []
    for each in text.split("+"):
        cpus, _, node = each.partition("@")
        try:
            parts.append(Part(parse_cpulist(cpus), int(node)))
        except ValueError as error:
            raise InputError(f"expected CPULIST@NODE[+CPULIST@NODE...] as a group, found {text!r}") from error
    return parts


def all_cpus(sut: Sut) -> list[Part]:
    """Return every usable CPU, each working on the memory nearest to it."""
    return [Part(tuple(sut.cpus_of(node)), sut.home(node)) for node in sut.cpu_nodes]


def buffer_bytes(sut: Sut, parts: Sequence[Part], mixes: Iterable[Mix]) -> int:
    """Return the size of one buffer of one thread of *parts* in bytes: beyond the caches, within each node's memory."""
    return common_buffer_bytes(sut, [parts], mixes)


def common_buffer_bytes(sut: Sut, groups: Sequence[Sequence[Part]], mixes: Iterable[Mix]) -> int:
    """Return the same for the threads of any of *groups*."""
    buffers = max(BUFFERS[mix] for mix in mixes)
    wanted = max(memory_bound_thread_bytes(sut, parts) for parts in groups)
    return min(
        capped_bytes(sut, node, wanted, buffers=count * buffers)
        for parts in groups
        for node, count in _threads_by_node(parts).items()
    )


def memory_bound_thread_bytes(sut: Sut, parts: Sequence[Part]) -> int:
    """Return the least size in bytes of a buffer that each thread of *parts* reads from memory.

    Two bounds, and nothing more, because filling costs what is measured is worth: the threads that share a last-level
    cache together hold ``LLC_MULTIPLE`` times its size, and each thread that multiple of its core's own caches. Where
    no shared cache is reported, the threads of a node together hold enough for one that is not reported.
    """
    cpus = [cpu for part in parts for cpu in part.cpus]
    llc, sharers = sut.llc_bytes or 0, sut.fewest_per_llc(cpus)
    if sut.llc_is_private:
        llc, sharers = max(llc, ASSUMED_LLC_BYTES), min(_threads_by_node(parts).values())
    return LLC_MULTIPLE * max(llc // sharers, sut.l2_bytes)


def _threads_by_node(parts: Sequence[Part]) -> dict[int, int]:
    threads: dict[int, int] = {}
    for part in parts:
        threads[part.node] = threads.get(part.node, 0) + len(part.cpus)
    return threads


class Setting(Model):
    """The setting that a bandwidth was measured with."""

    threads: int
    streams: int
    prefetch_bytes: int
    width: str
    delay: int
    buffer_bytes: int


class Tried(Model):
    """One setting of a search, and the bandwidth that its few short windows showed."""

    mix: str
    group: str
    setting: Setting
    bandwidth_mb_s: Estimate


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
    Intel MLC does; ``program_mb_s`` counts what the instructions ask for, as STREAM, likwid and lmbench do. ``counted``
    is what hardware counters counted at the same time, ``None`` where none were opened.
    """

    bandwidth_mb_s: Estimate
    program_mb_s: Estimate
    per_thread_mb_s: tuple[float, ...]
    accounting: Accounting
    setting: Setting
    counted: CountedBytes | None = None


def mix_bandwidth(
    point: BandwidthPoint, target_half_width: float | None, context: Context | None = None
) -> MixBandwidth | None:
    """Return the bandwidth of *point*, with what was counted beside it on the SUT of *context* where that is given.

    ``None`` where it could not be measured.
    """
    if not point.placements:
        return None
    nodes = [part.node for part in read_group(point.group) for _ in part.cpus]
    per_thread = [placement.per_thread_mb_s for placement in point.placements]
    return MixBandwidth(
        bandwidth_mb_s=estimate(
            [placement.windows_mb_s for placement in point.placements], "MB/s", target_half_width=target_half_width
        ),
        program_mb_s=estimate([placement.program_windows_mb_s for placement in point.placements], "MB/s"),
        per_thread_mb_s=tuple(sum(column) / len(column) for column in zip(*per_thread, strict=True)),
        accounting=point.accounting,
        setting=setting_of(point),
        counted=None if context is None else bandwidth_counted(context, point, nodes),
    )


def tried(points: Sequence[BandwidthPoint]) -> tuple[Tried, ...]:
    """Return what the search among *points* tried and saw; a setting that could not be tried is left to ``missing``."""
    return tuple(
        Tried(
            mix=point.mix,
            group=point.group,
            setting=setting_of(point),
            bandwidth_mb_s=estimate([each.windows_mb_s for each in point.placements], "MB/s"),
        )
        for point in points
        if point.phase == "scan" and point.placements
    )


def missing_of(point: BandwidthPoint) -> Missing | None:
    """Return why *point* has no value, or ``None`` if it has one."""
    if point.error is None:
        return None
    return refused(f"{point.mix} on {point.group}", point.error)


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
    counted = [(name, mix.counted) for name, mix in measured.items() if mix.counted is not None]
    yield from counted_flags(counted)
    mixes = {point.mix for point in points if point.placements}
    yield from stores_flags(sut.context, mixes, counted=bool(counted))


def measured_points(
    points: Sequence[BandwidthPoint], target_half_width: float | None, context: Context | None = None
) -> list[tuple[BandwidthPoint, MixBandwidth]]:
    """Return those of *points* that have a bandwidth, each with it and with what was counted on the SUT of *context*.

    Raises ``InputError`` where none has.
    """
    found = [(point, mix) for point in points if (mix := mix_bandwidth(point, target_half_width, context)) is not None]
    require_value(points, len(found))
    return found


def require_value(points: Sequence[BandwidthPoint], found: int) -> None:
    """Raise ``InputError`` with the kernel's own reasons unless at least one point has a value."""
    if not found:
        reasons = {f"{point.error.code}: {point.error.message}" for point in points if point.error}
        raise InputError(f"no point could be measured: {'; '.join(sorted(reasons)) or 'no reason was given'}")
