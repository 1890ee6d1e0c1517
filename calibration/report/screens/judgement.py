# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a judgement: one screen for a lab of any size, worst first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import sqrt
from typing import IO, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from calibration.base.console import console as console_on
from calibration.base.grouping import grouped
from calibration.base.text import some_of, visible
from calibration.base.units import plural
from calibration.judge.completeness import NO_VALUE
from calibration.judge.events import Event
from calibration.judge.failures import FailureGroup, group_failures, severity
from calibration.judge.night import Judgement
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.judge.words import amount, change, changed_fact, within

MAX_LINES: Final = 28
"""Lines for failing SUTs: with the rest they fit a screen of 40 lines."""

MAX_GROUPS: Final = 4
"""Lines for one SUT, even if few others fail."""

MAX_NAMES: Final = 3
"""Waivers, kinds of metrics and facts named before the rest is counted."""

MAX_EVENTS: Final = 6
"""Events shared by several SUTs that are listed first."""

INDENT: Final = "    "

ELLIPSIS: Final = "..."
"""Marks a truncated line."""


def print_judgement(judgement: Judgement, stream: IO[str], *, everything: bool = False) -> None:
    """Print *judgement* on *stream*: one screen, or with *everything* every failure in full."""
    console = console_on(stream)
    by_sut = grouped(((verdict.testbed, verdict.sut), verdict) for verdict in judgement.verdicts)
    failing = {sut: failed for sut, of in by_sut.items() if (failed := [one for one in of if one.outcome == "fail"])}
    events = [event for event in judgement.events if event.failed]
    console.print(
        Text(
            f"{len(failing)} of {plural(len(by_sut), 'SUT')} "
            f"fail{'s' if len(failing) == 1 and len(by_sut) == 1 else ''} tonight, {judgement.night}",
            style="bold red" if failing else "bold green",
        )
    )
    console.print()
    for event in events[:MAX_EVENTS]:
        _print_rows(console, Text(visible(describe_event(event, judgement.verdicts))), 3)
    if events:
        console.print()
    damaged = {sut for sut, of in failing.items() if any(verdict.check == "unreadable" for verdict in of)}
    ordered = sorted(failing, key=lambda sut: (sut not in damaged, -len(failing[sut]), sut))
    if everything:
        for sut in ordered or by_sut:
            console.print(Text(visible("/".join(sut)), style="bold"))
            for group in group_failures([verdict for verdict in by_sut[sut] if verdict.outcome in {"fail", "noted"}]):
                for verdict in group.verdicts:
                    console.print(Padding(_whole(verdict), (0, 0, 0, 2)))
        ordered = []
    left = {sut: [one for one in failing[sut] if not any(event.has(one) for event in events)] for sut in ordered}
    ordered = [sut for sut in ordered if left[sut]]
    for sut in ordered[: MAX_LINES if len(ordered) <= MAX_LINES else MAX_LINES - 1]:
        found = group_failures(left[sut])
        rows = 1 if 2 * len(ordered) > MAX_LINES else 2
        for number, line in enumerate(_lines(found, max(1, min(MAX_GROUPS, MAX_LINES // (rows * len(ordered)))), rows)):
            name = Text(f"{visible('/'.join(sut))}  ", style="bold") if number == 0 else Text(INDENT)
            _print_rows(console, name.append_text(line), rows)
    if len(ordered) > MAX_LINES:
        console.print(Text(f"and {len(ordered) - MAX_LINES + 1} more SUTs"))
    if failing:
        console.print()
    for text in _below(judgement, everything=everything, failing=bool(failing)):
        console.print(Text(text), no_wrap=not everything, overflow="ellipsis")


def describe_event(event: Event, verdicts: Iterable[NightVerdict]) -> str:
    """Return an event as one line: its SUTs, the worst of its *verdicts*, its first night, and what changed."""
    of = {verdict.metric: verdict for verdict in sorted(filter(event.has, verdicts), key=severity)}
    worst = max(of.values(), key=lambda verdict: (verdict.outcome == "fail", severity(verdict)))
    worst = worst.model_copy(update={"context_changes": event.context_changes})
    names = some_of(event.suts, MAX_NAMES)
    return f"{plural(len(event.suts), 'SUT')} ({names}): {describe(FailureGroup(worst, tuple(of.values())))}"


def _print_rows(console: Console, text: Text, rows: int) -> None:
    """Print *text* in at most *rows* rows, visibly truncated."""
    width = console.width - len(INDENT)
    first, *others = text.wrap(console, console.width)
    rest = Text(" ").join(others).wrap(console, width) if others and rows > 1 else others
    shown = [first, *(Text(INDENT).append_text(part) for part in rest)]
    if len(shown) > rows:
        shown[rows - 1].truncate(console.width - len(ELLIPSIS))
        shown[rows - 1].append(ELLIPSIS)
    for item in shown[:rows]:
        console.print(item, no_wrap=True, overflow="ellipsis")


def _lines(groups: Sequence[FailureGroup], room: int, rows: int) -> Iterator[Text]:
    """Yield a text of *rows* rows per group while there is room; the last one counts the rest."""
    for number, group in enumerate(groups[:room], 1):
        line = Text(visible(describe(group, MAX_NAMES if rows > 1 else 1)))
        more = len(groups) - number
        if number == room and more:
            line = Text(f"(+{more}) ", style="yellow").append_text(line)
        yield line


def describe(group: FailureGroup, most: int = MAX_NAMES) -> str:
    """Return failures as one line: metrics (*most* kinds), size, first night, and what changed."""
    worst, verdicts = group
    if worst.check == "unreadable":
        return worst.reason + (f"; and {plural(len(verdicts) - 1, 'more file')}" if len(verdicts) > 1 else "")
    text = (
        f"{_names([verdict.metric for verdict in verdicts], most)} {_what(worst)}"
        if worst.metric != "run"
        else _what(worst)
    )
    if len(verdicts) > 1:
        text += f" on {len(verdicts)} metrics"
    if worst.since is not None and str(worst.since) not in text:
        text += f"{',' if worst.check == 'missing' else ''} since {worst.since}"
    return text + (f"; {_changes(worst.context_changes)}" if worst.context_changes else "")


def _what(worst: NightVerdict) -> str:
    value, bound, unit = worst.value, worst.bound, worst.unit
    match worst.check:
        case "drift" | "spread" if worst.interval is not None:
            size = change(sum(worst.interval) / 2, worst.interval)
            return size if worst.check == "drift" else f"spread {size}"
        case "limits" if value is not None and bound is not None:
            return f"{amount(value, unit)}, not {within(*bound, unit)}"
        case "homogeneity" if value is not None and bound is not None and bound[0] and bound[1]:
            return f"{change(value / sqrt(bound[0] * bound[1]) - 1, None)} from the others"
        case "missing" if worst.metric != "run":
            return f"missing: {worst.reason.removeprefix(NO_VALUE)}"
        case _:
            return worst.reason


def _names(metrics: Sequence[str], most: int) -> str:
    if len(metrics) == 1:
        return metrics[0]
    kinds = Counter(metric.partition(".")[0] for metric in metrics).most_common()
    return some_of([f"{kind}.*" for kind, _ in kinds], most)


def _changes(changes: Sequence[ContextChange]) -> str:
    listed = "; ".join(f"{item.fact}: {changed_fact(item.before, item.after)}" for item in changes[:MAX_NAMES])
    more = len(changes) - MAX_NAMES
    return f"{listed}; {more} more facts changed" if more > 0 else listed


def _whole(verdict: NightVerdict) -> Text:
    text = Text(f"{verdict.check} ", style="red").append(
        visible(f"{verdict.metric}: {verdict.reason}"), style="default"
    )
    if verdict.since is not None and str(verdict.since) not in verdict.reason:
        text.append(f"; since {verdict.since}", style="default")
    for item in verdict.context_changes:
        text.append("\n  " + visible(f"{item.fact}: {changed_fact(item.before, item.after)}"), style="default")
    return text


def _below(judgement: Judgement, *, everything: bool, failing: bool) -> Iterator[str]:
    """Yield the rest: waivers, noted changes, what cannot be judged, and how to see more."""
    waived = [verdict for verdict in judgement.verdicts if verdict.waiver is not None]
    for item in islice(waived, None if everything else MAX_NAMES):
        if item.waiver is not None:
            yield visible(
                f"waived: {item.testbed}/{item.sut} {item.check} {item.metric} until {item.waiver.until}, "
                f"by {item.waiver.by}: {item.waiver.reason}"
            )
    if len(waived) > MAX_NAMES and not everything:
        yield f"waived: {len(waived) - MAX_NAMES} more"
    noted = [verdict for verdict in judgement.verdicts if verdict.outcome == "noted"]
    if noted:
        suts = len({(verdict.testbed, verdict.sut) for verdict in noted})
        yield f"noted: {plural(len(noted), 'change')} on {plural(suts, 'SUT')}, better or within tolerance"
    small = sorted(
        (event for event in judgement.events if not event.failed), key=lambda event: event.night, reverse=True
    )
    for event in small[:MAX_NAMES]:
        yield visible(f"noted: {describe_event(event, judgement.verdicts)}")
    unknown = [verdict for verdict in judgement.verdicts if verdict.outcome == "no_reference"]
    for check, words in (
        ("limits", "no baseline yet (calibration accept)"),
        ("drift", "too few nights to detect a change"),
        ("homogeneity", "no comparable SUT"),
    ):
        of = [verdict for verdict in unknown if verdict.check == check]
        if of:
            suts = len({(verdict.testbed, verdict.sut) for verdict in of})
            yield f"not judged: {plural(len(of), 'metric')} of {plural(suts, 'SUT')}: {words}"
    if failing and not everything:
        yield "details: --sut SUT, --all or --json"
