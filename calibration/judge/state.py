# SPDX-License-Identifier: Apache-2.0
"""State of a SUT on a night: all its verdicts in one word."""

from collections.abc import Sequence
from typing import Literal

from calibration.judge.completeness import RUN
from calibration.judge.verdicts import NightVerdict

State = Literal["fails", "unmeasured", "no_reference", "good", "gone"]
"""State of a SUT, most urgent first."""


def state_of(verdicts: Sequence[NightVerdict]) -> State:
    """Return the state of the SUT with these *verdicts* of one night; without any it is gone."""
    limits = [verdict for verdict in verdicts if verdict.check == "limits"]
    failed = [verdict for verdict in verdicts if verdict.outcome == "fail"]
    if failed:
        absent = any(verdict.metric == RUN for verdict in failed) and all(limit.value is None for limit in limits)
        return "unmeasured" if absent else "fails"
    if all(verdict.check == "unreadable" for verdict in verdicts):
        return "gone"
    return "good" if any(limit.outcome == "pass" for limit in limits) else "no_reference"
