# SPDX-License-Identifier: Apache-2.0
"""Every gate has a run that passes it and one that fails it alone; undecided gates are skipped."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace as changed
from datetime import date
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import get_args

import pytest
from nights import HEALTHY, MET, NIGHT, Case, good_case, good_document, judged, measured, verdict, write_night
from report_documents import RUN_ID, attempt, index_of, not_begun_document, replace
from robot.rebot import rebot
from robot.run import run as run_robot

from calibration.base.errors import BAD_INPUT, ENVIRONMENT, GOOD, VERDICT_FAILED, InputError
from calibration.base.tuning import SettingChange
from calibration.base.validity import flag
from calibration.commands.gate import VERDICTS
from calibration.gates.library import NOTHING
from calibration.gates.night import read_night
from calibration.gates.run import OUTPUTS, SUITES, XUNIT, run_gates, run_suites
from calibration.judge.verdicts import Check, ContextChange, Waived
from calibration.measurements.jitter import JitterValues
from calibration.results.model import NotMeasured, RunDocument
from tests.command import Ended
from tests.command import calibration as command

ROOT = Path(__file__).resolve().parents[2]

CHANGE = SettingChange(
    setting="governor", where="cpu0", before="schedutil", wanted="performance", after="performance",
    restored="performance", restored_by="run",
)  # fmt: skip

MICROCODE = ContextChange(fact="microcode", before="0x1", after="0x2", night=date(2025, 12, 30))

LATENCY = "latency_matrix.0.1.latency_ns"
BANDWIDTH = "bandwidth_matrix.1.0.bandwidth_mb_s"
JITTER = "jitter.cpu1.gaps.max_ns"
ALL_LIMITS = "Every Metric Within Limits"


def not_measured(document: RunDocument, kind: str) -> RunDocument:
    """Return *document* without what was measured of *kind*: it failed."""
    index = index_of(document, kind)
    lost = NotMeasured(kind=kind, what=document.measurements[index].title, reason="it crashed", cause="failed")
    kept = document.measurements[:index] + document.measurements[index + 1 :]
    run = document.run.model_copy(update={"status": "incomplete"})
    return document.model_copy(update={"run": run, "measurements": kept, "not_measured": (lost,)})


def promised(document: RunDocument) -> RunDocument:
    check = MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met", "severity": "flag"})
    return document.model_copy(update={"attempts": (attempt(checks=(check,), health=HEALTHY),)})


def left(document: RunDocument) -> RunDocument:
    found = flag("NOT_RESTORED", "Not restored: governor at cpu0: wanted schedutil, found performance")
    attempts = (attempt(checks=(MET,), changes=(CHANGE,), health=HEALTHY),)
    return document.model_copy(update={"attempts": attempts, "flags": (*document.flags, found)})


def corrected(document: RunDocument) -> RunDocument:
    found = flag("ERRORS_CORRECTED", "mc0: 3 corrected memory errors during the run")
    return document.model_copy(update={"flags": (*document.flags, found)})


def uncounted(document: RunDocument) -> RunDocument:
    return document.model_copy(update={"attempts": (attempt(checks=(MET,)),)})


def outside(metric: str, *gates: str) -> tuple[Callable[[], Case], dict[str, str]]:
    """Return a night with *metric* outside its limits, and the *gates* that fail besides that of all metrics."""
    reason = "expected at most 2, found 9"
    return judged("limits", metric, reason=reason), dict.fromkeys((*gates, ALL_LIMITS), f"{metric}: {reason}")


def not_isolated(document: RunDocument) -> RunDocument:
    index = index_of(document, "jitter")
    values = document.measurements[index].values
    assert isinstance(values, JitterValues)
    return replace(document, index, values=values.model_copy(update={"isolated": False}))


def of_another_core() -> Case:
    """Return a night with jitter outside its limits, of a CPU that is not isolated."""
    case = outside(JITTER)[0]()
    return changed(case, document=not_isolated(case.document))


FAILING: dict[str, tuple[Callable[[], Case], dict[str, str]]] = {
    "the kernel is not the promised one": (
        measured(promised),
        {"SUT Matches Inventory": "Kernel release: expected 6.1.*, found 5.4.0-1"},
    ),
    "a governor was not put back": (
        measured(left),
        {"Settings Restored": ("Not restored: governor at cpu0: wanted schedutil, found performance")},
    ),
    "a module corrected errors": (
        measured(corrected),
        {"No Memory Or Link Errors": "mc0: 3 corrected memory errors during the run"},
    ),
    "a planned measurement crashed": (
        measured(lambda document: not_measured(document, "loaded_latency")),
        {"Run Complete And Valid": "run incomplete, "},
    ),
    "an earlier figure is missing": (
        judged("missing", LATENCY, reason="no valid value this night"),
        {"Nothing Missing Since Earlier Nights": f"{LATENCY}: no valid value this night"},
    ),
    "an isolated core is disturbed": outside(JITTER, "Jitter Of Isolated CPUs Within Limits"),
    "a core that is not isolated": (of_another_core, outside(JITTER)[1]),
    "an entry of the latency matrix": outside(LATENCY, "Latency Matrix Within Limits"),
    "an entry of the bandwidth matrix": outside(BANDWIDTH, "Bandwidth Matrix Within Limits"),
    "a figure contradicts another": (
        judged("consistency", LATENCY, reason="140 ns, expected at most 90 ns"),
        {"No Metric Contradicts Another": f"{LATENCY}: 140 ns, expected at most 90 ns"},
    ),
    "a level has drifted": (
        judged("drift", LATENCY, reason="level +9 % since 2025-12-30", context_changes=(MICROCODE,)),
        {"No Level Has Drifted": f"{LATENCY}: level +9 % since 2025-12-30. Configuration: microcode: was 0x1, is 0x2"},
    ),
    "a figure spreads": (
        judged("spread", LATENCY, reason="spread of nights +200 %"),
        {"Night To Night Spread Unchanged": f"{LATENCY}: spread of nights +200 %"},
    ),
    "a figure flips": (
        judged("bimodal", LATENCY, reason="flips between 90 ns and 120 ns"),
        {"No Metric Flips Between Two Levels": f"{LATENCY}: flips between 90 ns and 120 ns"},
    ),
    "a server is not like the others": (
        judged("homogeneity", LATENCY, reason="8 % above the others", context_changes=(MICROCODE,)),
        {
            "SUT Like The Others Of Its Testbed": f"{LATENCY}: 8 % above the others. "
            "Configuration: microcode: others have 0x1, this one 0x2"
        },
    ),
}

FAULTY = ("a planned measurement crashed", "an earlier figure is missing", "a figure contradicts another")
"""Failures of the measurement: they say nothing about the machine."""

MAY_WE_TEST = "May We Test"


# What cannot be told


def unjudged(check: str) -> Callable[[], Case]:
    """Return what makes the good night without the verdicts of *check*."""

    def make() -> Case:
        case = good_case()
        return changed(case, verdicts=[item for item in case.verdicts if item.check != check])

    return make


WAIVER = Waived(reason="DIMM ordered", by="lab", until=date(2026, 2, 1))


def beside(name: str) -> Callable[[], Case]:
    """Return a night in which the check *name*, of something that nobody promises, did not pass."""
    found = {"name": name, "title": "Alone", "expected": "none", "found": "run r2", "outcome": "not_met"}
    checks = (MET, MET.model_copy(update=found))
    return measured(
        lambda document: document.model_copy(update={"attempts": (attempt(checks=checks, health=HEALTHY),)})
    )


SKIPPING: dict[str, tuple[Callable[[], Case], dict[str, str]]] = {
    "something that nobody promises": (
        beside("background_load"),
        {"SUT Matches Inventory": "Alone: expected none, found run r2"},
    ),
    "a figure without a reference": (
        judged("limits", LATENCY, outcome="no_reference", reason="no baseline or limit"),
        dict.fromkeys(
            ("Latency Matrix Within Limits", ALL_LIMITS), f"{LATENCY}: no baseline or limit"
        ),
    ),
    "no isolated CPU": (
        measured(not_isolated), {"Jitter Of Isolated CPUs Within Limits": "the run measured no isolated CPU"}
    ),
    "a SUT that counts no errors": (
        measured(uncounted),
        {"No Memory Or Link Errors": "the SUT does not count memory or PCIe link errors"},
    ),
    "a SUT alone in its testbed": (unjudged("homogeneity"),
                                   {"SUT Like The Others Of Its Testbed": NOTHING}),
    "a waived failure": (judged("limits", LATENCY, outcome="pass", reason="99 ns, waived until 2026-02-01",
                                waiver=WAIVER), {}),
}  # fmt: skip

NO_RUN = "no run this night"


def not_begun() -> Case:
    lost = verdict("missing", "run", outcome="fail", value=None, reason="the run is not_begun")
    return Case(not_begun_document(), [lost])


def no_run() -> Case:
    missing = verdict("missing", "run", run_id=None, outcome="fail", value=None, reason=NO_RUN)
    return Case(good_document(), [missing], measured=False)


CASES: dict[str, Callable[[], Case]] = {
    "good": good_case,
    "not begun": not_begun,
    "no run": no_run,
    **{name: make for name, (make, _) in (FAILING | SKIPPING).items()},
}
SUTS = {name: f"sut{number}" for number, name in enumerate(CASES)}


def case_of(name: str) -> Case:
    """Return a case as that of its own SUT."""
    case, sut = CASES[name](), SUTS[name]
    run = case.document.run.model_copy(update={"testbed": "testbed1", "sut": sut})
    verdicts = [changed(item, sut=sut) for item in case.verdicts]
    return changed(case, document=case.document.model_copy(update={"run": run}), verdicts=verdicts)


Ends = dict[str, dict[str, tuple[str, str]]]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ends, str]:
    """How each gate ended for each case, with its message; and Robot Framework's output. All are SUTs of one night."""
    folder = tmp_path_factory.mktemp("night")
    results, verdicts = write_night(folder, list(map(case_of, CASES)))
    ends: Ends = {name: {} for name in CASES}
    names = {f"testbed1 / {sut}": name for name, sut in SUTS.items()}
    for tested in run_gates(folder / "gate", read_night(results, verdicts=verdicts)):
        ends[names[tested.sut]][tested.gate] = tested.status, tested.message
    return ends, (folder / "gate" / "output.xml").read_text(encoding="utf-8")


def ended(gates: dict[str, tuple[str, str]], status: str) -> dict[str, str]:
    """Return the messages of the gates that ended as *status*."""
    return {gate: message for gate, (how, message) in gates.items() if how == status}


def test_a_good_night_passes_every_gate(gated: tuple[Ends, str]) -> None:
    ends, _ = gated
    assert {status for status, _ in ends["good"].values()} == {"PASS"}, ends["good"]
    assert ends["good"][MAY_WE_TEST][1].startswith("as accepted\n  Measurement: ")
    failed = {gate for _, gates in FAILING.values() for gate in gates}
    assert {*failed, MAY_WE_TEST} == set(ends["good"]), "each gate has a night in which it fails"


@pytest.mark.parametrize("name", FAILING)
def test_only_the_matching_gate_fails(name: str, gated: tuple[Ends, str]) -> None:
    gates = dict(gated[0][name])
    status, answer = gates.pop(MAY_WE_TEST)
    if name in FAULTY:
        assert (status, answer.partition(": ")[0]) == ("SKIP", "unknown"), "this is not about the machine"
    else:
        assert (status, answer.partition(" ")[0].strip(":")) == ("FAIL", "fails")
    wanted = FAILING[name][1]
    failed = ended(gates, "FAIL")
    assert set(failed) == set(wanted), failed
    for gate, message in wanted.items():
        assert failed[gate].startswith(message)


@pytest.mark.parametrize("name", SKIPPING)
def test_undecided_gates_are_skipped(name: str, gated: tuple[Ends, str]) -> None:
    gates = gated[0][name]
    assert ended(gates, "FAIL") == {}
    assert ended(gates, "SKIP") == SKIPPING[name][1]


def test_waived_failure_is_reported(gated: tuple[Ends, str]) -> None:
    assert "waived until 2026-02-01" in gated[1]


def test_the_log_has_failures_and_counts(gated: tuple[Ends, str]) -> None:
    ends, log = gated
    root = ET.fromstring(log)  # noqa: S314 - the file was written here
    tests = {test.get("name"): test for test in root.iter("test")}
    assert set(tests) == set(ends["good"])
    assert all(len(list(test.iter("kw"))) == 1 for test in tests.values()), "each gate is one step, for all SUTs"
    for gate, test in tests.items():
        ended = [gates[gate] for gates in ends.values()]
        counts = str(test.findtext("./status")).partition("\n")[0]
        assert counts.startswith(f"{len(CASES)} SUTs: ")
        text = "\n".join(str(item.text) for item in test.iter("msg"))
        for status, word in (("FAIL", "failed"), ("SKIP", "skipped"), ("PASS", "passed")):
            count = sum(how == status for how, _ in ended)
            assert (f"{count} {word}" in counts.partition(": ")[2].split(", ")) == (count > 0)
        assert all(why in text for how, why in ended if how != "PASS")
    assert "as it was" not in log, "what passes is only counted"


def test_a_gate_gives_the_answer(gated: tuple[Ends, str]) -> None:
    _, answer = gated[0]["the kernel is not the promised one"][MAY_WE_TEST]
    said = answer.splitlines()
    assert said[0] == f"fails since {NIGHT}: Kernel release: expected 6.1.*, found 5.4.0-1"
    assert [line.strip().partition(": ")[0] for line in said[1:-1]] == ["Measurement", "Changed", "Do"]
    assert said[-2].strip().startswith("Do: correct the SUT or its inventory: calibration audit testbed1/")
    assert said[-1].strip() == "May we test? no"


def test_gates_of_a_run_that_did_not_begin(gated: tuple[Ends, str]) -> None:
    gates = gated[0]["not begun"]
    assert set(ended(gates, "FAIL")) == {
        "Run Complete And Valid",
        "Nothing Missing Since Earlier Nights",
        "SUT Matches Inventory",
        "Settings Restored",
    }
    assert ended(gates, "PASS") == {}


def test_a_sut_without_a_run_fails_one_gate(gated: tuple[Ends, str]) -> None:
    gates = gated[0]["no run"]
    assert ended(gates, "FAIL") == {"Nothing Missing Since Earlier Nights": NO_RUN}
    skipped = ended(gates, "SKIP")
    assert skipped.pop(MAY_WE_TEST).startswith(f"unknown: not measured: {NO_RUN}\n")
    assert set(skipped.values()) == {f"no run on {NIGHT}"}


# The command


def gate(*options: str | Path) -> Ended:
    """Run ``calibration gate`` with *options*."""
    return command("gate", *options)


def test_a_good_night_is_one_screen(tmp_path: Path) -> None:
    results, verdicts = write_night(tmp_path, [good_case("sut1"), good_case("sut2")])
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out", "--night", str(NIGHT))
    assert code == GOOD, text
    assert text.startswith(f"Night {NIGHT}: 2 SUTs\n")
    assert text.splitlines()[3].startswith(f"  {MAY_WE_TEST} ")
    assert text.splitlines()[-1] == "May we test? Yes: 2 SUTs"
    assert "No Metric Contradicts Another               2       0        0" in text
    assert len(text.splitlines()) < 25
    assert f'name="Night">{NIGHT}<' in (tmp_path / "out" / "output.xml").read_text(encoding="utf-8")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"log.html", "report.html", "output.xml", "xunit.xml", VERDICTS}


def test_suts_of_one_name_are_told_apart_by_their_testbed(tmp_path: Path) -> None:
    results, path = write_night(tmp_path, [good_case("sut1")])
    judged_night = json.loads(path.read_bytes())
    judged_night["verdicts"] += [{**found, "testbed": "testbed2"} for found in judged_night["verdicts"]]
    path.write_text(json.dumps(judged_night), encoding="utf-8")
    assert read_night(results, verdicts=path).of("testbed2", None).verdicts.keys() == {("testbed2", "sut1")}


def test_a_faulty_night_names_sut_and_reason(tmp_path: Path) -> None:
    bad = promised(good_document("sut2"))
    results, verdicts = write_night(tmp_path, [good_case("sut1"), changed(good_case("sut2"), document=bad)])
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")
    assert code == VERDICT_FAILED, text
    assert "  SUT Matches Inventory: testbed1 / sut2\n      Kernel release: expected 6.1.*" in text
    assert text.splitlines()[-1] == "May we test? No: testbed1/sut2; yes: 1 SUT"
    root = ET.parse(tmp_path / "out" / "xunit.xml")  # noqa: S314 - the file was written here
    failed = [item for item in root.iter("testcase") if item.find("failure") is not None]
    names = [f"testbed1 / sut2: {name}" for name in (MAY_WE_TEST, "SUT Matches Inventory")]
    assert [item.get("name") for item in failed] == names
    assert {item.get("classname") for item in failed} == {"Gates of a night.Answer", "Gates of a night.Verdicts"}
    code, text = gate(
        "--results", results, "--verdicts", tmp_path / "out" / VERDICTS, "--sut", "sut1", "--output", tmp_path / "two"
    )
    assert code == GOOD, text
    assert text.startswith(f"Night {NIGHT}: 1 SUT\n")


def test_control_characters_in_a_reason_are_escaped(tmp_path: Path) -> None:
    results, verdicts = judged("drift", LATENCY, reason="\x1b[2Jall is well")().write(tmp_path)
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")
    assert code == VERDICT_FAILED
    assert "\x1b" not in text
    assert r"\x1b[2Jall is well" in text


def test_night_is_judged_if_no_verdicts_are_given(tmp_path: Path) -> None:
    results, _ = write_night(tmp_path, [good_case("sut1"), good_case("sut2")])
    code, text = gate("--results", results, "--output", tmp_path / "out")
    assert code == GOOD, text
    assert "No Metric Contradicts Another               2       0        0" in text
    assert "Every Metric Within Limits                  0       0        2" in text
    judged = json.loads((tmp_path / "out" / VERDICTS).read_text(encoding="utf-8"))
    assert {item["sut"] for item in judged["verdicts"]} == {"sut1", "sut2"}
    code, text = gate("--results", results, "--output", tmp_path / "out", "--night", "2026-01-03")
    assert code == BAD_INPUT
    assert "2026-01-03" in text


@pytest.mark.parametrize(("options", "wanted"), [
    (["--sut", "nobody"], "unknown SUT 'nobody', expected sut1"),
    (["--testbed", "nowhere"], "unknown testbed 'nowhere', expected testbed1"),
    (["--night", "2026-01-03"], "expected those of 2026-01-03"),
    (["--known-hosts", "known_hosts"], "--known-hosts needs --live INVENTORY"),
    (["--gates", "nowhere.robot"], "no gates at nowhere.robot"),
], ids=["no such SUT", "no such testbed", "another night", "no inventory", "no gates"])  # fmt: skip
def test_bad_usage_exits_with_2(options: list[str], wanted: str, tmp_path: Path) -> None:
    results, verdicts = good_case().write(tmp_path)
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out", *options)
    assert code == BAD_INPUT, text
    assert wanted in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("given", "wanted"),
    [([{"sut": "sut1"}], "verdicts.json: not the output of calibration judge --json"), ([], "no verdicts tonight")],
)
def test_verdicts_that_judge_nothing_are_refused(given: list[object], wanted: str, tmp_path: Path) -> None:
    results, verdicts = good_case().write(tmp_path)
    verdicts.write_text(json.dumps({"verdicts": given, "answers": []}), encoding="utf-8")
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")
    assert code == BAD_INPUT
    assert wanted in text


def test_output_inside_the_results_is_refused(tmp_path: Path) -> None:
    results, verdicts = good_case().write(tmp_path)
    before = sorted(results.rglob("*"))
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", results / "testbed1" / "gate")
    assert code == BAD_INPUT
    assert "is inside the results; choose another --output" in text
    assert gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")[0] == GOOD
    assert sorted(results.rglob("*")) == before


@pytest.mark.parametrize("name", [*OUTPUTS, XUNIT])
def test_a_file_that_cannot_be_written_is_an_error(name: str, tmp_path: Path) -> None:
    """CI would take yesterday's for the answer."""
    results, verdicts = good_case().write(tmp_path)
    (tmp_path / "out" / name).mkdir(parents=True)
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")
    assert code == ENVIRONMENT, text
    assert f"cannot write {tmp_path / 'out' / name}: Is a directory" in text


def test_files_of_an_earlier_night_are_replaced_though_they_are_read_only(tmp_path: Path) -> None:
    results, verdicts = good_case().write(tmp_path)
    (tmp_path / "out").mkdir()
    for name in (*OUTPUTS, XUNIT):
        (tmp_path / "out" / name).write_text("yesterday", encoding="utf-8")
        (tmp_path / "out" / name).chmod(0o444)
    assert gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")[0] == GOOD
    texts = {name: (tmp_path / "out" / name).read_text(encoding="utf-8") for name in (*OUTPUTS, XUNIT)}
    assert [name for name, text in texts.items() if "yesterday" in text] == []


def test_robot_framework_that_does_not_write_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, verdicts = good_case().write(tmp_path)
    module = import_module("robot.run")
    real = module.run

    def loses(*suites: Path, **options: object) -> int:
        code: int = real(*suites, **options)
        (tmp_path / "out" / "log.html").unlink()
        return code

    monkeypatch.setattr(module, "run", loses)
    code, text = gate("--results", results, "--verdicts", verdicts, "--output", tmp_path / "out")
    assert code == ENVIRONMENT, text
    assert f"log.html cannot be written to {tmp_path / 'out'}" in text


def test_a_full_disk_is_named_without_a_traceback(tmp_path: Path) -> None:
    results, verdicts = good_case().write(tmp_path)
    words = ["gate", "--results", str(results), "--verdicts", str(verdicts), "--output", str(tmp_path / "out")]
    limited = ["/bin/bash", "-c", 'ulimit -f 100; exec "$@"', "bash", sys.executable, "-m", "calibration.cli", *words]
    ended = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == ENVIRONMENT, ended.stderr
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr


# Suites of one's own, and Robot Framework's own command

OWN = """*** Settings ***
Resource    calibration/gates/gates.resource

*** Test Cases ***
The SUT Was Measured With The Nightly Profile
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then Should Be Equal    ${RUN.run.profile}    nightly
"""


def test_own_gate_is_run_per_sut(tmp_path: Path) -> None:
    assert "\n".join(f"   {line}".rstrip() for line in OWN.splitlines()) in (ROOT / "docs/guide/gates.rst").read_text(
        encoding="utf-8"
    )
    (tmp_path / "own.robot").write_text(OWN, encoding="utf-8")
    results, verdicts = write_night(tmp_path, [good_case("sut1"), good_case("sut2")])
    code, text = gate(
        "--results", results, "--verdicts", verdicts, "--gates", tmp_path / "own.robot", "--output", tmp_path / "out"
    )
    assert code == VERDICT_FAILED, text
    named = "The SUT Was Measured With The Nightly Profile (2): testbed1 / sut1, testbed1 / sut2"
    assert f"  {named}\n      quick != nightly" in text
    log = (tmp_path / "out" / "output.xml").read_text(encoding="utf-8")
    assert f"${{RUN}} = run {RUN_ID} of testbed1 / sut1<" in log, "and not the whole document"


def test_own_gate_on_every_sut_is_one_per_sut_if_that_decides(tmp_path: Path) -> None:
    check = "the checks drift pass on every SUT"
    own = (
        f"*** Settings ***\nResource    calibration/gates/gates.resource\n*** Test Cases ***\n"
        f"Steady\n    {check}\nChanged\n    Run Keyword And Expect Error    2 SUTs: 1 failed*    {check}\n"
        f"Broken\n    Run Keyword And Ignore Error    {check}\n    Fail    no\n"
    )
    (tmp_path / "own.robot").write_text(own, encoding="utf-8")
    drifted = [changed(item, sut="sut2") for item in judged("drift", LATENCY, reason="level +9 %")().verdicts]
    cases = [good_case("sut1"), Case(good_document("sut2"), drifted)]
    results, verdicts = write_night(tmp_path, cases)
    tested = run_gates(tmp_path / "out", read_night(results, verdicts=verdicts), [tmp_path / "own.robot"])
    assert {(test.gate, test.sut, test.status) for test in tested if test.gate in {"Steady", "Changed", "Broken"}} == {
        ("Steady", "testbed1 / sut1", "PASS"),
        ("Steady", "testbed1 / sut2", "FAIL"),
        ("Changed", "", "PASS"),
        ("Broken", "", "FAIL"),
    }


SKIPPING_TEARDOWNS = {
    "of the test": "*** Test Cases ***\nOne\n    Fail    broken\n    [Teardown]    Skip    no matter\n",
    "of a test with a failed setup": "*** Test Cases ***\nOne\n    [Setup]    Fail    broken\n    Log    1\n"
    "    [Teardown]    Skip    no matter\n",
    "after a failure that lets the gate go on": "*** Test Cases ***\nOne\n"
    "    Run Keyword And Continue On Failure    Fail    broken\n    Skip    no matter\n",
    "of the suite": "*** Settings ***\nSuite Teardown    Skip    no matter\n"
    "*** Test Cases ***\nOne\n    Fail    broken\nTwo\n    Log    1\n",
    "of the suite, after a failed teardown": "*** Settings ***\nSuite Teardown    Skip    no matter\n"
    "*** Test Cases ***\nOne\n    Log    1\n    [Teardown]    Fail    broken\nTwo\n    Log    1\n",
    "of the suite, after its failed setup": "*** Settings ***\nSuite Setup    Fail    broken\n"
    "Suite Teardown    Skip    no matter\n*** Test Cases ***\nOne\n    Log    1\n",
}
"""Gates that fail and then skip."""


@pytest.mark.parametrize("text", SKIPPING_TEARDOWNS.values(), ids=SKIPPING_TEARDOWNS)
def test_a_gate_that_failed_stays_failed_through_a_skip(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.robot").write_text(text, encoding="utf-8")
    results, verdicts = good_case("sut1").write(tmp_path)
    out = tmp_path / "out"
    code, said = gate("--results", results, "--verdicts", verdicts, "--gates", tmp_path / "own.robot", "--output", out)
    assert code == VERDICT_FAILED, said
    assert "\nFailed\n  One: \n      broken (and " in said
    assert said.splitlines()[-1] == "May we test? No: testbed1/sut1"
    written = {"log": None, "report": None, "xunit": "again.xml", "outputdir": out, "stdout": StringIO()}
    assert rebot(out / "output.xml", out / "output.xml", merge=True, **written) == 1
    for name in ("xunit.xml", "again.xml"):
        root = ET.parse(out / name)  # noqa: S314 - the file was written here
        failed = [item for item in root.iter("testcase") if item.find("failure") is not None]
        assert [item.get("name") for item in failed] == ["One"], name
        assert "broken" in str(failed[0].find("failure").get("message"))  # type: ignore[union-attr]
    assert '"fail":1' in (out / "log.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [
    "*** Test Cases ***\nOne\n    Skip    no matter\n",
    "*** Test Cases ***\nOne\n    [Setup]    Skip If    True    no matter\n    Fail    not run\n",
    "*** Test Cases ***\nOne\n    Run Keyword And Ignore Error    Fail    expected\n    Skip    no matter\n",
    "*** Test Cases ***\nOne\n    [Tags]    robot:skip-on-failure\n    Fail    broken\n",
    "*** Settings ***\nSuite Setup  Fail  broken\n*** Test Cases ***\nOne\n  [Tags]  robot:skip\n  Log  1\n",
], ids=["body", "setup", "expected failure", "asked for", "always"])  # fmt: skip
def test_a_skip_without_a_failure_stays_a_skip(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.robot").write_text(text, encoding="utf-8")
    (one,) = run_suites([tmp_path / "own.robot"], tmp_path / "out", {}, name="Own")
    assert one.status == "SKIP"


def test_a_gate_that_failed_stays_failed_for_robot_itself(tmp_path: Path) -> None:
    own = f"{OWN}    [Teardown]    Skip    no matter\n"
    (tmp_path / "own.robot").write_text(own, encoding="utf-8")
    results, verdicts = good_case("sut1").write(tmp_path)
    variables = ["-v", f"RESULTS:{results}", "-v", f"VERDICTS:{verdicts}"]
    command = [sys.executable, "-m", "robot", *variables, "--outputdir", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, str(tmp_path / "own.robot")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert "1 test, 0 passed, 1 failed" in done.stdout


@pytest.mark.parametrize(("text", "wanted"), [
    ("*** Settings ***\nLibrary    no.such.Library\n*** Test Cases ***\nOne\n    Log    1\n", "no.such.Library"),
    ("*** Test Cases ***\n", "contains no tests"),
], ids=["no such library", "no test"])  # fmt: skip
def test_an_unreadable_suite_is_bad_input(text: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "own.robot").write_text(text, encoding="utf-8")
    results, verdicts = good_case().write(tmp_path)
    code, message = gate(
        "--results", results, "--verdicts", verdicts, "--gates", tmp_path / "own.robot", "--output", tmp_path / "out"
    )
    assert code == BAD_INPUT, message
    assert wanted in message


def test_gates_that_all_skip_are_an_error(tmp_path: Path) -> None:
    lost = verdict("drift", LATENCY, run_id=None, value=None, outcome="no_reference")
    results, path = write_night(tmp_path, [good_case("sut2"), Case(good_document(), [lost], measured=False)])
    judged_night = json.loads(path.read_bytes())
    of_one = {**judged_night, "verdicts": [found for found in judged_night["verdicts"] if found["sut"] == "sut1"]}
    path.write_text(json.dumps(of_one), encoding="utf-8")
    with pytest.raises(InputError, match="all 15 gates were skipped"):
        run_gates(tmp_path / "gate", read_night(results, verdicts=path))


def test_every_suite_passes_a_dry_run(tmp_path: Path) -> None:
    said, errors = StringIO(), StringIO()
    assert run_robot(SUITES, dryrun=True, outputdir=tmp_path, stdout=said, stderr=errors) == 0, said.getvalue()
    assert "16 tests, 16 passed, 0 failed" in said.getvalue()
    assert "ERROR" not in errors.getvalue()
    text = "".join(path.read_text(encoding="utf-8") for path in SUITES.glob("*.robot"))
    named = ", ".join(re.findall(r"Then the checks (.*) pass on every SUT", text)).split(", ")
    assert sorted(named) == sorted(get_args(Check)), "each check of the judge is that of one gate"


def test_robot_alone_runs_the_suites_for_each_sut(tmp_path: Path) -> None:
    results, verdicts = write_night(tmp_path, [good_case("sut1"), good_case("sut2")])
    variables = ["-v", f"RESULTS:{results}", "-v", f"VERDICTS:{verdicts}"]
    command = [sys.executable, "-m", "robot", *variables, "--exclude", "live", "--outputdir", str(tmp_path / "out")]
    done = subprocess.run([*command, str(SUITES)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "15 tests, 15 passed, 0 failed" in done.stdout


def test_robot_alone_without_results_passes_nothing(tmp_path: Path) -> None:
    said = StringIO()
    assert run_robot(SUITES, outputdir=tmp_path, stdout=said, stderr=said) == 16, said.getvalue()
    assert "no directory of results: set the variable RESULTS" in said.getvalue()


def test_suites_are_package_data() -> None:
    import tomllib

    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    found = {path for pattern in data["*"] for path in SUITES.glob(pattern)}
    assert found == {path for path in SUITES.iterdir() if path.is_file() and path.suffix != ".py"}
