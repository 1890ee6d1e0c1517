# SPDX-License-Identifier: Apache-2.0
"""Settings that a run was asked to change on a SUT, and whether they were restored."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from calibration.errors import EnvironmentLacksError, InputError
from calibration.model import Model


class Change(Model):
    """One setting of a SUT that a run changed, in the SUT's own terms.

    ``where`` is a path on the SUT or the name of a unit. ``after`` was read back after the change, ``restored`` after
    restoring; ``None`` if that is not known to have happened.
    """

    setting: str
    where: str
    before: str
    wanted: str
    after: str
    restored: str | None
    restored_by: Literal["run", "cleanup"] | None


MAX_CHANGES = 20_000
"""Most changes accepted from one SUT: each of 8192 CPUs can have two settings of its own."""

MAX_TEXT = 4096
"""Longest text accepted in a change: the numbers of its CPUs."""

WORDS = {"turbo": ("on", "off"), "prefetchers": ("on", "off"), "irqbalance": ("stopped",)}
"""Allowed values of settings with fixed values."""

HUGE_PAGES = ("hugepages_2m", "hugepages_1g")

SETTINGS = (*HUGE_PAGES, "governor", *WORDS)
"""All settings that a run may change. Each needs its own consent."""


def wanted_settings(settings: Mapping[str, Any], consent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested ones of *settings*, in the SUT side's form.

    Empty values are not requested. Raises ``InputError`` for an invalid value, and for a setting without consent.
    """
    wanted: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise InputError(f"unknown setting {name!r}; known: {', '.join(SETTINGS)}")
        if value is None or value in ("", {}):
            continue
        wanted[name] = _pages(name, value) if name in HUGE_PAGES else _word(name, value)
        if consent.get(name) is not True:
            raise InputError(
                f"tune_{name} is set without tune_{name}_ok: true: give consent to the change, or remove tune_{name}"
            )
    return wanted


def _pages(name: str, value: Any) -> dict[str, int]:
    try:
        counts = {int(str(node)): int(str(count)) for node, count in value.items()}
    except (AttributeError, ValueError):
        counts = {-1: -1}
    if any(node < 0 or count < 0 for node, count in counts.items()):
        raise InputError(
            f"tune_{name} must map nodes to numbers of huge pages, as in {{0: 512, 1: 512}}, not {value!r}"
        )
    return {str(node): count for node, count in counts.items()}


def _word(name: str, value: Any) -> str:
    # YAML reads a bare on and off as truth values.
    word = {"true": "on", "false": "off"}.get(str(value).lower(), str(value)) if name in WORDS else str(value)
    known = WORDS.get(name)
    if known is not None and word not in known:
        raise InputError(f"tune_{name} must be {' or '.join(known)}, not {value!r}")
    if not re.fullmatch("[a-z_0-9]{1,64}", word):
        raise InputError(f"tune_{name} must be a word of lower-case letters, not {value!r}")
    return word


def read_changes(raw: Sequence[Any]) -> tuple[Change, ...]:
    """Return the changes in a SUT's answer. Raises ``EnvironmentLacksError`` if they are invalid."""
    if len(raw) > MAX_CHANGES:
        raise EnvironmentLacksError(f"the SUT reported {len(raw)} changes, more than {MAX_CHANGES}")
    try:
        changes = tuple(Change.model_validate(change) for change in raw)
    except ValidationError as error:
        raise EnvironmentLacksError(f"invalid changes in the SUT's answer: {error.errors()[0]['msg']}") from error
    longest = max((len(text or "") for change in changes for text in change.model_dump().values()), default=0)
    if longest > MAX_TEXT:
        raise EnvironmentLacksError(f"a text in the SUT's changes has {longest} characters, more than {MAX_TEXT}")
    return changes
