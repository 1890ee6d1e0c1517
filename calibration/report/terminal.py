# SPDX-License-Identifier: Apache-2.0
"""Print a page on a terminal, for users with only ssh.

The page's reStructuredText is parsed as for the site and printed node by node, so that both have the same content.
Folded parts are omitted unless requested; charts are replaced by their alternative texts.
"""

import textwrap
from collections.abc import Sequence
from typing import IO, Final

from docutils import nodes
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calibration.base.console import console as console_of
from calibration.report.markup import parsed
from calibration.report.page import Page

GAP: Final = 3
"""Columns between two columns of a table."""

STYLES: Final = {
    "struck": "strike",
    "invalid": "bold red",
    "poor": "yellow",
    "on-target": "green",
    "warn": "yellow",
    "info": "cyan",
}
"""Style of each role; the meaning is in the text too, for terminals without colour."""


def print_page(page: Page, stream: IO[str], *, full: bool = False) -> None:
    """Print *page* on *stream*, with its folded parts if *full*; commands of advice in any case.

    Raises ``InputError`` if the page cannot be parsed.
    """
    tree = parsed(page.text)
    folds = [fold for fold in tree.findall(nodes.admonition) if {"fold", "commands"} & {*fold["classes"]} == {"fold"}]
    if not full:
        for fold in folds:
            section = fold.parent
            section.remove(fold)
            if len(section) == 1:  # only its title
                section.parent.remove(section)
    console = console_of(stream)
    _print(tree, console, depth=-1)
    if folds and not full:
        console.print(Text(f"{len(folds)} folded parts (samples, intervals, commands, machine): --full", style="dim"))


def _print(parent: nodes.Node, console: Console, depth: int) -> None:
    """Print the content of *parent*, at section level *depth*."""
    for node in parent.children:
        match node:
            case nodes.title():
                console.print(Text(node.astext(), style="bold underline" if depth < 2 else "bold"), end="\n\n")
            case nodes.section():
                _print(node, console, depth + 1)
            case nodes.literal_block():
                style = "strike" if "struck" in node["classes"] else ""
                text = Text(textwrap.indent(node.astext(), "    "), style=style)
                console.print(text, soft_wrap=True, end="\n\n")
            case nodes.table():
                _table(node, console)
                console.print()
            case nodes.figure():
                for image in node.findall(nodes.image):
                    console.print(Text(f"Chart: {image['alt']}", style="italic"))
                console.print()
            case nodes.note() | nodes.warning():
                console.print(Text(f"{type(node).__name__.upper()}:", style="bold"))
                _print(node, console, depth)
            case nodes.paragraph(parent=nodes.list_item() | nodes.definition()):
                mark = "* " if isinstance(node.parent, nodes.list_item) else "    "
                console.print(Padding(Text(mark).append_text(_inline(node)), (0, 0, 0, 2)))
            case nodes.paragraph():
                console.print(_inline(node), end="\n\n")
            case nodes.term():
                console.print(_inline(node))
            case nodes.bullet_list() | nodes.definition_list():
                _print(node, console, depth)
                console.print()
            case nodes.Element() if not isinstance(node, nodes.Invisible):
                _print(node, console, depth)


def _inline(node: nodes.Node) -> Text:
    """Return the text of a paragraph in the styles of its roles."""
    text = Text()
    for child in node.children:
        if isinstance(child, nodes.Element):
            inner = _inline(child)
            for style in filter(None, map(STYLES.get, child["classes"])):
                inner.stylize(style)
            if isinstance(child, nodes.strong):
                inner.stylize("bold")
            text.append_text(inner)
        else:
            text.append(child.astext().replace("\n", " "))
    return text


def _table(node: nodes.table, console: Console) -> None:
    """Print a table at the width of the terminal, wrapped between words; row by row if that is too narrow."""
    rows = [[Text().join(map(_inline, cell.children)) for cell in row.children] for row in node.findall(nodes.row)]
    headed = any(node.findall(nodes.thead))
    widths = _widths(list(zip(*rows, strict=True)), console.width)
    titles = rows.pop(0) if headed else [Text()] * len(rows[0])
    if widths is None:
        for row in rows:
            for title, cell in zip(titles, row, strict=True):
                line = Text.assemble(title, ": " if title.plain else "", cell)
                console.print(Padding(line, (0, 0, 0, 0 if cell is row[0] else 4)))
        return
    table = Table(box=SIMPLE_HEAD, show_header=headed, pad_edge=False, show_edge=False)
    for title, width in zip(titles, widths, strict=True):
        table.add_column(title, width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _widths(columns: Sequence[Sequence[Text]], width: int) -> list[int] | None:
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
