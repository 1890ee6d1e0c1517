# SPDX-License-Identifier: Apache-2.0
"""Online CPUs, cores and shared caches.

Reads kernels from 2.6 on: masks if ``*_list`` files do not exist yet, ``/proc/cpuinfo`` and the device tree if
``topology`` does not exist.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from calibration.base.cpulists import MAX_ID, format_cpulist, parse_cpulist, parse_cpumask
from calibration.context import cpuinfo
from calibration.context.cpuinfo import CpuInfo
from calibration.context.model import Cache, Core, CpuSets, Topology
from calibration.context.tree import Tree, count, integer

CPU = "/sys/devices/system/cpu"
_SIZE = re.compile(r"([0-9]{1,12})\s*([KMG]?)B?", re.ASCII)
_NO_SMT_ARCHITECTURES = frozenset({"arm", "parisc"})
"""Architectures without SMT."""


def parse_size(text: str) -> int:
    """Parse ``32K``, ``1M``, ``36608K`` or plain bytes, as in the cache files. Raises ``ValueError``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size such as 32K: {text[:40]!r}")
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)]


def read_set(
    tree: Tree, directory: str, list_names: tuple[str, ...], mask_names: tuple[str, ...]
) -> tuple[int, ...] | None:
    """Return the CPUs of the first usable list file, else the first usable mask file, of a directory.

    None if there is neither.
    """
    for name in list_names:
        found = tree.parse(f"{directory}/{name}", parse_cpulist)
        if found is not None:
            return found
    for name in mask_names:
        found = tree.parse(f"{directory}/{name}", parse_cpumask)
        if found is not None:
            return found
    return None


def _not_empty(text: str) -> tuple[int, ...]:
    found = parse_cpulist(text)
    if not found:
        raise ValueError("an empty list")
    return found


def _online_from_directories(tree: Tree, info: CpuInfo | None) -> tuple[int, ...]:
    """Return the CPUs with a ``cpuN`` directory that are not offline.

    A CPU without an ``online`` file cannot be taken offline, so it is online; unless the kernel describes the topology
    of other CPUs but not of this one, or ``/proc/cpuinfo``, which lists online CPUs only, lacks it.
    """
    numbers = tree.numbered(CPU, "cpu", MAX_ID)
    with_topology = {n for n in numbers if tree.exists(f"{CPU}/cpu{n}/topology")}
    online = []
    for number in numbers:
        state = tree.parse(f"{CPU}/cpu{number}/online", count)
        if state is None:
            if with_topology and number not in with_topology:
                continue
            if info is not None and info.cpus and number not in info.cpus:
                continue
        elif not state:
            continue
        online.append(number)
    return tuple(online)


def read_cpu_sets(
    tree: Tree, info: CpuInfo | None, allowed: tuple[int, ...] | None, cpuset: tuple[int, ...] | None
) -> CpuSets:
    """Return the possible, present, online and offline CPUs.

    Online comes from ``cpu/online``; if that is missing or unusable, from the ``cpuN`` directories and their ``online``
    files, then from ``/proc/cpuinfo``, then from the nodes' CPU lists (online CPUs only). It is unusable too if it
    lacks CPUs of the process's cpuset, which are online: lxcfs shows a container as many CPUs as it has, numbered
    from 0.
    """
    possible = tree.parse(f"{CPU}/possible", _not_empty)
    present = tree.parse(f"{CPU}/present", _not_empty)
    source: str | None = f"{CPU}/online"
    online = tree.parse(f"{CPU}/online", _not_empty)
    if online is not None and cpuset is not None and (lacking := set(cpuset) - set(online)):
        tree.note(f"{CPU}/online", f"contradictory: without CPU {format_cpulist(lacking)}, which the cpuset has")
        online = None
    if online is None:
        online, source = _online_from_directories(tree, info), f"{CPU}/cpuN"
    if not online and info is not None:
        online, source = tuple(sorted(info.cpus)), "/proc/cpuinfo"
    if not online:
        nodes = "/sys/devices/system/node"
        found: set[int] = set()
        for number in tree.numbered(nodes, "node", MAX_ID):
            found.update(read_set(tree, f"{nodes}/node{number}", ("cpulist",), ("cpumap",)) or ())
        online, source = tuple(sorted(found)), f"{nodes}/nodeN"
    if not online:
        source = None
        tree.note(f"{CPU}/online", "absent or unusable, and no other file names the online CPUs")
    everything = set(possible if possible is not None else tree.numbered(CPU, "cpu", MAX_ID))
    offline = tuple(sorted(everything.union(present or ()) - set(online))) if source else ()
    return CpuSets(
        possible=possible,
        present=present,
        online=online,
        online_source=source,
        offline=offline,
        allowed=allowed,
        cpuset=cpuset,
    )


def _identifier(tree: Tree, cpu: int, name: str) -> int | None:
    value = tree.parse(f"{CPU}/cpu{cpu}/topology/{name}", integer)
    return value if value is not None and 0 <= value < 0xFFFF_FFFF and value not in (0xFFFF, 0x7FFF_FFFF) else None


def _read_cores(tree: Tree, online: tuple[int, ...]) -> tuple[Core, ...]:
    """Return the cores from the kernel's sibling lists, else from equal (package, core) numbers.

    Empty if neither exists.
    """
    cores: list[Core] = []
    seen: set[int] = set()
    running = set(online)
    by_number: dict[tuple[int | None, int | None, int | None], list[int]] = defaultdict(list)
    for cpu in online:
        if cpu in seen:
            continue
        siblings = read_set(
            tree,
            f"{CPU}/cpu{cpu}/topology",
            ("core_cpus_list", "thread_siblings_list"),
            ("core_cpus", "thread_siblings"),
        )
        identifier = partial(_identifier, tree, cpu)
        core_id, package_id = identifier("core_id"), identifier("physical_package_id")
        if siblings is None or cpu not in siblings:
            if core_id is not None:
                by_number[package_id, identifier("die_id"), core_id].append(cpu)
            continue
        members = tuple(n for n in siblings if n in running and n not in seen)
        seen.update(members)
        cores.append(
            Core(
                cpus=members,
                core_id=core_id,
                cluster_id=identifier("cluster_id"),
                die_id=identifier("die_id"),
                package_id=package_id,
                book_id=identifier("book_id"),
                drawer_id=identifier("drawer_id"),
            )
        )
    for (package_id, die_id, core_id), members_found in by_number.items():
        rest = tuple(n for n in members_found if n not in seen)
        if rest:
            cores.append(Core(cpus=rest, core_id=core_id, cluster_id=None, die_id=die_id, package_id=package_id))
    return tuple(sorted(cores, key=lambda core: core.cpus))


def _device_tree_cpus(tree: Tree) -> str:
    proc = "/proc/device-tree/cpus"
    return proc if tree.is_dir(proc) else "/sys/firmware/devicetree/base/cpus"


def _device_tree_cores(tree: Tree, online: tuple[int, ...]) -> tuple[Core, ...]:
    """Return the cores of POWER's device tree, which lists every core's thread numbers as big-endian words.

    They are the kernel's CPU numbers if it numbers CPUs as the firmware does; the result is used only if they cover all
    online CPUs.
    """
    base = _device_tree_cpus(tree)
    cores = []
    running = set(online)
    for name in tree.names(base):
        servers = tree.raw(f"{base}/{name}/ibm,ppc-interrupt-server#s")
        if not servers or len(servers) % 4:
            continue
        numbers = [int.from_bytes(servers[i : i + 4], "big") for i in range(0, len(servers), 4)]
        members = tuple(sorted(n for n in numbers if n in running))
        if members:
            cores.append(Core(cpus=members, core_id=None, cluster_id=None, die_id=None, package_id=None))
    covered = [n for core in cores for n in core.cpus]
    if sorted(covered) != list(online):
        return ()
    return tuple(sorted(cores, key=lambda core: core.cpus))


def _threads_from_cpuinfo(info: CpuInfo | None, online: tuple[int, ...], architecture: str | None) -> int | None:
    """Return the largest number of online CPUs of one core from ``/proc/cpuinfo``; None if unknown."""
    if len(online) == 1:
        return 1
    if info is None:
        return None
    shared: dict[tuple[str, str], int] = defaultdict(int)
    for cpu in online:
        rows = info.cpus.get(cpu, {})
        if "physical id" in rows and "core id" in rows:
            shared[rows["physical id"], rows["core id"]] += 1
        elif "socket" in rows and "core id" in rows:
            shared[rows.get("physical id", "") + rows["socket"], rows["core id"]] += 1
    if shared:
        return max(shared.values())
    if architecture in _NO_SMT_ARCHITECTURES:
        return 1
    if architecture in ("x86", "x86_64") and not any("siblings" in rows for rows in info.cpus.values()):
        return 1  # the kernel prints siblings wherever a package has more than one thread
    return None


def read_topology(tree: Tree, cpus: CpuSets, info: CpuInfo | None, architecture: str | None) -> Topology:
    """Return cores, packages and threads per core of the online CPUs.

    ``threads_per_core`` counts online threads: 1 if SMT is off.
    """
    cores = _read_cores(tree, cpus.online) or _device_tree_cores(tree, cpus.online)
    threads = max((len(core.cpus) for core in cores), default=None)
    if threads is None:
        threads = _threads_from_cpuinfo(info, cpus.online, architecture)
    packages = {core.package for core in cores} - {None}
    active = tree.parse(f"{CPU}/smt/active", count)
    domains = _last_level_domains(tree, cpus.online, info)
    return Topology(
        threads_per_core=threads,
        smt_control=tree.word(f"{CPU}/smt/control"),
        smt_active=None if active is None else bool(active),
        cores=cores,
        packages=len(packages) or None,
        last_level_cache_domains=tuple(domains),
        last_level_cache_bytes=tuple(domains.values()),
    )


def _shared_cpus(tree: Tree, directory: str, online: frozenset[int]) -> tuple[int, ...] | None:
    found = read_set(tree, directory, ("shared_cpu_list",), ("shared_cpu_map",))
    return None if found is None else tuple(n for n in found if n in online)


def _last_level_domains(tree: Tree, online: tuple[int, ...], info: CpuInfo | None) -> dict[tuple[int, ...], int | None]:
    """Return the groups of online CPUs that share a last-level cache (the highest level except instruction caches).

    Each with the size of its cache, None if unknown: caches of one machine may differ. A first-level cache is never the
    last: a machine that lists no other (some guests) has unknown ones. Nor is one below a cache in ``/proc/cpuinfo``,
    where s390x describes shared caches without saying who shares them.
    """
    running = frozenset(online)
    domains: dict[tuple[int, ...], int | None] = {}
    seen: set[int] = set()
    beyond = max((cache.level for cache in _cpuinfo_caches(info, None)), default=0)
    for cpu in online:
        if cpu in seen:
            continue
        best: tuple[int, str] | None = None
        for index in tree.numbered(f"{CPU}/cpu{cpu}/cache", "index"):
            directory = f"{CPU}/cpu{cpu}/cache/index{index}"
            level = tree.parse(f"{directory}/level", count)
            if level is not None and tree.word(f"{directory}/type") != "Instruction" and level > (best or (1,))[0]:
                best = (level, directory)
        if best is None or best[0] < beyond:
            continue
        members = _shared_cpus(tree, best[1], running) or ()
        if cpu in members:
            domains[members] = tree.parse(f"{best[1]}/size", parse_size) or None
            seen.update(members)
    return dict(sorted(domains.items()))


def read_caches(tree: Tree, cpus: CpuSets, topology: Topology, info: CpuInfo | None) -> tuple[Cache, ...]:
    """Return the caches of the lowest-numbered online CPU, in the kernel's order.

    A cache without level or type is skipped. s390x's ``/proc/cpuinfo`` adds the levels that sysfs lacks; without any,
    POWER's device tree is used.
    """
    if not cpus.online:
        return ()
    cpu = cpus.online[0]
    running = frozenset(cpus.online)
    caches = []
    for index in tree.numbered(f"{CPU}/cpu{cpu}/cache", "index"):
        directory = f"{CPU}/cpu{cpu}/cache/index{index}"
        level = tree.parse(f"{directory}/level", count)
        kind = tree.word(f"{directory}/type")
        if level is None or kind is None:
            continue
        caches.append(
            Cache(
                level=level,
                type=kind,
                size_bytes=tree.parse(f"{directory}/size", parse_size) or None,
                line_bytes=tree.parse(f"{directory}/coherency_line_size", count) or None,
                shared_cpus=_shared_cpus(tree, directory, running),
            )
        )
    highest = max((cache.level for cache in caches), default=0)
    core = next((core.cpus for core in topology.cores if cpu in core.cpus), None)
    caches += [cache for cache in _cpuinfo_caches(info, core) if cache.level > highest]
    return tuple(caches) or _device_tree_caches(tree, topology, cpu)


def _cpuinfo_caches(info: CpuInfo | None, core: tuple[int, ...] | None) -> Iterator[Cache]:
    """Yield the caches that s390x describes in ``/proc/cpuinfo``; *core* are the CPUs that share the private ones."""
    for row in cpuinfo.cache_rows(info) if info is not None else ():
        level = _small(row.get("level"))
        if level is None or "type" not in row:
            continue
        size = row.get("size")
        yield Cache(
            level=level,
            type=row["type"],
            size_bytes=parse_size(size) if size and _SIZE.fullmatch(size) else None,
            line_bytes=_small(row.get("line_size")),
            shared_cpus=core if row.get("scope") == "Private" else None,
        )


def _small(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,9}", text) else None


def _device_tree_caches(tree: Tree, topology: Topology, cpu: int) -> tuple[Cache, ...]:
    """Return POWER's level 1 sizes from the device tree's first CPU, for kernels without ``cache`` directories."""
    base = _device_tree_cpus(tree)
    core = next((core.cpus for core in topology.cores if cpu in core.cpus), None)
    for name in tree.names(base):
        servers = tree.raw(f"{base}/{name}/ibm,ppc-interrupt-server#s") or tree.raw(f"{base}/{name}/reg") or b""
        if cpu not in {int.from_bytes(servers[i : i + 4], "big") for i in range(0, len(servers), 4)}:
            continue
        caches = []
        for kind, letter in (("Data", "d"), ("Instruction", "i")):
            size = tree.raw(f"{base}/{name}/{letter}-cache-size")
            line = tree.raw(f"{base}/{name}/{letter}-cache-line-size")
            if size and len(size) == 4:
                caches.append(
                    Cache(
                        level=1,
                        type=kind,
                        size_bytes=int.from_bytes(size, "big") or None,
                        line_bytes=int.from_bytes(line, "big") or None if line and len(line) == 4 else None,
                        shared_cpus=core,
                    )
                )
        return tuple(caches)
    return ()
