# SPDX-License-Identifier: Apache-2.0
"""Contenders of the comparison: the machine, and each contender's command line and output reader.

All contenders of a section use the same bytes on the same CPUs with their best settings: pinned threads, huge pages if
supported, their best kernels. No setting of the machine is changed: multichase and multiload, which would do so, use
huge pages only if the setting is already as they want it.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import outputs
from bench.outputs import NotComparedError
from calibration.context import load
from calibration.errors import CalibrationError, EnvironmentLacksError
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.c2c import C2cResult
from calibration.sutprobe.document import ProbeDocument, read_document, read_result
from calibration.sutprobe.jitter import GapView, JitterResult
from calibration.sutprobe.latency import LatencyResult

MIB = 1 << 20
OURS = "sutprobe"

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

INTERRUPTION_US = 2
"""Interruptions longer than this are counted by both sides; oslat's resolution is one microsecond."""

LATENCY_BYTES = 512 * MIB
LATENCY_PLACEMENTS = 6

LIKWID_KERNELS: Mapping[str, tuple[str, ...]] = {
    "read": ("load", "load_sse", "load_avx", "load_avx512", "load_mem", "load_neon"),
    "write_nt": ("store_mem", "store_mem_sse", "store_mem_avx", "store_mem_avx512"),
    "copy_bus": (
        *("copy", "copy_sse", "copy_avx", "copy_avx512", "copy_neon"),
        *("copy_mem", "copy_mem_sse", "copy_mem_avx", "copy_mem_avx512"),
    ),
    "triad": ("stream_avx", "stream_avx512", "stream_mem_sse", "stream_mem_avx", "stream_mem_avx_fma", "stream_neon"),
}
"""likwid's kernels by quantity. Its stream a = b * s + c counts 24 bytes per element; its triad has a fourth array."""

OUR_MIXES: Mapping[str, tuple[str, ...]] = {
    "read": ("reads",),
    "write_nt": ("write_nt",),
    "copy_bus": ("copy", "copy_nt"),
    "triad": ("triad", "stream_triad"),
}

ARRAYS: Mapping[str, int] = {"read": 1, "write_nt": 1, "copy_bus": 2, "triad": 3}

TITLES: Mapping[str, str] = {
    "read": "Read bandwidth, MB/s",
    "write_nt": "Non-temporal write, MB/s",
    "copy_bus": "Copy, bytes on the bus, MB/s",
    "triad": "Triad, program bytes, MB/s",
    "latency": "Random latency, huge pages, ns",
    "gap_step_ns": "Interruption resolution, ns",
    "interruptions_per_s": "Interruptions above 2 µs, 1/s",
    "l1_cycles": "L1 load to use, core clocks",
    "c2c": "Line from another core, ns",
}
"""The quantities that are compared."""

HIGHER_IS_BETTER = frozenset({"read", "write_nt", "copy_bus", "triad"})


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
    """One setting of one program. Several starts run concurrently and their metrics are summed."""

    peer: str
    label: str
    starts: tuple[Start, ...]
    metrics: Mapping[str, Metric]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Machine:
    """What the commands are built from."""

    cpus: tuple[int, ...]
    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    architecture: str
    flags: frozenset[str]
    huge_pages: bool
    total_bytes: int
    tick_hz: float
    described: str

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


def describe_machine(root: Path, allowed: frozenset[int], tick_hz: float) -> Machine:
    """Return this machine, as captured from *root*, restricted to the *allowed* CPUs.

    The working set of a bandwidth comparison is 768 MiB or eight times the last-level caches in use, whichever is more.
    Raises ``EnvironmentLacksError`` if memory cannot hold twice that.
    """
    context = load(root)
    cpus = tuple(cpu for cpu in context.online_cpus if cpu in allowed)
    homes = {cpu: context.node_of(cpu) or 0 for cpu in cpus}
    nodes = tuple((node, tuple(cpu for cpu in cpus if homes[cpu] == node)) for node in sorted(set(homes.values())))
    data = [cache for cache in context.caches if cache.type != "Instruction" and cache.size_bytes]
    used = [cache for cache in data if cache.shared_cpus and set(cache.shared_cpus) & set(cpus)]
    last = max((cache.level for cache in used), default=None)
    last_bytes = sum(cache.size_bytes or 0 for cache in used if cache.level == last) if last else None
    wanted = max(768 * MIB, 8 * (last_bytes or 0))
    grain = len(cpus) * 6 * 2 * MIB
    total = (wanted + grain - 1) // grain * grain
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
    return Machine(
        cpus,
        nodes,
        context.processor.architecture or "",
        frozenset(context.processor.flags),
        huge,
        total,
        tick_hz,
        described,
    )


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


def our_bandwidth(output: Output, *, program: bool) -> float:
    """Read the only point's rate in MB/s: median of placement medians, in program bytes or those the bus moves."""
    point = read_result(document_of(output), BandwidthResult).points[-1]
    if not point.placements:
        raise NotComparedError(f"sutprobe: {point.error.message if point.error else 'no placement'}")
    return median(
        median(placement.program_windows_mb_s if program else placement.windows_mb_s) for placement in point.placements
    )


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

LMBENCH_QUICK = {"ENOUGH": "500000"}
"""Microseconds that lmbench times; its own search for this value takes longer than the measurement."""


def our_bandwidth_search(machine: Machine, quantity: str, program: str) -> Start:
    """Return the start that searches our access shapes once, as a plan does once for a platform."""
    return Start(
        (
            *_our_bandwidth(machine, quantity, program, ",".join(OUR_MIXES[quantity])),
            *("--streams", "1,2,4,8", "--prefetch-bytes", "0,512,1024,2048,4096", "--keep-best", "3"),
            *("--placements", "2", "--windows", "5"),
        )
    )


def _our_bandwidth(machine: Machine, quantity: str, program: str, mixes: str) -> tuple[str, ...]:
    size = machine.total_bytes // len(machine.cpus) // ARRAYS[quantity]
    return (
        *(program, "bandwidth", "--group", machine.group, "--mix", mixes, "--buffer-bytes", str(size)),
        *("--pages", machine.pages, "--window-s", "0.1"),
    )


def our_best_setting(machine: Machine, quantity: str, program: str, searched: Output) -> Contender:
    """Return the contender with the setting that the search found best, by the bytes of *quantity*."""
    by_program = quantity != "copy_bus"
    best: tuple[float, str, int, int, str] | None = None
    for point in read_result(document_of(searched), BandwidthResult).points:
        if point.phase != "full" or not point.placements:
            continue
        windows = [
            placement.program_windows_mb_s if by_program else placement.windows_mb_s for placement in point.placements
        ]
        rate = median(median(window) for window in windows)
        if best is None or rate > best[0]:
            best = (rate, point.mix, point.streams, point.prefetch_bytes, point.width)
    if best is None:
        raise NotComparedError("sutprobe: the search measured no setting")
    _rate, mix, streams, prefetch, width = best
    command = (
        *_our_bandwidth(machine, quantity, program, mix),
        *("--streams", str(streams), "--prefetch-bytes", str(prefetch), "--width", width),
        *("--placements", "3", "--windows", "5"),
    )
    return Contender(
        OURS,
        f"{OURS} {mix}, {streams} streams, prefetch {prefetch}, {width}",
        (Start(command),),
        {quantity: lambda output: our_bandwidth(output, program=by_program)},
    )


def bandwidth_peers(machine: Machine, quantity: str, found: Mapping[str, str]) -> list[Contender]:
    """Return every setting of every peer *found* (name to path) that measures *quantity* on all CPUs."""
    threads = len(machine.cpus)
    each = machine.total_bytes // threads
    wanted: list[Contender] = []

    def add(
        peer: str,
        what: str,
        reader: outputs.Reader,
        arguments: tuple[str, ...],
        environment: Mapping[str, str] | None = None,
        *,
        copies: bool = False,
    ) -> None:
        if peer not in found:
            return
        command = (found[peer], *arguments)
        starts = tuple(Start(command, (cpu,)) for cpu in machine.cpus) if copies else (Start(command, machine.cpus),)
        metrics: dict[str, Metric] = {quantity: lambda output: reader(output.text)}
        wanted.append(Contender(peer, f"{peer} {what}".strip(), starts, metrics, environment or {}))

    # A regular store to a line that was not read reads it first, by the rule our own bytes are counted with.
    read_first = 0.0 if machine.architecture == "aarch64" else 1.0
    for kernel in LIKWID_KERNELS[quantity]:
        if _runs_here(kernel, machine):
            groups = [
                argument
                for node, cpus in machine.nodes
                for argument in ("-w", f"M{node}:{machine.total_bytes * len(cpus) // threads // 1000}kB:{len(cpus)}")
            ]
            # A copy counts 16 bytes per element; the bus moves 8 more where its stores are regular.
            regular = quantity == "copy_bus" and "_mem" not in kernel
            reader = outputs.scaled(outputs.likwid_bench, 1.0 + read_first / 2.0 if regular else 1.0)
            add("likwid-bench", kernel, reader, ("-t", kernel, "-s", "1", *groups), GLIBC_HUGE)
    lmbench = {**GLIBC_HUGE, **LMBENCH_QUICK}
    huge = ("-H",) if machine.huge_pages else ()
    if quantity == "read":
        for kernel in ("rd", "frd"):
            add("bw_mem", kernel, outputs.bw_mem, ("-P", str(threads), "-N", "1", str(each), kernel), lmbench)
        size = str(each // 1024)
        add("sc-membench", "read", outputs.membench_bandwidth, ("-s", size, "-o", "read", "-p", str(threads), *huge))
        arguments = ("-l", "stream-sum", "-t", str(threads), "-m", str(each), "-n", "3", *huge)
        add("multiload", "stream-sum", outputs.multiload, arguments)
        # It goes through two dozen kernels in turn, and prints only those it came to the end of.
        arguments = ("--memrate", str(threads), "--memrate-bytes", str(each), "-t", "8", "--metrics")
        add("stress-ng", "memrate", outputs.stress_ng_read, arguments)
        add("mlc", "peak injection", outputs.mlc_reads, ("--peak_injection_bandwidth",))
    elif quantity == "copy_bus":
        # Counted as n; loops compiled with regular stores move 2 n, and n more where lines are read first.
        reader = outputs.scaled(outputs.bw_mem, 2.0 + read_first)
        for kernel in ("cp", "fcp"):
            add("bw_mem", kernel, reader, ("-P", str(threads), "-N", "1", str(each // 2), kernel), lmbench)
        reader = outputs.scaled(outputs.membench_bandwidth, 2.0 + read_first)
        size = str(each // 2 // 1024)
        add("sc-membench", "copy", reader, ("-s", size, "-o", "copy", "-p", str(threads), *huge))
        if machine.architecture == "x86_64":
            # memcpy with non-temporal stores moves 2 n. mbw counts n, and has one thread: one process per CPU, summed.
            reader = outputs.scaled(outputs.mbw, 2.0)
            add("mbw", "memcpy", reader, ("-q", "-t0", "-n", "5", str(each // 2 // MIB)), GLIBC_STREAMING, copies=True)
            # multiload counts 2 n.
            arguments = ("-l", "memcpy-libc", "-t", str(threads), "-m", str(each), "-n", "3", *huge)
            add("multiload", "memcpy-libc", outputs.multiload, arguments, GLIBC_STREAMING)
    elif quantity == "triad":
        for kernel in ("stream-triad", "stream-triad-nontemporal-injection-delay"):
            arguments = ("-l", kernel, "-d", "0", "-t", str(threads), "-m", str(each), "-n", "3", *huge)
            add("multiload", kernel, outputs.multiload, arguments)
    return wanted


def _runs_here(kernel: str, machine: Machine) -> bool:
    """Tell whether the CPU has what a likwid kernel is made of: it would end with an illegal instruction otherwise."""
    arm = machine.architecture == "aarch64"
    if "neon" in kernel:
        return arm
    if "avx512" in kernel:
        return "avx512f" in machine.flags
    if "fma" in kernel:
        return "fma" in machine.flags
    if "avx" in kernel or "sse" in kernel or "_mem" in kernel:
        return not arm and ("avx" in machine.flags or "avx" not in kernel)
    return True


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
            made.append(Contender(peer, f"{peer} {arguments}", (start,), metrics))
    return made


def _our_latency(machine: Machine, program: str, size: int, pages: str) -> tuple[str, ...]:
    cpu = machine.quiet_cpu
    return (
        *(program, "latency", "--at", f"{cpu}@{machine.node_of(cpu)}", "--size-bytes", str(size)),
        *("--pages", pages, "--placements", str(LATENCY_PLACEMENTS)),
    )


def latency_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours, multichase over the whole buffer and Intel MLC: a random chase through 512 MiB on huge pages."""
    cpu, size = machine.quiet_cpu, LATENCY_BYTES
    huge = "-H" if machine.huge_pages else ""
    # -T: the default shuffles within 256 KiB, which prefetchers follow. -a: the mean, not the best, of its samples.
    chase = f"-s 64 -m {size} -T {size} -a -n 5 {huge}".rstrip()
    mlc = f"--idle_latency -e -r -c{cpu} -b{size // 1024}"
    return [
        _ours("latency", _our_latency(machine, program, size, machine.pages), {"latency": our_latency}),
        *_peers(
            found,
            ("multichase", chase, (cpu,), {"latency": lambda output: outputs.multichase(output.text)}),
            ("mlc", mlc, None, {"latency": lambda output: outputs.mlc_idle(output.text)}),
        ),
    ]


def gap_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours, oslat and PMA jitter on one CPU: the resolution and the number of interruptions."""
    cpu = machine.quiet_cpu
    command = (program, "jitter", "--cpus", str(cpu), "--view", "gaps", "--gap-s", "3")
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
            ("oslat", f"-c {cpu} -C {machine.cpus[0]} -D 3", None, oslat),
            ("pma-jitter", f"-c {cpu} -i 2 -f", None, pma),
        ),
    ]


def first_level_contenders(machine: Machine, program: str, _found: Mapping[str, str]) -> list[Contender]:
    """Return ours within the first-level cache, where a load takes a whole number of core clocks."""
    return [_ours("latency, 16 KiB", _our_latency(machine, program, 16 * 1024, "base"), {"l1_cycles": our_cycles})]


def transfer_contenders(machine: Machine, program: str, found: Mapping[str, str]) -> list[Contender]:
    """Return ours and the hand-shakes of core-to-core-latency and pingpong between the first CPU and the last.

    These are different quantities: ours loads many modified lines one after another, theirs send one line to and fro.
    """
    writer, reader = machine.cpus[0], machine.cpus[-1]
    if writer == reader:
        raise NotComparedError("needs two CPUs")
    home = str(machine.node_of(writer))
    command = (program, "c2c", "--pair", f"{writer}@{reader}", "--home", home, "--state", "hitm")
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


def allowed_cpus() -> frozenset[int]:
    """Return the CPUs this process may use."""
    return frozenset(os.sched_getaffinity(0))
