# SPDX-License-Identifier: Apache-2.0
"""Rules about settings of the kernel."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.context.hardware import Interleaving
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.memory_tiers import BestWeights, MemoryTiersValues, weights_text
from calibration.report.advice.commands import at_boot, boot, numbers, sysctl, write
from calibration.report.advice.evidence import Cost, Evidence, names
from calibration.report.advice.interruptions import SLOW_CLOCKS
from calibration.report.advice.model import Commands, Found

CPU: Final = "/sys/devices/system/cpu"
THP: Final = "/sys/kernel/mm/transparent_hugepage/enabled"
SIZED_THP: Final = "/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled"
"""The same for one size; it decides unless it is ``inherit``."""
CLOCK: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
WEIGHTS: Final = "/sys/kernel/mm/mempolicy/weighted_interleave"

DEEP_US: Final = 20
"""Exit latency of an idle state worth a change: C1 and C1E of servers take up to 15 µs, C6 and its like 40 to 800."""

HELD_LATENCY: Final = "force_latency"
"""The setting of tuned that keeps CPUs from idle states by a request to the kernel, which no file shows."""

DEFAULT_GOVERNOR_SINCE: Final = (5, 9)
"""Linux before that does not know ``cpufreq.default_governor=`` (8412b4563e59)."""

NOWATCHDOG_SINCE: Final = (5, 2)
"""Linux before that does not know ``tsc=nowatchdog``."""

SLOW_GOVERNORS: Final = frozenset({"powersave", "conservative", "ondemand", "schedutil"})
"""Governors that lower the clock of a CPU that was idle."""

FAST_CLOCKS: Final = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page")
"""Clock sources that are read by an instruction, best first."""


def thp_always(evidence: Evidence) -> Iterator[Found]:
    """Find transparent huge pages for programs that did not ask for them."""
    memory = evidence.context.memory
    pages = memory.transparent_hugepages
    if pages.mode != "always":
        return
    own = pages.sizes and pages.sizes[-1].enabled != "inherit"
    file = SIZED_THP.format(pages.sizes[-1].size_bytes >> 10) if pages.sizes and own else THP
    cost: Cost | str = evidence.unmeasured("What huge pages save here", "page_sizes")
    base = evidence.metric("page_sizes.base_4k.latency_ns", "page_sizes.base_64k.latency_ns")
    huge = evidence.metric("page_sizes.thp_2m.latency_ns", "page_sizes.thp_512m.latency_ns")
    saved = (
        ""
        if base is None or huge is None
        else f"; a load takes {units.headline(huge)} on them and {units.headline(base)} on base pages "
        f"({huge.name}, {base.name}), which programs that ask for them keep"
    )
    if memory.anonymous_huge_bytes is not None:
        text = f"{units.size(memory.anonymous_huge_bytes)} of anonymous huge pages in use when captured{saved}"
        cost = Cost(text, "AnonHugePages of /proc/meminfo", number=memory.anonymous_huge_bytes)
    yield Found(
        "The kernel gives transparent huge pages to all programs: allocating one may take the time to clear it and to "
        "make room for it, and khugepaged copies memory to more of them in the background",
        cost,
        write("thp_always", file, "madvise", "always"),
    )


TIERING: Final = 2
"""Bit of kernel.numa_balancing that promotes pages from slower kinds of memory (NUMA_BALANCING_MEMORY_TIERING)."""


def numa_balancing(evidence: Evidence) -> Iterator[Found]:
    """Find automatic NUMA balancing on a machine with several nodes."""
    context = evidence.context
    mode = context.memory.numa_balancing
    if not mode or len(context.usable_nodes) < 2:
        return
    faults = evidence.counted("numa_hint_faults")
    cost: Cost | str = "How many faults it causes: /proc/vmstat was not read during this run"
    if faults is not None:
        moved = (evidence.counted("numa_pages_migrated") or {}).get("machine", 0)
        number = faults.get("machine", 0)
        counted = f"{units.plural(number, 'fault')} and {units.plural(moved, 'moved page')}"
        text = f"{counted} in the {units.duration(evidence.counted_s)} of the run"
        cost = Cost(text, "numa_hint_faults of /proc/vmstat", number=number)
    tiers = "; it also brings hot pages back from slower memory: without it they stay there" if mode & TIERING else ""
    yield Found(
        "The kernel makes pages of programs inaccessible to see which node uses them, and moves them between "
        f"{units.plural(len(context.usable_nodes), 'node')}{tiers}",
        cost,
        sysctl("numa_balancing", "kernel.numa_balancing", 0, mode),
    )


def deep_idle(evidence: Evidence) -> Iterator[Found]:
    """Find idle states that take long to leave and may be entered."""
    deep = {
        number: (state, evidence.online - {*state.disabled_cpus})
        for number, state in enumerate(evidence.context.idle.states)
        if (state.latency_us or 0) > DEEP_US and evidence.online - {*state.disabled_cpus}
    }
    if not deep or _kept_awake(evidence):
        return
    states = ", ".join(f"{state.name} ({state.latency_us} µs)" for state, _ in deep.values())
    cpus = frozenset[int]().union(*(cpus for _, cpus in deep.values()))
    file = "/etc/tmpfiles.d/calibration-deep_idle.conf"
    pattern = " ".join(f"{CPU}/cpu[0-9]*/cpuidle/state{number}/disable" for number in deep)
    yield Found(
        f"{evidence.cpus(cpus)} may enter idle states that take long to leave: {states}",
        _cost_of_idle(evidence),
        Commands(
            (f"for state in {pattern}; do echo 1 > $state; done",),
            (
                *(
                    f"for cpu in {numbers(allowed)}; do echo 0 > {CPU}/cpu$cpu/cpuidle/state{number}/disable; done"
                    for number, (_, allowed) in deep.items()
                ),
                f"rm -f {file}",
            ),
            tuple(
                f"echo 'w {CPU}/cpu[0-9]*/cpuidle/state{number}/disable - - - - 1' {'>>' if index else '>'} {file}"
                for index, number in enumerate(deep)
            ),
        ),
    )


def _kept_awake(evidence: Evidence) -> bool:
    """Return whether a profile of tuned holds a latency that no state of sysfs shows."""
    tuned = evidence.context.tuned
    return tuned is not None and HELD_LATENCY in tuned.unchecked


def _cost_of_idle(evidence: Evidence) -> Cost | str:
    idle, shallow = evidence.metric("wakeup.idle.p50_ns"), evidence.metric("wakeup.shallow_idle.p50_ns")
    if idle is not None and shallow is not None:
        text = f"a wake-up takes {units.headline(idle)} at the median, {units.headline(shallow)} without these states"
        return Cost(text, f"{idle.name}, {shallow.name}", max(0.0, 1 - shallow.value / idle.value))
    for values in evidence.values("idle_latency"):
        if isinstance(values, IdleLatencyValues) and values.package_idle_ns and values.package_active_ns:
            quiet, active = values.package_idle_ns, values.package_active_ns
            text = (
                f"a load takes {units.headline(quiet)} from an idle machine, {units.headline(active)} when kept awake"
            )
            return Cost(text, "idle_latency, package idle and active", max(0.0, 1 - active.value / quiet.value))
    return evidence.unmeasured("A wake-up without these states", "wakeup", "with idle_latency_us: 0 in the profile")


def powersave(evidence: Evidence) -> Iterator[Found]:
    """Find CPUs whose governor lowers the clock while they are idle."""
    slow: dict[str, set[int]] = defaultdict(set)
    for policy in evidence.context.frequency.policies:
        if policy.governor in SLOW_GOVERNORS:
            slow[policy.governor or ""] |= set(policy.cpus)
    if not slow:
        return
    listed = "; ".join(f"{governor} on {evidence.cpus(cpus)}" for governor, cpus in sorted(slow.items()))
    file = f"{CPU}/cpu$cpu/cpufreq/scaling_governor"
    every = {cpu for cpus in slow.values() for cpu in cpus}
    lasting = (
        boot("powersave", "cpufreq.default_governor=performance")
        if evidence.since(DEFAULT_GOVERNOR_SINCE)
        else at_boot("powersave", f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor", "performance")
    )
    yield Found(
        f"The clock of idle CPUs is lowered, and rises only after they got work. Governor: {listed}",
        _cost_of_governor(evidence),
        Commands(
            (f"for cpu in {numbers(every)}; do echo performance > {file}; done",),
            (
                *(f"for cpu in {numbers(cpus)}; do echo {name} > {file}; done" for name, cpus in sorted(slow.items())),
                *lasting.undo,
            ),
            lasting.change,
        ),
    )


def _cost_of_governor(evidence: Evidence) -> Cost | str:
    alone = evidence.metric("core_frequency.scalar.alone.median_hz", "core_frequency.scalar.alone.lowest_hz")
    most_hz = evidence.context.frequency.hardware_max_hz
    if alone is None or most_hz is None:
        return evidence.unmeasured("The clock of a busy core", "core_frequency")
    text = f"a core that became busy ran at {units.headline(alone)} of {units.frequency(most_hz)}"
    if len({policy.hardware_max_hz for policy in evidence.context.frequency.policies}) > 1:
        return Cost(f"{text}, which not all cores reach", alone.name)
    return Cost(text, alone.name, max(0.0, 1 - alone.value / most_hz))


def clocksource(evidence: Evidence) -> Iterator[Found]:
    """Find a slow clock source where a fast one is available."""
    clocks, processor = evidence.context.clocksource, evidence.context.processor
    if clocks.current not in SLOW_CLOCKS:
        return
    fast = next((name for name in FAST_CLOCKS if name in clocks.available), None)
    read = [
        (item.id, item.clock.read_cost_ns)
        for item in evidence.document.measurements
        if item.clock is not None and item.clock.source == "monotonic_raw"
    ]
    cost: Cost | str = "The time of a reading: this run read the processor's counter, not this clock"
    if read:
        name, cost_ns = read[0]
        text = f"programs need {units.time_ns(cost_ns)} to read the clock"
        cost = Cost(text, f"clock.read_cost_ns of {name}", number=cost_ns)
    if fast is not None:
        file = "/etc/tmpfiles.d/calibration-clocksource.conf"
        yield Found(
            f"The kernel's clock is {clocks.current}, and {fast} is available",
            cost,
            Commands(
                (f"echo {fast} > {CLOCK}",),
                (f"echo {clocks.current} > {CLOCK}", f"rm -f {file}"),
                (f"echo 'w {CLOCK} - - - - {fast}' > {file}",),
            ),
        )
    elif {"constant_tsc", "nonstop_tsc"} <= set(processor.flags) and not evidence.context.virtualization.guest:
        given = _booted_against_the_tsc(evidence)
        trusted = "nowatchdog" if evidence.since(NOWATCHDOG_SINCE) else "reliable"
        how = boot("clocksource", f"tsc={trusted}", instead_of=given)
        yield Found(
            f"The kernel's clock is {clocks.current}: it gave up the TSC, which the processor calls invariant",
            cost,
            how._replace(
                change=("dmesg | grep -i -e tsc -e clocksource  # boot so if it was late, not wrong", *how.change)
            ),
        )


def _booted_against_the_tsc(evidence: Evidence) -> str | None:
    """Return the arguments by which the command line gives up the TSC, whatever else it says; None without any."""
    line = evidence.context.cmdline
    given = [] if line is None else [f"tsc={value}" for value in line.values("tsc") if value == "unstable"]
    return " ".join([*given, *(["notsc"] if evidence.option("notsc") else [])]) or None


def watchdog(evidence: Evidence) -> Iterator[Found]:
    """Find CPUs that the watchdogs interrupt, traced or counted."""
    kernel, claimed = evidence.context.kernel, evidence.claimed("watchdog")
    if evidence.option("nowatchdog"):
        return
    counted = [
        (item, count) for item in evidence.watched if item.cpu in evidence.isolated and (count := item.counted("NMI"))
    ]
    hit = {item.cpu for item, _ in counted} if kernel.nmi_watchdog else set()
    if not claimed and not hit:
        return
    cost = evidence.traced_cost(claimed)
    if not claimed:
        total = sum(count for _, count in counted)
        metric = f"interrupts counted by {names([item.measurement.id for item, _ in counted])}"
        cost = Cost(f"{units.plural(total, 'NMI')} on {evidence.cpus(hit)}", metric, number=total)
    off, before = sysctl("watchdog", "kernel.watchdog", 0, kernel.watchdog or 0), kernel.nmi_watchdog or 0
    yield Found(
        f"The watchdog or a profiler interrupts {evidence.cpus({*claimed, *hit})}",
        cost,
        off._replace(
            change=(*off.change, "# and stop profilers, such as perf"),
            undo=(off.undo[0], f"sysctl -w kernel.nmi_watchdog={before}", *off.undo[1:]),
        ),
    )


def interleave_weights(evidence: Evidence) -> Iterator[Found]:
    """Find weights of nodes that move less than others do, by more than the intervals of both."""
    kernel = evidence.context.interleaving
    for values in evidence.values("memory_tiers"):
        for best in values.tiers if isinstance(values, MemoryTiersValues) else ():
            if kernel is not None and best.machine is not None and best.machine_mb_s is not None and _better(best):
                now, most = best.machine_mb_s, best.bandwidth_mb_s
                yield Found(
                    f"Programs that interleave pages over {best.tiers.words} use the weights "
                    f"{weights_text(best.machine)}; {weights_text(best.weights)} move more",
                    Cost(
                        f"{units.headline(now)} instead of {units.headline(most)}",
                        f"memory_tiers.{best.near[0]}.machine.bandwidth_mb_s",
                        1 - now.value / most.value,
                    ),
                    _weights(best, kernel),
                )


def _better(best: BestWeights) -> bool:
    """Return whether each node has a weight, and these move more than the machine's, by the intervals of both."""
    now = best.machine_mb_s and best.machine_mb_s.interval
    most = best.bandwidth_mb_s.interval
    return all(best.weights) and bool(now and most and most[0] > now[1])


def _weights(best: BestWeights, kernel: Interleaving) -> Commands:
    nodes = (*best.near, *best.far)
    wanted = dict(zip(nodes, best.weights, strict=True))
    file = "/etc/tmpfiles.d/calibration-interleave_weights.conf"
    before = (
        (f"for file in {WEIGHTS}/*auto*; do echo true > $file; done",)
        if kernel.automatic
        else tuple(f"echo {kernel.weights[node]} > {WEIGHTS}/node{node}" for node in nodes)
    )
    return Commands(
        (
            *(f"echo {weight} > {WEIGHTS}/node{node}" for node, weight in wanted.items()),
            f"# start programs with: numactl --weighted-interleave={format_cpulist(nodes)}  # numactl 2.0.19",
        ),
        (*before, f"rm -f {file}"),
        tuple(
            f"echo 'w {WEIGHTS}/node{node} - - - - {weight}' {'>>' if number else '>'} {file}"
            for number, (node, weight) in enumerate(wanted.items())
        ),
    )
