# SPDX-License-Identifier: Apache-2.0
"""Plans of a confined SUT take no more than it may have, and name what they leave out and why."""

from typing import Any

import pytest

from calibration.context.model import Context, CpuQuota, MemoryLimit, TaskLimit
from calibration.measurements.plan import Plan
from calibration.measurements.sut import Sut, machine_flags
from calibration.preflight.agreement import Known
from calibration.preflight.checks import Check
from calibration.preflight.examination import evaluate
from calibration.preflight.expectations import read_expectations
from calibration.preflight.memory import short_of_memory
from calibration.profiles import load_profile, profile_names
from calibration.run.plan import CONFINED, make_plan
from tests.captures import captured

SMT = captured("x86_64-two-nodes-smt")
CONTAINER = captured("x86_64-container")
SLICE = captured("x86_64-container-v1")

MIB = 1 << 20
ROOMY = SMT.model_copy(
    update={
        "nodes": tuple(node.model_copy(update={"available_bytes": 64 << 30}) for node in SMT.nodes),
        "memory": SMT.memory.model_copy(update={"available_bytes": 128 << 30}),
    }
)


SMALLER = (
    "Peak injection bandwidth, Maximum bandwidth, Bandwidth by number of threads, Random bandwidth, Bandwidth ladder"
)


def confined(context: Context, **limits: Any) -> Context:
    return context.model_copy(update={"confinement": context.confinement.model_copy(update=limits)})


def memory(left_mib: int, used_mib: int = 16) -> dict[str, tuple[MemoryLimit, ...]]:
    limit = MemoryLimit(group="/sys/fs/cgroup/ct", limit_bytes=(left_mib + used_mib) * MIB, used_bytes=used_mib * MIB)
    return {"memory_limits": (limit,)}


def quota(cpus: float) -> dict[str, tuple[CpuQuota, ...]]:
    return {"cpu_quotas": (CpuQuota(group="/sys/fs/cgroup/ct", cpus=cpus, period_us=100000),)}


def left_out(plan: Plan) -> dict[str, str]:
    return {item.what: item.reason for item in plan.not_planned if item.kind == CONFINED}


@pytest.mark.parametrize("profile", profile_names())
@pytest.mark.parametrize("context", [CONTAINER, SLICE], ids=["container", "slice"])
def test_a_plan_stays_within_its_limits(context: Context, profile: str) -> None:
    plan = make_plan(context, load_profile(profile))
    assert context.confinement.cpu_quota is not None
    for step in plan.steps:
        assert set(step.cpus) <= context.usable_cpus, step.title
        assert set(step.memory_bytes) <= set(context.usable_nodes), step.title
        assert len(step.cpus) <= max(1, context.confinement.cpu_quota.cpus), step.title


def test_a_plan_names_what_the_container_may_not_use() -> None:
    assert left_out(make_plan(CONTAINER, load_profile("quick"))).keys() == {
        "CPUs 0,6-7",
        "CPUs 1-2,5",
        "Memory of nodes 1",
        f"Buffers of the full size: {SMALLER}",
    }
    assert left_out(make_plan(ROOMY, load_profile("quick"))) == {}


def test_what_is_outside_the_affinity_alone_is_told_apart() -> None:
    cpus = SMT.cpus.model_copy(update={"allowed": (0, 1), "cpuset": (0, 1, 2, 3)})
    found = left_out(make_plan(SMT.model_copy(update={"cpus": cpus}), load_profile("quick")))
    assert found["CPUs 4-7"].startswith("not in the login's cpuset")
    assert found["CPUs 2-3"] == "not in the login's CPU affinity"


@pytest.mark.parametrize(
    ("cpus", "chosen"),
    [(8, {0, 1, 2, 3, 4, 5, 6, 7}), (7.9, {1, 2, 3, 4, 5, 6, 7}), (3, {1, 2, 4}), (1.5, {2}), (0.2, {2})],
)
def test_a_quota_leaves_the_cpus_that_it_keeps_running(cpus: float, chosen: set[int]) -> None:
    assert Sut(confined(ROOMY, **quota(cpus))).cpus == chosen


def test_memory_is_divided_under_a_limit_and_no_more_than_its_half_is_taken() -> None:
    usable = [Sut(confined(ROOMY, **memory(512))).usable_bytes(node) for node in (0, 1)]
    assert usable == [128 * MIB, 128 * MIB]
    assert Sut(confined(ROOMY, **memory(0))).usable_bytes(0) == 0
    node0 = ROOMY.nodes[0].model_copy(update={"available_bytes": 100 * MIB})
    lopsided = confined(ROOMY.model_copy(update={"nodes": (node0, ROOMY.nodes[1])}), **memory(512))
    assert [Sut(lopsided).usable_bytes(node) for node in (0, 1)] == [36 * MIB, 206 * MIB]


def test_less_memory_of_the_machine_than_of_its_nodes_counts() -> None:
    memory_left = ROOMY.memory.model_copy(update={"available_bytes": 256 * MIB})
    assert Sut(ROOMY.model_copy(update={"memory": memory_left})).usable_bytes(1) == 64 * MIB


def test_preflight_asks_for_the_memory_that_the_limit_keeps_back() -> None:
    profile = load_profile("quick")
    little = confined(ROOMY, **memory(100))
    plan = make_plan(little, profile)
    short = short_of_memory(little, plan.full_memory_bytes)
    assert set(short) == {None}
    enough = -(-short[None] // MIB)
    assert short_of_memory(confined(ROOMY, **memory(enough)), plan.full_memory_bytes) == {}
    assert short_of_memory(confined(ROOMY, **memory(enough - 1)), plan.full_memory_bytes) != {}
    (check,) = (
        check for check in evaluate(little, Known(), read_expectations({}), plan=plan) if check.name == "free_memory"
    )
    assert (check.outcome, check.severity) == ("not_met", "flag")
    assert check.expected.endswith("MiB on all nodes together")
    assert check.found.endswith("100 MiB left by the memory limit of control group /sys/fs/cgroup/ct (116 MiB)")
    machine = little.memory.model_copy(update={"available_bytes": 90 * MIB})
    less = little.model_copy(update={"memory": machine})
    (check,) = (
        check for check in evaluate(less, Known(), read_expectations({}), plan=plan) if check.name == "free_memory"
    )
    assert check.found.endswith("90 MiB on all nodes together")


def test_preflight_asks_for_the_tasks_that_the_limit_keeps_back() -> None:
    plan = make_plan(ROOMY, load_profile("nightly"))
    needed = max(step.tasks for step in plan.steps) + 2
    assert needed >= len(ROOMY.usable_cpus)

    def checks(*left: int) -> list[Check]:
        limits = tuple(TaskLimit(group=f"/sys/fs/cgroup/{room}", limit=room + 50, used=50) for room in left)
        context = confined(ROOMY, task_limits=limits)
        found = evaluate(context, Known(), read_expectations({}), plan=plan)
        return [check for check in found if check.name == "tasks"]

    (met,) = checks(needed, needed + 1)
    (missed,) = checks(needed + 1, needed - 1)
    assert (met.outcome, missed.outcome, missed.severity) == ("met", "not_met", "flag")
    assert missed.expected == f"at least {needed} more"
    assert missed.found == f"{needed - 1} of the {needed + 49} of control group /sys/fs/cgroup/{needed - 1}"
    assert checks() == []


def test_limits_are_flags_of_the_run() -> None:
    flags = {flag.code: flag.reason for flag in machine_flags(CONTAINER)}
    assert "3 of 8 CPUs online (0,6-7)" in flags["CPUS_HIDDEN"]
    assert "CPU 1 shares a core with them" in flags["CPUS_HIDDEN"]
    assert "CPUs 1-5 share a last-level cache with them" in flags["CPUS_HIDDEN"]
    assert "memory of nodes 1" in flags["NODES_HIDDEN"]
    assert flags["CPU_QUOTA"] == "control group /sys/fs/cgroup may use the time of 2.5 CPUs: only CPUs 3-4 measured"
    assert not {"CPUS_HIDDEN", "NODES_HIDDEN", "CPU_QUOTA"} & {flag.code for flag in machine_flags(SMT)}
