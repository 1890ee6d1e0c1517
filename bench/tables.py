# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks in reStructuredText, to be pasted into the documentation."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an rst table with simple borders, columns as wide as they need."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    border = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)]
    return [border, lines[0], border, *lines[1:], border]
