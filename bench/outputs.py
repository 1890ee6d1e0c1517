# SPDX-License-Identifier: Apache-2.0
"""What each peer prints, read into this project's units; the translation of each stands beside its reader.

Rates become MB/s (10^6 bytes per second), times ns. A *bus* rate counts what memory must move: a read line once, a line
written by a regular store twice (it is read before it is written), a line written by a non-temporal store once. A
*program* rate counts what the instructions ask for. Output that is not understood raises ``NotComparedError``.
"""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

MIB = 1.048576
"""MB (10^6 bytes) in a MiB: several peers count MiB and print MB."""

Reader = Callable[[str], float]
"""From all that one start of a peer printed to its value."""


class NotComparedError(Exception):
    """A peer's value cannot be compared, with the reason."""


def positive(text: str, what: str) -> float:
    """Return *text* as a value. Raises ``NotComparedError`` if it is not a finite number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0.0:
        raise NotComparedError(f"{what} is not a positive number: {text.strip()!r}")
    return value


def shown(output: str) -> str:
    """Return the beginning of *output* on one line, for a message."""
    return " ".join(output.split())[:80]


def _found(pattern: str, output: str, what: str) -> re.Match[str]:
    """Return the last match of *pattern*. Raises ``NotComparedError`` if there is none."""
    matches = list(re.finditer(pattern, output, re.MULTILINE))
    if not matches:
        raise NotComparedError(f"no {what} in the output: {shown(output)!r}")
    return matches[-1]


def scaled(reader: Reader, factor: float) -> Reader:
    """Return a reader whose value is that of *reader* times *factor*: another way to count the same bytes."""
    return lambda output: reader(output) * factor


def on_cpus(reader: Reader, row: str, cpus: Sequence[int]) -> Reader:
    """Return *reader*, which refuses an output whose rows do not name exactly these CPUs."""

    def read(output: str) -> float:
        ran = sorted({int(cpu) for cpu in re.findall(rf"^Group:.*{row}", output, re.MULTILINE)})
        if ran != sorted(cpus):
            raise NotComparedError(f"ran on CPUs {ran}, wanted {sorted(cpus)}")
        return reader(output)

    return read


def likwid_bench(output: str) -> float:
    """Read the rate of ``likwid-bench``: MByte is 10^6 bytes, by the loads and stores of the kernel.

    A load counts 8 bytes per element, a store 8, a copy 16 and a stream 24: program bytes; what a regular store reads
    first is not in them. The time is that of all threads between two barriers.
    """
    return positive(_found(r"^MByte/s:\s+(\S+)", output, "line 'MByte/s:'")[1], "the rate")


def bw_mem(output: str) -> float:
    """Read the rate of lmbench's ``bw_mem``: MB is 10^6 bytes, a copy of n bytes counts n, processes are summed."""
    return positive(_found(r"^\d+\.\d+ (\S+)$", output, "line of size and rate")[1], "the rate")


def membench_bandwidth(output: str) -> float:
    """Read the rate of ``sc-membench``: it is in MiB/s though named MB/s; a copy of n bytes counts n."""
    return positive(_found(r"^\d+,(?:read|write|copy),([^,]+),", output, "row of CSV")[1], "the rate") * MIB


def membench_latency(output: str) -> float:
    """Read the latency of ``sc-membench``: the median of its samples, ns per node of 16 bytes."""
    return positive(_found(r"^\d+,latency,[^,]+,([^,]+),", output, "row of CSV")[1], "the latency")


def multiload(output: str) -> float:
    """Read the rate of ``multiload``: the mean over its samples in MiB/s; a triad of n elements counts 24 n bytes."""
    rows = [line.split(",") for line in output.splitlines() if line.count(",") >= 11]
    if len(rows) < 2 or rows[0][8].strip() != "LdAvgMibs":
        raise NotComparedError(f"no table with LdAvgMibs in the output: {shown(output)!r}")
    return positive(rows[-1][8], "the rate") * MIB


def mbw(output: str) -> float:
    """Read the rate of ``mbw``: the mean in MiB/s; a copy of n bytes counts n."""
    return positive(_found(r"^AVG\s.*Copy: (\S+) MiB/s", output, "line AVG")[1], "the rate") * MIB


def stress_ng(output: str, method: str) -> float:
    """Read the rate of one method of ``stress-ng --memrate``: MiB/s named MB, the geometric mean of one instance.

    Multiplied by the number of instances, which it prints; they are not synchronised. 0.15 writes "geometic".
    """
    row = rf"memrate +(\S+) {method} MB per sec \((?:geomet\w+|harmonic) mean of (\d+) instances?\)"
    found = _found(row, output, f"rate {method!r}")
    return positive(found[1], "the rate") * int(found[2]) * MIB


def mlc_idle(output: str) -> float:
    """Read the time of one load of Intel MLC's idle latency, ns."""
    return positive(_found(r"took .* clocks \(\s*(\S+)\s+ns\)", output, "line 'Each iteration took'")[1], "the latency")


def multichase(output: str) -> float:
    """Read the latency of ``multichase``: ns per load; with ``-a`` the mean of its samples, not the best."""
    return positive(_found(r"^\s*(\S+)\s*$", output, "number")[1], "the latency")


def core_to_core(output: str) -> float:
    """Read one pair of ``core-to-core-latency --csv``: ns one way, half a round trip of compare-and-swap."""
    return positive(_found(r"^(\d[^,]*),\s*$", output, "row with the pair's mean")[1], "the latency")


def pingpong(output: str) -> float:
    """Read one pair of ``pingpong``: ns one way, half a round trip of an unlocked store to one line."""
    return positive(_found(r"^ *\d+:\s+(\S+)", output, "row with the pair's mean")[1], "the latency")


def _oslat_buckets(output: str) -> list[tuple[int, int]]:
    """Return the buckets of ``oslat`` as (label in us, count). The bucket labelled n holds steps of n-1 to n us."""
    buckets = [
        (int(label), int(count)) for label, count in re.findall(r"^\s+(\d+) \(us\):\s+(\d+)", output, re.MULTILINE)
    ]
    if len(buckets) < 2 or buckets[0][0] != 1:
        raise NotComparedError(f"no histogram from 1 us in the output: {shown(output)!r}")
    return buckets


def oslat_resolution_ns(output: str) -> float:
    """Read the resolution of ``oslat``: the smallest distance of two of its buckets, ns."""
    labels = [label for label, _count in _oslat_buckets(output)]
    return 1000.0 * min(after - before for before, after in pairwise(labels))


def oslat_rate(output: str, above_us: int) -> float:
    """Read how often per second ``oslat`` saw a step of at least *above_us*, the loop's own turn included."""
    seconds = positive(_found(r"Duration:\s+(\S+) \(sec\)", output, "duration")[1], "the duration")
    return sum(count for label, count in _oslat_buckets(output) if label > above_us) / seconds


def pma_block_ticks(output: str) -> float:
    """Read how long one timed block of PMA ``jitter -f`` takes undisturbed: Abs_min, in ticks of the TSC."""
    row = r"^\d+,\d+,\d+,\d+,(\d+),\d+,\d+,\d+,\d+\s*$"
    return positive(_found(row, output, "row of nine numbers")[1], "Abs_min")
