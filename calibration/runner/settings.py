# SPDX-License-Identifier: Apache-2.0
"""The settings of a SUT that a run may change: how they are read, written, restored and verified.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import collections
import errno
import glob
import json
import os
import re
import struct
import subprocess
import time
import typing

from calibration.runner import files, prefetchers
from calibration.runner.files import Refused, printable
from calibration.runner.ranges import format_ranges

HUGE_PAGES_TRIES = 10
"""A process's pages are freed some time after it ends; the number is read this often, TRY_S apart."""

TRY_S = 0.5


class Machine:
    """The files of a machine below *root*: this machine, or a copy in a test."""

    def __init__(self, root="/"):
        self.root = root.rstrip("/")

    def path(self, where):
        """Return the real path of *where*."""
        return self.root + where

    def text(self, where):
        """Return the stripped text of a file."""
        return files.read_text(self.path(where), files.SETTING_BYTES).strip()

    def write(self, where, text):
        """Write *text* to a file in one call, as /sys requires."""
        descriptor = os.open(self.path(where), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)

    def read_device(self, path, offset, count):
        """Return *count* bytes at *offset* of a CPU's device. Raises OSError if there are fewer."""
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            raw = os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)
        if len(raw) != count:
            raise OSError(errno.EIO, "the register has no value", self.path(path))
        return raw

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
RELEASE = "/proc/sys/kernel/osrelease"
DSCR, DSCR_DEFAULT = CPU + "/cpu%d/dscr", CPU + "/dscr_default"
MSR = "/dev/cpu/%d/msr:0x%x"
IRQBALANCE = "irqbalance.service"
NODE_PAGES = "/sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages"
GENERAL_PAGES = "/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages"
PAGE_KIB = {"hugepages_2m": 2048, "hugepages_1g": 1048576}

PAGES_PLACE = r"(/sys/devices/system/node/node\d+|/sys/kernel/mm)/hugepages/hugepages-%dkB/nr_hugepages"
PLACES = {
    **{setting: PAGES_PLACE % kib for setting, kib in PAGE_KIB.items()},
    "governor": CPU + r"/cpufreq/policy\d+/(scaling_governor|scaling_setspeed|energy_performance_preference)",
    "turbo": CPU + r"/(intel_pstate/(no_turbo|min_perf_pct)|cpufreq/boost|cpufreq/policy\d+/(boost|scaling_max_freq))",
    "prefetchers": r"/dev/cpu/\d+/msr:0x(1a4|6d|1320|c0000108)|" + CPU + r"/(cpu\d+/dscr|dscr_default)",
    "irqbalance": r"irqbalance\.service",
}
"""Paths that each setting may write. Nothing else is ever written, whatever a journal says."""

VALUES = {
    **dict.fromkeys(PAGE_KIB, r"\d{1,12}"),
    "governor": r"[a-z_0-9]{1,64}",
    "turbo": r"\d{1,12}",
    "prefetchers": r"(0x)?[0-9a-f]{1,16}",
    "irqbalance": r"active|inactive",
}


class Entry(collections.namedtuple("Entry", "setting where before wanted")):
    """One setting at one path: the value before, and the value wanted (None: it may change along with another)."""

    __slots__ = ()

    def line(self):
        """Return the entry's line in the journal."""
        return json.dumps(self) + "\n"

    @staticmethod
    def of_line(line):
        """Return the entry of a journal line. Raises Refused if it is not valid."""
        try:
            entry = Entry(*json.loads(line))
            if re.fullmatch(PLACES[entry.setting], entry.where) and re.fullmatch(VALUES[entry.setting], entry.before):
                return entry
        except (ValueError, TypeError, KeyError):
            pass
        raise Refused(f"invalid line in the journal of settings: {printable(line)}")

    def change(self, after, restored=None, restored_by=None):
        """Return the entry as a change that was made."""
        return dict(self._asdict(), after=after, restored=restored, restored_by=restored_by)


# Values


def register_of(where):
    """Return (path, number) of the model-specific register *where*, None for other paths."""
    path, _, number = where.partition(":")
    return (path, int(number, 16)) if number else None


def read_value(machine, where):
    """Return the current value at *where* as text."""
    register = register_of(where)
    if register:
        return hex(struct.unpack("<Q", machine.read_device(*register, 8))[0])
    if where == IRQBALANCE:
        answer = machine.systemctl("is-active", IRQBALANCE)
        return "active" if answer is not None and answer[0] == 0 else "inactive"
    text = machine.text(where)
    surplus = where.replace("/nr_", "/surplus_")
    if surplus != where and machine.exists(surplus):
        # In use by somebody when the number was lowered: the kernel frees them when they are no longer.
        return str(int(text) - int(machine.text(surplus)))
    return text


def write_value(machine, where, value):
    """Write *value* to *where*. Raises OSError if that fails."""
    register = register_of(where)
    if register:
        descriptor = os.open(machine.path(register[0]), os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.pwrite(descriptor, struct.pack("<Q", int(value, 16)), register[1])
        finally:
            os.close(descriptor)
    elif where == IRQBALANCE:
        answer = machine.systemctl("start" if value == "active" else "stop", IRQBALANCE)
        if answer is None or answer[0] != 0:
            raise OSError(errno.EIO, f"systemctl: {answer[1] if answer else 'not found'}", IRQBALANCE)
    else:
        machine.write(where, value)


# Planning changes


def plan_huge_pages(machine, setting, counts):
    """Return the entries that reserve *counts* huge pages (by node) of the setting's size."""
    kib = PAGE_KIB[setting]
    entries = []
    for node, count in sorted((int(node), int(count)) for node, count in counts.items()):
        where = NODE_PAGES % (node, kib)
        if not machine.exists(where):
            where = GENERAL_PAGES % kib
            if node != 0 or machine.glob("/sys/devices/system/node/node[0-9]*") or not machine.exists(where):
                raise Refused(f"node {node} has no huge pages of {kib} KiB: correct tune_{setting}")
        before = read_value(machine, where)
        if int(before) > count:
            raise Refused(
                f"node {node} has {before} huge pages of {kib} KiB, more than the {count} of tune_{setting}, and they "
                "may be in use: free them yourself or request as many"
            )
        entries.append(Entry(setting, where, before, str(count)))
    return entries


def active_policies(machine):
    """Return the directories of the frequency policies that have online CPUs."""
    found = []
    for policy in machine.glob(CPU + "/cpufreq/policy[0-9]*"):
        try:
            if machine.text(policy + "/affected_cpus"):
                found.append(policy)
        except FileNotFoundError:
            found.append(policy)  # they went offline meanwhile: it has no file that could be changed
        except OSError as error:
            if error.errno != errno.EBUSY:  # all its CPUs are offline
                raise
    return found


def plan_governor(machine, wanted):
    """Return the entries that set the governor *wanted* in every frequency policy, and side effects."""
    entries = []
    for policy in active_policies(machine):
        where = policy + "/scaling_governor"
        try:
            known = machine.text(policy + "/scaling_available_governors").split()
            if wanted not in known:
                raise Refused(f"no governor {wanted} in {policy}: set tune_governor to {printable(' or '.join(known))}")
            preference = policy + "/energy_performance_preference"
            if machine.exists(preference):
                entries.append(Entry("governor", preference, machine.text(preference), None))
            before = machine.text(where)
            if before == "userspace":  # which forgets its speed when another governor takes over
                speed = policy + "/scaling_setspeed"
                entries.append(Entry("governor", speed, machine.text(speed), None))
            entries.append(Entry("governor", where, before, wanted))
        except FileNotFoundError:
            continue  # its CPUs went offline meanwhile
    if not entries:
        raise Refused(
            f"no frequency policies in {CPU}/cpufreq: the firmware or a hypervisor sets the frequency; "
            "remove tune_governor"
        )
    return entries


UNSET_POLICY_BOOST = re.compile(r"6\.(6\.([0-9]|[1-3][0-9]|40)|[78]\.(?!0-\d)\d+|9\.[0-9])(?!\d)")
"""Releases of Linux that have ``policyN/boost`` and leave it at 0 where the driver does not set it, with turbo on.

From 218a06a79d9a in Linux 6.6 to d92467ad9d9e in 6.10, 6.9.10 and 6.6.41; Ubuntu's 6.8.0-N may have the latter.
"""


KEEPS_LIMIT = ("acpi-cpufreq", "amd-pstate")
"""Drivers that leave ``scaling_max_freq`` as it was asked for when turbo is switched; with them it is lower while
something else limits the clock, such as the firmware's power cap, and must not be restored to that.
"""


def policy_boost_counts(release: str, driver: str) -> bool:
    """Return whether ``boost`` of a frequency policy says what Linux *release* does with that *driver*."""
    return driver.startswith("amd-pstate") or not UNSET_POLICY_BOOST.match(release)


def pstate_is_off(machine):
    """Return whether intel_pstate drives no CPU: its files then stay, but cannot be read or written."""
    where = CPU + "/intel_pstate/status"
    return machine.exists(where) and machine.text(where) == "off"


def plan_turbo(machine, wanted):
    """Return the entries that switch turbo on or off: one switch for all CPUs, or one for each policy, or both.

    In Linux (``drivers/cpufreq/cpufreq.c``), the general ``boost`` overwrites that of each policy, which cannot be
    written while the general one is 0, and with most drivers both set ``scaling_max_freq``. So the general one is
    switched on before, and off after those of the policies; restoring uses the reverse order.
    """
    where = CPU + "/intel_pstate/no_turbo"
    if machine.exists(where) and not pstate_is_off(machine):
        # Without turbo, Linux lowers a smallest share of the clock that only turbo reaches, and leaves it so.
        least = CPU + "/intel_pstate/min_perf_pct"
        shares = [Entry("turbo", least, machine.text(least), None)] if machine.exists(least) else []
        return [*shares, Entry("turbo", where, machine.text(where), {"on": "0", "off": "1"}[wanted])]
    value = {"on": "1", "off": "0"}[wanted]
    own, limits = [], []
    release = machine.text(RELEASE) if machine.exists(RELEASE) else ""
    for policy in active_policies(machine):
        where, limit, driver = (policy + name for name in ("/boost", "/scaling_max_freq", "/scaling_driver"))
        try:
            driver = machine.text(driver) if machine.exists(driver) else ""
            if machine.exists(where) and policy_boost_counts(release, driver):
                before = machine.text(where)
                own.append(Entry("turbo", where, before, value if before != value else None))
            if machine.exists(limit) and not driver.startswith(KEEPS_LIMIT):
                limits.append(Entry("turbo", limit, machine.text(limit), None))
        except FileNotFoundError:
            continue  # its CPUs went offline meanwhile
    where = CPU + "/cpufreq/boost"
    general = [Entry("turbo", where, machine.text(where), value)] if machine.exists(where) else []
    if not own and not general:
        raise Refused(
            "the kernel cannot switch turbo: no intel_pstate/no_turbo, cpufreq/boost or cpufreq/policy*/boost in "
            f"{CPU}; remove tune_turbo"
        )
    if own and all(entry.wanted is None for entry in own):
        return []  # what the policies have decides
    return limits + (general + own if wanted == "on" else own + general)


REMOVE_PREFETCHERS = "remove tune_prefetchers and tune_prefetchers_ok"


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
    for table in prefetchers.PREFETCH_TABLES:
        of_family = (table.vendor, table.family) == (rows.get("vendor_id"), family)
        if of_family and (table.models is None or model in table.models):
            return table
    return None


def has_prefetch_register(machine, number):
    """Return whether an AMD processor reports the register. Raises OSError if it cannot be queried."""
    device = "/dev/cpu/%d/cpuid" % number
    # Beyond the last leaf, an emulator returns another one.
    last, features = (
        struct.unpack("<4I", machine.read_device(device, leaf, 16))[0] for leaf in (0x80000000, prefetchers.LEAF)
    )
    return last >= prefetchers.LEAF and bool(features >> prefetchers.LEAF_BIT & 1)


def prefetch_registers(machine, number, rows):
    """Return the documented bits of CPU *number* by register. Raises Refused if undocumented."""
    table = prefetch_table(rows)
    if table is None and "CPU implementer" in rows:
        raise Refused(
            "only the firmware can switch the prefetchers of an Arm processor (in registers such as CPUECTLR_EL1): "
            "use the firmware's menu, and " + REMOVE_PREFETCHERS
        )
    if table is None:
        model = "%s family %s model %s" % tuple(
            printable(rows.get(key, "?"), 64) for key in ("vendor_id", "cpu family", "model")
        )
        raise Refused(
            f"the prefetcher registers of {model} are not documented (docs/guide/changes.rst): {REMOVE_PREFETCHERS}"
        )
    if table.vendor == "AuthenticAMD":
        try:
            has = has_prefetch_register(machine, number)
        except OSError as error:
            raise Refused(
                f"/dev/cpu/{number}/cpuid cannot be read: {error.strerror}; load the kernel module cpuid, or "
                + REMOVE_PREFETCHERS
            ) from error
        if not has:
            raise Refused(
                f"CPU {number} has no prefetcher register (PrefetchCtlMsr, CPUID 0x80000021 EAX bit 13): "
                + REMOVE_PREFETCHERS
            )
    return table.registers


def plan_prefetchers(machine, wanted):
    """Return the entries that switch the hardware prefetchers of each online CPU on or off."""
    found = processors(machine)
    if machine.exists(DSCR_DEFAULT):
        return plan_streams(machine, wanted, sorted(found))
    # Check all first: a machine with different processors is refused.
    registers = {number: prefetch_registers(machine, number, found[number]) for number in sorted(found)}
    entries = []
    for number, masks in registers.items():
        for register, mask in sorted(masks.items(), reverse=True):
            where = MSR % (number, register)
            try:
                before = read_value(machine, where)
            except OSError as error:
                raise Refused(
                    f"{where} cannot be read: {error.strerror}; load the kernel module msr, or {REMOVE_PREFETCHERS}"
                ) from error
            others = int(before, 16) & ~mask
            entries.append(Entry("prefetchers", where, before, hex(others | (mask if wanted == "off" else 0))))
    if not entries:
        raise Refused(f"no CPUs in /proc/cpuinfo; {REMOVE_PREFETCHERS}")
    return entries


def plan_streams(machine, wanted, cpus):
    """Return the entries that switch the prefetch streams of a POWER machine on or off.

    Writing the default changes all CPUs: it comes last, and is restored first.
    """
    before = {}
    for where in (*(DSCR % number for number in cpus), DSCR_DEFAULT):
        try:
            before[where] = "%x" % int(machine.text(where), 16)
        except (OSError, ValueError) as error:
            raise Refused(f"{where} cannot be read: {error}; {REMOVE_PREFETCHERS}") from error
    others = int(before[DSCR_DEFAULT], 16) & ~prefetchers.DSCR_BITS
    value = "%x" % (others | (prefetchers.DSCR_OFF if wanted == "off" else 0))
    # An entry that needs no change is still affected when the others are restored.
    return [Entry("prefetchers", where, was, value if was != value else None) for where, was in before.items()]


def read_prefetchers(machine):
    """Return an entry without a wanted value per prefetcher register, and why others cannot be read."""
    entries: list[Entry] = []
    unread: dict[tuple[int, str], list[int]] = {}
    if machine.exists(DSCR_DEFAULT):
        return read_streams(machine)
    for number, rows in sorted(processors(machine).items()):
        table = prefetch_table(rows)
        for register in sorted(table.registers if table else (0x1A4,), reverse=True):
            where = MSR % (number, register)
            try:
                entries.append(Entry("prefetchers", where, read_value(machine, where), None))
            except OSError as error:
                unread.setdefault((register, error.strerror or str(error)), []).append(number)
    reasons = [
        f"MSR {register:#x} of CPUs {format_ranges(cpus)}: {reason}" for (register, reason), cpus in unread.items()
    ]
    return entries, "; ".join(reasons) or None


def read_streams(machine):
    """Return the same for the prefetch streams of a POWER machine."""
    entries, unread = [], []
    for where in (*(DSCR % number for number in sorted(processors(machine))), DSCR_DEFAULT):
        try:
            entries.append(Entry("prefetchers", where, "%x" % int(machine.text(where), 16), None))
        except (OSError, ValueError) as error:
            unread.append(f"{where}: {error}")
    return entries, "; ".join(unread) or None


def plan_irqbalance(machine, _wanted):
    """Return the entry that stops irqbalance; empty if it is not running."""
    if read_value(machine, IRQBALANCE) == "active":
        return [Entry("irqbalance", IRQBALANCE, "active", "inactive")]
    for name in os.listdir(machine.path("/proc")):
        try:
            if name.isdigit() and machine.text("/proc/%s/comm" % name) == "irqbalance":
                raise Refused(
                    f"irqbalance runs as process {name}, not as {IRQBALANCE}, so it could not be started again: stop "
                    "it yourself or remove tune_irqbalance"
                )
        except OSError:
            continue  # it has ended
    return []


PLANNERS = {
    "governor": plan_governor,
    "turbo": plan_turbo,
    "prefetchers": plan_prefetchers,
    "irqbalance": plan_irqbalance,
    "hugepages_2m": lambda machine, counts: plan_huge_pages(machine, "hugepages_2m", counts),
    "hugepages_1g": lambda machine, counts: plan_huge_pages(machine, "hugepages_1g", counts),
}
"""In the order of changes. Restoring uses the reverse order."""


def plan_changes(machine, settings):
    """Return the entries that *settings* need: all are read before any is changed, as CPUs share registers."""
    entries = []
    for setting, plan in PLANNERS.items():
        if settings.get(setting):
            found = [entry for entry in plan(machine, settings[setting]) if entry.wanted != entry.before]
            if any(entry.wanted is not None for entry in found):
                entries += found
    return entries


# Changing and restoring


class CpuOffline(Refused):
    """A setting was not changed because its CPU went offline."""


def apply_change(machine, entry):
    """Write *entry*'s wanted value. Raises Refused if the value read back differs."""
    setting, where, wanted = entry.setting, entry.where, entry.wanted
    try:
        write_value(machine, where, wanted)
    except (OSError, subprocess.SubprocessError) as error:
        kind = CpuOffline if is_offline(machine, entry) else Refused
        raise kind(f"{where} cannot be set to {wanted}: {error}") from error
    try:
        after = read_value(machine, where)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"{where} was set to {wanted} and cannot be read back: {error}") from error
    if after == wanted:
        return
    if setting in PAGE_KIB:
        raise Refused(
            f"only {after} of {wanted} huge pages could be reserved at {where}: free memory on that node, reserve them "
            "on the kernel's command line, or request fewer"
        )
    raise Refused(
        f"{where} was set to {wanted} and reads {after}: this machine does not support it; remove tune_{setting} and "
        f"tune_{setting}_ok"
    )


def restore(machine, entry):
    """Restore one entry. Return (value read afterwards, fault or None)."""
    now, error = None, None
    try:
        now = read_value(machine, entry.where)
        for attempt in range(HUGE_PAGES_TRIES if entry.setting in PAGE_KIB else 1):
            if now == entry.before:
                break
            if attempt:
                time.sleep(TRY_S)
            write_value(machine, entry.where, entry.before)
            now = read_value(machine, entry.where)
    except Exception as failed:  # noqa: BLE001 - whatever it is, the other entries are restored, and this one is reported
        error = "its CPUs are offline: put them online" if is_offline(machine, entry) else reason_of(failed)
        now = None if now is None else current_value(machine, entry.where)
    return now, None if now == entry.before else fault_of(entry, now, error)


def current_value(machine, where):
    """Return the current value at *where*, None if it cannot be read."""
    try:
        return read_value(machine, where)
    except Exception:  # noqa: BLE001 - whatever it is, the value is unknown
        return None


def reason_of(error):
    """Return what *error* says, without the path that it may name."""
    return printable(error.strerror if isinstance(error, OSError) and error.strerror else error)


def is_offline(machine, entry):
    """Return whether the CPUs of *entry* are known to be offline: all of a frequency policy, or a register's one."""
    try:
        if "/cpufreq/policy" in entry.where:
            return not machine.text(os.path.dirname(entry.where) + "/affected_cpus")
        numbers = re.findall(r"/(?:dev/cpu/|cpu)(\d+)/", entry.where)
        return bool(numbers) and machine.text("%s/cpu%s/online" % (CPU, numbers[0])) == "0"
    except OSError:
        return "/cpufreq/policy" in entry.where


def restore_all(machine, entries, who):
    """Restore *entries* in reverse; return (changes, faults). Side effects are not listed among the changes."""
    changes, faults = [], []
    # Read before any is restored: one may change others.
    values = {entry.where: current_value(machine, entry.where) for entry in entries}
    for entry in reversed(entries):
        found = values[entry.where]
        now, fault = restore(machine, entry)
        values[entry.where] = now
        if fault:
            faults.append(fault)
        if entry.wanted is not None:
            changes.append(entry.change(entry.wanted if found is None else found, now, None if fault else who))
    changes.reverse()
    return changes, faults


# What is not restored


MAX_FAULTS = 3
"""Faults named in one message."""


def fault_at(where, error):
    """Return the fault *error* at *where*, a file or directory of the run: settings may not be restored."""
    return {"setting": None, "where": where, "wanted": None, "found": None, "error": error}


def fault_of(entry, found, error):
    """Return the fault of a setting that is not restored: its value is *found*, None if unknown."""
    return {
        "setting": entry.setting,
        "where": entry.where,
        "wanted": entry.before,
        "found": found,
        "error": error,
    }


def not_restored(faults: list[dict[str, typing.Any]]) -> str:
    """Return *faults* in words, the same on the SUT and everywhere on the controller."""
    named = "; ".join(map(fault_text, faults[:MAX_FAULTS]))
    more = "; and %d more" % (len(faults) - MAX_FAULTS) if len(faults) > MAX_FAULTS else ""
    return f"Not restored: {named}{more}"


def fault_text(fault: dict[str, typing.Any]) -> str:
    """Return one fault in words."""
    values = ["wanted %s, found %s" % (fault["wanted"], fault["found"] or "unknown")] if fault["setting"] else []
    place = "%s at %s" % (fault["setting"], fault["where"]) if fault["setting"] else fault["where"]
    return ": ".join([place, *values, *([fault["error"]] if fault["error"] else [])])


# Changes of many CPUs as one


NUMBERED = re.compile(r"(.*?/(?:policy|node|cpu/?))(\d+)(/.*)")


def group_changes(changes: list[dict[str, typing.Any]]) -> list[dict[str, typing.Any]]:
    """Return *changes* with those that differ only in the number of a CPU, policy or node combined: policy{0-3}."""
    groups: dict[tuple[object, ...], list[tuple[dict[str, typing.Any], str | None]]] = {}
    for change in changes:
        match = NUMBERED.fullmatch(change["where"])
        before, number, behind = match.groups() if match else (change["where"], None, "")
        rest = tuple(sorted((key, value or "") for key, value in change.items() if key != "where"))
        groups.setdefault((rest, before, behind), []).append((change, number))
    found = []
    for (_, before, behind), members in groups.items():
        change, number = members[0]
        if len(members) > 1 and number is not None:
            numbers = format_ranges(int(number or 0) for _, number in members)
            change = dict(change, where="%s{%s}%s" % (before, numbers, behind))
        found.append(change)
    return found
