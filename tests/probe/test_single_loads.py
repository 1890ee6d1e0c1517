# SPDX-License-Identifier: Apache-2.0
"""Loads timed one by one, and chains on several kinds of pages: known answers, and what is refused."""

import platform
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from tests.probe.conftest import Probe
from tests.probe.virtual_clock import TICKS_PER_NS, VirtualRun
from tests.tools import require_two

MIB = 1 << 20
BLOCK = 256
"""Loads from memory, and from L1, in turn."""

SHORT = ("--placements", "1", "--windows", "2", "--hops", "640")


def counted(histogram: dict[str, Any]) -> Counter[int]:
    assert set(histogram["widths"]) == {1}
    return Counter(dict(zip(histogram["starts"], histogram["counts"], strict=True)))


def points(probe: Probe, *arguments: str) -> list[dict[str, Any]]:
    done = probe("latency", *arguments)
    assert done.code == 0, done.stderr
    read_result(read_document(done.document), LatencyResult)
    found: list[dict[str, Any]] = done.document["result"]["points"]
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine has no time-stamp counter to trap")
@pytest.mark.parametrize("loads", [100, BLOCK, 600])
def test_every_load_is_timed_by_the_two_reads_around_it(native: Path, cpus: list[int], loads: int) -> None:
    """The virtual clock advances by another number of ticks at each read: where the loop began tells the rest."""

    def step(read: int) -> int:
        return Random(read).randrange(1000, 2000)

    run = VirtualRun(str(native), "latency", "--at", f"{cpus[0]}@0", "--size-bytes", "1048576", "--pages", "base",
                     *SHORT, "--single-loads", str(loads), steps=step)  # fmt: skip
    (point,) = run.document()["result"]["points"]
    single = point["placements"][0]["single_loads"]
    assert single["tick_ns"] == pytest.approx(1 / TICKS_PER_NS, rel=1e-6)
    (reads,) = run.reads()
    took = [after - before for before, after in pairwise(reads)]
    found = []
    for begin in range(len(took) - 4 * loads + 2):
        kinds: dict[str, list[int]] = {"memory": [], "reference": []}
        at = begin
        for done in range(0, loads, BLOCK):
            block = min(BLOCK, loads - done)
            for times in kinds.values():
                times.extend(took[at : at + 2 * block : 2])
                at += 2 * block
        if all(Counter(times) == counted(single[kind]) for kind, times in kinds.items()):
            found.append((begin, kinds))
    assert len(found) == 1
    assert {kind: max(times) for kind, times in found[0][1].items()} == {
        kind: single[kind]["longest"] for kind in ("memory", "reference")
    }


def test_as_many_loads_are_timed_as_asked_for_in_each_walk(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    words = ("--at", f"{cpus[0]}@0", "--size-bytes", f"65536,{8 * MIB}", *SHORT)
    assert all(point["placements"][0]["single_loads"] is None for point in points(probe, *words))
    for point in points(probe, *words, "--single-loads", "3000", "--keep-awake", f"{cpus[-1]}@0"):
        (placement,) = point["placements"]
        for walk in (placement, placement["package_active"]):
            for kind in ("memory", "reference"):
                assert sum(walk["single_loads"][kind]["counts"]) == 3000


def test_single_loads_and_copies_exclude_one_another(probe: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    done = probe("latency", "--at", f"{cpus[0]}@0", "--at", f"{cpus[-1]}@0", "--together", "--size-bytes", "65536",
                 "--single-loads", "10")  # fmt: skip
    assert (done.code, done.document["error"]["code"]) == (2, "usage")


def test_the_same_chains_are_walked_on_each_kind_of_pages(probe: Probe, cpus: list[int]) -> None:
    found = points(probe, "--at", f"{cpus[0]}@0:{4 * MIB}/4096", "--at", f"{cpus[0]}@0:65536", "--at", f"{cpus[0]}@0",
                   "--size-bytes", str(8 * MIB), "--pages", "thp,base", *SHORT)  # fmt: skip
    shapes = [(4 * MIB, 4096, 1024, 65536), (65536, 64, 1024, 65536), (8 * MIB, 64, 131072, 8 * MIB)]
    assert [
        (point["pages"], point["size_bytes"], point["stride_bytes"], point["chain_nodes"], point["touched_bytes"])
        for point in found
    ] == [(kind, *shape) for kind in ("thp", "base") for shape in shapes]
    assert all(point["hugetlb_bytes"] is None for point in found)
    seeds = [point["placements"][0]["seed"] for point in found]
    assert seeds[:3] == seeds[3:]
    assert len(set(seeds)) == 3
    for point in found:
        pages = point["placements"][0]["pages"]
        assert pages["wanted"] == point["pages"]
        assert point["pages"] == "thp" or (pages["obtained"], pages["huge_bytes"]) == ("base", None)


def test_pages_that_the_kernel_has_not_leave_the_others(probe: Probe, cpus: list[int]) -> None:
    base, lost = points(probe, "--at", f"{cpus[0]}@0", "--size-bytes", "65536", "--pages", "base,hugetlb",
                        "--hugetlb-bytes", "12288", *SHORT)  # fmt: skip
    assert base["placements"][0]["pages"]["obtained"] == "base"
    assert (lost["hugetlb_bytes"], lost["placements"], lost["error"]["code"]) == (12288, None, "no_memory")
    assert "no hugetlb pages of 12 KiB" in lost["error"]["message"]


@pytest.mark.parametrize("wrong", [
    ("--pages", "base,base"),
    ("--pages", "hugetlb", "--hugetlb-bytes", "2097152,2097152"),
    ("--pages", "base", "--hugetlb-bytes", "2097152"),
    ("--at", "0@0:65536/"),
    ("--at", "0@0:65536/4"),
    ("--at", "0@0:65536/131072"),
    ("--at", "0@0:65536/4095"),
    ("--at", "0@0:65536/4096", "--stride-bytes", "64,128"),
    ("--at", f"0@0:{1 << 36}/8"),
])  # fmt: skip
def test_pages_and_strides_that_make_no_sense_are_refused(probe: Probe, wrong: tuple[str, ...]) -> None:
    done = probe("latency", "--at", "0@0", "--size-bytes", "65536", *wrong)
    assert (done.code, done.document["error"]["code"]) == (2, "usage")
