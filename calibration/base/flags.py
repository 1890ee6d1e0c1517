# SPDX-License-Identifier: Apache-2.0
"""The closed list of validity flags: one row each, from which severities, reasons, pages and the guide are made.

A flag is what a reader must know about one measurement before relying on its value. ``info`` explains, ``warn`` casts
doubt, ``invalid`` means that the value does not answer its question: it stays in the document and is struck out on the
page.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, NamedTuple

Severity = Literal["info", "warn", "invalid"]

SEVERITIES: Final[Mapping[Severity, str]] = {
    "invalid": "invalid: the value is struck out",
    "warn": "warning: use with caution",
    "info": "for information",
}
"""Severities in words, the worst first."""


class FlagRow(NamedTuple):
    """A flag: what it means in one sentence, and in reStructuredText for the guide its ``details`` and ``remedy``.

    ``short`` is the form of a reason against a metric; None where the ± already shows it, or it never is the worst
    reason. ``finding``: as a flag of the whole machine it is a finding. ``error`` is sutprobe's error that it stands
    for; ``warned``: sutprobe warns of it under its own name.
    """

    severity: Severity
    code: str
    meaning: str
    remedy: str
    details: str = ""
    short: str | None = None
    finding: bool = False
    error: str | None = None
    warned: bool = False


_info, _warn, _invalid = partial(FlagRow, "info"), partial(FlagRow, "warn"), partial(FlagRow, "invalid")

GROUPS: Final[Mapping[str, tuple[FlagRow, ...]]] = {
    "Placement and proof of work": (
        _invalid(
            "PLACEMENT_WRONG",
            "Some of the memory lies on another node than intended.",
            "Find what migrates pages: ``migratepages``, a balancing daemon, a changed ``cpuset.mems``.",
            "Before or after the windows. There is no metric.",
            short="placement",
            error="placement_wrong",
        ),
        _invalid(
            "PLACEMENT_UNVERIFIED",
            "The node of the memory could not be read back.",
            "Allow the call, or measure outside the container.",
            "The kernel did not report the nodes of all pages, usually in a container that refuses ``move_pages``.",
            short="placement",
        ),
        _invalid(
            "CPU_UNVERIFIED",
            "The thread was found on another CPU than intended.",
            "Find what changes affinities or takes CPUs offline.",
            "There is no metric. Wake-up latency leaves the CPU out of its values and has the flag as information.",
            short="CPU left",
            error="cpu_left",
        ),
        _invalid(
            "WORK_UNPROVED",
            "The check that the timed work was done failed.",
            "Suspect memory or processor first: read its log for machine checks, ask sutprobe :ref:`known answers "
            "<known-answers>`.",
            "The chain is not one cycle, or a checksum or canary is wrong.",
            short="work unproved",
        ),
        _info(
            "PLACEMENT_BY_TOPOLOGY",
            "The kernel refused the query for a page's node; only one node has memory, so it is there.",
            "Nothing.",
        ),
        _warn(
            "KEEP_AWAKE_SLOW",
            "A keep-awake thread read too little to be sure that it kept the machine awake.",
            "Keep other work off the CPU that the flag names.",
            "It read less than 100 of its 300 MB/s (:doc:`idle_latency`).",
        ),
        _warn(
            "BUFFER_TOO_SMALL",
            "The buffer is not well beyond the last-level cache, so that a part of it may be served from there.",
            "Free memory on the smallest node, or treat the metric as a mixture of cache and memory.",
            "It is less than 4 times the assumed last-level cache (:doc:`placement`).",
        ),
        _warn(
            "MEMORY_SIDE_CACHE",
            "The buffer is not well beyond the cache before the node's memory, so that a part of it may be served from "
            "there.",
            "Treat the metric as that of the cache, or free memory and raise ``largest_bytes`` in the profile.",
            "It is less than 4 times that cache, or the cache has no known size (:doc:`placement`).",
        ),
        _info(
            "HUGEPAGE_PARTIAL",
            "Only a part of the memory is on huge pages: address translation costs more on the rest.",
            "Compare only with metrics that have the same share.",
        ),
        _info(
            "HUGEPAGE_NONE",
            "The memory is on base pages: the value includes the cost of address translation.",
            "Set ``/sys/kernel/mm/transparent_hugepage/enabled`` to ``madvise`` or ``always``, or reserve huge pages.",
        ),
        _warn(
            "HUGEPAGE_EXHAUSTED",
            "Huge pages were requested, but the SUT had too few reserved.",
            "Reserve enough on each node, or find what uses them.",
            "A node had too few free ones. With ``--pages auto`` all buffers got other pages; with ``hugetlb`` there "
            "is no metric.",
            warned=True,
        ),
    ),
    "The machine": (
        _invalid(
            "EMULATED",
            "The processor is emulated in software: times say nothing about hardware.",
            "Measure on hardware.",
            "x86_64 is detected by CPUID (``TCGTCGTCGTCG``) or name, aarch64 by implementer 0 or a counter at 62.5 "
            "MHz. Other emulated Arm processors are not detected.",
            short="emulated",
        ),
        _info(
            "VIRTUALISED",
            "The SUT is a virtual machine: its host and neighbours share what is measured.",
            "Do not use it as a metric of the host.",
        ),
        _warn(
            "NOT_AS_EXPECTED",
            "The SUT does not meet an expectation of its inventory.",
            "Follow the evidence. Compare only with machines in the same state.",
            "A preflight check with the effect ``flag`` failed or could not be decided (:doc:`/guide/preflight`).",
            finding=True,
        ),
        _warn(
            "NOT_RESTORED",
            "Settings that the run changed are not known to be as before.",
            "Correct what the reason names, then run ``playbooks/cleanup.yml`` or ``calibration run --resume`` with "
            "the run's identifier (:doc:`/guide/changes`). The metrics are not affected; what is measured next may be, "
            "so the SUT is refused until then.",
            "Restoring was refused, the machine ignored it, or the end of the run is unknown. The reason has the "
            "setting, the value wanted and the one found.",
        ),
        _warn(
            "LINK_NARROWED",
            "A PCIe link was negotiated below what both of its ends can.",
            "Reseat the card; check slot, riser, cable, and the bifurcation set in the firmware.",
            "A link of a network, storage or accelerator device, or of a switch above it, has fewer lanes. A lower "
            "speed raises no flag, because power management lowers it on idle devices; the page shows it.",
            finding=True,
        ),
        _warn(
            "ALLOCATION_NARROWED",
            "The measured CPUs may use a part of a cache or of the memory bandwidth only.",
            "Measure in the default group, or compare only with runs that have the same allocation.",
            "Their resctrl group has fewer cache ways or less bandwidth than the machine. No file says how much AMD's "
            "processors have: it is what the widest group has, a power of two from 2048 on. If that is narrowed too, "
            'the page says "not checked".',
            finding=True,
        ),
        _warn(
            "CPUS_HIDDEN",
            "CPUs of the SUT were not measured, because the run may not use them.",
            "Lift the restriction (``cpuset.cpus``, ``AllowedCPUs=``, ``taskset``).",
            "The cpuset or affinity of the login hides online CPUs. CPUs that ``isolcpus=`` isolates within the cpuset "
            "are used. The reason names usable CPUs that share a core or a last-level cache with hidden ones: "
            "neighbours may use it while it is measured.",
            error="pin_failed",
        ),
        _warn(
            "CPU_QUOTA",
            "A CPU quota kept threads from running all the time.",
            "Raise the quota, or give the container whole CPUs with a cpuset (:doc:`/guide/containers`).",
            "A control group's quota (``cpu.max``, ``cpu.cfs_quota_us``) is below the CPUs that may be used. On the "
            "run: fewer CPUs were measured. On a measurement: the quota stopped threads while it ran (``nr_throttled`` "
            "of ``cpu.stat`` grew), and gaps, latency and bandwidth include that.",
            warned=True,
        ),
        _warn(
            "NODES_HIDDEN",
            "Memory of the SUT was not measured, because the run may not take memory there.",
            "Lift the restriction.",
            "It could not be bound, or the node is outside ``cpuset.mems`` or offline. There is no metric.",
            error="bind_failed",
        ),
        _info(
            "NODES_EMULATED",
            "The kernel divided a node into several with the same CPUs.",
            "Nothing; boot without ``numa=fake=`` to compare with other machines.",
            "The CPUs count once, for the lowest.",
        ),
        _warn(
            "RATED_DIFFERS",
            "Firmware or a CXL device rates a memory far from what was measured.",
            "Update the firmware. The kernel derives memory tiers and automatic interleave weights from ratings: check "
            "both (:doc:`/guide/memory`).",
            "Read latency or bandwidth between two nodes is more than 2 times the rated one, or less than half of it, "
            "over the whole interval: more than rounding and the theoretical peak explain.",
            finding=True,
        ),
        _warn(
            "RATED_ORDER",
            "Firmware or a CXL device puts two memories in another order than was measured.",
            "Update the firmware. The kernel allocates from the node with the lowest distance first, and demotes pages "
            "by memory tiers: bind memory by the measured order (``numactl``).",
            "By distances (SLIT), latencies or bandwidths (HMAT, CXL) from one node; the measured intervals are more "
            "than 5 % apart the other way round (:doc:`/guide/memory`).",
            finding=True,
        ),
        _warn(
            "SLOW_CORE",
            "A core ran clearly slower than the others under the same work.",
            "Expected with hybrid or favoured cores. Otherwise compare frequency policy, throttle counts and C-states "
            "with the other cores, and what runs on them; if only the latency differs, check whether the firmware "
            "disabled parts of the core's mesh or cache.",
            ":doc:`core_frequency`: the whole interval of its clock is more than 2 % below the median of the other "
            "cores. :doc:`core_latency`: the whole interval of its latency is beyond the limit of its node. The flag "
            "names the cores.",
        ),
        _warn(
            "CLOCK_FALLBACK",
            "The processor's own counter could not be used for timing; the clock is coarser and costs more to read.",
            "Find out why the kernel does not use the TSC: ``dmesg | grep -i clocksource``.",
            "Times come from ``CLOCK_MONOTONIC_RAW`` (:doc:`clock`).",
        ),
        _info(
            "CLOCK_COARSE",
            "The counter's step is longer than 1 ns, and shows in each single interval.",
            "Compare single intervals only with those of machines with the same counter.",
            "It is 2 ns on POWER, up to 1 µs on RISC-V, 10 to 40 ns on aarch64 before Armv8.6. Gaps and PMA intervals "
            "are multiples of the step; values from long windows (latency, bandwidth) are not affected.",
        ),
        _warn(
            "TIMER_COARSE",
            "The kernel has no high-resolution timers: wake-ups are late by up to a tick.",
            "Remove ``highres=off`` from the kernel command line; ``/proc/timer_list`` has the devices and their "
            "``.resolution``.",
            "Because of ``highres=off``, or of a clock event device without one-shot mode (:doc:`wakeup`).",
        ),
        _info(
            "NOT_ISOLATED",
            "The CPU runs other work of the operating system too.",
            "Nothing if you want to measure such a CPU; otherwise boot with ``isolcpus=``.",
            ":doc:`jitter` has it.",
        ),
        _warn(
            "RT_THROTTLE_POSSIBLE",
            "The kernel may suspend real-time threads for a part of every period; such gaps are its own doing.",
            "Write -1 to ``/proc/sys/kernel/sched_rt_runtime_us``, mount debugfs so that the deadline server can be "
            "checked, or use ordinary threads.",
            "By ``sched_rt_runtime_us`` or the deadline server, for about 50 ms. There is no metric if the profile "
            "requests such threads (``fifo`` of :doc:`jitter`).",
            warned=True,
        ),
        _info(
            "NOT_LOCKED",
            "The record of gaps could not be locked in memory: paging could appear as gaps.",
            "Raise ``LimitMEMLOCK=`` or ``--ulimit memlock``, or ignore it where memory is free.",
            "The limit of locked memory (``ulimit -l``) is below the 16 MiB per CPU that :doc:`jitter` locks.",
            warned=True,
        ),
    ),
    "Statistics": (
        _warn(
            "BIMODAL",
            "The samples are bimodal: one median does not describe them.",
            "Check ``samples``: groups within a placement indicate clock or load, groups of whole placements physical "
            "memory.",
            "Common causes are an alternating clock, other load, and two kinds of page placement (:doc:`statistics`).",
            short="bimodal",
        ),
        _warn(
            "NOT_CONVERGED",
            "The interval was still wider than the target after all rounds.",
            "Stop other work on the machine, or raise ``rounds`` or ``more_rounds`` in the profile.",
            "Common in ``quick``, which adds no rounds.",
        ),
        _warn(
            "NOT_STATIONARY",
            "The rounds differ by more than chance: something changed during the run.",
            "Stop other work, warm up the machine, and fix what the reason names.",
            "They differ by more than twice the target (:doc:`statistics`), as clock, temperature or a neighbour do. "
            "The reason names what changed with them.",
            short="not stationary",
        ),
        _warn(
            "DRIFT",
            "A reference that should have stayed the same moved while the series was measured.",
            "Do not compare its points. Warm up the machine, look for other load, repeat.",
            ":doc:`loaded_latency`: latency without load changed by more than 2 % during the sweep.",
        ),
    ),
    "Interference": (
        _warn(
            "THROTTLED",
            "The processor slowed down because it was too hot.",
            "Check cooling and power limits.",
            "A thermal throttle counter of core or package rose. As a flag of the whole machine: between the first and "
            "the last step.",
            short="throttled",
            finding=True,
        ),
        _warn(
            "FREQ_CHANGED",
            "The core clock before and after a placement differs, so that times in ns moved with it.",
            "Use the governor ``performance``; check turbo and temperature.",
            "It differs by more than 1 %.",
            short="clock changed",
        ),
        _warn(
            "STOLEN",
            "The hypervisor gave the CPU to something else while it was measuring.",
            "Pin the virtual CPUs on the host, or measure the host.",
            "Steal time has steps of 10 ms.",
            short="hypervisor",
        ),
        _warn(
            "PREEMPTED",
            "Another thread took the CPU while it was measuring.",
            "Use isolated CPUs, or stop other work.",
            "Counted as involuntary context switches.",
            short="preempted",
        ),
        _warn(
            "FAULTED",
            "Page faults happened in the timed part, where all memory should have been touched before.",
            "Look for memory pressure, swap and NUMA balancing.",
            short="page faults",
        ),
        _warn(
            "SMI",
            "A system management interrupt of the firmware took the CPU while it was measuring.",
            "Check firmware: power capping, patrol scrubbing, USB legacy support, error reporting.",
            "Counted only if model-specific registers can be read (root, module ``msr``).",
            short="firmware",
        ),
        _warn(
            "MOVED",
            "The kernel moved pages between nodes while they were measured.",
            "Set ``kernel.numa_balancing=0`` during the run.",
            "The kernel counts pages of any program.",
            short="pages moved",
        ),
        _warn(
            "ERRORS_CORRECTED",
            "Memory or a PCIe link had errors during the run, and corrected them: it worked more slowly meanwhile.",
            "The reason names the module or the device: reseat or replace it. The gate ``Memory And Links Had No "
            "Errors`` fails; it is undecided if a counter was reset or disappeared meanwhile.",
            "Counted between the first and the last step: memory errors by EDAC, errors of the PCIe devices in the "
            "page's table and of the ports above them by AER. They often come again.",
            finding=True,
        ),
        _warn(
            "ERRORS_UNCORRECTED",
            "Memory or a PCIe link had errors during the run that it could not correct.",
            "Do not use the machine before the module or device is replaced.",
            "Counted like those that were corrected.",
            finding=True,
        ),
        _warn(
            "BMC_EVENTS",
            "The BMC logged events during the run: of fans, power, temperatures, memory or the chassis.",
            "Read them with ``ipmitool sel elist``; the reason has their kinds.",
            "Looked for with ``context_bmc_ok`` only, among the newest 64 events.",
            finding=True,
        ),
        _warn(
            "DATA_WRONG",
            "Memory held something else than was written, or arithmetic gave a wrong result.",
            "Do not use the machine. The table names CPU, node and address: swap module or processor, and repeat.",
            ":doc:`burn_in` found it, in any round, also an interrupted one. It fails the run.",
            finding=True,
        ),
        _warn(
            "PROBE_KILLED",
            "sutprobe was killed under full load, as the kernel does at an uncorrectable error of memory.",
            "Read the kernel's log (``dmesg``), and burn in again: a round that was measured since proves nothing.",
            ":doc:`burn_in`, in any round, also one that was measured again; not if memory ran out, or if the run was "
            "interrupted. It fails the run.",
            finding=True,
        ),
        _info(
            "COUNTERS_SAMPLED_LESS",
            "Counters that take long to read were not read around every measurement.",
            "Nothing. ``counter_budget`` in the step's document has the interrupts of the whole step "
            "(:doc:`/reference/records`).",
            "Otherwise reading them would have taken more than 3 % of the step.",
            warned=True,
        ),
    ),
    "Results": (
        _warn(
            "ASYMMETRIC",
            "Between two nodes one direction costs clearly more than the other.",
            "Check link width and speed, and DIMM population.",
            "By more than 5 % (:doc:`latency_matrix`, :doc:`c2c_latency`); between two CPUs with disjoint intervals "
            "(:doc:`c2c_matrix`).",
        ),
        _warn(
            "NODE_ASYMMETRY",
            "Nodes that should be alike reach their own memory with clearly different results; a missing DIMM does "
            "this.",
            "Look for a missing or slower DIMM, an empty channel, or a node with fewer CPUs.",
            ":doc:`bandwidth_matrix`: local bandwidths differ by more than 5 %.",
        ),
        _warn(
            "NOT_SUSTAINED",
            "Bandwidth fell over seconds of load: a power limit, heat, or neighbours.",
            "Check clock, energy and temperature; use the sustained metric for planning.",
            ":doc:`sustained_bandwidth`: the last second moved at least 2 % less than the first, over the whole "
            "interval of the loss.",
        ),
        _warn(
            "SHARE_MISSED",
            "The load missed the requested share of its bandwidth; compare by bandwidth.",
            "If something else used CPUs or memory, measure again.",
            ":doc:`loaded_latency`: at the nearest delay found, it was more than 5 % of its full bandwidth away.",
        ),
        _warn(
            "STORES_ASSUMED",
            "Bytes of regular stores are by rule; this processor may move fewer or more.",
            "Allow counters, or compare program bytes or non-temporal mixes.",
            "The mix stores lines it has not read, the processor may skip the read that such a store makes, and no "
            "counter was open (:doc:`accounting`).",
        ),
        _warn(
            "PARTIAL",
            "Some requested values are missing.",
            "Read the reasons of the missing parts.",
            "The run is incomplete.",
        ),
        _warn(
            "RING_FULL",
            "More gaps than time stamps can be kept for: counts are exact, the list of times is incomplete.",
            "Nothing, unless you need the times.",
            ":doc:`jitter`: maximum and lost time are exact too; periods and attribution come from the first part.",
        ),
        _warn(
            "TRACE_LOST",
            "More events were traced than the buffer holds: only later gaps have causes. Other metrics are not "
            "affected.",
            "Shorten ``gap_s`` if the causes matter.",
            ":doc:`jitter`: the kernel's trace buffer has 8 MiB.",
        ),
        _warn(
            "COVERAGE_LOW",
            "A part of the wall time was not observed.",
            "Reduce the interruptions.",
            ":doc:`jitter`: less than 99.9 % was observed, because recording gaps took the rest.",
        ),
    ),
    "Counters": (
        _warn(
            "COUNTED_DIFFERS",
            "The memory controllers counted other bytes than the kernel moved by the declared rule.",
            "Too few reads only: whole-line writes skip the read. Too many of both: other users or prefetchers. Too "
            "few of both: caches.",
            "In one direction, over 5 % more or fewer than the model (:doc:`accounting`).",
        ),
        _warn(
            "COUNTERS_MULTIPLEXED",
            "A hardware counter ran for a part of the time, and its count was scaled up.",
            "Stop other users: the NMI watchdog, ``perf``, monitoring agents.",
        ),
        _warn(
            "BACKGROUND_TRAFFIC",
            "The machine moved a notable part of the bytes by itself, with nothing measured.",
            "Find what runs; the metric itself shared the memory with it.",
            "More than 1 % of the measurement's bytes in the second before. The background is subtracted.",
        ),
    ),
}
"""All flags by the section of the guide; within each and over all, the worst reasons first."""

FLAGS: Final[Mapping[str, FlagRow]] = {row.code: row for rows in GROUPS.values() for row in rows}

FINDINGS: Final = frozenset(row.code for row in FLAGS.values() if row.finding)
"""Flags of the whole machine that are findings."""

FLAG_OF_ERROR: Final[Mapping[str, str]] = {row.error: row.code for row in FLAGS.values() if row.error}
"""The flag of each error of sutprobe that replaces a value."""

WARNED: Final = frozenset(row.code for row in FLAGS.values() if row.warned)
"""Flags that are warnings of sutprobe."""
