# SPDX-License-Identifier: Apache-2.0
"""A SUT of the other architecture, calibrated over SSH. Optional: its image alone takes ten minutes to build."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.build import build
from calibration.sutprobe.counters import Counted
from calibration.sutprobe.document import ProbeDocument, read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from tests.probe_results import CountersResult
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

PROFILE = Path(__file__).parent / "profiles" / "matrices.yml"

pytestmark = pytest.mark.skipif(
    not os.environ.get("CALIBRATION_TESTBED_AARCH64"),
    reason="asked for by its own environment: testbed-aarch64",
)


def test_an_aarch64_sut_is_calibrated_over_ssh(
    testbed: Testbed, lab: Lab, scenario: Callable[[str, str, str, str], None]
) -> None:
    sut = testbed.sut("aarch64")
    inventory = testbed.inventory({"other": [sut]}, {"ansible_become": True})
    ended = lab.calibrate(inventory, profile=PROFILE)
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert document.run.probe is not None
    assert document.run.probe.target.startswith("aarch64")
    for measurement in document.measurements:
        values, proof = measurement.values, measurement.pages
        assert values.table.grid(values.drawn[0])[:2] == ((0, 1), (0, 1))
        assert proof is not None
        assert proof.total
        assert proof.total == proof.checked == proof.on_node
        assert measurement.clock is not None
        assert measurement.clock.source == "cntvct"
        assert "EMULATED" in {flag.code for flag in measurement.validity.flags}
    scenario("an aarch64 SUT", "none", "both matrices, complete", "every figure EMULATED by its implementer")


PROGRAM = "/var/tmp/sutprobe"
SOURCES = "/sys/bus/event_source/devices"
CYCLES = "config=0x11"
"""CPU_CYCLES of the architecture. This processor has some 1 GHz: its emulator counts the ns of its own time."""
MORE_THAN_COUNTERS = 24


def ran(sut: Sut, *arguments: str) -> ProbeDocument:
    done = sut.ssh(" ".join((PROGRAM, *arguments)))
    assert done.returncode == 0, done.stderr
    raw: dict[str, Any] = json.loads(done.stdout)
    return read_document(raw)


def only(events: tuple[Counted, ...], name: str) -> Counted:
    (found,) = [event for event in events if event.name == name]
    return found


def test_the_core_pmu_of_an_aarch64_sut_counts(
    testbed: Testbed, scenario: Callable[[str, str, str, str], None]
) -> None:
    sut = testbed.sut("aarch64")
    program = base64.b64encode(build("aarch64").path.read_bytes()).decode()
    placed = sut.ssh(f"base64 -d > {PROGRAM} && chmod 755 {PROGRAM}", text=program)
    assert placed.returncode == 0, placed.stderr
    pmu = sut.read(f"cd {SOURCES} && ls -d armv8_*").split()[0]
    once = f"--event core.cycles={pmu}/{CYCLES}/"

    counted = read_result(ran(sut, "counters", once, "--work", "0"), CountersResult).counters
    assert counted is not None
    assert counted.refused == ()
    cycles = only(counted.events, "core.cycles")
    assert cycles.pmus == (pmu,)
    assert cycles.running_fraction == 1
    assert cycles.scaled == cycles.count
    assert 0 < cycles.count < cycles.wall_s * 1.1e9

    # More than the PMU can count at once: the kernel lets them take turns.
    many = " ".join(f"--event turns={pmu}/{CYCLES}/" for _ in range(MORE_THAN_COUNTERS))
    counted = read_result(ran(sut, "counters", many, "--work", "0", "--duration-s", "4"), CountersResult).counters
    assert counted is not None
    assert counted.refused == ()
    turns = only(counted.events, "turns")
    assert 0 < turns.running_fraction < 1
    assert turns.scaled is not None
    assert turns.count < turns.scaled < MORE_THAN_COUNTERS * turns.wall_s * 1.5e9

    latency = read_result(
        ran(sut, "latency --at 0@0 --size-bytes 1048576 --hops 64000 --placements 1 --windows 3", once), LatencyResult
    )
    (placement,) = latency.points[0].placements or ()
    assert placement.counters is not None
    cycles = only(placement.counters.events, "core.cycles")
    assert cycles.hops == 3 * latency.points[0].hops_per_window
    assert cycles.scaled is not None
    # In this processor's time a load takes what the clock says that it takes; other guests may take turns with it.
    assert 0 < cycles.scaled / cycles.hops < 1.5 * cycles.wall_s * 1e9 / cycles.hops

    lacks = sut.ssh(f"{PROGRAM} counters --event none=hardware/config=0x9/")  # reference cycles, which Arm has not
    assert lacks.returncode == 3
    refused = read_result(read_document(json.loads(lacks.stdout)), CountersResult).counters
    assert refused is not None
    assert [(event.errno, "it is not on this model" in event.reason) for event in refused.refused] == [("ENOENT", True)]
    scenario("an aarch64 SUT with a core PMU", "more events than counters", "cycles of thread and chase", "turns taken")
