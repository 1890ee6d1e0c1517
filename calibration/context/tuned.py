# SPDX-License-Identifier: Apache-2.0
"""The active profile of tuned, and whether the machine is as the profile sets it.

Compared are the settings of the plug-ins sysctl, sysfs, vm and cpu that are in files. Source: ``tuned.conf(5)``, and
``tuned/plugins`` and ``tuned/units/manager.py`` of TuneD 2.27.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from calibration.base.comparisons import Kind, choice, chosen, kind_of_file, one_of
from calibration.base.text import visible
from calibration.context.hardware import Tuned, TunedSetting
from calibration.context.model import Capture, CommandLine, CpuSets, Frequency
from calibration.context.topology import CPU
from calibration.context.tree import MAX_FILE_BYTES, Tree
from calibration.context.tuned_variables import Unknown, Variables, searched
from calibration.runner.profiles import MAX_SETTINGS, TUNED, Merged, Section, active_names, files_of

MAX_SHOWN: Final = 200
"""Characters kept of a name or a value."""

MAX_MATCHING: Final = 4096
"""Files of one setting that are compared."""

NAMES: Final[Mapping[tuple[str, str], str]] = {
    ("vm", "transparent_hugepages"): "transparent huge pages",
    ("vm", "transparent_hugepage"): "transparent huge pages",
    ("vm", "transparent_hugepage.defrag"): "defragmentation of transparent huge pages",
}
"""Names of options, where not those in the profile."""

OF_FIRST: Final = frozenset({"min_perf_pct", "max_perf_pct", "no_turbo"})
"""Options of the plug-in cpu that only its first section sets."""

SWITCHES: Final = {"y": "1", "yes": "1", "t": "1", "true": "1", "n": "0", "no": "0", "f": "0", "false": "0"}
"""What the plug-in cpu makes of the value of a switch."""


OF_EACH_CPU: Final = re.compile(r"processor|(?:initial )?apicid|core id|physical id|cpu MHz|bogomips", re.IGNORECASE)
"""Rows of ``/proc/cpuinfo`` in which equal processors differ."""


class _Setting:
    """A setting of a profile: the value wanted, None if unknown, and what was found in each of its files."""

    def __init__(self, name: str, wanted: str | None) -> None:
        self.name, self.wanted = name, wanted
        self.found: dict[str, str] = {}
        self.overridden = False


class _Settings:
    """The settings of the sections that apply to a machine; of several of one file the last one counts."""

    def __init__(
        self, tree: Tree, capture: Capture, cpus: CpuSets, cmdline: CommandLine | None, frequency: Frequency
    ) -> None:
        self._tree, self._cpus = tree, cpus
        self._governors = {cpu: policy.governor for policy in frequency.policies for cpu in policy.cpus}
        policies = tree.matching(f"{CPU}/cpufreq/policy*/scaling_available_governors", MAX_MATCHING)
        self._available = frozenset((tree.text(policies[0]) or "").split() if policies else ())
        self._pages_booted = cmdline is not None and bool(cmdline.values("transparent_hugepage"))
        names = (capture.kernel_name, capture.hostname, capture.kernel_release, capture.kernel_version, capture.machine)
        self._uname = None if capture.machine is None else " ".join(name or "" for name in names)
        self._cpuinfo = _cpuinfo(tree.text("/proc/cpuinfo", MAX_FILE_BYTES))
        self._all: list[_Setting] = []
        self._owners: dict[str, _Setting] = {}

    def of(self, merged: Merged) -> list[_Setting]:
        """Return the settings of *merged*, without those that are overridden in all of their files."""
        variables = Variables(merged.variables, self._cpus)
        free: set[int] | None = set(self._cpus.online)  # None: unknown, as a section before took unknown ones
        first = True
        for section in merged.applied():
            applies = self._applies(section, variables)
            if applies is False:
                continue
            is_cpu = section.plugin == "cpu"
            own = _assigned(section, variables, free) if is_cpu and free is not None else None
            if is_cpu:
                free = None if free is None or own is None or not applies else free - own
            for option, raw in section.options.items():
                wanted = _expanded(variables, raw) if applies and not (is_cpu and own is None) else None
                if not (is_cpu and option in OF_FIRST and not first):
                    self._add(section.plugin, option, wanted, own)
            first = first and not is_cpu
        return [setting for setting in self._all if not setting.overridden]

    def _applies(self, section: Section, variables: Variables) -> bool | None:
        """Return whether the machine is one that *section* is for; None if that is unknown."""
        answers: list[bool | None] = []
        for regex, text in ((section.uname_regex, self._uname), (section.cpuinfo_regex, self._cpuinfo)):
            if regex is not None:
                try:
                    answers.append(None if text is None else searched(text, variables.expanded(regex)))
                except Unknown:
                    answers.append(None)
        return False if False in answers else None if None in answers else True

    def _add(self, plugin: str, option: str, wanted: str | None, own: set[int] | None) -> None:
        files = files_of(plugin, option)
        if not files and plugin not in {"sysctl", "sysfs"} and (plugin, option) != ("cpu", "force_latency"):
            return
        if plugin == "vm" and wanted is not None:
            if option.startswith("dirty_") and wanted.endswith("%"):
                files, wanted = files[::-1] if option.endswith("bytes") else files, wanted[:-1].strip()
            if option in {"transparent_hugepage", "transparent_hugepages"} and self._pages_booted:
                return  # tuned leaves them as they were booted
        if option in {"boost", "no_turbo"} and wanted is not None:
            wanted = SWITCHES.get(wanted.lower(), wanted)
        if (plugin, option) == ("cpu", "governor") and wanted is not None and "|" in wanted:
            # The first one that the driver has.
            wanted = next((name for name in map(str.strip, wanted.split("|")) if name in self._available), None)
        if len(self._all) >= MAX_SETTINGS:
            return
        setting = _Setting(NAMES.get((plugin, option), option), wanted)
        self._all.append(setting)
        for path in files[1:]:
            self._take(path, setting)
        for path, text in self._found(plugin, option, files[:1], own):
            self._take(path, setting)
            setting.found[path] = text

    def _take(self, path: str, setting: _Setting) -> None:
        older = self._owners.get(path)
        if older is not None and older.found.pop(path, None) is not None:
            older.overridden = not older.found
        self._owners[path] = setting

    def _found(
        self, plugin: str, option: str, patterns: tuple[str, ...], own: set[int] | None
    ) -> Iterator[tuple[str, str]]:
        """Yield each file of a setting with its text, of those of CPUs only the section's *own*; all if it is None."""
        if (plugin, option) == ("cpu", "governor"):
            for cpu, governor in self._governors.items():
                if governor is not None and (own is None or cpu in own):
                    yield f"{CPU}/cpu{cpu}/cpufreq/scaling_governor", governor
            return
        for pattern in patterns:
            wild = re.search(r"[*?\[]", pattern) is not None
            for path in self._tree.matching(pattern, MAX_MATCHING)[:MAX_MATCHING] if wild else [pattern]:
                number = re.search(r"/(?:cpu|policy)([0-9]{1,7})/", path) if own is not None else None
                if number is None or own is None or int(number.group(1)) in own:
                    text = self._tree.text(path)
                    if text is not None:
                        yield path, " ".join(text.split())


def _cpuinfo(text: str | None) -> str | None:
    """Return the first processor of ``/proc/cpuinfo``, and in what others differ other than by their numbers."""
    lines: dict[str, None] = {}
    for line in (text or "").splitlines():
        if len(lines) < 32 or not OF_EACH_CPU.match(line):
            lines.setdefault(line)
    return "\n".join(lines) or None


def _expanded(variables: Variables, text: str) -> str | None:
    try:
        value = variables.expanded(text)
    except Unknown:
        return None
    return None if "${" in value else value


def _assigned(section: Section, variables: Variables, free: set[int]) -> set[int] | None:
    """Return the CPUs that tuned gives to a section of the plug-in cpu, of those that are *free*; None if unknown."""
    devices = _expanded(variables, section.devices)
    if devices is None or section.devices_udev_regex is not None:
        return None
    rules = [rule for rule in re.split(r"[\s,]+", devices) if rule]
    wanted = [rule for rule in rules if not rule.startswith("!")] or ["*"]
    barred = [rule[1:] for rule in rules if rule.startswith("!")]
    return {
        cpu
        for cpu in free
        if any(fnmatchcase(f"cpu{cpu}", rule) for rule in wanted)
        and not any(fnmatchcase(f"cpu{cpu}", rule) for rule in barred)
    }


def read_tuned(
    tree: Tree, capture: Capture, cpus: CpuSets, cmdline: CommandLine | None, frequency: Frequency
) -> Tuned | None:
    """Return the active profile; None if tuned has none."""
    active = tree.word(f"{TUNED}/active_profile")
    if active is None:
        return None
    merged = Merged(tree.text, active_names(tree.text))
    met = 0
    differing: list[TunedSetting] = []
    unchecked: list[str] = []
    for setting in _Settings(tree, capture, cpus, cmdline, frequency).of(merged):
        name, wanted = _shown(setting.name), setting.wanted
        if wanted is None or not setting.found:
            unchecked.append(name)
            continue
        wrong = [text for path, text in setting.found.items() if not is_met(wanted, text, kind_of_file(path))]
        if wrong:
            found = ", ".join(dict.fromkeys(map(chosen, wrong)))
            differing.append(TunedSetting(name=name, wanted=_shown(wanted), found=_shown(found)))
        else:
            met += 1
    return Tuned(
        active=active,
        mode=tree.word(f"{TUNED}/profile_mode"),
        profiles=tuple(map(visible, merged.profiles)),
        absent=tuple(map(_shown, merged.absent)),
        met=met,
        differing=tuple(differing),
        unchecked=tuple(unchecked),
    )


def _shown(text: str) -> str:
    return visible(text[:MAX_SHOWN])


def is_met(wanted: str, found: str, kind: Kind = choice) -> bool:
    """Return whether *found*, a value of a *kind*, is what a profile wants.

    ``>N`` and ``<N`` are lower and upper bounds, ``a|b`` alternatives.
    """
    bound = re.fullmatch(r"([<>])\s*(-?[0-9]{1,19})", wanted, re.ASCII)
    if bound is not None and re.fullmatch(r"-?[0-9]{1,19}", found, re.ASCII):
        smallest, limit = bound.group(1) == ">", int(bound.group(2))
        return int(found) >= limit if smallest else int(found) <= limit
    return one_of(kind, (word.strip().strip('"') for word in (wanted, *wanted.split("|"))), found)
