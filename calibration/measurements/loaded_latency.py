# SPDX-License-Identifier: Apache-2.0
"""Loaded latency: latency while the other CPUs load the memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from calibration.base import units
from calibration.base.cpulists import short_cpulist
from calibration.base.model import Model
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.curves import curves_of
from calibration.charts.load import KNEE, PROBE, latency_chart
from calibration.counters.latency import LATENCY_ROLES, CounterLatency, latency_flags
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.measurements.base import (
    SEARCH_SUFFIX,
    Declaration,
    HalfWidth,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Step,
    Values,
)
from calibration.measurements.chase import LINK_NS, TOUCH_BYTES_PER_S, chain_memory
from calibration.measurements.counting import BYTE_ROLES, event_options, latency_beside, loaded_counted
from calibration.measurements.evidence import beside, estimate_of, evidence_flags, missing_part, require_any
from calibration.measurements.metric_rows import Record, bandwidth, latency
from calibration.measurements.platform import Shape
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import Place, Sut, memory_bound_bytes, size_flags
from calibration.measurements.traffic import (
    PLACEMENT_S,
    CountedTrafficSettings,
    Mix,
    Part,
    Run,
    TrafficSettings,
    buffer_bytes,
    fill_s,
    group_text,
    held_by_node,
    memory_bytes,
    read_group,
    run_s,
    shape_options,
)
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.loaded import LoadedPlacement, LoadedPoint, LoadedResult, LoadedSearch, ZeroLoad

MLC_DELAYS = (0, 2, 8, 15, 50, 100, 200, 300, 400, 500, 700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000)
"""The injection delays of the published pages."""

Share = Annotated[float, Field(ge=0.01, le=1, multiple_of=0.01)]
"""A share of the bandwidth that the load has without delay, in whole percent."""

RECORD_SHARE = 0.9
"""The share whose latency is the value of record: beyond it small changes of the load change latency a lot."""

SHARE_TOLERANCE = 0.05
"""Largest deviation from the requested share that is not flagged."""

LOOKS_PER_SHARE = 4
LOOK_S = 0.04
"""Usual number of looks per share and windows of one look, for the expected duration only."""

ZERO_LOADS = 3
"""Unloaded runs of the probes per placement: before, during and after the sweep."""

SETTLE_MORE_S, ZERO_SETTLE_S = 0.035, 0.02
"""Extra settling of a sweep's points against a bandwidth's, and that without load; for the expected duration only."""

DRIFT = 0.02
"""Relative change of the unloaded latency over the sweep from which its points are not comparable."""


BESIDE_DELAY = "one load of the probe beside a load with that injection delay"
"""Meaning of the latencies by delay."""


class LoadedSettings(CountedTrafficSettings):
    """A sweep over *delays* with one *mix* in one *shape*, one latency probe per node.

    *delays* are numbers of additions; *delays_ns*, if given, replace them and are converted on the SUT. In addition a
    search finds the delays at which the load has these *shares* of its bandwidth without delay. The default *shape* is
    the one kept for the platform and the mix, else the built-in one.
    """

    delays: tuple[NonNegativeInt, ...] = MLC_DELAYS
    delays_ns: tuple[NonNegativeInt, ...] | None = None
    shares: tuple[Share, ...] = (0.25, 0.5, 0.75, RECORD_SHARE)
    mix: Mix = "reads"
    shape: Shape | None = None
    windows: PositiveInt = 3
    target_half_width: HalfWidth = 0.02


class ProbeLatency(Model):
    """Latency in ns per load of the probe on ``cpu`` in memory of ``node``."""

    cpu: int
    node: int
    latency_ns: Estimate


class LoadedPointValues(Model):
    """One injection delay: latency and the load's bandwidth, measured in the same windows.

    ``latency_ns`` is that of the first probe, as on published pages; ``probes`` has one per node. By hardware counters,
    ``counted`` is the traffic and ``counted_latency`` the latency of all probes; ``None`` without counters. A delay
    that was searched has its requested ``share``, and ``share_reached``: its bandwidth as a share of that without delay
    in the same placements.
    """

    inject_delay: int
    delay_ns: float
    share: float | None = None
    share_reached: float | None = None
    latency_ns: Estimate
    bandwidth_mb_s: Estimate
    probes: tuple[ProbeLatency, ...]
    counted: CountedBytes | None = None
    counted_latency: CounterLatency | None = None

    @property
    def name(self) -> str:
        """Stable name of the point, even if the delay was searched."""
        return point_name(self.inject_delay, self.share)


class LoadedLatencyValues(Values):
    """The sweep by increasing delay, and the unloaded latency of the probes before, during and after it."""

    kind: Literal["loaded_latency"] = "loaded_latency"
    mix: str
    load: str
    points: tuple[LoadedPointValues, ...]
    zero_load: tuple[ZeroLoad, ...]

    @property
    def ends(self) -> tuple[LoadedPointValues, ...]:
        """The points of the shortest and the longest requested delay; one or none if there are no more."""
        asked = [point for point in self.points if point.share is None]
        return tuple(asked) if len(asked) < 2 else (asked[0], asked[-1])


class LoadedLatency(Declaration[LoadedSettings, LoadedLatencyValues]):
    """One probe per node chases while all other cores load the memory, from no delay to almost no load."""

    title = "Loaded latency"
    question = "How does latency grow as the other CPUs use the memory?"
    main_chart_rank = 20
    metric_rows = (
        latency(
            "loaded_latency.{delay:0}.latency_ns",
            BESIDE_DELAY,
            "loaded_latency",
            record=Record("loaded_latency", "Loaded latency, full load", "first", 1),
            reference="loaded_latency_max_ns",
        ),
        latency("loaded_latency.{delay}.latency_ns", BESIDE_DELAY, "loaded_latency"),
        *(
            latency(
                name,
                "one load of the first probe, or that on the CPU, beside a load of that share of its full bandwidth",
                "loaded_latency",
                record=Record("loaded_latency", "Loaded latency, 90 % of full load", place),
            )
            for name, place in (
                (r"loaded_latency.{load:\d+pct}.latency_ns", "first"),
                (r"loaded_latency.{load:\d+pct}.cpu{cpu}.latency_ns", "cpu{cpu}"),
            )
        ),
        bandwidth(
            "loaded_latency.{delay}.bandwidth_mb_s",
            "what the load moves beside the probe, at the shortest delay",
            "loaded_latency",
        ),
        bandwidth(
            r"loaded_latency.{load:\d+pct}.bandwidth_mb_s",
            "what the load moves beside the probe, at that share of its full bandwidth",
            "loaded_latency",
        ),
    )

    def steps(self, sut: Sut, settings: LoadedSettings) -> Iterator[Planned]:
        """Yield one sweep, after a search for delays if there are any to find; no load runs on a probe's core.

        If the profile has no shape, the load uses the one kept for the platform and the mix.
        """
        probes = [Place(sut.measuring_cpu(node), sut.home(node)) for node in sut.cpu_nodes]
        busy = {sibling for place in probes for sibling in sut.siblings(place.cpu)}
        parts = [
            Part(cpus, sut.home(node))
            for node in sut.cpu_nodes
            if (cpus := tuple(cpu for cpu in sut.cpus_of(node) if cpu not in busy))
        ]
        if not parts:
            yield self.not_planned(
                f"no CPU is left to load memory: all {len(sut.cpus)} that may be used are on the cores of the probes, "
                "one per node"
            )
            return
        load_bytes = buffer_bytes(sut, parts, (settings.mix,))
        probe_bytes = min(memory_bound_bytes(sut, place.node) for place in probes)
        delays = settings.delays if settings.delays_ns is None else settings.delays_ns
        run = Run(parts, settings.mix, load_bytes)
        counters = event_options(sut.context, BYTE_ROLES, LATENCY_ROLES) if settings.counters else {}
        where: dict[str, Any] = {
            "cpus": sorted(sut.cpus),
            "memory_bytes": loaded_memory(run, probes, probe_bytes),
            "tasks": sum(len(part.cpus) for part in parts) + len(probes),
        }
        load: dict[str, object] = {
            "probe": probes,
            "load": group_text(parts),
            "mix": settings.mix,
            "probe-size-bytes": probe_bytes,
            "buffer-bytes": load_bytes,
            **vector_shapes(shape_options(settings, settings.shape, sut.traffic_shape, (settings.mix,))),
        }
        asked = {"delay" if settings.delays_ns is None else "delay-ns": ",".join(map(str, delays))}
        searched = bool(settings.shares) or settings.delays_ns is not None
        sweep = self.step(
            f"{units.plural(len(delays), 'delay')}, {units.plural(len(settings.shares), 'share')} of full load, "
            f"{units.plural(len(probes), 'probe')}",
            "loaded",
            {**settings.options(), **load, **({} if searched else asked), **counters},
            cost_s=sweep_s(settings, len(delays) + len(settings.shares), run, probe_bytes),
            setup_s=settings.placements * placement_s(run, probe_bytes),
            repeated=settings,
            **where,
        )
        if not searched:
            yield sweep
            return
        search = self.step(
            "search of delays",
            "loaded",
            {**load, **asked, **share_options(settings.shares), "choose": True},
            cost_s=search_s(len(settings.shares), run, probe_bytes),
            setup_s=placement_s(run, probe_bytes),
            suffix=SEARCH_SUFFIX,
            **where,
        )
        yield from sweep.after(search, "--delay")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the sweep; a delay without a value is listed as missing."""
        result = read_result(document, LoadedResult)
        shares = [share for search in document.beside for share in read_result(search, LoadedSearch).shares]
        searched = [None] * (len(result.points) - len(shares)) + shares
        parameters = document.parameters
        target = step.target_half_width
        nodes = [part.node for part in read_group(str(parameters["load"])) for _ in part.cpus]
        points = []
        missing = []
        for point, found in sorted(zip(result.points, searched, strict=True), key=lambda pair: pair[0].inject_delay):
            share = None if found is None else found.share_percent / 100
            if not point.placements:
                missing.append(missing_part(point_name(point.inject_delay, share), point.error))
                continue
            probes = probe_latencies(point.placements, target)
            counters = [placement.counters for placement in point.placements]
            points.append(
                LoadedPointValues(
                    inject_delay=point.inject_delay,
                    delay_ns=point.delay_ns,
                    share=share,
                    share_reached=None if found is None else share_reached(point, result.points, found.share_found),
                    latency_ns=probes[0].latency_ns,
                    bandwidth_mb_s=estimate_of(point.placements, attrgetter("windows_mb_s"), "MB/s"),
                    probes=probes,
                    counted=loaded_counted(sut.context, point.placements, point.accounting, nodes),
                    counted_latency=latency_beside(counters, "probe."),
                )
            )
        require_any(points, result.points, "inject delay")
        probe_bytes = int(parameters["probe_size_bytes"])
        held = held_by_node(
            [
                (read_group(str(parameters["load"])), int(parameters["buffer_bytes"])),
                *(([Part((probe.cpu,), probe.node)], probe_bytes) for probe in points[0].probes),
            ]
        )
        yield Parsed(
            values=LoadedLatencyValues(
                mix=result.points[0].mix,
                load=str(parameters["load"]),
                points=tuple(points),
                zero_load=ZeroLoad.of_probes(result.zero_load),
            ),
            flags=(
                *evidence_flags(document, result.points),
                *share_flags(points),
                *size_flags(sut, probe_bytes, held),
                *drift_flags(result.zero_load),
                *counted_flags([(load.name, load.counted) for load in points if load.counted]),
                *stores_flags(sut.context, [result.points[0].mix], counted=any(load.counted for load in points)),
                *latency_flags([load.counted_latency for load in points]),
            ),
            missing=tuple(missing),
        )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart:
        """Return latency (ns) against bandwidth (GB/s), a curve per probe, with the point near ``KNEE`` marked."""
        measurement = run.of(self.kind)[0]
        values = measurement.values
        curves = curves_of(
            (f"CPU {probe.cpu}, memory of node {probe.node}", (point.bandwidth_mb_s, probe.latency_ns))
            for point in values.points
            for probe in sorted(point.probes, key=lambda probe: (probe.cpu, probe.node))
        )
        windows = [(*zero.windows_ns_start, *zero.windows_ns_middle, *zero.windows_ns_end) for zero in values.zero_load]
        medians = [median(found) for found in windows if found]
        unloaded = [median(medians)] if medians else []
        caption = (
            "Each point is one injection delay, bars are the intervals of both. The ring marks the point nearest "
            f"{units.exact_percent(KNEE)} of the bandwidth at full load."
        )
        knee_mb_s = next((point.bandwidth_mb_s.value for point in values.points if point.share == RECORD_SHARE), None)
        return latency_chart(
            measurement.id,
            [measurement],
            curves,
            PROBE,
            caption,
            unloaded=unloaded,
            knee_mb_s=knee_mb_s,
            width=width,
        )

    def metrics(self, values: LoadedLatencyValues) -> Iterator[Metric]:
        """Yield latency and bandwidth at full load and at ``RECORD_SHARE``, and latency at the longest delay.

        Published pages have the ends. At the share each probe has a latency, all but the first by CPU.
        """
        for point in values.ends:
            yield self.metric(f"{point.inject_delay}.latency_ns", f"Loaded latency, {point.name}", point.latency_ns)
        for point in values.ends[:1]:
            title = f"Bandwidth beside the probe, {point.name}"
            yield self.metric(f"{point.inject_delay}.bandwidth_mb_s", title, point.bandwidth_mb_s)
        for point in (load for load in values.points if load.share == RECORD_SHARE):
            name = f"{point.share:.0%}".replace("%", "pct")
            for number, probe in enumerate(point.probes):
                yield self.metric(
                    f"{name}.cpu{probe.cpu}.latency_ns" if number else f"{name}.latency_ns",
                    f"Loaded latency, {point.name}" + f", CPU {probe.cpu}" * (number > 0),
                    probe.latency_ns,
                )
            title = f"Bandwidth beside the probe, {point.name}"
            yield self.metric(f"{name}.bandwidth_mb_s", title, point.bandwidth_mb_s)


def point_name(inject_delay: int, share: float | None) -> str:
    """Return the name of the point of *inject_delay*, or of the delay searched for *share*."""
    return f"inject delay {inject_delay}" if share is None else f"{100 * share:.0f} % of full load"


def share_options(shares: tuple[float, ...]) -> dict[str, object]:
    """Return sutprobe's option for the delays of *shares*."""
    return {"share-percent": ",".join(f"{100 * share:.0f}" for share in shares)} if shares else {}


def share_reached(point: LoadedPoint, points: Sequence[LoadedPoint], seen: float) -> float:
    """Return the share of the bandwidth without delay at *point*.

    The median over placements, each relative to itself, as placements differ in both. Without a point of no delay among
    *points*, the share *seen* by the search.
    """
    full = next((load.placements for load in points if load.inject_delay == 0 and load.placements), ())
    pairs = zip(point.placements or (), full, strict=False)
    shares = [median(one.windows_mb_s) / peak for one, all_ in pairs if (peak := median(all_.windows_mb_s)) > 0]
    return median(shares) if shares else seen


def share_flags(points: Sequence[LoadedPointValues]) -> Iterator[Flag]:
    """Yield a flag for each point that missed its requested share of the full bandwidth."""
    for point in points:
        if (
            point.share is None
            or point.share_reached is None
            or abs(point.share_reached - point.share) <= SHARE_TOLERANCE
        ):
            continue
        reason = f"{point.name}: {point.share_reached * 100:.1f} % at the nearest delay found, {point.inject_delay}"
        yield flag("SHARE_MISSED", reason)


def sweep_s(settings: TrafficSettings, delays: int, load: Run, probe_bytes: int) -> float:
    """Return the expected duration in s of a sweep over *delays* delays, without budget.

    Each probe has a chain of *probe_bytes*.
    """
    runs_s = delays * (run_s(load) + SETTLE_MORE_S) + ZERO_LOADS * ZERO_SETTLE_S
    windows_s = (delays + ZERO_LOADS) * settings.windows * settings.window_s
    return settings.placements * (placement_s(load, probe_bytes) + runs_s + windows_s)


def placement_s(load: Run, probe_bytes: int) -> float:
    """Return the expected time in s to make the buffers of *load* and the chain of each probe."""
    chain_s = probe_bytes / TOUCH_BYTES_PER_S + probe_bytes / 64 * LINK_NS * 1e-9
    return PLACEMENT_S + fill_s([load]) + chain_s


def search_s(shares: int, load: Run, probe_bytes: int) -> float:
    """Return the expected duration in s of a search for so many *shares*."""
    return placement_s(load, probe_bytes) + LOOKS_PER_SHARE * shares * (LOOK_S + run_s(load))


def loaded_memory(load: Run, probes: Sequence[Place], probe_bytes: int) -> dict[int, int]:
    """Return the memory that *load* and a chain of *probe_bytes* for each of *probes* take of each node."""
    chains = {node: count * probe_bytes for node, count in Counter(probe.node for probe in probes).items()}
    return dict(Counter(memory_bytes([load])) + Counter(chain_memory(chains)))


def probe_latencies(placements: tuple[LoadedPlacement, ...], target: float | None) -> tuple[ProbeLatency, ...]:
    """Return the windows of each probe in all *placements*."""
    known = beside(placements)
    windows = zip(*([probe.windows_ns for probe in placement.probes] for placement in placements), strict=True)
    return tuple(
        ProbeLatency(
            cpu=probe.cpu,
            node=probe.node,
            latency_ns=estimate(samples, "ns", target_half_width=target, **known),
        )
        for probe, samples in zip(placements[0].probes, windows, strict=True)
    )


def drift_flags(found: Sequence[ZeroLoad]) -> Iterator[Flag]:
    """Yield a flag if the unloaded latency *found* in all rounds changed during the sweep, on any probe."""
    changes: dict[int, float] = {}
    for point in ZeroLoad.of_probes(found):
        moments = (point.windows_ns_start, point.windows_ns_middle, point.windows_ns_end)
        phases = [median(windows) for windows in moments if windows]  # an interrupted sweep lacks some
        if len(phases) > 1 and (change := max(phases) / min(phases) - 1) > DRIFT:
            changes[point.cpu] = change
    if changes:
        ends = dict.fromkeys(f"{pick(changes.values()) * 100:.1f}" for pick in (min, max))
        reason = f"CPU {short_cpulist(changes)}: latency without load moved by {' to '.join(ends)} % during the sweep"
        yield flag("DRIFT", reason)


def vector_shapes(words: Mapping[str, Any]) -> dict[str, object]:
    """Return the *words* of shapes moved by vectors, without those of mixes that another instruction moves best.

    No other instruction has delays.
    """
    rows = [row for row in words.get("shape", ()) if row.endswith("/vector")]
    kept = {name: value for name, value in words.items() if name not in {"instruction", "shape"}}
    return {**kept, **({"shape": rows} if rows else {})}
