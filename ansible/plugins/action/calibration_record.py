# SPDX-License-Identifier: Apache-2.0
"""Records in a SUT's run which kernel bytes measure, or why nothing more can be measured.

Arguments: ``directory`` of the run, and one of ``kernels`` (how it was made) and ``note`` (a sentence).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.results import store
from calibration.results.model import Kernels


class ActionModule(CalibrationAction):
    """Append one record."""

    SPEC = {
        "argument_spec": {
            "directory": {"type": "path", "required": True},
            "kernels": {"type": "dict"},
            "note": {"type": "str"},
        },
        "mutually_exclusive": [("kernels", "note")],
        "required_one_of": [("kernels", "note")],
    }

    def act(self, arguments):
        """Return that a record was written."""
        directory = Path(arguments["directory"])
        if arguments["note"] is not None:
            store.record_note(directory, arguments["note"])
        else:
            kept = {name: str(arguments["kernels"][name]) for name in Kernels.model_fields}
            store.record_kernels(directory, Kernels.model_validate(kept))
        return {"changed": True}
