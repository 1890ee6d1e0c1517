# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a night: the result of one check of one metric of one SUT."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from inspect import cleandoc
from typing import Final, Literal, get_args

from pydantic import ConfigDict

from calibration.base.model import Model
from calibration.base.units import plural
from calibration.judge.words import changed_fact

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
"""The checks, those about a whole run first, then the most informative of a metric."""

CHECKS: Final[tuple[Check, ...]] = get_args(Check)

PASSES_IF: Final[Mapping[Check, str]] = {
    "unreadable": "never: the verdict exists only if a file of the results cannot be read",
    "restored": "the settings of the SUT are as before the run (docs/guide/changes.rst)",
    "inventory": "the SUT met what its inventory expects (docs/guide/preflight.rst, docs/guide/audit.rst)",
    "errors": "no errors of memory or PCIe links were counted during the run",
    "complete": "everything planned was measured and is valid",
    "missing": "every metric of the last 30 nights exists and is valid; the metric is C(run) if there is no run",
    "limits": "the metric is within its baseline, and within the limits of the inventory and of acceptance files",
    "drift": "the level over the nights is unchanged or accepted (docs/method/drift.rst)",
    "homogeneity": "the level equals that of the testbed's other SUTs with the same processor "
    "(docs/method/homogeneity.rst)",
    "consistency": "the metric does not contradict another of its run (docs/method/consistency.rst)",
    "spread": "run-to-run variance is unchanged or accepted",
    "bimodal": "the metric does not flip between two levels from night to night, or that is accepted",
}
"""Checks of the guide. ``unreadable`` is of a run document of any night, a baseline or the waivers."""

Outcome = Literal["pass", "fail", "noted", "no_reference"]
"""``noted``: changed, but within the tolerance or for the better, or only beyond a soft limit. ``no_reference``: there
is no baseline or too little data; not a pass."""


class ContextChange(Model):
    """A fact of the machine that changed: ``night`` is the first with the new value.

    With a homogeneity verdict, ``before`` is the value of the testbed's other SUTs and ``after`` that of this one.
    ``None`` if unknown.
    """

    fact: str
    before: str | None
    after: str | None
    night: date

    @property
    def text(self) -> str:
        """The fact and its difference."""
        return f"{self.fact} {changed_fact(self.before, self.after)}"


def changes_text(changes: Sequence[ContextChange], most: int) -> str:
    """Return *changes* in a line, at most *most* of them, and the number of the others."""
    more = [plural(len(changes) - most, "more fact")] if len(changes) > most else []
    return "; ".join([*(item.text for item in changes[:most]), *more]) or "no configuration change"


class Waived(Model):
    """The waiver that excuses a failure: who granted it, why, and the last night it covers."""

    reason: str
    by: str
    until: date


@dataclass(frozen=True, slots=True, kw_only=True)
class NightVerdict:
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

    __pydantic_config__ = ConfigDict(
        **Model.model_config, json_schema_extra={"description": cleandoc(__doc__ or "")}
    )  # as a Model; of hundreds of thousands each would take a kilobyte more

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
