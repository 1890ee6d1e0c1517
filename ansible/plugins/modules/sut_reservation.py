#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Who may use a SUT, what a run changes on it, and that all of it is put back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_reservation
short_description: Reserves a SUT, changes its settings for a run, and puts everything back
description:
  - C(held) reserves the SUT for one run of one controller, makes the run's private directory, and starts a guardian
    that puts the SUT right when the run does not come to do it. A reservation whose guardian is gone, or that is older
    than the last boot, is put right and taken over; one that is alive is refused.
  - C(tuned) changes settings, each read back; one that does not take is refused with everything put back. What a
    setting was is on the SUT's disk before it is changed.
  - C(untuned) puts back what was changed since a C(tuned), before the end of the run.
  - C(released) puts everything back, ends what runs from the run's directory, removes it and gives the SUT free. One
    of another run is left alone.
  - C(read) tells who holds the SUT.
  - C(tg_held) and C(tg_released) take and leave CSIT's reservation of a traffic generator, a directory with a file in
    it for each SUT of the run.
options:
  state:
    description: What shall be.
    type: str
    choices: [held, tuned, untuned, released, read, tg_held, tg_released]
    required: true
  path:
    description: The reservation. The same for all users and controllers that may reach for the SUT.
    type: path
    required: true
  base:
    description: Directory in which the run's private directory is made; for C(held) and C(released).
    type: path
  run_id:
    description: Identifier of the run.
    type: str
  sut:
    description: Name of the SUT in the inventory.
    type: str
  controller:
    description: Who reserves, for people. Set by the action plugin.
    type: str
    default: ""
  started_at:
    description: When the reservation was asked for, for people. Set by the action plugin.
    type: str
    default: ""
  token:
    description: What C(held) gave back; for C(tuned) and C(untuned).
    type: str
  mark:
    description: What the C(tuned) gave back that is to be undone; for C(untuned).
    type: int
  lease_s:
    description: Seconds after which the guardian acts, unless the run is heard of before.
    type: float
    default: 300.0
  resume:
    description: Whether a reservation of the same run is taken over although its guardian lives.
    type: bool
    default: false
  settings:
    description: For C(tuned), what is wanted by setting. The action plugin has checked the consent to each.
    type: dict
    default: {}
  changes:
    description: For C(released), what C(tuned) gave back, to be looked at where the guardian has put it back.
    type: list
    elements: dict
    default: []
  by:
    description: Who puts back, C(run) or C(cleanup).
    type: str
    choices: [run, cleanup]
    default: run
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The calibration harness contributors
"""

EXAMPLES = r"""
- name: Reserve the SUT
  sut_reservation:
    state: held
    path: /var/tmp/calibration-reservation
    base: /var/tmp
    run_id: 20261121T032712Z-3f2a
    sut: t1-sut1

- name: Give it free
  sut_reservation:
    state: released
    path: /var/tmp/calibration-reservation
    base: /var/tmp
    run_id: 20261121T032712Z-3f2a
    sut: t1-sut1
"""

RETURN = r"""
directory:
  description: The run's private directory. In check mode the path of one that does not exist.
  returned: when I(state=held)
  type: str
reservation:
  description: What a step needs to see that the SUT is still reserved (C(path), C(token), C(boot_id)).
  returned: when I(state=held)
  type: dict
boot_id:
  description: Identifier of the SUT's boot.
  returned: when I(state=held)
  type: str
taken_over:
  description: The stale reservation that was put right (C(holder), C(why), C(changes)), or null.
  returned: when I(state=held)
  type: dict
changes:
  description: What was changed (C(tuned)) or put back (C(untuned), C(released)), places that differ in a number only
    together.
  returned: when I(state=tuned), I(state=untuned) or I(state=released)
  type: list
  elements: dict
mark:
  description: What C(untuned) undoes this by.
  returned: when I(state=tuned)
  type: int
ended:
  description: Processes that were ended because they had been started from the run's directory.
  returned: when I(state=released)
  type: list
  elements: int
released:
  description: Whether the SUT had been reserved for the run until now.
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

import inspect
import subprocess

from ansible.module_utils import sut_files as files
from ansible.module_utils import sut_guardian as guardian
from ansible.module_utils.basic import AnsibleModule


def act(arguments, check_mode):
    """Do what the module's *arguments* say; return its answer."""
    state, path, run_id, sut = (arguments[name] for name in ("state", "path", "run_id", "sut"))
    machine = guardian.Machine()
    if state == "read":
        holder, alive = guardian.look(path, machine)
        return {"changed": False, "holder": holder, "alive": alive}
    if state == "tg_held":
        text = "%s %s" % (arguments["controller"], arguments["started_at"])
        return {"changed": guardian.tg_hold(path, run_id, sut, text, check_mode)}
    if state == "tg_released":
        return {"changed": guardian.tg_release(path, run_id, sut, check_mode)}
    if state == "tuned":
        changes, mark = guardian.tune(
            path,
            machine,
            arguments["token"],
            arguments["settings"],
            lease_s=arguments["lease_s"],
            check_mode=check_mode,
        )
        return {"changed": bool(changes), "changes": changes, "mark": mark}
    if state == "untuned":
        if check_mode:
            return {"changed": True, "changes": []}
        changes = guardian.untune(path, machine, arguments["token"], arguments["mark"], lease_s=arguments["lease_s"])
        return {"changed": bool(changes), "changes": changes}
    if state == "released":
        return guardian.release(
            path,
            machine,
            arguments["base"],
            run_id,
            sut,
            changes=arguments["changes"],
            who=arguments["by"],
            check_mode=check_mode,
        )
    wanted = {name: arguments[name] for name in ("run_id", "sut", "controller", "started_at")}
    holder, taken_over = guardian.hold(
        path,
        machine,
        arguments["base"],
        wanted,
        lease_s=arguments["lease_s"],
        sources={guardian.GUARDIAN: inspect.getsource(guardian), "sut_files.py": inspect.getsource(files)},
        resume=arguments["resume"],
        check_mode=check_mode,
    )
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
            "base": {"type": "path"},
            "run_id": {"type": "str"},
            "sut": {"type": "str"},
            "controller": {"type": "str", "default": ""},
            "started_at": {"type": "str", "default": ""},
            "token": {"type": "str", "no_log": False},
            "mark": {"type": "int"},
            "lease_s": {"type": "float", "default": 300.0},
            "resume": {"type": "bool", "default": False},
            "settings": {"type": "dict", "default": {}},
            "changes": {"type": "list", "elements": "dict", "default": []},
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
    except guardian.Refused as error:
        module.fail_json(msg=str(error))
    except (OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg="the reservation %s on the SUT: %s" % (module.params["path"], error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
