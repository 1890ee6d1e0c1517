# SPDX-License-Identifier: Apache-2.0
"""Writes the published figures of many nights: the tables of docs/development/benchmarks.rst.

``python bench/nights_page.py`` renews the page from bench/nights.json. A test holds page and document together.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.nights import ROWS, TARGETS
from bench.page import PAGE, between, figure, renew, table

DOCUMENT = Path(__file__).parent / "nights.json"
BEGIN = ".. The tables below are written by bench/nights_page.py."

QUESTIONS: Mapping[str, str] = {
    "history_s": "History of one metric of one SUT",
    "verdicts_s": "All verdicts of tonight",
    "one_metric_of_all_s": "One metric of all SUTs, nothing new",
    "new_night_s": "The same, with a new night of all SUTs",
    "build_s": "The same, with no index yet",
}

MEANINGS: Mapping[str, str] = {
    "drift": "level",
    "spread": "spread",
    "bimodal": "flips",
    "homogeneity": "homogeneity",
    "missing": "missing",
}

MIB = 1 << 20


def tables_of(document: Mapping[str, Any]) -> str:
    """Return the tables of *document* as rst: of the benchmarks that it has the figures of."""
    made = {"time": _costs, "table": _found}
    return "\n".join(line for name, lines in made.items() if name in document for line in lines(document[name]))


def _store(part: Mapping[str, Any]) -> list[str]:
    store = part["store"]
    size = (
        f"{figure(store['documents'])} documents of {float(store['bytes']) / float(store['documents']) / MIB:.2f} MiB"
    )
    return [f"{store['suts']} SUTs and {store['nights']} nights, {size}, on {part['machine']['cpus']} CPUs:", ""]


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
    return [*_store(part), *table(("Wall time, s", "Target", "Found", ""), rows), ""]


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
    alarms = ", ".join(
        f"{MEANINGS[check]} {1000 * count / nights:.2f}" for check, count in part["false_alarms"].items()
    )
    return [
        *_store(part),
        *table(head, rows),
        "",
        f"False alarms per 1000 of {nights:,} metric-nights: {alarms}.",
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
