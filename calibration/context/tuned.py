# SPDX-License-Identifier: Apache-2.0
"""The active profile of tuned, and whether the machine is as the profile sets it.

Compared are kernel parameters, files of sysfs, the frequency governor and transparent huge pages. Source:
``tuned.conf(5)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibration.context.hardware import Tuned, TunedSetting
from calibration.context.model import Frequency, TransparentHugePages
from calibration.context.tree import Tree
from calibration.runner.devices import MAX_PROFILES, MAX_SETTINGS, PROFILES, TUNED, sections, setting_path
from calibration.text import visible

MAX_SHOWN: Final = 200
"""Characters kept of a name or a value."""

PAGES: Final = ("transparent_hugepages", "transparent_hugepage")


def _shown(text: str) -> str:
    return visible(text[:MAX_SHOWN])


def _path(tree: Tree, name: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name, re.ASCII):
        return None
    places = (f"{directory}/{name}/tuned.conf" for directory in PROFILES)
    return next((place for place in places if tree.exists(place)), None)


def _chain(tree: Tree, active: str) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
    """Return the profiles, those without a file, and the settings as the most specific profile has them."""
    profiles: list[str] = []
    absent: list[str] = []
    settings: dict[tuple[str, str], str] = {}

    def read(name: str) -> None:
        """Merge the profile *name* into the settings, after those that it includes."""
        if name in profiles or name in absent or len(profiles) + len(absent) >= MAX_PROFILES:
            return
        path = _path(tree, name)
        if path is None:
            absent.append(_shown(name))
            return
        profiles.append(name)
        found = list(sections(tree.text(path) or ""))
        for section, key, value in found:
            if section == "main" and key == "include":
                for word in re.split(r"[,;\s]+", value):
                    if word:
                        read(word)
        for section, key, value in found:
            if section not in {"main", "variables"}:
                settings[section, key] = value

    for name in active.split():
        read(name)
    return profiles, absent, settings


def read_tuned(tree: Tree, frequency: Frequency, pages: TransparentHugePages) -> Tuned | None:
    """Return the active profile; None if tuned has none."""
    active = tree.word(f"{TUNED}/active_profile")
    if active is None:
        return None
    profiles, absent, settings = _chain(tree, active)
    met = 0
    differing: list[TunedSetting] = []
    unchecked: list[str] = []
    for name, wanted, found in _compared(tree, settings, frequency, pages):
        if "${" in wanted or "${" in name or found is None:
            unchecked.append(_shown(name))
        elif is_met(wanted, found):
            met += 1
        else:
            differing.append(TunedSetting(name=_shown(name), wanted=_shown(wanted), found=_shown(found)))
    return Tuned(
        active=active,
        mode=tree.word(f"{TUNED}/profile_mode"),
        profiles=tuple(map(visible, profiles)),
        absent=tuple(absent),
        met=met,
        differing=tuple(differing),
        unchecked=tuple(unchecked),
    )


def _compared(
    tree: Tree, settings: dict[tuple[str, str], str], frequency: Frequency, pages: TransparentHugePages
) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, wanted and found value of each setting that can be compared, the found one None if unknown."""
    for (section, name), wanted in list(settings.items())[:MAX_SETTINGS]:
        if section in {"sysctl", "sysfs"}:
            path = setting_path(section, name)
            yield name, wanted, None if path is None else tree.text(path)
        elif (section, name) == ("cpu", "governor"):
            yield "governor", wanted, ", ".join(frequency.governors) or None
        elif section == "vm" and name in PAGES:
            yield "transparent huge pages", wanted, pages.enabled


def chosen(text: str) -> str:
    """Return the word in brackets of a list of choices, ``always [madvise] never``; any other text as it is."""
    match = re.search(r"\[([^\[\]]+)\]", text)
    return match.group(1) if match else text


def is_met(wanted: str, found: str) -> bool:
    """Return whether *found* is what a profile wants.

    ``>N`` and ``<N`` are lower and upper bounds, ``a|b`` alternatives; ``[a]`` is the chosen one of several words.
    """
    bound = re.fullmatch(r"([<>])\s*(-?[0-9]{1,19})", wanted, re.ASCII)
    if bound is not None and re.fullmatch(r"-?[0-9]{1,19}", found, re.ASCII):
        smallest, limit = bound.group(1) == ">", int(bound.group(2))
        return int(found) >= limit if smallest else int(found) <= limit
    return " ".join(chosen(found).split()) in (" ".join(word.strip('"').split()) for word in wanted.split("|"))
