# SPDX-License-Identifier: Apache-2.0
"""Examines a SUT as a run would before it measures: captures it, and checks it, its reservation and its plan.

Nothing is changed or stored. A run does not need it: it examines the SUT when it has reserved it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import SutAction, dumped, required

from calibration.audit.kinds import asked_for
from calibration.base.errors import EnvironmentLacksError
from calibration.preflight.checks import refusal
from calibration.preflight.expectations import read_again
from calibration.run.lifecycle import plan_only


class ActionModule(SutAction):
    """Examine one SUT, by the results of the action preflight."""

    SPEC = {
        "argument_spec": {
            **required("str", "testbed", "sut", "run_id", "profile", "lock", "remote_base", "preflight", "testbeds"),
            **required("path", "results_dir"),
            "required": {"type": "bool", "default": True},
        }
    }

    KEPT = ("fit", "reason", "checks", "expectations", "limits", "known", "machine", "boot_id")

    def act(self, arguments):
        """Return the result of the action preflight, with all checks. Fails for an unfit SUT if it is ``required``."""
        given = self.task_vars.get(arguments["preflight"]) or {}
        kept = {name: given[name] for name in self.KEPT if name in given}
        if not kept.get("fit"):
            return kept  # refused already, or not to be measured
        request = self.request_for(arguments, asked=asked_for(read_again(kept["expectations"]).state))
        checks = None
        try:
            with self.turn(kept["boot_id"], arguments["lock"]):
                job = request.job(datetime.now(UTC))
                rehearsed = self.remote(arguments["remote_base"], arguments["lock"]).rehearse(job)
            _, checks = plan_only(
                request.results,
                profile=arguments["profile"],
                capture=rehearsed.capture,
                examine=self.examination(kept, arguments),
                prefetchers_ok=False,
            )
            reason = refusal(checks)
        except EnvironmentLacksError as error:  # lost, reserved, or nothing can be measured
            reason = str(error)
        if checks is not None:
            self.show(checks, rehearsed.left)
            kept["checks"] = dumped(checks)
        return self.unfit(reason, kept, arguments) if reason else kept
