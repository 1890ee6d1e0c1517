# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks in reStructuredText, to be pasted into the documentation."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an rst table with simple borders, columns as wide as they need."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    border = "  ".join("=" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return [border, line(head), border, *(line(row) for row in rows), border]
