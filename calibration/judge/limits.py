# SPDX-License-Identifier: Apache-2.0
"""Whether a metric is within its limits, those of the inventory or of an acceptance file."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, get_args

from calibration.acceptance.limits import KERNELS, KernelKind, Limit
from calibration.base import units
from calibration.measurements.base import Metric, Observation

Outcome = Literal["fail", "unknown", "warn", "pass"]
"""Of a limit, worst first. ``warn``: beyond the soft limit."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)


EARLY: Final = 0.001
"""Share of the time asked for that may be missing: each round ends with its last deadline or turn, up to a ms early."""


class Judged(NamedTuple):
    """What a limit says of a metric, and why."""

    limit: Limit
    outcome: Outcome
    reason: str


def limit_of(limits: Iterable[Limit], metric: str, kernel: KernelKind | None) -> Limit | None:
    """Return the first of *limits* that is for *metric* and for *kernel*; else the first for the metric."""
    found = [limit for limit in limits if limit.matches(metric)]
    return next((limit for limit in found if limit.kernel in (None, kernel)), found[0] if found else None)


def judge_metric(limit: Limit, metric: Metric, kernel: KernelKind | None, observed: Observation | None) -> Judged:
    """Return what *limit* says of *metric*, measured under *kernel* (``None`` if unknown).

    *observed* is in what it was looked for; ``None`` for a metric that is not the worst of something.
    """
    if reason := inapplicable(limit, kernel):
        return Judged(limit, "unknown", reason)
    found = f"found {_digits(metric.value, limit)} {metric.unit}"
    if metric.unit != limit.unit or is_outside(metric.value, limit.lower, limit.upper):
        return Judged(limit, "fail", f"expected {bounds(limit)}, {found} ({limit.reason})")
    soft = is_outside(metric.value, limit.soft_lower, limit.soft_upper)
    reason = f"expected {soft_bounds(limit) if soft else bounds(limit)}, {found} ({limit.reason})"
    if limit.soft_share is not None and observed is not None:
        late = sum(is_outside(value, None, limit.soft_upper) for value in observed.by_cpu.values())
        if late > limit.soft_share * len(observed.by_cpu):
            most = units.exact_percent(limit.soft_share)
            return Judged(limit, "fail", f"{reason}, on {late} of {len(observed.by_cpu)} CPUs, more than {most}")
    if limit.observed_s is not None and (observed is None or observed.observed_s < limit.observed_s * (1 - EARLY)):
        so_far = "an unknown time" if observed is None else units.duration(observed.observed_s)
        return Judged(
            limit, "unknown", f"{reason}, but looked for {so_far} of {units.exact_duration(limit.observed_s)}"
        )
    if metric.interval is not None and any(is_outside(end, limit.lower, limit.upper) for end in metric.interval):
        low, high = metric.interval
        reason += f"; the interval, {_digits(low, limit)} to {_digits(high, limit)}, reaches beyond"
    return Judged(limit, "warn" if soft else "pass", reason)


def inapplicable(limit: Limit, kernel: KernelKind | None) -> str | None:
    """Return why *limit* says nothing of a machine with *kernel*; ``None`` if it does."""
    if limit.kernel in (None, kernel):
        return None
    known = "" if kernel else ", and whether this is one is not known"
    return f"unknown: the limit is for {KERNELS[limit.kernel]}{known} ({limit.reason})"


def bounds(limit: Limit) -> str:
    """Return the bounds beyond which a value fails as text; the soft ones if there are no others."""
    if limit.lower is None and limit.upper is None:
        return soft_bounds(limit)
    return _range(limit.lower, limit.upper, limit.unit)


def soft_bounds(limit: Limit) -> str:
    """Return the bounds beyond which a value is warned of as text."""
    return _range(limit.soft_lower, limit.soft_upper, limit.unit)


def _range(lower: float | None, upper: float | None, unit: str) -> str:
    if lower is None:
        return f"at most {upper:.15g} {unit}"
    if upper is None:
        return f"at least {lower:.15g} {unit}"
    return f"{lower:.15g} to {upper:.15g} {unit}"


def _digits(value: float, limit: Limit) -> str:
    """Return *value* with as many digits as show on which side of the bounds it is."""
    text = f"{value:g}"
    sides = ((limit.lower, limit.upper), (limit.soft_lower, limit.soft_upper))
    whole = any(float(text) in side or is_outside(float(text), *side) != is_outside(value, *side) for side in sides)
    return repr(value) if whole else text


def is_outside(value: float, lower: float | None, upper: float | None) -> bool:
    """Return whether *value* is beyond one of the bounds; ``None`` is no bound."""
    return (lower is not None and value < lower) or (upper is not None and value > upper)
