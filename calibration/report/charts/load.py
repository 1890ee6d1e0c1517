# SPDX-License-Identifier: Apache-2.0
"""Latency under load: against the bandwidth that memory delivers meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.report import filters
from calibration.report.charts import base, curves
from calibration.report.charts.base import WIDE, Chart, Json, Scale, invalid_text, rounded, values_of
from calibration.report.charts.curves import Curve
from calibration.results.model import Measurement
from calibration.results.readings import Reading, ReadLoadedLatency
from calibration.statistics import Estimate

KNEE = 0.9
"""The share of the peak at which latency under load is compared: beyond it curves are too steep to agree."""

MANY = 6
"""From more curves on only the worst and the middle one have colours: a machine of 16 nodes has 16."""

Line = Sequence[tuple[float, float]]
"""Points of an accepted curve: bandwidth in MB/s and latency in ns."""


@dataclass(frozen=True)
class Load:
    """The points of all probes, and what stands beside them: each probe's latency without load (ns)."""

    curves: Sequence[Curve]
    unloaded_ns: Sequence[float] = ()


def loaded_latency(
    measurement: Measurement, *, accepted: Line = (), peak_mb_s: float | None = None, width: int = WIDE
) -> Chart:
    """Return latency (ns) against bandwidth (GB/s), a curve per probe, with the point at ``KNEE`` of the peak marked.

    *accepted* is drawn in grey; *peak_mb_s* is the most that memory delivered, by default on this curve.
    """
    (values,) = values_of(LoadedLatencyValues, measurement)
    probes = sorted({(probe.cpu, probe.node) for point in values.points for probe in point.probes})
    found = [
        Curve(
            f"CPU {cpu}, memory of node {node}",
            tuple(
                (point.bandwidth_mb_s, probe.latency_ns)
                for point in values.points
                for probe in point.probes
                if (probe.cpu, probe.node) == (cpu, node)
            ),
        )
        for cpu, node in probes
    ]
    unloaded = [
        middle
        for zero in values.zero_load
        if (middle := filters.middle((*zero.windows_ns_start, *zero.windows_ns_middle, *zero.windows_ns_end)))
    ]
    spec, said = _spec(
        Load(found, unloaded), accepted=accepted, peak_mb_s=peak_mb_s, width=width, invalid=invalid_text([measurement])
    )
    return Chart(
        name=measurement.id,
        spec=spec,
        alt=f"Latency of the probe in ns against the bandwidth of the load in GB/s: {said}.",
        caption="Each point is one injection delay, bars are the intervals of both. The ring marks the point nearest "
        f"{filters.exact_percent(KNEE)} of the peak.",
    )


def read_load(reading: Reading, *, width: int = WIDE) -> Chart | None:
    """Return latency against bandwidth as read from the text of another program; ``None`` where either is all zero."""
    values = reading.values
    if not isinstance(values, ReadLoadedLatency):
        raise TypeError(f"expected a loaded latency, found {values.kind}")
    if not any(each.latency_ns for each in values.points) or not any(each.bandwidth_mb_s for each in values.points):
        return None
    points = tuple(
        (curves.observed(each.bandwidth_mb_s, "MB/s"), curves.observed(each.latency_ns, "ns")) for each in values.points
    )
    spec, said = _spec(Load([Curve(reading.instrument, points)]), width=width)
    return Chart(
        name=f"read-{reading.id}",
        spec=spec,
        alt=f"Latency of the probe in ns against the bandwidth of the load in GB/s: {said}.",
        caption="Each point is one injection delay; the uncertainty is unknown.",
    )


def regulated_latency(found: Sequence[Curve], what: str, *, name: str, invalid: str = "", width: int = WIDE) -> Chart:
    """Return *what*, a latency (ns), against bandwidth (MB/s), for traffic regulated by no-ops."""
    spec, said = _spec(Load(found), what=f"{what}, ns", width=width, invalid=invalid)
    return Chart(
        name=name,
        spec=spec,
        alt=f"{what} in ns against bandwidth in GB/s: {said}.",
        caption="Each point is one number of no-ops, bars are the intervals of both.",
    )


def _spec(
    load: Load,
    *,
    accepted: Line = (),
    peak_mb_s: float | None = None,
    what: str = "Latency, ns",
    width: int = WIDE,
    invalid: str = "",
) -> tuple[Json, str]:
    """Return the specification and what it says in words."""
    drawn = curves.unique(load.curves)
    pairs = [point for curve in drawn for point in _points(curve)]
    peak = (peak_mb_s or max(x for x, _ in pairs) * 1e3) / 1e3
    knees = {curve.label: _knee(curve, peak) for curve in drawn}
    many = len(drawn) > MANY
    if many:
        ranked = sorted(drawn, key=lambda curve: knees[curve.label][1])
        picked = {ranked[-1].label: f"worst: {ranked[-1].label}", ranked[len(ranked) // 2].label: "median"}
        shown_curves = [Curve(picked[curve.label], curve.points) for curve in ranked[::-1] if curve.label in picked]
        others = [curve for curve in ranked if curve.label not in picked]
        knees |= {picked[name]: knees[name] for name in picked}
    else:
        shown_curves, others = drawn, []
    names = [curve.label for curve in shown_curves]
    frame = base.Frame(width, legend=names, invalid=invalid)
    rows = list(curves.rows(shown_curves, x_scale=1e3))
    unloaded = median(load.unloaded_ns) if load.unloaded_ns else None
    marked = [] if unloaded is None else [unloaded]
    _, top = base.reach([*(y for _, y in pairs), *marked], [row["h"] for row in rows])
    across = Scale(0.0, max(peak, *(x for x, _ in pairs)) * 1.06, frame.plot[0])
    up = Scale(0.0, top * 1.12, frame.plot[1], up=True)
    axes = (
        across.channel("x", "Bandwidth of the load, GB/s", ticks=width // 100, grid=False),
        up.channel("y", what, ticks=5),
    )
    place = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
    grey = {**place, "detail": {"field": "s"}, "order": None}
    layers: list[Json] = []
    if accepted:
        line = base.table({"s": "accepted", "x": rounded(x / 1e3), "y": rounded(y)} for x, y in accepted)
        layers.append(base.mark("line", line, grey, color=base.MUTED, strokeWidth=5, opacity=0.35))
    if others:
        layers.append(
            base.mark("line", base.table(curves.rows(others, x_scale=1e3)), grey, color=base.MUTED, opacity=0.35)
        )
    layers += [
        base.rules("x", [peak]),
        *([base.rules("y", marked)] if marked else []),
        *curves.layers(
            names,
            axes,
            base.tips(("s", "Probe"), ("x", "GB/s"), ("y", what), ("l", "from"), ("h", "to")),
            lying=True,
            width=width,
        ),
    ]
    rings = [knees[curve.label] for curve in shown_curves]
    layers.append(
        base.mark(
            "point",
            base.table({"x": rounded(x), "y": rounded(y)} for x, y in rings),
            place,
            size=170,
            strokeWidth=2,
            color=base.COLOURS[1],
        )
    )
    ringed = max(rings, key=lambda each: each[1])
    said = f"{base.shown(ringed[1], 'ns')} at {base.shown(ringed[0], 'GB/s')}"
    taken = [(row["x"], row["y"]) for row in rows] + [(peak, up.high * share / 20) for share in range(21)]
    layers.append(
        base.labels([(*ringed, said)], [*taken, *_between(taken)], (across, up), base.AROUND, fontWeight="bold")
    )
    notes = [{"x": peak, "y": up.low, "text": f"peak {base.shown(peak, 'GB/s')}"}]
    layers.append(base.text(notes, align="right", baseline="bottom", dx=-6, dy=-3, color=base.MUTED, fontSize=11))
    if unloaded is not None:
        note = {"x": 0.0, "y": rounded(unloaded), "text": f"unloaded {base.shown(unloaded, 'ns')}"}
        layers.append(base.text([note], align="left", baseline="top", dx=6, dy=5, color=base.MUTED, fontSize=11))
    told = f"{said}, which is {filters.percent(ringed[0] / peak, 2)} of the peak of {base.shown(peak, 'GB/s')}"
    if unloaded is not None:
        told += f"; {base.shown(unloaded, 'ns')} without load"
    return frame.spec(layers, data=base.table(rows)), told


def _points(curve: Curve) -> list[tuple[float, float]]:
    """Return the points of *curve* in GB/s and ns."""
    return [(across.value / 1e3, up.value) for across, up in curve.points if isinstance(across, Estimate)]


def _knee(curve: Curve, peak: float) -> tuple[float, float]:
    """Return the point (GB/s, ns) of *curve* nearest to ``KNEE`` of *peak*."""
    return min(_points(curve), key=lambda point: abs(point[0] - KNEE * peak))


def _between(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points along the lines between *points*."""
    return [
        (x + (u - x) * part / 8, y + (v - y) * part / 8) for (x, y), (u, v) in pairwise(points) for part in range(1, 8)
    ]
