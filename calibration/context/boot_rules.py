# SPDX-License-Identifier: Apache-2.0
"""What the kernel makes of the parameters that set CPUs aside, by its version.

Sources: ``kernel/sched/isolation.c``, ``kernel/time/tick-sched.c``, ``kernel/rcu/tree_nocb.h`` (``tree_plugin.h``
before 5.15), ``kernel/irq/irqdesc.c``, ``lib/bitmap-str.c``, ``kernel/sched/core.c`` and ``kernel/params.c`` of Linux
5.10, 6.1, 6.12, 7.2 and 7.3, the first also of 4.19, 6.0, 6.18 and the kernels of EL 8.2 and 8.7; the pull requests of
the versions from 5.2 on in which a rule changed; guests of 5.10, 6.1, 6.12, 6.18, 6.19, 7.0 and 7.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from calibration.base.cpulists import BOOT_CPU, format_cpulist, groups, parse_cpulist, split_isolcpus
from calibration.base.text import visible
from calibration.context.model import CommandLine, ParameterNote

Version = tuple[int, int]
Situation = Literal["repeated", "refused", "lacking", "adjusted", "abbreviated", "evidence"]

ALWAYS: Final[Version] = (0, 0)


class Rule(NamedTuple):
    """How kernels from *since* on, until the next rule of the same *topic*, treat *parameters*; *does* decides."""

    topic: str
    does: str
    since: Version
    parameters: str
    situation: Situation
    words: str


_HOUSEKEEPING = "isolcpus=, nohz_full="
_LISTS = "lists of CPUs"

RULES: Final = (
    Rule("name", "same", ALWAYS, "every parameter", "abbreviated", "A dash in a name is an underscore: nohz-full=2-3."),
    Rule("numbers", "", ALWAYS, _LISTS, "abbreviated", "Numbers and ranges."),
    Rule("numbers", "strides", (4, 9), _LISTS, "abbreviated", "Also strides of ranges: 0-31:2/4."),
    Rule(
        "numbers", "strides N", (5, 13), _LISTS, "abbreviated",
        "Also N, the last possible CPU: 2-N. A small n is refused.",
    ),
    Rule(
        "numbers", "strides N all", (5, 14), _LISTS, "abbreviated",
        "Also all, in any case, alone or with a stride: ALL:1/2.",
    ),
    Rule(
        "last", "built", ALWAYS, _LISTS, "refused",
        "A CPU beyond the last possible one is an error of the whole list. Kernels built with fixed masks (no "
        "CONFIG_CPUMASK_OFFSTACK) accept numbers up to kernel_max, and drop those of CPUs that do not exist.",
    ),
    Rule("last", "possible", (6, 1), _LISTS, "refused", "The last possible CPU is the limit in any build."),
    Rule("beyond", "as in other lists", ALWAYS, _HOUSEKEEPING, "refused", "As in other lists."),
    Rule(
        "beyond", "refused", (4, 15), _HOUSEKEEPING, "refused",
        "In any build an argument with a CPU beyond the last possible one is refused. In 5.13 with fixed masks that "
        "is so for N, too.",
    ),
    Rule("beyond", "as in other lists", (5, 14), _HOUSEKEEPING, "refused", "As in other lists."),
    Rule(
        "list", "partial", ALWAYS, _HOUSEKEEPING, "refused",
        "Of a list that cannot be read, isolcpus= has what comes before the error; nohz_full= is refused.",
    ),
    Rule(
        "list", "whole", (4, 15), _HOUSEKEEPING, "refused",
        "With a list that cannot be read the argument is refused.",
    ),
    Rule("empty", "ignored", ALWAYS, _HOUSEKEEPING, "repeated", "The last one applies, with CPUs or without."),
    Rule(
        "empty", "either", (4, 15), _HOUSEKEEPING, "repeated",
        "A list without CPUs counts: a later one with CPUs is refused. Later 6.1.y ignore it.",
    ),
    Rule("empty", "ignored", (6, 9), _HOUSEKEEPING, "repeated", "A list without CPUs is ignored."),
    Rule(
        "masks", "last", ALWAYS, _HOUSEKEEPING, "repeated",
        "The last isolcpus= and the last nohz_full= apply, each by itself.",
    ),
    Rule(
        "masks", "one", (4, 15), _HOUSEKEEPING, "repeated",
        "Both have one mask, set by whichever comes first. A later argument with the same list adds its flags; with "
        "another list it is refused.",
    ),
    Rule(
        "masks", "each", (5, 18), _HOUSEKEEPING, "repeated",
        "Each flag (domain, managed_irq, nohz) has a mask. A later argument sets the flags that are not yet set; one "
        "that repeats a flag with another list is refused, its new flags included.",
    ),
    Rule(
        "masks", "once", (7, 0), _HOUSEKEEPING, "repeated",
        "As before, but one that repeats a flag is refused with the same list, too: nohz_full=2-3 "
        "isolcpus=nohz,domain,2-3 isolates nothing (seen up to 7.3).",
    ),
    Rule("spare", "no", ALWAYS, _HOUSEKEEPING, "adjusted", "The two may together name every CPU."),
    Rule(
        "spare", "yes", (6, 19), _HOUSEKEEPING, "refused",
        "A later argument that leaves no present CPU outside both nohz_full= and isolcpus=domain is refused.",
    ),
    Rule("spare", "no", (7, 0), _HOUSEKEEPING, "adjusted", "As before 6.19 (seen up to 7.3)."),
    Rule("boot", "any", ALWAYS, "isolcpus=", "adjusted", "A list of every CPU is taken as it is."),
    Rule(
        "boot", "possible", (4, 15), _HOUSEKEEPING, "adjusted",
        "If no possible CPU would be left, the boot CPU (0) stays outside. A second argument with every CPU is "
        "refused.",
    ),
    Rule(
        "boot", "present", (5, 2), _HOUSEKEEPING, "adjusted",
        "If no present CPU would be left, the boot CPU (0) stays outside. From 6.9 on, and in later 6.1.y, CPUs that "
        "maxcpus= keeps offline do not count.",
    ),
    Rule(
        "tick", "always", ALWAYS, "nohz_full=", "adjusted",
        "The boot CPU keeps the time, and its tick, also where it is in the list.",
    ),
    Rule(
        "tick", "either", (5, 2), "nohz_full=", "adjusted",
        "As before, but kernels without suspend and hibernation leave it in.",
    ),
    Rule("flags", "", ALWAYS, "isolcpus=", "refused", "No flags: an argument with words is refused."),
    Rule("flags", "nohz domain", (4, 15), "isolcpus=", "refused", "Flags nohz and domain."),
    Rule("flags", "nohz domain managed_irq", (5, 6), "isolcpus=", "refused", "Also the flag managed_irq."),
    Rule("unknown flag", "refused", ALWAYS, "isolcpus=", "refused", "With an unknown flag the argument is refused."),
    Rule("unknown flag", "skipped", (5, 7), "isolcpus=", "refused", "An unknown flag of letters and _ is skipped."),
    Rule(
        "word", "flag", ALWAYS, "isolcpus=", "abbreviated",
        "What begins with a letter is a flag, all and N too: isolcpus=all isolates nothing, isolcpus=0-N does.",
    ),
    Rule(
        "no tick", "refused", ALWAYS, "nohz_full=, isolcpus=nohz", "lacking",
        "Without CONFIG_NO_HZ_FULL the argument is refused, all flags of that isolcpus= included; the file nohz_full "
        "is missing. The kernel boots without an error.",
    ),
    Rule("rcu list", "partial", ALWAYS, "rcu_nocbs=", "refused", "What was read before the error applies."),
    Rule(
        "rcu list", "all", (5, 2), "rcu_nocbs=", "refused",
        "A list that cannot be read, or goes beyond the last CPU, means all CPUs.",
    ),
    Rule("rcu all", "", ALWAYS, "rcu_nocbs=", "abbreviated", "all is a list that cannot be read."),
    Rule("rcu all", "all", (5, 2), "rcu_nocbs=", "abbreviated", "all, in any case, is all CPUs."),
    Rule("rcu repeated", "last", ALWAYS, "rcu_nocbs=", "repeated", "The last one applies."),
    Rule("rcu bare", "ignored", ALWAYS, "rcu_nocbs", "abbreviated", "Without a list it is no parameter."),
    Rule(
        "rcu bare", "none", (5, 17), "rcu_nocbs", "abbreviated",
        "Without a list no CPU is offloaded at boot, as with an empty one: offloading is only prepared.",
    ),
    Rule("rcu tick", "joined", ALWAYS, "rcu_nocbs=", "adjusted", "The CPUs of nohz_full= are added."),
    Rule(
        "rcu lacking", "ignored", ALWAYS, "rcu_nocbs=", "lacking",
        "Without CONFIG_RCU_NOCB_CPU there is no such parameter. Kernels with nohz_full have it.",
    ),
    Rule(
        "rcu threads", "some", ALWAYS, "rcu_nocbs=", "evidence",
        "Offloaded CPUs have a thread rcuop/N; rcuos/N without preemptible RCU.",
    ),
    Rule(
        "rcu threads", "each", (5, 17), "rcu_nocbs=", "evidence",
        "Every CPU has a thread rcuop/N once offloading is prepared; without such threads none is offloaded.",
    ),
    Rule(
        "rcu threads", "parked", (6, 11), "rcu_nocbs=", "evidence",
        "The threads rcuop/N of CPUs that are not offloaded are parked.",
    ),
    Rule(
        "irq list", "partial", ALWAYS, "irqaffinity=", "refused",
        "What was read before the error applies. The boot CPU is always added. default_smp_affinity has the result.",
    ),
    Rule(
        "preempt", "none voluntary full", ALWAYS, "preempt=", "refused",
        "none, voluntary or full, on kernels built with PREEMPT_DYNAMIC; debug/sched/preempt has the choice.",
    ),
    Rule(
        "preempt", "none voluntary full lazy", (6, 13), "preempt=", "refused",
        "Also lazy where the architecture has it.",
    ),
    Rule(
        "preempt", "full lazy", (7, 0), "preempt=", "refused",
        "full or lazy where the architecture has lazy preemption: none and voluntary are ignored.",
    ),
    Rule(
        "mitigations", "words", ALWAYS, "mitigations=", "refused",
        "off, auto or auto,nosmt; anything else is ignored, with an error in the log.",
    ),
    Rule(
        "mitigations", "vectors", (6, 17), "mitigations=", "refused",
        "Also attack vectors, on x86: auto,no_user_kernel; or ,no_cross_thread alone.",
    ),
    Rule("irq repeated", "last", ALWAYS, "irqaffinity=", "repeated", "The last one applies."),
)  # fmt: skip
"""One row for each rule and version: what is computed and what the guide's table says."""

_BACKPORTING = re.compile(r"\.el[0-9]", re.ASCII)
"""Kernels of Enterprise Linux, which have much of later versions: 4.18 of its version 8 knows managed_irq."""


def release_numbers(release: str | None) -> Version | None:
    """Return (major, minor) of a kernel release such as ``6.1.0-13-amd64``; None for any other form."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release or "", re.ASCII)
    return (int(match.group(1)), int(match.group(2))) if match else None


def behaviour(topic: str, version: Version) -> str:
    """Return what a kernel of *version* does about *topic*."""
    return max((rule for rule in RULES if rule.topic == topic and rule.since <= version), key=lambda r: r.since).does


def versions(release: str | None) -> tuple[Version, ...]:
    """Return the versions whose rules a kernel *release* may have, newest first: its own, or also later ones."""
    known = release_numbers(release)
    if known is not None and not _BACKPORTING.search(release or ""):
        return (known,)
    first = known or ALWAYS
    return tuple(sorted({first, *(rule.since for rule in RULES if rule.since > first)}, reverse=True))


@dataclass(frozen=True)
class Boot:
    """What the rules need to know of a machine.

    ``last`` is the last possible CPU, None where the capture does not have it. ``limit`` is the last CPU that a list
    may name. ``nohz_full`` says whether the kernel has it. ``boot_tick`` says whether the boot CPU keeps its tick,
    ``empty_counts`` whether a list without CPUs is one.
    """

    version: Version
    possible: frozenset[int]
    present: frozenset[int]
    last: int | None
    limit: int | None
    nohz_full: bool = True
    boot_tick: bool = True
    empty_counts: bool = False

    def does(self, topic: str) -> str:
        """Return what this kernel does about *topic*."""
        return behaviour(topic, self.version)


@dataclass
class Effect:
    """What a kernel makes of its command line."""

    domain: frozenset[int] = frozenset()
    nohz: frozenset[int] = frozenset()
    managed_irq: frozenset[int] = frozenset()
    flags: tuple[str, ...] = ()
    rcu: frozenset[int] = frozenset()
    irq: frozenset[int] | None = None
    notes: list[ParameterNote] = field(default_factory=list)


class _RefusedError(ValueError):
    """The kernel cannot use a value; the message says why."""


def _listed(cpus: frozenset[int]) -> str:
    return format_cpulist(cpus) or "none"


def _listed_cpus(text: str, boot: Boot) -> tuple[int, ...]:
    """Return the CPUs of a list in order. Raises :class:`_RefusedError`."""
    known = boot.does("numbers").split()
    for group in groups(text):
        if ":" in group and "strides" not in known:
            raise _RefusedError("kernels before 4.9 do not know strides")
        if "N" in group and "N" not in known:
            raise _RefusedError("kernels before 5.13 do not know N")
        if group[:3].lower() == "all" and "all" not in known:
            raise _RefusedError("kernels before 5.14 do not know all")
    try:
        cpus = parse_cpulist(text, boot.limit if boot.limit is not None else boot.last)
    except ValueError as error:
        raise _RefusedError(visible(str(error))) from None
    beyond = [cpu for cpu in cpus if boot.limit is not None and cpu > boot.limit]
    if beyond:
        raise _RefusedError(f"CPU {beyond[-1]} is beyond the last one, {boot.limit}")
    return cpus


def _parse(text: str, boot: Boot) -> frozenset[int]:
    """Return the CPUs of a list, as far as they exist. Raises :class:`_RefusedError`."""
    return boot.possible.intersection(_listed_cpus(text, boot))


def _prefix(text: str, boot: Boot) -> frozenset[int]:
    """Return the CPUs that are listed before the first fault."""
    found: frozenset[int] = frozenset()
    for group in groups(text):
        try:
            found |= _parse(group, boot)
        except _RefusedError:
            break
    return found


class _Housekeeping:
    """The masks of ``isolcpus=`` and ``nohz_full=`` while the command line is read."""

    def __init__(self, boot: Boot, effect: Effect) -> None:
        self.boot, self.effect = boot, effect
        self.masks: dict[str, frozenset[int]] = {}

    def read(self, name: str, value: str) -> None:
        """Take one argument."""
        flags: tuple[str, ...] = ("nohz",)
        try:
            text = value
            if name == "isolcpus":
                flags, text = self._flags(value)
            cpus = self._parse(text)
            kept = self._without_boot_cpu(cpus)
            self._add(flags, cpus, kept)
        except _RefusedError as error:
            if name == "isolcpus" and self.boot.does("list") == "partial":
                self.masks["domain"] = _prefix(value, self.boot)
                found = _listed(self.masks["domain"])
                self.effect.notes.append(note(name, value, found, f"{error}; what comes before it applies"))
            else:
                self.effect.notes.append(note(name, value, "refused", str(error)))
        else:
            if kept != cpus:
                why = f"the boot CPU, {BOOT_CPU}, stays outside"
                self.effect.notes.append(note(name, value, _listed(kept), why))
            if name == "isolcpus":
                self.effect.flags = tuple(dict.fromkeys((*self.effect.flags, *flags)))

    def _flags(self, value: str) -> tuple[tuple[str, ...], str]:
        known = self.boot.does("flags").split()
        try:
            flags, unknown, text = split_isolcpus(value)
        except ValueError as error:
            raise _RefusedError(visible(str(error))) from None
        unknown = (*unknown, *(flag for flag in flags if flag not in known))
        if unknown and self.boot.does("unknown flag") == "refused":
            raise _RefusedError(f"this kernel does not know the flag {visible(unknown[0])[:40]}")
        return tuple(flag for flag in flags if flag in known) or ("domain",), text

    def _parse(self, text: str) -> frozenset[int]:
        boot, cpus = self.boot, _listed_cpus(text, self.boot)
        last = boot.last if boot.limit is not None and boot.does("beyond") == "refused" else None
        if last is not None and max(cpus, default=0) > last:
            raise _RefusedError(f"CPU {max(cpus)} is beyond the last one, {last}")
        return boot.possible.intersection(cpus)

    def _without_boot_cpu(self, cpus: frozenset[int]) -> frozenset[int]:
        """Return *cpus* without the boot CPU if no CPU that counts would be left."""
        counted = {"any": frozenset[int](), "possible": self.boot.possible, "present": self.boot.present}
        left = counted[self.boot.does("boot")]
        return cpus - {BOOT_CPU} if left and left <= cpus else cpus

    def _add(self, flags: tuple[str, ...], listed: frozenset[int], cpus: frozenset[int]) -> None:
        if "nohz" in flags and "nohz" not in self.masks and not self.boot.nohz_full:
            raise _RefusedError("this kernel is built without nohz_full (CONFIG_NO_HZ_FULL)")
        mode = self.boot.does("masks")
        if mode == "last":
            self.masks.update(dict.fromkeys(flags, cpus))
            return
        if not cpus and not self.boot.empty_counts:
            return
        asked = listed if self.boot.does("boot") == "possible" else cpus
        compared = self.masks if mode == "one" else {flag: self.masks[flag] for flag in flags if flag in self.masks}
        for flag, before in compared.items():
            if before != asked:
                raise _RefusedError(f"another list than the earlier one for {flag}, {_listed(before)}")
            if mode == "once":
                raise _RefusedError(f"kernels from 7.0 on take no second argument for {flag}, even with the same list")
        if self.boot.does("spare") == "yes" and {"nohz", "domain"}.intersection(flags):
            taken = [self.masks[flag] for flag in ("domain", "nohz") if flag in self.masks][:1]
            if taken and self.boot.present and not self.boot.present - cpus - taken[0]:
                raise _RefusedError("it leaves no CPU outside both nohz_full= and isolcpus=")
        self.masks |= {flag: cpus for flag in flags if flag not in self.masks}

    def finish(self, nohz: str | None) -> None:
        """Put the masks into the effect; *nohz* is the argument that set the tickless CPUs."""
        effect, tickless = self.effect, self.masks.get("nohz", frozenset())
        if self.boot.boot_tick and BOOT_CPU in tickless:
            tickless -= {BOOT_CPU}
            effect.notes.append(
                note("nohz_full", nohz or "", _listed(tickless), f"the boot CPU, {BOOT_CPU}, keeps its tick")
            )
        effect.domain = self.masks.get("domain", frozenset())
        effect.managed_irq = self.masks.get("managed_irq", frozenset())
        effect.nohz = tickless


def note(name: str, value: str | None, found: str, reason: str) -> ParameterNote:
    """Return that the kernel makes *found* of a parameter, and why."""
    text = visible(name if value is None else f"{name}={value}")
    return ParameterNote(
        parameter=name, asked=text if len(text) <= 80 else text[:77] + "...", found=found, reason=reason
    )


def _read_rcu(value: str | None, boot: Boot, effect: Effect) -> frozenset[int]:
    if value is None:
        effect.notes.append(note("rcu_nocbs", None, "none", "without a list no CPU is offloaded at boot"))
        return frozenset()
    if value.lower() == "all" and boot.does("rcu all") == "all":
        return boot.possible
    try:
        return _parse(value, boot)
    except _RefusedError as error:
        found = boot.possible if boot.does("rcu list") == "all" else _prefix(value, boot)
        why = "this kernel then takes all CPUs" if boot.does("rcu list") == "all" else "what comes before it applies"
        effect.notes.append(note("rcu_nocbs", value, _listed(found), f"{error}; {why}"))
        return found


def _read_irq(value: str, boot: Boot, effect: Effect) -> frozenset[int]:
    try:
        return _parse(value, boot) | {BOOT_CPU}
    except _RefusedError as error:
        found = _prefix(value, boot) | {BOOT_CPU}
        effect.notes.append(
            note("irqaffinity", value, _listed(found), f"{error}; what comes before it and the boot CPU apply")
        )
        return found


def arguments(cmdline: CommandLine) -> Iterator[tuple[str, str | None]]:
    """Yield names, with underscores, and values in order."""
    for parameter in cmdline.parameters:
        yield parameter.name.replace("-", "_"), parameter.value


def apply(cmdline: CommandLine, boot: Boot) -> Effect:
    """Return what the kernel of *boot* makes of its command line."""
    effect = Effect()
    housekeeping = _Housekeeping(boot, effect)
    rcu: list[str | None] = []
    irq: list[str] = []
    nohz = None
    for name, value in arguments(cmdline):
        if name == "rcu_nocbs" and (value is not None or boot.does("rcu bare") == "none"):
            rcu.append(value)
        elif value is None:
            continue
        elif name == "irqaffinity":
            irq.append(value)
        elif name in {"isolcpus", "nohz_full"}:
            nohz = value if name == "nohz_full" else nohz
            housekeeping.read(name, value)
    housekeeping.finish(nohz)
    if rcu:
        effect.rcu = _read_rcu(rcu[-1], boot, effect)
    if irq:
        effect.irq = _read_irq(irq[-1], boot, effect)
    return effect
