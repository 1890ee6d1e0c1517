# SPDX-License-Identifier: Apache-2.0
"""Common parts of the bandwidth kinds: settings, groups of threads, cost, and parsing of ``sutprobe bandwidth``."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import BeforeValidator, PositiveFloat, PositiveInt

from calibration.base.cpulists import format_cpulist, parse_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.measurements.base import Declaration, HalfWidth, RepeatedSettings, Settings, Step, Values
from calibration.measurements.platform import Shape, ShapeReference
from calibration.measurements.sut import (
    ASSUMED_LLC_BYTES,
    HUGE_BYTES,
    LARGEST_TRAFFIC_BYTES,
    LLC_MULTIPLE,
    Sut,
    capped_bytes,
    whole_pages,
)

S = TypeVar("S", bound=Settings)
V = TypeVar("V", bound=Values)

TRIAD_NT = "triad_nt"
"""What ``stream_triad`` is beside ``triad``: a triad whose stores go past the caches. Accepted wherever a mix is given;
values have the name of the published pages."""

Mix = Annotated[
    Literal[
        "reads",
        "3:1",
        "2:1",
        "1:1",
        "stream_triad",
        "write",
        "write_nt",
        "copy",
        "copy_nt",
        "triad",
        "line_reads",
        "random_reads",
    ],
    BeforeValidator(lambda name: "stream_triad" if name == TRIAD_NT else name),
]
"""The mixes of sutprobe."""

MIXES: tuple[Mix, ...] = ("reads", "3:1", "2:1", "1:1", "stream_triad")
"""The mixes of the published pages, in their order."""

BUFFERS: dict[str, int] = dict.fromkeys(get_args(get_args(Mix)[0]), 1) | {
    **dict.fromkeys(("2:1", "copy", "copy_nt"), 2),
    **dict.fromkeys(("3:1", "stream_triad", "triad"), 3),
}
"""Buffers per thread of each mix."""

WRITTEN = frozenset(BUFFERS) - {"reads", "line_reads", "random_reads"}
"""The mixes that write."""

ANY_MIX = "|".join(BUFFERS)
"""The mixes' names, as the choice of a label."""


def buffers_of(mix: str) -> int:
    """Return the number of buffers per thread of *mix*. Raises ``InputError`` for an unknown mix."""
    try:
        return BUFFERS[mix]
    except KeyError:
        raise InputError(f"unknown mix {mix!r}; known: {', '.join(BUFFERS)}") from None


THREAD_FILL_BYTES_PER_S = 3.0e9
"""Rate at which a thread maps and fills memory, for the expected duration: measured with two threads of a virtual
machine, where clearing a page costs most."""

NODE_FILL_BYTES_PER_S = 16.0e9
"""Rate at which all threads together fill a node: a fifth of a small server's bandwidth, because every byte is
written twice and read once. For the expected duration only."""

THREAD_PROVE_BYTES_PER_S = 5.0e9
"""Rate at which a thread verifies and restores what a run wrote, and that of a node; for the expected duration only."""

NODE_PROVE_BYTES_PER_S = 30.0e9
PLACEMENT_S = 0.01
"""Start and end of a placement's threads, and clock settling, for the expected duration only."""

RUN_S = 0.019
"""Cost of a run besides its windows: 17 ms to settle and end, counters before and after, and wake-up. For the expected
duration only."""

RUN_THREAD_S = 20e-6
"""Extra cost per thread."""

SCAN_S = 0.059
"""Duration of a search per setting: ten milliseconds to settle, three windows of 15, and overhead. For the expected
duration only."""


MEMORY_ONLY_SUFFIX = "-memory-only"
"""Ends the step of a kind on memory-only nodes."""

PLAIN = Shape(streams=1, prefetch_bytes=0)
"""One forward stream without software prefetch: what most tools measure, shown beside the tuned shape."""

DEFAULT_SHAPE = Shape(streams=4, prefetch_bytes=0)
"""The best shape, or within noise of it, on every machine tried, for reads and for mixes.

Four streams read 10 to 25 % more than one. Adding software prefetch changed nothing or cost up to a tenth: hardware
prefetchers follow four streams. Used until the platform's own search has found a better one.
"""


class TrafficSettings(RepeatedSettings):
    """How often traffic is repeated in a round: *placements* fresh allocations with *windows* of *window_s* each."""

    placements: PositiveInt = 1
    windows: PositiveInt = 5
    window_s: PositiveFloat = 0.03
    target_half_width: HalfWidth = 0.01
    width: Literal["auto", "sse2", "avx2", "avx512", "neon", "sve", "generic"] = "auto"

    def options(self) -> dict[str, object]:
        """Return the options of sutprobe for these settings."""
        return {
            "width": self.width,
            "placements": self.placements,
            "windows": self.windows,
            "window-s": self.window_s,
        }

    def cost_s(self, runs: Sequence["Run"], repeats: int = 1) -> float:
        """Return the expected duration in s of a step with *runs*, each repeated in every placement."""
        points_s = sum(run_s(run) + self.windows * self.window_s for run in runs)
        return self.placements * (PLACEMENT_S + fill_s(runs) + repeats * points_s)


class CountedTrafficSettings(TrafficSettings):
    """The same with hardware *counters*, if available."""

    counters: bool = True


class Run(NamedTuple):
    """One point of a step: threads on ``parts``, with buffers of ``size_bytes`` for ``mix``, or of a size per part."""

    parts: Sequence["Part"]
    mix: Mix
    size_bytes: int | Sequence[int]

    @property
    def threads(self) -> dict[int, int]:
        """Number of threads per node."""
        return threads_by_node(self.parts)


def buffers_by_node(runs: Sequence[Run]) -> dict[int, list[int]]:
    """Return the bytes of each buffer shared by *runs*, by node.

    The nth thread of a run on a node, or spread alike, uses the nth such buffer, which is as large as any run needs.
    """
    buffers: dict[Memory, list[int]] = {}
    for run in runs:
        begun: Counter[Memory] = Counter()
        for part, size_bytes in zip(run.parts, by_part(run.parts, run.size_bytes), strict=True):
            sizes = buffers.setdefault(part.memory, [])
            own = slice(begun[part.memory], begun[part.memory] + len(part.cpus))
            sizes += [0] * (own.stop - len(sizes))
            sizes[own] = [max(size, size_bytes * BUFFERS[run.mix]) for size in sizes[own]]
            begun[part.memory] = own.stop
    found: dict[int, list[int]] = {}
    for memory, sizes in buffers.items():
        for node in memory.shares:
            found.setdefault(node, []).extend(memory.most_bytes(node, size) for size in sizes)
    return found


def memory_bytes(runs: Sequence[Run]) -> dict[int, int]:
    """Return the memory that *runs* take of each node."""
    return {node: sum(map(mapped_bytes, sizes)) for node, sizes in buffers_by_node(runs).items()}


def mapped_bytes(size_bytes: int) -> int:
    """Return what a thread maps for arrays of *size_bytes* together, which are a little apart."""
    return whole_pages(size_bytes + 1)


def fill_s(runs: Sequence[Run]) -> float:
    """Return the time in s to fill the memory shared by *runs*: all nodes at the same time."""
    return max(
        max(max(sizes) / THREAD_FILL_BYTES_PER_S, sum(sizes) / NODE_FILL_BYTES_PER_S)
        for sizes in buffers_by_node(runs).values()
    )


def run_s(run: Run) -> float:
    """Return the cost in s of *run* besides its windows, including verification of what it wrote."""
    threads = run.threads
    proof_s = max(by_part(run.parts, run.size_bytes)) * max(
        1 / THREAD_PROVE_BYTES_PER_S, max(threads.values()) / NODE_PROVE_BYTES_PER_S
    )
    return RUN_S + RUN_THREAD_S * sum(threads.values()) + (proof_s if run.mix in WRITTEN else 0)


def scan_s(runs: Sequence[Run], tries: Iterable[int]) -> float:
    """Return the duration in s of a search over so many settings of each of *runs*."""
    looks_s = (count * (SCAN_S - RUN_S + run_s(run)) for count, run in zip(tries, runs, strict=True))
    return PLACEMENT_S + fill_s(runs) + sum(looks_s)


def shape_options(
    settings: TrafficSettings, shape: Shape | None, kept: ShapeReference | None, mixes: Sequence[Mix]
) -> dict[str, object]:
    """Return sutprobe's options for the access pattern of *mixes*.

    *shape* is the profile's, for all of them. Without it, each mix has the shape *kept* for it on the platform,
    else the one kept for all mixes; without any, the default. A command has one vector width: that of its only mix, or
    the one for all.
    """
    width: str = settings.width
    own: list[str] = []
    if shape is None:
        shape = DEFAULT_SHAPE
        if kept is not None:
            shape = chosen = kept.shape_for(mixes[0]) if len(mixes) == 1 else kept.all_mixes
            width = chosen.width if width == "auto" else width
            own = shape_rows({mix: [other] for mix in mixes if (other := kept.shape_for(mix)).text != shape.text})
    words: dict[str, object] = {"streams": shape.streams, "prefetch-bytes": shape.prefetch_bytes}
    if shape.prefetch_bytes and shape.hint != "t0":
        words["hint"] = shape.hint
    if shape.visit_lines:
        words["visit-lines"] = shape.visit_lines
    if shape.instruction != "vector":
        words["instruction"] = shape.instruction
    return {**words, **({"shape": own} if own else {}), "width": width}


def shape_rows(shapes: Mapping[Mix, Sequence[Shape]]) -> list[str]:
    """Return the values of sutprobe's ``--shape`` for the *shapes* of each mix, each once."""
    return [f"{mix}={text}" for mix, own in shapes.items() for text in dict.fromkeys(shape.text for shape in own)]


class Memory(NamedTuple):
    """Memory of ``node``, or spread over the nodes of ``weights``, of which it is the first.

    So many pages are on each node in turn; if the weights are the kernel's, it spreads them.
    """

    node: int
    weights: tuple[tuple[int, int], ...] = ()
    by_kernel: bool = False

    def __str__(self) -> str:
        if not self.weights:
            return str(self.node)
        return ",".join(f"{node}" if self.by_kernel else f"{node}*{weight}" for node, weight in self.weights)

    @property
    def shares(self) -> dict[int, float]:
        """The share of each node."""
        turn = sum(weight for _, weight in self.weights)
        return {node: weight / turn for node, weight in self.weights} or {self.node: 1.0}

    def most_bytes(self, node: int, size_bytes: int) -> int:
        """Return the most that *node* may hold of a buffer of *size_bytes*: each turn that has begun, in huge pages."""
        if not self.weights:
            return size_bytes
        pages = mapped_bytes(size_bytes) // HUGE_BYTES
        turns = -(-pages // sum(weight for _, weight in self.weights))
        return min(pages, turns * dict(self.weights)[node]) * HUGE_BYTES - 1

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what *text*, made by ``str``, says; the kernel's weights, not in it, are 1. Raises ``ValueError``."""
        words = [word.partition("*") for word in text.split(",")]
        if len(words) == 1 and not words[0][1]:
            return cls(int(text))
        weights = tuple((int(node), int(weight) if star else 1) for node, star, weight in words)
        return cls(weights[0][0], weights, by_kernel=not any(star for _, star, _ in words))


class Part(NamedTuple):
    """Threads on ``cpus``, each with its buffers on ``node``, or ``spread`` over several nodes, it being the first."""

    cpus: tuple[int, ...]
    node: int
    spread: Memory | None = None

    def __str__(self) -> str:
        return f"{format_cpulist(self.cpus)}@{self.memory}"

    @property
    def memory(self) -> Memory:
        """The memory of its buffers."""
        return self.spread or Memory(self.node)


def threads_by_node(parts: Sequence[Part]) -> dict[int, int]:
    """Return the number of threads of *parts* per node."""
    return {node: sum(counts) for node, counts in grouped((part.node, len(part.cpus)) for part in parts).items()}


def by_part(parts: Sequence[Part], size_bytes: int | Sequence[int]) -> Sequence[int]:
    """Return the buffer size of each of *parts*, which *size_bytes* has for all of them or for each."""
    return [size_bytes] * len(parts) if isinstance(size_bytes, int) else size_bytes


def group_text(parts: Sequence[Part], size_bytes: int | Sequence[int] | None = None) -> str:
    """Return sutprobe's name for threads that run together, with an optional buffer size for all parts or for each."""
    if size_bytes is None:
        return "+".join(map(str, parts))
    return "+".join(f"{part}:{size}" for part, size in zip(parts, by_part(parts, size_bytes), strict=True))


def read_sizes(text: str) -> list[int]:
    """Return the buffer sizes in *text*, made by ``group_text``; none if not every part has one."""
    sizes = [size for _, _, size in (stream.partition(":") for stream in text.split("+"))]
    return list(map(int, sizes)) if all(sizes) else []


def read_group(text: str) -> list[Part]:
    """Return the parts of *text*, made by ``group_text``. Raises ``InputError`` for any other text."""
    parts = []
    for stream in text.split("+"):
        cpus, _, nodes = stream.partition(":")[0].partition("@")
        try:
            memory = Memory.read(nodes)
            parts.append(Part(parse_cpulist(cpus), memory.node, memory if memory.weights else None))
        except ValueError as error:
            raise InputError(f"not a group (CPULIST@NODE[*WEIGHT,...][+...]): {text!r}") from error
    return parts


def all_cpus(sut: Sut) -> list[Part]:
    """Return every usable CPU by node, paired with the nearest memory."""
    return [Part(tuple(sut.cpus_of(node)), sut.home(node)) for node in sut.cpu_nodes]


def all_cores(sut: Sut) -> list[Part]:
    """Return one usable CPU of every core by node, paired with the nearest memory.

    A core's other thread shares its misses in flight: where memory is the limit it adds nothing, or costs a little.
    """
    return [Part(tuple(sut.one_per_core(part.cpus)), part.node) for part in all_cpus(sut)]


def on_memory_only(sut: Sut, parts: Sequence[Part]) -> list[Part]:
    """Return *parts* on the nearest memory-only nodes; empty without such nodes, or if they are there already.

    CPUs with several equally near ones use them in turn.
    """
    found = []
    for part in parts:
        by_distance = grouped(
            (sut.distance(sut.node_of(part.cpus[0]), node) or 0, node) for node in sut.memory_only_nodes
        )
        near = by_distance[min(by_distance)] if by_distance else []
        found += [Part(cpus, node) for turn, node in enumerate(near) if (cpus := part.cpus[turn :: len(near)])]
    return [] if found == list(parts) else found


def buffer_bytes(sut: Sut, parts: Sequence[Part], mixes: Iterable[Mix]) -> int:
    """Return the buffer size per thread of *parts* in bytes: beyond the caches, within each node's memory."""
    return common_buffer_bytes(sut, [parts], mixes)


def common_buffer_bytes(sut: Sut, groups: Sequence[Sequence[Part]], mixes: Iterable[Mix]) -> int:
    """Return the same for the threads of any of *groups*."""
    buffers = max(BUFFERS[mix] for mix in mixes)
    wanted = max(size for parts in groups for size in memory_bound_thread_bytes(sut, parts))
    return min(
        capped_bytes(sut, node, wanted, buffers=count * buffers)
        for parts in groups
        for node, count in threads_by_node(parts).items()
    )


def shared_buffer_bytes(sut: Sut, groups: Sequence[Sequence[Part]], mixes: Sequence[Mix]) -> list[list[int]]:
    """Return the buffer size per thread of each part of each of *groups*, which share the buffers of a placement.

    Few threads have larger buffers than many. If a node has no room for everyone's largest, all are limited to what
    fits.
    """
    mix = max(mixes, key=buffers_of)
    sizes = []
    for parts in groups:
        threads, wanted = threads_by_node(parts), memory_bound_thread_bytes(sut, parts)
        sizes.append(
            [
                capped_bytes(sut, part.node, size, buffers=threads[part.node] * BUFFERS[mix])
                for part, size in zip(parts, wanted, strict=True)
            ]
        )
    runs = [Run(parts, mix, own) for parts, own in zip(groups, sizes, strict=True)]
    for node, needed in buffers_by_node(runs).items():
        usable = sut.usable_bytes(node)
        if usable is not None and sum(needed) > usable:
            common = common_buffer_bytes(sut, groups, mixes)
            return [[min(size, common) for size in own] for own in sizes]
    return sizes


def held_by_node(groups: Iterable[tuple[Sequence[Part], int | Sequence[int]]]) -> dict[int, int]:
    """Return by node the least memory that any of *groups*, with buffers of so many bytes per thread, reads there."""
    held = grouped(
        item
        for parts, size_bytes in groups
        for item in grouped(
            (node, int(len(part.cpus) * size * share))
            for part, size in zip(parts, by_part(parts, size_bytes), strict=True)
            for node, share in part.memory.shares.items()
        ).items()
    )
    return {node: min(map(sum, sizes)) for node, sizes in held.items()}


def memory_bound_thread_bytes(sut: Sut, parts: Sequence[Part]) -> list[int]:
    """Return the least buffer size in bytes at which the threads of each of *parts* read from memory.

    As small as possible, because filling takes time: the threads that share a last-level cache together hold
    ``LLC_MULTIPLE`` times its size, and each thread that multiple of its core's own caches. If no shared cache is
    reported, the threads of a node together hold enough for an unreported one. Beyond a memory-side cache if the node
    has room for that, and filling it takes no longer than ``LARGEST_TRAFFIC_BYTES`` do.
    """
    threads = threads_by_node(parts)
    cpus = [cpu for part in parts for cpu in part.cpus]
    sizes = []
    for part in parts:
        llc, sharers = sut.llc_bytes or 0, sut.fewest_per_llc(part.cpus, cpus)
        if sut.llc_is_private:
            llc, sharers = max(llc, ASSUMED_LLC_BYTES), threads[part.node]
        size, beyond_bytes = LLC_MULTIPLE * max(llc // sharers, sut.l2_bytes), sut.beyond_side_cache_bytes(part.node)
        usable = sut.usable_bytes(part.node)
        if beyond_bytes <= LARGEST_TRAFFIC_BYTES and (usable is None or beyond_bytes <= usable):
            size = max(size, -(-beyond_bytes // threads[part.node]))
        sizes.append(size)
    return sizes


class TrafficDeclaration(Declaration[S, V]):
    """A kind whose steps run ``sutprobe bandwidth``."""

    def traffic_step(
        self,
        title: str,
        groups: Sequence[Sequence[Part]],
        mixes: Sequence[Mix],
        buffer_bytes: int | tuple[int, ...] | Sequence[int | Sequence[int]],
        options: Mapping[str, Any],
        *,
        cost: Callable[[Sequence[Run]], float],
        repeated: RepeatedSettings | None = None,
        suffix: str = "",
    ) -> Step:
        """Return the step that runs each of *mixes* on each of *groups*, with buffers of *buffer_bytes* per thread.

        A list has a size for each group or for each of its parts, a tuple several for all groups. *cost* is the
        expected time of these runs. Other parameters as for ``step``.
        """
        own = buffer_bytes if isinstance(buffer_bytes, list) else [None] * len(groups)
        common = (buffer_bytes,) if isinstance(buffer_bytes, int) else tuple(buffer_bytes)
        runs = [
            Run(parts, mix, size)
            for parts, sizes in zip(groups, own, strict=True)
            for size in (common if sizes is None else (sizes,))
            for mix in mixes
        ]
        return self.step(
            title,
            "bandwidth",
            {
                "group": [group_text(parts, sizes) for parts, sizes in zip(groups, own, strict=True)],
                "mix": ",".join(mixes),
                "buffer-bytes": max(size for run in runs for size in by_part(run.parts, run.size_bytes))
                if isinstance(buffer_bytes, list)
                else ",".join(map(str, common)),
                **options,
            },
            cpus=sorted({cpu for parts in groups for part in parts for cpu in part.cpus}),
            memory_bytes=memory_bytes(runs),
            cost_s=cost(runs),
            setup_s=options.get("placements", 1) * (PLACEMENT_S + fill_s(runs)),
            repeated=repeated,
            suffix=suffix,
        )
