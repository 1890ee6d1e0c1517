# SPDX-License-Identifier: Apache-2.0
"""Common parts of the parsers: lines without terminal and web mark-up, and numbers."""

import html
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from calibration.base.errors import InputError
from calibration.formats.readings import Inconsistency, inconsistency

NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
LOCAL_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3}){1,3}\.\d{1,9}|\d{1,12},\d{1,2}", re.ASCII)
"""A number with thousands separators, or with a decimal comma and one or two decimals."""

WHOLE: Final = re.compile(r"\d{1,9}", re.ASCII)
DECIMALS: Final = re.compile(r"([.,])(\d+)$", re.ASCII)
DIGITS: Final = re.compile(r"\d[\d.,]*", re.ASCII)

MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""Longest text read; a day of PMA jitter with a line per second is shorter."""

MAX_LINES: Final = 100_000
"""Most lines read; a day of PMA jitter with a line per second is shorter."""

MAX_NOTES: Final = 100
"""Most lines kept beside the numbers of an output: each of its readings has them."""

MAX_LINE: Final = 4000
"""Longest row, for a table of 256 nodes. A longer line is cut and kept as a note."""

SHOWN: Final = 80
"""Characters of a line shown in a message."""

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
"""Prefixes of every line from ``ts``, ``script``, a journal, or a quotation."""

RULE: Final = re.compile(r"[\s\-=+:|_~*`]{3,}")
PROMPT: Final = re.compile(
    r"^\s{0,12}(?:\*\*)?(?:\([\w.-]{1,40}\) ?)?"
    r"(?:\[[^\]]{1,120}\]|[\w.-]{1,64}@[\w.-]{1,64}(?::[^\s$#]{0,200}| [^\s$#]{1,200})?)?\s?[$#\u276f]:?\s+(?=\S)"
)
"""A shell's prompt before a command."""


class Line(NamedTuple):
    """One line of text that is not blank.

    ``last``: nothing follows. ``cut``: its last word is a number that may lack digits. ``place`` is its number among
    the lines, ``gap`` whether a blank line precedes it.
    """

    text: str
    last: bool = False
    cut: bool = False
    place: int = 0
    gap: bool = False

    @property
    def words(self) -> list[str]:
        """The complete words."""
        words = self.text.split()
        return words[:-1] if self.cut else words


def split(text: str) -> list[str]:
    """Return the lines of *text*, also split at carriage returns. Raises ``InputError`` for too many."""
    found = LINE_END.split(text)
    if len(found) > MAX_LINES:
        raise InputError(f"at most {MAX_LINES} lines are read, the text has {len(found)}")
    return found


def plain(text: str) -> str:
    """Return *text* without escape sequences of terminals and mark-up of web pages."""
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    if "<" in text:
        text = TAG.sub(" ", TAG_OF_LINE.sub("\n", text))
    return ENTITY.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def lines_of(text: str, *, whole: bool | None = None) -> list[Line]:
    """Return the non-blank lines of *text* without common prefixes.

    *whole* is whether the end of the last line was seen; by default, whether it ends in a line end.
    """
    ended = text.endswith(("\n", "\r")) if whole is None else whole
    found = [line.rstrip() for line in split(plain(text).removeprefix("\ufeff"))]
    for prefix in PREFIXES:
        if 2 * sum(prefix.match(line) is not None for line in found) > sum(map(bool, found)):
            found = [prefix.sub("", line, count=1) for line in found]
    kept: list[Line] = []
    gap = False
    for line in found:
        bare = line.strip()
        if not bare or bare.startswith("```"):
            gap = True
            continue
        text = line if len(line) <= MAX_LINE else f"{line[:SHOWN]} ..."
        if bare[0] == bare[-1] == "|":
            text = text.replace("|", "  ").rstrip()
        if text.strip():
            kept.append(Line(text, place=len(kept), gap=gap))
            gap = False
    if kept:
        kept[-1] = kept[-1]._replace(last=True, cut=not ended and _may_lack_digits(kept))
    return kept


def _may_lack_digits(lines: Sequence[Line]) -> bool:
    """Return whether the number at the truncated end of *lines* may lack digits.

    It is complete if it has as many decimals as the number above it, or else as that beside it: programs print the same
    number of decimals throughout a table.
    """
    *words, last = lines[-1].text.split()
    if not DIGITS.fullmatch(last):
        return False
    above = lines[-2].text.split()[-1] if len(lines) > 1 else ""
    form = _form(above) or _form(words[-1] if words else "")
    return form is None or _form(last) != form


def _form(token: str) -> tuple[str, int] | None:
    """Return the decimal separator of *token* and the number of decimals; ``None`` if it has none."""
    match = DECIMALS.search(token) if number(token) is not None else None
    return None if match is None else (match[1], len(match[2]))


def number(token: str) -> float | None:
    """Return the value of *token*, ``None`` unless it is a decimal number."""
    if NUMBER.fullmatch(token):
        return float(token)
    if "," in token and LOCAL_NUMBER.fullmatch(token):
        return float(token.replace(",", "" if "." in token else "."))
    return None


def whole_number(token: str) -> int | None:
    """Return the value of *token*, ``None`` unless it is a plain whole number."""
    return int(token) if WHOLE.fullmatch(token) else None


def has_number(text: str) -> bool:
    """Return whether *text* contains a number as a separate word."""
    return any(number(token.strip("|:;()[]\"'*")) is not None for token in text.replace(",", " ").split())


def command_after_prompt(text: str) -> str | None:
    """Return the command after the shell's prompt in *text*; ``None`` if there is none."""
    prompt = PROMPT.match(text)
    return None if prompt is None else text[prompt.end() :].rstrip().removesuffix("**")


def bare_prompt(text: str) -> bool:
    """Return whether *text* is only a prompt."""
    bare = text.strip()
    return len(bare) <= MAX_LINE // 20 and bare[-1] in "$#>\u276f" and (len(bare) == 1 or "@" in bare)


def shortened(text: str) -> str:
    """Return *text* quoted, shortened for a message."""
    bare = text.strip()
    return repr(bare if len(bare) <= SHOWN else f"{bare[:SHOWN]}...")


def first_of(found: Sequence[str], most: int = 20) -> list[str]:
    """Return the first of *found*, and the number of the rest."""
    return list(found) if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]


def left_over(lines: Sequence[Line], understood: set[int], passed_over: re.Pattern[str]) -> Iterator[list[Line]]:
    """Yield the blocks of *lines* whose places are not in *understood*.

    A line matching *passed_over*, common to all results, neither ends a block nor is one. A heading after a blank line
    begins a new block if the block before it has numbers.
    """
    block: list[Line] = []
    numeric = False
    for line in lines:
        ended = line.place in understood or bare_prompt(line.text)
        if not ended and (passed_over.match(line.text) or RULE.fullmatch(line.text)):
            continue
        has = not ended and has_number(line.text)
        if block and (ended or (numeric and line.gap and not has)):
            yield block
            block, numeric = [], False
        if not ended:
            block.append(line)
            numeric = numeric or has
    if block:
        yield block


def not_understood(where: str, first: str, count: int) -> Inconsistency:
    """Return the inconsistency for an unrecognised block of *count* lines beginning with *first*."""
    more = "" if count == 1 else f" and {count - 1} more line{'s' * (count > 2)}"
    return inconsistency("NOT_UNDERSTOOD", where[: 2 * SHOWN], f"no reader knows {shortened(first)}{more}")
