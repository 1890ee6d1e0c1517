# SPDX-License-Identifier: Apache-2.0
"""Text alternatives of charts: what is drawn, and the values that a reader of the picture would take from it."""

from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_CHARACTERS: Final = 250
"""A screen reader reads an alternative in one go: in a longer one the answer is hard to find."""


class Value(NamedTuple):
    """A value of a chart, its text with the unit, and where it is."""

    value: float
    text: str
    where: str


def alternative(what: str, values: Iterable[str]) -> str:
    """Return *what* is drawn and its *values*, the most important first; those without room are counted."""
    found = list(values)
    for count in range(len(found), 0, -1):
        more = [f"{len(found) - count} more"] if count < len(found) else []
        text = f"{what}: {'; '.join([*found[:count], *more])}."
        if len(text) <= MAX_CHARACTERS:
            return text
    return f"{what}: {found[0] if found else 'no values'}."


def extremes(found: Iterable[Value]) -> str:
    """Return the lowest and the highest of *found*, which has some, and where they are."""
    values = list(found)
    ends = [rank(values, key=lambda item: item.value) for rank in (min, max)]
    if len(values) > 1 and len({item.text for item in ends}) == 1:
        return f"all {ends[0].text}"
    low, high = (f"{item.text} ({item.where})" for item in ends)
    return f"lowest {low}, highest {high}" if len(values) > 1 else low
