# SPDX-License-Identifier: Apache-2.0
"""Judgement of a run: valid first, then complete, then within bounds."""

from collections.abc import Iterable, Iterator, Sequence

from calibration.measurements.base import Metric
from calibration.results.model import Limit, Measurement, RunDocument, Verdict


def judge_run(document: RunDocument, limits: Sequence[Limit] = ()) -> RunDocument:
    """Return *document* with its verdicts: every metric against its limit, if *limits* has one."""
    return document.model_copy(update={"verdicts": tuple(verdicts_of(document.measurements, limits))})


def verdicts_of(measurements: Iterable[Measurement], limits: Sequence[Limit] = ()) -> Iterator[Verdict]:
    """Yield one verdict per metric, and a failure per limit whose metric was not measured.

    Invalid metrics are not compared. A valid metric without a limit or a baseline is reported as such; that is not a
    pass.
    """
    bounds = {limit.metric: limit for limit in limits}
    for measurement in measurements:
        invalid = [flag.reason for flag in measurement.validity.flags if flag.severity == "invalid"]
        for metric in measurement.metrics():
            yield _verdict(measurement.id, metric, bounds.pop(metric.name, None), "; ".join(invalid))
    for limit in bounds.values():
        yield Verdict(
            name=limit.metric,
            measurement=None,
            metric=None,
            lower=limit.lower,
            upper=limit.upper,
            outcome="fail",
            reason=f"not measured, expected {_bounds(limit)} ({limit.reason})",
        )


def _verdict(measurement: str, metric: Metric, limit: Limit | None, invalid: str) -> Verdict:
    verdict = Verdict(
        name=metric.name,
        measurement=measurement,
        metric=metric,
        lower=limit.lower if limit else None,
        upper=limit.upper if limit else None,
        outcome="no_reference",
        reason="no reference has been accepted for this SUT",
    )
    if invalid:
        return verdict.model_copy(update={"outcome": "invalid", "reason": invalid})
    if limit is None:
        return verdict
    found = f"{_digits(metric.value, limit)} {metric.unit}"
    reason = f"expected {_bounds(limit)}, found {found} ({limit.reason})"
    if metric.unit != limit.unit or _outside(metric.value, limit):
        return verdict.model_copy(update={"outcome": "fail", "reason": reason})
    if metric.interval is not None and any(_outside(end, limit) for end in metric.interval):
        low, high = metric.interval
        reason += f"; the interval, {_digits(low, limit)} to {_digits(high, limit)}, reaches beyond"
    return verdict.model_copy(update={"outcome": "pass", "reason": reason})


def _digits(value: float, limit: Limit) -> str:
    """Return *value* with as many digits as show on which side of the bounds it is."""
    text = f"{value:g}"
    whole = float(text) in (limit.lower, limit.upper) or _outside(float(text), limit) != _outside(value, limit)
    return repr(value) if whole else text


def _outside(value: float, limit: Limit) -> bool:
    below = limit.lower is not None and value < limit.lower
    return below or (limit.upper is not None and value > limit.upper)


def _bounds(limit: Limit) -> str:
    """Return the bounds as text."""
    if limit.lower is None:
        return f"at most {limit.upper:.15g} {limit.unit}"
    if limit.upper is None:
        return f"at least {limit.lower:.15g} {limit.unit}"
    return f"{limit.lower:.15g} to {limit.upper:.15g} {limit.unit}"
