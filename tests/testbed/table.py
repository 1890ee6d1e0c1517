# SPDX-License-Identifier: Apache-2.0
"""The table that a run of the suite ends with: what was done to a SUT, what was kept of its run, what was reported."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

WIDTHS = (20, 26, 30, 30)
TITLES = ("Scenario", "Injected fault", "What was kept", "What was reported")


@dataclass(frozen=True)
class Row:
    """One scenario, as it was found to end."""

    name: str
    injected: str
    kept: str
    reported: str


def rst(rows: Sequence[Row]) -> str:
    """Return the rows as a grid table of reStructuredText."""
    edge = "+" + "+".join("-" * (width + 2) for width in WIDTHS) + "+\n"

    def cells(texts: Sequence[str]) -> str:
        wrapped = [textwrap.wrap(text, width) or [""] for text, width in zip(texts, WIDTHS, strict=True)]
        height = max(len(item) for item in wrapped)
        lines = [[item[n] if n < len(item) else "" for item in wrapped] for n in range(height)]
        padded = ([f" {text:{width}} " for text, width in zip(line, WIDTHS, strict=True)] for line in lines)
        return "".join("|" + "|".join(line) + "|\n" for line in padded)

    names = [field.name for field in fields(Row)]
    body = "".join(cells([str(getattr(row, name)) for name in names]) + edge for row in rows)
    return edge + cells(TITLES) + edge.replace("-", "=") + body


def write(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write the table as scenarios.rst and scenarios.json; return both."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / "scenarios.rst", directory / "scenarios.json"]
    paths[0].write_text(rst(rows), encoding="utf-8")
    paths[1].write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return paths
