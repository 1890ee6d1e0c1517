# SPDX-License-Identifier: Apache-2.0
"""Begins a SUT's run: captures its context, stores the capture, makes the plan and records the start, all or nothing.

The capture goes directly into the run's directory, not into a task result, which would pass through the controller's
main process twice. ``testbeds`` is the name of the variable with the result of ``calibration_testbeds``: it grows with
the lab, and as an argument it would be templated again for each SUT. In check mode the plan is made and nothing stored.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction, changes_of, required

from calibration.judge.limits import read_limits
from calibration.lifecycle import begin, plan_only, resume
from calibration.preflight.checks import taken_over_check
from calibration.preflight.examination import read_examination
from calibration.profiles import load_profile
from calibration.results.attempts import has_begun
from calibration.results.layout import run_directory
from calibration.text import decode_base64


class ActionModule(SutAction):
    """Return the plan and the run's directory."""

    ANSWER_BYTES = 16 << 20
    """A capture of 1024 CPUs has about 3 MB in base64."""

    SPEC = {
        "argument_spec": {
            **required("str", "results", "testbed", "sut", "run_id", "profile"),
            "preflight": {"type": "dict", "default": {}},
            "testbeds": {"type": "str"},
            "resume": {"type": "bool", "default": False},
            "boot_id": {"type": "str"},
            "changes": {"type": "list", "elements": "dict", "default": []},
            "taken_over": {"type": "dict", "default": {}},
            "prefetchers_ok": {"type": "bool", "default": False},
        }
    }

    def known(self, arguments):
        """Return the result of preflight, with the testbed's other SUTs to compare with."""
        preflight = arguments["preflight"]
        if arguments["testbeds"] is None:
            return preflight
        identities = self.task_vars[arguments["testbeds"]]["identities"][arguments["testbed"]]
        return {**preflight, "known": {**preflight["known"], "identities": identities}}

    def act(self, arguments):
        """Return ``directory`` (null in check mode) and ``plan``: the remaining steps if a run continues."""
        answer = self.ask("sut_context_info", {})
        if answer.get("failed"):
            return {"failed": True, "msg": answer.get("msg") or "the SUT's context could not be captured"}
        capture = decode_base64(str(answer.get("archive")))
        results = Path(arguments["results"])
        found = (taken_over_check(arguments["taken_over"]),) if arguments["taken_over"] else ()
        profile, agreed = arguments["profile"], arguments["prefetchers_ok"]
        examine = read_examination(self.known(arguments), load_profile(profile))
        if self._task.check_mode:
            plan = plan_only(results, profile=profile, capture=capture, examine=examine, prefetchers_ok=agreed)
            return {"directory": None, "plan": plan.model_dump(mode="json")}
        names = {name: arguments[name] for name in ("testbed", "sut", "run_id")}
        attempt = {
            "capture": capture,
            "now": datetime.now(UTC),
            "boot_id": arguments["boot_id"],
            "changes": changes_of(arguments["changes"]),
            "examine": lambda *sut: (*found, *examine(*sut)),
        }
        directory = run_directory(results, **names)
        if arguments["resume"] and has_begun(directory):
            begun = resume(directory, **attempt)
        else:
            limits = read_limits(arguments["preflight"].get("limits") or [])
            begun = begin(results, **names, profile=profile, limits=limits, prefetchers_ok=agreed, **attempt)
        return {"changed": True, "directory": str(begun.directory), "plan": begun.plan.model_dump(mode="json")}
