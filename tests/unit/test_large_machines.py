# SPDX-License-Identifier: Apache-2.0
"""A run of a large server, from the capture to the page: 16 nodes, four of them memory-only.

The quick tests use a machine with few CPUs, the thorough ones one of 512 CPUs and 2000 interrupt lines. That work grows
linearly with CPUs is in ``test_all_kinds.py``.
"""

import base64
import os
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.context.model import Context
from calibration.finish import finish
from calibration.profiles import load_profile
from calibration.results.store import read_run
from calibration.run.lifecycle import begin
from calibration.run.plan import make_plan
from calibration.run.records import StepRecord, append_record
from calibration.runner import capture
from tests.machines import CORES_PER_LLC, LARGE, Machine, answer
from tests.rounds import all_rounds

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

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
                step=step, round=number, outcome="ok", reason=None, rc=0, started_at=NOW, duration_s=1.0, stderr="",
                document=found,
            ),
        )  # fmt: skip
    document = finish(run.directory, now=NOW)
    assert document.context is not None
    return Made(machine, root, archive, document.context.parsed, run.directory, opened)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(LARGE, tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def few_cpus(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(replace(LARGE, cpus=32, lines=100, daemons=40), tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module", params=["few_cpus", pytest.param("large", marks=pytest.mark.thorough)])
def either(request: pytest.FixtureRequest) -> Made:
    found: Made = request.getfixturevalue(request.param)
    return found


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
    pairs = either.machine.cpus * (either.machine.cpus - 1)
    matrix = settings.measurements["c2c_matrix"].model_copy(update={"full_pairs": pairs})
    everything = settings.model_copy(update={"measurements": {**settings.measurements, "c2c_matrix": matrix}})
    for step in make_plan(either.context, everything).steps:
        assert max(map(len, step.argv)) < ARGUMENT_BYTES // 4
        assert sum(len(word) + 1 for word in step.argv) < ARGUMENT_BYTES


def test_run_has_a_complete_document(either: Made) -> None:
    document = read_run(either.run)
    assert document.run.status == "complete", document.not_measured
    shapes = {}
    for measurement in document.measurements:
        if measurement.kind in ("latency_matrix", "bandwidth_matrix"):
            table = measurement.values.table
            shapes[measurement.kind] = tuple(len(table.labels(axis)) for axis in table.axes)
    assert shapes == {"latency_matrix": (12, 16), "bandwidth_matrix": (12, 16)}
    assert sum(measurement.kind == "jitter" for measurement in document.measurements) == 1 + len(
        either.context.isolated_cpus
    )
