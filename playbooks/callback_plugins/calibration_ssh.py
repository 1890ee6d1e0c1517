# SPDX-License-Identifier: Apache-2.0
"""Choose a directory for the sockets of shared ssh connections, other than the user's home directory.

The default is Ansible's home, which ansible.cfg sets inside the checkout. If that is read-only, or the socket's path
would exceed 107 bytes, a private temporary directory is used and removed when the command ends.
"""

from __future__ import annotations

DOCUMENTATION = """
name: calibration_ssh
type: aggregate
short_description: A place for the sockets of shared ssh connections
description:
  - Puts ssh's control sockets into Ansible's home. Where that cannot be written or has too long a path, makes another
    directory for the time of the command.
author: The calibration harness contributors
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile

from ansible.utils.path import makedirs_safe, unfrackpath

from ansible import constants as C
from ansible.plugins.callback import CallbackBase

VARIABLE = "ANSIBLE_SSH_CONTROL_PATH_DIR"

SOCKET_BYTES = 107
"""Longest path of a socket, from linux/un.h, without the terminator."""

NAME_BYTES = 1 + 10 + 1 + 16
"""Length added to the directory: Ansible's name for a connection, and ssh's suffix while it creates the socket."""

NO_STREAMS = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)

ANSWER_S = 5
"""Timeout for a shared connection to confirm its end."""


def fit(directory):
    """Return whether sockets can be created in *directory*, which is created if possible."""
    if len(os.fsencode(directory)) + NAME_BYTES > SOCKET_BYTES:
        return False
    try:
        makedirs_safe(directory, 0o700)
    except Exception:  # noqa: BLE001 - on any error another directory is used
        return False
    return os.access(directory, os.W_OK | os.X_OK)


class CallbackModule(CallbackBase):
    """Loaded in addition to the stdout callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "calibration_ssh"

    def v2_playbook_on_start(self, playbook):
        """Choose the directory before the first connection."""
        for directory in (os.environ.get(VARIABLE), os.path.join(C.config.get_config_value("ANSIBLE_HOME"), "cp")):
            if directory and fit(unfrackpath(directory)):
                os.environ[VARIABLE] = directory
                return
        base = tempfile.gettempdir()
        directory = tempfile.mkdtemp(prefix="calibration-", dir=base if len(base) <= len("/var/tmp") else "/tmp")  # noqa: S108 - the name is unpredictable
        os.environ[VARIABLE] = directory
        atexit.register(self.remove, directory, os.getpid())

    def remove(self, directory, process):
        """Close shared connections, and remove the directory."""
        if os.getpid() != process:
            return
        for name in os.listdir(directory):
            command = ["ssh", "-F", "none", "-o", f"ControlPath={os.path.join(directory, name)}", "-O", "exit", "none"]
            with contextlib.suppress(subprocess.TimeoutExpired):  # it ends by itself when idle
                subprocess.run(command, **NO_STREAMS, check=False, timeout=ANSWER_S)
        shutil.rmtree(directory, ignore_errors=True)
