# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a judgement: one screen for a lab of any size, the answer on each SUT that is not as accepted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Final

from rich.console import Console
from rich.text import Text

from calibration.base.console import console as console_on
from calibration.base.text import some_of, visible
from calibration.base.units import plural
from calibration.judge.answer import URGENT, Answer, changed_facts, grouped_answers, headline, look
from calibration.judge.judged import beyond, signed_percent, title_of
from calibration.judge.night import Judgement
from calibration.judge.verdicts import RUN, NightVerdict, changes_text
from calibration.judge.words import amount, within
from calibration.measurements import row_of
from calibration.results.history import Sut

MAX_ANSWERS: Final = 12
"""Answers on the screen: with the rest they fit 40 lines."""

MAX_NAMES: Final = 3
"""Waivers, SUTs and facts named before the rest is counted."""

STYLES: Final = {"good": "bold green", "bad": "bold red", "unknown": "bold"}
"""Style of the first line by its look."""

INDENT: Final = "    "

HEAD: Final = ("metric", "found", "accepted", "beyond by", "since")

STYLES_OF_TOLD: Final[Mapping[str, str]] = {"fail": "red", "noted": ""}
"""Style of the verdicts that are listed, by outcome."""


def print_judgement(judgement: Judgement, stream: IO[str], *, everything: bool = False) -> None:
    """Print *judgement* on *stream*: one screen, or with *everything* all answers and every failure in full."""
    console = console_on(stream)
    console.print(Text(headline(judgement.answers, judgement.night), style=STYLES[look(judgement.answers)]))
    told = judgement.answers if everything else [item for item in judgement.answers if item.state in URGENT]
    groups = grouped_answers(told, judgement.events)
    for members, answer in groups if everything else groups[:MAX_ANSWERS]:
        console.print()
        _print_answer(console, [f"{item.testbed}/{item.sut}" for item in members], answer)
        if everything:
            _print_verdicts(console, judgement, answer)
    if len(groups) > MAX_ANSWERS and not everything:
        console.print(f"\nand {len(groups) - MAX_ANSWERS} more")
    below = list(_below(judgement, everything=everything))
    if below:
        console.print()
    for text in below:
        console.print(Text(visible(text)), no_wrap=not everything, overflow="ellipsis")


def _print_answer(console: Console, names: Sequence[str], answer: Answer) -> None:
    """Print *answer*, which stands for the SUTs *names*."""
    who = names[0] if len(names) == 1 else f"{plural(len(names), 'SUT')} ({some_of(names, MAX_NAMES)})"
    for number, (about, text) in enumerate(answer.lines()):
        if number == 0:
            console.print(Text.assemble((visible(who), "bold"), f"  {visible(text)}"))
        elif about in {"Changed", "Do"}:
            console.print(Text(f"{INDENT}{about}: {visible(text)}"), soft_wrap=about == "Do")


def _print_verdicts(console: Console, judgement: Judgement, answer: Answer) -> None:
    """Print every verdict on the SUT of *answer* that fails, or notes a change, headline metrics first."""
    sut = answer.testbed, answer.sut
    told = [item for item in judgement.verdicts if (item.testbed, item.sut) == sut and item.outcome in STYLES_OF_TOLD]
    told.sort(key=lambda item: row_of(item.metric).record is None)
    limits = [(item, cells) for item in told if (cells := _cells(item, judgement.titles))]
    lines = [HEAD, *(cells for _, cells in limits)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    styles = ["dim", *(STYLES_OF_TOLD[item.outcome] for item, _ in limits)]
    for cells, style in zip(lines, styles, strict=True) if limits else ():
        line = "  ".join(map(str.ljust, cells, widths)).rstrip()
        console.print(Text(f"{INDENT}{line}", style=style), soft_wrap=True)
    for item in told:
        if not _cells(item, judgement.titles):
            about = item.check if item.metric == RUN else f"{item.check}: {title_of(item.metric, judgement.titles)}"
            text = visible(f"{INDENT}{about}: {item.reason}")
            since = "" if item.since is None or str(item.since) in item.reason else f"  since {item.since}"
            console.print(Text(f"{text}{since}", style=STYLES_OF_TOLD[item.outcome]), soft_wrap=True)


def _cells(verdict: NightVerdict, titles: Mapping[str, str]) -> tuple[str, ...]:
    """Return the row of a metric that is out of its accepted range; empty for another verdict."""
    if verdict.check != "limits" or verdict.value is None or verdict.bound is None:
        return ()
    out = beyond(verdict.value, verdict.bound)
    return (
        visible(title_of(verdict.metric, titles)),
        amount(verdict.value, verdict.unit),
        within(*verdict.bound, verdict.unit),
        "" if out is None else signed_percent(out),
        str(verdict.since or ""),
    )


def _below(judgement: Judgement, *, everything: bool) -> Iterator[str]:
    """Yield the rest: facts that changed, waivers, noted changes, what cannot be judged, and how to see more."""
    for fact, suts in changed_facts(judgement.answers):
        names = some_of(["/".join(sut) for sut in suts], MAX_NAMES)
        yield f"changed, no metric affected: {fact} on {plural(len(suts), 'SUT')} ({names})"
    waived = [verdict for verdict in judgement.verdicts if verdict.waiver is not None]
    for item in islice(waived, None if everything else MAX_NAMES):
        if item.waiver is not None:
            yield (
                f"waived: {item.testbed}/{item.sut} {item.check} {item.metric} until {item.waiver.until}, "
                f"by {item.waiver.by}: {item.waiver.reason}"
            )
    if len(waived) > MAX_NAMES and not everything:
        yield f"waived: {len(waived) - MAX_NAMES} more"
    noted = [verdict for verdict in judgement.verdicts if verdict.outcome == "noted"]
    if noted:
        changed = _suts((verdict.testbed, verdict.sut) for verdict in noted)
        yield f"noted: {plural(len(noted), 'change')} on {changed}, better or within tolerance"
    small = [event for event in judgement.events if not event.failed]
    for event in sorted(small, key=lambda event: event.night, reverse=True)[:MAX_NAMES]:
        kinds = list(dict.fromkeys(metric.partition(".")[0] for metric in event.metrics))
        with_it = f"; with it {changes_text(event.context_changes, MAX_NAMES)}" if event.context_changes else ""
        who = f"{plural(len(event.suts), 'SUT')} ({some_of(event.suts, MAX_NAMES)})"
        yield f"noted: {who}: {some_of(kinds, MAX_NAMES)} since {event.night}{with_it}"
    noisy = Counter(answer.sharpness for answer in judgement.answers)
    if noisy["noisy"] or noisy["invalid"]:
        yield f"measurements: {noisy['sharp']} sharp, {noisy['noisy']} noisy, {noisy['invalid']} invalid"
    for check, words in UNKNOWN.items():
        of = [item for item in judgement.unknown if (item.check, item.bounded) == check]
        if of:
            ((so_far, _),) = Counter(item.reason for item in of).most_common(1)
            more = f", most have {so_far}" if check == ("drift", False) else ""
            yield f"unknown: {plural(len(of), 'metric')} of {_suts(item.sut for item in of)}: {words}{more}"
    if any(answer.state in URGENT for answer in judgement.answers) and not everything:
        yield "details: --sut SUT, --all or --json"


def _suts(suts: Iterable[Sut]) -> str:
    return plural(len(set(suts)), "SUT")


UNKNOWN: Final = {
    ("limits", False): "no baseline yet (calibration accept)",
    ("drift", False): "too few nights to detect a change",
    ("homogeneity", False): "no comparable SUT",
    ("homogeneity", True): "too noisy to compare with the others: more nights narrow it",
}
"""Why metrics are not judged, by check and whether there is an expected range."""
