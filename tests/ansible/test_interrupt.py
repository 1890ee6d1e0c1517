# SPDX-License-Identifier: Apache-2.0
"""A run that is ended from outside leaves no process, no temporary file and no half-written document."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import PATIENCE_S, ROOT, TINY, Lab, load_plugin, processes_of, run, wait_until

from calibration.results.store import read_run

END = load_plugin("callback", "calibration_end")


ANOTHER_DISPLAY = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_PLUGINS": "/nonexistent"}
"""What ansible-runner and AWX do: a callback of their own shows the run, and ansible.cfg's directories are left out."""


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: text in log.read_text(encoding="utf-8"), process, log)


def wait_for_step(lab: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the first step is recorded, whatever is shown."""

    def recorded() -> bool:
        return any('"record":"step"' in path.read_text(encoding="utf-8") for path in lab.results.rglob("records.jsonl"))

    wait_until(recorded, process, log)


def wait_for_kernel(lab: Lab) -> None:
    until = time.monotonic() + PATIENCE_S
    while not any("latency" in each for each in processes_of(lab.remote) if "sutprobe" in each):
        assert time.monotonic() < until
        time.sleep(0.1)


def wait_for_end(lab: Lab) -> None:
    until = time.monotonic() + PATIENCE_S
    while processes := [each for each in processes_of(lab.remote) if "guardian.py" not in each]:
        assert time.monotonic() < until, processes
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_an_interrupted_step_leaves_nothing_but_what_was_measured(lab: Lab, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        # What is started from here would ignore it too, as under nohup. A handler is not inherited.
        signal.signal(number, lambda *_: None)
    log = lab.directory / "log"
    with lab.started(log) as process:
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
    assert "Interrupted: 1 of 2 steps measured." in text
    assert f"Results: {run}" in text
    page = run / "report" / "page.rst"
    assert "the run was interrupted before this step ended" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_an_interrupted_run_is_tidied_up_whatever_shows_it(lab: Lab, number: signal.Signals) -> None:
    log = lab.directory / "log"
    with lab.started(log, **ANOTHER_DISPLAY) as process:
        wait_for_step(lab, process, log)
        wait_for_kernel(lab)
        os.killpg(process.pid, number)
        code = process.wait(PATIENCE_S)
    text = log.read_text(encoding="utf-8")
    assert code == 99, text
    assert "TASK [" in text
    assert "localhost: step 1 of 2: Idle latency" in text
    assert lab.leftovers() == []
    (run,) = lab.runs()
    document = read_run(run)
    assert document.run.status == "interrupted"
    assert [each.kind for each in document.measurements] == ["idle_latency"]
    assert "Interrupted: 1 of 2 steps measured" in text


def test_a_lab_without_a_sut_is_an_error_whatever_shows_it(lab: Lab) -> None:
    inventory = lab.directory / "hosts.yml"
    inventory.write_text("all:\n  children:\n    testbed1:\n")
    ended = lab.run("calibrate.yml", "--inventory", str(inventory), **ANOTHER_DISPLAY)
    assert ended.rc == 2
    assert "Expected at least one SUT in the inventory, found none" in ended.text


def test_the_exit_code_is_the_same_whatever_shows_the_run(lab: Lab) -> None:
    options = lab.command("calibrate.yml", profile="thorough")[5:]
    ended = run(
        [sys.executable, "-m", "calibration.cli", "run", *options],
        lab.environment(PYTHONPATH=str(ROOT), **ANOTHER_DISPLAY),
    )
    assert ended.rc == 2, ended.text
    assert "TASK [" in ended.text
    options = [*options, "-e", f"calibration_profile={TINY}", "-e", f"calibration_remote_base={lab.directory}/missing"]
    ended = run(
        [sys.executable, "-m", "calibration.cli", "run", *options],
        lab.environment(PYTHONPATH=str(ROOT), **ANOTHER_DISPLAY),
    )
    assert ended.rc == 3, ended.text


def test_an_interruption_before_anything_was_begun_leaves_nothing(lab: Lab) -> None:
    log = lab.directory / "log"
    with lab.started(log) as process:
        wait_for(log, "Checking the controller", process)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
    # Ansible's own code: 250 where the interruption finds it between two tasks with no handler of its own for it, and 1
    # where it finds a worker first that the interruption ended.
    assert code in {1, 99, 250}, log.read_text(encoding="utf-8")
    assert lab.leftovers() == []
    assert [read_run(run).run.status for run in lab.runs()] in ([], ["interrupted"])


def test_a_killed_run_ends_its_processes_and_the_cleanup_playbook_does_the_rest(lab: Lab) -> None:
    log = lab.directory / "log"
    with lab.started(log) as process:
        wait_for(log, "step 1 of 2", process)
        wait_for_kernel(lab)
        process.kill()
        process.wait(PATIENCE_S)
    wait_for_end(lab)
    (run,) = lab.runs()
    reservation, directory = sorted(lab.remote.iterdir(), key=lambda path: path != lab.reservation)
    assert directory.name.startswith(f"calibration-{run.name}-localhost-")
    assert reservation == lab.reservation
    ended = lab.run("cleanup.yml", "-e", f"calibration_run_id={run.name}")
    assert ended.rc == 0, ended.text
    assert list(lab.remote.iterdir()) == []
    assert processes_of(lab.remote) == []
    assert read_run(run).run.status == "interrupted"
    assert "Interrupted: 1 of 2 steps measured" in ended.text


def test_cleaning_up_what_is_not_there_changes_nothing(lab: Lab) -> None:
    ended = lab.run("cleanup.yml", "-e", "calibration_run_id=20261121T000000Z-0000")
    assert ended.rc == 0, ended.text
    assert not lab.results.exists()
    assert lab.leftovers() == []


FORKING = """
import os, signal, sys, time
from support import load_plugin
from calibration.run import exit_code_of, _reasons

os.register_at_fork(**{sys.argv[1]: lambda: os.kill(os.getpid(), signal.SIGINT)})
load_plugin("callback", "calibration_end").CallbackModule().v2_playbook_on_start(None)
try:
    if os.fork() == 0:
        os._exit(0)
    time.sleep(float(sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted", exit_code_of(1, _reasons.codes))
"""


@pytest.mark.parametrize("when", ["before", "after_in_parent"])
def test_an_interruption_in_the_middle_of_a_fork_is_not_lost(lab: Lab, when: str) -> None:
    """Python ignores an exception among what is called before and after a fork, and an interruption is one."""
    path = f"{ROOT / 'tests' / 'ansible'}:{ROOT}"
    ended = run([sys.executable, "-c", FORKING, when, str(PATIENCE_S)], lab.environment(PYTHONPATH=path))
    assert (ended.rc, ended.text.splitlines()[-1:]) == (0, ["interrupted 4"]), ended.text


def test_the_cleanup_uses_the_interrupted_commands_connection() -> None:
    arguments = {
        "inventory": ("/labs/mine",),
        "extra_vars": ("a=1", "@/labs/vars.yml"),
        "remote_user": "lab",
        "private_key_file": "/keys/lab",
        "connection": "ssh",
        "become": True,
        "become_method": "su",
        "become_user": None,
        "subset": "testbed1",
        "check": False,
        "tags": ("all",),
    }
    command = END.cleanup_command(arguments, "20261121T000000Z-0000", ["sut1", "sut2"])
    assert command[1:5] == ["-m", "ansible", "playbook", str(ROOT / "playbooks" / "cleanup.yml")]
    assert command[5:] == [
        *("--inventory", "/labs/mine", "--extra-vars", "a=1", "--extra-vars", "@/labs/vars.yml"),
        *("--private-key=/keys/lab", "--user=lab", "--become-method=su", "--become", "--limit", "sut1,sut2"),
        *("--extra-vars", '{"calibration_run_id": "20261121T000000Z-0000"}'),
    ]


def test_a_second_controller_is_refused_and_a_killed_one_leaves_the_sut_free(lab: Lab) -> None:
    log = lab.directory / "log"
    # Long enough for what comes between two words to the SUT on a busy machine.
    with lab.started(log, "-e", "reserve_lease_s=20", "-e", "measure_grace_s=1") as process:
        wait_for(log, "step 1 of 2", process)
        wait_for_kernel(lab)
        (held,) = lab.runs()
        since = json.loads((lab.reservation / "holder.json").read_bytes())["started_at"]
        second = lab.run("calibrate.yml")
        assert second.rc != 0
        told = " ".join(second.text.split())
        assert f"expected a SUT that nobody has reserved, found run {held.name} of " in told
        assert f"begun at {since}" in told
        assert f"playbooks/cleanup.yml -e calibration_run_id={held.name} --limit localhost" in told
        assert processes_of(lab.remote)
        process.kill()
        process.wait(PATIENCE_S)
    # Nobody cleans up but the guardian on the SUT.
    until = time.monotonic() + PATIENCE_S
    while left := [*map(str, lab.remote.iterdir()), *processes_of(lab.remote)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
