# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe jitter``."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.placement import Interference
from calibration.sutprobe.tracing import Traced


class JitterInterval(Model):
    """One display interval as PMA jitter prints it, in ticks of the clock named in the document."""

    inst_min_cycles: int
    inst_max_cycles: int
    inst_jitter_cycles: int
    last_exec_cycles: int
    abs_min_cycles: int
    abs_max_cycles: int
    tmp: int
    interval_cycles: int
    sample: int


class PmaInterval(JitterInterval):
    """One display interval measured here, with what else happened during it."""

    interference: Interference


class PmaView(Model):
    """The PMA-compatible view of one CPU; ``blind_fraction`` is the share of time outside the timed work."""

    loops: int
    executions: int
    tick_hz: float
    blind_fraction: float
    stopped: Literal["intervals", "budget", "interrupted"]
    intervals: tuple[PmaInterval, ...]


class GapBin(Model):
    """One histogram bin: gaps with ``from_ns`` <= length < ``to_ns``."""

    from_ns: float
    to_ns: float
    count: int


class GapRate(Model):
    """How often per second a gap of at least ``threshold_ns`` came."""

    threshold_ns: float
    rate: float


class TimeQuantile(Model):
    """For ``time_fraction`` of the wall time the CPU was away for no longer than ``gap_ns`` at a stretch."""

    time_fraction: float
    gap_ns: float


class LongGap(Model):
    """One of the longest gaps: when it began, counted from the start of the view, and how long it was."""

    at_ns: float
    length_ns: float


class Period(Model):
    """Gaps at equal distances in time.

    ``gaps`` belong to it, of ``cycles`` in which one could be seen; they begin within ``window_ns`` of their time,
    before or after, and their lengths have the median ``median_ns`` and the sum ``lost_ns``.
    """

    period_ns: float
    hz: float
    share_of_gaps: float
    gaps: int
    cycles: int
    median_ns: float
    lost_ns: float
    window_ns: float


class GapSource(Model):
    """What may have made gaps: its number, the gaps and lost time it explains, ``None`` with a ``reason``."""

    source: str
    kind: Literal["interrupt", "softirq", "switch", "steal", "smi"]
    count: float
    rate_per_s: float
    explained_gaps: float | None
    explained_lost_ns: float | None
    reason: str | None


class Attribution(Model):
    """What the gaps were, from counters read in ``slices``; shares are ``None`` if there were no gaps."""

    slices: int
    slice_s: float
    gaps: int
    lost_ns: float
    sources: tuple[GapSource, ...]
    unattributed_gaps: float
    unattributed_lost_ns: float
    unattributed_share: float | None
    unattributed_lost_share: float | None


class TurnTime(Model):
    """How long one turn of the gap loop takes when nothing interrupts it."""

    min: float
    median: float


class GapView(Model):
    """Every interruption of one CPU that is longer than the threshold; nothing is unobserved between the turns."""

    stopped: Literal["time", "budget", "converged", "interrupted"]
    rate_half_width: float | None
    wall_s: float
    turns: int
    turn_ns: TurnTime
    threshold_ns: float
    coverage_fraction: float
    backward_steps: int
    count: int
    max_ns: float
    lost_ns: float
    lost_fraction: float
    histogram: tuple[GapBin, ...]
    rates_per_s: tuple[GapRate, ...]
    quantiles: tuple[TimeQuantile, ...]
    longest: tuple[LongGap, ...]
    ring_full: bool
    periods: tuple[Period, ...]
    attribution: Attribution | None
    traced: Traced | None = None
    core_hz_before: float
    core_hz_after: float
    interference: Interference


class JitterCpu(Model):
    """Both views of one CPU; a view that is not there is ``None``, with why in ``pma_missing`` or ``gaps_missing``."""

    cpu: int
    cpu_verified: bool
    pma: PmaView | None
    gaps: GapView | None
    pma_missing: str | None = None
    gaps_missing: str | None = None


class JitterResult(Model):
    """Result of ``sutprobe jitter``: one entry per CPU, measured at the same time."""

    cpus: tuple[JitterCpu, ...]
