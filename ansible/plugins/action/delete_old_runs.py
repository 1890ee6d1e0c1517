# SPDX-License-Identifier: Apache-2.0
"""Removes old runs, or their raw outputs; in check mode lists them.

Ages count from the night of ``run_id``. An unreadable reference keeps all runs, with a warning.
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction, required

from calibration.base.text import message
from calibration.nightly.retention import Policy, UnreadableReferenceError, expired, remove
from calibration.results.nights import night_of, today

WHAT = {"partial": "half-written files of ", "raw": "raw outputs of ", "run": ""}


class ActionModule(CalibrationAction):
    """Remove old runs."""

    _supports_check_mode = True
    SPEC = {
        "argument_spec": {
            **required("path", "results"),
            **required("str", "run_id"),
            **required("int", "nights", "raw_nights"),
        }
    }

    def act(self, arguments):
        """Return ``removed``, as text."""
        results = Path(arguments["results"])
        if self._task.check_mode and not results.exists():  # before the first night
            return {"removed": []}
        tonight = night_of(arguments["run_id"]) or today()
        try:
            found = expired(results, tonight, Policy(arguments["nights"], arguments["raw_nights"]))
        except UnreadableReferenceError as error:
            self._display.warning(message(str(error)))
            return {"removed": []}
        removed = [f"{WHAT[old.what]}{old.directory}" for old in found]
        for old, text in zip(found, removed, strict=True):
            self._display.display(f"{'Would remove' if self._task.check_mode else 'Removing'} {text}")
            if not self._task.check_mode:
                remove(results, old)
        return {"changed": bool(found), "removed": removed}
