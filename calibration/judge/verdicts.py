# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a night: what one check says of one metric of one SUT."""

from datetime import date
from typing import Literal

from calibration.model import Model

Check = Literal["limits", "drift", "spread", "bimodal", "homogeneity", "consistency", "missing", "unreadable"]
"""``limits``: within the bounds that were accepted or set. ``drift``: the level is what it was. ``spread``: so is how
much it differs from night to night. ``bimodal``: it has one level, and does not flip between two. ``homogeneity``: it
is what the testbed's other SUTs of the kind have. ``consistency``: it does not contradict another figure of the run, as
the run document says. ``missing``: there is a valid figure of tonight. ``unreadable``: a file of the results cannot be
read, a run document of any night or what was accepted or waived; this only fails."""

Outcome = Literal["pass", "fail", "noted", "no_reference"]
"""``noted``: changed, by less than matters or for the better. ``no_reference``: there is nothing to judge by, or too
little to tell; that is no pass."""


class ContextChange(Model):
    """One fact of the machine that is another than it was: ``night`` is the first with the new one.

    Beside a verdict on homogeneity ``before`` is what the testbed's other SUTs have and ``after`` what this one has.
    ``None`` if it was not known.
    """

    fact: str
    before: str | None
    after: str | None
    night: date


class Waived(Model):
    """The waiver that a failure is excused by: who said so, why, and until which night, that night included."""

    reason: str
    by: str
    until: date


class NightVerdict(Model):
    """What *check* says of *metric* on *night*.

    ``value`` is tonight's figure in ``unit``, for the checks ``drift`` and ``homogeneity`` the level now and for
    ``spread`` the relative standard deviation now; ``None`` if there is none. ``bound`` is the range it should be
    within, an end ``None`` if it is open. ``interval`` is that of the value or, where a change was found, of its
    size relative to what was before (0.1 is 10 % more). ``since`` is the first night of what is wrong. ``run_id`` is
    ``None`` if the SUT has no run tonight; of the check ``missing``, ``metric`` is ``run`` if it is about the
    whole run: there is none, it has no figure, or it lacks what was never measured before. Of the check ``unreadable``
    it is the file, relative to the results. A failure that is waived has the outcome ``pass`` and says so in ``waiver``
    and ``reason``.
    """

    testbed: str
    sut: str
    run_id: str | None
    night: date
    metric: str
    check: Check
    outcome: Outcome
    value: float | None = None
    unit: str | None = None
    bound: tuple[float | None, float | None] | None = None
    interval: tuple[float, float] | None = None
    since: date | None = None
    context_changes: tuple[ContextChange, ...] = ()
    reason: str
    waiver: Waived | None = None


def unreadable(sut: tuple[str, str], file: str, reason: str, night: date, run_id: str | None) -> NightVerdict:
    """Return the failure of *sut* that *file* cannot be read; *run_id* is its run tonight."""
    return failed(sut, file, "unreadable", f"cannot read {file}: {reason}", night=night, run_id=run_id)


def failed(
    sut: tuple[str, str], metric: str, check: Check, reason: str, *, night: date, run_id: str | None
) -> NightVerdict:
    """Return a failure of *sut* that is about no figure."""
    return NightVerdict(
        testbed=sut[0],
        sut=sut[1],
        run_id=run_id,
        night=night,
        metric=metric,
        check=check,
        outcome="fail",
        reason=reason,
    )
