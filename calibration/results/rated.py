# SPDX-License-Identifier: Apache-2.0
"""What firmware and CXL devices rate memory at (ACPI HMAT and SLIT, CXL), beside what was measured.

A rating is a claim with a source, never a limit. It is contradicted only by valid values with intervals.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final, NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.text import sentence_case
from calibration.base.validity import Flag, flag
from calibration.context.hmat import ratings
from calibration.context.model import Context
from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.evidence import ASYMMETRY
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.results.consistency import CheckedValue, Side
from calibration.results.cross_checks import Sides, matrix_sides
from calibration.results.model import Measurement

MAX_FACTOR: Final = 2.0
"""A rating more than so many times the measured value, or less than that part of it, is a finding. Round numbers, the
peak of the modules in place of what they move, and the look-up of a page within a load are less; a wrong unit, one
channel in place of a node, or a device without the way to it are more."""

LOCAL_DISTANCE: Final = 10
"""The distance of a node from itself by ACPI, to which the others are relative."""

DISTANCE: Final = "distance"


class Compared(NamedTuple):
    """What ``source`` rates an access at, and what was measured, ``None`` without a value.

    ``cpu_node`` is ``None`` if the rating is of the nearest CPUs, and not known which these are. A distance is
    ``rated`` in tenths of that of the own memory, whose latency is ``own``.
    """

    cpu_node: int | None
    memory_node: int
    source: str
    what: str
    rated: int
    measured: tuple[Measurement, Side] | None
    own: Side | None = None
    cached: bool = False

    @property
    def unit(self) -> str:
        """Unit of what was measured."""
        return "MB/s" if self.what == "read bandwidth" else "ns"

    @property
    def ends(self) -> tuple[float, float] | None:
        """The measured interval, if it can contradict the rating: that of a valid value, and not of a cache."""
        if self.measured is None or self.measured[1].unsure or self.cached:
            return None
        return self.measured[1].ends

    @property
    def ratio(self) -> CheckedValue | None:
        """The measured value divided by the rated one; of a distance, the latency relative to the own memory's."""
        if self.measured is None:
            return None
        found, by = self.measured[1].value, CheckedValue(name="", value=self.rated, unit="", interval=None)
        if self.own is not None:
            share = self.rated / LOCAL_DISTANCE
            own = self.own.value
            by = own.model_copy(update={"value": own.value * share, "interval": (own.low * share, own.high * share)})
        interval = None if found.interval is None else (found.low / by.high, found.high / by.low)
        return CheckedValue(name=found.name, value=found.value / by.value, unit="", interval=interval)


def compared(context: Context, measurements: Sequence[Measurement]) -> list[Compared]:
    """Return what is rated of the machine of *context*, beside the first matrices among *measurements*."""
    latencies = matrix_sides(measurements, LatencyMatrixValues)
    bandwidths = matrix_sides(measurements, BandwidthMatrixValues)
    return [*_ratings(context, latencies, bandwidths), *_distances(context, latencies)]


def rated_flags(context: Context, measurements: Sequence[Measurement]) -> Iterator[Flag]:
    """Yield what the measured values contradict: the order of memories by a source, and ratings beyond the factor."""
    found = [(item, ends) for item in compared(context, measurements) if (ends := item.ends) is not None]
    for what, alike in grouped((item.what, (item, ends)) for item, ends in found).items():
        if orders := list(_contradicted(alike)):
            yield flag("RATED_ORDER", _worst(orders))
        # Firmware has distances for their order; their scale is far from that of latencies on sound machines.
        if what != DISTANCE and (beyond := list(_beyond(alike))):
            yield flag("RATED_DIFFERS", _worst(beyond))


Decided = tuple[Compared, tuple[float, float]]
"""What can be contradicted, and by which interval."""


def _contradicted(found: Sequence[Decided]) -> Iterator[tuple[float, str]]:
    """Yield by which factor the nearest ends of two intervals are the other way round than rated, and the text."""
    for cpu_node, alike in grouped((item.cpu_node, (item, ends)) for item, ends in found).items():
        for (better, ends), (worse, other) in permutations(alike, 2):
            factor = other[0] / ends[1] if better.unit == "MB/s" else ends[0] / other[1]
            if cpu_node is not None and _rated_better(better, worse) and factor > 1 + ASYMMETRY:
                yield factor, _order_text(better, worse)


def _beyond(found: Sequence[Decided]) -> Iterator[tuple[float, str]]:
    """Yield by which factor the nearest end of an interval differs from a rating, and the text."""
    for item, (low, high) in found:
        factor = max(low / item.rated, item.rated / high)
        if factor > MAX_FACTOR:
            yield factor, _difference_text(item)


def _worst(found: Sequence[tuple[float, str]]) -> str:
    """Return the text of the largest factor, and the number of the others."""
    return max(found)[1] + (f"; {len(found) - 1} more" if len(found) > 1 else "")


def _ratings(context: Context, latencies: Sides, bandwidths: Sides) -> Iterator[Compared]:
    for cpu_node, memory_node, source, access in ratings(context):
        for rated, what, sides in (
            (access.read_latency_ns, "read latency", latencies),
            (access.read_bandwidth_mb_s, "read bandwidth", bandwidths),
        ):
            if rated is not None:
                place = _nearest(sides, memory_node) if cpu_node is None else (cpu_node, memory_node)
                measured = None if place is None else sides.get(place)
                cached = _cached(context, memory_node, measured)
                yield Compared(cpu_node, memory_node, source, what, rated, measured, cached=cached)


def _nearest(sides: Sides, memory_node: int) -> tuple[int, int] | None:
    """Return the place of the best value of a memory: what the nearest CPUs get, wherever they are."""
    values = {place: side.value for place, (_, side) in sides.items() if place[1] == memory_node}
    return min(
        values, key=lambda place: values[place].value * (-1 if values[place].unit == "MB/s" else 1), default=None
    )


def _distances(context: Context, latencies: Sides) -> Iterator[Compared]:
    for (row, column), found in latencies.items():
        distance = (context.distances_from(row) or {}).get(column)
        if distance is not None and (row, row) in latencies:
            _, own = latencies[row, row]
            cached = _cached(context, column, found)
            yield Compared(row, column, "firmware (SLIT)", DISTANCE, distance, found, own, cached)


def _cached(context: Context, node: int, measured: tuple[Measurement, Side] | None) -> bool:
    """Return whether a value of *node* may be that of the cache before its memory."""
    before = context.memory_side_cache_bytes(node) > 0 or context.side_cache_unknown(node)
    return before and measured is not None and "MEMORY_SIDE_CACHE" in measured[0].validity.codes


def _rated_better(one: Compared, other: Compared) -> bool:
    return one.rated > other.rated if one.unit == "MB/s" else one.rated < other.rated


def _order_text(better: Compared, worse: Compared) -> str:
    what = "faster" if better.unit == "MB/s" else "nearer"
    sources = dict.fromkeys((better.source, worse.source))
    found = " against ".join(_measured_text(item) for item in (better, worse))
    return (
        f"{sentence_case(' and '.join(sources))} call{'s' * (len(sources) == 1)} node {better.memory_node} {what} than "
        f"node {worse.memory_node} from node {better.cpu_node} ({rated_text(better)} and {rated_text(worse)}); "
        f"measured {found}"
    )


def _difference_text(item: Compared) -> str:
    where = "the nearest node" if item.cpu_node is None else f"node {item.cpu_node}"
    return (
        f"{sentence_case(item.source)} rates the {item.what} from {where} to the memory of node {item.memory_node} "
        f"at {rated_text(item)}; measured {_measured_text(item)}"
    )


def rated_text(item: Compared) -> str:
    """Return the rated value with its unit, in full: it was not measured."""
    if item.what == DISTANCE:
        return f"distance {item.rated}"
    return f"{item.rated / 1000:g} GB/s" if item.unit == "MB/s" else f"{item.rated} ns"


def _measured_text(item: Compared) -> str:
    return "unknown" if item.measured is None else units.headline(item.measured[1].value)
