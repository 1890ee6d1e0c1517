# SPDX-License-Identifier: Apache-2.0
"""Charts of results imported from another program's text."""

from calibration.base.statistics import estimate
from calibration.charts.base import Chart
from calibration.charts.curves import curves_of
from calibration.charts.load import PROBE, latency_chart
from calibration.charts.matrices import matrices_chart
from calibration.charts.surfaces import surface_chart
from calibration.formats.readings import Reading, ReadLoadedLatency, ReadMemoryCurves, ReadTable
from calibration.measurements import declaration
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.report.curves import reading_family


def reading_chart(reading: Reading) -> Chart | None:
    """Return the chart of *reading*; ``None`` if the kind has none, for a single cell, or if all figures are zero."""
    values, name = reading.values, f"read-{reading.id}"
    if isinstance(values, ReadLoadedLatency):
        return _load(name, reading.instrument, values)
    if isinstance(values, ReadMemoryCurves):
        return surface_chart(name, (), [reading_family(reading, values)])
    kind = declaration(values.kind).values
    if isinstance(values, ReadTable) and issubclass(kind, NodeMatrixValues):
        return matrices_chart(name, [kind.matrix(values.table)])
    return None


def _load(name: str, instrument: str, values: ReadLoadedLatency) -> Chart | None:
    if not any(point.latency_ns for point in values.points) or not any(point.bandwidth_mb_s for point in values.points):
        return None
    found = curves_of(
        (instrument, (estimate([[point.bandwidth_mb_s]], "MB/s"), point.latency_ns)) for point in values.points
    )
    caption = "Each point is one injection delay; the uncertainty is unknown."
    return latency_chart(name, (), found, PROBE, caption)
