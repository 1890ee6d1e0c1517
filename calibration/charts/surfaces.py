# SPDX-License-Identifier: Apache-2.0
"""Latency against bandwidth for each share of writes: a family of curves for each memory, beside each other."""

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from calibration.charts import base, curves
from calibration.charts.alternative import alternative
from calibration.charts.base import WIDE, Chart, Frame, Json, Measured, Scale, rounded
from calibration.charts.curves import Curves

GAP_PX: Final = 26
"""Between two plots."""

AROUND_PX: Final = base.LEFT + 16
"""What a plot takes beside its width: axis and padding."""


class Family(NamedTuple):
    """The curves of one memory: their title, bandwidth (MB/s) and latency (ns) by mix, and latency without load.

    ``published`` are curves of others for the same processor.
    """

    title: str
    curves: Curves
    unloaded_ns: float
    published: Curves = MappingProxyType({})


def surface_chart(
    name: str, measurements: Sequence[Measured[Any]], families: Sequence[Family], caption: str = ""
) -> Chart:
    """Return latency (ns) against bandwidth (GB/s) of *families* beside each other, on one ordinate.

    A dashed line has the latency without load; published curves are grey.
    """
    rows = [list(curves.rows(family.curves, x_scale=1e3)) for family in families]
    grey = [list(curves.rows(family.published, x_scale=1e3)) for family in families]
    every = [row for found in (*rows, *grey) for row in found]
    unloaded = [family.unloaded_ns for family in families]
    names = list(dict.fromkeys(label for family in families for label in family.curves))
    frame = Frame(WIDE, 300, legend=names, measurements=measurements)
    width = (frame.plot[0] - (len(families) - 1) * (GAP_PX + base.LEFT)) // len(families)
    _, top = base.reach([*(row["y"] for row in every), *unloaded], [row["h"] for row in every])
    size = width, Scale(0.0, top * 1.12, frame.plot[1], up=True)
    views = [_view(frame, size, family, own, others) for family, own, others in zip(families, rows, grey, strict=True)]
    spec = base.stacked(views, GAP_PX, measurements, beside=True, alike=True)
    columns, column_px = frame.columns
    spec["usermeta"] |= {"beside": {"around": AROUND_PX, "columns": columns, "px": round(column_px)}}
    in_gb_s, in_ns = partial(base.shown, unit="GB/s"), partial(base.shown, unit="ns")
    ranges = [
        f"{family.title}: {curves.range_of(found, in_gb_s, in_ns)}"
        for family, found in zip(families, rows, strict=True)
    ]
    words = f"Points are medians, bars the intervals of both; dashed: latency without load.{caption}"
    return Chart(name, spec, alternative("Latency against bandwidth by share of writes", ranges), words)


def _view(frame: Frame, size: tuple[int, Scale], family: Family, rows: Sequence[Json], grey: Sequence[Json]) -> Json:
    width, up = size
    widest = max([row["x"] for row in (*rows, *grey)], default=1.0)
    x = Scale(0.0, widest * 1.08, width).channel("x", "Bandwidth, GB/s", ticks=max(3, width // 90), grid=False)
    y = up.channel("y", "Latency, ns", ticks=6)
    tooltip = {"s": "Mix", "x": "GB/s", "y": "ns", "l": "from", "h": "to"}
    layers = [
        base.rules("y", [rounded(family.unloaded_ns)]),
        base.mark("line", {"x": x, "y": y, "detail": {"field": "s"}, "order": None}, grey, color=base.MUTED),
        *curves.layers(frame, (x, y), tooltip=tooltip, bars="xy"),
    ]
    return base.view((width, up.px), layers, rows, title=family.title)
