# SPDX-License-Identifier: Apache-2.0
"""Expected values: how they are written in a file, and whether a found value is one of them."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from calibration.base.comparisons import Kind, choice, chosen, parameter, same
from calibration.base.cpulists import MAX_ID, format_cpulist, parse_cpulist
from calibration.base.grouping import grouped
from calibration.base.text import some_of

MAX_VALUES: Final = 64
"""Most alternatives of one setting."""

MAX_TEXT: Final = 4096
"""Most characters of a value: a kernel's command line has as many."""

RANGE: Final = re.compile(r"(-?[0-9]{1,20})?\.\.(-?[0-9]{1,20})?", re.ASCII)
"""``0..10``, ``16..``, ``..10``: inclusive bounds."""

INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def texts(given: Any) -> tuple[str, ...]:
    """Return the alternatives in *given*, a text, a number or a list of them. Raises ``ValueError``."""
    parts = given if isinstance(given, list | tuple) else [given]
    if not 0 < len(parts) <= MAX_VALUES:
        raise ValueError(f"expected a value, or a list of at most {MAX_VALUES}, not {given!r}"[:MAX_TEXT])
    return tuple(_text(part) for part in parts)


def _text(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int):
        hint = ": put it in quotes" if isinstance(given, bool | float) else ""
        wrong = f"expected a text or a whole number, not {given!r}{hint}"[:MAX_TEXT]
        raise ValueError(wrong)  # noqa: TRY004 - it is the file that is wrong, not the caller
    text = " ".join(str(given).split())
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ValueError(f"not a printable text of at most {MAX_TEXT} characters: {text[:40]!r}")
    return text


def switch(given: Any) -> tuple[str, ...]:
    """Return ``on`` or ``off``, which YAML reads as true and false. Raises ``ValueError``."""
    text = {True: "on", False: "off"}.get(given, given) if isinstance(given, bool) else given
    if text not in ("on", "off"):
        raise ValueError(f"expected on or off, not {given!r}"[:MAX_TEXT])
    return (text,)


def cpu_list(given: Any) -> tuple[str, ...]:
    """Return a list of CPUs in the kernel's form, or ``none``. Raises ``ValueError``."""
    text = _text(given) if isinstance(given, str | int) else ""
    try:
        known = text == "none" or parse_cpulist(text, MAX_ID)
    except ValueError as error:
        raise ValueError(f"must be CPUs such as 2-7,10, or none: {error}") from error
    if not known:
        raise ValueError(f"must be CPUs such as 2-7,10, or none, not {given!r}"[:500])
    return (text,)


def matches(pattern: str, text: str) -> bool:
    """Return whether *text* matches *pattern*, in which ``*`` and ``?`` alone are special."""
    return pattern == text or fnmatchcase(text, pattern.replace("[", "[[]"))


def accepts(wanted: Iterable[str], found: str, kind: Kind = choice, last: int | None = None) -> bool:
    """Return whether *found* is one of the values *wanted*, by the *kind* of the fact; *last* is the last CPU."""
    return any(_accepts(value, found, kind, last) for value in wanted)


def _accepts(wanted: str, found: str, kind: Kind, last: int | None) -> bool:
    if same(kind, wanted, found, last):
        return True
    bounds, value = RANGE.fullmatch(wanted), _number(found, kind)
    if bounds is not None and any(bounds.groups()) and value is not None:
        low, high = (None if bound is None else int(bound) for bound in bounds.groups())
        return (low is None or value >= low) and (high is None or value <= high)
    text = chosen(found) if kind in (choice, parameter) and "[" not in wanted else found
    return matches(wanted, " ".join(text.split()))


def _number(found: str, kind: Kind) -> int | float | None:
    try:
        value = kind(found, None)
    except ValueError:
        value = None
    return value if isinstance(value, int | float) else int(found) if INTEGER.fullmatch(found) else None


MAX_SHOWN: Final = 8
"""Values, or places of one value, named in a sentence; the rest is counted."""


def spread(values: Mapping[str, str], wrong: Iterable[str], noun: str) -> str:
    """Return *values* by place as a sentence: those of the places that are *wrong*, or all.

    ``powersave on 3 of 504 CPUs (4,8-9)``. A sole value of no place, ``""``, stands for itself.
    """
    if set(values) == {""}:
        return values[""] or "empty"
    named = list(wrong) or list(values)
    groups = grouped((values[place] or "empty", place) for place in named)
    parts = []
    for value, places in groups.items():
        if len(places) == len(values):
            parts.append(f"{value} on all {len(values)} {noun}" if len(values) > 1 else f"{value} ({places[0]})")
        else:
            parts.append(f"{value} on {len(places)} of {len(values)} {noun} ({_places(places)})")
    return some_of(parts, MAX_SHOWN, "; ")


def _places(places: list[str]) -> str:
    if all(place.isascii() and place.isdigit() for place in places):
        return format_cpulist(map(int, places))
    return some_of(places, MAX_SHOWN)
