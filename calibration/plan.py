# SPDX-License-Identifier: Apache-2.0
"""The plan: context and profile in, ordered steps with expected durations out.

A plan is computed on the controller and decides everything; the SUT decides nothing. So it can be printed, reviewed and
tested without a SUT.
"""

from calibration.context.model import Context
from calibration.errors import EnvironmentLacksError
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.choice import CacheReference, ShapeReference
from calibration.measurements.counting import uncounted
from calibration.measurements.sut import sized
from calibration.mlc import NAME, MlcCommand
from calibration.model import Model
from calibration.profiles import Profile


class Plan(Model):
    """The steps of one run in their order, and what will not be measured and why.

    ``mlc`` are the commands of Intel MLC that follow the steps where the operator has it; no duration counts them.
    """

    profile: str
    steps: tuple[Step, ...]
    not_planned: tuple[NotPlanned, ...]
    expected_duration_s: float
    longest_duration_s: float
    traffic_shape: ShapeReference | None
    last_level_cache: CacheReference | None = None
    mlc: tuple[MlcCommand, ...] = ()


NO_CONSENT = "it wants the hardware prefetchers off: set tune_prefetchers_ok: true to agree (docs/guide/changes.rst)"


def make_plan(
    context: Context,
    profile: Profile,
    kept: ShapeReference | None = None,
    last_level_cache: CacheReference | None = None,
    *,
    prefetchers_ok: bool = False,
) -> Plan:
    """Return the plan for the SUT of *context*.

    *kept* is the best traffic shape, *last_level_cache* the size of that cache, as found on its platform before.

    Steps that want the prefetchers off come last, and only with *prefetchers_ok*, the consent to switch them: so they
    are switched once, and whatever happens to them happens after all that needs them as they are.

    Raises ``EnvironmentLacksError`` where nothing could be measured.
    """
    context = sized(context, last_level_cache)
    steps: list[Step] = []
    switched: list[Step] = []
    not_planned: list[NotPlanned] = []
    for kind, settings in profile.measurements.items():
        for each in declaration(kind).planned(context, settings, kept):
            if isinstance(each, NotPlanned):
                not_planned.append(each)
            elif each.prefetchers is None:
                steps.append(each)
            elif prefetchers_ok:
                switched.append(each)
            else:
                not_planned.append(NotPlanned(kind=kind, what=each.title, reason=NO_CONSENT))
    steps += switched
    not_planned += [
        NotPlanned(kind=kind, what=declaration(kind).title, reason=f"left out by the profile: {reason}")
        for kind, reason in profile.not_measured.items()
    ]
    if any(getattr(settings, "counters", False) for settings in profile.measurements.values()):
        not_planned += uncounted(context)
    not_planned += [
        NotPlanned(kind="context", what=each.path, reason=f"not readable on the SUT: {each.reason}")
        for each in context.unreadable
    ]
    if not steps:
        reasons = "; ".join(each.reason for each in not_planned)
        raise EnvironmentLacksError(f"expected at least one step for profile {profile.name}, found none: {reasons}")
    return Plan(
        profile=profile.name,
        steps=tuple(steps),
        not_planned=tuple(not_planned),
        expected_duration_s=round(sum(step.expected_duration_s for step in steps), 1),
        longest_duration_s=round(sum(step.longest_duration_s for step in steps), 1),
        traffic_shape=kept,
        last_level_cache=last_level_cache,
        mlc=profile.mlc,
    )


def plan_text(plan: Plan) -> str:
    """Return the plan as a person reads it: one line per step, then what will not be measured."""
    width = max(len(step.title) for step in plan.steps)
    unconverged = f"{plan.longest_duration_s:.0f} s where no figure converges"
    times = f"about {plan.expected_duration_s:.0f} s of measuring, {unconverged}"
    lines = [f"Profile {plan.profile}: {len(plan.steps)} steps, {times}", ""]
    for number, step in enumerate(plan.steps, 1):
        lines.append(
            f"{number:3}  {step.title:<{width}}  about {step.expected_duration_s:6.1f} s, "
            f"{step.longest_duration_s:6.1f} s unconverged, ended after {step.deadline_s:.0f} s"
        )
        lines.append(f"     $ {' '.join(step.argv)}")
    if plan.traffic_shape is not None:
        lines += ["", f"Traffic shape: {plan.traffic_shape.words}"]
    if plan.last_level_cache is not None:
        lines += ["", f"Last-level cache: {plan.last_level_cache.words}"]
    if plan.mlc:
        commands = ", ".join(" ".join((f"--{each.command}", *each.options)) for each in plan.mlc)
        lines += ["", f"{NAME}, where the inventory has it (mlc_archive): {commands}"]
    if plan.not_planned:
        lines += ["", "Not measured:"]
        lines += [f"  {each.kind}: {each.what}: {each.reason}" for each in plan.not_planned]
    return "\n".join(lines)
