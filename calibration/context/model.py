# SPDX-License-Identifier: Apache-2.0
"""The description of a machine: typed, frozen, ``None`` if the capture lacks a fact.

Sizes are bytes, frequencies Hz, times ns or µs as the names say. CPU and node lists are sorted.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.model import Model
from calibration.context.hardware import Bmc, Cxl, Device, Interleaving, Printable, RatedAccess, Resctrl, Tuned

SWITCH: Final = {True: "on", False: "off"}


class Unreadable(Model):
    """A file that exists and could not be used."""

    path: str
    reason: str


class Masked(Model):
    """A file whose serial numbers, UUIDs or tags were blanked during the capture."""

    path: str
    what: str


class Parameter(Model):
    """One kernel parameter; ``value`` is None for a bare word."""

    name: str
    value: str | None


class CommandLine(Model):
    """The kernel command line, verbatim and as an ordered list of pairs: keys may repeat."""

    text: str
    parameters: tuple[Parameter, ...]
    init_arguments: tuple[str, ...]

    def values(self, name: str) -> tuple[str | None, ...]:
        """Every value of a parameter, in order. Dashes and underscores are equivalent, as in the kernel."""
        wanted = name.replace("-", "_")
        return tuple(p.value for p in self.parameters if p.name.replace("-", "_") == wanted)


class Capture(Model):
    """Where the facts came from.

    All None for a tree without ``capture.json``, except the kernel's own names and ``/proc/self/status``:
    ``effective_capabilities`` are those of the capturing process, one bit each (``capabilities(7)``).
    """

    captured_at: str | None
    hostname: str | None
    uid: int | None
    python_version: str | None
    uname: str | None
    kernel_name: str | None
    kernel_release: str | None
    kernel_version: str | None
    machine: str | None
    masked: tuple[Masked, ...]
    effective_capabilities: int | None


class CpuSets(Model):
    """Which CPU numbers exist and which are online.

    ``cpuset`` are those of the capturing process's cpuset, ``allowed`` those of its affinity, which lie within.
    """

    possible: tuple[int, ...] | None
    present: tuple[int, ...] | None
    online: tuple[int, ...]
    online_source: str | None
    offline: tuple[int, ...]
    allowed: tuple[int, ...] | None
    cpuset: tuple[int, ...] | None


class MemoryLimit(Model):
    """The memory limit of a control group, the lower of ``memory.max`` and ``memory.high``.

    ``used_bytes`` is what is used of it, without inactive file pages, which are reclaimed easily.
    """

    group: str
    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """What may still be allocated."""
        return max(0, self.limit_bytes - self.used_bytes)


class CpuQuota(Model):
    """The CPU time that a control group may use, in ``cpus``, per period."""

    group: str
    cpus: float
    period_us: int


class TaskLimit(Model):
    """The most processes and threads that a control group may have."""

    group: str
    limit: int
    used: int | None

    @property
    def left(self) -> int:
        """How many more may be started, as far as is known."""
        return max(0, self.limit - (self.used or 0))


class Confinement(Model):
    """What keeps the captured processes from using the whole machine.

    ``container`` is the kind of container, ``"unnamed"`` if only its namespaces show it, with the ``evidence``; None
    without any. ``cpuset_group`` is the control group that sets the cpuset. Limits are those of the process's control
    groups and of their ancestors, as far as they can be seen, deepest first. ``memory_nodes`` are the nodes that memory
    may be taken from. ``locked_memory_bytes`` is the limit of locked memory; -1 if there is none.
    """

    container: str | None
    evidence: tuple[str, ...]
    cpuset_group: str | None
    memory_nodes: tuple[int, ...] | None
    memory_limits: tuple[MemoryLimit, ...]
    cpu_quotas: tuple[CpuQuota, ...]
    task_limits: tuple[TaskLimit, ...]
    user_namespace: bool | None
    no_new_privileges: bool | None
    seccomp: bool | None
    locked_memory_bytes: int | None

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """The limit that leaves least memory."""
        return min(self.memory_limits, key=lambda limit: limit.left_bytes, default=None)

    @property
    def task_limit(self) -> TaskLimit | None:
        """The limit that leaves fewest tasks."""
        return min(self.task_limits, key=lambda limit: limit.left, default=None)

    @property
    def cpu_quota(self) -> CpuQuota | None:
        """The tightest quota."""
        return min(self.cpu_quotas, key=lambda quota: quota.cpus, default=None)


class Core(Model):
    """One core: its identifiers in the kernel's numbering, and its online CPUs.

    On s390x packages are numbered within their book, and books within their drawer; elsewhere there are neither.
    """

    cpus: tuple[int, ...]
    core_id: int | None
    cluster_id: int | None
    die_id: int | None
    package_id: int | None
    book_id: int | None = None
    drawer_id: int | None = None

    @property
    def package(self) -> tuple[int | None, int | None, int] | None:
        """Drawer, book and package, which together are unique; None if the package is unknown."""
        return None if self.package_id is None else (self.drawer_id, self.book_id, self.package_id)


class Topology(Model):
    """Cores of the online CPUs. ``threads_per_core`` is the largest number of online CPUs any core has.

    ``last_level_cache_bytes`` are the sizes of the caches of ``last_level_cache_domains``.
    """

    threads_per_core: int | None
    smt_control: str | None
    smt_active: bool | None
    cores: tuple[Core, ...]
    packages: int | None
    last_level_cache_domains: tuple[tuple[int, ...], ...]
    last_level_cache_bytes: tuple[int | None, ...] | None


class Cache(Model):
    """One cache as seen from the lowest-numbered online CPU."""

    level: int
    type: str
    size_bytes: int | None
    line_bytes: int | None
    shared_cpus: tuple[int, ...] | None


class HugePages(Model):
    """Huge pages of one size: in the pool and free.

    ``reserved`` are free ones that are promised to mappings; only the machine's pools have it.
    """

    size_bytes: int
    total: int | None
    free: int | None
    surplus: int | None
    reserved: int | None

    @property
    def persistent(self) -> int | None:
        """Pages in the pool that stay there when they are freed."""
        return None if self.total is None else self.total - (self.surplus or 0)


Indexing = Literal["direct-mapped", "indexed", "other"]
WritePolicy = Literal["write-back", "write-through", "other"]
Relation = Literal["local", "near", "remote", "memory_only", "unknown"]
"""How memory lies to the CPUs of a node: their own, that of their socket, that of another socket, or that of a node
without CPUs."""


class MemorySideCache(Model):
    """A cache between a node's memory and all that uses it, by ACPI HMAT; the highest ``index`` is nearest to CPUs.

    The size of one that is ``extended_linear`` is part of the node's memory; that of another is not. None if the
    firmware does not say it.
    """

    index: int
    size_bytes: int | None
    line_bytes: int | None
    indexing: Indexing | None
    write_policy: WritePolicy | None
    extended_linear: bool


class Node(Model):
    """One NUMA node; ``cpus`` are the online ones.

    ``available_bytes`` is free memory plus inactive file pages.
    """

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    free_bytes: int | None
    available_bytes: int | None
    hugepages: tuple[HugePages, ...]
    memory_tier: int | None
    memory_side_caches: tuple[MemorySideCache, ...]
    rated_accesses: tuple[RatedAccess, ...]


class TransparentHugePageSize(Model):
    """The choice of ``hugepages-*/enabled`` for one size: always, madvise, never, or inherit that of all sizes."""

    size_bytes: int
    enabled: str


class TransparentHugePages(Model):
    """The bracketed choices of ``/sys/kernel/mm/transparent_hugepage``.

    ``sizes`` are in ascending order; None for kernels before 6.8, which have one size, and if they were not captured.
    """

    enabled: str | None
    defrag: str | None
    shmem_enabled: str | None
    khugepaged_defrag: bool | None
    sizes: tuple[TransparentHugePageSize, ...] | None

    @property
    def mode(self) -> str | None:
        """What programs get of the largest size, that of a huge page's table entry: always, madvise or never."""
        if not self.sizes or self.enabled is None:
            return self.enabled
        own = self.sizes[-1].enabled
        return self.enabled if own == "inherit" else own

    @property
    def words(self) -> str | None:
        """The mode, and the sizes that differ from what ``enabled`` says for all."""
        others = {
            size.size_bytes: size.enabled
            for size in self.sizes or ()
            if size.enabled != ("inherit" if size == (self.sizes or ())[-1] else "never")
        }
        if self.enabled is None or not others:
            return self.enabled
        return f"{self.enabled}, by size {', '.join(f'{units.size(size)} {own}' for size, own in others.items())}"


class Memory(Model):
    """Memory of the whole machine; ``anonymous_huge_bytes`` are transparent huge pages of programs.

    ``base_page_bytes`` is the size of base pages, ``None`` if the capture lacks it and the architecture has several.
    """

    total_bytes: int | None
    free_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    default_hugepage_bytes: int | None
    hugepages: tuple[HugePages, ...]
    transparent_hugepages: TransparentHugePages
    numa_balancing: int | None
    anonymous_huge_bytes: int | None
    base_page_bytes: int | None


class CpuModel(Model):
    """One CPU model in the machine, and its online CPUs."""

    cpus: tuple[int, ...]
    vendor: str | None
    name: str | None
    family: str | None
    model: str | None
    stepping: str | None
    microcode: str | None


class Processor(Model):
    """The processors.

    ``models`` are ordered by their lowest CPU; the first one describes most machines completely.
    """

    architecture: str | None
    models: tuple[CpuModel, ...]
    flags: tuple[str, ...]
    bugs: tuple[str, ...]


class FrequencyPolicy(Model):
    """CPUs that share a frequency domain, with driver and limits.

    ``turbo`` is the policy's own switch, None if it has none.
    """

    cpus: tuple[int, ...]
    driver: str | None
    governor: str | None
    energy_performance_preference: str | None
    hardware_min_hz: int | None
    hardware_max_hz: int | None
    base_hz: int | None
    min_hz: int | None
    max_hz: int | None
    current_hz: int | None
    turbo: bool | None


class Frequency(Model):
    """Frequency scaling.

    The lists hold every value in use; ``turbo`` is None if the kernel exposes no switch, or if it is on in some
    policies and off in others.
    """

    drivers: tuple[str, ...]
    governors: tuple[str, ...]
    turbo: bool | None
    turbo_source: str | None
    pstate_status: str | None
    hardware_min_hz: int | None
    hardware_max_hz: int | None
    policies: tuple[FrequencyPolicy, ...]
    uncore: tuple[Uncore, ...] = ()

    @property
    def turbo_by_cpu(self) -> dict[int, str]:
        """``on`` or ``off`` of each CPU whose policy has a switch of its own."""
        own = ((policy.turbo, cpu) for policy in self.policies for cpu in policy.cpus)
        return {cpu: SWITCH[turbo] for turbo, cpu in own if turbo is not None}

    @property
    def turbo_text(self) -> str | None:
        """Return ``on``, ``off``, or ``mixed`` with the CPUs; None if the kernel exposes no switch."""
        if self.turbo is not None:
            return SWITCH[self.turbo]
        cpus = {word: [cpu for cpu, own in self.turbo_by_cpu.items() if own == word] for word in SWITCH.values()}
        parts = [f"{word} for CPUs {format_cpulist(found)}" for word, found in cpus.items() if found]
        return f"mixed: {', '.join(parts)}" if parts else None


class Uncore(Model):
    """Frequency limits of an Intel uncore: the mesh with its caches, memory controllers or I/O.

    It is that of a ``die``, or since Granite Rapids of a ``cluster`` of a power ``domain``, where ``agents`` names its
    parts. ``initial_*`` are the limits at boot. While the CPUs' load is below ``low_load_percent``, the frequency is
    ``floor_hz`` or more; above ``high_load_percent`` it is raised in steps (efficiency latency control).
    """

    package: int | None
    die: int | None
    domain: int | None
    cluster: int | None
    agents: str | None
    min_hz: int | None
    max_hz: int | None
    initial_min_hz: int | None
    initial_max_hz: int | None
    floor_hz: int | None
    low_load_percent: int | None
    high_load_percent: int | None


class IdleState(Model):
    """One idle state; ``disabled_cpus`` are the online CPUs on which it is disabled."""

    name: str
    description: str | None
    latency_us: int | None
    residency_us: int | None
    disabled_cpus: tuple[int, ...]


class Idle(Model):
    """Idle driver, governor and states."""

    driver: str | None
    governor: str | None
    states: tuple[IdleState, ...]


class ClockSource(Model):
    """The clock source in use and those available."""

    current: str | None
    available: tuple[str, ...]


class Virtualization(Model):
    """Whether the machine is a guest: True or False if the evidence decides, else None."""

    guest: bool | None
    vendor: str | None
    type: str | None
    evidence: tuple[str, ...]


class Dimm(Model):
    """One memory slot from SMBIOS type 17; ``size_bytes`` is 0 for an empty slot. Speeds are MT/s."""

    locator: str | None
    bank: str | None
    size_bytes: int | None
    type: str | None
    form_factor: str | None
    data_width_bits: int | None
    total_width_bits: int | None
    ranks: int | None
    speed_mt_s: int | None
    configured_mt_s: int | None
    manufacturer: str | None
    part: str | None


class MemoryArray(Model):
    """A group of memory slots from SMBIOS type 16."""

    use: str | None
    error_correction: str | None
    maximum_bytes: int | None
    slots: int | None


class Firmware(Model):
    """BIOS, board and memory slots. No UUIDs or asset tags: pages are published.

    Serial numbers are ``None`` unless the operator consented to read them.
    ``virtual_machine`` is what SMBIOS says; many hypervisors do not say it.
    """

    bios_vendor: str | None
    bios_version: str | None
    bios_release: str | None
    bios_date: str | None
    system_vendor: str | None
    product_name: str | None
    product_version: str | None
    product_family: str | None
    board_vendor: str | None
    board_name: str | None
    board_version: str | None
    system_serial: str | None = None
    board_serial: str | None = None
    chassis_serial: str | None = None
    smbios_version: str | None
    memory_arrays: tuple[MemoryArray, ...]
    dimms: tuple[Dimm, ...]
    virtual_machine: bool | None


class Interrupt(Model):
    """An interrupt that may be delivered to an isolated CPU."""

    irq: int
    name: str | None
    affinity: tuple[int, ...] | None
    effective: tuple[int, ...] | None
    isolated_cpus: tuple[int, ...]


class Thread(Model):
    """A thread that may run on an isolated CPU; ``per_cpu_kernel`` threads cannot be moved."""

    pid: int
    tid: int
    name: str
    allowed: tuple[int, ...]
    isolated_cpus: tuple[int, ...]
    kernel: bool | None
    per_cpu_kernel: bool


class ParameterNote(Model):
    """A kernel parameter that has another effect than it says: what was asked, what the kernel has, and why."""

    parameter: str
    asked: str
    found: str
    reason: str

    @property
    def sentence(self) -> str:
        """The note in one line."""
        return f"{self.asked}: {self.found}; {self.reason}"


UNSEEN_GROUPS = "their control groups cannot be seen"
"""Why ``Isolation.cpuset_unknown`` are unknown."""


class Isolation(Model):
    """CPU isolation, and the interrupts and threads that may still run on isolated CPUs.

    ``isolated`` are the CPUs outside scheduling domains; ``*_source`` says whether CPUs come from the kernel
    itself or, by the rules of its version, from the command line; None that they are not known for sure.
    ``nohz_full_supported`` is None if the capture does not say. ``*_text`` is the first value on the command line as
    written; ``notes`` are about parameters with another effect than they say; ``threads`` is None if no threads were
    captured (no CPU is isolated). ``cpuset_isolated`` are the other CPUs that cpusets isolate (isolated partitions,
    and no balancing of load in version 1); of ``cpuset_unknown`` it cannot be seen. ``housekeeping`` is Linux's own
    list (7.3 and later), of the CPUs outside ``nohz_full=`` and ``isolcpus=nohz``: it is empty without these, and has
    the CPUs of a plain ``isolcpus=`` and of partitions. ``tickless_interrupts`` and ``tickless_threads`` (the
    kernel's) may come to CPUs in ``nohz_full`` that are not isolated, which are their ``isolated_cpus``; any user's
    thread may run there. None without such CPUs.
    """

    isolated: tuple[int, ...]
    isolated_source: Literal["kernel", "command line"] | None
    isolcpus_text: str | None
    isolcpus_flags: tuple[str, ...]
    managed_irq: tuple[int, ...]
    nohz_full: tuple[int, ...]
    nohz_full_source: Literal["kernel", "command line"] | None
    nohz_full_text: str | None
    rcu_nocbs: tuple[int, ...]
    rcu_nocbs_text: str | None
    irqaffinity: tuple[int, ...] | None
    irqaffinity_text: str | None
    cpuset_isolated: tuple[int, ...]
    default_irq_affinity: tuple[int, ...] | None
    interrupts: tuple[Interrupt, ...]
    threads: tuple[Thread, ...] | None
    cpuset_unknown: tuple[int, ...]
    tickless_interrupts: tuple[Interrupt, ...] | None
    tickless_threads: tuple[Thread, ...] | None
    housekeeping: tuple[int, ...] | None
    nohz_full_supported: bool | None
    rcu_nocbs_source: Literal["kernel", "command line"] | None
    notes: tuple[ParameterNote, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        """CPUs outside scheduling domains: isolated at boot, or by cpusets."""
        return tuple(sorted({*self.isolated, *self.cpuset_isolated}))

    def notes_of(self, *parameters: str) -> tuple[str, ...]:
        """Return in words where *parameters* differ from what the kernel has."""
        return tuple(note.sentence for note in self.notes if note.parameter in parameters)


class KernelBuild(Model):
    """What the kernel is built with, from the file ``path``.

    ``sha256`` is that of all options, without comments; ``options`` are those that affect the results and are not off.
    """

    path: Printable
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    options: Annotated[dict[Annotated[str, Field(pattern="^[A-Z0-9_]{1,64}$")], Printable], Field(max_length=128)]


class LoggedErrors(Model):
    """How many messages of the kernel's log are errors of one kind, and the first places that they name."""

    count: PositiveInt
    places: Annotated[tuple[Printable, ...], Field(max_length=8)]


class KernelLog(Model):
    """The errors in the kernel's log since boot, by kind.

    The oldest of its ``records`` is number ``first``, written ``first_s`` after boot; those before are lost.
    """

    records: NonNegativeInt
    first: NonNegativeInt | None
    first_s: NonNegativeFloat | None
    errors: Annotated[dict[Printable, LoggedErrors], Field(max_length=32)]


class Kernel(Model):
    """Kernel settings that affect the results; None if the file is missing.

    ``preemption`` is the model in use: real-time, lazy, full, voluntary or none; several of them where the capture
    does not say which.
    """

    sched_rt_runtime_us: int | None
    sched_rt_period_us: int | None
    nmi_watchdog: int | None
    watchdog: int | None
    randomize_va_space: int | None
    perf_event_paranoid: int | None
    timer_migration: int | None
    sched_autogroup_enabled: int | None
    ksm_run: int | None
    load_average: tuple[float, float, float] | None
    uptime_s: float | None
    resctrl_schemata: tuple[str, ...]
    preemption: str | None
    stat_interval_s: int | None
    build: KernelBuild | None = None
    log: KernelLog | None = None


class Throttling(Model):
    """Thermal throttle events since boot, summed over CPUs (cores) and packages; None if not counted."""

    core_events: int | None
    package_events: int | None


class CpuLoad(Model):
    """What one CPU did while the capture slept, as shares of that time; ``stolen`` is steal time."""

    cpu: int
    busy: float
    stolen: float


class BusyProcess(Model):
    """A process that used CPU time while the capture slept.

    ``share`` is in CPUs: 2.0 is two CPUs all the time. ``cpus`` are those its threads last ran on.
    """

    pid: int
    name: str
    share: float
    cpus: tuple[int, ...]


class Load(Model):
    """What the CPUs did, and which processes used them, while the capture slept for ``interval_s``.

    Only processes visible to the login are listed, without the capture and its parents; the CPU time of one that ended
    meanwhile is counted without a name. ``resolution`` is the share of one tick of the kernel's counters.
    """

    interval_s: float
    resolution: float
    cpus: tuple[CpuLoad, ...]
    processes: tuple[BusyProcess, ...]


class EventAlias(Model):
    """A named kernel event: its terms, and the scale and unit of a count."""

    terms: str
    scale: float | None
    unit: str | None


class EventSource(Model):
    """One directory of ``/sys/bus/event_source/devices``.

    ``cpumask`` are the CPUs on which a system-wide counter of the source is opened, one per package or die; ``cpus``
    those of the core type that the source counts. ``formats`` are bit ranges in the kernel's notation, such as
    ``config:0-7,32-35``.
    """

    name: str
    type: int | None
    cpumask: tuple[int, ...] | None
    cpus: tuple[int, ...] | None
    formats: dict[str, str]
    aliases: dict[str, EventAlias]
    caps: dict[str, str]


class Context(Model):
    """Everything known about a machine.

    ``event_sources`` and ``devices`` are None if they were not captured. ``cxl``, ``interleaving``, ``resctrl`` and
    ``tuned`` are None on machines without, ``bmc`` without consent too.
    """

    capture: Capture
    cmdline: CommandLine | None
    cpus: CpuSets
    topology: Topology
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...] | None
    memory_only_nodes: tuple[int, ...]
    cpu_only_nodes: tuple[int, ...]
    caches: tuple[Cache, ...]
    memory: Memory
    processor: Processor
    frequency: Frequency
    idle: Idle
    mitigations: dict[str, str]
    clocksource: ClockSource
    virtualization: Virtualization
    firmware: Firmware
    isolation: Isolation
    kernel: Kernel
    throttling: Throttling
    load: Load | None
    unreadable: tuple[Unreadable, ...]
    event_sources: tuple[EventSource, ...] | None
    confinement: Confinement
    devices: tuple[Device, ...] | None
    cxl: Cxl | None
    interleaving: Interleaving | None
    resctrl: Resctrl | None
    tuned: Tuned | None
    bmc: Bmc | None = None

    @property
    def usable_cpus(self) -> frozenset[int]:
        """Online CPUs that the captured process may run on.

        The kernel starts every process outside the CPUs isolated by ``isolcpus=``, but lets it go to those in its
        cpuset. So a process whose CPUs are exactly the others of its cpuset may use the isolated ones too; any other
        set is a deliberate restriction.
        """
        online = frozenset(self.cpus.online)
        reachable = online if self.cpus.cpuset is None else online & frozenset(self.cpus.cpuset)
        if self.cpus.allowed is None:
            return reachable
        allowed = online & frozenset(self.cpus.allowed)
        return reachable if allowed == reachable - frozenset(self.isolation.isolated) else allowed

    @property
    def usable_nodes(self) -> tuple[int, ...]:
        """Ids of the nodes with memory that the captured process may take, memory-only nodes included."""
        nodes = self.confinement.memory_nodes
        return tuple(
            node.id
            for node in self.nodes
            if (node.memory_bytes is None or node.memory_bytes > 0) and (nodes is None or node.id in nodes)
        )

    @property
    def online_cpus(self) -> tuple[int, ...]:
        """Online CPUs."""
        return self.cpus.online

    @property
    def isolated_cpus(self) -> tuple[int, ...]:
        """CPUs outside scheduling domains: isolated at boot, or by cpusets."""
        return self.isolation.cpus

    @property
    def cache_bytes(self) -> dict[int, int]:
        """Size of the data or unified cache of each level, as reported by the kernel."""
        return {
            cache.level: cache.size_bytes
            for cache in self.caches
            if cache.type != "Instruction" and cache.size_bytes is not None
        }

    def node(self, node_id: int) -> Node:
        """Return the node with that id. Raises ``KeyError``."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)

    @property
    def cpus_by_node(self) -> dict[int, tuple[int, ...]]:
        """Online CPUs of each node, every CPU once: in the lowest of the nodes that list it.

        A kernel that emulates nodes (``numa=fake=``) lists the CPUs of a node in each of its parts; the lowest part is
        where it allocates by default.
        """
        owners = {cpu: node.id for node in reversed(self.nodes) for cpu in node.cpus}
        return {node.id: tuple(cpu for cpu in node.cpus if owners[cpu] == node.id) for node in self.nodes}

    @property
    def emulated_nodes(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Nodes that are parts of one, by their CPUs: those that list the same ones. The first stands for the CPUs."""
        parts: dict[tuple[int, ...], tuple[int, ...]] = {}
        for node in self.nodes:
            if node.cpus:
                parts[node.cpus] = (*parts.get(node.cpus, ()), node.id)
        return {cpus: nodes for cpus, nodes in parts.items() if len(nodes) > 1}

    def parts_of(self, node_id: int) -> tuple[int, ...]:
        """Return the emulated nodes that are parts of the same node as *node_id*; that one alone if it is no part."""
        return next((nodes for nodes in self.emulated_nodes.values() if node_id in nodes), (node_id,))

    def relation(self, cpu_node: int, memory_node: int) -> Relation:
        """Return how the memory of one node lies to the CPUs of another."""
        if memory_node == cpu_node or memory_node in self.parts_of(cpu_node):
            return "local"
        if memory_node in self.memory_only_nodes:
            return "memory_only"
        package_of = {cpu: core.package for core in self.topology.cores for cpu in core.cpus}
        packages = {node.id: package_of.get(node.cpus[0]) for node in self.nodes if node.cpus}
        one, other = packages.get(cpu_node), packages.get(memory_node)
        if one is None or other is None:
            return "unknown"
        return "near" if one == other else "remote"

    def memory_side_cache_bytes(self, node_id: int) -> int:
        """Return the size of the largest cache before the memory of a node; 0 if none is known.

        ACPI HMAT or the node's CXL region says so. Emulated parts of a node share its cache.
        """
        parts = self.parts_of(node_id)
        sizes = [cache.size_bytes or 0 for part in parts for cache in self.node(part).memory_side_caches]
        regions = () if self.cxl is None else self.cxl.regions
        return max((*sizes, *(region.cache_bytes or 0 for region in regions if region.node in parts)), default=0)

    def side_cache_unknown(self, node_id: int) -> bool:
        """Return whether a cache of unknown size is before the memory of a node, or before other parts of that node."""
        return any(
            cache.size_bytes is None for part in self.parts_of(node_id) for cache in self.node(part).memory_side_caches
        )

    def distances_from(self, node_id: int) -> dict[int, int] | None:
        """Return the distances (ACPI SLIT) of all nodes from one, which is 10 from itself; None if they are unknown."""
        ids = [node.id for node in self.nodes]
        if self.distances is None or len(self.distances) != len(ids) or node_id not in ids:
            return None
        return dict(zip(ids, self.distances[ids.index(node_id)], strict=True))

    def node_of(self, cpu: int) -> int | None:
        """Return the node an online CPU belongs to, the lowest of several; None if the capture lacks it."""
        return next((node.id for node in self.nodes if cpu in node.cpus), None)

    def siblings(self, cpu: int) -> tuple[int, ...]:
        """Return the online CPUs of the same core, itself included; itself alone if unknown."""
        return next((core.cpus for core in self.topology.cores if cpu in core.cpus), (cpu,))
