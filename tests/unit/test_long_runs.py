# SPDX-License-Identifier: Apache-2.0
"""A day of wake-ups, gaps and firmware, simulated: what is said meanwhile, and what is kept of it."""

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.finish import finish
from calibration.measurements.base import Step
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.report.show import print_run
from calibration.results.documents import MAX_DOCUMENT_BYTES
from calibration.results.store import read_run, stored_run
from calibration.run.answers import RecordReader, read_record
from calibration.run.attempts import record_probe, start_of
from calibration.run.lifecycle import begin
from calibration.run.records import MAX_RECORDS_BYTES
from calibration.run.worst import Worst
from calibration.runner.directory import STEP_BYTES
from calibration.runner.rounds import Rounds
from tests.machines import Machine, answer
from tests.report.report_documents import PROBE
from tests.unit.test_large_machines import captured

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SESSION = "calibration-r-s-0123abcd"
ISOLATED_OF_LARGEST = 504
ROUNDS = 24


@dataclass
class Day:
    """A run of a day: its directory, the CPUs that it measured, and what was said while it was collected."""

    directory: Path
    measured: tuple[int, ...]
    said: list[str]
    longest_bytes: int


def answers_of_a_day(plan: Any, source_sha256: str) -> Iterator[str]:
    """Yield the runner's records: the worst wake-up and gap come in round 3, a gap of firmware never."""
    made: dict[str, dict[str, Any]] = {}
    steps = {step.id: step for step in plan.steps}
    for number, _, raw in Rounds(json.loads(plan.model_dump_json())):
        step = steps[raw["id"]]
        document = made.setdefault(step.id, _answer(step, source_sha256))
        if number == 3:
            document = copy.deepcopy(document)
            _disturb(step, document["result"])
        yield json.dumps({
            "record": "step", "id": step.id, "round": number, "began_s": 90.0, "duration_s": 1800.0, "rc": 0,
            "stdout": json.dumps(document), "stderr": "", "fault": None, "at_s": 92.0,
        })  # fmt: skip
    yield json.dumps({"record": "done", "at_s": 99.0})


def _answer(step: Step, source_sha256: str) -> dict[str, Any]:
    document = answer(step)
    document["build"]["source_sha256"] = source_sha256
    result = document["result"]
    if step.kind == "wakeup":
        result["idle_latency_us"] = 0
    elif step.kind == "jitter":
        result["forks_per_s"] = 3000.0
    else:
        for cpu in result["cpus"]:
            cpu["gaps"] |= {"count": 0, "longest": []}
    return document


def _disturb(step: Step, result: dict[str, Any]) -> None:
    if step.kind == "wakeup":
        cpu = result["conditions"][0]["cpus"][-1]
        cpu["late_ns"]["starts"], cpu["late_ns"]["longest"] = (*cpu["late_ns"]["starts"][:-1], 77_824), 78_000
    elif step.kind == "jitter":
        result["cpus"][-1]["gaps"]["max_ns"] = 5e6


def day_of(machine: Machine, directory: Path) -> Day:
    archive = captured(machine, machine.write(directory / "root"))
    names = {"testbed": "t", "sut": "s", "run_id": "r", "profile": "rt_24h"}
    run = begin(directory, **names, capture=archive, now=NOW, session=SESSION)
    record_probe(run.directory, PROBE)
    said: list[str] = []
    reader = RecordReader(run.directory, SESSION, lambda text, _outcome: said.append(text))
    lines = list(answers_of_a_day(run.plan, PROBE.source_sha256))
    for line in lines:
        reader.take(read_record(line), NOW, 100.0)
    reader.end()
    assert reader.finished
    finish(run.directory, now=NOW)
    return Day(run.directory, run.plan.steps[0].cpus, said, max(map(len, lines)))


@pytest.fixture(scope="module", params=[16, pytest.param(512, marks=pytest.mark.thorough)])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Day:
    machine = Machine(cpus=request.param, cpu_nodes=4, memory_only_nodes=0, lines=100, daemons=40)
    return day_of(machine, tmp_path_factory.mktemp("day"))


def test_each_round_says_the_worst_so_far_as_soon_as_it_is_over(day: Day) -> None:
    assert len(day.said) == ROUNDS
    assert day.said[1].startswith("round 2 of 24: 3 of 3 steps measured; worst so far: ")
    assert "firmware none" in day.said[0]
    assert "wake-up 32.5 µs on CPU " in day.said[1]
    assert "5.00 ms" not in day.said[1]
    last = day.measured[-1]
    for text in day.said[2:]:
        assert f"wake-up 78.0 µs on CPU {last}" in text
        assert f"gap 5.00 ms on CPU {last}" in text


def test_a_run_that_is_collected_later_knows_what_was_worst_before(day: Day) -> None:
    said: list[str] = []
    reader = RecordReader(day.directory, SESSION, lambda text, _outcome: said.append(text))
    assert f"wake-up 78.0 µs on CPU {day.measured[-1]}" in str(reader.worst)
    assert reader.skip == 3 * ROUNDS


def test_a_day_of_the_largest_machine_stays_within_all_limits(day: Day) -> None:
    share = ISOLATED_OF_LARGEST / len(day.measured)
    assert day.longest_bytes * share < STEP_BYTES
    assert (day.directory / "records.jsonl").stat().st_size * share < MAX_RECORDS_BYTES
    assert (day.directory / "run.json").stat().st_size * share < MAX_DOCUMENT_BYTES


def test_a_day_is_one_observation(day: Day) -> None:
    document = read_run(day.directory)
    assert document.run.status == "complete", document.not_measured
    found = {metric.name: metric for item in document.measurements for metric in item.metrics()}
    assert found["wakeup.shallow_housekeeping.max_ns"].value == 78_000
    assert found["jitter.housekeeping.isolated.gaps.max_ns"].value == 5e6
    assert found["firmware.max_gap_ns"].value == 10_000
    (wakeups,) = (item.values for item in document.measurements if item.kind == "wakeup")
    assert wakeups.wakes == len(day.measured) * ROUNDS * 9_000_000
    assert wakeups.late_ns.total == wakeups.wakes


def test_a_day_is_a_page_and_a_screen(day: Day) -> None:
    screen = io.StringIO()
    print_run(read_run(day.directory), day.directory, screen)
    assert "Worst wake-up latency, housekeeping load" in screen.getvalue()
    text = " ".join(to_rst(render(stored_run(day.directory)).blocks).split())
    assert "Under a housekeeping load, which started 3000 processes per second." in text
    assert "housekeeping, deep idle states disabled" in text


def test_what_a_thread_saw_elsewhere_and_what_is_in_no_form_is_not_said(day: Day) -> None:
    wakeup, gaps, _ = sorted(start_of(day.directory).plan.steps, key=lambda step: step.kind != "wakeup")
    worst = Worst()
    seen = {"cpu": 1, "cpu_verified": True, "gaps": {"max_ns": 2e3}}
    elsewhere = {"cpu": 2, "cpu_verified": False, "gaps": {"max_ns": 9e9}}
    for result in (
        {"cpus": [seen, elsewhere]},
        {"cpus": "none"},
        {"cpus": [{"cpu": "1", "gaps": {"max_ns": 1}}]},
        None,
    ):
        worst.take(gaps.model_copy(update={"kind": "jitter"}), {"result": result})
    worst.take(
        gaps.model_copy(update={"kind": "jitter", "part_of": "jitter"}), {"result": {"cpus": [{**seen, "cpu": 3}]}}
    )
    worst.take(wakeup.model_copy(update={"kind": "idle_latency"}), {"result": {}})
    assert str(worst) == "gap 2.00 µs on CPU 1"


def test_what_was_not_looked_for_is_not_said_to_be_none(day: Day) -> None:
    firmware = next(step for step in start_of(day.directory).plan.steps if step.kind == "firmware")
    worst = Worst()
    worst.take(firmware, {"result": {"cpus": []}})
    for gaps, words in (
        (None, ""),
        ({"longest": []}, "firmware none"),
        ({"longest": [{"length_ns": 2e4}]}, "firmware 20.0 µs on CPU 1"),
        ({"longest": []}, "firmware 20.0 µs on CPU 1"),
    ):
        worst.take(firmware, {"result": {"cpus": [{"cpu": 1, "gaps": gaps}]}})
        assert str(worst) == words
