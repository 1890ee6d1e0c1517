# SPDX-License-Identifier: Apache-2.0
"""Hardware counters and sampled loads beside a measurement."""

from typing import Literal

from calibration.base.model import Model
from calibration.sutprobe.placement import Placement


class Counted(Model):
    """The count of one event on one CPU, or over ``threads`` threads, between two readings.

    The readings are ``wall_s`` apart, to within ``wall_uncertainty_s``, the time they took.
    ``count`` is as read, summed over ``pmus`` and threads; ``scaled`` extrapolates to counters running all the time,
    ``None`` if one never ran or was refused; ``running_fraction`` is the least share that one ran.
    ``steps`` and ``hops`` are the work between the readings: steps of the traffic's mix, loads of the chain.
    ``background_count``, scaled too, was counted in ``background_wall_s`` before the measurement.
    """

    name: str
    pmus: tuple[str, ...]
    cpu: int | None
    threads: int | None
    count: int
    scaled: float | None
    running_fraction: float
    wall_s: float
    steps: float | None
    hops: float | None
    background_count: float | None
    background_wall_s: float | None
    wall_uncertainty_s: float


class Refused(Model):
    """An event not counted on ``cpu`` (``None``: in a thread), and why; ``errno`` is the kernel's answer."""

    name: str
    pmu: str
    cpu: int | None
    errno: str | None
    reason: str


class Counters(Model):
    """Hardware counters of a measurement; ``background_s`` is how long the background was measured before it."""

    background_s: float | None
    events: tuple[Counted, ...]
    refused: tuple[Refused, ...]


class SampleRefusal(Model):
    """Why loads were not sampled."""

    errno: str | None
    reason: str


class SampledLatency(Model):
    """Latencies of the kept samples, in core cycles."""

    mean: float
    median: float
    p10: float
    p90: float
    min: float
    max: float


class SampledBin(Model):
    """One histogram bin: kept loads of at least ``from_cycles`` and less than the next bin's."""

    from_cycles: float
    count: int


class Samples(Model):
    """Sampled loads, one in ``period`` of the hardware's own unit.

    ``kept`` were served by local DRAM without a TLB miss; ``reasons`` count the others by kind.
    """

    method: Literal["pebs", "ibs", "spe"]
    period: int
    taken: int
    lost: int
    kept: int
    reasons: dict[str, int]
    latency_cycles: SampledLatency | None
    histogram: tuple[SampledBin, ...]
    refused: SampleRefusal | None


class CountedPlacement(Placement):
    """A placement, with optional event counts and sampled loads."""

    counters: Counters | None
    samples: Samples | None
