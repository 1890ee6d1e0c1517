# SPDX-License-Identifier: Apache-2.0
"""What every subcommand prints, and what it refuses."""

import json
import os
import platform
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from calibration.build import COMMON_FLAGS, SOURCES_DIRECTORY
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.c2c import C2cResult, C2cSearch
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.frequency import FrequencyResult
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.latency import LatencyResult
from calibration.sutprobe.loaded import LoadedResult, LoadedSearch
from tests.probe.conftest import Finished, Probe, core_hz, gap_view, run_with_share
from tests.probe.sanitized import link
from tests.tools import require, require_root, require_two

MIB = 1 << 20
ENVELOPE = {
    "schema", "subcommand", "argv", "build", "status", "error", "host", "started_at_unix_ns", "duration_s", "clock",
    "warnings", "counter_budget", "parameters", "result",
}  # fmt: skip


def assert_envelope(document: dict[str, Any], subcommand: str) -> None:
    assert set(document) == ENVELOPE
    assert document["schema"] == "sutprobe/1"
    assert document["subcommand"] == subcommand
    assert document["argv"][:2] == ["sutprobe", subcommand]
    assert len(document["build"]["source_sha256"]) == 64
    read_document(document)


def latency(probe: Probe, *arguments: str) -> dict[str, Any]:
    done = probe("latency", *arguments)
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "latency")
    read_result(read_document(done.document), LatencyResult)
    return done.document


def test_latency_points_come_in_order(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--at", f"{cpus[-1]}@0", "--size-bytes", f"8192,{8 * MIB}",
        "--stride-bytes", "64,128",
        "--placements", "2", "--windows", "3", "--hops", "6400",
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(p["cpu"], p["size_bytes"], p["stride_bytes"]) for p in points] == [
        (cpu, size, stride) for cpu in (cpus[0], cpus[-1]) for size in (8192, 8 * MIB) for stride in (64, 128)
    ]
    for point in points:
        nodes = point["size_bytes"] // point["stride_bytes"]
        assert point["chain_nodes"] == nodes
        assert point["touched_bytes"] == nodes * 64
        assert point["chain_proved"]
        # what a cache serves takes more: the kernel is asked between windows, which costs the chain some of its lines
        assert point["hops_per_window"] == (200_000 if point["size_bytes"] == 8192 else 6400)
        assert point["loop_overhead_ns"] > 0
        assert len(point["placements"]) == 2
        assert len({placement["seed"] for placement in point["placements"]}) == 2
        for placement in point["placements"]:
            assert len(placement["windows_ns"]) == 3
            assert min(placement["windows_ns"]) > 0
            assert placement["cpu_verified"]
            assert placement["pages"]["on_node"] == placement["pages"]["checked"] > 0
            assert placement["core_hz_before"] > 1e8


def test_places_of_one_memory_walk_one_chain(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    places = [f"{cpu}@0" for cpu in (cpus[0], cpus[-1])]
    apart = f":{64 * MIB - 64}"  # a size of its own, hence a chain of its own

    def run(*places: str) -> tuple[list[dict[str, Any]], int]:
        """Return the points, and how many pages were touched: each once, wherever it is walked from."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        words = [word for place in places for word in ("--at", place)]
        done = subprocess.run(
            [native, "latency", *words, "--size-bytes", str(64 * MIB), "--pages", "base", "--placements", "3",
             "--windows", "1", "--hops", "6400"],
            capture_output=True, check=True, timeout=60,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        return json.loads(done.stdout)["result"]["points"], after - before

    def seeds(point: dict[str, Any]) -> list[int]:
        return [placement["seed"] for placement in point["placements"]]

    (alone,), once = run(places[0])
    (first, second), shared = run(*places)
    assert [first["cpu"], second["cpu"]] == [cpus[0], cpus[-1]]
    assert seeds(alone) == seeds(first) == seeds(second)
    assert len(set(seeds(first))) == 3
    (first, second), twice = run(places[0], places[1] + apart)
    assert set(seeds(first)).isdisjoint(seeds(second))
    assert once == pytest.approx(3 * 64 * MIB / os.sysconf("SC_PAGESIZE"), rel=0.2)
    assert shared == pytest.approx(once, rel=0.1)
    assert twice == pytest.approx(2 * once, rel=0.1)


def test_every_chain_is_walked_with_the_package_idle_and_active(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    places = ("--at", f"{cpus[0]}@0", "--size-bytes", f"65536,{8 * MIB}", "--placements", "3", "--windows", "2",
              "--hops", "6400")  # fmt: skip
    for point in latency(probe, *places)["result"]["points"]:
        assert all(placement["package_active"] is None for placement in point["placements"])
    points = latency(probe, *places, "--keep-awake", f"{cpus[-1]}@0")["result"]["points"]
    assert len(points) == 2
    for point in points:
        awake = [placement["package_active"] for placement in point["placements"]]
        assert [item["first"] for item in awake] == [False, True, False]
        for item in awake:
            assert len(item["windows_ns"]) == 2
            assert min(item["windows_ns"]) > 0
            assert item["cpu_verified"]
            (thread,) = item["keep_awake"]
            assert (thread["cpu"], thread["node"]) == (cpus[-1], 0)
            # paced: whatever it shares its CPU with, never more than 300 MB/s and one batch
            assert 0 < thread["mb_s"] < 310
    for place in (f"{cpus[0]}@0", f"{cpus[-1]}"):
        assert probe("latency", *places, "--keep-awake", place).code == 2


def test_latency_is_reproducible_in_its_seeds(probe: Probe, cpus: list[int]) -> None:
    arguments = ("--at", f"{cpus[0]}@0", "--size-bytes", "65536", "--placements", "2", "--windows", "1", "--hops", "64")

    def seeds(*more: str) -> list[int]:
        placements = latency(probe, *arguments, *more)["result"]["points"][0]["placements"]
        return [placement["seed"] for placement in placements]

    assert seeds() == seeds() == seeds("--seed", "1")
    assert set(seeds("--seed", "2")).isdisjoint(seeds())


@pytest.mark.parametrize("order", ["random", "window", "forward", "backward"])
@pytest.mark.parametrize("payload", ["0", "16"])
def test_latency_orders_and_payload(probe: Probe, cpus: list[int], order: str, payload: str) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", str(2 * MIB), "--order", order, "--payload-bytes", payload,
        "--placements", "1", "--windows", "2", "--hops", "6400", "--pages", "base",
    )  # fmt: skip
    point = document["result"]["points"][0]
    assert point["order"] == order
    assert point["chain_proved"]
    assert point["placements"][0]["pages"]["obtained"] == "base"
    assert point["stopped"] == "placements"


def test_latency_strides_below_a_line_put_several_nodes_in_each(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", "65536", "--stride-bytes", "8", "--order", "forward,random",
        "--placements", "1", "--windows", "1", "--hops", "640",
    )  # fmt: skip
    forward, random = document["result"]["points"]
    assert forward["chain_nodes"] == random["chain_nodes"] == 8192
    assert forward["touched_bytes"] == random["touched_bytes"] == 65536
    assert random["order_check"]["passed"]
    for stride, line in (("96", "64"), ("12", "64"), ("64", "48")):
        done = probe("latency", "--at", f"{cpus[0]}@0", "--size-bytes", "4096", "--stride-bytes", stride,
                     "--line-bytes", line)  # fmt: skip
        assert done.code == 2


def test_a_ladder_is_every_order_size_and_stride_that_fits(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", f"1024,65536,{3 * MIB}", "--stride-bytes", "64,4096", "--order",
        "random,backward", "--placements", "2", "--windows", "2", "--hops", "640",
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(point["order"], point["size_bytes"], point["stride_bytes"]) for point in points] == [
        (order, size, stride)
        for order in ("random", "backward")
        for size in (1024, 65536, 3 * MIB)
        for stride in (64, 4096)
        if stride <= size
    ]
    assert all(len(point["placements"]) == 2 and point["chain_proved"] for point in points)
    # each round has one mapping for all, and each point its own chain in it
    seeds = [placement["seed"] for point in points for placement in point["placements"]]
    assert len(set(seeds)) == len(seeds)


def test_a_random_order_is_proved_to_have_nothing_to_follow(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", f"4096,{2 * MIB}", "--order", "random,window,forward",
        "--window-bytes", "65536", "--placements", "1", "--windows", "1", "--hops", "640",
    )  # fmt: skip
    checks = {(point["order"], point["size_bytes"]): point["order_check"] for point in document["result"]["points"]}
    random = checks["random", 2 * MIB]
    assert random["passed"]
    assert random["jumps"] == 2 * MIB // 64 - 1
    for name, limit in random["limits"].items():
        assert 0 <= random[name] <= limit < (100 if name == "chi_square" else 0.5)
    # the same measures find what they are for, if nothing was promised
    forward, window = checks["forward", 2 * MIB], checks["window", 2 * MIB]
    assert forward["passed"] is window["passed"] is forward["limits"] is None
    for name, limit in random["limits"].items():
        assert forward[name] > limit
    assert window["chi_square"] > random["limits"]["chi_square"]
    assert checks["random", 4096]["passed"] is checks["random", 4096]["chi_square"] is None


def test_copies_run_at_the_same_time_each_on_its_own_memory(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--at", f"{cpus[1]}@0", "--together", "--size-bytes", f"65536,{4 * MIB}",
        "--placements", "2", "--windows", "3", "--hops", "64000",
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(point["cpu"], point["size_bytes"], point["copies"]) for point in points] == [
        (cpu, size, 2) for cpu in cpus[:2] for size in (65536, 4 * MIB)
    ]
    for first, second in zip(points[:2], points[2:], strict=True):
        assert len(first["placements"]) == len(second["placements"]) == 2
        for one, other in zip(first["placements"], second["placements"], strict=True):
            assert one["seed"] != other["seed"]
            assert len(one["windows_ns"]) == len(other["windows_ns"]) == 3
            assert min(*one["windows_ns"], *other["windows_ns"]) > 0
            assert one["cpu_verified"]
            assert other["cpu_verified"]
            assert other["interference"]["interrupts"] is not None


def test_a_place_may_have_a_size_of_its_own(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0:8192", "--at", f"{cpus[0]}@0", "--size-bytes", "65536", "--placements", "1",
        "--windows", "1", "--hops", "640",
    )  # fmt: skip
    assert [point["size_bytes"] for point in document["result"]["points"]] == [8192, 65536]


def test_nodes_to_interleave_over_must_exist(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0+1000", "--at", f"{cpus[0]}@0", "--size-bytes", str(4 * MIB), "--placements", "1",
        "--windows", "1", "--hops", "640",
    )  # fmt: skip
    absent, good = document["result"]["points"]
    assert absent["nodes"] == [0, 1000]
    assert absent["error"]["code"] == "bind_failed"
    assert absent["order_check"] is absent["placements"] is None
    assert good["nodes"] == [0]
    placement = good["placements"][0]
    assert placement["pages_by_node"] == [placement["pages"]["checked"]]


@pytest.mark.parametrize("placements", [1, 40])
def test_exactly_the_placements_asked_for_are_measured(probe: Probe, cpus: list[int], placements: int) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", "4096,8192", "--placements", str(placements), "--windows", "1",
        "--hops", "64",
    )  # fmt: skip
    for point in document["result"]["points"]:
        assert len(point["placements"]) == placements
        assert point["stopped"] == "placements"


def test_a_cell_that_cannot_be_measured_leaves_the_others(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@1000", "--at", "100000@0", "--at", f"{cpus[0]}@0", "--size-bytes", "4096",
        "--placements", "1", "--windows", "1", "--hops", "64",
    )  # fmt: skip
    no_node, no_cpu, good = document["result"]["points"]
    assert no_node["error"]["code"] == "bind_failed"
    assert no_cpu["error"]["code"] == "cpu_offline"
    assert no_node["placements"] is no_cpu["placements"] is None
    assert not no_node["chain_proved"]
    assert good["error"] is None
    assert good["placements"]


def test_no_cell_at_all_is_a_failure(probe: Probe, cpus: list[int]) -> None:
    done = probe("latency", "--at", f"{cpus[0]}@1000", "--size-bytes", "4096")
    assert done.code == 3
    assert done.document["status"] == "failed"
    assert done.document["error"]["code"] == "bind_failed"
    done = probe("latency", "--at", f"{cpus[0]}@0", "--size-bytes", str(1 << 40), "--stride-bytes", "4096")
    assert done.code == 3
    assert done.document["error"]["code"] == "no_memory"


LINES_MOVED = {
    "reads": (1, 0, 0), "3:1": (3, 1, 0), "2:1": (2, 1, 0), "1:1": (1, 1, 0), "stream_triad": (2, 1, 0),
    "write": (0, 1, 1), "write_nt": (0, 1, 0), "copy": (1, 1, 1), "copy_nt": (1, 1, 0), "triad": (2, 1, 1),
}  # fmt: skip
"""Lines that each step of a mix reads and writes, and those that memory reads before a regular store on x86_64."""

ALL_MIXES = list(LINES_MOVED)


def bandwidth(probe: Probe, *arguments: str, buffer_bytes: str = str(MIB)) -> dict[str, Any]:
    done = probe("bandwidth", "--buffer-bytes", buffer_bytes, "--window-s", "0.01", "--windows", "2", *arguments)
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "bandwidth")
    read_result(read_document(done.document), BandwidthResult)
    return done.document


def group_of(cpus: list[int]) -> str:
    return f"{cpus[0]}@0" if len(cpus) == 1 else f"{cpus[0]}@0+{cpus[-1]}@0"


def test_bandwidth_accounting_of_every_mix(probe: Probe, cpus: list[int]) -> None:
    document = bandwidth(probe, "--group", group_of(cpus), "--mix", ",".join(ALL_MIXES), "--placements", "1")
    points = document["result"]["points"]
    assert [point["mix"] for point in points] == ALL_MIXES
    for point in points:
        reads, writes, allocated = LINES_MOVED[point["mix"]]
        allocated *= platform.machine() == "x86_64"
        assert point["accounting"] == {
            "reads_per_step": reads,
            "writes_per_step": writes,
            "write_allocate_reads_per_step": allocated,
            "program_bytes_per_step": 64 * (reads + writes),
            "model_dram_bytes_per_step": 64 * (reads + writes + allocated),
        }
        assert point["checked"]
        assert point["start_skew_ns"] >= 0
        assert point["threads"] == len(point["cpus"]) == min(2, len(cpus))
        (placement,) = point["placements"]
        assert placement["cpus_verified"]
        assert len(placement["windows_mb_s"]) == 2
        assert placement["pages"]["on_node"] == placement["pages"]["checked"] > 0


@pytest.mark.parametrize(("mixes", "streams"), [(ALL_MIXES, "1"), (["reads", "triad"], "4")])
def test_bandwidth_is_what_a_delay_of_known_length_allows(
    probe: Probe, cpus: list[int], mixes: list[str], streams: str
) -> None:
    """In the first-level cache a delay of N dependent additions after each four steps leaves four steps in N cycles."""
    delay = 2000
    # Other work that has the CPU meanwhile only makes a window slower, and some of many short ones are undisturbed; but
    # where a host takes the CPU away every 0.3 ms, all read what it leaves; as that changes, its square is allowed.
    done, share = run_with_share(
        probe, cpus[0],
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", ",".join(mixes), "--buffer-bytes", "8192",
        "--streams", streams, "--delay", str(delay), "--placements", "4", "--windows", "25", "--window-s", "0.001",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    points = done.document["result"]["points"]
    assert [point["mix"] for point in points] == mixes
    for point in points:
        placements = point["placements"]
        expected_mb_s = sum(LINES_MOVED[point["mix"]][:2]) * 64 * 4 * core_hz(placements) / delay / 1e6
        found = max(rate for placement in placements for rate in placement["program_windows_mb_s"]) / expected_mb_s
        assert 0.85 * share**2 < found < 1.15, f"{point['mix']}: the CPU had {share:.3f} of its time"


def test_line_reads_ask_for_eight_bytes_of_each_line(probe: Probe, cpus: list[int]) -> None:
    # 20480 bytes are a whole number of groups of four lines, and less than a chunk: passes end in the middle of it.
    document = bandwidth(
        probe, "--group", group_of(cpus), "--mix", "line_reads", "--streams", "1", "--delay", "0,1,50,1024,10000",
        "--placements", "1", buffer_bytes=f"20480,{MIB}",
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(point["buffer_bytes"], point["delay"]) for point in points] == [
        (size, delay) for size in (20480, MIB) for delay in (0, 1, 50, 1024, 10000)
    ]
    for point in points:
        rule = point["accounting"]
        assert rule["program_bytes_per_step"] == 8
        assert rule["model_dram_bytes_per_step"] == 64
        assert point["checked"]
        (placement,) = point["placements"]
        assert min(placement["windows_mb_s"]) > 0
        assert placement["windows_mb_s"] == pytest.approx([8 * item for item in placement["program_windows_mb_s"]])


def test_random_reads_are_proved_wherever_a_run_ends(probe: Probe, cpus: list[int]) -> None:
    document = bandwidth(
        probe, "--group", group_of(cpus), "--mix", "random_reads", "--streams", "1", "--placements", "2",
        buffer_bytes=f"4096,{MIB},{16 * MIB}",
    )  # fmt: skip
    for point in document["result"]["points"]:
        assert point["checked"]
        assert (point["accounting"]["program_bytes_per_step"], point["accounting"]["model_dram_bytes_per_step"]) == (
            8,
            64,
        )
        assert all(min(placement["windows_mb_s"]) > 0 for placement in point["placements"])


def test_numbers_of_chains_share_a_cycle_and_are_points_of_their_own(probe: Probe, cpus: list[int]) -> None:
    document = latency(
        probe, "--at", f"{cpus[0]}@0", "--size-bytes", f"{MIB // 4},{4 * MIB}", "--placements", "2", "--windows", "3",
        "--hops", "9600", "--chains", "1,5,32",
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(point["size_bytes"], point["chains"]) for point in points] == [
        (size, chains) for size in (MIB // 4, 4 * MIB) for chains in (1, 5, 32)
    ]
    for point in points:
        assert point["chain_proved"]
        assert point["hops_per_window"] % point["chains"] == 0
        assert point["loop_overhead_ns"] > 0
        assert len(point["placements"]) == 2
    for size in (MIB // 4, 4 * MIB):
        seeds = [[made["seed"] for made in point["placements"]] for point in points if point["size_bytes"] == size]
        assert seeds[0] == seeds[1] == seeds[2]
        assert len(set(seeds[0])) == 2


@pytest.mark.parametrize("streams", ["1", "2", "4", "8"])
def test_bandwidth_of_every_size_from_one_page_is_proved(probe: Probe, cpus: list[int], streams: str) -> None:
    # 20480 / 8 streams leaves a part over; 1228800 / 2 streams is long enough to be staggered.
    sizes = [4096, 20480, 1228800]
    document = bandwidth(
        probe, "--group", f"{cpus[0]}@0", "--mix", ",".join(ALL_MIXES), "--placements", "1", "--streams", streams,
        buffer_bytes=",".join(map(str, sizes)),
    )  # fmt: skip
    points = document["result"]["points"]
    assert [(point["mix"], point["buffer_bytes"]) for point in points] == [
        (mix, size) for mix in ALL_MIXES for size in sizes
    ]
    for point in points:
        assert point["checked"], (point["mix"], point["buffer_bytes"], point["error"])
        assert min(point["placements"][0]["windows_mb_s"]) > 0


KEYS = ("group", "mix", "buffer_bytes", "streams", "prefetch_bytes", "delay", "width")


def settings(points: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the setting of each of *points*."""
    return [tuple(point[key] for key in KEYS) for point in points]


def chosen_words(done: Finished, option: str) -> tuple[str, str]:
    """Return the words that have another command measure what a search has *done*."""
    assert done.code == 0, done.stderr
    return option, ",".join(map(str, done.document["result"]["chosen"]))


def test_a_bandwidth_search_chooses_the_best_and_the_best_without_delay(probe: Probe, cpus: list[int]) -> None:
    document = bandwidth(
        probe, "--group", f"{cpus[0]}@0", "--mix", "reads,1:1", "--streams", "1,8", "--prefetch-bytes", "0,512",
        "--delay", "50,0", "--keep-best", "2",
    )  # fmt: skip
    points, chosen = document["result"]["points"], document["result"]["chosen"]
    assert len(points) == 2 * 8
    assert all(point["checked"] and len(point["placements"]) == 1 for point in points)
    assert chosen == sorted(set(chosen))
    for first in (0, 8):
        looks = {
            number: statistics.median(points[number]["placements"][0]["windows_mb_s"])
            for number in range(first, first + 8)
        }
        best = sorted(looks, key=lambda number: -looks[number])
        undelayed = next(number for number in best if points[number]["delay"] == 0)
        assert {number for number in chosen if number in looks} == {*best[:2], undelayed}


def test_settings_are_measured_by_their_numbers(probe: Probe, cpus: list[int]) -> None:
    command = (
        "bandwidth", "--group", f"{cpus[0]}@0:8192", "--group", f"{cpus[-1]}@0", "--mix", "reads,1:1", "--buffer-bytes",
        "65536,16384", "--streams", "1,8", "--prefetch-bytes", "0,512", "--delay", "50,0",
    )  # fmt: skip
    brief = ("--placements", "1", "--windows", "1", "--window-s", "0.002")
    search = probe(*command, "--keep-best", "2")
    scanned = settings(search.document["result"]["points"])
    assert len(scanned) == len(set(scanned)) == 8 * (2 * 1 + 2 * 2)
    for option, numbers in (chosen_words(search, "--only"), ("--only", "0,17,47")):
        done = probe(*command, *brief, option, numbers)
        assert done.code == 0, done.stderr
        found = done.document["result"]["points"]
        assert all(point["checked"] and len(point["placements"]) == 1 for point in found)
        assert settings(found) == [scanned[int(number)] for number in numbers.split(",")]
        assert done.document["result"]["chosen"] is None


@pytest.mark.parametrize("width", ["sse2", "avx2", "avx512", "neon", "sve"])
def test_bandwidth_width_is_used_or_refused(probe: Probe, cpus: list[int], width: str) -> None:
    has = width in probe("info").document["result"]["widths"]
    done = probe(
        "bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads", "--buffer-bytes", str(MIB), "--window-s", "0.005",
        "--windows", "1", "--placements", "1", "--width", width,
    )  # fmt: skip
    if has:
        assert done.code == 0
        assert done.document["result"]["points"][0]["width"] == width
        assert done.document["result"]["points"][0]["checked"]
    else:
        assert done.code == 3
        assert done.document["error"]["code"] == "unsupported"


def test_loaded_pairs_latency_and_bandwidth(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe(
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--delay", "0,100,20000", "--probe-size-bytes",
        str(8 * MIB), "--buffer-bytes", str(8 * MIB), "--placements", "2", "--windows", "2", "--window-s", "0.02",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "loaded")
    points = done.document["result"]["points"]
    assert [point["inject_delay"] for point in points] == [0, 100, 20000]
    assert points[0]["delay_ns"] == 0 < points[1]["delay_ns"] < points[2]["delay_ns"]
    for point in points:
        assert point["checked"]
        assert len(point["placements"]) == 2
        for placement in point["placements"]:
            (windows,) = placement["probes"]
            assert len(placement["windows_mb_s"]) == len(windows["windows_ns"]) == 2
            assert min(windows["windows_ns"]) > 0
            assert windows["probe_mb_s"] > 0
            assert placement["cpus_verified"]
    slow = statistics.median(points[2]["placements"][0]["windows_mb_s"])
    assert slow < statistics.median(points[0]["placements"][0]["windows_mb_s"])
    (zero,) = done.document["result"]["zero_load"]
    assert len(zero["windows_ns_start"]) == len(zero["windows_ns_middle"]) == len(zero["windows_ns_end"]) == 4


def test_loaded_searches_the_delays_of_shares(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    command = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(8 * MIB),
        "--buffer-bytes", str(8 * MIB),
    )  # fmt: skip
    done = probe(*command, "--delay", "20000,0", "--share-percent", "50,100", "--choose")
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "loaded")
    search = read_result(read_document(done.document), LoadedSearch)
    seen = {look.inject_delay: look.best_mb_s / search.looks[0].best_mb_s for look in search.looks}
    assert list(seen) == sorted(seen)
    assert search.chosen == (20000, 0, *(share.inject_delay for share in search.shares))
    assert [share.share_percent for share in search.shares] == [50, 100]
    for share in search.shares:
        assert share.share_found == pytest.approx(seen[share.inject_delay])
        wanted = share.share_percent / 100
        assert abs(seen[share.inject_delay] - wanted) == min(abs(item - wanted) for item in seen.values())
    brief = ("--placements", "1", "--windows", "2", "--window-s", "0.02")
    measured = probe(*command, *chosen_words(done, "--delay"), *brief)
    assert measured.code == 0, measured.stderr
    points = read_result(read_document(measured.document), LoadedResult).points
    assert tuple(point.inject_delay for point in points) == search.chosen
    assert all((point.delay_ns > 0) == (point.inject_delay > 0) for point in points)
    assert all(point.placements for point in points)


def test_each_mix_has_its_own_delays_shape_and_share_of_a_buffer(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    command = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(8 * MIB),
        "--buffer-bytes", str(12 * MIB), "--share-buffer", "--mix", "reads,3:1,write_nt", "--shape",
        "3:1=1/0/t0/0/vector",
    )  # fmt: skip
    done = probe(*command, "--delay", "0", "--share-percent", "50", "--share-passes", "1", "--choose")
    assert done.code == 0, done.stderr
    search = read_result(read_document(done.document), LoadedSearch)
    assert [share.mix for share in search.shares] == ["reads", "3:1", "write_nt"]
    assert search.chosen == tuple(delay for share in search.shares for delay in (0, share.inject_delay))
    assert {look.mix for look in search.looks} == {"reads", "3:1", "write_nt"}
    brief = ("--placements", "1", "--windows", "2", "--window-s", "0.02")
    measured = probe(*command, *chosen_words(done, "--mix-delay"), *brief)
    assert measured.code == 0, measured.stderr
    points = read_result(read_document(measured.document), LoadedResult).points
    assert [point.mix for point in points] == ["reads"] * 2 + ["3:1"] * 2 + ["write_nt"] * 2
    assert tuple(point.inject_delay for point in points) == search.chosen
    assert all(point.checked and point.placements for point in points)
    steps = [(point.accounting.reads_per_step, point.accounting.writes_per_step) for point in points[::2]]
    assert steps == [(1, 0), (3, 1), (0, 1)]
    # a third of the buffer for each of three arrays, all of it for one; and the probe's chain
    pages = [placement.pages for point in points for placement in point.placements or ()]
    (total,) = {found.total * found.base_bytes for found in pages}
    assert 20 * MIB <= total <= 28 * MIB


def test_delays_in_ns_are_chosen_without_a_search(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    command = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", "65536", "--buffer-bytes",
        "65536",
    )  # fmt: skip
    done = probe(*command, "--delay-ns", "0,300", "--choose")
    assert done.code == 0, done.stderr
    search = read_result(read_document(done.document), LoadedSearch)
    none, some = search.chosen
    assert (none, some > 0, search.shares, search.looks) == (0, True, (), ())


def test_a_delay_that_cannot_be_measured_leaves_the_others(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    # A million additions after every four lines: no window of 5 ms sees the load log its progress.
    arguments = (
        "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", str(4 * MIB),
        "--buffer-bytes", str(4 * MIB), "--placements", "2", "--windows", "2", "--window-s", "0.005",
    )  # fmt: skip
    done = probe(*arguments, "--delay", "1000000,100")
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "loaded")
    result = read_result(read_document(done.document), LoadedResult)
    never, good = result.points
    assert never.error is not None
    assert never.error.code == "check_failed"
    assert "--window-s" in never.error.message
    assert never.placements is None
    assert never.stopped is None
    assert not never.checked
    assert never.delay_ns > good.delay_ns > 0
    assert good.error is None
    assert good.placements is not None
    assert len(good.placements) == 2
    assert len(result.zero_load[0].windows_ns_end) == 4
    done = probe(*arguments, "--delay", "1000000")
    assert done.code == 3
    assert done.document["error"]["code"] == "check_failed"


@pytest.mark.parametrize("state", ["hit", "hitm"])
def test_c2c_moves_every_line(probe: Probe, cpus: list[int], state: str) -> None:
    require_two(cpus)
    first, second = cpus[:2]
    done = probe(
        "c2c", "--pair", f"{first}@{second}", "--pair", f"{second}@{first}", "--pair", f"{first}@100000",
        "--state", state, "--lines", "256", "--placements", "2", "--windows", "3",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "c2c")
    there, back, absent = done.document["result"]["pairs"]
    assert (there["writer"], there["reader"]) == (back["reader"], back["writer"]) == (first, second)
    for pair in (there, back):
        assert pair["checked"]
        assert pair["state"] == state
        assert pair["lines"] == 256
        assert len(pair["placements"]) == 2
        for placement in pair["placements"]:
            assert len(placement["windows_ns"]) == 3
            assert min(placement["windows_ns"]) > 0
            assert placement["cpus_verified"]
    assert absent["error"]["code"] == "cpu_offline"
    assert absent["placements"] is None
    assert not absent["checked"]


def test_each_c2c_pair_may_have_a_home_and_a_state_of_its_own(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    first, second = cpus[:2]
    pairs = [f"{first}@{second}", f"{first}@{second}:0", f"{second}@{first}:0:hitm", f"{second}@{first}:1023:hit"]
    arguments = [word for pair in pairs for word in ("--pair", pair)]
    done = probe("c2c", *arguments, "--state", "hit", "--lines", "64", "--placements", "1", "--windows", "1")
    assert done.code == 0, done.stderr
    assert done.document["parameters"]["pair"] == pairs
    result = read_result(read_document(done.document), C2cResult)
    assert [(pair.writer, pair.reader, pair.home, pair.state) for pair in result.pairs] == [
        (first, second, 0, "hit"),
        (first, second, 0, "hit"),
        (second, first, 0, "hitm"),
        (second, first, 1023, "hit"),
    ]
    absent = result.pairs[-1]
    assert absent.error is not None
    assert absent.error.code == "bind_failed"
    assert absent.placements is None


@pytest.mark.parametrize("method", ["transfer", "pingpong"])
def test_a_matrix_has_every_ordered_pair_and_says_how_long_it_takes(probe: Probe, cpus: list[int], method: str) -> None:
    require_two(cpus)
    first, second = cpus[:2]
    done = probe(
        "c2c", "--all-pairs", f"{first},{second}", "--all-pairs", f"{first}@100000", "--method", method,
        "--placements", "2", "--windows", "3", "--hops", "200",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    result = read_result(read_document(done.document), C2cResult)
    assert result.pairs == ()
    assert result.not_measured == ()
    assert [(cell.writer, cell.reader) for cell in result.cells] == [(first, second), (first, 100000), (second, first)]
    for cell in (result.cells[0], result.cells[2]):
        assert cell.error is None
        assert cell.checked
        assert cell.method == method
        assert cell.state == ("hitm" if method == "transfer" else None)
        assert cell.placements is not None
        assert [len(windows) for windows in cell.placements] == [3, 3]
        assert min(map(min, cell.placements)) > 0
        assert cell.evidence is not None
        assert cell.evidence.cpus_verified
        assert cell.evidence.pages.on_node == cell.evidence.pages.checked > 0
    absent = result.cells[1]
    assert absent.error is not None
    assert absent.error.code == "cpu_offline"
    assert absent.home is None
    assert absent.evidence is None
    assert absent.placements is None
    assert re.search(r"3 pairs, [0-9.]+ s each by the first 1: [0-9.]+ s; 3 chosen", done.stderr)
    assert result.interference is not None
    assert result.interference.softirqs is not None


def test_a_sample_of_a_matrix_is_balanced_seeded_and_complete(probe: Probe) -> None:
    # CPUs that no machine has: no time is spent on them, and what is chosen shows all the same
    names = range(900000, 900040)

    def sample(*more: str) -> tuple[list[tuple[int, int]], list[str]]:
        done = probe("c2c", "--all-pairs", "900000-900039", *more)
        assert done.code == 3
        assert done.document["error"]["code"] == "cpu_offline"
        result = read_result(read_document(done.document), C2cResult)
        return [(cell.writer, cell.reader) for cell in result.cells], [
            pair for left in result.not_measured for pair in left.pairs
        ]

    number = "700"
    chosen, left = sample("--matrix-pairs", number)
    taken = set(chosen)
    assert len(taken) == len(chosen) == int(number)
    wrote = [sum(writer == cpu for writer, _ in chosen) for cpu in names]
    read = [sum(reader == cpu for _, reader in chosen) for cpu in names]
    assert max(wrote) - min(wrote) <= 3
    assert max(read) - min(read) <= 3
    assert sum((reader, writer) not in taken for writer, reader in chosen) <= 1
    for text in left:
        writer, _, readers = text.partition("@")
        for part in readers.split(","):
            low, _, high = part.partition("-")
            taken |= {(int(writer), reader) for reader in range(int(low), int(high or low) + 1)}
    assert taken == {(writer, reader) for writer in names for reader in names if writer != reader}
    everything, nothing = sample()
    assert len(everything) == 40 * 39
    assert nothing == []
    assert sample("--matrix-pairs", f"{number},1", "--seed", "2") == (chosen, left)
    assert sample("--matrix-pairs", number, "--seed", "2") != (chosen, left)


def test_the_pairs_that_a_budget_allows_are_chosen_and_measured(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    first, second = cpus[:2]
    matrix = ("c2c", "--all-pairs", f"{first},{second}", "--placements", "1", "--windows", "1", "--hops", "64")
    for budget_s, chosen in (("0.000001", 1), ("1000", 2)):
        search = probe(*matrix, "--matrix-budget-s", budget_s, "--seed", "7")
        assert search.code == 0, search.stderr
        found = read_result(read_document(search.document), C2cSearch)
        estimate = found.estimate
        assert found.chosen == (chosen, 7)
        assert (estimate.pairs, estimate.measured_on, estimate.chosen) == (2, 1, chosen)
        assert estimate.budget_s == float(budget_s)
        assert estimate.expected_s == pytest.approx(2 * estimate.pair_s)
        done = probe(*matrix, *chosen_words(search, "--matrix-pairs"))
        result = read_result(read_document(done.document), C2cResult)
        assert len(result.cells) == chosen
        assert [left.code for left in result.not_measured] == ["sampled"] * (chosen == 1)
        for left in result.not_measured:
            assert left.pairs == (f"{result.cells[0].reader}@{result.cells[0].writer}",)
            assert left.message == "1 of 2 pairs were left out"
    absent = probe("c2c", "--all-pairs", f"{first}@100000", "--matrix-budget-s", "1")
    assert (absent.code, absent.document["error"]["code"]) == (3, "cpu_offline")
    some = probe("c2c", "--all-pairs", f"{first},{second},100000", "--matrix-budget-s", "1000", "--hops", "64")
    estimate = read_result(read_document(some.document), C2cSearch).estimate
    assert (estimate.pairs, estimate.measured_on, estimate.chosen) == (6, 2, 6)
    done = probe(*matrix, "--matrix-pairs", "3")
    assert done.code == 2
    assert "--matrix-pairs: must be 1 to 2 " in done.stderr


@pytest.mark.parametrize("method", ["transfer", "pingpong"])
def test_a_signal_within_a_placement_leaves_those_before(
    native: Path, probe: Probe, cpus: list[int], method: str
) -> None:
    require_two(cpus)
    first, second = cpus[:2]
    endless = ("--method", method, "--placements", "31")
    pair = ("--pair", f"{first}@{second}")
    for deadline_s in (0.6, 2, 8, 32):
        done = probe("c2c", *pair * 200, *endless, "--windows", "1", "--deadline-s", str(deadline_s))
        assert done.code == 3
        if done.document["result"] is not None:
            break
    result = read_result(read_document(done.document), C2cResult)
    assert result.pairs[0].placements
    ends = [pair.stopped if pair.error is None else pair.error.code for pair in result.pairs]
    assert ends[-1] == "deadline"
    assert set(ends) <= {"placements", "interrupted", "deadline"}
    complete = ends.count("placements")
    assert set(ends[:complete]) <= {"placements"}
    assert set(ends[complete + 1 :]) == {"deadline"}
    # One placement that takes minutes ends too, and says that it was not complete.
    process = subprocess.Popen(
        [native, "c2c", *pair, *endless, "--windows", "10000", "--hops", "100000"], stdout=subprocess.PIPE
    )
    time.sleep(0.5)
    process.terminate()
    out, _ = process.communicate()
    assert process.returncode == 4
    document = json.loads(out)
    assert document["error"]["code"] == "interrupted"
    assert "nothing was measured" in document["error"]["message"]


@pytest.mark.parametrize("target", ["x86_64", "aarch64"])
def test_c2c_waits_and_hands_over_with_plain_loads_and_stores(tmp_path: Path, target: str) -> None:
    """No compare-and-swap, locked exchange or exclusive pair: nothing depends on which of them a processor has."""
    compiled = tmp_path / "c2c.s"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", "-target", f"{target}-linux-musl", *COMMON_FLAGS,
         "-Wno-unused-command-line-argument", "-S", "-o", compiled, SOURCES_DIRECTORY / "transfer.c"],
        check=True, env=os.environ | dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(tmp_path)),
        capture_output=True,
    )  # fmt: skip
    functions = re.split(r"^(\w+):", compiled.read_text(encoding="utf-8"), flags=re.MULTILINE)
    bodies = dict(zip(functions[1::2], functions[2::2], strict=True))
    forbidden = r"^\s*(lock\b|cmpxchg|xchg|xadd|pause|lda?x[rp]|stl?x[rp]|cas|swp|ldadd|yield|wfe)"
    for name in ("write_lines", "read_lines", "shake", "shake_back"):
        assert not re.search(forbidden, bodies[name], re.MULTILINE), name
        if target == "aarch64":
            assert re.search(r"^\s*ldar\b", bodies[name], re.MULTILINE)
            assert re.search(r"^\s*stlr\b", bodies[name], re.MULTILINE)


def test_jitter_columns_keep_their_identities(probe: Probe, cpus: list[int]) -> None:
    done = probe(
        "jitter", "--cpus", ",".join(map(str, cpus[:2])), "--loops", "2000", "--executions", "500", "--intervals", "4",
        "--gap-s", "0.3", "--longest", "5",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "jitter")
    read_result(read_document(done.document), JitterResult)
    measured = done.document["result"]["cpus"]
    assert [cpu["cpu"] for cpu in measured] == cpus[:2]
    for cpu in measured:
        assert cpu["cpu_verified"]
        intervals = cpu["pma"]["intervals"]
        assert [interval["sample"] for interval in intervals] == [1, 2, 3, 4]
        for interval in intervals:
            assert interval["inst_jitter_cycles"] == interval["inst_max_cycles"] - interval["inst_min_cycles"]
            assert interval["inst_min_cycles"] <= interval["last_exec_cycles"] <= interval["inst_max_cycles"]
            assert interval["abs_min_cycles"] <= interval["inst_min_cycles"]
            assert interval["abs_max_cycles"] >= interval["inst_max_cycles"]
            assert interval["interval_cycles"] >= 500 * interval["inst_min_cycles"]
        steps = {(b["tmp"] - a["tmp"]) % 2**32 for a, b in pairwise(intervals)}
        assert len(steps) == 1, "the work's result must grow by the same amount in every interval"
        assert 0 <= cpu["pma"]["blind_fraction"] < 1
        assert_gap_books(cpu["gaps"])


def assert_gap_books(gaps: dict[str, Any]) -> None:
    assert gaps["wall_s"] > 0.299, "0.3 s by the first calibration of the clock"
    assert sum(bucket["count"] for bucket in gaps["histogram"]) == gaps["count"]
    for bucket in gaps["histogram"]:
        assert bucket["to_ns"] > bucket["from_ns"]
    lengths = [gap["length_ns"] for gap in gaps["longest"]]
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == min(5, gaps["count"])
    if lengths:
        assert lengths[0] == pytest.approx(gaps["max_ns"])
    assert gaps["lost_fraction"] == pytest.approx(gaps["lost_ns"] / gaps["wall_s"] / 1e9, rel=1e-6)
    assert 0 < gaps["coverage_fraction"] <= 1
    rates = [rate["rate"] for rate in gaps["rates_per_s"]]
    assert rates == sorted(rates, reverse=True)
    quantiles = [quantile["gap_ns"] for quantile in gaps["quantiles"]]
    assert quantiles == sorted(quantiles)
    assert gaps["turn_ns"]["min"] <= gaps["turn_ns"]["median"] < gaps["threshold_ns"]


def test_jitter_lists_the_longest_of_more_gaps_than_it_keeps(probe: Probe, cpus: list[int]) -> None:
    # Every turn of the loop is a gap of at least 1 ns, so the ring is full long before the time is over.
    done = probe("jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "1", "--threshold-ns", "1",
                 "--longest", "50")  # fmt: skip
    assert done.code == 0, done.stderr
    gaps = done.document["result"]["cpus"][0]["gaps"]
    assert gaps["ring_full"]
    lengths = [gap["length_ns"] for gap in gaps["longest"]]
    assert len(lengths) == 50
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == gaps["max_ns"]
    # What the histogram counts above a bin's end must be on the list, whenever it happened.
    for bucket in gaps["histogram"]:
        longer = sum(other["count"] for other in gaps["histogram"] if other["from_ns"] >= bucket["from_ns"])
        assert sum(length >= bucket["from_ns"] * (1 - 1e-9) for length in lengths) == min(50, longer)


def test_jitter_without_room_for_its_time_stamps_says_so(native: Path, cpus: list[int]) -> None:
    limit = (12 * MIB, 12 * MIB)
    done = subprocess.run(
        [native, "jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.05"],
        capture_output=True, text=True, check=False, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )  # fmt: skip
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["error"]["code"] == "no_memory"
    assert "--longest" in document["error"]["message"]


@pytest.mark.parametrize(("view", "other"), [("pma", "gaps"), ("gaps", "pma")])
def test_jitter_one_view_alone(probe: Probe, cpus: list[int], view: str, other: str) -> None:
    done = probe(
        "jitter", "--cpus", str(cpus[0]), "--view", view, "--loops", "100", "--executions", "10", "--intervals", "1",
        "--gap-s", "0.05", "--threshold-ns", "1000",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    (cpu,) = done.document["result"]["cpus"]
    assert cpu[view] is not None
    assert cpu[f"{view}_missing"] is None
    assert cpu[other] is None
    assert "--view" in cpu[f"{other}_missing"]


def throttled(cpu: int) -> str | None:
    """What of this kernel would stop a real-time thread that never sleeps; ``None`` when nothing that can be seen."""
    runtime = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text(encoding="ascii"))
    if runtime != -1 and runtime < int(Path("/proc/sys/kernel/sched_rt_period_us").read_text(encoding="ascii")):
        return "sched_rt_runtime_us"
    with suppress(OSError):
        server = Path(f"/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime")
        if int(server.read_text(encoding="ascii")) > 0:
            return "fair_server"
    return None


def test_jitter_refuses_fifo_under_throttling(probe: Probe, cpus: list[int]) -> None:
    cause = throttled(cpus[0])
    done = probe("jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.05", "--fifo", "1")
    if cause is not None:
        assert done.code == 3
        assert done.document["error"]["code"] == "unsupported"
        assert cause in done.document["error"]["message"]
        assert "RT_THROTTLE_POSSIBLE" in {warning["code"] for warning in done.document["warnings"]}
        return
    privileges = {
        privilege["name"]: privilege["present"] for privilege in probe("info").document["result"]["privileges"]
    }
    if not privileges["real_time_priority"]:
        assert done.code == 3
        assert done.document["error"]["code"] == "no_permission"
        return
    assert done.code == 0, done.stderr
    assert done.document["result"]["cpus"][0]["gaps"] is not None


def test_jitter_refuses_fifo_on_all_cpus(probe: Probe, cpus: list[int]) -> None:
    every = ",".join(map(str, cpus))
    done = probe("jitter", "--cpus", every, "--view", "gaps", "--gap-s", "0.05", "--fifo", "1")
    assert done.code == 3
    assert done.document["error"]["code"] == "unsupported"
    assert f"all {len(cpus)} allowed CPUs" in done.document["error"]["message"]
    assert "leave one out of --cpus" in done.document["error"]["message"]


def test_jitter_runs_fifo_without_throttling(probe: Probe, cpus: list[int]) -> None:
    runtime = Path("/proc/sys/kernel/sched_rt_runtime_us")
    before = runtime.read_text(encoding="ascii")
    try:
        runtime.write_text("-1", encoding="ascii")
    except OSError as reason:
        pytest.skip(f"no permission: switch real-time throttling off: {reason}")
    try:
        cause = throttled(cpus[0])
        done = probe("jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.05", "--fifo", "1")
    finally:
        runtime.write_text(before, encoding="ascii")
    if cause is not None:
        assert done.document["error"]["code"] == "unsupported"
        assert cause in done.document["error"]["message"]
        return
    assert done.code == 0, done.stderr
    warned = {warning["code"] for warning in done.document["warnings"]}
    assert ("RT_THROTTLE_POSSIBLE" in warned) == (not server_known(cpus[0]))


def server_known(cpu: int) -> bool:
    """Return whether it can be read what the deadline server of *cpu* takes, or that this kernel has none."""
    try:
        Path(f"/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime").read_text(encoding="ascii")
    except FileNotFoundError:
        return Path("/sys/kernel/debug/sched").exists()
    except OSError:  # it is there and may not be read: the kernel is locked down
        return False
    return True


@pytest.mark.parametrize("laid", ["echo 0 > $0/runtime", "mkdir $0/runtime", "rmdir $0"])
def test_a_deadline_server_that_cannot_be_read_is_warned_of(
    native: Path, cpus: list[int], tmp_path: Path, laid: str
) -> None:
    require_root()
    debug, limit = "/sys/kernel/debug", tmp_path / "limit"
    if not Path(debug).exists():
        pytest.skip("this kernel has no debugfs")
    limit.write_text("-1", encoding="ascii")
    script = (
        f"mount -t tmpfs none {debug} && mount --bind {limit} /proc/sys/kernel/sched_rt_runtime_us && "
        f'mkdir -p "$0" && {laid} && exec "$@"'
    )
    server = f"{debug}/sched/fair_server/cpu{cpus[0]}"
    probe = Probe(require("util-linux", "unshare"), "--mount", "/bin/sh", "-c", script, server, str(native))
    done = probe("jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.05", "--fifo", "1")
    if len(cpus) < 2:
        assert done.document["error"]["code"] == "unsupported"
        return
    warned = {warning["code"] for warning in done.document["warnings"]}
    # A directory in place of the file is there and cannot be read, as under lockdown; without it there is no server.
    assert ("RT_THROTTLE_POSSIBLE" in warned) == ("mkdir" in laid)


def test_unrequested_real_time_policy_is_detected(native: Path, cpus: list[int]) -> None:
    gaps = ("jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.05")
    limit = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text(encoding="ascii"))
    try:
        done = subprocess.run(
            [native, *gaps],
            capture_output=True,
            check=True,
            preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        )
    except subprocess.SubprocessError as reason:
        pytest.skip(f"no permission: become a real-time process: {reason}")
    document = json.loads(done.stdout)
    warned = {warning["code"] for warning in document["warnings"]}
    assert ("RT_THROTTLE_POSSIBLE" in warned) is (limit != -1)


def test_every_page_is_read_back_large_buffers_included(probe: Probe, cpus: list[int]) -> None:
    for kind, size in (("base", 80 << 20), ("auto", 80 << 20), ("thp", 6 << 20)):
        done = probe("latency", "--at", f"{cpus[0]}@0", "--size-bytes", str(size), "--pages", kind,
                     "--placements", "1", "--windows", "1", "--hops", "640")  # fmt: skip
        assert done.code == 0, done.stderr
        (pages,) = (placement["pages"] for placement in done.document["result"]["points"][0]["placements"])
        assert pages["total"] >= size // pages["base_bytes"]
        if pages["checked"] or "PLACEMENT_BY_TOPOLOGY" not in {
            warning["code"] for warning in done.document["warnings"]
        }:
            assert pages["checked"] == pages["on_node"] == pages["total"]


def test_jitter_on_all_isolated_cpus_or_a_clear_error(probe: Probe) -> None:
    isolated = Path("/sys/devices/system/cpu/isolated").read_text(encoding="ascii").strip()
    done = probe("jitter", "--cpus", "isolated", "--view", "gaps", "--gap-s", "0.05")
    if not isolated:
        assert done.code == 3
        assert done.document["error"]["code"] == "unsupported"
        assert "no isolated CPUs" in done.document["error"]["message"]
        return
    assert done.code == 0, done.stderr
    assert ",".join(str(cpu["cpu"]) for cpu in done.document["result"]["cpus"])


def test_terminated_jitter_keeps_its_data(native: Path, cpus: list[int]) -> None:
    running = subprocess.Popen(
        [native, "jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "600"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    time.sleep(0.5)
    running.send_signal(signal.SIGTERM)
    text, _ = running.communicate(timeout=60)
    assert running.returncode == 4
    document = json.loads(text)
    assert document["error"]["code"] == "interrupted"
    result = read_result(read_document(document), JitterResult)
    gaps = result.cpus[0].gaps
    assert gaps is not None
    assert gaps.stopped == "interrupted"
    assert 0 < gaps.wall_s < 600
    assert sum(item.count for item in gaps.histogram) == gaps.count


@pytest.mark.slow
def test_jitter_stopped_before_its_first_turn_keeps_the_rest(tmp_path: Path, cpus: list[int]) -> None:
    """In a build that is told to end when it has begun to watch and no thread has."""
    text = (SOURCES_DIRECTORY / "jitter_watch.c").read_text(encoding="utf-8")
    place = "\tjitter.gap_ticks = (uint64_t)(seconds * clock_now_used.hz);\n"
    stop = (
        "\tkill(getpid(), SIGTERM);\n\twhile (!stop_requested())\n"
        "\t\tnanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);\n\tstop_all(true);\n"
    )
    assert text.count(place) == 1
    changed = tmp_path / "jitter_watch.c"
    changed.write_text(
        "#include <signal.h>\n#include <unistd.h>\n" + text.replace(place, place + stop), encoding="utf-8"
    )
    stopped = Probe(str(link("address", tmp_path / "sutprobe", [changed])))
    words = ("--cpus", str(cpus[0]), "--loops", "100", "--executions", "10", "--intervals", "2", "--gap-s", "60")
    both = stopped("jitter", *words)
    assert both.document["error"]["code"] == "interrupted"
    (cpu,) = read_result(read_document(both.document), JitterResult).cpus
    assert cpu.pma is not None
    assert len(cpu.pma.intervals) == 2
    assert (cpu.gaps, cpu.gaps_missing) == (None, "interrupted before anything was complete")
    alone = stopped("jitter", *words, "--view", "gaps").document
    assert alone["result"] is None
    assert "nothing was measured by then" in alone["error"]["message"]


def test_jitter_takes_no_page_fault_while_it_looks(probe: Probe, cpus: list[int]) -> None:
    for _ in range(8):
        gaps = gap_view(probe("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "0.002",
                              "--longest", "1000"))  # fmt: skip
        assert gaps["interference"]["minor_faults"] == 0


def test_jitter_attributes_gaps_without_counting_any_twice(probe: Probe, cpus: list[int]) -> None:
    done = probe("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "2.5")
    gaps = read_result(read_document(done.document), JitterResult).cpus[0].gaps
    assert gaps is not None
    (slices,), told = gaps.slices, gaps.attribution
    assert told is not None
    assert told.gaps == sum(slices.gaps) <= gaps.count
    assert sum(slices.lost_ns) <= gaps.lost_ns + len(slices.lost_ns)
    assert sum(slices.length_ns) <= gaps.wall_s * 1e9 * 1.1
    for period, sliced in zip(gaps.periods, slices.periods, strict=True):
        assert period.period_ns == sliced.period_ns
        assert sum(sliced.gaps) <= period.gaps
        assert all(part <= whole for part, whole in zip(sliced.gaps, slices.gaps, strict=True))
    explained = sum(source.explained_gaps or 0 for source in told.sources)
    assert explained + told.unattributed_gaps == pytest.approx(told.gaps)
    assert told.unattributed_gaps >= 0
    lost_ns = sum(source.explained_lost_ns or 0 for source in told.sources)
    assert lost_ns + told.unattributed_lost_ns == pytest.approx(told.lost_ns)
    for source in told.sources:
        if source.kind == "interrupt":
            assert (source.explained_gaps or 0) <= source.count * 1.01
    assert "switch" in {source.kind for source in told.sources}
    assert (told.slices > 1) == (len(cpus) > 1), "slices need a CPU that is not measured"


def test_jitter_periods_agree_with_the_gaps(probe: Probe, cpus: list[int]) -> None:
    gaps = gap_view(probe("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "1"))
    assert sum(period["gaps"] for period in gaps["periods"]) <= gaps["count"]
    assert sum(period["lost_ns"] for period in gaps["periods"]) <= gaps["lost_ns"] * (1 + 1e-9)
    for period in gaps["periods"]:
        assert period["hz"] == pytest.approx(1e9 / period["period_ns"])
        assert 0.5 * period["cycles"] < period["gaps"] <= period["cycles"]
        assert period["cycles"] <= gaps["wall_s"] * period["hz"] + 2


def frequency(probe: Probe, *arguments: str) -> list[dict[str, Any]]:
    done = probe("frequency", *arguments, "--settle-s", "0.002", "--windows", "2", "--window-s", "0.02")
    assert done.code == 0, done.stderr
    assert_envelope(done.document, "frequency")
    read_result(read_document(done.document), FrequencyResult)
    found: list[dict[str, Any]] = done.document["result"]["points"]
    return found


def test_frequency_points_come_by_work_and_activity(probe: Probe, cpus: list[int]) -> None:
    listed = ",".join(map(str, cpus[:2]))
    points = frequency(probe, "--cpus", listed, "--work", "scalar,avx2,neon", "--alone-cpus", str(cpus[0]))
    assert [(point["work"], point["active"], point["cpu"]) for point in points] == [
        (work, active, cpu)
        for work in ("scalar", "avx2", "neon")
        for active, item in (("alone", cpus[:1]), ("all", cpus[:2]))
        for cpu in item
    ]
    assert any(point["error"] for point in points), "no processor has both AVX2 and NEON"
    for point in points:
        if point["error"]:
            assert point["error"]["code"] in {"unsupported", "check_failed"}
            assert point["windows_hz"] is point["share"] is point["stopped"] is None
            continue
        assert point["active_cpus"] == (1 if point["active"] == "alone" else len(cpus[:2]))
        assert point["cpu_verified"]
        assert point["checked"]
        assert len(point["windows_hz"]) == len(point["windows_share"]) == 2 - point["lost_windows"]
        assert min(point["windows_hz"]) > 1e8
        assert 0 < point["share"] <= 1
        assert point["stopped"] == "windows"
        assert point["chain_ratio"] is None or point["work"] != "scalar"


def test_some_cpus_at_the_same_time_are_points_of_their_own(probe: Probe, cpus: list[int]) -> None:
    listed = ",".join(map(str, cpus[:2]))
    some = ("--together", str(cpus[1]), "--together", listed)
    points = frequency(probe, "--cpus", listed, "--active", "all", "--alone-cpus", str(cpus[0]), *some)
    assert [(point["active"], point["cpu"], point["active_cpus"]) for point in points] == [
        (active, cpu, len(item))
        for active, item in (("all", cpus[:2]), ("1", cpus[1:2]), ("2", cpus[:2]))
        for cpu in item
    ]


def test_a_cpu_that_cannot_be_used_leaves_the_others(probe: Probe, cpus: list[int]) -> None:
    points = frequency(probe, "--cpus", f"{cpus[0]},100000")
    by_cpu = {(point["active"], point["cpu"]): point for point in points}
    assert by_cpu["all", cpus[0]]["active_cpus"] == 1
    assert any(by_cpu[active, cpus[0]]["windows_hz"] for active in ("alone", "all")), "other work took both"
    assert {by_cpu[active, 100000]["error"]["code"] for active in ("alone", "all")} == {"cpu_offline"}
