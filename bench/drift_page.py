# SPDX-License-Identifier: Apache-2.0
"""Writes the published rates of the drift check: a table of docs/development/benchmarks.rst.

``python bench/drift_page.py`` renews the page from bench/drift.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.special import gammaincinv

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.drift import SHIFTS
from bench.page import PAGE, between, renew, table

DOCUMENT = Path(__file__).parent / "drift.json"
BEGIN = ".. The tables below are written by bench/drift_page.py."


def per_thousand(alarms: int, nights: int) -> str:
    """Return alarms per 1000 metric-nights with the exact Poisson interval, 95 %."""
    low = gammaincinv(alarms, 0.025) if alarms else 0.0
    scale = 1000.0 / nights
    return f"{alarms * scale:.2f} [{low * scale:.2f}, {gammaincinv(alarms + 1, 0.975) * scale:.2f}]"


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the table of *document* as rst: false alarms, and what is found after 60 nights, by noise."""
    series = document["series"]
    rows = [
        (
            noise,
            per_thousand(row["alarms"], row["nights"]),
            f"{1000.0 * row['t_test_alarms'] / row['nights']:.2f}",
            f"{100.0 * row['shifts']['60'] / (SHIFTS * series):.0f}",
            f"{100.0 * row['drifts']['60'] / series:.0f}",
        )
        for noise, row in document["noises"].items()
    ]
    head = ("Noise", "False alarms", "of a t test", "Shifts, %", "Drifts, %")
    return "\n".join([*table(head, rows), ""])


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
