# SPDX-License-Identifier: Apache-2.0
"""CPUs that cpusets isolate: by partitions of control groups, listed or not, and without balancing in version 1."""

import base64

import pytest

from calibration.audit.cpu_sets import check_cpus
from calibration.context.facts import facts
from calibration.context.loader import load
from calibration.measurements.sut import none_isolated
from calibration.profiles import load_profile, parse_profile
from calibration.report.machine import machine
from calibration.run.plan import make_plan
from calibration.runner import capture, cpusets

TOP = "/sys/fs/cgroup"
UNIFIED = f"31 25 0:27 / {TOP} rw,nosuid - cgroup2 cgroup rw\n"
BASE = {
    "/sys/devices/system/cpu/online": "0-7\n",
    "/sys/devices/system/cpu/isolated": "\n",
    "/proc/cmdline": "quiet\n",
    "/proc/self/mountinfo": UNIFIED,
    "/proc/self/cgroup": "0::/user.slice\n",
    "/proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t0,3-7\n",
    "/proc/9/task/9/status": "Name:\tmover\nVmSize:\t9 kB\nCpus_allowed_list:\t0-7\n",
}
OUTSIDE = {f"{TOP}/cpuset.cpus.effective": "0,3-7\n", f"{TOP}/user.slice/cpuset.cpus.effective": "0,3-7\n"}
LISTED = {**OUTSIDE, f"{TOP}/cpuset.cpus.isolated": "1-2\n"}
"""As Linux 6.7 and later lists them; the login is outside of the partition."""

INSIDE = {
    f"{TOP}/cpuset.cpus.effective": "0,3-7\n",
    f"{TOP}/a/cpuset.cpus.effective": "1-2\n",
    f"{TOP}/a/cpuset.cpus.partition": "isolated\n",
    "/proc/self/cgroup": "0::/a\n",
    "/proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t1-2\n",
}


def group(path, kind, cpus):
    return {f"{TOP}/{path}/cpuset.cpus.partition": f"{kind}\n", f"{TOP}/{path}/cpuset.cpus.effective": f"{cpus}\n"}


@pytest.fixture
def both(make_root):
    """Return the context of a root, read live, which must be that of its capture."""

    def read(files):
        root = make_root({**BASE, **files})
        live = load(root)
        archive = base64.b64decode(capture.capture(str(root), sleep=lambda _: None)["archive"])
        captured = load(root, archive)
        assert captured.isolation == live.isolation
        assert capture.isolated_cpus(capture.FileCapture(str(root))) == set(live.isolated_cpus)
        return live

    return read


@pytest.mark.parametrize(
    ("files", "isolated", "unknown"),
    [
        (LISTED, (1, 2), ()),
        ({f"{TOP}/cpuset.cpus.isolated": "\n", f"{TOP}/cpuset.cpus.effective": "0,3-7\n"}, (), ()),  # a root partition
        ({**LISTED, "/sys/devices/system/cpu/isolated": "2,5\n"}, (1, 2, 5), ()),
        (OUTSIDE, (), (1, 2)),  # Linux 6.1 without the groups, as in older captures
        ({**OUTSIDE, **group("a", "isolated", "1-2"), **group("b", "member", "0,3-7")}, (1, 2), ()),
        ({**OUTSIDE, **group("a", "root", "1-2")}, (), ()),
        ({**OUTSIDE, **group("a", "isolated invalid (Cpu list in cpuset.cpus not exclusive)", "1-2")}, (), (1, 2)),
        ({**OUTSIDE, **group("a", "root", "1"), **group("a/b", "isolated", "2")}, (2,), ()),
        ({**OUTSIDE, **group("a", "member", "0"), **group("a/b", "isolated", "1-2")}, (), (1, 2)),  # cannot be
        ({f"{TOP}/cpuset.cpus.effective": "0-7\n", **group("a", "isolated", "1-2")}, (), ()),  # being made
        (INSIDE, (1, 2), ()),
        (
            {"/proc/self/mountinfo": UNIFIED.replace(" / ", " /pod "), f"{TOP}/cpuset.cpus.effective": "0,3-7\n"},
            (),
            (1, 2),
        ),
        (
            {**group("", "isolated", "1-2"), "/proc/self/cgroup": "0::/\n"},  # a container in a partition
            (1, 2),
            (0, 3, 4, 5, 6, 7),
        ),
    ],
)
def test_partitions(both, files, isolated, unknown):
    context = both(files)
    assert (context.isolated_cpus, context.isolation.cpuset_unknown) == (isolated, unknown)
    assert (context.isolation.threads is not None) == bool(isolated)


V1 = "/sys/fs/cgroup/cpuset"


def balanced(path, state, cpus):
    return {f"{V1}{path}/cpuset.sched_load_balance": f"{state}\n", f"{V1}{path}/cpuset.effective_cpus": f"{cpus}\n"}


@pytest.mark.parametrize(("files", "isolated"), [
    (balanced("", 1, "0-7") | balanced("/vpp", 0, "1-2"), ()),  # the top is balanced, and has all CPUs
    (balanced("", 0, "0-7") | balanced("/system", 1, "0,3-7") | balanced("/vpp", 0, "1-2"), (1, 2)),
    (balanced("", 0, "0-7") | balanced("/a", 0, "0-5") | balanced("/a/b", 1, "0-3"), (4, 5, 6, 7)),
    (balanced("", 0, "3-4") | balanced("/vpp", 0, "3"), ()),  # of a container
])  # fmt: skip
def test_no_balancing_in_version_1(both, files, isolated):
    mounts = f"30 25 0:26 / {V1} rw - cgroup cgroup rw,cpuset\n"
    login = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": "3:cpuset:/\n"}
    context = both({**login, **files, "/proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t0-7\n"})
    assert context.isolated_cpus == isolated
    assert context.usable_cpus >= set(isolated)


def test_few_groups_are_looked_at(both, monkeypatch):
    looked = []
    monkeypatch.setattr(cpusets, "MAX_GROUPS", 50)
    copy = capture.FileCapture.copy
    monkeypatch.setattr(
        capture.FileCapture, "copy", lambda self, path, *most: looked.append(path) or copy(self, path, *most)
    )
    many = {f"{TOP}/pods/pod{number}/cpuset.cpus.partition": "member\n" for number in range(200)}
    whole = {f"{TOP}/cpuset.cpus.effective": "0-7\n", f"{TOP}/user.slice/cpuset.cpus.effective": "0-7\n"}
    assert both({**whole, **many}).isolated_cpus == ()
    assert not any(path.startswith(f"{TOP}/pods") for path in looked)
    assert both({**OUTSIDE, **many, **group("z", "isolated", "1-2")}).isolated_cpus == (1, 2)
    assert not any(path.startswith(f"{TOP}/pods/pod") for path in looked)
    beside = {f"{TOP}/x{number}/cpuset.cpus.partition": "member\n" for number in range(200)}
    assert both({**OUTSIDE, **beside, **group("z", "isolated", "1-2")}).isolation.cpuset_unknown == (1, 2)
    assert 0 < sum(path.startswith(f"{TOP}/x") for path in set(looked)) <= 50


def test_a_login_in_a_partition_measures_its_cpus_as_isolated(both):
    context = both({**LISTED, **INSIDE})
    assert context.usable_cpus == {1, 2}
    plan = make_plan(context, load_profile("nightly"))
    steps = {step.kind: step for step in plan.steps}
    assert steps["jitter"].cpus == steps["wakeup"].cpus == (1, 2)
    assert not any("isolated" in item.what for item in plan.not_planned)
    assert {item.what: item.reason for item in plan.not_planned}["Wake-up latency under the load memory"] == (
        "no CPU is left to load"
    )


@pytest.mark.parametrize(("files", "inside"), [
    (INSIDE, True),
    ({**INSIDE, "/proc/self/cgroup": "0::/a/b\n"}, True),
    ({**INSIDE, f"{TOP}/a/cpuset.cpus.partition": "isolated invalid (Parent is not a partition root)\n"}, False),
    ({**INSIDE, f"{TOP}/a/cpuset.cpus.partition": "root\n"}, False),
    (LISTED, False),
])  # fmt: skip
def test_a_run_begun_in_a_partition_stays_in_it(make_root, files, inside):
    assert capture.in_partition(capture.FileCapture(str(make_root({**BASE, **files})))) == inside


@pytest.mark.parametrize("kind", ["jitter", "wakeup"])
def test_real_time_threads_in_a_partition_leave_one_cpu(both, kind):
    profile = parse_profile(f"title: x\nmeasurements: {{{kind}: {{fifo: 1}}}}", "x", "test")
    plan = make_plan(both({**LISTED, **INSIDE}), profile)
    assert {step.cpus for step in plan.steps} == {(2,)}
    assert any("CPU 1" in item.what and "real-time" in item.reason for item in plan.not_planned)


def test_loads_of_a_login_in_a_partition_run_on_its_other_cpus(both):
    profile = parse_profile("title: x\nmeasurements: {wakeup: {isolated: 1, loads: [housekeeping]}}", "x", "test")
    (step,) = make_plan(both({**LISTED, **INSIDE}), profile).steps
    assert step.argv[step.argv.index("--housekeeping-cpus") + 1] == "2"


def test_a_login_outside_of_a_partition_is_told_so(both):
    context = both(LISTED)
    assert context.usable_cpus == {0, 3, 4, 5, 6, 7}
    # Nothing but boot leaves CPUs out of the affinity that are in the cpuset.
    assert both({f"{TOP}/cpuset.cpus.isolated": "1-2\n"}).usable_cpus == {0, 3, 4, 5, 6, 7}
    omitted = {item.what: item.reason for item in make_plan(context, load_profile("nightly")).not_planned}
    assert omitted["CPUs 1-2"].startswith(f"not in the login's cpuset ({TOP}/user.slice): a cpuset partition has them")
    for what in ("Jitter of an isolated CPU", "Wake-up latency of isolated CPUs"):
        assert omitted[what].startswith("the login may not use the isolated CPUs 1-2: a cpuset partition has them")
    unseen = {item.what: item.reason for item in make_plan(both(OUTSIDE), load_profile("nightly")).not_planned}
    assert "(CPUs 1-2 may be)" in unseen["Jitter of an isolated CPU"]


def test_isolated_cpus_that_are_offline_are_said_to_be_so(make_root):
    cpu = "/sys/devices/system/cpu"
    sets = {"possible": "0-7", "present": "0-7", "online": "0-3", "offline": "4-7", "isolated": "4-7"}
    context = load(make_root({f"{cpu}/{name}": f"{text}\n" for name, text in sets.items()}))
    assert none_isolated(context) == "the isolated CPUs 4-7 are offline"


def test_isolated_by_partitions_on_every_surface(both):
    context = both(
        {**LISTED, "/proc/interrupts": "CPU0 CPU1\n 5: 1 1 IO eth0\n", "/proc/irq/5/smp_affinity_list": "1\n"}
    )
    assert facts(context, None)["isolated CPUs"] == "1-2 (tickless: none)"
    shown = {fact.name: fact.value for fact in machine(context, None)}
    assert shown["Isolated CPUs (cpusets)"] == "1-2"
    assert shown["Interrupts that may reach isolated CPUs"] == "1"
    assert shown["Threads that may run on isolated CPUs"] == "1, 1 of them movable"
    assert check_cpus(context, "isolated_cpus", "1-2").outcome == "met"


def test_cpus_isolated_at_boot_that_linux_lists_again_are_in_no_partition(both):
    """Linux 6.12 and 7.3 have them in cpuset.cpus.isolated."""
    context = both({"/sys/devices/system/cpu/isolated": "1\n", f"{TOP}/cpuset.cpus.isolated": "1\n"})
    assert (context.isolated_cpus, context.isolation.cpuset_isolated) == ((1,), ())
    assert "Isolated CPUs (cpusets)" not in {fact.name for fact in machine(context, None)}


def test_partitions_that_cannot_be_seen_are_said(both):
    context = both(OUTSIDE)
    shown = {fact.name: fact.value for fact in machine(context, None)}
    assert shown["Isolated CPUs (cpusets)"] == "unknown for CPUs 1-2: their control groups cannot be seen"
    assert check_cpus(context, "isolated_cpus", "1-2").outcome == "unknown"
    none = check_cpus(context, "isolated_cpus", "none")
    assert (none.outcome, none.found) == ("unknown", "none, 1-2 unknown: their control groups cannot be seen")
    assert check_cpus(context, "isolated_cpus", "1-3").outcome == "not_met"


def test_kernel_threads_and_interrupts_of_tickless_cpus_that_are_not_isolated(both):
    def thread(tid, name, cpus, kernel):
        return {f"/proc/{tid}/task/{tid}/status": f"Name:\t{name}\nKthread:\t{kernel}\nCpus_allowed_list:\t{cpus}\n"}

    files = {
        "/sys/devices/system/cpu/nohz_full": "5-7\n",
        "/sys/devices/system/cpu/isolated": "7\n",
        "/proc/interrupts": "CPU0 CPU1\n 5: 1 1 IO eth0\n 6: 1 1 IO eth1\n",
        "/proc/irq/5/smp_affinity_list": "0-6\n",
        "/proc/irq/6/smp_affinity_list": "7\n",
        **thread(20, "kcompactd0", "0-6", 1),
        **thread(21, "ksoftirqd/6", "6", 1),
        **thread(22, "nginx", "0-6", 0),
        **thread(23, "ksoftirqd/7", "7", 1),
    }
    context = both(files)
    isolation = context.isolation
    assert [interrupt.irq for interrupt in isolation.tickless_interrupts] == [5]
    assert isolation.tickless_interrupts[0].isolated_cpus == (5, 6)
    assert [item.name for item in isolation.tickless_threads] == ["kcompactd0", "ksoftirqd/6"]
    assert [interrupt.irq for interrupt in isolation.interrupts] == [6]
    shown = {fact.name: fact.value for fact in machine(context, None)}
    assert shown["Interrupts that may reach tickless CPUs"] == "1"
    assert shown["Movable kernel threads that may run on tickless CPUs"] == "1"
    alone = both({**files, "/sys/devices/system/cpu/isolated": "\n"})
    assert len(alone.isolation.tickless_threads) == 3
    assert alone.isolation.threads is None
    isolated = both({**files, "/sys/devices/system/cpu/isolated": "5-7\n"}).isolation
    assert isolated.tickless_interrupts is None
    assert isolated.tickless_threads is None


def test_linux_own_list_of_housekeeping_cpus_isolates_nothing(both):
    context = both({"/sys/devices/system/cpu/nohz_full": "6-7\n", "/sys/devices/system/cpu/housekeeping": "0-5\n"})
    assert context.isolation.housekeeping == (0, 1, 2, 3, 4, 5)
    assert context.isolated_cpus == ()
    shown = {fact.name: fact.value for fact in machine(context, None)}
    assert shown["Housekeeping CPUs (outside nohz_full)"] == "0-5"
    assert both({"/sys/devices/system/cpu/housekeeping": "\n"}).isolation.housekeeping == ()
    assert both({}).isolation.housekeeping is None
