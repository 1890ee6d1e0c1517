# SPDX-License-Identifier: Apache-2.0
"""The traffic shape that was found best on a platform, and what a platform is.

How traffic walks its buffers decides how much of it a machine moves. The best way depends on the platform alone, so it
is searched once and kept as a reference; the plans of later runs take it from there.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from calibration.context.model import Context
from calibration.model import Model, UtcTime

GIB = 1 << 30

KERNELS = Path(__file__).parent.parent / "kernels"

TRAFFIC_SOURCES = ("load.*", "generator.*", "arch/streams*", "arch/*/streams*", "arch/*/widths*")
"""The kernel's sources that decide how a shape becomes loads and stores: patterns below the kernels' directory."""


class Shape(Model):
    """How a kernel walks its buffers: parallel streams, and how many bytes ahead it prefetches (0: not at all)."""

    streams: PositiveInt
    prefetch_bytes: NonNegativeInt


class ChosenShape(Shape):
    """A shape that a search found best, with the vector width it was found with."""

    width: str


class PlatformNode(Model):
    """What of a node can move the choice: its CPUs that may be used, and its memory in whole GiB."""

    cpus: int
    memory_gib: int | None


class Platform(Model):
    """What decides which shape is best: two SUTs with the same platform share one choice.

    Processor by model and stepping, not by microcode, which is renewed without a change of the core; the threads that
    take part and the memory that they load, node by node; ``dimms`` counts the populated slots by size and speed where
    the SUT says (only to root); whether a hypervisor stands between; and the hash of the kernel's traffic sources.
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
        """A short name for files: the first half of the hash of everything above."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:32]


class ReferenceRun(Model):
    """The run that a reference came from."""

    testbed: str
    sut: str
    id: str
    started_at: UtcTime


class ShapeReference(Model):
    """The choice for one platform, as kept in ``results/references/traffic_shape/<key>.json``.

    ``all_mixes`` is the best for the mixes that were tried together, ``mixes`` the best for each alone.
    """

    schema_version: Literal["traffic_shape/1"]
    platform: Platform
    run: ReferenceRun
    all_mixes: ChosenShape
    mixes: dict[str, ChosenShape]

    def shape_for(self, mix: str) -> ChosenShape:
        """Return the best shape for traffic of *mix* alone; for a mix that was not tried, that for all together."""
        return self.mixes.get(mix, self.all_mixes)

    @property
    def words(self) -> str:
        """The choice and where it comes from, as a person reads it."""
        shape = self.all_mixes
        return (
            f"{shape.streams} streams, prefetch {shape.prefetch_bytes} bytes ahead, {shape.width}; found best on this "
            f"platform by run {self.run.id} of {self.run.testbed}/{self.run.sut}"
        )


@cache
def traffic_sha256(directory: Path = KERNELS) -> str:
    """Return a hash of names and contents of the kernel's traffic sources in *directory*.

    Raises ``ValueError`` where a pattern finds nothing: the hash would no longer say what it should.
    """
    digest = hashlib.sha256()
    for pattern in TRAFFIC_SOURCES:
        found = sorted(path for path in directory.glob(pattern) if path.suffix in {".c", ".h"})
        if not found:
            raise ValueError(f"expected sources of the kernel's traffic at {directory / pattern}, found none")
        for path in found:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(directory).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def platform_of(context: Context) -> Platform:
    """Return the platform that the SUT of *context* is one of."""
    usable = set(context.online_cpus)
    if context.cpus.allowed is not None:
        usable &= set(context.cpus.allowed)
    names = (
        " ".join(part for part in (each.vendor, each.name, each.family, each.model, each.stepping) if part)
        for each in context.processor.models
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
                cpus=len(usable & set(node.cpus)),
                memory_gib=None if node.memory_bytes is None else round(node.memory_bytes / GIB),
            )
            for node in context.nodes
        ),
        dimms=dict(sorted(dimms.items())),
        guest=context.virtualization.guest,
        traffic_sha256=traffic_sha256(),
    )
