# SPDX-License-Identifier: Apache-2.0
"""Compose blocks from templates: the text of a template is laid out, what it inserts stays what it is.

The environment keeps the two apart: the text of a template arrives as :class:`Data`, where a blank line ends a
paragraph and ``* `` begins an item of a list; inserted values are strings, spans and blocks, and are never read.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from jinja2 import Environment, Undefined
from jinja2 import nodes as jinja
from jinja2.compiler import Frame
from jinja2.nativetypes import NativeCodeGenerator

from calibration.base.units import ABSENT
from calibration.report.blocks import (
    Block,
    Blocks,
    Box,
    Bullets,
    Charts,
    Comment,
    Heading,
    Inline,
    Paragraph,
    Place,
    Styled,
    Table,
    Target,
    Term,
    Text,
    Verbatim,
)

BLOCKS: Final = (Target, Heading, Paragraph, Bullets, Term, Table, Charts, Verbatim, Box, Comment, Place)

BLANK_LINE: Final = re.compile(r"\n[ \t]*\n\s*")

ITEM: Final = "* "


class Data(str):
    """Text of a template."""

    __slots__ = ()


BREAK: Final = Data("\n\n")
"""Ends a paragraph, and a row of a table."""


class Fragment(tuple[Any, ...]):
    """What a template or macro made: data, values and blocks, in order."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return its text, as in a verbatim block."""
        return "".join(map(_text, self))

    def __html__(self) -> str:
        raise TypeError("a fragment is no HTML")


def _text(piece: Any) -> str:
    return piece.text if isinstance(piece, Styled) else str(piece)


class Generator(NativeCodeGenerator):
    """Compiles templates so that their own text is marked, and values are not turned into text."""

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.data({''.join(map(str, group))!r})"

    def _output_child_to_const(self, node: jinja.Expr, frame: Frame, finalize: Any) -> Any:
        if not isinstance(node, jinja.TemplateData):
            raise jinja.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class BlockEnvironment(Environment):
    """An environment whose templates make fragments."""

    code_generator_class = Generator
    data = Data

    @staticmethod
    def concat(pieces: Iterable[Any]) -> Fragment:  # type: ignore[override] # text is only one kind of piece
        """Return *pieces* as a fragment, those of fragments among them one by one."""
        found: list[Any] = []
        for piece in pieces:
            if isinstance(piece, Undefined):
                str(piece)  # strict ones raise; a missing ``else`` is nothing
            elif piece is not None:
                for part in piece if isinstance(piece, Fragment) else (piece,):
                    if isinstance(part, Data) and found and isinstance(found[-1], Data):
                        found[-1] = Data(f"{found[-1]}{part}")
                    else:
                        found.append(part)
        return Fragment(found)


def compose(fragment: Iterable[Any]) -> Blocks:
    """Return the blocks of *fragment*."""
    return tuple(_composed(fragment))


def _composed(fragment: Iterable[Any]) -> Iterator[Block]:
    items: list[Text] = []
    for kind, content in _parts(fragment):
        if kind == "item":
            items.append(content)
            continue
        if items:
            yield Bullets(tuple(items))
            items = []
        yield Paragraph(content) if kind == "paragraph" else content
    if items:
        yield Bullets(tuple(items))


def _parts(fragment: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the blocks of *fragment*, and between them the paragraphs and items of its text."""
    line: list[Inline] = []
    for piece in fragment:
        if isinstance(piece, BLOCKS):
            yield from _ended(line)
            line = []
            yield "block", piece
        elif isinstance(piece, Data):
            for number, text in enumerate(BLANK_LINE.split(piece)):
                if number:
                    yield from _ended(line)
                    line = []
                first, *others = re.split(r"\n[ \t]*(?=\* )", text)
                line.append(Data(first))
                for other in others:
                    yield from _ended(line)
                    line = [Data(other)]
        else:
            line.append(_value(piece))
    yield from _ended(line)


def _value(piece: Any) -> Inline:
    """Return an inserted value as text of one line."""
    return piece if isinstance(piece, Styled) else re.sub(r"\s+", " ", str(piece))


def _ended(line: list[Inline]) -> Iterator[tuple[str, Text]]:
    """Yield the paragraph or item in *line*, if it has any text."""
    first = next((item for item in line if not isinstance(item, str) or item.strip()), None)
    text = stripped(line)
    if isinstance(first, Data) and first.lstrip().startswith(ITEM):
        yield "item", stripped([str(text[0]).removeprefix(ITEM), *text[1:]])
    elif text:
        yield "paragraph", text


def stripped(line: Iterable[Inline]) -> Text:
    """Return *line* without empty text, and without spaces at its ends."""
    kept = [item for item in line if not isinstance(item, str) or item]
    while kept and isinstance(kept[0], str):
        kept[0] = kept[0].lstrip()
        if kept[0]:
            break
        del kept[0]
    while kept and isinstance(kept[-1], str):
        kept[-1] = kept[-1].rstrip()
        if kept[-1]:
            break
        del kept[-1]
    return tuple(kept)


def cells(fragment: Iterable[Any]) -> list[list[Text]]:
    """Return the rows of a table, titles first, from lines of ``title | cell``; a blank line ends a row.

    Raises ``ValueError`` if the titles of two rows differ.
    """
    rows: list[list[tuple[Text, Text]]] = [[]]
    for line in _lines(fragment):
        if line is None:
            rows.append([])
        else:
            rows[-1].append(_cell(line))
    rows = [row for row in rows if row]
    titles = [[title for title, _ in row] for row in rows]
    if any(title != titles[0] for title in titles):
        raise ValueError(f"rows of one table have different titles: {titles}")
    return titles[:1] + [[cell for _, cell in row] for row in rows]


def _lines(fragment: Iterable[Any]) -> Iterator[list[Inline] | None]:
    """Yield the lines of *fragment* that have any text; ``None`` for a blank line."""
    line: list[Inline] = []
    for piece in fragment:
        if isinstance(piece, Data):
            first, *others = piece.split("\n")
            line.append(Data(first))
            for other in others:
                yield line if stripped(line) else None
                line = [Data(other)]
        else:
            line.append(_value(piece))
    if stripped(line):
        yield line


def _cell(line: list[Inline]) -> tuple[Text, Text]:
    """Return the title and the cell of *line*."""
    for place, item in enumerate(line):
        if isinstance(item, Data) and "|" in item:
            title, _, cell = item.partition("|")
            rest = [cell, *line[place + 1 :]]
            empty = (ABSENT,) if any(not isinstance(item, Data) for item in rest[1:]) else ()
            return stripped([*line[:place], title]), stripped(rest) or empty
    raise ValueError(f"a row of a table without a title: {line}")
