# SPDX-License-Identifier: Apache-2.0
"""CXL memory, the nodes made of it, and the weights by which pages are interleaved.

Sources: ``Documentation/ABI/testing/sysfs-bus-cxl``, ``sysfs-bus-dax`` and
``sysfs-kernel-mm-mempolicy-weighted-interleave`` of the Linux kernel.
"""

from __future__ import annotations

import re

from calibration.context.hardware import Cxl, CxlMemory, CxlRegion, Interleaving
from calibration.context.hmat import read_rated_accesses
from calibration.context.memory import NODE
from calibration.context.tree import Tree, count, integer

CXL = "/sys/bus/cxl/devices"
DAX = "/sys/bus/dax/devices"
WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"

AUTOMATIC_NAMES = ("auto", "__auto_type")
"""The switch of automatic weights. Linux 6.18 to 7.0 has the second: its headers define ``auto`` as a macro."""


def size(text: str) -> int:
    """Return a size in bytes, decimal or hexadecimal. Raises ``ValueError``."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}", text.strip(), re.ASCII) is None:
        raise ValueError(f"not a size: {text[:40]!r}")
    return int(text, 0)


def _switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"neither true nor false: {text[:40]!r}")
    return text == "true"


def _node(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None


def read_cxl(tree: Tree) -> Cxl | None:
    """Return the CXL memory; None if the kernel has no CXL bus."""
    if not tree.is_dir(CXL):
        return None
    nodes: dict[str, int] = {}
    for device in tree.names(DAX):
        region = re.search(r"/(region[0-9]+)/", tree.link(f"{DAX}/{device}") or "")
        node = _node(tree.parse(f"{DAX}/{device}/target_node", integer))
        if region is not None and node is not None and tree.is_dir(f"{NODE}/node{node}"):  # else not online
            nodes[region.group(1)] = node
    devices = (f"mem{number}" for number in tree.numbered(CXL, "mem"))
    regions = (f"region{number}" for number in tree.numbered(CXL, "region"))
    return Cxl(
        devices=tuple(
            CxlMemory(
                name=name,
                volatile_bytes=tree.parse(f"{CXL}/{name}/ram/size", size),
                persistent_bytes=tree.parse(f"{CXL}/{name}/pmem/size", size),
                node=_node(tree.parse(f"{CXL}/{name}/numa_node", integer)),
                firmware=tree.word(f"{CXL}/{name}/firmware_version"),
            )
            for name in devices
        ),
        regions=tuple(
            CxlRegion(
                name=name,
                size_bytes=tree.parse(f"{CXL}/{name}/size", size),
                ways=tree.parse(f"{CXL}/{name}/interleave_ways", count),
                granularity_bytes=tree.parse(f"{CXL}/{name}/interleave_granularity", count),
                node=nodes.get(name),
                cache_bytes=tree.parse(f"{CXL}/{name}/extended_linear_cache_size", size) or None,
                rated_accesses=read_rated_accesses(tree, f"{CXL}/{name}"),
            )
            for name in regions
        ),
        nodes=tuple(sorted(set(nodes.values()))),
    )


def read_interleaving(tree: Tree) -> Interleaving | None:
    """Return the weights of the online nodes; None before Linux 6.9. Some kernels list those of all possible nodes."""
    numbers = [number for number in tree.numbered(WEIGHTS, "node") if tree.is_dir(f"{NODE}/node{number}")]
    found = {number: tree.parse(f"{WEIGHTS}/node{number}", count) for number in numbers}
    weights = {number: weight for number, weight in found.items() if weight is not None}
    if not weights:
        return None
    automatic = (tree.parse(f"{WEIGHTS}/{name}", _switch) for name in AUTOMATIC_NAMES)
    return Interleaving(weights=weights, automatic=next((state for state in automatic if state is not None), None))
