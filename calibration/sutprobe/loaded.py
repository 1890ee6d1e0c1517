# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe loaded``."""

from calibration.model import Model
from calibration.sutprobe.bandwidth import Accounting
from calibration.sutprobe.counters import CountedPlacement
from calibration.sutprobe.placement import Outcome


class LoadedProbe(Model):
    """One latency probe of a loaded-latency placement: ns per load in the same windows as the bandwidth."""

    cpu: int
    node: int
    windows_ns: tuple[float, ...]
    probe_mb_s: float


class LoadedPlacement(CountedPlacement):
    """One placement of a loaded-latency point; the probes' own traffic is not in ``windows_mb_s``."""

    windows_mb_s: tuple[float, ...]
    probes: tuple[LoadedProbe, ...]


class LoadedPoint(Outcome):
    """Latency and bandwidth at one injection delay; ``delay_ns`` is the measured length of the delay itself.

    ``accounting`` is that of the load's mix, ``None`` in documents of older versions. A delay that was searched has
    ``share_percent``, the target, and ``share_found``, the share of the bandwidth without delay seen by the search
    (``None`` if an earlier command searched it); the others have neither.
    """

    inject_delay: int
    delay_ns: float
    share_percent: int | None = None
    share_found: float | None = None
    accounting: Accounting | None = None
    checked: bool
    placements: tuple[LoadedPlacement, ...] | None


class ZeroLoad(Model):
    """The unloaded latency of the probe at the start, in the middle and at the end of the sweep, to detect drift."""

    cpu: int
    node: int
    windows_ns_start: tuple[float, ...]
    windows_ns_middle: tuple[float, ...]
    windows_ns_end: tuple[float, ...]


class LoadedLook(Model):
    """One delay of the search for shares: the highest bandwidth of so many looks."""

    inject_delay: int
    times: int
    best_mb_s: float


class LoadedResult(Model):
    """Result of ``sutprobe loaded``: one point per injection delay, and the looks of the search."""

    points: tuple[LoadedPoint, ...]
    looks: tuple[LoadedLook, ...] = ()
    zero_load: tuple[ZeroLoad, ...]
