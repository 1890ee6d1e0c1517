# SPDX-License-Identifier: Apache-2.0
"""Puts the measurement kernel into the run's directory on the SUT and proves its bytes, or ends what runs there.

Arguments: ``path`` (of the directory), ``state``. For ``present`` also ``target`` (its architecture), ``prebuilt`` (a
directory with kernels that were built elsewhere; without it the kernel is built), ``run`` (the run's directory on the
controller, where the verified bytes are recorded; none in check mode).

Where a connection cannot carry the bytes on standard input, the module of the same name does it.
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

KERNEL = "sutprobe"
PREFIX = "calibration-"


class ActionModule(ProgramAction):
    """Make the kernel be there, or end what runs from its directory, or remove both."""

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
        """Return the path of the kernel on the SUT, and for ``present`` also ``kernel``: how it was made."""
        directory = os.path.normpath(arguments["path"])
        if not os.path.isabs(directory) or not os.path.basename(directory).startswith(PREFIX):
            message = f"expected an absolute path of a directory whose name begins with {PREFIX}, found {directory}"
            raise InputError(message)
        if arguments["state"] != "present":
            return self.ask("sut_kernel", {"path": directory, "state": arguments["state"]})
        elsewhere = arguments["prebuilt"]
        built = prebuilt(Path(elsewhere), arguments["target"]) if elsewhere else build(arguments["target"])
        changed, found = self.install(directory, KERNEL, built.path.read_bytes, built.sha256)
        if found != built.sha256 and not self._task.check_mode:
            message = (
                f"Expected the kernel with sha256 {built.sha256} on the SUT, found {found or 'none'}. Nothing is "
                "measured with other bytes than those that were built: find out what changes files on the SUT."
            )
            raise EnvironmentLacksError(message)
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
        return {"changed": changed, "path": os.path.join(directory, KERNEL), "kernel": kernel.model_dump()}
