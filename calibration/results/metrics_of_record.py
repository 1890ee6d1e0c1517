# SPDX-License-Identifier: Apache-2.0
"""The metrics of record of a run: one per quantity.

Other measurements of the same quantity are cross-checks (``calibration.results.consistency``).
"""

from collections.abc import Sequence
from typing import Final, get_args

from calibration.measurements import record_title, row_of
from calibration.measurements.base import Metric
from calibration.measurements.jitter import JitterValues
from calibration.measurements.metric_rows import Quantity, Record
from calibration.results.model import Measurement, RecordMetric

QUANTITIES: Final[tuple[Quantity, ...]] = get_args(Quantity)


def metrics_of_record(measurements: Sequence[Measurement]) -> tuple[RecordMetric, ...]:
    """Return the metrics of record of the *measurements* of one run, by quantity, in the order of the quantities.

    An invalid metric is used only if the quantity has no other.
    """
    sources: dict[Record, list[tuple[Measurement, Metric]]] = {}
    for measurement in measurements:
        for metric in measurement.metrics():
            if (record := row_of(metric.name).record) is not None:
                sources.setdefault(record, []).append((measurement, metric))
    found: dict[str, RecordMetric] = {}
    for record in sorted(sources, key=lambda record: (QUANTITIES.index(record.quantity), record.rank)):
        for measurement, metric in _worst(sources[record]) if record.worst else sources[record]:
            item = _of(record, measurement, metric)
            kept = found.get(item.quantity)
            if kept is None or (kept.trust == "invalid") > (item.trust == "invalid"):
                found[item.quantity] = item
    if any(name.startswith("idle_latency.") for name in found):
        found.pop("idle_latency", None)
    if {"read_bandwidth.machine", "read_bandwidth.0"} <= found.keys() and "read_bandwidth.1" not in found:
        del found["read_bandwidth.0"]  # the only node is the machine
    return tuple(found.values())


def _worst(metrics: Sequence[tuple[Measurement, Metric]]) -> list[tuple[Measurement, Metric]]:
    """Return the largest of *metrics*: of the isolated CPUs, else of all."""
    isolated = [pair for pair in metrics if isinstance(pair[0].values, JitterValues) and pair[0].values.isolated]
    return [max(isolated or metrics, key=lambda pair: pair[1].value)]


def quantity_of(metric: str) -> str | None:
    """Return the quantity that *metric* can be of record of; ``None`` if there is none."""
    row = row_of(metric)
    if row.record is None:
        return None
    return ".".join(filter(None, (row.record.quantity, row.record.place.format(**(row.labels(metric) or {})))))


def _of(record: Record, measurement: Measurement, metric: Metric) -> RecordMetric:
    trust, reason = measurement.trust_in(metric)
    return RecordMetric(
        quantity=quantity_of(metric.name) or "",
        family=record.quantity,
        title=record_title(metric.name) or "",
        metric=metric,
        measurement=measurement.id,
        trust=trust,
        reason=reason,
    )
