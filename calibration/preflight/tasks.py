# SPDX-License-Identifier: Apache-2.0
"""The threads and processes that may be started, and the plan's needs."""

from collections.abc import Iterator

from calibration.audit.findings import Finding, outcome_of
from calibration.context.model import Context

PROGRAM_TASKS = 2
"""Threads of sutprobe itself, beside those that a step asks for."""


def check_tasks(context: Context, needed: int) -> Iterator[Finding]:
    """Yield whether a step may start the *needed* tasks; nothing if no control group limits them."""
    limit = context.confinement.task_limit
    if limit is not None:
        yield Finding(
            "tasks",
            f"at least {needed + PROGRAM_TASKS} more",
            f"{limit.left} of the {limit.limit} of control group {limit.group}",
            outcome_of(limit.left >= needed + PROGRAM_TASKS),
        )
