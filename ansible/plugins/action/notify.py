# SPDX-License-Identifier: Apache-2.0
"""Tells a command and a URL which SUTs changed their state by the judgement of the night."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction, required
from ansible_collections.calibration.harness.plugins.plugin_utils.host_names import hosts_by_names

from ansible import constants as C
from calibration.base.errors import CalibrationError
from calibration.base.text import message


class ActionModule(CalibrationAction):
    """Notify."""

    SPEC = {
        "argument_spec": {
            **required("path", "results", "judgement"),
            "command": {"type": "list", "elements": "str", "default": []},
            "url": {"type": "str", "default": "", "no_log": True},
        }
    }

    def act(self, arguments):
        """Return ``told``, the SUTs whose state changed, and ``undelivered``, why they could not be told.

        A notification that fails is a warning: it says nothing about a SUT.
        """
        from calibration.nightly.notify import Hook, notify  # noqa: PLC0415 - slow, and only this task needs it

        places = (Path(arguments[name]) for name in ("results", "judgement"))
        hosts = hosts_by_names(self.task_vars, self._loader)
        only = set(hosts) if "ansible_limit" in self.task_vars else None
        try:
            told, undelivered = notify(*places, Hook(arguments["command"], arguments["url"]), only)
        except CalibrationError as error:
            told, undelivered = (), (str(error),)
        for fault in undelivered:
            # As a warning it would be part of the result, which the task does not show.
            self._display.display(message(f"Warning: notification failed: {fault}"), color=C.COLOR_WARN)
        return {"told": list(told), "undelivered": list(undelivered)}
