# SPDX-License-Identifier: Apache-2.0
"""Checks the variables set by an inventory or a command line for all roles, all at once.

Ansible would check a role's variables in a task per role and SUT: a quarter of a SUT's cost for the controller.
"""

from __future__ import annotations

import functools
import glob
import os
import sys

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.yaml.loader import AnsibleLoader
from ansible.template import Templar, trust_as_template

sys.path.append(os.path.abspath(__file__ + "/.."))

from calibration_checkout import ROOT

from calibration.errors import InputError
from calibration.mlc import check_licence
from calibration.results.layout import check_names


@functools.cache
def options_of_roles():
    """Return the combined options of each role's entry points, by role."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "roles", "*", "meta", "argument_specs.yml"))):
        with open(path, encoding="utf-8") as stream:
            specs = AnsibleLoader(stream).get_single_data()["argument_specs"]
        found[path.split(os.sep)[-3]] = {
            name: option for entry in specs.values() for name, option in entry.get("options", {}).items()
        }
    return found


@functools.cache
def shared_defaults():
    """Return the defaults of the shared settings."""
    with open(os.path.join(ROOT, "roles", "settings", "defaults", "main.yml"), encoding="utf-8") as stream:
        return AnsibleLoader(stream).get_single_data()


def faults(options, given):
    """Return the errors in the variables *given* according to *options*."""
    spec = {name: {**options[name], "required": False} for name in given}
    return ArgumentSpecValidator(spec).validate(given).error_messages


def check_variables(known, template):
    """Raise InputError with all errors in the variables *known*, which *template* evaluates."""
    found = []
    for role, options in options_of_roles().items():
        given = {name: template(known[name]) for name in options if name in known}
        found += [f"{role}: {fault}" for fault in faults(options, given)]
    if found:
        raise InputError("; ".join(found) + ". See meta/argument_specs.yml of the role.")
    archive = str(template(known.get("mlc_archive", "")))
    check_licence(archive, accepted=boolean(template(known.get("mlc_license_accepted", False))))
    testbed, sut = names_of(known, template)
    try:
        check_names(testbed=testbed, sut=sut)
    except InputError as error:
        raise InputError(f"{error}. They are calibration_testbed and calibration_sut.") from error


NAMES = ("calibration_testbed", "calibration_sut")


def names_of(known, template):
    """Return the names of testbed and SUT from the variables *known*, which *template* evaluates."""
    return tuple(str(template(known[name])) for name in NAMES)


def settings_of_host(variables, loader):
    """Return a host's *variables* over the defaults of the shared settings, and the function that evaluates them."""
    trusted = {
        name: trust_as_template(default) if isinstance(default, str) else default
        for name, default in shared_defaults().items()
    }
    known = {**trusted, **variables}
    return known, Templar(loader, known).template


def names_of_host(variables, loader):
    """Return the names of testbed and SUT from a host's own *variables*, without the roles' defaults."""
    return names_of(*settings_of_host(variables, loader))


def hosts_by_names(task_vars, loader):
    """Return the play's hosts by testbed and SUT. Raises InputError if two share both names."""
    found = {}
    everyone = task_vars["hostvars"]
    shared = {"hostvars": everyone, "playbook_dir": task_vars["playbook_dir"]}
    for host in task_vars["ansible_play_hosts_all"]:
        names = names_of_host({**shared, **everyone.raw_get(host)}, loader)
        if names in found:
            raise InputError(
                f"{found[names]} and {host} have the same name: testbed {names[0]}, SUT {names[1]}; set "
                "calibration_sut for one of them"
            )
        found[names] = host
    return found
