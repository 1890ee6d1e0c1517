# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe jitter``."""

from typing import Literal

from calibration.base.model import Model
from calibration.sutprobe.attribution import Attribution, Slices, attributed
from calibration.sutprobe.placement import CpuView, Interference
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
    """One display interval measured by sutprobe, with what else happened during it; ``round`` is that of the run."""

    round: int | None = None
    interference: Interference


class PmaView(Model):
    """The PMA-compatible view of one CPU; ``blind_fraction`` is the share of time outside the timed work."""

    loops: int
    executions: int
    tick_hz: float
    blind_fraction: float
    stopped: Literal["intervals", "interrupted"]
    intervals: tuple[PmaInterval, ...]


class GapBin(Model):
    """One histogram bin: gaps with ``from_ns`` <= length < ``to_ns``."""

    from_ns: float
    to_ns: float
    count: int


class GapRate(Model):
    """Gaps of at least ``threshold_ns`` per second."""

    threshold_ns: float
    rate: float


class TimeQuantile(Model):
    """For ``time_fraction`` of the wall time no gap was longer than ``gap_ns``."""

    time_fraction: float
    gap_ns: float


class LongGap(Model):
    """One of the longest gaps: its start and its length.

    ``at_ns`` is watched time: it counts from the start of the first round's view and stands still between views.
    """

    at_ns: float
    length_ns: float


class Period(Model):
    """Gaps at equal distances in time.

    ``gaps`` belong to it, of ``cycles`` in which one could be seen; they begin within ``window_ns`` of the expected
    time, and their lengths have the median ``median_ns`` and the sum ``lost_ns``.
    """

    period_ns: float
    hz: float
    share_of_gaps: float
    gaps: int
    cycles: int
    median_ns: float
    lost_ns: float
    window_ns: float


class TurnTime(Model):
    """Duration of one uninterrupted turn of the gap loop."""

    min: float
    median: float


class GapView(Model):
    """Every interruption of one CPU longer than the threshold; the loop observes all the time.

    ``slices`` has an observation of each round, unless it had no whole slice. ``lost_by_round`` is the lost fraction of
    each round, empty if it was measured once.
    """

    stopped: Literal["time", "interrupted"]
    rate_half_width: float | None = None
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
    slices: tuple[Slices, ...]
    traced: Traced | None = None
    core_hz_before: float
    core_hz_after: float
    interference: Interference
    lost_by_round: tuple[float, ...] = ()

    @property
    def attribution(self) -> Attribution | None:
        """Causes of the gaps by counters; ``None`` if none were read."""
        return attributed(self.slices)


class JitterCpu(CpuView):
    """Both views of one CPU; a missing view is ``None``, with the reason in ``pma_missing`` or ``gaps_missing``."""

    pma: PmaView | None
    gaps: GapView | None
    pma_missing: str | None = None
    gaps_missing: str | None = None
