# SPDX-License-Identifier: Apache-2.0
"""The published table is the run that is kept, and nothing else."""

import copy
import json
from typing import Any

import pytest

from bench import page, peers
from bench.contenders import TARGETS


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(page.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def first_measured(kept: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = next(each for each in kept["ratios"].values() if each["peer"])
    return entry


def test_the_page_shows_the_run_that_is_kept() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.renewed(text, document()) == text, "run python bench/page.py"


def test_a_figure_changed_in_the_run_changes_the_page() -> None:
    changed = copy.deepcopy(document())
    first_measured(changed)["ours"] *= 1.5
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.renewed(text, changed) != text


def test_the_run_that_is_kept_has_all_that_the_comparison_writes() -> None:
    kept = json.loads(page.DOCUMENT.read_text(encoding="utf-8"))
    assert kept["schema"] == peers.SCHEMA
    assert kept["stopped"] in {None, "interrupted"}
    assert tuple(kept["ratios"]) == peers.RATIOS
    assert {*kept["ratios"], *kept["also"]} == set(TARGETS) == set(page.TITLES)
    for name, entry in {**kept["ratios"], **kept["also"]}.items():
        assert entry["target"] == TARGETS[name].text()
        if entry["ours"] is not None and TARGETS[name].text():
            assert entry["met"] is TARGETS[name].met(entry["ours"], entry["median_ratio"])


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        page.renewed("no marks here", document())


def test_figures_of_intel_mlc_are_not_published() -> None:
    kept = json.loads(page.DOCUMENT.read_text(encoding="utf-8"))
    entry = first_measured(kept)
    peer = {"value": 98765.4321, "spread": [98765.4321, 98765.4321], "coverage": 0.98, "alternations": 7}
    entry["peers"]["mlc peak injection"] = {"tool": "mlc", "figure": peer, "ratio": peer}
    entry.update(best_peer=98765.4321, peer="mlc peak injection", median_ratio=98765.4321, spread=[98765.4321] * 2)
    tables = page.tables_of(kept)
    assert "98,765" not in tables
    assert "9.88e+04" not in tables
    assert "mlc, not published" in tables
