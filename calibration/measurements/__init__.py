# SPDX-License-Identifier: Apache-2.0
"""The measurement kinds: one declaration per module, found here and nowhere else listed."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from calibration.errors import InputError
from calibration.measurements.base import Declaration


@cache
def registry() -> dict[str, Declaration[Any, Any]]:
    """Return all declarations by kind, in the order of their kinds' names.

    A module of this package declares a kind by its ``MEASUREMENT``; two modules that declare the same kind are a
    programming error and refused.
    """
    found: dict[str, Declaration[Any, Any]] = {}
    for module in iter_modules(__path__):
        declaration = getattr(import_module(f"{__name__}.{module.name}"), "MEASUREMENT", None)
        if declaration is None:
            continue
        if declaration.kind in found:
            raise RuntimeError(f"two declarations of {declaration.kind!r}")
        found[declaration.kind] = declaration
    return found


def declaration(kind: str) -> Declaration[Any, Any]:
    """Return the declaration of *kind*. Raises ``InputError`` for a kind that does not exist."""
    try:
        return registry()[kind]
    except KeyError:
        raise InputError(f"unknown measurement kind {kind!r}; known: {', '.join(registry())}") from None
