# SPDX-License-Identifier: Apache-2.0
"""Checks of a run document on its own: whether the SUT was as expected, was restored, had no errors, and is complete.

They need neither a baseline nor other nights. A night's judgement, its gates and the quick gate use the same.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from calibration.base.grouping import grouped
from calibration.preflight.checks import MOMENTARY, REQUIRED, refusal
from calibration.preflight.configuration import difference
from calibration.results.health import WORDS
from calibration.results.history import RunCheck, RunCheckName
from calibration.results.model import JudgedDocument, RunDocument, of_the_run

Judged = RunDocument | JudgedDocument
"""A run document, or what is judged of it."""


class Result(NamedTuple):
    """One checked item and its message; ``undecided`` if there is not enough data, ``noted`` if it decides nothing."""

    outcome: Literal["passed", "failed", "undecided", "noted"]
    text: str


def check_inventory(document: Judged) -> Iterator[Result]:
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


def check_settings_restored(document: Judged) -> Iterator[Result]:
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


def check_errors(document: Judged) -> Iterator[Result]:
    """Yield the errors of memory and PCIe links during the run, and of a burn-in.

    Undecided if none are counted, or a count was lost.
    """
    healths = [attempt.health for attempt in document.attempts if attempt.health is not None]
    counters = [counted for health in healths for counted in health.counters if counted.kind in WORDS]
    codes = {"ERRORS_CORRECTED", "ERRORS_UNCORRECTED", "DATA_WRONG", "PROBE_KILLED"}
    errors = [flag for flag in document.flags if flag.code in codes]
    for error in errors:
        yield Result("failed", error.reason)
    read = sum(counted.read for counted in counters)
    if errors:
        return
    if any(counted.unknown for counted in counters):
        yield Result("undecided", "a counter of errors was reset or disappeared during the run")
    elif not read:
        yield Result("undecided", "the SUT does not count memory or PCIe link errors")
    else:
        yield Result("passed", f"no errors in {read} counters of memory and PCIe links")


def check_completeness(document: Judged) -> Iterator[Result]:
    """Yield whether everything planned has a valid metric; of a run that did not begin only why it did not."""
    if document.run.status == "not_begun":
        reason = document.attempts[-1].ended if document.attempts else None
        yield Result("failed", (reason or "the run did not begin").removesuffix("."))
        return
    if document.run.status != "complete":
        yield Result("failed", _progress(document))
    for missing in of_the_run(document.not_measured):
        if missing.cause != "not_planned":
            yield Result("failed", f"{missing.what}: not measured: {missing.reason}")
    for measurement in document.measurements:
        reasons = "; ".join(flag.reason for flag in measurement.validity.flags if flag.severity == "invalid")
        if measurement.validity.valid:
            yield Result("passed", f"{measurement.title}: measured and valid")
        else:
            yield Result("failed", f"{measurement.title}: invalid: {reasons}")


def _progress(document: Judged) -> str:
    """Return how far a run came that began and is not complete."""
    done = {measurement.step: len(measurement.rounds) for measurement in document.measurements}
    steps = [step for step in document.plan.steps if not step.part_of] if document.plan else []
    text = f"run {document.run.status}, {len(done)} of {len(steps)} steps measured"
    repeated = [step for step in steps if step.rounds > 1]
    if repeated:
        complete = min(min(done.get(step.id, 0), step.rounds) for step in repeated)
        text += f", {complete} of {max(step.rounds for step in repeated)} rounds complete"
    return text


RUN_CHECKS: Final[dict[RunCheckName, Callable[[Judged], Iterator[Result]]]] = {
    "inventory": check_inventory,
    "restored": check_settings_restored,
    "errors": check_errors,
    "complete": check_completeness,
}
"""The checks by name."""


def run_checks(document: Judged) -> Iterator[RunCheck]:
    """Yield the outcome of each check of *document*, with what failed or cannot be decided, or how much passed."""
    for name, check in RUN_CHECKS.items():
        texts = grouped((result.outcome, result.text) for result in check(document))
        if failed := texts.get("failed"):
            yield RunCheck(name, "fail", tuple(failed))
        elif undecided := texts.get("undecided"):
            yield RunCheck(name, "no_reference", tuple(undecided))
        elif passed := texts.get("passed"):
            yield RunCheck(name, "pass", (passed[0] if len(passed) == 1 else f"{len(passed)} of {len(passed)} pass",))
        else:
            yield RunCheck(name, "no_reference", tuple(texts.get("noted", ())) or ("nothing to check",))
