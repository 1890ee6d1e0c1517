# SPDX-License-Identifier: Apache-2.0
"""Who took the time of a CPU: the longest interruptions and the lost time by cause, as far as a run knows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from calibration.base.grouping import grouped
from calibration.sutprobe.attribution import Attribution, GapSource
from calibration.sutprobe.jitter import LongGap
from calibration.sutprobe.tracing import TracedCause, TracedGap, TracedView, Work

Disturber = Literal[
    "local timer",
    "device interrupt",
    "other interrupt",
    "softirq",
    "thread",
    "kernel entry",
    "firmware",
    "hypervisor",
    "unknown",
]
"""Causes of interruptions. ``kernel entry``: entering and leaving the kernel, and what the caches lost. ``firmware``
(or the hardware) and ``hypervisor`` are what no event of a traced kernel explains."""

OF_WORK: Final[Mapping[Work, Disturber]] = {
    "interrupt": "device interrupt",
    "timer": "local timer",
    "ipi": "other interrupt",
    "vector": "other interrupt",
    "nmi": "other interrupt",
    "softirq": "softirq",
    "task": "thread",
    "work": "thread",
}
"""Whose time the kinds of traced work are."""

LOCAL_TIMER: Final = "LOC"
"""Name of the local timer's interrupts in ``/proc/interrupts`` of x86."""

INTERRUPTS: Final = {
    "CAL": "function call IPI", "IWI": "IRQ work", LOCAL_TIMER: "local timer", "MCP": "machine check poll",
    "NMI": "non-maskable", "PMI": "performance monitoring", "RES": "reschedule IPI", "THR": "threshold APIC",
    "TLB": "TLB shootdown", "TRM": "thermal event",
}  # fmt: skip
"""Rows of ``/proc/interrupts`` of x86 that have no number."""

MAX_INTERRUPTIONS: Final = 10

MAX_NAMES: Final = 3

ROUNDING: Final = 1e-6
"""A share of the lost time that is the rounding of the others."""


class Loss(NamedTuple):
    """The ``share`` of a CPU's time that one cause took, and the names of what took most of it."""

    cause: Disturber
    share: float
    names: tuple[str, ...]


class Interruption(NamedTuple):
    """One interruption of a CPU; ``at_ns`` counts from the start of the watch."""

    cpu: int
    at_ns: float
    length_ns: float
    cause: Disturber
    name: str


def source_name(source: GapSource) -> str:
    """Return the name of a counted source for readers."""
    if source.kind == "interrupt":
        return f"IRQ {source.source}" if source.source.isdigit() else INTERRUPTS.get(source.source, source.source)
    return f"{source.source} softirq" if source.kind == "softirq" else source.source


def losses(
    lost: float, *, traced: TracedView | None, counted: Attribution | None, guest: bool | None
) -> tuple[Loss, ...]:
    """Return what took *lost*, the share of a CPU's time, greatest first.

    Causes come from the trace, else from the kernel's counters; what neither knows is ``unknown``.
    """
    parts = list(_traced(traced, guest) if traced is not None else _counted(counted) if counted is not None else ())
    known = sum(share for _, share, _ in parts)
    parts.append(("unknown", rest if (rest := 1 - known) > ROUNDING else 0.0, ""))
    by_cause = grouped((cause, (share, name)) for cause, share, name in parts if lost * share > 0)
    found = [
        Loss(
            cause,
            lost * sum(share for share, _ in those),
            tuple(dict.fromkeys(name for _, name in sorted(those, reverse=True) if name))[:MAX_NAMES],
        )
        for cause, those in by_cause.items()
    ]
    return tuple(sorted(found, key=lambda loss: -loss.share))


def _traced(view: TracedView, guest: bool | None) -> Iterator[tuple[Disturber, float, str]]:
    """Yield the causes in a trace: what each is, its share of the lost time, and its name."""
    for cause in view.causes:
        yield OF_WORK[cause.kind], cause.share or 0.0, _name(cause)
    yield "kernel entry", view.edges.share or 0.0, ""
    yield _beyond(guest), view.unexplained.share or 0.0, ""


def _name(cause: TracedCause) -> str:
    return cause.function or (cause.name if cause.irq is None else f"IRQ {cause.irq} {cause.name}")


def _beyond(guest: bool | None) -> Disturber:
    """Return what took time that no event of the kernel explains."""
    return "unknown" if guest is None else "hypervisor" if guest else "firmware"


def _counted(found: Attribution) -> Iterator[tuple[Disturber, float, str]]:
    """Yield the same of counters. The kernel's steal time is a part of what they do not explain."""
    if not found.lost_ns:
        return
    for source in found.sources:
        if source.kind == "steal":
            stolen_ns = min(source.count * 1e6, found.unattributed_lost_ns)
            yield "hypervisor", stolen_ns / found.lost_ns, "steal"
        elif source.explained_lost_ns:
            yield _of_source(source), source.explained_lost_ns / found.lost_ns, source_name(source)


def _of_source(source: GapSource) -> Disturber:
    if source.kind == "interrupt":
        numbered = source.source.isdigit()
        return "local timer" if source.source == LOCAL_TIMER else "device interrupt" if numbered else "other interrupt"
    return "softirq" if source.kind == "softirq" else "thread" if source.kind == "switch" else "firmware"


def interruptions(
    cpu: int, longest: Sequence[LongGap], traced: TracedView | None, guest: bool | None
) -> Iterator[Interruption]:
    """Yield the longest interruptions of a *cpu*: those of the traced view, which have causes, else *longest*."""
    if traced is None or not traced.longest:
        yield from (Interruption(cpu, gap.at_ns, gap.length_ns, "unknown", "") for gap in longest)
        return
    for gap in traced.longest:
        yield Interruption(cpu, gap.at_ns, gap.length_ns, *_owner(gap, guest))


def _owner(gap: TracedGap, guest: bool | None) -> tuple[Disturber, str]:
    if gap.cause is None:
        return _beyond(guest), ""
    return OF_WORK[gap.cause.kind], gap.cause.function or gap.cause.name
