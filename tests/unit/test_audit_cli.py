# SPDX-License-Identifier: Apache-2.0
"""``calibration audit``, and the configuration of a run in its document, on its page and in the gates."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from robot.api import SkipExecution

from calibration.base.errors import BAD_INPUT, GOOD, VERDICT_FAILED
from calibration.finish import finish
from calibration.gates.library import require
from calibration.preflight.agreement import Known
from calibration.preflight.examination import read_examination
from calibration.preflight.expectations import read_again, read_expectations
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.results.layout import CAPTURE, RUN
from calibration.results.run_checks import Result, check_inventory
from calibration.results.store import open_run
from calibration.run.lifecycle import NotBegunError, begin, plan_only
from tests.captures import changed
from tests.command import calibration

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

STATE = {
    "transparent_hugepages": "always",
    "sysctl": {"vm.swappiness": "0..10", "kernel.no_such": 1},
    "sysfs": {"/sys/kernel/mm/ksm/run": 0},
    "governor": "performance",
}
"""Of the captured guest: two met, one not, two that it cannot have."""

ASKED = ["/proc/sys/vm/swappiness", "/proc/sys/kernel/no_such", "/sys/kernel/mm/ksm/run"]


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    path = tmp_path / "sut.tar.gz"
    path.write_bytes(changed("x86_64-devices", {}, asked=ASKED))
    return path


def expected(tmp_path: Path, state: Any) -> Path:
    path = tmp_path / "expected.yml"
    path.write_text(yaml.safe_dump(state), encoding="utf-8")
    return path


def run_of(tmp_path: Path, state: dict[str, Any], **expectations: Any) -> Path:
    """Return the directory of a run that began on the captured guest with an expected state."""
    archive = changed("x86_64-devices", {}, asked=ASKED)
    given = read_expectations({"expected_state": str(expected(tmp_path, state)), **expectations})
    through_ansible = json.loads(json.dumps(given.model_dump(mode="json")))
    assert read_again(through_ansible) == given
    preflight = {"known": Known(testbed="t", sut="s").model_dump(mode="json"), "expectations": through_ansible}
    run = begin(
        tmp_path / "results", testbed="t", sut="s", run_id="20260102T030405Z-0a1b", profile="quick", capture=archive,
        now=NOW, examine=read_examination(preflight),
    )  # fmt: skip
    finish(run.directory, now=NOW, interrupted=True)
    return run.directory


def test_learned_state_is_met_and_one_change_is_not(captured: Path, tmp_path: Path) -> None:
    learned = calibration("audit", captured, "--learn")
    assert learned.code == GOOD
    path = tmp_path / "learned.yml"
    path.write_text(learned.said, encoding="utf-8")
    ended = calibration("audit", captured, "--expect", path)
    assert ended.code == GOOD
    last = ended.said.splitlines()[-1]
    assert last.split()[0] == last.split()[2]
    assert last.endswith(" met")
    other = tmp_path / "other.tar.gz"
    other.write_bytes(changed("x86_64-devices", {"/proc/sys/vm/swappiness": "10\n"}, asked=ASKED))
    ended = calibration("audit", other, "--expect", path)
    assert ended.code == VERDICT_FAILED
    assert ended.said.splitlines()[-1].endswith(" met, 1 not met")
    # The worst is the last that is printed.
    assert ended.said.splitlines()[-2].split() == ["not", "met", "sysctl", "vm.swappiness", "60", "10"]


def test_what_cannot_exist_fails_nothing_and_what_is_unknown_does(captured: Path, tmp_path: Path) -> None:
    ended = calibration("audit", captured, "--expect", expected(tmp_path, {"governor": "performance"}))
    assert ended.code == GOOD
    assert "no frequency scaling" in ended.said
    assert ended.said.splitlines()[-1] == "1 setting: 1 cannot exist here"
    ended = calibration("audit", captured, "--expect", expected(tmp_path, {"sysctl": {"vm.x": 1}}), "--json")
    assert ended.code == VERDICT_FAILED
    (found,) = json.loads(ended.said)
    assert (found["name"], found["outcome"]) == ("sysctl.vm.x", "unknown")
    assert (found["title"], found["severity"]) == ("sysctl vm.x", "flag")


def test_bad_input_is_refused(captured: Path, tmp_path: Path) -> None:
    for state, words in ((["x"], "expected a mapping"), ({"smt": 3}, "smt: expected on or off, not 3")):
        ended = calibration("audit", captured, "--expect", expected(tmp_path, state))
        assert ended.code == BAD_INPUT
        assert words in ended.said
    broken = tmp_path / "broken.yml"
    broken.write_text("a: [", encoding="utf-8")
    assert "cannot read the expected state" in calibration("audit", captured, "--expect", broken).said
    assert calibration("audit", captured, "--learn", "--json").code == BAD_INPUT
    ended = calibration("audit", tmp_path)
    assert ended.code == BAD_INPUT
    assert "give the expected state with --expect STATE" in ended.said


def test_a_run_keeps_its_configuration(tmp_path: Path) -> None:
    run = run_of(tmp_path, STATE, sysctl={"vm": {"swappiness": 60, "overcommit_memory": 0}})
    results = ("--results", run.parents[2])
    ended = calibration("audit", "t/s", *results)
    assert ended.code == VERDICT_FAILED
    # The variable adds what the file says nothing of.
    assert ended.said.splitlines()[-1] == "6 settings: 3 met, 1 not met, 2 cannot exist here"
    again = calibration("audit", "t/s", *results, "--expect", tmp_path / "expected.yml", "--json")
    recorded = json.loads(calibration("audit", "t/s", *results, "--json").said)
    assert [check for check in recorded if check["name"] != "sysctl.vm.overcommit_memory"] == json.loads(again.said)

    stored = open_run(run / RUN)
    assert {flag.reason for flag in stored.document.flags if flag.code == "NOT_AS_EXPECTED"} >= {
        "sysctl vm.swappiness: expected 0..10, found 60"
    }
    page = to_rst(render(stored).blocks)
    assert "6 settings: 3 met, 1 not met, 2 cannot exist here." in page
    assert page.index("Configuration\n---") < page.index("Preflight: ")
    assert page.index("sysctl vm.swappiness") < page.index("Other settings: 5")
    assert "Transparent huge pages" not in page.partition("Preflight: ")[2].partition("Skipped: ")[0]

    results_by_outcome: dict[str, list[str]] = {}
    for result in check_inventory(stored.document):
        results_by_outcome.setdefault(result.outcome, []).append(result.text)
    assert "sysctl vm.swappiness: expected 0..10, found 60" in results_by_outcome["failed"]
    assert results_by_outcome["noted"] == [
        "sysctl kernel.no_such: expected 1, found this kernel has no such parameter: it cannot exist here",
        "Frequency governor: expected performance, found no frequency scaling: it cannot exist here",
    ]


def test_a_run_without_an_expected_state_has_no_configuration(tmp_path: Path) -> None:
    run = run_of(tmp_path, {})
    ended = calibration("audit", run)
    assert ended.code == BAD_INPUT
    assert "the run began without an expected state: set calibration_expected_state" in ended.said
    assert "Configuration\n---" not in to_rst(render(open_run(run / RUN)).blocks)


def test_a_blocking_setting_refuses_the_sut_in_a_check_and_in_a_run(tmp_path: Path) -> None:
    with pytest.raises(NotBegunError, match=r"sysctl vm\.swappiness: expected 0\.\.10, found 60\. Set it with "):
        run_of(tmp_path, STATE, severity={"sysctl": "blocking", "governor": False})
    given = read_expectations({"expected_state": str(expected(tmp_path, STATE)), "severity": {"sysctl": "off"}})
    preflight = {"known": Known().model_dump(mode="json"), "expectations": given.model_dump(mode="json")}
    _, checks = plan_only(
        tmp_path,
        profile="quick",
        capture=changed("x86_64-devices", {}, asked=ASKED),
        examine=read_examination(preflight),
        prefetchers_ok=False,
    )
    assert [check.name for check in checks if check.configured] == [
        "sysfs./sys/kernel/mm/ksm/run",
        "transparent_hugepages",
        "governor",
    ]


def test_the_capture_of_a_run_may_be_audited_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, STATE)
    alone = calibration("audit", run / CAPTURE, "--expect", tmp_path / "expected.yml", "--json")
    assert json.loads(alone.said) == json.loads(calibration("audit", run, "--json").said)


def test_a_gate_is_not_passed_by_what_cannot_exist() -> None:
    noted, passed = Result("noted", "no SMT"), Result("passed", "as expected")
    require([passed, noted])
    with pytest.raises(SkipExecution, match="no SMT"):
        require([noted])
    with pytest.raises(AssertionError, match="other"):
        require([passed, noted, Result("failed", "other")])
