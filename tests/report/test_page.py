# SPDX-License-Identifier: Apache-2.0
"""Pages: golden parts, markup without warnings, and the files that are written."""

import hashlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from docutils import nodes

from calibration.base import units
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.validity import Flag
from calibration.commands.report import report_command
from calibration.judge.standing import Standings
from calibration.measurements import registry
from calibration.measurements.base import Metric
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.report import rendering
from calibration.report.rendering import render_run
from calibration.report.sections import SECTIONS
from calibration.results.layout import RUN
from calibration.results.model import NotMeasured, RunDocument, Verdict
from tests.report.goldens import assert_golden
from tests.report.made_counts import OVERCOUNTED, counted_document, measured, regulated, volume
from tests.report.report_documents import (
    FIXTURES,
    HERE,
    Page,
    as_bytes,
    checked_document,
    flagged,
    index_of,
    judged,
    not_begun_document,
    page_of,
    parsed,
    prefetchers_document,
    replace,
    run_document,
    second_document,
    store,
    with_cpus,
    with_nodes,
    with_rows,
)
from tests.report.test_charts import frequencies


def titles(tree: nodes.document) -> list[str]:
    return [title.astext() for title in tree.findall(nodes.title)]


def fold(tree: nodes.document, title: str) -> nodes.admonition:
    """Return the folded part whose title begins with *title*."""
    return next(element for element in tree.findall(nodes.admonition) if element.children[0].astext().startswith(title))


def first_screen(tree: nodes.document) -> str:
    """Return the text above the first section."""
    return "\n".join(child.astext() for child in tree.children if not isinstance(child, nodes.section))


def section(tree: nodes.document, title: str) -> nodes.section:
    return next(element for element in tree.findall(nodes.section) if element.children[0].astext() == title)


# What pages look like


NODES = ("latency_matrix", "bandwidth_matrix", "c2c_latency")

CASES = {
    "checked": lambda: _checked(not_begun_document()),
    "counters": counted_document,
    "every-kind": run_document,
    "meltdown-checker": checked_document,
    "not-begun": not_begun_document,
    "nothing-measured": lambda: run_document(names=(), status="interrupted"),
    "prefetchers-off": prefetchers_document,
    "second-instrument": lambda: second_document(names=("idle_latency", "latency_matrix")),
    "two-nodes": lambda: with_nodes(run_document(names=NODES), 2),
    "synthetic-shape-eight-nodes-invalid": lambda: _invalid_matrix(with_nodes(with_cpus(run_document(), 6), 8)),
}


def _invalid_matrix(document: RunDocument) -> RunDocument:
    index = index_of(document, "latency_matrix")
    return flagged(document, index, "PLACEMENT_WRONG", "99 of 100 pages checked lie on the wanted node")


def _checked(document: RunDocument) -> RunDocument:
    """Return *document* with two more checks of its last attempt, one of which fails."""
    *others, last = document.attempts
    met = last.checks[0].model_copy(update={"name": "architecture", "title": "Architecture", "outcome": "met"})
    lost = met.model_copy(update={"name": "time", "title": "Time", "outcome": "unknown", "severity": "flag"})
    attempts = (*others, last.model_copy(update={"checks": (*last.checks, met, lost)}))
    return document.model_copy(update={"attempts": attempts})


def part_of(text: str, title: str) -> str:
    """Return what is seen of the section *title* when nothing is unfolded; without a title, the first screen."""
    _, _, rest = text.partition(f"\n{title}\n----") if title else ("", "", text.partition("=====\n")[2])
    return re.split(r"\n[A-Z][a-z]+\n----|\n\.\. admonition:: [^\n]*\n   :class: fold", rest)[0].strip("-\n") + "\n"


def folded(text: str, title: str) -> str:
    """Return the folded part *title*."""
    found = re.search(rf"\n\.\. admonition:: {title}\n   :class: fold\n(.*?)(?=\n\S)", text, re.DOTALL)
    assert found is not None, title
    return textwrap.dedent(found[1]).strip("\n") + "\n"


FIRST_SCREENS = ("every-kind", "not-begun", "nothing-measured")

OF_KIND = dict.fromkeys(NODES, "two-nodes") | dict.fromkeys(("counted_volume", "regulation"), "counters")
"""The case that shows most of a kind."""

FRAGMENTS: dict[str, tuple[str, Callable[[str], str]]] = {
    **{f"first-screen-{case}": (case, partial(part_of, title="")) for case in FIRST_SCREENS},
    **{f"section-{title.lower()}": ("every-kind", partial(part_of, title=title)) for title in SECTIONS},
    **{
        f"kind-{kind}": (
            OF_KIND.get(kind, "every-kind"),
            partial(folded, title=f"{re.escape(declared.title)}: samples, intervals, command"),
        )
        for kind, declared in registry().items()
        if (HERE / "golden" / f"kind-{kind}.rst").exists()
    },
    "cross-checks": ("every-kind", partial(folded, title="Cross-checks: [^\n]*")),
    "flags": ("synthetic-shape-eight-nodes-invalid", partial(folded, title="Flags and evidence: [^\n]*")),
    "vulnerabilities": ("meltdown-checker", partial(folded, title="Vulnerabilities: [^\n]*")),
    "intel-mlc": ("second-instrument", partial(folded, title="Intel MLC")),
    "preflight": ("checked", partial(folded, title="Preflight: 1 of 2 checks met")),
}
"""Parts of pages, each with the case that it is of."""


@cache
def case(name: str) -> Page:
    return page_of(CASES[name]())


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_part_of_the_page_matches_its_golden(name: str) -> None:
    of, cut = FRAGMENTS[name]
    assert_golden(name, cut(case(of).text))


@pytest.mark.parametrize("name", CASES)
def test_a_page_parses_without_warnings_and_shows_all_charts(name: str) -> None:
    page = page_of(CASES[name](), drawn=True)
    images = list(parsed(page).findall(nodes.image))
    assert [image["uri"] for image in images] == [
        path for path in page.figures if path.endswith(".svg") and "-dark." not in path
    ]
    assert {Path(path).name.split(".")[0].removesuffix("-dark") for path in page.figures} == {
        Path(image["uri"]).stem for image in images
    }
    assert all(image["alt"].strip() for image in images)


def test_a_flag_of_another_version_is_shown() -> None:
    document = run_document(names=("idle_latency",))
    unknown = Flag(code="OF_ANOTHER_VERSION", severity="warn", reason="whatever it means")
    text = page_of(document.model_copy(update={"flags": (unknown,)})).text
    assert "OF_ANOTHER_VERSION" in text.replace("\\", "")
    assert "the machine: whatever it means" in text
    assert "This version does not know this flag." in text


def test_counts_are_shown_and_differences_flagged() -> None:
    document = counted_document()
    page = page_of(document)
    assert "with made counts" in page.text
    assert page.text.count(f"{OVERCOUNTED:.1%}".replace("%", " %")) > 4
    assert "COUNTED_DIFFERS" not in {
        flag.code for measurement in document.measurements for flag in measurement.validity.flags
    }
    assert "only with prefetchers off" in page.text
    assert "made: the machine has no such link" in page.text.replace("\\", "")
    assert "- not measured\n" not in page.text
    raw = volume()
    for event in (event for repeat in raw["result"]["repeats"] for event in repeat["counters"]["events"]):
        event |= {"background_count": None, "background_wall_s": None}
    unwatched = document.model_copy(update={"measurements": tuple(measured(raw, "counted_volume"))})
    assert page_of(unwatched).text.count("- not measured\n") == 2
    wrong = counted_document(36 / 33)  # the total that the article prints, against the volume that it describes
    (flag,) = (
        flag
        for measurement in wrong.measurements
        for flag in measurement.validity.flags
        if flag.code == "COUNTED_DIFFERS"
    )
    assert flag.reason.endswith("bytes read: +9.1 %")


def test_refused_counters_are_listed_with_reasons() -> None:
    raw = regulated("regulation", prefetchers=True)
    for item in (placement for point in raw["result"]["points"] for placement in point["placements"]):
        of = item["counters"]
        of["events"] = [event for event in of["events"] if event["name"] != "core.fb_hit"]
        refused = {"name": "core.fb_hit", "pmu": "cpu", "cpu": None, "errno": "EACCES", "reason": "not permitted here"}
        of["refused"] = [refused]
        reason = {"errno": "EINVAL", "reason": "no such sampling"}
        item["samples"] |= {"latency_cycles": None, "histogram": [], "kept": 0, "refused": reason}
    document = counted_document().model_copy(update={"measurements": tuple(measured(raw, "regulation-1"))})
    text = page_of(document).text.replace("\\", "")
    assert text.count("* core.fb_hit: cpu: not permitted here\n") == 1
    assert text.count("* samples: no such sampling\n") == 1
    assert "Not measured: Load miss real latency; Latency of sampled loads." in text.replace("\n", " ")


def test_run_without_counters_reports_missing_ones_once() -> None:
    reason = "the SUT is a guest that has no counters"
    gone = NotMeasured(kind="counters", what="dram.reads, core.l1_miss", reason=reason, cause="not_planned")
    document = run_document(names=("regulation", "regulation-2", "counted_volume", "idle_latency"))
    page = page_of(document.model_copy(update={"not_measured": (gone,)}))
    tree = parsed(page)
    for title in ("Bandwidth regulation", "Counted volume", "Skipped"):
        assert fold(tree, title).astext().count(reason) == 1
    absent = "Bandwidth by the memory controllers; L1 miss latency; Load miss real latency; Latency of sampled loads"
    assert absent in page.text.replace("\n", " ").replace("\\", "")


def test_the_answer_comes_first_and_the_sections_in_their_order(document: RunDocument) -> None:
    tree = parsed(page_of(document))
    sections = [element.children[0].astext() for element in tree.findall(nodes.section)]
    assert sections == ["Advice", "Normal", *SECTIONS, "Evidence"]
    blocks = [title for title in titles(tree) if title not in sections]
    assert blocks[0] == "example-lab / t3-sut2"
    assert blocks[1] == "unknown: no baseline: 1 of 10 nights so far"
    order = [
        "Latency matrix", "Idle latency", "Loaded latency", "Bandwidth matrix", "Peak injection bandwidth",
        "Maximum bandwidth",
    ]  # fmt: skip
    assert [block for kind in order for block in blocks if block == f"{kind}: samples, intervals, command"] == [
        f"{kind}: samples, intervals, command" for kind in order
    ]
    ends = [
        "Cross-checks", "Flags and evidence", "Machine", "Command line and uname", "Vulnerabilities", "Preflight",
        "Skipped", "Provenance",
    ]  # fmt: skip
    assert [block.split(":")[0] for block in blocks[-len(ends) :]] == ends


@pytest.mark.parametrize("machine", sorted(path.name[:-7] for path in (FIXTURES / "context").glob("*.tar.gz")))
def test_every_captured_machine_has_a_page(machine: str) -> None:
    document = run_document(machine, names=())
    text = parsed(page_of(document)).astext()
    context = document.context.parsed
    assert context.cmdline is not None
    assert context.cmdline.text.strip() in text
    assert context.capture.uname is not None
    assert context.capture.uname in text


@pytest.mark.parametrize(("state", "shown"), [(1, "on"), (0, "off"), (None, "unknown")])
def test_a_switch_of_the_machine_is_on_off_or_unknown(state: int | None, shown: str) -> None:
    document = run_document(names=())
    assert document.context is not None
    context = document.context.parsed
    memory = context.memory.model_copy(update={"numa_balancing": state})
    switched = document.context.model_copy(update={"parsed": context.model_copy(update={"memory": memory})})
    text = page_of(document.model_copy(update={"context": switched})).text
    assert re.findall(r"\* - NUMA balancing\n +- (.*)\n", text) == [shown]


def test_a_page_does_not_pass_for_output_of_mlc(document: RunDocument) -> None:
    text = parsed(page_of(document)).astext()
    assert "Intel(R)" not in text
    assert "Memory Latency Checker" not in text


# Pure, whole or not at all


def test_the_same_document_gives_the_same_bytes_in_another_process(document: RunDocument, tmp_path: Path) -> None:
    directory = store(judged(document), tmp_path)
    code = (
        "import hashlib, pathlib, sys\n"
        "from calibration.report.page import render\n"
        "from calibration.report.rst import to_rst\n"
        "from calibration.results.store import open_run\n"
        "page = render(open_run(pathlib.Path(sys.argv[1])))\n"
        "print(hashlib.sha256(repr((to_rst(page.blocks), page.figures)).encode()).hexdigest())\n"
    )
    elsewhere = {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", code, str(directory / RUN)]
    done = subprocess.run(command, env={**os.environ, **elsewhere}, check=True, capture_output=True, text=True)
    page = page_of(document, drawn=True)
    assert done.stdout.strip() == hashlib.sha256(repr((page.text, page.figures)).encode()).hexdigest()


def test_the_page_is_written_beside_the_document(document: RunDocument, tmp_path: Path) -> None:
    directory = store(judged(document), tmp_path)
    folder = directory / "report"
    assert render_run(directory, Standings()) == folder / "page.rst"
    page = page_of(document, drawn=True)
    written = {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
    assert written == {"page.rst": page.text, **page.figures}
    assert sorted(path.name for path in directory.iterdir()) == ["report", RUN]


def test_charts_of_an_older_page_are_removed(document: RunDocument, tmp_path: Path) -> None:
    directory = store(document, tmp_path)
    render_run(directory, Standings())
    (directory / RUN).write_bytes(as_bytes(run_document(names=())))
    render_run(directory, Standings())
    assert [path.name for path in (directory / "report").rglob("*") if path.is_file()] == ["page.rst"]


def test_a_failed_write_leaves_the_old_page(
    document: RunDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = store(document, tmp_path)
    before = render_run(directory, Standings()).read_bytes()
    write = Path.write_text

    def full_disk(path: Path, text: str, **options: Any) -> int:
        if path.suffix == ".svg":
            raise OSError(28, "No space left on device")
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(EnvironmentLacksError, match="No space left on device"):
        render_run(directory, Standings())
    assert (directory / "report" / "page.rst").read_bytes() == before
    assert sorted(path.name for path in directory.iterdir()) == ["report", RUN]


def test_a_broken_document_has_no_page(document: RunDocument, tmp_path: Path) -> None:
    directory = store(document, tmp_path)
    (directory / RUN).write_bytes(as_bytes(document).replace(b'"run/1"', b'"run/0"'))
    with pytest.raises(InputError, match="run"):
        render_run(directory, Standings())
    assert [path.name for path in directory.iterdir()] == [RUN]


def test_a_verdict_is_shown_beside_its_metric(document: RunDocument) -> None:
    measurement = document.measurements[index_of(document, "idle_latency")]
    metric: Metric = next(iter(registry()["idle_latency"].metrics(measurement.values)))
    verdict = Verdict(
        name=metric.name, measurement=measurement.id, metric=metric, lower=None, upper=1.0, outcome="fail",
        reason="above",
    )  # fmt: skip
    tree = parsed(page_of(document.model_copy(update={"verdicts": (verdict,)})))
    rows = [row.astext() for row in section(tree, "Latency").findall(nodes.row)]
    assert [row for row in rows if "outside its limits" in row] == [row for row in rows if row.startswith(metric.title)]
    found = re.escape(f"{metric.title}: {units.measured(metric.value, metric.unit)}")
    assert re.search(rf"{found}, .* times above the accepted range \(at most 1 ns\)", first_screen(tree))


# Invalid, missing, many


def test_invalid_values_are_struck_out_and_shown(document: RunDocument) -> None:
    index = index_of(document, "idle_latency")
    values = document.measurements[index].values
    assert isinstance(values, IdleLatencyValues)
    latency = values.latency_ns.model_copy(update={"interval": None, "coverage": None})
    lacking = replace(document, index, values=values.model_copy(update={"latency_ns": latency}))
    invalid = flagged(lacking, index, "PLACEMENT_WRONG", "99 of 100 pages checked lie on the wanted node")
    page = page_of(invalid)
    tree = parsed(page)
    value = next(iter(registry()["idle_latency"].metrics(document.measurements[index].values))).value

    part = fold(tree, "Idle latency")
    block = next(iter(part.findall(nodes.literal_block)))
    assert "struck" in block["classes"]
    assert f"{value:.1f}" in block.astext()
    assert "INVALID, struck out" in part.astext()
    cells = [element.astext() for element in part.findall(nodes.inline) if "struck" in element["classes"]]
    assert units.table_value(value, "ns") in cells
    assert "-" not in cells, "a missing value cannot be invalid"

    rows = [row for row in section(tree, "Latency").findall(nodes.row) if row.astext().startswith("Idle latency")]
    assert [element.astext() for element in rows[0].findall(nodes.inline) if "struck" in element["classes"]] == [
        f"{value:.0f} ns"
    ]
    assert rows[0].astext().endswith("invalid: placement")
    assert "99 of 100 pages checked lie on the wanted node" in fold(tree, "Flags and evidence").astext()
    assert "PLACEMENT_WRONG: 99 of 100 pages checked" in first_screen(tree)


def test_an_invalid_measurement_marks_its_chart(document: RunDocument) -> None:
    page = page_of(_invalid_matrix(with_nodes(document, 2)), drawn=True)
    assert "PLACEMENT_WRONG" in page.figures["figures/numa.svg"]
    assert "PLACEMENT_WRONG" not in page.figures["figures/latency-ladder.svg"]


@pytest.mark.parametrize(
    "kind",
    [
        kind if number % 8 == 0 else pytest.param(kind, marks=pytest.mark.thorough)
        for number, kind in enumerate(sorted(registry()))
    ],
)
def test_a_kind_without_a_measurement_says_why(document: RunDocument, kind: str) -> None:
    gone = NotMeasured(kind=kind, what="All of it", reason="the kernel ended with exit code 3", cause="failed")
    kept = tuple(measurement for measurement in document.measurements if measurement.kind != kind)
    tree = parsed(page_of(document.model_copy(update={"measurements": kept, "not_measured": (gone,)})))
    assert "Not measured: All of it: the kernel ended with exit code 3." in first_screen(tree)
    skipped = fold(tree, "Skipped: 1 failed")
    assert "the kernel ended with exit code 3" in skipped.astext()
    assert not [title for title in titles(tree) if title == f"{registry()[kind].title}: samples, intervals, command"]
    assert [title for title in titles(tree) if title in SECTIONS] == list(SECTIONS)


def test_a_page_has_the_sections_that_its_run_measured_or_skipped() -> None:
    burnt = run_document(names=("burn_in",))
    gone = NotMeasured(kind="jitter", what="All of it", reason="by the profile", cause="not_planned")
    for skipped, expected in (((), {"Cores"}), ((gone,), {"Cores", "Jitter"})):
        tree = parsed(page_of(burnt.model_copy(update={"not_measured": skipped})))
        assert {title for title in titles(tree) if title in SECTIONS} == expected


def test_missing_parts_are_listed_with_their_kind(document: RunDocument) -> None:
    gone = NotMeasured(kind="idle_latency", what="From CPU 7", reason="it was switched off", cause="failed")
    tree = parsed(page_of(document.model_copy(update={"not_measured": (gone,)})))
    assert "From CPU 7 (failed): it was switched off" in fold(tree, "Idle latency").astext()


@pytest.mark.parametrize(("count", "rows", "matrices"), [(2, 4, 0), (8, 0, 1)])
def test_remote_transfers_have_intervals_or_half_widths(count: int, rows: int, matrices: int) -> None:
    shaped = with_nodes(run_document(names=NODES), count)
    tree = parsed(page_of(shaped))
    assert "no_memory: expected 128 MiB on that node, found 3 MiB free" in fold(tree, "Latency matrix").astext()
    part = fold(tree, "Cache-to-cache latency")
    _, *halves = (block.astext() for block in part.findall(nodes.literal_block))
    tables = [table for table in part.findall(nodes.table) if "figures" in table["classes"]]
    found = sum("homed" in row.astext() for table in tables for row in table.findall(nodes.row))
    assert (found, len(halves)) == (rows, matrices)
    values: Any = shaped.measurements[index_of(shaped, "c2c_latency")].values
    for text in halves:
        first_row = text.split("Writer Numa Node")[2].split("\n")[1].split()
        recorded = values.table.cells("latency_ns")["remote_hitm_reader_homed", 0, 1]
        assert first_row[2] == units.fixed(units.half(recorded), 2)


def test_nodes_with_one_cpu_each_have_remote_transfers_only() -> None:
    shaped = with_nodes(run_document(names=NODES), 4)
    index = index_of(shaped, "c2c_latency")
    values: Any = shaped.measurements[index].values
    remote = [row for row in values.table.rows if row.transfer.startswith("remote")]
    shaped = replace(shaped, index, values=with_rows(values, remote))
    tree = parsed(page_of(shaped))
    part = fold(tree, "Cache-to-cache latency")
    figures = next(part.findall(nodes.literal_block)).astext()
    assert "Local: node" not in figures
    assert [line.split()[-1] for line in figures.split("\n") if line.startswith("Local Socket")] == ["-", "-"]
    assert figures.count("Reader Numa Node") == 2


def test_of_many_cpus_those_with_the_longest_gaps_are_shown(document: RunDocument) -> None:
    page = page_of(with_cpus(document, 12))
    part = section(parsed(page), "Jitter")
    first_lines = [block.astext().split("\n")[1] for block in part.findall(nodes.literal_block)]
    assert [line for line in first_lines if re.fullmatch(r"CPU \d+, not isolated", line)] == [
        f"CPU {cpu}, not isolated" for cpu in (8, 9, 10, 11)
    ]
    for cpu in range(12):
        assert f"Inst_jitter, CPU {cpu}" in part.astext()
    assert "(highest of 12)" in part.astext()
    assert "(lowest of 12)" in part.astext()


def test_gaps_without_counters_are_not_attributed(document: RunDocument) -> None:
    index = index_of(document, "jitter")
    values: Any = document.measurements[index].values
    gaps = values.gaps.model_copy(update={"attribution": None})
    text = page_of(replace(document, index, values=values.model_copy(update={"gaps": gaps}))).text
    assert f"Unknown on CPU {values.cpu}: no counter could be read." in text


def test_clocks_by_active_cores_are_rows_of_the_summary_and_a_chart(document: RunDocument) -> None:
    values = frequencies(8, steps=True).values
    page = page_of(replace(document, index_of(document, "core_frequency"), values=values))
    part = folded(page.text, "Core frequency[^\n]*: samples, intervals, command")
    assert re.findall(r"- scalar, (\S+) cores at once\n", part) == ["2", "4", "all"]
    assert not [line for line in part.splitlines() if "scalar, 2" in line and "CPU " in line], "CPUs alone and all only"
    assert "figures/core-frequency-turbo.svg" in page.figures


# The command


def test_the_command_renders_every_run(document: RunDocument, tmp_path: Path) -> None:
    first = store(document, tmp_path)
    second = store(run_document(names=(), id="20260103T030405Z-0a1b"), tmp_path)
    result = CliRunner().invoke(report_command, [str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.split() == [str(item / "report" / "page.rst") for item in (first, second)]
    assert all((item / "report" / "page.rst").is_file() for item in (first, second))


@pytest.mark.parametrize("existing", [True, False])
def test_the_command_refuses_a_directory_without_runs(tmp_path: Path, *, existing: bool) -> None:
    place = tmp_path if existing else tmp_path / "nowhere"
    result = CliRunner().invoke(report_command, [str(place)])
    assert isinstance(result.exception, InputError)
    assert str(place) in str(result.exception)


def test_the_command_reports_a_page_that_cannot_be_written(
    document: RunDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = store(document, tmp_path)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rendering, "_replace", refuse)
    result = CliRunner().invoke(report_command, [str(directory)])
    assert isinstance(result.exception, EnvironmentLacksError)
    assert "Permission denied" in str(result.exception)
