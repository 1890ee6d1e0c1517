# SPDX-License-Identifier: Apache-2.0
"""What the kernel did while a CPU was away, by tracing."""

from typing import Literal

from calibration.base.model import Model

Work = Literal["interrupt", "timer", "ipi", "vector", "nmi", "softirq", "task", "work"]
"""Kinds of kernel work: of a device's interrupt, a timer and what it calls, another CPU's request, any other interrupt,
a non-maskable one, a softirq, another thread, and a function that a kernel worker runs."""


class TracedCause(Model):
    """One kind of kernel work that interrupted the CPU, from traced events.

    ``events`` is how often it ran, in ``gaps`` gaps, of which it dominated ``owned``. Times exclude nested
    interruptions; ``share`` is of the time of all gaps explained. ``irq`` is the interrupt line, ``pid`` the thread if
    only one had the name.
    """

    kind: Work
    name: str
    function: str | None
    irq: int | None
    pid: int | None
    events: int
    gaps: int
    owned: int
    total_ns: float
    longest_ns: float
    share: float | None


class TracedRest(Model):
    """Time of gaps that no event covers, in ``gaps`` gaps."""

    gaps: int
    total_ns: float
    longest_ns: float
    share: float | None


class Unexplained(TracedRest):
    """Gap time outside events; ``without_events`` gaps had none at all."""

    without_events: int


class GapCause(Model):
    """The kernel work that took at least half of a gap."""

    kind: Work
    name: str
    function: str | None


class TracedGap(Model):
    """One of the longest gaps while the kernel was traced; ``cause`` is ``None`` if no work explains half of it.

    ``at_ns`` is watched time: it counts from the start of the first traced part and stands still between parts.
    """

    at_ns: float
    length_ns: float
    cause: GapCause | None


class GapTotals(Model):
    """How much a CPU was interrupted in ``wall_s``; ``mean_ns`` is ``None`` without gaps."""

    wall_s: float
    gaps: int
    rate_per_s: float
    lost_fraction: float
    mean_ns: float | None


class TracedView(Model):
    """The gaps found while the kernel was traced.

    ``without_tracing`` is the untraced view of the same command; the difference is the cost of tracing.
    ``explained_gaps`` are those with a complete trace, ``longest`` the longest of them, empty in older documents.
    ``edges`` is kernel entry and exit, and cache refills.
    """

    clock: Literal["x86-tsc", "mono_raw"]
    kinds_of_events: int
    lines: int
    unreadable: int
    lost_events: int | None
    with_tracing: GapTotals
    without_tracing: GapTotals
    explained_gaps: int
    explained_ns: float
    longest: tuple[TracedGap, ...] = ()
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained
    steal_ms: float | None
    smi: int | None


class NoiseName(Model):
    """One source of noise, as accounted by the osnoise tracer.

    ``number`` is that of the interrupt, softirq or thread, ``None`` if several threads had the name. Times exclude
    nested interruptions; ``share`` is of the time in all traced gaps.
    """

    name: str
    number: int | None
    count: int
    total_ns: float
    longest_ns: float
    share: float | None


class NoiseClass(Model):
    """One class of osnoise; NMIs have no names."""

    kind: Literal["irq", "nmi", "softirq", "thread"]
    count: int
    total_ns: float
    longest_ns: float
    share: float | None
    names: tuple[NoiseName, ...]


class Traced(Model):
    """Whether the kernel could be traced, and the result; ``tracers`` are its available noise tracers.

    ``osnoise`` is the kernel's own tracer on the same gaps; if it is ``None``, ``osnoise_refused`` says why, or
    ``refused`` if nothing was traced.
    """

    refused: str | None
    tracers: str
    osnoise_refused: str | None = None
    osnoise: tuple[NoiseClass, ...] | None = None
    view: TracedView | None
