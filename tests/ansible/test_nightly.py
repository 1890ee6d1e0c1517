# SPDX-License-Identifier: Apache-2.0
"""A night: alone with its results, judged, published, and what is old removed; in that order or not at all."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import PATIENCE_S, ROOT, SLOW, TINY, Ended, Lab, begun, inventory_of, processes_of, run, wait_until

from calibration.nightly.lock import LOCK
from calibration.results.store import read_run

QUIET = {"preflight_effects": {"foreign_load": "off"}}
"""Who else uses the machine that runs the tests is no matter of theirs."""

ANSIBLES_DISPLAY = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_PLUGINS": "/nonexistent"}
"""Says of each task whether it changed anything."""

LONG_AGO = "20200101T000000Z-0001"


def hosts(*suts: str, **variables: Any) -> dict[str, dict[str, Any]]:
    """Return SUTs of one testbed for an inventory."""
    return {sut: {"calibration_testbed": "t1", **QUIET, **variables} for sut in suts}


def command(lab: Lab, inventory: Path, *options: str, profile: Path = TINY, **variables: Any) -> list[str]:
    """Return the command of a night."""
    given = {"judge_dir": str(lab.directory / "night"), **variables}
    start = [sys.executable, "-m", "calibration.cli", "run", "--nightly", "--profile", str(profile)]
    return [*start, "-i", str(inventory), "-e", json.dumps(given), *options]


def nightly(lab: Lab, inventory: Path, *options: str, **variables: Any) -> Ended:
    """Calibrate a night."""
    return run(command(lab, inventory, *options, **variables), lab.environment())


def outcome(text: str, task: str) -> str:
    """Return what Ansible says of a task: ok, changed, ..."""
    _, _, after = text.partition(f"TASK [{task}]")
    found = re.search(r"^(\w+): \[", after, re.MULTILINE)
    assert found, text
    return found[1]


def failed(path: Path) -> set[tuple[str, str]]:
    """Return the checks that failed in a judgement, with their metrics."""
    verdicts = json.loads(path.read_bytes())["verdicts"]
    return {(each["check"], each["metric"]) for each in verdicts if each["outcome"] == "fail"}


def test_a_night_is_judged_and_published_and_changes_nothing_the_second_time(lab: Lab) -> None:
    www = lab.directory / "www"
    places = {"report_site": True, "report_site_dir": str(lab.directory / "site"), "publish_dir": str(www)}
    inventory = inventory_of(lab, hosts("a"))
    first = nightly(lab, inventory, **places)
    assert first.rc == 0, first.text
    assert "0 of 1 SUT fail tonight" in first.text
    assert f"Published: {www / 'current'}" in first.text
    assert "leaked" not in first.text, "what the controller imports ends quietly"
    (done,) = lab.runs()
    night = www / "current" / "night"
    assert failed(night / "judgement.json") == set()
    for name in ("log.html", "output.xml", "xunit.xml", "judgement.txt"):
        assert (night / name).is_file(), name
    assert (www / "current" / "calibration" / "t1" / "a" / "index.html").is_file()
    version = (www / "current").readlink()

    again = run(command(lab, inventory, "--resume", done.name, **places), lab.environment(**ANSIBLES_DISPLAY))
    assert again.rc == 0, again.text
    assert lab.runs() == [done]
    assert outcome(again.text, "judge : Judge the night") == "ok"
    assert outcome(again.text, "publish : Publish the site and the verdicts of the night") == "ok"
    assert (www / "current").readlink() == version

    # A second run in the night, which fails: it stands for the night, and is published before it fails its SUT.
    limit = {"metric": "idle_latency.latency_ns", "unit": "ns", "upper": 0.001, "reason": "nothing is so fast"}
    third = nightly(lab, inventory_of(lab, hosts("a", calibration_limits=[limit])), **places)
    assert third.rc == 1, third.text
    assert len(lab.runs()) == 2
    assert "a: Expected a complete run" in third.text
    assert "Tonight: Verdict failed: idle_latency.latency_ns " in third.text
    assert "Gate failed: " not in third.text, "what holds verdicts alone says nothing more than these"
    assert failed(night / "judgement.json") == {("limits", "idle_latency.latency_ns")}
    assert (www / "current").readlink() != version
    assert third.text.index("Published: ") < third.text.index("Tonight: ")


def test_a_sut_that_dropped_out_is_missed_and_old_runs_go_by_policy(lab: Lab) -> None:
    both = inventory_of(lab, hosts("a", "b"))
    # One after another: two that measure at once on one machine disturb each other, and have no valid figures.
    begun = nightly(lab, both, "--forks", "1", calibration_run_id=LONG_AGO)
    assert begun.rc == 0, begun.text
    old = {path.parent.name: path for path in lab.runs()}
    assert sorted(old) == ["a", "b"]
    assert {read_run(path).run.id for path in old.values()} == {LONG_AGO}

    limited = nightly(lab, both, "--limit", "a", "--check", retention_nights=30)
    assert limited.rc == 0, limited.text
    assert "Would remove" not in limited.text, "the newest run of each SUT stays"
    limited = nightly(lab, both, "--limit", "a")
    assert limited.rc == 0, limited.text
    assert "b, which was not to be measured" not in limited.text

    dropped = nightly(lab, inventory_of(lab, hosts("a")))
    assert dropped.rc == 1, dropped.text
    assert "a: Tonight: t1 / b, which was not to be measured: Verdict failed: expected a run of this night" in " ".join(
        dropped.text.split()
    )

    limited = nightly(lab, inventory_of(lab, hosts("a", "b")), "--limit", "a", "--check", retention_nights=30)
    assert f"Would remove t1/a/{LONG_AGO}" in limited.text
    assert (old["a"] / "records.jsonl").is_file()
    limited = nightly(lab, both, "--limit", "a", retention_raw_nights=30)
    assert limited.rc == 0, limited.text
    assert f"Removing raw outputs of t1/a/{LONG_AGO}" in limited.text
    assert [path.name for path in old["a"].iterdir()] == ["run.json"]
    assert (old["b"] / "records.jsonl").is_file()


def test_where_the_night_cannot_be_judged_nothing_is_published_and_nothing_goes(lab: Lab) -> None:
    inventory = inventory_of(lab, hosts("a"))
    assert nightly(lab, inventory, calibration_run_id=LONG_AGO).rc == 0
    (old,) = lab.runs()
    inside = lab.results / "night"
    www = lab.directory / "www"
    kept = {"retention_nights": 1, "retention_raw_nights": 1}
    ended = nightly(lab, inventory, publish_dir=str(www), judge_dir=str(inside), **kept)
    assert ended.rc == 2, ended.text
    assert str(inside) in ended.text
    assert not www.exists()
    assert (old / "records.jsonl").is_file()


# One at a time


@contextmanager
def started(lab: Lab, inventory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a night of hours, and wait until it measures."""
    log = lab.directory / "log"
    with begun(command(lab, inventory, profile=SLOW), lab.environment(), log) as process:
        wait_until(lambda: any("sutprobe" in each for each in processes_of(lab.remote)), process, log)
        yield process


def test_a_second_night_ends_at_once_and_says_who_calibrates(lab: Lab) -> None:
    inventory, other = inventory_of(lab, hosts("a")), {"reserve_path": str(lab.remote / "other")}
    with started(lab, inventory) as process:
        before = sorted(str(path) for path in lab.results.rglob("*"))
        second = nightly(lab, inventory, **other)
        assert second.rc == 3, second.text
        assert re.search(
            rf"no other nightly calibration with the results in {lab.results}, found that of \S+ on \S+, process "
            rf"{process.pid}, since \d{{4}}-",
            " ".join(second.text.split()),
        ), second.text
        by_ansible = [sys.executable, "-m", "ansible", "playbook", str(ROOT / "playbooks" / "nightly.yml")]
        second = run([*by_ansible, "-i", str(inventory), "-e", json.dumps(other)], lab.environment(**ANSIBLES_DISPLAY))
        assert second.rc == 3, second.text
        assert sorted(str(path) for path in lab.results.rglob("*")) == before
        asked = nightly(lab, inventory, "--check", **other)
        assert "no other nightly calibration" not in asked.text, "what would run may always be asked"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        third = nightly(lab, inventory, **other)
        assert third.rc in {0, 1}, third.text  # 1: two measured at a time here, as no SUT is
        assert len(lab.runs()) == 2
    (killed,) = (path.name for path in lab.runs() if not (path / "run.json").is_file())
    tidied = lab.run("cleanup.yml", "-i", str(inventory), "-e", f"calibration_run_id={killed}")
    assert tidied.rc == 0, tidied.text
    assert (lab.results / LOCK).is_file()


def test_what_is_no_night_needs_no_lock(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", "-e", json.dumps(QUIET))
    assert ended.rc == 0, ended.text
    assert not (lab.results / LOCK).exists()
    assert "tonight" not in ended.text


def test_results_that_have_no_value_end_it_as_bad_input(lab: Lab) -> None:
    inventory = inventory_of(lab, hosts("a"))
    ended = nightly(lab, inventory, calibration_results_dir="{{ nowhere_set }}")
    assert ended.rc == 2, ended.text
    assert "calibration_results_dir" in ended.text
    assert lab.runs() == []
