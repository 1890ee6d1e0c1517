# SPDX-License-Identifier: Apache-2.0
"""Reserves a traffic generator as CSIT does, or releases it; delegated to the traffic generator."""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import SutAction, required

from calibration.model import format_time
from calibration.session import controller


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
        if self._task.check_mode:
            return {}
        if arguments["state"] == "released":
            return {"changed": remote.release_generator(*names)}
        return {"changed": remote.hold_generator(*names, f"{controller()} {format_time(datetime.now(UTC))}")}
