# SPDX-License-Identifier: Apache-2.0
"""What was expected of a SUT before it was measured, and what was found."""

from collections.abc import Iterable, Iterator
from typing import Literal

from calibration.model import Model
from calibration.validity import Flag, flag


class Check(Model):
    """One expectation of a SUT and what was found there.

    ``unknown`` is the outcome where the SUT does not say. An expectation that is ``blocking`` and not met keeps the SUT
    from being measured; one with the effect ``flag`` marks every measurement.
    """

    name: str
    title: str
    expected: str
    found: str
    outcome: Literal["met", "not_met", "unknown"]
    effect: Literal["blocking", "flag"]

    @property
    def failed(self) -> bool:
        """Whether the SUT is not shown to be as expected: what could not be established is no pass."""
        return self.outcome != "met"


def refusal(checks: Iterable[Check]) -> str | None:
    """Return why the SUT must not be measured: every blocking check that is not met; None where all are."""
    reasons = [
        f"{each.title}: expected {each.expected}, found {each.found}."
        for each in checks
        if each.failed and each.effect == "blocking"
    ]
    return " ".join(reasons) or None


def flags(checks: Iterable[Check]) -> Iterator[Flag]:
    """Yield a validity flag for each check that is not met and was declared to be one."""
    for each in checks:
        if each.failed and each.effect == "flag":
            yield flag("NOT_AS_EXPECTED", f"{each.title}: expected {each.expected}, found {each.found}")
