# SPDX-License-Identifier: Apache-2.0
"""All checks of a SUT: the first ones, and those on its captured context."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calibration.audit.files import Files, open_files
from calibration.audit.kinds import asked_for, evaluate_items
from calibration.audit.readings import AuditedMachine
from calibration.context.loader import STORED_CAPTURE
from calibration.context.model import Context
from calibration.measurements.plan import Plan
from calibration.preflight.agreement import Known, check_agreement, read_known
from calibration.preflight.checks import Check, checks_of
from calibration.preflight.clock import check_clock_source
from calibration.preflight.cpus import check_background_load, check_isolation_kept
from calibration.preflight.expectations import Expectations, read_again
from calibration.preflight.memory import check_free_memory
from calibration.preflight.tasks import check_tasks


def evaluate(
    context: Context,
    known: Known,
    expectations: Expectations,
    *,
    files: Files | None = None,
    plan: Plan | None = None,
) -> tuple[Check, ...]:
    """Return every check of a SUT: those in *known*, and those on its *context* and the *files* of its capture.

    Other load is checked on the CPUs of *plan*, without a plan on all, and memory for the plan's needs.
    """
    steps = () if plan is None else plan.steps
    measured = context.online_cpus if plan is None else {cpu for step in steps for cpu in step.cpus}
    findings = (
        *evaluate_items(expectations.state, AuditedMachine(context, files)),
        *check_isolation_kept(context),
        *check_background_load(context, measured, expectations.background_load_max),
        *check_free_memory(context, expectations.node_free_bytes, {} if plan is None else plan.full_memory_bytes),
        *check_tasks(context, max((step.tasks for step in steps), default=0)),
        *check_clock_source(context),
        *check_agreement(known),
    )
    return (*known.checks, *checks_of(findings, expectations.severity))


def read_examination(given: Mapping[str, Any]) -> Callable[[Context, Plan, bytes], tuple[Check, ...]]:
    """Return a function that examines a SUT's context, plan and capture, from the results of the role preflight.

    *given* has ``known`` (the first checks, and the SUTs to compare with) and ``expectations``; without them there are
    no checks. Raises ``InputError`` for another form.
    """
    if not given.get("known"):
        return lambda _context, _plan, _capture: ()
    known = read_known(given["known"])
    expectations = read_again(given.get("expectations") or {})

    def examine(context: Context, plan: Plan, capture: bytes) -> tuple[Check, ...]:
        # The capture is opened again only for items that are about files of it.
        files = open_files(Path(STORED_CAPTURE), capture) if asked_for(expectations.state) else None
        return evaluate(context, known, expectations, files=files, plan=plan)

    return examine
