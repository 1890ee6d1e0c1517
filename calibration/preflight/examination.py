# SPDX-License-Identifier: Apache-2.0
"""All checks of a SUT: the first ones, and those on its captured context."""

from collections.abc import Callable, Mapping
from typing import Any

from calibration.context.model import Context
from calibration.plan import Plan, make_plan
from calibration.preflight.agreement import Known, check_agreement, read_known
from calibration.preflight.checks import Check, checks_of
from calibration.preflight.clock import check_clock_source
from calibration.preflight.cpus import check_foreign_load, check_isolated_cpus, check_isolation_kept
from calibration.preflight.expectations import Expectations, read_expectations
from calibration.preflight.kernel_arguments import check_kernel_arguments, check_kernel_release
from calibration.preflight.memory import check_free_memory, short_of_memory
from calibration.profiles import Profile


def evaluate(
    context: Context,
    known: Known,
    expectations: Expectations,
    *,
    plan: Plan | None = None,
    short: Mapping[int | None, int] | None = None,
) -> tuple[Check, ...]:
    """Return every check of a SUT: those in *known*, and those on its *context*.

    Other load is checked on the CPUs of *plan*, without a plan on all. *short* are the nodes with too little memory for
    the plan, with the required amount (see ``short_of_memory``).
    """
    measured = context.online_cpus if plan is None else tuple(sorted({cpu for step in plan.steps for cpu in step.cpus}))
    findings = (
        *check_kernel_arguments(context, expectations.kernel_arguments),
        *check_kernel_release(context, expectations.kernel_release),
        *check_isolated_cpus(context, expectations.isolated_cpus),
        *check_isolation_kept(context),
        *check_foreign_load(context, measured, expectations.foreign_load_max),
        *check_free_memory(context, expectations.node_free_bytes, short or {}),
        *check_clock_source(context),
        *check_agreement(known),
    )
    return (*known.checks, *checks_of(findings, expectations.effects))


def read_examination(given: Mapping[str, Any], profile: Profile) -> Callable[[Context, Plan], tuple[Check, ...]]:
    """Return a function that examines a SUT's context and plan, from the results of the role preflight.

    *given* has ``known`` (the first checks, and the SUTs to compare with) and ``expectations``; without them there are
    no checks. The plan is recomputed with *profile* to find the memory it needs. Raises ``InputError`` for another
    form.
    """
    if not given.get("known"):
        return lambda _context, _plan: ()
    known = read_known(given["known"])
    expectations = read_expectations(given.get("expectations") or {})

    def examine(context: Context, plan: Plan) -> tuple[Check, ...]:
        switched = any(step.prefetchers is not None for step in plan.steps)

        def planned(context: Context, chosen: Profile) -> Plan:
            return make_plan(context, chosen, plan.traffic_shape, plan.last_level_cache, prefetchers_ok=switched)

        short = short_of_memory(context, profile, planned)
        return evaluate(context, known, expectations, plan=plan, short=short)

    return examine
