# SPDX-License-Identifier: Apache-2.0
"""Loaded latency: how latency grows as the other CPUs use the memory."""

from collections.abc import Iterator
from statistics import median
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from calibration.context.model import Context
from calibration.counters.latency import ROLES as LATENCY_ROLES
from calibration.counters.latency import CounterLatency, latency_flags
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.errors import InputError
from calibration.evidence import disturbed, document_flags, placement_flags
from calibration.measurements.base import (
    Declaration,
    Figures,
    HalfWidth,
    Metric,
    Missing,
    NotPlanned,
    Parsed,
    Step,
    Values,
    metric_of,
    refused,
    step,
)
from calibration.measurements.chase import LINK_NS, START_UP_S, TOUCH_BYTES_PER_S
from calibration.measurements.choice import Shape, ShapeReference
from calibration.measurements.counting import (
    BYTE_ROLES,
    background_s,
    event_options,
    latency_beside,
    loaded_counted,
)
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
    read_group,
    run_s,
    shape_options,
)
from calibration.model import Model
from calibration.statistics import Estimate, estimate
from calibration.sutprobe import LoadedPlacement, LoadedResult, ProbeDocument, ZeroLoad, read_result
from calibration.validity import Flag, flag

MLC_DELAYS = (0, 2, 8, 15, 50, 100, 200, 300, 400, 500, 700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000)
"""The injection delays of the published pages."""

ZERO_LOADS = 3
"""Times in a placement that the probes run without load: before the sweep, amid it and after it."""

SETTLE_MORE_S = 0.02
"""A sweep's points settle so much longer than a bandwidth's, for the expected duration only."""

DRIFT = 0.02
"""Relative change of the unloaded latency over the sweep from which its points are not comparable."""


class LoadedSettings(CountedTrafficSettings):
    """A sweep over *delays* with one *mix* in one *shape*, one latency probe per node.

    *delays* are numbers of additions; *delays_ns*, where given, are used in their place and converted on the SUT.
    Without a *shape* it is the one kept for the platform and the mix, and before there is one the default. *budget_s*
    is for the whole sweep, because all its points share their buffers.
    """

    delays: tuple[NonNegativeInt, ...] = MLC_DELAYS
    delays_ns: tuple[NonNegativeInt, ...] | None = None
    mix: Mix = "reads"
    shape: Shape | None = None
    placements: PositiveInt = 6
    windows: PositiveInt = 6
    window_s: PositiveFloat = 0.2
    target_half_width: HalfWidth = 0.02


class ProbeLatency(Model):
    """Latency in ns per load that the probe on ``cpu`` saw in memory of ``node``."""

    cpu: int
    node: int
    latency_ns: Estimate


class LoadedPointValues(Model):
    """One injection delay: latency and the load's bandwidth, measured in the same windows.

    ``latency_ns`` is that of the first probe, as published pages show it; ``probes`` has one per node. ``counted`` is
    what memory moved, and ``counted_latency`` that of the probes together, by hardware counters; ``None`` where none
    were opened.
    """

    inject_delay: int
    delay_ns: float
    latency_ns: Estimate
    bandwidth_mb_s: Estimate
    probes: tuple[ProbeLatency, ...]
    counted: CountedBytes | None = None
    counted_latency: CounterLatency | None = None


class LoadedLatencyValues(Values):
    """The sweep, and the probes' latency without load before, amid and after it."""

    kind: Literal["loaded_latency"] = "loaded_latency"
    mix: str
    load: str
    points: tuple[LoadedPointValues, ...]
    zero_load: tuple[ZeroLoad, ...]


class LoadedLatency(Declaration[LoadedSettings, LoadedLatencyValues]):
    """One probe per node chases while all other cores load memory, from no delay to almost no load."""

    kind = "loaded_latency"
    title = "Loaded latency"
    question = "How does latency grow as the other CPUs use the memory?"
    settings = LoadedSettings
    values = LoadedLatencyValues
    figures = (
        Figures(
            r"loaded_latency\.\d+\.latency_ns",
            "ns",
            "lower",
            "one load of the probe beside a load with that injection delay",
        ),
        Figures(
            r"loaded_latency\.\d+\.bandwidth_mb_s",
            "MB/s",
            "higher",
            "what the load moves beside the probe, at the shortest delay",
        ),
    )

    def planned(
        self, context: Context, settings: LoadedSettings, kept: ShapeReference | None
    ) -> Iterator[Step | NotPlanned]:
        """Yield one sweep; a probe's whole core carries no load.

        Without a shape in the profile the load has the one *kept* for the platform and the mix.
        """
        sut = Sut(context)
        probes = [Place(sut.measuring_cpu(node), sut.home(node)) for node in sut.cpu_nodes]
        busy = {sibling for place in probes for sibling in sut.siblings(place.cpu)}
        parts = [
            Part(cpus, sut.home(node))
            for node in sut.cpu_nodes
            if (cpus := tuple(cpu for cpu in sut.cpus_of(node) if cpu not in busy))
        ]
        if not parts:
            yield NotPlanned(
                kind=self.kind,
                what=self.title,
                reason=f"no CPU is left to load memory: all {len(sut.cpus)} that may be used are on the cores of the "
                "probes, one per node",
            )
            return
        load_bytes = buffer_bytes(sut, parts, (settings.mix,))
        probe_bytes = min(memory_bound_bytes(sut, place.node) for place in probes)
        delays = settings.delays if settings.delays_ns is None else settings.delays_ns
        cost_s = sweep_s(settings, len(delays), Run(parts, settings.mix, load_bytes), probe_bytes)
        counters = event_options(context, BYTE_ROLES, LATENCY_ROLES) if settings.counters else {}
        yield step(
            id=self.kind,
            kind=self.kind,
            title=f"{self.title}, {len(delays)} delays, {len(probes)} probe{'s' * (len(probes) > 1)}",
            subcommand="loaded",
            options={
                "probe": probes,
                "load": group_text(parts),
                "delay" if settings.delays_ns is None else "delay-ns": ",".join(map(str, delays)),
                "mix": settings.mix,
                "probe-size-bytes": probe_bytes,
                "buffer-bytes": load_bytes,
                **settings.options(),
                **shape_options(settings, settings.shape, kept, settings.mix),
                **counters,
            },
            cpus=tuple(sorted(sut.cpus)),
            nodes=tuple(sorted({part.node for part in parts} | {place.node for place in probes})),
            expected_duration_s=START_UP_S + background_s(counters) + cost_s,
            budget_s=settings.excess_s(cost_s),
        )

    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield the sweep; a delay that could not be measured is named as missing."""
        result = read_result(document, LoadedResult)
        parameters = document.parameters
        target = parameters.get("target_half_width")
        nodes = [part.node for part in read_group(str(parameters["load"])) for _ in part.cpus]
        points = []
        missing = []
        for point in result.points:
            if not point.placements:
                what = f"inject delay {point.inject_delay}"
                unknown = Missing(what=what, reason="no placement measured")
                missing.append(refused(what, point.error) if point.error else unknown)
                continue
            probes = probe_latencies(point.placements, target)
            counters = [each.counters for each in point.placements]
            points.append(
                LoadedPointValues(
                    inject_delay=point.inject_delay,
                    delay_ns=point.delay_ns,
                    latency_ns=probes[0].latency_ns,
                    bandwidth_mb_s=estimate(
                        [each.windows_mb_s for each in point.placements], "MB/s", disturbed=disturbed(point.placements)
                    ),
                    probes=probes,
                    counted=loaded_counted(context, point.placements, point.accounting, nodes),
                    counted_latency=latency_beside(counters, "probe."),
                )
            )
        if not points:
            raise InputError(f"no inject delay could be measured: {'; '.join(sorted({m.reason for m in missing}))}")
        placements = [placement for point in result.points for placement in point.placements or ()]
        yield Parsed(
            id=step.id,
            values=LoadedLatencyValues(
                mix=str(parameters["mix"]),
                load=str(parameters["load"]),
                points=tuple(points),
                zero_load=result.zero_load,
            ),
            flags=(
                *document_flags(document),
                *placement_flags(
                    document, placements, proved=all(point.checked for point in result.points if not point.error)
                ),
                *size_flags(Sut(context), int(parameters["probe_size_bytes"])),
                *drift_flags(result.zero_load),
                *counted_flags(
                    [(f"inject delay {each.inject_delay}", each.counted) for each in points if each.counted]
                ),
                *stores_flags(context, [str(parameters["mix"])], counted=any(each.counted for each in points)),
                *latency_flags([each.counted_latency for each in points]),
            ),
            missing=tuple(missing),
        )

    def metrics(self, values: LoadedLatencyValues) -> Iterator[Metric]:
        """Yield both ends of the sweep: latency and bandwidth under full load, latency at the longest delay."""
        full = min(values.points, key=lambda point: point.inject_delay)
        least = max(values.points, key=lambda point: point.inject_delay)
        for point in (full, least) if least is not full else (full,):
            yield metric_of(
                f"loaded_latency.{point.inject_delay}.latency_ns",
                f"Latency under load, inject delay {point.inject_delay}",
                point.latency_ns,
                "lower",
            )
        yield metric_of(
            f"loaded_latency.{full.inject_delay}.bandwidth_mb_s",
            f"Bandwidth beside the probe, inject delay {full.inject_delay}",
            full.bandwidth_mb_s,
            "higher",
        )


def sweep_s(settings: TrafficSettings, delays: int, load: Run, probe_bytes: int) -> float:
    """Return the expected duration in s of a sweep over so many *delays*, budget apart.

    Each probe has a chain of *probe_bytes*.
    """
    probe_s = probe_bytes / TOUCH_BYTES_PER_S + probe_bytes / 64 * LINK_NS * 1e-9
    points_s = (delays + ZERO_LOADS) * (run_s(load) + SETTLE_MORE_S + settings.windows * settings.window_s)
    return settings.placements * (PLACEMENT_S + fill_s([load]) + probe_s + points_s)


def probe_latencies(placements: tuple[LoadedPlacement, ...], target: float | None) -> tuple[ProbeLatency, ...]:
    """Return what each probe saw in all *placements*."""
    hit = disturbed(placements)
    return tuple(
        ProbeLatency(
            cpu=probe.cpu,
            node=probe.node,
            latency_ns=estimate(
                [placement.probes[index].windows_ns for placement in placements],
                "ns",
                target_half_width=target,
                disturbed=hit,
            ),
        )
        for index, probe in enumerate(placements[0].probes)
    )


def drift_flags(zero_load: tuple[ZeroLoad, ...]) -> Iterator[Flag]:
    """Yield a flag where the latency without load moved while the sweep ran."""
    for each in zero_load:
        moments = (each.windows_ns_start, each.windows_ns_middle, each.windows_ns_end)
        phases = [median(windows) for windows in moments if windows]  # a sweep that was cut short lacks some
        if len(phases) > 1 and (change := max(phases) / min(phases) - 1) > DRIFT:
            yield flag("DRIFT", f"CPU {each.cpu}: latency without load moved by {change:.1%} during the sweep")


MEASUREMENT = LoadedLatency()
