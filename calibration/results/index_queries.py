# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file; what comes from outside is a parameter
"""Queries of histories from the index of the run documents."""

from bisect import bisect_left
from collections.abc import Callable
from datetime import date, timedelta
from sys import intern
from typing import Any, NamedTuple, TypeVar

import duckdb
import numpy as np
from numpy.typing import NDArray

from calibration.base.parsers import parse_json
from calibration.results.history import (
    Headline,
    History,
    NightRun,
    Recorded,
    RecordedCheck,
    RunCheck,
    Series,
    Sut,
    Unreadable,
)
from calibration.results.layout import RUN, THIS_MACHINE
from calibration.results.nights import misdated

T = TypeVar("T")

MEASURED = "(FROM runs WHERE fault IS NULL AND status <> 'imported')"
"""The runs that were measured here and can be read."""


OF_A_LAB = f"(testbed <> '{THIS_MACHINE}' OR NOT EXISTS (FROM runs AS other WHERE other.testbed <> '{THIS_MACHINE}'))"
"""The condition for runs of a lab; of this machine, if there are no others."""


MAX_ROWS = 2_000_000
"""Most values of metrics read at a time: they take 50 bytes each. With fewer a large lab takes more queries."""


class Scope(NamedTuple):
    """What a history is limited to; ``None`` is no limit."""

    testbed: str | None
    sut: str | None
    metric: str | None = None
    until: date | None = None
    ends: timedelta | None = None
    """Intervals are only read of so long a time before the last night."""

    def of(self, *names: str) -> tuple[str, list[Any]]:
        """Return the SQL condition for the given *names*, and its values."""
        asked = {name: value for name in names if (value := getattr(self, name)) is not None}
        return " AND ".join(("true", *(f"{name} = ?" for name in asked))), list(asked.values())

    def judged(self, *names: str) -> tuple[str, list[Any]]:
        """Return the same for the runs that are judged: without a testbed, those of a lab."""
        condition, values = self.of(*names)
        return condition if self.testbed is not None else f"{condition} AND {OF_A_LAB}", values


def misdated_nights(db: duckdb.DuckDBPyConnection, scope: Scope) -> list[date]:
    """Return the nights of *scope* in the index *db* that were dated by a wrong clock."""
    condition, values = scope.judged("testbed", "sut")
    found = db.execute(f"SELECT DISTINCT night FROM {MEASURED} WHERE {condition}", values).fetchall()
    return sorted(misdated(night for (night,) in found))


def query_history(db: duckdb.DuckDBPyConnection, scope: Scope) -> History:
    """Return the history of *scope*, read from the index *db*."""
    condition, values = scope.judged("testbed", "sut")
    wrong = misdated_nights(db, scope)
    until = scope.until or date.max
    db.execute(
        f"""CREATE TEMP TABLE nights AS
        SELECT testbed, sut, night, directory, status, profile, dense_rank() OVER (ORDER BY night) - 1 AS place
        FROM (SELECT testbed, sut, night, directory, status, profile FROM runs
              WHERE {condition} AND fault IS NULL AND status <> 'imported' AND night <= ?
                  AND night NOT IN (SELECT unnest(?::DATE[]))
              QUALIFY row_number() OVER (PARTITION BY testbed, sut, night
                  ORDER BY status = 'complete' DESC, status <> 'not_begun' DESC, started_at DESC, directory DESC
              ) = 1)""",
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
    # Few runs stand for no night: leaving them out is faster than finding all the others by their names.
    db.execute(
        f"""CREATE TEMP TABLE others AS
        SELECT testbed, sut, directory FROM runs ANTI JOIN nights USING (testbed, sut, directory) WHERE {condition}""",
        values,
    )
    condition, values = scope.judged("testbed", "sut", "metric")
    joined = f"""(FROM metrics WHERE {condition}) AS metrics ANTI JOIN others USING (testbed, sut, directory)
        JOIN (SELECT DISTINCT night, place FROM nights) USING (night)"""
    db.execute(
        f"""CREATE TEMP TABLE series AS
        SELECT *, row_number() OVER (ORDER BY testbed, sut, metric) - 1 AS number
        FROM (SELECT any_value(testbed) AS testbed, any_value(sut) AS sut, any_value(metric) AS metric,
                     any_value(unit) AS unit, arg_max(better, place) AS better, series, max(place) AS newest
              FROM {joined} WHERE unit IS NOT NULL GROUP BY series)
        QUALIFY row_number() OVER (PARTITION BY testbed, sut, metric ORDER BY newest DESC) = 1""",
        values,
    )
    series = tuple(
        Series(intern(testbed), intern(sut), intern(metric), intern(unit), better)
        for testbed, sut, metric, unit, better in db.execute(
            "SELECT testbed, sut, metric, unit, better FROM series ORDER BY number"
        ).fetchall()
    )
    last = nights[-1] if nights else date.min
    tonight = f"(FROM {joined} WHERE night = ?)"
    recorded = db.execute(
        f"SELECT testbed, sut, metric, lower, upper, outcome, reason FROM {tonight} ORDER BY testbed, sut, metric",
        [*values, last],
    ).fetchall()
    step = max(1, MAX_ROWS // max(len(series), 1))

    def array(name: str, since: date = date.min) -> NDArray[np.float64]:
        """Return a column of the metrics of the nights *since*, read some nights at a time."""
        begin = bisect_left(nights, since)
        filled = np.full((len(series), len(nights) - begin), np.nan)
        for first in range(begin, len(nights), step):
            found = db.execute(
                f"SELECT number::INTEGER AS number, place::INTEGER AS place, {name} AS value "
                f"FROM {joined} JOIN series USING (series) WHERE {name} IS NOT NULL AND night BETWEEN ? AND ?",
                [*values, nights[first], nights[min(first + step, len(nights)) - 1]],
            ).fetchnumpy()
            filled[found["number"], found["place"] - begin] = found["value"]
        return filled

    ends = last - scope.ends if nights and scope.ends is not None else date.min
    return History(
        nights=nights,
        series=series,
        values=array("value"),
        low=array("low", ends),
        high=array("high", ends),
        runs=_runs(db),
        recorded={
            (intern(testbed), intern(sut), intern(metric)): Recorded(lower, upper, intern(outcome), intern(reason))
            for testbed, sut, metric, lower, upper, outcome, reason in recorded
        },
        consistency=_checks(db, nights[-1]) if nights else {},
        run_checks={
            sut: tuple(check._replace(texts=tuple(check.texts)) for check in checks)
            for sut, checks in _lists(db, "checked", RunCheck, last).items()
        },
        headlines=_lists(db, "headlines", Headline, last),
        titles=dict(
            db.execute(f"SELECT metric, any_value(title) FROM {tonight} GROUP BY metric", [*values, last]).fetchall()
        ),
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


def _lists(db: duckdb.DuckDBPyConnection, column: str, kind: Callable[..., T], night: date) -> dict[Sut, tuple[T, ...]]:
    """Return the items of *column*, a list of structures, of each SUT's run of *night*."""
    found = db.execute(
        f"SELECT testbed, sut, {column} FROM runs SEMI JOIN nights USING (testbed, sut, directory) WHERE night = ?",
        [night],
    ).fetchall()
    return {(testbed, sut): tuple(kind(**item) for item in items or ()) for testbed, sut, items in found}


def _runs(db: duckdb.DuckDBPyConnection) -> dict[Sut, dict[date, NightRun]]:
    runs: dict[Sut, dict[date, NightRun]] = {}
    # Long, and seldom different from night to night: each is read once.
    failing = "[item.name FOR item IN checked IF item.outcome = 'fail']"
    every = {
        name: dict(db.execute(f"SELECT hash({name}), any_value({name}) FROM runs GROUP BY hash({name})").fetchall())
        for name in ("facts", "reasons", failing)
    }
    known: dict[int, dict[str, str]] = {key: parse_json(facts or "{}") for key, facts in every["facts"].items()}
    why = {key: tuple(dict.fromkeys(reasons or ())) for key, reasons in every["reasons"].items()}
    which = {key: tuple(checks or ()) for key, checks in every[failing].items()}
    rows = db.execute(
        f"SELECT testbed, sut, night, directory, status, hash(facts), hash(reasons), profile, hash({failing}) "
        "FROM runs SEMI JOIN nights USING (testbed, sut, directory) ORDER BY testbed, sut, night"
    ).fetchall()
    for testbed, sut, night, directory, status, facts, reasons, profile, failed in rows:
        runs.setdefault((testbed, sut), {})[night] = NightRun(
            testbed=testbed,
            sut=sut,
            run_id=directory,
            night=night,
            status=status,
            directory=f"{testbed}/{sut}/{directory}",
            facts=known[facts],
            reasons=why[reasons],
            profile=profile,
            failed=which[failed],
        )
    return runs
