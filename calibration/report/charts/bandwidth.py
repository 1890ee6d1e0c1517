# SPDX-License-Identifier: Apache-2.0
"""Charts of bandwidth: by mix, by number of threads, over time, regulated, and against what counters counted."""

from collections.abc import Sequence
from math import ceil

from calibration.counters.volume import Direction
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.counted_volume import CountedVolumeValues
from calibration.measurements.max_bandwidth import MaxValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.regulation import Method, RegulationValues
from calibration.measurements.sustained_bandwidth import SustainedBandwidthValues
from calibration.report import filters
from calibration.report.charts import base, curves
from calibration.report.charts.base import WIDE, Chart, Json, Scale, invalid_text, rounded, values_of
from calibration.report.charts.curves import Axis, Curve
from calibration.report.charts.load import regulated_latency
from calibration.results.model import Measurement
from calibration.statistics import Estimate
from calibration.sutprobe import VolumeBytes

ORDERS = {"fill": "node after node", "spread": "spread over the nodes"}
"""How threads were added, in words."""

NOPS_LINEAR = 10
"""Numbers of no-ops are drawn with this many added, on a logarithmic axis: it has room for 0."""

COURSE_POINTS = 400
"""A course over time has at most so many points; each is the mean of what it stands for."""

VARIATION_BINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Upper ends of the bins of coefficients of variation."""

DIRECTIONS: dict[Direction, str] = {"reads": "read", "writes": "written", "reads_and_writes": "read and written"}

GB_S = Axis("Bandwidth, GB/s", scale=1e3, zero=True)


def bars(
    rows: Sequence[Json],
    *,
    groups: Sequence[str] = (),
    title: str,
    high: float,
    width: int,
    marked: float | None = None,
    invalid: str = "",
) -> Json:
    """Return horizontal bars: *rows* have a group ``g``, a series ``s``, a value ``v`` and its text ``t``.

    ``l`` and ``h`` are an interval, drawn where there is one; *marked* is a line. *groups* gives another order.
    """
    groups = groups or list(dict.fromkeys(row["g"] for row in rows))
    series = list(dict.fromkeys(row["s"] for row in rows))
    several = len(series) > 1
    left = 18 + int(6.4 * max(map(len, groups)))
    each_px = max(18, 30 - 4 * len(series))
    frame = base.Frame(
        width,
        len(groups) * (each_px * len(series) + 10) + 70,
        legend=series,
        invalid=invalid,
        left=left,
        right=60,
    )
    across = Scale(0.0, high, frame.plot[0])
    names: Json = {
        "field": "g",
        "type": "nominal",
        "sort": list(groups),
        "scale": {"paddingInner": 0.25, "paddingOuter": 0.1},
    }
    place: Json = {"y": names | {"axis": {"title": None, "ticks": False, "domain": False, "labelColor": base.INK}}}
    if several:
        place["yOffset"] = {"field": "s", "type": "nominal", "sort": list(series), "scale": {"paddingInner": 0.15}}
    x = across.channel("v", title, ticks=width // 110)
    colour = base.series(series, base.COLOURS, width)
    told = base.tips(("g", "what"), ("s", "of"), ("t", title), ("l", "from"), ("h", "to"))
    layers = [base.mark("bar", None, {**place, "x": x, "color": colour, "tooltip": told}, opacity=0.85)]
    if any("l" in row for row in rows):
        interval = {**place, "x": {**x, "field": "l"}, "x2": {"field": "h"}}
        layers.append(base.mark("rule", None, interval, color=base.INK, strokeWidth=1.5, clip=True))
    end = {**place, "x": {"value": frame.plot[0] + 8}, "text": {"field": "t", "type": "nominal"}}
    layers.append(base.mark("text", None, end, align="left"))
    if marked is not None:
        layers.append(base.rules("x", [marked]))
    return frame.spec(layers, data=base.table(rows))


def bandwidth_by_mix(
    measurements: Sequence[Measurement],
    *,
    peak_mb_s: float | None = None,
    width: int = WIDE,
    name: str = "bandwidth_by_mix",
) -> Chart | None:
    """Return bandwidth (GB/s) by mix with intervals, and the theoretical peak where it is known.

    ``None`` where there is a single figure.
    """
    rows: list[Json] = []
    for measurement in measurements:
        values = measurement.values
        if not isinstance(values, PeakValues | MaxValues):
            raise TypeError(f"expected bandwidths by mix, found {measurement.kind}")
        plain = isinstance(values, PeakValues) and values.plain
        for mix, found in values.mixes.items():
            value = found.bandwidth_mb_s.value / 1e3
            row = {
                "g": base.label(mix),
                "s": base.label(measurement.title + (", one plain stream" if plain else "")),
                "v": rounded(value),
            }
            row["l"], row["h"] = base.ends(found.bandwidth_mb_s, 1e3)
            rows.append(row | {"t": filters.significant(value, 3)})
    if len(rows) < 2:
        return None
    peak = None if peak_mb_s is None else peak_mb_s / 1e3
    best = max(rows, key=lambda row: row["v"])
    theory = "" if peak is None else f"; the theoretical peak is {base.shown(peak, 'GB/s')}"
    return Chart(
        name=name,
        spec=bars(
            rows,
            title="GB/s",
            high=max(max(min(row["h"], row["v"] * 1.3) for row in rows) * 1.05, 1.04 * (peak or 0.0)),
            width=width,
            marked=peak,
            invalid=invalid_text(measurements),
        ),
        alt=f"Bandwidth in GB/s by mix of reads and writes; the most is {best['t']} GB/s for {best['g']}{theory}.",
        caption="Bars are medians of the placements, lines their intervals."
        + (f" The dashed line is the theoretical peak, {base.shown(peak, 'GB/s')}." if peak else ""),
    )


def bandwidth_scaling(
    measurements: Sequence[Measurement], *, width: int = WIDE, name: str = "bandwidth_scaling"
) -> Chart | None:
    """Return bandwidth (GB/s) against threads, a curve per order in which they were added; ``None`` for one or two."""
    drawn, marked, shares = [], [], set()
    for values in values_of(BandwidthScalingValues, *measurements):
        points = tuple((float(point.threads), point.bandwidth_mb_s) for point in values.points)
        drawn.append(Curve(f"{values.mix}, {ORDERS[values.order]}", points))
        marked.append((float(values.enough_threads), threads(values.enough_threads)))
        shares.add(filters.exact_percent(values.enough_fraction))
    counts = sorted({x for curve in drawn for x, _ in curve.points if not isinstance(x, Estimate)})
    if len(counts) < 3:
        return None
    return Chart(
        name=name,
        spec=curves.line_chart(
            drawn,
            Axis("Threads", kind="octaves", ticks=counts if len(counts) < 5 else None),
            GB_S,
            width=width,
            marked=list(dict.fromkeys(marked)),
            invalid=invalid_text(measurements),
        ),
        alt="Bandwidth in GB/s against the number of threads: " + ", ".join(dict(marked).values()) + " are enough.",
        caption=f"The dashed line is the fewest threads that reach {' and '.join(sorted(shares))} of the best.",
    )


def sustained_bandwidth(
    measurements: Sequence[Measurement], *, width: int = WIDE, name: str = "sustained_bandwidth"
) -> Chart:
    """Return bandwidth (GB/s) over the seconds of load, a curve per mix."""
    drawn = []
    for values in values_of(SustainedBandwidthValues, *measurements):
        step = ceil(len(values.windows_mb_s) / COURSE_POINTS)
        means = [
            sum(block) / len(block)
            for start in range(0, len(values.windows_mb_s), step)
            if (block := values.windows_mb_s[start : start + step])
        ]
        points = tuple(
            ((place + 0.5) * step * values.window_s, curves.observed(mean, "MB/s")) for place, mean in enumerate(means)
        )
        drawn.append(Curve(values.mix, points))
    return Chart(
        name=name,
        spec=curves.line_chart(
            drawn,
            Axis("Seconds of load", zero=True),
            Axis("Bandwidth, GB/s", scale=1e3),
            width=width,
            invalid=invalid_text(measurements),
            points=False,
        ),
        alt="Bandwidth in GB/s over the seconds of load, by mix.",
        caption="The ordinate does not begin at zero.",
    )


def regulated(measurements: Sequence[Measurement]) -> list[RegulationValues]:
    """Return the values of *measurements*, which are of bandwidth regulation, by number of threads."""
    return sorted(values_of(RegulationValues, *measurements), key=lambda values: values.threads)


def threads(count: int) -> str:
    """Return a number of threads in words."""
    return f"{count} thread{'s' * (count > 1)}"


def regulation(measurements: Sequence[Measurement], *, width: int = WIDE, name: str = "regulation") -> Chart:
    """Return bandwidth (GB/s) against the number of no-ops, a curve per number of threads."""
    drawn = [
        Curve(threads(values.threads), tuple((float(point.nops), point.bandwidth_mb_s) for point in values.points))
        for values in regulated(measurements)
    ]
    most = max(point.nops for values in regulated(measurements) for point in values.points)
    numbers = [number for number in (0, 10, 30, 100, 300, 1000, 3000, 10000, 30000) if number <= most]
    return Chart(
        name=name,
        spec=curves.line_chart(
            drawn,
            Axis(
                "No-ops after every four cache lines",
                kind="decades",
                shift=NOPS_LINEAR,
                ticks=[number + NOPS_LINEAR for number in numbers],
                labels=f"format(datum.value - {NOPS_LINEAR}, '~r')",
            ),
            GB_S,
            width=width,
            invalid=invalid_text(measurements),
        ),
        alt="Bandwidth in GB/s against the number of no-ops after every four cache lines, by number of threads.",
        caption="Points are medians of the placements, bars their intervals.",
    )


def latency_by(
    measurements: Sequence[Measurement], method: Method, what: str, *, name: str, width: int = WIDE
) -> Chart | None:
    """Return the latency (ns) by *method*, called *what*, against regulated bandwidth; ``None`` without any."""
    drawn = []
    for values in regulated(measurements):
        found = [(point, point.latency_ns(method)) for point in values.points]
        points = tuple((point.bandwidth_mb_s, latency) for point, latency in found if latency is not None)
        if points:
            drawn.append(Curve(threads(values.threads), points))
    return regulated_latency(drawn, what, name=name, invalid=invalid_text(measurements), width=width) if drawn else None


def variation(
    series: Sequence[tuple[str, Sequence[float]]], *, width: int = WIDE, name: str = "regulation_variation"
) -> Chart:
    """Return how many configurations have which coefficient of variation (shares of one), for each of *series*."""
    percents = [f"{high * 100:g}" for high in VARIATION_BINS]
    bins = [f"up to {high} %" for high in percents] + [f"over {percents[-1]} %"]
    counted = {base.label(title): [0] * len(bins) for title, _ in series}
    for title, values in series:
        for value in values:
            counted[base.label(title)][sum(value > high for high in VARIATION_BINS)] += 1
    rows: list[Json] = [
        {"g": name_of, "s": title, "v": count, "t": str(count)}
        for title, line in counted.items()
        for name_of, count in zip(bins, line, strict=True)
        if count
    ]
    used = {row["g"] for row in rows}
    return Chart(
        name=name,
        spec=bars(
            rows,
            groups=[name_of for name_of in bins if name_of in used],
            title="configurations",
            high=max((count for line in counted.values() for count in line), default=1) * 1.1,
            width=width,
        ),
        alt="Number of configurations by coefficient of variation over the placements, for each method.",
        caption="Coefficient of variation (standard deviation over mean) of the placements of one configuration.",
    )


def phase_bytes(known: VolumeBytes, direction: Direction) -> int:
    """Return what a phase of the triads moves in *direction*, lines that are read only to be written included."""
    read, written = known.program_read_bytes + known.allocate_read_bytes, known.program_written_bytes
    return {"reads": read, "writes": written, "reads_and_writes": read + written}[direction]


def counted_volume(measurement: Measurement, *, width: int = WIDE) -> Chart | None:
    """Return the known and the counted bytes (GB) of one repeat by direction; ``None`` where none was counted."""
    (values,) = values_of(CountedVolumeValues, measurement)
    if values.counted is None:
        return None
    rows: list[Json] = []
    for direction, words in DIRECTIONS.items():
        found = []
        if (counter := values.counted.of(direction)) is not None:
            found.append(("counted by the memory controllers", counter.counted_bytes / values.repeats))
        found += [
            ("read from local memory, by the cores' count", each.counted_bytes / values.repeats)
            for each in values.counted.others
            if each.role == "core.offcore_reads" and direction == "reads"
        ]
        if found:
            known = phase_bytes(values.known.triad, direction) + phase_bytes(values.known.init, direction)
            found.insert(0, (f"known: {values.passes} triads and initialisation", known))
        rows += [
            {"g": words, "s": series, "v": rounded(size / 1e9), "t": filters.fixed(size / 1e9, 3)}
            for series, size in found
        ]
    if not rows:
        return None
    return Chart(
        name=measurement.id,
        spec=bars(
            rows,
            title="GB (10⁹ bytes)",
            high=max(row["v"] for row in rows) * 1.1,
            width=width,
            invalid=invalid_text([measurement]),
        ),
        alt="Known and counted bytes in GB: " + "; ".join(f"{row['g']}, {row['s']}: {row['t']}" for row in rows) + ".",
        caption="Of one repeat. Lines that are read only to be written count as read.",
    )
