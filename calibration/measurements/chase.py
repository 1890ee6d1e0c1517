# SPDX-License-Identifier: Apache-2.0
"""Common parts of the pointer-chase kinds: settings, cost, and parsing of ``sutprobe latency``."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, PositiveInt

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate
from calibration.base.validity import Flag, flag
from calibration.context.model import Context
from calibration.measurements.base import Declaration, HalfWidth, RepeatedSettings, Step, Values
from calibration.measurements.evidence import (
    Missing,
    document_flags,
    estimate_of,
    lost_flags,
    missing_part,
    missing_parts,
    only_point,
    placement_flags,
    undisturbed,
)
from calibration.measurements.instructions import without_flush
from calibration.measurements.sut import (
    ASSUMED_LLC_BYTES,
    CHAIN_BESIDE,
    LARGEST_CHASE_BYTES,
    MIB,
    Place,
    Sut,
    capped_bytes,
    memory_bound_bytes,
    size_flags,
    whole_pages,
)
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import KeepAwakeThread, LatencyPlacement, LatencyPoint, LatencyResult

LINK_NS = 23.0
"""Cost of shuffling, linking and verifying one node of a chain, for the expected duration only."""

WALK_S = 0.001
"""Core clock before and after, counters and system calls of one walk, for the expected duration only."""

Order = Annotated[str, Field(pattern="^(?:random|forward|backward)$")]
"""The order of a chain; part of metrics' names."""

ROUND_S = 0.03
"""Threads and clock settling in each placement, for the expected duration only."""

WARM_LAP_NODES, WARM_HOPS = 1 << 17, 20_000
"""A chain of at most this many nodes is walked once before the first window, a longer one for this many hops."""

HOP_NS = 150.0
"""Cost of one hop in memory, for the expected duration only."""

TOUCH_BYTES_PER_S = 4.0e9
"""Rate at which fresh pages are touched, for the expected duration only."""

CONDITION_DIFFERENCE = 0.01
"""Relative difference from which latencies with the package active and idle are two values: their repeatability."""

KEEP_AWAKE_MB_S_MIN = 100.0
"""A keep-awake thread that reads less (of 300 MB/s) has idle gaps between its requests, or lost its time slice."""


def no_keep_awake(context: Context) -> str:
    """Return why a machine is not measured with its packages active."""
    return without_flush(context) or "no CPU to keep the machine awake with: each is a sibling of one that measures"


KEEP_AWAKE_BYTES = MIB
"""Memory that a keep-awake thread reads, on its node."""

SETTLE_S = 0.02
"""Time that sutprobe lets the machine fall asleep or wake up before a walk, with keep-awake threads."""


class ChaseSettings(RepeatedSettings):
    """How often a chase is repeated in a round: *placements* fresh allocations with *windows* of *hops* loads each.

    Chains are at most *largest_bytes* long.
    """

    placements: PositiveInt = 2
    windows: PositiveInt = 5
    hops: PositiveInt = 200_000
    target_half_width: HalfWidth = 0.01
    largest_bytes: PositiveInt = LARGEST_CHASE_BYTES

    def options(self) -> dict[str, object]:
        """Return the options of sutprobe for these settings."""
        return {
            "placements": self.placements,
            "windows": self.windows,
            "hops": self.hops,
        }

    def random_options(self, sut: Sut, size_bytes: int) -> dict[str, object]:
        """Return the options of a random chase that visits each line of *size_bytes* once."""
        return {
            "size-bytes": size_bytes,
            "stride-bytes": sut.line_bytes,
            "order": "random",
            **self.options(),
        }

    def map_s(self, size_bytes: int) -> float:
        """Return the expected time in s to start the threads and map fresh memory, for all placements."""
        return self.placements * (ROUND_S + size_bytes / TOUCH_BYTES_PER_S)

    def build_s(self, size_bytes: int, stride_bytes: int = 64) -> float:
        """Return the expected time in s to build one point's chains in mapped memory, for all placements."""
        return self.placements * size_bytes / stride_bytes * LINK_NS * 1e-9

    def walk_hops(self, size_bytes: int, stride_bytes: int = 64, hops: int | None = None) -> int:
        """Return the number of hops of one walk, warm-up included."""
        nodes = size_bytes // stride_bytes
        return (nodes if nodes <= WARM_LAP_NODES else WARM_HOPS) + self.windows * (hops or self.hops)

    def walk_s(self, size_bytes: int, stride_bytes: int = 64, hop_ns: float = HOP_NS, hops: int | None = None) -> float:
        """Return the expected time in s to walk one point's existing chains, for all placements."""
        return self.placements * (WALK_S + self.walk_hops(size_bytes, stride_bytes, hops) * hop_ns * 1e-9)

    def chase_s(
        self, size_bytes: int, stride_bytes: int = 64, hop_ns: float = HOP_NS, hops: int | None = None
    ) -> float:
        """Return the expected time in s to build and walk one point's chains in mapped memory."""
        return self.build_s(size_bytes, stride_bytes) + self.walk_s(size_bytes, stride_bytes, hop_ns, hops)

    def setup_s(self, size_bytes: int) -> float:
        """Return the expected time in s until a CPU has built one chain in fresh memory, for all placements."""
        return self.map_s(size_bytes) + self.build_s(size_bytes)

    def idle_s(self, size_bytes: int, built_bytes: int, cells: int, keep_awake: Sequence[Place]) -> float:
        """Return the expected time in s of *cells* chases of *size_bytes*, each twice with *keep_awake* threads.

        *built_bytes* is the most that one CPU builds, one memory after another.
        """
        walks = 2 if keep_awake else 1
        settled_s = self.placements * SETTLE_S * walks if keep_awake else 0.0
        return self.setup_s(built_bytes) + settled_s + cells * walks * self.walk_s(size_bytes)


def chain_memory(sizes: Mapping[int, int], keep_awake: Sequence[Place] = ()) -> dict[int, int]:
    """Return the memory that chains of *sizes*, by node, take of each node while they are built, and *keep_awake*."""
    found = {node: whole_pages(size) + ceil(size * CHAIN_BESIDE) for node, size in sizes.items()}
    for thread in keep_awake:
        found[thread.node] = found.get(thread.node, 0) + KEEP_AWAKE_BYTES
    return found


def idle_bytes(sut: Sut, settings: ChaseSettings, node: int, cpus: int) -> int:
    """Return the size of chains in memory of *node* that *cpus* walk one after another.

    If one walk continues at the end of another, all of them together must stay short of the part of the chain that a
    last-level cache still holds from building it.
    """
    bound = memory_bound_bytes(sut, node, largest_bytes=settings.largest_bytes)
    if cpus == 1:
        return bound
    walked = cpus * 2 * settings.walk_hops(bound, sut.line_bytes) * sut.line_bytes
    wanted = max(bound, walked + (sut.llc_bytes or ASSUMED_LLC_BYTES))
    return capped_bytes(sut, node, min(settings.largest_bytes, wanted), beside=CHAIN_BESIDE)


def chain_flags(sut: Sut, points: Sequence[LatencyPoint]) -> Iterator[Flag]:
    """Yield a flag if chains of *points* may partly fit into a cache."""
    by_node = grouped((node, point.touched_bytes) for point in points for node in point.nodes)
    least = min(point.touched_bytes for point in points)
    yield from size_flags(sut, least, {node: min(sizes) for node, sizes in by_node.items()})


def lap_flags(sut: Sut, document: ProbeDocument, points: Sequence[LatencyPoint]) -> Iterator[Flag]:
    """Yield a flag if the CPUs of *points* walked into the part that the builder's cache may hold."""
    llc = sut.llc_bytes
    walks = 2 if keep_awake_of(points) else 1
    hops: dict[tuple[int, ...], int] = {}
    for point in points:
        walked = WARM_HOPS + document.parameters["windows"] * point.hops_per_window
        hops[point.nodes] = hops.get(point.nodes, 0) + walks * walked
    nodes = [
        point.chain_nodes
        for point in points
        if llc and hops[point.nodes] * point.stride_bytes + llc > point.touched_bytes
    ]
    if nodes and len({point.cpu for point in points}) > 1:
        yield flag(
            "BUFFER_TOO_SMALL",
            f"{max(hops.values())} loads of all CPUs along chains of {min(nodes)} lines: some of them may have come "
            "from the cache of the CPU that built a chain, or walked it before",
        )


def keep_awake_for(sut: Sut, cpus: Sequence[int], nodes: Sequence[int]) -> tuple[Place, ...]:
    """Return the keep-awake threads of chases from *cpus* to the memory of *nodes*.

    One per node: on a core of that node, or of the nearest to a node without CPUs, that is not measured, reading that
    node's memory. A node without a free core has none, and no node where lines cannot be flushed.
    """
    if without_flush(sut.context):
        return ()
    taken = {sibling for cpu in cpus for sibling in sut.siblings(cpu)}
    found = []
    for node in sorted({*nodes, *(sut.node_of(cpu) for cpu in cpus)}):
        near = sut.nearest(node, sut.cpu_nodes)
        spare = [cpu for cpu in sut.cpus_of(near) if cpu not in taken]
        if not spare:
            continue
        # not the lowest if avoidable: the machine's housekeeping runs there
        cpu = next((candidate for candidate in spare if candidate != min(sut.cpus)), spare[0])
        taken.update(sut.siblings(cpu))
        found.append(Place(cpu, sut.home(node)))
    return tuple(found)


Condition = Literal["package_idle", "package_active"]
"""State of the machine during an idle latency: idle, or busy enough that nothing sleeps."""


class IdleLatencies(NamedTuple):
    """Latency in ns per load with the package idle and, with keep-awake threads, active.

    ``condition`` is that of the value of record.     ``placements`` are those of that condition.
    """

    latency_ns: Estimate
    condition: Condition
    package_idle_ns: Estimate
    package_active_ns: Estimate | None
    placements: tuple[LatencyPlacement, ...]


def idle_latencies(point: LatencyPoint, target_half_width: float | None) -> IdleLatencies | None:
    """Return the latency of *point*; ``None`` if not measured.

    The value of record is that of the active package if the two differ, else that of the idle one.
    """
    if not point.placements:
        return None
    idle = _latency(point.placements, target_half_width)
    active_placements = tuple(
        moved for placement in point.placements if (moved := placement.when_package_active) is not None
    )
    active = _latency(active_placements, target_half_width) if active_placements else None
    if active is not None and active.apart(idle) and abs(active.value / idle.value - 1) > CONDITION_DIFFERENCE:
        return IdleLatencies(active, "package_active", idle, active, active_placements)
    return IdleLatencies(idle, "package_idle", idle, active, point.placements)


def latency_of(point: LatencyPoint, target_half_width: float | None) -> Estimate | None:
    """Return the latency of *point* in ns per load; ``None`` if not measured."""
    return _latency(point.placements, target_half_width) if point.placements else None


def _latency(placements: Sequence[LatencyPlacement], target_half_width: float | None) -> Estimate:
    """Return the latency of *placements* without interrupted windows."""
    return estimate_of(
        placements,
        lambda placement: undisturbed(placement.windows_ns, set(placement.dirty_windows)),
        "ns",
        target_half_width,
    )


def at(cpu: int, nodes: Sequence[int]) -> str:
    """Return a place in sutprobe's form: memory of one node, or interleaved over several."""
    return f"{cpu}@{'+'.join(map(str, nodes))}"


def strided(point: LatencyPoint) -> str:
    """Return stride, order and place of *point*, to name it if it is missing."""
    return f"stride {point.stride_bytes}, {point.order}, {at(point.cpu, point.nodes)}"


def missing_places(points: Sequence[LatencyPoint]) -> tuple[Missing, ...]:
    """Return those of *points* without a value, and why."""
    return missing_parts(points, lambda point: at(point.cpu, point.nodes))


def chase_flags(
    document: ProbeDocument, points: Sequence[LatencyPoint], latencies: Sequence[IdleLatencies] | None = None
) -> Iterator[Flag]:
    """Yield the flags from *document* for *points*, or for those of them that became *latencies*."""
    yield from document_flags(document)
    placements = [placement for made in latencies or points for placement in made.placements or ()]
    proved = all(
        point.chain_proved and (point.order_check is None or point.order_check.passed is not False)
        for point in points
        if point.error is None
    )
    yield from placement_flags(document, placements, proved=proved)
    yield from lost_flags(points)


def keep_awake_of(points: Sequence[LatencyPoint]) -> tuple[KeepAwakeThread, ...]:
    """Return the keep-awake threads of *points*, each with its median read rate."""
    rates = grouped(
        ((thread.cpu, thread.node), thread.mb_s)
        for point in points
        for placement in point.placements or ()
        for thread in (() if placement.package_active is None else placement.package_active.keep_awake)
    )
    return tuple(KeepAwakeThread(cpu=cpu, node=node, mb_s=median(found)) for (cpu, node), found in rates.items())


def keep_awake_flags(keep_awake: Sequence[KeepAwakeThread]) -> Iterator[Flag]:
    """Yield a flag if one of *keep_awake* read too little to keep the machine awake."""
    slow = min(keep_awake, key=lambda thread: thread.mb_s, default=None)
    if slow is not None and slow.mb_s < KEEP_AWAKE_MB_S_MIN:
        yield flag(
            "KEEP_AWAKE_SLOW", f"CPU {slow.cpu} read {slow.mb_s:.0f} MB/s from node {slow.node} as a keep-awake thread"
        )


def core_hz_of(points: Sequence[LatencyPoint | IdleLatencies]) -> float | None:
    """Return the core clock in Hz of *points*: the median over all placements, before and after."""
    measured = [
        hz
        for point in points
        for placement in point.placements or ()
        for hz in (placement.core_hz_before, placement.core_hz_after)
    ]
    return median(measured) if measured else None


C = TypeVar("C", bound=ChaseSettings)
V = TypeVar("V", bound=Values)


class NearChase(NamedTuple):
    """The latency of the only ``point`` of an answer, the fields of its values that say where, and its flags."""

    point: LatencyPoint
    latency: IdleLatencies
    fields: dict[str, Any]
    flags: tuple[Flag, ...]


class NearChaseDeclaration(Declaration[C, V]):
    """A kind of one random chase from the measuring CPU of the first node with CPUs on the nearest memory or other."""

    def chase(
        self, sut: Sut, settings: C, more: Mapping[str, object] | None = None, memory_node: int | None = None
    ) -> tuple[Step, tuple[Place, ...]]:
        """Return the step, with *more* options, and the keep-awake threads beside it.

        On the memory of *memory_node* in place of the nearest, if given.
        """
        node = sut.cpu_nodes[0]
        place = Place(sut.measuring_cpu(node), sut.home(node) if memory_node is None else memory_node)
        size_bytes = idle_bytes(sut, settings, place.node, 1)
        keep_awake = keep_awake_for(sut, (place.cpu,), (place.node,))
        options = {"at": place, **settings.random_options(sut, size_bytes), "keep-awake": list(keep_awake)}
        step = self.step(
            f"CPU {place.cpu}, memory of node {place.node}",
            "latency",
            {**options, **(more or {})},
            cpus=(place.cpu,),
            memory_bytes=chain_memory({place.node: size_bytes}, keep_awake),
            tasks=1 + len(keep_awake),
            cost_s=settings.idle_s(size_bytes, size_bytes, 1, keep_awake),
            setup_s=settings.setup_s(size_bytes),
            repeated=settings,
            suffix="" if memory_node is None else f"-node{memory_node}",
        )
        return step, keep_awake

    def chased(self, document: ProbeDocument, step: Step, sut: Sut) -> NearChase:
        """Return what *document* says. Raises ``InputError`` unless it has one point with a value."""
        point: LatencyPoint = only_point(read_result(document, LatencyResult).points, step.id)
        latency = idle_latencies(point, step.target_half_width)
        if latency is None:
            raise InputError(missing_part("", point.error).reason)
        keep_awake = keep_awake_of([point])
        fields = {
            "cpu": point.cpu,
            "node": point.nodes[0],
            "size_bytes": point.size_bytes,
            "page": latency.placements[0].pages.obtained,
            "condition": latency.condition,
            "keep_awake": keep_awake,
        }
        flags = (
            *chase_flags(document, [point], [latency]),
            *keep_awake_flags(keep_awake),
            *chain_flags(sut, [point]),
        )
        return NearChase(point, latency, fields, flags)
