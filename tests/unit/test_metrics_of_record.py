# SPDX-License-Identifier: Apache-2.0
"""The metric of record of each quantity, and cross-checks of the others."""

import sys
from pathlib import Path

import pytest

from calibration.base.validity import flag, validity
from calibration.measurements import row_of
from calibration.measurements.jitter import JitterValues
from calibration.measurements.loaded_latency import RECORD_SHARE, LoadedLatencyValues
from calibration.results.cross_checks import cross_checks
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import Measurement, RecordMetric, RunDocument

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))
from report_documents import run_document, with_nodes


@pytest.fixture(scope="module")
def document() -> RunDocument:
    return run_document()


def by_quantity(measurements: tuple[Measurement, ...]) -> dict[str, RecordMetric]:
    found = metrics_of_record(measurements)
    assert len({item.quantity for item in found}) == len(found)
    return {item.quantity: item for item in found}


def test_one_metric_of_record_per_quantity(document: RunDocument) -> None:
    found = by_quantity(document.measurements)
    assert found["idle_latency.0.0"].metric.name == "latency_matrix.0.0.latency_ns"
    assert found["read_bandwidth.machine"].metric.name == "peak_injection_bandwidth.reads.bandwidth_mb_s"
    assert {"cache_latency.L1", "loaded_latency.first", "worst_gap", "lost_share", "clock"} <= found.keys()
    assert "read_bandwidth.0" not in found, "the only node is the machine"
    assert "idle_latency" not in found, "the matrix has that pair"
    assert document.record == metrics_of_record(document.measurements)


def test_numa_metrics_are_per_node_and_pair(document: RunDocument) -> None:
    found = by_quantity(with_nodes(document, 4).measurements)
    assert {f"read_bandwidth.{node}" for node in range(3)} <= found.keys()
    assert sum(item.family == "idle_latency" for item in found.values()) == 15  # the last cell has no value


def test_latency_at_the_share_is_of_record_before_that_at_full_load(document: RunDocument) -> None:
    (measured,) = (measurement for measurement in document.measurements if measurement.kind == "loaded_latency")
    assert isinstance(measured.values, LoadedLatencyValues)
    first, second, *rest = measured.values.points
    points = (first, second.model_copy(update={"share": RECORD_SHARE}), *rest)
    measured = measured.model_copy(update={"values": measured.values.model_copy(update={"points": points})})
    found = {quantity: item.metric.name for quantity, item in by_quantity((measured,)).items()}
    assert found == {"loaded_latency.first": "loaded_latency.90pct.latency_ns"}


def test_idle_latency_is_of_record_without_the_matrix(document: RunDocument) -> None:
    rest = tuple(measurement for measurement in document.measurements if measurement.kind != "latency_matrix")
    assert by_quantity(rest)["idle_latency"].metric.name == "idle_latency.latency_ns"


def test_an_invalid_metric_is_of_record_only_without_another(document: RunDocument) -> None:
    def broken(*kinds: str) -> tuple[Measurement, ...]:
        faults = [flag("EMULATED", "an emulator"), flag("PLACEMENT_WRONG", "3 of 4 pages"), flag("DRIFT", "moved")]
        wrong = validity(faults)
        return tuple(
            measurement.model_copy(update={"validity": wrong}) if measurement.kind in kinds else measurement
            for measurement in document.measurements
        )

    found = by_quantity(broken("peak_injection_bandwidth"))["read_bandwidth.machine"]
    assert (found.metric.name, found.trust == "invalid") == ("max_bandwidth.reads.bandwidth_mb_s", False)
    found = by_quantity(broken("peak_injection_bandwidth", "max_bandwidth"))["read_bandwidth.machine"]
    assert (found.trust, found.reason and found.reason.code) == ("invalid", "PLACEMENT_WRONG")


def test_worst_gap_prefers_isolated_cpus(document: RunDocument) -> None:
    (jitter,) = (measurement for measurement in document.measurements if measurement.kind == "jitter")
    assert isinstance(jitter.values, JitterValues)

    intervals = jitter.values.intervals

    def one(cpu: int, max_ns: float, *, isolated: bool, disturbed: bool = False) -> Measurement:
        gaps = jitter.values.gaps.model_copy(update={"max_ns": max_ns})
        quiet = tuple(item.model_copy(update={"inst_max_cycles": item.inst_min_cycles}) for item in intervals)
        shown = {"gaps": gaps, "intervals": intervals if disturbed else quiet}
        values = jitter.values.model_copy(update={"cpu": cpu, "isolated": isolated, **shown})
        return jitter.model_copy(update={"values": values})

    worst = by_quantity((one(1, 9e6, isolated=False), one(2, 1e3, isolated=True), one(3, 2e3, isolated=True)))
    assert worst["worst_gap"].metric.name == "jitter.cpu3.gaps.max_ns"
    worst = by_quantity((one(1, 9e6, isolated=False), one(2, 1e3, isolated=False)))
    assert worst["worst_gap"].metric.name == "jitter.cpu1.gaps.max_ns"
    worst = by_quantity((one(1, 1e3, isolated=False, disturbed=True), one(2, 2e3, isolated=False)))
    assert worst["worst_gap"].metric.name == "jitter.cpu1.work_max_ns", "the longest of both views"
    assert worst["worst_gap"].metric.value == pytest.approx(1.49e6, rel=0.01)


def test_repeated_measurements_are_checked_against_the_metric_of_record(document: RunDocument) -> None:
    record = {figure.metric.name for figure in document.record}
    checks = [item for item in cross_checks(document.measurements) if item.rule == "same_latency"]
    assert {check.figure.name for check in checks} >= {"idle_latency.latency_ns", "latency_ladder.memory.latency_ns"}
    for check in checks:
        assert check.other.name in record
        assert check.difference == pytest.approx(check.figure.value / check.other.value - 1)
        assert check.difference_interval is not None
        assert check.difference_interval[0] < check.difference < check.difference_interval[1]


@pytest.mark.parametrize(("one", "other", "same"), [
    ("latency_ladder.L1.latency_ns", "latency_ladder.L3.latency_ns", False),
    ("bandwidth_scaling.fill.1.bandwidth_mb_s", "bandwidth_scaling.fill.64.bandwidth_mb_s", False),
    ("loaded_latency.0.latency_ns", "loaded_latency.300.latency_ns", False),
    ("latency_matrix.0.0.latency_ns", "latency_matrix.0.1.latency_ns", False),
    ("latency_matrix.0.0.latency_ns", "latency_matrix.1.1.latency_ns", True),
    ("jitter.cpu1.gaps.max_ns", "jitter.cpu127.gaps.max_ns", True),
    ("old_kind.1", "old_kind.2", False),
])  # fmt: skip
def test_extremes_are_of_one_quantity_in_many_places(one: str, other: str, same: bool) -> None:
    assert (row_of(one).quantity(one) == row_of(other).quantity(other)) == same
