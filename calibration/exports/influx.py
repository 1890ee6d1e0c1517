# SPDX-License-Identifier: Apache-2.0
"""All runs as InfluxDB line protocol, with the time of each measurement.

Measurements, tags and units are the families and labels of ``calibration.exports.families``; the fields are ``value``,
the ends ``low`` and ``high`` of its interval if it has one, and ``trust``. Writing a line again changes nothing.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Final

from calibration.exports.families import Family, family_of
from calibration.exports.history import BATCH, valid_metrics

LINES: Final = """
    SELECT head || ' value=' || value * factor || coalesce(',low=' || low * factor, '')
           || coalesce(',high=' || high * factor, '') || ',trust="' || trust || '" ' || epoch_ns(measured_at)
    FROM valid JOIN heads USING (series)"""
"""Lines of all metrics; DuckDB prints numbers as Python does."""


def influx(results: Path, since: date | None, left_out: Callable[[str], None]) -> Iterator[str]:
    """Yield lines in any order, many at once, of the valid metrics in *results* from the night *since* on.

    Tell *left_out* why others lack. Raises like ``read_history``.
    """
    with valid_metrics(results, left_out, since=since) as db:
        series = db.execute("SELECT DISTINCT series, testbed, sut, metric FROM valid").fetchall()
        heads = [
            (number, _head(testbed, sut, family), family.factor)
            for number, testbed, sut, metric in series
            if (family := family_of(metric))
        ]
        db.execute("CREATE TEMP TABLE heads (series UBIGINT, head VARCHAR, factor DOUBLE)")
        columns = [[head[place] for head in heads] for place in range(3)]
        db.execute("INSERT INTO heads SELECT unnest(?), unnest(?), unnest(?)", columns)
        db.execute(LINES)
        while rows := db.fetchmany(BATCH):
            yield "".join(f"{line}\n" for (line,) in rows)


def _head(testbed: str, sut: str, family: Family) -> str:
    """Return the part of a line that all of a series share: the measurement and its tags."""
    tags = sorted((("sut", sut), ("testbed", testbed), *family.labels))
    return family.name + "".join(f",{name}={_escaped(text)}" for name, text in tags)


def _escaped(text: str) -> str:
    """Return *text* as a tag's value; control characters and backslashes, which it cannot have, become ``_``."""
    return re.sub(r"([,= ])", r"\\\1", re.sub(r"[\x00-\x1f\\]", "_", text))
