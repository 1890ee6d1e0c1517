# SPDX-License-Identifier: Apache-2.0
"""A container made here, with one CPU, 256 MiB and no privileges: captured, planned, and measured in it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from calibration.build import BuiltProbe
from calibration.context.confinement import limits
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.finish import finish
from calibration.measurements.plan import Plan
from calibration.profiles import load_profile
from calibration.run.plan import CONFINED, make_plan
from calibration.run.session import import_standalone_run
from calibration.runner.bundle import packed, sources
from tests.confined import TOP, control_groups, run_in
from tests.tools import require, require_root, require_two, sweep

OFTEN = ("idle_latency", "bandwidth_matrix", "peak_injection_bandwidth")
"""Kinds measured each time; all of them are in a sweep."""
MIB = 1 << 20

Enter = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def groups(cpus: list[int]) -> Iterator[tuple[Path, ...]]:
    require_root()
    require_two(cpus)
    wanted = {
        "cpuset.mems": "0",
        "cpuset.cpus": str(cpus[-1]),
        "memory.max": str(256 * MIB),
        "cpu.max": "150000 100000",
        "pids.max": "64",
    }
    with control_groups(wanted) as made:
        yield made


@pytest.fixture(scope="module")
def enter(groups: tuple[Path, ...]) -> Enter:
    """Give a function that runs a command in the container."""
    if len(groups) == 1:
        mounts = [f"mount -t cgroup2 -o ro cgroup2 {TOP}"]
    else:
        mounts = [f"mount -t tmpfs tmpfs {TOP}"]
        for name in (group.parent.name for group in groups):
            mounts.append(f"mkdir {TOP}/{name} && mount -t cgroup -o ro,{name} cgroup {TOP}/{name}")
    unprivileged = f"{require('util-linux', 'setpriv')} --no-new-privs --bounding-set=-all --inh-caps=-all"
    inside = f'{" && ".join(mounts)} && exec {unprivileged} "$0" "$@"'
    unshare = [require("util-linux", "unshare"), "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork"]

    def enter(*command: str) -> "subprocess.CompletedProcess[str]":
        return run_in(groups, *unshare, "--mount-proc", "/bin/sh", "-c", inside, *command)

    return enter


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, built_x86_64: BuiltProbe, built_aarch64: BuiltProbe) -> Path:
    """The runner with sutprobe, in a directory of its own."""
    programs = {
        f"{built.target}/{path.name}": path.read_bytes()
        for built in (built_x86_64, built_aarch64)
        for path in (built.path, built.path.with_name("build.json"))
    }
    path = tmp_path_factory.mktemp("runner") / "runner.pyz"
    path.write_bytes(packed({**sources(), **programs}))
    return path


@pytest.fixture(scope="module")
def context(enter: Enter, runner: Path) -> Context:
    archive = runner.with_name("context.tar.gz")
    done = enter(sys.executable, str(runner), "capture", str(archive))
    assert done.returncode == 0, done.stderr
    return load(archive)


@pytest.fixture(scope="module")
def plan(context: Context) -> Plan:
    return make_plan(context, load_profile("quick"))


def test_the_capture_tells_the_container_from_the_host(context: Context, cpus: list[int]) -> None:
    confinement = context.confinement
    assert confinement.container is not None
    assert "namespaces of its own: cgroup, ipc, pid, uts" in confinement.evidence
    assert limits(context) == (f"CPUs {cpus[-1]}", "256 MiB of memory", "the time of 1.5 CPUs")
    assert confinement.no_new_privileges
    assert context.capture.effective_capabilities == 0
    assert set(cpus) <= set(context.online_cpus)
    total_bytes = context.memory.total_bytes
    assert total_bytes is not None
    assert total_bytes > 256 * MIB


def test_the_plan_says_what_it_leaves_out(plan: Plan, cpus: list[int]) -> None:
    assert {cpu for step in plan.steps for cpu in step.cpus} == {cpus[-1]}
    reasons = {item.what: item.reason for item in plan.not_planned if item.kind == CONFINED}
    assert any(what.startswith("CPU") and "cpuset" in reason for what, reason in reasons.items())


@pytest.mark.parametrize("kinds", [OFTEN, pytest.param(None, marks=sweep)], ids=["often", "all"])
def test_a_run_stays_within_the_limits(
    *,
    enter: Enter,
    groups: tuple[Path, ...],
    plan: Plan,
    runner: Path,
    tmp_path: Path,
    kinds: tuple[str, ...] | None,
    cpus: list[int],
) -> None:
    chosen = plan.with_steps(step for step in plan.steps if kinds is None or step.kind in kinds)
    (tmp_path / "plan.json").write_text(chosen.model_dump_json())
    done = enter("/bin/sh", "-c", f"cd {tmp_path} && exec {sys.executable} {runner} plan.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (left,) = tmp_path.glob("calibration-*")
    document = finish(import_standalone_run(left, tmp_path / "results"), now=datetime.now(UTC))
    assert document.run.status == "complete"
    assert {step.id for step in chosen.steps} == {measured.step for measured in document.measurements}
    assert document.context is not None
    assert limits(document.context.parsed) == (f"CPUs {cpus[-1]}", "256 MiB of memory", "the time of 1.5 CPUs")
    memory = next(group for group in groups if group.parent.name == "memory" or len(groups) == 1)
    events = memory / ("memory.events" if len(groups) == 1 else "memory.oom_control")
    counts = dict(line.split() for line in events.read_text(encoding="ascii").splitlines())
    assert counts["oom_kill"] == "0"


def test_sutprobe_refuses_what_is_beyond_the_limits(
    enter: Enter, public: Path, context: Context, cpus: list[int]
) -> None:
    large = enter(str(public), "latency", "--at", f"{cpus[-1]}@0", "--size-bytes", str(600 * MIB))
    assert large.returncode == 3
    assert "under the memory limit of control group" in large.stderr
    other = min(set(context.online_cpus) - context.usable_cpus)
    outside = enter(str(public), "latency", "--at", f"{other}@0", "--size-bytes", str(4 * MIB))
    assert outside.returncode == 3
    assert "pin_failed" in outside.stderr
