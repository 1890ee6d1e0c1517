# SPDX-License-Identifier: Apache-2.0
"""Builds the measurement kernel on the controller, or finds it built; once per architecture, however many SUTs.

Argument: ``target``, the SUT's architecture. Needs nothing of the SUT itself.
"""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import CalibrationAction

from calibration import __version__
from calibration.build import TARGETS, build


class ActionModule(CalibrationAction):
    """Return where the kernel is and how it was made."""

    SPEC = {"argument_spec": {"target": {"type": "str", "required": True, "choices": list(TARGETS)}}}

    def act(self, arguments):
        """Return ``kernel``: path, sha256, target, version, compiler, flags and source_sha256."""
        built = build(arguments["target"])
        return {
            "kernel": {
                "path": str(built.path),
                "sha256": built.sha256,
                "target": built.target,
                "version": __version__,
                "compiler": built.compiler,
                "flags": " ".join(built.flags),
                "source_sha256": built.source_sha256,
            }
        }
