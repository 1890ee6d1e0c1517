# SPDX-License-Identifier: Apache-2.0
"""SMBIOS tables: every field's special values, bounds, and what a mask leaves."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.context import firmware
from calibration.context.firmware import memory_arrays, memory_devices, parse_entry_point, parse_structures
from calibration.context.loader import load
from calibration.runner.capture import mask_dmi

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
    (found,) = memory_devices(parse_structures(content + END).structures)
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
    first, second = memory_arrays(parse_structures(small + large + END).structures)
    assert (first.use, first.error_correction, first.maximum_bytes, first.slots) == (
        "System Memory",
        "Multi-bit ECC",
        1 << 20,
        8,
    )
    assert (second.maximum_bytes, second.slots) == (4 << 40, 16)


BROKEN = {
    "length 0": b"\xdd\0\1 garbage\0\0",
    "length below a header": b"\x11\x03\0\0" + dimm(1),
    "length beyond the table": b"\x11\xff\0\0abc\0\0",
    "no end of the strings": dimm(1)[:-1],
    "last string cut off": dimm(1)[:-4],
    "half a header": b"\x11\x04\1",
    "random bytes": b"\xff" * 300,
}
SM3, SM2 = b"_SM3_\0\x18\3\5" + bytes(15), b"_SM_\0\x1f\2\x08" + bytes(20) + b"%c\0\0"


def table_of(make_root, table, entry_point=SM3):
    files = {"/sys/devices/system/cpu/online": "0\n", "/proc/meminfo": "MemTotal: 3000 kB\n", firmware.TABLE: table}
    return load(make_root(files | ({firmware.ENTRY_POINT: entry_point} if entry_point else {})))


@pytest.mark.parametrize("masked", [False, True], ids=["live", "captured"])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_what_comes_before_a_broken_structure_is_kept_and_the_fault_noted(make_root, broken, masked):
    table = dimm(1) + dimm(2) + broken
    context = table_of(make_root, mask_dmi(table) if masked else table)
    assert [dimm.size_bytes for dimm in context.firmware.dimms] == [1 << 20, 2 << 20]
    (note,) = context.unreadable
    assert note.path == firmware.TABLE
    first = len(dimm(1) + dimm(2))
    assert note.reason == f"unparsable from byte {first} of {len(table)} on: 2 structures before it are used"
    if masked:
        assert len(mask_dmi(table)) == len(table)
        assert mask_dmi(table)[first:] == b"\xff" * len(broken)


def test_a_table_that_linux_cut_where_it_was_broken_has_no_end(make_root):
    """Linux exports a table up to the first fault (dmi_decode_table): nothing is left of it to see."""
    (note,) = table_of(make_root, dimm(1) + dimm(2)).unreadable
    assert (note.path, note.reason) == (firmware.TABLE, "has no end behind 2 structures")
    (note,) = table_of(make_root, dimm(1) + dimm(2), SM2 % 5).unreadable
    assert note.reason == "ends behind 2 of 5 structures"
    for table, entry_point in (
        (dimm(1) + END, SM3),
        (dimm(1), SM2 % 1),
        (dimm(1), None),
        (dimm(1) + bytes(9), SM2 % 1),
    ):
        assert table_of(make_root, table, entry_point).unreadable == ()


def test_only_tables_of_the_old_entry_point_go_on_behind_their_end(make_root):
    table = dimm(1) + END + dimm(2)
    for content in (table, mask_dmi(table)):
        context = table_of(make_root, content)
        assert (len(context.firmware.dimms), len(context.unreadable)) == (1, 1)
        assert context.unreadable[0].reason == f"ends at byte {len(dimm(1) + END)} of {len(table)}"
        assert len(table_of(make_root, content, SM2 % 3).firmware.dimms) == 2
    for rest in (b"rest", bytes(9), b"\xff" * 9):
        context = table_of(make_root, dimm(1) + END + rest, SM2 % 2)
        assert (len(context.firmware.dimms), context.unreadable) == (1, ())


def test_a_counted_table_ends_at_its_count(make_root):
    """As in Linux (dmi_decode_table): what follows, such as another table, is not part of it."""
    table = dimm(1) + END
    context = table_of(make_root, table + dimm(2) + END, SM2 % 2)
    assert (len(context.firmware.dimms), context.unreadable) == (1, ())


def test_structures_of_memory_that_are_too_short_are_left_out_and_noted(make_root):
    context = table_of(make_root, dimm(1) + structure(17, b"\0" * 8, "A1") + structure(16, b"\3") + END)
    assert (len(context.firmware.dimms), context.firmware.memory_arrays) == (1, ())
    (note,) = context.unreadable
    assert note.reason == "structures of memory that are too short: 2"


def test_one_broken_entry_of_an_old_kernel_loses_itself(make_root):
    files = {"/sys/devices/system/cpu/online": "0\n"}
    for number, raw in enumerate([dimm(1), dimm(2)[:-1], dimm(4)]):
        files[f"{firmware.ENTRIES}/17-{number}/raw"] = raw
    context = load(make_root(files))
    assert [dimm.size_bytes >> 20 for dimm in context.firmware.dimms] == [1, 4]
    (note,) = context.unreadable
    assert note.path == f"{firmware.ENTRIES}/17-1/raw"


def test_vendor_structures_and_equal_handles_lose_no_module(make_root):
    vendor = structure(221, b"\0" * 40, "text")
    context = table_of(make_root, vendor + dimm(1) + structure(130, b"") + dimm(1) + dimm(2) + END)
    assert [dimm.size_bytes >> 20 for dimm in context.firmware.dimms] == [1, 1, 2]
    assert context.unreadable == ()


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
    assert parse_entry_point(b"_SM_\0\x1f\x02\x08") == ("2.8", 0)
    assert parse_entry_point(SM2 % 9) == ("2.8", 9)
    assert parse_entry_point(SM3) == ("3.5", None)
    with pytest.raises(ValueError, match="_SM3_"):
        parse_entry_point(b"_SM3_")


@given(st.lists(st.sampled_from([dimm(1), END, b"\x11\x04\0\0\0\0", b"\0"]) | st.binary(max_size=30), max_size=6))
def test_any_bytes_give_structures(parts):
    structures = parse_structures(b"".join(parts)).structures
    for found in memory_devices(structures):
        assert found.size_bytes is None or found.size_bytes >= 0
    memory_arrays(structures)
