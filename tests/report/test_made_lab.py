# SPDX-License-Identifier: Apache-2.0
"""Synthetic results: a complete night of a server, and a lab whose judgement finds what was planted."""

from collections import Counter
from pathlib import Path

import pytest

from calibration.judge.night import judge_night
from calibration.profiles import load_profile
from tests.report.made_lab import SMALL, Lab, server_document


@pytest.mark.slow
def test_every_step_of_a_night_is_measured() -> None:
    document = server_document(SMALL)
    assert document.run.status == "complete"
    assert {omitted.cause for omitted in document.not_measured} == {"not_planned"}
    planned = set(load_profile("nightly").measurements) - {"memory_tiers"}  # no node of it is memory-only
    assert {measurement.kind for measurement in document.measurements} == planned


@pytest.mark.slow
def test_judgement_finds_the_planted_faults(tmp_path: Path) -> None:
    lab = Lab(suts=5, nights=7)
    lab.write(results := tmp_path / "results")
    failed = Counter((found.testbed, found.sut) for found in judge_night(results).verdicts if found.outcome == "fail")
    assert lab.missing in failed
    assert failed.most_common(1)[0][0] == lab.slower
