# SPDX-License-Identifier: Apache-2.0
"""Contradictions within a published page.

Nothing is corrected: the values are kept, with the contradiction beside them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from calibration.base.cpulists import MAX_ID
from calibration.context.cmdline import parse_cmdline, parse_isolcpus
from calibration.formats.lines import first_of, shortened, whole_number
from calibration.formats.pma_jitter import TASKSET
from calibration.formats.readings import (
    Inconsistency,
    Reading,
    ReadJitter,
    ReadLoadedLatency,
    ReadMixes,
    ReadTable,
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
"""Words that identify a machine: vendor, architecture, and the words."""

VENDOR_PARAMETERS: Final = {
    "intel_iommu": "Intel",
    "intel_pstate": "Intel",
    "intel_idle.max_cstate": "Intel",
    "amd_iommu": "AMD",
    "amd_pstate": "AMD",
}
"""Linux parameters that have an effect on one vendor's processors only."""

PLACEHOLDER_PROSE: Final = re.compile(r"^[ \t]{0,40}(?:TB[CD]\b.*|TO[D]O\b.*|\w{1,8}: add some .*)$", re.MULTILINE)
INCLUDE: Final = re.compile(r"^\.\. include::[ \t]{0,40}(\S{1,200})", re.MULTILINE)
REFERENCE: Final = re.compile(r"`([^`<>]{1,200})`_(?!_)")
TARGET: Final = re.compile(r"\.\. _([^:\n]{1,200}):")
CLAIM: Final = re.compile(
    r"all\s{1,20}other\s{1,20}servers[^.]{0,200}?\bsame\s{1,20}or\s{1,20}similar(?:\s{1,20}values)?", re.IGNORECASE
)
NODE_COUNT: Final = re.compile(r"NUMA node\(s\):\s{1,40}(\d{1,4})\b")
ARCHITECTURE: Final = re.compile(r"\b(x86_64|aarch64|ppc64le|s390x|riscv64)\b")
RELEASE: Final = re.compile(r"^\d+\.\d+\S*$")
BOOTED: Final = re.compile(r"vmlinu[xz]-(\S+)")

MAX_COMMAND: Final = 4000
"""Longest part of a command that is looked at, from its end."""

MAX_PARAMETER_NAME: Final = 64
"""Longest name of a Linux parameter."""

NOISE_FRACTION: Final = 0.05
"""Tolerance for values of one output that must be ordered: neighbours in a sweep of delays, clusters of one socket."""

BANDWIDTH_APART: Final = 0.25
"""Allowed difference between bandwidths of one run or page beyond their intervals, relative to each other. An interval
covers placements seconds apart, and a shared machine changes from minute to minute: with half of this a quick run on a
busy two-CPU guest fails."""

MIX: Final = "reads"
"""The mix of a bandwidth matrix."""


@dataclass(frozen=True)
class PageFacts:
    """A page without its results; ``host`` is the name of its SUT.

    ``introduction`` is the text above the first section, ``titles`` are those of all sections.
    """

    text: str = ""
    introduction: str = ""
    titles: tuple[str, ...] = ()
    cmdline: str | None = None
    uname: str | None = None
    host: str | None = None


def page_inconsistencies(facts: PageFacts, readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    """Yield the contradictions in *facts* and *readings* of one page."""
    yield from _references(facts)
    yield from _uname(facts)
    yield from _fused_parameters(facts.cmdline or "")
    yield from _machine(facts)
    isolcpus, isolated = _isolated(facts.cmdline or "")
    for reading in readings:
        if isinstance(reading.values, ReadJitter):
            yield from _jitter_command(reading, reading.values)
            yield from _isolation(reading, reading.values.cpu, isolcpus, isolated)
        elif isinstance(reading.values, ReadLoadedLatency):
            yield from _sweep(reading.id, reading.values)
        elif cells := _cells(reading):
            yield from _own_memory(reading.id, cells, latency=reading.values.kind == "latency_matrix")
    yield from _maxima(readings)
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
            yield inconsistency("NOT_GIVEN", "reference", f"unresolved reference {name!r}")
    if stated := CLAIM.search(text):
        claim = " ".join(stated[0].split())
        yield inconsistency("UNPROVED", "text", f"the page says {claim!r}, and has results of one machine")


def _uname(facts: PageFacts) -> Iterator[Inconsistency]:
    _, host, release, *_ = [*(facts.uname or "").split(), "", "", ""]
    if RELEASE.match(host) and release and not RELEASE.match(release):
        yield inconsistency("HOST_CONTRADICTS", "uname", f"the release {host} in place of the host name")
        release = host
    elif facts.host and host and host.lower() != facts.host.lower():
        yield inconsistency("HOST_CONTRADICTS", "uname", f"the page is about {facts.host}, uname says {host}")
    booted = BOOTED.search(facts.cmdline or "")
    if booted is not None and release and booted[1] != release:
        yield inconsistency("KERNEL_CONTRADICTS", "uname", f"booted {booted[1]}, uname says {release}")


def _fused_parameters(cmdline: str) -> Iterator[Inconsistency]:
    """Yield parameters of *cmdline* whose name begins inside another's value."""
    parameters = parse_cmdline(cmdline).parameters
    names = {word.name for word in parameters if 2 < len(word.name) <= MAX_PARAMETER_NAME}
    for word in parameters:
        value = word.value or ""
        fused = next(
            (
                value[start : sign.start()]
                for sign in re.finditer("=", value)
                for start in range(max(0, sign.start() - MAX_PARAMETER_NAME), sign.start() - 2)
                if value[start : sign.start()] in names
            ),
            None,
        )
        if fused is not None:
            reason = f"no space before {fused!r} in {shortened(f'{word.name}={value}')}: two parameters run together"
            yield inconsistency("CMDLINE_DAMAGED", "cmdline", reason)


def _machine(facts: PageFacts) -> Iterator[Inconsistency]:
    named = _named("".join(facts.titles[:1])) or _named(facts.introduction)
    if named is None:
        return
    vendor, architecture = named
    found = ARCHITECTURE.search(facts.uname or "")
    if found is not None and found[1] != architecture:
        reason = f"{found[1]}, but the machine is an {vendor} ({architecture})"
        yield inconsistency("ARCHITECTURE", "uname", reason)
    for word in parse_cmdline(facts.cmdline or "").parameters:
        if VENDOR_PARAMETERS.get(word.name, vendor) != vendor and word.value not in {"off", "disable"}:
            reason = f"{word.name}={word.value or ''} does nothing on an {vendor} machine"
            yield inconsistency("ARCHITECTURE", "cmdline", reason)


def _named(text: str) -> tuple[str, str] | None:
    for vendor, architecture, words in MACHINES:
        if re.search(words, text, re.IGNORECASE):
            return vendor, architecture
    return None


def _isolated(cmdline: str) -> tuple[str, frozenset[int] | str]:
    """Return all ``isolcpus=`` of *cmdline*, and the CPUs they isolate or what is wrong with one; empty without any.

    The page does not say what the last CPU is: ``2-N`` has all from 2 on.
    """
    lists = [value for value in parse_cmdline(cmdline).values("isolcpus") if value]
    text = " ".join(lists)
    try:
        parsed = [parse_isolcpus(value, MAX_ID) for value in lists]
    except ValueError as error:
        return text, str(error)
    return text, frozenset().union(*(item.cpus for item in parsed if item.isolates_domain))


def _isolation(
    reading: Reading, cpu: int | None, isolcpus: str, isolated: frozenset[int] | str
) -> Iterator[Inconsistency]:
    if cpu is None or not isolcpus:
        return
    if isinstance(isolated, str):
        yield inconsistency("CMDLINE_DAMAGED", "cmdline", f"isolcpus={shortened(isolcpus)}: {isolated}")
    elif cpu not in isolated:
        reason = f"CPU {cpu} is not among the isolated {shortened(isolcpus)}"
        yield inconsistency("CORE_NOT_ISOLATED", reading.id, reason)


def _jitter_command(reading: Reading, values: ReadJitter) -> Iterator[Inconsistency]:
    command = (reading.command or "")[-MAX_COMMAND:]
    pinned = TASKSET.search(command)
    options = _options(command)
    for what, asked, printed in (
        ("CPU", pinned[1] if pinned else None, values.cpu),
        ("CPU", options.get("-c"), values.cpu),
        ("iterations", options.get("-i"), values.iterations),
    ):
        wanted = whole_number(asked or "")
        if wanted is not None and printed is not None and wanted != printed:
            reason = f"the command asks for {what} {wanted}, the output says {printed}"
            yield inconsistency("COMMAND_CONTRADICTS", reading.id, reason)


def _options(command: str) -> dict[str, str]:
    """Return the one-letter options that *command* gives to jitter, and their values."""
    words = command.split()
    place = next((place for place, word in enumerate(words) if word.rsplit("/", 1)[-1] == "jitter"), len(words))
    return {
        word[:2]: word[2:] or following
        for word, following in pairwise([*words[place + 1 :], ""])
        if len(word) > 1 and word[0] == "-"
    }


def _sweep(where: str, values: ReadLoadedLatency) -> Iterator[Inconsistency]:
    for point, longer in pairwise(sorted(values.points, key=lambda point: point.inject_delay)):
        if longer.bandwidth_mb_s > point.bandwidth_mb_s * (1 + NOISE_FRACTION):
            yield inconsistency(
                "ORDER",
                where,
                f"bandwidth rises from {point.bandwidth_mb_s:g} to {longer.bandwidth_mb_s:g} MB/s between the delays "
                f"{point.inject_delay} and {longer.inject_delay}",
            )


def _cells(reading: Reading) -> Mapping[tuple[int, ...], float]:
    """Return the values of a matrix of nodes by node of the CPUs and of the memory; empty for other kinds."""
    columns = {"latency_matrix": "latency_ns", "bandwidth_matrix": "bandwidth_mb_s"}
    if isinstance(reading.values, ReadTable) and (column := columns.get(reading.values.kind)):
        return reading.values.table.cells(column)
    return {}


def _own_memory(where: str, cells: Mapping[tuple[int, ...], float], *, latency: bool) -> Iterator[Inconsistency]:
    """Yield the nodes whose memory another node reaches faster than they do themselves.

    Memory without CPUs is nobody's own, and a node's own memory need not be the fastest that it reaches (HBM, a node
    with few modules). Nor need its CPUs be the most: bandwidth contradicts only if it exceeds the reader's own too.
    """
    unit = "ns" if latency else "MB/s"
    for (reader, node), value in cells.items():
        own, readers_own = cells.get((node, node)), cells.get((reader, reader))
        if reader == node or own is None or readers_own is None:
            continue
        if value * (1 + NOISE_FRACTION) < own if latency else value > max(own, readers_own) * (1 + NOISE_FRACTION):
            reason = f"node {reader} reaches node {node} with {value:g} {unit}, node {node} itself with {own:g} {unit}"
            yield inconsistency("ORDER", where, reason)


def _maxima(readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    """Yield maxima below the peak, and parts of the machine that exceed the whole.

    Printed values are exact, and a maximum is that of the text's own values. Several peaks or maxima cannot be
    matched.
    """
    _, peak = _only(readings, "peak_injection_bandwidth")
    where, top = _only(readings, "max_bandwidth")
    for mix, value in peak.items():
        if mix in top and value > top[mix]:
            below = f"{(1 - top[mix] / value) * 100:.2f} % below the peak injection bandwidth of the same page"
            yield inconsistency("ORDER", where, f"the maximum of {mix} is {top[mix]:g} MB/s, {below}, {value:g}")
    if MIX not in peak and MIX not in top:
        return
    whole = max(mixes[MIX] for mixes in (peak, top) if MIX in mixes)
    for reading in readings:
        cells = _cells(reading) if reading.values.kind == "bandwidth_matrix" else {}
        own = {row for row, _ in cells}
        for (row, node), value in cells.items():
            if len(own) > 1 and node in own and value > whole * (1 + BANDWIDTH_APART):
                reason = f"node {row} reads of node {node} {value:g} MB/s, all CPUs together move {whole:g} MB/s"
                yield inconsistency("ORDER", reading.id, reason)


def _only(readings: Sequence[Reading], kind: str) -> tuple[str, Mapping[str, float]]:
    """Return the identifier and the values of the only reading of *kind*; empty without one or with several."""
    found = [
        (reading.id, reading.values.bandwidth_mb_s)
        for reading in readings
        if isinstance(reading.values, ReadMixes) and reading.values.kind == kind
    ]
    return found[0] if len(found) == 1 else ("", {})


def _sizes(facts: PageFacts, readings: Sequence[Reading]) -> Iterator[Inconsistency]:
    nodes: dict[str, set[int]] = {}
    for reading in readings:
        if isinstance(reading.values, ReadTable):
            labels = {label for row in reading.values.table.rows for label in reading.values.table.labels_of(row)}
            if found := {label for label in labels if isinstance(label, int)}:
                nodes[reading.id] = found
    if not nodes:
        return
    first, *others = nodes
    for other in others:
        remote = other.startswith("c2c_latency")  # nodes without CPUs have no caches
        if not (nodes[other] <= nodes[first] if remote else nodes[other] == nodes[first]):
            reason = f"nodes {_list(nodes[other])}, but {first} has {_list(nodes[first])}"
            yield inconsistency("SIZES_CONTRADICT", other, reason)
    if (count := NODE_COUNT.search(facts.text)) and int(count[1]) != len(nodes[first]):
        reason = f"the page names {count[1]} NUMA nodes, found {len(nodes[first])}"
        yield inconsistency("SIZES_CONTRADICT", first, reason)


def _list(nodes: set[int]) -> str:
    return ", ".join(first_of([str(node) for node in sorted(nodes)]))
