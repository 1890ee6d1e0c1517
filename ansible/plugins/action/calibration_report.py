# SPDX-License-Identifier: Apache-2.0
"""Builds the site of all runs; with ``pages``, renders their pages first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction, required

from calibration.errors import VERDICT_FAILED, InputError
from calibration.report import build_site, render_run
from calibration.results.layout import find_runs


class ActionModule(CalibrationAction):
    """Build the site."""

    SPEC = {
        "argument_spec": {
            **required("path", "results", "site"),
            "pages": {"type": "bool", "default": False},
        }
    }

    def act(self, arguments):
        """Return ``site``, the site's first page, and ``pages``, those rendered.

        Unreadable documents are skipped, and fail the task after the site is built.
        """
        results = Path(arguments["results"])
        pages, faults = [], []
        for run in find_runs(results) if arguments["pages"] else []:
            try:
                pages.append(str(render_run(run)))
            except InputError as error:
                faults.append(str(error))
        site = str(build_site(results, output=Path(arguments["site"])))
        failed = {"failed": True, "msg": "\n".join(faults), "exit_code": VERDICT_FAILED} if faults else {}
        return {"changed": True, "pages": pages, "site": site, **failed}
