# SPDX-License-Identifier: Apache-2.0
"""Controller side of the module ``sut_reservation``: adds who asks, checks consent, and validates the answer.

``consent`` maps each of ``settings`` to whether it may be changed; the other arguments are the module's.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from datetime import UTC, datetime

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction

from calibration.errors import EnvironmentLacksError
from calibration.model import format_time
from calibration.reservation import SAFE_PATH
from calibration.tuning import read_changes, wanted_settings


def controller():
    """Return the user and host of this controller."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"user id {os.getuid()}"  # a container's user may have no name
    return f"{user}@{socket.gethostname()}"


class ActionModule(SutAction):
    """Call the module on the SUT."""

    def arguments(self):
        """Return the task's arguments; the module checks them."""
        return {"settings": {}, "consent": {}, **self._task.args}

    def act(self, arguments):
        """Return the module's answer, reduced to the fields asked for."""
        consent = arguments.pop("consent")
        arguments["settings"] = wanted_settings(arguments["settings"], consent)
        if arguments["state"] == "tuned" and not arguments["settings"]:
            return {"changes": []}
        arguments["controller"] = controller()
        arguments["started_at"] = format_time(datetime.now(UTC))
        answer = self.ask("sut_reservation", arguments)
        if answer.get("failed") or answer.get("unreachable"):
            return answer
        if arguments["state"] == "held":
            for path in (answer.get("directory"), (answer.get("reservation") or {}).get("path")):
                if not isinstance(path, str) or not SAFE_PATH.fullmatch(path):
                    raise EnvironmentLacksError(f"the SUT returned an invalid path: {str(path)[:200]!r}")
            answer.setdefault("taken_over", None)
        if "changes" in answer:
            answer["changes"] = [change.model_dump(mode="json") for change in read_changes(answer["changes"])]
        return answer
