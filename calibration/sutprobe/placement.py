# SPDX-License-Identifier: Apache-2.0
"""A placement of buffers, and what else happened while it was measured: common to all memory measurements."""

from typing import Literal

from pydantic import AliasChoices, Field

from calibration.model import Model
from calibration.sutprobe.document import ProbeError


class Interference(Model):
    """Interference on the measured CPUs: differences of counters, summed over CPUs.

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
    """The pages of a buffer, read back: how many of those checked lie on the wanted node.

    The buffer has ``total`` pages of base size, ``None`` in older documents, which checked a sample; all are checked,
    or none if the kernel does not report their nodes.
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
    """Common fields of memory placements; ``cpus_verified``: each thread was on its CPU to the end."""

    seed: int
    pages: Pages
    core_hz_before: float
    core_hz_after: float
    interference: Interference
    cpus_verified: bool = Field(validation_alias=AliasChoices("cpus_verified", "cpu_verified"))


Stopped = Literal["converged", "placements", "budget", "interrupted"]
"""Why no further placement was made: all that were asked for, or ``interrupted`` by a signal or the deadline.

``converged`` and ``budget`` are of older versions, which added placements.
"""


class Outcome(Model):
    """Why a point has no further placement, or none at all."""

    stopped: Stopped | None
    error: ProbeError | None
