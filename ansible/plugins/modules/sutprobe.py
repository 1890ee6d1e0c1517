#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""sutprobe in its run's private directory on the SUT: installed, or removed with its processes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sutprobe
short_description: Install sutprobe on a SUT, or remove it and everything that runs from it
description:
  - C(present) creates a private directory (mode 0700) and writes sutprobe into it. An existing directory is used only
    if it belongs to the same user and is private.
  - C(ended) ends every process started from the directory, and removes nothing.
  - C(absent) does the same, then removes the directory.
  - The action plugin of the same name uses this module for C(present) only if the connection cannot carry the binary
    on standard input; the binary is then part of the arguments, so that no temporary file is made on the SUT.
attributes:
  check_mode:
    support: full
author: The calibration harness contributors
"""

RETURN = r"""
path:
  description: Path of the program on the SUT.
  type: str
sha256:
  description: SHA-256 of the program as read back after writing. Not in check mode.
  returned: when I(state=present)
  type: str
build:
  description: How sutprobe was built (C(sha256), C(target), C(version), C(compiler), C(flags), C(source_sha256)).
  returned: by the action plugin, when I(state=present)
  type: dict
ended:
  description: Processes ended, all started from the directory.
  returned: when I(state=absent) or I(state=ended)
  type: list
  elements: int
"""

import base64
import contextlib
import hashlib
import os

from ansible.module_utils import sut_files as files
from ansible.module_utils.basic import AnsibleModule

PROBE = "sutprobe"
PROGRAMS = [PROBE, "mlc"]
PRIVATE = 0o700


def private(directory):
    """Return *directory* if it is this user's private one. Raises Refused otherwise."""
    return files.PrivateDirectory(directory, os.geteuid())


def sha256_of(name, directory):
    """Return the SHA-256 of the file *name* in *directory* in hexadecimal, or None if it is missing."""
    if not directory.exists:
        return None
    try:
        with os.fdopen(files.open_file(name, dir_fd=directory.descriptor), "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return None


def install(path, content, check_mode, name=PROBE):
    """Write *content* as the program *name* to the directory *path*; return (changed, its hash)."""
    wanted = hashlib.sha256(content).hexdigest()
    with private(path) as directory:
        found = sha256_of(name, directory)
        if found == wanted or check_mode:
            return found != wanted, found
        if not directory.exists:
            os.mkdir(path, PRIVATE)
    with private(path) as directory:
        inside = directory.descriptor
        partial = name + ".partial"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=inside)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE, dir_fd=inside)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, PRIVATE)
            stream.write(content)
        os.rename(partial, name, src_dir_fd=inside, dst_dir_fd=inside)
        return True, sha256_of(name, directory)


def end(path, check_mode):
    """End the processes started from the directory *path*; return their ids."""
    with private(path) as directory:
        return directory.processes() if check_mode else directory.end_processes()


def remove(path, check_mode):
    """End the processes started from the directory *path* and remove it; return (changed, their ids)."""
    with private(path) as directory:
        processes = directory.processes() if check_mode else directory.end_processes()
        if not check_mode:
            directory.remove()
        return directory.exists or bool(processes), processes


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},  # of the run's private directory
            "content": {"type": "str", "no_log": True},  # in base64
            "name": {"type": "str", "choices": PROGRAMS, "default": PROBE},
            "state": {"type": "str", "choices": ["present", "ended", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["content"])],
        supports_check_mode=True,
    )
    directory = os.path.normpath(module.params["path"])
    name = module.params["name"]
    path = os.path.join(directory, name)
    try:
        if module.params["state"] == "absent":
            changed, ended = remove(directory, module.check_mode)
            module.exit_json(changed=changed, path=path, ended=ended)
        if module.params["state"] == "ended":
            ended = end(directory, module.check_mode)
            module.exit_json(changed=bool(ended), path=path, ended=ended)
        changed, found = install(directory, base64.b64decode(module.params["content"]), module.check_mode, name)
        module.exit_json(changed=changed, path=path, sha256=None if module.check_mode else found)
    except (files.Refused, OSError) as error:
        module.fail_json(msg=f"the run's directory on the SUT: {error}")


if __name__ == "__main__":
    main()
