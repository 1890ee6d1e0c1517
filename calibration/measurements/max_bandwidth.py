# SPDX-License-Identifier: Apache-2.0
"""Maximum bandwidth: the highest bandwidth over all settings tried, for each mix."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from calibration.base import units
from calibration.measurements.base import SEARCH_SUFFIX, Metric, Parsed, Planned, Step, Values
from calibration.measurements.counting import BYTE_ROLES, event_options
from calibration.measurements.metric_rows import Record, bandwidth
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.platform import ShapeReference
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    ANY_MIX,
    DEFAULT_SHAPE,
    MIXES,
    CountedTrafficSettings,
    Mix,
    TrafficDeclaration,
    all_cores,
    all_cpus,
    scan_s,
    shape_rows,
    shared_buffer_bytes,
)
from calibration.measurements.traffic_points import (
    MixBandwidth,
    Tried,
    best_points,
    looks_of,
    missing_points,
    search_results,
    traffic_flags,
)
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

STREAMS = (1, 4)
"""Streams tried if the platform has no choice of its own: those of the plain and the default shape."""

PREFETCH_BYTES = (0, 2048)
"""Prefetch distances tried if the platform has no choice of its own."""


class MaxSettings(CountedTrafficSettings):
    """The search: every combination of *streams*, *prefetch_bytes* and *delays*, for all threads and one per core.

    Without streams and prefetch distances, each mix tries the shapes kept for the platform, else ``STREAMS`` and
    ``PREFETCH_BYTES``. The best *keep_best* of each mix are measured again in full, so that the winner is not just
    lucky.
    """

    mixes: tuple[Mix, ...] = MIXES
    streams: tuple[PositiveInt, ...] | None = None
    prefetch_bytes: tuple[NonNegativeInt, ...] | None = None
    delays: tuple[NonNegativeInt, ...] = (0, 8, 15)
    keep_best: PositiveInt = 3
    one_per_core: bool = True


class MaxValues(Values):
    """The best full measurement of each mix, and everything the search tried.

    ``groups`` and ``sources`` name, for each mix, the CPUs and the measurement that reached it: this one, or the peak
    injection bandwidth of the same run if that is higher. So a run's maximum is never below its peak.
    """

    kind: Literal["max_bandwidth"] = "max_bandwidth"
    mixes: dict[str, MixBandwidth]
    groups: dict[str, str]
    sources: dict[str, str]
    search: tuple[Tried, ...]


class MaxBandwidth(TrafficDeclaration[MaxSettings, MaxValues]):
    """A search over shapes, delays and thread counts, with the best measured again."""

    title = "Maximum bandwidth"
    question = "What is the most that this machine's memory delivers, and with which setting?"
    metric_rows = tuple(
        bandwidth(
            f"max_bandwidth.{{mix:{mix}}}.bandwidth_mb_s",
            "the best of the search, measured again, by mix",
            "mixed_bandwidth" if record is None else "read_bandwidth",
            record=record,
        )
        for mix, record in (
            ("reads", Record("read_bandwidth", "Maximum read bandwidth", "machine", 1)),
            (ANY_MIX, None),
        )
    )

    def steps(self, sut: Sut, settings: MaxSettings) -> Iterator[Planned]:
        """Yield a search with all CPUs and, with SMT, with one CPU per core, and the measurement of what it chooses.

        The search starts at the shapes kept for the platform unless the profile names shapes.
        """
        groups = [all_cpus(sut)]
        if settings.one_per_core:
            singles = all_cores(sut)
            if singles != groups[0]:
                groups.append(singles)
        shapes, tries = candidates(settings, sut.traffic_shape)
        full = tries if tries == 1 else min(tries, settings.keep_best + (len(settings.delays) > 1))
        sizes = shared_buffer_bytes(sut, groups, settings.mixes)
        counters = event_options(sut.context, BYTE_ROLES) if settings.counters else {}
        what = f"{units.plural(tries * len(groups), 'setting')} x {units.plural(len(settings.mixes), 'mix')}"
        tried: dict[str, object] = {"delay": ",".join(map(str, settings.delays)), **shapes}
        measured = self.traffic_step(
            what,
            groups,
            settings.mixes,
            sizes,
            {**settings.options(), **tried, **counters},
            cost=partial(settings.cost_s, repeats=full),
            repeated=settings,
        )
        if tries == 1:
            yield measured
            return
        search = self.traffic_step(
            f"search of {what}",
            groups,
            settings.mixes,
            sizes,
            {**tried, "keep-best": settings.keep_best},
            cost=lambda runs: scan_s(runs, repeat(tries, len(runs))),
            suffix=SEARCH_SUFFIX,
        )
        yield from measured.after(search, "--only")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the winners and the search."""
        points, looks = read_result(document, BandwidthResult).points, looks_of(document)
        fastest, winners = best_points(points, step.target_half_width, sut.context)
        yield Parsed(
            values=MaxValues(
                mixes=winners,
                groups={point.mix: point.group for point in fastest},
                sources=dict.fromkeys(winners, step.id),
                search=search_results(looks),
            ),
            flags=tuple(traffic_flags(sut, document, fastest, winners)),
            missing=missing_points((*looks, *points)),
        )

    def completed(self, values: MaxValues, run: Mapping[str, Values]) -> MaxValues:
        """Return *values* with the run's peak injection bandwidth in place of any lower maximum."""
        mixes, groups, sources = dict(values.mixes), dict(values.groups), dict(values.sources)
        for identifier, other in run.items():
            if not isinstance(other, PeakValues) or other.memory_only:
                continue
            for name, mix in other.mixes.items():
                if name in mixes and mix.bandwidth_mb_s.value > mixes[name].bandwidth_mb_s.value:
                    mixes[name], groups[name], sources[name] = mix, other.group, identifier
        return values.model_copy(update={"mixes": mixes, "groups": groups, "sources": sources})

    def metrics(self, values: MaxValues) -> Iterator[Metric]:
        """Yield the maximum of each mix."""
        for name, mix in values.mixes.items():
            yield self.metric(f"{name}.bandwidth_mb_s", f"Maximum bandwidth, {name}", mix.bandwidth_mb_s)


def candidates(settings: MaxSettings, kept: ShapeReference | None) -> tuple[dict[str, object], int]:
    """Return sutprobe's options for the shapes to try, from a profile and *kept*, and the most settings of a mix.

    Of the shapes kept for the platform, each mix tries its own and the one for all mixes, beside the default.
    """
    streams, prefetch_bytes = settings.streams, settings.prefetch_bytes
    words: dict[str, object] = {"width": settings.width}
    shapes = len(streams or STREAMS) * len(prefetch_bytes or PREFETCH_BYTES)
    if streams is None and prefetch_bytes is None and kept is not None:
        by_mix = {mix: [kept.shape_for(mix), kept.all_mixes, DEFAULT_SHAPE] for mix in settings.mixes}
        if any(settings.delays):  # vectors alone have delays
            by_mix = {mix: [one for one in own if one.instruction == "vector"] for mix, own in by_mix.items()}
        words["shape"] = rows = shape_rows(by_mix)
        shapes = max(sum(row.startswith(f"{mix}=") for row in rows) for mix in settings.mixes)
        if settings.width == "auto":
            words["width"] = kept.all_mixes.width
    else:
        words["streams"] = ",".join(map(str, streams or STREAMS))
        words["prefetch-bytes"] = ",".join(map(str, prefetch_bytes or PREFETCH_BYTES))
    return words, shapes * len(settings.delays)
