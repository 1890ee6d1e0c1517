# SPDX-License-Identifier: Apache-2.0
"""What the declarations derive from a SUT's context: measuring CPU, loading CPUs, usable memory.

Also the flags that apply to every value of the machine.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple, Self

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped, in_turn
from calibration.base.validity import Flag, flag
from calibration.context.devices import narrowed_links
from calibration.context.model import Context, CpuQuota, MemoryLimit
from calibration.context.resctrl import allocation_text, narrowing_group
from calibration.measurements.platform import CacheReference, ShapeReference
from calibration.sutprobe.document import ProbeDocument

MEMORY_SHARE = 0.5
"""Share of a node's free memory that a measurement may use at once, so that nothing is evicted."""

MIB = 1 << 20

HUGE_BYTES = 2 * MIB
"""A huge page: what sutprobe maps for a buffer where it can have them."""

KEPT_FREE_BYTES = 64 * MIB
"""Memory that ``sutprobe`` leaves free on each node."""

CHAIN_BESIDE = 4 / 64
"""Memory for building a chain, per byte of the chain: an index for each line."""

LLC_MULTIPLE = 4
"""A buffer of this multiple of the last-level cache is memory-bound: at twice its size a random chase over an LRU
cache still hits half the time at its start, and neighbours' shares vary."""

CHASE_BYTES_MIN = 64 * MIB
"""Least size of a chase in memory: beyond an unreported cache, and beyond the reach of a second-level TLB."""

LARGEST_CHASE_BYTES = 2 << 30
"""Longest chain, unless a profile says otherwise: building one takes a second per GiB."""

LARGEST_TRAFFIC_BYTES = 16 << 30
"""Most memory of a node that is filled to get beyond a memory-side cache: about a second, for every placement."""

ASSUMED_LLC_BYTES = 64 * MIB
"""Last-level cache if unreported: larger than most shares that one core can reach."""

ASSUMED_L2_BYTES = MIB
"""Second-level cache if unreported, as sutprobe assumes too."""

ASSUMED_LINE_BYTES = 64
"""Cache line if unreported, as sutprobe assumes too."""


LOAD_CPUS = 4
"""CPUs of each node that load the memory, and CPUs of the housekeeping load: a light load on a large machine."""

FORK_PROCESSES = 2
"""Most processes of a housekeeping CPU at the same time: the one that forks, and the forked."""

EMULATED_NAME = re.compile(r"\bTCG\b")
"""Part of an emulated processor's name (QEMU's ``TCG CPU``)."""

EMULATED_HYPERVISOR = "TCGTCGTCGTCG"
"""QEMU TCG's answer to CPUID 0x40000000, whatever processor it emulates."""

EMULATED_IMPLEMENTER = "implementer 0x00"
"""Implementer of an emulated aarch64 processor: 0 is reserved for software."""

EMULATED_COUNTER_HZ = 62.5e6
"""Rate of the aarch64 counter under QEMU TCG; with hardware virtualization it is the host's."""

EMULATED_COUNTER_SLACK = 1e-3
"""Tolerance of that rate, for adjusted clocks."""


OUTSIDE_PARTITION = "a cpuset partition has them, and only what is started in its control group may use them"
"""Why a login does not reach isolated CPUs that another control group has taken from its own."""


NONE_TO_LOAD = "no CPU is left to load"


class Place(NamedTuple):
    """A CPU, and the node whose memory it uses."""

    cpu: int
    node: int

    def __str__(self) -> str:
        return f"{self.cpu}@{self.node}"


class Sut:
    """The CPUs and nodes of *context* for placing measurements: those that the login may use.

    That is in its cpuset and affinity, no more CPUs than its CPU quota keeps running, and none that is in no node while
    others are. *traffic_shape* and *last_level_cache* were found earlier on its platform.
    """

    def __init__(
        self,
        context: Context,
        traffic_shape: ShapeReference | None = None,
        last_level_cache: CacheReference | None = None,
    ) -> None:
        self.context = context
        self.traffic_shape = traffic_shape
        self.last_level_cache = last_level_cache
        self.cpus = _within_quota(context)
        self.isolated = frozenset(context.isolated_cpus) & self.cpus
        by_node = context.cpus_by_node
        self._node_cpus = {node: sorted(self.cpus.intersection(cpus)) for node, cpus in by_node.items()}
        self._node_of = {cpu: node for node, cpus in by_node.items() for cpu in cpus}
        self._cores = {cpu: core.cpus for core in reversed(context.topology.cores) for cpu in core.cpus}
        self._caches = {
            cpu: number for number, domain in enumerate(context.topology.last_level_cache_domains) for cpu in domain
        }
        self._lowest = min(self.cpus, default=None)
        self.memory_nodes = sorted(context.usable_nodes)
        """Ids of the nodes with memory that may be used, including memory-only nodes, ascending."""
        self.free_bytes = _free_bytes(context, self.memory_nodes)
        """Memory available on each of these nodes alone, where it is known."""
        self.available_bytes = _divided(self.free_bytes, room_bytes(context))
        """Memory available on each of them for measurements on all of them at once."""

    @property
    def cpu_nodes(self) -> list[int]:
        """Ids of the nodes with CPUs to measure on, ascending."""
        return sorted(node for node, cpus in self._node_cpus.items() if cpus)

    def cpus_of(self, node: int) -> list[int]:
        """Return the CPUs of *node* to measure on, ascending."""
        return self._node_cpus[node]

    def node_of(self, cpu: int) -> int:
        """Return the node of *cpu*. Raises ``InputError`` for a CPU of no node."""
        if cpu not in self._node_of:
            raise InputError(f"CPU {cpu} belongs to no node")
        return self._node_of[cpu]

    def siblings(self, cpu: int) -> tuple[int, ...]:
        """Return the online CPUs of the same core, itself included; itself alone if the context lacks it."""
        return self._cores.get(cpu, (cpu,))

    def one_per_core(self, cpus: Iterable[int]) -> list[int]:
        """Return the lowest CPU of each core of *cpus*, ascending."""
        wanted = set(cpus)
        return [cpu for cpu in sorted(wanted) if cpu == min(wanted.intersection(self.siblings(cpu)))]

    def balanced(self, cpus: Iterable[int]) -> list[int]:
        """Return *cpus* in turn from each last-level cache domain, so that every first part is spread over all of them.

        Ascending if the kernel reports no such caches.
        """
        domains = grouped((self._caches.get(cpu), cpu) for cpu in sorted(set(cpus)))
        return in_turn(domains.values())

    def spread(self, cpus: Iterable[int]) -> list[int]:
        """Return *cpus* in turn from each node, and of its CPUs in turn from each last-level cache domain."""
        own = set(cpus)
        return in_turn([self.balanced(own.intersection(self.cpus_of(node))) for node in self.cpu_nodes])

    def measuring_cpu(self, node: int) -> int:
        """Return the CPU of *node* for single-CPU measurements.

        The first isolated CPU; without one the first CPU on another core than the lowest online, which does the
        machine's housekeeping, or else another CPU than that.
        """
        cpus = self.cpus_of(node)
        others = [cpu for cpu in cpus if cpu != self._lowest]
        undisturbed = [cpu for cpu in others if self._lowest not in self.siblings(cpu)]
        preferred = [cpu for cpu in cpus if cpu in self.isolated] or undisturbed or others
        return (preferred or cpus)[0]

    def left_beside(self, cpus: Iterable[int]) -> frozenset[int]:
        """Return the CPUs that the login's threads may begin on, without *cpus*.

        A thread that is not pinned keeps off the CPUs that were isolated at boot, and stays in a cpuset partition.
        """
        allowed = self.context.cpus.allowed
        return (self.cpus - self.isolated if allowed is None else self.cpus.intersection(allowed)).difference(cpus)

    def load_cpus(self, measured: Iterable[int]) -> list[int]:
        """Return the CPUs for loads beside the *measured* ones: no siblings of those where others are left.

        Isolated ones only where the login has no others, in a cpuset partition.
        """
        cpus = frozenset(measured)
        others = self.cpus - cpus
        siblings = {other for cpu in cpus for other in self.siblings(cpu)}
        return sorted(others - self.isolated - siblings or others - self.isolated or others - siblings or others)

    def housekeeping_cpus(self, measured: Iterable[int]) -> list[int]:
        """Return the CPUs of the housekeeping load beside the *measured* ones, one of a core; empty if none is left."""
        return self.one_per_core(self.load_cpus(measured))[:LOAD_CPUS]

    def fifo_cpus(self, cpus: list[int]) -> list[int]:
        """Return *cpus*, without the first if real-time threads would leave no CPU to the thread that ends them."""
        return cpus if self.left_beside(cpus) else cpus[1:]

    def home(self, node: int) -> int:
        """Return the node whose memory the CPUs of *node* use by default: itself, or the nearest with memory."""
        return self.nearest(node, self.memory_nodes) if self.memory_nodes else node

    def farthest(self, node: int) -> int | None:
        """Return the node with memory farthest from *node*; ``None`` if distances are unknown."""
        row = self.context.distances_from(node)
        return None if row is None else max(self.memory_nodes, key=lambda other: (row[other], -other), default=None)

    @property
    def memory_only_nodes(self) -> list[int]:
        """Ids of the nodes without CPUs whose memory may be used, ascending."""
        return [node for node in self.memory_nodes if node in self.context.memory_only_nodes]

    def memory_only_beside(self, node: int) -> list[int]:
        """Return the memory-only nodes that belong to *node*, one of each distance: no other with CPUs is nearer.

        Without the one that is its ``home``.
        """
        beside = [
            other
            for other in self.memory_only_nodes
            if other != self.home(node) and self.nearest(other, self.cpu_nodes) == node
        ]
        return list({self.distance(node, other): other for other in reversed(beside)}.values())[::-1]

    def nearest(self, node: int, among: Sequence[int]) -> int:
        """Return the one of the nodes *among* (at least one) nearest to *node*, possibly itself."""
        if node in among:
            return node
        row = self.context.distances_from(node)
        return among[0] if row is None else min(among, key=lambda other: (row[other], other))

    def distance(self, node: int, other: int) -> int | None:
        """Return the distance of the memory of *other* from *node*, by the firmware; ``None`` if unknown."""
        return (self.context.distances_from(node) or {}).get(other)

    def usable_bytes(self, node: int) -> int | None:
        """Return how much memory of *node* a measurement may use at once; ``None`` if unknown.

        See ``available_for``.
        """
        free = self.available_bytes.get(node)
        return None if free is None else max(0, min(int(free * MEMORY_SHARE), free - KEPT_FREE_BYTES))

    def lacking(self, needed: Mapping[int, int]) -> set[int]:
        """Return the nodes of which a measurement may not use at once what is *needed* of them, in bytes."""
        usable = {node: self.usable_bytes(node) for node in needed}
        return {node for node, size in usable.items() if size is not None and size < needed[node]}

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """The memory limit, if it leaves less than the machine has."""
        limit = self.context.confinement.memory_limit
        return limit if limit is not None and limit.left_bytes == room_bytes(self.context) else None

    def with_room(self) -> Self:
        """Return this SUT as if every node had room for everything."""
        found = copy(self)
        found.available_bytes = {}
        return found

    @property
    def llc_bytes(self) -> int | None:
        """Size of the last-level cache to size buffers for, ``None`` if unknown.

        As found earlier on the platform (``CacheReference.sized_bytes``); else as reported.
        """
        reported = self.reported_llc_bytes
        return reported if self.last_level_cache is None else self.last_level_cache.sized_bytes(reported)

    @property
    def reported_llc_bytes(self) -> int | None:
        """Size of the largest last-level cache as reported by the kernel; ``None`` if unknown.

        A first-level cache is never the last: a machine that lists no other (some guests) has an unknown one. Nor is
        the level below one that is listed without its size (some Arm machines).
        """
        level = max((cache.level for cache in self.context.caches), default=1)
        own = self.context.cache_bytes.get(level) if level > 1 else None
        others = self.context.topology.last_level_cache_bytes or ()
        return None if own is None else max((own, *filter(None, others)))

    def beyond_side_cache_bytes(self, node: int) -> int:
        """Return how much memory of *node* is beyond its memory-side cache; 0 if it has none.

        Such a cache (high-bandwidth memory before DDR, DDR before CXL memory) is the last one, and the node's own.
        """
        return LLC_MULTIPLE * self.context.memory_side_cache_bytes(node)

    @property
    def l2_bytes(self) -> int:
        """Size of the second-level cache as reported by the kernel; ``ASSUMED_L2_BYTES`` if unknown."""
        return self.context.cache_bytes.get(2) or ASSUMED_L2_BYTES

    @property
    def line_bytes(self) -> int:
        """Size of a cache line in bytes as reported by the kernel; ``ASSUMED_LINE_BYTES`` if unknown."""
        reported = {cache.line_bytes for cache in self.context.caches if cache.line_bytes}
        return max(reported, default=ASSUMED_LINE_BYTES)

    @property
    def llc_is_private(self) -> bool:
        """Whether no two cores share the last reported cache, or none is reported.

        Memory is then behind an unreported cache: the system-level cache of many aarch64 servers.
        """
        return all(
            set(domain) <= set(self.siblings(domain[0])) for domain in self.context.topology.last_level_cache_domains
        )

    def fewest_per_llc(self, cpus: Iterable[int], running: Iterable[int] = ()) -> int:
        """Return the fewest CPUs that share a last-level cache of *cpus*; 1 if the kernel does not report it.

        Counted are *cpus*, and those that are *running* beside them.
        """
        own = {self._caches.get(cpu) for cpu in cpus}
        shared = Counter(self._caches.get(cpu) for cpu in {*cpus, *running})
        return 1 if None in own else min((shared[cache] for cache in own), default=1)


def cpus_without_node(context: Context) -> frozenset[int]:
    """Return the usable CPUs that no node lists while nodes list others: nothing says which memory is near."""
    known = frozenset(cpu for node in context.nodes for cpu in node.cpus)
    return context.usable_cpus - known if known else frozenset()


def _within_quota(context: Context) -> frozenset[int]:
    """Return the usable CPUs, at most as many as the CPU quota keeps running, but one at least.

    Taken from the nodes in turn, so that each can be measured: isolated CPUs first, one of each core before its
    siblings, and last the lowest online one, which does the machine's housekeeping.
    """
    usable = context.usable_cpus - cpus_without_node(context)
    quota = context.confinement.cpu_quota
    most = len(usable) if quota is None else max(1, int(quota.cpus))
    if len(usable) <= most:
        return usable
    thread = {cpu: number for core in context.topology.cores for number, cpu in enumerate(core.cpus)}
    nodes = {cpu: node for node, cpus in context.cpus_by_node.items() for cpu in cpus}
    housekeeping = min(context.online_cpus)
    turn: Counter[int | None] = Counter()
    ranked = []
    for cpu in sorted(
        usable, key=lambda cpu: (cpu not in context.isolated_cpus, cpu == housekeeping, thread.get(cpu, 0), cpu)
    ):
        node = nodes.get(cpu)
        ranked.append((turn[node], cpu == housekeeping, cpu))
        turn[node] += 1
    return frozenset(cpu for *_, cpu in sorted(ranked)[:most])


def available_for(needed_bytes: int) -> int:
    """Return how much memory of a node must be available for a measurement to use *needed_bytes* of it at once."""
    return max(int(needed_bytes / MEMORY_SHARE), needed_bytes + KEPT_FREE_BYTES)


def room_bytes(context: Context) -> int | None:
    """Return the memory that the machine and the memory limits leave on all nodes together; ``None`` if unknown."""
    limit = context.confinement.memory_limit
    left = (context.memory.available_bytes, None if limit is None else limit.left_bytes)
    return min((known for known in left if known is not None), default=None)


def _free_bytes(context: Context, nodes: Sequence[int]) -> dict[int, int]:
    """Return the memory available on each of *nodes*, where it is known."""
    free = {
        node.id: node.memory_bytes if node.available_bytes is None else node.available_bytes for node in context.nodes
    }
    return {node: size for node, size in free.items() if node in nodes and size is not None}


def _divided(free_bytes: Mapping[int, int], room: int | None) -> dict[int, int]:
    """Return *free_bytes* by node, with *room* divided equally if all nodes together have no more."""
    found: dict[int, int] = {}
    room = sum(free_bytes.values()) if room is None else room
    for number, node_id in enumerate(sorted(free_bytes, key=lambda node_id: free_bytes[node_id])):
        found[node_id] = min(free_bytes[node_id], room // (len(free_bytes) - number))
        room -= found[node_id]
    return found


def memory_bound_bytes(
    sut: Sut, node: int, *, llc_bytes: int | None = None, largest_bytes: int | None = None, buffers: int = 1
) -> int:
    """Return a chase size that surely lives in memory, for one CPU on memory of *node*.

    ``LLC_MULTIPLE`` times the last-level cache, that of *sut* unless *llc_bytes* is given, rounded up to 2 MiB; at
    least ``CHASE_BYTES_MIN``. Capped by *largest_bytes*, and by the free memory of the node for each of *buffers* at
    the same time. Beyond a memory-side cache of the node too if those limits allow it; if not, a longer chain would be
    in that cache as well.
    """
    wanted = max(CHASE_BYTES_MIN, LLC_MULTIPLE * (llc_bytes or sut.llc_bytes or ASSUMED_LLC_BYTES))
    beyond = sut.beyond_side_cache_bytes(node)
    if beyond > wanted and beyond <= (largest_bytes or LARGEST_CHASE_BYTES):
        size = capped_bytes(sut, node, beyond, buffers=buffers, beside=CHAIN_BESIDE)
        if size >= beyond:
            return size
    return capped_bytes(sut, node, min(wanted, largest_bytes or wanted), buffers=buffers, beside=CHAIN_BESIDE)


def capped_bytes(sut: Sut, node: int, wanted_bytes: int, *, buffers: int = 1, beside: float = 0) -> int:
    """Return *wanted_bytes* rounded up to 2 MiB, or the most that each of *buffers* on *node* may have.

    sutprobe needs *beside* extra bytes per byte.
    """
    wanted = whole_pages(wanted_bytes)
    usable = sut.usable_bytes(node)
    if usable is None or wanted * buffers * (1 + beside) <= usable:
        return wanted
    return max(2 * MIB, int(usable / (1 + beside)) // buffers // (2 * MIB) * 2 * MIB)


def whole_pages(size_bytes: int) -> int:
    """Return *size_bytes* rounded up to huge pages."""
    return -(-size_bytes // HUGE_BYTES) * HUGE_BYTES


def size_flags(sut: Sut, together_bytes: int, by_node: Mapping[int, int]) -> Iterator[Flag]:
    """Yield a flag if *together_bytes*, accessed through one last-level cache, may partly fit into it.

    And for each node of which no more than *by_node* bytes are accessed if its memory-side cache may hold them.
    """
    llc = sut.llc_bytes
    if llc is not None and together_bytes < LLC_MULTIPLE * llc:
        yield flag(
            "BUFFER_TOO_SMALL",
            f"{together_bytes / MIB:g} MiB against a last-level cache of {llc / MIB:g} MiB: "
            "some of it may have come from the cache",
        )
    yield from side_cache_flags(sut, by_node)


def side_cache_flags(sut: Sut, by_node: Mapping[int, int]) -> Iterator[Flag]:
    """Yield a flag for nodes of which so many bytes are accessed if a memory-side cache may hold some of them."""
    alike: dict[tuple[int, int], list[int]] = {}
    for node, held_bytes in by_node.items():
        beyond = held_bytes >= sut.beyond_side_cache_bytes(node)
        if not beyond or sut.context.side_cache_unknown(node):
            cache_bytes = 0 if beyond else sut.context.memory_side_cache_bytes(node)
            alike.setdefault((held_bytes, cache_bytes), []).append(node)
    for (held_bytes, cache_bytes), nodes in sorted(alike.items()):
        yield flag(
            "MEMORY_SIDE_CACHE",
            f"{units.size(held_bytes)} of {units.numbered('node', nodes)}, behind a memory-side "
            f"cache of {units.size(cache_bytes) if cache_bytes else 'unknown size'}: "
            f"{'all' if held_bytes <= cache_bytes else 'some'} of it may have come from there",
        )


def emulation_flags(context: Context, document: ProbeDocument) -> Iterator[Flag]:
    """Yield a flag if *context* or *document* shows an emulated processor."""
    if reason := _emulation(context, document):
        yield flag("EMULATED", f"{reason}: its timing is an emulator's")


def machine_flags(context: Context) -> Iterator[Flag]:
    """Yield the flags of the whole machine of *context*, which apply to every value."""
    virtualization = context.virtualization
    if virtualization.guest:
        evidence = ", ".join(virtualization.evidence)
        yield flag("VIRTUALISED", f"a guest of {virtualization.vendor or 'an unnamed hypervisor'} ({evidence})")
    yield from _hidden_flags(context)
    for shared, parts in context.emulated_nodes.items():
        yield flag(
            "NODES_EMULATED",
            f"nodes {format_cpulist(parts)} are parts of one node, each with {units.numbered('CPU', shared)}: measured "
            f"once, as node {parts[0]}",
        )
    quota = context.confinement.cpu_quota
    if quota is not None and quota.cpus < len(context.usable_cpus):
        yield flag("CPU_QUOTA", f"{_quota_text(quota)}: only {units.numbered('CPU', Sut(context).cpus)} measured")
    for link, devices in narrowed_links(context.devices or ()):
        names = ", ".join(device.name for device in devices)
        yield flag(
            "LINK_NARROWED",
            f"{names}: x{link.width} of x{link.possible_width} negotiated with port {link.port}; reseat the card, or "
            "check slot, riser and cable",
        )
    for group, cpus in narrowing_group(context.resctrl, context.usable_cpus):
        yield flag(
            "ALLOCATION_NARROWED",
            f"the {f'resctrl group {group.name}' if group.name else 'default resctrl group'} gives "
            f"{units.numbered('CPU', cpus)} {allocation_text(group)}: what is measured there is narrower than the "
            "machine",
        )


def _hidden_flags(context: Context) -> Iterator[Flag]:
    """Yield a flag if the login may not use all CPUs or nodes of the machine."""
    hidden = frozenset(context.online_cpus) - context.usable_cpus
    if hidden:
        yield flag(
            "CPUS_HIDDEN",
            f"the login may not use {len(hidden)} of {len(context.online_cpus)} CPUs online "
            f"({format_cpulist(hidden)}): they were not measured, and what runs on them was not under control"
            f"{_shared_text(context, hidden)}",
        )
    nodes = set(context.usable_nodes)
    if others := [node.id for node in context.nodes if node.memory_bytes and node.id not in nodes]:
        yield flag("NODES_HIDDEN", f"the login may not take memory of nodes {format_cpulist(others)}")


def _shared_text(context: Context, hidden: frozenset[int]) -> str:
    """Return which usable CPUs share a core or a last-level cache with *hidden* ones, as a part of a sentence."""
    groups = {
        "a core": [core.cpus for core in context.topology.cores],
        "a last-level cache": context.topology.last_level_cache_domains,
    }
    found = []
    for what, domains in groups.items():
        cpus = {cpu for domain in domains if hidden.intersection(domain) for cpu in domain} & context.usable_cpus
        if cpus:
            found.append(f"{units.numbered('CPU', cpus)} share{'s' * (len(cpus) == 1)} {what} with them")
    return "".join(f"; {text}" for text in found)


def _quota_text(quota: CpuQuota) -> str:
    return f"control group {quota.group} may use the time of {quota.cpus:g} CPUs"


FIFO_LEAVES_NONE: Final = "real-time threads (fifo) on all CPUs would leave none to the thread that ends them"
"""Why ``Sut.fifo_cpus`` leaves a CPU out."""


def none_isolated(context: Context) -> str:
    """Return why no isolated CPU is measured."""
    if isolated := frozenset(context.online_cpus).intersection(context.isolated_cpus):
        text = f"the login may not use the isolated {units.numbered('CPU', isolated)}"
        return f"{text}: {OUTSIDE_PARTITION}" if isolated.intersection(context.isolation.cpuset_isolated) else text
    if offline := frozenset(context.isolated_cpus).intersection(context.cpus.offline):
        return f"the isolated {units.numbered('CPU', offline)} {'is' if len(offline) == 1 else 'are'} offline"
    text = "no CPU is isolated, neither by isolcpus= nor by a cpuset partition"
    if unknown := context.isolation.cpuset_unknown:
        return f"{text} that can be seen ({units.numbered('CPU', unknown)} may be)"
    return text


def confined(sut: Sut) -> Iterator[tuple[str, str]]:
    """Yield what of the machine is not measured because the login may not use it, and why."""
    context = sut.context
    confinement = context.confinement
    here = "this container's" if confinement.container else "the login's"
    online = frozenset(context.online_cpus)
    cpuset = online if context.cpus.cpuset is None else online & frozenset(context.cpus.cpuset)
    if outside := online - context.usable_cpus - cpuset:
        reason = f"not in {here} cpuset ({confinement.cpuset_group})"
        if partition := outside.intersection(context.isolation.cpuset_isolated):
            yield units.numbered("CPU", partition), f"{reason}: {OUTSIDE_PARTITION}"
        if rest := outside - partition:
            yield units.numbered("CPU", rest), reason
    if outside := cpuset - context.usable_cpus:
        yield units.numbered("CPU", outside), f"not in {here} CPU affinity"
    if without_node := cpus_without_node(context):
        yield units.numbered("CPU", without_node), "no node lists them"
    quota = confinement.cpu_quota
    if quota is not None and (rest := context.usable_cpus - sut.cpus - without_node):
        yield units.numbered("CPU", rest), f"{_quota_text(quota)}: more threads would be stopped"
    elif quota is not None and quota.cpus < len(sut.cpus):
        yield "Undisturbed time of a CPU", f"{_quota_text(quota)}: every thread is stopped part of the time"
    nodes = set(context.usable_nodes)
    if others := [node.id for node in context.nodes if node.memory_bytes and node.id not in nodes]:
        yield f"Memory of nodes {format_cpulist(others)}", f"not in {here} cpuset (Mems_allowed_list)"


def _emulation(context: Context, document: ProbeDocument) -> str | None:
    """Return the evidence of an emulated processor; ``None`` if there is none."""
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
