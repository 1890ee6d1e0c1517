# SPDX-License-Identifier: Apache-2.0
"""Judgement of a run: valid first, then complete, then within bounds."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from calibration.acceptance.limits import KernelKind, Limit, kernel_kind
from calibration.judge.absence import absence
from calibration.judge.limits import Judged, Outcome, bounds, inapplicable, judge_metric, limit_of
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.results.model import Measurement, RunDocument, Verdict

DECISIVE: Final[tuple[Outcome, ...]] = ("fail", "warn", "pass", "unknown")
"""Which of a metric's limits its verdict follows: one that says nothing does not undo what another says."""


def judge_run(document: RunDocument, limits: Sequence[Limit] = ()) -> RunDocument:
    """Return *document* with its verdicts: every metric against its limit in *limits* and in its acceptance files."""
    lists = (limits, *(acceptance.limits for acceptance in document.acceptance))
    kernel = kernel_kind(None if document.context is None else document.context.parsed)
    verdicts = list(verdicts_of(document.measurements, lists, kernel))
    verdicts += _of_absent(document, lists, kernel, [verdict.name for verdict in verdicts])
    verdicts += _of_the_machine(document)
    return document.model_copy(update={"verdicts": tuple(verdicts)})


def _of_absent(
    document: RunDocument, lists: Sequence[Sequence[Limit]], kernel: KernelKind | None, metrics: Sequence[str]
) -> Iterator[Verdict]:
    """Yield a failure for each limit that is for *kernel* and for none of the *metrics* measured."""
    for limit in (limit for limits in lists for limit in limits):
        if not inapplicable(limit, kernel) and not any(map(limit.matches, metrics)):
            yield Verdict(
                name=limit.metric,
                measurement=None,
                metric=None,
                lower=limit.lower,
                upper=limit.upper,
                outcome="fail",
                reason=f"{absence(limit, [document])}; expected {bounds(limit)} ({limit.reason})",
            )


def _of_the_machine(document: RunDocument) -> Iterator[Verdict]:
    """Yield a failure for each flag of the machine with which a kind of the plan fails, measured or not."""
    kinds = () if document.plan is None else dict.fromkeys(step.kind for step in document.plan.steps)
    for kind in kinds:
        for flag in document.flags:
            if flag.code in declaration(kind).fails_with:
                yield Verdict(
                    name=f"{kind}.{flag.code.lower()}",
                    measurement=None,
                    metric=None,
                    lower=None,
                    upper=None,
                    outcome="fail",
                    reason=flag.reason,
                )


def verdicts_of(
    measurements: Iterable[Measurement], lists: Sequence[Sequence[Limit]] = (), kernel: KernelKind | None = None
) -> Iterator[Verdict]:
    """Yield one verdict per metric.

    Of each of the *lists* the first limit applies that is for a metric and for *kernel*. Invalid metrics are not
    compared. A valid metric without a limit or a baseline is reported as such; that is not a pass.
    """
    for measurement in measurements:
        invalid = [flag.reason for flag in measurement.validity.flags if flag.severity == "invalid"]
        for metric in measurement.metrics():
            found = [limit for limits in lists if (limit := limit_of(limits, metric.name, kernel)) is not None]
            observed = declaration(measurement.kind).observation(measurement.values, metric.name) if found else None
            judged = [judge_metric(limit, metric, kernel, observed) for limit in found]
            yield _verdict(measurement.id, metric, judged, "; ".join(invalid))


def _verdict(measurement: str, metric: Metric, judged: Sequence[Judged], invalid: str) -> Verdict:
    telling = [item.limit for item in judged if item.outcome != "unknown"]
    verdict = Verdict(
        name=metric.name,
        measurement=measurement,
        metric=metric,
        lower=max((limit.lower for limit in telling if limit.lower is not None), default=None),
        upper=min((limit.upper for limit in telling if limit.upper is not None), default=None),
        outcome="no_reference",
        reason="no reference has been accepted for this SUT",
    )
    if invalid:
        return verdict.model_copy(update={"outcome": "invalid", "reason": invalid})
    if not judged:
        return verdict
    outcome = min((item.outcome for item in judged), key=DECISIVE.index)
    reason = "; ".join(item.reason for item in judged if item.outcome == outcome)
    return verdict.model_copy(update={"outcome": "no_reference" if outcome == "unknown" else outcome, "reason": reason})
