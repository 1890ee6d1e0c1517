# SPDX-License-Identifier: Apache-2.0
"""What the BMC says, by the SUT's own ipmitool and with the operator's consent: firmware, sensors, event log.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import re
import shutil

from calibration.runner import processes

PROGRAM = "ipmitool"

LIMIT_S = 30
"""Time for each of its commands: a BMC behind KCS takes some 20 ms for a sensor or an event."""

MAX_BYTES = 65536
"""Output of a command: 64 events take 6 kB, 200 sensors 8 kB."""

MAX_EVENTS, MAX_SENSORS = 64, 256
"""Events, the newest, and sensors kept: thousands of events would take a minute."""

FIRMWARE, SENSORS, EVENTS = (
    ("mc", "info"),
    ("-c", "sdr", "list", "full"),
    ("-c", "sel", "list", "last", str(MAX_EVENTS)),
)

IN_ALARM = frozenset(["nc", "cr", "nr"])
"""States of a sensor beyond a threshold: not critical, critical, not recoverable."""

UNPRINTABLE = re.compile(r"[^ -~]")


class Bmc:
    """The BMC as *run* shows it, which runs a command as :func:`processes.run` does."""

    def __init__(self, run):
        self._run = run
        self._seen = None
        self.temperatures_c = {}
        self.reasons = {}

    def _rows(self, arguments):
        """Return the lines of a command's output; None if it fails, and keep why."""
        path = shutil.which(PROGRAM, path=processes.PATH)
        name = " ".join((PROGRAM, *arguments))
        if path is None:
            self.reasons[PROGRAM] = "no %s in %s" % (PROGRAM, processes.PATH)
            return None
        try:
            found = self._run([path, *arguments], limit_s=LIMIT_S, max_bytes=MAX_BYTES)
        except OSError as error:
            self.reasons[name] = "cannot be started: %s" % error
            return None
        if found["fault"] or found["rc"] != 0:
            said = found["stderr"].decode("utf-8", "replace").strip().splitlines()
            why = said[-1] if said else "exit code %s" % found["rc"]
            self.reasons[name] = UNPRINTABLE.sub("?", found["fault"] or why)[:200]
            return None
        return [UNPRINTABLE.sub("?", row) for row in found["stdout"].decode("utf-8", "replace").splitlines()]

    def look(self):
        """Return {firmware, alarms, events}, the newest events by kind with their number; None what cannot be read."""
        firmware = (re.fullmatch(r"Firmware Revision\s*:\s*(\S{1,40})", row) for row in self._rows(FIRMWARE) or ())
        alarms = self._sensors()
        self._seen = self._events()
        return {
            "firmware": next((match.group(1) for match in firmware if match), None),
            "alarms": alarms,
            "events": None if self._seen is None else counted(self._seen.values()),
        }

    def since(self):
        """Return the number of events since the look by kind, None if unknown; and read the temperatures again."""
        self._sensors()
        events = self._events()
        if self._seen is None or events is None:
            return None
        return counted(kind for place, kind in events.items() if place not in self._seen)

    def _sensors(self):
        """Keep the temperatures, and return which sensors are beyond a threshold."""
        found = self._rows(SENSORS)
        rows = [[part.strip()[:40] for part in row.split(",")] for row in found or ()]
        rows = [row for row in rows if len(row) == 4][:MAX_SENSORS]
        self.temperatures_c = {
            "BMC " + name: float(value)
            for name, value, unit, _ in rows
            if unit == "degrees C" and re.fullmatch(r"-?[0-9]{1,3}(\.[0-9]{1,3})?", value)
        }
        alarms = ["%s %s %s (%s)" % tuple(row) for row in rows if row[3] in IN_ALARM]
        return None if found is None else alarms[:MAX_EVENTS]

    def _events(self):
        """Return the kinds of the newest events by number and time, which a cleared log has anew; None if unknown."""
        rows = self._rows(EVENTS)
        found = {}
        for parts in ([part.strip() for part in row.split(",")] for row in rows or ()):
            if len(parts) >= 6 and parts[-1] == "Asserted":
                sensor = re.sub(r" #0x[0-9a-f]+$", "", parts[3])
                found[tuple(parts[:3])] = "%s: %s" % (sensor[:50], parts[4][:50])
        return None if rows is None else found


def counted(kinds):
    """Return how often each of *kinds* occurs."""
    found: dict[str, int] = {}
    for kind in kinds:
        found[kind] = found.get(kind, 0) + 1
    return found
