# SPDX-License-Identifier: Apache-2.0
"""Nodes that are not what they seem: emulated ones with the same CPUs, and one behind a memory-side cache."""

from pathlib import Path

from calibration.context.hmat import ratings
from calibration.context.loader import load
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.results.layout import CAPTURE, RUN
from calibration.results.store import open_run, read_run
from tests.testbed.support import Lab, Testbed
from tests.testbed.test_many_cpus import patient

PROFILES = Path(__file__).parent / "profiles"
MIB = 1 << 20


def calibrated(shape: str, profile: Path, testbed: Testbed, lab: Lab) -> tuple[Path, str]:
    """Return the directory of a run of *shape* with *profile*, and what the calibration printed."""
    sut = testbed.sut(shape)
    ended = lab.calibrate(testbed.inventory({"shapes": [sut]}, {"ansible_become": True}), profile=profile)
    testbed.stop(sut)
    [run] = lab.runs()
    return run, ended.text


def test_emulated_nodes_are_measured_once(testbed: Testbed, lab: Lab) -> None:
    run, text = calibrated("emulated-nodes", patient(lab.directory), testbed, lab)
    context = load(run / CAPTURE)
    assert context.emulated_nodes == {(0, 1, 2, 3): (0, 1, 2, 3)}
    assert context.unreadable == ()
    document = read_run(run)
    # On a busy machine the emulated clock is too uneven for the core frequency, and pairs are left out to save time.
    failed = {missing.kind for missing in document.not_measured if missing.cause == "failed"}
    assert failed - {found.kind for found in document.measurements} <= {"core_frequency"}, text
    assert "twice" not in text
    matrices = [found.values for found in document.measurements if isinstance(found.values, NodeMatrixValues)]
    assert [values.table.grid(values.drawn[0])[:2] for values in matrices] == [((0,), (0, 1, 2, 3))] * 2
    assert "NODES_EMULATED" in {raised.code for raised in document.flags}
    assert "Emulated nodes" in to_rst(render(open_run(run / RUN)).blocks)


def test_what_the_firmware_says_of_memory(testbed: Testbed, lab: Lab) -> None:
    run, text = calibrated("hmat", PROFILES / "three.yml", testbed, lab)
    context = load(run / CAPTURE)
    assert context.memory_side_cache_bytes(0) == 256 * MIB
    rated = {rating[:2]: rating.access.read_latency_ns for rating in ratings(context)}
    assert rated == {(0, 0): 90, (0, 1): 250}
    document = read_run(run)
    assert document.run.status == "complete", text
    flags = {found.kind: {raised.code for raised in found.validity.flags} for found in document.measurements}
    assert "MEMORY_SIDE_CACHE" in flags["idle_latency"]  # half of the free memory is less than four times the cache
    assert "firmware (HMAT, class 1), read latency" in to_rst(render(open_run(run / RUN)).blocks)
