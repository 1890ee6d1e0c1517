# SPDX-License-Identifier: Apache-2.0
"""Assembles a SUT's run document from the records of its run, renders its page, and stores a new traffic shape.

``refused`` says why the SUT must not be measured, by ``checks``; empty if it may. ``changes`` are those of its settings
as restored. A run that ended before its first record leaves an empty directory: with ``interrupted`` it is removed.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction, changes_of, checks_of, required

from calibration.errors import CalibrationError
from calibration.lifecycle import finish
from calibration.report import render_run
from calibration.report.story import story
from calibration.results.attempts import has_ended, record_reason
from calibration.results.layout import RECORDS, RUN, run_directory
from calibration.results.model import of_the_run
from calibration.results.pace import pace_text, within_announcement
from calibration.results.records import EndRecord, RestoredRecord, append_record, records
from calibration.results.references import keep_references
from calibration.results.store import read_run


def has_begun(directory):
    """Return whether the run's first record is complete."""
    if not (directory / RECORDS).exists():
        return False
    return next(iter(records(directory)), None) is not None


def remove_partial(directory, run_begun):
    """Remove leftovers of an interrupted writer from the run's directory; all of it if the run had not begun."""
    if not run_begun:
        shutil.rmtree(directory)
        for parent in (directory.parent, directory.parent.parent):
            if any(parent.iterdir()):
                return
            parent.rmdir()
        return
    for partial in directory.glob(f".{RUN}.*"):
        partial.unlink()


def state_of(change):
    """Return the state of a setting that was not restored."""
    return "not known to be restored" if change.restored is None else f"is now {change.restored}"


def failed_verdicts(document):
    """Return the failures in a run document: one line per kind, with its count and the worst."""
    invalid = [verdict for verdict in document.verdicts if verdict.outcome == "invalid"]
    limits = sorted((verdict for verdict in document.verdicts if verdict.outcome == "fail"), key=excess, reverse=True)
    checks = [verdict for verdict in document.consistency if verdict.outcome == "fail"]
    checks.sort(key=lambda check: -abs(check.difference or 0.0))
    return [
        f"{worst}{f' (and {len(found) - 1} more {what})' if len(found) > 1 else ''}"
        for what, found, worst in (
            ("limits", limits, f"{limits[0].name}: {limits[0].reason}" if limits else ""),
            ("cross-checks", checks, f"{checks[0].figure.name}: {checks[0].reason}" if checks else ""),
            ("invalid metrics", invalid, f"{invalid[0].name}: {invalid[0].reason}" if invalid else ""),
        )
        if found
    ]


def excess(verdict):
    """Return how far a metric exceeds its limits, relative to them; infinite if it was not measured."""
    if verdict.metric is None:
        return float("inf")
    ends = [item for item in (verdict.lower, verdict.upper) if item]
    return max((abs(verdict.metric.value - end) / abs(end) for end in ends), default=0.0)


def summary(directory, document):
    """Return the fields of a run document that the verdict and the progress display use."""
    failed = [omitted for omitted in of_the_run(document.not_measured) if omitted.cause != "not_planned"]
    reasons = {}
    for omitted in failed:
        reasons.setdefault(omitted.reason, []).append(omitted.what)
    return {
        "directory": str(directory),
        "document": str(directory / RUN),
        "status": document.run.status,
        "measured": len(document.measurements),
        "missing": len(failed),
        "pace": None if within_announcement(document) else pace_text(document),
        "failed": [f"{', '.join(what)}: {reason}" for reason, what in reasons.items()],
        "left_changed": [
            f"{change.setting} at {change.where}: was {change.before}, {state_of(change)}"
            for change in document.attempts[-1].changes
            if change.restored != change.before
        ]
        + [
            f"prefetchers at {place.where}: {place.before} before Intel MLC --{command}, then {place.after}"
            for command, place in (document.mlc.changed_prefetchers if document.mlc else ())
        ],
        "failed_verdicts": failed_verdicts(document),
        "story": asdict(story(document)),
    }


def with_page(directory, run):
    """Render the page of *run*'s document, and return the task's result."""
    try:
        return {"run": {**run, "page": str(render_run(directory, checked=True))}}
    except CalibrationError as error:
        return {"run": run, "failed": True, "msg": str(error), "exit_code": error.exit_code}


class ActionModule(CalibrationAction):
    """Write the run document and its page."""

    SPEC = {
        "argument_spec": {
            **required("str", "results", "testbed", "sut", "run_id", "profile"),
            "refused": {"type": "str", "default": ""},
            "checks": {"type": "list", "elements": "dict", "default": []},
            "changes": {"type": "list", "elements": "dict", "default": []},
            "interrupted": {"type": "bool", "default": False},
        }
    }

    def act(self, arguments):
        """Return ``run``: the paths of the run document and its page, its status, and its failures.

        It is null if there is no such run. If the page cannot be written, the task fails and the document is kept.
        """
        names = {name: arguments[name] for name in ("testbed", "sut", "run_id")}
        results = Path(arguments["results"])
        directory = run_directory(results, **names)
        now = datetime.now(UTC)
        if arguments["refused"]:
            record_reason(
                results,
                **names,
                profile=arguments["profile"],
                now=now,
                reason=arguments["refused"],
                checks=checks_of(arguments["checks"]),
            )
        if arguments["interrupted"] and directory.is_dir():
            remove_partial(directory, has_begun(directory))
        if not directory.is_dir():
            return {"run": None}
        ended = has_ended(directory)
        if ended and not arguments["changes"] and (directory / RUN).exists():
            # No new records since the run document was written: interrupted afterwards, or nothing to do.
            return with_page(directory, summary(directory, read_run(directory)))
        if arguments["changes"]:
            append_record(directory, RestoredRecord(changes=changes_of(arguments["changes"])))
        if not ended:
            append_record(directory, EndRecord(finished_at=now, interrupted=arguments["interrupted"]))
        document = finish(directory, now=now)
        keep_references(results, document)
        return {"changed": True, **with_page(directory, summary(directory, document))}
