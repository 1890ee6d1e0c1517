# SPDX-License-Identifier: Apache-2.0
"""Allocations of cache ways and memory bandwidth: what a group's CPUs may use less of.

Sources: ``Documentation/filesystems/resctrl.rst`` and ``arch/x86/kernel/cpu/resctrl`` of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from calibration.base.text import visible
from calibration.context.boot_rules import versions
from calibration.context.hardware import Allocation, Resctrl, ResctrlGroup
from calibration.context.isolation import parse_kernel_list
from calibration.context.topology import CPU
from calibration.context.tree import MAX_FILE_BYTES, Tree, count, kernel_of

RESCTRL = "/sys/fs/resctrl"
MOUNTS = "/proc/self/mountinfo"
OWN_GROUP = "/proc/self/cpu_resctrl_groups"
NOT_GROUPS = frozenset({"info", "mon_groups", "mon_data"})

BANDWIDTHS = {"MB": "memory bandwidth", "SMBA": "bandwidth of slow memory"}
"""Resources whose values are decimal numbers; those of others are masks of cache ways."""

WHOLE_PERCENT = 100
"""All of the memory bandwidth, in the form of Intel and Arm."""

WHOLE_MB_S = 0xFFFF_FFFF
"""The same with the mount option ``mba_MBps``: no limit in MB/s (``MBA_MAX_MBPS`` of ``fs/resctrl``)."""

LEAST_WHOLE_AMD = 2048
"""The same on AMD's first such processors, which count eighths of GB/s.

Later ones have larger powers of two, which no file says: the kernel reads them in CPUID 0x80000020 and gives them to
every new group (0976783bb123 in Linux 6.8).
"""

MORE_SINCE = (6, 8)
"""Linux before that knows no other."""

PSEUDO_LOCKED = frozenset({"pseudo-locked", "pseudo-locksetup"})

_MASK = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)
_LINE = re.compile(r"\s*([A-Za-z0-9_]{1,20}):(.*)", re.ASCII)


def _entries(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield resource, domain and value of each entry of a schemata file. Raises ``ValueError``."""
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a resource with its domains: {line[:40]!r}")
        if match.group(2) == "uninitialized":  # of a group that is going to be pseudo-locked
            continue
        for entry in match.group(2).split(";"):
            domain, equals, value = entry.strip().partition("=")
            if not equals or not domain.isdigit():
                raise ValueError(f"not a domain with its value: {entry[:40]!r}")
            yield match.group(1), int(domain), value.strip()


def _own_group(text: str) -> str:
    """Return the name of the process's group, empty for the default one. Raises ``ValueError``."""
    match = re.search(r"(?m)^res:/?([^/\n]*)/?$", text)
    if match is None:
        raise ValueError("no line 'res:'")
    return match.group(1)


def _whole_amd(values: Collection[int], release: str) -> int | None:
    """Return AMD's whole bandwidth by the *values* of all groups, of which one that was not narrowed has all of it."""
    largest = max(values, default=0)
    if largest >= LEAST_WHOLE_AMD and largest.bit_count() == 1:
        return largest
    return LEAST_WHOLE_AMD if largest < LEAST_WHOLE_AMD and versions(release)[0] < MORE_SINCE else None


def _whole(tree: Tree, resource: str, values: Collection[int], vendor: str | None) -> int | None:
    """Return the number of ways or the whole bandwidth of which *values* are parts; None if unknown."""
    if resource not in BANDWIDTHS:
        mask = tree.word(f"{RESCTRL}/info/{resource}/cbm_mask")
        return int(mask, 16).bit_count() if mask is not None and _MASK.fullmatch(mask) else None
    if vendor in {"AuthenticAMD", "HygonGenuine"}:
        return _whole_amd(values, kernel_of(tree)[0] or "")
    if resource == "MB" and (WHOLE_MB_S in values or tree.parse(MOUNTS, _in_mb_s, MAX_FILE_BYTES)):
        return WHOLE_MB_S
    return WHOLE_PERCENT if max(values, default=0) <= WHOLE_PERCENT else None


def _in_mb_s(mounts: str) -> bool:
    return re.search(r"(?m) - resctrl \S+ (\S+,)?mba_MBps(,|$)", mounts) is not None


def _part(resource: str, value: str) -> int | None:
    """Return the part that *value* stands for, None if it is no number."""
    if resource in BANDWIDTHS:
        return int(value) if re.fullmatch(r"[0-9]{1,10}", value, re.ASCII) else None
    return int(value, 16).bit_count() if _MASK.fullmatch(value) else None


def _parts(text: str) -> tuple[tuple[str, int, int | None], ...]:
    """Return resource, domain and part of each entry of a schemata file."""
    return tuple((resource, domain, _part(resource, value)) for resource, domain, value in _entries(text))


def _domains(tree: Tree) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the CPUs that share each cache, by its level and number: its number is that of the domain."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in tree.numbered(CPU, "cpu"):
        for index in tree.names(f"{CPU}/cpu{cpu}/cache"):
            place = f"{CPU}/cpu{cpu}/cache/{index}"
            number = tree.parse(f"{place}/id", count)
            level = None if number is None else tree.parse(f"{place}/level", count)
            if number is not None and level is not None:
                found.setdefault((level, number), []).append(cpu)
    return {key: tuple(cpus) for key, cpus in found.items()}


def _level(resource: str) -> int:
    """Return the level of the caches that are the domains of *resource*; that of bandwidth is the third."""
    return 2 if resource.startswith("L2") else 3


def read_resctrl(tree: Tree, vendor: str | None) -> Resctrl | None:
    """Return the groups; None if resctrl is not mounted, or not visible to the login."""
    if tree.text(f"{RESCTRL}/schemata") is None:
        return None
    own = tree.parse(OWN_GROUP, _own_group) or ""
    parts = {
        name: found
        for name in ("", *(name for name in tree.names(RESCTRL) if name not in NOT_GROUPS))
        if (found := tree.parse(f"{RESCTRL}/{name}".rstrip("/") + "/schemata", _parts)) is not None
    }  # without files, and what is unparsable, which is recorded
    values: dict[str, list[int]] = {}
    unknown: set[str] = set()
    for resource, _, part in (entry for entries in parts.values() for entry in entries):
        if part is None:
            unknown.add(resource)
        else:
            values.setdefault(resource, []).append(part)
    wholes = {resource: _whole(tree, resource, values[resource], vendor) for resource in values}
    groups = []
    domains = _domains(tree)
    for name, entries in parts.items():
        directory = f"{RESCTRL}/{name}".rstrip("/")
        mode = tree.word(f"{directory}/mode")
        narrowed = (
            Allocation(
                resource=resource,
                domain=domain,
                part=part,
                whole=whole,
                cpus=domains.get((_level(resource), domain)),
            )
            for resource, domain, part in entries
            if part is not None and (whole := wholes[resource]) is not None and part < whole
        )
        groups.append(
            ResctrlGroup(
                name=visible(name),
                mode=mode,
                cpus=tree.parse(f"{directory}/cpus_list", parse_kernel_list) or (),
                own=bool(name) and name == own,
                # What is pseudo-locked is data of a program in a cache, not what its CPUs may use.
                narrowed=() if mode in PSEUDO_LOCKED else tuple(narrowed),
            )
        )
    unknown.update(resource for resource, whole in wholes.items() if whole is None)
    return Resctrl(groups=tuple(groups), unchecked=tuple(sorted(unknown)))


def narrowing_group(resctrl: Resctrl | None, cpus: frozenset[int]) -> Iterator[tuple[ResctrlGroup, frozenset[int]]]:
    """Yield the groups that narrow what *cpus* may use, with those CPUs and what is narrowed there."""
    groups = () if resctrl is None else resctrl.groups
    own = next((group for group in groups if group.own), None)
    for group in groups:
        inside = cpus if group is own else cpus.intersection(group.cpus) if own is None else frozenset[int]()
        if not inside:
            continue
        of_item = {item: inside if item.cpus is None else inside.intersection(item.cpus) for item in group.narrowed}
        if narrowed := tuple(item for item, within in of_item.items() if within):
            yield group.model_copy(update={"narrowed": narrowed}), frozenset().union(*of_item.values())


def allocation_text(group: ResctrlGroup) -> str:
    """Return what a group may use, as ``L3 4 of 16 ways, MB 50 of 100``; of several domains the least."""
    least: dict[str, Allocation] = {}
    for item in group.narrowed:
        if item.resource not in least or item.part < least[item.resource].part:
            least[item.resource] = item
    return ", ".join(map(_part_text, least.values()))


def _part_text(item: Allocation) -> str:
    if item.resource not in BANDWIDTHS:
        return f"{item.part} of {item.whole} ways of {item.resource}"
    share = f"{item.part} MB/s" if item.whole == WHOLE_MB_S else f"{item.part} of {item.whole} parts"
    return f"{share} of {BANDWIDTHS[item.resource]}"


def unchecked_text(resctrl: Resctrl) -> str | None:
    """Return the resources that were not checked, None if there are none."""
    return f"not checked, as the whole is unknown: {', '.join(resctrl.unchecked)}" if resctrl.unchecked else None
