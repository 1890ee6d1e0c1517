# SPDX-License-Identifier: Apache-2.0
"""The arguments of the booted kernel, in the expected order."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.context.cmdline import parse_cmdline, parse_isolcpus
from calibration.context.model import Context, Parameter
from calibration.context.topology import parse_size
from calibration.cpulists import parse_cpulist
from calibration.runner.blanking import BLANKED, blank

MAX_ARGUMENTS = 2048
"""Most kernel arguments compared: the kernel limits them to 4096 characters."""

CPU_LISTS = frozenset({"nohz_full", "rcu_nocbs", "irqaffinity", "kthread_cpus"})
"""Arguments whose value is a list of CPUs, in any notation; isolcpus has flag words before its list."""

SIZES = frozenset({"hugepagesz", "default_hugepagesz"})
"""Arguments whose value is a size, parsed like the kernel's memparse: 1G is 1024M."""

COLLECTED = frozenset(
    {"console", "earlycon", "hugepagesz", "hugepages", "memmap", "module_blacklist", "initcall_blacklist", "pci"}
)
"""Arguments that the kernel accumulates; any other one replaces an earlier one of the same name."""


class Argument(NamedTuple):
    """A kernel argument in comparable form, and as written.

    ``of`` is what it applies to: a number of huge pages applies to the page size before it.
    """

    name: str
    value: Any
    of: Any
    text: str


def arguments_of(parameters: Iterable[Parameter], last: int | None = None) -> list[Argument]:
    """Return *parameters* in order, in comparable form: dashes are underscores, lists of CPUs are sets."""
    found = []
    size: Any = None
    for parameter in parameters:
        name = parameter.name.replace("-", "_")
        value = _comparable(name, parameter.value, last)
        if name in SIZES:
            size = value
        text = parameter.name if parameter.value is None else f"{parameter.name}={parameter.value}"
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
        if name in SIZES:
            return parse_size(value.upper())
    except ValueError:
        pass
    return value


def compare_arguments(expected: Sequence[Argument], found: Sequence[Argument]) -> list[str]:
    """Return the differences of *found* from *expected*, an ordered list, as sentences; empty if it has them all.

    Additional arguments are allowed anywhere, unless one repeats an expected one with another value.
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
            faults.append(f"{wanted.text}{_belongs(wanted)}: found {instead}")
        else:
            faults.append(f"{wanted.text}: missing")
    names = {argument.name: argument for argument in expected if argument.name not in COLLECTED}
    for at in free:
        argument = found[at]
        if argument.name in names and argument[:3] not in {wanted[:3] for wanted in expected}:
            faults.append(f"{names[argument.name].text}: repeated as {argument.text}")
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
    """Return the longest common subsequence of two lists: index in *expected* to index in *found*."""
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


def last_cpu(context: Context) -> int | None:
    """Return the highest possible CPU number; None if the capture lacks it."""
    known = context.cpus.possible or context.online_cpus
    return max(known) if known else None


def check_kernel_arguments(context: Context, wanted: str) -> Finding:
    """Return whether the command line has the arguments *wanted*, in order; unknown if the SUT blanked one of them."""
    expected = f"in this order: {blank(wanted)}"
    if context.cmdline is None:
        return Finding("kernel_arguments", expected, UNKNOWN, "unknown")
    if len(context.cmdline.parameters) > MAX_ARGUMENTS:
        found = f"{len(context.cmdline.parameters)} arguments, more than {MAX_ARGUMENTS}"
        return Finding("kernel_arguments", expected, found, "unknown")
    last = last_cpu(context)
    asked = arguments_of(parse_cmdline(wanted).parameters, last)
    booted = arguments_of(context.cmdline.parameters, last)
    hidden = {argument.name for argument in booted if BLANKED in argument.text}
    faults = compare_arguments([argument for argument in asked if argument.name not in hidden], booted)
    unknown = [argument.name for argument in asked if argument.name in hidden]
    if unknown and not faults:
        text = f"{', '.join(unknown)}: blanked on the SUT, so that its value is unknown"
        return Finding("kernel_arguments", expected, text, "unknown")
    text = blank("; ".join(faults)) or context.cmdline.text
    return Finding("kernel_arguments", expected, text, outcome_of(not faults))
