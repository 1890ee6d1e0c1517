# SPDX-License-Identifier: Apache-2.0
"""What a page says, computed from the run document: the templates only word it.

Nothing here reads a clock, the host or a file; the order of everything follows from the document.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from calibration.context.model import Context
from calibration.measurements import registry
from calibration.measurements.base import Metric
from calibration.measurements.choice import ShapeReference
from calibration.measurements.counting import COUNTERS
from calibration.measurements.max_bandwidth import PREFETCH_BYTES, STREAMS
from calibration.measurements.traffic import DEFAULT_SHAPE
from calibration.plan import Plan
from calibration.report import filters
from calibration.report.advice import advice
from calibration.report.drawings import Drawings
from calibration.report.environment import Fact, environment, kind_module, tidy
from calibration.report.filters import alike
from calibration.report.imported import render_imported
from calibration.report.instruments import side_by_side
from calibration.report.osnoise import class_share
from calibration.report.vulnerabilities import counts, entries
from calibration.results.consistency import RULES
from calibration.results.migrations import model_of
from calibration.results.model import Measurement, NotMeasured, RunDocument
from calibration.results.pace import pace_text
from calibration.validity import Flag, Severity

SECTIONS = ("System-level core jitter", "Memory bandwidth", "Memory latency", "L1/L2/LLC latency")
"""The measured sections of the published pages, in their order."""

FAMILY = 8
"""From more metrics than this that differ only in a number, the summary shows the lowest and the highest."""

EVIDENCE = 6
"""So many pieces of evidence for one flag are listed; the rest is counted."""


@dataclass(frozen=True)
class Headline:
    """One line of the summary."""

    title: str
    metric: Metric
    placements: int | None
    estimator: str | None
    flags: tuple[Flag, ...]
    valid: bool
    verdict: str


@dataclass(frozen=True)
class Note:
    """One validity flag, on which measurements it is, and the evidence: pairs of a sentence and what it is about."""

    code: str
    severity: Severity
    evidence: tuple[tuple[str, tuple[str, ...]], ...]
    more: int


@dataclass(frozen=True)
class Part:
    """What a page says about one measurement kind: rendered text, or nothing and why."""

    kind: str
    title: str
    section: str
    text: str
    not_measured: tuple[NotMeasured, ...]


@dataclass(frozen=True)
class Page:
    """Text of a page and its figures, by their paths relative to it."""

    text: str
    figures: dict[str, str]


def render(raw: bytes) -> Page:
    """Return the page of the run document *raw*, a valid ``run.json`` as its bytes lie on disk."""
    document = model_of(raw)
    if document.imported is not None:
        text, drawn = render_imported(document, document.imported, raw, SECTIONS)
        return Page(text=tidy(text), figures=drawn)
    context = None if document.context is None else document.context.parsed
    drawings = None if context is None else Drawings(context.caches)
    text = (
        environment()
        .get_template("page.rst.j2")
        .render(
            document=document,
            run=document.run,
            attempts=document.attempts,
            context=context,
            digest=hashlib.sha256(raw).hexdigest(),
            headlines=headlines(document),
            vulnerabilities=() if context is None else entries(context, document.meltdown_checker),
            provenance=provenance(document),
            machine=() if context is None else machine(context, document.plan),
            notes=notes(document.measurements),
            rules=RULES,
            sections=SECTIONS,
            parts=list(parts(document, drawings)),
            unreadable=_by_reason(document.not_measured),
            uncounted=uncounted(document.not_measured),
            second=side_by_side(document, None if context is None else _hugepages(context)),
        )
    )
    return Page(text=tidy(text), figures={} if drawings is None else drawings.drawn)


def parts(document: RunDocument, drawings: Drawings | None) -> Iterator[Part]:
    """Yield what the page says about each kind there is, by section and then by the position its macro file names."""
    kept = None if document.plan is None else document.plan.traffic_shape
    names = {
        "drawings": drawings,
        "context": None if document.context is None else document.context.parsed,
        "kept": kept,
        "shape_origin": partial(shape_origin, kept),
        "uncounted": uncounted(document.not_measured),
        "advice": advice,
        "class_share": class_share,
    }
    modules = {kind: kind_module(kind, names) for kind in registry()}
    for kind in _ordered(modules):
        measured = [each for each in document.measurements if each.kind == kind]
        missing = tuple(each for each in document.not_measured if each.kind == kind)
        if not measured and not missing and document.plan is None:
            nothing = next(each for each in document.not_measured if each.kind == "run")
            missing = (nothing.model_copy(update={"kind": kind, "what": registry()[kind].title}),)
        if not measured and not missing:
            missing = (
                NotMeasured(
                    kind=kind,
                    what=registry()[kind].title,
                    reason=f"not among the steps of profile {document.run.profile}",
                    cause="not_planned",
                ),
            )
        yield Part(
            kind=kind,
            title=registry()[kind].title,
            section=modules[kind].section,
            text=str(modules[kind].render(measured)) if measured else "",
            not_measured=tuple(alike(missing)),
        )


def shape_origin(kept: ShapeReference | None, measurement: Measurement) -> Literal["kept", "default", "profile"]:
    """Return where the shape of *measurement*'s traffic comes from: the choice *kept*, the default, or the profile."""

    def given(name: str) -> set[Any]:
        value = measurement.parameters[name]
        return set(value) if isinstance(value, list | tuple) else {value}

    streams, prefetch_bytes, width = given("streams"), given("prefetch_bytes"), given("width")
    if kept is not None:
        shapes = (kept.all_mixes, *kept.mixes.values())
        if (
            streams <= {each.streams for each in shapes}
            and prefetch_bytes <= {each.prefetch_bytes for each in shapes}
            and width <= {each.width for each in shapes}
        ):
            return "kept"
    elif streams <= {*STREAMS, DEFAULT_SHAPE.streams} and prefetch_bytes <= {
        *PREFETCH_BYTES,
        DEFAULT_SHAPE.prefetch_bytes,
    }:
        return "default"
    return "profile"


def headlines(document: RunDocument) -> list[Headline]:
    """Return the lines of the summary: every metric, or the extremes of a family of many."""
    verdicts = {each.name: each.outcome for each in document.verdicts}
    lines = [
        Headline(
            title=metric.title,
            metric=metric,
            placements=metric.placements,
            estimator=metric.estimator,
            flags=tuple({flag.code: flag for flag in measurement.validity.flags}.values()),
            valid=measurement.validity.valid,
            verdict=verdicts.get(metric.name, "not judged").replace("_", " "),
        )
        for measurement in document.measurements
        for metric in registry()[measurement.kind].metrics(measurement.values)
    ]
    families: dict[str, list[Headline]] = {}
    for line in lines:
        families.setdefault(re.sub(r"\d+", "#", line.metric.name), []).append(line)
    kept: list[Headline] = []
    for family in families.values():
        kept += family if len(family) <= FAMILY else _extremes(family)
    return kept


def _extremes(family: Sequence[Headline]) -> list[Headline]:
    low = min(family, key=lambda line: line.metric.value)
    high = max(family, key=lambda line: line.metric.value)
    return [
        Headline(**{**vars(line), "title": f"{line.title} ({which} of {len(family)})"})
        for line, which in ((low, "lowest"), (high, "highest"))
    ]


def notes(measurements: Sequence[Measurement]) -> list[Note]:
    """Return all validity flags, worst first, with their evidence; equal evidence names all its measurements."""
    found: dict[tuple[Severity, str], dict[str, list[str]]] = {}
    for measurement in measurements:
        for flag in measurement.validity.flags:
            about = found.setdefault((flag.severity, flag.code), {}).setdefault(flag.reason, [])
            if measurement.id not in about:
                about.append(measurement.id)
    order = {"invalid": 0, "warn": 1, "info": 2}
    return [
        Note(
            code=code,
            severity=severity,
            evidence=tuple((reason, tuple(about)) for reason, about in list(evidence.items())[:EVIDENCE]),
            more=max(0, len(evidence) - EVIDENCE),
        )
        for (severity, code), evidence in sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][1]))
    ]


@cache
def page_order() -> tuple[str, ...]:
    """Return all kinds in the order in which a page has them."""
    return tuple(_ordered({kind: kind_module(kind) for kind in registry()}))


def _ordered(modules: Mapping[str, Any]) -> list[str]:
    """Return the kinds of *modules* by section and then by the position that each one's macro file names."""
    for kind, module in modules.items():
        if module.section not in SECTIONS:
            raise ValueError(f"expected one of {', '.join(SECTIONS)} as the section of {kind}, found {module.section}")
    return sorted(modules, key=lambda each: (SECTIONS.index(modules[each].section), modules[each].position, each))


def _by_reason(not_measured: Sequence[NotMeasured]) -> dict[str, list[str]]:
    """Return the files of the context that could not be read, by reason."""
    found: dict[str, list[str]] = {}
    for each in not_measured:
        if each.kind == "context":
            found.setdefault(each.reason, []).append(each.what)
    return found


def uncounted(not_measured: Sequence[NotMeasured]) -> list[NotMeasured]:
    """Return the hardware counters that no measurement of the run was given, each with the reason."""
    return [each for each in not_measured if each.kind == COUNTERS]


def provenance(document: RunDocument) -> list[Fact]:
    """Return where the figures of *document* come from."""
    run, kernels = document.run, document.run.kernels
    capture = None if document.context is None else document.context.parsed.capture
    clocks = dict.fromkeys(
        f"{each.clock.source} at {filters.frequency(each.clock.hz)}"
        for each in document.measurements
        if each.clock is not None
    )
    user = (
        None
        if capture is None or capture.uid is None
        else "root"
        if capture.uid == 0
        else f"ordinary user (uid {capture.uid})"
    )
    return [
        Fact("Run", run.id),
        Fact("Status", run.status),
        Fact("Started", filters.time(run.started_at)),
        Fact(
            "Finished",
            f"{filters.time(run.finished_at)}, after "
            f"{filters.duration((run.finished_at - run.started_at).total_seconds())}",
        ),
        *(Fact("Measuring", text) for text in (pace_text(document),) if text is not None),
        Fact("Profile", run.profile),
        Fact("Harness", f"version {run.harness_version}"),
        Fact("Instrument", ", ".join(dict.fromkeys(each.instrument for each in document.measurements)) or None),
        Fact("Kernel bytes, sha256", kernels.sha256 if kernels else None),
        Fact("Kernel target", kernels.target if kernels else None),
        Fact("Compiler", kernels.compiler if kernels else None),
        Fact("Compiler flags", kernels.flags if kernels else None),
        Fact("Kernel sources, sha256", kernels.source_sha256 if kernels else None),
        Fact("Clock", "; ".join(clocks) or None),
        Fact("Context captured", capture.captured_at if capture else None),
        Fact("Captured as", user),
        Fact("Capture, sha256", document.context.capture_sha256 if document.context else None),
    ]


def machine(context: Context, plan: Plan | None) -> list[Fact]:
    """Return the facts about the SUT that move its figures, with what *plan* relied on."""
    cache = None if plan is None else plan.last_level_cache
    firmware, memory, frequency, isolation = context.firmware, context.memory, context.frequency, context.isolation
    thp = memory.transparent_hugepages
    return [
        Fact("Host name", context.capture.hostname),
        Fact("System", _join(firmware.system_vendor, firmware.product_name, firmware.product_version)),
        Fact("Board", _join(firmware.board_vendor, firmware.board_name, firmware.board_version)),
        Fact("BIOS", _join(firmware.bios_vendor, firmware.bios_version, firmware.bios_date)),
        Fact("Virtualisation", _virtualization(context)),
        *_processors(context),
        *(() if cache is None else (Fact("Last-level cache", cache.words),)),
        Fact("CPUs", _cpus(context)),
        Fact("Isolated CPUs (isolcpus)", _isolated(isolation.isolated, isolation.isolated_source)),
        Fact("Tickless CPUs (nohz_full)", _isolated(isolation.nohz_full, isolation.nohz_full_source)),
        Fact("CPUs without RCU callbacks (rcu_nocbs)", filters.cpus(isolation.rcu_nocbs)),
        Fact("Interrupts that may reach isolated CPUs", _count(isolation.interrupts, isolation.isolated)),
        Fact("Threads that may run on isolated CPUs", _count(isolation.threads, isolation.isolated)),
        Fact("Frequency driver and governor", _join(*frequency.drivers, *frequency.governors)),
        Fact("Frequency limits", _range(frequency.hardware_min_hz, frequency.hardware_max_hz)),
        Fact("Turbo", _switch(frequency.turbo)),
        Fact("Idle states", _idle(context)),
        Fact("Clock source", context.clocksource.current),
        Fact("Memory", None if memory.total_bytes is None else filters.size(memory.total_bytes)),
        Fact("DIMMs", _dimms(context)),
        Fact("Transparent huge pages", _join(thp.enabled, f"defrag {thp.defrag}" if thp.defrag else None)),
        Fact("Huge pages", _hugepages(context)),
        Fact("NUMA balancing", _number_switch(memory.numa_balancing)),
        Fact("Real-time throttling", _rt(context)),
        Fact("NMI watchdog", _number_switch(context.kernel.nmi_watchdog)),
        Fact("Load average", _load(context)),
        Fact("Vulnerabilities", f"{counts(context)}; see Spectre and Meltdown"),
    ]


def _join(*words: str | None) -> str | None:
    known = dict.fromkeys(word.strip() for word in words if word and word.strip())
    return ", ".join(known) or None


def _switch(state: bool | None) -> str | None:
    return None if state is None else "on" if state else "off"


def _number_switch(state: int | None) -> str | None:
    return None if state is None else _switch(state != 0)


def _processors(context: Context) -> Iterator[Fact]:
    models = context.processor.models
    if not models:
        yield Fact("Processor", context.processor.architecture)
    for model in models:
        which = "" if len(models) == 1 else f" of CPUs {filters.cpus(model.cpus)}"
        ids = ", ".join(
            f"{name} {value}"
            for name, value in (("family", model.family), ("model", model.model), ("stepping", model.stepping))
            if value is not None
        )
        yield Fact(f"Processor{which}", _join(model.name, model.vendor, context.processor.architecture, ids))
        yield Fact(f"Microcode{which}", model.microcode)


def _virtualization(context: Context) -> str | None:
    virtual = context.virtualization
    if virtual.guest is None:
        return None
    if not virtual.guest:
        return "none"
    kind = f" ({virtual.type} virtualisation)" if virtual.type else ""
    return f"guest of {virtual.vendor or 'an unnamed hypervisor'}{kind}"


def _cpus(context: Context) -> str:
    topology, found = context.topology, context.cpus
    words = [f"{len(found.online)} online ({filters.cpus(found.online)})"]
    if found.offline:
        words.append(f"{len(found.offline)} offline ({filters.cpus(found.offline)})")
    if found.allowed is not None and set(found.allowed) != set(found.online):
        words.append(f"allowed to the login: {filters.cpus(found.allowed)}")
    if topology.packages is not None:
        words.append(f"{topology.packages} package{'s' * (topology.packages != 1)}")
    words.append(f"{len(topology.cores)} core{'s' * (len(topology.cores) != 1)}")
    if topology.threads_per_core is not None:
        words.append(f"{topology.threads_per_core} thread{'s' * (topology.threads_per_core != 1)} per core")
    return ", ".join(words)


def _isolated(cpus: tuple[int, ...], source: str | None) -> str:
    return filters.cpus(cpus) if not cpus or source is None else f"{filters.cpus(cpus)} (by the {source})"


def _count(found: Sequence[Any] | None, isolated: tuple[int, ...]) -> str | None:
    if not isolated:
        return "no CPU is isolated"
    return None if found is None else str(len(found))


def _range(low: int | None, high: int | None) -> str | None:
    return None if low is None and high is None else f"{filters.frequency(low)} to {filters.frequency(high)}"


def _idle(context: Context) -> str | None:
    idle = context.idle
    states = ", ".join(
        state.name + (f" (off on CPUs {filters.cpus(state.disabled_cpus)})" if state.disabled_cpus else "")
        for state in idle.states
    )
    return _join(idle.driver, idle.governor, states)


def _dimms(context: Context) -> str | None:
    dimms = context.firmware.dimms
    if not dimms:
        return None
    kinds: dict[str, int] = {}
    for dimm in dimms:
        if dimm.size_bytes:
            speed = dimm.configured_mt_s or dimm.speed_mt_s
            text = " ".join(
                word for word in (filters.size(dimm.size_bytes), dimm.type, f"{speed} MT/s" if speed else None) if word
            )
            kinds[text] = kinds.get(text, 0) + 1
    filled = ", ".join(f"{count} x {text}" for text, count in kinds.items())
    return f"{sum(kinds.values())} of {len(dimms)} slots filled: {filled}"


def _hugepages(context: Context) -> str | None:
    pools = [f"{each.total} of {filters.size(each.size_bytes)}" for each in context.memory.hugepages if each.total]
    if pools:
        return ", ".join(pools)
    return "none reserved" if context.memory.hugepages else None


def _rt(context: Context) -> str | None:
    runtime, period = context.kernel.sched_rt_runtime_us, context.kernel.sched_rt_period_us
    if runtime is None or period is None:
        return None
    return "off" if runtime < 0 else f"{runtime} µs of every {period} µs"


def _load(context: Context) -> str | None:
    load = context.kernel.load_average
    return None if load is None else ", ".join(f"{each:.2f}" for each in load)
