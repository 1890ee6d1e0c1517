# SPDX-License-Identifier: Apache-2.0
"""Numbers of CPUs and nodes in the kernel's notation."""

from __future__ import annotations


def format_ranges(numbers):
    """Return *numbers* in the kernel's format: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in parts)


def parse_ranges(text):
    """Return the numbers of ``0-3,8``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
