# SPDX-License-Identifier: Apache-2.0
"""What ``bandwidth`` and ``loaded`` return when they are stopped, and delays in ns."""

import resource
import statistics
import subprocess
from pathlib import Path

import pytest

from calibration.measurements.traffic_points import setting_of
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.loaded import LoadedResult
from tests.probe.conftest import Probe
from tests.tools import require_two

MIB = 1 << 20


def test_a_deadline_keeps_scanned_settings(probe: Probe, cpus: list[int]) -> None:
    delays = ",".join(map(str, range(400)))
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads", "--buffer-bytes", str(MIB), "--delay", delays,
        "--keep-best", "1", "--placements", "1", "--deadline-s", "5",
    )  # fmt: skip
    assert done.code == 3
    result = read_result(read_document(done.document), BandwidthResult)
    assert len(result.points) == 400, "a search that was cut short must choose nothing to measure in full"
    assert result.chosen is None
    looked_at = [point.delay for point in result.points if point.placements]
    assert looked_at
    assert looked_at != list(range(len(looked_at))), "settings were looked at in the order given"
    assert all(point.checked for point in result.points if point.placements)
    assert all(point.error and point.error.code == "deadline" for point in result.points if not point.placements)


SHORT = ("--windows", "1", "--window-s", "0.005")


def faults(native: Path, *arguments: str) -> int:
    """Return how many pages a run of the program touched for the first time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    subprocess.run([native, *arguments], capture_output=True, check=True, timeout=200)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


def test_all_points_of_a_command_share_the_buffers_of_a_placement(native: Path, cpus: list[int]) -> None:
    """Twenty points touch as many pages as one, and two placements twice as many: pages are counted, not timed."""
    command = ("bandwidth", "--group", f"{cpus[0]}@0", "--pages", "base", "--buffer-bytes", str(8 * MIB), *SHORT)
    pages = 3 * 8 * MIB // 4096
    one = faults(native, *command, "--mix", "triad", "--placements", "1")
    mixes = ",".join(("triad", "reads", "3:1", "2:1", "1:1", "stream_triad", "write", "write_nt", "copy", "copy_nt"))
    many = faults(native, *command, "--mix", mixes, "--streams", "1,4", "--placements", "1")
    assert one >= pages
    assert many < one + pages / 2
    assert faults(native, *command, "--mix", "triad", "--placements", "2") >= 2 * pages


def test_groups_of_a_command_share_the_buffers_of_their_node(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    first, second = f"{cpus[0]}@0", f"{cpus[1]}@0"
    command = ("bandwidth", "--mix", "reads", "--pages", "base", "--buffer-bytes", str(8 * MIB), "--placements", "1")
    pages = 8 * MIB // 4096
    both = faults(native, *command, *SHORT, "--group", f"{first}+{second}")
    assert both >= 2 * pages
    groups = (first, second, f"{first}+{second}", f"{second}+{first}")
    assert (
        faults(native, *command, *SHORT, *(word for group in groups for word in ("--group", group))) < both + pages / 2
    )


def test_every_point_is_measured_in_every_placement_whatever_its_size(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0:{MIB}", "--group", f"{cpus[1]}@0+{cpus[0]}@0", "--mix", "1:1,copy,reads",
        "--buffer-bytes", f"65536,{2 * MIB}", "--placements", "3", *SHORT,
    )  # fmt: skip
    assert done.code == 0, done.stderr
    result = read_result(read_document(done.document), BandwidthResult)
    alone, both = f"{cpus[0]}@0", f"{cpus[1]}@0+{cpus[0]}@0"
    assert [(point.group, point.mix, point.buffer_bytes) for point in result.points] == [
        *((alone, mix, MIB) for mix in ("1:1", "copy", "reads")),
        *((both, mix, size) for mix in ("1:1", "copy", "reads") for size in (65536, 2 * MIB)),
    ]
    for point in result.points:
        assert point.checked
        assert point.placements is not None
        assert len(point.placements) == 3
        assert [len(placement.per_thread_mb_s) for placement in point.placements] == 3 * [point.threads]
    seeds = {tuple(placement.seed for placement in point.placements or ()) for point in result.points}
    assert len(seeds) == 1, "points had placements of their own"


def test_parts_of_a_group_have_arrays_of_their_own_size(native: Path, probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    group = f"{cpus[0]}@0:{16 * MIB}+{cpus[1]}@0:{MIB}"
    command = ("bandwidth", "--mix", "reads,1:1", "--pages", "base", "--buffer-bytes", "65536", "--placements", "1")
    done = probe(*command, *SHORT, "--group", group)
    assert done.code == 0, done.stderr
    for point in read_result(read_document(done.document), BandwidthResult).points:
        assert (point.group, point.buffer_bytes) == (f"{cpus[0]}@0+{cpus[1]}@0", 16 * MIB)
        assert point.checked
    pages = 17 * MIB // 4096
    assert pages <= faults(native, *command, *SHORT, "--group", group) < 1.5 * pages


def test_what_the_kernel_cannot_spread_costs_no_other_point(probe: Probe, cpus: list[int]) -> None:
    groups = ("--group", f"{cpus[0]}@0", "--group", f"{cpus[0]}@0,1000", "--group", f"{cpus[0]}@0*3,1000*1")
    done = probe("bandwidth", *groups, "--mix", "reads", "--buffer-bytes", str(MIB), "--placements", "1", *SHORT)
    alone, by_kernel, by_hand = read_result(read_document(done.document), BandwidthResult).points
    assert alone.checked
    assert alone.placements
    assert by_kernel.error
    assert (by_kernel.error.code, "weighted_interleave/node1000" in by_kernel.error.message) == ("unsupported", True)
    assert by_hand.error
    assert by_hand.error.code == "bind_failed"


def test_a_search_looks_at_extras_beside_the_best_and_chooses_one(probe: Probe, cpus: list[int]) -> None:
    command = (
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads,1:1,write_nt", "--buffer-bytes", "65536", "--streams",
        "1,4", "--prefetch-bytes", "0,512", "--hint", "t0,nta,w", "--visit-lines", "0,2,4",
    )  # fmt: skip
    done = probe(*command, "--keep-best", "1")
    assert done.code == 0, done.stderr
    search = read_result(read_document(done.document), BandwidthResult)
    looks = search.points
    assert len({(point.mix, setting_of(point).shape.text) for point in looks}) == len(looks), "nothing is tried twice"
    for mix, pairs, values in (("reads", 4, 3), ("1:1", 4, 4), ("write_nt", 2, 2)):
        own = [setting_of(point).shape for point in looks if point.mix == mix]
        assert sum(shape.extras == 0 for shape in own) == pairs, mix
        assert values - 1 <= sum(shape.extras == 1 for shape in own) <= values, "not with every combination"
        assert len(own) <= pairs + 2 * values + 1
    assert all(point.hint != "w" for point in looks if point.mix == "reads")
    best = {mix: max((p for p in looks if p.mix == mix), key=window_of) for mix in ("reads", "1:1", "write_nt")}
    only = ("--only", ",".join(map(str, search.chosen or ())))
    chosen = read_result(read_document(probe(*command, "--placements", "1", *SHORT, *only).document), BandwidthResult)
    assert {point.mix: setting_of(point).shape for point in chosen.points} == {
        mix: setting_of(point).shape for mix, point in best.items()
    }


def window_of(point: BandwidthPoint) -> float:
    assert point.placements
    return statistics.median(point.placements[0].windows_mb_s)


def test_each_mix_has_its_own_shapes(probe: Probe, cpus: list[int]) -> None:
    command = ("bandwidth", "--group", f"{cpus[0]}@0", "--buffer-bytes", "65536", "--placements", "1", *SHORT)
    rows = ("reads=2/512/t1/4/vector", "reads=1/0/t0/0/vector", "triad_nt=8/512/nta/2/vector")
    done = probe(*command, "--mix", "reads,triad_nt,copy", *(word for row in rows for word in ("--shape", row)))
    assert done.code == 0, done.stderr
    points = read_result(read_document(done.document), BandwidthResult).points
    assert [(point.mix, setting_of(point).shape.text) for point in points] == [
        ("reads", "2/512/t1/4/vector"), ("reads", "1/0/t0/0/vector"), ("stream_triad", "8/512/nta/2/vector"),
        ("copy", "4/0/t0/0/vector"),
    ]  # fmt: skip
    assert all(point.checked for point in points)
    triad = points[2].accounting
    assert triad.program_bytes_per_step == triad.model_dram_bytes_per_step == 8 * 24
    for wrong in (
        ("--shape", "reads=2/512/t1/4"), ("--shape", "copy=1/0/t0/0/vector"), ("--shape", "reads=3/0/t0/0/vector"),
        ("--shape", "reads=1/0/t0/0/clzero"), ("--shape", "reads=1/512/w/0/vector"), ("--instruction", "clzero"),
        ("--visit-lines", "3"), ("--hint", "w", "--prefetch-bytes", "512"),
    ):  # fmt: skip
        refused = probe(*command, "--mix", "reads", *wrong)
        assert (refused.code, refused.document["error"]["code"]) == (2, "usage"), wrong


STORES = ("clzero", "movdir64b", "rep_stosb", "dc_zva")


@pytest.mark.parametrize("instruction", [*STORES, "ldnp"])
def test_an_instruction_is_proved_or_refused(probe: Probe, cpus: list[int], instruction: str) -> None:
    features = probe("info").document["result"]["instruction_sets"]
    needs = {"clzero": "clzero", "movdir64b": "movdir64b", "rep_stosb": "erms", "dc_zva": "neon", "ldnp": "neon"}
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "write_nt" if instruction in STORES else "reads",
        "--streams", "1", "--instruction", instruction, "--buffer-bytes", f"4096,20480,{MIB}", "--placements", "1",
        *SHORT,
    )  # fmt: skip
    if features.get(needs[instruction]):
        assert done.code == 0, done.stderr
        points = read_result(read_document(done.document), BandwidthResult).points
        assert all(point.checked and point.instruction == instruction for point in points)
        assert {point.accounting.model_dram_bytes_per_step for point in points} == {64}
    else:
        assert done.code == 3
        assert done.document["error"]["code"] == "unsupported"
        assert instruction in done.document["error"]["message"]


def test_loaded_latency_keeps_complete_points(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--windows", "4", "--window-s", "0.1", "--deadline-s", "3",
    )  # fmt: skip
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"
    result = read_result(read_document(done.document), LoadedResult)
    assert len(result.points) == 19
    complete = [point for point in result.points if point.placements]
    assert complete
    assert all(point.stopped == "interrupted" and point.error is None for point in complete)
    never = [point for point in result.points if not point.placements]
    assert all(point.error and point.error.code == "deadline" for point in never)
    assert len(complete) + len(never) == 19
    assert never
    (zero,) = result.zero_load
    assert len(zero.windows_ns_start) == 4
    assert zero.windows_ns_end == ()


@pytest.mark.parametrize("mix", ["reads", "line_reads"])
def test_delays_in_ns_are_turned_into_instructions(probe: Probe, cpus: list[int], mix: str) -> None:
    require_two(cpus)
    arguments = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--placements", "1", "--windows", "1", "--window-s", "0.02",
        "--mix", mix, "--streams", "1",
    )  # fmt: skip
    done = probe(*arguments, "--delay-ns", "0,1000,5000")
    assert done.code == 0, done.stderr
    result = read_result(read_document(done.document), LoadedResult)
    none, short, long = result.points
    assert none.inject_delay == none.delay_ns == 0
    assert long.inject_delay == pytest.approx(5 * short.inject_delay, abs=5)
    assert 0 < short.delay_ns < long.delay_ns
    # Above 1 GHz a millisecond is more than the million additions that one delay may have.
    too_long = probe(*arguments, "--delay-ns", "1000000")
    assert too_long.code == 2
    assert "--delay-ns" in too_long.document["error"]["message"]
