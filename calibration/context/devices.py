# SPDX-License-Identifier: Apache-2.0
"""Network, storage and accelerator devices of PCI, with the links that they are attached by.

Sources: ``Documentation/ABI/testing/sysfs-bus-pci`` and ``sysfs-class-net`` of the Linux kernel.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from calibration.base.cpulists import parse_cpulist
from calibration.base.text import visible
from calibration.context.hardware import Device, NetworkInterface, PciLink
from calibration.context.topology import read_set
from calibration.context.tree import Tree, count, integer
from calibration.runner.devices import CLASSES

PCI = "/sys/bus/pci/devices"

MAX_HOPS = 16

NOT_PUBLISHED = "its driver does not publish it in sysfs"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s(?: PCIe)?", re.ASCII)

FIRMWARE_FILES = (
    ("nvme", ("firmware_rev",)),
    ("infiniband", ("fw_ver",)),
    ("scsi_host", ("version_fw", "fwrev", "fw_version")),
)


def hexadecimal(text: str) -> int:
    """Return a number such as 0x020000. Raises ``ValueError``."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text, re.ASCII) is None:
        raise ValueError(f"not a hexadecimal number: {text[:40]!r}")
    return int(text, 16)


def speed_gt_s(text: str) -> float | None:
    """Return a link speed, ``16.0 GT/s PCIe``; None if the kernel does not know it. Raises ``ValueError``."""
    if text.startswith("Unknown"):
        return None
    match = _SPEED.fullmatch(text)
    if match is None:
        raise ValueError(f"not a link speed: {text[:40]!r}")
    return float(match.group(1))


def lanes(text: str) -> int | None:
    """Return a link width; None for what the kernel shows without a link. Raises ``ValueError``."""
    width = count(text)
    return width if 0 < width <= 32 else None


def _pair(tree: Tree, directory: str, first: str, second: str) -> str | None:
    numbers = [tree.parse(f"{directory}/{name}", hexadecimal) for name in (first, second)]
    return ":".join(f"{number:04x}" for number in numbers if number is not None) if None not in numbers else None


def _chain(tree: Tree, address: str) -> list[str]:
    """Return the directories of a device and of the bridges above it, its own first."""
    target = tree.link(f"{PCI}/{address}")
    if target is None:
        return [f"{PCI}/{address}"]
    path = posixpath.normpath(posixpath.join(PCI, target))
    found: list[str] = []
    while _ADDRESS.fullmatch(posixpath.basename(path)) and len(found) < MAX_HOPS:
        found.append(path)
        path = posixpath.dirname(path)
    return found or [f"{PCI}/{address}"]


def _link(tree: Tree, directory: str, above: str) -> PciLink | None:
    """Return the link between a function and the port *above*; None if the function has no PCIe link."""

    def ability(place: str, which: str) -> tuple[int | None, float | None]:
        return (
            tree.parse(f"{place}/{which}_link_width", lanes),
            tree.parse(f"{place}/{which}_link_speed", speed_gt_s),
        )

    width, speed = ability(directory, "current")
    device_width, device_speed = ability(directory, "max")
    if width is None and device_width is None:
        return None
    port_width, port_speed = ability(above, "max")
    return PciLink(
        device=posixpath.basename(directory),
        port=posixpath.basename(above),
        width=width,
        speed_gt_s=speed,
        device_width=device_width,
        device_speed_gt_s=device_speed,
        port_width=port_width,
        port_speed_gt_s=port_speed,
    )


def _links(tree: Tree, chain: list[str]) -> tuple[PciLink, ...]:
    """Return the links along a chain. Upper ends of links inside a switch's own bus are not links of their own."""
    found = []
    for number, directory in enumerate(chain[:-1]):
        # In a switch the upstream port's bus joins it with its downstream ports: a bridge whose parent is an upstream
        # port is a downstream port. Every second step of a chain is a link.
        if number % 2 == 0:
            link = _link(tree, directory, chain[number + 1])
            if link is not None:
                found.append(link)
    return tuple(found)


def _inner(tree: Tree, own: str) -> list[str]:
    """Return the directories that hold a device's entries in classes: its own, and those of virtio and SCSI hosts."""
    names = (name for name in tree.names(own) if re.fullmatch(r"(?:virtio|host)[0-9]{1,6}", name, re.ASCII))
    return [own, *(f"{own}/{name}" for name in names)]


def _interfaces(tree: Tree, places: Iterable[str]) -> tuple[NetworkInterface, ...]:
    found = []
    for place in places:
        for name in tree.names(f"{place}/net"):
            directory = f"{place}/net/{name}"
            state = tree.word(f"{directory}/operstate")
            # Drivers print -1 without a link, or refuse to be read.
            speed = tree.parse(f"{directory}/speed", integer) if state == "up" else None
            found.append(
                NetworkInterface(
                    name=visible(name),
                    speed_mbit_s=speed if speed is not None and speed > 0 else None,
                    duplex=tree.word(f"{directory}/duplex") if state == "up" else None,
                    mtu=tree.parse(f"{directory}/mtu", count),
                    state=state,
                )
            )
    return tuple(found)


def _firmware(tree: Tree, places: Iterable[str]) -> str | None:
    for place in places:
        for kind, files in FIRMWARE_FILES:
            for entry in tree.names(f"{place}/{kind}"):
                for name in files:
                    if found := tree.word(f"{place}/{kind}/{entry}/{name}"):
                        return found
    return None


def _model(tree: Tree, places: Iterable[str]) -> str | None:
    for place in places:
        for kind, name in (("nvme", "model"), ("infiniband", "hca_type"), ("scsi_host", "proc_name")):
            for entry in tree.names(f"{place}/{kind}"):
                if found := tree.word(f"{place}/{kind}/{entry}/{name}"):
                    return found
    return None


def _interrupts(tree: Tree, own: str) -> tuple[int, tuple[int, ...] | None]:
    """Return how many interrupts a device has, and the CPUs that they are delivered to."""
    numbers = tree.numbered(f"{own}/msi_irqs", "")
    if not numbers:
        number = tree.parse(f"{own}/irq", count)
        numbers = (number,) if number else ()
    cpus: set[int] = set()
    known = False
    for number in numbers:
        where = read_set(tree, f"/proc/irq/{number}", ("effective_affinity_list",), ("effective_affinity",))
        where = where or read_set(tree, f"/proc/irq/{number}", ("smp_affinity_list",), ("smp_affinity",))
        if where is not None:
            known = True
            cpus.update(where)
    return len(numbers), tuple(sorted(cpus)) if known else None


def _basename(target: str | None) -> str | None:
    return None if target is None else visible(posixpath.basename(target)) or None


def _kind(code: int) -> Literal["network", "storage", "accelerator"] | None:
    return next((kind for start, kind in CLASSES.items() if f"{code:#08x}".startswith(start)), None)


def read_devices(tree: Tree, isolated: frozenset[int], *, captured: bool) -> tuple[Device, ...] | None:
    """Return the devices, by address; None for captures made before devices were *captured*.

    Virtual functions of the machine's own devices are counted at their physical function.
    """
    if not tree.is_dir(PCI):
        return () if captured else None
    found = []
    for address in tree.names(PCI):
        code = tree.parse(f"{PCI}/{address}/class", hexadecimal)
        kind = None if code is None else _kind(code)
        if code is None or kind is None or tree.link(f"{PCI}/{address}/physfn") is not None:
            continue
        chain = _chain(tree, address)
        own = chain[0]
        places = _inner(tree, own)
        driver = _basename(tree.link(f"{own}/driver"))
        group = _basename(tree.link(f"{own}/iommu_group"))
        node = tree.parse(f"{own}/numa_node", integer)
        interrupts, cpus = _interrupts(tree, own)
        firmware = _firmware(tree, places)
        found.append(
            Device(
                address=visible(address),
                kind=kind,
                class_code=code,
                id=_pair(tree, own, "vendor", "device"),
                subsystem=_pair(tree, own, "subsystem_vendor", "subsystem_device"),
                driver=driver,
                driver_version=tree.word(f"/sys/module/{driver.replace('-', '_')}/version") if driver else None,
                model=_model(tree, places),
                firmware=firmware,
                firmware_reason=None if firmware else NOT_PUBLISHED if driver else "it has no driver",
                node=node if node is not None and node >= 0 else None,
                local_cpus=tree.parse(f"{own}/local_cpulist", parse_cpulist),
                iommu_group=int(group) if group is not None and group.isascii() and group.isdigit() else None,
                interfaces=_interfaces(tree, places),
                virtual_functions=tree.parse(f"{own}/sriov_numvfs", count),
                links=_links(tree, chain),
                interrupts=interrupts,
                interrupt_cpus=cpus,
                isolated_cpus=tuple(cpu for cpu in cpus or () if cpu in isolated),
            )
        )
    return tuple(found)


def link_text(device: Device) -> str | None:
    """Return a device's link, as ``x8 of x16, 8 of 16 GT/s``, of what both ends can; None without a link.

    A port that can less than the device is named, and a link of a switch above it that carries less.
    """
    link = device.link
    if link is None:
        return None
    width, speed = link.possible_width, link.possible_speed_gt_s
    lanes_text = f"x{link.width}" + (f" of x{width}" if width is not None else "")
    rate = "" if link.speed_gt_s is None else f", {link.speed_gt_s:g}"
    rate += f" of {speed:g} GT/s" if rate and speed is not None else " GT/s" if rate else ""
    slot = ""
    if link.held_back and link.device_width is not None and link.device_speed_gt_s is not None:
        slot = f" (the device can x{link.device_width}, {link.device_speed_gt_s:g} GT/s)"
    above = [item for item in device.links[1:] if _rate(item) and _rate(item) < _rate(link)]
    narrowest = min(above, key=_rate, default=None)
    if narrowest is not None:
        slot += f", behind a switch with x{narrowest.width}, {narrowest.speed_gt_s:g} GT/s"
    return f"{lanes_text}{rate}{slot}"


def _rate(link: PciLink) -> float:
    """Return what a link carries, in lanes times GT/s; 0 if unknown."""
    return (link.width or 0) * (link.speed_gt_s or 0)


def narrowed_links(devices: Iterable[Device]) -> Iterator[tuple[PciLink, tuple[Device, ...]]]:
    """Yield links with fewer lanes than both ends have, each once, with the devices behind them."""
    behind: dict[str, tuple[PciLink, tuple[Device, ...]]] = {}
    for device in devices:
        for link in device.links:
            if link.narrowed and link.port is not None:
                behind[link.port] = (link, (*behind.get(link.port, (link, ()))[1], device))
    yield from behind.values()
