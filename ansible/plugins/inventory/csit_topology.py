# SPDX-License-Identifier: Apache-2.0
"""Inventory plugin for CSIT topology files, parsed by ``calibration.formats.csit_topology``."""

from __future__ import annotations

DOCUMENTATION = """
name: csit_topology
short_description: A topology file of FD.io CSIT as an inventory
description:
  - Any file that is a mapping with C(nodes), a member of which has the type C(TG) or C(DUT), is a topology.
  - Its nodes are hosts such as C(t212-dut1) in the groups C(sut), C(tg), and one for the testbed, C(t212).
  - Placeholders of a template are filled from the environment and from C(--extra-vars), where they lead to a node.
  - One that cannot be used ends the command; no other plugin would see more in it than an empty inventory.
options: {}
author: The calibration harness contributors (!UNKNOWN)
"""

import os
import re
from pathlib import Path

import ansible_collections.calibration.harness.plugins.plugin_utils.package  # noqa: F401 - makes the package importable in a checkout
from ansible.utils.vars import load_extra_vars

from ansible import constants as C
from ansible.plugins.inventory import BaseInventoryPlugin
from calibration.base.errors import BAD_INPUT, InputError
from calibration.base.files import read_given
from calibration.base.text import visible
from calibration.formats.csit_topology import is_topology, name_of_testbed, read_topology
from calibration.results.layout import check_names

MAX_BYTES = 1 << 20
"""Larger files are not topologies: a topology has a few kilobytes."""

GROUPS = {"TG": "tg", "DUT": "sut"}

RESERVED_GROUPS = ("all", "ungrouped", *GROUPS.values())


def group_name(testbed):
    """Return the testbed's name as a group name: letters, digits and underscores, without clashes."""
    name = re.sub(r"\W", "_", testbed, flags=re.ASCII)
    return f"testbed_{name}" if name in RESERVED_GROUPS or not name[0].isalpha() else name


def variables_of(topology, node):
    """Return the variables of *node*. Raises InputError if its key is unusable."""
    variables = {
        "ansible_host": node.host,
        "ansible_port": node.port,
        "ansible_user": node.username,
        "ansible_password": node.password and node.password.get_secret_value(),
        "ansible_ssh_private_key": node.priv_key and node.priv_key.get_secret_value(),
        "calibration_testbed": topology.testbed,
        "csit_arch": node.arch,
        "csit_model": node.model,
        "csit_subtype": node.subtype,
    }
    if node.priv_key and C.config.get_config_value("SSH_AGENT") == "none":
        raise InputError(
            f"topology node {node.name}: priv_key needs an SSH agent, because the key is kept in no file: start the "
            "command with ANSIBLE_SSH_AGENT=auto in its environment, or with the socket of an agent"
        )
    if node.type == "DUT" and topology.reserved:
        variables["reserve_tg"] = topology.host_name(topology.reserved)
    return {name: value for name, value in variables.items() if value is not None}


class InventoryModule(BaseInventoryPlugin):
    """Parse one file; other files are left to other plugins."""

    NAME = "csit_topology"

    def verify_file(self, path):
        """Return whether the file at *path* is a topology, by its content."""
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES:
            return False
        try:
            return is_topology(self.text_of(path))
        except (InputError, UnicodeDecodeError):
            return False  # reported by the next plugins

    def parse(self, inventory, loader, path, cache=True):
        """Add the hosts and groups of the topology at *path*."""
        super().parse(inventory, loader, path, cache)
        try:
            values = {**os.environ, **{name: str(value) for name, value in load_extra_vars(loader).items()}}
            self.add(read_topology(self.text_of(path), name_of_testbed(path), values))
        except InputError as error:
            # Otherwise Ansible tries other plugins, one of which reads any mapping as groups without hosts.
            self.display.error(visible(f"{path}: {error}"))
            raise SystemExit(BAD_INPUT) from error

    def text_of(self, path):
        """Return the text of a file."""
        return read_given(Path(path), MAX_BYTES).decode("utf-8")

    def add(self, topology):
        """Add *topology*. Raises InputError if a name is no valid directory name, or is already in use."""
        check_names(testbed=topology.testbed, sut=topology.testbed)
        group = self.inventory.add_group(group_name(topology.testbed))
        for node in topology.nodes:
            name = topology.host_name(node)
            variables = variables_of(topology, node)
            known = self.inventory.hosts.get(name)
            if known is not None and known.vars.get("ansible_host") not in (None, node.host):
                raise InputError(
                    f"two machines are named {name}: {known.vars['ansible_host']} and {node.host}; rename one of the "
                    "topology files"
                )
            for item in (group, self.inventory.add_group(GROUPS[node.type])):
                self.inventory.add_host(name, group=item)
            for variable, value in variables.items():
                self.inventory.set_variable(name, variable, value)
