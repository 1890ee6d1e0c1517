#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Runs the operator's spectre-meltdown-checker on the SUT without changing the SUT."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_meltdown_checker
short_description: Run spectre-meltdown-checker on a SUT without letting it change anything
description:
  - Writes the script into the run's private directory, verifies it, runs it with C(--batch json) and removes it.
  - By itself the script loads the kernel modules C(cpuid) and C(msr), mounts debugfs and, in old versions, writes
    registers of the processor; no option prevents this in all versions. It therefore runs without the capabilities
    needed for it, even as root. It can still read what root can.
  - Its output is returned verbatim. Its process group is ended before the module returns.
attributes:
  check_mode:
    support: none
author: The calibration harness contributors
"""

RETURN = r"""
argv:
  description: The command that ran in the private directory.
  type: list
  elements: str
sha256:
  description: SHA-256 of the script as read back on the SUT.
  type: str
user_id:
  description: Id of the user that the script ran as.
  type: int
rc:
  description: Exit code of the script; negative for the signal that ended it. None after a timeout.
  type: int
output:
  description: Output in base64, truncated if too long.
  type: str
stderr:
  description: The end of standard error.
  type: str
fault:
  description: Why the script was killed. None if it exited by itself.
  type: str
"""

import base64
import hashlib
import os
import subprocess

from ansible.module_utils import sut_files as files
from ansible.module_utils import sut_program as program
from ansible.module_utils.basic import AnsibleModule

SCRIPT = "spectre-meltdown-checker.sh"
ARGV = ["/bin/sh", SCRIPT, "--batch", "json"]

MAX_OUTPUT_BYTES = 256 * 1024
"""Ten times the longest known output; in base64 it fits the controller's limit for an answer."""

KEPT = (program.CAP_DAC_READ_SEARCH, program.CAP_SYSLOG)
"""Capabilities of the script: read files of others, and the kernel log."""


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},  # of the run's private directory
            "content": {"type": "str", "required": True, "no_log": True},  # in base64
            "timeout_s": {"type": "float", "required": True},
        },
    )
    directory = os.path.normpath(module.params["path"])
    content = base64.b64decode(module.params["content"])
    try:
        with program.scratch_directory(directory, "checker-") as inside:
            path = os.path.join(inside, SCRIPT)
            with open(path, "wb") as stream:
                stream.write(content)
            with open(path, "rb") as stream:
                found = hashlib.sha256(stream.read()).hexdigest()
            result = program.run(ARGV, inside, module.params["timeout_s"], kept=KEPT, max_bytes=MAX_OUTPUT_BYTES)
    except (files.Refused, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"the checker could not be run in {directory} on the SUT: {error}")
    module.exit_json(changed=False, argv=ARGV, sha256=found, user_id=os.geteuid(), **result)


if __name__ == "__main__":
    main()
