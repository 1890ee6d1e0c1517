# SPDX-License-Identifier: Apache-2.0
"""What the runner on a SUT says of it before a run."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from calibration.base.errors import EnvironmentLacksError
from calibration.base.model import Model, fault_of
from calibration.base.text import visible


class Identity(Model):
    """What SUTs of one testbed are compared by; ``microcode`` has every version in use, empty if unknown.

    ``off`` are the checks that are off for this SUT, which is then not compared in them.
    """

    cpu_model: str | None
    microcode: tuple[str, ...]
    product: str | None
    bios: str | None
    off: tuple[str, ...] = ()


class UnsafePlace(Model):
    """A parent directory of the run's through which another user could replace it."""

    path: str
    reason: str


class RemoteBase(Model):
    """The state of the directory that will hold the run's own."""

    path: str
    exists: bool
    directory: bool
    writable: bool
    noexec: bool | None
    free_bytes: int | None
    unsafe: tuple[UnsafePlace, ...]


class RunningKernel(Model):
    """A sutprobe of another run."""

    pid: int
    path: str


class SutTime(Model):
    """The SUT's clock in s since the epoch around the question, and whether its kernel reports it in sync.

    ``synchronised`` is None, with the reason, if the kernel does not report it.
    """

    began_s: float
    ended_s: float
    synchronised: bool | None
    maximum_error_s: float | None
    reason: str | None


class Facts(Model):
    """The facts about a SUT before a run."""

    system: str
    machine: str
    python_version: str
    uid: int
    remote_base: RemoteBase
    running: tuple[RunningKernel, ...]
    time: SutTime
    identity: Identity
    boot_id: str | None


MAX_LEVELS = 16
"""Most levels of nesting that are read; facts have four."""

MAX_TEXT = 400
"""Most characters of a SUT's text: longer ones are not versions, names or paths."""


def read_facts(answer: Mapping[str, Any]) -> Facts:
    """Return the facts in *answer*. Raises ``EnvironmentLacksError`` for another form."""
    try:
        return Facts.model_validate_json(bounded_json({name: answer.get(name) for name in Facts.model_fields}))
    except ValidationError as error:
        raise EnvironmentLacksError(
            f"invalid answer of the SUT: {fault_of(error)}; check its Python and what its login prints"
        ) from error


def bounded_json(value: Any) -> str:
    """Return *value* as JSON, with texts printable and cut, lists cut, and nothing deeper than ``MAX_LEVELS``."""

    def safe(part: Any, levels: int) -> Any:
        if isinstance(part, str):
            return visible(part[:MAX_TEXT])[:MAX_TEXT]
        if isinstance(part, Mapping) and levels:
            return {str(name)[:MAX_TEXT]: safe(inner, levels - 1) for name, inner in part.items()}
        if isinstance(part, list | tuple) and levels:
            return [safe(inner, levels - 1) for inner in part[:MAX_TEXT]]
        return None if isinstance(part, Mapping | list | tuple) else part

    return json.dumps(safe(value, MAX_LEVELS), default=str)
