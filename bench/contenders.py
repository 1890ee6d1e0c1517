# SPDX-License-Identifier: Apache-2.0
"""Contenders of the comparison: the machine, and each contender's command line and output reader.

All contenders of a section use the same bytes on the same CPUs with their best settings: pinned threads, huge pages if
supported, their best kernels. No setting of the machine is changed: multichase and multiload, which would do so, use
huge pages only if the setting is already as they want it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final, Literal

from bench import outputs
from bench.outputs import NotComparedError
from calibration import units
from calibration.context import load
from calibration.errors import CalibrationError, EnvironmentLacksError
from calibration.measurements.bandwidth_ladder import level_sizes
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import Part
from calibration.measurements.traffic_shape import ShapeSettings, extra_options, widths
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.c2c import C2cResult
from calibration.sutprobe.document import ProbeDocument, read_document, read_result
from calibration.sutprobe.jitter import GapView, JitterResult
from calibration.sutprobe.latency import LatencyResult

MIB: Final = 1 << 20
LINE_BYTES: Final = 64
OURS: Final = "sutprobe"

PEERS: Mapping[str, tuple[str, ...]] = {
    "likwid-bench": ("likwid-bench",),
    "bw_mem": ("bw_mem",),
    "sc-membench": ("sc-membench", "membench"),
    "multiload": ("multiload",),
    "multichase": ("multichase",),
    "pingpong": ("pingpong",),
    "stress-ng": ("stress-ng",),
    "mbw": ("mbw",),
    "oslat": ("oslat",),
    "pma-jitter": ("pma-jitter",),
    "core-to-core-latency": ("core-to-core-latency",),
    "mlc": ("mlc",),
}
"""Each peer and the names it is looked for on PATH. PMA's program is called just ``jitter``: it must be pointed at."""

# --- what is alike ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What a kernel does per element of 8 bytes, and with which stores. Only equal traffic is compared."""

    reads: int
    writes: int
    stores: Literal["none", "regular", "non-temporal"]

    def fetched(self, architecture: str) -> int:
        """Bytes per element that memory sends: a regular store reads its line first, except on aarch64."""
        allocates = self.stores == "regular" and architecture != "aarch64"
        return 8 * (self.reads + self.writes * allocates)

    def bus(self, architecture: str) -> int:
        """Bytes per element that memory moves, by the rule that our own bytes are counted with."""
        return self.fetched(architecture) + 8 * self.writes


TRAFFIC: Mapping[str, Traffic] = {
    "read": Traffic(1, 0, "none"),
    "write": Traffic(0, 1, "regular"),
    "write_nt": Traffic(0, 1, "non-temporal"),
    "copy": Traffic(1, 1, "regular"),
    "copy_nt": Traffic(1, 1, "non-temporal"),
    "triad": Traffic(2, 1, "regular"),
    "triad_nt": Traffic(2, 1, "non-temporal"),
}

OUR_MIXES: Mapping[str, str] = {
    "read": "reads",
    "write": "write",
    "write_nt": "write_nt",
    "copy": "copy",
    "copy_nt": "copy_nt",
    "triad": "triad",
    "triad_nt": "stream_triad",
}
"""The mixes of ``sutprobe bandwidth`` with the traffic of each quantity; of several, separated by commas, the best."""

PREFETCH_BYTES: Final = "0,512,1024,2048,4096"
"""Finer than a plan's search: the peers' kernels have theirs tuned by hand."""

Window = Literal["common", "fixed work", "per thread"]

WINDOWS: Mapping[str, Window] = {
    OURS: "common",
    "likwid-bench": "fixed work",
    "sc-membench": "fixed work",
    "bw_mem": "per thread",
    "multiload": "per thread",
    "stress-ng": "per thread",
    "mbw": "per thread",
}
"""What the rate of several threads is of.

``common``: what all did between the same two moments. ``fixed work``: the work of all, which began at a barrier, by the
time of the last. ``per thread``: the sum of rates that each had in a time of its own; it can exceed what memory moves.
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a peer: its traffic, the bytes per element that the peer counts, and the CPU flag it needs."""

    peer: str
    name: str
    traffic: Traffic
    counted: int
    needs: str = ""


def _kernels() -> Iterator[Kernel]:
    read, write, write_nt, copy, copy_nt, triad, triad_nt = TRAFFIC.values()
    # likwid-bench counts each load and store; only its kernels with "mem" in the name use non-temporal stores.
    for names, regular, streaming, counted in (
        (("load",), read, None, 8),
        (("store",), write, write_nt, 8),
        (("copy",), copy, copy_nt, 16),
        (("stream",), triad, triad_nt, 24),
    ):
        for vectors, flag in (("sse", "sse2"), ("avx", "avx"), ("avx512", "avx512f"), ("neon", "asimd")):
            for name in names:
                yield Kernel("likwid-bench", f"{name}_{vectors}", regular, counted, flag)
                if streaming and vectors != "neon":
                    yield Kernel("likwid-bench", f"{name}_mem_{vectors}", streaming, counted, flag)
    # lmbench and sc-membench count the size of the buffer: a copy of n bytes as n.
    for name, traffic in (("rd", read), ("frd", read), ("wr", write), ("fwr", write), ("cp", copy), ("fcp", copy)):
        yield Kernel("bw_mem", name, traffic, 8)
    for name, traffic in (("read", read), ("write", write), ("copy", copy)):
        yield Kernel("sc-membench", name, traffic, 8)
    # Its methods write1024 and the like use regular stores.
    for name in ("read64", "read128", "read1024", "read128pf"):
        yield Kernel("stress-ng", name, read, 8)
    for name in ("write64", "write128", "write1024"):
        yield Kernel("stress-ng", name, write, 8)
    for name in ("write64nt", "write128nt"):
        yield Kernel("stress-ng", name, write_nt, 8)
    # memcpy, forced to non-temporal stores; mbw counts n, multiload 2 n, and 3 n for a triad.
    yield Kernel("mbw", "memcpy", copy_nt, 8, "sse2")
    yield Kernel("multiload", "memcpy-libc", copy_nt, 16, "sse2")
    yield Kernel("multiload", "stream-sum", read, 8)
    yield Kernel("multiload", "stream-triad", triad, 24)
    yield Kernel("multiload", "stream-triad-nontemporal-injection-delay", triad_nt, 24)


KERNELS: Final = tuple(_kernels())

TITLES: Mapping[str, str] = {
    "read": "Read",
    "write": "Write",
    "write_nt": "Write, non-temporal",
    "copy": "Copy",
    "copy_nt": "Copy, non-temporal",
    "triad": "Triad",
    "triad_nt": "Triad, non-temporal",
    "latency": "Random latency, huge pages, ns",
    "latency_time": "Time to measure latency, s",
    "gap_step_ns": "Interruption resolution, ns",
    "interruptions_per_s": "Interruptions above 2 µs, 1/s",
    "l1_cycles": "L1 load to use, core clocks",
    "c2c": "Line from another core, ns",
}
"""The quantities that are compared."""

LEVELS: Final = ("L1", "L2", "L3")
"""The caches in whose middle reads are compared."""

INTERRUPTION_US = 2
"""Interruptions longer than this are counted by both sides; oslat's resolution is one microsecond."""

LATENCY_BYTES = 512 * MIB


@dataclass(frozen=True)
class Output:
    """The output and duration of one start."""

    stdout: str
    stderr: str
    seconds: float

    @property
    def text(self) -> str:
        """All it printed: several peers print their results on stderr."""
        return f"{self.stdout}\n{self.stderr}"


Metric = Callable[[Output], float]


@dataclass(frozen=True)
class Start:
    """One process: its arguments and its CPUs (``None``: those of this process)."""

    command: tuple[str, ...]
    cpus: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Contender:
    """One setting of one program. Several starts run concurrently and their metrics are summed.

    *traffic*, *threads* and *window* say what a bandwidth is of; ``None``: another quantity.
    """

    peer: str
    label: str
    starts: tuple[Start, ...]
    metrics: Mapping[str, Metric]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    traffic: Traffic | None = None
    threads: int = 1
    window: Window = "common"

    @property
    def counts(self) -> bool:
        """Whether its rate is of one window, so that it can be the best peer."""
        return self.threads == 1 or self.window != "per thread"


@dataclass(frozen=True)
class Machine:
    """What the commands are built from.

    *search* and *widths* are what our shapes are searched over, as in a plan: options of ``sutprobe bandwidth`` with
    lists, of which a point has a field each, and vector widths. *levels* are the bytes per thread in the middle of each
    cache for all threads, *one_levels* for one; *level* is the cache that all bytes lie in, "" for memory.
    """

    cpus: tuple[int, ...]
    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    architecture: str
    flags: frozenset[str]
    huge_pages: bool
    total_bytes: int
    one_bytes: int
    tick_hz: float
    described: str
    search: Mapping[str, str] = field(default_factory=dict)
    widths: tuple[str, ...] = ("auto",)
    levels: Mapping[str, int] = field(default_factory=dict)
    one_levels: Mapping[str, int] = field(default_factory=dict)
    level: str = ""

    @property
    def group(self) -> str:
        """All CPUs, each on the memory of its own node, as ``sutprobe bandwidth`` takes it."""
        return "+".join(f"{','.join(map(str, cpus))}@{node}" for node, cpus in self.nodes)

    def node_of(self, cpu: int) -> int:
        """Return the node of one of the CPUs used."""
        return next(node for node, cpus in self.nodes if cpu in cpus)

    @property
    def quiet_cpu(self) -> int:
        """The last CPU: the first one is where a machine's other work tends to be."""
        return self.cpus[-1]

    @property
    def pages(self) -> str:
        """Pages asked for by ``sutprobe``."""
        return "thp" if self.huge_pages else "base"

    def one_thread(self) -> "Machine":
        """Return this machine with one CPU: the first, because likwid-bench takes no other."""
        cpu = self.cpus[0]
        nodes = ((self.node_of(cpu), (cpu,)),)
        return replace(self, cpus=(cpu,), nodes=nodes, total_bytes=self.one_bytes, levels=self.one_levels)

    def in_cache(self, level: str) -> "Machine":
        """Return this machine with each thread's bytes in the middle of *level*, where a plan searches streams alone.

        Raises ``NotComparedError`` if the level is not reported or a thread's share of it is not above the one below.
        """
        if level not in self.levels:
            raise NotComparedError(f"no size in the middle of {level}")
        search = {"streams": self.search["streams"], "prefetch-bytes": "0"}
        return replace(self, level=level, total_bytes=self.levels[level] * len(self.cpus), search=search)

    def title(self, quantity: str) -> str:
        """Return what a table calls *quantity* here."""
        size = f", {self.level}, {units.size(self.total_bytes // len(self.cpus))}" if self.level else ""
        return f"{TITLES[quantity]}{size}"


def describe_machine(root: Path, allowed: frozenset[int], tick_hz: float) -> Machine:
    """Return this machine, as captured from *root*, restricted to the *allowed* CPUs.

    The working set of all threads is 768 MiB or eight times the last-level caches in use, whichever is more; that of
    one thread half of it, by its own cache. Raises ``EnvironmentLacksError`` if memory cannot hold twice that.
    """
    context = load(root)
    cpus = tuple(cpu for cpu in context.online_cpus if cpu in allowed)
    homes = {cpu: context.node_of(cpu) or 0 for cpu in cpus}
    nodes = tuple((node, tuple(cpu for cpu in cpus if homes[cpu] == node)) for node in sorted(set(homes.values())))
    data = [cache for cache in context.caches if cache.type != "Instruction" and cache.size_bytes]
    used = [cache for cache in data if cache.shared_cpus and set(cache.shared_cpus) & set(cpus)]
    last = max((cache.level for cache in used), default=None)
    sizes = [cache.size_bytes or 0 for cache in used if cache.level == last]
    grain = len(cpus) * 6 * 2 * MIB
    total = _rounded(max(768 * MIB, 8 * sum(sizes)), grain)
    available = context.memory.available_bytes
    if available is not None and available < 2 * total:
        raise EnvironmentLacksError(f"{2 * total / 1e9:.1f} GB of free memory needed, {available / 1e9:.1f} GB free")
    settings = context.memory.transparent_hugepages
    huge = settings.enabled in {"always", "madvise"} and settings.defrag in {"always", "madvise", "defer+madvise"}
    model = context.processor.models[0] if context.processor.models else None
    described = (
        f"{model.name if model else context.processor.architecture}, {len(cpus)} CPUs, "
        f"{'virtual machine, ' if context.virtualization.guest else ''}Linux {context.capture.kernel_release}"
    )
    shapes = ShapeSettings()
    sut, parts = Sut(context), [Part(cpus, node) for node, cpus in nodes]
    levels, one_levels = (
        {f"L{level}": size for level, size in level_sizes(sut, group, ("reads",)).items()}
        for group in (parts, [Part(parts[0].cpus[:1], parts[0].node)])
    )
    return Machine(
        cpus,
        nodes,
        context.processor.architecture or "",
        frozenset(context.processor.flags),
        huge,
        total,
        _rounded(max(384 * MIB, 8 * max(sizes, default=0)), 12 * MIB),
        tick_hz,
        described,
        {
            "streams": ",".join(map(str, shapes.streams)),
            "prefetch-bytes": PREFETCH_BYTES,
            **{option: str(tried) for option, tried in extra_options(context, shapes).items()},
        },
        widths(context, shapes),
        levels,
        one_levels,
    )


def _rounded(size: int, grain: int) -> int:
    return (size + grain - 1) // grain * grain


def allowed_cpus() -> frozenset[int]:
    """Return the CPUs this process may use."""
    return frozenset(os.sched_getaffinity(0))


# --- what sutprobe prints ---------------------------------------------------------------------------------------------


def document_of(output: Output) -> ProbeDocument:
    """Return the document of a start of ``sutprobe``. Raises ``NotComparedError`` if it failed or is unreadable."""
    try:
        document = read_document(json.loads(output.stdout))
    except (ValueError, CalibrationError) as error:
        raise NotComparedError(f"sutprobe: {error}") from error
    if document.status != "ok":
        raise NotComparedError(f"sutprobe: {document.error.message if document.error else 'failed without a reason'}")
    return document


def _rate(point: BandwidthPoint) -> float:
    """Return a point's MB/s on the bus: the median of its placements' medians."""
    if not point.placements:
        raise NotComparedError(f"sutprobe: {point.error.message if point.error else 'no placement'}")
    return median(median(placement.windows_mb_s) for placement in point.placements)


def our_bandwidth(output: Output) -> float:
    """Read the only point's MB/s on the bus."""
    return _rate(read_result(document_of(output), BandwidthResult).points[-1])


def our_latency(output: Output) -> float:
    """Read the first point's ns per load: median of placement medians."""
    point = read_result(document_of(output), LatencyResult).points[0]
    if not point.placements:
        raise NotComparedError(f"sutprobe: {point.error.message if point.error else 'no placement'}")
    return median(median(placement.windows_ns) for placement in point.placements)


def our_cycles(output: Output) -> float:
    """Read ns per load as clocks of the core, whose clock was measured around each placement."""
    placements = read_result(document_of(output), LatencyResult).points[0].placements or ()
    if not placements:
        raise NotComparedError("sutprobe: no placement")
    return median(
        median(placement.windows_ns) * (placement.core_hz_before + placement.core_hz_after) / 2e9
        for placement in placements
    )


def _gaps(output: Output) -> GapView:
    view = read_result(document_of(output), JitterResult).cpus[0].gaps
    if view is None:
        raise NotComparedError("sutprobe: no view of gaps")
    return view


def our_turn(output: Output) -> float:
    """Read the median turn of the gap loop, ns."""
    return _gaps(output).turn_ns.median


def our_interruptions(output: Output) -> float:
    """Read how often per second a step was at least ``INTERRUPTION_US`` long."""
    rates = {round(rate.threshold_ns): rate.rate for rate in _gaps(output).rates_per_s}
    if 1000 * INTERRUPTION_US not in rates:
        raise NotComparedError(f"sutprobe: no rate above {INTERRUPTION_US} us among {sorted(rates)}")
    return rates[1000 * INTERRUPTION_US]


def our_transfer(output: Output) -> float:
    """Read the only pair's ns per load."""
    pair = read_result(document_of(output), C2cResult).pairs[0]
    if not pair.placements:
        raise NotComparedError(f"sutprobe: {pair.error.message if pair.error else 'no placement'}")
    return median(median(placement.windows_ns) for placement in pair.placements)


# --- bandwidth --------------------------------------------------------------------------------------------------------

GLIBC_HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Makes glibc's malloc request transparent huge pages, for peers without an option for it."""

GLIBC_STREAMING = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.cpu.x86_non_temporal_threshold=65536"}
"""Forces memcpy to use non-temporal stores at these sizes, so that its bus traffic is known: 2 n."""

LMBENCH_QUICK = {"ENOUGH": "100000"}
"""Microseconds that lmbench times; its own search for this value takes longer than the measurement."""

LIKWID_BYTES = 2e9
"""Bytes that each thread of likwid-bench moves, as it counts them: some 100 ms; by time, it runs a second or more."""

LIKWID_CACHED_BYTES = 2e10
"""The same in caches, which are ten times as fast."""


def _arrays(traffic: Traffic) -> int:
    return traffic.reads + traffic.writes


def _our_bandwidth(machine: Machine, quantity: str, program: str, shape: Mapping[str, str]) -> tuple[str, ...]:
    size = machine.total_bytes // len(machine.cpus) // _arrays(TRAFFIC[quantity])
    return (
        *(program, "bandwidth", "--group", machine.group),
        *("--buffer-bytes", str(size), "--pages", machine.pages, "--window-s", "0.05"),
        *(part for option, value in shape.items() for part in (f"--{option}", value)),
    )


def our_bandwidth_searches(machine: Machine, quantity: str, program: str) -> list[Start]:
    """Return the starts that search our access shapes once, as a plan does once for a platform: one per width."""
    searches = []
    for width in machine.widths:
        options = {"mix": OUR_MIXES[quantity], **machine.search, "width": width}
        command = _our_bandwidth(machine, quantity, program, options)
        searches.append(Start((*command, "--keep-best", "4", "--placements", "3", "--windows", "5")))
    return searches


def our_best_settings(machine: Machine, quantity: str, program: str, searched: Sequence[Output]) -> list[Contender]:
    """Return a contender for each of the settings that the searches found best and measured again."""
    points = [point for one in searched for point in read_result(document_of(one), BandwidthResult).points]
    measured = [point for point in points if point.phase == "full" and point.placements]
    if not measured:
        raise NotComparedError("sutprobe: the search measured no setting")
    return [_our_setting(machine, quantity, program, point) for point in measured]


def _our_setting(machine: Machine, quantity: str, program: str, best: BandwidthPoint) -> Contender:
    shape = {option: str(getattr(best, option.replace("-", "_"))) for option in ("mix", *machine.search, "width")}
    if shape.get("hint") == "none":
        del shape["hint"]
    command = (*_our_bandwidth(machine, quantity, program, shape), "--placements", "1", "--windows", "3")
    return Contender(
        OURS,
        f"{OURS} {', '.join(f'{option} {value}' for option, value in shape.items())}",
        (Start(command),),
        {quantity: our_bandwidth},
        traffic=TRAFFIC[quantity],
        threads=len(machine.cpus),
        window=WINDOWS[OURS],
    )


def _bandwidth_peer(machine: Machine, kernel: Kernel, path: str) -> tuple[tuple[str, ...], outputs.Reader]:
    """Return arguments and reader of one kernel of a peer, on all CPUs of *machine*."""
    threads = len(machine.cpus)
    size = machine.total_bytes // threads // _arrays(kernel.traffic)
    huge = ("-H",) if machine.huge_pages else ()
    name = kernel.name
    match kernel.peer:
        case "likwid-bench":
            groups = [
                argument
                for node, cpus in machine.nodes
                for argument in ("-w", f"M{node}:{machine.total_bytes * len(cpus) // threads // 1000}kB:{len(cpus)}")
            ]
            moved = LIKWID_CACHED_BYTES if machine.level else LIKWID_BYTES
            iterations = max(1, round(moved * threads / machine.total_bytes))
            reader = outputs.on_cpus(outputs.likwid_bench, r"running on hwthread (\d+)", machine.cpus)
            return (path, "-t", name, "-i", str(iterations), *groups), reader
        case "bw_mem":
            return (path, "-P", str(threads), "-N", "1", str(size), name), outputs.bw_mem
        case "sc-membench":
            once = ("-s", str(size // 1024), "-o", name, "-p", str(threads), "-r", "1")
            return (path, *once, *huge), outputs.membench_bandwidth
        case "stress-ng":
            # One turn of all its methods.
            turn = ("--memrate", str(threads), "--memrate-ops", str(threads), "--memrate-bytes", str(size))
            return (path, *turn, "--metrics"), lambda output: outputs.stress_ng(output, name)
        case "mbw":
            return (path, "-q", "-t0", "-n", "2", str(size // MIB)), outputs.mbw
        case _:
            delay = ("-d", "0") if name.endswith("delay") else ()
            each = str(machine.total_bytes // threads)
            return (path, "-l", name, *delay, "-t", str(threads), "-m", each, "-n", "1", *huge), outputs.multiload


def bandwidth_peers(machine: Machine, quantity: str, found: Mapping[str, str]) -> list[Contender]:
    """Return every kernel of every peer *found* (name to path) with the traffic of *quantity*, on all CPUs."""
    wanted = []
    traffic = TRAFFIC[quantity]
    environments = {"mbw": GLIBC_STREAMING, "bw_mem": {**GLIBC_HUGE, **LMBENCH_QUICK}, "likwid-bench": GLIBC_HUGE}
    for kernel in KERNELS:
        if kernel.traffic != traffic or kernel.peer not in found:
            continue
        if kernel.needs and kernel.needs not in machine.flags:
            continue
        command, reader = _bandwidth_peer(machine, kernel, found[kernel.peer])
        # mbw has one thread: one process per CPU.
        alone = kernel.peer == "mbw"
        starts = tuple(Start(command, (cpu,)) for cpu in machine.cpus) if alone else (Start(command, machine.cpus),)
        reader = outputs.scaled(reader, traffic.bus(machine.architecture) / kernel.counted)
        streaming = GLIBC_STREAMING if kernel.name == "memcpy-libc" else {}
        wanted.append(
            Contender(
                kernel.peer,
                f"{kernel.peer} {kernel.name}",
                starts,
                {quantity: _of_text(reader)},
                environments.get(kernel.peer, streaming),
                traffic=kernel.traffic,
                threads=len(machine.cpus),
                window=WINDOWS[kernel.peer],
            )
        )
    return wanted


def _of_text(reader: outputs.Reader) -> Metric:
    return lambda output: reader(output.text)


def lines_in_flight(rate_mb_s: float, quantity: str, architecture: str, latency_ns: float) -> float | None:
    """Return how many lines one thread waits for at a time: what it fetches times the latency, by Little's law.

    ``None`` if it fetches none, as non-temporal stores.
    """
    traffic = TRAFFIC[quantity]
    fetched = traffic.fetched(architecture) / traffic.bus(architecture)
    return rate_mb_s * fetched * latency_ns / 1e3 / LINE_BYTES if fetched else None


# --- latency, gaps, lines between cores -------------------------------------------------------------------------------


def _ours(what: str, command: tuple[str, ...], metrics: Mapping[str, Metric]) -> Contender:
    return Contender(OURS, f"{OURS} {what}", (Start(command),), metrics)


def _peers(
    found: Mapping[str, str], *offers: tuple[str, str, tuple[int, ...] | None, Mapping[str, Metric]]
) -> list[Contender]:
    """Return those of *offers* whose program was found: each the command line, by peer, with CPUs and metrics."""
    made = []
    for peer, arguments, cpus, metrics in offers:
        if peer in found:
            start = Start((found[peer], *arguments.split()), cpus)
            made.append(Contender(peer, peer, (start,), metrics))
    return made


def our_latency_start(machine: Machine, program: str, size: int, placements: int, pages: str | None = None) -> Start:
    """Return the start that measures one load through *size* bytes, on the quiet CPU."""
    cpu = machine.quiet_cpu
    return Start(
        (
            *(program, "latency", "--at", f"{cpu}@{machine.node_of(cpu)}", "--size-bytes", str(size)),
            *("--pages", pages or machine.pages, "--placements", str(placements)),
        )
    )


def latency_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours, multichase over the whole buffer and Intel MLC: a random chase through 512 MiB on huge pages."""
    cpu, size = machine.quiet_cpu, LATENCY_BYTES
    huge = "-H" if machine.huge_pages else ""
    # -T: the default shuffles within 256 KiB, which prefetchers follow. -a: the mean, not the best, of its samples.
    chase = f"-s 64 -m {size} -T {size} -a -n 1 {huge}".rstrip()
    mlc = f"--idle_latency -e -r -c{cpu} -b{size // 1024}"
    command = our_latency_start(machine, program, size, 1).command
    return [
        _ours("latency", command, {"latency": our_latency}),
        *_peers(
            found,
            ("multichase", chase, (cpu,), {"latency": lambda output: outputs.multichase(output.text)}),
            ("mlc", mlc, None, {"latency": lambda output: outputs.mlc_idle(output.text)}),
        ),
    ]


def latency_time_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours and sc-membench, each measuring the latency of 512 MiB in full: how long that takes."""

    def seconds(reader: Metric) -> Metric:
        return lambda output: output.seconds if reader(output) else 0.0

    size = LATENCY_BYTES // 1024
    command = our_latency_start(machine, program, LATENCY_BYTES, 6).command
    peer: dict[str, Metric] = {"latency_time": seconds(lambda output: outputs.membench_latency(output.text))}
    huge = "-H" if machine.huge_pages else ""
    offered = _peers(found, ("sc-membench", f"-s {size} -o latency {huge}".rstrip(), None, peer))
    ours = _ours("latency, 6 placements", command, {"latency_time": seconds(our_latency)})
    # It takes a minute on a quiet machine and seven on a loaded one.
    return [ours, *(replace(contender, timeout_s=900.0) for contender in offered)]


def gap_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours, oslat and PMA jitter on one CPU: the resolution and the number of interruptions."""
    cpu = machine.quiet_cpu
    command = (program, "jitter", "--cpus", str(cpu), "--view", "gaps", "--gap-s", "1")
    oslat: dict[str, Metric] = {
        "gap_step_ns": lambda output: outputs.oslat_resolution_ns(output.text),
        "interruptions_per_s": lambda output: outputs.oslat_rate(output.text, INTERRUPTION_US),
    }
    pma: dict[str, Metric] = {
        "gap_step_ns": lambda output: outputs.pma_block_ticks(output.text) / machine.tick_hz * 1e9
    }
    return [
        _ours("jitter", command, {"gap_step_ns": our_turn, "interruptions_per_s": our_interruptions}),
        *_peers(
            found,
            ("oslat", f"-c {cpu} -C {machine.cpus[0]} -D 1", None, oslat),
            ("pma-jitter", f"-c {cpu} -i 2 -f", None, pma),
        ),
    ]


def first_level_contenders(machine: Machine, program: str, _found: Mapping[str, str]) -> list[Contender]:
    """Return ours within the first-level cache, where a load takes a whole number of core clocks."""
    command = our_latency_start(machine, program, 16 * 1024, 1, "base").command
    return [_ours("latency, 16 KiB", command, {"l1_cycles": our_cycles})]


def transfer_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours and the hand-shakes of core-to-core-latency and pingpong between the first CPU and the last.

    These are different quantities: ours loads many modified lines one after another, theirs send one line to and fro.
    """
    writer, reader = machine.cpus[0], machine.cpus[-1]
    if writer == reader:
        raise NotComparedError("needs two CPUs")
    home = str(machine.node_of(writer))
    command = (program, "c2c", "--pair", f"{writer}@{reader}", "--home", home, "--state", "hitm", "--placements", "1")
    shake = f"1000 300 --csv -c {writer},{reader}"
    both = (writer, reader)
    return [
        _ours("c2c, hitm", command, {"c2c": our_transfer}),
        *_peers(
            found,
            ("core-to-core-latency", shake, None, {"c2c": lambda output: outputs.core_to_core(output.stdout)}),
            ("pingpong", "-u -r 0", both, {"c2c": lambda output: outputs.pingpong(output.text)}),
        ),
    ]
