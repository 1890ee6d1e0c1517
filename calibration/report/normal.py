# SPDX-License-Identifier: Apache-2.0
"""Is it normal? A run beside the references of its hardware, in words.

The section of a page, its tiles, ``calibration show`` and ``calibration reference check`` use the same text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from calibration.base import units
from calibration.charts.curves import Published
from calibration.context.model import Context
from calibration.context.population import UnknownPopulation, population
from calibration.references.library import Library
from calibration.references.matching import ComparedMetric, Normal, ReferenceGroup, unusual_by
from calibration.references.metrics import OWN, QUANTITIES, TOOLS, Metric, unit_of
from calibration.references.model import ReferenceMachine, Source, processor_key
from calibration.references.observed import Observed
from calibration.results.model import RunDocument

HEADLINES: Final[Mapping[Metric, str]] = {
    "idle_latency_local_ns": "Idle latency",
    "read_machine_mb_s": "Read bandwidth",
}
"""The quantities whose answer comes first, and their titles in short."""

BRIEF: Final = ("idle_latency_", "read_", "loaded_")
"""Beginnings of the metrics in the table of the section; the rest is folded."""


class Amount(NamedTuple):
    """A value to show."""

    value: float
    unit: str
    interval: tuple[float, float] | None = None


class NormalRow(NamedTuple):
    """A row of the section: the quantity, this run's value, what is usual, and context."""

    metric: Metric
    title: str
    value: str
    usual: str
    context: tuple[str, ...]


def answers(found: Normal) -> list[str]:
    """Return whether the hardware's figures are usual, in one or two sentences."""
    told = [item for metric in HEADLINES if (item := found.of(metric)) is not None]
    usual = [(item.figure, item.usual) for item in told if item.usual is not None]
    if usual:
        return [f"{_is_usual(figure, group)}." for figure, group in usual]
    if found.subject.reason is not None:
        return [f"No reference: {found.subject.reason}."]
    if not any(item.usual or item.context for item in found.figures):
        return [f"No reference of {found.subject.processor}."]
    context = [
        f"{HEADLINES[item.figure.metric]}: {_words(item.nearest[0], item.figure.unit)}."
        for item in told
        if item.context
    ]
    return [f"No reference by {TOOLS[OWN].name} of a machine like this one.", *context]


def summary(found: Normal) -> str | None:
    """Return how many figures are within what is usual, and which is furthest beyond; ``None`` without a reference."""
    known = [(item, unusual_by(item.figure, item.usual)) for item in found.figures if item.usual is not None]
    beyond = [pair for pair in known if pair[1]]
    if not known:
        return None
    figures = units.plural(len(known), "figure")
    text = f"{len(known) - len(beyond)} of {figures} with a reference are within the range of the other machines"
    if beyond:
        item, share = max(beyond, key=lambda pair: abs(pair[1]))
        text += f"; the furthest beyond is {QUANTITIES[item.figure.metric].title} ({_beyond(share)})"
    return f"{text}. A range of few machines is no limit."


def usual_band(found: Normal, metric: Metric) -> str | None:
    """Return what is usual for *metric* as the text of a tile; ``None`` without a reference."""
    item = found.of(metric)
    if item is None or item.usual is None:
        return None
    group, unit = item.usual, item.figure.unit
    return f"usual: {_range(group, unit)} ({units.plural(group.machines, 'machine')})"


def peak_sentence(found: Normal, context: Context) -> str:
    """Return the theoretical peak of the memory and which share of it all CPUs read."""
    peaks = population(context)
    if isinstance(peaks, UnknownPopulation):
        return f"Theoretical peak unknown: {peaks.reason}."
    machine = peaks.machine
    speeds = {dimm.configured_mt_s for dimm in context.firmware.dimms if dimm.size_bytes}
    speed = f", {speeds.pop()} MT/s" if len(speeds) == 1 else ""
    channels = f"{machine.populated} of {units.plural(machine.channels, 'channel')} populated{speed}"
    text = f"Theoretical peak: {_amount(machine.peak_mb_s, 'MB/s')} ({channels})"
    item = found.of("read_machine_mb_s")
    share = "" if item is None else f"; all CPUs read {units.percent(item.figure.value / machine.peak_mb_s)} of it"
    return f"{text}{share}."


def normal_rows(found: Normal) -> list[NormalRow]:
    """Return a row for each figure of the run that has a reference or context."""
    return [_row(item) for item in found.figures if item.usual is not None or item.context]


def is_brief(row: NormalRow) -> bool:
    """Return whether *row* is in the table of the section."""
    return row.metric.startswith(BRIEF)


def without(found: Normal) -> list[str]:
    """Return the titles of the figures that have neither."""
    return [QUANTITIES[item.figure.metric].title for item in found.figures if item.usual is None and not item.context]


def shown(found: Normal) -> list[ReferenceGroup]:
    """Return the groups that the rows show."""
    return [group for item in found.figures for group in ([item.usual] if item.usual else []) + list(item.nearest)]


def biases(groups: Sequence[ReferenceGroup]) -> list[tuple[str, str]]:
    """Return each other instrument in *groups*, and how its figures differ from ours."""
    tools = dict.fromkeys(TOOLS[group.instrument] for group in groups)
    return [(tool.name, tool.bias) for tool in tools if tool.bias is not None]


def _row(item: ComparedMetric) -> NormalRow:
    usual = "no reference"
    if item.usual is not None:
        beyond = unusual_by(item.figure, item.usual)
        usual = f"{_of_machines(item.usual, item.figure.unit)}: {_beyond(beyond) if beyond else 'within'}"
    return NormalRow(
        metric=item.figure.metric,
        title=QUANTITIES[item.figure.metric].title + (f", {item.figure.how}" if item.figure.how else ""),
        value=value_text(item.figure),
        usual=usual,
        context=tuple(_words(group, item.figure.unit) for group in item.nearest),
    )


def value_text(figure: Observed) -> str:
    """Return the value of *figure* with its half-width, or with the extremes of those it is the median of."""
    text = units.headline(figure)
    if figure.places > 1 and figure.interval is not None:
        return f"{text} ({_ends(*figure.interval, figure.unit)})"
    return " ".join(filter(None, (text, units.plus_minus(figure))))


def published_curves(found: Normal) -> Published:
    """Return the curves of machines with the run's processor, and their sources in words."""
    machines = [
        (f"{TOOLS[machine.instrument].name}, {machine.name}", source, machine) for source, machine in found.curves
    ]
    curves = {
        f"{name}, {curve.write_percent} % written": list(zip(curve.bandwidth_mb_s, curve.latency_ns, strict=True))
        for name, _, machine in machines
        for curve in machine.curves
    }
    sources = [
        f"{name}, {' and '.join(str(curve.write_percent) for curve in machine.curves)} % written "
        f"({conditions_text(machine)}; {source.url or source.title}, {source.date.isoformat()})"
        for name, source, machine in machines
    ]
    return Published(curves, f" Grey, of the same processor: {'; '.join(sources)}." if sources else "")


def _is_usual(figure: Observed, usual: ReferenceGroup) -> str:
    what = _of_machines(usual, figure.unit).replace(" (", " is usual for this processor (", 1)
    beyond = unusual_by(figure, usual)
    return f"{HEADLINES[figure.metric]} {units.headline(figure)} is {_beyond(beyond) if beyond else 'normal'}: {what}"


def _beyond(share: float) -> str:
    return f"{units.percent(abs(share))} {'above' if share > 0 else 'below'}"


def _words(group: ReferenceGroup, unit: str) -> str:
    """Return *group* in words: instrument, value, machines, and what is different from the run."""
    name = TOOLS[group.instrument].name + (f", {group.how}" if group.how else "")
    text = _of_machines(group, unit)
    notes = [f"{units.percent(group.share)} of peak"] if group.share is not None else []
    if group.differs:
        notes.append(f"with {', '.join(group.differs)}")
    if group.unknown:
        notes.append(f"unknown: {', '.join(group.unknown)}")
    return f"{name}: {text.removesuffix(')')}{''.join(f'; {note}' for note in notes)})"


def _of_machines(group: ReferenceGroup, unit: str) -> str:
    machines = units.plural(group.machines, "machine")
    ends = _range(group, unit)
    ends = f": {ends}" if " to " in ends else ""
    return f"{_amount(group.value, unit)} ({machines}{ends})"


def _range(group: ReferenceGroup, unit: str) -> str:
    """Return the extremes of the machines of *group*, or the one value that they have."""
    return _ends(group.low, group.high, unit)


def _ends(low: float, high: float, unit: str) -> str:
    ends = [Amount(low, unit), Amount(high, unit)]
    same = len({units.headline(end) for end in ends}) == 1
    return units.headlines(ends[:1] if same else ends).replace(" / ", " to ")


def _amount(value: float, unit: str) -> str:
    return units.headline(Amount(value, unit))


def check_lines(found: Normal, document: RunDocument) -> Iterator[str]:
    """Yield *found*, the comparison of *document*, as lines of text, with every reference of the processor."""
    subject = found.subject
    yield "  ".join(filter(None, (subject.label, subject.processor)))
    yield from (f"  {sentence}" for sentence in answers(found))
    if subject.reason is not None or document.context is None:
        return
    yield f"  {peak_sentence(found, document.context.parsed)}"
    for item in found.figures:
        row = _row(item)
        yield f"{row.title}: {row.value}"
        yield f"  usual: {row.usual}"
        yield from (f"  context: {_words(group, item.figure.unit)}" for group in item.context)
    if any(item.context for item in found.figures):
        yield "Context is no limit: other instruments measure in another way, or the machine was another."
    yield from (f"  {name}: {bias}." for name, bias in biases(shown(found)))


def list_lines(known: Library, processor: str | None) -> Iterator[str]:
    """Yield a line for each processor in *known*; with *processor*, only those named so, and their figures."""
    for name, entries in by_processor(known).items():
        if processor is not None and processor_key(processor) not in processor_key(name):
            continue
        machines = {(source.title, machine.name) for source, machine in entries}
        tools = dict.fromkeys(TOOLS[machine.instrument].name for _, machine in entries)
        yield f"{name}: {units.plural(len(machines), 'machine')}, {', '.join(tools)}"
        for source, machine in entries if processor is not None else ():
            tool = f"{TOOLS[machine.instrument].name} {machine.version or ''}".strip()
            date = machine.date or source.date
            yield f"  {machine.name}, {conditions_text(machine)}, {tool}, {date.isoformat()}, {source.licence}"
            yield f"    {source.url or source.title}"
            for figure in machine.figures:
                how = f", {figure.how}" if figure.how else ""
                title = f"{QUANTITIES[figure.metric].title}{how}"
                yield f"    {title}: {_amount(figure.value, unit_of(figure.metric))}"
            for curve in machine.curves:
                ns, mb_s = curve.latency_ns, curve.bandwidth_mb_s
                ends = f"{_amount(ns[0], 'ns')} to {_amount(ns[-1], 'ns')} at {_amount(mb_s[-1], 'MB/s')}"
                yield f"    Curve, {curve.write_percent} % writes: {ends}"


def by_processor(known: Library) -> dict[str, list[tuple[Source, ReferenceMachine]]]:
    """Return the entries of *known* by processor, as first written, in the order of names."""
    found: dict[str, list[tuple[Source, ReferenceMachine]]] = {}
    names: dict[str, str] = {}
    for source, machine in known.entries:
        name = names.setdefault(processor_key(machine.processor), machine.processor)
        found.setdefault(name, []).append((source, machine))
    return dict(sorted(found.items()))


def conditions_text(machine: ReferenceMachine) -> str:
    """Return what is known of the conditions of *machine*."""
    memory = machine.memory
    known = [
        units.plural(machine.sockets, "socket") if machine.sockets else None,
        f"{units.plural(machine.nodes_per_socket, 'node')} a socket" if machine.nodes_per_socket else None,
        f"{units.plural(memory.channels_per_socket, 'channel')} a socket" if memory.channels_per_socket else None,
        f"{memory.type or 'memory'}{f'-{memory.mt_s}' if memory.mt_s else ''}" if memory.type or memory.mt_s else None,
    ]
    return ", ".join(filter(None, known)) or "conditions unknown"
