# SPDX-License-Identifier: Apache-2.0
"""The published measurement of the drift check is the run that is kept, and that meets what the check promises."""

import copy
import json
import math
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
    changed["noises"]["log-normal"]["alarms"] *= 2
    text = drift_page.PAGE.read_text(encoding="utf-8")
    assert drift_page.renewed(text, changed) != text


def test_the_run_that_is_kept_is_a_whole_one() -> None:
    kept = document()
    assert kept["schema"] == drift.SCHEMA
    assert tuple(kept["noises"]) == tuple(drift.NOISES)


@pytest.mark.parametrize("noise", drift.DEPENDENT)
def test_nights_that_remember_the_night_before_meet_the_promises(noise: str) -> None:
    kept = document()
    row = kept["noises"][noise]
    assert row["alarms"] <= row["nights"] / 1000.0
    tries = drift.SHIFTS * kept["series"]
    for after in ("60", "120"):
        assert row["shifts"][after] >= 0.95 * tries - 1.64 * math.sqrt(0.95 * 0.05 * tries), after


@pytest.mark.parametrize("noise", ["autocorrelation 0", "autocorrelation 0, weekly cycle"])
def test_a_slow_drift_of_independent_nights_is_found_after_120(noise: str) -> None:
    kept = document()
    assert kept["noises"][noise]["drifts"]["120"] >= 0.8 * kept["series"]


def test_rates_have_exact_intervals() -> None:
    assert drift_page.per_thousand(10, 10000) == "1.00 [0.48, 1.84]"
    assert drift_page.per_thousand(0, 1000) == "0.00 [0.00, 3.69]"


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        drift_page.renewed("no marks here", document())
