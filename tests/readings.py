# SPDX-License-Identifier: Apache-2.0
"""What tests of formats share: the fixtures, and every figure of a text by a name of its own."""

import re
from pathlib import Path

from calibration.results.readings import Read, ReadIdleLatency, ReadJitter, ReadLoadedLatency

FIXTURES = Path(__file__).parent / "fixtures"
RAW = sorted([*(FIXTURES / "mlc").glob("*.txt"), *(FIXTURES / "pma_jitter").glob("*.txt")])
PAGES = sorted((FIXTURES / "pages").glob("*.rst"))

SCALES = (1.0, 1e3, 1e6, 1e-3, 1.048576, 1073.741824, 1024e-6)
"""What a number of a text may be multiplied by to become a value: its unit."""


def figures(read: Read) -> dict[str, float]:
    """Return every figure of *read* by a name that a shorter text of the same output gives it too."""
    found: dict[str, float] = {}
    for each in read.readings:
        values = each.values
        if isinstance(values, ReadJitter):
            for place, interval in enumerate(values.intervals):
                for name, ticks in interval.model_dump().items():
                    found[f"{each.id}.{place}.{name}"] = ticks
        elif isinstance(values, ReadLoadedLatency):
            for point in values.points:
                found[f"{each.id}.{point.inject_delay}.latency_ns"] = point.latency_ns
                found[f"{each.id}.{point.inject_delay}.bandwidth_mb_s"] = point.bandwidth_mb_s
        else:
            found |= {f"{each.id}.{metric.name}": metric.value for metric in values.metrics()}
        if isinstance(values, ReadIdleLatency) and values.clocks is not None:
            found[f"{each.id}.clocks"] = values.clocks
    return found


def invented(read: Read, text: str) -> dict[str, float]:
    """Return the figures of *read* that are no number of *text* in any unit."""
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d+)?", text, re.ASCII)}
    possible = {number if scale == 1 else number * scale for number in numbers for scale in SCALES}
    sizes = [int(size.replace(",", "")) for size in re.findall(r"= ([\d,]+) Bytes", text) if size.strip(",")]
    possible |= {number * (size / 1e6) for size in sizes for number in numbers}
    return {name: value for name, value in figures(read).items() if value not in possible}
