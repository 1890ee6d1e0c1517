# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of formats: the fixtures, and every figure of a text under a unique name."""

import gzip
import json
import re
from pathlib import Path

from calibration.base.errors import InputError
from calibration.formats.csit_page import Published, read_published
from calibration.formats.lines import number, plain
from calibration.formats.readings import Read, ReadIdleLatency, ReadJitter, ReadLoadedLatency, ReadMemoryCurves

FIXTURES = Path(__file__).parent / "fixtures"
RAW = sorted([*(FIXTURES / "mlc").glob("*.txt"), *(FIXTURES / "pma_jitter").glob("*.txt")])
MESS = FIXTURES / "mess" / "three-ratios.csv"
PAGES = sorted((FIXTURES / "pages").glob("*.rst"))

CORPUS = FIXTURES / "mutated" / "corpus.jsonl.gz"
"""Mutated texts, found by coverage-guided search, that reach what no fixture does, as JSON strings, one per line."""

SCALES = (1.0, 1e3, 1e6, 1e-3, 1.048576, 1073.741824, 1024e-6)
"""Factors between a number in a text and a value: its unit."""


def figures(read: Read) -> dict[str, float]:
    """Return every figure of *read* by a name that is stable when the text is truncated."""
    found: dict[str, float] = {}
    for reading in read.readings:
        values = reading.values
        if isinstance(values, ReadJitter):
            for place, interval in enumerate(values.intervals):
                for name, ticks in interval.model_dump().items():
                    found[f"{reading.id}.{place}.{name}"] = ticks
        elif isinstance(values, ReadLoadedLatency):
            for point in values.points:
                found[f"{reading.id}.{point.inject_delay}.latency_ns"] = point.latency_ns
                found[f"{reading.id}.{point.inject_delay}.bandwidth_mb_s"] = point.bandwidth_mb_s
        elif isinstance(values, ReadMemoryCurves):
            for curve in values.curves:
                for place, point in enumerate(curve.points):
                    found[f"{reading.id}.{curve.reads_percent}.{place}.latency_ns"] = point.latency_ns
                    found[f"{reading.id}.{curve.reads_percent}.{place}.bandwidth_mb_s"] = point.bandwidth_mb_s
        else:
            found |= {f"{reading.id}.{metric.name}": metric.value for metric in values.metrics()}
        if isinstance(values, ReadIdleLatency) and values.clocks is not None:
            found[f"{reading.id}.clocks"] = values.clocks
    return found


def invented(read: Read, text: str) -> dict[str, float]:
    """Return the figures of *read* that match no number of *text* in any unit."""
    shown = plain(text)
    tokens = re.findall(r"\d+(?:\.\d+)?", shown, re.ASCII)
    numbers = {float(token) if "." in token else int(token) for token in tokens if len(token) < 30}
    numbers |= {value for item in re.findall(r"[\d.,]+", shown, re.ASCII) if (value := number(item)) is not None}
    possible = {number if scale == 1 else number * scale for number in numbers for scale in SCALES}
    sizes = [int(size.replace(",", "")) for size in re.findall(r"= ([\d,]+) Bytes", text) if size.strip(",")]
    possible |= {number * (size / 1e6) for size in sizes for number in numbers}
    return {name: value for name, value in figures(read).items() if value not in possible}


def hold(raw: bytes) -> Read | None:
    """Check what must be so of any text: it is read or refused by name, every figure stands in it, nothing contradicts
    the model. Return what was read, ``None`` if it was refused.
    """
    text = raw.decode("utf-8", errors="replace")
    try:
        published = read_published(text)
    except InputError:
        return None
    made_up = invented(published.read, text)
    if made_up:
        raise AssertionError(f"expected figures of the text, found {made_up}")
    if Published.model_validate_json(published.model_dump_json()) != published:
        raise AssertionError("expected the same after a way through JSON")
    for reading in published.read.readings:
        if reading.complete and reading.missing:
            raise AssertionError(f"expected nothing missing of the complete {reading.id}, found {reading.missing}")
    return published.read


def corpus() -> list[bytes]:
    """Return the mutated texts."""
    lines = gzip.decompress(CORPUS.read_bytes()).decode("ascii").splitlines()
    return [str(json.loads(line)).encode("utf-8", errors="surrogateescape") for line in lines]
