# SPDX-License-Identifier: Apache-2.0
"""Fields of a step's answer that its plan names, such as ``("result", "points", "*", "windows_hz")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.runner.intervals import middle

EVERY = "*"
"""In a path: every element of a list."""


class Lacking(ValueError):
    """An answer has no such field; its text is the name of the field."""


def field(value: Any, path: Sequence[str], place: Sequence[str] = ()) -> Any:
    """Return what is at *path* in *value*, which is at *place* in an answer. Raises Lacking."""
    for number, key in enumerate(path, 1):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (LookupError, TypeError, ValueError):
            raise lacking(*place, *path[:number]) from None
    return value


def chosen(answer: Any, path: Sequence[str]) -> list[int]:
    """Return the numbers at *path* in *answer*, at least one. Raises Lacking."""
    found = elements(field(answer, path), path)
    for place, number in found:
        if type(number) is not int:
            raise lacking(*place)
    return [number for _, number in found]


def figures(answer: Any, path: Sequence[str]) -> list[float | None]:
    """Return a figure for each element of the first list on *path* in *answer*: the median of all numbers there.

    A figure is None if the way to it ends with null, as that of a point with an error. Raises Lacking.
    """
    first = path.index(EVERY)
    points = elements(field(answer, path[:first]), path[:first])
    found = [numbers(point, path[first + 1 :], place) for place, point in points]
    return [middle(values) if values else None for values in found]


def numbers(value: Any, path: Sequence[str], place: Sequence[str]) -> list[float]:
    """Return the numbers at *path* in *value*, which is at *place* in an answer; null has none. Raises Lacking."""
    if value is None:
        return []
    if path and path[0] != EVERY:
        return numbers(field(value, path[:1], place), path[1:], (*place, path[0]))
    if path:
        return [number for inside, part in elements(value, place) for number in numbers(part, path[1:], inside)]
    found: list[float] = []
    for inside, number in elements(value, place):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise lacking(*inside)
        found.append(number)
    return found


def elements(value: Any, place: Sequence[str]) -> list[tuple[Sequence[str], Any]]:
    """Return the place and the value of each element of the list *value*. Raises Lacking if it has none."""
    if not isinstance(value, list) or not value:
        raise lacking(*place)
    return [((*place, str(number)), part) for number, part in enumerate(value)]


def lacking(*place: str) -> Lacking:
    """Return the error for an answer with nothing at *place*."""
    return Lacking(".".join(place))
