# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file; what comes from outside is a parameter
"""The index of the run documents, from which histories over many nights are read.

It is a DuckDB database in the cache with what histories need of the documents, updated before each query:
new, changed and deleted documents are found by size and modification time. For an unreadable one the index holds its
fault instead of values; it is not opened again until it changes. The index can be deleted at any time.

What is kept of a document is validated before DuckDB, whose own parser takes NaN and any depth, gets
it. DuckDB loads no extension, uses no network, and writes nothing but the index.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import duckdb

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.model import format_time
from calibration.base.places import CACHE, CACHE_VARIABLE
from calibration.results.history import History
from calibration.results.index_queries import Scope, query_history
from calibration.results.layout import REFERENCES, RUN, directories

if TYPE_CHECKING:
    from calibration.results.model import JudgedDocument, RunDocument

FORMAT: Final = 8
"""Version of the index: part of its path, so that each version has its own."""

DATABASE: Final = "index.duckdb"
MIN_OBJECT_BYTES: Final = 16 * 1024 * 1024
"""DuckDB's default limit of a JSON object; it is set to the size of the largest. DuckDB reserves twice as much memory
for each thread."""

COLUMNS: Final = {
    "testbed": "VARCHAR",
    "sut": "VARCHAR",
    "directory": "VARCHAR",
    "size": "BIGINT",
    "changed_ns": "BIGINT",
    "fault": "VARCHAR",
    "run": "STRUCT(started_at VARCHAR, status VARCHAR, profile VARCHAR)",
    "facts": "JSON",
    "checked": "STRUCT(name VARCHAR, outcome VARCHAR, texts VARCHAR[])[]",
    "record": "STRUCT(quantity VARCHAR, title VARCHAR, metric STRUCT(name VARCHAR), trust VARCHAR)[]",
    "not_measured": "STRUCT(kind VARCHAR, what VARCHAR, reason VARCHAR)[]",
    "verdicts": "STRUCT(name VARCHAR, measurement VARCHAR, "
    "metric STRUCT(title VARCHAR, value DOUBLE, unit VARCHAR, interval DOUBLE[], "
    "better VARCHAR, trust VARCHAR), lower DOUBLE, upper DOUBLE, outcome VARCHAR, reason VARCHAR)[]",
    "measured": "MAP(VARCHAR, VARCHAR)",
    "consistency": "STRUCT(figure STRUCT(name VARCHAR, unit VARCHAR, value DOUBLE, interval DOUBLE[]), "
    "bound DOUBLE[], outcome VARCHAR, reason VARCHAR)[]",
}
"""Columns of a document: its place, its state when read, and either its ``fault`` or the rest.

``measured`` has the start of each measurement by its identifier, ``checked`` the checks of the run on its own."""

NIGHT: Final = r"""coalesce(
    CASE WHEN regexp_full_match(directory, '[0-9]{8}T[0-9]{6}Z.*')
         THEN try_strptime(directory[:8], '%Y%m%d')::DATE END,
    run.started_at[:10]::DATE)"""
"""The night of a run: the date in its identifier, which all SUTs of one start share, else that of its start, in UTC."""

RUNS: Final = f"""
    SELECT testbed, sut, directory, size, changed_ns, fault, {NIGHT} AS night, run.status AS status,
           run.started_at AS started_at, run.profile AS profile, facts::VARCHAR AS facts, checked,
           [{{'quantity': item.quantity, 'title': item.title, 'metric': item.metric.name, 'trust': item.trust}}
            FOR item IN record] AS headlines,
           list_concat(
               [CASE WHEN gone.kind = 'run' THEN gone.reason ELSE gone.what || ': ' || gone.reason END
                FOR gone IN not_measured IF gone.kind NOT IN ('context', 'mlc')],
               [item.name || ': ' || item.reason FOR item IN verdicts IF item.outcome = 'invalid']) AS reasons
    FROM documents"""

METRICS: Final = f"""
    SELECT testbed, sut, verdict.name AS metric, night, directory, verdict.metric.unit AS unit,
           md5_number_lower(concat_ws('|', testbed, sut, metric, unit)) AS series, verdict.metric.better AS better,
           verdict.metric.title AS title,
           CASE WHEN verdict.outcome <> 'invalid' THEN verdict.metric.value END AS value,
           CASE WHEN verdict.outcome <> 'invalid' THEN verdict.metric.interval[1] END AS low,
           CASE WHEN verdict.outcome <> 'invalid' THEN verdict.metric.interval[2] END AS high,
           verdict.lower AS lower, verdict.upper AS upper, verdict.outcome AS outcome, verdict.reason AS reason,
           CASE WHEN verdict.outcome = 'invalid' THEN 'invalid' ELSE verdict.metric.trust END AS trust,
           try_cast(measured[verdict.measurement] AS TIMESTAMP) AS measured_at
    FROM (SELECT testbed, sut, directory, measured, {NIGHT} AS night, unnest(verdicts) AS verdict FROM documents)"""

CHECKS: Final = f"""
    SELECT testbed, sut, directory, night, item.figure.name AS metric, item.figure.unit AS unit,
           item.figure.value AS value, item.figure.interval AS interval, item.bound AS bound, item.outcome AS outcome,
           item.reason AS reason
    FROM (SELECT testbed, sut, directory, {NIGHT} AS night, unnest(consistency) AS item FROM documents)
    WHERE item.outcome <> 'skipped'"""

TABLES: Final = {"runs": RUNS, "metrics": METRICS, "checks": CHECKS}
"""Tables of the index: one row per document with its state when read, one per verdict, and one per consistency check.
``series`` stands for testbed, SUT, metric and unit: comparing a number is much faster than comparing four texts."""

_Run = tuple[str, str, str]
T = TypeVar("T")


class _Stored(NamedTuple):
    """A run document on disk."""

    testbed: str
    sut: str
    directory: str
    size: int
    changed_ns: int

    @property
    def run(self) -> _Run:
        """Testbed and SUT."""
        return self[:3]


def read_history(
    results: Path,
    *,
    testbed: str | None = None,
    sut: str | None = None,
    metric: str | None = None,
    until: date | None = None,
    ends: timedelta | None = None,
) -> History:
    """Return the history of all metrics in *results*, or of those of one *testbed*, *sut* or *metric*.

    Nights after *until* are excluded, and intervals of nights longer than *ends* before the last. Only the documents of
    the given testbed and SUT are looked at; unreadable ones are listed. Raises ``InputError`` if *results* or a testbed
    in it is not a readable directory, ``EnvironmentLacksError`` if the index cannot be written.
    """
    if not results.is_dir():
        raise InputError(f"no directory of results at {results}")
    scope = Scope(testbed=testbed, sut=sut, metric=metric, until=until, ends=ends)

    def read() -> History:
        with _updated(results, home, scope) as db:
            return query_history(db, scope)

    home = index_of(results)
    with locked(home):
        return _repaired(home, read)


def history_of(document: "RunDocument") -> History:
    """Return the history of *document* alone."""
    run = document.run
    stored = _Stored(run.testbed, run.sut, run.id, 0, 0)
    line = _extract(stored, document)
    with TemporaryDirectory(prefix="calibration-") as folder, duckdb.connect(":memory:") as db:
        _load(db, [line], Path(folder, "documents"))
        for table, query in TABLES.items():
            db.execute(f"CREATE TABLE {table} AS {query}")
        return query_history(db, Scope(testbed=run.testbed, sut=run.sut))


@contextmanager
def open_index(results: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the index of *results*, up to date and locked, with the tables ``runs`` and ``metrics``.

    Raises like ``read_history``.
    """
    if not results.is_dir():
        raise InputError(f"no directory of results at {results}")
    home = index_of(results)

    def update() -> None:
        with _updated(results, home, Scope(testbed=None, sut=None)):
            pass

    with locked(home):
        _repaired(home, update)
        with _connected(home) as db:
            yield db


def _repaired(home: Path, use: Callable[[], T]) -> T:
    """Return what *use* returns; if it fails, remove the index and try once more: it may be damaged.

    Raises ``EnvironmentLacksError`` if that fails too.
    """
    with suppress(duckdb.Error, OSError):
        return use()
    try:
        for path in home.glob(f"{DATABASE}*"):
            path.unlink()
        return use()
    except (duckdb.Error, OSError) as error:
        raise unusable(home, error) from error


def index_of(results: Path) -> Path:
    """Return the path of the index of *results*."""
    return CACHE / f"index-{FORMAT}" / hashlib.sha256(str(results.resolve()).encode()).hexdigest()[:16]


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Lock the index for this process: another one may be about to write it.

    Raises ``EnvironmentLacksError`` if *home* cannot be written.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("w")
    except OSError as error:
        raise unusable(home, error) from error
    with lock:
        try:
            flock(lock, LOCK_EX)
        except OSError as error:
            raise unusable(home, error) from error
        yield


def unusable(home: Path, error: Exception) -> EnvironmentLacksError:
    """Return the error for an unwritable *home*."""
    return EnvironmentLacksError(
        f"cannot write the index of the results to {home}: {error}. Free some space, or set {CACHE_VARIABLE} to "
        "another directory"
    )


@contextmanager
def _updated(results: Path, home: Path, scope: Scope) -> Iterator[duckdb.DuckDBPyConnection]:
    with _connected(home) as db:
        _refresh(db, results, home, scope)
        yield db


@contextmanager
def _connected(home: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    config: dict[str, str | bool | int | float | list[str]] = {
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "home_directory": str(home),
        "temp_directory": str(home / ".spill"),
        "threads": len(os.sched_getaffinity(0)),
    }
    with duckdb.connect(home / DATABASE, config=config) as db:
        db.execute("SET enable_progress_bar = false")  # without a script it would draw one into the output
        yield db


def _refresh(db: duckdb.DuckDBPyConnection, results: Path, home: Path, scope: Scope) -> None:
    """Update the index from the documents in *scope*, all or nothing."""
    found = set(_documents(results, scope))
    known: set[_Stored] = set()
    if db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'runs'").fetchone():
        condition, values = scope.of("testbed", "sut")
        rows = db.execute(f"SELECT {', '.join(_Stored._fields)} FROM runs WHERE {condition}", values).fetchall()
        known.update(map(_Stored._make, rows))
    fresh = sorted(found - known)
    stale = ["/".join(stored.run) for stored in known - found]
    if known and not fresh and not stale:
        return
    _load(db, _lines(results, fresh), home / ".documents")
    # Before the transaction: joins find nothing in a table that was made in the one that filled it with more rows than
    # a row group has, until the database is opened again (DuckDB 2.0.0).
    for table, query in TABLES.items():
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM ({query}) LIMIT 0")
    db.execute("BEGIN")
    for table, query in TABLES.items():
        if stale:
            db.execute(
                f"DELETE FROM {table} WHERE concat_ws('/', testbed, sut, directory) IN (SELECT unnest(?))", [stale]
            )
        db.execute(f"INSERT INTO {table} {query}")
    db.execute("COMMIT")


def _documents(results: Path, scope: Scope) -> Iterator[_Stored]:
    """Yield the run documents of the testbed and SUT of *scope*, without touching others.

    An inaccessible one has the size -1. Raises ``InputError`` for an unreadable testbed.
    """
    try:
        for testbed in _directories(results, scope.testbed):
            for sut in _directories(results / testbed, scope.sut) if testbed != REFERENCES else ():
                yield from _of_sut(results, testbed, sut)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _of_sut(results: Path, testbed: str, sut: str) -> Iterator[_Stored]:
    try:
        runs = directories(results / testbed / sut)
    except OSError:
        yield _Stored(testbed, sut, "", -1, -1)  # stands for all documents of the SUT
        return
    for directory in runs:
        try:
            found = os.lstat(f"{results}/{testbed}/{sut}/{directory}/{RUN}")
        except FileNotFoundError:
            continue  # the run is in progress, or has only records
        except OSError:
            yield _Stored(testbed, sut, directory, -1, -1)
        else:
            yield _Stored(testbed, sut, directory, found.st_size, found.st_ctime_ns)


def _directories(parent: Path, name: str | None) -> list[str]:
    """Return the names of the directories in *parent*, or *name* alone if it is one; hidden ones are not ready."""
    if name is not None:
        return [name] if (parent / name).is_dir() else []
    return directories(parent)


def _load(db: duckdb.DuckDBPyConnection, documents: Iterable[bytes], lines: Path) -> None:
    """Make the table ``documents`` of *documents*, a line of JSON each, through the temporary file *lines*."""
    largest = 0
    with lines.open("wb") as file:
        for line in documents:
            largest = max(largest, file.write(line))
    columns = "{" + ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items()) + "}"
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE documents AS FROM read_json(?, columns = {columns}, "
        "format = 'newline_delimited', records = true, hive_partitioning = false, "
        f"maximum_object_size = {max(MIN_OBJECT_BYTES, largest + 1)})",
        [[str(lines)]],
    )
    lines.unlink()


def _lines(results: Path, fresh: Iterable[_Stored]) -> Iterator[bytes]:
    for stored in fresh:
        with suppress(FileNotFoundError):  # deleted meanwhile
            yield _line(results, stored)


def _line(results: Path, stored: _Stored) -> bytes:
    """Return what is kept of a document, or its fault, as a line of JSON. Raises ``FileNotFoundError``."""
    path = results.joinpath(*stored.run, RUN)
    try:
        return _kept(results, path, stored) + b"\n"
    except (InputError, ValueError) as error:
        fault = str(error).removeprefix(f"{path}: ").partition("\n")[0]
        return json.dumps({**stored._asdict(), "fault": fault}).encode() + b"\n"


def _kept(results: Path, path: Path, stored: _Stored) -> bytes:
    from calibration.results.store import open_run  # noqa: PLC0415 - slow, and only new documents need the models

    if not stored.directory:
        raise InputError("the directory cannot be read")
    document = open_run(path, below=results).judged
    named = (document.run.testbed, document.run.sut, document.run.id)
    if named != stored.run:
        raise InputError(f"contains the run {'/'.join(named)}")
    return _extract(stored, document)


def _extract(stored: _Stored, document: "RunDocument | JudgedDocument") -> bytes:
    """Return what is kept of *document*, as JSON."""
    from calibration.results.run_checks import run_checks  # noqa: PLC0415 - slow, and only new documents need them

    made = {
        **stored._asdict(),
        "measured": {measurement.id: format_time(measurement.started_at) for measurement in document.measurements},
        "checked": [check._asdict() for check in run_checks(document)],
    }
    kept = document.model_dump_json(include={"run", "facts", "not_measured", "verdicts", "record", "consistency"})
    return f"{json.dumps(made).removesuffix('}')}, {kept.removeprefix('{')}".encode()
