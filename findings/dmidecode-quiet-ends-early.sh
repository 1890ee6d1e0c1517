#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: dmidecode 3.4 (Debian 3.4-1)
# Expected: --quiet leaves out messages and what is not supported, and shows the same memory modules
# Seen: with --quiet a module behind an end-of-table structure is missing, without a word and with exit status 0. Tables of
#   the 32-bit entry point count their structures, and some go on behind that marker
# Source: dmi_table_decode() of dmidecode.c; dmi_decode_table() in drivers/firmware/dmi_scan.c of Linux reads on as well
# Here: calibration/context/firmware.py reads on if the entry point counts the structures, and notes a table that has fewer
set -eu
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null && command -v python3 > /dev/null || exit 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download dmidecode=3.4-1 > made.log 2>&1 || { cat made.log; exit 3; }
dpkg-deb -x dmidecode_3.4-1_*.deb .
python3 - <<'END'
import struct


def structure(kind, handle, body=b"", *strings):
    texts = b"".join(text + b"\0" for text in strings) or b"\0"
    return struct.pack("<BBH", kind, len(body) + 4, handle) + body + texts + b"\0"


def module(handle, slot):
    area = bytearray(0x28)
    struct.pack_into("<HHH", area, 0x08, 72, 64, 16384)
    area[0x0E], area[0x10], area[0x11], area[0x12] = 9, 1, 2, 0x1A
    return structure(17, handle, bytes(area[4:]), slot, b"BANK")


table = module(1, b"A1") + structure(127, 2) + module(3, b"B1")
entry = bytearray(32)
struct.pack_into("<4s2B2BH", entry, 0, b"_SM_", 0, 0x1F, 2, 8, 0x60)
struct.pack_into("<5sBHIHB", entry, 16, b"_DMI_", 0, len(table), 32, 3, 0x28)
entry[21] = -sum(entry[16:31]) % 256
entry[4] = -sum(entry[:31]) % 256
with open("dump", "wb") as stream:
    stream.write(entry + table)
END
count() { ./usr/sbin/dmidecode "$@" --type 17 --from-dump dump | grep -c '^	Locator:'; }
seen="memory modules: $(count) of 2, with --quiet $(count --quiet)"
echo "$seen"
test "$seen" = "memory modules: 2 of 2, with --quiet 1"
