# SPDX-License-Identifier: Apache-2.0
"""Checks that the settings, the controller and the SUT can do a calibration: one question to the SUT, judged here.

``fit`` says whether the SUT may be measured, ``checks`` has all checks if it answered; ``known``, ``expectations``,
``limits`` and ``machine`` are used by the role measure.
"""

from __future__ import annotations

import os
import re
import shutil
import time

from ansible.release import __version__ as ansible_version
from ansible_collections.calibration.harness.plugins.plugin_utils.actions import (
    ShellError,
    SutAction,
    dumped,
    options_of,
)

from calibration.acceptance import load_acceptance
from calibration.acceptance.limits import read_limits
from calibration.base.errors import (
    CalibrationError,
    ConnectionLostError,
    EnvironmentLacksError,
    InputError,
    NoAnswerError,
    SutError,
)
from calibration.measurements.mlc_program import check_licence
from calibration.preflight.agreement import Known
from calibration.preflight.checks import AGREED, refusal
from calibration.preflight.expectations import read_expectations
from calibration.preflight.facts import read_facts
from calibration.preflight.sut_checks import Requirements, RoundTrip, first_checks, version, without_python
from calibration.profiles import load_profile
from calibration.results.layout import check_names


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
    results = state(arguments["results_dir"])
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

    ROLE_OPTIONS = options_of("preflight")
    ROLE_PREFIXES = re.compile("^(calibration|preflight)_")

    def ask_sut(self, arguments):
        """Return the facts of the SUT, and the controller's time before and after."""
        asked_s = time.time()
        answer = self.remote(arguments["remote_base"], arguments["lock"]).facts()
        return answer, RoundTrip(asked_s=asked_s, answered_s=time.time())

    def act(self, arguments):
        """Return ``fit``, whether the SUT may be measured, the ``reason`` if not, ``checks``, and what roles need.

        Fails for wrong settings and an unfit controller, and for an unfit SUT only if it is ``required``.
        """
        try:
            check_names(testbed=arguments["testbed"], sut=arguments["sut"])
        except InputError as error:
            raise InputError(f"{error}. They are calibration_testbed and calibration_sut.") from error
        check_licence(arguments["mlc_archive"], accepted=arguments["mlc_license_accepted"])
        expectations = read_expectations(arguments)
        limits = read_limits(arguments["limits"])
        acceptance = [load_acceptance(name) for name in arguments["acceptance"]]
        check_controller(arguments)
        given = {"expectations": expectations.model_dump(mode="json"), "limits": dumped(limits)}
        given |= {"acceptance": dumped(acceptance)}
        try:
            answer, trip = self.ask_sut(arguments)
            facts = read_facts(answer)
        except (ConnectionLostError, NoAnswerError, ShellError) as error:
            return self.unfit(str(error), {**given, "checks": []}, arguments)
        except SutError as error:
            checks = (without_python(str(error), arguments["sut_python_minimum"]),)
            return self.unfit(refusal(checks), {**given, "checks": dumped(checks)}, arguments)
        requirements = Requirements(
            python_minimum=arguments["sut_python_minimum"],
            architectures=tuple(arguments["architectures"]),
            remote_free_bytes=arguments["remote_free_bytes"],
        )
        checks = first_checks(facts, requirements, expectations, trip)
        off = tuple(name for name in AGREED if expectations.severity.get(name) == "off")
        known = Known(
            checks=checks,
            testbed=arguments["testbed"],
            sut=arguments["sut"],
            identities={arguments["sut"]: facts.identity.model_copy(update={"off": off})},
        )
        given |= {"known": known.model_dump(mode="json"), "machine": facts.machine, "boot_id": facts.boot_id}
        given |= {"checks": dumped(checks)}
        reason = refusal(checks)
        return self.unfit(reason, given, arguments) if reason else {"fit": True, **given}
