# SPDX-License-Identifier: Apache-2.0
"""Shared base of the plugins that run on the controller.

Ansible loads plugins by path, so this module adds the package ``calibration`` of its checkout to the path.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import resource
import secrets
import signal
import sys
import time
import traceback

import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible.plugins.action import ActionBase

ROOT = os.path.abspath(__file__ + "/../../../..")
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from calibration.errors import CalibrationError, EnvironmentLacksError
from calibration.preflight.checks import Check
from calibration.shell import framed, unframed
from calibration.text import message, visible
from calibration.tuning import Change


@contextlib.contextmanager
def orderly_end():
    """Turn signals that end a worker into an exception in the block, so that nothing is left half-written.

    Ansible's own handler kills a worker and its children at once. It gets the signal after the block has cleaned up; a
    second signal is ignored until then.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    received = []

    def interrupt(number, _frame):
        for item in numbers:
            signal.signal(item, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in received:
            os.kill(os.getpid(), number)


PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def end_with_controller():
    """Have the kernel end this worker and its children when the controller's process is killed.

    Otherwise a worker whose controller was killed would continue to measure.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class SutError(EnvironmentLacksError):
    """A SUT is lost or answers incorrectly: a fault of neither the settings nor the controller."""


class CalibrationAction(ActionBase):
    """An action on the controller, without a connection to the SUT."""

    _requires_connection = False
    ORDERLY = True
    """Whether an interruption waits for what is being written; not where a command on a SUT is waited for."""

    SPEC = {"argument_spec": {}}
    """Arguments of ``validate_argument_spec``."""

    def arguments(self):
        """Return the task's arguments. Raises Ansible's errors if they do not match ``SPEC``."""
        return self.validate_argument_spec(**self.SPEC)[1]

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


def required(type_, *names):
    """Return the specifications of required arguments of one type."""
    return {name: {"type": type_, "required": True} for name in names}


def models_of(model, given):
    """Return *given*, dictionaries from Ansible, as instances of *model*."""
    return tuple(model.model_validate_json(json.dumps(item)) for item in given)


def checks_of(given):
    """Return the SUT's checks from a task's result."""
    return models_of(Check, given)


def changes_of(given):
    """Return the changes of a SUT's settings from a task's result."""
    return models_of(Change, given)


ANSWER_S = 120.0
"""Default timeout for a SUT. In preflight all SUTs wait for the slowest; the longest answer, the context of 1024 CPUs,
takes a tenth of this."""

ANSWER_BYTES = 1 << 20
"""Default limit on a SUT's answer; an ordinary one has a few thousand characters."""

MAX_OUTPUT = 20_000
"""Characters kept of a program's standard error, from the end, where the reason is."""

MAX_QUOTED = 1500
"""Characters of each of a program's outputs quoted in a reason, so that both fit into ``MAX_REASON``."""

MAX_REASON = 4000
"""Limit on a reason, which is displayed and printed on the page."""

RECEIVE_FACTOR = 4
"""Memory for receiving an answer, as a multiple of its size: in pieces, joined, as text."""

PARSE_FACTOR = 16
"""Memory for parsing an answer, as a multiple of its size: JSON of many small numbers becomes many objects."""

MEMORY_SPARE_BYTES = 32 << 20
"""Other memory of a worker."""

NO_TERMINAL = b"\n"
"""With any input, Ansible requests no terminal on the SUT; a terminal would merge both outputs."""

NETWORKED = ("ssh", "paramiko", "paramiko_ssh", "libssh")
"""Connections whose command runs on another machine, so that a limit on the client does not limit the command."""


class AnswerTooLongError(SutError):
    """A SUT's answer exceeds the limit."""


class ConnectionLostError(SutError):
    """The connection to a SUT failed."""


class NoAnswerError(SutError):
    """A SUT did not answer in time."""


class ShellError(SutError):
    """A SUT did not run a command: refused by its login shell or the program to become another user."""


def data_bytes():
    """Return the memory that counts against this process's data limit, or None if unknown."""
    try:
        with open("/proc/self/status") as stream:
            rows = dict(line.split(":", 1) for line in stream)
        return int(rows["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None  # no such file: the size of an answer is still checked after it arrived


@contextlib.contextmanager
def bounded_memory(wanted_bytes):
    """Raise ``MemoryError`` in the block before it uses much more than *wanted_bytes* of memory.

    Connection plugins collect a SUT's output until it ends, whatever its size; the kernel's limit covers all of them,
    and what is made of the answer.
    """
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)  # freed but still mapped memory would add to the bound
    taken = data_bytes()
    if taken is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = taken + wanted_bytes + MEMORY_SPARE_BYTES
    known = [item for item in (soft, hard, wanted) if item != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def children():
    """Return the process ids of this process's children; empty if the controller does not provide them."""
    try:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as stream:
            return {int(child) for child in stream.read().split()}
    except OSError:
        return set()  # an abandoned client ends when its pipes are closed


class GiveUp(BaseException):
    """A question to a SUT timed out; a BaseException, so that no ``except Exception`` swallows it."""


REPEAT_S = 5.0
"""Python drops an exception raised by a signal in a destructor, so the signal is repeated."""


@contextlib.contextmanager
def backstop(seconds):
    """Raise ``GiveUp`` in the block after *seconds*. A task's own timeout is suspended meanwhile."""
    began, late = time.monotonic(), []

    def give_up(*_):
        late.append(True)
        raise GiveUp

    previous = signal.signal(signal.SIGALRM, give_up)
    other_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_S)
    try:
        yield
    except Exception as error:
        if late:  # the interrupted code converted it to another error
            raise GiveUp from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if other_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other_s - (time.monotonic() - began)), interval_s)


def read_so_far(error):
    """Return both outputs that Ansible's ssh connection had read when *error* interrupted it; empty for others."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_bare_run":
            found = frame.f_locals
            return tuple(
                b"".join(part for part in (found.get(f"b_{name}"), found.get(f"b_tmp_{name}")) if part).decode(
                    "utf-8", "replace"
                )
                for name in ("stdout", "stderr")
            )
    return "", ""


def quoted(stdout, stderr):
    """Return a SUT's output for the end of a reason: both streams, bounded, on one line; empty if there was none."""
    parts = {"stderr": stderr.strip(), "stdout": stdout.strip()}
    return "".join(f"; {name}: {visible(text[-MAX_QUOTED:])}" for name, text in parts.items() if text)


KINDS = {"bool": bool, "dict": dict, "float": (int, float), "int": int, "list": list, "path": str, "str": str}
"""Python types of the types in a module's documentation."""


@functools.cache
def documented_types(module):
    """Return the documented return values of one of this project's modules: names and types."""
    with open(os.path.join(ROOT, "ansible", "plugins", "modules", f"{module}.py")) as stream:
        text = re.search(r'^RETURN = r"""\n(.*?)^"""', stream.read(), re.MULTILINE | re.DOTALL).group(1)
    fields = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - the fast form of the safe one
    return {"changed": bool, **{name: KINDS[field["type"]] for name, field in fields.items()}}


def is_kind(value, kind):
    """Return whether *value* is a plain *kind* or None; a bool is not a number."""
    return value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))


def encodable(value):
    """Return *value* with all texts encodable: lone surrogates are shown as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value


def documented_fields(result, module):
    """Return the documented fields of *module*'s *result* that have the documented type.

    A module's answer is under the SUT's control, and Ansible acts on some keys: facts become variables that override
    the inventory. The interpreter that Ansible found is kept; it is only used on the same SUT.
    """
    known = documented_types(module)
    kept = {key: encodable(result[key]) for key in known if key in result and is_kind(result[key], known[key])}
    for key in ("failed", "unreachable"):
        if result.get(key):
            kept[key] = True
    stdout, stderr = (str(result.get(key) or "") for key in ("module_stdout", "module_stderr"))
    if result.get("failed") and (stdout or stderr):  # the module printed no result
        kept["msg"] = f"{module} had no result: exit code {result.get('rc')}{quoted(stdout, stderr)}"
    elif result.get("msg"):
        kept["msg"] = encodable(str(result["msg"])[-MAX_OUTPUT:])
    facts = result.get("ansible_facts")
    found = {
        key: value
        for key, value in (facts if isinstance(facts, dict) else {}).items()
        if key.startswith("discovered_interpreter_") and isinstance(value, str)
    }
    return {**kept, "ansible_facts": found} if found else kept


class SutAction(CalibrationAction):
    """An action that queries the SUT. Answers are limited in time and size; only known fields are kept."""

    _requires_connection = True
    ORDERLY = False
    ANSWER_S = ANSWER_S
    ANSWER_BYTES = ANSWER_BYTES
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
        except AnsibleConnectionFailure as error:
            # A failure, unlike Ansible's "unreachable", still leads to a reason, a document and a page.
            raise ConnectionLostError(f"not reachable: {error}") from error
        except (AnsibleError, OSError) as error:
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
            with bounded_memory(factor * self.ANSWER_BYTES) if networked else contextlib.nullcontext():
                yield
        except MemoryError:
            pass  # the memory is freed with the exception
        else:
            return
        raise self.too_long()

    def too_long(self):
        """Return the error for an answer that is too long."""
        return AnswerTooLongError(
            f"the SUT's answer exceeds {self.ANSWER_BYTES} bytes: find out what prints so much there"
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
        if len(answer["stdout"]) + len(answer["stderr"]) > self.ANSWER_BYTES:
            raise self.too_long()
        answer = encodable(answer)
        stdout = unframed(answer["stdout"], self.token)
        if stdout is None:
            raise ShellError(
                f"the SUT ran no command: {self.output_of(answer)}; the login's shell must run /bin/sh: set another "
                f"(chsh -s /bin/sh {self._get_remote_user() or 'LOGIN'}) or use another login"
                + (", and allow it to become another user" if self._connection.become else "")
            )
        return {**answer, "stdout": stdout, "stdout_lines": stdout.splitlines()}

    def _transfer_file(self, local_path, remote_path):
        """Copy a file to the SUT, for connections without pipelining."""
        with self.question(f"the copy of {local_path}"), self.bounded(RECEIVE_FACTOR):
            return super()._transfer_file(local_path, remote_path)

    def reconnect(self):
        """Connect to the SUT again."""
        with self.question("the connection"):
            self._connection.reset()

    def command(self, what, script, limit_s=None, in_data=None):
        """Return exit code and output of *script* on the SUT, in Ansible's format."""
        with self.question(what, limit_s):
            return self._low_level_execute_command(script, in_data=in_data)

    def ask(self, module, arguments):
        """Return the answer of *module*, one of this project's, reduced to documented fields."""
        with self.question(module):
            try:
                answer = self.execute(module, arguments)
            except AnsibleConnectionFailure as error:
                # ssh had closed its end before it had the module, and had not ended yet: Ansible then does not wait for
                # what ssh says of it. Nothing ran, and in most cases ssh has its reason still.
                if not isinstance(error.__cause__, BrokenPipeError):
                    raise
                answer = self.execute(module, arguments)
        return documented_fields(answer, module)

    def execute(self, module, arguments):
        """Return the complete answer of *module* on the SUT."""
        with self.bounded(PARSE_FACTOR):
            return self._execute_module(module_name=module, module_args=arguments, task_vars=self.task_vars)

    def say(self, text, color=None):
        """Display *text* about the SUT at once; a result is only shown when the task is over."""
        self._display.display(message(f"{self.task_vars['inventory_hostname']}: {text}"), color=color)

    @staticmethod
    def output_of(answer):
        """Return exit code and output of a command on the SUT."""
        return f"exit code {answer['rc']}{quoted(answer['stdout'], answer['stderr'])}"
