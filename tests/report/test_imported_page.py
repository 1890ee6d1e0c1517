# SPDX-License-Identifier: Apache-2.0
"""Pages of imported documents."""

import re
from pathlib import Path

import pytest
from docutils import nodes

from calibration.base.errors import InputError
from calibration.formats.csit_page import read_published
from calibration.report.page_cache import data_of
from calibration.report.site import build_site
from tests.readings import FIXTURES, MESS, PAGES, RAW, corpus, figures
from tests.report.goldens import assert_golden
from tests.report.report_documents import Page, as_stored, guide, imported, parsed, run_document, store
from tests.report.report_documents import page_of as page_of_document

MLC_OUTPUT = FIXTURES / "mlc" / "v3.10-base-clocks.txt"


def page_of(path: Path) -> Page:
    return page_of_document(imported(path.read_bytes(), path.name))


def test_the_page_matches_its_golden() -> None:
    assert_golden("imported-placeholders", page_of(next(path for path in PAGES if path.stem == "placeholders")).text)


def test_a_page_without_a_date_says_so() -> None:
    document = imported(PAGES[1].read_bytes())
    assert document.imported is not None
    undated = document.imported.model_copy(update={"measured_on": None})
    text = page_of_document(document.model_copy(update={"imported": undated})).text
    assert "* - Measured on\n        - unknown\n" in text


@pytest.mark.parametrize("path", [*PAGES, *RAW, MESS], ids=lambda path: path.stem)
def test_every_value_of_a_text_is_on_its_page(path: Path) -> None:
    page = page_of(path)
    images = list(parsed(page).findall(nodes.image))
    assert [image["uri"] for image in images] == pictures(page)
    assert all(image["alt"].strip() for image in images)
    published = read_published(path.read_bytes().decode())
    found = figures(published.read)
    assert ("The text has no values." in page.text) == (not found)
    printed = {float(text) for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", blocks(page))}
    gone = [name for name, value in found.items() if not {value, round(value, 1), round(value, 2)} & printed]
    assert gone == []
    for line in (published.context.cmdline, published.context.uname):
        assert line is None or line in page.text


def blocks(page: Page) -> str:
    """Return what stands in the literal blocks of *page*."""
    return "\n".join(element.astext() for element in parsed(page).findall(nodes.literal_block))


def pictures(page: Page) -> list[str]:
    """Return the paths of the pictures of *page*, without their dark versions."""
    return [figure for figure in page.figures if figure.endswith(".svg") and not figure.endswith("-dark.svg")]


def test_pages_of_this_project_are_not_imported() -> None:
    for text in (page_of(PAGES[1]).text, page_of_document(run_document(names=("idle_latency",))).text):
        for page in (text, f"\ufeff:orphan:\n\n{text}"):
            with pytest.raises(InputError, match=r"^this page was made by this project: use its run\.json$"):
                read_published(page)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_lists_inconsistencies(path: Path) -> None:
    text = page_of(path).text
    assert "not measured here" in text
    assert "2021-02-03" in text
    for inconsistency in read_published(path.read_text(encoding="utf-8")).read.inconsistencies:
        assert inconsistency.code.replace("_", "\\_") in text


@pytest.mark.thorough
def test_mutated_texts_have_valid_pages() -> None:
    shown = 0
    for raw in corpus():
        try:
            document = imported(raw)
        except InputError:
            continue
        parsed(page_of_document(document))
        shown += 1
    assert shown > 50


@pytest.mark.parametrize("row", ["0.00  1000.5", "90.50  0.0"])
def test_a_sweep_of_zeros_has_no_chart(row: str) -> None:
    heading = "Inject Latency Bandwidth\nDelay (ns) MB/sec"
    text = f"Command line parameters: --loaded_latency -d0\n{heading}\n00000 {row}\n"
    page = page_of_document(imported(text.encode()))
    assert not page.figures
    parsed(page)


def test_an_import_is_history_on_the_site(tmp_path: Path) -> None:
    results = tmp_path / "results"
    measured = run_document(names=("idle_latency",))
    store(measured, results)
    store(imported(PAGES[1].read_bytes(), sut=measured.run.sut), results)
    store(imported(PAGES[0].read_bytes(), sut="only-imported"), results)
    store(imported(MLC_OUTPUT.read_bytes(), sut=measured.run.sut, publish=False), results)
    html = build_site(results, guide(tmp_path / "docs"), tmp_path / "html").parent / "calibration"
    newest = (html / "example-lab" / measured.run.sut / "index.html").read_text(encoding="utf-8")
    assert "not measured here" not in newest
    assert "imported, measured on 2021-02-03" in newest
    assert newest.count("<td><p>may not be published</p></td>") == 1
    assert len(list((html / "example-lab" / measured.run.sut).glob("imported-*.json"))) == 1
    only = (html / "example-lab" / "only-imported" / "index.html").read_text(encoding="utf-8")
    assert "not measured here" in only
    assert "example-lab/only-imported" in (html / "index.html").read_text(encoding="utf-8")


def test_raw_output_of_mlc_is_shown_only_with_consent() -> None:
    raw = MLC_OUTPUT.read_bytes()
    kept = imported(raw, publish=False)
    assert kept.readings
    text = page_of_document(kept).text
    assert "not shown" in text
    assert "106.1" not in text
    assert not data_of(as_stored(kept)).public
    assert "106.1 ns" in page_of_document(imported(raw)).text
    assert page_of_document(imported(PAGES[0].read_bytes(), publish=False)).text.count("2878198551") == 1
