# SPDX-License-Identifier: Apache-2.0
"""Assembles a SUT's run document from the records of its run, and keeps the traffic shape that it chose, if it did.

Arguments: ``results``, ``testbed``, ``sut``, ``run_id``, and ``interrupted`` (whether the run was ended from outside).
A run that ended before it had begun leaves a directory without a start: with ``interrupted`` it is removed.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.results import store
from calibration.results.assemble import assemble
from calibration.results.references import keep_shape


def has_begun(directory):
    """Return whether the run's first record is whole."""
    if not (directory / store.RECORDS).exists():
        return False
    return next(iter(store.records(directory)), None) is not None


def remove_partial(directory, run_begun):
    """Remove what an interrupted writer left in the run's directory; all of it where the run had not begun."""
    if not run_begun:
        shutil.rmtree(directory)
        for parent in (directory.parent, directory.parent.parent):
            if any(parent.iterdir()):
                return
            parent.rmdir()
        return
    for partial in directory.glob(f".{store.RUN}.*"):
        partial.unlink()


def summary(directory, document):
    """Return what the verdict and the progress display need of a run document."""
    failed = [each for each in document.not_measured if each.cause != "not_planned"]
    reasons = {}
    for each in failed:
        reasons.setdefault(each.reason, []).append(each.what)
    return {
        "directory": str(directory),
        "document": str(directory / store.RUN),
        "status": document.run.status,
        "measured": len(document.measurements),
        "missing": len(failed),
        "failed": [f"{', '.join(what)}: {reason}" for reason, what in reasons.items()],
        "failed_verdicts": [
            f"{each.name}: {each.reason}" for each in document.verdicts if each.outcome in ("fail", "invalid")
        ],
    }


class ActionModule(CalibrationAction):
    """Write the run document."""

    SPEC = {
        "argument_spec": {
            "results": {"type": "path", "required": True},
            "testbed": {"type": "str", "required": True},
            "sut": {"type": "str", "required": True},
            "run_id": {"type": "str", "required": True},
            "interrupted": {"type": "bool", "default": False},
        }
    }

    def act(self, arguments):
        """Return ``run``: the run document's path, status, and what failed in it; null where there is no such run."""
        directory = store.run_directory(
            Path(arguments["results"]), arguments["testbed"], arguments["sut"], arguments["run_id"]
        )
        interrupted = arguments["interrupted"]
        if interrupted:
            if directory.is_dir():
                remove_partial(directory, has_begun(directory))
            if not directory.is_dir():
                return {"run": None}
            if (directory / store.RUN).exists():
                # The interruption came after the run document was complete: it stays as it is.
                return {"run": summary(directory, store.read_run(directory))}
        document = assemble(directory, now=datetime.now(UTC), interrupted=interrupted)
        keep_shape(Path(arguments["results"]), document)
        return {"changed": True, "run": summary(directory, document)}
