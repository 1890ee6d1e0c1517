# SPDX-License-Identifier: Apache-2.0
"""What a page, the screen and a site say about what is normal for the hardware."""

import io
from pathlib import Path

import pytest
from docutils import nodes

from calibration.judge.standing import Standings
from calibration.references.library import FOLDER, Library, library
from calibration.references.model import ReferenceFile
from calibration.references.own import text_of
from calibration.report import kept
from calibration.report.headlines import HeadlineRow
from calibration.report.rendering import render_run
from calibration.report.show import print_story
from calibration.results.model import RunDocument, Verdict
from tests.hardware import SOURCE, library_of, machine, on_metal
from tests.report.report_documents import Page, first_screen, page_of, page_with, parsed, run_document, store

NAMES = ("idle_latency", "latency_matrix", "peak_injection_bandwidth", "latency_ladder", "bandwidth_matrix")


@pytest.fixture(name="run", scope="module")
def _run() -> RunDocument:
    return on_metal(run_document(names=NAMES))


@pytest.fixture(name="references", scope="module")
def _references(run: RunDocument) -> Library:
    """Return references of equal machines by our own instrument, of another memory, and by other instruments."""
    values = {item.metric.name: item.metric.value for item in run.record}
    idle, read = values["latency_matrix.0.0.latency_ns"], values["peak_injection_bandwidth.reads.bandwidth_mb_s"]
    return library_of(
        *(machine(f"t/{number}", idle * share) for number, share in enumerate((0.97, 0.99, 1.0, 1.02), 1)),
        *(machine(f"t/{number}", read * share, "read_machine_mb_s") for number, share in enumerate((1.2, 1.25), 1)),
        machine("t/9", 81.2, mt_s=2666),
        machine("s32-t27-sut1", 81.3, instrument="mlc"),
        machine("t/8", 90.0, instrument="mess", nodes_per_socket=None),
    )


def section_of(page: Page) -> nodes.section:
    tree = parsed(page)
    return next(part for part in tree.findall(nodes.section) if part.children[0].astext() == "Normal")


def words(page: Page) -> str:
    return " ".join(section_of(page).astext().split())


def test_the_page_says_what_is_usual_and_what_is_context(run: RunDocument, references: Library) -> None:
    text = words(page_with(run, references))
    assert "Idle latency 151 ns is normal: 151 ns is usual for this processor (4 machines: 147 to 155 ns)." in text
    usual = "17.8 GB/s is usual for this processor (2 machines: 17.4 to 18.2 GB/s)"
    assert f"Read bandwidth 14.5 GB/s is 17 % below: {usual}." in text
    assert "1 of 2 figures with a reference are within the range of the other machines" in text
    assert "the furthest beyond is Read bandwidth, all CPUs (17 % below). A range of few machines is no limit." in text
    assert "Theoretical peak: 282 GB/s (12 of 12 channels populated, 2933 MT/s); all CPUs read 5.2 % of it." in text
    context = "sutprobe: 81.2 ns (1 machine; with 2666 MT/s); Intel MLC: 81.3 ns (1 machine); "
    assert f"{context}Mess: 90.0 ns (1 machine; unknown: nodes of a socket)" in text
    assert "Intel MLC: one allocation, no interval." in text
    assert "Mess: the lightest point of a loaded curve" in text
    assert "sutprobe: one" not in text
    assert "Example lab own runs 2026-01-31 (measured), CC0-1.0" in text


def test_a_figure_beyond_what_is_usual_fails_nothing(run: RunDocument, references: Library) -> None:
    with_them, without = (first_screen(run, known) for known in (references, library_of()))
    assert (with_them.look, with_them.answer, with_them.findings) == (without.look, without.answer, without.findings)
    assert not any(row.outside for row in with_them.headlines)


def test_only_equal_machines_of_our_instrument_are_in_the_headline_table(run: RunDocument, references: Library) -> None:
    def headlines(known: Library, document: RunDocument = run) -> dict[str, HeadlineRow]:
        return {row.anchor: row for row in first_screen(document, known).headlines}

    found = headlines(references)
    assert found["idle-latency"].accepted == "usual: 147 to 155 ns (4 machines)"
    assert found["read-bandwidth"].accepted == "usual: 17.4 to 18.2 GB/s (2 machines)"
    others = Library(tuple((source, item) for source, item in references.entries if item.name in {"t/8", "t/9"}))
    assert {row.accepted for row in headlines(others).values()} == {""}
    verdict = Verdict(
        name="latency_matrix.0.0.latency_ns", measurement="latency_matrix", metric=run.record[0].metric, lower=90.0,
        upper=200.0, outcome="pass", reason="",
    )  # fmt: skip
    limited = headlines(references, run.model_copy(update={"verdicts": (verdict,)}))
    assert limited["idle-latency"].accepted == "90 to 200 ns"
    assert "usual: 147 to 155 ns (4 machines)" in page_with(run, references).text


def test_without_references_the_page_says_so(run: RunDocument) -> None:
    text = words(page_with(run, library_of()))
    assert text.startswith("Normal No reference of Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz. Theoretical peak: ")
    guest = words(page_with(run_document(names=NAMES), library_of(machine("t/1", 98.0))))
    assert guest == "Normal No reference: host hardware unknown (virtual machine)."


def test_published_figures_are_context_by_default(run: RunDocument) -> None:
    text = words(page_of(run))
    assert "No reference by sutprobe of a machine like this one. Idle latency: Intel MLC: 81.2 ns" in text
    assert "FD.io CSIT: calibration data of its testbeds https://github.com/FDio/csit" in text
    assert "CC-BY-4.0" in text


HOSTILE = "`a <javascript:alert(1)>`_ |x| **b** <script>alert(1)</script> [1]_"


def test_texts_of_a_shared_file_and_of_the_processor_are_shown_as_text(run: RunDocument) -> None:
    named = on_metal(run, processor=HOSTILE)
    source = SOURCE.model_copy(update={"title": HOSTILE})
    shared = machine(HOSTILE, 98.0, how=HOSTILE, processor=HOSTILE)
    text = words(page_with(named, Library(((source, shared),))))
    assert text.count(HOSTILE) == 3, "the way of measuring twice, the source once"
    assert f"No reference of {HOSTILE}." in words(page_with(named, library_of()))


def test_the_screen_has_the_answer(run: RunDocument, references: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    stream = io.StringIO()
    print_story(first_screen(run, references), Path("results/lab/sut1/run1"), stream)
    text = stream.getvalue()
    assert "  Normal: Idle latency 151 ns is normal: 151 ns is usual for this processor (4 machines: 147 to" in text
    assert "          Read bandwidth 14.5 GB/s is 17 % below: 17.8 GB/s is usual for this processor" in text
    assert "usual: 147 to 155 ns (4 machines)" in text


def test_a_file_in_the_results_changes_the_page_and_a_bad_one_is_named(
    run: RunDocument, references: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "cache")
    results = tmp_path / "results"
    directory = store(run, results)
    assert "No reference by sutprobe" in render_run(directory, Standings()).read_text()
    (results / FOLDER).mkdir(parents=True)
    own = ReferenceFile(source=SOURCE, machines=tuple(item for _, item in references.entries[:4]))
    (results / FOLDER / "shared.yml").write_text(text_of(own))
    assert "is usual for this processor (4 machines" in render_run(directory, Standings()).read_text()
    (results / FOLDER / "bad.yml").write_text("source: 1\n")
    text = render_run(directory, Standings()).read_text().replace("\\", "")
    assert "is usual for this processor (4 machines" in text
    assert "references/figures/bad.yml: not a file of references" in text
    assert library(results).faults
