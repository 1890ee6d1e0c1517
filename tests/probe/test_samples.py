# SPDX-License-Identifier: Apache-2.0
"""Sampled loads: asked for in a notation of their own, refused with the cause, and counted by what they were.

What the decoders keep of made buffers is a case of the self-test. Where no hardware samples loads, an event of the
kernel's clock goes the same way through ring and decoder: it takes samples, and none of them is a load.
"""

import pytest

from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.counters import Samples
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from calibration.sutprobe.loaded import LoadedResult
from tests.probe.conftest import Finished, Probe
from tests.tools import require_two

MIB = 1 << 20
TASK_CLOCK = "pebs=software/config=0x1,period=100000/"
ABSENT = {
    "pebs": "pebs=no_such_pmu/config=0x1cd,config1=0x1e,aux=0x8203,period=1000/",
    "ibs": "ibs=no_such_pmu/config=0x80000,config2=0x1,period=65536/",
    "spe": "spe=no_such_pmu/config=0x100000001,period=1024/",
}


def latency(probe: Probe, cpus: list[int], *more: str) -> Finished:
    return probe("latency", "--at", f"{cpus[0]}@0", "--size-bytes", str(8 * MIB), "--placements", "2", "--windows", "3",
                 *more)  # fmt: skip


def samples_of(done: Finished) -> list[Samples | None]:
    assert done.code == 0, done.stderr
    (point,) = read_result(read_document(done.document), LatencyResult).points
    assert point.placements is not None
    return [placement.samples for placement in point.placements]


def test_no_samples_unless_requested(probe: Probe, cpus: list[int]) -> None:
    assert samples_of(latency(probe, cpus)) == [None, None]


@pytest.mark.parametrize("method", ABSENT)
def test_a_pmu_that_is_not_there_is_refused_and_nothing_else_fails(probe: Probe, cpus: list[int], method: str) -> None:
    for samples in samples_of(latency(probe, cpus, "--sample", ABSENT[method])):
        assert samples is not None
        assert samples.method == method
        assert samples.refused is not None
        assert samples.refused.errno is None
        assert "no PMU no_such_pmu" in samples.refused.reason
        assert (samples.taken, samples.lost, samples.kept) == (0, 0, 0)
        assert samples.latency_cycles is None
        assert samples.histogram == ()


def sampled_by_clock(found: list[Samples | None]) -> list[Samples]:
    taken = [item for item in found if item is not None]
    assert len(taken) == len(found)
    refused = next((item.refused for item in taken if item.refused), None)
    if refused:
        assert refused.errno is not None
        assert refused.reason
        pytest.skip(f"this machine refuses samples even of its clock: {refused.reason}")
    return taken


def test_samples_of_other_instructions_are_dropped(probe: Probe, cpus: list[int]) -> None:
    for samples in sampled_by_clock(samples_of(latency(probe, cpus, "--sample", TASK_CLOCK, "--hops", "640000"))):
        assert samples.period == 100_000
        assert samples.taken > 0
        assert samples.reasons["not a load"] == samples.taken
        assert sum(samples.reasons.values()) == samples.taken
        assert samples.kept == 0
        assert samples.latency_cycles is None


def test_the_threads_of_a_load_are_sampled_in_each_placement(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--placements", "2", "--windows", "1", "--window-s", "0.1", "--mix",
        "line_reads", "--streams", "1", "--delay", "0,100", "--sample", TASK_CLOCK,
    )  # fmt: skip
    assert done.code == 0, done.stderr
    points = read_result(read_document(done.document), LoadedResult).points
    found = sampled_by_clock([placement.samples for point in points for placement in point.placements or ()])
    assert len(found) == 4
    assert all(samples.taken > 0 and samples.kept == 0 for samples in found)


@pytest.mark.parametrize(("how", "placements"), [(("--keep-best", "1"), 2), (("--placements", "2"), 4)])
def test_the_threads_of_a_bandwidth_are_sampled_in_each_placement_of_search_and_measurement(
    probe: Probe, cpus: list[int], how: tuple[str, ...], placements: int
) -> None:
    command = (
        "bandwidth", "--group", f"{','.join(map(str, cpus[:2]))}@0", "--mix", "line_reads", "--streams", "1", "--delay",
        "0,10000", "--buffer-bytes", str(4 * MIB), "--windows", "1", "--window-s", "0.1", *how,
    )  # fmt: skip
    assert sampled_points(probe(*command)) == [None] * placements
    found = sampled_points(probe(*command, "--sample", TASK_CLOCK))
    assert len(found) == placements
    assert all(samples.taken > 0 and samples.kept == 0 for samples in sampled_by_clock(found))


def sampled_points(done: Finished) -> list[Samples | None]:
    assert done.code == 0, done.stderr
    points = read_result(read_document(done.document), BandwidthResult).points
    return [placement.samples for point in points for placement in point.placements or ()]


def test_an_emulated_processor_has_nothing_to_sample_with(emulated_aarch64: Probe) -> None:
    done = emulated_aarch64("latency", "--at", "0@0", "--size-bytes", "65536", "--placements", "1", "--windows", "1",
                            "--hops", "640", "--sample", "spe=arm_spe_0/period=1024/")  # fmt: skip
    for samples in samples_of(done):
        assert samples is not None
        assert samples.refused is not None
        assert samples.refused.reason
