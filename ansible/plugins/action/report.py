# SPDX-License-Identifier: Apache-2.0
"""Renders the pages of the run ``run_id``, by default of all runs, and builds the ``site``, if that is wanted."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction, required

from calibration.base.errors import VERDICT_FAILED, CalibrationError
from calibration.judge.standing import Standings, by_night
from calibration.report.rendering import inputs_of, render_run
from calibration.report.site import build_site


class ActionModule(CalibrationAction):
    """Build the site."""

    SPEC = {
        "argument_spec": {
            **required("path", "results"),
            "run_id": {"type": "str"},
            "site": {"type": "path"},
        }
    }

    def act(self, arguments):
        """Return ``pages``, those rendered, and ``site``, the site's first page or null.

        Unreadable documents are skipped, and fail the task after the site is built.
        """
        results, run_id = Path(arguments["results"]), arguments["run_id"]
        pages, faults, standings = [], [], Standings()
        inputs = inputs_of(results) if results.is_dir() else {}
        for run in by_night(inputs):
            if run_id in (None, run.name):
                try:
                    pages.append(str(render_run(run, standings, inputs[run])))
                except CalibrationError as error:
                    faults.append(str(error))
        site = str(build_site(results, output=Path(arguments["site"]))) if arguments["site"] else None
        failed = {"failed": True, "msg": "\n".join(faults), "exit_code": VERDICT_FAILED} if faults else {}
        return {"changed": True, "pages": pages, "site": site, **failed}
