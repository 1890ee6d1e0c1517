# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file; what comes from outside is a parameter
"""Every stored value of every run, as Parquet or one by one, read from the index of the run documents.

Imports and unreadable documents are left out.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from calibration.base.errors import EnvironmentLacksError
from calibration.base.files import replacing
from calibration.exports.families import Family, family_of
from calibration.results.history import Sut
from calibration.results.index import open_index
from calibration.results.index_queries import Scope, misdated_nights

SCHEMA_VERSION: Final = "calibration-history/1"
"""Version of the Parquet file's columns, in its metadata as ``schema_version``."""

ROW_GROUP: Final = 100_000
"""Rows that DuckDB holds for each thread before it writes them."""

MEMORY: Final = "512MiB"
"""Memory for reading the index, and for a row group of each thread; by default DuckDB keeps whatever it read."""

THREADS: Final = 2
"""Threads that write Parquet: each more needs memory for a row group."""

BATCH: Final = 10_000
"""Rows fetched at once."""


class Column(NamedTuple):
    """A column of the Parquet file: its DuckDB type, what it is read from, and its meaning."""

    name: str
    type: str
    source: str
    meaning: str


COLUMNS: Final = (
    Column("testbed", "VARCHAR", "testbed", "name of the testbed"),
    Column("sut", "VARCHAR", "sut", "name of the SUT"),
    Column("run_id", "VARCHAR", "directory", "identifier of the run"),
    Column("night", "DATE", "runs.night", "night of the run (UTC)"),
    Column("run_status", "VARCHAR", "status", "status of the run: complete, incomplete, interrupted or not_begun"),
    Column(
        "for_night",
        "BOOLEAN",
        "for_night",
        "whether this run represents the SUT's night: the newest complete one, else the newest",
    ),
    Column("metric", "VARCHAR", "metric", "name of the metric"),
    Column("kind", "VARCHAR", "split_part(metric, '.', 1)", "kind of the measurement"),
    Column("unit", "VARCHAR", "unit", "unit of value, low and high, as in the reference of metrics"),
    Column("better", "VARCHAR", "better", "better direction: lower or higher"),
    Column(
        "measured_at",
        "TIMESTAMP WITH TIME ZONE",
        "coalesce(measured_at, try_cast(started_at AS TIMESTAMP)) AT TIME ZONE 'UTC'",
        "start of its measurement; of the run, if unknown",
    ),
    Column("value", "DOUBLE", "value", "value; null if invalid or not measured, see reason"),
    Column("low", "DOUBLE", "low", "lower end of the value's interval; null if it has none"),
    Column("high", "DOUBLE", "high", "upper end of the value's interval; null if it has none"),
    Column(
        "trust",
        "VARCHAR",
        "trust",
        "trust in the value: on_target, near, poor, invalid or observed; null if not measured",
    ),
    Column("limit_low", "DOUBLE", "lower", "lower limit of the inventory at that time; null if it had none"),
    Column("limit_high", "DOUBLE", "upper", "upper limit of the inventory at that time; null if it had none"),
    Column("outcome", "VARCHAR", "outcome", "verdict of the run by that limit: pass, fail, no_reference or invalid"),
    Column("reason", "VARCHAR", "reason", "reason of the verdict; why a value is null"),
)
"""Columns of the Parquet file, in order."""

OF_RUNS: Final = """(SELECT *, row_number() OVER (PARTITION BY testbed, sut, night
        ORDER BY status = 'complete' DESC, status <> 'not_begun' DESC, started_at DESC, directory DESC) = 1 AS for_night
    FROM (SELECT testbed, sut, directory, night, status, started_at FROM runs
          WHERE fault IS NULL AND status <> 'imported'))"""
"""Runs with whether they represent their night, as ``calibration.results.index_queries`` chooses them."""


@contextmanager
def _bounded_index(results: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_index(results) as db:
        db.execute(f"SET memory_limit = '{MEMORY}'; SET threads = {THREADS}")
        yield db


def write_parquet(results: Path, path: Path) -> int:
    """Write the whole history of *results* to the Parquet file *path*, and return its number of rows.

    Raises ``EnvironmentLacksError`` if it cannot be written.
    """
    columns = ", ".join(f"{column.source} AS {column.name}" for column in COLUMNS)
    try:
        with _bounded_index(results) as db, replacing(path) as written:
            db.execute("SET preserve_insertion_order = false")  # else DuckDB collects row groups in memory
            (rows,) = db.execute(
                f"COPY (SELECT {columns} FROM metrics JOIN {OF_RUNS} AS runs USING (testbed, sut, directory)) TO ? "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}, "
                f"KV_METADATA {{schema_version: '{SCHEMA_VERSION}'}})",
                [str(written)],
            ).fetchone() or (0,)
    except (duckdb.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise EnvironmentLacksError(f"cannot write {path}: {reason}") from error
    return int(rows)


class Value(NamedTuple):
    """A valid metric of a run: its value, and the ends of its interval if it has one, in the unit of its family."""

    testbed: str
    sut: str
    family: Family
    measured_at: datetime
    value: float
    low: float | None
    high: float | None
    trust: str


def values(
    results: Path,
    left_out: Callable[[str], None],
    *,
    since: date | None = None,
    newest_of: Collection[Sut] | None = None,
) -> Iterator[Value]:
    """Yield the valid metrics of all runs in *results* from the night *since* on.

    With *newest_of*, only those of the newest run with metrics of each of these SUTs, sorted. Tell *left_out* which
    metrics lack, and why. Raises like ``read_history``.
    """
    with _bounded_index(results) as db:
        for testbed, sut, directory, metric, measured_at, value, low, high, trust, reason in _rows(
            db, since, newest_of
        ):
            family = family_of(metric)
            if value is not None and measured_at is not None and family is not None:
                ends = [None if end is None else end * family.factor for end in (low, high)]
                when = measured_at.replace(tzinfo=UTC)
                yield Value(testbed, sut, family, when, value * family.factor, ends[0], ends[1], trust)
            elif value is None:
                left_out(f"{testbed}/{sut}/{directory}: {metric} left out: {reason}")
            else:
                lacks = "this version has no such metric" if family is None else "when it was measured cannot be read"
                left_out(f"{testbed}/{sut}/{directory}: {metric} left out: {lacks}")


def _rows(
    db: duckdb.DuckDBPyConnection, since: date | None, newest_of: Collection[Sut] | None
) -> Iterator[tuple[Any, ...]]:
    chosen = f"SELECT testbed, sut, directory FROM {OF_RUNS} WHERE night >= ?"
    given: list[Any] = [since or date.min]
    if newest_of is not None:
        chosen += """ AND for_night AND (testbed, sut, directory) IN (SELECT (testbed, sut, directory) FROM metrics)
            AND night NOT IN (SELECT unnest(?::DATE[]))
            QUALIFY row_number() OVER (PARTITION BY testbed, sut ORDER BY night DESC) = 1"""
        given.append(misdated_nights(db, Scope(testbed=None, sut=None)))
    db.execute(
        f"""SELECT testbed, sut, directory, metric, measured_at, value, low, high, trust, reason
            FROM metrics JOIN ({chosen}) USING (testbed, sut, directory)
            WHERE unit IS NOT NULL {"" if newest_of is None else "ORDER BY testbed, sut, metric"}""",
        given,
    )
    while rows := db.fetchmany(BATCH):
        yield from (row for row in rows if newest_of is None or row[:2] in newest_of)
