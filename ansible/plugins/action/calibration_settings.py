# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of all roles, and names that become directories; ``calibration_preflight`` includes this."""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction
from calibration_variables import check_variables


class ActionModule(CalibrationAction):
    """Fail if a variable has the wrong type or value."""

    def act(self, arguments):
        """Return an empty result. Raises InputError with all errors, by role."""
        check_variables(self.task_vars, self._templar.template)
        return {}
