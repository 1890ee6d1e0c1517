# SPDX-License-Identifier: Apache-2.0
"""Common parts of the kinds with hardware counters: choosing events, and evaluating their counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate, estimate
from calibration.context.model import Context
from calibration.counters.event_choice import choose_events
from calibration.counters.latency import LATENCY_ROLES, CounterLatency, counter_latency
from calibration.counters.volume import (
    LINE_BYTES,
    CountedBytes,
    CounterReading,
    Unit,
    counted_bytes,
    moved_per_step,
    net_count,
    reason_not_counted,
)
from calibration.measurements.base import NotPlanned
from calibration.sutprobe.bandwidth import Accounting, BandwidthPoint
from calibration.sutprobe.counters import Counters
from calibration.sutprobe.loaded import LoadedPlacement

COUNTERS: Final = "counters"
"""Kind of a plan's skipped hardware counters."""

BACKGROUND_S: Final = 0.17
"""How long the background is measured first in a round: in six rounds a second, which is short beside a step."""

BACKGROUND_ONCE_S: Final = 1.0
"""The same for what is measured once."""

BYTE_ROLES: Final = (
    "dram.reads",
    "dram.writes",
    "dram.reads_and_writes",
    "link.bytes",
    "core.offcore_reads",
)
"""The roles whose counts are bytes, or lines."""


def event_options(
    context: Context, roles: Sequence[str], probe_roles: Sequence[str] = (), *, background_s: float = BACKGROUND_S
) -> dict[str, object]:
    """Return sutprobe's options for the counters of *roles*, and of *probe_roles* in the latency probes of a load.

    Empty if the SUT has none of them. The background of machine-wide counters is measured for *background_s*.
    """
    chosen = choose_events(context, {*roles, *probe_roles}).events
    events = [event for event in chosen if event.name in roles]
    arguments = [event.argument() for event in events]
    arguments += [f"probe.{event.argument()}" for event in chosen if event.name in probe_roles]
    background = {"background-s": background_s} if any(event.cpus is not None for event in events) else {}
    return {**({"event": arguments} if arguments else {}), **background}


def uncounted(context: Context) -> Iterator[NotPlanned]:
    """Yield the roles without a counter on the SUT, grouped by reason."""
    missing = choose_events(context, (*BYTE_ROLES, *LATENCY_ROLES)).missing
    for reason, roles in grouped((event.reason, event.role) for event in missing).items():
        yield NotPlanned(kind=COUNTERS, what=", ".join(roles), reason=reason)


def served_nodes(context: Context) -> Callable[[int], tuple[int, ...]]:
    """Return a function that returns the nodes served by the memory controllers counted on a CPU.

    A package has one such CPU, or one per node.
    """
    choice = choose_events(context, BYTE_ROLES)
    opened = sorted({cpu for event in choice.events if event.cpus is not None for cpu in event.cpus})
    packages = {cpu: core.package_id for core in context.topology.cores for cpu in core.cpus}

    def of(cpu: int) -> tuple[int, ...]:
        own = context.node_of(cpu)
        package = packages.get(cpu)
        together = [number for number in opened if packages.get(number) == package]
        if package is None or len({context.node_of(number) for number in together}) > 1:
            return () if own is None else context.parts_of(own)
        return tuple(
            node.id
            for node in context.nodes
            if any(packages.get(number) == package for number in node.cpus) or (not node.cpus and len(opened) == 1)
        )

    return of


def bytes_beside(
    context: Context,
    counters: Sequence[Counters | None],
    accounting: Accounting | None,
    shares: Sequence[Mapping[int, float]],
    probes_mb_s: Sequence[float] | None = None,
) -> CountedBytes | None:
    """Return what *counters*, one per placement, say beside traffic whose steps move what *accounting* says.

    *shares* are the parts of a placement's traffic by node, *probes_mb_s* the reads of the latency probes. ``None``
    without counters.
    """
    if accounting is None:
        return None
    moved = moved_per_step(accounting)
    readings = [
        CounterReading(counters=placement, moved=moved, per_step=True, shares=share, probe_bytes_per_s=probes * 1e6)
        for placement, share, probes in zip(counters, shares, probes_mb_s or [0.0] * len(counters), strict=True)
        if placement is not None
    ]
    return counted_bytes(readings, units(context), served_nodes(context))


def units(context: Context) -> dict[str, Unit]:
    """Return the bytes per count of each role chosen on this SUT."""
    return {
        event.name: Unit(event.scale_bytes or LINE_BYTES, event.caution)
        for event in choose_events(context, BYTE_ROLES).events
    }


def bandwidth_counted(context: Context, point: BandwidthPoint, nodes: Sequence[int]) -> CountedBytes | None:
    """Return what was counted beside *point*, whose threads, one entry each, work on *nodes*.

    ``None`` without counters.
    """
    placements = point.placements or ()
    shares = [shares_of(nodes, placement.per_thread_mb_s) for placement in placements]
    return bytes_beside(context, [placement.counters for placement in placements], point.accounting, shares)


def counted_rate(context: Context, counters: Sequence[Counters | None]) -> Estimate | None:
    """Return the read bandwidth in MB/s by the memory controllers, one sample per entry of *counters*.

    Includes writes if the hardware cannot separate them. ``None`` if no such role was counted all the time.
    """
    known = [counter for counter in counters if counter is not None]
    scales = units(context)
    for role in ("dram.reads", "dram.reads_and_writes"):
        if known and role in scales and not any(reason_not_counted(counter, role) for counter in known):
            scale = scales[role].scale_bytes / 1e6
            rates = [
                sum(net_count(event) / event.wall_s for event in counter.events if event.name == role) * scale
                for counter in known
            ]
            return estimate([[rate] for rate in rates], "MB/s")
    return None


def loaded_counted(
    context: Context, placements: Sequence[LoadedPlacement], accounting: Accounting | None, nodes: Sequence[int]
) -> CountedBytes | None:
    """Return what was counted beside a load, whose threads, one entry each, work on *nodes*, and its probes.

    ``None`` without counters. The threads are assumed to move equal amounts.
    """
    shares = [
        shares_of(
            [*nodes, *(probe.node for probe in placement.probes)],
            [
                *([median(placement.windows_mb_s) / len(nodes)] * len(nodes)),
                *(probe.probe_mb_s for probe in placement.probes),
            ],
        )
        for placement in placements
    ]
    probes = [sum(probe.probe_mb_s for probe in placement.probes) for placement in placements]
    return bytes_beside(context, [placement.counters for placement in placements], accounting, shares, probes)


def shares_of(nodes: Sequence[int], rates: Sequence[float]) -> dict[int, float]:
    """Return the part of the traffic of each node's memory, from the node and the rate of each thread."""
    found = dict.fromkeys(nodes, 0.0)
    for node, rate in zip(nodes, rates, strict=True):
        found[node] += rate / sum(rates)
    return found


def latency_beside(counters: Sequence[Counters | None], prefix: str = "") -> CounterLatency | None:
    """Return the latency by *counters*, one per placement; ``None`` without counters."""
    return counter_latency([counter for counter in counters if counter is not None], prefix)
