# SPDX-License-Identifier: Apache-2.0
"""The published figures of many nights are those of the runs that are kept, and nothing else."""

import copy
import json
from typing import Any

from bench import nights, nights_page


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(nights_page.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def test_the_page_shows_what_was_measured() -> None:
    text = nights_page.PAGE.read_text(encoding="utf-8")
    assert nights_page.renewed(text, document()) == text, "run python bench/nights_page.py"


def times() -> dict[str, Any]:
    """Return the figures of a store that was asked about."""
    return {
        **dict.fromkeys(nights_page.QUESTIONS, 0.5),
        "index_bytes": 1 << 20,
        "store": {"suts": 100, "nights": 365, "documents": 36_000, "bytes": 20 << 30, "made_s": 100.0},
        "machine": nights.machine(),
        "targets": {name: {"limit": limit, "met": True} for name, limit in nights.TARGETS.items()},
    }


def test_a_changed_figure_changes_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["table"]["metric_nights"] += 1
    text = nights_page.PAGE.read_text(encoding="utf-8")
    assert nights_page.renewed(text, changed) != text


def test_what_is_kept_is_whole_and_judged_by_its_targets() -> None:
    kept = document()
    assert kept["schema"] == nights.SCHEMA
    assert (kept["table"]["store"]["suts"], kept["table"]["store"]["nights"]) == (20, 180)
    rows = {row["kind"]: row for row in kept["table"]["rows"]}
    assert list(rows) == list(nights.ROWS)
    for row in rows.values():
        assert row["found_in_time"] <= row["found"] <= row["planted"]
        assert row["events"] > 0


def test_times_that_are_kept_are_those_of_the_largest_store() -> None:
    part = document().get("time")
    if part is not None:
        assert (part["store"]["suts"], part["store"]["nights"]) == nights.LARGEST
        for name, limit in nights.TARGETS.items():
            assert part["targets"][name] == {"limit": limit, "met": part[name] <= limit}


def test_a_missed_target_is_shown_as_missed() -> None:
    changed = {"time": times()}
    assert "missed" not in nights_page.tables_of(changed)
    changed["time"]["targets"]["verdicts_s"]["met"] = False
    assert "missed" in nights_page.tables_of(changed)
    assert "0.50" in nights_page.tables_of(changed)
