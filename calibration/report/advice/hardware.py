# SPDX-License-Identifier: Apache-2.0
"""Rules about how a machine is built: siblings, memory modules and devices."""

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Final

from calibration.base import units
from calibration.base.cpulists import BOOT_CPU, format_cpulist
from calibration.context.model import Dimm
from calibration.context.population import NO_MEMORY, Population, population
from calibration.report.advice.commands import boot, by_hand, numbers
from calibration.report.advice.evidence import Cost, Evidence, names
from calibration.report.advice.interruptions import isolate
from calibration.report.advice.model import Commands, Found

MIN_MBIT_S: Final = 10_000
"""Slower network devices manage the machine; their node does not matter."""

OFFLINE: Final = "/sys/devices/system/cpu/cpu$cpu/online"


def smt_sibling(evidence: Evidence) -> Iterator[Found]:
    """Find isolated CPUs that share their core with CPUs that are not isolated."""
    shared = [
        (isolated, others)
        for core in evidence.context.topology.cores
        if (isolated := evidence.isolated.intersection(core.cpus)) and (others := set(core.cpus) - evidence.isolated)
    ]
    if not shared:
        return
    sharing = {cpu for cpus, _ in shared for cpu in cpus}
    others = {cpu for _, cpus in shared for cpu in cpus}
    commands = Commands(
        (f"for cpu in {numbers(others)}; do echo 0 > {OFFLINE}; done",),
        (f"for cpu in {numbers(others)}; do echo 1 > {OFFLINE}; done",),
        ("# isolate whole cores, or boot with nosmt",),
    )
    if BOOT_CPU in others or others >= evidence.housekeeping:
        commands = _whole_cores(evidence, sharing | others)
    yield Found(
        f"Isolated CPUs share their cores with CPUs where other work runs. Isolated: {evidence.cpus(sharing)}; "
        f"sharing: {evidence.cpus(others)}",
        _cost_of_sharing(evidence, sharing),
        commands,
    )


def _whole_cores(evidence: Evidence, shared: set[int]) -> Commands:
    """Return how to isolate whole cores, but for the first: the others of its CPUs cannot be taken offline."""
    cores = [frozenset(core.cpus) for core in evidence.context.topology.cores]
    first = next((core for core in cores if BOOT_CPU in core), cores[0])
    chosen = (evidence.isolated | shared) - first
    if not chosen:
        return boot("smt_sibling", "nosmt")
    return isolate(evidence.context, "smt_sibling", chosen)


def _cost_of_sharing(evidence: Evidence, shared: set[int]) -> Cost | str:
    """Compare the isolated CPUs that share a core with those that do not."""
    spreads = {
        item.cpu: item.values.inst_jitter_ns.value
        for item in evidence.watched
        if item.valid and item.cpu in evidence.isolated
    }
    sharing = [value for cpu, value in spreads.items() if cpu in shared]
    alone = [value for cpu, value in spreads.items() if cpu not in shared]
    if not sharing or not alone:
        return (
            "What the sibling's work costs: no isolated CPU with a core of its own was measured beside them; "
            "Core jitter (jitter) shows it with the sibling busy and offline"
        )
    mine, theirs = median(sharing), median(alone)
    text = f"fixed work varies by {units.time_ns(mine)} on them, by {units.time_ns(theirs)} on other isolated CPUs"
    return Cost(
        text, "jitter.cpuN.inst_jitter_ns, medians of both groups", max(0.0, 1 - theirs / mine) if mine else 0.0
    )


def dimm_missing(evidence: Evidence) -> Iterator[Found]:
    """Find memory channels without a module."""
    peaks = population(evidence.context)
    if not isinstance(peaks, Population) or not peaks.machine.empty_slots:
        return
    empty, channels = peaks.machine.empty_slots, peaks.machine.channels
    share = len(empty) / channels
    cost: Cost | str = evidence.unmeasured("What the other channels move", "peak_injection_bandwidth")
    if (metric := evidence.read_bandwidth()) is not None:
        more = metric.value / peaks.machine.populated * len(empty) / 1000
        text = f"the populated channels read {units.headline(metric)}; at that rate the empty ones add {more:.0f} GB/s"
        cost = Cost(text, metric.name, share)
    slots = names(list(empty))
    yield Found(
        f"{len(empty)} of {channels} memory channels have no module: slots {slots}",
        cost,
        by_hand(f"fit a module like the others in the slots {slots}", f"remove the modules from {slots}"),
    )


def mixed_dimm_speed(evidence: Evidence) -> Iterator[Found]:
    """Find memory modules that run, or are rated, at different speeds."""
    dimms = [item for item in evidence.context.firmware.dimms if item.size_bytes and item.type not in NO_MEMORY]
    speeds = Counter(speed for item in dimms if (speed := _speed(item)) is not None)
    if evidence.context.virtualization.guest or len(speeds) < 2:
        return
    best, slowest = max(speeds), min(speeds)
    slow = names([item.locator or item.bank or "unnamed" for item in dimms if _speed(item) != best])
    kinds = ", ".join(f"{count} of {speed} MT/s" for speed, count in sorted(speeds.items(), reverse=True))
    cost: Cost | str = evidence.unmeasured("What the modules move together", "peak_injection_bandwidth")
    if (metric := evidence.read_bandwidth()) is not None:
        cost = Cost(
            f"all modules together read {units.headline(metric)}; a channel of {slowest} MT/s moves "
            f"{units.percent(1 - slowest / best)} less than one of {best} MT/s",
            metric.name,
            1 - slowest / best,
        )
    yield Found(
        f"Memory modules have different speeds, and the slowest limit their channels or all: {kinds}. Slower: {slow}",
        cost,
        by_hand(f"replace the modules in {slow} by ones of {best} MT/s", f"put the old modules back in {slow}"),
    )


def _speed(dimm: Dimm) -> int | None:
    """Return what a module runs at, or is rated for if that is all the firmware says."""
    return dimm.configured_mt_s or dimm.speed_mt_s


def nic_far(evidence: Evidence) -> Iterator[Found]:
    """Find network devices on nodes without isolated CPUs."""
    context = evidence.context
    near = {node for cpu in evidence.isolated if (node := context.node_of(cpu)) is not None}
    at_hand = {part for node in near for part in context.parts_of(node)}
    far = [
        device
        for device in context.devices or ()
        if device.kind == "network" and device.node is not None and device.node not in at_hand
        if device.driver == "vfio-pci"
        or any(
            interface.state == "up" and (interface.speed_mbit_s or MIN_MBIT_S) >= MIN_MBIT_S
            for interface in device.interfaces
        )
    ]
    for node in sorted({device.node for device in far if device.node is not None}):
        chosen = _cores_of(evidence, node)
        if not chosen:
            continue
        listed = names([device.name for device in far if device.node == node])
        yield Found(
            f"Network devices are on node {node}, the isolated CPUs on node {format_cpulist(near)}: {listed}",
            _cost_of_distance(evidence, min(near), node),
            isolate(context, "nic_far", chosen),
        )


def _cores_of(evidence: Evidence, node: int) -> list[int]:
    """Return CPUs of whole cores of *node*, as many as are isolated, or all but the first core's."""
    local = [core.cpus for core in evidence.context.topology.cores if core.cpus[0] in evidence.context.node(node).cpus]
    chosen: list[int] = []
    for core in reversed(local[1:]):
        if len(chosen) < len(evidence.isolated):
            chosen += core
    return chosen


def _cost_of_distance(evidence: Evidence, near: int, far: int) -> Cost | str:
    for kind, name, what in (
        ("latency_matrix", "latency_ns", "a load takes"),
        ("bandwidth_matrix", "bandwidth_mb_s", "its CPUs read"),
    ):
        local = evidence.metric(f"{kind}.{near}.{near}.{name}")
        remote = evidence.metric(f"{kind}.{near}.{far}.{name}")
        if local is not None and remote is not None:
            better, worse = (local, remote) if local.better == "lower" else (remote, local)
            text = f"{what} {units.headline(local)} on node {near}, {units.headline(remote)} from node {far}"
            # the far memory may be faster: of another kind, or with more modules
            return Cost(text, f"{local.name}, {remote.name}", max(0.0, 1 - better.value / worse.value))
    return evidence.unmeasured("The path between the nodes", "latency_matrix")
