# SPDX-License-Identifier: Apache-2.0
"""The result of comparing one setting of a SUT with what is expected."""

from typing import Literal, NamedTuple

Outcome = Literal["met", "not_met", "impossible", "unknown"]
"""``impossible``: this machine cannot have the setting. ``unknown``: what it has could not be read."""

UNKNOWN = "unknown"


class Finding(NamedTuple):
    """The result of a check, before its declaration is looked up; ``name`` is the check's, with what it is of."""

    name: str
    expected: str
    found: str
    outcome: Outcome


def outcome_of(met: bool) -> Outcome:
    """Return the outcome of a decided check."""
    return "met" if met else "not_met"
