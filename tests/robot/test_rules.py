# SPDX-License-Identifier: Apache-2.0
"""Rules of the gates."""

from nights import MET
from report_documents import attempt, replace, run_document

from calibration.base.validity import flag, validity
from calibration.gates.rules import check_completeness, check_promises


def test_only_what_makes_a_measurement_invalid_is_its_reason() -> None:
    flags = [flag("DRIFT", "it moved"), flag("PLACEMENT_WRONG", "a page lay on node 1")]
    document = replace(run_document(names=("idle_latency",)), 0, validity=validity(flags))
    failed = [side.text for side in check_completeness(document) if side.outcome == "failed"]
    assert failed == [f"{document.measurements[0].title}: invalid: a page lay on node 1"]


def test_a_run_that_says_itself_that_it_is_not_complete_fails() -> None:
    document = run_document(names=("idle_latency",))
    stopped = document.model_copy(
        update={"run": document.run.model_copy(update={"status": "interrupted"}), "not_measured": ()}
    )
    failed = [side.text for side in check_completeness(stopped) if side.outcome == "failed"]
    assert failed == ["the run is interrupted"]


def test_a_refused_start_counts_only_without_another() -> None:
    refused = attempt(checks=(MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met"}),))
    document = run_document(names=())
    resumed = list(check_promises(document.model_copy(update={"attempts": (refused, attempt(checks=(MET,)))})))
    assert [verdict.outcome for verdict in resumed] == ["passed"]
    alone = list(check_promises(document.model_copy(update={"attempts": (refused,)})))
    assert alone == [("failed", "Kernel release: expected 6.1.*, found 5.4.0-1")]
    flagged = attempt(checks=(MET.model_copy(update={"outcome": "unknown", "severity": "flag"}),))
    both = check_promises(document.model_copy(update={"attempts": (flagged, attempt(checks=(MET,)))}))
    assert [side.outcome for side in both] == ["failed", "passed"]
