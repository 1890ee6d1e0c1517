# SPDX-License-Identifier: Apache-2.0
"""Names that people type: a unique prefix stands for the name, and an unknown one is answered with the nearest."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final

from calibration.errors import InputError

LISTED: Final = 5
"""Names in a message before the rest is counted."""


def pick(given: str, names: Collection[str], what: str) -> str:
    """Return the one of *names* that is *given*, or the only one that begins with it; *what* they are names of.

    Raises ``InputError`` if there is none, with the nearest, or several.
    """
    found = [given] if given in names else [name for name in names if name.startswith(given)]
    if len(found) != 1:
        raise not_one(given, found, names, what)
    return found[0]


def not_one(given: str, found: Sequence[str], names: Collection[str], what: str) -> InputError:
    """Return the error for *given*, which stands for the *found* of the *names*: several, or none of them."""
    if found:
        return InputError(f"ambiguous {what} {given!r}: {_listed(found, ', ')}")
    if near := get_close_matches(given, names):
        return InputError(f"unknown {what} {given!r}, did you mean {_listed(near, ' or ')}?")
    known = f"expected {_listed(list(names), ', ')}" if names else "there is none"
    return InputError(f"unknown {what} {given!r}, {known}")


def _listed(names: Sequence[str], between: str) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return between.join(names[:LISTED]) + more
