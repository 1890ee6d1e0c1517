# SPDX-License-Identifier: Apache-2.0
"""Reserves a traffic generator as CSIT does, or releases it; delegated to the traffic generator.

In check mode nothing is reserved, and a reservation of others is refused all the same.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import SutAction, required

from calibration.base.model import format_time
from calibration.run.session import controller


class ActionModule(SutAction):
    """Reserve or release."""

    SPEC = {
        "argument_spec": {
            "state": {"type": "str", "choices": ["held", "released"], "required": True},
            **required("str", "path", "run_id", "sut"),
        }
    }

    def act(self, arguments):
        """Return whether the state changed."""
        remote = self.remote("/", "calibration")
        names = tuple(arguments[name] for name in ("path", "run_id", "sut"))
        check = self._task.check_mode
        if arguments["state"] == "released":
            return {} if check else {"changed": remote.release_generator(*names)}
        text = f"{controller()} {format_time(datetime.now(UTC))}"
        return {"changed": remote.hold_generator(*names, text, only_check=check)}
