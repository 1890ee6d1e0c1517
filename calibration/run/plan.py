# SPDX-License-Identifier: Apache-2.0
"""The plan: context and profile in, ordered steps with expected durations out.

The plan is computed on the controller and decides everything; the SUT decides nothing. So it can be printed, reviewed
and tested without a SUT.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from textwrap import wrap

from calibration.base.cpulists import format_cpulist
from calibration.base.errors import EnvironmentLacksError
from calibration.base.grouping import grouped
from calibration.base.text import WIDTH, duration
from calibration.base.units import plural, size
from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Planned, Settings, Step
from calibration.measurements.counting import uncounted
from calibration.measurements.instructions import possible_mixes
from calibration.measurements.mlc_program import ARCHITECTURE, NAME
from calibration.measurements.plan import Plan, durations
from calibration.measurements.platform import CacheReference, ShapeReference
from calibration.measurements.sut import Sut, confined
from calibration.profiles import Profile

NO_CONSENT = "it needs the hardware prefetchers off: set tune_prefetchers_ok: true to agree (docs/guide/changes.rst)"

CONFINED = "confinement"
"""Kind of a plan's entries about what the login may not use."""

BY_PROFILE = "left out by the profile: "
"""Prefix of the reason if the profile excludes something."""


def make_plan(
    context: Context,
    profile: Profile,
    kept: ShapeReference | None = None,
    last_level_cache: CacheReference | None = None,
    *,
    prefetchers_ok: bool = False,
    seed: int = 0,
) -> Plan:
    """Return the plan for the SUT of *context*, whose order *seed* decides.

    *kept* is the best access pattern, *last_level_cache* the size of that cache, as found earlier on the platform.

    Steps that need the prefetchers off come last in a round, and only with *prefetchers_ok*, the consent to switch
    them: so they are switched once in each, after everything that needs them as found.

    Raises ``EnvironmentLacksError`` if nothing can be measured.
    """
    sut = Sut(context, kept, last_level_cache)
    roomy = sut.with_room()  # most SUTs are: a kind is declared again only where it does not fit
    full: list[Step] = []
    planned: list[Planned] = []
    for kind, settings in profile.measurements.items():
        fills = declaration(kind).fills_memory
        with_room = _declared(sut if fills else roomy, kind, settings, prefetchers_ok=prefetchers_ok)
        wanted = [] if fills else [step for step in with_room if isinstance(step, Step)]
        fits = not any(sut.lacking(step.memory_bytes) for step in wanted)
        planned += with_room if fits else _declared(sut, kind, settings, prefetchers_ok=prefetchers_ok)
        full += wanted
    not_planned = [item for item in planned if isinstance(item, NotPlanned)]
    steps = sorted((item for item in planned if isinstance(item, Step)), key=lambda step: step.prefetchers is not None)
    steps = [step.in_rounds(1 if _is_once(step) else profile.rounds) for step in steps]
    not_planned += [
        NotPlanned(kind=kind, what=declaration(kind).title, reason=f"{BY_PROFILE}{reason}")
        for kind, reason in profile.not_measured.items()
    ]
    if any(getattr(settings, "counters", False) for settings in profile.measurements.values()):
        not_planned += uncounted(context)
    not_planned += [NotPlanned(kind=CONFINED, what=what, reason=reason) for what, reason in confined(sut)]
    not_planned += _smaller(sut, full, {step.argv for step in steps})
    not_planned += [
        NotPlanned(kind="context", what=file.path, reason=f"not readable on the SUT: {file.reason}")
        for file in context.unreadable
    ]
    if not steps:
        reasons = "; ".join(skipped.reason for skipped in not_planned)
        raise EnvironmentLacksError(f"profile {profile.name} has nothing to measure here: {reasons}")
    return Plan(
        profile=profile.name,
        seed=seed,
        steps=tuple(steps),
        not_planned=tuple(not_planned),
        **durations(steps),
        traffic_shape=kept,
        last_level_cache=last_level_cache,
        full_memory_bytes=_largest_memory(full),
        opendcdiag_s=profile.opendcdiag_s,
        mlc=profile.mlc if context.processor.architecture == ARCHITECTURE else (),
    )


def _is_once(step: Step) -> bool:
    return step.part_of is not None or declaration(step.kind).once


def _declared(sut: Sut, kind: str, wanted: Settings, *, prefetchers_ok: bool) -> list[Planned]:
    """Return the steps of *kind* with the settings *wanted*, and what is excluded."""
    if not sut.cpu_nodes:
        return [declaration(kind).not_planned("no CPU found that may be used")]
    settings, reason = possible_mixes(sut.context, wanted)
    found: list[Planned] = []
    if reason:
        found.append(NotPlanned(kind=kind, what=f"{declaration(kind).title} of some mixes", reason=reason))
    for step in () if settings is None else declaration(kind).steps(sut, settings):
        if isinstance(step, Step) and step.prefetchers is not None and not prefetchers_ok:
            found.append(NotPlanned(kind=kind, what=step.title, reason=NO_CONSENT))
        else:
            found.append(step)
    return found


def _largest_memory(steps: Iterable[Step]) -> dict[int, int]:
    """Return the most memory that one of *steps* takes of each node, in bytes."""
    found: dict[int, int] = {}
    for step in steps:
        for node, size_bytes in step.memory_bytes.items():
            found[node] = max(size_bytes, found.get(node, 0))
    return dict(sorted(found.items()))


def _smaller(sut: Sut, full: Iterable[Step], planned: Collection[tuple[str, ...]]) -> Iterator[NotPlanned]:
    """Yield the kinds whose *full* steps are not among the commands *planned* because of a memory limit."""
    limit = sut.memory_limit
    divided = {node for node, size_bytes in sut.available_bytes.items() if size_bytes < sut.free_bytes[node]}
    kinds = dict.fromkeys(
        step.kind for step in full if step.argv not in planned and divided & sut.lacking(step.memory_bytes)
    )
    if limit is not None and kinds:
        yield NotPlanned(
            kind=CONFINED,
            what=f"Buffers of the full size: {', '.join(declaration(kind).title for kind in kinds)}",
            reason=f"the memory limit of control group {limit.group} is {limit.limit_bytes >> 20} MiB, of which "
            f"{limit.left_bytes >> 20} MiB are left",
        )


def skipped_text(skipped: Iterable[NotPlanned]) -> str:
    """Return the number of *skipped* entries by reason: ``4 by profile, 3 not applicable``."""
    counts = Counter(
        "by profile"
        if item.reason.startswith(BY_PROFILE)
        else "need consent"
        if item.reason == NO_CONSENT
        else {"counters": "need counters", "context": "unreadable", CONFINED: "not allowed here"}.get(
            item.kind, "not applicable"
        )
        for item in skipped
    )
    return ", ".join(f"{count} {why}" for why, count in counts.most_common())


def plan_text(plan: Plan, *, verbose: bool = False) -> str:
    """Return the plan on one screen; *verbose* adds each step's command and each skipped entry with its reason."""
    longest = f" ({duration(plan.longest_duration_s)} if nothing converges)"
    rounds = plural(max(step.rounds for step in plan.steps), "round")
    about = f"about {duration(plan.expected_duration_s)}{longest}"
    lines = [f"{plan.profile}: {plural(len(plan.steps), 'step')} in {rounds}, {about}", ""]
    if verbose:
        width = max(len(step.title) for step in plan.steps)
        for number, step in enumerate(plan.steps, 1):
            times = f"{step.expected_duration_s:6.1f} s in {plural(step.rounds, 'round')}"
            limits = f"at most {step.longest_duration_s:.1f} s, each killed after {step.deadline_s:.0f} s"
            lines.append(f"{number:3}  {step.title:<{width}}  {times}, {limits}")
            lines.append(f"     {', '.join(_needs(step))}")
            lines.append(f"     $ {' '.join(step.argv)}")
    else:
        kinds = grouped((declaration(step.kind).title, step) for step in plan.steps)
        width = max(map(len, kinds))
        for title, steps in kinds.items():
            count = f"   {len(steps)} steps" if len(steps) > 1 else ""
            lines.append(f"  {title:<{width}}  {sum(step.expected_duration_s for step in steps):6.1f} s{count}")
    lines.append("")
    if plan.traffic_shape is not None:
        lines += _wrapped(f"Access pattern: {plan.traffic_shape.words}")
    if plan.last_level_cache is not None:
        lines += _wrapped(f"Last-level cache: {plan.last_level_cache.words}")
    if plan.mlc:
        commands = ", ".join(" ".join((f"--{command.command}", *command.options)) for command in plan.mlc)
        lines += _wrapped(f"{NAME}, where the inventory has it (mlc_archive): {commands}")
    if plan.opendcdiag_s is not None:
        length = duration(plan.opendcdiag_s)
        lines += _wrapped(f"opendcdiag, where the inventory has it (opendcdiag_program): {length}")
    if plan.not_planned:
        lines.append(f"Skipped: {skipped_text(plan.not_planned)}")
        if verbose:
            lines += [f"  {item.kind}: {item.what}: {item.reason}" for item in plan.not_planned]
    if not verbose:
        lines.append("Commands and reasons: --verbose or --json")
    return "\n".join(lines)


def _needs(step: Step) -> Iterator[str]:
    """Yield what *step* takes of the SUT: memory, tasks, and time before it measures."""
    nodes = grouped((size_bytes, node) for node, size_bytes in step.memory_bytes.items())
    for size_bytes, same in nodes.items():
        yield f"{size(size_bytes)} of {'node' if len(same) == 1 else 'each of nodes'} {format_cpulist(same)}"
    yield plural(step.tasks, "task")
    yield f"{step.setup_s:.1f} s of set-up"


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
