# SPDX-License-Identifier: Apache-2.0
"""Begins a SUT's run: captures its context, stores the capture, makes the plan and records the start, all or nothing.

The capture goes from the SUT into the run's directory without being a result of a task, which would take it through the
controller's main process and back. Arguments: ``results``, ``testbed``, ``sut``, ``run_id``, ``profile``;
``preflight`` (``known``, ``expectations`` and ``limits``, as ``calibration_preflight`` returned them); ``testbeds``
(the name of the variable with what ``calibration_testbeds`` returned: it grows with the lab, and as an argument each
SUT's templates would work it out anew); ``resume`` (whether a run of that identifier goes on where it has begun);
``boot_id`` and ``changes`` (of the SUT, as recorded with the start); ``prefetchers_ok`` (the consent to steps for which
the prefetchers are switched off); ``taken_over`` (what ``sut_reservation`` told of a
stale reservation). In check mode the plan is made and nothing is stored.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import SutAction, changes_of

from calibration.context import load
from calibration.judge.limits import read_limits
from calibration.plan import make_plan
from calibration.preflight.checks import refusal, taken_over_check
from calibration.preflight.examination import read_examination
from calibration.profiles import load_profile
from calibration.results import store
from calibration.results.references import kept_references

ARGUMENTS = ("results", "testbed", "sut", "run_id", "profile")


def plan_only(capture, profile, results, examine, *, prefetchers_ok):
    """Return the plan for *capture*, with the references in *results*, without keeping anything.

    Raises NotBegunError where what *examine* finds would keep the run from beginning.
    """
    context = load(Path(store.CAPTURE), capture)
    plan = make_plan(context, load_profile(profile), *kept_references(results, context), prefetchers_ok=prefetchers_ok)
    reason = refusal(examine(context, plan))
    if reason:
        raise store.NotBegunError(reason)
    return plan


class ActionModule(SutAction):
    """Return the plan and the run's directory."""

    ANSWER_BYTES = 16 << 20
    """A capture of 1024 CPUs has about 3 MB in base64."""

    SPEC = {
        "argument_spec": {
            **{name: {"type": "str", "required": True} for name in ARGUMENTS},
            "preflight": {"type": "dict", "default": {}},
            "testbeds": {"type": "str"},
            "resume": {"type": "bool", "default": False},
            "boot_id": {"type": "str"},
            "changes": {"type": "list", "elements": "dict", "default": []},
            "taken_over": {"type": "dict", "default": {}},
            "prefetchers_ok": {"type": "bool", "default": False},
        }
    }

    def known(self, arguments):
        """Return what preflight handed over, with the SUTs of the testbed that this one is compared with."""
        preflight = arguments["preflight"]
        if arguments["testbeds"] is None:
            return preflight
        identities = self.task_vars[arguments["testbeds"]]["identities"][arguments["testbed"]]
        return {**preflight, "known": {**preflight["known"], "identities": identities}}

    def act(self, arguments):
        """Return ``directory`` (null in check mode) and ``plan``: what remains of it where a run goes on."""
        answer = self.ask("sut_context_info", {})
        if answer.get("failed"):
            return {"failed": True, "msg": answer.get("msg") or "the SUT's context could not be captured"}
        capture = store.decode_capture(str(answer.get("archive")))
        results = Path(arguments["results"])
        found = (taken_over_check(arguments["taken_over"]),) if arguments["taken_over"] else ()
        examine = read_examination(self.known(arguments), load_profile(arguments["profile"]))
        if self._task.check_mode:
            agreed = arguments["prefetchers_ok"]
            plan = plan_only(capture, arguments["profile"], results, examine, prefetchers_ok=agreed)
            return {"directory": None, "plan": plan.model_dump(mode="json")}
        names = {name: arguments[name] for name in ("testbed", "sut", "run_id")}
        attempt = {
            "capture": capture,
            "now": datetime.now(UTC),
            "boot_id": arguments["boot_id"],
            "changes": changes_of(arguments["changes"]),
            "examine": lambda *sut: (*found, *examine(*sut)),
        }
        directory = store.run_directory(results, **names)
        if arguments["resume"] and store.has_begun(directory):
            begun = store.resume(directory, **attempt)
        else:
            limits = read_limits(arguments["preflight"].get("limits") or [])
            begun = store.begin(
                results,
                **names,
                profile=arguments["profile"],
                limits=limits,
                prefetchers_ok=arguments["prefetchers_ok"],
                **attempt,
            )
        return {"changed": True, "directory": begun.directory, "plan": begun.plan.model_dump(mode="json")}
