# SPDX-License-Identifier: Apache-2.0
"""Checks that the settings, the controller and the SUT can do a calibration: one question to the SUT, judged here.

If the SUT answered, it returns ``checks``, failed or not. ``fit`` says whether the SUT may be measured; ``known``,
``expectations``, ``limits`` and ``machine`` are used by the other roles.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

from ansible.release import __version__ as ansible_version

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction, required
from calibration_variables import check_variables

from calibration.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.judge.limits import read_limits
from calibration.preflight.agreement import Known
from calibration.preflight.checks import AGREED, refusal
from calibration.preflight.expectations import read_expectations
from calibration.preflight.facts import read_facts
from calibration.preflight.sut_checks import Requirements, RoundTrip, first_checks, version, without_python
from calibration.profiles import load_profile


def results_state(path):
    """Return whether results can be written under *path*, which need not exist, and the bytes free there."""
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    directory = os.path.isdir(existing)
    return {
        "path": os.path.abspath(path),
        "existing": existing,
        "directory": directory,
        "writable": directory and os.access(existing, os.W_OK | os.X_OK),
        "free_bytes": shutil.disk_usage(existing).free if directory else 0,
    }


def check_controller(arguments, found=ansible_version, state=results_state):
    """Raise an error if the controller lacks a version, a profile or a place for the results."""
    minimum = arguments["ansible_minimum"]
    if version(found) < version(minimum):
        raise EnvironmentLacksError(
            f"ansible-core {found} is older than {minimum}: start the calibration with the command in README.rst, "
            "which installs a newer one"
        )
    try:
        load_profile(arguments["profile"])
    except CalibrationError as error:
        raise InputError(f"invalid profile: {error}; correct it or calibration_profile") from error
    results = state(arguments["results"])
    if not results["writable"]:
        what = "is not writable" if results["directory"] else "is not a directory"
        raise EnvironmentLacksError(
            f"no results can be written to {results['path']}: {results['existing']} {what}; set "
            "calibration_results_dir to another directory"
        )
    if results["free_bytes"] < arguments["results_free_bytes"]:
        raise EnvironmentLacksError(
            f"only {results['free_bytes']} bytes are free for the results at {results['path']}, of "
            f"{arguments['results_free_bytes']} required: free some space or set calibration_results_dir to another "
            "directory"
        )


class ActionModule(SutAction):
    """Judge the controller, ask the SUT, judge the SUT."""

    SPEC = {
        "argument_spec": {
            **required("str", "profile", "testbed", "sut", "ansible_minimum", "python_minimum"),
            **required("path", "results", "remote_base", "reserve_path"),
            **required("int", "results_free_bytes", "remote_free_bytes"),
            "architectures": {"type": "list", "elements": "str", "required": True},
            "expectations": {"type": "dict", "required": True},
            "limits": {"type": "raw", "required": True},
        }
    }

    def arguments(self):
        """Return the task's arguments, after checking the variables of all roles."""
        check_variables(self.task_vars, self._templar.template)
        return super().arguments()

    def ask_sut(self, arguments):
        """Return the module's answer, and the controller's time before and after."""
        asked_s = time.time()
        answer = self.ask("sut_preflight_info", {name: arguments[name] for name in ("remote_base", "reserve_path")})
        return answer, RoundTrip(asked_s=asked_s, answered_s=time.time())

    def act(self, arguments):
        """Return ``checks`` and the other fields; ``failed``, without ``fit``, if the SUT must not be measured."""
        expectations = read_expectations(arguments["expectations"])
        limits = read_limits(arguments["limits"])
        check_controller(arguments)
        answer, trip = self.ask_sut(arguments)
        if answer.get("failed"):
            said = str(answer.get("msg") or "no reason given")
            checks = (without_python(said, arguments["python_minimum"]),)
            return {"failed": True, "msg": refusal(checks), "checks": dumped(checks)}
        facts = read_facts(answer)
        requirements = Requirements(
            python_minimum=arguments["python_minimum"],
            architectures=tuple(arguments["architectures"]),
            remote_free_bytes=arguments["remote_free_bytes"],
        )
        checks = first_checks(facts, requirements, expectations, trip)
        off = tuple(name for name in AGREED if expectations.effects.get(name) == "off")
        known = Known(
            checks=checks,
            testbed=arguments["testbed"],
            sut=arguments["sut"],
            identities={arguments["sut"]: facts.identity.model_copy(update={"off": off})},
        )
        reason = refusal(checks)
        return {
            **({"failed": True, "msg": reason} if reason else {}),
            "fit": reason is None,
            "checks": dumped(checks),
            "known": known.model_dump(mode="json"),
            "expectations": expectations.model_dump(mode="json"),
            "limits": dumped(limits),
            "machine": facts.machine,
        }


def dumped(models):
    """Return *models* as plain values for Ansible."""
    return [model.model_dump(mode="json") for model in models]
