# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe frequency``."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, Literal, Self

from calibration.model import Model
from calibration.sutprobe.document import Part, ProbeError, Result
from calibration.sutprobe.placement import Interference


class FrequencyPoint(Model):
    """The clock of one CPU under one kind of work, alone or while ``active_cpus`` CPUs do the same.

    ``windows_hz`` are core clocks per second while the CPU was not interrupted, ``share`` the share of the time that it
    got (``windows_share``: per window). ``lost_windows`` have no clock. ``chain_ratio`` compares the chain with vector
    work beside it to the chain alone. A point of several rounds has those with a clock in ``rounds``.
    """

    cpu: int
    active: Literal["alone", "all"]
    active_cpus: int
    work: str
    cpu_verified: bool
    checked: bool
    stopped: Literal["converged", "windows", "budget", "interrupted"] | None
    error: ProbeError | None
    windows_hz: tuple[float, ...] | None
    share: float | None
    windows_share: tuple[float, ...] | None
    dirty_windows: tuple[int, ...] | None
    lost_windows: int | None
    chain_ratio: float | None
    interference: Interference | None
    rounds: tuple["FrequencyPoint", ...] = ()

    @classmethod
    def joined(cls, rounds: Sequence[Self]) -> Self:
        """Return one CPU's clock in several *rounds*, of which some may have none, as one point."""
        good = [point for point in rounds if point.error is None]
        if not good:
            return rounds[0]
        ratios = [point.chain_ratio for point in good if point.chain_ratio is not None]
        counts = [point.interference for point in good if point.interference is not None]
        return good[0].model_copy(
            update={
                "cpu_verified": all(point.cpu_verified for point in good),
                "checked": all(point.checked for point in good),
                "share": fmean(point.share or 0.0 for point in good),
                "lost_windows": sum(point.lost_windows or 0 for point in good),
                "chain_ratio": median(ratios) if ratios else None,
                "interference": Interference.summed(counts) if counts else None,
                "rounds": tuple(good),
            }
        )


class FrequencyResult(Result):
    """Result of ``sutprobe frequency``, in the order work x alone or all x CPU."""

    points: tuple[FrequencyPoint, ...]

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one."""
        found: dict[tuple[Any, ...], list[FrequencyPoint]] = {}
        for point in (point for _, result in rounds for point in result.points):
            found.setdefault((point.cpu, point.active, point.work), []).append(point)
        return rounds[0][1].model_copy(update={"points": tuple(map(FrequencyPoint.joined, found.values()))})
