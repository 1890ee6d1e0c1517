#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Files that describe a SUT."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_context_info
short_description: Copy the files that describe a SUT
description:
  - Copies the files of C(/proc), C(/sys) and the firmware tables that describe a machine into one archive - CPUs, NUMA
    nodes, memory, caches, frequency, idle states, interrupts, isolation, mitigations, firmware.
  - The copies are verbatim and are interpreted on the controller. Serial numbers, UUIDs and asset tags are blanked.
  - A file that vanishes meanwhile is absent. A file that cannot be read is listed with the reason. Nothing is written.
  - Threads are read only if CPUs are isolated.
  - The module sleeps for one second and records which CPUs are busy meanwhile, and with which processes.
  - Without root privileges the firmware's memory slots are listed as unreadable.
options: {}
attributes:
  check_mode:
    support: full
author: The calibration harness contributors
"""

RETURN = r"""
archive:
  description: >-
    A tar.gz archive in base64. It holds the copied files under their absolute paths without the leading slash, and
    C(capture.json), in the format C(sut-context/1).
  type: str
archive_sha256:
  description: SHA-256 of the tar.gz archive (decoded).
  type: str
capture:
  description: The contents of C(capture.json).
  type: dict
duration_s:
  description: Duration of the capture on the SUT.
  type: float
"""

import base64
import hashlib

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sut_context import capture


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    rc, out, _err = module.run_command(["uname", "-a"])
    result = capture(uname_a=out.strip() if rc == 0 else None)
    digest = hashlib.sha256(base64.b64decode(result["archive"])).hexdigest()
    module.exit_json(changed=False, archive_sha256=digest, **result)


if __name__ == "__main__":
    main()
