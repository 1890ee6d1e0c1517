# SPDX-License-Identifier: Apache-2.0
"""What a SUT of the testbed looks like (shapes.yml), and how QEMU is told."""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = Path(__file__).parent / "shapes.yml"

MAXIMUM_MIB = 4096
"""Most memory of a guest that has slots for more."""


class Node(BaseModel):
    """One NUMA node; *initiator* is that of its memory in ACPI HMAT, if it has no CPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: tuple[int, ...] = ()
    memory_mib: int = Field(default=0, ge=0)
    initiator: int | None = None


class Shape(BaseModel):
    """One kind of SUT."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    architecture: str = "x86_64"
    cpu: str = "max"
    sockets: int | None = None
    threads: int = 1
    nodes: tuple[Node, ...] = Field(min_length=1)
    distances: tuple[tuple[int, ...], ...] | None = None
    kernel: tuple[str, ...] = ()
    slots: int = 0
    devices: tuple[str, ...] = ()
    smbios: tuple[str, ...] = ()
    hmat: tuple[str, ...] = ()

    @model_validator(mode="after")
    def consistent(self) -> "Shape":
        """Refuse what QEMU would take for something else."""
        found = sorted(cpu for node in self.nodes for cpu in node.cpus)
        if found != list(range(len(found))) or not found:
            msg = f"expected each CPU from 0 on exactly one node, found {found}"
            raise ValueError(msg)
        if len(found) % (self.threads * (self.sockets or 1)):
            msg = f"expected a multiple of {self.threads * (self.sockets or 1)} CPUs, found {len(found)}"
            raise ValueError(msg)
        if self.distances is not None and {len(row) for row in (self.distances, *self.distances)} != {len(self.nodes)}:
            msg = f"expected {len(self.nodes)} distances in {len(self.nodes)} rows, found {self.distances}"
            raise ValueError(msg)
        return self

    @property
    def cpus(self) -> int:
        """Number of CPUs, offline ones included."""
        return sum(len(node.cpus) for node in self.nodes)

    @property
    def memory_mib(self) -> int:
        """Memory of all nodes."""
        return sum(node.memory_mib for node in self.nodes)

    def arguments(self) -> list[str]:
        """Return QEMU's options for CPUs, memory and more devices."""
        sizes = {len(node.cpus) for node in self.nodes if node.cpus}
        # One socket per node where that comes out even: a socket on several nodes is no machine that exists.
        sockets = self.sockets or (sum(bool(node.cpus) for node in self.nodes) if len(sizes) == 1 else 1)
        if self.cpus % (sockets * self.threads):
            sockets = 1
        cores = self.cpus // sockets // self.threads
        more = f",slots={self.slots},maxmem={MAXIMUM_MIB}M" if self.slots else ""
        options = ["-cpu", self.cpu, "-m", f"{self.memory_mib}M{more}"]
        options += ["-smp", f"{self.cpus},sockets={sockets},cores={cores},threads={self.threads}"]
        for number, node in enumerate(self.nodes):
            parts = ["node", f"nodeid={number}", *(f"cpus={cpu}" for cpu in node.cpus)]
            if node.memory_mib:
                options += ["-object", f"memory-backend-ram,id=memory{number},size={node.memory_mib}M"]
                parts.append(f"memdev=memory{number}")
            if node.initiator is not None:
                parts.append(f"initiator={node.initiator}")
            options += ["-numa", ",".join(parts)]
        for source, row in enumerate(self.distances or ()):
            for target, value in enumerate(row):
                options += ["-numa", f"dist,src={source},dst={target},val={value}"]
        if self.hmat:
            options += ["-machine", "hmat=on"]
        for entry in self.hmat:
            options += ["-numa", entry]
        for device in self.devices:
            options += ["-device", device]
        for table in self.smbios:
            options += ["-smbios", table]
        return options


def shapes(path: Path = FILE) -> dict[str, Shape]:
    """Return all shapes by name."""
    return {name: Shape.model_validate(item) for name, item in yaml.safe_load(path.read_text(encoding="utf-8")).items()}
