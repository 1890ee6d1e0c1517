# SPDX-License-Identifier: Apache-2.0
"""Cost of large servers: every step of a run, from the capture to the page, with four times the CPUs.

The largest machine has 512 CPUs, 16 nodes (four of them memory-only) and 2000 interrupt lines; the smaller a quarter of
its CPUs, and everything else the same. Work for every pair of CPUs costs sixteen times as much there. The quick tests
use a machine with as many nodes and few CPUs.
"""

import base64
import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.audit.kinds import read_items
from calibration.context import load
from calibration.context.model import Context
from calibration.finish import finish
from calibration.lifecycle import begin
from calibration.plan import make_plan, plan_text
from calibration.preflight.agreement import Known
from calibration.preflight.examination import evaluate
from calibration.preflight.expectations import Expectations
from calibration.preflight.memory import short_of_memory
from calibration.profiles import load_profile
from calibration.report.page import render
from calibration.results.attempts import outstanding
from calibration.results.layout import RUN
from calibration.results.records import StepRecord, append_record
from calibration.results.store import read_run
from calibration.runner import capture, settings
from tests.machines import CORES_PER_LLC, LARGE, Machine, answer
from tests.rounds import all_rounds

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

EXPECTED = Expectations(
    state=read_items({"isolated_cpus": "1-3", "governor": "performance", "deepest_idle_state": "C1"}, "")
)

SPAN = 4
"""The larger machine has so many times the CPUs."""

MAX_GROWTH = 6.0
"""Most that a step may cost of the smaller machine's: linear is at most 4, a fifth of it for pairs of CPUs makes 6."""

COMPARED_S = 0.05
"""Shorter times are not compared: noise is larger, and no machine is large enough for them to matter."""

TRIES = 4
"""The least of so many times counts where the first is over the limit."""

ARGUMENT_BYTES = 128 << 10
"""Longest argument that Linux gives a program (MAX_ARG_STRLEN with pages of 4 KiB)."""


@dataclass
class Made:
    """A machine's tree, its capture, its context and a run with an answer to every step."""

    machine: Machine
    root: Path
    archive: bytes
    context: Context
    run: Path
    opened: Counter[str]

    def short(self) -> Context:
        """Return the context with too little memory available on every node for anything, on either machine."""
        nodes = tuple(node.model_copy(update={"available_bytes": 128 << 20}) for node in self.context.nodes)
        return self.context.model_copy(update={"nodes": nodes})


def captured(machine: Machine, root: Path) -> bytes:
    """Return the capture of the *machine* written below *root*."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _pid: set(range(machine.cpus)))
        patch.setattr(os, "getpid", lambda: 1 << 22)  # no process of the made machine, which has the first few thousand
        found = capture.capture(str(root), sleep=lambda _seconds: None)
    return base64.b64decode(found["archive"])


def made(machine: Machine, directory: Path, profile: str = "nightly") -> Made:
    root = machine.write(directory / "root")
    opened: Counter[str] = Counter()
    really_open = os.open

    def counted(path: Any, *arguments: Any, **keywords: Any) -> int:
        opened[str(path).removeprefix(str(root))] += 1
        return really_open(path, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", counted)
        archive = captured(machine, root)
    names = {"testbed": "t", "sut": "s", "run_id": "r", "profile": profile}
    run = begin(directory, **names, capture=archive, now=NOW, prefetchers_ok=True)
    for step, number, found in all_rounds(run.plan.steps, answer):
        append_record(
            run.directory,
            StepRecord(
                step=step,
                round=number,
                outcome="ok",
                reason=None,
                rc=0,
                started_at=NOW,
                duration_s=1.0,
                stderr="",
                document=found,
            ),
        )
    document = finish(run.directory, now=NOW)
    assert document.context is not None
    return Made(machine, root, archive, document.context.parsed, run.directory, opened)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(LARGE, tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(replace(LARGE, cpus=LARGE.cpus // SPAN), tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def few_cpus(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(replace(LARGE, cpus=32, lines=100, daemons=40), tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module", params=["few_cpus", pytest.param("large", marks=pytest.mark.thorough)])
def either(request: pytest.FixtureRequest) -> Made:
    found: Made = request.getfixturevalue(request.param)
    return found


def all_plans(on: Made) -> None:
    for name in ("quick", "nightly", "full"):
        plan_text(make_plan(on.context, load_profile(name)))


def restored(on: Made) -> None:
    """Plan changes of every CPU's frequency policy, and put back what cannot be: the CPUs are offline."""
    machine = settings.Machine(str(on.root))
    entries = settings.plan_governor(machine, "powersave")
    entries += [
        settings.Entry("prefetchers", f"/dev/cpu/{cpu}/msr:0x1a4", "0x0", "0xf") for cpu in settings.processors(machine)
    ]
    changes, faults = settings.restore_all(machine, [settings.Entry.of_line(entry.line()) for entry in entries], "run")
    assert len(faults) == on.machine.cpus
    settings.group_changes(changes)


STEPS: dict[str, Callable[[Made], object]] = {
    "capture": lambda on: capture.capture(str(on.root), sleep=lambda _seconds: None),
    "settings restored": restored,
    "context": lambda on: load(on.run, on.archive),
    "plans": all_plans,
    "preflight": lambda on: evaluate(on.context, Known(), EXPECTED),
    "too little memory": lambda on: short_of_memory(on.short(), load_profile("quick"), make_plan),
    "what is left": lambda on: outstanding(on.run),
    "run document": lambda on: finish(on.run, now=NOW),
    "run document read": lambda on: read_run(on.run),
    "page": lambda on: render((on.run / RUN).read_bytes()),
}


def cost_s(step: Callable[[Made], object], on: Made) -> float:
    """Return the CPU time of *step*, without the garbage collector's, which grows with what earlier tests left."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        step(on)
        return time.process_time() - began
    finally:
        gc.enable()


@pytest.mark.thorough
@pytest.mark.parametrize("name", STEPS)
def test_cost_grows_linearly_with_cpus(name: str, small: Made, large: Made) -> None:
    found = []
    for _ in range(TRIES):
        found.append((cost_s(STEPS[name], small), cost_s(STEPS[name], large)))
        one, four = (min(item) for item in zip(*found, strict=True))
        if four < COMPARED_S or four <= MAX_GROWTH * one:
            return
    pytest.fail(f"{four:.2f} s on {large.machine.cpus} CPUs, {one:.2f} s on {small.machine.cpus}")


def test_capture_opens_every_file_once(either: Made) -> None:
    often = {path: count for path, count in either.opened.items() if count > 1}
    assert {path for path in often if not path.startswith("/proc/")} == set()
    assert often.pop("/proc/stat") == 3
    assert set(often.values()) <= {2}
    assert all(path.endswith("/stat") for path in often)


def test_a_capture_is_small_and_complete(either: Made) -> None:
    machine = either.machine
    assert len(either.archive) < 1 << 20
    assert either.context.unreadable == ()
    assert len(either.context.online_cpus) == machine.cpus
    assert [len(node.cpus) > 0 for node in either.context.nodes] == [True] * 12 + [False] * 4
    assert either.context.topology.packages == 2
    assert {len(core.cpus) for core in either.context.topology.cores} == {2}
    assert len(either.context.topology.last_level_cache_domains) == machine.cores // CORES_PER_LLC
    assert either.context.isolation.threads is not None


@pytest.mark.parametrize("profile", ["quick", "nightly", "full"])
def test_plan_of_all_pairs_fits_on_a_command_line(either: Made, profile: str) -> None:
    settings = load_profile(profile)
    matrix = settings.measurements["c2c_matrix"].model_copy(update={"full_pairs": machine_pairs(either)})
    everything = settings.model_copy(update={"measurements": {**settings.measurements, "c2c_matrix": matrix}})
    for step in make_plan(either.context, everything).steps:
        assert max(map(len, step.argv)) < ARGUMENT_BYTES // 4
        assert sum(len(word) + 1 for word in step.argv) < ARGUMENT_BYTES


def machine_pairs(on: Made) -> int:
    return on.machine.cpus * (on.machine.cpus - 1)


def test_run_has_a_complete_document(either: Made) -> None:
    document = read_run(either.run)
    assert document.run.status == "complete", document.not_measured
    shapes = {}
    for measurement in document.measurements:
        if measurement.kind in ("latency_matrix", "bandwidth_matrix"):
            values = json.loads(measurement.values.model_dump_json())
            shapes[measurement.kind] = len(values["cpu_nodes"]), len(values["memory_nodes"])
    assert shapes == {"latency_matrix": (12, 16), "bandwidth_matrix": (12, 16)}
    assert sum(measurement.kind == "jitter" for measurement in document.measurements) == 1 + len(
        either.context.isolated_cpus
    )
