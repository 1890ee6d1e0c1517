# SPDX-License-Identifier: Apache-2.0
"""Rules about what was traced on CPUs that should be left alone, as far as it can be moved or stopped."""

import shlex
from collections.abc import Callable, Iterator
from typing import Final

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.text import visible
from calibration.report.advice.commands import CLEAR, at_boot, bind, boot, by_hand, mask, sysctl, watch
from calibration.report.advice.evidence import Cost, Evidence, functions, names
from calibration.report.advice.interruptions import isolate
from calibration.report.advice.model import Commands, Found

UNEXPLAINED_SHARE: Final = 0.1
"""Share of the lost time without a traced cause from which it is reported."""

WORKQUEUE_MASK: Final = "/sys/devices/virtual/workqueue/cpumask"
STAT_INTERVAL_S: Final = 1
"""Default of vm.stat_interval."""

RARE_STAT_INTERVAL_S: Final = 120

UNBOUND_CPUS_SINCE: Final = (6, 6)
"""Linux before that does not know ``workqueue.unbound_cpus=`` (ace3c5499e61)."""

Finder = Callable[[Evidence], Iterator[Found]]
Cpus = frozenset[int]


def traced(
    rule: str,
    sentence: str,
    commands: Callable[[Evidence, Cpus], Commands],
    done: Callable[[Evidence, int], bool] = lambda evidence, cpu: False,  # noqa: ARG005 - nothing shows that it is done
) -> Finder:
    """Return how to find the causes that *rule* claims, on CPUs for which it is not *done* already.

    *sentence* may use ``{cpus}`` and the ``{functions}`` (or names) of the causes.
    """

    def find(evidence: Evidence) -> Iterator[Found]:
        found = {cpu: claim for cpu, claim in evidence.claimed(rule).items() if not done(evidence, cpu)}
        if found:
            yield Found(
                sentence.format(cpus=evidence.cpus(found), functions=functions(found)),
                evidence.traced_cost(found),
                commands(evidence, frozenset(found)),
            )

    return find


def without_callbacks(evidence: Evidence, cpus: Cpus) -> Commands:
    """Offload the RCU callbacks of *cpus*."""
    return boot("rcu_callbacks", f"rcu_nocbs={format_cpulist({*cpus, *evidence.context.isolation.rcu_nocbs})}")


def without_expediting(evidence: Evidence, cpus: Cpus) -> Commands:
    """Let RCU wait instead of interrupting all CPUs."""
    del evidence, cpus
    lasting = boot("rcu_expedited", "rcupdate.rcu_normal_after_boot=1")
    place = "/sys/kernel/rcu_normal"
    return Commands((f"echo 1 > {place}",), (f"echo 0 > {place}", *lasting.undo), lasting.change)


def rarer_statistics(evidence: Evidence, cpus: Cpus) -> Commands:
    """Gather memory statistics once in two minutes."""
    del cpus
    return sysctl("memory_statistics", "vm.stat_interval", RARE_STAT_INTERVAL_S, _stat_interval_s(evidence))


def gathers_rarely(evidence: Evidence, cpu: int) -> bool:
    """Return whether memory statistics are gathered once in two minutes, or more rarely."""
    del cpu
    return _stat_interval_s(evidence) >= RARE_STAT_INTERVAL_S


def _stat_interval_s(evidence: Evidence) -> int:
    return evidence.context.kernel.stat_interval_s or STAT_INTERVAL_S


def workers_elsewhere(evidence: Evidence, cpus: Cpus) -> Commands:
    """Keep unbound workers off *cpus*."""
    others = evidence.online - cpus - evidence.isolated
    lasting = (
        boot("unbound_workers", f"workqueue.unbound_cpus={format_cpulist(others)}")
        if evidence.since(UNBOUND_CPUS_SINCE)
        else at_boot("unbound_workers", WORKQUEUE_MASK, mask(others))
    )
    return Commands(
        (f"echo {mask(others)} > {WORKQUEUE_MASK}",),
        (f"echo {mask(evidence.online)} > {WORKQUEUE_MASK}", *lasting.undo),
        lasting.change,
    )


def programs_elsewhere(what: str, *events: str) -> Callable[[Evidence, Cpus], Commands]:
    """Return how to find the program that does *what*, by an event of the kernel if one shows it, and move it."""

    def commands(evidence: Evidence, cpus: Cpus) -> Commands:
        moved = bind(what, evidence.online - cpus - evidence.isolated, evidence.online)
        shown = tuple(line for event in events for line in watch(event))
        return moved._replace(change=(*shown, *moved.change), undo=(*moved.undo, *((CLEAR,) if shown else ())))

    return commands


def registers_unread(evidence: Evidence, cpus: Cpus) -> Commands:
    """Find and stop who reads registers of *cpus*."""
    del evidence, cpus
    return Commands(
        ("fuser -v /dev/cpu/*/msr  # who reads them", "# stop its service: systemctl stop ..."),
        ("# start it again: systemctl start ...",),
    )


def packets_elsewhere(evidence: Evidence, cpus: Cpus) -> Commands:
    """Steer packets to other CPUs than *cpus*, where they are steered at all."""
    files = "/sys/class/net/*/queues/rx-*/rps_cpus /sys/class/net/*/queues/tx-*/xps_cpus"
    saved, others = "/run/calibration-packet-steering.txt", mask(evidence.online - cpus - evidence.isolated)
    return Commands(
        (
            f"grep -H . {files} > {saved} 2> /dev/null",
            f"for file in $(grep -Lx '[0,]*' {files} 2> /dev/null); do echo {others} > $file; done",
            "# and move the interrupts of the network devices: /proc/irq/*/smp_affinity_list",
        ),
        (f'while IFS=: read -r file cpus; do echo "$cpus" > "$file"; done < {saved}',),
    )


def out_of_balancing(evidence: Evidence, cpus: Cpus) -> Commands:
    """Take *cpus* out of the scheduling domains."""
    return isolate(evidence.context, "load_balancing", cpus | evidence.isolated)


def unpatched(evidence: Evidence, cpus: Cpus) -> Commands:
    """Stop what patches the kernel's code."""
    del evidence, cpus
    return Commands(
        (
            "cat /sys/kernel/tracing/set_event /sys/kernel/tracing/kprobe_events  # tracing that runs",
            "echo > /sys/kernel/tracing/set_event; echo > /sys/kernel/tracing/kprobe_events",
            "# and load no modules or packet filters during measurements",
        ),
        ("# write the events again that the first command showed",),
    )


def threads(evidence: Evidence) -> Iterator[Found]:
    """Find threads that ran on the watched CPUs."""
    claimed = evidence.claimed("threads")
    others = evidence.housekeeping
    found = {(cause.pid, cause.name): None for claim in claimed.values() for cause in claim.causes}
    if not found or not others:
        return
    allowed = {thread.tid: thread.allowed for thread in evidence.context.isolation.threads or ()}
    before: dict[str, list[str]] = {}
    for pid, name in found:
        which = f"$(pgrep -x -- {shlex.quote(visible(name))})" if pid is None else str(pid)
        cpus = evidence.online if pid is None else allowed.get(pid, evidence.online)
        before.setdefault(format_cpulist(cpus), []).append(which)
    every = " ".join(which for group in before.values() for which in group)
    loop = "for tid in {}; do taskset -pc {} $tid; done"
    yield Found(
        f"Threads run on {evidence.cpus(claimed)}: "
        + names([name if pid is None else f"{name} ({pid})" for pid, name in found]),
        evidence.traced_cost(claimed),
        Commands(
            (loop.format(every, format_cpulist(others)),),
            tuple(loop.format(" ".join(group), cpus) for cpus, group in before.items()),
            (f"# in the units of their services: CPUAffinity={format_cpulist(others)}",),
        ),
    )


def unexplained(evidence: Evidence) -> Iterator[Found]:
    """Find gaps that no event of the kernel explains. In a guest only the host can change that."""
    found = [
        (item, view)
        for item in evidence.watched
        if (traced := item.values.gaps.traced) is not None
        and (view := traced.view) is not None
        and (view.unexplained.share or 0.0) >= UNEXPLAINED_SHARE
    ]
    if not found:
        return
    item, view = max(found, key=lambda pair: (pair[1].unexplained.share or 0.0) * pair[0].values.gaps.lost_fraction)
    of_lost = view.unexplained.share or 0.0
    share = of_lost * item.values.gaps.lost_fraction
    counts = [view.smi for _, view in found if view.smi is not None]
    smi = "were not counted" if not counts else f"came {sum(counts)} times" if sum(counts) else "did not come"
    cpus = evidence.cpus([item.cpu for item, _ in found])
    cost: Cost | str = f"The share of its time: Core jitter of this run is not valid on CPU {item.cpu}"
    if item.valid:
        text = f"{units.percent(share)} of the time of CPU {item.cpu}, {of_lost * 100:.0f} % of what it loses"
        cost = Cost(text, f"{item.lost}, by traced events", share)
    yield Found(
        f"No event of the kernel explains interruptions on {cpus}; system management interrupts {smi}",
        cost,
        by_hand(
            "in the firmware's setup, disable power capping, legacy USB and the patrol and reporting of memory errors",
            "enable them again",
        ),
    )
