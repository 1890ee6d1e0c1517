# SPDX-License-Identifier: Apache-2.0
"""The inventory's expectations of a SUT."""

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import Field, ValidationError

from calibration.audit.kinds import KINDS, Item, read_items
from calibration.audit.states import read_state
from calibration.base.errors import InputError
from calibration.base.model import Model, fault_of
from calibration.preflight.checks import CHECKS, Declared


class Expectations(Model):
    """What the inventory expects of a SUT; ``state`` are its settings."""

    state: tuple[Item, ...] = ()
    background_load_max: float = 0.05
    node_free_bytes: int = 0
    time_offset_max_s: float = 2.0
    severity: dict[str, Declared] = Field(default_factory=dict)


SHORT_FORMS: Final = ("kernel_arguments", "kernel_release", "isolated_cpus", "sysctl")
"""Settings with a variable of their own, ``preflight_*``; those in a file replace them."""


def read_expectations(given: Mapping[str, Any]) -> Expectations:
    """Return the expectations in *given*, the variables without their prefix.

    ``expected_state`` is a name, or the path of a file. Numbers may be text, as from ``-e name=value``. Raises
    ``InputError`` with the variable's name, or the file's.
    """
    values = {
        "state": _state(given),
        "background_load_max": _number("background_load_max", given, 1.0),
        "node_free_bytes": int(_number("node_free_bytes", given, 2.0**62)),
        "time_offset_max_s": _number("time_offset_max_s", given, 1e9),
        "severity": _severity(given.get("severity") or {}),
    }
    return Expectations.model_validate(values)


def read_again(given: Mapping[str, Any]) -> Expectations:
    """Return expectations that were read and dumped. Raises ``InputError`` if they are invalid."""
    try:
        return Expectations.model_validate_json(json.dumps(given))
    except ValidationError as error:
        raise InputError(f"invalid expectations of the role preflight: {fault_of(error)}") from error


def _state(given: Mapping[str, Any]) -> tuple[Item, ...]:
    """Return the items of the file, and those of the variables that the file says nothing of."""
    path = given.get("expected_state") or ""
    if not isinstance(path, str):
        raise InputError(f"calibration_expected_state must be a name or the path of a file, not {path!r}")
    of_file = read_state(path).items if path else ()
    named = {item.pattern or item.name for item in of_file}
    short = [
        item
        for name in SHORT_FORMS
        if (value := given.get(name)) not in (None, "", [], {}) and not (isinstance(value, str) and not value.strip())
        for item in read_items({name: value}, "preflight_")
    ]
    order = list(KINDS)
    items = [*of_file, *(item for item in short if (item.pattern or item.name) not in named)]
    return tuple(sorted(items, key=lambda item: order.index(item.kind)))


def _number(name: str, given: Mapping[str, Any], largest: float) -> float:
    default = Expectations.model_fields[name].default
    value = given.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= largest:
        raise InputError(f"preflight_{name} must be a number from 0 to {largest:g}, not {value!r}")
    return number


def _severity(given: Any) -> dict[str, Declared]:
    if not isinstance(given, Mapping):
        raise InputError(f"preflight_severity must map checks to severities, not {given!r}")
    found: dict[str, Declared] = {}
    for name, severity in given.items():
        if name not in CHECKS:
            raise InputError(f"preflight_severity has no check {name!r}, only {', '.join(CHECKS)}")
        word: Any = "off" if severity is False else severity  # YAML reads a bare off as false
        if word not in get_args(Declared):
            raise InputError(
                f"preflight_severity: {name} must be one of {', '.join(get_args(Declared))}, not {severity!r}"
            )
        found[name] = word
    return found
