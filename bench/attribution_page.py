# SPDX-License-Identifier: Apache-2.0
"""Writes what was planted beside what was found: a table of docs/development/benchmarks.rst.

``python bench/attribution_page.py`` renews the page from bench/attribution.json. A test holds page and document
together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.page import PAGE, between, renew, table

DOCUMENT = Path(__file__).parent / "attribution.json"
BEGIN = ".. The tables below are written by bench/attribution_page.py."


def _ms(ns: float | None) -> str:
    return "—" if ns is None else f"{ns / 1e6:.0f}" if ns >= 1e8 else f"{ns / 1e6:.3g}"


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the table of *document* as rst."""
    found = document["plantings"]
    plants = [
        (
            each["planted"],
            str(each["planted_events"]),
            str(each["found_events"]),
            _ms(each["planted_ns"]),
            _ms(each["found_ns"]),
        )
        for each in found["plants"]
    ]
    share = found["unexplained"]["share"]
    head = ("Planted", "Times planted", "Times found", "Planted, ms", "Found, ms")
    watched = f"Linux {document['kernel']}, {found['wall_s']:.0f} s, {found['told_gaps']} gaps"
    about = f"{watched}; {share:.0%} of the lost time is unexplained, which is the emulator's:"
    return "\n".join([about, "", *table(head, plants), ""])


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
