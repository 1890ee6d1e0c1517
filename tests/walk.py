# SPDX-License-Identifier: Apache-2.0
"""Finds estimates in any values model and values in any document, so that tests need not know the kinds."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from calibration.base.statistics import Estimate


def estimates(value: object) -> Iterator[Estimate]:
    """Yield all estimates inside a model, a mapping or a tuple, in document order."""
    if isinstance(value, Estimate):
        yield value
    elif isinstance(value, BaseModel):
        for _, part in value:
            yield from estimates(part)
    elif isinstance(value, dict):
        for item in value.values():
            yield from estimates(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from estimates(item)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the values in the document *value* are; of a list's, those of its first."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, item in items:
        yield (*way, name)
        yield from places(item, (*way, name))
