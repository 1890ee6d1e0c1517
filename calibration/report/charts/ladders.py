# SPDX-License-Identifier: Apache-2.0
"""Charts of caches: latency and bandwidth against the size of what is touched."""

from collections.abc import Sequence

from calibration.context.model import Cache
from calibration.measurements.bandwidth_ladder import BandwidthLadderValues
from calibration.measurements.latency_ladder import LatencyLadderValues, Level
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.report import filters
from calibration.report.charts import base, curves
from calibration.report.charts.base import WIDE, Chart, invalid_text, values_of
from calibration.report.charts.curves import Axis, Curve
from calibration.results.model import Measurement

LATENCY = Axis("Latency, ns per load", kind="decades")

SERIES = {"random": "", "prefetched": "prefetched: ", "interleaved": "interleaved: ", "copies": ""}
"""What the name of a curve begins with."""

LEVEL_NEAR = 0.15
"""A point is drawn as part of a level whose latency it has within this share."""


def latency_ladder(
    measurements: Sequence[Measurement], caches: Sequence[Cache], *, width: int = WIDE, name: str = "latency_ladder"
) -> Chart:
    """Return latency (ns) against working-set size (bytes), with the levels found and the *caches* reported."""
    lines: dict[str, list[curves.Point]] = {}
    levels: dict[tuple[str, str], tuple[float, float, float]] = {}  # runs of several series find the same ones
    for values in sorted(
        values_of(LatencyLadderValues, *measurements), key=lambda each: list(SERIES).index(each.series)
    ):
        for point in values.points:
            title = f"{SERIES[values.series]}{point.order}, stride {filters.size(point.stride_bytes)}"
            if values.series == "copies":
                title = f"{len(values.cpus)} copies, {title}"
            lines.setdefault(title, []).append((float(point.size_bytes), point.latency_ns))
        for start, end, level in _levels(values):
            levels[filters.level(level.name, level.size_bytes), filters.significant(level.latency_ns.value, 2)] = (
                start,
                end,
                level.latency_ns.value,
            )
    reported = [
        (float(each.size_bytes), f"L{each.level}{'d' if each.type == 'Data' else ''} {filters.size(each.size_bytes)}")
        for each in caches
        if each.type != "Instruction" and each.size_bytes
    ]
    found = [(*stretch, name) for (name, _), stretch in levels.items()]
    named = "; ".join(f"{name} {base.shown(value, 'ns')}" for _, _, value, name in found)
    return Chart(
        name=name,
        spec=curves.line_chart(
            [Curve(title, tuple(points)) for title, points in lines.items()],
            curves.SIZES("Working set"),
            LATENCY,
            width=width,
            marked=reported,
            named=[(start, end, value, f"{title} {base.shown(value, 'ns')}") for start, end, value, title in found],
            invalid=invalid_text(measurements),
        ),
        alt=f"Latency in ns against working-set size, both axes logarithmic. Levels found: {named or 'none'}.",
        caption="Points are medians of the placements, bars their intervals. Broad bars are the levels that the curve "
        "shows, dashed lines the cache sizes that the kernel reports.",
    )


def _levels(values: LatencyLadderValues) -> list[tuple[float, float, Level]]:
    """Return the levels as stretches of sizes: from the first point near its latency to where it ends."""
    sizes = sorted(point.size_bytes for point in values.points)
    found = []
    start = 0
    for level in values.levels:
        end = level.size_bytes if level.size_bytes is not None else sizes[-1]
        near = [
            point.size_bytes
            for point in values.points
            if start <= point.size_bytes <= end
            and abs(point.latency_ns.value / level.latency_ns.value - 1) < LEVEL_NEAR
        ]
        if near:
            found.append((float(min(near)), float(end), level))
        start = end
    return found


def bandwidth_ladder(measurement: Measurement, *, width: int = WIDE) -> Chart:
    """Return bandwidth (GB/s of program bytes) against the size of a thread's buffer, a curve per mix."""
    (values,) = values_of(BandwidthLadderValues, measurement)
    lines: dict[str, list[curves.Point]] = {}
    for point in values.points:
        lines.setdefault(point.mix, []).append((float(point.size_bytes), point.program_mb_s))
    return Chart(
        name=measurement.id,
        spec=curves.line_chart(
            [Curve(mix, tuple(points)) for mix, points in lines.items()],
            curves.SIZES("Buffer of one thread"),
            Axis("Bandwidth, GB/s", kind="decades", scale=1e3),
            width=width,
            marked=[
                (float(each.share_bytes), f"L{each.level} {filters.size(each.share_bytes)}") for each in values.caches
            ],
            invalid=invalid_text([measurement]),
        ),
        alt=f"Bandwidth in GB/s against the size of each thread's buffer, {values.threads} threads, by mix.",
        caption="Points are medians of the placements, bars their intervals. Dashed lines are a thread's share of the "
        "caches.",
    )


def prefetcher_effect(
    measurements: Sequence[Measurement], *, width: int = WIDE, name: str = "prefetcher_effect"
) -> Chart:
    """Return latency (ns) against stride (bytes), a curve per order and state of the prefetchers."""
    lines: dict[str, list[curves.Point]] = {}
    for values in values_of(PrefetcherEffectValues, *measurements):
        state = "as found" if values.prefetchers == "as_found" else "off"
        for point in values.points:
            line = lines.setdefault(f"{point.order}, prefetchers {state}", [])
            line.append((float(point.stride_bytes), point.latency_ns))
    return Chart(
        name=name,
        spec=curves.line_chart(
            [Curve(title, tuple(points)) for title, points in lines.items()],
            curves.SIZES("Stride"),
            LATENCY,
            width=width,
            invalid=invalid_text(measurements),
        ),
        alt="Latency in ns against stride in bytes, log-log, by order of access and state of the prefetchers.",
        caption="Where a curve lies below that of random order, the prefetchers fetched ahead.",
    )
