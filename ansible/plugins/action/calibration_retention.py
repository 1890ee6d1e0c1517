# SPDX-License-Identifier: Apache-2.0
"""Removes old runs, or their raw outputs; in check mode lists them.

An unreadable reference keeps all runs, with a warning.

Arguments: ``results``, ``run_id`` (of tonight, from which ages count), ``nights`` and ``raw_nights`` (nights to keep
whole runs, and raw outputs; 0 means forever).
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.nightly import night_of
from calibration.nightly.retention import Policy, UnreadableReferenceError, expired, remove
from calibration.text import message

WHAT = {"raw": "raw outputs of ", "run": ""}


class ActionModule(CalibrationAction):
    """Remove old runs."""

    _supports_check_mode = True
    SPEC = {
        "argument_spec": {
            "results": {"type": "path", "required": True},
            "run_id": {"type": "str", "required": True},
            "nights": {"type": "int", "required": True},
            "raw_nights": {"type": "int", "required": True},
        }
    }

    def act(self, arguments):
        """Return ``removed``, as text."""
        results = Path(arguments["results"])
        if self._task.check_mode and not results.exists():  # before the first night
            return {"removed": []}
        tonight = night_of(arguments["run_id"]) or datetime.now(UTC).date()
        try:
            found = expired(results, tonight, Policy(arguments["nights"], arguments["raw_nights"]))
        except UnreadableReferenceError as error:
            self._display.warning(message(str(error)))
            return {"removed": []}
        for omitted in found:
            self._display.display(
                f"{'Would remove' if self._task.check_mode else 'Removing'} {WHAT[omitted.what]}{omitted.directory}"
            )
            if not self._task.check_mode:
                remove(results, omitted)
        return {"changed": bool(found), "removed": [f"{WHAT[omitted.what]}{omitted.directory}" for omitted in found]}
