# SPDX-License-Identifier: Apache-2.0
"""A burn-in: what was wrong fails the run, whatever happens to its round, and everything takes part."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.finish import finish
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.burn_in import BurnInSettings, BurnInValues
from calibration.measurements.sut import KEPT_FREE_BYTES, Sut
from calibration.measurements.traffic import read_group, read_sizes
from calibration.profiles import load_profile
from calibration.report.summary import outcome
from calibration.results.documents import MAX_DOCUMENT_BYTES
from calibration.results.health import Health
from calibration.results.model import RunDocument
from calibration.results.run_checks import check_errors
from calibration.run.answers import judge_answer
from calibration.run.lifecycle import BegunRun, begin
from calibration.run.plan import make_plan
from calibration.run.records import MAX_RECORDS_BYTES, HealthRecord, Outcome, StepRecord, append_record
from calibration.sutprobe.burn import LISTED, BurnResult
from calibration.sutprobe.document import ProbeDocument, read_document
from tests.machines import answer
from tests.recorded import read
from tests.unit.machines import CAPTURED, GIB, MIB, machine
from tests.unit.test_health import health

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KIND = declaration("burn_in")
LARGEST = machine(
    packages=2, nodes=12, cores=21, threads=2, node_bytes=48 * GIB, llc_bytes=32 * MIB, llc_cores=7,
    memory_only_bytes=(64 * GIB,) * 4,
)  # fmt: skip
WRONG = {"code": "DATA_WRONG", "message": "3 words of memory and 0 results of arithmetic were wrong"}


def found_wrong(document: dict[str, Any], words: int = 3, at_unix_ns: int = 5) -> dict[str, Any]:
    """Return *document* with so many words that differ."""
    document = copy.deepcopy(document)
    cpu = document["result"]["cpus"][-1]
    cpu |= {"wrong_words": words, "wrong_bits": words + 1}
    document["result"]["nodes"][0]["wrong_words"] = words
    document["result"]["mismatches"] = [
        {
            "at_unix_ns": at_unix_ns + number, "cpu": cpu["cpu"], "node": 0, "offset_bytes": 4096 + 8 * number,
            "physical_address": None, "in_pass": 7, "expected": f"0x{1:016x}", "found": f"0x{3:016x}",
            "found_again": f"0x{3:016x}",
        }
        for number in range(min(words, LISTED))
    ]  # fmt: skip
    document["warnings"] = [*document["warnings"], WRONG]
    return document


def step_of(sut: Sut, **settings: Any) -> Step:
    (step,) = KIND.steps(sut, BurnInSettings(**settings))
    assert isinstance(step, Step)
    return step


def parsed(*rounds: dict[str, Any]) -> Any:
    sut = Sut(LARGEST)
    documents = [read_document(raw) for raw in rounds]
    pairs = [(number, document, None) for number, document in enumerate(documents, 1)]
    document = ProbeDocument.merged(pairs) if len(documents) > 1 else documents[0]
    (found,) = KIND.parse(document, step_of(sut), sut)
    return found


def test_words_that_differ_are_named_and_nothing_is_struck_out() -> None:
    found = parsed(found_wrong(read("burn_in")))
    (flag,) = (flag for flag in found.flags if flag.code == "DATA_WRONG")
    assert flag.severity == "warn"
    assert flag.reason == (
        "3 words of memory differed from what was written, first at 0x1000 of CPU 1's memory on node 0: "
        "0x0000000000000003 in place of 0x0000000000000001; found by CPU 1"
    )
    metrics = {metric.name: metric.value for metric in KIND.metrics(found.values)}
    assert metrics["burn_in.errors"] == 3.0
    assert "burn_in.highest_c" not in metrics  # a guest has no sensor
    (sentence,) = KIND.summary([found.values])
    assert sentence == "2 CPUs under full load for 20.0 s, 68.4 GB of memory verified: 3 errors."


def test_wrong_arithmetic_counts_too() -> None:
    raw = read("burn_in")
    raw["result"]["cpus"][0] |= {"wrong_sums": 1, "wrong_lanes": 2, "wrong_at_unix_ns": 5}
    found = parsed(raw)
    assert found.values.errors == 3
    assert [flag.reason for flag in found.flags if flag.code == "DATA_WRONG"] == [
        "3 wrong results of arithmetic; found by CPU 0"
    ]


def test_what_a_cpu_found_is_kept_though_it_left_its_place() -> None:
    raw = found_wrong(read("burn_in"))
    raw["result"]["cpus"][-1] |= {"error": {"code": "cpu_left", "message": "moved"}, "cpu_verified": False}
    found = parsed(raw)
    assert found.values.errors == 3
    assert [missing.reason for missing in found.missing] == ["cpu_left: moved"]
    assert "CPU_UNVERIFIED" in {flag.code for flag in found.flags}


def test_rounds_are_one_load() -> None:
    clean, wrong = read("burn_in"), found_wrong(read("burn_in"), words=30, at_unix_ns=10)
    early = found_wrong(clean, words=2, at_unix_ns=1)
    once, found = parsed(clean).values, parsed(clean, wrong, early).values
    assert found.verified_bytes == 3 * once.verified_bytes
    assert found.load_s == pytest.approx(3 * once.load_s)
    assert [node.bytes for node in found.nodes] == [node.bytes for node in once.nodes]
    assert (found.wrong_words, found.wrong_bits) == (32, 34)
    times = [mismatch.at_unix_ns for mismatch in found.mismatches]
    assert times == sorted(times)
    assert times[:2] == [1, 2]
    assert len(times) == LISTED
    assert len(found.course) == 3 * len(once.course)
    steps = [later.at_s - point.at_s for point, later in zip(found.course, found.course[1:], strict=False)]
    assert steps == pytest.approx([clean["result"]["window_s"]] * len(steps))


def with_telemetry(document: dict[str, Any]) -> dict[str, Any]:
    """Return *document* with sensors: one gets hotter, the packages take 200 W and then 300 W."""
    document = copy.deepcopy(document)
    sources = [("temperature", "coretemp Package id 0", "degC"), ("temperature", "x86_pkg_temp", "degC"),
               ("energy", "package-0 (intel-rapl:0)", "J"), ("energy", "package-1 (intel-rapl:1)", "J"),
               ("energy", "dram (intel-rapl:0:0)", "J")]  # fmt: skip
    count = len(document["result"]["windows"])
    document["result"]["telemetry"] = {
        "sources": [dict(zip(("kind", "name", "unit"), source, strict=True)) for source in sources],
        "readings": [
            {"s": 2.0 * k, "values": [50.0 + k, None if k else 90.0, 200.0 * k, 200.0 * k + 400.0 * (k > 1), 9.0 * k]}
            for k in range(count)
        ],
        "unreadable": [{"kind": "clock", "reason": "absent"}],
    }
    return document


def test_heat_and_power_are_watched() -> None:
    found = parsed(with_telemetry(read("burn_in"))).values
    assert [point.temperature_c for point in found.course[:3]] == [90.0, 51.0, 52.0]
    assert [point.power_w for point in found.course[:4]] == [None, 200.0, 400.0, 200.0]
    assert (found.highest_c, found.highest_w) == (90.0, 400.0)
    assert found.unreadable == {"clock": "absent"}
    metrics = {metric.name: metric.value for metric in KIND.metrics(found)}
    assert metrics["burn_in.highest_c"] == 90.0
    assert metrics["burn_in.lowest_mb_s"] == min(point.verified_mb_s for point in found.course)


def test_everything_takes_part_in_what_is_available() -> None:
    sut = Sut(LARGEST)
    step = step_of(sut, memory_share=0.8)
    assert set(step.cpus) == set(LARGEST.online_cpus)
    assert step.memory_bytes.keys() == {node.id for node in LARGEST.nodes}
    for node, size in step.memory_bytes.items():
        assert size <= 0.8 * sut.available_bytes[node] < size + 2 * MIB * len(step.cpus)
    groups = [word for option, word in zip(step.argv, step.argv[1:], strict=False) if option == "--group"]
    asked = [(part, size) for word in groups for part, size in zip(read_group(word), read_sizes(word), strict=True)]
    assert {part.node: len(part.cpus) * size for part, size in asked} == step.memory_bytes
    assert "avx512" in step.argv


def test_the_plan_takes_its_share_although_there_is_not_twice_as_much() -> None:
    plan = make_plan(LARGEST, load_profile("burn_in"))
    (step,) = plan.steps
    assert step.memory_bytes == step_of(Sut(LARGEST)).memory_bytes
    assert plan.full_memory_bytes == {}  # whatever there is, is enough
    assert 3600 < plan.expected_duration_s < 3900


def test_memory_that_is_kept_free_is_left() -> None:
    small = machine(packages=1, nodes=1, cores=2, node_bytes=KEPT_FREE_BYTES + 5 * MIB, llc_bytes=MIB)
    assert step_of(Sut(small), memory_share=0.95).memory_bytes == {0: 4 * MIB}
    full = machine(packages=1, nodes=1, cores=2, node_bytes=KEPT_FREE_BYTES, llc_bytes=MIB)
    (skipped,) = KIND.steps(Sut(full), BurnInSettings())
    assert isinstance(skipped, NotPlanned)
    assert skipped.reason == "less than 2 MiB for each CPU"


def test_no_cpu_without_a_result_is_a_measurement() -> None:
    raw = read("burn_in")
    for cpu in raw["result"]["cpus"]:
        cpu |= {"verified_bytes": 0, "error": {"code": "no_memory", "message": "found 4"}}
    with pytest.raises(InputError, match="found 4"):
        parsed(raw)


def test_the_longest_burn_in_of_the_largest_machine_is_small() -> None:
    step = step_of(Sut(LARGEST))
    raw = answer(step)
    assert 31 * len(json.dumps({"stdout": json.dumps(raw)})) < MAX_RECORDS_BYTES / 2
    values = parsed(*[raw] * 31).values
    assert len(values.model_dump_json()) < MAX_DOCUMENT_BYTES / 100
    assert len(values.mismatches) == LISTED


# The run


Measured = Callable[..., tuple[BegunRun, RunDocument]]


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    """Return what makes a run of records: round, outcome and document of each, and what was counted."""

    def made(
        *answers: tuple[int, Outcome, dict[str, Any] | None], counted: Health | None = None, reason: str = "ended"
    ) -> tuple[BegunRun, RunDocument]:
        capture = CAPTURED.read_bytes()
        run = begin(tmp_path, testbed="t", sut="s", run_id="r", profile="burn_in", capture=capture, now=NOW)
        (step,) = run.plan.steps
        for number, ended, document in answers:
            record: dict[str, Any] = {"reason": None if ended == "ok" else reason, "rc": 0, "stderr": ""}
            append_record(
                run.directory,
                StepRecord(
                    step=step, round=number, outcome=ended, started_at=NOW, duration_s=1.0, document=document, **record
                ),
            )  # fmt: skip
        if counted is not None:
            append_record(run.directory, HealthRecord(health=counted))
        return run, finish(run.directory, now=NOW)

    return made


def failed_by(document: RunDocument) -> dict[str, str]:
    return {verdict.name: verdict.reason for verdict in document.verdicts if verdict.outcome == "fail"}


ROUNDS = range(1, 7)


def test_a_sound_machine_passes(measured: Measured, tmp_path: Path) -> None:
    run, document = measured(*((number, "ok", read("burn_in")) for number in ROUNDS), counted=health())
    assert document.run.status == "complete"
    assert failed_by(document) == {}
    assert outcome(tmp_path, run.directory, "h", document)["failures"] == []


def test_a_word_that_differed_fails_the_run_without_a_limit(measured: Measured, tmp_path: Path) -> None:
    answers = [(number, "ok", read("burn_in")) for number in ROUNDS]
    answers[3] = (4, "ok", found_wrong(read("burn_in")))
    run, document = measured(*answers)
    assert failed_by(document) == {"burn_in.data_wrong": f"round 4: {WRONG['message']}"}
    (values,) = (item.values for item in document.measurements)
    assert isinstance(values, BurnInValues)
    assert values.errors == 3
    (_, failure) = outcome(tmp_path, run.directory, "h", document)["failures"]
    assert failure == f"Verdict failed: burn_in.data_wrong: round 4: {WRONG['message']}"
    assert [result.outcome for result in check_errors(document)] == ["failed"]


def test_an_error_of_an_interrupted_round_outlives_its_repetition(measured: Measured) -> None:
    broken = found_wrong(read("burn_in"))
    broken["result"]["stopped"] = "interrupted"
    clean = [(number, "ok", read("burn_in")) for number in ROUNDS]
    _, document = measured((1, "killed", broken), *clean)
    assert document.run.status == "complete"
    assert failed_by(document) == {"burn_in.data_wrong": f"round 1: {WRONG['message']}"}


@pytest.mark.parametrize(("name", "memory", "names"), [
    ("SIGBUS", False, ["burn_in.probe_killed"]),
    ("SIGKILL", False, ["burn_in.probe_killed"]),
    ("SIGKILL", True, []),
    (None, False, []),
])  # fmt: skip
def test_a_killed_sutprobe_outlives_its_repetition(
    measured: Measured, name: str | None, memory: bool, names: list[str]
) -> None:
    ended = {"rc": None if name is None else -Signals[name], "out_of_memory": memory}
    how, reason, _ = judge_answer(ended | ({"rc": -9, "fault": "cancelled"} if name is None else {}), None)
    clean = [(number, "ok", read("burn_in")) for number in ROUNDS]
    _, document = measured((1, how, None), *clean, reason=reason)
    assert document.run.status == "complete"
    assert list(failed_by(document)) == names
    assert all("round 1: sutprobe was killed by SIG" in told for told in failed_by(document).values())
    assert [result.outcome for result in check_errors(document)] == (["failed"] if names else ["undecided"])


def test_an_unreadable_answer_tells_nothing(measured: Measured) -> None:
    _, document = measured((1, "failed", {"warnings": [WRONG]}))
    assert document.run.status == "incomplete"
    assert failed_by(document) == {}


@pytest.mark.parametrize(("counted", "name"), [
    ({"memory_corrected": {"mc0": [3, 4]}}, "burn_in.errors_corrected"),
    ({"link_fatal": {"0000:81:00.0": [0, 1]}}, "burn_in.errors_uncorrected"),
    ({"package_throttled": {"1": [5, 6]}}, "burn_in.throttled"),
])  # fmt: skip
def test_what_the_kernel_counts_fails_the_run(measured: Measured, counted: dict[str, Any], name: str) -> None:
    _, document = measured(*((number, "ok", read("burn_in")) for number in ROUNDS), counted=health(**counted))
    assert list(failed_by(document)) == [name]


def test_a_result_is_read_as_it_is_written() -> None:
    raw = read("burn_in")["result"]
    assert BurnResult.model_validate_json(json.dumps(raw)).course[0].windows
