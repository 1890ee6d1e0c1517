# SPDX-License-Identifier: Apache-2.0
"""Units in the output of Intel MLC."""

import re
from collections.abc import Mapping
from typing import Final

TIME: Final = r"(?a:(?P<unit>n|u|\u00b5|\u03bc|m|nano|micro|milli)s(?:ec(?:ond)?s?)?)"
RATE: Final = r"(?a:(?P<unit>[KMG]i?B)(?:/s(?:ec(?:ond)?)?| per second))"
TIME_WORD: Final = re.compile(rf"\(?{TIME}\)?", re.IGNORECASE)
RATE_WORD: Final = re.compile(rf"\(?{RATE}\)?", re.IGNORECASE)
LATENCY_UNIT: Final = re.compile(rf"(?:\bin |\(){TIME}\b", re.IGNORECASE)
BANDWIDTH_UNIT: Final = re.compile(
    rf"(?:Bandwidths? (?:are|is) in |\((?:in )?){RATE}\b"
    r"(?:\s{0,9}\(1 [KMG]i?B/s(?:ec)? = (?P<bytes>[1-9][\d,]{0,23}) Bytes/s)?",
    re.IGNORECASE,
)

SCALES: Final[Mapping[str, float]] = {
    **dict.fromkeys(("n", "nano"), 1.0),
    **dict.fromkeys(("u", "\u00b5", "\u03bc", "micro"), 1e3),
    **dict.fromkeys(("m", "milli"), 1e6),
    "kb": 1e-3,
    "mb": 1.0,
    "gb": 1e3,
    "kib": 1024e-6,
    "mib": 1.048576,
    "gib": 1073.741824,
}
"""Size of one unit in ns or in MB/s."""


def unit_size(match: re.Match[str]) -> float:
    """Return the size in ns or in MB/s of the unit in *match*."""
    return SCALES[match["unit"].lower()]
