# SPDX-License-Identifier: Apache-2.0
"""Limits: bounds that an inventory sets for a SUT's metrics, each with a unit and a reason."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.base.errors import InputError
from calibration.measurements import row_of
from calibration.measurements.metric_rows import UNDECLARED
from calibration.results.model import Limit

FIELDS = ("metric", "lower", "upper", "unit", "reason")


def read_limits(given: Any) -> tuple[Limit, ...]:
    """Return the limits in *given*, the variable ``calibration_limits``.

    Raises ``InputError`` for limits that can never apply: an unknown metric, the wrong unit, no bound, bounds that
    exclude everything, no reason, or a duplicate metric.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise _bad(f"not a list: {given!r}")
    limits = tuple(_limit(number, item) for number, item in enumerate(given, 1))
    names = [limit.metric for limit in limits]
    if twice := [name for name in names if names.count(name) > 1]:
        raise _bad(f"several limits for {twice[0]}")
    return limits


def _limit(number: int, given: Any) -> Limit:
    if not isinstance(given, Mapping) or not set(given) <= set(FIELDS):
        raise _bad(f"limit {number}: not a mapping of {', '.join(FIELDS)}: {given!r}")
    metric, unit, reason = (_text(number, name, given) for name in ("metric", "unit", "reason"))
    lower, upper = (_bound(metric, name, given.get(name)) for name in ("lower", "upper"))
    row = row_of(metric)
    if row is UNDECLARED or row.imported:
        raise _bad(f"unknown metric {metric!r}")
    if unit != row.unit:
        raise _bad(f"the unit of {metric} is {row.unit}, not {unit}")
    if lower is None and upper is None:
        raise _bad(f"{metric} has no lower or upper bound")
    if lower is not None and upper is not None and lower > upper:
        raise _bad(f"{metric}: the lower bound {lower:g} is above the upper bound {upper:g}")
    return Limit(metric=metric, lower=lower, upper=upper, unit=unit, reason=reason)


def _text(number: int, name: str, given: Mapping[Any, Any]) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _bad(f"limit {number}: {name} is not a line of text: {value!r}")
    return value.strip()


def _bound(metric: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad(f"{metric}: {name} is not a number: {value!r}")
    return float(value)


def _bad(message: str) -> InputError:
    return InputError(f"calibration_limits: {message}")
