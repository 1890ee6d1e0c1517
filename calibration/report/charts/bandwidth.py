# SPDX-License-Identifier: Apache-2.0
"""Charts of bandwidth: by mix, by number of threads, over time, regulated, and against what counters counted."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from statistics import fmean

from calibration.counters.volume import Direction
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.counted_volume import CountedVolumeValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.regulation import Method, RegulationPoint, RegulationValues
from calibration.measurements.sustained_bandwidth import SustainedBandwidthValues
from calibration.report import filters
from calibration.report.charts import base
from calibration.report.charts.base import WIDE, Chart, Frame, Json, Scale, rounded, values_of
from calibration.report.charts.curves import Axis, curves_of, line_chart
from calibration.report.charts.load import latency_chart
from calibration.results.model import Measurement

ORDERS = {"fill": "node after node", "spread": "spread over the nodes"}  # how threads were added
DIRECTIONS: dict[Direction, str] = {"reads": "read", "writes": "written", "reads_and_writes": "read and written"}
NOPS_LINEAR = 10  # added to numbers of no-ops on their logarithmic axis: it has room for 0
COURSE_POINTS = 400  # of a course over time at most; each is the mean of what it stands for
VARIATION_BINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # upper ends of coefficients of variation

NOPS = Axis(
    "No-ops after every four cache lines",
    kind="decades",
    ticks=[number + NOPS_LINEAR for number in (0, 10, 30, 100, 300, 1000, 3000, 10000, 30000)],
    labels=f"format(datum.value - {NOPS_LINEAR}, '~r')",
    told=lambda x: f"{x - NOPS_LINEAR:g}",
)

GB_S = Axis("Bandwidth, GB/s", scale=1e3, zero=True)


def bars(
    rows: Sequence[Json],
    title: str,
    high: float,
    *,
    width: int = WIDE,
    groups: Sequence[str] = (),
    marked: float | None = None,
    measurements: Sequence[Measurement] = (),
) -> Json:
    """Return horizontal bars: *rows* have a group ``g``, a series ``s``, a value ``v`` and its text ``t``.

    ``l`` and ``h`` are an interval that all or none of them have; *marked* is a line. *groups* gives another order.
    """
    groups = groups or list(dict.fromkeys(row["g"] for row in rows))
    series = list(dict.fromkeys(row["s"] for row in rows))
    height = len(groups) * (max(18, 30 - 4 * len(series)) * len(series) + 10) + 70
    left = 18 + int(6.4 * max(map(len, groups)))
    frame = Frame(width, height, legend=series, measurements=measurements, left=left, right=60)
    place: Json = {"y": base.named_rows("g", groups, paddingInner=0.25, paddingOuter=0.1)}
    if len(series) > 1:
        place["yOffset"] = {"field": "s", "type": "nominal", "sort": series, "scale": {"paddingInner": 0.15}}
    x = Scale(0.0, high, frame.plot[0]).channel("v", title, ticks=width // 110)
    told = base.tips(g="what", s="of", t=title, l="from", h="to")
    bar = {**place, "x": x, "color": frame.series(base.COLOURS), "tooltip": told}
    interval = base.mark("rule", {**place, **base.stretch("x", x)}, color=base.INK, strokeWidth=1.5, clip=True)
    layers = [
        base.mark("bar", bar, opacity=0.85),
        *([interval] if "l" in rows[0] else []),
        base.mark("text", {**place, "x": {"value": frame.plot[0] + 8}, "text": {"field": "t"}}, align="left"),
        base.rules("x", [] if marked is None else [marked]),
    ]
    return frame.spec(layers, rows)


def bandwidth_by_mix(measurements: Sequence[Measurement], peak_mb_s: float | None, width: int = WIDE) -> Chart | None:
    """Return bandwidth (GB/s) by mix with intervals, and the theoretical peak where it is known.

    ``None`` where there is a single figure.
    """
    rows: list[Json] = []
    for values in values_of(PeakValues, *measurements):
        shape = "one plain stream" if values.plain else "tuned shape"
        for mix, found in values.mixes.items():
            value, low, high = base.bounds(found.bandwidth_mb_s, 1e3)
            words = filters.significant(value, 3)
            rows.append({"g": base.label(mix), "s": shape, "v": value, "l": low, "h": high, "t": words})
    if len(rows) < 2:
        return None
    best = max(rows, key=lambda row: row["v"])
    alt = f"Bandwidth in GB/s by mix of reads and writes; the most is {best['t']} GB/s for {best['g']}"
    caption = "Peak injection bandwidth: bars are medians of the placements, lines their intervals."
    high = max(min(row["h"], row["v"] * 1.3) for row in rows) * 1.05
    peak = None if peak_mb_s is None else peak_mb_s / 1e3
    if peak is not None:
        high = max(high, 1.04 * peak)
        alt += f"; the theoretical peak is {base.shown(peak, 'GB/s')}"
        caption += f" The dashed line is the theoretical peak, {base.shown(peak, 'GB/s')}."
    spec = bars(rows, "GB/s", high, width=width, marked=peak, measurements=measurements)
    return Chart("bandwidth_by_mix", spec, f"{alt}.", caption)


def bandwidth_scaling(measurements: Sequence[Measurement]) -> Chart | None:
    """Return bandwidth (GB/s) against threads, a curve per order in which they were added; ``None`` for one or two."""
    found = values_of(BandwidthScalingValues, *measurements)
    counts = sorted({float(point.threads) for values in found for point in values.points})
    if len(counts) < 3:
        return None
    enough = {float(values.enough_threads): threads(values.enough_threads) for values in found}
    shares = sorted({filters.exact_percent(values.enough_fraction) for values in found})
    return line_chart(
        "bandwidth_scaling",
        measurements,
        curves_of(
            (f"{values.mix}, {ORDERS[values.order]}", (float(point.threads), point.bandwidth_mb_s))
            for values in found
            for point in values.points
        ),
        (Axis("Threads", kind="octaves", ticks=counts if len(counts) < 5 else None), GB_S),
        marked=enough.items(),
        alt=f"Bandwidth in GB/s against the number of threads: {', '.join(enough.values())} are enough.",
        caption=f"The dashed line is the fewest threads that reach {' and '.join(shares)} of the best.",
    )


def sustained_bandwidth(measurements: Sequence[Measurement]) -> Chart:
    """Return bandwidth (GB/s) over the seconds of load, a curve per mix."""
    return line_chart(
        "sustained_bandwidth",
        measurements,
        curves_of(
            (values.mix, ((start + step / 2) * values.window_s, fmean(values.windows_mb_s[start : start + step])))
            for values in values_of(SustainedBandwidthValues, *measurements)
            for step in [ceil(len(values.windows_mb_s) / COURSE_POINTS)]
            for start in range(0, len(values.windows_mb_s), step)
        ),
        (Axis("Seconds of load"), Axis("Bandwidth, GB/s", scale=1e3)),
        points=False,
        alt="Bandwidth in GB/s over the seconds of load, by mix.",
        caption="The ordinate does not begin at zero.",
    )


def regulated(measurements: Sequence[Measurement]) -> Iterator[tuple[str, RegulationPoint]]:
    """Yield the points of bandwidth regulation and their number of threads in words, by that number."""
    for values in sorted(values_of(RegulationValues, *measurements), key=lambda values: values.threads):
        yield from ((threads(values.threads), point) for point in values.points)


def threads(count: int) -> str:
    """Return a number of threads in words."""
    return f"{count} thread{'s' * (count > 1)}"


def regulation(measurements: Sequence[Measurement], name: str) -> Chart:
    """Return bandwidth (GB/s) against the number of no-ops, a curve per number of threads."""
    return line_chart(
        name,
        measurements,
        curves_of(
            (label, (float(point.nops + NOPS_LINEAR), point.bandwidth_mb_s)) for label, point in regulated(measurements)
        ),
        (NOPS, GB_S),
        alt="Bandwidth in GB/s against the number of no-ops after every four cache lines, by number of threads.",
    )


def latency_by(measurements: Sequence[Measurement], method: Method, what: str, *, name: str) -> Chart | None:
    """Return the latency (ns) by *method*, called *what*, against regulated bandwidth; ``None`` without any."""
    curves = curves_of(
        (label, (point.bandwidth_mb_s, latency))
        for label, point in regulated(measurements)
        if (latency := point.latency_ns(method)) is not None
    )
    caption = "Each point is one number of no-ops, bars are the intervals of both."
    return latency_chart(name, measurements, curves, what, caption) if curves else None


def variation(series: Mapping[str, Sequence[float]]) -> Chart:
    """Return how many configurations have which coefficient of variation (shares of one), for each of *series*."""
    bins = [*(f"up to {high * 100:g} %" for high in VARIATION_BINS), f"over {VARIATION_BINS[-1] * 100:g} %"]
    counts = Counter((title, bisect_left(VARIATION_BINS, value)) for title, found in series.items() for value in found)
    rows: list[Json] = [
        {"g": bins[at], "s": base.label(title), "v": count, "t": str(count)} for (title, at), count in counts.items()
    ]
    used = [bins[at] for at in sorted({at for _, at in counts})]
    return Chart(
        "regulation_variation",
        bars(rows, "configurations", max(counts.values()) * 1.1, groups=used),
        alt="Number of configurations by coefficient of variation over the placements, for each method.",
        caption="Coefficient of variation (standard deviation over mean) of the placements of one configuration.",
    )


def counted_volume(measurement: Measurement) -> Chart | None:
    """Return the known and the counted bytes (GB) of one repeat by direction; ``None`` where none was counted.

    Lines that are read only to be written are among the known reads.
    """
    (values,) = values_of(CountedVolumeValues, measurement)
    if values.counted is None:
        return None
    phases = (values.known.triad, values.known.init)
    read = sum(phase.program_read_bytes + phase.allocate_read_bytes for phase in phases)
    written = sum(phase.program_written_bytes for phase in phases)
    known: dict[Direction, int] = {"reads": read, "writes": written, "reads_and_writes": read + written}
    by_cores = [each for each in values.counted.others if each.role == "core.offcore_reads"]
    rows: list[Json] = []
    for direction, known_bytes in known.items():
        counter = values.counted.of(direction)
        counted = [] if counter is None else [("counted by the memory controllers", counter.counted_bytes)]
        if direction == "reads":
            counted += [("read from local memory, by the cores' count", each.counted_bytes) for each in by_cores]
        sizes = [(by, size / values.repeats) for by, size in counted]
        if counted:
            sizes.insert(0, (f"known: {values.passes} triads and initialisation", known_bytes))
        for by, size in sizes:
            words = filters.fixed(size / 1e9, 3)
            rows.append({"g": DIRECTIONS[direction], "s": by, "v": rounded(size / 1e9), "t": words})
    if not rows:
        return None
    said = "; ".join(f"{row['g']}, {row['s']}: {row['t']}" for row in rows)
    high = max(row["v"] for row in rows) * 1.1
    return Chart(
        measurement.id,
        bars(rows, "GB (10⁹ bytes)", high, measurements=[measurement]),
        alt=f"Known and counted bytes in GB: {said}.",
        caption="Of one repeat. Lines that are read only to be written count as read.",
    )
