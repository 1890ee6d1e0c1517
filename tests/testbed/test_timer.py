# SPDX-License-Identifier: Apache-2.0
"""The units of docs/guide/units on a machine whose clock is set: a night is begun, caught up, and never doubled."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.guest import Sut
from tests.testbed.support import Testbed

UNITS = Path(__file__).resolve().parents[2] / "docs" / "guide" / "units"

PATIENCE_S = 600

STAND_IN = """#!/bin/sh
# Stands for the calibration: says that it has begun, and ends when it is let, or told to.
cd /srv/calibration || exit 9
trap 'echo terminated >>said; exit 4' TERM
date +%s >>begun
while [ -e held ]; do sleep 1; done
read -r code <code
echo ended >>said
exit "$code"
"""

DROP_IN = "[Service]\nExecStart=\nExecStart=/usr/local/bin/stand-in\n"


class Controller:
    """A machine with the units installed."""

    def __init__(self, sut: Sut) -> None:
        self.sut = sut

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        done = self.sut.ssh(f"mkdir -p $(dirname {path}) && cat >{path}", text=text)
        assert done.returncode == 0, done.stderr

    def set_clock(self, when: str) -> None:
        """Set the clock, which calendar timers follow."""
        self.sut.read(f"date --utc --set='{when}'")

    def begun(self) -> list[int]:
        """Return when the calibration was begun, in seconds since 1970."""
        return [int(part) for part in self.sut.read("cat /srv/calibration/begun 2>/dev/null || true").split()]

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.sut.read(f"systemctl show --property={name} --value {unit}").strip()

    def until(self, what: str, seen: Callable[[], bool]) -> None:
        """Wait until something is *seen*."""
        end = time.monotonic() + PATIENCE_S
        while not seen():
            if time.monotonic() > end:
                journal = self.sut.read("journalctl --no-pager -n 30 -u calibration.service -u calibration.timer")
                pytest.fail(f"expected {what}, did not see it:\n{journal}")
            time.sleep(2)

    def until_waiting(self, when: str) -> None:
        """Wait until the timer waits for a night."""
        self.until(
            f"the timer to wait for {when}",
            lambda: self.show("calibration.timer", "NextElapseUSecRealtime").startswith(when),
        )

    def let_end(self, code: int) -> None:
        """Let the calibration end with *code*."""
        self.sut.read(f"echo {code} >/srv/calibration/code && rm -f /srv/calibration/held")
        self.until("the calibration to end", lambda: self.show("calibration.service", "ActiveState") != "activating")


@pytest.fixture(scope="module")
def machine(testbed: Testbed) -> Iterator[Sut]:
    sut = testbed.sut("small")
    yield sut
    testbed.stop(sut)


@pytest.fixture
def controller(machine: Sut) -> Iterator[Controller]:
    made = Controller(machine)
    machine.read("install -d -o calibration /srv/calibration && timedatectl set-timezone UTC || true")
    for name in ("calibration.service", "calibration.timer"):
        made.write(f"/etc/systemd/system/{name}", (UNITS / name).read_text(encoding="utf-8"))
    made.write("/etc/systemd/system/calibration.service.d/stand-in.conf", DROP_IN)
    made.write("/usr/local/bin/stand-in", STAND_IN)
    machine.read("chmod 755 /usr/local/bin/stand-in && systemctl daemon-reload && touch /srv/calibration/held")
    try:
        yield made
    finally:
        machine.read(
            "systemctl disable --now calibration.timer; systemctl stop calibration.service; "
            "systemctl reset-failed calibration.service 2>/dev/null; "
            "rm -rf /srv/calibration /var/lib/systemd/timers/stamp-calibration.timer"
        )


def seconds(controller: Controller, when: str) -> int:
    return int(controller.sut.read(f"date --utc --date='{when}' +%s"))


def test_a_night_is_begun_at_its_time_and_not_doubled(controller: Controller) -> None:
    controller.set_clock("2030-04-30 20:00:00")
    controller.sut.read("systemctl enable --now calibration.timer")
    assert controller.begun() == []
    controller.set_clock("2030-05-01 02:29:58")
    controller.until("the first night", lambda: len(controller.begun()) == 1)
    assert controller.begun()[0] >= seconds(controller, "2030-05-01 02:30:00")
    assert controller.show("calibration.service", "ActiveState") == "activating"
    running = controller.show("calibration.service", "MainPID")
    # Somebody starts it by hand, and the next night comes, while it is still running.
    controller.sut.read("systemctl start --no-block calibration.service")
    controller.set_clock("2030-05-02 02:30:05")
    controller.sut.read("systemctl start --no-block calibration.service")
    assert controller.show("calibration.service", "ActiveState") == "activating"
    assert controller.show("calibration.service", "MainPID") == running
    assert len(controller.begun()) == 1
    # The night that came meanwhile is begun when the first has ended, and once.
    controller.let_end(0)
    controller.until("the second night", lambda: len(controller.begun()) == 2)
    controller.until_waiting("Fri 2030-05-03 02:30:00")
    assert controller.show("calibration.service", "Result") == "success"
    assert len(controller.begun()) == 2


def test_a_night_that_was_missed_is_caught_up_once(controller: Controller) -> None:
    controller.set_clock("2030-06-01 12:00:00")
    controller.sut.read("systemctl enable --now calibration.timer")
    assert controller.begun() == []
    controller.sut.read("systemctl stop calibration.timer")  # the controller is off for three nights
    controller.set_clock("2030-06-04 09:15:00")
    assert controller.begun() == []
    controller.sut.read("systemctl start calibration.timer")
    controller.until("the night that was missed", lambda: len(controller.begun()) == 1)
    controller.let_end(1)
    assert controller.show("calibration.service", "Result") == "exit-code"
    assert controller.show("calibration.service", "ExecMainStatus") == "1"
    controller.until_waiting("Wed 2030-06-05 02:30:00")
    assert len(controller.begun()) == 1


def test_stopping_it_asks_the_calibration_to_end(controller: Controller) -> None:
    controller.sut.read("systemctl start --no-block calibration.service")
    controller.until("the calibration", lambda: len(controller.begun()) == 1)
    controller.sut.read("systemctl stop calibration.service")
    assert controller.sut.read("cat /srv/calibration/said").split() == ["terminated"]
    user = controller.sut.read("stat -c %U /srv/calibration/begun").strip()
    assert user == "calibration"
