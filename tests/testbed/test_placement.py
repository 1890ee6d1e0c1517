# SPDX-License-Identifier: Apache-2.0
"""Where pages and threads really are, on machines with several nodes, and what is said when they are elsewhere."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calibration.results.model import RunDocument
from calibration.run.records import StepRecord, records
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

PROFILES = Path(__file__).parent / "profiles"
Scenario = Callable[[str, str, str, str], None]

KINDS = {
    "latency_matrix", "bandwidth_matrix", "loaded_latency", "memory_curves", "c2c_latency", "latency_ladder",
    "load_tail", "memory_parallelism", "peak_injection_bandwidth", "random_bandwidth",
    "bandwidth_scaling",
}  # fmt: skip

WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"

MOVER = (
    'nohup sh -c \'while :; do for p in $(pgrep -f "^[^ ]*/sutprobe {subcommand} "); do migratepages $p 0 1; done; '
    "sleep 0.2; done' >/dev/null 2>&1 & echo $!"
)
"""Moves the pages of sutprobe from node 0 to node 1 while it measures; prints its process."""

NODES = {
    "four-nodes": ("four nodes", (0, 1, 2, 3), (0, 1, 2, 3), KINDS - {"loaded_latency", "memory_curves"}),
    "memory-only": ("a memory-only node", (0,), (0, 1), KINDS | {"memory_tiers"}),
    "no-memory": ("a node without memory", (0, 1), (0,), KINDS),
}
"""By shape: what is special, its nodes with CPUs and with memory, and what is measured on it.

A node with one CPU has none to load memory.
"""


def run(testbed: Testbed, lab: Lab, sut: Sut, profile: str, **variables: Any) -> RunDocument:
    """Calibrate one SUT with sudo; return its document."""
    inventory = testbed.inventory({"places": [sut]}, {"ansible_become": True, **variables})
    ended = lab.calibrate(inventory, profile=PROFILES / profile)
    assert lab.runs(), ended.text
    return lab.document(sut)


def flags(document: RunDocument, kind: str) -> dict[str, str]:
    """Return the flags of the measurements of a kind, with their reasons."""
    return {
        flag.code: flag.reason
        for measurement in document.measurements
        if measurement.kind == kind
        for flag in measurement.validity.flags
    }


def refused(document: RunDocument) -> dict[str, str]:
    """Return the flag of each kind that has no figure."""
    return {omitted.kind: omitted.flag.code for omitted in document.not_measured if omitted.flag is not None}


def placements(value: Any) -> Iterator[tuple[set[int], dict[str, Any]]]:
    """Yield the nodes that each point of a sutprobe document says it is on, and what was read back of its pages."""
    for point in (*value.get("points", ()), *value.get("pairs", ()), *value.get("cells", ())):
        nodes = set(point.get("nodes") or ([point["home"]] if "home" in point else ()))
        made = [point["evidence"]] if "evidence" in point else point.get("placements")
        for item in made or ():
            yield nodes, item["pages"]


@pytest.mark.parametrize("shape", NODES)
def test_each_cpu_node_is_a_row_and_each_memory_node_a_column(
    testbed: Testbed, lab: Lab, scenario: Scenario, shape: str
) -> None:
    sut = testbed.sut(shape)
    try:
        document = run(testbed, lab, sut, "places.yml")
        name, rows, columns, kinds = NODES[shape]
        by_kind = {measurement.kind: measurement for measurement in reversed(document.measurements)}
        failed = [omitted for omitted in document.not_measured if omitted.cause == "failed"]
        assert all(omitted.reason.endswith("loads are too few") for omitted in failed), failed
        assert by_kind.keys() == kinds
        for kind in ("latency_matrix", "bandwidth_matrix"):
            values = by_kind[kind].values
            assert values.table.grid(values.drawn[0])[:2] == (rows, columns), kind
        assert all(row.latency_ns is not None for row in by_kind["latency_matrix"].values.table.rows)
        there = {found.id for found in document.measurements if re.search("-node1$|-memory-only$", found.id)}
        assert len(there) == (5 if shape == "memory-only" else 0)
        for measurement in document.measurements:
            proof = measurement.pages
            assert proof is not None, measurement.kind
            assert proof.total, measurement.kind
            assert proof.total == proof.checked == proof.on_node, measurement.kind
            assert "EMULATED" in {flag.code for flag in measurement.validity.flags}
            assert "CLOCK_FALLBACK" in {flag.code for flag in measurement.validity.flags}
        assert_planned(lab.newest(sut), set(columns))
    finally:
        sut.stop()
    scenario(
        name,
        "none",
        f"{len(rows)} x {len(columns)} matrices",
        "all pages of all steps on the planned nodes",
    )


def assert_planned(directory: Path, columns: set[int]) -> None:
    """Every point is on nodes that its step was planned for, and every page on these."""
    for record in (record for record in records(directory) if isinstance(record, StepRecord)):
        assert set(record.step.memory_bytes) <= columns, record.step.id
        assert record.document is not None
        words = [found for word in record.step.argv for found in re.findall(r"@(\d+(?:\+\d+(?![-,@\d]))*)", word)]
        asked = {int(node) for word in words for node in word.split("+")}
        asked |= {int(node) for word in record.step.argv for node in re.findall(r"[@,](\d+)\*\d+", word)}
        for nodes, pages in placements(record.document["result"]):
            if record.step.kind not in ("c2c_latency", "c2c_matrix"):  # whose pairs name CPUs after the @
                assert nodes <= asked, record.step.id
            assert nodes <= set(record.step.memory_bytes), record.step.id
            assert pages["total"] == pages["checked"] == pages["on_node"], record.step.id


def test_pages_are_spread_by_weights_and_moved_ones_leave_no_figure(
    testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    sut = testbed.sut("memory-only")
    try:
        document = run(testbed, lab, sut, "tiers.yml")
        (found,) = document.measurements
        shares = {row.weights: row.far_share for row in found.values.table.rows}
        assert shares == pytest.approx({"1:0": 0, "3:1": 1 / 4, "1:2": 2 / 3, "0:1": 1}, abs=0.05), (
            "one huge page of 17"
        )
        assert found.pages
        assert found.pages.total == found.pages.checked == found.pages.on_node
        (weights,) = [omitted.reason for omitted in document.not_measured if omitted.what == "Machine's weights"]
        assert "Linux 6.9" in weights, "the image has an older kernel"
        sut.read(MOVER.format(subcommand="bandwidth"))
        document = run(testbed, lab, sut, "tiers.yml")
        assert {flag.code for measurement in document.measurements for flag in measurement.validity.flags} | {
            *refused(document).values()
        } >= {"PLACEMENT_WRONG"}
    finally:
        sut.stop()
    scenario(
        "pages spread over two nodes by weights",
        "none, then migratepages by root",
        "the shares of the weights on each node",
        "PLACEMENT_WRONG in place of the figures of moved pages",
    )


def test_the_kernel_spreads_pages_by_its_weights_which_are_not_changed(
    testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    sut = testbed.sut("weighted")
    try:
        sut.read(f"echo 4 > {WEIGHTS}/node0")
        document = run(testbed, lab, sut, "tiers.yml")
        assert sut.read(f"cat {WEIGHTS}/node*").split() == ["4", "1"]
    finally:
        sut.stop()
    (found,) = document.measurements
    shares = {row.weights: row.far_share for row in found.values.table.rows}
    assert {name: shares[name] for name in ("4:1", "kernel")} == pytest.approx(
        {"4:1": 1 / 5, "kernel": 1 / 5}, abs=0.05
    )
    (best,) = found.values.tiers
    assert best.machine == (4, 1)
    assert best.machine_mb_s
    scenario(
        "the kernel's weighted interleaving",
        "none",
        "the same shares as with sutprobe's own pages, and the weights as they were",
        "bandwidth with the machine's weights",
    )


@pytest.fixture
def two(testbed: Testbed) -> Sut:
    return testbed.sut("two-nodes", "two-nodes-a")


def test_pages_that_are_moved_leave_no_figure_and_a_throttled_policy_none_either(
    testbed: Testbed, lab: Lab, two: Sut, scenario: Scenario
) -> None:
    process = two.read(MOVER.format(subcommand="latency")).strip()
    try:
        document = run(testbed, lab, two, "moved.yml")
    finally:
        two.ssh(f"kill {process}")
    assert document.run.status == "incomplete"
    assert refused(document) == {"idle_latency": "PLACEMENT_WRONG", "jitter": "RT_THROTTLE_POSSIBLE"}
    reasons = {omitted.kind: omitted.reason for omitted in document.not_measured}
    assert "not on node 0" in reasons["idle_latency"]
    assert "sched_rt_runtime_us" in reasons["jitter"]
    scenario(
        "pages moved while measured",
        "migratepages by root",
        "the other steps",
        "PLACEMENT_WRONG in place of the figure, the run incomplete",
    )
    scenario(
        "SCHED_FIFO is throttled", "sched_rt_runtime_us as it is", "the other steps", "RT_THROTTLE_POSSIBLE, no figure"
    )


def test_huge_pages_exhausted_on_one_node_and_cpus_hidden_are_named(
    testbed: Testbed, lab: Lab, two: Sut, scenario: Scenario
) -> None:
    pool = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
    two.read(f"echo 34 > {pool.format(0)}; echo 2 > {pool.format(1)}")
    two.read("systemctl set-property --runtime system.slice AllowedCPUs=0-1")
    try:
        assert two.read(f"cat {pool.format(0)}").strip() == "34"
        document = run(testbed, lab, two, "matrices.yml")
    finally:
        two.ssh(f"echo 0 > {pool.format(0)}; echo 0 > {pool.format(1)}")
        two.ssh("systemctl set-property --runtime system.slice AllowedCPUs=0-3")
    assert "node 1 has too few free hugetlb pages" in flags(document, "latency_matrix")["HUGEPAGE_EXHAUSTED"]
    (hidden,) = (flag.reason for flag in document.flags if flag.code == "CPUS_HIDDEN")
    assert "2 of 4 CPUs online (2-3)" in hidden
    (matrix,) = (measurement for measurement in document.measurements if measurement.kind == "latency_matrix")
    assert matrix.values.table.grid("latency_ns")[:2] == ((0,), (0, 1))
    obtained = {
        tuple(point["nodes"]): {placement["pages"]["obtained"] for placement in point["placements"]}
        for record in records(lab.newest(two))
        if isinstance(record, StepRecord) and record.step.kind == "latency_matrix" and record.document is not None
        for point in record.document["result"]["points"]
    }
    assert obtained == {(0,): {"thp"}, (1,): {"thp"}}
    scenario(
        "huge pages exhausted on one node",
        "34 reserved on node 0, 2 on node 1",
        "all cells, on transparent huge pages",
        "HUGEPAGE_EXHAUSTED",
    )
    scenario(
        "a cpuset hides CPUs",
        "AllowedCPUs of the services' slice, where the run is",
        "rows of the CPUs left",
        "CPUS_HIDDEN",
    )
