# SPDX-License-Identifier: Apache-2.0
"""Puts the measurement kernel into the run's directory on the SUT and proves its bytes, or ends what runs there.

Arguments: ``path`` (of the directory), ``state``. For ``present`` also ``target`` (its architecture), ``prebuilt`` (a
directory with kernels that were built elsewhere; without it the kernel is built), ``run`` (the run's directory on the
controller, where the verified bytes are recorded; none in check mode).

For ``present`` the SUT is asked for the hash of what is there, and only where that is another one the bytes follow, on
the standard input of one command, which reads the file back from the disk and prints its hash. Nothing of this starts a
Python on the SUT. Where a connection cannot carry standard input, the module of the same name does it.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import sys
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction

from calibration.build import TARGETS, build, prebuilt
from calibration.errors import EnvironmentLacksError, InputError
from calibration.results import store
from calibration.results.model import Kernels

KERNEL = "sutprobe"
PREFIX = "calibration-"
PERMISSIONS, PRIVATE, SET_GROUP_ID = 0o7777, 0o700, 0o2000

LOOK = r"""
test ! -L {directory} && cd -P -- {directory} && stat -c 'directory %f %u' . && echo "user $(id -u)" &&
{{ test ! -f {kernel} || sha256sum {kernel}; }}
"""
"""Prints the directory's mode and owner, who asks, and the hash of the kernel where there is one."""

INSTALL = r"""
umask 077
cd -P -- {directory} && rm -f -- {partial} && cat > {partial} && chmod 700 {partial} && mv -f -- {partial} {kernel} &&
sha256sum {kernel} || {{ code=$?; rm -f -- {partial}; exit $code; }}
"""
"""Writes standard input to the kernel's place, and prints the hash of what is there then."""


def script(template, directory):
    """Return *template* as a command for a shell on the SUT."""
    return template.strip().format(
        directory=shlex.quote(directory), kernel=f"./{KERNEL}", partial=f"./{KERNEL}.partial"
    )


def hash_in(text):
    """Return the hash that ``sha256sum`` printed for the kernel, or None: a login may print lines of its own.

    Over ssh a command has a terminal, which ends lines with a carriage return too.
    """
    found = re.search(rf"^([0-9a-f]{{64}}) [ *]\./{KERNEL}\r?$", text, re.MULTILINE)
    return found.group(1) if found else None


def check_directory(directory, said):
    """Raise EnvironmentLacksError where the directory that was looked at is no private one of the user that asked."""
    found = re.search(r"^directory ([0-9a-f]{1,8}) ([0-9]{1,10})\r?$", said, re.MULTILINE)
    user = re.search(r"^user ([0-9]{1,10})\r?$", said, re.MULTILINE)
    if not found or not user:
        message = f"expected the mode and owner of {directory} on the SUT, found {said.strip()[:200]!r}"
        raise EnvironmentLacksError(message)
    mode, owner = int(found.group(1), 16), int(found.group(2))
    if owner != int(user.group(1)):
        message = (
            f"expected {directory} on the SUT to belong to user id {user.group(1)}, found user id {owner}; "
            "remove it as that user"
        )
        raise EnvironmentLacksError(message)
    if mode & PERMISSIONS & ~SET_GROUP_ID != PRIVATE:
        message = f"expected mode 0700 on {directory} on the SUT, found {mode & PERMISSIONS:#o}"
        raise EnvironmentLacksError(message)


class ActionModule(SutAction):
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
        try:
            changed, found = self.present(directory, built)
        except AnsibleConnectionFailure as error:
            message = f"the connection to the SUT was lost before the kernel was there: {error}"
            raise EnvironmentLacksError(message) from error
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
            store.record_kernels(Path(arguments["run"]), kernel)
        return {"changed": changed, "path": os.path.join(directory, KERNEL), "kernel": kernel.model_dump()}

    def present(self, directory, built):
        """Make the kernel be there; return whether its bytes were sent, and the hash read back."""
        if not self._is_pipelining_enabled("new"):
            return self.present_by_module(directory, built)
        looked = self._low_level_execute_command(script(LOOK, directory))
        if looked["rc"] != 0:
            if self._task.check_mode:
                return True, None
            message = f"expected the run's directory {directory} on the SUT: {self.said(looked)}"
            raise EnvironmentLacksError(message)
        check_directory(directory, looked["stdout"])
        found = hash_in(looked["stdout"])
        if found == built.sha256 or self._task.check_mode:
            return found != built.sha256, found
        installed = self._low_level_execute_command(script(INSTALL, directory), in_data=built.path.read_bytes())
        if installed["rc"] != 0:
            message = f"the kernel cannot be written to {directory} on the SUT: {self.said(installed)}"
            raise EnvironmentLacksError(message)
        return True, hash_in(installed["stdout"])

    def present_by_module(self, directory, built):
        """Do the same with the bytes inside a module's arguments."""
        content = base64.b64encode(built.path.read_bytes()).decode("ascii")
        result = self.ask("sut_kernel", {"path": directory, "content": content})
        if result.get("failed"):
            raise EnvironmentLacksError(result["msg"])
        return result["changed"], result.get("sha256")
