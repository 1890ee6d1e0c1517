# SPDX-License-Identifier: Apache-2.0
"""The checks before a run: each is shown met, not met, and unknown if it can be, with its words."""

from typing import Any

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.context.cmdline import parse_cmdline
from calibration.context.model import BusyProcess, Context, CpuLoad, Load, Unreadable
from calibration.measurements.plan import Plan
from calibration.preflight.agreement import Known, read_known
from calibration.preflight.checks import AGREED, CHECKS, Check, flags, refusal, taken_over_check
from calibration.preflight.examination import evaluate
from calibration.preflight.expectations import read_expectations
from calibration.preflight.facts import Facts, Identity, read_facts
from calibration.preflight.memory import short_of_memory
from calibration.preflight.sut_checks import Requirements, RoundTrip, first_checks, version
from calibration.profiles import load_profile
from calibration.run.plan import make_plan
from tests.captures import captured

ARGUMENTS = (
    "isolcpus=managed_irq,domain,2-3,6-7 nohz_full=2-3,6-7 rcu_nocbs=2-3,6-7 irqaffinity=0-1 hugepagesz=2M hugepages=16"
)


@pytest.fixture(scope="module")
def isolated() -> Context:
    return captured("x86_64-isolated")


def booted(context: Context, text: str) -> Context:
    """Return *context* with another command line."""
    return context.model_copy(update={"cmdline": parse_cmdline(text)})


def found(
    context: Context, name: str, known: Known | None = None, *, plan: Plan | None = None, **promised: Any
) -> Check:
    """Return the one check of *name*."""
    checks = evaluate(context, known or Known(), read_expectations(promised), plan=plan)
    (check,) = (check for check in checks if check.name == name)
    return check


# Kernel arguments


def test_kernel_arguments_may_be_text_or_list(isolated: Context) -> None:
    for promised in (ARGUMENTS, ARGUMENTS.split(), [*ARGUMENTS.split()[1:3]], f"{ARGUMENTS}\n"):
        check = found(isolated, "kernel_arguments", kernel_arguments=promised)
        assert (check.outcome, check.severity) == ("met", "blocking")
        assert "isolcpus=managed_irq" in check.found


HUGEPAGES = "2M hugepagesz=1G hugepages=32 hugepagesz=2M hugepages=32768"
"""How CSIT's inventories have arguments that repeat."""

MAPPINGS = [
    ({"isolcpus": "2-3", "nosmt": True}, "isolcpus=2-3 nosmt"),
    ({"default_hugepagesz": HUGEPAGES, "quiet": True}, f"default_hugepagesz={HUGEPAGES} quiet"),
    ({"maxcpus": 24, "tsc": "reliable"}, "maxcpus=24 tsc=reliable"),
    ({"console": "", "video": None}, "console= video="),
    # CSIT's role has true alone for an argument without a value.
    ({"nosmt": False}, "nosmt=False"),
    ({"nosmt": "true"}, "nosmt=true"),
    ([{"isolcpus": "2-3"}, {"nosmt": True}, "quiet"], "isolcpus=2-3 nosmt quiet"),
    ({}, ""),
    ([], ""),
    (None, ""),
]


@pytest.mark.parametrize(("promised", "line"), MAPPINGS)
def test_kernel_arguments_may_be_a_mapping_of_csit(promised: object, line: str) -> None:
    expected = [item.wanted for item in read_expectations({"kernel_arguments": promised}).state]
    assert expected == ([(line,)] if line else [])


def test_several_arguments_in_one_value_are_compared_singly(isolated: Context) -> None:
    promised = {"default_hugepagesz": HUGEPAGES, "nosmt": True}
    assert (
        found(
            booted(isolated, f"quiet default_hugepagesz={HUGEPAGES} nosmt"),
            "kernel_arguments",
            kernel_arguments=promised,
        ).outcome
        == "met"
    )
    other = HUGEPAGES.replace("hugepages=32 ", "hugepages=16 ")
    check = found(booted(isolated, f"default_hugepagesz={other} nosmt"), "kernel_arguments", kernel_arguments=promised)
    assert check.found == (
        "hugepages=32 for pages of 1073741824 bytes: found hugepages=16 for pages of 1073741824 bytes"
    )


def test_without_expectations_nothing_is_checked(isolated: Context) -> None:
    names = {check.name for check in evaluate(isolated, Known(), read_expectations({}))}
    assert names.isdisjoint({"kernel_arguments", "kernel_release", "isolated_cpus", *AGREED})
    assert {"isolation_kept", "background_load", "free_memory", "clock_source"} == names


SAME = [
    ("isolcpus=2-3", "isolcpus=2,3"),
    ("isolcpus=2-3", "isolcpus=domain,3,2"),
    ("isolcpus=domain,managed_irq,2-3", "isolcpus=managed_irq,domain,2-3"),
    ("isolcpus=1-N", "isolcpus=1-7"),
    ("nohz_full=2-3", "nohz_full=2,3"),
    ("nohz-full=2-3", "nohz_full=2-3"),
    ("intel_idle.max_cstate=1", "intel-idle.max-cstate=1"),
    ("hugepagesz=1G hugepages=4", "hugepagesz=1024M hugepages=4"),
    (
        "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=1024",
        "hugepagesz=1G quiet hugepages=4 hugepagesz=2M hugepages=1024",
    ),
    ("console=ttyS0", "console=tty0 console=ttyS0"),
    ("nosmt", "BOOT_IMAGE=/vmlinuz ro nosmt quiet"),
    ("mitigations=off", "mitigations=off mitigations=off"),
    ('dyndbg="file a +p"', 'quiet dyndbg="file a +p"'),
    # A number before any size is of the default size, wherever that is given.
    ("default_hugepagesz=2M hugepages=256", "hugepages=256 default_hugepagesz=2M"),
    ("hugepages=256 default_hugepagesz=2M", "default_hugepagesz=2M hugepages=256"),
    ("hugepages=4 default_hugepagesz=1G", "default_hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512"),
    ("default_hugepagesz=1G hugepages=4", "default_hugepagesz=1024m hugepagesz=1048576K hugepages=4"),
    (
        "default_hugepagesz=1G hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=4",
        "hugepages=4 default_hugepagesz=1G hugepagesz=2M hugepages=8",
    ),
    ("hugepages=256", "hugepagesz=2M hugepages=256"),  # the default of the captured architecture
    ("default_hugepagesz=2M hugepages=256", "hugepages=256"),
    ("hugepages=256 default_hugepagesz=2M", "hugepages=256 default_hugepagesz=2M hugepagesz=2M hugepages=512"),
    ("hugepagesz=1G hugepages=4", "hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=8"),
    ("hugepagesz=1G hugepages=4 nosmt", "nosmt hugepagesz=1G hugepages=4"),
    ("hugepagesz=1G hugepages=0:2,1:1", "hugepagesz=1G hugepages=1:1,0:2"),
    ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", "hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=4"),
    # Values by the kernel's rules for the argument.
    ("audit=0", "audit=off"),
    ("init_on_alloc=1", "init_on_alloc=on"),
    ("kvm.nx_huge_pages=off", "kvm.nx_huge_pages=N"),
    ("printk.time", "printk.time=y"),
    ("mem=4G", "mem=4096M"),
    ("nr_cpus=16", "nr_cpus=0x10"),
    ("intel_iommu=on,sm_on", "intel_iommu=sm_on,on"),
    ("pci=noaer", "pci=noaer pci=nomsi"),
    ("sysctl.kernel.watchdog_cpumask=0-2", "sysctl.kernel.watchdog_cpumask=0,1,2"),
    ("tuned.non_isolcpus=00000003", "tuned.non_isolcpus=00000000,00000003"),
    ('isolcpus="2-3"', "isolcpus=2,3"),
    ("hugepagesz=1G hugepages=0:2,1:0", "hugepagesz=1G hugepages=0:2"),
    ("hugepages=0", "hugepages=0:0"),
    ("hugetlb_cma=0:1G,1:2G", "hugetlb_cma=1:2048M,0:1G"),
    ("hugetlb_cma=2G cma=64M", "hugetlb_cma=2048M cma=65536K"),
    ("sysctl.vm.swappiness=10", "sysctl.vm/swappiness=10"),
    ("systemd.cpu_affinity=0-1,24-25", "systemd.cpu_affinity=0,1,24,25"),
    ("crashkernel=1G-4G:192M,4G-:1G@16M", "crashkernel=1024M-4G:192M,4G-:1024M@16384K"),
    ("memmap=16G!64G", "memmap=16384M!64G memmap=1G$8G"),
    ("thp_anon=64K:always", "thp_anon=65536:always"),
    ("vfio-pci.ids=8086:1572,8086:154c", "vfio_pci.ids=8086:154c,8086:1572"),
    # The kernel, or a program of its initial RAM disk, keeps all of them.
    ("intel_pstate=passive", "intel_pstate=passive intel_pstate=no_hwp"),
    ("intel_pstate=no_hwp", "intel_pstate=no_hwp intel_pstate=passive"),
    ("rd.lvm.lv=rhel/root", "rd.lvm.lv=rhel/root rd.lvm.lv=rhel/swap"),
    ("systemd.mask=irqbalance.service", "systemd.mask=irqbalance.service systemd.mask=ksm.service"),
    ("mce=ignore_ce", "mce=ignore_ce mce=no_cmci"),
    ("tsc=nowatchdog", "tsc=reliable tsc=nowatchdog"),
    ("modprobe.blacklist=a,b", "modprobe.blacklist=b quiet modprobe.blacklist=a"),
    ("intel_iommu=on intel_iommu=sm_on", "intel_iommu=sm_on,on"),
    # A flag of isolcpus for the same CPUs may be by itself, as tuned writes it.
    ("isolcpus=domain,managed_irq,2-3", "isolcpus=2-3 isolcpus=managed_irq,2,3"),
    ("isolcpus=managed_irq,2-3 isolcpus=domain,2-3", "isolcpus=domain,managed_irq,2-3"),
    ("isolcpus=2-3 nosmt", "isolcpus=2-3 isolcpus=managed_irq,2-3 nosmt"),
    ("isolcpus=2-3", "isolcpus=2-3 isolcpus=2-3"),
    # For other CPUs, too: kernels before 5.18 refuse the later argument.
    ("isolcpus=2-7", "isolcpus=2-7 isolcpus=managed_irq,4-7"),
    ("irqaffinity=0-1", "irqaffinity=1"),  # the kernel adds CPU 0
]


@pytest.mark.parametrize(("promised", "line"), SAME)
def test_equivalent_kernel_arguments_pass(isolated: Context, promised: str, line: str) -> None:
    assert found(booted(isolated, line), "kernel_arguments", kernel_arguments=promised).outcome == "met"


OTHER = [
    ("isolcpus=2-3", "isolcpus=2", ["isolcpus=2-3: found isolcpus=2"]),
    ("isolcpus=2-3", "isolcpus=nohz,2-3", ["isolcpus=2-3: found isolcpus=nohz,2-3"]),
    ("nosmt", "quiet", ["nosmt: missing"]),
    ("nosmt", "nosmt=force", ["nosmt: found nosmt=force"]),
    ("mitigations=off", "mitigations=Off", ["mitigations=off: found mitigations=Off"]),
    ("nosmt", "-- nosmt", ["nosmt: missing"]),
    ("a=1 b=2", "b=2 a=1", ["a=1: expected before b=2, found after b=2"]),
    ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=8",
     ["hugepages=4 for pages of 1073741824 bytes: found hugepages=8 for pages of 1073741824 bytes",
      "hugepages=8 for pages of 2097152 bytes: found hugepages=4 for pages of 2097152 bytes"]),
    ("hugepagesz=1G hugepages=4", "hugepagesz=1G hugepagesz=2M hugepages=4",
     ["hugepages=4 for pages of 1073741824 bytes: found hugepages=4 for pages of 2097152 bytes"]),
    ("hugepages=256 default_hugepagesz=2M", "hugepages=256 default_hugepagesz=1G",
     ["default_hugepagesz=2M: found default_hugepagesz=1G",
      "hugepages=256 for pages of 2097152 bytes: found hugepages=256 for pages of 1073741824 bytes"]),
    ("default_hugepagesz=1G hugepages=4", "hugepagesz=1G hugepages=4", ["default_hugepagesz=1G: missing"]),
    ("hugepagesz=1G hugepages=8", "hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=8",
     ["hugepages=8 for pages of 1073741824 bytes: found hugepages=4 for pages of 1073741824 bytes"]),
    ("hugepages=512", "hugepages=256 hugepagesz=2M hugepages=512",
     ["hugepages=512 for the default size: found hugepages=256 for the default size"]),
    ("hugepagesz=1G hugepages=0:2,1:1", "hugepagesz=1G hugepages=3",
     ["hugepages=0:2,1:1 for pages of 1073741824 bytes: found hugepages=3 for pages of 1073741824 bytes"]),
    ("hugepagesz=1G hugepages=4", "quiet",
     ["hugepagesz=1G: missing", "hugepages=4 for pages of 1073741824 bytes: missing"]),
    ("mitigations=auto,nosmt", "mitigations=nosmt,auto", ["mitigations=auto,nosmt: found mitigations=nosmt,auto"]),
    ("kernel.sched=1,2", "kernel.sched=2,1", ["kernel.sched=1,2: found kernel.sched=2,1"]),
    ("isolcpus=0-N", "isolcpus=all", ["isolcpus=0-N: found isolcpus=all"]),  # all is taken for a flag
    ("module_blacklist=a", "module_blacklist=a module_blacklist=b",
     ["module_blacklist=a: repeated as module_blacklist=b"]),
    ("hugepages=4", "hugepages=8", ["hugepages=4 for the default size: found hugepages=8 for the default size"]),
    ("isolcpus=managed_irq,0-N", "isolcpus=managed_irq,N", ["isolcpus=managed_irq,0-N: found isolcpus=managed_irq,N"]),
    ("isolcpus=2-3", "isolcpus=2-3 isolcpus=two", ["isolcpus=2-3: repeated as isolcpus=two"]),
    ("isolcpus=2-3", "isolcpus=2-3 isolcpus=2", ["isolcpus=2-3: repeated as isolcpus=2"]),
    ("isolcpus=2-3", "isolcpus=managed_irq,2 isolcpus=2-3", ["isolcpus=2-3: repeated as isolcpus=managed_irq,2"]),
    ("systemd.unified_cgroup_hierarchy=1", "systemd.unified_cgroup_hierarchy=1 systemd.unified_cgroup_hierarchy=0",
     ["systemd.unified_cgroup_hierarchy=1: repeated as systemd.unified_cgroup_hierarchy=0"]),
    ("intel_pstate=passive", "intel_pstate=passive intel_pstate=active",
     ["intel_pstate=passive: repeated as intel_pstate=active"]),
    ("intel_pstate=no_hwp", "intel_pstate=passive", ["intel_pstate=no_hwp: missing"]),
    ("crashkernel=1G,high", "crashkernel=1G,low", ["crashkernel=1G,high: found crashkernel=1G,low"]),
    ("nohz_full=2-3", "nohz_full=2-3 nohz_full=4", ["nohz_full=2-3: repeated as nohz_full=4"]),
    ("isolcpus=2-3 nohz_full=2-3 nosmt", "isolcpus=2 nosmt nohz_full=2-3",
     ["isolcpus=2-3: found isolcpus=2", "nohz_full=2-3: expected after isolcpus=2-3, found after nosmt"]),
]  # fmt: skip


@pytest.mark.parametrize(("promised", "line", "faults"), OTHER)
def test_each_differing_kernel_argument_is_reported(
    isolated: Context, promised: str, line: str, faults: list[str]
) -> None:
    check = found(booted(isolated, line), "kernel_arguments", kernel_arguments=promised)
    assert check.outcome == "not_met"
    assert check.expected == f"in this order: {promised}"
    assert check.found.split("; ") == faults


def test_a_missing_or_invalid_command_line_does_not_pass(isolated: Context) -> None:
    check = found(isolated.model_copy(update={"cmdline": None}), "kernel_arguments", kernel_arguments="nosmt")
    assert (check.outcome, check.failed) == ("unknown", True)
    endless = booted(isolated, " ".join(["nosmt"] * 3000))
    assert "3000 arguments" in found(endless, "kernel_arguments", kernel_arguments="nosmt").found


def test_the_kernel_release_is_compared(isolated: Context) -> None:
    release = isolated.capture.kernel_release
    assert release is not None
    assert found(isolated, "kernel_release", kernel_release=release).outcome == "met"
    assert found(isolated, "kernel_release", kernel_release=f"{release[:3]}*").outcome == "met"
    check = found(isolated, "kernel_release", kernel_release="6.1")
    assert (check.outcome, check.expected, check.found) == ("not_met", "6.1", release)


@pytest.mark.parametrize(("last", "outcome"), [("RELEASE", "met"), ("6.8.0-45-generic", "not_met")])
def test_any_release_of_csits_table_is_right(isolated: Context, last: str, outcome: str) -> None:
    release = str(isolated.capture.kernel_release)
    table = {
        "ubuntu": {"noble": {"x86_64": ["6.8.0-60-generic", "6.8.0-1016-aws"], "aarch64": ["6.8.0-60-generic"]}},
        "debian": {"bullseye": [last.replace("RELEASE", release)]},
    }
    check = found(isolated, "kernel_release", kernel_release=table)
    assert (check.outcome, check.found) == (outcome, release)
    assert check.expected == f"6.8.0-60-generic or 6.8.0-1016-aws or {last.replace('RELEASE', release)}"


# Isolation


def test_isolated_cpus_are_compared(isolated: Context) -> None:
    for promised in ("2-3,6-7", "2,3,6,7"):
        assert found(isolated, "isolated_cpus", isolated_cpus=promised).outcome == "met"
    check = found(isolated, "isolated_cpus", isolated_cpus="2-4,6")
    assert (check.outcome, check.severity, check.expected) == ("not_met", "blocking", "2-4,6")
    assert check.found == "2-3,6-7, 4 not isolated, 7 isolated unexpectedly"
    assert found(isolated, "isolated_cpus", isolated_cpus="none").outcome == "not_met"


def test_none_expects_no_isolated_cpus() -> None:
    plain = captured("x86_64-two-nodes-smt")
    assert found(plain, "isolated_cpus", isolated_cpus="none").outcome == "met"
    assert found(plain, "isolated_cpus", isolated_cpus="2").found == "none, 2 not isolated"
    silent = plain.model_copy(update={"isolation": plain.isolation.model_copy(update={"isolated_source": None})})
    assert found(silent, "isolated_cpus", isolated_cpus="2").outcome == "unknown"
    assert [
        check.name for check in evaluate(plain, Known(), read_expectations({})) if check.name == "isolation_kept"
    ] == []


def test_incomplete_isolation_is_reported(isolated: Context) -> None:
    assert found(isolated, "isolation_kept").outcome == "met"
    broken = isolated.model_copy(
        update={"isolation": isolated.isolation.model_copy(update={"nohz_full": (), "isolated": (2, 3)})}
    )
    check = found(broken, "isolation_kept")
    assert (check.outcome, check.severity) == ("not_met", "flag")
    assert check.expected == "isolated 2-3,6-7, nohz_full 2-3,6-7 in /sys/devices/system/cpu"
    assert check.found == "isolated 2-3, nohz_full none"


def test_isolation_known_from_the_command_line_only_is_undecided(isolated: Context) -> None:
    old = isolated.model_copy(
        update={"isolation": isolated.isolation.model_copy(update={"isolated_source": "command line"})}
    )
    check = found(old, "isolation_kept")
    assert (check.outcome, check.found) == ("unknown", "isolated unknown, nohz_full 2-3,6-7")


# Foreign load


def busy(context: Context, shares: dict[int, tuple[float, float]], *processes: BusyProcess) -> Context:
    cpus = tuple(CpuLoad(cpu=cpu, busy=one, stolen=two) for cpu, (one, two) in shares.items())
    return context.model_copy(update={"load": Load(interval_s=1.0, resolution=0.01, cpus=cpus, processes=processes)})


QUIET = dict.fromkeys(range(8), (0.01, 0.0))
LOOP = BusyProcess(pid=4711, name="stress", share=0.97, cpus=(2,))


def test_an_idle_machine_reports_its_busiest_cpu(isolated: Context) -> None:
    check = found(busy(isolated, {**QUIET, 5: (0.03, 0.0)}), "background_load")
    assert (check.outcome, check.found) == ("met", "over 1.0 s: CPU 5 3 %, used by no visible process")
    assert check.expected == "at most 5 % of each of CPUs 0-7 in use"


def test_a_busy_measured_cpu_is_reported(isolated: Context) -> None:
    check = found(busy(isolated, {**QUIET, 2: (0.97, 0.0)}, LOOP), "background_load")
    assert (check.outcome, check.severity) == ("not_met", "flag")
    assert check.found == "over 1.0 s: CPU 2 97 %, used by stress (process 4711)"
    assert (
        found(busy(isolated, {**QUIET, 2: (0.97, 0.0)}, LOOP), "background_load", background_load_max=0.98).outcome
        == "met"
    )


@pytest.mark.parametrize(("share", "limit", "outcome", "words"), [
    ((1.03, 0.0), 1.0, "met", ("at most 100 %", "CPU 2 100 %")),
    ((0.99, 0.02), 1.0, "met", ("at most 100 %", "CPU 2 100 %")),
    ((0.0503, 0.0), 0.05, "met", ("at most 5 %", "CPU 2 5 %")),
    ((0.054, 0.0), 0.05, "not_met", ("at most 5 %", "CPU 2 5.4 %")),
    ((0.0, 0.0), 0.005, "met", ("at most 0.5 %", "CPU 0 0 %")),
    ((0.011, 0.0), 0.0, "not_met", ("at most 0 %", "CPU 2 1.1 %")),
])  # fmt: skip
def test_load_is_compared_as_it_is_shown(
    isolated: Context, share: tuple[float, float], limit: float, outcome: str, words: tuple[str, str]
) -> None:
    idle = dict.fromkeys(range(8), (0.0, 0.0))
    check = found(busy(isolated, {**idle, 2: share}), "background_load", background_load_max=limit)
    assert (check.outcome, words[0] in check.expected) == (outcome, True)
    assert words[1] in check.found


def test_load_on_other_cpus_counts_only_on_a_shared_core(isolated: Context) -> None:
    step = make_plan(isolated, load_profile("quick")).steps[0].model_copy(update={"cpus": (3,)})
    plan = make_plan(isolated, load_profile("quick")).model_copy(update={"steps": (step,)})
    assert found(busy(isolated, {**QUIET, 5: (0.97, 0.0)}), "background_load", plan=plan).outcome == "met"
    assert isolated.siblings(3) == (2, 3)
    check = found(busy(isolated, {**QUIET, 2: (0.97, 0.0)}, LOOP), "background_load", plan=plan)
    assert check.outcome == "not_met"
    assert "CPU 2 (shares a core with a measured one) 97 %" in check.found


def test_stolen_time_is_load(isolated: Context) -> None:
    check = found(busy(isolated, {**QUIET, 1: (0.0, 0.5)}), "background_load")
    assert (check.outcome, check.found) == ("not_met", "over 1.0 s: CPU 1 50 %, 50 % of it stolen by the hypervisor")


def test_lists_of_busy_cpus_and_processes_are_bounded(isolated: Context) -> None:
    processes = tuple(BusyProcess(pid=pid, name="p", share=0.2, cpus=(0,)) for pid in range(5))
    cpus = dict.fromkeys(range(20), (0.9, 0.0))
    everywhere = busy(
        isolated.model_copy(update={"cpus": isolated.cpus.model_copy(update={"online": tuple(range(20))})}),
        cpus,
        *processes,
    )
    text = found(everywhere, "background_load").found
    assert text.endswith("and 12 more CPUs")
    assert "p (process 0), p (process 1), p (process 2) and 2 more" in text


def test_unknown_load_does_not_pass(isolated: Context) -> None:
    check = found(isolated, "background_load")
    assert (check.outcome, check.found) == ("unknown", "unknown: the capture has no snapshots")
    noted = (Unreadable(path="/load", reason="not watched: too slow"),)
    assert "too slow" in found(isolated.model_copy(update={"unreadable": noted}), "background_load").found


# Memory


def available(context: Context, **sizes_mib: int) -> Context:
    """Return *context* with so much memory available on each node, as node0=64."""
    nodes = tuple(
        node.model_copy(update={"available_bytes": sizes_mib.get(f"node{node.id}", 1 << 30) << 20})
        for node in context.nodes
    )
    memory = context.memory.model_copy(update={"available_bytes": 1 << 50})
    return context.model_copy(update={"nodes": nodes, "memory": memory})


def test_a_node_with_too_little_memory_is_reported_with_the_need(isolated: Context) -> None:
    def planned(**sizes_mib: int) -> tuple[Context, Plan]:
        context = available(isolated, **sizes_mib)
        return context, make_plan(context, load_profile("quick"))

    roomy, full = planned()
    assert short_of_memory(roomy, full.full_memory_bytes) == {}
    little, plan = planned(node1=100)
    assert plan.full_memory_bytes == full.full_memory_bytes
    short = short_of_memory(little, plan.full_memory_bytes)
    assert set(short) == {1}
    enough = -(-short[1] >> 20)
    roomy, plan = planned(node1=enough)
    assert (short_of_memory(roomy, plan.full_memory_bytes), plan.steps) == ({}, full.steps)
    assert short_of_memory(available(isolated, node1=enough - 1), plan.full_memory_bytes) == short
    _, plan = planned(node1=int(enough * 0.9))
    assert plan.steps != full.steps
    check = found(little, "free_memory", plan=make_plan(little, load_profile("quick")))
    assert (check.outcome, check.severity) == ("not_met", "flag")
    assert check.expected.startswith("at least ")
    assert check.expected.endswith("MiB available on node 1")
    assert "node 1 100 MiB of " in check.found


def test_the_inventory_may_require_more_memory(isolated: Context) -> None:
    machine = available(isolated, node0=512, node1=511)
    assert found(machine, "free_memory", node_free_bytes=511 << 20).outcome == "met"
    check = found(machine, "free_memory", node_free_bytes=512 << 20)
    assert check.outcome == "not_met"
    assert check.expected == "at least 512 MiB available on node 0, at least 512 MiB available on node 1"


def test_a_node_without_memory_passes_and_an_unknown_one_does_not() -> None:
    context = captured("x86_64-cpu-only-node")
    assert found(context, "free_memory", node_free_bytes=1 << 20).outcome == "met"
    nodes = tuple(node.model_copy(update={"available_bytes": None}) for node in context.nodes)
    check = found(context.model_copy(update={"nodes": nodes}), "free_memory")
    assert check.outcome == "unknown"
    assert "node 0 unknown of" in check.found


# Clock


def clocked(context: Context, current: str | None, *, guest: bool, lacking: str = "") -> Context:
    flagged = (*context.processor.flags, "constant_tsc", "nonstop_tsc")
    return context.model_copy(
        update={
            "clocksource": context.clocksource.model_copy(update={"current": current}),
            "virtualization": context.virtualization.model_copy(update={"guest": guest}),
            "processor": context.processor.model_copy(
                update={"flags": tuple(item for item in flagged if item != lacking)}
            ),
        }
    )


@pytest.mark.parametrize(("current", "guest", "lacking", "outcome"), [
    ("tsc", False, "", "met"),
    ("tsc", True, "", "met"),
    ("kvm-clock", True, "", "met"),
    ("kvm-clock", False, "", "not_met"),
    ("hpet", False, "", "not_met"),
    ("tsc", False, "nonstop_tsc", "not_met"),
    (None, False, "", "unknown"),
])  # fmt: skip
def test_the_clock_source_must_be_invariant(
    isolated: Context, current: str | None, *, guest: bool, lacking: str, outcome: str
) -> None:
    check = found(clocked(isolated, current, guest=guest, lacking=lacking), "clock_source")
    assert (check.outcome, check.severity) == (outcome, "flag")
    assert check.expected.startswith("tsc")
    assert ("without nonstop_tsc" in check.found) == (lacking == "nonstop_tsc")


def test_arm_must_use_its_architectural_clock() -> None:
    context = captured("aarch64-four-nodes")
    assert found(context, "clock_source").outcome == "met"
    other = context.model_copy(update={"clocksource": context.clocksource.model_copy(update={"current": "jiffies"})})
    assert found(other, "clock_source").outcome == "not_met"


# Agreement


def known(**suts: Identity) -> Known:
    return Known(testbed="t1", sut="sut1", identities=suts)


SAME_SUT = Identity(cpu_model="Xeon", microcode=("0x2b",), product="Server", bios="1.2")


@pytest.mark.parametrize(("name", "field", "value", "shown"), [
    ("microcode", "microcode", ("0x2c",), "0x2c"),
    ("bios", "bios", "1.3", "1.3"),
    ("cpu_model", "cpu_model", "Epyc", "Epyc"),
])  # fmt: skip
def test_differences_between_suts_of_a_testbed_are_reported(
    isolated: Context, name: str, field: str, value: Any, shown: str
) -> None:
    assert found(isolated, name, known(sut1=SAME_SUT, sut2=SAME_SUT)).outcome == "met"
    other = SAME_SUT.model_copy(update={field: value})
    check = found(isolated, name, known(sut1=SAME_SUT, sut2=other, sut3=SAME_SUT))
    assert (check.outcome, check.severity) == ("not_met", "flag")
    assert f"{shown} as on sut2" in check.expected
    assert f"{check.found} as on sut3" in check.expected
    silent = SAME_SUT.model_copy(update={field: () if field == "microcode" else None})
    if field != "cpu_model":
        assert found(isolated, name, known(sut1=SAME_SUT, sut2=silent)).outcome == "unknown"


def names_of(context: Context, before: Known) -> set[str]:
    return {check.name for check in evaluate(context, before, read_expectations({}))}


def test_only_comparable_suts_are_compared(isolated: Context) -> None:
    assert names_of(isolated, known(sut1=SAME_SUT)).isdisjoint(AGREED)
    other_kind = Identity(cpu_model="Epyc", microcode=("0xa1",), product="Generator", bios="7")
    assert names_of(isolated, known(sut1=SAME_SUT, tg1=other_kind)) & set(AGREED) == {"cpu_model"}
    left_out = other_kind.model_copy(update={"off": AGREED})
    assert names_of(isolated, known(sut1=SAME_SUT, tg1=left_out)).isdisjoint(AGREED)
    without = Identity(cpu_model="Neoverse", microcode=(), product=None, bios=None)
    assert names_of(isolated, known(sut1=without, sut2=without)) & set(AGREED) == {"cpu_model"}


def test_different_microcode_on_one_sut_is_reported(isolated: Context) -> None:
    mixed = SAME_SUT.model_copy(update={"microcode": ("0x2b", "0x2c")})
    check = found(isolated, "microcode", known(sut1=mixed))
    assert (check.outcome, check.expected, check.found) == ("not_met", "one microcode on all CPUs", "0x2b, 0x2c")


# What is asked of a SUT first

FACTS: dict[str, Any] = {
    "system": "Linux",
    "machine": "x86_64",
    "python_version": "3.11.2",
    "uid": 0,
    "remote_base": {"path": "/var/tmp", "exists": True, "directory": True, "writable": True, "noexec": False,
                    "free_bytes": 10**10, "unsafe": []},
    "running": [],
    "time": {"began_s": 1000.5, "ended_s": 1000.6, "synchronised": True, "maximum_error_s": 0.01, "reason": None},
    "identity": {"cpu_model": "Xeon", "microcode": ["0x2b"], "product": "Server", "bios": "1.2"},
    "changed": False,
}  # fmt: skip
WANTED = Requirements(python_minimum="3.8", architectures=("x86_64", "aarch64"), remote_free_bytes=1 << 24)
TRIP = RoundTrip(asked_s=1000.0, answered_s=1001.0)


def facts(**changes: Any) -> Facts:
    return read_facts({**FACTS, **changes})


def base(**changes: Any) -> dict[str, Any]:
    return {"remote_base": {**FACTS["remote_base"], **changes}}


def first(given: Facts, trip: RoundTrip = TRIP, **promised: Any) -> dict[str, Check]:
    return {check.name: check for check in first_checks(given, WANTED, read_expectations(promised), trip)}


def test_a_good_sut_passes_all_checks() -> None:
    checks = first(facts(), severity={"time_synchronised": "flag"})
    assert {check.outcome for check in checks.values()} == {"met"}
    assert refusal(checks.values()) is None
    assert list(flags(checks.values())) == []
    assert all(check.expected and check.found for check in checks.values())


@pytest.mark.parametrize(("changes", "name", "words"), [
    ({"python_version": "3.6.8"}, "python", "expected 3.8 or newer, found 3.6.8. Install one"),
    ({"system": "FreeBSD"}, "system", "expected Linux, found FreeBSD. Remove the SUT from"),
    ({"machine": "s390x"}, "architecture", "expected one of x86_64, aarch64, found s390x. sutprobe is not built"),
    (base(exists=False, directory=False, writable=False), "remote_base", "can write, found nothing. Set calib"),
    (base(directory=False), "remote_base", "can write, found not a directory."),
    (base(writable=False), "remote_base", "at /var/tmp that user id 0 can write, found not writable"),
    (base(noexec=True), "programs", "no noexec on the file system of /var/tmp, found mounted with noexec."),
    (base(free_bytes=1000), "space", "expected at least 16777216 bytes free at /var/tmp, found 1000."),
    (base(free_bytes=None), "space", "found unknown."),
    ({"running": [{"pid": 7, "path": "/var/tmp/calibration-x/sutprobe"}]}, "alone",
     "found /var/tmp/calibration-x/sutprobe as process 7. Two calibrations disturb each other"),
    (base(unsafe=[{"path": "/var", "reason": "writable by all"}]), "directory_safe",
     "can replace /var/tmp and its contents, found /var: writable by all"),
])  # fmt: skip
def test_an_unmet_requirement_blocks_the_sut(changes: dict[str, Any], name: str, words: str) -> None:
    checks = first(facts(**changes))
    assert checks[name].outcome == "not_met"
    reason = refusal(checks.values())
    assert reason is not None
    assert words in reason


def test_a_wrong_clock_is_found_for_any_round_trip() -> None:
    for offset, words in ((3600.0, "3600.000 s ahead of"), (-3600.0, "3600.000 s behind")):
        wrong = {**FACTS["time"], "began_s": 1000.5 + offset, "ended_s": 1000.5 + offset}
        check = first(facts(time=wrong))["time"]
        assert (check.outcome, check.severity) == ("not_met", "flag")
        assert check.found == f"{words} the controller's, ± 0.500 s"
        assert check.expected == "within 2 s of the controller's clock"
    assert first(facts(), time_offset_max_s=0)["time"].outcome == "met"


@pytest.mark.parametrize("offset", [-2.3e9, -86402.0, 86402.0, 2.3e9])
def test_a_clock_wrong_by_more_than_a_day_blocks_the_sut(offset: float) -> None:
    wrong = {**FACTS["time"], "began_s": 1000.5 + offset, "ended_s": 1000.5 + offset}
    reason = refusal(first(facts(time=wrong), time_offset_max_s=1e9).values())
    assert reason is not None
    assert "Date as on the controller: expected within a day of the controller's, found " in reason
    near = {**FACTS["time"], "began_s": 1000.5 + offset / abs(offset) * 86000, "ended_s": 1000.5}
    near["ended_s"] = near["began_s"]
    assert refusal(first(facts(time=near)).values()) is None


def test_a_slow_answer_is_not_a_wrong_clock() -> None:
    slow = RoundTrip(asked_s=980.0, answered_s=1010.0)
    assert first(facts(), slow)["time"].outcome == "met"
    late = {**FACTS["time"], "began_s": 1020.0, "ended_s": 1020.0}
    assert first(facts(time=late), slow)["time"].outcome == "not_met"
    set_meanwhile = {**FACTS["time"], "began_s": 1000.0, "ended_s": 1900.0}
    assert first(facts(time=set_meanwhile))["time"].outcome == "unknown"


@pytest.mark.parametrize(("synchronised", "reason", "outcome", "words"), [
    (True, None, "met", "synchronised, error at most 0.010 s"),
    (False, None, "not_met", "not synchronised"),
    (None, "adjtimex: Operation not permitted", "unknown", "adjtimex: Operation not permitted"),
])  # fmt: skip
def test_clock_synchronisation_is_checked_on_request(
    *, synchronised: bool | None, reason: str | None, outcome: str, words: str
) -> None:
    given = facts(time={**FACTS["time"], "synchronised": synchronised, "reason": reason})
    assert "time_synchronised" not in first(given)
    check = first(given, severity={"time_synchronised": "flag"})["time_synchronised"]
    assert (check.outcome, check.found) == (outcome, words)


def test_invalid_answer_is_an_environment_error() -> None:
    for answer in ({}, {**FACTS, "uid": "root"}, {**FACTS, "time": {}}):
        with pytest.raises(EnvironmentLacksError, match="invalid answer of the SUT"):
            read_facts(answer)


def test_texts_of_a_sut_are_bounded_to_one_line() -> None:
    hostile = facts(system="Li\nnux\x1b[31m", identity={**FACTS["identity"], "bios": "x" * 10000})
    assert hostile.system == "Li\\nnux\\x1b[31m"
    assert len(hostile.identity.bios or "") == 400
    long = booted(captured("x86_64-isolated"), " ".join(f"a{n}" for n in range(2000)))
    assert len(found(long, "kernel_arguments", kernel_arguments="a1").found) == 2000


# Declarations


def test_effects_can_be_set(isolated: Context) -> None:
    promised = {"kernel_arguments": "nosmt", "severity": {"kernel_arguments": "flag", "clock_source": "blocking"}}
    checks = evaluate(clocked(isolated, "hpet", guest=False), Known(), read_expectations(promised))
    severity = {check.name: check.severity for check in checks if check.failed}
    assert severity == {"kernel_arguments": "flag", "background_load": "flag", "clock_source": "blocking"}
    reason = refusal(checks)
    assert reason is not None
    assert reason.startswith("Invariant clock source: expected tsc, and the processor flags")
    assert reason.endswith("dmesg | grep -i clocksource.")
    raised = list(flags(checks))
    assert [(item.code, item.severity) for item in raised] == [("NOT_AS_EXPECTED", "warn")] * 2
    assert raised[0].reason == ("Kernel arguments: expected in this order: nosmt, found nosmt: missing")


def test_a_check_that_is_off_is_omitted(isolated: Context) -> None:
    # YAML reads a bare off as false
    every = {"severity": {name: False if name == "bios" else "off" for name in CHECKS}, "kernel_arguments": "nosmt"}
    assert evaluate(isolated, known(sut1=SAME_SUT, sut2=SAME_SUT), read_expectations(every)) == ()


@pytest.mark.parametrize(("given", "words"), [
    ({"severity": {"kernel": "flag"}}, "preflight_severity has no check 'kernel', only kernel_arguments, "),
    ({"severity": {"architecture": "off"}}, "preflight_severity has no check 'architecture'"),
    ({"severity": {"time": "warn"}}, "preflight_severity: time must be one of blocking, flag, off, not 'warn'"),
    ({"severity": ["time"]}, "preflight_severity must map checks to severities"),
    ({"isolated_cpus": "2-"}, "preflight_isolated_cpus: must be CPUs such as 2-7,10, or none: "),
    ({"isolated_cpus": [2]}, "preflight_isolated_cpus: must be CPUs such as 2-7,10, or none, not [2]"),
    ({"kernel_arguments": 3}, "preflight_kernel_arguments: must be a text, a list or a mapping"),
    ({"kernel_arguments": ["a", 3]}, "preflight_kernel_arguments: must be a text, a list or a mapping, not ['a', 3]"),
    ({"kernel_arguments": {"isolcpus": ["2-3"]}}, "not 'isolcpus' to ['2-3']"),
    ({"kernel_arguments": [{"quiet": {}}]}, "not 'quiet' to {}"),
    ({"kernel_arguments": {True: "1"}}, "not True to '1'"),
    ({"kernel_arguments": {"quiet": "a\x07"}}, "preflight_kernel_arguments: expected kernel arguments, not"),
    ({"kernel_release": "6\x07"}, "preflight_kernel_release: not a printable text"),
    ({"kernel_release": {"ubuntu": {"noble": {}}}}, "preflight_kernel_release: expected a value, or a list"),
    ({"kernel_release": {"ubuntu": {"noble": [6.8]}}}, "preflight_kernel_release: expected a text or a whole number"),
    ({"background_load_max": 5}, "preflight_background_load_max must be a number from 0 to 1, not 5"),
    ({"background_load_max": "much"}, "not 'much'"),
    ({"node_free_bytes": -1}, "preflight_node_free_bytes must be a number from 0 to 4.61169e+18, not -1"),
    ({"time_offset_max_s": float("nan")}, "preflight_time_offset_max_s must be a number from 0 to 1e+09, not nan"),
    ({"time_offset_max_s": True}, "not True"),
])  # fmt: skip
def test_invalid_expectations_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_expectations(given)
    assert words in str(refused.value)


def test_numbers_may_be_text() -> None:
    assert read_expectations({"background_load_max": "0.1", "isolated_cpus": 3}).background_load_max == 0.1


def test_results_survive_the_playbook() -> None:
    checks = tuple(first(facts()).values())
    before = Known(checks=checks, testbed="t1", sut="sut1", identities={"sut1": SAME_SUT})
    assert read_known(before.model_dump(mode="json")) == before
    with pytest.raises(InputError, match="invalid result of the role preflight"):
        read_known({"checks": [{"name": "x"}]})


@pytest.mark.parametrize(
    ("text", "numbers"), [("3.11.2rc1", (3, 11, 2)), ("2.19.0.dev0", (2, 19, 0)), ("3", (3,)), ("new", ())]
)
def test_versions_are_compared_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


def test_a_restored_stale_reservation_is_reported() -> None:
    stale = {"holder": {"run_id": "20260102T030405Z-0a1b"}, "why": "its runner was killed", "changes": [{}, {}]}
    told = taken_over_check(stale)
    assert told.found == "that of 20260102T030405Z-0a1b: its runner was killed; 2 settings restored"
    assert refusal([told]) is None
    assert not list(flags([told]))
    assert "\x1b" not in taken_over_check({"holder": {"run_id": "\x1b[2J"}, "why": None}).found
