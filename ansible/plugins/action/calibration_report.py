# SPDX-License-Identifier: Apache-2.0
"""Renders the page of one run, or the site of all of them.

Arguments: ``run`` (a run's directory) for one page with its figures, or ``results`` (the directory of all) and ``site``
(a directory) for the site; ``pages`` renders the pages of all runs in ``results`` first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.results import store


class ActionModule(CalibrationAction):
    """Return where the page, or the site, is."""

    SPEC = {
        "argument_spec": {
            "run": {"type": "path"},
            "results": {"type": "path"},
            "site": {"type": "path"},
            "pages": {"type": "bool", "default": False},
        },
        "mutually_exclusive": [("run", "results")],
        "required_one_of": [("run", "results")],
        "required_together": [("results", "site")],
    }

    def act(self, arguments):
        """Return ``page`` and ``figures`` of the run, or ``site``, the site's first page, and ``pages`` rendered."""
        from calibration.report import build_site, render_run  # noqa: PLC0415 - costs a second, after measuring

        if arguments["run"] is not None:
            paths = render_run(Path(arguments["run"]))
            return {
                "changed": True,
                "page": str(paths.page),
                "figures": [str(figure) for figure in paths.figures],
            }
        results = Path(arguments["results"])
        pages = [str(render_run(run).page) for run in store.find_runs(results)] if arguments["pages"] else []
        return {"changed": True, "pages": pages, "site": str(build_site(results, output=Path(arguments["site"])))}
