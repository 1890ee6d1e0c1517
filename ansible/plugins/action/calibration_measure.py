# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of the plan on the SUT in sequence, and records the outcome of each.

A failed step never fails the task. One task runs all steps: an Ansible loop would cost the controller more per step
than the step itself. Progress that a user waits for is displayed as it happens, with any callback.

A step is given up ``grace_s`` after its own deadline, at which sutprobe exits by itself: the SUT hangs then, or the
connection is silently dead. The SUT stays reserved ``lease_s`` beyond that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from ansible import constants as C

sys.path.append(os.path.abspath(__file__ + "/../../plugin_utils"))

from calibration_answers import quoted
from calibration_plugins import (
    MAX_REASON,
    PARSE_FACTOR,
    AnswerTooLongError,
    ConnectionLostError,
    NoAnswerError,
    SutAction,
    SutError,
    required,
)
from calibration_processes import bounded_memory, end_with_controller

from calibration.errors import CalibrationError
from calibration.reservation import REASONS, Reservation, guarded
from calibration.results.attempts import outstanding
from calibration.results.records import NoteRecord, StepRecord, SwitchedRecord, append_record
from calibration.text import duration
from calibration.tuning import read_changes, wanted_settings

ANSWER_BYTES = 16 << 20
"""Limit on a step's output: four times the longest document of a machine with 1024 CPUs."""

DOCUMENT_LEVELS = 32
"""Limit on the nesting of a document; sutprobe's deepest has about ten levels."""

MAX_STDERR = 20000
"""Characters of sutprobe's standard error to keep, from the end, where the reason is."""

LOST_ONCE = 1
"""Retries of a step after a lost connection: a brief interruption costs no figure."""

RECONNECT_PAUSE_S = 2.0
"""Pause between attempts to reconnect to a SUT; nothing is measured meanwhile."""

LOST_TWICE = 2
"""Consecutive lost connections after which the remaining steps are skipped: each attempt costs a timeout."""


def refuse_constant(name):
    """Raise ValueError: JSON does not define NaN and infinities."""
    raise ValueError(f"{name} is not allowed")


def is_nested(value, levels):
    """Return whether *value* is nested deeper than *levels*."""
    inside = [[value]]
    for _ in range(levels + 1):
        inside = [
            item
            for part in inside
            for item in (part.values() if type(part) is dict else part)
            if type(item) in (dict, list)  # the only containers that json creates
        ]
        if not inside:
            return False
    return True


def read_answer(stdout):
    """Return the only JSON document in *stdout*. Raises ValueError for anything else."""
    try:
        with bounded_memory(PARSE_FACTOR * ANSWER_BYTES):
            document = json.loads(stdout, parse_constant=refuse_constant)
            json.dumps(document, allow_nan=False, ensure_ascii=False).encode()  # it must be writable again
            deep = is_nested(document, DOCUMENT_LEVELS)
    except RecursionError:
        deep = True
    except MemoryError:
        fault = "it has too many values"
        raise ValueError(fault) from None
    if deep:
        fault = f"it is nested deeper than {DOCUMENT_LEVELS} levels"
        raise ValueError(fault)
    if not isinstance(document, dict):
        fault = f"it is a {type(document).__name__}, not an object"
        raise ValueError(fault)  # noqa: TRY004 - the output is wrong, not an argument's type
    return document


def object_of(document, name):
    """Return the object *name* of *document*, or an empty one."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def signal_name(number):
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def refusal_of(answer):
    """Return why the SUT refuses to measure for this run, or None: it was restarted, or is another run's."""
    return REASONS.get(answer["rc"]) if not answer["stdout"].strip() else None


def judge_answer(answer, source_sha256):
    """Return (outcome, reason, document) for the answer of a command on the SUT."""
    code, stdout = answer["rc"], answer["stdout"]
    if refusal_of(answer):
        return "failed", refusal_of(answer), None
    try:
        document = read_answer(stdout)
    except ValueError as error:
        output = quoted(stdout, answer["stderr"])
        if code < 0 or code > 128:
            number = -code if code < 0 else code - 128
            return "killed", f"sutprobe was killed by {signal_name(number)} before it had a result{output}", None
        return "failed", f"sutprobe printed no valid JSON document ({error}); exit code {code}{output}", None
    built = object_of(document, "build").get("source_sha256")
    if built != source_sha256:
        return "failed", f"sutprobe was built from sources {built}, not {source_sha256}", document
    if code == 0 and document.get("status") == "ok":
        return "ok", None, document
    error = object_of(document, "error")
    reason = str(error.get("message") or f"sutprobe gave no reason; exit code {code}{quoted('', answer['stderr'])}")
    outcome = {"deadline": "timed_out", "interrupted": "killed"}.get(str(error.get("code")), "failed")
    return outcome, reason, document


class ActionModule(SutAction):
    """Run the steps."""

    ANSWER_BYTES = ANSWER_BYTES
    SPEC = {
        "argument_spec": {
            **required("str", "sutprobe", "source_sha256"),
            **required("path", "directory"),
            **required("float", "grace_s", "lease_s", "reconnect_s"),
            **required("dict", "reservation"),
            "prefetchers_ok": {"type": "bool", "default": False},
        }
    }

    lost = 0
    """Lost connections in a row."""

    gone = None
    """Why nothing more is measured on the SUT: every step that is left has this reason."""

    switched = None
    """By which mark the prefetchers that were switched off are put back; None if they were not, or have been."""

    refused = None
    """Why the prefetchers could not be switched off: every step that wants them off has this reason."""

    left = ()
    """What was changed for single steps and is not known to be put back."""

    def act(self, arguments):
        """Return ``steps``: id, outcome, reason and duration of each; and ``left``, changes yet to be restored.

        Fails only if a record cannot be written; the remaining steps are not run then.
        """
        end_with_controller()
        steps = self.run_steps(arguments)
        self.restore_prefetchers(arguments)
        return {"changed": True, "steps": steps, "left": [step.model_dump(mode="json") for step in self.left]}

    def run_steps(self, arguments):
        """Run all steps without a result; return the outcome of each."""
        steps, outcomes = outstanding(Path(arguments["directory"])), []
        for number, step in enumerate(steps, 1):
            # Steps with prefetchers off come last (calibration.plan), so that they are switched once.
            if step.prefetchers == "off":
                self.switch_prefetchers_off(arguments)
            outcome, reason, duration_s = self.run_step(step, arguments)
            if self.lost == LOST_ONCE and self.has_reconnected(arguments):
                outcome, reason, duration_s = self.run_step(step, arguments)
            outcomes.append({"step": step.id, "outcome": outcome, "reason": reason, "duration_s": duration_s})
            left_s = sum(step.expected_duration_s for step in steps[number:])
            how = f"{duration(duration_s)}, about {duration(left_s)} left"
            self.say(
                f"step {number} of {len(steps)}: {step.title}: "
                + (how if outcome == "ok" else f"{outcome.replace('_', ' ')}: {reason}"),
                None if outcome == "ok" else C.COLOR_ERROR,
            )
        return outcomes

    def reservation(self, arguments, **more):
        """Return the answer of the module ``sut_reservation``."""
        reservation = Reservation.model_validate(arguments["reservation"])
        known = {"path": reservation.path, "token": reservation.token, "lease_s": arguments["lease_s"]}
        answer = self.ask("sut_reservation", {**known, **more})
        if answer.get("failed"):
            raise SutError(answer.get("msg") or "no reason was given")
        return answer

    def switch_prefetchers_off(self, arguments):
        """Switch the SUT's prefetchers off, unless they are; if it refuses, keep the reason."""
        if self.switched is not None or self.refused or self.gone or self.lost >= LOST_TWICE:
            return
        try:
            settings = wanted_settings({"prefetchers": "off"}, {"prefetchers": arguments["prefetchers_ok"]})
            answer = self.reservation(arguments, state="tuned", settings=settings)
            changes, mark = read_changes(answer.get("changes") or []), answer.get("mark")
            if mark is None:
                raise SutError("the SUT did not return how to restore them")
        except CalibrationError as error:
            self.refused = f"the prefetchers could not be switched off: {error}"
            return
        # The mark first, so that they are restored even if the record fails.
        self.switched, self.left = mark, changes
        if changes:
            append_record(Path(arguments["directory"]), SwitchedRecord(changes=changes))

    def restore_prefetchers(self, arguments):
        """Restore the prefetchers, if they were switched off; on failure this is left to the end of the run."""
        if self.switched is None:
            return
        mark, self.switched = self.switched, None
        if not self.left:
            return  # they were off already
        try:
            answer = self.reservation(arguments, state="untuned", mark=mark)
            changes = read_changes(answer.get("changes") or [])
        except CalibrationError as error:
            self.say(f"the prefetchers are not restored yet: {error}", C.COLOR_ERROR)
            return
        self.left = tuple(change for change in changes if change.restored != change.before)
        append_record(Path(arguments["directory"]), SwitchedRecord(changes=changes))

    def run_step(self, step, arguments):
        """Run *step*, record its outcome, and return outcome, reason and duration in s."""
        started_at, began = datetime.now(UTC), time.monotonic()
        outcome, reason, document, code, stderr = self.measure(step, arguments)
        duration_s = round(time.monotonic() - began, 3)
        reason = reason and reason[:MAX_REASON]
        record = StepRecord(
            step=step,
            outcome=outcome,
            reason=reason,
            rc=code,
            started_at=started_at,
            duration_s=duration_s,
            document=document,
            stderr=stderr[-MAX_STDERR:],
        )
        append_record(Path(arguments["directory"]), record)
        return outcome, reason, duration_s

    def has_reconnected(self, arguments):
        """Return whether the SUT is reachable again, with nothing left running of the interrupted step."""
        until = time.monotonic() + arguments["reconnect_s"]
        while True:
            try:
                self.reconnect()
                answer = self.ask("sutprobe", {"path": os.path.dirname(arguments["sutprobe"]), "state": "ended"})
            except CalibrationError:
                answer = None
            if answer is not None:
                return not answer.get("failed")
            if time.monotonic() >= until:
                self.lost = LOST_TWICE
                reason = "the connection to the SUT was lost and did not come back"
                append_record(Path(arguments["directory"]), NoteRecord(reason=reason))
                return False
            time.sleep(RECONNECT_PAUSE_S)

    def measure(self, step, arguments):
        """Return (outcome, reason, document, rc, stderr) of *step*."""
        if self.gone:
            return "failed", self.gone, None, None, ""
        if self.lost >= LOST_TWICE:
            return "failed", "skipped: the connection to the SUT was lost before", None, None, ""
        if step.prefetchers == "off" and self.refused:
            return "failed", self.refused, None, None, ""
        limit_s = step.deadline_s + arguments["grace_s"]
        command = guarded(
            [arguments["sutprobe"], *step.argv[1:]],
            Reservation.model_validate(arguments["reservation"]),
            lease_s=limit_s + arguments["lease_s"],
            idle_s=arguments["grace_s"] + arguments["lease_s"],
        )
        try:
            answer = self.command(f"sutprobe {step.argv[1]}", command, limit_s)
        except NoAnswerError as error:
            return "timed_out", str(error), None, None, ""
        except AnswerTooLongError as error:
            return "failed", f"{error}", None, None, ""
        except ConnectionLostError as error:
            self.lost += 1
            return "failed", f"the connection to the SUT was lost: {error.__cause__}", None, None, ""
        except SutError as error:
            return "failed", str(error), None, None, ""
        self.lost = 0
        self.gone = refusal_of(answer)
        if self.gone:
            append_record(Path(arguments["directory"]), NoteRecord(reason=self.gone))
        outcome, reason, document = judge_answer(answer, arguments["source_sha256"])
        return outcome, reason, document, answer["rc"], answer["stderr"]
