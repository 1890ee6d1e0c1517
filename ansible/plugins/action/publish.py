# SPDX-License-Identifier: Apache-2.0
"""Publishes the site and the verdicts of the night.

A web server serves ``current`` in ``destination``; ``keep`` is the number of versions to keep there.
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction, required

from calibration.nightly.publish import publish


class ActionModule(CalibrationAction):
    """Publish."""

    SPEC = {
        "argument_spec": {
            **required("path", "site", "night", "destination"),
            **required("int", "keep"),
        }
    }

    def act(self, arguments):
        """Return ``current``, the path to serve, and whether its version changed."""
        places = (Path(arguments[name]) for name in ("site", "night", "destination"))
        published = publish(*places, keep=arguments["keep"])
        return {"changed": published.changed, "current": str(published.current)}
