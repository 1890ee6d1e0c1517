# SPDX-License-Identifier: Apache-2.0
"""Writes the published figures of many nights: the tables of docs/development/nights.rst, from what was measured.

``python bench/nights_page.py`` renews the page from bench/nights.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.nights import ROWS, TARGETS
from bench.page import between, figure, renew, table

DOCUMENT = Path(__file__).parent / "nights.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "development" / "nights.rst"
BEGIN = ".. The tables below are written by bench/nights_page.py."

QUESTIONS: Mapping[str, str] = {
    "history_s": "History of one metric of one SUT",
    "verdicts_s": "All verdicts of tonight",
    "one_metric_of_all_s": "One metric of all SUTs, nothing new",
    "new_night_s": "The same, with a new night of all SUTs",
    "build_s": "The same, with no index yet",
}

MEANINGS: Mapping[str, str] = {
    "drift": "Level",
    "spread": "Spread",
    "bimodal": "Flips",
    "homogeneity": "Not the same as the other SUTs",
    "missing": "Missing",
}

MIB = 1 << 20


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst: of the benchmarks that it has the figures of."""
    made = {"time": _costs, "table": _found}
    return "\n".join(line for name, lines in made.items() if name in document for line in lines(document[name]))


def _store(part: Mapping[str, Any], title: str) -> list[str]:
    store, machine = part["store"], part["machine"]
    rows = [
        ("SUTs, nights", f"{store['suts']}, {store['nights']}"),
        ("Documents", figure(store["documents"])),
        ("Size of all, GiB; of one, MiB", f"{store['bytes'] / (MIB << 10):.1f}; {_one(store):.2f}"),
        ("Time to make it, s", figure(store["made_s"])),
        ("CPUs, kernel, Python", f"{machine['cpus']}, {machine['kernel']}, {machine['python']}"),
    ]
    return [*table((title, ""), rows), ""]


def _one(store: Mapping[str, Any]) -> float:
    return float(store["bytes"]) / float(store["documents"]) / MIB


def _costs(part: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            title,
            f"≤ {TARGETS[name]:g}" if name in TARGETS else "",
            f"{part[name]:.2f}",
            {True: "met", False: "missed", None: "not judged"}[part["targets"][name]["met"]] if name in TARGETS else "",
        )
        for name, title in QUESTIONS.items()
    ]
    rows.append(("Size of the index, MiB", "", f"{part['index_bytes'] / MIB:.0f}", ""))
    return [*_store(part, "The store of the questions"), *table(("Wall time, s", "Target", "Found", ""), rows), ""]


def _cell(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"


def _found(part: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            ROWS[row["kind"]],
            _cell(row["planted"] or row["events"]),
            _cell(row["found"]) if row["planted"] else "—",
            _cell(row["found_in_time"]) if row["planted"] else "—",
            _cell(row["nights_to_find"]),
            _cell(row["date_error_median"]),
            _cell(row["date_error_max"]),
            _cell(row["cause_named"]),
            _cell(row["false_alarms"]),
        )
        for row in part["rows"]
    ]
    head = ("Planted", "", "Found", "In 3 nights", "Nights to find", "Date error", "Largest", "Cause named", "Alarms")
    nights = part["metric_nights"]
    alarms = [
        (MEANINGS[check], _cell(count), f"{1000 * count / nights:.2f}") for check, count in part["false_alarms"].items()
    ]
    return [
        *_store(part, "The store of the events"),
        *table(head, rows),
        "",
        *table((f"False alarms in {nights:,} metric-nights", "", "In 1000"), alarms),
        "",
    ]


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the tables of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, tables_of(document), BEGIN)


def main() -> None:
    """Renew the page from the document."""
    renew(PAGE, DOCUMENT, renewed)


if __name__ == "__main__":
    main()
