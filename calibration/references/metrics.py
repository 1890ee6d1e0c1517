# SPDX-License-Identifier: Apache-2.0
"""Quantities and instruments of references: a closed list of each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

Condition = Literal["cores_per_socket", "sockets", "nodes_per_socket", "mt_s", "channels_per_socket"]
"""What a figure depends on besides the processor."""

CORE: Final[tuple[Condition, ...]] = ()
INSIDE: Final[tuple[Condition, ...]] = ("cores_per_socket", "sockets", "nodes_per_socket")
MEMORY: Final[tuple[Condition, ...]] = get_args(Condition)
"""What figures of a core, of the caches and links of a processor, and of its memory depend on."""


class Quantity(NamedTuple):
    """What a metric means, the range of plausible values in its unit, and what it depends on."""

    title: str
    low: float
    high: float
    conditions: tuple[Condition, ...] = MEMORY


NODE_MB_S: Final = (1_000.0, 2_000_000.0)
MACHINE_MB_S: Final = (5_000.0, 5_000_000.0)
"""Bandwidths outside these are in another unit: servers read from 5 GB/s to 2 TB/s."""

QUANTITIES: Final[Mapping[str, Quantity]] = {
    "idle_latency_local_ns": Quantity("Idle latency, own memory", 40, 400),
    "idle_latency_near_ns": Quantity("Idle latency, other node of the socket", 40, 600),
    "idle_latency_remote_ns": Quantity("Idle latency, other socket", 60, 1000),
    "read_local_mb_s": Quantity("Read bandwidth of a node, own memory", *NODE_MB_S),
    "read_near_mb_s": Quantity("Read bandwidth of a node, other node of the socket", *NODE_MB_S),
    "read_remote_mb_s": Quantity("Read bandwidth of a node, other socket", *NODE_MB_S),
    "read_machine_mb_s": Quantity("Read bandwidth, all CPUs", *MACHINE_MB_S),
    "mix_3_1_mb_s": Quantity("3:1 reads and writes, all CPUs", *MACHINE_MB_S),
    "mix_2_1_mb_s": Quantity("2:1 reads and writes, all CPUs", *MACHINE_MB_S),
    "mix_1_1_mb_s": Quantity("1:1 reads and writes, all CPUs", *MACHINE_MB_S),
    "mix_triad_mb_s": Quantity("Triad, all CPUs", *MACHINE_MB_S),
    "loaded_latency_max_ns": Quantity("Latency under full load", 60, 5000),
    "l1_ns": Quantity("L1 latency", 0.3, 5, CORE),
    "l2_ns": Quantity("L2 latency", 1, 40, CORE),
    "l3_ns": Quantity("L3 latency", 4, 150, INSIDE),
    "c2c_local_hit_ns": Quantity("Clean line of another core, same node", 4, 300, INSIDE),
    "c2c_local_hitm_ns": Quantity("Modified line of another core, same node", 4, 300, INSIDE),
    "c2c_remote_hitm_writer_ns": Quantity("Modified line of the other socket, the writer's memory", 40, 1000, INSIDE),
    "c2c_remote_hitm_reader_ns": Quantity("Modified line of the other socket, the reader's memory", 40, 1000, INSIDE),
    "core_to_core_sibling_ns": Quantity("Line of the other thread of a core", 2, 300, INSIDE),
    "core_to_core_l3_ns": Quantity("Line of a core behind the same last-level cache", 5, 300, INSIDE),
    "core_to_core_remote_ns": Quantity("Line of a core of the other socket", 30, 1000, INSIDE),
}
"""Median over nodes or pairs, where there are several."""


OWN: Final = "sutprobe"
"""The only instrument whose figures say what is usual."""


class Tool(NamedTuple):
    """The name of an instrument, and how its figures differ from ours; ``None`` for our own."""

    name: str
    bias: str | None


TOOLS: Final[Mapping[str, Tool]] = {
    "sutprobe": Tool("sutprobe", None),
    "mlc": Tool(
        "Intel MLC",
        "one allocation, no interval. On machines of one model idle latency was 13 to 20 ns lower where it walked in "
        "order than where it walked at random. Bandwidth is that of its own pattern: compare it with the plain pattern",
    ),
    "stream": Tool(
        "STREAM",
        "counts the bytes of the program: with regular stores the triad moves a third more, which our figures count",
    ),
    "likwid_bench": Tool(
        "likwid-bench",
        "one stream of each thread. On one virtual machine ours read 1.02 [0.913, 1.49] times as much with all threads",
    ),
    "bw_mem": Tool(
        "lmbench bw_mem",
        "adds rates that each copy had in a time of its own, which can exceed what memory moves",
    ),
    "sc_membench": Tool(
        "sc-membench",
        "divides the bytes of all threads by the time of the last. Latencies of caches include page walks where it got "
        "no huge pages",
    ),
    "lat_mem_rd": Tool(
        "lmbench lat_mem_rd", "one sample; page walks are included where it got no huge pages, which adds tens of ns"
    ),
    "ramlat": Tool("ramlat", "base pages: beyond what the TLB covers, page walks are included"),
    "mess": Tool(
        "Mess",
        "the lightest point of a loaded curve, less an estimate of page walks; bandwidth by the counters of the memory "
        "controllers",
    ),
    "numa_mem_bench": Tool("Numa-Mem-Bench", "one chase in every node at the same time: nearly idle"),
    "core_to_core": Tool(
        "core-to-core-latency",
        "half a round trip of one line, ours loads many lines in a row. On one virtual machine ours took 0.927 "
        "[0.75, 0.94] times as long",
    ),
}
"""Ratios are those of docs/development/benchmarks.rst."""

if TYPE_CHECKING:
    Metric = str
    Instrument = str
else:
    Metric, Instrument = Literal[tuple(QUANTITIES)], Literal[tuple(TOOLS)]


def unit_of(metric: Metric) -> str:
    """Return the unit that the name of *metric* ends with."""
    return "ns" if metric.endswith("_ns") else "MB/s"
