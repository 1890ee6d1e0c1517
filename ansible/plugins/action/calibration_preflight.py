# SPDX-License-Identifier: Apache-2.0
"""Reads what the controller must have for a run: a profile that can be used, and a place for the results.

Arguments: ``profile`` (name or path), ``results`` (directory). Nothing is judged here: the role's asserts do that.
"""

from __future__ import annotations

import os
import shutil
import sys

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration.errors import CalibrationError
from calibration.profiles import load_profile


def profile_error(name):
    """Return why the profile cannot be used, or None."""
    try:
        load_profile(name)
    except CalibrationError as error:
        return str(error)
    return None


def results_state(path):
    """Return whether results can be written under *path*, which need not exist yet, and the bytes free there."""
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    directory = os.path.isdir(existing)
    return {
        "path": os.path.abspath(path),
        "existing": existing,
        "directory": directory,
        "writable": directory and os.access(existing, os.W_OK | os.X_OK),
        "free_bytes": shutil.disk_usage(existing).free if directory else 0,
    }


class ActionModule(CalibrationAction):
    """Return the state of the controller."""

    SPEC = {
        "argument_spec": {"profile": {"type": "str", "required": True}, "results": {"type": "path", "required": True}}
    }

    def act(self, arguments):
        """Return ``profile`` {name, error} and ``results`` {path, directory, writable, free_bytes, ...}."""
        return {
            "profile": {"name": arguments["profile"], "error": profile_error(arguments["profile"])},
            "results": results_state(arguments["results"]),
        }
