# SPDX-License-Identifier: Apache-2.0
"""Names the run: one identifier for all SUTs of one start of the playbook.

Argument: ``run_id``, an identifier given from outside, which is kept.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.results.store import new_run_id


class ActionModule(CalibrationAction):
    """Set the fact ``calibration_run_id``."""

    SPEC = {"argument_spec": {"run_id": {"type": "str"}}}

    def act(self, arguments):
        """Return the identifier as a fact."""
        return {"ansible_facts": {"calibration_run_id": arguments["run_id"] or new_run_id(datetime.now(UTC))}}
