# SPDX-License-Identifier: Apache-2.0
"""Values by key, and those that are known."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of *pairs* of keys and values by key, both in the order of their first appearance."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def of_known(function: Callable[[list[V]], R], values: Iterable[V | None]) -> R | None:
    """Return the *function* of those of *values* that are not ``None``; ``None`` if all are."""
    known = [value for value in values if value is not None]
    return function(known) if known else None


def in_turn(lists: Collection[Sequence[V]]) -> list[V]:
    """Return the first of each of *lists*, then the second of each, and so on."""
    longest = max(map(len, lists), default=0)
    return [items[turn] for turn in range(longest) for items in lists if turn < len(items)]
