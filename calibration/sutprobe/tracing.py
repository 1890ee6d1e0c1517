# SPDX-License-Identifier: Apache-2.0
"""What the kernel was traced doing while a CPU was away."""

from typing import Literal

from calibration.model import Model


class TracedCause(Model):
    """One kind of work of the kernel that interrupted the CPU, from its traced events.

    ``events`` is how often it ran, in ``gaps`` gaps, of which ``owned`` were its more than any other's. Times are its
    own, without what interrupted it; ``share`` is of the time of all gaps told of. ``irq`` is the interrupt line,
    ``pid`` the thread if one thread only had the name.
    """

    kind: Literal["interrupt", "timer", "ipi", "vector", "nmi", "softirq", "task", "work"]
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
    """What is no edge of any event; ``without_events`` gaps had none at all."""

    without_events: int


class GapTotals(Model):
    """How much a CPU was interrupted in ``wall_s``; ``mean_ns`` is ``None`` without gaps."""

    wall_s: float
    gaps: int
    rate_per_s: float
    lost_fraction: float
    mean_ns: float | None


class TracedView(Model):
    """What the gaps were that were watched while the kernel was traced.

    ``without_tracing`` is the view whose figures are published, so that the two tell what tracing costs. ``told_gaps``
    are those whose time was traced and kept. ``edges`` is entering and leaving the kernel, and what the caches lost.
    """

    clock: Literal["x86-tsc", "mono_raw"]
    kinds_of_events: int
    lines: int
    unreadable: int
    lost_events: int | None
    with_tracing: GapTotals
    without_tracing: GapTotals
    told_gaps: int
    told_ns: float
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained
    steal_ms: float | None
    smi: int | None


class NoiseName(Model):
    """What the kernel's tracer osnoise accounts for under one name, as the kernel gives it.

    ``number`` is the interrupt's, the softirq's or the thread's, ``None`` if several threads had the name. Times are
    without what interrupted it; ``share`` is of the time in all traced gaps.
    """

    name: str
    number: int | None
    count: int
    total_ns: float
    longest_ns: float
    share: float | None


class NoiseClass(Model):
    """What osnoise accounts for in one class of the kernel's; NMIs have no names."""

    kind: Literal["irq", "nmi", "softirq", "thread"]
    count: int
    total_ns: float
    longest_ns: float
    share: float | None
    names: tuple[NoiseName, ...]


class Traced(Model):
    """Whether the kernel could be traced, and what that told; ``tracers`` names its own tracers of noise.

    ``osnoise`` is the second view, that of the kernel's own tracer on the same gaps; if it is ``None``,
    ``osnoise_refused`` says why, or ``refused`` if nothing was traced.
    """

    refused: str | None
    tracers: str
    osnoise_refused: str | None = None
    osnoise: tuple[NoiseClass, ...] | None = None
    view: TracedView | None
