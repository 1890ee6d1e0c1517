# SPDX-License-Identifier: Apache-2.0
"""Traced events in the classes of the osnoise tracer, for comparison with it."""

from typing import Final

from calibration.sutprobe.tracing import TracedCause, TracedView

KINDS: Final = {
    "interrupt": "irq",
    "timer": "irq",
    "ipi": "irq",
    "vector": "irq",
    "nmi": "nmi",
    "softirq": "softirq",
    "task": "thread",
    "work": "thread",
}
"""The osnoise class of each kind of work. A callee of a timer or a worker is counted with its caller."""


def class_share(view: TracedView, kind: str) -> float | None:
    """Return the share of the lost time in one osnoise class, from our events; ``None`` if there are none."""
    if view.explained_ns <= 0:
        return None
    return sum(cause.total_ns for cause in view.causes if _class_of(cause) == kind) / view.explained_ns


def _class_of(cause: TracedCause) -> str:
    # Wheel timers expire in a softirq, high-resolution timers in the interrupt unless they are soft.
    return "softirq" if (cause.kind, cause.name) == ("timer", "timer wheel") else KINDS[cause.kind]
