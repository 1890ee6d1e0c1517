# SPDX-License-Identifier: Apache-2.0
"""Calibrates a SUT: reserves it, runs the plan there, collects the records, and writes the run document.

The runner on the SUT does the run by itself (``calibration.run.session``). Whatever happens to the SUT becomes a reason
in its document. In check mode the plan is made of a capture, and nothing is reserved or stored.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from ansible_collections.calibration.harness.plugins.plugin_utils.actions import (
    SutAction,
    checks_of,
    options_of,
    required,
    restored,
)
from ansible_collections.calibration.harness.plugins.plugin_utils.processes import end_with_controller, one_per_cpu
from ansible_collections.calibration.harness.plugins.plugin_utils.workers import DEATHS, MAX_RERUNS, collecting

from ansible import constants as C
from calibration.acceptance import AcceptanceFile
from calibration.acceptance.limits import read_limits
from calibration.audit.kinds import asked_for
from calibration.base.errors import ENVIRONMENT, GOOD, EnvironmentLacksError
from calibration.base.text import duration
from calibration.base.tuning import SETTINGS, wanted_settings
from calibration.build import TARGETS, build, prebuilt
from calibration.finish import finished
from calibration.measurements.mlc_program import check_licence
from calibration.preflight.checks import refusal
from calibration.preflight.expectations import read_again
from calibration.report.summary import outcome
from calibration.results.layout import new_run_id
from calibration.run.lifecycle import NotBegunError, plan_only
from calibration.run.plan import skipped_text
from calibration.run.session import UNCLEAN, Mlc, calibrate, end, note

PROGRESS_S, PROGRESS_S_PER_SUT = 3.0, 0.5
"""Shortest time between two looks at a SUT: each costs the controller 20 ms, and the SUT a process."""

COLOURS = dict.fromkeys(("failed", "timed_out", "killed", UNCLEAN), C.COLOR_ERROR)


def unmeasured(reason):
    """Return the result for a SUT that would not be measured, in check mode."""
    return {"run": None, "exit_code": ENVIRONMENT, "failures": ["Calibration failed, run not begun", reason]}


def lost(task_vars):
    """Return why the SUT is given up; empty if it is not."""
    deaths = task_vars.get(DEATHS, ())
    return f"{deaths[-1]}; {collecting()}" if len(deaths) == MAX_RERUNS else ""


def sutprobe(machine, elsewhere):
    """Return sutprobe for the architecture *machine*, of the directory *elsewhere* if there is one."""
    if machine not in TARGETS:
        raise EnvironmentLacksError(f"sutprobe is not built for {machine}, only for {', '.join(TARGETS)}")
    return prebuilt(Path(elsewhere), machine) if elsewhere else build(machine)


class ActionModule(SutAction):
    """Take one SUT to its run document."""

    ROLE_OPTIONS = options_of("measure")
    ROLE_PREFIXES = re.compile("^(calibration|measure)_")
    SPEC = {"argument_spec": required("str", "preflight", "testbeds", "generator")}

    def act(self, arguments):
        """Return ``run``, the summary of the run document, and ``failures``, why the SUT is not good."""
        preflight = self.task_vars.get(arguments["preflight"]) or {}
        generator = (arguments["reserve_tg"] and self.task_vars.get(arguments["generator"])) or {}
        complete = self.task_vars["inventory_hostname"] in self.task_vars.get("calibration_complete", ())
        request = self.request(arguments, preflight)
        remote = self.remote(arguments["remote_base"], arguments["lock"])
        refused = preflight.get("reason") or generator.get("msg")
        if self._task.check_mode:
            return unmeasured(refused) if refused else self.planned(arguments, preflight, request, remote)
        end_with_controller()
        code = GOOD
        if complete:
            pass
        elif reason := refused or lost(self.task_vars):
            code = ENVIRONMENT
            note(request, str(reason))
        else:
            with self.turn(preflight.get("boot_id"), arguments["lock"]):
                code = calibrate(
                    request,
                    remote,
                    build=lambda machine: sutprobe(machine, arguments["sutprobe_prebuilt"]),
                    examine=self.examination(preflight, arguments),
                    say=lambda text, outcome: self.say(text, COLOURS.get(outcome)),
                    planned=self.announce,
                    resumed=arguments["resume"],
                    apart=self.apart,
                )
        with one_per_cpu(C.DEFAULT_LOCAL_TMP):  # more at once take more memory, and no less time
            anew = end(request) or not complete  # a resumed run may have collected, and ended, its attempt
            document = finished(request.results, request.directory, anew=anew)
            run = outcome(request.results, request.directory, request.host, document)
        return {"changed": True, "exit_code": code, **run}

    def request(self, arguments, preflight):
        """Return what is asked of the SUT. Raises InputError for invalid settings."""
        consent = {name: arguments[f"tune_{name}_ok"] for name in SETTINGS}
        settings = wanted_settings({name: arguments[f"tune_{name}"] for name in SETTINGS}, consent)
        mlc = None
        if arguments["mlc_archive"]:
            check_licence(arguments["mlc_archive"], accepted=arguments["mlc_license_accepted"])
            mlc = Mlc(
                archive=Path(arguments["mlc_archive"]),
                timeout_s=arguments["mlc_timeout_s"],
                prefetchers_ok=arguments["mlc_prefetchers_ok"],
                publish=arguments["mlc_publish"],
            )
        return self.request_for(
            {**arguments, "run_id": arguments["run_id"] or new_run_id(datetime.now(UTC))},
            machine=preflight.get("machine"),
            profile=arguments["profile"],
            settings=settings,
            prefetchers_ok=consent["prefetchers"],
            limits=read_limits(preflight.get("limits") or []),
            acceptance=restored(AcceptanceFile, preflight.get("acceptance") or []),
            checks=checks_of(preflight.get("checks") or []),
            asked=asked_for(read_again(preflight.get("expectations") or {}).state),
            serials_ok=arguments["context_serials_ok"],
            bmc_ok=arguments["context_bmc_ok"],
            checker=Path(checker) if (checker := arguments["context_meltdown_checker"]) else None,
            checker_timeout_s=arguments["context_meltdown_timeout_s"],
            mlc=mlc,
            opendcdiag=Path(program) if (program := arguments["opendcdiag_program"]) else None,
            keep_s=arguments["keep_s"],
            grace_s=arguments["grace_s"],
            reconnect_s=arguments["reconnect_s"],
            progress_s=PROGRESS_S + PROGRESS_S_PER_SUT * len(self.task_vars["ansible_play_hosts_all"]),
        )

    def planned(self, arguments, preflight, request, remote):
        """Return the plan of the SUT as it is, or why a run would be refused, in check mode."""
        with self.turn(preflight.get("boot_id"), arguments["lock"]):
            rehearsed = remote.rehearse(request.job(datetime.now(UTC)))
        plan, checks = plan_only(
            request.results,
            profile=request.profile,
            capture=rehearsed.capture,
            examine=self.examination(preflight, arguments),
            prefetchers_ok=request.prefetchers_ok,
        )
        self.show(checks, rehearsed.left)
        if refused := refusal(checks):
            raise NotBegunError(refused)
        return {"run": None, "plan": plan.model_dump(mode="json"), "failures": []}

    def announce(self, plan):
        """Show the plan."""
        self.say(f"{len(plan.steps)} step{'s' * (len(plan.steps) > 1)}, about {duration(plan.expected_duration_s)}")
        if plan.not_planned:
            self.say(f"skipped: {skipped_text(plan.not_planned)}")
