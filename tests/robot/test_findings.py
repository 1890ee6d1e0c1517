# SPDX-License-Identifier: Apache-2.0
"""What gates find in a run document."""

from nights import MET
from report_documents import attempt, run_document

from calibration.gates.findings import promises


def test_a_start_that_was_refused_counts_where_no_other_did() -> None:
    refused = attempt(checks=(MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met"}),))
    document = run_document(names=())
    resumed = promises(document.model_copy(update={"attempts": (refused, attempt(checks=(MET,)))}))
    assert (len(resumed.shown), resumed.faults) == (1, ())
    alone = promises(document.model_copy(update={"attempts": (refused,)}))
    assert alone.faults == ("Kernel release: expected 6.1.*, found 5.4.0-1",)
    flagged = attempt(checks=(MET.model_copy(update={"outcome": "unknown", "effect": "flag"}),))
    both = promises(document.model_copy(update={"attempts": (flagged, attempt(checks=(MET,)))}))
    assert len(both.faults) == 1
