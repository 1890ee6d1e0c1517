# SPDX-License-Identifier: Apache-2.0
"""Names of metrics outside: a family in a base unit, and labels.

The conventions are Prometheus's: ``latency_matrix.0.1.latency_ns`` becomes ``calibration_latency_matrix_seconds`` with
the labels ``cpu_node="0"`` and ``memory_node="1"``. Labels are the named groups of the metric's pattern.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from calibration.measurements import registry
from calibration.measurements.base import Better

PREFIX: Final = "calibration"


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

    ``kind`` is the measurement's, ``better`` the direction that is better.
    """

    name: str
    unit: str
    factor: float
    labels: tuple[tuple[str, str], ...]
    meaning: str
    kind: str
    better: Better


@lru_cache(maxsize=100_000)
def family_of(metric: str) -> Family | None:
    """Return the family of *metric*; ``None`` if this version has no such metric."""
    kind = metric.partition(".")[0]
    declaration = registry().get(kind)
    for pattern in declaration.metric_patterns if declaration else ():
        if found := re.fullmatch(pattern.names, metric, re.ASCII):
            unit = BASE_UNITS[pattern.unit]
            name = "_".join(filter(None, (PREFIX, kind, _measure(kind, found, unit), unit.name)))
            labels = tuple((label, value) for label, value in sorted(found.groupdict().items()) if value is not None)
            return Family(name, unit.name, unit.factor, labels, pattern.meaning, kind, pattern.better)
    return None


def _measure(kind: str, found: re.Match[str], unit: BaseUnit) -> str:
    """Return what a metric's name says besides its kind, labels and unit; not what its kind says already."""
    metric, words, start = found.string, [], 0
    spans = [found.span(label) for label in found.groupdict()]
    parts = metric.split(".")
    for number, part in enumerate(parts):
        inside = [(low - start, high - start) for low, high in spans if start <= low < high <= start + len(part)]
        start += len(part) + 1
        last = number == len(parts) - 1
        if number and (last or not inside):
            for low, high in sorted(inside, reverse=True):
                part = f"{part[:low]}_{part[high:]}"  # noqa: PLW2901 - without its labels
            words.append(re.sub(f"{unit.ending}$", "", f"_{part}") if last else part)
    measure = re.sub("_+", "_", "_".join(words)).strip("_")
    return "" if measure in kind.split("_") else measure
