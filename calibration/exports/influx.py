# SPDX-License-Identifier: Apache-2.0
"""All runs as InfluxDB line protocol, with the time of each measurement.

Measurements, tags and units are the families and labels of ``calibration.exports.families``; the fields are ``value``,
the ends ``low`` and ``high`` of its interval if it has one, and ``trust``. Writing a line again changes nothing.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

from calibration.exports.families import family_of
from calibration.exports.history import Record, records
from calibration.results.index import open_index


def influx(results: Path, since: date | None, left_out: Callable[[str], None]) -> Iterator[str]:
    """Yield a line for each valid metric in *results* from the night *since* on; tell *left_out* why others lack."""
    with open_index(results) as db:
        for record in records(db, since=since):
            sut = f"{record.testbed}/{record.sut}"
            if record.value is None:
                left_out(f"{sut}: {record.metric} of {record.measured_at:%Y-%m-%d} left out: {record.reason}")
            elif (line := _line(record, record.value)) is None:
                left_out(f"{sut}: {record.metric} left out: this version has no such metric")
            else:
                yield line


def _line(record: Record, value: float) -> str | None:
    family = family_of(record.metric)
    if family is None:
        return None
    tags = (("sut", record.sut), ("testbed", record.testbed), *family.labels)
    known = (("value", value), ("low", record.low), ("high", record.high))
    fields = [f"{name}={number * family.factor!r}" for name, number in known if number is not None]
    series = "".join(f",{name}={_escaped(text)}" for name, text in sorted(tags))
    nanoseconds = int(record.measured_at.timestamp()) * 10**9  # documents have whole seconds
    return f'{family.name}{series} {",".join(fields)},trust="{record.trust}" {nanoseconds}'


def _escaped(text: str) -> str:
    """Return *text* as a tag's value. Names of SUTs and labels have neither line breaks nor backslashes."""
    return re.sub(r"([,= ])", r"\\\1", text)
