# SPDX-License-Identifier: Apache-2.0
"""Limits the death of a worker of Ansible, such as by the OOM killer, to its task.

Ansible forks a worker for each task of each SUT. If one dies without a result, the strategies free and host_pinned wait
for it without end, and linear ends the playbook. With this, a task of our roles is run again in a new worker: measuring
resumes the run on the SUT, and, if that one dies too, notes the reason in the document. Another's task fails.

ansible-core deprecates strategies from elsewhere, so its own are extended when a plugin of this collection is loaded.
"""

from __future__ import annotations

import functools
import os
import signal

import ansible_collections.calibration.harness.plugins.plugin_utils.package  # noqa: F401 - makes the package importable in a checkout
from ansible.errors import AnsibleError
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.utils.display import Display

from ansible import constants as C
from ansible.plugins import strategy as strategies
from calibration.base.commandline import run_command
from calibration.base.errors import ENVIRONMENT
from calibration.base.text import message
from calibration.commands.playbook_run import watched
from calibration.runner.processes import oom_kills

OURS = "calibration.harness."

RECEIVED = "calibration_received"
"""Method of Ansible's display by which its thread of results notes how far it is."""

DEATHS = "__calibration_deaths"
"""Variable with the reasons of a task's workers that died."""

MAX_RERUNS = 2
"""Times a task of our roles is run again. The last time measuring only notes why it is given up, which takes less."""

FAIL = "ansible.builtin.fail"

LOCK_S = 10.0
"""Time after which a locked, empty queue of results was left locked by a dead worker: others hold it for an instant."""

display = Display()

unsettled = []
"""Workers whose end has not been examined."""

received = set()
"""Names of dead workers of which all that they had sent was received."""


class Worker(WorkerProcess):
    """A worker that keeps why it ended."""

    reason = None
    """Why it ended; empty if it ended by itself."""

    asked = False
    """Whether the queue of results was asked to tell when all that the dead worker had sent is received."""

    def start(self):
        """Start the process. If that is not possible it counts as dead: Ansible would forget the task."""
        self.kills = oom_kills()
        unsettled.append(self)
        try:
            super().start()
        except OSError as error:
            self.reason = f"cannot be started: {error.strerror}"

    def close(self):
        """Release the process, whose slot is used again."""
        self.examine()
        super().close()

    def examine(self):
        """Set the reason if the process has ended."""
        if self.reason is None and (code := self.exitcode) is not None:
            self.reason = self.reason_of(code) if code else ""

    def reason_of(self, code):
        """Return the reason of a process that ended with *code*, in the form of :mod:`multiprocessing`."""
        if code > 0:
            return f"ended with exit code {code}"
        text = f"was killed by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL and self.kills != oom_kills():
            text += " (out of memory: the kernel's OOM killer ended a process; free memory, or use fewer --forks)"
        return text


def settle(strategy):
    """Run the tasks of dead workers again, or fail them."""
    for worker in tuple(unsettled):
        worker.examine()
        if worker.reason is None:
            continue
        if worker.reason and worker.name not in received:
            if not worker.asked:
                ask(strategy._final_q, worker)
            continue
        unsettled.remove(worker)
        if worker.reason and not has_result(strategy, worker):
            replace(strategy, worker)


def ask(queue, worker):
    """Have the worker's name added to ``received`` when all that was sent before is received.

    Raises AnsibleError if the worker died while it sent something, so that no other can.
    """
    if queue._wlock.acquire(timeout=LOCK_S):
        queue._wlock.release()
        setattr(display, RECEIVED, received.add)
        queue.send_display(RECEIVED, worker.name)
        worker.asked = True
    elif queue.empty():
        # The thread that reads ends with the next byte; then Ansible, which writes once more, can end too.
        os.dup(queue._reader.fileno())
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), queue._reader.fileno())
        os.write(queue._writer.fileno(), b"\0")
        queue._wlock.release()
        end(f"a worker process of Ansible {worker.reason} while it sent a result, so that no other can")


def key_of(host, task):
    """Return Ansible's key of a task of a host."""
    return host.name, task._uuid


def has_result(strategy, worker):
    """Return whether a result of the worker's task was received."""
    key = key_of(worker._host, worker._task)
    with strategy._results_lock:
        waiting = any(key_of(result.host, result.task) == key for result in strategy._results)
    return waiting or key not in strategy._queued_task_cache


def collecting():
    """Return what to do about a run whose worker is lost."""
    return f"a run that has begun completes on the SUT: collect it with {run_command('--resume')}"


def replace(strategy, worker):
    """Run the task of a dead worker in a new one: again if it is ours, and then one that fails in its place.

    Raises AnsibleError if not even that can be done.
    """
    host, key = worker._host, key_of(worker._host, worker._task)
    queued = strategy._queued_task_cache[key]
    task, variables = queued["task"], queued["task_vars"]
    deaths = [*variables.get(DEATHS, ()), f"a worker process of Ansible {worker.reason}"]
    role = task._role.get_name(include_role_fqcn=True) if task._role else ""
    if role.startswith(OURS) and len(deaths) <= MAX_RERUNS:
        display.display(message(f"{host.name}: {deaths[-1]}; trying again"), color=C.COLOR_ERROR)
        variables = {**variables, "calibration_resume": True}
    elif task.action != FAIL:
        task = task.copy()
        task.action, task.args = FAIL, {"msg": f"{deaths[-1]}; {collecting()}"}
    else:
        end(f"{deaths[-1]}, again and again")
    strategy._pending_results -= 1
    strategy._queue_task(host, task, {**variables, DEATHS: deaths}, queued["play_context"])


def end(reason):
    """End the playbook."""
    watched.failures.add(ENVIRONMENT)
    raise AnsibleError(f"{reason}; {collecting()}")


def settled_first(process):
    """Return Ansible's method *process* for the results, which settles dead workers first."""

    @functools.wraps(process)
    def settle_and_process(strategy, *args, **named):
        settle(strategy)
        return process(strategy, *args, **named)

    return settle_and_process


if strategies.WorkerProcess is not Worker:
    strategies.WorkerProcess = Worker
    strategies.StrategyBase._process_pending_results = settled_first(strategies.StrategyBase._process_pending_results)
    TaskQueueManager.has_dead_workers = lambda _manager: False  # they are dealt with here
