# SPDX-License-Identifier: Apache-2.0
"""What on a published page cannot be: its parts held against each other.

Nothing is corrected. A page that says what no machine does keeps its figures, and says so.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from calibration.context.cmdline import parse_cmdline, parse_isolcpus
from calibration.formats.lines import first_of, shortened, whole_number
from calibration.formats.pma_jitter import TASKSET
from calibration.results.consistency import RULES, read_claims
from calibration.results.readings import (
    Inconsistency,
    ReadBandwidthMatrix,
    ReadC2cLatency,
    Reading,
    ReadJitter,
    ReadLatencyMatrix,
    ReadLoadedLatency,
    inconsistency,
)

MACHINES: Final = (
    ("Arm", "aarch64", r"taishan|kunpeng|cortex|neoverse|thunderx|altra|ampere|graviton|grace\b|\barm\b|aarch64"),
    ("AMD", "x86_64", r"epyc|ryzen|\bzen ?\d|\bamd\b|\bmilan\b|\brome\b|genoa|bergamo|turin"),
    (
        "Intel",
        "x86_64",
        r"haswell|broadwell|skylake|(?:cascade|cooper|ice) ?lake|sapphire|emerald|denverton|\b(?:xeon|atom|intel)\b",
    ),
    ("IBM", "ppc64le", r"\bpower ?\d+\b|ppc64"),
)
"""Words that tell what a machine is: vendor, architecture, and the words."""

ONLY: Final = {
    "intel_iommu": "Intel",
    "intel_pstate": "Intel",
    "intel_idle.max_cstate": "Intel",
    "amd_iommu": "AMD",
    "amd_pstate": "AMD",
}
"""Kernel parameters that do something on processors of one vendor only."""

PLACEHOLDER_PROSE: Final = re.compile(r"^[ \t]{0,40}(?:TB[CD]\b.*|TO[D]O\b.*|\w{1,8}: add some .*)$", re.MULTILINE)
INCLUDE: Final = re.compile(r"^\.\. include::[ \t]{0,40}(\S{1,200})", re.MULTILINE)
REFERENCE: Final = re.compile(r"`([^`<>]{1,200})`_(?!_)")
TARGET: Final = re.compile(r"\.\. _([^:\n]{1,200}):")
CLAIM: Final = re.compile(
    r"all\s{1,20}other\s{1,20}servers[^.]{0,200}?\bsame\s{1,20}or\s{1,20}similar(?:\s{1,20}values)?", re.IGNORECASE
)
NODE_COUNT: Final = re.compile(r"NUMA node\(s\):\s{1,40}(\d{1,4})\b")
LONGEST_COMMAND: Final = 4000
"""A longer command is looked at from its end."""

LONGEST_NAME: Final = 64
"""The name of a kernel parameter is shorter."""

ARCHITECTURE: Final = re.compile(r"\b(x86_64|aarch64|ppc64le|s390x|riscv64)\b")
RELEASE: Final = re.compile(r"^\d+\.\d+\S*$")
BOOTED: Final = re.compile(r"vmlinu[xz]-(\S+)")

NOISE_FRACTION: Final = 0.01
"""Figures that should be in order may be out of it by this much: two runs differ by more."""

SWEEP_NOISE_FRACTION: Final = 0.05
"""The same for neighbours in a sweep of delays."""


@dataclass(frozen=True)
class PageFacts:
    """What a page says besides its results; the first group of ``host`` is the name of its SUT.

    ``introduction`` is the text above the first section below the title, ``titles`` are those of all sections.
    """

    text: str
    title: str | None
    introduction: str = ""
    titles: tuple[str, ...] = ()
    cmdline: str | None = None
    uname: str | None = None
    host: re.Match[str] | None = None


def page_inconsistencies(facts: PageFacts, readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    """Yield what in *facts* and *readings* of one page contradicts itself."""
    yield from _references(facts)
    yield from _kernel(facts)
    yield from _machine(facts)
    isolated = _isolated(facts.cmdline or "")
    for reading in readings:
        if isinstance(reading.values, ReadJitter):
            yield from _jitter(reading, reading.values, isolated)
        elif isinstance(reading.values, ReadLoadedLatency):
            yield from _sweep(reading.id, reading.values)
        elif isinstance(reading.values, ReadLatencyMatrix | ReadBandwidthMatrix):
            yield from _local(reading.id, reading.values)
    yield from _contradictions(readings)
    yield from _sizes(facts, readings)


def _references(facts: PageFacts) -> Iterator[Inconsistency]:
    text = facts.text
    for match in PLACEHOLDER_PROSE.finditer(text):
        yield inconsistency("PLACEHOLDER", "text", f"found {match[0].strip()!r}")
    for match in INCLUDE.finditer(text):
        yield inconsistency("NOT_GIVEN", "include", f"the page includes {match[1]}, which is not part of it")
    known = {*facts.titles, *TARGET.findall(text)}
    for match in REFERENCE.finditer(text):
        name = " ".join(match[1].split())
        if name not in known:
            yield inconsistency("NOT_GIVEN", "reference", f"the page refers to {name!r} and does not say where it is")
    if said := CLAIM.search(text):
        claim = " ".join(said[0].split())
        yield inconsistency("UNPROVED", "text", f"the page says {claim!r}, and has figures of one machine")


def _kernel(facts: PageFacts) -> Iterator[Inconsistency]:
    if facts.uname is not None:
        words = facts.uname.split()
        nameless = len(words) > 2 and RELEASE.match(words[1]) is not None and not RELEASE.match(words[2])
        if nameless:
            yield inconsistency(
                "HOST_CONTRADICTS",
                "uname",
                f"expected a host name after {words[0]!r}, found the release {words[1]}",
            )
        elif facts.host is not None and len(words) > 1 and words[1].lower() != facts.host[1].lower():
            yield inconsistency(
                "HOST_CONTRADICTS", "uname", f"expected {facts.host[1]}, which the page is about, found {words[1]}"
            )
        release = words[1 if nameless else 2] if len(words) > 2 else None
        booted = BOOTED.search(facts.cmdline or "")
        if booted is not None and release is not None and booted[1] != release:
            yield inconsistency("KERNEL_CONTRADICTS", "uname", f"expected the booted {booted[1]}, found {release}")
    if facts.cmdline is None:
        return
    parameters = parse_cmdline(facts.cmdline).parameters
    names = {each.name for each in parameters if 2 < len(each.name) <= LONGEST_NAME}
    for each in parameters:
        if (fused := _fused(each.value or "", names)) is not None:
            yield inconsistency(
                "CMDLINE_DAMAGED",
                "cmdline",
                f"expected a space before {fused!r}, found {shortened(f'{each.name}={each.value}')}: "
                "two parameters run together",
            )


def _fused(value: str, names: set[str]) -> str | None:
    """Return which of the parameters *names* begins inside of *value*."""
    for sign in re.finditer("=", value):
        start = max(0, sign.start() - LONGEST_NAME)
        for place in range(start, sign.start() - 2):
            if value[place : sign.start()] in names:
                return value[place : sign.start()]
    return None


def _machine(facts: PageFacts) -> Iterator[Inconsistency]:
    named = next((each for text in (facts.title or "", facts.introduction) if (each := _named(text)) is not None), None)
    if named is None:
        return
    vendor, architecture = named
    found = ARCHITECTURE.search(facts.uname or "")
    if found is not None and found[1] != architecture:
        reason = f"expected {architecture} of an {vendor} machine, found {found[1]}"
        yield inconsistency("ARCHITECTURE", "uname", reason)
    for parameter in parse_cmdline(facts.cmdline or "").parameters:
        wanted = ONLY.get(parameter.name, vendor)
        if wanted != vendor and parameter.value not in {"off", "disable"}:
            reason = f"found {parameter.name}={parameter.value or ''}, which is for {wanted}, of an {vendor} machine"
            yield inconsistency("ARCHITECTURE", "cmdline", reason)


def _named(text: str) -> tuple[str, str] | None:
    for vendor, architecture, words in MACHINES:
        if re.search(words, text, re.IGNORECASE):
            return vendor, architecture
    return None


class _Isolated(NamedTuple):
    """The CPUs that a kernel command line isolates: the text of its last list, and the CPUs or why it has none."""

    text: str
    cpus: frozenset[int]
    fault: str | None


def _isolated(cmdline: str) -> _Isolated | None:
    """Return what *cmdline* isolates; ``None`` where it does not say."""
    lists = [each.value for each in parse_cmdline(cmdline).parameters if each.name == "isolcpus"]
    if not lists or not lists[-1]:
        return None
    try:
        return _Isolated(shortened(lists[-1]), frozenset(parse_isolcpus(lists[-1]).cpus), None)
    except ValueError as error:
        return _Isolated(shortened(lists[-1]), frozenset(), str(error))


def _jitter(reading: Reading, values: ReadJitter, isolated: _Isolated | None) -> Iterator[Inconsistency]:
    command = (reading.command or "")[-LONGEST_COMMAND:]
    pinned = TASKSET.search(command)
    options = _options(command, "jitter")
    for what, asked, said in (
        ("CPU", pinned and pinned[1], values.cpu),
        ("CPU", options.get("-c"), values.cpu),
        ("iterations", options.get("-i"), values.iterations),
    ):
        wanted = whole_number(asked or "")
        if wanted is not None and said is not None and wanted != said:
            yield inconsistency(
                "COMMAND_CONTRADICTS", reading.id, f"the command asks for {what} {wanted}, the output says {said}"
            )
    if values.cpu is None or isolated is None:
        return
    if isolated.fault is not None:
        yield inconsistency("CMDLINE_DAMAGED", "cmdline", f"isolcpus={isolated.text}: {isolated.fault}")
    elif values.cpu not in isolated.cpus:
        reason = f"CPU {values.cpu} is not among the isolated {isolated.text}"
        yield inconsistency("CORE_NOT_ISOLATED", reading.id, reason)


def _options(command: str, program: str) -> dict[str, str]:
    """Return the options with one letter that *command* gives to *program*, and their values."""
    words = command.split()
    place = next((place for place, word in enumerate(words) if word.rsplit("/", 1)[-1] == program), len(words))
    found: dict[str, str] = {}
    for word, following in zip(words[place + 1 :], [*words[place + 2 :], ""], strict=False):
        if len(word) > 1 and word[0] == "-":
            found[word[:2]] = word[2:] or following
    return found


def _contradictions(readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    """Yield what no machine has measured: what a text prints is exact, and its maximum is that of its own figures."""
    for where, claim in read_claims(readings):
        (name, value), (other, bound) = ((each.figure.name, each.figure.value) for each in claim[1:])
        if claim.rule == "maximum" and value > bound:
            below = f"{(1 - bound / value) * 100:.2f} % below {name.rpartition(' of ')[0]} of the same page"
            yield inconsistency("ORDER", where, f"{other} is {bound:g} MB/s, {below}, {value:g}")
        elif value > bound * (1 + RULES[claim.rule].tolerance):
            yield inconsistency("ORDER", where, f"{name} is {value:g} MB/s, more than {other}, {bound:g}")


def _sweep(where: str, values: ReadLoadedLatency) -> Iterator[Inconsistency]:
    for one, next_one in pairwise(sorted(values.points, key=lambda point: point.inject_delay)):
        if next_one.bandwidth_mb_s > one.bandwidth_mb_s * (1 + SWEEP_NOISE_FRACTION):
            yield inconsistency(
                "ORDER",
                where,
                f"bandwidth rises from {one.bandwidth_mb_s:g} to {next_one.bandwidth_mb_s:g} MB/s between the delays "
                f"{one.inject_delay} and {next_one.inject_delay}",
            )


def _local(where: str, values: ReadLatencyMatrix | ReadBandwidthMatrix) -> Iterator[Inconsistency]:
    latency = isinstance(values, ReadLatencyMatrix)
    matrix = values.latency_ns if isinstance(values, ReadLatencyMatrix) else values.bandwidth_mb_s
    unit = "ns" if latency else "MB/s"
    for node, row in zip(values.cpu_nodes, matrix, strict=True):
        cells = {column: cell for column, cell in zip(values.memory_nodes, row, strict=True) if cell is not None}
        if node not in cells or len(cells) == 1:
            continue
        best = (min if latency else max)(cells, key=lambda column: cells[column])
        low, high = sorted((cells[node], cells[best]))
        if high > low * (1 + NOISE_FRACTION):
            reason = f"node {node} reaches node {best} with {cells[best]:g} {unit}, itself with {cells[node]:g} {unit}"
            yield inconsistency("ORDER", where, reason)


def _sizes(facts: PageFacts, readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    nodes = {
        each.id: set(each.values.nodes)
        if isinstance(each.values, ReadC2cLatency)
        else {*each.values.cpu_nodes, *each.values.memory_nodes}
        for each in readings
        if isinstance(each.values, ReadLatencyMatrix | ReadBandwidthMatrix)
        or (isinstance(each.values, ReadC2cLatency) and each.values.nodes)
    }
    if not nodes:
        return
    first, *others = nodes
    for other in others:
        remote = other.startswith("c2c_latency")  # a node without CPUs has no cache: it may be missing there
        if not (nodes[other] <= nodes[first] if remote else nodes[other] == nodes[first]):
            yield inconsistency(
                "SIZES_CONTRADICT",
                other,
                f"expected the nodes {_list(nodes[first])} of {first}, found {_list(nodes[other])}",
            )
    if (count := NODE_COUNT.search(facts.text)) and int(count[1]) != len(nodes[first]):
        reason = f"expected the {count[1]} NUMA nodes that the page names, found {len(nodes[first])}"
        yield inconsistency("SIZES_CONTRADICT", first, reason)


def _list(nodes: set[int]) -> str:
    return ", ".join(first_of([str(node) for node in sorted(nodes)]))
