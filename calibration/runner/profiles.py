# SPDX-License-Identifier: Apache-2.0
"""The active profiles of tuned: which files they are in, how tuned merges them, and which files hold their settings.

The capture copies what the controller then reads by the same rules. Source: ``tuned.conf(5)`` and ``tuned/profiles`` of
TuneD 2.27: the locator, the loader, the merger and the class ``Unit``.
"""

from __future__ import annotations

import posixpath
import re
from typing import Callable, Iterator

from calibration.runner import requested_files

TUNED = "/etc/tuned"
SHIPPED = "/usr/lib/tuned"
PROFILES = (TUNED + "/profiles", TUNED, SHIPPED + "/profiles", SHIPPED)
"""Where tuned looks for a profile, in this order: since 2.23 in the subdirectories."""

ACTIVE = (TUNED + "/active_profile", TUNED + "/post_loaded_profile")
"""Names of the active profiles; a later one prevails."""

MAX_PROFILES = 32
"""Profiles of a chain of includes; the deepest that are shipped have about six."""

MAX_SETTINGS = 500
"""Settings of profiles that are looked up."""

PAGES = "/sys/kernel/mm/transparent_hugepage/"
CPU = "/sys/devices/system/cpu"
FILES = {
    ("vm", "transparent_hugepages"): (PAGES + "enabled",),
    ("vm", "transparent_hugepage"): (PAGES + "enabled",),
    ("vm", "transparent_hugepage.defrag"): (PAGES + "defrag",),
    ("vm", "dirty_bytes"): ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"),
    ("vm", "dirty_ratio"): ("/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_bytes"),
    ("vm", "dirty_background_bytes"): ("/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio"),
    ("vm", "dirty_background_ratio"): ("/proc/sys/vm/dirty_background_ratio", "/proc/sys/vm/dirty_background_bytes"),
    ("cpu", "governor"): (CPU + "/cpufreq/policy[0-9]*/scaling_governor",),
    ("cpu", "energy_perf_bias"): (CPU + "/cpu[0-9]*/power/energy_perf_bias",),
    ("cpu", "energy_performance_preference"): (CPU + "/cpufreq/policy[0-9]*/energy_performance_preference",),
    ("cpu", "boost"): (CPU + "/cpufreq/policy[0-9]*/boost",),
    ("cpu", "min_perf_pct"): (CPU + "/intel_pstate/min_perf_pct",),
    ("cpu", "max_perf_pct"): (CPU + "/intel_pstate/max_perf_pct",),
    ("cpu", "no_turbo"): (CPU + "/intel_pstate/no_turbo",),
}
"""Files of the options of the plug-ins vm and cpu. A second file is set to 0 when the first one is written."""


class Section:
    """One section of the merged profile: an instance of a plug-in.

    Of these attributes, those without a default in tuned are None.
    """

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self.name = name
        self.priority = options.pop("priority", None)
        self.plugin = options.pop("type", name)
        self.enabled = options.pop("enabled", "1") in ("True", "true", "1")
        self.replace = options.pop("replace", "0") in ("True", "true", "1")
        self.prepend = options.pop("prepend", "0") in ("True", "true", "1")
        drop = options.pop("drop", None)
        self.drop = [] if drop is None else re.split(r"\s*[,;]\s*", drop)
        self.devices = options.pop("devices", "*")
        self.devices_udev_regex = options.pop("devices_udev_regex", None)
        self.cpuinfo_regex = options.pop("cpuinfo_regex", None)
        self.uname_regex = options.pop("uname_regex", None)
        for script in ("script_pre", "script_post"):
            options.pop(script, None)
        self.options = options

    def update(self, newer: Section) -> None:
        """Merge the section of the same name of a later profile into this one."""
        self.plugin, self.enabled, self.devices = newer.plugin, newer.enabled, newer.devices
        for name in ("priority", "devices_udev_regex", "cpuinfo_regex", "uname_regex"):
            value = getattr(newer, name)
            if value is not None:
                setattr(self, name, value)
        for option in newer.drop:
            self.options.pop(option, None)
        self.options.update(newer.options)

    @property
    def order(self) -> int:
        """The priority: sections with a lower one are applied before."""
        return int(self.priority) if self.priority and re.fullmatch("-?[0-9]{1,9}", self.priority) else 0


def included(text: str) -> list[str]:
    """Return the profiles that an include names; those that a function of tuned names are one word with it."""
    words, depth = [""], 0
    for place, character in enumerate(text):
        depth += (character == "{" and text[place - 1 : place] == "$") - (character == "}" and depth > 0)
        if depth == 0 and (character in ",;" or character.isspace()):
            words.append("")
        else:
            words[-1] += character
    return [word for word in words if word]


class Merged:
    """The active profiles with those they include, merged.

    ``profiles`` are in the order in which they were found, an including one before those it includes; ``absent`` those
    without a file. ``variables`` are in the order in which tuned evaluates them, with those of included files.
    """

    def __init__(self, read: Callable[[str], str | None], active: str) -> None:
        self.profiles: list[str] = []
        self.absent: list[str] = []
        self.sections: dict[str, Section] = {}
        self._variables: dict[str, str] = {}
        self._read = read
        self._loaded: set[str] = set()
        for name in active.split():
            self._load(name)
        self.variables = list(self._flat())

    def _load(self, given: str) -> None:
        """Merge the profile *given*, after those that it includes. A dash before its name makes it optional."""
        name = given.lstrip("-")
        if len(self.profiles) + len(self.absent) >= MAX_PROFILES:
            return
        found = self._found(name)
        if found is None:
            if not given.startswith("-") and name not in self.absent and name not in self.profiles:
                self.absent.append(name)
            return
        path, text = found
        self._loaded.add(path)
        self.profiles.append(name)
        own: dict[str, dict[str, str]] = {}
        for section, key, value in settings_of(text):
            here = re.sub(r"(?<!\\)\$\{i:PROFILE_DIR\}", lambda _: posixpath.dirname(path), value)
            options = own.setdefault(section, {})
            if key:
                options[key] = here
        for word in included(own.pop("main", {}).get("include", "")):
            head, function, _ = word.partition("${")
            # cpu-partitioning${f:...:,more} may add others to one that it names.
            if not function or self._found(head):
                self._load(head)
            if function and word not in self.absent:
                self.absent.append(word)
        for section, options in own.items():
            self._merge(Section(section, options))

    def _found(self, name: str) -> tuple[str, str] | None:
        """Return the path and the text of a profile: the first that is not loaded, as one may include its namesake."""
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
            return None
        for directory in PROFILES:
            path = "%s/%s/tuned.conf" % (directory, name)
            text = None if path in self._loaded else self._read(path)
            if text is not None:
                return path, text
        return None

    def _merge(self, section: Section) -> None:
        if section.plugin == "variables":
            older = {} if section.replace else self._variables
            new = {name: value for name, value in section.options.items() if name not in older}
            known = {name: section.options.get(name, value) for name, value in older.items()}
            self._variables = {**new, **known} if section.prepend else {**known, **new}
        elif section.replace or section.name not in self.sections:
            self.sections[section.name] = section
        else:
            self.sections[section.name].update(section)

    def _flat(self) -> Iterator[tuple[str, str]]:
        for name, value in self._variables.items():
            if name != "include":
                yield name, value
                continue
            path = posixpath.normpath(value)
            if path.startswith((TUNED + "/", SHIPPED + "/")):
                yield from (found[1:] for found in settings_of(self._read(path) or "") if found[1])

    def applied(self) -> list[Section]:
        """Return the sections that are not switched off, in the order in which tuned applies them."""
        return sorted((section for section in self.sections.values() if section.enabled), key=lambda one: one.order)


def settings_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield section, name and value of each setting, as Python's ``configparser`` reads them for tuned.

    A section begins with an empty name: one without settings counts too. Empty lines of a value are dropped.
    """
    section, name, value, indent = "", "", "", 0
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw).rstrip()
        bare = line.strip()
        if not bare or bare[0] == ";":
            continue
        deep = len(line) - len(line.lstrip())
        if name and deep > indent:
            value += "\n" + bare
            continue
        if name:
            yield section, name, value
        name, indent = "", deep
        if bare[0] == "[" and "]" in bare:
            section = bare[1 : bare.rindex("]")]
            yield section, "", ""
        elif "=" in bare:
            name, _, value = (part.strip() for part in bare.partition("="))
    if name:
        yield section, name, value


def setting_path(plugin: str, name: str) -> str | None:
    """Return the file that holds a kernel parameter or a file of sysfs, or a pattern; None if none can be named."""
    if "$" in name or ".." in name:
        return None
    if plugin == "sysctl":
        # As sysctl(8): of a name with both, the first separator counts.
        first = re.search(r"[./]", name)
        if first is not None and first.group(0) == ".":
            name = name.translate(str.maketrans("./", "/."))
        return "/proc/sys/" + name
    path = posixpath.normpath(name)
    if plugin != "sysfs" or not path.startswith("/sys/"):
        return None
    wild = re.search(r"[*?\[{]", path)
    return path if wild is None or requested_files.fault(path) is None else None


def files_of(plugin: str, name: str) -> tuple[str, ...]:
    """Return the files, or patterns of files, that a setting is in or that it changes; the first one holds it."""
    if plugin == "sysctl" and re.search(r"[*?\[]", name):
        return ()
    path = setting_path(plugin, name)
    return FILES.get((plugin, name), ()) if path is None else (path,)


def active_names(read: Callable[[str], str | None]) -> str:
    """Return the names of the active profiles."""
    return " ".join((read(path) or "").strip() for path in ACTIVE)


def collect(collector):
    """Copy the active profile of tuned with those it includes, and the files that hold what they set."""

    def read(path):
        return collector.text(path) if collector.copy(path) else None

    read(TUNED + "/profile_mode")
    merged = Merged(read, active_names(read))
    named = [files_of(section.plugin, name) for section in merged.applied() for name in section.options]
    for files in [files for files in named if files][:MAX_SETTINGS]:
        for pattern in files:
            if re.search(r"[*?\[]", pattern):
                for path in requested_files.matching(collector, pattern):
                    requested_files.copy(collector, path)
            else:
                collector.copy(pattern)
