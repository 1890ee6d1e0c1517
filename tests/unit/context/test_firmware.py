# SPDX-License-Identifier: Apache-2.0
"""SMBIOS tables: every field's special values, bounds, and what a mask leaves."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.context import firmware, load
from calibration.context.firmware import memory_arrays, memory_devices, parse_entry_point, parse_structures

END = bytes([127, 4, 0, 0]) + b"\0\0"


def structure(kind, body, *strings):
    texts = b"\0".join(text.encode() for text in strings) + b"\0" if strings else b"\0"
    return bytes([kind, len(body) + 4]) + b"\1\0" + body + texts + b"\0"


def dimm(size, extended=0, *, speed=3200, configured=2933, length=0x5C, kind=0x1A):
    area = bytearray(0x5C)
    struct.pack_into("<HHH", area, 0x08, 72, 64, size)
    area[0x0E], area[0x10], area[0x11], area[0x12] = 9, 1, 2, kind
    struct.pack_into("<H", area, 0x15, speed)
    area[0x17], area[0x1A], area[0x1B] = 3, 4, 2
    struct.pack_into("<I", area, 0x1C, extended)
    struct.pack_into("<H", area, 0x20, configured)
    struct.pack_into("<II", area, 0x54, 70000, 66000)
    return structure(17, bytes(area[4:length]), "A1", "BANK 0", "Maker", "PART-1")


def only(content):
    (found,) = memory_devices(parse_structures(content + END))
    return found


def test_a_full_memory_slot():
    found = only(dimm(16384))
    assert (found.locator, found.bank, found.manufacturer, found.part) == ("A1", "BANK 0", "Maker", "PART-1")
    assert (found.size_bytes, found.type, found.form_factor) == (16 << 30, "DDR4", "DIMM")
    assert (found.total_width_bits, found.data_width_bits, found.ranks) == (72, 64, 2)
    assert (found.speed_mt_s, found.configured_mt_s) == (3200, 2933)


@pytest.mark.parametrize(
    ("size", "extended", "expected"),
    [(0, 0, 0), (0xFFFF, 0, None), (0x8200, 0, 512 << 10), (0x7FFF, 65536, 64 << 30), (0x7FFF, 0x80000400, 1 << 30)],
)
def test_special_sizes(size, extended, expected):
    assert only(dimm(size, extended)).size_bytes == expected


def test_unknown_and_extended_speeds():
    assert (only(dimm(1, speed=0)).speed_mt_s, only(dimm(1, speed=0xFFFF)).speed_mt_s) == (None, 70000)
    assert only(dimm(1, configured=0xFFFF)).configured_mt_s == 66000


def test_old_structures_lack_later_fields():
    found = only(dimm(4096, length=0x15))
    assert (found.size_bytes, found.speed_mt_s, found.configured_mt_s, found.part) == (4 << 30, None, None, None)


def test_masked_and_missing_strings_are_none():
    masked = dimm(1).replace(b"PART-1", b"******")
    assert only(masked).part is None
    assert only(dimm(1).replace(b"\0PART-1\0\0", b"\0\0")).part is None


def test_memory_arrays():
    small = structure(16, struct.pack("<BBBIHH", 3, 3, 6, 1024, 0xFFFE, 8))
    large = structure(16, struct.pack("<BBBIHHQ", 3, 3, 5, 0x80000000, 0xFFFE, 16, 4 << 40))
    first, second = memory_arrays(parse_structures(small + large + END))
    assert (first.use, first.error_correction, first.maximum_bytes, first.slots) == (
        "System Memory",
        "Multi-bit ECC",
        1 << 20,
        8,
    )
    assert (second.maximum_bytes, second.slots) == (4 << 40, 16)


@pytest.mark.parametrize("content", [b"\x11\x03\0\0", b"\x11\xff\0\0abc\0\0", b"\x11\x04\0\0abc", b"\x11\x04\0"])
def test_rejects_lengths_beyond_the_table(content):
    with pytest.raises(ValueError, match="structure"):
        parse_structures(content)


def test_damaged_table_is_listed(make_root):
    context = load(make_root({"/sys/devices/system/cpu/online": "0\n", firmware.TABLE: dimm(1)[:-1] + b"\xff\xff"}))
    assert context.firmware.dimms == ()
    assert context.unreadable[0].reason.startswith("unparsable: the strings")


def test_machine_name_from_the_table(make_root):
    area = bytes([1, 2, 3, 0]) + bytes(16) + bytes([0, 0, 0])
    table = structure(1, area, "Vendor", "Product", "v1") + END
    found = load(make_root({"/sys/devices/system/cpu/online": "0\n", firmware.TABLE: table})).firmware
    assert (found.system_vendor, found.product_name, found.product_version) == ("Vendor", "Product", "v1")


def test_reads_entries_of_old_kernels(make_root):
    files = {"/sys/devices/system/cpu/online": "0\n"}
    for number in (0, 1, 10):
        files[f"{firmware.ENTRIES}/17-{number}/raw"] = dimm(1024 * (number + 1))
    found = load(make_root(files)).firmware
    assert [d.size_bytes >> 30 for d in found.dimms] == [1, 2, 11]


def test_entry_points():
    assert parse_entry_point(b"_SM_\0\x1f\x02\x08") == "2.8"
    assert parse_entry_point(b"_SM3_\0\x18\x03\x05") == "3.5"
    with pytest.raises(ValueError, match="_SM3_"):
        parse_entry_point(b"_SM3_")


@given(st.lists(st.sampled_from([dimm(1), END, b"\x11\x04\0\0\0\0", b"\0"]) | st.binary(max_size=30), max_size=6))
def test_any_bytes_give_structures_or_an_error(parts):
    try:
        structures = parse_structures(b"".join(parts))
    except ValueError:
        return
    for found in memory_devices(structures):
        assert found.size_bytes is None or found.size_bytes >= 0
    memory_arrays(structures)
