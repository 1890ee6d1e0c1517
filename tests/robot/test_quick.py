# SPDX-License-Identifier: Apache-2.0
"""The quick gate: each check has a SUT that fails it alone, what is outside is measured again, and how it ends."""

import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Any, get_args

import pytest
from nights import HEALTHY, MET
from report_documents import attempt, flagged, index_of, not_begun_document, replace, run_document, store

from calibration.base.commandline import accept_command
from calibration.base.errors import BAD_INPUT, ENVIRONMENT, GOOD, VERDICT_FAILED, EnvironmentLacksError
from calibration.base.statistics import Estimate, estimate
from calibration.base.tuning import Unrestored, not_restored
from calibration.base.validity import flag
from calibration.context.facts import NOT_KNOWN
from calibration.judge.baseline_files import Acceptance, AcceptedRun, Bounds, RunName, add_acceptance, place_of
from calibration.measurements.core_frequency import CoreFrequencyValues
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.jitter import JitterValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.preflight.checks import REQUIRED, Check
from calibration.quick import gate as quick
from calibration.quick import here
from calibration.quick.checks import CheckName
from calibration.quick.gate import SUITE
from calibration.quick.measure import Wanted
from calibration.results.find import find_run
from calibration.results.history import Sut
from calibration.results.model import NotMeasured, RunDocument
from calibration.results.plain import metrics_of
from tests.command import Ended
from tests.command import calibration as command

KINDS = ("idle_latency", "peak_injection_bandwidth", "core_frequency", "jitter")
ACCEPTED_ID = "20260101T030405Z-0a1b"
GAP = "jitter.cpu1.gaps.max_ns"
SPREAD = 0.002
"""Standard deviation of the accepted nights."""

TESTS: dict[CheckName, str] = {
    "measured": "SUT Measured",
    "restored": "Settings Restored",
    "promises": "SUT Matches Inventory",
    "context": "Configuration Unchanged Since Baseline",
    "latency": "Idle Latency Within Baseline",
    "bandwidth": "Read Bandwidth Within Baseline",
    "clock": "Core Clock Within Baseline",
    "gap": "Interruptions Within Baseline",
}

Change = Callable[[RunDocument], RunDocument]


def quiet(found: Estimate, factor: float = 1.0) -> Estimate:
    """Return *found* as if six rounds had agreed within 0.1 %, times *factor*."""
    value = found.value * factor
    parts = (-1, -0.5, -0.1, 0.1, 0.5, 1)
    return estimate([[value * (1 + 0.0005 * part)] for part in parts], found.unit, rounds=range(6))


def with_values(document: RunDocument, kind: str, change: Callable[[Any], dict[str, Any]]) -> RunDocument:
    """Return *document* with the fields of the values of *kind* that *change* returns."""
    index = index_of(document, kind)
    values = document.measurements[index].values
    return replace(document, index, values=values.model_copy(update=change(values)))


def latency(factor: float) -> Change:
    def fields(values: IdleLatencyValues) -> dict[str, Any]:
        return {"latency_ns": quiet(values.latency_ns, factor)}

    return lambda document: with_values(document, "idle_latency", fields)


def bandwidth(factor: float) -> Change:
    def fields(values: PeakValues) -> dict[str, Any]:
        reads = values.mixes["reads"]
        changed = reads.model_copy(update={"bandwidth_mb_s": quiet(reads.bandwidth_mb_s, factor)})
        return {"mixes": {**values.mixes, "reads": changed}}

    return lambda document: with_values(document, "peak_injection_bandwidth", fields)


def clock(factor: float) -> Change:
    def fields(values: CoreFrequencyValues) -> dict[str, Any]:
        rows = [row | {"frequency_hz": quiet(row.frequency_hz, factor)} for row in values.points]
        return {"table": values.table_of(rows)}

    return lambda document: with_values(document, "core_frequency", fields)


def gap(max_ns: float, *, isolated: bool = True) -> Change:
    def fields(values: JitterValues) -> dict[str, Any]:
        return {"isolated": isolated, "gaps": values.gaps.model_copy(update={"max_ns": max_ns})}

    return lambda document: with_values(document, "jitter", fields)


def facts(**changed: str) -> Change:
    names = {name.replace("_", " "): text for name, text in changed.items()}
    return lambda document: document.model_copy(update={"facts": {**document.facts, **names}})


def checks(*found: Check) -> Change:
    return lambda document: document.model_copy(update={"attempts": (attempt(checks=found, health=HEALTHY),)})


def invalid(kind: str) -> Change:
    return lambda document: flagged(document, index_of(document, kind), "PLACEMENT_WRONG", "a page lay on node 1")


def without(kind: str) -> Change:
    def change(document: RunDocument) -> RunDocument:
        kept = tuple(item for item in document.measurements if item.kind != kind)
        return document.model_copy(update={"measurements": kept})

    return change


def lost(kind: str) -> Change:
    missing = NotMeasured(kind=kind, what="Gaps", reason="it crashed", cause="failed")
    return lambda document: document.model_copy(update={"not_measured": (*document.not_measured, missing)})


NOT_PROMISED = MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met", "severity": "flag"})
LOADED = MET.model_copy(
    update={"name": "background_load", "title": "Other load", "found": "gcc", "outcome": "not_met", "severity": "flag"}
)
FULL = LOADED.model_copy(update={"name": "free_memory", "title": "Memory available", "found": "node 0 3 MiB"})


def made(*changes: Change, sut: str = "sut1", run_id: str = "20260102T030405Z-0a1b") -> RunDocument:
    """Return the run of an unchanged SUT, with *changes*."""
    document = run_document(names=KINDS, testbed="testbed1", sut=sut, id=run_id).model_copy(update={"not_measured": ()})
    for change in (checks(MET), latency(1.0), bandwidth(1.0), clock(1.0), gap(1000.0), *changes):
        document = change(document)
    return document


def not_begun(**changes: Any) -> RunDocument:
    """Return the document of the same SUT, on which no measurement began."""
    document = not_begun_document()
    run = document.run.model_copy(update={"testbed": "testbed1", "sut": "sut1"})
    return document.model_copy(update={"run": run, **changes})


def accept(results: Path, sut: str = "sut1", **fields: Any) -> None:
    """Store an accepted run of the SUT in *results*, with bounds of all metrics from twenty nights."""
    document = made(sut=sut, run_id=ACCEPTED_ID)
    store(document, results)

    def bounds(value: float, unit: str, *, upper_only: bool) -> Bounds:
        half = 5.0 * SPREAD
        return Bounds(
            value=value, lower=None if upper_only else value * exp(-half), upper=value * exp(half), unit=unit,
            method="nights", why="spread of 20 nights", spread=SPREAD, relative=True, nights=20,
        )  # fmt: skip

    name = RunName(testbed="testbed1", sut=sut, id=ACCEPTED_ID)
    acceptance = Acceptance(
        accepted_by="Ada Lovelace",
        accepted_at=datetime(2026, 1, 1, tzinfo=UTC),
        reason="as delivered",
        outside=1e-4,
        accepted=(AcceptedRun(**name.model_dump(), night=datetime(2026, 1, 1, tzinfo=UTC).date()),),
        runs=(name,),
        bounds={
            item.metric.name: bounds(item.metric.value, item.metric.unit, upper_only=item.metric.name == GAP)
            for item in metrics_of(document)
            if item.metric.value > 0
        },
    )
    acceptance = acceptance.model_copy(update=fields)
    add_acceptance(results, place_of("sut", ("testbed1", sut), document.facts), acceptance)


class Stand:
    """Stands in for the measuring part: returns the documents given, and notes what is asked."""

    def __init__(self, *answers: Sequence[RunDocument]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[set[str] | None, list[Sut]]] = []
        self.wanted: Wanted | None = None

    def __call__(self, folder: Path, results: Path, wanted: Wanted) -> "Stand":
        del folder, results
        self.wanted = wanted
        return self

    def measure(self, kinds: Iterable[str] | None = None, suts: Sequence[Sut] = ()) -> Sequence[RunDocument]:
        self.asked.append((None if kinds is None else set(kinds), list(suts)))
        if not self.answers:
            raise EnvironmentLacksError("the SUT has no power")
        return self.answers.pop(0)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    accept(folder)
    return folder


def gate(
    monkeypatch: pytest.MonkeyPatch, results: Path, *answers: Sequence[RunDocument], options: Sequence[str] = ()
) -> tuple[Ended, dict[str, tuple[str, str]], Stand]:
    """Gate SUTs that answer with *answers*; return how it ended, and how each test did by its name in the XML."""
    stand = Stand(*answers)
    monkeypatch.setattr(quick, "Sentry", stand)
    output = results.parent / "gate"
    ended = command("gate", "--results", results, "--quick", "--output", output, *options)
    found = {}
    for case in ET.parse(output / "xunit.xml").iter("testcase"):  # noqa: S314 - the file was written here
        failure, skipped = case.find("failure"), case.find("skipped")
        status = "FAIL" if failure is not None else "SKIP" if skipped is not None else "PASS"
        known = failure if failure is not None else skipped
        found[case.get("name", "")] = status, "" if known is None else known.get("message", "")
    return ended, found, stand


def of_sut(found: dict[str, tuple[str, str]], sut: str = "sut1") -> dict[str, tuple[str, str]]:
    """Return the tests of one SUT."""
    start = f"testbed1 / {sut}: "
    return {name.removeprefix(start): result for name, result in found.items() if name.startswith(start)}


def test_an_unchanged_sut_passes_every_check(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found, stand = gate(monkeypatch, results, [made()])
    assert ended.code == GOOD, ended.said
    assert ended.said.splitlines()[-1] == "May we test? Yes: nothing has changed."
    assert {name: status for name, (status, _) in of_sut(found).items()} == dict.fromkeys(TESTS.values(), "PASS")
    assert stand.asked == [(None, [])]
    assert set(TESTS) == set(get_args(CheckName))
    assert {path.name for path in (results.parent / "gate").iterdir()} == set(quick.FILES)


FAILING: dict[str, tuple[Sequence[Change], CheckName, str, set[str]]] = {
    "not what is promised": ([checks(NOT_PROMISED)], "promises", "Kernel release: expected 6.1.*, found 5.4.0-1",
                             set()),
    "another BIOS": ([facts(BIOS="Vendor 2.0 2026")], "context", "BIOS: ", set()),
    "slower memory": ([latency(1.055)], "latency", "+5.5 % (", {"idle_latency"}),
    "less bandwidth": ([bandwidth(0.965)], "bandwidth", "-3.5 % (", {"peak_injection_bandwidth"}),
    "a slower clock": ([clock(0.97)], "clock", "-3 % (", {"core_frequency"}),
    "longer gaps": ([gap(9000.0)], "gap", "CPU 1: 9000 ns, then 9000 ns, accepted at most", {"jitter"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_only_the_matching_check_fails(name: str, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, check, text, kinds = FAILING[name]
    ended, found, stand = gate(monkeypatch, results, [made(*changes)], [made(*changes)] if kinds else [])
    assert ended.code == VERDICT_FAILED, ended.said
    failed = {test: message for test, (status, message) in of_sut(found).items() if status == "FAIL"}
    assert set(failed) == {TESTS[check]}
    assert text in failed[TESTS[check]]
    assert {status for test, (status, _) in of_sut(found).items() if test != TESTS[check]} == {"PASS"}
    assert stand.asked[1:] == ([(kinds, [("testbed1", "sut1")])] if kinds else [])
    assert text[:20] in ended.said
    assert ended.said.splitlines()[-1] == "May we test? No: something has changed."


@pytest.mark.parametrize("changes", [latency(1.2), gap(1e6), checks(FULL)])
def test_what_was_outside_once_passes(changes: Change, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found, _ = gate(monkeypatch, results, [made(changes)], [made()])
    assert ended.code == GOOD, ended.said
    assert {status for status, _ in found.values()} == {"PASS"}


UNDECIDED: dict[str, tuple[Sequence[Change], CheckName, str]] = {
    "a fact that cannot be read any more": ([facts(BIOS=NOT_KNOWN)], "context", "BIOS: "),
    "an invalid reading": ([invalid("idle_latency")], "latency", "invalid: PLACEMENT_WRONG"),
    "a reading that is missing": ([without("core_frequency")], "clock", "not measured: "),
    "an invalid gap": ([gap(1e6), invalid("jitter")], "gap", "CPU 1: invalid: PLACEMENT_WRONG"),
    "a gap that is missing": ([without("jitter"), lost("jitter")], "gap", "not measured: it crashed"),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_cannot_be_told_is_no_pass(name: str, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, check, text = UNDECIDED[name]
    ended, found, _ = gate(monkeypatch, results, [made(*changes)])
    assert ended.code == ENVIRONMENT, ended.said
    assert ended.said.splitlines()[-1] == "May we test? Unknown: something could not be decided."
    (skipped,) = ((test, message) for test, (status, message) in of_sut(found).items() if status != "PASS")
    assert skipped[0] == TESTS[check]
    assert text in skipped[1]


def test_readings_beside_something_else_do_not_fail(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = made(checks(LOADED), latency(1.5), gap(9000.0))
    ended, found, stand = gate(monkeypatch, results, [loaded], [loaded])
    assert ended.code == ENVIRONMENT, ended.said
    skipped = {test: message for test, (status, message) in of_sut(found).items() if status == "SKIP"}
    assert set(skipped) == {TESTS["promises"], TESTS["latency"], TESTS["gap"]}
    assert skipped[TESTS["promises"]].startswith("Other load: expected 6.1.*, found gcc")
    for name in ("latency", "gap"):
        assert skipped[TESTS[name]].endswith("; but the SUT was busy: Other load")
    assert stand.asked[1] == ({"idle_latency", "peak_injection_bandwidth", "jitter"}, [("testbed1", "sut1")])


def test_a_sut_that_is_gone_when_measured_again_keeps_its_first_readings(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, found, _ = gate(monkeypatch, results, [made(latency(1.2), checks(NOT_PROMISED))], [not_begun()])
    assert ended.code == VERDICT_FAILED, ended.said
    assert of_sut(found)[TESTS["promises"]][0] == "FAIL"
    assert of_sut(found)[TESTS["latency"]][1].endswith("outside once")


def test_what_cannot_be_measured_again_stays_undecided(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found, _ = gate(monkeypatch, results, [made(latency(1.2))])
    assert ended.code == ENVIRONMENT
    assert "Not measured again: the SUT has no power" in ended.said
    assert of_sut(found)[TESTS["latency"]][1].endswith("outside once")


def test_another_build_of_sutprobe_is_no_change_of_the_sut(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gate(monkeypatch, results, [made(facts(kernel_bytes="fedcba987654"))])[0].code == GOOD


def test_a_sut_without_isolated_cpus_has_no_check_of_gaps(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found, _ = gate(monkeypatch, results, [made(gap(1e6, isolated=False))])
    assert ended.code == GOOD, ended.said
    assert TESTS["gap"] not in of_sut(found)


def test_a_sut_that_is_not_reachable_is_undecided(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found, _ = gate(monkeypatch, results, [not_begun(attempts=())])
    assert ended.code == ENVIRONMENT, ended.said
    assert set(of_sut(found)) == {TESTS["measured"]}


def test_a_sut_that_preflight_refuses_fails_by_what_it_is_not(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met"})
    gone = not_begun(attempts=(attempt(checks=(refused,), capture=None),))
    ended, found, _ = gate(monkeypatch, results, [gone])
    assert ended.code == VERDICT_FAILED, ended.said
    assert of_sut(found)[TESTS["promises"]] == ("FAIL", "Kernel release: expected 6.1.*, found 5.4.0-1")
    assert of_sut(found)[TESTS["measured"]][0] == "SKIP"


def test_a_sut_that_is_refused_for_what_an_earlier_run_left_changed_fails(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Unrestored(setting="turbo", where="no_turbo", wanted="0", found="1", error=None)
    gone = not_begun(
        attempts=(attempt(capture=None, capture_sha256=None, unrestored=(left,)),),
        flags=(flag("NOT_RESTORED", not_restored([left])),),
    )
    ended, found, _ = gate(monkeypatch, results, [gone])
    assert ended.code == VERDICT_FAILED, ended.said
    status, text = of_sut(found)[TESTS["restored"]]
    assert status == "FAIL"
    assert "Not restored: turbo at no_turbo: wanted 0, found 1" in text


@pytest.mark.parametrize("name", REQUIRED)
def test_a_sut_that_cannot_be_measured_now_is_undecided(
    name: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inventory promises none of it: another calibration, a full disk, a missing Python."""
    lacking = MET.model_copy(
        update={"name": name, "title": REQUIRED[name].title, "outcome": "not_met", "severity": "blocking"}
    )
    gone = not_begun(attempts=(attempt(checks=(lacking,), capture=None),))
    ended, found, stand = gate(monkeypatch, results, [gone])
    assert ended.code == ENVIRONMENT, ended.said
    assert ended.said.splitlines()[-1] == "May we test? Unknown: something could not be decided."
    status, text = of_sut(found)[TESTS["promises"]]
    assert (status, text.startswith(f"{REQUIRED[name].title}: expected")) == ("SKIP", True)
    assert len(stand.asked) == 1, "nothing more is learnt by measuring again"


def test_without_an_accepted_run_nothing_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    ended, found, stand = gate(monkeypatch, tmp_path / "results", [made()])
    assert ended.code == ENVIRONMENT, ended.said
    undecided = {test for test, (status, _) in of_sut(found).items() if status == "SKIP"}
    assert undecided == {TESTS[name] for name in ("context", "latency", "bandwidth", "clock", "gap")}
    accept = accept_command("testbed1/sut1", tmp_path / "results")
    assert of_sut(found)[TESTS["context"]][1] == f"no run of this SUT is accepted: {accept}"
    assert of_sut(found)[TESTS["latency"]][1] == f"idle_latency.latency_ns: no accepted bounds: {accept}"
    assert len(stand.asked) == 1


def test_results_that_do_not_exist_are_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand([made()])
    monkeypatch.setattr(quick, "Sentry", stand)
    ended = command("gate", "--results", tmp_path / "nowhere", "--quick", "--output", tmp_path / "gate")
    assert ended.code == BAD_INPUT
    assert f"no directory of results at {tmp_path / 'nowhere'}" in ended.said
    assert stand.asked == []


def test_an_accepted_run_that_was_removed_is_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (results / "testbed1" / "sut1" / ACCEPTED_ID / "run.json").unlink()
    ended, found, _ = gate(monkeypatch, results, [made()])
    assert ended.code == ENVIRONMENT
    assert of_sut(found)[TESTS["context"]][1] == f"the accepted run {ACCEPTED_ID} is not in the results any more"


def test_tolerances_of_the_lab_widen_the_change_that_matters(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "- metrics: idle_latency.*\n  fraction: 0.1\n  reason: throughput does not depend on it\n"
    (results / "references" / "tolerances.yml").write_text(own, encoding="utf-8")
    assert gate(monkeypatch, results, [made(latency(1.08))])[0].code == GOOD
    (results / "references" / "tolerances.yml").write_text("- metrics: 7\n", encoding="utf-8")
    monkeypatch.setattr(quick, "Sentry", Stand([made()]))
    assert command("gate", "--results", results, "--quick", "--output", results.parent / "other").code == BAD_INPUT


def test_an_unreadable_baseline_is_bad_input(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (results / "references" / "baselines" / "sut" / "testbed1" / "sut1.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(quick, "Sentry", Stand([made()]))
    ended = command("gate", "--results", results, "--quick", "--output", results.parent / "gate")
    assert ended.code == BAD_INPUT, ended.said
    assert "references/baselines/sut/testbed1/sut1.json: " in ended.said


def test_only_what_is_outside_is_measured_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sut in ("sut2", "sut3"):
        accept(results, sut)
    first = [made(), made(latency(1.2), sut="sut2"), made(bandwidth(0.5), sut="sut3")]
    again = [made(sut="sut2"), made(bandwidth(0.5), sut="sut3")]
    ended, found, stand = gate(monkeypatch, results, first, again)
    assert ended.code == VERDICT_FAILED, ended.said
    kinds = {"idle_latency", "peak_injection_bandwidth"}
    assert stand.asked == [(None, []), (kinds, [("testbed1", "sut2"), ("testbed1", "sut3")])]
    assert {status for status, _ in of_sut(found, "sut2").values()} == {"PASS"}
    failed = [test for test, (status, _) in of_sut(found, "sut3").items() if status == "FAIL"]
    assert failed == [TESTS["bandwidth"]]
    assert re.search(rf"^  {TESTS['bandwidth']} +2 +1 +0$", ended.said, re.MULTILINE)
    assert f"  {TESTS['bandwidth']}: testbed1 / sut3\n      -50 % (" in ended.said


def test_a_gate_that_ends_early_leaves_no_answer_of_an_earlier_one(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gate(monkeypatch, results, [made()])[0].code == GOOD
    monkeypatch.setattr(quick, "Sentry", Stand())
    assert command("gate", "--results", results, "--quick", "--output", results.parent / "gate").code == ENVIRONMENT
    assert list((results.parent / "gate").iterdir()) == []


def test_neither_documents_nor_references_of_an_earlier_gate_are_of_this_one(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = results.parent / "gate"
    folder.mkdir()
    left = folder / "runs" / "references" / "x86_64" / "left.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    store(made(sut="sut2"), folder / "runs")
    sentry = quick.Sentry(folder, results, Wanted(None, None, ()))
    assert not left.exists()
    commands = []

    def run(command: Sequence[str]) -> int:
        commands.append(command)
        ours = json.loads(command[-1])
        store(made(run_id=ours["calibration_run_id"]), Path(ours["calibration_results_dir"]))
        return GOOD

    monkeypatch.setattr(sentry, "_run", run)
    assert [document.run.sut for document in sentry.measure()] == ["sut1"]
    assert len(commands) == 1


def test_options_reach_the_measurement(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, stand = gate(
        monkeypatch, results, [made()], options=["-i", "lab.yml", "--limit", "t1", "-e", "a=1", "--forks", "2"]
    )
    assert stand.wanted == Wanted(Path("lab.yml"), "t1", ("a=1",), 2)


@pytest.mark.parametrize(
    ("forks", "variable", "option"),
    [(None, None, ["--forks=100"]), (None, "1", []), (2, "1", ["--forks=2"]), (2, None, ["--forks=2"])],
)
def test_the_operator_says_how_many_are_measured_at_once(
    forks: int | None, variable: str | None, option: list[str], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_FORKS", raising=False)
    if variable is not None:
        monkeypatch.setenv("ANSIBLE_FORKS", variable)
    folder = results.parent / "gate"
    folder.mkdir()
    sentry = quick.Sentry(folder, results, Wanted(None, None, (), forks))
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> int:
        commands.append(command)
        (folder / "run.log").touch()
        return ENVIRONMENT

    monkeypatch.setattr(sentry, "_run", run)
    with pytest.raises(EnvironmentLacksError):
        sentry.measure()
    assert [word for word in commands[0] if word.startswith("--forks")] == option


@pytest.mark.parametrize(("options", "wanted"), [
    (["--quick", "--testbed", "t1"], "--testbed does not go with --quick"),
    (["--quick", "--gates", "own.robot"], "--gates does not go with --quick"),
    (["--limit", "t1"], "--limit needs --quick"),
    (["-e", "a=1"], "-e needs --quick"),
])  # fmt: skip
def test_options_of_the_other_gate_are_refused(options: list[str], wanted: str, results: Path) -> None:
    ended = command("gate", "--results", results, *options)
    assert ended.code == BAD_INPUT
    assert wanted in ended.said


def test_each_check_is_a_test_of_the_suite() -> None:
    from robot.api import TestSuite

    suite = TestSuite.from_file_system(SUITE)
    assert {tag: test.name for test in suite.tests for tag in test.tags} == TESTS
    for test in suite.tests:
        assert [step.name for step in test.body] == [
            f"Then the check {next(iter(test.tags))} passes on SUT ${{SUT}} in testbed ${{TESTBED}}"
        ]


# Around a benchmark


def around(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *answers: RunDocument, before: RunDocument | None = None
) -> tuple[Ended, list[set[str] | None]]:
    """Gate this machine, which answers with *answers*; return how it ended, and what was measured."""
    asked: list[set[str] | None] = []
    left = list(answers)

    def measure(results: Path, kinds: set[str] | None = None) -> RunDocument:
        asked.append(kinds)
        if kinds is None:
            store(left[0], results)
        return left.pop(0)

    monkeypatch.setattr(here, "measure_here", measure)
    if before is None:
        return command("gate", "--quick", "--save", folder / "before"), asked
    store(before, folder / "before")
    return command("gate", "--quick", "--against", folder / "before"), asked


def varied(spread: float) -> Change:
    """Return a change to a latency whose rounds vary by *spread*."""

    def fields(values: IdleLatencyValues) -> dict[str, Any]:
        rounds = [values.latency_ns.value * (1 + spread * part) for part in (-1, -0.5, -0.1, 0.1, 0.5, 1)]
        return {"latency_ns": estimate([[value] for value in rounds], "ns", rounds=range(6))}

    return lambda document: with_values(document, "idle_latency", fields)


def test_a_quiet_machine_is_saved_before_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, asked = around(monkeypatch, tmp_path, made())
    assert ended.code == GOOD, ended.said
    assert ended.said.splitlines()[-1] == "Quiet enough? Yes."
    assert asked == [None]
    assert find_run(tmp_path / "before").name == made().run.id
    for title in ("Idle latency", "Read bandwidth", "Core clock"):
        assert re.search(rf"passed +{title}: .*: a change from 0\.\d+ % on will be seen$", ended.said, re.MULTILINE)


@pytest.mark.parametrize(("changes", "text"), [
    (varied(0.05), "this machine varies too much for 10 %"),
    (checks(LOADED), "Other load: expected 6.1.*, found gcc"),
    (invalid("idle_latency"), "invalid: PLACEMENT_WRONG"),
    (without("core_frequency"), "not measured: "),
])  # fmt: skip
def test_a_machine_that_is_not_quiet_enough_is_said_to_be(
    changes: Change, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, asked = around(monkeypatch, tmp_path, made(changes))
    assert (ended.code, asked) == (ENVIRONMENT, [None]), ended.said
    assert text in ended.said
    assert ended.said.splitlines()[-1] == "Quiet enough? No, or unknown: see above."


@pytest.mark.parametrize(("changes", "kinds"), [
    (latency(1.08), None), (latency(1.13), {"idle_latency"}), (bandwidth(0.85), {"peak_injection_bandwidth"}),
    (clock(0.85), {"core_frequency"}), (facts(processor="another"), None),
])  # fmt: skip
def test_a_machine_is_compared_with_itself_before_the_benchmark(
    changes: Change, kinds: set[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = made(run_id=ACCEPTED_ID), made(changes)
    ended, asked = around(monkeypatch, tmp_path, after, after, before=before)
    same = kinds is None and after.facts == before.facts
    assert ended.code == (GOOD if same else VERDICT_FAILED), ended.said
    assert asked == [None, kinds][: 1 + (kinds is not None)]
    assert ended.said.count("FAILED") == (not same)
    assert ("The same as before? Yes" in ended.said) == same
    assert "before 1" in ended.said
    assert "accepted" not in ended.said


def test_a_longer_gap_and_another_sutprobe_are_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = made(gap(1e6), facts(sutprobe_build="fedcba987654"))
    ended, _ = around(monkeypatch, tmp_path, changed, before=made(run_id=ACCEPTED_ID))
    assert ended.code == GOOD, ended.said


@pytest.mark.parametrize("directory", ["/proc/nowhere", "/proc"])
def test_nothing_is_measured_that_could_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    (tmp_path / "before").symlink_to(directory)
    ended, asked = around(monkeypatch, tmp_path, made())
    assert (ended.code, asked) == (ENVIRONMENT, [])
    assert ended.said.startswith("calibration: cannot write to ")


MEASURING = """import sys, time
try:
    print("measuring", flush=True)
    time.sleep(20)
except KeyboardInterrupt:
    print("restored")
"""
GATE = """import sys
from calibration.quick.measure import run_to_end
run_to_end([sys.executable, "-c", sys.argv[1]], sys.stdout.buffer)
"""


@pytest.mark.parametrize(
    ("number", "ignored"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGHUP, True)],
)
def test_an_interrupted_gate_waits_until_settings_are_restored(number: signal.Signals, ignored: bool) -> None:
    prefix = ["nohup"] if ignored else []
    command = [*prefix, sys.executable, "-c", GATE, MEASURING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"measuring\n"
        process.send_signal(number)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"restored\n"


def test_what_varied_before_the_benchmark_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, asked = around(monkeypatch, tmp_path, made(), before=made(varied(0.05), run_id=ACCEPTED_ID))
    assert (ended.code, asked) == (ENVIRONMENT, [None]), ended.said
    assert "the run before varies too much for 10 %" in ended.said


@pytest.mark.parametrize(("words", "fault"), [
    (("--save", "x"), "--save needs --quick"),
    (("--quick", "--change", "7"), "--change needs --save or --against"),
    (("--quick", "--save", "x", "--forks", "1"), "--forks does not go with --save and --against"),
    (("--quick", "--save", "x", "--output", "y"), "--output does not go with --save and --against"),
    (("--quick", "--against", "nowhere"), "cannot read the directory nowhere"),
])  # fmt: skip
def test_options_of_other_gates_are_refused(
    words: tuple[str, ...], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command("gate", *words)
    assert ended.code == BAD_INPUT
    assert fault in ended.said
    assert list(tmp_path.iterdir()) == []
