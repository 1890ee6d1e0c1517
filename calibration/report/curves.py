# SPDX-License-Identifier: Apache-2.0
"""Memory curves beside those of others: of another run, of a text, and published ones of the same processor."""

from collections.abc import Iterator, Sequence
from typing import Final

from calibration.charts.base import COLOURS, Chart
from calibration.charts.curves import Published, curves_of
from calibration.charts.surfaces import Family, surface_chart
from calibration.formats.readings import ReadCurve, Reading, ReadMemoryCurves
from calibration.judge.comparison import name_of
from calibration.measurements.memory_curves import MemoryCurvesValues, curves_by_mix
from calibration.references.library import published
from calibration.references.matching import normal
from calibration.report.normal import published_curves
from calibration.results.model import RunDocument, public_readings

NAME: Final = "memory curves"


def reading_family(reading: Reading, values: ReadMemoryCurves) -> Family:
    """Return the curves of *values*, at most as many as there are colours."""
    shown = _spread(values.curves, len(COLOURS))
    curves = curves_of(
        (_mix(curve), (point.bandwidth_mb_s, point.latency_ns)) for curve in shown for point in curve.points
    )
    return Family(reading.instrument, curves, shown[0].points[0].latency_ns)


def _mix(curve: ReadCurve) -> str:
    return "reads" if curve.reads_percent == 100 else f"{100 - curve.reads_percent} % written"


def _spread(curves: Sequence[ReadCurve], most: int) -> list[ReadCurve]:
    """Return *most* of *curves*, evenly spread, with both ends; all if they are fewer."""
    if len(curves) <= most:
        return list(curves)
    return [curves[round(place * (len(curves) - 1) / (most - 1))] for place in range(most)]


def compared_curves(first: RunDocument, second: RunDocument) -> Chart | None:
    """Return the curves of both documents beside each other, with those published; ``None`` if one has none."""
    families, sources = [], []
    for document in (first, second):
        others = published_curves(normal(document, published()))
        if (family := next(_families(document, others), None)) is None:
            return None
        families.append(family)
        sources.append(others.source)
    return surface_chart(NAME, (), families, "".join(dict.fromkeys(sources)))


def _families(document: RunDocument, others: Published) -> Iterator[Family]:
    """Yield the valid curves of *document* of CPUs and their own memory, and those of texts that it was read from."""
    title = name_of(document)
    for measurement in document.measurements:
        values = measurement.values
        if isinstance(values, MemoryCurvesValues) and values.relation == "local" and measurement.validity.valid:
            curves = curves_by_mix(values)
            yield Family(f"{title}, {values.place}", curves, values.unloaded_ns.value, others.curves)
    for reading in public_readings(document):
        if isinstance(reading.values, ReadMemoryCurves):
            yield reading_family(reading, reading.values)._replace(title=title)
