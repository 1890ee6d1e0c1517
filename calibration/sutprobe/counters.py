# SPDX-License-Identifier: Apache-2.0
"""Hardware counters and sampled loads beside a measurement."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.placement import Placement


class Counted(Model):
    """What one event counted on one CPU, or over ``threads`` threads, between two readings ``wall_s`` apart.

    The readings are ``wall_s`` apart to within ``wall_uncertainty_s``, the time that they took (``None`` in older
    documents).
    ``count`` is as read, summed over ``pmus`` and threads; ``scaled`` is what it would be had every counter run all
    the time, ``None`` if one never ran or was refused; ``running_fraction`` is the least share that one ran.
    ``steps`` and ``hops`` are the work done between the same readings: steps of the traffic's mix, loads of the chain.
    ``background_count``, scaled too, is what came in ``background_wall_s`` while nothing was measured.
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
    wall_uncertainty_s: float | None = None


class Refused(Model):
    """An event not counted on ``cpu`` (``None``: in a thread), and why; ``errno`` is the kernel's answer, if asked."""

    name: str
    pmu: str
    cpu: int | None
    errno: str | None
    reason: str


class Counters(Model):
    """Hardware counters of a measurement; ``background_s``: how long they were watched before it, if they were."""

    background_s: float | None
    events: tuple[Counted, ...]
    refused: tuple[Refused, ...]


class SampleRefusal(Model):
    """Why loads were not sampled."""

    errno: str | None
    reason: str


class SampledLatency(Model):
    """Latencies of the sampled loads that were kept, in core cycles."""

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
    """Loads that the hardware sampled, one in ``period`` of its own unit.

    ``kept`` are loads that local DRAM served without a TLB miss; ``reasons`` count the others by what they were.
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
    """A placement beside which events may have been counted and loads sampled."""

    counters: Counters | None = None
    samples: Samples | None = None
