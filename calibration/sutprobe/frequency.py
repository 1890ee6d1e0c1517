# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe frequency``."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.document import ProbeError
from calibration.sutprobe.placement import Interference


class FrequencyPoint(Model):
    """The clock of one CPU under one kind of work, alone or while ``active_cpus`` CPUs do the same.

    ``windows_hz`` are core clocks per second while the CPU was not interrupted, ``share`` the share of the time that it
    got (``windows_share``: per window). ``lost_windows`` have no clock. ``chain_ratio`` compares the chain with vector
    work beside it to the chain alone.
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


class FrequencyResult(Model):
    """Result of ``sutprobe frequency``, in the order work x alone or all x CPU."""

    points: tuple[FrequencyPoint, ...]
