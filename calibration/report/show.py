# SPDX-License-Identifier: Apache-2.0
"""Terminal summary of a run: the story of its page's first screen, or the imported metrics."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.text import Text

from calibration.base.commandline import calibration_command, near
from calibration.base.console import console
from calibration.base.text import cut, visible
from calibration.base.trust import Trust
from calibration.judge.answer import Look, labelled
from calibration.judge.standing import Standings
from calibration.judge.words import amount
from calibration.report.headlines import HeadlineRow
from calibration.report.imported import FORMATS
from calibration.report.story import Story, told
from calibration.results.model import Imported, RunDocument

LOOKS_OF_ANSWERS: Final[Mapping[Look, tuple[str, str]]] = {
    "good": ("✓", "bold green"),
    "unknown": ("?", "bold"),
    "bad": ("✗", "bold red"),
}
"""Mark and colour of an answer."""

LOOKS: Final[dict[Trust, tuple[str, str]]] = {
    "on_target": ("", "green"),
    "poor": (" !", "yellow"),
    "invalid": (" ✗", "bold red"),
}
"""Mark (for terminals without colour) and colour of a metric by trust; others have neither."""

MAX_IMPORTED_METRICS: Final = 8
"""Metrics of an import on the screen, one per kind."""

MAX_FINDINGS: Final = 2
MAX_ADVICE: Final = 1
"""Findings and pieces of advice on the screen, which has 24 rows; each line of changes takes the place of a finding."""

GAP: Final = 3
"""Columns between the two columns of tiles."""


def print_run(document: RunDocument, run: Path, stream: IO[str]) -> None:
    """Print *document*, of the directory *run*, on *stream*, in about a dozen lines."""
    if document.imported is not None:
        _print_imported(document, document.imported, run, console(stream))
    else:
        print_story(told(document, run, Standings()), run, stream)


def print_story(summary: Story, run: Path, stream: IO[str], *, colour: bool | None = None) -> None:
    """Print the first screen of the run in the directory *run* on *stream*; *colour* overrides the detection."""
    out = console(stream, colour=colour)
    mark, style = LOOKS_OF_ANSWERS[summary.look]
    head = Text.assemble((f"{mark} ", style), (visible(summary.name), "bold"))
    when = visible(summary.when)
    head.append(f"{when:>{max(len(when) + 2, out.width - head.cell_len)}}")
    _line(out, head)
    _line(out, Text(f"  {visible(summary.machine)}", style="dim"))
    for number, (about, text) in enumerate(summary.answer):
        line = visible(labelled(about, text)) if number else visible(text)
        out.print(Text(line, style=style if number == 0 else ""), soft_wrap=about == "Do")  # a command is not cut
    _print_columns(out, list(map(_row, summary.headlines)))
    changes = [f"{since.name}: {since.text}" for since in summary.since if since.news]
    for change in changes:
        _line(out, Text(f"  {visible(change)}"))
    findings, advice = summary.findings[: MAX_FINDINGS - len(changes)], summary.advice[:MAX_ADVICE]
    for mark, lines in (("-", findings), (">", advice)):
        for line in lines:
            _line(out, Text(f"  {mark} {visible(line)}"))
    for number, sentence in enumerate(summary.normal):
        _line(out, Text(f"  {' ' * 7 if number else 'Normal:'} {visible(sentence)}"))
    more = summary.more_findings + summary.more_advice
    more += len(summary.findings) - len(findings) + len(summary.advice) - len(advice)
    last = [f"and {more} more: {_whole_page(run)}"] if more else []
    for line in last:
        out.print(Text(f"  {visible(line)}"), soft_wrap=True)  # a command is not cut


def _row(row: HeadlineRow) -> tuple[str, Text]:
    mark, style = LOOKS.get(row.trust, ("", ""))
    text = Text(visible(" ".join(filter(None, (row.value, row.plus_minus))) + mark), style=style)
    if row.accepted:
        shown = row.accepted if row.accepted.startswith("usual") else f"accepted: {row.accepted}"
        text.append(f"  {visible(shown)}{' !' if row.outside else ''}", style="red" if row.outside else "dim")
    return visible(row.title), text


def _print_columns(out: Console, rows: Sequence[tuple[str, Text]]) -> None:
    """Print names and values in two columns, filled downwards, or in one if they do not fit."""
    half = (len(rows) + 1) // 2
    left, right = _column(rows[:half]), _column(rows[half:])
    start, end = (max((line.cell_len for line in column), default=0) for column in (left, right))
    if start + GAP + end + 2 > out.width:
        left, right = _column(rows), []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        line = Text("  ").append_text(one)
        if other.plain:
            line.append(" " * (start + GAP - one.cell_len)).append_text(other)
        _line(out, line)


def _column(rows: Sequence[tuple[str, Text]]) -> list[Text]:
    width = max((len(name) for name, _ in rows), default=0)
    return [Text(f"{name:<{width}}  ").append_text(value) for name, value in rows]


def _whole_page(run: Path) -> str:
    return calibration_command("report", near(run), "--text")


def _print_imported(document: RunDocument, imported: Imported, directory: Path, out: Console) -> None:
    run, readings = document.run, document.readings
    measured = "date unknown" if imported.measured_on is None else f"measured {imported.measured_on.isoformat()}"
    _line(out, Text.assemble("  ", (visible(f"{run.testbed} / {run.sut}"), "bold"), f"  {measured}"))
    title = "" if imported.title is None else f": {imported.title}"
    _line(out, Text(visible(f"  {FORMATS[imported.format]} {imported.source}{title}"), style="dim"))
    metrics = [metric for reading in readings for metric in reading.values.metrics()]
    tools = ", ".join(dict.fromkeys(reading.instrument for reading in readings)) or "no tool"
    out.print(Text(visible(f"{len(metrics)} metrics by {tools}, without stated uncertainty.")))
    first = {reading.values.kind: next(iter(reading.values.metrics()), None) for reading in reversed(readings)}
    shown = [item for item in reversed(first.values()) if item is not None][:MAX_IMPORTED_METRICS]
    _print_columns(out, [(cut(visible(metric.title), 50), Text(amount(metric.value, metric.unit))) for metric in shown])
    faults = [f"{len(imported.inconsistencies)} contradictions"] if imported.inconsistencies else []
    faults += [f"{len(document.not_measured)} without a value"] if document.not_measured else []
    if faults:
        text = f"  ! {', '.join(faults)}: {visible(_whole_page(directory))}"
        out.print(Text(text, style="yellow"), soft_wrap=True)


def _line(out: Console, text: Text) -> None:
    out.print(text, no_wrap=True, overflow="ellipsis")
