# SPDX-License-Identifier: Apache-2.0
"""Figures between physical bounds: core clocks of a load, bytes a core clock, a line that another core's cache holds.

Other work makes windows longer and none shorter, so the shortest of many short ones is compared.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import Probe, core_hz, run_with_share
from tests.tools import require_two

VECTOR_BYTES = {"sse2": 16, "avx2": 32, "avx512": 64, "neon": 16}


def shortest_hop(probe: Probe, cpu: int) -> tuple[float, dict[str, Any]]:
    done = probe("latency", "--at", f"{cpu}@0", "--size-bytes", "4096", "--placements", "1", "--windows", "300",
                 "--hops", "6400")  # fmt: skip
    assert done.code == 0, done.stderr
    (placement,) = done.document["result"]["points"][0]["placements"]
    return min(placement["windows_ns"]), placement


def test_a_load_from_the_first_cache_takes_three_to_seven_core_clocks(probe: Probe, cpus: list[int]) -> None:
    shortest, placement = shortest_hop(probe, cpus[0])
    assert 3 < shortest * core_hz([placement]) / 1e9 < 7
    assert len(placement["dirty_windows"]) < len(placement["windows_ns"]), "20 us without an interruption are not rare"


@pytest.mark.parametrize(("mix", "least", "most"), [("reads", 0.9, 3.1), ("write", 0.45, 2.1), ("copy", 0.9, 4.1)])
def test_a_core_clock_moves_the_bytes_of_a_few_vectors(
    probe: Probe, cpus: list[int], mix: str, least: float, most: float
) -> None:
    """From and to the first cache: loads up to three a clock, stores up to two, a copy is one of each."""
    widths = set(probe("info").document["result"]["widths"]) & VECTOR_BYTES.keys()
    assert widths
    for width in widths:
        done, share = run_with_share(
            probe, cpus[0],
            "bandwidth", "--group", f"{cpus[0]}@0", "--mix", mix, "--width", width, "--buffer-bytes", "8192",
            "--placements", "4", "--windows", "50", "--window-s", "0.002",
        )  # fmt: skip
        assert done.code == 0, done.stderr
        placements = done.document["result"]["points"][0]["placements"]
        most_mb_s = max(rate for placement in placements for rate in placement["program_windows_mb_s"])
        vectors = most_mb_s * 1e6 / core_hz(placements) / VECTOR_BYTES[width]
        assert least * share**2 < vectors < most, f"{width}: the CPU had {share:.3f} of its time"


def cores(cpu: int) -> str:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings.read_text(encoding="ascii")


@pytest.mark.parametrize("state", ["hit", "hitm"])
def test_a_line_of_another_core_is_no_hit_in_the_readers_own_cache(probe: Probe, cpus: list[int], state: str) -> None:
    """Left in the reader's cache it would be read as fast as any load from there, in some of many rounds at least.

    Four times would not do: two CPUs of a virtual machine may be threads of one core, where a line took 3.9 times.
    """
    require_two(cpus)
    other = next((cpu for cpu in cpus[1:] if cores(cpu) != cores(cpus[0])), None)
    if other is None:
        pytest.skip("this machine has one core")
    own, _ = shortest_hop(probe, cpus[0])
    done = probe("c2c", "--pair", f"{other}@{cpus[0]}", "--state", state, "--lines", "64", "--hops", "64",
                 "--placements", "1", "--windows", "300")  # fmt: skip
    assert done.code == 0, done.stderr
    (placement,) = done.document["result"]["pairs"][0]["placements"]
    assert min(placement["windows_ns"]) > 2 * own
