# SPDX-License-Identifier: Apache-2.0
"""The operator's opendcdiag after a burn-in: its output, what fails the run, and how it is asked to run."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.build import BuiltProbe
from calibration.finish import finish
from calibration.formats.opendcdiag import MAX_BYTES, read_ended, read_output
from calibration.profiles import parse_profile
from calibration.report.summary import outcome
from calibration.results.model import RunDocument
from calibration.run import session
from calibration.run.answers import RecordReader, dcdiag_argv
from calibration.run.lifecycle import BegunRun, begin
from calibration.run.records import StepRecord, append_record
from calibration.run.session import Request
from tests.recorded import read
from tests.report.report_documents import page_of, parsed
from tests.unit.machines import CAPTURED
from tests.unit.test_burn_in import NOW, ROUNDS, failed_by

FIXTURES = Path(__file__).parent.parent / "fixtures" / "opendcdiag"
PASS, FAIL, HANG, KILLED = ((FIXTURES / f"{name}.log").read_bytes() for name in ("pass", "fail", "hang", "killed"))
WRONG = "selftest_datacomparefail_uint8_t"
FAULT = f"opendcdiag: 3 tests failed: {WRONG} 2 times (CPUs 0, 1), selftest_sigsegv 2 times, selftest_failinit 2 times"
HUNG = "opendcdiag: 1 test failed: selftest_freeze 1 time (CPUs 0, 1)"


def test_every_run_of_a_test_counts() -> None:
    found = read_output(PASS)
    assert found.version == "opendcdiag-65b0814a06fa"
    assert found.fault is None
    counts = {test.test: (test.passed, test.failed, test.skipped, test.undecided) for test in found.tests}
    assert counts == {
        "eigen_gemm_double_dynamic_square": (3, 0, 0, 0),
        "ifs": (0, 0, 3, 0),
        "zstd1": (3, 0, 0, 0),
        "mce_check": (2, 0, 0, 0),
    }


def test_failed_and_crashed_tests_are_named_with_their_cpus() -> None:
    found = read_output(FAIL)
    assert found.fault == FAULT
    first, again = next(test.failures for test in found.tests if test.test == WRONG)
    assert (first.cpus, first.cpu_mask, first.seed) == ((0, 1), "XX", "LCG:995861823")
    assert first == again
    counts = {test.test: (test.passed, test.failed, test.skipped, test.undecided) for test in found.tests}
    assert counts["selftest_pass"] == (1, 0, 0, 0)
    assert counts["selftest_skip"] == (0, 0, 1, 0)


def test_a_test_that_hangs_failed() -> None:
    found = read_output(HANG)
    assert found.exit == "invalid"
    assert found.fault == HUNG


def test_a_test_that_the_kernel_killed_did_not_fail() -> None:
    with pytest.raises(InputError, match="ended with invalid, and no test failed: selftest_sigkill: Killed"):
        read_output(KILLED)
    unable = KILLED.replace(b"result: crash", b"result: operating system error").replace(b"'Killed'", b"'system error'")
    with pytest.raises(InputError, match="no test failed: selftest_sigkill: system error"):
        read_output(unable.replace(b"code: 9", b"code: 71"))
    fault = read_output(KILLED.replace(b"code: 9", b"code: 11")).fault
    assert fault == "opendcdiag: 1 test failed: selftest_sigkill 1 time"


def test_a_failed_test_counts_whatever_the_last_line_says() -> None:
    assert read_output(FAIL.replace(b"exit: fail", b"exit: pass")).fault == FAULT
    assert read_output(PASS.replace(b"exit: pass", b"exit: fail")).fault == "opendcdiag: 0 tests failed: it names none"
    assert read_output(PASS.replace(b"result: pass", b"result: timed out", 1)).fault is not None


def test_a_failure_without_a_thread_has_the_mask() -> None:
    found = read_output(FAIL.replace(b"    state: failed\n", b""))
    assert found.fault == FAULT.replace("CPUs 0, 1", "mask XX")


@pytest.mark.parametrize("length", [len(FAIL), len(FAIL) - 5, FAIL.index(b"- test: selftest_sigsegv") + 60])
def test_what_failed_before_the_program_was_ended_counts(length: int) -> None:
    found = read_ended(FAIL[:length])
    assert found is not None
    assert found.fault is not None
    assert f"{WRONG} 2 times (CPUs 0, 1)" in found.fault


@pytest.mark.parametrize(
    "output", [b"", b"Try --help\n", PASS, PASS[:-100], KILLED, FAIL[: FAIL.index(b"  result: fail")]]
)
def test_what_passed_before_the_program_was_ended_does_not(output: bytes) -> None:
    assert read_ended(output) is None


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "another form"),
    (b"exit: pass\nversion: x\n", "tested nothing"),
    (PASS.replace(b"result: pass", b"result: skip"), "tested nothing"),
    (PASS.replace(b"exit: pass", b"exit: invalid"), "ended with invalid, and no test failed"),
    (PASS.replace(b"exit: pass", b"exit: interrupted"), "ended with interrupted"),
    (PASS.replace(b"exit: pass", b""), "another form: exit"),
    (PASS.replace(b"result: pass", b"result: fine", 1), "another form"),
    (FAIL[: len(FAIL) // 2], "another form|not valid YAML"),
    (b"[" * 10_000, "not valid YAML"),
])  # fmt: skip
def test_anything_else_is_no_answer(content: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_output(content)


def test_an_hour_of_tests_is_within_the_limit() -> None:
    entry = PASS[PASS.index(b"- test: zstd1") : PASS.index(b"- test: mce_check")]
    assert 3600 * len(entry) < MAX_BYTES / 2
    assert dcdiag_argv(3600)[-4:] == ("-t", "1s", "--max-test-loop-count", "0")


def test_it_needs_a_burn_in() -> None:
    with pytest.raises(InputError, match="opendcdiag_s needs the measurement burn_in"):
        parse_profile("title: t\nopendcdiag_s: 5\nmeasurements: {jitter: {}}\n", "p", "p.yml")
    assert parse_profile("title: t\nopendcdiag_s: 5\nmeasurements: {burn_in: {}}\n", "p", "p.yml").opendcdiag_s == 5


# The run


@pytest.fixture
def burnt(tmp_path: Path) -> BegunRun:
    """A run whose rounds are measured."""
    run = begin(
        tmp_path, testbed="t", sut="s", run_id="r", profile="burn_in", capture=CAPTURED.read_bytes(), now=NOW,
        session="x",
    )  # fmt: skip
    (step,) = run.plan.steps
    for number in ROUNDS:
        append_record(
            run.directory,
            StepRecord(
                step=step, round=number, outcome="ok", started_at=NOW, duration_s=1.0, document=read("burn_in"),
                reason=None, rc=0, stderr="",
            ),
        )  # fmt: skip
    return run


Told = Callable[..., RunDocument]


@pytest.fixture
def told(burnt: BegunRun) -> Told:
    """Take the runner's answer of the program, and give the document."""

    def document(output: bytes = PASS, **changes: Any) -> RunDocument:
        usual = {"record": "step", "id": "opendcdiag", "began_s": 90.0, "duration_s": 901.5, "rc": 0, "fault": None}
        encoded = base64.b64encode(output).decode()
        answer = {**usual, "stdout": encoded, "stderr": "no luck\n", "user_id": 0, "sha256": "3" * 64, **changes}
        reader = RecordReader(burnt.directory, "y", lambda *_: None)
        reader.take(answer, NOW, 1000.0)
        return finish(burnt.directory, now=NOW)

    return document


def test_a_program_that_passes_is_kept(told: Told, burnt: BegunRun, tmp_path: Path) -> None:
    document = told()
    assert outcome(tmp_path, burnt.directory, "h", document)["failures"] == []
    assert document.opendcdiag is not None
    assert document.opendcdiag.argv == dcdiag_argv(900)
    assert (burnt.directory / "opendcdiag.yaml").read_bytes() == PASS
    text = parsed(page_of(document)).astext()
    assert "eigen_gemm_double_dynamic_square" in text
    assert "It has no answer" not in text


def test_a_failed_test_fails_the_run(told: Told) -> None:
    document = told(FAIL, rc=1)
    assert document.run.status == "complete"
    assert failed_by(document) == {"burn_in.data_wrong": FAULT}


def test_a_test_that_hangs_fails_the_run(told: Told) -> None:
    document = told(HANG, rc=2)
    assert document.run.status == "complete"
    assert failed_by(document) == {"burn_in.data_wrong": HUNG}


@pytest.mark.parametrize("changes", [{"rc": -9, "fault": "late"}, {"rc": -9, "fault": "long"}, {"rc": -11}])
def test_a_test_that_failed_before_the_program_was_ended_fails_the_run(told: Told, changes: dict[str, Any]) -> None:
    document = told(FAIL[:-20], **changes)
    assert document.run.status == "incomplete"
    assert "2 times (CPUs 0, 1)" in failed_by(document)["burn_in.data_wrong"]
    text = parsed(page_of(document)).astext()
    assert "It was not finished, but tests failed: the program" in text
    assert WRONG in text


@pytest.mark.parametrize(("changes", "reason"), [
    ({"rc": None, "fault": "cannot be started: Exec format error"}, "the program cannot be started: Exec format error"),
    ({"rc": -9, "fault": "late"}, "the program timed out after 902 s"),
    ({"rc": -9, "fault": "long"}, "the program printed too much"),
    ({"rc": -11}, "the program ended with exit code -11: no luck"),
    ({"rc": 64}, "the program ended with exit code 64: no luck"),
    ({"rc": 2, "output": KILLED}, "opendcdiag ended with invalid, and no test failed: selftest_sigkill: Killed"),
    ({"output": b"exit: pass\nversion: x\n"}, "opendcdiag tested nothing"),
])  # fmt: skip
def test_a_program_without_an_answer_makes_the_run_incomplete(told: Told, changes: dict[str, Any], reason: str) -> None:
    document = told(**changes)
    assert document.run.status == "incomplete"
    assert [(gone.what, gone.reason) for gone in document.not_measured if gone.cause == "failed"] == [
        ("opendcdiag", reason)
    ]
    assert reason in parsed(page_of(document)).astext()


def programs(burnt: BegunRun, results: Path, program: Path | None) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return what follows the rounds, and the programs that are sent."""
    built = BuiltProbe(
        path=FIXTURES / "pass.log", sha256="0" * 64, target="x86_64", version="1", compiler="c", flags=(),
        source_sha256="1" * 64,
    )  # fmt: skip
    request = Request(
        results=results, testbed="t", sut="s", host="h", run_id="r", profile="burn_in", opendcdiag=program
    )
    plan, sent = session._programs(request, burnt, built, lambda *_: None)
    return plan["after"], sent


def test_it_runs_once_without_privileges_after_the_rounds(burnt: BegunRun, told: Told, tmp_path: Path) -> None:
    program = tmp_path / "opendcdiag"
    program.write_bytes(b"\x7fELF")
    (step,), sent = programs(burnt, tmp_path, program)
    assert sent["opendcdiag"] == b"\x7fELF"
    assert step["confined"]["kept"] == []
    assert step["deadline_s"] > 900
    assert step["argv"][0] == "opendcdiag"
    assert "900000" in step["argv"]
    told()
    assert programs(burnt, tmp_path, program)[0] == []


def test_it_is_not_run_unless_given(burnt: BegunRun, tmp_path: Path) -> None:
    after, sent = programs(burnt, tmp_path, None)
    assert (after, list(sent)) == ([], ["sutprobe"])


def test_a_program_that_is_not_there_fails_the_run(burnt: BegunRun, tmp_path: Path) -> None:
    after, _ = programs(burnt, tmp_path, tmp_path / "absent")
    assert after == []
    document = finish(burnt.directory, now=NOW)
    assert document.run.status == "incomplete"
    (gone,) = (gone for gone in document.not_measured if gone.cause == "failed")
    assert "No such file or directory on the controller: correct opendcdiag_program" in gone.reason
