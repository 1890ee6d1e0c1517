# SPDX-License-Identifier: Apache-2.0
"""What the firmware says of the memory of a node (ACPI HMAT): its rated speed, and the caches before it.

Sources: ``Documentation/admin-guide/mm/numaperf.rst`` and ``Documentation/ABI/stable/sysfs-devices-node`` of the Linux
kernel.
"""

from __future__ import annotations

from calibration.base import units
from calibration.base.cpulists import MAX_ID
from calibration.context.model import Context, Indexing, MemorySideCache, RatedAccess, WritePolicy
from calibration.context.tree import Tree, count

INDEXING: dict[int, Indexing] = {0: "direct-mapped", 1: "indexed"}
WRITE_POLICIES: dict[int, WritePolicy] = {0: "write-back", 1: "write-through"}

EXTENDED_LINEAR = "0x1"
"""Address mode, since Linux 6.15, of a cache whose size is added to the node's."""


def read_memory_side_caches(tree: Tree, node_directory: str) -> tuple[MemorySideCache, ...]:
    """Return the caches before the memory of a node, that nearest to the memory first, as the kernel numbers them.

    Level 0 without a size is how the firmware says that there is none.
    """
    base = f"{node_directory}/memory_side_cache"
    found = []
    for index in tree.numbered(base, "index"):
        directory = f"{base}/index{index}"
        size_bytes = tree.parse(f"{directory}/size", count) or None
        if size_bytes or index:
            indexing, policy = (tree.parse(f"{directory}/{name}", count) for name in ("indexing", "write_policy"))
            found.append(
                MemorySideCache(
                    index=index,
                    size_bytes=size_bytes,
                    line_bytes=tree.parse(f"{directory}/line_size", count) or None,
                    indexing=None if indexing is None else INDEXING.get(indexing, "other"),
                    write_policy=None if policy is None else WRITE_POLICIES.get(policy, "other"),
                    extended_linear=tree.word(f"{directory}/address_mode") == EXTENDED_LINEAR,
                )
            )
    return tuple(found)


def read_rated_accesses(tree: Tree, node_directory: str) -> tuple[RatedAccess, ...]:
    """Return the rated accesses to the memory of a node by class, without those of which nothing is known.

    The kernel writes 0 for a value that the firmware does not give.
    """
    found = []
    for access in tree.numbered(node_directory, "access", last=1):
        directory = f"{node_directory}/access{access}/initiators"
        values = {
            field: tree.parse(f"{directory}/{name}", count) or None
            for field, name in (
                ("read_latency_ns", "read_latency"),
                ("write_latency_ns", "write_latency"),
                ("read_bandwidth_mb_s", "read_bandwidth"),
                ("write_bandwidth_mb_s", "write_bandwidth"),
            )
        }
        if any(values.values()):
            found.append(RatedAccess(access=access, initiators=tree.numbered(directory, "node", MAX_ID), **values))
    return tuple(found)


def memory_side_caches_text(context: Context) -> str:
    """Return the caches before the memory of each node; empty if there is none."""
    return "; ".join(
        f"node {node.id}: {cache_text(cache)}" for node in context.nodes for cache in node.memory_side_caches
    )


def cache_text(cache: MemorySideCache) -> str:
    """Return size and kind of a memory-side cache."""
    linear = "part of the node's memory (extended linear)" if cache.extended_linear else None
    line = None if cache.line_bytes is None else f"lines of {units.size(cache.line_bytes)}"
    size = "size unknown" if cache.size_bytes is None else units.size(cache.size_bytes)
    indexing = "other indexing" if cache.indexing == "other" else cache.indexing
    policy = "other write policy" if cache.write_policy == "other" else cache.write_policy
    return ", ".join(filter(None, (size, indexing, policy, line, linear)))


def rated_accesses_text(context: Context) -> str:
    """Return what the firmware says of the memory of each node; empty if nothing."""
    return "; ".join(f"node {node.id} {rated_text(rated)}" for node in context.nodes for rated in node.rated_accesses)


def rated_text(rated: RatedAccess) -> str:
    """Return latency and bandwidth of reads and writes by the firmware, and from where."""
    nodes = rated.initiators
    near = units.numbered("node", nodes) if nodes else "the nearest"
    latencies = _both_ways(rated.read_latency_ns, rated.write_latency_ns, "ns")
    bandwidths = _both_ways(rated.read_bandwidth_mb_s, rated.write_bandwidth_mb_s, "MB/s")
    return f"from {near} (class {rated.access}): {latencies}, {bandwidths}"


def _both_ways(read: int | None, write: int | None, unit: str) -> str:
    values = [units.ABSENT if value is None else str(value) for value in (read, write)]
    return f"{values[0] if values[0] == values[1] else '/'.join(values)} {unit}"
