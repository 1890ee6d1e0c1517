#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Reservation of a SUT, the settings that a run changes, and their restoration."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_reservation
short_description: Reserve a SUT, change its settings for a run, and restore them
description:
  - C(held) reserves the SUT for one run of one controller, makes the run's private directory, and starts a guardian
    that restores the SUT if the run fails to. A reservation whose guardian is dead, or that is older than the last
    boot, is restored and taken over; a live one is an error.
  - C(tuned) changes settings and reads each back; if one fails, all are restored. The previous value is on the SUT's
    disk before a setting is changed.
  - C(untuned) restores what was changed since a C(tuned), before the end of the run.
  - C(released) restores everything, ends what runs from the run's directory, removes it and releases the SUT. The
    reservation of another run is not touched.
  - C(read) returns who holds the SUT.
  - C(tg_held) and C(tg_released) take and release CSIT's reservation of a traffic generator, a directory with a file in
    it for each SUT of the run.
attributes:
  check_mode:
    support: full
author: The calibration harness contributors
"""

RETURN = r"""
directory:
  description: The run's private directory. In check mode it does not exist.
  returned: when I(state=held)
  type: str
reservation:
  description: Proof for later steps that the SUT is still reserved (C(path), C(token), C(boot_id)).
  returned: when I(state=held)
  type: dict
boot_id:
  description: Identifier of the SUT's boot.
  returned: when I(state=held)
  type: str
taken_over:
  description: The stale reservation that was taken over (C(holder), C(why), C(changes)), or null.
  returned: when I(state=held)
  type: dict
changes:
  description: What was changed (C(tuned)) or restored (C(untuned), C(released)); paths that differ only in a number
    are combined.
  returned: when I(state=tuned), I(state=untuned) or I(state=released)
  type: list
  elements: dict
mark:
  description: The mark that C(untuned) needs to undo this.
  returned: when I(state=tuned)
  type: int
ended:
  description: Processes ended, all started from the run's directory.
  returned: when I(state=released)
  type: list
  elements: int
released:
  description: Whether the SUT was reserved for the run.
  returned: when I(state=released)
  type: bool
holder:
  description: Who holds the SUT, or null.
  returned: when I(state=read) or I(state=held)
  type: dict
alive:
  description: Whether that reservation is alive.
  returned: when I(state=read)
  type: bool
"""

import subprocess

from ansible.module_utils import sut_hold, sut_settings, sut_tg
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sut_files import Refused


def act(arguments, check_mode):
    """Perform the state in *arguments*; return the answer."""
    state, path, run_id, sut, base, token, lease_s = map(
        arguments.get, ("state", "path", "run_id", "sut", "base", "token", "lease_s")
    )
    machine = sut_settings.Machine()
    if state == "read":
        holder, alive = sut_hold.read_state(path, machine)
        return {"changed": False, "holder": holder, "alive": alive}
    if state == "tg_held":
        text = "%s %s" % (arguments["controller"], arguments["started_at"])
        return {"changed": sut_tg.hold(path, run_id, sut, text, check_mode)}
    if state == "tg_released":
        return {"changed": sut_tg.release(path, run_id, sut, check_mode)}
    if state == "tuned":
        settings = arguments["settings"]
        changes, mark = sut_hold.tune(path, machine, token, settings, lease_s=lease_s, check_mode=check_mode)
        return {"changed": bool(changes), "changes": changes, "mark": mark}
    if state == "untuned":
        if check_mode:
            return {"changed": True, "changes": []}
        changes = sut_hold.untune(path, machine, token, arguments["mark"], lease_s=lease_s)
        return {"changed": bool(changes), "changes": changes}
    if state == "released":
        changes, who = arguments["changes"], arguments["by"]
        return sut_hold.release(path, machine, base, run_id, sut, changes=changes, who=who, check_mode=check_mode)
    wanted = {name: arguments[name] for name in ("run_id", "sut", "controller", "started_at")}
    options = {"lease_s": lease_s, "resume": arguments["resume"], "check_mode": check_mode}
    holder, taken_over = sut_hold.hold(path, machine, base, wanted, **options)
    return {
        "changed": True,
        "directory": holder["directory"],
        "boot_id": holder["boot_id"],
        "reservation": {"path": path, "token": holder["token"], "boot_id": holder["boot_id"]},
        "holder": holder,
        "taken_over": taken_over,
    }


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["held", "tuned", "untuned", "released", "read", "tg_held", "tg_released"],
                "required": True,
            },
            "path": {"type": "path", "required": True},
            "base": {"type": "path"},  # parent of the run's private directory
            "run_id": {"type": "str"},
            "sut": {"type": "str"},
            "controller": {"type": "str", "default": ""},  # who reserves, from the action plugin
            "started_at": {"type": "str", "default": ""},  # also from the action plugin
            "token": {"type": "str", "no_log": False},  # of held
            "mark": {"type": "int"},  # of tuned
            "lease_s": {"type": "float", "default": 300.0},  # until the guardian acts, unless it is renewed
            "resume": {"type": "bool", "default": False},  # take over a live reservation of the same run
            "settings": {"type": "dict", "default": {}},  # those with consent
            "changes": {"type": "list", "elements": "dict", "default": []},  # of tuned, to be checked when released
            "by": {"type": "str", "choices": ["run", "cleanup"], "default": "run"},
        },
        required_if=[
            ("state", "held", ["base", "run_id", "sut"]),
            ("state", "tuned", ["token"]),
            ("state", "untuned", ["token", "mark"]),
            ("state", "released", ["base", "run_id", "sut"]),
            ("state", "tg_held", ["run_id", "sut"]),
            ("state", "tg_released", ["run_id", "sut"]),
        ],
        supports_check_mode=True,
    )
    try:
        answer = act(module.params, module.check_mode)
    except Refused as error:
        module.fail_json(msg=str(error))
    except (OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg="the reservation %s on the SUT: %s" % (module.params["path"], error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
