# SPDX-License-Identifier: Apache-2.0
"""Published states are met by guests that are configured so, and not where one setting is changed."""

import base64
from collections.abc import Callable

import pytest

from calibration.audit.findings import Finding
from calibration.audit.kinds import evaluate_items
from calibration.audit.states import read_state
from calibration.runner.bundle import packed, sources
from tests.captures import machine_of
from tests.testbed.guest import Sut
from tests.testbed.support import Testbed

Scenario = Callable[[str, str, str, str], None]

LATENCY = """
sysctl -qw vm.swappiness=10 vm.dirty_ratio=10 vm.dirty_background_ratio=3 vm.stat_interval=10
sysctl -qw net.ipv4.tcp_fastopen=3 kernel.hung_task_timeout_secs=600
sysctl -qew kernel.numa_balancing=0 net.core.busy_read=50 net.core.busy_poll=50
test ! -e /sys/kernel/mm/transparent_hugepage/enabled || echo never > /sys/kernel/mm/transparent_hugepage/enabled
for file in /sys/devices/system/machinecheck/machinecheck*/ignore_ce; do test ! -e $file || echo 1 > $file; done
"""
"""What tuned writes for its profile network-latency; guests have no hardware for the watchdog, which is off."""


def off_cpus(mask: str) -> str:
    """Return what keeps unbound work to the CPUs of *mask*."""
    return f"""
cd /sys/devices/virtual/workqueue
for file in cpumask */cpumask; do echo {mask} > $file; done
"""


CONFIGURED = {
    "tuned-realtime": f"""{LATENCY}{off_cpus("5")}
sysctl -qw kernel.sched_rt_runtime_us=-1 kernel.timer_migration=0
echo 5 > /proc/irq/default_smp_affinity
""",
    "tuned-cpu-partitioning": f"""{LATENCY}{off_cpus("5")}
sysctl -qw kernel.timer_migration=0
echo 5 > /proc/irq/default_smp_affinity
echo 2 > /sys/kernel/mm/ksm/run
""",
    "ran-du": f"""{LATENCY}{off_cpus("33")}
sysctl -qw kernel.sched_rt_runtime_us=-1 kernel.timer_migration=1
echo 1 > /sys/kernel/rcu_normal
""",
}
"""Shapes, and what is written after their boot."""

STATES = {
    "tuned-realtime": "tuned_realtime",
    "tuned-cpu-partitioning": "tuned_cpu_partitioning",
    "ran-du": "ran_du_x86",
}

CHANGED = {
    "sysctl": ("sysctl -qw vm.stat_interval=1", "sysctl -qw vm.stat_interval=10", "sysctl.vm.stat_interval"),
    "sysfs": (
        "echo f > /sys/devices/virtual/workqueue/writeback/cpumask",
        "cat /sys/devices/virtual/workqueue/cpumask > /sys/devices/virtual/workqueue/writeback/cpumask",
        "sysfs./sys/devices/virtual/workqueue/*/cpumask",
    ),
    "transparent huge pages": (
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
        "transparent_hugepages",
    ),
}
"""What is changed while a guest runs: how, how back, and the setting that is then not met."""

BOOTED = {
    ("tuned-cpu-partitioning", "tuned_realtime"): {
        *("isolated_cpus", "kernel_argument_values.isolcpus", "interrupts.default_affinity"),
        *("sysctl.kernel.sched_rt_runtime_us", "sysfs./sys/devices/virtual/workqueue/cpumask"),
        "sysfs./sys/devices/virtual/workqueue/*/cpumask",
    },
    ("tuned-realtime", "tuned_cpu_partitioning"): {
        *("nohz_full", "kernel_argument_values.nohz", "kernel_argument_values.tuned.non_isolcpus"),
        *("interrupts.default_affinity", "sysfs./sys/devices/virtual/workqueue/cpumask"),
        "sysfs./sys/devices/virtual/workqueue/*/cpumask",
        "sysfs./sys/module/kvm/parameters/kvmclock_periodic_sync",
    },
}
"""What guests do not have of each other's states: none is isolated, or in ``nohz_full``."""


def findings(sut: Sut, state: str) -> dict[str, Finding]:
    """Return what the runner's capture of *sut* has of a state."""
    runner = base64.b64encode(packed(sources())).decode()
    done = sut.ssh("base64 -d > /run/runner && python3 -I /run/runner capture /run/c.gz >&2", text=runner)
    assert done.returncode == 0, done.stderr
    machine = machine_of(base64.b64decode(sut.read("base64 /run/c.gz")))
    return {finding.name: finding for finding in evaluate_items(read_state(state).items, machine)}


def wrong(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.outcome not in ("met", "impossible")}


@pytest.mark.parametrize("shape", CONFIGURED)
def test_a_guest_that_is_configured_so_meets_the_state(shape: str, testbed: Testbed, scenario: Scenario) -> None:
    sut = testbed.sut(shape)
    sut.read("set -e" + CONFIGURED[shape])
    found = findings(sut, STATES[shape])
    assert not wrong(found), [found[name] for name in wrong(found)]
    assert sum(finding.outcome == "met" for finding in found.values()) > len(found) * 3 / 4
    for change, back, name in CHANGED.values():
        if found[name].outcome == "impossible":  # a real-time kernel has no transparent huge pages
            continue
        sut.read(change)
        assert wrong(findings(sut, STATES[shape])) == {name}
        sut.read(back)
    for (other, state), names in BOOTED.items():
        if other == shape:
            assert wrong(findings(sut, state)) == names
    testbed.stop(sut)
    scenario(
        f"published state {STATES[shape]}",
        f"{', '.join(CHANGED)}; one at a time",
        "all other settings met",
        "the setting, with expected and found",
    )
