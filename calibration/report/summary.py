# SPDX-License-Identifier: Apache-2.0
"""The outcome of a SUT's run, summed up for Ansible."""

from pathlib import Path
from typing import Any

from calibration.base.commandline import cleanup_command
from calibration.base.grouping import grouped
from calibration.base.units import plural
from calibration.results.layout import RUN
from calibration.results.model import RunDocument, Verdict, of_the_run
from calibration.run.pace import pace_text, within_announcement


def outcome(results: Path, directory: Path, host: str, document: RunDocument) -> dict[str, Any]:
    """Return ``run``, the summary of the *document* of the run in *directory*, and ``failures``, why it is not good.

    *host* is the SUT's name in the inventory.
    """
    run = summary(directory, document)
    mend = "Every run tries again before it begins"
    if run["left_changed"] and run["status"] != "not_begun":
        mend = f"Try again: {cleanup_command(directory.name, [host], results)}"
    return {"run": run, "failures": failures(run, mend)}


def failures(run: dict[str, Any], mend: str) -> list[str]:
    """Return why the run of a summary is not good; empty if it is. *mend* says how its SUT is restored."""
    if run["status"] == "complete" and not run["failed_verdicts"] and not run["left_changed"]:
        return []
    return [
        f"Calibration failed, run {run['status'].replace('_', ' ')}",
        *(reason if run["status"] == "not_begun" else f"Not measured: {reason}" for reason in run["failed"]),
        *([f"{run['left_changed']}. {mend}"] if run["left_changed"] else []),
        *(f"Verdict failed: {verdict}" for verdict in run["failed_verdicts"]),
    ]


def _failed_verdicts(document: RunDocument) -> list[str]:
    """Return the failures in a run document: one line per kind, with its count and the worst."""
    invalid = [verdict for verdict in document.verdicts if verdict.outcome == "invalid"]
    limits = sorted((verdict for verdict in document.verdicts if verdict.outcome == "fail"), key=_excess, reverse=True)
    checks = [verdict for verdict in document.consistency if verdict.outcome == "fail"]
    checks.sort(key=lambda check: -abs(check.difference or 0.0))
    return [
        f"{worst}{f' (and {plural(len(found) - 1, what)})' if len(found) > 1 else ''}"
        for what, found, worst in (
            ("more limit", limits, f"{limits[0].name}: {limits[0].reason}" if limits else ""),
            ("more cross-check", checks, f"{checks[0].figure.name}: {checks[0].reason}" if checks else ""),
            ("more invalid metric", invalid, f"{invalid[0].name}: {invalid[0].reason}" if invalid else ""),
        )
        if found
    ]


def _excess(verdict: Verdict) -> float:
    """Return how far a metric exceeds its limits, relative to them; infinite if it was not measured."""
    if verdict.metric is None:
        return float("inf")
    ends = [item for item in (verdict.lower, verdict.upper) if item]
    return max((abs(verdict.metric.value - end) / abs(end) for end in ends), default=0.0)


def _left_changed(document: RunDocument) -> str | None:
    """Return which settings of the SUT are not known to be restored; ``None`` if all are."""
    return next((flag.reason for flag in document.flags if flag.code == "NOT_RESTORED"), None)


def summary(directory: Path, document: RunDocument) -> dict[str, Any]:
    """Return the fields of a run document that the verdict and the progress display use."""
    failed = [omitted for omitted in of_the_run(document.not_measured) if omitted.cause != "not_planned"]
    reasons = grouped((omitted.reason, omitted.what) for omitted in failed)
    return {
        "directory": str(directory),
        "document": str(directory / RUN),
        "status": document.run.status,
        "measured": len(document.measurements),
        "missing": len(failed),
        "pace": None if within_announcement(document) else pace_text(document),
        "failed": [
            reason if document.run.status == "not_begun" else f"{', '.join(what)}: {reason}"
            for reason, what in reasons.items()
        ],
        "left_changed": _left_changed(document),
        "failed_verdicts": _failed_verdicts(document),
    }
