# SPDX-License-Identifier: Apache-2.0
"""A worker process of Ansible that dies costs its SUT at most, whatever kills it, and the run ends."""

import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import (
    PATIENCE_S,
    ROOT,
    TWO,
    Lab,
    base_of,
    begun,
    calibrate,
    inventory_of,
    let_go,
    load_plugin,
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

KILLED = "a worker process of Ansible was killed by SIGKILL"


def parent_of(process: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def workers_of(controller: int, base: Path) -> set[int]:
    """Return the worker of *controller* that watches the run below *base*, if there is one."""
    found = set()
    for text in processes_of(base):
        process = int(text.split()[1].rstrip(":"))
        while " watch " in text and process and parent_of(process) != controller:
            process = parent_of(process)
        found |= {process} if " watch " in text and process else set()
    return found


@pytest.mark.slow
def test_a_night_survives_killed_workers(lab: Lab) -> None:
    """One is killed once: nothing is lost. Another's successor is killed too: its document says so."""
    hosts = {name: {**stuck(lab, name), **base_of(lab, name)} for name in ("once", "twice")}
    inventory, log = inventory_of(lab, {**hosts, "healthy": {}}, TWO), lab.directory / "log"
    night = [sys.executable, "-m", "calibration.cli", "run", "--nightly", "--profile", str(TWO), "-i", str(inventory)]
    settings = {"judge_dir": str(lab.directory / "night")}
    with begun([*night, "-e", json.dumps(settings)], lab.environment(), log) as process:
        wait_until(lambda: steps_recorded(lab) == 4, process, log)
        killed: set[int] = set()
        for name in ("once", "twice", "twice"):
            base = lab.remote / name
            wait_until(lambda base=base: workers_of(process.pid, base) - killed, process, log)
            (worker,) = workers_of(process.pid, base) - killed
            killed.add(worker)
            os.kill(worker, signal.SIGKILL)
        let_go(lab, "once")
        code = process.wait(PATIENCE_S)
    text = log.read_text(encoding="utf-8")
    assert code == 3, text
    assert f"once: {KILLED}" in text
    assert {name: read_run(run_of(lab, name)).run.status for name in ("healthy", "once", "twice")} == {
        "healthy": "complete",
        "once": "complete",
        "twice": "incomplete",
    }
    assert len(read_run(run_of(lab, "once")).attempts) == 1
    assert any(KILLED in gone.reason for gone in read_run(run_of(lab, "twice")).not_measured), text
    assert (lab.directory / "night" / "judgement.json").exists()
    hold(lab.results, datetime.now(UTC)).close()

    let_go(lab, "twice")
    ended = calibrate(lab, inventory, "--resume")
    assert ended.rc == 0, ended.text
    document = read_run(run_of(lab, "twice"))
    assert document.run.status == "complete"
    steps = [record.step.id for record in records(run_of(lab, "twice")) if isinstance(record, StepRecord)]
    assert sorted(steps) == ["idle_latency", "latency_matrix"]
    assert list(lab.remote.glob("*/*")) == []


PLAY = """
- hosts: all
  gather_facts: false
  strategy: STRATEGY
  tasks:
    - calibration.harness.name_run: {results: RESULTS}
    - dies: {how: "{{ how }}"}
    - ansible.builtin.debug: {msg: went on}
"""

DIES = """
import os, signal
from ansible.executor.process import worker
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        how = self._task.args["how"]
        if how == "locked":
            worker.current_worker._final_q._wlock.acquire()
        if how in ("killed", "locked"):
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            os._exit(7)
        if how == "reports":
            # The result is received, and then it is killed.
            send = worker.current_worker._final_q.send_task_result
            worker.current_worker._final_q.send_task_result = lambda *sent: (send(*sent), os.kill(os.getpid(), 9))
        return {"changed": False}
"""

MISHAPS = """
import errno, os
from ansible.plugins.callback import CallbackBase
from ansible_collections.calibration.harness.plugins.plugin_utils import workers

fork = os.fork

class CallbackModule(CallbackBase):
    def v2_runner_on_start(self, host, task):
        def refuse():
            os.fork = fork
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        if host.name == "unstarted" and task.action == "dies":
            os.fork = refuse
        if host.name == "locked":
            workers.LOCK_S = 0.1
"""


def play(lab: Lab, strategy: str, *hosts: str) -> tuple[int, str]:
    """Play with *hosts* whose workers die as they are named; return exit code and output."""
    for name, text in (("action_plugins/dies.py", DIES), ("callback_plugins/mishaps.py", MISHAPS)):
        (lab.directory / name).parent.mkdir(exist_ok=True)
        (lab.directory / name).write_text(text, encoding="utf-8")
    playbook = lab.directory / "play.yml"
    playbook.write_text(PLAY.replace("STRATEGY", strategy).replace("RESULTS", str(lab.results)), encoding="utf-8")
    inventory = inventory_of(lab, {name: {"how": name} for name in hosts})
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), str(playbook)]
    ended = run(command, lab.environment(PYTHONPATH=str(ROOT)))
    return ended.rc, ended.text


@pytest.mark.parametrize("strategy", ["host_pinned", "linear", "free"])
def test_a_task_of_others_fails_with_the_reason(lab: Lab, strategy: str) -> None:
    reasons = {
        "killed": "was killed by SIGKILL",
        "exits": "ended with exit code 7",
        "unstarted": "cannot be started: Cannot allocate memory",
    }
    code, text = play(lab, strategy, "healthy", "reports", *reasons)
    assert code == 2, text
    for name, reason in reasons.items():
        assert f"{name}: a worker process of Ansible {reason}; a run that has begun" in text
    assert set(re.findall(r"^(\w+): a worker", text, re.MULTILINE)) == set(reasons)


def test_a_worker_killed_while_it_reports_ends_the_playbook(lab: Lab) -> None:
    code, text = play(lab, "host_pinned", "healthy", "locked")
    assert code == 1, text
    assert "was killed by SIGKILL while it sent a result, so that no other can" in " ".join(text.split())


WAITING = load_plugin("plugin_utils", "waiting")
PROCESSES = load_plugin("plugin_utils", "processes")


def looking(pending: int) -> tuple[SimpleNamespace, list[str]]:
    """Return a strategy with so many *pending* results, and what it found each time that it looked for them."""
    found: list[str] = []

    def process(strategy: Any, _iterator: None, _one_pass: bool, _max_passes: int | None) -> None:
        found.append(",".join(strategy._results))
        strategy._results.clear()

    lock = threading.Condition(threading.Lock())
    strategy = SimpleNamespace(_results=deque[str](), _results_lock=lock, _pending_results=pending)
    strategy.look = WAITING.waiting(process)
    return strategy, found


def test_a_controller_looks_for_results_when_there_is_one() -> None:
    strategy, found = looking(pending=2)
    strategy.look(strategy, None, max_passes=1)
    assert found == [""], "there may be more to start"

    def report(result: str) -> None:
        with strategy._results_lock:
            strategy._results.append(result)

    for result in ("first", "second"):
        late = threading.Timer(0.3, report, [result])
        late.start()
        strategy.look(strategy, None)
        late.join()
    assert found == ["", "first", "second"]


def test_a_controller_looks_again_for_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WAITING, "DEAD_S", 0.01)
    strategy, found = looking(pending=1)
    strategy.look(strategy, None)
    assert found == [""]


def test_a_controller_does_not_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WAITING, "DEAD_S", PATIENCE_S)
    strategy, found = looking(pending=0)
    strategy.look(strategy, None)
    assert found == [""]


@pytest.mark.parametrize("free", [True, False])
def test_a_task_waits_for_a_worker(free: bool) -> None:
    inside, outside = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=outside.recv)
    worker.start()
    strategy = SimpleNamespace(_workers=[worker, *[None] * free])
    ended = threading.Event()

    def end() -> None:
        ended.set()
        inside.send(None)

    threading.Timer(0.3, end).start()
    assert WAITING.with_worker(lambda *_: ended.is_set())(strategy) is not free
    worker.join()


def test_no_more_workers_than_cpus_write_a_document_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    context = multiprocessing.get_context("fork")
    inside, most = context.Value("i", 0), context.Value("i", 0)

    def work() -> None:
        with PROCESSES.one_per_cpu(str(tmp_path)):
            with inside.get_lock():
                inside.value += 1
                most.value = max(most.value, inside.value)
            time.sleep(0.1)
            with inside.get_lock():
                inside.value -= 1

    workers = [context.Process(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert most.value == 2
