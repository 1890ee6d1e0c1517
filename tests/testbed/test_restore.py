# SPDX-License-Identifier: Apache-2.0
"""However a run ends, its SUT is as it was: settings, processes, files and reservation."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

PATIENCE_S = 900
"""What takes longer hangs: these SUTs are emulated, and may share the controller's CPUs with others."""

LEASE_S = 60.0
"""Shorter than usual, and longer than a starved guest needs between two of the run's commands."""

Scenario = Callable[[str, str, str, str], None]

WANTED = {"tune_hugepages_2m": {0: 8}, "tune_hugepages_2m_ok": True}
"""What a guest really has: huge pages. It has neither frequencies nor irqbalance."""

NOW = """
cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
ls -A /var/tmp | grep calibration
pgrep -af '[g]uardian.py|[s]utprobe'
true
"""
"""Prints the settings, the files and the processes that a run changes or makes."""


def now(sut: Sut) -> str:
    done = sut.ssh(NOW)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def wait_until(done: Callable[[], bool], what: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, what()
        time.sleep(1)


def wait_for_step(process: subprocess.Popen[bytes], sut: Sut, log: Path) -> None:
    """Wait until the second step, which takes hours, is being measured on the SUT."""

    def measuring() -> bool:
        assert process.poll() is None, log.read_text()
        return "step 1 of 2" in log.read_text() and "/sutprobe latency" in now(sut)

    wait_until(measuring, log.read_text)


def test_sut_is_restored_after_a_killed_controller(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small")
    before = now(sut)
    inventory = testbed.inventory(
        {"testbed1": [sut]}, {**WANTED, "reserve_lease_s": LEASE_S, "measure_grace_s": 1.0, "ansible_become": True}
    )
    log = lab.directory / "log"
    with lab.started(log, "-i", str(inventory)) as process:
        wait_for_step(process, sut, log)
        assert now(sut).splitlines()[0] == "8"
        second = lab.calibrate(inventory)
        assert second.rc != 0
        assert "the SUT is reserved by run" in second.text
        process.kill()
        process.wait(PATIENCE_S)
    wait_until(lambda: now(sut) == before, lambda: now(sut))
    scenario(
        "controller killed in the middle of a step, huge pages reserved",
        "SIGKILL to ansible-playbook",
        "the steps that had ended; the SUT's settings as they were, no process, no file, no reservation",
        "a second controller was refused meanwhile, with the holder's run and the command that ends it",
    )


def interrupted(_sut: Sut, process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def kernel_killed(sut: Sut, _process: subprocess.Popen[bytes]) -> None:
    sut.read("pkill -KILL -f '^[^ ]*/sutprobe '")


def link_dead(sut: Sut, process: subprocess.Popen[bytes]) -> None:
    sut.link(up=False)
    process.wait(PATIENCE_S)
    sut.link(up=True)


@pytest.mark.parametrize(
    ("fault", "row"),
    [
        (
            interrupted,
            ("run interrupted, huge pages reserved", "Ctrl-C in the middle of a step", "the interrupted run tidied up"),
        ),
        (
            kernel_killed,
            ("kernel killed, huge pages reserved", "SIGKILL to sutprobe", "the step: SIGKILL; the run put it right"),
        ),
        (
            link_dead,
            ("link dead, huge pages reserved", "cable pulled for good", "not left clean; the SUT put itself right"),
        ),
    ],
    ids=["interrupted", "kernel killed", "link dead"],
)
def test_a_changed_sut_is_put_right_whatever_ends_the_run(
    fault: Callable[[Sut, subprocess.Popen[bytes]], None],
    row: tuple[str, str, str],
    testbed: Testbed,
    lab: Lab,
    scenario: Scenario,
) -> None:
    sut = testbed.sut("small")
    before = now(sut)
    short = {"reserve_lease_s": LEASE_S, "measure_grace_s": 1.0, "measure_reconnect_s": 1.0}
    inventory = testbed.inventory({"testbed1": [sut]}, {**WANTED, **short, "ansible_become": True})
    log = lab.directory / "log"
    with lab.started(log, "-i", str(inventory)) as process:
        wait_for_step(process, sut, log)
        assert now(sut).splitlines()[0] == "8"
        fault(sut, process)
        assert process.wait(PATIENCE_S) != 0
    wait_until(lambda: now(sut) == before, lambda: now(sut) + log.read_text())
    assert [measurement.kind for measurement in lab.document(sut).measurements] == ["idle_latency"], log.read_text()
    name, injected, reported = row
    scenario(name, injected, "the steps that had ended; the SUT's settings as they were", reported)


def test_a_killed_guardian_is_replaced_by_the_next_run(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small")
    before = now(sut)
    inventory = testbed.inventory({"testbed1": [sut]}, {**WANTED, "ansible_become": True})
    log = lab.directory / "log"
    with lab.started(log, "-i", str(inventory)) as process:
        wait_for_step(process, sut, log)
        process.kill()
        process.wait(PATIENCE_S)
    assert sut.ssh("pkill -KILL -f /[g]uardian.py").returncode == 0
    assert now(sut) != before
    ended = lab.calibrate(inventory)
    assert "the SUT is reserved by" not in ended.text
    assert now(sut) == before
    scenario(
        "controller and guardian killed",
        "SIGKILL to both",
        "the SUT's settings as they were, after the next run",
        "the stale reservation was taken over",
    )


def test_unchangeable_setting_is_refused_and_reported(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small")
    before = now(sut)
    wanted = {**WANTED, "tune_prefetchers": "off", "tune_prefetchers_ok": True, "ansible_become": True}
    ended = lab.calibrate(testbed.inventory({"testbed1": [sut]}, wanted))
    assert ended.rc != 0
    assert "remove tune_prefetchers and tune_prefetchers_ok" in ended.text
    assert now(sut) == before
    scenario(
        "prefetchers to be switched off on a processor without that register",
        "tune_prefetchers: off",
        "nothing was changed",
        "refused, with what was expected of the processor and what it is",
    )


def test_a_setting_without_consent_is_bad_input(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("small")
    before = now(sut)
    ended = lab.calibrate(testbed.inventory({"testbed1": [sut]}, {**WANTED, "tune_hugepages_2m_ok": False}))
    assert ended.rc != 0
    assert "tune_hugepages_2m is set without tune_hugepages_2m_ok: true" in ended.text
    assert now(sut) == before
    scenario("a setting without its consent", "no tune_hugepages_2m_ok", "nothing was changed", "bad input")
