# SPDX-License-Identifier: Apache-2.0
"""A run that is ended from outside leaves no process, no temporary file and no half-written document."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import PATIENCE_S, ROOT, SLOW, Lab, processes_of

from calibration.results.store import read_run


def start(lab: Lab, log: Path) -> subprocess.Popen[bytes]:
    """Start a run in a process group of its own, as a shell does."""
    with log.open("wb") as stream:
        return subprocess.Popen(
            lab.command("calibrate.yml", profile=SLOW),
            cwd=ROOT,
            env=lab.environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
        )


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while text not in log.read_text(encoding="utf-8"):
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.1)


def wait_for_kernel(lab: Lab) -> None:
    until = time.monotonic() + PATIENCE_S
    while not any("latency" in each for each in processes_of(lab.remote) if "sutprobe" in each):
        assert time.monotonic() < until
        time.sleep(0.1)


def wait_for_end(lab: Lab) -> None:
    until = time.monotonic() + PATIENCE_S
    while processes := processes_of(lab.remote):
        assert time.monotonic() < until, processes
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_an_interrupted_step_leaves_nothing_but_what_was_measured(lab: Lab, number: signal.Signals) -> None:
    log = lab.directory / "log"
    with start(lab, log) as process:
        wait_for(log, "step 1 of 2", process)
        wait_for_kernel(lab)
        os.killpg(process.pid, number)
        code = process.wait(PATIENCE_S)
    assert code == 99
    assert lab.leftovers() == []
    (run,) = lab.runs()
    document = read_run(run)
    assert document.run.status == "interrupted"
    assert [each.kind for each in document.measurements] == ["idle_latency"]
    assert [each.kind for each in document.not_measured if each.cause == "interrupted"] == ["latency_matrix"]
    text = log.read_text(encoding="utf-8")
    assert "localhost: interrupted, 1 measured, 1 not" in text
    assert str(run / "run.json") in text


def test_an_interruption_before_anything_was_begun_leaves_nothing(lab: Lab) -> None:
    log = lab.directory / "log"
    with start(lab, log) as process:
        wait_for(log, "Checking the controller", process)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
    # Ansible's own code: 250 where the interruption finds it between two tasks with no handler of its own for it.
    assert code in {99, 250}, log.read_text(encoding="utf-8")
    assert lab.leftovers() == []
    assert [read_run(run).run.status for run in lab.runs()] in ([], ["interrupted"])


def test_a_killed_run_ends_its_processes_and_the_cleanup_playbook_does_the_rest(lab: Lab) -> None:
    log = lab.directory / "log"
    with start(lab, log) as process:
        wait_for(log, "step 1 of 2", process)
        wait_for_kernel(lab)
        process.kill()
        process.wait(PATIENCE_S)
    wait_for_end(lab)
    (run,) = lab.runs()
    assert [path.name for path in lab.remote.iterdir()] == [f"calibration-{run.name}-localhost"]
    ended = lab.run("cleanup.yml", "-e", f"calibration_run_id={run.name}")
    assert ended.rc == 0, ended.text
    assert list(lab.remote.iterdir()) == []
    assert read_run(run).run.status == "interrupted"
    assert "localhost: interrupted, 1 measured, 1 not" in ended.text


def test_cleaning_up_what_is_not_there_changes_nothing(lab: Lab) -> None:
    ended = lab.run("cleanup.yml", "-e", "calibration_run_id=20261121T000000Z-0000")
    assert ended.rc == 0, ended.text
    assert not lab.results.exists()
    assert lab.leftovers() == []
