# SPDX-License-Identifier: Apache-2.0
"""Cross-checks of a run: bounds, and skipped checks."""

import gzip
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from calibration.base.statistics import Estimate, estimate
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.measurements.table import TableRow
from calibration.measurements.traffic_shape import TrafficShapeValues
from calibration.results.consistency import RULES, CheckedValue, ConsistencyCheck, Side, check
from calibration.results.cross_checks import cross_checks
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.report.report_documents import (
    FIXTURES,
    flagged,
    index_of,
    replace,
    run_document,
    scaled,
    with_nodes,
    with_rows,
)

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


def test_few_rounds_can_fail_a_rule_but_never_pass_it() -> None:
    document = two_latencies()
    same = latencies(document).other.value
    check = latencies(idle(document, estimate([[same], [same + 1], [same + 2]], "ns")))
    assert (check.outcome, check.bound) == ("skipped", None)
    assert check.reason == f"{IDLE}: its interval has only 75 % coverage"
    far = estimate([[4 * same], [4 * same + 1], [4 * same + 2]], "ns")
    assert latencies(idle(document, far)).outcome == "fail"
    spread = estimate([[same / 2], [4 * same], [5 * same]], "ns")
    assert latencies(idle(document, spread)).outcome == "skipped"
    assert latencies(idle(document, estimate([[4 * same], [4 * same + 1]], "ns"))).outcome == "skipped", "two rounds"


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(0.95, 1.05, "pass"), (0.45, 1.05, "skipped"), (0.95, 4.0, "skipped")]
)
def test_an_interval_that_no_contradiction_leaves_decides_nothing(low: float, high: float, outcome: str) -> None:
    value = CheckedValue(name="a", value=100.0, unit="MB/s", interval=(100 * low, 100 * high))
    other = CheckedValue(name="b", value=100.0, unit="MB/s", interval=(95.0, 105.0))
    checked = check("same_bandwidth", Side(value), Side(other))
    assert checked.outcome == outcome
    assert checked.reason.startswith("intervals so wide") == (outcome == "skipped")
    assert check("same_bandwidth", Side(other), Side(value)).outcome == outcome


def patterns(avx2: float, sse2: float, instruction: str = "vector") -> dict[str, ConsistencyCheck]:
    """Return the checks of two searches that found so many GB/s for reads, by rule and vector width."""
    document = run_document(names=("traffic_shape-avx2", "traffic_shape-sse2", "max_bandwidth"))
    maximum = document.measurements[index_of(document, "max_bandwidth")].values.mixes["reads"]
    made = []
    for measurement in document.measurements:
        values = measurement.values
        if isinstance(values, TrafficShapeValues):
            gb_s = {"avx2": avx2, "sse2": sse2}[values.width]
            setting = maximum.setting.model_copy(update={"instruction": instruction if gb_s == avx2 else "vector"})
            found = estimate([[gb_s * 1e3 * part] for part in (0.992, 1.0, 1.004)], "MB/s")
            best = {"reads": maximum.model_copy(update={"bandwidth_mb_s": found, "setting": setting})}
            made.append(measurement.model_copy(update={"values": values.model_copy(update={"best": best})}))
        else:
            noisy = scaled(estimate([[part] for part in (0.9, 0.9, 1.0, 1.0, 2.3, 2.4)], "MB/s"), 54500.0)
            best = {**values.mixes, "reads": maximum.model_copy(update={"bandwidth_mb_s": noisy})}
            made.append(measurement.model_copy(update={"values": values.model_copy(update={"mixes": best})}))
    checks = cross_checks(made)
    return {f"{item.rule} {item.figure.name.split('.')[1]}": item for item in checks if item.rule != "maximum"}


def test_a_fourfold_contradiction_of_access_patterns_is_found() -> None:
    found = patterns(95.7, 23.6)
    assert found["vector_width avx2"].outcome == "fail"
    assert "23600 MB/s" in found["vector_width avx2"].reason
    assert found["best_pattern avx2"].outcome == "skipped", "the maximum is too uncertain to agree with anything"
    assert patterns(218.0, 210.0)["best_pattern avx2"].outcome == "fail"
    assert patterns(55.4, 47.1)["vector_width avx2"].outcome == "skipped", "three rounds agree with nothing"


def test_an_instruction_of_its_own_has_no_vector_width() -> None:
    assert "vector_width avx2" not in patterns(95.7, 23.6, "clzero")


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
    assert {check.rule for check in checks} == set(RULES) - {
        "own_memory",
        "same_curve",
    }  # tests/unit/test_memory_curves.py
    assert [check for check in checks if check.outcome == "fail"] == []
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


def with_memory_only(document: RunDocument, times: float) -> RunDocument:
    """Return *document* with two more nodes, of memory alone: *times* the latency and the bandwidth of node 0's own."""
    for kind in ("latency_matrix", "bandwidth_matrix"):
        index = index_of(document, kind)
        values = document.measurements[index].values
        assert isinstance(values, NodeMatrixValues)
        own, column = values.table.rows[0], values.drawn[0]
        more = [
            TableRow(row | {"memory_node": node, column: scaled(own[column], times)})
            for row, node in product(values.table.rows[::2], (8, 9))
        ]
        document = replace(document, index, values=with_rows(values, (*values.table.rows, *more)))
    return document


@pytest.mark.parametrize("times", [0.1, 10.0])
def test_memory_without_cpus_may_be_faster_or_slower_than_all_other(times: float) -> None:
    document = with_nodes(run_document(), 2)
    assert cross_checks(with_memory_only(document, times).measurements) == cross_checks(document.measurements)


def test_memory_that_another_node_reaches_sooner_is_a_contradiction() -> None:
    document = with_nodes(run_document(names=("latency_matrix", "bandwidth_matrix", "c2c_latency")), 2)
    index = index_of(document, "latency_matrix")
    values = document.measurements[index].values
    assert isinstance(values, NodeMatrixValues)
    rows = [
        TableRow(
            row | {"latency_ns": scaled(row.latency_ns, 0.1 if (row.cpu_node, row.memory_node) == (1, 0) else 1.0)}
        )
        for row in values.table.rows
        if row.latency_ns
    ]
    checks = cross_checks(replace(document, index, values=with_rows(values, rows)).measurements)
    (failed,) = (check for check in checks if check.outcome == "fail")
    assert (failed.rule, failed.figure.name) == ("own_memory", "latency_matrix.0.0.latency_ns")
    assert failed.other.name == "latency_matrix.1.0.latency_ns"
