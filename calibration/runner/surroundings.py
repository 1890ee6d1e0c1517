# SPDX-License-Identifier: Apache-2.0
"""What is around a step on the SUT: temperature, other tasks, and the time that a hypervisor took."""

from __future__ import annotations

import contextlib
import os

SENSORS = "/sys/class/hwmon/hwmon*"
CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "scpi_sensors")
"""Drivers whose sensors are those of processors."""

STEAL = 7
"""Position of the stolen time among the values of a CPU in /proc/stat."""


def sensors(machine):
    """Return the files of the processors' temperatures; of hundreds of cores' the packages' only."""
    found = []
    for chip in machine.glob(SENSORS):
        with contextlib.suppress(OSError):
            if machine.text(chip + "/name") in CHIPS:
                found += machine.glob(chip + "/temp1_input")
    return found or machine.glob("/sys/class/thermal/thermal_zone0/temp")


class Surroundings:
    """Looks around a step: create it before, ask it after."""

    def __init__(self, machine, temperatures):
        self.machine = machine
        degrees = []
        for path in temperatures:
            with contextlib.suppress(OSError, ValueError):
                degrees.append(int(machine.text(path)) / 1000)
        self.temperature_c = max(degrees, default=None)
        self.steal_s, running = stat(machine)
        self.running = None if running is None else max(0, running - 1)  # this process itself

    def since(self):
        """Return what was around the step."""
        steal_s = stat(self.machine)[0]
        known = None not in (steal_s, self.steal_s)
        return {
            "temperature_c": self.temperature_c,
            "running": self.running,
            "steal_s": round(steal_s - self.steal_s, 2) if known else None,
        }


def stat(machine):
    """Return the time in s that the hypervisor took from all CPUs, and the tasks that run; None if unknown."""
    steal_s = running = None
    with contextlib.suppress(OSError, ValueError, IndexError), open(machine.path("/proc/stat")) as stream:
        for line in stream:
            name, *values = line.split()
            if name == "cpu":
                steal_s = int(values[STEAL]) / os.sysconf("SC_CLK_TCK")
            elif name == "procs_running":
                running = int(values[0])
    return steal_s, running
