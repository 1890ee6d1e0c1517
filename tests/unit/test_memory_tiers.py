# SPDX-License-Identifier: Apache-2.0
"""Tiers: which nodes are measured together with which weights, and which weights are best."""

import copy
from typing import Any

import pytest

from calibration.context.hardware import Interleaving
from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.memory_tiers import BestWeights, MemoryTiersSettings, Tiers, tiers_of, turns_bytes
from calibration.measurements.sut import HUGE_BYTES, Sut
from calibration.measurements.traffic import BUFFERS, Memory, Mix, Part, Run, memory_bytes, read_group
from calibration.profiles import load_profile
from calibration.run.plan import make_plan
from tests.machines import options
from tests.unit.machines import GIB, MACHINES, MIB, machine
from tests.unit.test_measurements import MACHINE, one, read

SKEW_BYTES = 4096 + 17 * 64
"""What arrays of a thread are apart besides their size (LOAD_ARRAY_SKEW_BYTES)."""

CXL = machine(
    packages=2, nodes=2, cores=64, threads=2, node_bytes=256 * GIB, llc_bytes=256 * MIB, memory_only_bytes=(128 * GIB,)
)


def with_distances(context: Context, *rows: tuple[int, ...]) -> Context:
    return context.model_copy(update={"distances": rows})


def with_weights(context: Context, *weights: int) -> Context:
    found = Interleaving(weights=dict(enumerate(weights)), automatic=None)
    return context.model_copy(update={"interleaving": found})


def planned(context: Context) -> list[Any]:
    return list(declaration("memory_tiers").steps(Sut(context), MemoryTiersSettings()))


def groups(context: Context) -> list[str]:
    (step,) = (item for item in planned(context) if isinstance(item, Step))
    return [group.partition(":")[0] for group in options(step, "group")]


def test_a_memory_only_node_is_measured_with_the_nodes_nearest_to_it() -> None:
    assert tiers_of(Sut(CXL)) == [Tiers((0, 1), (2,))], "as far from both sockets"
    first = with_distances(CXL, (10, 21, 14), (21, 10, 24), (14, 24, 10))
    assert tiers_of(Sut(first)) == [Tiers((0,), (2,))]
    assert tiers_of(Sut(CXL.model_copy(update={"distances": None}))) == [Tiers((0, 1), (2,))]
    both = MACHINES["2x96-smt-2-nodes-2-memory-only"]
    each = with_distances(both, (10, 21, 14, 24), (21, 10, 24, 14), (14, 24, 10, 28), (24, 14, 28, 10))
    assert tiers_of(Sut(each)) == [Tiers((0,), (2,)), Tiers((1,), (3,))]


def test_without_memory_only_nodes_the_plan_says_why() -> None:
    (reason,) = planned(MACHINES["2x32-smt-2-nodes"])
    assert isinstance(reason, NotPlanned)
    assert reason.reason == "every node with memory has CPUs: no tiers"
    nodes = (node.model_copy(update={"memory_bytes": 0}) if node.cpus else node for node in CXL.nodes)
    (reason,) = planned(CXL.model_copy(update={"nodes": tuple(nodes)}))
    assert isinstance(reason, NotPlanned)
    assert reason.reason == "no CPUs with memory of their own: no tiers"


def test_weights_are_those_of_the_settings_the_machine_and_each_tier_alone() -> None:
    near = with_distances(CXL, (10, 21, 14), (21, 10, 24), (14, 24, 10))
    assert [item.reason for item in planned(near) if isinstance(item, NotPlanned)] == [
        "the kernel has no weights of nodes (Linux 6.9 and later have)"
    ]
    pairs = ("16,1", "8,1", "5,1", "4,1", "3,1", "2,1", "3,2", "1,1", "1,2", "1,3")
    swept = [f"0-63@0*{near},2*{far}" for near, far in (pair.split(",") for pair in pairs)]
    assert groups(near) == ["0-63@0", *swept, "0-63@2"]
    assert groups(with_weights(near, 6, 9, 2)) == ["0-63@0", *swept, "0-63@2", "0-63@0,2"], "3:1 is there already"
    assert groups(with_weights(near, 7, 9, 2)) == ["0-63@0", *swept, "0-63@2", "0-63@0*7,2*2", "0-63@0,2"]
    two = machine(packages=1, nodes=1, cores=2, node_bytes=GIB, llc_bytes=MIB, memory_only_bytes=(GIB, GIB))
    assert groups(two)[:2] == ["0-1@0", "0-1@0*32,1*1,2*1"], "the weight of a tier is that of its nodes together"
    assert groups(two)[-1] == "0-1@1*1,2*1"


def test_a_step_takes_of_each_node_the_turns_that_have_begun() -> None:
    part = Part((0, 1), 0, Memory(0, ((0, 3), (2, 1))))
    assert str(part) == "0-1@0*3,2*1"
    assert read_group("0-1@0*3,2*1+2@4") == [part, Part((2,), 4)]
    assert read_group("0-1@0,2") == [Part((0, 1), 0, Memory(0, ((0, 1), (2, 1)), by_kernel=True))]
    assert part.memory.shares == {0: 0.75, 2: 0.25}
    nine_pages = 9 * HUGE_BYTES - 1
    assert memory_bytes([Run([part], "reads", nine_pages)]) == {0: 2 * 9 * HUGE_BYTES, 2: 2 * 3 * HUGE_BYTES}
    assert memory_bytes([Run([part], "reads", 8 * HUGE_BYTES - 1)]) == {0: 2 * 6 * HUGE_BYTES, 2: 2 * 2 * HUGE_BYTES}
    plain = Run([Part((0, 1), 0)], "reads", nine_pages)
    both = memory_bytes([plain, Run([part], "reads", nine_pages)])
    assert both == {0: 4 * 9 * HUGE_BYTES, 2: 2 * 3 * HUGE_BYTES}, "buffers that lie otherwise are others"


@pytest.mark.parametrize("mix", ["reads", "copy", "stream_triad"])
@pytest.mark.parametrize("weights", [((0, 16), (2, 1)), ((0, 3), (2, 2)), ((0, 2), (2, 1), (3, 1))])
def test_buffers_have_whole_turns_of_huge_pages(mix: Mix, weights: tuple[tuple[int, int], ...]) -> None:
    """As many pages of each node as its weight says, in every buffer, as sutprobe maps it."""
    part = Part((0, 1), 0, Memory(0, weights))
    turn = sum(weight for _, weight in weights)
    for least in (1, 16 * MIB, 33 * MIB):
        size = turns_bytes(part, least, mix)
        assert size >= least
        mapped = -(-BUFFERS[mix] * (size + SKEW_BYTES) // HUGE_BYTES)
        assert mapped % turn == 0
        assert BUFFERS[mix] * size > (mapped - turn) * HUGE_BYTES
        taken = memory_bytes([Run([part], mix, size)])
        assert taken == {node: 2 * mapped // turn * weight * HUGE_BYTES for node, weight in weights}


def test_buffers_are_as_large_as_the_nodes_allow() -> None:
    (step,) = (item for item in planned(CXL) if isinstance(item, Step))
    assert step.memory_bytes.keys() == {0, 1, 2}
    assert not options(step, "pages")
    small = machine(packages=1, nodes=1, cores=2, node_bytes=GIB, llc_bytes=8 * MIB, memory_only_bytes=(256 * MIB,))
    sut = Sut(small)
    (step,) = (item for item in planned(small) if isinstance(item, Step))
    assert not sut.lacking(step.memory_bytes)
    assert options(step, "pages") == ["base"], "no room for a huge page on each node in turn"


@pytest.mark.parametrize("profile", ["nightly", "full"])
def test_planned_time(profile: str) -> None:
    context = with_weights(with_distances(CXL, (10, 21, 14), (21, 10, 24), (14, 24, 10)), 1, 1, 1)
    (step,) = (step for step in make_plan(context, load_profile(profile)).steps if step.kind == "memory_tiers")
    assert step.longest_duration_s <= 45


def best_of(raw: dict[str, Any], machine: Context = MACHINE) -> BestWeights:
    (best,) = one("memory_tiers", raw, machine).values.tiers
    assert isinstance(best, BestWeights)
    return best


def scaled(factors: dict[str, float]) -> dict[str, Any]:
    """Return the recorded document with the bandwidth of each group times a factor, alike in all placements."""
    raw = copy.deepcopy(read("memory_tiers"))
    for point in raw["result"]["points"]:
        for number, placement in enumerate(point["placements"]):
            level = 1000 * factors.get(point["group"], 1.0) * (1 + number / 1000)
            for name in ("windows_mb_s", "program_windows_mb_s"):
                placement[name] = [level] * len(placement[name])
    return raw


def test_the_best_weights_and_those_not_proved_to_have_less() -> None:
    raw = scaled({"0-1@0": 3.0, "0-1@0*4,1*1": 3.6, "0-1@0*3,1*1": 3.6, "0-1@0*1,1*1": 2.0})
    best = best_of(raw, with_weights(MACHINE, 2, 2))
    assert (best.weights, best.alike, best.far_share) == ((4, 1), ("3:1",), pytest.approx(0.2))
    assert best.near_mb_s
    assert best.far_mb_s
    assert (round(best.near_mb_s.value), round(best.far_mb_s.value)) == (3008, 1002)
    assert (best.machine, best.machine_share and best.machine_share.value) == ((1, 1), pytest.approx(2.0 / 3.6))
    assert best_of(raw).machine is None


def test_the_share_of_pages_is_the_one_read_back() -> None:
    raw = scaled({})
    shares = one("memory_tiers", raw).values.table.cells("far_share")
    assert shares["0", "1", "kernel"] == pytest.approx(0.2), "the machine's weights were 4:1 when it was recorded"
    assert shares["0", "1", "3:1"] == pytest.approx(0.25, abs=0.001)


def test_weights_that_are_not_what_was_read_back_have_no_value() -> None:
    raw = scaled({"0-1@0*4,1*1": 4.0})
    point = next(point for point in raw["result"]["points"] if point["group"] == "0-1@0*4,1*1")
    point |= {"placements": None, "checked": False, "error": {"code": "placement_wrong", "message": "wrong shares"}}
    parsed = one("memory_tiers", raw)
    assert "4:1" not in {row.weights for row in parsed.values.points}
    (missing,) = parsed.missing
    assert missing.flag
    assert missing.flag.code == "PLACEMENT_WRONG"
