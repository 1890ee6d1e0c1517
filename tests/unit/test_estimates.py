# SPDX-License-Identifier: Apache-2.0
"""What a plan costs: the profiles keep to the time they promise, on a small machine and on a large one."""

import re
from pathlib import Path

import pytest

from calibration.base.errors import InputError
from calibration.context.model import Context
from calibration.measurements.bandwidth_ladder import ladder
from calibration.measurements.bandwidth_scaling import cpus_by_count, cpus_in_order
from calibration.measurements.base import Step
from calibration.measurements.core_frequency import spread_over
from calibration.measurements.loaded_latency import ZERO_LOADS, sweep_s
from calibration.measurements.platform import ChosenShape, ShapeReference
from calibration.measurements.sut import Sut, memory_bound_bytes, size_flags
from calibration.measurements.traffic import (
    BUFFERS,
    DEFAULT_SHAPE,
    NODE_FILL_BYTES_PER_S,
    PLAIN,
    THREAD_FILL_BYTES_PER_S,
    Mix,
    Part,
    Run,
    TrafficSettings,
    all_cpus,
    fill_s,
    group_text,
    read_group,
    read_sizes,
    run_s,
    shape_options,
)
from calibration.profiles import load_profile, parse_profile
from calibration.run.plan import make_plan, plan_text
from tests.unit.machines import GIB, KIB, MIB
from tests.unit.machines import machine as made

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "context"


def server(threads: int) -> Context:
    """Return two sockets of 32 cores with 60 MiB of last-level cache and 256 GiB each."""
    return made(packages=2, nodes=2, cores=32, threads=threads, node_bytes=256 * GIB, llc_bytes=60 * MIB)


def small() -> Context:
    """Return one socket with two cores, 32 MiB of last-level cache and 16 GiB."""
    return made(packages=1, nodes=1, cores=2, node_bytes=16 * GIB, llc_bytes=32 * MIB)


@pytest.mark.parametrize(("machine", "profile", "most_s"), [
    (server(1), "nightly", 600),
    (server(2), "nightly", 600),
    (small(), "full", 310),
    (small(), "quick", 75),
    (small(), "counters", 240),
], ids=["night-2x32", "night-2x32-smt", "full-2", "quick-2", "counters-2"])  # fmt: skip
def test_profiles_keep_to_their_time(machine: Context, profile: str, most_s: float) -> None:
    plan = make_plan(machine, load_profile(profile))
    assert plan.longest_duration_s <= most_s, plan_text(plan)


def growing_s(machine: Context, profile: str) -> float:
    """Return the cost of all kinds but the core-to-core matrix, which is a sample from some number of CPUs on."""
    steps = make_plan(machine, load_profile(profile)).steps
    return sum(step.expected_duration_s for step in steps if step.kind != "c2c_matrix")


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
def test_a_wider_machine_costs_more(profile: str) -> None:
    costs = [growing_s(item, profile) for item in (small(), server(1), server(2))]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize("machine", [small(), server(1), server(2)], ids=["small", "server", "server-smt"])
def test_a_longer_profile_costs_more(machine: Context) -> None:
    plans = [make_plan(machine, load_profile(profile)) for profile in ("quick", "nightly", "full")]
    costs = [plan.longest_duration_s for plan in plans]
    assert costs == sorted(set(costs))


OF_SENTINELS = {
    "jitter": {"executions", "gap_s", "isolated", "housekeeping"},
    "core_frequency": {"alone_cores"},
    "idle_latency": {"more_rounds", "counters"},
    "peak_injection_bandwidth": {"mixes", "plain_mixes", "memory_only_mixes", "counters"},
}
"""What is asked for less of than at night; all else decides a value."""


def test_sentinels_are_measured_as_at_night() -> None:
    sentinel, nightly = (load_profile(profile).measurements for profile in ("sentinel", "nightly"))
    differing = {
        kind: {name for name, value in settings if getattr(nightly[kind], name) != value}
        for kind, settings in sentinel.items()
    }
    assert differing == OF_SENTINELS


def test_nights_have_the_further_rounds_of_a_full_run() -> None:
    nightly, full = (
        {kind: getattr(settings, "more_rounds", 0) for kind, settings in load_profile(profile).measurements.items()}
        for profile in ("nightly", "full")
    )
    assert any(nightly.values())
    assert {kind: full[kind] for kind in nightly} == nightly


def test_plan_duration_is_the_sum_of_its_steps() -> None:
    plan = make_plan(small(), load_profile("nightly"))
    assert plan.expected_duration_s == pytest.approx(sum(step.expected_duration_s for step in plan.steps), abs=0.1)
    assert plan.longest_duration_s == pytest.approx(sum(step.longest_duration_s for step in plan.steps), abs=0.1)
    assert plan.longest_duration_s > plan.expected_duration_s
    for step in plan.steps:
        assert step.expected_duration_s <= step.longest_duration_s < step.deadline_s


def test_rounds_multiply_the_cost_and_a_search_is_made_once() -> None:
    def step(rounds: int, more: int = 0) -> Step:
        text = (
            f"title: t\nrounds: {rounds}\nmeasurements: {{max_bandwidth: {{more_rounds: {more}, streams: [1, 4, 8]}}}}"
        )
        search, found = make_plan(small(), parse_profile(text, "t", "test")).steps
        assert search.rounds == 1
        assert 1 < search.expected_duration_s == search.longest_duration_s
        return found

    two, six, more = step(2), step(6), step(6, 3)
    round_s = two.expected_duration_s / 2
    assert six.expected_duration_s == pytest.approx(6 * round_s, abs=0.11)
    assert six.longest_duration_s == six.expected_duration_s
    assert more.longest_duration_s == pytest.approx(9 * round_s, abs=0.11)
    assert two.deadline_s == six.deadline_s == more.deadline_s  # that of one command


def test_what_is_measured_once_is_planned_once() -> None:
    plan = make_plan(small(), load_profile("nightly"))
    whole = [step for step in plan.steps if step.part_of is None]
    once = {step.kind for step in whole if step.rounds == 1}
    assert once == {"traffic_shape", "sustained_bandwidth"}
    assert {step.rounds for step in whole if step.kind not in once} == {6}
    assert {step.rounds for step in plan.steps if step.part_of is not None} == {1}


def reads(size: int, *parts: Part, mix: Mix = "reads") -> Run:
    return Run(parts, mix, size)


def test_buffers_take_the_slower_of_a_thread_and_a_node() -> None:
    size = 100_000_000
    alone, many = Part((0,), 0), Part(tuple(range(64)), 0)
    assert fill_s([reads(size, alone)]) == size / THREAD_FILL_BYTES_PER_S
    assert fill_s([reads(size, alone, mix="stream_triad")]) == pytest.approx(3 * size / THREAD_FILL_BYTES_PER_S)
    assert fill_s([reads(size, many)]) == 64 * size / NODE_FILL_BYTES_PER_S
    apart = Part(tuple(range(32)), 0), Part(tuple(range(32, 64)), 1)
    assert fill_s([reads(size, *apart)]) == fill_s([reads(size, many)]) / 2


def test_runs_of_a_step_share_the_buffers_of_a_placement() -> None:
    size = 100_000_000
    one, both, large = reads(size, Part((0,), 0)), reads(size, Part((0, 1), 0)), reads(2 * size, Part((0,), 0))
    assert fill_s([one, one, one]) == fill_s([one])
    assert fill_s([one, both, large]) == fill_s([large])
    settings = TrafficSettings(placements=2, windows=3, window_s=0.1)
    once, twice = settings.cost_s([one]), settings.cost_s([one, one])
    assert once > 2 * (fill_s([one]) + 0.3)
    assert twice - once == pytest.approx(2 * (run_s(one) + 0.3))
    assert settings.cost_s([one], 2) == pytest.approx(twice)
    assert run_s(reads(size, Part((0,), 0), mix="write")) > run_s(one)


def test_buffers_per_mix_match_sutprobe() -> None:
    source = (ROOT / "calibration" / "probe" / "load.c").read_text(encoding="utf-8")
    rows = re.findall(r'\[MIX_\w+\]\s*=\s*\{"([^"]+)",\s*(\d),', source)
    assert {name: int(arrays) for name, arrays in rows} == BUFFERS


def test_a_plan_names_a_cpu_that_belongs_to_no_node() -> None:
    machine = server(1)
    plan = make_plan(machine.model_copy(update={"nodes": machine.nodes[:1]}), load_profile("full"))
    (left_out,) = (item for item in plan.not_planned if item.reason == "no node lists them")
    assert left_out.what == "CPUs 32-63"
    assert max(cpu for step in plan.steps for cpu in step.cpus) == 31


# What the new kinds ask for on such machines


def test_threads_fill_cores_before_siblings_and_nodes_in_both_orders() -> None:
    sut = Sut(server(2))
    fill, spread = cpus_in_order(sut, "fill"), cpus_in_order(sut, "spread")
    assert fill == list(range(128)), "one last-level cache in each node: nothing to balance"
    assert spread[:4] == [0, 32, 1, 33]
    assert set(spread[:64]) == set(range(64))
    assert sorted(spread) == fill
    assert [len(item) for item in cpus_by_count(sut, "fill")] == [1, 2, 4, 8, 16, 28, 32, 56, 64, 128]
    uneven = Sut(made(packages=2, nodes=2, cores=3, threads=2, node_bytes=16 * GIB, llc_bytes=32 * MIB))
    assert [len(item) for item in cpus_by_count(uneven, "fill")] == [1, 2, 3, 4, 5, 6, 8, 12]
    assert [len(item) for item in cpus_by_count(uneven, "spread")] == [1, 2, 4, 5, 6, 8, 12]


def test_a_cache_is_divided_among_the_threads_that_share_it() -> None:
    sut = Sut(server(2))
    alone = ladder(sut, [Part((0,), 0)], ("reads",))
    assert alone[24 * KIB] == ("L1/2",)
    assert alone[1 * MIB] == ("L2/2",)
    assert alone[240 * MIB] == ("4 x L3",)
    together = ladder(sut, all_cpus(sut), ("reads", "copy"))
    assert together[12 * KIB] == ("L1/2",)
    assert together[512 * KIB] == ("L2/2",)
    # 64 threads share 60 MiB: less than a thread has of the second level, which would serve those sizes
    assert not [name for names in together.values() for name in names if name in {"L3/4", "L3/2", "L3"}]
    assert max(together) == 4 * 60 * MIB // 64


def test_ladder_sizes_are_unique_and_fit_memory() -> None:
    roomy = Sut(made(packages=1, nodes=1, cores=2, node_bytes=16 * GIB, llc_bytes=8 * MIB))
    assert ladder(roomy, [Part((0,), 0)], ("reads",))[4 * MIB] == ("2 x L2", "L3/2")
    tight = Sut(made(packages=1, nodes=1, cores=2, node_bytes=76 * MIB, llc_bytes=8 * MIB))
    assert max(ladder(tight, [Part((0,), 0)], ("reads",))) == 8 * MIB
    assert max(ladder(tight, [Part((0,), 0)], ("reads", "copy"))) == 4 * MIB
    unknown = small().model_copy(update={"caches": ()})
    assert ladder(Sut(unknown), [Part((0,), 0)], ("reads",)) == {}
    plan = make_plan(unknown, load_profile("quick"))
    assert any(omitted.kind == "bandwidth_ladder" and "no cache" in omitted.reason for omitted in plan.not_planned)


def test_group_text_round_trips() -> None:
    parts = [Part((0, 1, 4), 0), Part((8,), 1)]
    for size_bytes, sizes in ((None, []), (4096, [4096, 4096]), ([4096, 8192], [4096, 8192])):
        assert read_group(group_text(parts, size_bytes)) == parts
        assert read_sizes(group_text(parts, size_bytes)) == sizes
    for wrong in ("0-1", "a@0", "0@b", ""):
        with pytest.raises(InputError, match="not a group"):
            read_group(wrong)


def test_best_setting_without_delay_is_measured_in_full() -> None:
    def cost_s(settings: str) -> float:
        text = f"title: t\nmeasurements: {{max_bandwidth: {{window_s: 10, streams: [1, 4], {settings}}}}}"
        _search, step = make_plan(small(), parse_profile(text, "t", "test")).steps
        return step.expected_duration_s

    one = cost_s("delays: [0], keep_best: 1")
    assert cost_s("delays: [0, 8], keep_best: 1") == pytest.approx(2 * one, rel=0.01)
    assert cost_s("delays: [0, 8], keep_best: 3") == pytest.approx(4 * one, rel=0.01)
    assert cost_s("delays: [0], keep_best: 3") == pytest.approx(3 * one, rel=0.01)


def test_buffers_are_filled_as_fast_as_the_node_with_most_threads_allows() -> None:
    crowded, alone = Part(tuple(range(64)), 0), Part((64,), 1)
    expected_s = 64 * GIB / NODE_FILL_BYTES_PER_S
    for parts in ([crowded], [crowded, alone], [alone, crowded]):
        assert fill_s([reads(GIB, *parts)]) == pytest.approx(expected_s)


def test_a_sweep_lasts_for_its_delays_and_the_looks_without_load() -> None:
    settings = TrafficSettings(placements=2, windows=3, window_s=1.0)
    one_s, two_s, three_s = (sweep_s(settings, delays, reads(4096, Part((0,), 0)), 0) for delays in (1, 2, 3))
    assert three_s - two_s == pytest.approx(two_s - one_s)
    assert one_s == pytest.approx((1 + ZERO_LOADS) * (two_s - one_s), rel=0.05)


def test_copies_share_the_memory_of_their_node_in_the_ladder() -> None:
    memory = small().nodes[0].model_copy(update={"available_bytes": 256 * MIB})
    machine = small().model_copy(update={"nodes": (memory,)})
    text = "title: t\nmeasurements: {latency_ladder: {copies: [2]}}"
    step = next(step for step in make_plan(machine, parse_profile(text, "t", "test")).steps if "copies" in step.id)
    assert int(step.argv[step.argv.index("--size-bytes") + 1].split(",")[-1]) == 60 * MIB


@pytest.mark.parametrize("available", [74, 80, 128, 140, 300, 1000])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_chains_fit_into_usable_memory(available: int, copies: int) -> None:
    sut = Sut(made(packages=1, nodes=1, cores=2, node_bytes=available * MIB, llc_bytes=32 * MIB))
    size = memory_bound_bytes(sut, 0, buffers=copies)
    built = copies * size * (1 + 4 / 64)
    assert built <= (available - 64) * MIB
    assert built <= available * MIB / 2


def test_shape_is_the_profiles_then_the_kept_then_the_default() -> None:
    kept = ShapeReference.model_construct(
        all_mixes=ChosenShape.model_construct(streams=2, prefetch_bytes=512, width="avx2"),
        mixes={"reads": ChosenShape.model_construct(streams=8, prefetch_bytes=0, width="sse2")},
    )
    settings = TrafficSettings()

    def shape(**changes: object) -> tuple[object, ...]:
        given = {"settings": settings, "shape": None, "kept": kept, "mixes": ("copy", "1:1"), **changes}
        return tuple(shape_options(**given).values())  # type: ignore[arg-type]

    assert shape() == shape(mixes=("copy",)) == (2, 512, "avx2")
    assert shape(mixes=("copy", "reads")) == (2, 512, ["reads=8/0/t0/0/vector"], "avx2")
    assert shape(mixes=("reads",)) == (8, 0, "sse2")
    assert shape(settings=TrafficSettings(width="avx512")) == (2, 512, "avx512")
    assert shape(shape=PLAIN) == (1, 0, "auto")
    assert shape(kept=None) == (DEFAULT_SHAPE.streams, DEFAULT_SHAPE.prefetch_bytes, "auto")


def test_cores_measured_alone_are_spread_over_nodes() -> None:
    machine = Sut(server(1))
    alone = spread_over(machine, sorted(machine.cpus), 5)
    assert [sum(machine.node_of(cpu) == node for cpu in alone) for node in (0, 1)] == [3, 2]


def test_unreported_cache_is_not_shared() -> None:
    machine = Sut(server(1))
    assert machine.fewest_per_llc(range(16)) == 16
    assert machine.fewest_per_llc([*range(16), 1000]) == 1


def test_a_buffer_below_four_times_the_last_level_cache_is_flagged() -> None:
    machine = Sut(small())
    assert machine.llc_bytes == 32 * MIB
    assert [flag.code for flag in size_flags(machine, 128 * MIB - 1, {})] == ["BUFFER_TOO_SMALL"]
    assert list(size_flags(machine, 128 * MIB, {})) == []
