# SPDX-License-Identifier: Apache-2.0
"""Load a captured or live root into a :class:`~calibration.context.model.Context`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from calibration.base.cpulists import parse_cpulist
from calibration.base.parsers import parse_json_sparingly
from calibration.base.text import visible
from calibration.context import cpuinfo
from calibration.context.boot_evidence import BootedMachine, evidence_notes
from calibration.context.cmdline import parse_cmdline
from calibration.context.confinement import INITIAL_NAMESPACES, isolated_by_cpusets, read_confinement, read_cpuset
from calibration.context.cpu_load import read_load
from calibration.context.cpuinfo import CpuInfo, parse_cpuinfo
from calibration.context.cxl import read_cxl, read_interleaving
from calibration.context.devices import read_devices
from calibration.context.errors import ContextError
from calibration.context.event_sources import read_event_sources
from calibration.context.firmware import read_firmware
from calibration.context.frequency import read_frequency, read_idle, read_throttling
from calibration.context.hardware import Bmc
from calibration.context.isolation import (
    MAX_STATUS_BYTES,
    parse_status,
    read_isolation,
    status_allowed,
    status_capabilities,
)
from calibration.context.kernel import read_kernel, told
from calibration.context.memory import (
    cpu_only_nodes,
    memory_only_nodes,
    read_distances,
    read_memory,
    read_nodes,
)
from calibration.context.model import (
    Capture,
    ClockSource,
    Context,
    CpuModel,
    CpuSets,
    Masked,
    Processor,
    Unreadable,
)
from calibration.context.resctrl import read_resctrl
from calibration.context.topology import CPU, read_caches, read_cpu_sets, read_topology
from calibration.context.tree import CAPTURE, MAX_FILE_BYTES, Tree, kernel_of, printable_line
from calibration.context.tuned import read_tuned
from calibration.context.virtualization import read_virtualization
from calibration.runner.blanking import blank
from calibration.runner.requested_files import MAX_PATTERNS

MAX_CAPTURE_BYTES = 8 * 1024 * 1024
"""Largest :data:`CAPTURE`; a list of 10,000 unreadable files takes a megabyte."""

STORED_CAPTURE = "context.tar.gz"
"""Name of the capture in a run's directory."""

STATUS = "/proc/self/status"

RECOGNISED = (CPU, "/sys/devices/system/node", "/proc/cpuinfo", "/proc/meminfo", "/proc/cmdline", CAPTURE)
"""A machine's root has at least one of these."""

PAGE_BYTES = tuple(1 << bits for bits in range(12, 19))
"""Sizes of base pages: 4 KiB to 256 KiB."""

ONE_PAGE_SIZE = frozenset({"x86_64", "x86", "s390x", "riscv64"})
"""Architectures whose base pages are always the smallest."""


def open_tree(root: Path, archive: bytes | None = None) -> Tree:
    """Open the tree at ``root``: a machine's root, a run's directory with ``context.tar.gz``, or an archive.

    A directory that contains only such a root (an archive unpacked under its own name) is accepted. Raises
    :class:`ContextError` if nothing is recognised.
    """
    tree = Tree(root, archive)
    entries = tree.names("/")
    candidates = [tree]
    if root.is_dir() and (root / STORED_CAPTURE).is_file():
        candidates.append(Tree(root / STORED_CAPTURE))
    elif root.is_dir() and len(entries) == 1 and (root / entries[0]).is_dir():
        candidates.append(Tree(root / entries[0]))
    for candidate in candidates:
        if any(candidate.exists(path) for path in RECOGNISED):
            return candidate
    found = ", ".join(visible(name) for name in entries[:5]) + (", ..." if len(entries) > 5 else "")
    raise ContextError(
        f"{root}: not the root of a machine: it holds {found or 'nothing'}, not proc/ or sys/; "
        "give / for this machine, a captured tree or its tar.gz"
    )


def _capture_json(tree: Tree) -> dict[str, Any]:
    def parse(text: str) -> dict[str, Any]:
        content = parse_json_sparingly(text)
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - it is the file that is wrong, not the caller
        return content

    return tree.parse(CAPTURE, parse, MAX_CAPTURE_BYTES) or {}


def read_asked(tree: Tree) -> tuple[str, ...]:
    """Return the patterns that were captured beside the usual files; what was unreadable then is noted in *tree*."""
    content = _capture_json(tree)
    for path, reason in _records(content, "unreadable", "path", "reason"):
        tree.note(path, reason)
    asked = content.get("asked")
    rows = asked if isinstance(asked, list) else []
    return tuple(visible(pattern) for pattern in rows[:MAX_PATTERNS] if isinstance(pattern, str))


def _string(content: dict[str, Any], key: str) -> str | None:
    value = content.get(key)
    return visible(value) if isinstance(value, str) and value else None


def _records(content: dict[str, Any], key: str, first: str, second: str) -> list[tuple[str, str]]:
    rows = content.get(key)
    return [
        (visible(row[first]), visible(row[second]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and isinstance(row.get(first), str) and isinstance(row.get(second), str)
    ]


def _uname(parts: dict[str, str | None]) -> str | None:
    """Compose the output of GNU ``uname -a``, with processor and platform unknown.

    None unless every part is known.
    """
    words = [parts[key] for key in ("kernel_name", "hostname", "kernel_release", "kernel_version", "machine")]
    known = [word for word in words if word is not None]
    return " ".join([*known, "GNU/Linux"]) if len(known) == len(words) else None


def _read_capture(tree: Tree, content: dict[str, Any]) -> Capture:
    uname = content.get("uname")
    fields = uname if isinstance(uname, dict) else {}
    live = os.uname() if str(tree.root) == "/" and not content else None
    release, version = kernel_of(tree)
    parts = {
        "kernel_name": _string(fields, "sysname")
        or tree.word("/proc/sys/kernel/ostype")
        or ("Linux" if release else None),
        "hostname": _string(content, "hostname") or tree.word("/proc/sys/kernel/hostname"),
        "kernel_release": _string(fields, "release") or release,
        "kernel_version": _string(fields, "version") or version,
        "machine": _string(fields, "machine") or tree.word("/proc/sys/kernel/arch") or (live.machine if live else None),
    }
    uid = content.get("uid")
    return Capture(
        captured_at=_string(content, "captured_at"),
        hostname=parts["hostname"],
        uid=uid
        if isinstance(uid, int) and not isinstance(uid, bool) and 0 <= uid < 1 << 32
        else os.getuid()
        if live
        else None,
        python_version=_string(content, "python_version"),
        uname=_string(content, "uname_a") or _uname(parts),
        kernel_name=parts["kernel_name"],
        kernel_release=parts["kernel_release"],
        kernel_version=parts["kernel_version"],
        machine=parts["machine"],
        masked=tuple(Masked(path=path, what=what) for path, what in _records(content, "masked", "path", "what")),
        effective_capabilities=tree.parse(
            STATUS, lambda text: status_capabilities(parse_status(text)), MAX_STATUS_BYTES
        ),
    )


def _read_allowed(tree: Tree, content: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the CPUs available to the capturing process: its recorded affinity, else its ``/proc/self/status``."""
    recorded = content.get("affinity")
    if isinstance(recorded, str):
        try:
            return parse_cpulist(recorded)
        except ValueError as error:
            tree.note(CAPTURE, f"unparsable: affinity: {visible(str(error))}")
    return tree.parse(STATUS, lambda text: status_allowed(parse_status(text)), MAX_STATUS_BYTES)


def _page_bytes(tree: Tree, content: dict[str, Any], processor: Processor) -> int | None:
    """Return the recorded size of base pages; in a capture that lacks it, the only one of the architecture."""
    recorded = content.get("page_bytes")
    if str(tree.root) == "/" and not content:
        recorded = os.sysconf("SC_PAGESIZE")
    if type(recorded) is int and recorded in PAGE_BYTES:
        return recorded
    if recorded is not None:
        tree.note(CAPTURE, f"unparsable: page_bytes: {visible(str(recorded))[:40]}")
    return PAGE_BYTES[0] if processor.architecture in ONE_PAGE_SIZE else None


def _namespaces(tree: Tree, content: dict[str, Any]) -> dict[str, Any]:
    """Return the identities of the capturing process's namespaces by name; on a live root that is this process."""
    recorded = content.get("namespaces")
    if isinstance(recorded, dict):
        return recorded
    if str(tree.root) != "/" or content:
        return {}
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in INITIAL_NAMESPACES}


def _machine_architecture(machine: str | None) -> str | None:
    if machine is None:
        return None
    if machine in ("i386", "i486", "i586", "i686"):
        return "x86"
    if machine.startswith("armv"):
        return "arm"
    return machine


def _read_processor(tree: Tree, info: CpuInfo | None, cpus: CpuSets, machine: str | None) -> Processor:
    kind = _machine_architecture(machine) or (info.architecture if info is not None else None)
    if info is None:
        return Processor(architecture=kind, models=(), flags=(), bugs=())
    members: dict[cpuinfo.Identity, list[int]] = {}
    described = _described(info)
    for cpu in cpus.online:
        place = described(cpu)
        if place is not None:
            members.setdefault(cpuinfo.identity(info, place), []).append(cpu)
    first = cpus.online[0] if cpus.online else -1
    microcode = cpuinfo.known_microcode(tree.word(f"{CPU}/cpu{first}/microcode/version")) if first >= 0 else None
    return Processor(
        architecture=kind,
        models=tuple(
            CpuModel(
                cpus=tuple(numbers),
                **{**vars(known), "microcode": known.microcode or (microcode if numbers[0] == first else None)},
            )
            for known, numbers in members.items()
        ),
        flags=cpuinfo.flags(info, described(first)),
        bugs=tuple((info.first("bugs", cpu=described(first)) or "").split()),
    )


def _described(info: CpuInfo) -> Callable[[int], int | None]:
    """Return a function that returns under which number ``/proc/cpuinfo`` describes a CPU; None if it does not.

    lxcfs lists the CPUs of a container only, numbered from 0. If all of them are alike, so are those that it leaves
    out. A file without any paragraph describes every CPU.
    """
    alike = len({cpuinfo.identity(info, cpu) for cpu in info.cpus}) == 1

    def number(cpu: int) -> int | None:
        if cpu in info.cpus or not info.cpus:
            return cpu
        return min(info.cpus) if alike else None

    return number


def _read_mitigations(tree: Tree) -> dict[str, str]:
    directory = f"{CPU}/vulnerabilities"
    found = {}
    for name in tree.names(directory):
        state = tree.word(f"{directory}/{name}")
        if state is not None:
            found[visible(name)] = state
    return found


def _read_clocksource(tree: Tree) -> ClockSource:
    base = "/sys/devices/system/clocksource/clocksource0"
    return ClockSource(
        current=tree.word(f"{base}/current_clocksource"),
        available=tuple((tree.word(f"{base}/available_clocksource") or "").split()),
    )


def load(root: Path, archive: bytes | None = None) -> Context:
    """Describe the machine whose root, captured tree or capture archive is at ``root``.

    ``archive`` is the content of the capture archive at ``root``; then no file is opened.

    Raises :class:`ContextError` if ``root`` is none of these or nothing in it is recognised. The facts of a missing
    file are None; an unusable file is listed in ``unreadable`` with the reason.
    """
    if archive is None:
        return describe(open_tree(root))
    digest = sha256(archive).digest()
    if digest not in newest:
        context = describe(open_tree(root, archive))
        newest.clear()
        newest[digest] = context.model_dump_json()
    return Context.model_validate_json(newest[digest])


newest: dict[bytes, str] = {}
"""The hash of the newest archive and what it says: the plan and the document of a run need the same.

A process may take it over from another. It is JSON because objects would be ten times as large.
"""


def describe(tree: Tree) -> Context:
    """Describe the machine whose files *tree* has, as :func:`load` does."""
    content = _capture_json(tree)
    for path, reason in _records(content, "unreadable", "path", "reason"):
        tree.note(path, reason)
    capture = _read_capture(tree, content)
    # Line breaks separate parameters too, and the kernel shows them as they were given to it.
    cmdline = tree.parse("/proc/cmdline", lambda text: parse_cmdline(blank(printable_line(re.sub(r"\s", " ", text)))))
    info = tree.parse("/proc/cpuinfo", parse_cpuinfo, MAX_FILE_BYTES)
    cpuset_group, cpuset = read_cpuset(tree)
    cpus = read_cpu_sets(tree, info, _read_allowed(tree, content), cpuset)
    processor = _read_processor(tree, info, cpus, capture.machine)
    topology = read_topology(tree, cpus, info, processor.architecture)
    nodes = read_nodes(tree, cpus)
    firmware = read_firmware(tree)
    frequency, memory = read_frequency(tree, cpus), read_memory(tree, _page_bytes(tree, content, processor))
    x86 = processor.architecture == "x86_64"
    by_cpusets = isolated_by_cpusets(tree, cpus.online)
    isolation = read_isolation(tree, cmdline, cpus, capture.kernel_release, x86=x86, by_cpusets=by_cpusets)
    kernel = read_kernel(tree, capture.kernel_version, content)
    idle, clocksource = read_idle(tree, cpus), _read_clocksource(tree)
    known = tuple(node.id for node in nodes)
    shown = BootedMachine(
        cpus, topology, known, memory, frequency, idle, clocksource, capture.kernel_release, kernel.preemption
    )
    notes = (*isolation.notes, *evidence_notes(cmdline, shown))
    isolation = isolation.model_copy(update={"notes": notes})
    vendor = processor.models[0].vendor if processor.models else None
    facts = {
        "capture": capture,
        "cmdline": cmdline,
        "cpus": cpus,
        "topology": topology,
        "nodes": nodes,
        "distances": read_distances(tree, nodes),
        "memory_only_nodes": memory_only_nodes(tree, nodes),
        "cpu_only_nodes": cpu_only_nodes(nodes),
        "caches": read_caches(tree, cpus, topology, info),
        "memory": memory,
        "processor": processor,
        "frequency": frequency,
        "idle": idle,
        "mitigations": _read_mitigations(tree),
        "clocksource": clocksource,
        "virtualization": read_virtualization(tree, info, processor.architecture, firmware),
        "firmware": firmware,
        "isolation": isolation,
        "kernel": kernel,
        "throttling": read_throttling(tree, topology),
        "load": read_load(tree, content.get("load")),
        "event_sources": read_event_sources(tree),
        "confinement": read_confinement(tree, _namespaces(tree, content), cpuset_group),
        "devices": read_devices(
            tree,
            frozenset(isolation.cpus),
            captured=content.get("devices") is not None,
        ),
        "cxl": read_cxl(tree),
        "interleaving": read_interleaving(tree),
        "resctrl": read_resctrl(tree, vendor),
        "bmc": told(tree, content, "bmc", Bmc),
        "tuned": read_tuned(tree, capture, cpus, cmdline, frequency),
    }
    unreadable = tuple(Unreadable(path=path, reason=reason) for path, reason in tree.unreadable)
    return Context.model_validate({**facts, "unreadable": unreadable})


def to_contract(context: Context) -> dict[str, Any]:
    """Return the document that ``calibration context DIR --json`` prints.

    The agreed keys come first.
    """
    dumped = context.model_dump(mode="json")
    agreed: dict[str, Any] = {
        "nodes": [{"id": n.id, "cpus": list(n.cpus), "memory_bytes": n.memory_bytes} for n in context.nodes],
        "distances": dumped["distances"],
        "online_cpus": list(context.online_cpus),
        "isolated_cpus": list(context.isolated_cpus),
        "threads_per_core": context.topology.threads_per_core,
        "caches": dumped["caches"],
        "memory_only_nodes": list(context.memory_only_nodes),
        "cpu_only_nodes": list(context.cpu_only_nodes),
        "cmdline": None if context.cmdline is None else context.cmdline.text,
        "unreadable": dumped["unreadable"],
    }
    more = {
        "node_memory": [{k: v for k, v in node.items() if k != "cpus"} for node in dumped["nodes"]],
        "cmdline_parameters": None if context.cmdline is None else dumped["cmdline"]["parameters"],
        "init_arguments": None if context.cmdline is None else dumped["cmdline"]["init_arguments"],
        "uname": context.capture.uname,
    }
    rest = {key: value for key, value in dumped.items() if key not in agreed}
    return {**agreed, **more, **rest}
