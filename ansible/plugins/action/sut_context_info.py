# SPDX-License-Identifier: Apache-2.0
"""Controller side of the module ``sut_context_info``: what a SUT says of itself is bounded before it is believed."""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction


class ActionModule(SutAction):
    """Ask for the capture."""

    ANSWER_BYTES = 16 << 20
    """A capture of 1024 CPUs has about 3 MB in this form."""

    SPEC = {"argument_spec": {}}

    def act(self, arguments):
        """Return the module's answer."""
        return self.ask("sut_context_info", arguments)
