# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe frequency``."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from calibration.base.grouping import of_known
from calibration.sutprobe.document import Part
from calibration.sutprobe.placement import Interference, PointsResult, Repeated

ACTIVE: Final = "^(alone|all|[1-9][0-9]{0,3})$"


class FrequencyPoint(Repeated):
    """The clock of one CPU under one kind of work, alone or while ``active_cpus`` CPUs do the same.

    These are ``all``, or so many of them that ``active`` is their number.
    ``windows_hz`` are core clocks per second while the CPU was not interrupted, ``share`` the share of the time that it
    got (``windows_share``: per window). ``lost_windows`` have no clock. ``chain_ratio`` compares the chain with vector
    work beside it to the chain alone. A point of several rounds has those with a clock in ``rounds``.
    """

    IDENTITY = ("cpu", "active", "work")
    VALUE = "windows_hz"

    cpu: int
    active: Annotated[str, Field(pattern=ACTIVE)]
    active_cpus: int
    work: str
    cpu_verified: bool
    checked: bool
    stopped: Literal["windows", "interrupted"] | None
    windows_hz: tuple[float, ...] | None
    share: float | None
    windows_share: tuple[float, ...] | None
    dirty_windows: tuple[int, ...] | None
    lost_windows: int | None
    chain_ratio: float | None
    interference: Interference | None
    rounds: tuple["FrequencyPoint", ...] = ()

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return one CPU's clock in all *parts*, and what is proved in all of them."""
        points = tuple(point for _, point in parts)
        return {
            "cpu_verified": all(point.cpu_verified for point in points),
            "checked": all(point.checked for point in points),
            "share": fmean(point.share or 0.0 for point in points),
            "lost_windows": sum(point.lost_windows or 0 for point in points),
            "chain_ratio": of_known(median, (point.chain_ratio for point in points)),
            "interference": of_known(Interference.summed, (point.interference for point in points)),
            "rounds": points,
        }


class FrequencyResult(PointsResult):
    """Result of ``sutprobe frequency``, in the order work x alone, all or some x CPU."""

    points: tuple[FrequencyPoint, ...]
