# SPDX-License-Identifier: Apache-2.0
"""Three pieces of advice that a run of a guest gives are followed with their own commands; a second run counts less."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from calibration.report.advice import Advice, advice
from calibration.results.model import RunDocument
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

Scenario = Callable[[str, str, str, str], None]

PROFILE = Path(__file__).parent / "profiles" / "advice.yml"

HUGE_BYTES = 32 << 20
"""Memory of the program that may be huge pages; as much again may not, for many faults of NUMA balancing."""

PROGRAM = f"""
import mmap, socket, time
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
huge, base = mmap.mmap(-1, {HUGE_BYTES + (2 << 20)}, flags=flags), mmap.mmap(-1, {2 * HUGE_BYTES}, flags=flags)
base.madvise(mmap.MADV_NOHUGEPAGE)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = 0.0
while True:
    for memory in (huge, base):
        for start in range(0, len(memory), 4096):
            memory[start] = 1
            if time.monotonic() - sent > 0.005:
                sender.sendto(b"x", ("10.0.2.2", 9))
                sent = time.monotonic()
"""
"""Touches all of its memory again and again, and sends packets, each of which ends with an interrupt."""

STATE = """
cat /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/numa_balancing
grep . /proc/irq/*/smp_affinity_list
ls /etc/sysctl.d /etc/tmpfiles.d
"""
"""Shows all that the advice changes."""


@contextmanager
def disturbed(sut: Sut) -> Iterator[None]:
    """Send the interrupts of the network device to an isolated CPU, and keep the machine busy, in the block."""
    assert sut.ssh("cat > /run/disturbance.py", text=PROGRAM).returncode == 0
    sut.read("systemctl stop irqbalance")
    sut.read(
        "for irq in $(grep -E 'virtio[0-9]+-(in|out)put' /proc/interrupts | cut -d: -f1); do "
        "echo 1 > /proc/irq/$irq/smp_affinity_list; done"
    )
    try:
        yield
    finally:
        sut.read("systemctl stop disturbance; systemctl start irqbalance")


def calibrated(testbed: Testbed, lab: Lab, sut: Sut) -> RunDocument:
    """Return a run of the guest while the program runs, which is started anew."""
    sut.read("systemctl stop disturbance 2>/dev/null; systemctl reset-failed 2>/dev/null; true")
    sut.read("systemd-run --quiet --unit=disturbance taskset -c 0,2 python3 /run/disturbance.py")
    ended = lab.calibrate(testbed.inventory({"advised": [sut]}, {"ansible_become": True}), profile=PROFILE)
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    return document


def by_rule(document: RunDocument) -> dict[str, Advice]:
    return {item.rule: item for item in advice(document)}


def faults(document: RunDocument) -> int:
    """Return the faults of NUMA balancing that the guest counted during a run."""
    (attempt,) = document.attempts
    assert attempt.health is not None
    counted = attempt.health.of("numa_hint_faults")
    assert counted is not None
    assert counted.read == 1
    return sum(change.count or 0 for change in counted.changed)


def huge_bytes(document: RunDocument) -> int:
    """Return the memory that programs had in transparent huge pages when the guest was captured."""
    assert document.context is not None
    size = document.context.parsed.memory.anonymous_huge_bytes
    assert size is not None
    return size


def test_advice_that_is_followed_lowers_what_was_counted(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("isolated", "advised")
    with disturbed(sut):
        before = sut.read(STATE)
        first = calibrated(testbed, lab, sut)
        found = by_rule(first)
        assert {"interrupts", "thp_always", "numa_balancing"} <= found.keys()
        assert "virtio" in found["interrupts"].found
        interrupts = found["interrupts"].count
        assert interrupts is not None
        assert interrupts > 20
        assert huge_bytes(first) == found["thp_always"].count
        assert huge_bytes(first) >= HUGE_BYTES
        assert faults(first) == found["numa_balancing"].count
        assert faults(first) > 100

        for rule in ("interrupts", "thp_always", "numa_balancing"):
            sut.read("\n".join(found[rule].change))
        second = calibrated(testbed, lab, sut)
        left = by_rule(second)
        assert not {"thp_always", "numa_balancing"} & left.keys()
        assert (
            left["interrupts"].count == 0
        )  # those that the kernel manages stay, and come only if their CPU uses the disk
        assert huge_bytes(second) < HUGE_BYTES / 10
        assert faults(second) < faults(first) / 10

        for rule in ("interrupts", "thp_always", "numa_balancing"):
            sut.ssh("\n".join(found[rule].undo))  # update-grub and grubby are not there
        assert sut.read(STATE) == before
    scenario(
        "advice followed",
        "interrupts on an isolated CPU, huge pages for all programs, NUMA balancing",
        f"{interrupts:.0f} interrupts, {huge_bytes(first) >> 20} MiB, {faults(first)} faults",
        f"{left['interrupts'].count:.0f} interrupts, {huge_bytes(second) >> 20} MiB, {faults(second)} faults",
    )
