# SPDX-License-Identifier: Apache-2.0
"""Run documents of captured machines with recorded documents of sutprobe; more nodes and CPUs are scaled copies."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import directives
from docutils.parsers.rst.directives.misc import Class
from pydantic import BaseModel

from calibration.base.statistics import Estimate
from calibration.base.statistics import estimate as estimate_of
from calibration.base.tuning import SettingChange, not_restored, unrestored
from calibration.base.validity import Flag, Validity, flag, validity
from calibration.context.facts import facts
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.formats.csit_page import read_published
from calibration.formats.meltdown_checker import read_output
from calibration.formats.mlc import read_output as read_mlc_output
from calibration.judge.night import judge_alone
from calibration.judge.run import judge_run
from calibration.judge.standing import standing_in
from calibration.measurements import declaration
from calibration.measurements.base import GridValues, Step
from calibration.measurements.c2c_latency import C2cLatencyValues
from calibration.measurements.evidence import Missing
from calibration.measurements.jitter import JitterValues
from calibration.measurements.mlc_program import COMMANDS, MlcCommand, read_prefetchers
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.measurements.plan import Plan
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.measurements.sut import Sut, machine_flags
from calibration.measurements.table import TableRow
from calibration.preflight.checks import Check
from calibration.profiles import ROUNDS
from calibration.references.library import Library, published
from calibration.references.matching import normal
from calibration.report import pictures
from calibration.report.blocks import Blocks
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.report.story import Story, story
from calibration.results.cross_checks import cross_checks
from calibration.results.imports import document_of
from calibration.results.layout import RUN, SCHEMA_VERSION
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import (
    Attempt,
    CapturedContext,
    Measurement,
    MeltdownChecker,
    Mlc,
    MlcRun,
    NotMeasured,
    ProbeBuild,
    Run,
    RunDocument,
)
from calibration.results.rated import rated_flags
from calibration.results.store import StoredRun
from calibration.sutprobe.document import ProbeDocument, read_document
from tests.recorded import MEASURED, parts_of
from tests.rounds import in_rounds

PROBE = ProbeBuild(
    sha256="0123456789abcdef" * 4, target="x86_64", version="0.1.0", compiler="clang version 20.0.0",
    flags="-O2 -static", source_sha256="fedcba9876543210" * 4,
)  # fmt: skip

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
STAND_IN = FIXTURES / "mlc-stand-in" / "mlc"
MACHINE = "x86_64-two-nodes-smt"
PAGE = "calibration/example-lab/t3-sut2/index.html"
"""Where the site has the page of the newest run."""

RUN_ID = "20260102T030405Z-0a1b"

RECORDED = MEASURED


def parsed_measurements(
    name: str, document: ProbeDocument, context: Context, prefetchers: Literal["off"] | None = None
) -> list[Measurement]:
    """Return what *document*, printed by the step *name* on the SUT of *context*, measured."""
    kind = name.partition("-")[0]
    step = Step(
        id=name,
        kind=kind,
        title=declaration(kind).title,
        argv=document.argv,
        target_half_width=document.parameters.get("target_half_width"),
        cpus=(1,),
        memory_bytes={},
        tasks=1,
        expected_duration_s=1.0,
        setup_s=0.0,
        longest_duration_s=2.0,
        deadline_s=30.0,
        prefetchers=prefetchers,
    )
    return [
        Measurement(
            id=f"{name}{parsed.suffix}",
            kind=kind,
            step=name,
            title=step.title,
            instrument=f"sutprobe {document.build.version}",
            argv=document.argv,
            parameters=document.parameters,
            rounds=tuple(part.round for part in document.parts),
            started_at=datetime.fromtimestamp(document.started_at_unix_ns / 1e9, UTC),
            duration_s=document.duration_s,
            clock=document.clock,
            warnings=document.warnings,
            values=parsed.values,
            missing=parsed.missing,
            validity=validity(parsed.flags),
        )
        for parsed in declaration(kind).parse(document, step, Sut(context))
    ]


@cache
def context_of(machine: str) -> Context:
    """Return the context of a captured machine."""
    return load(FIXTURES / "context" / f"{machine}.tar.gz")


@cache
def measurements_of(name: str, machine: str) -> tuple[Measurement, ...]:
    """Return the measurements in one recorded document, in rounds of one placement each unless they are made once."""
    raw = json.loads(RECORDED[name].read_text(encoding="utf-8"))
    rounds = 1 if declaration(name.partition("-")[0]).once else ROUNDS
    made = [(number, read_document(part), None) for number, part in enumerate(in_rounds(raw, rounds), 1)]
    document = made[0][1] if rounds == 1 else ProbeDocument.merged(made)
    return tuple(parsed_measurements(name, document.with_parts(parts_of(name, raw["argv"])), context_of(machine)))


def attempt(**changes: Any) -> Attempt:
    """Return the attempt that made the example run; *changes* replaces its fields."""
    fields: dict[str, Any] = {
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "finished_at": datetime(2026, 1, 2, 3, 5, 25, tzinfo=UTC),
        "boot_id": "5d1e4b0e-6a3c-4c57-9a52-0f6f1b0c8d11",
        "capture": "context.tar.gz",
        "capture_sha256": "ab" * 32,
        "checks": (),
        "changes": (),
        "ended": None,
    }
    return Attempt(**{**fields, **changes})


@cache
def run_document(machine: str = MACHINE, names: tuple[str, ...] | None = None, **run: Any) -> RunDocument:
    """Return a run of *machine* with the recorded documents *names* (default: all); *run* replaces its fields."""
    context = context_of(machine)
    fields: dict[str, Any] = {
        "id": RUN_ID,
        "testbed": "example-lab",
        "sut": "t3-sut2",
        "profile": "quick",
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "finished_at": datetime(2026, 1, 2, 3, 5, 25, tzinfo=UTC),
        "harness_version": "0.1.0",
        "probe": PROBE,
        "status": "complete",
    }
    found = [item for name in (RECORDED if names is None else names) for item in measurements_of(name, machine)]
    run_values = {measurement.id: measurement.values for measurement in found}
    measurements = tuple(
        measurement.model_copy(
            update={"values": declaration(measurement.kind).completed(measurement.values, run_values)}
        )
        for measurement in found
    )
    return RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(**{**fields, **run}),
        attempts=(attempt(),),
        context=CapturedContext(parsed=context, capture="context.tar.gz", capture_sha256="ab" * 32),
        facts=facts(context, PROBE.sha256),
        plan=Plan(
            profile="quick", steps=(), not_planned=(), expected_duration_s=60.0, longest_duration_s=60.0,
            full_memory_bytes={}, traffic_shape=None,
        ),
        measurements=measurements,
        not_measured=(
            NotMeasured(
                kind="jitter",
                what="Jitter of an isolated CPU",
                reason="no CPU is isolated, neither by isolcpus= nor by a cpuset partition",
                cause="not_planned",
            ),
        ),
        verdicts=(),
        flags=(*machine_flags(context), *rated_flags(context, measurements)),
        meltdown_checker=None,
        mlc=None,
        opendcdiag=None,
        record=metrics_of_record(measurements),
        consistency=cross_checks(measurements),
        readings=(),
        imported=None,
    )  # fmt: skip


def checked_document(recorded: str = "0.46.json", **changes: Any) -> RunDocument:
    """Return a run in which the operator's checker printed the output *recorded*; *changes* replaces its fields."""
    raw = (FIXTURES / "meltdown_checker" / recorded).read_bytes()
    said = read_output(raw)
    fields: dict[str, Any] = {
        "started_at": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
        "duration_s": 2.5,
        "script_sha256": "89" * 32,
        "argv": ("/bin/sh", "spectre-meltdown-checker.sh", "--batch", "json"),
        "user_id": 0,
        "rc": 2,
        "output": "meltdown-checker.txt",
        "output_sha256": hashlib.sha256(raw).hexdigest(),
        "stderr": "",
        "reason": None,
        "version": said.version,
        "findings": said.findings,
    }
    checker = MeltdownChecker(**{**fields, **changes})
    return run_document(names=()).model_copy(update={"meltdown_checker": checker})


@cache
def print_of_mlc(arguments: tuple[str, ...]) -> str:
    """Return what the stand-in for Intel MLC prints."""
    return subprocess.run([STAND_IN, *arguments], capture_output=True, text=True, check=True).stdout


def second_document(
    *,
    names: tuple[str, ...] | None = None,
    publish: bool = True,
    prefetchers: dict[str, Any] | None = None,
    **changes: Any,
) -> RunDocument:
    """Return a run of *names* (default: all) in which the operator's Intel MLC printed what a page published of it.

    *prefetchers* is what the SUT said of them, *changes* replaces fields of the program.
    """
    document = run_document(names=names)
    said = prefetchers or {
        "places": [{"where": "/dev/cpu/{0-3}/msr", "before": "0x0", "after": "0x0", "restored": None}],
        "unread": None,
    }
    readings, runs = [], []
    for command in COMMANDS:
        argv = MlcCommand(command=command).argv(prefetchers_ok=False)
        printed = print_of_mlc(argv[1:])
        found = [
            step.model_copy(update={"id": f"mlc.{command}.{step.id}"})
            for step in read_mlc_output(printed.encode(), argv)
        ]
        readings += found
        runs.append(
            MlcRun(
                started_at=datetime(2026, 1, 2, 3, 5, 6, tzinfo=UTC),
                duration_s=12.5,
                argv=argv,
                user_id=0,
                rc=0,
                output=f"mlc/{command}.txt",
                output_sha256=hashlib.sha256(printed.encode()).hexdigest(),
                reason=None,
                command=command,
                outcome="ok",
                program_sha256="45" * 32,
                prefetchers=read_prefetchers(said),
                readings=tuple(step.id for step in found),
            )
        )
    fields: dict[str, Any] = {
        "started_at": datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC),
        "archive": "mlc_v3.5.tgz",
        "archive_sha256": "67" * 32,
        "member": "Linux/mlc",
        "program_sha256": "45" * 32,
        "form": "elf",
        "prefetchers_ok": False,
        "publish": publish,
        "reason": None,
        "commands": tuple(runs),
    }
    return document.model_copy(update={"mlc": Mlc(**{**fields, **changes}), "readings": tuple(readings)})


def prefetchers_document() -> RunDocument:
    """Return a run with the prefetchers off for one step: each stride then has the latency of random order.

    There is no recording of such a machine: registers of the machine that recorded could not be written.
    """
    document = run_document(names=("prefetcher_effect",))
    (found,) = document.measurements
    values = found.values
    assert isinstance(values, PrefetcherEffectValues)
    random = {point.stride_bytes: point for point in values.points if point.order == "random"}
    off = values.model_copy(
        update={
            "prefetchers": "off",
            "table": values.table_of(
                random[point.stride_bytes]
                | {"order": point.order, "of_random": None if point.order == "random" else 1.0}
                for point in values.points
            ),
        }
    )
    switched = found.model_copy(
        update={
            "id": "prefetcher_effect-off",
            "step": "prefetcher_effect-off",
            "title": f"{found.title}, prefetchers off",
            "values": declaration("prefetcher_effect").completed(off, {found.id: values}),
        }
    )
    change = SettingChange(
        setting="prefetchers", where="/dev/cpu/{0-1}/msr:0x1a4", before="0x0", wanted="0x2f", after="0x2f",
        restored="0x0", restored_by="run",
    )  # fmt: skip
    return document.model_copy(update={"measurements": (found, switched), "attempts": (attempt(changes=(change,)),)})


def not_begun_document() -> RunDocument:
    """Return a run that was resumed once, began neither time, and had something on the SUT changed meanwhile."""
    check = Check(
        name="kernel_release", title="Kernel release", expected="6.1.*", found="5.4.0-1", outcome="not_met",
        severity="blocking",
    )  # fmt: skip
    reason = "Kernel release: expected 6.1.*, found 5.4.0-1."
    change = SettingChange(
        setting="governor",
        where="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        before="schedutil",
        wanted="performance",
        after="performance",
        restored=None,
        restored_by=None,
    )
    put_back = change.model_copy(update={"where": "cpu1", "restored": "schedutil", "restored_by": "cleanup"})
    document = run_document(names=(), status="not_begun")
    left = unrestored((change, put_back), ())
    return document.model_copy(
        update={
            "flags": (flag("NOT_RESTORED", not_restored(left)),),
            "run": document.run.model_copy(update={"probe": None}),
            "attempts": (
                attempt(
                    boot_id=None, capture=None, capture_sha256=None, finished_at=None, ended="the SUT is not reachable"
                ),
                attempt(checks=(check,), changes=(change, put_back), unrestored=left, ended=reason),
            ),
            "context": None,
            "facts": {},
            "plan": None,
            "not_measured": (NotMeasured(kind="run", what="everything", reason=reason, cause="failed"),),
        }
    )


def as_bytes(document: RunDocument) -> bytes:
    return document.to_json().encode() + b"\n"


def judged(document: RunDocument) -> RunDocument:
    """Return *document* with a verdict on each of its metrics, as a run has."""
    return document if document.verdicts or document.imported is not None else judge_run(document)


def as_stored(document: RunDocument) -> StoredRun:
    return StoredRun(Path(RUN), as_bytes(judged(document)))


class Page(NamedTuple):
    """A page: its blocks, their source, and the files of its charts."""

    blocks: Blocks
    text: str
    figures: dict[str, str]


@cache
def _rendered(stored: StoredRun, *, drawn: bool) -> Page:
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            patch.setattr(pictures, "_svg", lambda _spec: "<svg></svg>")
        page = render(stored)
    return Page(page.blocks, to_rst(page.blocks), page.figures)


def page_of(document: RunDocument, *, drawn: bool = False) -> Page:
    """Return the page of *document*, rendered once; its pictures are empty unless *drawn*."""
    return _rendered(as_stored(document), drawn=drawn)


def page_with(document: RunDocument, references: Library) -> Page:
    """Return the page of *document*, compared with *references*."""
    page = render(as_stored(document), references)
    return Page(page.blocks, to_rst(page.blocks), page.figures)


def first_screen(document: RunDocument, references: Library | None = None) -> Story:
    """Return the first screen of *document*, judged alone, beside *references*, by default the published ones."""
    document = judged(document)
    compared = normal(document, published() if references is None else references)
    return story(document, standing_in(judge_alone(document), document), compared)


directives.register_directive("rst-class", Class)  # type: ignore[no-untyped-call]


@cache
def _parsed(text: str) -> nodes.document:
    strict = {"halt_level": 2, "report_level": 2, "warning_stream": ""}
    tree: nodes.document = publish_doctree(text, settings_overrides=strict)
    return tree


def parsed(page: Page) -> nodes.document:
    """Return *page* as docutils parses it, once, with every warning as an error. Nobody may change the tree."""
    return _parsed(page.text)


def figure_count(document: RunDocument) -> int:
    """Return how many figures the page of *document* has, by its text."""
    return page_of(document).text.count(".. figure::")


def guide(folder: Path) -> Path:
    """Make a guide of one page in *folder* with the project's own configuration and style, and return it."""
    docs = HERE.parents[1] / "docs"
    shutil.copytree(docs / "_static", folder / "_static")
    shutil.copyfile(docs / "conf.py", folder / "conf.py")
    text = "Guide\n=====\n\n.. index:: lighthouse\n\n.. toctree::\n\n   calibration/index\n"
    (folder / "index.rst").write_text(text, encoding="utf-8")
    return folder


def store(document: RunDocument, results: Path) -> Path:
    """Write *document* where the store has it, and return its directory."""
    run = document.run
    directory = results / run.testbed / run.sut / run.id
    directory.mkdir(parents=True)
    (directory / RUN).write_bytes(as_bytes(document))
    return directory


def replace(document: RunDocument, index: int, **fields: Any) -> RunDocument:
    """Return *document* with fields of one of its measurements replaced."""
    measurements = list(document.measurements)
    measurements[index] = measurements[index].model_copy(update=fields)
    found = tuple(measurements)
    return document.model_copy(update={"measurements": found, "record": metrics_of_record(found)})


def index_of(document: RunDocument, kind: str) -> int:
    return next(index for index, measurement in enumerate(document.measurements) if measurement.kind == kind)


def flagged(document: RunDocument, index: int, code: str, reason: str) -> RunDocument:
    kept: tuple[Flag, ...] = document.measurements[index].validity.flags
    added = flag(code, reason)
    return replace(document, index, validity=Validity(valid=added.severity != "invalid", flags=(added, *kept)))


def with_rounds(value: Any) -> Any:
    """Return *value*, a model or a part of one, with its estimates made of the same samples in rounds of two."""
    if isinstance(value, Estimate):
        rounds = [place // 2 for place in range(len(value.samples))]
        target = value.target_half_width
        made = estimate_of(value.samples, value.unit, rounds=rounds, target_half_width=target)
        return value if value.estimator == "derived" else made
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: with_rounds(part) for name, part in value})
    if isinstance(value, tuple):
        return tuple(map(with_rounds, value))
    return type(value)((name, with_rounds(part)) for name, part in value.items()) if isinstance(value, dict) else value


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return *estimate* with every figure multiplied: the shape of a recorded figure at another value."""
    return Estimate.model_validate(
        {
            **estimate.model_dump(),
            "value": estimate.value * factor,
            "interval": None if estimate.interval is None else tuple(item * factor for item in estimate.interval),
            "prediction": None if estimate.prediction is None else tuple(item * factor for item in estimate.prediction),
            "minimum": estimate.minimum * factor,
            "maximum": estimate.maximum * factor,
            "samples": tuple(tuple(item * factor for item in line) for line in estimate.samples),
        }
    )


def with_nodes(document: RunDocument, count: int) -> RunDocument:
    """Return *document* with matrices of *count* nodes, grown from the recorded cell; the last cell has no value.

    More than two nodes are of two sockets.
    """
    nodes = tuple(range(count))
    near = {
        node: tuple(other for other in nodes if other != node and other // (count // 2) == node // (count // 2))
        for node in nodes[: -1 if count > 2 else 0]
    }
    gone = Missing(what=f"{count - 1}@{count - 1}", reason="no_memory: expected 128 MiB on that node, found 3 MiB free")
    for kind, step in (("latency_matrix", 0.4), ("bandwidth_matrix", -0.03)):
        index = index_of(document, kind)
        values = document.measurements[index].values
        assert isinstance(values, NodeMatrixValues)
        rows = list(grown(values, count, lambda row, node, step=step: 1 + step * abs(row - node) + row / 100))
        if count > 1:
            rows[-1] = TableRow(rows[-1] | {values.drawn[0]: None})
        missing = (gone,) if count > 1 else ()
        values = with_rows(values, rows).model_copy(update={"near": near})
        document = replace(document, index, values=values, missing=missing)
    return _with_remote_transfers(document, nodes) if count > 1 else document


def grown(values: NodeMatrixValues, count: int, factor: Callable[[int, int], float]) -> Iterator[TableRow]:
    """Yield the rows of a matrix of *count* nodes, each the recorded one times its *factor*."""
    recorded, *_ = values.table.rows
    column, own_cpu = values.drawn[0], "cpu" in values.columns
    for row, node in product(range(count), repeat=2):
        cell = scaled(getattr(recorded, column), factor(row, node))
        cpu = {"cpu": 1 + row} if own_cpu else {}
        yield TableRow(recorded | {"cpu_node": row, "memory_node": node, column: cell, **cpu})


def with_rows(values: GridValues, rows: Iterable[TableRow]) -> GridValues:
    """Return *values* with other rows of their table."""
    return values.model_copy(update={"table": values.table.model_copy(update={"rows": tuple(rows)})})


def _with_remote_transfers(document: RunDocument, nodes: tuple[int, ...]) -> RunDocument:
    """Return *document* with cache-to-cache matrices of *nodes*, grown from the recorded local transfer."""
    index = index_of(document, "c2c_latency")
    values = document.measurements[index].values
    assert isinstance(values, C2cLatencyValues)
    recorded = values.table.rows[1]
    rows = [
        TableRow(
            recorded
            | {"transfer": f"remote_hitm_{homed}_homed", "writer_node": writer, "reader_node": reader}
            | {"writer": writer, "reader": reader}
            | {"latency_ns": scaled(recorded.latency_ns, factor + writer / 10 + reader / 100)}
        )
        for homed, factor in (("writer", 3), ("reader", 4))
        for writer, reader in permutations(nodes, 2)
    ]
    return replace(document, index, values=with_rows(values, [*values.table.rows, *rows]))


def with_cpus(document: RunDocument, count: int) -> RunDocument:
    """Return *document* with the recorded jitter on *count* CPUs, the longest gap growing from each to the next."""
    index = index_of(document, "jitter")
    recorded = document.measurements[index]
    values = recorded.values
    assert isinstance(values, JitterValues)
    copies = tuple(
        recorded.model_copy(
            update={
                "id": f"jitter-cpu{cpu}",
                "values": values.model_copy(
                    update={
                        "cpu": cpu,
                        "gaps": values.gaps.model_copy(update={"max_ns": values.gaps.max_ns * (1 + cpu / 100)}),
                    }
                ),
            }
        )
        for cpu in range(count)
    )
    kept = document.measurements
    return document.model_copy(update={"measurements": (*kept[:index], *copies, *kept[index + 1 :])})


def imported(raw: bytes, source: str = "page.rst", sut: str = "sut1", *, publish: bool = True) -> RunDocument:
    """Return the document that the text *raw* is imported as."""
    return document_of(
        read_published(raw.decode("utf-8", errors="replace")),
        raw,
        source=source,
        testbed="example-lab",
        sut=sut,
        measured_on=date(2021, 2, 3),
        now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        publish=publish,
    )
