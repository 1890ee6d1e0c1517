# SPDX-License-Identifier: Apache-2.0
"""Who interrupted the CPUs of a run, and what to change about it."""

import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from calibration.base.grouping import grouped
from calibration.charts.interruptions import MIN_SEEN
from calibration.measurements.disturbers import MAX_NAMES, Disturber
from calibration.measurements.jitter import JitterSettings, JitterValues, mean_losses, quiet
from calibration.profiles import load_profile, profile_names
from calibration.report.advice import Advice
from calibration.report.blocks import Inline, Link, Text
from calibration.results.model import Measurement
from calibration.sutprobe.jitter import Period

WORDS: Final[dict[Disturber, str]] = {
    "kernel entry": "entering and leaving the kernel, caches",
    "firmware": "firmware or hardware: no event of the kernel",
    "hypervisor": "hypervisor",
    "unknown": "unknown",
}
"""Causes that have other names in a table."""


SUMS: Final = ("gaps", "cycles", "share_of_gaps", "lost_ns")
"""Fields of periods that are added where two are one."""


class Culprit(NamedTuple):
    """A cause: the mean share of the CPUs' time that it took, what took most of it, and the changes against it."""

    cause: str
    share: float
    names: tuple[str, ...]
    changes: Text


def culprits(measurements: Sequence[Measurement], advised: Sequence[Advice]) -> list[Culprit]:
    """Return what took the time of the CPUs that should be left alone, greatest first."""
    watched = _watched(measurements)
    found = mean_losses(watched)
    names = grouped((loss.cause, name) for values in watched for loss in values.losses for name in loss.names)
    return [
        Culprit(
            WORDS.get(cause, cause),
            share,
            tuple(name for name in dict.fromkeys(names.get(cause, ())) if name != cause)[:MAX_NAMES],
            tuple(_links([item for item in advised if item.about == cause])),
        )
        for cause, share in found.items()
        if share >= MIN_SEEN * sum(found.values())
    ]


def _watched(measurements: Sequence[Measurement]) -> list[JitterValues]:
    return quiet([item.values for item in measurements if isinstance(item.values, JitterValues)])


def _links(advised: Sequence[Advice]) -> Iterator[Inline]:
    for number, item in enumerate(advised):
        yield from ("; ",) if number else ()
        yield Link(item.title, f"#{item.anchor}")


def sources_of_causes(measurements: Sequence[Measurement]) -> str:
    """Return where the causes are from, and how to learn more, in one or two sentences."""
    watched = _watched(measurements)
    if any(values.gaps.view for values in watched):
        return (
            "The interruptions on the time line, and all causes, are from a trace of the kernel around the measurement."
        )
    found = "Causes of the lost time are from the kernel's counters; those of single interruptions are unknown."
    refused = next((traced.refused for values in watched if (traced := values.gaps.traced) and traced.refused), None)
    if refused is not None:
        return f"{found} The kernel was not traced: {refused}."
    command = shlex.join(("calibration", "run", "--profile", _tracing()))
    return f"{found} To trace them, run as root: {command}."


@cache
def _tracing() -> str:
    """Return the name of the profile that traces the kernel."""
    settings = ((name, load_profile(name).measurements.get("jitter")) for name in profile_names())
    return next(name for name, jitter in settings if isinstance(jitter, JitterSettings) and jitter.attribute)


def by_rate(measurements: Sequence[Measurement]) -> list[tuple[Measurement, Period]]:
    """Return the periods of each of *measurements*; those whose rates agree in three digits are one.

    Its gaps and their share and time are sums, the rest is that of the one with most gaps.
    """
    found: dict[tuple[str, str], tuple[Measurement, Period]] = {}
    for item in measurements:
        values = item.values
        periods = values.gaps.periods if isinstance(values, JitterValues) else ()
        for period in sorted(periods, key=lambda period: -period.gaps):
            key = item.id, f"{period.hz:.3g}"
            same = found.get(key, (item, None))[1]
            sums = {} if same is None else {name: getattr(same, name) + getattr(period, name) for name in SUMS}
            found[key] = item, (same or period).model_copy(update=sums)
    return list(found.values())
