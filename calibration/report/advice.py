# SPDX-License-Identifier: Apache-2.0
"""Tuning advice: how to reduce interruptions of a CPU, as far as the traced causes support it.

Sources: Linux, *The kernel's command-line parameters*, *Reducing OS jitter due to per-cpu kthreads*, *NO_HZ*, *SMP IRQ
affinity* and *Workqueue* in the kernel's documentation.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from calibration.context.model import Context
from calibration.sutprobe.tracing import TracedCause, TracedView

MIN_SHARE: Final = 0.01
"""Causes with a smaller share of the lost time are not worth a change."""

MIN_EVENTS: Final = 2
"""A single event may be coincidence."""

UNEXPLAINED_SHARE: Final = 0.1
"""Share of the lost time without a traced cause from which it is reported."""

TICKS: Final = {"tick_nohz_handler", "tick_sched_timer", "tick_nohz_highres_handler", "tick_nohz_lowres_handler"}
WAITS: Final = {"hrtimer_wakeup", "posix_timer_fn", "it_real_fn", "timerfd_tmrproc", "alarmtimer_fired"}
PERF: Final = {"remote_function", "__perf_event_read", "__perf_event_stop", "__perf_event_disable"}
REGISTERS: Final = {"__rdmsr_on_cpu", "__rdmsr_safe_on_cpu", "__wrmsr_on_cpu", "__wrmsr_safe_on_cpu"}
BARRIERS: Final = {"ipi_mb", "ipi_sync_core", "ipi_rseq", "ipi_sync_rq_state"}
PER_CPU_THREADS: Final = ("ksoftirqd/", "cpuhp/", "idle_inject/", "irq_work/", "backlog_napi/", "ktimers/")
"""Kernel threads bound to their CPU; their work is reported by its own events."""


class Rule(NamedTuple):
    """The causes it matches, the advice, and whether the machine is already set up that way.

    The sentence may use ``{cpu}`` and the ``{functions}`` (or names) of the causes.
    """

    about: Callable[[TracedCause], bool]
    sentence: str
    done: Callable[[Context, int], bool] | None = None


def _option(*names: str) -> Callable[[Context, int], bool]:
    return lambda context, cpu: context.cmdline is not None and any(map(context.cmdline.values, names))  # noqa: ARG005 - for all CPUs or none


RULES: Final = (
    Rule(
        lambda cause: cause.function in TICKS,
        "The scheduler's tick interrupts CPU {cpu}: boot with nohz_full={cpu}",
        lambda context, cpu: cpu in context.isolation.nohz_full,
    ),
    Rule(
        lambda cause: (cause.kind, cause.name) == ("softirq", "RCU") or cause.name.startswith("rcuc/"),
        "CPU {cpu} runs RCU callbacks: boot with rcu_nocbs={cpu}",
        lambda context, cpu: cpu in context.isolation.rcu_nocbs,
    ),
    Rule(
        lambda cause: (cause.function or "").startswith("rcu_exp_"),
        "Other CPUs expedite RCU by interrupts ({functions}): boot with rcupdate.rcu_normal_after_boot=1",
        _option("rcupdate.rcu_normal", "rcupdate.rcu_normal_after_boot"),
    ),
    Rule(
        lambda cause: (
            cause.kind == "nmi" or cause.function == "watchdog_timer_fn" or cause.name.startswith("watchdog/")
        ),
        "The watchdog or a profiler interrupts CPU {cpu} ({functions}): boot with nowatchdog and stop profilers",
        _option("nowatchdog"),
    ),
    Rule(
        lambda cause: cause.function in {"vmstat_update", "vmstat_shepherd"},
        "The kernel gathers memory statistics on CPU {cpu}: raise vm.stat_interval",
    ),
    Rule(
        lambda cause: cause.name.startswith("kworker/u"),
        "Unbound workers run on CPU {cpu} ({functions}): remove it from /sys/devices/virtual/workqueue/cpumask",
    ),
    Rule(
        lambda cause: cause.name.startswith("kworker/"),
        "Work is queued on CPU {cpu} ({functions}), and no mask moves it: keep programs and devices that queue it off "
        "this CPU",
    ),
    Rule(
        lambda cause: cause.function in WAITS,
        "Timers of programs expire on CPU {cpu} ({functions}): bind these programs to other CPUs",
    ),
    Rule(
        lambda cause: cause.name in {"NET_RX", "NET_TX"},
        "CPU {cpu} handles network packets ({functions}): move the interrupts of the network devices, and remove it "
        "from rps_cpus and xps_cpus of their queues",
    ),
    Rule(
        lambda cause: (cause.kind, cause.name) == ("softirq", "SCHED") or cause.name.startswith("migration/"),
        "The scheduler balances load on CPU {cpu}: boot with isolcpus=domain,{cpu}, or make it an isolated cpuset "
        "partition",
        lambda context, cpu: cpu in context.isolated_cpus,
    ),
    Rule(
        lambda cause: (cause.function or "").startswith("flush_tlb"),
        "Other CPUs change memory mappings that CPU {cpu} uses ({functions}): stop threads that share its memory from "
        "mapping and unmapping it",
    ),
    Rule(
        lambda cause: cause.function in BARRIERS,
        "A program requests memory barriers (membarrier, {functions}): keep its threads off CPU {cpu}",
    ),
    Rule(
        lambda cause: cause.function in PERF,
        "A program reads performance counters of CPU {cpu} from another ({functions}): exclude this CPU",
    ),
    Rule(
        lambda cause: cause.function in REGISTERS,
        "A program reads model-specific registers of CPU {cpu} from another ({functions}): stop it, for example "
        "monitors of power and temperature",
    ),
    Rule(
        lambda cause: cause.function == "do_sync_core",
        "The kernel patches its code ({functions}): load no modules and start no tracing or packet filters during "
        "measurements",
    ),
)
"""In the order in which they claim causes: specific rules before general ones."""


def advice(cpu: int, view: TracedView, context: Context | None) -> tuple[str, ...]:
    """Return the advice for *cpu*, the greatest share of its lost time first; each cause is used once.

    *context* describes the machine; without it, nothing is assumed to be set up already.
    """
    found = sorted(_found(cpu, view, context), key=lambda cause: -cause[0])
    return tuple(f"{sentence} ({share * 100:.0f} % of the lost time)." for share, sentence in found)


def _found(cpu: int, view: TracedView, context: Context | None) -> Iterator[tuple[float, str]]:
    left = list(view.causes)
    for rule in RULES:
        mine = [cause for cause in left if rule.about(cause)]
        left = [cause for cause in left if cause not in mine]
        done = context is not None and rule.done is not None and rule.done(context, cpu)
        if not done and _worth_it(mine):
            functions = ", ".join(dict.fromkeys(cause.function or cause.name for cause in mine))
            yield _share(mine), rule.sentence.format(cpu=cpu, functions=functions)
    for cause in left:
        if _worth_it([cause]) and (sentence := _elsewhere(cpu, cause)) is not None:
            yield _share([cause]), sentence
    share = view.unexplained.share or 0.0
    if share >= UNEXPLAINED_SHARE:
        yield share, _unexplained(view, context)


def _share(causes: Sequence[TracedCause]) -> float:
    return sum(cause.share or 0.0 for cause in causes)


def _worth_it(causes: Sequence[TracedCause]) -> bool:
    return _share(causes) >= MIN_SHARE and sum(cause.events for cause in causes) >= MIN_EVENTS


def _elsewhere(cpu: int, cause: TracedCause) -> str | None:
    """Return how to move an interrupt or a thread away from *cpu*; ``None`` if it cannot be moved."""
    if cause.kind == "interrupt":
        return (
            f"Move IRQ {cause.irq} ({cause.name}) away from CPU {cpu}: write other CPUs to /proc/irq/{cause.irq}/"
            "smp_affinity_list, and exclude it from irqbalance; if the kernel manages it and refuses, boot with "
            "isolcpus=managed_irq,domain"
        )
    if cause.kind != "task" or cause.name.startswith(PER_CPU_THREADS):
        return None
    which = cause.name if cause.pid is None else f"{cause.name} ({cause.pid})"
    return f"Bind thread {which} to other CPUs than {cpu}: taskset, a cpuset, or CPUAffinity= of its unit"


def _unexplained(view: TracedView, context: Context | None) -> str:
    if context is not None and context.virtualization.guest:
        return (
            "No event of this guest explains these gaps, so the hypervisor took the CPU: pin each virtual CPU to "
            "a physical CPU on which the host runs nothing else"
        )
    if view.smi:
        return (
            f"No event of the kernel explains these gaps, and {view.smi} system management interrupts occurred: "
            "disable power capping, legacy USB and error reporting in the firmware"
        )
    counted = "were not counted" if view.smi is None else "did not occur"
    return (
        f"No event of the kernel explains these gaps, and system management interrupts {counted}: check firmware "
        "and hypervisor"
    )
