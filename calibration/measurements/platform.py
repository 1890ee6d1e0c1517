# SPDX-License-Identifier: Apache-2.0
"""Platforms, and what is found once per platform for later plans.

The best access pattern depends on the platform alone, so it is searched once and kept as a reference for later runs. So
is the size at which the latency ladder left the last-level cache.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from calibration.base.model import Model, UtcTime
from calibration.context.model import Context

GIB = 1 << 30

MIB = 1 << 20

LLC_SHARE_MIN = 0.5
"""Least share of the reported last-level cache that buffers are sized for, however little a ladder found: what other
guests or CPUs occupied may be free in a later run, and four times the half is still twice the whole."""

SOURCES = Path(__file__).parent.parent / "probe"

TRAFFIC_SOURCES = ("load.*", "generator*", "arch/streams*", "arch/*/streams*", "arch/*/widths*", "arch/*/lines*")
"""The sources of sutprobe that turn a shape into loads and stores: patterns below the source directory."""


Hint = Literal["t0", "t1", "nta", "w"]
"""Where a software prefetch puts a line: the nearest cache, the second or third level, past the caches as far as the
core can; w: to be written, for lines that the core changes, else t0."""

Instruction = Literal["vector", "clzero", "movdir64b", "rep_stosb", "dc_zva", "ldnp"]
"""What moves a line: vectors, or an instruction that stores (``write_nt``) or loads (``reads``) it past the caches."""


def natural_visit_lines(streams: int) -> int:
    """Return the lines of a stream at each of its turns if none are given: four over all streams, at least one."""
    return max(1, 4 // streams)


class Shape(Model):
    """Access pattern: parallel streams, prefetch distance in bytes (0: none) and its hint.

    ``visit_lines`` are the lines of a stream at each of its turns (0: four over all streams, at least one),
    ``instruction`` is what moves them.
    """

    streams: PositiveInt
    prefetch_bytes: NonNegativeInt
    hint: Hint = "t0"
    visit_lines: Literal[0, 1, 2, 4] = 0
    instruction: Instruction = "vector"

    @property
    def extras(self) -> int:
        """How many of hint, lines at a turn and instruction are not the default."""
        return (self.hint != "t0") + (self.visit_lines != 0) + (self.instruction != "vector")

    @property
    def text(self) -> str:
        """The shape as sutprobe's ``--shape`` takes it, without the mix."""
        return f"{self.streams}/{self.prefetch_bytes}/{self.hint}/{self.visit_lines}/{self.instruction}"

    @property
    def phrase(self) -> str:
        """The shape in words, without its width."""
        parts = [f"{self.streams} stream{'s' * (self.streams > 1)}"]
        if self.visit_lines:
            parts.append(f"{self.visit_lines} line{'s' * (self.visit_lines > 1)} at a turn")
        hint = "" if self.hint == "t0" else f" ({self.hint})"
        parts.append(f"prefetch {self.prefetch_bytes} bytes ahead{hint}")
        if self.instruction != "vector":
            parts.append(self.instruction)
        return ", ".join(parts)


class Setting(Model):
    """The setting of a measured bandwidth.

    ``hint`` is none without prefetches; ``visit_lines`` are the lines of a stream at each of its turns.
    """

    threads: int
    streams: int
    prefetch_bytes: int
    width: str
    delay: int
    buffer_bytes: int
    hint: Hint | Literal["none"]
    visit_lines: int
    instruction: Instruction

    @property
    def shape(self) -> Shape:
        """The shape of the traffic, as a profile would ask for it."""
        natural = self.visit_lines == natural_visit_lines(self.streams)
        return Shape.model_validate(
            {
                "streams": self.streams,
                "prefetch_bytes": self.prefetch_bytes,
                "hint": "t0" if self.hint == "none" else self.hint,
                "visit_lines": 0 if natural else self.visit_lines,
                "instruction": self.instruction,
            }
        )


class ChosenShape(Shape):
    """The best shape of a search, with its vector width."""

    width: str


Threads = Literal["one", "all"]
"""Whether one CPU measures, or all at once: they share the caches, so their best shapes differ."""


class LevelShape(Model):
    """The best shape of *mix* in the middle of cache *level*, for one CPU or all at once."""

    threads: Threads
    level: PositiveInt
    mix: str
    shape: ChosenShape


class PlatformNode(Model):
    """A node's usable CPUs, and its memory in whole GiB."""

    cpus: int
    memory_gib: int | None


class Platform(Model):
    """What decides which shape is best: SUTs with the same platform share one choice.

    Processor by model and stepping, not by microcode, which changes without a change of the core; threads and memory
    node by node; ``dimms`` counts the populated slots by size and speed if known (only to root); whether the machine is
    a guest; and the hash of sutprobe's traffic sources.
    """

    architecture: str | None
    processors: tuple[str, ...]
    threads_per_core: int | None
    nodes: tuple[PlatformNode, ...]
    dimms: dict[str, int]
    guest: bool | None
    traffic_sha256: str

    @property
    def key(self) -> str:
        """Short name for files: the first half of the hash of all fields."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:32]


class ReferenceRun(Model):
    """The run that a reference came from."""

    testbed: str
    sut: str
    id: str
    started_at: UtcTime


class ShapeReference(Model):
    """The choice for one platform, as kept in ``results/references/traffic_shape/<key>.json``.

    ``all_mixes`` is the best for all tried mixes together, ``mixes`` the best for each alone, both in memory;
    ``levels`` the best in caches, empty if the SUT reports none.
    """

    kind: ClassVar[str] = "traffic_shape"
    schema_version: Literal["traffic_shape/1"]
    platform: Platform
    run: ReferenceRun
    all_mixes: ChosenShape
    mixes: dict[str, ChosenShape]
    levels: tuple[LevelShape, ...] = ()

    def shape_for(self, mix: str) -> ChosenShape:
        """Return the best shape for *mix* alone; for an untried mix, that for all together."""
        return self.mixes.get(mix, self.all_mixes)

    def level_shapes(self, threads: Threads) -> dict[tuple[int, str], ChosenShape]:
        """Return the best shapes in caches for one CPU or all, by level and mix; all have the same width."""
        return {(found.level, found.mix): found.shape for found in self.levels if found.threads == threads}

    @property
    def origin(self) -> str:
        """The run that the choice came from."""
        return f"run {self.run.id} of {self.run.testbed}/{self.run.sut}"

    @property
    def words(self) -> str:
        """The choice and its origin in one sentence."""
        shape = self.all_mixes
        return f"{shape.phrase}, {shape.width}; found best on this platform by {self.origin}"


class CacheReference(Model):
    """Where the last-level cache ends for one CPU, as kept in ``results/references/last_level_cache/<key>.json``.

    ``found_bytes`` is the largest size that the latency ladder found in it, ``reported_bytes`` the kernel's value,
    ``None`` if it reports none.
    """

    kind: ClassVar[str] = "last_level_cache"
    schema_version: Literal["last_level_cache/1"]
    platform: Platform
    run: ReferenceRun
    found_bytes: PositiveInt
    reported_bytes: PositiveInt | None

    @property
    def words(self) -> str:
        """The size and its origin in one sentence."""
        reported = "none" if self.reported_bytes is None else f"{self.reported_bytes / MIB:g} MiB"
        size = self.sized_bytes(self.reported_bytes)
        return (
            f"{self.found_bytes / MIB:.3g} MiB as the latency ladder of run {self.run.id} of {self.run.testbed}/"
            f"{self.run.sut} showed ({reported} reported)"
            f"{'' if size == self.found_bytes else f'; buffers are sized for {size / MIB:.3g} MiB'}"
        )

    def sized_bytes(self, reported_bytes: int | None) -> int:
        """Return the cache size to size buffers for on a SUT that reports *reported_bytes*."""
        return max(self.found_bytes, int(LLC_SHARE_MIN * (reported_bytes or 0)))


@cache
def traffic_sha256(directory: Path = SOURCES) -> str:
    """Return a hash of names and contents of sutprobe's traffic sources in *directory*.

    Raises ``ValueError`` if a pattern matches nothing.
    """
    digest = hashlib.sha256()
    for pattern in TRAFFIC_SOURCES:
        found = sorted(path for path in directory.glob(pattern) if path.suffix in {".c", ".h"})
        if not found:
            raise ValueError(f"no sources of sutprobe's traffic at {directory / pattern}")
        for path in found:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(directory).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def platform_of(context: Context) -> Platform:
    """Return the platform of *context*."""
    usable, by_node = set(context.online_cpus), context.cpus_by_node
    if context.cpus.allowed is not None:
        usable &= set(context.cpus.allowed)
    names = (
        " ".join(part for part in (model.vendor, model.name, model.family, model.model, model.stepping) if part)
        for model in context.processor.models
    )
    dimms: dict[str, int] = {}
    for dimm in context.firmware.dimms:
        if dimm.size_bytes:
            speed = dimm.configured_mt_s or dimm.speed_mt_s
            name = f"{dimm.size_bytes / GIB:g} GiB {dimm.type or 'unknown'} at {speed or 'unknown'} MT/s"
            dimms[name] = dimms.get(name, 0) + 1
    return Platform(
        architecture=context.processor.architecture,
        processors=tuple(sorted(set(names))),
        threads_per_core=context.topology.threads_per_core,
        nodes=tuple(
            PlatformNode(
                cpus=len(usable.intersection(by_node[node.id])),
                memory_gib=None if node.memory_bytes is None else round(node.memory_bytes / GIB),
            )
            for node in context.nodes
        ),
        dimms=dict(sorted(dimms.items())),
        guest=context.virtualization.guest,
        traffic_sha256=traffic_sha256(),
    )
