# SPDX-License-Identifier: Apache-2.0
"""Cross-checks of a run: bounds, and skipped checks."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from calibration.base.statistics import Estimate, estimate
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.results.consistency import RULES, ConsistencyCheck
from calibration.results.cross_checks import cross_checks
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.report.report_documents import FIXTURES, flagged, index_of, replace, run_document, scaled, with_nodes

IDLE, MATRIX = "idle_latency.latency_ns", "latency_matrix.0.0.latency_ns"


def idle(document: RunDocument, figure: Estimate, **fields: Any) -> RunDocument:
    """Return *document* with another idle latency."""
    index = index_of(document, "idle_latency")
    values = document.measurements[index].values
    return replace(document, index, values=values.model_copy(update={"latency_ns": figure, **fields}))


def latencies(document: RunDocument) -> ConsistencyCheck:
    """Return what is said of the idle latency beside the matrix."""
    (check,) = (
        item for item in cross_checks(document.measurements) if (item.figure.name, item.other.name) == (IDLE, MATRIX)
    )
    return check


def two_latencies() -> RunDocument:
    return run_document(names=("idle_latency", "latency_matrix"))


def test_a_rule_allows_both_intervals_and_the_tolerance() -> None:
    document = two_latencies()
    check = latencies(document)
    assert check.bound is not None
    low, high = check.bound
    assert low is not None
    assert check.other.interval is not None
    tolerance = 1 + RULES["same_latency"].tolerance
    assert (low, high) == (check.other.interval[0] / tolerance, check.other.interval[1] * tolerance)
    figure = document.measurements[index_of(document, "idle_latency")].values
    assert isinstance(figure, IdleLatencyValues)
    recorded = figure.latency_ns
    assert recorded.interval is not None
    for factor, outcome in (
        (0.999 * high / recorded.interval[0], "pass"),
        (1.001 * high / recorded.interval[0], "fail"),
        (1.001 * low / recorded.interval[1], "pass"),
        (0.999 * low / recorded.interval[1], "fail"),
    ):
        assert latencies(idle(document, scaled(recorded, factor))).outcome == outcome, factor


def test_a_check_with_few_placements_is_skipped() -> None:
    check = latencies(idle(two_latencies(), estimate([[300.0], [301.0], [302.0]], "ns")))
    assert (check.outcome, check.bound) == ("skipped", None)
    assert check.reason == f"{IDLE}: its interval has only 75 % coverage"


def test_a_check_without_an_interval_is_skipped() -> None:
    check = latencies(idle(two_latencies(), estimate([[300.0]], "ns")))
    assert (check.outcome, check.reason) == ("skipped", f"{IDLE}: no interval")


def test_latencies_on_pages_of_another_size_are_not_compared() -> None:
    document = two_latencies()
    other = flagged(document, index_of(document, "latency_matrix"), "HUGEPAGE_NONE", "on 4096-byte pages")
    check = latencies(other)
    assert (check.outcome, check.reason) == ("skipped", f"{IDLE}: on pages of another size")


@pytest.mark.parametrize("field", ["cpu", "node"])
def test_other_cpus_and_nodes_are_not_compared(field: str) -> None:
    document = two_latencies()
    index = index_of(document, "idle_latency")
    values = document.measurements[index].values
    other = replace(document, index, values=values.model_copy(update={field: getattr(values, field) + 1}))
    assert cross_checks(other.measurements) == ()


def test_no_recorded_run_contradicts_itself(tmp_path: Path) -> None:
    checks = run_document().consistency
    assert {check.rule for check in checks} == set(RULES) - {"own_memory"}
    assert [check for check in checks if check.outcome != "pass"] == []
    assert not any(check.figure.name.startswith("bandwidth_matrix") for check in checks if check.rule == "part"), (
        "one node"
    )
    for path in sorted((FIXTURES / "runs").glob("*-last.json.gz")):
        (tmp_path / RUN).write_bytes(gzip.decompress(path.read_bytes()))
        older = read_run(tmp_path)
        assert older.consistency == ()
        assert [verdict for verdict in cross_checks(older.measurements) if verdict.outcome == "fail"] == []


def test_many_nodes_are_checked_per_node_not_per_pair() -> None:
    document = with_nodes(run_document(), 16)
    checks = cross_checks(document.measurements)
    own = [check for check in checks if check.rule == "own_memory"]
    assert len(own) == 15  # the last cell has no value
    assert len(checks) < 50
    assert [check for check in checks if check.outcome == "fail"] == []
