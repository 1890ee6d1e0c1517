# SPDX-License-Identifier: Apache-2.0
"""What the readers of printed text share: lines without what terminals and web pages add, and numbers.

A number at the very end of a text may have lost its last digits. It counts only where it looks like its neighbours:
what a program prints has the same number of decimals all through a column.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from calibration.errors import InputError
from calibration.results.readings import Inconsistency, inconsistency

NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
LOCAL_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3}){1,3}\.\d{1,9}|\d{1,12},\d{1,2}", re.ASCII)
"""A number with a separator of thousands, or with a decimal comma and the one or two decimals of such programs."""

WHOLE: Final = re.compile(r"\d{1,9}", re.ASCII)

MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""A day of PMA jitter with a line per second has less; more is refused before it is looked at."""

MAX_LINES: Final = 100_000
"""More than a day of PMA jitter with a line per second; more is refused too."""

MAX_NOTES: Final = 100
"""Lines beside the figures that are kept of an output: each of its readings has them."""

MAX_LINE: Final = 4000
"""A row of a table of 256 nodes is shorter. A longer line is no row: its beginning is kept as a note."""

SHOWN: Final = 80
"""So many characters of a line are shown in a message."""

LINE_END: Final = re.compile(r"\r\n|\n|\r")
ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")
ENTITY: Final = re.compile(r"&(?:gt|lt|amp|nbsp|quot|reg|#\d{1,4});")
TAG_OF_LINE: Final = re.compile(r"</?(?:br|tr|p|div|pre|li)\b[^<>\n]{0,200}>", re.IGNORECASE)
TAG: Final = re.compile(r"</?(?:code|span|t[dh]|table|tbody|thead|samp|font|b|i)\b[^<>\n]{0,200}>", re.IGNORECASE)
PREFIXES: Final = (
    re.compile(
        r"\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d)"
        r"(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?: [\w.-]{1,64} [\w./-]{1,64}\[\d{1,8}\]:)?(?:[ \t]|$)"
        r"|(?:\[ {0,8}\d{1,8}\.\d{1,9}\]|\d{10}\.\d{3,9})(?:[ \t]|$)"
    ),
    re.compile(r"[ \t]{0,8}(?:#>|//|>|#)(?:[ \t]|$)"),
)
"""What ``ts``, ``script``, a journal, or a quotation puts before every line."""

RULE: Final = re.compile(r"[\s\-=+:|_~*`]{3,}")
PROMPT: Final = re.compile(
    r"^\s{0,12}(?:\*\*)?(?:\([\w.-]{1,40}\) ?)?"
    r"(?:\[[^\]]{1,120}\]|[\w.-]{1,64}@[\w.-]{1,64}(?::[^\s$#]{0,200}| [^\s$#]{1,200})?)?\s?[$#\u276f]:?\s+(?=\S)"
)
"""A shell's prompt before a command."""


class Line(NamedTuple):
    """One line of a text. ``last`` tells that nothing follows, ``cut`` that not even its end was seen.

    ``place`` is its number among the lines that are not blank, ``gap`` tells that a blank line stands above it.
    """

    text: str
    last: bool = False
    cut: bool = False
    place: int = 0
    gap: bool = False


def split(text: str) -> list[str]:
    """Return the lines of *text*; a carriage return ends one too. Raises ``InputError`` for too many."""
    found = LINE_END.split(text)
    if len(found) > MAX_LINES:
        raise InputError(f"expected at most {MAX_LINES} lines, found {len(found)}")
    return found


def plain(text: str) -> str:
    """Return *text* without the escape sequences of terminals and the mark-up of web pages."""
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    if "<" in text:
        text = TAG.sub(" ", TAG_OF_LINE.sub("\n", text))
    return ENTITY.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def lines_of(text: str, *, whole: bool | None = None) -> list[Line]:
    """Return the lines of *text* that are not blank, without what stands before each of them.

    *whole* tells whether the end of the last line was seen; by default that is so where a line end follows it.
    """
    ended = text.endswith(("\n", "\r")) if whole is None else whole
    found = [each.rstrip() for each in split(plain(text).removeprefix("\ufeff"))]
    for prefix in PREFIXES:
        if 2 * sum(prefix.match(each) is not None for each in found) > sum(map(bool, found)):
            found = [prefix.sub("", each, count=1) if prefix.match(each) else each for each in found]
    kept: list[Line] = []
    gap = False
    for each in found:
        if not each.strip() or each.lstrip().startswith("```"):
            gap = True
            continue
        bare = each.strip()
        shown = each if len(each) <= MAX_LINE else f"{each[:SHOWN]} ..."
        if bare[0] == bare[-1] == "|" and len(each) <= MAX_LINE:
            shown = each.replace("|", "  ")
        if not shown.strip():
            continue
        kept.append(Line(shown.rstrip(), place=len(kept), gap=gap))
        gap = False
    if kept:
        kept[-1] = kept[-1]._replace(last=True, cut=not ended)
    return kept


def number(token: str) -> float | None:
    """Return the value of *token*, ``None`` where it is no decimal number."""
    if NUMBER.fullmatch(token):
        return float(token)
    if "," in token and LOCAL_NUMBER.fullmatch(token):
        return float(token.replace(",", "" if "." in token else "."))
    return None


def whole_number(token: str) -> int | None:
    """Return the value of *token*, ``None`` where it is no plain whole number."""
    return int(token) if WHOLE.fullmatch(token) else None


def has_figure(text: str) -> bool:
    """Tell whether a number stands in *text* as a word of its own."""
    return any(number(token.strip("|:;()[]\"'*")) is not None for token in text.replace(",", " ").split())


def decimal_comma(token: str) -> bool:
    """Tell whether the comma in *token* stands before its decimals."""
    return "," in token and "." not in token


def decimals(token: str) -> int:
    """Return how many digits stand after the point or the decimal comma."""
    return len(token.partition("," if decimal_comma(token) else ".")[2])


def believable(token: str, others: Iterable[str], usual: int) -> bool:
    """Tell whether a *token* that ends a text has all its digits: as many decimals as the *others*, or the *usual*."""
    known = [(decimals(each), decimal_comma(each)) for each in others if number(each) is not None]
    return (decimals(token), decimal_comma(token)) == max(known, default=(usual, False))


def command_after_prompt(text: str) -> str | None:
    """Return the command after the shell's prompt in *text*; ``None`` where there is none."""
    prompt = PROMPT.match(text)
    return None if prompt is None else text[prompt.end() :].rstrip().removesuffix("**")


def bare_prompt(text: str) -> bool:
    """Tell whether *text* is a prompt and nothing else."""
    bare = text.strip()
    return len(bare) <= MAX_LINE // 20 and bare[-1] in "$#>\u276f" and (len(bare) == 1 or "@" in bare)


def shortened(text: str) -> str:
    """Return *text* quoted, and no more of it than a message shows."""
    bare = text.strip()
    return repr(bare if len(bare) <= SHOWN else f"{bare[:SHOWN]}...")


def first_of(found: Sequence[str], most: int = 20) -> list[str]:
    """Return the first of *found*, and how many more there are."""
    return list(found) if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]


def left_over(lines: Sequence[Line], understood: set[int], passed_over: re.Pattern[str]) -> Iterator[list[Line]]:
    """Yield the blocks of *lines* whose places are not among those *understood*.

    A line of the form *passed_over*, which results have everywhere, neither ends a block nor is one. A heading after a
    blank line begins a new block where the block before it has figures.
    """
    block: list[Line] = []
    figures = False
    for line in lines:
        if line.place in understood or bare_prompt(line.text):
            if block:
                yield block
            block, figures = [], False
            continue
        if passed_over.match(line.text) or RULE.fullmatch(line.text):
            continue
        figure = has_figure(line.text)
        if figures and line.gap and not figure:
            yield block
            block, figures = [], False
        block.append(line)
        figures = figures or figure
    if block:
        yield block


def not_understood(where: str, first: str, count: int) -> Inconsistency:
    """Return the inconsistency of a block of *count* lines, of which *first* is the first, that no reader knows."""
    more = "" if count == 1 else f" and {count - 1} more line{'s' * (count > 2)}"
    return inconsistency("NOT_UNDERSTOOD", where[: 2 * SHOWN], f"no reader knows {shortened(first)}{more}")
