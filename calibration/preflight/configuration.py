# SPDX-License-Identifier: Apache-2.0
"""The configuration among the checks of a SUT, in words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from calibration.audit.findings import Outcome
from calibration.base.units import plural
from calibration.preflight.checks import Check

WORDS: Final[Mapping[Outcome, str]] = {
    "met": "met",
    "not_met": "not met",
    "unknown": "unknown",
    "impossible": "cannot exist here",
}
"""Outcomes as they are shown, in the order of counts."""

WORST_FIRST = ("not_met", "unknown", "impossible", "met")

MAX_DIFFERENCES = 10
"""Failed checks that are shown of one SUT before it is measured."""


def configuration_of(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the settings of an expected state among *checks*, those that are not met first."""
    found = [check for check in checks if check.configured]
    return tuple(sorted(found, key=lambda check: WORST_FIRST.index(check.outcome)))


def newest_configuration(attempts: Sequence[Iterable[Check]]) -> tuple[Check, ...]:
    """Return the settings as the newest of *attempts* that has any found them, given the checks of each."""
    return next((found for checks in attempts[::-1] if (found := configuration_of(checks))), ())


def configuration_summary(checks: Iterable[Check]) -> str:
    """Return the numbers of settings by outcome: ``20 settings: 19 met, 1 not met``."""
    counts = Counter(check.outcome for check in configuration_of(checks))
    named = [f"{counts[outcome]} {word}" for outcome, word in WORDS.items() if counts[outcome]]
    return f"{plural(sum(counts.values()), 'setting')}: {', '.join(named)}" if named else "no expected state"


def difference(check: Check) -> str:
    """Return a check as one sentence."""
    return f"{check.title}: expected {check.expected}, found {check.found}"


def differences(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the failed checks as sentences, at most ``MAX_DIFFERENCES``, and how many more there are."""
    failed = [check for check in checks if check.failed]
    yield from map(difference, failed[:MAX_DIFFERENCES])
    if len(failed) > MAX_DIFFERENCES:
        yield f"{plural(len(failed) - MAX_DIFFERENCES, 'more check')} not met"
