# SPDX-License-Identifier: Apache-2.0
"""What a run must show of itself, whatever its platform: the rules behind the gates, without Robot Framework.

Each rule holds figures of one run against each other, with their intervals as the noise: only what these exclude is a
fault. A figure without an interval that covers its true value often enough decides nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

from calibration.judge.comparison import LEAST_COVERAGE
from calibration.judge.tolerances import tolerance_of
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.max_bandwidth import MaxValues
from calibration.measurements.peak_injection_bandwidth import PeakValues
from calibration.measurements.traffic import MixBandwidth
from calibration.preflight import refusal
from calibration.results.model import RunDocument, of_the_run
from calibration.statistics import Estimate

LINE_BYTES: Final = 64

FAMILIES: Final = (
    ("reads", "3:1", "2:1", "1:1"),
    ("reads", "stream_triad", "copy_nt", "write_nt"),
    ("reads", "triad", "copy", "write"),
)
"""Mixes that write in one way (in place, past the caches, by regular stores), from reads alone to the largest share of
writes."""


@dataclass(frozen=True)
class Findings:
    """What a gate found: what it saw to be as it should, what is not, and what cannot be told, a sentence each."""

    shown: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


def findings_of(sentences: Iterable[tuple[str, str]]) -> Findings:
    """Return the findings that pairs of a field of ``Findings`` and a sentence are."""
    found: dict[str, list[str]] = {"shown": [], "faults": [], "untold": []}
    for field, sentence in sentences:
        found[field].append(sentence)
    return Findings(**{field: tuple(each) for field, each in found.items()})


@dataclass(frozen=True)
class Range:
    """A figure with the range that its noise allows, in ``unit``."""

    value: float
    low: float
    high: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit} ({self.low:.6g} to {self.high:.6g})"

    def part(self, share: float) -> "Range":
        """Return this share of the figure."""
        return Range(self.value * share, self.low * share, self.high * share, self.unit)


def interval_of(figure: Estimate) -> Range | None:
    """Return *figure* with its interval; ``None`` where that covers the true value too seldom to decide anything."""
    if figure.interval is None or (figure.coverage or 0.0) < LEAST_COVERAGE:
        return None
    return Range(figure.value, *figure.interval, figure.unit)


# The inventory's promises


def promises(document: RunDocument) -> Findings:
    """Return which expectations of the inventory were met before each start of the run.

    What could not be established is not met. A start that was refused measured nothing: it counts where no other did.
    """
    begun = [each for each in document.attempts if each.capture is not None and refusal(each.checks) is None]
    return findings_of(
        (
            "faults" if check.failed else "shown",
            f"{check.title}: expected {check.expected}, found {check.found}",
        )
        for attempt in begun or document.attempts
        for check in attempt.checks
    )


def left_as_found(document: RunDocument) -> Findings:
    """Return which settings of the SUT are after the run what they were before it."""

    def found() -> Iterator[tuple[str, str]]:
        if not any(attempt.changes for attempt in document.attempts):
            yield "shown", "the run changed no setting of the SUT"
        for attempt in document.attempts:
            for change in attempt.changes:
                where = f"{change.setting} of {change.where}"
                if change.restored is None:
                    yield (
                        "faults",
                        f"{where}: expected {change.before} as before the run, nobody is known to have put it back",
                    )
                else:
                    field = "shown" if change.restored == change.before else "faults"
                    yield field, f"{where}: expected {change.before} as before the run, found {change.restored}"
        if document.mlc is not None:
            for command, place in document.mlc.changed_prefetchers:
                now = place.restored or place.after
                yield (
                    "faults",
                    f"prefetchers of {place.where}: expected {place.before} as before --{command}, found {now}",
                )

    return findings_of(found())


def completeness(document: RunDocument) -> Findings:
    """Return whether everything that was planned has a figure, and a valid one."""
    run = document.run
    lost = [each for each in of_the_run(document.not_measured) if each.cause != "not_planned"]
    sentences = [("faults", f"{each.what}: not measured: {each.reason}") for each in lost]
    if run.status != "complete" and not sentences:
        sentences.append(("faults", f"expected a complete run, found one that is {run.status}"))
    for each in document.measurements:
        reasons = [flag.reason for flag in each.validity.flags if flag.severity == "invalid"]
        if each.validity.valid:
            sentences.append(("shown", f"{each.title}: measured, and valid"))
        else:
            sentences.append(("faults", f"{each.title}: invalid: {'; '.join(reasons)}"))
    return findings_of(sentences)


# Local and remote


def nodes_with_both(values: LatencyMatrixValues | BandwidthMatrixValues) -> list[int]:
    """Return the nodes of a matrix that have CPUs and memory.

    A node with memory alone is no remote node of this rule: HBM gives more than a node's own memory, and rightly.
    """
    return [node for node in values.cpu_nodes if node in values.memory_nodes]


def own_memory_first(values: LatencyMatrixValues | BandwidthMatrixValues) -> Findings:
    """Return whether each node reaches its own memory better than that of other nodes with CPUs.

    Own memory is shown to be better where the intervals do not touch, and worse where they are apart by more than the
    tolerance of such figures as well. Between the two nothing can be told.
    """
    latency = isinstance(values, LatencyMatrixValues)
    cells = values.latency_ns if isinstance(values, LatencyMatrixValues) else values.bandwidth_mb_s
    tolerance = 1 + tolerance_of(f"{values.kind}.{'latency_ns' if latency else 'bandwidth_mb_s'}").fraction
    nodes = nodes_with_both(values)
    figures = {
        (row, column): cell
        for row, line in zip(values.cpu_nodes, cells, strict=True)
        for column, cell in zip(values.memory_nodes, line, strict=True)
    }

    def found() -> Iterator[tuple[str, str]]:
        for node in nodes:
            for other in nodes:
                if other == node:
                    continue
                own, far = (
                    None if (cell := figures[node, each]) is None else interval_of(cell) for each in (node, other)
                )
                names = f"CPUs of node {node}"
                if own is None or far is None:
                    gone = node if own is None else other
                    yield "untold", f"{names}: memory of node {gone} has no figure with a sure interval"
                    continue
                said = f"{names}: memory of node {other} {far}, own memory {own}"
                smaller, larger = (own, far) if latency else (far, own)  # if all is as it should be
                if smaller.high < larger.low:
                    yield "shown", said
                elif smaller.low > larger.high * tolerance:
                    yield "faults", f"{said}: expected own memory to be better"
                else:
                    yield "untold", f"{said}: too near each other to tell"

    return findings_of(found())


# Mixes of reads and writes


def best_mixes(document: RunDocument) -> dict[str, MixBandwidth]:
    """Return the most that any valid measurement of the run moved of each mix.

    One setting does not suit all mixes alike, so that figures of a single one say less about the machine.
    """
    best: dict[str, MixBandwidth] = {}
    for each in document.measurements:
        if isinstance(each.values, PeakValues | MaxValues) and each.validity.valid:
            for name, mix in each.values.mixes.items():
                if name not in best or mix.program_mb_s.value > best[name].program_mb_s.value:
                    best[name] = mix
    return best


def mixes_in_order(mixes: Mapping[str, MixBandwidth]) -> Findings:
    """Return whether the bandwidths of *mixes* can be those of one machine.

    What a machine moves in a second it can also move with fewer reads, or with fewer writes. So from a mix to one with
    a larger share of writes the lines read do not become more, nor the lines written fewer. The sum of both may do
    either: it falls where memory is the limit and turns between reading and writing, and rises where the path of the
    reads is.
    """
    tolerance = 1 + tolerance_of("max_bandwidth.reads.bandwidth_mb_s").fraction

    def found() -> Iterator[tuple[str, str]]:
        sure = {
            name: interval for name, mix in mixes.items() if (interval := interval_of(mix.program_mb_s)) is not None
        }
        yield from (("untold", f"{name} has no sure interval") for name in mixes if name not in sure)
        for family in FAMILIES:
            for fewer, more in combinations([name for name in family if name in sure], 2):
                one, other = (_directions(mixes[name], sure[name]) for name in (fewer, more))
                fault = None
                if other[0].low > one[0].high * tolerance:
                    fault = f"expected {more} to read no more than {fewer}, found {other[0]} and {one[0]}"
                elif one[1].low > other[1].high * tolerance:
                    fault = f"expected {more} to write no less than {fewer}, found {other[1]} and {one[1]}"
                if fault is None:
                    yield "shown", f"{fewer} {sure[fewer]}, {more} {sure[more]}"
                else:
                    yield "faults", fault

    return findings_of(found())


def _directions(mix: MixBandwidth, moved: Range) -> tuple[Range, Range]:
    """Return what *mix* reads and what it writes of all that it *moved*."""
    lines = mix.accounting.program_bytes_per_step / LINE_BYTES
    return moved.part(mix.accounting.reads_per_step / lines), moved.part(mix.accounting.writes_per_step / lines)


# Latency under load


def curve_rises(values: LoadedLatencyValues) -> Findings:
    """Return whether latency never falls as the load grows, and bandwidth rises to one peak, within noise.

    The noise of a point is all that its placements saw. A curve that never falls passes through all these ranges unless
    one lies below another of less load; it is a fault where it does by more than the tolerance. Bandwidth may fall
    again behind its peak, where queues choke, but not rise after it has fallen.
    """
    points = sorted(values.points, key=lambda point: point.inject_delay, reverse=True)

    def found() -> Iterator[tuple[str, str]]:
        for number, probe in enumerate(points[0].probes):
            name = f"latency of CPU {probe.cpu}"
            series = [(f"delay {each.inject_delay}", each.probes[number].latency_ns) for each in points]
            yield from _never_falling(name, series)
        yield from _single_peak([(f"delay {each.inject_delay}", each.bandwidth_mb_s) for each in points])

    return findings_of(found())


def _seen(figure: Estimate) -> Range | None:
    """Return *figure* with the range of its placements' medians; ``None`` where there are too few of them."""
    if interval_of(figure) is None or figure.placements < 2:
        return None
    medians = [median(windows) for windows in figure.samples]
    return Range(figure.value, min(medians), max(medians), figure.unit)


def _sure_points(name: str, series: Sequence[tuple[str, Estimate]]) -> tuple[list[tuple[str, Range]], list[str]]:
    seen = [(point, _seen(figure)) for point, figure in series]
    return (
        [(point, each) for point, each in seen if each is not None],
        [f"{name} at {point} has no sure interval" for point, each in seen if each is None],
    )


def _never_falling(name: str, series: Sequence[tuple[str, Estimate]]) -> Iterator[tuple[str, str]]:
    tolerance = 1 + tolerance_of("loaded_latency.0.latency_ns").fraction
    points, unsure = _sure_points(name, series)
    yield from (("untold", each) for each in unsure)
    if len(points) < 2:
        return
    (at, highest), *_ = points
    for point, each in points[1:]:
        if highest.low > each.high * tolerance:
            yield "faults", f"{name}: expected at least that of {at}, {highest}, at {point}, found {each}"
        else:
            yield "shown", f"{name} at {point}: {each}"
        if each.low > highest.low:
            at, highest = point, each


def _single_peak(series: Sequence[tuple[str, Estimate]]) -> Iterator[tuple[str, str]]:
    tolerance = 1 + tolerance_of("loaded_latency.0.bandwidth_mb_s").fraction
    points, unsure = _sure_points("bandwidth", series)
    yield from (("untold", each) for each in unsure)
    for number, (point, each) in enumerate(points[1:-1], 1):
        before = max(points[:number], key=lambda other: other[1].low)
        after = max(points[number + 1 :], key=lambda other: other[1].low)
        if min(before[1].low, after[1].low) > each.high * tolerance:
            around = f"{before[1]} at {before[0]} and {after[1]} at {after[0]}"
            yield "faults", f"bandwidth at {point}: expected no valley, found {each} between {around}"
        else:
            yield "shown", f"bandwidth at {point}: {each}"


# Verdicts of the night


def judged(verdicts: Iterable[NightVerdict]) -> Findings:
    """Return *verdicts* as findings: one without a reference is neither as it should be nor a fault."""
    fields = {"pass": "shown", "fail": "faults", "no_reference": "untold"}
    return findings_of((fields[each.outcome], _verdict(each)) for each in verdicts)


def _verdict(verdict: NightVerdict) -> str:
    text = f"{verdict.metric}: {verdict.reason}"
    words = ("others have", "this one") if verdict.check == "homogeneity" else ("was", "is")
    changes = "; ".join(_change(each, *words) for each in verdict.context_changes)
    return f"{text}. In the context: {changes}" if changes else text


def _change(change: ContextChange, before: str, after: str) -> str:
    return f"{change.fact}: {before} {change.before or 'not known'}, {after} {change.after or 'not known'}"
