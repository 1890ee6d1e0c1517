# SPDX-License-Identifier: Apache-2.0
"""Peak injection bandwidth: bandwidth of one thread on every core without delay, for each mix."""

from collections.abc import Iterator, Sequence
from typing import Literal

from calibration.base import units
from calibration.charts.bars import bar_chart
from calibration.charts.base import Chart, Json, bounds, label, shown
from calibration.context.population import Population, population
from calibration.measurements.base import MeasuredRun, Metric, Parsed, Planned, Step, Values
from calibration.measurements.counting import BYTE_ROLES, event_options
from calibration.measurements.metric_rows import Record, bandwidth
from calibration.measurements.platform import Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    ANY_MIX,
    MEMORY_ONLY_SUFFIX,
    MIXES,
    PLAIN,
    CountedTrafficSettings,
    Mix,
    TrafficDeclaration,
    all_cores,
    buffer_bytes,
    on_memory_only,
    shape_options,
)
from calibration.measurements.traffic_points import MixBandwidth, measured_points, missing_points, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

PLAIN_SUFFIX = "-plain"
"""Ends the step with a single stream."""


class PeakSettings(CountedTrafficSettings):
    """*mixes* in the best *shape*, *plain_mixes* also as a single stream, *memory_only_mixes* on memory-only nodes.

    The default *shape* is the one kept for the platform, else the built-in one.
    """

    mixes: tuple[Mix, ...] = MIXES
    shape: Shape | None = None
    plain_mixes: tuple[Mix, ...] = MIXES
    memory_only_mixes: tuple[Mix, ...] = MIXES


class PeakValues(Values):
    """Bandwidth by mix in one shape; ``plain`` is one stream without software prefetch.

    Of the nearest memory, or of the nearest without CPUs (``memory_only``).
    """

    kind: Literal["peak_injection_bandwidth"] = "peak_injection_bandwidth"
    plain: bool
    memory_only: bool = False
    group: str
    mixes: dict[str, MixBandwidth]

    @property
    def variant(self) -> str:
        """Begins the names of its metrics, after the kind."""
        return "plain." * self.plain + "memory_only." * self.memory_only


class PeakInjectionBandwidth(TrafficDeclaration[PeakSettings, PeakValues]):
    """One thread on every core, no delay, each mix in one shape."""

    title = "Peak injection bandwidth"
    question = "How much do all cores together move when none of them waits?"
    main_chart_rank = 50
    metric_rows = tuple(
        bandwidth(
            f"peak_injection_bandwidth.{mix}.bandwidth_mb_s",
            "one thread on every core without a delay, by mix; plain is a single stream without software prefetch, "
            "memory_only the memory of nodes without CPUs",
            "read_bandwidth" if record else "mixed_bandwidth",
            record=record,
            reference=reference,
        )
        for mix, reference, record in (
            ("{mix:reads}", "read_machine_mb_s", Record("read_bandwidth", "Read bandwidth", "machine")),
            ("{mix:3:1}", "mix_3_1_mb_s", None),
            ("{mix:2:1}", "mix_2_1_mb_s", None),
            ("{mix:1:1}", "mix_1_1_mb_s", None),
            ("{mix:stream_triad}", "mix_triad_mb_s", None),
            (f"{{mix:{ANY_MIX}}}", None, None),
            (f"{{shape:plain}}.{{mix:{ANY_MIX}}}", None, None),
            (f"{{memory:memory_only}}.{{mix:{ANY_MIX}}}", None, None),
        )
    )

    def steps(self, sut: Sut, settings: PeakSettings) -> Iterator[Planned]:
        """Yield one step with the tuned access pattern, and one with the plain one for comparison with other tools.

        And one with the tuned pattern on the nearest memory-only nodes, if there are any.

        If the profile has no shape, the tuned one is that kept for the platform.
        """
        own = all_cores(sut)
        own_bytes = buffer_bytes(sut, own, (*settings.mixes, *settings.plain_mixes))
        counters = event_options(sut.context, BYTE_ROLES) if settings.counters else {}
        tuned = (settings.shape, sut.traffic_shape)
        beside = on_memory_only(sut, own) if settings.memory_only_mixes else []
        for suffix, words, parts, (shape, kept), mixes in (
            ("", "best pattern", own, tuned, settings.mixes),
            (PLAIN_SUFFIX, "single stream", own, (PLAIN, None), settings.plain_mixes),
            (MEMORY_ONLY_SUFFIX, "memory-only nodes", beside, tuned, settings.memory_only_mixes),
        ):
            if not mixes or not parts:
                continue
            yield self.traffic_step(
                f"{words}, {units.plural(len(mixes), 'mix')}",
                [parts],
                mixes,
                own_bytes if parts is own else buffer_bytes(sut, parts, mixes),
                {"delay": 0, **settings.options(), **shape_options(settings, shape, kept, mixes), **counters},
                cost=settings.cost_s,
                repeated=settings,
                suffix=suffix,
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the bandwidth of each mix."""
        points = read_result(document, BandwidthResult).points
        target = step.target_half_width
        mixes = {point.mix: mix for point, mix in measured_points(points, target, sut.context)}
        yield Parsed(
            values=PeakValues(
                plain=step.id.endswith(PLAIN_SUFFIX),
                memory_only=step.id.endswith(MEMORY_ONLY_SUFFIX),
                group=points[0].group,
                mixes=mixes,
            ),
            flags=tuple(traffic_flags(sut, document, points, mixes)),
            missing=missing_points(points),
        )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return bandwidth (GB/s) by mix with intervals, and the theoretical peak if it is known.

        ``None`` for a single value.
        """
        rows: list[Json] = []
        for values in run.values(self.kind):
            for mix, found in values.mixes.items():
                value, low, high = bounds(found.bandwidth_mb_s, 1e3)
                shape = "single stream" if values.plain else "best pattern"
                shape = "memory-only nodes" if values.memory_only else shape
                rows.append(
                    {"g": label(mix), "s": shape, "v": value, "l": low, "h": high, "t": units.significant(value, 3)}
                )
        if len(rows) < 2:
            return None
        alt = "Bandwidth by mix of reads and writes"
        caption = "Peak injection bandwidth: bars are medians, lines their intervals."
        peaks = None if run.context is None else population(run.context)
        peak = peaks.machine.peak_mb_s / 1e3 if isinstance(peaks, Population) else None
        if peak is not None:
            alt += f" (theoretical peak {shown(peak, 'GB/s')})"
            caption += f" The dashed line is the theoretical peak, {shown(peak, 'GB/s')}."
        return bar_chart(
            "bandwidth_by_mix",
            rows,
            ("Bandwidth", "GB/s"),
            alt=alt,
            caption=caption,
            width=width,
            marked=peak,
            measurements=run.of(self.kind),
        )

    def summary(self, measured: Sequence[PeakValues]) -> Iterator[str]:
        """Yield the best mix with the best pattern, of each memory."""
        for values in measured:
            if not values.plain and (len(values.mixes) > 1 or values.memory_only):
                name, best = max(values.mixes.items(), key=lambda item: item[1].bandwidth_mb_s.value)
                where = " on memory-only nodes" if values.memory_only else ""
                yield f"The best mix{where} is {name.replace('_', ' ')} with {units.headline(best.bandwidth_mb_s)}."

    def metrics(self, values: PeakValues) -> Iterator[Metric]:
        """Yield the bandwidth of each mix."""
        for name, mix in values.mixes.items():
            title = (
                f"{self.title}, {name}{', single stream' * values.plain}{', memory-only nodes' * values.memory_only}"
            )
            yield self.metric(f"{values.variant}{name}.bandwidth_mb_s", title, mix.bandwidth_mb_s)
