# SPDX-License-Identifier: Apache-2.0
"""A comparison of two documents as a page: headline metrics and machines first, every other metric folded."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from calibration.base.grouping import grouped
from calibration.base.text import some_of
from calibration.charts.base import Chart
from calibration.charts.dumbbells import Dumbbell, Moved, dumbbells
from calibration.judge.causes import place_of
from calibration.judge.comparison import OUTCOMES, ComparedRuns, Comparison, Outcome, times
from calibration.judge.judged import signed_percent
from calibration.judge.words import amount
from calibration.measurements import record_title, registry, row_of
from calibration.report.blocks import Blocks, Charts
from calibration.report.environment import blocks_of
from calibration.report.headlines import MAX_ROWS, row_key
from calibration.report.terminal import print_blocks
from calibration.results.metrics_of_record import QUANTITIES

MAX_FAMILY: Final = 3
"""More metrics than this with the same outcome that differ only in a number share one line."""

LISTED_OUTCOMES: Final[tuple[Outcome, ...]] = ("differs", "indicative", "undecided")
"""Outcomes listed metric by metric; the others are counted by kind."""

MAX_FACTS: Final = 2
"""Facts named that can explain a headline metric; the others are counted."""

SHORT: Final[dict[Outcome, str]] = {"same": "same", "identical": "identical", "undecided": "unknown"}
"""Verdicts that need no reason here: the interval is in the chart."""


def comparison_page(compared: ComparedRuns, curves: Chart | None = None) -> Blocks:
    """Return *compared* as a page, with the *curves* of both runs."""
    headlines = headline_metrics(compared)
    rest = grouped((metric.outcome, metric) for metric in compared.figures if metric not in headlines)
    drawn = [bell for metric in headlines if (bell := _dumbbell(metric)) is not None]
    return blocks_of(
        "comparison",
        compared=compared,
        words=OUTCOMES,
        drawn=[dumbbells("headline metrics", drawn)] if drawn else [],
        curves=[] if curves is None else [curves],
        headlines=[_headline(compared, metric) for metric in headlines],
        listed={outcome: list(_lines(rest[outcome])) for outcome in LISTED_OUTCOMES if outcome in rest},
        rest={outcome: _kinds(those) for outcome, those in rest.items() if outcome not in LISTED_OUTCOMES},
    )


def print_comparison(compared: ComparedRuns, stream: IO[str], *, everything: bool = False) -> None:
    """Print *compared* on *stream*, with every metric if *everything*."""
    option = "(other metrics and facts): --all"
    print_blocks(without_charts(comparison_page(compared)), stream, full=everything, option=option)


def without_charts(blocks: Blocks) -> Blocks:
    """Return *blocks* without charts, where these have no files: the tables have what they show."""
    return tuple(block for block in blocks if not isinstance(block, Charts))


def headline_metrics(compared: ComparedRuns) -> list[Comparison]:
    """Return one metric for each row of the headline table: of several places the worst, or that which differs most."""
    rows = grouped((row_key(metric.quantity), metric) for metric in compared.figures if metric.quantity is not None)
    found = {key: _of_row(those) for key, those in rows.items()}
    families: list[str] = list(QUANTITIES)
    order = sorted(found, key=lambda key: (families.index((found[key].quantity or "").partition(".")[0]), key))
    return [found[key] for key in order][:MAX_ROWS]


def _of_row(metrics: Sequence[Comparison]) -> Comparison:
    record = row_of(metrics[0].name).record
    if record is None or not record.worst:
        return min(metrics, key=lambda metric: metric.ratio is None)
    return max(metrics, key=lambda metric: max(side.metric.value for side in (metric.first, metric.second) if side))


def _headline(compared: ComparedRuns, metric: Comparison) -> dict[str, Any]:
    sides = (metric.first, metric.second)
    first, second = ("-" if side is None else amount(side.metric.value, side.metric.unit) for side in sides)
    facts: list[str] = []
    if metric.better is not None:
        places = {
            fact.fact: place for fact in compared.facts if (place := place_of(fact.fact, metric.name)) is not None
        }
        facts = sorted(places, key=places.__getitem__)
    return {
        "title": record_title(metric.name) or metric.title,
        "first": first,
        "second": second,
        "change": "-" if metric.ratio is None else signed_percent(metric.ratio - 1),
        "moved": _moved(metric),
        "verdict": _verdict(metric),
        "facts": some_of(facts, MAX_FACTS),
    }


def _verdict(metric: Comparison) -> str:
    if metric.better is None:
        return SHORT.get(metric.outcome, metric.reason)
    doubt = ", indicative" if metric.outcome == "indicative" else ""
    return f"{metric.better} better{doubt}"


def _moved(metric: Comparison) -> Moved:
    if metric.better is not None:
        return "better" if metric.better == "second" else "worse"
    return "same" if metric.outcome in {"same", "identical"} else "unclear"


def _dumbbell(metric: Comparison) -> Dumbbell | None:
    if metric.ratio is None or metric.first is None or metric.second is None:
        return None
    interval = metric.ratio_interval
    return Dumbbell(
        title=record_title(metric.name) or metric.title,
        change=metric.ratio - 1,
        interval=None if interval is None else (interval[0] - 1, interval[1] - 1),
        tolerance=metric.tolerance.fraction,
        moved=_moved(metric),
        text=signed_percent(metric.ratio - 1),
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
                "count": len(those),
                "reason": first.reason if first.better is None else f"{first.better} better",
            }


def _numberless(text: str) -> str:
    return re.sub(r"[-+]?\d+(?:\.\d+)?", "…", text)


def _kinds(metrics: Sequence[Comparison]) -> Counter[str]:
    """Return the number of *metrics* by kind."""
    some = [metric.first or metric.second for metric in metrics]
    return Counter(registry()[item.kind].title if item and item.kind in registry() else "other" for item in some)
