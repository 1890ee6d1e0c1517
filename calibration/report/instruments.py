# SPDX-License-Identifier: Apache-2.0
"""Comparison of the run's own metrics with the operator's Intel MLC on the same SUT."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from calibration.formats.readings import Reading
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.measurements.mlc_program import NAME, State
from calibration.report.environment import Fact
from calibration.results.model import MLC, Mlc, RunDocument

WARNING = re.compile(r"^\*|\b(?:warn|unable|error|fail|cannot|not supported)", re.IGNORECASE)
"""Lines of MLC's output that qualify its metrics."""

MAX_LINES = 400
"""Metrics, and warnings, listed at most; the rest is counted. A table of every CPU has thousands."""

STATES: dict[State, str] = {
    "as_before": "as they were",
    "put_back": "changed by it, and put back",
    "changed": "NOT as they were",
    "not_verified": "could not be read, so not verified",
}


@dataclass(frozen=True)
class Line:
    """One metric of both instruments; *ours* is None if the run has none of that name.

    ``ratio`` is theirs divided by ours; ``within`` tells whether theirs is in our interval. Both are None if ours is
    missing or not trusted.
    """

    theirs: Metric
    ours: Metric | None
    valid: bool
    ratio: float | None
    within: bool | None


@dataclass(frozen=True)
class SideBySide:
    """The page's section on Intel MLC; without consent to publish it has no lines, conditions or warnings."""

    mlc: Mlc
    results: int
    conditions: Sequence[Fact] = ()
    lines: Sequence[Line] = ()
    more_lines: int = 0
    warnings: Sequence[str] = ()
    missing: Sequence[str] = ()


def side_by_side(document: RunDocument, huge_pages: str | None) -> SideBySide | None:
    """Return the Intel MLC section of the page of *document*, ``None`` if MLC was not run.

    *huge_pages* describes those reserved on the SUT.
    """
    mlc = document.mlc
    if mlc is None:
        return None
    readings = [reading for reading in document.readings if reading.id.startswith(f"{MLC}.")]
    if not mlc.publish:
        return SideBySide(mlc, len(readings))
    found = lines(document, readings)
    warnings = list(dict.fromkeys(note for reading in readings for note in reading.notes if WARNING.search(note)))
    if len(warnings) > MAX_LINES:
        warnings[MAX_LINES:] = [f"and {len(warnings) - MAX_LINES} more in the run document"]
    missing = [f"{omitted.what}: {omitted.reason}" for omitted in document.not_measured if omitted.kind == MLC]
    missing += [f"{reading.id}: {gone}" for reading in readings for gone in reading.missing]
    return SideBySide(
        mlc,
        len(readings),
        conditions=conditions(mlc, readings, huge_pages),
        lines=found[:MAX_LINES],
        more_lines=max(0, len(found) - MAX_LINES),
        warnings=warnings,
        missing=missing,
    )


def lines(document: RunDocument, readings: list[Reading]) -> list[Line]:
    """Return each metric of the *readings* with the run's metric of that name; duplicate names are skipped."""
    ours = {
        metric.name: (metric, measurement.validity.valid)
        for measurement in document.measurements
        for metric in declaration(measurement.kind).metrics(measurement.values)
    }
    theirs: dict[str, Metric] = {}
    for reading in readings:
        for metric in reading.values.metrics():
            theirs.setdefault(metric.name, metric)
    found = []
    for name, metric in theirs.items():
        own, valid = ours.get(name, (None, False))
        believed = own if valid and own is not None and own.unit == metric.unit else None
        ratio = metric.value / believed.value if believed is not None and believed.value else None
        bounds = None if believed is None else believed.interval
        within = None if bounds is None else bounds[0] <= metric.value <= bounds[1]
        found.append(Line(metric, own, valid, ratio, within))
    return found


def conditions(mlc: Mlc, readings: list[Reading], huge_pages: str | None) -> list[Fact]:
    """Return the conditions that MLC's metrics depend on."""
    users = dict.fromkeys(run.user_id for run in mlc.commands if run.user_id is not None)
    return [
        Fact("Program", ", ".join(dict.fromkeys(reading.instrument for reading in readings)) or None),
        Fact("Archive", f"{mlc.archive}, sha256 {mlc.archive_sha256}"),
        Fact("Program, sha256", mlc.program_sha256),
        Fact("Form", "a SCRIPT, which may print anything" if mlc.form == "script" else "a program for x86_64"),
        Fact("Ran as", ", ".join("root" if user == 0 else f"user id {user}" for user in users) or None),
        Fact("Huge pages of the SUT", huge_pages),
        Fact("Prefetchers", _prefetchers(mlc)),
    ]


def _prefetchers(mlc: Mlc) -> str:
    allowed = (
        f"{NAME} was allowed to switch them"
        if mlc.prefetchers_ok
        else f"{NAME} was not allowed to switch them, and the kernel refused the registers; latencies by random access"
    )
    states: dict[str, list[str]] = {}
    for run in mlc.commands:
        words = STATES["not_verified" if run.prefetchers is None else run.prefetchers.state]
        unread = f" ({run.prefetchers.unread})" if run.prefetchers is not None and run.prefetchers.unread else ""
        states.setdefault(words + unread, []).append(f"--{run.command}")
    states_text = "; ".join(f"after {', '.join(commands)}: {words}" for words, commands in states.items())
    return f"{allowed}. {states_text}" if states_text else allowed
