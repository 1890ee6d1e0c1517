# SPDX-License-Identifier: Apache-2.0
"""Models of ``sutprobe counters``, ``info`` and ``selftest``, used only by tests."""

from typing import Literal

from calibration.base.model import Model
from calibration.sutprobe.counters import Counters
from calibration.sutprobe.document import ProbeError
from calibration.sutprobe.tracing import TracedCause, TracedRest, Unexplained


class EventSourceType(Model):
    """A PMU of the machine, and the number that the kernel knows it by."""

    name: str
    type: int


class CountersResult(Model):
    """Result of ``sutprobe counters``: which events may be counted on this machine, and the counts.

    ``paranoid`` is the kernel's ``perf_event_paranoid``, ``None`` if it has none; ``counters`` is ``None`` if no event
    was requested.
    """

    paranoid: int | None
    cap_perfmon: bool
    cap_sys_admin: bool
    pmus: tuple[EventSourceType, ...]
    counters: Counters | None


class HugetlbNode(Model):
    """Reserved huge pages of one size on one node; ``None`` if the kernel does not say."""

    node: int
    nr: int | None
    free: int | None


class HugetlbSize(Model):
    """Reserved huge pages of one size, on the whole machine and by node."""

    bytes: int
    nr: int | None
    free: int | None
    nodes: tuple[HugetlbNode, ...]


class PageKinds(Model):
    """The page kinds available for buffers; ``thp_*`` are the kernel's own words, the choice in brackets."""

    base_bytes: int
    thp_bytes: int | None
    thp_enabled: str | None
    thp_defrag: str | None
    hugetlb: tuple[HugetlbSize, ...]


class Privilege(Model):
    """Whether sutprobe has a privilege on this SUT, how that was ``found``, and the ``cost`` of lacking it."""

    name: str
    present: bool
    found: str
    cost: str | None


class InfoResult(Model):
    """Result of ``sutprobe info``: the state of the SUT before measuring."""

    instruction_sets: dict[str, bool]
    sve_vector_bytes: int | None
    widths: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    line_bytes: int
    clocksource: str | None
    clocksources: tuple[str, ...]
    page_kinds: PageKinds
    uid: int
    privileges: tuple[Privilege, ...]


class SelftestCase(Model):
    """One known answer: ``error`` says why it was wrong or could not be checked; ``note`` what was found."""

    name: str
    passed: bool
    error: ProbeError | None
    note: str | None


class InjectedTrain(Model):
    """Injected interruptions, every ``period_ns`` for ``busy_ns``, and the gaps found.

    ``in_gaps`` are inside a recorded gap, ``alone`` without another; the cost of an empty one is subtracted from
    ``found_median_ns``. 0 if nothing was found; ``reason`` says why a train was not found or not judged.
    """

    mechanism: str
    busy_ns: float
    period_ns: float
    injected: int
    in_gaps: int
    alone: int
    found_median_ns: float
    overhead_ns: float
    overhead_spread_ns: float
    found_period_ns: float
    found_period_gaps: int
    verdict: Literal["found", "inconclusive", "missed"]
    reason: str | None


class Plant(Model):
    """An injected disturbance, and what tracing found under its name; ``planted_ns`` if its duration is known."""

    planted: str
    planted_events: int
    planted_ns: float | None
    found_events: int
    found_ns: float


class Plantings(Model):
    """The disturbances injected on one CPU, and everything that tracing found there."""

    cpu: int
    wall_s: float
    plants: tuple[Plant, ...]
    other_threads_share: float
    explained_gaps: int
    explained_ns: float
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained


class SelftestResult(Model):
    """Result of the subcommand ``selftest``, in the order the cases ran in."""

    cases: tuple[SelftestCase, ...]
    injections: tuple[InjectedTrain, ...]
    plantings: Plantings | None
