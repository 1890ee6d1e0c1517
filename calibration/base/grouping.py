# SPDX-License-Identifier: Apache-2.0
"""Values by key, and those that are known."""

from collections.abc import Callable, Iterable
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
