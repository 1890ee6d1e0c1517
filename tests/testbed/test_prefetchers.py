# SPDX-License-Identifier: Apache-2.0
"""Registers of prefetchers on a guest: the kernel's driver is there, and the emulator ignores what is written."""

from collections.abc import Callable
from pathlib import Path

from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

PROFILE = Path(__file__).parent / "profiles" / "prefetchers.yml"

Scenario = Callable[[str, str, str, str], None]

REGISTERS = """
import os, struct
for cpu in (0, 1):
    for register in (0x34, 0x1A4):
        device = os.open(f"/dev/cpu/{cpu}/msr", os.O_RDONLY)
        print(hex(register), struct.unpack("<Q", os.pread(device, 8, register))[0])
"""

LEFT = "ls -A /var/tmp | grep calibration; pgrep -af '[r]unner keep |[s]utprobe'; true"


def registers(sut: Sut) -> list[str]:
    """Return what the driver reads: interruptions by the firmware and the prefetchers' register, of both CPUs."""
    return str(sut.read(f"modprobe msr && python3 -c '{REGISTERS}'")).split("\n")


def test_a_write_that_is_ignored_is_found_out_and_the_prefetchers_are_not_called_off(
    testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    sut = testbed.sut("haswell")
    before = registers(sut)
    assert [line.split()[0] for line in before if line] == ["0x34", "0x1a4"] * 2
    assert all(int(line.split()[1]) == 0 for line in before if line.startswith("0x1a4"))
    assert all(int(line.split()[1]) >= 0 for line in before if line)
    wanted = {"tune_prefetchers_ok": True, "ansible_become": True}
    ended = lab.calibrate(testbed.inventory({"testbed1": [sut]}, wanted), profile=PROFILE)
    document = lab.document(sut)
    assert document.plan is not None
    assert [step.prefetchers for step in document.plan.steps] == [None, None, "off"]
    measured = {measurement.id for measurement in document.measurements}
    assert measured == {"prefetcher_effect", "idle_latency"}, ended.text
    (gone,) = [omitted for omitted in document.not_measured if omitted.cause == "failed"]
    assert gone.what.endswith("prefetchers off")
    assert (
        "the prefetchers could not be switched off: /dev/cpu/0/msr:0x1a4 was set to 0xf and reads 0x0: this machine "
        "does not support it" in gone.reason
    )
    assert "The changes so far were restored" in gone.reason
    assert document.attempts[-1].changes == ()
    page = " ".join(lab.page(sut).split())
    assert "the prefetchers could not be switched off" in page
    assert "Not measured with prefetchers off" in page
    assert registers(sut) == before
    assert sut.ssh(LEFT).stdout == ""
    scenario(
        "prefetchers to be switched off for one step, on an emulator",
        "a register that ignores what is written",
        "the other steps; no setting changed",
        "the step: the register reads 0x0 after 0xf was written",
    )


def test_without_the_driver_the_steps_that_need_it_say_so(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("haswell")
    sut.read("modprobe -r msr")
    wanted = {"tune_prefetchers_ok": True, "ansible_become": True}
    lab.calibrate(testbed.inventory({"testbed1": [sut]}, wanted), profile=PROFILE)
    (gone,) = [omitted for omitted in lab.document(sut).not_measured if omitted.cause == "failed"]
    assert "/dev/cpu/0/msr:0x1a4 cannot be read" in gone.reason
    assert "load the kernel module msr" in gone.reason
    scenario(
        "prefetchers to be switched off for one step, without the kernel's driver",
        "module msr not loaded",
        "the other steps; no setting changed",
        "the step: which module to load",
    )
