# SPDX-License-Identifier: Apache-2.0
"""Records in a SUT's run why it could not begin, or why measuring stopped.

Invalid settings, by ``exit_code``, begin no run: nothing is recorded then.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction, checks_of, required

from calibration.errors import BAD_INPUT
from calibration.results.attempts import record_reason
from calibration.results.layout import RECORDS, run_directory


class ActionModule(CalibrationAction):
    """Append one record."""

    SPEC = {
        "argument_spec": {
            **required("str", "results", "testbed", "sut", "run_id", "profile", "reason"),
            "exit_code": {"type": "int"},
            "checks": {"type": "list", "elements": "dict", "default": []},
        }
    }

    def act(self, arguments):
        """Return whether a record was written."""
        names = {name: arguments[name] for name in ("testbed", "sut", "run_id")}
        results = Path(arguments["results"])
        begun = (run_directory(results, **names) / RECORDS).exists()
        if arguments["exit_code"] == BAD_INPUT and not begun:
            return {}
        record_reason(
            results,
            **names,
            profile=arguments["profile"],
            now=datetime.now(UTC),
            reason=arguments["reason"],
            checks=checks_of(arguments["checks"]),
        )
        return {"changed": True}
