# SPDX-License-Identifier: Apache-2.0
"""What the plugins that run on the controller have in common.

Ansible loads plugins by path, so this module finds the package ``calibration`` of the checkout it lies in.
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
    """Turn the signals that end a worker into an exception in the block, so that nothing half-written stays.

    Ansible's own handler ends a worker, and what it started, on the spot. It gets the signal once the block has tidied
    up; a second signal is ignored until then.
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
    """Have the kernel end this worker, and with it what it started, when the controller's process is killed.

    Without it a worker whose controller was killed would go on measuring for nobody.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class SutError(EnvironmentLacksError):
    """A SUT is lost, or answers as none should: neither the settings nor the controller can help that."""


class CalibrationAction(ActionBase):
    """An action that is done on the controller; it needs no connection to the SUT."""

    _requires_connection = False
    ORDERLY = True
    """Whether an interruption waits for what is being written; not where a command on a SUT is waited for."""

    SPEC = {"argument_spec": {}}
    """Arguments of ``validate_argument_spec``."""

    def arguments(self):
        """Return the task's arguments. Raises what Ansible raises if they are not as ``SPEC`` says."""
        return self.validate_argument_spec(**self.SPEC)[1]

    def act(self, arguments):
        """Do it and return the fields of the result. A ``CalibrationError`` becomes the task's failure."""
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


def models_of(model, given):
    """Return *given*, dictionaries as Ansible carries them, as instances of *model*."""
    return tuple(model.model_validate_json(json.dumps(item)) for item in given)


def checks_of(given):
    """Return the checks of a SUT that a task returned."""
    return models_of(Check, given)


def changes_of(given):
    """Return the changes of a SUT's settings that a task returned."""
    return models_of(Change, given)


ANSWER_S = 120.0
"""Seconds until a SUT is given up where an action says nothing else. In preflight all SUTs wait for the slowest; the
longest answer, the context of 1024 CPUs, takes a tenth of that."""

ANSWER_BYTES = 1 << 20
"""Most characters that a SUT may answer with where an action says nothing else; an ordinary one has a few thousand."""

SAID_CHARACTERS = 20_000
"""Characters kept of what a program on a SUT wrote for people: the end of it, where the reason stands."""

QUOTED_CHARACTERS = 1500
"""Characters of each of a program's outputs that go into a reason: the end, so that both fit into ``REASON_KEPT``."""

REASON_KEPT = 4000
"""Characters of a reason that are kept: it is shown to people, on the page as well."""

GATHERING = 4
"""Gathering an answer takes up to so many times its size: in pieces, joined, as text."""

UNDERSTANDING = 16
"""Understanding an answer takes up to so many times its size: JSON of many small numbers becomes many objects."""

MEMORY_SPARE_BYTES = 32 << 20
"""What a worker may take besides."""

NO_TERMINAL = b"\n"
"""Any input makes Ansible ask for no terminal on the SUT: through one, both outputs arrive as one."""

NETWORKED = ("ssh", "paramiko", "paramiko_ssh", "libssh")
"""Connections whose command runs on another machine, so that a limit put on the client does not limit the command."""


class AnswerTooLongError(SutError):
    """A SUT answered with more than any honest one would."""


class ConnectionLostError(SutError):
    """The connection to a SUT failed."""


class NoAnswerError(SutError):
    """A SUT did not answer in time."""


class ShellError(SutError):
    """A SUT did not run a command: its login shell, or what becomes another user, refused it."""


def taken_bytes():
    """Return the bytes of memory that count against this process's limit on data, or None if nobody can tell."""
    try:
        with open("/proc/self/status") as stream:
            rows = dict(line.split(":", 1) for line in stream)
        return int(rows["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None  # a controller without this file: the size of an answer is still checked once it is there


@contextlib.contextmanager
def bounded_memory(wanted_bytes):
    """Have a ``MemoryError`` raised in the block before it takes much more than *wanted_bytes* of memory.

    Connection plugins gather what a SUT prints until it ends, however much that is; the limit is the kernel's, so that
    it holds for every one of them, and for what is made of the answer.
    """
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that is still mapped would come on top of the bound
    taken = taken_bytes()
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
    """Return the process ids of this process's own children; none on a controller that does not tell."""
    try:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as stream:
            return {int(child) for child in stream.read().split()}
    except OSError:
        return set()  # a client that is given up ends when the pipes it holds are closed


class GivenUp(BaseException):
    """What was asked of a SUT was not over in its time; no ``except Exception`` on the way may keep it."""


REPEAT_S = 5.0
"""Python drops an exception that a signal raises in a destructor, so the signal comes again."""


@contextlib.contextmanager
def backstop(seconds):
    """Raise ``GivenUp`` in the block when it takes longer than *seconds*. A task's own timeout is put off meanwhile."""
    began, late = time.monotonic(), []

    def give_up(*_):
        late.append(True)
        raise GivenUp

    previous = signal.signal(signal.SIGALRM, give_up)
    other_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_S)
    try:
        yield
    except Exception as error:
        if late:  # what was interrupted made another error of it
            raise GivenUp from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if other_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other_s - (time.monotonic() - began)), interval_s)


def read_so_far(error):
    """Return what Ansible's ssh connection had read of both outputs when *error* interrupted it; empty for others."""
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
    """Return what a SUT said, for the end of a reason: both outputs, bounded, on one line; nothing if it was silent."""
    parts = {"stderr": stderr.strip(), "stdout": stdout.strip()}
    return "".join(f"; {name}: {visible(text[-QUOTED_CHARACTERS:])}" for name, text in parts.items() if text)


KINDS = {"bool": bool, "dict": dict, "float": (int, float), "int": int, "list": list, "path": str, "str": str}
"""Types in Python of the types that a module's documentation names."""


@functools.cache
def documented(module):
    """Return what the documentation of one of this project's modules says that it returns: names and types."""
    with open(os.path.join(ROOT, "ansible", "plugins", "modules", f"{module}.py")) as stream:
        text = re.search(r'^RETURN = r"""\n(.*?)^"""', stream.read(), re.MULTILINE | re.DOTALL).group(1)
    fields = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - the fast form of the safe one
    return {"changed": bool, **{name: KINDS[field["type"]] for name, field in fields.items()}}


def of_kind(value, kind):
    """Return whether *value* is a plain *kind*, or not known; a truth value is no number."""
    return value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))


def encodable(value):
    """Return *value* with every text in it such that it can be written: half a character is shown as its escape."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value


def trimmed(result, module):
    """Return what of the *result* of *module* is documented and of the documented type.

    A module's answer is the SUT's. Ansible itself acts on some keys of it: facts become variables, and outrank those of
    the inventory. The interpreter that Ansible found is kept; it is used on the same SUT alone.
    """
    known = documented(module)
    kept = {key: encodable(result[key]) for key in known if key in result and of_kind(result[key], known[key])}
    for key in ("failed", "unreachable"):
        if result.get(key):
            kept[key] = True
    stdout, stderr = (str(result.get(key) or "") for key in ("module_stdout", "module_stderr"))
    if result.get("failed") and (stdout or stderr):  # the module printed no result
        kept["msg"] = f"{module} had no result: exit code {result.get('rc')}{quoted(stdout, stderr)}"
    elif result.get("msg"):
        kept["msg"] = encodable(str(result["msg"])[-SAID_CHARACTERS:])
    facts = result.get("ansible_facts")
    found = {
        key: value
        for key, value in (facts if isinstance(facts, dict) else {}).items()
        if key.startswith("discovered_interpreter_") and isinstance(value, str)
    }
    return {**kept, "ansible_facts": found} if found else kept


class SutAction(CalibrationAction):
    """An action that asks something of the SUT. An answer is bounded in time and size; only known parts are kept."""

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
        """Ask the SUT *what* in the block. After *limit_s* seconds in all (``ANSWER_S``) the connection is ended.

        Raises NoAnswerError then, ConnectionLostError if the connection fails, SutError if Ansible does. All that
        use the connection ask here: ``_low_level_execute_command``, ``_transfer_file`` and ``reconnect``.
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
        except GivenUp as given_up:
            stdout, stderr = read_so_far(given_up)
            said = quoted(unframed(stdout, self.token) or stdout, stderr)
        except AnswerTooLongError:
            self.hang_up(others)
            raise
        except AnsibleConnectionFailure as error:
            # A failure, unlike a SUT that is unreachable to Ansible, is followed by its reason, its document, its page.
            raise ConnectionLostError(f"not reachable: {error}") from error
        except (AnsibleError, OSError) as error:
            raise SutError(f"{what} failed: {error}") from error
        else:
            return
        finally:
            self.asking = False
        self.hang_up(others)
        raise NoAnswerError(
            f"{what} had no complete answer within {limit_s:g} s{said}; check what keeps the SUT or its connection busy"
        )

    def hang_up(self, others):
        """End the connection with its client: all children but *others*. The next question connects again."""
        for child in children() - others:
            with contextlib.suppress(OSError):  # ended by itself, or another user's since it became one
                os.kill(child, signal.SIGTERM)
        with contextlib.suppress(AnsibleError, OSError):
            self._connection.close()

    @contextlib.contextmanager
    def bounded(self, factor):
        """Raise AnswerTooLongError if the block, which asks the SUT, would fill the controller's memory."""
        # A limit on a client that is itself the parent of the measuring process would limit what is measured.
        networked = self._connection.transport.rsplit(".", 1)[-1] in NETWORKED
        try:
            with bounded_memory(factor * self.ANSWER_BYTES) if networked else contextlib.nullcontext():
                yield
        except MemoryError:
            pass  # what holds the memory is let go with the exception
        else:
            return
        raise self.too_long("one that does not end")

    def too_long(self, found):
        """Return the error of an answer that is too long."""
        return AnswerTooLongError(
            f"expected an answer of at most {self.ANSWER_BYTES} bytes from the SUT, found {found}; "
            "find out what prints so much there"
        )

    def _low_level_execute_command(self, cmd, sudoable=True, in_data=None, **named):
        """Run *cmd* by ``/bin/sh`` on the SUT, whichever shell the login has and whatever that prints.

        Raises AnswerTooLongError if it prints more than ``ANSWER_BYTES``, and ShellError if it was not run.
        """
        if not in_data and self._connection.has_pipelining:
            in_data = NO_TERMINAL
        self.token = secrets.token_hex(8)
        with self.question("a command"), self.bounded(GATHERING):
            answer = super()._low_level_execute_command(framed(cmd, self.token), sudoable, in_data, **named)
            size = len(answer["stdout"]) + len(answer["stderr"])
        if size > self.ANSWER_BYTES:
            raise self.too_long(f"one of {size}")
        answer = encodable(answer)
        stdout = unframed(answer["stdout"], self.token)
        if stdout is None:
            raise ShellError(
                f"the SUT ran no command: {self.said(answer)}; the login's shell must run /bin/sh: set another one "
                f"(chsh -s /bin/sh {self._get_remote_user() or 'LOGIN'}) or use another login"
                + (", and allow it to become another user" if self._connection.become else "")
            )
        return {**answer, "stdout": stdout, "stdout_lines": stdout.splitlines()}

    def _transfer_file(self, local_path, remote_path):
        """Copy a file to the SUT, for connections without pipelining."""
        with self.question(f"the copy of {local_path}"), self.bounded(GATHERING):
            return super()._transfer_file(local_path, remote_path)

    def reconnect(self):
        """Connect to the SUT again."""
        with self.question("the connection"):
            self._connection.reset()

    def command(self, what, script, limit_s=None, in_data=None):
        """Return how *script* ended on the SUT and what it printed, as Ansible returns it."""
        with self.question(what, limit_s):
            return self._low_level_execute_command(script, in_data=in_data)

    def ask(self, module, arguments):
        """Return what *module* of this project answers on the SUT, without anything that is not documented."""
        with self.question(module):
            try:
                answer = self.execute(module, arguments)
            except AnsibleConnectionFailure as error:
                # ssh had closed its end before it had the module, and had not ended yet: Ansible then does not wait for
                # what ssh says of it. Nothing ran, and in most cases ssh has its reason still.
                if not isinstance(error.__cause__, BrokenPipeError):
                    raise
                answer = self.execute(module, arguments)
        return trimmed(answer, module)

    def execute(self, module, arguments):
        """Return all that *module* answers on the SUT."""
        with self.bounded(UNDERSTANDING):
            return self._execute_module(module_name=module, module_args=arguments, task_vars=self.task_vars)

    def say(self, text, color=None):
        """Show *text* about the SUT to whoever watches; a result is seen only when the task is over."""
        self._display.display(message(f"{self.task_vars['inventory_hostname']}: {text}"), color=color)

    @staticmethod
    def said(answer):
        """Return how a command on the SUT ended and what it said."""
        return f"exit code {answer['rc']}{quoted(answer['stdout'], answer['stderr'])}"
