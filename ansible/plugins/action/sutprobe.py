# SPDX-License-Identifier: Apache-2.0
"""Copies sutprobe into the run's directory on the SUT and verifies it, or ends what runs there.

``prebuilt`` is a directory with binaries built elsewhere; without it sutprobe is built. The verified binary is recorded
in ``run``. If a connection cannot carry the binary on standard input, the module of the same name is used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_programs import ProgramAction

from calibration.build import TARGETS, build, prebuilt
from calibration.errors import EnvironmentLacksError, InputError
from calibration.results.attempts import record_kernels
from calibration.results.model import Kernels

PROBE = "sutprobe"
PREFIX = "calibration-"


class ActionModule(ProgramAction):
    """Install sutprobe, end what runs from its directory, or remove both."""

    SPEC = {
        "argument_spec": {
            "path": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "ended", "absent"], "default": "present"},
            "target": {"type": "str", "choices": list(TARGETS)},
            "prebuilt": {"type": "path"},
            "run": {"type": "path"},
        },
        "required_if": [("state", "present", ["target"])],
    }

    def act(self, arguments):
        """Return the path of sutprobe on the SUT, and for ``present`` also ``build``: how it was built."""
        directory = os.path.normpath(arguments["path"])
        if not os.path.isabs(directory) or not os.path.basename(directory).startswith(PREFIX):
            raise InputError(f"not the path of a run's directory: {directory}")
        if arguments["state"] != "present":
            return self.ask("sutprobe", {"path": directory, "state": arguments["state"]})
        elsewhere = arguments["prebuilt"]
        built = prebuilt(Path(elsewhere), arguments["target"]) if elsewhere else build(arguments["target"])
        changed, found = self.install(directory, PROBE, built.path.read_bytes, built.sha256)
        if found != built.sha256 and not self._task.check_mode:
            raise EnvironmentLacksError(
                f"sutprobe on the SUT has sha256 {found or 'none'}, not {built.sha256}: find out what changes files on "
                "the SUT"
            )
        kernel = Kernels(
            sha256=built.sha256,
            target=built.target,
            version=built.version,
            compiler=built.compiler,
            flags=" ".join(built.flags),
            source_sha256=built.source_sha256,
        )
        if arguments["run"] is not None and not self._task.check_mode:
            record_kernels(Path(arguments["run"]), kernel)
        return {"changed": changed, "path": os.path.join(directory, PROBE), "build": kernel.model_dump()}
