# SPDX-License-Identifier: Apache-2.0
"""What a run says about its hardware: the machine, and its figures in the quantities of references."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from calibration.base.trust import Trust, lowest
from calibration.context.model import Context
from calibration.context.population import NO_MEMORY, Population, population
from calibration.measurements import row_of
from calibration.measurements.base import Metric as RunMetric
from calibration.references.metrics import MEMORY, OWN, QUANTITIES, Condition, Metric, unit_of
from calibration.references.model import Figure, Memory, ReferenceMachine
from calibration.results.model import Measurement, RunDocument

PAGES: Final[Mapping[str, str]] = {"HUGEPAGE_NONE": "base pages", "HUGEPAGE_PARTIAL": "some huge pages"}
"""How a latency was measured if not on huge pages: page walks are in it."""

WALKED: Final = frozenset(
    {"idle_latency_local_ns", "idle_latency_near_ns", "idle_latency_remote_ns", "loaded_latency_max_ns", "l3_ns"}
)
"""Latencies that depend on the pages."""


class Observed(NamedTuple):
    """One figure of a run: the median of ``places`` nodes or pairs, with their extremes, or the only one's interval.

    ``how`` is as in a file of references. ``trust`` is the lowest of them.
    """

    metric: Metric
    unit: str
    value: float
    interval: tuple[float, float] | None
    places: int
    how: str | None
    trust: Trust


class Subject(NamedTuple):
    """The machine of a run: what figures depend on, as far as it shows them.

    ``label`` is testbed and SUT. ``reason`` says why the machine cannot be compared, ``None`` if it can.
    """

    label: str
    processor: str | None
    conditions: Mapping[Condition, int | None]
    memory_type: str | None
    reason: str | None


def subject_of(document: RunDocument) -> Subject:
    """Return the machine of *document*."""
    label = f"{document.run.testbed}/{document.run.sut}"
    unknown: Mapping[Condition, int | None] = dict.fromkeys(MEMORY)
    if document.context is None:
        return Subject(label, None, unknown, None, "the SUT was not captured")
    context = document.context.parsed
    if context.virtualization.guest:
        return Subject(label, None, unknown, None, "host hardware unknown (virtual machine)")
    if document.imported is not None:
        return Subject(label, None, unknown, None, "the figures are not of our own instrument")
    names = {model.name for model in context.processor.models}
    name = names.pop() if len(names) == 1 else None
    if not name:
        return Subject(label, None, unknown, None, "the kernel does not name the processor")
    packages = context.topology.packages
    kind, mt_s, channels = _memory(context)
    conditions: dict[Condition, int | None] = {
        "sockets": packages,
        "cores_per_socket": _share(len(context.topology.cores), packages),
        "nodes_per_socket": _share(sum(map(bool, context.cpus_by_node.values())), packages),
        "mt_s": mt_s,
        "channels_per_socket": channels,
    }
    return Subject(label, name, conditions, kind, None)


def _share(count: int, packages: int | None) -> int | None:
    """Return *count* by package; ``None`` if packages have unequal shares, or none is known."""
    return count // packages if packages and count and count % packages == 0 else None


def _memory(context: Context) -> tuple[str | None, int | None, int | None]:
    """Return type, speed in MT/s and populated channels of a socket, each ``None`` if modules or sockets differ."""
    dimms = [dimm for dimm in context.firmware.dimms if dimm.size_bytes and dimm.type not in NO_MEMORY]
    kinds, speeds = ({dimm.type for dimm in dimms}, {dimm.configured_mt_s for dimm in dimms})
    found = population(context)
    channels = None
    if isinstance(found, Population):
        by_package = {peak.populated for peak in found.packages.values()}
        channels = by_package.pop() if len(by_package) == 1 else None
    return kinds.pop() if len(kinds) == 1 else None, speeds.pop() if len(speeds) == 1 else None, channels


def observed(document: RunDocument) -> list[Observed]:
    """Return the valid figures of *document* in the quantities of references, in their order."""
    context = None if document.context is None else document.context.parsed
    found: dict[Metric, dict[bool, list[tuple[Measurement, RunMetric]]]] = {}
    for measurement in document.measurements:
        for metric in measurement.metrics():
            row = row_of(metric.name)
            if row.reference is None or measurement.trust_in(metric).trust == "invalid":
                continue
            labels = row.labels(metric.name) or {}
            nodes = [int(number) for label, number in labels.items() if label.endswith("_node")]
            relation = context.relation(*nodes) if nodes and context else "local" if len(set(nodes)) == 1 else None
            name = row.reference.format(relation=relation, **labels)
            if name in QUANTITIES:
                found.setdefault(name, {}).setdefault(bool(nodes), []).append((measurement, metric))
    # a matrix has all places, and goes before a measurement of one
    return [_observed(name, found[name].get(True) or found[name][False]) for name in QUANTITIES if name in found]


def _observed(name: Metric, cells: Sequence[tuple[Measurement, RunMetric]]) -> Observed:
    values = [metric.value for _, metric in cells]
    codes = {flag.code for measurement, _ in cells for flag in measurement.validity.flags}
    return Observed(
        metric=name,
        unit=unit_of(name),
        value=median(values),
        interval=(min(values), max(values)) if len(values) > 1 else cells[0][1].interval,
        places=len(values),
        how=next((how for code, how in PAGES.items() if code in codes), None) if name in WALKED else None,
        trust=lowest(measurement.trust_in(metric).trust for measurement, metric in cells) or "observed",
    )


def machine_of(document: RunDocument, subject: Subject) -> ReferenceMachine | None:
    """Return what the run *document* of *subject* contributes to references; ``None`` if no figure is good enough.

    Figures of poor trust are left out.
    """
    found = [item for item in observed(document) if item.trust != "poor"]
    if not found or subject.processor is None:
        return None
    known = subject.conditions
    return ReferenceMachine(
        name=subject.label,
        processor=subject.processor,
        sockets=known["sockets"],
        cores_per_socket=known["cores_per_socket"],
        nodes_per_socket=known["nodes_per_socket"],
        memory=Memory(type=subject.memory_type, mt_s=known["mt_s"], channels_per_socket=known["channels_per_socket"]),
        instrument=OWN,
        version=document.run.harness_version,
        run=document.run.id,
        date=document.run.started_at.date(),
        figures=tuple(
            Figure(
                metric=item.metric,
                value=round(item.value, 3),
                low=None if item.interval is None else round(min(item.interval[0], item.value), 3),
                high=None if item.interval is None else round(max(item.interval[1], item.value), 3),
                how=item.how,
            )
            for item in found
        ),
    )
