# SPDX-License-Identifier: Apache-2.0
"""Bandwidth regulation: bandwidth and latency by threads and no-ops, with every available method.

Experiment of C. Helm and K. Taura, *Measurement of Main Memory Bandwidth and Memory Access Latency in Intel
Processors*: a loop reads one word of each cache line, with no-ops after every four lines, on more and more cores of
one node, with the hardware prefetchers as found and off.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from statistics import median
from typing import Literal, get_args

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from calibration.base.model import Model
from calibration.base.statistics import Estimate
from calibration.base.units import percent, plural
from calibration.charts.alternative import Value, extremes
from calibration.charts.bars import bar_chart
from calibration.charts.base import Chart, Json, Measured, label
from calibration.charts.curves import GB_S, Axis, Curves, curves_of, line_chart
from calibration.charts.load import latency_chart
from calibration.context.model import Context
from calibration.counters.assignment import SAMPLES
from calibration.counters.event_choice import choose_events
from calibration.counters.latency import (
    LATENCY_ROLES,
    CoreLatency,
    CounterLatency,
    SampledLoads,
    latency_flags,
    sampled_loads,
    variation,
)
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.measurements.base import Declaration, HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step, Values
from calibration.measurements.counting import (
    BACKGROUND_ONCE_S,
    BYTE_ROLES,
    bandwidth_counted,
    counted_rate,
    event_options,
    latency_beside,
    loaded_counted,
)
from calibration.measurements.evidence import estimate_of, evidence_flags, missing_part, require_any
from calibration.measurements.loaded_latency import drift_flags, loaded_memory, placement_s, probe_latencies, sweep_s
from calibration.measurements.metric_rows import bandwidth, latency
from calibration.measurements.sut import Place, Sut, memory_bound_bytes, size_flags
from calibration.measurements.traffic import (
    PLAIN,
    CountedTrafficSettings,
    Mix,
    Part,
    Run,
    buffer_bytes,
    held_by_node,
    read_group,
    shape_options,
)
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.loaded import LoadedPoint, LoadedResult

MIX: Mix = "line_reads"
"""The mix of the experiment."""

State = Literal["as_found", "off"]

NOPS = (0, 10, 20, 30, 40, 50, 51, 52, 53, 54, 55, 60, 70, 80, 90, 100, 200, 500, 1000, 2000, 5000)
"""As in the article, with more of them where its curves drop, and a tail to below a tenth of the bandwidth."""

Method = Literal["bandwidth", "counted_bandwidth", "chase", "l1_miss", "load_miss_real", "sampled"]
"""What has a value for each number of threads and no-ops."""

LATENCIES: Mapping[Method, str] = {
    "chase": "Latency of the chase",
    "l1_miss": "L1 miss latency",
    "load_miss_real": "Load miss real latency",
    "sampled": "Latency of sampled loads",
}
METHODS: Mapping[Method, str] = {
    "bandwidth": "Bandwidth by sutprobe",
    "counted_bandwidth": "Bandwidth by the memory controllers",
    **LATENCIES,
}
"""Names of the methods, in chart order."""

NOPS_LINEAR = 10
"""Offset of the logarithmic axis of no-ops, to include 0."""

NOPS_AXIS = Axis(
    "No-ops after every four cache lines",
    kind="decades",
    ticks=[number + NOPS_LINEAR for number in (0, 10, 30, 100, 300, 1000, 3000, 10000, 30000)],
    labels=f"format(datum.value - {NOPS_LINEAR}, '~r')",
    text=lambda x: f"{x - NOPS_LINEAR:g} no-ops",
)

VARIATION_BINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Upper bounds of the bins of coefficients of variation."""

BY_HARDWARE: tuple[Method, ...] = ("l1_miss", "load_miss_real", "sampled")
"""The methods that need counters, or samples, of the core."""


class RegulationSettings(CountedTrafficSettings):
    """Each number of threads with all *nops*, with *prefetchers* as found and off.

    The numbers are 1, 2, 4 and so on, all cores but one, and all cores of one node; with *every_count* every number.
    *sampling* also samples loads if possible.
    """

    nops: tuple[NonNegativeInt, ...] = NOPS
    prefetchers: tuple[State, ...] = ("as_found", "off")
    every_count: bool = False
    sampling: bool = True
    placements: PositiveInt = 6
    windows: PositiveInt = 3
    window_s: PositiveFloat = 0.03
    target_half_width: HalfWidth = 0.02


class RegulationPoint(Model):
    """One number of no-ops: bandwidth, and latency by each available method, in the same windows.

    ``chase_ns`` is that of a probe on its own core, ``None`` if no core is left. Bytes (``counted``) and their rate,
    and the latency of the load's own reads by counters (``counter_latency``) and by samples are ``None`` if not
    available. ``variation`` has each method's coefficient of variation over the placements.
    """

    nops: int
    bandwidth_mb_s: Estimate
    chase_ns: Estimate | None
    counted_mb_s: Estimate | None
    counted: CountedBytes | None
    counter_latency: CounterLatency | None
    sampled: SampledLoads | None
    variation: dict[Method, float]

    def by_hardware(self, method: Method) -> CoreLatency | None:
        """Return the latency by counters or by samples; ``None`` if not available."""
        if method == "sampled":
            return None if self.sampled is None else self.sampled.latency
        found: CoreLatency | None = getattr(self.counter_latency, method, None)
        return found

    def latency_ns(self, method: Method) -> Estimate | None:
        """Return the latency by *method* in ns; ``None`` if not available."""
        if method == "chase":
            return self.chase_ns
        found = self.by_hardware(method)
        return None if found is None else found.ns


class RegulationValues(Values):
    """The curve of ``threads`` threads on ``cpus``, of ``cores`` cores, with prefetchers as found or off.

    ``probe_cpu`` is that of the latency probe, ``None`` if all cores read.
    """

    kind: Literal["regulation"] = "regulation"
    prefetchers: State
    node: int
    cores: int
    threads: int
    cpus: tuple[int, ...]
    probe_cpu: int | None
    points: tuple[RegulationPoint, ...]


class Regulation(Declaration[RegulationSettings, RegulationValues]):
    """One sweep over no-ops for each number of threads and state of the prefetchers."""

    title = "Bandwidth regulation"
    question = "What do threads, no-ops and prefetchers make of bandwidth and latency, and do all methods agree?"
    once = True
    methods = METHODS
    metric_rows = (
        bandwidth(
            "regulation.{prefetchers:as_found|off}.bandwidth_mb_s",
            "all cores of a node reading one word of each line without no-ops, prefetchers as found or off",
            "access_patterns",
        ),
        latency(
            "regulation.{prefetchers:as_found|off}.latency_ns",
            "one load of the probe while all other cores of the node read so, prefetchers as found or off",
            "loaded_latency",
        ),
    )

    def steps(self, sut: Sut, settings: RegulationSettings) -> Iterator[Planned]:
        """Yield one sweep per number of threads; a probe runs beside all but the largest."""
        node = sut.cpu_nodes[0]
        probe = Place(sut.measuring_cpu(node), sut.home(node))
        beside = set(sut.siblings(probe.cpu))
        cores = sorted(sut.one_per_core(sut.cpus_of(node)), key=lambda cpu: (cpu in beside, cpu))
        for state in settings.prefetchers:
            for count in counts(len(cores), every=settings.every_count):
                part = Part(tuple(sorted(cores[:count])), probe.node)
                yield self._sweep(sut, settings, part, probe if count < len(cores) else None, state)

    def _sweep(self, sut: Sut, settings: RegulationSettings, part: Part, probe: Place | None, state: State) -> Step:
        size_bytes = buffer_bytes(sut, [part], (MIX,))
        roles = (*BYTE_ROLES, *LATENCY_ROLES)
        counters = event_options(sut.context, roles, background_s=BACKGROUND_ONCE_S) if settings.counters else {}
        sampling = choose_events(sut.context, LATENCY_ROLES).sampling if settings.sampling else None
        options = {
            "mix": MIX,
            "delay": ",".join(map(str, settings.nops)),
            "buffer-bytes": size_bytes,
            **settings.options(),
            **shape_options(settings, PLAIN, None, (MIX,)),
            **counters,
            **({} if sampling is None else {"sample": sampling.argument()}),
        }
        cpus = part.cpus
        run = Run([part], MIX, size_bytes)
        probe_bytes = 0
        if probe is None:
            options = {"group": part, **options}
            cost_s = settings.cost_s([run], len(settings.nops))
        else:
            probe_bytes = memory_bound_bytes(sut, probe.node)
            options = {"probe": probe, "load": part, "probe-size-bytes": probe_bytes, **options}
            cpus = tuple(sorted((*cpus, probe.cpu)))
            cost_s = sweep_s(settings, len(settings.nops), run, probe_bytes)
        return self.step(
            f"{plural(len(part.cpus), 'thread')}, {len(settings.nops)} numbers of no-ops",
            "bandwidth" if probe is None else "loaded",
            options,
            cpus=cpus,
            memory_bytes=loaded_memory(run, () if probe is None else (probe,), probe_bytes),
            cost_s=cost_s,
            setup_s=settings.placements * placement_s(run, probe_bytes),
            repeated=settings,
            suffix=f"-{len(part.cpus)}{'-off' * (state == 'off')}",
            prefetchers="off" if state == "off" else None,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the curve; a number of no-ops without a value is listed as missing."""
        target = step.target_half_width
        found: Sequence[BandwidthPoint | LoadedPoint]
        if document.subcommand == "loaded":
            result = read_result(document, LoadedResult)
            found, zero_load = result.points, result.zero_load
            (part,) = read_group(str(document.parameters["load"]))
        else:
            found, zero_load = read_result(document, BandwidthResult).points, ()
            (part,) = read_group(found[0].group)
        points = [_point(sut.context, part, raw, target) for raw in found if raw.placements]
        require_any(points, found, "number of no-ops")
        cores = sut.one_per_core(sut.cpus_of(sut.node_of(part.cpus[0])))
        size_bytes = _number(document.parameters["buffer_bytes"])
        yield Parsed(
            values=RegulationValues(
                prefetchers=step.prefetchers or "as_found",
                node=part.node,
                cores=len(cores),
                threads=len(part.cpus),
                cpus=part.cpus,
                probe_cpu=next((point.cpu for point in zero_load), None),
                points=tuple(points),
            ),
            flags=(
                *evidence_flags(document, found),
                *size_flags(sut, size_bytes * sut.fewest_per_llc(part.cpus), held_by_node([([part], size_bytes)])),
                *drift_flags(zero_load),
                *counted_flags([(f"{point.nops} no-ops", point.counted) for point in points if point.counted]),
                *latency_flags([point.counter_latency for point in points]),
            ),
            missing=tuple(missing_part(f"{_nops(raw)} no-ops", raw.error) for raw in found if not raw.placements),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield bandwidth against no-ops, latency by each method against bandwidth, and each method's variation."""
        for state in get_args(State):
            here = [measurement for measurement in run.of(self.kind) if measurement.values.prefetchers == state]
            if not here:
                continue
            yield line_chart(
                f"{self.kind}_{state}",
                here,
                _curves(here, lambda point: (float(point.nops + NOPS_LINEAR), point.bandwidth_mb_s)),
                (NOPS_AXIS, GB_S),
                alt="Bandwidth against the number of no-ops after every four lines, by number of threads",
            )
            for method, title in LATENCIES.items():
                if curves := _curves(here, partial(_by, method)):
                    caption = "Each point is one number of no-ops, bars are the intervals of both."
                    yield latency_chart(f"{self.kind}_{state}_{method}", here, curves, title, caption)
        varied = {title: self.variations(run.of(self.kind), method) for method, title in METHODS.items()}
        if any(varied.values()):
            yield _variation(varied)

    def variations(self, measured: Sequence[Measured[RegulationValues]], method: Method) -> list[float]:
        """Return the coefficients of variation of *method* of all points."""
        return [
            point.variation[method]
            for measurement in measured
            for point in measurement.values.points
            if method in point.variation
        ]

    def missing_reasons(self, measured: Sequence[Measured[RegulationValues]], uncounted: Iterable[str]) -> list[str]:
        """Return why points have no latency by counters or samples, without repetitions.

        The roles in *uncounted* (comma-separated) were never requested; their reason is given elsewhere.
        """
        never = {role for roles in uncounted for role in roles.split(", ")}
        found = []
        for point in (point for measurement in measured for point in measurement.values.points):
            if point.counter_latency is not None:
                gone = point.counter_latency.not_counted
                found += [f"{event.role}: {event.reason}" for event in gone if event.role not in never]
            if point.sampled is not None and point.sampled.reason is not None:
                found.append(f"{SAMPLES}: {point.sampled.reason}")
        return list(dict.fromkeys(found))

    def metrics(self, values: RegulationValues) -> Iterator[Metric]:
        """Yield the bandwidth of all cores, and the latency beside all but one, without no-ops."""
        full = min(values.points, key=lambda point: point.nops)
        how = "prefetchers as found" if values.prefetchers == "as_found" else "prefetchers off"
        if values.threads == values.cores:
            title = f"Bandwidth of all cores of node {values.node}, one word of each line, {how}"
            yield self.metric(f"{values.prefetchers}.bandwidth_mb_s", title, full.bandwidth_mb_s)
        elif values.threads == values.cores - 1 and full.chase_ns is not None:
            title = f"Latency beside the other cores of node {values.node}, one word of each line, {how}"
            yield self.metric(f"{values.prefetchers}.latency_ns", title, full.chase_ns)


def counts(cores: int, *, every: bool) -> list[int]:
    """Return the numbers of threads to measure on *cores* cores: where a curve bends, or *every* one."""
    if every:
        return list(range(1, cores + 1))
    powers = {1 << power for power in range(cores.bit_length()) if 1 << power <= cores}
    return sorted({*powers, max(1, cores - 1), cores})


def _number(value: object) -> int:
    """Return a parameter that is a number, or a list of one."""
    return int(str(value[0] if isinstance(value, list | tuple) else value))


def _nops(point: BandwidthPoint | LoadedPoint) -> int:
    return point.inject_delay if isinstance(point, LoadedPoint) else point.delay


def _point(context: Context, part: Part, point: BandwidthPoint | LoadedPoint, target: float | None) -> RegulationPoint:
    placements = point.placements or ()
    nodes = [part.node] * len(part.cpus)
    counters = [placement.counters for placement in placements]
    samples = [
        (placement.samples, placement.core_hz_before) for placement in placements if placement.samples is not None
    ]
    chase = None
    if isinstance(point, LoadedPoint):
        chase = probe_latencies(point.placements or (), target)[0].latency_ns
        counted = loaded_counted(context, point.placements or (), point.accounting, nodes)
    else:
        counted = bandwidth_counted(context, point, nodes)
    made = RegulationPoint(
        nops=_nops(point),
        bandwidth_mb_s=estimate_of(placements, attrgetter("windows_mb_s"), "MB/s", target),
        chase_ns=chase,
        counted_mb_s=counted_rate(context, counters),
        counted=counted,
        counter_latency=latency_beside(counters),
        sampled=sampled_loads([load for load, _ in samples], [hz for _, hz in samples]),
        variation={},
    )
    methods: dict[Method, Estimate | None] = {
        "bandwidth": made.bandwidth_mb_s,
        "counted_bandwidth": made.counted_mb_s,
        "chase": made.chase_ns,
        **{method: None if (by := made.by_hardware(method)) is None else by.cycles for method in BY_HARDWARE},
    }
    found = {
        method: spread
        for method, result in methods.items()
        if result is not None and (spread := variation([median(sample) for sample in result.samples])) is not None
    }
    return made.model_copy(update={"variation": found})


Coordinates = tuple[float | Estimate, float | Estimate]


def _curves(
    measured: Sequence[Measured[RegulationValues]], place: Callable[[RegulationPoint], Coordinates | None]
) -> Curves:
    """Return a curve per number of threads, fewest first, with the points that *place* returns."""
    return curves_of(
        (plural(values.threads, "thread"), found)
        for values in sorted((measurement.values for measurement in measured), key=lambda values: values.threads)
        for point in values.points
        if (found := place(point)) is not None
    )


def _by(method: Method, point: RegulationPoint) -> Coordinates | None:
    """Return bandwidth and latency by *method*; ``None`` if not available."""
    latency_ns = point.latency_ns(method)
    return None if latency_ns is None else (point.bandwidth_mb_s, latency_ns)


def _variation(series: Mapping[str, Sequence[float]]) -> Chart:
    """Return the histogram of coefficients of variation (shares of one), for each of *series*."""
    bins = [*(f"up to {high * 100:g} %" for high in VARIATION_BINS), f"over {VARIATION_BINS[-1] * 100:g} %"]
    numbers = Counter((title, bisect_left(VARIATION_BINS, value)) for title, found in series.items() for value in found)
    rows: list[Json] = [
        {"g": bins[at], "s": label(title), "v": count, "t": str(count)} for (title, at), count in numbers.items()
    ]
    used = [bins[at] for at in sorted({at for _, at in numbers})]
    spread = (Value(value, percent(value), title) for title, found in series.items() for value in found)
    return bar_chart(
        "regulation_variation",
        rows,
        ("Number", "configurations"),
        groups=used,
        alt="Number of configurations by coefficient of variation over the placements, for each method",
        values=[extremes(spread)],
        caption="Coefficient of variation (standard deviation over mean) of the placements of one configuration.",
    )
