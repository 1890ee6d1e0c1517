# SPDX-License-Identifier: Apache-2.0
"""Idle latency: the duration of one load from local memory of an otherwise idle machine."""

from collections.abc import Iterator
from typing import Literal

from calibration.base.statistics import Estimate
from calibration.counters.latency import LATENCY_ROLES, CounterLatency, latency_flags
from calibration.measurements.base import Metric, Parsed, Planned, Step, Values
from calibration.measurements.chase import ChaseSettings, Condition, NearChaseDeclaration, core_hz_of, no_keep_awake
from calibration.measurements.counting import event_options, latency_beside
from calibration.measurements.metric_rows import Record, latency
from calibration.measurements.sut import Sut
from calibration.sutprobe.document import ProbeDocument
from calibration.sutprobe.latency import KeepAwakeThread


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


class IdleLatency(NearChaseDeclaration[IdleLatencySettings, IdleLatencyValues]):
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
        """Yield the chase."""
        counters = event_options(sut.context, LATENCY_ROLES) if settings.counters else {}
        step, keep_awake = self.chase(sut, settings, counters)
        yield step
        if not keep_awake:
            yield self.not_planned(no_keep_awake(sut.context), f"{self.title} with the packages active")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the one latency."""
        _, latency, fields, flags = self.chased(document, step, sut)
        counted = latency_beside([placement.counters for placement in latency.placements])
        fields |= {
            "core_hz": core_hz_of([latency]),
            "latency_ns": latency.latency_ns,
            "package_idle_ns": latency.package_idle_ns if latency.package_active_ns else None,
            "package_active_ns": latency.package_active_ns,
            "counted": counted,
        }
        yield Parsed(values=IdleLatencyValues(**fields), flags=(*flags, *latency_flags([counted])))

    def metrics(self, values: IdleLatencyValues) -> Iterator[Metric]:
        """Yield the latency."""
        yield self.metric("latency_ns", self.title, values.latency_ns)
