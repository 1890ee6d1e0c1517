#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Runs one command of the operator's Intel MLC on the SUT, and checks that the prefetchers are unchanged."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_mlc
short_description: Run one command of the operator's Intel MLC on a SUT
description:
  - Verifies the program in the run's private directory, runs it there and returns its output verbatim. Its process
    group is ended before the module returns.
  - By default the program switches prefetchers through model-specific registers. It runs without the capability for
    that unless C(prefetchers_ok), and always without those to load kernel modules or to mount.
  - The registers are read before and after. If they may change, their values are first recorded in the reservation of
    the SUT, so that its guardian restores them in any case; those that differ afterwards are restored at once.
attributes:
  check_mode:
    support: none
author: The calibration harness contributors
"""

RETURN = r"""
user_id:
  description: Id of the user that the program ran as.
  type: int
rc:
  description: Exit code of the program; negative for the signal that ended it. None after a timeout.
  type: int
output:
  description: Standard output and error, interleaved, in base64, truncated if too long.
  type: str
fault:
  description: Why the program was killed. None if it exited by itself.
  type: str
prefetchers:
  description: >-
    C(places), each with its path C(where) and its values C(before), C(after) and C(restored); and C(unread), the
    unreadable ones with reasons.
  type: dict
"""

import functools
import hashlib
import os
import subprocess

from ansible.module_utils import sut_files as files
from ansible.module_utils import sut_hold
from ansible.module_utils import sut_program as program
from ansible.module_utils import sut_settings as settings
from ansible.module_utils.basic import AnsibleModule

MAX_OUTPUT_BYTES = 128 * 1024
"""The longest output, latencies of 1024 CPUs to 8 nodes, has 80 KB."""

KEPT = (program.CAP_DAC_READ_SEARCH, program.CAP_IPC_LOCK, program.CAP_SYS_NICE)
"""Capabilities of the program: read files of others, lock memory, and set its scheduling."""

DRIVER = "/sys/module/msr"
"""Exists if the kernel provides access to model-specific registers."""


def check_bytes(path, wanted):
    """Raise Refused unless the program at *path* has the hash *wanted*."""
    with os.fdopen(files.open_file(path), "rb") as stream:
        found = hashlib.sha256(stream.read()).hexdigest()
    if found != wanted:
        raise files.Refused(f"the program has sha256 {found}, not {wanted}")


def driver_state(machine):
    """Return whether the driver is loaded, as text."""
    return "loaded" if machine.exists(DRIVER) else "not loaded"


def current_value(machine, entry):
    """Return the current value at *entry*'s path, or None."""
    try:
        return settings.read_value(machine, entry.where)
    except OSError:
        return None


def watch_prefetchers(machine, arguments, start):
    """Call *start*; return its result with the state of the prefetchers before and after."""
    entries, unread = settings.read_prefetchers(machine)
    if arguments["prefetchers_ok"] and entries:
        sut_hold.record(arguments["reservation"], machine, arguments["token"], entries)
    places = [{"where": DRIVER, "before": driver_state(machine)}]
    result = start()
    places[0].update(after=driver_state(machine), restored=None)
    for entry in entries:
        place = {"where": entry.where, "before": entry.before, "after": current_value(machine, entry), "restored": None}
        if arguments["prefetchers_ok"] and place["after"] != entry.before:
            place["restored"] = settings.restore(machine, entry)[1]
        places.append(place)
    return dict(result, prefetchers={"places": settings.group_changes(places), "unread": unread})


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},  # of the run's private directory
            "sha256": {"type": "str", "required": True},
            "argv": {"type": "list", "elements": "str", "required": True},  # the first is the program's name there
            "timeout_s": {"type": "float", "required": True},
            "prefetchers_ok": {"type": "bool", "required": True},
            "reservation": {"type": "path", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
        },
    )
    arguments = module.params
    directory = os.path.normpath(arguments["path"])
    path = os.path.join(directory, arguments["argv"][0])
    kept = KEPT + ((program.CAP_SYS_RAWIO,) if arguments["prefetchers_ok"] else ())
    try:
        with program.scratch_directory(directory, "mlc-") as inside:
            check_bytes(path, arguments["sha256"])
            options = {"program": path, "kept": kept, "max_bytes": MAX_OUTPUT_BYTES, "stderr": subprocess.STDOUT}
            run = functools.partial(program.run, arguments["argv"], inside, arguments["timeout_s"], **options)
            result = watch_prefetchers(settings.Machine(), arguments, run)
    except (files.Refused, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"Intel MLC could not be run in {directory} on the SUT: {error}")
    result.pop("stderr")
    module.exit_json(changed=False, user_id=os.geteuid(), **result)


if __name__ == "__main__":
    main()
