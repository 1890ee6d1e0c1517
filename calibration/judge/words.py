# SPDX-License-Identifier: Apache-2.0
"""Values as text: short, with units, and cheap enough for the verdicts of a whole lab."""

from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import Final

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


def changed_fact(before: str | None, after: str | None) -> str:
    """Return a fact before and after; of long ones only the parts that differ, or of long parts the words.

    What has little in common is not shortened: without the common words its parts could not be read.
    """
    old, new = (("unknown" if item is None else item) for item in (before, after))
    for between in ("; ", " "):
        one, other = old.split(between), new.split(between)
        common = (Counter(one) & Counter(other)).total()
        if max(len(old), len(new)) > MAX_FACT and 2 * common >= max(len(one), len(other)):
            shorter = (between.join(_gone(*parts)).rstrip(",;") for parts in ((one, other), (other, one)))
            old, new = (text or "none" for text in shorter)
    return f"{_cut(old)} -> {_cut(new)}"


def _gone(words: list[str], other: list[str]) -> Iterable[str]:
    """Return the *words* or parts that are not in *other*, or are there fewer times."""
    return [word for word in words if word not in other] or (Counter(words) - Counter(other)).elements()


def _cut(text: str) -> str:
    return text if len(text) <= 2 * MAX_FACT else f"{text[: 2 * MAX_FACT]}..."
