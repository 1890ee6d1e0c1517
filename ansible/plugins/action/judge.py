# SPDX-License-Identifier: Apache-2.0
"""Judges the night of a run against all nights, runs the gates (also the lab's own), and stores the result."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction, required
from ansible_collections.calibration.harness.plugins.plugin_utils.host_names import hosts_by_names

from calibration.base.text import message


class ActionModule(CalibrationAction):
    """Judge."""

    SPEC = {
        "argument_spec": {
            **required("path", "results", "output"),
            **required("str", "run_id"),
            "gates": {"type": "list", "elements": "path", "default": []},
        }
    }

    def act(self, arguments):
        """Return ``failures``, sentences by host, and ``judgement``, the path of all verdicts."""
        from calibration.nightly.judgement import (  # noqa: PLC0415 - slow, and only this task needs it
            JUDGEMENT,
            failures,
            judge,
            screen,
        )

        results, output = Path(arguments["results"]), Path(arguments["output"])
        gates = [Path(gate) for gate in arguments["gates"]]
        judgement, tested, changed = judge(results, arguments["run_id"], output, gates)
        self._display.display(message(screen(tested, judgement, output)))
        hosts = hosts_by_names(self.task_vars, self._loader)
        failed = failures(judgement.answers, tested, hosts, limited="ansible_limit" in self.task_vars)
        return {"changed": changed, "judgement": str(output / JUDGEMENT), "failures": failed}
