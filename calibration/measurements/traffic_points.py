# SPDX-License-Identifier: Apache-2.0
"""Measured bandwidths: the points of a document of sutprobe bandwidth as values, with flags."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from calibration.base.model import Model, shared_fields
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag
from calibration.context.model import Context
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.measurements.counting import bandwidth_counted
from calibration.measurements.evidence import Missing, estimate_of, evidence_flags, missing_parts, require_any
from calibration.measurements.platform import Setting
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import Sut, size_flags
from calibration.measurements.traffic import group_text, held_by_node, read_group, read_sizes
from calibration.sutprobe.bandwidth import Accounting, BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result


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


def looks_of(document: ProbeDocument) -> tuple[BandwidthPoint, ...]:
    """Return the settings that the search looked at before *document* was measured; none if there was no search."""
    return tuple(point for search in document.beside for point in read_result(search, BandwidthResult).points)


def search_results(looks: Sequence[BandwidthPoint]) -> tuple[Tried, ...]:
    """Return what a search tried and saw in its *looks*; failed settings are left to ``missing``."""
    return tuple(
        Tried(
            mix=point.mix,
            group=point.group,
            setting=setting_of(point),
            bandwidth_mb_s=estimate([placement.windows_mb_s for placement in point.placements], "MB/s"),
        )
        for point in looks
        if point.placements
    )


def missing_points(points: Sequence[BandwidthPoint]) -> tuple[Missing, ...]:
    """Return those of *points* without a value, and why."""
    return missing_parts(points, lambda point: f"{point.mix} on {point.group}")


def traffic_flags(
    sut: Sut, document: ProbeDocument, points: Sequence[BandwidthPoint], measured: Mapping[str, MixBandwidth]
) -> Iterator[Flag]:
    """Yield the flags from *document* for *points*, and those of their values."""
    own = {group_text(read_group(word)): read_sizes(word) for word in document.parameters["group"]}
    groups = [(point, read_group(point.group)) for point in points]
    sized = [(point, parts, own.get(group_text(parts)) or [point.buffer_bytes] * len(parts)) for point, parts in groups]
    together = min(
        size * sut.fewest_per_llc(part.cpus, point.cpus)
        for point, parts, sizes in sized
        for part, size in zip(parts, sizes, strict=True)
    )
    yield from size_flags(sut, together, held_by_node((parts, sizes) for _, parts, sizes in sized))
    yield from evidence_flags(document, points)
    counted = [(name, mix.counted) for name, mix in measured.items() if mix.counted is not None]
    yield from counted_flags(counted)
    mixes = {point.mix for point in points if point.placements}
    instructions = {mix.setting.instruction for mix in measured.values()}
    yield from stores_flags(sut.context, mixes, counted=bool(counted), instructions=instructions)


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
) -> tuple[list[BandwidthPoint], dict[str, MixBandwidth]]:
    """Return the fastest of *points* of each mix, and the bandwidths by mix, in the same order."""
    best: dict[str, tuple[BandwidthPoint, MixBandwidth]] = {}
    for point in points:
        mix = mix_bandwidth(point, target_half_width, context)
        before = best.get(point.mix)
        if mix and (before is None or mix.bandwidth_mb_s.value > before[1].bandwidth_mb_s.value):
            best[point.mix] = (point, mix)
    require_any(best, points, "point")
    return [point for point, _ in best.values()], {name: mix for name, (_, mix) in best.items()}
