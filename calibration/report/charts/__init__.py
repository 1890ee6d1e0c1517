# SPDX-License-Identifier: Apache-2.0
"""Charts: typed values in, a Vega-Lite specification out, or ``None`` where a sentence says more."""

from calibration.report.charts.bandwidth import (
    bandwidth_by_mix,
    bandwidth_scaling,
    counted_volume,
    latency_by,
    regulation,
    sustained_bandwidth,
    variation,
)
from calibration.report.charts.base import HALF, WIDE, Chart, Picture, picture
from calibration.report.charts.cores import core_frequency, core_to_core
from calibration.report.charts.gaps import gaps
from calibration.report.charts.ladders import bandwidth_ladder, latency_ladder, prefetcher_effect
from calibration.report.charts.load import loaded_latency, read_load
from calibration.report.charts.matrices import node_matrix, numa, read_matrix
from calibration.report.charts.trends import Dot, dot_strip, trend

__all__ = [
    "HALF",
    "WIDE",
    "Chart",
    "Dot",
    "Picture",
    "bandwidth_by_mix",
    "bandwidth_ladder",
    "bandwidth_scaling",
    "core_frequency",
    "core_to_core",
    "counted_volume",
    "dot_strip",
    "gaps",
    "latency_by",
    "latency_ladder",
    "loaded_latency",
    "node_matrix",
    "numa",
    "picture",
    "prefetcher_effect",
    "read_load",
    "read_matrix",
    "regulation",
    "sustained_bandwidth",
    "trend",
    "variation",
]
