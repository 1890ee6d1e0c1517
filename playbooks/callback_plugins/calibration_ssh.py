# SPDX-License-Identifier: Apache-2.0
"""A place for the sockets of shared ssh connections that is not the user's home directory.

It is Ansible's home, which ansible.cfg keeps inside the checkout. That may be read-only, and the path of a socket may
have no more than 107 bytes: a private directory takes its place then, and goes when the command ends.
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
"""Longest path of a socket, from linux/un.h, without its end."""

NAME_BYTES = 1 + 10 + 1 + 16
"""What is added to the directory: Ansible's name for a connection, and what ssh adds while it makes the socket."""

NO_STREAMS = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)

ANSWER_S = 5
"""How long a shared connection may take to answer that it ends: a command that is over waits for none that is stuck."""


def fit(directory):
    """Return whether sockets can be made in *directory*, which is created if it can be."""
    if len(os.fsencode(directory)) + NAME_BYTES > SOCKET_BYTES:
        return False
    try:
        makedirs_safe(directory, 0o700)
    except Exception:  # noqa: BLE001 - whatever keeps it from being made, another directory is used
        return False
    return os.access(directory, os.W_OK | os.X_OK)


class CallbackModule(CallbackBase):
    """Loaded beside whichever callback shows the calibration."""

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
        """End the connections that are still shared, and remove the directory."""
        if os.getpid() != process:
            return
        for name in os.listdir(directory):
            command = ["ssh", "-F", "none", "-o", f"ControlPath={os.path.join(directory, name)}", "-O", "exit", "none"]
            with contextlib.suppress(subprocess.TimeoutExpired):  # it ends by itself, when nobody has used it for long
                subprocess.run(command, **NO_STREAMS, check=False, timeout=ANSWER_S)
        shutil.rmtree(directory, ignore_errors=True)
