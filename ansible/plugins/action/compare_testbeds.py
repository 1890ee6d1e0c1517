# SPDX-License-Identifier: Apache-2.0
"""Collects the identities of the SUTs of each testbed, once for all SUTs of a play.

``result`` is the variable with each SUT's result of ``preflight``. A SUT without one, which did not answer,
is not compared.
"""

from __future__ import annotations

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import CalibrationAction


def by_testbed(results):
    """Return the identities in *results*, by testbed and SUT."""
    found = {}
    for result in results:
        known = (result or {}).get("known")
        if known:
            found.setdefault(known["testbed"], {}).update(known["identities"])
    return found


class ActionModule(CalibrationAction):
    """Read the variables of all SUTs."""

    SPEC = {"argument_spec": {"result": {"type": "str", "required": True}}}

    def act(self, arguments):
        """Return ``identities`` by testbed and SUT."""
        hosts = self.task_vars["hostvars"]
        results = [hosts[name].get(arguments["result"]) for name in self.task_vars["ansible_play_hosts_all"]]
        return {"identities": by_testbed(results)}
