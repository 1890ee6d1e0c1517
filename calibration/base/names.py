# SPDX-License-Identifier: Apache-2.0
"""Abbreviated names: unique prefixes, and suggestions for unknown names."""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final

from calibration.base.errors import InputError
from calibration.base.text import some_of

MAX_LISTED: Final = 5
"""Names listed in a message; the rest is counted."""


def pick(given: str, names: Collection[str], what: str) -> str:
    """Return the one of *names* equal to *given*, or the only one with that prefix; *what* describes them.

    Raises ``InputError`` if there is none, with the nearest, or several.
    """
    found = [given] if given in names else [name for name in names if name.startswith(given)]
    if len(found) != 1:
        raise not_one(given, found, names, what)
    return found[0]


def not_one(given: str, found: Sequence[str], names: Collection[str], what: str) -> InputError:
    """Return the error for *given*, which matches *found* of the *names*: several, or none."""
    if found:
        return InputError(f"ambiguous {what} {given!r}: {some_of(found, MAX_LISTED)}")
    if near := get_close_matches(given, names):
        return InputError(f"unknown {what} {given!r}, did you mean {' or '.join(near)}?")
    known = f"expected {some_of(list(names), MAX_LISTED)}" if names else "none exists"
    return InputError(f"unknown {what} {given!r}, {known}")


def natural(name: str) -> list[tuple[int, str]]:
    """Return a natural sort key: t2 before t10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
