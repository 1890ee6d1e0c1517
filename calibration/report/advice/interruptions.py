# SPDX-License-Identifier: Apache-2.0
"""Rules about interrupts and ticks on CPUs that should be left alone."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from calibration.base import units
from calibration.base.cpulists import BOOT_CPU, format_cpulist
from calibration.context.boot_rules import behaviour, versions
from calibration.context.model import Context
from calibration.report.advice.commands import CLEAR, boot, by_hand, numbers, watch
from calibration.report.advice.evidence import Cost, Evidence, Watched, names
from calibration.report.advice.model import Commands, Found

SAVED_AFFINITY: Final = "/run/calibration-irq-affinity.txt"
"""Where the affinity of all interrupts is kept while some are moved, for as long: a boot resets both."""

MIN_TICK_HZ: Final = 10.0
"""A tick has 100 Hz or more; kernels before 4.17 leave one a second without it, and single timers a few."""

SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""Clock sources that are read from a device, or once a tick."""


def interrupts(evidence: Evidence) -> Iterator[Found]:
    """Find interrupts that are delivered to isolated CPUs, and those traced on the watched ones."""
    traced = {
        cause.irq: cause.name
        for claim in evidence.claimed("interrupts").values()
        for cause in claim.causes
        if cause.irq is not None
    }
    found = traced | {
        item.irq: item.name or "unnamed"
        for item in evidence.context.isolation.interrupts
        # The kernel moves one that may no longer come there when it comes next.
        if item.affinity is None or evidence.isolated.intersection(item.affinity)
    }
    housekeeping = evidence.housekeeping
    if not found or not housekeeping:
        return
    counted = evidence.counted("isolated_interrupts")
    counts = {irq: (counted or {}).get(str(irq), 0) for irq in found}
    # Queues of devices have one for each CPU, which comes only if that CPU uses the device: what came is the problem.
    came = {irq: count for irq, count in counts.items() if count or irq in traced} or counts
    listed = names([f"{irq} ({found[irq]})" for irq in sorted(came, key=lambda irq: (-came[irq], irq))])
    others = f"; {len(found) - len(came)} more may" if len(came) < len(found) else ""
    came_or_may = "came" if traced or any(came.values()) else "may come"
    yield Found(
        f"{units.plural(len(came), 'interrupt')} {came_or_may} to {evidence.quiet_text()}: {listed}{others}",
        _cost_of_interrupts(evidence, None if counted is None else counts),
        _moved(came, housekeeping),
    )


def _cost_of_interrupts(evidence: Evidence, counts: Mapping[int, int] | None) -> Cost | str:
    claimed = evidence.claimed("interrupts")
    if claimed and (cost := evidence.traced_cost(claimed)).share:
        return cost
    if counts is None:
        return "How often they come: /proc/interrupts was not read during this run"
    total = sum(counts.values())
    text = f"{total or 'none'} of them came in the {units.duration(evidence.counted_s)} of the run"
    share, worst = max(
        ((_lost_to(item, counts), item) for item in evidence.watched if item.valid),
        key=lambda pair: pair[0],
        default=(0.0, None),
    )
    if worst is None or not share:
        return Cost(text, "/proc/interrupts, isolated CPUs", number=total)
    return Cost(
        f"{text}, {units.percent(share)} of the time of CPU {worst.cpu}",
        f"{worst.lost}, by counted interrupts",
        share,
        total,
    )


def _lost_to(item: Watched, irqs: Collection[int]) -> float:
    """Return the share of a CPU's time that its gaps with the interrupts *irqs* took, as far as it is explained."""
    attribution = item.values.gaps.attribution
    lost_ns = sum(
        source.explained_lost_ns or 0.0
        for source in (() if attribution is None else attribution.sources)
        if source.kind == "interrupt" and source.source in set(map(str, irqs))
    )
    return lost_ns / (item.values.gaps.wall_s * 1e9)


def _moved(irqs: Collection[int], others: Collection[int]) -> Commands:
    cpus = format_cpulist(others)
    lasting = boot("interrupts", f"irqaffinity={cpus}")
    return Commands(
        (
            f"grep -H . /proc/irq/[0-9]*/smp_affinity_list > {SAVED_AFFINITY}",
            f"for irq in {numbers(irqs)}; do echo {cpus} > /proc/irq/$irq/smp_affinity_list; done",
            "# the kernel refuses to move those that it manages, as of NVMe queues: boot with isolcpus=managed_irq,...",
        ),
        (f'while IFS=: read -r file cpus; do echo "$cpus" > "$file"; done < {SAVED_AFFINITY}', *lasting.undo),
        lasting.change,
    )


def tick(evidence: Evidence) -> Iterator[Found]:
    """Find CPUs that the scheduler's tick interrupts and that are not in nohz_full."""
    tickless = evidence.context.isolation.nohz_full
    found = {item.cpu: item for item in _ticking(evidence) if item.cpu not in tickless}
    if not found:
        return
    what, cost = f"The scheduler's tick interrupts {evidence.cpus(found)}", _cost_of_ticks(evidence, found)
    isolation = evidence.context.isolation
    notes = isolation.notes_of("nohz_full", "isolcpus")
    if notes:
        what = f"{what} ({'; '.join(notes)})"
    if isolation.nohz_full_supported is False:
        yield Found(
            what,
            cost,
            Commands(("# boot a kernel that is built with CONFIG_NO_HZ_FULL",), ("# boot the previous kernel",)),
        )
        return
    if found.keys() == {BOOT_CPU}:
        keeps = f"boot with other CPUs isolated than CPU {BOOT_CPU}, which keeps the tick, as it keeps the time"
        yield Found(what, cost, by_hand(keeps, "boot with the previous command line"))
        return
    cpus = {*found, *tickless} - {BOOT_CPU}
    if evidence.isolated and "one" in _behaviours(evidence.context, "masks"):
        cpus = {*evidence.isolated}  # another list than that of isolcpus= is refused
    yield Found(
        what,
        cost,
        boot("tick", f"nohz_full={format_cpulist(cpus)}", instead_of=_booted_with(evidence.context, "nohz_full")),
    )


def tick_on_nohz_full(evidence: Evidence) -> Iterator[Found]:
    """Find CPUs in nohz_full that the tick interrupts all the same, and what keeps it."""
    context = evidence.context
    found = {item.cpu: item for item in _ticking(evidence) if item.cpu in context.isolation.nohz_full}
    if not found:
        return
    cost = _cost_of_ticks(evidence, found)
    where = f"{evidence.cpus(found)} still {'takes' if len(found) == 1 else 'take'} the timer tick despite nohz_full"
    shared = found.keys() - evidence.isolated
    if context.clocksource.current in SLOW_CLOCKS:
        why = f"the clock source is {context.clocksource.current}, and the kernel needs a stable TSC to stop the tick"
        yield Found(f"{where}: {why}", cost, _show_what_keeps_it())
    elif shared:
        why = f"the scheduler runs other threads on {evidence.cpus(shared)}"
        yield Found(f"{where}: {why}", cost, isolate(context, "tick_on_nohz_full", shared | evidence.isolated))
    else:
        yield Found(f"{where}: the kernel's event tick_stop says why", cost, _show_what_keeps_it())


def _show_what_keeps_it() -> Commands:
    return Commands((*watch("timer/tick_stop"), "# stop what dependency= names for these CPUs"), (CLEAR,))


def _ticking(evidence: Evidence) -> list[Watched]:
    claimed = evidence.claimed("tick")
    return [
        item
        for item in evidence.watched
        if item.cpu in claimed or (evidence.isolated and (evidence.tick_hz(item) or 0.0) >= MIN_TICK_HZ)
    ]


def _cost_of_ticks(evidence: Evidence, found: Mapping[int, Watched]) -> Cost:
    claimed = {cpu: claim for cpu, claim in evidence.claimed("tick").items() if cpu in found}
    if claimed and (cost := evidence.traced_cost(claimed)).share:
        return cost
    rate_hz, most = max(((evidence.tick_hz(item) or 0.0, item) for item in found.values()), key=lambda pair: pair[0])
    if not rate_hz:
        return evidence.traced_cost(claimed)
    text = f"{units.significant(rate_hz, 3)} ticks a second on CPU {most.cpu}"
    period = min(most.values.gaps.periods, key=lambda period: abs(period.hz - rate_hz), default=None)
    if most.valid and period is not None and abs(period.hz / rate_hz - 1) < 0.1:
        share = period.lost_ns / (most.values.gaps.wall_s * 1e9)
        measured = f"{most.lost}, by the period of its interruptions"
        return Cost(f"{text}, {units.percent(share)} of its time", measured, share)
    return Cost(text, f"interrupts counted by {most.measurement.id}", number=rate_hz)


def isolate(context: Context, rule: str, cpus: Collection[int]) -> Commands:
    """Return how to boot with exactly these *cpus* isolated, by one ``isolcpus=`` that this kernel does not refuse.

    Where ``nohz_full=`` must have the same list, it gets it.
    """
    wanted = ["managed_irq", "domain", *context.isolation.isolcpus_flags]
    if not all("managed_irq" in known for known in _behaviours(context, "flags")):
        wanted = [flag for flag in wanted if flag != "managed_irq" or flag in context.isolation.isolcpus_flags]
    if context.cmdline is not None and context.cmdline.values("nohz_full"):
        wanted = [flag for flag in wanted if flag != "nohz"]
    arguments = f"isolcpus={','.join(dict.fromkeys(wanted))},{format_cpulist(cpus)}"
    names = ["isolcpus"]
    other = frozenset(context.isolation.nohz_full) != frozenset(cpus) and _booted_with(context, "nohz_full")
    if other and "one" in _behaviours(context, "masks"):
        arguments = f"{arguments} nohz_full={format_cpulist(cpus)}"
        names.append("nohz_full")
    return boot(rule, arguments, instead_of=_booted_with(context, *names))


def _booted_with(context: Context, *names: str) -> str | None:
    """Return all arguments *names* of the command line; None without any."""
    given = ((name, value) for name in names for value in (context.cmdline.values(name) if context.cmdline else ()))
    return " ".join(f"{name}={value}" for name, value in given if value) or None


def _behaviours(context: Context, topic: str) -> set[str]:
    """Return what the kernel, or those that it may be, does about a *topic* of the rules."""
    return {behaviour(topic, version) for version in versions(context.capture.kernel_release)}
