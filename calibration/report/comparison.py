# SPDX-License-Identifier: Apache-2.0
"""A comparison of two documents as reStructuredText: what differs most first, the rest summarized."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from calibration.base.grouping import grouped
from calibration.judge.comparison import OUTCOMES, ComparedRuns, Comparison, Outcome, times
from calibration.measurements import registry
from calibration.report.blocks import Blocks
from calibration.report.environment import blocks_of

MAX_FAMILY: Final = 3
"""More metrics than this with the same outcome that differ only in a number share one line."""

LISTED_OUTCOMES: Final[tuple[Outcome, ...]] = ("differs", "indicative", "undecided")
"""Outcomes listed metric by metric; the others are counted by kind."""


def comparison_page(compared: ComparedRuns) -> Blocks:
    """Return *compared* as a page."""
    by_outcome = grouped((metric.outcome, metric) for metric in compared.figures)
    return blocks_of(
        "comparison",
        compared=compared,
        words=OUTCOMES,
        listed={outcome: list(_lines(by_outcome[outcome])) for outcome in LISTED_OUTCOMES if outcome in by_outcome},
        rest={outcome: _kinds(those) for outcome, those in by_outcome.items() if outcome not in LISTED_OUTCOMES},
    )


def _lines(metrics: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    """Yield *metrics* one by one with both sides, or as one line if many differ only in a number."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for metric in metrics:
        groups.setdefault((_numberless(metric.name), str(metric.better), _numberless(metric.reason)), []).append(metric)
    for group in groups.values():
        for those in [group] if len(group) > MAX_FAMILY else [[item] for item in group]:
            first, one = those[0], len(those) == 1
            ratios = sorted(item.ratio for item in those if item.ratio is not None)
            yield {
                "title": first.title if one else f"{_numberless(first.title)} ({len(those)} metrics)",
                "ratio": " to ".join(dict.fromkeys(times(ratio) for ratio in (*ratios[:1], *ratios[-1:]))),
                "first": first.first if one else None,
                "second": first.second if one else None,
                "reason": first.reason if first.better is None else f"{first.better} better",
            }


def _numberless(text: str) -> str:
    return re.sub(r"[-+]?\d+(?:\.\d+)?", "…", text)


def _kinds(metrics: Sequence[Comparison]) -> Counter[str]:
    """Return the number of *metrics* by kind."""
    some = [metric.first or metric.second for metric in metrics]
    return Counter(registry()[item.kind].title if item and item.kind in registry() else "other" for item in some)
