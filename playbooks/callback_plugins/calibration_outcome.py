# SPDX-License-Identifier: Apache-2.0
"""Tells ``calibration run`` how its playbook goes: which run it is, which SUTs have begun, and what a failure means.

ansible-runner and AWX replace the stdout callback and ignore the callback directories of ansible.cfg. Ansible finds
this plugin because it is beside the playbooks, and loads it unconditionally. With ``ansible-playbook`` nobody listens.
"""

from __future__ import annotations

DOCUMENTATION = """
name: calibration_outcome
type: aggregate
short_description: Outcome of a calibration for calibration run
description:
  - Notes the run, the SUTs that have begun, and what failures mean for the exit code of C(calibration run).
author: The calibration harness contributors
"""

# What every worker needs is loaded before the first is forked.
from ansible.plugins.loader import filter_loader, lookup_loader, test_loader
from ansible_collections.calibration.harness.plugins.action import measure, preflight  # noqa: F401
from ansible_collections.calibration.harness.plugins.plugin_utils import waiting, workers  # noqa: F401

from ansible.plugins.callback import CallbackBase
from calibration.base.errors import BAD_INPUT, ENVIRONMENT, VERDICT_FAILED
from calibration.commands.playbook_run import watched
from calibration.run import session

VALIDATION = "ansible.builtin.validate_argument_spec"

UNDEFINED = "' is undefined"
"""What Ansible says of a variable without a value that a setting names."""


class CallbackModule(CallbackBase):
    """Loaded in addition to the stdout callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "calibration_outcome"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hosts = set()

    def set_play_context(self, play_context):
        """Tell the typed passwords: cleaning up after an interruption must not ask again."""
        watched.passwords = {
            "--connection-password-file": play_context.password,
            "--become-password-file": play_context.become_pass,
        }

    def v2_playbook_on_start(self, playbook):
        """Do once what each worker would do, before Ansible forks one per task."""
        session.prepare()
        for loader, name in ((filter_loader, "bool"), (test_loader, "defined"), (lookup_loader, "ansible.builtin.env")):
            loader.get(name)
        watched.start()

    def v2_playbook_on_no_hosts_matched(self):
        """Tell that the inventory has no SUT, which is a mistake."""
        self._display.error("no SUT in the inventory: name one, or check --limit")
        watched.failures.add(BAD_INPUT)

    def v2_playbook_on_stats(self, stats):
        """Tell that the playbook came to its end."""
        watched.ended = True

    def v2_runner_on_start(self, host, task):
        """Tell which SUTs have begun; load once what each of several would load at its end, one alone then."""
        self.hosts.add(host.get_name())
        if len(self.hosts) > 1:
            from scipy import special  # noqa: F401, PLC0415
        if task.action == "calibration.harness.measure" and not task.check_mode:
            watched.begun.add(host.get_name())

    def v2_runner_on_ok(self, result):
        """Tell the run's name, and which SUTs have ended."""
        if result.task.action == "calibration.harness.name_run":
            watched.name(result.result["run_id"], result.result["results"])
        elif result.task.action == "calibration.harness.measure":
            watched.begun.discard(result.host.get_name())
            watched.failures.add(int(result.result.get("exit_code") or 0))

    def v2_runner_on_unreachable(self, result):
        """Tell that the environment is at fault, not a verdict."""
        watched.failures.add(ENVIRONMENT)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Tell what a failure means."""
        usual = {VALIDATION: BAD_INPUT, "ansible.builtin.assert": VERDICT_FAILED}.get(result.task.action, ENVIRONMENT)
        if UNDEFINED in str(result.result.get("msg")):
            usual = BAD_INPUT
        watched.failures.add(int(result.result.get("exit_code") or usual))
