# SPDX-License-Identifier: Apache-2.0
"""Achieved against claimed coverage of intervals, spread against tolerance, from repeats of one plan.

``python -m bench.coverage RESULTS``: an interval should hold the median of the other repeats' values, and a prediction
the value of the next. The median of few runs has an error of its own: of ten runs of six independent rounds, 95.7 % of
the intervals hold it instead of 96.9 %. docs/method/statistics.rst has the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby, pairwise
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Final

import click
import numpy as np
from pydantic import BaseModel

from bench.tables import table
from calibration.base.errors import InputError
from calibration.base.statistics import MIN_COVERAGE, Estimate
from calibration.judge.comparison import compare
from calibration.measurements import registry, row_of
from calibration.measurements.base import Metric
from calibration.results.layout import find_runs
from calibration.results.model import RunDocument
from calibration.results.store import read_run

FEWEST_RUNS: Final = 3  # two others at least tell where the value of one should be
RESAMPLES: Final = 2000  # of a bootstrap: its quantiles are then known to about a tenth of its width
METRICS: Final = "All metrics"
HEAD: Final = (
    *("Family", "Intervals", "Below 90 %", "Claimed, %"),
    *("Achieved, %", "Next run, %", "Half-width", "Differ, %"),
)

Stated = Metric | Estimate
"""Something with a value, an interval, its coverage, and a prediction."""

SPREAD_HEAD: Final = ("Family", "Metrics", "Tolerance, %", "Spread, median, %", "Spread, largest, %", "Beyond, %")


def read_runs(results: Path) -> list[RunDocument]:
    """Return the runs in *results* in the order they were made.

    Raises ``InputError`` if there are fewer than ``FEWEST_RUNS``, one cannot be read, or they are no repeats.
    """
    runs = sorted(map(read_run, find_runs(results)), key=lambda run: (run.run.started_at, run.run.id))
    if len(runs) < FEWEST_RUNS:
        raise InputError(f"{len(runs)} runs, at least {FEWEST_RUNS} are needed")
    if len({(run.run.testbed, run.run.sut, run.run.profile) for run in runs}) > 1:
        raise InputError("the runs are of several SUTs or profiles")
    return runs


def family_of(kind: str, unit: str) -> str:
    """Return the family of a metric of *kind* in *unit*."""
    return f"{registry()[kind].title}, {unit}"


def stated(run: RunDocument) -> Iterator[tuple[str, str, Stated]]:
    """Yield the intervals of *run*, each with its family and a name that is the same in every run of a plan.

    These are those of its metrics and of all values they are made of. An invalid measurement states none.
    """
    for measurement in run.measurements:
        if measurement.validity.valid:
            for metric in measurement.metrics():
                yield family_of(measurement.kind, metric.unit), metric.name, metric
            for name, estimate in _estimates(measurement.id, measurement.values):
                yield f"{registry()[measurement.kind].title}, all values", name, estimate


def _estimates(name: str, value: Any) -> Iterator[tuple[str, Estimate]]:
    """Yield the estimates in *value* by their place in it."""
    if isinstance(value, Estimate):
        yield name, value
    elif isinstance(value, BaseModel):
        yield from _estimates(name, {field: getattr(value, field) for field in type(value).model_fields})
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _estimates(f"{name}.{key}", part)
    elif isinstance(value, tuple):
        yield from _estimates(name, dict(enumerate(value)))


def rows(runs: Sequence[RunDocument]) -> list[tuple[str, ...]]:
    """Return a row for every family of *runs*, repeats of one plan in the order they were made; last, all metrics."""
    families: dict[str, dict[str, list[Stated | None]]] = {}
    differ: dict[str, list[bool]] = {}
    for number, run in enumerate(runs):
        for family, name, found in stated(run):
            for known in (family, METRICS) if isinstance(found, Metric) else (family,):
                families.setdefault(known, {}).setdefault(name, [None] * len(runs))[number] = found
    for first, second in pairwise(runs):
        for item in compare(first, second).figures:
            if item.first is not None and item.second is not None and item.first.kind in registry():
                for family in (family_of(item.first.kind, item.unit), METRICS):
                    differ.setdefault(family, []).append(item.outcome == "differs")
    families[METRICS] = families.pop(METRICS, {})
    return [row_of_family(family, list(series.values()), differ.get(family, [])) for family, series in families.items()]


def row_of_family(family: str, series: Sequence[Sequence[Stated | None]], differ: Sequence[bool]) -> tuple[str, ...]:
    """Return the cells of *family*; each of its *series* is one name over all runs, ``None`` in a run without it.

    Intervals that claim less than ``MIN_COVERAGE`` count in no column but the first two. The half-width is the median
    one in units of the spread of the runs, *differ* whether metrics differ from one run to the next.
    """
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
    return (
        family,
        str(len(claimed) + uncertain),
        str(uncertain),
        f"{100 * fmean(claimed):.1f}" if claimed else "—",
        share_text(held),
        share_text(predicted),
        f"{median(ratios):.2f}" if ratios else "—",
        f"{100 * fmean(differ):.1f}" if differ else "—",
    )


def spreads(runs: Sequence[RunDocument]) -> list[tuple[str, ...]]:
    """Return a row for the metrics of *runs* with one family and tolerance: how far their values are apart.

    The spread of a metric is half the central 95 % range of its values relative to their median; *beyond* is the share
    of pairs of runs whose values differ by more than the tolerance. A metric of fewer than ``FEWEST_RUNS`` is left out.
    """
    values: dict[tuple[str, float, str], list[float]] = {}
    for family, name, metric in (item for run in runs for item in stated(run)):
        if isinstance(metric, Metric):
            values.setdefault((family, row_of(name).tolerance.fraction, name), []).append(metric.value)
    found: list[tuple[str, ...]] = []
    known = {key: over for key, over in values.items() if len(over) >= FEWEST_RUNS and median(over)}
    for (family, tolerance), keys in groupby(sorted(known), lambda key: key[:2]):
        series = [known[key] for key in keys]
        relative = [spread_of(over) / abs(median(over)) for over in series]
        beyond = [abs(b - a) > tolerance * abs(a) for over in series for a, b in combinations(over, 2)]
        percents = (f"{float(f'{100 * value:.2g}'):g}" for value in (median(relative), max(relative)))
        found.append((family, str(len(series)), f"{100 * tolerance:g}", *percents, f"{100 * fmean(beyond):.1f}"))
    return found


def share_text(held: Iterable[Sequence[bool]]) -> str:
    """Return the share of what *held*, one sequence per run, and its 95 % interval in percent; a dash if nothing did.

    Intervals of one run fail together: its interval is the bootstrap's over runs (Davison and Hinkley, *Bootstrap
    Methods and Their Application*, section 3.8), with a fixed seed. It has no width if no run fails.
    """
    counts = np.array([(sum(run), len(run)) for run in held if run], dtype=np.float64)
    if not len(counts):
        return "—"
    drawn = np.random.default_rng(1).integers(len(counts), size=(RESAMPLES, len(counts)))
    good, total = counts[drawn].sum(axis=1).T
    low, high = np.quantile(good / total, (0.025, 0.975))
    good, total = counts.sum(axis=0)
    return f"{100 * good / total:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def spread_of(values: Sequence[float]) -> float:
    """Return half the central 95 % range of repeated *values*: 1.96 standard deviations.

    The deviation is 1.4826 times the median absolute deviation, times n / (n - 0.8), its correction for few values
    (Croux and Rousseeuw, *Time-Efficient Algorithms for Two Highly Robust Estimators of Scale*, 1992). If more than
    half of the values are the same, it is the usual one.
    """
    centre = median(values)
    deviation = 1.4826 * median(abs(value - centre) for value in values) * len(values) / (len(values) - 0.8)
    return 1.96 * (deviation or stdev(values))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("results", type=click.Path(path_type=Path, exists=True))
def coverage_command(results: Path) -> None:
    """Print achieved against claimed coverage, and spreads against tolerances, of repeats of a profile in RESULTS."""
    runs = read_runs(results)
    click.echo("\n".join((*table(HEAD, rows(runs)), "", *table(SPREAD_HEAD, spreads(runs)))))


if __name__ == "__main__":
    coverage_command()
