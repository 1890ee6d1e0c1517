# SPDX-License-Identifier: Apache-2.0
"""Failures of one SUT grouped into probable events: same check, about the same night."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from calibration.base.grouping import grouped
from calibration.judge.verdicts import Check, NightVerdict

CHECK_ORDER: Final[tuple[Check, ...]] = (
    "unreadable",
    "restored",
    "drift",
    "spread",
    "bimodal",
    "limits",
    "homogeneity",
    "consistency",
    "missing",
)
"""Checks, the most informative first: a drift has a date, a size and the facts that changed."""

SAME_EVENT: Final = timedelta(days=2)
"""Tolerance of dates within one event: the date of a weak change may be a night off."""


class FailureGroup(NamedTuple):
    """Failures of one check of a SUT that began about the same night; ``worst`` represents them."""

    worst: NightVerdict
    verdicts: tuple[NightVerdict, ...]


def group_failures(failed: Sequence[NightVerdict]) -> list[FailureGroup]:
    """Return the failures of a SUT by event: unreadable files, the run as a whole, then most metrics first.

    With equal numbers of metrics, the more informative check comes first.
    """
    groups: list[list[NightVerdict]] = []
    by_check = grouped(((verdict.check, verdict.metric == "run"), verdict) for verdict in failed)
    for verdicts in by_check.values():
        last: date | None = None
        for verdict in sorted(verdicts, key=_since):
            if last is None or _since(verdict) - last > SAME_EVENT:
                groups.append([])
            last = _since(verdict)
            groups[-1].append(verdict)
    return sorted((FailureGroup(max(group, key=severity), tuple(group)) for group in groups), key=_rank)


def _since(verdict: NightVerdict) -> date:
    return verdict.since or date.max


def _rank(group: FailureGroup) -> tuple[bool, bool, int, int, float]:
    worst = group.worst
    return (
        worst.check != "unreadable",
        worst.metric != "run",
        -len(group.verdicts),
        CHECK_ORDER.index(worst.check),
        -severity(worst),
    )


def severity(verdict: NightVerdict) -> float:
    """Return how far a metric is out of bounds, relative to the bound; 0 if it has none."""
    value, bound = verdict.value, verdict.bound
    if verdict.check in {"drift", "spread"} and verdict.interval is not None:
        return abs(sum(verdict.interval) / 2)
    if value is None or bound is None:
        return 0.0
    return max((abs(value - end) / abs(end) for end in bound if end), default=0.0)
