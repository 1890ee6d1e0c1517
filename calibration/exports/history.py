# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file; what comes from outside is a parameter
"""Every stored value of every run, as Parquet or one by one, read from the index of the run documents.

Imports and unreadable documents are left out.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from calibration.base.errors import EnvironmentLacksError
from calibration.base.files import replacing
from calibration.exports.families import family_of
from calibration.results.history import Sut
from calibration.results.index import FORMAT, open_index
from calibration.results.index_queries import Scope, misdated_nights

SCHEMA_VERSION: Final = "calibration-history/1"
"""Version of the Parquet file's columns, in its metadata as ``schema_version``."""

FILE: Final = "history.parquet"
"""Name of the Parquet file in the directory of each month."""

ROW_GROUP: Final = 100_000
"""Rows that DuckDB holds for each thread before it writes them."""

MEMORY: Final = "256MiB"
"""Memory for reading the index, and for a row group of each thread; by default DuckDB keeps whatever it read."""

THREADS: Final = 2
"""Threads that write Parquet: each more needs memory for a row group."""

BATCH: Final = 10_000
"""Rows fetched at once."""

VALID: Final = "value IS NOT NULL AND measured_at IS NOT NULL"
"""The condition for metrics with a value and its time."""


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
    Column(
        "outcome", "VARCHAR", "outcome", "verdict of the run by that limit: pass, warn, fail, no_reference or invalid"
    ),
    Column("reason", "VARCHAR", "reason", "reason of the verdict; why a value is null"),
)
"""Columns of the Parquet file, in order."""

OF_RUNS: Final = """(SELECT *, row_number() OVER (PARTITION BY testbed, sut, night
        ORDER BY status = 'complete' DESC, status <> 'not_begun' DESC, started_at DESC, directory DESC) = 1 AS for_night
    FROM (SELECT testbed, sut, directory, night, status, started_at, size, changed_ns FROM runs
          WHERE fault IS NULL AND status <> 'imported'))"""
"""Runs with whether they represent their night, as ``calibration.results.index_queries`` chooses them."""


@contextmanager
def _bounded_index(results: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_index(results) as db:
        db.execute(f"SET memory_limit = '{MEMORY}'; SET threads = {THREADS}")
        yield db


class Written(NamedTuple):
    """What ``write_parquet`` wrote: so many *rows*, in *written* of the *months* of the history."""

    rows: int
    written: int
    months: int


def write_parquet(results: Path, directory: Path) -> Written:
    """Write the whole history of *results* into *directory*, a Parquet file for each month whose runs changed.

    The files of other months stay, those of months without runs are removed. Raises ``EnvironmentLacksError`` if a file
    cannot be written.
    """
    columns = ", ".join(f"{column.source} AS {column.name}" for column in COLUMNS)
    made = f"""SELECT {columns} FROM metrics JOIN of_runs AS runs USING (testbed, sut, directory)
        WHERE month = $first AND metrics.night BETWEEN $first AND last_day($first)
        ORDER BY testbed, sut, metric, runs.night, directory"""
    with _bounded_index(results) as db, _able_to_write(directory):
        db.execute("SET preserve_insertion_order = false")  # else DuckDB collects row groups in memory
        db.execute(f"CREATE TEMP TABLE of_runs AS SELECT *, date_trunc('month', night) AS month FROM {OF_RUNS}")
        months = {
            directory / f"month={first:%Y-%m}" / FILE: (first, source)
            for first, source in db.execute(
                """SELECT month, md5($made || string_agg(concat_ws('/', testbed, sut, directory, size, changed_ns), ' '
                       ORDER BY testbed, sut, directory)) FROM of_runs GROUP BY month ORDER BY month""",
                {"made": f"{FORMAT} {SCHEMA_VERSION} {made}"},
            ).fetchall()
        }
        directory.mkdir(exist_ok=True)
        for path in set(directory.glob(f"month=*/{FILE}")) - months.keys():
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
        changed = {path: month for path, month in months.items() if _source(db, path) != month[1]}
        rows = 0
        for path, (first, source) in changed.items():
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as written:
                (count,) = db.execute(
                    f"COPY ({made}) TO $path (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}, "
                    f"KV_METADATA {{schema_version: '{SCHEMA_VERSION}', source: '{source}'}})",
                    {"first": first, "path": str(written)},
                ).fetchone() or (0,)
            rows += count
    return Written(rows, len(changed), len(months))


def _source(db: duckdb.DuckDBPyConnection, path: Path) -> str | None:
    """Return what stands for the runs that the file at *path* was made of; ``None`` if it is missing or damaged."""
    if not path.exists():
        return None
    try:
        found = db.execute("SELECT value FROM parquet_kv_metadata(?) WHERE key = 'source'", [str(path)]).fetchone()
    except duckdb.InvalidInputException:
        return None
    return None if found is None else str(found[0], "utf-8")


@contextmanager
def _able_to_write(directory: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise EnvironmentLacksError(f"cannot write {directory}: {reason}") from error


@contextmanager
def valid_metrics(
    results: Path,
    left_out: Callable[[str], None],
    *,
    since: date | None = None,
    newest_of: Collection[Sut] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the index of *results* with the view ``valid``: the valid metrics of all runs from the night *since* on.

    With *newest_of*, only those of the newest run with metrics of each of these SUTs. Columns are those of the index,
    values in the unit of the metric. Metrics without a family are among them. Tell *left_out* what is not exported, and
    why. Raises like ``read_history``.
    """
    with _bounded_index(results) as db:
        chosen = f"CREATE TEMP TABLE chosen AS SELECT testbed, sut, directory FROM {OF_RUNS} WHERE night >= ?"
        given: list[Any] = [since or date.min]
        if newest_of is not None:
            chosen += """ AND for_night AND (testbed, sut, directory) IN (SELECT (testbed, sut, directory) FROM metrics)
                AND night NOT IN (SELECT unnest(?::DATE[]))
                AND (testbed, sut) IN (SELECT (unnest(?::VARCHAR[]), unnest(?::VARCHAR[])))
                QUALIFY row_number() OVER (PARTITION BY testbed, sut ORDER BY night DESC) = 1"""
            given.append(misdated_nights(db, Scope(testbed=None, sut=None)))
            given += [[sut[place] for sut in newest_of] for place in (0, 1)]
        db.execute(chosen, given)
        unreadable = "SELECT testbed, sut, directory, fault FROM runs WHERE fault IS NOT NULL"
        unreadable += " AND (night IS NULL OR night >= ?) ORDER BY testbed, sut, directory"
        for *place, fault in db.execute(unreadable, [since or date.min]).fetchall():
            left_out(f"{'/'.join(filter(None, place))} left out: {fault}")
        of_chosen = "FROM metrics SEMI JOIN chosen USING (testbed, sut, directory) WHERE unit IS NOT NULL"
        db.execute(f"CREATE TEMP VIEW valid AS {of_chosen} AND {VALID}")
        names = db.execute(f"SELECT DISTINCT metric {of_chosen}").fetchall()
        db.execute(
            f"""SELECT testbed, sut, directory, metric, CASE WHEN value IS NULL THEN reason
                    WHEN list_contains($unknown::VARCHAR[], metric) THEN 'this version has no such metric'
                    ELSE 'when it was measured cannot be read' END
                {of_chosen} AND (NOT ({VALID}) OR list_contains($unknown::VARCHAR[], metric))""",
            {"unknown": [name for (name,) in names if family_of(name) is None]},
        )
        while rows := db.fetchmany(BATCH):
            for testbed, sut, directory, metric, reason in rows:
                left_out(f"{testbed}/{sut}/{directory}: {metric} left out: {reason}")
        yield db
