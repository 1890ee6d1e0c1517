# SPDX-License-Identifier: Apache-2.0
"""Judgements, acceptances and comparisons on a terminal: worst first, on one screen whatever the size of the lab."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from math import sqrt
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calibration.console import console as console_of
from calibration.judge.events import Event
from calibration.judge.night import Judgement
from calibration.judge.verdicts import Check, ContextChange, NightVerdict
from calibration.judge.words import amount, change, changed_fact, share, within
from calibration.results.history import Sut
from calibration.text import visible

if TYPE_CHECKING:  # these need the models of run documents, judging does not
    from calibration.judge.accept import Proposal
    from calibration.judge.comparison import Compared, Comparison

LINES: Final = 28
"""Lines for SUTs that fail: a screen of 40 holds them with what else is said."""

MOST_FINDINGS: Final = 4
"""Lines for one SUT, however few others fail."""

MOST_NAMES: Final = 3
"""Waivers, kinds of figures and facts that are named before the rest is counted."""

MOST_EVENTS: Final = 6
"""Events that several SUTs share are named first, so many of them."""

MOST_METRICS: Final = 12
"""Lines for metrics that differ, and as many for those that do indicatively."""

MOST_FACTS: Final = 6
"""Lines for facts in which two machines differ."""

MIN_TITLE: Final = 20
"""Columns that the name of a metric has at least, however narrow the terminal is."""

TOGETHER: Final = 3
"""More metrics than these that differ in a number only are one line."""

INDENT: Final = "    "

CUT: Final = "..."
"""Shows that a line has no room for all of it."""

TELLING: Final[tuple[Check, ...]] = (
    "unreadable",
    "drift",
    "spread",
    "bimodal",
    "limits",
    "homogeneity",
    "consistency",
    "missing",
)
"""Checks by how much they say of an event: a change has a date and a size, and shows what else changed."""

SAME_EVENT: Final = timedelta(days=2)
"""Figures whose changes are dated this near to each other changed at once: dates of weak changes are a night off."""


class Finding(NamedTuple):
    """Failures of one check of a SUT that are since about the same night; ``worst`` stands for them."""

    worst: NightVerdict
    verdicts: tuple[NightVerdict, ...]


def print_judgement(judgement: Judgement, stream: IO[str], *, everything: bool = False) -> None:
    """Print *judgement* on *stream*: one screen, or with *everything* every failure in full."""
    console = console_of(stream)
    by_sut: dict[Sut, list[NightVerdict]] = {}
    for each in judgement.verdicts:
        by_sut.setdefault((each.testbed, each.sut), []).append(each)
    failing = {sut: failed for sut, of in by_sut.items() if (failed := [one for one in of if one.outcome == "fail"])}
    events = [each for each in judgement.events if each.failed]
    console.print(
        Text(
            f"{len(failing)} of {len(by_sut)} SUT{'' if len(by_sut) == 1 else 's'} "
            f"fail{'s' if len(failing) == 1 and len(by_sut) == 1 else ''} tonight, {judgement.night}",
            style="bold red" if failing else "bold green",
        )
    )
    console.print()
    for event in events[:MOST_EVENTS]:
        _print_rows(console, Text(visible(told_event(event, judgement.verdicts))), 3)
    if events:
        console.print()
    damaged = {sut for sut, of in failing.items() if any(each.check == "unreadable" for each in of)}
    ordered = sorted(failing, key=lambda sut: (sut not in damaged, -len(failing[sut]), sut))
    if everything:
        for sut in ordered or by_sut:
            console.print(Text(visible("/".join(sut)), style="bold"))
            for finding in findings([each for each in by_sut[sut] if each.outcome in {"fail", "noted"}]):
                for each in finding.verdicts:
                    console.print(Padding(_whole(each), (0, 0, 0, 2)))
        ordered = []
    left = {sut: [one for one in failing[sut] if not any(event.has(one) for event in events)] for sut in ordered}
    ordered = [sut for sut in ordered if left[sut]]
    for sut in ordered[: LINES if len(ordered) <= LINES else LINES - 1]:
        found = findings(left[sut])
        rows = 1 if 2 * len(ordered) > LINES else 2
        for number, line in enumerate(_lines(found, max(1, min(MOST_FINDINGS, LINES // (rows * len(ordered)))), rows)):
            name = Text(f"{visible('/'.join(sut))}  ", style="bold") if number == 0 else Text(INDENT)
            _print_rows(console, name.append_text(line), rows)
    if len(ordered) > LINES:
        console.print(Text(f"and {len(ordered) - LINES + 1} more SUTs"))
    if failing:
        console.print()
    for said in _below(judgement, everything=everything, failing=bool(failing)):
        console.print(Text(said), no_wrap=not everything, overflow="ellipsis")


def told_event(event: Event, verdicts: Iterable[NightVerdict]) -> str:
    """Return an event as one line: its SUTs, the worst of its *verdicts*, since when, and what changed."""
    of = {each.metric: each for each in sorted(filter(event.has, verdicts), key=_severity)}
    worst = max(of.values(), key=lambda each: (each.outcome == "fail", _severity(each)))
    worst = worst.model_copy(update={"context_changes": event.context_changes})
    more = f" and {len(event.suts) - MOST_NAMES} more" if len(event.suts) > MOST_NAMES else ""
    names = ", ".join(event.suts[:MOST_NAMES]) + more
    return f"{_count(len(event.suts), 'SUT')} ({names}): {told(Finding(worst, tuple(of.values())))}"


def _print_rows(console: Console, text: Text, rows: int) -> None:
    """Print *text* in at most so many *rows*; what is left of it is cut off, and that shows."""
    width = console.width - len(INDENT)
    first, *others = text.wrap(console, console.width)
    rest = Text(" ").join(others).wrap(console, width) if others and rows > 1 else others
    shown = [first, *(Text(INDENT).append_text(each) for each in rest)]
    if len(shown) > rows:
        shown[rows - 1].truncate(console.width - len(CUT))
        shown[rows - 1].append(CUT)
    for each in shown[:rows]:
        console.print(each, no_wrap=True, overflow="ellipsis")


def findings(failed: Sequence[NightVerdict]) -> list[Finding]:
    """Return the failures of a SUT by what may be one event: unreadable files, a missing run, then the most figures.

    Of events with as many figures the one comes first whose check says most of it.
    """
    groups: list[list[NightVerdict]] = []
    checks = dict.fromkeys((each.check, each.metric == "run") for each in failed)
    for check, whole in checks:
        of = [each for each in failed if (each.check, each.metric == "run") == (check, whole)]
        last: date | None = None
        for each in sorted(of, key=lambda one: one.since or date.max):
            since = each.since or date.max
            if last is None or since - last > SAME_EVENT:
                groups.append([])
            last = since
            groups[-1].append(each)
    found = [Finding(max(each, key=_severity), tuple(each)) for each in groups]
    return sorted(
        found,
        key=lambda each: (
            each.worst.check != "unreadable",
            each.worst.metric != "run",
            -len(each.verdicts),
            TELLING.index(each.worst.check),
            -_severity(each.worst),
        ),
    )


def _severity(verdict: NightVerdict) -> float:
    """Return how far a figure is from where it should be, relatively: what decides which is told first."""
    value, bound = verdict.value, verdict.bound
    if verdict.check in {"drift", "spread"} and verdict.interval is not None:
        return abs(sum(verdict.interval) / 2)
    if value is None or bound is None:
        return 0.0
    return max((abs(value - end) / abs(end) for end in bound if end), default=0.0)


def _lines(found: Sequence[Finding], room: int, rows: int) -> Iterator[Text]:
    """Yield a text of so many *rows* for each finding that there is room for; the last says how many more there are."""
    for number, each in enumerate(found[:room], 1):
        line = Text(visible(told(each, MOST_NAMES if rows > 1 else 1)))
        more = len(found) - number
        if number == room and more:
            line = Text(f"(+{more}) ", style="yellow").append_text(line)
        yield line


def told(finding: Finding, most: int = MOST_NAMES) -> str:
    """Return a finding as one line: which figures (*most* kinds), how far off, since when, and what changed."""
    worst, verdicts = finding
    if worst.check == "unreadable":
        return worst.reason + (f"; and {_count(len(verdicts) - 1, 'more file')}" if len(verdicts) > 1 else "")
    text = (
        f"{_names([each.metric for each in verdicts], most)} {_what(worst)}" if worst.metric != "run" else _what(worst)
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
            return f"missing: {worst.reason.partition('found none: ')[2] or worst.reason}"
        case _:
            return worst.reason


def _names(metrics: Sequence[str], most: int) -> str:
    if len(metrics) == 1:
        return metrics[0]
    kinds = [kind for kind, _ in Counter(each.partition(".")[0] for each in metrics).most_common()]
    more = f" and {len(kinds) - most} more" if len(kinds) > most else ""
    return ", ".join(f"{each}.*" for each in kinds[:most]) + more


def _changes(changes: Sequence[ContextChange]) -> str:
    told = "; ".join(f"{each.fact}: {changed_fact(each.before, each.after)}" for each in changes[:MOST_NAMES])
    more = len(changes) - MOST_NAMES
    return f"{told}; {more} more facts changed" if more > 0 else told


def _whole(verdict: NightVerdict) -> Text:
    text = Text(f"{verdict.check} ", style="red").append(
        visible(f"{verdict.metric}: {verdict.reason}"), style="default"
    )
    if verdict.since is not None and str(verdict.since) not in verdict.reason:
        text.append(f"; since {verdict.since}", style="default")
    for each in verdict.context_changes:
        text.append("\n  " + visible(f"{each.fact}: {changed_fact(each.before, each.after)}"), style="default")
    return text


def _below(judgement: Judgement, *, everything: bool, failing: bool) -> Iterator[str]:
    """Yield the rest: waivers, changes that fail nobody, what cannot be judged, and how to see more."""
    waived = [each for each in judgement.verdicts if each.waiver is not None]
    for each in islice(waived, None if everything else MOST_NAMES):
        if each.waiver is not None:
            yield visible(
                f"waived: {each.testbed}/{each.sut} {each.check} {each.metric} until {each.waiver.until}, "
                f"by {each.waiver.by}: {each.waiver.reason}"
            )
    if len(waived) > MOST_NAMES and not everything:
        yield f"waived: {len(waived) - MOST_NAMES} more"
    noted = [each for each in judgement.verdicts if each.outcome == "noted"]
    if noted:
        suts = len({(each.testbed, each.sut) for each in noted})
        yield f"noted: {_count(len(noted), 'change')} on {_count(suts, 'SUT')}, better or within tolerance"
    small = sorted((each for each in judgement.events if not each.failed), key=lambda each: each.night, reverse=True)
    for event in small[:MOST_NAMES]:
        yield visible(f"noted: {told_event(event, judgement.verdicts)}")
    unknown = [each for each in judgement.verdicts if each.outcome == "no_reference"]
    for check, words in (
        ("limits", "no baseline yet (calibration accept)"),
        ("drift", "too few nights to detect a change"),
        ("homogeneity", "no comparable SUT"),
    ):
        of = [each for each in unknown if each.check == check]
        if of:
            suts = len({(each.testbed, each.sut) for each in of})
            yield f"not judged: {_count(len(of), 'metric')} of {_count(suts, 'SUT')}: {words}"
    if failing and not everything:
        yield "details: --sut SUT, --all or --json"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def print_proposal(proposal: "Proposal", stream: IO[str]) -> None:
    """Print what is, or would be, accepted for one place, and what is not."""
    console = console_of(stream)
    acceptance = proposal.acceptance
    console.print(Text(visible(f"Bounds of {proposal.place.words}"), style="bold"))
    if acceptance is not None:
        titles = ["Metric", "Level", "Bounds", "Width", "Runs", "Spread of", *(["Before"] if proposal.before else [])]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for title in titles:
            table.add_column(title, justify="right" if title in {"Level", "Width", "Runs"} else "left", overflow="fold")
        for metric, each in acceptance.bounds.items():
            width = [(end / each.value - 1) for end in (each.lower, each.upper) if end is not None and each.value]
            before = proposal.before.get(metric)
            cells = [
                metric,
                amount(each.value, each.unit),
                each.words,
                share(max(map(abs, width))) if width else "-",
                str(len(acceptance.runs_of(metric))),
                each.method,
                "-" if before is None else before.words,
            ]
            table.add_row(*cells[: len(titles)])
        console.print(table)
        console.print()
    reasons: dict[str, list[str]] = {}
    for one in proposal.refused:
        reasons.setdefault(one.reason, []).append(f"{one.sut} {one.metric}")
    for reason, names in reasons.items():
        listed = ", ".join(names[:MOST_NAMES]) + (
            f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        )
        console.print(Text(visible(f"not accepted: {listed}: {reason}"), style="yellow"))
    for note in proposal.notes:
        console.print(Text(visible(f"note: {note}")))


def print_comparison(compared: "Compared", stream: IO[str], *, everything: bool = False) -> None:
    """Print *compared* on *stream*: the largest ratios first, on one screen, or with *everything* every metric."""
    console = console_of(stream)
    console.print(Text(visible(f"{compared.first}  ->  {compared.second}")), no_wrap=True, overflow="ellipsis")
    console.print(Text(visible(compared.summary), style="bold"))
    by_outcome: dict[str, list[Comparison]] = {}
    for each in compared.figures:
        by_outcome.setdefault(each.outcome, []).append(each)
    rest = []
    for outcome, figures in by_outcome.items():
        if not everything and outcome not in {"differs", "indicative"}:
            rest.append(f"{len(figures)} {OUTCOMES[outcome]}")
            continue
        console.print()
        console.print(Text(OUTCOMES[outcome].capitalize(), style="bold"))
        _print_metrics(console, figures, everything=everything)
    if rest:
        console.print()
        more = "; --all lists them" if len(by_outcome) > 1 or "identical" not in by_outcome else ""
        console.print(Text(f"{', '.join(rest).capitalize()}{more}"))
    _print_facts(console, compared, everything=everything)


OUTCOMES: Final = {
    "differs": "differ",
    "indicative": "indicative: an interval is missing (±5 % assumed) or uncertain",
    "undecided": "undecided",
    "same": "the same within the tolerance",
    "identical": "identical",
    "only_first": "only in the first",
    "only_second": "only in the second",
}


def _print_metrics(console: Console, figures: "Sequence[Comparison]", *, everything: bool) -> None:
    families: dict[tuple[str, str | None], list[Comparison]] = {}
    for each in figures:
        families.setdefault((re.sub(r"\d+", "#", each.title), each.better), []).append(each)
    groups = [
        group
        for (title, _), of in families.items()
        for group in ([(title, of)] if len(of) > TOGETHER and not everything else [(each.title, [each]) for each in of])
    ]
    groups.sort(key=lambda group: figures.index(group[1][0]))
    shown = [_row(title, of) for title, of in (groups if everything else groups[:MOST_METRICS])]
    widths = [max(len(row[place]) for row in shown) for place in range(3)]
    widths[0] = max(MIN_TITLE, min(widths[0], console.width - 2 - sum(widths[1:]) - 2 * 3 - len("second better")))
    for title, *numbers, said in shown:
        line = Text(visible(title))
        line.truncate(widths[0], overflow="ellipsis", pad=True)
        for number, width in zip(numbers, widths[1:], strict=True):
            line.append(f"  {number:>{width}}" if width else "")
        line.append(f"  {visible(said)}", style="dim")
        console.print(Padding(line, (0, 0, 0, 2)))
    if len(groups) > len(shown):
        console.print(Text(f"  and {len(groups) - len(shown)} more"))


def _row(title: str, of: "Sequence[Comparison]") -> tuple[str, str, str, str]:
    """Return name, ratio, values and verdict of metrics that are told in one line."""
    from calibration.judge.comparison import times  # noqa: PLC0415 - judging does not need the models

    first = of[0]
    said = f"{first.better} better" if first.better is not None else "" if first.ratio is None else first.reason
    ratios = sorted(each.ratio for each in of if each.ratio is not None)
    if len(of) > 1:
        return f"{title} ({len(of)})", f"{times(ratios[0])} to {times(ratios[-1])}" if ratios else "", "", said
    sides = (first.first, first.second)
    values = ["-" if side is None else amount(side.metric.value, side.metric.unit) for side in sides]
    return title, times(ratios[0]) if ratios else "", " -> ".join(values), said


def _print_facts(console: Console, compared: "Compared", *, everything: bool) -> None:
    lines = [
        f"{each.fact}: {changed_fact(each.first, each.second)}" + (f"  (explains {each.moves})" if each.moves else "")
        for each in compared.facts
    ] or list(compared.context)
    if not lines:
        return
    console.print()
    console.print(Text("Machines differ in", style="bold"))
    for line in lines if everything else lines[:MOST_FACTS]:
        text = Text(f"  {visible(line)}")
        console.print(text, no_wrap=not everything, overflow="ellipsis")
    if len(lines) > MOST_FACTS and not everything:
        console.print(Text(f"  and {len(lines) - MOST_FACTS} more facts"))
