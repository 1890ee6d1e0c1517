# SPDX-License-Identifier: Apache-2.0
"""Curves with their intervals: the part that most charts of measurements have in common."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calibration.report.charts.base import COLOURS, DASHES, SHAPES, Json, ends, label, mark, rounded
from calibration.statistics import Estimate

Point = tuple[float | Estimate, Estimate]
"""An abscissa, a number or an estimate itself, and an ordinate."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    label: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", label(self.label))


def unique(curves: Sequence[Curve]) -> list[Curve]:
    """Return *curves* with labels that differ: a label is what tells them apart."""
    taken: dict[str, int] = {}
    found = []
    for curve in curves:
        taken[curve.label] = count = taken.get(curve.label, 0) + 1
        found.append(curve if count == 1 else Curve(f"{curve.label} ({count})", curve.points))
    return found


def rows(
    curves: Sequence[Curve], *, x_scale: float = 1.0, y_scale: float = 1.0, shift: float = 0.0
) -> Iterator[dict[str, float | str]]:
    """Yield a row for each point: ``s``, ``x``, ``y``, ``l`` to ``h``, and ``a`` to ``b`` where x has an interval."""
    for curve in curves:
        for across, up in curve.points:
            low, high = ends(up, y_scale)
            row: dict[str, float | str] = {"s": curve.label, "y": rounded(up.value / y_scale), "l": low, "h": high}
            if isinstance(across, Estimate):
                row["x"] = rounded(across.value / x_scale)
                row["a"], row["b"] = ends(across, x_scale)
            else:
                row["x"] = rounded(across / x_scale + shift)
            yield row


def layers(
    names: Sequence[str],
    axes: tuple[Json, Json],
    tooltip: Sequence[Json],
    *,
    lying: bool = False,
    points: bool = True,
    interpolate: str = "linear",
    columns: int = 2,
) -> list[Json]:
    """Return the layers of curves: intervals, lines, and points with tooltips. The data are what ``rows`` yields."""
    x, y = axes
    told = {"legend": {"columns": columns} if len(names) > 1 else None}
    colour = {"field": "s", "type": "nominal", "scale": styles(names, COLOURS)} | told
    dash = {"field": "s", "type": "nominal", "scale": styles(names, DASHES), "legend": None}
    shape = {"field": "s", "type": "nominal", "scale": styles(names, SHAPES)} | told
    bar = {"opacity": 0.45, "strokeWidth": 1.5, "clip": True}
    found = [mark("rule", None, {"x": x, "y": {**y, "field": "l"}, "y2": {"field": "h"}, "color": colour}, **bar)]
    if lying:
        sides = {"x": {**x, "field": "a"}, "x2": {"field": "b"}, "y": y, "color": colour}
        found.append(mark("rule", None, sides, **bar))
    line = {"x": x, "y": y, "color": colour, "strokeDash": dash, "order": None}
    found.append(mark("line", None, line, strokeWidth=1.8, interpolate=interpolate))
    spot = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}
    found.append(mark("point", None, spot, filled=True, size=30 if points else 80, opacity=1 if points else 0))
    return found


def styles(names: Sequence[str], kinds: Sequence[object]) -> Json:
    """Return the scale that gives each of *names* one of *kinds*."""
    return {"domain": list(names), "range": [kinds[place % len(kinds)] for place in range(len(names))]}


def observed(value: float, unit: str) -> Estimate:
    """Return a figure that was seen once, of unknown uncertainty."""
    return Estimate(
        value=value,
        unit=unit,
        estimator="observed",
        interval=None,
        coverage=None,
        placements=1,
        windows=1,
        within_spread=None,
        between_spread=None,
        minimum=value,
        maximum=value,
        bimodal=False,
        converged=None,
        samples=((value,),),
    )
