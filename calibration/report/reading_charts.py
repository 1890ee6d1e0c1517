# SPDX-License-Identifier: Apache-2.0
"""Charts of results imported from another program's text."""

from calibration.charts.base import Chart
from calibration.charts.curves import curves_of
from calibration.charts.load import PROBE, latency_chart
from calibration.charts.matrices import matrices_chart, node_matrix
from calibration.formats.readings import ReadBandwidthMatrix, Reading, ReadLatencyMatrix, ReadLoadedLatency
from calibration.statistics import estimate


def reading_chart(reading: Reading) -> Chart | None:
    """Return the chart of *reading*; ``None`` if the kind has none, for a single cell, or if all figures are zero."""
    values, name = reading.values, f"read-{reading.id}"
    match values:
        case ReadLatencyMatrix():
            matrix = node_matrix("Idle latency", "ns", (values.cpu_nodes, values.memory_nodes), values.latency_ns)
        case ReadBandwidthMatrix():
            nodes = values.cpu_nodes, values.memory_nodes
            matrix = node_matrix("Read bandwidth", "GB/s", nodes, values.bandwidth_mb_s, 1e3)
        case ReadLoadedLatency():
            return _load(name, reading.instrument, values)
        case _:
            return None
    return matrices_chart(name, [matrix])


def _load(name: str, instrument: str, values: ReadLoadedLatency) -> Chart | None:
    if not any(point.latency_ns for point in values.points) or not any(point.bandwidth_mb_s for point in values.points):
        return None
    found = curves_of(
        (instrument, (estimate([[point.bandwidth_mb_s]], "MB/s"), point.latency_ns)) for point in values.points
    )
    caption = "Each point is one injection delay; the uncertainty is unknown."
    return latency_chart(name, (), found, PROBE, caption)
