# SPDX-License-Identifier: Apache-2.0
"""Settings that a run was asked to change on a SUT, and whether they were restored."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from calibration.base.cpulists import parse_cpulist
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.model import Model
from calibration.base.text import visible
from calibration.runner.settings import group_changes
from calibration.runner.settings import not_restored as words


class SettingChange(Model):
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

    @property
    def is_restored(self) -> bool:
        """Whether the value is what it was."""
        return self.restored == self.before


class Unrestored(Model):
    """A setting of a SUT that a run changed and that is not known to be restored.

    ``wanted`` is its value before the run, ``found`` the one read last, ``None`` if unknown; ``error`` says why it is
    not restored, ``None`` if the machine gave no reason. Without a ``setting``, ``where`` is a file or directory of the
    run on the SUT that keeps settings from being restored.
    """

    setting: str | None
    where: str
    wanted: str | None
    found: str | None
    error: str | None


Place = tuple[str | None, str]
"""A setting and where it is, of one CPU or node."""

MAX_CHANGES = 32_768
"""Most changes accepted from one SUT: each of 8192 CPUs can have four settings of its own."""

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


R = TypeVar("R", SettingChange, Unrestored)


def read_changes(raw: Any) -> tuple[SettingChange, ...]:
    """Return the changes in a SUT's answer. Raises ``EnvironmentLacksError`` if they are invalid."""
    return _read(SettingChange, raw)


def read_unrestored(raw: Any) -> tuple[Unrestored, ...]:
    """Return what a SUT's answer says is not restored. Raises ``EnvironmentLacksError`` if it is invalid."""
    return tuple(
        item.model_copy(update={"error": item.error and visible(item.error)}) for item in _read(Unrestored, raw)
    )


def _read(model: type[R], raw: Any) -> tuple[R, ...]:
    if not isinstance(raw, list):
        raise EnvironmentLacksError("invalid changes in the SUT's answer: not a list")
    if len(raw) > MAX_CHANGES:
        raise EnvironmentLacksError(f"the SUT reported {len(raw)} changes, more than {MAX_CHANGES}")
    try:
        found = tuple(model.model_validate(item) for item in raw)
    except ValidationError as error:
        raise EnvironmentLacksError(f"invalid changes in the SUT's answer: {error.errors()[0]['msg']}") from error
    longest = max((len(text or "") for item in found for text in item.model_dump().values()), default=0)
    if longest > MAX_TEXT:
        raise EnvironmentLacksError(f"a text in the SUT's changes has {longest} characters, more than {MAX_TEXT}")
    count = sum(len(_places(item)) for item in found)
    if count > MAX_CHANGES:
        raise EnvironmentLacksError(f"the SUT reported changes at {count} places, more than {MAX_CHANGES}")
    return found


# What is known of each place

GROUP: Final = re.compile(r"(.*)\{([0-9,-]+)\}(.*)")
"""Form of a place of several CPUs, policies or nodes."""


def _places(item: SettingChange | Unrestored) -> tuple[Place, ...]:
    """Return the single places of *item*."""
    match = GROUP.fullmatch(item.where)
    try:
        numbers = parse_cpulist(match[2]) if match else ()
    except ValueError:
        match = None
    return (
        tuple((item.setting, f"{match[1]}{number}{match[3]}") for number in numbers)
        if match
        else ((item.setting, item.where),)
    )


def _by_place(items: Iterable[R]) -> Iterator[tuple[Place, R]]:
    return ((place, item) for item in items for place in _places(item))


def _grouped(model: type[R], by_place: Iterable[tuple[Place, R]]) -> tuple[R, ...]:
    """Return the items *by_place*, those that differ only in the number of a CPU, policy or node as one."""
    singles = [{**dict(item), "where": where} for (_, where), item in by_place]
    return tuple(map(model.model_validate, group_changes(singles)))


def merged(known: Sequence[SettingChange], later: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return the changes *known* so far with what is known of them *later*; none is forgotten.

    What was restored keeps who restored it first.
    """
    if not known or not later:
        return tuple(known or later)
    found = dict(_by_place(known))
    for place, change in _by_place(later):
        earlier = found.get(place)
        if earlier is None or not (earlier.is_restored and change.is_restored):
            found[place] = change
    return _grouped(SettingChange, found.items())


def seen_again(known: Sequence[SettingChange], later: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return the changes *known*, as restored where *later* ones of the same place found the value before them."""
    if not later or all(change.is_restored for change in known):
        return tuple(known)
    seen = {(place, change.before) for place, change in _by_place(later)}
    found = [
        (place, change.model_copy(update={"restored": change.before}) if (place, change.before) in seen else change)
        for place, change in _by_place(known)
    ]
    return _grouped(SettingChange, found)


def unrestored(changes: Sequence[SettingChange], faults: Sequence[Unrestored]) -> tuple[Unrestored, ...]:
    """Return what is not restored: the reported *faults*, and those of *changes* that no fault is reported for."""
    restored = {place for place, change in _by_place(changes) if change.is_restored}
    told = {place: fault for place, fault in _by_place(faults) if place not in restored}
    for place, change in _by_place(changes):
        if not change.is_restored and place not in told:
            wanted = {"wanted": change.before, "found": change.restored, "error": None}
            told[place] = Unrestored(setting=change.setting, where=change.where, **wanted)
    return _grouped(Unrestored, told.items())


def not_restored(faults: Iterable[Unrestored]) -> str:
    """Return what is not restored, in words."""
    return words([dict(fault) for fault in faults])
