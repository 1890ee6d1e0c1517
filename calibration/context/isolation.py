# SPDX-License-Identifier: Apache-2.0
"""Isolated CPUs, and the interrupts and threads that may still run on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Literal

from calibration.base.cpulists import format_cpulist, parse_cpulist, parse_cpumask
from calibration.base.text import visible
from calibration.context import boot_rules
from calibration.context.boot_rules import Boot, Effect
from calibration.context.model import CommandLine, CpuSets, Interrupt, Isolation, ParameterNote, Thread
from calibration.context.topology import CPU, read_set
from calibration.context.tree import MAX_FILE_BYTES, NUMBER_BYTES, Tree, count

_PER_CPU_NAME = re.compile(r".*/[0-9]{1,5}(?:[:HuR].*)?", re.ASCII)
_RCU_THREAD = re.compile(r"rcuo[psb]/([0-9]{1,5})", re.ASCII)
"""Names of the threads that run a CPU's offloaded RCU callbacks: of preemptible, other and, before 4.20, soft-interrupt
RCU."""

_KERNEL_THREADS = "kthreadd"
"""Parent of all kernel threads: where it is seen, all are; in a container none is."""

_MASKS_OFF_STACK = 512
"""More CPUs than this need masks of the possible CPUs' size (CONFIG_CPUMASK_OFFSTACK) on x86 (arch/x86/Kconfig), as the
kernels of distributions have."""

MAX_STATUS_BYTES = 1 << 20
"""Largest ``/proc/PID/status``: a process may belong to 65536 groups."""

Source = Literal["kernel", "command line"]


def parse_kernel_list(text: str) -> tuple[int, ...]:
    """Parse a CPU list as ``isolated`` and ``nohz_full`` print it.

    ``(null)`` means the feature is off. Raises ``ValueError``.
    """
    return () if text.strip() == "(null)" else parse_cpulist(text)


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
    """The CPUs that threads may run on, and those in each of *sets*. Most share a few lists; each is parsed once."""

    def __init__(self, tree: Tree, *sets: frozenset[int]) -> None:
        self._tree, self._sets = tree, sets
        self._known: dict[tuple[str | None, str | None], tuple[tuple[int, ...], ...]] = {}

    def of(self, rows: dict[str, str]) -> tuple[tuple[int, ...], ...]:
        """Return the CPUs allowed by the status *rows*, then those of each set. Raises ``ValueError``."""
        key = rows.get("Cpus_allowed_list"), rows.get("Cpus_allowed")
        if key not in self._known:
            allowed = status_allowed(rows) or ()
            self._tree.spend(NUMBER_BYTES * len(allowed))
            self._known[key] = allowed, *(tuple(filter(cpus.__contains__, allowed)) for cpus in self._sets)
        return self._known[key]


def _thread(
    place: tuple[int, int], rows: dict[str, str], allowed: tuple[int, ...], isolated: tuple[int, ...]
) -> Thread:
    pid, tid = place
    kernel = _is_kernel_thread(rows)
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


class _RcuThreads:
    """The threads of offloaded RCU callbacks: the kernel has no file of these CPUs."""

    def __init__(self) -> None:
        self._seen = False
        self._running: set[int] = set()
        self._parked: set[int] = set()

    def take(self, rows: dict[str, str]) -> None:
        """Look at the status *rows* of a thread."""
        name = rows.get("Name", "")
        self._seen |= name == _KERNEL_THREADS
        if match := _RCU_THREAD.fullmatch(name):
            (self._parked if rows.get("State", "").startswith("P") else self._running).add(int(match.group(1)))

    @property
    def exist(self) -> bool:
        """Return whether there is such a thread, so that the kernel has ``rcu_nocbs=``."""
        return bool(self._running or self._parked)

    def offloaded(self, versions: tuple[boot_rules.Version, ...]) -> frozenset[int] | None:
        """Return the CPUs whose callbacks are offloaded; None if that does not follow from the threads."""
        if self._parked:
            return frozenset(self._running)
        if not self._running:
            return frozenset() if self._seen else None
        meaning = {boot_rules.behaviour("rcu threads", version) for version in versions}
        return None if "each" in meaning else frozenset(self._running)


class _Threads:
    """Which threads may run on isolated CPUs, which of the kernel's on tickless ones, and those of RCU callbacks."""

    def __init__(self, tree: Tree, isolated: frozenset[int], tickless: frozenset[int], *, look: bool) -> None:
        self._captured = False
        self.on_isolated: list[Thread] = []
        self.on_tickless: list[Thread] = []
        self.rcu = _RcuThreads()
        allowed_by = _Allowed(tree, isolated, tickless)
        for pid in tree.numbered("/proc", "") if look else ():
            for tid in tree.numbered(f"/proc/{pid}/task", ""):
                self._captured = True
                path = f"/proc/{pid}/task/{tid}/status"
                rows = tree.parse(path, parse_status, MAX_STATUS_BYTES)
                if rows is None:
                    continue
                self.rcu.take(rows)
                try:
                    allowed, on_isolated, on_tickless = allowed_by.of(rows)
                except ValueError as error:
                    tree.note(path, f"unparsable: {visible(str(error))}")
                    continue
                if on_isolated or on_tickless:
                    tree.spend(NUMBER_BYTES * len(allowed))
                if on_isolated:
                    self.on_isolated.append(_thread((pid, tid), rows, allowed, on_isolated))
                if on_tickless and _is_kernel_thread(rows):
                    self.on_tickless.append(_thread((pid, tid), rows, allowed, on_tickless))

    def on(self, cpus: frozenset[int], found: list[Thread]) -> tuple[Thread, ...] | None:
        """Return the threads *found* on *cpus*; None without such CPUs, or if no thread was captured."""
        return tuple(found) if cpus and self._captured else None


def _boots(
    cpus: CpuSets, release: str | None, *, kernel_max: int | None, x86: bool, nohz_full: bool, maxcpus: str | None
) -> Iterator[Boot]:
    """Yield the kernels that this one may be, as far as the rules differ."""
    possible = frozenset(cpus.possible or cpus.present or ()) | set(cpus.online)
    last = cpus.possible[-1] if cpus.possible else None
    presents = [frozenset(cpus.present or cpus.online)]
    if maxcpus is not None and maxcpus.isascii() and maxcpus.isdigit():
        presents.insert(0, frozenset(cpu for cpu in presents[0] if cpu < int(maxcpus)))
    for version in boot_rules.versions(release):
        limits = [last]
        fixed = not x86 or (kernel_max is not None and kernel_max < _MASKS_OFF_STACK)
        if fixed and boot_rules.behaviour("last", version) == "built":
            limits.append(kernel_max)
        for limit in dict.fromkeys(limits):
            ticks = (True, False) if boot_rules.behaviour("tick", version) == "either" else (True,)
            counts = (False, True) if boot_rules.behaviour("empty", version) == "either" else (False,)
            for boot_tick, empty_counts, present in product(ticks, counts, presents):
                yield Boot(
                    version=version,
                    possible=possible,
                    present=present,
                    last=max(possible, default=None) if last is None else last,
                    limit=limit,
                    nohz_full=nohz_full,
                    boot_tick=boot_tick,
                    empty_counts=empty_counts,
                )


def _fitting(effects: list[Effect], isolated: frozenset[int] | None, nohz: frozenset[int] | None) -> list[Effect]:
    """Return the effects that agree with the kernel's own files; all of them if none does."""
    return [
        effect for effect in effects if isolated in (None, effect.domain) and nohz in (None, effect.nohz)
    ] or effects


def _differences(
    effect: Effect, isolated: frozenset[int] | None, nohz: frozenset[int] | None, cmdline: CommandLine
) -> Iterator[ParameterNote]:
    """Yield where the kernel's own files differ from what the rules make of the command line."""
    for name, by_kernel, by_rules in (("isolcpus", isolated, effect.domain), ("nohz_full", nohz, effect.nohz)):
        if by_kernel is not None and by_kernel != by_rules:
            written = [visible(f"{name}={value}")[:80] for value in cmdline.values(name) if value is not None]
            yield ParameterNote(
                parameter=name,
                asked=" ".join(written) or f"no {name}=",
                found=format_cpulist(by_kernel) or "none",
                reason="so says the kernel's own file; the command line does not show why",
            )


def _nohz_full_supported(tree: Tree, by_kernel: object) -> bool | None:
    """Return whether the kernel has ``nohz_full=``: only then it shows the file. It always shows ``isolated``."""
    path = f"{CPU}/nohz_full"
    if by_kernel is not None:
        return True
    unreadable = any(noted == path for noted, _ in tree.unreadable)
    return False if tree.exists(f"{CPU}/isolated") and not tree.exists(path) and not unreadable else None


def _first(cmdline: CommandLine | None, name: str) -> str | None:
    return next((value for value in (cmdline.values(name) if cmdline else ()) if value), None)


def read_isolation(
    tree: Tree,
    cmdline: CommandLine | None,
    cpus: CpuSets,
    release: str | None,
    *,
    x86: bool,
    by_cpusets: tuple[tuple[int, ...], tuple[int, ...]],
) -> Isolation:
    """Return what is isolated: from the kernel's own files and threads, else by the rules of its version.

    *by_cpusets* are the CPUs that cpusets isolate, and those of control groups that cannot be seen.
    """
    line = cmdline or CommandLine(text="", parameters=(), init_arguments=())
    by_kernel = tree.parse(f"{CPU}/isolated", parse_kernel_list)
    nohz_kernel = tree.parse(f"{CPU}/nohz_full", parse_kernel_list)
    supported = _nohz_full_supported(tree, nohz_kernel)
    isolated_set = None if by_kernel is None else frozenset(by_kernel)
    nohz_set = frozenset() if supported is False else None if nohz_kernel is None else frozenset(nohz_kernel)

    boots = _boots(
        cpus,
        release,
        kernel_max=tree.parse(f"{CPU}/kernel_max", count),
        x86=x86,
        nohz_full=supported is not False,
        maxcpus=_first(cmdline, "maxcpus"),
    )
    effects = _fitting([boot_rules.apply(line, boot) for boot in boots], isolated_set, nohz_set)
    effect = effects[0]
    notes = [*effect.notes, *_differences(effect, isolated_set, nohz_set, line)]
    isolated = tuple(sorted(effect.domain)) if by_kernel is None else by_kernel
    nohz = effect.nohz if nohz_set is None else nohz_set
    decided = {
        name: len({getattr(other, name) for other in effects}) == 1 for name in ("domain", "nohz", "managed_irq")
    }
    by_rules: Source | None = None if cmdline is None else "command line"
    isolated_source = "kernel" if by_kernel is not None else by_rules if decided["domain"] else None
    nohz_source = "kernel" if nohz_set is not None else by_rules if decided["nohz"] else None
    if not decided["managed_irq"] or isolated_source is None or nohz_source is None:
        open_ = [name for name in ("isolcpus", "nohz_full") if line.values(name)]
        notes.extend(_undecided(name, _first(cmdline, name)) for name in open_)

    cpuset_isolated, cpuset_unknown = by_cpusets
    quiet = frozenset(isolated) | frozenset(cpuset_isolated)
    tickless = frozenset(nohz) - quiet
    threads = _Threads(tree, quiet, tickless, look=bool(quiet or nohz or line.values("rcu_nocbs")))
    rcu, rcu_source, rcu_notes = _read_rcu(
        effects, nohz, threads.rcu.exist or supported, threads.rcu.offloaded(boot_rules.versions(release))
    )
    if cmdline is None and rcu_source == "command line":
        rcu_source = None
    notes = [note for note in notes if rcu_notes is None or note.parameter != "rcu_nocbs"] + list(rcu_notes or ())
    default = tree.parse("/proc/irq/default_smp_affinity", parse_cpumask)
    irq = effect.irq
    if irq is not None and default is not None:
        irq = frozenset(default)
    return Isolation(
        isolated=isolated,
        isolated_source=isolated_source,
        isolcpus_text=_first(cmdline, "isolcpus"),
        isolcpus_flags=effect.flags,
        managed_irq=tuple(sorted(effect.managed_irq)) if decided["managed_irq"] else (),
        nohz_full=tuple(sorted(nohz)),
        nohz_full_source=nohz_source,
        nohz_full_text=_first(cmdline, "nohz_full"),
        rcu_nocbs=tuple(sorted(rcu)),
        rcu_nocbs_text=_first(cmdline, "rcu_nocbs"),
        irqaffinity=None if irq is None else tuple(sorted(irq)),
        irqaffinity_text=_first(cmdline, "irqaffinity"),
        cpuset_isolated=tuple(cpu for cpu in cpuset_isolated if cpu not in isolated),  # Linux 6.12 lists boot's too
        cpuset_unknown=tuple(cpu for cpu in cpuset_unknown if cpu not in isolated),
        tickless_interrupts=_read_interrupts(tree, tickless) if tickless else None,
        tickless_threads=threads.on(tickless, threads.on_tickless),
        housekeeping=tree.parse(f"{CPU}/housekeeping", parse_kernel_list),
        default_irq_affinity=default,
        interrupts=_read_interrupts(tree, quiet) if quiet else (),
        threads=threads.on(quiet, threads.on_isolated),
        nohz_full_supported=supported,
        rcu_nocbs_source=rcu_source,
        notes=tuple(dict.fromkeys(notes)),
    )


def _undecided(name: str, value: str | None) -> ParameterNote:
    asked = name if value is None else visible(f"{name}={value}")[:80]
    reason = "this kernel may be one of several that treat it differently"
    return ParameterNote(parameter=name, asked=asked, found="unknown", reason=reason)


def _read_rcu(
    effects: list[Effect], nohz: frozenset[int], supported: bool | None, by_threads: frozenset[int] | None
) -> tuple[frozenset[int], Source | None, list[ParameterNote] | None]:
    """Return the CPUs whose RCU callbacks are offloaded, how that is known, and notes instead of the rules'."""
    asked = effects[0].rcu
    found = asked | nohz
    name = "rcu_nocbs"
    if by_threads is not None:
        if by_threads == found:
            return found, "kernel", None
        note = ParameterNote(
            parameter=name,
            asked=f"{name} and nohz_full of CPUs {format_cpulist(found) or 'none'}",
            found=format_cpulist(by_threads) or "none",
            reason="so say the kernel's threads rcuo",
        )
        return by_threads, "kernel", [note]
    if any(other.rcu != asked for other in effects):
        return found, None, [_undecided(name, None)]
    if supported or not found:
        return found, "command line", None
    why = "a kernel without nohz_full may be built without rcu_nocbs, too (CONFIG_RCU_NOCB_CPU)"
    if supported is None:
        why = "the capture does not say whether the kernel has it"
    note = ParameterNote(parameter=name, asked=f"{name} of CPUs {format_cpulist(found)}", found="unknown", reason=why)
    return found, None, [note]
