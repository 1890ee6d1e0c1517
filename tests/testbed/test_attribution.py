# SPDX-License-Identifier: Apache-2.0
"""What disturbs a CPU of a guest is planted and found by name; the guest is left as it was, whoever is killed."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.tracing import Traced
from tests.probe.selftest_build import build_selftest
from tests.testbed.guest import Sut
from tests.testbed.support import Testbed

Scenario = Callable[[str, str, str, str], None]

PROBE = "/var/tmp/sutprobe"
INSTANCES = "ls /sys/kernel/tracing/instances; grep -c ' tracefs ' /proc/mounts"


@pytest.fixture
def sut(testbed: Testbed, tmp_path: Path) -> Sut:
    found = testbed.sut("memory-only")
    with build_selftest(tmp_path / "sutprobe", "x86_64").open("rb") as binary:
        subprocess.run(found.ssh_command(f"cat >{PROBE} && chmod 755 {PROBE}"), stdin=binary, check=True)
    return found


def asked(sut: Sut, *words: str) -> dict[str, Any]:
    """Return the document of sutprobe, run as root in the guest."""
    done = sut.ssh(" ".join((PROBE, *words)))
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["error"] is None, done.stderr
    return document


def test_what_is_planted_in_a_guest_is_found(sut: Sut, scenario: Scenario) -> None:
    before = sut.read(INSTANCES)
    result = asked(sut, "selftest", "--case", "trace_planted", "--injection-s", "10")["result"]
    (case,), found = result["cases"], result["plantings"]
    assert case["passed"], case
    assert not case["note"], case
    for plant in found["plants"]:
        assert plant["planted_events"] > 20, plant
    assert found["unexplained"]["share"] < 1.0
    assert sut.read(INSTANCES) == before
    scenario(
        "disturbances planted on a CPU",
        "none",
        ", ".join(f"{plant['planted']}: {plant['planted_events']}" for plant in found["plants"]),
        ", ".join(str(plant["found_events"]) for plant in found["plants"])
        + f" found; {found['unexplained']['share']:.0%} of the lost time unexplained",
    )


def traced_in(sut: Sut) -> Traced:
    """Return what tracing tells of the gaps of a CPU of the guest."""
    document = asked(sut, "jitter", "--cpus", "1", "--view", "gaps", "--gap-s", "4", "--attribute")
    (cpu,) = read_result(read_document(document), JitterResult).cpus
    assert cpu.gaps is not None
    assert cpu.gaps.traced is not None
    return cpu.gaps.traced


def test_gaps_of_a_guest_are_attributed(sut: Sut) -> None:
    traced = traced_in(sut)
    view = traced.view
    assert view is not None, traced.refused
    assert traced.tracers == ""  # Debian's kernel for clouds has none of them
    assert (traced.osnoise, traced.osnoise_refused) == (None, "this kernel has no osnoise tracer")
    assert {"timer"} <= {cause.kind for cause in view.causes}


def test_killed_tracing_leaves_nothing(sut: Sut) -> None:
    before = sut.read(INSTANCES)
    sut.read(
        f"{PROBE} jitter --cpus 1 --view gaps --gap-s 60 --attribute >/dev/null 2>&1 & pid=$!; "
        "for i in $(seq 100); do [ -d /sys/kernel/tracing/instances/sutprobe-$pid ] && break; sleep 0.1; done; "
        "ls -d /sys/kernel/tracing/instances/sutprobe-$pid && kill -KILL $pid; "
        "for i in $(seq 100); do [ -d /sys/kernel/tracing/instances/sutprobe-$pid ] || break; sleep 0.1; done"
    )
    assert sut.read(INSTANCES) == before
