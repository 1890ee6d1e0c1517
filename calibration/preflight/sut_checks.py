# SPDX-License-Identifier: Apache-2.0
"""The checks that need only the SUT's first answer."""

from collections.abc import Iterator

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.base.model import Model
from calibration.preflight.checks import Check, checks_of
from calibration.preflight.expectations import Expectations
from calibration.preflight.facts import Facts


class Requirements(Model):
    """What every SUT must have, whatever the inventory expects."""

    python_minimum: str
    architectures: tuple[str, ...]
    remote_free_bytes: int


DAY_S = 86400.0
"""Offset of a clock that is wrong by itself: no night is dated by it."""


class RoundTrip(Model):
    """The controller's clock in s since the epoch, before the request and after the answer."""

    asked_s: float
    answered_s: float


def first_checks(
    facts: Facts, requirements: Requirements, expectations: Expectations, trip: RoundTrip
) -> tuple[Check, ...]:
    """Return the checks that need only *facts*."""
    findings = (*_required(facts, requirements), *_directory_safe(facts), *_times(facts, trip, expectations))
    return tuple(checks_of(findings, expectations.severity))


def without_python(output: str, minimum: str) -> Check:
    """Return the failed check of a SUT whose Python did not answer; *output* is what it printed."""
    finding = Finding("python", f"{minimum} or newer", f"no answer: {output.strip()}", "not_met")
    return next(checks_of([finding], {}))


def _required(facts: Facts, wanted: Requirements) -> Iterator[Finding]:
    base = facts.remote_base

    def finding(name: str, expected: str, found: str, *, met: bool) -> Finding:
        return Finding(name, expected, found, outcome_of(met))

    new_enough = version(facts.python_version) >= version(wanted.python_minimum)
    yield finding("python", f"{wanted.python_minimum} or newer", facts.python_version, met=new_enough)
    yield finding("system", "Linux", facts.system, met=facts.system == "Linux")
    supported = facts.machine in wanted.architectures
    yield finding("architecture", f"one of {', '.join(wanted.architectures)}", facts.machine, met=supported)
    usable = base.directory and base.writable
    state = "not writable" if base.directory else "not a directory" if base.exists else "nothing"
    yield finding(
        "remote_base",
        f"a directory at {base.path} that user id {facts.uid} can write",
        "as expected" if usable else state,
        met=usable,
    )
    if not usable:
        return
    yield finding(
        "programs",
        f"no noexec on the file system of {base.path}",
        "mounted with noexec" if base.noexec else "as expected",
        met=not base.noexec,
    )
    yield finding(
        "space",
        f"at least {wanted.remote_free_bytes} bytes free at {base.path}",
        UNKNOWN if base.free_bytes is None else str(base.free_bytes),
        met=(base.free_bytes or 0) >= wanted.remote_free_bytes,
    )
    yield finding(
        "alone",
        f"no other calibration below {base.path}",
        ", ".join(f"{other.path} as process {other.pid}" for other in facts.running) or "none",
        met=not facts.running,
    )


def version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparison: 3.11.2rc1 is (3, 11, 2)."""
    numbers = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _directory_safe(facts: Facts) -> Iterator[Finding]:
    unsafe = facts.remote_base.unsafe
    if facts.remote_base.exists:
        yield Finding(
            "directory_safe",
            f"only root and user id {facts.uid} can replace {facts.remote_base.path} and its contents",
            "; ".join(f"{place.path}: {place.reason}" for place in unsafe) or "as expected",
            outcome_of(not unsafe),
        )


def _times(facts: Facts, trip: RoundTrip, expectations: Expectations) -> Iterator[Finding]:
    """Yield the checks of the SUT's clock.

    The SUT read its clock between request and answer, so its offset lies between two bounds. The check fails only if
    both exceed the limit: a slow connection is not a wrong clock.
    """
    ahead = facts.time.began_s - trip.asked_s
    behind = facts.time.ended_s - trip.answered_s
    limit_s = expectations.time_offset_max_s
    expected = f"within {limit_s:g} s of the controller's clock"
    if behind > ahead:
        yield Finding("time", expected, "set during the check", "unknown")
    else:
        nearest = 0.0 if behind <= 0 <= ahead else min(abs(ahead), abs(behind))
        middle, half = (ahead + behind) / 2, (ahead - behind) / 2
        where = "ahead of" if middle > 0 else "behind"
        found = f"{abs(middle):.3f} s {where} the controller's, ± {half:.3f} s"
        yield Finding("time", expected, found, outcome_of(round(nearest, 3) <= limit_s))
        yield Finding("date", "within a day of the controller's", found, outcome_of(nearest <= DAY_S))
    synchronised = facts.time.synchronised
    error_s = facts.time.maximum_error_s
    bound = "" if error_s is None else f", error at most {error_s:.3f} s"
    yield Finding(
        "time_synchronised",
        "synchronised according to the kernel (adjtimex)",
        facts.time.reason or UNKNOWN
        if synchronised is None
        else f"synchronised{bound}"
        if synchronised
        else "not synchronised",
        "unknown" if synchronised is None else outcome_of(synchronised),
    )
