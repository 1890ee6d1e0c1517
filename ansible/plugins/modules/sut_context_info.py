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
    C(capture.json).
  returned: success
  type: str
archive_sha256:
  description: SHA-256 of the tar.gz archive (decoded).
  returned: success
  type: str
capture:
  description: The contents of C(capture.json).
  returned: success
  type: dict
  contains:
    schema:
      description: Format of this record.
      type: str
      sample: sut-context/1
    captured_at:
      description: Start of the capture, in UTC.
      type: str
      sample: "2026-01-31T12:00:00Z"
    hostname:
      description: The SUT's host name.
      type: str
    uname:
      description: sysname, nodename, release, version and machine.
      type: dict
    uname_a:
      description: Output of C(uname -a), or null.
      type: str
    uid:
      description: The user the module ran as.
      type: int
    affinity:
      description: The CPUs the module was allowed to run on, or null.
      type: str
      sample: 0-3,8
    cpuset_file:
      description: The copied file with the CPUs of the module's control group, or null.
      type: str
    python_version:
      description: Python version of the SUT.
      type: str
    unreadable:
      description: Files that exist and could not be copied.
      type: list
      elements: dict
      sample: [{path: /sys/firmware/dmi/tables/DMI, reason: Permission denied}]
    masked:
      description: Files in which serial numbers, UUIDs or tags were blanked.
      type: list
      elements: dict
    files:
      description: Number of files copied.
      type: int
    total_bytes:
      description: Their size, uncompressed.
      type: int
    load:
      description: >-
        The time between the load snapshots (C(interval_s) of the CPUs, C(processes_interval_s) of the processes), the
        kernel's ticks per second, the module's own process ids, and the reason if there are no snapshots, or null.
      type: dict
duration_s:
  description: Duration of the capture on the SUT.
  returned: success
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
