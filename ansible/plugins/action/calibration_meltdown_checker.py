# SPDX-License-Identifier: Apache-2.0
"""Runs the operator's spectre-meltdown-checker on the SUT, and stores its output with the capture of the run.

``path`` is the run's directory on the SUT, ``directory`` that on the controller. A failure of the checker is recorded
and fails nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from ansible import constants as C

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_answers import MAX_OUTPUT
from calibration_plugins import MAX_REASON, required
from calibration_processes import end_with_controller
from calibration_programs import ProgramAction

from calibration.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.formats.meltdown_checker import ENDED_WELL
from calibration.results.model import CheckerRun
from calibration.results.records import record_checker, record_names
from calibration.text import decode_base64

MAX_SCRIPT_BYTES = 4 << 20
"""Ten times the size of the script; a larger file is something else."""


class ActionModule(ProgramAction):
    """Run the checker once."""

    SPEC = {
        "argument_spec": {
            **required("path", "script", "directory"),
            **required("str", "path"),
            **required("dict", "reservation"),
            **required("float", "lease_s", "timeout_s"),
        }
    }

    def act(self, arguments):
        """Return whether the checker was run, or tried. Fails only if that cannot be recorded."""
        directory = Path(arguments["directory"])
        if "meltdown_checker" in record_names(directory):
            return {}
        end_with_controller()
        started_at, began = datetime.now(UTC), time.monotonic()
        self.known = {"script_sha256": None, "argv": None, "user_id": None, "rc": None, "stderr": ""}
        output, reason = None, None
        try:
            output = self.run_checker(arguments)
            self.check_end()
        except CalibrationError as error:
            reason = str(error)[:MAX_REASON]
        run = CheckerRun(
            started_at=started_at,
            duration_s=round(time.monotonic() - began, 3),
            output=None,
            output_sha256=None,
            reason=reason,
            **self.known,
        )
        record_checker(directory, run, output)
        if reason:
            self.say(f"the Spectre and Meltdown checker has no answer: {reason}", C.COLOR_WARN)
        return {"changed": True}

    def run_checker(self, arguments):
        """Return the checker's output on the SUT. Raises CalibrationError if it did not run, or was altered."""
        content = read_script(arguments["script"])
        self.known["script_sha256"] = hashlib.sha256(content).hexdigest()
        answer = self.run_program(
            "sut_meltdown_checker",
            {"path": arguments["path"], "content": b64encode(content).decode()},
            what="the checker",
            timeout_s=arguments["timeout_s"],
            reservation=arguments["reservation"],
            lease_s=arguments["lease_s"],
        )
        wanted, found = self.known["script_sha256"], answer.get("sha256")
        if found != wanted:
            raise EnvironmentLacksError(f"the script on the SUT has sha256 {found or 'none'}, not {wanted}")
        self.known |= {
            "argv": tuple(str(item) for item in answer.get("argv") or ()),
            "user_id": answer.get("user_id"),
            "rc": answer.get("rc"),
            "stderr": str(answer.get("stderr") or "")[-MAX_OUTPUT:],
        }
        self.fault = answer.get("fault")
        return decode_base64(str(answer.get("output")))

    def check_end(self):
        """Raise EnvironmentLacksError unless the checker exited normally."""
        code, stderr = self.known["rc"], self.known["stderr"].strip()
        output = f": {stderr}" if stderr else ""
        if self.fault is not None:
            raise EnvironmentLacksError(f"the checker {self.fault}{output}")
        if code not in ENDED_WELL:
            raise EnvironmentLacksError(f"the checker failed with exit code {code}{output}")


def read_script(path):
    """Return the bytes of the script. Raises InputError if there is none."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"spectre-meltdown-checker cannot be read at {path} on the controller: {error.strerror}; correct "
            "context_meltdown_checker or leave it empty"
        ) from error
    if len(content) > MAX_SCRIPT_BYTES:
        raise InputError(f"the script {path} is larger than {MAX_SCRIPT_BYTES} bytes")
    return content
