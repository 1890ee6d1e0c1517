# SPDX-License-Identifier: Apache-2.0
"""The published attribution of planted disturbances is the run that is kept, and nothing else."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import attribution, attribution_page


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(attribution_page.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def probed() -> dict[str, Any]:
    """Return a document of sutprobe that the kept one can have come from."""
    kept = document()
    return {
        "host": {"release": kept["kernel"], "machine": kept["machine"], "hypervisor": kept["hypervisor"]},
        "clock": {"source": kept["clock"]},
        "result": {
            "cases": [{"name": "trace_planted", "passed": True, "error": None, "note": None}],
            "plantings": kept["plantings"],
        },
    }


def test_the_page_shows_the_run_that_is_kept() -> None:
    text = attribution_page.PAGE.read_text(encoding="utf-8")
    assert attribution_page.renewed(text, document()) == text, "run python bench/attribution_page.py"


def test_a_figure_changed_in_the_run_changes_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["plantings"]["plants"][0]["found_events"] += 1
    text = attribution_page.PAGE.read_text(encoding="utf-8")
    assert attribution_page.renewed(text, changed) != text


def test_what_was_planted_in_the_run_was_found_and_the_rest_is_told() -> None:
    kept = document()
    assert kept["schema"] == attribution.SCHEMA
    found = kept["plantings"]
    assert len(found["plants"]) == 3
    for each in found["plants"]:
        assert each["planted_events"] > 100
        assert each["found_events"] >= 0.9 * each["planted_events"] - 2
    shares = [found["unexplained"]["share"], found["edges"]["share"], *(each["share"] for each in found["causes"])]
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)


def test_what_was_planted_is_kept(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    said.write_text(json.dumps(probed()), encoding="utf-8")
    command = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(said)]
    assert attribution.main(["--json", str(tmp_path / "kept.json"), "--", *command]) == 0
    assert json.loads((tmp_path / "kept.json").read_text(encoding="utf-8")) == document()


@pytest.mark.parametrize("fault", ["not root", "missed", "nothing"])
def test_a_run_that_shows_nothing_is_not_kept(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoilt = probed()
    if fault == "not root":
        spoilt["result"]["plantings"] = None
        spoilt["result"]["cases"][0]["note"] = "nothing was planted: no permission"
    elif fault == "missed":
        spoilt["result"]["cases"][0] |= {"passed": False, "error": {"message": "found 3"}}
    else:
        spoilt["result"] = None
    said = tmp_path / "said.json"
    said.write_text(json.dumps(spoilt), encoding="utf-8")
    command = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(said)]
    assert attribution.main(["--json", str(tmp_path / "kept.json"), "--", *command]) == 3
    assert not (tmp_path / "kept.json").exists()
    assert capsys.readouterr().err
