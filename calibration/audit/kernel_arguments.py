# SPDX-License-Identifier: Apache-2.0
"""The arguments of the booted kernel, in the expected order."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.base.comparisons import PAGES, ReservedPages, argument_value, huge_pages, rule_of
from calibration.base.grouping import grouped
from calibration.context.cmdline import parse_cmdline
from calibration.context.model import Context, Parameter
from calibration.runner.blanking import BLANKED, blank

MAX_ARGUMENTS = 2048
"""Most kernel arguments compared: the kernel limits them to 4096 characters."""


class Argument(NamedTuple):
    """A kernel argument in comparable form, and as written."""

    name: str
    value: Hashable
    text: str


def arguments_of(parameters: Iterable[Parameter], last: int | None = None) -> list[Argument]:
    """Return *parameters* in order, in comparable form: dashes are underscores, and values of their kinds.

    Without those of huge pages.
    """
    return [
        Argument(name, argument_value(name, parameter.value, last), text_of(parameter))
        for parameter in parameters
        if (name := _name(parameter)) not in PAGES
    ]


def _name(parameter: Parameter) -> str:
    """Return the name of an argument, with the value if that is a switch of its own.

    ``sysctl.vm/swappiness`` is ``sysctl.vm.swappiness``.
    """
    plain = parameter.name.replace("-", "_")
    if (modes := rule_of(plain).modes) and parameter.value not in modes:
        return text_of(parameter)
    return plain.replace("/", ".") if plain.startswith("sysctl") else plain


def text_of(parameter: Parameter) -> str:
    """Return *parameter* as written, without quotes."""
    return parameter.name if parameter.value is None else f"{parameter.name}={parameter.value}"


def pages_of(parameters: Iterable[Parameter], architecture_default: int | None) -> ReservedPages:
    """Return the huge pages that *parameters* reserve."""
    pairs = ((parameter.name.replace("-", "_"), parameter.value) for parameter in parameters)
    return huge_pages([pair for pair in pairs if pair[0] in PAGES], architecture_default)


def compare_pages(expected: ReservedPages, found: ReservedPages) -> list[str]:
    """Return the differences of the huge pages *found* from those *expected*, as sentences.

    Additional sizes are allowed.
    """
    faults = []
    if expected.default_text is not None and expected.default != found.default:
        faults.append(f"{expected.default_text}: {_instead(found.default_text)}")
    available = {*found.sizes, *found.counts, found.default, expected.default}
    faults += [f"hugepagesz={text}: missing" for pages, text in expected.sizes.items() if pages not in available]
    spare = [pages for pages in found.counts if pages not in expected.counts]
    for pages, count in expected.counts.items():
        other = found.counts.get(pages)
        if (other.pages if other else 0) != count.pages:
            other = other or (found.counts[spare.pop(0)] if spare else None)
            faults.append(f"{count.text}: {_instead(other and other.text)}")
    return faults


def _instead(text: str | None) -> str:
    return "missing" if text is None else f"found {text}"


def _parts(argument: Argument) -> frozenset[Hashable]:
    """Return what an argument sets each by itself: flags of ``isolcpus=`` for CPUs, elements of what is collected."""
    if argument.name == "isolcpus" and isinstance(argument.value, tuple):
        flags, cpus = argument.value
        return frozenset((flag, cpus) for flag in flags)
    collected = rule_of(argument.name).collected
    return argument.value if collected and isinstance(argument.value, frozenset) else frozenset()


def _by_name(arguments: Iterable[Argument]) -> dict[str, list[Argument]]:
    return grouped((argument.name, argument) for argument in arguments)


def _whole(arguments: Sequence[Argument]) -> frozenset[Hashable] | None:
    """Return what *arguments* of one name set together; None if that depends on their order.

    Of several ``isolcpus=``, those with other CPUs, or a flag again, may be refused.
    """
    parts = [_parts(argument) for argument in arguments]
    whole: frozenset[Any] = frozenset().union(*parts)
    if not all(parts):
        return None
    if arguments[0].name == "isolcpus" and (sum(map(len, parts)) > len(whole) or len({cpus for _, cpus in whole}) > 1):
        return None
    return whole


def _joined(expected: Sequence[Argument], found: Sequence[Argument]) -> tuple[list[Argument], list[Argument]]:
    """Return both lists with the arguments of a name as one where they set the same: ``pci=a pci=b`` is ``pci=a,b``."""
    asked, booted = _by_name(expected), _by_name(found)
    wholes = {
        name: whole
        for name in asked.keys() & booted.keys()
        if len(asked[name]) != len(booted[name])
        and (whole := _whole(asked[name])) is not None
        and whole == _whole(booted[name])
    }

    def joined(arguments: Sequence[Argument], by_name: Mapping[str, list[Argument]]) -> list[Argument]:
        return [
            Argument(argument.name, wholes[argument.name], " ".join(one.text for one in by_name[argument.name]))
            if argument.name in wholes
            else argument
            for argument in arguments
            if argument.name not in wholes or argument is by_name[argument.name][0]
        ]

    return joined(expected, asked), joined(found, booted)


def _adds(at: int, found: Sequence[Argument], pairs: Collection[int]) -> bool:
    """Return whether an ``isolcpus=`` leaves those expected, at *pairs* of *found*, as they are.

    It has other flags, and comes later or has the same CPUs: for others the kernel may refuse the later of two.
    """
    name = found[at].name
    expected = [place for place in pairs if found[place].name == name]
    parts: list[frozenset[Any]] = [_parts(found[place]) for place in (*expected, at)]
    if name != "isolcpus" or not expected or not all(parts):
        return False
    repeated = {flag for flag, _ in parts.pop()} & {flag for part in parts for flag, _ in part}
    return not repeated and (at > max(expected) or _whole([found[place] for place in (*expected, at)]) is not None)


def compare_arguments(expected: Sequence[Argument], found: Sequence[Argument]) -> list[str]:
    """Return the differences of *found* from *expected*, an ordered list, as sentences; empty if it has them all.

    Additional arguments are allowed anywhere, unless one repeats an expected one with another value.
    """
    expected, found = _joined(expected, found)
    pairs = _in_order(expected, found)
    free = [index for index in range(len(found)) if index not in set(pairs.values())]
    faults = []
    for place, wanted in enumerate(expected):
        if place in pairs:
            continue
        same = next((at for at in free if found[at][:2] == wanted[:2]), None)
        other = next((at for at in free if found[at].name == wanted.name), None)
        if same is not None:
            free.remove(same)
            faults.append(f"{wanted.text}: expected {_place(expected, place)}, found {_place(found, same)}")
        elif other is not None:
            free.remove(other)
            faults.append(f"{wanted.text}: found {found[other].text}")
        else:
            faults.append(f"{wanted.text}: missing")
    names = {argument.name: argument for argument in expected if not rule_of(argument.name).collected}
    for at in free:
        argument = found[at]
        repeats = argument.name in names and argument[:2] not in {wanted[:2] for wanted in expected}
        if repeats and not _adds(at, found, pairs.values()):
            faults.append(f"{names[argument.name].text}: repeated as {argument.text}")
    return faults


def _place(arguments: Sequence[Argument], at: int) -> str:
    if at:
        return f"after {arguments[at - 1].text}"
    return f"before {arguments[1].text}" if len(arguments) > 1 else "first"


def _in_order(expected: Sequence[Argument], found: Sequence[Argument]) -> dict[int, int]:
    """Return the longest common subsequence of two lists: index in *expected* to index in *found*."""
    lengths = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for one in range(len(expected) - 1, -1, -1):
        for two in range(len(found) - 1, -1, -1):
            lengths[one][two] = (
                lengths[one + 1][two + 1] + 1
                if expected[one][:2] == found[two][:2]
                else max(lengths[one + 1][two], lengths[one][two + 1])
            )
    pairs = {}
    one = two = 0
    while one < len(expected) and two < len(found):
        if expected[one][:2] == found[two][:2]:
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
    wanted_parameters, parameters = parse_cmdline(wanted).parameters, context.cmdline.parameters
    asked, booted = arguments_of(wanted_parameters, last), arguments_of(parameters, last)
    hidden = {argument.name for argument in booted if BLANKED in argument.text}
    faults = compare_arguments([argument for argument in asked if argument.name not in hidden], booted)
    reserved = pages_of(parameters, None)
    default = context.memory.default_hugepage_bytes if reserved.default is None else None  # the architecture's
    faults += compare_pages(pages_of(wanted_parameters, default), pages_of(parameters, default))
    unknown = [argument.name for argument in asked if argument.name in hidden]
    if unknown and not faults:
        text = f"{', '.join(unknown)}: blanked on the SUT, so that its value is unknown"
        return Finding("kernel_arguments", expected, text, "unknown")
    text = blank("; ".join(faults)) or context.cmdline.text
    return Finding("kernel_arguments", expected, text, outcome_of(not faults))
