# SPDX-License-Identifier: Apache-2.0
"""Facts about a SUT that affect its metrics, for the page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from calibration import units
from calibration.context.confinement import limits
from calibration.context.model import UNSEEN_GROUPS, Context, Isolation
from calibration.plan import Plan
from calibration.report import devices
from calibration.report.environment import Fact
from calibration.report.vulnerabilities import counts
from calibration.results.health import Health


def machine(context: Context, plan: Plan | None, healths: Sequence[Health] = ()) -> list[Fact]:
    """Return the facts about the SUT that affect its metrics, including what *plan* relied on and what it counted."""
    cache = None if plan is None else plan.last_level_cache
    firmware, memory, frequency, isolation = context.firmware, context.memory, context.frequency, context.isolation
    thp, load = memory.transparent_hugepages, context.kernel.load_average
    hz = (frequency.hardware_min_hz, frequency.hardware_max_hz)
    limits = None if hz == (None, None) else " to ".join(map(units.frequency, hz))
    return [
        Fact("Host name", context.capture.hostname),
        Fact("System", _join(firmware.system_vendor, firmware.product_name, firmware.product_version)),
        Fact("Board", _join(firmware.board_vendor, firmware.board_name, firmware.board_version)),
        Fact("BIOS", _join(firmware.bios_vendor, firmware.bios_version, firmware.bios_date)),
        Fact("Virtualisation", _virtualization(context)),
        *_confinement(context),
        *_processors(context),
        *(() if cache is None else (Fact("Last-level cache", cache.words),)),
        Fact("CPUs", _cpus(context)),
        Fact("Isolated CPUs (isolcpus)", _isolated(isolation.isolated, isolation.isolated_source)),
        *_cpusets(isolation),
        Fact("Tickless CPUs (nohz_full)", _isolated(isolation.nohz_full, isolation.nohz_full_source)),
        Fact("CPUs without RCU callbacks (rcu_nocbs)", _offloaded(isolation)),
        *_parameters(isolation),
        Fact("Interrupts that may reach isolated CPUs", _count(isolation.interrupts, isolation.cpus)),
        Fact(f"{_seen(context)} that may run on isolated CPUs", _count(isolation.threads, isolation.cpus)),
        *_tickless(isolation),
        Fact("Frequency driver and governor", _join(*frequency.drivers, *frequency.governors)),
        Fact("Frequency limits", limits),
        Fact("Turbo", frequency.turbo_text),
        Fact("Idle states", _idle(context)),
        Fact("Clock source", context.clocksource.current),
        Fact("Memory of the machine", None if memory.total_bytes is None else units.size(memory.total_bytes)),
        Fact("DIMMs", _dimms(context)),
        Fact("Transparent huge pages", _join(thp.words, f"defrag {thp.defrag}" if thp.defrag else None)),
        Fact("Huge pages", hugepages(context)),
        Fact("Preemption", context.kernel.preemption),
        Fact("NUMA balancing", _switch(memory.numa_balancing)),
        Fact("Real-time throttling", _rt(context)),
        Fact("NMI watchdog", _switch(context.kernel.nmi_watchdog)),
        Fact("Load average", None if load is None else ", ".join(f"{item:.2f}" for item in load)),
        Fact("Vulnerabilities", counts(context)),
        *devices.facts(context),
        *devices.health_facts(healths),
    ]


def _confinement(context: Context) -> Iterator[Fact]:
    """Yield the container and what it may use of the machine; nothing outside of one and without limits."""
    found = context.confinement
    if found is None:
        return
    if found.container:
        yield Fact("Container", f"{found.container} ({'; '.join(found.evidence)})")
    if allowed := limits(context):
        yield Fact("Limited to", ", ".join(allowed))
    if found.user_namespace:
        yield Fact("User namespace", "its own: its capabilities do not count for the machine")


def _join(*words: str | None) -> str | None:
    """Return the distinct words that are not None; ``None`` if there are none."""
    return ", ".join(dict.fromkeys(word.strip() for word in words if word and word.strip())) or None


def counted(number: int, noun: str) -> str:
    """Return *number* with the right form of *noun*."""
    return f"{number} {noun}{'s' * (number != 1)}"


def _switch(state: int | None) -> str | None:
    return None if state is None else "on" if state else "off"


def _processors(context: Context) -> Iterator[Fact]:
    models = context.processor.models
    if not models:
        yield Fact("Processor", context.processor.architecture)
    for model in models:
        which = "" if len(models) == 1 else f" of CPUs {units.cpus(model.cpus)}"
        numbers = {"family": model.family, "model": model.model, "stepping": model.stepping}
        ids = (f"{name} {value}" for name, value in numbers.items() if value is not None)
        yield Fact(f"Processor{which}", _join(model.name, model.vendor, context.processor.architecture, *ids))
        yield Fact(f"Microcode{which}", model.microcode)


def _virtualization(context: Context) -> str | None:
    virtual = context.virtualization
    if not virtual.guest:
        return None if virtual.guest is None else "none"
    kind = f" ({virtual.type} virtualisation)" if virtual.type else ""
    return f"guest of {virtual.vendor or 'an unnamed hypervisor'}{kind}"


def _cpus(context: Context) -> str:
    topology, found = context.topology, context.cpus
    hidden = found.allowed is not None and set(found.allowed) != set(found.online)
    words = (
        f"{len(found.online)} online ({units.cpus(found.online)})",
        f"{len(found.offline)} offline ({units.cpus(found.offline)})" if found.offline else None,
        f"allowed to the login: {units.cpus(found.allowed)}" if hidden else None,
        None if topology.packages is None else counted(topology.packages, "package"),
        counted(len(topology.cores), "core"),
        None if topology.threads_per_core is None else f"{counted(topology.threads_per_core, 'thread')} per core",
    )
    return ", ".join(filter(None, words))


def _isolated(cpus: tuple[int, ...], source: str | None) -> str:
    return units.cpus(cpus) if not cpus or source is None else f"{units.cpus(cpus)} (by the {source})"


def _cpusets(isolation: Isolation) -> Iterator[Fact]:
    """Yield what cpusets isolate, where they do or it cannot be seen, and Linux's own list where it has one."""
    words = (
        units.cpus(isolation.cpuset_isolated) if isolation.cpuset_isolated else None,
        f"unknown for CPUs {units.cpus(isolation.cpuset_unknown)}: {UNSEEN_GROUPS}"
        if isolation.cpuset_unknown
        else None,
    )
    if any(words):
        yield Fact("Isolated CPUs (cpusets)", "; ".join(filter(None, words)))
    if isolation.housekeeping:
        yield Fact("Housekeeping CPUs (outside nohz_full)", units.cpus(isolation.housekeeping))


def _tickless(isolation: Isolation) -> Iterator[Fact]:
    """Yield what may run on CPUs in nohz_full that are not isolated, beside any thread of a user."""
    if isolation.tickless_interrupts is not None:
        yield Fact("Interrupts that may reach tickless CPUs", str(len(isolation.tickless_interrupts)))
    if isolation.tickless_threads is not None:
        movable = sum(not thread.per_cpu_kernel for thread in isolation.tickless_threads)
        yield Fact("Movable kernel threads that may run on tickless CPUs", str(movable))


def _offloaded(isolation: Isolation) -> str | None:
    """Return the CPUs without RCU callbacks; ``None`` if unknown. Older captures do not say how they are known."""
    unknown = isolation.notes is not None and isolation.rcu_nocbs_source is None
    return None if unknown else _isolated(isolation.rcu_nocbs, isolation.rcu_nocbs_source)


def _parameters(isolation: Isolation) -> Iterator[Fact]:
    """Yield what only the command line shows, and where the kernel has something else than it says."""
    if isolation.managed_irq:
        yield Fact("CPUs kept from managed interrupts (managed_irq)", units.cpus(isolation.managed_irq))
    if isolation.notes:
        yield Fact("Kernel parameters with another effect", ". ".join(note.sentence for note in isolation.notes))


def _seen(context: Context) -> str:
    """Return which threads a capture has: those of the machine, or those of its container."""
    inside = context.confinement is not None and context.confinement.container
    return "Threads of the container" if inside else "Threads"


def _count(found: Sequence[Any] | None, isolated: tuple[int, ...]) -> str | None:
    if not isolated:
        return "no CPU is isolated"
    return None if found is None else str(len(found))


def _idle(context: Context) -> str | None:
    idle = context.idle
    states = (
        f"{state.name} (off on CPUs {units.cpus(state.disabled_cpus)})" if state.disabled_cpus else state.name
        for state in idle.states
    )
    return _join(idle.driver, idle.governor, *states)


def _dimms(context: Context) -> str | None:
    dimms = context.firmware.dimms
    if not dimms:
        return None
    speeds = ((dimm, dimm.configured_mt_s or dimm.speed_mt_s) for dimm in dimms if dimm.size_bytes)
    kinds = Counter(
        " ".join(filter(None, (units.size(item.size_bytes), item.type, f"{speed} MT/s" if speed else None)))
        for item, speed in speeds
    )
    filled = ", ".join(f"{count} x {text}" for text, count in kinds.items())
    return f"{sum(kinds.values())} of {len(dimms)} slots filled: {filled}"


def hugepages(context: Context) -> str | None:
    """Return the reserved huge pages; ``None`` if unknown."""
    pools = [
        f"{hugepage.total} of {units.size(hugepage.size_bytes)}"
        for hugepage in context.memory.hugepages
        if hugepage.total
    ]
    if pools:
        return ", ".join(pools)
    return "none reserved" if context.memory.hugepages else None


def _rt(context: Context) -> str | None:
    runtime, period = context.kernel.sched_rt_runtime_us, context.kernel.sched_rt_period_us
    if runtime is None or period is None:
        return None
    return "off" if runtime < 0 else f"{runtime} µs of every {period} µs"
