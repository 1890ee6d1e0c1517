# SPDX-License-Identifier: Apache-2.0
"""CPUs that cpusets isolate: outside the balancing of load, without a boot.

Sources: ``Documentation/admin-guide/cgroup-v2.rst`` (``cpuset.cpus.partition``) and ``cgroup-v1/cpusets.rst``
(``cpuset.sched_load_balance``) of the Linux kernel. The files are read by functions of the caller: a SUT's own, or
those of a capture.
"""

from __future__ import annotations

import typing

MAX_GROUPS = 1000
"""Control groups that are looked at: those beside a partition, where there is one. A machine with thousands of
containers has them in a few groups of their own."""

MAX_DEPTH = 64
"""Most hierarchies of control groups, and most levels of one, that are read; a kernel has a score."""

LISTED = "cpuset.cpus.isolated"
"""File of the root group with all isolated CPUs, since Linux 6.7."""


class Mount(typing.NamedTuple):
    """A mount of control groups: the group at its top, its place, whether it is of version 2, and its options."""

    top: str
    point: str
    unified: bool
    options: frozenset[str]


USUAL = Mount("", "/sys/fs/cgroup", True, frozenset())
"""Where control groups are mounted, if it is not said."""


class Files(typing.NamedTuple):
    """How to read: a file's text, a file's CPUs (both None if missing), and the directories in a directory."""

    text: typing.Callable[[str], typing.Optional[str]]
    cpus: typing.Callable[[str], typing.Optional[typing.Iterable[int]]]
    folders: typing.Callable[[str], typing.Iterable[str]]


def mounts(text: str) -> list[Mount]:
    """Return the mounts of control groups in ``mountinfo``. Other lines are ignored."""
    found = []
    for line in text.splitlines():
        place, _, kind = line.partition(" - ")
        fields, words = place.split(" "), kind.split(" ")
        if len(fields) > 4 and len(words) > 2 and words[0] in ("cgroup", "cgroup2"):
            options = frozenset(words[2].split(","))
            found.append(Mount(fields[3].rstrip("/"), fields[4], words[0] == "cgroup2", options))
    return found


def own_groups(
    text: str, mounted: typing.Iterable[Mount], controller: str | None = None
) -> typing.Iterator[tuple[str, bool]]:
    """Yield the directories of a process's groups and of their ancestors, deepest first; each with whether it is of v2.

    *text* is that of ``/proc/PID/cgroup``. With a *controller*, those of other hierarchies of version 1 are left out.
    """
    for line in text.splitlines()[:MAX_DEPTH]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        wanted = set(controllers.split(","))
        if controller is not None:
            wanted &= {controller}
        for top, point, unified, options in mounted:
            if (number, controllers) != ("0", "") if unified else not wanted & options:
                continue
            # In a container the top that is mounted may be a group far down in the host's tree.
            below = path[len(top) :] if (path + "/").startswith(top + "/") else ""
            parts = [part for part in below.split("/") if part][:MAX_DEPTH]
            if ".." not in parts:
                for length in range(len(parts), -1, -1):
                    yield "/".join([point, *parts[:length]]), unified
                break


def groups(files: Files, top: str, name: str, entered: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return the groups below *top* with the text of their file *name*; groups with a text in *entered* are entered."""
    found: list[tuple[str, str | None]] = []
    waiting = [top]
    while waiting:
        parent = waiting.pop()
        for folder in files.folders(parent):
            if len(found) == MAX_GROUPS:
                return found
            group = parent + "/" + folder
            found.append((group, files.text(group + "/" + name)))
            if found[-1][1] in entered:
                waiting.append(group)
    return found


def isolated(
    online: set[int], own: typing.Iterable[str], mounted: typing.Iterable[Mount], files: Files
) -> tuple[set[int], set[int]]:
    """Return the CPUs that cpusets isolate, and the CPUs of groups that cannot be seen.

    *online* are the CPUs, *own* the directories of the reader's group and its ancestors, *mounted* the mounts.
    """
    found: set[int] = set()
    unknown: set[int] = set()
    for directory in own:  # in a container, all that can be seen
        if files.text(directory + "/cpuset.cpus.partition") == "isolated":
            found.update(files.cpus(directory + "/cpuset.cpus.effective") or ())
    for mount in mounted:
        if mount.unified:
            listed = files.cpus(mount.point + "/" + LISTED)
            if listed is None:
                inside, outside = _partitions(online, mount, files)
                found |= inside
                unknown |= outside
            else:
                found.update(listed)
        elif "cpuset" in mount.options and not mount.top:
            found |= _unbalanced(online, mount, files)
    return found, unknown - found


def _partitions(online: set[int], mount: Mount, files: Files) -> tuple[set[int], set[int]]:
    """Return the CPUs of isolated partitions, and those that the top group lacks for another reason.

    A partition takes its CPUs from those of its parent, which is a partition too: no other group has to be entered.
    """
    found: set[int] = set()
    unknown = online - set(files.cpus(mount.point + "/cpuset.cpus.effective") or online)
    if unknown and not mount.top:
        for group, kind in groups(files, mount.point, "cpuset.cpus.partition", ("root", "isolated")):
            if kind in ("root", "isolated"):  # not "isolated invalid (...)"
                cpus = set(files.cpus(group + "/cpuset.cpus.effective") or ())
                unknown -= cpus
                found |= cpus if kind == "isolated" else set()
    return found, unknown


def _unbalanced(online: set[int], mount: Mount, files: Files) -> set[int]:
    """Return the CPUs of no group of version 1 whose load is balanced: those of children are among their parent's."""
    name = "cpuset.sched_load_balance"

    def cpus(group: str) -> typing.Iterable[int]:
        return files.cpus(group + "/cpuset.effective_cpus") or files.cpus(group + "/cpuset.cpus") or ()

    if files.text(mount.point + "/" + name) != "0" or not online.issubset(cpus(mount.point)):
        return set()  # else the top is that of a container
    seen = groups(files, mount.point, name, ("0",))
    if len(seen) == MAX_GROUPS:
        return set()
    return online.difference(*(cpus(group) for group, state in seen if state == "1"))
