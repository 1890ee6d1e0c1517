# SPDX-License-Identifier: Apache-2.0
"""Plans for captured machines: only what the machine has, and a reason for everything left out."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from calibration.base.cpulists import format_cpulist, parse_cpulist
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.units import plural
from calibration.context.model import Context
from calibration.measurements import registry
from calibration.measurements.base import Step
from calibration.measurements.neighbourhood import Class, Neighbourhood
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import BUFFERS, Memory, read_group
from calibration.profiles import load_profile, parse_profile, profile_names
from calibration.run.plan import make_plan, plan_text
from calibration.runner.fields import chosen, figures
from calibration.runner.intervals import COVERAGE_WANTED, median_ranks
from tests.captures import captured
from tests.machines import answer
from tests.unit.machines import GIB, MIB
from tests.unit.machines import machine as made

SMT = captured("x86_64-two-nodes-smt")
ISOLATED = captured("x86_64-isolated")
CPU_ONLY = captured("x86_64-cpu-only-node")
SMT_OFF = captured("x86_64-smt-off")


def options(step: Step, name: str) -> list[str]:
    return [value for option, value in zip(step.argv, step.argv[1:], strict=False) if option == f"--{name}"]


def cpus_of(text: str) -> set[int]:
    return set(parse_cpulist(text))


def chase_place(text: str) -> tuple[int, set[int], int | None]:
    place, _, size = text.partition(":")
    cpu, nodes = place.split("@")
    return int(cpu), {int(node) for node in nodes.split("+")}, int(size.partition("/")[0]) if size else None


def transfer(text: str) -> tuple[int, int, int, str]:
    cpus, home, state = text.split(":")
    writer, reader = cpus.split("@")
    return int(writer), int(reader), int(home), state


def step_of(context: Context, profile: str, step_id: str) -> Step:
    return next(step for step in make_plan(context, load_profile(profile)).steps if step.id == step_id)


@pytest.mark.parametrize("profile", profile_names())
def test_plan_uses_existing_cpus_and_nodes(machine: Context, profile: str) -> None:
    plan = make_plan(machine, load_profile(profile))
    wanted = load_profile(profile)
    named = wanted.measurements.keys() | wanted.not_measured.keys()
    assert {step.kind for step in plan.steps} | {omitted.kind for omitted in plan.not_planned} >= named
    nodes = {node.id for node in machine.nodes}
    for step in plan.steps:
        assert step.cpus
        assert set(step.cpus) <= set(machine.online_cpus)
        assert set(step.memory_bytes) <= nodes
        assert step.argv[0] == "sutprobe"
        assert all(isinstance(word, str) and word for word in step.argv)
        assert 0 < step.expected_duration_s / step.rounds < step.deadline_s
        assert options(step, "deadline-s") == [f"{step.deadline_s:g}"]
        for cpu, where, size in map(chase_place, options(step, "at")):
            assert cpu in machine.online_cpus
            assert where <= nodes
            assert size is None or size > 0
        for name in ("probe", "group", "load", "load-group"):
            for part in (part for text in options(step, name) for part in text.split("+")):
                (found,) = read_group(part)
                assert set(found.cpus) <= set(machine.online_cpus)
                assert found.memory.shares.keys() <= nodes
        for writer, reader, home, state in map(transfer, options(step, "pair")):
            assert {writer, reader} <= set(step.cpus)
            assert home in set(step.memory_bytes) & set(Sut(machine).memory_nodes)
            assert reader not in machine.siblings(writer)
            assert state in {"hit", "hitm"}
    assert len({step.id for step in plan.steps}) == len(plan.steps)


@pytest.mark.parametrize("profile", profile_names())
def test_plan_keeps_half_of_each_nodes_memory_free(machine: Context, profile: str) -> None:
    for step in make_plan(machine, load_profile(profile)).steps:
        if not (sizes := options(step, "buffer-bytes")):
            continue
        largest = max(int(part) for part in sizes[0].split(","))
        shared = "--share-buffer" in step.argv
        arrays = 1 if shared else max(BUFFERS[mix] for mix in options(step, "mix")[0].split(","))
        wanted: dict[Memory, list[int]] = {}  # the nth thread of any group on a node has its nth buffer
        for group in options(step, "group") or options(step, "load"):
            begun: dict[Memory, int] = {}
            for text in group.split("+"):
                own = text.partition(":")[2]
                (part,) = read_group(text)
                buffers, first = wanted.setdefault(part.memory, []), begun.get(part.memory, 0)
                begun[part.memory] = last = first + len(part.cpus)
                buffers += [0] * (last - len(buffers))
                needed = arrays * int(own or largest)
                buffers[first:last] = [max(buffer, needed) for buffer in buffers[first:last]]
        for node_id in {node for memory in wanted for node in memory.shares}:
            free = machine.node(node_id).free_bytes
            taken = sum(memory.shares.get(node_id, 0) * sum(buffers) for memory, buffers in wanted.items())
            assert free is None or taken <= max(free / 2, 3 * 2**21 * len(machine.online_cpus))


PREFETCHERS = """
title: x
measurements:
  prefetcher_effect: {strides_bytes: [64, 512], orders: [backward]}
  idle_latency: {}
"""


def test_prefetcher_steps_come_last_with_consent() -> None:
    profile = parse_profile(PREFETCHERS, "x", "test")
    plan = make_plan(SMT, profile, prefetchers_ok=True)
    assert [(step.id, step.prefetchers) for step in plan.steps] == [
        ("prefetcher_effect", None),
        ("idle_latency", None),
        ("prefetcher_effect-off", "off"),
    ]
    found, _, off = plan.steps
    assert off.argv == found.argv
    assert options(off, "order") == ["random,backward"]
    assert off.title == f"{found.title}, prefetchers off"
    assert f"  3  {off.title}" in plan_text(plan, verbose=True)
    without = make_plan(SMT, profile)
    assert without.steps == plan.steps[:2]
    (gone,) = (omitted for omitted in without.not_planned if omitted.kind != "counters")
    assert (gone.kind, gone.what) == ("prefetcher_effect", off.title)
    assert "set tune_prefetchers_ok: true to agree" in gone.reason
    assert f"prefetcher_effect: {off.title}: it needs" in plan_text(without, verbose=True)
    assert "1 need consent" in plan_text(without)


def test_memory_only_nodes_are_columns_and_cpu_only_nodes_are_rows() -> None:
    memory_only = captured("x86_64-memory-only-node")
    (column,) = memory_only.memory_only_nodes
    (row,) = CPU_ONLY.cpu_only_nodes
    for step_id, option in (("latency_matrix", "at"), ("bandwidth_matrix", "group")):
        targets = [
            text.partition(":")[0].split("@") for text in options(step_of(memory_only, "quick", step_id), option)
        ]
        assert str(column) in {node for _, node in targets}
        assert not any(set(memory_only.node(column).cpus) & cpus_of(cpus) for cpus, _ in targets)
        targets = [text.partition(":")[0].split("@") for text in options(step_of(CPU_ONLY, "quick", step_id), option)]
        assert str(row) not in {node for _, node in targets}
        assert any(cpus_of(cpus) <= set(CPU_ONLY.node(row).cpus) for cpus, _ in targets)


def short_of_memory(context: Context, node: int, available_bytes: int) -> Context:
    nodes = tuple(
        item.model_copy(update={"available_bytes": available_bytes if item.id == node else 64 << 30})
        for item in context.nodes
    )
    return context.model_copy(update={"nodes": nodes})


def test_small_node_shrinks_only_its_column() -> None:
    step = step_of(short_of_memory(SMT, 1, 128 << 20), "quick", "latency_matrix")
    (largest,) = map(int, options(step, "size-bytes"))
    assert largest >= 64 << 20
    places = [chase_place(text) for text in options(step, "at")]
    assert {(next(iter(nodes)), size) for _, nodes, size in places} == {(0, None), (1, 60 << 20)}
    even = step_of(short_of_memory(SMT, 1, 64 << 30), "quick", "latency_matrix")
    assert {size for _, _, size in map(chase_place, options(even, "at"))} == {None}


def test_interleaved_ladder_covers_all_nodes() -> None:
    four = captured("aarch64-four-nodes")
    for profile in ("nightly", "full"):
        step = step_of(four, profile, "latency_ladder-interleaved")
        ((_, nodes, _),) = map(chase_place, options(step, "at"))
        assert nodes == set(Sut(four).memory_nodes)
        sizes = list(map(int, options(step, "size-bytes")[0].split(",")))
        assert sizes == sorted(set(sizes))
        assert all(size % (len(nodes) << 21) == 0 for size in sizes)
        plan = make_plan(SMT_OFF, load_profile(profile))
        assert "latency_ladder-interleaved" not in {step.id for step in plan.steps}
        assert "only one node has memory" in {omitted.reason for omitted in plan.not_planned}


def test_copies_have_their_own_cores() -> None:
    step = step_of(SMT, "nightly", "latency_ladder-copies-2")
    assert "--together" in step.argv
    places = [chase_place(text) for text in options(step, "at")]
    cpus = [cpu for cpu, _, _ in places]
    assert len(set(cpus)) == len(cpus) == 2
    assert not set(SMT.siblings(cpus[0])) & {cpus[1]}
    assert cpus[0] == Sut(SMT).measuring_cpu(0)
    assert {frozenset(nodes) for _, nodes, _ in places} == {frozenset({0})}
    plan = make_plan(SMT, load_profile("nightly"))
    assert "4 copies at the same time" in {omitted.what for omitted in plan.not_planned}


def test_prefetched_strides_are_one_step() -> None:
    profile = parse_profile(
        "title: x\nmeasurements: {latency_ladder: {prefetched_strides_bytes: [16, 4096], prefetched_orders: "
        "[forward, backward]}}", "mine", "mine.yml",
    )  # fmt: skip
    ladders = [step for step in make_plan(SMT, profile).steps if step.kind == "latency_ladder"]
    assert [step.id for step in ladders] == ["latency_ladder", "latency_ladder-prefetched"]
    assert options(ladders[1], "stride-bytes") == ["16,4096"]
    assert options(ladders[1], "order") == ["forward,backward"]


def test_remote_transfers_have_both_homes() -> None:
    step = step_of(SMT, "quick", "c2c_latency")
    local, remote = [], []
    for writer, reader, home, state in map(transfer, options(step, "pair")):
        nodes = SMT.node_of(writer), SMT.node_of(reader)
        (local if nodes[0] == nodes[1] else remote).append((nodes, home, state))
    assert local == [((0, 0), 0, "hit"), ((0, 0), 0, "hitm")]
    assert remote == [(nodes, home, "hitm") for nodes in ((0, 1), (1, 0)) for home in nodes]


def block(text: str) -> set[tuple[int, int]]:
    cpus, _, _ = text.partition(":")
    writers, _, readers = cpus.partition("@")
    pairs = {(writer, reader) for writer in cpus_of(writers) for reader in cpus_of(readers or writers)}
    return {pair for pair in pairs if len(set(pair)) == 2}


def test_core_matrix_is_full_or_a_balanced_sample() -> None:
    declared = registry()["c2c_matrix"]
    cpus = sorted(SMT.online_cpus)
    _timed, full, _also, other = declared.steps(Sut(SMT), declared.settings())
    assert options(full, "all-pairs") == [format_cpulist(cpus)]
    assert (options(full, "method"), options(other, "method")) == (["transfer"], ["pingpong"])
    few = declared.settings(full_pairs=0, pairs_per_class=1, methods=("transfer",))
    *gone, search, sampled = declared.steps(Sut(SMT), few)
    classes = Neighbourhood(SMT, cpus).counts()
    assert sum(classes.values()) == len(cpus) * (len(cpus) - 1) // 2
    assert set(classes) >= {"smt_siblings", "other_package"}
    pairs = [pair for text in options(sampled, "all-pairs") for pair in block(text)]
    assert len(pairs) == len(set(pairs)) == 2 * len(classes)
    assert {(reader, writer) for writer, reader in pairs} == set(pairs)
    assert len(gone) == sum(pairs > 1 for pairs in classes.values())
    assert all("stands for the class" in item.reason for item in gone)
    assert sampled.expected_duration_s < full.expected_duration_s
    assert options(search, "all-pairs") == options(sampled, "all-pairs")
    assert list(declared.steps(Sut(SMT), few)) == [*gone, search, sampled]


def test_pair_counts_and_balance_of_samples(machine: Context) -> None:
    neighbourhood = Neighbourhood(machine, sorted(machine.online_cpus))
    classes: dict[Class, set[tuple[int, int]]] = {}
    for pair in combinations(sorted(machine.online_cpus), 2):
        classes.setdefault(neighbourhood.class_of(*pair), set()).add(pair)
    assert neighbourhood.counts() == {name: len(pairs) for name, pairs in classes.items()}
    for name, pairs in classes.items():
        places = {frozenset(map(machine.node_of, pair)) for pair in pairs}
        sample = neighbourhood.sample(name, len(places))
        assert {frozenset(map(machine.node_of, pair)) for pair in sample} == places
        assert set(neighbourhood.sample(name, 10000)) == pairs


def test_isolated_cpus_have_rows_in_the_core_matrix() -> None:
    isolated, cpus = sorted(Sut(ISOLATED).isolated), sorted(Sut(ISOLATED).cpus)
    declared = registry()["c2c_matrix"]
    rows = declared.settings(full_pairs=0, pairs_per_class=1, methods=("transfer",))
    *_, step = declared.steps(Sut(ISOLATED), rows)
    found = {pair for text in options(step, "all-pairs") for pair in block(text)}
    assert found >= {(cpu, other) for cpu in isolated for other in cpus if cpu != other}
    *gone, _, step = declared.steps(Sut(ISOLATED), rows.model_copy(update={"row_pairs": len(cpus) - 1}))
    found = {pair for text in options(step, "all-pairs") for pair in block(text)}
    assert found >= {(isolated[0], other) for other in cpus if other != isolated[0]}
    assert any("(row_pairs)" in omitted.reason and format_cpulist(isolated[1:]) in omitted.what for omitted in gone)


def test_local_transfers_prefer_isolated_cpus() -> None:
    writer, reader, *_ = transfer(options(step_of(ISOLATED, "quick", "c2c_latency"), "pair")[0])
    assert writer in ISOLATED.isolated_cpus
    assert reader not in ISOLATED.siblings(writer)
    more = ISOLATED.model_copy(update={"isolation": ISOLATED.isolation.model_copy(update={"isolated": (1, 2, 3)})})
    writer, reader, *_ = transfer(options(step_of(more, "quick", "c2c_latency"), "pair")[0])
    assert (writer, reader) == (1, 2)


def test_the_first_node_with_two_cores_has_the_local_transfers() -> None:
    one_core = SMT.model_copy(update={"cpus": SMT.cpus.model_copy(update={"allowed": (0, 1, 4, 5, 6, 7)})})
    writer, reader, home, _ = transfer(options(step_of(one_core, "quick", "c2c_latency"), "pair")[0])
    assert (SMT.node_of(writer), SMT.node_of(reader), home) == (1, 1, 1)
    assert reader not in SMT.siblings(writer)


@pytest.mark.parametrize(("allowed", "transfers", "reasons"), [
    ((0, 1), 0, ["no node has CPUs of two cores", "no two nodes have CPUs"]),
    ((0, 1, 2, 3), 2, ["no two nodes have CPUs"]),
    ((0, 1, 4, 5), 4, ["no node has CPUs of two cores"]),
    ((0, 1, 2, 3, 4, 5), 6, []),
])  # fmt: skip
def test_impossible_transfers_are_reported(allowed: tuple[int, ...], transfers: int, reasons: list[str]) -> None:
    part = SMT.model_copy(update={"cpus": SMT.cpus.model_copy(update={"allowed": allowed})})
    plan = make_plan(part, load_profile("quick"))
    found = [text for step in plan.steps if step.kind == "c2c_latency" for text in options(step, "pair")]
    assert len(found) == transfers
    reported = [omitted.reason for omitted in plan.not_planned if omitted.kind == "c2c_latency"]
    assert all(reason.startswith(start) for reason, start in zip(reported, reasons, strict=True))


def test_memoryless_node_is_no_home() -> None:
    (empty,) = CPU_ONLY.cpu_only_nodes
    plan = make_plan(CPU_ONLY, load_profile("quick"))
    pairs = [transfer(text) for text in options(step_of(CPU_ONLY, "quick", "c2c_latency"), "pair")]
    assert empty not in {home for _, _, home, _ in pairs}
    assert empty in {CPU_ONLY.node_of(writer) for writer, *_ in pairs}
    reported = {omitted.what: omitted.reason for omitted in plan.not_planned if omitted.kind == "c2c_latency"}
    assert reported == {f"Transfers homed in node {empty}": f"node {empty} has no memory"}


@pytest.mark.parametrize("full_pairs", [0, 992], ids=["sample", "full"])
def test_cpus_of_a_memoryless_node_write_in_the_nearest_memory(full_pairs: int) -> None:
    (empty,) = CPU_ONLY.cpu_only_nodes
    declared = registry()["c2c_matrix"]
    steps = declared.steps(Sut(CPU_ONLY), declared.settings(full_pairs=full_pairs, methods=("transfer",)))
    (step,) = (step for step in steps if isinstance(step, Step) and step.part_of is None)
    homes = set()
    for text in options(step, "all-pairs"):
        cpus, _, home = text.partition(":")
        homes |= {(CPU_ONLY.node_of(cpu), home) for cpu in cpus_of(cpus.partition("@")[0])}
    others = {(node, "") for node in Sut(CPU_ONLY).cpu_nodes if node != empty}
    assert homes == {(empty, str(Sut(CPU_ONLY).home(empty))), *others}


def test_probe_has_its_own_core() -> None:
    step = step_of(SMT, "quick", "loaded_latency")
    probes = {int(text.split("@")[0]) for text in options(step, "probe")}
    load_cpus = {cpu for part in options(step, "load")[0].split("+") for cpu in cpus_of(part.split("@")[0])}
    assert probes
    assert load_cpus
    for probe in probes:
        assert not load_cpus & set(SMT.siblings(probe))
    assert len(probes) == len(Sut(SMT).cpu_nodes)


def test_isolated_cpus_and_a_housekeeping_cpu() -> None:
    assert ISOLATED.isolated_cpus
    nightly = cpus_of(options(step_of(ISOLATED, "nightly", "jitter"), "cpus")[0])
    assert nightly >= set(ISOLATED.isolated_cpus)
    assert len(nightly - set(ISOLATED.isolated_cpus)) == 1
    quick = cpus_of(options(step_of(ISOLATED, "quick", "jitter"), "cpus")[0])
    assert len(quick & set(ISOLATED.isolated_cpus)) == 1


def test_real_time_threads_leave_one_cpu() -> None:
    online = ISOLATED.online_cpus
    isolation = ISOLATED.isolation.model_copy(update={"isolated": tuple(online[1:])})
    only = ISOLATED.model_copy(update={"isolation": isolation})
    text = "title: x\nmeasurements: {jitter: {fifo: 1}}"
    plan = make_plan(only, parse_profile(text, "x", "test"))
    assert cpus_of(options(plan.steps[0], "cpus")[0]) == set(online[1:])
    assert any(f"CPU {online[0]}" in omitted.what and "real-time" in omitted.reason for omitted in plan.not_planned)
    ordinary = make_plan(only, parse_profile(text.replace("fifo: 1", "fifo: 0"), "x", "test"))
    assert cpus_of(options(ordinary.steps[0], "cpus")[0]) == set(online)


def test_tracing_is_a_step_of_its_own_measured_once() -> None:
    text = "title: x\nmeasurements: {jitter: {gap_s: 30, attribute: %s}}"
    plain, (step, traced) = (
        make_plan(ISOLATED, parse_profile(text % word, "x", "test")).steps for word in ("no", "yes")
    )
    assert plain == (step,)
    assert step.expected_duration_s >= 6 * (80_000 * 20_000 * 0.75e-9 + 30)
    assert (traced.part_of, traced.rounds, traced.cpus) == (step.id, 1, step.cpus)
    assert 45 < traced.expected_duration_s < 46
    assert options(traced, "view") == ["gaps"]
    assert "--attribute" in traced.argv
    assert "--attribute" not in step.argv


@pytest.mark.parametrize("traced", [False, True])
def test_gaps_under_a_load_have_the_load_of_wake_ups(traced: bool) -> None:
    text = "title: x\nmeasurements: {jitter: {load: housekeeping, attribute: %s}, wakeup: {}}"
    plan = make_plan(ISOLATED, parse_profile(text % traced, "x", "test"))
    wakeup = next(step for step in plan.steps if step.kind == "wakeup")
    gaps = [step for step in plan.steps if step.kind == "jitter"]
    assert len(gaps) == 1 + traced
    for step in gaps:
        forkers = cpus_of(options(step, "housekeeping-cpus")[0])
        assert not forkers & set(step.cpus)
        assert step.tasks == len(step.cpus) + 2 * len(forkers)
        assert "housekeeping load" in step.title
    quiet = parse_profile("title: x\nmeasurements: {jitter: {load: housekeeping, housekeeping: no}}", "x", "test")
    (step,) = make_plan(ISOLATED, quiet).steps
    assert options(step, "housekeeping-cpus") == options(wakeup, "housekeeping-cpus")


def test_gaps_without_a_cpu_to_load_are_not_planned() -> None:
    text = "title: x\nmeasurements: {jitter: {load: housekeeping}, firmware: {}}"
    plan = make_plan(captured("x86_64-one-cpu-no-numa"), parse_profile(text, "x", "test"))
    assert [step.kind for step in plan.steps] == ["firmware"]
    assert ("Core jitter under the load housekeeping", "no CPU is left to load") in {
        (omitted.what, omitted.reason) for omitted in plan.not_planned
    }


HOUR_S = 3600.0


@pytest.mark.parametrize(("profile", "least_s", "most_s"), [
    ("rt_smoke", 500, 600), ("rt_12h", 11 * HOUR_S, 12 * HOUR_S), ("rt_24h", 24 * HOUR_S, 25 * HOUR_S),
])  # fmt: skip
def test_a_real_time_profile_takes_as_long_as_its_name_says(profile: str, least_s: float, most_s: float) -> None:
    many = made(packages=2, nodes=2, cores=128, threads=2, node_bytes=64 * GIB, llc_bytes=32 * MIB)
    isolation = many.isolation.model_copy(update={"isolated": many.online_cpus[8:]})
    for machine in (ISOLATED, many.model_copy(update={"isolation": isolation})):
        plan = make_plan(machine, load_profile(profile))
        assert {step.kind for step in plan.steps} == {"wakeup", "jitter", "firmware"}
        assert least_s < sum(step.longest_duration_s for step in plan.steps) < most_s
        by_kind = {step.kind: step for step in plan.steps}
        (words,) = {" ".join(options(by_kind[kind], "housekeeping-cpus")) for kind in ("wakeup", "jitter")}
        assert not cpus_of(words) & set(machine.isolated_cpus)
        for step in plan.steps:
            watches = step.kind != "firmware" or profile != "rt_smoke"
            assert not watches or set(step.cpus) == set(machine.isolated_cpus)
            assert step.expected_duration_s / step.rounds < HOUR_S
    if profile == "rt_24h":
        assert float(options(by_kind["wakeup"], "seconds")[0]) * by_kind["wakeup"].rounds >= 12 * HOUR_S
        assert float(options(by_kind["jitter"], "gap-s")[0]) * by_kind["jitter"].rounds >= 12 * HOUR_S


def test_an_ambiguous_prefix_of_real_time_profiles_names_them() -> None:
    with pytest.raises(InputError, match="ambiguous profile 'rt_': rt_smoke, rt_12h, rt_24h"):
        load_profile("rt_")
    assert load_profile("rt_1").name == "rt_12h"


def test_login_outside_isolated_cpus_may_use_them() -> None:
    others = tuple(cpu for cpu in ISOLATED.online_cpus if cpu not in ISOLATED.isolated_cpus)
    outside = ISOLATED.model_copy(update={"cpus": ISOLATED.cpus.model_copy(update={"allowed": others})})
    assert Sut(outside).isolated == set(ISOLATED.isolated_cpus)
    restricted = ISOLATED.model_copy(update={"cpus": ISOLATED.cpus.model_copy(update={"allowed": others[:-1]})})
    assert Sut(restricted).cpus == set(others[:-1])


def test_missing_isolation_is_reported() -> None:
    plan = make_plan(SMT, load_profile("quick"))
    assert any(omitted.kind == "jitter" and "isolcpus" in omitted.reason for omitted in plan.not_planned)


def test_max_bandwidth_tries_one_thread_per_core() -> None:
    assert len(options(step_of(SMT, "quick", "max_bandwidth"), "group")) == 2
    assert len(options(step_of(SMT_OFF, "quick", "max_bandwidth"), "group")) == 1


def test_first_level_is_not_the_last_level() -> None:
    first_levels = tuple(cache for cache in SMT.caches if cache.level == 1)
    assert first_levels
    assert Sut(SMT.model_copy(update={"caches": first_levels})).llc_bytes is None


def test_the_level_below_one_of_unknown_size_is_not_the_last_level() -> None:
    (*smaller, last) = SMT.caches
    assert last.level == 3
    unknown = SMT.model_copy(update={"caches": (*smaller, last.model_copy(update={"size_bytes": None}))})
    assert Sut(unknown).llc_bytes is None
    assert unknown.cache_bytes.keys() == {1, 2}


def test_cpus_without_memory_use_the_nearest_node() -> None:
    empty, full = SMT.nodes[0].model_copy(update={"memory_bytes": 0}), SMT.nodes[1]
    nodes = (empty, *(full.model_copy(update={"id": node, "cpus": ()}) for node in (1, 2, 3)))
    free = SMT.confinement.model_copy(update={"memory_nodes": None})
    for row, home in (((10, 21, 21, 31), 1), ((10, 31, 21, 21), 2), ((10, 31, 21, 12), 3)):
        machine = SMT.model_copy(update={"nodes": nodes, "distances": (row,) * 4, "confinement": free})
        assert Sut(machine).home(0) == home
    assert Sut(machine.model_copy(update={"distances": None})).home(0) == 1, "the first where distances are unknown"


def test_single_cpu_has_no_load(machine: Context) -> None:
    cpu = machine.online_cpus[0]
    alone = machine.model_copy(update={"cpus": machine.cpus.model_copy(update={"allowed": (cpu,)})})
    plan = make_plan(alone, load_profile("quick"))
    assert "loaded_latency" not in {step.kind for step in plan.steps}
    assert any(omitted.kind == "loaded_latency" and "no CPU is left" in omitted.reason for omitted in plan.not_planned)
    assert {cpu} == {cpu for step in plan.steps for cpu in step.cpus}


def test_no_cpu_is_an_error_with_reasons(machine: Context) -> None:
    none = machine.model_copy(update={"cpus": machine.cpus.model_copy(update={"allowed": ()})})
    with pytest.raises(EnvironmentLacksError, match="no CPU found"):
        make_plan(none, load_profile("quick"))


def test_verbose_text_lists_steps_and_omissions(machine: Context) -> None:
    plan = make_plan(machine, load_profile("quick"))
    text = plan_text(plan, verbose=True)
    for step in plan.steps:
        assert step.title in text
        assert " ".join(step.argv) in text
        assert f"{plural(step.tasks, 'task')}, {step.setup_s:.1f} s of set-up\n" in text
    for omitted in plan.not_planned:
        assert omitted.reason in text


def test_text_is_one_screen(machine: Context) -> None:
    plan = make_plan(machine, load_profile("nightly"))
    lines = plan_text(plan).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    for kind in {step.kind for step in plan.steps}:
        (line,) = [line for line in lines if line.startswith(f"  {registry()[kind].title} ")]
        expected_s = sum(step.expected_duration_s for step in plan.steps if step.kind == kind)
        assert f"  {expected_s:.1f} s" in line
    (skipped,) = [line for line in lines if line.startswith("Skipped: ")]
    assert sum(int(number) for number in re.findall(r"\d+", skipped)) == len(plan.not_planned)
    assert re.search(r"\d+ by profile", skipped)


@pytest.mark.parametrize("profile", profile_names())
def test_rounds_suffice_for_a_95_percent_interval(profile: str) -> None:
    enough = next(count for count in range(1, 100) if median_ranks(count)[2] >= COVERAGE_WANTED)
    steps = [step for step in make_plan(SMT, load_profile(profile)).steps if step.part_of is None]
    short = {step.kind for step in steps if step.rounds < enough}
    # a shape is chosen by rank, a sustained load has no pause, and the profile counters compares within its sweeps
    assert short <= {"traffic_shape", "sustained_bandwidth", "counted_volume", "regulation"}


@pytest.mark.parametrize("profile", profile_names())
def test_every_search_comes_before_what_it_is_part_of_and_has_a_choice(machine: Context, profile: str) -> None:
    before: dict[str, Step] = {}
    for step in make_plan(machine, load_profile(profile)).steps:
        if step.choice is not None:
            search = before[step.choice.step]
            assert search.part_of == step.id
            assert chosen(answer(search), step.choice.field)
            assert step.choice.option not in step.argv
        before[step.id] = step


def test_answers_have_the_figures_that_decide_on_further_rounds() -> None:
    full = load_profile("full")
    adding = {
        kind: settings.model_copy(update={"more_rounds": 1})
        for kind, settings in full.measurements.items()
        if "more_rounds" in type(settings).model_fields
    }
    steps = make_plan(
        captured("x86_64-memory-only-node"), full.model_copy(update={"measurements": adding}), prefetchers_ok=True
    ).steps
    assert {step.kind for step in steps} == adding.keys()
    for step in steps:
        if step.part_of is not None:
            assert step.figures is None
            continue
        assert step.figures
        known = figures(answer(step), step.figures)
        assert known
        assert all(known)
    assert {step.figures for step in make_plan(SMT, load_profile("quick")).steps} == {None}


@pytest.mark.parametrize(("text", "message"), [
    ("a: [", "YAML"),
    ("- 1", "mine.yml is not a profile"),
    ("title: x\nmeasurements: {}", "measurements: "),
    ("title: x\nmeasurements: {speed: {}}", "unknown measurement kind"),
    ("title: x\nmeasurements: {jitter: {loop: 1}}", "loop"),
    ("title: x\nmeasurements: {jitter: {gap_s: soon}}", "gap_s"),
    ("title: x\nmeasurements: {idle_latency: {placements: 0}}", "placements"),
    ("title: x\nmeasurements: {idle_latency: {more_rounds: 32}}", "more_rounds"),
    ("title: x\nrounds: 32\nmeasurements: {idle_latency: {}}", "rounds"),
    ("title: x\nmeasurements: {max_bandwidth: {mixes: [readz]}}", "mixes"),
    ("title: x\nmeasurements: {loaded_latency: {delays: [-1]}}", "delays"),
    ("title: 7\nmeasurements: {jitter: {}}", "title"),
    ("title: x\nmeasurements: {jitter: {}}\nextra: 1", "extra: "),
    ("title: x\nmeasurements: {jitter: {}}\nnot_measured: {speed: why}", "unknown measurement kind"),
])  # fmt: skip
def test_rejects_a_faulty_profile(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_profile(text, "mine", "mine.yml")


@pytest.mark.parametrize(("profile", "reported"), [("quick", True), ("sentinel", False)])
def test_missing_counters_are_reported_if_any_kind_would_use_them(profile: str, reported: bool) -> None:
    kinds = {omitted.kind for omitted in make_plan(SMT, load_profile(profile)).not_planned}
    assert ("counters" in kinds) == reported


def test_unknown_profile_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quick, nightly, full, counters"):
        load_profile("slow")
    with pytest.raises(InputError, match=r"cannot read .*/none\.yml: No such file"):
        load_profile(str(tmp_path / "none.yml"))


def test_all_cores_at_once_and_some_alone() -> None:
    sut = Sut(SMT)
    step = step_of(SMT, "nightly", "core_frequency")
    measured = cpus_of(options(step, "cpus")[0])
    assert measured == set(sut.one_per_core(sut.cpus))
    assert cpus_of(options(step, "alone-cpus")[0]) <= measured
    text = "title: t\nmeasurements:\n  core_frequency:\n    alone_cores: 2\n"
    plan = make_plan(SMT, parse_profile(text, "two", "test"))
    alone = cpus_of(options(plan.steps[0], "alone-cpus")[0])
    assert {sut.node_of(cpu) for cpu in alone} == set(sut.cpu_nodes)
    assert len(alone) == 2
    assert any("alone" in omitted.what for omitted in plan.not_planned if omitted.kind == "core_frequency")
    works = options(plan.steps[0], "work")[0].split(",")
    points = len(works) * (2 + 1)
    assert plan.steps[0].expected_duration_s == pytest.approx(6 * (0.03 + points * (0.02 + 0.05 + 9 * 0.005)), abs=0.06)


def test_some_cores_at_once_are_spread_and_grow() -> None:
    sut = Sut(SMT)
    assert not options(step_of(SMT, "nightly", "core_frequency"), "together")
    some = [cpus_of(text) for text in options(step_of(SMT, "full", "core_frequency"), "together")]
    every = set(sut.one_per_core(sut.cpus))
    assert [len(cpus) for cpus in some] == [1 << power for power in range(1, 10) if 1 << power < len(every)]
    for fewer, more in pairwise([*some, every]):
        assert fewer < more
    assert {sut.node_of(cpu) for cpu in some[0]} == set(sut.cpu_nodes)


def test_unsupported_work_is_not_planned() -> None:
    for flags, works in (
        (("fpu",), "scalar"),
        (("avx2",), "scalar"),
        (("avx2", "fma"), "scalar,avx2"),
        (("avx2", "fma", "avx512f"), "scalar,avx2,avx512"),
        ((), "scalar,avx2,avx512"),
    ):
        processor = SMT.processor.model_copy(update={"flags": flags})
        other = SMT.model_copy(update={"processor": processor})
        assert options(step_of(other, "quick", "core_frequency"), "work") == [works]
    reported = make_plan(captured("s390x-four-cpus"), load_profile("quick")).not_planned
    assert any(item.kind == "core_frequency" and "s390x" in item.reason for item in reported)
