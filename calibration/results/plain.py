# SPDX-License-Identifier: Apache-2.0
"""Run documents for other programs: values in place of estimates, and one row per headline figure.

A field holds the value itself and ``<field>_interval`` its interval, or null; what an estimate was made from stays in
the run document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from calibration.measurements.base import Metric, Values
from calibration.model import Model, format_time
from calibration.results.model import Measurement, RunDocument
from calibration.results.readings import flat
from calibration.statistics import Estimate

COLUMNS: Final = (
    "testbed",
    "sut",
    "run",
    "started_at",
    "status",
    "measurement",
    "metric",
    "value",
    "unit",
    "interval_low",
    "interval_high",
    "coverage",
    "estimator",
    "placements",
    "better",
    "instrument",
    "trust",
    "doubt",
    "flags",
    "verdict",
)
"""The columns of a row, in their order."""


def plain(value: Any) -> tuple[Any, Any]:
    """Return *value* with numbers in place of estimates, and beside it the same shape of intervals.

    The second is ``None`` where there is no estimate in *value*.
    """
    if isinstance(value, Estimate):
        return value.value, None if value.interval is None else list(value.interval)
    if isinstance(value, BaseModel):
        return _fields({name: getattr(value, name) for name in type(value).model_fields}), None
    if isinstance(value, Mapping):
        found = {name: plain(each) for name, each in value.items()}
        intervals = {name: each[1] for name, each in found.items()}
        estimates = any(isinstance(each, Estimate) for each in value.values())
        return {name: each[0] for name, each in found.items()}, intervals if estimates else None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        pairs = [plain(each) for each in value]
        return [each for each, _ in pairs], [each for _, each in pairs] if _has_estimate(value) else None
    return value, None


def _has_estimate(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return any(_has_estimate(each) for each in value)
    return isinstance(value, Estimate)


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in fields.items():
        found[name], intervals = plain(field)
        if _has_estimate(field) or (isinstance(field, Mapping) and intervals is not None):
            found[f"{name}_interval"] = intervals
    return found


def plain_values(values: Values) -> dict[str, Any]:
    """Return *values* of a measurement as fields with numbers, each with its interval beside it."""
    fields = {name: getattr(values, name) for name in type(values).model_fields}
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
        "missing": [each.model_dump(mode="json") for each in measurement.missing],
        "validity": {
            "valid": measurement.validity.valid,
            "flags": [each.code for each in measurement.validity.flags],
            "reasons": [each.reason for each in measurement.validity.flags],
        },
    }


def plain_document(document: RunDocument) -> dict[str, Any]:
    """Return *document* for other programs: measured here or read from a text, in one list."""
    return {
        "schema_version": document.schema_version,
        "run": document.run.model_dump(mode="json"),
        "facts": document.facts,
        "imported": None if document.imported is None else document.imported.model_dump(mode="json"),
        "measurements": [
            *(plain_measurement(each) for each in document.measurements),
            *(flat(each) for each in document.readings),
        ],
        "not_measured": [each.model_dump(mode="json") for each in document.not_measured],
        "verdicts": [each.model_dump(mode="json", exclude={"metric"}) for each in document.verdicts],
        "flags": [each.model_dump(mode="json") for each in document.flags],
        "record": [
            each.model_dump(mode="json", exclude={"metric"}) | {"metric": each.metric.name} for each in document.record
        ],
        "consistency": [each.model_dump(mode="json") for each in document.consistency],
    }


class Figured(Model):
    """One headline figure with what a reader must know of it: what measured it, and whether it may be believed."""

    measurement: str
    kind: str
    instrument: str
    valid: bool
    flags: tuple[str, ...]
    metric: Metric


def figured(document: RunDocument, *, public: bool = False) -> list[Figured]:
    """Return every headline figure of *document*, those that were measured here first.

    *public* leaves out what pages may not show.
    """
    measured = [
        Figured(
            measurement=each.id,
            kind=each.kind,
            instrument=each.instrument,
            valid=each.validity.valid,
            flags=tuple(dict.fromkeys(flag.code for flag in each.validity.flags)),
            metric=metric,
        )
        for each in document.measurements
        for metric in each.metrics()
    ]
    read = [
        Figured(
            measurement=each.id,
            kind=each.values.kind,
            instrument=each.instrument,
            valid=True,
            flags=(),
            metric=metric,
        )
        for each in (document.public_readings if public else document.readings)
        for metric in each.values.metrics()
    ]
    return [*measured, *read]


def rows(document: RunDocument) -> Iterator[dict[str, Any]]:
    """Yield one row per headline figure of *document*, with the keys :data:`COLUMNS`; what is absent is ``None``."""
    run = document.run
    verdicts = {each.name: each.outcome for each in document.verdicts}
    for figure in figured(document):
        metric = figure.metric
        low, high = metric.interval or (None, None)
        yield dict(
            zip(
                COLUMNS,
                (
                    run.testbed,
                    run.sut,
                    run.id,
                    format_time(run.started_at),
                    run.status,
                    figure.measurement,
                    metric.name,
                    metric.value,
                    metric.unit,
                    low,
                    high,
                    metric.coverage,
                    metric.estimator,
                    metric.placements,
                    metric.better,
                    figure.instrument,
                    metric.trust if figure.valid else "invalid",
                    None if metric.doubt is None else metric.doubt.code,
                    " ".join(figure.flags),
                    verdicts.get(metric.name),
                ),
                strict=True,
            )
        )
