# SPDX-License-Identifier: Apache-2.0
"""Write blocks as reStructuredText, valid for docutils alone. Foreign text is escaped."""

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Final

from docutils.utils import column_width

from calibration.base.text import visible
from calibration.base.units import ABSENT
from calibration.charts.base import Chart
from calibration.report.blocks import (
    Block,
    Blocks,
    Box,
    Bullets,
    Charts,
    Comment,
    Heading,
    Inline,
    Link,
    Paragraph,
    Place,
    Span,
    Style,
    Table,
    Target,
    Term,
    Text,
    Verbatim,
    beginning,
)

SAFE_PUNCTUATION: Final = frozenset(" ,/%=&;+")
"""ASCII punctuation that starts no markup unless it is the first character."""

SAFE_SIGNS: Final = frozenset("·±→")
"""Other signs that start no markup."""

MAX_INLINE: Final = 1_000
"""Longer texts are cut on a page; the run document has all of them."""

UNDERLINES: Final = "=-~"
"""Of the title, of sections and of their parts."""

CLASSES: Final[dict[Style, str]] = {
    "struck": "struck",
    "on_target": "trust on-target",
    "near": "trust near",
    "poor": "trust poor",
    "observed": "trust observed",
    "invalid": "flag invalid",
    "warn": "flag warn",
    "info": "flag info",
    "aside": "aside",
}
"""Classes of the styles that are roles of their own, on the site too."""


def to_rst(blocks: Blocks) -> str:
    """Return *blocks* as reStructuredText."""
    head = [block for block in blocks if isinstance(block, Comment)]
    written = [*map(_block, head), *_roles(), *(_block(block) for block in blocks if block not in head)]
    return "\n\n".join(written) + "\n"


def _roles() -> Iterator[str]:
    for style, classes in CLASSES.items():
        yield f".. role:: {_role(style)}\n   :class: {classes}"


def _role(style: Style) -> str:
    return style.replace("_", "-")


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return heading(text, level)
        case Paragraph(text, kind):
            return (f".. rst-class:: {kind}\n\n" if kind else "") + _text(text)
        case Bullets(items, kind):
            return (f".. rst-class:: {kind}\n\n" if kind else "") + "\n".join(f"* {_line(item)}" for item in items)
        case Term(term, text, evidence):
            meaning = f"{_text(text)}\n\n{_block(evidence)}"
            return f"{_line(term)}\n{_indented(meaning, 4)}"
        case Table():
            return _table(block)
        case Charts(charts):
            drawn = "\n\n".join(map(_chart, charts))
            return f".. container:: charts\n\n{_indented(drawn)}"
        case Verbatim(text, struck):
            return (".. rst-class:: struck\n\n" if struck else "") + f"::\n\n{_indented(text, 4)}"
        case Box(title, inner, kind):
            body = _indented("\n\n".join(map(_block, inner)))
            if kind == "warning":
                return f".. warning::\n\n{body}"
            if not title:
                return f".. container:: {kind}\n\n{body}"
            return f".. admonition:: {inline(title)}\n   :class: {kind}\n\n{body}"
        case Comment(lines):
            return "\n   ".join((f".. {lines[0]}", *lines[1:]))
        case Target(name):
            return f".. _{name}:"
        case Place("method", kind):
            return f".. rst-class:: method\n\n{inline(kind)}"
        case Place(name):
            return f".. calibration-{name}"


def heading(text: str, level: int) -> str:
    """Return a title: of the page (``level`` 0), or of a section."""
    title = inline(text)
    return f"{title}\n{UNDERLINES[level] * max(4, column_width(title))}"


def _indented(text: str, spaces: int = 3) -> str:
    return textwrap.indent(text, " " * spaces)


def _table(table: Table) -> str:
    rows = [table.titles, *table.rows] if table.titles else table.rows
    lines = [".. list-table::", *(["   :header-rows: 1"] if table.titles else []), "   :widths: auto"]
    lines += [] if table.titles else ["   :stub-columns: 1"]
    lines += [f"   :class: {' '.join(filter(None, ('calibration', table.kind)))}", ""]
    for row in rows:
        lines += [f"   {'  ' if number else '* '}- {_line(cell)}".rstrip() for number, cell in enumerate(row)]
    return "\n".join(lines)


def _chart(chart: Chart) -> str:
    alt = " ".join(visible(chart.alt).split())
    return f".. figure:: {chart.path}\n   :alt: {alt}\n   :figclass: {chart.style}\n\n   {inline(chart.caption)}"


def _text(text: Text) -> str:
    """Return a text with the line breaks of its template."""
    return re.sub(r"\n\s*\n", "\n", "".join(_pieces(text))).strip()


def _line(text: Text) -> str:
    return " ".join(_text(text).split())


def _pieces(text: Text) -> Iterator[str]:
    """Yield the pieces of *text*, with markup only where a style asks for it."""
    before = ""
    text = tuple(_joined(text))
    for number, item in enumerate(text):
        written = _inline(item, first=number == 0 or before[-1:] == "\n")
        if not isinstance(item, str) and before and not before[-1].isspace():
            written = f"\\ {written}"
        if isinstance(item, str) and number and not isinstance(text[number - 1], str):
            written = written if written[:1] in {"", " ", "\n"} else f"\\ {written}"
        yield written
        before = written


def _joined(text: Text) -> Iterator[Inline]:
    """Yield the pieces of *text* with adjacent ones without a style as one."""
    for plain, pieces in groupby(text, key=lambda item: isinstance(item, str)):
        if plain:
            yield "".join(str(piece) for piece in pieces)
        else:
            yield from pieces


def _inline(item: Inline, *, first: bool) -> str:
    match item:
        case str():
            lines = (
                inline(line, first=first or number > 0) for number, line in enumerate(item.split("\n")) if line.strip()
            )
            start, end = (character if character in {" ", "\n"} else "" for character in (item[:1], item[-1:]))
            return start + "\n".join(lines) + (end if item.strip() else "")
        case Link(text, target) if target.startswith("#"):
            return f"`{inline(text)} <{target[1:]}_>`__"
        case Link(text, target) if target.startswith("method/"):
            return inline(text, first=first)  # a page of the site
        case Link(text, target):
            return f"`{inline(text)} <{target}>`__"
        case Span(text, "literal"):
            return f":literal:`{inline(text)}`"
        case Span(text, "strong"):
            return f"**{inline(text)}**"
        case Span(text, style):
            return f":{_role(style)}:`{inline(text)}`"
        case _:
            return inline(item.text, first=first)


def inline(text: str, *, first: bool = True) -> str:
    """Return *text* as reStructuredText that renders as exactly that text in a paragraph or a table cell.

    Runs of spaces are collapsed; an empty text becomes the mark for a missing value. *first*: a line begins with it.
    """
    words = beginning(visible(text), MAX_INLINE).split()
    if not words:
        return "\\" + ABSENT
    return " ".join(_escaped(word, first=first and index == 0) for index, word in enumerate(words))


@lru_cache(maxsize=4096)
def _escaped(word: str, *, first: bool) -> str:
    out = []
    for index, character in enumerate(word):
        after_a_letter, last = index > 0 and word[index - 1].isalnum(), index == len(word) - 1
        if character.isascii():
            safe = (
                character.isalnum()
                or (character in SAFE_PUNCTUATION and not (first and index == 0))
                or (not first and character in "()-<>'")
                or (after_a_letter and not last and character in ".-")
                or (after_a_letter and last and (character == ":" or (character == "." and not first)))
            )
        else:
            safe = unicodedata.category(character)[0] in "LN" or character in SAFE_SIGNS
        out.append(character if safe else "\\" + character)
    return "".join(out)
