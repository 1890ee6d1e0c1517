# SPDX-License-Identifier: Apache-2.0
"""What keeps a process from using the whole machine: control groups of both versions, namespaces, privileges.

Sources: ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/`` of the Linux kernel, ``proc(5)``,
``namespaces(7)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from calibration.base.cpulists import format_cpulist, parse_cpulist
from calibration.base.text import visible
from calibration.context.isolation import MAX_STATUS_BYTES, parse_kernel_list, parse_status
from calibration.context.model import Confinement, Context, CpuQuota, MemoryLimit, TaskLimit
from calibration.context.tree import MAX_FILE_BYTES, Tree, count, integer
from calibration.runner import cpusets
from calibration.runner.cpusets import USUAL, Mount

STATUS = "/proc/self/status"

MARKS = (
    ("/run/.containerenv", "Podman"),
    ("/.dockerenv", "Docker"),
    ("/var/run/secrets/kubernetes.io", "Kubernetes"),
)
"""Files that container engines create in each container."""

SYSTEMD_CONTAINER = "/run/systemd/container"
"""systemd's file with the kind of the container that it runs in."""

GROUP_NAMES = (
    ("kubepods", "Kubernetes"),
    ("libpod", "Podman"),
    ("docker", "Docker"),
    ("lxc", "LXC"),
    ("containerd", "containerd"),
)
"""Parts of the names of control groups that container engines make."""

INITIAL_NAMESPACES = {
    "cgroup": "cgroup:[4026531835]",
    "ipc": "ipc:[4026531839]",
    "pid": "pid:[4026531836]",
    "user": "user:[4026531837]",
    "uts": "uts:[4026531838]",
}
"""The machine's own namespaces; their numbers are fixed (``include/uapi/linux/nsfs.h``, ``proc_ns.h``)."""

UNNAMED = "unnamed"

UNLIMITED_BYTES = 1 << 62
"""Limits from here on are none: version 1 has the largest number of pages."""

MAX_MOUNTS = 64
"""Most mounts of control groups that are looked at; a kernel has a score."""

T = TypeVar("T")


def _mounts(tree: Tree, controller: str) -> Sequence[Mount]:
    """Return the mounts of control groups; the usual ones for *controller* if the capture lacks them."""
    return (tree.parse("/proc/self/mountinfo", cpusets.mounts, MAX_FILE_BYTES) or [])[:MAX_MOUNTS] or (
        USUAL,
        Mount("", f"{USUAL.point}/{controller}", unified=False, options=frozenset({controller})),
    )


def _groups(tree: Tree, controller: str) -> Iterator[tuple[str, bool]]:
    """Yield the process's control groups with *controller* and their visible ancestors, deepest first, and if of v2."""
    yield from cpusets.own_groups(tree.text("/proc/self/cgroup") or "", _mounts(tree, controller), controller)


def read_cpuset(tree: Tree) -> tuple[str | None, tuple[int, ...] | None]:
    """Return the control group that sets the CPUs of the process's cpuset, and these; None if it cannot be seen."""
    for path, unified in _groups(tree, "cpuset"):
        for name in ("cpuset.cpus.effective",) if unified else ("cpuset.effective_cpus", "cpuset.cpus"):
            found = tree.parse(f"{path}/{name}", parse_cpulist)
            if found:
                return visible(path), found
    return None, None


def isolated_by_cpusets(tree: Tree, online: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the CPUs that cpusets isolate, and the CPUs of control groups that cannot be seen."""

    def folders(path: str) -> list[str]:
        return [name for name in tree.names(path) if tree.is_dir(f"{path}/{name}")]

    files = cpusets.Files(tree.word, lambda path: tree.parse(path, parse_kernel_list), folders)
    own = [path for path, unified in _groups(tree, "cpuset") if unified]
    found, unknown = cpusets.isolated(set(online), own, _mounts(tree, "cpuset"), files)
    return tuple(sorted(found)), tuple(sorted(unknown))


def _limit(text: str) -> int | None:
    """Return a limit; None if it is ``max``. Raises ``ValueError``."""
    value = None if text.strip() == "max" else count(text)
    return None if value is None or value >= UNLIMITED_BYTES else value


def _quota(text: str) -> tuple[int, int] | None:
    """Return quota and period in µs of ``cpu.max``; None without a quota. Raises ``ValueError``."""
    words = text.split()
    if len(words) != 2:
        raise ValueError(f"not a quota and a period: {text[:40]!r}")
    return None if words[0] == "max" else (count(words[0]), count(words[1]))


def _memory_statistics(text: str) -> dict[str, int]:
    return {words[0]: count(words[1]) for line in text.splitlines() if len(words := line.split()) == 2}


def _memory_limits(tree: Tree) -> Iterator[MemoryLimit]:
    for path, unified in _groups(tree, "memory"):
        names = ("memory.max", "memory.high") if unified else ("memory.limit_in_bytes",)
        limits = [limit for name in names if (limit := tree.parse(f"{path}/{name}", _limit)) is not None]
        used = tree.parse(f"{path}/memory.{'current' if unified else 'usage_in_bytes'}", count)
        if not limits or used is None:
            continue
        statistics = tree.parse(f"{path}/memory.stat", _memory_statistics) or {}
        cache = statistics.get("inactive_file" if unified else "total_inactive_file", 0)
        yield MemoryLimit(group=visible(path), limit_bytes=min(limits), used_bytes=max(0, used - cache))


def _cpu_quotas(tree: Tree) -> Iterator[CpuQuota]:
    for path, unified in _groups(tree, "cpu"):
        if unified:
            quota_us, period_us = tree.parse(f"{path}/cpu.max", _quota) or (None, None)
        else:
            quota_us = tree.parse(f"{path}/cpu.cfs_quota_us", integer)
            period_us = tree.parse(f"{path}/cpu.cfs_period_us", count)
        if quota_us is not None and quota_us > 0 and period_us:
            yield CpuQuota(group=visible(path), cpus=quota_us / period_us, period_us=period_us)


def _task_limits(tree: Tree) -> Iterator[TaskLimit]:
    for path, _ in _groups(tree, "pids"):
        limit = tree.parse(f"{path}/pids.max", _limit)
        if limit is not None:
            yield TaskLimit(group=visible(path), limit=limit, used=tree.parse(f"{path}/pids.current", count))


def _container(tree: Tree, namespaces: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Return the kind of container, and what shows it.

    A process in the machine's own namespaces is in none: a machine made of a container's image has its marks.
    """
    own = [name for name, initial in INITIAL_NAMESPACES.items() if namespaces.get(name, initial) != initial]
    if namespaces and not own:
        return None, ()
    found = [(name, path) for path, name in MARKS if tree.exists(path)]
    if kind := tree.word(SYSTEMD_CONTAINER):
        found.append((kind, SYSTEMD_CONTAINER))
    groups = tree.text("/proc/self/cgroup") or ""
    found += [(name, "/proc/self/cgroup") for part, name in GROUP_NAMES if re.search(rf"[/:-]{part}", groups)][:1]
    if own:
        found.append((UNNAMED, f"namespaces of its own: {', '.join(own)}"))
    if not any(name != UNNAMED for name, _ in found) and "pid" not in own:
        return None, ()
    return found[0][0], tuple(evidence for _, evidence in found)


def _locked_memory(text: str) -> int:
    """Return the soft limit of locked memory in bytes of ``/proc/self/limits``; -1 if unlimited."""
    match = re.search(r"(?m)^Max locked memory +(unlimited|[0-9]{1,19}) ", text)
    if match is None:
        raise ValueError("no row Max locked memory")
    return -1 if match[1] == "unlimited" else int(match[1])


def _is_mapped(text: str) -> bool:
    """Return whether user ids are not those of the machine."""
    return text.split() != ["0", "0", "4294967295"]


def _status(rows: Mapping[str, str], key: str, meaning: Callable[[str], T]) -> T | None:
    return meaning(rows[key]) if key in rows else None


def read_confinement(tree: Tree, namespaces: Mapping[str, Any], cpuset_group: str | None) -> Confinement:
    """Return what confines the capturing process, whose *namespaces* the capture names."""
    rows = tree.parse(STATUS, parse_status, MAX_STATUS_BYTES) or {}
    user = namespaces.get("user", INITIAL_NAMESPACES["user"])
    user_namespace = True if user != INITIAL_NAMESPACES["user"] else tree.parse("/proc/self/uid_map", _is_mapped)
    container, evidence = _container(tree, namespaces)
    return Confinement(
        container=container,
        evidence=evidence,
        cpuset_group=cpuset_group,
        memory_nodes=tree.parse(
            STATUS, lambda text: _status(parse_status(text), "Mems_allowed_list", parse_cpulist), MAX_STATUS_BYTES
        ),
        memory_limits=tuple(_memory_limits(tree)),
        cpu_quotas=tuple(_cpu_quotas(tree)),
        task_limits=tuple(_task_limits(tree)),
        user_namespace=user_namespace,
        no_new_privileges=_status(rows, "NoNewPrivs", lambda text: text == "1"),
        seccomp=_status(rows, "Seccomp", lambda text: text != "0"),
        locked_memory_bytes=tree.parse("/proc/self/limits", _locked_memory),
    )


def limits(context: Context) -> tuple[str, ...]:
    """Return what of the machine the captured process may use, for each limit; empty if it may use all of it."""
    confinement = context.confinement
    found = []
    if context.usable_cpus != frozenset(context.online_cpus):
        found.append(f"CPUs {format_cpulist(context.usable_cpus)}")
    if any(node.memory_bytes and node.id not in context.usable_nodes for node in context.nodes):
        found.append(f"memory of nodes {format_cpulist(context.usable_nodes)}")
    if memory := confinement.memory_limit:
        found.append(f"{memory.limit_bytes / (1 << 20):g} MiB of memory")
    if quota := confinement.cpu_quota:
        found.append(f"the time of {quota.cpus:g} CPUs")
    return tuple(found)
