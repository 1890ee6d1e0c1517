# SPDX-License-Identifier: Apache-2.0
"""Rules of the gates for run documents and verdicts, independent of Robot Framework."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.measurements import declaration
from calibration.preflight.checks import MOMENTARY, REQUIRED, refusal
from calibration.preflight.configuration import difference
from calibration.results.health import WORDS
from calibration.results.model import Measurement, RunDocument, of_the_run


class Result(NamedTuple):
    """One checked item and its message; ``undecided`` if there is not enough data, ``noted`` if it decides nothing."""

    outcome: Literal["passed", "failed", "undecided", "noted"]
    text: str


def check_promises(document: RunDocument) -> Iterator[Result]:
    """Yield which expectations of the inventory were met before each start of the run.

    An expectation that could not be checked is not met; one that the SUT cannot have is noted. What the harness needs
    of any SUT, and what else is on it at the moment, are no promises: they decide nothing. A refused start measured
    nothing: it counts only if no other start did.
    """
    begun = [
        attempt for attempt in document.attempts if attempt.capture is not None and refusal(attempt.checks) is None
    ]
    for attempt in begun or document.attempts:
        for check in attempt.checks:
            if check.outcome == "impossible":
                yield Result("noted", f"{difference(check)}: it cannot exist here")
            elif not check.failed:
                yield Result("passed", difference(check))
            else:
                is_promise = check.name not in REQUIRED and check.name not in MOMENTARY
                yield Result("failed" if is_promise else "undecided", difference(check))


def check_settings_restored(document: RunDocument) -> Iterator[Result]:
    """Yield which settings of the SUT are the same after the run as before."""
    left = [flag.reason for flag in document.flags if flag.code == "NOT_RESTORED"]
    if not left and not any(attempt.changes for attempt in document.attempts):
        yield Result("passed", "the run changed no setting of the SUT")
    for attempt in document.attempts:
        for change in attempt.changes:
            if change.is_restored:
                text = f"{change.setting} of {change.where}: {change.before} before the run and after it"
                yield Result("passed", text)
    for reason in left:
        yield Result("failed", reason)


def check_errors(document: RunDocument) -> Iterator[Result]:
    """Yield the errors of memory and PCIe links during the run; undecided if none are counted, or a count was lost."""
    healths = [attempt.health for attempt in document.attempts if attempt.health is not None]
    counters = [counted for health in healths for counted in health.counters if counted.kind in WORDS]
    errors = [flag for flag in document.flags if flag.code in {"ERRORS_CORRECTED", "ERRORS_UNCORRECTED"}]
    for error in errors:
        yield Result("failed", error.reason)
    read = sum(counted.read for counted in counters)
    if errors:
        return
    if any(counted.unknown for counted in counters):
        yield Result("undecided", "a counter of errors was reset or disappeared during the run")
    elif not read:
        yield Result("undecided", "the SUT counts no errors of memory and PCIe links")
    else:
        yield Result("passed", f"no errors in {read} counters of memory and PCIe links")


def check_completeness(document: RunDocument) -> Iterator[Result]:
    """Yield whether everything planned has a valid metric."""
    status = document.run.status
    lost = [omitted for omitted in of_the_run(document.not_measured) if omitted.cause != "not_planned"]
    for missing in lost:
        yield Result("failed", f"{missing.what}: not measured: {missing.reason}")
    if status != "complete" and not lost:
        yield Result("failed", f"the run is {status}")
    for measurement in document.measurements:
        reasons = "; ".join(flag.reason for flag in measurement.validity.flags if flag.severity == "invalid")
        if measurement.validity.valid:
            yield Result("passed", f"{measurement.title}: measured and valid")
        else:
            yield Result("failed", f"{measurement.title}: invalid: {reasons}")


OUTCOMES: Final[dict[str, Literal["passed", "failed", "undecided"]]] = {
    "pass": "passed",
    "noted": "passed",
    "fail": "failed",
    "no_reference": "undecided",
}
"""The gate's result for each outcome of a verdict."""


def check_verdicts(verdicts: Iterable[NightVerdict]) -> Iterator[Result]:
    """Yield *verdicts* as results."""
    for verdict in verdicts:
        words = ("others have", "this one") if verdict.check == "homogeneity" else ("was", "is")
        changes = "; ".join(_change(change, *words) for change in verdict.context_changes)
        text = f"{verdict.metric}: {verdict.reason}"
        yield Result(OUTCOMES[verdict.outcome], f"{text}. In the context: {changes}" if changes else text)


def _change(change: ContextChange, before: str, after: str) -> str:
    return f"{change.fact}: {before} {change.before or 'unknown'}, {after} {change.after or 'unknown'}"


def check_limits(measurements: Iterable[Measurement], verdicts: Iterable[NightVerdict]) -> Iterator[Result]:
    """Yield the *verdicts* on all metrics of *measurements*; a metric without a verdict is undecided."""
    by_metric = {verdict.metric: verdict for verdict in verdicts}
    for measurement in measurements:
        for metric in declaration(measurement.kind).metrics(measurement.values):
            if metric.name in by_metric:
                yield from check_verdicts([by_metric[metric.name]])
            else:
                yield Result("undecided", f"{metric.name}: no verdict")
