# SPDX-License-Identifier: Apache-2.0
"""The metrics of record of a run: one per quantity.

Other measurements of the same quantity are cross-checks (``calibration.results.consistency``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast, get_args

from calibration.measurements.base import Metric
from calibration.measurements.jitter import JitterValues
from calibration.model import Model
from calibration.trust import Trust
from calibration.validity import Flag

if TYPE_CHECKING:  # the model of a run contains these metrics
    from calibration.results.model import Measurement

Family = Literal[
    "idle_latency", "read_bandwidth", "loaded_latency", "cache_latency", "worst_gap", "lost_share", "clock"
]
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)


class RecordMetric(Model):
    """The metric of record of *quantity*, with its trust and the worst reason against it.

    ``quantity`` is stable, for example ``idle_latency.0.1``: from the CPUs of node 0 to the memory of node 1.
    """

    quantity: str
    family: Family
    title: str
    metric: Metric
    measurement: str
    trust: Trust
    reason: Flag | None


class Source(NamedTuple):
    """A source of a quantity: metrics by name, whose groups fill in *quantity* and *title*.

    The part of *quantity* before the first dot is its family.
    """

    names: str
    quantity: str
    title: str


SOURCES: Final = (
    Source(r"latency_matrix\.(\d+)\.(\d+)\.latency_ns", "idle_latency.{0}.{1}", "Idle latency, node {0} to node {1}"),
    Source(r"idle_latency\.latency_ns", "idle_latency", "Idle latency"),
    Source(r"peak_injection_bandwidth\.reads\.bandwidth_mb_s", "read_bandwidth.machine", "Read bandwidth, all CPUs"),
    Source(r"max_bandwidth\.reads\.bandwidth_mb_s", "read_bandwidth.machine", "Maximum read bandwidth"),
    Source(
        r"bandwidth_matrix\.(\d+)\.\1\.bandwidth_mb_s",
        "read_bandwidth.{0}",
        "Read bandwidth, node {0} from its own memory",
    ),
    Source(
        r"loaded_latency\.90pct(?:\.(cpu\d+))?\.latency_ns",
        "loaded_latency.{0}",
        "Latency at 90 % of the peak bandwidth",
    ),
    Source(r"loaded_latency\.0\.latency_ns", "loaded_latency.first", "Latency under full load"),
    Source(r"latency_ladder\.(L\d)\.latency_ns", "cache_latency.{0}", "{0} latency"),
    Source(r"core_frequency\.scalar\.all\.median_hz", "clock", "Core clock, all cores busy"),
    Source(r"core_frequency\.scalar\.all\.lowest_hz", "clock", "Core clock, all cores busy"),
)
"""In order of preference for a quantity."""


def metrics_of_record(measurements: Sequence[Measurement]) -> tuple[RecordMetric, ...]:
    """Return the metrics of record of the *measurements* of one run, in the order of ``SOURCES``, gaps last.

    An invalid metric is used only if the quantity has no other.
    """
    metrics = [(measurement, metric) for measurement in measurements for metric in measurement.metrics()]
    found: dict[str, RecordMetric] = {}
    for source in SOURCES:
        for measurement, metric in metrics:
            if match := re.fullmatch(source.names, metric.name):
                groups = [group or "first" for group in match.groups()]
                item = _of(source.quantity.format(*groups), source.title.format(*groups), measurement, metric)
                kept = found.get(item.quantity)
                if kept is None or (kept.trust == "invalid") > (item.trust == "invalid"):
                    found[item.quantity] = item
    if any(name.startswith("idle_latency.") for name in found):
        found.pop("idle_latency", None)
    if {"read_bandwidth.machine", "read_bandwidth.0"} <= found.keys() and "read_bandwidth.1" not in found:
        del found["read_bandwidth.0"]  # the only node is the machine
    return (*found.values(), *_gaps(metrics))


def _gaps(metrics: Sequence[tuple[Measurement, Metric]]) -> Iterator[RecordMetric]:
    """Yield the worst gap and the largest lost share: of the isolated CPUs, else of all."""
    isolated = [pair for pair in metrics if isinstance(pair[0].values, JitterValues) and pair[0].values.isolated]
    for quantity, suffix, title in (
        ("worst_gap", ".gaps.max_ns", "Longest gap"),
        ("lost_share", ".gaps.lost_fraction", "Time lost in gaps"),
    ):
        of_all = [(measurement, metric) for measurement, metric in isolated or metrics if metric.name.endswith(suffix)]
        if of_all:
            measurement, metric = max(of_all, key=lambda pair: pair[1].value)
            values = measurement.values
            where = f", CPU {values.cpu}" if isinstance(values, JitterValues) else ""
            yield _of(quantity, f"{title}{where}", measurement, metric)


def _of(quantity: str, title: str, measurement: Measurement, metric: Metric) -> RecordMetric:
    trust, reason = measurement.trust_in(metric)
    return RecordMetric(
        quantity=quantity,
        family=cast("Family", quantity.partition(".")[0]),
        title=title,
        metric=metric,
        measurement=measurement.id,
        trust=trust,
        reason=reason,
    )
