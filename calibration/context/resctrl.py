# SPDX-License-Identifier: Apache-2.0
"""Allocations of cache ways and memory bandwidth: what a group's CPUs may use less of.

Source: ``Documentation/arch/x86/resctrl.rst`` of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.context.hardware import Allocation, Resctrl, ResctrlGroup
from calibration.context.isolation import parse_kernel_list
from calibration.context.tree import Tree
from calibration.text import visible

RESCTRL = "/sys/fs/resctrl"
OWN_GROUP = "/proc/self/cpu_resctrl_groups"
NOT_GROUPS = frozenset({"info", "mon_groups", "mon_data"})

WHOLE_PERCENT = 100
"""All of the memory bandwidth, in Intel's form."""

WHOLE_AMD = 2048
"""All of the memory bandwidth on AMD's processors, which count eighths of GB/s and start here (``resctrl.rst``)."""

_LINE = re.compile(r"\s*([A-Za-z0-9_]{1,20}):(.*)", re.ASCII)


def _entries(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield resource, domain and value of each entry of a schemata file. Raises ``ValueError``."""
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a resource with its domains: {line[:40]!r}")
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


def read_resctrl(tree: Tree, vendor: str | None) -> Resctrl | None:
    """Return the groups; None if resctrl is not mounted, or not visible to the login."""
    if tree.text(f"{RESCTRL}/schemata") is None:
        return None
    own = tree.parse(OWN_GROUP, _own_group) or ""
    masks: dict[str, int | None] = {}
    unchecked: dict[str, None] = {}

    def whole_of(resource: str) -> int | None:
        """Return the number of ways, or the whole bandwidth."""
        if resource not in masks:
            mask = tree.word(f"{RESCTRL}/info/{resource}/cbm_mask")
            if mask is not None and re.fullmatch(r"[0-9a-fA-F]{1,16}", mask, re.ASCII):
                masks[resource] = int(mask, 16).bit_count()
            elif resource == "MB":
                masks[resource] = WHOLE_AMD if vendor in {"AuthenticAMD", "HygonGenuine"} else WHOLE_PERCENT
            else:
                masks[resource] = None
        return masks[resource]

    def narrowed(text: str) -> tuple[Allocation, ...]:
        found = []
        for resource, domain, value in _entries(text):
            whole = whole_of(resource)
            base = 10 if resource == "MB" else 16
            if whole is None or re.fullmatch(r"[0-9a-fA-F]{1,16}", value, re.ASCII) is None:
                unchecked[resource] = None
                continue
            part = int(value, base) if base == 10 else int(value, 16).bit_count()
            if part > whole:  # in MB/s, with the mount option mba_MBps
                unchecked[resource] = None
            elif part < whole:
                found.append(Allocation(resource=resource, domain=domain, part=part, whole=whole))
        return tuple(found)

    groups = []
    for name in ("", *(name for name in tree.names(RESCTRL) if name not in NOT_GROUPS)):
        directory = f"{RESCTRL}/{name}".rstrip("/")
        allocations = tree.parse(f"{directory}/schemata", narrowed)
        if allocations is None:  # a file, or unparsable, which is recorded
            continue
        groups.append(
            ResctrlGroup(
                name=visible(name),
                mode=tree.word(f"{directory}/mode"),
                cpus=tree.parse(f"{directory}/cpus_list", parse_kernel_list) or (),
                own=bool(name) and name == own,
                narrowed=allocations,
            )
        )
    return Resctrl(groups=tuple(groups), unchecked=tuple(unchecked))


def narrowing_group(resctrl: Resctrl | None, cpus: frozenset[int]) -> Iterator[tuple[ResctrlGroup, frozenset[int]]]:
    """Yield the groups that narrow what *cpus* may use, with those CPUs: what a process measures there."""
    groups = () if resctrl is None else resctrl.groups
    own = next((group for group in groups if group.own), None)
    for group in groups:
        inside = cpus if group is own else cpus.intersection(group.cpus) if own is None else frozenset[int]()
        if group.narrowed and inside:
            yield group, inside


def allocation_text(group: ResctrlGroup) -> str:
    """Return what a group may use, as ``L3 4 of 16 ways, MB 50 of 100``; of several domains the least."""
    least: dict[str, Allocation] = {}
    for item in group.narrowed:
        if item.resource not in least or item.part < least[item.resource].part:
            least[item.resource] = item
    return ", ".join(
        f"{item.part} of {item.whole} "
        + ("parts of memory bandwidth" if item.resource == "MB" else f"ways of {item.resource}")
        for item in least.values()
    )
