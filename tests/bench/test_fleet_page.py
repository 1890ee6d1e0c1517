# SPDX-License-Identifier: Apache-2.0
"""The published figures of a fleet are those of the run that is kept, and nothing else."""

import copy
import json
from typing import Any

import pytest

from bench import fleet, fleet_page


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(fleet_page.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def test_the_page_shows_the_run_that_is_kept() -> None:
    text = fleet_page.PAGE.read_text(encoding="utf-8")
    assert fleet_page.renewed(text, document()) == text, "run python bench/fleet_page.py"


def test_a_figure_changed_in_the_run_changes_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["fleets"][-1]["controller_cpu_s_per_sut"] += 1.0
    text = fleet_page.PAGE.read_text(encoding="utf-8")
    assert fleet_page.renewed(text, changed) != text


def test_the_run_that_is_kept_is_a_whole_one() -> None:
    kept = document()
    assert kept["schema"] == fleet.SCHEMA
    assert kept["fleets"][0]["suts"] == 1
    assert kept["suts"] == kept["fleets"][-1]["suts"] > 1
    for name in ("wall_s", "controller_cpu_s_per_sut", "controller_peak_rss_mib", "plain_ansible_cpu_s_per_sut"):
        assert kept[name] == kept["fleets"][-1][name]
    for name, each in kept["targets"].items():
        assert each["limit"] == fleet.TARGETS_OF[name]
        assert each["met"] is (kept[name] <= each["limit"] if kept["suts"] == fleet.LARGEST else None)
    assert kept["slow"]["others_last_stored_s"] < kept["slow"]["slow_stored_s"]


def test_a_missed_target_is_shown_as_missed() -> None:
    changed = copy.deepcopy(document())
    changed["targets"]["controller_cpu_s_per_sut"]["met"] = False
    assert "missed" in fleet_page.tables_of(changed)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        fleet_page.renewed("no marks here", document())
