# SPDX-License-Identifier: Apache-2.0
"""A server's topology: 32 CPUs, eight nodes. Optional: emulated on two CPUs, a quick run takes about twenty minutes."""

import os
from collections.abc import Callable
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibration.measurements import declaration, registry
from calibration.profiles import load_profile
from tests.testbed import support
from tests.testbed.shapes import shapes
from tests.testbed.support import Lab, Testbed
from tests.testbed.test_placement import assert_planned

PATIENCE_S = 3300
"""A calibration that takes longer hangs: 32 threads that wait for each other take turns on the CPUs there are."""

EVERYWHERE = {"placements": 1, "windows": 2, "target_half_width": 1.0}
"""What the kinds of the profile quick are set to here, in one round: any spread is good enough."""

ALL_CPUS = {"window_s": 4.0}
"""The same for loads of all CPUs: 32 threads take ten seconds to begin where they share two, so that longer windows are
what a deadline is long enough for."""

SINGLE: dict[str, dict[str, Any]] = {
    "core_frequency": {"window_s": 0.3},  # 16 threads share the emulator's CPUs: in 5 ms some have none
    # 56 cells beside seven keep-awake threads take 20 s in the emulator, 4 s more for each window of the default hops
    "latency_matrix": {"hops": 6400, "largest_bytes": 16 << 20},
    "c2c_matrix": {"pairs_per_class": 1},  # the kernel leaves out what takes three times as long as expected
    "peak_injection_bandwidth": ALL_CPUS,
    "max_bandwidth": {"window_s": 8.0, "mixes": ["reads"], "streams": [4], "prefetch_bytes": [2048]},
    "bandwidth_scaling": ALL_CPUS,
    "bandwidth_ladder": ALL_CPUS,
    "loaded_latency": ALL_CPUS,
}

pytestmark = pytest.mark.skipif(
    not os.environ.get("CALIBRATION_TESTBED_MANY"),
    reason="asked for by its own environment: testbed-many",
)


def patient(directory: Path) -> Path:
    """Write the profile quick as an emulator can follow it; return its path."""
    profile = yaml.safe_load(files("calibration.profiles").joinpath("quick.yml").read_text(encoding="utf-8"))
    for kind, settings in profile["measurements"].items():
        known = declaration(kind).settings.model_fields
        settings.update({name: value for name, value in EVERYWHERE.items() if name in known} | SINGLE.get(kind, {}))
    profile["rounds"] = 1
    path = directory / "patient.yml"
    path.write_text(yaml.safe_dump(profile, sort_keys=False), encoding="utf-8")
    return path


def test_a_quick_run_on_many_cpus_is_complete_and_every_page_is_where_it_was_planned(
    testbed: Testbed, lab: Lab, scenario: Callable[[str, str, str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "PATIENCE_S", PATIENCE_S)
    shape = shapes()["many-cpus"]
    rows = tuple(number for number, node in enumerate(shape.nodes) if node.cpus)
    columns = tuple(range(len(shape.nodes)))
    sut = testbed.sut("many-cpus")
    ended = lab.calibrate(testbed.inventory({"large": [sut]}, {"ansible_become": True}), profile=patient(lab.directory))
    document = lab.document(sut)
    failed = [omitted for omitted in document.not_measured if omitted.cause != "not_planned"]
    assert (document.run.status, failed) == ("complete", []), ended.text
    assert document.context is not None
    context = document.context.parsed
    assert [node.cpus for node in context.nodes] == [node.cpus for node in shape.nodes]
    assert context.distances == shape.distances
    assert (context.topology.packages, context.topology.threads_per_core) == (2, 2)

    measured = {measurement.kind for measurement in document.measurements}
    left_out = {omitted.kind for omitted in document.not_measured}
    assert measured >= load_profile("quick").measurements.keys() - left_out
    assert measured | left_out >= registry().keys()
    by_id: dict[str, Any] = {measurement.id: measurement.values for measurement in document.measurements}
    for kind in ("latency_matrix", "bandwidth_matrix"):
        values = by_id[kind]
        assert list(values.table.cells(values.drawn[0])) == list(product(rows, columns))
    transfers = by_id["c2c_latency"]
    transfers = transfers.printed(transfers.table)
    assert transfers["nodes"] == rows
    sampled = {omitted.what for omitted in document.not_measured if omitted.kind == "c2c_latency"}
    assert sampled == {"4 of 24 pairs of different packages"}
    for matrix in (transfers["remote_hitm_writer_homed_ns"], transfers["remote_hitm_reader_homed_ns"]):
        left = {frozenset((a, b)) for a in rows for b in rows if matrix[a][b] is None}
        assert left == {frozenset((a, a)) for a in rows} | {frozenset((0, 5)), frozenset((1, 4))}
    # 16 cores of two threads behind two last-level caches, each of which all nodes of its package share
    classes = {class_name.name: class_name.measured for class_name in by_id["c2c_matrix"].classes}
    assert classes == {"smt_siblings": 2, "same_llc": 2, "other_package": 2}

    for measurement in document.measurements:
        assert "EMULATED" in {flag.code for flag in measurement.validity.flags}, measurement.id
        if measurement.pages is not None:
            assert measurement.pages.total == measurement.pages.checked == measurement.pages.on_node, measurement.id
    assert_planned(lab.newest(sut), set(columns))
    page = lab.page(sut)
    assert all(f"node {node}" in page for node in columns)
    scenario(
        "32 CPUs, eight nodes", "none", "a quick run, 7 x 8 matrices", "all pages of all steps on the planned nodes"
    )
