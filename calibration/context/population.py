# SPDX-License-Identifier: Apache-2.0
"""Which memory channels are populated, and their peak bandwidth: channels x MT/s x bytes per transfer.

SMBIOS names slots, not channels; firmware puts the channel into the locator or the bank locator of a slot, and the
wording differs by vendor. The patterns are from DMI tables of real machines; anything unrecognised or ambiguous is
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from calibration.base.model import Model
from calibration.context.firmware import TABLE
from calibration.context.model import Context, Dimm

SEPARATED: Final = r"[ _-]*"
LETTER: Final = re.compile(rf"(?:DIMM{SEPARATED}(?:P\d+{SEPARATED})?|CPU\d+_)([A-X]){SEPARATED}\d{{0,2}}$")
"""``P1-DIMMA1``, ``CPU0_DIMM_A1``, ``DIMM_P0_A0``, ``CPU1_A0``. Letters come before the bank locator, which is wrong on
some boards. A bare ``A1`` does not count: with some vendors the letter is the processor."""
CHANNEL: Final = re.compile(rf"(?:CHANNEL|CHAN|CH){SEPARATED}([A-Z]|\d+)(?![A-Z0-9])|_C(\d+)D\d+$")
"""``P0 CHANNEL A``, ``P0_Node0_Channel0_Dimm0``, ``ChannelA-DIMM0``, ``CPU0 CH0/D0``, ``CPU0_C0D0``."""
SOCKET: Final = re.compile(rf"(?<![A-Z])(?:(?:CPU|PROC|SOCKET){SEPARATED}|P(?=\d+[ _-]))(\d+)")
GROUP: Final = re.compile(rf"(?:NODE|CONTROLLER|MC){SEPARATED}(\d+)")

NO_MEMORY: Final = frozenset({"Flash", "ROM", "VRAM", "Logical non-volatile device"})
SLOTS_PER_CHANNEL: Final = 3
"""More slots of one channel mean that the pattern misread them."""


class ChannelPeak(Model):
    """The memory channels of a machine, a package or a node, how many are ``populated``, and their peak bandwidth.

    ``empty_slots`` are the locators of the slots of unpopulated channels.
    """

    channels: int
    populated: int
    peak_mb_s: float
    empty_slots: tuple[str, ...]


class Population(Model):
    """Populated channels of the machine, by package and by node.

    ``packages`` is empty if slots do not name theirs, ``nodes`` if channels cannot be assigned to nodes.
    """

    machine: ChannelPeak
    packages: dict[int, ChannelPeak]
    nodes: dict[int, ChannelPeak]


class UnknownPopulation(Model):
    """Why the population is unknown."""

    reason: str


class _Channel(NamedTuple):
    socket: str | None
    slot: str
    size_bytes: int
    peak_mb_s: float


def population(context: Context) -> Population | UnknownPopulation:
    """Return the population of the memory channels of *context*, or why it is unknown."""
    try:
        channels = _channels(context)
    except ValueError as error:
        return UnknownPopulation(reason=str(error))
    packages = sorted({core.package_id for core in context.topology.cores if core.package_id is not None})
    sockets = sorted(
        {channel.socket for channel in channels if channel.socket is not None}, key=lambda socket: (len(socket), socket)
    )
    by_package: dict[int, list[_Channel]] = {}
    if len(packages) == 1:
        by_package = {packages[0]: channels}
    elif len(sockets) == len(packages) and all(channel.socket is not None for channel in channels):
        by_package = {
            package: [channel for channel in channels if channel.socket == socket]
            for package, socket in zip(packages, sockets, strict=True)
        }
    return Population(
        machine=_peak(channels),
        packages={package: _peak(own) for package, own in by_package.items()},
        nodes=_nodes(context, by_package),
    )


def unread_slots(context: Context) -> str | None:
    """Return why not all memory slots are known, or not whether they are filled; None if all are."""
    known = context.firmware.dimms
    for dimm in known:
        if dimm.size_bytes is None and dimm.type not in NO_MEMORY:
            return f"the firmware gives no size for memory slot {dimm.locator or dimm.bank or ''}".rstrip()
    slots = sum(array.slots or 0 for array in context.firmware.memory_arrays if array.use == "System Memory")
    missing = len(known) < slots or sum(dimm.size_bytes or 0 for dimm in known) < (context.memory.total_bytes or 0)
    reason = next((file.reason for file in context.unreadable if file.path.startswith(TABLE)), None)
    return f"the SMBIOS table is broken: {reason}" if missing and known and reason is not None else None


def _channels(context: Context) -> list[_Channel]:
    """Return the channels in the table's order. Raises ``ValueError`` with the reason if they are ambiguous."""
    if context.virtualization.guest:
        raise ValueError("a virtual machine does not show the memory slots of its host")
    dimms = [device for device in context.firmware.dimms if device.type not in NO_MEMORY]
    if not any(device.size_bytes for device in dimms):
        unread = next((file.reason for file in context.unreadable if file.path == TABLE), "only root reads it")
        raise ValueError(f"the SMBIOS table shows no populated memory slot ({unread})")
    if (reason := unread_slots(context)) is not None:
        raise ValueError(reason)
    if any((device.type or "").startswith("HBM") for device in dimms):
        raise ValueError("the processor has memory of its own (HBM) beside its channels")
    packages = len({core.package_id for core in context.topology.cores})
    named = [(device.locator or "", device.bank or "") for device in dimms]
    if len(set(named)) < len(named):
        raise ValueError("several memory slots have one name")
    found: dict[tuple[str | None, ...], list[Dimm]] = {}
    groups = {match[1] for _, bank in named if (match := GROUP.search(bank.upper()))}
    for dimm, (locator, bank) in zip(dimms, named, strict=True):
        texts = (locator.upper(), bank.upper())
        channel = LETTER.search(texts[0])
        place = next((text for text in (texts[1], texts[0]) if CHANNEL.search(text)), "")
        channel, within = (channel, None) if channel else (CHANNEL.search(place), GROUP.search(place))
        if channel is None:
            raise ValueError(f"memory slot {locator or bank!r} does not name its channel")
        socket = SOCKET.search(texts[0]) or SOCKET.search(texts[1])
        if socket is None and len(groups) == packages:
            socket = GROUP.search(texts[1])
        key = (socket and socket[1], within and within[1], channel[1] or channel[channel.lastindex or 0])
        found.setdefault(key, []).append(dimm)
    if max(len(slots) for slots in found.values()) > SLOTS_PER_CHANNEL:
        raise ValueError("the names of the memory slots give one channel more slots than any has")
    return [_channel(key[0], slots) for key, slots in found.items()]


def _channel(socket: str | None, slots: Sequence[Dimm]) -> _Channel:
    modules = [slot for slot in slots if slot.size_bytes]
    peak_mb_s = min((_mb_s(module) for module in modules), default=0.0)
    first = slots[0].locator or slots[0].bank or ""
    return _Channel(socket, first, sum(module.size_bytes or 0 for module in modules), peak_mb_s)


def _mb_s(dimm: Dimm) -> float:
    name, rated = dimm.locator or dimm.bank, dimm.speed_mt_s
    if not dimm.configured_mt_s or not dimm.data_width_bits:
        raise ValueError(f"the firmware gives no configured speed or no width for memory slot {name}")
    if rated and 2 * dimm.configured_mt_s <= rated + 2:
        raise ValueError(f"the configured speed of memory slot {name} may be in MHz: it is half the rated one")
    return dimm.configured_mt_s * dimm.data_width_bits / 8


def _peak(channels: Sequence[_Channel]) -> ChannelPeak:
    empty = tuple(channel.slot for channel in channels if not channel.size_bytes)
    peak_mb_s = sum(channel.peak_mb_s for channel in channels)
    return ChannelPeak(
        channels=len(channels), populated=len(channels) - len(empty), peak_mb_s=peak_mb_s, empty_slots=empty
    )


def _nodes(context: Context, by_package: Mapping[int, Sequence[_Channel]]) -> dict[int, ChannelPeak]:
    """Return the channels by node if the nodes of each package have equal shares of its channels.

    An unequal population is assigned by the nodes' memory, if all populated channels have equal modules. Emulated nodes
    have all channels of the node that they are parts of.
    """
    package_of = {cpu: core.package_id for core in context.topology.cores for cpu in core.cpus}
    found: dict[int, ChannelPeak] = {}
    for package, channels in by_package.items():
        nodes = [
            [context.node(part) for part in context.parts_of(node)]
            for node, cpus in context.cpus_by_node.items()
            if cpus and package_of.get(cpus[0]) == package
        ]
        whole, alike = (
            _peak(channels),
            {(channel.size_bytes, channel.peak_mb_s) for channel in channels if channel.size_bytes},
        )
        if len(nodes) == 1:
            found |= {part.id: whole for part in nodes[0]}
            continue
        if not nodes or len(channels) % len(nodes) or len(alike) != 1:
            return {}
        share, ((size_bytes, mb_s),) = len(channels) // len(nodes), alike
        populated = [round(sum(part.memory_bytes or 0 for part in parts) / size_bytes) for parts in nodes]
        if sum(populated) != whole.populated or max(populated) > share:
            return {}
        for parts, count in zip(nodes, populated, strict=True):
            empty = whole.empty_slots if share - count == len(whole.empty_slots) else ()
            peak = ChannelPeak(channels=share, populated=count, peak_mb_s=count * mb_s, empty_slots=empty)
            found |= {part.id: peak for part in parts}
    return found
