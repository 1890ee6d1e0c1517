# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe volume``."""

from calibration.base.model import Model
from calibration.sutprobe.counters import Counters
from calibration.sutprobe.document import Result
from calibration.sutprobe.placement import Interference, Pages


class VolumeBytes(Model):
    """Bytes moved by one part of the work: by its instructions, and by lines fetched because they are written."""

    program_read_bytes: int
    program_written_bytes: int
    allocate_read_bytes: int


class VolumeKnown(Model):
    """Known traffic of a volume run; the totals are for one repeat, with allocated lines."""

    init: VolumeBytes
    triad: VolumeBytes
    read_bytes: int
    written_bytes: int


class VolumeRepeat(Model):
    """One initialisation with its passes; ``counters`` are read before the first and after the last of them."""

    seconds: float
    init_seconds: float
    triad_seconds: float
    checked: bool
    cpus_verified: bool
    interference: Interference
    counters: Counters | None


class VolumeResult(Result):
    """Result of ``sutprobe volume``: repeated triads over arrays with ``known`` traffic.

    ``array_bytes`` is the size of each thread's three arrays.
    """

    group: str
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    threads: int
    array_bytes: int
    passes: int
    width: str
    pages: Pages
    known: VolumeKnown
    repeats: tuple[VolumeRepeat, ...]
