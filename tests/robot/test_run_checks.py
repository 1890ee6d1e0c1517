# SPDX-License-Identifier: Apache-2.0
"""Checks of a run on its own."""

from nights import HEALTHY, MET
from report_documents import attempt, not_begun_document, replace, run_document

from calibration.base.validity import flag, validity
from calibration.results.run_checks import check_completeness, check_inventory, check_settings_restored, run_checks


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
    assert failed == ["run interrupted, 1 of 0 steps measured"]


def test_a_run_that_did_not_begin_says_once_why() -> None:
    refused = not_begun_document()
    assert list(check_completeness(refused)) == [("failed", "Kernel release: expected 6.1.*, found 5.4.0-1")]


def test_a_refused_start_counts_only_without_another() -> None:
    refused = attempt(checks=(MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met"}),))
    document = run_document(names=())
    resumed = list(check_inventory(document.model_copy(update={"attempts": (refused, attempt(checks=(MET,)))})))
    assert [verdict.outcome for verdict in resumed] == ["passed"]
    alone = list(check_inventory(document.model_copy(update={"attempts": (refused,)})))
    assert alone == [("failed", "Kernel release: expected 6.1.*, found 5.4.0-1")]
    flagged = attempt(checks=(MET.model_copy(update={"outcome": "unknown", "severity": "flag"}),))
    both = check_inventory(document.model_copy(update={"attempts": (flagged, attempt(checks=(MET,)))}))
    assert [side.outcome for side in both] == ["failed", "passed"]


def test_settings_that_another_run_left_changed_are_a_failure_alone() -> None:
    left = flag("NOT_RESTORED", "Not restored: governor at cpu0: wanted schedutil, found performance")
    document = run_document(names=()).model_copy(update={"attempts": (attempt(),), "flags": (left,)})
    assert list(check_settings_restored(document)) == [("failed", left.reason)]


def test_a_check_says_what_decided_it() -> None:
    """The worst outcome decides; what passes is counted."""
    unmet = MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met", "severity": "flag"})
    document = run_document(names=("idle_latency", "jitter")).model_copy(
        update={"attempts": (attempt(checks=(MET, unmet), health=HEALTHY),), "not_measured": ()}
    )
    assert list(run_checks(document)) == [
        ("inventory", "fail", ("Kernel release: expected 6.1.*, found 5.4.0-1",)),
        ("restored", "pass", ("the run changed no setting of the SUT",)),
        ("errors", "pass", ("no errors in 4 counters of memory and PCIe links",)),
        ("complete", "pass", (f"{len(document.measurements)} of {len(document.measurements)} pass",)),
    ]
    undecided = {check.name: check for check in run_checks(run_document(names=()))}
    assert undecided["inventory"][1:] == ("no_reference", ("nothing to check",))
    assert undecided["errors"].outcome == undecided["complete"].outcome == "no_reference"
