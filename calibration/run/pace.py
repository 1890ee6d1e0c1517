# SPDX-License-Identifier: Apache-2.0
"""Actual against announced duration of measuring, and why they differ."""

from calibration.base.text import duration
from calibration.results.model import RunDocument

TOLERANCE = 0.2
"""Relative difference that is still as announced: the cost model is made on quiet machines."""

REASONS = (
    ("STOLEN", "the hypervisor took CPU time"),
    ("PREEMPTED", "other work ran on the measured CPUs"),
    ("THROTTLED", "the processor was throttled"),
    ("EMULATED", "the processor is emulated"),
)
"""Flags that explain a longer duration."""


def pace(document: RunDocument) -> tuple[float, float] | None:
    """Return the announced and the actual duration in s of the measured steps; ``None`` without any."""
    if document.plan is None:
        return None
    took = {measurement.step: measurement for measurement in document.measurements}
    announced_s = 0.0
    for step in document.plan.steps:
        measured = took.get(step.part_of or step.id)
        if measured is not None:
            rounds = step.rounds if step.part_of else len(measured.rounds) or step.rounds
            announced_s += step.expected_duration_s * rounds / step.rounds
    took_s = sum(measurement.duration_s for measurement in took.values())
    return (announced_s, took_s) if announced_s else None


def pace_text(document: RunDocument) -> str | None:
    """Return the two durations in words, with likely reasons if they differ by more than ``TOLERANCE``."""
    if (found := pace(document)) is None:
        return None
    announced_s, took_s = found
    text = f"{duration(took_s)}, {duration(announced_s)} announced"
    if within_announcement(document):
        return text
    reasons = [
        f"{words} in {count} of {len(document.measurements)} measurements"
        for code, words in REASONS
        if (
            count := sum(
                any(flag.code == code for flag in measurement.validity.flags) for measurement in document.measurements
            )
        )
    ]
    likely = "; ".join(reasons) or "no recorded reason"
    return f"{text}: {likely}" if took_s > announced_s else text


def within_announcement(document: RunDocument) -> bool:
    """Return whether measuring took as long as announced, within ``TOLERANCE``; true if unknown."""
    found = pace(document)
    return found is None or abs(found[1] / found[0] - 1) <= TOLERANCE
