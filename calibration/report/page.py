# SPDX-License-Identifier: Apache-2.0
"""What a page says, computed from the run document: the templates only word it.

Nothing here reads a clock, the host or a file; the order of everything follows from the document.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from calibration.measurements import registry
from calibration.measurements.choice import ShapeReference
from calibration.measurements.counting import COUNTERS
from calibration.measurements.max_bandwidth import PREFETCH_BYTES, STREAMS
from calibration.measurements.traffic import DEFAULT_SHAPE
from calibration.model import format_time
from calibration.report import filters
from calibration.report.advice import advice
from calibration.report.charts.base import Chart
from calibration.report.environment import Fact, environment, kind_module, tidy
from calibration.report.filters import alike
from calibration.report.imported import render_imported
from calibration.report.instruments import side_by_side
from calibration.report.machine import hugepages, machine
from calibration.report.osnoise import class_share
from calibration.report.page_charts import METHODS, Charts
from calibration.report.sections import SECTIONS, SHOWN, Facts, Row, rows
from calibration.report.story import cross_checks, story
from calibration.report.vulnerabilities import entries, open_count
from calibration.results.consistency import RULES
from calibration.results.migrations import model_of
from calibration.results.model import Measurement, NotMeasured, RunDocument, of_the_run
from calibration.results.pace import pace_text
from calibration.validity import Flag, Severity

EVIDENCE = 6
"""So many pieces of evidence for one flag are listed; the rest is counted."""


@dataclass(frozen=True)
class Note:
    """One validity flag, on which measurements it is, and the evidence: pairs of a sentence and what it is about."""

    code: str
    severity: Severity
    evidence: tuple[tuple[str, tuple[str, ...]], ...]
    more: int


@dataclass(frozen=True)
class Part:
    """What a page says in full about one measurement kind.

    Rows beyond those of its section's table, rendered text, and what of it was not measured.
    """

    kind: str
    title: str
    rows: tuple[Row, ...]
    text: str
    not_measured: tuple[NotMeasured, ...]


@dataclass(frozen=True)
class Section:
    """One section: sentences, charts, the rows of its table, what to know before believing them, and the full text."""

    title: str
    sentences: tuple[str, ...]
    charts: tuple[Chart, ...]
    rows: tuple[Row, ...]
    warnings: tuple[Flag, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Page:
    """Text of a page and its figures, by their paths relative to it."""

    text: str
    figures: dict[str, str]


def render(raw: bytes) -> Page:
    """Return the page of the run document *raw*, a valid ``run.json`` as its bytes lie on disk."""
    document = model_of(raw)
    charts = Charts(document)
    if document.imported is not None:
        return Page(text=tidy(render_imported(document, document.imported, raw, charts)), figures=charts.files)
    context = None if document.context is None else document.context.parsed
    text = (
        environment()
        .get_template("page.rst.j2")
        .render(
            document=document,
            story=story(document),
            first=charts.first_screen(),
            sections=list(sections(document, charts)),
            digest=hashlib.sha256(raw).hexdigest(),
            context=context,
            machine=() if context is None else machine(context, document.plan),
            vulnerabilities=() if context is None else entries(context, document.meltdown_checker),
            vulnerable=None if context is None else open_count(context),
            checks=cross_checks(document),
            rules=RULES,
            notes=notes(document),
            skipped=[each for each in of_the_run(document.not_measured) if each.kind not in {COUNTERS, "context"}],
            uncounted=uncounted(document.not_measured),
            provenance=provenance(document),
            second=side_by_side(document, None if context is None else hugepages(context)),
        )
    )
    return Page(text=tidy(text), figures=charts.files)


def sections(document: RunDocument, charts: Charts) -> Iterator[Section]:
    """Yield the sections that have something to say, in their order; kinds by the position their macro file names."""
    facts = Facts(document)
    modules = _modules(document)
    if unknown := {module.section for module in modules.values()} - SECTIONS.keys():
        raise KeyError(f"expected a section of {', '.join(SECTIONS)}, found {', '.join(sorted(unknown))}")
    for title, sentences in SECTIONS.items():
        kinds = [kind for kind, module in sorted(modules.items(), key=_position) if module.section == title]
        found = {kind: rows(document, kind) for kind in kinds}
        yield Section(
            title=title,
            sentences=tuple(sentences(facts)),
            charts=tuple(charts.of(kinds)),
            rows=tuple(row for kind in kinds for row in found[kind][:SHOWN]),
            warnings=tuple(_warnings(document.measurements, kinds)),
            parts=tuple(
                _part(document, kind, modules[kind], found[kind][SHOWN:])
                for kind in kinds
                if any(each.kind == kind for each in document.measurements)  # Skipped says why others were not
            ),
        )


def _position(item: tuple[str, Any]) -> tuple[int, str]:
    kind, module = item
    return module.position, kind


def _modules(document: RunDocument) -> dict[str, Any]:
    """Return the macro file of each kind, with what its macros may use."""
    kept = None if document.plan is None else document.plan.traffic_shape
    names = {
        "context": None if document.context is None else document.context.parsed,
        "kept": kept,
        "shape_origin": partial(shape_origin, kept),
        "uncounted": uncounted(document.not_measured),
        "advice": advice,
        "class_share": class_share,
        "methods": METHODS,
    }
    return {kind: kind_module(kind, names) for kind in registry()}


def _part(document: RunDocument, kind: str, module: Any, more: Sequence[Row]) -> Part:
    """Return what is said in full about *kind*, which was measured."""
    measured = [each for each in document.measurements if each.kind == kind]
    missing = [each for each in document.not_measured if each.kind == kind]
    texts = [module.one(each, each.values) for each in measured] if hasattr(module, "one") else []
    texts += [module.all(measured)] if hasattr(module, "all") else []
    return Part(kind, registry()[kind].title, tuple(more), "\n".join(texts), tuple(alike(missing)))


def _warnings(measurements: Sequence[Measurement], kinds: Sequence[str]) -> list[Flag]:
    """Return what to know before believing figures of *kinds*, each once."""
    found = (
        flag
        for each in measurements
        if each.kind in kinds
        for flag in each.validity.flags
        if flag.severity != "info" and flag.code != "EMULATED"  # the first screen says that
    )
    return list(dict.fromkeys(found))


def shape_origin(kept: ShapeReference | None, measurement: Measurement) -> Literal["kept", "default", "profile"]:
    """Return where the shape of *measurement*'s traffic comes from: the choice *kept*, the default, or the profile."""
    offered: dict[str, set[Any]] = {
        "streams": {*STREAMS, DEFAULT_SHAPE.streams},
        "prefetch_bytes": {*PREFETCH_BYTES, DEFAULT_SHAPE.prefetch_bytes},
    }
    if kept is not None:
        shapes = (kept.all_mixes, *kept.mixes.values())
        offered = {name: {getattr(each, name) for each in shapes} for name in (*offered, "width")}
    for name, values in offered.items():
        given = measurement.parameters[name]
        if not values.issuperset(given if isinstance(given, list | tuple) else [given]):
            return "profile"
    return "default" if kept is None else "kept"


def notes(document: RunDocument) -> list[Note]:
    """Return all flags, worst first, with their evidence; equal evidence names all its measurements."""
    found: dict[tuple[Severity, str], dict[str, list[str]]] = {}
    flags = [("the machine", flag) for flag in document.flags]
    flags += [(each.id, flag) for each in document.measurements for flag in each.validity.flags]
    for about, flag in flags:
        names = found.setdefault((flag.severity, flag.code), {}).setdefault(flag.reason, [])
        if about not in names:
            names.append(about)
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
    uid = None if capture is None else capture.uid
    user = None if uid is None else "root" if uid == 0 else f"ordinary user (uid {uid})"
    return [
        Fact("Run", run.id),
        Fact("Status", run.status),
        Fact("Started", format_time(run.started_at)),
        Fact(
            "Finished",
            f"{format_time(run.finished_at)}, after "
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
