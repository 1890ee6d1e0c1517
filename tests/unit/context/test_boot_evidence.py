# SPDX-License-Identifier: Apache-2.0
"""What the machine shows of its command line: each parameter as asked, and not as asked."""

from typing import Any

import pytest

from calibration.context.boot_evidence import EVIDENCE
from calibration.context.loader import load

CPU = "/sys/devices/system/cpu"
MM = "/sys/kernel/mm"
SMT = f"{CPU}/smt/control"
THP = f"{MM}/transparent_hugepage/enabled"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
IDLE = f"{CPU}/cpuidle/current_driver"
POLICY = f"{CPU}/cpufreq/policy0"
VERSION = "/proc/sys/kernel/version"
RELEASE = "/proc/sys/kernel/osrelease"
PREEMPT = "/sys/kernel/debug/sched/preempt"
DYNAMIC = {VERSION: "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1"}

FOUR = {f"{CPU}/{name}": "0-3" for name in ("online", "possible", "present")}
INTEL = {
    f"{POLICY}/affected_cpus": "0-3",
    f"{POLICY}/scaling_driver": "intel_pstate",
    f"{CPU}/intel_pstate/status": "active",
}
AMD = {f"{POLICY}/affected_cpus": "0-3", f"{POLICY}/scaling_driver": "amd-pstate", f"{CPU}/amd_pstate/status": "guided"}
ACPI = {f"{POLICY}/affected_cpus": "0-3", f"{POLICY}/scaling_driver": "acpi-cpufreq"}


def states(driver: str, *names: str) -> dict[str, str]:
    return {IDLE: driver} | {f"{CPU}/cpu0/cpuidle/state{number}/name": name for number, name in enumerate(names)}


def pages(default_kib: int = 2048, **pools: str) -> dict[str, str]:
    """Return the files of pools by their size in KiB: pages, or pages and surplus."""
    found = {"/proc/meminfo": f"MemTotal: 8388608 kB\nHugepagesize: {default_kib} kB"}
    for size, numbers in pools.items():
        total, _, surplus = numbers.partition("+")
        place = f"{MM}/hugepages/hugepages-{size[1:]}kB"
        found |= {f"{place}/nr_hugepages": total, f"{place}/surplus_hugepages": surplus or "0"}
    return found


TWO_NODES = {f"/sys/devices/system/node/node{node}/cpulist": f"{2 * node}-{2 * node + 1}" for node in (0, 1)}
BOTH = pages(_2048="512", _1048576="4")

AS_ASKED: list[tuple[str, dict[str, str]]] = [
    ("nosmt", {SMT: "off"}),
    ("nosmt", {SMT: "notsupported"}),
    ("nosmt=force", {SMT: "forceoff"}),
    ("maxcpus=4", {}),
    ("maxcpus=all", {}),
    ("nr_cpus=4", {}),
    ("mem=8G", BOTH),
    ("mem=nopentium", BOTH),
    ("numa=off", {}),
    ("numa=fake=2", {f"/sys/devices/system/node/node{node}/cpulist": "0-1" for node in (0, 1)}),
    ("hugepages=512", BOTH),
    ("default_hugepagesz=2M hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512", BOTH),
    ("hugepages=256", pages(_2048="300+44")),
    ("hugepagesz=1G hugepages=0:2,1:2", BOTH),
    ("hugepagesz=1G hugepages=4 hugetlb_cma=8G", BOTH),
    ("hugepages=512", {}),
    ("transparent_hugepage=never", {THP: "always madvise [never]"}),
    ("transparent_hugepage=madvise", {}),
    ("transparent_hugepage=always transparent_hugepage=never", {THP: "always madvise [never]"}),
    ("clocksource=tsc", {f"{CLOCK}/current_clocksource": "tsc"}),
    ("intel_pstate=active", INTEL),
    ("intel_pstate=no_hwp", ACPI),
    ("intel_pstate=disable", ACPI),
    ("intel_pstate=passive intel_pstate=active", INTEL),
    ("amd_pstate=guided", AMD),
    ("amd_pstate=active", {}),
    ("intel_idle.max_cstate=1", states("intel_idle", "POLL", "C1")),
    ("intel_idle.max_cstate=1 processor.max_cstate=1", states("intel_idle", "POLL", "C1")),
    ("intel_idle.max_cstate=0 processor.max_cstate=1", states("acpi_idle", "POLL", "C1")),
    ("processor.max_cstate=0", states("acpi_idle", "POLL", "C1")),
    ("processor.max_cstate=9", states("acpi_idle", "POLL", "C1", "C2", "C3")),
    ("intel-idle.max-cstate=2", states("intel_idle", "POLL", "C1", "C1E")),
    ("idle=poll", {IDLE: "none"}),
    ("idle=nomwait", states("acpi_idle", "POLL", "C1")),
    ("cpuidle.off=0", states("acpi_idle", "POLL", "C1")),
    ("mitigations=auto,nosmt", {}),
    ("mitigations=auto,no_guest_host,no_user_user", {RELEASE: "6.17.1"}),
    ("mitigations=,no_cross_thread", {RELEASE: "6.17.1"}),
    ("mitigations=auto,no_user_user", {RELEASE: "5.14.0-611.el9.x86_64"}),  # which takes from later kernels
    ("mitigations=auto,no_user_user,", {RELEASE: "6.17.1"}),
    ("preempt=full", DYNAMIC | {PREEMPT: "none voluntary (full)"}),
    ("preempt=none", DYNAMIC | {RELEASE: "5.14.0-503.el9.x86_64"}),
    ("quiet", {SMT: "on"}),
]

NOT_AS_ASKED: list[tuple[str, dict[str, str], str]] = [
    ("nosmt", {SMT: "on"}, "nosmt: on; simultaneous multithreading was"),
    ("maxcpus=2", {}, "maxcpus=2: 4 CPUs online; others were brought online"),
    ("maxcpus=0", {}, "maxcpus=0: 4 CPUs online;"),
    ("nr_cpus=0", {}, "nr_cpus=0: 4 CPUs possible; so says"),
    ("mem=16G mem=4G", BOTH, "mem=4G: 8 GiB;"),
    ("numa=off", TWO_NODES, "numa=off: 2 nodes;"),
    ("hugepages=1024", BOTH, "hugepages=1024: 512 pages of 2 MiB; memory was short at boot, or"),
    ("hugepages=8", BOTH, "hugepages=8: 512 pages of 2 MiB; more were reserved"),
    ("hugepagesz=1G hugepages=0:4,1:4", BOTH | TWO_NODES, "hugepages=0:4,1:4: 4 pages of 1 GiB; memory"),
    ("hugepagesz=1G hugepages=0:4,3:4", BOTH | TWO_NODES,
     "hugepages=0:4,3:4: 4 pages of 1 GiB; the kernel refuses all"),
    ("hugepagesz=1G hugepages=0:4,1:4", pages(_1048576="0") | TWO_NODES | {RELEASE: "5.15.0-91-generic"},
     "hugepages=0:4,1:4: 0 pages of 1 GiB; kernels before 5.16"),
    ("hugepagesz=1G hugepages=8 hugetlb_cma=8G", pages(_1048576="0"),
     "hugepages=8: 0 pages of 1 GiB; beside hugetlb_cma="),
    ("hugepagesz=16G hugepages=1", BOTH, "hugepagesz=16G: refused; the kernel has no pages of 16 GiB"),
    ("default_hugepagesz=1G", BOTH, "default_hugepagesz=1G: 2 MiB; so says"),
    ("hugepages=256", pages(_2048="300+60"), "hugepages=256: 240 pages"),
    ("transparent_hugepage=never", {THP: "[always] madvise never"}, "transparent_hugepage=never: always; changed"),
    ("transparent_hugepage=always mem=400M",
     {THP: "always madvise [never]", "/proc/meminfo": "MemTotal: 380000 kB\nHugepagesize: 2048 kB"},
     "transparent_hugepage=always: never; the kernel switches them off"),
    ("transparent_hugepage=off", {THP: "[always] madvise never"}, "transparent_hugepage=off: always; the kernel knows"),
    ("transparent_hugepage=always", {VERSION: "#1 SMP PREEMPT_RT"}, "transparent_hugepage=always: none; a real-time"),
    ("clocksource=tsc", {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "hpet acpi_pm"},
     "clocksource=tsc: hpet; the kernel does not have it, or"),
    ("clocksource=tsc",
     {f"{CLOCK}/current_clocksource": "kvm-clock", f"{CLOCK}/available_clocksource": "kvm-clock tsc"},
     "clocksource=tsc: kvm-clock; changed after"),
    ("intel_pstate=disable", INTEL, "intel_pstate=disable: active (intel_pstate); so says"),
    ("intel_pstate=passive", INTEL, "intel_pstate=passive: active; changed"),
    ("intel_pstate=active", AMD, "intel_pstate=active: amd-pstate; another driver has"),
    ("amd_pstate=active", ACPI, "amd_pstate=active: acpi-cpufreq; another driver has"),
    ("amd_pstate=passive", AMD, "amd_pstate=passive: guided; changed"),
    ("intel_idle.max_cstate=1", states("acpi_idle", "POLL", "C1", "C2"),
     "intel_idle.max_cstate=1: states to C2; the CPUs idle by acpi_idle, which"),
    ("intel_idle.max_cstate=1", states("intel_idle", "POLL", "C1", "C6"),
     "intel_idle.max_cstate=1: states to C6; so says"),
    ("intel_idle.max_cstate=0", states("intel_idle", "POLL", "C1"), "intel_idle.max_cstate=0: intel_idle;"),
    ("processor.max_cstate=1", states("intel_idle", "POLL", "C1", "C6"),
     "processor.max_cstate=1: states to C6; the CPUs idle by intel_idle, which"),
    ("idle=poll", states("acpi_idle", "POLL", "C1"), "idle=poll: acpi_idle;"),
    ("idle=nomwait", states("intel_idle", "POLL", "C1"), "idle=nomwait: intel_idle;"),
    ("cpuidle.off=1", states("haltpoll", "POLL", "haltpoll"), "cpuidle.off=1: haltpoll;"),
    ("mitigations=no", {RELEASE: "6.1.0"}, "mitigations=no: ignored; the kernel does not know"),
    ("mitigations=auto,no_user_user", {RELEASE: "6.16.1"}, "mitigations=auto,no_user_user: ignored;"),
    ("mitigations=auto;no_user_user", {RELEASE: "6.17.1"}, "mitigations=auto;no_user_user: auto; the kernel does"),
    ("mitigations=off,nosmt", {RELEASE: "6.17.1"}, "mitigations=off,nosmt: off; the kernel does not know the rest"),
    ("mitigations=off,nosmt", {RELEASE: "6.16.1"}, "mitigations=off,nosmt: ignored;"),
    ("mitigations=off,nosmt", {RELEASE: "5.14.0-611.el9.x86_64"}, "mitigations=off,nosmt: ignored or off; the kernel"),
    ("mitigations=auto,no_user_user,no_user", {RELEASE: "6.17.1"},
     "mitigations=auto,no_user_user,no_user: auto,no_user_user;"),
    ("mitigations=no_user_user", {RELEASE: "6.17.1"}, "mitigations=no_user_user: ignored;"),
    ("preempt=none", DYNAMIC, "preempt=none: unknown; kernels from 7.0 on"),
    ("preempt=full", DYNAMIC | {PREEMPT: "none (voluntary) full"}, "preempt=full: voluntary; so says"),
]  # fmt: skip


def sentences(make_root: Any, line: str, files: dict[str, str]) -> list[str]:
    tree = FOUR | {"/proc/cmdline": line, RELEASE: "7.3.4", **files}
    notes = load(make_root({path: text + "\n" for path, text in tree.items()})).isolation.notes or ()
    return [note.sentence for note in notes]


@pytest.mark.parametrize(("line", "files"), AS_ASKED, ids=[line for line, _ in AS_ASKED])
def test_nothing_is_said_of_a_machine_that_is_as_asked(make_root, line, files):
    assert sentences(make_root, line, files) == []


@pytest.mark.parametrize(("line", "files", "begin"), NOT_AS_ASKED, ids=[begin for *_, begin in NOT_AS_ASKED])
def test_what_is_not_as_asked_is_said_in_words(make_root, line, files, begin):
    (sentence,) = sentences(make_root, line, files)
    assert sentence.startswith(begin)


def test_each_parameter_is_tried_both_ways():
    for evidence in EVIDENCE:
        for cases in (AS_ASKED, NOT_AS_ASKED):
            tried = " ".join(case[0] for case in cases).replace("-", "_")
            assert any(name in tried for name in evidence.parameters), evidence.parameters
