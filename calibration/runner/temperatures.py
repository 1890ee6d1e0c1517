# SPDX-License-Identifier: Apache-2.0
"""Which of a machine's sensors are those of its processors and memory modules.

Sources: Linux, ``drivers/hwmon`` and ``drivers/thermal``.
"""

from __future__ import annotations

import re

HWMON = "/sys/class/hwmon"
THERMAL = "/sys/class/thermal"

PROCESSORS = (
    ("coretemp", r"(Package|Physical) id \d+", r"()Core \d+"),
    ("k10temp|zenpower", r"|Tctl|Tdie|Tccd\d+", None),
    ("k8temp", None, r"().*"),
    (r"(cpu|cluster)\w*_thermal|scpi_sensors|scmi_sensors", r".*", None),
    ("apm_xgene", r"SoC Temperature", None),
    ("smpro_hwmon", r"temp\d+ SoC", None),
    ("ibmpowernv", None, r"(Chip \d+ )?Core .*"),
)
"""Drivers of processors, and the labels of packages and of cores, by chip.

Of cores the hottest counts, where no package has a sensor: Intel's before Sandy Bridge, for example.
"""

MODULES = (
    ("jc42|spd5118", r".*", None),
    ("smpro_hwmon", r"temp\d+ CH\d+ DIMM", None),
    ("ibmpowernv", r"Chip \d+ DIMM \d+.*", None),
    ("nvme", r"|Composite", None),
)
"""Drivers of memory modules and drives."""

ZONES = r"x86_pkg_temp|(cpu|cluster)[\w-]*"
"""Types of the thermal zones of processors, read where no driver has a sensor; others are the board's."""

HOTTEST_C = 150.0
"""Above this, and at or below zero, a sensor is broken or has no value: no silicon works there."""


def celsius(text):
    """Return a sensor's text in °C; None for what is no temperature of a machine that runs."""
    value_c = int(text) / 1000 if text is not None and re.fullmatch(r"-?[0-9]{1,9}", text) else 0.0
    return value_c if 0 < value_c <= HOTTEST_C else None


def of_processors(reader):
    """Return {name: files} of the processors' temperatures; the hottest of several files counts."""
    return of_chips(reader, PROCESSORS) or {
        "%s %s" % (kind, zone[12:]): ["%s/%s/temp" % (THERMAL, zone)]
        for zone in numbered(reader, THERMAL, "thermal_zone*")
        for kind in [reader.text("%s/%s/type" % (THERMAL, zone)) or ""]
        if re.fullmatch(ZONES, kind)
    }


def of_chips(reader, rows):
    """Return {name: files} of the sensors of the drivers in *rows*, without those that have no value."""
    found: dict[str, list[str]] = {}
    for chip in numbered(reader, HWMON, "hwmon*"):
        # Older drivers have their files at the device: coretemp before Linux 3.13, k8temp before 5.3.
        place = HWMON + "/" + chip
        if not reader.names(place, "name"):
            place += "/device"
        driver = reader.text(place + "/name") or ""
        for drivers, package, core in rows:
            if re.fullmatch(drivers, driver):
                named = "%s %s" % (driver, chip[5:])
                packages = {} if package is None else sensors(reader, place, package)
                for path, match in packages.items():
                    found.setdefault(("%s %s" % (named, match.group())).strip(), []).append(path)
                cores = {} if packages or core is None else sensors(reader, place, core)
                for path, match in cores.items():
                    found.setdefault("%s %shottest core" % (named, match.group(1) or ""), []).append(path)
    return found


def sensors(reader, place, labels):
    """Return {file: match of its label} of the temperatures of a chip that have such *labels*, and a value."""
    found = {}
    for name in numbered(reader, place, "temp*_input"):
        path = "%s/%s" % (place, name)
        match = re.fullmatch(labels, reader.text(path.replace("_input", "_label")) or "")
        if match and reader.text(path.replace("_input", "_fault")) != "1" and hottest(reader, [path]) is not None:
            found[path] = match
    return found


def numbered(reader, directory, pattern):
    """Return the entries of a directory that match a pattern, in the order of their numbers."""
    return sorted(reader.names(directory, pattern), key=lambda name: int(re.sub("[^0-9]", "", name) or 0))


def hottest(reader, paths):
    """Return the highest of several temperatures in °C; None if none can be read."""
    return max((value for value in map(celsius, map(reader.text, paths)) if value is not None), default=None)
