# SPDX-License-Identifier: Apache-2.0
"""Random bandwidth: lines that all CPUs together read from their memory in random order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.statistics import Estimate, combined
from calibration.measurements.base import HalfWidth, Metric, Parsed, Planned, Step, Values
from calibration.measurements.evidence import only_point
from calibration.measurements.metric_rows import BANDWIDTH_REPEATS, MEMORY_TRAFFIC, bandwidth, fraction
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.sut import MIB, Sut
from calibration.measurements.traffic import (
    MEMORY_ONLY_SUFFIX,
    PLAIN,
    Mix,
    TrafficDeclaration,
    TrafficSettings,
    all_cpus,
    buffer_bytes,
    on_memory_only,
    shape_options,
    threads_by_node,
)
from calibration.measurements.traffic_points import MixBandwidth, measured_points, missing_points, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

MIX: Mix = "random_reads"
RANDOM_BYTES_MIN = 4 * MIB
"""Least size of a buffer: the order of fewer lines is not random."""


class RandomBandwidthSettings(TrafficSettings):
    """All CPUs, each with a buffer of its own on its node."""

    windows: PositiveInt = 4
    target_half_width: HalfWidth = 0.02


class RandomBandwidthValues(Values):
    """What all threads of ``group`` read from memory, in pages of kind ``page``: whole lines, as many as loads.

    From the nearest memory, or from the nearest without CPUs (``memory_only``).
    ``sequential_share`` is relative to reads in the order of addresses, the mix reads of the peak injection bandwidth
    in its tuned shape; ``None`` if the run lacks it.
    """

    kind: Literal["random_bandwidth"] = "random_bandwidth"
    memory_only: bool = False
    group: str
    page: str
    reads: MixBandwidth
    sequential_share: Estimate | None = None

    @property
    def variant(self) -> str:
        """Begins the names of its metrics, after the kind."""
        return "memory_only." * self.memory_only

    @property
    def line_bytes(self) -> int:
        """What memory moves for each load."""
        return self.reads.accounting.model_dram_bytes_per_step

    @property
    def loads_per_s(self) -> float:
        """Loads per second of all threads."""
        return self.reads.bandwidth_mb_s.value * 1e6 / self.line_bytes


class RandomBandwidth(TrafficDeclaration[RandomBandwidthSettings, RandomBandwidthValues]):
    """One word of each line in random order, loads independent of each other, on all CPUs at the same time."""

    title = "Random bandwidth"
    question = "How much do all CPUs together read if each load is from another place?"
    metric_rows = tuple(
        row
        for variant, where in (("", ""), ("{memory:memory_only}.", ", from memory-only nodes"))
        for row in (
            bandwidth(
                f"random_bandwidth.{variant}bandwidth_mb_s",
                f"lines read at random by all CPUs{where}",
                "access_patterns",
            ),
            fraction(
                f"random_bandwidth.{variant}sequential_share",
                f"the same, relative to reads in the order of addresses{where}",
                "access_patterns",
                better="higher",
                tolerance=BANDWIDTH_REPEATS,
                depends=MEMORY_TRAFFIC,
            ),
        )
    )

    def steps(self, sut: Sut, settings: RandomBandwidthSettings) -> Iterator[Planned]:
        """Yield one step with all CPUs, and one on memory-only nodes if there are any."""
        own = all_cpus(sut)
        for suffix, where, parts in (
            ("", "", own),
            (MEMORY_ONLY_SUFFIX, ", memory-only nodes", on_memory_only(sut, own)),
        ):
            if not parts:
                continue
            yield self.traffic_step(
                f"{units.plural(sum(len(part.cpus) for part in parts), 'CPU')}{where}",
                [parts],
                (MIX,),
                random_bytes(sut, threads_by_node(parts), buffer_bytes(sut, parts, (MIX,))),
                {"delay": 0, **settings.options(), **shape_options(settings, PLAIN, None, (MIX,))},
                cost=settings.cost_s,
                repeated=settings,
                suffix=suffix,
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the bandwidth."""
        points = read_result(document, BandwidthResult).points
        point = only_point(points, step.id)
        ((_, reads),) = measured_points(points, step.target_half_width)
        pages = {placement.pages.obtained for placement in point.placements or ()}
        yield Parsed(
            values=RandomBandwidthValues(
                memory_only=step.id.endswith(MEMORY_ONLY_SUFFIX),
                group=point.group,
                page=pages.pop() if len(pages) == 1 else "mixed",
                reads=reads,
            ),
            flags=tuple(traffic_flags(sut, document, points, {MIX: reads})),
            missing=missing_points(points),
        )

    def completed(self, values: RandomBandwidthValues, run: Mapping[str, Values]) -> RandomBandwidthValues:
        """Return *values* with their share of sequential reads by the same CPUs, if the *run* measured them."""
        for peak in run.values():
            if isinstance(peak, PeakValues) and not peak.plain and peak.group == values.group and "reads" in peak.mixes:
                share = combined([values.reads.bandwidth_mb_s, peak.mixes["reads"].bandwidth_mb_s], _ratio, "fraction")
                return values.model_copy(update={"sequential_share": share})
        return values

    def summary(self, measured: Sequence[RandomBandwidthValues]) -> Iterator[str]:
        """Yield bandwidth, loads per second and share."""
        for values in measured:
            share = values.sequential_share
            beside = "" if share is None else f", {units.percent(share.value)} of sequential reads"
            where = " from memory-only nodes" * values.memory_only
            yield (
                f"At random, all CPUs read{where} {units.headline(values.reads.bandwidth_mb_s)}, "
                f"{units.significant(values.loads_per_s / 1e6, 3)} million lines/s{beside}."
            )

    def metrics(self, values: RandomBandwidthValues) -> Iterator[Metric]:
        """Yield the bandwidth, and its share of sequential reads if known."""
        variant, title = values.variant, f"{self.title}{', memory-only nodes' * values.memory_only}"
        yield self.metric(f"{variant}bandwidth_mb_s", title, values.reads.bandwidth_mb_s)
        if values.sequential_share is not None:
            yield self.metric(
                f"{variant}sequential_share", f"{title}, share of sequential reads", values.sequential_share
            )


def _ratio(values: Sequence[float]) -> float:
    return values[0] / values[1]


def random_bytes(sut: Sut, threads: Mapping[int, int], wanted_bytes: int) -> int:
    """Return the size of each buffer of *threads* by node: the next power of two, or the largest that fits."""
    size = max(RANDOM_BYTES_MIN, 1 << (wanted_bytes - 1).bit_length())
    for node, count in threads.items():
        usable = sut.usable_bytes(node)
        while usable is not None and size > RANDOM_BYTES_MIN and size * count > usable:
            size //= 2
    return size
