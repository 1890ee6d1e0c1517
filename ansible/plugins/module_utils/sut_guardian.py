# SPDX-License-Identifier: Apache-2.0
"""A SUT's reservation, the settings that a run changes, and the guardian that restores them if nobody else does.

Runs on a SUT's own Python (3.8 and later, standard library only), in two ways: imported by the module
``sut_reservation``, and as the guardian, a program with ``sut_files.py`` beside it. The guardian outlives the
connection that started it and sleeps until the run's lease expires or is renewed. When the lease expires, it ends the
run's processes, restores every setting, removes the run's directory and releases the SUT.

A reservation is a directory at one path for all users and controllers. It appears atomically, by a rename, with a lock
in it that is already held: it can never look abandoned while it is made. It contains:

``holder.json``  who holds it, for people; readable by all
``run``          the token of the run and the guardian's process, which every step compares
``lease``        a FIFO: a step writes into it until when, in seconds of /proc/uptime, the run is alive, its own
                 process id, and how many seconds after that process's end the run must report again
``alive``        the lock, held by the guardian from start to exit
``journal``      one line per setting, synced to disk before the setting is changed
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

try:
    from ansible.module_utils import sut_files as files
except ImportError:  # started as a program
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import sut_files as files

Refused, printable = files.Refused, files.printable

GUARDIAN = "guardian.py"
"""The name of this file when run as a program."""

HOLDER, RUN, LEASE, ALIVE, JOURNAL = "holder.json", "run", "lease", "alive", "journal"

HOLDER_TEXTS = ("run_id", "sut", "controller", "started_at", "directory", "boot_id", "token")
HOLDER_NUMBERS = ("guardian",)

JOURNAL_BYTES = 16 << 20
"""Limit on a journal: three entries for each of 8192 CPUs take 5 MB."""

READY_S = 20
"""Time for a guardian to start on a busy SUT."""

RELEASE_S = 10
"""Time for a guardian to exit when told to; then it is killed, with nothing left to restore."""

TEXT_BYTES = 1024
"""Limit on the output of a guardian that fails to start: the last line has the reason."""

SLEEP_S = 1 << 20
"""Longest sleep, 12 days: the system call's argument is limited."""

HUGE_PAGES_TRIES = 10
"""A process's pages are freed some time after it ends; the number is read this often, TRY_S apart."""

TRY_S = 0.5

TG_EMPTY_S = 3
"""Time for which an empty reservation of a traffic generator may be in the making by another SUT of this run."""

RELEASE_WORD = b"release\n"


class Held(Refused):
    """The SUT is reserved by another run."""


# Helpers


def write_whole(name, text, mode, dir_fd):
    """Create the file *name* with *text*, synced to disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=dir_fd)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode("utf-8"))
        stream.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)


# Settings


class Machine:
    """The files of a machine below *root*: this machine, or a copy in a test."""

    def __init__(self, root="/"):
        self.root = root.rstrip("/")

    def path(self, where):
        """Return the real path of *where*."""
        return self.root + where

    def text(self, where):
        """Return the stripped text of a file."""
        return files.read_text(self.path(where), files.RESERVATION_BYTES).strip()

    def write(self, where, text):
        """Write *text* to a file in one call, as /sys requires."""
        descriptor = os.open(self.path(where), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)

    def glob(self, pattern):
        """Return the paths that match *pattern*, ordered by the numbers in them."""
        found = [path[len(self.root) :] for path in glob.glob(self.root + pattern)]
        return sorted(found, key=lambda item: [int(number) for number in re.findall("[0-9]+", item)])

    def exists(self, where):
        """Return whether the machine has *where*."""
        return os.path.exists(self.path(where))

    def boot_id(self):
        """Return the identifier of this boot."""
        return self.text("/proc/sys/kernel/random/boot_id")

    def uptime_s(self):
        """Return the seconds since boot, independent of the wall clock."""
        with open(self.path("/proc/uptime")) as stream:
            return float(stream.read().split()[0])

    def systemctl(self, *arguments):
        """Run systemctl and return (exit code, output), or None if it does not exist."""
        for place in ("/usr/bin/systemctl", "/bin/systemctl"):
            if self.exists(place):
                done = subprocess.run(
                    [self.path(place), "--no-ask-password", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=60,
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                )
                return done.returncode, printable(done.stdout.decode("utf-8", "replace").strip())
        return None


CPU = "/sys/devices/system/cpu"
GOVERNOR = CPU + "/cpufreq/policy%s/scaling_governor"

PrefetchTable = collections.namedtuple("PrefetchTable", "cores vendor family models registers source")
"""Processors whose prefetchers are documented to be switched in the same way.

``models`` is a set of their numbers, None: all of the family. ``registers`` maps each model-specific register to the
bits that switch one prefetcher each, off if set; other bits are never changed.
"""

SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 4"
DISCLOSURE = "Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors"
PEPC = "Intel's pepc, pepclibs/msr/MiscFeatureControl.py"
PERFSPECT = "Intel's PerfSpect, internal/common/prefetcher.go"
ATOM = "Intel, Hardware Prefetch Controls for Intel Atom Cores (357930)"
PPR = "AMD, Processor Programming Reference, MSRC000_0108; AMD64 Architecture Programmer's Manual, volume 3"

PREFETCH_TABLES = (
    # 0x1a4: bit 0 L2 streamer, 1 L2 adjacent line, 2 L1 next line, 3 L1 by instruction pointer.
    PrefetchTable(
        "Nehalem, Westmere, Sandy Bridge, Ivy Bridge, Haswell, Broadwell",
        "GenuineIntel",
        6,
        frozenset(
            (
                *(0x1A, 0x1E, 0x1F, 0x2E, 0x25, 0x2C, 0x2F, 0x2A, 0x2D, 0x3A, 0x3E),
                *(0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56),
            )
        ),
        {0x1A4: 0xF},
        DISCLOSURE,
    ),
    PrefetchTable(
        "Skylake, Cascade, Cooper, Kaby, Coffee, Comet, Ice, Tiger and Rocket Lake",
        "GenuineIntel",
        6,
        frozenset(
            (
                *(0x4E, 0x5E, 0x55, 0x8E, 0x9E, 0xA5, 0xA6),
                *(0x6A, 0x6C, 0x7D, 0x7E, 0x8C, 0x8D, 0xA7),
            )
        ),
        {0x1A4: 0xF},
        SDM + "; " + PEPC,
    ),
    # 0x1a4: bit 5 L2 adaptive multipath (another tool takes bit 6 for it). 0x6d: bit 14 homeless, 42 last-level cache.
    PrefetchTable(
        "Sapphire Rapids, Emerald Rapids",
        "GenuineIntel",
        6,
        frozenset((0x8F, 0xCF)),
        {0x1A4: 0x2F, 0x6D: 1 << 14 | 1 << 42},
        SDM + "; " + PERFSPECT,
    ),
    # 0x1a4 besides: bit 6 last-level cache page, 7 array of pointers.
    PrefetchTable(
        "Granite Rapids",
        "GenuineIntel",
        6,
        frozenset((0xAD, 0xAE)),
        {0x1A4: 0xEF, 0x6D: 1 << 14 | 1 << 42},
        PERFSPECT,
    ),
    # 0x1a4: bit 0 L2 streamer, 2 L1 next line; bit 1 is reserved.
    PrefetchTable(
        "Avoton, Goldmont, Tremont",
        "GenuineIntel",
        6,
        frozenset((0x4D, 0x5C, 0x5F, 0x7A, 0x86, 0x96, 0x9C)),
        {0x1A4: 0x5},
        SDM + "; " + PEPC,
    ),
    # 0x1a4: bit 0 L2 streamer, 2 L1 next line, 3 L1 by instruction pointer, 4 L1 next page, 5 L2 adaptive multipath.
    # 0x1320: bit 43 last-level cache streamer.
    PrefetchTable(
        "Sierra Forest, Clearwater Forest",
        "GenuineIntel",
        6,
        frozenset((0xAF, 0xDD)),
        {0x1A4: 0x3D, 0x1320: 1 << 43},
        ATOM + "; " + PERFSPECT,
    ),
    # 0x1a4: bit 0 L1, 1 L2.
    PrefetchTable(
        "Knights Landing, Knights Mill", "GenuineIntel", 6, frozenset((0x57, 0x85)), {0x1A4: 0x3}, SDM + "; " + PEPC
    ),
    # 0xc0000108: bit 0 L1 stream, 1 L1 stride, 2 L1 region, 3 L2 stream, 5 L2 up or down. Only where CPUID has it.
    PrefetchTable("Zen 3, Zen 4", "AuthenticAMD", 0x19, None, {0xC0000108: 0x2F}, PPR),
    PrefetchTable("Zen 5", "AuthenticAMD", 0x1A, None, {0xC0000108: 0x2F}, PPR),
)
"""Documented processors; others are refused. Hybrid processors (Alder Lake and later) are excluded: their model does
not tell the type of a core."""

PREFETCH_LEAF, PREFETCH_LEAF_BIT = 0x80000021, 13
"""CPUID leaf and EAX bit by which AMD processors report the register (PrefetchCtlMsr)."""

DSCR_DEFAULT = CPU + "/dscr_default"
DSCR = CPU + "/cpu%d/dscr"
DSCR_BITS, DSCR_OFF = 0x1F, 0x1
"""Of POWER's data stream control register: depth (bits 0 to 2: 1 is none, 0 what the machine has by default), stores
(3), strides of more than a line (4). Sources: Power ISA; ppc64_cpu --dscr, which writes the same files; Linux,
Documentation/arch/powerpc/dscr.rst."""

LEAVE_PREFETCHERS = "take tune_prefetchers and tune_prefetchers_ok away"

IRQBALANCE = "irqbalance.service"
GENERAL_PAGES = "/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages"
NODE = "/sys/devices/system/node/node%d"
NODE_PAGES = NODE + "/hugepages/hugepages-%dkB/nr_hugepages"
PAGE_KIB = {"hugepages_2m": 2048, "hugepages_1g": 1048576}

PLACES = {
    "hugepages_2m": r"(/sys/devices/system/node/node\d+|/sys/kernel/mm)/hugepages/hugepages-2048kB/nr_hugepages",
    "hugepages_1g": r"(/sys/devices/system/node/node\d+|/sys/kernel/mm)/hugepages/hugepages-1048576kB/nr_hugepages",
    "governor": CPU + r"/cpufreq/policy\d+/(scaling_governor|energy_performance_preference)",
    "turbo": CPU + r"/(intel_pstate/no_turbo|cpufreq/boost)",
    "prefetchers": r"/dev/cpu/\d+/msr:0x(1a4|6d|1320|c0000108)|" + CPU + r"/(cpu\d+/dscr|dscr_default)",
    "irqbalance": r"irqbalance\.service",
}
"""Paths that each setting may write. Nothing else is ever written, whatever a journal says."""

VALUES = {
    "hugepages_2m": r"\d{1,12}",
    "hugepages_1g": r"\d{1,12}",
    "governor": r"[a-z_0-9]{1,64}",
    "turbo": r"[01]",
    "prefetchers": r"(0x)?[0-9a-f]{1,16}",
    "irqbalance": r"active|inactive",
}

ORDER = ("governor", "turbo", "prefetchers", "irqbalance", "hugepages_2m", "hugepages_1g")
"""The order of changes. Restoring uses the reverse order."""


class Entry:
    """One setting at one path: the value before, and the value wanted (None: it may change along with another)."""

    def __init__(self, setting, where, before, wanted):
        self.setting, self.where, self.before, self.wanted = setting, where, before, wanted

    def line(self):
        """Return the entry's line in the journal."""
        return json.dumps([self.setting, self.where, self.before, self.wanted]) + "\n"

    @staticmethod
    def of_line(line):
        """Return the entry of a journal line. Raises Refused if it is not valid."""
        try:
            setting, where, before, wanted = json.loads(line)
        except ValueError as error:
            raise Refused("expected four texts in a line of the journal, found %s" % printable(line)) from error
        texts = isinstance(setting, str) and isinstance(where, str) and isinstance(before, str)
        if (
            not texts
            or setting not in PLACES
            or not re.fullmatch(PLACES[setting], where)
            or not re.fullmatch(VALUES[setting], before)
        ):
            raise Refused("expected a setting that calibrations change, found %s" % printable(line))
        return Entry(setting, where, before, wanted)


def register_of(where):
    """Return (path, number) of the model-specific register *where*, None for other paths."""
    path, _, number = where.partition(":")
    return (path, int(number, 16)) if number else None


def read_device(machine, path, offset, count):
    """Return *count* bytes at *offset* of a CPU's device. Raises OSError if there are fewer."""
    descriptor = os.open(machine.path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        raw = os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)
    if len(raw) != count:
        raise OSError(errno.EIO, "the register has no value", machine.path(path))
    return raw


def read_value(machine, entry):
    """Return the current value at *entry*'s path as text."""
    register = register_of(entry.where)
    if register:
        return hex(struct.unpack("<Q", read_device(machine, *register, 8))[0])
    if entry.setting == "irqbalance":
        answer = machine.systemctl("is-active", IRQBALANCE)
        return "active" if answer is not None and answer[0] == 0 else "inactive"
    return machine.text(entry.where)


def write_value(machine, entry, value):
    """Write *value* to *entry*'s path. Raises OSError if that fails."""
    register = register_of(entry.where)
    if register:
        descriptor = os.open(machine.path(register[0]), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, struct.pack("<Q", int(value, 16)), register[1])
        finally:
            os.close(descriptor)
    elif entry.setting == "irqbalance":
        answer = machine.systemctl("start" if value == "active" else "stop", IRQBALANCE)
        if answer is None or answer[0] != 0:
            raise OSError(errno.EIO, "systemctl: %s" % (answer[1] if answer else "there is none"), IRQBALANCE)
    else:
        machine.write(entry.where, value)


def wanted_huge_pages(machine, setting, counts):
    """Return the entries that reserve *counts* huge pages (by node) of the setting's size."""
    kib = PAGE_KIB[setting]
    entries = []
    for node, count in sorted((int(node), int(count)) for node, count in counts.items()):
        where = NODE_PAGES % (node, kib)
        if not machine.exists(where):
            nodes = machine.glob("/sys/devices/system/node/node[0-9]*")
            if nodes or node != 0 or not machine.exists(GENERAL_PAGES % kib):
                raise Refused(
                    "expected huge pages of %d KiB on node %d, found no %s; correct tune_%s"
                    % (kib, node, where, setting)
                )
            where = GENERAL_PAGES % kib
        entry = Entry(setting, where, "", str(count))
        entry.before = read_value(machine, entry)
        if int(entry.before) > count:
            raise Refused(
                "expected at most the %d huge pages of %d KiB that tune_%s wants on node %d, found %s reserved: "
                "they may be somebody's; free them yourself or want as many" % (count, kib, setting, node, entry.before)
            )
        entries.append(entry)
    return entries


def wanted_governor(machine, wanted):
    """Return the entries that set the governor *wanted* in every frequency policy, and side effects."""
    entries = []
    for where in machine.glob(GOVERNOR % "[0-9]*"):
        policy = os.path.dirname(where)
        try:
            if not machine.text(policy + "/affected_cpus"):
                continue  # all its CPUs are offline
            known = machine.text(policy + "/scaling_available_governors").split()
            if wanted not in known:
                raise Refused(
                    "expected tune_governor to be one of %s, which %s knows, found %s"
                    % (printable(", ".join(known)), policy, wanted)
                )
            preference = policy + "/energy_performance_preference"
            if machine.exists(preference):
                entries.append(Entry("governor", preference, machine.text(preference), None))
            entries.append(Entry("governor", where, machine.text(where), wanted))
        except FileNotFoundError:
            continue  # its CPUs went offline meanwhile
    if not entries:
        raise Refused(
            "expected frequency policies to give the governor %s to, found none in %s/cpufreq: the firmware or a "
            "hypervisor sets the frequency; take tune_governor away" % (wanted, CPU)
        )
    return entries


def wanted_turbo(machine, wanted):
    """Return the entry that switches turbo on or off."""
    for where, values in (
        (CPU + "/intel_pstate/no_turbo", {"on": "0", "off": "1"}),
        (CPU + "/cpufreq/boost", {"on": "1", "off": "0"}),
    ):
        if machine.exists(where):
            return [Entry("turbo", where, machine.text(where), values[wanted])]
    raise Refused(
        "expected a switch for turbo, found neither intel_pstate/no_turbo nor cpufreq/boost in %s: "
        "this kernel cannot set it; take tune_turbo away" % CPU
    )


def processors(machine):
    """Return the online CPUs by number, each with its rows of /proc/cpuinfo."""
    with open(machine.path("/proc/cpuinfo")) as stream:
        text = stream.read()
    found = {}
    for block in text.split("\n\n"):
        rows = dict(re.findall(r"^([^\t:]+?)\s*: ?(.*)$", block, re.MULTILINE))
        if rows.get("processor", "").isdigit():
            found[int(rows["processor"])] = rows
    return found


def prefetch_table(rows):
    """Return the table of the processor described by a block of /proc/cpuinfo, or None."""
    family, model = (int(rows[key]) if rows.get(key, "").isdigit() else None for key in ("cpu family", "model"))
    for table in PREFETCH_TABLES:
        of_family = (table.vendor, table.family) == (rows.get("vendor_id"), family)
        if of_family and (table.models is None or model in table.models):
            return table
    return None


def has_prefetch_register(machine, number):
    """Return whether an AMD processor reports the register. Raises OSError if it cannot be queried."""
    device = "/dev/cpu/%d/cpuid" % number
    # Beyond the last leaf, an emulator returns another one.
    last, asked = (
        struct.unpack("<4I", read_device(machine, device, leaf, 16))[0] for leaf in (0x80000000, PREFETCH_LEAF)
    )
    return last >= PREFETCH_LEAF and bool(asked >> PREFETCH_LEAF_BIT & 1)


def prefetch_registers(machine, number, rows):
    """Return the documented bits of CPU *number* by register. Raises Refused if undocumented."""
    table = prefetch_table(rows)
    if table is None and "CPU implementer" in rows:
        raise Refused(
            "expected prefetchers that Linux can switch, found a processor of Arm's architecture: there they are "
            "switched in registers such as CPUECTLR_EL1, which only the firmware may write. Look for them in the "
            "firmware's menu, and " + LEAVE_PREFETCHERS
        )
    if table is None:
        raise Refused(
            "expected a processor whose registers for prefetchers are documented (docs/guide/changes.rst), "
            "found %s family %s model %s; %s"
            % (*(printable(rows.get(key, "?"), 64) for key in ("vendor_id", "cpu family", "model")), LEAVE_PREFETCHERS)
        )
    if table.vendor == "AuthenticAMD":
        try:
            has = has_prefetch_register(machine, number)
        except OSError as error:
            raise Refused(
                "expected CPU %d to say at /dev/cpu/%d/cpuid whether it has a register for prefetchers: %s; load the "
                "kernel module cpuid, or %s" % (number, number, error.strerror, LEAVE_PREFETCHERS)
            ) from error
        if not has:
            raise Refused(
                "expected CPU %d to have a register for prefetchers (PrefetchCtlMsr, CPUID 0x80000021 EAX bit 13), "
                "found that it says it has none; %s" % (number, LEAVE_PREFETCHERS)
            )
    return table.registers


def wanted_prefetchers(machine, wanted):
    """Return the entries that switch the hardware prefetchers of each online CPU on or off."""
    found = processors(machine)
    if machine.exists(DSCR_DEFAULT):
        return wanted_streams(machine, wanted, sorted(found))
    # Check all first: a machine with different processors is refused.
    registers = {number: prefetch_registers(machine, number, found[number]) for number in sorted(found)}
    entries = []
    for number, masks in registers.items():
        for register, mask in sorted(masks.items(), reverse=True):
            entry = Entry("prefetchers", "/dev/cpu/%d/msr:0x%x" % (number, register), "", "")
            try:
                entry.before = read_value(machine, entry)
            except OSError as error:
                raise Refused(
                    "expected MSR 0x%x of CPU %d to be readable at /dev/cpu/%d/msr: %s; load the kernel module msr, "
                    "or %s" % (register, number, number, error.strerror, LEAVE_PREFETCHERS)
                ) from error
            others = int(entry.before, 16) & ~mask
            entry.wanted = hex(others | (mask if wanted == "off" else 0))
            entries.append(entry)
    if not entries:
        raise Refused("expected CPUs in /proc/cpuinfo, found none; " + LEAVE_PREFETCHERS)
    return entries


def wanted_streams(machine, wanted, cpus):
    """Return the entries that switch the prefetch streams of a POWER machine on or off.

    Writing the default changes all CPUs: it comes last, and is restored first.
    """
    before = {}
    for where in (*(DSCR % number for number in cpus), DSCR_DEFAULT):
        try:
            before[where] = "%x" % int(machine.text(where), 16)
        except (OSError, ValueError) as error:
            raise Refused(
                "expected %s to say how streams are prefetched: %s; %s" % (where, error, LEAVE_PREFETCHERS)
            ) from error
    value = "%x" % (int(before[DSCR_DEFAULT], 16) & ~DSCR_BITS | (DSCR_OFF if wanted == "off" else 0))
    # An entry that needs no change is still affected when the others are restored.
    return [Entry("prefetchers", where, was, value if was != value else None) for where, was in before.items()]


def prefetchers(machine):
    """Return an entry without a wanted value per prefetcher register, and why others cannot be read."""
    entries, unread = [], {}
    for number, rows in sorted(processors(machine).items()):
        table = prefetch_table(rows)
        for register in sorted(table.registers if table else (0x1A4,), reverse=True):
            entry = Entry("prefetchers", "/dev/cpu/%d/msr:0x%x" % (number, register), "", None)
            try:
                entry.before = read_value(machine, entry)
            except OSError as error:
                unread.setdefault((register, error.strerror or str(error)), []).append(number)
            else:
                entries.append(entry)
    reasons = ["MSR 0x%x of CPUs %s: %s" % (register, ranges(cpus), why) for (register, why), cpus in unread.items()]
    return entries, "; ".join(reasons) or None


def wanted_irqbalance(machine):
    """Return the entry that stops irqbalance; empty if it is not running."""
    entry = Entry("irqbalance", IRQBALANCE, "", "inactive")
    entry.before = read_value(machine, entry)
    if entry.before == "active":
        return [entry]
    for name in os.listdir(machine.path("/proc")):
        try:
            if name.isdigit() and machine.text("/proc/%s/comm" % name) == "irqbalance":
                raise Refused(
                    "expected irqbalance to be the service %s, which can be started again, found it as process %s of "
                    "no such service; stop it yourself or take tune_irqbalance away" % (IRQBALANCE, name)
                )
        except OSError:
            continue  # it has ended
    return []


WANTED = {
    "hugepages_2m": lambda machine, counts: wanted_huge_pages(machine, "hugepages_2m", counts),
    "hugepages_1g": lambda machine, counts: wanted_huge_pages(machine, "hugepages_1g", counts),
    "governor": wanted_governor,
    "turbo": wanted_turbo,
    "prefetchers": wanted_prefetchers,
    "irqbalance": lambda machine, _: wanted_irqbalance(machine),
}


def plan_changes(machine, settings):
    """Return the entries that *settings* need: all are read before any is changed, as CPUs share registers."""
    entries = []
    for setting in ORDER:
        if settings.get(setting):
            found = WANTED[setting](machine, settings[setting])
            if any(change.wanted is not None and change.wanted != change.before for change in found):
                entries += [change for change in found if change.wanted != change.before]
    return entries


class NotReached(Refused):
    """A setting was not changed because its CPU went offline."""


def change_one(machine, entry):
    """Apply *entry*. Raises Refused if the value read back differs."""
    try:
        write_value(machine, entry, entry.wanted)
    except (OSError, subprocess.SubprocessError) as error:
        kind = NotReached if is_offline(machine, entry) else Refused
        raise kind("%s cannot be set to %s: %s" % (entry.where, entry.wanted, error)) from error
    try:
        after = read_value(machine, entry)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused("%s was set to %s and cannot be read back: %s" % (entry.where, entry.wanted, error)) from error
    if after == entry.wanted:
        return after
    if entry.setting in PAGE_KIB:
        raise Refused(
            "expected %s huge pages at %s, found that only %s could be reserved: free memory on that node, reserve "
            "them on the kernel's command line, or want fewer" % (entry.wanted, entry.where, after)
        )
    raise Refused(
        "expected %s to read %s after that was written, found %s: the machine does not take it; take tune_%s and "
        "tune_%s_ok away" % (entry.where, entry.wanted, after, entry.setting, entry.setting)
    )


def put_back(machine, entry):
    """Restore one entry. Return (value before restoring, value read afterwards, error or None)."""
    found = None
    try:
        found = read_value(machine, entry)
        now = found
        for attempt in range(HUGE_PAGES_TRIES if entry.setting in PAGE_KIB else 1):
            if now == entry.before:
                break
            if attempt:
                time.sleep(TRY_S)
            write_value(machine, entry, entry.before)
            now = read_value(machine, entry)
    except (OSError, subprocess.SubprocessError) as error:
        why = "its CPUs are offline: put them online" if is_offline(machine, entry) else str(error)
        return found, None, "%s cannot be put back to %s: %s" % (entry.where, entry.before, why)
    if now != entry.before:
        return found, now, "expected %s to read %s again, found %s" % (entry.where, entry.before, now)
    return found, now, None


def is_offline(machine, entry):
    """Return whether the CPUs of *entry* are known to be offline: all of a frequency policy, or a register's one."""
    try:
        if entry.setting == "governor":
            return not machine.text(os.path.dirname(entry.where) + "/affected_cpus")
        numbers = re.findall(r"/(?:dev/cpu/|cpu)(\d+)/", entry.where)
        return bool(numbers) and machine.text("%s/cpu%s/online" % (CPU, numbers[0])) == "0"
    except OSError:
        return entry.setting == "governor"


def put_all_back(machine, entries, who):
    """Restore *entries* in reverse; return (changes, faults). Side effects are not listed."""
    changes, faults = [], []
    for entry in reversed(entries):
        found, now, fault = put_back(machine, entry)
        if fault:
            faults.append(fault)
        if entry.wanted is not None:
            changes.append(
                {
                    "setting": entry.setting,
                    "where": entry.where,
                    "before": entry.before,
                    "wanted": entry.wanted,
                    "after": entry.wanted if found is None else found,
                    "restored": now,
                    "restored_by": None if fault else who,
                }
            )
    changes.reverse()
    return changes, faults


NUMBERED = re.compile(r"(.*?/(?:policy|node|cpu/?))(\d+)(/.*)")


def ranges(numbers):
    """Return *numbers* in the kernel's format: 0-3,8."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in parts)


def of_ranges(text):
    """Return the numbers of ``0-3,8``."""
    numbers = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def grouped(changes):
    """Return *changes* with those that differ only in the number of a CPU, policy or node combined: policy{0-3}."""
    groups = {}
    for change in changes:
        match = NUMBERED.fullmatch(change["where"])
        rest = tuple(sorted((key, value or "") for key, value in change.items() if key != "where"))
        key = (rest, match.group(1), match.group(3)) if match else (rest, change["where"])
        groups.setdefault(key, []).append((change, int(match.group(2)) if match else None))
    found = []
    for key, members in groups.items():
        change, number = members[0]
        if len(members) == 1 or number is None:
            found.append(change)
        else:
            where = "%s{%s}%s" % (key[1], ranges(member for _, member in members), key[2])
            found.append(dict(change, where=where))
    return found


def ungrouped(where):
    """Return the single paths of a grouped one."""
    match = re.fullmatch(r"(.*)\{([0-9,-]+)\}(.*)", where)
    if not match:
        return [where]
    return ["%s%d%s" % (match.group(1), number, match.group(3)) for number in of_ranges(match.group(2))]


def look_after(machine, changes, who):
    """Return *changes* of a run with the current values, for settings restored by somebody else."""
    looked = []
    for change in changes:
        for where in ungrouped(change["where"]):
            current = dict(change, where=where, restored=None, restored_by=None)
            entry = Entry.of_line(json.dumps([current["setting"], where, current["before"], current["wanted"]]))
            try:
                current["restored"] = read_value(machine, entry)
            except (OSError, subprocess.SubprocessError):
                current["restored"] = None  # missing: unknown
            if current["restored"] == current["before"]:
                current["restored_by"] = who
            looked.append(current)
    return looked


# The reservation


class Reservation:
    """An existing reservation at *path*, opened but not yet checked."""

    def __init__(self, path, machine, descriptor):
        self.path, self.machine, self.descriptor = path, machine, descriptor
        found = os.fstat(descriptor)
        self.owner = found.st_uid
        self.identity = (found.st_dev, found.st_ino)
        self.trusted = found.st_uid == os.geteuid() and not found.st_mode & 0o022
        self.lock = None
        self.holder = self.read_holder()

    @staticmethod
    def find(path, machine):
        """Return the reservation at *path*, or None. Raises Refused if another kind of file is there."""
        try:
            descriptor = files.open_directory(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(
                "expected a directory or nothing at %s, where calibrations reserve the SUT, found another kind of "
                "file or none that may be read (%s); find out who made it and remove it" % (path, error.strerror)
            ) from error
        return Reservation(path, machine, descriptor)

    def close(self):
        """Close it."""
        for descriptor in (self.lock, self.descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self.lock = self.descriptor = None

    def read_holder(self):
        """Return the valid fields of the holder; any user may have written the file."""
        holder = dict.fromkeys(HOLDER_TEXTS + HOLDER_NUMBERS)
        try:
            found = json.loads(files.read_text(HOLDER, files.RESERVATION_BYTES, self.descriptor))
        except (OSError, ValueError, RecursionError):
            return holder
        if isinstance(found, dict):
            for name in HOLDER_TEXTS:
                if isinstance(found.get(name), str):
                    holder[name] = found[name] if self.trusted else printable(found[name])
            for name in HOLDER_NUMBERS:
                if type(found.get(name)) is int and 0 < found[name] < 1 << 31:
                    holder[name] = found[name]
        return holder

    def of_this_boot(self):
        """Return whether it was made after the last boot."""
        return self.holder["boot_id"] == self.machine.boot_id()

    def take_lock(self):
        """Take the lock; return whether its holder is dead."""
        try:
            descriptor = files.open_file(ALIVE, os.O_RDWR, self.descriptor)
        except FileNotFoundError:
            return True  # reservations appear with their lock: this is not one, or a leftover
        except OSError as error:
            place = os.path.join(self.path, ALIVE)
            raise Refused("cannot lock %s: %s; %s" % (place, error.strerror, self.how_to_break())) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self.lock = descriptor
        return True

    def still_there(self):
        """Return whether this reservation is still at the path."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def says(self):
        """Return the holder as text."""
        holder = self.holder
        return "%s of %s, begun at %s, for SUT %s, as %s" % (
            "run " + printable(holder["run_id"]) if holder["run_id"] else "a run that does not say which",
            printable(holder["controller"] or "a controller that does not say its name"),
            printable(holder["started_at"] or "an unknown time"),
            printable(holder["sut"] or "unknown"),
            files.user_name(self.owner),
        )

    def how_to_break(self):
        """Return instructions for ending it by hand."""
        run, sut = self.holder["run_id"], self.holder["sut"]
        if run and sut and re.fullmatch(r"[A-Za-z0-9._-]+", run) and re.fullmatch(r"[A-Za-z0-9._-]+", sut):
            return (
                "wait for it, or, where it is certain that it is dead, end it as that user or as root with: "
                "ansible-playbook playbooks/cleanup.yml -e calibration_run_id=%s --limit %s" % (run, sut)
            )
        return "find out whose it is, and remove %s on the SUT" % self.path

    # Changes

    def journal(self, mark=0):
        """Return the entries behind *mark*. Raises Refused if the journal is invalid."""
        try:
            text = files.read_text(JOURNAL, JOURNAL_BYTES, self.descriptor)
        except FileNotFoundError:
            text = ""
        if mark and (mark > len(text) or text[mark - 1] != "\n"):
            raise Refused("expected a line of the journal to end at %d, found none that does" % mark)
        # An incomplete last line was not synced: its settings were not changed.
        return [Entry.of_line(line) for line in text[mark:].split("\n")[:-1]]

    def write_journal(self, entries):
        """Append *entries*, synced to disk; return the end position.

        Raises Refused, with nothing changed.
        """
        try:
            try:
                descriptor = files.open_file(JOURNAL, os.O_WRONLY | os.O_APPEND, self.descriptor)
            except FileNotFoundError:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(JOURNAL, flags, 0o600, dir_fd=self.descriptor)
            try:
                size = os.fstat(descriptor).st_size
                rest = "".join(entry.line() for entry in entries).encode("utf-8")
                try:
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
                    os.fsync(descriptor)
                    os.fsync(self.descriptor)
                except OSError:
                    os.ftruncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Refused(
                "expected to note in %s what a setting was before it is changed, found that it cannot be written: %s; "
                "nothing was changed. Free some space on the SUT" % (os.path.join(self.path, JOURNAL), error.strerror)
            ) from error
        return size

    def cut_journal(self, mark):
        """Drop the entries behind *mark*, which have been restored."""
        descriptor = files.open_file(JOURNAL, os.O_WRONLY, self.descriptor)
        try:
            os.ftruncate(descriptor, mark)
        finally:
            os.close(descriptor)

    def tell(self, message):
        """Send a message to the guardian through the FIFO. Return whether there is a reader."""
        try:
            descriptor = files.open_file(LEASE, os.O_WRONLY, self.descriptor, stat.S_IFIFO)
        except OSError:
            return False  # no reader, or not a FIFO
        try:
            os.write(descriptor, message)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def renew(self, lease_s):
        """Extend the run's lease to *lease_s* seconds from now."""
        return self.tell(b"%012d\n" % int(self.machine.uptime_s() + lease_s + 1))

    def dismiss_guardian(self):
        """End the guardian, which has nothing left to restore, and take its lock. Raises Refused if it does not end."""
        for act in (lambda: self.tell(RELEASE_WORD), self.kill_guardian):
            act()
            until = time.monotonic() + RELEASE_S
            while time.monotonic() < until:
                if self.take_lock():
                    return
                time.sleep(0.02)
        raise Refused(
            "expected the guardian of the reservation %s to end, found its lock still held; find out which process "
            "has %s open" % (self.path, os.path.join(self.path, ALIVE))
        )

    def kill_guardian(self):
        """Kill an unresponsive guardian, if the holder's file is trusted."""
        if self.trusted and self.holder["guardian"]:
            try:
                os.kill(self.holder["guardian"], signal.SIGKILL)
            except ProcessLookupError:
                return

    def undo(self, who):
        """Restore the run's changes and remove its directory; return (changes, processes ended).

        Raises Refused if something could not be restored. Another user's journal is not used: what an ordinary user may
        write must not make root write to the machine. A reboot resets the settings by itself.
        """
        ended, changes, faults, refused = [], [], [], None
        try:
            directory = self.private_directory()
        except Refused as error:
            directory, refused = None, error  # settings are restored anyway
        with directory or contextlib.nullcontext():
            if directory:
                ended = directory.end_processes()
            if self.trusted and self.of_this_boot():
                changes, faults = put_all_back(self.machine, self.journal(), who)
            if faults:
                raise Refused("%s. The reservation and its journal stay until that is done" % "; ".join(faults[:8]))
            if refused:
                raise refused
            if directory:
                directory.remove()
        return changes, ended

    def private_directory(self):
        """Return the run's directory, or None. A path in another user's file is used only if that user owns it.

        Raises Refused if something else is there.
        """
        path = self.holder["directory"]
        if not path or not os.path.isabs(path) or not os.path.basename(path).startswith(files.PREFIX):
            return None
        if self.trusted:
            return files.PrivateDirectory(path, self.owner)
        try:
            directory = files.PrivateDirectory(path, self.owner)
        except (Refused, OSError):
            return None
        return directory if directory.exists else None

    def remove(self):
        """Remove it: first rename it away, so that no partial one is ever at the path."""
        if not self.still_there():
            return
        aside = "%s.%s.%s" % (self.path, self.machine.boot_id(), os.urandom(4).hex())
        os.rename(self.path, aside)
        shutil.rmtree(aside)


def check_parent(path):
    """Raise Refused if others could replace the reservation at *path*."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        raise Refused("no directory %s to keep the reservation in; create it or correct the path" % parent)
    unsafe = files.unsafe_places(parent, os.geteuid())
    if unsafe:
        raise Refused(
            "others could replace the reservation %s: %s; make each directory root's, and writable by root alone or "
            "sticky (mode 1777)" % (path, "; ".join("%(path)s: %(reason)s" % place for place in unsafe))
        )


ABANDONED = r"(\.([0-9a-f-]{36})\.[a-z0-9_]{8})+"
"""Suffix of a reservation while it is made or removed: boot id and random characters."""


def remove_abandoned(path, machine):
    """Remove this user's unfinished reservations beside *path* from before a restart."""
    parent, name = os.path.split(path)
    for item in os.listdir(parent):
        match = re.fullmatch(re.escape(name) + ABANDONED, item)
        place = os.path.join(parent, item)
        if not match or match.group(2) == machine.boot_id():
            continue
        state = os.lstat(place)
        if state.st_uid != os.geteuid() or not stat.S_ISDIR(state.st_mode):
            continue
        found = Reservation.find(place, machine)
        if found is None:
            continue
        try:
            if found.trusted and not found.of_this_boot() and found.take_lock():
                found.undo("cleanup")
                found.remove()
        finally:
            found.close()


def describe_taken(found, why, changes):
    """Return the report on a reservation that was taken over."""
    shown = {name: printable(text) for name, text in found.holder.items() if isinstance(text, str)}
    return {"holder": shown, "why": why, "changes": grouped(changes)}


def make_room(path, machine, wanted, *, resume, check_mode):
    """Return the report on the stale reservation removed from *path*, or None if there was none.

    Raises Held if the SUT is reserved, Refused if what is there cannot be removed.
    """
    found = Reservation.find(path, machine)
    if found is None:
        return None
    try:
        held = "expected a SUT that nobody has reserved, found %s; %s" % (found.says(), found.how_to_break())
        same_run = all(found.holder[name] == wanted[name] for name in ("run_id", "sut"))
        if not found.trusted and os.geteuid() != 0:
            raise Held(held)
        this_boot = found.of_this_boot()
        if check_mode:
            if not found.take_lock() and not same_run:
                raise Held(held)
            return describe_taken(found, "would be taken over", [])
        if found.take_lock():
            why = "its guardian is gone" if this_boot else "the SUT was restarted"
        elif same_run and resume and found.trusted:
            found.renew(READY_S + RELEASE_S)
            why = "its run is resumed"
        else:
            raise Held(held)
        if found.lock is not None and not found.still_there():
            return None  # another process removed it first
        try:
            changes, _ = found.undo("cleanup")
            if found.lock is None and why == "its run is resumed":
                found.dismiss_guardian()
        except (Refused, OSError) as error:
            raise Refused("what %s left on the SUT cannot be put right: %s" % (found.says(), error)) from error
        found.remove()
        return describe_taken(found, why, changes)
    finally:
        found.close()


def mode_for_all(directory, mode):
    """Set exactly *mode* on *directory*, regardless of the umask."""
    os.chmod(directory, mode)


def guardian_commands(machine):
    """Return command prefixes to start a guardian, best first.

    Ending a systemd session may end all its processes. As root, the guardian gets a scope of its own if systemd runs;
    otherwise a POSIX session of its own.
    """
    ways = []
    if os.geteuid() == 0 and machine.root == "" and os.path.isdir("/run/systemd/system"):
        program = shutil.which("systemd-run", path="/usr/bin:/bin")
        if program:
            ways.append([program, "--scope", "--quiet", "--collect", "--slice=system.slice", "--"])
    return [*ways, []]


def start_guardian(place, directory, lock, *, lease_s, machine, sources):
    """Start the guardian of the reservation at *place* that holds *lock*; return its process id."""
    for module, text in sources.items():
        with open(os.path.join(directory, module), "w") as stream:
            stream.write(text)
    program = os.path.join(directory, GUARDIAN)
    until = int(machine.uptime_s() + lease_s + 1)
    python = sys.executable or "/usr/bin/python3"
    # A file, because the guardian outlives the reader of a pipe. It is removed with the run's directory.
    with open(os.path.join(directory, "guardian.err"), "x+b") as errors:
        for way in guardian_commands(machine):
            reader, writer = os.pipe()
            os.set_inheritable(writer, True)
            try:
                command = [*way, python, "-I", "-S", "-B", program, place, directory]
                process = subprocess.Popen(
                    [*command, str(lock), str(writer), str(until), machine.root],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                    pass_fds=(lock, writer),
                    start_new_session=True,
                )
                os.close(writer)
                writer = None
                ready, _, _ = select.select([reader], [], [], READY_S)
                if ready and os.read(reader, 1) == b"r":
                    process.returncode = 0  # it outlives this process: do not wait for it
                    return process.pid
                process.kill()
                code = process.wait()
            finally:
                os.close(reader)
                if writer is not None:
                    os.close(writer)
        errors.seek(-min(errors.tell(), TEXT_BYTES), os.SEEK_END)
        said = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise Refused(
        "the guardian, which restores the SUT when the run cannot, does not start with %s: %s; nothing was changed"
        % (python, printable(said) if said else "exit code %d" % code)
    )


def prepare(path, machine, base, wanted, *, lease_s, sources):
    """Create a reservation with its guardian beside *path*; return (its path, its lock, its holder)."""
    name = "%s%s-%s-%s" % (files.PREFIX, wanted["run_id"], wanted["sut"], os.urandom(4).hex())
    directory, boot_id, token = os.path.join(base, name), machine.boot_id(), os.urandom(16).hex()
    holder = dict(wanted, directory=directory, boot_id=boot_id, guardian=None, token=token)
    made = []
    lock = None
    try:
        place = tempfile.mkdtemp(prefix="%s.%s." % (os.path.basename(path), boot_id), dir=os.path.dirname(path))
        made.append(place)
        here = files.open_directory(place)
        try:
            # With these two, the next reservation finds all leftovers of a restart at any moment.
            write_whole(HOLDER, json.dumps(holder), 0o644, here)
            os.mkdir(directory, 0o700)
            made.append(directory)
            lock = os.open(ALIVE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=here)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.set_inheritable(lock, True)
            os.mkfifo(LEASE, 0o600, dir_fd=here)
            guardian = start_guardian(place, directory, lock, lease_s=lease_s, machine=machine, sources=sources)
            holder["guardian"] = guardian
            try:
                os.unlink(HOLDER, dir_fd=here)
                write_whole(HOLDER, json.dumps(holder, indent=1, sort_keys=True) + "\n", 0o644, here)
                write_whole(RUN, "%s %d\n" % (token, guardian), 0o644, here)
                mode_for_all(place, 0o755)
                os.fsync(here)
            except OSError:
                os.kill(guardian, signal.SIGKILL)
                raise
        finally:
            os.close(here)
    except (Refused, OSError):
        if lock is not None:
            os.close(lock)
        for item in made:
            shutil.rmtree(item, ignore_errors=True)
        raise
    return place, lock, holder


def hold(path, machine, base, wanted, *, lease_s, sources, resume=False, check_mode=False):
    """Reserve the SUT; return the module's answer. Raises Held or Refused."""
    check_parent(path)
    taken = make_room(path, machine, wanted, resume=resume, check_mode=check_mode)
    if check_mode:
        directory = os.path.join(base, "%s%s-%s-checkmode" % (files.PREFIX, wanted["run_id"], wanted["sut"]))
        absent = {"directory": directory, "boot_id": machine.boot_id(), "guardian": None, "token": "0" * 32}
        return dict(wanted, **absent), taken
    remove_abandoned(path, machine)
    try:
        place, lock, holder = prepare(path, machine, base, wanted, lease_s=lease_s, sources=sources)
    except OSError as error:
        raise Refused(
            "expected to reserve the SUT at %s with a private directory in %s, found that it cannot be done: %s"
            % (path, base, error)
        ) from error
    for _ in range(8):
        try:
            os.rename(place, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM):
                discard(place, lock, holder)
                raise Refused("expected to reserve the SUT at %s: %s" % (path, error.strerror)) from error
        else:
            os.close(lock)  # now held by the guardian
            return holder, taken
        try:
            taken = make_room(path, machine, wanted, resume=resume, check_mode=check_mode) or taken
        except (Refused, OSError):
            discard(place, lock, holder)
            raise
    discard(place, lock, holder)
    raise Refused("expected to reserve the SUT at %s, found that others take it again and again; try later" % path)


def discard(place, lock, holder):
    """Remove a reservation that was not moved to its path."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder["guardian"], signal.SIGKILL)
    os.close(lock)
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(holder["directory"], ignore_errors=True)


def own_reservation(path, machine, token):
    """Return the reservation with *token*. Raises Refused if the SUT is no longer reserved for that run."""
    found = Reservation.find(path, machine)
    if found is not None:
        if found.trusted and found.holder["token"] == token and found.of_this_boot() and not found.take_lock():
            return found
        found.close()
    raise Refused(
        "expected the SUT to be reserved for this run at %s, found that it is not any more: its lease was over, "
        "or somebody ended it" % path
    )


def tune(path, machine, token, settings, *, lease_s, check_mode=False):
    """Change *settings*; return (changes, mark for restoring them before the end of the run).

    If one fails, restores all of them and raises Refused.
    """
    if check_mode:
        return told(plan_changes(machine, settings)), 0
    found = own_reservation(path, machine, token)
    try:
        found.renew(lease_s)
        try:
            entries = plan_changes(machine, settings)
        except OSError as error:
            raise Refused("the SUT's settings cannot be read: %s; nothing was changed" % error) from error
        mark = found.write_journal(entries)
        for count, entry in enumerate(entries):
            if entry.wanted is None:
                continue
            try:
                change_one(machine, entry)
            except Refused as error:
                reached = count if isinstance(error, NotReached) else count + 1
                _, faults = put_all_back(machine, entries[:reached], "run")
                if not faults:
                    found.cut_journal(mark)
                state = "; ".join(["some of it could not be put back", *faults[:8]]) if faults else "all was put back"
                raise Refused("%s. Of these changes %s" % (error, state)) from error
        return told(entries), mark
    finally:
        found.close()


def untune(path, machine, token, mark, *, lease_s):
    """Restore what was changed since *mark*, in reverse, before the end of the run; return the changes.

    Raises Refused if a setting cannot be restored: it stays in the journal and is tried again at the end.
    """
    found = own_reservation(path, machine, token)
    try:
        found.renew(lease_s)
        changes, faults = put_all_back(machine, found.journal(mark), "run")
        if faults:
            raise Refused("; ".join(faults[:8]))
        found.cut_journal(mark)
        return grouped(changes)
    finally:
        found.close()


def note(path, machine, token, entries):
    """Record *entries* to be restored at the end of the run, before starting a program that may change them.

    Raises Refused if the SUT is no longer reserved for the run, or its journal cannot be written.
    """
    found = own_reservation(path, machine, token)
    try:
        known = {item.line() for item in found.journal()}
        found.write_journal([entry for entry in entries if entry.line() not in known])
    finally:
        found.close()


def told(entries):
    """Return *entries* as changes already made, grouped if only a number differs."""
    return grouped(
        [
            {
                "setting": entry.setting,
                "where": entry.where,
                "before": entry.before,
                "wanted": entry.wanted,
                "after": entry.wanted,
                "restored": None,
                "restored_by": None,
            }
            for entry in entries
            if entry.wanted is not None
        ]
    )


def private_directories(base, run_id, sut):
    """Return the directories of runs with this identifier for this SUT in *base*."""
    name = re.compile(re.escape("%s%s-%s-" % (files.PREFIX, run_id, sut)) + "[a-z0-9_]{8}")
    try:
        return [os.path.join(base, item) for item in sorted(os.listdir(base)) if name.fullmatch(item)]
    except FileNotFoundError:
        return []


def release(path, machine, base, run_id, sut, *, changes=(), who="run", check_mode=False):
    """Restore everything and release the SUT, if it is reserved for this run; return the module's answer.

    If it no longer is, its guardian has done so: then the current values of *changes*, made by the run, are checked.
    """
    answer = {"changes": [], "ended": [], "released": False, "changed": False}
    found = Reservation.find(path, machine)
    try:
        if found is not None and (found.holder["run_id"], found.holder["sut"]) == (run_id, sut):
            if not found.trusted and os.geteuid() != 0:
                raise Refused(
                    "expected the reservation %s to belong to this login, found it to belong to %s; clean up as that "
                    "user or as root (--become)" % (path, files.user_name(found.owner))
                )
            answer["changed"] = True
            if check_mode:
                return answer
            if not found.take_lock():
                # The guardian stays active while settings are restored: this process may be killed meanwhile.
                found.renew(RELEASE_S + files.END_WAIT_S + HUGE_PAGES_TRIES * TRY_S + 60)
            put, answer["ended"] = found.undo(who)
            answer["changes"] = grouped(put)
            if found.lock is None:
                found.dismiss_guardian()
            found.remove()
            answer["released"] = True
        elif changes:
            other = found is not None and not found.take_lock()
            looked = [dict(change, restored=None, restored_by=None) for change in changes] if other else None
            answer["changes"] = looked or grouped(look_after(machine, changes, "guardian"))
        if not check_mode:
            remove_abandoned(path, machine)
        for directory in private_directories(base, run_id, sut):
            if os.lstat(directory).st_uid == os.geteuid():
                answer["changed"] = True
                if not check_mode:
                    answer["ended"] = answer["ended"] + files.remove_private(directory, os.geteuid())
        return answer
    finally:
        if found is not None:
            found.close()


def look(path, machine):
    """Return the holder of the SUT, and whether its guardian lives; None and False if it is free."""
    found = Reservation.find(path, machine)
    if found is None:
        return None, False
    try:
        if found.trusted or os.geteuid() == 0:
            return found.holder, not found.take_lock() and found.of_this_boot()
        alive = found.holder["guardian"] is not None and os.path.exists("/proc/%d" % found.holder["guardian"])
        return found.holder, alive and found.of_this_boot()
    finally:
        found.close()


# The reservation of a traffic generator, as CSIT makes it


def tg_name(run_id, sut):
    """Return the name of a SUT's file in the reservation of a traffic generator."""
    return "%s%s-%s" % (files.PREFIX, run_id, sut)


def tg_holders(path):
    """Return the holders of the traffic generator as text."""
    found = os.lstat(path)
    names = sorted(os.listdir(path)) if stat.S_ISDIR(found.st_mode) else []
    shown = ", ".join(printable(name, 128) for name in names[:10]) or "no file in it"
    more = " and %d more" % (len(names) - 10) if len(names) > 10 else ""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
    return "%s%s, by %s, changed last at %s on that machine's clock" % (
        shown,
        more,
        files.user_name(found.st_uid),
        since,
    )


def tg_is_shared(path, run_id):
    """Return whether another SUT of this run made the reservation; None if it is empty (so far)."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    names = os.listdir(path)
    return all(name.startswith("%s%s-" % (files.PREFIX, run_id)) for name in names) if names else None


def tg_hold(path, run_id, sut, text, check_mode):
    """Take CSIT's reservation at *path* for a SUT of a run; return whether it is new. Raises Held."""
    name = tg_name(run_id, sut)
    until = time.monotonic() + TG_EMPTY_S
    while True:
        if check_mode and not os.path.lexists(path):
            return True
        try:
            if not check_mode:
                os.mkdir(path, 0o755)
            shared = True
        except FileExistsError:
            shared = None
        try:
            shared = shared or tg_is_shared(path, run_id)
            if shared is None and time.monotonic() < until:
                time.sleep(0.1)  # another SUT of this run may be making it
                continue
            if not shared:
                raise Held(
                    "expected a traffic generator that nobody has reserved, found %s there: %s. Wait for it; one that "
                    "is certainly dead is ended with: rm -r %s on the traffic generator, or, if a calibration left "
                    "it, with playbooks/cleanup.yml for that run" % (path, tg_holders(path), path)
                )
            if check_mode:
                return False
            here = files.open_directory(path)
            try:
                write_whole(name, text + "\n", 0o644, here)
            except FileExistsError:
                return False
            finally:
                os.close(here)
        except FileNotFoundError:
            continue  # the last SUT released it meanwhile
        return True


def tg_release(path, run_id, sut, check_mode):
    """Release the traffic generator for this SUT of this run; return whether it was held."""
    place = os.path.join(path, tg_name(run_id, sut))
    if check_mode:
        return os.path.lexists(place)
    try:
        os.unlink(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
    return True


# The guardian


class LeaseOver(Exception):
    """The lease expired, or this process was told to end."""


def keep_off_measured_cpus(machine):
    """Move to CPUs that are not isolated, if there are any and the login may choose."""
    isolated = set()
    for name in ("isolated", "nohz_full"):
        try:
            text = machine.text(CPU + "/" + name)
            isolated.update(of_ranges(text) if re.fullmatch("[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", text) else ())
        except OSError:
            continue
    allowed = os.sched_getaffinity(0)
    if allowed & isolated and allowed - isolated:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed - isolated)


def end_lease(*_):
    """Treat the first request to end, as at a shutdown, as the end of the lease."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise LeaseOver


def messages(text):
    """Parse the last complete line of *text*: ``release``, a lease, or None if unknown.

    A lease is (until when, the process of the step that renewed it, seconds that the run has after that process's end);
    the latter two are None if no step did.
    """
    for line in reversed([line for line in text.split(b"\n") if line]):
        if line == RELEASE_WORD.strip():
            return "release"
        if re.fullmatch(rb"[0-9]{1,12}( [0-9]{1,10} [0-9]{1,12})?", line):
            until, process, idle_s = ([int(word) for word in line.split()] + [None, None])[:3]
            return until, process, idle_s
    return None


def open_process(process):
    """Return a descriptor that becomes readable when *process* ends, None if the SUT does not support it.

    Raises ProcessLookupError if it has ended already.
    """
    try:
        return os.pidfd_open(process)
    except AttributeError:
        return None  # Python 3.8
    except ProcessLookupError:
        raise
    except OSError:
        return None  # an old kernel


def await_end(machine, fifo, until):
    """Sleep until the lease expires (False) or the run has released the SUT itself (True).

    A step's lease extends beyond its deadline, which may be hours away. If its process ends earlier, as the kernel
    reports without polling, the run must report sooner.
    """
    step, idle_s = None, None
    try:
        while True:
            left = until - machine.uptime_s()
            if left <= 0:
                return False
            poller = select.poll()
            for item in (fifo, step):
                if item is not None:
                    poller.register(item, select.POLLIN)
            ready = [item for item, _ in poller.poll(int(min(left, SLEEP_S) * 1000) + 1)]
            said = messages(os.read(fifo, 4096)) if fifo in ready else None
            if said == "release":
                return True
            ended = step in ready and said is None
            if step is not None and (ended or said is not None):
                os.close(step)
                step = None
            if said is not None:
                until, process, idle_s = said
                try:
                    step = None if process is None else open_process(process)
                except ProcessLookupError:
                    ended = True
            if ended:
                until = min(until, int(machine.uptime_s() + idle_s + 1))
    finally:
        if step is not None:
            os.close(step)


def guard(place, directory, *, lock, ready, until, root):
    """Guard the reservation at *place*, which another process will rename to its final path."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    machine = Machine(root)
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("-1000")
    except OSError:
        pass  # not permitted; the guardian is small, so the OOM killer picks others first
    keep_off_measured_cpus(machine)
    here = files.open_directory(place)
    # Open for writing too, so that a closing writer causes no end of file.
    fifo = files.open_file(LEASE, os.O_RDWR, here, stat.S_IFIFO)
    try:
        # Nothing to restore until here; from here on every request to end leads to restoring.
        signal.signal(signal.SIGTERM, end_lease)
        os.write(ready, b"r")
        os.close(ready)
        if await_end(machine, fifo, until):
            return 0
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except LeaseOver:
        pass
    # The current name: the process that made it renamed it, or was killed before.
    final = os.readlink("/proc/self/fd/%d" % here)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(RUN, dir_fd=here)  # no further step begins
    found = Reservation(final, machine, here)
    found.holder["directory"] = directory
    found.holder["boot_id"] = machine.boot_id()
    found.undo("guardian")
    found.remove()
    os.close(lock)
    return 0


def main():
    """Run as the guardian."""
    place, directory, lock, ready, until, root = sys.argv[1:7]
    return guard(place, directory, lock=int(lock), ready=int(ready), until=int(until), root=root)


if __name__ == "__main__":
    sys.exit(main())
