# SPDX-License-Identifier: Apache-2.0
"""Filters for templates, besides the formatting of ``calibration.base.units``."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from calibration.base.statistics import Estimate
from calibration.base.text import visible
from calibration.context.model import Context
from calibration.measurements.evidence import Missing
from calibration.measurements.table import Table
from calibration.results.model import NotMeasured

MAX_NAMED_ALIKE = 3
"""Missing parts with the same reason that are named one by one: a server has hundreds of CPUs."""


def command(argv: Sequence[str]) -> str:
    """Return an argument vector as a shell command, in the style of the published pages."""
    return "$ " + visible(shlex.join(argv))


class RatedCell(NamedTuple):
    """A cell of a node matrix, what the firmware says of it, and what was measured, in the same unit."""

    cpu_node: int
    memory_node: int
    rated: int
    measured: Estimate


def rated(table: Table, column: str, context: Context | None, field: str) -> list[RatedCell]:
    """Return the cells of *column* of a node matrix whose *field* the firmware rates."""
    known = {node.id for node in context.nodes} if context else set[int]()
    return [
        RatedCell(row, node, rating, cell)
        for (row, node), cell in table.cells(column).items()
        if context and {row, node} <= known
        if (access := context.rated_access(row, node)) is not None
        if (rating := getattr(access, field)) is not None
    ]


Gone = TypeVar("Gone", Missing, NotMeasured)


def alike(missing: Sequence[Gone]) -> Iterator[Gone]:
    """Yield *missing*; if many share a reason, only the first of them, with the number of the others."""
    reasons = [tuple(gone.model_copy(update={"what": ""})) for gone in missing]
    counts = Counter(reasons)
    for gone, reason in zip(missing, reasons, strict=True):
        count = counts[reason]
        if 0 < count <= MAX_NAMED_ALIKE:
            yield gone
        elif count:
            counts[reason] = 0
            yield gone.model_copy(update={"what": f"{gone.what}, and {count - 1} more"})
