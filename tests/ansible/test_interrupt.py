# SPDX-License-Identifier: Apache-2.0
"""Interruptions: ``calibration run`` ends the run on the SUTs and collects it, ``ansible-playbook`` leaves it to them.

A hang-up is in test_resume, a cancelled job in test_automation, Ctrl-C on a terminal in test_progress.
"""

import os
import signal
import sys
from pathlib import Path

import pytest
from support import (
    PATIENCE_S,
    ROOT,
    SLOW,
    Lab,
    begun,
    calibrate,
    calibrate_command,
    held,
    inventory_of,
    let_go,
    over_ssh,
    run,
    steps_recorded,
    wait_until,
)

from calibration.commands.playbook_run import cleanup_after
from calibration.results.store import read_run

pytestmark = pytest.mark.slow


def interrupt(pid: int, number: signal.Signals, log: Path, text: str) -> None:
    """Send signal *number* to the process group when *log* has *text*."""
    wait_until(lambda: text in log.read_text(encoding="utf-8"), log=log)
    os.killpg(pid, number)


def test_an_early_interruption_leaves_nothing(lab: Lab) -> None:
    inventory, log = inventory_of(lab, {"sut1": {}}, SLOW), lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(), log) as process:
        interrupt(process.pid, signal.SIGINT, log, "Checking the controller")
        code = process.wait(PATIENCE_S)
    assert code == 4, log.read_text(encoding="utf-8")
    assert lab.leftovers() == []
    assert lab.runs() == []


HANGS_ONCE_AT_ITS_END = """
case "$command" in *" cancel "*) [ -e LOG.asked ] || { touch LOG.asked; exec sleep 600; };; esac
"""


def test_a_second_interruption_gives_up_and_prints_the_command_that_cleans_up(lab: Lab) -> None:
    inventory = inventory_of(lab, {"sut1": over_ssh(lab, "sut1", HANGS_ONCE_AT_ITS_END)}, SLOW)
    log = lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(), log) as process:
        wait_until(lambda: steps_recorded(lab) == 1, process, log)
        os.killpg(process.pid, signal.SIGTERM)
        wait_until((lab.directory / "sut1-log.asked").exists, process, log)
        os.kill(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
    text = log.read_text(encoding="utf-8")
    assert code == 4, text
    assert "Interrupted: cleaning up on sut1 (Ctrl-C again gives up)" in text
    (directory,) = lab.runs()
    assert not (directory / "run.json").exists()
    pasted = run(["/bin/sh", "-c", " ".join(text.rpartition("Repeat it with: ")[2].split())], lab.environment())
    assert pasted.rc == 0, f"{text}\n{pasted.text}"
    assert read_run(directory).run.status == "interrupted"
    assert list(lab.remote.iterdir()) == []


def test_a_plain_playbook_leaves_its_suts_running_and_a_resumed_run_collects_them(lab: Lab) -> None:
    """The steps that the interruption met are measured once."""
    inventory = inventory_of(lab, {"sut1": over_ssh(lab, "sut1", held("watch"))})
    log = lab.directory / "log"
    with begun(lab.command("calibrate.yml", "-i", str(inventory)), lab.environment(), log) as process:
        wait_until((lab.directory / "sut1-log.held").exists, process, log)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_S)
        assert code not in {0, 2}, log.read_text(encoding="utf-8")
        (directory,) = lab.runs()
        assert not (directory / "run.json").exists()
    let_go(lab, "sut1")
    ended = calibrate(lab, inventory, "--resume")
    assert ended.rc == 0, ended.text
    document = read_run(directory)
    assert document.run.status == "complete"
    assert len(document.attempts) == 1
    assert steps_recorded(lab) == 1
    assert lab.leftovers() == []


FORKING = """
import os, signal, sys, threading, time
from calibration.commands.playbook_run import Interruptions, exit_code_of, watched

class Early(threading.Timer):
    def start(self):
        threading.Timer = Usual
        os.kill(os.getpid(), signal.SIGINT)

if sys.argv[4] == "early":
    Usual, threading.Timer = threading.Timer, Early
os.register_at_fork(**{sys.argv[1]: lambda: os.kill(os.getpid(), int(sys.argv[3]))})
Interruptions()
try:
    if os.fork() == 0:
        os._exit(0)
    time.sleep(float(sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted", exit_code_of(1, watched.failures))
"""


@pytest.mark.parametrize(
    ("when", "number", "repeated"),
    [
        ("before", signal.SIGINT, "later"),
        ("before", signal.SIGINT, "early"),
        ("after_in_parent", signal.SIGTERM, "later"),
    ],
)
def test_an_interruption_during_a_fork_is_not_lost(lab: Lab, when: str, number: signal.Signals, repeated: str) -> None:
    """Python ignores exceptions in functions called around a fork, and an interruption is one.

    On a loaded machine the repetition may come *early*: before these functions have ended.
    """
    command = [sys.executable, "-c", FORKING, when, str(PATIENCE_S), str(int(number)), repeated]
    ended = run(command, lab.environment(PYTHONPATH=str(ROOT)))
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
    command = cleanup_after(arguments, "20261121T000000Z-0000", ["sut1", "sut2"])
    assert command[1:5] == ["-m", "ansible", "playbook", str(ROOT / "playbooks" / "cleanup.yml")]
    assert command[5:] == [
        *("-i", "/labs/mine", "-e", "a=1", "-e", "@/labs/vars.yml"),
        *("--private-key=/keys/lab", "--user=lab", "--become-method=su", "--become", "--limit", "sut1,sut2"),
        *("-e", '{"calibration_run_id": "20261121T000000Z-0000"}'),
    ]
