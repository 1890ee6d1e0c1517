# SPDX-License-Identifier: Apache-2.0
"""Latency under load: against the bandwidth that memory delivers meanwhile."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from statistics import median

from calibration.formats.readings import Reading, ReadLoadedLatency
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.report import filters
from calibration.report.charts import base, curves
from calibration.report.charts.base import WIDE, Chart, Frame, Scale, rounded, values_of
from calibration.report.charts.curves import Curves, curves_of
from calibration.results.model import Measurement
from calibration.statistics import estimate

PROBE = "Latency of the probe"
KNEE = 0.9  # the share of the peak at which latencies are compared: beyond it curves are too steep to agree
MANY = 6  # from more curves on only the worst and the middle one have colours: a machine of 16 nodes has 16


def loaded_latency(measurement: Measurement, *, width: int = WIDE) -> Chart:
    """Return latency (ns) against bandwidth (GB/s), a curve per probe, and mark the point at ``KNEE`` of the peak."""
    (values,) = values_of(LoadedLatencyValues, measurement)
    found = curves_of(
        (f"CPU {probe.cpu}, memory of node {probe.node}", (point.bandwidth_mb_s, probe.latency_ns))
        for point in values.points
        for probe in sorted(point.probes, key=lambda probe: (probe.cpu, probe.node))
    )
    windows = [(*zero.windows_ns_start, *zero.windows_ns_middle, *zero.windows_ns_end) for zero in values.zero_load]
    medians = [median(found) for found in windows if found]
    unloaded = [median(medians)] if medians else []
    caption = (
        "Each point is one injection delay, bars are the intervals of both. The ring marks the point nearest "
        f"{filters.exact_percent(KNEE)} of the peak."
    )
    return latency_chart(measurement.id, [measurement], found, PROBE, caption, unloaded=unloaded, width=width)


def read_load(reading: Reading) -> Chart | None:
    """Return latency against bandwidth as read from the text of another program; ``None`` where either is all zero."""
    values = reading.values
    if not isinstance(values, ReadLoadedLatency):
        raise TypeError(f"expected a loaded latency, found {values.kind}")
    if not any(each.latency_ns for each in values.points) or not any(each.bandwidth_mb_s for each in values.points):
        return None
    found = curves_of(
        (reading.instrument, (estimate([[point.bandwidth_mb_s]], "MB/s"), point.latency_ns)) for point in values.points
    )
    caption = "Each point is one injection delay; the uncertainty is unknown."
    return latency_chart(f"read-{reading.id}", (), found, PROBE, caption)


def latency_chart(
    name: str,
    measurements: Sequence[Measurement],
    found: Curves,
    what: str,
    caption: str,
    *,
    unloaded: Sequence[float] = (),
    width: int = WIDE,
) -> Chart:
    """Return *what* (ns) against bandwidth (MB/s), with the latency *unloaded* (ns) where it is known."""
    points = list(curves.rows(found, x_scale=1e3))
    peak = max(row["x"] for row in points)
    ranked = sorted(points, key=lambda row: abs(row["x"] - KNEE * peak), reverse=True)
    knees = {row["s"]: row for row in ranked}  # the last of each curve is the nearest
    coloured = {label: label for label in found}
    if len(found) > MANY:
        slower = sorted(found, key=lambda label: knees[label]["y"])
        coloured = {slower[-1]: f"worst: {slower[-1]}", slower[len(slower) // 2]: "median"}
    rows = [{**row, "s": coloured[row["s"]]} for row in points if row["s"] in coloured]
    frame = Frame(width, legend=list(coloured.values()), measurements=measurements)
    _, top = base.reach([*(row["y"] for row in points), *unloaded], [row["h"] for row in rows])
    across, up = Scale(0.0, peak * 1.06, frame.plot[0]), Scale(0.0, top * 1.12, frame.plot[1], up=True)
    x = across.channel("x", "Bandwidth of the load, GB/s", ticks=width // 100, grid=False)
    y = up.channel("y", f"{what}, ns")
    place = {"x": base.number("x"), "y": base.number("y")}
    grey = {**place, "detail": {"field": "s"}, "order": None}
    note = partial(base.text, color=base.MUTED, fontSize=11)
    told = {"s": "Probe", "x": "GB/s", "y": f"{what}, ns", "l": "from", "h": "to"}
    rings = [{"x": knees[label]["x"], "y": knees[label]["y"]} for label in coloured]
    ring = max(rings, key=lambda ring: ring["y"])
    said = f"{base.shown(ring['y'], 'ns')} at {base.shown(ring['x'], 'GB/s')}"
    taken = [(row["x"], row["y"]) for row in rows] + [(peak, up.high * share / 20) for share in range(21)]
    taken += [
        (x + (u - x) * part / 8, y + (v - y) * part / 8) for (x, y), (u, v) in pairwise(taken) for part in range(1, 8)
    ]
    best = base.shown(peak, "GB/s")
    notes = [{"x": 0.0, "y": rounded(value), "text": f"unloaded {base.shown(value, 'ns')}"} for value in unloaded]
    layers = [
        base.mark("line", grey, [row for row in points if row["s"] not in coloured], color=base.MUTED, opacity=0.35),
        base.rules("x", [peak]),
        base.rules("y", unloaded),
        *curves.layers(frame, (x, y), told=told, bars="xy"),
        base.mark("point", place, rings, size=170, strokeWidth=2, color=base.COLOURS[1]),
        base.labels([(ring["x"], ring["y"], said)], taken, (across, up), base.AROUND, fontWeight="bold"),
        note([{"x": peak, "y": up.low, "text": f"peak {best}"}], align="right", baseline="bottom", dx=-6, dy=-3),
        note(notes, align="left", baseline="top", dx=6, dy=5),
    ]
    said += f", which is {filters.percent(ring['x'] / peak, 2)} of the peak of {best}"
    said += "".join(f"; {base.shown(value, 'ns')} without load" for value in unloaded)
    alt = f"{what} in ns against the bandwidth of the load in GB/s: {said}."
    return Chart(name, frame.spec(layers, rows), alt, caption)
