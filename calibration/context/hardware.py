# SPDX-License-Identifier: Apache-2.0
"""The description of devices, CXL memory, allocations and profiles: typed, frozen, ``None`` if the capture lacks it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field, PositiveInt

from calibration.base.model import Model

Number = TypeVar("Number", int, float)

Printable = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,200}$")]
"""Text that a SUT made of others."""


class PciLink(Model):
    """A PCIe link as negotiated (``width``, ``speed_gt_s``), and what each end can.

    ``device`` is the address of the lower end, ``port`` that of the upper one, None if it is not in the capture. Widths
    are lanes, speeds GT/s.
    """

    device: str
    port: str | None
    width: int | None
    speed_gt_s: float | None
    device_width: int | None
    device_speed_gt_s: float | None
    port_width: int | None
    port_speed_gt_s: float | None

    @property
    def possible_width(self) -> int | None:
        """The lanes that both ends have; None unless both are known."""
        return _both(self.device_width, self.port_width)

    @property
    def possible_speed_gt_s(self) -> float | None:
        """The speed that both ends can; None unless both are known."""
        return _both(self.device_speed_gt_s, self.port_speed_gt_s)

    @property
    def narrowed(self) -> bool:
        """Whether fewer lanes were negotiated than both ends have, which is a fault of slot, riser or cable."""
        return self.width is not None and self.possible_width is not None and self.width < self.possible_width

    @property
    def held_back(self) -> bool:
        """Whether the port has fewer lanes or a lower speed than the device."""
        return any(
            port is not None and device is not None and port < device
            for port, device in (
                (self.port_width, self.device_width),
                (self.port_speed_gt_s, self.device_speed_gt_s),
            )
        )


def _both(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else min(one, other)


class NetworkInterface(Model):
    """A network interface of a device. ``speed_mbit_s`` is None without a link, and if its driver does not tell."""

    name: str
    speed_mbit_s: int | None
    duplex: str | None
    mtu: int | None
    state: str | None


class Device(Model):
    """A network, storage or accelerator function of PCI.

    ``id`` and ``subsystem`` are vendor and device as ``8086:1592``. ``node`` is None if the firmware names none.
    ``firmware`` is what its driver publishes in sysfs; ``firmware_reason`` says why there is none. ``links`` are its
    own link and those of switches above it, its own first. ``interrupt_cpus`` are the CPUs that its ``interrupts``
    interrupts are delivered to, None if no affinity could be read; ``isolated_cpus`` are the isolated ones of them.
    ``virtual_functions`` are those enabled.
    """

    address: str
    kind: Literal["network", "storage", "accelerator"]
    class_code: int
    id: str | None
    subsystem: str | None
    driver: str | None
    driver_version: str | None
    model: str | None
    firmware: str | None
    firmware_reason: str | None
    node: int | None
    local_cpus: tuple[int, ...] | None
    iommu_group: int | None
    interfaces: tuple[NetworkInterface, ...]
    virtual_functions: int | None
    links: tuple[PciLink, ...]
    interrupts: int
    interrupt_cpus: tuple[int, ...] | None
    isolated_cpus: tuple[int, ...]

    @property
    def link(self) -> PciLink | None:
        """The device's own link; None if it has none: on the root complex, or on conventional PCI."""
        found = self.links[0] if self.links else None
        return None if found is None or found.device != self.address or found.width is None else found

    @property
    def name(self) -> str:
        """The names of its interfaces, else its address."""
        return ", ".join(interface.name for interface in self.interfaces) or self.address


class CxlMemory(Model):
    """A CXL memory device; ``node`` is that of its host bridge."""

    name: str
    volatile_bytes: int | None
    persistent_bytes: int | None
    node: int | None
    firmware: str | None


class RatedAccess(Model):
    """How fast accesses to a memory from the nearest ``initiators`` are, by the firmware (ACPI HMAT) or CXL's devices.

    Class 0 is of the nearest nodes of all, which may be devices, class 1 of the nearest with CPUs. The kernel names no
    initiators of CXL memory that it added itself. A value that is not given is ``None``.
    """

    access: int
    initiators: tuple[int, ...]
    read_latency_ns: int | None
    write_latency_ns: int | None
    read_bandwidth_mb_s: int | None
    write_bandwidth_mb_s: int | None


class CxlRegion(Model):
    """A range of CXL memory, interleaved over ``ways`` devices; ``node`` is the one whose memory it is, if online.

    ``cache_bytes`` is the part of ``size_bytes`` that is ordinary memory used as a cache of the rest.
    """

    name: str
    size_bytes: int | None
    ways: int | None
    granularity_bytes: int | None
    node: int | None
    cache_bytes: int | None = None
    rated_accesses: tuple[RatedAccess, ...] = ()


class Cxl(Model):
    """CXL memory. ``nodes`` are the NUMA nodes made of it."""

    devices: tuple[CxlMemory, ...]
    regions: tuple[CxlRegion, ...]
    nodes: tuple[int, ...]


class Interleaving(Model):
    """Weights of nodes for weighted interleaving; ``automatic`` is None on kernels that have no such switch."""

    weights: dict[int, int]
    automatic: bool | None


class Allocation(Model):
    """What a group may use in one domain of one resource: ``part`` of ``whole``, in ways or parts of bandwidth.

    ``cpus`` are those of the domain; None if the kernel does not say.
    """

    resource: str
    domain: int
    part: int
    whole: int
    cpus: tuple[int, ...] | None = None


class ResctrlGroup(Model):
    """A group of resctrl: its CPUs, and the resources of which it may use a part only.

    ``name`` is empty for the default group. ``own`` says whether the captured process is in it by name, which counts on
    every CPU; otherwise the group of the CPU counts.
    """

    name: str
    mode: str | None
    cpus: tuple[int, ...]
    own: bool
    narrowed: tuple[Allocation, ...]


class Resctrl(Model):
    """Allocation of caches and memory bandwidth; ``unchecked`` are resources whose whole is unknown."""

    groups: tuple[ResctrlGroup, ...]
    unchecked: tuple[str, ...]


class TunedSetting(Model):
    """A setting of a profile: what the profile wants, and what the machine has."""

    name: str
    wanted: str
    found: str | None


class Tuned(Model):
    """The active profile of tuned, compared with the machine.

    ``profiles`` are the active profiles and those they include, most specific first; ``absent`` those without a file.
    ``met`` counts settings that the machine has, ``differing`` lists others. ``unchecked`` are settings whose value is
    computed or whose place is not captured.
    """

    active: str
    mode: str | None
    profiles: tuple[str, ...]
    absent: tuple[str, ...]
    met: int
    differing: tuple[TunedSetting, ...]
    unchecked: tuple[str, ...]


class Bmc(Model):
    """What the BMC says, by ipmitool.

    ``alarms`` are the sensors beyond a threshold, with value and state; ``events`` the kinds of the newest events of
    its log, with their number. None what could not be read.
    """

    firmware: Printable | None
    alarms: Annotated[tuple[Printable, ...], Field(max_length=64)] | None
    events: Annotated[dict[Printable, PositiveInt], Field(max_length=64)] | None
