# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a comparison: largest ratios first, on one screen."""

import re
from collections.abc import Sequence
from typing import IO, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from calibration.base.console import console as console_on
from calibration.base.grouping import grouped
from calibration.base.text import visible
from calibration.judge.comparison import OUTCOMES, ComparedRuns, Comparison, times
from calibration.judge.words import amount, changed_fact

MAX_METRICS: Final = 12
"""Lines for metrics that differ, and the same number for those that do indicatively."""

MAX_FACTS: Final = 6
"""Lines for facts that differ between two machines."""

MIN_TITLE: Final = 20
"""Minimum width of a metric's name, even on a narrow terminal."""

MAX_LIKE: Final = 3
"""More metrics than this that differ only in a number share one line."""


def print_comparison(compared: ComparedRuns, stream: IO[str], *, everything: bool = False) -> None:
    """Print *compared* on *stream*: the largest ratios on one screen, or with *everything* every metric."""
    console = console_on(stream)
    console.print(Text(visible(f"{compared.first}  ->  {compared.second}")), no_wrap=True, overflow="ellipsis")
    console.print(Text(visible(compared.summary), style="bold"))
    by_outcome = grouped((comparison.outcome, comparison) for comparison in compared.figures)
    rest = []
    for outcome, comparisons in by_outcome.items():
        if not everything and outcome not in {"differs", "indicative"}:
            rest.append(f"{len(comparisons)} {OUTCOMES[outcome]}")
            continue
        console.print()
        console.print(Text(OUTCOMES[outcome].capitalize(), style="bold"))
        _print_metrics(console, comparisons, everything=everything)
    if rest:
        console.print()
        more = "; --all lists them" if len(by_outcome) > 1 or "identical" not in by_outcome else ""
        console.print(Text(f"{', '.join(rest).capitalize()}{more}"))
    _print_facts(console, compared, everything=everything)


def _print_metrics(console: Console, comparisons: Sequence[Comparison], *, everything: bool) -> None:
    families: dict[tuple[str, str | None], list[Comparison]] = {}
    for comparison in comparisons:
        families.setdefault((re.sub(r"\d+", "#", comparison.title), comparison.better), []).append(comparison)
    groups = [
        group
        for (title, _), of in families.items()
        for group in ([(title, of)] if len(of) > MAX_LIKE and not everything else [(item.title, [item]) for item in of])
    ]
    groups.sort(key=lambda group: comparisons.index(group[1][0]))
    shown = [_row(title, of) for title, of in (groups if everything else groups[:MAX_METRICS])]
    widths = [max(len(row[place]) for row in shown) for place in range(3)]
    widths[0] = max(MIN_TITLE, min(widths[0], console.width - 2 - sum(widths[1:]) - 2 * 3 - len("second better")))
    for title, *numbers, verdict in shown:
        line = Text(visible(title))
        line.truncate(widths[0], overflow="ellipsis", pad=True)
        for number, width in zip(numbers, widths[1:], strict=True):
            line.append(f"  {number:>{width}}" if width else "")
        line.append(f"  {visible(verdict)}", style="dim")
        console.print(Padding(line, (0, 0, 0, 2)))
    if len(groups) > len(shown):
        console.print(Text(f"  and {len(groups) - len(shown)} more"))


def _row(title: str, of: Sequence[Comparison]) -> tuple[str, str, str, str]:
    """Return name, ratio, values and verdict of metrics that share one line."""
    first = of[0]
    verdict = f"{first.better} better" if first.better is not None else "" if first.ratio is None else first.reason
    ratios = sorted(item.ratio for item in of if item.ratio is not None)
    if len(of) > 1:
        return f"{title} ({len(of)})", f"{times(ratios[0])} to {times(ratios[-1])}" if ratios else "", "", verdict
    sides = (first.first, first.second)
    values = ["-" if side is None else amount(side.metric.value, side.metric.unit) for side in sides]
    return title, times(ratios[0]) if ratios else "", " -> ".join(values), verdict


def _print_facts(console: Console, compared: ComparedRuns, *, everything: bool) -> None:
    lines = [
        f"{fact.fact}: {changed_fact(fact.first, fact.second)}" + (f"  (explains {fact.moves})" if fact.moves else "")
        for fact in compared.facts
    ] or list(compared.context)
    if not lines:
        return
    console.print()
    console.print(Text("Machines differ in", style="bold"))
    for line in lines if everything else lines[:MAX_FACTS]:
        text = Text(f"  {visible(line)}")
        console.print(text, no_wrap=not everything, overflow="ellipsis")
    if len(lines) > MAX_FACTS and not everything:
        console.print(Text(f"  and {len(lines) - MAX_FACTS} more facts"))
