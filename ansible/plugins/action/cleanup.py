# SPDX-License-Identifier: Apache-2.0
"""Ends a run on a SUT, collects what it measured, restores the SUT, and writes the run document."""

from __future__ import annotations

import shutil

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import SutAction, required

from calibration.base.errors import CalibrationError
from calibration.finish import finished
from calibration.report.summary import outcome
from calibration.results.layout import RECORDS, RUN
from calibration.run.records import record_names
from calibration.run.session import UNCLEAN, collect_found, end


def remove_partial(directory):
    """Remove leftovers of an interrupted writer from the run's directory; all of it if the run had not begun."""
    if not (directory / RECORDS).exists() or next(record_names(directory), None) is None:
        shutil.rmtree(directory)
        for parent in (directory.parent, directory.parent.parent):
            if any(parent.iterdir()):
                return
            parent.rmdir()
        return
    for partial in directory.glob(f".{RUN}.*"):
        partial.unlink()


class ActionModule(SutAction):
    """Clean one SUT."""

    SPEC = {
        "argument_spec": {
            **required("str", "testbed", "sut", "run_id", "lock", "remote_base"),
            **required("path", "results_dir"),
        }
    }

    def act(self, arguments):
        """Return ``run``, the summary of the run document, null if there is none; ``found``, whether anything was left.

        Fails if the SUT cannot be reached or restored, after writing the document.
        """
        request = self.request_for(arguments)
        faults, found = [], False

        def say(text, outcome):
            if outcome == UNCLEAN:
                faults.append(text)

        try:
            remote = self.remote(arguments["remote_base"], arguments["lock"])
            found = collect_found(request, remote, say, cancelled=True)
        except CalibrationError as error:
            faults.append(str(error))
        result = {"run": None, "failures": []}
        try:
            if request.directory.is_dir():
                remove_partial(request.directory)
            if request.directory.is_dir():
                anew = end(request, interrupted=True) or found
                document = finished(request.results, request.directory, anew=anew)
                result = outcome(request.results, request.directory, request.host, document)
        except CalibrationError as error:
            if not faults:
                raise
            faults.append(str(error))  # what is left on the SUT counts most
        if faults:
            result |= {"failed": True, "msg": "\n".join(faults)}
        return {"changed": found, "found": found, **result}
