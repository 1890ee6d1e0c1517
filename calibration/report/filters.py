# SPDX-License-Identifier: Apache-2.0
"""Filters for templates: the formatting of ``calibration.base.units``, and foreign text as harmless reStructuredText.

Everything a SUT or an operator wrote passes through ``inline`` or ``literal`` before it reaches a page.
"""

import re
import shlex
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from docutils.utils import column_width

from calibration.base.statistics import Estimate
from calibration.base.text import visible
from calibration.base.units import ABSENT
from calibration.context.model import Context
from calibration.measurements.evidence import Missing
from calibration.measurements.table import Table
from calibration.results.model import NotMeasured

SAFE_PUNCTUATION = frozenset(" ,/%=&;+")
"""ASCII punctuation that starts no markup unless it is the first character."""

SAFE_SIGNS = frozenset("·±→")
"""Other signs that start no markup."""

MAX_INLINE_CHARACTERS = 1_000
MAX_LITERAL_CHARACTERS = 8_000
"""Longer texts are truncated on a page; the run document has all of them."""

MAX_NAMED_ALIKE = 3
"""Missing parts with the same reason that are named one by one: a server has hundreds of CPUs."""


def inline(text: object) -> str:
    """Return *text* as reStructuredText that renders as exactly that text in a paragraph or a table cell.

    Runs of spaces are collapsed; an empty text becomes the mark for a missing value.
    """
    words = _cut(visible(str(text)), MAX_INLINE_CHARACTERS).split()
    if not words:
        return "\\" + ABSENT
    return " ".join(_escaped(word, first=index == 0) for index, word in enumerate(words))


def linked(text: object) -> str:
    """Return *text* as :func:`inline` does, with its last words ``see Advice`` as a link to that section."""
    shown = inline(text)
    return re.sub(r"see Advice\\?\.$", "see Advice_.", shown)


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


def literal(text: str, indent: int = 4) -> str:
    """Return *text* indented as the body of a literal block; only a newline starts a new line.

    Trailing spaces are removed, inner spaces kept, and no line can end the block.
    """
    lines = [_cut(visible(line.rstrip()).rstrip(), MAX_LITERAL_CHARACTERS) for line in text.split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return textwrap.indent("\n".join(lines), " " * indent)


def _cut(text: str, characters: int) -> str:
    left_out = len(text) - characters
    return text if left_out <= 0 else f"{text[:characters]} (and {left_out} more characters in the run document)"


def option(text: str) -> str:
    """Return *text* as the value of a directive option: one line, taken verbatim by docutils."""
    return " ".join(visible(text).split())


def heading(text: object, underline: str) -> str:
    """Return *text* as a section title, underlined to its width."""
    title = inline(text)
    return f"{title}\n{underline * max(4, column_width(title))}"


def command(argv: Sequence[str]) -> str:
    """Return an argument vector as a shell command, in the style of the published pages."""
    return "$ " + visible(shlex.join(argv))


class RatedCell(NamedTuple):
    """A cell of a node matrix, what the firmware says of it, and what was measured, in the same unit."""

    cpu_node: int
    memory_node: int
    rated: int
    measured: Estimate


def rated(table: Table, column: str, context: Context | None, field: str) -> list[RatedCell]:
    """Return the cells of *column* of a node matrix whose *field* the firmware rates."""
    known = {node.id for node in context.nodes} if context else set[int]()
    return [
        RatedCell(row, node, rating, cell)
        for (row, node), cell in table.cells(column).items()
        if context and {row, node} <= known
        if (access := context.rated_access(row, node)) is not None
        if (rating := getattr(access, field)) is not None
    ]


Gone = TypeVar("Gone", Missing, NotMeasured)


def alike(missing: Sequence[Gone]) -> Iterator[Gone]:
    """Yield *missing*; if many share a reason, only the first of them, with the number of the others."""
    reasons = [tuple(gone.model_copy(update={"what": ""})) for gone in missing]
    counts = Counter(reasons)
    for gone, reason in zip(missing, reasons, strict=True):
        count = counts[reason]
        if 0 < count <= MAX_NAMED_ALIKE:
            yield gone
        elif count:
            counts[reason] = 0
            yield gone.model_copy(update={"what": f"{gone.what}, and {count - 1} more"})
