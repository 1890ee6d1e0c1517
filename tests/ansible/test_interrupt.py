# SPDX-License-Identifier: Apache-2.0
"""Interruptions that no other test has: before anything has begun, and during a fork.

Ctrl-C on a terminal is in test_progress, a hang-up in test_resume, a cancelled job in test_automation.
"""

import os
import signal
import sys
from types import SimpleNamespace

import pytest
from support import PATIENCE_S, ROOT, Lab, load_plugin, run, wait_until

from calibration.results.store import read_run

END = load_plugin("callback", "calibration_end")


def test_an_early_interruption_leaves_nothing(lab: Lab) -> None:
    log = lab.directory / "log"
    with lab.started(log) as process:
        wait_until(lambda: "Checking the controller" in log.read_text(encoding="utf-8"), process, log)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
    # Ansible's own code: 250 if interrupted between two tasks, 1 if it first finds a worker that was interrupted.
    assert code in {1, 99, 250}, log.read_text(encoding="utf-8")
    assert lab.leftovers() == []
    assert [read_run(directory).run.status for directory in lab.runs()] in ([], ["interrupted"])


FORKING = """
import os, signal, sys, time
from support import load_plugin
from calibration.run import exit_code_of, _reasons

os.register_at_fork(**{sys.argv[1]: lambda: os.kill(os.getpid(), int(sys.argv[3]))})
load_plugin("callback", "calibration_end").CallbackModule().v2_playbook_on_start(None)
try:
    if os.fork() == 0:
        os._exit(0)
    time.sleep(float(sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted", exit_code_of(1, _reasons.codes))
"""


@pytest.mark.parametrize(("when", "number"), [("before", signal.SIGINT), ("after_in_parent", signal.SIGTERM)])
def test_an_interruption_during_a_fork_is_not_lost(lab: Lab, when: str, number: signal.Signals) -> None:
    """Python ignores exceptions in functions called around a fork, and an interruption is one."""
    path = f"{ROOT / 'tests' / 'ansible'}:{ROOT}"
    ended = run(
        [sys.executable, "-c", FORKING, when, str(PATIENCE_S), str(int(number))], lab.environment(PYTHONPATH=path)
    )
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
def test_the_polling_interval_grows_with_the_number_of_suts(
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
