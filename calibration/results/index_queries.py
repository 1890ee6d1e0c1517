# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file; what comes from outside is a parameter
"""Queries of histories from the index of the run documents."""

from datetime import date
from typing import Any, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from calibration.base.parsers import parse_json
from calibration.results.history import History, NightRun, Recorded, RecordedCheck, Series, Sut, Unreadable
from calibration.results.layout import RUN
from calibration.results.nights import misdated

MEASURED = "(FROM runs WHERE fault IS NULL AND status <> 'imported')"
"""The runs that were measured here and can be read."""


class Scope(NamedTuple):
    """What a history is limited to; ``None`` is no limit."""

    testbed: str | None
    sut: str | None
    metric: str | None = None
    until: date | None = None

    def of(self, *names: str) -> tuple[str, list[Any]]:
        """Return the SQL condition for the given *names*, and its values."""
        asked = {name: value for name in names if (value := getattr(self, name)) is not None}
        return " AND ".join(("true", *(f"{name} = ?" for name in asked))), list(asked.values())


def misdated_nights(db: duckdb.DuckDBPyConnection, scope: Scope) -> list[date]:
    """Return the nights of *scope* in the index *db* that were dated by a wrong clock."""
    condition, values = scope.of("testbed", "sut")
    found = db.execute(f"SELECT DISTINCT night FROM {MEASURED} WHERE {condition}", values).fetchall()
    return sorted(misdated(night for (night,) in found))


def query_history(db: duckdb.DuckDBPyConnection, scope: Scope) -> History:
    """Return the history of *scope*, read from the index *db*."""
    condition, values = scope.of("testbed", "sut")
    wrong = misdated_nights(db, scope)
    until = scope.until or date.max
    db.execute(
        f"""CREATE TEMP TABLE nights AS
        SELECT testbed, sut, night, directory, status, facts, reasons, unrestored,
               dense_rank() OVER (ORDER BY night) - 1 AS place
        FROM (SELECT * REPLACE (hash(facts) AS facts) FROM runs
              WHERE {condition} AND fault IS NULL AND status <> 'imported' AND night <= ?
                  AND night NOT IN (SELECT unnest(?::DATE[]))
              QUALIFY row_number() OVER (PARTITION BY testbed, sut, night
                  ORDER BY status = 'complete' DESC, started_at DESC, directory DESC) = 1)""",
        [*values, until, wrong],
    )
    nights = tuple(night for (night,) in db.execute("SELECT DISTINCT night FROM nights ORDER BY night").fetchall())
    unreadable = tuple(
        Unreadable(testbed, sut, "/".join((testbed, sut, *((directory, RUN) if directory else ()))), night, fault)
        for testbed, sut, directory, night, fault in db.execute(
            f"SELECT testbed, sut, directory, night, fault FROM runs WHERE {condition} "
            "AND fault IS NOT NULL AND (night IS NULL OR night <= ?) ORDER BY testbed, sut, directory",
            [*values, until],
        ).fetchall()
    )
    newest = max((file.night for file in unreadable if file.night is not None), default=None)
    if newest is not None and newest not in nights and (newest == scope.until or not nights):
        nights += (newest,)
    unreadable += tuple(
        Unreadable(
            testbed, sut, f"{testbed}/{sut}/{directory}/{RUN}", night, f"the clock was wrong on {night}", misdated=True
        )
        for testbed, sut, directory, night in db.execute(
            f"SELECT testbed, sut, directory, night FROM {MEASURED} WHERE {condition} "
            "AND night IN (SELECT unnest(?::DATE[])) ORDER BY testbed, sut, directory",
            [*values, wrong],
        ).fetchall()
    )
    condition, values = scope.of("testbed", "sut", "metric")
    joined = f"(FROM metrics WHERE {condition}) AS metrics JOIN nights USING (testbed, sut, directory)"
    db.execute(
        f"""CREATE TEMP TABLE series AS
        SELECT testbed, sut, metric, arg_max(unit, place) AS unit, arg_max(better, place) AS better,
               arg_max(series, place) AS series, row_number() OVER (ORDER BY testbed, sut, metric) - 1 AS number
        FROM {joined} WHERE unit IS NOT NULL GROUP BY testbed, sut, metric""",
        values,
    )
    series = tuple(
        Series(*row)
        for row in db.execute("SELECT testbed, sut, metric, unit, better FROM series ORDER BY number").fetchall()
    )
    found = db.execute(
        f"""SELECT number, place, coalesce(value, 'nan') AS value, coalesce(low, 'nan') AS low,
                  coalesce(high, 'nan') AS high
        FROM {joined} JOIN series USING (series)""",
        values,
    ).fetchnumpy()
    recorded = db.execute(
        f"SELECT testbed, sut, metric, lower, upper, outcome, reason FROM {joined} "
        "WHERE place = ? ORDER BY testbed, sut, metric",
        [*values, len(nights) - 1],
    ).fetchall()

    def array(name: str) -> NDArray[np.float64]:
        values = np.full((len(series), len(nights)), np.nan)
        values[found["number"], found["place"]] = found[name]
        return values

    return History(
        nights=nights,
        series=series,
        values=array("value"),
        low=array("low"),
        high=array("high"),
        runs=_runs(db),
        recorded={(testbed, sut, metric): Recorded(*rest) for testbed, sut, metric, *rest in recorded},
        consistency=_checks(db, nights[-1]) if nights else {},
        unreadable=unreadable,
    )


def _checks(db: duckdb.DuckDBPyConnection, night: date) -> dict[Sut, list[RecordedCheck]]:
    """Return the consistency checks in the documents of *night*."""
    found: dict[Sut, list[RecordedCheck]] = {}
    rows = db.execute(
        "SELECT testbed, sut, metric, unit, value, interval, bound, outcome, reason FROM checks "
        "JOIN nights USING (testbed, sut, directory) WHERE checks.night = ? AND nights.night = ? "
        "ORDER BY testbed, sut, metric, reason",
        [night, night],
    ).fetchall()
    for testbed, sut, metric, unit, value, interval, bound, outcome, reason in rows:
        ends = None if interval is None else (interval[0], interval[1])
        check = RecordedCheck(metric, unit, value, ends, (bound[0], bound[1]), outcome, reason)
        found.setdefault((testbed, sut), []).append(check)
    return found


def _runs(db: duckdb.DuckDBPyConnection) -> dict[Sut, dict[date, NightRun]]:
    runs: dict[Sut, dict[date, NightRun]] = {}
    # Long, and seldom different from night to night: nights have their hash.
    every = db.execute("SELECT hash(facts), any_value(facts) FROM runs WHERE fault IS NULL GROUP BY hash(facts)")
    known: dict[int, dict[str, str]] = {key: parse_json(facts) for key, facts in every.fetchall()}
    rows = db.execute(
        "SELECT testbed, sut, night, directory, status, facts, reasons, unrestored FROM nights "
        "ORDER BY testbed, sut, night"
    ).fetchall()
    for testbed, sut, night, directory, status, facts, reasons, unrestored in rows:
        runs.setdefault((testbed, sut), {})[night] = NightRun(
            testbed=testbed,
            sut=sut,
            run_id=directory,
            night=night,
            status=status,
            directory=f"{testbed}/{sut}/{directory}",
            facts=known[facts],
            reasons=tuple(dict.fromkeys(reasons)),
            unrestored=unrestored,
        )
    return runs
