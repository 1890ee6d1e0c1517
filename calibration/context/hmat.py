# SPDX-License-Identifier: Apache-2.0
"""What firmware and CXL devices say of the memory of a node: its rated speed, and the caches before it (ACPI HMAT).

Sources: ``Documentation/admin-guide/mm/numaperf.rst``, ``Documentation/ABI/stable/sysfs-devices-node`` and, for
regions of CXL memory (ns and MB/s, as for nodes), ``Documentation/ABI/testing/sysfs-bus-cxl`` of the Linux kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from calibration.base import units
from calibration.base.cpulists import MAX_ID
from calibration.context.hardware import RatedAccess
from calibration.context.model import Context, Indexing, MemorySideCache, WritePolicy
from calibration.context.tree import Tree, count

VALUES = ("read_latency_ns", "write_latency_ns", "read_bandwidth_mb_s", "write_bandwidth_mb_s")
"""Fields of a rated access, by the unit that the kernel gives them in."""

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


def read_rated_accesses(tree: Tree, place: str, inner: str = "") -> tuple[RatedAccess, ...]:
    """Return the rated accesses below the directory *place* by class, without those of which nothing is known.

    Values are in the directory of the class, or *inner* to it. The kernel writes 0 for a value that is not given.
    """
    found = []
    for access in tree.numbered(place, "access", last=1):
        directory = f"{place}/access{access}{inner}"
        names = {field: field.removesuffix("_ns").removesuffix("_mb_s") for field in VALUES}
        values = {field: tree.parse(f"{directory}/{name}", count) or None for field, name in names.items()}
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


class Rating(NamedTuple):
    """What *source* says of accesses by the CPUs of one node to the memory of another.

    ``cpu_node`` is ``None`` for the nearest CPUs, if the kernel does not say which of several nodes these are.
    """

    cpu_node: int | None
    memory_node: int
    source: str
    access: RatedAccess


def ratings(context: Context) -> Iterator[Rating]:
    """Yield what firmware and CXL's devices say of accesses by CPUs: first of those nearest among CPUs (class 1).

    What is said again, the kernel copied, and is left out.
    """
    for node in context.nodes:
        regions = () if context.cxl is None else [item for item in context.cxl.regions if item.node == node.id]
        rated = [(f"CXL {item.name} (class {{}})", access) for item in regions for access in item.rated_accesses]
        rated += [("firmware (HMAT, class {})", access) for access in node.rated_accesses]
        told: dict[tuple[int | None, ...], set[int | None]] = {}
        for source, access in sorted(rated, key=lambda pair: -pair[1].access):
            by = told.setdefault(tuple(getattr(access, field) for field in VALUES), set())
            for cpu_node in _raters(context, access):
                if cpu_node not in by:
                    by.add(cpu_node)
                    yield Rating(cpu_node, node.id, source.format(access.access), access)


def _raters(context: Context, access: RatedAccess) -> Iterable[int | None]:
    """Return the nodes whose CPUs *access* is about, ``None`` for the nearest; none if it may be about devices."""
    with_cpus = [node for node, cpus in context.cpus_by_node.items() if cpus]
    if access.initiators:
        return [node for node in with_cpus if not set(context.parts_of(node)).isdisjoint(access.initiators)]
    if access.access == 0:
        return []
    return with_cpus if len(with_cpus) == 1 else [None]


def rated_accesses_text(context: Context) -> str:
    """Return what the firmware says of the memory of each node; empty if nothing."""
    return "; ".join(f"node {node.id} {rated_text(rated)}" for node in context.nodes for rated in node.rated_accesses)


def rated_regions_text(context: Context) -> str:
    """Return what CXL's devices say of each region of their memory; empty if nothing."""
    regions = () if context.cxl is None else context.cxl.regions
    return "; ".join(f"{region.name} {rated_text(rated)}" for region in regions for rated in region.rated_accesses)


def rated_text(rated: RatedAccess) -> str:
    """Return latency and bandwidth of reads and writes, and from where."""
    nodes = rated.initiators
    near = units.numbered("node", nodes) if nodes else "the nearest"
    latencies = _both_ways(rated.read_latency_ns, rated.write_latency_ns, "ns")
    bandwidths = _both_ways(rated.read_bandwidth_mb_s, rated.write_bandwidth_mb_s, "MB/s")
    return f"from {near} (class {rated.access}): {latencies}, {bandwidths}"


def _both_ways(read: int | None, write: int | None, unit: str) -> str:
    values = [units.ABSENT if value is None else str(value) for value in (read, write)]
    return f"{values[0] if values[0] == values[1] else '/'.join(values)} {unit}"
