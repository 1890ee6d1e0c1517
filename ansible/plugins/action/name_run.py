# SPDX-License-Identifier: Apache-2.0
"""Names the run: one identifier for all SUTs of a play, or that of the run to resume.

With ``resume`` and no ``run_id``, it is the newest unfinished run of the play's SUTs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction
from ansible_collections.calibration.harness.plugins.plugin_utils.host_names import hosts_by_names

from calibration.results.layout import new_run_id
from calibration.run.attempts import complete_suts, newest_unfinished


class ActionModule(CalibrationAction):
    """Name the run."""

    SPEC = {
        "argument_spec": {
            "run_id": {"type": "str"},
            "resume": {"type": "bool", "default": False},
            "results": {"type": "path", "required": True},
        }
    }

    def act(self, arguments):
        """Return ``run_id``, ``results``, and ``complete``, the hosts for which that run is already complete."""
        results, run_id, complete = Path(arguments["results"]), arguments["run_id"], []
        hosts = hosts_by_names(self.task_vars, self._loader)
        if arguments["resume"]:
            run_id = run_id or newest_unfinished(results, hosts)
            complete = [hosts[names] for names in complete_suts(results, run_id) if names in hosts]
        run_id = run_id or new_run_id(datetime.now(UTC))
        return {"run_id": run_id, "complete": complete, "results": str(results.absolute())}
