# SPDX-License-Identifier: Apache-2.0
"""What ``sutprobe`` prints: the typed form of its JSON document, one result model per subcommand.

The document is read strictly: a field that is missing, unknown, of another type or not finite is an error, because a
result that is not understood must never become a figure. Sizes are bytes, times ns or s, rates MB/s (10^6 bytes).
"""

import json
from typing import Any, Literal, TypeVar

from pydantic import AliasChoices, Field
from pydantic_core import to_json

from calibration.errors import InputError
from calibration.model import Model, fault_of

SCHEMA = "sutprobe/1"


class ProbeError(Model):
    """Why the whole command, or one point of it, has no result."""

    code: str
    message: str


class Build(Model):
    """How the kernel bytes were made, as compiled into them."""

    version: str
    target: str
    compiler: str
    flags: str
    source_sha256: str


class Host(Model):
    """The machine that printed the document, by its own word.

    ``hypervisor`` is the name that a hypervisor gives itself by CPUID; ``None`` where none does, on an architecture
    without CPUID, and in documents of versions that did not ask.
    """

    nodename: str
    release: str
    machine: str
    hypervisor: str | None = None


class Clock(Model):
    """The time source of every figure in the document; ``reason`` says why where it is the fall-back."""

    source: Literal["tsc", "cntvct", "monotonic_raw"]
    hz: float
    hz_uncertainty_ppm: float
    invariant: bool
    read_cost_ns: float
    resolution_ns: float
    reason: str | None


class Warned(Model):
    """Something the kernel noticed that a reader must know."""

    code: str
    message: str


class Interference(Model):
    """What else happened on the measured CPUs while they were measured: differences of counters, summed over CPUs.

    ``None`` where the SUT does not say, or where reading it would have taken too long.
    """

    involuntary_switches: int
    voluntary_switches: int
    minor_faults: int
    major_faults: int
    steal_ms: float | None
    interrupts: dict[str, int] | None
    softirqs: dict[str, int] | None
    smi: int | None
    core_throttle: int | None
    package_throttle: int | None
    pages_migrated: int | None


class Looking(Model):
    """What reading counters took, of a command's time: ``share`` of the rest.

    ``left_out`` names the counters that were not read around so many of the ``measurements``, because that would have
    taken too long. ``interrupts`` of all measured CPUs are then known from their first reading to the end, unless once
    more would have been too long.
    """

    spent_s: float
    share: float
    measurements: int
    left_out: dict[str, int]
    interrupts: dict[str, int] | None


class Pages(Model):
    """The pages a buffer really got, read back, and how many of those checked lie on the wanted node.

    ``total`` pages of base size make the buffer; all are checked, or none where the kernel does not say. It is
    ``None`` in documents of versions that checked a sample.
    """

    wanted: str
    obtained: Literal["thp", "hugetlb_2m", "hugetlb_1g", "base", "mixed"]
    base_bytes: int
    huge_bytes: int | None
    huge_fraction: float
    total: int | None = None
    checked: int
    on_node: int
    elsewhere: int


class Placement(Model):
    """What every placement of a memory kernel carries; ``cpus_verified``: each thread was on its CPU to the end."""

    seed: int
    pages: Pages
    core_hz_before: float
    core_hz_after: float
    interference: Interference
    cpus_verified: bool = Field(validation_alias=AliasChoices("cpus_verified", "cpu_verified"))


class Counted(Model):
    """What one event counted on one CPU, or over ``threads`` threads, between two readings ``wall_s`` apart.

    The readings are ``wall_s`` apart to within ``wall_uncertainty_s``, the time that they took (``None`` in older
    documents).
    ``count`` is as read, summed over ``pmus`` and threads; ``scaled`` is what it would be had every counter run all
    the time, ``None`` where one never ran or was refused; ``running_fraction`` is the least share that one ran.
    ``steps`` and ``hops`` are the work done between the same readings: steps of the traffic's mix, loads of the chain.
    ``background_count``, scaled too, is what came in ``background_wall_s`` while nothing was measured.
    """

    name: str
    pmus: tuple[str, ...]
    cpu: int | None
    threads: int | None
    count: int
    scaled: float | None
    running_fraction: float
    wall_s: float
    steps: float | None
    hops: float | None
    background_count: float | None
    background_wall_s: float | None
    wall_uncertainty_s: float | None = None


class Refused(Model):
    """An event not counted on ``cpu`` (``None``: in a thread), and why; ``errno`` is the kernel's answer, if asked."""

    name: str
    pmu: str
    cpu: int | None
    errno: str | None
    reason: str


class Counters(Model):
    """Hardware counters of a measurement; ``background_s``: how long they were watched before it, if they were."""

    background_s: float | None
    events: tuple[Counted, ...]
    refused: tuple[Refused, ...]


class EventSourceType(Model):
    """A PMU of the machine, and the number that the kernel knows it by."""

    name: str
    type: int


class CountersResult(Model):
    """Result of ``sutprobe counters``: what may be counted on this machine, and what was.

    ``paranoid`` is the kernel's ``perf_event_paranoid``, ``None`` where it has none; ``counters`` is where no event was
    asked for.
    """

    paranoid: int | None
    cap_perfmon: bool
    cap_sys_admin: bool
    pmus: tuple[EventSourceType, ...]
    counters: Counters | None


class SampleRefusal(Model):
    """Why loads were not sampled."""

    errno: str | None
    reason: str


class SampledLatency(Model):
    """Latencies of the sampled loads that were kept, in core cycles."""

    mean: float
    median: float
    p10: float
    p90: float
    min: float
    max: float


class SampledBin(Model):
    """One histogram bin: kept loads of at least ``from_cycles`` and less than the next bin's."""

    from_cycles: float
    count: int


class Samples(Model):
    """Loads that the hardware sampled, one in ``period`` of its own unit.

    ``kept`` are loads that local DRAM served without a TLB miss; ``reasons`` count the others by what they were.
    """

    method: Literal["pebs", "ibs", "spe"]
    period: int
    taken: int
    lost: int
    kept: int
    reasons: dict[str, int]
    latency_cycles: SampledLatency | None
    histogram: tuple[SampledBin, ...]
    refused: SampleRefusal | None


class Companion(Model):
    """A light load that ran beside a chase: what its CPU read from a node."""

    cpu: int
    node: int
    mb_s: float


class AwakeWalk(Model):
    """A second walk of the same chain, while ``companions`` ran; ``first``: it was made before the other."""

    first: bool
    windows_ns: tuple[float, ...]
    dirty_windows: tuple[int, ...]
    core_hz_before: float
    core_hz_after: float
    cpu_verified: bool
    interference: Interference
    counters: Counters | None = None
    samples: Samples | None = None
    companions: tuple[Companion, ...]


class LatencyPlacement(Placement):
    """One placement of a pointer chase: its windows in ns per load, and which of them were disturbed.

    ``awake`` is the same chain walked while companions kept the machine awake, ``None`` without companions.
    """

    windows_ns: tuple[float, ...]
    dirty_windows: tuple[int, ...]
    pages_by_node: tuple[int, ...]
    counters: Counters | None = None
    samples: Samples | None = None
    awake: AwakeWalk | None = None

    @property
    def when_awake(self) -> "LatencyPlacement | None":
        """The same placement with what the walk beside companions gave."""
        if self.awake is None:
            return None
        shared = (
            "windows_ns",
            "dirty_windows",
            "core_hz_before",
            "core_hz_after",
            "interference",
            "counters",
            "samples",
        )
        walk = {name: getattr(self.awake, name) for name in shared}
        return self.model_copy(update={**walk, "cpus_verified": self.awake.cpu_verified})


class OrderLimits(Model):
    """What chance alone stays below for a random order."""

    repeated_stride_share: float
    adjacent_line_share: float
    recent_page_share: float
    chi_square: float


class OrderCheck(Model):
    """What a prefetcher could learn from an order of visits, as shares of its ``jumps``; the worst of all placements.

    ``chi_square`` is that of the jumps' lengths over 16 classes. ``limits`` and ``passed`` are ``None`` where the order
    is not random over the whole buffer, or the chain too short to tell.
    """

    jumps: int
    repeated_stride_share: float
    adjacent_line_share: float
    recent_page_share: float
    chi_square: float | None
    limits: OrderLimits | None
    passed: bool | None


Stopped = Literal["converged", "placements", "budget", "interrupted"]
"""Why no further placement was made; ``interrupted``: the command was told to end, by a signal or its deadline."""


class LatencyPoint(Model):
    """One pointer chase: where, how large, in which order, and its placements.

    Pages are interleaved over ``nodes`` where there are several; ``copies`` chases ran at the same time.
    """

    cpu: int
    nodes: tuple[int, ...]
    copies: int
    size_bytes: int
    stride_bytes: int
    line_bytes: int
    order: str
    chain_nodes: int
    touched_bytes: int
    chain_proved: bool
    hops_per_window: int
    order_check: OrderCheck | None
    loop_overhead_ns: float | None
    stopped: Stopped | None
    error: ProbeError | None
    placements: tuple[LatencyPlacement, ...] | None


class LatencyResult(Model):
    """Result of ``sutprobe latency``: one point per place x order x size x stride that fits, in that order."""

    points: tuple[LatencyPoint, ...]


class Accounting(Model):
    """Bytes per step of a traffic mix: what instructions ask for and what the declared rule says memory must move."""

    reads_per_step: int
    writes_per_step: int
    write_allocate_reads_per_step: int
    program_bytes_per_step: int
    model_dram_bytes_per_step: int


class CourseSource(Model):
    """What is read in the course of a load: one sensor or counter of the machine."""

    kind: Literal["clock", "energy", "temperature"]
    name: str
    unit: str


class CourseReading(Model):
    """One reading of all sources, in their order; energy counts from the first. ``None``: it could not be read."""

    s: float
    values: tuple[float | None, ...]


class CourseUnreadable(Model):
    """A kind of source that could not be read on this machine, and why."""

    kind: str
    reason: str


class Course(Model):
    """Core clock, energy and temperatures in the course of a load."""

    sources: tuple[CourseSource, ...]
    readings: tuple[CourseReading, ...]
    unreadable: tuple[CourseUnreadable, ...]


class BandwidthPlacement(Placement):
    """One placement of a bandwidth kernel: windows in MB/s by both accountings, and each thread's share."""

    windows_mb_s: tuple[float, ...]
    program_windows_mb_s: tuple[float, ...]
    per_thread_mb_s: tuple[float, ...]
    course: Course | None = None
    counters: Counters | None = None
    samples: Samples | None = None


class BandwidthPoint(Model):
    """One setting of the bandwidth kernel for one group of threads; ``phase`` tells search from full measurement."""

    group: str
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    mix: str
    streams: int
    prefetch_bytes: int
    width: str
    delay: int
    buffer_bytes: int
    phase: Literal["scan", "full"]
    threads: int
    accounting: Accounting
    checked: bool
    start_skew_ns: float | None
    stopped: Stopped | None
    error: ProbeError | None
    placements: tuple[BandwidthPlacement, ...] | None


class BandwidthResult(Model):
    """Result of ``sutprobe bandwidth``, in the order group x mix x setting."""

    points: tuple[BandwidthPoint, ...]


class LoadedProbe(Model):
    """One latency probe of a loaded-latency placement: ns per load in the same windows as the bandwidth."""

    cpu: int
    node: int
    windows_ns: tuple[float, ...]
    probe_mb_s: float


class LoadedPlacement(Placement):
    """One placement of a loaded-latency point; the probes' own traffic is not in ``windows_mb_s``."""

    windows_mb_s: tuple[float, ...]
    probes: tuple[LoadedProbe, ...]
    counters: Counters | None = None
    samples: Samples | None = None


class LoadedPoint(Model):
    """Latency and bandwidth at one injection delay; ``delay_ns`` is the measured length of the delay itself.

    ``accounting`` is that of the load's mix, ``None`` in documents of versions that did not say. A delay that was
    searched has ``share_percent``, what was asked, and ``share_found``, the share of the bandwidth without delay that
    the search saw; the others have neither.
    """

    inject_delay: int
    delay_ns: float
    share_percent: int | None = None
    share_found: float | None = None
    accounting: Accounting | None = None
    checked: bool
    stopped: Stopped | None
    error: ProbeError | None
    placements: tuple[LoadedPlacement, ...] | None


class ZeroLoad(Model):
    """The probe without any load at the start, in the middle and at the end of the sweep: what drift would show."""

    cpu: int
    node: int
    windows_ns_start: tuple[float, ...]
    windows_ns_middle: tuple[float, ...]
    windows_ns_end: tuple[float, ...]


class LoadedLook(Model):
    """One delay of the search for shares: the highest bandwidth seen in so many looks."""

    inject_delay: int
    times: int
    best_mb_s: float


class LoadedResult(Model):
    """Result of ``sutprobe loaded``: one point per injection delay, and the looks that the search took for some."""

    points: tuple[LoadedPoint, ...]
    looks: tuple[LoadedLook, ...] = ()
    zero_load: tuple[ZeroLoad, ...]


class VolumeBytes(Model):
    """Bytes that one part of the work moves: by its instructions, and by lines fetched because they are written."""

    program_read_bytes: int
    program_written_bytes: int
    allocate_read_bytes: int


class VolumeKnown(Model):
    """What a volume run moves to and from memory by its code; the totals are of one repeat, with allocated lines."""

    init: VolumeBytes
    triad: VolumeBytes
    read_bytes: int
    written_bytes: int


class VolumeRepeat(Model):
    """One initialisation with its passes; ``counters`` are read before the first and after the last of them."""

    seconds: float
    init_seconds: float
    triad_seconds: float
    checked: bool
    cpus_verified: bool
    interference: Interference
    counters: Counters | None


class VolumeResult(Model):
    """Result of ``sutprobe volume``: triads over arrays whose traffic is ``known``, repeated.

    ``array_bytes`` is the size of each of the three arrays of each thread.
    """

    group: str
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    threads: int
    array_bytes: int
    passes: int
    width: str
    pages: Pages
    known: VolumeKnown
    repeats: tuple[VolumeRepeat, ...]


class JitterInterval(Model):
    """One display interval as PMA jitter prints it, in ticks of the clock named in the document."""

    inst_min_cycles: int
    inst_max_cycles: int
    inst_jitter_cycles: int
    last_exec_cycles: int
    abs_min_cycles: int
    abs_max_cycles: int
    tmp: int
    interval_cycles: int
    sample: int


class PmaInterval(JitterInterval):
    """One display interval measured here, with what else happened during it."""

    interference: Interference


class PmaView(Model):
    """The PMA-compatible view of one CPU; ``blind_fraction`` is the share of time outside the timed work."""

    loops: int
    executions: int
    tick_hz: float
    blind_fraction: float
    stopped: Literal["intervals", "budget", "interrupted"]
    intervals: tuple[PmaInterval, ...]


class GapBin(Model):
    """One histogram bin: gaps with ``from_ns`` <= length < ``to_ns``."""

    from_ns: float
    to_ns: float
    count: int


class GapRate(Model):
    """How often per second a gap of at least ``threshold_ns`` came."""

    threshold_ns: float
    rate: float


class TimeQuantile(Model):
    """For ``time_fraction`` of the wall time the CPU was away for no longer than ``gap_ns`` at a stretch."""

    time_fraction: float
    gap_ns: float


class LongGap(Model):
    """One of the longest gaps: when it began, counted from the start of the view, and how long it was."""

    at_ns: float
    length_ns: float


class Period(Model):
    """Gaps at equal distances in time.

    ``gaps`` belong to it, of ``cycles`` in which one could be seen; they begin within ``window_ns`` of their time,
    before or after, and their lengths have the median ``median_ns`` and the sum ``lost_ns``.
    """

    period_ns: float
    hz: float
    share_of_gaps: float
    gaps: int
    cycles: int
    median_ns: float
    lost_ns: float
    window_ns: float


class GapSource(Model):
    """What may have made gaps: its number, the gaps and lost time it explains, ``None`` with a ``reason``."""

    source: str
    kind: Literal["interrupt", "softirq", "switch", "steal", "smi"]
    count: float
    rate_per_s: float
    explained_gaps: float | None
    explained_lost_ns: float | None
    reason: str | None


class Attribution(Model):
    """What the gaps were, from counters read in ``slices``; shares are ``None`` where there were no gaps."""

    slices: int
    slice_s: float
    gaps: int
    lost_ns: float
    sources: tuple[GapSource, ...]
    unattributed_gaps: float
    unattributed_lost_ns: float
    unattributed_share: float | None
    unattributed_lost_share: float | None


class TurnTime(Model):
    """How long one turn of the gap loop takes when nothing interrupts it."""

    min: float
    median: float


class TracedCause(Model):
    """One kind of work of the kernel that interrupted the CPU, from its traced events.

    ``events`` is how often it ran, in ``gaps`` gaps, of which ``owned`` were its more than any other's. Times are its
    own, without what interrupted it; ``share`` is of the time of all gaps told of. ``irq`` is the interrupt line,
    ``pid`` the thread where one thread only had the name.
    """

    kind: Literal["interrupt", "timer", "ipi", "vector", "nmi", "softirq", "task", "work"]
    name: str
    function: str | None
    irq: int | None
    pid: int | None
    events: int
    gaps: int
    owned: int
    total_ns: float
    longest_ns: float
    share: float | None


class TracedRest(Model):
    """Time of gaps that no event covers, in ``gaps`` gaps."""

    gaps: int
    total_ns: float
    longest_ns: float
    share: float | None


class Unexplained(TracedRest):
    """What is no edge of any event; ``without_events`` gaps had none at all."""

    without_events: int


class GapTotals(Model):
    """How much a CPU was interrupted in ``wall_s``; ``mean_ns`` is ``None`` without gaps."""

    wall_s: float
    gaps: int
    rate_per_s: float
    lost_fraction: float
    mean_ns: float | None


class TracedView(Model):
    """What the gaps were that were watched while the kernel was traced.

    ``without_tracing`` is the view whose figures are published, so that the two tell what tracing costs. ``told_gaps``
    are those whose time was traced and kept. ``edges`` is entering and leaving the kernel, and what the caches lost.
    """

    clock: Literal["x86-tsc", "mono_raw"]
    kinds_of_events: int
    lines: int
    unreadable: int
    lost_events: int | None
    with_tracing: GapTotals
    without_tracing: GapTotals
    told_gaps: int
    told_ns: float
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained
    steal_ms: float | None
    smi: int | None


class NoiseName(Model):
    """What the kernel's tracer osnoise accounts for under one name, as the kernel gives it.

    ``number`` is the interrupt's, the softirq's or the thread's, ``None`` where several threads had the name. Times are
    net, without what interrupted it; ``share`` is of the time of all gaps told of.
    """

    name: str
    number: int | None
    count: int
    total_ns: float
    longest_ns: float
    share: float | None


class NoiseClass(Model):
    """What osnoise accounts for in one class of the kernel's; NMIs have no names."""

    kind: Literal["irq", "nmi", "softirq", "thread"]
    count: int
    total_ns: float
    longest_ns: float
    share: float | None
    names: tuple[NoiseName, ...]


class Traced(Model):
    """Whether the kernel could be traced, and what that told; ``tracers`` names its own tracers of noise.

    ``osnoise`` is the second view, that of the kernel's own tracer on the same gaps; where it is ``None``,
    ``osnoise_refused`` says why, or ``refused`` where nothing was traced.
    """

    refused: str | None
    tracers: str
    osnoise_refused: str | None = None
    osnoise: tuple[NoiseClass, ...] | None = None
    view: TracedView | None


class GapView(Model):
    """Every interruption of one CPU that is longer than the threshold; nothing is unobserved between the turns."""

    stopped: Literal["time", "budget", "converged", "interrupted"]
    rate_half_width: float | None
    wall_s: float
    turns: int
    turn_ns: TurnTime
    threshold_ns: float
    coverage_fraction: float
    backward_steps: int
    count: int
    max_ns: float
    lost_ns: float
    lost_fraction: float
    histogram: tuple[GapBin, ...]
    rates_per_s: tuple[GapRate, ...]
    quantiles: tuple[TimeQuantile, ...]
    longest: tuple[LongGap, ...]
    ring_full: bool
    periods: tuple[Period, ...]
    attribution: Attribution | None
    traced: Traced | None = None
    core_hz_before: float
    core_hz_after: float
    interference: Interference


class JitterCpu(Model):
    """Both views of one CPU; a view that is not there is ``None``, with why in ``pma_missing`` or ``gaps_missing``."""

    cpu: int
    cpu_verified: bool
    pma: PmaView | None
    gaps: GapView | None
    pma_missing: str | None = None
    gaps_missing: str | None = None


class JitterResult(Model):
    """Result of ``sutprobe jitter``: one entry per CPU, measured at the same time."""

    cpus: tuple[JitterCpu, ...]


class C2cPlacement(Placement):
    """One placement of a cache-to-cache chase: its windows in ns per load of a line that the writer's cache holds."""

    windows_ns: tuple[float, ...]


class C2cTransfer(Model):
    """What a pair of CPUs was asked to do, and how it ended: one of a list, or one of a matrix.

    With method ``transfer`` the reader loads ``lines`` cache lines of node ``home`` from the writer's cache, where they
    are modified (state ``hitm``) or clean (``hit``); with ``pingpong`` the two shake hands over two of the lines, which
    then have no state. ``home`` is ``None`` where it is a CPU's own node and no thread ran on that CPU.
    """

    writer: int
    reader: int
    home: int | None
    state: Literal["hit", "hitm"] | None
    method: Literal["transfer", "pingpong"]
    lines: int
    checked: bool
    stopped: Stopped | None
    error: ProbeError | None


class C2cPair(C2cTransfer):
    """A pair with all its evidence, placement by placement."""

    placements: tuple[C2cPlacement, ...] | None


class C2cCell(C2cTransfer):
    """A pair of a matrix: windows in ns of each placement, and the evidence for all of them together.

    Of its interference only the threads' own counts are known; the machine's were read for the whole matrix.
    """

    placements: tuple[tuple[float, ...], ...] | None
    evidence: Placement | None


class C2cEstimate(Model):
    """How long a matrix of ``pairs`` was expected to take, by the first ``measured_on``, and how many were ``chosen``.

    ``budget_s`` is what it was allowed, 0 for no limit.
    """

    pairs: int
    measured_on: int
    pair_s: float
    expected_s: float
    budget_s: float
    chosen: int


class C2cLeftOut(Model):
    """Pairs of a matrix that were not measured, each as ``WRITER@READERS``, and why."""

    code: str
    message: str
    pairs: tuple[str, ...]


class C2cResult(Model):
    """Result of ``sutprobe c2c``: the pairs asked for one by one, in that order, and those of a matrix by CPU.

    ``estimate`` and ``interference`` (of all CPUs of the matrix over its whole time) are ``None`` without a matrix.
    """

    pairs: tuple[C2cPair, ...]
    estimate: C2cEstimate | None
    cells: tuple[C2cCell, ...]
    not_measured: tuple[C2cLeftOut, ...]
    interference: Interference | None


class FrequencyPoint(Model):
    """The clock of one CPU under one kind of work, alone or while ``active_cpus`` CPUs do the same.

    ``windows_hz`` are core clocks per second while nothing interrupted the CPU, ``share`` is the share of the time that
    it got (``windows_share``: in each window). ``lost_windows`` show no clock. ``chain_ratio`` compares the
    chain with vector work beside it to the chain alone.
    """

    cpu: int
    active: Literal["alone", "all"]
    active_cpus: int
    work: str
    cpu_verified: bool
    checked: bool
    stopped: Literal["converged", "windows", "budget", "interrupted"] | None
    error: ProbeError | None
    windows_hz: tuple[float, ...] | None
    share: float | None
    windows_share: tuple[float, ...] | None
    dirty_windows: tuple[int, ...] | None
    lost_windows: int | None
    chain_ratio: float | None
    interference: Interference | None


class FrequencyResult(Model):
    """Result of ``sutprobe frequency``, in the order work x alone or all x CPU."""

    points: tuple[FrequencyPoint, ...]


class HugetlbNode(Model):
    """Reserved huge pages of one size on one node; ``None`` where the kernel does not say."""

    node: int
    nr: int | None
    free: int | None


class HugetlbSize(Model):
    """Reserved huge pages of one size, on the whole machine and by node."""

    bytes: int
    nr: int | None
    free: int | None
    nodes: tuple[HugetlbNode, ...]


class PageKinds(Model):
    """The pages that buffers can be had on; ``thp_*`` are the kernel's own words, the choice in brackets."""

    base_bytes: int
    thp_bytes: int | None
    thp_enabled: str | None
    thp_defrag: str | None
    hugetlb: tuple[HugetlbSize, ...]


class Privilege(Model):
    """What the program may or may not do on this SUT, how that was ``found``, and the ``cost`` of not having it."""

    name: str
    present: bool
    found: str
    cost: str | None


class InfoResult(Model):
    """Result of ``sutprobe info``: what it finds on the SUT before anything is measured."""

    instruction_sets: dict[str, bool]
    sve_vector_bytes: int | None
    widths: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    line_bytes: int
    clocksource: str | None
    clocksources: tuple[str, ...]
    page_kinds: PageKinds
    uid: int
    privileges: tuple[Privilege, ...]


class SelftestCase(Model):
    """One known answer: ``error`` says why it did not come out, or could not be asked; ``note`` what was found."""

    name: str
    passed: bool
    error: ProbeError | None
    note: str | None


class InjectedTrain(Model):
    """Interruptions made on purpose, every ``period_ns`` for ``busy_ns``, and what the gap loop made of them.

    ``in_gaps`` lie inside a recorded gap, ``alone`` without another; the cost of an empty one is subtracted from
    ``found_median_ns``. 0 where nothing was found; ``reason`` says why a train was not found or not judged.
    """

    mechanism: str
    busy_ns: float
    period_ns: float
    injected: int
    in_gaps: int
    alone: int
    found_median_ns: float
    overhead_ns: float
    overhead_spread_ns: float
    found_period_ns: float
    found_period_gaps: int
    verdict: Literal["found", "inconclusive", "missed"]
    reason: str | None


class Plant(Model):
    """A disturbance made on purpose, and what tracing found under its name; ``planted_ns`` where its time is known."""

    planted: str
    planted_events: int
    planted_ns: float | None
    found_events: int
    found_ns: float


class Plantings(Model):
    """What was planted on one CPU, and everything that the tracing found there."""

    cpu: int
    wall_s: float
    plants: tuple[Plant, ...]
    other_threads_share: float
    told_gaps: int
    told_ns: float
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained


class SelftestResult(Model):
    """Result of ``sutprobe selftest``, in the order the cases ran in."""

    cases: tuple[SelftestCase, ...]
    injections: tuple[InjectedTrain, ...]
    plantings: Plantings | None


class ProbeDocument(Model):
    """The envelope of every document; ``result`` is read by the model of its subcommand."""

    schema_: str
    subcommand: str
    argv: tuple[str, ...]
    build: Build
    status: Literal["ok", "failed"]
    error: ProbeError | None
    host: Host
    started_at_unix_ns: int
    duration_s: float
    clock: Clock | None
    looking: Looking | None = None
    warnings: tuple[Warned, ...]
    parameters: dict[str, Any]
    result: dict[str, Any] | None


Result = TypeVar("Result", bound=Model)


MAX_PARTS = 300_000
"""Most objects and lists of an answer: one of 16 MiB has 230,000. Validation takes 1.4 KB for each, empty or not."""


def _bounded(content: bytes) -> bytes:
    parts = content.count(b"{") + content.count(b"[")
    if parts > MAX_PARTS:
        raise InputError(f"expected at most {MAX_PARTS} objects and lists in a sutprobe document, found {parts}")
    return content


def read_document(raw: dict[str, Any]) -> ProbeDocument:
    """Return the typed envelope of a document as ``sutprobe`` printed it.

    Raises ``InputError`` where it is not a document of the schema this package knows.
    """
    if raw.get("schema") != SCHEMA:
        raise InputError(f"expected a sutprobe document of schema {SCHEMA!r}, found {repr(raw.get('schema'))[:200]}")
    fields = {"schema_" if key == "schema" else key: value for key, value in raw.items()}
    result = raw.get("result")
    if isinstance(result, dict):  # most of the document, and not looked into here
        fields["result"] = {}
    try:
        document = ProbeDocument.model_validate_json(_bounded(json.dumps(fields, allow_nan=False).encode()))
        return document.model_copy(update={"result": result})
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"the sutprobe document does not have the form of schema {SCHEMA!r}: {reason}") from error


def read_result(document: ProbeDocument, model: type[Result]) -> Result:
    """Return the result of *document* as *model*. Raises ``InputError`` where there is none or it has another form."""
    if document.result is None:
        reason = document.error.message if document.error else "no error was given"
        raise InputError(f"expected a result from sutprobe {document.subcommand}, found none: {reason}")
    try:
        return model.model_validate_json(_bounded(to_json(document.result)))  # the model refuses what is no number
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"the result of sutprobe {document.subcommand} has an unexpected form: {reason}") from error
