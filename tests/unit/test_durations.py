# SPDX-License-Identifier: Apache-2.0
"""What plans cost on big machines, and what they ask of their memory."""

from itertools import pairwise

import pytest

from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut
from calibration.measurements.traffic import Run, all_cpus, buffer_bytes, fill_s
from calibration.plan import make_plan, plan_text
from calibration.profiles import load_profile
from tests.unit.machines import MACHINES, MIB

each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@each_machine
def test_threads_hold_a_multiple_of_every_cache_and_fill_it_in_a_fraction_of_a_second(machine: Context) -> None:
    sut = Sut(machine)
    parts = all_cpus(sut)
    size = buffer_bytes(sut, parts, ("stream_triad",))
    sharers = sut.fewest_per_llc(sut.cpus)
    assert size * sharers >= LLC_MULTIPLE * (sut.llc_bytes or 0)
    assert size >= LLC_MULTIPLE * sut.l2_bytes
    if sut.llc_is_private:
        assert size * min(len(part.cpus) for part in parts) >= LLC_MULTIPLE * ASSUMED_LLC_BYTES
    assert fill_s([Run(parts, "stream_triad", size)]) < 0.5


def test_a_thread_alone_has_a_last_level_cache_to_itself() -> None:
    sut = Sut(MACHINES["2x64-smt-8-nodes"])
    assert buffer_bytes(sut, [all_cpus(sut)[0]], ("reads",)) == 4 * 32 * MIB // 16
    alone = all_cpus(sut)[0]._replace(cpus=(0,))
    assert buffer_bytes(sut, [alone], ("reads",)) == 4 * 32 * MIB


PLANS_S = {
    "2x64-smt-8-nodes": {"quick": 120, "nightly": 420, "full": 900},
    "2x126-smt-6-nodes": {"quick": 180, "nightly": 600, "full": 1200},
    "2x32-smt-2-nodes": {"quick": 90, "nightly": 240, "full": 420},
    "1x128-aarch64-4-nodes": {"quick": 90, "nightly": 240, "full": 420},
    "4x28-smt-4-nodes": {"quick": 100, "nightly": 300, "full": 480},
    "2x96-smt-2-nodes-2-memory-only": {"quick": 100, "nightly": 300, "full": 480},
}
"""What a whole plan may take where nothing converges."""


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
@pytest.mark.parametrize("machine", PLANS_S)
def test_a_plan_ends_in_time(machine: str, profile: str) -> None:
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
def test_latencies_take_a_quarter_of_a_plan(machine: str, profile: str) -> None:
    kinds = load_profile(profile).measurements
    longest = {
        step.id: step.longest_duration_s
        for kind in LATENCY
        for step in declaration(kind).steps(MACHINES[machine], kinds[kind])
        if isinstance(step, Step)
    }
    assert sum(longest.values()) <= BUDGETS_S[machine][profile], longest


@each_machine
def test_a_companion_is_on_a_core_that_measures_nothing(machine: Context) -> None:
    sut = Sut(machine)
    (matrix,) = declaration("latency_matrix").steps(machine, load_profile("quick").measurements["latency_matrix"])
    assert isinstance(matrix, Step)
    words = list(matrix.argv)
    places = [word.split("@") for before, word in pairwise(words) if before == "--companion"]
    assert [int(node) for _, node in places] == sut.memory_nodes
    cores = [frozenset(machine.siblings(int(cpu))) for cpu, _ in places]
    measured = [frozenset(machine.siblings(cpu)) for cpu in matrix.cpus]
    assert len({*cores, *measured}) == len(cores) + len(measured)
    for cpu, node in places:
        assert sut.node_of(int(cpu)) == sut.nearest(int(node), sut.cpu_nodes)


def test_a_chain_that_several_walk_is_longer_than_their_walks() -> None:
    machine = MACHINES["2x64-smt-8-nodes"]
    (matrix,) = declaration("latency_matrix").steps(machine, load_profile("quick").measurements["latency_matrix"])
    assert isinstance(matrix, Step)
    options = dict(pairwise(matrix.argv))
    walked = 8 * 2 * (20_000 + int(options["--windows"]) * int(options["--hops"])) * 64
    assert int(options["--size-bytes"]) >= walked + 32 * MIB


def test_a_machine_without_a_spare_core_is_measured_asleep() -> None:
    machine = MACHINES["2x32-smt-2-nodes"]
    one = machine.model_copy(update={"cpus": machine.cpus.model_copy(update={"online": (0, 64), "allowed": (0, 64)})})
    for kind in ("idle_latency", "latency_matrix"):
        step, gone = declaration(kind).steps(one, load_profile("quick").measurements[kind])
        assert isinstance(step, Step)
        assert "--companion" not in step.argv
        assert isinstance(gone, NotPlanned)
        assert "sibling" in gone.reason
