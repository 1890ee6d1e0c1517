# SPDX-License-Identifier: Apache-2.0
"""Achieved against claimed coverage of the intervals in repeated runs, by family of metrics.

An interval should hold the median of the other runs' values, and a prediction the value of the next run. The median of
few runs has an error of its own: of ten runs of six independent rounds, 95.7 % of the intervals hold it instead of
96.9 %.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final, NamedTuple

from bench.shares import Share, percent, share_of, share_text, spread_of
from calibration.errors import InputError
from calibration.judge.comparison import compare
from calibration.measurements import registry
from calibration.measurements.base import Metric, cells_of
from calibration.measurements.c2c_matrix import C2cMatrixValues
from calibration.measurements.latency_ladder import LatencyLadderValues
from calibration.results.model import Measurement, RunDocument
from calibration.statistics import MIN_COVERAGE, Estimate

FEWEST_RUNS: Final = 3
"""Two other runs at least tell where the value of one should be."""

METRICS: Final = "All metrics"

SPLIT: Final[Mapping[tuple[str, str], str]] = {
    ("latency_ladder", "ns"): "levels",
    ("c2c_matrix", "ns"): "medians of pairs",
    ("loaded_latency", "ns"): "latency",
    ("loaded_latency", "MB/s"): "bandwidth",
}
"""What the metrics of a unit are, for kinds that have several families."""


class Family(NamedTuple):
    """Intervals of one family of metrics over all runs; shares and ratios are ``None`` if nothing was counted.

    ``uncertain`` of the ``intervals`` claim less than ``MIN_COVERAGE`` and count in no other column. ``claimed`` is the
    mean coverage of the others, ``achieved`` how many hold the median of the other runs' values. ``predicted`` is how
    many predictions hold the next run's value, ``half_width`` the median half-width in units of the spread of the runs,
    ``differ`` the fraction of the ``compared`` metrics that differ between one run and the next.
    """

    family: str
    intervals: int
    uncertain: int
    claimed: float | None
    achieved: Share | None
    predicted: Share | None
    half_width: float | None
    compared: int
    differ: float | None


Stated = Metric | Estimate
"""Something with a value, an interval, its coverage, and a prediction."""


def family_of(kind: str, unit: str) -> str:
    """Return the family of a metric of *kind* in *unit*."""
    title = registry()[kind].title
    return f"{title}, {SPLIT[kind, unit]}" if (kind, unit) in SPLIT else title


def stated(measurement: Measurement) -> Iterator[tuple[str, str, Stated]]:
    """Yield the intervals of a measurement, each with its family and its name, which is the same in every run.

    These are those of its metrics, the points of a latency ladder and the cells of a core-to-core matrix. An invalid
    measurement states none.
    """
    if not measurement.validity.valid:
        return
    for metric in measurement.metrics():
        if metric.interval is not None:
            yield family_of(measurement.kind, metric.unit), metric.name, metric
    title, values = registry()[measurement.kind].title, measurement.values
    if isinstance(values, LatencyLadderValues):
        for point in values.points:
            name = f"{measurement.id} {point.order} {point.stride_bytes} {point.size_bytes}"
            yield f"{title}, points", name, point.latency_ns
    if isinstance(values, C2cMatrixValues):
        for writer, reader, cell in cells_of(values.cpus, values.cpus, values.latency_ns):
            yield f"{title}, pairs", f"{measurement.id} {writer} {reader}", cell


def families(runs: Sequence[RunDocument]) -> list[Family]:
    """Return every family of *runs*, repeats of one plan in the order they were made; last, all metrics together.

    Raises ``InputError`` for fewer than ``FEWEST_RUNS``.
    """
    if len(runs) < FEWEST_RUNS:
        raise InputError(f"{len(runs)} runs, at least {FEWEST_RUNS} are needed")
    by_family: dict[str, dict[str, list[Stated | None]]] = {}
    metrics: dict[str, list[Stated | None]] = {}
    for number, run in enumerate(runs):
        for measurement in run.measurements:
            for family, name, found in stated(measurement):
                for known in (by_family.setdefault(family, {}), *([metrics] if isinstance(found, Metric) else [])):
                    known.setdefault(name, [None] * len(runs))[number] = found
    differ = _differ(runs)
    rows = [_family(family, list(series.values()), differ.pop(family, [])) for family, series in by_family.items()]
    rows += [_family(family, [], found) for family, found in differ.items() if family != METRICS]
    return [*rows, _family(METRICS, list(metrics.values()), differ[METRICS])]


def _differ(runs: Sequence[RunDocument]) -> dict[str, list[bool]]:
    """Return by family whether each metric differs from one run to the next; those of only one run do not count."""
    found: dict[str, list[bool]] = {METRICS: []}
    for first, second in pairwise(runs):
        for item in compare(first, second).figures:
            if item.first is not None and item.second is not None and item.first.kind in registry():
                for family in (METRICS, family_of(item.first.kind, item.unit)):
                    found.setdefault(family, []).append(item.outcome == "differs")
    return found


def _family(family: str, series: Sequence[Sequence[Stated | None]], differ: Sequence[bool]) -> Family:
    """Return the row of *family*; each of its *series* is one name over all runs, ``None`` in a run without it."""
    runs = max(map(len, series), default=0)
    held: list[list[bool]] = [[] for _ in range(runs)]
    predicted: list[list[bool]] = [[] for _ in range(runs)]
    claimed, ratios, uncertain = [], [], 0
    for over in series:
        widths = []
        for number, found in enumerate(over):
            if found is None or found.interval is None:
                continue
            if (found.coverage or 0.0) < MIN_COVERAGE:
                uncertain += 1
                continue
            claimed.append(found.coverage or 0.0)
            low, high = found.interval
            widths.append((high - low) / 2)
            others = [other.value for other in (*over[:number], *over[number + 1 :]) if other is not None]
            if len(others) >= FEWEST_RUNS - 1:
                held[number].append(low <= median(others) <= high)
            after = over[number + 1] if number + 1 < runs else None
            if found.prediction is not None and after is not None:
                predicted[number].append(found.prediction[0] <= after.value <= found.prediction[1])
        values = [found.value for found in over if found is not None]
        if widths and len(values) >= FEWEST_RUNS and (spread := spread_of(values)) > 0:
            ratios.append(median(widths) / spread)
    return Family(
        family=family,
        intervals=len(claimed) + uncertain,
        uncertain=uncertain,
        claimed=fmean(claimed) if claimed else None,
        achieved=share_of(held),
        predicted=share_of(predicted),
        half_width=median(ratios) if ratios else None,
        compared=len(differ),
        differ=fmean(differ) if differ else None,
    )


HEAD: Final = (
    "Family",
    "Intervals",
    "Below 90 %",
    "Claimed, %",
    "Achieved, %",
    "Next run, %",
    "Half-width",
    "Differ, %",
)


def cells(row: Family) -> tuple[str, ...]:
    """Return *row* as texts."""
    return (
        row.family,
        str(row.intervals),
        str(row.uncertain),
        percent(row.claimed),
        share_text(row.achieved),
        share_text(row.predicted),
        "—" if row.half_width is None else f"{row.half_width:.2f}",
        percent(row.differ),
    )
