# SPDX-License-Identifier: Apache-2.0
"""Names of metrics outside: a family in a base unit, and labels.

The conventions are Prometheus's: ``latency_matrix.0.1.latency_ns`` becomes ``calibration_latency_matrix_seconds`` with
the labels ``cpu_node="0"`` and ``memory_node="1"``. Labels are the named groups of the metric's pattern. What describes
a family depends on the patterns alone: node_exporter drops families that two files describe differently.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from calibration.measurements import registry
from calibration.measurements.base import Better, MetricPattern

PREFIX: Final = "calibration"

LABEL: Final = "\0"
"""Stands for a label in the text of a pattern."""


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
    "loads": BaseUnit("", 1.0, ""),
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
    """Return the family of *metric*; ``None`` if this version has no such metric."""
    kind = metric.partition(".")[0]
    patterns = _named(kind)
    for pattern, name in patterns:
        if found := re.fullmatch(pattern.names, metric, re.ASCII):
            unit = BASE_UNITS[pattern.unit]
            labels = tuple((label, value) for label, value in sorted(found.groupdict().items()) if value is not None)
            alike = [other for other, of in patterns if of == name]
            return Family(
                name,
                unit.name,
                unit.factor,
                labels,
                "; ".join(dict.fromkeys(other.meaning for other in alike)),
                frozenset(label for other in alike for label in re.compile(other.names).groupindex),
                kind,
                pattern.better,
            )
    return None


@lru_cache
def _named(kind: str) -> tuple[tuple[MetricPattern, str], ...]:
    """Return the patterns of a kind, each with the name of its family, which no single metric decides."""
    declaration = registry().get(kind)
    return tuple((pattern, _name(kind, pattern)) for pattern in declaration.metric_patterns) if declaration else ()


def _name(kind: str, pattern: MetricPattern) -> str:
    """Return the kind, what the names of *pattern* say besides kind, labels and unit, and the base unit."""
    unit = BASE_UNITS[pattern.unit]
    *parts, last = re.split(r"\\\.", _without_labels(pattern.names))
    words = [part for part in parts[1:] if LABEL not in part]
    words.append(re.sub(f"{unit.ending}$", "", "_" + last.replace(LABEL, "_")))
    measure = re.sub("_+", "_", "_".join(words)).strip("_")
    return "_".join(filter(None, (PREFIX, kind, "" if measure in kind.split("_") else measure, unit.name)))


def _without_labels(names: str) -> str:
    """Return the expression *names* with ``LABEL`` for each named group, and without what is optional."""
    while found := re.search(r"\(\?P<\w+>", names):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(names[end], 0)
            end += 1
        names = names[: found.start()] + LABEL + names[end:]
    return re.sub(r"\(\?:[^()]*\)\?", "", names)
