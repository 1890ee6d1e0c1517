#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""The measurement kernel in its run's private directory on the SUT: present, or gone with its processes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_kernel
short_description: Puts the measurement kernel on a SUT, or removes it with everything that runs from it
description:
  - C(present) makes a private directory (mode 0700) and writes the kernel into it. A directory that exists is used
    only when it belongs to the same user and is private.
  - C(ended) ends every process that was started from the directory, and removes nothing.
  - C(absent) does the same, then removes the directory.
  - For C(present) the action plugin of the same name sends the bytes without this module where the connection can carry
    them; where it cannot, they travel inside the module's arguments, so that no temporary file is made on the SUT.
options:
  path:
    description: The run's private directory. Its name must begin with C(calibration-).
    type: path
    required: true
  content:
    description: The kernel's bytes in base64. Set by the action plugin, for C(present).
    type: str
  name:
    description: What the program is called. Another program than the kernel is an operator's own.
    type: str
    choices: [sutprobe, mlc]
    default: sutprobe
  target:
    description: The SUT's architecture, for C(present). Read by the action plugin, which builds the kernel.
    type: str
  run:
    description: The run's directory on the controller, where the action plugin records the verified bytes.
    type: path
  state:
    description: Whether the kernel shall be there, shall be there and not run, or shall be gone.
    type: str
    choices: [present, ended, absent]
    default: present
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The calibration harness contributors
"""

EXAMPLES = r"""
- name: Put the kernel on the SUT
  sut_kernel:
    path: /var/tmp/calibration-20261121T032712Z-3f2a-Xq81mzs0
    target: x86_64

- name: End what runs from the directory
  sut_kernel:
    path: /var/tmp/calibration-20261121T032712Z-3f2a-Xq81mzs0
    state: ended

- name: Remove it, and what still runs from it
  sut_kernel:
    path: /var/tmp/calibration-20261121T032712Z-3f2a-Xq81mzs0
    state: absent
"""

RETURN = r"""
path:
  description: The kernel's path on the SUT.
  returned: always
  type: str
sha256:
  description: SHA-256 of the kernel as it was read back after it had been written. Not in check mode.
  returned: when I(state=present)
  type: str
kernel:
  description: How the kernel was made (C(sha256), C(target), C(version), C(compiler), C(flags), C(source_sha256)).
  returned: by the action plugin, when I(state=present)
  type: dict
ended:
  description: Processes that were ended because they had been started from the directory.
  returned: when I(state=absent) or I(state=ended)
  type: list
  elements: int
"""

import base64
import errno
import hashlib
import os
import shutil
import signal
import stat
import time

from ansible.module_utils.basic import AnsibleModule

KERNEL = "sutprobe"
PROGRAMS = [KERNEL, "mlc"]
PREFIX = "calibration-"
PRIVATE = 0o700

END_WAIT_S = 4
"""How long a process may take to end itself before it is killed: a kernel gives its work 3 s to hand over results."""


class Refused(Exception):
    """What was found is not what may be used or removed."""


def check_directory(directory):
    """Return whether *directory* exists. Raises Refused where it is not a private directory of this user."""
    try:
        found = os.lstat(directory)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    if not stat.S_ISDIR(found.st_mode):
        raise Refused("expected a directory at %s, found another kind of file" % directory)
    if found.st_uid != os.geteuid():
        raise Refused(
            "expected %s to belong to user id %d, found user id %d; remove it as that user"
            % (directory, os.geteuid(), found.st_uid)
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode != PRIVATE:
        raise Refused("expected mode 0700 on %s, found %s" % (directory, oct(mode)))
    return True


def sha256_of(path):
    """Return the SHA-256 of the file at *path* in hexadecimal, or None where there is none."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def install(directory, content, check_mode, name=KERNEL):
    """Write *content* as the program *name* into *directory*; return whether anything changed."""
    path = os.path.join(directory, name)
    exists = check_directory(directory)
    if exists and sha256_of(path) == hashlib.sha256(content).hexdigest():
        return False
    if check_mode:
        return True
    if not exists:
        os.mkdir(directory, PRIVATE)
    partial = path + ".partial"
    if os.path.lexists(partial):
        os.unlink(partial)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    os.chmod(partial, PRIVATE)
    os.rename(partial, path)
    return True


def started_from(directory, proc="/proc"):
    """Return the ids of the processes whose program lies, or lay, in *directory*."""
    inside = os.path.realpath(directory) + os.sep
    found = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            program = os.readlink(os.path.join(proc, name, "exe"))
        except OSError:
            continue  # another user's process, a kernel thread, or one that has ended
        if program.startswith(inside):
            found.append(int(name))
    return sorted(found)


def signal_all(processes, number):
    """Send signal *number* to each of *processes* that still exists."""
    for process in processes:
        try:
            os.kill(process, number)
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise


def end_processes(directory):
    """End what was started from *directory*; return the ids of the processes ended. Raises Refused where one stays."""
    processes = started_from(directory)
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_all(started_from(directory), number)
        until = time.time() + END_WAIT_S
        while started_from(directory) and time.time() < until:
            time.sleep(0.05)
    left = started_from(directory)
    if left:
        raise Refused("expected every process started from %s to end, found %s still there" % (directory, left))
    return processes


def remove(directory, check_mode):
    """End what was started from *directory* and remove it; return whether anything changed, and what was ended."""
    processes = started_from(directory) if check_mode else end_processes(directory)
    exists = check_directory(directory)
    if exists and not check_mode:
        shutil.rmtree(directory)
    return exists or bool(processes), processes


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "no_log": True},
            "name": {"type": "str", "choices": PROGRAMS, "default": KERNEL},
            "state": {"type": "str", "choices": ["present", "ended", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["content"])],
        supports_check_mode=True,
    )
    directory = os.path.normpath(module.params["path"])
    path = os.path.join(directory, module.params["name"])
    if not os.path.basename(directory).startswith(PREFIX):
        module.fail_json(msg="expected a directory whose name begins with %s, found %s" % (PREFIX, directory))
    try:
        if module.params["state"] == "absent":
            changed, ended = remove(directory, module.check_mode)
            module.exit_json(changed=changed, path=path, ended=ended)
        if module.params["state"] == "ended":
            ended = started_from(directory) if module.check_mode else end_processes(directory)
            module.exit_json(changed=bool(ended), path=path, ended=ended)
        content = base64.b64decode(module.params["content"])
        changed = install(directory, content, module.check_mode, module.params["name"])
        module.exit_json(changed=changed, path=path, sha256=None if module.check_mode else sha256_of(path))
    except (Refused, OSError) as error:
        module.fail_json(msg="the run's directory on the SUT: %s" % error)


if __name__ == "__main__":
    main()
