# SPDX-License-Identifier: Apache-2.0
"""What a SUT takes away while it is measured: memory, CPUs, system calls and space on its disk."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from calibration.base.errors import VERDICT_FAILED
from calibration.context.model import Context
from calibration.measurements.jitter import JitterValues
from calibration.results.model import RunDocument
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed
from tests.testbed.test_faults import (
    FILL,
    LONG,
    STEPS,
    THREE,
    assert_nothing_is_left,
    measured,
    outcomes,
    reasons,
    undone,
)
from tests.testbed.test_restore import ROOT, RUNNER, now

Scenario = Callable[[str, str, str, str], None]

GROUP = "/sys/fs/cgroup$(cut -d: -f3 /proc/{process}/cgroup)"

HOG = "b = bytearray(64 << 20)"
"""Takes more memory than its group may have."""


@pytest.fixture
def sut(testbed: Testbed) -> Sut:
    return testbed.sut("small", "fault-1")


@pytest.fixture
def large(testbed: Testbed) -> Sut:
    return testbed.sut("two-nodes", "two-nodes-a")


def test_sutprobe_is_killed_first_when_its_cgroup_runs_out_of_memory(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    short = (
        f"g={GROUP.format(process='$p')}; echo $(($(cat $g/memory.current) + (16 << 20))) > $g/memory.max; "
        f"sh -c \"echo \\$\\$ > $g/cgroup.procs; exec python3 -c '{HOG}'\"; echo max > $g/memory.max"
    )
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LONG, short)
        ended = running.end()
    document = lab.document(sut)
    assert "idle_latency" in measured(document), ended.text
    assert outcomes(lab, sut)[1] == ("jitter", "killed")
    assert "killed by SIGKILL" in reasons(document)["jitter"]
    assert "out of memory: the kernel's OOM killer ended a process" in reasons(document)["jitter"]
    if "latency_matrix" in reasons(document):  # the limit may still hold when the next step begins
        assert "under the memory limit of control group" in reasons(document)["latency_matrix"]
    assert document.run.status == "incomplete"
    assert ended.rc == VERDICT_FAILED
    assert now(sut) == before
    scenario(
        "a cgroup runs out of memory",
        "another process of the login takes all that its group may have in the long step",
        "the steps before it; the SUT's settings as they were",
        "the step: SIGKILL, out of memory; the next one if the limit still holds; status incomplete",
    )


def test_a_run_whose_processes_have_no_memory_is_restored(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    short = (
        f"for r in $(pgrep -f '{RUNNER}'); do echo 0 > /proc/$r/oom_score_adj; done; "
        f"echo 1 > {GROUP.format(process='$p')}/memory.max"
    )
    with lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running:
        running.until_step(sut, LONG, short)
        ended = running.end()
    document = lab.document(sut)
    assert "idle_latency" in measured(document), ended.text
    assert "the runner on the SUT was killed" in reasons(document)["latency_matrix"]
    assert document.run.status == "incomplete"
    assert ended.rc == VERDICT_FAILED
    assert now(sut) == before
    scenario(
        "the run's processes run out of memory",
        "a memory limit of 0 for its group, its protection taken away",
        "the steps until then; the SUT's settings as they were",
        "the next step: the runner was killed; status incomplete",
    )


def filtered(sut: Sut, calls: str, action: str) -> AbstractContextManager[None]:
    """Have logins by SSH refused some system calls, until the block ends."""
    place = "/run/systemd/system/ssh.service.d"
    sut.read(
        f"mkdir -p {place}; printf '[Service]\\nSystemCallFilter=~{calls}\\n{action}\\n' > {place}/calls.conf; "
        "systemctl daemon-reload; systemctl restart ssh"
    )
    return undone(sut, f"rm -r {place}; systemctl daemon-reload; systemctl restart ssh")


CALLS = "perf_event_open mbind move_pages mlock mlock2 mlockall"
REFUSED = "SystemCallErrorNumber=EPERM"


@dataclass(frozen=True)
class Filter:
    """What logins by SSH may not call, what follows, and a row of the table."""

    calls: str
    action: str
    reason: str | None
    row: tuple[str, str, str]


FILTERS = (
    Filter(
        CALLS,
        REFUSED,
        None,
        ("seccomp refuses calls", "EPERM for counters, placement and locked memory", "every step"),
    ),
    Filter(
        f"{CALLS} sched_setaffinity",
        REFUSED,
        "pinning to CPU 0: Operation not permitted",
        ("seccomp refuses pinning", "EPERM for sched_setaffinity as well", "no figure"),
    ),
    Filter(
        "sched_setaffinity",
        "",
        "killed by SIGSYS",
        ("seccomp kills", "SIGSYS for sched_setaffinity", "no figure"),
    ),
)


@pytest.mark.parametrize("seccomp", FILTERS, ids=lambda item: item.row[0])
def test_a_login_that_may_not_call_the_kernel_is_measured_or_says_what_is_not_permitted(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario, seccomp: Filter
) -> None:
    before, reason = now(sut), seccomp.reason
    with filtered(sut, seccomp.calls, seccomp.action):
        ended = lab.calibrate(testbed.inventory({"suts": [sut]}))  # as root it would not run in the login's service
    document = lab.document(sut)
    assert measured(document) == ({"idle_latency"} if reason is None else set()), ended.text
    assert document.run.status == ("complete" if reason is None else "incomplete")
    assert all(reason is not None and reason in item for item in reasons(document).values()), reasons(document)
    assert ended.rc == VERDICT_FAILED, ended.text
    assert now(sut) == before
    scenario(*seccomp.row, f"each step: {reason}; status incomplete" if reason else "status complete")


def test_a_disk_that_fills_up_in_the_middle_costs_no_step(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    before = now(sut)
    fill = f"{FILL}; dd if=/dev/zero of=/var/tmp/filler-2 bs=4k"
    full = "df --output=avail -k /var/tmp | tail -1 | grep -qx ' *0'"
    with (
        undone(sut, "rm -f /var/tmp/filler /var/tmp/filler-2"),
        lab.calibrating(testbed.inventory({"suts": [sut]}, ROOT), profile=THREE) as running,
    ):
        running.until_step(sut, LONG, f"{fill}; {full}")
        ended = running.end()
        left = now(sut)
    document = lab.document(sut)
    assert measured(document) == set(STEPS), ended.text
    assert document.run.status == "complete"
    assert left == before
    assert_nothing_is_left(sut)
    scenario(
        "SUT's disk fills up",
        "no byte left from the long step on",
        "every step; the SUT's settings as they were",
        "status complete, and nothing was left on the full disk",
    )


def context_of(document: RunDocument) -> Context:
    """Return the context that was captured."""
    assert document.context is not None
    assert document.context.parsed is not None
    return document.context.parsed


def partition(kind: str, cpus: str) -> str:
    """Return the command that takes CPUs away from all logins, for a partition of their own."""
    return (
        "cd /sys/fs/cgroup; echo +cpuset > cgroup.subtree_control; mkdir -p taken; "
        f"echo {cpus} > taken/cpuset.cpus; echo {kind} > taken/cpuset.cpus.partition; "
        f"grep -qx {kind} taken/cpuset.cpus.partition"
    )


DISSOLVED = "cd /sys/fs/cgroup; echo member > taken/cpuset.cpus.partition; rmdir taken"


def test_cpus_that_a_partition_has_are_named_and_not_measured(
    testbed: Testbed, lab: Lab, large: Sut, scenario: Scenario
) -> None:
    large.read(partition("isolated", "2-3"))
    with undone(large, DISSOLVED):
        ended = lab.calibrate(testbed.inventory({"suts": [large]}))
    document = lab.document(large)
    assert document.run.status == "complete", ended.text
    (hidden,) = (flag.reason for flag in document.flags if flag.code == "CPUS_HIDDEN")
    assert "2 of 4 CPUs online (2-3)" in hidden
    assert context_of(document).isolated_cpus == (2, 3)  # which only the group's files say before Linux 6.7
    assert "a cpuset partition has them" in {item.what: item.reason for item in document.not_measured}["CPUs 2-3"]
    scenario("a cpuset partition has CPUs", "an isolated partition beside the logins", "the CPUs left", "CPUS_HIDDEN")


@pytest.mark.parametrize("become", [False, True], ids=["login", "root"])
def test_a_login_in_a_partition_measures_its_cpus(
    testbed: Testbed, lab: Lab, large: Sut, scenario: Scenario, become: bool
) -> None:
    session = GROUP.format(process="self")
    enter = f"for p in $(cat {session}/cgroup.procs); do echo $p > taken/cgroup.procs; done"
    large.read(partition("isolated", "2-3"))
    rc = f"sudo sh -c 'cd /sys/fs/cgroup; {enter}'\n"
    home = large.user_ssh("mkdir -p .ssh; cat > .ssh/rc; pwd", text=rc).stdout.strip()
    left = "for p in $(cat taken/cgroup.procs); do echo $p > cgroup.procs || true; done"
    with undone(large, f"rm {home}/.ssh/rc; cd /sys/fs/cgroup; {left}; {DISSOLVED}"):
        ended = lab.calibrate(testbed.inventory({"suts": [large]}, {"ansible_become": become}), profile=THREE)
    document = lab.document(large)
    context = context_of(document)
    assert context.isolated_cpus == (2, 3)
    assert context.usable_cpus == {2, 3}
    assert measured(document) == set(STEPS), ended.text
    (jitter,) = (item.values for item in document.measurements if isinstance(item.values, JitterValues))
    assert (jitter.cpu, jitter.isolated) == (2, True)
    scenario(
        f"a login{' that becomes root' * become} in a cpuset partition",
        "an isolated partition of two CPUs, in which sessions begin",
        "every step, on the partition's CPUs",
        "the CPUs are isolated",
    )


def test_a_partition_that_takes_the_measured_cpu_leaves_no_figure(
    testbed: Testbed, lab: Lab, large: Sut, scenario: Scenario
) -> None:
    taken = "cpu=$(tr '\\0' '\\n' < /proc/$p/cmdline | grep -A1 -x -e --cpus | tail -1); echo $cpu > /run/taken; "
    with (
        undone(large, f"{DISSOLVED}; rm /run/taken"),
        lab.calibrating(testbed.inventory({"suts": [large]}), profile=THREE) as running,
    ):
        running.until_step(large, LONG, taken + partition("root", "$cpu"))
        ended = running.end()
        cpu = large.read("cat /run/taken").strip()
    document = lab.document(large)
    assert f"the thread of CPU {cpu} was moved to another CPU during the measurement" in reasons(document)["jitter"]
    assert "idle_latency" in measured(document), ended.text
    assert document.run.status == "incomplete"
    assert ended.rc == VERDICT_FAILED
    assert_nothing_is_left(large)
    scenario(
        "a cpuset partition takes the measured CPU",
        "a root partition of that CPU, made in the long step",
        "the steps before it",
        "the step: its thread was found elsewhere; status incomplete",
    )


BLOCKS = "/sys/devices/system/memory"


def test_memory_freed_within_a_step_is_not_counted(testbed: Testbed, lab: Lab, large: Sut, scenario: Scenario) -> None:
    before = large.read("grep MemTotal /proc/meminfo")
    known = large.read(f"ls {BLOCKS}").split()
    large.qmp("object-add", **{"qom-type": "memory-backend-ram", "id": "more", "size": 256 << 20})
    large.qmp("device_add", driver="pc-dimm", id="dimm", memdev="more", node=1)
    large.read(f"until ls {BLOCKS} | grep -vxq -e {' -e '.join(known)}; do sleep 1; done")
    plugged = sorted(set(large.read(f"ls {BLOCKS}").split()) - set(known))
    states = " ".join(f"{BLOCKS}/{block}/state" for block in plugged)
    each = f"for state in {states}; do echo %s > $state; done; "
    comes_and_goes = each % "online_movable" + "grep MemTotal /proc/meminfo > /run/more; " + each % "offline"
    with (
        undone(large, "rm -f /run/more"),
        lab.calibrating(testbed.inventory({"suts": [large]}), profile=THREE) as running,
    ):
        running.until_step(large, LONG, comes_and_goes)
        more = large.read("cat /run/more")
        ended = running.end()
    large.qmp("device_del", id="dimm")
    large.read(f"while [ -d {BLOCKS}/{plugged[0]} ]; do sleep 1; done")
    large.qmp("object-del", id="more")
    assert more != before
    document = lab.document(large)
    assert measured(document) == set(STEPS), ended.text
    assert document.run.status == "complete"
    assert large.read("grep MemTotal /proc/meminfo") == before
    assert_nothing_is_left(large)
    scenario(
        "memory comes and goes",
        "256 MiB of node 1 brought online and taken offline in the long step",
        "every step",
        "status complete",
    )
