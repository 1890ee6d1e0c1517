# SPDX-License-Identifier: Apache-2.0
"""Limits: bounds that an inventory sets for a SUT's headline figures, each with a unit and a reason."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.errors import InputError
from calibration.measurements import registry
from calibration.results.records import Limit

FIELDS = ("metric", "lower", "upper", "unit", "reason")


def read_limits(given: Any) -> tuple[Limit, ...]:
    """Return the limits in *given*, the variable ``calibration_limits``.

    Raises ``InputError`` for limits that can never apply: an unknown metric, the wrong unit, no bound, bounds that
    exclude everything, no reason, or a duplicate metric.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise _bad(f"expected a list of limits, found {given!r}")
    limits = tuple(_limit(number, item) for number, item in enumerate(given, 1))
    names = [limit.metric for limit in limits]
    for name in names:
        if names.count(name) > 1:
            raise _bad(f"expected one limit for {name}, found {names.count(name)}")
    return limits


def _limit(number: int, given: Any) -> Limit:
    if not isinstance(given, Mapping) or not set(given) <= set(FIELDS):
        raise _bad(f"expected limit {number} to be a mapping of {', '.join(FIELDS)}, found {given!r}")
    metric, unit, reason = (_text(number, name, given) for name in ("metric", "unit", "reason"))
    lower, upper = (_bound(metric, name, given.get(name)) for name in ("lower", "upper"))
    wanted = unit_of(metric)
    if wanted is None:
        raise _bad(f"expected the name of a metric, found {metric!r}, which no measurement has")
    if unit != wanted:
        raise _bad(f"expected the unit {wanted} for {metric}, found {unit}")
    if lower is None and upper is None:
        raise _bad(f"expected a lower or an upper bound for {metric}, found neither")
    if lower is not None and upper is not None and lower > upper:
        raise _bad(f"expected bounds of {metric} that a figure can keep, found lower {lower:g} above upper {upper:g}")
    return Limit(metric=metric, lower=lower, upper=upper, unit=unit, reason=reason)


def unit_of(metric: str) -> str | None:
    """Return the unit of the metric named *metric*; ``None`` if no measurement has it."""
    for declaration in registry().values():
        for pattern in declaration.metric_patterns:
            if pattern.matches(metric):
                return pattern.unit
    return None


def _text(number: int, name: str, given: Mapping[Any, Any]) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _bad(f"expected {name} of limit {number} to be a text, found {value!r}")
    return value.strip()


def _bound(metric: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad(f"expected {name} of {metric} to be a number, found {value!r}")
    return float(value)


def _bad(message: str) -> InputError:
    return InputError(f"calibration_limits: {message}")
