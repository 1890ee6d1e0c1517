# SPDX-License-Identifier: Apache-2.0
"""What plans cost on big machines, and what they ask of their memory."""

from itertools import combinations, pairwise

import pytest

from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.bandwidth_scaling import cpus_by_count, parts_of
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.neighbourhood import Neighbourhood
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut
from calibration.measurements.traffic import Run, all_cpus, buffer_bytes, fill_s, shared_buffer_bytes
from calibration.profiles import load_profile
from calibration.run.plan import make_plan, plan_text
from tests.unit.machines import MACHINES, MIB
from tests.unit.test_plan import block, transfer
from tests.unit.test_plan import options as options_of

each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@each_machine
def test_thread_buffers_exceed_caches_and_fill_quickly(machine: Context) -> None:
    sut = Sut(machine)
    parts = all_cpus(sut)
    size = buffer_bytes(sut, parts, ("stream_triad",))
    sharers = sut.fewest_per_llc(sut.cpus)
    assert size * sharers >= LLC_MULTIPLE * (sut.llc_bytes or 0)
    assert size >= LLC_MULTIPLE * sut.l2_bytes
    if sut.llc_is_private:
        assert size * min(len(part.cpus) for part in parts) >= LLC_MULTIPLE * ASSUMED_LLC_BYTES
    assert fill_s([Run(parts, "stream_triad", size)]) < 0.5


def test_single_thread_has_the_whole_last_level_cache() -> None:
    sut = Sut(MACHINES["2x64-smt-8-nodes"])
    assert buffer_bytes(sut, [all_cpus(sut)[0]], ("reads",)) == 4 * 32 * MIB // 16
    alone = all_cpus(sut)[0]._replace(cpus=(0,))
    assert buffer_bytes(sut, [alone], ("reads",)) == 4 * 32 * MIB


@each_machine
def test_few_threads_on_one_cache_do_not_enlarge_the_buffers_of_others(machine: Context) -> None:
    sut = Sut(machine)
    groups = [parts_of(sut, cpus) for cpus in cpus_by_count(sut, "fill")]
    for parts, sizes in zip(groups, shared_buffer_bytes(sut, groups, ("reads",)), strict=True):
        for part, size in zip(parts, sizes, strict=True):
            alone = buffer_bytes(sut, [part], ("reads",))
            assert size <= alone if sut.llc_is_private or len(parts) == 1 else size == alone
            together = len(part.cpus) if sut.llc_is_private else sut.fewest_per_llc(part.cpus)
            assert size * together >= LLC_MULTIPLE * (ASSUMED_LLC_BYTES if sut.llc_is_private else sut.llc_bytes or 0)


PLANS_S = {
    "2x64-smt-8-nodes": {"quick": 120, "nightly": 470, "full": 900},
    "2x126-smt-6-nodes": {"quick": 180, "nightly": 600, "full": 1200},
    "2x32-smt-2-nodes": {"quick": 90, "nightly": 240, "full": 600},
    "1x128-aarch64-4-nodes": {"quick": 90, "nightly": 240, "full": 660},
    "4x28-smt-4-nodes": {"quick": 100, "nightly": 300, "full": 720},
    "2x96-smt-2-nodes-2-memory-only": {"quick": 100, "nightly": 300, "full": 720},
}
"""What a whole plan may take where nothing converges."""


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
@pytest.mark.parametrize("machine", PLANS_S)
def test_plans_end_in_time(machine: str, profile: str) -> None:
    plan = make_plan(MACHINES[machine], load_profile(profile))
    assert plan.longest_duration_s <= PLANS_S[machine][profile], plan_text(plan)


LATENCY = ("idle_latency", "latency_matrix", "latency_ladder")
BUDGETS_S = {
    "2x64-smt-8-nodes": {"quick": 30, "nightly": 110, "full": 220},
    "2x126-smt-6-nodes": {"quick": 45, "nightly": 150, "full": 300},
}
"""What all latency may take of a plan where nothing converges: a quarter of the whole."""


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
@pytest.mark.parametrize("machine", BUDGETS_S)
def test_latencies_take_at_most_a_quarter_of_a_plan(machine: str, profile: str) -> None:
    kinds = load_profile(profile).measurements
    longest = {
        step.id: step.longest_duration_s
        for kind in LATENCY
        for step in declaration(kind).steps(Sut(MACHINES[machine]), kinds[kind])
        if isinstance(step, Step)
    }
    assert sum(longest.values()) <= BUDGETS_S[machine][profile], longest


@each_machine
def test_keep_awake_threads_run_on_idle_cores(machine: Context) -> None:
    sut = Sut(machine)
    (matrix,) = declaration("latency_matrix").steps(Sut(machine), load_profile("quick").measurements["latency_matrix"])
    assert isinstance(matrix, Step)
    words = list(matrix.argv)
    places = [word.split("@") for before, word in pairwise(words) if before == "--keep-awake"]
    assert [int(node) for _, node in places] == sut.memory_nodes
    cores = [frozenset(machine.siblings(int(cpu))) for cpu, _ in places]
    measured = [frozenset(machine.siblings(cpu)) for cpu in matrix.cpus]
    assert len({*cores, *measured}) == len(cores) + len(measured)
    for cpu, node in places:
        assert sut.node_of(int(cpu)) == sut.nearest(int(node), sut.cpu_nodes)


def test_shared_chain_is_longer_than_all_walks() -> None:
    machine = MACHINES["2x64-smt-8-nodes"]
    (matrix,) = declaration("latency_matrix").steps(Sut(machine), load_profile("quick").measurements["latency_matrix"])
    assert isinstance(matrix, Step)
    options = dict(pairwise(matrix.argv))
    walked = 8 * 2 * (20_000 + int(options["--windows"]) * int(options["--hops"])) * 64
    assert int(options["--size-bytes"]) >= walked + 32 * MIB


def test_without_a_spare_core_the_machine_is_measured_idle() -> None:
    machine = MACHINES["2x32-smt-2-nodes"]
    one = machine.model_copy(update={"cpus": machine.cpus.model_copy(update={"online": (0, 64), "allowed": (0, 64)})})
    for kind in ("idle_latency", "latency_matrix"):
        step, gone = declaration(kind).steps(Sut(one), load_profile("quick").measurements[kind])
        assert isinstance(step, Step)
        assert "--keep-awake" not in step.argv
        assert isinstance(gone, NotPlanned)
        assert "sibling" in gone.reason


CORE_TO_CORE_S = {
    "2x64-smt-8-nodes": {"quick": 20, "nightly": 60, "full": 150},
    "2x126-smt-6-nodes": {"quick": 25, "nightly": 80, "full": 200},
}
CORE_FREQUENCY_S = {"quick": 5, "nightly": 10, "full": 15}


def steps_of(kind: str, machine: Context, profile: str) -> tuple[list[Step], list[NotPlanned]]:
    every = list(declaration(kind).steps(Sut(machine), load_profile(profile).measurements[kind]))
    return [item for item in every if isinstance(item, Step)], [item for item in every if isinstance(item, NotPlanned)]


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
@pytest.mark.parametrize("machine", CORE_TO_CORE_S)
def test_core_to_core_share_of_a_plan(machine: str, profile: str) -> None:
    steps = [step for kind in ("c2c_latency", "c2c_matrix") for step in steps_of(kind, MACHINES[machine], profile)[0]]
    expected = {step.id: step.expected_duration_s for step in steps}
    assert len(expected) == 5
    assert sum(expected.values()) <= CORE_TO_CORE_S[machine][profile], expected


@pytest.mark.parametrize("profile", CORE_FREQUENCY_S)
@each_machine
def test_core_frequency_share_of_a_plan(machine: Context, profile: str) -> None:
    (step,), _ = steps_of("core_frequency", machine, profile)
    assert step.expected_duration_s <= CORE_FREQUENCY_S[profile]


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
@each_machine
def test_sample_covers_every_class_and_pair_of_nodes(machine: Context, profile: str) -> None:
    steps, _ = steps_of("c2c_matrix", machine, profile)
    neighbourhood = Neighbourhood(machine, machine.online_cpus)
    for step in steps:
        pairs = {pair for text in options_of(step, "all-pairs") for pair in block(text)}
        assert {neighbourhood.class_of(*pair) for pair in pairs} == set(neighbourhood.counts())
        nodes = {node.id for node in machine.nodes if node.cpus}
        assert {frozenset(map(machine.node_of, pair)) for pair in pairs} >= set(map(frozenset, combinations(nodes, 2)))
    for name in neighbourhood.counts():
        sample = neighbourhood.sample(name, 8)
        assert len({cpu for pair in sample for cpu in pair}) == 2 * len(sample) == 16, "no CPU stands for two pairs"


def test_full_profile_covers_every_pair_of_caches() -> None:
    machine = MACHINES["2x64-smt-8-nodes"]
    domains = machine.topology.last_level_cache_domains
    cache_of = {cpu: number for number, domain in enumerate(domains) for cpu in domain}
    for step in steps_of("c2c_matrix", machine, "full")[0]:
        pairs = {pair for text in options_of(step, "all-pairs") for pair in block(text)}
        found = {frozenset(map(cache_of.__getitem__, pair)) for pair in pairs}
        assert found >= set(map(frozenset, combinations(range(len(domains)), 2)))


@pytest.mark.parametrize(("profile", "left"), [("quick", 16), ("nightly", 0), ("full", 0)])
def test_only_quick_samples_transfers_of_eight_nodes(profile: str, left: int) -> None:
    machine = MACHINES["2x64-smt-8-nodes"]
    (step,), left_out = steps_of("c2c_latency", machine, profile)
    remote = list(map(transfer, options_of(step, "pair")))[2:]
    pairs = {(machine.node_of(writer), machine.node_of(reader)) for writer, reader, _, _ in remote}
    assert len(remote) == 2 * len(pairs)
    assert len(pairs) == 56 - left
    assert {(reader, writer) for writer, reader in pairs} == pairs
    assert {node for pair in pairs for node in pair} == set(range(8))
    assert sum(int(omitted.what.split()[0]) for omitted in left_out) == left
    assert all("stands for the class" in item.reason for item in left_out)
