# SPDX-License-Identifier: Apache-2.0
"""Results of ``sutprobe firmware``: gaps with interrupts off, by the kernel's tracer hwlat, beside counters."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model
from calibration.sutprobe.document import Part, ProbeError, Result

LONGEST = 20
"""Longest gaps kept of each CPU, as many as sutprobe lists."""

COUNTS = ("smi", "core_throttle", "package_throttle")
"""What counters of a CPU rose by."""


class FirmwareGap(Model):
    """The longest gap of one window; ``at_unix_ns`` is when the first of its gaps was over."""

    at_unix_ns: int
    length_ns: float


class FirmwareGaps(Model):
    """Gaps of one CPU in ``observed_s``, the time its interrupts were off and its clock was read, in whole windows.

    Windows with a gap and a non-maskable interrupt are in neither, but in ``nmi_windows``. ``lost_windows`` did not fit
    into the kernel's buffer, ``None`` if it does not tell.
    """

    observed_s: float
    count: int
    nmi_windows: int
    lost_windows: int | None
    longest: tuple[FirmwareGap, ...]

    @classmethod
    def summed(cls, parts: Sequence[Self]) -> Self:
        """Return *parts*, at least one, as one observation."""
        lost = [part.lost_windows for part in parts]
        longest = sorted((gap for part in parts for gap in part.longest), key=lambda gap: -gap.length_ns)
        return cls(
            observed_s=sum(part.observed_s for part in parts),
            count=sum(part.count for part in parts),
            nmi_windows=sum(part.nmi_windows for part in parts),
            lost_windows=None if None in lost else sum(filter(None, lost)),
            longest=tuple(longest[:LONGEST]),
        )


class FirmwareCpu(Model):
    """One CPU: its gaps, ``None`` without an instrument, and what its counters rose by, ``None`` if not readable.

    ``error`` says why it was not observed while others were.
    """

    cpu: int
    error: ProbeError | None = None
    gaps: FirmwareGaps | None
    smi: int | None
    core_throttle: int | None
    package_throttle: int | None


class FirmwareResult(Result):
    """All CPUs at once, in ``wall_s``.

    ``refused`` says why there is no ``instrument``, ``smi_refused`` why no SMI count. The tracer
    records gaps longer than ``threshold_ns``.
    """

    instrument: Literal["hwlat"] | None
    refused: str | None
    threshold_ns: float | None
    wall_s: float
    stopped: Literal["time", "interrupted"]
    smi_source: str | None
    smi_refused: str | None
    cpus: tuple[FirmwareCpu, ...]

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one observation; of those with an instrument, if there are any."""
        results = [result for _, result in rounds]
        seen = [result for result in results if result.instrument is not None] or results
        cpus = grouped((cpu.cpu, cpu) for result in seen for cpu in result.cpus)
        changes: dict[str, Any] = {
            "threshold_ns": max((result.threshold_ns for result in seen if result.threshold_ns), default=None),
            "wall_s": sum(result.wall_s for result in seen),
            "stopped": max((result.stopped for result in seen), key=("time", "interrupted").index),
            "cpus": tuple(map(_merged_cpu, cpus.values())),
        }
        return seen[0].model_copy(update=changes)


def _merged_cpu(parts: Sequence[FirmwareCpu]) -> FirmwareCpu:
    gaps = of_known(FirmwareGaps.summed, (part.gaps for part in parts))
    error = None if gaps else next((part.error for part in parts if part.error is not None), None)
    changes: dict[str, Any] = {"gaps": gaps, "error": error}
    for name in COUNTS:
        counts = [getattr(part, name) for part in parts]
        changes[name] = None if None in counts else sum(counts)
    return parts[0].model_copy(update=changes)
