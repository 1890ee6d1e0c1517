# SPDX-License-Identifier: Apache-2.0
"""Bandwidth ladder: bandwidth of one CPU and of all CPUs at each level of the memory hierarchy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.model import Model
from calibration.base.statistics import Estimate
from calibration.charts.base import Chart
from calibration.charts.curves import MEDIANS, SIZES, Axis, curves_of, line_chart
from calibration.measurements.base import GridValues, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.evidence import evidence_flags, missing_parts
from calibration.measurements.metric_rows import CACHES, bandwidth
from calibration.measurements.platform import ChosenShape, Setting, Shape, Threads
from calibration.measurements.sut import Place, Sut, side_cache_flags
from calibration.measurements.traffic import (
    ANY_MIX,
    DEFAULT_SHAPE,
    Mix,
    Part,
    TrafficDeclaration,
    TrafficSettings,
    all_cpus,
    buffers_of,
    held_by_node,
    read_group,
    shape_options,
    threads_by_node,
)
from calibration.measurements.traffic_points import measured_points
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

PAGE_BYTES = 4096
"""Buffers are whole pages of this size; sutprobe requires it."""

STEPS = (
    (1, 1, 2),
    (1, 2, 1),
    (2, 1, 2),
    (2, 1, 1),
    (2, 2, 1),
    (3, 1, 4),
    (3, 1, 2),
    (3, 1, 1),
    (3, 2, 1),
    (3, 4, 1),
    (4, 1, 2),
    (4, 4, 1),
)
"""Level and buffer size as a fraction of it: sc-membench's table, from half a level to well beyond it."""


BEYOND = 4
"""What the last level is multiplied by for memory; a level before it would be memory in the one behind it."""

LEVELS = {"L1/2": "L1", "L2/2": "L2", "L3/2": "L3", "4 x L3": "memory", "4 x L4": "memory"}
"""The sizes whose values stand for a level; the others show the transitions."""

WHO = f"{{cpus:one_CPU|all_CPUs}}.{{mix:{ANY_MIX}}}"
"""Labels of the metrics, besides the level."""


class BandwidthLadderSettings(TrafficSettings):
    """Each of *mixes* at each size, by one CPU and, with *all_cpus*, by all.

    In one *shape*; by default with the streams kept for the platform at the cache level that a size lies in.
    """

    windows: PositiveInt = 3
    window_s: PositiveFloat = 0.01
    target_half_width: HalfWidth = 0.03
    mixes: tuple[Mix, ...] = ("reads", "write", "copy")
    shape: Shape | None = None
    all_cpus: bool = True


class CacheShare(Model):
    """A cache as reported by the kernel, the threads here that share it, and the share of each."""

    level: int
    reported_bytes: int
    threads: int
    share_bytes: int


class BandwidthLadderValues(GridValues):
    """Bandwidth in MB/s of program bytes by one CPU, or by all CPUs at once (``group``), with ``threads`` threads.

    ``size_bytes`` is one buffer of one thread, ``working_set_bytes`` all buffers of one thread; ``names`` are the
    fractions of reported caches that the size stands for.
    """

    kind: Literal["bandwidth_ladder"] = "bandwidth_ladder"
    group: str
    threads: int
    caches: tuple[CacheShare, ...]

    axes: ClassVar = {"mix": str, "size_bytes": int}
    columns: ClassVar = {
        "names": tuple[str, ...],
        "working_set_bytes": int,
        "program_mb_s": Estimate,
        "setting": Setting,
    }


class BandwidthLadder(TrafficDeclaration[BandwidthLadderSettings, BandwidthLadderValues]):
    """Traffic in buffers from half the first-level cache to well beyond the last."""

    title = "Bandwidth ladder"
    question = "What do one CPU and all CPUs move at each level of the memory hierarchy?"
    metric_rows = (
        *(
            bandwidth(
                f"bandwidth_ladder.{WHO}.{{level:{level}}}.program_mb_s",
                "bandwidth of one CPU, or of all, in a cache with the streams best in it, by mix",
                level,
                depends=frozenset({"caches", "clock", "threads"}),
            )
            for level in CACHES
        ),
        bandwidth(
            f"bandwidth_ladder.{WHO}.{{level:memory}}.program_mb_s",
            "bandwidth of one CPU, or of all, in memory with the streams best in it, by mix",
            "mixed_bandwidth",
        ),
    )

    def steps(self, sut: Sut, settings: BandwidthLadderSettings) -> Iterator[Planned]:
        """Yield one step with the measuring CPU of the first node, and one with all CPUs.

        If the profile has no shape, sizes within a cache use the streams kept for its level.
        """
        for threads, parts in ladder_groups(sut).items():
            if threads == "all" and not settings.all_cpus:
                continue
            who = f"CPU {parts[0].cpus[0]}" if threads == "one" else f"all {len(sut.cpus)} CPUs"
            sizes = tuple(ladder(sut, parts, settings.mixes))
            if not sizes:
                yield self.not_planned("the kernel reports no cache whose size it knows")
                return
            chosen = {} if sut.traffic_shape is None else sut.traffic_shape.level_shapes(threads)
            caches = tuple(shares(sut, parts))
            yield self.traffic_step(
                f"{who}, {units.plural(len(sizes), 'size')} x {units.plural(len(settings.mixes), 'mix')}",
                [parts],
                settings.mixes,
                sizes,
                {"delay": 0, **settings.options(), **ladder_shapes(settings, caches, sizes, chosen)},
                cost=settings.cost_s,
                repeated=settings,
                suffix="" if threads == "one" else "-all",
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the curves; a size that could not be measured is named as missing."""
        points = read_result(document, BandwidthResult).points
        target = step.target_half_width
        found = measured_points(points, target)
        first = points[0]
        parts = read_group(first.group)
        names = ladder(sut, parts, tuple(dict.fromkeys(point.mix for point in points)))
        table = BandwidthLadderValues.table_of(
            {
                "mix": point.mix,
                "size_bytes": point.buffer_bytes,
                "names": names.get(point.buffer_bytes, ()),
                "working_set_bytes": point.buffer_bytes * buffers_of(point.mix),
                # both accountings of a mix differ by a constant factor, so they meet the target together
                "program_mb_s": mix.program_mb_s.model_copy(update={"converged": mix.bandwidth_mb_s.converged}),
                "setting": mix.setting,
            }
            for point, mix in found
        )
        yield Parsed(
            values=BandwidthLadderValues(
                group=first.group,
                threads=first.threads,
                caches=tuple(shares(sut, parts)),
                table=table,
            ),
            flags=(
                *evidence_flags(document, points),
                *side_cache_flags(sut, held_by_node([(parts, max(point.buffer_bytes for point in points))])),
            ),
            missing=missing_parts(points, lambda point: f"{point.mix} on {point.group}, {point.buffer_bytes} bytes"),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield bandwidth (GB/s of program bytes) against the size of a thread's buffer, a curve per mix."""
        measurement = run.of(self.kind)[-1]
        values = measurement.values
        yield line_chart(
            measurement.id,
            [measurement],
            curves_of((point.mix, (float(point.size_bytes), point.program_mb_s)) for point in values.points),
            (SIZES("Buffer of one thread"), Axis("Bandwidth", "GB/s", kind="decades", scale=1e3)),
            marked=[
                (float(cache.share_bytes), f"L{cache.level} {units.size(cache.share_bytes)}") for cache in values.caches
            ],
            alt=f"Bandwidth of {units.plural(values.threads, 'thread')} against the size of each one's buffer, by mix",
            caption=f"{MEDIANS} Dashed lines are a thread's share of the caches.",
        )

    def metrics(self, values: BandwidthLadderValues) -> Iterator[Metric]:
        """Yield the bandwidth of each level, from the buffers that surely fit it."""
        who = "one CPU" if values.threads == 1 else "all CPUs"
        for point in values.points:
            for level in (LEVELS[name] for name in point.names if name in LEVELS):
                yield self.metric(
                    f"{who.replace(' ', '_')}.{point.mix}.{level}.program_mb_s",
                    f"{level} bandwidth of {who}, {point.mix}",
                    point.program_mb_s,
                )


def ladder_groups(sut: Sut) -> dict[Threads, list[Part]]:
    """Return who measures: the measuring CPU of the first node, and all CPUs if there are several."""
    place = Place(sut.measuring_cpu(sut.cpu_nodes[0]), sut.home(sut.cpu_nodes[0]))
    groups: dict[Threads, list[Part]] = {"one": [Part((place.cpu,), place.node)]}
    if len(sut.cpus) > 1:
        groups["all"] = all_cpus(sut)
    return groups


def ladder_shapes(
    settings: BandwidthLadderSettings,
    caches: Sequence[CacheShare],
    sizes: Sequence[int],
    chosen: Mapping[tuple[int, str], ChosenShape],
) -> dict[str, object]:
    """Return sutprobe's options for the shape of each mix and size: the profile's, else the one *chosen* for its level.

    Beyond the *caches*, or without a choice, it is the default. Sizes may differ in their streams only.
    """
    if settings.shape is not None or not chosen:
        return shape_options(settings, settings.shape, None, settings.mixes)
    streams = [
        chosen.get((level_of(caches, size) or 0, mix), DEFAULT_SHAPE).streams
        for mix in settings.mixes
        for size in sizes
    ]
    counts = sorted(set(streams))
    words: dict[str, object] = {"streams": ",".join(map(str, counts)), "prefetch-bytes": 0}
    if len(counts) > 1:
        # sutprobe counts settings by mix, size and streams, the last fastest
        words["only"] = ",".join(str(place * len(counts) + counts.index(own)) for place, own in enumerate(streams))
    width = next(iter(chosen.values())).width if settings.width == "auto" else settings.width
    return {**words, "width": width}


def level_sizes(sut: Sut, parts: Sequence[Part], mixes: Iterable[str]) -> dict[int, int]:
    """Return the size in bytes that stands for each cache level, by level; those that the ladder of *parts* has."""
    return {
        int(LEVELS[name].removeprefix("L")): size
        for size, names in ladder(sut, parts, mixes).items()
        for name in names
        if LEVELS.get(name, "memory") != "memory"
    }


def level_of(caches: Sequence[CacheShare], size_bytes: int) -> int | None:
    """Return the nearest level whose share holds a buffer of *size_bytes*, ``None`` for memory."""
    return next((cache.level for cache in caches if cache.share_bytes >= size_bytes), None)


def ladder(sut: Sut, parts: Sequence[Part], mixes: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the sizes in bytes of one buffer of one thread of *parts*, and their names.

    A cache shared by several of the threads is divided among them, so "L3/2" is half of it in total; a thread alone has
    all of it. Sizes are whole pages; equal ones are measured once under all their names; sizes that do not fit into
    memory for all threads at once are omitted.

    Fractions of a cache whose share is smaller than the level below are omitted too: that level would serve them.
    """
    share = {part.level: part.share_bytes for part in shares(sut, parts)}
    buffers = max(map(buffers_of, mixes))
    room = [
        usable // (count * buffers)
        for node, count in threads_by_node(parts).items()
        if (usable := sut.usable_bytes(node)) is not None
    ]
    found: dict[int, tuple[str, ...]] = {}
    for level, times, divisor in STEPS:
        if level not in share or (times == BEYOND and level != max(share)):
            continue
        size = share[level] * times // divisor // PAGE_BYTES * PAGE_BYTES
        if size < PAGE_BYTES or size > min(room, default=size) or size <= share.get(level - 1, 0):
            continue
        name = f"{f'{times} x ' if times > 1 else ''}L{level}{f'/{divisor}' if divisor > 1 else ''}"
        found[size] = (*found.get(size, ()), name)
    return dict(sorted(found.items()))


def shares(sut: Sut, parts: Sequence[Part]) -> Iterator[CacheShare]:
    """Yield each thread's share of each cache of known size, smallest level first."""
    cpus = frozenset(cpu for part in parts for cpu in part.cpus)
    for cache in sorted(sut.context.caches, key=lambda reported: reported.level):
        if cache.type != "Instruction" and cache.size_bytes is not None:
            threads = _sharers(sut, cache.shared_cpus, cache.level, cpus)
            yield CacheShare(
                level=cache.level,
                reported_bytes=cache.size_bytes,
                threads=threads,
                share_bytes=cache.size_bytes // threads,
            )


def _sharers(sut: Sut, shared: Sequence[int] | None, level: int, cpus: frozenset[int]) -> int:
    """Return how many of *cpus* share a cache of *level* with a CPU; *shared* are those that the context lists.

    The context has the caches of one CPU; the others' are assumed to be shared by as many.
    """
    if not shared:
        return 1
    if 1 < level == max(cache.level for cache in sut.context.caches):
        return sut.fewest_per_llc(cpus)
    return len(cpus & frozenset(shared)) or min(len(shared), len(cpus))
