# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a night: the result of one check of one metric of one SUT."""

from datetime import date
from typing import Final, Literal, get_args

from calibration.base.model import Model

Check = Literal[
    "unreadable",
    "restored",
    "inventory",
    "errors",
    "complete",
    "missing",
    "limits",
    "drift",
    "homogeneity",
    "consistency",
    "spread",
    "bimodal",
]
"""The checks, those about a whole run first, then the most informative of a metric.

``unreadable``: a file of the results cannot be read (a run document of any night, a baseline or the waivers); this
check only fails. Of the run on its own (``calibration.results.run_checks``): ``restored``, the settings of the SUT are
as before it; ``inventory``, the SUT met what the inventory expects of it; ``errors``, it counted no errors of memory or
links; ``complete``, everything planned was measured and is valid. ``missing``: tonight has a valid value.
``limits``: within the accepted bounds or the limits set. ``drift``: the level is unchanged. ``homogeneity``: it agrees
with the SUTs of the same kind in the testbed. ``consistency``: it does not contradict another metric of the run.
``spread``: the night-to-night variation is unchanged. ``bimodal``: there is one level, without flips between two."""

CHECKS: Final[tuple[Check, ...]] = get_args(Check)

Outcome = Literal["pass", "fail", "noted", "no_reference"]
"""``noted``: changed, but within the tolerance or for the better. ``no_reference``: there is no baseline or too little
data; not a pass."""


class ContextChange(Model):
    """A fact of the machine that changed: ``night`` is the first with the new value.

    With a homogeneity verdict, ``before`` is the value of the testbed's other SUTs and ``after`` that of this one.
    ``None`` if unknown.
    """

    fact: str
    before: str | None
    after: str | None
    night: date


class Waived(Model):
    """The waiver that excuses a failure: who granted it, why, and the last night it covers."""

    reason: str
    by: str
    until: date


class NightVerdict(Model):
    """The result of *check* for *metric* on *night*.

    ``value`` is tonight's value in ``unit``; for the checks ``drift`` and ``homogeneity`` the current level, for
    ``spread`` the current relative standard deviation; ``None`` if there is none. ``bound`` is the expected range, an
    open end is ``None``. ``interval`` is that of the value or, after a change, of its relative size (0.1 is 10 % more).
    ``since`` is the first night of the fault. ``run_id`` is ``None`` if the SUT has no run tonight. For the check
    ``missing``, ``metric`` is ``run`` if it concerns the whole run: there is none, or it has no metric. For the check
    ``unreadable``, ``metric`` is the file, relative to the results; for the checks of a run on its own it is ``run``. A
    waived failure has the outcome ``pass``, with the waiver in ``waiver`` and ``reason``. ``better``: noted because the
    change is for the better.
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
    better: bool = False


RUN: Final = "run"
"""Stands for a metric in verdicts on a whole run."""


def unreadable(sut: tuple[str, str], file: str, reason: str, night: date, run_id: str | None) -> NightVerdict:
    """Return the failure of *sut* for the unreadable *file*; *run_id* is its run tonight."""
    return failed(sut, file, "unreadable", f"cannot read {file}: {reason}", night=night, run_id=run_id)


def failed(
    sut: tuple[str, str], metric: str, check: Check, reason: str, *, night: date, run_id: str | None
) -> NightVerdict:
    """Return a failure of *sut* without a value."""
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
