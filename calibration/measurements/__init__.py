# SPDX-License-Identifier: Apache-2.0
"""The measurement kinds: one declaration per module, found automatically when one is asked for."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from calibration.base.errors import InputError
from calibration.measurements.metric_rows import UNDECLARED, MetricRow

if TYPE_CHECKING:  # the declarations take a second to import
    from calibration.measurements.base import Declaration


@cache
def registry() -> dict[str, Declaration[Any, Any]]:
    """Return all declarations by kind, sorted by name of the kind.

    A kind declared twice is a programming error and refused.
    """
    modules = {module.name: import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)}
    declared: list[type[Declaration[Any, Any]]] = modules["base"].Declaration.declared
    found = {kind.kind: kind() for kind in sorted(declared, key=lambda kind: kind.kind)}
    if len(found) < len(declared):
        raise RuntimeError(f"two declarations of one kind among {', '.join(kind.__name__ for kind in declared)}")
    return found


def declaration(kind: str) -> Declaration[Any, Any]:
    """Return the declaration of *kind*. Raises ``InputError`` for an unknown kind."""
    try:
        return registry()[kind]
    except KeyError:
        raise InputError(f"unknown measurement kind {kind!r}; known: {', '.join(registry())}") from None


def record_title(metric: str) -> str | None:
    """Return the title of the quantity that *metric* is a figure of record of; ``None`` for others."""
    row = row_of(metric)
    return None if row.record is None else row.record.title.format(**(row.labels(metric) or {}))


@lru_cache(maxsize=100_000)
def row_of(metric: str) -> MetricRow:
    """Return the row of *metric*; ``UNDECLARED`` if no measurement of this version has it."""
    found = registry().get(metric.partition(".")[0])
    return UNDECLARED if found is None else found.row_of(metric)
