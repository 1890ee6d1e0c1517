#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""What a SUT must have before it can be calibrated, read without changing anything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_preflight_info
short_description: Reads what a SUT must have before it can be calibrated
description:
  - Reads the system, the architecture, the Python version, the user, the state of the directory that the run's own
    directory will be made in, and other calibrations that are running.
  - Writes nothing, starts nothing.
options:
  remote_base:
    description: Directory on the SUT in which the run's private directory will be made.
    type: path
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The calibration harness contributors
"""

EXAMPLES = r"""
- name: Read what the SUT has
  sut_preflight_info:
    remote_base: /var/tmp
"""

RETURN = r"""
system:
  description: Name of the kernel, as uname says.
  returned: always
  type: str
  sample: Linux
machine:
  description: Architecture, as uname says.
  returned: always
  type: str
  sample: x86_64
python_version:
  description: Version of the Python that ran this module.
  returned: always
  type: str
  sample: 3.11.2
uid:
  description: Effective user id that the measurements will run with.
  returned: always
  type: int
remote_base:
  description: The directory's state. C(free_bytes) and C(noexec) are null where the directory is missing.
  returned: always
  type: dict
  sample: {"path": "/var/tmp", "exists": true, "directory": true, "writable": true, "noexec": false,
           "free_bytes": 1073741824}
running:
  description: Kernels of other runs below I(remote_base) that are running already, with their process ids.
  returned: always
  type: list
  elements: dict
  sample: [{"pid": 4711, "path": "/var/tmp/calibration-20261121T032712Z-3f2a-sut1/sutprobe"}]
"""

import os
import platform

from ansible.module_utils.basic import AnsibleModule

PREFIX = "calibration-"
"""How the name of a run's private directory begins."""


def directory_state(path):
    """Return whether *path* can hold a directory with a program in it that may be started."""
    exists = os.path.exists(path)
    state = {
        "path": path,
        "exists": exists,
        "directory": os.path.isdir(path),
        "writable": os.access(path, os.W_OK | os.X_OK),
        "noexec": None,
        "free_bytes": None,
    }
    if exists:
        system = os.statvfs(path)
        state["noexec"] = bool(system.f_flag & os.ST_NOEXEC)
        state["free_bytes"] = system.f_bavail * system.f_frsize
    return state


def running_kernels(base, proc="/proc"):
    """Return the processes whose program is a run's kernel below *base*, as far as this user may see them."""
    runs = os.path.join(os.path.realpath(base), PREFIX)
    found = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            path = os.readlink(os.path.join(proc, name, "exe"))
        except OSError:
            continue  # another user's process, a kernel thread, or one that has ended
        if path.startswith(runs):
            found.append({"pid": int(name), "path": path})
    return sorted(found, key=lambda each: each["pid"])


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={"remote_base": {"type": "path", "required": True}}, supports_check_mode=True)
    module.exit_json(
        changed=False,
        system=platform.system(),
        machine=platform.machine(),
        python_version=platform.python_version(),
        uid=os.geteuid(),
        remote_base=directory_state(module.params["remote_base"]),
        running=running_kernels(module.params["remote_base"]),
    )


if __name__ == "__main__":
    main()
