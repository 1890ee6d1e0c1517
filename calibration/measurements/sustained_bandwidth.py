# SPDX-License-Identifier: Apache-2.0
"""Sustained bandwidth: bandwidth over seconds, under power limit, temperature and refresh."""

from collections.abc import Iterator
from math import ceil
from statistics import fmean, median
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from calibration.base.errors import InputError
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.measurements.base import MeasuredRun, Metric, Parsed, Planned, Settings, Step, Values
from calibration.measurements.metric_rows import DISTURBED, MEMORY_TRAFFIC, bandwidth, fraction
from calibration.measurements.platform import Setting, Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    ANY_MIX,
    Mix,
    TrafficDeclaration,
    TrafficSettings,
    all_cores,
    buffer_bytes,
    shape_options,
)
from calibration.measurements.traffic_points import measured_points, missing_points, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthResult, Telemetry
from calibration.sutprobe.document import ProbeDocument, read_result

WINDOW_S = 0.1
"""Length of a window: as long as a burst of the other kinds, so that the first windows compare with them."""

COURSE_POINTS = 400
"""Most points of a chart; each is the mean of its windows."""

EDGE_WINDOWS = 10
"""Windows of the first and of the last second that are compared."""

TELEMETRY_INTERVAL_S = 1.0
"""Seconds between two readings of clock, energy and temperature; a reading takes less than a millisecond."""

MAX_LOSS = 0.02
"""Loss from which the bandwidth is not sustained: neighbours and refresh cause less from second to second."""


class SustainedSettings(Settings):
    """All CPUs load the memory with each of *mixes* for *seconds* without a pause, in one *shape*.

    The default *shape* is the one kept for the platform, else the built-in one.
    """

    seconds: PositiveFloat = 10.0
    mixes: tuple[Mix, ...] = ("reads",)
    shape: Shape | None = None


class SustainedBandwidthValues(Values):
    """One mix over time, ``windows_mb_s`` of ``window_s`` each; ``seconds_mb_s`` is the median of each second.

    ``bandwidth_mb_s`` is that of the second half. ``lost_fraction`` compares the windows of the first second with those
    of the last: 0.1 is a tenth less. ``telemetry`` are the readings meanwhile.
    """

    kind: Literal["sustained_bandwidth"] = "sustained_bandwidth"
    mix: Annotated[str, Field(pattern=f"^(?:{ANY_MIX})$")]
    group: str
    setting: Setting
    window_s: float
    windows_mb_s: tuple[float, ...]
    seconds_mb_s: tuple[float, ...]
    bandwidth_mb_s: Estimate
    lost_fraction: Estimate
    telemetry: Telemetry | None


class SustainedBandwidth(TrafficDeclaration[SustainedSettings, SustainedBandwidthValues]):
    """One continuous load; the other kinds measure bursts."""

    title = "Sustained bandwidth"
    question = "What is left of the bandwidth after seconds of load?"
    once = True
    metric_rows = (
        bandwidth(
            f"sustained_bandwidth.{{mix:{ANY_MIX}}}.bandwidth_mb_s",
            "all CPUs in the second half of a load that goes on for seconds",
            "mixed_bandwidth",
        ),
        fraction(
            f"sustained_bandwidth.{{mix:{ANY_MIX}}}.lost_fraction",
            "share of the first second's bandwidth that was gone in the last",
            "mixed_bandwidth",
            better="lower",
            tolerance=DISTURBED,
            depends=MEMORY_TRAFFIC | {"clock"},
        ),
    )

    def steps(self, sut: Sut, settings: SustainedSettings) -> Iterator[Planned]:
        """Yield one step with all mixes, in the shape kept for the platform if the profile names none."""
        parts = all_cores(sut)
        size_bytes = buffer_bytes(sut, parts, settings.mixes)
        windows = max(2 * EDGE_WINDOWS, round(settings.seconds / WINDOW_S))
        traffic = TrafficSettings(placements=1, windows=windows, window_s=WINDOW_S)
        yield self.traffic_step(
            f"{settings.seconds:g} s of {', '.join(settings.mixes)}",
            [parts],
            settings.mixes,
            size_bytes,
            {
                "placements": 1,
                "windows": windows,
                "window-s": WINDOW_S,
                "telemetry-interval-s": TELEMETRY_INTERVAL_S,
                **shape_options(traffic, settings.shape, sut.traffic_shape, settings.mixes),
            },
            cost=traffic.cost_s,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield one measurement per mix."""
        del step
        points = read_result(document, BandwidthResult).points
        missing = missing_points(points)
        for point, mix in measured_points(points, None, sut.context):
            (windows,) = mix.bandwidth_mb_s.samples
            if len(windows) < 2 * EDGE_WINDOWS:
                raise InputError(f"{len(windows)} windows of {point.mix}, fewer than {2 * EDGE_WINDOWS}")
            first, last = windows[:EDGE_WINDOWS], windows[-EDGE_WINDOWS:]
            lost = estimate([[1 - end / begin for begin, end in zip(first, last, strict=True)]], "fraction")
            placement = (point.placements or ())[0]
            values = SustainedBandwidthValues(
                mix=point.mix,
                group=point.group,
                setting=mix.setting,
                window_s=float(document.parameters["window_s"]),
                windows_mb_s=windows,
                seconds_mb_s=tuple(
                    median(windows[begin : begin + EDGE_WINDOWS])
                    for begin in range(0, len(windows) - EDGE_WINDOWS + 1, EDGE_WINDOWS)
                ),
                bandwidth_mb_s=estimate([windows[len(windows) // 2 :]], "MB/s"),
                lost_fraction=lost,
                telemetry=placement.telemetry,
            )
            yield Parsed(
                suffix=f"-{point.mix}",
                values=values,
                flags=(*traffic_flags(sut, document, [point], {point.mix: mix}), *_lost(values)),
                missing=missing,
            )
            missing = ()

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield bandwidth (GB/s) over the seconds of load, a curve per mix."""
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of(
                (values.mix, ((start + step / 2) * values.window_s, fmean(values.windows_mb_s[start : start + step])))
                for values in run.values(self.kind)
                for step in [ceil(len(values.windows_mb_s) / COURSE_POINTS)]
                for start in range(0, len(values.windows_mb_s), step)
            ),
            (Axis("Time under load", "s"), Axis("Bandwidth", "GB/s", scale=1e3)),
            points=False,
            alt="Bandwidth over the time under load, by mix",
            caption="The y axis does not start at zero.",
        )

    def metrics(self, values: SustainedBandwidthValues) -> Iterator[Metric]:
        """Yield the sustained bandwidth, and the loss."""
        seconds = len(values.windows_mb_s) * values.window_s
        title = f"Sustained bandwidth over {seconds:.0f} s, {values.mix}"
        yield self.metric(f"{values.mix}.bandwidth_mb_s", title, values.bandwidth_mb_s)
        title = f"Bandwidth loss over {seconds:.0f} s, {values.mix} (negative: gain)"
        yield self.metric(f"{values.mix}.lost_fraction", title, values.lost_fraction)


def _lost(values: SustainedBandwidthValues) -> Iterator[Flag]:
    lost = values.lost_fraction
    if lost.interval is not None and lost.interval[0] > MAX_LOSS:
        yield flag(
            "NOT_SUSTAINED",
            f"{values.mix}: {lost.value * 100:.1f} % less in the last second than in the first "
            f"({lost.interval[0] * 100:.1f} % to {lost.interval[1] * 100:.1f} %)",
        )
