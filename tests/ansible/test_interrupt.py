# SPDX-License-Identifier: Apache-2.0
"""A run that is ended from outside leaves no process, no temporary file and no half-written document."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest
from support import (
    ANOTHER_DISPLAY,
    PATIENCE_S,
    ROOT,
    Lab,
    load_plugin,
    probes_of,
    run,
    steps_recorded,
    wait_until,
)

from calibration.results.store import read_run

END = load_plugin("callback", "calibration_end")


DISPLAYS = {"own": (signal.SIGHUP, {}), "another": (signal.SIGTERM, ANOTHER_DISPLAY)}
"""The signal that ends the run and what shows it; Ctrl-C on a terminal is in test_progress."""


@pytest.mark.parametrize("display", DISPLAYS)
def test_interrupted_step_leaves_only_its_measurements(lab: Lab, display: str) -> None:
    number, environment = DISPLAYS[display]
    if signal.getsignal(number) is signal.SIG_IGN:
        # What is started from here would ignore it too, as under nohup. A handler is not inherited.
        signal.signal(number, lambda *_: None)
    log = lab.directory / "log"
    with lab.started(log, **environment) as process:
        wait_until(lambda: steps_recorded(lab) == 1 and probes_of(lab), process, log)
        os.killpg(process.pid, number)
        code = process.wait(PATIENCE_S)
    text = log.read_text(encoding="utf-8")
    assert code == 99, text
    assert lab.leftovers() == []
    (directory,) = lab.runs()
    document = read_run(directory)
    assert document.run.status == "interrupted"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    assert [gone.kind for gone in document.not_measured if gone.cause == "interrupted"] == ["latency_matrix"]
    page = (directory / "report" / "page.rst").read_text(encoding="utf-8")
    assert "the run was interrupted before this step ended" in page
    assert "localhost: step 1 of 2: Idle latency" in text
    assert "Interrupted: 1 of 2 steps measured" in text
    assert f"Results: {directory}" in text
    assert ("TASK [" in text) == (display == "another")


def test_an_interruption_before_anything_was_begun_leaves_nothing(lab: Lab) -> None:
    log = lab.directory / "log"
    with lab.started(log) as process:
        wait_until(lambda: "Checking the controller" in log.read_text(encoding="utf-8"), process, log)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
    # Ansible's own code: 250 where the interruption finds it between two tasks with no handler of its own for it, and 1
    # where it finds a worker first that the interruption ended.
    assert code in {1, 99, 250}, log.read_text(encoding="utf-8")
    assert lab.leftovers() == []
    assert [read_run(directory).run.status for directory in lab.runs()] in ([], ["interrupted"])


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


@pytest.mark.parametrize(("suts", "look_s"), [(1, 0.02), (8, 0.02), (100, 0.25)])
def test_the_controller_looks_at_its_workers_more_rarely_the_more_suts_there_are(
    suts: int, look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(END.atexit, "register", lambda _function: None)
    monkeypatch.setattr(END.gc, "freeze", lambda: None)
    monkeypatch.setattr(END.C, "DEFAULT_INTERNAL_POLL_INTERVAL", 0.02)
    known = SimpleNamespace(get_vars=lambda **_: {"ansible_play_hosts_all": [f"sut{number}" for number in range(suts)]})
    plugin = END.CallbackModule()
    for _ in range(2):
        plugin.v2_playbook_on_play_start(SimpleNamespace(get_variable_manager=lambda: known))
        assert look_s == END.C.DEFAULT_INTERNAL_POLL_INTERVAL
