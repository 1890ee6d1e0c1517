# SPDX-License-Identifier: Apache-2.0
"""The published comparison of methods is the run that is kept, and nothing else."""

import copy
import json
from typing import Any

import pytest

from bench import drift, drift_page


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(drift_page.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def test_the_page_shows_the_run_that_is_kept() -> None:
    text = drift_page.PAGE.read_text(encoding="utf-8")
    assert drift_page.renewed(text, document()) == text, "run python bench/drift_page.py"


def test_a_figure_changed_in_the_run_changes_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["noises"]["normal"][drift.OURS]["false"]["per_1000"] += 1.0
    text = drift_page.PAGE.read_text(encoding="utf-8")
    assert drift_page.renewed(text, changed) != text


def test_the_run_that_is_kept_is_a_whole_one() -> None:
    kept = document()
    assert kept["schema"] == drift.SCHEMA
    assert tuple(kept["noises"]) == tuple(drift.NOISES)
    assert kept["not_compared"] == {}
    for methods in kept["noises"].values():
        assert set(methods) == {drift.OURS, "t test of three", *drift.CONTENDERS}


def test_our_method_was_chosen_for_what_the_run_shows() -> None:
    for noise in drift.MAJOR:
        ours = document()["noises"][noise][drift.OURS]
        assert ours["false"]["per_1000"] <= 1.0, noise


def test_a_method_that_was_not_there_is_named_on_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["not_compared"] = {"jumpavg": "it is not installed here"}
    assert "Not compared: jumpavg, because it is not installed here." in drift_page.tables_of(changed)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        drift_page.renewed("no marks here", document())
