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
import signal
import sys

import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible.plugins.action import ActionBase

ROOT = os.path.abspath(__file__ + "/../../../..")
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from calibration.errors import CalibrationError, EnvironmentLacksError
from calibration.preflight import Check
from calibration.text import message
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
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
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
        """Return the task's arguments. Raises what Ansible raises where they are not as ``SPEC`` says."""
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
    return tuple(model.model_validate_json(json.dumps(each)) for each in given)


def checks_of(given):
    """Return the checks of a SUT that a task returned."""
    return models_of(Check, given)


def changes_of(given):
    """Return the changes of a SUT's settings that a task returned."""
    return models_of(Change, given)


ANSWER_BYTES = 1 << 20
"""Most characters that a SUT may answer with where an action says nothing else; an ordinary one has a few thousand."""

SAID_CHARACTERS = 20_000
"""Characters kept of what a program on a SUT wrote for people: the end of it, where the reason stands."""

REASON_KEPT = 4000
"""Characters of a reason that are kept: it is shown to people, on the page as well."""

GATHERING = 4
"""Gathering an answer takes up to so many times its size: in pieces, joined, as text."""

UNDERSTANDING = 16
"""Understanding an answer takes up to so many times its size: JSON of many small numbers becomes many objects."""

MEMORY_SPARE_BYTES = 32 << 20
"""What a worker may take besides."""

NETWORKED = ("ssh", "paramiko", "paramiko_ssh", "libssh")
"""Connections whose command runs on another machine, so that a limit put on the client does not limit the command."""


class AnswerTooLongError(SutError):
    """A SUT answered with more than any honest one would."""


def taken_bytes():
    """Return the bytes of memory that count against this process's limit on data, or None where nobody can tell."""
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
    taken = taken_bytes()
    if taken is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = taken + wanted_bytes + MEMORY_SPARE_BYTES
    known = [each for each in (soft, hard, wanted) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def end_children():
    """End this process's own children: the client of a connection whose command was given up."""
    own = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    try:
        with open(own) as stream:
            children = [int(child) for child in stream.read().split()]
    except OSError:
        return  # a controller without this file: the client ends when the pipes it holds are closed
    for child in children:
        with contextlib.suppress(OSError):  # ended by itself, or another user's since it became one
            os.kill(child, signal.SIGTERM)


class GivenUp(BaseException):
    """What was asked of a SUT was not over in its time; no ``except Exception`` on the way may keep it."""


def give_up(*_):
    """Interrupt whatever waits for the SUT."""
    raise GivenUp


@contextlib.contextmanager
def backstop(seconds):
    """Raise ``GivenUp`` in the block when it takes longer than *seconds*."""
    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


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
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [encodable(each) for each in value]
    return value


def trimmed(result, returns):
    """Return what of a module's *result* is known and of the kind that *returns* names.

    A module's answer is the SUT's. Ansible itself acts on some keys of it: facts become variables, and outrank those of
    the inventory. The interpreter that Ansible found is kept; it is used on the same SUT alone.
    """
    kept = {
        key: encodable(result[key]) for key, kind in returns.items() if key in result and of_kind(result[key], kind)
    }
    for key in ("failed", "unreachable"):
        if result.get(key):
            kept[key] = True
    for key in ("msg", "module_stderr", "module_stdout"):
        if result.get(key):
            kept[key] = encodable(str(result[key])[-SAID_CHARACTERS:])
    facts = result.get("ansible_facts")
    found = {
        key: value
        for key, value in (facts if isinstance(facts, dict) else {}).items()
        if key.startswith("discovered_interpreter_") and isinstance(value, str)
    }
    return {**kept, "ansible_facts": found} if found else kept


class SutAction(CalibrationAction):
    """An action that asks something of the SUT. What comes back is bounded, and only what is known of it is kept."""

    _requires_connection = True
    ORDERLY = False
    ANSWER_BYTES = ANSWER_BYTES

    @contextlib.contextmanager
    def bounded(self, factor):
        """Raise AnswerTooLongError where the block, which asks the SUT, would fill the controller's memory."""
        # A limit on a client that is itself the parent of the measuring process would limit what is measured.
        networked = self._connection.transport.rsplit(".", 1)[-1] in NETWORKED
        try:
            with bounded_memory(factor * self.ANSWER_BYTES) if networked else contextlib.nullcontext():
                yield
        except MemoryError:
            ended = False
        else:
            ended = True
        if not ended:
            end_children()
            with contextlib.suppress(AnsibleError, OSError):
                self._connection.close()
            raise self.too_long("one that does not end")

    def too_long(self, found):
        """Return the error of an answer that is too long."""
        return AnswerTooLongError(
            f"expected an answer of at most {self.ANSWER_BYTES} bytes from the SUT, found {found}; "
            "find out what prints so much there"
        )

    def _low_level_execute_command(self, *positional, **named):
        """Run a command on the SUT. Raises AnswerTooLongError where it prints more than ``ANSWER_BYTES``."""
        with self.bounded(GATHERING):
            answer = super()._low_level_execute_command(*positional, **named)
            size = len(answer["stdout"]) + len(answer["stderr"])
        if size > self.ANSWER_BYTES:
            raise self.too_long(f"one of {size}")
        return encodable(answer)

    def ask(self, module, arguments):
        """Return what *module* of this project answers on the SUT, without anything that is not documented."""
        try:
            try:
                answer = self.execute(module, arguments)
            except AnsibleConnectionFailure as error:
                # ssh had closed its end before it had the module, and had not ended yet: Ansible then does not wait for
                # what ssh says of it. Nothing ran, and in most cases ssh has its reason still.
                if not isinstance(error.__cause__, BrokenPipeError):
                    raise
                answer = self.execute(module, arguments)
        except AnsibleConnectionFailure as error:
            # A failure, unlike a SUT that is unreachable to Ansible, is followed by its reason, its document, its page.
            raise SutError(f"not reachable: {error}") from error
        return trimmed(answer, documented(module))

    def execute(self, module, arguments):
        """Return all that *module* answers on the SUT."""
        with self.bounded(UNDERSTANDING):
            return self._execute_module(module_name=module, module_args=arguments, task_vars=self.task_vars)

    def say(self, text, color=None):
        """Show *text* about the SUT to whoever watches; a result is seen only when the task is over."""
        self._display.display(message(f"{self.task_vars['inventory_hostname']}: {text}"), color=color)

    @staticmethod
    def said(answer):
        """Return in one sentence how a command on the SUT ended and what it said."""
        text = (answer["stderr"].strip() or answer["stdout"].strip())[-SAID_CHARACTERS:]
        return f"exit code {answer['rc']}" + (f"; it said: {text}" if text else "")
