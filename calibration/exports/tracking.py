# SPDX-License-Identifier: Apache-2.0
"""Metrics for programs that track benchmarks: Bencher (https://bencher.dev) and Apache Otava.

CPUs have no name here: of a metric of each CPU, the worst CPU counts.

* Bencher gets its metric format, the newest run of each SUT: what precedes the last dot of a metric's name is the
  benchmark, the rest the measure, which has the unit in its name.
* Otava gets the history, a CSV file for each metric: it finds no change in a series with a missing value, so metrics
  that lack in a run cannot share rows with others.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from calibration.base.files import able_to, write_whole
from calibration.exports.families import WORST_OF
from calibration.exports.history import valid_metrics
from calibration.measurements import row_of
from calibration.measurements.metric_rows import LABEL
from calibration.results.find import suts_of

CONFIG: Final = "otava.yaml"
"""Otava's configuration, with the tests of all metrics and a group of them for each SUT."""

DIRECTIONS: Final = {"higher": 1, "lower": -1}
"""Otava's number for the better direction."""

VALUES: Final = """
    SELECT testbed, sut, name, directory, any_value(better), any_value(try_cast(started_at AS TIMESTAMP)) AS started_at,
           CASE WHEN any_value(better) = 'lower' THEN arg_max(row(value, low, high), value)
                ELSE arg_min(row(value, low, high), value) END
    FROM valid JOIN names USING (metric) JOIN runs USING (testbed, sut, directory)
    GROUP BY testbed, sut, name, directory
    ORDER BY testbed, sut, name, started_at, directory"""
"""The values of all names, that of the worst CPU if there are several."""


class Value(NamedTuple):
    """A value of a metric, its interval, and the run that it is of; ``name`` says ``*`` for the worst CPU."""

    sut: tuple[str, str]
    name: str
    run: str
    better: str
    started_at: datetime
    value: float
    low: float | None
    high: float | None


class Tracked(NamedTuple):
    """How many *metrics* of how many *suts* were written."""

    metrics: int
    suts: int


def export_bencher(results: Path, directory: Path, left_out: Callable[[str], None]) -> Tracked:
    """Write the metrics of the newest run of each SUT in *results* to ``<testbed>/<sut>.json`` below *directory*.

    Tell *left_out* what lacks, and why. Raises like ``read_history``; ``EnvironmentLacksError`` if they cannot be
    written.
    """
    newest = [(testbed, sut) for testbed, _, sut in (name.partition("/") for name in suts_of(results))]
    metrics = suts = 0
    with _values(results, left_out, newest_of=newest) as values, able_to(f"write {directory}"):
        for (testbed, sut), found in groupby(values, lambda item: item.sut):
            benchmarks: dict[str, dict[str, dict[str, float]]] = {}
            for item in found:
                benchmark, _, measure = item.name.rpartition(".")
                ends = {"value": item.value, "lower_value": item.low, "upper_value": item.high}
                benchmarks.setdefault(benchmark, {})[measure] = {
                    end: value for end, value in ends.items() if value is not None
                }
            _write(directory / testbed / f"{sut}.json", json.dumps(benchmarks, indent=1, allow_nan=False) + "\n")
            metrics += sum(map(len, benchmarks.values()))
            suts += 1
    return Tracked(metrics, suts)


def export_otava(results: Path, directory: Path, left_out: Callable[[str], None]) -> Tracked:
    """Write the history of each SUT in *results* to ``<testbed>/<sut>/<metric>.csv`` below *directory*, and ``CONFIG``.

    Tell *left_out* what lacks, and why. Raises like ``export_bencher``.
    """
    tests: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    with _values(results, left_out) as values, able_to(f"write {directory}"):
        for (sut, name), series in groupby(values, lambda item: (item.sut, item.name)):
            found = list(series)
            rows = [(f"{item.started_at.isoformat()}Z", item.run, item.value) for item in found]
            path = Path(*sut, re.sub(r"[^\w.]", "_", name) + ".csv")
            _write(directory / path, _csv([("time", "run", name), *rows]))
            test = "/".join((*sut, name))
            tests[test] = {
                "type": "csv",
                "file": path.as_posix(),
                "attributes": ["run"],
                "metrics": {test: {"column": name, "direction": DIRECTIONS[found[0].better]}},
            }
            groups.setdefault("/".join(sut), []).append(test)
        _write(directory / CONFIG, yaml.safe_dump({"tests": tests, "test_groups": groups}, sort_keys=False))
    return Tracked(len(tests), len(groups))


@contextmanager
def _values(results: Path, left_out: Callable[[str], None], **chosen: Any) -> Iterator[Iterable[Value]]:
    """Yield the valid values in *results* by SUT and name, the oldest first; *chosen* is as for ``valid_metrics``."""
    with valid_metrics(results, left_out, **chosen) as db:
        names = [metric for (metric,) in db.execute("SELECT DISTINCT metric FROM valid").fetchall()]
        named = [(metric, name) for metric in names if (name := _name(metric)) is not None]
        db.execute("CREATE TEMP TABLE names (metric VARCHAR, name VARCHAR)")
        db.execute(
            "INSERT INTO names SELECT unnest(?), unnest(?)", [[pair[place] for pair in named] for place in (0, 1)]
        )
        rows = db.execute(VALUES)
        yield (
            Value((testbed, sut), name, run, better, when, *values)
            for testbed, sut, name, run, better, when, values in iter(rows.fetchone, None)
        )


def _name(metric: str) -> str | None:
    """Return *metric* with ``*`` for the CPU; ``None`` if no measurement of this version has it."""
    row = row_of(metric)
    labels = row.labels(metric)
    if labels is None or row.imported:
        return None
    return LABEL.sub(lambda label: "*" if label[1] == WORST_OF else labels[label[1]], row.name)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
