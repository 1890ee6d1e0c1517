# SPDX-License-Identifier: Apache-2.0
"""Charts of caches: latency and bandwidth against the size of what is touched."""

from collections.abc import Iterator, Sequence

from calibration.context.model import Cache
from calibration.measurements.bandwidth_ladder import BandwidthLadderValues
from calibration.measurements.latency_ladder import LatencyLadderValues, Level
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, values_of
from calibration.report.charts.curves import MEDIANS, SIZES, Axis, curves_of, line_chart
from calibration.results.model import Measurement

LATENCY = Axis("Latency, ns per load", kind="decades")
SERIES = {"random": "", "prefetched": "prefetched: ", "interleaved": "interleaved: ", "copies": "{} copies, "}
"""What the name of a curve begins with, for its number of copies."""
NEAR = 0.15  # a point is drawn as part of a level whose latency it has within this share


def latency_ladder(
    measurements: Sequence[Measurement], caches: Sequence[Cache], *, width: int = WIDE, name: str = "latency_ladder"
) -> Chart:
    """Return latency (ns) against working-set size (bytes), with the levels found and the *caches* reported."""
    ladders = values_of(LatencyLadderValues, *measurements)
    ladders.sort(key=lambda values: list(SERIES).index(values.series))
    levels: dict[tuple[str, str], tuple[float, float, float]] = {}  # runs of several series find the same ones
    for start, end, level in (found for values in ladders for found in _levels(values)):
        words = filters.level(level.name, level.size_bytes)
        latency_ns = level.latency_ns.value
        levels[words, filters.significant(latency_ns, 2)] = (start, end, latency_ns)
    named = [(*found, f"{words} {base.shown(found[2], 'ns')}") for (words, _), found in levels.items()]
    return line_chart(
        name,
        measurements,
        curves_of(
            (
                f"{before}{point.order}, stride {filters.size(point.stride_bytes)}",
                (float(point.size_bytes), point.latency_ns),
            )
            for values in ladders
            for before in [SERIES[values.series].format(len(values.cpus))]
            for point in values.points
        ),
        (SIZES("Working set"), LATENCY),
        width=width,
        marked=[
            (float(cache.size_bytes), f"L{cache.level}{'d' * (cache.type == 'Data')} {filters.size(cache.size_bytes)}")
            for cache in caches
            if cache.type != "Instruction" and cache.size_bytes
        ],
        named=named,
        alt="Latency in ns against working-set size, both axes logarithmic. "
        f"Levels found: {'; '.join(words for *_, words in named) or 'none'}.",
        caption=f"{MEDIANS} Broad bars are the levels that the curve shows, dashed lines the cache sizes that the "
        "kernel reports.",
    )


def _levels(values: LatencyLadderValues) -> Iterator[tuple[float, float, Level]]:
    """Yield the levels as stretches of sizes: from the first point near its latency to where it ends."""
    start = 0
    for level in values.levels:
        end = max(point.size_bytes for point in values.points) if level.size_bytes is None else level.size_bytes
        near = [
            point.size_bytes
            for point in values.points
            if start <= point.size_bytes <= end and abs(point.latency_ns.value / level.latency_ns.value - 1) < NEAR
        ]
        if near:
            yield float(min(near)), float(end), level
        start = end


def bandwidth_ladder(measurement: Measurement) -> Chart:
    """Return bandwidth (GB/s of program bytes) against the size of a thread's buffer, a curve per mix."""
    (values,) = values_of(BandwidthLadderValues, measurement)
    return line_chart(
        measurement.id,
        [measurement],
        curves_of((point.mix, (float(point.size_bytes), point.program_mb_s)) for point in values.points),
        (SIZES("Buffer of one thread"), Axis("Bandwidth, GB/s", kind="decades", scale=1e3)),
        marked=[
            (float(cache.share_bytes), f"L{cache.level} {filters.size(cache.share_bytes)}") for cache in values.caches
        ],
        alt=f"Bandwidth in GB/s against the size of each thread's buffer, {values.threads} threads, by mix.",
        caption=f"{MEDIANS} Dashed lines are a thread's share of the caches.",
    )


def prefetcher_effect(measurements: Sequence[Measurement]) -> Chart:
    """Return latency (ns) against stride (bytes), a curve per order and state of the prefetchers."""
    return line_chart(
        "prefetcher_effect",
        measurements,
        curves_of(
            (f"{point.order}, prefetchers {state}", (float(point.stride_bytes), point.latency_ns))
            for values in values_of(PrefetcherEffectValues, *measurements)
            for state in [values.prefetchers.replace("_", " ")]
            for point in values.points
        ),
        (SIZES("Stride"), LATENCY),
        alt="Latency in ns against stride in bytes, log-log, by order of access and state of the prefetchers.",
        caption="Where a curve lies below that of random order, the prefetchers fetched ahead.",
    )
