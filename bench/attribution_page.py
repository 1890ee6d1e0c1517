# SPDX-License-Identifier: Apache-2.0
"""Writes what was planted beside what was found: the tables of docs/development/attribution.rst.

``python bench/attribution_page.py`` renews the page from bench/attribution.json. A test holds page and document
together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.page import between, renew, table

DOCUMENT = Path(__file__).parent / "attribution.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "attribution.rst"
BEGIN = ".. The tables below are written by bench/attribution_page.py."
SHOWN = 12
"""So many causes are shown, those that took the most time."""


def _ms(ns: float | None) -> str:
    return "—" if ns is None else f"{ns / 1e6:.0f}" if ns >= 1e8 else f"{ns / 1e6:.3g}"


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{100.0 * share:.2g}"


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst."""
    found = document["plantings"]
    described = [
        ("Kernel", f"{document['kernel']}, {document['machine']}"),
        ("Hypervisor", document["hypervisor"] or "none"),
        ("Clock", document["clock"]),
        ("Watched", f"{found['wall_s']:.1f} s, {found['told_gaps']} gaps of {_ms(found['told_ns'])} ms in all"),
    ]
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
    rest = [
        ("unexplained", found["unexplained"]),
        ("entering and leaving the kernel, and what the caches lost", found["edges"]),
    ]
    remained = [(name, str(each["gaps"]), _ms(each["total_ns"]), _percent(each["share"])) for name, each in rest]
    causes = [
        (
            each["kind"],
            each["name"],
            each["function"] or "—",
            str(each["events"]),
            str(each["gaps"]),
            _ms(each["total_ns"]),
            _percent(each["share"]),
        )
        for each in found["causes"][:SHOWN]
    ]
    lines = [*table(("The run", ""), described), ""]
    lines += [*table(("Planted", "Times planted", "Times found", "Planted, ms", "Found, ms"), plants), ""]
    lines += [*table(("What remained", "Gaps", "Total, ms", "Share of lost time, %"), remained), ""]
    lines += ["The causes that took the most time:", ""]
    heads = ("Kind", "Cause", "Function", "Events", "Gaps", "Total, ms", "Share of lost time, %")
    return "\n".join([*lines, *table(heads, causes), ""])


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
