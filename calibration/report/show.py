# SPDX-License-Identifier: Apache-2.0
"""Terminal summary of a run: the story of its page's first screen, or the imported metrics."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.text import Text

from calibration.base.commandline import calibration_command, near
from calibration.base.console import console
from calibration.base.text import cut, visible
from calibration.base.trust import Trust
from calibration.judge.words import amount
from calibration.references.library import Library, published
from calibration.references.matching import normal
from calibration.report.imported import FORMATS
from calibration.report.story import Story, Tile, story
from calibration.results.model import Imported, RunDocument

LEVELS: Final = {"good": ("✓", "bold green"), "caution": ("!", "bold yellow"), "bad": ("✗", "bold red")}
"""Mark and colour of a verdict."""

LOOKS: Final[dict[Trust, tuple[str, str]]] = {
    "on_target": ("", "green"),
    "poor": (" !", "yellow"),
    "invalid": (" ✗", "bold red"),
}
"""Mark (for terminals without colour) and colour of a metric by trust; others have neither."""

MAX_IMPORTED_METRICS: Final = 8
"""Metrics of an import on the screen, one per kind."""

GAP: Final = 3
"""Columns between the two columns of tiles."""


def print_run(document: RunDocument, run: Path, stream: IO[str], references: Library | None = None) -> None:
    """Print *document*, of the directory *run*, on *stream*, in about a dozen lines.

    *references* are by default the published ones.
    """
    if document.imported is not None:
        _print_imported(document, document.imported, run, console(stream))
    else:
        compared = normal(document, published() if references is None else references)
        print_story(story(document, compared), run, stream)


def print_story(summary: Story, run: Path, stream: IO[str], *, colour: bool | None = None) -> None:
    """Print the first screen of the run in the directory *run* on *stream*; *colour* overrides the detection."""
    out = console(stream, colour=colour)
    mark, style = LEVELS[summary.level]
    head = Text.assemble((f"{mark} ", style), (visible(summary.name), "bold"))
    when = visible(summary.when)
    head.append(f"{when:>{max(len(when) + 2, out.width - head.cell_len)}}")
    _line(out, head)
    _line(out, Text(f"  {visible(summary.machine)}", style="dim"))
    out.print(Text(visible(summary.verdict), style=style))
    _print_columns(out, list(map(_tile, summary.tiles)))
    for finding in summary.findings:
        text = Text(f"  - {visible(finding)}")
        if finding == summary.left_changed:
            out.print(text)  # setting, wanted and found are not cut
        else:
            _line(out, text)
    for line in summary.advice:
        _line(out, Text(f"  > {visible(line)}"))
    for number, sentence in enumerate(summary.normal):
        _line(out, Text(f"  {' ' * 7 if number else 'Normal:'} {visible(sentence)}"))
    more = summary.more_findings + summary.more_advice
    last = [f"and {more} more: {_whole_page(run)}"] if more else []
    last += [f"next: {summary.next_step}"] if summary.next_step is not None else []
    for line in last:
        out.print(Text(f"  {visible(line)}"), soft_wrap=True)  # a command is not cut


def _tile(tile: Tile) -> tuple[str, Text]:
    mark, style = LOOKS.get(tile.trust, ("", ""))
    text = Text(visible(" ".join(filter(None, (tile.value, tile.plus_minus))) + mark), style=style)
    if tile.extra is not None:
        text.append(f"  {visible(tile.extra)}", style="dim")
    if tile.band is not None:
        text.append(f"  {visible(tile.band)}{' !' if tile.outside else ''}", style="red" if tile.outside else "dim")
    elif tile.usual is not None:
        text.append(f"  {visible(tile.usual)}", style="dim")
    return visible(tile.title), text


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
