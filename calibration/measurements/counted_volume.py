# SPDX-License-Identifier: Apache-2.0
"""Counted volume: whether the memory controllers count a known volume correctly.

Method: C. Helm and K. Taura, *Measurement of Main Memory Bandwidth and Memory Access Latency in Intel Processors*: the
traffic of STREAM's triad is known exactly, and is compared with the counters.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import PositiveInt

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import shared_fields
from calibration.base.statistics import Estimate, estimate
from calibration.base.units import fixed, plural
from calibration.base.validity import Flag, flag
from calibration.charts.bars import bar_chart
from calibration.charts.base import Chart, Json, rounded
from calibration.counters.volume import (
    CountedBytes,
    CounterReading,
    Direction,
    Moved,
    counted_bytes,
    counted_flags,
    moved_altogether,
    triad_bytes,
)
from calibration.measurements.base import (
    Declaration,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Settings,
    Step,
    Values,
)
from calibration.measurements.counting import (
    BACKGROUND_ONCE_S,
    BYTE_ROLES,
    event_options,
    served_nodes,
    shares_of,
    units,
)
from calibration.measurements.evidence import document_flags, interference_flags
from calibration.measurements.metric_rows import BANDWIDTH_REPEATS, DISTURBED, MEMORY_TRAFFIC, MetricRow, fraction
from calibration.measurements.sut import Sut, capped_bytes, size_flags
from calibration.measurements.traffic import (
    NODE_FILL_BYTES_PER_S,
    all_cpus,
    group_text,
    held_by_node,
    mapped_bytes,
    read_group,
    threads_by_node,
)
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.volume import VolumeKnown, VolumeResult

DIRECTIONS: dict[Direction, str] = {"reads": "read", "writes": "written", "reads_and_writes": "read and written"}

ARRAYS = 3
"""The triad reads two and writes one."""

ARRAY_MULTIPLE = 4096
"""An array is whole pages of base size."""


class CountedVolumeSettings(Settings):
    """*repeats* of *passes* triads over three arrays of *array_bytes*, over all threads.

    *counters* opens those of the memory controllers if available.
    """

    array_bytes: PositiveInt = 610_400_000
    passes: PositiveInt = 10
    repeats: PositiveInt = 6
    width: Literal["auto", "sse2", "avx2", "avx512", "neon", "sve", "generic"] = "auto"
    counters: bool = True


class CountedVolumeValues(Values):
    """The known traffic of a repeat, the duration of each, and the counts over all of them.

    ``known`` is per repeat: ``init`` writes all arrays once, ``triad`` is all ``passes``. ``counted`` is ``None``
    without hardware counters. ``triad_s`` is the time of all passes of one repeat.
    """

    kind: Literal["counted_volume"] = "counted_volume"
    group: str
    threads: int
    array_bytes: int
    passes: int
    repeats: int
    known: VolumeKnown
    triad_s: Estimate
    counted: CountedBytes | None


class CountedVolume(Declaration[CountedVolumeSettings, CountedVolumeValues]):
    """STREAM's triad on all CPUs, with known traffic."""

    title = "Counted volume"
    question = "Do the memory controllers count the bytes that are known to be moved?"
    once = True
    metric_rows = (
        MetricRow(
            "counted_volume.triad_s",
            "all triads of one repeat, on all CPUs",
            "mixed_bandwidth",
            "s",
            "lower",
            BANDWIDTH_REPEATS,
            MEMORY_TRAFFIC,
        ),
        fraction(
            "counted_volume.{mix:reads|writes|reads_and_writes}.difference",
            "by how much the bytes that the memory controllers counted differ from those known to be moved, either way",
            "mixed_bandwidth",
            better="lower",
            tolerance=DISTURBED,
            depends=MEMORY_TRAFFIC,
        ),
    )

    def steps(self, sut: Sut, settings: CountedVolumeSettings) -> Iterator[Planned]:
        """Yield one command on all CPUs, each with its part of the arrays on the nearest memory."""
        parts = all_cpus(sut)
        counters = event_options(sut.context, BYTE_ROLES, background_s=BACKGROUND_ONCE_S) if settings.counters else {}
        threads = sum(len(part.cpus) for part in parts)
        wanted = -(-settings.array_bytes // threads // ARRAY_MULTIPLE) * ARRAY_MULTIPLE
        held = threads_by_node(parts)
        array_bytes = min(
            wanted, *(capped_bytes(sut, node, wanted, buffers=ARRAYS * count) for node, count in held.items())
        )
        moved = triad_bytes(array_bytes * threads, settings.passes, allocates=True)
        cost_s = settings.repeats * (moved.read_bytes + moved.written_bytes) / NODE_FILL_BYTES_PER_S * 2
        yield self.step(
            f"{settings.passes} triads, {plural(threads, 'thread')}",
            "volume",
            {
                "group": group_text(parts),
                "array-bytes": array_bytes,
                "passes": settings.passes,
                "repeats": settings.repeats,
                "width": settings.width,
                **counters,
            },
            cpus=sorted(sut.cpus),
            memory_bytes={node: count * mapped_bytes(ARRAYS * array_bytes) for node, count in held.items()},
            cost_s=cost_s,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the volume, with the counts if any."""
        del step
        result = read_result(document, VolumeResult)
        known = moved_altogether(result.known)
        if not result.repeats:
            raise InputError("no repeat of the triads")
        parts = read_group(result.group)
        nodes = [part.node for part in parts for _ in part.cpus]
        shares = shares_of(nodes, [1.0] * len(nodes))
        readings = [
            CounterReading(counters=repeat.counters, moved=known, per_step=False, shares=shares)
            for repeat in result.repeats
            if repeat.counters is not None
        ]
        counted = counted_bytes(readings, units(sut.context), served_nodes(sut.context))
        yield Parsed(
            values=CountedVolumeValues(
                **shared_fields(CountedVolumeValues, result) | {"repeats": len(result.repeats)},
                triad_s=estimate([[repeat.triad_seconds] for repeat in result.repeats], "s"),
                counted=counted,
            ),
            flags=(
                *document_flags(document),
                *_proof_flags(result, known),
                *interference_flags(
                    [repeat.interference for repeat in result.repeats], f"of {len(result.repeats)} repeats"
                ),
                *size_flags(
                    sut,
                    ARRAYS * result.array_bytes * sut.fewest_per_llc(result.cpus),
                    held_by_node([(parts, ARRAYS * result.array_bytes)]),
                ),
                *(() if counted is None else counted_flags([("the triads", counted)])),
            ),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the known and the counted bytes (GB) of one repeat by direction, if any were counted.

        Known reads include lines that are read only to be written.
        """
        for measurement in run.of(self.kind):
            if rows := list(_bars(measurement.values)):
                sizes = grouped((row["g"], f"{row['t']} GB {row['s'].partition(':')[0]}") for row in rows)
                yield bar_chart(
                    measurement.id,
                    rows,
                    ("Volume", "GB"),
                    alt="Volume of one repeat",
                    values=[f"{direction} {', '.join(found)}" for direction, found in sizes.items()],
                    caption="Of one repeat. Write-allocate reads count as read.",
                    measurements=[measurement],
                )

    def metrics(self, values: CountedVolumeValues) -> Iterator[Metric]:
        """Yield the time of the triads, and the relative difference of counted from moved bytes in each direction."""
        yield self.metric("triad_s", "Triads of known volume, time", values.triad_s)
        for direction in values.counted.directions if values.counted is not None else ():
            if direction.ratio is not None:
                off = estimate([[abs(ratio - 1) for ratio in sample] for sample in direction.ratio.samples], "fraction")
                title = f"Bytes counted against bytes moved, {direction.direction.replace('_', ' ')}, difference"
                yield self.metric(f"{direction.direction}.difference", title, off)


def _proof_flags(result: VolumeResult, known: Moved) -> Iterator[Flag]:
    """Yield what is wrong with the proof of the work."""
    worked_out = triad_bytes(result.array_bytes * result.threads, result.passes, allocates=known.allocate_bytes > 0)
    if worked_out != known:
        yield flag(
            "WORK_UNPROVED",
            f"{known.read_bytes:.0f} bytes read and {known.written_bytes:.0f} written as reported by sutprobe, "
            f"{worked_out.read_bytes:.0f} and {worked_out.written_bytes:.0f} by calculation",
        )
    if wrong := sum(not repeat.checked for repeat in result.repeats):
        yield flag("WORK_UNPROVED", f"the arrays did not hold what the triads make in {wrong} repeats")
    if astray := sum(not repeat.cpus_verified for repeat in result.repeats):
        yield flag(
            "CPU_UNVERIFIED", f"a thread was not on its CPU at the end in {astray} of {len(result.repeats)} repeats"
        )
    pages = result.pages
    if pages.on_node < pages.checked:
        yield flag("PLACEMENT_WRONG", f"{pages.on_node} of {pages.checked} pages checked lie on the wanted node")


def _bars(values: CountedVolumeValues) -> Iterator[Json]:
    """Yield a bar for the known bytes of each counted direction, and for each count."""
    if values.counted is None:
        return
    phases = (values.known.triad, values.known.init)
    read = sum(phase.program_read_bytes + phase.allocate_read_bytes for phase in phases)
    written = sum(phase.program_written_bytes for phase in phases)
    known: dict[Direction, int] = {"reads": read, "writes": written, "reads_and_writes": read + written}
    by_cores = [other for other in values.counted.others if other.role == "core.offcore_reads"]
    for direction, known_bytes in known.items():
        counter = values.counted.of(direction)
        counted = [] if counter is None else [("counted by the memory controllers", counter.counted_bytes)]
        if direction == "reads":
            counted += [("read from local memory, by the cores' count", core.counted_bytes) for core in by_cores]
        sizes = [(by, size / values.repeats) for by, size in counted]
        if counted:
            sizes.insert(0, (f"known: {values.passes} triads and initialisation", known_bytes))
        for by, size in sizes:
            yield {"g": DIRECTIONS[direction], "s": by, "v": rounded(size / 1e9), "t": fixed(size / 1e9, 3)}
