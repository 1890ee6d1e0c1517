# SPDX-License-Identifier: Apache-2.0
"""Lets the controller sleep until a worker of Ansible is done, instead of looking at all of them many times a second.

Its strategies are extended when a plugin of this collection is loaded, as in ``workers``.
"""

from __future__ import annotations

import functools
from collections import deque
from multiprocessing.connection import wait

from ansible.plugins.strategy import StrategyBase

DEAD_S = 1.0
"""Time after which a worker that died without a result is noticed."""


class Results(deque):
    """The results of a strategy, whose thread appends to them holding *lock*, that of who waits for them."""

    def __init__(self, results, lock):
        super().__init__(results)
        self.lock = lock

    def append(self, result):
        """Add a result and wake who waits for it."""
        super().append(result)
        self.lock.notify()


def await_result(strategy):
    """Wait until a task that is under way has a result."""
    lock = strategy._results_lock
    with lock:
        if not isinstance(strategy._results, Results):
            strategy._results = Results(strategy._results, lock)
        if strategy._pending_results:
            lock.wait_for(lambda: strategy._results, DEAD_S)


def await_worker(strategy):
    """Wait until there is a worker for another task."""
    workers = strategy._workers
    if all(worker is not None and worker.is_alive() for worker in workers):
        wait([worker.sentinel for worker in workers])


def waiting(process):
    """Return Ansible's method *process* for the results, which waits for one first where nothing else is to be done."""

    @functools.wraps(process)
    def wait_and_process(strategy, iterator, one_pass=False, max_passes=None):
        if not (one_pass or max_passes):
            await_result(strategy)
        return process(strategy, iterator, one_pass, max_passes)

    return wait_and_process


def with_worker(queue):
    """Return Ansible's method *queue* for a task, which waits for a worker first."""

    @functools.wraps(queue)
    def wait_and_queue(strategy, *args):
        await_worker(strategy)
        return queue(strategy, *args)

    return wait_and_queue


if not hasattr(StrategyBase._queue_task, "__wrapped__"):
    StrategyBase._process_pending_results = waiting(StrategyBase._process_pending_results)
    StrategyBase._queue_task = with_worker(StrategyBase._queue_task)
