# SPDX-License-Identifier: Apache-2.0
"""What is expected of a SUT before it is measured, what was found, and what follows when the two differ.

Some checks need nothing but to ask the SUT once (``first_checks``); the others compare its captured context with what
the inventory promises (``evaluate``). A check says expected and found whether it is met or not. Not met, or impossible
to establish, it keeps the SUT from being measured (``blocking``) or marks every figure (``flag``), as declared.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationError

from calibration.context.cmdline import parse_cmdline, parse_isolcpus
from calibration.context.cpulists import MAX_ID, format_cpulist, parse_cpulist
from calibration.context.model import Context, CpuLoad, Load, Node, Parameter
from calibration.context.tree import printable
from calibration.errors import EnvironmentLacksError, InputError
from calibration.model import Model, fault_of
from calibration.plan import Plan, make_plan
from calibration.profiles import Profile
from calibration.validity import Flag, flag

Effect = Literal["blocking", "flag"]
Declared = Literal["blocking", "flag", "off"]
Outcome = Literal["met", "not_met", "unknown"]


class Check(Model):
    """One expectation of a SUT, and what was found; ``unknown`` where it could not be established."""

    name: str
    title: str
    expected: str
    found: str
    outcome: Outcome
    effect: Effect

    @property
    def failed(self) -> bool:
        """Whether the SUT is not shown to be as expected: what could not be established is no pass."""
        return self.outcome != "met"


class Kind(NamedTuple):
    """A check whose effect an inventory may declare: its title, its effect by default, and what to do."""

    title: str
    effect: Declared
    advice: str


CHECKS: dict[str, Kind] = {
    "kernel_arguments": Kind(
        "Kernel arguments", "blocking", "Boot the SUT with them, or correct preflight_kernel_arguments"
    ),
    "kernel_release": Kind("Kernel release", "blocking", "Boot that kernel, or correct preflight_kernel_release"),
    "isolated_cpus": Kind(
        "Isolated CPUs", "blocking", "Boot the SUT with isolcpus= of these CPUs, or correct preflight_isolated_cpus"
    ),
    "isolation_kept": Kind(
        "Isolation as the command line asks for",
        "flag",
        "See the kernel's log: it names what it could not isolate and why",
    ),
    "foreign_load": Kind(
        "Other load on the CPUs to be measured", "flag", "End what runs there, or keep it off these CPUs"
    ),
    "free_memory": Kind("Memory available on each node", "flag", "Free memory on the node, or reserve less of it"),
    "clock_source": Kind("Invariant clock source", "flag", "See why the kernel left it: dmesg | grep -i clocksource"),
    "time": Kind("Time as on the controller", "flag", "Set the SUT's clock, or the controller's"),
    "time_synchronised": Kind("Time synchronisation", "off", "Start the SUT's NTP or PTP service"),
    "directory_safe": Kind(
        "Remote directory safe from other users",
        "blocking",
        "Take away other users' permission to write there, or set calibration_remote_base to another directory",
    ),
    "cpu_model": Kind("Processor as on the testbed's other SUTs", "flag", "Use SUTs of one kind in a testbed"),
    "microcode": Kind(
        "Microcode as on the testbed's other SUTs", "flag", "Bring the SUTs to one microcode and reboot them"
    ),
    "bios": Kind("BIOS as on the testbed's other SUTs", "flag", "Bring the SUTs to one BIOS version"),
}
"""Blocking is what would make figures describe another machine than the one declared, or what a run itself would be
endangered by. A flag is what leaves the figures true of the machine as it was, and a reader must know. Off by default
is only what no figure depends on."""

AGREED = ("cpu_model", "microcode", "bios")
"""The checks that compare SUTs of one testbed."""

MISSING_TEXT = "cannot be told"


# What the inventory promises


class Expectations(Model):
    """What the inventory says a SUT is like; an empty text promises nothing."""

    kernel_arguments: str = ""
    kernel_release: str = ""
    isolated_cpus: str = ""
    foreign_load_max: float = 0.05
    node_free_bytes: int = 0
    time_offset_max_s: float = 2.0
    effects: dict[str, Declared] = Field(default_factory=dict)

    def effect(self, name: str) -> Declared:
        """Return what follows when the check *name* fails."""
        return self.effects.get(name, CHECKS[name].effect)


def read_expectations(given: Mapping[str, Any]) -> Expectations:
    """Return the expectations that *given*, the variables without their prefix, state.

    Figures may come as text, as ``-e name=value`` has them. Raises ``InputError`` with the variable's name.
    """
    arguments = " ".join(_arguments(given.get("kernel_arguments") or ""))
    values = {
        "kernel_arguments": _promised_text("kernel_arguments", arguments, "a text"),
        "kernel_release": _promised_text("kernel_release", given.get("kernel_release", ""), "a text"),
        "isolated_cpus": _cpu_text(given.get("isolated_cpus", "")),
        "foreign_load_max": _figure("foreign_load_max", given, 1.0),
        "node_free_bytes": int(_figure("node_free_bytes", given, 2.0**62)),
        "time_offset_max_s": _figure("time_offset_max_s", given, 1e9),
        "effects": _effects(given.get("effects") or {}),
    }
    return Expectations.model_validate(values)


def _arguments(given: Any) -> Iterator[str]:
    """Yield the kernel arguments *given* as a text, a list or a mapping, as texts in their order.

    Source of the mapping: the variable ``grub`` of CSIT's inventories, and the task of its role ``performance_tuning``
    that makes a command line of it. A value goes into it as it is, with the further arguments that may stand in it.
    """
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | None):
                raise InputError(
                    "expected names of kernel arguments with true, a text or a number each for "
                    f"preflight_kernel_arguments, found {name!r}: {value!r}"
                )
            yield name if value is True else f"{name}={'' if value is None else value}"
    elif isinstance(given, list | tuple) and all(isinstance(each, str | Mapping) for each in given):
        for each in given:
            yield from _arguments(each)
    else:
        raise InputError(
            f"expected a text, a list or a mapping of kernel arguments for preflight_kernel_arguments, found {given!r}"
        )


def _promised_text(name: str, given: Any, wanted: str) -> str:
    if not isinstance(given, str) or not given.replace("\n", " ").isprintable():
        raise InputError(f"expected {wanted} for preflight_{name}, found {given!r}")
    return " ".join(given.split())


def _cpu_text(given: Any) -> str:
    text = _promised_text("isolated_cpus", str(given) if isinstance(given, int) else given, "a list of CPUs")
    if text not in ("", "none"):
        try:
            parse_cpulist(text, MAX_ID)
        except ValueError as error:
            raise InputError(
                f"expected a list of CPUs such as 2-7,10, or none, for preflight_isolated_cpus: {error}"
            ) from error
    return text


def _figure(name: str, given: Mapping[str, Any], most: float) -> float:
    default = Expectations.model_fields[name].default
    value = given.get(name, default)
    try:
        figure = float(value)
    except (TypeError, ValueError):
        figure = -1.0
    if isinstance(value, bool) or not 0 <= figure <= most:
        raise InputError(f"expected a number from 0 to {most:g} for preflight_{name}, found {value!r}")
    return figure


def _effects(given: Any) -> dict[str, Declared]:
    if not isinstance(given, Mapping):
        raise InputError(f"expected a mapping of checks to effects for preflight_effects, found {given!r}")
    found: dict[str, Declared] = {}
    for name, effect in given.items():
        if name not in CHECKS:
            raise InputError(f"expected one of the checks {', '.join(CHECKS)} in preflight_effects, found {name!r}")
        # YAML takes a bare off for false
        known = next((each for each in get_args(Declared) if each == ("off" if effect is False else effect)), None)
        if known is None:
            raise InputError(
                f"expected one of {', '.join(get_args(Declared))} for {name} in preflight_effects, found {effect!r}"
            )
        found[str(name)] = known
    return found


# What the SUT says when it is asked


class Identity(Model):
    """What SUTs of one testbed are compared by; ``microcode`` has every version in use, empty where none is told.

    ``off`` are the checks that are off for this SUT: in these it is compared with no other.
    """

    cpu_model: str | None
    microcode: tuple[str, ...]
    product: str | None
    bios: str | None
    off: tuple[str, ...] = ()


class UnsafePlace(Model):
    """A directory above the run's through which another user could put something else in its place."""

    path: str
    reason: str


class RemoteBase(Model):
    """The state of the directory in which the run's own will be made."""

    path: str
    exists: bool
    directory: bool
    writable: bool
    noexec: bool | None
    free_bytes: int | None
    unsafe: tuple[UnsafePlace, ...]


class RunningKernel(Model):
    """A measuring program of another run."""

    pid: int
    path: str


class SutTime(Model):
    """The SUT's clock in s since the epoch when the module began and ended, and whether its kernel calls it in sync.

    ``synchronised`` is None, with the reason, where the kernel does not say.
    """

    began_s: float
    ended_s: float
    synchronised: bool | None
    maximum_error_s: float | None
    reason: str | None


class Facts(Model):
    """What the module ``sut_preflight_info`` returns."""

    system: str
    machine: str
    python_version: str
    uid: int
    remote_base: RemoteBase
    running: tuple[RunningKernel, ...]
    time: SutTime
    memory_available_bytes: int | None
    identity: Identity


MAX_LEVELS = 16
"""Levels of what a SUT says that are read; facts have four."""

LONGEST_TEXT = 400
"""What a SUT says is cut to this many characters: longer texts are no versions, names or paths."""


def read_facts(answer: Mapping[str, Any]) -> Facts:
    """Return the facts in *answer*, what the module returned. Raises ``EnvironmentLacksError`` for another form."""
    try:
        return Facts.model_validate_json(_safe({name: answer.get(name) for name in Facts.model_fields}))
    except ValidationError as error:
        raise EnvironmentLacksError(
            "expected the facts that sut_preflight_info returns, found another answer of the SUT: "
            f"{fault_of(error)}. Look at its Python and at what its login prints"
        ) from error


def _safe(value: Any) -> str:
    def safe(part: Any, levels: int) -> Any:
        if isinstance(part, str):
            return printable(part[:LONGEST_TEXT])[:LONGEST_TEXT]
        if isinstance(part, Mapping) and levels:
            return {str(name)[:LONGEST_TEXT]: safe(each, levels - 1) for name, each in part.items()}
        if isinstance(part, list | tuple) and levels:
            return [safe(each, levels - 1) for each in part[:LONGEST_TEXT]]
        return None if isinstance(part, Mapping | list | tuple) else part

    return json.dumps(safe(value, MAX_LEVELS), default=str)


class Requirements(Model):
    """What any SUT must have, whatever the inventory promises."""

    python_minimum: str
    architectures: tuple[str, ...]
    remote_free_bytes: int


class RoundTrip(Model):
    """The controller's clock in s since the epoch before the SUT was asked and after it had answered."""

    asked_s: float
    answered_s: float


def first_checks(
    facts: Facts, requirements: Requirements, expectations: Expectations, trip: RoundTrip
) -> tuple[Check, ...]:
    """Return the checks that need no more than *facts*."""
    findings = (_directory_safe(facts), _times(facts, trip, expectations))
    return (*_required(facts, requirements), *_declared(expectations, *findings))


def _required(facts: Facts, wanted: Requirements) -> Iterator[Check]:
    base = facts.remote_base

    def check(name: str, title: str, expected: str, found: str, *, met: bool) -> Check:
        return Check(
            name=name,
            title=title,
            expected=expected,
            found=found,
            outcome="met" if met else "not_met",
            effect="blocking",
        )

    yield check(
        "python",
        "The SUT's Python",
        f"{wanted.python_minimum} or newer",
        facts.python_version,
        met=version(facts.python_version) >= version(wanted.python_minimum),
    )
    yield check("system", "Operating system", "Linux", facts.system, met=facts.system == "Linux")
    yield check(
        "architecture",
        "Architecture",
        f"one of {', '.join(wanted.architectures)}",
        facts.machine,
        met=facts.machine in wanted.architectures,
    )
    usable = base.directory and base.writable
    state = "one without permission to write" if base.directory else "no directory" if base.exists else "nothing"
    yield check(
        "remote_base",
        "Place for the run's directory",
        f"a directory at {base.path} that user id {facts.uid} can write",
        "as expected" if usable else state,
        met=usable,
    )
    if not usable:
        return
    yield check(
        "programs",
        "Programs may be started",
        f"a file system that allows programs to be started at {base.path}",
        "one mounted with noexec" if base.noexec else "as expected",
        met=not base.noexec,
    )
    yield check(
        "space",
        "Space for the run's directory",
        f"at least {wanted.remote_free_bytes} bytes free at {base.path}",
        "not told" if base.free_bytes is None else str(base.free_bytes),
        met=(base.free_bytes or 0) >= wanted.remote_free_bytes,
    )
    yield check(
        "alone",
        "No other calibration",
        f"no other calibration below {base.path}",
        ", ".join(f"{each.path} as process {each.pid}" for each in facts.running) or "none",
        met=not facts.running,
    )


REQUIRED_ADVICE = {
    "python": "Install one, or set ansible_python_interpreter to its path",
    "system": "Take the SUT out of the inventory",
    "architecture": "There is no measurement kernel for it: take the SUT out of the inventory",
    "remote_base": "Set calibration_remote_base to another directory",
    "programs": "Set calibration_remote_base to a directory on another file system",
    "space": "Free some space or set calibration_remote_base to another directory",
    "alone": "Two calibrations disturb each other: wait for it, or end it with playbooks/cleanup.yml",
}
"""What to do when one of the checks fails that no declaration can switch off."""


def version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to compare two: 3.11.2rc1 is (3, 11, 2)."""
    numbers = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


class Finding(NamedTuple):
    """What a check found, before its declaration is looked up."""

    name: str
    expected: str
    found: str
    outcome: Outcome


LONGEST_FINDING = 2000
"""Characters of an expected or found text that are kept: a kernel's command line has at most 4096."""

MAX_ARGUMENTS = 2048
"""Most kernel arguments compared: no kernel takes more than 4096 characters of them."""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_FINDING else f"{text[: LONGEST_FINDING - 4]} ..."


def _declared(expectations: Expectations, *findings: Iterable[Finding]) -> Iterator[Check]:
    for each in (finding for group in findings for finding in group):
        effect = expectations.effect(each.name)
        if effect != "off":
            yield Check(
                name=each.name,
                title=CHECKS[each.name].title,
                expected=_cut(each.expected),
                found=_cut(each.found),
                outcome=each.outcome,
                effect=effect,
            )


def _met(condition: bool) -> Outcome:
    return "met" if condition else "not_met"


def _directory_safe(facts: Facts) -> Iterator[Finding]:
    unsafe = facts.remote_base.unsafe
    if facts.remote_base.exists:
        yield Finding(
            "directory_safe",
            f"that nobody but root and user id {facts.uid} can replace {facts.remote_base.path} or what is in it",
            "; ".join(f"{each.path}: {each.reason}" for each in unsafe) or "as expected",
            _met(not unsafe),
        )


def _times(facts: Facts, trip: RoundTrip, expectations: Expectations) -> Iterator[Finding]:
    """Yield what is known about the SUT's clock.

    The SUT read its clock after it was asked and before it had answered, so its offset lies between two bounds. It
    fails only where both bounds lie beyond the limit: a slow connection is no wrong clock.
    """
    ahead = facts.time.began_s - trip.asked_s
    behind = facts.time.ended_s - trip.answered_s
    most = expectations.time_offset_max_s
    expected = f"within {most:g} s of the controller's clock"
    if behind > ahead:
        yield Finding("time", expected, "a clock that was set while the SUT was asked", "unknown")
    else:
        nearest = 0.0 if behind <= 0 <= ahead else min(abs(ahead), abs(behind))
        middle, half = (ahead + behind) / 2, (ahead - behind) / 2
        where = "ahead of" if middle > 0 else "behind"
        found = f"{abs(middle):.1f} s {where} the controller's, give or take {half:.1f} s"
        yield Finding("time", expected, found, _met(nearest <= most))
    synchronised = facts.time.synchronised
    error_s = facts.time.maximum_error_s
    bound = "" if error_s is None else f", with an error of at most {error_s:.3f} s by its own account"
    yield Finding(
        "time_synchronised",
        "a clock that the kernel calls synchronised (adjtimex)",
        facts.time.reason or MISSING_TEXT
        if synchronised is None
        else f"synchronised{bound}"
        if synchronised
        else "not synchronised",
        "unknown" if synchronised is None else _met(synchronised),
    )


# What the capture shows


class Known(Model):
    """What was found before the capture: the first checks, and the SUTs of the testbed by name, this one among them."""

    checks: tuple[Check, ...] = ()
    testbed: str = ""
    sut: str = ""
    identities: dict[str, Identity] = Field(default_factory=dict)


def read_known(given: Mapping[str, Any]) -> Known:
    """Return what the first part of a playbook handed over. Raises ``InputError`` for another form."""
    try:
        return Known.model_validate_json(_safe(given))
    except ValidationError as error:
        raise InputError(f"expected what the role preflight found out: {fault_of(error)}") from error


def evaluate(
    context: Context,
    known: Known,
    expectations: Expectations,
    *,
    plan: Plan | None = None,
    short: Mapping[int, int] | None = None,
) -> tuple[Check, ...]:
    """Return every check of a SUT: those of *known*, and those that its *context* answers.

    Foreign load is looked for on the CPUs of *plan*, and on all where there is none. *short* are the nodes whose memory
    does not suffice for the plan, with what would (see ``short_of_memory``).
    """
    measured = context.online_cpus if plan is None else tuple(sorted({cpu for step in plan.steps for cpu in step.cpus}))
    return (
        *known.checks,
        *_declared(
            expectations,
            _kernel_arguments(context, expectations.kernel_arguments),
            _kernel_release(context, expectations.kernel_release),
            _isolated_cpus(context, expectations.isolated_cpus),
            _isolation_kept(context),
            _foreign_load(context, measured, expectations.foreign_load_max),
            _free_memory(context, expectations.node_free_bytes, short or {}),
            _clock_source(context),
            _agreed(known),
        ),
    )


def read_examination(given: Mapping[str, Any], profile: Profile) -> Callable[[Context, Plan], tuple[Check, ...]]:
    """Return what examines a SUT's context and plan, from what the role preflight handed over.

    *given* has ``known`` (the first checks, and who is compared with whom) and ``expectations``; without them no check
    is made. The plan is made anew with *profile* to see what memory it needs. Raises ``InputError`` for another form.
    """
    if not given.get("known"):
        return lambda _context, _plan: ()
    known = read_known(given["known"])
    expectations = read_expectations(given.get("expectations") or {})

    def examine(context: Context, plan: Plan) -> tuple[Check, ...]:
        switched = any(step.prefetchers is not None for step in plan.steps)

        def planned(each: Context, chosen: Profile) -> Plan:
            return make_plan(each, chosen, plan.traffic_shape, plan.last_level_cache, prefetchers_ok=switched)

        short = short_of_memory(context, profile, planned)
        return evaluate(context, known, expectations, plan=plan, short=short)

    return examine


def taken_over_check(given: Mapping[str, Any]) -> Check:
    """Return what is told of a stale reservation that was put right (``holder``, ``why``, ``changes``)."""
    run = (given.get("holder") or {}).get("run_id") or "an unknown run"
    changes = given.get("changes") or []
    back = f"; {len(changes)} settings were put back" if changes else ""
    return Check(
        name="reservation",
        title="Reservation",
        expected="none, or one that is no longer alive",
        found=printable(f"that of {run}: {given.get('why')}{back}")[:LONGEST_TEXT],
        outcome="met",
        effect="flag",
    )


def refusal(checks: Iterable[Check]) -> str | None:
    """Return why the SUT must not be measured: every blocking check that is not met; None where all are."""
    reasons = [
        f"{each.title}: expected {each.expected}, found {each.found}.{_advice(each.name)}"
        for each in checks
        if each.failed and each.effect == "blocking"
    ]
    return " ".join(reasons) or None


def flags(checks: Iterable[Check]) -> Iterator[Flag]:
    """Yield a validity flag for each check that is not met and was declared to be one."""
    for each in checks:
        if each.failed and each.effect == "flag":
            yield flag("NOT_AS_EXPECTED", f"{each.title}: expected {each.expected}, found {each.found}")


def _advice(name: str) -> str:
    """Return what to do about a check; nothing for one of another version of this project."""
    kind = CHECKS.get(name)
    advice = kind.advice if kind else REQUIRED_ADVICE.get(name)
    return f" {advice}." if advice else ""


# Kernel arguments

CPU_LISTS = frozenset({"nohz_full", "rcu_nocbs", "irqaffinity", "kthread_cpus"})
"""Arguments whose value is a list of CPUs, the same however it is written; isolcpus has words before its list."""

SIZES = frozenset({"hugepagesz", "default_hugepagesz"})
"""Arguments whose value is a size, as the kernel's memparse takes it: 1G is 1024M."""

COLLECTED = frozenset(
    {"console", "earlycon", "hugepagesz", "hugepages", "memmap", "module_blacklist", "initcall_blacklist", "pci"}
)
"""Arguments that the kernel collects; of any other a repetition with another value would take the first one's place."""


class Argument(NamedTuple):
    """A kernel argument in the form in which two are compared, and as it was written.

    ``of`` is what the kernel takes it to belong to: a number of huge pages belongs to the page size before it.
    """

    name: str
    value: Any
    of: Any
    text: str


def arguments_of(parameters: Iterable[Parameter], last: int | None = None) -> list[Argument]:
    """Return *parameters* in their order, comparable: dashes are underscores, lists of CPUs are sets."""
    found = []
    size: Any = None
    for each in parameters:
        name = each.name.replace("-", "_")
        value = _comparable(name, each.value, last)
        if name in SIZES:
            size = value
        text = each.name if each.value is None else f"{each.name}={each.value}"
        found.append(Argument(name, value, size if name == "hugepages" else None, text))
    return found


def _comparable(name: str, value: str | None, last: int | None) -> Any:
    if value is None:
        return None
    try:
        if name == "isolcpus":
            parsed = parse_isolcpus(value, last)
            return frozenset(parsed.flags + parsed.unknown_flags or ("domain",)), frozenset(parsed.cpus)
        if name in CPU_LISTS:
            return frozenset(parse_cpulist(value, last))
    except ValueError:
        return value
    if name in SIZES and value[:-1].isascii() and value[:-1].isdigit() and value[-1:].upper() in ("K", "M", "G"):
        return int(value[:-1]) << {"K": 10, "M": 20, "G": 30}[value[-1:].upper()]
    return value


def compare_arguments(expected: Sequence[Argument], found: Sequence[Argument]) -> list[str]:
    """Return how *found* departs from *expected*, an ordered list: one sentence each, none where it has them all.

    Arguments that nobody expects are allowed anywhere, unless one repeats what was expected with another value.
    """
    pairs = _in_order(expected, found)
    free = [index for index in range(len(found)) if index not in set(pairs.values())]
    faults = []
    for place, wanted in enumerate(expected):
        if place in pairs:
            continue
        same = next((at for at in free if found[at][:3] == wanted[:3]), None)
        other = next((at for at in free if found[at].name == wanted.name), None)
        if same is not None:
            free.remove(same)
            faults.append(f"{wanted.text}: expected {_place(expected, place)}, found {_place(found, same)}")
        elif other is not None:
            free.remove(other)
            instead = f"{found[other].text}{_belongs(found[other])}"
            faults.append(f"{wanted.text}: expected it{_belongs(wanted)}, found {instead}")
        else:
            faults.append(f"{wanted.text}: expected it, found no such argument")
    names = {each.name: each for each in expected if each.name not in COLLECTED}
    for at in free:
        each = found[at]
        if each.name in names and each[:3] not in {wanted[:3] for wanted in expected}:
            faults.append(f"{names[each.name].text}: expected it alone, found {each.text} beside it")
    return faults


def _place(arguments: Sequence[Argument], at: int) -> str:
    if at:
        return f"after {arguments[at - 1].text}"
    return f"before {arguments[1].text}" if len(arguments) > 1 else "first"


def _belongs(argument: Argument) -> str:
    if argument.name != "hugepages":
        return ""
    return " for the default size" if argument.of is None else f" for pages of {argument.of} bytes"


def _in_order(expected: Sequence[Argument], found: Sequence[Argument]) -> dict[int, int]:
    """Return the longest common subsequence of two lists: place in *expected* to place in *found*."""
    lengths = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for one in range(len(expected) - 1, -1, -1):
        for two in range(len(found) - 1, -1, -1):
            lengths[one][two] = (
                lengths[one + 1][two + 1] + 1
                if expected[one][:3] == found[two][:3]
                else max(lengths[one + 1][two], lengths[one][two + 1])
            )
    pairs = {}
    one = two = 0
    while one < len(expected) and two < len(found):
        if expected[one][:3] == found[two][:3]:
            pairs[one] = two
            one, two = one + 1, two + 1
        elif lengths[one + 1][two] >= lengths[one][two + 1]:
            one += 1
        else:
            two += 1
    return pairs


def _last_cpu(context: Context) -> int | None:
    known = context.cpus.possible or context.online_cpus
    return max(known) if known else None


def _kernel_arguments(context: Context, wanted: str) -> Iterator[Finding]:
    if not wanted:
        return
    expected = f"in this order: {wanted}"
    if context.cmdline is None:
        yield Finding("kernel_arguments", expected, f"/proc/cmdline {MISSING_TEXT}", "unknown")
        return
    if len(context.cmdline.parameters) > MAX_ARGUMENTS:
        found = f"{len(context.cmdline.parameters)} arguments, more than any kernel takes"
        yield Finding("kernel_arguments", expected, found, "unknown")
        return
    last = _last_cpu(context)
    faults = compare_arguments(
        arguments_of(parse_cmdline(wanted).parameters, last), arguments_of(context.cmdline.parameters, last)
    )
    yield Finding("kernel_arguments", expected, "; ".join(faults) or context.cmdline.text, _met(not faults))


def _kernel_release(context: Context, wanted: str) -> Iterator[Finding]:
    if wanted:
        found = context.capture.kernel_release
        yield Finding(
            "kernel_release",
            wanted,
            found or MISSING_TEXT,
            "unknown" if found is None else _met(fnmatchcase(found, wanted)),
        )


# Isolation


def _list(cpus: Iterable[int]) -> str:
    return format_cpulist(cpus) or "none"


def _isolated_cpus(context: Context, wanted: str) -> Iterator[Finding]:
    if not wanted:
        return
    isolation = context.isolation
    try:
        expected = set() if wanted == "none" else set(parse_cpulist(wanted, _last_cpu(context)))
    except ValueError as error:
        yield Finding("isolated_cpus", wanted, f"no CPU that this could be: {error}", "unknown")
        return
    if isolation.isolated_source is None:
        yield Finding("isolated_cpus", _list(expected), f"the isolated CPUs {MISSING_TEXT}", "unknown")
        return
    found = set(isolation.isolated) | set(isolation.cpuset_isolated)
    parts = [_list(found)]
    if isolation.isolated_source != "kernel":
        parts.append("by the command line alone, the kernel does not say")
    if expected - found:
        parts.append(f"{_list(expected - found)} not isolated")
    if found - expected:
        parts.append(f"{_list(found - expected)} isolated and not expected to be")
    yield Finding("isolated_cpus", _list(expected), ", ".join(parts), _met(found == expected))


def _isolation_kept(context: Context) -> Iterator[Finding]:
    """Yield whether the kernel isolates what its command line asks for; nothing where that asks for nothing."""
    isolation = context.isolation
    possible = set(context.cpus.possible or ()) | set(context.online_cpus)
    asked: list[tuple[str, set[int], tuple[int, ...], bool]] = []
    try:
        if isolation.isolcpus_text:
            parsed = parse_isolcpus(isolation.isolcpus_text, _last_cpu(context))
            if parsed.isolates_domain:
                known = isolation.isolated_source == "kernel"
                asked.append(("isolated", set(parsed.cpus), isolation.isolated, known))
        if isolation.nohz_full_text:
            known = isolation.nohz_full_source == "kernel"
            cpus = set(parse_cpulist(isolation.nohz_full_text, _last_cpu(context)))
            asked.append(("nohz_full", cpus, isolation.nohz_full, known))
    except ValueError as error:
        yield Finding("isolation_kept", "lists of CPUs on the command line", printable(str(error)), "unknown")
        return
    if not asked:
        return
    outcome: Outcome = "met"
    found = []
    for name, wanted, kept, known in asked:
        found.append(f"{name} {_list(kept)}" if known else f"{name} {MISSING_TEXT}")
        if not known:
            outcome = "unknown" if outcome == "met" else outcome
        elif wanted & possible != set(kept):
            outcome = "not_met"
    expected = ", ".join(f"{name} {_list(wanted & possible)}" for name, wanted, _, _ in asked)
    yield Finding("isolation_kept", f"{expected} in /sys/devices/system/cpu", ", ".join(found), outcome)


# Load

NAMED_CPUS = 8
"""CPUs named in one sentence; more are counted."""

NAMED_PROCESSES = 3
"""Processes named for one CPU, busiest first."""


def _foreign_load(context: Context, measured: Collection[int], most: float) -> Iterator[Finding]:
    wanted = frozenset(measured)
    cpus = wanted.union(*(core.cpus for core in context.topology.cores if not wanted.isdisjoint(core.cpus)))
    expected = f"at most {most * 100:.0f} % of each of CPUs {_list(cpus)} in use before the run measures"
    load = context.load
    seen = [] if load is None else [each for each in load.cpus if each.cpu in cpus]
    if load is None or not seen:
        why = next((each.reason for each in context.unreadable if each.path == "/load"), "the capture has no snapshots")
        yield Finding("foreign_load", expected, f"the load {MISSING_TEXT}: {why}", "unknown")
        return
    busiest = sorted(seen, key=lambda each: (-each.busy - each.stolen, each.cpu))
    over = [each for each in busiest if each.busy + each.stolen > most]
    named = [_busy_text(each, load, sibling=each.cpu not in measured) for each in (over or busiest[:1])[:NAMED_CPUS]]
    if len(over) > NAMED_CPUS:
        named.append(f"and {len(over) - NAMED_CPUS} more CPUs")
    yield Finding("foreign_load", expected, f"over {load.interval_s:.1f} s: {'; '.join(named)}", _met(not over))


def _busy_text(each: CpuLoad, load: Load, *, sibling: bool) -> str:
    share = min(1.0, each.busy + each.stolen)
    text = f"CPU {each.cpu}{' (shares a core with a measured one)' if sibling else ''} {share * 100:.0f} %"
    if each.stolen > load.resolution:
        text += f", {min(1.0, each.stolen) * 100:.0f} % of it taken by the hypervisor"
    if each.busy <= load.resolution:
        return text
    there = [process for process in load.processes if each.cpu in process.cpus]
    names = [f"{process.name} (process {process.pid})" for process in there[:NAMED_PROCESSES]]
    if len(there) > NAMED_PROCESSES:
        names.append(f"{len(there) - NAMED_PROCESSES} more")
    return f"{text}, seen there: {', '.join(names) or 'no process that still runs and that this login may see'}"


# Memory

ENOUGH_BYTES = 1 << 50
"""Memory of a node on which nothing that a plan asks for is cut: a petabyte."""


def short_of_memory(context: Context, profile: Profile, planned: Callable[[Context, Profile], Plan]) -> dict[int, int]:
    """Return the nodes whose available memory makes the plan smaller than it would be, and the bytes that would do.

    *planned* makes the plan of a context and a profile. The figure is exact to 2 %.
    """

    def steps(available: Mapping[int, int], chosen: Profile) -> list[tuple[str, tuple[str, ...]]]:
        nodes = tuple(
            each.model_copy(update={"available_bytes": available.get(each.id, ENOUGH_BYTES)})
            if each.available_bytes is not None and each.memory_bytes
            else each
            for each in context.nodes
        )
        plan = planned(context.model_copy(update={"nodes": nodes}), chosen)
        return [(step.kind, step.argv) for step in plan.steps]

    told = {each.id: each.available_bytes for each in context.nodes if each.available_bytes and each.memory_bytes}
    smaller = {kind for kind, _ in set(steps({}, profile)) ^ set(steps(told, profile))}
    if not smaller:
        return {}
    # Each node takes a dozen plans: only of the kinds that are short of memory.
    measurements = {kind: each for kind, each in profile.measurements.items() if kind in smaller}
    profile = profile.model_copy(update={"measurements": measurements})
    whole = steps({}, profile)
    short = {}
    for node, available in told.items():
        if steps({node: available}, profile) == whole:
            continue
        low = high = max(1 << 20, available)
        while high < ENOUGH_BYTES and steps({node: high}, profile) != whole:
            low, high = high, high * 2
        while high - low > high // 50:
            middle = (low + high) // 2
            low, high = (low, middle) if steps({node: middle}, profile) == whole else (middle, high)
        short[node] = high
    return short


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


def _free_memory(context: Context, least: int, short: Mapping[int, int]) -> Iterator[Finding]:
    nodes = [each for each in context.nodes if each.memory_bytes is None or each.memory_bytes > 0]
    wanted = {each.id: max(least, short.get(each.id, 0)) for each in nodes}
    faults = [each for each in nodes if each.available_bytes is not None and each.available_bytes < wanted[each.id]]
    told = all(each.available_bytes is not None for each in nodes) and bool(nodes)
    expected = [f"at least {_mib(wanted[each.id])} available on node {each.id}" for each in nodes if wanted[each.id]]
    yield Finding(
        "free_memory",
        ", ".join(expected) or "on each node what the plan would use of unlimited memory",
        ", ".join(map(_node_text, nodes)) or "no node with memory",
        "not_met" if faults else _met(True) if told else "unknown",
    )


def _node_text(node: Node) -> str:
    available = MISSING_TEXT if node.available_bytes is None else f"{node.available_bytes >> 20} MiB"
    of = "" if node.memory_bytes is None else f" of {node.memory_bytes >> 20} MiB"
    return f"node {node.id} {available}{of}"


# Clock

TRUSTED_X86 = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page")
"""Clock sources of x86_64 that read the TSC; the measuring program trusts the same ones."""

INVARIANT_FLAGS = ("constant_tsc", "nonstop_tsc")
"""What the kernel calls a TSC that neither changes its rate nor stops."""


def _clock_source(context: Context) -> Iterator[Finding]:
    current = context.clocksource.current
    available = ", ".join(context.clocksource.available) or "none named"
    found = f"{current or MISSING_TEXT} (available: {available})"
    if context.processor.architecture == "aarch64":
        expected = "arch_sys_counter, which the architecture makes invariant"
        met = current == "arch_sys_counter"
    else:
        wanted = (
            TRUSTED_X86[:1] if context.virtualization.guest is False else TRUSTED_X86
        )  # only a guest may have a paravirtual one
        expected = f"{' or '.join(wanted)}, and the processor flags {' and '.join(INVARIANT_FLAGS)}"
        lacking = [each for each in INVARIANT_FLAGS if each not in context.processor.flags]
        found += f", without {' and '.join(lacking)}" if lacking else f", with {' and '.join(INVARIANT_FLAGS)}"
        met = current in wanted and not lacking
    yield Finding("clock_source", expected, found, "unknown" if current is None else _met(met))


# Agreement within a testbed


def _agreed(known: Known) -> Iterator[Finding]:
    """Yield how this SUT compares with the others: microcode among equal processors, BIOS among equal machines."""
    own = known.identities.get(known.sut)
    if own is None:
        return

    def others(check: str) -> dict[str, Identity]:
        return {name: each for name, each in known.identities.items() if name != known.sut and check not in each.off}

    if peers := others("cpu_model"):
        yield _agreement("cpu_model", own.cpu_model, {name: each.cpu_model for name, each in peers.items()})
    codes = ", ".join(own.microcode)
    alike = {name: each for name, each in others("microcode").items() if each.cpu_model == own.cpu_model}
    if len(own.microcode) > 1:
        yield Finding("microcode", "one microcode on all CPUs", codes, "not_met")
    elif alike and any(each.microcode for each in (own, *alike.values())):
        yield _agreement("microcode", codes, {name: ", ".join(each.microcode) for name, each in alike.items()})
    kin = {name: each for name, each in others("bios").items() if each.product == own.product}
    if kin and any(each.bios for each in (own, *kin.values())):
        yield _agreement("bios", own.bios, {name: each.bios for name, each in kin.items()})


def _agreement(name: str, own: str | None, others: Mapping[str, str | None]) -> Finding:
    by_value: dict[str, list[str]] = {}
    for sut, value in sorted(others.items()):
        by_value.setdefault(value or MISSING_TEXT, []).append(sut)
    expected = " and ".join(f"{value} as on {', '.join(suts)}" for value, suts in by_value.items())
    if not own or MISSING_TEXT in by_value:
        return Finding(name, expected, own or MISSING_TEXT, "unknown")
    return Finding(name, expected, own, _met(list(by_value) == [own]))
