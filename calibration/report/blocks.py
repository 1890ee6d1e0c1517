# SPDX-License-Identifier: Apache-2.0
"""Blocks of a page: what the templates make, and the writers turn into reStructuredText, HTML and terminal output.

Foreign text is a string in a block, never markup: each writer escapes it in its own way, so that nothing that a SUT or
an operator wrote can change a page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from calibration.base.units import plural
from calibration.charts.base import Chart

Style = Literal[
    "strong",
    "literal",
    "struck",
    "on_target",
    "near",
    "poor",
    "observed",
    "invalid",
    "warn",
    "info",
    "aside",
]
"""Styles of text: those of trust and of severities, plain ones, and a remark on a line of its own.

The meaning is in the words, too."""


class Span(NamedTuple):
    """Text in a style."""

    text: str
    style: Style


class Link(NamedTuple):
    """Text that leads to ``target``: a URL, or ``#anchor`` on the page."""

    text: str
    target: str


class Dots(NamedTuple):
    """Values of others as dots on a line, with the own value and the accepted range; ``text`` says the same."""

    text: str
    values: tuple[float, ...]
    own: float
    accepted: tuple[float | None, float | None] | None


class Mark(NamedTuple):
    """A sign of the class ``kind``, what it means, and where it leads, if anywhere."""

    text: str
    kind: str
    meaning: str = ""
    target: str = ""


class Marks(NamedTuple):
    """Signs in a row; ``text`` says the same."""

    text: str
    marks: tuple[Mark, ...]


class Spark(NamedTuple):
    """A sparkline: runs of points, accepted band (top, height) and the last value, in px; ``text`` says the same."""

    text: str
    runs: tuple[str, ...]
    band: tuple[float, float] | None
    last: tuple[float, float] | None
    fails: bool


Styled = Span | Link | Dots | Mark | Marks | Spark
"""Text that is more than its words; each has ``text``."""

Inline = str | Styled

Text = tuple[Inline, ...]
"""A line of text; spaces and line breaks in it count as one space."""


@dataclass(frozen=True)
class Heading:
    """Title of the page (``level`` 0), of a section (1) or a part of it (2).

    ``anchor`` is its identifier where its text may not give one.
    """

    text: str
    level: int
    anchor: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``kind`` is its class on the site."""

    text: Text
    kind: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list; ``kind`` is its class on the site."""

    items: tuple[Text, ...]
    kind: str = ""


@dataclass(frozen=True)
class Term:
    """A term with what is said of it, and the evidence."""

    term: Text
    text: Text
    evidence: Bullets


@dataclass(frozen=True)
class Table:
    """A table: ``titles`` is empty for one of names and values.

    ``kind`` is its class on the site; rows with ``anchors`` can be linked. The first cell of a row is its heading where
    there are no titles, where rows can be linked, or with ``stub``.
    """

    titles: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]
    kind: str = ""
    anchors: tuple[str, ...] = ()
    stub: bool = False


@dataclass(frozen=True)
class Charts:
    """Charts, side by side unless they are wide."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Verbatim:
    """Text whose spaces and lines are kept."""

    text: str
    struck: bool = False


@dataclass(frozen=True)
class Box:
    """A box: a ``fold`` or the ``answer``, which have a title, a ``warning``, or one of another class."""

    title: str
    blocks: "Blocks"
    kind: str


@dataclass(frozen=True)
class Comment:
    """A comment in the source of the page."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A place that the site fills: links to data, or the method of a kind of measurement."""

    name: Literal["links", "method"]
    kind: str = ""


@dataclass(frozen=True)
class Target:
    """What ``#name`` leads to: the block that follows."""

    name: str


Block = Target | Heading | Paragraph | Bullets | Term | Table | Charts | Verbatim | Box | Comment | Place

Blocks = tuple[Block, ...]


def walk(blocks: Blocks) -> Iterator[Block]:
    """Yield *blocks* and those inside them."""
    for block in blocks:
        yield block
        if isinstance(block, Box):
            yield from walk(block.blocks)


def plain(text: Text) -> str:
    """Return *text* without styles, as one line."""
    return " ".join("".join(item if isinstance(item, str) else item.text for item in text).split())


def beginning(text: str, most: int) -> str:
    """Return *text*, of one longer than *most* characters the beginning and how many are left."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]} (and {plural(more, 'more character')} in the run document)"
