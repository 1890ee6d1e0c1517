# SPDX-License-Identifier: Apache-2.0
"""Run documents for other programs: plain values instead of estimates, and one row per metric.

A field holds the value, ``<field>_interval`` its interval and ``<field>_prediction`` the prediction for the next run,
or null; samples stay in the run document.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from calibration.base.grouping import grouped
from calibration.base.model import Model, format_time
from calibration.base.statistics import Estimate
from calibration.base.validity import Validity, validity
from calibration.formats.readings import Reading, flat
from calibration.measurements.base import Metric, Values
from calibration.measurements.table import Gridded, TableRow
from calibration.results.model import (
    Measurement,
    MetricsDocument,
    MetricsMeasurement,
    Run,
    RunDocument,
    public_readings,
)


def plain(value: Any) -> Any:
    """Return *value* with numbers instead of estimates; a model's fields have intervals and predictions beside them."""
    if isinstance(value, Estimate):
        return value.value
    if isinstance(value, BaseModel | TableRow):
        return _fields(_parts_of(value))
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(part) for part in value]
    return value


def _parts_of(model: BaseModel | TableRow) -> dict[str, Any]:
    """Return the fields of *model*; those of its table are among them."""
    fields = dict(model)
    return fields | model.fields(fields.pop("table")) if isinstance(model, Gridded) else fields


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in fields.items():
        found[name] = plain(field)
        if _has_estimate(field):
            found |= {f"{name}_{ends}": _ends(field, ends) for ends in ("interval", "prediction")}
    return found


def _parts(value: Any) -> Iterable[Any]:
    """Return the members of a mapping or a sequence; nothing for a row of a table and anything else."""
    if isinstance(value, Mapping) and not isinstance(value, TableRow):
        return value.values()
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _has_estimate(value: Any) -> bool:
    return isinstance(value, Estimate) or any(map(_has_estimate, _parts(value)))


def _ends(value: Any, name: str) -> Any:
    """Return the intervals or predictions, as *name* says, of the estimates in *value*, in its shape."""
    if isinstance(value, Estimate):
        ends = getattr(value, name)
        return ends and list(ends)
    if isinstance(value, Mapping):
        return {key: _ends(part, name) for key, part in value.items()}
    parts = _parts(value)
    return [_ends(part, name) for part in parts] if parts else None


def plain_values(values: Values) -> dict[str, Any]:
    """Return *values* of a measurement as fields with numbers, each with interval and prediction beside it."""
    fields = _parts_of(values)
    if "mixes" in fields and values.kind.endswith("_bandwidth"):
        fields["bandwidth_mb_s"] = {name: mix.bandwidth_mb_s for name, mix in fields["mixes"].items()}
    return _fields(fields)


def plain_measurement(measurement: Measurement) -> dict[str, Any]:
    """Return *measurement* as one object with the fields of its values."""
    return {
        **measurement.model_dump(mode="json", include={"id", "kind", "title", "instrument", "argv", "parameters"}),
        "started_at": format_time(measurement.started_at),
        "duration_s": measurement.duration_s,
        **plain_values(measurement.values),
        "missing": [part.model_dump(mode="json") for part in measurement.missing],
        "validity": {
            "valid": measurement.validity.valid,
            "flags": [flag.code for flag in measurement.validity.flags],
            "reasons": [flag.reason for flag in measurement.validity.flags],
        },
    }


def plain_document(document: RunDocument) -> dict[str, Any]:
    """Return *document* for other programs: own measurements and readings in one list."""
    return {
        "schema_version": document.schema_version,
        "run": document.run.model_dump(mode="json"),
        "facts": document.facts,
        "imported": None if document.imported is None else document.imported.model_dump(mode="json"),
        "measurements": [
            *(plain_measurement(measurement) for measurement in document.measurements),
            *(flat(reading) for reading in document.readings),
        ],
        "not_measured": [item.model_dump(mode="json") for item in document.not_measured],
        "verdicts": [verdict.model_dump(mode="json", exclude={"metric"}) for verdict in document.verdicts],
        "flags": [flag.model_dump(mode="json") for flag in document.flags],
        "record": [
            item.model_dump(mode="json", exclude={"metric"}) | {"metric": item.metric.name} for item in document.record
        ],
        "consistency": [check.model_dump(mode="json") for check in document.consistency],
    }


class DocumentMetric(Model):
    """One metric with its instrument and validity."""

    measurement: str
    kind: str
    instrument: str
    valid: bool
    flags: tuple[str, ...]
    metric: Metric


def metrics_of(document: RunDocument, *, public: bool = False) -> list[DocumentMetric]:
    """Return every metric of *document*, own measurements first.

    *public* omits what pages may not show.
    """
    readings = public_readings(document) if public else document.readings
    found: list[tuple[Measurement | Reading, Validity, Iterable[Metric]]] = [
        *((item, item.validity, item.metrics()) for item in document.measurements),
        *((item, validity(()), item.values.metrics()) for item in readings),
    ]
    return [
        DocumentMetric(
            measurement=item.id,
            kind=item.values.kind,
            instrument=item.instrument,
            valid=judged.valid,
            flags=judged.codes,
            metric=metric,
        )
        for item, judged, metrics in found
        for metric in metrics
    ]


class PlainRow(NamedTuple):
    """One metric of a run, as a line of a table; missing values are ``None``."""

    testbed: str
    sut: str
    run: str
    started_at: str
    status: str
    measurement: str
    metric: str
    value: float
    unit: str
    interval_low: float | None
    interval_high: float | None
    coverage: float | None
    prediction_low: float | None
    prediction_high: float | None
    estimator: str | None
    rounds: int | None
    placements: int | None
    better: str
    instrument: str
    trust: str
    doubt: str | None
    flags: str
    verdict: str | None


def rows(document: RunDocument | MetricsDocument) -> Iterator[PlainRow]:
    """Yield one row per metric of *document*: those of own measurements as judged, and those of readings."""
    outcomes = {verdict.name: verdict.outcome for verdict in document.verdicts}
    judged = grouped((item.measurement, item.metric) for item in document.verdicts if item.metric is not None)
    for measurement in document.measurements:
        for metric in judged.get(measurement.id, ()):
            yield _row(document.run, measurement, measurement.validity, metric, outcomes)
    for reading in document.readings:
        for metric in reading.values.metrics():
            yield _row(document.run, reading, validity(()), metric, outcomes)


def _row(
    run: Run,
    item: Measurement | MetricsMeasurement | Reading,
    trusted: Validity,
    metric: Metric,
    outcomes: Mapping[str, str],
) -> PlainRow:
    """Return the row of *metric* of *item*, which is *trusted* so far."""
    low, high = metric.interval or (None, None)
    next_low, next_high = metric.prediction or (None, None)
    return PlainRow(
        testbed=run.testbed,
        sut=run.sut,
        run=run.id,
        started_at=format_time(run.started_at),
        status=run.status,
        measurement=item.id,
        metric=metric.name,
        value=metric.value,
        unit=metric.unit,
        interval_low=low,
        interval_high=high,
        coverage=metric.coverage,
        prediction_low=next_low,
        prediction_high=next_high,
        estimator=metric.estimator,
        rounds=metric.rounds,
        placements=metric.placements,
        better=metric.better,
        instrument=item.instrument,
        trust=metric.trust if trusted.valid else "invalid",
        doubt=None if metric.doubt is None else metric.doubt.code,
        flags=" ".join(trusted.codes),
        verdict=outcomes.get(metric.name),
    )
