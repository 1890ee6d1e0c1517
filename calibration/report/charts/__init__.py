# SPDX-License-Identifier: Apache-2.0
"""Charts: typed values in, a Vega-Lite specification out, or ``None`` where a sentence says more."""

from calibration.report.charts.base import HALF, WIDE, Chart, Picture, picture
from calibration.report.charts.gaps import gaps
from calibration.report.charts.ladders import latency_ladder
from calibration.report.charts.load import loaded_latency, read_load, regulated_latency
from calibration.report.charts.matrices import node_matrix, numa, read_matrix

__all__ = [
    "HALF",
    "WIDE",
    "Chart",
    "Picture",
    "gaps",
    "latency_ladder",
    "loaded_latency",
    "node_matrix",
    "numa",
    "picture",
    "read_load",
    "read_matrix",
    "regulated_latency",
]
