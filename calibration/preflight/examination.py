# SPDX-License-Identifier: Apache-2.0
"""All checks of a SUT: the first ones, and those on its captured context."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calibration.audit.files import Files, open_files
from calibration.audit.kinds import asked_for, evaluate_items
from calibration.audit.readings import Machine
from calibration.context.loader import STORED_CAPTURE
from calibration.context.model import Context
from calibration.plan import Plan, make_plan
from calibration.preflight.agreement import Known, check_agreement, read_known
from calibration.preflight.checks import Check, checks_of
from calibration.preflight.clock import check_clock_source
from calibration.preflight.cpus import check_foreign_load, check_isolation_kept
from calibration.preflight.expectations import Expectations, read_again
from calibration.preflight.memory import check_free_memory, short_of_memory
from calibration.profiles import Profile


def evaluate(
    context: Context,
    known: Known,
    expectations: Expectations,
    *,
    files: Files | None = None,
    plan: Plan | None = None,
    short: Mapping[int | None, int] | None = None,
) -> tuple[Check, ...]:
    """Return every check of a SUT: those in *known*, and those on its *context* and the *files* of its capture.

    Other load is checked on the CPUs of *plan*, without a plan on all. *short* are the nodes with too little memory for
    the plan, with the required amount (see ``short_of_memory``).
    """
    measured = context.online_cpus if plan is None else {cpu for step in plan.steps for cpu in step.cpus}
    findings = (
        *evaluate_items(expectations.state, Machine(context, files)),
        *check_isolation_kept(context),
        *check_foreign_load(context, measured, expectations.foreign_load_max),
        *check_free_memory(context, expectations.node_free_bytes, short or {}),
        *check_clock_source(context),
        *check_agreement(known),
    )
    return (*known.checks, *checks_of(findings, expectations.effects))


def read_examination(given: Mapping[str, Any], profile: Profile) -> Callable[[Context, Plan, bytes], tuple[Check, ...]]:
    """Return a function that examines a SUT's context, plan and capture, from the results of the role preflight.

    *given* has ``known`` (the first checks, and the SUTs to compare with) and ``expectations``; without them there are
    no checks. The plan is recomputed with *profile* to find the memory it needs. Raises ``InputError`` for another
    form.
    """
    if not given.get("known"):
        return lambda _context, _plan, _capture: ()
    known = read_known(given["known"])
    expectations = read_again(given.get("expectations") or {})

    def examine(context: Context, plan: Plan, capture: bytes) -> tuple[Check, ...]:
        switched = any(step.prefetchers is not None for step in plan.steps)

        def planned(context: Context, chosen: Profile) -> Plan:
            return make_plan(context, chosen, plan.traffic_shape, plan.last_level_cache, prefetchers_ok=switched)

        short = short_of_memory(context, profile, planned)
        # The capture is opened again only for items that are about files of it.
        files = open_files(Path(STORED_CAPTURE), capture) if asked_for(expectations.state) else None
        return evaluate(context, known, expectations, files=files, plan=plan, short=short)

    return examine
