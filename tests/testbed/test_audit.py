# SPDX-License-Identifier: Apache-2.0
"""Every kind of setting is changed on a running SUT, or booted otherwise, and the audit finds that and nothing else."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from calibration.audit.kinds import KINDS, evaluate_items, read_items
from calibration.audit.learn import learned
from calibration.base.errors import VERDICT_FAILED
from calibration.runner.bundle import packed, sources
from tests.captures import machine_of
from tests.command import calibration
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

Scenario = Callable[[str, str, str, str], None]

CPU = "/sys/devices/system/cpu"
NIC = "0000:81:00.0"
INTERVAL = f"{CPU}/cpu*/cache/index0/size"
ASKED = ("/proc/sys/vm/max_map_count", "/proc/sys/net/ipv4/conf/*/rp_filter", INTERVAL)

# What emulation has not: frequency scaling, and idle states. The kernel's files are laid over by others, as in
# test_devices.py; what is changed afterwards are these files.
LAID_OVER = f"""set -e
mount -t tmpfs none {CPU}/cpufreq
echo 1 > {CPU}/cpufreq/boost
for cpu in 0 1 2 3; do
    policy={CPU}/cpufreq/policy$cpu
    mkdir $policy
    echo $cpu > $policy/affected_cpus
    echo acpi-cpufreq > $policy/scaling_driver
    echo performance > $policy/scaling_governor
    mkdir -p /run/laid/cpu$cpu
    cp -r {CPU}/cpu$cpu/. /run/laid/cpu$cpu 2> /dev/null || true
    number=0
    for name in POLL C1 C6; do
        state=/run/laid/cpu$cpu/cpuidle/state$number
        mkdir -p $state
        echo $name > $state/name
        echo 0 > $state/disable
        number=$((number + 1))
    done
    echo 1 > /run/laid/cpu$cpu/cpuidle/state2/disable
    mount --bind /run/laid/cpu$cpu {CPU}/cpu$cpu
done
"""
"""Shell commands before anything is learned."""

BUSY = "$(sed -n 's/^ *\\([0-9]*\\):.*virtio1-input.0$/\\1/p' /proc/interrupts)"
"""The interrupt of the network device that the login comes through: it moves when the next one arrives."""

RUNNING: dict[str, tuple[str, str, set[str]]] = {
    "sysctl": ("sysctl -qw vm.swappiness=7", "sysctl -qw vm.swappiness=60", {"sysctl.vm.swappiness"}),
    "sysctl that was asked for": (
        "sysctl -qw vm.max_map_count=9999",
        "sysctl -qw vm.max_map_count=65530",
        {"sysctl.vm.max_map_count"},
    ),
    "sysfs": (
        "echo 1 > /sys/kernel/mm/ksm/run",
        "echo 0 > /sys/kernel/mm/ksm/run",
        {"sysfs./sys/kernel/mm/ksm/run"},
    ),
    "transparent huge pages": (
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled",
        {"transparent_hugepages"},
    ),
    "huge pages": (
        "echo 6 > /proc/sys/vm/nr_hugepages",
        "echo 4 > /proc/sys/vm/nr_hugepages",
        {"huge_pages.2M"},
    ),
    "clock source": (
        "echo acpi_pm > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        "echo {clocksource} > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        {"clocksource"},
    ),
    "an interrupt on an isolated CPU": (
        f"echo 3 > /proc/irq/{BUSY}/smp_affinity_list",
        f"echo 0 > /proc/irq/{BUSY}/smp_affinity_list",
        {"interrupts.on_isolated_cpus"},
    ),
    "default affinity": (
        "echo 3 > /proc/irq/default_smp_affinity",
        "echo {affinity} > /proc/irq/default_smp_affinity",
        {"interrupts.default_affinity"},
    ),
    "governor": (
        f"echo powersave > {CPU}/cpufreq/policy2/scaling_governor",
        f"echo performance > {CPU}/cpufreq/policy2/scaling_governor",
        {"governor"},
    ),
    "turbo": (
        f"echo 0 > {CPU}/cpufreq/boost",
        f"echo 1 > {CPU}/cpufreq/boost",
        {"turbo", f"sysfs.{CPU}/cpufreq/boost"},
    ),
    "idle states": (
        f"echo 0 > {CPU}/cpu1/cpuidle/state2/disable",
        f"echo 1 > {CPU}/cpu1/cpuidle/state2/disable",
        {"deepest_idle_state"},
    ),
}
"""What is changed while a SUT runs: how, how back, and the settings that are then not met."""

BOOTED = {
    "kernel_arguments",
    "isolated_cpus",
    "nohz_full",
    "rcu_nocbs",
    "mitigations.spectre_v2",
    "firmware.bios_version",
    "firmware.microcode",
    "memory.mt_s",
    f"nics.{NIC} node",
}
"""Settings that differ on the SUT that was built and booted otherwise."""


def captured(sut: Sut) -> bytes:
    """Return what the runner captures on *sut*, with the files that are asked for."""
    runner = base64.b64encode(packed(sources())).decode()
    words = " ".join(f"'{pattern}'" for pattern in ASKED)
    done = sut.ssh(f"base64 -d > /run/runner && python3 -I /run/runner capture /run/c.gz {words} >&2", text=runner)
    assert done.returncode == 0, done.stderr
    return base64.b64decode(sut.read("base64 /run/c.gz"))


def wrong(given: Mapping[str, Any], archive: bytes) -> dict[str, str]:
    """Return the settings that are not met, with what was found."""
    found = list(evaluate_items(read_items(given, ""), machine_of(archive)))
    assert len(found) > 40
    return {finding.name: finding.found for finding in found if finding.outcome != "met"}


@pytest.fixture(scope="module")
def sut(testbed: Testbed) -> Sut:
    found = testbed.sut("configured")
    if "tmpfs" not in found.read(f"grep {CPU}/cpufreq /proc/mounts || true"):
        found.read(LAID_OVER)
    found.read(f"echo 0 > /proc/irq/{BUSY}/smp_affinity_list")
    return found


@pytest.fixture(scope="module")
def right(sut: Sut) -> dict[str, Any]:
    """Return what is learned of the SUT as it is right: nothing is delivered to its isolated CPU but what must be."""
    given: dict[str, Any] = yaml.safe_load(learned(machine_of(captured(sut)), "it"))
    assert given.keys() == KINDS.keys() - {"kernel_argument_values"}  # kernel_arguments says more
    return given


def test_every_running_setting_is_changed_and_found(sut: Sut, right: dict[str, Any], scenario: Scenario) -> None:
    affinity = sut.read("cat /proc/irq/default_smp_affinity").strip()
    assert wrong(right, captured(sut)) == {}
    for what, (change, back, names) in RUNNING.items():
        sut.read(change)
        found = wrong(right, captured(sut))
        assert found.keys() == names, (what, found)
        sut.read(back.format(clocksource=right["clocksource"], affinity=affinity))  # or it is found with the next one
    assert wrong(right, captured(sut)) == {}
    scenario(
        "a setting changed while the SUT runs",
        f"{', '.join(RUNNING)}; one at a time",
        "all other settings met",
        "the setting, with expected and found",
    )


def test_smt_that_is_switched_off_is_found(sut: Sut, right: dict[str, Any]) -> None:
    assert right["smt"] == "on"
    sut.read(f"echo off > {CPU}/smt/control")
    try:
        found = wrong(right, captured(sut))
    finally:
        sut.read(f"echo on > {CPU}/smt/control")
    # Interrupts leave the CPUs that go, and the files of those that stay are laid over.
    assert found.pop("smt") == "off"
    gone = {"interrupts.on_isolated_cpus", "isolated_cpus", "housekeeping.cpus", "housekeeping.from_cpu_0"}
    assert found.keys() <= gone, found


def test_a_sut_that_is_booted_otherwise_is_found(testbed: Testbed, right: dict[str, Any], scenario: Scenario) -> None:
    other = testbed.sut("misconfigured")
    found = wrong(right, captured(other))
    testbed.stop(other)
    # Nothing is laid over there, and other CPUs are isolated: what has no place cannot be compared.
    assert found.pop("governor") == "no frequency scaling"
    assert found.pop("deepest_idle_state") == "no idle states (driver none)"
    assert found.pop("turbo") == "no switch for turbo"
    assert found.pop(f"sysfs.{CPU}/cpufreq/boost") == "no such file"
    assert "isolcpus=3: found isolcpus=1-2" in found["kernel_arguments"]
    assert found["isolated_cpus"] == "1-2, 3 not isolated, 1-2 isolated unexpectedly"
    assert found["nohz_full"] == "2, 3 not in nohz_full, 2 in nohz_full unexpectedly"
    assert found["rcu_nocbs"] == "2, 3 not in rcu_nocbs, 2 in rcu_nocbs unexpectedly"
    assert found["firmware.bios_version"] == "0.9"
    assert found["firmware.microcode"] == "0x9 on all 4 CPUs"
    assert found["memory.mt_s"].startswith("2400")
    assert found[f"nics.{NIC} node"] == "0"
    assert found["mitigations.spectre_v2"].startswith("Mitigation")
    others = {"interrupts.on_isolated_cpus", "kernel_arguments"}  # and what depends on which CPUs are isolated
    others |= {name for name in found if name.startswith("housekeeping.") or "/workqueue/" in name}
    others.add("sysfs./sys/module/kvm/parameters/nx_huge_pages")  # a mitigation
    assert {name for name in found if not name.startswith("mitigations.")} <= BOOTED | others, found
    assert found.keys() >= BOOTED
    scenario(
        "booted otherwise",
        "kernel arguments, isolation, mitigations, BIOS, microcode, memory speed, the network device's node",
        "all other settings met",
        "each setting, with expected and found",
    )


def test_another_kernel_is_found(testbed: Testbed, right: dict[str, Any]) -> None:
    other = testbed.sut("realtime")
    release = other.read("uname -r").strip()
    assert wrong(right, captured(other))["kernel_release"] == release != right["kernel_release"]
    testbed.stop(other)


def test_a_run_and_a_check_share_the_audit(
    sut: Sut, right: dict[str, Any], testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    expected = lab.directory / "expected.yml"
    expected.write_text(yaml.safe_dump(right), encoding="utf-8")
    inventory = testbed.inventory(
        {"audited": [sut]},
        {"ansible_become": True, "calibration_testbed": "audited", "calibration_expected_state": str(expected)},
    )
    sut.read("sysctl -qw vm.max_map_count=9999")
    try:
        checked = lab.calibrate(inventory, "--check")
        ended = lab.calibrate(inventory)
    finally:
        sut.read("sysctl -qw vm.max_map_count=65530")
    assert f"{sut.name}: sysctl vm.max_map_count: expected 65530, found 9999" in checked.text
    assert "settings: " in checked.text
    assert ", 1 not met" in checked.text
    assert ended.rc == VERDICT_FAILED, ended.text
    [run] = lab.runs()
    document = lab.document(sut)
    failed = {check.name for check in document.attempts[0].checks if check.configured and check.failed}
    assert failed == {"sysctl.vm.max_map_count"}
    assert any(
        flag.code == "NOT_AS_EXPECTED" and "expected 65530, found 9999" in flag.reason for flag in document.flags
    )
    recorded = calibration("audit", str(run), "--json")
    assert recorded.code == VERDICT_FAILED
    again = calibration("audit", str(run), "--expect", str(expected), "--json")
    assert json.loads(again.said) == json.loads(recorded.said)
    scenario(
        "a run of a SUT that is not as expected",
        "one of the settings in calibration_expected_state changed",
        "every figure",
        "NOT_AS_EXPECTED, the same in --check, the run and calibration audit",
    )
