# SPDX-License-Identifier: Apache-2.0
"""Golden parts of pages: each row of a table on one line, long tables without their middle.

``CALIBRATION_BLESS=1`` writes them; review the difference.
"""

import os
import re
from itertools import groupby

from tests.report.report_documents import HERE

FIGURES = re.compile(r" +\S.* [-\d.:%]+")
"""A line of a literal block that ends in a figure."""

CELL = re.compile(r"\n +(- )?")
"""Before a cell of a row, and before another line of one."""

ROWS_SHOWN = 2
"""Rows of a long table at its start: one more tells a faulty order of columns from a faulty order of rows."""


def assert_golden(name: str, text: str) -> None:
    """Compare *text*, abridged, with the golden *name*, or write that."""
    golden = HERE / "golden" / f"{name}.rst"
    found = abridged(text)
    if os.environ.get("CALIBRATION_BLESS") == "1":
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8"), f"{golden} differs; CALIBRATION_BLESS=1 writes it anew"


def abridged(text: str) -> str:
    """Return *text* with a line for each row of a table, and without the middle of long tables."""
    text = re.sub(r"\n +(:[a-z-]+:)", r" \1", text)
    row = re.compile(r"^( *\* - .*)((?:\n +(?!\* - )\S.*)+)", re.MULTILINE)
    text = row.sub(
        lambda found: found[1] + re.sub(r"\n +(- )?", lambda cell: " | " if cell[1] else " ", found[2]), text
    )
    lines = []
    for kind, alike in groupby(text.splitlines(), key=_kind):
        found = list(alike)
        if kind and len(found) > ROWS_SHOWN + 3:
            found[ROWS_SHOWN:-1] = [f"... {len(found) - ROWS_SHOWN - 1} more"]
        lines += found
    return "\n".join(lines) + "\n"


def _kind(line: str) -> int:
    """Return a number that the rows of one table share; 0 for other lines."""
    return -1 if line.lstrip().startswith("* - ") else len(line.split()) if FIGURES.fullmatch(line) else 0
