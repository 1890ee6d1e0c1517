# SPDX-License-Identifier: Apache-2.0
"""What is expected of a SUT, on running SUTs with isolated CPUs: each check met, and each failing for what was done."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from calibration.base.errors import ENVIRONMENT, VERDICT_FAILED
from calibration.preflight.checks import Check
from calibration.results.model import RunDocument
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

Scenario = Callable[[str, str, str, str], None]

PROMISED = {
    "ansible_become": True,
    "calibration_testbed": "expected",
    "preflight_kernel_arguments": "isolcpus=managed_irq,domain,1,3 nohz_full=1,3 rcu_nocbs=1,3",
    "preflight_isolated_cpus": "1,3",
    # an emulated second is shared with whatever else runs where the emulator does
    "preflight_background_load_max": 0.5,
}
"""What both SUTs were booted with, in an inventory's words."""

HOUR_S = 3600

DAY_S = 86400

LEAST_BYTES = 200 << 20
"""Memory that each node has available, unless a test takes it."""

PAGES = 200
"""Huge pages of 2 MiB that leave a node with less."""


@pytest.fixture(scope="module")
def suts(testbed: Testbed) -> list[Sut]:
    return testbed.suts(("isolated", "expected-1"), ("isolated", "expected-2"))


def checks(document: RunDocument) -> dict[str, Check]:
    return {check.name: check for check in document.attempts[-1].checks}


def raised(document: RunDocument) -> set[str]:
    """Return the titles of the checks that the run was flagged with."""
    return {flag.reason.partition(":")[0] for flag in document.flags if flag.code == "NOT_AS_EXPECTED"}


@contextmanager
def done(sut: Sut, command: str, undo: str) -> Iterator[None]:
    """Do something to a SUT for the time of the block."""
    try:
        sut.read(command)
        yield
    finally:
        sut.read(undo)


def test_suts_that_are_as_promised_say_so(testbed: Testbed, lab: Lab, suts: list[Sut], scenario: Scenario) -> None:
    release = suts[0].read("uname -r").strip()
    promised = {**PROMISED, "preflight_kernel_release": release, "preflight_node_free_bytes": LEAST_BYTES}
    ended = lab.calibrate(testbed.inventory({"expected": suts}, promised))
    assert ended.rc == VERDICT_FAILED, ended.text
    for sut in suts:
        document = lab.document(sut)
        found = checks(document)
        # what emulation cannot have is found too: its guests' clock source is another one
        assert {name for name, item in found.items() if item.failed} == {"clock_source"}, found
        assert "hpet" in found["clock_source"].found or "acpi_pm" in found["clock_source"].found
        assert raised(document) == {found["clock_source"].title}
        assert found["isolated_cpus"].found == "1,3"
        assert found["kernel_release"].found == release
        assert found["microcode"].expected.endswith(f"as on {next(item.name for item in suts if item is not sut)}")
        assert document.run.status == "complete"
        assert {
            "isolation_kept",
            "background_load",
            "free_memory",
            "time",
            "directory_safe",
            "cpu_model",
        } <= found.keys()
    scenario(
        "isolated from everything",
        "isolcpus with managed_irq and domain, nohz_full, rcu_nocbs",
        "every step",
        "the isolated CPUs as promised; status complete",
    )


def test_sut_booted_with_other_options_is_not_measured(
    testbed: Testbed, lab: Lab, suts: list[Sut], scenario: Scenario
) -> None:
    other = {
        suts[0].name: {
            "preflight_kernel_arguments": ["rcu_nocbs=1,3", "isolcpus=1-3", "nohz_full=1,3"],
            "preflight_kernel_release": "2.6.32-*",
            "preflight_isolated_cpus": "1-3",
        }
    }
    ended = lab.calibrate(testbed.inventory({"expected": suts}, PROMISED, other))
    assert ended.rc == ENVIRONMENT, ended.text
    refused = lab.document(suts[0])
    assert refused.run.status == "not_begun"
    assert not refused.measurements
    found = checks(refused)
    assert "isolcpus=1-3: found isolcpus=managed_irq,domain,1,3" in found["kernel_arguments"].found
    assert "rcu_nocbs=1,3: expected before isolcpus=1-3, found after nohz_full=1,3" in found["kernel_arguments"].found
    assert found["isolated_cpus"].found == "1,3, 2 not isolated"
    assert found["kernel_release"].found == suts[0].read("uname -r").strip()
    for name in ("kernel_arguments", "kernel_release", "isolated_cpus"):
        assert found[name].severity == "blocking"
        assert found[name].title in refused.not_measured[0].reason
    assert lab.document(suts[1]).run.status == "complete"
    scenario(
        "booted otherwise",
        "inventory promises other isolated CPUs, order and release",
        "the other SUT's run, complete",
        "each argument with expected and found, status not_begun, exit 3",
    )


def test_what_disturbs_a_sut_flags_the_run(testbed: Testbed, lab: Lab, suts: list[Sut], scenario: Scenario) -> None:
    sut, other = suts
    pool = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    loop = "nohup taskset -c 1 sh -c 'while :; do :; done' > /dev/null 2>&1 & echo $! > /run/intruder"
    microcode = "sed 's/^microcode.*/microcode\\t: 0xbad/' /proc/cpuinfo > /run/cpuinfo && mount --bind /run/cpuinfo"
    promised = {**PROMISED, "preflight_node_free_bytes": LEAST_BYTES}
    with (
        done(sut, loop, "kill $(cat /run/intruder)"),
        done(sut, f"echo {PAGES} > {pool}", f"echo 0 > {pool}"),
        done(sut, f"date -s @{time.time() - HOUR_S:.0f}", f"date -s @{time.time():.0f}"),
        done(other, f"{microcode} /proc/cpuinfo", "umount /proc/cpuinfo"),
    ):
        ended = lab.calibrate(testbed.inventory({"expected": suts}, promised))
    sut.read(f"date -s @{time.time():.0f}")
    assert ended.rc == VERDICT_FAILED, ended.text
    document = lab.document(sut)
    assert document.run.status == "complete"
    found = checks(document)
    expected = {"background_load", "free_memory", "time", "microcode"}
    assert {name for name, verdict in found.items() if verdict.outcome == "not_met"} == {*expected, "clock_source"}
    assert raised(document) == {found[name].title for name in (*expected, "clock_source")}
    assert "CPU 1 " in found["background_load"].found
    assert f"sh (process {sut.read('cat /run/intruder').strip()})" in found["background_load"].found
    assert "at least 200 MiB available on node 1" in found["free_memory"].expected
    assert " s behind the controller's" in found["time"].found
    assert abs(float(found["time"].found.split()[0]) - HOUR_S) < HOUR_S / 2
    assert "0xbad as on expected-2" in found["microcode"].expected
    assert found["microcode"].title in raised(lab.document(other))
    assert "0xbad" in checks(lab.document(other))["microcode"].found
    scenario(
        "not as expected",
        "busy loop on an isolated CPU, huge pages on one node, clock an hour behind, other microcode",
        "every figure",
        "NOT_AS_EXPECTED with expected and found, the process by name",
    )


def test_a_clock_days_away_is_refused(testbed: Testbed, lab: Lab, suts: list[Sut], scenario: Scenario) -> None:
    sut, other = suts
    with done(sut, f"date -s @{time.time() + 2 * DAY_S:.0f}", f"date -s @{time.time():.0f}"):
        ended = lab.calibrate(testbed.inventory({"expected": suts}, PROMISED))
    sut.read(f"date -s @{time.time():.0f}")
    assert ended.rc == ENVIRONMENT, ended.text
    refused = lab.document(sut)
    assert refused.run.status == "not_begun"
    found = checks(refused)["date"]
    assert found.severity == "blocking"
    assert found.title in refused.not_measured[0].reason
    assert " s ahead of the controller's" in found.found
    assert lab.document(other).run.status == "complete"
    scenario(
        "clock days away",
        "the SUT's clock two days ahead",
        "the other SUT's run, complete",
        "status not_begun: within a day of the controller's expected, offset found; exit 3",
    )
