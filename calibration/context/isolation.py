# SPDX-License-Identifier: Apache-2.0
"""Isolated CPUs, and the interrupts and threads that may still run on them."""

from __future__ import annotations

import re
from typing import Literal

from calibration.context.cmdline import parse_isolcpus
from calibration.context.model import CommandLine, CpuSets, Interrupt, Isolation, Thread
from calibration.context.topology import CPU, read_set
from calibration.context.tree import MAX_FILE_BYTES, NUMBER_BYTES, Tree
from calibration.cpulists import parse_cpulist, parse_cpumask
from calibration.text import visible

_PER_CPU_NAME = re.compile(r".*/[0-9]{1,5}(?:[:HuR].*)?", re.ASCII)
_FIRST_ISOLCPUS_APPLIES_FROM = (4, 15)
"""From Linux 4.15 on the first of several ``isolcpus=`` applies; before, the last."""

MAX_STATUS_BYTES = 1 << 20
"""Largest ``/proc/PID/status``: a process may belong to 65536 groups."""

Source = Literal["kernel", "command line"]


def parse_kernel_list(text: str) -> tuple[int, ...]:
    """Parse a CPU list as ``isolated`` and ``nohz_full`` print it.

    ``(null)`` means the feature is off. Raises ``ValueError``.
    """
    return () if text.strip() == "(null)" else parse_cpulist(text)


def release_numbers(release: str | None) -> tuple[int, int] | None:
    """Return (major, minor) of a kernel release such as ``6.1.0-13-amd64``; None for any other form."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release or "", re.ASCII)
    return (int(match.group(1)), int(match.group(2))) if match else None


def _parameter(cmdline: CommandLine | None, name: str) -> str | None:
    """Return the last value of a parameter, which the kernel uses.

    None if the parameter has no value.
    """
    values = [value for value in (cmdline.values(name) if cmdline else ()) if value is not None]
    return values[-1] if values else None


def _isolcpus_text(cmdline: CommandLine | None, release: str | None) -> str | None:
    values = [value for value in (cmdline.values("isolcpus") if cmdline else ()) if value is not None]
    if not values:
        return None
    numbers = release_numbers(release)
    return values[0] if numbers is not None and numbers >= _FIRST_ISOLCPUS_APPLIES_FROM else values[-1]


def _within(numbers: tuple[int, ...], cpus: CpuSets) -> tuple[int, ...]:
    """Drop CPUs that cannot exist: ``isolcpus=1-99`` is common on smaller machines."""
    known = set(cpus.possible or cpus.present or ()) | set(cpus.online)
    return tuple(n for n in numbers if n in known)


def _from_cmdline(tree: Tree, text: str | None, name: str, cpus: CpuSets) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return _within(parse_cpulist(text, _last(cpus)), cpus)
    except ValueError as error:
        tree.note("/proc/cmdline", f"unparsable: {name}={visible(text)[:80]}: {visible(str(error))}")
        return ()


def _last(cpus: CpuSets) -> int | None:
    known = cpus.possible or cpus.online
    return known[-1] if known else None


def parse_interrupts(text: str) -> dict[int, str]:
    """Return chip, trigger and devices of ``/proc/interrupts`` by interrupt number."""
    lines = text.splitlines()
    columns = len(lines[0].split()) if lines else 0
    names = {}
    for line in lines[1:]:
        number, colon, rest = line.partition(":")
        if not colon or re.fullmatch(r"\s*[0-9]{1,9}\s*", number, re.ASCII) is None:
            continue
        words = rest.split()
        names[int(number)] = visible(" ".join(words[columns:]))
    return names


def _read_interrupts(tree: Tree, isolated: frozenset[int]) -> tuple[Interrupt, ...]:
    names = tree.parse("/proc/interrupts", parse_interrupts, MAX_FILE_BYTES) or {}
    found = []
    for name in tree.names("/proc/irq"):
        if not (name.isascii() and name.isdigit() and len(name) <= 9):
            continue
        number = int(name)
        affinity = read_set(tree, f"/proc/irq/{name}", ("smp_affinity_list",), ("smp_affinity",))
        effective = read_set(tree, f"/proc/irq/{name}", ("effective_affinity_list",), ("effective_affinity",))
        where = effective or affinity or ()
        actions = tree.word(f"/sys/kernel/irq/{name}/actions")
        if (actions or number in names) and isolated.intersection(where):
            found.append(
                Interrupt(
                    irq=number,
                    name=actions or names.get(number) or None,
                    affinity=affinity,
                    effective=effective,
                    isolated_cpus=tuple(n for n in where if n in isolated),
                )
            )
    return tuple(sorted(found, key=lambda interrupt: interrupt.irq))


def parse_status(text: str) -> dict[str, str]:
    """Parse the rows ``Key:<tab>value`` of ``/proc/PID/status``. Raises ``ValueError`` if there are none."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.isidentifier():
            rows.setdefault(key, value.strip())
    if not rows:
        raise ValueError("no rows such as 'Name: init'")
    return rows


def status_capabilities(rows: dict[str, str]) -> int | None:
    """Return the effective capabilities as bits; None if missing. Raises ``ValueError``."""
    text = rows.get("CapEff")
    if text is None:
        return None
    if re.fullmatch(r"[0-9a-fA-F]{1,16}", text, re.ASCII) is None:
        raise ValueError(f"capabilities are not hexadecimal: {text[:40]!r}")
    return int(text, 16)


def status_allowed(rows: dict[str, str]) -> tuple[int, ...] | None:
    """Return the CPUs a thread may run on; None if missing. Raises ``ValueError``."""
    if "Cpus_allowed_list" in rows:
        return parse_cpulist(rows["Cpus_allowed_list"])
    return parse_cpumask(rows["Cpus_allowed"]) if rows.get("Cpus_allowed") else None


def _is_kernel_thread(rows: dict[str, str]) -> bool | None:
    """Return whether this is a kernel thread, which has no memory map; None for a zombie, which has none either."""
    if "Kthread" in rows:
        return rows["Kthread"] == "1"
    if rows.get("State", "").startswith(("Z", "X")):
        return None
    return "VmSize" not in rows


class _Allowed:
    """The CPUs that threads may run on. Most threads share a few lists; each is parsed once."""

    def __init__(self, tree: Tree, isolated: frozenset[int]) -> None:
        self._tree, self._isolated = tree, isolated
        self._known: dict[tuple[str | None, str | None], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def of(self, rows: dict[str, str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the CPUs allowed by the status *rows*, and the isolated ones of them. Raises ``ValueError``."""
        key = rows.get("Cpus_allowed_list"), rows.get("Cpus_allowed")
        if key not in self._known:
            allowed = status_allowed(rows) or ()
            self._tree.spend(NUMBER_BYTES * len(allowed))
            self._known[key] = allowed, tuple(filter(self._isolated.__contains__, allowed))
        return self._known[key]


def _read_thread(tree: Tree, path: str, pid: int, tid: int, allowed_by: _Allowed, *, users: bool) -> Thread | None:
    rows = tree.parse(path, parse_status, MAX_STATUS_BYTES)
    if rows is None:
        return None
    try:
        allowed, isolated = allowed_by.of(rows)
    except ValueError as error:
        tree.note(path, f"unparsable: {visible(str(error))}")
        return None
    kernel = _is_kernel_thread(rows)
    if not isolated or not (users or kernel):
        return None
    tree.spend(NUMBER_BYTES * len(allowed))
    name = visible(rows.get("Name", ""))
    return Thread(
        pid=pid,
        tid=tid,
        name=name,
        allowed=allowed,
        isolated_cpus=isolated,
        kernel=kernel,
        per_cpu_kernel=bool(kernel) and len(allowed) == 1 and _PER_CPU_NAME.fullmatch(name) is not None,
    )


def _read_threads(tree: Tree, isolated: frozenset[int], *, users: bool = True) -> tuple[Thread, ...] | None:
    """Return the threads that may run on CPUs of *isolated*, those of *users* too; None if none were captured."""
    found: list[Thread] = []
    captured = False
    allowed_by = _Allowed(tree, isolated)
    for pid in tree.numbered("/proc", ""):
        for tid in tree.numbered(f"/proc/{pid}/task", ""):
            captured = True
            thread = _read_thread(tree, f"/proc/{pid}/task/{tid}/status", pid, tid, allowed_by, users=users)
            if thread is not None:
                found.append(thread)
    return tuple(found) if captured else None


def read_isolation(
    tree: Tree,
    cmdline: CommandLine | None,
    cpus: CpuSets,
    release: str | None,
    by_cpusets: tuple[tuple[int, ...], tuple[int, ...]],
) -> Isolation:
    """Return what is isolated: from the kernel's own files if they exist, else from the command line.

    *by_cpusets* are the CPUs that cpusets isolate, and those of control groups that cannot be seen.

    A command line isolates from scheduling domains only if ``isolcpus=`` has no flag words or has
    ``domain``.
    """
    isolcpus_text = _isolcpus_text(cmdline, release)
    flags: tuple[str, ...] = ()
    by_cmdline: tuple[int, ...] = ()
    managed: tuple[int, ...] = ()
    if isolcpus_text:
        try:
            parsed = parse_isolcpus(isolcpus_text, _last(cpus))
            flags = parsed.flags + parsed.unknown_flags
            by_cmdline = _within(parsed.cpus, cpus) if parsed.isolates_domain else ()
            managed = _within(parsed.cpus, cpus) if "managed_irq" in flags else ()
        except ValueError as error:
            tree.note(
                "/proc/cmdline",
                f"unparsable: isolcpus={visible(isolcpus_text)[:80]}: {visible(str(error))}",
            )
    by_kernel = tree.parse(f"{CPU}/isolated", parse_kernel_list)
    isolated = by_cmdline if by_kernel is None else by_kernel
    source: Source | None = "kernel" if by_kernel is not None else "command line" if cmdline is not None else None

    nohz_text = _parameter(cmdline, "nohz_full")
    nohz_kernel = tree.parse(f"{CPU}/nohz_full", parse_kernel_list)
    nohz = _from_cmdline(tree, nohz_text, "nohz_full", cpus) if nohz_kernel is None else nohz_kernel
    rcu_text = _parameter(cmdline, "rcu_nocbs")
    rcu = set(_from_cmdline(tree, rcu_text, "rcu_nocbs", cpus))
    if nohz_kernel or (nohz and nohz_kernel is None):
        rcu.update(nohz)  # every nohz_full CPU has its RCU callbacks offloaded
    irqaffinity_text = _parameter(cmdline, "irqaffinity")

    cpuset_isolated, cpuset_unknown = by_cpusets
    quiet = frozenset(isolated) | frozenset(cpuset_isolated)
    tickless = frozenset(nohz) - quiet
    return Isolation(
        isolated=isolated,
        isolated_source=source,
        isolcpus_text=isolcpus_text,
        isolcpus_flags=flags,
        managed_irq=managed,
        nohz_full=nohz,
        nohz_full_source="kernel" if nohz_kernel is not None else "command line" if cmdline is not None else None,
        nohz_full_text=nohz_text,
        rcu_nocbs=tuple(sorted(rcu)),
        rcu_nocbs_text=rcu_text,
        irqaffinity=_from_cmdline(tree, irqaffinity_text, "irqaffinity", cpus) if irqaffinity_text else None,
        irqaffinity_text=irqaffinity_text,
        cpuset_isolated=tuple(cpu for cpu in cpuset_isolated if cpu not in isolated),  # Linux 6.12 lists boot's too
        cpuset_unknown=tuple(cpu for cpu in cpuset_unknown if cpu not in isolated),
        tickless_interrupts=_read_interrupts(tree, tickless) if tickless else None,
        tickless_threads=_read_threads(tree, tickless, users=False) if tickless else None,
        housekeeping=tree.parse(f"{CPU}/housekeeping", parse_kernel_list),
        default_irq_affinity=tree.parse("/proc/irq/default_smp_affinity", parse_cpumask),
        interrupts=_read_interrupts(tree, quiet) if quiet else (),
        threads=_read_threads(tree, quiet) if quiet else None,
    )
