# SPDX-License-Identifier: Apache-2.0
"""Limits: bounds for metrics, each with a unit and a reason, from an inventory or an acceptance file."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise, product
from sys import float_info
from typing import Any, Final, Literal, get_args

from calibration.base.errors import InputError
from calibration.base.model import MAX_FAULT, Model
from calibration.base.text import cut
from calibration.context.model import Context
from calibration.measurements import registry, row_of
from calibration.measurements.metric_rows import LABEL, UNDECLARED, MetricRow

Bound = Literal["lower", "upper", "soft_lower", "soft_upper"]
BOUNDS: Final = get_args(Bound)

KernelKind = Literal["real_time", "other"]
"""Kinds of kernels that a limit may be for: with PREEMPT_RT, or without."""

KERNELS: Final[Mapping[KernelKind, str]] = {
    "real_time": "real-time kernels",
    "other": "kernels that are not real-time",
}

FIELDS: Final = ("metric", *BOUNDS, "soft_share", "unit", "kernel", "observed_s", "reason")

WILD: Final = frozenset("*?")

MAX_PATTERN: Final = 200
"""Longest metric or pattern, in characters; names have up to 80. Longer patterns take minutes to compare."""


class Limit(Model):
    """Limits of one metric, or of each whose name matches a pattern such as ``wakeup.*.max_ns``.

    A value beyond ``lower`` or ``upper`` fails; beyond ``soft_lower`` or ``soft_upper`` it is warned of. At least one
    of the four is set. If more than ``soft_share`` of the CPUs are beyond ``soft_upper``, that fails, too. ``kernel``
    is the kind of kernels that the limit is for, ``None`` for all. ``observed_s`` is how long must have been looked for
    rare events until a value within the limits passes.
    """

    metric: str
    lower: float | None
    upper: float | None
    soft_lower: float | None = None
    soft_upper: float | None = None
    soft_share: float | None = None
    unit: str
    kernel: KernelKind | None = None
    observed_s: float | None = None
    reason: str

    def matches(self, metric: str) -> bool:
        """Return whether the limit is for *metric*."""
        return fnmatchcase(metric, self.metric) if WILD & set(self.metric) else metric == self.metric


def kernel_kind(context: Context | None) -> KernelKind | None:
    """Return the kind of the machine's kernel, by what it says of itself; ``None`` if unknown."""
    preemption = None if context is None else context.kernel.preemption
    return None if preemption is None else "real_time" if preemption.startswith("real-time") else "other"


def read_limits(given: Any, where: str = "calibration_limits") -> tuple[Limit, ...]:
    """Return the limits in *given*, by default the variable ``calibration_limits``; messages begin with *where*.

    Raises ``InputError`` for limits that can never apply: an unknown metric, the wrong unit, no bound, bounds that
    exclude everything, no reason, or a duplicate.
    """
    try:
        return _limits(given)
    except InputError as error:
        raise InputError(f"{where}: {cut(str(error), MAX_FAULT)}") from error


def _limits(given: Any) -> tuple[Limit, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InputError(f"not a list: {given!r}")
    limits = tuple(_limit(number, item) for number, item in enumerate(given, 1))
    keys = [(limit.metric, limit.kernel) for limit in limits]
    if twice := [metric for metric, kernel in keys if keys.count((metric, kernel)) > 1]:
        raise InputError(f"several limits for {twice[0]}")
    return limits


def _limit(number: int, given: Any) -> Limit:
    if not isinstance(given, Mapping):
        raise InputError(f"limit {number}: not a mapping: {given!r}")
    if unknown := [key for key in given if key not in FIELDS]:
        raise InputError(f"limit {number}: unknown field {unknown[0]!r}, expected {', '.join(FIELDS)}")
    metric, unit, reason = (_text(number, name, given) for name in ("metric", "unit", "reason"))
    bounds: dict[Bound, float | None] = {name: _number(metric, name, given.get(name)) for name in BOUNDS}
    _check_unit(metric, unit)
    _check_order(metric, bounds)
    kernel = given.get("kernel")
    if kernel not in (None, *get_args(KernelKind)):
        raise InputError(f"{metric}: kernel must be {' or '.join(get_args(KernelKind))}, not {kernel!r}")
    observed_s = _number(metric, "observed_s", given.get("observed_s"))
    if observed_s is not None and observed_s <= 0:
        raise InputError(f"{metric}: observed_s must be above 0, not {observed_s:g}")
    soft_share = _number(metric, "soft_share", given.get("soft_share"))
    if soft_share is not None and (not 0 <= soft_share < 1 or bounds["soft_upper"] is None):
        raise InputError(f"{metric}: soft_share must be a share of CPUs from 0 to below 1, beside soft_upper")
    told = {"kernel": kernel, "observed_s": observed_s, "soft_share": soft_share}
    return Limit.model_validate({"metric": metric, "unit": unit, "reason": reason, **told, **bounds})


def _check_unit(metric: str, unit: str) -> None:
    """Raise ``InputError`` unless *metric* is a metric in this *unit*, or a pattern of such metrics alone."""
    if len(metric) > MAX_PATTERN:
        raise InputError(f"{metric[:20]}... has {len(metric)} characters, a metric at most {MAX_PATTERN}")
    rows = rows_of(metric)
    if not rows:
        raise InputError(f"no metric matches {metric!r}" if WILD & set(metric) else f"unknown metric {metric!r}")
    for row in rows:
        if row.unit != unit:
            name = metric if metric == row.name or not WILD & set(metric) else row.words
            raise InputError(f"the unit of {name} is {row.unit}, not {unit}")


def _check_order(metric: str, bounds: Mapping[Bound, float | None]) -> None:
    if set(bounds.values()) == {None}:
        raise InputError(f"{metric} has no lower or upper bound")
    names: tuple[Bound, ...] = ("lower", "soft_lower", "soft_upper", "upper")
    known = [(name, value) for name in names if (value := bounds[name]) is not None]
    for (low, least), (high, most) in pairwise(known):
        if least > most:
            words = f"the {low.replace('_', ' ')} bound {least:g} is above the {high.replace('_', ' ')} bound {most:g}"
            raise InputError(f"{metric}: {words}")


def _text(number: int, name: str, given: Mapping[Any, Any]) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InputError(f"limit {number}: {name} is not a line of text: {value!r}")
    return value.strip()


def _number(metric: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= float_info.max:
        raise InputError(f"{metric}: {name} is not a number: {value!r}")
    return float(value) + 0.0  # -0 is 0


def rows_of(metric: str) -> tuple[MetricRow, ...]:
    """Return the rows of the metrics that *metric* stands for, a name or a pattern; empty if there is none."""
    if not WILD & set(metric):
        row = row_of(metric)
        return () if row is UNDECLARED or row.imported else (row,)
    return tuple(
        row
        for declared in registry().values()
        for row in declared.metric_rows
        if not row.imported and any(_overlap(metric, form) for form in _forms(row))
    )


def _forms(row: MetricRow) -> list[str]:
    """Return patterns that together match all names of *row*, and hardly any other."""
    plain = re.compile(r"[\w:]+(?:\|[\w:]+)*", re.ASCII)
    labels = [found[3] or "" for found in LABEL.finditer(row.name)]
    choices = [label.split("|") if plain.fullmatch(label) else ["*"] for label in labels]
    form = LABEL.sub("{}", row.name)
    return [form.format(*chosen) for chosen in product(*choices)]


@lru_cache(maxsize=100_000)
def _overlap(one: str, other: str) -> bool:
    """Return whether some name matches both patterns."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return _overlap(one[1:], other) or _overlap(one, other[1:])
    if other[0] == "*":
        return _overlap(other, one)
    return (one[0] == other[0] or "?" in {one[0], other[0]}) and _overlap(one[1:], other[1:])
