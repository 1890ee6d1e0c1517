# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe loaded``."""

from collections.abc import Sequence
from typing import ClassVar, Self

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.sutprobe.bandwidth import Accounting
from calibration.sutprobe.counters import CountedPlacement
from calibration.sutprobe.document import Part, Result
from calibration.sutprobe.placement import Point, merged_points


class LoadedProbe(Model):
    """One latency probe of a loaded-latency placement: ns per load in the same windows as the bandwidth."""

    cpu: int
    node: int
    windows_ns: tuple[float, ...]
    probe_mb_s: float


class LoadedPlacement(CountedPlacement):
    """One placement of a loaded-latency point; the probes' own traffic is not in ``windows_mb_s``."""

    windows_mb_s: tuple[float, ...]
    probes: tuple[LoadedProbe, ...]


class LoadedPoint(Point):
    """Latency and bandwidth at one injection delay; ``delay_ns`` is the measured length of the delay itself.

    ``accounting`` is that of the load's ``mix``.
    """

    IDENTITY: ClassVar = ()

    mix: str
    inject_delay: int
    delay_ns: float
    accounting: Accounting
    checked: bool
    placements: tuple[LoadedPlacement, ...] | None


class ZeroLoad(Model):
    """The unloaded latency of the probe at the start, in the middle and at the end of the sweep, to detect drift."""

    cpu: int
    node: int
    windows_ns_start: tuple[float, ...]
    windows_ns_middle: tuple[float, ...]
    windows_ns_end: tuple[float, ...]

    @classmethod
    def of_probes(cls, found: Sequence["ZeroLoad"]) -> "tuple[ZeroLoad, ...]":
        """Return the windows *found* in all rounds, joined by probe."""
        names = ("windows_ns_start", "windows_ns_middle", "windows_ns_end")
        return tuple(
            ZeroLoad(cpu=cpu, node=node, **{name: sum((getattr(zero, name) for zero in own), ()) for name in names})
            for (cpu, node), own in grouped(((zero.cpu, zero.node), zero) for zero in found).items()
        )


class ZeroLoadRound(ZeroLoad):
    """The same in one round; ``None`` if measured once."""

    round: int | None = None

    @property
    def windows_ns(self) -> tuple[float, ...]:
        """The windows of all three moments."""
        return (*self.windows_ns_start, *self.windows_ns_middle, *self.windows_ns_end)


class LoadedShare(Model):
    """The delay found for a share of the bandwidth of ``mix`` without delay, and the share seen there."""

    mix: str
    share_percent: int
    inject_delay: int
    share_found: float


class LoadedLook(Model):
    """One delay of the search for shares: the highest bandwidth of so many looks."""

    mix: str
    inject_delay: int
    times: int
    best_mb_s: float


class LoadedSearch(Result):
    """Result of ``sutprobe loaded --choose``: the delays of all points, last those of ``shares``; and its looks."""

    chosen: tuple[int, ...]
    shares: tuple[LoadedShare, ...]
    looks: tuple[LoadedLook, ...]


class LoadedResult(Result):
    """Result of ``sutprobe loaded``: one point per injection delay."""

    points: tuple[LoadedPoint, ...]
    zero_load: tuple[ZeroLoadRound, ...]

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one: points by their place, and the unloaded windows of each round."""
        zeros = (zero.model_copy(update={"round": part.round}) for part, result in rounds for zero in result.zero_load)
        points = merged_points([(part, result.points) for part, result in rounds])
        return rounds[0][1].model_copy(update={"points": points, "zero_load": tuple(zeros)})
