# SPDX-License-Identifier: Apache-2.0
"""The inventory's expectations of a SUT."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import Field

from calibration.cpulists import MAX_ID, parse_cpulist
from calibration.errors import InputError
from calibration.model import Model
from calibration.preflight.checks import CHECKS, Declared


class Expectations(Model):
    """What the inventory expects of a SUT; an empty text means no expectation."""

    kernel_arguments: str = ""
    kernel_release: str = ""
    isolated_cpus: str = ""
    foreign_load_max: float = 0.05
    node_free_bytes: int = 0
    time_offset_max_s: float = 2.0
    effects: dict[str, Declared] = Field(default_factory=dict)


def read_expectations(given: Mapping[str, Any]) -> Expectations:
    """Return the expectations in *given*, the variables without their prefix.

    Numbers may be text, as from ``-e name=value``. Raises ``InputError`` with the variable's name.
    """
    arguments = " ".join(_arguments(given.get("kernel_arguments") or ""))
    values = {
        "kernel_arguments": _text("kernel_arguments", arguments, "a text"),
        "kernel_release": _text("kernel_release", given.get("kernel_release", ""), "a text"),
        "isolated_cpus": _cpu_text(given.get("isolated_cpus", "")),
        "foreign_load_max": _number("foreign_load_max", given, 1.0),
        "node_free_bytes": int(_number("node_free_bytes", given, 2.0**62)),
        "time_offset_max_s": _number("time_offset_max_s", given, 1e9),
        "effects": _effects(given.get("effects") or {}),
    }
    return Expectations.model_validate(values)


def _arguments(given: Any) -> Iterator[str]:
    """Yield the kernel arguments *given* as a text, a list or a mapping, as texts in order.

    Source of the mapping: the variable ``grub`` of CSIT's inventories, and the task of its role ``performance_tuning``
    that makes a command line of it. Values are inserted verbatim, including any further arguments in them.
    """
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | None):
                raise InputError(
                    "preflight_kernel_arguments must map each name to true, a text or a number, not "
                    f"{name!r} to {value!r}"
                )
            yield name if value is True else f"{name}={'' if value is None else value}"
    elif isinstance(given, list | tuple) and all(isinstance(part, str | Mapping) for part in given):
        for part in given:
            yield from _arguments(part)
    else:
        raise InputError(f"preflight_kernel_arguments must be a text, a list or a mapping, not {given!r}")


def _text(name: str, given: Any, wanted: str) -> str:
    if not isinstance(given, str) or not given.replace("\n", " ").isprintable():
        raise InputError(f"preflight_{name} must be {wanted}, not {given!r}")
    return " ".join(given.split())


def _cpu_text(given: Any) -> str:
    text = _text("isolated_cpus", str(given) if isinstance(given, int) else given, "a list of CPUs")
    if text not in ("", "none"):
        try:
            parse_cpulist(text, MAX_ID)
        except ValueError as error:
            raise InputError(f"preflight_isolated_cpus must be CPUs such as 2-7,10, or none: {error}") from error
    return text


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


def _effects(given: Any) -> dict[str, Declared]:
    if not isinstance(given, Mapping):
        raise InputError(f"preflight_effects must map checks to effects, not {given!r}")
    found: dict[str, Declared] = {}
    for name, effect in given.items():
        if name not in CHECKS:
            raise InputError(f"preflight_effects has no check {name!r}, only {', '.join(CHECKS)}")
        word: Any = "off" if effect is False else effect  # YAML reads a bare off as false
        if word not in get_args(Declared):
            raise InputError(
                f"preflight_effects: {name} must be one of {', '.join(get_args(Declared))}, not {effect!r}"
            )
        found[name] = word
    return found
