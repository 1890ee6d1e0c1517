# SPDX-License-Identifier: Apache-2.0
"""Memory curves of a text."""

from collections.abc import Sequence

from calibration.charts.base import COLOURS
from calibration.charts.curves import curves_of
from calibration.charts.surfaces import Family
from calibration.formats.readings import ReadCurve, Reading, ReadMemoryCurves


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
