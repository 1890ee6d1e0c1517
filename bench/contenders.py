# SPDX-License-Identifier: Apache-2.0
"""Contenders of the comparison: the machine, and each contender's command line and how its output is read.

All contenders of a section use the same bytes on the same CPUs with their best settings: pinned threads, huge pages if
supported, their best kernels. No setting of the machine is changed: multichase, which would do so, uses huge pages only
if the setting is already as it wants it.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import outputs
from bench.outputs import NotComparedError, Output, document_of
from calibration.base import units
from calibration.base.percentiles import percentile
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.measurements.bandwidth_ladder import level_sizes
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import Part, group_text
from calibration.measurements.traffic_shape import ShapeSettings, extra_options, widths
from calibration.measurements.wakeup import WakeupResult
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.c2c import C2cResult
from calibration.sutprobe.document import read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.latency import LatencyResult

MIB: Final = 1 << 20
OURS: Final = "sutprobe"
PEERS: Final = (
    *("likwid-bench", "bw_mem", "sc-membench", "mbw", "multichase", "mlc", "oslat"),
    *("core-to-core-latency", "pingpong", "cyclictest", "rtla"),
)  # as they are looked for on PATH
TITLES: Final = {
    "latency": "Random latency, huge pages, ns",
    "interruptions": "Interruptions above 2 µs, 1/s",
    "interruptions_20": "Interruptions above 20 µs, 1/s",
    "interruption_max": "Longest interruption, µs",
    "c2c": "Line from another core, ns",
    "wakeup_min": "Wake-up, least, µs",
    "wakeup": "Wake-up, median, µs",
    "wakeup_99": "Wake-up, 99 %, µs",
    "wakeup_20": "Wake-ups 20 µs late or later, %",
    "wakeup_max": "Wake-up, latest, µs",
}  # of quantities other than bandwidths
LEVELS: Final = {"L1": 1, "L2": 2, "L3": 3}
GRAIN: Final = 6 * 2 * MIB  # whole huge pages for one, two or three arrays of a thread
LATENCY_BYTES: Final = 512 * MIB
PAGES: Final = {True: "thp", False: "base"}
INTERRUPTION_US: Final = 2  # oslat's resolution is one microsecond
LIMIT_US: Final = 20  # of Red Hat's latency tests, with oslat and cyclictest
LOAD: Final = "while kill -0 $PPID && /bin/true; do :; done"
"""A shell that starts processes, as a kernel build does, until who started it ends."""
PREFETCH_BYTES: Final = "0,512,1024,2048,4096"  # finer than a plan's search: the peers' kernels are tuned by hand

Reader = Callable[[Output], float]


@dataclass(frozen=True, eq=False)
class Contender:
    """One setting of one program, and how its values are read, by quantity."""

    peer: str
    label: str
    command: tuple[str, ...]
    values: Mapping[str, Reader]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What the commands are built from: the CPUs in use, and the cache that all bytes lie in, 0 for memory."""

    context: Context
    cpus: tuple[int, ...]
    level: int = 0

    @property
    def parts(self) -> list[Part]:
        """The CPUs in use by their nodes."""
        homes = {cpu: self.context.node_of(cpu) or 0 for cpu in self.cpus}
        nodes = sorted(set(homes.values()))
        return [Part(tuple(cpu for cpu in self.cpus if homes[cpu] == node), node) for node in nodes]

    @property
    def huge(self) -> bool:
        """Whether programs that ask for huge pages get them."""
        settings, asked = self.context.memory.transparent_hugepages, {"always", "madvise"}
        return settings.enabled in asked and settings.defrag in {*asked, "defer+madvise"}

    @property
    def levels(self) -> dict[int, int]:
        """Bytes per thread in the middle of each cache whose share for a thread is above that of the one below."""
        return level_sizes(Sut(self.context), self.parts, ("reads",))

    @property
    def each_bytes(self) -> int:
        """The bytes of each thread: the middle of a cache, or its share of memory.

        That is 768 MiB over all threads, 384 MiB for one, or eight times the last-level caches in use, if that is more.
        """
        if self.level:
            return self.levels[self.level]
        data = [cache for cache in self.context.caches if cache.type != "Instruction" and cache.size_bytes]
        used = [cache for cache in data if cache.shared_cpus and set(cache.shared_cpus) & set(self.cpus)]
        last = max((cache.level for cache in used), default=None)
        cached = 8 * sum(cache.size_bytes or 0 for cache in used if cache.level == last)
        total = max((384 if len(self.cpus) == 1 else 768) * MIB, cached)
        return -(-total // (len(self.cpus) * GRAIN)) * GRAIN

    @property
    def search(self) -> dict[str, str]:
        """Options of ``sutprobe bandwidth`` with what our shapes are searched over, as in a plan: streams in caches."""
        shapes = ShapeSettings()
        streams = ",".join(map(str, shapes.streams))
        if self.level:
            return {"streams": streams, "prefetch-bytes": "0"}
        extra = {option: str(tried) for option, tried in extra_options(self.context, shapes).items()}
        return {"streams": streams, "prefetch-bytes": PREFETCH_BYTES, **extra}

    def of_section(self, section: str) -> "Machine":
        """Return this machine with the CPUs and the cache of *section*; likwid-bench takes no single CPU but the first.

        Raises ``NotComparedError`` if it has no such cache.
        """
        name, _, threads = section.partition("-")
        found = replace(self, cpus=self.cpus[:1]) if threads == "one" else self
        if name not in LEVELS:
            return found
        if LEVELS[name] not in found.levels:
            raise NotComparedError(f"no size in the middle of {name}")
        return replace(found, level=LEVELS[name])

    def title(self, quantity: str) -> str:
        """Return what a table calls *quantity* here."""
        title = TRAFFIC[quantity].title if quantity in TRAFFIC else TITLES[quantity]
        return title + (f", L{self.level}, {units.size(self.each_bytes)}" if self.level else "")

    def __str__(self) -> str:
        """Return processor, number of CPUs and kernel."""
        processor, guest = self.context.processor, "virtual machine, " if self.context.virtualization.guest else ""
        name = processor.models[0].name if processor.models else processor.architecture
        return f"{name}, {len(self.cpus)} CPUs, {guest}Linux {self.context.capture.kernel_release}"


def this_machine() -> Machine:
    """Return this machine and the CPUs that may be used."""
    context, allowed = load(Path("/")), os.sched_getaffinity(0)
    return Machine(context, tuple(cpu for cpu in context.online_cpus if cpu in allowed))


# --- what sutprobe prints ---------------------------------------------------------------------------------------------


def our_median(output: Output, result: type[Any], field: str = "windows_ns") -> float:
    """Read the last point or pair: the median of its placements' medians."""
    found = read_result(document_of(output), result)
    last = (found.pairs if result is C2cResult else found.points)[-1]
    if not last.placements:
        raise NotComparedError(f"sutprobe: {last.error.message if last.error else 'no placement'}")
    return float(median(median(getattr(placement, field)) for placement in last.placements))


def our_interruptions(output: Output, above_us: int) -> float:
    """Read how often per second a step of the gap loop was at least *above_us* long."""
    gaps = read_result(document_of(output), JitterResult).cpus[0].gaps
    rates = {round(rate.threshold_ns): rate.rate for rate in gaps.rates_per_s} if gaps else {}
    if 1000 * above_us not in rates:
        raise NotComparedError(f"sutprobe: no rate above {above_us} us among {sorted(rates)}")
    return rates[1000 * above_us]


def our_longest_us(output: Output) -> float:
    """Read the longest step of the gap loop."""
    gaps = read_result(document_of(output), JitterResult).cpus[0].gaps
    if gaps is None:
        raise NotComparedError("sutprobe: no gaps")
    return gaps.max_ns / 1e3


def our_late_us(output: Output, share: float) -> float:
    """Read how late that *share* of the wake-ups of the only CPU was at most; 0: the earliest, 1: the latest."""
    (cpu,) = read_result(document_of(output), WakeupResult).conditions[0].cpus
    ends: dict[float, float | None] = {0.0: cpu.min_ns, 1.0: cpu.late_ns.longest}
    middle = percentile(cpu.late_ns, 100 * share) if share not in ends else None
    found = ends.get(share) if middle is None else middle.value
    if found is None:
        raise NotComparedError(f"sutprobe: {cpu.wakes} wake-ups have no {100 * share:g} %")
    return found / 1e3


def our_late_percent(output: Output, least_us: int) -> float:
    """Read how many of the wake-ups of the only CPU were at least *least_us* late, in per cent."""
    result = read_result(document_of(output), WakeupResult)
    (cpu,) = result.conditions[0].cpus
    if not cpu.wakes:
        raise NotComparedError("sutprobe: no wake-ups")
    return 100 * cpu.above[result.thresholds_ns.index(1000 * least_us)] / cpu.wakes


OUR_BANDWIDTH: Final = partial(our_median, result=BandwidthResult, field="windows_mb_s")
OUR_LATENCY: Final = partial(our_median, result=LatencyResult)
OUR_TRANSFER: Final = partial(our_median, result=C2cResult)

# --- bandwidth --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What a bandwidth does per element of 8 bytes, with which stores, and the mix of ``sutprobe bandwidth`` with it.

    Only equal traffic is compared.
    """

    title: str
    mix: str
    reads: int
    writes: int
    streaming: bool = False

    def bus(self, architecture: str | None) -> int:
        """Bytes per element that memory moves: a regular store reads its line first, except on aarch64."""
        allocates = not self.streaming and architecture != "aarch64"
        return 8 * (self.reads + self.writes * (1 + allocates))


TRAFFIC: Final[Mapping[str, Traffic]] = {
    "read": Traffic("Read", "reads", 1, 0),
    "write": Traffic("Write", "write", 0, 1),
    "write_nt": Traffic("Write, non-temporal", "write_nt", 0, 1, streaming=True),
    "copy": Traffic("Copy", "copy", 1, 1),
    "copy_nt": Traffic("Copy, non-temporal", "copy_nt", 1, 1, streaming=True),
    "triad": Traffic("Triad", "triad", 2, 1),
    "triad_nt": Traffic("Triad, non-temporal", "stream_triad", 2, 1, streaming=True),
}
KERNELS: Final = {
    "likwid-bench": "read:load_* write:store_* write_nt:store_mem_* copy:copy_* copy_nt:copy_mem_* "
    "triad:stream_* triad_nt:stream_mem_*",
    "bw_mem": "read:rd read:frd write:wr write:fwr copy:cp copy:fcp",
    "sc-membench": "read:read write:write copy:copy",
    "mbw": "copy_nt:memcpy",
}
"""The kernels of each peer by the quantity whose traffic they have; ``*`` stands for vectors. Those of memcpy are
forced to non-temporal stores; likwid-bench has these only in kernels with "mem" in the name. They are compared on
x86_64 only."""

VECTORS: Final = {"sse": "sse2", "avx": "avx", "avx512": "avx512f", "neon": "asimd"}  # with the CPU flag of each
COMMON_WINDOW: Final = {"likwid-bench", "sc-membench"}
"""Peers whose rate of several threads is of one window; others add rates that each thread had in a time of its own,
which can exceed what memory moves: they are compared with one thread only."""

HUGE: Final = "glibc.malloc.hugetlb=1"  # malloc then requests huge pages
STREAMING: Final = f"{HUGE}:glibc.cpu.x86_non_temporal_threshold=65536"  # memcpy's bus traffic is then known: 2 n
ENVIRONMENTS: Final = {
    "likwid-bench": {"GLIBC_TUNABLES": HUGE},
    "bw_mem": {"GLIBC_TUNABLES": HUGE, "ENOUGH": "10000"},  # µs; its search for more takes longer than measuring
    "mbw": {"GLIBC_TUNABLES": STREAMING},
}
LIKWID_BYTES: Final = 2e9  # of each thread, as it counts them: some 100 ms; by time, it runs a second or more
LIKWID_CACHED_BYTES: Final = 1e10


def bandwidth_peers(machine: Machine, quantity: str, found: Mapping[str, str]) -> Iterator[Contender]:
    """Yield every kernel of every peer *found* (name to path) with the traffic of *quantity*, on all CPUs."""
    processor, traffic = machine.context.processor, TRAFFIC[quantity]
    threads, each, huge = len(machine.cpus), machine.each_bytes, "-H" if machine.huge else ""
    array = each // (traffic.reads + traffic.writes)
    turns = max(1, round((LIKWID_CACHED_BYTES if machine.level else LIKWID_BYTES) / each))
    groups = (f"-w M{part.node}:{each * len(part.cpus) // 1000}kB:{len(part.cpus)}" for part in machine.parts)
    commands = {
        "likwid-bench": f"-t KERNEL -i {turns} {' '.join(groups)}",
        "bw_mem": f"-P {threads} -N 1 {array} KERNEL",
        "sc-membench": f"-s {array // 1024} -o KERNEL -p {threads} -r 1 {huge}",
        "mbw": f"-q -t0 -n 2 {array // MIB}",
    }
    vectors = [name for name, flag in VECTORS.items() if flag in processor.flags]
    for peer, kernels in KERNELS.items():
        if peer not in found or (threads > 1 and peer not in COMMON_WINDOW):
            continue
        if traffic.streaming and processor.architecture != "x86_64":
            continue
        # likwid-bench counts the bytes of all loads and stores; for others a copy of n bytes is n.
        counted = 8 * (traffic.reads + traffic.writes) if peer == "likwid-bench" else 8
        rate = outputs.RATES[peer]
        rate = replace(rate, factor=rate.factor * traffic.bus(processor.architecture) / counted)
        read = partial(_on_cpus, read=rate, cpus=machine.cpus) if peer == "likwid-bench" else rate
        for form in (name.partition(":")[2] for name in kernels.split() if name.startswith(f"{quantity}:")):
            for kernel in [form.replace("*", vector) for vector in vectors] if "*" in form else [form]:
                command = bound((found[peer], *commands[peer].replace("KERNEL", kernel).split()), machine.cpus)
                yield Contender(peer, f"{peer} {kernel}", command, {quantity: read}, ENVIRONMENTS.get(peer, {}))


def bound(command: Sequence[str], cpus: Sequence[int]) -> tuple[str, ...]:
    """Return *command* restricted to *cpus*, unless there are none."""
    return ("taskset", "-c", ",".join(map(str, cpus)), *command) if cpus else tuple(command)


def _on_cpus(output: Output, read: Reader, cpus: Sequence[int]) -> float:
    """Read the output of likwid-bench. Raises ``NotComparedError`` if its threads did not run on exactly these CPUs."""
    ran = sorted(int(cpu) for cpu in re.findall(r"^Group:.*running on hwthread (\d+)", output.text, re.MULTILINE))
    if ran != sorted(cpus):
        raise NotComparedError(f"ran on CPUs {ran}, wanted {sorted(cpus)}")
    return read(output)


def _our_bandwidth(machine: Machine, quantity: str, program: str, shape: Mapping[str, str]) -> tuple[str, ...]:
    traffic, group = TRAFFIC[quantity], group_text(machine.parts)
    size = machine.each_bytes // (traffic.reads + traffic.writes)
    pages = f"--pages {PAGES[machine.huge]} --window-s 0.02 --mix {traffic.mix}"
    words = f"bandwidth --group {group} --buffer-bytes {size} {pages}"
    return (program, *words.split(), *(part for option, value in shape.items() for part in (f"--{option}", value)))


KEPT: Final = 4  # settings of each search that are measured beside the peers


def _looked_mb_s(look: BandwidthPoint) -> float:
    return max(median(placement.windows_mb_s) for placement in look.placements or ())


def our_searches(machine: Machine, quantity: str, program: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands that search our access shapes once, as a plan does once for a platform: one per width."""
    for width in widths(machine.context, ShapeSettings()):
        shape = {**machine.search, "width": width, "keep-best": str(KEPT)}
        yield _our_bandwidth(machine, quantity, program, shape)


def our_best(machine: Machine, quantity: str, program: str, searched: Sequence[Output]) -> Iterator[Contender]:
    """Yield a contender for each of the settings that the searches found best."""
    for output in searched:
        looks = [look for look in read_result(document_of(output), BandwidthResult).points if look.placements]
        for point in sorted(looks, key=_looked_mb_s)[-KEPT:]:
            shape = {option: str(getattr(point, option.replace("-", "_"))) for option in (*machine.search, "width")}
            if shape.get("hint") == "none":
                del shape["hint"]
            label = f"{OURS} {', '.join(f'{option} {value}' for option, value in shape.items())}"
            command = _our_bandwidth(machine, quantity, program, {**shape, "placements": "1", "windows": "3"})
            yield Contender(OURS, label, command, {quantity: OUR_BANDWIDTH})


# --- latency, interruptions, lines between cores, wake-ups ------------------------------------------------------------


def load_of(machine: Machine, section: str) -> tuple[str, ...]:
    """Return what runs on the first CPU during *section*, two jobs as of a build; nothing if no other is measured."""
    if section not in ("interruptions", "wakeup") or len(machine.cpus) == 1:
        return ()
    return bound(("sh", "-c", f"({LOAD}) & {LOAD}"), machine.cpus[:1])


def others(
    machine: Machine, program: str, found: Mapping[str, str], *, held: bool, unthrottled: bool
) -> dict[str, list[Contender]]:
    """Return who takes part in the other sections, by section, ours first; *found* has the paths of peers.

    The chases are random over all of 512 MiB: multichase's default (without ``-T``) shuffles within 256 KiB, which
    prefetchers follow, and prints the best of its samples (without ``-a``). Lines between cores are different
    quantities: ours loads many modified lines one after another, the peers send one to and fro. Wake-ups and
    interruptions are under the conditions of Red Hat's tests of a real-time system: if *held*, CPUs are kept out of
    idle states during wake-ups, as the peers do; if *unthrottled*, who looks for interruptions is a real-time thread.
    """
    first, cpu = machine.cpus[0], machine.cpus[-1]  # the first is where a machine's other work tends to be
    nodes = {cpu: part.node for part in machine.parts for cpu in part.cpus}
    size, huge = LATENCY_BYTES, "-H" if machine.huge else ""

    def ours(words: str, **values: Reader) -> Contender:
        return Contender(OURS, f"{OURS} {words.split(maxsplit=1)[0]}", (program, *words.split()), values)

    def peer(name: str, words: str, cpus: tuple[int, ...] = (), /, **values: Reader) -> list[Contender]:
        command = bound((found.get(name, ""), *words.split()), cpus)
        # The licence of Intel MLC restricts publishing.
        label = f"{name} (not for publication)" if name == "mlc" else name
        return [Contender(name, label, command, values)] if name in found else []

    def late(
        late_us: Callable[..., float], late_percent: Callable[..., float], longest: Reader, **form: Any
    ) -> dict[str, Reader]:
        return {
            "wakeup_min": partial(late_us, share=0.0, **form),
            "wakeup": partial(late_us, share=0.5, **form),
            "wakeup_99": partial(late_us, share=0.99, **form),
            "wakeup_20": partial(late_percent, least_us=LIMIT_US, **form),
            "wakeup_max": longest,
        }

    def gaps(rate: Callable[..., float], longest: Reader) -> dict[str, Reader]:
        return {
            "interruptions": partial(rate, above_us=INTERRUPTION_US),
            "interruptions_20": partial(rate, above_us=LIMIT_US),
            "interruption_max": longest,
        }

    theirs = outputs.late_us, outputs.late_percent
    no_idle = "--idle-latency-us 0" if held else ""
    chase = f"latency --at {cpu}@{nodes[cpu]} --size-bytes {size} --pages {PAGES[machine.huge]} --placements 1"
    transfer = f"c2c --pair {first}@{cpu} --home {nodes[first]} --state hitm --placements 1"
    gap = f"jitter --cpus {cpu} --view gaps --gap-s 1 {'--fifo 1' if unthrottled else ''}"
    oslat = f"-c {cpu} -C {first} -D 1 -w memmove -m 4K {'-f 1' if unthrottled else ''}"
    wakeup = f"wakeup --cpus {cpu} --period-us 200 --seconds 1 --fifo 95 {no_idle}"
    cyclictest = f"-m -p95 -i 200 -D 1 -h 10000 -q -a {cpu} -t 1 --mainaffinity {first}"
    timerlat = f"timerlat hist -c {cpu} -P f:95 -p 200 -d 1s -E 10000 --dma-latency 0"
    return {
        "latency": [
            ours(chase, latency=OUR_LATENCY),
            *peer("multichase", f"-s 64 -m {size} -T {size} -a -n 1 {huge}", (cpu,), latency=outputs.MULTICHASE),
            *peer("mlc", f"--idle_latency -e -r -c{cpu} -b{size // 1024}", latency=outputs.MLC_IDLE),
        ],
        "interruptions": [
            ours(gap, **gaps(our_interruptions, our_longest_us)),
            *peer("oslat", oslat, **gaps(outputs.oslat_rate, outputs.OSLAT_LONGEST)),
        ],
        "c2c": [
            ours(transfer, c2c=OUR_TRANSFER),
            *peer("core-to-core-latency", f"1000 300 --csv -c {first},{cpu}", c2c=outputs.CORE_TO_CORE),
            *peer("pingpong", "-u -r 0", (first, cpu), c2c=outputs.PINGPONG),
        ],
        "wakeup": [
            ours(wakeup, **late(our_late_us, our_late_percent, partial(our_late_us, share=1.0))),
            *peer("cyclictest", cyclictest, **late(*theirs, outputs.CYCLICTEST_LONGEST, form=outputs.CYCLICTEST)),
            *peer("rtla", timerlat, **late(*theirs, outputs.TIMERLAT_LONGEST, form=outputs.TIMERLAT)),
        ],
    }
