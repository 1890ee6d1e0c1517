# SPDX-License-Identifier: Apache-2.0
"""A lab's own results: CSV, and the result files of FD.io CSIT.

CSV has a header with the columns ``sut``, ``test``, ``time``, ``value`` and optionally ``unit``, in any order; other
columns are ignored. CSIT writes one JSON file per test, by its model ``test_case`` 1.x
(``resources/model_schema/test_case.schema.yaml`` of CSIT), often compressed.
"""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Final

from calibration.base.errors import InputError
from calibration.base.parsers import csv_rows, parse_json

COLUMNS: Final = ("sut", "test", "time", "value")
UNIT: Final = "unit"

CSIT_SUFFIXES: Final = (".json", ".json.gz")
SUFFIXES: Final = (".csv", *CSIT_SUFFIXES)
"""Suffixes of the files read from a directory."""

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a CSIT file, unpacked: the largest, with all telemetry, have a few MiB."""

MAX_VALUE: Final = 1e30
"""Largest value of a CSIT file: JSON takes integers of any length."""

MODEL: Final = "1."
"""Beginning of the versions of CSIT's model that are understood."""

CSIT_VALUES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "mrr": (("", "receive_rate.rate"),),
    "ndrpdr": ((" ndr", "ndr.lower.rate"), (" pdr", "pdr.lower.rate")),
    "soak": (("", "critical_rate.lower.rate"),),
    "reconf": (("", "loss.time"),),
    "hoststack": (("", "bandwidth"),),
}
"""Values by type of CSIT's result: what is added to the name of the test, and the place below ``result``. They are
those that CSIT itself compares (``resources/libraries/python/model/parse.py``), and NDR beside PDR."""

AVERAGE: Final = "avg"
"""Key of the value of an MRR test, the mean of its trials, in place of ``value``."""


@dataclass
class Measured:
    """The values of one *test* on *hosts*, named as in the files: days (ordinals of dates in UTC) and values.

    ``first`` says where the first value is, for messages. ``unit`` is ``None`` if unknown.
    """

    hosts: tuple[str, ...]
    test: str
    unit: str | None
    first: str
    days: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def check_unit(self, unit: str | None, where: str) -> None:
        """Raise ``InputError`` if a value of the same test, at *where*, has another *unit*."""
        if self.unit != unit:
            raise InputError(
                f"{where}: {self.test} in {unit or 'no unit'}, but in {self.unit or 'no unit'} at {self.first}; "
                "convert one of them"
            )

    def add(self, day: int, value: float) -> None:
        """Add a value."""
        self.days.append(day)
        self.values.append(value)


@dataclass
class Throughput:
    """Everything read, by hosts and test; ``skipped`` counts what has no value, by reason."""

    series: dict[tuple[tuple[str, ...], str], Measured] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def of(self, hosts: tuple[str, ...], test: str, *, unit: str | None, where: str) -> Measured:
        """Return the series to which a value in *unit* belongs.

        Raises ``InputError`` if its earlier values have another unit.
        """
        if (hosts, test) not in self.series:
            self.series[hosts, test] = Measured(hosts, test, unit, where)
        self.series[hosts, test].check_unit(unit, where)
        return self.series[hosts, test]


def read_throughput(paths: Iterable[Path]) -> Throughput:
    """Return the results in *paths*: files, or directories that are searched for files of the known suffixes.

    Raises ``InputError`` with file and line if one cannot be read, or if there is no value at all.
    """
    found = Throughput()
    for path in paths:
        for file in _files(path):
            if file.name.lower().endswith(CSIT_SUFFIXES):
                _read_csit(file, found)
            else:
                _read_csv(file, found)
    if not found.series:
        why = "; ".join(f"{count} {reason}" for reason, count in found.skipped.items())
        raise InputError(f"no value in {', '.join(map(str, paths))}{f': {why}' if why else ''}")
    units: dict[str, Measured] = {}
    for series in found.series.values():
        units.setdefault(series.test, series).check_unit(series.unit, series.first)
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    files = sorted(file for file in path.rglob("*") if file.name.lower().endswith(SUFFIXES) and file.is_file())
    if not files:
        raise InputError(f"{path}: no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file in it")
    yield from files


def _day(text: str, fault: str) -> int:
    """Return the ordinal of the date, in UTC, of an ISO 8601 time; without a time zone it is in UTC.

    Raises ``InputError`` with *fault* for another text.
    """
    try:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo is None else when.astimezone(UTC)).toordinal()
    except (ValueError, OverflowError) as error:
        raise InputError(fault) from error


def _read_csv(path: Path, found: Throughput) -> None:
    rows = csv_rows(path)
    head = [name.strip().lower() for name in next(rows, (0, []))[1]]
    missing = [name for name in COLUMNS if name not in head]
    if missing:
        raise InputError(
            f"{path}:1: no column {', '.join(missing)}; expected a header with {', '.join(COLUMNS)} and optionally "
            f"{UNIT}"
        )
    repeated = [name for name in (*COLUMNS, UNIT) if head.count(name) > 1]
    if repeated:
        raise InputError(f"{path}:1: column {repeated[0]} twice")
    sut_at, test_at, time_at, value_at = map(head.index, COLUMNS)
    unit_at = head.index(UNIT) if UNIT in head else None
    days: dict[str, int] = {}
    for line, row in rows:
        if not row:
            continue
        where = f"{path}:{line}"
        if len(row) != len(head):
            raise InputError(f"{where}: {len(row)} columns, expected {len(head)}")
        sut, test, when, value = (row[at].strip() for at in (sut_at, test_at, time_at, value_at))
        if not sut or not test:
            raise InputError(f"{where}: no {'test' if sut else 'sut'}")
        if when not in days:
            days[when] = _day(when, f"{where}: time {when!r}, expected one such as 2026-01-31T02:00:00+01:00")
        if not value:
            found.skipped["rows without a value"] += 1
            continue
        unit = (row[unit_at].strip() or None) if unit_at is not None else None
        found.of((sut,), test, unit=unit, where=where).add(days[when], _number(value, where))


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number) or "_" in text:
        raise InputError(f"{where}: value {text!r}, expected a number such as 12.5")
    return number


def _read_csit(path: Path, found: Throughput) -> None:
    """Add the result in a file of CSIT; setups and teardowns of suites have none."""
    data = _json(path)
    if not isinstance(data, dict) or not str(data.get("version", "")).startswith(MODEL):
        raise InputError(f"{path}: not a result of CSIT: no version {MODEL}x")
    if "test_id" not in data:
        found.skipped["setups and teardowns of suites"] += 1
        return
    if _at(path, data, "passed", bool) is not True:
        found.skipped["failed tests"] += 1
        return
    kind = _at(path, data, "result.type", str)
    if kind not in CSIT_VALUES:
        found.skipped[f"results of type {kind}"] += 1
        return
    test, start = _at(path, data, "test_id", str), _at(path, data, "start_time", str)
    hosts = tuple(sorted({str(host) for host in _at(path, data, "hosts", list)}))
    if not hosts:
        raise InputError(f"{path}: no hosts")
    day = _day(start, f"{path}: start_time {start[:40]!r} is not a time")
    for added, place in CSIT_VALUES[kind]:
        key = AVERAGE if kind == "mrr" else "value"
        value = _at(path, data, f"result.{place}.{key}", (int, float))
        unit = _at(path, data, f"result.{place}.unit", str)
        if abs(value) > MAX_VALUE:
            raise InputError(f"{path}: result.{place}.{key} is not a plausible number")
        found.of(hosts, test + added, unit=unit, where=str(path)).add(day, float(value))


def _json(path: Path) -> Any:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as stream:
            content = stream.read(MAX_JSON_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not valid gzip: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_JSON_BYTES:
        raise InputError(f"{path}: larger than {MAX_JSON_BYTES} bytes unpacked")
    try:
        return parse_json(content)
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON: {error}") from error


def _at(path: Path, data: Any, place: str, wanted: type | tuple[type, ...]) -> Any:
    """Return what is at *place*, keys joined by dots. Raises ``InputError`` unless it is of the *wanted* type."""
    for key in place.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    if not isinstance(data, wanted) or (isinstance(data, bool) and wanted is not bool):
        raise InputError(f"{path}: {place} is {'missing' if data is None else 'not of the expected type'}")
    return data
