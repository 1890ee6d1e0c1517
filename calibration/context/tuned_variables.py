# SPDX-License-Identifier: Apache-2.0
"""Variables and built-in functions of tuned's profiles, and the conditions of their sections.

Expanded are variables, and functions of lists of CPUs and of texts. Others read the machine or run programs on it.
Source: ``tuned/profiles/variables.py``, ``tuned/profiles/functions`` and ``tuned/utils/commands.py`` of TuneD 2.27.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from calibration.base.cpulists import format_cpulist, parse_cpulist, parse_cpumask
from calibration.context.model import CpuSets

MAX_CHARACTERS: Final = 4096
"""Longest value; variables that contain each other double with each one."""

MAX_SEARCHED: Final = 16384
"""Characters in which a condition is searched: a repetition takes time by their square."""

MAX_REGEX: Final = 300
"""Longest regular expression of a condition."""

_VARIABLE = re.compile(r"(?<!\\)\$\{(\w+)\}", re.ASCII)
_FUNCTION = re.compile(r"(?<!\\)\$\{f:([^{}]*)\}")
_ITEM = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9})?", re.ASCII)
_SLOW = re.compile(r"\(\?|\\[1-9]|\)[*+?{]|(?:\.|\]|\\[A-Z])[*+{].*(?:\.|\]|\\[A-Z])[*+{]", re.DOTALL)
"""What may take a regular expression long: look-around, back references, repeated groups, and more than one repetition
of any character."""


class Unknown(Exception):  # noqa: N818 - no fault of the profile
    """What a text stands for is not known here."""


class Variables:
    """The variables of a profile, in the order in which they are set, on a machine with *cpus*."""

    def __init__(self, pairs: Iterable[tuple[str, str]], cpus: CpuSets) -> None:
        self._functions = _functions(frozenset(cpus.online), frozenset(cpus.present or cpus.online))
        self._values: dict[str, str | None] = {}
        for name, value in pairs:
            if re.fullmatch(r"\w+", name, re.ASCII):
                try:
                    self._values[name] = self.expanded(value)
                except Unknown:
                    self._values[name] = None

    def expanded(self, text: str) -> str:
        """Return *text* with the values of its variables and functions. Raises ``Unknown``."""
        text = _VARIABLE.sub(self._variable, text[:MAX_CHARACTERS])
        text = re.sub(r"\\(\$\{\w+\})", r"\1", text)
        while (found := _FUNCTION.search(text)) is not None and len(text) <= MAX_CHARACTERS:
            text = text[: found.start()] + self._function(found.group(1)) + text[found.end() :]
        if "${f:" in text or len(text) > MAX_CHARACTERS:
            raise Unknown
        return text

    def _variable(self, found: re.Match[str]) -> str:
        value = self._values.get(found.group(1), found.group())
        if value is None:
            raise Unknown
        return value

    def _function(self, call: str) -> str:
        name, *arguments = (part.replace(r"\:", ":") for part in re.split(r"(?<!\\):", call))
        if name not in self._functions or any("${" in argument for argument in arguments):
            raise Unknown
        try:
            return self._functions[name](arguments)
        except ValueError as error:
            raise Unknown from error


def _functions(online: frozenset[int], present: frozenset[int]) -> Mapping[str, Callable[[list[str]], str]]:
    def cpus(arguments: list[str]) -> set[int]:
        return _cpus(",,".join(arguments))

    return {
        "strip": lambda arguments: "".join(arguments).strip(),
        "kb2s": lambda arguments: str(int(arguments[0]) * 2),
        "s2kb": lambda arguments: str(round(int(arguments[0]) / 2)),
        "cpulist_unpack": lambda arguments: _unpacked(cpus(arguments)),
        "cpulist_pack": lambda arguments: format_cpulist(cpus(arguments)),
        "cpulist_invert": lambda arguments: _unpacked(online - cpus(arguments)),
        "cpulist_online": lambda arguments: _unpacked(cpus(arguments) & online),
        "cpulist_present": lambda arguments: _unpacked(cpus(arguments) & present),
        "cpulist2devs": lambda arguments: ",".join(f"cpu{cpu}" for cpu in sorted(cpus(arguments))),
        "cpulist2hex": lambda arguments: _mask(cpus(arguments)),
        "cpulist2hex_invert": lambda arguments: _mask(online - cpus(arguments)),
        "hex2cpulist": lambda arguments: _unpacked(parse_cpumask(arguments[0])),
    }


def _cpus(text: str) -> set[int]:
    """Return the CPUs of a list in tuned's notation: masks after ``0x`` up to an empty item, ``^`` or ``!`` excludes.

    Raises ``ValueError``.
    """
    found: set[int] = set()
    excluded: set[int] = set()
    words: list[str] = []
    for item in [*text.strip("'\"").split(","), ""]:
        bare = item.strip()
        if words or bare[:2].lower() == "0x":
            if bare:
                words.append(bare)
                continue
            found.update(parse_cpumask(",".join(words)))
            words = []
        elif bare:
            chosen = excluded if bare[0] in "^!" else found
            if _ITEM.fullmatch(bare.lstrip("^!")) is None:
                raise ValueError(f"not a CPU: {bare[:40]!r}")
            chosen.update(parse_cpulist(bare.lstrip("^!")))
    return found - excluded


def _unpacked(cpus: Iterable[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _mask(cpus: Iterable[int]) -> str:
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def searched(text: str, regex: str) -> bool:
    """Return whether *regex* is found in *text*. Raises ``Unknown`` for one that is invalid, or may take long."""
    if len(regex) > MAX_REGEX or len(re.findall(r"[*+{]", regex)) > 3 or _SLOW.search(regex):
        raise Unknown
    try:
        return re.search(regex, text[:MAX_SEARCHED], re.MULTILINE) is not None
    except (re.error, OverflowError) as error:
        raise Unknown from error
