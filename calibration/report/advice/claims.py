# SPDX-License-Identifier: Apache-2.0
"""Which rule each traced cause of a gap belongs to; each cause is used once."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from calibration.sutprobe.tracing import TracedCause, TracedView

MIN_SHARE: Final = 0.01
"""Causes with a smaller share of the lost time are not worth a change."""

MIN_EVENTS: Final = 2
"""A single event may be coincidence."""

TICKS: Final = {"tick_nohz_handler", "tick_sched_timer", "tick_nohz_highres_handler", "tick_nohz_lowres_handler"}
WAITS: Final = {"hrtimer_wakeup", "posix_timer_fn", "it_real_fn", "timerfd_tmrproc", "alarmtimer_fired"}
PERF: Final = {"remote_function", "__perf_event_read", "__perf_event_stop", "__perf_event_disable"}
REGISTERS: Final = {"__rdmsr_on_cpu", "__rdmsr_safe_on_cpu", "__wrmsr_on_cpu", "__wrmsr_safe_on_cpu"}
BARRIERS: Final = {"ipi_mb", "ipi_sync_core", "ipi_rseq", "ipi_sync_rq_state"}
PER_CPU_THREADS: Final = ("ksoftirqd/", "cpuhp/", "idle_inject/", "irq_work/", "backlog_napi/", "ktimers/")
"""Kernel threads bound to their CPU; their work is reported by its own events."""

Test = Callable[[TracedCause], bool]

CLAIMS: Final[tuple[tuple[str, Test], ...]] = (
    ("tick", lambda cause: cause.function in TICKS),
    (
        "rcu_callbacks",
        lambda cause: (cause.kind, cause.name) == ("softirq", "RCU") or cause.name.startswith("rcuc/"),
    ),
    ("rcu_expedited", lambda cause: (cause.function or "").startswith("rcu_exp_")),
    (
        "watchdog",
        lambda cause: (
            cause.kind == "nmi" or cause.function == "watchdog_timer_fn" or cause.name.startswith("watchdog/")
        ),
    ),
    ("memory_statistics", lambda cause: cause.function in {"vmstat_update", "vmstat_shepherd"}),
    ("unbound_workers", lambda cause: cause.name.startswith("kworker/u")),
    ("bound_workers", lambda cause: cause.name.startswith("kworker/")),
    ("program_timers", lambda cause: cause.function in WAITS),
    ("network_packets", lambda cause: cause.name in {"NET_RX", "NET_TX"}),
    (
        "load_balancing",
        lambda cause: (cause.kind, cause.name) == ("softirq", "SCHED") or cause.name.startswith("migration/"),
    ),
    ("memory_mappings", lambda cause: (cause.function or "").startswith("flush_tlb")),
    ("memory_barriers", lambda cause: cause.function in BARRIERS),
    ("performance_counters", lambda cause: cause.function in PERF),
    ("model_registers", lambda cause: cause.function in REGISTERS),
    ("code_patching", lambda cause: cause.function == "do_sync_core"),
    ("interrupts", lambda cause: cause.kind == "interrupt"),
    ("threads", lambda cause: cause.kind == "task" and not cause.name.startswith(PER_CPU_THREADS)),
)
"""Rules in the order in which they claim causes: specific ones before general ones."""


class Claim(NamedTuple):
    """The causes of one CPU's gaps that belong to a rule, and their share of the time it lost."""

    rule: str
    causes: tuple[TracedCause, ...]
    share: float


def claims(view: TracedView) -> Iterator[Claim]:
    """Yield the claims of all rules on the causes of *view* that are worth a change.

    Interrupts and threads are each worth it on their own, other causes together.
    """
    left = list(view.causes)
    for rule, test in CLAIMS:
        mine = [cause for cause in left if test(cause)]
        left = [cause for cause in left if cause not in mine]
        if rule in {"interrupts", "threads"}:
            mine = [cause for cause in mine if _worth_it([cause])]
        if _worth_it(mine):
            yield Claim(rule, tuple(mine), _share(mine))


def _share(causes: list[TracedCause]) -> float:
    return sum(cause.share or 0.0 for cause in causes)


def _worth_it(causes: list[TracedCause]) -> bool:
    return _share(causes) >= MIN_SHARE and sum(cause.events for cause in causes) >= MIN_EVENTS
