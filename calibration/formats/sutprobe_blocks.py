# SPDX-License-Identifier: Apache-2.0
"""The result blocks on pages of this project whose kinds no other program prints: the inverse of their templates.

The blocks of the other kinds are laid out as Intel MLC and PMA jitter print them, and are read like those.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from calibration.formats.lines import Line, lines_of, number, whole_number
from calibration.measurements.base import PROBE
from calibration.measurements.c2c_matrix import LABELS, Method
from calibration.results.readings import (
    NotRead,
    Read,
    ReadBandwidthLadder,
    ReadBandwidthLadderPoint,
    ReadBandwidthScaling,
    ReadC2cClass,
    ReadC2cMatrix,
    ReadCoreFrequency,
    ReadCorePoint,
    ReadCountedVolume,
    Reading,
    ReadLadderPoint,
    ReadLatencyLadder,
    ReadLevel,
    ReadLook,
    ReadPrefetcherEffect,
    ReadRegulation,
    ReadRegulationPoint,
    ReadScalingPoint,
    ReadStride,
    ReadTrafficShape,
    ReadValues,
    numbered,
)

LADDER: Final = re.compile(r"^(?:Prefetched strides: )?latency against (?:the )?working-set size", re.IGNORECASE)
PLACE: Final = re.compile(r"^CPUs? ([\d, ]+), memory of nodes? ([\d, ]+)$")
LEVEL: Final = re.compile(r"^(.{1,40}?) latency\s+(\d+\.\d+) ns\b")
STRIDES: Final = re.compile(r"^Latency along fixed strides .*, hardware prefetchers (as found|off)$")
BANDWIDTH_LADDER: Final = re.compile(r"^Measuring bandwidth against buffer size, (one|\d+) threads?\b")
SCALING: Final = re.compile(
    r"^Measuring memory bandwidth by number of threads, (node after node|spread over the nodes)"
)
PAIRS: Final = re.compile(r"^(One load of a modified line|Half the round trip of a hand-shake) \(in ns\)")
FREQUENCY: Final = re.compile(r"^Core clock in MHz\b")
SHAPE: Final = re.compile(r"^Searching the shape of traffic that moves most, (\S+) vectors")
REGULATION: Final = re.compile(r"^Measuring memory bandwidth and latency by the number of no-ops\b")
CORES: Final = re.compile(r"^Using (\d+) of (\d+) cores of node (\d+)$")
PREFETCHERS: Final = re.compile(r"^Hardware prefetchers (as they were found|off)\b")
VOLUME: Final = re.compile(r"^Using (\d+) threads on (\S+), three arrays of \S+ MB for each thread$")
REPEATS: Final = re.compile(r"^Bytes known to be moved in each of (\d+) repeats, in GB\b")
WORK: Final = re.compile(r"([^\s,]+), (alone|all)")
NAMES: Final = {label: name for name, label in LABELS.items()}


def read_blocks(text: str, command: str | None) -> Read:
    """Return what the block *text*, printed by *command*, says; nothing where it is none of these."""
    lines = lines_of(text, whole=True)
    for form, kind, reader in READERS:
        for place, line in enumerate(lines):
            match = form.match(line.text)
            if match is None:
                continue
            values = reader(match, lines[place + 1 :])
            title = line.text.strip()
            if values is None:
                return Read(not_read=(NotRead(kind=kind, what=title, reason="no figure of it could be read"),))
            reading = Reading(
                id="", instrument=PROBE, command=command, complete=True, missing=(), notes=(title,), values=values
            )
            return Read(readings=numbered([reading]))
    return Read()


def _rows(lines: Sequence[Line], count: int | None = None) -> Iterator[tuple[list[str], list[float | None]]]:
    """Yield tokens and their values of each line that begins with a number; *count* is how many it must have."""
    for line in lines:
        tokens = line.text.split()
        if whole_number(tokens[0]) is not None and (count is None or len(tokens) == count):
            yield tokens, [number(each) for each in tokens]


def _latency_ladder(_match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    place = next((match for line in lines if (match := PLACE.match(line.text))), None)
    levels = [(match[1], number(match[2])) for line in lines if (match := LEVEL.match(line.text))]
    points = [
        ReadLadderPoint(size_bytes=int(size), stride_bytes=int(stride), order=tokens[2], latency_ns=latency)
        for tokens, (size, stride, _, latency, *_rest) in _rows(lines, 6)
        if size is not None and stride is not None and latency is not None
    ]
    if place is None or not points:
        return None
    return ReadLatencyLadder(
        cpus=_numbers(place[1]),
        nodes=_numbers(place[2]),
        points=tuple(points),
        levels=tuple(ReadLevel(name=name, latency_ns=value) for name, value in levels if value is not None),
    )


def _strides(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    points = [
        ReadStride(stride_bytes=int(stride), order=tokens[3], latency_ns=latency)
        for tokens, (stride, _, _, _, latency, *_rest) in _rows(lines, 8)
        if stride is not None and latency is not None
    ]
    state: Literal["as_found", "off"] = "off" if match[1] == "off" else "as_found"
    return ReadPrefetcherEffect(prefetchers=state, points=tuple(points)) if points else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.replace(" ", "").split(",") if each)


def _bandwidth_ladder(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    mixes = next((line.text.split()[2:] for line in lines if line.text.split()[:2] == ["thread", "(bytes)"]), [])
    points = [
        ReadBandwidthLadderPoint(size_bytes=int(tokens[0]), mix=mix, program_mb_s=value)
        for tokens, values in _rows(lines)
        if len(tokens) > len(mixes)
        for mix, value in zip(mixes, values[len(values) - len(mixes) :], strict=True)
        if value is not None
    ]
    threads = 1 if match[1] == "one" else int(match[1])
    return ReadBandwidthLadder(threads=threads, points=tuple(points)) if points else None


def _scaling(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    points = [
        ReadScalingPoint(threads=int(tokens[0]), cores=int(tokens[1]), bandwidth_mb_s=all_threads, per_thread_mb_s=one)
        for tokens, (*_counts, all_threads, one) in _rows(lines, 5)
        if all_threads is not None and one is not None and whole_number(tokens[1]) is not None
    ]
    order: Literal["fill", "spread"] = "fill" if match[1] == "node after node" else "spread"
    return ReadBandwidthScaling(order=order, points=tuple(points)) if points else None


def _pairs(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    classes = []
    for line in lines:
        label = line.text.strip()[:32].strip()
        tokens = line.text.strip()[32:].split()
        pairs, measured = (whole_number(each) for each in (*tokens, "", "")[:2])
        if label in NAMES and len(tokens) == 5 and pairs is not None and measured is not None:
            middle, least, most = tokens[2:]
            classes.append(
                ReadC2cClass(
                    name=NAMES[label],
                    pairs=pairs,
                    measured=measured,
                    median_ns=number(middle),
                    minimum_ns=number(least),
                    maximum_ns=number(most),
                )
            )
    method: Method = "transfer" if match[1].startswith("One load") else "pingpong"
    return ReadC2cMatrix(method=method, classes=tuple(classes)) if classes else None


def _frequency(_match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    columns: list[tuple[str, str]] = next(
        (WORK.findall(line.text) for line in lines if line.text.split()[0] == "CPU" and WORK.search(line.text)), []
    )
    points = [
        ReadCorePoint(
            cpu=int(tokens[0]), work=work, active="all" if active == "all" else "alone", frequency_hz=mhz * 1e6
        )
        for tokens, (_, *values) in _rows(lines, len(columns) + 1)
        for (work, active), mhz in zip(columns, values, strict=True)
        if mhz is not None
    ]
    return ReadCoreFrequency(points=tuple(points)) if points else None


def _shape(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    mixes = next((line.text.split()[2:] for line in lines if line.text.split()[:2] == ["Streams", "Prefetch"]), [])
    tried = [
        ReadLook(mix=mix, streams=int(tokens[0]), prefetch_bytes=int(tokens[1]), bandwidth_mb_s=value)
        for tokens, (_, _, *values) in _rows(lines, len(mixes) + 2)
        if whole_number(tokens[1]) is not None
        for mix, value in zip(mixes, values, strict=True)
        if value is not None
    ]
    return ReadTrafficShape(width=match[1], tried=tuple(tried)) if tried else None


def _regulation(_match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    using = next((match for line in lines if (match := CORES.match(line.text))), None)
    found = next((state[1] for line in lines if (state := PREFETCHERS.match(line.text))), None)
    points = [
        ReadRegulationPoint(
            nops=int(tokens[0]),
            bandwidth_mb_s=bandwidth,
            counted_mb_s=counted,
            chase_ns=chase,
            l1_miss_ns=l1_miss,
            load_miss_real_ns=load_miss,
            sampled_ns=sampled,
        )
        for tokens, (_, bandwidth, counted, chase, l1_miss, load_miss, sampled) in _rows(lines, 7)
        if bandwidth is not None
    ]
    if using is None or found is None or not points:
        return None
    threads, cores, node = (int(each) for each in using.groups())
    prefetchers: Literal["as_found", "off"] = "off" if found == "off" else "as_found"
    return ReadRegulation(prefetchers=prefetchers, node=node, cores=cores, threads=threads, points=tuple(points))


def _volume(match: re.Match[str], lines: Sequence[Line]) -> ReadValues | None:
    repeats = next((int(each[1]) for line in lines if (each := REPEATS.match(line.text))), None)
    passes = next((int(tokens[0]) for tokens, _ in _rows(lines, 5) if tokens[1] == "triads"), None)
    together = next((line.text.split() for line in lines if line.text.split()[0] == "together"), [])
    gb = [value for value in map(number, together) if value is not None]
    if repeats is None or passes is None or len(gb) != len(("read", "written")):
        return None
    read_bytes, written_bytes = (round(each * 1e9) for each in gb)
    return ReadCountedVolume(
        group=match[2],
        threads=int(match[1]),
        passes=passes,
        repeats=repeats,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


READERS: Final = (
    (LADDER, "latency_ladder", _latency_ladder),
    (STRIDES, "prefetcher_effect", _strides),
    (BANDWIDTH_LADDER, "bandwidth_ladder", _bandwidth_ladder),
    (SCALING, "bandwidth_scaling", _scaling),
    (PAIRS, "c2c_matrix", _pairs),
    (FREQUENCY, "core_frequency", _frequency),
    (SHAPE, "traffic_shape", _shape),
    (REGULATION, "regulation", _regulation),
    (VOLUME, "counted_volume", _volume),
)
"""The sentence that begins each block, the block's kind, and what reads it."""
