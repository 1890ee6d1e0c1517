# SPDX-License-Identifier: Apache-2.0
"""All runs as InfluxDB line protocol, with the time of each measurement.

Measurements, tags and units are the families and labels of ``calibration.exports.families``; the fields are ``value``,
the ends ``low`` and ``high`` of its interval if it has one, and ``trust``. Writing a line again changes nothing.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

from calibration.exports.history import Value, values


def influx(results: Path, since: date | None, left_out: Callable[[str], None]) -> Iterator[str]:
    """Yield a line for each valid metric in *results* from the night *since* on; tell *left_out* why others lack."""
    return map(_line, values(results, left_out, since=since))


def _line(item: Value) -> str:
    tags = (("sut", item.sut), ("testbed", item.testbed), *item.family.labels)
    series = "".join(f",{name}={_escaped(text)}" for name, text in sorted(tags))
    known = (("value", item.value), ("low", item.low), ("high", item.high))
    fields = ",".join(f"{name}={number!r}" for name, number in known if number is not None)
    nanoseconds = int(item.measured_at.timestamp()) * 10**9  # documents have whole seconds
    return f'{item.family.name}{series} {fields},trust="{item.trust}" {nanoseconds}'


def _escaped(text: str) -> str:
    """Return *text* as a tag's value; control characters and backslashes, which it cannot have, become ``_``."""
    return re.sub(r"([,= ])", r"\\\1", re.sub(r"[\x00-\x1f\\]", "_", text))
