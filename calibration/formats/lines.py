# SPDX-License-Identifier: Apache-2.0
"""What the readers of printed text share: lines, and numbers that are believed only where they are whole.

A number at the very end of a text may have lost its last digits. It is believed only where it looks like its
neighbours: what a program prints has the same number of decimals all through a column.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
WHOLE = re.compile(r"\d{1,9}", re.ASCII)

MAX_CHARACTERS = 16 * 1024 * 1024
"""What programs print of a calibration has a thousandth of this; more is refused before it is looked at."""


MAX_LINE = 4000
"""A row of a table of 256 nodes is shorter. A longer line is no row: its beginning is kept as a note."""


class Line(NamedTuple):
    """One line of a text. ``last`` tells that nothing follows, ``cut`` that not even its end was seen."""

    text: str
    last: bool = False
    cut: bool = False


def lines_of(text: str, *, whole: bool | None = None) -> list[Line]:
    """Return the lines of *text*, blank ones left out; carriage returns end lines too.

    *whole* tells whether the end of the last line was seen; by default that is so where a line end follows it.
    """
    ended = text.endswith(("\n", "\r")) if whole is None else whole
    found = [each.rstrip() for each in re.split(r"\r\n|\n|\r", text)]
    kept = [each if len(each) <= MAX_LINE else f"{each[:80]} ..." for each in found if each]
    return [
        Line(each, last=place == len(kept), cut=place == len(kept) and not ended) for place, each in enumerate(kept, 1)
    ]


def number(token: str) -> float | None:
    """Return the value of *token*, ``None`` where it is no plain decimal number."""
    return float(token) if NUMBER.fullmatch(token) else None


def whole_number(token: str) -> int | None:
    """Return the value of *token*, ``None`` where it is no plain whole number."""
    return int(token) if WHOLE.fullmatch(token) else None


def decimals(token: str) -> int:
    """Return how many digits stand after the point."""
    return len(token.partition(".")[2])


def believable(token: str, others: Iterable[str], usual: int) -> bool:
    """Tell whether a *token* that ends a text has all its digits: as many decimals as the *others*, or the *usual*."""
    return decimals(token) == max((decimals(each) for each in others if NUMBER.fullmatch(each)), default=usual)
