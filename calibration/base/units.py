# SPDX-License-Identifier: Apache-2.0
"""Numbers in readable form: values with units, sizes, times, intervals, shares, lists of CPUs."""

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Protocol

from calibration.base.cpulists import format_cpulist
from calibration.base.statistics import MIN_COVERAGE, Estimate

EXACT = 10_000
"""A size is given exactly in the first unit in which it is less than this."""

ABSENT = "-"
"""Text of a cell without a value; the reason is below the table."""

LONG_NS = 10_000
"""Times from this many ns on are shown in µs to s."""

DIGITS = 4
"""Significant digits of a value: one more than the best intervals justify, so rounding never decides."""

TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
CLOCKS = ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz"))
BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
"""Units with their sizes, largest first."""


class Shown(Protocol):
    """A value in a unit with an optional interval: an estimate, a metric, a record."""

    @property
    def value(self) -> float:
        """The value in its unit."""

    @property
    def unit(self) -> str:
        """The unit."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval in the unit; ``None`` if unknown."""


def fixed(value: float | None, decimals: int = 1, width: int = 0) -> str:
    """Return *value* with *decimals*, right-aligned in *width*; a missing value as its mark."""
    return f"{ABSENT:>{width}}" if value is None else f"{value:>{width}.{decimals}f}"


def significant(value: float | None, digits: int = DIGITS) -> str:
    """Return *value* rounded to *digits* significant digits, without an exponent."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    exponent = int(f"{abs(value):e}".split("e")[1])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:.{decimals}f}"


RATES = ((3600.0, "per second"), (60.0, "per minute"), (1.0, "per hour"))
"""Units of rates with their sizes in events per hour."""


def rate(per_hour: float) -> str:
    """Return a rate per second, minute or hour with three digits, without trailing zeros."""
    scale, unit = fitting(per_hour, RATES)
    shown = significant(per_hour / scale, 3)
    return f"{shown.rstrip('0').rstrip('.') if '.' in shown else shown} {unit}"


def table_value(value: float | None, unit: str) -> str:
    """Return a value as in tables: one decimal for ns and MB/s, like Intel MLC, else four digits.

    Latencies below 100 ns have two decimals and below 10 ns three, because one would hide the interval.
    """
    if value is None:
        return ABSENT
    if unit == "ns" and abs(value) < 100:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"
    return f"{value:.1f}" if unit in {"ns", "MB/s"} else significant(value)


def interval(bounds: tuple[float, float] | None, unit: str) -> str:
    """Return an interval as ``low to high`` in *unit*, without the unit."""
    return ABSENT if bounds is None else f"{table_value(bounds[0], unit)} to {table_value(bounds[1], unit)}"


def half_width(estimate: Estimate | None) -> str:
    """Return the half-width of an estimate's interval in its unit with two digits.

    Without a sign: an interval from order statistics need not be symmetric.
    """
    return significant(half(estimate), 2)


def half(shown: Shown | None) -> float | None:
    """Return the half-width of an interval in its unit; ``None`` if there is none."""
    return None if shown is None or shown.interval is None else (shown.interval[1] - shown.interval[0]) / 2


def number(cell: Estimate | float | None) -> float | None:
    """Return the value of an estimate, and a number as it is."""
    return cell.value if isinstance(cell, Estimate) else cell


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in per cent with *digits* significant digits."""
    return ABSENT if share is None else f"{significant(share * 100, digits)} %"


def spreads(estimate: Estimate) -> str:
    """Return the spreads of an estimate's rounds, placements and windows, and the name of the largest."""
    known = (estimate.rounds_spread, estimate.between_spread, estimate.within_spread)
    largest = "" if estimate.largest_spread is None else f" ({estimate.largest_spread[0]})"
    return " / ".join(percent(spread) for spread in known) + largest


def size(count: int | None) -> str:
    """Return a number of bytes in the largest binary unit that divides it, else with three digits."""
    if count is None:
        return ABSENT
    for scale, unit in BYTES:
        if scale <= count < EXACT * scale and count % scale == 0:
            return f"{count // scale} {unit}"
    return f"{count} B" if count < 1 << 10 else _in_unit(count, BYTES, 3)


def time_ns(value: float | None, digits: int = 3) -> str:
    """Return a time in the unit that keeps it between 1 and 1000: ns, µs, ms or s."""
    return _in_unit(value, TIMES, digits)


def _in_unit(value: float | None, units: Sequence[tuple[float, str]], digits: int) -> str:
    if value is None:
        return ABSENT
    scale, unit = fitting(value, units)
    return f"{significant(value / scale, digits)} {unit}"


def fitting(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the largest of *units* (size and name) that *value* reaches, else the smallest."""
    return next((unit for unit in units if abs(value) >= unit[0]), units[-1])


def duration(value_s: float | None) -> str:
    """Return a duration in s: with one decimal below a minute, else in minutes and seconds, or hours and minutes."""
    if value_s is None:
        return ABSENT
    if value_s < 60:
        return f"{value_s:.1f} s"
    whole = round(value_s)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def frequency(value_hz: float | None) -> str:
    """Return a frequency in Hz, kHz, MHz or GHz with four digits."""
    return _in_unit(value_hz, CLOCKS, DIGITS)


def cpus(numbers: Iterable[int] | None) -> str:
    """Return CPU or node numbers in the kernel's list format, for example ``0-3,8``."""
    return ABSENT if numbers is None else format_cpulist(numbers) or "none"


def exact_duration(value_s: float) -> str:
    """Return an exact duration (not a measured one): ``12 h``, ``5 min``, ``1 min 30 s``."""
    return duration(value_s).replace(".0 s", " s").removesuffix(" 0 s").removesuffix(" 0 min")


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Return *noun* and its *numbers*, in singular or plural: ``CPU 3``, ``nodes 0-2,4``."""
    found = set(numbers)
    return f"{noun}{'s' * (len(found) > 1)} {format_cpulist(found)}"


def exact_time_ns(value: float) -> str:
    """Return an exact time (not a measured one) in ns to s, without trailing zeros."""
    scale, unit = fitting(value, TIMES)
    return f"{value / scale:.9g} {unit}"


def exact_percent(share: float) -> str:
    """Return an exact share (not a measured one) in per cent, without trailing zeros."""
    return f"{share * 100:.9g} %"


def measured(value: float | None, unit: str) -> str:
    """Return a value with its unit in readable form: long times in µs to s, shares in per cent."""
    if value is None:
        return ABSENT
    if unit == "fraction":
        return percent(value, 3)
    if unit == "Hz":
        return frequency(value)
    if unit == "per hour":
        return rate(value)
    if unit == "ns" and abs(value) >= LONG_NS:
        return time_ns(value, DIGITS)
    return f"{table_value(value, unit)} {unit}"


def relative_half(shown: Shown) -> float | None:
    """Return the half-width of an interval, relative to the value; ``None`` if there is none."""
    width = half(shown)
    return None if width is None or not shown.value else width / abs(shown.value)


def headlines(values: Sequence[Shown]) -> str:
    """Return values of one unit side by side, with the digits that their intervals justify: ``98.1 / 140 ns``."""
    scale, unit = _scale(values[0])
    if unit == "time":
        return " / ".join(time_ns(shown.value) for shown in values)
    width = relative_half(values[0])
    digits = 4 if len(values) == 1 and width is not None and width < 0.005 else 3
    return " / ".join(significant(shown.value / scale, digits) for shown in values) + f" {unit}".rstrip()


def headline(shown: Shown) -> str:
    """Return one value in the same way."""
    return headlines([shown])


def headline_range(values: Sequence[Shown]) -> str:
    """Return the lowest to the highest of *values* in the same way; one alone if both look alike."""
    if not values:
        return ABSENT
    low, high = (headline(pick(values, key=lambda shown: shown.value)) for pick in (min, max))
    if low == high:
        return high
    first, _, unit = low.partition(" ")
    return f"{first if unit == high.partition(' ')[2] else low} to {high}"


def _scale(shown: Shown) -> tuple[float, str]:
    size = abs(shown.value)
    if shown.unit == "ns" and size >= LONG_NS:
        return 1, "time"
    if shown.unit == "MB/s" and size >= 1000:
        return 1000, "GB/s"
    if shown.unit == "Hz" and size >= 1e6:
        return (1e9, "GHz") if size >= 1e9 else (1e6, "MHz")
    if shown.unit == "per hour":
        return fitting(size, RATES)
    return (0.01, "%") if shown.unit == "fraction" else (1, shown.unit)


def plus_minus(shown: Shown) -> str | None:
    """Return the half-width in per cent, with the coverage if low; ``None`` without an interval.

    Of an interval wider than twice the value its ends, in the headline's unit: a half-width would hide on which side
    most of it is.
    """
    half = relative_half(shown)
    if half is None or shown.interval is None:
        return None
    coverage = getattr(shown, "coverage", None)
    text = "±<0.1 %" if half < 0.0005 else f"±{significant(half * 100, 2)} %"
    if half > 1:
        scale, unit = _scale(shown)
        ends = " to ".join(significant(end / scale, 3) for end in shown.interval)
        text = f"({measured_interval(shown.interval, shown.unit) if unit == 'time' else f'{ends} {unit}'})"
    return text if coverage is None or coverage >= MIN_COVERAGE else f"{text} ({coverage * 100:.0f} % coverage)"


def difference(share: float | None, bounds: tuple[float, float] | None) -> str:
    """Return a relative difference in per cent, with its bounds from the intervals."""
    if share is None:
        return ABSENT
    text = f"{share * 100:+.1f} %"
    return text if bounds is None else f"{text} ({bounds[0] * 100:+.1f} to {bounds[1] * 100:+.1f} %)"


def readable(named: Sequence[tuple[Any, Estimate]]) -> list[tuple[Any, Estimate]]:
    """Return a table's named estimates in the most readable common unit.

    Times are shown in µs or ms if all are long, clocks in MHz; everything else keeps its unit.
    """
    units = {estimate.unit for _, estimate in named}
    least = min((estimate.value for _, estimate in named), default=0.0)
    if units == {"Hz"}:
        scale, unit = 1e6, "MHz"
    elif units == {"ns"} and least >= LONG_NS:
        scale, unit = (1e6, "ms") if least >= 1000 * LONG_NS else (1e3, "µs")
    else:
        return list(named)
    return [(name, _scaled(estimate, scale, unit)) for name, estimate in named]


def _scaled(estimate: Estimate, scale: float, unit: str) -> Estimate:
    scaled: dict[str, Any] = {name: getattr(estimate, name) / scale for name in ("value", "minimum", "maximum")}
    for name in ("interval", "prediction"):
        ends = getattr(estimate, name)
        scaled[name] = None if ends is None else tuple(end / scale for end in ends)
    return estimate.model_copy(update={**scaled, "unit": unit})


def measured_interval(bounds: tuple[float, float] | None, unit: str) -> str:
    """Return an interval with its unit, or with two units if its ends are orders of magnitude apart."""
    if bounds is None:
        return ABSENT
    if bounds[0] == 0:
        return f"0 to {measured(bounds[1], unit)}"
    low, high = (measured(bound, unit).split(" ", 1) for bound in bounds)
    return f"{low[0]} to {high[0]} {high[1]}" if low[1] == high[1] else f"{' '.join(low)} to {' '.join(high)}"


def level(name: str, ends_at_bytes: int | None) -> str:
    """Return the name of a level of the memory hierarchy; one without a reported cache is named by its size."""
    return f"to {size(ends_at_bytes)}" if name.startswith("plateau-") else name


def plural(count: int, noun: str) -> str:
    """Return *count* and *noun*, in singular or plural: ``1 thread``, ``4 threads``, ``2 mixes``."""
    ending = "es" if noun.endswith("x") else "s"
    return f"{count} {noun}{ending * (count != 1)}"


def middle(samples: Sequence[float]) -> float | None:
    """Return the median of *samples*, ``None`` if there is none."""
    return median(samples) if samples else None


def slug(text: str) -> str:
    """Return *text* as a name of a document or a file: lower-case letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "unnamed"
