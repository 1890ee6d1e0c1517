# SPDX-License-Identifier: Apache-2.0
"""A placement of buffers and what else happened while it was measured: common to all memory measurements."""

from typing import Literal

from pydantic import AliasChoices, Field

from calibration.model import Model
from calibration.sutprobe.document import ProbeError


class Interference(Model):
    """What else happened on the measured CPUs while they were measured: differences of counters, summed over CPUs.

    ``None`` if the SUT does not report it, or if reading it would have taken too long.
    """

    involuntary_switches: int
    voluntary_switches: int
    minor_faults: int
    major_faults: int
    steal_ms: float | None
    interrupts: dict[str, int] | None
    softirqs: dict[str, int] | None
    smi: int | None
    core_throttle: int | None
    package_throttle: int | None
    pages_migrated: int | None


class Pages(Model):
    """The pages a buffer really got, read back, and how many of those checked lie on the wanted node.

    ``total`` pages of base size make the buffer; all are checked, or none if the kernel does not report it. It is
    ``None`` in documents of versions that checked a sample.
    """

    wanted: str
    obtained: Literal["thp", "hugetlb_2m", "hugetlb_1g", "base", "mixed"]
    base_bytes: int
    huge_bytes: int | None
    huge_fraction: float
    total: int | None = None
    checked: int
    on_node: int
    elsewhere: int


class Placement(Model):
    """What every placement of a memory kernel carries; ``cpus_verified``: each thread was on its CPU to the end."""

    seed: int
    pages: Pages
    core_hz_before: float
    core_hz_after: float
    interference: Interference
    cpus_verified: bool = Field(validation_alias=AliasChoices("cpus_verified", "cpu_verified"))


Stopped = Literal["converged", "placements", "budget", "interrupted"]
"""Why no further placement was made; ``interrupted``: the command was told to end, by a signal or its deadline."""


class Outcome(Model):
    """Why a point of a result has no further placement, and why it has none at all."""

    stopped: Stopped | None
    error: ProbeError | None
