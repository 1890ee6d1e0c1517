# SPDX-License-Identifier: Apache-2.0
"""Shared base of the actions."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shlex
import signal
from pathlib import Path

import ansible_collections.calibration.harness.plugins.plugin_utils.waiting
import ansible_collections.calibration.harness.plugins.plugin_utils.workers  # noqa: F401 - before a task's worker is forked
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible_collections.calibration.harness.plugins.plugin_utils.outputs import encodable, read_so_far
from ansible_collections.calibration.harness.plugins.plugin_utils.package import COLLECTION
from ansible_collections.calibration.harness.plugins.plugin_utils.privileges import reason
from ansible_collections.calibration.harness.plugins.plugin_utils.processes import (
    GiveUp,
    apart,
    backstop,
    children,
    orderly_end,
)

from ansible import constants as C
from ansible.plugins.action import ActionBase
from calibration.base.bounds import bounded_memory
from calibration.base.errors import (
    ENVIRONMENT,
    AnswerTooLongError,
    CalibrationError,
    ConnectionLostError,
    InputError,
    NoAnswerError,
    SutError,
)
from calibration.base.shell import framed, unframed
from calibration.base.text import message
from calibration.preflight.checks import Check
from calibration.preflight.configuration import configuration_summary, differences
from calibration.preflight.examination import read_examination
from calibration.run.answers import quoted
from calibration.run.remote import Remote
from calibration.run.session import Request


class CalibrationAction(ActionBase):
    """An action on the controller, without a connection to the SUT."""

    _requires_connection = False
    ORDERLY = True
    """Whether an interruption waits for what is being written; not where a command on a SUT is waited for."""

    SPEC = {"argument_spec": {}}
    """Arguments of ``validate_argument_spec``."""

    ROLE_OPTIONS = {}
    """Specifications of the variables that the action takes of its role: as arguments they cost a SUT more."""

    ROLE_PREFIXES = re.compile("")
    """What the names of the variables begin with, and those of the arguments do not."""

    def settings(self):
        """Return the role's variables as arguments. Raises InputError if they do not match ``ROLE_OPTIONS``."""
        given = {name: self.task_vars[name] for name in self.ROLE_OPTIONS if name in self.task_vars}
        validated = ArgumentSpecValidator(self.ROLE_OPTIONS).validate(self._templar.template(given))
        if faults := validated.error_messages:
            raise InputError("\n".join(["Validation of arguments failed:", *faults]))
        return {self.ROLE_PREFIXES.sub("", name): value for name, value in validated.validated_parameters.items()}

    def arguments(self):
        """Return the task's arguments and the variables of the role.

        Raises Ansible's errors if the arguments do not match ``SPEC``, and like ``settings``.
        """
        return {**self.settings(), **self.validate_argument_spec(**self.SPEC)[1]}

    def act(self, arguments):
        """Run the action and return the fields of the result. A ``CalibrationError`` fails the task."""
        raise NotImplementedError

    def run(self, tmp=None, task_vars=None):
        """Return the task's result."""
        result = super().run(tmp, task_vars)
        self.task_vars = task_vars
        try:
            with orderly_end() if self.ORDERLY else contextlib.nullcontext():
                return {**result, "changed": False, **self.act(self.arguments())}
        except CalibrationError as error:
            failure = {"failed": True, "msg": str(error), "exit_code": error.exit_code}
            return {**result, **failure, "of_sut": isinstance(error, SutError)}


def options_of(role):
    """Return the options of a role of the collection."""
    path = os.path.join(COLLECTION, "roles", role, "meta", "argument_specs.yml")
    return DataLoader().load_from_file(path)["argument_specs"]["main"]["options"]


def required(type_, *names):
    """Return the specifications of required arguments of one type."""
    return {name: {"type": type_, "required": True} for name in names}


def dumped(models):
    """Return *models* as plain values for Ansible."""
    return [model.model_dump(mode="json") for model in models]


def restored(form, given):
    """Return the models of *form* that :func:`dumped` made the plain values of a task's result of."""
    return tuple(form.model_validate_json(json.dumps(item)) for item in given)


def checks_of(given):
    """Return the SUT's checks from a task's result."""
    return restored(Check, given)


ANSWER_S = 120.0
"""Default timeout for a SUT. In preflight all SUTs wait for the slowest; the longest answer, the context of 1024 CPUs,
takes a tenth of this."""

ANSWER_BYTES = 1 << 20
"""Default limit on a SUT's answer; an ordinary one has a few thousand characters."""

RECEIVE_FACTOR = 4
"""Memory for receiving an answer, as a multiple of its size: in pieces, joined, as text."""

REFUSED = 3
"""Exit code of the runner that refused; its answer says why."""

NO_TERMINAL = b"\n"
"""With any input, Ansible requests no terminal on the SUT; a terminal would merge both outputs."""

NETWORKED = ("ssh", "paramiko", "paramiko_ssh", "libssh")
"""Connections whose command runs on another machine, so that a limit on the client does not limit the command."""


class ShellError(SutError):
    """A SUT did not run a command: refused by its login shell or the program to become another user."""


class SutAction(CalibrationAction):
    """An action that queries the SUT. Answers are limited in time and size; only known fields are kept."""

    _requires_connection = True
    ORDERLY = False
    ANSWER_S = ANSWER_S
    answer_bytes = ANSWER_BYTES
    asking = False
    """Whether a question is being asked; what Ansible asks on the way to its answer is part of it."""

    token = ""
    """What tells the output of the last command from what the login printed."""

    @contextlib.contextmanager
    def question(self, what, limit_s=None):
        """Query the SUT for *what* in the block; after *limit_s* seconds (default ``ANSWER_S``) hang up.

        Raises NoAnswerError then, ConnectionLostError if the connection fails, SutError for Ansible's errors. All users
        of the connection go through this: ``_low_level_execute_command``, ``_transfer_file`` and ``reconnect``.
        """
        if self.asking:
            yield
            return
        limit_s = self.ANSWER_S if limit_s is None else limit_s
        others = children()
        self.asking = True
        try:
            with backstop(limit_s):
                yield
        except GiveUp as given_up:
            stdout, stderr = read_so_far(given_up)
            output = quoted(unframed(stdout, self.token) or stdout, stderr)
        except AnswerTooLongError:
            self.hang_up(others)
            raise
        except (AnsibleError, OSError) as error:
            if refused := reason(self._connection.become, self.login(), str(error)):
                raise ShellError(refused) from error
            if isinstance(error, AnsibleConnectionFailure):
                # A failure, unlike Ansible's "unreachable", still leads to a reason, a document and a page.
                said = "; ".join(line for part in str(error).splitlines() if (line := part.strip()))
                raise ConnectionLostError(f"not reachable: {said}") from error
            if isinstance(error.__cause__, FileNotFoundError):  # of the controller, such as ssh
                raise ConnectionLostError(f"not reachable: {error}: install it on the controller") from error
            raise SutError(f"{what} failed: {error}") from error
        else:
            return
        finally:
            self.asking = False
        self.hang_up(others)
        raise NoAnswerError(
            f"{what} had no complete answer within {limit_s:g} s{output}; check what keeps the SUT or its connection "
            "busy"
        )

    def hang_up(self, others):
        """Close the connection by ending its client: all children except *others*. The next question reconnects."""
        for child in children() - others:
            with contextlib.suppress(OSError):  # already ended, or another user's by now
                os.kill(child, signal.SIGTERM)
        with contextlib.suppress(AnsibleError, OSError):
            self._connection.close()

    @contextlib.contextmanager
    def bounded(self, factor):
        """Raise AnswerTooLongError if the query in the block would exhaust the controller's memory."""
        # On a local connection the limit would apply to the measuring process.
        networked = self._connection.transport.rsplit(".", 1)[-1] in NETWORKED
        try:
            with bounded_memory(factor * self.answer_bytes) if networked else contextlib.nullcontext():
                yield
        except MemoryError:
            pass  # the memory is freed with the exception
        else:
            return
        raise self.too_long()

    def too_long(self):
        """Return the error for an answer that is too long."""
        return AnswerTooLongError(
            f"the SUT's answer exceeds {self.answer_bytes} bytes: find out what prints so much there"
        )

    def _low_level_execute_command(self, cmd, sudoable=True, in_data=None, **named):
        """Run *cmd* with ``/bin/sh`` on the SUT, whatever the login shell is or prints.

        Raises AnswerTooLongError if the output exceeds ``ANSWER_BYTES``, ShellError if *cmd* was not run.
        """
        if not in_data and self._connection.has_pipelining:
            in_data = NO_TERMINAL
        self.token = secrets.token_hex(8)
        with self.question("a command"), self.bounded(RECEIVE_FACTOR):
            answer = super()._low_level_execute_command(framed(cmd, self.token), sudoable, in_data, **named)
        if len(answer["stdout"]) + len(answer["stderr"]) > self.answer_bytes:
            raise self.too_long()
        answer |= {name: encodable(answer[name]) for name in ("stdout", "stderr")}
        stdout = unframed(answer["stdout"], self.token)
        if stdout is None:
            raise ShellError(
                reason(self._connection.become, self.login(), answer["stdout"] + answer["stderr"], answer["rc"])
                or f"the SUT ran no command: {self.output_of(answer)}; the login's shell must run /bin/sh: set another "
                f"(chsh -s /bin/sh {self.login()}) or use another login"
            )
        lines = {"stdout_lines": stdout.splitlines(), "stderr_lines": answer["stderr"].splitlines()}
        return {**answer, "stdout": stdout, **lines}

    def login(self):
        """Return the login's name."""
        return self._get_remote_user() or "LOGIN"

    def _transfer_file(self, local_path, remote_path):
        """Copy a file to the SUT, for connections without pipelining."""
        with self.question(f"the copy of {local_path}"), self.bounded(RECEIVE_FACTOR):
            return super()._transfer_file(local_path, remote_path)

    def reconnect(self):
        """Connect to the SUT again."""
        with self.question("the connection"):
            self._connection.reset()

    def apart(self, work):
        """Do *work* in a process of its own, with a connection of its own."""
        self._connection.close()  # one that is not ssh's master does not outlive a fork
        return apart(work)

    def request_for(self, arguments, **asked):
        """Return the request for the SUT and run that *arguments* name, with what else is *asked*."""
        return Request(
            results=Path(arguments["results_dir"]),
            testbed=arguments["testbed"],
            sut=arguments["sut"],
            host=self.task_vars["inventory_hostname"],
            run_id=arguments["run_id"],
            **asked,
        )

    def remote(self, base, lock):
        """Return the runner on the SUT."""
        return Remote(
            self.call,
            base=base,
            lock=lock,
            interpreter=self._templar.template(self.task_vars.get("ansible_python_interpreter")),
            reconnect=self.reconnect,
        )

    def call(self, what, script, content, *, limit_s, max_bytes):
        """Return the output of *script* on the SUT with *content* on standard input (``calibration.run.remote``)."""
        self.answer_bytes = max_bytes
        run = self.call_with_input if self._connection.has_pipelining else self.call_with_file
        with self.question(what, limit_s):
            try:
                answer = run(script, content)
            except AnsibleConnectionFailure as error:
                # ssh had closed its end before it had everything, and had not ended yet: Ansible then does not wait for
                # what ssh says of it. Nothing ran, and in most cases ssh has its reason still.
                if not isinstance(error.__cause__, BrokenPipeError):
                    raise
                answer = run(script, content)
        if answer["rc"] not in (0, REFUSED):
            raise SutError(f"{what} failed: {self.output_of(answer)}")
        return answer["stdout"]

    def call_with_input(self, script, content):
        """Run *script* with *content* on its standard input."""
        return self._low_level_execute_command(script, in_data=content)

    def call_with_file(self, script, content):
        """Do the same over a connection that carries no standard input."""
        directory = self._make_tmp_path()
        try:
            path = self._connection._shell.join_path(directory, "content")
            self._transfer_data(path, content)
            self._fixup_perms2((directory, path), execute=False)
            return self._low_level_execute_command(f"{{ {script}; }} < {shlex.quote(path)}")
        finally:
            self._remove_tmp_path(directory)

    @contextlib.contextmanager
    def turn(self, boot_id, lock):
        """Wait, before the block, for the other SUTs of this command with this kernel and *lock*: one at a time.

        They are containers, or names, of one machine. They would disturb each other, or find it reserved.
        """
        if boot_id is None:
            yield
            return
        name = hashlib.sha256(f"{boot_id} {lock}".encode()).hexdigest()
        # All workers of a command share this directory, which ends with it.
        with open(os.path.join(C.DEFAULT_LOCAL_TMP, f"turn-{name}"), "ab") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("waits for another SUT of the same machine")
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def examination(self, preflight, arguments):
        """Return the function that examines the captured SUT, by the results of the role preflight."""
        testbeds = self.task_vars.get(arguments["testbeds"])
        if testbeds and preflight.get("known"):
            identities = testbeds["identities"][arguments["testbed"]]
            preflight = {**preflight, "known": {**preflight["known"], "identities": identities}}
        return read_examination(preflight)

    def show(self, checks, left):
        """Display the failed *checks* that do not refuse the SUT, and what a run would restore first."""
        for line in differences([check for check in checks if check.severity == "flag"]):
            self.say(line, C.COLOR_WARN)
        if any(check.configured for check in checks):
            self.say(configuration_summary(checks))
        if left is not None:
            self.say(left, C.COLOR_WARN)

    def unfit(self, reason, given, arguments):
        """Return the result *given* of a SUT that must not be measured, and say why; it fails if it is required."""
        failed = {"failed": True, "msg": reason, "exit_code": ENVIRONMENT} if arguments["required"] else {}
        if not failed:
            self.say(reason, C.COLOR_ERROR)
        return {**given, "fit": False, "reason": reason, **failed}

    def say(self, text, color=None):
        """Display *text* about the SUT at once; a result is only shown when the task is over."""
        self._display.display(message(f"{self.task_vars['inventory_hostname']}: {text}"), color=color)

    @staticmethod
    def output_of(answer):
        """Return exit code and output of a command on the SUT."""
        return f"exit code {answer['rc']}{quoted(answer['stdout'], answer['stderr'])}"
