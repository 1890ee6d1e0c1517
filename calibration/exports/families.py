# SPDX-License-Identifier: Apache-2.0
"""Names of metrics outside: a family in a base unit, and labels.

The conventions are Prometheus's: ``latency_matrix.0.1.latency_ns`` becomes ``calibration_latency_matrix_seconds`` with
the labels ``cpu_node="0"`` and ``memory_node="1"``. Labels are those of the metric's row. What describes
a family depends on the rows alone: node_exporter drops families that two files describe differently.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from calibration.measurements import declaration, row_of
from calibration.measurements.metric_rows import LABEL, Better, MetricRow

PREFIX: Final = "calibration"

WORST_OF: Final = "cpu"
"""Label whose worst value may represent all: a lab of 100 SUTs with 504 CPUs has 150,000 of it."""


class BaseUnit(NamedTuple):
    """A base unit: ``factor`` converts to it, ``ending`` is how names say the old one."""

    name: str
    factor: float
    ending: str


BASE_UNITS: Final = {
    "ns": BaseUnit("seconds", 1e-9, "_ns"),
    "s": BaseUnit("seconds", 1.0, "_s"),
    "MB/s": BaseUnit("bytes_per_second", 1e6, "_mb_s"),
    "Hz": BaseUnit("hertz", 1.0, "_hz"),
    "fraction": BaseUnit("ratio", 1.0, "_(?:fraction|share)"),
    "per hour": BaseUnit("per_second", 1 / 3600, "_per_hour"),
    "°C": BaseUnit("celsius", 1.0, "_c"),
    "loads": BaseUnit("", 1.0, ""),
    "errors": BaseUnit("", 1.0, ""),
}
"""Base unit of each unit of metrics; a number of things has none."""


class Family(NamedTuple):
    """The family of a metric, its unit, labels, and meaning; ``factor`` converts the metric's values.

    ``kind`` is the measurement's, ``better`` the direction that is better. ``meaning`` and ``labelled``, the labels
    that any metric of the family has, are the same for all its metrics.
    """

    name: str
    unit: str
    factor: float
    labels: tuple[tuple[str, str], ...]
    meaning: str
    labelled: frozenset[str]
    kind: str
    better: Better


@lru_cache(maxsize=100_000)
def family_of(metric: str) -> Family | None:
    """Return the family of *metric*; ``None`` if no measurement of this version has it."""
    row = row_of(metric)
    labels = row.labels(metric)
    if labels is None or row.imported:
        return None
    kind = metric.partition(".")[0]
    name, unit = _name(kind, row), BASE_UNITS[row.unit]
    alike = [other for other in declaration(kind).metric_rows if not other.imported and _name(kind, other) == name]
    return Family(
        name,
        unit.name,
        unit.factor,
        tuple(sorted(labels.items())),
        "; ".join(dict.fromkeys(other.meaning for other in alike)),
        frozenset(label for other in alike for label in other.pattern.groupindex),
        kind,
        row.better,
    )


@lru_cache
def _name(kind: str, row: MetricRow) -> str:
    """Return the kind, what the names of *row* say besides kind, labels and unit, and the base unit."""
    unit = BASE_UNITS[row.unit]
    *parts, last = LABEL.sub("\0", row.name).split(".")
    words = [part for part in parts[1:] if "\0" not in part]
    words.append(re.sub(f"{unit.ending}$", "", "_" + last.replace("\0", "_")))
    measure = re.sub("_+", "_", "_".join(words)).strip("_")
    return "_".join(filter(None, (PREFIX, kind, "" if measure in kind.split("_") else measure, unit.name)))
