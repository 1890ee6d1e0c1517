# SPDX-License-Identifier: Apache-2.0
"""Common parts of the bandwidth kinds: settings, groups of threads, cost, and parsing of ``sutprobe bandwidth``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from calibration.context.model import Context
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.cpulists import format_cpulist, parse_cpulist
from calibration.errors import InputError
from calibration.measurements.base import (
    Declaration,
    HalfWidth,
    Missing,
    Settings,
    Step,
    Values,
    excess_s,
    missing_part,
    require_any,
)
from calibration.measurements.counting import bandwidth_counted
from calibration.measurements.evidence import estimate_of, evidence_flags
from calibration.measurements.platform import Shape, ShapeReference
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut, capped_bytes, size_flags
from calibration.model import Model, shared_fields
from calibration.statistics import Estimate, estimate
from calibration.sutprobe.bandwidth import Accounting, BandwidthPoint
from calibration.sutprobe.document import ProbeDocument
from calibration.validity import Flag

S = TypeVar("S", bound=Settings)
V = TypeVar("V", bound=Values)

Mix = Literal[
    "reads", "3:1", "2:1", "1:1", "stream_triad", "write", "write_nt", "copy", "copy_nt", "triad", "line_reads"
]
"""The mixes of sutprobe."""

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
"""Buffers per thread of each mix."""

WRITTEN = frozenset(BUFFERS) - {"reads", "line_reads"}
"""The mixes that write."""

ANY_MIX = f"(?:{'|'.join(BUFFERS)})"
"""Regular expression of the mixes' names."""


def buffers_of(mix: str) -> int:
    """Return the number of buffers per thread of *mix*. Raises ``InputError`` for an unknown mix."""
    try:
        return BUFFERS[mix]
    except KeyError:
        raise InputError(f"unknown mix {mix!r}; known: {', '.join(BUFFERS)}") from None


THREAD_FILL_BYTES_PER_S = 3.0e9
"""Rate at which a thread maps and fills memory, for the expected duration: measured with two threads of a virtual
machine, where clearing a page costs most."""

NODE_FILL_BYTES_PER_S = 16.0e9
"""Rate at which all threads together fill a node: a fifth of a small server's bandwidth, because every byte is
written twice and read once. For the expected duration only."""

THREAD_PROVE_BYTES_PER_S = 5.0e9
"""Rate at which a thread verifies and restores what a run wrote, and that of a node; for the expected duration only."""

NODE_PROVE_BYTES_PER_S = 30.0e9

PLACEMENT_S = 0.01
"""Start and end of a placement's threads, and clock settling, for the expected duration only."""

RUN_S = 0.022
"""Cost of a run besides its windows: 20 ms to settle and end, counters before and after, and wake-up. For the expected
duration only."""

RUN_THREAD_S = 20e-6
"""Extra cost per thread."""

SCAN_S = 0.107
"""Duration of a search per setting: ten milliseconds to settle, three windows of 30, and overhead. For the expected
duration only."""


PLAIN = Shape(streams=1, prefetch_bytes=0)
"""One forward stream without software prefetch: what most tools measure, shown beside the tuned shape."""

DEFAULT_SHAPE = Shape(streams=4, prefetch_bytes=0)
"""The best shape, or within noise of it, on every machine tried, for reads and for mixes.

Four streams read 10 to 25 % more than one. Adding software prefetch changed nothing or cost up to a tenth: hardware
prefetchers follow four streams. Used until the platform's own search has found a better one.
"""


class TrafficSettings(Settings):
    """How often traffic is repeated: *placements* fresh allocations with *windows* of *window_s* each.

    Points whose interval is wider than *target_half_width* (relative) get more placements, until *budget_s* is spent.
    All points of a step share it, as they share their buffers.
    """

    placements: PositiveInt = 9
    windows: PositiveInt = 9
    window_s: PositiveFloat = 0.1
    target_half_width: HalfWidth = 0.01
    budget_s: NonNegativeFloat = 10.0
    width: Literal["auto", "sse2", "avx2", "avx512", "neon", "sve"] = "auto"

    def options(self) -> dict[str, object]:
        """Return the options of sutprobe for these settings."""
        return {
            "width": self.width,
            "placements": self.placements,
            "windows": self.windows,
            "window-s": self.window_s,
            "target-half-width": self.target_half_width,
            "budget-s": self.budget_s,
        }

    def cost_s(self, runs: Sequence["Run"], repeats: int = 1) -> float:
        """Return the expected duration in s of a step with *runs*, each repeated in every placement."""
        points_s = sum(run_s(run) + self.windows * self.window_s for run in runs)
        return self.placements * (PLACEMENT_S + fill_s(runs) + repeats * points_s)

    def excess_s(self, cost_s: float) -> float:
        """Return the extra time in s for a step of *cost_s* whose points do not converge."""
        return excess_s(cost_s, self.placements, self.budget_s)


class CountedTrafficSettings(TrafficSettings):
    """The same with hardware *counters*, if available."""

    counters: bool = True


class Run(NamedTuple):
    """One point of a step: threads on ``parts``, with buffers of ``size_bytes`` for ``mix``."""

    parts: Sequence["Part"]
    mix: Mix
    size_bytes: int

    @property
    def threads(self) -> dict[int, int]:
        """Number of threads per node."""
        return threads_by_node(self.parts)


def buffers_by_node(runs: Sequence[Run]) -> dict[int, list[int]]:
    """Return the bytes of each buffer shared by *runs*, by node.

    The nth thread of a run on a node uses the node's nth buffer, which is as large as any run needs.
    """
    buffers: dict[int, list[int]] = {}
    for run in runs:
        needed = run.size_bytes * BUFFERS[run.mix]
        for node, threads in run.threads.items():
            sizes = buffers.setdefault(node, [])
            sizes += [0] * (threads - len(sizes))
            sizes[:threads] = [max(size, needed) for size in sizes[:threads]]
    return buffers


def fill_s(runs: Sequence[Run]) -> float:
    """Return the time in s to fill the memory shared by *runs*: all nodes at the same time."""
    return max(
        max(max(sizes) / THREAD_FILL_BYTES_PER_S, sum(sizes) / NODE_FILL_BYTES_PER_S)
        for sizes in buffers_by_node(runs).values()
    )


def run_s(run: Run) -> float:
    """Return the cost in s of *run* besides its windows, including verification of what it wrote."""
    threads = run.threads
    proof_s = run.size_bytes * max(1 / THREAD_PROVE_BYTES_PER_S, max(threads.values()) / NODE_PROVE_BYTES_PER_S)
    return RUN_S + RUN_THREAD_S * sum(threads.values()) + (proof_s if run.mix in WRITTEN else 0)


def scan_s(runs: Sequence[Run], tries: int) -> float:
    """Return the duration in s of a search over so many settings of each of *runs*."""
    return PLACEMENT_S + fill_s(runs) + tries * sum(SCAN_S - RUN_S + run_s(run) for run in runs)


def shape_options(
    settings: TrafficSettings, shape: Shape | None, kept: ShapeReference | None, mix: Mix | None = None
) -> dict[str, object]:
    """Return sutprobe's options for the traffic shape.

    *shape* is the profile's. Without it, the shape *kept* for the platform is used: that for *mix* alone if only it is
    measured, else that for all mixes; without one, the default.
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
        return f"{format_cpulist(self.cpus)}@{self.node}"


def threads_by_node(parts: Sequence[Part]) -> dict[int, int]:
    """Return the number of threads of *parts* per node."""
    found: dict[int, int] = {}
    for part in parts:
        found[part.node] = found.get(part.node, 0) + len(part.cpus)
    return found


def group_text(parts: Sequence[Part], size_bytes: int | None = None) -> str:
    """Return sutprobe's name for threads that run together, with an optional buffer size."""
    return "+".join(map(str, parts)) + ("" if size_bytes is None else f":{size_bytes}")


def read_group(text: str) -> list[Part]:
    """Return the parts of *text*, made by ``group_text``. Raises ``InputError`` for any other text."""
    parts = []
    for stream in text.partition(":")[0].split("+"):
        cpus, _, node = stream.partition("@")
        try:
            parts.append(Part(parse_cpulist(cpus), int(node)))
        except ValueError as error:
            raise InputError(f"not a group (CPULIST@NODE[+CPULIST@NODE...]): {text!r}") from error
    return parts


def all_cpus(sut: Sut) -> list[Part]:
    """Return every usable CPU by node, paired with the nearest memory."""
    return [Part(tuple(sut.cpus_of(node)), sut.home(node)) for node in sut.cpu_nodes]


def buffer_bytes(sut: Sut, parts: Sequence[Part], mixes: Iterable[Mix]) -> int:
    """Return the buffer size per thread of *parts* in bytes: beyond the caches, within each node's memory."""
    return common_buffer_bytes(sut, [parts], mixes)


def common_buffer_bytes(sut: Sut, groups: Sequence[Sequence[Part]], mixes: Iterable[Mix]) -> int:
    """Return the same for the threads of any of *groups*."""
    buffers = max(BUFFERS[mix] for mix in mixes)
    wanted = max(memory_bound_thread_bytes(sut, parts) for parts in groups)
    return min(
        capped_bytes(sut, node, wanted, buffers=count * buffers)
        for parts in groups
        for node, count in threads_by_node(parts).items()
    )


def shared_buffer_bytes(sut: Sut, groups: Sequence[Sequence[Part]], mixes: Sequence[Mix]) -> list[int]:
    """Return the buffer size per thread of each of *groups*, which share the buffers of a placement.

    Few threads have larger buffers than many. If a node has no room for everyone's largest, all are limited to what
    fits.
    """
    sizes = [buffer_bytes(sut, parts, mixes) for parts in groups]
    runs = [Run(parts, max(mixes, key=buffers_of), size) for parts, size in zip(groups, sizes, strict=True)]
    for node, needed in buffers_by_node(runs).items():
        usable = sut.usable_bytes(node)
        if usable is not None and sum(needed) > usable:
            return [min(size, common_buffer_bytes(sut, groups, mixes)) for size in sizes]
    return sizes


def memory_bound_thread_bytes(sut: Sut, parts: Sequence[Part]) -> int:
    """Return the least buffer size in bytes at which each thread of *parts* reads from memory.

    As small as possible, because filling takes time: the threads that share a last-level cache together hold
    ``LLC_MULTIPLE`` times its size, and each thread that multiple of its core's own caches. If no shared cache is
    reported, the threads of a node together hold enough for an unreported one.
    """
    cpus = [cpu for part in parts for cpu in part.cpus]
    llc, sharers = sut.llc_bytes or 0, sut.fewest_per_llc(cpus)
    if sut.llc_is_private:
        llc, sharers = max(llc, ASSUMED_LLC_BYTES), min(threads_by_node(parts).values())
    return LLC_MULTIPLE * max(llc // sharers, sut.l2_bytes)


class TrafficDeclaration(Declaration[S, V]):
    """A kind whose steps run ``sutprobe bandwidth``."""

    def traffic_step(
        self,
        title: str,
        groups: Sequence[Sequence[Part]],
        mixes: Sequence[Mix],
        buffer_bytes: int | str | list[int],
        options: Mapping[str, object],
        *,
        cost_s: float,
        budget_s: float = 0.0,
        suffix: str = "",
    ) -> Step:
        """Return the step that runs each of *mixes* on each of *groups*, with buffers of *buffer_bytes* per thread.

        A list has one size for each group, a text several for all of them. Other parameters as for ``step``.
        """
        own = buffer_bytes if isinstance(buffer_bytes, list) else [None] * len(groups)
        return self.step(
            title,
            "bandwidth",
            {
                "group": [group_text(parts, size) for parts, size in zip(groups, own, strict=True)],
                "mix": ",".join(mixes),
                "buffer-bytes": max(buffer_bytes) if isinstance(buffer_bytes, list) else buffer_bytes,
                **options,
            },
            cpus=sorted({cpu for parts in groups for part in parts for cpu in part.cpus}),
            nodes=sorted({part.node for parts in groups for part in parts}),
            cost_s=cost_s,
            budget_s=budget_s,
            suffix=suffix,
        )


class Setting(Model):
    """The setting of a measured bandwidth."""

    threads: int
    streams: int
    prefetch_bytes: int
    width: str
    delay: int
    buffer_bytes: int


class Tried(Model):
    """One setting of a search, and its bandwidth in a few short windows."""

    mix: str
    group: str
    setting: Setting
    bandwidth_mb_s: Estimate


def setting_of(point: BandwidthPoint) -> Setting:
    """Return the setting of *point*."""
    return Setting(**shared_fields(Setting, point))


class MixBandwidth(Model):
    """Bandwidth of one mix in MB/s (10^6 bytes) by both accountings.

    ``bandwidth_mb_s`` counts what memory must move by the declared rule (a regular store reads its line first), as
    Intel MLC does; ``program_mb_s`` counts what the instructions ask for, as STREAM, likwid and lmbench do. ``counted``
    is what hardware counters counted at the same time, ``None`` if none were opened.
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
    """Return the bandwidth of *point*, with the counts beside it if the SUT's *context* is given.

    ``None`` if not measured.
    """
    if not point.placements:
        return None
    nodes = [part.node for part in read_group(point.group) for _ in part.cpus]
    per_thread = [placement.per_thread_mb_s for placement in point.placements]
    by_model, by_program = attrgetter("windows_mb_s"), attrgetter("program_windows_mb_s")
    return MixBandwidth(
        bandwidth_mb_s=estimate_of(point.placements, by_model, "MB/s", target_half_width),
        program_mb_s=estimate_of(point.placements, by_program, "MB/s", target_half_width),
        per_thread_mb_s=tuple(sum(column) / len(column) for column in zip(*per_thread, strict=True)),
        accounting=point.accounting,
        setting=setting_of(point),
        counted=None if context is None else bandwidth_counted(context, point, nodes),
    )


def search_results(points: Sequence[BandwidthPoint]) -> tuple[Tried, ...]:
    """Return what the search among *points* tried and saw; failed settings are left to ``missing``."""
    return tuple(
        Tried(
            mix=point.mix,
            group=point.group,
            setting=setting_of(point),
            bandwidth_mb_s=estimate([placement.windows_mb_s for placement in point.placements], "MB/s"),
        )
        for point in points
        if point.phase == "scan" and point.placements
    )


def missing_points(points: Sequence[BandwidthPoint]) -> tuple[Missing, ...]:
    """Return those of *points* without a value, and why."""
    return tuple(missing_part(f"{point.mix} on {point.group}", point.error) for point in points if point.error)


def traffic_flags(
    sut: Sut, document: ProbeDocument, points: Sequence[BandwidthPoint], measured: Mapping[str, MixBandwidth]
) -> Iterator[Flag]:
    """Yield the flags from *document* for *points*, and those of their values."""
    yield from size_flags(sut, min(point.buffer_bytes * sut.fewest_per_llc(point.cpus) for point in points))
    yield from evidence_flags(document, points)
    counted = [(name, mix.counted) for name, mix in measured.items() if mix.counted is not None]
    yield from counted_flags(counted)
    mixes = {point.mix for point in points if point.placements}
    yield from stores_flags(sut.context, mixes, counted=bool(counted))


def measured_points(
    points: Sequence[BandwidthPoint], target_half_width: float | None, context: Context | None = None
) -> list[tuple[BandwidthPoint, MixBandwidth]]:
    """Return those of *points* with a bandwidth, each with it and its counts on the SUT of *context*.

    Raises ``InputError`` if none has.
    """
    found = [(point, mix) for point in points if (mix := mix_bandwidth(point, target_half_width, context)) is not None]
    require_any(found, points, "point")
    return found


def best_points(
    points: Sequence[BandwidthPoint], target_half_width: float | None, context: Context | None = None
) -> dict[str, tuple[BandwidthPoint, MixBandwidth]]:
    """Return the fastest point of each mix among those measured in full after a search, with its bandwidth."""
    best: dict[str, tuple[BandwidthPoint, MixBandwidth]] = {}
    for point in (point for point in points if point.phase == "full"):
        mix = mix_bandwidth(point, target_half_width, context)
        before = best.get(point.mix)
        if mix and (before is None or mix.bandwidth_mb_s.value > before[1].bandwidth_mb_s.value):
            best[point.mix] = (point, mix)
    require_any(best, points, "point")
    return best
