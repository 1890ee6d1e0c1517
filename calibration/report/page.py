# SPDX-License-Identifier: Apache-2.0
"""Content of a page, computed from the run document; templates only word it.

No clock, host or file is read; all ordering follows from the document.
"""

import hashlib
import re
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from calibration.base import units
from calibration.base.flags import FLAGS, SEVERITIES, Severity
from calibration.base.grouping import grouped
from calibration.base.model import format_time
from calibration.base.validity import Flag
from calibration.context.facts import text_of
from calibration.context.model import Context
from calibration.judge.night import judge_alone
from calibration.judge.standing import Standing, standing_in
from calibration.measurements import registry
from calibration.measurements.bandwidth_ladder import BandwidthLadderValues
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.counting import COUNTERS
from calibration.measurements.disturbers import source_name
from calibration.measurements.max_bandwidth import PREFETCH_BYTES, STREAMS
from calibration.measurements.platform import ShapeReference
from calibration.measurements.traffic import DEFAULT_SHAPE
from calibration.preflight.configuration import configuration_summary, newest_configuration
from calibration.references.library import Library, published
from calibration.references.matching import Normal, normal, sources_of
from calibration.references.metrics import TOOLS
from calibration.report.advice import Advice, advice
from calibration.report.blocks import Blocks, Bullets, Span, Term
from calibration.report.composing import BREAK, Fragment
from calibration.report.devices import rows as device_rows
from calibration.report.disturbers import by_rate, culprits, sources_of_causes
from calibration.report.environment import Fact, blocks_of, kind_modules
from calibration.report.filters import alike
from calibration.report.headlines import peaks_of
from calibration.report.imported import imported_page
from calibration.report.instruments import side_by_side
from calibration.report.machine import machine
from calibration.report.normal import (
    answers,
    biases,
    is_brief,
    normal_rows,
    peak_sentence,
    published_curves,
    shown,
    summary,
    without,
)
from calibration.report.osnoise import class_share
from calibration.report.page_charts import Charts
from calibration.report.rated import rated_rows
from calibration.report.sections import MAX_ROWS, SECTIONS, Facts, SectionRow, rows, sentences
from calibration.report.story import cross_checks, story
from calibration.report.vulnerabilities import entries, open_count
from calibration.results.consistency import RULES
from calibration.results.health import Health
from calibration.results.model import Measurement, NotMeasured, RunDocument, of_the_run
from calibration.results.store import StoredRun
from calibration.run.pace import pace_text

MAX_EVIDENCE = 6
"""Pieces of evidence listed per flag; the rest is counted."""


class Page(NamedTuple):
    """Blocks of a page, and its charts by relative path."""

    blocks: Blocks
    figures: dict[str, str]


def render(stored: StoredRun, references: Library | None = None, standing: Standing | None = None) -> Page:
    """Return the page of *stored*, compared with *references*, by default the published ones.

    *standing* is that of its SUT, by default that of the document alone. Raises ``InputError`` if it is not a run
    document.
    """
    document = stored.document
    digest = hashlib.sha256(stored.content).hexdigest()
    if document.imported is not None:
        charts = Charts(document)
        return Page(imported_page(document, document.imported, digest, charts), charts.files)
    context = None if document.context is None else document.context.parsed
    advised = advice(document)
    configuration = newest_configuration([attempt.checks for attempt in document.attempts])
    found = normal(document, published() if references is None else references)
    charts = Charts(document, published_curves(found))
    told = story(document, standing or standing_in(judge_alone(document), document), found)
    blocks = blocks_of(
        "page",
        document=document,
        story=told,
        advice=advised,
        normal=normal_section(found, context),
        first=charts.first_screen(),
        sections=list(sections(document, charts, advised, {row.metric for row in told.headlines})),
        digest=digest,
        context=context,
        machine=() if context is None else machine(context, document.plan, healths(document)),
        devices=() if context is None else device_rows(context),
        vulnerabilities=() if context is None else entries(context, document.meltdown_checker),
        vulnerable=None if context is None else open_count(context),
        checks=cross_checks(document),
        rated=() if context is None else rated_rows(context, document.measurements),
        rules=RULES,
        notes=notes(document),
        configuration=configuration,
        configuration_summary=configuration_summary(configuration),
        preflight=[
            (number, check)
            for number, attempt in enumerate(document.attempts, 1)
            for check in attempt.checks
            if not check.configured
        ],
        skipped=[item for item in of_the_run(document.not_measured) if item.kind not in {COUNTERS, "context"}],
        uncounted=uncounted(document),
        provenance=provenance(document),
        second=side_by_side(document, None if context is None else text_of("huge pages", context)),
    )
    return Page(blocks, charts.files)


def normal_section(found: Normal, context: Context | None) -> dict[str, Any]:
    """Return the content of the section that compares the run with the references of its hardware."""
    rows, groups = normal_rows(found), shown(found)
    return {
        "sentences": [
            *answers(found),
            *filter(None, [summary(found)]),
            *([] if found.subject.reason or context is None else [peak_sentence(found, context)]),
        ],
        "brief": [row for row in rows if is_brief(row)],
        "more": [row for row in rows if not is_brief(row)],
        "without": without(found),
        "biases": biases(groups),
        "sources": [(TOOLS[instrument].name, source) for instrument, source in sources_of(groups)],
        "faults": found.faults,
    }


def sections(
    document: RunDocument, charts: Charts, advised: Sequence[Advice], headlines: Container[str]
) -> Iterator[dict[str, Any]]:
    """Yield the content of each section in order, without the rows of the *headlines*.

    A section is left out if the run neither measured nor skipped any of its kinds. The content is its title, sentences,
    charts, what its kinds say below them, table rows, the flags that qualify them, and the full text by kind.
    """
    facts = Facts(document)
    shape = None if document.plan is None else document.plan.traffic_shape
    modules = kind_modules(
        context=facts.context,
        kept=shape,
        peaks=peaks_of(facts.context),
        saturated=[
            item
            for measurement in document.measurements
            if isinstance(measurement.values, BandwidthScalingValues)
            for item in measurement.values.saturation
            if item.scope == "machine"
        ],
        shape_origin=partial(shape_origin, shape),
        uncounted=uncounted(document),
        class_share=class_share,
        culprits=partial(culprits, advised=advised),
        sources_of_causes=sources_of_causes,
        source_name=source_name,
        by_rate=by_rate,
    )
    known = {item.kind for item in document.measurements} | {item.kind for item in document.not_measured}
    for title in SECTIONS:
        found = {
            kind: _split(rows(document, kind), of, headlines) for kind, of in modules.items() if of.section == title
        }
        if not known & found.keys():
            continue
        yield {
            "title": title,
            "sentences": tuple(sentences(title, facts, found)),
            "charts": tuple(charts.of(found)),
            "below": [
                modules[kind].below(those)
                for kind in found
                if hasattr(modules[kind], "below") and (those := _measured(document, kind))
            ],
            "rows": [row for shown, _ in found.values() for row in shown],
            "warnings": list(_warnings(document.measurements, found)),
            "parts": [
                _part(document, kind, modules[kind], more)
                for kind, (_, more) in found.items()
                if _measured(document, kind)  # others are listed in Skipped
            ],
        }


def _measured(document: RunDocument, kind: str) -> list[Measurement]:
    return [measurement for measurement in document.measurements if measurement.kind == kind]


def _split(
    found: Sequence[SectionRow], module: Any, headlines: Container[str]
) -> tuple[list[SectionRow], list[SectionRow]]:
    """Return the rows of a kind that its section's table shows, and those that are folded.

    Folded are cross-checks, and the *headlines*, which the page begins with.
    """
    pattern = getattr(module, "brief", "")
    brief = [row for row in found if re.search(pattern, row.name) and not row.repeated and row.name not in headlines]
    shown = brief[:MAX_ROWS]
    return shown, [row for row in found if row not in shown]


def _part(document: RunDocument, kind: str, module: Any, more: Sequence[SectionRow]) -> dict[str, Any]:
    """Return the full text of *kind*, which was measured; *more* rows do not fit its section's table."""
    measured = _measured(document, kind)
    texts = [module.one(measurement, measurement.values) for measurement in measured] if hasattr(module, "one") else []
    texts += [module.all(measured)] if hasattr(module, "all") else []
    return {
        "kind": kind,
        "title": registry()[kind].title,
        "rows": more,
        "text": Fragment(piece for text in texts for piece in (BREAK, *text)),
        "not_measured": alike([omitted for omitted in document.not_measured if omitted.kind == kind]),
    }


def _warnings(measurements: Sequence[Measurement], kinds: Container[str]) -> Iterator[tuple[Flag, int]]:
    """Yield the first of the flags with each code that qualify metrics of *kinds*, and the number of others."""
    flags = (flag for measurement in measurements if measurement.kind in kinds for flag in measurement.validity.flags)
    # the first screen says that the processor is emulated
    found = dict.fromkeys(flag for flag in flags if flag.severity != "info" and flag.code != "EMULATED")
    for those in grouped((flag.code, flag) for flag in found).values():
        yield those[0], len(those) - 1


def shape_origin(kept: ShapeReference | None, measurement: Measurement) -> Literal["kept", "default", "profile"]:
    """Return the origin of the access pattern of *measurement*: the choice *kept*, the default, or the profile."""
    offered: dict[str, set[Any]] = {
        "streams": {*STREAMS, DEFAULT_SHAPE.streams},
        "prefetch_bytes": {*PREFETCH_BYTES, DEFAULT_SHAPE.prefetch_bytes},
    }
    if isinstance(measurement.values, BandwidthLadderValues):
        chosen = {} if kept is None else kept.level_shapes("one" if measurement.values.threads == 1 else "all")
        kept = kept if chosen else None
        offered = {
            "streams": {DEFAULT_SHAPE.streams, *(shape.streams for shape in chosen.values())},
            "prefetch_bytes": {0},
        }
    elif kept is not None:
        own = (kept.all_mixes, *kept.mixes.values(), DEFAULT_SHAPE)
        if rows := measurement.parameters.get("shape"):
            known = {shape.text for shape in own}
            return "kept" if all(row.partition("=")[2] in known for row in rows) else "profile"
        shapes = (kept.all_mixes, *kept.mixes.values())
        offered = {name: {getattr(shape, name) for shape in shapes} for name in (*offered, "width")}
    for name, values in offered.items():
        given = measurement.parameters[name]
        if not values.issuperset(given if isinstance(given, list | tuple) else [given]):
            return "profile"
    return "default" if kept is None else "kept"


def notes(document: RunDocument) -> list[Term]:
    """Return all flags, worst first, each with reasons and subjects."""
    flags = [(flag, "the machine") for flag in document.flags]
    flags += [(flag, measurement.id) for measurement in document.measurements for flag in measurement.validity.flags]
    found: dict[tuple[Severity, str], dict[str, list[str]]] = {}
    for flag, about in dict.fromkeys(flags):
        found.setdefault((flag.severity, flag.code), {}).setdefault(flag.reason, []).append(about)
    worst_first = sorted(found, key=lambda key: (list(SEVERITIES).index(key[0]), key[1]))
    return [_note(severity, code, list(found[severity, code].items())) for severity, code in worst_first]


def _note(severity: Severity, code: str, evidence: Sequence[tuple[str, Sequence[str]]]) -> Term:
    """Return a flag with its meaning and the first pieces of *evidence*: reasons, and what each is about."""
    items = [f"{', '.join(about)}: {reason}" for reason, about in evidence[:MAX_EVIDENCE]]
    if len(evidence) > MAX_EVIDENCE:
        items.append(f"and {len(evidence) - MAX_EVIDENCE} more in the run document")
    term = Span(code, severity), f" ({SEVERITIES[severity]})"
    row = FLAGS.get(code)
    meaning = "This version does not know this flag." if row is None else row.meaning
    return Term(term, (meaning,), Bullets(tuple((item,) for item in items)))


def healths(document: RunDocument) -> list[Health]:
    """Return what the SUT counted in each attempt that measured."""
    return [attempt.health for attempt in document.attempts if attempt.health is not None]


def uncounted(document: RunDocument) -> list[NotMeasured]:
    """Return the hardware counters that no measurement of the run has, with reasons."""
    return [omitted for omitted in document.not_measured if omitted.kind == COUNTERS]


def provenance(document: RunDocument) -> list[Fact]:
    """Return the origin of the metrics of *document*."""
    run, probe = document.run, document.run.probe
    capture = None if document.context is None else document.context.parsed.capture
    clocks = dict.fromkeys(
        f"{measurement.clock.source} at {units.frequency(measurement.clock.hz)}"
        for measurement in document.measurements
        if measurement.clock is not None
    )
    lasted = units.duration((run.finished_at - run.started_at).total_seconds())
    uid = None if capture is None else capture.uid
    user = None if uid is None else "root" if uid == 0 else f"ordinary user (uid {uid})"
    return [
        Fact("Run", run.id),
        Fact("Status", run.status),
        Fact("Started", format_time(run.started_at)),
        Fact("Finished", f"{format_time(run.finished_at)}, after {lasted}"),
        *(Fact("Measuring", text) for text in (pace_text(document),) if text is not None),
        Fact("Profile", run.profile),
        Fact("Harness", f"version {run.harness_version}"),
        Fact(
            "Instrument",
            ", ".join(dict.fromkeys(measurement.instrument for measurement in document.measurements)) or None,
        ),
        Fact("sutprobe, sha256", probe.sha256 if probe else None),
        Fact("sutprobe target", probe.target if probe else None),
        Fact("Compiler", probe.compiler if probe else None),
        Fact("Compiler flags", probe.flags if probe else None),
        Fact("sutprobe sources, sha256", probe.source_sha256 if probe else None),
        Fact("Clock", "; ".join(clocks) or None),
        Fact("Context captured", capture.captured_at if capture else None),
        Fact("Captured as", user),
        Fact("Capture, sha256", document.context.capture_sha256 if document.context else None),
    ]
