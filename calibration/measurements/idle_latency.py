# SPDX-License-Identifier: Apache-2.0
"""Idle latency: the duration of one load from local memory of an otherwise idle machine."""

from collections.abc import Iterator
from typing import Literal

from calibration.base.errors import InputError
from calibration.base.statistics import Estimate
from calibration.counters.latency import LATENCY_ROLES, CounterLatency, latency_flags
from calibration.measurements.base import Declaration, Metric, Parsed, Planned, Step, Values
from calibration.measurements.chase import (
    ChaseSettings,
    Condition,
    chain_flags,
    chain_memory,
    chase_flags,
    core_hz_of,
    idle_bytes,
    idle_latencies,
    keep_awake_flags,
    keep_awake_for,
    keep_awake_of,
    no_keep_awake,
)
from calibration.measurements.counting import event_options, latency_beside
from calibration.measurements.metric_rows import Record, latency
from calibration.measurements.sut import Place, Sut
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import KeepAwakeThread, LatencyResult


class IdleLatencySettings(ChaseSettings):
    """One chase, with hardware *counters* of its core if available."""

    counters: bool = True


class IdleLatencyValues(Values):
    """Latency of ``cpu`` to memory of ``node`` in ns per load, and in core clocks if the clock is known.

    ``latency_ns`` is the value of record: that of the machine in ``condition``. ``package_idle_ns`` and
    ``package_active_ns`` are both, if ``keep_awake`` threads kept the machine awake. ``counted`` is the latency by
    counters of the core, ``None`` without counters.
    """

    kind: Literal["idle_latency"] = "idle_latency"
    cpu: int
    node: int
    size_bytes: int
    page: str
    core_hz: float
    latency_ns: Estimate
    condition: Condition = "package_idle"
    package_idle_ns: Estimate | None = None
    package_active_ns: Estimate | None = None
    keep_awake: tuple[KeepAwakeThread, ...] = ()
    counted: CounterLatency | None = None


class IdleLatency(Declaration[IdleLatencySettings, IdleLatencyValues]):
    """One random chase over a buffer well beyond the last-level cache."""

    title = "Idle latency"
    question = "How long does one load from local memory take when nothing else uses it?"
    metric_rows = (
        latency(
            "idle_latency.latency_ns",
            "one load from the nearest memory, unloaded",
            "local_latency",
            record=Record("idle_latency", "Idle latency"),
            reference="idle_latency_local_ns",
        ),
        *(
            latency(name, "the same of a CPU, or from a node", "local_latency", imported=True)
            for name in ("idle_latency.cpu{cpu}.latency_ns", "idle_latency.cpu{cpu}.node{memory_node}.latency_ns")
        ),
    )

    def steps(self, sut: Sut, settings: IdleLatencySettings) -> Iterator[Planned]:
        """Yield one chase from the measuring CPU of the first node with CPUs, on the nearest memory."""
        for node in sut.cpu_nodes[:1]:
            place = Place(sut.measuring_cpu(node), sut.home(node))
            size_bytes = idle_bytes(sut, settings, place.node, 1)
            keep_awake = keep_awake_for(sut, (place.cpu,), (place.node,))
            cost_s = settings.idle_s(size_bytes, size_bytes, 1, keep_awake)
            counters = event_options(sut.context, LATENCY_ROLES) if settings.counters else {}
            yield self.step(
                f"CPU {place.cpu}, memory of node {place.node}",
                "latency",
                {
                    "at": place,
                    **settings.random_options(sut, size_bytes),
                    "keep-awake": list(keep_awake),
                    **counters,
                },
                cpus=(place.cpu,),
                memory_bytes=chain_memory({place.node: size_bytes}, keep_awake),
                tasks=1 + len(keep_awake),
                cost_s=cost_s,
                setup_s=settings.setup_s(size_bytes),
                repeated=settings,
            )
            if not keep_awake:
                yield self.not_planned(no_keep_awake(sut.context), f"{self.title} with the packages active")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the one latency."""
        result = read_result(document, LatencyResult)
        if len(result.points) != 1:
            raise InputError(f"{len(result.points)} points for {step.id}, not 1")
        point = result.points[0]
        target = step.target_half_width
        latency = idle_latencies(point, target)
        core_hz = core_hz_of([latency]) if latency else None
        if latency is None or core_hz is None:
            raise InputError(f"{point.error.code}: {point.error.message}" if point.error else "no placement measured")
        counted = latency_beside([placement.counters for placement in latency.placements])
        keep_awake = keep_awake_of(result.points)
        yield Parsed(
            id=step.id,
            values=IdleLatencyValues(
                cpu=point.cpu,
                node=point.nodes[0],
                size_bytes=point.size_bytes,
                page=latency.placements[0].pages.obtained,
                core_hz=core_hz,
                latency_ns=latency.latency_ns,
                condition=latency.condition,
                package_idle_ns=latency.package_idle_ns if latency.package_active_ns else None,
                package_active_ns=latency.package_active_ns,
                keep_awake=keep_awake,
                counted=counted,
            ),
            flags=(
                *chase_flags(document, result.points, [latency]),
                *keep_awake_flags(keep_awake),
                *chain_flags(sut, [point]),
                *latency_flags([counted]),
            ),
        )

    def metrics(self, values: IdleLatencyValues) -> Iterator[Metric]:
        """Yield the latency."""
        yield self.metric("latency_ns", self.title, values.latency_ns)


MEASUREMENT = IdleLatency()
