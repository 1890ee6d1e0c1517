# SPDX-License-Identifier: Apache-2.0
"""What the declarations ask of a SUT's context: which CPU measures, which CPUs load, how much memory may be used.

And what the machine itself means for every figure that is measured on it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from calibration.context.model import Context
from calibration.cpulists import format_cpulist
from calibration.errors import InputError
from calibration.measurements.platform import CacheReference
from calibration.sutprobe.document import ProbeDocument
from calibration.validity import Flag, flag

MEMORY_SHARE = 0.5
"""Share of a node's free memory that a measurement may use at once: the SUT's own work must not be pushed out."""

MIB = 1 << 20

KEPT_FREE_BYTES = 64 * MIB
"""What ``sutprobe`` leaves to the machine on each node: it refuses to take more."""

CHAIN_BESIDE = (4 + 1 / 8) / 64
"""What building a chain takes beside each byte of it: an index and a bit for each line."""

LLC_MULTIPLE = 4
"""A buffer is memory-bound from this multiple of the last-level cache on: at twice its size a random chase over an LRU
cache still hits half the time at its start, and neighbours' shares move."""

CHASE_BYTES_MIN = 64 * MIB
"""Least size of a chase in memory: beyond a cache that is not reported, and beyond what a second-level TLB covers."""

ASSUMED_LLC_BYTES = 64 * MIB
"""Last-level cache if the SUT does not report it: larger than most shares one core can reach."""

ASSUMED_L2_BYTES = MIB
"""Second-level cache if the SUT does not report it, as the kernel assumes too."""


EMULATED_NAME = re.compile(r"\bTCG\b")
"""What a processor's name has in it when software emulates it (QEMU's ``TCG CPU``)."""

EMULATED_HYPERVISOR = "TCGTCGTCGTCG"
"""What QEMU's emulator answers to CPUID 0x40000000, whatever processor it makes."""

EMULATED_IMPLEMENTER = "implementer 0x00"
"""Whom an aarch64 processor of software names as its maker: 0 is reserved for such."""

EMULATED_COUNTER_HZ = 62.5e6
"""Rate of the aarch64 counter that QEMU's emulator makes; with hardware virtualization it is the host's."""

EMULATED_COUNTER_SLACK = 1e-3
"""Relative difference from that rate that an adjusted clock may show."""


class Place(NamedTuple):
    """A CPU, and the node whose memory it works on."""

    cpu: int
    node: int

    def __str__(self) -> str:
        return f"{self.cpu}@{self.node}"


class SizedContext(Context):
    """The context of a SUT of whose platform an earlier run found where the last-level cache ends."""

    last_level_cache: CacheReference


def sized(context: Context, kept: CacheReference | None) -> Context:
    """Return *context* with the last-level cache size *kept* for its platform: planning and judging use the same."""
    if kept is None:
        return context
    return SizedContext.model_construct(**dict(context), last_level_cache=kept)


class Sut:
    """A reading of *context* for placing measurements: only CPUs that are online and that the login may use.

    The kernel starts every process outside the CPUs that ``isolcpus=`` isolates, but lets it go there when asked by
    number. So a login whose CPUs are exactly the others may use the isolated ones too; any other set is a restriction
    that somebody made, and is kept.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        online = frozenset(context.online_cpus)
        isolated = frozenset(context.isolated_cpus) & online
        allowed = online if context.cpus.allowed is None else frozenset(context.cpus.allowed) & online
        self.cpus = online if allowed == online - isolated else allowed
        self.isolated = isolated & self.cpus
        self.hidden = online - self.cpus
        """CPUs that are online and that the login may not use."""
        self._node_cpus = {node.id: sorted(self.cpus & set(node.cpus)) for node in context.nodes}
        self._node_of = {cpu: node.id for node in reversed(context.nodes) for cpu in node.cpus}
        self._cores = {cpu: core.cpus for core in reversed(context.topology.cores) for cpu in core.cpus}
        self._caches = {
            cpu: number for number, domain in enumerate(context.topology.last_level_cache_domains) for cpu in domain
        }
        self._lowest = min(self.cpus, default=None)
        self.memory_nodes = sorted(
            node.id for node in context.nodes if node.memory_bytes is None or node.memory_bytes > 0
        )
        """Ids of the nodes that have memory, memory-only nodes included, ascending."""

    @property
    def cpu_nodes(self) -> list[int]:
        """Ids of the nodes that have CPUs to measure with, ascending."""
        return sorted(node for node, cpus in self._node_cpus.items() if cpus)

    def cpus_of(self, node: int) -> list[int]:
        """Return the CPUs of *node* to measure with, ascending."""
        return self._node_cpus[node]

    def node_of(self, cpu: int) -> int:
        """Return the node of *cpu*. Raises ``InputError`` for a CPU that no node has."""
        if cpu not in self._node_of:
            raise InputError(f"CPU {cpu} belongs to no node")
        return self._node_of[cpu]

    def siblings(self, cpu: int) -> tuple[int, ...]:
        """Return the online CPUs of the same core, itself included; itself alone if the context lacks it."""
        return self._cores.get(cpu, (cpu,))

    def one_per_core(self, cpus: Iterable[int]) -> list[int]:
        """Return the lowest CPU of each core that *cpus* touch, ascending."""
        wanted = set(cpus)
        return [cpu for cpu in sorted(wanted) if cpu == min(wanted.intersection(self.siblings(cpu)))]

    def measuring_cpu(self, node: int) -> int:
        """Return the CPU of *node* that single-CPU measurements use.

        The first isolated CPU; without one the first CPU that is not the lowest online, because that one does the
        machine's housekeeping.
        """
        cpus = self.cpus_of(node)
        preferred = [cpu for cpu in cpus if cpu in self.isolated] or [cpu for cpu in cpus if cpu != self._lowest]
        return (preferred or cpus)[0]

    def housekeeping_cpu(self) -> int | None:
        """Return a CPU that is not isolated, to compare an isolated one with; ``None`` if there is none."""
        return min(self.cpus - self.isolated, default=None)

    def home(self, node: int) -> int:
        """Return the node whose memory the CPUs of *node* use by default: itself, or the nearest that has memory."""
        return self.nearest(node, self.memory_nodes) if self.memory_nodes else node

    def nearest(self, node: int, among: Sequence[int]) -> int:
        """Return that of the nodes *among*, at least one, which is nearest to *node*: itself, if it is one of them."""
        ids = [local.id for local in self.context.nodes]
        distances = self.context.distances
        if node in among or distances is None or len(distances) != len(ids):
            return node if node in among else among[0]
        row = dict(zip(ids, distances[ids.index(node)], strict=True))
        return min(among, key=lambda other: (row[other], other))

    def usable_bytes(self, node: int) -> int | None:
        """Return how much memory of *node* a measurement may use at once; ``None`` if the context lacks it."""
        found = self.context.node(node)
        free = found.available_bytes if found.available_bytes is not None else found.memory_bytes
        return None if free is None else max(0, min(int(free * MEMORY_SHARE), free - KEPT_FREE_BYTES))

    @property
    def llc_bytes(self) -> int | None:
        """Size of the last-level cache to size buffers for, ``None`` if nothing says.

        By what an earlier run found on the platform (``CacheReference.sized_bytes``); else what is reported.
        """
        reported = self.reported_llc_bytes
        if not isinstance(self.context, SizedContext):
            return reported
        return self.context.last_level_cache.sized_bytes(reported)

    @property
    def reported_llc_bytes(self) -> int | None:
        """Size of the last-level cache that one CPU reaches, as the kernel reports it; ``None`` if it does not.

        A first-level cache is nobody's last: a machine that lists no other (some guests) does not say.
        """
        sized = [
            (cache.level, cache.size_bytes)
            for cache in self.context.caches
            if cache.type != "Instruction" and cache.size_bytes is not None and cache.level > 1
        ]
        return max(sized)[1] if sized else None

    @property
    def l2_bytes(self) -> int:
        """Size of the second-level cache that the kernel reports; ``ASSUMED_L2_BYTES`` if it does not."""
        sized = [cache.size_bytes for cache in self.context.caches if cache.level == 2 and cache.size_bytes]
        return max(sized, default=ASSUMED_L2_BYTES)

    @property
    def llc_is_private(self) -> bool:
        """Whether no two cores share the last cache that the kernel reports, or it reports none.

        Memory is then behind a cache that is not reported: the system-level cache of many aarch64 servers.
        """
        return all(
            set(domain) <= set(self.siblings(domain[0])) for domain in self.context.topology.last_level_cache_domains
        )

    def fewest_per_llc(self, cpus: Iterable[int]) -> int:
        """Return how many of *cpus* share a last-level cache, at the fewest; 1 if the kernel does not report it."""
        shared = Counter(self._caches.get(cpu) for cpu in set(cpus))
        return 1 if None in shared else min(shared.values(), default=1)


def memory_bound_bytes(
    sut: Sut, node: int, *, llc_bytes: int | None = None, largest_bytes: int | None = None, buffers: int = 1
) -> int:
    """Return the size of a chase that is sure to live in memory, for one CPU on memory of *node*.

    ``LLC_MULTIPLE`` times the last-level cache, that of *sut* unless *llc_bytes* is given, rounded up to 2 MiB; at
    least ``CHASE_BYTES_MIN``. Capped by *largest_bytes*, and by what the node has free for each of *buffers* at the
    same time.
    """
    wanted = max(CHASE_BYTES_MIN, LLC_MULTIPLE * (llc_bytes or sut.llc_bytes or ASSUMED_LLC_BYTES))
    return capped_bytes(sut, node, min(wanted, largest_bytes or wanted), buffers=buffers, beside=CHAIN_BESIDE)


def capped_bytes(sut: Sut, node: int, wanted_bytes: int, *, buffers: int = 1, beside: float = 0) -> int:
    """Return *wanted_bytes* rounded up to 2 MiB, or what each of *buffers* on *node* may have at most.

    The kernel takes *beside* more for each byte of them.
    """
    wanted = -(-wanted_bytes // (2 * MIB)) * 2 * MIB
    usable = sut.usable_bytes(node)
    if usable is None or wanted * buffers * (1 + beside) <= usable:
        return wanted
    return max(2 * MIB, int(usable / (1 + beside)) // buffers // (2 * MIB) * 2 * MIB)


def size_flags(sut: Sut, together_bytes: int) -> Iterator[Flag]:
    """Yield a flag if *together_bytes*, touched through one last-level cache, may partly live in it."""
    llc = sut.llc_bytes
    if llc is not None and together_bytes < LLC_MULTIPLE * llc:
        yield flag(
            "BUFFER_TOO_SMALL",
            f"{together_bytes / MIB:g} MiB against a last-level cache of {llc / MIB:g} MiB: "
            "some of it may have come from the cache",
        )


def emulation_flags(context: Context, document: ProbeDocument) -> Iterator[Flag]:
    """Yield a flag if software makes the processor of *context*, by what it or *document* says."""
    if reason := _emulation(context, document):
        yield flag("EMULATED", f"{reason}: its timing is an emulator's")


def machine_flags(context: Context) -> Iterator[Flag]:
    """Yield what holds for the whole machine of *context*, and so for every figure."""
    virtualization = context.virtualization
    if virtualization.guest:
        evidence = ", ".join(virtualization.evidence)
        yield flag("VIRTUALISED", f"a guest of {virtualization.vendor or 'an unnamed hypervisor'} ({evidence})")
    if hidden := Sut(context).hidden:
        yield flag(
            "CPUS_HIDDEN",
            f"the login may not use {len(hidden)} of {len(context.online_cpus)} CPUs online "
            f"({format_cpulist(hidden)}): they were not measured, and what runs on them was not under control",
        )


def _emulation(context: Context, document: ProbeDocument) -> str | None:
    """Return what shows that software makes the processor; ``None`` if nothing does."""
    models = context.processor.models
    if document.host.hypervisor == EMULATED_HYPERVISOR:
        return f"the hypervisor calls itself {EMULATED_HYPERVISOR!r}"
    for model in models:
        if model.name and EMULATED_NAME.search(model.name):
            return f"the processor calls itself {model.name!r}"
        if model.vendor == EMULATED_IMPLEMENTER:
            return "the processor's implementer is 0, which is reserved for software"
    clock, guest_of = document.clock, context.virtualization.vendor
    if clock is None or clock.source != "cntvct" or guest_of != "QEMU":
        return None
    if abs(clock.hz / EMULATED_COUNTER_HZ - 1) > EMULATED_COUNTER_SLACK:
        return None
    return f"a QEMU guest whose counter runs at {clock.hz / 1e6:.1f} MHz, which is that of its emulator"
