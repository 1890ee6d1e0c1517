# SPDX-License-Identifier: Apache-2.0
"""Results on disk: complete writes, no lost records, and validation of what is read."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.tuning import SettingChange, Unrestored
from calibration.finish import finish
from calibration.measurements.evidence import undisturbed
from calibration.preflight.checks import Check
from calibration.results.layout import CHECKER_OUTPUT, RECORDS, RUN, find_runs, new_run_id, run_directory
from calibration.results.model import CheckerRun, ProbeBuild, RunDocument
from calibration.results.run_checks import check_errors
from calibration.results.schema import SCHEMA, schema_text
from calibration.results.store import MAX_FIELDS, WIDE_BYTES, read_run, write_document
from calibration.run import lifecycle
from calibration.run.attempts import (
    chosen,
    complete_suts,
    has_ended,
    newest_unfinished,
    outstanding,
    record_probe,
    record_reason,
    session_answers,
    unmeasured,
)
from calibration.run.lifecycle import BegunRun, NotBegunError, resume
from calibration.run.outcomes import completed_values
from calibration.run.records import (
    EndRecord,
    HealthRecord,
    NoteRecord,
    RestoredRecord,
    StepRecord,
    SwitchedRecord,
    append_record,
    record_checker,
    records,
)
from calibration.run.run_log import replay
from tests.report.report_documents import attempt, flagged, index_of, replace, run_document, scaled, store
from tests.rounds import numbered
from tests.unit.test_health import health

FIXTURES = Path(__file__).parent.parent / "fixtures"
CAPTURE = (FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz").read_bytes()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROBE = ProbeBuild(
    sha256="0" * 64, target="x86_64", version="0.1.0", compiler="clang 20", flags="-O2", source_sha256="1" * 64
)


def begin(results: Path, **changes: Any) -> BegunRun:
    names = {"testbed": "t1", "sut": "s1", "run_id": "r1", "profile": "quick", "capture": CAPTURE, "now": NOW}
    return lifecycle.begin(results, **{**names, **changes})


@pytest.fixture
def begun(tmp_path: Path) -> BegunRun:
    return begin(tmp_path)


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / "sutprobe" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def end_step(begun: BegunRun, step_id: str, *, rounds: int | None = None, **changes: Any) -> None:
    """Record a step in its first *rounds*, by default in all, each with one of the recorded placements."""
    step = next(step for step in begun.plan.steps if step.id == step_id)
    fields = {"outcome": "ok", "reason": None, "rc": 0, "started_at": NOW, "duration_s": 1.0, "stderr": ""}
    if "document" not in changes:
        changes["document"] = None if "outcome" in changes else recorded(step_id)
    for number, document in numbered(step, changes["document"])[:rounds]:
        record = {"step": step, "round": number, **fields, **changes, "document": document}
        append_record(begun.directory, StepRecord.model_validate(record))


def change(**fields: Any) -> SettingChange:
    """Return a changed setting that was not restored."""
    governor = {
        "setting": "governor",
        "where": "/sys/cpu{0-3}/governor",
        "before": "schedutil",
        "wanted": "performance",
    }
    return SettingChange(**{**governor, "after": "performance", "restored": None, "restored_by": None, **fields})


def test_committed_schema_matches_the_model() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), f"renew it: calibration schema > {SCHEMA}"


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SCHEMA.read_bytes()))


def test_stored_documents_have_every_field(begun: BegunRun) -> None:
    document = json.loads(finish(begun.directory, now=NOW).model_dump_json())
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert set(schema["required"]) == set(schema["properties"]) == document.keys()
    for name in document:
        lacking = {other: value for other, value in document.items() if other != name}
        if not RunDocument.model_fields[name].is_required():  # a field of later versions
            RunDocument.model_validate_json(json.dumps(lacking))
            continue
        assert not validator().is_valid(lacking)
        (begun.directory / RUN).write_text(json.dumps(lacking), encoding="utf-8")
        with pytest.raises(InputError, match=f"not a run document: {name}: Field required"):
            read_run(begun.directory)


def test_run_document_round_trips(begun: BegunRun) -> None:
    directory = begun.directory
    record_probe(directory, PROBE)
    end_step(begun, "idle_latency")
    document = finish(directory, now=NOW)
    assert read_run(directory) == document
    assert read_run(directory / RUN) == document
    assert document.run.probe == PROBE
    (measured,) = document.measurements
    assert measured.kind == "idle_latency"
    assert measured.argv[1] == "latency"
    assert {verdict.name: verdict.outcome for verdict in document.verdicts} == {
        "idle_latency.latency_ns": "no_reference"
    }
    assert sorted(path.name for path in directory.iterdir()) == ["context.tar.gz", RECORDS, RUN]
    assert find_runs(directory.parent.parent.parent) == [directory]


@pytest.mark.parametrize(("change", "reason"), [
    (lambda raw: raw.update(started_at_unix_ns=10**40), "the result contradicts itself: "),
    (lambda raw: raw["result"]["points"][0]["placements"][0].update(core_hz_before=0.0), "ZeroDivisionError"),
    (lambda raw: raw["result"]["points"][0]["placements"][0].update(windows_ns=[]), "a placement without windows"),
])  # fmt: skip
def test_a_contradictory_result_is_not_measured(
    begun: BegunRun, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    raw = recorded("idle_latency")
    change(raw)
    end_step(begun, "idle_latency", document=raw)
    document = finish(begun.directory, now=NOW)
    assert document.measurements == ()
    (found,) = [omitted.reason for omitted in document.not_measured if omitted.kind == "idle_latency"]
    assert reason in found


def test_every_planned_step_is_measured_or_has_its_reason(begun: BegunRun) -> None:
    directory = begun.directory
    end_step(begun, "idle_latency")
    end_step(
        begun, "latency_matrix", outcome="timed_out", reason="took longer than its deadline of 30 s", document=None
    )
    end_step(begun, "jitter", outcome="ok", document={"schema": "other"})
    append_record(directory, NoteRecord(reason="the SUT is no longer reachable"))
    document = finish(directory, now=NOW)
    assert document.run.status == "incomplete"
    reasons = {omitted.kind: omitted.reason for omitted in document.not_measured if omitted.cause == "failed"}
    assert reasons["latency_matrix"] == "took longer than its deadline of 30 s"
    assert "not a sutprobe document" in reasons["jitter"]
    assert reasons["max_bandwidth"] == "the SUT is no longer reachable"
    kinds = {measurement.kind for measurement in document.measurements} | reasons.keys()
    assert kinds == {step.kind for step in begun.plan.steps}


def ended_early(step_id: str, code: str, keep: int) -> dict[str, Any]:
    """Return a recorded document as it would be had its command been told to end after *keep* points."""
    document = recorded(step_id)
    document["status"] = "failed"
    document["error"] = {"code": code, "message": "told to end"}
    for point in document["result"]["points"][keep:]:
        point.update(placements=None, stopped=None, chain_proved=False, loop_overhead_ns=None)
        point["error"] = {"code": code, "message": "not begun"}
    if keep:
        last = document["result"]["points"][keep - 1]
        last.update(stopped="interrupted", placements=last["placements"][:2])
    return dict(document)


@pytest.mark.parametrize(
    ("code", "outcome", "cause", "status"),
    [("deadline", "timed_out", "failed", "incomplete"), ("interrupted", "killed", "interrupted", "interrupted")],
)
def test_terminated_step_keeps_its_measurements(
    begun: BegunRun, code: str, outcome: str, cause: str, status: str
) -> None:
    document = ended_early("latency_ladder", code, 30)
    end_step(begun, "latency_ladder", rounds=1, outcome=outcome, reason="told to end", rc=3, document=document)
    run = finish(begun.directory, now=NOW, interrupted=code == "interrupted")
    (measured,) = run.measurements
    assert len(measured.values.points) == 30
    assert measured.missing[0].reason == "told to end"
    assert len(measured.missing) == 1 + len(document["result"]["points"]) - 30
    assert "PARTIAL" in {flag.code for flag in measured.validity.flags}
    gone = [omitted for omitted in run.not_measured if omitted.kind == "latency_ladder"]
    parts = [omitted for omitted in gone if " rounds " not in omitted.what and " round " not in omitted.what]
    assert len(parts) == len(measured.missing)
    assert [omitted.what.rpartition(": ")[2] for omitted in gone if omitted not in parts] == [
        "round 1 of 6",
        "rounds 2-6 of 6",
    ]
    assert {omitted.cause for omitted in gone} == {cause}
    assert run.run.status == status


def test_sutprobe_killed_by_a_signal_fails_the_run(begun: BegunRun) -> None:
    end_step(begun, "latency_ladder", outcome="killed", reason="ended by SIGSEGV", rc=139)
    run = finish(begun.directory, now=NOW)
    (gone,) = [omitted for omitted in run.not_measured if omitted.kind == "latency_ladder"]
    assert (gone.cause, gone.reason) == ("failed", "ended by SIGSEGV")
    assert run.run.status == "incomplete"


def test_steps_lost_in_an_interrupted_attempt_stay_missing_after_resuming(begun: BegunRun) -> None:
    directory = begun.directory
    done = [step for step in begun.plan.steps if step.id != "latency_ladder"]
    end_step(begun, "latency_ladder", outcome="killed", reason="ended", rc=4)
    append_record(directory, EndRecord(finished_at=NOW, interrupted=True))
    resume(directory, capture=CAPTURE, now=NOW)
    for step in done:
        end_step(begun, step.id, document={})
    assert finish(directory, now=NOW).run.status == "incomplete"


def test_a_failed_part_of_an_interrupted_step_is_a_failure(begun: BegunRun) -> None:
    document = ended_early("latency_ladder", "interrupted", 30)
    document["result"]["points"][40]["error"] = {"code": "no_memory", "message": "too large"}
    end_step(begun, "latency_ladder", outcome="killed", reason="told to end", rc=4, document=document)
    run = finish(begun.directory, now=NOW, interrupted=True)
    failed = [omitted for omitted in run.not_measured if omitted.cause == "failed"]
    assert [item.reason for item in failed] == ["no_memory: too large"]


@pytest.mark.parametrize("keep", [0, None])
def test_a_step_without_values_has_its_reason(begun: BegunRun, keep: int | None) -> None:
    document = ended_early("latency_ladder", "deadline", keep or 0)
    if keep is None:
        document["result"] = None
    end_step(begun, "latency_ladder", outcome="timed_out", reason="took too long", rc=3, document=document)
    run = finish(begun.directory, now=NOW)
    assert run.measurements == ()
    (gone,) = [omitted for omitted in run.not_measured if omitted.kind == "latency_ladder"]
    assert gone.reason.startswith("took too long")
    assert gone.cause == "failed"


def test_a_failed_step_keeps_no_measurement(begun: BegunRun) -> None:
    """An answer of the wrong bytes, for example, is kept in the record and is no value, told to end or not."""
    document = ended_early("latency_ladder", "deadline", 30)
    end_step(begun, "latency_ladder", outcome="failed", reason="not the bytes built", rc=3, document=document)
    assert finish(begun.directory, now=NOW).measurements == ()


def test_measurements_of_one_step_are_told_apart(begun: BegunRun) -> None:
    end_step(begun, "wakeup")
    found = [measurement.id for measurement in finish(begun.directory, now=NOW).measurements]
    assert found == ["wakeup-idle", "wakeup-memory", "wakeup-housekeeping"]


def test_the_maximum_is_not_below_the_peak(begun: BegunRun) -> None:
    directory = begun.directory
    peak = recorded("peak_injection_bandwidth")
    for point in peak["result"]["points"]:
        for placement in point["placements"]:
            factor = 100.0 if point["mix"] == "reads" else 0.01
            placement["windows_mb_s"] = [factor * window for window in placement["windows_mb_s"]]
    end_step(begun, "peak_injection_bandwidth", document=peak)
    end_step(begun, "max_bandwidth")
    run = {measurement.id: measurement.values.model_dump() for measurement in finish(directory, now=NOW).measurements}
    best, injected = run["max_bandwidth"], run["peak_injection_bandwidth"]
    assert best["mixes"]["reads"] == injected["mixes"]["reads"]
    assert best["sources"]["reads"] == "peak_injection_bandwidth"
    assert best["sources"]["2:1"] == "max_bandwidth"
    for name, mix in injected["mixes"].items():
        assert best["mixes"][name]["bandwidth_mb_s"]["value"] >= mix["bandwidth_mb_s"]["value"]


def test_interrupted_run_keeps_its_measurements(begun: BegunRun) -> None:
    directory = begun.directory
    end_step(begun, "idle_latency")
    document = finish(directory, now=NOW, interrupted=True)
    assert document.run.status == "interrupted"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    left = [omitted for omitted in document.not_measured if omitted.cause == "interrupted"]
    assert len(left) == len(begun.plan.steps) - 1


def test_a_truncated_last_record_is_skipped(begun: BegunRun) -> None:
    directory = begun.directory
    end_step(begun, "idle_latency")
    whole = (directory / RECORDS).read_bytes()
    end_step(begun, "latency_matrix")
    path = directory / RECORDS
    path.write_bytes(path.read_bytes()[:-10])
    assert [type(record).__name__ for record in records(directory)] == ["StartRecord", *["StepRecord"] * 11]
    path.write_bytes(whole.replace(b'"record":"start"', b'"record":"begin"'))
    with pytest.raises(InputError, match="line 1"):
        list(records(directory))


def test_line_separators_do_not_end_a_record(begun: BegunRun) -> None:
    steps = [step.id for step in begun.plan.steps[:2]]
    for step_id in steps:
        end_step(begun, step_id, stderr="a\nb\r\x85\u2028\u2029\x0b\x0c\x1e{}")
    found = [record for record in records(begun.directory) if isinstance(record, StepRecord)]
    assert list(dict.fromkeys(item.step.id for item in found)) == steps
    assert {item.stderr for item in found} == {"a\nb\r\x85\u2028\u2029\x0b\x0c\x1e{}"}


def test_full_records_keep_no_more_documents(begun: BegunRun, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (step.id for step in begun.plan.steps[:2])
    end_step(begun, first)
    size = (begun.directory / RECORDS).stat().st_size
    monkeypatch.setattr("calibration.run.records.MAX_RECORDS_BYTES", size - 1)
    end_step(begun, second, rounds=1)
    found = {record.step.id: record for record in records(begun.directory) if isinstance(record, StepRecord)}
    assert found[first].document is not None
    assert found[second].document is None
    assert found[second].reason == f"not kept: the records of the run exceed {size - 1} bytes"


def test_a_wrong_placement_invalidates_a_measurement(begun: BegunRun) -> None:
    document = recorded("idle_latency")
    pages = document["result"]["points"][0]["placements"][2]["pages"]
    pages["on_node"], pages["elsewhere"] = pages["checked"] - 1, 1
    end_step(begun, "idle_latency", document=document)
    run = finish(begun.directory, now=NOW)
    assert not run.measurements[0].validity.valid
    assert run.verdicts[0].outcome == "invalid"


def test_start_and_duration_come_from_sutprobe(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    (measured,) = finish(begun.directory, now=NOW).measurements
    document = recorded("idle_latency")
    assert measured.started_at == datetime.fromtimestamp(document["started_at_unix_ns"] // 10**9, UTC)
    assert measured.duration_s == pytest.approx(6 * document["duration_s"])
    assert measured.rounds == (1, 2, 3, 4, 5, 6)
    assert document["duration_s"] > 1  # else the whole second would be the same at its end


def test_rounds_of_a_step_are_one_measurement(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    (measured,) = finish(begun.directory, now=NOW).measurements
    placements = recorded("idle_latency")["result"]["points"][0]["placements"]
    assert measured.values.latency_ns.rounds == (1, 2, 3, 4, 5, 6)
    assert [list(windows) for windows in measured.values.latency_ns.samples] == [
        undisturbed(placement["windows_ns"], placement["dirty_windows"]) for placement in placements[:6]
    ]
    assert measured.pages.buffers == 6
    assert measured.values.latency_ns.target_half_width == 0.01


def test_an_interrupted_run_says_how_many_rounds_it_has(begun: BegunRun) -> None:
    end_step(begun, "idle_latency", rounds=3)
    end_step(begun, "latency_matrix", rounds=2)
    run = finish(begun.directory, now=NOW, interrupted=True)
    assert {len(measured.rounds) for measured in run.measurements} == {3, 2}
    gone = {omitted.what.rpartition(": ")[2]: omitted for omitted in run.not_measured if "rounds" in omitted.what}
    assert gone.keys() == {"rounds 4-6 of 6", "rounds 3-6 of 6"}
    assert {omitted.cause for omitted in gone.values()} == {"interrupted"}
    assert run.run.status == "interrupted"
    idle = run.measurements[index_of(run, "idle_latency")]
    assert idle.values.latency_ns.coverage == 0.75  # three rounds: stated, not hidden


def test_a_failed_round_costs_its_part_only(begun: BegunRun) -> None:
    end_step(begun, "idle_latency", rounds=5)
    step = next(step for step in begun.plan.steps if step.id == "idle_latency")
    lost = {"outcome": "killed", "reason": "ended by SIGSEGV", "rc": 139, "started_at": NOW, "duration_s": 1.0}
    append_record(begun.directory, StepRecord(step=step, round=6, document=None, stderr="", **lost))
    run = finish(begun.directory, now=NOW)
    assert run.measurements[0].rounds == (1, 2, 3, 4, 5)
    (gone,) = [omitted for omitted in run.not_measured if omitted.kind == "idle_latency" and omitted.cause == "failed"]
    assert (gone.what.rpartition(": ")[2], gone.reason) == ("round 6 of 6", "ended by SIGSEGV")
    assert run.run.status == "incomplete"


def test_resume_measures_the_missing_rounds(begun: BegunRun) -> None:
    end_step(begun, "max_bandwidth", rounds=4)
    left = unmeasured(begun.directory)
    assert left["max_bandwidth"] == (5, 6)
    assert left["idle_latency"] == (1, 2, 3, 4, 5, 6)
    end_step(begun, "max_bandwidth")
    assert "max_bandwidth" not in {step.id for step in outstanding(begun.directory)}


def test_a_search_that_is_recorded_is_not_repeated(begun: BegunRun) -> None:
    assert chosen(begun.directory) == {}
    end_step(begun, "max_bandwidth-search", outcome="failed", reason="killed")
    assert chosen(begun.directory) == {}
    end_step(begun, "max_bandwidth-search")
    assert chosen(begun.directory) == {"max_bandwidth-search": [2, 5, 11, 14, 18]}
    assert "max_bandwidth-search" not in {step.id for step in outstanding(begun.directory)}


def test_a_damaged_record_of_a_search_is_refused(begun: BegunRun) -> None:
    document = recorded("max_bandwidth-search")
    document["result"]["chosen"] = None
    end_step(begun, "max_bandwidth-search", document=document)
    with pytest.raises(InputError, match=r"the answer of max_bandwidth-search has no result\.chosen$"):
        chosen(begun.directory)


def test_a_search_is_part_of_what_was_measured_with_its_choice(begun: BegunRun) -> None:
    end_step(begun, "max_bandwidth-search")
    end_step(begun, "max_bandwidth")
    run = finish(begun.directory, now=NOW)
    (measured,) = run.measurements
    search, best = recorded("max_bandwidth-search"), recorded("max_bandwidth")
    assert measured.id == "max_bandwidth"
    assert len(measured.values.search) == len(search["result"]["points"])
    assert measured.duration_s == pytest.approx(search["duration_s"] + 6 * best["duration_s"])
    assert measured.pages.buffers == len(search["result"]["points"]) + 6 * len(best["result"]["points"])
    assert {omitted.what for omitted in run.not_measured if omitted.kind == "max_bandwidth"} == set()


def test_a_search_that_failed_says_why(begun: BegunRun) -> None:
    end_step(begun, "max_bandwidth-search", outcome="failed", reason="the answer has no result.chosen")
    why = "its search, max_bandwidth-search, failed"
    end_step(begun, "max_bandwidth", outcome="failed", reason=why)
    run = finish(begun.directory, now=NOW)
    gone = [(omitted.what, omitted.reason) for omitted in run.not_measured if omitted.kind == "max_bandwidth"]
    assert run.measurements == ()
    assert [reason for _, reason in gone] == ["the answer has no result.chosen", why]
    assert "search of" in gone[0][0]


def test_a_round_that_measured_elsewhere_than_asked_leaves_no_value(begun: BegunRun) -> None:
    step = next(step for step in begun.plan.steps if step.id == "idle_latency")
    for number, document in numbered(step, recorded("idle_latency")):
        point = document["result"]["points"][0]
        if number == 4:
            point |= {"placements": None, "stopped": None, "error": {"code": "placement_wrong", "message": "node 1"}}
        fields = {"outcome": "ok", "reason": None, "rc": 0, "started_at": NOW, "duration_s": 1.0, "stderr": ""}
        append_record(begun.directory, StepRecord(step=step, round=number, document=document, **fields))
    run = finish(begun.directory, now=NOW)
    assert run.measurements == ()
    (gone,) = [omitted for omitted in run.not_measured if omitted.kind == "idle_latency" and omitted.cause == "failed"]
    assert "placement_wrong" in gone.reason


def test_invalid_peak_is_not_the_maximum() -> None:
    document = run_document(names=("max_bandwidth", "peak_injection_bandwidth"))
    maximum, peak = (
        document.measurements[index_of(document, kind)] for kind in ("max_bandwidth", "peak_injection_bandwidth")
    )
    name = next(name for name in peak.values.mixes if name in maximum.values.mixes)  # type: ignore[union-attr]
    mix = peak.values.mixes[name]  # type: ignore[union-attr]
    higher = mix.model_copy(update={"bandwidth_mb_s": scaled(mix.bandwidth_mb_s, 100.0)})
    values = peak.values.model_copy(update={"mixes": {**peak.values.mixes, name: higher}})  # type: ignore[union-attr]
    document = replace(document, index_of(document, "peak_injection_bandwidth"), values=values)
    found = {}
    for item in (
        document,
        flagged(document, index_of(document, "peak_injection_bandwidth"), "PLACEMENT_WRONG", "elsewhere"),
    ):
        completed = completed_values(list(item.measurements))
        found[item is document] = completed[index_of(item, "max_bandwidth")].values.mixes[name]  # type: ignore[union-attr]
    assert found == {True: higher, False: maximum.values.mixes[name]}  # type: ignore[union-attr]


def test_an_invalid_document_is_not_written(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    directory = begun.directory
    document = finish(directory, now=NOW)
    before = (directory / RUN).read_bytes()
    wrong = document.model_copy(update={"run": document.run.model_copy(update={"status": "fine"})})
    with pytest.raises(InputError, match=r"not a run document: run\.status: "):
        write_document(directory, wrong)
    assert (directory / RUN).read_bytes() == before
    assert sorted(path.name for path in directory.iterdir()) == ["context.tar.gz", RECORDS, RUN]


def test_unreadable_records_are_reported(begun: BegunRun) -> None:
    path = begun.directory / RECORDS
    with path.open("ab") as file:
        file.write(b'{"record": "note", "reason": ' + b"[" * 10**6 + b"\n")
    with pytest.raises(InputError, match=f"line 2 of {path} is not a record"):
        list(records(path.parent))
    os.truncate(path, 3 * 1024**3)
    with pytest.raises(InputError, match=f"{path}: larger than"):
        list(records(path.parent))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"{path}: not a regular file"):
        list(records(path.parent))


def test_records_without_their_beginning_are_refused(begun: BegunRun) -> None:
    append_record(begun.directory, NoteRecord(reason="it ended"))
    path = begun.directory / RECORDS
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    with pytest.raises(InputError, match="do not begin with the start of a run"):
        finish(begun.directory, now=NOW)


def test_a_changed_capture_is_refused(begun: BegunRun) -> None:
    directory = begun.directory
    (directory / "context.tar.gz").write_bytes((FIXTURES / "context" / "x86_64-isolated.tar.gz").read_bytes())
    with pytest.raises(InputError, match="sha256 differs"):
        finish(directory, now=NOW)


@pytest.mark.parametrize(("find", "put", "says"), [
    ('"schema_version": "run/1"', '"schema_version": "run/9"', "schema_version"),
    ('"status": "incomplete"', '"status": "fine"', "status"),
    ('"unit": "ns"', '"unit": 7', "unit"),
    ('"within_spread": ', '"extra": 1, "within_spread": ', "extra"),
    ('"invariant"', '"variant"', "invariant"),
])  # fmt: skip
def test_an_invalid_document_is_refused(begun: BegunRun, find: str, put: str, says: str) -> None:
    end_step(begun, "idle_latency")
    finish(begun.directory, now=NOW)
    path = begun.directory / RUN
    text = path.read_text(encoding="utf-8")
    assert find in text
    assert validator().is_valid(json.loads(text))
    path.write_text(broken := text.replace(find, put, 1), encoding="utf-8")
    assert not validator().is_valid(json.loads(broken))
    with pytest.raises(InputError, match=rf"not a run document: (.*\.)?{says}: "):
        read_run(path)


def test_objects_of_too_many_fields_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    fields = ",".join(f'"{number}":0' for number in range(MAX_FIELDS + 1))
    path = tmp_path / RUN
    path.write_text(f'{{"schema_version": "run/1", "measurements": [{{{fields}}}], "x": "{" " * WIDE_BYTES}"}}')
    with pytest.raises(InputError, match=f"an object with more than {MAX_FIELDS} fields"):
        read_run(path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema_version": NaN}', b"\xff\xfe", b"[]"])
def test_garbage_is_not_a_run_document(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / RUN
    path.write_bytes(content)
    with pytest.raises(InputError, match=RUN):
        read_run(path)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "x" * 200, "-rf"])
def test_name_unfit_for_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    for names in ((name, "s", "r"), ("t", name, "r"), ("t", "s", name)):
        with pytest.raises(InputError, match=r"not a valid .* name"):
            run_directory(tmp_path, *names)


@pytest.mark.parametrize(("capture", "profile"), [(b"no archive", "quick"), (CAPTURE, "slow")])
def test_a_run_that_cannot_begin_leaves_no_files(tmp_path: Path, capture: bytes, profile: str) -> None:
    with pytest.raises(InputError):
        begin(tmp_path, profile=profile, capture=capture)
    assert list(tmp_path.iterdir()) == []


def test_a_run_never_replaces_another(begun: BegunRun) -> None:
    before = (begun.directory / RECORDS).read_bytes()
    with pytest.raises(EnvironmentLacksError, match="exists"):
        begin(begun.directory.parent.parent.parent)
    assert (begun.directory / RECORDS).read_bytes() == before


def test_failed_write_keeps_the_old_file(begun: BegunRun, file_size_limit: Any) -> None:
    directory = begun.directory
    end_step(begun, "idle_latency")
    document = finish(directory, now=NOW)
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    file_size_limit(len(kept[RECORDS]) + 100)
    with pytest.raises(EnvironmentLacksError, match="cannot write to"):
        end_step(begun, "latency_matrix")
    file_size_limit(1000)
    with pytest.raises(EnvironmentLacksError, match="cannot write to"):
        write_document(directory, document)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == kept


def test_an_unwritable_start_leaves_no_files(tmp_path: Path, file_size_limit: Any) -> None:
    file_size_limit(1000)
    with pytest.raises(EnvironmentLacksError, match="cannot write to"):
        begin(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("again", [True, False])
def test_a_start_that_cannot_be_recorded_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    begun = begin(tmp_path) if again else None
    before = sorted(tmp_path.rglob("*"))

    def full(directory: Path, _: Any) -> None:
        if not again:
            (directory / RECORDS).write_text('{"record": "start", "te', encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("calibration.run.attempts.append_record", full)
    with pytest.raises(EnvironmentLacksError, match=r"cannot write to .*: No space left on device"):
        resume(begun.directory, capture=CAPTURE, now=NOW) if begun else begin(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_run_identifiers_sort_by_time_and_differ() -> None:
    first = {new_run_id(NOW) for _ in range(50)}
    assert len(first) > 40
    assert max(first) < new_run_id(datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC))
    assert all(run_directory(Path(os.sep), "t", "s", item) for item in first)


# Attempts


CHECK = Check(
    name="kernel_release", title="Kernel release", expected="6.1.*", found="5.4.0", outcome="not_met",
    severity="blocking",
)  # fmt: skip
LATER = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


def names(directory: Path) -> dict[str, str]:
    return dict(zip(("testbed", "sut", "run_id"), directory.parts[-3:], strict=True))


def test_an_unreachable_sut_has_a_document(tmp_path: Path) -> None:
    directory = record_reason(
        tmp_path, testbed="t1", sut="s1", run_id="r1", profile="quick", now=NOW, reason="no route to it"
    )
    document = finish(directory, now=LATER)
    assert read_run(directory) == document
    assert (document.run.status, document.context, document.plan) == ("not_begun", None, None)
    (gone,) = document.not_measured
    assert (gone.kind, gone.what, gone.reason) == ("run", "everything", "no route to it")
    assert [attempt.ended for attempt in document.attempts] == ["no route to it"]


def test_a_blocking_check_prevents_the_run(tmp_path: Path) -> None:
    with pytest.raises(NotBegunError, match=r"expected 6\.1"):
        begin(tmp_path, examine=lambda *_: [CHECK])
    directory = tmp_path / "t1" / "s1" / "r1"
    record_reason(tmp_path, **names(directory), profile="quick", now=NOW, reason="it failed")
    document = finish(directory, now=NOW)
    assert document.run.status == "not_begun"
    assert document.context is not None
    (attempt,) = document.attempts
    assert attempt.checks == (CHECK,)
    assert "found 5.4.0" in str(attempt.ended)
    append_record(directory, EndRecord(finished_at=NOW, interrupted=False))
    # the same identifier may begin there once the SUT is as expected
    begun = begin(tmp_path, now=LATER, examine=lambda *_: [])
    assert begun.directory == directory
    end_step(begun, "idle_latency")
    document = finish(directory, now=LATER)
    assert [attempt.capture for attempt in document.attempts] == ["context.tar.gz", "context-2.tar.gz"]
    assert len(document.measurements) == 1


def test_a_nonblocking_check_is_flagged_once(tmp_path: Path) -> None:
    flagged = CHECK.model_copy(update={"severity": "flag"})
    begun = begin(tmp_path, examine=lambda *_: [flagged])
    end_step(begun, "idle_latency")
    document = finish(begun.directory, now=NOW)
    assert [flag.code for flag in document.flags].count("NOT_AS_EXPECTED") == 1
    assert "NOT_AS_EXPECTED" not in {flag.code for flag in document.measurements[0].validity.flags}


def test_resume_runs_the_remaining_steps(begun: BegunRun) -> None:
    directory = begun.directory
    assert outstanding(directory) == begun.plan.steps
    end_step(begun, "idle_latency")
    end_step(begun, "latency_matrix", outcome="failed", reason="the connection to the SUT was lost")
    append_record(directory, NoteRecord(reason="the SUT is gone"))
    append_record(directory, EndRecord(finished_at=NOW, interrupted=False))
    before = finish(directory, now=NOW)
    assert before.run.status == "incomplete"
    again = resume(directory, capture=CAPTURE, now=LATER, boot_id="b2")
    assert [step.id for step in again.plan.steps] == [step.id for step in begun.plan.steps if step.id != "idle_latency"]
    assert outstanding(directory) == again.plan.steps
    end_step(begun, "latency_matrix")
    append_record(directory, EndRecord(finished_at=LATER, interrupted=False))
    document = finish(directory, now=NOW)
    assert {measurement.kind for measurement in document.measurements} == {"idle_latency", "latency_matrix"}
    assert [attempt.ended for attempt in document.attempts] == ["the SUT is gone", None]
    assert [attempt.boot_id for attempt in document.attempts] == [None, "b2"]
    assert (document.run.started_at, document.run.finished_at) == (NOW, LATER)
    assert finish(directory, now=datetime(2027, 1, 1, tzinfo=UTC)) == document


def test_a_later_failure_keeps_the_earlier_result(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    end_step(begun, "idle_latency", outcome="failed", reason="cut off")
    early = ended_early("latency_ladder", "deadline", 30)
    end_step(begun, "latency_ladder", outcome="timed_out", reason="told to end", rc=3, document=early)
    end_step(begun, "latency_ladder", outcome="failed", reason="cut off")
    document = finish(begun.directory, now=NOW)
    assert {measurement.kind for measurement in document.measurements} == {"idle_latency", "latency_ladder"}


def test_the_newest_of_two_failures_is_the_reason(begun: BegunRun) -> None:
    for reason in ("the connection to the SUT was lost", "sutprobe was killed"):
        end_step(begun, "idle_latency", outcome="failed", reason=reason)
    missing = {gone.kind: gone.reason for gone in finish(begun.directory, now=NOW).not_measured}
    assert missing["idle_latency"] == "sutprobe was killed"


def test_a_step_that_is_measured_once_has_no_number_of_a_round(begun: BegunRun) -> None:
    end_step(begun, "idle_latency", rounds=1, round=None)
    end_step(begun, "idle_latency", rounds=1, round=None, outcome="failed", reason="sutprobe was killed")
    assert unmeasured(begun.directory)["idle_latency"] == (2, 3, 4, 5, 6)
    step = next(step for step in begun.plan.steps if step.id == "idle_latency")
    ((record, _),) = replay(begun.directory).best(step)
    assert record.outcome == "ok"


def test_a_run_is_not_resumed_on_another_machine(begun: BegunRun) -> None:
    directory = begun.directory
    end_step(begun, "idle_latency")
    other = (FIXTURES / "context" / "x86_64-isolated.tar.gz").read_bytes()
    with pytest.raises(NotBegunError, match=r"has changed since the run began: .*CPUs: .* -> "):
        resume(directory, capture=other, now=LATER)
    document = finish(directory, now=LATER)
    assert len(document.measurements) == 1
    assert document.context is not None
    assert document.context.capture == "context.tar.gz"
    assert "has changed since the run began" in str(document.attempts[-1].ended)


def test_a_run_is_not_resumed_on_a_sut_that_a_check_refuses(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    with pytest.raises(NotBegunError, match=r"expected 6\.1"):
        resume(begun.directory, capture=CAPTURE, now=LATER, examine=lambda *_: [CHECK])
    document = finish(begun.directory, now=LATER)
    assert [attempt.checks for attempt in document.attempts] == [(), (CHECK,)]
    assert "found 5.4.0" in str(document.attempts[1].ended)
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]


def test_a_run_is_not_resumed_with_another_sutprobe(begun: BegunRun) -> None:
    directory = begun.directory
    record_probe(directory, PROBE)
    record_probe(directory, PROBE)
    with pytest.raises(EnvironmentLacksError, match=r"used sutprobe 0000.*builds 2222"):
        record_probe(directory, PROBE.model_copy(update={"sha256": "2" * 64}))


def test_a_lost_controller_is_recorded(begun: BegunRun) -> None:
    directory = begun.directory
    resume(directory, capture=CAPTURE, now=LATER)
    append_record(directory, EndRecord(finished_at=LATER, interrupted=True))
    document = finish(directory, now=LATER)
    first, second = document.attempts
    assert (first.finished_at, first.ended) == (None, "the controller was lost")
    assert (second.finished_at, second.ended) == (LATER, "interrupted")
    assert document.run.status == "interrupted"


def test_restored_changes_replace_earlier_ones(tmp_path: Path) -> None:
    tuned = change()
    directory = begin(tmp_path, changes=[tuned]).directory
    assert finish(directory, now=NOW).attempts[0].changes == (tuned,)
    back = tuned.model_copy(update={"restored": "schedutil", "restored_by": "cleanup"})
    append_record(directory, RestoredRecord(changes=(back,)))
    assert finish(directory, now=NOW).attempts[0].changes == (back,)


def test_switch_for_a_step_is_reported_once_however_restored(begun: BegunRun) -> None:
    directory = begun.directory
    off = change(setting="prefetchers", where="/dev/cpu/0/msr:0x1a4", before="0x0", wanted="0xf", after="0xf")
    back = off.model_copy(update={"restored": "0x0", "restored_by": "run"})
    other = back.model_copy(update={"where": "/dev/cpu/1/msr:0x1a4"})
    append_record(directory, SwitchedRecord(changes=(other, off)))
    append_record(directory, RestoredRecord(changes=(back,)))
    assert finish(directory, now=NOW).attempts[0].changes == (back, other)


def test_what_the_sut_counted_flags_the_run(begun: BegunRun) -> None:
    end_step(begun, "idle_latency")
    append_record(begun.directory, HealthRecord(health=health(memory_corrected={"mc0": [0, 2]})))
    run = finish(begun.directory, now=NOW)
    assert run.attempts[0].health == health(memory_corrected={"mc0": [0, 2]})
    (found,) = (flag.reason for flag in run.flags if flag.code == "ERRORS_CORRECTED")
    assert found == "2 corrected memory errors during the run: 2 at mc0"
    assert [result.outcome for result in check_errors(run)] == ["failed"]


def test_the_newest_incomplete_run_is_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no unfinished run"):
        newest_unfinished(tmp_path, [("t1", "s1")])
    suts = [("t1", "s1"), ("t1", "s2")]
    shared = {"testbed": "t1", "profile": "quick", "now": NOW, "reason": "gone"}
    for run_id, sut in (("r1", "s1"), ("r2", "s1"), ("r2", "s2"), ("r3", "s3")):
        directory = record_reason(tmp_path, sut=sut, run_id=run_id, **shared)
        finish(directory, now=NOW)
        with pytest.raises(InputError, match="has not begun"):
            outstanding(directory)
    assert newest_unfinished(tmp_path, suts) == "r2"
    for sut in ("s1", "s2"):
        path = tmp_path / "t1" / sut / "r2" / RUN
        path.write_text(path.read_text(encoding="utf-8").replace('"not_begun"', '"complete"'), encoding="utf-8")
    assert newest_unfinished(tmp_path, suts) == "r1"
    assert complete_suts(tmp_path, "r2") == suts
    with pytest.raises(InputError, match="no unfinished run"):
        newest_unfinished(tmp_path, [("t2", "s1")])
    begun = begin(tmp_path, run_id="r4")
    assert newest_unfinished(tmp_path, suts) == "r4"
    for step in begun.plan.steps:
        end_step(begun, step.id, document={})
    assert newest_unfinished(tmp_path, suts) == "r4"  # its controller was lost before the end
    append_record(begun.directory, EndRecord(finished_at=NOW, interrupted=False))
    assert newest_unfinished(tmp_path, suts) == "r4"  # or before the document
    assert finish(begun.directory, now=NOW).run.status == "incomplete"
    assert newest_unfinished(tmp_path, suts) == "r1"
    lifecycle.resume(begun.directory, capture=CAPTURE, now=NOW)
    assert newest_unfinished(tmp_path, suts) == "r4"  # whose controller was lost again
    append_record(begun.directory, EndRecord(finished_at=NOW, interrupted=False))
    assert newest_unfinished(tmp_path, suts) == "r1"
    with pytest.raises(InputError, match="not a valid run identifier"):
        complete_suts(tmp_path, "../r2")
    with pytest.raises(InputError, match="no run r9 below"):
        complete_suts(tmp_path, "r9")


def test_a_newest_run_with_unreadable_records_is_not_skipped(tmp_path: Path) -> None:
    begin(tmp_path)
    path = begin(tmp_path, run_id="r2").directory / RECORDS
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(InputError, match=r"line 1 of .*r2.* is not a record"):
        newest_unfinished(tmp_path, [("t1", "s1")])


def test_an_ended_run_that_lacks_a_step_is_resumed_and_a_directory_without_records_is_none(tmp_path: Path) -> None:
    begun = begin(tmp_path)
    end_step(begun, "idle_latency")
    append_record(begun.directory, EndRecord(finished_at=NOW, interrupted=False))
    append_record(begun.directory, RestoredRecord(changes=()))
    assert has_ended(begun.directory)
    finish(begun.directory, now=NOW)
    (begun.directory.parent / "r9").mkdir()
    assert newest_unfinished(tmp_path, [("t1", "s1")]) == "r1"


def test_answers_are_counted_by_the_session_that_gave_them(tmp_path: Path) -> None:
    begun = begin(tmp_path, session="first")
    end_step(begun, "idle_latency", rounds=1)
    resume(begun.directory, capture=CAPTURE, now=LATER, session="second")
    assert [session_answers(begun.directory, name) for name in ("first", "second")] == [1, 0]
    record_checker(begun.directory, checker_run(), CHECKED)
    record_checker(begun.directory, checker_run(argv=None, reason="it cannot be read"), None)
    assert [session_answers(begun.directory, name) for name in ("first", "second")] == [1, 1]


def test_a_sut_that_is_not_restored_is_not_skipped_when_its_run_is_resumed(tmp_path: Path) -> None:
    document = run_document()
    left = Unrestored(setting="turbo", where="no_turbo", wanted="0", found="1", error=None)
    for sut, unrestored in (("s1", (left,)), ("s2", ())):
        run = document.run.model_copy(update={"testbed": "t1", "sut": sut, "id": "r1"})
        attempts = (attempt(unrestored=unrestored), attempt())
        store(document.model_copy(update={"run": run, "attempts": attempts}), tmp_path)
    assert complete_suts(tmp_path, "r1") == [("t1", "s2")]


def test_a_complete_run_is_resumed_until_its_sut_is_restored_or_measured_again(tmp_path: Path) -> None:
    profile = tmp_path / "p.yml"
    profile.write_text("title: x\nmeasurements:\n  idle_latency: {}\n", encoding="utf-8")

    def complete(run_id: str, unrestored: tuple[Unrestored, ...]) -> Path:
        begun = begin(tmp_path, run_id=run_id, profile=str(profile))
        end_step(begun, "idle_latency")
        append_record(begun.directory, RestoredRecord(changes=(), unrestored=unrestored))
        append_record(begun.directory, EndRecord(finished_at=NOW, interrupted=False))
        assert finish(begun.directory, now=NOW).run.status == "complete"
        return begun.directory

    left = (Unrestored(setting="turbo", where="no_turbo", wanted="0", found="1", error=None),)
    for run_id, sut in (("r1", "s2"), ("r2", "s1")):
        record_reason(tmp_path, testbed="t1", sut=sut, run_id=run_id, profile="quick", now=NOW, reason="gone")
    suts = [("t1", "s1"), ("t1", "s2")]
    directory = complete("r3", left)
    assert newest_unfinished(tmp_path, suts) == "r3"
    append_record(directory, RestoredRecord(changes=()))
    finish(directory, now=NOW)
    assert newest_unfinished(tmp_path, suts) == "r2"
    complete("r4", left)
    assert newest_unfinished(tmp_path, suts) == "r4"
    complete("r5", ())
    assert newest_unfinished(tmp_path, suts) == "r2"


CHECKED = (FIXTURES / "meltdown_checker" / "0.46.json").read_bytes()


def checker_run(**changes: Any) -> CheckerRun:
    fields: dict[str, Any] = {
        "started_at": NOW,
        "duration_s": 2.5,
        "script_sha256": "2" * 64,
        "argv": ("/bin/sh", "spectre-meltdown-checker.sh", "--batch", "json"),
        "user_id": 0,
        "rc": 2,
        "output": None,
        "output_sha256": None,
        "stderr": "accuracy might be reduced",
        "reason": None,
    }
    return CheckerRun(**{**fields, **changes})


def test_checker_output_is_stored_and_read(begun: BegunRun) -> None:
    directory = begun.directory
    record_checker(directory, checker_run(), CHECKED)
    assert (directory / CHECKER_OUTPUT).read_bytes() == CHECKED
    document = finish(directory, now=NOW)
    assert read_run(directory) == document
    checker = document.meltdown_checker
    assert checker is not None
    assert checker.output == CHECKER_OUTPUT
    assert checker.output_sha256 == hashlib.sha256(CHECKED).hexdigest()
    assert (checker.reason, checker.version, len(checker.findings)) == (None, None, 16)
    assert {name: value for name, value in checker_run() if name not in {"output", "output_sha256"}}.items() <= dict(
        checker
    ).items()


@pytest.mark.parametrize(
    ("fields", "output"),
    [({"reason": "timed out"}, b"["), ({"argv": None, "user_id": None, "reason": "no script"}, None)],
)
def test_a_checker_without_an_answer_has_its_reason(
    begun: BegunRun, fields: dict[str, Any], output: bytes | None
) -> None:
    directory = begun.directory
    record_checker(directory, checker_run(rc=None, **fields), output)
    checker = finish(directory, now=NOW).meltdown_checker
    assert checker is not None
    assert (checker.reason, checker.findings) == (fields["reason"], ())
    assert checker.output == (CHECKER_OUTPUT if output else None)
    assert (directory / CHECKER_OUTPUT).exists() == bool(output)


@pytest.mark.parametrize("harm", ["garbage", "another", "gone"])
def test_unreadable_checker_output_is_a_reason(begun: BegunRun, harm: str) -> None:
    directory = begun.directory
    record_checker(directory, checker_run(), b"modprobe: not found" if harm == "garbage" else CHECKED)
    if harm == "another":
        (directory / CHECKER_OUTPUT).write_bytes(CHECKED.replace(b"true", b"false"))
    elif harm == "gone":
        (directory / CHECKER_OUTPUT).unlink()
    checker = finish(directory, now=NOW).meltdown_checker
    assert checker is not None
    assert checker.findings == ()
    reasons = {"garbage": "not a line such as", "another": "sha256 differs", "gone": "No such file"}
    assert reasons[harm] in str(checker.reason)
