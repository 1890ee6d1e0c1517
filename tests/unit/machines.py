# SPDX-License-Identifier: Apache-2.0
"""Contexts of big machines, made from a captured one: what plans are sized for without the machine at hand."""

from pathlib import Path

from calibration.context.loader import load
from calibration.context.model import Cache, Context, Core, Node

CAPTURED = Path(__file__).parents[1] / "fixtures" / "context" / "x86_64-two-nodes-smt.tar.gz"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AARCH64_FLAGS = ("fp", "asimd", "atomics")
X86_64_FLAGS = ("sse2", "avx2", "fma", "avx512f")


def machine(
    *,
    packages: int,
    nodes: int,
    cores: int,
    threads: int = 1,
    node_bytes: int,
    llc_bytes: int | None,
    llc_cores: int | None = None,
    l2_bytes: int = 2 * MIB,
    memory_only_bytes: tuple[int, ...] = (),
    architecture: str = "x86_64",
) -> Context:
    """Return the captured machine with so many *packages*, *nodes* and *cores* per node, of so many *threads* each.

    *llc_cores* share a last-level cache: by default those of a node. CPUs are numbered as Linux does on x86_64: first
    threads of all cores, then second ones. Nodes that are memory only come last, and farthest. Without *llc_bytes* the
    second level is the last that is reported.
    """
    captured = load(CAPTURED)
    count = nodes * cores

    def cpus_of(first: int, last: int) -> tuple[int, ...]:
        return tuple(core + count * thread for thread in range(threads) for core in range(first, last))

    online = tuple(range(count * threads))
    siblings = [cpus_of(core, core + 1) for core in range(count)]
    llc_cores = 1 if llc_bytes is None else llc_cores or cores
    domains = tuple(cpus_of(first, first + llc_cores) for first in range(0, count, llc_cores))
    package_of = [node * packages // nodes for node in range(nodes)]
    caches = [
        (1, "Data", 48 * KIB, siblings[0]),
        (1, "Instruction", 32 * KIB, siblings[0]),
        (2, "Unified", l2_bytes, siblings[0]),
    ]
    if llc_bytes is not None:
        caches.append((3, "Unified", llc_bytes, domains[0]))
    everywhere = nodes + len(memory_only_bytes)

    def distance(row: int, column: int) -> int:
        if row == column:
            return 10
        if row >= nodes or column >= nodes:
            return 50
        return 12 if package_of[row] == package_of[column] else 32

    return captured.model_copy(
        update={
            "cpus": captured.cpus.model_copy(
                update={"possible": online, "present": online, "online": online, "offline": (), "allowed": online}
            ),
            "topology": captured.topology.model_copy(
                update={
                    "threads_per_core": threads,
                    "cores": tuple(
                        Core(
                            cpus=sibling,
                            core_id=core,
                            cluster_id=None,
                            die_id=None,
                            package_id=package_of[core // cores],
                        )
                        for core, sibling in enumerate(siblings)
                    ),
                    "packages": packages,
                    "last_level_cache_domains": domains,
                    "last_level_cache_bytes": (llc_bytes or l2_bytes,) * len(domains),
                }
            ),
            "nodes": tuple(
                Node(
                    id=node,
                    cpus=cpus_of(node * cores, (node + 1) * cores) if node < nodes else (),
                    memory_bytes=size,
                    free_bytes=size,
                    available_bytes=size,
                    hugepages=(),
                    memory_tier=None,
                    memory_side_caches=(),
                    rated_accesses=(),
                )
                for node, size in enumerate((*[node_bytes] * nodes, *memory_only_bytes))
            ),
            "memory_only_nodes": tuple(range(nodes, everywhere)),
            "memory": captured.memory.model_copy(update={"available_bytes": None}),
            "confinement": captured.confinement.model_copy(update={"memory_nodes": None}),
            "distances": tuple(
                tuple(distance(row, column) for column in range(everywhere)) for row in range(everywhere)
            ),
            "caches": tuple(
                Cache(level=level, type=kind, size_bytes=size, line_bytes=64, shared_cpus=shared)
                for level, kind, size, shared in caches
            ),
            "processor": captured.processor.model_copy(
                update={
                    "architecture": architecture,
                    "flags": X86_64_FLAGS if architecture == "x86_64" else AARCH64_FLAGS,
                }
            ),
        }
    )


MACHINES = {
    "2x64-smt-8-nodes": machine(
        packages=2, nodes=8, cores=16, threads=2, node_bytes=96 * GIB, llc_bytes=32 * MIB, llc_cores=8, l2_bytes=MIB
    ),
    "2x126-smt-6-nodes": machine(packages=2, nodes=6, cores=42, threads=2, node_bytes=256 * GIB, llc_bytes=504 * MIB),
    "2x32-smt-2-nodes": machine(packages=2, nodes=2, cores=32, threads=2, node_bytes=256 * GIB, llc_bytes=60 * MIB),
    "1x128-aarch64-4-nodes": machine(
        packages=1, nodes=4, cores=32, node_bytes=64 * GIB, llc_bytes=None, l2_bytes=MIB, architecture="aarch64"
    ),
    "4x28-smt-4-nodes": machine(
        packages=4, nodes=4, cores=28, threads=2, node_bytes=192 * GIB, llc_bytes=77 * MIB // 2, l2_bytes=MIB
    ),
    "2x96-smt-2-nodes-2-memory-only": machine(
        packages=2, nodes=2, cores=96, threads=2, node_bytes=384 * GIB, llc_bytes=32 * MIB, llc_cores=8, l2_bytes=MIB,
        memory_only_bytes=(128 * GIB, 128 * GIB),
    ),
}  # fmt: skip
"""Six machines of labs: one per shape of nodes, caches and threads."""
