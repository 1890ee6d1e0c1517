# SPDX-License-Identifier: Apache-2.0
"""Values as text: short, with units, and cheap enough for the verdicts of a whole lab."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from math import isfinite
from typing import Final

from calibration.base.text import some_of
from calibration.base.units import RATES


def finite(value: float | None) -> float | None:
    """Return *value*; ``None`` if it is unknown, NaN or an infinity."""
    return value if value is not None and isfinite(value) else None


def number(value: float) -> str:
    """Return *value* with four significant digits or all integer digits, without an exponent unless tiny."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


LARGER_UNITS: Final[dict[str, tuple[tuple[float, float, str], ...]]] = {
    "Hz": ((1e6, 1e9, "GHz"),),
    "MB/s": ((1e3, 1e3, "GB/s"),),
    "ns": ((1e7, 1e6, "ms"), (1e4, 1e3, "µs")),
    "per hour": tuple((scale, scale, larger) for scale, larger in RATES[:-1]),
}
"""Larger units by unit, with the value from which each is used, largest first."""


def amount(value: float, unit: str | None) -> str:
    """Return *value* with its *unit*, or a larger one; shares in per cent."""
    if unit == "fraction":
        return share(value)
    for minimum, scale, larger in LARGER_UNITS.get(unit or "", ()):
        if abs(value) >= minimum:
            return f"{number(value / scale)} {larger}"
    return f"{number(value)} {unit}" if unit else number(value)


def within(lower: float | None, upper: float | None, unit: str | None) -> str:
    """Return a range, possibly open at one end, as text."""
    if lower is None:
        return f"at most {amount(upper, unit)}" if upper is not None else "anything"
    if upper is None:
        return f"at least {amount(lower, unit)}"
    low, high = amount(lower, unit), amount(upper, unit)
    bare, _, low_unit = low.rpartition(" ")
    return f"{bare if bare and high.endswith(f' {low_unit}') else low} to {high}"


def share(value: float) -> str:
    """Return a share as per cent."""
    return f"{100 * value:.3g} %"


def change(size: float, interval: tuple[float, float] | None) -> str:
    """Return a relative change in per cent, with its interval if finite."""
    text = f"{100 * size:+.3g} %"
    if interval is None or not all(map(isfinite, interval)):
        return text
    return f"{text} ({100 * interval[0]:+.3g} to {100 * interval[1]:+.3g} %)"


MAX_FACT: Final = 40
"""Longer facts are shortened to the parts or words that changed."""

MAX_DIFFERENCES: Final = 4
"""Differences of one fact that are shown before the rest is counted."""

MAX_WORDS: Final = 1000
"""Words of a fact that are compared one by one."""


def changed_fact(before: str | None, after: str | None) -> str:
    """Return the difference of a fact, ``old -> new``, with ``-`` what is gone and with ``+`` what is new.

    Of a list of parts (``0: 128 GiB; 1: 96 GiB``) it has those that changed, of a long part its words.
    """
    old, new = ("unknown" if item is None else item for item in (before, after))
    return some_of(list(_changed_parts(old, new)), MAX_DIFFERENCES) or f"{_cut(old)} -> {_cut(new)}"


def _changed_parts(old: str, new: str) -> Iterator[str]:
    """Yield the parts that changed: those of one name (before a colon), then the others in their order."""
    one, other = ({part.partition(": ")[0]: part for part in text.split("; ")} for text in (old, new))
    for name in one:
        if one[name] != other.get(name, one[name]):
            changes = _changed_words(*(part.removeprefix(f"{name}: ") for part in (one[name], other[name])))
            yield f"{name}: {', '.join(changes)}"
    gone = [part for name, part in one.items() if name not in other]
    come = [part for name, part in other.items() if name not in one]
    for pair in zip(gone, come, strict=False):
        yield from _changed_words(*pair)
    count = min(len(gone), len(come))
    yield from (f"-{_cut(part)}" for part in gone[count:])
    yield from (f"+{_cut(part)}" for part in come[count:])


def _changed_words(old: str, new: str) -> Iterator[str]:
    """Yield the words that changed, or both texts if they are short or have little in common."""
    one, other = old.split(" "), new.split(" ")
    most = max(len(one), len(other))
    long = max(len(old), len(new)) > MAX_FACT and most <= MAX_WORDS
    found = SequenceMatcher(None, one, other, autojunk=False).get_opcodes() if long else []
    if 2 * sum(end - begin for tag, begin, end, _, _ in found if tag == "equal") < most:
        yield f"{_cut(old)} -> {_cut(new)}"
        return
    for tag, begin, end, first, last in found:
        gone, come = (_cut(" ".join(words).rstrip(",")) for words in (one[begin:end], other[first:last]))
        if tag != "equal":
            yield f"{gone} -> {come}" if gone and come else f"-{gone}" if gone else f"+{come}"


def _cut(text: str) -> str:
    return text if len(text) <= 2 * MAX_FACT else f"{text[: 2 * MAX_FACT]}..."
