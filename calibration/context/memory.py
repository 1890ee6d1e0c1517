# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes, memory, distances, huge pages and page settings."""

from __future__ import annotations

import re

from calibration.base.cpulists import MAX_ID, parse_cpulist
from calibration.context.hmat import read_memory_side_caches, read_rated_accesses
from calibration.context.model import CpuSets, HugePages, Memory, Node, TransparentHugePages, TransparentHugePageSize
from calibration.context.topology import CPU, read_set
from calibration.context.tree import MAX_TEXT_BYTES, Tree, count, printable_line

NODE = "/sys/devices/system/node"
MM = "/sys/kernel/mm"
LOCAL_DISTANCE = 10
"""Distance of a node from itself, fixed by ACPI (SLIT) and by the kernel."""

MAX_DISTANCE = 2**31 - 1
_MEMINFO_ROW = re.compile(r"(?:Node\s+[0-9]+\s+)?([A-Za-z0-9_()]+):\s+([0-9]{1,16})\s*(kB)?", re.ASCII)
_CHOICE = re.compile(r"\[([A-Za-z0-9_+-]+)\]", re.ASCII)


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse ``meminfo`` (the machine's or a node's) into bytes; rows without kB are counts.

    Raises ``ValueError`` if there is no such row.
    """
    rows = {}
    for line in text.splitlines():
        match = _MEMINFO_ROW.fullmatch(line.strip())
        if match is not None:
            rows[match.group(1)] = int(match.group(2)) * (1024 if match.group(3) else 1)
    if not rows:
        raise ValueError("no rows such as 'MemTotal: 1 kB'")
    return rows


_PAGES_OF = re.compile(r"hugepages-([0-9]{1,10})kB", re.ASCII)


def parse_choice(text: str) -> str:
    """Return the bracketed word of ``always [madvise] never``. Raises ``ValueError``."""
    match = _CHOICE.search(text)
    if match is None:
        raise ValueError(f"no [choice] in brackets: {text[:60]!r}")
    return match.group(1)


def parse_distances(text: str) -> tuple[int, ...]:
    """Parse one row of distances. Raises ``ValueError``."""
    words = text.split() if len(text) <= MAX_TEXT_BYTES else []
    if not words or not all(w.isascii() and w.isdigit() and len(w) <= 10 and int(w) <= MAX_DISTANCE for w in words):
        raise ValueError(f"not distances such as 10 21: {text[:60]!r}")
    return tuple(int(w) for w in words)


def _pool(tree: Tree, directory: str) -> tuple[HugePages, ...]:
    pools = []
    for name in tree.names(directory):
        match = re.fullmatch(r"hugepages-([0-9]{1,12})kB", name, re.ASCII)
        if match is None:
            continue
        pools.append(
            HugePages(
                size_bytes=int(match.group(1)) * 1024,
                total=tree.parse(f"{directory}/{name}/nr_hugepages", count),
                free=tree.parse(f"{directory}/{name}/free_hugepages", count),
                surplus=tree.parse(f"{directory}/{name}/surplus_hugepages", count),
                reserved=tree.parse(f"{directory}/{name}/resv_hugepages", count),
            )
        )
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def _memory_tiers(tree: Tree) -> dict[int, int]:
    base = "/sys/devices/virtual/memory_tiering"
    tiers = {}
    for tier in tree.numbered(base, "memory_tier"):
        for node in tree.parse(f"{base}/memory_tier{tier}/nodelist", parse_cpulist) or ():
            tiers[node] = tier
    return tiers


def _linked_nodes(tree: Tree, online: frozenset[int]) -> dict[int, set[int]]:
    """Return, by node, the CPUs linked in its directory."""
    found: dict[int, set[int]] = {}
    for cpu in online:
        for node in tree.numbered(f"{CPU}/cpu{cpu}", "node", MAX_ID):
            found.setdefault(node, set()).add(cpu)
    return found


def _available(rows: dict[str, int]) -> int | None:
    """Return free memory and inactive file pages, which are reclaimed easily; None if neither is known."""
    free = rows.get("MemFree")
    return None if free is None else free + rows.get("Inactive(file)", 0)


def read_nodes(tree: Tree, cpus: CpuSets) -> tuple[Node, ...]:
    """Return the online NUMA nodes by number, with their online CPUs.

    ``node/online`` lists them; if it is missing or unusable, every ``nodeN`` directory counts. A kernel without NUMA
    has no such directories: node 0 then has all online CPUs and all memory. A sole node without its own ``meminfo``
    has the machine's memory.
    """
    online = frozenset(cpus.online)
    meminfo = tree.parse("/proc/meminfo", parse_meminfo) or {}
    directories = tree.numbered(NODE, "node", MAX_ID)
    listed = tree.parse(f"{NODE}/online", parse_cpulist)
    numbers = listed or directories
    if not numbers:
        return (
            Node(
                id=0,
                cpus=cpus.online,
                memory_bytes=meminfo.get("MemTotal"),
                free_bytes=meminfo.get("MemFree"),
                available_bytes=_available(meminfo),
                hugepages=_pool(tree, f"{MM}/hugepages"),
                memory_tier=None,
                memory_side_caches=(),
                rated_accesses=(),
            ),
        )
    tiers = _memory_tiers(tree)
    linked: dict[int, set[int]] | None = None
    nodes = []
    for number in numbers:
        directory = f"{NODE}/node{number}"
        members = read_set(tree, directory, ("cpulist",), ("cpumap",))
        if members is None:
            linked = _linked_nodes(tree, online) if linked is None else linked
            found = linked.get(number, set()).union(tree.numbered(directory, "cpu", MAX_ID))
            members = tuple(sorted(found & online))
            if not members and len(numbers) == 1:
                members = cpus.online
        rows = tree.parse(f"{directory}/meminfo", parse_meminfo)
        if rows is None:
            rows = meminfo if len(numbers) == 1 else {}
        nodes.append(
            Node(
                id=number,
                cpus=tuple(cpu for cpu in members if cpu in online),
                memory_bytes=rows.get("MemTotal"),
                free_bytes=rows.get("MemFree"),
                available_bytes=_available(rows),
                hugepages=_pool(tree, f"{directory}/hugepages"),
                memory_tier=tiers.get(number),
                memory_side_caches=read_memory_side_caches(tree, directory),
                rated_accesses=read_rated_accesses(tree, directory, "/initiators"),
            )
        )
    _note_overlaps(tree, nodes)
    return tuple(nodes)


def _note_overlaps(tree: Tree, nodes: list[Node]) -> None:
    """Record a CPU in nodes that otherwise differ; those with the same CPUs are emulated parts of one node."""
    owners: dict[int, Node] = {}
    for node in nodes:
        for cpu in node.cpus:
            owner = owners.setdefault(cpu, node)
            if owner.cpus != node.cpus:
                tree.note(
                    f"{NODE}/node{node.id}/cpulist",
                    f"contradictory: CPU {cpu} is in node {owner.id} as well as in node {node.id}",
                )
                break


def read_distances(tree: Tree, nodes: tuple[Node, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Return the square matrix of the online nodes in order of their numbers.

    None if any part is missing.

    A ``distance`` file lists the online nodes only, in order. A row as long as the possible nodes is taken to list
    those (nodes went offline meanwhile); any other length is recorded as unparsable. A sole node is at the local
    distance from itself.
    """
    rows = []
    possible = tree.parse(f"{NODE}/possible", parse_cpulist) or ()
    places = {number: place for place, number in enumerate(possible)}
    columns = [places[node.id] for node in nodes if node.id in places]
    for node in nodes:
        path = f"{NODE}/node{node.id}/distance"
        row = tree.parse(path, parse_distances)
        if row is not None and len(row) == len(possible) and len(columns) == len(nodes):
            row = tuple(row[column] for column in columns)
        if row is not None and len(row) != len(nodes):
            tree.note(
                path,
                f"unparsable: {len(row)} distances for {len(nodes)} online nodes",
            )
            row = None
        if row is not None:
            rows.append(row)
    if len(rows) == len(nodes):
        return tuple(rows)
    return ((LOCAL_DISTANCE,),) if len(nodes) == 1 else None


def memory_only_nodes(tree: Tree, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """Return the nodes with memory and no online CPU.

    A node of unknown size counts only if the kernel's ``has_memory`` lists it: nodes with neither CPUs nor memory
    exist too (an I/O bridge, an accelerator, offline memory).
    """
    has_memory = tree.parse(f"{NODE}/has_memory", parse_cpulist)
    if has_memory is None:
        has_memory = tree.parse(f"{NODE}/has_normal_memory", parse_cpulist) or ()
    with_memory = frozenset(has_memory)
    return tuple(
        node.id
        for node in nodes
        if not node.cpus and (node.id in with_memory if node.memory_bytes is None else node.memory_bytes > 0)
    )


def cpu_only_nodes(nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """Return the nodes with online CPUs that the kernel reports without memory."""
    return tuple(node.id for node in nodes if node.cpus and node.memory_bytes == 0)


def _page_sizes(tree: Tree, thp: str) -> tuple[TransparentHugePageSize, ...] | None:
    found = {}
    for name in tree.names(thp):
        if match := _PAGES_OF.fullmatch(name):
            choice = tree.parse(f"{thp}/{name}/enabled", parse_choice)
            if choice is not None:
                found[int(match.group(1)) << 10] = choice
    sizes = (TransparentHugePageSize(size_bytes=size, enabled=found[size]) for size in sorted(found))
    return tuple(sizes) or None


def read_memory(tree: Tree, base_page_bytes: int | None) -> Memory:
    """Return memory of the whole machine, huge pages and page policies."""
    rows = tree.parse("/proc/meminfo", parse_meminfo) or {}
    thp = f"{MM}/transparent_hugepage"
    khugepaged = tree.parse(f"{thp}/khugepaged/defrag", printable_line)
    return Memory(
        total_bytes=rows.get("MemTotal"),
        free_bytes=rows.get("MemFree"),
        available_bytes=rows.get("MemAvailable"),
        swap_total_bytes=rows.get("SwapTotal"),
        default_hugepage_bytes=rows.get("Hugepagesize"),
        hugepages=_pool(tree, f"{MM}/hugepages"),
        transparent_hugepages=TransparentHugePages(
            enabled=tree.parse(f"{thp}/enabled", parse_choice),
            defrag=tree.parse(f"{thp}/defrag", parse_choice),
            shmem_enabled=tree.parse(f"{thp}/shmem_enabled", parse_choice),
            sizes=_page_sizes(tree, thp),
            khugepaged_defrag=None if khugepaged not in ("0", "1", "yes", "no") else khugepaged in ("1", "yes"),
        ),
        numa_balancing=tree.parse("/proc/sys/kernel/numa_balancing", count),
        anonymous_huge_bytes=rows.get("AnonHugePages"),
        base_page_bytes=base_page_bytes,
    )
