# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings of an expected state: how each is written, read and compared."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from calibration.audit import readings
from calibration.audit.cpu_sets import check_cpus, cpu_words, is_relation, related_cpus, shown
from calibration.audit.expected import accepts, spread, switch, texts
from calibration.audit.findings import Finding, outcome_of
from calibration.audit.kernel_arguments import check_kernel_arguments, last_cpu
from calibration.audit.readings import AuditedMachine, SettingReading
from calibration.base.comparisons import Kind as Comparison
from calibration.base.comparisons import words
from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.context.topology import parse_size
from calibration.context.vulnerabilities import left_open, state_of
from calibration.runner.requested_files import MAX_PATTERNS, fault

MAX_ITEMS: Final = 1000
"""Most settings of one expected state."""

OFF: Final = re.compile(
    r"(KVM: )?Mitigation(?!: PTE Inversion(?!.*cache flushes)|: VMX (disabled|unsupported)|: SMT disabled$"
    r"|: CSV2, but not BHB$|: etokens$|: Indirect branch (?!.*link stack flush)|.*(TSX disabled|\(locked\)))"
)
"""What ``mitigations=off`` leaves to no vulnerability.

Except for what costs nothing, what hardware has, and what the firmware has locked: ``bugs.c`` (x86), ``proton-pack.c``
(arm64), ``security.c`` (powerpc) and ``nospec-sysfs.c`` (s390) of the Linux kernel.
"""

IN_THE_CODE: Final = "Mitigation: __user pointer sanitization"
"""Part of the kernel's code, not a choice, except on POWER."""


class Item(Model):
    """One expected setting: its kind, which one of that kind, and the values that are right."""

    kind: str
    key: str = ""
    wanted: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its check."""
        return f"{self.kind}.{self.key}" if self.key else self.kind

    @property
    def pattern(self) -> str | None:
        """The pattern of the files that it is about; None if every capture has them."""
        if self.kind == "nics":
            return readings.device_file(self.key.partition(" ")[0])
        return {"sysctl": readings.sysctl_path(self.key), "sysfs": self.key}.get(self.kind)


class Kind(NamedTuple):
    """A kind of setting.

    ``parse`` yields key and values of each setting in a value of the file, and raises ``ValueError`` with what is wrong
    with it. ``check`` compares an item with a machine.
    """

    parse: Callable[[Any], Iterator[tuple[str, tuple[str, ...]]]]
    check: Callable[[Item, AuditedMachine], Finding]


Accepts = Callable[[Item, AuditedMachine, str, Comparison], bool | None]
"""Whether a value is right; None if that cannot be told from it."""


def _is_wanted(item: Item, machine: AuditedMachine, found: str, comparison: Comparison) -> bool | None:
    last = last_cpu(machine.context)
    if accepts(item.wanted, found, comparison, last):
        return True
    related = [related_cpus(machine.context, text) for text in item.wanted if is_relation(text)]
    if not related:
        return False
    try:
        cpus = comparison(found, last)
    except ValueError:
        return False
    if not isinstance(cpus, frozenset):
        return False
    if cpus & set(machine.context.online_cpus) in related:
        return True
    return None if None in related else False


def _reading(
    read: Callable[[AuditedMachine, str], SettingReading],
    accept: Accepts = _is_wanted,
    excluded: Callable[[Item, AuditedMachine, SettingReading], str | None] = lambda *_: None,
) -> Callable[[Item, AuditedMachine], Finding]:
    """Return the check of a setting that *read* reads, each of whose values *accept* judges.

    *excluded* returns why this machine cannot have what is wanted, though it has the setting.
    """

    def check(item: Item, machine: AuditedMachine) -> Finding:
        expected = " or ".join(shown(machine.context, text) for text in item.wanted)
        reading = read(machine, item.key)
        if reading.state != "found":
            return Finding(item.name, expected, reading.reason, reading.state)
        if (reason := excluded(item, machine, reading)) is not None:
            return Finding(item.name, expected, reason, "impossible")
        right = {
            place: accept(item, machine, value, reading.kinds.get(place, words))
            for place, value in reading.values.items()
        }
        wrong = [place for place, accepted in right.items() if accepted is False]
        untold = [place for place, accepted in right.items() if accepted is None]
        found = spread(reading.values, wrong or untold, reading.noun)
        if wrong or not (untold or reading.reason):
            return Finding(item.name, expected, found, outcome_of(not wrong))
        more = f"; not all could be read: {reading.reason}" if reading.reason else ""
        return Finding(item.name, expected, found + more, "unknown")

    return check


def _one(parse: Callable[[Any], tuple[str, ...]]) -> Callable[[Any], Iterator[tuple[str, tuple[str, ...]]]]:
    def parsed(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", parse(given)

    return parsed


def _mapping(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str | int) for key in given):
        raise ValueError(f"expected a mapping, not {given!r}"[:500])
    return {" ".join(str(key).split()): value for key, value in given.items()}


def _named(names: Iterable[str] | None = None) -> Callable[[Any], Iterator[tuple[str, tuple[str, ...]]]]:
    def parsed(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        for key, value in _mapping(given).items():
            if names is not None and key not in names:
                raise ValueError(f"no setting {key!r}, only {', '.join(names)}")
            yield key, texts(value)

    return parsed


def _releases(given: Any) -> tuple[str, ...]:
    """Return releases of the kernel: of mappings, as CSIT has them by distribution and architecture, all."""

    def leaves(part: Any) -> Iterator[Any]:
        if isinstance(part, Mapping | list | tuple):
            for inner in part.values() if isinstance(part, Mapping) else part:
                yield from leaves(inner)
        else:
            yield part

    return texts(list(dict.fromkeys(leaves(given))))


def _sysctl(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield kernel parameters: by name, or in mappings by the parts of their names, as CSIT's inventories have them.

    Values there may be in quotes of their own.
    """

    def flat(prefix: str, part: Any) -> Iterator[tuple[str, Any]]:
        for key, value in _mapping(part).items():
            if isinstance(value, Mapping) and prefix.count(".") < 8:
                yield from flat(f"{prefix}{key}.", value)
            elif value is not None:  # an empty mapping of YAML
                yield f"{prefix}{key}", value

    for name, value in flat("", given):
        path = readings.sysctl_path(name)
        reason = "it is no name of a kernel parameter" if path is None else fault(path)
        if reason is not None:
            raise ValueError(f"{name} cannot be audited: {reason}")
        yield name, tuple(text[1:-1] if re.fullmatch('"[^"]*"', text) else text for text in texts(value))


def _sysfs(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for path, value in _mapping(given).items():
        if (reason := fault(path)) is not None:
            raise ValueError(f"{path} cannot be audited: {reason}")
        yield path, texts(value)


def _pages(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for size, value in _mapping(given).items():
        parse_size(size)
        if not isinstance(value, Mapping):
            yield size, texts(value)
            continue
        for node, number in _mapping(value).items():
            if not re.fullmatch("[0-9]{1,4}", node, re.ASCII):
                raise ValueError(f"{size}: not the number of a node: {node!r}")
            yield f"{size} node {node}", texts(number)


def _nics(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for address, value in _mapping(given).items():
        if not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address, re.ASCII):
            raise ValueError(f"not a PCI address such as 0000:18:00.0: {address!r}")
        for name, wanted in _named(readings.NIC_KEYS)(value):
            yield f"{address} {name}", wanted


def _interrupts(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, wanted in _named(("on_isolated_cpus", "default_affinity"))(given):
        yield key, tuple(text for one in wanted for text in cpu_words(one)) if key == "default_affinity" else wanted


def _may_interrupt(item: Item, machine: AuditedMachine, found: str, comparison: Comparison) -> bool | None:
    """Return whether an interrupt may be delivered to an isolated CPU; that none is always is right."""
    none = item.key == "on_isolated_cpus" and found == readings.NO_INTERRUPT
    return none or _is_wanted(item, machine, found, comparison)


def _argued(item: Item, machine: AuditedMachine, found: str, comparison: Comparison) -> bool | None:
    """Return whether a kernel argument is as wanted; of one that is collected, one of its elements suffices."""
    if found == readings.ABSENT or readings.PRESENT in item.wanted:
        return found in item.wanted or (found != readings.ABSENT and readings.PRESENT in item.wanted)
    answers = {_is_wanted(item, machine, part, comparison) for part in readings.elements(item.key, found)}
    return True if True in answers else None if None in answers else False


def _preempts(item: Item, machine: AuditedMachine, found: str, comparison: Comparison) -> bool | None:
    """Return whether a kernel preempts as wanted; what is chosen at boot may not be known, but is not real-time."""
    if _is_wanted(item, machine, found, comparison):
        return True
    return False if found in readings.PREEMPTION or item.wanted == ("real-time",) else None


def _mitigations(given: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(given, Mapping):
        yield from _named()(given)
    else:
        yield "", switch(given)


def _mitigated(item: Item, machine: AuditedMachine, found: str, _comparison: Comparison) -> bool | None:
    if item.key:
        return accepts(item.wanted, found)
    if item.wanted == ("off",):
        in_the_code = found == IN_THE_CODE and not (machine.context.processor.architecture or "").startswith("ppc")
        return in_the_code or not OFF.match(found)
    state = state_of(found)
    # "SMT vulnerable" remains with every mitigation on, unless SMT is off.
    left = [part for part in left_open(found) if not part.startswith("SMT")]
    return None if state == "unknown" else state != "vulnerable" and not left


def _unaffected(item: Item, _machine: AuditedMachine, reading: SettingReading) -> str | None:
    found = reading.values.get("")
    return found if found == "Not affected" and not accepts(item.wanted, found) else None


def _no_deeper(item: Item, machine: AuditedMachine, found: str, _comparison: Comparison) -> bool:
    names = [state.name for state in machine.context.idle.states]
    allowed = [place for place, name in enumerate(names) if accepts(item.wanted, name)]
    return found == "none" or names.index(found) <= max(allowed)


def _no_state(item: Item, machine: AuditedMachine, _reading: SettingReading) -> str | None:
    names = [state.name for state in machine.context.idle.states]
    return None if any(accepts(item.wanted, name) for name in names) else f"no such idle state, only {', '.join(names)}"


def _no_source(item: Item, machine: AuditedMachine, _reading: SettingReading) -> str | None:
    if machine.context.processor.architecture in readings.TSC_ARCHITECTURES:
        return None  # the kernel may have given up what it had
    available = machine.context.clocksource.available
    known = any(accepts(item.wanted, name) for name in available)
    return None if known else f"no such clock source, only {', '.join(available) or 'unknown ones'}"


def _cpu_set(item: Item, machine: AuditedMachine) -> Finding:
    return check_cpus(machine.context, item.kind, item.wanted[0])


def arguments_of_file(given: Any) -> tuple[str, ...]:
    """Return kernel arguments as one text. Raises ``ValueError``."""
    text = " ".join(" ".join(arguments(given)).split())
    if not text or not text.isprintable():
        raise ValueError(f"expected kernel arguments, not {given!r}"[:500])
    return (text,)


def arguments(given: Any) -> Iterator[str]:
    """Yield the kernel arguments *given* as a text, a list or a mapping, as texts in order. Raises ``ValueError``.

    Source of the mapping: the variable ``grub`` of CSIT's inventories, and the task of its role ``performance_tuning``
    that makes a command line of it. Values are inserted verbatim, including any further arguments in them.
    """
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | None):
                text = f"must map each name to true, a text or a number, not {name!r} to {value!r}"[:500]
                raise ValueError(text)  # noqa: TRY004 - it is the file that is wrong, not the caller
            yield name if value is True else f"{name}={'' if value is None else value}"
    elif isinstance(given, list | tuple) and all(isinstance(part, str | Mapping) for part in given):
        for part in given:
            yield from arguments(part)
    else:
        raise ValueError(f"must be a text, a list or a mapping, not {given!r}"[:500])


def _arguments_check(item: Item, machine: AuditedMachine) -> Finding:
    return check_kernel_arguments(machine.context, item.wanted[0])


KINDS: Final[Mapping[str, Kind]] = {
    "kernel_arguments": Kind(_one(arguments_of_file), _arguments_check),
    "kernel_argument_values": Kind(_named(), _reading(readings.kernel_argument, _argued)),
    "kernel_release": Kind(_one(_releases), _reading(readings.kernel_release)),
    "preemption": Kind(_one(texts), _reading(readings.preemption, _preempts)),
    "isolated_cpus": Kind(_one(cpu_words), _cpu_set),
    "nohz_full": Kind(_one(cpu_words), _cpu_set),
    "rcu_nocbs": Kind(_one(cpu_words), _cpu_set),
    "housekeeping": Kind(_named(readings.HOUSEKEEPING_KEYS), _reading(readings.housekeeping)),
    "interrupts": Kind(_interrupts, _reading(readings.interrupts, _may_interrupt)),
    "sysctl": Kind(_sysctl, _reading(readings.sysctl)),
    "sysfs": Kind(_sysfs, _reading(readings.sysfs)),
    "transparent_hugepages": Kind(_one(texts), _reading(readings.transparent_hugepages)),
    "huge_pages": Kind(_pages, _reading(readings.huge_pages)),
    "governor": Kind(_one(texts), _reading(readings.governor)),
    "turbo": Kind(_one(switch), _reading(readings.turbo)),
    "deepest_idle_state": Kind(_one(texts), _reading(readings.idle_states, _no_deeper, _no_state)),
    "smt": Kind(_one(switch), _reading(readings.smt)),
    "mitigations": Kind(_mitigations, _reading(readings.mitigations, _mitigated, _unaffected)),
    "clocksource": Kind(_one(texts), _reading(readings.clocksource, excluded=_no_source)),
    "processor": Kind(_named(readings.PROCESSOR_KEYS), _reading(readings.processor)),
    "firmware": Kind(_named(readings.FIRMWARE_KEYS), _reading(readings.firmware)),
    "memory": Kind(_named(readings.MEMORY_KEYS), _reading(readings.memory)),
    "nics": Kind(_nics, _reading(readings.nics)),
}
"""In the order in which findings are shown."""


def read_items(given: Any, where: str) -> tuple[Item, ...]:
    """Return the items of an expected state; messages begin with *where*. Raises ``InputError``."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}expected a mapping of settings, not {type(given).__name__}")
    items: list[Item] = []
    for name, value in given.items():
        if name not in KINDS:
            raise InputError(f"{where}no setting {str(name)[:100]!r}, only {', '.join(KINDS)}")
        try:
            items += [Item(kind=name, key=key, wanted=wanted) for key, wanted in KINDS[name].parse(value)]
        except ValueError as error:
            raise InputError(f"{where}{name}: {error}") from error
    patterns = {item.pattern for item in items} - {None}
    if len(items) > MAX_ITEMS or len(patterns) > MAX_PATTERNS:
        raise InputError(
            f"{where}{len(items)} settings with {len(patterns)} files of /proc/sys and /sys, at most {MAX_ITEMS} "
            f"with {MAX_PATTERNS}: use patterns"
        )
    order = list(KINDS)
    return tuple(sorted(items, key=lambda item: order.index(item.kind)))


def evaluate_items(items: Iterable[Item], machine: AuditedMachine) -> Iterator[Finding]:
    """Yield a finding for each item."""
    for item in items:
        yield KINDS[item.kind].check(item, machine)


def asked_for(items: Iterable[Item]) -> tuple[str, ...]:
    """Return the patterns of the files that must be captured for *items*."""
    return tuple(dict.fromkeys(item.pattern for item in items if item.pattern is not None))
