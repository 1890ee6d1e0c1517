# SPDX-License-Identifier: Apache-2.0
"""The table of all rules. A rule applies only if what its condition needs was captured or measured."""

from typing import Final

from calibration.report.advice import hardware, interruptions, settings
from calibration.report.advice.claims import MIN_EVENTS, MIN_SHARE
from calibration.report.advice.hardware import MIN_MBIT_S
from calibration.report.advice.interruptions import MIN_TICK_HZ, SLOW_CLOCKS
from calibration.report.advice.model import Rule, Source
from calibration.report.advice.settings import DEEP_US, SLOW_GOVERNORS
from calibration.report.advice.traced import (
    UNEXPLAINED_SHARE,
    gathers_rarely,
    out_of_balancing,
    packets_elsewhere,
    programs_elsewhere,
    rarer_statistics,
    registers_unread,
    threads,
    traced,
    unexplained,
    unpatched,
    without_callbacks,
    without_expediting,
    workers_elsewhere,
)

KERNEL: Final = "https://docs.kernel.org/"

AFFINITY = Source(title="SMP IRQ affinity", url=f"{KERNEL}core-api/irq/irq-affinity.html")
PARAMETERS = Source(title="The kernel's command-line parameters", url=f"{KERNEL}admin-guide/kernel-parameters.html")
TICKS = Source(title="NO_HZ: Reducing Scheduling-Clock Ticks", url=f"{KERNEL}timers/no_hz.html")
KTHREADS = Source(
    title="Reducing OS jitter due to per-cpu kthreads", url=f"{KERNEL}admin-guide/kernel-per-CPU-kthreads.html"
)
THP = Source(title="Transparent Hugepage Support", url=f"{KERNEL}admin-guide/mm/transhuge.html")
SYSCTL_KERNEL = Source(title="Documentation for /proc/sys/kernel", url=f"{KERNEL}admin-guide/sysctl/kernel.html")
SYSCTL_VM = Source(title="Documentation for /proc/sys/vm", url=f"{KERNEL}admin-guide/sysctl/vm.html")
IDLE = Source(title="CPU Idle Time Management", url=f"{KERNEL}admin-guide/pm/cpuidle.html")
GOVERNORS = Source(title="CPU Performance Scaling", url=f"{KERNEL}admin-guide/pm/cpufreq.html")
CLOCKS = Source(
    title="Clock sources, clock events, sched_clock and delay timers", url=f"{KERNEL}timers/timekeeping.html"
)
HOTPLUG = Source(title="CPU hotplug in the Kernel", url=f"{KERNEL}core-api/cpu_hotplug.html")
SMBIOS = Source(
    title="System Management BIOS Reference Specification, DSP0134, memory devices",
    url="https://www.dmtf.org/standards/smbios",
)
NUMA = Source(title="NUMA Memory Performance", url=f"{KERNEL}admin-guide/mm/numaperf.html")
POLICIES = Source(title="NUMA Memory Policy", url=f"{KERNEL}admin-guide/mm/numa_memory_policy.html")
WATCHDOG = Source(title="Softlockup detector and hardlockup detector", url=f"{KERNEL}admin-guide/lockup-watchdogs.html")
WORKQUEUE = Source(title="Workqueue", url=f"{KERNEL}core-api/workqueue.html")
PACKETS = Source(title="Scaling in the Linux Networking Stack", url=f"{KERNEL}networking/scaling.html")
CPUSETS = Source(title="Control Group v2, cpuset partitions", url=f"{KERNEL}admin-guide/cgroup-v2.html")
MEMBARRIER = Source(title="membarrier(2)", url="https://man7.org/linux/man-pages/man2/membarrier.2.html")
AFFINITY_OF_THREADS = Source(title="taskset(1)", url="https://man7.org/linux/man-pages/man1/taskset.1.html")
MSR = Source(title="msr(4)", url="https://man7.org/linux/man-pages/man4/msr.4.html")
PERF = Source(title="perf_event_open(2)", url="https://man7.org/linux/man-pages/man2/perf_event_open.2.html")
TRACING = Source(title="Event Tracing", url=f"{KERNEL}trace/events.html")
HWLAT = Source(title="Hardware Latency Detector", url=f"{KERNEL}trace/hwlat_detector.html")

OF_TRACE: Final = "traced share of the lost time of ``jitter``, else the number of traced events"


def _traced_condition(what: str) -> str:
    return f"{what}: traced on an isolated CPU, at least {MIN_EVENTS} events and {MIN_SHARE:.0%} of the time it lost"


RULES: Final = (
    Rule(
        "interrupts",
        "Move interrupts off isolated CPUs",
        "interrupts may be delivered to isolated CPUs, or were traced there, and other CPUs are online",
        "traced share of the lost time of ``jitter``, else how many came to isolated CPUs during the run",
        AFFINITY,
        interruptions.interrupts,
        about="device interrupt",
    ),
    Rule(
        "tick",
        "Stop the scheduler's tick on isolated CPUs",
        f"an isolated CPU that is not in nohz_full has {MIN_TICK_HZ:g} or more ticks a second, counted or traced",
        "traced share or periodic gaps of ``jitter``, else its count of local timer interrupts",
        TICKS,
        interruptions.tick,
        about="local timer",
    ),
    Rule(
        "tick_on_nohz_full",
        "Find what keeps the tick on nohz_full CPUs",
        f"a CPU in nohz_full has {MIN_TICK_HZ:g} or more ticks a second all the same, counted or traced",
        "traced share or periodic gaps of ``jitter``, else its count of local timer interrupts",
        TICKS,
        interruptions.tick_on_nohz_full,
        about="local timer",
    ),
    Rule(
        "thp_always",
        "Set transparent huge pages to madvise",
        "transparent huge pages are set to always",
        "AnonHugePages at the capture, and the latencies on both sizes of ``page_sizes``",
        THP,
        settings.thp_always,
    ),
    Rule(
        "numa_balancing",
        "Disable automatic NUMA balancing",
        "kernel.numa_balancing is not 0, and the machine has several nodes with memory",
        "hinting faults and moved pages of the whole machine during the run",
        SYSCTL_KERNEL,
        settings.numa_balancing,
    ),
    Rule(
        "interleave_weights",
        "Set the weights of interleaved memory nodes",
        "the best weights of ``memory_tiers`` move more than the machine's, by the intervals of both",
        "bandwidth of ``memory_tiers`` with the machine's weights, of the best",
        POLICIES,
        settings.interleave_weights,
    ),
    Rule(
        "deep_idle",
        "Disable deep idle states",
        f"an idle state with an exit latency above {DEEP_US} µs is enabled, and no profile of tuned holds it off",
        "``wakeup`` idle and shallow_idle, else ``idle_latency`` with the package idle and active",
        IDLE,
        settings.deep_idle,
        host_only=True,
    ),
    Rule(
        "powersave",
        "Use the governor performance",
        f"the governor of a CPU is one of {', '.join(sorted(SLOW_GOVERNORS))}",
        "``core_frequency`` of a core that became busy, of the processor's highest",
        GOVERNORS,
        settings.powersave,
        host_only=True,
    ),
    Rule(
        "smt_sibling",
        "Take the SMT siblings of isolated CPUs offline",
        "an isolated CPU shares its core with an online CPU that is not isolated",
        "``jitter`` of these CPUs compared with isolated CPUs that share no core",
        HOTPLUG,
        hardware.smt_sibling,
        host_only=True,
    ),
    Rule(
        "dimm_missing",
        "Populate all memory channels",
        "the firmware's table names a memory channel without a module",
        "read bandwidth of the populated channels",
        SMBIOS,
        hardware.dimm_missing,
        host_only=True,
    ),
    Rule(
        "mixed_dimm_speed",
        "Use memory modules of one speed",
        "the firmware's table has modules at different speeds",
        "read bandwidth of all modules",
        SMBIOS,
        hardware.mixed_dimm_speed,
        host_only=True,
    ),
    Rule(
        "nic_far",
        "Isolate CPUs on the node of the network devices",
        f"CPUs are isolated, and a network device of {MIN_MBIT_S // 1000} Gbit/s or more, or one bound to vfio-pci, is "
        "on a node without any of them",
        "``latency_matrix`` or ``bandwidth_matrix`` between the nodes, and within",
        NUMA,
        hardware.nic_far,
        host_only=True,
    ),
    Rule(
        "clocksource",
        "Use a fast clock source",
        f"the clock source is one of {', '.join(sorted(SLOW_CLOCKS))} while a fast one is available, or on bare metal "
        "with an invariant TSC",
        "time of a reading of the clock",
        CLOCKS,
        settings.clocksource,
    ),
    Rule(
        "watchdog",
        "Disable the watchdogs",
        "the watchdogs or a profiler were traced on an isolated CPU, or it got NMIs while the NMI watchdog is on; the "
        "command line has no nowatchdog",
        f"{OF_TRACE}; else NMIs counted",
        WATCHDOG,
        settings.watchdog,
        about="other interrupt",
    ),
    Rule(
        "rcu_callbacks",
        "Offload RCU callbacks",
        _traced_condition("RCU callbacks on a CPU that is not in rcu_nocbs"),
        OF_TRACE,
        KTHREADS,
        traced(
            "rcu_callbacks",
            "RCU callbacks run on {cpus}",
            without_callbacks,
            lambda evidence, cpu: cpu in evidence.context.isolation.rcu_nocbs,
        ),
        about="softirq",
    ),
    Rule(
        "rcu_expedited",
        "Disable expedited RCU grace periods",
        _traced_condition("expedited RCU that the command line does not prevent"),
        OF_TRACE,
        PARAMETERS,
        traced(
            "rcu_expedited",
            "Other CPUs expedite RCU by interrupts on {cpus} ({functions})",
            without_expediting,
            lambda evidence, cpu: evidence.option("rcupdate.rcu_normal", "rcupdate.rcu_normal_after_boot"),  # noqa: ARG005
        ),
        about="other interrupt",
    ),
    Rule(
        "memory_statistics",
        "Gather memory statistics rarely",
        _traced_condition("the kernel's update of memory statistics"),
        OF_TRACE,
        SYSCTL_VM,
        traced("memory_statistics", "The kernel gathers memory statistics on {cpus}", rarer_statistics, gathers_rarely),
        about="thread",
    ),
    Rule(
        "unbound_workers",
        "Keep unbound workers off isolated CPUs",
        _traced_condition("unbound kernel workers"),
        OF_TRACE,
        WORKQUEUE,
        traced("unbound_workers", "Unbound workers run on {cpus} ({functions})", workers_elsewhere),
        about="thread",
    ),
    Rule(
        "bound_workers",
        "Keep programs that queue work off isolated CPUs",
        _traced_condition("bound kernel workers, which no mask moves"),
        OF_TRACE,
        KTHREADS,
        traced(
            "bound_workers",
            "Work is queued on {cpus} ({functions})",
            programs_elsewhere("a program that queues work there", "workqueue/workqueue_queue_work"),
        ),
        about="thread",
    ),
    Rule(
        "program_timers",
        "Bind programs with timers to other CPUs",
        _traced_condition("timers of programs"),
        OF_TRACE,
        AFFINITY_OF_THREADS,
        traced(
            "program_timers",
            "Timers of programs expire on {cpus} ({functions})",
            programs_elsewhere("a program that sets timers there", "timer/hrtimer_start"),
        ),
        about="local timer",
    ),
    Rule(
        "network_packets",
        "Steer network packets to other CPUs",
        _traced_condition("network packets"),
        OF_TRACE,
        PACKETS,
        traced("network_packets", "{cpus} handles network packets ({functions})", packets_elsewhere),
        about="softirq",
    ),
    Rule(
        "load_balancing",
        "Take the CPUs out of load balancing",
        _traced_condition("the scheduler's load balancing on a CPU that is not isolated"),
        OF_TRACE,
        CPUSETS,
        traced(
            "load_balancing",
            "The scheduler balances load on {cpus}",
            out_of_balancing,
            lambda evidence, cpu: cpu in evidence.isolated,
        ),
        about="softirq",
    ),
    Rule(
        "memory_mappings",
        "Share no memory mappings with other CPUs",
        _traced_condition("invalidations of the TLB"),
        OF_TRACE,
        KTHREADS,
        traced(
            "memory_mappings",
            "Other CPUs change memory mappings that {cpus} uses ({functions})",
            programs_elsewhere("threads that map and unmap memory of the program there", "tlb/tlb_flush"),
        ),
        about="other interrupt",
    ),
    Rule(
        "memory_barriers",
        "Keep programs with membarrier off isolated CPUs",
        _traced_condition("memory barriers that a program requests"),
        OF_TRACE,
        MEMBARRIER,
        traced(
            "memory_barriers",
            "A program requests memory barriers on {cpus} (membarrier, {functions})",
            programs_elsewhere("the program with a thread there that calls membarrier"),
        ),
        about="other interrupt",
    ),
    Rule(
        "performance_counters",
        "Exclude isolated CPUs from performance monitors",
        _traced_condition("counters that another CPU reads"),
        OF_TRACE,
        PERF,
        traced(
            "performance_counters",
            "A program reads performance counters of {cpus} from another CPU ({functions})",
            programs_elsewhere("perf, or a monitor; give it the other CPUs, as perf stat -C"),
        ),
        about="other interrupt",
    ),
    Rule(
        "model_registers",
        "Stop monitors that read model-specific registers",
        _traced_condition("registers that another CPU reads"),
        OF_TRACE,
        MSR,
        traced(
            "model_registers",
            "A program reads model-specific registers of {cpus} from another CPU ({functions})",
            registers_unread,
        ),
        about="other interrupt",
    ),
    Rule(
        "code_patching",
        "Change no kernel code during measurements",
        _traced_condition("patching of the kernel's code"),
        OF_TRACE,
        TRACING,
        traced("code_patching", "The kernel patches its code while {cpus} is watched ({functions})", unpatched),
        about="other interrupt",
    ),
    Rule(
        "threads",
        "Bind threads to other CPUs",
        _traced_condition("threads that can be moved"),
        OF_TRACE,
        AFFINITY_OF_THREADS,
        threads,
        about="thread",
    ),
    Rule(
        "unexplained",
        "Look for time that firmware takes",
        f"no traced event explains {UNEXPLAINED_SHARE:.0%} or more of the lost time of an isolated CPU",
        "that share of the lost time of ``jitter``",
        HWLAT,
        unexplained,
        host_only=True,
        about="firmware",
    ),
)
"""In the order of the documentation."""
