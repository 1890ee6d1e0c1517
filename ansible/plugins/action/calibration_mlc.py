# SPDX-License-Identifier: Apache-2.0
"""Runs the operator's Intel MLC on the SUT, command by command, and stores the output with the records.

``path`` is the run's directory on the SUT, ``directory`` that on the controller. A failure of MLC is recorded and fails
nothing.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from ansible import constants as C

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_plugins import MAX_REASON, required
from calibration_processes import end_with_controller
from calibration_programs import ProgramAction

from calibration.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.formats.mlc import read_output
from calibration.mlc import ARCHITECTURE, NAME, read_prefetchers, read_program
from calibration.results.attempts import mlc_commands
from calibration.results.model import MlcProgram, MlcRun
from calibration.results.records import MlcProgramRecord, append_record, record_mlc_command
from calibration.text import decode_base64, duration

PUT_S = 300.0
"""Timeout for copying the program, a few megabytes, to the SUT."""

MAX_LINE = 300
"""Characters kept of the last line of a failed command, as its reason."""


def last_line(output):
    """Return the last line of *output* as a reason, unless it has a figure."""
    try:
        read_output(output, ())
    except InputError:
        lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"; its last line: {lines[-1][:MAX_LINE]}" if lines else ""
    return ""


def judge(answer, output):
    """Return (outcome, reason) of a command."""
    code, fault = answer.get("rc"), answer.get("fault")
    if fault is None and code == 0:
        return "ok", None
    line = last_line(output)
    if fault is not None:
        return "timed_out" if fault.startswith("timed out") else "failed", f"{fault}{line}"
    if code is not None and code < 0:
        return "killed", f"killed by signal {-code}{line}"
    return "failed", f"exit code {code}{line}"


class ActionModule(ProgramAction):
    """Run the commands of the plan."""

    SPEC = {
        "argument_spec": {
            **required("path", "archive", "directory"),
            **required("str", "path", "machine"),
            **required("dict", "reservation"),
            **required("float", "lease_s", "timeout_s"),
            **required("bool", "prefetchers_ok", "publish"),
        }
    }

    gone = None
    """Why nothing more is run on the SUT."""

    def act(self, arguments):
        """Return whether anything was tried. Fails only if that cannot be recorded."""
        directory = Path(arguments["directory"])
        commands = mlc_commands(directory)
        if not commands:
            return {}
        end_with_controller()
        program = self.prepared(arguments, directory)
        for number, command in enumerate(commands if program else (), 1):
            run, output = self.run_command(command, arguments, program)
            record_mlc_command(directory, run, output)
            how = duration(run.duration_s) if run.reason is None else f"{run.outcome.replace('_', ' ')}: {run.reason}"
            color = None if run.reason is None else C.COLOR_WARN
            self.say(f"{command.title}, {number} of {len(commands)}: {how}", color)
            if run.prefetchers is not None and run.prefetchers.state == "changed":
                self.say(f"{command.title}: it left the prefetchers changed", C.COLOR_WARN)
        return {"changed": True}

    def prepared(self, arguments, directory):
        """Record the program, copy it to the SUT and return it; on failure record the reason and return None."""
        archive = Path(arguments["archive"])
        planned = arguments["machine"] == ARCHITECTURE
        started_at, found, reason = datetime.now(UTC), None, None
        try:
            if not planned:
                raise EnvironmentLacksError(f"{NAME} is for {ARCHITECTURE} only, the SUT is {arguments['machine']}")
            found = read_program(archive)
            self.put(arguments, found)
        except CalibrationError as error:
            reason = str(error)[:MAX_REASON]
            self.say(f"{NAME} is not run: {reason}", C.COLOR_WARN if planned else None)
        record = MlcProgram(
            started_at=started_at,
            archive=archive.name,
            archive_sha256=found and found.archive_sha256,
            member=found and found.member,
            program_sha256=found and found.sha256,
            form=found and found.form,
            prefetchers_ok=arguments["prefetchers_ok"],
            publish=arguments["publish"],
            planned=planned,
            reason=reason,
        )
        append_record(directory, MlcProgramRecord(program=record))
        return None if reason else found

    def put(self, arguments, program):
        """Copy *program* into the run's directory on the SUT. Raises EnvironmentLacksError if it cannot be verified."""
        with self.question(f"the copy of {NAME}", PUT_S):
            self.renew(arguments["reservation"], PUT_S + arguments["lease_s"])
            found = self.install(arguments["path"], "mlc", lambda: program.content, program.sha256)[1]
        if found != program.sha256:
            raise EnvironmentLacksError(f"{NAME} on the SUT has sha256 {found or 'none'}, not {program.sha256}")

    def run_command(self, command, arguments, program):
        """Run *command*; return its record and its output.

        After a command without an answer none is started: each would take its whole timeout.
        """
        argv = command.argv(prefetchers_ok=arguments["prefetchers_ok"])
        started_at, began = datetime.now(UTC), time.monotonic()
        known = {"user_id": None, "rc": None, "prefetchers": None}
        output, outcome = None, "failed"
        try:
            if self.gone:
                raise EnvironmentLacksError(f"skipped: {self.gone}")
            answer = self.run_program(
                "sut_mlc",
                {
                    "path": arguments["path"],
                    "sha256": program.sha256,
                    "argv": list(argv),
                    "prefetchers_ok": arguments["prefetchers_ok"],
                    "reservation": arguments["reservation"]["path"],
                    "token": arguments["reservation"]["token"],
                },
                what=NAME,
                timeout_s=arguments["timeout_s"],
                reservation=arguments["reservation"],
                lease_s=arguments["lease_s"],
            )
            output = decode_base64(str(answer.get("output")))
            known |= {"user_id": answer.get("user_id"), "rc": answer.get("rc")}
            known["prefetchers"] = read_prefetchers(answer.get("prefetchers"))
            outcome, reason = judge(answer, output)
        except CalibrationError as error:
            reason = str(error)
            if output is None:
                self.gone = self.gone or reason
        run = MlcRun(
            started_at=started_at,
            duration_s=round(time.monotonic() - began, 3),
            argv=argv,
            output=None,
            output_sha256=None,
            reason=reason and reason[:MAX_REASON],
            command=command.command,
            outcome=outcome,
            program_sha256=program.sha256,
            **known,
        )
        return run, output
