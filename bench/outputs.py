# SPDX-License-Identifier: Apache-2.0
"""What each program prints, read into this project's units.

Rates become MB/s (10^6 bytes per second), times ns. Output that is not understood raises ``NotComparedError``.
"""

import json
import math
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from calibration.base.errors import CalibrationError
from calibration.sutprobe.document import ProbeDocument, read_document

MIB: Final = 1.048576
"""MB (10^6 bytes) in a MiB: several peers count MiB and print MB."""


class NotComparedError(Exception):
    """A value cannot be compared, with the reason."""


class Output(NamedTuple):
    """What a program printed."""

    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """All it printed: several peers print their results on stderr."""
        return f"{self.stdout}\n{self.stderr}"


@dataclass(frozen=True)
class Form:
    """A value is the group of the last match of ``pattern``, times ``factor``."""

    pattern: str
    factor: float = 1.0

    def __call__(self, output: Output) -> float:
        """Return the value. Raises ``NotComparedError`` if there is none, or it is not a finite number above zero."""
        matches = re.findall(self.pattern, output.text, re.MULTILINE)
        if not matches:
            raise NotComparedError(f"no {self.pattern!r} in the output: {' '.join(output.text.split())[:80]!r}")
        try:
            value = float(matches[-1]) * self.factor
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0.0:
            raise NotComparedError(f"not a positive number: {matches[-1]!r}")
        return value


RATES: Final = {
    # By the loads and stores of the kernel; the time is that of all threads between two barriers.
    "likwid-bench": Form(r"^MByte/s:\s+(\S+)"),
    "bw_mem": Form(r"^\d+\.\d+ (\S+)$"),
    # In MiB/s, though named MB/s.
    "sc-membench": Form(r"^\d+,(?:read|write|copy),([^,]+),", MIB),
    "mbw": Form(r"^AVG\s.*Copy: (\S+) MiB/s", MIB),
}

MULTICHASE: Final = Form(r"^\s*(\S+)\s*$")  # with -a the mean of its samples, not the best
MLC_IDLE: Final = Form(r"took .* clocks \(\s*(\S+)\s+ns\)")
CORE_TO_CORE: Final = Form(r"^(\d[^,]*),\s*$")  # one way, half a round trip of compare-and-swap
PINGPONG: Final = Form(r"^ *\d+:\s+(\S+)")  # one way, half a round trip of an unlocked store to one line


def oslat_rate(output: Output, above_us: int) -> float:
    """Read how often per second ``oslat`` saw a step of at least *above_us*, the loop's own turn included.

    Its bucket labelled n holds steps of n-1 to n µs.
    """
    seconds = Form(r"Duration:\s+(\S+) \(sec\)")(output)
    buckets = re.findall(r"^\s+(\d+) \(us\):\s+(\d+)", output.text, re.MULTILINE)
    return sum(int(count) for label, count in buckets if int(label) > above_us) / seconds


OSLAT_LONGEST: Final = Form(r"Maximum:\s+(\d+) \(us\)")

CYCLICTEST: Final = (r"^0*(\d+) (\d+)$", r"^# Histogram Overflows: (\d+)$")
"""Rows of ``cyclictest -h`` with one thread, and what is beyond its histogram."""

CYCLICTEST_LONGEST: Final = Form(r"^# Max Latencies: (\d+)$")

TIMERLAT: Final = (r"^(\d+)(?: +\d+)* +(\d+) *$", r"^over:(?: +\d+)* +(\d+) *$")
"""The same of ``rtla timerlat hist`` on one CPU: its last column, which is the latest in a wake-up."""

TIMERLAT_LONGEST: Final = Form(r"^max:(?: +\d+)* +(\d+) *$")


def late_us(output: Output, form: tuple[str, str], share: float) -> float:
    """Read how late that *share* of the wake-ups was at most, from a histogram of whole µs that were rounded down.

    Of 0 it is the earliest.
    """
    buckets, wakes = _wake_ups(output, form)
    reached = zip(buckets, accumulate(count for _, count in buckets), strict=True)
    found = next((us for (us, _), count in reached if wakes and count >= max(1.0, share * wakes)), None)
    if found is None:
        raise NotComparedError(f"no histogram that reaches {100 * share:g} % of {wakes} wake-ups")
    return found + 0.5


def late_percent(output: Output, form: tuple[str, str], least_us: int) -> float:
    """Read from the same histogram how many of the wake-ups were at least *least_us* late, in per cent."""
    buckets, wakes = _wake_ups(output, form)
    if not wakes:
        raise NotComparedError("no histogram of wake-ups")
    return 100 * (1 - sum(count for us, count in buckets if us < least_us) / wakes)


def _wake_ups(output: Output, form: tuple[str, str]) -> tuple[list[tuple[int, int]], int]:
    """Read the buckets, in order, and how many wake-ups there were with those beyond; 0 if the output is cut off."""
    rows = re.findall(form[0], output.stdout, re.MULTILINE)
    over = re.findall(form[1], output.stdout, re.MULTILINE)
    buckets = sorted((int(us), int(count)) for us, count in rows)
    return buckets, sum(count for _, count in buckets) + int(over[0]) if over else 0


def document_of(output: Output) -> ProbeDocument:
    """Return the document that ``sutprobe`` printed. Raises ``NotComparedError`` if it failed or is unreadable."""
    try:
        document = read_document(json.loads(output.stdout))
    except (ValueError, CalibrationError) as error:
        raise NotComparedError(f"sutprobe: {error}") from error
    if document.status != "ok":
        raise NotComparedError(f"sutprobe: {document.error.message if document.error else 'failed without a reason'}")
    return document
