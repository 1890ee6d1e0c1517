# SPDX-License-Identifier: Apache-2.0
"""Names of testbeds and SUTs from the variables of hosts."""

from __future__ import annotations

import functools
from pathlib import Path

from ansible.template import Templar, trust_as_template
from ansible_collections.calibration.harness.plugins.plugin_utils.package import COLLECTION

from calibration.base.errors import InputError
from calibration.base.parsers import read_yaml


@functools.cache
def shared_defaults():
    """Return the defaults of the shared settings."""
    return read_yaml(Path(COLLECTION, "roles", "common", "defaults", "main.yml").read_bytes())


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
