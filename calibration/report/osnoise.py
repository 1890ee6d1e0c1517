# SPDX-License-Identifier: Apache-2.0
"""What traced events say in the classes of the kernel's tracer osnoise, so that the two can be compared."""

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
"""The class in which osnoise counts a kind of work. What a timer or a worker calls is its caller's time there."""


def class_share(view: TracedView, kind: str) -> float | None:
    """Return the share of the lost time that osnoise would count in one class, by our events; ``None`` without any."""
    if view.told_ns <= 0:
        return None
    return sum(cause.total_ns for cause in view.causes if _class_of(cause) == kind) / view.told_ns


def _class_of(cause: TracedCause) -> str:
    # Timers of the wheel expire in a softirq; those of high resolution in the interrupt, but for some that are soft.
    return "softirq" if (cause.kind, cause.name) == ("timer", "timer wheel") else KINDS[cause.kind]
