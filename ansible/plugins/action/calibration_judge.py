# SPDX-License-Identifier: Apache-2.0
"""Judges the night of a run by the figures of all nights, compare it with the gates, and writes down what they say.

Arguments: ``results``, ``run_id`` (of the night), ``output`` (a directory) and ``gates`` (suites of the lab's own).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction
from calibration_variables import hosts_by_names

from calibration.text import message


class ActionModule(CalibrationAction):
    """Judge."""

    SPEC = {
        "argument_spec": {
            "results": {"type": "path", "required": True},
            "run_id": {"type": "str", "required": True},
            "output": {"type": "path", "required": True},
            "gates": {"type": "list", "elements": "path", "default": []},
        }
    }

    def act(self, arguments):
        """Return ``failures``, what is wrong by host in sentences, and ``judgement``, where all verdicts stand."""
        from calibration.nightly.judgement import (  # noqa: PLC0415 - a second that no other night's task need pay
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
        failed = failures(judgement.verdicts, tested, hosts, limited="ansible_limit" in self.task_vars)
        return {"changed": changed, "judgement": str(output / JUDGEMENT), "failures": failed}
