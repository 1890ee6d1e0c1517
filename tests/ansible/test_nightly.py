# SPDX-License-Identifier: Apache-2.0
"""A night: alone with its results, judged, published, old runs removed; in that order or not at all."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import (
    ANOTHER_DISPLAY,
    PATIENCE_S,
    TINY,
    TWO,
    Ended,
    Lab,
    base_of,
    begun,
    held,
    inventory_of,
    let_go,
    over_ssh,
    processes_of,
    run,
    run_of,
    steps_recorded,
    stuck,
    wait_until,
)

from calibration.nightly.lock import hold
from calibration.results.store import read_run
from calibration.run.records import StepRecord, records

pytestmark = pytest.mark.slow

QUIET = {"preflight_severity": {"background_load": "off"}}
"""Other load on the test machine does not matter."""

LONG_AGO, LATER = "20200101T000000Z-0001", "20200301T000000Z-0001"
"""Names of old runs."""


def hosts(*suts: str, **variables: Any) -> dict[str, dict[str, Any]]:
    """Return SUTs of one testbed for an inventory."""
    return {sut: {"calibration_testbed": "t1", **QUIET, **variables} for sut in suts}


def command(lab: Lab, inventory: Path, *options: str, **variables: Any) -> list[str]:
    """Return the command of a night."""
    given = {"judge_dir": str(lab.directory / "night"), **variables}
    start = [sys.executable, "-m", "calibration.cli", "run", "--nightly", "--profile", str(TINY)]
    return [*start, "-i", str(inventory), "-e", json.dumps(given), *options]


def nightly(lab: Lab, inventory: Path, *options: str, **variables: Any) -> Ended:
    """Calibrate a night."""
    return run(command(lab, inventory, *options, **variables), lab.environment())


def outcome(text: str, task: str) -> str:
    """Return what Ansible says of a task: ok, changed, ..."""
    _, _, after = text.partition(f"TASK [calibration.harness.{task}]")
    found = re.search(r"^(\w+): \[", after, re.MULTILINE)
    assert found, text
    return found[1]


def failed(path: Path) -> set[tuple[str, str]]:
    """Return the checks that failed in a judgement, with their metrics."""
    verdicts = json.loads(path.read_bytes())["verdicts"]
    return {(verdict["check"], verdict["metric"]) for verdict in verdicts if verdict["outcome"] == "fail"}


def keep_old_run(lab: Lab, sut: str, calibrated: Lab, name: str = LONG_AGO) -> Path:
    """Copy the run of another lab to an old night; return its directory."""
    directory = lab.results / "t1" / sut / name
    shutil.copytree(calibrated.runs()[0], directory)
    document = json.loads((directory / "run.json").read_bytes())
    document["run"] |= {"testbed": "t1", "sut": sut, "id": name}
    (directory / "run.json").write_text(json.dumps(document), encoding="utf-8")
    return directory


def test_nights_are_judged_published_and_retained(lab: Lab, calibrated_lab: tuple[Lab, Ended], site_dir: Path) -> None:
    old = {"a": keep_old_run(lab, "a", calibrated_lab[0])}
    www = lab.directory / "www"
    told = lab.directory / "told"
    places = {
        "report_site": True,
        "report_site_dir": str(site_dir),
        "publish_dir": str(www),
        "notify_command": ["tee", "-a", str(told)],
    }
    both = inventory_of(lab, hosts("a", "b"), TWO)
    first = nightly(lab, both, "--limit", "a", retention_raw_nights=1, **places)
    assert first.rc == 0, first.text
    assert re.search(r"Night of \S+, 1 SUT: 1 without a baseline", first.text)
    assert f"Published: {www / 'current'}" in first.text
    assert "leaked" not in first.text, "what the controller imports ends quietly"
    assert f"Removing raw outputs of t1/a/{LONG_AGO}" in first.text
    assert [path.name for path in old["a"].iterdir()] == ["run.json"]
    (done,) = set(lab.runs()) - set(old.values())
    assert read_run(done).run.profile == TINY.stem, "--profile comes before the inventory"
    night = www / "current" / "night"
    assert failed(night / "judgement.json") == set()
    for name in ("log.html", "output.xml", "xunit.xml", "judgement.txt"):
        assert (night / name).is_file(), name
    assert (www / "current" / "calibration" / "t1" / "a" / "index.html").is_file()
    version = (www / "current").readlink()

    # Nothing changes the second time.
    again = ("--limit", "a", "--resume", done.name)
    second = run(command(lab, both, *again, **places), lab.environment(**ANOTHER_DISPLAY))
    assert second.rc == 0, second.text
    assert len(lab.runs()) == 2
    assert outcome(second.text, "judge : Judge the night") == "ok"
    assert outcome(second.text, "publish : Publish the site and the verdicts of the night") == "ok"
    assert (www / "current").readlink() == version

    # A SUT that was left out on purpose is not missed; its newest run stays.
    old["b"] = keep_old_run(lab, "b", calibrated_lab[0])
    checked = nightly(lab, both, *again, "--check", retention_nights=1)
    assert f"Would remove t1/a/{LONG_AGO}" in checked.text
    assert (old["a"] / "run.json").is_file()
    limited = nightly(lab, both, *again, retention_nights=1, retention_raw_nights=1)
    assert limited.rc == 0, limited.text
    assert "b, missing from the inventory" not in limited.text
    assert not old["a"].exists()
    assert (old["b"] / "records.jsonl").is_file()

    # A second run in the night, which fails: it stands for the night, and is published before it fails its SUT. The
    # other SUT has left the inventory.
    kept = (done / "run.json").read_bytes()
    limit = {"metric": "idle_latency.latency_ns", "unit": "ns", "upper": 0.001, "reason": "nothing is so fast"}
    assert not told.exists(), "nothing has changed for the worse"
    hook = {"notify_url": "http://127.0.0.1:1/s3cr3t"}
    secrets = ("-e", "ansible_become_password=s3cr3t", "-e", '{"chat": {"token": "s3cr3t"}}')
    third = nightly(lab, inventory_of(lab, hosts("a", calibration_limits=[limit])), "-vvvv", *secrets, **places, **hook)
    assert third.rc == 1, third.text
    assert "Warning: notification failed: the server of notify_url cannot be reached: Connection refused" in " ".join(
        third.text.split()
    )
    assert "s3cr3t" not in third.text
    assert (
        subprocess.run(["grep", "-rl", "s3cr3t", lab.directory, "--exclude-dir=ansible"], check=False).returncode == 1
    )
    changes = {item["sut"]: item for item in json.loads(told.read_bytes())["changes"]}
    assert {sut: (item["before"], item["after"]) for sut, item in changes.items()} == {
        "a": ("no_baseline", "fails"),
        "b": (None, "not_measured"),
    }
    assert re.match(r"fails since \S+: Idle latency", changes["a"]["answer"][0])
    assert changes["a"]["gates"] == []
    assert (done / "run.json").read_bytes() == kept
    assert "a: Calibration failed, run" in third.text
    assert re.search(r"Tonight: fails since \S+: Idle latency", third.text)
    assert "gate failed: " not in third.text, "gates of verdicts repeat nothing"
    assert ("limits", "idle_latency.latency_ns") in failed(night / "judgement.json")
    assert (www / "current").readlink() != version
    assert third.text.index("Published: ") < third.text.index("Tonight: ")
    missed = "Tonight: t1 / b, missing from the inventory: unknown: not measured: no run this night"
    assert missed in " ".join(third.text.split())


def test_publishes_and_deletes_nothing_if_the_night_cannot_be_judged(
    lab: Lab, calibrated_lab: tuple[Lab, Ended]
) -> None:
    old, done = (keep_old_run(lab, "a", calibrated_lab[0], name) for name in (LONG_AGO, LATER))
    inside, www = lab.results / "night", lab.directory / "www"
    policy = {"retention_nights": 1, "retention_raw_nights": 1}
    places = {"publish_dir": str(www), "judge_dir": str(inside)}
    ended = nightly(lab, inventory_of(lab, hosts("a")), "--resume", done.name, **places, **policy)
    assert ended.rc == 2, ended.text
    assert str(inside) in ended.text
    assert not www.exists()
    assert (old / "records.jsonl").is_file()


# One at a time


def test_a_second_night_ends_at_once_naming_the_first(lab: Lab) -> None:
    inventory = inventory_of(lab, hosts("a"))
    lab.results.mkdir()
    with hold(lab.results, datetime.now(UTC)):
        before = [path.name for path in lab.results.rglob("*")]
        second = run(command(lab, inventory), lab.environment(**ANOTHER_DISPLAY))
        assert second.rc == 3, second.text
        assert re.search(
            rf"another nightly calibration uses {lab.results}: \S+ on \S+, process "
            rf"{os.getpid()}, since \d{{4}}-",
            " ".join(second.text.split()),
        ), second.text
        assert [path.name for path in lab.results.rglob("*")] == before
        checked = nightly(lab, inventory, "--check", preflight_ansible_minimum="99")
        assert checked.rc == 3, "check mode needs no lock; this stops at ansible-core"
        assert "another nightly calibration" not in checked.text


WAITING_GATE = """
*** Settings ***
Library    OperatingSystem

*** Test Cases ***
Waits
    Create File    LOG.held
    Wait Until Created    LOG.let-go    5 min
"""


def test_a_night_whose_controller_is_killed_at_any_moment_is_finished_by_the_next_command(lab: Lab) -> None:
    """Before and during the start on a SUT, while another measures, and while the night is judged."""
    inventory = inventory_of(
        lab,
        {
            "facts": {**over_ssh(lab, "facts", held("facts")), **base_of(lab, "facts"), **QUIET},
            "start": {**over_ssh(lab, "start", held("start")), **base_of(lab, "start"), **QUIET},
            "step": {**stuck(lab, "step"), **base_of(lab, "step"), **QUIET},
        },
        TWO,
    )
    gate = lab.directory / "waiting.robot"
    gate.write_text(WAITING_GATE.replace("LOG", str(lab.directory / "judging-log")), encoding="utf-8")

    def killed(condition: Callable[[], object], *options: str, **variables: Any) -> None:
        log = lab.directory / "log"
        with begun(command(lab, inventory, *options, **variables), lab.environment(), log) as process:
            wait_until(condition, process, log)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)

    def reached(name: str) -> bool:
        return (lab.directory / f"{name}-log.held").exists()

    two = ("--profile", str(TWO))
    killed(lambda: reached("facts"), *two)
    let_go(lab, "facts")
    assert lab.runs() == []
    assert list(lab.remote.glob("*/*")) == []
    killed(lambda: reached("start") and steps_recorded(lab) == 3, *two)
    run_id = run_of(lab, "step").name
    for name in ("start", "step"):
        let_go(lab, name)
    resumed = ("--resume", run_id, *two)
    killed(lambda: reached("judging"), *resumed, judge_gates=[str(gate)])
    let_go(lab, "judging")
    ended = nightly(lab, inventory, *resumed, judge_gates=[str(gate)])
    assert ended.rc == 0, ended.text
    assert {path.parent.name for path in lab.runs()} == {"facts", "start", "step"}
    for name in ("facts", "start", "step"):
        document = read_run(run_of(lab, name))
        assert (document.run.status, document.run.id) == ("complete", run_id)
        steps = [record.step.id for record in records(run_of(lab, name)) if isinstance(record, StepRecord)]
        assert sorted(steps) == ["idle_latency", "latency_matrix"], "nothing is measured twice"
        assert len(document.attempts) == 1
    assert (lab.directory / "night" / "judgement.json").is_file()
    assert not list(lab.directory.joinpath("night").glob(".*"))
    assert list(lab.remote.glob("*/*")) == []
    assert processes_of(lab.remote) == []
    hold(lab.results, datetime.now(UTC)).close()


def test_rejects_results_without_a_value(lab: Lab) -> None:
    inventory = inventory_of(lab, hosts("a"))
    ended = nightly(lab, inventory, calibration_results_dir="{{ nowhere_set }}")
    assert ended.rc == 2, ended.text
    assert "'nowhere_set' is undefined" in ended.text
    assert lab.runs() == []
