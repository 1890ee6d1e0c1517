# SPDX-License-Identifier: Apache-2.0
"""Bandwidth-latency curves of Mess 2.0 (BSC): ``memory_curves.csv``, which its plotter writes.

Its units are GB/s (10^9 bytes) and ns, its ratios percentages of reads in the traffic of memory. The files
``bwlat_*.txt`` of its simulators are not read: their latencies are ns or cycles, and they do not say which.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.formats.lines import shortened, split
from calibration.formats.readings import Read, ReadCurve, ReadCurvePoint, Reading, ReadMemoryCurves, joined

READS: Final = "read_pct_rounded"
"""The column of the ratio: without it a text is not of Mess 2.0."""

ISSUED: Final = "rd_percentage"
"""A column that only curves by the ratio of instructions have (``--mode perkernel``)."""

BANDWIDTH: Final = ("bandwidth_mean", "bandwidth_smooth")
LATENCY: Final = ("latency_mean", "latency_smooth")
"""The columns of the values, that as measured first."""

MB_S: Final = 1e3
"""MB/s of a GB/s."""


def curves_of_mess(text: str) -> Read | None:
    """Return the content of *text*; ``None`` if it is not a CSV of Mess. Raises ``InputError`` for a wrong one."""
    lines = [line for line in split(text.removeprefix("\ufeff")) if line.strip()]
    header = [name.strip() for name in lines[0].split(",")] if lines else []
    if READS not in header:
        return None
    if ISSUED in header:
        raise InputError(f"the ratios of these curves are of instructions, not of traffic: column {ISSUED}")
    if not text.endswith(("\n", "\r")):
        raise InputError("the last row of these curves is cut off")
    bandwidth, latency = (_column(header, names) for names in (BANDWIDTH, LATENCY))
    rows: list[tuple[int, ReadCurvePoint]] = []
    for number, line in enumerate(lines[1:], 2):
        row = line.split(",")
        if len(row) != len(header):
            raise InputError(f"row {number} has {len(row)} columns, not {len(header)}: {shortened(line)}")
        named = dict(zip(header, row, strict=True))
        reads, gb_s, ns = (_value(named, name, number) for name in (READS, bandwidth, latency))
        if not reads.is_integer() or reads > 100:
            raise InputError(f"row {number}: {READS} is {shortened(named[READS])}, not a percentage")
        if ns == 0:
            raise InputError(f"row {number}: {latency} is 0")
        rows.append((int(reads), ReadCurvePoint(bandwidth_mb_s=gb_s * MB_S, latency_ns=ns)))
    curves = [_curve(reads, points) for reads, points in sorted(grouped(rows).items(), reverse=True)]
    if not curves:
        raise InputError("curves without a point")
    values = ReadMemoryCurves(curves=tuple(curves))
    return joined([Read(readings=(Reading(instrument="Mess", command=None, missing=(), notes=(), values=values),))])


def _column(header: Sequence[str], names: Sequence[str]) -> str:
    found = next((name for name in names if name in header), None)
    if found is None:
        raise InputError(f"curves of Mess without a column {' or '.join(names)}")
    return found


def _value(row: dict[str, str], name: str, number: int) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"row {number}: {name} is {shortened(row[name])}, not a number from 0 on")
    return value


def _curve(reads: int, points: Sequence[ReadCurvePoint]) -> ReadCurve:
    """Return the curve of *points*, which are in the order of their load, rising or falling."""
    for ordered in (points, points[::-1]):
        if all(before.bandwidth_mb_s <= after.bandwidth_mb_s for before, after in pairwise(ordered)):
            return ReadCurve(reads_percent=reads, points=tuple(ordered))
    raise InputError(f"the bandwidths of the curve of {reads} % reads are in no order")
