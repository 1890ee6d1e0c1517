# SPDX-License-Identifier: Apache-2.0
"""CPU and node lists in the kernel's notation.

Source: ``lib/bitmap-str.c`` (``bitmap_parselist``, ``bitmap_parse``) and
``Documentation/admin-guide/kernel-parameters.rst`` ("cpu lists") of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress
from typing import Final

BOOT_CPU: Final = 0
"""Linux numbers the CPU that it boots on 0."""

MAX_ID = 8191
"""Largest CPU or node number accepted: kernels support at most 8192 CPUs (x86 with MAXSMP)."""

MAX_CHARACTERS = 64 * 1024
"""Longest list accepted: one that lists each of 8192 CPUs has 40,000 characters."""

_IDS = tuple(range(MAX_ID + 1))
_BIT_VALUES = bytes.maketrans(b"01", b"\0\1")

_GROUP = re.compile(
    r"(?:([aA][lL][lL])|([0-9]{1,19}|N)-([0-9]{1,19}|N))(?::([0-9]{1,10})/([0-9]{1,10}))?|([0-9]{1,19}|N)", re.ASCII
)
_MASK_CHUNK = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)


def _bound(text: str, last: int | None, whole: str) -> int:
    if text == "N":
        if last is None:
            raise ValueError(f"{whole!r} names the last CPU (N), which this capture does not say")
        return last
    value = int(text)
    if value > MAX_ID:
        raise ValueError(f"{value} in {whole!r} is beyond {MAX_ID}")
    return value


def parse_cpulist(text: str, last: int | None = None) -> tuple[int, ...]:
    """Parse ``0-3,8``, strides ``0-31:2/4``, ``N`` and ``all`` in any case; sorted, without repetitions.

    ``last`` is the highest possible number, needed by ``N`` and ``all``. Empty text is the empty list. Raises
    ``ValueError`` for anything else.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"CPU list of {len(text)} characters, at most {MAX_CHARACTERS} are read")
    shown = text if len(text) <= 80 else text[:77] + "..."
    found = 0
    for group in groups(text):
        match = _GROUP.fullmatch(group)
        if match is None:
            raise ValueError(f"not a CPU list such as 0-3,8: {shown!r}")
        everything, first_text, last_text, used_text, period_text, single = match.groups()
        if everything:
            first, end = 0, _bound("N", last, shown)
        else:
            first, end = _bound(first_text or single, last, shown), _bound(last_text or single, last, shown)
        if end < first:
            raise ValueError(f"the range {group!r} runs backwards")
        width = end - first + 1
        used, period = (1, 1) if period_text is None else (int(used_text), int(period_text))
        if used > period or not period:
            raise ValueError(f"the stride {group!r} needs used <= period and a period of at least 1")
        found |= _stride(width, used, period) << first
    return _numbers(found)


def groups(text: str) -> list[str]:
    """Return the numbers and ranges of a list as written, without checking them."""
    return [group for group in re.split(r"[,\s]+", text) if group]


def _stride(width: int, used: int, period: int) -> int:
    """Return *width* bits with the first *used* of each *period* set."""
    bits = (1 << min(used, width)) - 1
    while period < width:
        bits |= bits << period
        period *= 2
    return bits & (1 << width) - 1


def _numbers(bits: int) -> tuple[int, ...]:
    """Return the positions of the set bits, lowest first."""
    return tuple(compress(_IDS, f"{bits:b}"[::-1].encode().translate(_BIT_VALUES)))


def parse_cpumask(text: str) -> tuple[int, ...]:
    """Parse a hexadecimal mask such as ``00000000,0000000f``, most significant word first.

    Words are 32 bits wide, or all 64 if one has more than eight digits, as from very old 64-bit kernels. Raises
    ``ValueError`` for anything else, including empty text.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"CPU mask of {len(text)} characters, at most {MAX_CHARACTERS} are read")
    shown = text if len(text) <= 80 else text[:77] + "..."
    bare = text.strip()
    if bare[:2] in ("0x", "0X"):
        bare = bare[2:]
    words = bare.split(",")
    if any(_MASK_CHUNK.fullmatch(word) is None for word in words):
        raise ValueError(f"not a CPU mask such as 00000000,0000000f: {shown!r}")
    width = 64 if any(len(word) > 8 for word in words) else 32
    if len(words) * width > MAX_ID + 1:
        raise ValueError(f"a mask of {len(words) * width} bits is beyond {MAX_ID + 1}")
    return _numbers(int("".join(word.zfill(width // 4) for word in words), 16))


def format_cpulist(numbers: Iterable[int]) -> str:
    """Return the kernel's shortest form, ``0-3,8``; the inverse of :func:`parse_cpulist`."""
    groups: list[list[int]] = []
    for number in sorted(set(numbers)):
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in groups)


MAX_RANGES = 4
"""Ranges named in a sentence: 252 CPUs with gaps would fill the screen."""


def short_cpulist(numbers: Iterable[int]) -> str:
    """Return the list for a sentence, ``0-3, 8``, its first ranges if there are many."""
    ranges = format_cpulist(numbers).split(",")
    return ", ".join(ranges[:MAX_RANGES] + ["..."] * (len(ranges) > MAX_RANGES))


ISOLCPUS_FLAGS = ("nohz", "domain", "managed_irq")


def split_isolcpus(value: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Split ``[flag,...]cpulist`` into flags, unknown flags and the list.

    What begins with a letter is a flag, ``all`` and ``N`` too: the kernel looks for the list behind it. Raises
    ``ValueError`` if a flag has other characters, or nothing follows the last one.
    """
    if len(value) > MAX_CHARACTERS:
        raise ValueError(f"isolcpus= of {len(value)} characters, at most {MAX_CHARACTERS} are read")
    flags: list[str] = []
    unknown: list[str] = []
    rest = value
    while rest[:1].isalpha() and rest[:1].isascii():
        word, comma, rest = rest.partition(",")
        if not all((c.isascii() and c.isalpha()) or c == "_" for c in word):
            raise ValueError(f"not a flag of isolcpus=: {word[:40]!r}")
        if not comma:
            raise ValueError(f"not a CPU list: {word[:40]!r} is taken for a flag, and no list follows")
        (flags if word in ISOLCPUS_FLAGS else unknown).append(word)
    return tuple(flags), tuple(unknown), rest
