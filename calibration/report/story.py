# SPDX-License-Identifier: Apache-2.0
"""Summary of a run: the machine, whether to trust it, findings, and headline metrics.

The page's first screen and ``calibration show`` use the same text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal, NamedTuple

from calibration.base import units
from calibration.base.flags import FINDINGS, FLAGS, Severity
from calibration.base.trust import NEAR, Trust, lowest
from calibration.base.validity import Flag
from calibration.context.confinement import limits
from calibration.context.model import Context
from calibration.context.population import Population, UnknownPopulation, population
from calibration.judge.words import within
from calibration.measurements.base import Metric
from calibration.measurements.firmware import FirmwareValues
from calibration.measurements.jitter import JitterValues
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.metric_rows import Quantity
from calibration.measurements.wakeup import WakeupValues
from calibration.references.library import published
from calibration.references.matching import Normal, normal
from calibration.references.metrics import Metric as ReferenceMetric
from calibration.report.advice import Advice, advice
from calibration.report.normal import answers, usual_band
from calibration.results.consistency import RULES, ConsistencyCheck
from calibration.results.metrics_of_record import QUANTITIES
from calibration.results.model import Measurement, RecordMetric, RunDocument, of_the_run

MAX_FINDINGS: Final = 3

MAX_ADVICE: Final = 3

MAX_NODE_DEFICIT: Final = 0.1
"""A node this much below the median read bandwidth of the nodes is a finding."""

MAX_LOST_SHARE: Final = 0.001
"""An isolated CPU that loses more than this share of its time is a finding."""

Level = Literal["good", "caution", "bad"]


@dataclass(frozen=True)
class Tile:
    """One quantity at a glance.

    ``plus_minus`` is the half-width in per cent, the widest if ``value`` has several. ``band`` is the accepted
    range, ``outside`` whether the value is outside it; without one ``usual`` is what other machines like this have.
    ``extra`` is shown after the value.
    """

    title: str
    value: str
    plus_minus: str | None
    trust: Trust
    word: str
    band: str | None
    outside: bool
    extra: str | None
    usual: str | None = None


@dataclass(frozen=True)
class Story:
    """The first screen.

    ``level`` is the look of the verdict: bad unless the run is complete, all of it valid and no check failed.
    ``advice`` is what to change, in a line each, the greatest cost first. ``left_changed`` is among the findings.
    """

    name: str
    machine: str
    when: str
    level: Level
    verdict: str
    findings: tuple[str, ...]
    more_findings: int
    tiles: tuple[Tile, ...]
    next_step: str | None
    advice: tuple[str, ...] = ()
    more_advice: int = 0
    normal: tuple[str, ...] = ()
    left_changed: str | None = None


def story(document: RunDocument, found: Normal | None = None) -> Story:
    """Return the first screen of *document*, a run measured here.

    *found* is the run beside the references of its hardware; by default beside the published ones.
    """
    run = document.run
    compared = normal(document, published()) if found is None else found
    context = None if document.context is None else document.context.parsed
    trusts = Counter(map(trust_in, document.measurements))
    level, verdict = _verdict(document, trusts)
    advised = advice(document)
    findings = list(dict.fromkeys(_findings(document, context, advised)))
    lasted = units.duration((run.finished_at - run.started_at).total_seconds())
    return Story(
        name=f"{run.testbed} / {run.sut}",
        machine="the SUT was not captured" if context is None else " · ".join(_machine(context)),
        when=f"{run.started_at:%Y-%m-%d %H:%M} UTC · {run.profile} · {lasted}",
        level=level,
        verdict=verdict,
        findings=tuple(findings[:MAX_FINDINGS]),
        more_findings=max(0, len(findings) - MAX_FINDINGS),
        tiles=tuple(with_usual(tile, compared) for tile in _tiles(document, context)),
        next_step=_next_step(document, trusts),
        advice=tuple(map(_in_a_line, advised[:MAX_ADVICE])),
        more_advice=max(0, len(advised) - MAX_ADVICE),
        normal=() if context is None else tuple(answers(compared)),
        left_changed=_left_changed_finding(document),
    )


def _in_a_line(item: Advice) -> str:
    """Return what to change, and the first part of what it costs."""
    return item.title if item.cost is None else f"{item.title}: {item.cost.partition(';')[0]}"


USUAL: Final[Mapping[str, ReferenceMetric]] = {
    "Idle latency": "idle_latency_local_ns",
    "Read bandwidth": "read_machine_mb_s",
}
"""Tiles that references are known for."""


def with_usual(tile: Tile, found: Normal) -> Tile:
    """Return *tile* with what is usual for the hardware, unless it has an accepted range."""
    metric = USUAL.get(tile.title)
    return tile if metric is None or tile.band is not None else replace(tile, usual=usual_band(found, metric))


def trust_in(measurement: Measurement) -> Trust:
    """Return the lowest trust of the headline metrics of *measurement*."""
    if not measurement.validity.valid:
        return "invalid"
    return lowest(metric.trust for metric in measurement.metrics()) or "observed"


def cross_checks(document: RunDocument) -> Counter[str]:
    """Return the number of consistency checks by outcome: passed, failed and skipped."""
    return Counter(verdict.outcome for verdict in document.consistency)


def trust_word(trust: Trust, reason: Flag | None) -> str:
    """Return the word for *trust*, with the *reason* in short."""
    word = "near target" if trust == "near" else trust.replace("_", " ")
    row = None if reason is None else FLAGS.get(reason.code)
    return word if row is None or row.short is None else f"{word}: {row.short}"


def _verdict(document: RunDocument, trusts: Counter[Trust]) -> tuple[Level, str]:
    """Return the level of the verdict and its text: the word, then the counts."""
    status, count = document.run.status, len(document.measurements)
    if status == "not_begun":
        return "bad", f"Not measured: {(document.attempts[-1].ended or 'the run did not begin').removesuffix('.')}."
    checks = cross_checks(document)
    left = left_changed(document)
    limits = Counter(verdict.outcome for verdict in document.verdicts)
    judged, bounded = (found["pass"] + found["fail"] for found in (checks, limits))
    level: Level = "bad"
    if status != "complete":
        done = {measurement.step: len(measurement.rounds) for measurement in document.measurements}
        steps = [step for step in document.plan.steps if not step.part_of] if document.plan else []
        word = f"{status.capitalize()}: {len(done)} of {len(steps)} steps measured"
        repeated = [step for step in steps if step.rounds > 1]
        if repeated:
            complete = min(min(done.get(step.id, 0), step.rounds) for step in repeated)
            word += f", {complete} of {max(step.rounds for step in repeated)} rounds complete"
    elif left is not None:
        word = "SUT left changed: not all of its settings are restored"
    elif trusts["invalid"]:
        word = f"Not valid: {trusts['invalid']} of {count} measurements are invalid"
    elif checks["fail"]:
        word = "Contradictory: values of this run disagree"
    elif limits["fail"]:
        word = f"Out of limits: {limits['fail']} of {bounded} limits failed"
    elif trusts["poor"]:
        level = "caution"
        word = f"Use with caution: {trusts['poor']} of {count} measurements are more than {NEAR} times off target"
    else:
        level = "good"
        word = f"Trustworthy: {count - trusts['near']} of {count} measurements on target"
    agreed = f" Cross-checks: {checks['pass']} of {judged} pass." if judged else ""
    return level, f"{word}.{agreed} " + (
        f"Limits: {limits['pass']} of {bounded} pass." if bounded else "No baseline accepted yet."
    )


def left_changed(document: RunDocument) -> str | None:
    """Return which settings of the SUT are not known to be restored; ``None`` if all are."""
    return next((flag.reason for flag in document.flags if flag.code == "NOT_RESTORED"), None)


def _left_changed_finding(document: RunDocument) -> str | None:
    left = left_changed(document)
    return None if left is None else f"{left}."


def _next_step(document: RunDocument, trusts: Counter[Trust]) -> str | None:
    if left_changed(document) is not None and document.run.status != "not_begun":
        return f"restore the SUT: playbooks/cleanup.yml with calibration_run_id={document.run.id}"
    if document.run.status != "complete":
        return "calibrate again with --resume"
    if document.run.profile == "quick" and trusts["near"] + trusts["poor"]:
        return "--profile nightly"
    return None


def _findings(document: RunDocument, context: Context | None, advised: Sequence[Advice]) -> Iterator[str]:
    """Yield the findings, worst first."""
    left = _left_changed_finding(document)
    if left is not None:
        yield left
    yield from _failed_limits(document)
    yield from _failed_checks(document.consistency)
    yield from _invalid(document.measurements)
    yield from _not_measured(document)
    yield from (f"{flag.reason}." for flag in document.flags if flag.code in FINDINGS)
    yield from _nodes_behind(document.record, peaks_of(context), advised)
    yield from _disturbed_cpus(document.measurements, advised, context)
    yield from _wide(document.record)
    yield from (
        f"{item.title}: {flag.reason}."
        for item, flag in _flags(document.measurements, "warn")
        if flag.code != "PARTIAL"
    )


def _failed_limits(document: RunDocument) -> Iterator[str]:
    for verdict in document.verdicts:
        if verdict.outcome == "fail" and verdict.metric is not None:
            bound = within(verdict.lower, verdict.upper, verdict.metric.unit)
            yield f"{verdict.metric.title} is {units.headline(verdict.metric)}; the limit is {bound}."
        elif verdict.outcome == "fail":
            yield f"{verdict.name} has a limit and was not measured."


def _failed_checks(checks: Iterable[ConsistencyCheck]) -> Iterator[str]:
    failed = [check for check in checks if check.outcome == "fail"]
    for item in sorted(failed, key=lambda check: -abs(check.difference or 0)):
        sides = ", ".join(f"{side.name} {units.headline(side)}" for side in (item.figure, item.other))
        apart = "" if item.difference is None else f" ({item.difference * 100:+.0f} %)"
        yield f"Cross-check failed, {RULES[item.rule].title.lower()}: {sides}{apart}."


def _flags(measurements: Sequence[Measurement], severity: Severity) -> Iterator[tuple[Measurement, Flag]]:
    return (
        (measurement, flag)
        for measurement in measurements
        for flag in measurement.validity.flags
        if flag.severity == severity
    )


def _invalid(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield why measurements are invalid, each reason once."""
    titles: dict[str, list[str]] = {}
    for item, flag in _flags(measurements, "invalid"):
        reason = flag.reason if flag.code == "EMULATED" else f"{flag.code}: {flag.reason}"
        titles.setdefault(reason, []).append(item.title)
    for reason, found in titles.items():
        more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
        which = "All values are" if len(found) == len(measurements) else f"{found[0]}{more}"
        yield f"{which} invalid: {reason}."


def _not_measured(document: RunDocument) -> Iterator[str]:
    gone = [omitted for omitted in of_the_run(document.not_measured) if omitted.cause == "failed"]
    if gone and document.run.status != "not_begun":  # else the verdict says why
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        yield f"Not measured: {gone[0].what}{more}: {gone[0].reason.removesuffix('.')}."


def _nodes_behind(
    record: Sequence[RecordMetric], peaks: Population | UnknownPopulation, advised: Sequence[Advice]
) -> Iterator[str]:
    """Yield the nodes with low read bandwidth, and empty slots that explain it."""
    nodes = {
        figure.quantity.rpartition(".")[2]: figure.metric
        for figure in record
        if figure.family == "read_bandwidth" and figure.quantity != "read_bandwidth.machine"
    }
    known = {str(node): peak for node, peak in peaks.nodes.items()} if isinstance(peaks, Population) else {}
    middle = median([node.value for node in nodes.values()] or [0.0])
    for node, metric in sorted(nodes.items(), key=lambda item: item[1].value):
        if metric.value < middle * (1 - MAX_NODE_DEFICIT):
            peak = known.get(node)
            slots = f": slot {', '.join(peak.empty_slots)} is empty" if peak and peak.empty_slots else ""
            slots += "; see Advice" if slots and any(item.rule == "dimm_missing" for item in advised) else ""
            share = units.percent(metric.value / middle)
            yield f"Node {node} reads {units.headline(metric)}, {share} of the median of the nodes{slots}."


def _disturbed_cpus(
    measurements: Sequence[Measurement], advised: Sequence[Advice], context: Context | None
) -> Iterator[str]:
    """Yield isolated CPUs that lose time, with the advice that the CPU's own lost time supports."""
    found = [measurement.values for measurement in measurements if isinstance(measurement.values, JitterValues)]
    found.sort(key=lambda values: -values.gaps.lost_fraction)
    if found and not any(values.isolated for values in found):
        what = "No isolated CPU was measured" if context is not None and context.isolated_cpus else "No CPU is isolated"
        yield (
            f"{what}: CPU {found[0].cpu} loses {units.percent(found[0].gaps.lost_fraction)} of its time, "
            f"longest gap {units.time_ns(found[0].gaps.max_ns)}."
        )
    for values in found:
        if values.isolated and values.gaps.lost_fraction > MAX_LOST_SHARE:
            mine = (item for item in advised if (item.metric or "").startswith(f"jitter.cpu{values.cpu}."))
            cause = next((f": {item.found}; see Advice." for item in mine), ".")
            yield f"Isolated CPU {values.cpu} loses {units.percent(values.gaps.lost_fraction)} of its time{cause}"


def _wide(record: Sequence[RecordMetric]) -> Iterator[str]:
    """Yield the headline metric with the lowest trust, if it is poor."""
    poor = [item for item in record if item.trust == "poor"]
    if poor:
        worst = max(poor, key=lambda figure: _width(figure.metric))
        more = f"; {len(poor) - 1} more {'are' if len(poor) > 2 else 'is'} poor" if len(poor) > 1 else ""
        reason = worst.reason.reason if worst.reason else "poor"
        yield f"{worst.title}: {reason}{more}."


def _width(metric: Metric) -> float:
    return units.relative_half(metric) or 0.0


def _tiles(document: RunDocument, context: Context | None) -> Iterator[Tile]:
    found = {family: [item for item in document.record if item.family == family] for family in QUANTITIES}
    idle = sorted(found["idle_latency"], key=lambda figure: figure.metric.value)
    near = [item for item in idle if is_local(item)] or idle
    if near:
        middle, far = near[(len(near) - 1) // 2], [item for item in idle if item not in near][-1:]
        extra = "local / farthest node" if far else None
        yield _tile(document, "Idle latency", [middle, *far], found["idle_latency"], extra)
    bandwidth = found["read_bandwidth"]
    if whole := [item for item in bandwidth if item.quantity == "read_bandwidth.machine"] or bandwidth[:1]:
        peaks, share = peaks_of(context), "theoretical peak unknown"
        if isinstance(peaks, Population):
            share = f"{units.percent(whole[0].metric.value / peaks.machine.peak_mb_s)} of the theoretical peak"
        yield _tile(document, "Read bandwidth", whole, whole, share)
    if loaded := found["loaded_latency"]:
        worst = max(loaded, key=lambda figure: figure.metric.value)
        yield _tile(document, "Under load", [worst], loaded, _load(document, worst))
    if caches := found["cache_latency"]:
        levels = "/".join(cache.quantity.rpartition(".")[2] for cache in caches)
        yield _tile(document, levels, caches, caches, None)
    isolated = () if context is None else context.isolated_cpus
    titles: dict[Quantity, str] = {"worst_gap": "Longest gap", "lost_share": "Time lost", "clock": "Core clock"}
    for family, title in titles.items():
        for figure in found[family][:1]:
            where = re.search(r"CPU (\d+)", figure.title)
            state = f", {'' if int(where[1]) in isolated else 'not '}isolated" if where else ""
            yield _tile(document, title, [figure], [figure], f"{where[0]}{state}" if where else None)
    for measurement in document.measurements:
        if isinstance(measurement.values, WakeupValues) and measurement.values.condition == "idle":
            yield _wakeup(document, measurement, measurement.values)
    for measurement in document.measurements:
        if isinstance(measurement.values, FirmwareValues) and measurement.values.observed_s is not None:
            yield _firmware(document, measurement, measurement.values)


class _Seen(NamedTuple):
    """A metric that is not of record, with its trust and the worst reason against it."""

    metric: Metric
    trust: Trust
    reason: Flag | None


def _wakeup(document: RunDocument, measurement: Measurement, values: WakeupValues) -> Tile:
    """Return the tile of the latest wake-up of an idle machine."""
    *others, latest = measurement.metrics()
    median_text = "".join(f"median {units.headline(metric)}, " for metric in others if metric.name.endswith(".p50_ns"))
    where = f"CPU {values.cpus[0]}" if len(values.cpus) == 1 else f"{len(values.cpus)} CPUs"
    isolated = "isolated" if values.isolated else "not isolated"
    shown = [_Seen(latest, *measurement.trust_in(latest))]
    return _tile(document, "Latest wake-up", shown, shown, f"{median_text}{where}, {isolated}")


def _firmware(document: RunDocument, measurement: Measurement, values: FirmwareValues) -> Tile:
    """Return the tile of the longest gap with interrupts off; without any that is the threshold."""
    gap, rate = measurement.metrics()
    often = units.headline(rate) if values.gaps else f"none longer in {units.duration(values.observed_s)}"
    shown = [_Seen(gap, *measurement.trust_in(gap))]
    return _tile(document, "Firmware gap", shown, shown, f"{often}, interrupts off")


def _tile(
    document: RunDocument,
    title: str,
    shown: Sequence[RecordMetric | _Seen],
    behind: Sequence[RecordMetric | _Seen],
    extra: str | None,
) -> Tile:
    """Return the tile of the metrics *shown*; uncertainty and trust are the worst of those *behind* it."""
    trust = lowest(item.trust for item in behind) or "observed"
    reason = next((item.reason for item in behind if item.trust == trust and item.reason is not None), None)
    verdict = next((verdict for verdict in document.verdicts if verdict.name == shown[0].metric.name), None)
    band = None
    if verdict is not None and (verdict.lower, verdict.upper) != (None, None):
        band = f"accepted: {within(verdict.lower, verdict.upper, shown[0].metric.unit)}"
    return Tile(
        title=title,
        value=units.headlines([figure.metric for figure in shown]),
        plus_minus=units.plus_minus(max((figure.metric for figure in behind), key=_width)),
        trust=trust,
        word=trust_word(trust, reason),
        band=band,
        outside=verdict is not None and verdict.outcome == "fail",
        extra=extra,
    )


def is_local(figure: RecordMetric) -> bool:
    """Return whether *figure* is of a node and its own memory, or not about a pair of nodes."""
    return len(set(figure.quantity.split(".")[1:])) < 2


def _load(document: RunDocument, figure: RecordMetric) -> str | None:
    """Return the load during the measurement of *figure*."""
    share = "at 90 % of peak" if "90" in figure.title else "at full load"
    for measurement in document.measurements:
        if measurement.id == figure.measurement and isinstance(measurement.values, LoadedLatencyValues):
            for point in measurement.values.points:
                if any(probe.latency_ns.value == figure.metric.value for probe in point.probes):
                    return f"{share}, {units.headline(point.bandwidth_mb_s)}"
    return None


def peaks_of(context: Context | None) -> Population | UnknownPopulation:
    """Return the theoretical peak of the populated channels of *context*, or why it is unknown."""
    return UnknownPopulation(reason="the SUT was not captured") if context is None else population(context)


def _machine(context: Context) -> Iterator[str]:
    processor, packages = context.processor, context.topology.packages
    name = (_short(processor.models[0].name or "") if processor.models else "") or processor.architecture
    yield f"{f'{packages}x ' if packages and packages > 1 else ''}{name or 'unknown processor'}"
    cores, cpus = len(context.topology.cores), len(context.online_cpus)
    yield f"{units.plural(cores, 'core')}{f' ({cpus} CPUs)' if cpus != cores else ''}"
    nodes = len(context.nodes)
    real = nodes - sum(len(parts) - 1 for parts in context.emulated_nodes.values())
    yield f"{units.plural(real, 'node')}{f' (emulated: {nodes})' if nodes != real else ''}"
    dimms = Counter(
        f"{dimm.type or ''} {dimm.configured_mt_s or dimm.speed_mt_s or ''}".strip().replace(" ", "-")
        for dimm in context.firmware.dimms
        if dimm.size_bytes
    )
    if dimms:
        yield ", ".join(f"{count}x {kind}" for kind, count in dimms.items())
    elif context.memory.total_bytes is not None:
        yield f"{context.memory.total_bytes / 1e9:.0f} GB"
    if context.confinement.container:
        yield " ".join(("container", *(["limited to", ", ".join(allowed)] if (allowed := limits(context)) else [])))
    if context.virtualization.guest:
        yield f"virtual machine ({context.virtualization.vendor or 'unnamed hypervisor'})"
    if release := re.match(r"\d+\.\d+", context.capture.kernel_release or ""):
        yield f"{context.capture.kernel_name or 'Linux'} {release[0]}"


def _short(name: str) -> str:
    """Return a processor's name without trademarks, core counts and clocks."""
    name = re.sub(r"\((R|TM|r|tm)\)|®|™", "", name)
    name = re.sub(r"\s+(CPU|Processor|\d+-Core)\b|@.*", "", name)
    return " ".join(name.split())
