# SPDX-License-Identifier: Apache-2.0
"""Summary of a run: the machine, whether to trust it, findings, and headline metrics.

The page's first screen and ``calibration show`` use the same text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from calibration.acceptance import AcceptanceFile
from calibration.base import units
from calibration.base.cpulists import short_cpulist
from calibration.base.errors import InputError
from calibration.base.flags import FINDINGS, FLAGS, Severity
from calibration.base.trust import Trust
from calibration.base.units import plural
from calibration.base.validity import Flag
from calibration.context.confinement import limits
from calibration.context.model import Context
from calibration.context.population import Population, UnknownPopulation
from calibration.counters.tables import table_for
from calibration.judge.answer import Look, Sharpness, look
from calibration.judge.sheet import VERDICTS, accepted
from calibration.judge.since import Since
from calibration.judge.standing import Standing, Standings
from calibration.measurements.jitter import JitterValues, quiet
from calibration.measurements.wakeup import WakeupValues
from calibration.references.library import library, results_of
from calibration.references.matching import Normal, normal
from calibration.report.advice import Advice, advice
from calibration.report.headlines import HeadlineRow, headline_rows, peaks_of
from calibration.report.normal import answers
from calibration.results.consistency import RULES, ConsistencyCheck
from calibration.results.model import Measurement, RecordMetric, RunDocument, of_the_run

MAX_FINDINGS: Final = 3

MAX_ADVICE: Final = 3

MAX_NODE_DEFICIT: Final = 0.1
"""A node this much below the median read bandwidth of the nodes is a finding."""

MAX_VIEWS_APART: Final = 10.0
"""A finding lists the worst interruption of each view if they differ by more than this factor."""

MAX_LOST_SHARE: Final = 0.001
"""An isolated CPU that loses more than this share of its time is a finding."""

CLUSTER_ON_DIE: Final = frozenset({"Haswell-EP", "Broadwell-EP"})
"""Microarchitectures on which Intel's sub-NUMA clusters had another name."""


@dataclass(frozen=True)
class Story:
    """The first screen.

    ``answer`` is the answer on the SUT: what each line is about, and its text; ``look`` is that of the machine,
    ``sharpness`` that of the measurement. ``advised`` are the findings on which there is advice. ``since`` has the
    changes of the metrics in ``headlines``, ``advice`` what to
    change, in a line each, the greatest cost first.
    """

    name: str
    machine: str
    when: str
    answer: tuple[tuple[str, str], ...]
    look: Look
    sharpness: Sharpness
    findings: tuple[str, ...]
    more_findings: int
    advised: tuple[str, ...]
    headlines: tuple[HeadlineRow, ...]
    since: tuple[Since, ...] = ()
    advice: tuple[str, ...] = ()
    more_advice: int = 0
    normal: tuple[str, ...] = ()


def story(document: RunDocument, standing: Standing, compared: Normal) -> Story:
    """Return the first screen of *document*, a run measured here, with its *standing*.

    *compared* is the run beside the references of its hardware.
    """
    run = document.run
    context = None if document.context is None else document.context.parsed
    advised = advice(document)
    found = dict(_findings(document, context, advised))
    findings = list(found)
    headlines = tuple(headline_rows(document, standing, compared))
    lasted = units.duration((run.finished_at - run.started_at).total_seconds())
    return Story(
        name=f"{run.testbed} / {run.sut}",
        machine="the SUT was not captured" if context is None else " · ".join(_machine(context)),
        when=f"{run.started_at:%Y-%m-%d %H:%M} UTC · {run.profile} · {lasted}",
        answer=tuple(standing.answer.lines()),
        look=look([standing.answer]),
        sharpness=standing.answer.sharpness,
        findings=tuple(findings[:MAX_FINDINGS]),
        more_findings=max(0, len(findings) - MAX_FINDINGS),
        advised=tuple(finding for finding, has_advice in found.items() if has_advice),
        headlines=headlines,
        since=tuple(since.of([row.metric for row in headlines]) for since in standing.since),
        advice=tuple(map(_in_a_line, advised[:MAX_ADVICE])),
        more_advice=max(0, len(advised) - MAX_ADVICE),
        normal=() if context is None else tuple(answers(compared)),
    )


def told(document: RunDocument, run: Path, standings: Standings) -> Story:
    """Return the first screen of *document*, that of the *run* directory, with its standing and references."""
    standing = standings.of(run, document)
    if standing is None:
        raise InputError(f"{run}: an import has no first screen")
    return story(document, standing, normal(document, library(results_of(run))))


def _in_a_line(item: Advice) -> str:
    """Return what to change, and the first part of what it costs."""
    return item.title if item.cost is None else f"{item.title}: {item.cost.partition(';')[0]}"


def cross_checks(document: RunDocument) -> Counter[str]:
    """Return the number of consistency checks by outcome: passed, failed and skipped."""
    return Counter(verdict.outcome for verdict in document.consistency)


def trust_word(trust: Trust, reason: Flag | None) -> str:
    """Return the word for *trust*, with the *reason* in short."""
    word = "near target" if trust == "near" else trust.replace("_", " ")
    row = None if reason is None else FLAGS.get(reason.code)
    return word if row is None or row.short is None else f"{word}: {row.short}"


def _findings(document: RunDocument, context: Context | None, advised: Sequence[Advice]) -> Iterator[tuple[str, bool]]:
    """Yield the findings, worst first, and whether there is advice on them."""
    first = [
        *(_accepted(document, acceptance) for acceptance in document.acceptance),
        *_failed_checks(document.consistency),
        *_invalid(document.measurements),
        *_not_measured(document),
        *(f"{flag.reason}." for flag in document.flags if flag.code in FINDINGS),
    ]
    yield from ((finding, False) for finding in first)
    yield from _nodes_behind(document.record, peaks_of(context), advised)
    yield from _disturbed_cpus(document.measurements, advised, context)
    yield from ((view, False) for view in _views(document.measurements))
    yield from (
        (f"{item.title}: {flag.reason}.", False)
        for item, flag in _flags(document.measurements, "warn")
        if flag.code != "PARTIAL"
    )


def _accepted(document: RunDocument, acceptance: AcceptanceFile) -> str:
    outcome, met, limits = accepted(document, acceptance)
    return f"Acceptance by {acceptance.name}: {VERDICTS[outcome]}, {met} of {plural(limits, 'limit')} met."


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
) -> Iterator[tuple[str, bool]]:
    """Yield the nodes with low read bandwidth and empty slots that explain it, and whether there is advice on them."""
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
            share = units.percent(metric.value / middle)
            has_advice = bool(slots) and any(item.rule == "dimm_missing" for item in advised)
            yield f"Node {node} reads {units.headline(metric)}, {share} of the median of the nodes{slots}.", has_advice


def _disturbed_cpus(
    measurements: Sequence[Measurement], advised: Sequence[Advice], context: Context | None
) -> Iterator[tuple[str, bool]]:
    """Yield isolated CPUs that lose time with its cause, and whether the CPU's own lost time supports advice."""
    found = [measurement.values for measurement in measurements if isinstance(measurement.values, JitterValues)]
    found.sort(key=lambda values: -values.gaps.lost_share)
    if found and not any(values.isolated for values in found):
        what = "No isolated CPU was measured" if context is not None and context.isolated_cpus else "No CPU is isolated"
        share, longest = units.percent(found[0].gaps.lost_share), units.time_ns(found[0].longest_ns)
        yield f"{what}: CPU {found[0].cpu} loses {share} of its time, longest interruption {longest}.", False
    lost = [values for values in found if values.isolated and values.gaps.lost_share > MAX_LOST_SHARE]
    if lost:
        own = tuple(values.own_metrics for values in lost)
        cause = next((f": {item.found}" for item in advised if (item.metric or "").startswith(own)), "")
        cpus = short_cpulist(values.cpu for values in lost)
        who = f"Isolated CPU {cpus} loses" if len(lost) == 1 else f"{len(lost)} isolated CPUs ({cpus}) lose"
        shares = dict.fromkeys(units.percent(values.gaps.lost_share) for values in (lost[-1], lost[0]))
        yield f"{who} {' to '.join(shares)} of {'its' if len(lost) == 1 else 'their'} time{cause}.", bool(cause)


def _views(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield the longest interruption of each view in the time it watched, if they differ by an order of magnitude."""
    values = [measurement.values for measurement in measurements if measurement.validity.valid]
    cpus = quiet([item for item in values if isinstance(item, JitterValues)])
    wakes = [item for item in values if isinstance(item, WakeupValues)]
    if not cpus:
        return
    work, gap = (max(cpus, key=key) for key in (lambda cpu: cpu.work_max_ns, lambda cpu: cpu.gaps.max_ns))
    found = [
        (work.work_max_ns, "fixed work", work.work_s, (work.cpu,)),
        (gap.gaps.max_ns, "gaps", gap.gaps.wall_s, (gap.cpu,)),
        *((item.max_ns, "wake-up", item.wall_s, item.cpus) for item in wakes),
    ]
    found.sort(reverse=True)
    first = {view: (longest, watched_s, on) for longest, view, watched_s, on in reversed(found)}
    if found[0][0] > MAX_VIEWS_APART * min(longest for longest, *_ in first.values()):
        same = len({on for *_, on in first.values()}) == 1
        seen = (
            f"{view} {units.time_ns(longest)} in {watched_s:.0f} s{'' if same else f' (CPU {short_cpulist(on)})'}"
            for view, (longest, watched_s, on) in sorted(first.items(), key=lambda item: -item[1][0])
        )
        yield f"Longest interruption: {', '.join(seen)}."


def _machine(context: Context) -> Iterator[str]:
    processor, packages = context.processor, context.topology.packages
    name = (_short(processor.models[0].name or "") if processor.models else "") or processor.architecture
    table = table_for(processor.models[:1])
    microarchitecture = (table and table.microarchitecture) or ""
    core = f" ({microarchitecture})" if microarchitecture else ""  # names in clouds often do not tell the generation
    yield f"{f'{packages}x ' if packages and packages > 1 else ''}{name or 'unknown processor'}{core}"
    cores, cpus = len(context.topology.cores), len(context.online_cpus)
    yield f"{units.plural(cores, 'core')}{f' ({cpus} CPUs)' if cpus != cores else ''}"
    nodes = len(context.nodes)
    real = nodes - sum(len(parts) - 1 for parts in context.emulated_nodes.values())
    more = f" (emulated: {nodes})" if nodes != real else _of_sockets(context, microarchitecture)
    yield f"{units.plural(real, 'node')}{more}"
    dimms = Counter(
        f"{dimm.type or ''} {dimm.configured_mt_s or dimm.speed_mt_s or ''}".strip().replace(" ", "-")
        for dimm in context.firmware.dimms
        if dimm.size_bytes
    )
    if dimms:
        yield ", ".join(f"{count}x {kind}" for kind, count in dimms.items())
    elif context.memory.total_bytes is not None:
        yield units.size(context.memory.total_bytes)
    if context.confinement.container:
        yield " ".join(("container", *(["limited to", ", ".join(allowed)] if (allowed := limits(context)) else [])))
    if context.virtualization.guest:
        yield f"virtual machine ({context.virtualization.vendor or 'unnamed hypervisor'})"
    if release := re.match(r"\d+\.\d+", context.capture.kernel_release or ""):
        yield f"{context.capture.kernel_name or 'Linux'} {release[0]}"


def _of_sockets(context: Context, microarchitecture: str) -> str:
    """Return how many nodes with CPUs a socket has, if several, with the vendor's name for that where it is certain.

    Where AMD's processors have a node for each last-level cache, that may be another setting than nodes per socket.
    """
    sockets = context.topology.packages or 0
    nodes = sum(map(bool, context.cpus_by_node.values()))
    if sockets in (0, nodes) or nodes % sockets:
        return ""
    each, name = nodes // sockets, ""
    dies = {(core.package, core.die_id) for core in context.topology.cores}
    if context.virtualization.guest or not microarchitecture:
        name = ""
    elif microarchitecture in CLUSTER_ON_DIE:
        name = ", Cluster-on-Die"
    elif context.processor.models[0].vendor == "GenuineIntel" and len(dies) == sockets:
        name = f", SNC{each}"
    elif microarchitecture.startswith("Zen") and nodes < len(context.topology.last_level_cache_domains):
        name = f", NPS{each}"
    return f" ({each} per socket{name})"


def _short(name: str) -> str:
    """Return a processor's name without trademarks, core counts and clocks."""
    name = re.sub(r"\((R|TM|r|tm)\)|®|™", "", name)
    name = re.sub(r"\s+(CPU|Processor|\d+-Core)\b|@.*", "", name)
    return " ".join(name.split())
