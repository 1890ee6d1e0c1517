# SPDX-License-Identifier: Apache-2.0
"""Charts of caches: latency and bandwidth against the size of what is touched."""

from collections.abc import Sequence

from calibration.context.model import Cache
from calibration.measurements.latency_ladder import LatencyLadderValues, Level
from calibration.report import filters
from calibration.report.charts import curves
from calibration.report.charts.base import (
    COLOURS,
    MUTED,
    SIZE_LABEL,
    WIDE,
    Chart,
    Frame,
    Json,
    Scale,
    decades,
    invalid_text,
    labels,
    mark,
    octaves,
    rounded,
    rules,
    shown,
    table,
    tips,
)
from calibration.report.charts.curves import Curve
from calibration.results.model import Measurement

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
    for values in sorted(map(_ladder, measurements), key=lambda each: list(SERIES).index(each.series)):
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
    drawn = curves.unique([Curve(title, tuple(points)) for title, points in lines.items()])
    reported = [
        (float(each.size_bytes), f"L{each.level}{'d' if each.type == 'Data' else ''} {filters.size(each.size_bytes)}")
        for each in caches
        if each.type != "Instruction" and each.size_bytes
    ]
    found = [(*stretch, name) for (name, _), stretch in levels.items()]
    named = "; ".join(f"{name} {shown(value, 'ns')}" for _, _, value, name in found)
    return Chart(
        name=name,
        spec=_along_sizes(
            drawn,
            reported,
            found,
            titles=("Working set", "Latency, ns per load"),
            width=width,
            invalid=invalid_text(measurements),
        ),
        alt=f"Latency in ns against working-set size, both axes logarithmic. Levels found: {named or 'none'}.",
        caption="Points are medians of the placements, bars their intervals. Broad bars are the levels that the curve "
        "shows, dashed lines the cache sizes that the kernel reports.",
    )


def _ladder(measurement: Measurement) -> LatencyLadderValues:
    if not isinstance(measurement.values, LatencyLadderValues):
        raise TypeError(f"expected a latency ladder, found {measurement.kind}")
    return measurement.values


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


def _along_sizes(
    drawn: Sequence[Curve],
    caches: Sequence[tuple[float, str]],
    levels: Sequence[tuple[float, float, float, str]],
    *,
    titles: tuple[str, str],
    width: int,
    unit: str = "ns",
    scale: float = 1.0,
    invalid: str = "",
) -> Json:
    """Return *drawn* against sizes in bytes, both axes logarithmic."""
    rows = [{**row, "t": filters.size(round(float(row["x"])))} for row in curves.rows(drawn, y_scale=scale)]
    columns = 1 if width < WIDE else 2
    count = len(drawn) if len(drawn) > 1 else 0
    frame = Frame(width, 320 + 20 * -(-count // columns), legend_rows=-(-count // columns), invalid=invalid)
    sizes = [float(row["x"]) for row in rows]
    across = Scale(min(sizes) / 1.2, max(sizes) * 1.3, frame.plot[0], log=True)
    values = [float(row["y"]) for row in rows]
    up = Scale(min(values) / 1.5, max(values) * 2.6, frame.plot[1], log=True, up=True)
    axes = (
        across.channel(
            "x", titles[0], ticks=octaves(across.low, across.high, width // 80), labels=SIZE_LABEL, grid=False
        ),
        up.channel("y", titles[1], ticks=decades(up.low, up.high, 8)),
    )
    inside = [(size, words) for size, words in sorted(caches) if across.low < size < across.high]
    bars = [
        {"x": start, "x2": end, "y": rounded(value), "t": f"{name}: {shown(value, unit)}"}
        for start, end, value, name in levels
    ]
    level = mark(
        "rule",
        table(bars),
        {"x": axes[0], "x2": {"field": "x2"}, "y": axes[1], "tooltip": tips(("t", "Level"))},
        color=COLOURS[0],
        strokeWidth=10,
        opacity=0.25,
    )
    taken = [(float(row["x"]), float(row["y"])) for row in rows]
    layers = [
        rules("x", [size for size, _ in inside]),
        level,
        *curves.layers(
            [curve.label for curve in drawn],
            axes,
            tips(("s", "Access"), ("t", titles[0]), ("y", titles[1]), ("l", "from"), ("h", "to")),
            columns=columns,
        ),
        labels(
            [(size, up.high, words) for size, words in inside],
            [],
            (across, up),
            tuple((-0.5, 8 + 15 * line) for line in range(5)),
            color=MUTED,
            fontSize=11,
        ),
        labels(
            [((start * end) ** 0.5, value, f"{name} {shown(value, unit)}") for start, end, value, name in levels],
            taken,
            (across, up),
            fontWeight="bold",
        ),
    ]
    return frame.spec(layers, data=table(rows))
