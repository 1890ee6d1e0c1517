# SPDX-License-Identifier: Apache-2.0
"""What the machine counts while a run measures: errors, throttling, interruptions, temperatures, energy.

Read before the first and after the last step. Energy is read between steps too, because its counters wrap.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time

from calibration.runner import devices, temperatures
from calibration.runner.capture import CPU, MAX_FILE_BYTES, FileCapture, isolated_cpus

EDAC = "/sys/devices/system/edac/mc"
POWERCAP = "/sys/class/powercap"

EDAC_KINDS = (
    ("memory_corrected", "ce_count"),
    ("memory_uncorrected", "ue_count"),
)
AER_KINDS = (
    ("link_corrected", "aer_dev_correctable", "TOTAL_ERR_COR"),
    ("link_nonfatal", "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
    ("link_fatal", "aer_dev_fatal", "TOTAL_ERR_FATAL"),
)
THROTTLE_KINDS = (
    ("core_throttled", "core_throttle_count"),
    ("package_throttled", "package_throttle_count"),
)
INTERRUPT_KIND = "isolated_interrupts"
BMC_KIND = "bmc_events"  # only with the operator's consent
BALANCING_KINDS = ("numa_hint_faults", "numa_pages_migrated")  # rows of /proc/vmstat
KINDS = (*(row[0] for row in (*EDAC_KINDS, *AER_KINDS, *THROTTLE_KINDS)), *BALANCING_KINDS, INTERRUPT_KIND)

MAX_SENSORS = 128
"""Temperatures read; a module's takes about a millisecond of its slow bus. Two sockets have up to 48 modules."""

NAME_BYTES = 64
"""Bytes read of a name or number: the record has one for each counter, and labels of modules have at most 31."""

PAGE_BYTES = 4096
"""Bytes read of a table: no file of sysfs has more."""

MAX_INTERRUPTS = 2048
"""Interrupts counted, lowest numbers first: a record has space for as many. Two sockets with many queues have 2000."""

VMSTAT_BYTES = 65536
"""Bytes read of /proc/vmstat: its 180 rows take 5 kB."""

MAX_POWER_W = 800.0
"""More than a package takes: what an energy counter could have counted between two readings."""


def number(text):
    """Return a decimal number; None for anything else."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None


class Reader:
    """Reads files of *machine*, and keeps why one could not be."""

    def __init__(self, machine):
        self.collector = FileCapture(machine.root)

    def text(self, path, most_bytes=NAME_BYTES):
        """Return the first *most_bytes* of a file as stripped text; None if it cannot be read."""
        content = self.collector.read(path)
        return None if content is None else content[:most_bytes].decode("utf-8", "replace").strip("\0 \n")

    def number(self, path):
        """Return the number in a file; None if there is none."""
        text = self.text(path)
        return None if text is None else number(text)

    def names(self, directory, pattern):
        """Return the entries of a directory that match a pattern."""
        return [name for name in self.collector.names(directory) if fnmatch.fnmatchcase(name, pattern)]


def counters(reader, isolated):
    """Return the counters by kind, then by what counts; *isolated* are the CPUs whose interrupts are counted."""
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}

    def keep(kind, name, value):
        if value is not None:
            found[kind][name] = value

    for controller in reader.names(EDAC, "mc[0-9]*"):
        place = EDAC + "/" + controller
        modules = reader.names(place, "dimm[0-9]*") + reader.names(place, "rank[0-9]*")
        for kind, file in EDAC_KINDS:
            keep(kind, controller, reader.number(place + "/" + file))
            for module in modules:  # the controller's count has theirs
                label = reader.text("%s/%s/dimm_label" % (place, module))
                name = "%s %s%s" % (controller, module, " (%s)" % label if label else "")
                keep(kind, name, reader.number("%s/%s/dimm_%s" % (place, module, file)))
    seen = set()
    for address in devices.addresses(reader.collector):
        for directory in devices.upstream(reader.collector, address):
            if directory in seen:
                continue
            seen.add(directory)
            for kind, file, row in AER_KINDS:
                match = re.search(r"(?m)^%s\s+([0-9]+)$" % row, reader.text(directory + "/" + file, PAGE_BYTES) or "")
                keep(kind, os.path.basename(directory), match and int(match.group(1)))
    for cpu in reader.names(CPU, "cpu[0-9]*"):
        for kind, file in THROTTLE_KINDS:
            keep(kind, cpu[3:], reader.number("%s/%s/thermal_throttle/%s" % (CPU, cpu, file)))
    rows = dict(re.findall(r"(?m)^(\w+) ([0-9]+)$", reader.text("/proc/vmstat", VMSTAT_BYTES) or ""))
    for kind in BALANCING_KINDS:
        keep(kind, "machine", number(rows.get(kind, "")))
    found[INTERRUPT_KIND] = isolated_interrupts(reader, isolated)
    return found


def isolated_interrupts(reader, isolated):
    """Return how often each interrupt of a device came to the CPUs *isolated*, by its number.

    Read before and after all steps: the table of 504 CPUs and 2000 interrupts takes a second.
    """
    lines = (reader.text("/proc/interrupts", MAX_FILE_BYTES) or "").splitlines() if isolated else []
    names = lines[0].split() if lines else []
    columns = [place for place, name in enumerate(names) if number(name[3:]) in isolated]
    found: dict[str, int] = {}
    for line in lines[1:]:
        irq, _, rest = line.partition(":")
        counts = rest.split(None, len(names))[: len(names)]
        if len(counts) == len(names) and irq.strip().isdigit() and len(found) < MAX_INTERRUPTS:
            found[irq.strip()] = sum(number(counts[place]) or 0 for place in columns)
    return found


def temperatures_c(reader):
    """Return the temperatures of processors and memory modules in °C, by chip and label; processors first."""
    files = {**temperatures.of_processors(reader), **temperatures.of_chips(reader, temperatures.MODULES)}
    return {name: temperatures.hottest(reader, files[name]) for name in list(files)[:MAX_SENSORS]}


class Energy:
    """Energy taken since it was created, by domain: look at it often enough that no counter wraps twice."""

    def __init__(self, machine, clock=time.monotonic):
        self.machine = machine
        self.clock = clock
        self.joules = {}
        self.reasons = {}
        self.names = {}
        self.last = {}
        reader = Reader(machine)
        for zone in reader.names(POWERCAP, "intel-rapl:[0-9]*"):
            place = POWERCAP + "/" + zone
            name = reader.text(place + "/name")
            above = reader.text("%s/%s/name" % (POWERCAP, zone.rpartition(":")[0])) if zone.count(":") > 1 else None
            if name is not None:
                self.names[zone] = " ".join(filter(None, (above, name)))
                self.joules[zone] = 0.0
        self.look()

    def look(self):
        """Add what was taken since the last look."""
        if not self.names:
            return
        reader = Reader(self.machine)
        for zone in self.names:
            if zone in self.reasons:
                continue
            place = POWERCAP + "/" + zone
            now, at = reader.number(place + "/energy_uj"), self.clock()
            if now is None:
                refused = reader.collector.unreadable.get(place + "/energy_uj")
                self.reasons[zone] = refused or "it has no number in energy_uj"
                continue
            if zone in self.last:
                self.add(zone, now, at, reader.number(place + "/max_energy_range_uj"))
            self.last[zone] = (now, at)

    def add(self, zone, now, at, largest):
        """Add the difference to the last reading, unless it is ambiguous."""
        before, then = self.last[zone]
        if largest is not None and (at - then) * MAX_POWER_W * 1e6 > largest:
            self.reasons[zone] = "the counter may have wrapped more than once between two readings"
        elif now >= before:
            self.joules[zone] += (now - before) / 1e6
        elif largest is None:
            self.reasons[zone] = "the counter wrapped, and its range cannot be read"
        else:
            self.joules[zone] += (now - before + largest) / 1e6

    def taken(self):
        """Return the energy in J of each domain, or why it is unknown."""
        self.look()
        return {
            name: {"joules": None, "reason": self.reasons[zone]}
            if zone in self.reasons
            else {"joules": round(self.joules[zone], 3), "reason": None}
            for zone, name in self.names.items()
        }


class Health:
    """What the machine counted since this was created, and its *bmc*, if the operator agreed, since its last look."""

    def __init__(self, machine, bmc=None):
        self.machine = machine
        self.bmc = bmc
        self.energy = Energy(machine)
        reader = Reader(machine)
        self.isolated = isolated_cpus(reader.collector)
        self.counters = counters(reader, self.isolated)
        self.temperatures_c = {**temperatures_c(reader), **({} if bmc is None else bmc.temperatures_c)}
        self.began = time.monotonic()

    def since(self):
        """Return what was counted: per kind how many counters were read both times, and those that changed."""
        elapsed_s = round(time.monotonic() - self.began, 3)
        energy = self.energy.taken()
        reader = Reader(self.machine)
        after, after_c = counters(reader, self.isolated), temperatures_c(reader)
        known = self.counters[INTERRUPT_KIND]
        if 0 < len(known) < MAX_INTERRUPTS:  # an interrupt that has not come may have no row: Linux 7.3
            self.counters[INTERRUPT_KIND] = {**dict.fromkeys(after[INTERRUPT_KIND], 0), **known}
        unreadable = dict(sorted(reader.collector.unreadable.items())[:20])
        if self.bmc is not None:
            events = self.bmc.since()
            after[BMC_KIND] = {} if events is None else {"log": 0, **events}
            self.counters[BMC_KIND] = dict.fromkeys(after[BMC_KIND], 0)
            after_c = {**after_c, **self.bmc.temperatures_c}
            unreadable.update(self.bmc.reasons)
        return {
            "elapsed_s": elapsed_s,
            "counters": {
                kind: {
                    "read": len(before.keys() & after[kind].keys()),
                    "lost": sorted(before.keys() - after[kind].keys()),
                    "changed": {
                        name: [before[name], after[kind][name]]
                        for name in before
                        if name in after[kind] and after[kind][name] != before[name]
                    },
                }
                for kind, before in self.counters.items()
            },
            "temperatures_c": {name: [before, after_c.get(name)] for name, before in self.temperatures_c.items()},
            "energy": energy,
            "unreadable": unreadable,
        }
