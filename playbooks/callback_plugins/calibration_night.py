# SPDX-License-Identifier: Apache-2.0
"""Allow one nightly calibration at a time per results directory, however it is started.

Ansible finds this plugin because it is beside the playbooks, and loads it unconditionally. It runs in the controller's
process, which holds the lock until it exits.
"""

from __future__ import annotations

DOCUMENTATION = """
name: calibration_night
type: aggregate
short_description: One nightly calibration at a time
description:
  - Locks the results for a playbook that sets calibration_nightly, and ends it at once where another has done so.
author: The calibration harness contributors
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible import context
from ansible.plugins.callback import CallbackBase

sys.path.append(os.path.abspath(__file__ + "/../../../ansible/plugins/plugin_utils"))

from calibration_variables import settings_of_host

from calibration.errors import BAD_INPUT, CalibrationError
from calibration.nightly.lock import hold
from calibration.run import note_failure


def results_of(play):
    """Return the results directories of a play's SUTs; empty unless the play is a nightly calibration's."""
    manager = play.get_variable_manager()
    of_play = manager.get_vars(play=play)
    if not boolean(of_play.get("calibration_nightly", False)):
        return set()
    shared = {name: of_play[name] for name in ("hostvars", "playbook_dir")}
    found = set()
    for host in of_play["ansible_play_hosts_all"]:
        known, template = settings_of_host({**shared, **of_play["hostvars"].raw_get(host)}, play.get_loader())
        found.add(os.path.abspath(os.path.expanduser(template(known["calibration_results_dir"]))))
    return found


class CallbackModule(CallbackBase):
    """Loaded in addition to the stdout callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "calibration_night"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.held = []

    def v2_playbook_on_play_start(self, play):
        """Lock the results before anything is done; check mode needs no lock."""
        if self.held or context.CLIARGS.get("check"):
            return
        try:
            self.held = [hold(Path(results), datetime.now(UTC)) for results in sorted(results_of(play))]
        except CalibrationError as error:
            self.end(str(error), error.exit_code)
        except (AnsibleError, TypeError) as error:
            self.end(f"invalid calibration_nightly or calibration_results_dir: {error}", BAD_INPUT)

    def end(self, message, exit_code):
        """End the playbook."""
        self._display.error(message)
        note_failure(exit_code)
        raise SystemExit(exit_code)
