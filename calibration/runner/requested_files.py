# SPDX-License-Identifier: Apache-2.0
"""Which files below /proc/sys and /sys an inventory may ask for, and those that every capture asks for.

The controller refuses a pattern before it is sent, and a SUT before it reads: what is read is published. Files are
only read, and only those of ordinary attributes, without identities, secrets, addresses and what acts when it is read.
"""

from __future__ import annotations

import fnmatch
import os
import re

ROOTS = ("/proc/sys/", "/sys/")

OF_STATES = (
    "/proc/sys/kernel/hung_task_timeout_secs",
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
    "/proc/sys/net/ipv4/tcp_fastopen",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/stat_interval",
    "/proc/sys/vm/swappiness",
    "/sys/devices/system/cpu/cpu*/power/energy_perf_bias",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/min_perf_pct",
    "/sys/devices/system/machinecheck/machinecheck*/ignore_ce",
    "/sys/devices/virtual/workqueue/*/cpumask",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/fs/selinux/avc/cache_threshold",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/rcu_normal",
    "/sys/module/kvm/parameters/kvmclock_periodic_sync",
    "/sys/module/kvm/parameters/nx_huge_pages",
    "/sys/module/kvm_intel/parameters/ple_gap",
)
"""What the expected states that come with calibration name: every capture has it, so that any run can be compared."""

MAX_PATTERNS = 200
"""Patterns of one SUT."""

MAX_CHARACTERS = 256
"""Characters of a pattern; the longest paths of sysfs have about 150."""

MAX_WILDCARDS = 3
"""Components with a wildcard: more of them would list all of sysfs."""

MAX_FILES = 20000
"""Files of all patterns: 40 attributes of each of 504 CPUs."""

MAX_BYTES = 4096
"""Largest file copied: an attribute has at most a page, and larger ones are tables."""

ORDINARY = re.compile(r"[A-Za-z0-9_.,:+@=*?/-]+")
"""Characters of patterns."""

DENIED_DIRECTORIES = frozenset(
    ["debug", "tracing", "sections", "notes", "efivars", "vars", "security", "btf", "firmware", "random", "slab"]
)
"""Directories whose files are secrets, addresses, tables or identities, wherever they are."""

DENIED = re.compile(
    r"(serial|uuid|guid|secret|asset_tag|unique_id|wwid|wwn|wwpn|eui|passw|token|(^|_)key$|^address$|^permaddr|^addr$"
    r"|switch_id$|^cid$|^vpd|^config$|^rom$|^resource|^nvmem|^(legacy_)?(io|mem)$|^boot_id$|^physical_node|^kallsyms)"
)
"""Names of files with identities, secrets or addresses, or that act on a device when they are read."""


def fault(path: str) -> str | None:
    """Return why *path*, a file or a pattern, must not be read; None if it may."""
    parts = path.split("/")[1:]
    if not path.startswith(ROOTS):
        return "only files below /proc/sys and /sys are read"
    if len(path) > MAX_CHARACTERS or not ORDINARY.fullmatch(path):
        return "it is too long, or has unusual characters"
    if any(part in ("", ".", "..") or "**" in part for part in parts):
        return "it is no plain path"
    if parts[0] == "sys" and any(character in "*?" for character in parts[1]):
        return "the directory below /sys must be named"
    if sum(bool(re.search("[*?]", part)) for part in parts) > MAX_WILDCARDS:
        return "more than %d of its parts have wildcards" % MAX_WILDCARDS
    if any(part.lower() in DENIED_DIRECTORIES for part in parts) or DENIED.search(parts[-1].lower()):
        return "such files may have secrets, identities or addresses"
    return None


def collect(collector, patterns):
    """Copy the files that match *patterns* and ``OF_STATES``, and keep with the capture which were looked for."""
    others = [pattern for pattern in OF_STATES if pattern not in patterns]
    for pattern in [*patterns[:MAX_PATTERNS], *others]:
        reason = fault(pattern)
        if reason is not None:
            collector.unreadable[pattern[:MAX_CHARACTERS]] = "not read: " + reason
            continue
        collector.asked.append(pattern)
        for path in matching(collector, pattern):
            copy(collector, path)
    for pattern in patterns[MAX_PATTERNS:]:
        collector.unreadable[pattern[:MAX_CHARACTERS]] = "not read: more than %d patterns" % MAX_PATTERNS


def matching(collector, pattern):
    """Yield the paths that match *pattern*; one without a wildcard in its last part even if there is no such file."""
    head, name = pattern.rsplit("/", 1)
    for directory in collector.directories(head):
        for found in fnmatch.filter(collector.names(directory), name) if re.search(r"[*?\[]", name) else [name]:
            yield directory + "/" + found


def copy(collector, path):
    """Copy one file, unless it, or what a link makes of it, must not be read."""
    real = os.path.realpath(collector.root + path)[len(collector.root) :]
    reason = fault(path) or (fault(real) if os.path.lexists(collector.root + path) else None)
    if reason is None and len(collector.files) >= collector.files_before_asked + MAX_FILES:
        reason = "more than %d files were asked for" % MAX_FILES
    if reason is not None:
        collector.unreadable[path[:MAX_CHARACTERS]] = "not read: " + reason
        return
    # A link that is kept as one leads to the file's own place.
    linked = any(path.startswith(link + "/") for link in collector.links)
    collector.copy(real if linked else path, MAX_BYTES)
