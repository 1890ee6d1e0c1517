# SPDX-License-Identifier: Apache-2.0
"""Filters for templates, besides the formatting of ``calibration.base.units``."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from calibration.base.text import visible
from calibration.measurements.evidence import Missing
from calibration.results.model import NotMeasured

MAX_NAMED_ALIKE = 3
"""Missing parts with the same reason that are named one by one: a server has hundreds of CPUs."""


def command(argv: Sequence[str]) -> str:
    """Return an argument vector as a shell command, in the style of the published pages."""
    return "$ " + visible(shlex.join(argv))


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
