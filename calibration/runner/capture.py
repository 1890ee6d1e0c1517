# SPDX-License-Identifier: Apache-2.0
"""Copy the files that describe a machine, verbatim, into one archive.

This module decides what to read; the controller interprets it. Runs on a SUT's own Python (3.8 and later, standard
library only). Every read is bounded and cannot block; a file that vanishes is absent, an unreadable file is listed with
the reason. The only modification: serial numbers, UUIDs and asset tags are blanked, because the capture is published.
Most of them are in the raw DMI table.
"""

from __future__ import annotations

import base64
import errno
import fnmatch
import gzip
import io
import json
import os
import platform
import re
import stat
import struct
import tarfile
import time

from calibration.runner import cpusets, devices, kernel, profiles, requested_files
from calibration.runner.blanking import blank_bytes
from calibration.runner.ranges import format_ranges, parse_ranges

SCHEMA = "sut-context/1"

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file copied. /proc/interrupts of 1024 CPUs and 4000 lines is about 46 MB; all others are smaller."""

MAX_TOTAL_BYTES = 128 * 1024 * 1024
"""Limit on all files, so that a capture never exhausts a SUT's memory."""

MAX_FILES = 300000
"""Limit on the number of files: 1024 CPUs need about 60000, plus the threads of a busy machine."""

MAX_EVENT_SOURCE_FILES = 30000
"""Limit on files of event sources: 300 uncore units have about 20 each. POWER's firmware has thousands of events, which
must not crowd out anything else."""

MAX_SECONDS = 60
"""Files not read by then are listed as unreadable: slow firmware must not delay a lab."""

ABSENT = frozenset([errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP])
"""Errors that mean "not on this machine", or that a process or a CPU disappeared meanwhile."""

LOAD_INTERVAL_S = 1.0
"""Time between the two load snapshots: the kernel counts in 10 ms ticks, so one tick is 1 % of a CPU."""

MAX_BUSY_PROCESSES = 1000
"""Limit on busy processes described; with more, their names are not useful."""

LOAD = "/load"
"""Directory of the load snapshots in the archive; it does not exist on the machine."""

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
DMI_TABLE = "/sys/firmware/dmi/tables/DMI"

# One line per place. ``*`` and ``?`` match within one component; ``{a,b}`` takes every one, ``{a|b}`` the first that
# exists.
PATTERNS = (
    "/proc/{cmdline,version,cpuinfo,meminfo,interrupts,softirqs,stat,uptime,loadavg,vmstat,sysinfo}",
    "/proc/sys/kernel/{ostype,hostname,osrelease,version,arch,numa_balancing,sched_rt_runtime_us,sched_rt_period_us}",
    "/proc/sys/kernel/{nmi_watchdog,watchdog,randomize_va_space,perf_event_paranoid,timer_migration}",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/vm/{nr_hugepages,overcommit_memory,swappiness,zone_reclaim_mode,stat_interval}",
    "/proc/self/{status,cgroup,mountinfo,limits,uid_map}",
    "/run/systemd/container",
    "/proc/irq/default_smp_affinity",
    "/proc/irq/[0-9]*/{smp_affinity_list|smp_affinity}",
    "/proc/irq/[0-9]*/{effective_affinity_list|effective_affinity}",
    "/sys/kernel/irq/[0-9]*/actions",
    CPU + "/{online,offline,possible,present,isolated,nohz_full,housekeeping,kernel_max}",
    CPU + "/smt/{active,control}",
    CPU + "/vulnerabilities/*",
    CPU + "/cpuidle/{current_driver,current_governor,current_governor_ro}",
    CPU + "/intel_pstate/{status,no_turbo,min_perf_pct,max_perf_pct}",
    CPU + "/amd_pstate/status",
    CPU + "/cpufreq/boost",
    CPU + "/cpufreq/policy[0-9]*/{affected_cpus,related_cpus,scaling_driver,scaling_governor,scaling_min_freq}",
    CPU + "/cpufreq/policy[0-9]*/{scaling_max_freq,cpuinfo_min_freq,cpuinfo_max_freq,base_frequency}",
    CPU + "/cpufreq/policy[0-9]*/{energy_performance_preference,boost,scaling_available_governors}",
    CPU + "/intel_uncore_frequency/*/{min_freq_khz,max_freq_khz,initial_min_freq_khz,initial_max_freq_khz}",
    CPU + "/intel_uncore_frequency/*/{package_id,domain_id,fabric_cluster_id,agent_types,elc_floor_freq_khz}",
    CPU + "/intel_uncore_frequency/*/{elc_low_threshold_percent,elc_high_threshold_percent,elc_high_threshold_enable}",
    CPU + "/cpu[0-9]*/online",
    CPU + "/cpu[0-9]*/topology/{core_cpus_list|thread_siblings_list|core_cpus|thread_siblings}",
    CPU + "/cpu[0-9]*/topology/{core_id,physical_package_id,die_id,cluster_id,book_id,drawer_id}",
    CPU + "/cpu[0-9]*/cache/index[0-9]*/{level,type}",
    CPU + "/cpu[0-9]*/cache/index[0-9]*/{shared_cpu_list|shared_cpu_map}",
    CPU + "/cpu[0-9]*/cpuidle/state[0-9]*/disable",
    CPU + "/cpu[0-9]*/thermal_throttle/{core_throttle_count,package_throttle_count}",
    CPU + "/cpu[0-9]*/microcode/version",
    NODE + "/{online,possible,has_cpu,has_memory,has_normal_memory}",
    NODE + "/node[0-9]*/{cpulist|cpumap}",
    NODE + "/node[0-9]*/{meminfo,distance}",
    NODE + "/node[0-9]*/hugepages/hugepages-*/{nr_hugepages,free_hugepages,surplus_hugepages}",
    "/sys/devices/virtual/memory_tiering/memory_tier[0-9]*/nodelist",
    "/sys/devices/system/clocksource/clocksource0/{current_clocksource,available_clocksource}",
    "/sys/kernel/mm/transparent_hugepage/{enabled,defrag,shmem_enabled}",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
    "/sys/kernel/mm/transparent_hugepage/hugepages-*/enabled",
    "/sys/kernel/debug/sched/preempt",
    "/sys/kernel/mm/hugepages/hugepages-*/{nr_hugepages,free_hugepages,surplus_hugepages,resv_hugepages}",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/realtime",
    "/sys/hypervisor/{type,guest_type}",
    "/sys/class/dmi/id/{bios_vendor,bios_version,bios_release,bios_date,sys_vendor,product_name,product_version}",
    "/sys/class/dmi/id/{product_family,board_vendor,board_name,board_version}",
    "/sys/firmware/dmi/tables/smbios_entry_point",
)

# Only with the operator's consent: what is captured is published. Without root they are unreadable.
SERIAL_PATTERN = "/sys/class/dmi/id/{product_serial,board_serial,chassis_serial}"

# Kernels before 4.3 have no policy directories.
OLD_FREQUENCY_PATTERNS = (
    CPU + "/cpu[0-9]*/cpufreq/{affected_cpus,scaling_driver,scaling_governor,scaling_min_freq,scaling_max_freq}",
    CPU + "/cpu[0-9]*/cpufreq/{cpuinfo_min_freq,cpuinfo_max_freq}",
)

# Below the device tree's root, wherever the kernel shows it.
DEVICE_TREE_ROOTS = ("/sys/firmware/devicetree/base", "/proc/device-tree")
DEVICE_TREE_PATTERNS = (
    "/{model,compatible,ibm?partition-no}",
    "/hypervisor/compatible",
    "/cpus/*/{ibm?ppc-interrupt-server#s,d-cache-size,i-cache-size,d-cache-line-size,i-cache-line-size}",
)

# What is described for the lowest online CPU alone: on a machine of 400 CPUs this is most of what could be read.
FIRST_CPU_PATTERNS = (
    "/cache/index[0-9]*/{size,coherency_line_size}",
    "/cpuidle/state[0-9]*/{name,desc,latency,residency}",
)

# Every entry is a link to a directory below /sys/devices, in which nothing is entered but what stands here: a link to a
# bus or a device leads round in a circle.
EVENT_SOURCES = "/sys/bus/event_source/devices/*"
EVENT_SOURCE_PATTERNS = (
    EVENT_SOURCES + "/{type,cpumask,cpus,perf_event_mux_interval_ms,identifier}",
    EVENT_SOURCES + "/format/*",
    EVENT_SOURCES + "/events/*",
    EVENT_SOURCES + "/caps/*",
)

# The limits of the capturing process's control groups and of their ancestors, in both versions.
CGROUP_FILES = (
    *("cpuset.cpus.effective", "cpuset.mems.effective", "cpuset.cpus.partition", "cpu.max", "cpu.stat"),
    *("memory.max", "memory.high", "memory.current", "memory.stat", "pids.max", "pids.current"),
    *("cpuset.effective_cpus", "cpuset.effective_mems", "cpuset.cpus", "cpuset.mems"),
    *("cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)

# What container engines leave in the root of a container: that it is there is enough, it may hold names.
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")

NAMESPACES = ("cgroup", "ipc", "pid", "user", "uts")

THREAD_PATTERN = "/proc/[0-9]*/task/[0-9]*/status"

# Structures of the DMI table that are kept, with the offsets of the string fields that are kept and of those that are
# blanked even if they share a string with them (DSP0134 3.7, 7.1 to 7.20): serial numbers and asset tags. Strings that
# no field names are blanked too, as behind a broken structure any bytes may look like strings. Every other structure
# keeps its header and length only: vendors' own types hold serial numbers and addresses.
DMI_STRINGS = {
    0: ((0x04, 0x05, 0x08), ()),
    1: ((0x04, 0x05, 0x06, 0x1A), (0x07,)),  # the UUID is blanked as bytes
    2: ((0x04, 0x05, 0x06), (0x07, 0x08)),
    4: ((0x04, 0x07, 0x10), (0x20, 0x21)),
    7: ((0x04,), ()),
    16: ((), ()),
    17: ((0x10, 0x11, 0x17, 0x1A), (0x18, 0x19)),
    19: ((), ()),
    20: ((), ()),
    127: ((), ()),
}
DMI_UUID = (0x08, 0x18)  # bytes of type 1

POLICY_FILE = re.compile(r"/cpufreq/policy[0-9]+/|/cpu[0-9]+/cpufreq/")

ROWS_BLANKED = {
    "/proc/self/mountinfo": (
        (re.compile(rb"(?m)^()((?!.* - (?:cgroup2?|resctrl) ).+)$"), "mounts other than control groups and resctrl"),
    ),
    "/proc/cpuinfo": (
        (re.compile(rb"(?m)^(Serial\s*:\s*)(\S.*)$"), "serial number"),
        (re.compile(rb"(?m)(identification = )([0-9A-Fa-f]+)"), "processor identification"),
    ),
    "/proc/sysinfo": (
        (re.compile(rb"(?m)^(Sequence Code:\s*)(\S.*)$"), "serial number"),
        (re.compile(rb"(?m)^((?:LPAR|VM\d\d) (?:UUID|Extended Name):\s*)(\S.*)$"), "UUID"),
    ),
}


def absent(path: str, error: OSError) -> bool:
    """Return whether the OSError *error* means that the machine has no such file.

    All files of a frequency policy are busy while all of its CPUs are offline.
    """
    return error.errno in ABSENT or (error.errno == errno.EBUSY and POLICY_FILE.search(path) is not None)


def read_file(path):
    """Return the bytes of a regular file without blocking. Raises OSError if it cannot be read or is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError if stat.S_ISDIR(os.fstat(descriptor).st_mode) else OSError("not a regular file")
        chunks: list[bytes] = []
        size = 0
        while True:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return b"".join(chunks)
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise OSError("larger than %d bytes" % MAX_FILE_BYTES)
            chunks.append(chunk)
    finally:
        os.close(descriptor)


def alternatives(pattern):
    """Split a pattern's last ``{...}`` into (prefix, names, whether only the first existing one counts)."""
    start = pattern.find("{")
    if start < 0:
        head, tail = pattern.rsplit("/", 1)
        return head, [tail], False
    body = pattern[start + 1 : pattern.rindex("}")]
    head = pattern[:start].rstrip("/")
    if "|" in body:
        return head, body.split("|"), True
    return head, body.split(","), False


def mask_structure(kind, area, strings):
    """Blank the machine's identity in a DMI structure; lengths are kept."""
    kept, blanked = DMI_STRINGS.get(kind, ((), ()))
    if kind not in DMI_STRINGS:
        area = area[:4] + b"\0" * (len(area) - 4)
    if kind == 1:
        start, end = DMI_UUID
        area = area[:start] + b"\0" * len(area[start:end]) + area[end:]
    named, secret = ({area[offset] for offset in offsets if offset < len(area)} for offsets in (kept, blanked))
    return area, b"\0".join(
        text if number in named - secret else b"*" * len(text) for number, text in enumerate(strings.split(b"\0"), 1)
    )


def mask_dmi(table):
    """Return a DMI table (or one raw structure) without serial numbers, UUIDs and asset tags; lengths are kept.

    From the first structure with an invalid length on, everything is overwritten, so that it stays invalid: it cannot
    be parsed.
    """
    masked = []
    offset = 0
    while offset + 4 <= len(table):
        kind, length = struct.unpack_from("BB", table, offset)
        end = table.find(b"\0\0", offset + length)
        if length < 4 or offset + length > len(table) or end < 0:
            break
        area, strings = mask_structure(kind, table[offset : offset + length], table[offset + length : end])
        masked.append(area + strings + b"\0\0")
        offset = end + 2
    return b"".join(masked) + b"\xff" * (len(table) - offset)


class FileCapture:
    """Files of one root, each read once, with the unreadable and the masked ones."""

    def __init__(self, root="/", clock=time.time):
        self.root = root.rstrip("/")
        self.files = {}
        self.links = {}
        self.missing = set()
        self.devices = 0
        self.asked = []
        self.files_before_asked = 0
        self.unreadable = {}
        self.masked = {}
        self.total_bytes = 0
        self.max_files = MAX_FILES
        self._clock = clock
        self._deadline = clock() + MAX_SECONDS
        self._listed = {}

    def names(self, directory):
        """Return the sorted entries of a directory; empty if absent or unreadable (which is noted)."""
        if directory not in self._listed:
            try:
                self._listed[directory] = sorted(os.listdir(self.root + directory))
            except OSError as error:
                self._listed[directory] = []
                self._failed(directory, error)
        return self._listed[directory]

    def _failed(self, path, error):
        if not absent(path, error):
            self.unreadable[path] = os.strerror(error.errno) if error.errno else str(error)

    def directories(self, pattern):
        """Return the existing directories that match a pattern without alternatives."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            if any(character in part for character in "*?["):
                found = [
                    base + "/" + name
                    for base in found
                    for name in self.names(base or "/")
                    if fnmatch.fnmatchcase(name, part)
                ]
            else:
                found = [base + "/" + part for base in found]
        return found

    def collect(self, pattern):
        """Copy every file that matches a pattern."""
        head, names, first_only = alternatives(pattern)
        for directory in self.directories(head):
            for name in names:
                if any(character in name for character in "*?["):
                    matching = [found for found in self.names(directory) if fnmatch.fnmatchcase(found, name)]
                else:
                    matching = [name]
                read = [self.copy(directory + "/" + found) for found in matching]
                if first_only and any(read):
                    break

    def copy(self, path, most_bytes=MAX_FILE_BYTES):
        """Copy one file of at most *most_bytes*; return whether it was copied."""
        if path in self.files:
            return True
        content = None if path in self.missing else self.read(path)
        if content is None:
            self.missing.add(path)
            return False
        if len(content) > most_bytes:
            self.unreadable[path] = "larger than %d bytes" % most_bytes
            return False
        if len(self.files) >= self.max_files or self.total_bytes + len(content) > MAX_TOTAL_BYTES:
            self.unreadable[path] = (
                f"not copied: the capture is full ({len(self.files)} files, {self.total_bytes} bytes)"
            )
            return False
        content = self.blank(path, content)
        self.files[path] = content
        self.total_bytes += len(content)
        return True

    def link(self, path):
        """Copy a symbolic link, and return its target; None if there is none."""
        try:
            target = os.readlink(self.root + path)
        except OSError as error:
            if error.errno != errno.EINVAL:  # no link
                self._failed(path, error)
            return None
        if not target.startswith("/"):  # those of sysfs are relative
            self.links[path] = target
        return target

    def read(self, path):
        """Return the bytes of a regular file; None if absent or unreadable (which is noted)."""
        if self._clock() > self._deadline:
            self.unreadable[path] = "not copied: the capture took longer than %d s" % MAX_SECONDS
            return None
        try:
            return read_file(self.root + path)
        except IsADirectoryError:
            return None
        except OSError as error:
            self._failed(path, error)
            return None

    def blank(self, path, content):
        """Return *content* without the machine's identity."""
        if path == DMI_TABLE or path.startswith("/sys/firmware/dmi/entries/"):
            self.masked[path] = "serial numbers, UUID, asset tags, vendor structures"
            return mask_dmi(content)
        if path == "/proc/cmdline" or path.startswith((profiles.TUNED + "/", profiles.SHIPPED + "/")):
            verbatim, content = content, blank_bytes(content)
            if content != verbatim:
                self.masked[path] = "passwords, tokens, credentials"
        for expression, what in ROWS_BLANKED.get(path, ()):
            content, count = expression.subn(lambda match: match.group(1) + b"0" * len(match.group(2)), content)
            if count:
                self.masked[path] = what
        return content

    def text(self, path):
        """Return a copied file as stripped text; empty if it was not copied."""
        return self.files.get(path, b"").decode("utf-8", "replace").strip("\0 \n")


class LoadWatch:
    """CPU use while the capture sleeps: two snapshots of the kernel's counters, copied verbatim.

    Processes are read before the CPUs' first snapshot and after their second, so that reading them is not part of the
    load.
    """

    def __init__(self, root, deadline, clock, sleep=time.sleep):
        self.root = root.rstrip("/")
        self.files = {}
        self.interval_s = None
        self.processes_interval_s = None
        self.reason = None
        self._clock = clock
        self._deadline = deadline
        self._sleep = sleep

    def watch(self):
        """Take both snapshots; keep the processes that used any CPU in between."""
        began, before = time.monotonic(), self._processes()
        first, first_at = self._read("/proc/stat"), time.monotonic()
        if not first or self.reason:
            self.reason = self.reason or "/proc/stat cannot be read"
            return self
        self._sleep(LOAD_INTERVAL_S)
        second_at, second = time.monotonic(), self._read("/proc/stat")
        then, after = time.monotonic(), self._processes()
        if not second or self.reason:
            self.reason = self.reason or "/proc/stat cannot be read"
            return self
        self.interval_s = round(second_at - first_at, 6)
        self.processes_interval_s = round(then - began, 6)
        self.files = {LOAD + "/before/proc/stat": first, LOAD + "/after/proc/stat": second}
        busy = [pid for pid in after if used_ticks(after[pid]) > used_ticks(before.get(pid, b""))]
        busy.sort(key=lambda pid: used_ticks(before.get(pid, b"")) - used_ticks(after[pid]))
        for pid in busy[:MAX_BUSY_PROCESSES]:
            if self._clock() > self._deadline:
                break  # the busiest are kept
            if pid in before:
                self.files["%s/before/proc/%s/stat" % (LOAD, pid)] = before[pid]
            self.files["%s/after/proc/%s/stat" % (LOAD, pid)] = after[pid]
            for tid in self._numbers("/proc/%s/task" % pid):
                thread = self._read("/proc/%s/task/%s/stat" % (pid, tid))
                if thread:
                    self.files["%s/after/proc/%s/task/%s/stat" % (LOAD, pid, tid)] = thread
        return self

    def description(self):
        """Return the entry about the snapshots in capture.json."""
        return {
            "interval_s": self.interval_s,
            "processes_interval_s": self.processes_interval_s,
            "ticks_per_s": os.sysconf("SC_CLK_TCK"),
            "own": self._own(),
            "reason": self.reason,
        }

    def _own(self):
        """Return this process and its ancestors: they are not foreign load."""
        found = []
        pid = os.getpid()
        while pid > 1 and pid not in found:
            found.append(pid)
            fields = self._read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
            pid = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
        return found

    def _numbers(self, directory):
        try:
            return [name for name in os.listdir(self.root + directory) if name.isdigit()]
        except OSError:
            return []  # it has ended

    def _processes(self):
        found = {}
        for pid in self._numbers("/proc"):
            if self._clock() > self._deadline:
                self.reason = "not watched: the capture took longer than %d s" % MAX_SECONDS
                break
            content = self._read("/proc/%s/stat" % pid)
            if content:
                found[pid] = content
        return found

    def _read(self, path):
        """Return the bytes of a kernel file; empty if it is missing."""
        try:
            return read_file(self.root + path)
        except OSError:
            return b""  # it has ended


def used_ticks(content):
    """Return the CPU time in ticks from /proc/PID/stat; 0 if missing."""
    fields = content.rpartition(b")")[2].split()
    used = fields[11:13]
    return sum(int(item) for item in used) if len(used) == 2 and all(text.isdigit() for text in used) else 0


def cpus_in(collector, path):
    """Return the CPUs in a file, which is copied; None if it is missing."""
    try:
        return set(parse_ranges(collector.text(path))) if collector.copy(path) else None
    except ValueError:  # none, or (null)
        return set()


def isolated_cpus(collector):
    """Return the CPUs that were isolated at boot or by cpusets; what says so is copied."""

    def text(path):
        return collector.text(path) if collector.copy(path) else None

    def cpus(path):
        return cpus_in(collector, path)

    def folders(path):
        return [name for name in collector.names(path) if os.path.isdir("%s%s/%s" % (collector.root, path, name))]

    own = control_groups(collector)
    mounted = cpusets.mounts(collector.text("/proc/self/mountinfo")) or [cpusets.USUAL]
    files = cpusets.Files(text, cpus, folders)
    found, _ = cpusets.isolated(cpus(CPU + "/online") or set(), own, mounted, files)
    return found | (cpus(CPU + "/isolated") or set())


def in_partition(collector):
    """Return whether this process is in an isolated cpuset partition."""
    files = [directory + "/cpuset.cpus.partition" for directory in control_groups(collector)]
    return any(collector.copy(file) and collector.text(file) == "isolated" for file in files)


def control_groups(collector):
    """Return the directories of the process's control groups and of their ancestors, deepest first."""
    for path in ("/proc/self/mountinfo", "/proc/self/cgroup"):
        collector.copy(path)
    mounted = cpusets.mounts(collector.text("/proc/self/mountinfo"))
    found = cpusets.own_groups(collector.text("/proc/self/cgroup"), mounted)
    return list(dict.fromkeys(directory for directory, _ in found))


def collect_last_level_sizes(collector):
    """Copy the size of each last-level cache, once: those of one machine may differ."""
    seen = set()
    for cpu in collector.directories(CPU + "/cpu[0-9]*"):
        indexes = [cpu + "/cache/" + name for name in collector.names(cpu + "/cache")]
        found = [place for place in indexes if collector.text(place + "/type") in ("Data", "Unified")]
        last = max(found, key=lambda place: collector.text(place + "/level"), default=None)
        if last is None:
            continue
        shared = collector.text(last + "/shared_cpu_list") or collector.text(last + "/shared_cpu_map")
        if shared not in seen:
            seen.add(shared)
            collector.copy(last + "/size")


def collect(root="/", clock=time.time, patterns=(), *, serials=False):
    """Read everything wanted from a root, and what *patterns* ask for; return the :class:`Collector`.

    *serials* is the consent to read the serial numbers of system, board and chassis.
    """
    collector = FileCapture(root, clock)
    if serials:
        collector.collect(SERIAL_PATTERN)
    for pattern in PATTERNS:
        collector.collect(pattern)
    if not collector.names(CPU + "/cpufreq"):
        for pattern in OLD_FREQUENCY_PATTERNS:
            collector.collect(pattern)
    first = re.match(r"[0-9]+", collector.text(CPU + "/online"))
    for pattern in FIRST_CPU_PATTERNS:
        collector.collect("%s/cpu%s%s" % (CPU, first.group(0) if first else "[0-9]*", pattern))
    collect_last_level_sizes(collector)
    for base in DEVICE_TREE_ROOTS:
        if collector.names(base):
            for pattern in DEVICE_TREE_PATTERNS:
                collector.collect(base + pattern)
            break
    if not collector.copy(DMI_TABLE):
        for kind in (0, 1, 2, 16, 17):
            collector.collect("/sys/firmware/dmi/entries/%d-[0-9]*/raw" % kind)
    for directory in control_groups(collector):
        for name in CGROUP_FILES:
            collector.copy(directory + "/" + name)
    for path in CONTAINER_MARKS:
        if os.path.exists(collector.root + path):
            collector.files[path] = b""
    devices.collect(collector)
    collector.files_before_asked = len(collector.files)
    requested_files.collect(collector, patterns)
    quiet = isolated_cpus(collector) or cpus_in(collector, CPU + "/nohz_full")
    if quiet or re.search("isolcpus=|rcu[-_]nocbs", collector.text("/proc/cmdline")):  # else there are too many
        collector.collect(THREAD_PATTERN)
    collector.max_files = min(MAX_FILES, len(collector.files) + MAX_EVENT_SOURCE_FILES)
    for pattern in EVENT_SOURCE_PATTERNS:
        collector.collect(pattern)
    return collector


def namespaces():
    """Return the identities of this process's namespaces; without those that cannot be read."""
    found = {}
    for name in NAMESPACES:
        try:
            found[name] = os.readlink("/proc/self/ns/" + name)
        except OSError:
            continue
    return found


def describe(collector, uname_a, started, load, bmc=None):
    """Return the contents of capture.json."""
    uname = os.uname()
    told = {"kernel_build": kernel.build(collector), "kernel_log": kernel.log(collector)}
    if bmc is not None:
        told["bmc"] = bmc.look()
        collector.unreadable.update(bmc.reasons)
    try:
        affinity = format_ranges(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        affinity = None
    return {
        "schema": SCHEMA,
        "captured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "hostname": uname.nodename,
        "uname": {name: getattr(uname, name) for name in ("sysname", "nodename", "release", "version", "machine")},
        "uname_a": uname_a,
        "uid": os.getuid(),
        "affinity": affinity,
        "page_bytes": os.sysconf("SC_PAGESIZE"),
        "namespaces": namespaces(),
        "python_version": platform.python_version(),
        "unreadable": [{"path": path, "reason": reason} for path, reason in sorted(collector.unreadable.items())],
        "masked": [{"path": path, "what": what} for path, what in sorted(collector.masked.items())],
        "files": len(collector.files),
        "total_bytes": collector.total_bytes,
        "devices": collector.devices,
        "asked": collector.asked,
        **told,
        "load": load.description(),
    }


def tar_header(name, size, mtime):
    """Return the ustar header of a regular file; tarfile takes ten times as long, and there are tens of thousands."""
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 100:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, mtime, 0o644
        return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    start = encoded.ljust(100, b"\0") + b"0000644\x000000000\x000000000\0" + b"%011o\0%011o\0" % (size, mtime)
    rest = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(255, b"\0")
    return start + b"%06o\0 " % (sum(bytearray(start)) + 8 * 32 + sum(bytearray(rest))) + rest


def tar_link(name, target, mtime):
    """Return the header of a symbolic link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mtime, member.mode = tarfile.SYMTYPE, target, mtime, 0o777
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def pack(files, description, started, links=None):
    """Return a tar.gz of capture.json, and of files and links under their absolute paths without the leading slash."""
    packed = io.BytesIO()
    document = json.dumps(description, indent=1, sort_keys=True).encode("ascii")
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=int(started)) as compressed:
        for path, content in [("/capture.json", document), *sorted(files.items())]:
            header = tar_header(path[1:], len(content), int(started))
            # In one call, which costs as much as a small file.
            compressed.write(header + content + b"\0" * (-len(content) % 512))
        for path, target in sorted((links or {}).items()):
            compressed.write(tar_link(path[1:], target, int(started)))
        compressed.write(b"\0" * 1024)
    return packed.getvalue()


def capture(root="/", uname_a=None, clock=time.time, sleep=time.sleep, patterns=(), *, serials=False, bmc=None):
    """Capture a machine: {archive (base64 tar.gz), capture (contents of capture.json), duration_s}.

    *patterns* are the files to capture beside the usual ones (``asked``), *serials* is the consent to read the serial
    numbers, *bmc* the :class:`~calibration.runner.bmc.Bmc` to ask, if the operator agreed.

    The load is measured last, when the load of logging in and reading is over.
    """
    started = clock()
    collector = collect(root, clock, patterns, serials=serials)
    load = LoadWatch(root, started + MAX_SECONDS, clock, sleep).watch()
    description = describe(collector, uname_a, started, load, bmc)
    archive = pack(dict(collector.files, **load.files), description, started, collector.links)
    return {
        "archive": base64.b64encode(archive).decode("ascii"),
        "capture": description,
        "duration_s": round(clock() - started, 3),
    }
