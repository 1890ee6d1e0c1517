# SPDX-License-Identifier: Apache-2.0
"""What is around a step on the SUT: temperature, other tasks, and the time that a hypervisor took."""

from __future__ import annotations

import contextlib
import os

from calibration.runner import temperatures
from calibration.runner.health import Reader

STEAL = 7
"""Position of the stolen time among the values of a CPU in /proc/stat."""


def sensors(machine):
    """Return the files of the processors' temperatures."""
    return [path for paths in temperatures.of_processors(Reader(machine)).values() for path in paths]


class Surroundings:
    """Looks around a step: create it before, ask it after."""

    def __init__(self, machine, files):
        self.machine = machine
        self.temperature_c = temperatures.hottest(Reader(machine), files)
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
