# SPDX-License-Identifier: Apache-2.0
"""Firmware identity and memory slots: ``/sys/class/dmi/id`` and the SMBIOS table.

Source: DMTF DSP0134, System Management BIOS Reference Specification 3.7, sections 5.2 (entry points), 6.1
(structures), 7.17 (type 16) and 7.18 (type 17). Serial numbers, UUIDs and asset tags are never read.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibration.context.model import Dimm, Firmware, MemoryArray
from calibration.context.tree import Tree

DMI_ID = "/sys/class/dmi/id"
TABLE = "/sys/firmware/dmi/tables/DMI"
ENTRY_POINT = "/sys/firmware/dmi/tables/smbios_entry_point"
ENTRIES = "/sys/firmware/dmi/entries"
MASK = "*"
"""The capture overwrites every character of a blanked string with this; such a string is unknown."""

HEADER = 4
"""Bytes of a structure's header: type, length and handle."""

END_OF_TABLE = 127
SHORTEST = {16: 0x0F, 17: 0x15}
"""Bytes that a structure has in the oldest version of the specification: a shorter one is broken."""

MAX_STRUCTURES = 65536
MAX_STRING = 200
"""Most characters kept of a string; versions before 2.7 of the specification allowed 64."""

MEMORY_TYPES = {
    0x03: "DRAM",
    0x04: "EDRAM",
    0x05: "VRAM",
    0x06: "SRAM",
    0x07: "RAM",
    0x08: "ROM",
    0x09: "Flash",
    0x0F: "SDRAM",
    0x11: "RDRAM",
    0x12: "DDR",
    0x13: "DDR2",
    0x14: "DDR2 FB-DIMM",
    0x18: "DDR3",
    0x19: "FBD2",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x1F: "Logical non-volatile device",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}
FORM_FACTORS = {
    0x03: "SIMM",
    0x04: "SIP",
    0x05: "Chip",
    0x06: "DIP",
    0x07: "ZIP",
    0x08: "Proprietary Card",
    0x09: "DIMM",
    0x0A: "TSOP",
    0x0B: "Row of chips",
    0x0C: "RIMM",
    0x0D: "SODIMM",
    0x0E: "SRIMM",
    0x0F: "FB-DIMM",
    0x10: "Die",
    0x11: "CAMM",
}
ARRAY_USES = {
    0x03: "System Memory",
    0x04: "Video Memory",
    0x05: "Flash Memory",
    0x06: "Non-volatile RAM",
    0x07: "Cache Memory",
}
ERROR_CORRECTIONS = {
    0x03: "None",
    0x04: "Parity",
    0x05: "Single-bit ECC",
    0x06: "Multi-bit ECC",
    0x07: "CRC",
}


@dataclass(frozen=True)
class Structure:
    """One SMBIOS structure: its type, formatted area (header included) and strings."""

    type: int
    area: bytes
    strings: tuple[str, ...]

    def number(self, offset: int, size: int) -> int | None:
        """Return a little-endian field.

        None if the structure is too short to have it (an older specification).
        """
        end = offset + size
        return int.from_bytes(self.area[offset:end], "little") if end <= len(self.area) else None

    def string(self, offset: int) -> str | None:
        """Return a string field.

        None if missing, blank, masked or out of range.
        """
        index = self.number(offset, 1)
        if not index or index > len(self.strings):
            return None
        text = self.strings[index - 1].strip()[:MAX_STRING]
        return text if text.strip(MASK) else None


@dataclass(frozen=True)
class Table:
    """The structures of an SMBIOS table up to its end or the first fault, and that ``fault``."""

    structures: tuple[Structure, ...]
    fault: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the table has its end marker."""
        return any(structure.type == END_OF_TABLE for structure in self.structures)


def _next(table: bytes, offset: int) -> tuple[Structure, int] | None:
    """Return the structure at *offset*, and where it ends; None if there is no sound one."""
    if offset + HEADER > len(table):
        return None
    kind, length = table[offset], table[offset + 1]
    end = table.find(b"\0\0", offset + length)
    if length < HEADER or offset + length > len(table) or end < 0:
        return None
    texts = tuple(
        "".join(c if c.isprintable() else "?" for c in raw.decode("ascii", "replace").replace("\ufffd", "?"))
        for raw in table[offset + length : end].split(b"\0")
    )
    return Structure(kind, table[offset : offset + length], texts if texts != ("",) else ()), end + 2


def parse_structures(table: bytes, *, counted: int | None = None) -> Table:
    """Return the structures of a table, of which the entry point may have *counted* so many.

    Behind a structure with an impossible length or without the end of its strings, no other can be found: dmidecode and
    Linux stop there too. Counted tables may go on behind their end marker, and end at their count
    (``drivers/firmware/dmi_scan.c`` of Linux).
    """
    found: list[Structure] = []
    offset, ended, size = 0, False, len(table.rstrip(b"\0"))
    while offset < size and (len(found) < counted if counted else not ended):
        known = _next(table, offset)
        if known is None or len(found) == MAX_STRUCTURES:
            fault = f"unparsable from byte {offset} of {len(table)} on: {len(found)} structures before it are used"
            return Table(tuple(found), None if ended else fault)
        structure, offset = known
        found.append(structure)
        ended = ended or structure.type == END_OF_TABLE
    return Table(tuple(found), f"ends at byte {offset} of {len(table)}" if offset < size and not counted else None)


def parse_entry_point(content: bytes) -> tuple[str, int | None]:
    """Return the SMBIOS version, such as ``3.2``, and the number of structures, None if the entry point counts none.

    Raises ``ValueError``.
    """
    if content[:5] == b"_SM3_" and len(content) >= 9:
        return f"{content[7]}.{content[8]}", None
    if content[:4] == b"_SM_" and len(content) >= 8:
        return f"{content[6]}.{content[7]}", int.from_bytes(content[0x1C:0x1E], "little")
    raise ValueError("no entry point that starts with _SM3_ or _SM_")


def _size_bytes(structure: Structure) -> int | None:
    """Return the size in bytes.

    0 is an empty slot, 0xFFFF unknown, 0x7FFF "see the extended size", bit 15 "KiB instead of MiB".
    """
    size = structure.number(0x0C, 2)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        extended = structure.number(0x1C, 4)
        return None if extended is None else (extended & 0x7FFF_FFFF) << 20
    return (size & 0x7FFF) << (10 if size & 0x8000 else 20)


def _speed(structure: Structure, offset: int, extended_offset: int) -> int | None:
    speed = structure.number(offset, 2)
    if speed == 0xFFFF:
        speed = structure.number(extended_offset, 4)
    return speed or None


def _width(structure: Structure, offset: int) -> int | None:
    width = structure.number(offset, 2)
    return None if width in (0, 0xFFFF) else width


def memory_devices(structures: tuple[Structure, ...]) -> tuple[Dimm, ...]:
    """Return the type 17 structures, in table order."""
    return tuple(
        Dimm(
            locator=s.string(0x10),
            bank=s.string(0x11),
            size_bytes=_size_bytes(s),
            type=MEMORY_TYPES.get(s.number(0x12, 1) or 0),
            form_factor=FORM_FACTORS.get(s.number(0x0E, 1) or 0),
            data_width_bits=_width(s, 0x0A),
            total_width_bits=_width(s, 0x08),
            ranks=((s.number(0x1B, 1) or 0) & 0x0F) or None,
            speed_mt_s=_speed(s, 0x15, 0x54),
            configured_mt_s=_speed(s, 0x20, 0x58),
            manufacturer=s.string(0x17),
            part=s.string(0x1A),
        )
        for s in structures
        if s.type == 17
    )


def memory_arrays(structures: tuple[Structure, ...]) -> tuple[MemoryArray, ...]:
    """Return the type 16 structures, in table order."""
    arrays = []
    for s in structures:
        if s.type != 16:
            continue
        kibibytes = s.number(0x07, 4)
        maximum = kibibytes << 10 if kibibytes else None
        if kibibytes == 0x8000_0000:  # "see the extended maximum"
            maximum = s.number(0x0F, 8)
        arrays.append(
            MemoryArray(
                use=ARRAY_USES.get(s.number(0x05, 1) or 0),
                error_correction=ERROR_CORRECTIONS.get(s.number(0x06, 1) or 0),
                maximum_bytes=maximum,
                slots=s.number(0x0D, 2),
            )
        )
    return tuple(arrays)


def _read_table(tree: Tree, version: str | None, count: int | None) -> tuple[Structure, ...]:
    """Return the sound structures of the table; what it lacks is noted."""
    content = tree.raw(TABLE)
    if not content:
        return _structures_of_entries(tree)
    table = parse_structures(content, counted=count)
    known, fault = len(table.structures), table.fault
    if fault is None and count is not None and known < count:
        fault = f"ends behind {known} of {count} structures"
    elif fault is None and version is not None and count is None and not table.ended:
        fault = f"has no end behind {known} structures"  # Linux cuts it where it is broken
    if fault is not None:
        tree.note(TABLE, fault)
    return _sound(tree, TABLE, table.structures)


def _structures_of_entries(tree: Tree) -> tuple[Structure, ...]:
    """Return the structures of ``/sys/firmware/dmi/entries``, the only source before Linux 4.2."""
    found: list[Structure] = []
    for kind in (0, 1, 2, 16, 17):
        for instance in tree.numbered(ENTRIES, f"{kind}-"):
            path = f"{ENTRIES}/{kind}-{instance}/raw"
            table = parse_structures(tree.raw(path) or b"")
            if table.fault is not None:
                tree.note(path, table.fault)
            found += _sound(tree, path, table.structures)
    return tuple(found)


def _sound(tree: Tree, path: str, structures: tuple[Structure, ...]) -> tuple[Structure, ...]:
    """Return *structures* without those of memory that are too short, which are noted."""
    sound = tuple(s for s in structures if len(s.area) >= SHORTEST.get(s.type, HEADER))
    if short := len(structures) - len(sound):
        tree.note(path, f"structures of memory that are too short: {short}")
    return sound


def read_firmware(tree: Tree) -> Firmware:
    """Return firmware, board and memory slots; facts missing from the capture are None (or empty).

    Without ``/sys/class/dmi/id`` the table's types 0, 1 and 2 are used.
    """
    version, count = None, None
    entry_point = tree.raw(ENTRY_POINT)
    if entry_point:
        try:
            version, count = parse_entry_point(entry_point)
        except ValueError as error:
            tree.note(ENTRY_POINT, f"unparsable: {error}")
    structures = _read_table(tree, version, count)
    by_type = {s.type: s for s in reversed(structures)}

    def fact(name: str, kind: int, offset: int) -> str | None:
        text = tree.word(f"{DMI_ID}/{name}")
        if text is None and kind in by_type:
            text = by_type[kind].string(offset)
        return text

    def serial(name: str) -> str | None:
        """Return a serial number that was captured, with consent; of the running machine none is read."""
        return None if str(tree.root) == "/" else tree.word(f"{DMI_ID}/{name}_serial")

    return Firmware(
        bios_vendor=fact("bios_vendor", 0, 0x04),
        bios_version=fact("bios_version", 0, 0x05),
        bios_release=tree.word(f"{DMI_ID}/bios_release"),
        bios_date=fact("bios_date", 0, 0x08),
        system_vendor=fact("sys_vendor", 1, 0x04),
        product_name=fact("product_name", 1, 0x05) or _device_tree_model(tree),
        product_version=fact("product_version", 1, 0x06),
        product_family=fact("product_family", 1, 0x1A),
        board_vendor=fact("board_vendor", 2, 0x04),
        board_name=fact("board_name", 2, 0x05),
        board_version=fact("board_version", 2, 0x06),
        system_serial=serial("product"),
        board_serial=serial("board"),
        chassis_serial=serial("chassis"),
        smbios_version=version,
        memory_arrays=memory_arrays(structures),
        dimms=memory_devices(structures),
        virtual_machine=_is_virtual(by_type[0]) if 0 in by_type else None,
    )


def _is_virtual(bios: Structure) -> bool | None:
    """Return whether the firmware says that it is a virtual machine's; None before SMBIOS 2.4."""
    characteristics = bios.number(0x13, 1)
    return None if characteristics is None else bool(characteristics & 0x10)


def _device_tree_model(tree: Tree) -> str | None:
    for base in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        model = tree.word(f"{base}/model")
        if model:
            return model
    return None
