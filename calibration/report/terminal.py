# SPDX-License-Identifier: Apache-2.0
"""Print blocks on a terminal, for users with only ssh.

Folded parts are left out unless requested; charts are replaced by their alternative texts.
"""

import textwrap
from collections.abc import Sequence
from typing import IO, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Styled

from calibration.base.console import console as console_of
from calibration.base.text import visible
from calibration.base.units import plural
from calibration.report.blocks import (
    Block,
    Blocks,
    Box,
    Bullets,
    Charts,
    Comment,
    Heading,
    Paragraph,
    Place,
    Span,
    Style,
    Table,
    Target,
    Term,
    Text,
    Verbatim,
)

GAP: Final = 3
"""Columns between two columns of a table."""

STYLES: Final[dict[Style, str]] = {
    "strong": "bold",
    "struck": "strike",
    "invalid": "bold red",
    "poor": "yellow",
    "on_target": "green",
    "warn": "yellow",
    "info": "cyan",
    "aside": "dim",
}
"""How the styles look; the meaning is in the text too, for terminals without colour."""


def print_blocks(
    blocks: Blocks,
    stream: IO[str],
    *,
    full: bool = False,
    option: str = "(samples, intervals, commands, machine): --full",
) -> None:
    """Print *blocks* on *stream*, with folded parts if *full*; commands of advice in any case.

    *option* says what is folded, and which option prints it.
    """
    console = console_of(stream)
    folded = [block for block in blocks if isinstance(block, Box) and block.kind == "fold"]
    shown = blocks if full else [block for block in blocks if block not in folded]
    for block, following in zip(shown, [*shown[1:], None], strict=True):
        if not isinstance(block, Heading) or (following is not None and not isinstance(following, Heading)):
            _print(block, console)
    if folded and not full:
        console.print(Styled(f"{plural(len(folded), 'folded part')} {option}", style="dim"))


def _print(block: Block, console: Console) -> None:
    match block:
        case Heading(text, level):
            console.print(Styled(visible(text), style="bold underline" if level < 2 else "bold"), end="\n\n")
        case Paragraph(text):
            console.print(_styled(text), end="\n\n")
        case Bullets(items):
            for item in items:
                console.print(Padding(Styled("* ").append_text(_styled(item)), (0, 0, 0, 2)))
            console.print()
        case Term(term, text, evidence):
            console.print(_styled(term))
            console.print(Padding(_styled(text), (0, 0, 0, 4)))
            _print(evidence, console)
        case Table():
            _table(block, console)
            console.print()
        case Charts(charts):
            for chart in charts:
                console.print(Styled(visible(f"Chart: {chart.alt}"), style="italic"), end="\n\n")
        case Verbatim(text, struck):
            style = "strike" if struck else ""
            console.print(Styled(textwrap.indent(text, "    "), style=style), soft_wrap=True, end="\n\n")
        case Box(title, inner, kind):
            name = "WARNING:" if kind == "warning" else visible(title)
            if name:
                console.print(Styled(name, style="bold"), end="\n" if kind == "warning" else "\n\n")
            for part in inner:
                _print(part, console)
        case Place() | Target() | Comment():
            pass


def _styled(text: Text) -> Styled:
    """Return a text in the looks of its styles, as one line; remarks have one of their own."""
    found = Styled()
    for item in text:
        words = item if isinstance(item, str) else item.text
        style = STYLES.get(item.style, "") if isinstance(item, Span) else ""
        line = "\n" if found and isinstance(item, Span) and item.style == "aside" else ""
        found.append(line + visible(words.replace("\n", " ")), style=style)
    return found


def _table(table: Table, console: Console) -> None:
    """Print a table at the width of the terminal, wrapped between words; row by row if that is too narrow."""
    titles = [_styled(title) for title in table.titles]
    rows = [[_styled(cell) for cell in row] for row in table.rows]
    widths = _widths(list(zip(*([titles] if titles else []), *rows, strict=True)), console.width)
    titles = titles or [Styled()] * len(table.rows[0])
    if widths is None:
        for row in rows:
            for title, cell in zip(titles, row, strict=True):
                line = Styled.assemble(title, ": " if title.plain else "", cell)
                console.print(Padding(line, (0, 0, 0, 0 if cell is row[0] else 4)))
        return
    grid = Grid(box=SIMPLE_HEAD, show_header=bool(table.titles), pad_edge=False, show_edge=False)
    for title, width in zip(titles, widths, strict=True):
        grid.add_column(title, width=width)
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


def _widths(columns: Sequence[Sequence[Styled]], width: int) -> list[int] | None:
    """Return the column widths that break no word; ``None`` if they do not fit."""
    found = [max(len(word) for cell in column for word in cell.plain.split() or [""]) for column in columns]
    whole = [max(cell.cell_len for cell in column) for column in columns]
    left = width - sum(found) - GAP * len(columns)
    if left < 0:
        return None
    while left > 0 and (short := [place for place, least in enumerate(found) if least < whole[place]]):
        for place in short[:left]:
            found[place] += 1
        left -= len(short)
    return found
